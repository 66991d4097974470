package gateway_test

import (
	"strings"
	"testing"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/fault"
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
