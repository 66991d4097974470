package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/session"
)

// One no is enough up to the moment the approval is spent (approval.Reject), also when it is about a declaration.
func TestApprovedDeclarationCanStillBeRejected(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	d := w.mustDeclare(p, "comm.send", getPage, fault.Ask)
	if err := w.respond("bob", &d.ApprovalID, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	if err := w.respond("carol", &d.ApprovalID, approval.Reject, "stop: that page is hostile"); err != nil {
		t.Errorf("carol's no is not taken: %v", err)
	}
	if a := w.do(p, "comm_send", "{}", d.DeclarationID); a.Verdict.Decision == fault.Permit {
		t.Error("and the call ran")
	}
}

// An approver who lost the role is replaced by another, also for a declaration.
func TestDeclarationCanBeApprovedByAnotherAfterAnApproverLostTheRole(t *testing.T) {
	var mu sync.Mutex
	gone := false
	w := newCommWorld(t, func(o *gateway.Options) {
		o.Voter = func(p string) (approval.Voter, bool) {
			mu.Lock()
			defer mu.Unlock()
			v, ok := voters[p]
			return v, ok && !(gone && p == "bob")
		}
	})
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	d := w.mustDeclare(p, "comm.send", getPage, fault.Ask)
	if err := w.respond("bob", &d.ApprovalID, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	gone = true
	mu.Unlock()
	id := w.mustAsk(w.do(p, "comm_send", "{}", d.DeclarationID))
	if err := w.respond("carol", &id, approval.Approve, ""); err != nil {
		t.Fatalf("nobody can approve it any more: %v", err)
	}
	w.mustPermit(w.do(p, "comm_send", "{}", d.DeclarationID))
}

// What a person rejected is not asked of the next one by declaring the very same thing again.
func TestRejectedDeclarationIsNotAskedOfTheNextPerson(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	d := w.mustDeclare(p, "comm.send", getPage, fault.Ask)
	if err := w.respond("carol", &d.ApprovalID, approval.Reject, "no"); err != nil {
		t.Fatal(err)
	}
	v := w.mustRefuse(w.do(p, "comm_send", sendPage, ""), fault.ApprovalRejected).Verdict
	if v.ApprovalID == nil || *v.ApprovalID != d.ApprovalID || len(v.Remedies) != 1 || v.Remedies[0].Kind != "ask_person" {
		t.Errorf("which question, and what now: %+v", v)
	}
	again, err := w.declare(p, "comm.send", getPage)
	if err != nil || again.Verdict.Decision != fault.Ask {
		return
	}
	if err := w.respond("bob", &again.ApprovalID, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	if a := w.do(p, "comm_send", sendPage, ""); a.Verdict.Decision == fault.Permit {
		t.Error("carol's no was undone by asking bob the same thing")
	}
}

// What a person rejected does not run because the agent leaves the declaration out.
func TestRejectedUpstreamCallDoesNotRunUndeclared(t *testing.T) {
	w := newCommWorld(t, func(o *gateway.Options) {
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if server == "slack" {
				c.RiskFloor = policy.High
			}
			return c
		}
	})
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	d := w.mustDeclare(p, "slack.post", `{"text":"widgets cost 3"}`, fault.Ask)
	if err := w.respond("carol", &d.ApprovalID, approval.Reject, "no"); err != nil {
		t.Fatal(err)
	}
	sent := w.up.count()
	if a := w.do(p, "slack_post", `{"text":"widgets cost 3"}`, ""); a.Verdict.Decision == fault.Permit || w.up.count() != sent {
		t.Error("the HIGH call that carol rejected ran, because it named no declaration")
	}
}

// Two declarations of one call at a time are one question, or one no can be outvoted by a yes to the other.
type meeting struct {
	gateway.Store
	mu       sync.Mutex
	left     int
	together chan struct{}
}

func (m *meeting) ApprovalFor(ctx context.Context, s, digest string) (approval.Approval, error) {
	a, err := m.Store.ApprovalFor(ctx, s, digest)
	m.mu.Lock()
	meets := m.left > 0
	if meets {
		if m.left--; m.left == 0 {
			close(m.together)
		}
	}
	m.mu.Unlock()
	if meets {
		select {
		case <-m.together:
		case <-time.After(2 * time.Second):
		}
	}
	return a, err
}

func TestDeclarationsOfOneCallAtOnceAreOneQuestion(t *testing.T) {
	w := newCommWorld(t)
	m := &meeting{Store: w.store, left: 2, together: make(chan struct{})}
	w.g = gatewayOn(t, w.world, m)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { w.declare(p, "comm.send", getPage) })
	}
	wg.Wait()
	open, err := w.g.Desk().Questions(t.Context(), approval.Pending, p.ID, "", 10)
	if err != nil || len(open) != 1 {
		t.Errorf("%d open questions about one call, %v", len(open), err)
	}
}

// A question that was put off and is due again is in the list of those that wait.
func TestDeferredQuestionComesBackWhenDue(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	id := w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	q, err := w.g.Desk().Question(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.g.Desk().Respond(t.Context(), voters["bob"], desk.Response{Approval: id, Digest: q.Digest, Decision: approval.Deferral, Until: w.clock.now().Add(5 * time.Minute)}); err != nil {
		t.Fatal(err)
	}
	w.clock.advance(6 * time.Minute)
	waiting, err := w.g.Desk().Questions(t.Context(), approval.Pending, "", "", 10)
	if err != nil || len(waiting) != 1 {
		t.Errorf("%d questions wait, %v", len(waiting), err)
	}
	st, err := w.g.Status(t.Context(), p, "")
	if err != nil || !slices.Equal(st.(gateway.Status).PendingApprovals, []string{id}) {
		t.Errorf("the agent sees %v waiting, %v", st.(gateway.Status).PendingApprovals, err)
	}
}

// The call runs on the reasons that were shown: a model that words them anew changes neither the call nor the record of
// what was approved, and what it said instead is there beside it.
func TestApprovalIsForTheReasonsThatWereShown(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	id := w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	if err := w.respond("bob", &id, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	other := `{"url":"https://example.com/page","justification":{"user_request":"What do widgets cost in 2026?","missing_knowledge":"administrator password of the widget shop","expected_use":"log in and buy widgets"}}`
	a := w.mustPermit(w.do(p, "comm_send", other, ""))
	var detail struct {
		Declaration struct {
			Digest        string
			Justification declare.Justification
			Said          declare.Justification `json:"justification_of_the_call"`
		}
	}
	es := w.entriesOf(a.CallID)
	if err := json.Unmarshal(es[0].Detail, &detail); err != nil || detail.Declaration.Justification.ExpectedUse != "cite them in the summary" || detail.Declaration.Said.ExpectedUse != "log in and buy widgets" {
		t.Errorf("%s, %v", es[0].Detail, err)
	}
	want := declare.Digest("worker", p.ID, "comm.send", es[0].DefHash, json.RawMessage(getPage), detail.Declaration.Justification)
	if at, err := w.o.Issuer.Parse(a.Metadata); err != nil || at.Declaration() != want || detail.Declaration.Digest != want {
		t.Errorf("the result points to %s, not to what bob approved (%v)", at.Declaration(), err)
	}
}

// One human with two accounts is one voter for what is CRITICAL, whatever the door that took the votes knew about them.
func TestTwoAccountsOfOnePersonAreOneVote(t *testing.T) {
	w := newCommWorld(t, func(o *gateway.Options) {
		o.Voter = func(p string) (approval.Voter, bool) {
			switch p {
			case "bob", "robert":
				return approval.Voter{Person: p, Roles: []identity.Role{identity.Approver}, Aliases: []string{"bob@example.com"}}, true
			}
			return approval.Voter{}, false
		}
	})
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	arguments := `{"url":"https://example.com/page",` + because + `}`
	id := w.mustAsk(w.do(p, "comm_wipe", arguments, ""))
	q, err := w.g.Desk().Question(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, person := range []string{"bob", "robert"} { // as the HTTP door hands them over: it is given no aliases
		if _, err := w.g.Desk().Respond(t.Context(), approval.Voter{Person: person, Roles: []identity.Role{identity.Approver}}, desk.Response{Approval: id, Digest: q.Digest, Decision: approval.Approve}); err != nil {
			t.Logf("%s: %v", person, err)
		}
	}
	if a := w.do(p, "comm_wipe", arguments, ""); a.Verdict.Decision == fault.Permit {
		t.Error("a CRITICAL call ran on two accounts of one person")
	}
}

// A closed session's questions don't wait for anybody.
func TestQuestionsOfClosedSessionsDoNotWait(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	if _, err := w.g.CloseSession(t.Context(), p.ID, "person:alice", ""); err != nil {
		t.Fatal(err)
	}
	if waiting, err := w.g.Desk().Questions(t.Context(), approval.Pending, "", "", 10); err != nil || len(waiting) != 0 {
		t.Errorf("%d questions nobody can say yes to, %v", len(waiting), err)
	}
}

// Held: one approved declaration, many calls at a time, one run; also while the session moves.
func TestOneApprovalIsOneRunUnderRace(t *testing.T) {
	w := newCommWorld(t, func(o *gateway.Options) { o.Limits.CommRequestsPerMinute = 0 })
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	d := w.mustDeclare(p, "comm.send", getPage, fault.Ask)
	if err := w.respond("bob", &d.ApprovalID, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			if i%2 == 0 {
				w.do(p, "comm_send", "{}", d.DeclarationID)
			} else {
				w.do(p, "comm_send", sendPage, "")
			}
		})
		if i%10 == 0 {
			wg.Go(func() { w.do(p, "web_search", `{"q":"x"}`, "") })
		}
	}
	wg.Wait()
	// What the search brought may have come first: then the person is asked again, and nothing runs.
	n := w.cmd.runs.Load()
	got, err := w.g.Declaration(t.Context(), p, "", d.DeclarationID)
	if err != nil || n > 1 || (n == 1) != (got.State == declare.Spent) {
		t.Errorf("%d runs on one approval, the declaration is %v, %v", n, got.State, err)
	}
}

// An approval of reading a resource is not one of subscribing to it: what a person is shown is what happens.
func TestApprovalOfAReadIsNoSubscription(t *testing.T) {
	w := unlistedWorld(t)
	raw := json.RawMessage(`{"name":"n","uri":"shy://customers"}`)
	w.offer("shy", definition("shy", "look", "New."), call.Definition{Server: "shy", Name: "shy://customers", Kind: call.Resource, JSON: raw, Hash: call.HashBytes(raw)})
	w.up.answers["shy."] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
		return json.RawMessage(`{"contents":[{"uri":"shy://customers","text":"hello"}]}`), nil
	}
	p := w.open("worker", "erin", "x")
	do := func(method call.Method) gateway.Answer {
		return w.g.Call(t.Context(), gateway.Request{Principal: p, Method: method, Tool: "shy://customers", Door: "mcp"})
	}
	id := w.mustAsk(do("resources/read"))
	if err := w.respond("bob", &id, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	if a := do("resources/subscribe"); a.Verdict.Decision == fault.Permit {
		t.Error("bob approved reading it once; the agent subscribed to it")
	}
}

// Held: an approval opens no phase, outlives no switch and no session.
func TestApprovalOpensNoPhaseSwitchOrSession(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	id := w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	if err := w.respond("bob", &id, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := w.g.SetPhase(t.Context(), p.ID, session.Planning, "person:alice", ""); err != nil {
		t.Fatal(err)
	}
	w.mustRefuse(w.do(p, "comm_send", sendPage, ""), fault.PhaseBlocked)
	if _, err := w.g.SetPhase(t.Context(), p.ID, session.Execution, "person:alice", ""); err != nil {
		t.Fatal(err)
	}
	w.g.Standing().Disable("worker", "person:alice", "x")
	w.mustRefuse(w.do(p, "comm_send", sendPage, ""), fault.KillSwitch)
	w.g.Standing().Enable("worker", "person:alice", "x")
	before := id
	if id = w.mustAsk(w.do(p, "comm_send", sendPage, "")); id == before {
		t.Error("it was given before the switch was pulled")
	}
	if err := w.respond("bob", &id, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	other := w.open("worker", "erin", "What do widgets cost in 2026?")
	if again := w.mustAsk(w.do(other, "comm_send", sendPage, "")); again == id {
		t.Error("another session found it")
	}
	for _, arguments := range []string{`{"url":"https://example.com/page2",` + because + `}`, `{"n":1,"url":"https://example.com/page",` + because + `}`} {
		if a := w.do(p, "comm_send", arguments, ""); a.Verdict.Decision == fault.Permit {
			t.Errorf("other arguments ran on it: %s", arguments)
		}
	}
	w.store.set(func(b *brittle) { b.intent = fault.New(fault.AuditUnavailable, "") })
	w.mustRefuse(w.do(p, "comm_send", sendPage, ""), fault.AuditUnavailable)
	w.store.set(func(b *brittle) { b.intent = nil })
	if n := w.cmd.runs.Load(); n != 0 {
		t.Fatalf("%d ran", n)
	}
	w.mustPermit(w.do(p, "comm_send", sendPage, ""))
	if _, err := w.g.CloseSession(t.Context(), p.ID, "person:alice", ""); err != nil {
		t.Fatal(err)
	}
	w.mustRefuse(w.do(p, "comm_send", sendPage, ""), fault.SessionClosed)
}

// An approval was given for a session in which nothing untrusted had spoken, and says so: it binds the labels shown.
func TestApprovalOfACleanSessionIsAskedAgainInATaintedOne(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	id := w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	q, err := w.g.Desk().Question(t.Context(), id)
	if err != nil || len(q.Labels) != 0 {
		t.Fatal(q.Labels, err)
	}
	if err := w.respond("bob", &id, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	w.mustPermit(w.do(p, "comm_get", `{"url":"https://evil.example/",`+because+`}`, ""))
	if a := w.do(p, "comm_send", sendPage, ""); a.Verdict.Decision == fault.Permit {
		t.Error("bob was shown a session without labels; the HIGH call ran in one that had read an untrusted page since")
	}
}

// A person approved an amount in the currency that was shown. Under other rules it is another amount.
func TestApprovalIsForTheAmountThatWasShown(t *testing.T) {
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

func (c *closesFirst) AskPerson(ctx context.Context, q desk.Ask, decide func(desk.Found) (desk.Written, error)) (approval.Approval, error) {
	if f := c.before; f != nil {
		c.before = nil
		f()
	}
	return c.Store.AskPerson(ctx, q, decide)
}

// No question is asked for a session that is closed by the time it is written: nobody would ever withdraw it.
func TestSessionClosedMeanwhileAsksNobody(t *testing.T) {
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
	if open, err := w.g.Desk().Questions(t.Context(), approval.Pending, p.ID, "", 10); err != nil || len(open) != 0 {
		t.Errorf("%d questions of a closed session wait for people (%v)", len(open), err)
	}
}

// Who changes the arguments asks for what is asked then: their own yes is none. Otherwise one approver pays whom they like, alone.
func TestWhoChangesArgumentsDoesNotApproveThem(t *testing.T) {
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
func TestWhoChangesArgumentsIsNotOneOfTwo(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	q := w.asks(p, "slack_pay", `{"sum":5,"to":"acme","unit":"USD"}`)
	next := w.mustModify("bob", q.ID, `{"sum":90000,"to":"bobs-account","unit":"USD"}`)
	w.mustRespond("alice", next.ID, approval.Approve, "")
	if err := w.respond("bob", &next.ID, approval.Approve, ""); err == nil {
		t.Errorf("%s (%s) needs bob, who wrote it, and one other", next.Amount, next.Risk)
	}
}

// A question of before the upgrade has a digest of the old form: nobody can answer it, and so nobody should wait for it either.
func TestQuestionOfAnOldFormIsAskedAnew(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	old := w.asks(p, "slack_publish", `{"x":1}`)
	if _, err := w.db.ChangeApproval(w.t.Context(), old.ID, func(found desk.Stored) (desk.Update, error) {
		found.Approval.Digest = strings.Repeat("0", 64)
		return desk.Update{Stored: found, Entry: audit.Entry{Kind: audit.Change, Action: "approval.ask", Decision: "ok"}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := w.respond("bob", &old.ID, approval.Reject, "no"); !fault.Is(err, fault.ApprovalMismatch) {
		t.Fatalf("set-up: it can't be answered: %v", err)
	}
	if got := w.mustAsk(w.do(p, "slack_publish", `{"x":1}`, "")); got == old.ID {
		t.Error("the call waits for a question that nobody can answer, for as long as that lives")
	}
}

// A clock that is set back over a restart gives no expired approval its life back: the log knows how late it was.
func TestRestartWithTheClockSetBackRevivesNoApproval(t *testing.T) {
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

// What was approved before an upgrade that shows people more is approved no more, whatever its row says.
func TestApprovalOfAnOldFormDispatchesNothing(t *testing.T) {
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
func TestModifyBringsNoRejectedCallBack(t *testing.T) {
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
func TestModifyTakesNoVotesAlong(t *testing.T) {
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
func TestVerdictsNameNobody(t *testing.T) {
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
