package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sallyport.example/client"
)

// A session that nobody but the agent opened is autonomous, and says so. No rule approves a plan in it, whether the declaration says sessions: self or not; a
// person decides, and until then nothing reaches outside. The same plan in a session that a person or a host opened is approved by rule. The audit of agents
// calls such a session A-02 where the approved declaration does not say sessions: self.
func TestNobodyOpenedTheSession(t *testing.T) {
	crm := &scripted{tools: plainTools("get"), answer: says("fine")}
	planner := func(id string) string { return declare(id, "operator", "planning", []string{"*"}, []string{"*"}) }
	w := launch(t, newPlace(t, fmt.Sprintf("upstreams: {crm: {url: %q}}\noperations: {crm.*: {sensitivity: none, effect: read, output: trusted}}\n", crm.url(t)),
		planner("alone"), strings.Replace(planner("self"), "sessions: host", "sessions: self", 1)))
	plan := []client.PlanStep{{Tool: "crm_get", Justification: "The task needs it."}}
	call := func(c *client.Client, session string) client.Verdict {
		t.Helper()
		a, err := c.Call(t.Context(), session, "crm_get", json.RawMessage(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		return a.Verdict
	}
	for _, id := range []string{"alone", "self"} {
		agent := w.client(w.agent, w.token(id))
		s, err := agent.Status(t.Context(), client.Own)
		if err != nil || !s.Autonomous || s.Requester != "" || s.Phase != "planning" {
			t.Fatalf("%s: %+v %v", id, s, err)
		}
		p, err := agent.SubmitPlan(t.Context(), client.Own, plan)
		if err != nil || p.State != "pending" || p.Phase != "planning" {
			t.Fatalf("%s: a rule approved a plan for nobody: %+v %v", id, p, err)
		}
		if v := call(agent, client.Own); v.Code != "phase.blocked" {
			t.Errorf("%s acts before a person decided: %+v", id, v)
		}
		if all := w.recorded("plan.submit"); len(all) == 0 || !strings.Contains(all[len(all)-1].Reason, "Nobody but the agent opened this session") {
			t.Errorf("%s: on record: %+v", id, all)
		}
		page := newBrowser(t)
		page.signIn(w, w.place.secret(t, "admin.token"))
		page.open(w.admin + "/sessions/" + s.SessionID)
		page.see("nobody (autonomous: nobody but the agent opened it")
		page.open(w.admin + "/sessions")
		page.see("autonomous")
		t.Setenv("SALLYPORT_TOKEN", w.place.secret(t, "admin.token"))
		if code, out, _ := w.command(nil, "sessions", "show", s.SessionID); code != 0 || !strings.Contains(out, "nobody: it is autonomous") {
			t.Errorf("%s: the terminal: %d %s", id, code, out)
		}
		if _, err := w.root.ApprovePlan(t.Context(), s.SessionID, p.Digest, ""); err != nil {
			t.Fatal(err)
		}
		if v := call(agent, client.Own); v.Decision != "permit" {
			t.Errorf("%s, after a person's yes: %+v", id, v)
		}
	}
	if code, out, _ := w.command(nil, "agents", "audit"); code != 1 || !strings.Contains(out, "Sessions of alone were opened by nobody but the agent") {
		t.Errorf("the audit: %d %s", code, out)
	}
	given, err := w.root.StartSession(t.Context(), client.OpenSession{AgentID: "alone", UserRequest: "Look it up."})
	if err != nil {
		t.Fatal(err)
	}
	agent := w.client(w.agent, given.SessionToken)
	if p, err := agent.SubmitPlan(t.Context(), given.SessionID, plan); err != nil || p.State != "approved" || p.Phase != "execution" {
		t.Errorf("in a session that a person opened: %+v %v", p, err)
	}
	if s, err := w.root.Session(t.Context(), given.SessionID); err != nil || s.Autonomous {
		t.Errorf("a session that a person opened: %+v %v", s, err)
	}
}
