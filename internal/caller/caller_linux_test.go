package caller_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sallyport.example/internal/caller"
	"sallyport.example/internal/identity"
)

const (
	sessionToken = identity.EnvToken + "=spt_session_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	envDial      = "CALLER_TEST_DIAL"
	envBelow     = "CALLER_TEST_BELOW"
	envName      = "CALLER_TEST_NAME"
	envDeep      = "CALLER_TEST_DEEP" // how many processes deeper
	envHide      = "CALLER_TEST_HIDE" // how it holds its connection
)

// The test's own binary plays the processes: one starts another below it without its token, one connects.
func TestMain(m *testing.M) {
	if name := os.Getenv(envName); name != "" {
		if err := os.WriteFile("/proc/self/comm", []byte(name), 0); err != nil {
			panic(err)
		}
	}
	switch {
	case os.Getenv(envBelow) != "" || os.Getenv(envDeep) != "":
		below := exec.Command(os.Args[0])
		below.Env = []string{envDial + "=" + os.Getenv(envDial), envHide + "=" + os.Getenv(envHide)}
		if left, _ := strconv.Atoi(os.Getenv(envDeep)); left > 1 {
			below.Env = append(below.Env, fmt.Sprint(envDeep, "=", left-1))
		}
		below.Stdin, below.Stdout = os.Stdin, os.Stdout
		if err := below.Run(); err != nil {
			panic(err)
		}
	case os.Getenv(envDial) != "":
		conn, err := net.Dial("tcp", os.Getenv(envDial))
		if err != nil {
			panic(err)
		}
		hide(os.Getenv(envHide), conn)
		if _, err := fmt.Println(conn.LocalAddr()); err != nil {
			panic(err)
		}
		if line, _ := bufio.NewReader(os.Stdin).ReadString('\n'); line == "close\n" {
			conn.Close()
			fmt.Println("closed")
			_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends it
		}
	default:
		os.Exit(m.Run())
	}
}

// hide holds the connection where it isn't among the open files of any process.
func hide(how string, conn net.Conn) {
	socket := func() int {
		f, err := conn.(*net.TCPConn).File()
		if err != nil {
			panic(err)
		}
		return int(f.Fd())
	}
	switch how {
	case "on its way":
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			panic(err)
		}
		fd := socket()
		if err := unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(fd), nil, 0); err != nil {
			panic(err)
		}
		unix.Close(fd)
		conn.Close()
	case "in a thread":
		fd, ready := socket(), make(chan error)
		go func() {
			runtime.LockOSThread()
			ready <- unix.Unshare(unix.CLONE_FILES)
			select {} // the thread keeps its own table of open files
		}()
		if err := <-ready; err != nil {
			panic(err)
		}
		unix.Close(fd)
		conn.Close()
	case "unreadable":
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			panic(err)
		}
	}
}

// process is a process that the test looks at.
type process struct {
	*exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	conn net.Conn
}

func (p process) says(t *testing.T) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func (p process) peer(gateway int) caller.Peer {
	return caller.OfConnection(netip.MustParseAddrPort(p.conn.LocalAddr().String()), netip.MustParseAddrPort(p.conn.RemoteAddr().String()), gateway)
}

func start(t *testing.T, network, at string, env ...string) process {
	t.Helper()
	l, err := net.Listen(network, at)
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	p := process{Cmd: exec.Command(os.Args[0])}
	p.Env = append(env, envDial+"="+l.Addr().String())
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.in.Close(); _ = p.Wait() })
	if p.conn, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.conn.Close() })
	p.says(t)
	return p
}

func TestWhoIsBehindAConnection(t *testing.T) {
	for name, c := range map[string]struct {
		env      []string
		governed bool
	}{
		"anybody":                    {nil, false},
		"below anybody":              {[]string{envBelow + "=1"}, false},
		"an agent's token":           {[]string{identity.EnvToken + "=spt_agent_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}, false},
		"run itself":                 {[]string{envName + "=" + caller.RunName}, false},
		"a session's token":          {[]string{sessionToken}, true},
		"below a session's token":    {[]string{sessionToken, envBelow + "=1"}, true},
		"below run, without a token": {[]string{envName + "=" + caller.RunName, envBelow + "=1"}, true},
		"deep below run":             {[]string{envName + "=" + caller.RunName, envDeep + "=70"}, true},
	} {
		for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
			t.Run(name+" at "+at, func(t *testing.T) {
				p := start(t, "tcp", at, c.env...)
				got := p.peer(0)
				if got.Gone || (got.Governed != 0) != c.governed || got.Governed != 0 && got.Governed != p.Process.Pid {
					t.Errorf("%+v, and the process is %d", got, p.Process.Pid)
				}
			})
		}
	}
}

// A process that doesn't wait for its answer can't be looked at.
func TestNobodyHoldsTheConnection(t *testing.T) {
	p := start(t, "tcp", "127.0.0.1:0")
	fmt.Fprintln(p.in, "close")
	if got := p.says(t); got != "closed" {
		t.Fatal(got)
	}
	if got := p.peer(0); !got.Gone || got.Governed != 0 {
		t.Errorf("%+v", got)
	}
}

// A connection that this machine doesn't have tells nothing.
func TestAConnectionFromElsewhere(t *testing.T) {
	got := caller.OfConnection(netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("192.0.2.1:1"), 0)
	if got != (caller.Peer{}) {
		t.Errorf("%+v", got)
	}
}

// A governed program hides who holds its connection. Nobody else can be told from it then.
func TestAHiddenConnection(t *testing.T) {
	for _, how := range []string{"on its way", "in a thread", "unreadable"} {
		t.Run(how, func(t *testing.T) {
			p := start(t, "tcp", "127.0.0.1:0", envName+"="+caller.RunName, envBelow+"=1", envHide+"="+how)
			if got := p.peer(0); got.Governed == 0 || got.Gone {
				t.Errorf("%+v", got)
			}
		})
	}
}

// What the gateway started is no person, and neither is what is below that.
func TestAProgramOfTheGateways(t *testing.T) {
	for name, env := range map[string][]string{"a server": nil, "below a server": {envBelow + "=1"}} {
		t.Run(name, func(t *testing.T) {
			p := start(t, "tcp", "127.0.0.1:0", env...)
			if got := p.peer(os.Getpid()); got.Started == 0 || got.Governed != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	mine, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if got := (process{conn: theirs}).peer(os.Getpid()); got != (caller.Peer{}) {
		t.Errorf("the gateway's own connection: %+v", got)
	}
}

// A process that is gone tells nothing of what was above it, so it counts as governed.
func TestALineageThatEnds(t *testing.T) {
	gone := exec.Command(os.Args[0], "-test.run", "^$")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if all, whole := caller.Lineage(gone.Process.Pid); whole {
		t.Errorf("%v", all)
	}
	if at, yes := caller.Governed(gone.Process.Pid); !yes || at != gone.Process.Pid {
		t.Errorf("%d %t", at, yes)
	}
}

func TestLineageEndsAtTheTop(t *testing.T) {
	all, whole := caller.Lineage(os.Getpid())
	if !whole || len(all) < 2 || all[0] != os.Getpid() || all[1] != os.Getppid() {
		t.Errorf("%v, whole: %t", all, whole)
	}
}
