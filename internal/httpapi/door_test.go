package httpapi_test

import (
	"encoding/json"
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
