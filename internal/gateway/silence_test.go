package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
)

// Nobody can stop any number of calls in the time of one silence: what is over a number that people can look at takes a yes.
func TestSilencesAtOnceAreBounded(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	const calls = 60
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	settled, done := make(chan struct{}, calls), make(chan struct{}, calls)
	for i := range calls {
		go func() {
			var once sync.Once
			settle := func() { once.Do(func() { settled <- struct{}{} }) }
			w.g.Call(ctx, gateway.Request{Principal: p, Method: "tools/call", Tool: "slack_mail", Arguments: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i)), Door: "mcp", Waiting: func(desk.Waiting) { settle() }})
			settle()
			done <- struct{}{}
		}()
	}
	for range calls { // each waits, or has its answer
		<-settled
	}
	w.clock.advance(delay)
	for range calls {
		<-done
	}
	if n := w.sent("mail"); n > 20 {
		t.Errorf("%d e-mails went out in the one silence of %s that people had to stop them", n, delay)
	}
}

// The time in which people can stop a call is theirs whole, however long a busy store took to write the question.
func TestSilenceBeginsWhenTheQuestionIsWritten(t *testing.T) {
	w := newPeopleWorld(t)
	c := &closesFirst{Store: w.store}
	w.o.Store = c
	w.g = w.again(t)
	p := w.open("worker", "erin", widgets)
	c.before = func() { w.clock.advance(3 * delay) }
	q := w.asks(p, "slack_mail", mailTo)
	if q.State != approval.Pending || !q.SilenceAt.Equal(w.clock.now().Add(delay)) || !q.CreatedAt.Equal(w.clock.now()) || !q.Intact() {
		t.Errorf("at %s it is %s, asked at %s, and silence permits at %s", w.clock.now(), q.State, q.CreatedAt, q.SilenceAt)
	}
	if w.sent("mail") != 0 {
		t.Error("it ran, and nobody could have stopped it")
	}
}

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
func TestDeferredIsNotLeftToSilenceByDeclaringIt(t *testing.T) {
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
func TestDeferredAndExpiredIsNotLeftToSilence(t *testing.T) {
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
func TestModifiedOriginalIsNotLeftToSilence(t *testing.T) {
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
func TestModifiedIsNotLeftToSilenceByDeclaringIt(t *testing.T) {
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
func TestNoOutlivesTheSession(t *testing.T) {
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
func TestNoHoldsForACallThatDiffersByAByte(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	q := w.asks(p, "slack_mail", mailTo)
	w.mustRespond("bob", q.ID, approval.Reject, "never to them")
	if w.silentlyRuns(p, "slack_mail", `{"text":"hi.","to":"a@example.com"}`, "") {
		t.Error("ran by silence right after a no to the same but for a byte")
	}
}

// A no holds for the like that waits for silence already: silence permits it no more, and a person is asked.
func TestNoHoldsForWhatWaitsForSilence(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	waits := w.asks(p, "slack_mail", mailTo)
	other := w.asks(p, "slack_mail", `{"text":"hi.","to":"a@example.com"}`)
	w.mustRespond("bob", other.ID, approval.Reject, "never to them")
	w.clock.advance(delay)
	a := w.do(p, "slack_mail", mailTo, "")
	if id := w.mustAsk(a); id == waits.ID || !w.question(id).SilenceAt.IsZero() {
		t.Errorf("it is left to silence after a no to the like: %+v", a.Verdict)
	}
}

// Nobody could object while the gateway was down: that is no silence.
func TestTimeWhileTheGatewayWasDownIsNoSilence(t *testing.T) {
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

// A silence permits one call of one session of one agent: those who make the same call elsewhere have to wait themselves.
func TestSilenceIsForOneSession(t *testing.T) {
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
func TestOneSilencePermitsOneOfManyCopies(t *testing.T) {
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
			for {
				select {
				case <-h.answer:
					return
				case x := <-h.waiting:
					if x.SilenceAt.After(w.clock.now()) { // it waits for a silence of its own
						h.hangUp()
						<-h.answer
						return
					}
				case <-time.After(10 * time.Second):
					t.Error("a copy neither runs nor waits for a silence of its own")
					h.hangUp()
				}
			}
		})
	}
	done.Wait()
	if n := w.sent("mail"); n != 1 {
		t.Errorf("%d ran in one silence", n)
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
