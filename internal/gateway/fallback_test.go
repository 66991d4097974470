package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/gateway/gatewaytest"
	"sallyport.example/internal/policy"
	"sallyport.example/provenance"
)

// spareWorld has the servers main and spare, and the one takes the calls that the other failed. look reads, put writes, pay is of risk HIGH; audit goes
// outside, and secret is of risk HIGH, at the spare server alone.
func spareWorld(t *testing.T) *commWorld {
	w := newCommWorld(t, func(o *gateway.Options) {
		o.Fallbacks = map[string]string{"main": "spare"}
		both := strings.NewReplacer(`"docs.*"`, `"docs.*", "main.*", "spare.*"`, `"slack.*"`, `"main.put", "spare.put"`).Replace(declaration)
		o.Agents = gatewaytest.Options(t, fmt.Sprintf(both, "worker", "execution", "host"), fmt.Sprintf(strings.Replace(both, `, "spare.*"`, "", 1), "narrow", "execution", "host")).Agents
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			if server != "main" && server != "spare" {
				return inner(server, tool)
			}
			c := catalogue.Classification{Listed: true, Named: true, Output: provenance.TrustedOutput, Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Read}}
			switch {
			case tool == "put":
				c.Flow.Effect, c.Level = flow.Write, 2
			case tool == "pay", tool == "secret" && server == "spare":
				c.RiskFloor = policy.High
			case tool == "audit" && server == "spare":
				c.Flow.Sensitivity = flow.External
			}
			return c
		}
	})
	for _, server := range []string{"main", "spare"} {
		var defs []call.Definition
		for _, tool := range []string{"look", "put", "pay", "audit", "secret"} {
			defs = append(defs, definition(server, tool, "The tool "+tool+" of "+server+"."))
		}
		if server == "main" {
			defs = append(defs, definition(server, "alone", "No other server has it."))
		}
		w.offer(server, defs...)
	}
	return w
}

// fails makes a server's tool fail so, and counts its calls; nil: it answers.
func (w *commWorld) fails(operation string, err error) *int {
	n := 0
	server, _, _ := strings.Cut(operation, ".")
	w.up.mu.Lock()
	defer w.up.mu.Unlock()
	w.up.answers[operation] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
		if n++; err != nil {
			return nil, err
		}
		return text("from " + server), nil
	}
	return &n
}

func TestAServerTakesTheCallsOfAnother(t *testing.T) {
	for name, c := range map[string]struct {
		tool        string
		main, spare error
		want        string // a code, or the server whose answer comes
		mains, n    int    // how often each was called
	}{
		"nothing fails":                  {"look", nil, nil, "main", 1, 0},
		"a read that can't be sent":      {"look", errDown, nil, "spare", 1, 1},
		"a read that hung":               {"look", errHung, nil, "spare", 1, 1},
		"both fail":                      {"look", errHung, errDown, "fallback.failed", 1, 1},
		"the other would need a person":  {"secret", nil, nil, "approval.required", 0, 0},
		"a read of what has no fallback": {"alone", errDown, nil, "upstream.failed", 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := spareWorld(t)
			p := w.open("worker", "erin", widgets)
			mains, n := w.fails("main."+c.tool, c.main), w.fails("spare."+c.tool, c.spare)
			a := w.do(p, "main_"+c.tool, `{}`, "")
			got := string(a.Verdict.Code)
			if a.Result != nil {
				_, got, _ = strings.Cut(string(a.Result), "from ")
				got, _, _ = strings.Cut(got, `"`)
			}
			if got != c.want || *mains != c.mains || *n != c.n {
				t.Fatalf("%s after %d and %d calls: %+v", got, *mains, *n, a.Verdict)
			}
			var intents []audit.Entry
			for _, e := range w.entries() {
				if e.Kind == audit.Intent {
					intents = append(intents, e)
				}
			}
			if len(intents) != c.mains+c.n {
				t.Fatalf("%d intents", len(intents))
			}
			if c.n == 0 {
				return
			}
			if of, _ := call.GetText(intents[1].Detail, "fallback_of"); of != intents[0].CallID || intents[1].Operation != "spare."+c.tool {
				t.Errorf("%+v", intents[1])
			}
			if why := a.Verdict.Because; len(why) == 0 || why[0].CallID != intents[0].CallID || c.want == "fallback.failed" && (len(why) != 2 || why[1].CallID != intents[1].CallID) {
				t.Errorf("%+v", a.Verdict)
			}
			if a.Result != nil && !strings.Contains(a.Verdict.Reason, "spare_"+c.tool+" served the call") {
				t.Errorf("%q", a.Verdict.Reason)
			}
		})
	}
}

// What the other server's operation may not do is refused before anything is sent.
func TestTheStricterOfTwoServersDecides(t *testing.T) {
	w := spareWorld(t)
	p := w.open("worker", "erin", widgets)
	w.mustPermit(w.do(p, "search_email", `{}`, "")) // internal from now on
	mains, n := w.fails("main.audit", errDown), w.fails("spare.audit", nil)
	a := w.mustRefuse(w.do(p, "main_audit", `{}`, ""), fault.FlowContaminated)
	if *mains+*n > 0 || !strings.Contains(a.Verdict.Reason, "Its fallback spare.audit may not be made") {
		t.Errorf("%d and %d calls: %+v", *mains, *n, a.Verdict)
	}
	mains, n = w.fails("main.look", errDown), w.fails("spare.look", nil)
	w.mustRefuse(w.do(w.open("narrow", "erin", widgets), "main_look", `{}`, ""), fault.PermissionDenied)
	if *mains+*n > 0 {
		t.Errorf("%d and %d calls", *mains, *n)
	}
}

// A write is sent to another server only where it certainly did not reach its own.
func TestAWriteFallsBackUnsent(t *testing.T) {
	for name, c := range map[string]struct {
		fails error
		n     int
	}{"unsent": {errDown, 1}, "unsent by the agent's own doing": {&fault.NotDispatched{Err: fault.New(fault.UpstreamFailed, "Gone."), Own: true}, 1}, "nobody knows": {errHung, 0}} {
		t.Run(name, func(t *testing.T) {
			w := spareWorld(t)
			n := w.fails("spare.put", nil)
			w.fails("main.put", c.fails)
			a := w.do(w.open("worker", "erin", widgets), "main_put", `{"q":"x"}`, "")
			if *n != c.n || (a.Result != nil) != (c.n > 0) {
				t.Errorf("%d calls of the other server: %+v", *n, a.Verdict)
			}
		})
	}
}

// An open breaker is a failure before anything is sent. An agent's own breaker is in the way of both.
func TestABreakerSendsToTheFallback(t *testing.T) {
	w := spareWorld(t)
	p := w.open("worker", "erin", widgets)
	mains, n := w.fails("main.look", errDown), w.fails("spare.look", nil)
	for range 7 {
		w.mustPermit(w.do(p, "main_look", `{}`, ""))
	}
	if *mains != 5 || *n != 7 {
		t.Errorf("%d and %d calls", *mains, *n)
	}
	if v := judgedOnly(w, p, "main_look", `{}`); v.Decision != fault.Permit {
		t.Errorf("a check: %+v", v)
	}
	for range 5 {
		w.g.RunEnded(t.Context(), "worker", "timeout", "")
	}
	if a := w.mustRefuse(w.do(p, "main_look", `{}`, ""), fault.BreakerOpen); *n != 7 || len(a.Verdict.Because) > 0 {
		t.Errorf("%d calls: %+v", *n, a.Verdict)
	}
}

func (w *commWorld) mustDo(err error) {
	if err != nil {
		w.t.Error(err)
	}
}

// replaced has a server offer another definition of a tool, which a person accepts.
func (w *commWorld) replaced(server, tool string) {
	d := definition(server, tool, "Another.")
	w.mustDo(w.g.Catalogue().UpdateDefinitions(w.t.Context(), server, []call.Definition{d}))
	w.mustDo(w.g.Catalogue().AcceptTool(w.t.Context(), server+"."+tool, d.Hash, "person:alice"))
}

// A person's yes holds for the fallback that was shown, and for no other.
func TestAnApprovedCallFallsBackAsShown(t *testing.T) {
	for name, c := range map[string]struct {
		between func(w *commWorld) // while the first server has the call
		again   bool
	}{
		"as shown":                 {func(*commWorld) {}, false},
		"its server lists nothing": {func(w *commWorld) {}, false},
		"another definition":       {func(w *commWorld) { w.replaced("spare", "pay") }, true},
		"stopped, and let go": {func(w *commWorld) {
			w.g.Standing().Disable("worker", "person:alice", "stop")
			w.g.Standing().Enable("worker", "person:alice", "go on")
		}, true},
		"stopped":     {func(w *commWorld) { w.g.Standing().Disable("worker", "person:alice", "stop") }, true},
		"quarantined": {func(w *commWorld) { w.quarantine("worker") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := spareWorld(t)
			p := w.open("worker", "erin", widgets)
			n := w.fails("spare.pay", nil)
			w.up.answers["main.pay"] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
				c.between(w)
				return nil, errDown
			}
			id, want := w.mustAsk(w.do(p, "main_pay", `{}`, "")), 2
			if name == "its server lists nothing" {
				want, w.up.list = 1, func(server string) error {
					if server == "main" {
						return errDown
					}
					return nil
				}
			}
			q, err := w.g.Desk().Question(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			spare := w.g.Catalogue().ByID("spare.pay").Hash
			if !slices.ContainsFunc(q.Reasons, func(r approval.Reason) bool {
				return r.Code == "fallback" && strings.Contains(r.Text, "spare.pay") && strings.Contains(r.Text, "The tool pay of spare.") && strings.Contains(r.Text, spare)
			}) {
				t.Errorf("people see no fallback: %+v", q.Reasons)
			}
			w.mustRespond("bob", id, approval.Approve, "")
			a := w.do(p, "main_pay", `{}`, "")
			if (*n == 0) != c.again || (a.Result == nil) != c.again {
				t.Errorf("%d calls of the other server: %+v", *n, a.Verdict)
			}
			if name == "another definition" {
				w.mustAsk(a)
			}
			if c.again {
				return
			}
			intents := 0
			for _, e := range w.entries() {
				if e.Kind == audit.Intent {
					if intents++; fmt.Sprint(e.Approvers) == "[]" {
						t.Errorf("nobody is said to have approved %s", e.Operation)
					}
				}
			}
			if w.mustAsk(w.do(p, "main_pay", `{}`, "")); intents != want {
				t.Errorf("%d intents", intents)
			}
		})
	}
}
