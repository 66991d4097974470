package approved_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/agent/approved"
	"sallyport.example/internal/identity"
)

// A vote that waits for another counts until it expires, and a later one of the same person counts anew.
func TestWaitingVotesExpire(t *testing.T) {
	w := newWorld(t)
	w.needed = 2
	digest := w.decl().Digest
	if err := w.approve("alice", digest); err != nil {
		t.Fatal(err)
	}
	w.is(approved.Waiting)
	s := w.Of(w.decl())
	if s.StillNeeded != 1 || !slices.Equal(s.MayApprove, []string{"bob"}) || !s.ExpiresAt.Equal(noon.Add(30*time.Minute)) ||
		!strings.Contains(s.Text, "Still needed: 1 person (bob). The first vote counts until 2026-03-01T12:30:00Z.") {
		t.Errorf("%+v", s)
	}
	w.now = noon.Add(30 * time.Minute)
	w.is(approved.Unapproved)
	if s := w.Of(w.decl()); s.StillNeeded != 2 || len(s.Votes) != 0 || !s.ExpiresAt.IsZero() || !strings.Contains(s.Text, "The vote of alice expired at 2026-03-01T12:30:00Z.") {
		t.Errorf("%+v", s)
	}
	if err := w.approve("bob", digest); err != nil {
		t.Fatal(err)
	}
	w.is(approved.Waiting)
	if err := w.approve("alice", digest); err != nil {
		t.Fatal(err)
	}
	w.is(approved.Approved)
	w.now = noon.Add(time.Hour * 24 * 365)
	w.is(approved.Approved) // what is in force stays
}

// A vote of somebody who can't answer any more counts no more, whether they lost the role or are gone.
func TestWaitingVotesOfPeopleOfToday(t *testing.T) {
	for name, lose := range map[string]func(w *world){
		"the role": func(w *world) {
			p := w.people["alice"]
			p.Roles = []identity.Role{identity.Viewer}
			w.people["alice"] = p
		},
		"the person": func(w *world) { delete(w.people, "alice") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.needed = 2
			if err := w.approve("alice", w.decl().Digest); err != nil {
				t.Fatal(err)
			}
			lose(w)
			w.is(approved.Unapproved)
			if s := w.Of(w.decl()); len(s.Votes) != 0 || s.StillNeeded != 2 || !strings.Contains(s.Text, "The vote of alice counts no more") || slices.Contains(s.MayApprove, "alice") {
				t.Errorf("%+v", s)
			}
			if err := w.approve("bob", w.decl().Digest); err != nil {
				t.Fatal(err)
			}
			w.is(approved.Waiting)
		})
	}
}

// Where nobody else can answer, the way out is said.
func TestNobodyElseCanApprove(t *testing.T) {
	w := newWorld(t)
	w.needed = 2
	delete(w.people, "bob")
	if err := w.approve("alice", w.decl().Digest); err != nil {
		t.Fatal(err)
	}
	if s := w.Of(w.decl()); len(s.MayApprove) != 0 || !strings.Contains(s.Text, "List another person") {
		t.Errorf("%+v", s)
	}
}

// Two names that the configuration says by now are one person's have one vote, whichever of them voted first, and before or after the configuration said so.
func TestOnePersonVotesOnce(t *testing.T) {
	joined := func(w *world) {
		for _, name := range []string{"alice", "bob"} {
			p := w.people[name]
			p.Aliases = append(p.Aliases, "ann@corp.example")
			w.people[name] = p
		}
	}
	w := newWorld(t)
	w.needed = 2
	if err := w.approve("alice", w.decl().Digest); err != nil {
		t.Fatal(err)
	}
	joined(w)
	if err := w.approve("bob", w.decl().Digest); err == nil {
		t.Error("one person approved twice")
	}
	w.is(approved.Waiting)

	w = newWorld(t)
	w.needed = 3
	for _, name := range []string{"alice", "bob"} {
		if err := w.approve(name, w.decl().Digest); err != nil {
			t.Fatal(err)
		}
	}
	joined(w)
	if s := w.Of(w.decl()); len(s.Votes) != 1 || s.StillNeeded != 2 || !strings.Contains(s.Text, "the same person") {
		t.Errorf("of two votes that are one person's: %+v", s)
	}
}
