package approval

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
)

// hush is how long what silence may permit waits in these tests.
const hush = 10 * time.Second

// silent is a question of risk MEDIUM that runs from t0+hush on unless somebody says something.
func silent(t testing.TB) Approval {
	t.Helper()
	a := asked()
	a.Risk, a.SilenceAt = "MEDIUM", t0.Add(hush)
	return must(t)(New(a, t0, life))
}

func TestNewSilence(t *testing.T) {
	a := silent(t)
	if a.Needed != 0 || !a.SilenceAt.Equal(t0.Add(hush).Truncate(time.Millisecond)) || a.SilenceAt.Location() != time.UTC {
		t.Errorf("%+v", a)
	}
	for _, risk := range []string{"LOW", "HIGH", "CRITICAL", "", "medium"} {
		a := asked()
		a.Risk, a.SilenceAt = risk, t0.Add(hush)
		_, err := New(a, t0, life)
		wantCode(t, "silence for "+risk, err, fault.Internal)
	}
	forged := asked() // who asks has not been modified yet, and was not answered
	forged.ReplacedBy, forged.Reason = "appr_x", "no"
	if a := must(t)(New(forged, t0, life)); a.ReplacedBy != "" || a.Reason != "" {
		t.Errorf("%+v", a)
	}
}

// Silence permits MEDIUM alone, where it was asked so, from its time on, before the expiry, and only if nobody has said a word (HI-2).
func TestSilence(t *testing.T) {
	a := silent(t)
	for now, want := range map[time.Time]State{
		t0: Pending, a.SilenceAt.Add(-1): Pending, a.SilenceAt: Approved, a.ExpiresAt.Add(-1): Approved, a.ExpiresAt: Expired, a.ExpiresAt.Add(time.Hour): Expired,
	} {
		if got := a.StateAt(now); got != want || a.Silent(now) != (want == Approved) {
			t.Errorf("at %s: %s, silent %v, want %s", now.Sub(t0), got, a.Silent(now), want)
		}
		if err := a.Covers(a.CallDigest, now); (err == nil) != (want == Approved) {
			t.Errorf("at %s: covers: %v", now.Sub(t0), err)
		}
	}
	spent := must(t)(a.Spend("call_1", a.SilenceAt))
	if spent.State != Spent || len(spent.Votes) != 0 || spent.Silent(a.SilenceAt) {
		t.Errorf("%+v", spent)
	}
	_, err := spent.Spend("call_2", a.SilenceAt)
	wantCode(t, "twice", err, fault.Conflict)

	// Whatever a row says: no other risk, no other state, no risk that was changed, none without a time.
	for _, risk := range []string{"LOW", "HIGH", "CRITICAL", "", "medium", "MEDIUM "} {
		forged := a
		forged.Risk = risk
		forged.Digest = forged.digest()
		wantCode(t, "risk "+risk, forged.Covers(forged.CallDigest, a.SilenceAt), fault.ApprovalRequired)
		if forged.Silent(a.SilenceAt) || forged.StateAt(a.SilenceAt) != Pending {
			t.Errorf("silence permits risk %q", risk)
		}
	}
	for _, state := range append(slices.Clone(States), "maybe") {
		forged := a
		forged.State = state
		if forged.Silent(a.SilenceAt) != (state == Pending) {
			t.Errorf("silence in state %s: %v", state, forged.Silent(a.SilenceAt))
		}
	}
	never := a
	never.SilenceAt = time.Time{}
	never.Digest = never.digest()
	if never.Silent(a.ExpiresAt.Add(-1)) {
		t.Error("silence without a time")
	}
	sooner := a
	sooner.SilenceAt = t0
	wantCode(t, "a time that nobody was shown", sooner.Covers(a.CallDigest, in), fault.ApprovalMismatch)
	_, err = sooner.Spend("call_1", in)
	wantCode(t, "a time that nobody was shown", err, fault.ApprovalMismatch)
}

// Any word of a person ends it: yes, no and later, before its time and after; and what was said by somebody who may not answer is no word.
func TestAWordEndsSilence(t *testing.T) {
	a := silent(t)
	after := a.ExpiresAt.Add(-1)
	for name, now := range map[string]time.Time{"before": in, "after": a.SilenceAt.Add(time.Second)} {
		no := must(t)(a.Reject(alice, a.Digest, "not this", now))
		wantCode(t, name+": no", no.Covers(a.CallDigest, after), fault.ApprovalRejected)
		yes := must(t)(a.Approve(alice, a.Digest, "", now))
		if yes.State != Approved || yes.Silent(after) || yes.Covers(a.CallDigest, now) != nil {
			t.Errorf("%s: yes: %+v", name, yes)
		}
	}
	for _, until := range []time.Time{{}, t0.Add(hush / 2), t0.Add(hush), t0.Add(2 * hush)} {
		later := must(t)(a.Defer(alice, a.Digest, until, in))
		for _, now := range []time.Time{in, a.SilenceAt, t0.Add(3 * hush), after} {
			if later.Silent(now) || later.Covers(a.CallDigest, now) == nil {
				t.Errorf("put off until %s, it runs at %s", until.Sub(t0), now.Sub(t0))
			}
		}
		if yes := must(t)(later.Approve(bob, a.Digest, "", t0.Add(3*hush))); yes.Covers(a.CallDigest, after) != nil {
			t.Errorf("put off until %s, nobody can approve it", until.Sub(t0))
		}
		// A row that lost that it was put off still has the word.
		forged := later
		forged.State = Pending
		if forged.Silent(after) {
			t.Error("a word in a row, and silence")
		}
	}
	// Silence is an answer: it can be taken back, not put off or given twice.
	_, err := a.Defer(alice, a.Digest, time.Time{}, a.SilenceAt)
	wantCode(t, "put off when it may run", err, fault.Conflict)
	for _, v := range []Voter{voter("rita"), voter("oscar"), voter("otto", "agent:payer"), {Person: "vera"}, voter("")} {
		for what, move := range map[string]func() (Approval, error){
			"reject": func() (Approval, error) { return a.Reject(v, a.Digest, "no", in) },
			"defer":  func() (Approval, error) { return a.Defer(v, a.Digest, time.Time{}, in) },
			"modify": func() (Approval, error) { return a.Modify(v, a.Digest, "no", "appr_2", in) },
		} {
			if same, err := move(); err == nil || !reflect.DeepEqual(same, a) {
				t.Errorf("%s of %q: %v", what, v.Person, err)
			}
		}
	}
	void := must(t)(a.Supersede("It changed.", in))
	wantCode(t, "superseded", void.Covers(a.CallDigest, after), fault.ApprovalMismatch)
}

// Who gave a word and then lost the role has spoken all the same: what they said doesn't count, and silence does not come back.
func TestRecountBringsNoSilence(t *testing.T) {
	nobody := func(string) (Voter, bool) { return Voter{}, false }
	a := silent(t)
	after := a.ExpiresAt.Add(-1)
	later := must(t)(a.Defer(alice, a.Digest, time.Time{}, in))
	for name, b := range map[string]Approval{
		"yes": must(t)(a.Approve(alice, a.Digest, "", in)), "later": later, "later, then yes": must(t)(later.Approve(alice, a.Digest, "", in)),
		"later, then another's yes": must(t)(later.Approve(bob, a.Digest, "", in)),
	} {
		b = b.Recount(nobody)
		if b.Silent(after) || b.Covers(a.CallDigest, after) == nil {
			t.Errorf("%s, and the role is lost: it runs by silence: %+v", name, b)
		}
		if again := must(t)(b.Approve(carol, a.Digest, "", in)); again.Covers(a.CallDigest, after) != nil {
			t.Errorf("%s, and the role is lost: nobody can take the place", name)
		}
	}
	if b := a.Recount(nobody); b.State != Pending || !b.Silent(a.SilenceAt) {
		t.Error("there was no word, and a recount made one")
	}
}

// A person who wants other arguments voids the question, whoever had said yes, and says where it went on.
func TestModify(t *testing.T) {
	one, later := open(t, "CRITICAL"), open(t, "HIGH")
	one = must(t)(one.Approve(alice, one.Digest, "", in))
	later = must(t)(later.Defer(alice, later.Digest, t0.Add(hush), in))
	for name, a := range map[string]Approval{
		"pending": open(t, "HIGH"), "critical": open(t, "CRITICAL"), "approved": approved(t, "HIGH"), "approved by two": approved(t, "CRITICAL"), "silent": silent(t),
		"one of two": one, "deferred": later,
	} {
		void := must(t)(a.Modify(carol, a.Digest, "half of it", "appr_2", in))
		if void.State != Superseded || void.ReplacedBy != "appr_2" || void.Reason != "half of it" || void.Digest != a.Digest || len(void.Votes) != len(a.Votes) {
			t.Errorf("%s: %+v", name, void)
		}
		for _, now := range []time.Time{in, t0.Add(2 * hush), a.ExpiresAt.Add(-1)} {
			err := void.Covers(a.CallDigest, now)
			wantCode(t, name, err, fault.ApprovalMismatch)
			if !strings.Contains(fault.Of(err).Public(), "half of it") {
				t.Errorf("%s: the reason is lost: %v", name, err)
			}
		}
		for what, move := range map[string]func() (Approval, error){
			"approve": func() (Approval, error) { return void.Approve(bob, a.Digest, "", in) }, "reject": func() (Approval, error) { return void.Reject(bob, a.Digest, "no", in) },
			"defer": func() (Approval, error) { return void.Defer(bob, a.Digest, time.Time{}, in) }, "supersede": func() (Approval, error) { return void.Supersede("It changed.", in) },
			"modify": func() (Approval, error) { return void.Modify(bob, a.Digest, "other", "appr_3", in) }, "spend": func() (Approval, error) { return void.Spend("call_1", in) },
		} {
			if same, err := move(); err == nil || !reflect.DeepEqual(same, void) {
				t.Errorf("%s: %s after it was modified: %v", name, what, err)
			}
		}
		for who, v := range map[string]Voter{"requester": voter("rita"), "opener": voter("oscar"), "owner": voter("otto", "agent:payer"), "by alias": voter("r2", "Rita"), "viewer": {Person: "vera", Roles: []identity.Role{identity.Viewer}}, "no role": {Person: "ned"}} {
			_, err := a.Modify(v, a.Digest, "half of it", "appr_2", in)
			wantCode(t, name+": "+who, err, fault.RoleMissing)
		}
		_, err := a.Modify(carol, a.CallDigest, "half of it", "appr_2", in)
		wantCode(t, name+": something else", err, fault.ApprovalMismatch)
		_, err = a.Modify(carol, a.Digest, "half of it", "appr_2", a.ExpiresAt)
		wantCode(t, name+": late", err, fault.ApprovalExpired)
		for _, reason := range []string{"", " ", "…", "\u200b", "no\xff", strings.Repeat("x", maxText+1)} {
			_, err := a.Modify(carol, a.Digest, reason, "appr_2", in)
			wantCode(t, fmt.Sprintf("%s: reason %.10q", name, reason), err, fault.RequestMalformed)
		}
	}
}

// The new question says whose words it has: that is under its digest like everything that is shown.
func TestModifiedIsShown(t *testing.T) {
	a := asked()
	a.ModifiedFrom, a.ModifiedBy, a.ModifiedReason = "appr_1", "carol", "half of it"
	a = must(t)(New(a, t0, life))
	yes := must(t)(a.Approve(alice, a.Digest, "", in))
	for name, change := range map[string]func(*Approval){
		"from": func(a *Approval) { a.ModifiedFrom = "" }, "by": func(a *Approval) { a.ModifiedBy = "alice" }, "reason": func(a *Approval) { a.ModifiedReason += " " },
	} {
		b := yes
		change(&b)
		wantCode(t, name, b.Covers(b.CallDigest, in), fault.ApprovalMismatch)
	}
	b, err := json.Marshal(yes)
	if err != nil || !strings.Contains(string(b), `"modified_by":"carol"`) || strings.Contains(string(b), "silence_at") || strings.Contains(string(b), "replaced_by") {
		t.Errorf("%s, %v", b, err)
	}
}

// What is asked later than it was made up waits as long, lives no longer, and has a digest of its own.
func TestBegin(t *testing.T) {
	a := asked()
	a.Risk, a.SilenceAt = "MEDIUM", t0.Add(10*time.Second)
	a, err := New(a, t0, life)
	if err != nil {
		t.Fatal(err)
	}
	b := a.Begin(t0.Add(3 * time.Second))
	if got := b.SilenceAt.Sub(a.SilenceAt); got != 3*time.Second {
		t.Errorf("silence moved by %s", got)
	}
	if !b.ExpiresAt.Equal(a.ExpiresAt) {
		t.Errorf("its end moved to %s", b.ExpiresAt)
	}
	if !b.CreatedAt.Equal(t0.Add(3*time.Second)) || !b.Intact() || b.Digest == a.Digest || b.ID != a.ID {
		t.Errorf("%+v", b)
	}
	if b = open(t, "HIGH").Begin(t0.Add(time.Second)); !b.SilenceAt.IsZero() {
		t.Error("silence permits what needs a person")
	}
}
