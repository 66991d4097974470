package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/policy"
)

// Who changes the arguments asks for what is asked then: their own yes is none. Otherwise one approver pays whom they like, alone.
func TestHostile4WhoChangesArgumentsDoesNotApproveThem(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	q := w.asks(p, "slack_pay", `{"sum":5,"to":"acme","unit":"USD"}`)
	next := w.mustModify("bob", q.ID, `{"sum":9000,"to":"bobs-account","unit":"USD"}`)
	if err := w.respond("bob", &next.ID, approval.Approve, ""); err == nil {
		a := w.do(p, "slack_pay", string(next.Arguments), "")
		t.Errorf("bob alone: %s to his own account, %s; %d paid", next.Amount, a.Verdict.Decision, w.sent("pay"))
	}
}

// Of CRITICAL two people are needed who did not ask: who wrote the arguments is not one of them.
func TestHostile4WhoChangesArgumentsIsNotOneOfTwo(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	q := w.asks(p, "slack_pay", `{"sum":5,"to":"acme","unit":"USD"}`)
	next := w.mustModify("bob", q.ID, `{"sum":90000,"to":"bobs-account","unit":"USD"}`)
	w.mustRespond("alice", next.ID, approval.Approve, "")
	if err := w.respond("bob", &next.ID, approval.Approve, ""); err == nil {
		t.Errorf("%s (%s) needs bob, who wrote it, and one other", next.Amount, next.Risk)
	}
}

// What one operation has sent to a destination says nothing of another: a name that was noted is no address that was mailed.
func TestHostile4DestinationOfAnotherOperationIsNoUse(t *testing.T) {
	w := newPeopleWorld(t, func(o *gateway.Options) {
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if server == "slack" && tool == "mail" {
				c.Roles = map[string]string{"to": "destination"}
			}
			return c
		}
	})
	p := w.open("worker", "erin", widgets)
	const mallory = `{"to":"mallory@evil.example"}`
	w.is(w.asks(as("selfish"), "slack_mail", mallory), "HIGH", policy.ReasonAction, policy.ReasonFirstDestination)
	if !w.silentlyRuns(p, "slack_send", mallory, "") { // LOW, first use: MEDIUM, by silence
		t.Fatal("set-up: the first use of a LOW operation runs by silence")
	}
	if q := w.asks(p, "slack_mail", mallory); q.Risk != "HIGH" {
		t.Errorf("the first e-mail ever to mallory is %s for %v: another operation had the same word as a destination", q.Risk, codes(q))
	}
}

// A tier that asks from CRITICAL leaves HIGH to a person all the same (HI-2): it is not approved by rule, and not an internal error.
func TestHostile4TierThatAsksFromCritical(t *testing.T) {
	w := newPeopleWorld(t, func(o *gateway.Options) {
		d, _ := o.Agents.Get("worker")
		d.TrustTier = "bold"
		o.Tiers["bold"] = gateway.Tier{AskFrom: policy.Critical}
	})
	p := w.open("worker", "erin", widgets)
	d, err := w.declare(p, "comm.send", getPage)
	if err != nil || d.Verdict.Decision != fault.Ask {
		t.Errorf("a HIGH declaration is %s by rule: %+v, %v", d.State, d.Verdict, err)
	}
	if a := w.do(p, "comm_send", `{"url":"https://example.com/other",`+because+`}`, ""); a.Verdict.Code != fault.ApprovalRequired {
		t.Errorf("a HIGH call: %s %s", a.Verdict.Code, a.Verdict.Reason)
	}
}

type stuckLookUp struct {
	gateway.Store
	in chan struct{}
}

func (s *stuckLookUp) Used(ctx context.Context, key string) (bool, error) {
	close(s.in)
	<-ctx.Done()
	return false, ctx.Err()
}

// Stopping never waits for the store (docs/design.md, rule 4), not even while it is asked what was used before.
func TestHostile4KillDoesNotWaitForWhatWasUsed(t *testing.T) {
	w := newPeopleWorld(t)
	s := &stuckLookUp{Store: w.store, in: make(chan struct{})}
	w.o.Store = s
	g, err := gateway.New(t.Context(), w.o)
	if err != nil {
		t.Fatal(err)
	}
	w.offerAll(g)
	w.g = g
	p := w.open("worker", "erin", widgets)
	done := make(chan gateway.Answer, 1)
	go func() { done <- w.do(p, "slack_send", `{"to":"x"}`, "") }()
	<-s.in
	g.Standing().Disable("worker", "person:alice", "stop")
	select {
	case a := <-done:
		w.mustRefuse(a, fault.KillSwitch)
	case <-time.After(10 * time.Second):
		t.Error("the call of a killed agent hangs with the store: the look-up has no context")
	}
}

// An agent that declares one need over and over puts a new question before people each time, and never has more than one open: the bounds on
// open questions bound nothing.
func TestHostile4SupersedingLoopIsBounded(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	const tries = 300
	for range tries {
		if _, err := w.declare(p, "slack.publish", `{"x":1}`); err != nil && !fault.Is(err, fault.LimitQuota) {
			t.Fatal(err)
		}
	}
	asked := 0
	for after := ""; ; {
		page, err := w.g.Questions(t.Context(), "", p.ID, after, 100)
		if err != nil {
			t.Fatal(err)
		}
		asked += len(page)
		if len(page) < 100 {
			break
		}
		after = page[len(page)-1].ID
	}
	if asked > 100 {
		t.Errorf("%d questions about one call, each of them a message to everybody, and what anybody answered the one before is void", asked)
	}
}

// A question of before the upgrade has a digest of the old form: nobody can answer it, and so nobody should wait for it either.
func TestHostile4QuestionThatNobodyCanAnswerIsAskedAnew(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	old := w.asks(p, "slack_publish", `{"x":1}`)
	_, body := w.row(old.ID)
	w.mustOutside("UPDATE approvals SET body = ? WHERE id = ?", []byte(strings.Replace(string(body), old.Digest, strings.Repeat("0", 64), 1)), old.ID)
	if err := w.respond("bob", &old.ID, approval.Reject, "no"); !fault.Is(err, fault.ApprovalMismatch) {
		t.Fatalf("set-up: it can't be answered: %v", err)
	}
	if got := w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, "")); got == old.ID {
		t.Error("the call waits for a question that nobody can answer, for as long as that lives")
	}
}

// What people said of a destination is not hidden behind what nobody answered.
func TestHostile4EarlierNoIsNotPushedOut(t *testing.T) {
	w := newPeopleWorld(t, func(o *gateway.Options) {
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if server == "slack" && tool == "mail" {
				c.Roles = map[string]string{"to": "destination"}
			}
			return c
		}
	})
	p := w.open("worker", "erin", widgets)
	const to = `"to":"mallory@evil.example"`
	no := w.asks(p, "slack_pay", `{"sum":1,`+to+`}`)
	w.mustRespond("bob", no.ID, approval.Reject, "that is a fraud")
	for i := range 6 { // nobody answers any of them
		w.asks(p, "slack_mail", fmt.Sprintf(`{"n":%d,%s}`, i, to))
	}
	q := w.asks(p, "slack_pay", `{"sum":2,`+to+`}`)
	for _, e := range q.Earlier {
		if e.State == approval.Rejected {
			return
		}
	}
	t.Errorf("bob's no is not among the %d earlier decisions that are shown: %+v", len(q.Earlier), q.Earlier)
}

// A held call costs memory for as long as it is held, whatever it asks: one agent must not hold any number of them.
func TestHostile4HeldCallsAreBounded(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	const calls = 400
	ctx, cancel := context.WithCancel(t.Context())
	var holding atomic.Int64
	done := make(chan struct{}, calls)
	for range calls { // the same call: one question
		go func() {
			var once atomic.Bool
			w.g.Call(ctx, gateway.Request{Principal: p, Method: "tools/call", Tool: "slack_publish", Arguments: json.RawMessage(`{"x":1}`), Door: "mcp", Hold: time.Hour, Waiting: func(gateway.Waiting) {
				if once.CompareAndSwap(false, true) {
					holding.Add(1)
				}
			}})
			done <- struct{}{}
		}()
	}
	for end := time.Now().Add(5 * time.Second); holding.Load()+int64(len(done)) < calls && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	n := holding.Load()
	cancel()
	for range calls {
		<-done
	}
	if n > 200 {
		t.Errorf("%d calls of one session are held at once; with 4 MiB of arguments each has several copies of them", n)
	}
}

type counted4 struct {
	gateway.Store
	used atomic.Int64
}

func (c *counted4) Used(ctx context.Context, key string) (bool, error) {
	c.used.Add(1)
	return c.Store.Used(ctx, key)
}

// To ask what a plan would be judged is one request of the rate limit: it must not be thousands of look-ups.
func TestHostile4PlanDoesNotMultiplyLookUps(t *testing.T) {
	w := newPeopleWorld(t)
	c := &counted4{Store: w.store}
	w.o.Store = c
	g, err := gateway.New(t.Context(), w.o)
	if err != nil {
		t.Fatal(err)
	}
	w.offerAll(g)
	w.g = g
	p := w.open("worker", "erin", widgets)
	var to []string
	for i := range 32 {
		to = append(to, fmt.Sprintf("%d", i))
	}
	step := `{"tool":"slack_send","arguments":{"to":[` + strings.Join(to, ",") + `]}}`
	began := time.Now()
	if _, err := g.ValidatePlan(t.Context(), p, "", json.RawMessage(`{"planned_calls":[`+strings.Repeat(step+",", 199)+step+`]}`)); err != nil {
		t.Fatal(err)
	}
	if n := c.used.Load(); n > 500 {
		t.Errorf("%d look-ups in the store for one request to validate a plan, %s; 600 such are allowed in a minute", n, time.Since(began))
	}
}

// A clock that is set back over a restart gives no expired approval its life back: the log knows how late it was.
func TestHostile4RestartWithClockSetBackRevivesNothing(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	q := w.asks(p, "slack_publish", `{"x":1}`)
	w.mustRespond("bob", q.ID, approval.Approve, "")
	w.clock.advance(31 * time.Minute)
	other := w.mustAsk(w.do(p, "slack_publish", `{"x":2}`, "")) // something is on record at that time
	if w.question(q.ID).State != approval.Expired || other == q.ID {
		t.Fatal("set-up")
	}
	w.end()
	w.clock.advance(-30 * time.Minute)
	w.start()
	w.offerAll(w.g)
	if a := w.do(p, "slack_publish", `{"x":1}`, ""); a.Verdict.Decision == fault.Permit {
		t.Error("an approval that had expired was used after a restart with the clock set back")
	}
}

// A declaration is rated with what its parameters carry, as the call will be.
func TestHostile4DeclarationIsRatedWithWhatItCarries(t *testing.T) {
	w := newPeopleWorld(t)
	reader, writer := w.open("worker", "erin", widgets), w.open("worker", "erin", widgets)
	a := w.mustPermit(w.do(reader, "web_search", `{}`, ""))
	var result struct {
		Content []struct{ Text string }
	}
	if err := json.Unmarshal(a.Result, &result); err != nil || len(result.Content) == 0 || !strings.Contains(result.Content[0].Text, "UNTRUSTED") {
		t.Fatalf("set-up: %s", a.Result)
	}
	quoted, _ := json.Marshal(result.Content[0].Text)
	d, err := w.declare(writer, "slack.mail", `{"text":`+string(quoted)+`}`)
	if err != nil {
		t.Fatal(err)
	}
	other := w.open("worker", "erin", widgets)
	w.is(w.asks(other, "slack_mail", `{"text":`+string(quoted)+`}`), "HIGH", policy.ReasonAction, policy.ReasonUntrusted) // so is the call
	kept, err := w.g.Declaration(t.Context(), writer, "", d.DeclarationID)
	if err != nil || kept.Risk != "HIGH" || d.Verdict.Decision != fault.Ask {
		t.Errorf("an e-mail of untrusted text is declared as %s and %s by rule (%v)", kept.Risk, kept.State, err)
	}
}

// Who is quarantined opens no phase.
func TestHostile4QuarantinedAgentSealsNoPlan(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("planner", "erin", widgets)
	w.quarantine("planner")
	a, err := w.g.SubmitPlan(t.Context(), p, "", json.RawMessage(`{"steps":[{"tool":"slack_send","arguments":{"to":"x"},"justification":"to send the prices of widgets to the team"}]}`))
	if pa, ok := a.(gateway.PlanAnswer); err == nil && ok && pa.State == "approved" {
		t.Errorf("a quarantined agent's plan is %s, and its session in %s", pa.State, pa.Phase)
	}
}
