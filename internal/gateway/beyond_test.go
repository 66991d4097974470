package gateway_test

import (
	"testing"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/project"
)

// A write of level 1 to a file that acts later is one of level 2 in each judgement of the call: a call that was held for a person is refused after
// the no, and runs after the yes alone.
func TestWriteBeyondTheProjectAfterItWasHeld(t *testing.T) {
	folder := t.TempDir()
	own, err := project.New(folder, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := newPeopleWorld(t, func(o *gateway.Options) {
		o.FreeLevel1 = true
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if server == "slack" && tool == "note" {
				c.Project, c.StartsIn, c.Roles = own, folder, map[string]string{"path": "path"}
			}
			return c
		}
	})
	w.offerAll(w.g)
	agent := w.open("worker", "carol", widgets)
	w.mustPermit(w.do(agent, "web_search", `{"q":"x"}`, "")) // untrusted content comes in
	w.mustPermit(w.do(agent, "slack_note", `{"path":"src/a.txt"}`, ""))
	if w.sent("note") != 1 {
		t.Fatal("the write in the project did not run")
	}
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
