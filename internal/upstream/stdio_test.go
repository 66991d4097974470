package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

func run(m *Manager, what string, x *call.Exchange) (json.RawMessage, error) {
	return do(m, "tools/call", toolCall("run", `{"do":"`+what+`"}`), x)
}

func dispatched(err error) bool {
	var nd *fault.NotDispatched
	return err != nil && !errors.As(err, &nd)
}

// TestBadMessagesOnThePipe has one scripted server play every trick on the pipe, one after the other, and work in between.
func TestBadMessagesOnThePipe(t *testing.T) {
	log := &testLog{}
	m, _ := start(t, childConfig("raw"), func(o *Options) { o.MaxResult = 1 << 20; o.Log = logger(log) })
	if s := m.Status()[0]; s.State != Up {
		t.Fatal(s)
	}
	for _, c := range []struct {
		do   string
		want fault.Code // "" for success
	}{
		{"ok", ""}, {"garbage", ""}, {"wrong-id", ""}, {"twice", ""}, {"foreign-progress", ""},
		{"loose", fault.ResultInvalid}, {"two", fault.ResultInvalid}, {"array", fault.ResultInvalid}, {"maybe", fault.ResultInvalid},
		{"legacy-mrtr", fault.ResultInvalid}, {"bad-error", fault.ResultInvalid}, {"long-error", fault.ResultTooLarge},
		{"huge", fault.ResultTooLarge}, {"huge-last", fault.ResultTooLarge},
	} {
		progress := func(json.RawMessage) { t.Error("somebody else's progress") }
		r, err := run(m, c.do, &call.Exchange{Progress: progress})
		if c.want == "" && (err != nil || string(r) != `{"content":[]}`) || c.want != "" && (!fault.Is(err, c.want) || !dispatched(err)) {
			t.Errorf("%s: %s %v", c.do, r, err)
		}
		if r, err := run(m, "ok", nil); err != nil {
			t.Fatalf("after %s: %s %v", c.do, r, err)
		}
	}
	if s := m.Status()[0]; s.Restarts != 0 {
		t.Errorf("restarted: %+v", s)
	}
	_, err := run(m, "error", nil)
	var rpc *call.RPCError
	if !errors.As(err, &rpc) || string(rpc.JSON) != `{"code":-5,"message":"mine","data":{"k":1}}` {
		t.Error(err)
	}
	var passed atomic.Int64
	if _, err := run(m, "flood-progress", &call.Exchange{Progress: func(json.RawMessage) { passed.Add(1) }}); err != nil {
		t.Error(err)
	}
	if n := passed.Load(); n < progressBurst || n > 2*progressBurst {
		t.Errorf("%d notifications passed on", n)
	}
	if text := log.String(); strings.Contains(text, "\x1b") || !strings.Contains(text, "hello") {
		t.Errorf("stderr in the log: %q", text)
	}
}

// TestHugeLineIsNotHeld: a line of 100 MB costs no memory beyond the limit.
func TestHugeLineIsNotHeld(t *testing.T) {
	m, _ := start(t, childConfig("raw"), func(o *Options) { o.MaxResult = 1 << 20 })
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := run(m, "huge", nil); !fault.Is(err, fault.ResultTooLarge) {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 16<<20 {
		t.Errorf("%d MiB allocated", grown>>20)
	}
}

// TestCutOff: what leaves no way to go on ends the conversation, fails the calls in flight as unknown, and the server comes back.
func TestCutOff(t *testing.T) {
	for _, what := range []string{"die", "huge-nameless", "flood"} {
		t.Run(what, func(t *testing.T) {
			log := &testLog{}
			m, seen := start(t, childConfig("raw"), func(o *Options) { o.MaxResult, o.Log = 1<<20, logger(log) })
			bystander := make(chan error, 1)
			go func() {
				_, err := run(m, "hang", &call.Exchange{Agent: "bystander"})
				bystander <- err
			}()
			until(t, "the server has the bystander's call", func() bool { return strings.Contains(log.String(), "the call hangs") })
			ended := func(err error, others bool) {
				t.Helper()
				var e *fault.Ended
				if !fault.Is(err, fault.UpstreamFailed) || !dispatched(err) || !errors.As(err, &e) || e.Others != others {
					t.Fatalf("%v, %+v", err, e)
				}
			}
			_, err := run(m, what, &call.Exchange{Agent: "a"})
			ended(err, true)
			ended(<-bystander, true)
			served := func() { // a call waits for the start; only one that meets the very end is told of it
				t.Helper()
				until(t, "a call is served", func() bool {
					_, err := run(m, "ok", &call.Exchange{Agent: "a"})
					if unsent := (*fault.NotDispatched)(nil); err != nil && (!errors.As(err, &unsent) || !unsent.Starting) {
						t.Fatal(err)
					}
					return err == nil
				})
			}
			served()
			if s := m.Status()[0]; s.State != Up || s.Restarts != 1 {
				t.Errorf("%+v", s)
			}
			_, err = run(m, what, &call.Exchange{Agent: "a"})
			ended(err, false)
			served()
			seen.mu.Lock()
			defer seen.mu.Unlock()
			if len(seen.lists["srv"]) != 1 {
				t.Error(seen.lists)
			}
		})
	}
}

func TestDownFailsFast(t *testing.T) {
	log := &testLog{}
	m, _ := start(t, childConfig("exits"), func(o *Options) { o.Log = logger(log) })
	until(t, "it is down", func() bool { return m.Status()[0].State == Down })
	_, err := run(m, "ok", nil)
	var nd *fault.NotDispatched
	if !errors.As(err, &nd) || !fault.Is(err, fault.UpstreamFailed) || !strings.Contains(fault.Of(err).Public(), "Upstream srv is ") {
		t.Fatal(err)
	}
	if s := m.Status()[0]; !strings.Contains(s.LastError, "exit status 3") {
		t.Errorf("%+v", s)
	}
	until(t, "its stderr is logged", func() bool { return strings.Contains(log.String(), `can't \\x1b[2J start`) })
}

func TestMissingProgram(t *testing.T) {
	m, _ := start(t, Config{Command: []string{"/no/such/program"}, Confine: Confinement{Sandbox: Unconfined}}, nil)
	if s := m.Status()[0]; s.State == Up || !strings.Contains(s.LastError, "can't be found") {
		t.Fatalf("%+v", s)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

// gone waits until a process of the test's is no more.
func gone(t *testing.T, pid int) {
	t.Helper()
	until(t, "the process is gone", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // a zombie has only its reaper to wait for
		return syscall.Kill(pid, 0) == syscall.ESRCH || err != nil || strings.Contains(string(stat), ") Z ")
	})
}

// TestNoChildLeft: the whole group dies with the server, also one that ignores everything but SIGKILL, and one whose leader ended by itself.
func TestNoChildLeft(t *testing.T) {
	for _, dies := range []bool{true, false} {
		pids := filepath.Join(t.TempDir(), "pids")
		cfg := childConfig("stubborn")
		cfg.Env["PIDS"] = pids
		cfg.Confine = Confinement{Sandbox: Unconfined} // in a sandbox the numbers are others, and TestConfinedTreeEnds looks at it
		m, _ := start(t, cfg, nil)
		if _, err := run(m, "ok", nil); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(pids)
		if err != nil {
			t.Fatal(err)
		}
		var server, grandchild int
		fmt.Sscan(string(raw), &server, &grandchild)
		if dies {
			if _, err := run(m, "die", nil); !dispatched(err) {
				t.Fatal(err)
			}
			gone(t, grandchild)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		gone(t, server)
		gone(t, grandchild)
	}
}

// TestUnreadInput: a child that stops reading holds up nobody for longer than the caller's time. The call that is half written has an unknown
// outcome; one behind it certainly never left.
func TestUnreadInput(t *testing.T) {
	m, _ := start(t, childConfig("raw"), nil)
	if _, err := run(m, "stop-reading", nil); err != nil {
		t.Fatal(err)
	}
	call := func(patience time.Duration, pad int) error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := m.Do(ctx, "srv", "tools/call", toolCall("run", `{"pad":"`+strings.Repeat("p", pad)+`"}`), nil)
		return err
	}
	// On a slow machine the time may be over before the first byte is written; such a call never left, and the next one gets twice the time.
	err := call(time.Second, 1<<20)
	for patience := 2 * time.Second; !dispatched(err) && patience < time.Minute; patience *= 2 {
		err = call(patience, 1<<20)
	}
	if !fault.Is(err, fault.TimeExceeded) || !dispatched(err) {
		t.Error(err)
	}
	if err := call(time.Second, 1); !fault.Is(err, fault.TimeExceeded) || dispatched(err) {
		t.Error(err)
	}
}

// TestOneAtATime: the calls of one client run one after the other, since a server's question does not say which call it is about. Another
// client's conversation is another one.
func TestOneAtATime(t *testing.T) {
	cfg := childConfig("sdk-legacy")
	cfg.ClientFeatures = []string{"roots"}
	m, _ := start(t, cfg, nil)
	var open, most atomic.Int64
	x := func(key string) *call.Exchange {
		return &call.Exchange{ClientKey: key, ClientCapabilities: json.RawMessage(`{"roots":{}}`),
			Ask: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
				most.Store(max(most.Load(), open.Add(1)))
				time.Sleep(20 * time.Millisecond)
				open.Add(-1)
				return json.RawMessage(`{"roots":[{"uri":"file:///` + key + `"}]}`), nil
			}}
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if r, err := do(m, "tools/call", toolCall("roots", `{}`), x("a")); err != nil || !strings.Contains(string(r), "file:///a") {
				t.Errorf("%s %v", r, err)
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 {
		t.Errorf("%d at once", most.Load())
	}
	if r, err := do(m, "tools/call", toolCall("roots", `{}`), x("b")); err != nil || !strings.Contains(string(r), "file:///b") {
		t.Errorf("%s %v", r, err)
	}
	s := m.servers["srv"]
	s.mu.Lock()
	a, b := s.dedicated["a"], s.dedicated["b"]
	s.mu.Unlock()
	if a == nil || b == nil || a.conv == b.conv {
		t.Fatal(a, b)
	}
	s.drop("a", a) // as its timer does
	m.Release("b")
	until(t, "both are closed", func() bool { return a.conv.ctx.Err() != nil && b.conv.ctx.Err() != nil })
	if r, err := do(m, "tools/call", toolCall("roots", `{}`), x("a")); err != nil || !strings.Contains(string(r), "file:///a") {
		t.Errorf("%s %v", r, err)
	}
}

func TestSilentServer(t *testing.T) {
	m, err := New([]Config{childConfig("silent")}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := m.Start(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if _, err := run(m, "ok", nil); dispatched(err) || err == nil {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// TestEnvironment: a child gets the allow-list and its own variables, none of ours.
func TestEnvironment(t *testing.T) {
	t.Setenv("SALLYPORT_SECRET", "do-not-pass")
	m, _ := start(t, childConfig("raw"), nil)
	r, err := run(m, "env", nil)
	if err != nil || strings.Contains(string(r), "do-not-pass") || !strings.Contains(string(r), "PATH=") || !strings.Contains(string(r), childMode) {
		t.Fatalf("%s %v", r, err)
	}
}

// TestSampling: a server that may ask gets its answer from the client of the call in flight, without that client's context (mcp-105); one
// that may not is told that there is no such method.
func TestSampling(t *testing.T) {
	for _, allowed := range []bool{true, false} {
		cfg := childConfig("raw")
		if allowed {
			cfg.ClientFeatures = []string{"sampling"}
		}
		m, _ := start(t, cfg, nil)
		asked := make(chan string, 1)
		x := &call.Exchange{ClientKey: "k", ClientCapabilities: json.RawMessage(`{"sampling":{"context":{}}}`),
			Ask: func(_ context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
				asked <- method + string(params)
				return json.RawMessage(`{"role":"assistant"}`), nil
			}}
		r, err := run(m, "sample", x)
		if err != nil {
			t.Fatal(err)
		}
		if allowed {
			if got := <-asked; !strings.Contains(got, `"includeContext":"none"`) || !strings.Contains(string(r), "assistant") {
				t.Errorf("%s %s", got, r)
			}
			_, err := run(m, "sample", &call.Exchange{ClientKey: "k", ClientCapabilities: x.ClientCapabilities,
				Ask: func(context.Context, string, json.RawMessage) (json.RawMessage, error) { panic("boom") }})
			if err != nil {
				t.Error(err)
			}
		} else if len(asked) != 0 || !strings.Contains(string(r), "-32601") {
			t.Errorf("%d %s", len(asked), r)
		}
	}
}

// TestDedicatedLimit: one server holds at most maxDedicated conversations with clients; above that callers share one, and a released one makes room.
func TestDedicatedLimit(t *testing.T) {
	cfg := childConfig("raw")
	cfg.ClientFeatures = []string{"sampling"}
	m, _ := start(t, cfg, nil)
	s := m.servers["srv"]
	s.mu.Lock()
	for i := range maxDedicated {
		d := &dedicated{turn: make(chan struct{}, 1)}
		d.turn <- struct{}{}
		s.dedicated[fmt.Sprint("filler", i)] = d
	}
	s.mu.Unlock()
	x := &call.Exchange{ClientKey: "k", ClientCapabilities: json.RawMessage(`{"sampling":{}}`),
		Ask: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			return nil, errors.New("no")
		}}
	own := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.dedicated["k"] != nil
	}
	if _, err := run(m, "ok", x); err != nil || own() {
		t.Fatalf("above the limit: %v, a conversation of its own: %v", err, own())
	}
	m.Release("filler0")
	if _, err := run(m, "ok", x); err != nil || !own() {
		t.Fatalf("below the limit: %v, a conversation of its own: %v", err, own())
	}
}
