package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.example/flow"
	"sallyport.example/guard"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/session"
)

const sendPage = `{"url":"https://example.com/page",` + because + `}`

func (w *commWorld) submit(p identity.Principal, steps string) gateway.PlanAnswer {
	w.t.Helper()
	a, err := w.g.SubmitPlan(w.t.Context(), p, "", json.RawMessage(`{"steps":`+steps+`}`))
	if err != nil {
		w.t.Fatal(err)
	}
	return a.(gateway.PlanAnswer)
}

// shyWorld has an operation that no entry names, so that a plan with it waits for a person.
func shyWorld(t *testing.T) *commWorld {
	w := newCommWorld(t, func(o *gateway.Options) {
		o.Unlisted = catalogue.Active
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if server == "shy" {
				c.Flow.Effect = flow.Read
			}
			return c
		}
	})
	w.offer("shy", definition("shy", "look", "New."))
	return w
}

// CRITICAL takes two people and nobody answers for themselves, also where the call stands in a plan; and one answer is for one call.
func TestHostile3PlanApprovalIsNoWayRoundTwoPeople(t *testing.T) {
	w := shyWorld(t)
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
func TestHostile3PlanStepWithoutArgumentsApprovesNoRiskyCall(t *testing.T) {
	w := shyWorld(t)
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
func TestHostile3VaguePlanDeclaresNothing(t *testing.T) {
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

// One no is enough up to the moment the approval is spent (approval.Reject), also when it is about a declaration.
func TestHostile3ApprovedDeclarationCanStillBeRejected(t *testing.T) {
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
func TestHostile3DeclarationCanBeApprovedByAnotherAfterARecount(t *testing.T) {
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
func TestHostile3RejectedDeclarationIsNotShoppedAround(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	d := w.mustDeclare(p, "comm.send", getPage, fault.Ask)
	if err := w.respond("carol", &d.ApprovalID, approval.Reject, "no"); err != nil {
		t.Fatal(err)
	}
	w.mustRefuse(w.do(p, "comm_send", sendPage, ""), fault.ApprovalRejected)
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
func TestHostile3RejectedUpstreamCallDoesNotRunUndeclared(t *testing.T) {
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

func TestHostile3OneOpenQuestionForOneCall(t *testing.T) {
	w := newCommWorld(t)
	m := &meeting{Store: w.store, left: 2, together: make(chan struct{})}
	w.g = hostile2Gateway(t, w.world, m)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { w.declare(p, "comm.send", getPage) })
	}
	wg.Wait()
	open, err := w.g.Questions(t.Context(), approval.Pending, p.ID, "", 10)
	if err != nil || len(open) != 1 {
		t.Errorf("%d open questions about one call, %v", len(open), err)
	}
}

// The bound on open questions holds for declarations as for calls (appr-051).
func TestHostile3DeclarationsDoNotFloodPeople(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	n := 0
	for ; n < 150; n++ {
		if d, err := w.declare(p, "comm.send", fmt.Sprintf(`{"url":"https://example.com/%d"}`, n)); err != nil || d.Verdict.Decision != fault.Ask {
			break
		}
	}
	if n != 100 {
		t.Errorf("one session has %d open questions", n)
	}
}

// Questions that expired wait for nobody.
func TestHostile3ExpiredQuestionsDoNotUseUpTheBound(t *testing.T) {
	w := newCommWorld(t, func(o *gateway.Options) { o.Limits.CommRequestsPerMinute = 1000 })
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	for n := range 100 {
		w.mustAsk(w.do(p, "comm_send", fmt.Sprintf(`{"url":"https://example.com/%d",%s}`, n, because), ""))
	}
	w.clock.advance(time.Hour)
	if a := w.do(p, "comm_send", sendPage, ""); a.Verdict.Decision != fault.Ask {
		t.Errorf("nothing waits, and the session can never ask again: %s", a.Verdict.Reason)
	}
}

// A question that was put off and is due again is in the list of those that wait.
func TestHostile3DeferredQuestionComesBack(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	id := w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	q, err := w.g.Question(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.g.Respond(t.Context(), voters["bob"], gateway.Response{Approval: id, Digest: q.Digest, Decision: approval.Deferral, Until: w.clock.now().Add(5 * time.Minute)}); err != nil {
		t.Fatal(err)
	}
	w.clock.advance(6 * time.Minute)
	waiting, err := w.g.Questions(t.Context(), approval.Pending, "", "", 10)
	if err != nil || len(waiting) != 1 {
		t.Errorf("%d questions wait, %v", len(waiting), err)
	}
	st, err := w.g.Status(t.Context(), p, "")
	if err != nil || !slices.Equal(st.(gateway.Status).PendingApprovals, []string{id}) {
		t.Errorf("the agent sees %v waiting, %v", st.(gateway.Status).PendingApprovals, err)
	}
}

// The record names as approvers who approved.
func TestHostile3ApproversAreThoseWhoApproved(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	id := w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	if err := w.respond("carol", &id, approval.Deferral, ""); err != nil {
		t.Fatal(err)
	}
	if err := w.respond("bob", &id, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	a := w.mustPermit(w.do(p, "comm_send", sendPage, ""))
	if es := w.entriesOf(a.CallID); !slices.Equal(es[0].Approvers, []string{"bob"}) {
		t.Errorf("the intent of a HIGH call says that %v approved", es[0].Approvers)
	}
	id = w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	if err := w.respond("carol", &id, approval.Reject, "no"); err != nil {
		t.Fatal(err)
	}
	for _, e := range w.entries() {
		if e.Action == "approval.reject" && len(e.Approvers) > 0 {
			t.Errorf("a rejection has the approvers %v", e.Approvers)
		}
	}
}

// The call runs on the reasons that were shown (docs/design.md, rule 2): a model that words them anew changes neither the call nor the record of
// what was approved, and what it said instead is there beside it.
func TestHostile3ApprovalIsForTheReasonsThatWereShown(t *testing.T) {
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
func TestHostile3TwoAccountsOfOnePersonAreOneVote(t *testing.T) {
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
	q, err := w.g.Question(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, person := range []string{"bob", "robert"} { // as the HTTP door hands them over: it is given no aliases
		if _, err := w.g.Respond(t.Context(), approval.Voter{Person: person, Roles: []identity.Role{identity.Approver}}, gateway.Response{Approval: id, Digest: q.Digest, Decision: approval.Approve}); err != nil {
			t.Logf("%s: %v", person, err)
		}
	}
	if a := w.do(p, "comm_wipe", arguments, ""); a.Verdict.Decision == fault.Permit {
		t.Error("a CRITICAL call ran on two accounts of one person")
	}
}

// A refusal is on record, however much is wrong with the call.
func TestHostile3RefusalWithManyProblemsIsOnRecord(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	var b strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&b, `"x%d":1,`, i)
	}
	a := w.do(p, "comm_get", `{"url":"https://example.com/page","justification":{`+strings.TrimSuffix(b.String(), ",")+`}}`, "")
	if a.Verdict.Code != fault.DeclarationInvalid {
		t.Errorf("refused for %s: %.100s", a.Verdict.Code, a.Verdict.Reason)
	}
	if es := w.entriesOf(a.CallID); len(es) != 1 {
		t.Errorf("%d entries of the refused call", len(es))
	}
}

// What arguments carry is on record in a size that the record takes.
func TestHostile3CarriedSourcesFitTheRecord(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "x")
	var all strings.Builder
	for i := range 16 {
		wrapped, err := guard.Fence{Operation: "web.web_search"}.Wrap(fmt.Sprintf("page %d", i), fmt.Sprintf("https://example.com/%d?", i)+strings.Repeat("a", 8000))
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(wrapped.ForModel() + "\n")
	}
	quoted, _ := json.Marshal(all.String())
	if a := w.do(p, "think", fmt.Sprintf(`{"text":%s}`, quoted), ""); a.Verdict.Decision != fault.Permit {
		t.Errorf("a harmless call that quotes 16 pages: %s %s", a.Verdict.Code, a.Verdict.Reason)
	}
}

// A policy on labels sees what the arguments carry, as the flow stage does.
func TestHostile3PolicySeesCarriedLabels(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.cedar"), []byte(`permit (principal, action, resource); forbid (principal, action, resource) when { context.labels.contains("internal") };`), 0o600); err != nil {
		t.Fatal(err)
	}
	policies, err := policy.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	w := newCommWorld(t, func(o *gateway.Options) { o.Policies = policies })
	p := w.open("worker", "erin", "x")
	fence, err := guard.Fence{Operation: "mail.search_email", Contamination: []string{"internal"}}.Wrap("the salaries", "mail.search_email")
	if err != nil {
		t.Fatal(err)
	}
	quoted, _ := json.Marshal(fence.ForModel())
	if a := w.do(p, "think", fmt.Sprintf(`{"text":%s}`, quoted), ""); a.Verdict.Decision == fault.Permit {
		t.Error("a call that brings the label internal along passed a policy that forbids it")
	}
}

// What goes out as an answer to a server's question carries labels as arguments do.
func TestHostile3AnswersCarryLabels(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "x")
	fence, err := guard.Fence{Operation: "mail.search_email", Contamination: []string{"internal"}}.Wrap("the salaries", "mail.search_email")
	if err != nil {
		t.Fatal(err)
	}
	answers, _ := json.Marshal(map[string]any{"q1": map[string]any{"action": "accept", "content": map[string]any{"text": fence.ForModel()}}})
	sent := w.up.count()
	a := w.g.Call(t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: "slack_post", Arguments: json.RawMessage(`{"text":"hi"}`), Door: "mcp",
		Exchange: call.Exchange{InputResponses: answers}})
	if a.Verdict.Decision == fault.Permit || w.up.count() != sent {
		t.Error("fenced internal text went out to a sink as an input response")
	}
}

// A failing command's words are outside text: a database's error quotes rows. They label the session, and don't arrive unfenced.
func TestHostile3ErrorsOfCommandsBringLabels(t *testing.T) {
	w := newCommWorld(t, func(o *gateway.Options) {
		for i := range o.Commands {
			if o.Commands[i].Name == "get" { // as comm.query is
				o.Commands[i].Sensitivity = flow.InternalSource
			}
		}
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if server == "comm" && tool == "get" {
				c.Flow = flow.Spec{Sensitivity: flow.InternalSource, Effect: flow.Read}
			}
			return c
		}
	})
	w.cmd.run = func(context.Context, catalogue.CommandRun) (catalogue.Brought, error) {
		return catalogue.Brought{}, fault.New(fault.RequestMalformed, `The database says: invalid input syntax for type integer: "ada's salary is 91000".`).At("sql")
	}
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	a := w.do(p, "comm_get", `{"url":"https://example.com/page",`+because+`}`, "")
	s, err := w.g.SessionByID(t.Context(), p.ID)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(a.Verdict.Reason, "91000") && !s.Holds("internal") {
		t.Errorf("a row of an internal source is in the agent's context (%s), and the session holds %v", a.Verdict.Reason, s.Labels)
	}
	w.mustRefuse(w.do(p, "slack_post", `{"text":"91000"}`, ""), fault.FlowContaminated)
}

// Every refusal is on record, of people too (TH-4).
func TestHostile3RefusedAnswersAreOnRecord(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "carol", "What do widgets cost in 2026?")
	id := w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	if err := w.respond("carol", &id, approval.Approve, ""); !fault.Is(err, fault.RoleMissing) {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(w.entries(), func(e audit.Entry) bool { return e.Actor == "person:carol" && e.Decision == "deny" }) {
		t.Error("carol tried to approve her own request, and nobody will ever know")
	}
}

// Asking whether the answer is there reaches nothing outside.
func TestHostile3WaitingForAPersonUsesUpNoRequests(t *testing.T) {
	w := newCommWorld(t, func(o *gateway.Options) { o.Limits.CommRequestsPerMinute = 3 })
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	id := w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	for range 2 {
		w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	}
	if err := w.respond("bob", &id, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	if a := w.do(p, "comm_send", sendPage, ""); a.Verdict.Decision != fault.Permit {
		t.Errorf("nothing was requested yet: %s", a.Verdict.Reason)
	}
}

// A declaration that is refused after it brought labelled text says as much about the agent's context as a call.
func TestHostile3DeclaringCarriedTextTaints(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	fence, err := guard.Fence{Operation: "mail.search_email", Contamination: []string{"internal"}}.Wrap("the salaries", "mail.search_email")
	if err != nil {
		t.Fatal(err)
	}
	quoted, _ := json.Marshal(fence.ForModel())
	if d, err := w.declare(p, "slack.post", fmt.Sprintf(`{"text":%s}`, quoted)); err != nil || d.Verdict.Code != fault.FlowContaminated {
		t.Fatalf("%+v %v", d, err)
	}
	if a := w.do(p, "slack_post", `{"text":"the salaries"}`, ""); a.Verdict.Decision == fault.Permit {
		t.Error("the agent showed that it has internal text, was refused, took the fence off, and sent it")
	}
}

// A closed session's questions don't wait for anybody.
func TestHostile3QuestionsOfClosedSessionsDoNotWait(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	if _, err := w.g.CloseSession(t.Context(), p.ID, "person:alice", ""); err != nil {
		t.Fatal(err)
	}
	if waiting, err := w.g.Questions(t.Context(), approval.Pending, "", "", 10); err != nil || len(waiting) != 0 {
		t.Errorf("%d questions nobody can say yes to, %v", len(waiting), err)
	}
}

// What an agent may not call tells it nothing.
func TestHostile3ParametersAreNotCheckedForWhoMayNotCall(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("planner", "erin", "What do widgets cost in 2026?")
	if _, err := w.g.SetPhase(t.Context(), p.ID, session.Execution, "person:alice", ""); err != nil {
		t.Fatal(err)
	}
	a := w.do(p, "comm_put", `{"url":"https://forbidden.example/",`+because+`}`, "") // a write, which nothing permits
	if a.Verdict.Code != fault.PermissionDenied {
		t.Errorf("an agent without the permission is told %s: %s", a.Verdict.Code, a.Verdict.Reason)
	}
}

// Held: one approved declaration, many calls at a time, one run; also while the session moves.
func TestHostile3OneApprovalOneRunUnderRace(t *testing.T) {
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
	w := shyWorld(t)
	changes, end := w.g.Watch(gateway.PlanChanged)
	defer end()
	p := w.open("planner", "erin", "What do widgets cost in 2026?")
	plan := w.submit(p, `[{"tool":"shy_look","justification":"why not"}]`)
	remedies := plan.Steps[0].Verdict.Remedies
	if plan.State != session.PlanPending || len(remedies) != 2 || !strings.Contains(remedies[0].Text, "asked about the plan") || remedies[1].Kind != "ask_person" {
		t.Errorf("%s: %+v", plan.State, remedies)
	}
	if c := <-changes; c.Topic != gateway.PlanChanged || c.ID != p.ID {
		t.Errorf("%+v", c)
	}
	newest, all, err := w.g.WaitingPlans(t.Context(), 10)
	if err != nil || all != 1 || len(newest) != 1 || newest[0].ID != p.ID || newest[0].Plan.Digest != plan.Digest {
		t.Errorf("%d %+v %v", all, newest, err)
	}
	if _, err := w.g.CloseSession(t.Context(), p.ID, "person:alice", "enough"); err != nil {
		t.Fatal(err)
	}
	if c := <-changes; c.ID != p.ID {
		t.Errorf("%+v", c)
	}
}

// A plan that waits is a question to people, and counts as one.
func TestPlansThatWaitAreCounted(t *testing.T) {
	w := shyWorld(t)
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
