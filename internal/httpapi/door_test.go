package httpapi_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/client"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/gateway/gatewaytest"
	"sallyport.example/internal/identity"
)

// recorded waits for an entry that fits.
func (w *world) recorded(fits func(audit.Entry) bool) audit.Entry {
	w.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		es, _, err := w.store.Entries(w.t.Context(), audit.Filter{Kind: string(audit.Decision), Limit: 1000})
		if err != nil {
			w.t.Fatal(err)
		}
		if i := slices.IndexFunc(es, fits); i >= 0 {
			return es[i]
		}
	}
	w.t.Fatal("it is not on record")
	return audit.Entry{}
}

// What the HTTP doors turn away without a call is on record with stage, code and reason, also where the agent is told less.
func TestTurnedAwayIsOnRecord(t *testing.T) {
	w := newWorld(t)
	host := w.client(w.agent, w.token(identity.Host, "ci"))
	opened, err := host.Open(t.Context(), client.OpenSession{AgentID: "worker", Requester: "bob"})
	if err != nil {
		t.Fatal(err)
	}
	session, other, person, agent := opened.SessionToken, w.token(identity.Host, "desk"), w.token(identity.Person, "eve", identity.Viewer), w.token(identity.Agent, "worker")
	for _, c := range []struct {
		people          bool
		method, path    string
		token, body     string
		told            string
		operation, code string
		reason          string
	}{
		{method: "POST", path: "/v1/session/self/calls", token: session, body: `{"tool":`, told: "request.malformed", operation: "POST /v1/session/{id}/calls", code: "request.malformed"},
		{method: "POST", path: "/v1/session/self/plan", token: session, body: `{"steps":[{"tool":"think"}]}`, told: "request.malformed", operation: "POST /v1/session/{id}/plan", code: "request.malformed", reason: "say why"},
		{method: "GET", path: "/v1/session/" + opened.SessionID, token: other, told: "not_found", operation: "GET /v1/session/{id}", code: "permission.denied", reason: "was opened by host:ci, and host:desk asked for it"},
		{method: "GET", path: "/v1/session/self/manifest", token: other, told: "credential.wrong_kind", operation: "GET /v1/session/{id}/manifest", code: "credential.wrong_kind"},
		{method: "POST", path: "/v1/session", token: session, body: `{"agent_id":"worker"}`, told: "credential.wrong_kind", operation: "POST /v1/session", code: "credential.wrong_kind"},
		{people: true, method: "GET", path: "/v1/sessions", token: agent, told: "credential.wrong_kind", operation: "GET /v1/sessions", code: "credential.wrong_kind"},
		{people: true, method: "POST", path: "/agents/kill-switch/disable", token: person, body: `{"reason":"x"}`, told: "role.missing", operation: "POST /agents/kill-switch/disable", code: "role.missing"},
	} {
		server := w.agent
		if c.people {
			server = w.admin
		}
		a := w.send(server, c.method, c.path, c.token, c.body)
		p := a.problem(t)
		if p.Code != c.told {
			t.Errorf("%s %s: told %s", c.method, c.path, a.body)
			continue
		}
		e := w.recorded(func(e audit.Entry) bool { return e.RequestID == p.RequestID })
		if e.Stage != "door" || e.Code != c.code || e.Operation != c.operation || e.Door != "http" || e.Actor == "" || !strings.Contains(e.Reason, c.reason) || e.Reason == "" {
			t.Errorf("%s %s: on record %+v", c.method, c.path, e)
		}
	}
}

// An agent that asks what became of a call hears what it was told, and not what the record says besides.
func TestOutcomeTellsNoMoreThanTheRefusal(t *testing.T) {
	w := newWorld(t)
	if err := w.g.Catalogue().UpdateDefinitions(t.Context(), "shy", []call.Definition{gatewaytest.Tool("shy", "look", "New.")}); err != nil {
		t.Fatal(err)
	}
	c := w.client(w.agent, w.token(identity.Agent, "worker"))
	a, err := c.Call(t.Context(), client.Own, "shy_look", json.RawMessage(`{}`))
	if err != nil || a.Verdict.Code != "tool.unknown" {
		t.Fatalf("%+v %v", a, err)
	}
	e := w.recorded(func(e audit.Entry) bool { return e.CallID == a.CallID })
	if e.Code != "permission.denied" || e.Operation != "shy.look" {
		t.Errorf("%+v", e)
	}
	for range 256 { // its answer is kept no longer: the log's word stands
		if _, err := c.Call(t.Context(), client.Own, "think", nil); err != nil {
			t.Fatal(err)
		}
	}
	got := w.send(w.agent, "GET", "/v1/session/self/calls/"+a.CallID, w.token(identity.Agent, "worker"), "")
	if got.status != 200 || !strings.Contains(got.body, "tool.unknown") || strings.Contains(got.body, "unlisted_operations") || strings.Contains(got.body, "permission.denied") {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// Nobody tries a listener or the sign-in without a trace: each request that is refused for want of a credential or of a permission is on record,
// with who tried (or that nobody knows), what, by which door and from where.
func TestWhoIsTurnedAwayIsOnRecord(t *testing.T) {
	w := newWorld(t)
	form := func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }
	elsewhere := func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }
	misnamed := func(r *http.Request) { r.Host = "evil.example" }
	agent, viewer := w.token(identity.Agent, "worker"), w.token(identity.Person, "eve", identity.Viewer)
	revoked := w.token(identity.Agent, "planner")
	for _, token := range w.g.Standing().ListTokens() {
		if token.Subject.ID == "planner" {
			if err := w.g.Standing().RevokeToken(t.Context(), token.ID, "test"); err != nil {
				t.Fatal(err)
			}
		}
	}
	const never = "spt_person_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	for name, c := range map[string]struct {
		people              bool
		method, path, token string
		body                string
		tweak               func(*http.Request)
		status              int
		actor, door, code   string
		operation           string
	}{
		"nobody at the agents' side":      {method: "GET", path: "/v1/session/self", status: 401, actor: "unknown:agents", door: "http", code: "credential.missing", operation: "GET /v1/session/{id}"},
		"a revoked token":                 {method: "POST", path: "/v1/session/self/calls", token: revoked, body: `{"tool":"think"}`, status: 401, actor: "unknown:agents", door: "http", code: "credential.missing"},
		"a person at the agents' side":    {method: "GET", path: "/v1/session/self", token: viewer, status: 403, actor: "person:eve", door: "http", code: "credential.wrong_kind"},
		"nobody at the people's side":     {people: true, method: "GET", path: "/v1/sessions", status: 401, actor: "unknown:people", door: "http", code: "credential.missing"},
		"a guessed token":                 {people: true, method: "POST", path: "/agents/kill-switch/enable", token: never, body: `{"reason":"x"}`, status: 401, actor: "unknown:people", door: "http", code: "credential.missing"},
		"an agent at the people's side":   {people: true, method: "GET", path: "/v1/audit", token: agent, status: 403, actor: "agent:worker", door: "http", code: "credential.wrong_kind"},
		"without the role":                {people: true, method: "GET", path: "/v1/audit", token: viewer, status: 403, actor: "person:eve", door: "http", code: "role.missing"},
		"without the role for raw bytes":  {people: true, method: "GET", path: "/v1/audit/export", token: viewer, status: 403, actor: "person:eve", door: "http", code: "role.missing"},
		"another origin's page":           {people: true, method: "POST", path: "/agents/kill-switch/enable", token: never, body: `{}`, tweak: elsewhere, status: 403, actor: "unknown:people", door: "http", code: "request.malformed"},
		"another host":                    {method: "GET", path: "/v1/session/self", token: agent, tweak: misnamed, status: 421, actor: "unknown:agents", door: "http", code: "request.malformed"},
		"a page without a sign-in":        {people: true, method: "GET", path: "/approvals", status: 401, actor: "unknown:people", door: "console", code: "credential.missing", operation: "GET /approvals"},
		"an act without a sign-in":        {people: true, method: "POST", path: "/unkill", body: "reason=x", tweak: form, status: 401, actor: "unknown:people", door: "console", code: "credential.missing"},
		"a sign-in with a guessed token":  {people: true, method: "POST", path: "/login", body: "token=" + never, tweak: form, status: 401, actor: "unknown:people", door: "console", code: "credential.missing", operation: "POST /login"},
		"a sign-in with no token":         {people: true, method: "POST", path: "/login", body: "token=hello", tweak: form, status: 401, actor: "unknown:people", door: "console", code: "credential.missing"},
		"a sign-in with an agent's token": {people: true, method: "POST", path: "/login", body: "token=" + agent, tweak: form, status: 403, actor: "agent:worker", door: "console", code: "credential.wrong_kind"},
		"a dead link":                     {people: true, method: "POST", path: "/login/link/GUESSED", body: "", tweak: form, status: 410, actor: "unknown:people", door: "console", code: "credential.missing"},
	} {
		server := w.agent
		if c.people {
			server = w.admin
		}
		tweak := c.tweak
		if tweak == nil {
			tweak = func(*http.Request) {}
		}
		a := w.send(server, c.method, c.path, c.token, c.body, tweak)
		if a.status != c.status {
			t.Errorf("%s: %d %s", name, a.status, a.body)
			continue
		}
		id := a.header.Get("X-Request-Id")
		e := w.recorded(func(e audit.Entry) bool { return e.RequestID == id })
		if e.Actor != c.actor || e.Door != c.door || e.Code != c.code || e.Decision != "deny" || e.Remote != "127.0.0.1" || e.Reason == "" || !strings.HasPrefix(e.Operation, c.method+" /") || c.operation != "" && e.Operation != c.operation {
			t.Errorf("%s: on record %+v", name, e)
		}
		if e.Severity != audit.Warning || (c.code != "request.malformed") != (e.Event == audit.CredentialRefused || e.Event == audit.AccessViolation) {
			t.Errorf("%s: %s %s", name, e.Severity, e.Event)
		}
		if strings.Contains(e.Reason+string(e.Detail), strings.TrimPrefix(never, "spt_person_")) {
			t.Errorf("%s: the token is on record", name)
		}
	}
}

// Who keeps trying does not fill the record, and nothing of it is lost: what has no entry of its own is in one with the number.
func TestWhoKeepsTryingIsCounted(t *testing.T) {
	w := newWorld(t)
	const tries = 40
	for range tries {
		w.send(w.admin, "GET", "/v1/sessions", "", "")
		w.send(w.agent, "GET", "/v1/session/self", "", "")
	}
	if err := w.g.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	es, _, err := w.store.Entries(t.Context(), audit.Filter{Code: "credential.missing", Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, e := range es {
		n := 1
		if e.Action == audit.Folded {
			var d struct{ Count int }
			if err := json.Unmarshal(e.Detail, &d); err != nil {
				t.Fatal(err)
			}
			n = d.Count
		}
		found[e.Actor] += n
	}
	if len(es) != 2*13 || found["unknown:people"] != tries || found["unknown:agents"] != tries {
		t.Errorf("%d entries for %v", len(es), found)
	}
}
