package gateway_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/planned"
	"sallyport.example/internal/session"
)

// moves are the moves of a session's phase on record: who, and to which phase.
func (w *world) moves(sessionID string) (all []string) {
	w.t.Helper()
	for _, e := range w.entries() {
		if e.Session != sessionID || e.Action != "session.phase" {
			continue
		}
		var d struct{ Phase string }
		if err := json.Unmarshal(e.Detail, &d); err != nil {
			w.t.Fatal(err)
		}
		if e.Kind != audit.Change || e.Event != audit.PhaseMoved {
			w.t.Errorf("%+v", e)
		}
		all = append(all, e.Actor+" "+d.Phase)
	}
	return all
}

// An agent must not open the execution phase for one thing to do another: where only a rule approved the plan that opened it, what is not in the
// plan is asked about, and what may run in planning is not. Where a person or the operator opened the phase, calls are judged by themselves.
func TestOutsideThePlanOfARule(t *testing.T) {
	const oneStep = `[{"tool":"web_search","justification":"look it up"}]`
	asked := func(a gateway.Answer) bool {
		return a.Verdict.Decision == fault.Ask && a.Verdict.ApprovalID != nil && slices.ContainsFunc(a.Verdict.Because, func(b fault.Because) bool { return b.Code == fault.PlanMismatch })
	}
	byPerson := func(w *commWorld, p identity.Principal) {
		if _, err := w.g.SetPhase(t.Context(), p.ID, session.Execution, "person:alice", "go on"); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		agent, plan string
		then        func(w *commWorld, p identity.Principal)
		asks        bool
		moves       string
	}{
		"by rule":                          {agent: "planner", plan: oneStep, asks: true, moves: "rule:plan execution"},
		"by rule, then by a person":        {agent: "planner", plan: oneStep, then: byPerson, moves: "rule:plan execution, person:alice execution"},
		"the operator's word, and a plan":  {agent: "worker", plan: oneStep},
		"the operator's word":              {agent: "worker"},
		"by a person":                      {agent: "planner", then: byPerson, moves: "person:alice execution"},
		"by a person, then a plan by rule": {agent: "planner", then: func(w *commWorld, p identity.Principal) { byPerson(w, p); w.submit(p, oneStep) }, moves: "person:alice execution"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCommWorld(t)
			p := w.open(c.agent, "erin", "What do widgets cost in 2026?")
			if c.plan != "" {
				w.submit(p, c.plan)
			}
			if c.then != nil {
				c.then(w, p)
			}
			answer, err := w.g.ValidatePlan(t.Context(), p, "", json.RawMessage(`{"planned_calls":["think",{"tool":"comm_get","arguments":{"url":"https://example.com/page"}}]}`))
			if err != nil {
				t.Fatal(err)
			}
			foreseen := answer.(planned.Report).Asks
			if (len(foreseen) > 0) != c.asks || c.asks && (foreseen[0].AtStep != 1 || foreseen[0].Needed != 1 || !strings.Contains(foreseen[0].Reason, "not in the plan that opened the execution phase")) {
				t.Errorf("validate-plan foresees %+v", foreseen)
			}
			w.mustPermit(w.do(p, "think", `{}`, ""))
			a := w.do(p, "comm_get", `{"url":"https://example.com/page",`+because+`}`, "")
			if asked(a) != c.asks || !c.asks && a.Verdict.Decision != fault.Permit {
				t.Errorf("outside the plan: %+v", a.Verdict)
			}
			if c.plan != "" {
				w.mustPermit(w.do(p, "web_search", `{"q":"widgets"}`, ""))
			}
			if moves := strings.Join(w.moves(p.ID), ", "); moves != c.moves {
				t.Errorf("on record: %q", moves)
			}
		})
	}
}

// Silence permits nothing outside the plan of a rule, and an approved call runs once.
func TestOutsideThePlanOfARuleNeedsAPerson(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("planner", "erin", "What do widgets cost in 2026?")
	w.submit(p, `[{"tool":"web_search","justification":"look it up"}]`)
	get := `{"url":"https://example.com/page",` + because + `}`
	a := w.do(p, "comm_get", get, "")
	if a.Verdict.ApprovalID == nil {
		t.Fatalf("%+v", a.Verdict)
	}
	q, err := w.g.Desk().Question(t.Context(), *a.Verdict.ApprovalID)
	if err != nil || !q.SilenceAt.IsZero() || !strings.Contains(fmt.Sprint(q.Reasons), "not in the plan that opened the execution phase") {
		t.Fatalf("%+v %v", q, err)
	}
	w.mustRespond("alice", *a.Verdict.ApprovalID, approval.Approve, "")
	w.mustPermit(w.do(p, "comm_get", get, ""))
	w.mustRefuse(w.do(p, "comm_get", get, ""), fault.ApprovalRequired)
	w.mustRefuse(w.do(p, "comm_get", `{"url":"https://example.com/other",`+because+`}`, ""), fault.ApprovalRequired)
}

// A trust tier, or the agent's declaration, can demand that a person decides on every plan.
func TestPlansWaitForAPerson(t *testing.T) {
	const oneStep = `[{"tool":"web_search","justification":"look it up"}]`
	for name, tweak := range map[string]func(*gateway.Options){
		"tier": func(o *gateway.Options) {
			tier := gateway.Tiers()[gateway.TierStandard]
			tier.PlansWait = true
			o.Tiers = map[string]gateway.Tier{gateway.TierStandard: tier}
		},
		"declaration": func(o *gateway.Options) {
			d, _ := o.Agents.Get("planner")
			d.PlanApproval = "person"
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCommWorld(t, tweak)
			p := w.open("planner", "erin", "What do widgets cost in 2026?")
			plan := w.submit(p, oneStep)
			if plan.State != session.PlanPending || plan.ApprovalID == "" || plan.Phase != session.Planning {
				t.Fatalf("%+v", plan)
			}
			w.mustRefuse(w.do(p, "web_search", `{"q":"widgets"}`, ""), fault.PhaseBlocked)
			if _, err := w.g.DecidePlan(t.Context(), p.ID, plan.Digest, true, "person:alice", ""); err != nil {
				t.Fatal(err)
			}
			w.mustPermit(w.do(p, "web_search", `{"q":"widgets"}`, ""))
			if moves := strings.Join(w.moves(p.ID), ", "); moves != "person:alice execution" {
				t.Errorf("on record: %q", moves)
			}
		})
	}
}
