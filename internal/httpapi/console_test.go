package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"sallyport.example/client"
	"sallyport.example/internal/call"
	"sallyport.example/internal/console"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway/gatewaytest"
	"sallyport.example/internal/identity"
)

// signIn posts the form and returns the answer and the cookie.
func (w *world) signIn(token string, tweak ...func(*http.Request)) (answer, *http.Cookie) {
	w.t.Helper()
	tweak = append([]func(*http.Request){func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }}, tweak...)
	a := w.send(w.admin, "POST", "/login", "", url.Values{"token": {token}}.Encode(), tweak...)
	for _, c := range (&http.Response{Header: a.header}).Cookies() {
		return a, c
	}
	return a, nil
}

func with(c *http.Cookie) func(*http.Request) {
	return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value}) }
}

const policyOfPages = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// TestSignIn: the console shows nothing without a person's token, and a sign-in ends with its time, its token and its sign-out.
func TestSignIn(t *testing.T) {
	w := newWorld(t)
	token := w.token(identity.Person, "carol", identity.Viewer)
	front := w.send(w.admin, "GET", "/", "", "")
	if front.status != 200 || front.header.Get("Content-Security-Policy") != policyOfPages || !strings.Contains(front.body, `action="/login"`) ||
		strings.Contains(front.body, "Approvals") || strings.Contains(front.body, "test") {
		t.Errorf("the front: %d %v %s", front.status, front.header, front.body)
	}
	for name, bad := range map[string]string{
		"nothing": "", "garbage": "x", "an agent's": w.token(identity.Agent, "worker"), "unknown": "spt_person_aaaa", "markup": `"><script>alert(1)</script>`,
	} {
		a, c := w.signIn(bad)
		if a.status != 401 && a.status != 403 || c != nil || strings.Contains(a.body, "<script") || !strings.Contains(a.body, `role="alert"`) {
			t.Errorf("signed in with %s: %d %s", name, a.status, a.body)
		}
	}
	if a, c := w.signIn(token, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }); a.status != 403 || c != nil {
		t.Errorf("signed in from another site: %d", a.status)
	}
	if a, c := w.signIn(strings.Repeat("x", 8<<10)); a.status != 413 || c != nil {
		t.Errorf("a huge form: %d", a.status)
	}
	sign := func() *http.Cookie {
		t.Helper()
		a, c := w.signIn(" " + token + "\n")
		if a.status != 303 || a.header.Get("Location") != "/" || c == nil || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.MaxAge != 12*60*60 || c.Path != "/" ||
			strings.Contains(c.Value, token) || len(c.Value) < 20 {
			t.Fatalf("sign in: %d %+v", a.status, c)
		}
		return c
	}
	in := func(c *http.Cookie) bool {
		t.Helper()
		page := w.send(w.admin, "GET", "/", "", "", with(c))
		api := w.send(w.admin, "GET", "/v1/sessions", "", "", with(c))
		if (api.status == 200) != strings.Contains(page.body, "Sign out") {
			t.Errorf("the page and the API disagree: %d", api.status)
		}
		return api.status == 200
	}
	c := sign()
	if !in(c) {
		t.Error("not signed in")
	}
	if a := w.send(w.admin, "POST", "/agents/kill-switch/disable", "", "", with(c)); a.status != 403 || a.problem(t).Code != "role.missing" {
		t.Errorf("a viewer's cookie: %d", a.status)
	}
	if a := w.send(w.admin, "GET", "/v1/sessions", "spt_person_aaaa", "", with(c)); a.status != 401 {
		t.Errorf("a bad token beside a good cookie: %d", a.status)
	}
	if a := w.send(w.agent, "GET", "/v1/session/self", "", "", with(c)); a.status != 401 {
		t.Errorf("the cookie on the agents' side: %d", a.status)
	}
	out := w.send(w.admin, "POST", "/logout", "", "", with(c))
	if out.status != 303 || in(c) {
		t.Errorf("signed out: %d", out.status)
	}
	c = sign()
	w.clock.forward(12*time.Hour - time.Minute)
	if !in(c) {
		t.Error("ended before its time")
	}
	w.clock.forward(2 * time.Minute)
	if in(c) {
		t.Error("did not end with its time")
	}
	c = sign()
	for _, tok := range w.g.Standing().ListTokens() {
		if tok.Subject.ID == "carol" {
			if err := w.g.Standing().RevokeToken(t.Context(), tok.ID, "test"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if in(c) {
		t.Error("outlived its token")
	}
}

const hostile = "<img src=x onerror=alert(1)>\"'</td><script>alert(2)</script>\u202egpj.exe\x1b[31m{{.}}"

// hostileWorld is a gateway in which everything that others can write is hostile.
func hostileWorld(t *testing.T) *world {
	w := newWorld(t)
	ctx := t.Context()
	w.servers = []console.ServerStatus{
		{ID: "mail", State: "up", Definitions: 12},
		{ID: "web", State: "failed", LastError: hostile, Name: hostile, Instructions: hostile},
	}
	agents, people := w.client(w.agent, w.token(identity.Agent, "worker")), w.root()
	for _, tool := range []string{"web_search", "search_email", hostile, "think"} {
		arguments, err := json.Marshal(map[string]string{"q": hostile})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := agents.Call(ctx, client.Own, tool, arguments); err != nil {
			t.Log(err) // a name that is too long or malformed is a problem, which is fine
		}
	}
	if err := w.g.Catalogue().UpdateDefinitions(ctx, "web", []call.Definition{gatewaytest.Tool("web", "web_search", hostile)}); err != nil {
		t.Fatal(err)
	}
	if _, err := people.StartSession(ctx, client.OpenSession{AgentID: "planner", UserRequest: hostile}); err != nil {
		t.Fatal(err)
	}
	if _, err := people.Kill(ctx, "planner", hostile); err != nil {
		t.Fatal(err)
	}
	if _, err := people.Kill(ctx, "", hostile); err != nil {
		t.Fatal(err)
	}
	for range 500 { // a switch is written behind its answer
		if k, err := people.KillStatus(ctx); err != nil {
			t.Fatal(err)
		} else if k.Global.Durable {
			return w
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the switch was not written down")
	return nil
}

// TestHostilePage renders every part of the page with hostile strings.
func TestHostilePage(t *testing.T) {
	w := hostileWorld(t)
	_, c := w.signIn(w.token(identity.Person, "root", identity.Admin))
	a := w.send(w.admin, "GET", "/", "", "", with(c))
	if a.status != 200 || a.header.Get("Content-Security-Policy") != policyOfPages {
		t.Fatalf("%d %v", a.status, a.header)
	}
	for _, bad := range []string{"<img src=x", "<script>", "\u202e", "\x1b", "onerror=alert(1)>\"", "{{"} {
		if strings.Contains(strings.ReplaceAll(a.body, "{{.}}", ""), bad) {
			t.Errorf("the page has %q in it", bad)
		}
	}
	for _, want := range []string{"&lt;img src=x", `\u202e`, "All agents are stopped", "Tools held back", "web.web_search", "internal", "untrusted", "failed", "all agents stopped", "Last audit entries"} {
		if !strings.Contains(a.body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	// Roles see their parts and no others.
	for role, parts := range map[identity.Role]string{identity.Viewer: "", identity.Operator: "", identity.Auditor: " audit", identity.Approver: ""} {
		parts = "kill waits tools servers sessions" + parts
		_, c := w.signIn(w.token(identity.Person, "only-"+string(role), role))
		body := w.send(w.admin, "GET", "/", "", "", with(c)).body
		for _, part := range []string{"kill", "waits", "tools", "servers", "sessions", "audit"} {
			if strings.Contains(body, `<h2 id="`+part+`"`) != strings.Contains(" "+parts+" ", " "+part+" ") {
				t.Errorf("%s and the part %s", role, part)
			}
		}
	}
}

// TestPageWithoutStore: the page says what it can't show.
func TestPageWithoutStore(t *testing.T) {
	w := newWorld(t)
	_, c := w.signIn(w.token(identity.Person, "aud", identity.Auditor))
	w.store.mu.Lock()
	w.store.size = func() (int64, error) { return 0, http.ErrBodyNotAllowed }
	w.store.mu.Unlock()
	if a := w.send(w.admin, "GET", "/", "", "", with(c)); a.status != 200 || !strings.Contains(a.body, "the audit log can’t be shown") || strings.Contains(a.body, http.ErrBodyNotAllowed.Error()) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestPageThatIsNotReady: the overview says so where no write succeeds, or where the gateway is stopping, whatever still answers.
func TestPageThatIsNotReady(t *testing.T) {
	w := newWorld(t)
	_, c := w.signIn(w.token(identity.Person, "ann", identity.Viewer))
	page := func() string { return w.send(w.admin, "GET", "/", "", "", with(c)).body }
	if strings.Contains(page(), "not ready") {
		t.Error("not ready, although it is")
	}
	w.store.mu.Lock()
	w.store.ready = func() error { return fault.New(fault.AuditUnavailable, "The disk is full.") }
	w.store.mu.Unlock()
	if body := page(); !strings.Contains(body, "The gateway is not ready") || !strings.Contains(body, "The disk is full.") {
		t.Error(body)
	}
	w.store.mu.Lock()
	w.store.ready = nil
	w.store.mu.Unlock()
	w.api.Close()
	if body := page(); !strings.Contains(body, "The gateway is not ready") || !strings.Contains(body, "It is stopping.") {
		t.Error(body)
	}
	if a := w.send(w.admin, "GET", "/readyz", "", ""); a.status != 503 || !strings.Contains(a.body, "is stopping") {
		t.Errorf("readyz: %d %s", a.status, a.body)
	}
}
