package gateway_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/policy"
	"sallyport.example/provenance"
)

// newOnceWorld has a server that no entry names, whose tools may be called once a person has said so.
func newOnceWorld(t testing.TB, tweak ...func(*gateway.Options)) *commWorld {
	t.Helper()
	w := newCommWorld(t, append([]func(*gateway.Options){func(o *gateway.Options) {
		o.Unlisted, o.AskOnce, o.Limits.MediumDelay, o.Limits.CallsPerMinute = catalogue.Active, true, delay, 0
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if server == "shy" { // what the declaration permits, and no more
				c.Flow.Effect, c.Level, c.Output, c.Flow.Untrusted = flow.Read, 0, provenance.TrustedOutput, false
				if tool == "risky" {
					c.RiskFloor = policy.Medium
				}
			}
			return c
		}
	}}, tweak...)...)
	w.offer("shy", definition("shy", "look", "New."), definition("shy", "peek", "New."), definition("shy", "risky", "New."))
	return w
}

// says yes, and makes the call.
func (w *commWorld) agreed(p identity.Principal, tool, arguments string) string {
	w.t.Helper()
	id := w.mustAsk(w.do(p, tool, arguments, ""))
	w.mustRespond("bob", id, approval.Approve, "")
	w.mustPermit(w.do(p, tool, arguments, ""))
	return id
}

func once(q desk.Question) bool {
	return slices.ContainsFunc(q.Reasons, func(r approval.Reason) bool {
		return r.Code == "permit.session" && strings.Contains(r.Text, "further calls of this tool in this session")
	})
}

// One yes covers the later calls of the operation in the session, and is on record with each; check and validate-plan say the same.
func TestAskOnce(t *testing.T) {
	w := newOnceWorld(t)
	p := w.open("worker", "erin", widgets)
	check := func(tool string, want fault.Decision) {
		t.Helper()
		a := w.g.Call(t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: tool, Arguments: json.RawMessage(`{"at":"z"}`), Door: "mcp", DryRun: true})
		if a.Verdict.Decision != want {
			t.Errorf("check of %s: %+v", tool, a.Verdict)
		}
	}
	check("shy_look", fault.Ask)
	id := w.mustAsk(w.do(p, "shy_look", `{"at":"x"}`, ""))
	if q := w.question(id); !once(q) || q.Needed != 1 || !q.SilenceAt.IsZero() {
		t.Errorf("%+v", q.Approval)
	}
	w.mustRespond("bob", id, approval.Approve, "")
	w.mustAsk(w.do(p, "shy_look", `{"at":"y"}`, "")) // a yes that was not used is for its own call
	w.mustPermit(w.do(p, "shy_look", `{"at":"x"}`, ""))
	check("shy_look", fault.Permit)
	a := w.mustPermit(w.do(p, "shy_look", `{"at":"y"}`, ""))
	es := w.entriesOf(a.CallID)
	i := slices.IndexFunc(es, func(e audit.Entry) bool { return e.Kind == audit.Intent })
	var detail struct {
		By string `json:"covered_by"`
	}
	if i < 0 || json.Unmarshal(es[i].Detail, &detail) != nil || detail.By != id {
		t.Errorf("on record: %+v", es)
	}
	if plan := w.submit(p, `[{"tool":"shy_look","arguments":{"at":"q"},"justification":"to look at widgets"}]`); plan.Steps[0].Verdict.Decision != fault.Permit {
		t.Errorf("%+v", plan)
	}
	check("shy_peek", fault.Ask) // another operation
	w.mustAsk(w.do(p, "shy_peek", `{"at":"x"}`, ""))
	w.restart()
	w.offer("shy", definition("shy", "look", "New."), definition("shy", "peek", "New."), definition("shy", "risky", "New."))
	w.mustPermit(w.do(p, "shy_look", `{"at":"again"}`, ""))
}

// What the yes does not cover: another session, another definition, a plain ask, a no, a person who may no longer answer, other stages.
func TestAskOnceCoversNoMore(t *testing.T) {
	t.Run("another session", func(t *testing.T) {
		w := newOnceWorld(t)
		w.agreed(w.open("worker", "erin", widgets), "shy_look", `{}`)
		w.mustAsk(w.do(w.open("worker", "erin", widgets), "shy_look", `{}`, ""))
	})
	t.Run("another definition", func(t *testing.T) {
		w := newOnceWorld(t)
		p := w.open("worker", "erin", widgets)
		w.agreed(p, "shy_look", `{}`)
		d := definition("shy", "look", "Newer.")
		w.offer("shy", d)
		w.mustRefuse(w.do(p, "shy_look", `{}`, ""), fault.ToolQuarantined)
		if err := w.g.Catalogue().AcceptTool(t.Context(), "shy.look", d.Hash, "person:alice"); err != nil {
			t.Fatal(err)
		}
		if q := w.question(w.mustAsk(w.do(p, "shy_look", `{}`, ""))); !once(q) {
			t.Errorf("%+v", q.Reasons)
		}
	})
	t.Run("plain ask", func(t *testing.T) {
		w := newOnceWorld(t, func(o *gateway.Options) { o.AskOnce = false })
		p := w.open("worker", "erin", widgets)
		if q := w.question(w.agreed(p, "shy_look", `{"at":"x"}`)); once(q) {
			t.Errorf("%+v", q.Reasons)
		}
		w.mustAsk(w.do(p, "shy_look", `{"at":"y"}`, ""))
	})
	t.Run("asked plainly, before", func(t *testing.T) { // the person was not told that it covers more
		w := newOnceWorld(t, func(o *gateway.Options) { o.AskOnce = false })
		p := w.open("worker", "erin", widgets)
		w.agreed(p, "shy_look", `{"at":"x"}`)
		w.restart(func(o *gateway.Options) { o.AskOnce = true })
		w.offer("shy", definition("shy", "look", "New."))
		w.mustAsk(w.do(p, "shy_look", `{"at":"y"}`, ""))
	})
	t.Run("a no", func(t *testing.T) {
		w := newOnceWorld(t)
		p := w.open("worker", "erin", widgets)
		w.mustRespond("bob", w.mustAsk(w.do(p, "shy_look", `{"at":"x"}`, "")), approval.Reject, "no")
		w.mustAsk(w.do(p, "shy_look", `{"at":"y"}`, ""))
	})
	t.Run("a person who lost the role", func(t *testing.T) {
		gone := false
		w := newOnceWorld(t, func(o *gateway.Options) {
			inner := o.Voter
			o.Voter = func(p string) (approval.Voter, bool) {
				if gone && p == "bob" {
					return approval.Voter{}, false
				}
				return inner(p)
			}
		})
		p := w.open("worker", "erin", widgets)
		w.agreed(p, "shy_look", `{"at":"x"}`)
		gone = true
		w.mustAsk(w.do(p, "shy_look", `{"at":"y"}`, ""))
	})
	t.Run("a risk", func(t *testing.T) { // silence permits nothing of what nobody named
		w := newOnceWorld(t)
		p := w.open("worker", "erin", widgets)
		w.agreed(p, "shy_risky", `{"at":"x"}`)
		q := w.question(w.mustAsk(w.do(p, "shy_risky", `{"at":"y"}`, "")))
		if !q.SilenceAt.IsZero() || once(q) || !slices.ContainsFunc(q.Reasons, func(r approval.Reason) bool {
			return r.Stage == "risk" && strings.Contains(r.Text, "no entry of the configuration names it")
		}) {
			t.Errorf("%+v", q.Approval)
		}
	})
	t.Run("a label", func(t *testing.T) {
		w := newOnceWorld(t)
		p := w.open("worker", "erin", widgets)
		w.agreed(p, "shy_look", `{"at":"x"}`)
		w.mustPermit(w.do(p, "search_email", `{}`, ""))
		w.mustRefuse(w.do(p, "shy_look", `{"at":"y"}`, ""), fault.FlowContaminated)
	})
	t.Run("a store that does not answer", func(t *testing.T) {
		w := newOnceWorld(t)
		p := w.open("worker", "erin", widgets)
		w.agreed(p, "shy_look", `{"at":"x"}`)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if a := w.g.Call(ctx, gateway.Request{Principal: p, Method: "tools/call", Tool: "shy_look", Arguments: json.RawMessage(`{"at":"y"}`), Door: "mcp"}); a.Verdict.Decision == fault.Permit {
			t.Errorf("%+v", a.Verdict)
		}
	})
}
