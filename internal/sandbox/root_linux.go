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

// What a program needs of the system, and nothing that is anybody's. Whatever of it a machine hasn't got is left out.
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

// rules are what Landlock lets through.
func (o *order) rules() []rule {
	var rules []rule
	add := func(rights uint64, optional bool, paths ...string) {
		for _, p := range paths {
			rules = append(rules, rule{path: p, rights: rights, optional: optional})
		}
	}
	add(readFile|readDir|execute, true, systemDirs...)
	add(readFile|readDir, true, systemEtc...)
	if o.Network {
		add(readFile|readDir, true, networkEtc...)
	}
	add(readFile|unix.LANDLOCK_ACCESS_FS_WRITE_FILE|unix.LANDLOCK_ACCESS_FS_TRUNCATE, false, devices...)
	add(readFile|readDir, false, o.ReadOnly...)
	if o.Program != "" {
		add(readFile|execute, false, o.Program)
	}
	// The directory that was checked, whatever its name leads to now. In the tier Partial the temporary directory is below it, where another
	// program can put a link in its place: it must not be opened by its name.
	add(work, false, ".")
	if o.Tier == Full {
		add(work, false, o.Temp)
		add(readFile|readDir, true, "/proc") // its own, with nothing but its own processes
	}
	return rules
}

// tree is one piece of the old root, held while the new one is built.
type tree struct {
	path string
	fd   int
	dir  bool
}

func attributes(fd int, path string, set uint64, flags uint) error {
	return unix.MountSetattr(fd, path, flags, &unix.MountAttr{Attr_set: set})
}

// hold takes a copy of the mounts at and below path, with the attributes set on each of them.
func hold(path string, attrs uint64) (tree, error) {
	return holdAt(unix.AT_FDCWD, path, path, attrs)
}

// holdAt is hold of what name leads to from the open dir, or of dir itself where there is no name.
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
func (o *order) newRoot() error {
	const readOnly = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("mount private", err)
	}
	if o.Root {
		if err := boundProcesses(o.Limits.Processes); err != nil {
			return err
		}
	}
	links := map[string]string{}
	var trees []tree
	optional := slices.Concat(systemDirs, systemEtc)
	if o.Network {
		optional = append(optional, networkEtc...)
	}
	for _, p := range optional {
		if target, err := os.Readlink(p); err == nil && filepath.Dir(p) == "/" {
			links[p] = target // /bin -> usr/bin
			continue
		}
		t, err := hold(p, readOnly)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		trees = append(trees, t)
	}
	for _, p := range devices {
		t, err := hold(p, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
		if err != nil {
			return err
		}
		trees = append(trees, t)
	}
	wanted := o.ReadOnly
	if o.Program != "" && !inside(o.Program, systemDirs) {
		wanted = append(wanted, o.Program)
	}
	for _, p := range wanted {
		t, err := hold(p, readOnly)
		if err != nil {
			return err
		}
		trees = append(trees, t)
	}
	workspace, err := hold(".", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	workspace.path = o.Dir
	proc := freshProc()

	// Any directory will do to build on: what was in it is held already.
	const at = "/usr"
	if err := unix.Mount("sandbox", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1m,mode=0755"); err != nil {
		return os.NewSyscallError("mount tmpfs", err)
	}
	if err := os.Mkdir(at+tempDir, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("temp", at+tempDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, fmt.Sprintf("size=%d,nr_inodes=65536,mode=0700", o.Limits.File)); err != nil {
		return os.NewSyscallError("mount tmpfs", err)
	}
	// The workspace comes last: it may lie below what is read-only, or in the temporary directory's place.
	if proc >= 0 {
		trees = append(trees, tree{"/proc", proc, true})
	}
	for _, t := range append(trees, workspace) {
		if err := t.attach(at); err != nil {
			return err
		}
	}
	for from, to := range links {
		if err := os.Symlink(to, at+from); err != nil {
			return err
		}
	}
	if err := attributes(unix.AT_FDCWD, at, unix.MOUNT_ATTR_RDONLY, 0); err != nil {
		return os.NewSyscallError("mount_setattr root", err)
	}
	if err := unix.Chdir(at); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil { // the old root is now on top of the new one
		return os.NewSyscallError("pivot_root", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return os.NewSyscallError("umount", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Chdir(o.Dir); err != nil {
		return os.NewSyscallError("chdir", err)
	}
	return unix.Sethostname([]byte("sandbox"))
}

func (t tree) attach(at string) error {
	target := at + t.path
	if _, err := os.Lstat(target); err != nil {
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if t.dir {
			err = os.Mkdir(target, 0o755)
		} else {
			err = os.WriteFile(target, nil, 0o444)
		}
		if err != nil {
			return err
		}
	}
	err := unix.MoveMount(t.fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
	unix.Close(t.fd)
	if err != nil {
		return os.NewSyscallError("move_mount "+t.path, err)
	}
	return nil
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
