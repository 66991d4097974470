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
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/policy"
)

// What waits for people has a bound in bytes as it has one in number: lists of questions, and whoever tells people of them, read whole pages
// of it into memory.
func TestHostile4QuestionsAreBoundedInBytes(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	pad := strings.Repeat("x", 4<<20-200)
	for i := range 12 {
		a := w.do(p, "slack_publish", fmt.Sprintf(`{"n":%d,"text":%q}`, i, pad), "")
		if a.Verdict.ApprovalID == nil {
			break
		}
	}
	page, err := w.g.Questions(t.Context(), approval.Pending, p.ID, "", 500)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, q := range page {
		n += len(q.Arguments)
	}
	if n > 32<<20 {
		t.Errorf("%d questions of %d MiB wait; 500 of one agent, read as one page of 500 at each start and whenever changes were missed, are %d MiB", len(page), n>>20, n/len(page)*500>>20)
	}
}

// Nobody can stop any number of calls in the time of one silence: what is over a number that people can look at takes a yes.
func TestHostile4SilenceIsForFew(t *testing.T) {
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
			w.g.Call(ctx, gateway.Request{Principal: p, Method: "tools/call", Tool: "slack_mail", Arguments: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i)), Door: "mcp", Waiting: func(gateway.Waiting) { settle() }})
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

// A person approved an amount in the currency that was shown. Under other rules it is another amount.
func TestHostile4ApprovalIsForTheAmountThatWasShown(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	q := w.asks(p, "slack_pay", `{"sum":500,"to":"acme"}`)
	if q.Amount != "500 USD" {
		t.Fatal(q.Amount)
	}
	w.mustRespond("bob", q.ID, approval.Approve, "")
	rules, err := policy.NewRules(0, 0, "GBP", nil)
	if err != nil {
		t.Fatal(err)
	}
	w.end()
	w.o.Risk = rules
	w.start()
	w.offerAll(w.g)
	if got := w.mustAsk(w.do(p, "slack_pay", `{"sum":500,"to":"acme"}`, "")); got == q.ID {
		t.Error("asked under the old question")
	}
}

type closesFirst struct {
	gateway.Store
	before func()
}

func (c *closesFirst) AskPerson(ctx context.Context, q gateway.Ask) (approval.Approval, error) {
	if f := c.before; f != nil {
		c.before = nil
		f()
	}
	return c.Store.AskPerson(ctx, q)
}

// No question is asked for a session that is closed by the time it is written: nobody would ever withdraw it.
func TestHostile4ClosedSessionAsksNobody(t *testing.T) {
	w := newPeopleWorld(t)
	c := &closesFirst{Store: w.store}
	w.o.Store = c
	w.g = w.again(t)
	p := w.open("worker", "erin", widgets)
	c.before = func() {
		if _, err := w.g.CloseSession(t.Context(), p.ID, "person:alice", "enough"); err != nil {
			t.Error(err)
		}
	}
	w.do(p, "slack_publish", `{"x":1}`, "")
	if open, err := w.g.Questions(t.Context(), approval.Pending, p.ID, "", 10); err != nil || len(open) != 0 {
		t.Errorf("%d questions of a closed session wait for people (%v)", len(open), err)
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
