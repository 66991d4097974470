package mcpapi

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/mcpwire"
	"sallyport.example/internal/web"
)

// What the door turns away by itself is on record with what was asked for, and with why.
func TestTurnedAwayIsOnRecord(t *testing.T) {
	r := newRig(t)
	legacy := r.open(agentToken, "{}")
	for body, want := range map[string]struct {
		what string
		code fault.Code
		part string
	}{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}`:                                                             {"tools/call", fault.RequestMalformed, "params.name"},
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":[1]}}`:                                        {"tools/call", fault.RequestMalformed, "params.arguments"},
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{}}`:                                                                 {"resources/read", fault.RequestMalformed, "params.uri"},
		`{"jsonrpc":"2.0","id":1,"method":"tools/destroy","params":{}}`:                                                                  {"tools/destroy", fault.RequestMalformed, "There is no method"},
		`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/odd"},"argument":{"name":"a","value":""}}}`: {"completion/complete", fault.RequestMalformed, "params.ref"},
		`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"loud"}}`:                                                 {"logging/setLevel", fault.RequestMalformed, "level must be"},
		`{"jsonrpc":"2.0","method":"notifications/odd"}`:                                                                                 {"notifications/odd", fault.RequestMalformed, "There is no notification"},
	} {
		before := r.g.refused.Load()
		r.do("POST", "/mcp", body, legacy)
		if v, what := r.g.lastRefused(); r.g.refused.Load() != before+1 || v.Code != want.code || v.Stage != "door" || what != want.what || !strings.Contains(v.Reason, want.part) {
			t.Errorf("%s: %q %+v", body, what, v)
		}
	}
}

// A tool of our own that fails is on record with its own code, and with the cause that the agent is not told.
func TestOwnToolsRefusalIsOnRecord(t *testing.T) {
	r := newRig(t)
	tool := ownTool{arguments: true, run: func(Gateway, context.Context, identity.Principal, string, json.RawMessage) (any, error) {
		return nil, fault.Wrap(fault.New(fault.PermissionDenied, "It is another's."), fault.NotFound, "There is none.")
	}}
	b, e := r.f.callOwn(web.WithRequestID(t.Context(), "req_9"), identity.Principal{}, "sallyport_status", tool, json.RawMessage(`{}`))
	if e != nil || strings.Contains(string(b), "another") || !strings.Contains(string(b), "There is none.") {
		t.Errorf("%s %v", b, e)
	}
	if v, what := r.g.lastRefused(); v.Code != fault.PermissionDenied || v.Reason != "It is another's." || what != "sallyport_status" || v.RequestID == "" || !strings.Contains(string(b), v.RequestID) {
		t.Errorf("%q %+v", what, v)
	}
}

// Every error of the door's own quotes the request that it answers, also where the SDK serves the method: there the context of a transport
// session is that of the request that opened it.
func TestErrorsQuoteTheirRequest(t *testing.T) {
	r := newRig(t)
	open := r.open(agentToken, "{}")
	r.g.on(func(context.Context, gateway.Request) gateway.Answer { panic("boom") })
	r.g.unlisted = fault.New(fault.StoreUnavailable, "")
	prompt := func() (string, error) { return "", fault.New(fault.AgentUndeclared, "") }
	for _, c := range []struct{ name, body string }{
		{"a list", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`},
		{"a call", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo"}}`},
		{"a tool of our own", `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"sallyport_status","arguments":{"x":1}}}`},
		{"a subscription", `{"jsonrpc":"2.0","id":4,"method":"resources/subscribe","params":{"uri":"test://a"}}`},
		{"a handshake", `{"jsonrpc":"2.0","id":5,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`},
		{"a discovery", `{"jsonrpc":"2.0","id":6,"method":"server/discover","params":{` + modernMeta + `}}`},
	} {
		headers := open
		switch c.name {
		case "a handshake":
			r.g.onPrompt, headers = prompt, nil
		case "a discovery":
			headers = modernHeaders("server/discover", "")
		}
		rep := r.do("POST", "/mcp", c.body, headers)
		id := rep.header.Get("X-Request-Id")
		if !strings.HasPrefix(id, "req_") || strings.Count(string(rep.body), "req_") == 0 || strings.Contains(strings.ReplaceAll(string(rep.body), id, ""), "req_") {
			t.Errorf("%s: request %q answered with %d %s", c.name, id, rep.status, rep.body)
		}
	}
}

// Who is turned away before a message is read is on record, with what was tried and from where; so is who uses another's transport session.
func TestWhoIsTurnedAwayIsOnRecord(t *testing.T) {
	r := newRig(t)
	own := r.open(agentToken, "{}")
	for name, c := range map[string]struct {
		method  string
		headers map[string]string
		status  int
		who     string
		code    fault.Code
	}{
		"nobody":                      {"POST", map[string]string{"Authorization": ""}, 401, "", fault.CredentialMissing},
		"a guessed token":             {"POST", map[string]string{"Authorization": "Bearer spt_agent_guessed"}, 401, "", fault.CredentialMissing},
		"another origin's page":       {"POST", map[string]string{"Origin": "https://evil.example"}, 403, "", fault.RequestMalformed},
		"another host":                {"POST", map[string]string{"Host": "evil.example"}, 421, "", fault.RequestMalformed},
		"another's transport session": {"DELETE", map[string]string{"Authorization": "Bearer " + otherToken, mcpwire.HeaderSession: own[mcpwire.HeaderSession]}, 404, "agent:other", fault.PermissionDenied},
		"another's session to call":   {"POST", map[string]string{"Authorization": "Bearer " + otherToken, mcpwire.HeaderSession: own[mcpwire.HeaderSession], mcpwire.HeaderVersion: mcpwire.Revision1125}, 404, "agent:other", fault.PermissionDenied},
		"a made-up transport session": {"GET", map[string]string{mcpwire.HeaderSession: "made-up"}, 404, "agent:local", fault.NotFound},
	} {
		before := r.g.refused.Load()
		rep := r.do(c.method, "/mcp", echoCall, c.headers)
		v, what := r.g.lastRefused()
		r.g.mu.Lock()
		a := r.g.attempt
		r.g.mu.Unlock()
		who := ""
		if a.Principal.Kind != "" {
			who = a.Principal.String()
		}
		if rep.status != c.status || r.g.refused.Load() != before+1 || v.Code != c.code || who != c.who || what == "" || a.Remote != "127.0.0.1" || v.RequestID != rep.header.Get("X-Request-Id") {
			t.Errorf("%s: %d %s; on record %d times, %+v %+v", name, rep.status, rep.body, r.g.refused.Load()-before, a, v)
		}
	}
}
