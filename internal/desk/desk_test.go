package desk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/session"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var bob = approval.Voter{Person: "bob", Roles: []identity.Role{identity.Approver}}

// question is one that was asked at noon and is good for an hour.
func question(t testing.TB, change ...func(*approval.Approval)) approval.Approval {
	t.Helper()
	a := approval.Approval{
		CallDigest: strings.Repeat("d", 64), Risk: "HIGH", Operation: "bank.transfer", DefinitionHash: "hash", Arguments: json.RawMessage(`{"to":"acme@example.com","amount":5}`),
		Session: "sess_1", Agent: "worker", Requester: "erin", OpenedBy: "host:ci", Environment: "here", StopEpoch: 2,
	}
	for _, f := range change {
		f(&a)
	}
	a, err := approval.New(a, noon, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// stoppedSince makes it one of before the agent's newest stop.
func stoppedSince(a *approval.Approval) { a.StopEpoch = 1 }

func silent(a *approval.Approval) { a.Risk, a.SilenceAt = "MEDIUM", noon.Add(time.Minute) }

// after is the question after a move.
func after(t testing.TB, a approval.Approval, move func(approval.Approval) (approval.Approval, error)) *Stored {
	t.Helper()
	a, err := move(a)
	if err != nil {
		t.Fatal(err)
	}
	return &Stored{Approval: a}
}

// What people can't read is not asked: whatever takes the place of a question that waits takes no more room, and more than people could stop is not
// left to silence.
func TestPlaceIsBounded(t *testing.T) {
	waiting := &Stored{Approval: question(t)}
	approved := after(t, question(t), func(a approval.Approval) (approval.Approval, error) { return a.Approve(bob, a.Digest, "", noon) })
	deferred := after(t, question(t), func(a approval.Approval) (approval.Approval, error) {
		return a.Defer(bob, a.Digest, time.Time{}, noon)
	})
	tooMany := errors.New("too many wait")
	for name, c := range map[string]struct {
		found Found
		next  approval.Approval
		want  error
	}{
		"nothing waits":                   {Found{}, question(t), nil},
		"the last of the session":         {Found{OpenOfSession: maxOpen - 1}, question(t), nil},
		"one more of the session":         {Found{OpenOfSession: maxOpen}, question(t), tooMany},
		"the last of the agent":           {Found{OpenOfAgent: maxOpenOfAgent - 1}, question(t), nil},
		"one more of the agent":           {Found{OpenOfAgent: maxOpenOfAgent}, question(t), tooMany},
		"instead of one that waits":       {Found{Same: waiting, OpenOfSession: maxOpen, OpenOfAgent: maxOpenOfAgent}, question(t), nil},
		"instead of one put off":          {Found{Same: deferred, OpenOfSession: maxOpen, OpenOfAgent: maxOpenOfAgent}, question(t), nil},
		"instead of one approved":         {Found{Same: approved, OpenOfSession: maxOpen}, question(t), tooMany},
		"with other arguments":            {Found{Replaced: waiting, OpenOfSession: maxOpen, OpenOfAgent: maxOpenOfAgent}, question(t), nil},
		"the last left to silence":        {Found{SilentOfAgent: maxSilent - 1}, question(t, silent), nil},
		"one more left to silence":        {Found{SilentOfAgent: maxSilent}, question(t, silent), ErrTooManySilent},
		"silent instead of one":           {Found{Same: waiting, SilentOfAgent: maxSilent}, question(t, silent), ErrTooManySilent},
		"a yes with many left to silence": {Found{SilentOfAgent: maxSilent}, question(t), nil},
	} {
		w, err := typeless().place(c.found, c.next, noon)
		switch {
		case c.want == tooMany && fault.Is(err, fault.LimitQuota), c.want != nil && errors.Is(err, c.want):
		case c.want == nil && err == nil && w.Question != nil && w.Question.ID == c.next.ID:
		default:
			t.Errorf("%s: %+v, %v", name, w.Question, err)
		}
	}
}

// A new question takes the place of the older one about the same call, and of its declaration, but for a no, which stays a no.
func TestSupersede(t *testing.T) {
	d, err := declare.New(declare.Declaration{
		Session: "sess_1", Agent: "worker", Requester: "erin", Operation: "bank.transfer", DefinitionHash: "hash", Parameters: json.RawMessage(`{}`), Risk: "HIGH",
	}, noon, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	about := func(a *approval.Approval) { a.DeclarationID = d.ID }
	old := Stored{Approval: question(t, about), Declaration: &d}
	for name, next := range map[string]approval.Approval{"of the same declaration": question(t, about), "of none": question(t)} {
		updates, err := typeless().supersede(old, next, noon)
		if err != nil || len(updates) != 1 || updates[0].Approval.State != approval.Superseded || updates[0].Entry.Action != "approval.supersede" {
			t.Fatalf("%s: %+v, %v", name, updates, err)
		}
		if state := updates[0].Declaration.State; (state == declare.Pending) != (next.DeclarationID == d.ID) {
			t.Errorf("%s: the declaration is %s", name, state)
		}
	}
	no := after(t, question(t), func(a approval.Approval) (approval.Approval, error) { return a.Reject(bob, a.Digest, "no", noon) })
	if _, err := typeless().supersede(*no, question(t), noon); !fault.Is(err, fault.ApprovalRejected) {
		t.Errorf("a no does not stay: %v", err)
	}
	if updates, err := typeless().supersede(old, question(t), noon.Add(2*time.Hour)); err != nil || updates != nil {
		t.Errorf("one that expired is withdrawn: %+v, %v", updates, err)
	}
}

// An answer stands for the gateway that asked, as long as nothing that was shown has changed; silence only where people could object.
func TestStands(t *testing.T) {
	d := New(Options{Environment: "here", Since: noon, StopEpoch: func(string) int64 { return 2 }})
	yes := func(approval.Approval) bool { return true }
	for name, c := range map[string]struct {
		a    approval.Approval
		call func(approval.Approval) bool
		want bool
	}{
		"about the call":             {question(t), yes, true},
		"about another call":         {question(t), func(approval.Approval) bool { return false }, false},
		"of another gateway":         {question(t, func(a *approval.Approval) { a.Environment = "there" }), yes, false},
		"changed since":              {func() approval.Approval { a := question(t); a.Operation = "bank.close"; return a }(), yes, false},
		"before the agent's stop":    {question(t, stoppedSince), yes, false},
		"silence, people could look": {question(t, silent), yes, true},
		"silence, nobody could":      {question(t, silent).Begin(noon.Add(-time.Second)), yes, false},
		"a yes of an earlier day":    {question(t).Begin(noon.Add(-time.Hour)), yes, true},
	} {
		if got := d.stands(c.a, c.call); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A drill differs from what was asked in its destinations, which are of the same form, and is of no call.
func TestDrillDiffersInItsDestination(t *testing.T) {
	asked := question(t, func(a *approval.Approval) {
		a.Evidence = []approval.Finding{{Argument: "to", Role: "destination", Value: "acme@example.com", Confirmed: true, By: "words", Text: "the person named it"}}
	})
	q := Draft{Roles: map[string]string{"to": "destination", "amount": "amount"}, Reasons: func(a approval.Approval) []approval.Reason { return a.Reasons }}
	bad, ok := withOtherDestination(asked, q)
	if !ok {
		t.Fatal("there is a destination, and no drill")
	}
	var args struct {
		To     string
		Amount int
	}
	if err := json.Unmarshal(bad.Arguments, &args); err != nil || args.Amount != 5 || args.To == "acme@example.com" || !slices.Contains(decoys[0].destinations, args.To) {
		t.Errorf("%s, %v", bad.Arguments, err)
	}
	if bad.CallDigest == asked.CallDigest || fmt.Sprint(bad.Destinations) != fmt.Sprintf("[%q]", args.To) || bad.Evidence[0].Confirmed || bad.Evidence[0].Value != args.To {
		t.Errorf("%+v", bad)
	}
	if !asked.Evidence[0].Confirmed {
		t.Error("the real question was changed")
	}
	if _, ok := withOtherDestination(asked, Draft{Roles: map[string]string{"amount": "amount"}, Reasons: q.Reasons}); ok {
		t.Error("a drill of a call without a destination")
	}
}

// shelf is a store with one approval and what it is about. What it has not is not needed here.
type shelf struct {
	Store
	a           approval.Approval
	declaration declare.Declaration
	session     session.State
	drill       bool
	found       Found
	asked       int
	recorded    []audit.Entry
}

func (s *shelf) Approval(context.Context, string) (approval.Approval, error) { return s.a, nil }
func (s *shelf) ApprovalFor(context.Context, string, string) (approval.Approval, error) {
	return s.a, nil
}
func (s *shelf) Approvals(context.Context, Filter) ([]approval.Approval, error) {
	return []approval.Approval{s.a}, nil
}
func (s *shelf) OpenApprovals(context.Context, string, time.Time, int) ([]string, error) {
	return []string{s.a.ID}, nil
}
func (s *shelf) Declaration(context.Context, string) (declare.Declaration, error) {
	return s.declaration, nil
}
func (s *shelf) IsDrill(context.Context, string) (bool, error) { return s.drill, nil }
func (s *shelf) Session(context.Context, string) (session.Session, error) {
	return session.Session{State: s.session}, nil
}
func (s *shelf) Record(_ context.Context, e ...audit.Entry) error {
	s.recorded = append(s.recorded, e...)
	return nil
}
func (s *shelf) ChangeApproval(_ context.Context, _ string, change func(Stored) (Update, error)) (approval.Approval, error) {
	u, err := change(Stored{Approval: s.a})
	return u.Approval, err
}
func (s *shelf) AskPerson(_ context.Context, _ Ask, decide func(Found) (Written, error)) (approval.Approval, error) {
	s.asked++
	w, err := decide(s.found)
	if err != nil {
		return approval.Approval{}, err
	}
	if w.Question == nil {
		return s.found.Same.Approval, nil
	}
	return *w.Question, nil
}

// over is a desk with a shelf behind it. Bob is an approver, and the tools are as they were.
func over(s *shelf) *Desk {
	return New(Options{
		ActionType: func(string) string { return "" },
		Store:      s, Environment: "here", Expires: func() time.Duration { return time.Hour }, DrillEvery: func() int { return 0 }, Now: func() time.Time { return noon }, Since: noon, Changed: func(string) {},
		Voter:      func(person string) (approval.Voter, bool) { return bob, person == bob.Person },
		Definition: func(string) (Definition, bool) { return Definition{Hash: "hash"}, true },
		StopEpoch:  func(string) int64 { return 2 },
	})
}

// An answer that can't count is not taken, and is on record; the same answer otherwise is.
func TestAnswersThatDoNotCount(t *testing.T) {
	approved := func(s *shelf) {
		s.a = after(t, s.a, func(a approval.Approval) (approval.Approval, error) { return a.Approve(bob, a.Digest, "", noon) }).Approval
	}
	for name, c := range map[string]struct {
		spoil    func(*shelf)
		voter    string
		decision approval.Decision
		want     fault.Code
	}{
		"a yes":                          {func(*shelf) {}, "bob", approval.Approve, ""},
		"of somebody unknown":            {func(*shelf) {}, "mallory", approval.Approve, fault.RoleMissing},
		"yes to a session that is over":  {func(s *shelf) { s.session = session.Closed }, "bob", approval.Approve, fault.SessionClosed},
		"no to a session that is over":   {func(s *shelf) { s.session = session.Closed }, "bob", approval.Reject, ""},
		"yes to a tool that has changed": {func(s *shelf) { s.a = question(t, func(a *approval.Approval) { a.DefinitionHash = "old" }) }, "bob", approval.Approve, fault.ApprovalMismatch},
		"no to a tool that has changed":  {func(s *shelf) { s.a = question(t, func(a *approval.Approval) { a.DefinitionHash = "old" }) }, "bob", approval.Reject, ""},
		"no to what was approved":        {approved, "bob", approval.Reject, ""},
		"no to a drill after a yes":      {func(s *shelf) { approved(s); s.drill = true }, "bob", approval.Reject, fault.Conflict},
		"yes after the agent's stop":     {func(s *shelf) { s.a = question(t, stoppedSince) }, "bob", approval.Approve, fault.ApprovalMismatch},
		"later, after the agent's stop":  {func(s *shelf) { s.a = question(t, stoppedSince) }, "bob", approval.Deferral, fault.ApprovalMismatch},
		"no after the agent's stop":      {func(s *shelf) { s.a = question(t, stoppedSince) }, "bob", approval.Reject, ""},
		"no such decision":               {func(*shelf) {}, "bob", "perhaps", fault.RequestMalformed},
	} {
		s := &shelf{a: question(t), session: session.Open}
		c.spoil(s)
		_, err := over(s).Respond(t.Context(), approval.Voter{Person: c.voter, Roles: bob.Roles}, Response{Approval: s.a.ID, Digest: s.a.Digest, Decision: c.decision, Reason: "because"})
		if c.want == "" && (err != nil || len(s.recorded) > 0) || c.want != "" && (!fault.Is(err, c.want) || len(s.recorded) != 1 || s.recorded[0].Code != string(c.want)) {
			t.Errorf("%s: %v, %+v", name, err, s.recorded)
		}
	}
}

// Nobody is asked about what nobody reads, nor about a declaration that another call has spent meanwhile.
func TestNobodyIsAskedInVain(t *testing.T) {
	long := json.RawMessage(`{"text":"` + strings.Repeat("x", MaxArguments) + `"}`)
	fresh, err := declare.New(declare.Declaration{
		Session: "sess_1", Agent: "worker", Requester: "erin", Operation: "bank.transfer", DefinitionHash: "hash", Parameters: json.RawMessage(`{}`), Risk: "HIGH",
	}, noon, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	approved, err := fresh.Decide(true, declare.ByRule, "", noon)
	if err != nil {
		t.Fatal(err)
	}
	spent, err := approved.Spend("call_1", noon)
	if err != nil {
		t.Fatal(err)
	}
	of := func(d declare.Declaration) Draft {
		return Draft{Approval: question(t, func(a *approval.Approval) { a.CallDigest = d.CallDigest }), Declaration: &d}
	}
	if _, err := over(&shelf{declaration: approved}).Ask(t.Context(), of(approved)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		current declare.Declaration
		q       Draft
		want    func(error) bool
	}{
		"too long": {approved, Draft{Approval: question(t, func(a *approval.Approval) { a.Arguments = long })}, func(err error) bool { return errors.Is(err, ErrTooLong) }},
		"spent":    {spent, of(approved), func(err error) bool { return err != nil }},
	} {
		s := &shelf{declaration: c.current}
		if _, err := over(s).Ask(t.Context(), c.q); !c.want(err) || s.asked != 0 {
			t.Errorf("%s: %v, asked %d times", name, err, s.asked)
		}
	}
}

// What people have said about a call: a no is a no, whatever has changed since; a yes holds while it stands; else there is nothing.
func TestAnswer(t *testing.T) {
	yes := after(t, question(t), func(a approval.Approval) (approval.Approval, error) { return a.Approve(bob, a.Digest, "", noon) }).Approval
	no := after(t, question(t), func(a approval.Approval) (approval.Approval, error) { return a.Reject(bob, a.Digest, "no", noon) }).Approval
	void := after(t, question(t), func(a approval.Approval) (approval.Approval, error) { return a.Supersede("It changed.", noon) }).Approval
	for name, c := range map[string]struct {
		a                     approval.Approval
		stands                bool
		found, waits, refused bool
	}{
		"waits": {question(t), true, true, true, false}, "waits for something else": {question(t), false, false, false, false},
		"yes": {yes, true, true, false, false}, "yes to something else": {yes, false, false, false, false},
		"no": {no, true, true, false, true}, "no, and it has changed": {no, false, true, false, true}, "withdrawn": {void, true, false, false, false},
	} {
		got, err := over(&shelf{a: c.a}).Answer(t.Context(), c.a.Session, c.a.CallDigest, func(approval.Approval) bool { return c.stands })
		if err != nil || (got.Approval != nil) != c.found || got.Waits != c.waits || (got.Refusal != nil) != c.refused {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// Changed arguments are an object that a person can read, and other than they were.
func TestChangedArguments(t *testing.T) {
	old := json.RawMessage(`{"a":1,"b":2}`)
	if got, err := changedArguments(json.RawMessage(`{ "b": 3, "a": 1 }`), old); err != nil || string(got) != `{"a":1,"b":3}` {
		t.Errorf("%s, %v", got, err)
	}
	for name, arguments := range map[string]string{
		"no JSON": `{`, "no object": `[1]`, "as they were": `{"b":2, "a":1}`, "too long": `{"a":"` + strings.Repeat("x", MaxArguments) + `"}`,
	} {
		if _, err := changedArguments(json.RawMessage(arguments), old); !fault.Is(err, fault.RequestMalformed) || fault.Of(err).Field != "arguments" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An earlier yes covers more calls only if people gave it who still may, to this gateway, and all that was shown is as it was.
func TestCovering(t *testing.T) {
	used := func(person string, change ...func(*approval.Approval)) approval.Approval {
		return after(t, question(t, change...), func(a approval.Approval) (approval.Approval, error) {
			a, err := a.Approve(approval.Voter{Person: person, Roles: bob.Roles}, a.Digest, "", noon)
			if err != nil {
				return a, err
			}
			return a.Spend("call_1", noon)
		}).Approval
	}
	changed := used("bob")
	changed.Operation = "bank.close"
	for name, c := range map[string]struct {
		a      approval.Approval
		covers bool
		want   bool
	}{
		"bob's": {used("bob"), true, true}, "bob's, of more nobody was told": {used("bob"), false, false}, "of one who may not any more": {used("carol"), true, false},
		"another gateway's": {used("bob", func(a *approval.Approval) { a.Environment = "there" }), true, false}, "changed since": {changed, true, false},
		"another session's": {used("bob", func(a *approval.Approval) { a.Session = "sess_2" }), true, false},
	} {
		id, err := over(&shelf{a: c.a}).Covering(t.Context(), "sess_1", "bank.transfer", func(approval.Approval) bool { return c.covers })
		if err != nil || (id == c.a.ID) != c.want || (id != "") != c.want {
			t.Errorf("%s: %q, %v", name, id, err)
		}
	}
}

// An agent is told which of its questions wait, and nothing of drills.
func TestOpenQuestionsOfAnAgentAreItsOwn(t *testing.T) {
	for _, drill := range []bool{false, true} {
		d := over(&shelf{a: question(t), drill: drill})
		d.o.DrillEvery = func() int { return 10 }
		if ids, err := d.OpenOf(t.Context(), "sess_1"); err != nil || (len(ids) == 1) == drill {
			t.Errorf("drill %t: %q, %v", drill, ids, err)
		}
	}
}

// Who declares again what waits already is not asked about anew, as long as a person would be shown the same.
func TestDeclaredAgain(t *testing.T) {
	made, err := declare.New(declare.Declaration{
		Session: "sess_1", Agent: "worker", Requester: "erin", Operation: "bank.transfer", DefinitionHash: "hash", Parameters: json.RawMessage(`{}`), Risk: "HIGH",
	}, noon, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	decided, err := made.Decide(true, declare.ByRule, "", noon)
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*approval.Approval)) approval.Approval { return question(t, change) }
	same := func(*approval.Approval) {}
	for name, c := range map[string]struct {
		old         approval.Approval
		declaration *declare.Declaration
		want        bool
	}{
		"the same":            {with(same), &made, true},
		"of a call":           {with(same), nil, false},
		"decided":             {with(same), &decided, false},
		"for another reason":  {with(func(a *approval.Approval) { a.Justification = json.RawMessage(`{"x":"y"}`) }), &made, false},
		"of less risk":        {with(func(a *approval.Approval) { a.Risk = "LOW" }), &made, false},
		"of another amount":   {with(func(a *approval.Approval) { a.Amount = "7 EUR" }), &made, false},
		"under other rules":   {with(func(a *approval.Approval) { a.PolicyVersion = "2" }), &made, false},
		"of another gateway":  {with(func(a *approval.Approval) { a.Environment = "there" }), &made, false},
		"with other labels":   {with(func(a *approval.Approval) { a.Labels = []string{"pii"} }), &made, false},
		"changed by somebody": {with(func(a *approval.Approval) { a.ModifiedFrom = "appr_1" }), &made, false},
		"answered":            {after(t, with(same), func(a approval.Approval) (approval.Approval, error) { return a.Approve(bob, a.Digest, "", noon) }).Approval, &made, false},
	} {
		s := &shelf{found: Found{Same: &Stored{Approval: c.old, Declaration: c.declaration}}}
		d := made
		asked, err := over(s).AskDeclared(t.Context(), Draft{Approval: question(t), Declaration: &d})
		if err != nil || (asked.ID == c.old.ID) != c.want {
			t.Errorf("%s: asked about %s, %v", name, asked.ID, err)
		}
	}
}

// typeless is a desk that knows of no operation what action it is.
func typeless() *Desk { return &Desk{o: Options{ActionType: func(string) string { return "" }}} }
