package session

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sallyport.example/flow"
	"sallyport.example/internal/fault"
	"sallyport.example/provenance"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func fresh() Session { return New("a", Planning, "agent:a", t0) }

func held(labels ...flow.Label) []flow.Held {
	var h []flow.Held
	for _, l := range labels {
		h = append(h, flow.Held{Label: l, Operation: "x.y", CallID: "call_1"})
	}
	return h
}

func plan(state PlanState) Plan { return Plan{ID: "plan_1", Digest: "d", State: state, Submitted: t0} }

func TestParsePhaseTakesTheTwoWordsOnly(t *testing.T) {
	for word, ok := range map[string]bool{"planning": true, "execution": true, "": false, "Planning": false, "execution ": false, "exec": false, "unknown": false, "planning\x00": false} {
		if p, err := ParsePhase(word); (err == nil) != ok || ok && string(p) != word {
			t.Errorf("%q: %q, %v", word, p, err)
		}
	}
}

// Every move on a closed session is refused, but for what has come in all the same and what a person takes away.
func TestClosedIsFinal(t *testing.T) {
	s, err := fresh().Raise(held("internal")...).Close(t0)
	if err != nil {
		t.Fatal(err)
	}
	for name, move := range map[string]func(Session) (Session, error){
		"phase":  func(s Session) (Session, error) { return s.SetPhase(Execution, "person:alice") },
		"plan":   func(s Session) (Session, error) { return s.SubmitPlan(plan(PlanApproved)) },
		"decide": func(s Session) (Session, error) { return s.DecidePlan("d", true, "person:p", "", false, t0) },
		"close":  func(s Session) (Session, error) { return s.Close(t0) },
	} {
		if after, err := move(s); !fault.Is(err, fault.SessionClosed) || after.Version != s.Version {
			t.Errorf("%s on a closed session: %v", name, err)
		}
	}
	if after := s.Raise(held("secret")...); !after.Holds("secret") {
		t.Error("what came into a closed session is lost")
	}
	if after, err := s.Release([]flow.Label{"internal"}); err != nil || after.Holds("internal") {
		t.Errorf("a person can't release a closed session's label: %v", err)
	}
}

func TestPlans(t *testing.T) {
	approved, err := fresh().SubmitPlan(plan(PlanApproved))
	if err != nil || approved.Phase != Execution || approved.Plan.State != PlanApproved {
		t.Fatalf("%+v %v", approved, err)
	}
	for _, state := range []PlanState{PlanPending, PlanRejected} {
		if s, err := fresh().SubmitPlan(plan(state)); err != nil || s.Phase != Planning {
			t.Errorf("%s: %+v %v", state, s, err)
		}
		if _, err := approved.SubmitPlan(plan(state)); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s replaced a sealed plan: %v", state, err)
		}
	}
	if _, err := fresh().SubmitPlan(plan("maybe")); err == nil {
		t.Error("a plan of an unknown state was taken")
	}
	if _, err := approved.SubmitPlan(plan(PlanApproved)); err != nil {
		t.Errorf("a clean session can't plan again: %v", err)
	}
	if _, err := approved.Raise(held("untrusted")...).SubmitPlan(plan(PlanApproved)); !fault.Is(err, fault.Conflict) {
		t.Errorf("a sealed plan was replaced after content came in: %v", err)
	}
	back, err := approved.SetPhase(Planning, "person:alice")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := back.SubmitPlan(plan(PlanApproved)); !fault.Is(err, fault.Conflict) {
		t.Errorf("a plan undid a person's move back to planning: %v", err)
	}

	pending, err := fresh().SubmitPlan(plan(PlanPending))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pending.DecidePlan("other", true, "person:p", "", false, t0); !fault.Is(err, fault.ApprovalMismatch) {
		t.Errorf("approved a plan under another digest: %v", err)
	}
	yes, err := pending.DecidePlan("d", true, "person:p", "fine", false, t0)
	if err != nil || yes.Phase != Execution || yes.Plan.DecidedBy != "person:p" {
		t.Errorf("%+v %v", yes, err)
	}
	if pending.Plan.State != PlanPending {
		t.Error("a decision changed the session it was made on")
	}
	no, err := pending.DecidePlan("d", false, "person:p", "no", false, t0)
	if err != nil || no.Phase != Planning || no.Plan.State != PlanRejected {
		t.Errorf("%+v %v", no, err)
	}
	if _, err := yes.DecidePlan("d", true, "person:p", "", false, t0); !fault.Is(err, fault.Conflict) {
		t.Errorf("decided twice: %v", err)
	}
}

// What only observing approved counts while the gateway observes. Enforced, the plan is over, and with it the phase that it opened; a phase that
// somebody else opened stays.
func TestEnforcingTakesBackWhatObservingApproved(t *testing.T) {
	observed, good := plan(PlanApproved), plan(PlanApproved)
	observed.DecidedBy, observed.Observed, good.DecidedBy = ByRule, true, ByRule
	started := fresh()
	started.Phase = Execution
	for name, c := range map[string]struct {
		from  Session
		plan  Plan
		over  bool
		phase Phase
	}{
		"that would have been approved":       {fresh(), good, false, Execution},
		"that would not":                      {fresh(), observed, true, Planning},
		"that would not, where sessions act":  {started, observed, true, Execution},
		"that would have, where sessions act": {started, good, false, Execution},
	} {
		s, err := c.from.SubmitPlan(c.plan)
		if err != nil {
			t.Fatal(err)
		}
		if s.PhaseAt(0, true) != Execution || s.TakenBack(0, true) {
			t.Errorf("a plan %s: it doesn't count while observing", name)
		}
		if s.PhaseAt(0, false) != c.phase || s.TakenBack(0, false) != c.over {
			t.Errorf("a plan %s: %s, over %v", name, s.PhaseAt(0, false), s.TakenBack(0, false))
		}
		after, err := s.TakeBack(0, false, "rule:enforce", "because", t0)
		if !c.over {
			if !fault.Is(err, fault.Conflict) {
				t.Errorf("a plan %s: %v", name, err)
			}
			continue
		}
		if err != nil || after.Phase != c.phase || after.Plan.State != PlanRejected || after.Plan.Reason != "because" || s.Plan.State != PlanApproved || after.TakenBack(0, false) {
			t.Errorf("a plan %s: %+v %v", name, after, err)
		}
	}
}

// The execution phase that a person's yes to a plan opened lasts until the agent is stopped. What opened it in another way is not taken back.
func TestStopTakesBackWhatAPlanOpened(t *testing.T) {
	must := func(s Session, err error) Session {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	waits, byRule := plan(PlanPending), plan(PlanApproved)
	waits.StopEpoch, byRule.DecidedBy = 3, ByRule
	agreed := func(s Session) Session {
		return must(must(s.SubmitPlan(waits)).DecidePlan("d", true, "person:p", "", false, t0))
	}
	moved := func(s Session, to Phase) Session { return must(s.SetPhase(to, "person:p")) }
	started := fresh()
	started.Phase = Execution
	for name, c := range map[string]struct {
		s    Session
		back bool
	}{
		"by the plan":                    {agreed(fresh()), true},
		"by a person before":             {agreed(moved(fresh(), Execution)), false},
		"by a person after":              {moved(moved(agreed(fresh()), Planning), Execution), false},
		"by a person who says it again":  {moved(agreed(fresh()), Execution), false},
		"by the operator's startPhase":   {agreed(started), false},
		"by a rule":                      {must(fresh().SubmitPlan(byRule)), false},
		"in planning":                    {fresh(), false},
		"by a rule, before the person's": {func() Session { s := fresh(); s.Phase, s.PhaseBy = Execution, ByRule; return agreed(s) }(), true},
	} {
		s := c.s
		if s.PhaseAt(3, false) != s.Phase {
			t.Errorf("%s: %s without a stop", name, s.PhaseAt(3, false))
		}
		after, err := s.TakeBack(4, false, "rule:stopped", "because", t0)
		if !c.back {
			if s.PhaseAt(4, false) != s.Phase || !fault.Is(err, fault.Conflict) {
				t.Errorf("%s: %s, %v", name, s.PhaseAt(4, false), err)
			}
			continue
		}
		if s.PhaseAt(4, false) != Planning || err != nil || after.Phase != Planning || after.Opened != nil || after.Plan.State != PlanRejected || after.Plan.Reason != "because" || after.Version <= s.Version {
			t.Errorf("%s: %s, %+v, %v", name, s.PhaseAt(4, false), after, err)
		}
		if s.Plan.State != PlanApproved {
			t.Errorf("%s: the session that it was made of changed", name)
		}
		if _, err := after.TakeBack(5, false, "rule:stopped", "", t0); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: twice: %v", name, err)
		}
		if again := must(must(after.SubmitPlan(func() Plan { p := waits; p.StopEpoch = 4; return p }())).DecidePlan("d", true, "person:p", "", false, t0)); again.PhaseAt(4, false) != Execution || again.PhaseAt(5, false) != Planning {
			t.Errorf("%s: another plan: %+v", name, again)
		}
		if _, err := must(s.Close(t0)).TakeBack(4, false, "rule:stopped", "", t0); !fault.Is(err, fault.SessionClosed) {
			t.Errorf("%s: closed: %v", name, err)
		}
	}
}

func TestPlanDigestBindsEverything(t *testing.T) {
	steps := func() []Step {
		each := 1
		return []Step{{Tool: "a", Operation: "s.a", Arguments: []byte(`{"x":1}`), From: map[string]provenance.Source{"y": {Step: 1, Field: "sender"}}, Open: []string{"z"}, Each: &each, After: []int{1}, Justification: "why"}, {Tool: "b", Operation: "s.b", Justification: "why"}}
	}
	base := PlanDigest("sess_1", "agent", steps())
	if PlanDigest("sess_1", "agent", steps()) != base {
		t.Fatal("not deterministic")
	}
	for name, change := range map[string]func(s []Step) []Step{
		"tool": func(s []Step) []Step { s[0].Tool = "c"; return s }, "definition": func(s []Step) []Step { s[0].Definition = "h"; return s }, "operation": func(s []Step) []Step { s[0].Operation = "s.c"; return s },
		"arguments": func(s []Step) []Step { s[0].Arguments = []byte(`{"x":2}`); return s }, "after": func(s []Step) []Step { s[0].After = nil; return s },
		"justification": func(s []Step) []Step { s[0].Justification = "because"; return s }, "order": func(s []Step) []Step { slices.Reverse(s); return s },
		"length": func(s []Step) []Step { return s[:1] },
		"from":   func(s []Step) []Step { s[1].From = map[string]provenance.Source{"to": {Field: "sender"}}; return s },
		"field": func(s []Step) []Step {
			s[0].From = map[string]provenance.Source{"y": {Step: 1, Field: "other"}}
			return s
		},
		"source": func(s []Step) []Step {
			s[0].From = map[string]provenance.Source{"y": {Step: 2, Field: "sender"}}
			return s
		},
		"role": func(s []Step) []Step {
			s[0].From = map[string]provenance.Source{"y": {Step: 1, Role: provenance.Target}}
			return s
		},
		"open": func(s []Step) []Step { s[0].Open = nil; return s },
		"each": func(s []Step) []Step { s[0].Each = nil; return s },
	} {
		if PlanDigest("sess_1", "agent", change(steps())) == base {
			t.Errorf("the digest does not bind the %s", name)
		}
	}
	if PlanDigest("sess_2", "agent", steps()) == base || PlanDigest("sess_1", "other", steps()) == base {
		t.Error("the digest does not bind session and agent")
	}
}

// Whatever happens, versions only grow, labels are only lost to Release, nothing that was returned before is changed by a later move,
// and a refused move changes nothing.
func TestMovesArePureAndLabelsOnlyRise(t *testing.T) {
	words := []flow.Label{"internal", "pii", "secret", flow.Untrusted}
	rapid.Check(t, func(t *rapid.T) {
		s := fresh()
		for range rapid.IntRange(1, 30).Draw(t, "moves") {
			before := s
			labels := slices.Clone(s.Labels)
			var next Session
			var err error
			released := false
			switch rapid.IntRange(0, 5).Draw(t, "move") {
			case 0:
				next = s.Raise(held(rapid.SliceOfN(rapid.SampledFrom(words), 0, 3).Draw(t, "raise")...)...)
			case 1:
				next, err = s.Release([]flow.Label{rapid.SampledFrom(words).Draw(t, "release")})
				released = err == nil
			case 2:
				next, err = s.SetPhase(rapid.SampledFrom([]Phase{Planning, Execution, "x"}).Draw(t, "phase"), "person:alice")
			case 3:
				next, err = s.SubmitPlan(plan(rapid.SampledFrom([]PlanState{PlanApproved, PlanPending, PlanRejected}).Draw(t, "plan")))
			case 4:
				next, err = s.DecidePlan("d", rapid.Bool().Draw(t, "approve"), "person:p", "", false, t0)
			case 5:
				if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
					next, err = s.Close(t0)
				} else {
					next = s
				}
			}
			if !slices.Equal(before.Labels, labels) {
				t.Fatal("a move changed the labels of the session it was made on")
			}
			if err != nil {
				if next.Version != before.Version {
					t.Fatalf("a refused move changed the version: %v", err)
				}
				continue
			}
			if next.Version < before.Version {
				t.Fatal("the version fell")
			}
			if !released {
				for _, h := range before.Labels {
					if !next.Holds(h.Label) {
						t.Fatalf("%s was lost without a release", h.Label)
					}
				}
			}
			if (len(next.Labels) != len(before.Labels) || next.Phase != before.Phase || next.State != before.State) && next.Version == before.Version {
				t.Fatal("what decisions depend on changed, and the version did not")
			}
			s = next
		}
	})
}

func TestBudgetLeft(t *testing.T) {
	s := fresh()
	s.Budget = time.Second
	for used, left := range map[time.Duration]time.Duration{0: time.Second, time.Second - 1: 1, time.Second: 0, time.Hour: 0} {
		if s.Used = used; s.BudgetLeft() != left {
			t.Errorf("used %s: left %s", used, s.BudgetLeft())
		}
	}
}

// A plan that was written before plans said what is taken from results decodes as what it was, under the digest that it had: its steps still
// fix what they fixed, and a rule's confirms nothing, since nobody knows whether the session was clean.
func TestOldPlansDecode(t *testing.T) {
	const old = `{"session_id":"sess_1","agent_id":"a","phase":"execution","state":"open","labels":[],"version":3,"plan":{"plan_id":"plan_1","digest":"3f06a4ecf8da3ad4a3a4a41ea24b6b0f0e1a3d7f","state":"approved","decided_by":"rule",
		"steps":[{"tool":"t","operation":"s.t","arguments":{"x":1},"after":[0],"justification":"why"},{"tool":"u","operation":"s.u","justification":"why"}],"submitted":"2026-01-02T03:04:05Z"}}`
	var s Session
	if err := json.Unmarshal([]byte(old), &s); err != nil {
		t.Fatal(err)
	}
	sealed := s.Plan.Sealed()
	if sealed.Confirms() || sealed.Steps[0].FixesNothing() || !sealed.Steps[1].FixesNothing() {
		t.Errorf("%+v", sealed)
	}
	if f, ok := sealed.Follow("s.t", nil, []byte(`{"x":1}`), nil); !ok || !f.Fixed || f.Confirmed {
		t.Errorf("%+v", f)
	}
	s.Plan.DecidedBy = "person:p"
	if f, ok := s.Plan.Sealed().Follow("s.t", nil, []byte(`{"x":1}`), nil); !ok || !f.Confirmed {
		t.Errorf("%+v", f)
	}
	b, err := json.Marshal(s.Plan.Steps)
	if err != nil || string(b) != `[{"tool":"t","operation":"s.t","arguments":{"x":1},"after":[0],"justification":"why"},{"tool":"u","operation":"s.u","justification":"why"}]` {
		t.Errorf("the digest would be another: %s, %v", b, err)
	}
}

func TestCleanIsWhatThePlanWasSealedIn(t *testing.T) {
	dirty := fresh().Raise(held("internal")...)
	for name, c := range map[string]struct {
		s    Session
		p    Plan
		want bool
	}{
		"clean": {fresh(), plan(PlanApproved), true}, "dirty": {dirty, plan(PlanApproved), false},
		"said to be clean": {dirty, Plan{ID: "p", Digest: "d", State: PlanApproved, Clean: true, Done: []provenance.Done{{CallID: "c"}}}, false},
	} {
		s, err := c.s.SubmitPlan(c.p)
		if err != nil || s.Plan.Clean != c.want || s.Plan.Done != nil {
			t.Errorf("%s: %+v, %v", name, s.Plan, err)
		}
	}
	pending, err := fresh().SubmitPlan(plan(PlanPending))
	if err != nil || pending.Plan.Sealed() != nil {
		t.Fatalf("%+v, %v", pending.Plan, err)
	}
	for labels, want := range map[flow.Label]bool{"": true, "internal": false} {
		s := pending
		if labels != "" {
			s = s.Raise(held(labels)...)
		}
		if s, err = s.DecidePlan("d", true, "person:p", "", false, t0); err != nil || s.Plan.Clean != want || !s.Plan.Sealed().Person {
			t.Errorf("%q: %+v, %v", labels, s.Plan, err)
		}
	}
}

func TestTake(t *testing.T) {
	p := plan(PlanApproved)
	p.Steps = []Step{{Operation: "s.a"}, {Operation: "s.b"}, {Operation: "s.c"}, {Operation: "s.d"}}
	s, err := fresh().SubmitPlan(p)
	if err != nil {
		t.Fatal(err)
	}
	one, err := s.Take(provenance.Done{Step: 0, CallID: "c0"})
	if err != nil || one.Version != s.Version || len(one.Plan.Done) != 1 || s.Plan.Done != nil || !s.Behind(one) || one.Behind(s) || s.Behind(s) {
		t.Errorf("%+v, %v", one.Plan, err)
	}
	if _, err := one.Take(provenance.Done{Step: 0, CallID: "c1"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("twice: %v", err)
	}
	two, err := one.Take(provenance.Done{Step: 1, CallID: "c1"})
	other, err2 := one.Take(provenance.Done{Step: 1, CallID: "c2"})
	if err != nil || err2 != nil || two.Plan.Done[1].CallID != "c1" || other.Plan.Done[1].CallID != "c2" {
		t.Errorf("%+v %+v", two.Plan, other.Plan)
	}
	three, err := two.Take(provenance.Done{Step: 2, CallID: "c3"})
	if err != nil {
		t.Fatal(err)
	}
	four, err := three.Take(provenance.Done{Step: 3, CallID: "c4"})
	other, err2 = three.Take(provenance.Done{Step: 3, CallID: "c5"})
	if err != nil || err2 != nil || four.Plan.Done[3].CallID != "c4" || other.Plan.Done[3].CallID != "c5" {
		t.Errorf("a move changed what an earlier one returned: %+v %+v", four.Plan.Done, other.Plan.Done)
	}
	if rejected := (&Plan{State: PlanRejected, DecidedBy: "person:p"}); rejected.ByPerson() {
		t.Error("a person approved what a person rejected")
	}
	for name, s := range map[string]Session{"no plan": fresh(), "pending": func() Session { s, _ := fresh().SubmitPlan(plan(PlanPending)); return s }()} {
		if _, err := s.Take(provenance.Done{CallID: "c"}); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	closed, _ := s.Close(t0)
	if _, err := closed.Take(provenance.Done{CallID: "c"}); !fault.Is(err, fault.SessionClosed) {
		t.Errorf("closed: %v", err)
	}
	later := s
	later.Used++
	if newer := s.Raise(held("x")...); !s.Behind(later) || later.Behind(s) || !later.Behind(newer) || newer.Behind(later) {
		t.Error("what is newer is not told")
	}
}

// TestRaiseTellsOfContentFirst: a label that was held because of what was listed names the call that brought it, once there is one.
func TestRaiseTellsOfContentFirst(t *testing.T) {
	listed := flow.Held{Label: flow.Untrusted, Cause: "definitions of files, which no person accepted"}
	called := flow.Held{Label: flow.Untrusted, Operation: "web.search", CallID: "call_1"}
	later := flow.Held{Label: flow.Untrusted, Operation: "web.search", CallID: "call_2"}
	s := New("a", Planning, "agent:a", time.Now()).Raise(listed)
	before := s
	next := s.Raise(called)
	if len(next.Labels) != 1 || next.Labels[0] != called || !before.Behind(next) {
		t.Errorf("%+v", next)
	}
	if before.Labels[0] != listed {
		t.Error("a move changed the session before it")
	}
	for _, h := range []flow.Held{listed, later} {
		if again := next.Raise(h); again.Labels[0] != called || again.Version != next.Version {
			t.Errorf("%+v", again)
		}
	}
}

// What was found is bounded, so that a release can name it in one entry; of what there is most, the oldest goes. Only what was found for a label is released for it.
func TestWhatIsFoundIsBoundedAndReleased(t *testing.T) {
	s := fresh().Raise(held("pii", "secret")...)
	before := s.Version
	few, grew := s.AddFound(Found{"secret": {"key"}})
	if !grew || len(s.Found) != 0 || few.Version != before {
		t.Errorf("%v, found before %v, version %d of %d", grew, s.Found, few.Version, before)
	}
	if _, grew := few.AddFound(Found{"secret": {"key"}}); grew {
		t.Error("what is known is found again")
	}
	var many []string
	for i := range 5000 {
		many = append(many, fmt.Sprintf("part %017d", i))
	}
	much, _ := few.AddFound(Found{"pii": many})
	if got := much.Found["pii"]; len(got) != 1023 || got[1022] != many[4999] || len(much.Found["secret"]) != 1 {
		t.Errorf("%d parts, the newest %s, and %d", len(got), got[len(got)-1], len(much.Found["secret"]))
	}
	after, err := much.Release([]flow.Label{"pii"}, "delivered")
	if err != nil || !after.IsReleased("pii", many[4999]) || !after.IsReleased("pii", "delivered") || after.IsReleased("secret", "delivered") || after.IsReleased("pii", "key") || len(after.Found["pii"]) != 0 || len(after.Found["secret"]) != 1 || much.IsReleased("pii", many[4999]) {
		t.Errorf("%v: released %d, found %v", err, len(after.Released["pii"]), after.Found)
	}
	for range 3 {
		again, _ := after.Raise(held("pii")...).AddFound(Found{"pii": many})
		for i := range many {
			many[i] += "'"
		}
		if after, err = again.Release([]flow.Label{"pii"}); err != nil || len(after.Released["pii"]) > 2048 {
			t.Errorf("%v: %d", err, len(after.Released["pii"]))
		}
	}
	if closed, err := after.Close(t0); err != nil || closed.Found != nil || closed.Released != nil {
		t.Errorf("a closed session keeps them: %v", err)
	}
}
