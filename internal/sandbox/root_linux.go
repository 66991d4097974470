//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A program needs these paths of the system, and nothing here belongs to anybody. Paths that a machine hasn't got are left out.
var (
	systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}
	systemEtc  = []string{
		"/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime",
		"/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted", // not /etc/ssl/private
	}
	networkEtc = []string{"/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/hosts", "/etc/services"}
	devices    = []string{"/dev/null", "/dev/zero", "/dev/urandom"}
)

// tempDir is where the temporary directory of the tier Full is. It is in memory and dies with the run.
const tempDir = "/tmp"

// rules let a program do with Landlock what it may do.
func (spec *launchSpec) rules() []rule {
	var rules []rule
	add := func(rights uint64, optional bool, paths ...string) {
		for _, p := range paths {
			rules = append(rules, rule{path: p, rights: rights, optional: optional})
		}
	}
	add(readFile|readDir|execute, true, systemDirs...)
	add(readFile|readDir, true, systemEtc...)
	if spec.Network {
		add(readFile|readDir, true, networkEtc...)
	}
	add(readFile|unix.LANDLOCK_ACCESS_FS_WRITE_FILE|unix.LANDLOCK_ACCESS_FS_TRUNCATE, false, devices...)
	add(readFile|readDir, false, spec.ReadOnly...)
	if spec.Program != "" {
		add(readFile|execute, false, spec.Program)
	}
	// The directory that was checked, whatever its name leads to now. In the tier Partial the temporary directory is below it, where another
	// program can put a link in its place: it must not be opened by its name.
	add(work, false, ".")
	if spec.Tier == Full {
		add(work, false, spec.Temp)
		add(readFile|readDir, true, "/proc") // its own, with nothing but its own processes
	}
	return rules
}

// Attributes of mounts: of what is read, of devices, and of what is written.
const (
	readOnly = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	device   = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC
	writable = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
)

// base is where the new root is built. Any directory will do: what was in it is held before.
const base = "/usr"

// tree is one piece of the old root, held while the new one is built.
type tree struct {
	path string
	fd   int
	dir  bool
}

// contents are what a new root shows.
type contents struct {
	trees []tree
	links map[string]string // by their names
}

// hold adds the trees at paths, which must be there.
func (c *contents) hold(by func(string, uint64) (tree, error), attrs uint64, paths ...string) error {
	for _, p := range paths {
		t, err := by(p, attrs)
		if err != nil {
			return err
		}
		c.trees = append(c.trees, t)
	}
	return nil
}

// holdPresent adds what is there of paths. Links at the top, such as /bin -> usr/bin, are links in the new root, too.
func (c *contents) holdPresent(by func(string, uint64) (tree, error), attrs uint64, paths ...string) error {
	for _, p := range paths {
		if target, err := os.Readlink(p); err == nil && filepath.Dir(p) == "/" {
			c.links[p] = target
		} else if err := c.hold(by, attrs, p); err != nil && !missing(err) {
			return err
		}
	}
	return nil
}

// missing tells whether an error says that a path names nothing.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) }

func attributes(fd int, path string, set uint64, flags uint) error {
	return unix.MountSetattr(fd, path, flags, &unix.MountAttr{Attr_set: set})
}

// hold takes a copy of the mounts at and below path, with the attributes set on each of them.
func hold(path string, attrs uint64) (tree, error) {
	return holdAt(unix.AT_FDCWD, path, path, attrs)
}

// holdAt is like hold. The copy is of the file at name below the open directory dir, or of dir itself if there is no name.
func holdAt(dir int, name, path string, attrs uint64) (tree, error) {
	fd, err := unix.OpenTree(dir, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_EMPTY_PATH)
	if err != nil {
		return tree{}, os.NewSyscallError("open_tree "+path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return tree{}, err
	}
	if err := attributes(fd, "", attrs, unix.AT_EMPTY_PATH|unix.AT_RECURSIVE); err != nil {
		return tree{}, os.NewSyscallError("mount_setattr "+path, err)
	}
	return tree{path, fd, st.Mode&unix.S_IFMT == unix.S_IFDIR}, nil
}

// newRoot replaces the root by an empty one in memory with read-only views of what a program needs, the workspace, an empty temporary
// directory and, where the kernel gives one, a /proc of the new PID namespace. The working directory is the workspace before and after.
func (spec *launchSpec) newRoot() error {
	if err := mountsPrivate(); err != nil {
		return err
	}
	if spec.Root {
		if err := boundProcesses(spec.Limits.Processes); err != nil {
			return err
		}
	}
	optional, required := slices.Concat(systemDirs, systemEtc), slices.Clone(spec.ReadOnly)
	if spec.Network {
		optional = append(optional, networkEtc...)
	}
	if spec.Program != "" && !inside(spec.Program, systemDirs) {
		required = append(required, spec.Program)
	}
	shown := contents{links: map[string]string{}}
	if err := errors.Join(shown.holdPresent(hold, readOnly, optional...), shown.hold(hold, device, devices...), shown.hold(hold, readOnly, required...)); err != nil {
		return err
	}
	workspace, err := hold(".", writable|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	workspace.path = spec.Dir
	if proc := freshProc(); proc >= 0 {
		shown.trees = append(shown.trees, tree{"/proc", proc, true})
	}

	root, err := emptyRoot()
	if err != nil {
		return err
	}
	defer root.Close()
	if err := mountMemory(tempDir, unix.MS_NOEXEC, fmt.Sprintf("size=%d,nr_inodes=65536,mode=0700", spec.Limits.File)); err != nil {
		return err
	}
	// The workspace comes last: it may lie below what is read-only, or in the temporary directory's place.
	if err := attach(root, append(shown.trees, workspace)...); err != nil {
		return err
	}
	for from, to := range shown.links {
		if err := os.Symlink(to, base+from); err != nil {
			return err
		}
	}
	if err := enterRoot(""); err != nil {
		return err
	}
	if err := unix.Chdir(spec.Dir); err != nil {
		return os.NewSyscallError("chdir", err)
	}
	return unix.Sethostname([]byte("sandbox"))
}

// mountsPrivate keeps what is mounted from now on out of other mount namespaces.
func mountsPrivate() error {
	return os.NewSyscallError("mount private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
}

// emptyRoot mounts the memory in which the new root is built.
func emptyRoot() (*os.Root, error) {
	if err := mountMemory("", 0, "size=1m,mode=0755"); err != nil {
		return nil, err
	}
	return os.OpenRoot(base)
}

// mountMemory mounts a file system in memory at a path of the new root.
func mountMemory(path string, flags uintptr, options string) error {
	if err := os.MkdirAll(base+path, 0o755); err != nil {
		return err
	}
	return os.NewSyscallError("mount tmpfs", unix.Mount("sandbox", base+path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|flags, options))
}

// attach mounts trees in the new root, each at its path.
func attach(root *os.Root, trees ...tree) error {
	for _, t := range trees {
		if err := t.attach(root); err != nil {
			return err
		}
	}
	return nil
}

// attach follows no link: a server that runs already may put some into what it writes, which is part of the new root by then.
func (t tree) attach(root *os.Root) error {
	name := t.path[1:]
	if _, err := root.Lstat(name); err != nil {
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if t.dir {
			err = root.Mkdir(name, 0o755)
		} else {
			var f *os.File
			if f, err = root.OpenFile(name, os.O_CREATE|os.O_EXCL, 0o444); err == nil {
				f.Close()
			}
		}
		if err != nil {
			return err
		}
	}
	top, err := root.Open(".")
	if err != nil {
		return err
	}
	defer top.Close()
	target, err := unix.Openat2(int(top.Fd()), name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH})
	if err != nil {
		return os.NewSyscallError("open "+t.path, err)
	}
	defer unix.Close(target)
	defer unix.Close(t.fd)
	if err := unix.MoveMount(t.fd, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return os.NewSyscallError("move_mount "+t.path, err)
	}
	return nil
}

// enterRoot makes the memory mounted at paths of the new root read-only ("" is the root itself), and goes there for good.
func enterRoot(covers ...string) error {
	for _, path := range covers {
		if err := attributes(unix.AT_FDCWD, base+path, unix.MOUNT_ATTR_RDONLY, 0); err != nil {
			return os.NewSyscallError("mount_setattr root", err)
		}
	}
	if err := unix.Chdir(base); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil { // the old root is now on top of the new one
		return os.NewSyscallError("pivot_root", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return os.NewSyscallError("umount", err)
	}
	return unix.Chdir("/")
}

// freshProc is a /proc with nothing but this PID namespace's processes: no kernel settings, no machine. Where the kernel gives none
// (a container that covers parts of its own), there is no /proc, and -1.
func freshProc() int {
	fd, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1
	}
	defer unix.Close(fd)
	if unix.FsconfigSetString(fd, "subset", "pid") != nil || unix.FsconfigSetString(fd, "hidepid", "invisible") != nil || unix.FsconfigCreate(fd) != nil {
		return -1
	}
	proc, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return -1
	}
	return proc
}

// boundProcesses bounds the processes of the new PID namespace. It is for root, whom RLIMIT_NPROC does not hold. The kernel gives out the
// numbers below 300 once, and those from there on again and again, so this many are always left.
//
// Danger: root may write this setting of the namespace that it is in, which outside a new one, and everywhere before Linux 6.14, is the whole
// machine's. So only the first process of a namespace that a kernel with a setting for each gave us goes on from here.
func boundProcesses(n int) error {
	if os.Getpid() != 1 || !perNamespacePIDs() {
		return errors.New("this kernel can't bound the processes of root")
	}
	return os.WriteFile("/proc/sys/kernel/pid_max", fmt.Appendf(nil, "%d", 301+n), 0)
}

func perNamespacePIDs() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var major, minor int
	if n, _ := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); n != 2 {
		return false
	}
	return major > 6 || major == 6 && minor >= 14
}

// inside tells whether path is one of dirs or below one.
func inside(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return path == d || strings.HasPrefix(path, d+"/") })
}
