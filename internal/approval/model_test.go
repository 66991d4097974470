package approval

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sallyport/internal/fault"
	"sallyport/internal/identity"
)

// crowd is who tries to answer: people under several names, and those who must not.
var crowd = []struct {
	human string // "" for one who must not answer what rita asked for in a session of oscar's with an agent of otto's
	voter Voter
}{
	{"alice", alice}, {"alice", voter("alice@example.com", "alice")}, {"alice", voter("ALICE", "al")}, {"alice", voter("al2", "person:alice")},
	{"bob", bob}, {"bob", Voter{Person: "bob", Roles: []identity.Role{identity.Admin}}}, {"carol", carol}, {"dan", voter("dan")},
	{"", voter("rita")}, {"", voter("r2", "RITA")}, {"", voter("oscar")}, {"", voter("otto", "agent:payer")}, {"", Voter{Person: "vera"}},
	{"", Voter{Person: "ned", Roles: []identity.Role{identity.Operator, identity.Viewer}}}, {"", voter("")},
}

// oracle is the same machine told in sets: who said yes, and what ended it. It knows people, not names.
type oracle struct {
	need    int
	yes     map[string]bool
	end     State // rejected, spent, superseded; "" while it is open
	put     bool  // deferred
	until   time.Time
	expires time.Time
}

func (o *oracle) alive(now time.Time) bool { return o.end == "" && now.Before(o.expires) }
func (o *oracle) quorum() bool             { return len(o.yes) >= o.need }

func (o *oracle) state(now time.Time) State {
	switch {
	case o.end != "":
		return o.end
	case !now.Before(o.expires):
		return Expired
	case o.quorum():
		return Approved
	case o.put && (o.until.IsZero() || now.Before(o.until)):
		return Deferred
	}
	return Pending
}

// approve, reject, put off, supersede and spend tell whether the move is right, and make it.
func (o *oracle) approve(human string, now time.Time) bool {
	if human == "" || !o.alive(now) || o.quorum() || o.yes[human] {
		return false
	}
	o.yes[human], o.put, o.until = true, false, time.Time{}
	return true
}

func (o *oracle) reject(human string, now time.Time) bool {
	if human == "" || !o.alive(now) {
		return false
	}
	o.end = Rejected
	return true
}

func (o *oracle) putOff(human string, until, now time.Time) bool {
	if human == "" || !o.alive(now) || o.quorum() || o.yes[human] || !until.IsZero() && (!until.After(now) || until.After(o.expires)) {
		return false
	}
	o.put, o.until = true, until
	return true
}

func (o *oracle) supersede(now time.Time) bool {
	if !o.alive(now) {
		return false
	}
	o.end = Superseded
	return true
}

func (o *oracle) spend(now time.Time) bool {
	if !o.alive(now) || !o.quorum() {
		return false
	}
	o.end = Spent
	return true
}

// Any events, of anybody, at any times, also with a clock that goes back: the machine does what the oracle does, and never the rest.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := asked()
		a.Risk = rapid.SampledFrom([]string{"LOW", "MEDIUM", "HIGH", "CRITICAL", "CRITICAL"}).Draw(t, "risk")
		a, err := New(a, t0, life)
		if err != nil {
			t.Fatal(err)
		}
		first := a
		o := &oracle{need: 1, yes: map[string]bool{}, expires: a.ExpiresAt}
		if a.Risk == "CRITICAL" {
			o.need = 2
		}
		spent, refusedBefore := 0, false
		now := t0
		for range rapid.IntRange(1, 25).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.IntRange(-3, 8).Draw(t, "seconds")) * time.Second)
			who := rapid.SampledFrom(crowd).Draw(t, "who")
			digest := a.Digest
			if rapid.IntRange(0, 9).Draw(t, "digest") == 0 {
				digest = a.CallDigest
			}
			before := a
			event := rapid.SampledFrom([]string{"approve", "approve", "approve", "reject", "defer", "supersede", "spend", "spend"}).Draw(t, "event")
			if (event == "reject" || event == "supersede") && rapid.Bool().Draw(t, "rare") {
				continue
			}
			human := who.human
			if digest != a.Digest {
				human = "" // an answer to something else is nobody's
			}
			var right bool
			switch event {
			case "approve":
				right = o.approve(human, now)
				a, err = a.Approve(who.voter, digest, "", now)
			case "reject":
				right = o.reject(human, now)
				a, err = a.Reject(who.voter, digest, "no", now)
			case "defer":
				var until time.Time
				if rapid.Bool().Draw(t, "until") {
					until = now.Add(time.Duration(rapid.IntRange(-5, 70).Draw(t, "for")) * time.Second)
				}
				right = o.putOff(human, until, now)
				a, err = a.Defer(who.voter, digest, until, now)
			case "supersede":
				right = o.supersede(now)
				a, err = a.Supersede(now)
			case "spend":
				right = o.spend(now)
				if a, err = a.Spend("call", now); err == nil {
					spent++
				}
			}
			if right != (err == nil) {
				t.Fatalf("%s of %+v at %s: right %v, but %v; before: %+v", event, who, now.Sub(t0), right, err, before)
			}
			if err != nil && !reflect.DeepEqual(a, before) {
				t.Fatal("a refused move changed something")
			}
			if got, want := a.StateAt(now), o.state(now); got != want {
				t.Fatalf("after %s at %s: %s, want %s", event, now.Sub(t0), got, want)
			}
			if covers := a.Covers(a.CallDigest, now) == nil; covers != (o.alive(now) && o.quorum()) {
				t.Fatalf("covers %v after %s: %+v", covers, event, a)
			}
			if !fault.Is(a.Covers("another", now), fault.ApprovalMismatch) {
				t.Fatal("covers another call")
			}
			// What holds whatever the oracle says.
			if spent > 1 {
				t.Fatal("spent twice")
			}
			if before.State.Final() && (err == nil || a.State != before.State) {
				t.Fatalf("%s after %s", event, before.State)
			}
			if err == nil && a.State == Spent {
				people := map[string]bool{}
				for _, vote := range a.Votes {
					for _, c := range crowd {
						if c.voter.Person == vote.Person && vote.Decision == Approve {
							people[c.human] = true
						}
					}
				}
				if delete(people, ""); len(people) < o.need || !now.Before(first.ExpiresAt) || refusedBefore {
					t.Fatalf("spent at %s by the word of %v", now.Sub(t0), people)
				}
			}
			refusedBefore = refusedBefore || a.State == Rejected
			if a.digest() != first.Digest || !a.ExpiresAt.Equal(first.ExpiresAt) {
				t.Fatal("an event changed what was asked")
			}
		}
	})
}
