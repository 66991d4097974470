package gateway_test

import (
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
)

// silentlyRuns makes the call in the end of a silence that nobody should have been left to, and tells whether it ran.
func (w *commWorld) silentlyRuns(p identity.Principal, tool, arguments, declaration string) bool {
	w.t.Helper()
	before := w.sent(strings.TrimPrefix(tool, "slack_"))
	done := make(chan gateway.Answer, 1)
	go func() { done <- w.do(p, tool, arguments, declaration) }()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		select {
		case a := <-done:
			return a.Verdict.Decision == fault.Permit || w.sent(strings.TrimPrefix(tool, "slack_")) > before
		case <-time.After(2 * time.Millisecond):
			w.clock.advance(delay)
		}
	}
	w.t.Fatal("no answer")
	return false
}

// A person has put a MEDIUM call off. The agent declares the same call and makes it with the declaration: the question that was put off is
// superseded by one that silence answers.
func TestHostile4DeferredIsNotSilencedByDeclaringIt(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	q := w.asks(p, "slack_mail", mailTo)
	w.mustRespond("bob", q.ID, approval.Deferral, "")
	d := w.mustDeclare(p, "slack.mail", mailTo, fault.Permit)
	if w.silentlyRuns(p, "slack_mail", mailTo, d.DeclarationID) {
		t.Errorf("what bob put off (now %s) ran by silence, votes %v", w.question(q.ID).State, w.question(q.ID).Votes)
	}
}

// The same without any trick: what was put off expires unanswered, which is no yes, and the next call is left to silence.
func TestHostile4DeferredAndExpiredIsNotSilenced(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	q := w.asks(p, "slack_mail", mailTo)
	w.mustRespond("bob", q.ID, approval.Deferral, "")
	w.clock.advance(31 * time.Minute)
	if got := w.question(q.ID).State; got != approval.Expired {
		t.Fatal(got)
	}
	if w.silentlyRuns(p, "slack_mail", mailTo, "") {
		t.Error("what bob put off ran by silence once his question had expired")
	}
}

// A person wants other arguments for a MEDIUM call. Once the changed question is over (here: rejected, and in the other case carried out),
// the agent makes the original call again, and silence permits what a person had corrected.
func TestHostile4ModifiedOriginalIsNotSilenced(t *testing.T) {
	for _, end := range []string{"rejected", "carried out", "expired"} {
		t.Run(end, func(t *testing.T) {
			w := newPeopleWorld(t)
			p := w.open("worker", "erin", widgets)
			q := w.asks(p, "slack_mail", mailTo)
			next := w.mustModify("bob", q.ID, `{"text":"hi","to":"b@example.com"}`)
			switch end {
			case "rejected":
				w.mustRespond("carol", next.ID, approval.Reject, "neither")
			case "expired":
				w.clock.advance(31 * time.Minute)
			default:
				w.mustRespond("carol", next.ID, approval.Approve, "")
				w.mustPermit(w.do(p, "slack_mail", string(next.Arguments), ""))
			}
			before := w.sent("mail")
			if w.silentlyRuns(p, "slack_mail", mailTo, "") {
				t.Errorf("%d original sent by silence after bob had changed its arguments", w.sent("mail")-before)
			}
		})
	}
}

// The question with the arguments that a person wants is a person's to answer. With a declaration of the same arguments the agent puts one in
// its place that silence answers.
func TestHostile4ModifiedIsNotSilencedByDeclaringIt(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	q := w.asks(p, "slack_mail", mailTo)
	next := w.mustModify("bob", q.ID, `{"text":"hi","to":"b@example.com"}`)
	d := w.mustDeclare(p, "slack.mail", string(next.Arguments), fault.Permit)
	if w.silentlyRuns(p, "slack_mail", string(next.Arguments), d.DeclarationID) {
		t.Errorf("the question that a person was to answer (now %s) was put aside, and the call ran by silence", w.question(next.ID).State)
	}
}

// A no to a MEDIUM call is for that session. Its agent opens its next session, and silence permits the very same call.
func TestHostile4NoOutlivesTheSession(t *testing.T) {
	w := newPeopleWorld(t)
	self := as("selfish")
	q := w.asks(self, "slack_mail", mailTo)
	w.mustRespond("bob", q.ID, approval.Reject, "never")
	w.mustRefuse(w.do(self, "slack_mail", mailTo, ""), fault.ApprovalRejected)
	if _, _, err := w.g.OpenSession(t.Context(), self, gateway.OpenRequest{}); err != nil {
		t.Fatal(err)
	}
	if w.silentlyRuns(self, "slack_mail", mailTo, "") {
		t.Error("the same call of the same agent ran by silence right after a no")
	}
}

// A no to a MEDIUM call, and one byte changed: silence again.
func TestHostile4NoIsNotDodgedByAByte(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	q := w.asks(p, "slack_mail", mailTo)
	w.mustRespond("bob", q.ID, approval.Reject, "never to them")
	if w.silentlyRuns(p, "slack_mail", `{"text":"hi.","to":"a@example.com"}`, "") {
		t.Error("ran by silence right after a no to the same but for a byte")
	}
}

// Nobody could object while the gateway was down: that is no silence.
func TestHostile4SilenceWhileDownIsNone(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	w.asks(p, "slack_mail", mailTo)
	w.end()
	w.clock.advance(time.Minute)
	w.start()
	w.offerAll(w.g)
	h := w.hold(p, "slack_mail", mailTo, 0)
	if x := h.waits(); !x.SilenceAt.Equal(w.clock.now().Add(delay)) {
		t.Errorf("after the restart it waits until %s, and it is %s", x.SilenceAt, w.clock.now())
	}
	h.hangUp()
	h.ends()
}
