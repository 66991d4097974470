package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/client"
)

// process is sallyport serve in a process of its own, with the scripted MCP server behind it.
type process struct {
	dir, data string
	cmd       *exec.Cmd
	out       bytes.Buffer
	done      chan error
}

const patience = 20 * time.Second

func newProcess(t *testing.T) *process {
	p := &process{dir: t.TempDir()}
	p.data = filepath.Join(p.dir, "data")
	p.write(t, "127.0.0.1:0")
	p.start(t)
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			p.cmd.Process.Kill()
			<-p.done
		}
	})
	return p
}

func (p *process) write(t *testing.T, listen string) {
	t.Helper()
	config := fmt.Sprintf(`
listen: %s
admin_listen: 127.0.0.1:0
upstreams:
  script: {command: [mcpserver], env: {HOLD: %q}}
operations:
  script.note: {expose_as: note, sensitivity: none, effect: read, external_io: false, output: trusted}
  script.hold: {expose_as: hold, sensitivity: none, effect: read, external_io: false, output: trusted}
`, listen, filepath.Join(p.dir, "held", "go"))
	if err := os.MkdirAll(filepath.Join(p.dir, "held"), 0o700); err != nil { // a folder of the server's, which its environment names
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "c.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (p *process) start(t *testing.T) {
	t.Helper()
	os.Remove(filepath.Join(p.data, "addresses.json"))
	p.cmd = exec.Command("sallyport", "serve", "--config", filepath.Join(p.dir, "c.yaml"), "--data", p.data, "--log-level", "error")
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	p.done = done
	go func() { done <- p.cmd.Wait() }()
	until(t, func() error {
		cl, err := client.New(p.address(adminSide), p.token(adminSide))
		if err != nil {
			return err
		}
		tools, err := cl.Tools(t.Context())
		if err == nil && len(tools) < 2 {
			err = errors.New("the tools are not there yet")
		}
		if err == nil {
			err = acceptAll(t, cl, tools)
		}
		return err
	})
}

// acceptAll accepts what the servers say of themselves, as a person does who has read it.
func acceptAll(t *testing.T, cl *client.Client, tools []client.Tool) error {
	var all []client.Acceptance
	for _, tool := range tools {
		if hash := cmp.Or(tool.PendingHash, tool.Hash); hash != "" && tool.Server != "comm" {
			all = append(all, client.Acceptance{Operation: tool.Operation, DefinitionHash: hash})
		}
	}
	if len(all) == 0 {
		return nil
	}
	_, err := cl.AcceptTools(t.Context(), all)
	return err
}

func until(t *testing.T, try func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func (p *process) address(s side) string {
	var addresses map[string]string
	b, _ := os.ReadFile(filepath.Join(p.data, "addresses.json")) // not there: ""
	_ = json.Unmarshal(b, &addresses)
	return addresses[s.name]
}

func (p *process) token(s side) string {
	b, _ := os.ReadFile(filepath.Join(p.data, s.tokenFile))
	return strings.TrimSpace(string(b))
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func (p *process) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-p.done:
		return err
	case <-time.After(patience):
		t.Fatal("the gateway does not end")
		return nil
	}
}

// hold makes a call that runs until let go, and waits until it runs.
func (p *process) hold(t *testing.T) <-chan error {
	t.Helper()
	agent, err := client.New(p.address(agentSide), p.token(agentSide))
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		a, err := agent.Call(context.Background(), client.Own, "hold", json.RawMessage("{}"))
		if err == nil && !strings.Contains(string(a.Result), "let go") {
			err = fmt.Errorf("%s %s %s", a.Verdict.Code, a.Verdict.Reason, a.Result)
		}
		answered <- err
	}()
	until(t, func() error {
		select {
		case err := <-answered:
			t.Fatalf("the call ended with %v", err)
		default:
		}
		_, err := os.Lstat(filepath.Join(p.dir, "held", "go.held"))
		return err
	})
	return answered
}

// The first signal lets the call that runs finish and be answered, and takes no more.
func TestSignalDrains(t *testing.T) {
	p := newProcess(t)
	answered := p.hold(t)
	address := p.address(agentSide)
	p.signal(t, syscall.SIGTERM)
	until(t, func() error {
		if resp, err := http.Get(address); err == nil {
			resp.Body.Close()
			return errors.New("it still takes connections")
		}
		return nil
	})
	if err := os.WriteFile(filepath.Join(p.dir, "held", "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("the call that ran was not answered: %v", err)
	}
	if err := p.wait(t); err != nil {
		t.Errorf("it ended with %v\n%s", err, p.out.String())
	}
	var out bytes.Buffer
	if got := run(t.Context(), []string{"audit", "verify", p.data}, nil, &out, &out); got != exitDone || !strings.Contains(out.String(), "without outcome  0") {
		t.Errorf("audit verify: %d\n%s", got, out.String())
	}
}

// A second signal doesn't wait for anything; what ran is unknown afterwards, and nothing is lost.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	p := newProcess(t)
	answered := p.hold(t)
	address := p.address(agentSide)
	p.signal(t, os.Interrupt)
	until(t, func() error { // the first one has been heard
		if resp, err := http.Get(address); err == nil {
			resp.Body.Close()
			return errors.New("it still takes connections")
		}
		return nil
	})
	for ended := false; !ended; { // one that comes right behind the first may still be taken for it
		_ = p.cmd.Process.Signal(os.Interrupt) // it fails when the process is gone
		select {
		case err := <-p.done:
			if ended = true; err == nil {
				t.Error("it ended as if all were done")
			}
		case <-time.After(100 * time.Millisecond):
		}
	}
	if <-answered == nil {
		t.Error("the call was answered")
	}
	if err := os.WriteFile(filepath.Join(p.dir, "held", "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.start(t)
	p.signal(t, os.Interrupt)
	if err := p.wait(t); err != nil {
		t.Errorf("after a restart it ended with %v", err)
	}
	var out bytes.Buffer
	if got := run(t.Context(), []string{"audit", "verify", p.data}, nil, &out, &out); got != exitDone {
		t.Errorf("audit verify: %d\n%s", got, out.String())
	}
}

// The official client, starting sallyport connect as desktop clients do, on the real gateway, over a restart of it.
func TestConnectToTheRealGateway(t *testing.T) {
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			p := newProcess(t)
			changed := make(chan struct{}, 16)
			agent := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
				ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
			})
			s, err := agent.Connect(t.Context(), &mcp.CommandTransport{Command: exec.Command("sallyport", "connect", "--data", p.data)},
				&mcp.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if got := s.InitializeResult(); got.ProtocolVersion != version || got.Instructions == "" {
				t.Errorf("%+v", got)
			}
			note := func() {
				t.Helper()
				r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "note", Arguments: map[string]any{}})
				if err != nil || r.IsError || r.Content[0].(*mcp.TextContent).Text != "noted" {
					t.Fatalf("%+v, %v", r, err)
				}
			}
			list, err := s.ListTools(t.Context(), nil)
			if err != nil || len(list.Tools) < 6 {
				t.Fatalf("%+v, %v", list, err)
			}
			note()
			r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "no_such_tool", Arguments: map[string]any{}})
			if err == nil && !r.IsError {
				t.Errorf("an unknown tool: %+v", r)
			}
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				until(t, func() error { _, err := os.Lstat(filepath.Join(p.dir, "held", "go.held")); return err })
				cancel()
			}()
			if _, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "hold", Arguments: map[string]any{}}); !errors.Is(err, context.Canceled) {
				t.Errorf("a cancelled call: %v", err)
			}

			listen := strings.TrimPrefix(p.address(agentSide), "http://")
			p.signal(t, os.Interrupt)
			if err := p.wait(t); err != nil {
				t.Fatalf("%v\n%s", err, p.out.String())
			}
			p.write(t, listen)
			p.start(t)
			note()
		})
	}
}
