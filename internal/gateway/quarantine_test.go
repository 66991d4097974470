package gateway_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/judge"
)

// Each rule puts an agent in quarantine at its number within an hour, and begins anew once a person restored it. What agents read, what is refused, and runs that
// end by nobody's fault count for none.
func TestRulesOfQuarantine(t *testing.T) {
	searches := func(w *breakerWorld, words string) {
		w.g.Call(t.Context(), gateway.Request{Principal: as("worker"), Method: "tools/call", Tool: "web_search", Arguments: json.RawMessage(`{"q":"` + words + `"}`), Door: "mcp"})
	}
	run := func(status string, code fault.Code) func(*breakerWorld) {
		return func(w *breakerWorld) { w.g.RunEnded(t.Context(), "worker", status, code) }
	}
	for name, c := range map[string]struct {
		rules  gateway.Quarantine
		screen judge.Screening
		by     string // "": by none
		does   func(*breakerWorld)
	}{
		"failed runs":                   {gateway.Quarantine{FailedRuns: 3}, "", gateway.ByFailedRuns, run("failed", fault.UpstreamFailed)},
		"timed out":                     {gateway.Quarantine{FailedRuns: 3}, "", gateway.ByFailedRuns, run("timeout", "")},
		"invalid outputs":               {gateway.Quarantine{InvalidOutputs: 3}, "", gateway.ByInvalidOutputs, run("invalid", fault.OutputInvalid)},
		"invalid outputs fail no run":   {gateway.Quarantine{FailedRuns: 3}, "", "", run("invalid", fault.OutputInvalid)},
		"stopped runs":                  {gateway.Quarantine{FailedRuns: 1, InvalidOutputs: 1}, "", "", run("cancelled", "")},
		"runs that a breaker refused":   {gateway.Quarantine{FailedRuns: 1, InvalidOutputs: 1}, "", "", run("failed", fault.BreakerOpen)},
		"hits in arguments, asked":      {gateway.Quarantine{HitsWritten: 3}, judge.ScreenAsk, gateway.ByHitsWritten, func(w *breakerWorld) { searches(w, ordersAgent) }},
		"hits in arguments, refused":    {gateway.Quarantine{HitsWritten: 3}, judge.ScreenDeny, gateway.ByHitsWritten, func(w *breakerWorld) { searches(w, ordersAgent) }},
		"hits in arguments, noted":      {gateway.Quarantine{HitsWritten: 3}, judge.ScreenObserve, gateway.ByHitsWritten, func(w *breakerWorld) { searches(w, ordersAgent) }},
		"hits without a rule":           {gateway.Quarantine{FailedRuns: 1}, judge.ScreenDeny, "", func(w *breakerWorld) { searches(w, ordersAgent) }},
		"refusals":                      {gateway.Quarantine{HitsWritten: 1, FailedRuns: 1}, "", "", func(w *breakerWorld) { w.call("worker", "nothing") }},
		"hits in what the agent reads":  {gateway.Quarantine{HitsWritten: 1}, "", "", func(w *breakerWorld) { w.call("worker", "think") }},
		"openings of its own breaker":   {gateway.Quarantine{BreakerOpenings: 1}, "", "", run("timeout", "")}, // three failures open none
		"a rule that needs one of them": {gateway.Quarantine{InvalidOutputs: 1}, "", gateway.ByInvalidOutputs, run("invalid", "")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newBreakerWorld(t, screened(t, func(o *gateway.Options) { o.Quarantine, o.Settings.HitInArguments = c.rules, c.screen }))
			w.up.answers["docs.think"] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
				return json.RawMessage(`{"content":[{"type":"text","text":"` + ordersAgent + `"}]}`), nil
			}
			needed := max(c.rules.FailedRuns, c.rules.InvalidOutputs, c.rules.HitsWritten, 3)
			if c.rules.InvalidOutputs == 1 {
				needed = 1
			}
			for round := range 2 {
				for range needed - 1 {
					c.does(w)
				}
				if q, is := w.g.Standing().Quarantined("worker"); is && c.by != "" {
					t.Fatalf("round %d: too early: %+v", round, q)
				}
				c.does(w)
				q, is := w.g.Standing().Quarantined("worker")
				if is != (c.by != "") || q.By != c.by || is && !strings.Contains(q.Reason, "within an hour") {
					t.Fatalf("round %d: %v %+v", round, is, q)
				}
				if !is {
					return
				}
				if err := w.g.Standing().Restore(t.Context(), "worker", "fine", "person:admin"); err != nil {
					t.Fatal(err)
				}
				w.pass(time.Minute)
				for _, b := range w.g.Breakers() {
					_ = w.g.ResetBreaker(t.Context(), b.Name, "fine", "person:admin")
				}
			}
		})
	}
}

// What was counted follows from the log, over a restart; what is over an hour old does not count.
func TestConductFollowsFromTheLog(t *testing.T) {
	w := newBreakerWorld(t, screened(t, func(o *gateway.Options) { o.Quarantine.HitsWritten, o.Settings.HitInArguments = 3, judge.ScreenDeny }))
	hit := func() bool {
		w.g.Call(t.Context(), gateway.Request{Principal: as("worker"), Method: "tools/call", Tool: "think", Arguments: json.RawMessage(`{"q":"` + ordersAgent + `"}`), Door: "mcp"})
		_, is := w.g.Standing().Quarantined("worker")
		return is
	}
	again := func() {
		w.end()
		w.start()
		w.offer("docs", definition("docs", "think", "A tool."))
	}
	hit()
	again()
	if hit() {
		t.Fatal("too early")
	}
	again()
	if !hit() {
		t.Error("a restart forgets")
	}
	again()
	if err := w.g.Standing().Restore(t.Context(), "worker", "fine", "person:admin"); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"what led to a quarantine", "what is over an hour old"} {
		for range 2 {
			if hit() {
				t.Errorf("%s counts", what)
			}
		}
		w.pass(61 * time.Minute)
	}
	for range 2 {
		hit()
	}
	if !hit() {
		t.Error("it counts no more")
	}
}
