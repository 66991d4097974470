//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.example/internal/fault"
)

var generous = Limits{Wall: 20 * time.Second, CPU: 10 * time.Second, Memory: 512 << 20, File: 8 << 20, Output: 64 << 10, Processes: 64, OpenFiles: 64}

// cannot fails a test that this machine can't run where everything is to be tested, and skips it elsewhere.
func cannot(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("SALLYPORT_TEST_ALL") == "1" {
		t.Fatalf("%s, and SALLYPORT_TEST_ALL=1 wants everything checked", what)
	}
	t.Skipf("not checked: %s", what)
}

// tiers runs f in each tier that this machine and user can have. Root can only have Full; TestAsNobody has both.
func tiers(t *testing.T, f func(t *testing.T, tier Tier)) {
	t.Helper()
	r := Probe()
	t.Run("full", func(t *testing.T) {
		if r.Tier != Full {
			cannot(t, "no namespaces here: "+strings.Join(r.Missing, " "))
		}
		f(t, Full)
	})
	if os.Geteuid() == 0 {
		return
	}
	t.Run("partial", func(t *testing.T) {
		if r.Landlock < 6 {
			cannot(t, "Landlock has no scopes here")
		}
		f(t, Partial)
	})
}

// command is a run of a system's program.
func command(t testing.TB, argv ...string) Command {
	t.Helper()
	path, err := exec.LookPath(argv[0])
	if err != nil {
		cannot(t, argv[0]+" is not here")
	}
	path, err = filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return Command{Path: path, Argv: argv, Dir: t.TempDir(), Env: []string{"PATH=/usr/bin:/bin"}, Limits: generous}
}

func shell(t testing.TB, script string) Command { return command(t, "sh", "-c", script) }

// attacker is a run of this binary as the attacker. A Go program, and more so one with the race detector, reserves far more than it uses.
func attacker(t testing.TB, args ...string) Command {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := Command{Path: path, Argv: append([]string{helperName}, args...), Dir: t.TempDir(), Limits: generous}
	c.Limits.Memory = 1 << 46
	return c
}

func must(t testing.TB, c Command, tier Tier) Outcome {
	t.Helper()
	out, err := run(t.Context(), c, tier)
	if err != nil {
		t.Fatal(err)
	}
	if out.Contained != (tier == Full) {
		t.Errorf("contained is %v in the tier %s", out.Contained, tier)
	}
	return out
}

func TestProbe(t *testing.T) {
	r := Probe()
	t.Logf("%+v", r)
	if r.Tier == Full && (r.Missing != nil || !r.Seccomp || !r.UserNamespaces || r.Landlock == 0) {
		t.Errorf("full, but %+v", r)
	}
	if r.Tier != Full && r.Missing == nil {
		t.Errorf("%s, and nothing is missing", r.Tier)
	}
}

func TestRunsAProgram(t *testing.T) {
	tiers(t, func(t *testing.T, tier Tier) {
		c := shell(t, `cat; echo out; echo err >&2; echo kept > file; mkdir d; mv file d/file; echo x > "$TMPDIR/t"; cat "$TEMP/t"; exit 7`)
		c.Stdin = []byte("in\n")
		out := must(t, c, tier)
		if string(out.Stdout) != "in\nout\nx\n" || string(out.Stderr) != "err\n" || out.ExitCode != 7 || out.Signal != "" || out.TimedOut || out.StdoutTruncated || out.StderrTruncated {
			t.Errorf("%+v\n%s\n%s", out, out.Stdout, out.Stderr)
		}
		if data, err := os.ReadFile(c.Dir + "/d/file"); string(data) != "kept\n" {
			t.Errorf("the workspace has %q, %v", data, err)
		}
		if left, _ := os.ReadDir(c.Dir); len(left) != 1 {
			t.Errorf("left behind: %v", left)
		}
		signal.Ignore(syscall.SIGHUP) // as under nohup; the program is not to inherit it
		defer signal.Reset(syscall.SIGHUP)
		if out := must(t, shell(t, "kill -HUP $$"), tier); out.Signal != "SIGHUP" {
			t.Errorf("SIGHUP: %+v", out)
		}
		if out := must(t, shell(t, "kill -9 $$"), tier); out.Signal != "SIGKILL" || out.ExitCode != -1 {
			t.Errorf("killed by itself: %+v", out)
		}
	})
}

// outside is a directory that is not the workspace, with a secret that its owner, who is also the attacker's user, may read and change.
func outside(t *testing.T) (dir, secret string) {
	dir = t.TempDir()
	secret = filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, secret
}

// TestAttacks has each attack succeed outside, so that it is one, and then fail inside.
func TestAttacks(t *testing.T) {
	dir, secret := outside(t)
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	abstract := fmt.Sprintf("@sallyport-test-%d", os.Getpid())
	for _, name := range []string{abstract, dir + "/s"} {
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	gram, err := net.ListenPacket("unixgram", dir+"/g")
	if err != nil {
		t.Fatal(err)
	}
	defer gram.Close()
	_, port, _ := net.SplitHostPort(tcp.Addr().String())
	self := strconv.Itoa(os.Getpid())

	cases := []struct {
		argv []string
		only Tier // where the other tier doesn't promise it
		root bool // only root can do this outside
		safe bool // not tried outside: it would do harm, or a container may refuse it
	}{
		{argv: []string{"read", "/etc/passwd"}},
		{argv: []string{"read", "/etc/shadow"}, root: true},
		{argv: []string{"list", "/root"}, root: true},
		{argv: []string{"list", "/etc/ssl/private"}, root: true},
		{argv: []string{"list", "/"}},
		{argv: []string{"read", secret}},
		{argv: []string{"stat", secret}, only: Full},
		{argv: []string{"read", "link"}},
		{argv: []string{"create", "dirlink/new"}},
		{argv: []string{"create", dir + "/new"}},
		{argv: []string{"create", secret}},
		{argv: []string{"create", "/usr/share/sallyport-test"}, root: true, safe: true},
		{argv: []string{"create", "/dev/shm/sallyport-test"}},
		{argv: []string{"chmod", secret}},
		{argv: []string{"link", secret, "linked"}},
		{argv: []string{"rename", secret, dir + "/moved"}},
		{argv: []string{"read", "/proc/1/environ"}, safe: true},
		{argv: []string{"read", "/proc/" + self + "/environ"}},
		{argv: []string{"read", "/proc/cpuinfo"}},
		{argv: []string{"read", "/proc/sys/kernel/pid_max"}},
		{argv: []string{"create", "/proc/sys/kernel/core_pattern"}, root: true, safe: true},
		{argv: []string{"list", "/sys"}},
		{argv: []string{"tcp", tcp.Addr().String()}},
		{argv: []string{"mptcp", port}},
		{argv: []string{"udp", udp.LocalAddr().String()}},
		{argv: []string{"unix", abstract}},
		{argv: []string{"unix", dir + "/s"}},
		{argv: []string{"socketpair", dir + "/g"}},
		{argv: []string{"kill", self}},
		{argv: []string{"kill", strconv.Itoa(os.Getppid())}, root: true},
		{argv: []string{"prlimit", self}},
		{argv: []string{"renice"}, safe: true},
		{argv: []string{"setsid"}, only: Partial},
		{argv: []string{"setpgid"}, only: Partial},
		{argv: []string{"clone", strconv.Itoa(unix.CLONE_NEWUSER)}},
		{argv: []string{"clone", strconv.Itoa(unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID)}},
		{argv: []string{"ioctl"}},
	}
	for _, c := range cases {
		name := strings.ReplaceAll(strings.Join(c.argv, " "), "/", "_")
		if c.root && os.Geteuid() != 0 {
			continue
		}
		run := func(t *testing.T, ws string) (int, string) { // outside
			path, _ := os.Executable()
			cmd := exec.Command(path)
			cmd.Args, cmd.Dir = append([]string{helperName}, c.argv...), ws
			said, _ := cmd.CombinedOutput()
			return cmd.ProcessState.ExitCode(), string(said)
		}
		prepare := func(t *testing.T) string {
			ws := t.TempDir()
			os.Symlink(secret, ws+"/link")
			os.Symlink(dir, ws+"/dirlink")
			os.WriteFile(secret, []byte("secret"), 0o600)
			os.Chmod(secret, 0o600)
			return ws
		}
		t.Run(name, func(t *testing.T) {
			tiers(t, func(t *testing.T, tier Tier) {
				if c.only != "" && c.only != tier {
					t.Skip("no promise of this tier")
				}
				a := attacker(t, c.argv...)
				a.Dir = prepare(t)
				out := must(t, a, tier)
				if out.ExitCode != failed {
					t.Errorf("ended with %d %s\n%s%s", out.ExitCode, out.Signal, out.Stdout, out.Stderr)
				}
				if data, _ := os.ReadFile(secret); string(data) != "secret" {
					t.Error("the secret was changed")
				}
				if info, err := os.Stat(secret); err != nil || info.Mode() != 0o600 {
					t.Error("the secret's mode was changed")
				}
				os.Remove(dir + "/new")
			})
			if c.safe {
				return
			}
			if code, said := run(t, prepare(t)); code != succeeded {
				t.Errorf("outside it does not succeed either: %d %s", code, said)
			}
			for _, p := range []string{dir + "/new", dir + "/moved", "/dev/shm/sallyport-test"} {
				os.Remove(p)
			}
		})
	}
}

// TestForbiddenCalls: system calls that reach the kernel's depths, or other processes.
func TestForbiddenCalls(t *testing.T) {
	calls := map[string]int{
		"mount": unix.SYS_MOUNT, "umount2": unix.SYS_UMOUNT2, "pivot_root": unix.SYS_PIVOT_ROOT, "chroot": unix.SYS_CHROOT, "ptrace": unix.SYS_PTRACE,
		"bpf": unix.SYS_BPF, "keyctl": unix.SYS_KEYCTL, "add_key": unix.SYS_ADD_KEY, "request_key": unix.SYS_REQUEST_KEY, "unshare": unix.SYS_UNSHARE,
		"setns": unix.SYS_SETNS, "kexec_load": unix.SYS_KEXEC_LOAD, "init_module": unix.SYS_INIT_MODULE, "finit_module": unix.SYS_FINIT_MODULE,
		"perf_event_open": unix.SYS_PERF_EVENT_OPEN, "userfaultfd": unix.SYS_USERFAULTFD, "io_uring_setup": unix.SYS_IO_URING_SETUP,
		"io_uring_enter": unix.SYS_IO_URING_ENTER, "io_uring_register": unix.SYS_IO_URING_REGISTER, "open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT,
		"name_to_handle_at": unix.SYS_NAME_TO_HANDLE_AT, "process_vm_readv": unix.SYS_PROCESS_VM_READV, "process_vm_writev": unix.SYS_PROCESS_VM_WRITEV,
		"clone3": unix.SYS_CLONE3, "fsopen": unix.SYS_FSOPEN, "open_tree": unix.SYS_OPEN_TREE, "move_mount": unix.SYS_MOVE_MOUNT,
		"mount_setattr": unix.SYS_MOUNT_SETATTR, "pidfd_getfd": unix.SYS_PIDFD_GETFD, "memfd_create": unix.SYS_MEMFD_CREATE, "shmget": unix.SYS_SHMGET,
		"seccomp": unix.SYS_SECCOMP, "personality": unix.SYS_PERSONALITY, "syslog": unix.SYS_SYSLOG, "acct": unix.SYS_ACCT, "reboot": unix.SYS_REBOOT,
		"sethostname": unix.SYS_SETHOSTNAME, "process_madvise": unix.SYS_PROCESS_MADVISE, "kcmp": unix.SYS_KCMP, "fanotify_init": unix.SYS_FANOTIFY_INIT,
		"quotactl": unix.SYS_QUOTACTL, "settimeofday": unix.SYS_SETTIMEOFDAY, "swapon": unix.SYS_SWAPON, "mq_open": unix.SYS_MQ_OPEN, "one of tomorrow's": 1999,
	}
	for name, nr := range calls {
		for _, tier := range []Tier{Full, Partial} {
			for _, network := range []bool{false, true} {
				if got := evaluate(t, filter(tier, network, true), auditArch, uint32(nr)); got == allow {
					t.Errorf("%s: the filter of the tier %s lets it through", name, tier)
				}
			}
		}
	}
	// That the kernel holds the filter is shown by a few.
	tiers(t, func(t *testing.T, tier Tier) {
		for _, name := range []string{"mount", "bpf", "io_uring_setup", "clone3"} {
			if out := must(t, attacker(t, "syscall", strconv.Itoa(calls[name])), tier); out.ExitCode != failed {
				t.Errorf("%s: ended with %d %s", name, out.ExitCode, out.Stdout)
			}
		}
	})
}

// evaluate runs a filter as the kernel would.
func evaluate(t *testing.T, p []unix.SockFilter, arch, nr uint32, args ...uint64) uint32 {
	t.Helper()
	data := make([]uint32, 16)
	data[0], data[1] = nr, arch
	for i, a := range args {
		data[4+2*i], data[5+2*i] = uint32(a), uint32(a>>32)
	}
	var a uint32
	for pc := 0; pc < len(p); pc++ {
		in := p[pc]
		jump := func(yes bool) {
			if yes {
				pc += int(in.Jt)
			} else {
				pc += int(in.Jf)
			}
		}
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = data[in.K/4]
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(a == in.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(a >= in.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(a&in.K != 0)
		case unix.BPF_JMP | unix.BPF_JA | unix.BPF_K:
			pc += int(in.K)
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		default:
			t.Fatalf("instruction %d has the code %#x", pc, in.Code)
		}
	}
	t.Fatal("the filter has no end")
	return 0
}

func TestFilter(t *testing.T) {
	const other = unix.AUDIT_ARCH_I386
	full, net, partial := filter(Full, false, true), filter(Full, true, false), filter(Partial, false, false)
	for name, c := range map[string]struct {
		program []unix.SockFilter
		arch    uint32
		nr      uint32
		args    []uint64
		want    uint32
	}{
		"read":                            {full, auditArch, unix.SYS_READ, nil, allow},
		"another architecture's":          {full, other, unix.SYS_READ, nil, refuse},
		"x32":                             {full, auditArch, unix.SYS_READ | x32, nil, refuse},
		"a unix socket":                   {full, auditArch, unix.SYS_SOCKET, []uint64{unix.AF_UNIX}, allow},
		"a unix socket, partial":          {partial, auditArch, unix.SYS_SOCKET, []uint64{unix.AF_UNIX}, refuse},
		"an inet socket":                  {full, auditArch, unix.SYS_SOCKET, []uint64{unix.AF_INET}, refuse},
		"an inet socket, network":         {net, auditArch, unix.SYS_SOCKET, []uint64{unix.AF_INET}, allow},
		"an inet6 socket, network":        {net, auditArch, unix.SYS_SOCKET, []uint64{unix.AF_INET6}, allow},
		"a unix socket, network":          {net, auditArch, unix.SYS_SOCKET, []uint64{unix.AF_UNIX}, refuse},
		"a packet socket, network":        {net, auditArch, unix.SYS_SOCKET, []uint64{unix.AF_PACKET}, refuse},
		"a netlink socket, network":       {net, auditArch, unix.SYS_SOCKET, []uint64{unix.AF_NETLINK}, refuse},
		"vsock":                           {net, auditArch, unix.SYS_SOCKET, []uint64{unix.AF_VSOCK}, refuse},
		"a family that names a call":      {full, auditArch, unix.SYS_SOCKET, []uint64{unix.SYS_GETPID}, refuse},
		"a family with upper bits":        {full, auditArch, unix.SYS_SOCKET, []uint64{unix.AF_INET | 1<<40}, refuse},
		"a stream pair":                   {partial, auditArch, unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}, allow},
		"a datagram pair":                 {full, auditArch, unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_DGRAM}, allow},
		"a datagram pair, partial":        {partial, auditArch, unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC}, refuse},
		"a raw pair, partial":             {partial, auditArch, unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_RAW}, refuse},
		"fork":                            {full, auditArch, unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, allow},
		"a thread":                        {full, auditArch, unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND}, allow},
		"a user namespace":                {full, auditArch, unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, refuse},
		"a user namespace, disguised":     {full, auditArch, unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | 1<<40}, refuse},
		"a network namespace":             {full, auditArch, unix.SYS_CLONE, []uint64{unix.CLONE_NEWNET}, refuse},
		"clone3":                          {full, auditArch, unix.SYS_CLONE3, nil, absent},
		"own limits":                      {full, auditArch, unix.SYS_PRLIMIT64, []uint64{0}, allow},
		"another's limits":                {full, auditArch, unix.SYS_PRLIMIT64, []uint64{4711}, refuse},
		"own priority":                    {full, auditArch, unix.SYS_SETPRIORITY, []uint64{unix.PRIO_PROCESS, 0}, allow},
		"another's priority":              {full, auditArch, unix.SYS_SETPRIORITY, []uint64{unix.PRIO_PROCESS, 4711}, refuse},
		"the user's priority":             {full, auditArch, unix.SYS_SETPRIORITY, []uint64{unix.PRIO_USER, 0}, refuse},
		"is it a terminal":                {full, auditArch, unix.SYS_IOCTL, []uint64{0, unix.TCGETS}, allow},
		"push into the terminal":          {full, auditArch, unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, refuse},
		"push, disguised":                 {full, auditArch, unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI | 1<<40}, refuse},
		"setsid":                          {full, auditArch, unix.SYS_SETSID, nil, allow},
		"setsid, partial":                 {partial, auditArch, unix.SYS_SETSID, nil, refuse},
		"setpgid, partial":                {partial, auditArch, unix.SYS_SETPGID, nil, refuse},
		"chmod by name":                   {full, auditArch, unix.SYS_FCHMODAT, nil, allow},
		"chmod by name, partial":          {partial, auditArch, unix.SYS_FCHMODAT, nil, refuse},
		"chmod of what is open, partial":  {partial, auditArch, unix.SYS_FCHMOD, nil, refuse},
		"chmod":                           {full, auditArch, unix.SYS_FCHMOD, []uint64{3, 0o1777}, allow},
		"chmod, setuid":                   {full, auditArch, unix.SYS_FCHMOD, []uint64{3, 0o4755}, refuse},
		"chmod by name, setgid":           {full, auditArch, unix.SYS_FCHMODAT, []uint64{3, 0, 0o2755}, refuse},
		"chmod by name, new, setgid":      {full, auditArch, unix.SYS_FCHMODAT2, []uint64{3, 0, 0o2755}, refuse},
		"setuid, disguised":               {full, auditArch, unix.SYS_FCHMOD, []uint64{3, 0o4755 | 1<<40}, refuse},
		"open":                            {partial, auditArch, unix.SYS_OPENAT, []uint64{3, 0, unix.O_RDONLY, 0o7777}, allow}, // there is no mode
		"make a file":                     {partial, auditArch, unix.SYS_OPENAT, []uint64{3, 0, unix.O_CREAT, 0o777}, allow},
		"make a file, setuid":             {partial, auditArch, unix.SYS_OPENAT, []uint64{3, 0, unix.O_CREAT | unix.O_EXCL, 0o4777}, refuse},
		"make one without name, setuid":   {full, auditArch, unix.SYS_OPENAT, []uint64{3, 0, unix.O_TMPFILE | unix.O_RDWR, 0o4777}, refuse},
		"a directory, to read":            {full, auditArch, unix.SYS_OPENAT, []uint64{3, 0, unix.O_DIRECTORY, 0o4777}, allow},
		"open, where no filter can look":  {full, auditArch, unix.SYS_OPENAT2, nil, absent},
		"make a directory, setgid":        {partial, auditArch, unix.SYS_MKDIRAT, []uint64{3, 0, 0o2777}, refuse},
		"make a directory":                {partial, auditArch, unix.SYS_MKDIRAT, []uint64{3, 0, 0o777}, allow},
		"make a file as a device, setuid": {partial, auditArch, unix.SYS_MKNODAT, []uint64{3, 0, unix.S_IFREG | 0o4777}, refuse},
		"attributes":                      {full, auditArch, unix.SYS_GETXATTR, nil, allow},
		"attributes, partial":             {partial, auditArch, unix.SYS_GETXATTR, nil, without},
		"watch":                           {full, auditArch, unix.SYS_INOTIFY_ADD_WATCH, nil, allow},
		"watch, partial":                  {partial, auditArch, unix.SYS_INOTIFY_ADD_WATCH, nil, refuse},
	} {
		if got := evaluate(t, c.program, c.arch, c.nr, c.args...); got != c.want {
			t.Errorf("%s: %#x, want %#x", name, got, c.want)
		}
	}
}

// A child that ignores SIGTERM is killed after the grace period, with all it started.
func TestIgnoresSIGTERM(t *testing.T) {
	tiers(t, func(t *testing.T, tier Tier) {
		mark := fmt.Sprintf("86401.%d", time.Now().UnixNano()%1e9)
		c := shell(t, `trap "" TERM; sleep `+mark+` & while :; do sleep 0.01; done`)
		c.Limits.Wall = 300 * time.Millisecond
		start := time.Now()
		out := must(t, c, tier)
		took := time.Since(start)
		if !out.TimedOut || out.Signal != "SIGKILL" || out.ExitCode != -1 {
			t.Errorf("%+v", out)
		}
		if took < c.Limits.Wall+Grace || took > c.Limits.Wall+Grace+5*time.Second {
			t.Errorf("took %s", took)
		}
		gone(t, mark)
	})
}

// gone fails if a process with the mark in its arguments is alive. There is nothing to wait for: Run has returned.
func gone(t *testing.T, mark string) {
	t.Helper()
	if left := alive(mark); left != nil {
		t.Errorf("alive: %q", left)
	}
}

func alive(mark string) (left []string) {
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range found {
		if data, _ := os.ReadFile(f); bytes.Contains(data, []byte(mark)) && !bytes.HasPrefix(data, []byte(helperName)) {
			left = append(left, f+" "+string(data))
		}
	}
	return left
}

func TestObeysSIGTERM(t *testing.T) {
	tiers(t, func(t *testing.T, tier Tier) {
		c := shell(t, `trap "echo bye; exit 0" TERM; echo ready; while :; do sleep 0.01; done`)
		c.Limits.Wall = time.Second
		if out := must(t, c, tier); !out.TimedOut || string(out.Stdout) != "ready\nbye\n" || out.ExitCode != 0 {
			t.Errorf("%+v %s", out, out.Stdout)
		}
	})
}

func TestDeadlineAndCancel(t *testing.T) {
	tiers(t, func(t *testing.T, tier Tier) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		out, err := run(ctx, command(t, "sleep", "60"), tier)
		if err != nil || !out.TimedOut || out.Signal != "SIGTERM" {
			t.Errorf("deadline: %+v %v", out, err)
		}
		mark := fmt.Sprintf("86402.%d", time.Now().UnixNano()%1e9)
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(200*time.Millisecond, cancel)
		start := time.Now()
		_, err = run(ctx, shell(t, `trap "" TERM; sleep `+mark+` & wait; sleep 60`), tier)
		if !errors.Is(err, context.Canceled) || time.Since(start) > 5*time.Second {
			t.Errorf("cancelled: %v after %s", err, time.Since(start))
		}
		gone(t, mark)
	})
}

// A child that writes 10 GB neither fills nor holds anything.
func TestEndlessOutput(t *testing.T) {
	tiers(t, func(t *testing.T, tier Tier) {
		for _, redirect := range []string{"", " >&2"} {
			c := shell(t, "exec dd if=/dev/zero bs=1M count=10240"+redirect+" status=none")
			start := time.Now()
			out := must(t, c, tier)
			kept, truncated := out.Stdout, out.StdoutTruncated
			if redirect != "" {
				kept, truncated = out.Stderr, out.StderrTruncated
			}
			if int64(len(kept)) != c.Limits.Output || !truncated || out.Signal != "SIGPIPE" || time.Since(start) > 10*time.Second {
				t.Errorf("%d bytes kept, truncated %v, ended by %q after %s", len(kept), truncated, out.Signal, time.Since(start))
			}
		}
		// What is only somewhat long ends as it would have.
		out := must(t, shell(t, "dd if=/dev/zero bs=1M count=10 status=none; exit 5"), tier)
		if out.ExitCode != 5 || !out.StdoutTruncated {
			t.Errorf("10 MiB: %d %v", out.ExitCode, out.StdoutTruncated)
		}
	})
}

// Nothing but 0, 1 and 2 and the given environment reaches the child.
func TestInheritsNothing(t *testing.T) {
	_, secret := outside(t)
	fd, err := syscall.Open(secret, syscall.O_RDONLY, 0) // without O_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	t.Setenv("SALLYPORT_TEST_SECRET", "hunter2")
	tiers(t, func(t *testing.T, tier Tier) {
		out := must(t, shell(t, `i=0; while [ $i -lt 64 ]; do { true <&$i; } 2>/dev/null && echo $i; i=$((i+1)); done; exit 0`), tier)
		if string(out.Stdout) != "0\n1\n2\n" {
			t.Errorf("descriptors: %q %s", out.Stdout, out.Stderr)
		}
		c := command(t, "env")
		out = must(t, c, tier)
		got := strings.Split(strings.TrimSpace(string(out.Stdout)), "\n")
		if len(got) != 3 || got[0] != "PATH=/usr/bin:/bin" || !strings.HasPrefix(got[1], "TMPDIR=/") || !strings.HasPrefix(got[2], "TEMP=/") {
			t.Errorf("environment: %q", got)
		}
		if strings.Contains(string(must(t, shell(t, "cat /proc/1/environ /proc/self/environ 2>/dev/null"), tier).Stdout), "hunter2") {
			t.Error("the launcher's environment is the gateway's")
		}
	})
}

// A child that leaves its group by setsid dies with the rest, or can't leave.
func TestSetsid(t *testing.T) {
	tiers(t, func(t *testing.T, tier Tier) {
		mark := fmt.Sprintf("86403.%d", time.Now().UnixNano()%1e9)
		out := must(t, shell(t, `setsid sleep `+mark+` >/dev/null 2>&1 </dev/null & (setsid setsid sleep `+mark+` &) ; sleep 0.2; exit 3`), tier)
		if out.ExitCode != 3 {
			t.Errorf("%+v %s", out, out.Stderr)
		}
		gone(t, mark)
	})
}

// One that stays behind with the pipes open does not hold Run.
func TestBackground(t *testing.T) {
	tiers(t, func(t *testing.T, tier Tier) {
		start := time.Now()
		mark := fmt.Sprintf("86405.%d", time.Now().UnixNano()%1e9)
		if out := must(t, shell(t, "sleep "+mark+" & exit 0"), tier); out.ExitCode != 0 || out.TimedOut || time.Since(start) > 5*time.Second {
			t.Errorf("%+v after %s", out, time.Since(start))
		}
		gone(t, mark)
	})
}

func TestForkBomb(t *testing.T) {
	before, _ := os.ReadFile("/proc/sys/kernel/pid_max")
	tiers(t, func(t *testing.T, tier Tier) {
		c := attacker(t, "forks", "2000")
		c.Limits.Processes, c.Limits.OpenFiles = 40, 4096 // each takes a descriptor, too
		out := must(t, c, tier)
		n, err := strconv.Atoi(strings.TrimSpace(string(out.Stdout)))
		most := c.Limits.Processes
		if os.Geteuid() == 0 {
			most += 300
		}
		if out.ExitCode != succeeded || err != nil || n > most+12 || n < 5 {
			t.Errorf("%d processes, %q", n, out.Stdout)
		}
		c = shell(t, `f() { f | f & }; f; sleep 60`)
		c.Limits.Wall = time.Second
		start := time.Now()
		if must(t, c, tier); time.Since(start) > 15*time.Second {
			t.Errorf("took %s", time.Since(start))
		}
	})
	if after, _ := os.ReadFile("/proc/sys/kernel/pid_max"); !bytes.Equal(before, after) {
		t.Errorf("the machine's pid_max went from %s to %s", before, after)
	}
}

func TestLimits(t *testing.T) {
	tiers(t, func(t *testing.T, tier Tier) {
		out := must(t, shell(t, "dd if=/dev/zero of=/dev/null bs=600M count=1"), tier)
		if out.ExitCode == 0 || !strings.Contains(string(out.Stderr), "memory") {
			t.Errorf("memory: %+v %s", out, out.Stderr)
		}
		c := shell(t, "exec dd if=/dev/zero of=big bs=1M count=20 status=none")
		if out := must(t, c, tier); out.Signal != "SIGXFSZ" {
			t.Errorf("file: %+v %s", out, out.Stderr)
		}
		if info, err := os.Stat(c.Dir + "/big"); err != nil || info.Size() > c.Limits.File {
			t.Errorf("file: %v %v", info, err)
		}
		c = shell(t, "while :; do :; done")
		c.Limits.CPU = time.Second
		if out := must(t, c, tier); out.Signal != "SIGXCPU" || out.TimedOut || out.CPU < 500*time.Millisecond {
			t.Errorf("CPU: %+v", out)
		}
		unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}) // it may be 0 already, and then stays
		out = must(t, shell(t, "ulimit -n; ulimit -c; ulimit -n 4096"), tier)
		if string(out.Stdout) != "64\n0\n" || out.ExitCode == 0 {
			t.Errorf("limits: %+v %s %s", out, out.Stdout, out.Stderr)
		}
		if tier == Full { // all that is in the temporary directory, not each file
			out = must(t, shell(t, `for i in 1 2 3 4; do dd if=/dev/zero of=$TMPDIR/$i bs=1M count=4 status=none || exit 9; done`), tier)
			if out.ExitCode != 9 {
				t.Errorf("temporary: %+v %s", out, out.Stderr)
			}
		}
	})
}

// What lies in the workspace is never executed, by whatever name.
func TestWorkspaceIsNotExecutable(t *testing.T) {
	tiers(t, func(t *testing.T, tier Tier) {
		out := must(t, shell(t, `cp /usr/bin/true ./true && ./true; echo $?; cp ./true "$TMPDIR/true"; "$TMPDIR/true"; echo $?`), tier)
		if string(out.Stdout) != "126\n126\n" {
			t.Errorf("%q %s", out.Stdout, out.Stderr)
		}
	})
}

// What runs is the file that was open, whatever its name has become since.
func TestRunsTheOpenFile(t *testing.T) {
	tiers(t, func(t *testing.T, tier Tier) {
		dir := t.TempDir()
		path := filepath.Join(dir, "program")
		copyFile(t, "/usr/bin/true", path)
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		c := command(t, "true")
		c.Program, c.Path = f, path
		if out := must(t, c, tier); out.ExitCode != 0 {
			t.Fatalf("unchanged: %+v", out)
		}
		copyFile(t, "/usr/bin/false", path+".new")
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		out, err := run(t.Context(), c, tier)
		if err == nil && out.ExitCode != 0 {
			t.Error("the new file was run")
		}
		// In a directory of the system it is still run, as Landlock knows the directory; elsewhere it knows only the file of that name, which is another.
		if !fault.Is(err, fault.RequestMalformed) {
			t.Errorf("%+v %v", out, err)
		}
	})
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestReadOnly(t *testing.T) {
	dir, secret := outside(t)
	tiers(t, func(t *testing.T, tier Tier) {
		c := shell(t, `cat "$0"; echo changed > "$0"; echo new > "$(dirname "$0")/new"; chmod 777 "$0"; exit 0`)
		c.Argv = append(c.Argv, secret)
		c.ReadOnly = []string{dir}
		if out := must(t, c, tier); string(out.Stdout) != "secret" {
			t.Errorf("%q %s", out.Stdout, out.Stderr)
		}
		if info, _ := os.Stat(secret); info.Mode() != 0o600 || info.Size() != 6 {
			t.Errorf("%v %d", info.Mode(), info.Size())
		}
		if _, err := os.Stat(dir + "/new"); err == nil {
			t.Error("a file was made")
		}
	})
}

func TestNetwork(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.Copy(io.Discard, c)
			c.Close()
		}
	}()
	abstract := fmt.Sprintf("@sallyport-net-%d", os.Getpid())
	u, err := net.Listen("unix", abstract)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	tiers(t, func(t *testing.T, tier Tier) {
		c := attacker(t, "tcp", l.Addr().String())
		c.Network = true
		if out := must(t, c, tier); out.ExitCode != succeeded {
			t.Errorf("tcp: %s", out.Stdout)
		}
		for _, argv := range [][]string{{"unix", abstract}, {"read", "/etc/passwd"}, {"kill", strconv.Itoa(os.Getpid())}} {
			c := attacker(t, argv...)
			c.Network = true
			if out := must(t, c, tier); out.ExitCode != failed {
				t.Errorf("%q: %+v", argv, out)
			}
		}
	})
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	os.WriteFile(script, []byte("#!/bin/sh\ntrue\n"), 0o755)
	os.Symlink("/usr/bin/true", dir+"/link")
	os.Symlink(dir, dir+"/dirlink")
	for name, change := range map[string]func(*Command){
		"a script":             func(c *Command) { c.Path = script },
		"a link":               func(c *Command) { c.Path = dir + "/link" },
		"a directory":          func(c *Command) { c.Path = dir },
		"a relative path":      func(c *Command) { c.Path = "true" },
		"nothing there":        func(c *Command) { c.Path = dir + "/absent" },
		"no arguments":         func(c *Command) { c.Argv = nil },
		"NUL":                  func(c *Command) { c.Argv = []string{"true", "a\x00b"} },
		"no limits":            func(c *Command) { c.Limits = Limits{} },
		"a negative limit":     func(c *Command) { c.Limits.Memory = -1 },
		"the root":             func(c *Command) { c.Dir = "/" },
		"a system directory":   func(c *Command) { c.Dir = "/usr" },
		"a linked workspace":   func(c *Command) { c.Dir = dir + "/dirlink" },
		"a relative workspace": func(c *Command) { c.Dir = "." },
		"its own TMPDIR":       func(c *Command) { c.Env = []string{"TMPDIR=/x"} },
		"all may be read":      func(c *Command) { c.ReadOnly = []string{"/"} },
		"absent may be read":   func(c *Command) { c.ReadOnly = []string{dir + "/absent"} },
	} {
		c := command(t, "true")
		change(&c)
		if _, err := Run(t.Context(), c); !fault.Is(err, fault.RequestMalformed) || name == "a script" && !strings.Contains(err.Error(), "script") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Where the sandbox can't be built, nothing runs.
func TestUnavailable(t *testing.T) {
	c := shell(t, "touch ran")
	spec := launchSpec{Tier: Full, Program: "/usr/bin/nothing-there"} // what the launcher is to show does not exist
	if _, err := supervise(t.Context(), c, nil, spec); !fault.Is(err, fault.SandboxUnavailable) {
		t.Errorf("not built: %v", err)
	}
	Probe()
	saved := probed
	defer func() { probed = saved }()
	probed = Report{Tier: None, Missing: []string{"The kernel has no Landlock."}}
	if _, err := Run(t.Context(), c); !fault.Is(err, fault.SandboxUnavailable) || !strings.Contains(err.Error(), "Landlock") {
		t.Errorf("no tier: %v", err)
	}
	if left, _ := os.ReadDir(c.Dir); len(left) != 0 {
		t.Errorf("something ran: %v", left)
	}
}

// A launcher that is killed while the program runs takes the tree with it, and is no proof that nothing was done.
func TestLauncherDies(t *testing.T) {
	tiers(t, func(t *testing.T, tier Tier) {
		mark := fmt.Sprintf("86406.%d", time.Now().UnixNano()%1e9)
		c := shell(t, "touch started; sleep "+mark)
		go func() {
			for t.Context().Err() == nil {
				if _, err := os.Stat(c.Dir + "/started"); err == nil {
					for _, pid := range launchers() {
						if adj, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid)); string(adj) != "1000\n" {
							t.Errorf("where memory runs out, it and its program do not go first: %q %v", adj, err)
						}
						unix.Kill(pid, unix.SIGKILL)
					}
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
		if out, err := run(t.Context(), c, tier); !fault.Is(err, fault.UpstreamFailed) {
			t.Errorf("%+v %v", out, err)
		}
		gone(t, mark)
	})
}

// launchers are those of this process.
func launchers() (pids []int) {
	found, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range found {
		data, _ := os.ReadFile(f)
		_, rest, _ := strings.Cut(string(data), ") ") // state, parent
		fields := strings.Fields(rest)
		if len(fields) < 2 || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		if args, _ := os.ReadFile(filepath.Dir(f) + "/cmdline"); string(args) == launcherName+"\x00" {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// The launcher compares the directory that it is in with the one that was checked.
func TestWorkspaceIsTheOneThatWasChecked(t *testing.T) {
	tiers(t, func(t *testing.T, tier Tier) {
		p, err := newPipes()
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		spec := launchSpec{Tier: tier, Landlock: landlockABI(), Root: os.Geteuid() == 0, Dir: t.TempDir(), Workspace: fileID{1, 1}, Temp: tempDir, Limits: generous, Test: true}
		cmd := launcherCommand(spec, spec.Dir, p.spec.r, p.status.w)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait()
		p.status.w.Close()
		json.NewEncoder(p.spec.w).Encode(spec)
		answer, _ := io.ReadAll(p.status.r)
		if !strings.Contains(string(answer), "not the directory that was checked") {
			t.Errorf("%s", answer)
		}
	})
}

// Each wall of the tier Full stands by itself, whatever the others already hold.
func TestNamespacesAndPrivileges(t *testing.T) {
	if Probe().Tier != Full {
		cannot(t, "no namespaces here")
	}
	var links []string
	for _, n := range []string{"user", "pid", "mnt", "ipc", "uts", "net", "cgroup"} {
		links = append(links, "/proc/self/ns/"+n)
	}
	out := must(t, attacker(t, append([]string{"links"}, links...)...), Full)
	inside := strings.Fields(string(out.Stdout))
	if len(inside) != len(links) {
		cannot(t, "the kernel gives no /proc: "+string(out.Stdout))
	}
	for i, l := range links {
		if outside, err := os.Readlink(l); err != nil || outside == inside[i] {
			t.Errorf("%s is %s in both, %v", l, outside, err)
		}
	}
	out = must(t, shell(t, "cat /proc/self/status; cat /proc/1/status; uname -n"), Full)
	for _, line := range []string{"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapInh:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "Seccomp_filters:\t1", "sandbox"} {
		if !strings.Contains(string(out.Stdout), line+"\n") {
			t.Errorf("no %q in\n%s", line, out.Stdout)
		}
	}
	for line := range strings.Lines(string(out.Stdout)) {
		if strings.HasPrefix(line, "Groups:") && strings.TrimSpace(strings.TrimPrefix(line, "Groups:")) != "" && os.Geteuid() == 0 {
			t.Errorf("root's groups were kept: %s", line)
		}
	}
}

// A gateway that is killed takes the whole tree with it.
func TestGatewayDies(t *testing.T) {
	tiers(t, func(t *testing.T, tier Tier) {
		mark := fmt.Sprintf("86404.%d", time.Now().UnixNano()%1e9)
		ws := t.TempDir()
		path, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(path)
		cmd.Args = []string{helperName, "gateway", string(tier), ws, "(sleep " + mark + " & touch started; wait) & wait"}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the program to start", func() bool { _, err := os.Stat(ws + "/started"); return err == nil })
		cmd.Process.Kill()
		cmd.Wait()
		eventually(t, "the tree to die", func() bool { return len(alive(mark)) == 0 })
	})
}

// eventually asks again and again: these are other processes, which nobody tells us about.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// TestAsNobody runs the other tests as an ordinary user, who also has the tier Partial.
func TestAsNobody(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the tests run as an ordinary user already")
	}
	dir, err := os.MkdirTemp("/var/tmp", "sallyport-sandbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	copyFile(t, self, dir+"/test")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(dir+"/tmp", 0o700), os.Chown(dir+"/tmp", nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), dir+"/test", "-test.v", "-test.timeout=15m")
	cmd.Dir = dir + "/tmp"
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "HOME=") }), "TMPDIR="+dir+"/tmp", "HOME="+dir+"/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Pdeathsig: syscall.SIGKILL}
	said, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(said, []byte("--- PASS: TestAttacks")) {
		t.Errorf("%v\n%s", err, said)
	}
	for line := range strings.Lines(string(said)) { // a skip inside is one here
		if strings.Contains(line, "not checked:") {
			t.Log(strings.TrimSpace(line))
		}
	}
}
