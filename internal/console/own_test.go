package console

import (
	"strings"
	"testing"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/session"
)

// What a person answered to their own request is marked wherever the answer is shown: on the request, in lists, in later requests and in the log.
func TestOwnAnswersAreMarked(t *testing.T) {
	const mark = "own request"
	w := newPagesWorld(t)
	for _, person := range []string{"rita", "bob"} {
		s, do := w.open("worker", "Post x to "+person+".")
		ask := func(body string) string {
			return *do("slack_post", `{"channel":"`+person+`","body":"`+body+`"}`).Verdict.ApprovalID
		}
		id := ask("x")
		q, err := w.g.Desk().Question(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		answer := desk.Response{Approval: id, Digest: q.Digest, Decision: approval.Approve, Reason: "mine"}
		if _, err := w.g.Desk().Respond(t.Context(), approval.Voter{Person: person, Roles: []identity.Role{identity.Approver}}, answer); err != nil {
			t.Fatal(err)
		}
		own := person == "rita"
		check := func(path, roles string) {
			t.Helper()
			if page := ownWords(w.ask(roles, path, nil).Body.String()); strings.Contains(page, mark) != own {
				t.Errorf("%s answered, and %s says %q: %v", person, path, mark, !own)
			}
		}
		check("/approvals/"+id, "approver")
		check("/approvals/"+ask("y"), "approver")
		check("/sessions/"+s.ID, "viewer")
		check("/audit?session="+s.ID, "auditor")
		if own {
			check("/approvals?state=approved", "approver")
		}

		planned, _ := w.open("planner", "Think.")
		plan := w.pend(planned)
		if _, err := w.g.SetPhase(t.Context(), planned.ID, session.Planning, "person:ann", "the gateway reads it again"); err != nil {
			t.Fatal(err)
		}
		page := w.ask("operator viewer", "/sessions/"+planned.ID, nil).Body.String()
		contains(t, page, "Why a person is asked:", plan.Why)
		if _, err := w.g.DecidePlan(t.Context(), planned.ID, plan.Digest, false, "person:"+person, "no"); err != nil {
			t.Fatal(err)
		}
		check("/sessions/"+planned.ID, "operator viewer")
	}
}
