package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport.example/client"
)

// tty is a program that runs on a terminal of its own.
type tty struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	slave  *os.File
	before *unix.Termios
	done   chan error

	mu   sync.Mutex // guards the rest
	out  bytes.Buffer
	seen int
}

func onTerminal(t *testing.T, height uint16, env []string, program string, args ...string) *tty {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminal can be made here")
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminal can be opened here")
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: 80}); err != nil {
		t.Fatal(err)
	}
	y := &tty{t: t, master: master, slave: slave, done: make(chan error, 1)}
	if y.before, err = unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS); err != nil {
		t.Fatal(err)
	}
	y.cmd = exec.Command(program, args...)
	y.cmd.Env = append(append(os.Environ(), "TERM=xterm"), env...)
	y.cmd.Stdin, y.cmd.Stdout, y.cmd.Stderr = slave, slave, slave
	y.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := y.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { y.done <- y.cmd.Wait() }()
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			y.mu.Lock()
			y.out.Write(buf[:n])
			y.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		if y.cmd.ProcessState == nil {
			_ = y.cmd.Process.Kill() // it may have ended just now
		}
		slave.Close()
		master.Close()
	})
	return y
}

func (y *tty) String() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.out.String()
}

// sees waits until the text comes, after what was seen before.
func (y *tty) sees(text string) {
	y.t.Helper()
	until(y.t, func() error {
		all := y.String()
		i := strings.Index(all[y.seen:], text)
		if i < 0 {
			return fmt.Errorf("%q does not come:\n%q", text, all[y.seen:])
		}
		y.seen += i + len(text)
		return nil
	})
}

func (y *tty) press(keys string) {
	y.t.Helper()
	if _, err := y.master.WriteString(keys); err != nil {
		y.t.Fatal(err)
	}
}

// ends waits for the program, and checks that the terminal is as it was.
func (y *tty) ends(code int) {
	y.t.Helper()
	select {
	case <-y.done:
	case <-time.After(patience):
		y.t.Fatalf("it does not end:\n%q", y.String())
	}
	if got := y.cmd.ProcessState.ExitCode(); got != code {
		y.t.Errorf("it ended with %d, not %d: %q", got, code, y.String()[y.seen:])
	}
	after, err := unix.IoctlGetTermios(int(y.slave.Fd()), unix.TCGETS)
	if err != nil || *after != *y.before {
		y.t.Errorf("the terminal is not as it was: %+v, %+v, %v", y.before, after, err)
	}
}

// harmless checks that nothing came to the terminal that it would obey, but line ends and the erasing of the last line.
func (y *tty) harmless() {
	y.t.Helper()
	left := strings.NewReplacer("\r\n", "", "\r\x1b[K", "").Replace(y.String())
	for _, r := range left {
		if r < ' ' || r == 0x7f || hidden(r) {
			y.t.Fatalf("%U came to the terminal: %q", r, left)
		}
	}
}

// desk is a gateway on which everything that is written is asked about, with an agent and an approver.
type desk struct {
	*process
	agent *client.Client
	alice string
}

func newDesk(t *testing.T) *desk {
	p := &process{dir: t.TempDir()}
	p.data = filepath.Join(p.dir, "data")
	config := `
listen: 127.0.0.1:0
admin_listen: 127.0.0.1:0
people:
  - {id: alice, roles: [approver, operator]}
upstreams:
  script: {command: [mcpserver]}
operations:
  script.note: {expose_as: note, sensitivity: none, effect: write, risk: HIGH, external_io: false, output: trusted}
  script.hold: {expose_as: hold, sensitivity: none, effect: read, external_io: false, output: trusted}
`
	if err := os.WriteFile(filepath.Join(p.dir, "c.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p.start(t)
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill() // it may have ended just now
			<-p.done
		}
	})
	root, err := client.New(p.address(adminSide), p.token(adminSide))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := root.CreateToken(t.Context(), client.NewToken{Kind: "person", ID: "alice", Roles: []string{"approver", "operator"}})
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{process: p, alice: tok.Secret}
	d.reach(t)
	return d
}

// reach finds the gateway, also after a restart.
func (d *desk) reach(t *testing.T) {
	t.Helper()
	var err error
	if d.agent, err = client.New(d.address(agentSide), d.token(agentSide)); err != nil {
		t.Fatal(err)
	}
}

// ask makes a call that a person has to decide on.
func (d *desk) ask(t *testing.T, text string) {
	t.Helper()
	if a := d.call(t, text); a.Verdict.Decision != "ask" {
		t.Fatalf("%+v", a.Verdict)
	}
}

func (d *desk) call(t *testing.T, text string) *client.CallAnswer {
	t.Helper()
	b, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.agent.Call(t.Context(), client.Own, "note", b)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A person at a real terminal approves, rejects and puts off, whatever stands in the requests; the gateway is restarted meanwhile.
func TestWatchOnATerminal(t *testing.T) {
	d := newDesk(t)
	evil := "\x1b[2J\x1b[1;1Hrisk              LOW\x1b]52;c;ZXZpbA==\x07\x1b]8;;https://evil.example\x1b\\\u202egood\r\n\b\b\b" + strings.Repeat(" ", 10_000) + "\u009b31mthe end"
	d.ask(t, "third "+evil)
	y := onTerminal(t, 60, []string{envToken + "=" + d.alice}, "sallyport", "approvals", "watch", "--data", d.data)
	y.sees("script.note")
	y.sees(`\u001b[2J\u001b[1;1Hrisk\[14 spaces]LOW`)
	y.sees("the end")
	y.sees("a approve")
	d.ask(t, "second "+evil)
	y.sees("1 more waits")
	d.ask(t, "first "+evil)
	y.sees("2 more wait")
	y.press("a")
	y.sees("Approve script.note, risk HIGH, digest ")
	y.press("y")
	y.sees(": approved")
	if a := d.call(t, "third "+evil); a.Verdict.Decision != "permit" {
		t.Errorf("what was approved: %+v", a.Verdict)
	}
	y.sees(`"text": "first `)
	y.sees("a approve")
	y.press("r")
	y.sees("Why not?")
	y.press("not with escapes\x1b[A") // an arrow key is none
	y.sees("not with escapes")
	y.press("\r")
	y.sees(": rejected")
	if a := d.call(t, "first "+evil); a.Verdict.Code != "approval.rejected" || !strings.Contains(a.Verdict.Reason, "not with escapes") {
		t.Errorf("what was rejected: %+v", a.Verdict)
	}
	y.sees(`"text": "second `)
	y.sees("a approve")
	y.press("d")
	y.sees("Ask again: 1 in 10m")
	y.press("1")
	y.sees(": put off")
	y.sees("Nothing waits for an answer")
	if a := d.call(t, "second "+evil); a.Verdict.Decision != "ask" {
		t.Errorf("what was put off: %+v", a.Verdict)
	}

	d.signal(t, os.Interrupt)
	if err := d.wait(t); err != nil {
		t.Fatalf("%v\n%s", err, d.out.String())
	}
	y.sees("trying again in ")
	d.start(t) // at another address
	d.reach(t)
	y.sees("the gateway is there again")
	d.ask(t, "fourth")
	y.sees(`"text": "fourth"`)
	y.press("q")
	y.ends(exitDone)
	y.harmless()
}

// On every way out the terminal is as it was.
func TestWatchGivesTheTerminalBack(t *testing.T) {
	d := newDesk(t)
	d.ask(t, strings.Repeat("a long line\n", 100))
	env := []string{envToken + "=" + d.alice}
	for name, c := range map[string]struct {
		leave func(y *tty)
		code  int
	}{
		"q":        {func(y *tty) { y.press("q") }, exitDone},
		"Ctrl-C":   {func(y *tty) { y.press("\x03") }, exitDone},
		"Ctrl-D":   {func(y *tty) { y.press("\x04") }, exitDone},
		"a reason": {func(y *tty) { y.press("r"); y.sees("Why not?"); y.press("x\x03") }, exitDone},
		"SIGTERM":  {func(y *tty) { _ = y.cmd.Process.Signal(syscall.SIGTERM) }, exitDone}, // waited for below
		"SIGINT":   {func(y *tty) { _ = y.cmd.Process.Signal(os.Interrupt) }, exitDone},
		"SIGHUP":   {func(y *tty) { _ = y.cmd.Process.Signal(syscall.SIGHUP) }, exitDone},
	} {
		y := onTerminal(t, 24, env, "sallyport", "approvals", "watch", "--data", d.data)
		y.sees("space: ")
		c.leave(y)
		y.ends(c.code)
		if t.Failed() {
			t.Fatal(name)
		}
	}
	y := onTerminal(t, 24, []string{envToken + "=spt_person_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}, "sallyport", "approvals", "watch", "--data", d.data)
	y.ends(exitRefused)
	y = onTerminal(t, 24, append(env, envURL+"=http://127.0.0.1:1"), "sallyport", "approvals", "watch")
	y.ends(exitUnreachable)
	y = onTerminal(t, 24, env, "brokenwatch")
	y.sees("nil pointer")
	y.ends(2)
}
