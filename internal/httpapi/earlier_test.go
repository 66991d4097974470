package httpapi_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/client"
	"sallyport.example/flow"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/policy"
	"sallyport.example/provenance"
)

// paying makes a world in which slack_post pays somebody: HIGH, with a destination.
func paying(t *testing.T) *world {
	was := classes["slack.post"]
	classes["slack.post"] = catalogue.Classification{ExposeAs: "slack_post", Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Write}, Output: provenance.TrustedOutput, Level: 2,
		RiskFloor: policy.High, Roles: map[string]string{"to": "destination"}}
	t.Cleanup(func() { classes["slack.post"] = was })
	return newWorld(t)
}

// What people decided about a destination stays in sight, however often an agent asks for it again.
func TestEarlierDecisionsStayInSight(t *testing.T) {
	w := paying(t)
	c, _ := w.open("dora")
	carol := w.client(w.admin, w.token(identity.Person, "carol", identity.Approver))
	first, err := w.g.Desk().Question(t.Context(), w.askRaw(c, map[string]any{"to": "IBAN-OF-THIEF", "sum": 1}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := carol.Reject(t.Context(), first.ID, first.Digest, "fraud: never pay them"); err != nil {
		t.Fatal(err)
	}
	last := ""
	for i := range 7 { // the agent's own questions
		last = w.askRaw(c, map[string]any{"to": "IBAN-OF-THIEF", "sum": 2 + i})
	}
	q, err := carol.Approval(t.Context(), last)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(q.Earlier, func(e client.Earlier) bool { return e.State == "rejected" && strings.Contains(e.Reason, "fraud") }) {
		t.Errorf("the no is not among the earlier decisions: %+v", q.Earlier)
	}
}

// Similar are requests to one destination: the words of the refusal, of the command line and of the requirement say so.
func TestSimilarRequestsAreOfOneDestination(t *testing.T) {
	w := paying(t)
	c, _ := w.open("dora")
	carol := w.client(w.admin, w.token(identity.Person, "carol", identity.Approver))
	var refs []client.ApprovalRef
	for _, to := range []string{"IBAN-OF-SUPPLIER", "IBAN-OF-SUPPLIER-2", "IBAN-OF-THIEF"} {
		q, err := carol.Approval(t.Context(), w.askRaw(c, map[string]any{"to": to, "sum": 1}))
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, client.ApprovalRef{ApprovalID: q.ApprovalID, Digest: q.Digest})
	}
	all, err := carol.RespondTogether(t.Context(), "approve", "", refs)
	if err == nil {
		t.Errorf("payments to three recipients were approved as one batch: %s", all[2].Approval.State)
	}
}

// Who is named beside an earlier decision made it: not who said the opposite before.
func TestEarlierDecisionNamesWhoMadeIt(t *testing.T) {
	w := paying(t)
	c, _ := w.open("dora")
	carol, erin := w.client(w.admin, w.token(identity.Person, "carol", identity.Approver)), w.client(w.admin, w.token(identity.Person, "erin", identity.Approver))
	first, err := carol.Approval(t.Context(), w.askRaw(c, map[string]any{"to": "IBAN", "sum": 1}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := carol.Reject(t.Context(), first.ApprovalID, first.Digest, "no"); err != nil {
		t.Fatal(err)
	}
	second, err := carol.Approval(t.Context(), w.askRaw(c, map[string]any{"to": "IBAN", "sum": 2}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := carol.Defer(t.Context(), second.ApprovalID, second.Digest, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := erin.Approve(t.Context(), second.ApprovalID, second.Digest, ""); err != nil {
		t.Fatal(err)
	}
	q, err := carol.Approval(t.Context(), w.askRaw(c, map[string]any{"to": "IBAN", "sum": 3}))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range q.Earlier {
		if e.State == "approved" && slices.Contains(e.By, "carol") {
			t.Errorf("carol, who put it off and rejected the one before, is said to have approved: %v", e.By)
		}
	}
}
