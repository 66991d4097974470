package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/client"
)

// A gateway whose database or lock is taken away serves no call a second later, and ends with exit code 1.
func TestGatewayStopsWithoutItsFiles(t *testing.T) {
	config, _ := effects(t)
	for name, harm := range map[string]func(dir string) error{
		"database removed": func(dir string) error { return os.Remove(filepath.Join(dir, "sallyport.db")) },
		"database replaced": func(dir string) error {
			path := filepath.Join(dir, "sallyport.db")
			b, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path+".other", b, 0o600)
			}
			if err == nil {
				err = os.Rename(path+".other", path)
			}
			return err
		},
		"lock removed": func(dir string) error { return os.Remove(filepath.Join(dir, "lock")) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, config)
			w := launch(t, p)
			c := w.client(w.agent, w.token("tester"))
			one := func() bool {
				a, err := c.Call(t.Context(), client.Own, "fx_do", json.RawMessage(`{"n":"1"}`))
				return err == nil && a.Verdict.Decision == "permit"
			}
			if !one() {
				t.Fatal("the first call was refused")
			}
			if err := harm(p.data); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			var last time.Duration
			for running := true; running; {
				if one() {
					last = time.Since(began)
				}
				select {
				case <-w.exited:
					running = false
				default:
					if time.Since(began) > slack(20*time.Second) {
						t.Fatal("it still runs")
					}
				}
			}
			if last > slack(time.Second) {
				t.Errorf("a call was served %s after", last)
			}
			w.sane()
			if code := w.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(w.output.String(), "of the data directory") {
				t.Errorf("exit code %d:\n%s", code, w.output)
			}
			t.Logf("the last call was served after %s, the end came after %s", last.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		})
	}
}

// A gateway that is told to stop says first that it isn't ready, and every caller who waits gets a verdict: about an operation that does not end,
// about a question that nobody answered, by every door.
func TestStoppingAnswersWhoWaits(t *testing.T) {
	t.Parallel()
	started := make(chan struct{}, 10)
	s := newServer("hanging")
	tool(s, "hang", "Ends only when it is cancelled.", func(ctx context.Context, _ json.RawMessage) (*mcp.CallToolResult, error) {
		started <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	tool(s, "pay", "Pays.", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) { return text("paid"), nil })
	p := newPlace(t, fmt.Sprintf(`
upstreams: {hg: {url: %q, timeout: 25s}}
operations:
  hg.hang: {sensitivity: none, effect: read, output: trusted}
  hg.pay: {sensitivity: none, output: trusted, risk: HIGH}
approvals: {hold: 40s}
`, sdkServer(t, s)))
	w := launch(t, p)
	token := w.token("tester")
	var callers sync.WaitGroup
	waits := 0
	expect := func(door, code string, call func() (string, error)) {
		waits++
		callers.Go(func() {
			if got, err := call(); err != nil || got != code {
				t.Errorf("%s: %q, %v", door, got, err)
			}
		})
	}
	expect("http", "time.exceeded", func() (string, error) {
		a, err := w.client(w.agent, token).Call(t.Context(), client.Own, "hg_hang", json.RawMessage(`{}`))
		if err != nil {
			return "", err
		}
		return a.Verdict.Code, nil
	})
	for _, revision := range []string{revision0618, revision1125, revision0728} {
		cs, err := w.dial(token, revision, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		expect(revision+" hangs", "time.exceeded", func() (string, error) {
			r, err := callTool(t.Context(), cs, "hg_hang", map[string]any{})
			return r.code(), err
		})
		if revision == revision0728 { // it is answered at once
			continue
		}
		expect(revision+" waits for a person", "approval.required", func() (string, error) {
			r, err := callTool(t.Context(), cs, "hg_pay", map[string]any{})
			return r.code(), err
		})
	}
	for range 4 {
		select {
		case <-started:
		case <-time.After(time.Minute):
			t.Fatal("not every call reached the server")
		}
	}
	eventually(t, 10*time.Second, "the question is asked", func() bool {
		page, err := w.root.Approvals(t.Context(), client.ApprovalQuery{State: "pending"})
		return err == nil && len(page.Approvals) > 0
	})
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// While it drains the people's side still answers, and says that it isn't ready.
	eventually(t, 5*time.Second, "it is not ready", func() bool {
		resp, err := http.Get(w.admin + "/readyz")
		if err != nil {
			t.Fatalf("no answer while it drains: %v", err)
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusServiceUnavailable
	})
	if code, stdout, stderr := cli(t, p, nil, "status", "--data", p.data); code != 1 || !strings.Contains(stdout, "not ready: The gateway is stopping") {
		t.Errorf("status while it drains: %d %s %s", code, stdout, stderr)
	}
	callers.Wait()
	select {
	case <-w.exited:
	case <-time.After(slack(10 * time.Second)):
		t.Fatal("it does not end")
	}
	w.sane()
	if code := w.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, w.output)
	}
	for _, id := range p.verify(t).Unknown {
		t.Errorf("unknown: %s", id)
	}
}
