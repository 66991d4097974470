package approval

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
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
	yes     map[string]string // by human: the name that they used
	end     State             // rejected, spent, superseded; "" while it is open
	put     bool              // deferred
	until   time.Time
	expires time.Time
	silence time.Time // when nobody's word is enough; zero: never
	word    bool      // somebody has said something
}

func (o *oracle) alive(now time.Time) bool { return o.end == "" && now.Before(o.expires) }
func (o *oracle) quorum() bool             { return len(o.yes) >= o.need }
func (o *oracle) silent(now time.Time) bool {
	return !o.silence.IsZero() && !o.word && !now.Before(o.silence)
}
func (o *oracle) permits(now time.Time) bool { return o.alive(now) && (o.quorum() || o.silent(now)) }

func (o *oracle) state(now time.Time) State {
	switch {
	case o.end != "":
		return o.end
	case !now.Before(o.expires):
		return Expired
	case o.quorum(), o.silent(now):
		return Approved
	case o.put && (o.until.IsZero() || now.Before(o.until)):
		return Deferred
	}
	return Pending
}

// approve, reject, put off, supersede, modify and spend tell whether the move is right, and make it.
func (o *oracle) approve(human, name string, now time.Time) bool {
	if human == "" || !o.alive(now) || o.quorum() || o.yes[human] != "" {
		return false
	}
	o.yes[human], o.put, o.until, o.word = name, false, time.Time{}, true
	return true
}

// fire takes the role of whoever goes by a name.
func (o *oracle) fire(name string) {
	was := o.quorum()
	for human, used := range o.yes {
		if used == name {
			delete(o.yes, human)
		}
	}
	if o.end == "" && was && !o.quorum() && !o.silence.IsZero() { // what was said is gone, that something was said is not
		o.put = true
	}
}

func (o *oracle) reject(human string, now time.Time) bool {
	if human == "" || !o.alive(now) {
		return false
	}
	o.end = Rejected
	return true
}

func (o *oracle) putOff(human string, until, now time.Time) bool {
	if human == "" || !o.alive(now) || o.permits(now) || o.yes[human] != "" || !until.IsZero() && (!until.After(now) || until.After(o.expires)) {
		return false
	}
	o.put, o.until, o.word = true, until, true
	return true
}

func (o *oracle) modify(human string, now time.Time) bool {
	return human != "" && o.supersede(now)
}

func (o *oracle) supersede(now time.Time) bool {
	if !o.alive(now) {
		return false
	}
	o.end = Superseded
	return true
}

func (o *oracle) spend(now time.Time) bool {
	if !o.permits(now) {
		return false
	}
	o.end = Spent
	return true
}

// Any events, of anybody, at any times, also with a clock that goes back: the machine does what the oracle does, and never the rest.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := asked()
		a.Risk = rapid.SampledFrom([]string{"LOW", "MEDIUM", "MEDIUM", "HIGH", "CRITICAL", "CRITICAL"}).Draw(t, "risk")
		if a.Risk == "MEDIUM" && rapid.IntRange(0, 3).Draw(t, "silence") > 0 {
			a.SilenceAt = t0.Add(time.Duration(rapid.IntRange(1, 30).Draw(t, "silence at")) * time.Second)
		}
		a, err := New(a, t0, life)
		if err != nil {
			t.Fatal(err)
		}
		first := a
		o := &oracle{need: 1, yes: map[string]string{}, expires: a.ExpiresAt, silence: a.SilenceAt}
		fired := map[string]bool{}
		look := func(person string) (Voter, bool) {
			for _, c := range crowd {
				if c.voter.Person == person && !fired[person] {
					return Voter{Person: person, Roles: []identity.Role{identity.Approver}, Aliases: c.voter.Aliases}, true
				}
			}
			return Voter{}, false
		}
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
			event := rapid.SampledFrom([]string{"approve", "approve", "approve", "reject", "defer", "supersede", "modify", "fire", "spend", "spend"}).Draw(t, "event")
			if (event == "reject" || event == "supersede" || event == "modify") && rapid.Bool().Draw(t, "rare") {
				continue
			}
			a = a.Recount(look) // as whoever reads it does
			before := a
			human := who.human
			if digest != a.Digest || fired[who.voter.Person] {
				human = "" // an answer to something else is nobody's, and so is that of one who has no role any more
			}
			if fired[who.voter.Person] {
				who.voter.Roles = nil
			}
			var right bool
			switch event {
			case "approve":
				right = o.approve(human, who.voter.Person, now)
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
			case "modify":
				right = o.modify(human, now)
				a, err = a.Modify(who.voter, digest, "half of it", "appr_2", now)
			case "fire":
				fired[who.voter.Person] = true
				o.fire(who.voter.Person)
				a = a.Recount(look)
				if got, want := a.StateAt(now), o.state(now); got != want || a.Covers(a.CallDigest, now) == nil != o.permits(now) {
					t.Fatalf("%s lost the role: %s, want %s", who.voter.Person, got, want)
				}
				continue
			case "supersede":
				right = o.supersede(now)
				a, err = a.Supersede("It changed.", now)
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
			if covers := a.Covers(a.CallDigest, now) == nil; covers != o.permits(now) {
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
				quiet := a.Risk == "MEDIUM" && !a.SilenceAt.IsZero() && !now.Before(a.SilenceAt) && !o.word && len(a.Votes) == 0
				people := map[string]bool{}
				for _, vote := range a.Votes {
					for _, c := range crowd {
						if c.voter.Person == vote.Person && vote.Decision == Approve {
							people[c.human] = true
						}
					}
				}
				if delete(people, ""); len(people) < o.need && !quiet || !now.Before(first.ExpiresAt) || refusedBefore {
					t.Fatalf("spent at %s by the word of %v", now.Sub(t0), people)
				}
			}
			refusedBefore = refusedBefore || a.State == Rejected || a.State == Superseded
			if a.digest() != first.Digest || !a.ExpiresAt.Equal(first.ExpiresAt) {
				t.Fatal("an event changed what was asked")
			}
		}
	})
}
