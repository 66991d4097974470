package httpapi_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/identity"
)

// TestPagesOfOtherPortsPostNothing: a page on another port of the same machine is of the same site, so that the browser sends the strict cookie along. It
// posts to nothing of the console all the same.
func TestPagesOfOtherPortsPostNothing(t *testing.T) {
	w := newWorld(t)
	c, session := w.open("dora")
	q := w.ask(c, session, "comm_exec", "https://docs.example/")
	alice := w.browser("alice", identity.Admin)
	for _, p := range pages {
		method, path, _ := strings.Cut(p.pattern, " ")
		if method != http.MethodPost {
			continue
		}
		id := q.ApprovalID
		if strings.HasPrefix(path, "/sessions") {
			id = session
		} else if strings.HasPrefix(path, "/agents") {
			id = "planner"
		}
		path = strings.NewReplacer("{id}", id, "{operation}", "docs.think", "{index}", "0", "{code}", "x").Replace(path)
		for name, header := range map[string]string{"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:3000", "origin of a sandbox": "null"} {
			if name == "origin of a sandbox" {
				name = "Origin"
			}
			a := alice.post(path, url.Values{"digest": {q.Digest}, "reason": {"because"}, "comment": {""}}, func(r *http.Request) { r.Header.Set(name, header) })
			if a.status != http.StatusForbidden {
				t.Errorf("%s with %s: %s: %d", p.pattern, name, header, a.status)
			}
		}
	}
	if now, err := w.g.Desk().Question(t.Context(), q.ApprovalID); err != nil || now.State != approval.Pending || len(now.Votes) > 0 || w.g.Standing().KillStatus().Global.Active {
		t.Errorf("a neighbour's page did something: %+v, %v", now.Approval, err)
	}
	if a := alice.get("/"); a.status != http.StatusOK {
		t.Errorf("a neighbour's page signed the person out: %d", a.status)
	}
}

// TestAnswersAreReadFromTheFormAlone: an answer is read from the form alone, whatever the address or a body of another kind says, and only with the digest of
// what it is for.
func TestAnswersAreReadFromTheFormAlone(t *testing.T) {
	w := newWorld(t)
	c, session := w.open("dora")
	q, other := w.ask(c, session, "comm_exec", "https://docs.example/a"), w.ask(c, session, "comm_exec", "https://docs.example/b")
	carol := w.browser("carol", identity.Approver, identity.Viewer)
	fields := func(digest string) url.Values {
		return url.Values{"digest": {digest}, "reason": {"because"}, "comment": {""}, "until": {"1h0m0s"}, "arguments": {`{"url":"https://docs.example/c"}`},
			"decision": {"approve"}, "take." + q.ApprovalID: {"yes"}, "digest." + q.ApprovalID: {digest}}
	}
	multipart := "--b\r\nContent-Disposition: form-data; name=\"digest\"\r\n\r\n" + q.Digest + "\r\n--b\r\nContent-Disposition: form-data; name=\"reason\"\r\n\r\nbecause\r\n--b--\r\n"
	for _, act := range []string{"approve", "reject", "defer", "modify", "similar"} {
		at := "/approvals/" + q.ApprovalID + "/" + act
		for name, one := range map[string]struct{ query, media, body string }{
			"all in the address":   {"?" + fields(q.Digest).Encode(), "application/x-www-form-urlencoded", "x=y"},
			"a body of many parts": {"", "multipart/form-data; boundary=b", multipart},
			"plain text":           {"", "text/plain", fields(q.Digest).Encode()},
			"JSON":                 {"", "application/json", `{"digest":"` + q.Digest + `","reason":"because"}`},
			"no digest":            {"", "application/x-www-form-urlencoded", fields("").Encode()},
			"another's digest":     {"", "application/x-www-form-urlencoded", fields(other.Digest).Encode()},
			"the digest twice":     {"", "application/x-www-form-urlencoded", fields(q.Digest).Encode() + "&digest=" + other.Digest},
			"the digest of a call": {"", "application/x-www-form-urlencoded", fields(q.CallDigest).Encode()},
		} {
			a := w.send(w.admin, http.MethodPost, at+one.query, "", one.body, with(carol.cookie), func(r *http.Request) { r.Header.Set("Content-Type", one.media) })
			if a.status == http.StatusSeeOther {
				t.Errorf("%s, %s: taken", act, name)
			}
		}
	}
	for _, id := range []string{q.ApprovalID, other.ApprovalID} {
		if now, err := w.g.Desk().Question(t.Context(), id); err != nil || now.State != approval.Pending || len(now.Votes) > 0 {
			t.Errorf("%s: %s, %v, %v", id, now.State, now.Votes, err)
		}
	}
	if a := carol.post("/approvals/"+q.ApprovalID+"/approve", fields(q.Digest)); a.status != http.StatusSeeOther {
		t.Errorf("the form itself: %d", a.status)
	}
}

// A second cookie of the name is a neighbour's: whoever sets one (another port of the host, another host of the domain) must not choose who answers.
func TestSecondCookieOfTheNameIsRefused(t *testing.T) {
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
