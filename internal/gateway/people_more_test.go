package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/policy"
)

// A person who thinks again changes the arguments once more: the agent that comes back with its first call is told of the newest ones.
func TestModifiedTwice(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	id := w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, ""))
	q2 := w.mustModify("bob", id, `{"x":2}`)
	q3 := w.mustModify("carol", q2.ID, `{"x":3}`)
	for _, old := range []string{`{"x":2}`, `{"x":1}`} {
		a := w.do(p, "slack_publish", old, "")
		if a.Verdict.Code != fault.ApprovalMismatch || a.Verdict.ApprovalID == nil || *a.Verdict.ApprovalID != q3.ID || !strings.Contains(a.Verdict.Remedies[0].Text, `{"x":3}`) {
			t.Errorf("with %s the agent is told %+v", old, a.Verdict)
		}
	}
	w.mustRespond("bob", q3.ID, approval.Approve, "")
	w.mustPermit(w.do(p, "slack_publish", `{"x":3}`, ""))
}

// The tier says from where a person decides on what could be left to rules: HIGH never could (HI-2).
func TestAskFromCriticalLeavesHighToAPerson(t *testing.T) {
	w := newPeopleWorld(t, func(o *gateway.Options) {
		d, _ := o.Agents.Get("worker")
		d.TrustTier = "bold"
		o.Tiers["bold"] = gateway.Tier{AskFrom: policy.Critical}
	})
	p := w.open("worker", "erin", widgets)
	w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	if d := w.mustDeclare(p, "comm.send", `{"url":"https://example.com/2"}`, fault.Ask); d.ApprovalID == "" {
		t.Errorf("HIGH is approved by rule: %+v", d)
	}
}

// What was asked for by a step of the sealed plan can't be changed: the plan has no other step that could be called then.
func TestModifyAStepOfThePlan(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("planner", "erin", widgets)
	w.submit(p, `[{"tool":"comm_send","arguments":`+getPage+`,"justification":"widget prices of the supplier"}]`)
	id := w.mustAsk(w.do(p, "comm_send", getPage, ""))
	if _, err := w.modify("bob", id, `{"url":"https://example.com/other"}`, "there"); !fault.Is(err, fault.Conflict) || w.question(id).State != approval.Pending {
		t.Errorf("%v, and it is %s", err, w.question(id).State)
	}
}

// Asking whether the answer is there tells nobody anything new.
func TestWordsForWhatAPersonMustAnswer(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	h := w.hold(p, "slack_mail", `{"to":"3"}`, 0)
	id := h.waits().ApprovalID
	w.mustRespond("bob", id, approval.Deferral, "")
	if a := h.ends(); strings.Contains(a.Verdict.Reason, "unless a person stops it") {
		t.Errorf("put off, and the agent is told %q", a.Verdict.Reason)
	}
	q := w.mustModify("bob", id, `{"to":"4"}`)
	if a := w.do(p, "slack_mail", string(q.Arguments), ""); strings.Contains(a.Verdict.Reason, "unless a person stops it") {
		t.Errorf("a person must answer, and the agent is told %q", a.Verdict.Reason)
	}
}

// Quarantine stops what is held at once, as the kill switch and the session's end do.
func TestQuarantineEndsHeldCalls(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	h := w.hold(p, "slack_publish", `{}`, time.Hour)
	h.waits()
	w.quarantine("worker")
	select {
	case a := <-h.answer:
		w.mustRefuse(a, fault.AgentQuarantined)
	case <-time.After(10 * time.Second):
		t.Error("the call of a quarantined agent stays held for an hour")
		h.hangUp()
		h.ends()
	}
}

// People are told of a session that opens, and of labels that rise.
func TestWatchSessions(t *testing.T) {
	w := newPeopleWorld(t)
	changes, end := w.g.Watch()
	defer end()
	seen := func(id string) bool {
		for {
			select {
			case c := <-changes:
				if c.Topic == gateway.SessionChanged && c.ID == id {
					return true
				}
			default:
				return false
			}
		}
	}
	p := w.open("worker", "erin", widgets)
	if !seen(p.ID) {
		t.Error("nobody is told of a new session")
	}
	w.mustPermit(w.do(p, "search_email", `{"q":"x"}`, ""))
	if !seen(p.ID) {
		t.Error("nobody is told that its labels rose")
	}
}

// What is asked about a definition that is no more is void: nobody is asked to answer it, and no yes to it is taken.
func TestQuestionAboutAnotherDefinition(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	id := w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, ""))
	changed := definition("slack", "publish", "Now it publishes elsewhere.")
	w.offerAll(w.g, changed)
	if err := w.g.Catalogue().AcceptTool(t.Context(), "slack.publish", changed.Hash, "person:alice"); err != nil {
		t.Fatal(err)
	}
	w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, ""))
	waiting, err := w.g.Desk().Questions(t.Context(), approval.Pending, "", "", 10)
	if err != nil || len(waiting) != 1 {
		t.Errorf("%d questions about one call wait, %v", len(waiting), err)
	}
	if err := w.respond("bob", &id, approval.Approve, ""); err == nil {
		t.Error("a yes to the definition that is gone is taken")
	}
}

// Who finds the question that another call has just asked changes nothing, and nobody is told.
func TestKeptTwinIsNoChange(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	changes, end := w.g.Watch()
	defer end()
	const calls = 8
	done := make(chan gateway.Answer, calls)
	for range calls {
		go func() { done <- w.do(p, "slack_publish", `{"x":1}`, "") }()
	}
	for range calls {
		w.mustAsk(<-done)
	}
	n := 0
	for len(changes) > 0 {
		if c := <-changes; c.Topic == gateway.ApprovalChanged {
			n++
		}
	}
	if n != 1 {
		t.Errorf("people were told %d times of one question", n)
	}
}

var _ = json.RawMessage(nil)
