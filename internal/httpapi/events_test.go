package httpapi_test

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strings"
	"testing"
	"time"

	"sallyport.example/client"
	"sallyport.example/internal/identity"
)

// follow starts a stream of events, reads its beginning, and returns what comes next.
func follow(t *testing.T, c *client.Client) (next func() (client.Event, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	pull, stop := iter.Pull2(c.Events(ctx))
	t.Cleanup(func() { cancel(); stop() })
	next = func() (client.Event, error) {
		e, err, ok := pull()
		if !ok {
			t.Error("the stream ended without an error")
		}
		return e, err
	}
	if e, err := next(); err != nil || e != (client.Event{Topic: "all"}) {
		t.Fatalf("it begins with %+v %v", e, err)
	}
	return next
}

// comes reads on until the event comes.
func comes(t *testing.T, next func() (client.Event, error), want client.Event) {
	t.Helper()
	for {
		e, err := next()
		if err != nil {
			t.Fatalf("%+v does not come: %v", want, err)
		}
		if e == want {
			return
		}
	}
}

// TestEventStream: a program of a person's is told what changes, and no more than that.
func TestEventStream(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	c, _ := w.open("bob")
	root := w.root()
	next := follow(t, w.client(w.admin, w.token(identity.Person, "aud", identity.Auditor)))
	q := w.ask(c, client.Own, "comm_exec", "https://docs.example/<script>")
	comes(t, next, client.Event{Topic: "approval", ID: q.ApprovalID})
	if _, err := root.Reject(ctx, q.ApprovalID, q.Digest, "no"); err != nil {
		t.Fatal(err)
	}
	comes(t, next, client.Event{Topic: "approval", ID: q.ApprovalID})
	if _, err := root.Quarantine(ctx, "worker", "odd"); err != nil {
		t.Fatal(err)
	}
	comes(t, next, client.Event{Topic: "agent", ID: "worker"})
	if _, err := root.Kill(ctx, "", "stop"); err != nil {
		t.Fatal(err)
	}
	comes(t, next, client.Event{Topic: "kill"})
	w.api.Close()
	var gone *client.Unreachable
	for err := error(nil); ; {
		if _, err = next(); err != nil {
			if !errors.As(err, &gone) {
				t.Errorf("after the end: %v", err)
			}
			return
		}
	}
}

// TestEventsEndWithTheCredential: who is no longer let in is told nothing more.
func TestEventsEndWithTheCredential(t *testing.T) {
	w := newWorld(t)
	secret, tok, err := w.g.Standing().IssueToken(t.Context(), identity.Principal{Kind: identity.Person, ID: "v", Roles: []identity.Role{identity.Viewer}}, "test")
	if err != nil {
		t.Fatal(err)
	}
	c, _ := w.open("bob")
	viewer := w.client(w.admin, secret)
	next := follow(t, viewer)
	if err := w.root().RevokeToken(t.Context(), tok.ID); err != nil {
		t.Fatal(err)
	}
	w.ask(c, client.Own, "comm_exec", "https://docs.example/")
	for {
		e, err := next()
		if err != nil {
			break
		}
		if e.ID != "" {
			t.Fatalf("told after the end: %+v", e)
		}
	}
	for _, err := range viewer.Events(t.Context()) {
		if code(err) != "credential.missing" {
			t.Errorf("again: %v", err)
		}
	}
}

// TestEventsAreBounded: one person has so many streams, and gets the place of one that ended.
func TestEventsAreBounded(t *testing.T) {
	w := newWorld(t)
	viewer := w.client(w.admin, w.token(identity.Person, "v", identity.Viewer))
	open := 0
	var refused error
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for refused == nil && open < 100 {
		next, stop := iter.Pull2(viewer.Events(ctx))
		defer stop()
		if _, err, _ := next(); err != nil {
			refused = err
		} else {
			open++
		}
	}
	var p *client.Problem
	if !errors.As(refused, &p) || p.Status != http.StatusTooManyRequests || p.Code != "limit.rate" || !strings.Contains(p.Error(), "Close some") || open < 5 || open > 50 {
		t.Errorf("after %d: %v", open, refused)
	}
	follow(t, w.client(w.admin, w.token(identity.Person, "other", identity.Viewer)))
	cancel()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var err error
		for _, err = range viewer.Events(t.Context()) {
			break
		}
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the places are not given back: %v", err)
		}
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

// A page of a neighbour (another port of this machine) can't listen, and so can't use up the person's streams and the browser's six connections.
func TestPagesOfOtherPortsDoNotListen(t *testing.T) {
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
