package main

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport.example/client"
	"sallyport.example/internal/display"
)

// piped is sallyport approvals watch in a process of its own, between pipes.
type piped struct {
	*sitting
	cmd *exec.Cmd
	in  io.WriteCloser
}

func inPipes(t *testing.T, env []string, args ...string) *piped {
	t.Helper()
	p := &piped{sitting: &sitting{t: t, screen: &screen{}}, cmd: exec.Command("sallyport", append([]string{"approvals", "watch"}, args...)...)}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.screen, p.screen
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill() // it may have ended just now
			_ = p.cmd.Wait()
		}
	})
	return p
}

func (p *piped) types(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, text); err != nil {
		p.t.Fatal(err)
	}
}

// ends waits for the program.
func (p *piped) ends(code int) {
	p.t.Helper()
	stuck := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	_ = p.cmd.Wait() // the code tells
	if got := p.cmd.ProcessState.ExitCode(); !stuck.Stop() || got != code {
		p.t.Errorf("it ended with %d, not %d: %q", got, code, p.screen.String()[p.read:])
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
  script.note: {expose_as: note, sensitivity: none, effect: write, risk: HIGH, external_io: false, output: trusted, allow_invisible: [text]}
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

// A person approves, rejects and puts off, whatever stands in the requests; the gateway is restarted meanwhile.
func TestWatchInPipes(t *testing.T) {
	d := newDesk(t)
	evil := "\x1b[2J\x1b[1;1Hrisk              LOW\x1b]52;c;ZXZpbA==\x07\x1b]8;;https://evil.example\x1b\\\u202egood\r\n\b\b\b" + strings.Repeat(" ", 10_000) + "\u009b31mthe end"
	d.ask(t, "third "+evil)
	p := inPipes(t, []string{envToken + "=" + d.alice}, "--data", d.data)
	p.sees("script.note")
	p.sees(`\u001b[2J\u001b[1;1Hrisk\[14 spaces]LOW`)
	p.sees("the end")
	p.sees(answerPrompt)
	d.ask(t, "second "+evil)
	p.sees("1 more waits")
	d.ask(t, "first "+evil)
	p.types("approve\n")
	p.sees("Approve script.note, risk HIGH, digest ")
	p.sees("[y/N] ")
	p.types("y\n")
	p.sees(": approved")
	if a := d.call(t, "third "+evil); a.Verdict.Decision != "permit" {
		t.Errorf("what was approved: %+v", a.Verdict)
	}
	p.sees(`"text": "first `)
	p.sees(answerPrompt)
	p.types("reject not with escapes\n")
	p.sees(": rejected")
	if a := d.call(t, "first "+evil); a.Verdict.Code != "approval.rejected" || !strings.Contains(a.Verdict.Reason, "not with escapes") {
		t.Errorf("what was rejected: %+v", a.Verdict)
	}
	p.sees(`"text": "second `)
	p.sees(answerPrompt)
	p.types("defer 10m\n")
	p.sees(": postponed")
	p.sees("Nothing waits for an answer")
	if a := d.call(t, "second "+evil); a.Verdict.Decision != "ask" {
		t.Errorf("what was put off: %+v", a.Verdict)
	}

	d.signal(t, os.Interrupt)
	if err := d.wait(t); err != nil {
		t.Fatalf("%v\n%s", err, d.out.String())
	}
	p.sees("trying again in ")
	d.start(t) // at another address
	d.reach(t)
	p.sees("the gateway is there again")
	d.ask(t, "fourth")
	p.sees(`"text": "fourth"`)
	p.sees(answerPrompt)
	p.types("quit\n")
	p.ends(exitDone)
	for _, r := range p.screen.String() {
		if r < ' ' && r != '\n' || r == 0x7f || display.Hidden(r) {
			t.Fatalf("%U came to the terminal: %q", r, p.screen)
		}
	}
}

// Every way out answers nothing.
func TestWatchLeaves(t *testing.T) {
	d := newDesk(t)
	d.ask(t, strings.Repeat("a long line\n", 100))
	env := []string{envToken + "=" + d.alice}
	signal := func(s os.Signal) func(p *piped) {
		return func(p *piped) { _ = p.cmd.Process.Signal(s) } // waited for below
	}
	for name, leave := range map[string]func(p *piped){
		"quit":       func(p *piped) { p.types("q\n") },
		"no input":   func(p *piped) { p.in.Close() },
		"in a line":  func(p *piped) { p.types("reject no"); p.in.Close() },
		"in another": func(p *piped) { p.types("approve\n"); p.sees("[y/N]"); p.types("y"); p.in.Close() },
		"SIGTERM":    signal(syscall.SIGTERM),
		"SIGINT":     signal(os.Interrupt),
		"SIGHUP":     signal(syscall.SIGHUP),
	} {
		p := inPipes(t, env, "--data", d.data)
		p.sees(answerPrompt)
		leave(p)
		p.ends(exitDone)
		if t.Failed() {
			t.Fatal(name)
		}
	}
	if a := d.call(t, strings.Repeat("a long line\n", 100)); a.Verdict.Decision != "ask" {
		t.Errorf("it is answered: %+v", a.Verdict)
	}
	inPipes(t, []string{envToken + "=spt_person_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}, "--data", d.data).ends(exitRefused)
	inPipes(t, append(env, envURL+"=http://127.0.0.1:1")).ends(exitUnreachable)
}
