package gateway_test

import (
	"testing"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
)

// A call can be held for longer than its credential lasts: what was approved meanwhile is not run for a token that was revoked.
func TestTokenRevokedWhileHeld(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	_, token, err := w.g.Standing().IssueToken(t.Context(), identity.Principal{Kind: identity.Session, ID: p.ID, Agent: p.Agent}, "person:root")
	if err != nil {
		t.Fatal(err)
	}
	p = token.Subject
	h := w.hold(p, "slack_publish", `{"text":"x"}`, time.Minute)
	id := h.waits().ApprovalID
	if err := w.g.Standing().RevokeToken(t.Context(), token.ID, "person:root"); err != nil {
		t.Fatal(err)
	}
	w.mustRespond("bob", id, approval.Approve, "")
	if a := h.ends(); a.Verdict.Code != fault.CredentialMissing || w.sent("publish") != 0 {
		t.Errorf("%+v, %d sent", a.Verdict, w.sent("publish"))
	}
	if q := w.question(id); q.State != approval.Approved {
		t.Errorf("the approval is %s", q.State)
	}
}
