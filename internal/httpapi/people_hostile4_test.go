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

// Who has no role is told nothing of what changes, by either stream.
func TestEventsTakeARole(t *testing.T) {
	w := newWorld(t)
	w.token(identity.Person, "bob", identity.Approver)
	token := w.token(identity.Person, "bob", identity.Approver) // of the configuration: viewer and operator, so none of the token's is left
	a, c := w.signIn(token)
	if c == nil {
		t.Fatal(a.status)
	}
	byToken := w.send(w.admin, "GET", "/v1/events", token, "")
	byPage := w.send(w.admin, "GET", "/events", "", "", with(c))
	if byToken.status != 403 || byPage.status != byToken.status {
		t.Errorf("a person with no role: /v1/events %d, /events %d", byToken.status, byPage.status)
	}
}

// A second cookie of the name is a neighbour's: whoever sets one (another port of the host, another host of the domain) must not choose who answers.
func TestTossedCookie(t *testing.T) {
	w := newWorld(t)
	carol, mallory := w.browser("carol", identity.Approver), w.browser("mallory", identity.Viewer)
	a := w.send(w.admin, "GET", "/", "", "", func(r *http.Request) {
		r.Header.Set("Cookie", mallory.cookie.Name+"="+mallory.cookie.Value+"; "+carol.cookie.Name+"="+carol.cookie.Value) // the one with the longer path comes first
	})
	p := checkPage(t, "two cookies", a)
	if _, ok := p.ids["token"]; !ok {
		t.Errorf("with two cookies the first counts: %.200s", p.text)
	}
}

// A page of a neighbour (another port of this machine) can't listen, and so can't use up the person's streams and the browser's six connections.
func TestNeighboursDontListen(t *testing.T) {
	w := newWorld(t)
	carol := w.browser("carol", identity.Approver)
	for _, path := range []string{"/events", "/v1/events"} {
		for _, site := range []string{"same-site", "cross-site"} {
			a := w.send(w.admin, "GET", path, "", "", with(carol.cookie), func(r *http.Request) {
				r.Header.Set("Sec-Fetch-Site", site)
				r.Header.Set("Sec-Fetch-Mode", "cors")
			})
			if a.status != http.StatusForbidden {
				t.Errorf("a %s page listens to %s: %d", site, path, a.status)
			}
		}
	}
}
