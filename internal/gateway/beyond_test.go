package gateway_test

import (
	"testing"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/project"
)

// newProject is a world in which slack.note writes a file of a project, free in it, and a session that untrusted content came into.
func newProject(t *testing.T) (*commWorld, identity.Principal) {
	t.Helper()
	folder := t.TempDir()
	own, err := project.New(folder, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := newPeopleWorld(t, func(o *gateway.Options) {
		o.FreeLevel1 = true
		classified("slack.note", func(c *catalogue.Classification) {
			c.Project, c.StartsIn, c.Roles = own, []string{folder}, map[string]string{"path": "path"}
		})(&o.Settings)
	})
	agent := w.open("worker", "carol", widgets)
	w.mustPermit(w.do(agent, "web_search", `{"q":"x"}`, ""))
	w.mustPermit(w.do(agent, "slack_note", `{"path":"src/a.txt"}`, ""))
	if w.sent("note") != 1 {
		t.Fatal("the write in the project did not run")
	}
	return w, agent
}

// A write of level 1 to a file that acts later is one of level 2 in each judgement of the call: a call that was held for a person is refused after
// the no, and runs after the yes alone.
func TestWriteBeyondTheProjectAfterItWasHeld(t *testing.T) {
	w, agent := newProject(t)
	for answer, code := range map[approval.Decision]fault.Code{approval.Reject: fault.ApprovalRejected, approval.Approve: ""} {
		before := w.sent("note")
		h := w.hold(agent, "slack_note", `{"path":".git/hooks/`+string(answer)+`"}`, time.Hour)
		w.mustRespond("bob", h.waits().ApprovalID, answer, "so")
		a := h.ends()
		if ran := w.sent("note") - before; a.Verdict.Code != code || ran != map[bool]int{true: 1}[code == ""] {
			t.Errorf("%s: %+v, %d ran", answer, a.Verdict, ran)
		}
	}
}

// A reload, or a stop of another agent, lets a held call be judged again. It stays the write of level 2 that it was, and does not run.
func TestWriteBeyondTheProjectWhileItIsHeld(t *testing.T) {
	w, agent := newProject(t)
	h := w.hold(agent, "slack_note", `{"path":".git/hooks/pre-commit"}`, time.Minute)
	h.waits()
	w.reconfigure(func(*gateway.Settings) {})
	h.looked()
	if err := w.g.Standing().Quarantine(t.Context(), "planner", "another agent", "person:root"); err != nil {
		t.Fatal(err)
	}
	h.looked()
	if n := w.sent("note"); n != 1 {
		t.Errorf("%d writes ran unasked", n)
	}
	h.hangUp()
}
