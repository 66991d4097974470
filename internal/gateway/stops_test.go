package gateway_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/session"
)

// stops are the ways to stop the agent "worker", each taken back at once.
var stops = stopsOf("worker")

func stopsOf(agent string) map[string]func(w *commWorld) {
	return map[string]func(w *commWorld){
		"its switch": func(w *commWorld) {
			w.g.Standing().Disable(agent, "person:alice", "stop")
			w.g.Standing().Enable(agent, "person:alice", "go on")
		},
		"the switch of all": func(w *commWorld) {
			w.g.Standing().Disable("", "person:alice", "stop")
			w.g.Standing().Enable("", "person:alice", "go on")
		},
		"quarantine": func(w *commWorld) {
			w.quarantine(agent)
			if err := w.g.Standing().Restore(w.t.Context(), agent, "it was nothing", "person:alice"); err != nil {
				w.t.Fatal(err)
			}
		},
	}
}

// withdrawn waits until the question is withdrawn, and checks that it says why, to people and on record.
func (w *commWorld) withdrawn(id string) {
	w.t.Helper()
	told, end := w.g.Watch()
	defer end()
	q := w.question(id)
	for late := time.After(10 * time.Second); q.State != approval.Superseded; q = w.question(id) {
		select {
		case <-told:
		case <-late:
			w.t.Fatalf("%s is %s still", id, q.State)
		}
	}
	if !strings.Contains(q.Reason, "stopped after this was asked") {
		w.t.Errorf("it says %q", q.Reason)
	}
	for _, e := range w.entries() {
		if (e.Action == "approval.withdraw" && e.Actor == "rule:stopped" || e.Action == "approval.supersede") && strings.Contains(string(e.Detail), id) && strings.Contains(e.Reason, "stopped") {
			return
		}
	}
	w.t.Errorf("that %s was withdrawn is not on record", id)
}

const pay500 = `{"sum":500,"to":"acme","unit":"USD"}`

// A stop voids what people were asked before it, answered or not, and says so; taking it back brings nothing of it back.
func TestStopVoidsWhatWaits(t *testing.T) {
	for name, stop := range stops {
		t.Run(name, func(t *testing.T) {
			w := newPeopleWorld(t)
			p := w.open("worker", "erin", widgets)
			waits := w.mustAsk(w.do(p, "slack_publish", `{"n":1}`, ""))
			deferred := w.mustAsk(w.do(p, "slack_publish", `{"n":2}`, ""))
			w.mustRespond("bob", deferred, approval.Deferral, "")
			approved := w.mustAsk(w.do(p, "slack_pay", pay500, ""))
			w.mustRespond("bob", approved, approval.Approve, "")
			half := w.mustAsk(w.do(p, "slack_wipe", `{}`, ""))
			w.mustRespond("bob", half, approval.Approve, "")
			shown := w.question(waits)

			stop(w)
			// The answer to what was shown before is refused at once, whether or not the withdrawal is written down yet.
			_, err := w.g.Desk().Respond(t.Context(), voters["bob"], desk.Response{Approval: waits, Digest: shown.Digest, Decision: approval.Approve})
			if !fault.Is(err, fault.ApprovalMismatch) {
				t.Errorf("a yes to a request from before the stop: %v", err)
			}
			if _, err := w.g.Desk().Respond(t.Context(), voters["bob"], desk.Response{Approval: waits, Digest: shown.Digest, Decision: approval.Deferral}); !fault.Is(err, fault.ApprovalMismatch) {
				t.Errorf("put off: %v", err)
			}
			if _, err := w.modify("bob", waits, `{"n":3}`, "less"); !fault.Is(err, fault.ApprovalMismatch) {
				t.Errorf("changed: %v", err)
			}
			for tool, arguments := range map[string]string{"slack_publish": `{"n":1}`, "slack_pay": pay500, "slack_wipe": `{}`} {
				id := w.mustAsk(w.do(p, tool, arguments, ""))
				if id == waits || id == approved || id == half {
					t.Errorf("%s waits for, or would run on, the request from before the stop", tool)
				}
			}
			for _, id := range []string{waits, deferred, approved, half} {
				q := w.question(id)
				if id == deferred { // nothing has taken its place
					w.withdrawn(id)
				} else if q.State != approval.Superseded || !strings.Contains(q.Reason, "stopped after") {
					t.Errorf("%s is %s: %q", id, q.State, q.Reason)
				}
			}
			if w.sent("pay")+w.sent("publish")+w.sent("wipe") != 0 {
				t.Fatal("it ran")
			}
			// What is asked after it is answered as ever.
			id := w.mustAsk(w.do(p, "slack_pay", pay500, ""))
			w.mustRespond("bob", id, approval.Approve, "")
			w.mustPermit(w.do(p, "slack_pay", pay500, ""))
		})
	}
}

// A stop reaches only the agents that it stops.
func TestStopOfAnotherAgentVoidsNothing(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	id := w.mustAsk(w.do(p, "slack_pay", pay500, ""))
	w.mustRespond("bob", id, approval.Approve, "")
	w.g.Standing().Disable("planner", "person:alice", "stop")
	w.mustPermit(w.do(p, "slack_pay", pay500, ""))
}

// Silence is an answer, too: a MEDIUM call that waits to be stopped is not permitted by the silence that began before the stop.
func TestStopVoidsSilence(t *testing.T) {
	for name, stop := range stops {
		t.Run(name, func(t *testing.T) {
			w := newPeopleWorld(t)
			p := w.open("worker", "erin", widgets)
			old := w.asks(p, "slack_mail", `{"x":1}`)
			stop(w)
			next := w.asks(p, "slack_mail", `{"x":1}`)
			if next.ID == old.ID || next.StopEpoch == old.StopEpoch {
				t.Errorf("the silence of %s goes on", old.ID)
			}
		})
	}
}

// An approved declaration holds a yes, too.
func TestStopVoidsApprovedDeclarations(t *testing.T) {
	for name, stop := range stops {
		t.Run(name, func(t *testing.T) {
			w := newPeopleWorld(t)
			p := w.open("worker", "erin", widgets)
			d := w.mustDeclare(p, "comm.send", getPage, fault.Ask)
			w.mustRespond("bob", d.ApprovalID, approval.Approve, "")
			stop(w)
			if a := w.do(p, "comm_send", `{}`, d.DeclarationID); a.Verdict.Decision == fault.Permit || w.cmd.runs.Load() != 0 {
				t.Errorf("it ran on an approval from before the stop: %+v", a.Verdict)
			}
			w.withdrawn(d.ApprovalID)
			again := w.mustDeclare(p, "comm.send", getPage, fault.Ask)
			if again.ApprovalID == d.ApprovalID {
				t.Error("declared again, it waits for the request from before the stop")
			}
			w.mustRespond("bob", again.ApprovalID, approval.Approve, "")
			w.mustPermit(w.do(p, "comm_send", `{}`, again.DeclarationID))
		})
	}
}

// A yes that covers later calls of an operation covers none after a stop.
func TestStopEndsWhatAYesCoversInTheSession(t *testing.T) {
	for name, stop := range stops {
		t.Run(name, func(t *testing.T) {
			w := newOnceWorld(t)
			p := w.open("worker", "erin", widgets)
			w.agreed(p, "shy_look", `{"q":"a"}`)
			w.mustPermit(w.do(p, "shy_look", `{"q":"b"}`, ""))
			stop(w)
			w.mustAsk(w.do(p, "shy_look", `{"q":"c"}`, ""))
		})
	}
}

// A plan that waits is withdrawn, and a person's yes to a plan covers nothing after a stop.
func TestStopVoidsPlans(t *testing.T) {
	const steps = `[{"tool":"shy_look","arguments":{"q":"x"},"justification":"to see what it says about widgets"}]`
	for name, stop := range stops {
		t.Run(name, func(t *testing.T) {
			w := unlistedWorld(t)
			p, sealed := w.open("worker", "erin", widgets), w.open("worker", "erin", widgets)
			plan, yes := w.submit(p, steps), w.submit(sealed, steps)
			if plan.State != session.PlanPending || yes.State != session.PlanPending {
				t.Fatalf("%+v", plan)
			}
			if _, err := w.g.DecidePlan(t.Context(), sealed.ID, yes.Digest, true, "person:bob", ""); err != nil {
				t.Fatal(err)
			}
			stop(w)
			if _, err := w.g.DecidePlan(t.Context(), p.ID, plan.Digest, true, "person:bob", ""); err == nil {
				t.Error("a plan from before the stop was approved")
			}
			w.mustAsk(w.do(sealed, "shy_look", `{"q":"x"}`, ""))
			told, end := w.g.Watch()
			defer end()
			for late := time.After(10 * time.Second); ; {
				_, n, err := w.g.WaitingPlans(t.Context(), 0)
				if err != nil {
					t.Fatal(err)
				}
				if n == 0 {
					break
				}
				select {
				case <-told:
				case <-late:
					t.Fatal("the plan waits still")
				}
			}
		})
	}
}

// stored is a session as it is written down.
func (w *commWorld) stored(id string) session.Session {
	w.t.Helper()
	s, err := w.store.Session(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// What stands on record where a stop took a phase back.
const stoppedBy, stoppedWhy = "rule:stopped", "stopped after it submitted"

// takenBack waits until it is written down that a rule took back the session's phase, and why.
func (w *commWorld) takenBack(id, plan, by, why string) {
	w.t.Helper()
	told, end := w.g.Watch()
	defer end()
	for late := time.After(10 * time.Second); ; {
		if s := w.stored(id); s.Phase == session.Planning {
			if s.Opened != nil || s.Plan.ID != plan || s.Plan.State != session.PlanRejected || s.Plan.DecidedBy != by || !strings.Contains(s.Plan.Reason, why) {
				w.t.Errorf("%+v, %+v", s, s.Plan)
			}
			break
		}
		select {
		case <-told:
		case <-late:
			w.t.Fatal("the session is in execution still")
		}
	}
	for _, e := range w.entries() {
		if e.Action == "session.phase" && e.Actor == by && e.Session == id && strings.Contains(string(e.Detail), `"from":"execution"`) && strings.Contains(string(e.Detail), plan) && e.Event == audit.PhaseMoved {
			return
		}
	}
	w.t.Error("the move is not on record")
}

const lookStep = `[{"tool":"shy_look","arguments":{"q":"x"},"justification":"to see what it says about widgets"}]`

// approvedPlan is a session of the planner in execution, by a person's yes to a plan.
func (w *commWorld) approvedPlan() (p identity.Principal, plan gateway.PlanAnswer) {
	w.t.Helper()
	p = w.open("planner", "erin", widgets)
	plan = w.submit(p, lookStep)
	if s, err := w.g.DecidePlan(w.t.Context(), p.ID, plan.Digest, true, "person:bob", ""); err != nil || s.Phase != session.Execution {
		w.t.Fatalf("%+v, %v", s, err)
	}
	return p, plan
}

// A stop takes back, at once, the phase that a person's yes to a plan had opened, and says so on record. The agent submits another plan, as ever.
func TestStopTakesBackThePhaseOfAPlan(t *testing.T) {
	for name, stop := range stopsOf("planner") {
		t.Run(name, func(t *testing.T) {
			w := unlistedWorld(t)
			p, plan := w.approvedPlan()
			never, _ := w.approvedPlan() // no call is made in it
			stop(w)
			w.mustRefuse(w.do(p, "shy_look", `{"q":"x"}`, ""), fault.PhaseBlocked)
			if m, err := w.g.Manifest(t.Context(), p, ""); err != nil || m.(gateway.Manifest).Phase != session.Planning {
				t.Errorf("%+v, %v", m, err)
			}
			w.takenBack(p.ID, plan.PlanID, stoppedBy, stoppedWhy)
			w.takenBack(never.ID, w.stored(never.ID).Plan.ID, stoppedBy, stoppedWhy)
			next := w.submit(p, lookStep)
			if next.State != session.PlanPending || next.Phase != session.Planning {
				t.Fatalf("%+v", next)
			}
			if s, err := w.g.DecidePlan(t.Context(), p.ID, next.Digest, true, "person:bob", ""); err != nil || s.Phase != session.Execution {
				t.Fatalf("%+v, %v", s, err)
			}
			w.mustPermit(w.do(p, "shy_look", `{"q":"x"}`, ""))
		})
	}
}

// What opened execution without a plan goes on after a stop: the operator's word, or a person who moved the session.
func TestStopLeavesAPhaseThatNoPlanOpened(t *testing.T) {
	for name, stop := range stopsOf("planner") {
		t.Run(name, func(t *testing.T) {
			w := unlistedWorld(t)
			moved, _ := w.approvedPlan()
			for _, to := range []session.Phase{session.Planning, session.Execution} { // the newest word is the person's
				if _, err := w.g.SetPhase(t.Context(), moved.ID, to, "person:bob", "because"); err != nil {
					t.Fatal(err)
				}
			}
			before := w.open("planner", "erin", widgets)
			if _, err := w.g.SetPhase(t.Context(), before.ID, session.Execution, "person:bob", "because"); err != nil {
				t.Fatal(err)
			}
			plan := w.submit(before, lookStep)
			if _, err := w.g.DecidePlan(t.Context(), before.ID, plan.Digest, true, "person:bob", ""); err != nil {
				t.Fatal(err)
			}
			last, of := w.approvedPlan()
			stop(w)
			w.takenBack(last.ID, of.PlanID, stoppedBy, stoppedWhy) // sessions are looked at from the newest to the oldest
			for _, p := range []string{moved.ID, before.ID} {
				if s := w.stored(p); s.Phase != session.Execution {
					t.Errorf("%+v", s)
				}
			}
		})
	}
}

// While the move can't be written down, and after a crash before it was, nothing runs in the phase all the same; the next start writes it down.
func TestPhaseTakenBackOutlivesACrash(t *testing.T) {
	for name, stop := range stopsOf("planner") {
		t.Run(name, func(t *testing.T) {
			w := unlistedWorld(t)
			frozen := &frozenSessions{Store: w.store.Store}
			w.store.Store = frozen
			p, plan := w.approvedPlan()
			frozen.frozen.Store(true)
			stop(w)
			w.g.Standing().Close() // the switch is written down
			w.mustRefuse(w.do(p, "shy_look", `{"q":"x"}`, ""), fault.PhaseBlocked)
			if s := w.stored(p.ID); s.Phase != session.Execution {
				t.Fatal("the test shows nothing")
			}
			w.end()
			frozen.frozen.Store(false)
			w.start()
			w.takenBack(p.ID, plan.PlanID, stoppedBy, stoppedWhy)
		})
	}
}

// frozenSessions is a store that changes no session.
type frozenSessions struct {
	gateway.Store
	frozen atomic.Bool
}

func (s *frozenSessions) ChangeSession(ctx context.Context, id string, change func(session.Session) (session.Session, audit.Entry, error)) (session.Session, error) {
	if s.frozen.Load() {
		return session.Session{}, fault.New(fault.StoreUnavailable, "")
	}
	return s.Store.ChangeSession(ctx, id, change)
}

// A crash between the stop and the withdrawal leaves nothing that could run: the epoch is with the stop, and the next start withdraws what is past.
func TestStopOutlivesACrash(t *testing.T) {
	for name, stop := range stops {
		t.Run(name, func(t *testing.T) {
			w := newPeopleWorld(t)
			frozen := &frozenApprovals{Store: w.store.Store}
			w.store.Store = frozen
			p := w.open("worker", "erin", widgets)
			id := w.mustAsk(w.do(p, "slack_pay", pay500, ""))
			w.mustRespond("bob", id, approval.Approve, "")
			waits := w.mustAsk(w.do(p, "slack_publish", `{}`, ""))
			frozen.frozen.Store(true)
			stop(w)
			w.g.Standing().Close() // the switch is written down
			if q := w.question(id); q.State != approval.Approved {
				t.Fatalf("it is %s: the test shows nothing", q.State)
			}
			w.end()
			w.start()
			w.offerAll(w.g)
			w.withdrawn(id)
			w.withdrawn(waits)
			if next := w.mustAsk(w.do(p, "slack_pay", pay500, "")); next == id || w.sent("pay") != 0 {
				t.Error("the approval from before the stop holds after a restart")
			}
		})
	}
}

// frozenApprovals is a store that changes no question.
type frozenApprovals struct {
	gateway.Store
	frozen atomic.Bool
}

func (s *frozenApprovals) ChangeApproval(ctx context.Context, id string, change func(desk.Stored) (desk.Update, error)) (approval.Approval, error) {
	if s.frozen.Load() {
		return approval.Approval{}, fault.New(fault.StoreUnavailable, "")
	}
	return s.Store.ChangeApproval(ctx, id, change)
}

// A call that the switch caught does not go on when the switch is taken back while it is under way.
func TestStopEndsWhatIsUnderWay(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	held := w.hold(p, "slack_publish", `{}`, time.Minute)
	id := held.waits().ApprovalID
	stops["its switch"](w)
	if a := held.ends(); a.Verdict.Code != fault.KillSwitch {
		t.Errorf("%+v", a.Verdict)
	}
	w.withdrawn(id)
	for _, e := range w.entries() {
		if e.Kind == audit.Intent {
			t.Errorf("an intent: %+v", e)
		}
	}
}
