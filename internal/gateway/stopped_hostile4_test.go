package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/policy"
)

// Nothing that did not run makes a destination known: not a check, not a declaration, not a question that expired, was put aside or changed,
// and not a read.
func TestHostile4OnlyWhatRanMakesADestinationKnown(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	const to = `{"to":"mallory"}`
	first := func(after string) {
		t.Helper()
		q := w.asks(p, "slack_send", `{"to":"mallory","after":"`+after+`"}`)
		if q.Risk != "MEDIUM" || len(codes(q)) != 1 || codes(q)[0] != policy.ReasonFirstDestination {
			t.Errorf("after %s it is %s for %v", after, q.Risk, codes(q))
		}
	}
	if v := w.g.Call(t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: "slack_send", Arguments: json.RawMessage(to), Door: "http", DryRun: true}); v.Verdict.Decision != fault.Ask {
		t.Fatalf("%+v", v.Verdict)
	}
	first("a check")
	w.mustDeclare(p, "slack.send", to, fault.Permit)
	first("a declaration")
	q := w.asks(p, "slack_send", to)
	w.mustModify("bob", q.ID, `{"to":"nobody"}`)
	first("a question that was changed")
	q = w.asks(p, "slack_send", `{"to":"mallory","x":1}`)
	w.mustRespond("bob", q.ID, approval.Approve, "")
	w.clock.advance(time.Hour)
	first("an approval that expired unused")
	w.quarantine("worker")
	w.mustRefuse(w.do(p, "slack_send", to, ""), fault.AgentQuarantined)
	if err := w.g.Standing().Restore(t.Context(), "worker", "it is all right", "person:alice"); err != nil {
		t.Fatal(err)
	}
	first("a refusal")
}

// A silence permits one call of one session of one agent: those who make the same call elsewhere have to wait themselves.
func TestHostile4SilenceIsOfOneSession(t *testing.T) {
	w := newPeopleWorld(t)
	mine := w.asks(w.open("worker", "erin", widgets), "slack_mail", mailTo)
	w.clock.advance(delay)
	if w.question(mine.ID).State != approval.Approved {
		t.Fatal("set-up")
	}
	for _, agent := range []string{"worker", "selfish"} {
		other := w.asks(w.open(agent, "erin", widgets), "slack_mail", mailTo)
		if other.ID == mine.ID || other.State != approval.Pending || !other.SilenceAt.After(w.clock.now()) {
			t.Errorf("%s: %+v", agent, other.Approval)
		}
	}
	if w.sent("mail") != 0 {
		t.Error("it ran")
	}
}

// However many copies of one call wait for one silence, it is for one of them.
func TestHostile4OneSilenceForManyCopies(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	const copies = 16
	var all []*held
	for range copies {
		all = append(all, w.hold(p, "slack_mail", mailTo, 0))
	}
	for _, h := range all {
		h.waits()
	}
	w.clock.advance(delay) // once
	var done sync.WaitGroup
	for _, h := range all {
		done.Go(func() {
			select {
			case <-h.answer:
			case <-time.After(300 * time.Millisecond): // waits for a silence of its own
				h.hangUp()
				<-h.answer
			}
		})
	}
	done.Wait()
	if n := w.sent("mail"); n != 1 {
		t.Errorf("%d ran in one silence", n)
	}
}

// What was approved before an upgrade that shows people more is approved no more, whatever its row says.
func TestHostile4ApprovalOfAnotherFormDispatchesNothing(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	q := w.asks(p, "slack_publish", `{"x":1}`)
	w.mustRespond("bob", q.ID, approval.Approve, "")
	_, body := w.row(q.ID)
	w.mustOutside("UPDATE approvals SET body = ? WHERE id = ?", []byte(strings.Replace(string(body), q.Digest, strings.Repeat("0", 64), 1)), q.ID)
	if a := w.do(p, "slack_publish", `{"x":1}`, ""); a.Verdict.Decision == fault.Permit || w.sent("publish") != 0 {
		t.Errorf("%+v", a.Verdict)
	}
}

// Another approver does not bring back, as a change, what one has rejected.
func TestHostile4ModifyBringsNoRejectedCallBack(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	no := w.asks(p, "slack_pay", `{"sum":900,"to":"acme","unit":"USD"}`)
	w.mustRespond("bob", no.ID, approval.Reject, "never so much")
	q := w.asks(p, "slack_pay", `{"sum":500,"to":"acme","unit":"USD"}`)
	if _, err := w.modify("carol", q.ID, `{"sum":900,"to":"acme","unit":"USD"}`, "all of it"); !fault.Is(err, fault.ApprovalRejected) {
		t.Errorf("%v", err)
	}
	if got := w.question(q.ID).State; got != approval.Pending {
		t.Errorf("the one that was to be changed is %s", got)
	}
}

// To change arguments is no way past two people: what has become CRITICAL takes two who have said yes to just that.
func TestHostile4ModifyTakesNoVotesAlong(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	q := w.asks(p, "slack_pay", `{"sum":20000,"to":"acme","unit":"USD"}`)
	w.mustRespond("bob", q.ID, approval.Approve, "")
	next := w.mustModify("carol", q.ID, `{"sum":30000,"to":"acme","unit":"USD"}`)
	w.mustRespond("alice", next.ID, approval.Approve, "")
	if got := w.question(next.ID); got.State != approval.Pending || got.Needed != 2 || len(got.Votes) != 1 {
		t.Errorf("%+v", got.Approval)
	}
	w.mustAsk(w.do(p, "slack_pay", string(next.Arguments), ""))
	if w.sent("pay") != 0 {
		t.Error("paid")
	}
}

// What an agent is told of a question that waits names nobody, and nothing of other sessions.
func TestHostile4VerdictsNameNobody(t *testing.T) {
	w := newPeopleWorld(t)
	other := w.open("worker", "carol", widgets)
	w.asks(other, "slack_pay", `{"sum":7,"to":"secret-acquisition","unit":"USD"}`)
	p := w.open("worker", "erin", widgets)
	id := w.mustAsk(w.do(p, "slack_pay", `{"sum":20000,"to":"acme","unit":"USD"}`, ""))
	w.mustRespond("bob", id, approval.Approve, "looks fine to me")
	told := fmt.Sprintf("%+v", w.do(p, "slack_pay", `{"sum":20000,"to":"acme","unit":"USD"}`, "").Verdict)
	w.mustRespond("alice", id, approval.Reject, "too much")
	told += fmt.Sprintf("%+v", w.do(p, "slack_pay", `{"sum":20000,"to":"acme","unit":"USD"}`, "").Verdict)
	st, err := w.g.Status(t.Context(), p, "")
	if err != nil {
		t.Fatal(err)
	}
	told += fmt.Sprintf("%+v", st)
	for _, word := range []string{"alice", "bob", "carol", "looks fine", "secret-acquisition", other.ID} {
		if strings.Contains(told, word) {
			t.Errorf("the agent is told %q: %s", word, told)
		}
	}
	if !strings.Contains(told, "too much") {
		t.Error("the reason of a no does not reach the agent")
	}
}
