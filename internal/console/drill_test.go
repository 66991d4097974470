package console

import (
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/identity"
)

// A drill is told to nobody before it is answered, on no page of an approver's, and to everybody then.
func TestDrillIsToldWhenItIsAnswered(t *testing.T) {
	w := newPagesWorld(t)
	s, _ := w.open("worker", "Pay the caterer.")
	now := time.Now()
	a, err := approval.New(approval.Approval{
		CallDigest: call.HashBytes([]byte("drill")), Risk: "HIGH", Operation: "slack.post", DefinitionHash: "x", Arguments: []byte(`{"channel":"ext-7741"}`),
		Session: s.ID, Agent: s.Agent, Requester: s.Requester, OpenedBy: s.OpenedBy,
	}, now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.AskPerson(t.Context(), desk.Ask{Session: s.ID, Agent: s.Agent, CallDigest: a.CallDigest, At: now}, func(desk.Found) (desk.Written, error) {
		return desk.Written{Question: &a, Drill: true, Entry: audit.Entry{Kind: audit.Decision, Action: "approval.drill", Session: s.ID, Agent: s.Agent, Decision: "ask", Actor: "rule:drill"}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/approvals", "/approvals/" + a.ID, "/sessions/" + s.ID} {
		if page := w.ask("admin", path, nil).Body.String(); strings.Contains(strings.ToLower(page), "drill") {
			t.Errorf("%s tells", path)
		}
	}
	if _, err := w.g.Desk().Respond(t.Context(), approval.Voter{Person: "ann", Roles: []identity.Role{identity.Approver}}, desk.Response{
		Approval: a.ID, Digest: a.Digest, Decision: approval.Reject, Reason: "nobody asked for it",
	}); err != nil {
		t.Fatal(err)
	}
	if page := w.ask("approver", "/approvals/"+a.ID, nil).Body.String(); !strings.Contains(page, "This was a drill.") {
		t.Errorf("it is not told: %s", page)
	}
	if page := w.ask("auditor", "/", nil).Body.String(); !strings.Contains(page, "Drills that were answered: 1 rejected, none approved.") {
		t.Errorf("it is not counted: %s", page)
	}
}
