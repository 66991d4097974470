package declare

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.UTC)

const life = time.Minute

func fresh(t testing.TB) Declaration {
	t.Helper()
	d, err := New(Declaration{Session: session, Agent: "a", Requester: "alice", Operation: "comm.fetch", DefinitionHash: "hash", Risk: "LOW",
		Parameters: json.RawMessage(` {"url":"https://example.com/a", "n": 1.0}`), Justification: Justification{"Product X", "price", "cite"}}, t0, life)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func must(t testing.TB) func(Declaration, error) Declaration {
	return func(d Declaration, err error) Declaration {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
}

func TestNew(t *testing.T) {
	d := fresh(t)
	if d.State != Pending || d.ID[:5] != "decl_" || string(d.Parameters) != `{"n":1,"url":"https://example.com/a"}` || d.Flags == nil || !d.ExpiresAt.Equal(t0.Add(life)) {
		t.Errorf("%+v", d)
	}
	if d.Digest != Digest("a", session, "comm.fetch", "hash", d.Parameters, d.Justification) ||
		d.CallDigest != call.Digest("a", session, "comm.fetch", "hash", d.Parameters) {
		t.Error("digests are of something else")
	}
	decided := d
	decided.State, decided.DecidedBy, decided.SpentBy, decided.Digest = Approved, "agent:a", "call_1", "d"
	if again := must(t)(New(decided, t0, life)); again.State != Pending || again.DecidedBy != "" || again.SpentBy != "" || again.Digest != d.Digest {
		t.Errorf("a new declaration is decided: %+v", again)
	}
	for name, spoil := range map[string]func(*Declaration){
		"session": func(d *Declaration) { d.Session = "" }, "agent": func(d *Declaration) { d.Agent = "" }, "operation": func(d *Declaration) { d.Operation = "" },
		"definition": func(d *Declaration) { d.DefinitionHash = "" }, "parameters": func(d *Declaration) { d.Parameters = json.RawMessage(`[]`) },
		"loose parameters": func(d *Declaration) { d.Parameters = json.RawMessage(`{"a":1,"A":1}`) }, "none": func(d *Declaration) { d.Parameters = nil },
	} {
		bad := d
		if spoil(&bad); !anyError(New(bad, t0, life)) {
			t.Errorf("taken without a good %s", name)
		}
	}
	if !anyError(New(d, t0, 0)) || !anyError(New(d, t0, -1)) {
		t.Error("taken without a life")
	}
}

func anyError(_ Declaration, err error) bool { return err != nil }

// The digest is fixed, and changes with every field; nothing of one field can pass for something of the next.
func TestDigestChangesWithEveryField(t *testing.T) {
	// printf '24:sallyport/declaration/v11:a6:sess_110:comm.fetch1:h2:{}1:u1:m1:e' | sha256sum
	const want = "29ef8077525c27b047b06d0edc0326ec6ceced523a1de1b670ba54291f8b5227"
	if got := Digest("a", "sess_1", "comm.fetch", "h", json.RawMessage(`{}`), Justification{"u", "m", "e"}); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	text := rapid.StringOf(rapid.SampledFrom([]rune("a1:{}\"")))
	rapid.Check(t, func(t *rapid.T) {
		draw := func() [8]string {
			var f [8]string
			for i := range f {
				f[i] = text.Draw(t, "field")
			}
			return f
		}
		of := func(f [8]string) string {
			return Digest(f[0], f[1], f[2], f[3], json.RawMessage(f[4]), Justification{f[5], f[6], f[7]})
		}
		a, b := draw(), draw()
		if (a == b) != (of(a) == of(b)) {
			t.Fatalf("%q and %q", a, b)
		}
		for i := range a {
			c := a
			if c[i] += "x"; of(c) == of(a) {
				t.Fatalf("field %d is not in the digest", i)
			}
			if i+1 < len(a) && a[i] != "" { // move a byte over the border
				c = a
				c[i], c[i+1] = a[i][:len(a[i])-1], a[i][len(a[i])-1:]+a[i+1]
				if of(c) == of(a) {
					t.Fatalf("fields %d and %d run into one another", i, i+1)
				}
			}
		}
	})
}

// Every state, both times, every move: nothing else can happen than what is listed.
func TestEveryMove(t *testing.T) {
	type outcome struct {
		state State
		code  fault.Code
	}
	in, late := t0.Add(life-1), t0.Add(life)
	moves := map[string]func(Declaration, time.Time) (Declaration, error){
		"yes": func(d Declaration, now time.Time) (Declaration, error) { return d.Decide(true, ByRule, "", now) },
		"no": func(d Declaration, now time.Time) (Declaration, error) {
			return d.Decide(false, "person:p", "not now", now)
		},
		"spend": func(d Declaration, now time.Time) (Declaration, error) { return d.Spend("call_2", now) },
		"covers": func(d Declaration, now time.Time) (Declaration, error) {
			return d, d.Covers(d.CallDigest, now)
		},
		"covers another": func(d Declaration, now time.Time) (Declaration, error) { return d, d.Covers("another", now) },
	}
	type at struct {
		state State
		late  bool
	}
	want := map[at]map[string]outcome{
		{Pending, false}:  {"yes": {Approved, ""}, "no": {Rejected, ""}, "spend": {"", fault.ApprovalRequired}, "covers": {"", fault.ApprovalRequired}},
		{Pending, true}:   {"yes": {"", fault.ApprovalExpired}, "no": {"", fault.ApprovalExpired}, "spend": {"", fault.ApprovalExpired}, "covers": {"", fault.ApprovalExpired}},
		{Approved, false}: {"yes": {"", fault.Conflict}, "no": {Rejected, ""}, "spend": {Spent, ""}, "covers": {Approved, ""}},
		{Approved, true}:  {"yes": {"", fault.ApprovalExpired}, "no": {"", fault.ApprovalExpired}, "spend": {"", fault.ApprovalExpired}, "covers": {"", fault.ApprovalExpired}},
		{Rejected, false}: {"yes": {"", fault.Conflict}, "no": {"", fault.Conflict}, "spend": {"", fault.ApprovalRejected}, "covers": {"", fault.ApprovalRejected}},
		{Spent, false}:    {"yes": {"", fault.Conflict}, "no": {"", fault.Conflict}, "spend": {"", fault.Conflict}, "covers": {"", fault.DeclarationInvalid}},
		{Expired, false}:  {"yes": {"", fault.ApprovalExpired}, "no": {"", fault.ApprovalExpired}, "spend": {"", fault.ApprovalExpired}, "covers": {"", fault.ApprovalExpired}},
		{"maybe", false}:  {"yes": {"", fault.Conflict}, "no": {"", fault.Conflict}, "spend": {"", fault.Internal}, "covers": {"", fault.Internal}},
	}
	for _, s := range []State{Rejected, Spent, Expired, "maybe"} { // final: time changes nothing
		want[at{s, true}] = want[at{s, false}]
	}
	for _, state := range append(slices.Clone(States), "maybe") {
		for _, isLate := range []bool{false, true} {
			for name, move := range moves {
				w := want[at{state, isLate}][name]
				if name == "covers another" {
					w = outcome{"", fault.DeclarationInvalid}
				}
				d := fresh(t)
				d.State = state
				now := in
				if isLate {
					now = late
				}
				after, err := move(d, now)
				switch {
				case w.code != "" && (!fault.Is(err, w.code) || !reflect.DeepEqual(after, d)):
					t.Errorf("%s, late %v: %s: %v, want %s", state, isLate, name, err, w.code)
				case w.code == "" && (err != nil || after.State != w.state || w.state == ""):
					t.Errorf("%s, late %v: %s: %s %v, want %s", state, isLate, name, after.State, err, w.state)
				}
			}
		}
	}
}

func TestDecisionsSayWhoAndWhy(t *testing.T) {
	d := fresh(t)
	if yes := must(t)(d.Decide(true, ByRule, "", t0)); yes.DecidedBy != "rule" || d.State != Pending {
		t.Errorf("%+v", yes)
	}
	no := must(t)(d.Decide(false, "person:p", "not this host", t0))
	if err := no.Covers(no.CallDigest, t0); !strings.Contains(fault.Of(err).Public(), "not this host") {
		t.Error(err)
	}
	for name, err := range map[string]bool{
		"nobody": anyError(d.Decide(true, "", "", t0)), "no reason": anyError(d.Decide(false, "person:p", " \n", t0)),
		"no call": anyError(must(t)(d.Decide(true, ByRule, "", t0)).Spend("", t0)),
	} {
		if !err {
			t.Errorf("%s passes", name)
		}
	}
}

// Over any moves at any times, also backwards: at most one of them spends, after a yes and before the expiry.
func TestSpentOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, err := New(Declaration{Session: "s", Agent: "a", Operation: "o", DefinitionHash: "h", Parameters: json.RawMessage(`{}`)}, t0, life)
		if err != nil {
			t.Fatal(err)
		}
		yes, spent, final := false, 0, State("")
		for range rapid.IntRange(1, 20).Draw(t, "moves") {
			now := t0.Add(time.Duration(rapid.IntRange(-10, 80).Draw(t, "second")) * time.Second)
			before := d
			switch rapid.IntRange(0, 2).Draw(t, "move") {
			case 0:
				d, err = d.Decide(true, "person:p", "", now)
				yes = yes || err == nil
			case 1:
				d, err = d.Decide(false, "person:p", "no", now)
			case 2:
				if d, err = d.Spend("call", now); err == nil {
					spent++
					if !yes || spent > 1 || !now.Before(d.ExpiresAt) {
						t.Fatalf("spent: yes %v, times %d, at %s", yes, spent, now)
					}
				}
			}
			if err != nil && !reflect.DeepEqual(before, d) {
				t.Fatal("a refused move changed something")
			}
			if final != "" && d.State != final {
				t.Fatalf("%s after %s", d.State, final)
			}
			if d.State == Rejected || d.State == Spent {
				final = d.State
			}
			if d.Digest != before.Digest || d.CallDigest != before.CallDigest || !d.ExpiresAt.Equal(before.ExpiresAt) {
				t.Fatal("a move changed what was declared")
			}
		}
	})
}

func TestKey(t *testing.T) {
	with := func(parameters string, change ...func(*Declaration)) string {
		d := fresh(t)
		d.Parameters = json.RawMessage(parameters)
		for _, c := range change {
			c(&d)
		}
		return d.Key()
	}
	base := with(`{"url":"https://example.com/a"}`)
	for _, p := range []string{`{"url":"https://example.com/b?c=d"}`, `{"url":"HTTPS://EXAMPLE.COM:443/"}`, `{"url":"https://user@example.com"}`, `{"n":1,"url":"https://example.com"}`} {
		if with(p) != base {
			t.Errorf("%s is not similar: %s", p, with(p))
		}
	}
	seen := map[string]string{}
	for name, key := range map[string]string{
		"base": base, "scheme": with(`{"url":"http://example.com/a"}`), "port": with(`{"url":"https://example.com:8443/a"}`), "scheme on its port": with(`{"url":"http://example.com:443/a"}`),
		"host": with(`{"url":"https://example.com.evil.test/a"}`), "user info": with(`{"url":"https://example.com@evil.test/a"}`),
		"subdomain": with(`{"url":"https://a.example.com/a"}`), "unreadable": with(`{"url":"https://exa mple.com/a"}`), "other unreadable": with(`{"url":"https://exa mple.com/b"}`),
		"relative": with(`{"url":"/a"}`), "not a string": with(`{"url":["https://example.com/a"]}`), "none": with(`{"query":"x"}`),
		"database": with(`{"database":"crm","sql":"SELECT 1"}`), "other database": with(`{"database":"hr","sql":"SELECT 1"}`),
		"both":    with(`{"url":"https://example.com/a","database":"crm"}`),
		"agent":   with(`{"url":"https://example.com/a"}`, func(d *Declaration) { d.Agent = "b" }),
		"session": with(`{"url":"https://example.com/a"}`, func(d *Declaration) { d.Session = "sess_2" }),
		"op":      with(`{"url":"https://example.com/a"}`, func(d *Declaration) { d.Operation = "comm.search" }),
		"def":     with(`{"url":"https://example.com/a"}`, func(d *Declaration) { d.DefinitionHash = "other" }),
		"risk":    with(`{"url":"https://example.com/a"}`, func(d *Declaration) { d.Risk = "HIGH" }),
	} {
		if other, dup := seen[key]; dup {
			t.Errorf("%s and %s are called similar: %s", name, other, key)
		}
		seen[key] = name
	}
	if with(`{"database":"crm","sql":"SELECT 1"}`) != with(`{"database":"crm","sql":"SELECT 2"}`) || with(`{"query":"x"}`) != with(`{"query":"y"}`) {
		t.Error("what differs in the question only is not similar")
	}
}

// A declaration comes back from a store as it went in.
func TestJSON(t *testing.T) {
	d := must(t)(fresh(t).Decide(true, ByRule, "", t0))
	b, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var back Declaration
	if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(back, d) {
		t.Errorf("%+v\n%+v\n%v", d, back, err)
	}
	for _, name := range []string{"declaration_id", "digest", "call_digest", "state", "session_id", "agent_id", "operation", "parameters", "justification", "flags", "expires_at"} {
		if !strings.Contains(string(b), `"`+name+`":`) {
			t.Errorf("no %s in %s", name, b)
		}
	}
}
