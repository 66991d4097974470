package caller_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"sallyport.example/internal/caller"
	"sallyport.example/internal/identity"
)

const (
	sessionToken = identity.EnvToken + "=spt_session_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	envDial      = "CALLER_TEST_DIAL"
	envBelow     = "CALLER_TEST_BELOW"
	envName      = "CALLER_TEST_NAME"
)

// The test's own binary plays the processes: one starts another below it without its token, one connects.
func TestMain(m *testing.M) {
	if name := os.Getenv(envName); name != "" {
		if err := os.WriteFile("/proc/self/comm", []byte(name), 0); err != nil {
			panic(err)
		}
	}
	switch {
	case os.Getenv(envBelow) != "":
		below := exec.Command(os.Args[0])
		below.Env = []string{envDial + "=" + os.Getenv(envDial)}
		below.Stdin, below.Stdout = os.Stdin, os.Stdout
		if err := below.Run(); err != nil {
			panic(err)
		}
	case os.Getenv(envDial) != "":
		conn, err := net.Dial("tcp", os.Getenv(envDial))
		if err != nil {
			panic(err)
		}
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

func (p process) peer() caller.Peer {
	return caller.OfConnection(netip.MustParseAddrPort(p.conn.LocalAddr().String()), netip.MustParseAddrPort(p.conn.RemoteAddr().String()))
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
	} {
		for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
			t.Run(name+" at "+at, func(t *testing.T) {
				p := start(t, "tcp", at, c.env...)
				got := p.peer()
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
	if got := p.peer(); !got.Gone || got.Governed != 0 {
		t.Errorf("%+v", got)
	}
}

// A connection that this machine doesn't have tells nothing.
func TestAConnectionFromElsewhere(t *testing.T) {
	got := caller.OfConnection(netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("192.0.2.1:1"))
	if got != (caller.Peer{}) {
		t.Errorf("%+v", got)
	}
}

func TestLineageEndsAtTheTop(t *testing.T) {
	var all []int
	for pid := range caller.Lineage(os.Getpid()) {
		all = append(all, pid)
	}
	if len(all) < 2 || all[0] != os.Getpid() || all[1] != os.Getppid() {
		t.Errorf("%v", all)
	}
}
