package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/client"
)

var crashRounds = flag.Int("crash-rounds", 6, "how often TestKill9 kills the gateway; at least 20 times with SALLYPORT_TEST_ALL=1")

// effects is an upstream whose every call has an effect that it records under the caller's number, at once and not to be undone.
func effects(t *testing.T) (config string, done *sync.Map) {
	t.Helper()
	done = &sync.Map{}
	s := newServer("effects")
	effect := func(name string, wait time.Duration) {
		tool(s, name, "Has an effect.", func(ctx context.Context, arguments json.RawMessage) (*mcp.CallToolResult, error) {
			var a struct{ N string }
			if err := json.Unmarshal(arguments, &a); err != nil {
				return nil, err
			}
			done.Store(a.N, time.Now())
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
			return text("did " + a.N), nil
		})
	}
	effect("do", 0)
	effect("slow", 400*time.Millisecond)
	effect("mail", 0)
	return fmt.Sprintf(`
upstreams: {fx: {url: %q}}
operations:
  fx.do:   {sensitivity: none, output: trusted}
  fx.slow: {sensitivity: none, output: trusted}
  fx.mail: {sensitivity: internal_source, output: trusted, effect: read}
limits: {calls_per_minute: 1000000, execution_budget: 10h}
`, sdkServer(t, s)), done
}

// answered is a call that the gateway answered, as its caller remembers it.
type answered struct {
	callID, n string
	answer    *client.CallAnswer
}

// Kill -9 under load, again and again: what was answered is in the record with intent and outcome, every effect has its intent, labels
// never sink, the switch holds, and the log verifies at every stop.
func TestKill9(t *testing.T) {
	t.Parallel()
	config, done := effects(t)
	p := newPlace(t, config, declaration("tester"), declaration("victim"))
	w := launch(t, p)
	token := w.token("tester")
	victim := w.token("victim")
	if _, err := w.root.Kill(t.Context(), "victim", "it stays off"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "the switch is durable", func() bool {
		s, err := w.root.KillStatus(t.Context())
		return err == nil && s.Agents["victim"].Durable
	})
	var mu sync.Mutex // guards all and labels
	all := []answered{}
	labels := map[string]bool{}
	number := atomic.Int64{}
	unknown := 0
	rounds := *crashRounds
	if thorough() {
		rounds = max(rounds, 20)
	}
	for round := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		var load sync.WaitGroup
		for worker := range 6 {
			load.Go(func() {
				c := w.client(w.agent, token)
				for ctx.Err() == nil {
					n := fmt.Sprintf("r%dn%d", round, number.Add(1))
					name := "fx_do"
					switch {
					case worker == 0:
						name = "fx_slow"
					case worker == 1 && round > 0:
						name = "fx_mail"
					}
					a, err := c.Call(ctx, client.Own, name, json.RawMessage(`{"n":"`+n+`"}`))
					if err != nil {
						if ctx.Err() == nil {
							time.Sleep(time.Millisecond) // the process is gone, and the round ends soon
						}
						continue
					}
					mu.Lock()
					all = append(all, answered{a.CallID, n, a})
					mu.Unlock()
					if s, err := c.Status(ctx, client.Own); err == nil {
						mu.Lock()
						for _, l := range s.Labels {
							labels[l.Label] = true
						}
						mu.Unlock()
					}
				}
			})
		}
		time.Sleep(time.Duration(100+rand.IntN(400)) * time.Millisecond) // the moment of the crash is what is tested
		w.kill()
		cancel()
		load.Wait()
		report := p.verify(t)
		unknown += len(report.Unknown)
		w = launch(t, p)
		s, err := w.client(w.agent, token).Status(t.Context(), client.Own)
		if err != nil {
			t.Fatal(err)
		}
		for label := range labels {
			if !slices.ContainsFunc(s.Labels, func(h client.Held) bool { return h.Label == label }) {
				t.Fatalf("round %d: the session lost the label %s", round, label)
			}
		}
		if a, err := w.client(w.agent, victim).Call(t.Context(), client.Own, "fx_do", json.RawMessage(`{"n":"killed"}`)); err != nil || a.Verdict.Code != "kill_switch.active" {
			t.Fatalf("round %d: the switch is off: %v %+v", round, err, a)
		}
	}
	entries := w.entries()
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	if report := p.verify(t); len(report.Unknown) > 0 {
		t.Errorf("intents without an outcome: %v", report.Unknown)
	}
	intents, outcomes := map[string]client.Entry{}, map[string]client.Entry{}
	byNumber := map[string]string{}
	for _, e := range entries {
		switch e.Kind {
		case "intent":
			intents[e.CallID] = e
			var a struct{ N string }
			if json.Unmarshal(e.Arguments.Shown, &a) == nil {
				byNumber[a.N] = e.CallID
			}
		case "outcome":
			outcomes[e.CallID] = e
		}
	}
	ok := 0
	for _, a := range all {
		if a.answer.Result == nil {
			if a.answer.Verdict.Decision == "permit" {
				t.Errorf("%s: permitted, without a result: %+v", a.n, a.answer)
			}
			continue
		}
		ok++
		if _, there := intents[a.callID]; !there {
			t.Errorf("%s was answered, and has no intent", a.callID)
		}
		if o := outcomes[a.callID]; o.Decision != "ok" {
			t.Errorf("%s was answered, and its outcome is %q", a.callID, o.Decision)
		}
	}
	effectsSeen := 0
	done.Range(func(n, _ any) bool {
		effectsSeen++
		if byNumber[n.(string)] == "" {
			t.Errorf("the effect %s has no intent", n)
		}
		if n == "killed" {
			t.Error("an effect of an agent that is switched off")
		}
		return true
	})
	recovered := 0
	for id := range intents {
		switch o := outcomes[id]; {
		case o.CallID == "":
			t.Errorf("the intent %s has no outcome", id)
		case o.Decision == "unknown":
			recovered++
		}
	}
	if ok < rounds {
		t.Errorf("only %d calls were answered in %d rounds", ok, rounds)
	}
	t.Logf("%d rounds: %d calls answered, %d effects, %d intents were left open by crashes, %d are unknown now, %d entries", rounds, ok, effectsSeen, unknown, recovered, len(entries))
}

// SIGTERM while calls run: they finish and are answered, whatever the door and whatever streams stand open; nothing is unknown, and
// the exit code is 0.
func TestSIGTERM(t *testing.T) {
	config, done := effects(t)
	p := newPlace(t, config)
	w := launch(t, p)
	token := w.token("tester")
	const callers = 6
	revisions := []string{revision0618, revision1125, revision0728}
	var calls sync.WaitGroup
	for i := range callers {
		calls.Go(func() {
			a, err := w.client(w.agent, token).Call(t.Context(), client.Own, "fx_slow", json.RawMessage(fmt.Sprintf(`{"n":"%d"}`, i)))
			if err != nil || a.Result == nil {
				t.Errorf("a running call was cut off: %v %+v", err, a)
			}
		})
	}
	for _, revision := range revisions {
		// One client with a stream that stands open, and one that is busy besides.
		listening := &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {}}
		w.connect(token, revision, listening)
		cs, err := w.dial(token, revision, listening, 5) // as clients do by default: the end of a standing stream is no disaster to them
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cs.Close() })
		calls.Go(func() {
			if r, err := callTool(t.Context(), cs, "fx_slow", map[string]any{"n": revision}); err != nil || r.IsError {
				t.Errorf("a running call of %s was cut off: %v %+v", revision, err, r)
			}
		})
	}
	eventually(t, 5*time.Second, "all calls run", func() bool {
		n := 0
		done.Range(func(any, any) bool { n++; return true })
		return n == callers+len(revisions)
	})
	within(t, 5*time.Second, "the end", func() { // less than the time after which calls would be cut off
		if err := w.signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	})
	calls.Wait()
	if report := p.verify(t); len(report.Unknown) > 0 {
		t.Errorf("unknown: %v", report.Unknown)
	}
	w = launch(t, p)
	ok := 0
	for _, e := range w.entries() {
		if e.Kind == "outcome" {
			if ok++; e.Decision != "ok" {
				t.Errorf("the outcome of %s is %s: %s", e.CallID, e.Decision, e.Reason)
			}
		}
	}
	if ok != callers+len(revisions) {
		t.Errorf("%d outcomes", ok)
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
}

// From POST to the last effect: an upstream ticks while a call runs and until it learns that the call was cancelled, and many callers
// start new calls all the time.
func TestKillToLastEffect(t *testing.T) {
	var effects, others atomic.Int64 // unix nanoseconds of the newest
	s := newServer("ticking")
	tick := func(name string, newest *atomic.Int64, d time.Duration) {
		tool(s, name, "Has an effect every millisecond while it runs.", func(ctx context.Context, _ json.RawMessage) (*mcp.CallToolResult, error) {
			end := time.After(d)
			for {
				newest.Store(time.Now().UnixNano())
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-end:
					return text("done"), nil
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
	tick("long", &effects, 20*time.Second)
	tick("short", &effects, 0)
	tick("other", &others, 0)
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	p := newPlace(t, fmt.Sprintf("upstreams: {fx: {url: %q}}\noperations: {fx.*: {sensitivity: none, output: trusted}}\nlimits: {calls_per_minute: 1000000, execution_budget: 10h}\n", serve(t, h)),
		declaration("tester"), declaration("other"))
	w := launch(t, p)
	token, other := w.token("tester"), w.token("other")
	for _, scope := range []string{"tester", ""} {
		t.Run("scope "+scope, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var callers sync.WaitGroup
			var skipped, ran atomic.Int64
			call := func(token, name string, once bool) {
				callers.Go(func() {
					c := w.client(w.agent, token)
					for ctx.Err() == nil {
						a, err := c.Call(ctx, client.Own, name, nil)
						switch {
						case err != nil:
							if ctx.Err() == nil {
								t.Error(err)
							}
							return
						case a.Verdict.Code == "kill_switch.active":
							if a.Result != nil || a.Verdict.Status != "SKIPPED" || a.Verdict.Reason != "KILL_SWITCH_ACTIVE" {
								t.Errorf("%+v", a)
							}
							skipped.Add(1)
						default:
							ran.Add(1)
						}
						if once {
							return
						}
					}
				})
			}
			for range 8 {
				call(token, "fx_long", true)
				call(token, "fx_short", false)
			}
			call(other, "fx_other", false)
			eventually(t, 10*time.Second, "calls run", func() bool { return ran.Load() > 20 })
			posted := time.Now()
			status, err := w.root.Kill(t.Context(), scope, "measure")
			returned := time.Now()
			if err != nil {
				t.Fatal(err)
			}
			if scope == "" && !status.Global.Active || scope != "" && !status.Agents[scope].Active {
				t.Errorf("%+v", status)
			}
			bound := slack(300 * time.Millisecond)
			time.Sleep(bound + 500*time.Millisecond) // long enough for an effect that should not be
			last := time.Unix(0, effects.Load())
			t.Logf("from POST to the answer %s, to the last effect %s; %d calls had run, %d were skipped",
				returned.Sub(posted).Round(10*time.Microsecond), last.Sub(posted).Round(10*time.Microsecond), ran.Load(), skipped.Load())
			if last.Sub(posted) > bound {
				t.Errorf("the last effect came %s after the POST", last.Sub(posted))
			}
			if otherRuns := time.Unix(0, others.Load()).After(returned.Add(bound)); otherRuns != (scope != "") {
				t.Errorf("the other agent runs: %v", otherRuns)
			}
			cancel()
			callers.Wait()
			if _, err := w.root.Unkill(t.Context(), scope, "measured"); err != nil {
				t.Fatal(err)
			}
			eventually(t, 5*time.Second, "a call after unkill", func() bool { // the outcomes of what was stopped are written behind the answers
				a, err := w.client(w.agent, token).Call(t.Context(), client.Own, "fx_short", nil)
				return err == nil && a.Result != nil
			})
		})
	}
	// The record has every switch, and every call that was stopped.
	switches := 0
	for _, e := range w.entries() {
		if strings.HasPrefix(e.Action, "kill.") {
			switches++
			if !strings.HasPrefix(e.Actor, "person:") || e.Reason == "" {
				t.Errorf("%+v", e)
			}
		}
	}
	if switches != 4 {
		t.Errorf("%d switches in the record", switches)
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	if report := p.verify(t); len(report.Unknown) > 0 {
		t.Errorf("unknown: %v", report.Unknown)
	}
}
