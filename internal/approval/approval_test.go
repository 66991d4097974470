package approval

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.UTC)

const life = time.Minute

// in and late are inside and outside the life of what was opened at t0.
var in, late = t0.Add(time.Second), t0.Add(life)

func voter(person string, aliases ...string) Voter {
	return Voter{Person: person, Roles: []identity.Role{identity.Approver}, Aliases: aliases}
}

var alice, bob, carol = voter("alice", "alice@example.com"), voter("bob"), Voter{Person: "carol", Roles: []identity.Role{identity.Admin}}

func asked() Approval {
	arguments := json.RawMessage(`{"amount":12000,"to":"<ACME>"}`)
	return Approval{
		CallDigest: call.Digest("payer", "sess_1", "bank.transfer", "hash", arguments), Risk: "HIGH", Operation: "bank.transfer", DefinitionHash: "hash",
		Arguments: arguments, Session: "sess_1", Agent: "payer", Requester: "rita", OpenedBy: "person:oscar", DeclarationID: "decl_1",
		Justification: json.RawMessage(`{"user_request":"pay ACME & co"}`), Reasons: []Reason{{"risk", "approval.required", "from 10,000"}, {"flow", "flow.contaminated", "internal"}},
		Labels: []string{"internal", "untrusted"}, SessionVersion: 7, PolicyVersion: "p1",
	}
}

func open(t testing.TB, risk string) Approval {
	t.Helper()
	a := asked()
	a.Risk = risk
	a, err := New(a, t0, life)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func must(t testing.TB) func(Approval, error) Approval {
	return func(a Approval, err error) Approval {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
}

func wantCode(t *testing.T, what string, err error, code fault.Code) {
	t.Helper()
	if !fault.Is(err, code) {
		t.Errorf("%s: %v, want %s", what, err, code)
	}
}

func approved(t testing.TB, risk string) Approval {
	t.Helper()
	a := open(t, risk)
	for _, v := range []Voter{alice, bob}[:a.Needed] {
		a = must(t)(a.Approve(v, a.Digest, "fine", in))
	}
	if a.State != Approved {
		t.Fatalf("%s: %s", risk, a.State)
	}
	return a
}

func TestNew(t *testing.T) {
	for risk, want := range map[string]int{"LOW": 1, "MEDIUM": 1, "HIGH": 1, "CRITICAL": 2} { // HI-2
		if a := open(t, risk); a.Needed != want || a.State != Pending || a.Votes == nil || a.Nonce == "" || a.ID[:5] != "appr_" || a.ExpiresAt.After(t0.Add(life)) || a.ExpiresAt.Nanosecond()%1e6 != 0 {
			t.Errorf("%s: %+v", risk, a)
		}
	}
	if a, b := open(t, "HIGH"), open(t, "HIGH"); a.Digest == b.Digest || a.Nonce == b.Nonce {
		t.Error("two requests have one digest")
	}
	decided := asked()
	decided.State, decided.Votes, decided.SpentBy, decided.Needed = Approved, []Vote{{Person: "mallory", Decision: Approve}}, "call_1", -1
	if a := must(t)(New(decided, t0, life)); a.State != Pending || len(a.Votes) != 0 || a.SpentBy != "" || a.Needed != 1 {
		t.Errorf("a new approval is decided: %+v", a)
	}
	for name, spoil := range map[string]func(*Approval){
		"risk": func(a *Approval) { a.Risk = "high" }, "no risk": func(a *Approval) { a.Risk = "" }, "call": func(a *Approval) { a.CallDigest = "" },
		"session": func(a *Approval) { a.Session = "" }, "agent": func(a *Approval) { a.Agent = "" }, "operation": func(a *Approval) { a.Operation = "" },
		"opener": func(a *Approval) { a.OpenedBy = "" }, "arguments": func(a *Approval) { a.Arguments = json.RawMessage(`[]`) }, "no arguments": func(a *Approval) { a.Arguments = nil },
		"justification": func(a *Approval) { a.Justification = json.RawMessage(`"because"`) },
		"duplicate key": func(a *Approval) { a.Arguments = json.RawMessage(`{"to":"a","to":"b"}`) }, "case variant": func(a *Approval) { a.Arguments = json.RawMessage(`{"to":"a","To":"b"}`) },
	} {
		bad := asked()
		spoil(&bad)
		_, err := New(bad, t0, life)
		wantCode(t, name, err, fault.Internal)
	}
	if _, err := New(asked(), t0, 0); err == nil {
		t.Error("taken without a life")
	}
}

// Everything about the files that a call reads is in the digest.
func TestDigestBindsInputs(t *testing.T) {
	file, folder := call.InputFile{Path: "run.sh", Size: 3, SHA256: "a"}, call.InputFolder{Entries: 1, Size: 3, SHA256: "b"}
	seen := map[string]int{}
	for i, in := range []*call.Inputs{
		nil, {}, {Files: []call.InputFile{file}}, {Files: []call.InputFile{file, file}}, {Workspace: &folder}, {Files: []call.InputFile{file}, Workspace: &folder},
		{Files: []call.InputFile{{Path: "run.s", Size: 3, SHA256: "a"}}}, {Files: []call.InputFile{{Path: "run.sh", Size: 4, SHA256: "a"}}}, {Files: []call.InputFile{{Path: "run.sh", Size: 3, SHA256: "c"}}},
		{Workspace: &call.InputFolder{Entries: 2, Size: 3, SHA256: "b"}}, {Workspace: &call.InputFolder{Entries: 1, Size: 4, SHA256: "b"}}, {Workspace: &call.InputFolder{Entries: 1, Size: 3, SHA256: "c"}},
	} {
		a := asked()
		a.Inputs = in
		if other, twice := seen[a.digest()]; twice {
			t.Errorf("%d and %d have one digest", i, other)
		}
		seen[a.digest()] = i
	}
}

// Every field that a person is shown is in the digest, and what is approved is good only as long as each is as it was.
func TestDigestBindsEverythingShown(t *testing.T) {
	notShown := []string{"State", "Digest", "Votes", "CreatedAt", "DeferredUntil", "SpentBy", "Reason", "ReplacedBy", "IntervenedAt"}
	typ := reflect.TypeFor[Approval]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		a := approved(t, "CRITICAL")
		f := reflect.ValueOf(&a).Elem().Field(i)
		switch v := f.Addr().Interface().(type) {
		case *string:
			*v += "x"
		case *State:
			*v = "x"
		case *json.RawMessage:
			*v = json.RawMessage(`{"amount":1}`)
		case *identity.Role:
			*v = identity.Admin
		case *int:
			*v = 1
		case *int64:
			*v++
		case *[]string:
			*v = []string{"internaluntrusted", ""}
		case *[]Reason:
			*v = []Reason{{"risk", "approval.required", "from 10,000 "}, {"flow", "flow.contaminated", "internal"}}
		case *time.Time:
			*v = v.Add(time.Hour)
		case *[]Vote:
			continue
		case **call.Inputs:
			*v = &call.Inputs{}
		case *[]Finding:
			*v = []Finding{{Argument: "to", Confirmed: true}}
		default:
			t.Fatalf("no change for %s", name)
		}
		same := a.digest() == a.Digest
		if want := slices.Contains(notShown, name); same != want && name != "Digest" {
			t.Errorf("%s: in the digest: %v", name, !same)
		}
		if !slices.Contains(notShown, name) || name == "Digest" {
			err := a.Covers(a.CallDigest, in)
			wantCode(t, "covers with another "+name, err, fault.ApprovalMismatch)
			_, err = a.Spend("call_1", in)
			wantCode(t, "spend with another "+name, err, fault.ApprovalMismatch)
			b := a
			b.State, b.Votes = Pending, nil
			_, err = b.Approve(carol, b.Digest, "", in)
			wantCode(t, "approve with another "+name, err, fault.ApprovalMismatch)
		}
	}
}

// No field or list item can run into the next.
func TestDigestSeparatesItsFields(t *testing.T) {
	text := rapid.StringOf(rapid.SampledFrom([]rune("a1:")))
	rapid.Check(t, func(t *rapid.T) {
		draw := func() Approval {
			return Approval{Session: text.Draw(t, "s"), Agent: text.Draw(t, "a"), Requester: text.Draw(t, "r"), Nonce: text.Draw(t, "n"),
				Labels:  rapid.SliceOfN(text, 0, 3).Draw(t, "labels"),
				Reasons: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Reason { return Reason{text.Draw(t, "1"), text.Draw(t, "2"), text.Draw(t, "3")} }), 0, 2).Draw(t, "reasons")}
		}
		a, b := draw(), draw()
		same := a.Session == b.Session && a.Agent == b.Agent && a.Requester == b.Requester && a.Nonce == b.Nonce && slices.Equal(a.Labels, b.Labels) && slices.Equal(a.Reasons, b.Reasons)
		if same != (a.digest() == b.digest()) {
			t.Fatalf("%+v\n%+v", a, b)
		}
	})
}

// Every state, both times, every move.
func TestEveryMove(t *testing.T) {
	moves := map[string]func(Approval, time.Time) (Approval, error){
		"approve":   func(a Approval, now time.Time) (Approval, error) { return a.Approve(carol, a.Digest, "", now) },
		"reject":    func(a Approval, now time.Time) (Approval, error) { return a.Reject(carol, a.Digest, "no", now) },
		"defer":     func(a Approval, now time.Time) (Approval, error) { return a.Defer(carol, a.Digest, time.Time{}, now) },
		"supersede": func(a Approval, now time.Time) (Approval, error) { return a.Supersede("It changed.", now) },
		"modify": func(a Approval, now time.Time) (Approval, error) {
			return a.Modify(carol, a.Digest, "no", "appr_2", now)
		},
		"spend":          func(a Approval, now time.Time) (Approval, error) { return a.Spend("call_2", now) },
		"covers":         func(a Approval, now time.Time) (Approval, error) { return a, a.Covers(a.CallDigest, now) },
		"covers another": func(a Approval, now time.Time) (Approval, error) { return a, a.Covers("another", now) },
		"covers nothing": func(a Approval, now time.Time) (Approval, error) { return a, a.Covers("", now) },
	}
	all := func(to any) map[string]any {
		m := map[string]any{}
		for name := range moves {
			m[name] = to
		}
		return m
	}
	with := func(m map[string]any, pairs ...any) map[string]any {
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i].(string)] = pairs[i+1]
		}
		return m
	}
	waiting := func() map[string]any {
		return with(all(fault.ApprovalRequired), "approve", Approved, "reject", Rejected, "defer", Deferred, "supersede", Superseded, "modify", Superseded)
	}
	permitted := func() map[string]any {
		return with(all(fault.Conflict), "reject", Rejected, "supersede", Superseded, "modify", Superseded, "spend", Spent, "covers", nil)
	}
	final := func(covers fault.Code) map[string]any {
		return with(all(fault.Conflict), "spend", covers, "covers", covers)
	}
	want := map[State][2]map[string]any{ // in time, and late
		Pending:    {waiting(), all(fault.ApprovalExpired)},
		Deferred:   {waiting(), all(fault.ApprovalExpired)},
		Approved:   {permitted(), all(fault.ApprovalExpired)},
		Rejected:   {final(fault.ApprovalRejected), final(fault.ApprovalRejected)},
		Expired:    {all(fault.ApprovalExpired), all(fault.ApprovalExpired)},
		Spent:      {final(fault.Conflict), final(fault.Conflict)},
		Superseded: {final(fault.ApprovalMismatch), final(fault.ApprovalMismatch)},
		"maybe":    {final(fault.Internal), final(fault.Internal)},
		"silent":   {with(permitted(), "approve", Approved), all(fault.ApprovalExpired)}, // pending, and silence permits by now: a yes is one more word
	}
	for _, state := range append(slices.Clone(States), "maybe", "silent") {
		a := open(t, "HIGH")
		if state == Approved || state == Spent {
			a = approved(t, "HIGH")
		}
		if a.State = state; state == "silent" {
			a = silent(t)
		}
		for i, now := range []time.Time{a.ExpiresAt.Add(-1), a.ExpiresAt} {
			for name, move := range moves {
				w, said := want[state][i][name]
				if !said {
					t.Errorf("%s at %d: %s: nothing is said about it", state, i, name)
				}
				if strings.HasPrefix(name, "covers ") {
					w = fault.ApprovalMismatch
				}
				after, err := move(a, now)
				switch w := w.(type) {
				case nil:
					if err != nil || !reflect.DeepEqual(after, a) {
						t.Errorf("%s at %d: %s: %v", state, i, name, err)
					}
				case State:
					if err != nil || after.State != w {
						t.Errorf("%s at %d: %s: %s %v, want %s", state, i, name, after.State, err, w)
					}
				case fault.Code:
					if !fault.Is(err, w) || !reflect.DeepEqual(after, a) {
						t.Errorf("%s at %d: %s: %v, want %s", state, i, name, err, w)
					}
				}
			}
		}
	}
}

func TestAnAnswerIsForWhatWasShown(t *testing.T) {
	a, other := open(t, "HIGH"), open(t, "HIGH") // one of many similar ones
	for _, digest := range []string{"", other.Digest, a.CallDigest, strings.ToUpper(a.Digest), a.Digest[:63]} {
		_, err := a.Approve(alice, digest, "", in)
		wantCode(t, "approve "+digest, err, fault.ApprovalMismatch)
		_, err = a.Reject(alice, digest, "no", in)
		wantCode(t, "reject "+digest, err, fault.ApprovalMismatch)
		_, err = a.Defer(alice, digest, time.Time{}, in)
		wantCode(t, "defer "+digest, err, fault.ApprovalMismatch)
	}
}

// An operation whose answers are an administrator's takes no other's: not to approve, reject, put off or change, not of a requester whom the operator
// lets answer, and not of one who lost the role before the call.
func TestOnlyAdminsAnswer(t *testing.T) {
	a := asked()
	a.Role = identity.Admin
	a = must(t)(New(a, t0, life))
	plain := asked()
	plain = must(t)(New(plain, t0, life))
	if plain.ID, plain.Nonce = a.ID, a.Nonce; plain.digest() == a.Digest {
		t.Error("the role is not in the digest")
	}
	changed := a
	if changed.Role = ""; changed.Intact() {
		t.Error("an approval whose role was taken away is intact")
	}
	own := func(v Voter) Voter { v.AnswersOwn = true; return v }
	for name, v := range map[string]Voter{
		"an approver": alice, "a requester whom the operator lets answer": own(voter("rita")), "the only one who answers": {Person: "rita", Roles: alice.Roles, Others: func() []Voter { return nil }},
	} {
		for what, move := range map[string]func() (Approval, error){
			"approve": func() (Approval, error) { return a.Approve(v, a.Digest, "", in) },
			"reject":  func() (Approval, error) { return a.Reject(v, a.Digest, "no", in) },
			"defer":   func() (Approval, error) { return a.Defer(v, a.Digest, time.Time{}, in) },
			"modify":  func() (Approval, error) { return a.Modify(v, a.Digest, "other ones", "appr_2", in) },
		} {
			if after, err := move(); !fault.Is(err, fault.RoleMissing) || !strings.Contains(err.Error(), "role admin") || !reflect.DeepEqual(after, a) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
	}
	// The only administrator asked for it: the approvers beside them can't answer, so they may, up to HIGH.
	alone := carol
	alone.Others = func() []Voter { return []Voter{alice} }
	hers := asked()
	hers.Role, hers.Requester, hers.Risk = identity.Admin, "carol", "HIGH"
	hers = must(t)(New(hers, t0, life))
	if after, err := hers.Approve(alone, hers.Digest, "", in); err != nil || !after.Votes[0].Own {
		t.Errorf("the only administrator: %+v %v", after.Votes, err)
	}
	alone.Others = func() []Voter { return []Voter{alice, {Person: "dan", Roles: carol.Roles}} }
	if _, err := hers.Approve(alone, hers.Digest, "", in); !fault.Is(err, fault.RoleMissing) {
		t.Errorf("one administrator of two, who asked for it: %v", err)
	}
	if _, err := hers.Approve(own(alone), hers.Digest, "", in); !fault.Is(err, fault.RoleMissing) {
		t.Errorf("one administrator of two, whom the operator lets answer what they asked for: %v", err)
	}
	high := asked()
	high.Role, high.Risk = identity.Admin, "HIGH"
	high = must(t)(New(high, t0, life))
	yes, err := high.Approve(carol, high.Digest, "", in)
	if err != nil || yes.State != Approved {
		t.Fatalf("an admin: %+v %v", yes, err)
	}
	if is := yes.Recount(func(string) (Voter, bool) { return Voter{Person: "carol", Roles: alice.Roles}, true }); is.State != Pending || is.Covers(is.CallDigest, in) == nil {
		t.Errorf("an admin who is an approver by now: %s", is.State)
	}
	if is := yes.Recount(func(string) (Voter, bool) { return carol, true }); is.Covers(is.CallDigest, in) != nil {
		t.Errorf("an admin who still is one: %s", is.State)
	}
	for what, bad := range map[string]func(*Approval){
		"another role": func(a *Approval) { a.Role = identity.Operator },
		"silence":      func(a *Approval) { a.Role, a.Risk, a.SilenceAt = identity.Admin, medium, t0.Add(time.Second) },
	} {
		b := asked()
		if bad(&b); !fault.Is(func() error { _, err := New(b, t0, life); return err }(), fault.Internal) {
			t.Errorf("%s is taken", what)
		}
	}
}

func TestWhoMayAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		requester, opened string
		voter             Voter
		want              fault.Code
	}{
		"approver":         {"rita", "person:oscar", alice, ""},
		"admin":            {"rita", "person:oscar", carol, ""},
		"nobody":           {"rita", "person:oscar", voter(" "), fault.CredentialMissing},
		"no role":          {"rita", "person:oscar", Voter{Person: "v"}, fault.RoleMissing},
		"other roles":      {"rita", "person:oscar", Voter{Person: "v", Roles: []identity.Role{identity.Viewer, identity.Operator, identity.Auditor}}, fault.RoleMissing},
		"made-up role":     {"rita", "person:oscar", Voter{Person: "v", Roles: []identity.Role{"Approver", "root"}}, fault.RoleMissing},
		"requester":        {"rita", "host:ci", voter("rita"), fault.RoleMissing},
		"in another case":  {"Rita", "host:ci", voter("rITA"), fault.RoleMissing},
		"as principal":     {"person:rita", "host:ci", voter("rita"), fault.RoleMissing},
		"by mail":          {"rita@example.com", "host:ci", voter("rita", "Rita@Example.com"), fault.RoleMissing},
		"with spaces":      {" rita ", "host:ci", voter("rita"), fault.RoleMissing},
		"other's alias":    {"rita", "host:ci", voter("r2", "rita"), fault.RoleMissing},
		"alias, principal": {"person:rita", "host:ci", voter("r2", "rita"), fault.RoleMissing},
		"opener":           {"", "person:oscar", voter("oscar"), fault.RoleMissing},
		"opener in caps":   {"", "person:oscar", voter("OSCAR"), fault.RoleMissing},
		"opener's alias":   {"", "person:oscar@example.com", voter("oscar", "oscar@example.com"), fault.RoleMissing},
		"own host":         {"rita", "host:ci", voter("harry", "host:ci"), fault.RoleMissing},
		"own token":        {"rita", "tok_1", voter("harry", "tok_1"), fault.RoleMissing},
		"own agent":        {"rita", "host:ci", voter("otto", "agent:Payer"), fault.RoleMissing},
		"admin, requester": {"carol", "host:ci", carol, fault.RoleMissing},
		// Agent created by one, run by another
		"maker":              {"bob", "host:ci", voter("alice", "agent:payer"), fault.RoleMissing},
		"runner":             {"bob", "host:ci", voter("bob"), fault.RoleMissing},
		"neither":            {"bob", "host:ci", voter("carl"), ""},
		"same as a host":     {"rita", "host:ci", voter("ci"), ""},
		"same as agent":      {"rita", "agent:payer", voter("payer"), ""},
		"no requester":       {"", "agent:payer", voter("", ""), fault.CredentialMissing},
		"an empty alias":     {"", "agent:payer", voter("alice", "", " "), ""},
		"person: and spaces": {"person: rita", "host:ci", voter("rita"), fault.RoleMissing},
		"person: alone":      {"person:", "host:ci", voter("person: "), fault.CredentialMissing},
		"part of a name":     {"rita", "host:ci", voter("rit"), ""},
		"person as alias":    {"rita", "host:ci", voter("x", "person:rita"), fault.RoleMissing},
	} {
		a := asked()
		a.Requester, a.OpenedBy = c.requester, c.opened
		a = must(t)(New(a, t0, life))
		for what, move := range map[string]func() (Approval, error){
			"approve": func() (Approval, error) { return a.Approve(c.voter, a.Digest, "", in) },
			"reject":  func() (Approval, error) { return a.Reject(c.voter, a.Digest, "no", in) },
			"defer":   func() (Approval, error) { return a.Defer(c.voter, a.Digest, time.Time{}, in) },
		} {
			after, err := move()
			if c.want == "" && err != nil || c.want != "" && (!fault.Is(err, c.want) || !reflect.DeepEqual(after, a)) {
				t.Errorf("%s: %s: %v, want %q", name, what, err, c.want)
			}
		}
	}
}

func TestTwoPeopleForCritical(t *testing.T) {
	a := open(t, "CRITICAL")
	one := must(t)(a.Approve(alice, a.Digest, "looks right", in))
	if one.State != Pending || len(one.Votes) != 1 || one.Votes[0].Comment != "looks right" || !one.Votes[0].At.Equal(in) {
		t.Fatalf("%+v", one)
	}
	wantCode(t, "one of two", one.Covers(one.CallDigest, in), fault.ApprovalRequired)
	// The same human again, whatever the name.
	for name, v := range map[string]Voter{
		"same": alice, "other case": voter("ALICE"), "person: alias": voter("al", "person:alice"), "alias": voter("al", "Alice "), "as her own alias": voter("alice@example.com"),
		"shared alias": voter("al", "alice@example.com"), "alias of her alias as principal": voter("al", "person:alice@example.com"),
	} {
		_, err := one.Approve(v, a.Digest, "", in)
		wantCode(t, name, err, fault.Conflict)
		_, err = one.Defer(v, a.Digest, time.Time{}, in)
		wantCode(t, name+" defers", err, fault.Conflict)
	}
	two := must(t)(one.Approve(bob, a.Digest, "", in))
	if two.State != Approved || two.Covers(two.CallDigest, in) != nil {
		t.Fatalf("%+v", two)
	}
	if len(one.Votes) != 1 || len(a.Votes) != 0 {
		t.Error("a move changed the value it was made on")
	}
	// A row that says approved without the people is not approved: what the risk takes holds whatever else is satisfied.
	for name, votes := range map[string][]Vote{
		"nobody": nil, "one": two.Votes[:1], "twice the same": {two.Votes[0], two.Votes[0]}, "two names": {two.Votes[0], {Person: "ALICE@example.com", Decision: Approve}},
		"a deferral": {two.Votes[0], {Person: "bob", Decision: Deferral}}, "a made-up answer": {two.Votes[0], {Person: "bob", Decision: "yes"}},
		"and a no": {two.Votes[0], two.Votes[1], {Person: "carol", Decision: Reject}},
	} {
		forged := two
		forged.Votes = votes
		wantCode(t, name, forged.Covers(forged.CallDigest, in), fault.ApprovalRequired)
	}
	forged := one
	forged.State, forged.Needed = Approved, 1
	forged.Digest = forged.digest()
	wantCode(t, "a row that needs one", forged.Covers(forged.CallDigest, in), fault.ApprovalRequired)
	forged.Risk = "whatever"
	forged.Digest = forged.digest()
	wantCode(t, "a row of no risk", forged.Covers(forged.CallDigest, in), fault.ApprovalRequired)
}

func TestOneNoIsANo(t *testing.T) {
	a := open(t, "CRITICAL")
	one := must(t)(a.Approve(alice, a.Digest, "", in))
	for name, v := range map[string]Voter{"another": bob, "who approved": alice, "who approved, by mail": voter("alice@example.com")} {
		no := must(t)(one.Reject(v, a.Digest, "wrong account", in))
		if no.State != Rejected || no.Reason != "wrong account" {
			t.Errorf("%s: %+v", name, no)
		}
		if n := len(no.Votes); v.Person == "bob" && n != 2 || v.Person != "bob" && n != 1 {
			t.Errorf("%s: %d votes", name, n)
		}
		err := no.Covers(no.CallDigest, in)
		wantCode(t, name, err, fault.ApprovalRejected)
		if !strings.Contains(fault.Of(err).Public(), "wrong account") {
			t.Errorf("the reason is lost: %v", err)
		}
		_, err = no.Approve(carol, a.Digest, "", in)
		wantCode(t, name+", then yes", err, fault.Conflict)
	}
}

func TestRejectRaces(t *testing.T) {
	yes := approved(t, "CRITICAL")
	for _, v := range []Voter{carol, alice} {
		no := must(t)(yes.Reject(v, yes.Digest, "stop", in))
		_, err := no.Spend("call_1", in)
		wantCode(t, "no before dispatch", err, fault.ApprovalRejected)
	}
	spent := must(t)(yes.Spend("call_1", in))
	_, err := spent.Reject(carol, yes.Digest, "stop", in)
	wantCode(t, "no after dispatch", err, fault.Conflict)
}

func TestRejectionNeedsAReason(t *testing.T) { // HI-3
	a := open(t, "HIGH")
	for _, reason := range []string{"", " \n\t", "…", "\u200b", strings.Repeat("x", maxText+1), "no\xff"} {
		_, err := a.Reject(alice, a.Digest, reason, in)
		wantCode(t, fmt.Sprintf("%.20q", reason), err, fault.RequestMalformed)
	}
	if _, err := a.Approve(alice, a.Digest, strings.Repeat("x", maxText+1), in); !fault.Is(err, fault.RequestMalformed) {
		t.Errorf("a long comment: %v", err)
	}
	must(t)(a.Reject(alice, a.Digest, "不行", in))
}

func TestDeferral(t *testing.T) {
	a := open(t, "CRITICAL")
	until := t0.Add(30 * time.Second)
	d := must(t)(a.Defer(alice, a.Digest, until, in))
	if d.State != Deferred || !d.DeferredUntil.Equal(until) || !d.ExpiresAt.Equal(a.ExpiresAt) || d.Digest != a.Digest {
		t.Fatalf("%+v", d)
	}
	for now, want := range map[time.Time]State{in: Deferred, until.Add(-1): Deferred, until: Pending, a.ExpiresAt.Add(-1): Pending, a.ExpiresAt: Expired} {
		if got := d.StateAt(now); got != want {
			t.Errorf("at %s: %s, want %s", now, got, want)
		}
	}
	for name, at := range map[string]time.Time{"now": in, "before": t0, "after the expiry": late.Add(1)} {
		_, err := a.Defer(alice, a.Digest, at, in)
		wantCode(t, name, err, fault.RequestMalformed)
	}
	forever := must(t)(a.Defer(alice, a.Digest, time.Time{}, in))
	if forever.StateAt(a.ExpiresAt.Add(-1)) != Deferred || forever.StateAt(a.ExpiresAt) != Expired {
		t.Error("deferred without a time")
	}
	// Taken up again, by whoever put it off and by another, and put off again.
	one := must(t)(must(t)(d.Defer(bob, a.Digest, until, in)).Approve(alice, a.Digest, "", in))
	if one.State != Pending || !one.DeferredUntil.IsZero() || len(one.Votes) != 2 {
		t.Errorf("%+v", one)
	}
	if two := must(t)(one.Approve(bob, a.Digest, "", in)); two.State != Approved {
		t.Errorf("%+v", two)
	}
	if no := must(t)(d.Reject(bob, a.Digest, "no", in)); no.State != Rejected {
		t.Errorf("%+v", no)
	}
	// A yes survives a deferral of another.
	if two := must(t)(must(t)(one.Defer(carol, a.Digest, until, in)).Approve(bob, a.Digest, "", in)); two.State != Approved {
		t.Errorf("%+v", two)
	}
}

// Another tool, agent, session or definition is another call.
func TestCoversOneCallOnly(t *testing.T) {
	a := approved(t, "HIGH")
	digest := func(agent, session, operation, definition, arguments string) string {
		return call.Digest(agent, session, operation, definition, []byte(arguments))
	}
	arguments := string(a.Arguments)
	if err := a.Covers(digest("payer", "sess_1", "bank.transfer", "hash", arguments), in); err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]string{
		"another tool": digest("payer", "sess_1", "other.transfer", "hash", arguments), "another agent": digest("b", "sess_1", "bank.transfer", "hash", arguments),
		"another session": digest("payer", "sess_2", "bank.transfer", "hash", arguments), "another definition": digest("payer", "sess_1", "bank.transfer", "changed", arguments),
		"arguments": digest("payer", "sess_1", "bank.transfer", "hash", `{"amount":12001,"to":"<ACME>"}`), "its own digest": a.Digest, "none": "",
	} {
		wantCode(t, name, a.Covers(d, in), fault.ApprovalMismatch)
	}
	none := a
	none.CallDigest = ""
	none.Digest = none.digest()
	wantCode(t, "no call at all", none.Covers("", in), fault.ApprovalMismatch)
	void := must(t)(a.Supersede("It changed.", in)) // another definition, other rules
	wantCode(t, "superseded", void.Covers(void.CallDigest, in), fault.ApprovalMismatch)
	_, err := void.Approve(bob, void.Digest, "", in)
	wantCode(t, "superseded, then yes", err, fault.Conflict)
}

// An approval has one use. (That two at once on one row are one after the other is the store's.)
func TestSpentOnce(t *testing.T) {
	a := approved(t, "HIGH")
	spent := must(t)(a.Spend("call_1", in))
	if spent.State != Spent || spent.SpentBy != "call_1" || a.State != Approved {
		t.Fatalf("%+v", spent)
	}
	for _, id := range []string{"call_1", "call_2"} {
		_, err := spent.Spend(id, in)
		wantCode(t, id, err, fault.Conflict)
	}
	wantCode(t, "covers", spent.Covers(spent.CallDigest, in), fault.Conflict)
	_, err := a.Spend("", in)
	wantCode(t, "no call", err, fault.Internal)
}

// At the expiry and after it the answer is no, whatever was answered or not.
func TestExpiry(t *testing.T) {
	for name, a := range map[string]Approval{"approved": approved(t, "HIGH"), "unanswered": open(t, "HIGH")} {
		at := a.ExpiresAt
		if a.StateAt(at.Add(-time.Second)) == Expired || a.StateAt(at) != Expired || a.StateAt(at.Add(24*time.Hour)) != Expired {
			t.Errorf("%s: %s", name, a.StateAt(at))
		}
		_, err := a.Spend("call_1", at)
		wantCode(t, name, err, fault.ApprovalExpired)
	}
	if a := approved(t, "HIGH"); a.Covers(a.CallDigest, a.ExpiresAt.Add(-1)) != nil {
		t.Error("expired early")
	}
	if !(Approval{State: Pending}).StateAt(in).Final() {
		t.Error("an approval without an expiry lives")
	}
}

// Who lost the role, or turned out to be the requester, doesn't count at dispatch.
func TestRecount(t *testing.T) {
	a := approved(t, "CRITICAL")
	directory := map[string]Voter{"alice": alice, "bob": bob}
	look := func(person string) (Voter, bool) { v, ok := directory[person]; return v, ok }
	if err := a.Recount(look).Covers(a.CallDigest, in); err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]*Voter{"unknown": nil, "no role": {Person: "bob"}, "another": &carol, "the requester": {Person: "bob", Roles: bob.Roles, Aliases: []string{"rita"}}} {
		if delete(directory, "bob"); v != nil {
			directory["bob"] = *v
		}
		less := a.Recount(look)
		wantCode(t, name, less.Covers(a.CallDigest, in), fault.ApprovalRequired)
		if less.State != Pending || len(less.Votes) != 1 || len(a.Votes) != 2 || a.State != Approved {
			t.Errorf("%s: %+v", name, less)
		}
		if again := must(t)(less.Approve(carol, a.Digest, "", in)); again.State != Approved {
			t.Errorf("%s: nobody can take the place", name)
		}
	}
	directory["bob"] = bob
	wantCode(t, "not known, though described", a.Recount(func(person string) (Voter, bool) { return directory[person], false }).Covers(a.CallDigest, in), fault.ApprovalRequired)
	// A no stays a no, whatever became of who said it; a spent approval stays spent.
	nobody := func(string) (Voter, bool) { return Voter{}, false }
	no := must(t)(a.Reject(carol, a.Digest, "no", in)).Recount(nobody)
	if no.State != Rejected || len(no.Votes) != 1 {
		t.Errorf("%+v", no)
	}
	if spent := must(t)(a.Spend("call_1", in)).Recount(nobody); spent.State != Spent {
		t.Errorf("%+v", spent)
	}
}

// An approval comes back from a store as it went in. One that changed bytes of it (here, by escaping for HTML) covers nothing.
func TestJSON(t *testing.T) {
	a := approved(t, "CRITICAL")
	var plain strings.Builder
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(a); err != nil {
		t.Fatal(err)
	}
	var back Approval
	if err := json.Unmarshal([]byte(plain.String()), &back); err != nil || !reflect.DeepEqual(back, a) {
		t.Errorf("%+v\n%+v\n%v", a, back, err)
	}
	if err := back.Covers(a.CallDigest, in); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"approval_id", "state", "digest", "call_digest", "risk", "operation", "arguments", "session_id", "agent_id", "requester", "reasons", "votes", "person", "decision", "at", "needed", "expires_at"} {
		if !strings.Contains(plain.String(), `"`+name+`":`) {
			t.Errorf("no %s in %s", name, plain.String())
		}
	}
	escaped, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var changed Approval
	if err := json.Unmarshal(escaped, &changed); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "changed on the way", changed.Covers(a.CallDigest, in), fault.ApprovalMismatch)
	least := must(t)(New(Approval{CallDigest: "d", Risk: "LOW", Operation: "o", Arguments: json.RawMessage(`{}`), Session: "s", Agent: "a", OpenedBy: "agent:a"}, t0, life))
	if b, err := json.Marshal(least); err != nil || strings.Contains(string(b), "null") {
		t.Errorf("%s %v", b, err)
	}
}

func BenchmarkCovers(b *testing.B) {
	a := approved(b, "CRITICAL")
	b.ReportAllocs()
	for b.Loop() {
		if err := a.Covers(a.CallDigest, in); err != nil {
			b.Fatal(err)
		}
	}
}

// TestOwnAnswer: a person answers what they asked for where nobody else could, or where the operator lets them, never at CRITICAL.
func TestOwnAnswer(t *testing.T) {
	others := func(v ...Voter) func() []Voter { return func() []Voter { return v } }
	rita := voter("rita", "rita@example.com")
	viewer := Voter{Person: "v", Roles: []identity.Role{identity.Viewer, identity.Operator, identity.Auditor}}
	lets := rita
	lets.AnswersOwn = true
	for name, c := range map[string]struct {
		voter  Voter
		others func() []Voter
		own    bool
	}{
		"alone":                              {rita, others(), true},
		"with people who can't answer":       {rita, others(viewer), true},
		"with the agent's owner":             {rita, others(voter("otto", "agent:payer")), true},
		"with an account of their own":       {rita, others(voter("r2", "rita")), true},
		"with somebody else":                 {rita, others(viewer, alice), false},
		"with an admin":                      {rita, others(carol), false},
		"it is not known who else there is":  {rita, nil, false},
		"the operator lets them":             {lets, others(alice, carol), true},
		"the operator lets them, unknown":    {lets, nil, true},
		"no role, alone":                     {Voter{Person: "rita"}, others(), false},
		"no role, and the operator lets":     {Voter{Person: "rita", AnswersOwn: true}, others(), false},
		"the opener, alone":                  {voter("host-owner", "host:ci"), others(viewer), true},
		"owner of the agent, beside another": {voter("otto", "agent:payer"), others(alice), false},
	} {
		for _, risk := range []string{"LOW", "MEDIUM", "HIGH", "CRITICAL"} {
			a := asked()
			a.Requester, a.OpenedBy, a.Risk = "rita", "host:ci", risk
			a = must(t)(New(a, t0, life))
			c.voter.Others = c.others
			want := c.own && risk != "CRITICAL"
			for what, move := range map[string]func() (Approval, error){
				"approve": func() (Approval, error) { return a.Approve(c.voter, a.Digest, "", in) },
				"reject":  func() (Approval, error) { return a.Reject(c.voter, a.Digest, "no", in) },
			} {
				after, err := move()
				if (err == nil) != want || err != nil && !fault.Is(err, fault.RoleMissing) {
					t.Errorf("%s: %s at %s: %v", name, what, risk, err)
				}
				if err == nil && !after.Votes[0].Own {
					t.Errorf("%s: %s at %s: the vote is not marked as their own", name, what, risk)
				}
				if err != nil || what == "reject" {
					continue
				}
				known := func(string) (Voter, bool) { return c.voter, true }
				if after.State != Approved || after.Recount(known).State != Approved {
					t.Errorf("%s at %s: %s after the only answer", name, risk, after.State)
				}
				joined := c.voter
				joined.Others = others(alice)
				if s := after.Recount(func(string) (Voter, bool) { return joined, true }).State; (s == Approved) != c.voter.AnswersOwn {
					t.Errorf("%s at %s: %s once somebody else can answer", name, risk, s)
				}
			}
		}
	}
	a := open(t, "HIGH")
	if a = must(t)(a.Approve(alice, a.Digest, "", in)); a.Votes[0].Own {
		t.Error("another person's vote is marked as the requester's own")
	}
}
