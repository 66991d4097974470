//go:build amd64 || arm64

package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"sallyport.example/internal/fault"
)

// A server gets these paths of the system beside those that a program of comm.exec gets. Nothing here belongs to anybody; paths that a machine hasn't
// got are left out.
var (
	serverDirs = []string{"/opt", "/nix", "/gnu/store", "/snap", "/home/linuxbrew/.linuxbrew", "/sys/fs/cgroup", "/sys/devices/system/cpu"}
	serverEtc  = []string{
		"/etc/passwd", "/etc/group", "/etc/protocols", "/etc/host.conf", "/etc/gai.conf", "/etc/mime.types", "/etc/magic", "/etc/timezone", "/etc/fonts",
		"/etc/ca-certificates", "/etc/ca-certificates.conf", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem", "/etc/pki/tls/cert.pem", "/etc/pki/java", "/etc/crypto-policies",
		"/etc/os-release", "/etc/debian_version", "/etc/lsb-release", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld-musl-x86_64.path", "/etc/ld-musl-aarch64.path",
		"/etc/terminfo", "/etc/locale.alias", "/etc/default/locale", "/etc/shells", "/etc/gitconfig", "/etc/java-17-openjdk", "/etc/java-21-openjdk", "/etc/python3", "/etc/node",
	}
	serverDevices = []string{"/dev/random", "/dev/full"}
)

// serverTemps are in memory and the server's own where it has a root of its own: programs that don't ask where they may keep what is temporary look
// there. serverTemp bounds what a server keeps in each.
var serverTemps = []string{tempDir, "/var/tmp", "/dev/shm"}

const serverTemp = "size=512m,nr_inodes=262144,mode=1777"

// serverSpec tells the launcher of a Server what launchSpec does not have for every program.
type serverSpec struct {
	Folder  string
	Code    []string
	Read    []string
	Write   []string
	Secrets []string
	Links   map[string]string
	Proxy   bool
}

// Process is a server that was started in its sandbox, or that can be started.
type Process struct {
	// Cmd is to be given its pipes and started by the caller, who also waits for it. It ends as the server did, a signal as 128 and its number.
	Cmd *exec.Cmd

	spec        []byte
	ours, their struct{ spec, status *os.File } // spec is a pipe that lives as long as the gateway, status a socket
}

// Command prepares s. Errors are fault.SandboxUnavailable where the machine can't hold it, and fault.RequestMalformed where s can't be run as it is.
func (s Server) Command() (*Process, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	tier, missing := Servers()
	if tier == None {
		return nil, unavailable(missing)
	}
	return s.command(tier)
}

func (s Server) command(tier Tier) (*Process, error) {
	if tier != Full && s.Network == ProxyNetwork {
		return nil, fault.New(fault.SandboxUnavailable, "Without namespaces a list of hosts can't be held.").Try("Write egress: none or egress: any, or give the gateway namespaces (sallyport doctor).")
	}
	spec := launchSpec{
		Tier: tier, Landlock: landlockABI(), Root: os.Geteuid() == 0, Program: s.Path, Argv: s.Argv, Env: s.Env, Dir: s.Dir, Network: s.Network == AnyNetwork, Temp: filepath.Join(s.Folder, "tmp"),
		Server: &serverSpec{Folder: s.Folder, Code: s.Code, Read: s.Read, Write: s.Write, Secrets: s.Secrets, Links: s.Links, Proxy: s.Network == ProxyNetwork},
	}
	if err := os.Mkdir(spec.Temp, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	p := &Process{spec: text}
	if p.their.spec, p.ours.spec, err = os.Pipe(); err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		p.Close()
		return nil, os.NewSyscallError("socketpair", err)
	}
	p.ours.status, p.their.status = os.NewFile(uintptr(pair[0]), "status"), os.NewFile(uintptr(pair[1]), "status")
	p.Cmd = launcherCommand(spec, "/", p.their.spec, p.their.status)
	return p, nil
}

// Started must be called after Cmd was started. It returns when the server's program runs in its sandbox. With ProxyNetwork it returns a listener on the
// server's own loopback, which nobody but the server can reach.
func (p *Process) Started(within time.Duration) (listener net.Listener, err error) {
	p.their.spec.Close()
	p.their.status.Close()
	defer p.ours.status.Close()
	if err := p.ours.spec.SetWriteDeadline(time.Now().Add(within)); err != nil {
		return nil, err
	}
	if _, err := p.ours.spec.Write(p.spec); err != nil {
		return nil, fault.Wrap(err, fault.SandboxUnavailable, "The server's sandbox did not take its launch specification.")
	}
	conn, err := net.FileConn(p.ours.status)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(within))
	defer func() {
		if err != nil && listener != nil {
			listener.Close()
			listener = nil
		}
	}()
	data, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	for {
		n, nr, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(data, rights)
		if err != nil || n == 0 {
			return listener, fault.Wrap(fmt.Errorf("its launcher ended and gave no status: %w", err), fault.SandboxUnavailable, "The server's sandbox failed before the server ran.")
		}
		if listener == nil && nr > 0 {
			if listener, err = receivedListener(rights[:nr]); err != nil {
				return nil, err
			}
			continue
		}
		var s status
		switch err := json.Unmarshal(data[:n], &s); {
		case err != nil:
			return listener, err
		case s.Failed != "":
			return listener, fault.Wrap(errors.New(s.Failed), fault.SandboxUnavailable, "The server's sandbox could not be built: %s.", s.Failed)
		case s.Exec != "":
			return listener, fault.Wrap(errors.New(s.Exec), fault.RequestMalformed, "The server's program can't be executed: %s.", s.Exec)
		}
		return listener, nil
	}
}

func receivedListener(rights []byte) (net.Listener, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(err, errors.New("no socket was handed over"))
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.Join(err, errors.New("no socket was handed over"))
	}
	unix.CloseOnExec(fds[0])
	f := os.NewFile(uintptr(fds[0]), "proxy")
	defer f.Close()
	return net.FileListener(f)
}

// Wait waits for the server, ends what is left of its process group, and returns the result of Cmd.Wait.
func (p *Process) Wait() error {
	awaitEnd(p.Cmd.Process.Pid)
	unix.Kill(-p.Cmd.Process.Pid, unix.SIGKILL) // the number is still the server's
	return p.Cmd.Wait()
}

// Close gives up what the gateway holds of the process: its launcher then ends it, if it still runs.
func (p *Process) Close() {
	for _, f := range []*os.File{p.their.spec, p.their.status, p.ours.spec, p.ours.status} {
		if f != nil {
			f.Close()
		}
	}
}

// serverRoot replaces the root, like newRoot, by one that shows what a server may see. Empty directories and files lie over secrets.
func (spec *launchSpec) serverRoot() error {
	if err := mountsPrivate(); err != nil {
		return err
	}
	s := spec.Server
	shown := contents{links: map[string]string{"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2"}}
	if err := errors.Join(
		shown.holdPresent(hold, readOnly, spec.system()...), shown.holdPresent(hold, device, devices...), shown.holdPresent(hold, device, serverDevices...),
		shown.holdPresent(holdListed, readOnly, s.Read...), shown.holdPresent(holdListed, writable, s.Write...),
	); err != nil {
		return err
	}
	var own contents
	if err := errors.Join(own.hold(holdListed, readOnly, s.Code...), own.hold(holdListed, writable, s.Folder)); err != nil {
		return err
	}
	if proc := serverProc(); proc >= 0 {
		shown.trees = append(shown.trees, tree{"/proc", proc, true})
	}

	root, err := emptyRoot()
	if err != nil {
		return err
	}
	defer root.Close()
	for _, path := range serverTemps {
		if err := mountMemory(path, 0, serverTemp); err != nil {
			return err
		}
	}
	// Secrets lie over what was let in, and what is the server's own over the secrets.
	if err := attach(root, shown.trees...); err != nil {
		return err
	}
	covers, err := hideSecrets(root, s.Secrets)
	if err != nil {
		return err
	}
	if err := attach(root, own.trees...); err != nil {
		return err
	}
	if err := spec.nameServerPaths(root, shown.links); err != nil {
		return err
	}
	return enterRoot(append(covers, "")...)
}

// hideSecrets puts empty directories over secret ones, and a file that can't be opened over secret files. It returns where the directories are.
func hideSecrets(root *os.Root, secrets []string) (covers []string, err error) {
	const nothing = base + "/.hidden"
	if err := os.WriteFile(nothing, nil, 0); err != nil {
		return nil, err
	}
	for _, secret := range secrets {
		st, err := root.Lstat(secret[1:])
		if missing(err) {
			continue // nothing that was let in holds it
		}
		if err != nil {
			return nil, err
		}
		if st.IsDir() {
			if err := mountMemory(secret, 0, "size=64k,mode=0755"); err != nil {
				return nil, err
			}
			covers = append(covers, secret)
			continue
		}
		copied, err := unix.OpenTree(unix.AT_FDCWD, nothing, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return nil, os.NewSyscallError("open_tree", err)
		}
		if err := attach(root, tree{secret, copied, false}); err != nil {
			return nil, err
		}
	}
	return covers, nil
}

// nameServerPaths makes the links by which the server knows what it was given, the directory in which it starts, and links of the system.
func (spec *launchSpec) nameServerPaths(root *os.Root, system map[string]string) error {
	var made []string
	for _, from := range slices.Sorted(maps.Keys(spec.Server.Links)) { // a directory comes before what is below it
		if inside(from, made) {
			continue // a link that was made already leads there
		}
		if _, err := root.Lstat(from[1:]); err == nil {
			continue // it lies in what was let in
		}
		if err := errors.Join(root.MkdirAll(filepath.Dir(from)[1:], 0o755), root.Symlink(spec.Server.Links[from], from[1:])); err != nil {
			return err
		}
		made = append(made, from)
	}
	if dir := strings.TrimPrefix(spec.Dir, "/"); dir != "" {
		if _, err := root.Lstat(dir); err != nil {
			if err := root.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
	}
	for from, to := range system {
		if err := os.Symlink(to, base+from); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// holdListed holds a path of a list, if no link is on the way there.
func holdListed(path string, attrs uint64) (tree, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return tree{}, os.NewSyscallError("open "+path, err)
	}
	defer unix.Close(fd)
	return holdAt(fd, "", path, attrs)
}

// serverProc is a /proc of the new PID namespace: all of it where the kernel gives one, since servers look there for processors and memory, else
// what freshProc gives.
func serverProc() int {
	fd, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err == nil {
		defer unix.Close(fd)
		if unix.FsconfigCreate(fd) == nil {
			if proc, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC); err == nil {
				return proc
			}
		}
	}
	return freshProc()
}

// system lists the paths that every server may read and execute.
func (spec *launchSpec) system() []string {
	return slices.Concat(systemDirs, serverDirs, systemEtc, networkEtc, serverEtc, resolved(networkEtc))
}

// resolved lists the targets of those paths that are links. They may lie in a place that is not let in, as that of /etc/resolv.conf does.
func resolved(paths []string) (targets []string) {
	for _, p := range paths {
		if real, err := filepath.EvalSymlinks(p); err == nil && real != p && !inside(real, systemDirs) {
			targets = append(targets, real)
		}
	}
	return targets
}

// serverRules let a server do with Landlock what it may do. In its own root they repeat what is let in, and hold for files that come later, too: a file
// that takes a secret's place has no rule.
func (spec *launchSpec) serverRules() []rule {
	s := spec.Server
	const all = work | execute | landlockResolveUnix // of its own sockets, and of those that it was given
	var rules []rule
	if spec.Tier == Full { // its root is its own; elsewhere these would be the names of all that is there, and Landlock can't tell a directory from what is below it
		rules = append(rules, rule{path: "/", rights: readDir})
	}
	for _, p := range spec.system() {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			rules = append(rules, besides(real, s.Secrets, readFile|readDir|execute)...)
		}
	}
	for _, p := range slices.Concat(devices, serverDevices) {
		rules = append(rules, rule{path: p, rights: readFile | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE, optional: true})
	}
	for _, p := range s.Code {
		rules = append(rules, rule{path: p, rights: readFile | readDir | execute, listed: true})
	}
	for _, p := range s.Read {
		rules = append(rules, besides(p, s.Secrets, readFile|readDir|execute)...)
	}
	for _, p := range s.Write {
		rules = append(rules, besides(p, s.Secrets, all)...)
	}
	if spec.Tier == Full {
		for _, p := range serverTemps {
			rules = append(rules, besides(p, s.Secrets, all)...)
		}
	}
	return append(rules, rule{path: s.Folder, rights: all, listed: true}, rule{path: "/proc", rights: readFile | readDir, optional: true})
}

// besides makes rules for path and everything below it, but for the secrets: where one lies below a directory, all that lies beside it gets a rule of
// its own. Files that are made beside it later have none.
func besides(path string, secrets []string, rights uint64) []rule {
	if inside(path, secrets) {
		return nil
	}
	if !slices.ContainsFunc(secrets, func(s string) bool { return inside(s, []string{path}) }) {
		return []rule{{path: path, rights: rights, optional: true, listed: true}}
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil // it can't be taken apart, so none of it is let in
	}
	var rules []rule
	for _, e := range entries {
		if e.Type()&os.ModeSymlink == 0 { // a rule for a link would be one for its target
			rules = append(rules, besides(filepath.Join(path, e.Name()), secrets, rights)...)
		}
	}
	return rules
}

// loopback brings up the loopback of the new network namespace and, where the gateway is to listen there, hands a listener over.
func (spec *launchSpec) loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(request))); errno != 0 {
		return os.NewSyscallError("bringing up the loopback", errno)
	}
	if !spec.Server.Proxy {
		return nil
	}
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(l)
	if err := errors.Join(unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(l, 128)); err != nil {
		return err
	}
	name, err := unix.Getsockname(l)
	if err != nil {
		return err
	}
	proxy := fmt.Sprintf("http://127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
	for _, variable := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"} {
		spec.Env = append(spec.Env, variable+"="+proxy)
	}
	spec.Env = append(spec.Env, "NODE_USE_ENV_PROXY=1")
	return os.NewSyscallError("handing the proxy's socket over", unix.Sendmsg(statusFD, []byte("proxy"), unix.UnixRights(l), nil, 0))
}

// serverCalls are the system calls that no server needs and that reach beyond what it may see, or parts of the kernel that only administrators use.
var serverCalls = []uint32{
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT,
	unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_SETNS, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE,
	unix.SYS_PROCESS_MRELEASE, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER,
	unix.SYS_IO_URING_REGISTER, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE,
	unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT,
	unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_SETHOSTNAME,
	unix.SYS_SETDOMAINNAME, unix.SYS_SYSLOG, unix.SYS_FANOTIFY_INIT, unix.SYS_VHANGUP, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES, unix.SYS_LOOKUP_DCOOKIE,
	unix.SYS_OPEN_TREE_ATTR,
}

// youngest is the newest system call that these lists take into account. Later ones are answered as by a kernel that hasn't got them: nobody knows
// what they reach.
const youngest = unix.SYS_FILE_SETATTR

// sharedCalls are those that without namespaces reach what belongs to other programs of the gateway's user: they change what Landlock does not judge, of
// a file that is named or that was opened to be read, share memory by a number, or leave the process group that holds the tree together.
var sharedCalls = []uint32{
	unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
	unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT, unix.SYS_FILE_GETATTR, unix.SYS_FILE_SETATTR,
	unix.SYS_INOTIFY_ADD_WATCH, unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL, unix.SYS_SEMGET,
	unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK, unix.SYS_SETSID, unix.SYS_SETPGID,
}

// Requests to a terminal that put words into another program's mouth.
const tiocSTI, tiocLinux, tiocCons = 0x5412, 0x541C, 0x541D

// serverFilter is the seccomp program of a server. It lets calls through that it doesn't name: a server is a program that its author chose, with needs
// that nobody listed. The root, Landlock and the namespaces decide what it reaches.
func (spec *launchSpec) serverFilter(unixSockets bool) []unix.SockFilter {
	p := ownConvention()
	refused := slices.Concat(serverCalls, archServerCalls)
	if spec.Tier != Full {
		refused = slices.Concat(refused, sharedCalls, archSharedCalls)
	}
	for _, c := range refused {
		p = append(p, skip(unix.BPF_JEQ, c, 1), answer(refuse))
	}
	p = append(p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, K: youngest, Jf: 1}, answer(absent))
	if spec.Tier != Full {
		for _, c := range append(slices.Clone(xattrs), unix.SYS_GETXATTRAT, unix.SYS_LISTXATTRAT) { // of files that it can name and not open, too
			p = append(p, skip(unix.BPF_JEQ, c, 1), answer(without))
		}
	}
	for _, c := range []uint32{unix.SYS_CLONE3, unix.SYS_OPENAT2} { // what they do is said in memory, where a filter can't look
		p = append(p, skip(unix.BPF_JEQ, c, 1), answer(absent))
	}
	for _, modes := range []map[uint32]uint32{moded, chmods} {
		for call, mode := range modes {
			if !slices.Contains(refused, call) {
				p = append(p, when(call, argument{index: mode, without: lends})...)
			}
		}
	}
	p = append(p, openFiles()...)
	var families []uint32
	if unixSockets {
		families = append(families, unix.AF_UNIX)
	}
	if spec.Network || spec.Tier == Full { // in a network namespace of its own there is nothing but its loopback
		families = append(families, unix.AF_INET, unix.AF_INET6)
	}
	// Of netlink, only questions about addresses and routes, which programs ask to know their own.
	p = append(p, skip(unix.BPF_JEQ, unix.SYS_SOCKET, 6+len(families)))
	p = append(p, load(16))
	for i, f := range families {
		p = append(p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: f, Jt: uint8(len(families) - i + 3)})
	}
	p = append(p, skip(unix.BPF_JEQ, unix.AF_NETLINK, 2), load(16+8*2), unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.NETLINK_ROUTE, Jt: 1}, answer(refuse), answer(allow))
	p = append(p, socketPairs(unixSockets)...)
	p = append(p, when(unix.SYS_CLONE, argument{index: 0, without: newNamespace})...)
	p = append(p, when(unix.SYS_UNSHARE, argument{index: 0, without: newNamespace})...)
	if spec.Tier != Full { // the gateway has the same user, and is there to be named
		self := argument{index: 0, values: []uint32{0}}
		p = append(p, when(unix.SYS_PRLIMIT64, self)...)
		p = append(p, when(unix.SYS_SCHED_SETAFFINITY, self)...)
		p = append(p, when(unix.SYS_SCHED_SETSCHEDULER, self)...)
		p = append(p, when(unix.SYS_SCHED_SETATTR, self)...)
		p = append(p, when(unix.SYS_SCHED_SETPARAM, self)...)
		p = append(p, when(unix.SYS_SETPRIORITY, self, argument{index: 1, values: []uint32{0}})...)
		p = append(p, when(unix.SYS_IOPRIO_SET, argument{index: 0, values: []uint32{1}}, argument{index: 1, values: []uint32{0}})...)
		// By an open file only, which Landlock has judged: with a name it would be any.
		p = append(p, when(unix.SYS_UTIMENSAT, argument{index: 1, null: true})...)
	}
	p = append(p, skip(unix.BPF_JEQ, unix.SYS_IOCTL, 6), load(16+8))
	for i, request := range []uint32{tiocSTI, tiocLinux, tiocCons} {
		p = append(p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: request, Jt: uint8(3 - i)})
	}
	return append(p, answer(allow), answer(refuse), answer(allow))
}
