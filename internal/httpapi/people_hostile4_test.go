package httpapi_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"sallyport/client"
	"sallyport/internal/identity"
)

// TestWroteTheArguments: whoever changed the arguments is not offered to approve them, and everybody else is.
func TestWroteTheArguments(t *testing.T) {
	w := newWorld(t)
	c, _ := w.open("dora")
	q := w.ask(c, client.Own, "comm_exec", "https://docs.example/1")
	carol, erin := w.browser("carol", identity.Approver), w.browser("erin", identity.Approver)
	a := carol.post("/approvals/"+q.ApprovalID+"/modify", url.Values{"digest": {q.Digest}, "arguments": {`{"url":"https://docs.example/2"}`}, "reason": {"the second"}})
	if a.status != http.StatusSeeOther {
		t.Fatalf("modify: %d %s", a.status, a.body)
	}
	at := a.header.Get("Location")
	own := carol.get(at).body
	if strings.Contains(own, `id="approve"`) || !strings.Contains(own, "You wrote these arguments; another person has to approve them.") || !strings.Contains(own, `id="reject"`) || !strings.Contains(own, `id="defer"`) {
		t.Errorf("who wrote them: %s", own)
	}
	if other := erin.get(at).body; !strings.Contains(other, `id="approve"`) || strings.Contains(other, "You wrote") {
		t.Error("another person is not offered to approve them")
	}
	p := checkPage(t, "changed", erin.get(at))
	if a := carol.post(at+"/approve", url.Values{"digest": {p.inputs["digest"]}}); a.status != http.StatusForbidden {
		t.Errorf("who wrote them approves: %d", a.status)
	}
	if a := erin.post(at+"/approve", url.Values{"digest": {p.inputs["digest"]}}); a.status != http.StatusSeeOther {
		t.Errorf("another person approves: %d", a.status)
	}
}
