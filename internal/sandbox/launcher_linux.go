//go:build amd64 || arm64

package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// launcherName is the launcher's argv[0]. Whoever gives it to this binary by hand gets a process that waits for a specification which nobody sends.
const launcherName = "sallyport-sandbox"

// The launcher's descriptors, beside the program's three.
const (
	specFD    = 3 // one launchSpec, in JSON; then it stays open for as long as the gateway lives
	statusFD  = 4 // one status, in JSON
	programFD = 5 // the program, open; absent where the sandbox is tested
	socketFD  = 6 // the program's socket, which becomes its descriptor 3; absent where it has none
)

// launchSpec is what the gateway tells the launcher to do.
type launchSpec struct {
	Tier      Tier
	Landlock  int
	Root      bool   // the gateway runs as root
	Program   string // where it is; empty where the sandbox is tested
	Argv      []string
	Env       []string
	Dir       string
	Workspace fileID // of Dir, as the gateway saw it
	Temp      string
	ReadOnly  []string
	Network   bool
	Limits    Limits
	Threads   int // that this user has already, where RLIMIT_NPROC counts them
	Test      bool
	Socket    bool        // the program has one
	Server    *serverSpec // where it is a Server, and not a run
}

// fileID tells one directory from others, whatever their names.
type fileID struct{ Device, Inode uint64 }

// started is what the launcher writes before it starts the program: a status without it, or none at all, is that of a program that never ran.
// It is white space before the status.
const started = "\n"

// status is the launcher's answer.
type status struct {
	Failed string `json:",omitempty"` // the sandbox could not be built, and nothing was run
	Exec   string `json:",omitempty"` // it could, but the program could not be executed
	Exit   int
	Signal int

	server bool // the launcher ends as its program did
}

// Init turns this process into the launcher if it was started as one, and then never returns. It must be the first call of main, and of TestMain in
// tests that run programs: where it was not called, Probe finds no sandbox.
func Init() {
	ready = true
	if len(os.Args) == 1 && os.Args[0] == proverName {
		prove()
	}
	if len(os.Args) != 1 || os.Args[0] != launcherName {
		return
	}
	// Capabilities and what the program inherits belong to the thread.
	runtime.LockOSThread()
	for fd := specFD; fd <= socketFD; fd++ {
		unix.CloseOnExec(fd)
	}
	s, err := launch()
	if err != nil {
		s.Failed = err.Error()
	}
	data, _ := json.Marshal(s)
	unix.Write(statusFD, data) // of a server that ran nobody reads it any more
	if s.Signal != 0 {
		s.Exit = 128 + s.Signal
	}
	if !s.server {
		s.Exit = 0
	}
	unix.Exit(s.Exit) // and not os.Exit, which under the race detector sleeps for a second
}

// endWith waits until the gateway is gone, or has given this up. Then it ends the group, or in the tier Full, where a program may leave it, the whole
// namespace.
func (spec *launchSpec) endWith(gateway *os.File) {
	gateway.Read(make([]byte, 1))
	for { // in a namespace of its own the launcher outlives this, and may be about to start the program
		if spec.Tier == Full {
			unix.Kill(-1, unix.SIGKILL)
		}
		unix.Kill(0, unix.SIGKILL)
		time.Sleep(20 * time.Millisecond)
	}
}

func launch() (status, error) {
	var spec launchSpec
	in := os.NewFile(specFD, "launch specification")
	if err := json.NewDecoder(in).Decode(&spec); err != nil {
		return status{}, fmt.Errorf("launch specification: %w", err)
	}
	// Where memory runs out, the kernel is to kill the program first, and not the gateway. The program may raise this value and never lower it.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil {
		return status{}, err
	}
	// SIGTERM is for the program; the launcher stays to see how it ends.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM)
	if spec.Tier == Full {
		ignoreSignals() // elsewhere Landlock's scope keeps the program's signals from us
	}
	go spec.endWith(in)
	if err := spec.surroundings(); err != nil {
		return status{}, err
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil { // the launcher's memory is nobody's business
		return status{}, os.NewSyscallError("prctl", err)
	}
	var nothing [2]unix.CapUserData // of any set; the ambient one follows the others
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &nothing[0]); err != nil {
		return status{}, os.NewSyscallError("capset", err)
	}

	c, err := spec.child()
	if err != nil {
		return status{}, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return status{}, err
	}
	c.report = int(w.Fd())
	if spec.Server == nil {
		unix.Write(statusFD, []byte(started))
	}
	pid, errno := c.start()
	w.Close()
	if errno != 0 {
		return status{}, os.NewSyscallError("clone", errno)
	}
	// What the program reads and writes is its own: with these open here too, nobody would see it close them.
	for fd := range 3 {
		unix.Close(fd)
	}
	if spec.Socket {
		unix.Close(socketFD)
	}
	var failed [2]byte
	if n, _ := r.Read(failed[:]); n == 2 {
		reason := fmt.Errorf("%s: %w", steps[failed[0]], syscall.Errno(failed[1]))
		if failed[0] == stepExec {
			return status{Exec: reason.Error()}, nil
		}
		return status{}, reason
	}
	if spec.Server != nil {
		unix.Write(statusFD, []byte("{}"))
		unix.Close(statusFD)
	}
	for {
		var ws unix.WaitStatus
		got, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			unix.Exit(1) // without a status: the program ran, and how it ended is not known
		case got == pid && ws.Signaled():
			return status{Exit: -1, Signal: int(ws.Signal()), server: spec.Server != nil}, nil
		case got == pid && ws.Exited():
			return status{Exit: ws.ExitStatus(), server: spec.Server != nil}, nil
		}
	}
}

// surroundings builds the root and the network, and changes to the directory in which the program starts.
func (spec *launchSpec) surroundings() error {
	if spec.Server == nil {
		if spec.Tier == Full {
			if err := spec.newRoot(); err != nil {
				return fmt.Errorf("building the root: %w", err)
			}
		}
		var st unix.Stat_t
		if err := unix.Stat(".", &st); err != nil {
			return fmt.Errorf("workspace: %w", err)
		}
		if (fileID{st.Dev, st.Ino}) != spec.Workspace {
			return errors.New("the workspace is not the directory that was checked")
		}
		return nil
	}
	if spec.Tier == Full {
		if !spec.Network {
			if err := spec.loopback(); err != nil {
				return fmt.Errorf("building the network: %w", err)
			}
		}
		if err := spec.serverRoot(); err != nil {
			return fmt.Errorf("building the root: %w", err)
		}
	}
	return os.NewSyscallError("chdir "+spec.Dir, unix.Chdir(spec.Dir))
}

// ignoreSignals keeps the program from ending the launcher, which is the first process of its namespace: signals from inside reach such a process
// where it has a handler, and the runtime has one for nearly all of them, which ends the process. The runtime needs SIGURG for itself and
// SIGCHLD must stay, as ignoring it would reap the program. The program gets none of this: become undoes it.
func ignoreSignals() {
	ignore := [4]uint64{1} // SIG_IGN
	for s := 1; s <= 64; s++ {
		if s != int(unix.SIGCHLD) && s != int(unix.SIGURG) {
			syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&ignore)), 0, 8, 0, 0) // of 9 and 19 the kernel says no
		}
	}
}

type limit struct {
	resource int
	value    unix.Rlimit
}

// child has all that the forked process needs. It is made before the fork: after it, the process only makes system calls.
type child struct {
	limits    []limit
	ruleset   int
	program   *unix.SockFprog
	null      *byte // ""
	argv, env **byte
	execAt    int
	execPath  *byte
	execFlags int
	report    int
	socket    bool
	first     uintptr // the first descriptor that the program doesn't get
	test      *tests
}

func (spec *launchSpec) child() (*child, error) {
	c := &child{null: &[]byte{0}[0], socket: spec.Socket, first: 3}
	if c.socket {
		c.first = 4
	}
	same := func(n uint64) unix.Rlimit { return unix.Rlimit{Cur: n, Max: n} }
	l := spec.Limits
	seconds := uint64((l.CPU + 1e9 - 1) / 1e9)
	// The launcher's own threads count, too: the runtime has a handful of them.
	const launcher = 12
	c.limits = []limit{
		{unix.RLIMIT_CORE, same(0)},
		{unix.RLIMIT_CPU, unix.Rlimit{Cur: seconds, Max: seconds + 1}}, // SIGXCPU, and a second later SIGKILL
		{unix.RLIMIT_FSIZE, same(uint64(l.File))},
		{unix.RLIMIT_NOFILE, same(uint64(l.OpenFiles))},
		{unix.RLIMIT_NPROC, same(uint64(l.Processes + launcher + spec.Threads))},
		{unix.RLIMIT_AS, same(uint64(l.Memory))},
	}
	rules, network := spec.rules, spec.Network
	// A socket of the family AF_UNIX stays inside where the root is new and the abstract names are its own or Landlock keeps them.
	unixSockets := spec.Tier == Full && (!spec.Network || spec.Landlock >= 6)
	f := filter(spec.Tier, spec.Network, unixSockets)
	if spec.Server != nil { // what it may reach of the network is the namespace's and the filter's matter, and how much it takes the operator's
		c.limits, rules, network = c.limits[:1], spec.serverRules, true
		f = spec.serverFilter(unixSockets)
	}
	var err error
	if c.ruleset, err = ruleset(spec.Landlock, network, rules()); err != nil {
		return nil, err
	}
	c.program = &unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	if spec.Test {
		c.test = newTests()
		return c, nil
	}
	argv, err := syscall.SlicePtrFromStrings(spec.Argv)
	if err != nil {
		return nil, err
	}
	env, err := syscall.SlicePtrFromStrings(append(spec.Env, "TMPDIR="+spec.Temp, "TEMP="+spec.Temp))
	if err != nil {
		return nil, err
	}
	c.argv, c.env = &argv[0], &env[0]
	c.execAt, c.execPath, c.execFlags = programFD, c.null, unix.AT_EMPTY_PATH
	if spec.Server != nil { // a script's interpreter opens it again, by its name
		if c.execPath, err = syscall.BytePtrFromString(spec.Program); err != nil {
			return nil, err
		}
		c.execAt, c.execFlags = unix.AT_FDCWD, 0
	}
	return c, nil
}

// The steps of the child, by which it reports what failed.
const (
	stepSignals = iota
	stepLimits
	stepPrivileges
	stepLandlock
	stepSeccomp
	stepDescriptors
	stepExec
	stepTest
)

var steps = [...]string{"signals", "limits", "no_new_privs", "landlock_restrict_self", "seccomp", "closing descriptors", "execve", "the sandbox does not hold"}

// start forks the process that becomes the program. It is written out, rather than left to os/exec, because limits, Landlock and the filter must be on
// the process that becomes the program and not on a Go runtime, which can't live with them; another exec of this binary to do it there
// would double the cost of a run. The rules are those of syscall.forkExec: no allocation, no lock and no stack growth in the child,
// with all signals blocked until their handlers are gone.
//
//go:norace
//go:noinline
func (c *child) start() (int, syscall.Errno) {
	all, old := ^uint64(0), uint64(0)
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&old)), 8, 0, 0)
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		c.become()
	}
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&old)), 0, 8, 0, 0)
	return int(pid), errno
}

// become never returns.
//
//go:norace
//go:nosplit
//go:noinline
func (c *child) become() {
	var (
		none   [4]uint64 // SIG_DFL, no flags, an empty mask
		failed [2]byte
		errno  syscall.Errno
		i      int
	)
	failed[0] = stepSignals
	for i = 1; i <= 64; i++ { // of 9 and 19 the kernel says no
		syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(i), uintptr(unsafe.Pointer(&none)), 0, 8, 0, 0)
	}
	_, _, errno = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&none)), 0, 8, 0, 0)
	if errno != 0 {
		goto fail
	}
	_, _, errno = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0, 0)
	if errno != 0 {
		goto fail
	}
	failed[0] = stepPrivileges
	_, _, errno = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)
	if errno != 0 {
		goto fail
	}
	failed[0] = stepLimits
	for i = 0; i < len(c.limits); i++ {
		_, _, errno = syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(c.limits[i].resource), uintptr(unsafe.Pointer(&c.limits[i].value)), 0, 0, 0)
		if errno != 0 {
			goto fail
		}
	}
	failed[0] = stepLandlock
	_, _, errno = syscall.RawSyscall6(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(c.ruleset), 0, 0, 0, 0, 0)
	if errno != 0 {
		goto fail
	}
	failed[0] = stepSeccomp
	_, _, errno = syscall.RawSyscall6(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(c.program)), 0, 0, 0)
	if errno != 0 {
		goto fail
	}
	failed[0] = stepDescriptors
	if c.socket { // the specification's pipe, which had the number, is the launcher's matter
		_, _, errno = syscall.RawSyscall(unix.SYS_DUP3, socketFD, 3, 0)
		if errno != 0 {
			goto fail
		}
	}
	_, _, errno = syscall.RawSyscall6(unix.SYS_CLOSE_RANGE, c.first, ^uintptr(0)>>32, unix.CLOSE_RANGE_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		goto fail
	}
	if c.test != nil {
		failed[0] = stepTest
		errno = c.test.run()
		if errno != 0 {
			goto fail
		}
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	failed[0] = stepExec
	_, _, errno = syscall.RawSyscall6(unix.SYS_EXECVEAT, uintptr(c.execAt), uintptr(unsafe.Pointer(c.execPath)), uintptr(unsafe.Pointer(c.argv)), uintptr(unsafe.Pointer(c.env)), uintptr(c.execFlags), 0)
fail:
	failed[1] = byte(errno)
	syscall.RawSyscall(unix.SYS_WRITE, uintptr(c.report), uintptr(unsafe.Pointer(&failed)), 2)
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 127, 0, 0)
	}
}

// tests are what Probe has the child try when everything is in place.
type tests struct {
	passwd, null, here *byte
}

func newTests() *tests {
	text := func(s string) *byte { return &append([]byte(s), 0)[0] }
	return &tests{text("/etc/passwd"), text("/dev/null"), text("probe")}
}

// run returns 0 if what must fail fails and what must work works.
//
//go:norace
//go:nosplit
//go:noinline
func (t *tests) run() syscall.Errno {
	at := ^uintptr(99) // AT_FDCWD
	_, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT, at, uintptr(unsafe.Pointer(t.passwd)), unix.O_RDONLY, 0, 0, 0)
	if errno == 0 {
		return syscall.EACCES
	}
	_, _, errno = syscall.RawSyscall(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM, 0)
	if errno != syscall.EPERM {
		return syscall.ENETUNREACH
	}
	_, _, errno = syscall.RawSyscall(unix.SYS_UNSHARE, unix.CLONE_NEWUSER, 0, 0)
	if errno != syscall.EPERM {
		return syscall.EUSERS
	}
	_, _, errno = syscall.RawSyscall6(unix.SYS_OPENAT, at, uintptr(unsafe.Pointer(t.null)), unix.O_RDWR, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	_, _, errno = syscall.RawSyscall6(unix.SYS_OPENAT, at, uintptr(unsafe.Pointer(t.here)), unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600, 0, 0)
	return errno
}
