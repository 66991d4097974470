package gateway_test

import (
	"errors"
	"slices"
	"testing"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/session"
)

func (w *world) tool(id string) catalogue.Tool {
	w.t.Helper()
	for _, t := range w.g.Catalogue().Tools() {
		if t.Operation == id {
			return t
		}
	}
	w.t.Fatalf("there is no tool %s", id)
	return catalogue.Tool{}
}

// acceptAll accepts what servers say of their tools, as a person does who has read it.
func (w *world) acceptAll() {
	w.t.Helper()
	var all []catalogue.Acceptance
	for _, t := range w.g.Catalogue().Tools() {
		switch {
		case t.PendingHash != "":
			all = append(all, catalogue.Acceptance{Operation: t.Operation, Hash: t.PendingHash})
		case t.Unread:
			all = append(all, catalogue.Acceptance{Operation: t.Operation, Hash: t.Hash})
		}
	}
	errs, err := w.g.Catalogue().AcceptTools(w.t.Context(), all, "person:ann")
	if err = errors.Join(append(errs, err)...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) session(agent string) session.Session {
	w.t.Helper()
	s, err := w.g.SessionFor(w.t.Context(), as(agent))
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) list(agent string) []string {
	w.t.Helper()
	ops, err := w.g.Listing(w.t.Context(), as(agent))
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, op := range ops {
		names = append(names, op.Name)
	}
	return names
}

// TestListingUnreadDefinitions: a session that lists definitions which only a rule accepted holds untrusted, durably and with a cause, before
// it has the list. The list itself does not depend on that.
func TestListingUnreadDefinitions(t *testing.T) {
	w := newWorld(t)
	first := w.list("worker")
	if len(first) == 0 {
		t.Fatal("nothing is listed")
	}
	stored, err := w.db.Session(t.Context(), w.session("worker").ID)
	if err != nil {
		t.Fatal(err)
	}
	want := []flow.Held{{Label: flow.Untrusted, Cause: "definitions of docs, mail, slack, web, which no person accepted"}}
	if !slices.Equal(stored.Labels, want) {
		t.Errorf("labels %+v, want %+v", stored.Labels, want)
	}
	entries := len(w.entries())
	if again := w.list("worker"); !slices.Equal(first, again) {
		t.Errorf("the list depends on labels: %v, then %v", first, again)
	}
	if n := len(w.entries()); n != entries {
		t.Errorf("listing again wrote %d entries", n-entries)
	}
	e := w.entries()[entries-1]
	if e.Action != "session.definitions" || !slices.Equal(e.Labels, []string{"untrusted"}) || e.Reason != want[0].Cause || e.Session != stored.ID || e.Agent != "worker" {
		t.Errorf("on record: %+v", e)
	}
}

// TestNoListWithoutItsLabel: where the label can't be written down, nothing is listed.
func TestNoListWithoutItsLabel(t *testing.T) {
	w := newWorld(t)
	s := w.session("worker")
	if err := w.db.Close(); err != nil {
		t.Fatal(err)
	}
	if ops, err := w.g.Listing(t.Context(), as("worker")); err == nil || ops != nil {
		t.Errorf("listed %d tools without the label", len(ops))
	}
	if again := w.session("worker"); len(again.Labels) != 0 || again.ID != s.ID {
		t.Errorf("%+v", again)
	}
}

// TestReadDefinitionsMarkNothing: definitions that a person has accepted, and those of a server that the operator trusts at first sight, bring no
// label; nor does listing make a call riskier.
func TestReadDefinitionsMarkNothing(t *testing.T) {
	w := newWorld(t)
	before := w.tool("slack.post")
	if !before.Unread || before.AcceptedBy != "rule:first-sight" {
		t.Fatalf("%+v", before)
	}
	w.acceptAll()
	w.list("worker")
	if s := w.session("worker"); len(s.Labels) != 0 {
		t.Errorf("accepted definitions brought %+v", s.Labels)
	}
	if after := w.tool("slack.post"); after.Unread || after.AcceptedBy != "person:ann" || !after.AcceptedAt.Equal(before.AcceptedAt) {
		t.Errorf("%+v", after)
	}
	w.mustPermit(w.call("worker", "slack_post")) // a definition that was there from the first is no new tool, whoever accepted it

	// It stays so over a restart, and ends with another definition.
	w.end()
	w.start()
	changed := definition("slack", "post", "Another tool.")
	if err := w.g.Catalogue().UpdateDefinitions(t.Context(), "slack", []call.Definition{definition("slack", "post", "A tool.")}); err != nil {
		t.Fatal(err)
	}
	if got := w.tool("slack.post"); got.Unread || got.Standing != catalogue.Active {
		t.Errorf("%+v", got)
	}
	if err := w.g.Catalogue().UpdateDefinitions(t.Context(), "slack", []call.Definition{changed}); err != nil {
		t.Fatal(err)
	}
	if got := w.tool("slack.post"); got.Standing != catalogue.Quarantined {
		t.Errorf("%+v", got)
	}

	trusting := newWorld(t, func(o *gateway.Options) {
		o.Classify = func(server, tool string) catalogue.Classification {
			c := classify(server, tool)
			c.TrustFirstSight = server != "mail"
			return c
		}
	})
	if trusting.tool("slack.post").Unread || !trusting.tool("mail.search_email").Unread {
		t.Error("first_sight: trust is a word about one server")
	}
	trusting.list("worker")
	if s := trusting.session("worker"); len(s.Labels) != 1 || s.Labels[0].Cause != "definitions of mail, which no person accepted" {
		t.Errorf("%+v", s.Labels)
	}
}
