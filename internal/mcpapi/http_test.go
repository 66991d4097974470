package mcpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/mcpwire"
)

const echoCall = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{}}}`

func modernCall(params string) string {
	return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo",` + params + modernMeta + `}}`
}

func TestCredentials(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		name, header string
		status       int
		says         string
	}{
		{"none", "", 401, "bearer token"},
		{"basic", "Basic YTpi", 401, "bearer token"},
		{"not ours", "Bearer eyJhbGciOiJub25lIn0.e30.", 401, "bearer token"},
		{"unknown", "Bearer spt_agent_unknown", 401, "not known"},
		{"two in one", "Bearer " + agentToken + ", Bearer " + otherToken, 401, "bearer token"},
		{"host", "Bearer " + hostToken, 403, "POST /v1/session"},
		{"hook", "Bearer " + hookToken, 403, "words alone"},
		{"person", "Bearer " + personToken, 403, "agent's token"},
	} {
		for _, method := range []string{"POST", "GET", "DELETE"} {
			rep := r.do(method, "/mcp", echoCall, map[string]string{"Authorization": c.header})
			challenge := rep.header.Get("WWW-Authenticate")
			if rep.status != c.status || !strings.Contains(string(rep.body), c.says) || rep.header.Get("Content-Type") != "application/problem+json" ||
				!strings.Contains(challenge, `resource_metadata="`+r.srv.URL+`/.well-known/oauth-protected-resource/mcp"`) {
				t.Errorf("%s %s: %d %s %s", method, c.name, rep.status, rep.body, challenge)
			}
		}
	}
	if n := len(r.g.called()); n != 0 {
		t.Errorf("%d calls without a credential", n)
	}
	// A revoked token is refused at its next request, in a transport session too.
	h := r.open(agentToken, "{}")
	r.g.mu.Lock()
	delete(r.g.tokens, agentToken)
	r.g.mu.Unlock()
	if rep := r.do("POST", "/mcp", echoCall, h); rep.status != 401 {
		t.Errorf("revoked: %d", rep.status)
	}
}

func TestMetadata(t *testing.T) {
	r := newRig(t)
	for _, p := range []string{"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"} {
		rep := r.do("GET", p, "", map[string]string{"Authorization": ""})
		if rep.status != 200 || string(rep.member("resource")) != `"`+r.srv.URL+`/mcp"` {
			t.Errorf("%s: %d %s", p, rep.status, rep.body)
		}
	}
}

// mcp-075: neither Host nor the spelling of a path nor a method override opens anything.
func TestHostAndPath(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		method, path string
		headers      map[string]string
		status       int
	}{
		{"POST", "/mcp", map[string]string{"Host": "evil.example"}, 421},
		{"POST", "/mcp", map[string]string{"Host": "127.0.0.1.evil.example"}, 421},
		{"GET", "/.well-known/oauth-protected-resource", map[string]string{"Host": "evil.example"}, 421},
		{"POST", "/mcp", map[string]string{"Origin": "https://evil.example"}, 403},
		{"POST", "/mcp", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"POST", "//mcp", nil, 400},
		{"POST", "/mcp/", nil, 400},
		{"POST", "/%6dcp", nil, 400},
		{"POST", "/x/%2e%2e/mcp", nil, 400},
		{"POST", "/x/../mcp", nil, 400},
		{"POST", "/mcp%2f", nil, 400},
		{"POST", "/MCP", nil, 404},
		{"PUT", "/mcp", nil, 405},
		{"PATCH", "/mcp", map[string]string{"X-HTTP-Method-Override": "POST"}, 405},
		{"OPTIONS", "/mcp", nil, 405},
		{"POST", "/mcp", map[string]string{"X-Forwarded-Host": "evil.example", "Authorization": ""}, 401},
	} {
		rep := r.do(c.method, c.path, echoCall, c.headers)
		if rep.status != c.status || strings.Contains(rep.header.Get("WWW-Authenticate"), "evil") {
			t.Errorf("%s %s %v: %d %s", c.method, c.path, c.headers, rep.status, rep.body)
		}
	}
	if n := len(r.g.called()); n != 0 {
		t.Errorf("%d calls went through", n)
	}
}

// mcp-089 and its kin: what the body is said to be, and how it comes.
func TestContentTypes(t *testing.T) {
	r := newRig(t)
	h := r.open(agentToken, "{}")
	with := func(name, value string) map[string]string {
		c := map[string]string{name: value}
		for k, v := range h {
			c[k] = v
		}
		return c
	}
	for _, c := range []struct {
		name, value string
		status      int
	}{
		{"Content-Type", "text/plain", 415},
		{"Content-Type", "", 415},
		{"Content-Type", "application/json-patch+json", 415},
		{"Content-Type", "application/json; charset=utf-16", 415},
		{"Content-Type", "application/json; charset=utf-8; x=y", 415},
		{"Content-Type", "multipart/form-data; boundary=x", 415},
		{"Content-Type", "application/json, text/plain", 415},
		{"Content-Type", "Application/JSON", 200},
		{"Content-Type", "application/json; charset=UTF-8", 200},
		{"Content-Encoding", "gzip", 415},
		{"Accept", "", 406},
		{"Accept", "application/json", 406},
		{"Accept", "text/event-stream", 406},
		{"Accept", "application/json;q=0.9, text/event-stream", 200},
		{"Accept", "*/*", 200},
	} {
		before, refused := len(r.g.called()), r.g.refused.Load()
		rep := r.do("POST", "/mcp", echoCall, with(c.name, c.value))
		if rep.status != c.status || (len(r.g.called()) > before) != (c.status == 200) {
			t.Errorf("%s: %s: %d %s", c.name, c.value, rep.status, rep.body)
		}
		if (r.g.refused.Load() > refused) != (c.status != 200) {
			t.Errorf("%s: %s: %d, and the refusals on record went from %d to %d", c.name, c.value, rep.status, refused, r.g.refused.Load())
		}
	}
	big := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"x":"` + strings.Repeat("a", maxBody) + `"}}}`
	if rep := r.do("POST", "/mcp", big, h); rep.status != 413 {
		t.Errorf("%d for a body of %d bytes", rep.status, len(big))
	}
	req, _ := http.NewRequest("POST", r.srv.URL+"/mcp", io.MultiReader(strings.NewReader(big))) // chunked: no length announced
	for k, v := range h {
		req.Header.Set(k, v)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "*/*")
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode != 413 {
			t.Errorf("chunked: %d", resp.StatusCode)
		}
	}
}

// Cases of mcp-attacks.json that are about bodies: 081, 084, 087, 088, 093, 097. Each is refused before any decision, in both eras.
func TestHostileBodies(t *testing.T) {
	r := newRig(t)
	legacy := r.open(agentToken, "{}")
	for _, c := range []struct {
		name, body string
		code       int
	}{
		{"081 case-variant name", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","Name":"denied","arguments":{}}}`, mcpwire.CodeParse},
		{"081 METHOD", `{"jsonrpc":"2.0","id":7,"method":"tools/call","METHOD":"tools/list","params":{"name":"echo"}}`, mcpwire.CodeParse},
		{"081 only METHOD", `{"jsonrpc":"2.0","id":7,"METHOD":"tools/call","params":{"name":"echo"}}`, mcpwire.CodeInvalidRequest},
		{"082 duplicate name", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","name":"denied"}}`, mcpwire.CodeParse},
		{"082 duplicate params", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo"},"params":{"name":"denied"}}`, mcpwire.CodeParse},
		{"082 duplicate by escape", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","n\u0061me":"denied"}}`, mcpwire.CodeParse},
		{"084 NUL in a name", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","name\u0000":"denied"}}`, mcpwire.CodeParse},
		{"087 trailing data", echoCall + ` x`, mcpwire.CodeParse},
		{"087 two values", echoCall + echoCall, mcpwire.CodeParse},
		{"087 comment", `/* */` + echoCall, mcpwire.CodeParse},
		{"087 single quotes", strings.ReplaceAll(echoCall, `"`, `'`), mcpwire.CodeParse},
		{"087 NaN", `{"jsonrpc":"2.0","id":NaN,"method":"ping"}`, mcpwire.CodeParse},
		{"088 batch", `[` + echoCall + `,` + echoCall + `]`, mcpwire.CodeInvalidRequest},
		{"088 batch of one", `[` + echoCall + `]`, mcpwire.CodeInvalidRequest},
		{"088 empty batch", `[]`, mcpwire.CodeInvalidRequest},
		{"093 BOM", "\xef\xbb\xbf" + echoCall, mcpwire.CodeParse},
		{"invalid UTF-8", strings.Replace(echoCall, "echo", "ech\xff", 1), mcpwire.CodeParse},
		{"lone surrogate", strings.Replace(echoCall, "echo", `\ud800`, 1), mcpwire.CodeParse},
		{"empty", ``, mcpwire.CodeParse},
		{"null", `null`, mcpwire.CodeInvalidRequest},
		{"string", `"tools/call"`, mcpwire.CodeInvalidRequest},
		{"deep", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":` + strings.Repeat(`{"a":`, 200) + `1` + strings.Repeat(`}`, 200) + `}}`, mcpwire.CodeParse},
		{"many", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"a":[` + strings.Repeat(`1,`, 200_000) + `1]}}}`, mcpwire.CodeParse},
		{"unknown member", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo"},"auth":"x"}`, mcpwire.CodeInvalidRequest},
		{"version 1", `{"jsonrpc":"1.0","id":7,"method":"tools/call","params":{"name":"echo"}}`, mcpwire.CodeInvalidRequest},
		{"no version", `{"id":7,"method":"tools/call","params":{"name":"echo"}}`, mcpwire.CodeInvalidRequest},
		{"null id", `{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"echo"}}`, mcpwire.CodeInvalidRequest},
		{"fractional id", `{"jsonrpc":"2.0","id":1.5,"method":"tools/call","params":{"name":"echo"}}`, mcpwire.CodeInvalidRequest},
		{"object id", `{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{"name":"echo"}}`, mcpwire.CodeInvalidRequest},
		{"long id", `{"jsonrpc":"2.0","id":"` + strings.Repeat("a", 300) + `","method":"tools/call","params":{"name":"echo"}}`, mcpwire.CodeInvalidRequest},
		{"request and response", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo"},"result":{}}`, mcpwire.CodeInvalidRequest},
		{"array params", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":["echo"]}`, mcpwire.CodeInvalidParams},
		{"method number", `{"jsonrpc":"2.0","id":7,"method":7}`, mcpwire.CodeInvalidRequest},
		{"array _meta", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","_meta":[]}}`, mcpwire.CodeInvalidParams},
		{"object token", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","_meta":{"progressToken":{}}}}`, mcpwire.CodeInvalidParams},
	} {
		for era, h := range map[string]map[string]string{"legacy": legacy, "modern": modernHeaders("tools/call", "echo")} {
			rep := r.do("POST", "/mcp", c.body, h)
			if rep.status != 400 || rep.code() != c.code || rep.header.Get("Content-Type") != "application/json" {
				t.Errorf("%s, %s: %d %s", c.name, era, rep.status, rep.body)
			}
		}
	}
	for _, c := range []struct{ body, want string }{ // 097, and parameters of the wrong type, within a session
		{`{"jsonrpc":"2.0","id":7,"method":"vendor/method","params":{"name":"echo"}}`, "-32601"},
		{`{"jsonrpc":"2.0","id":7,"method":"server/discover"}`, "-32601"},
		{`{"jsonrpc":"2.0","id":7,"method":"tasks/list"}`, "-32601"},
		{`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":7}}`, "-32602"},
		{`{"jsonrpc":"2.0","id":7,"method":"tools/call"}`, "-32602"},
		{`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":[]}}`, "-32602"},
		{`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":7}}`, "-32602"},
		{`{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":""}}`, "-32602"},
		{`{"jsonrpc":"2.0","id":7,"method":"completion/complete","params":{"ref":{"type":"ref/evil","name":"x"},"argument":{}}}`, "-32602"},
		{`{"jsonrpc":"2.0","id":7,"method":"logging/setLevel","params":{"level":"loud"}}`, "-32602"},
	} {
		if rep := r.do("POST", "/mcp", c.body, legacy); rep.status != 200 || string(rep.member("error", "code")) != c.want || string(rep.member("id")) != "7" {
			t.Errorf("%s: %d %s", c.body, rep.status, rep.body)
		}
	}
	if rep := r.do("POST", "/mcp", `{"jsonrpc":"2.0","method":"notifications/evil"}`, legacy); rep.status != 400 {
		t.Errorf("unknown notification: %d", rep.status)
	}
	if n := len(r.g.called()); n != 0 {
		t.Errorf("%d of them were called", n)
	}
}

// A result whose kind is unknown is none (mcp-097), and one that asks back can't reach a client that has no way to answer.
func TestResultTypes(t *testing.T) {
	r := newRig(t)
	legacy := r.open(agentToken, "{}")
	for _, c := range []struct{ result, legacy, modern string }{
		{`{"content":[]}`, "", ""},
		{`{"content":[],"resultType":"complete"}`, "", ""},
		{`{"content":[],"resultType":"maybe"}`, "result.invalid", "result.invalid"},
		{`{"content":[],"\u0072esultType":"maybe"}`, "result.invalid", "result.invalid"},
		{`{"content":[],"resultType":7}`, "result.invalid", "result.invalid"},
		{`{"resultType":"input_required","inputRequests":{}}`, "upstream.failed", ""},
		{`{"resultType":"input_required","inputRequests":{"q":{"method":"roots/list"}}}`, "result.invalid", ""},
		{`{"resultType":"input_required","requestState":7}`, "result.invalid", "result.invalid"},
	} {
		r.g.on(func(context.Context, gateway.Request) gateway.Answer { return permit(c.result) })
		got := r.do("POST", "/mcp", echoCall, legacy)
		if strings.Trim(string(got.member("result", "_meta", "sallyport/verdict", "code")), `"`) != c.legacy {
			t.Errorf("legacy %s: %s", c.result, got.body)
		}
		if v, what := r.g.lastRefused(); c.legacy != "" && (string(v.Code) != c.legacy || v.Stage != "inspect" || what != "echo" || v.RequestID == "") { // what the agent was told, with the call's request
			t.Errorf("on record of %s: %q %+v", c.result, what, v)
		}
		got = r.do("POST", "/mcp", modernCall(""), modernHeaders("tools/call", "echo"))
		if strings.Trim(string(got.member("result", "_meta", "sallyport/verdict", "code")), `"`) != c.modern || got.member("result", "resultType") == nil {
			t.Errorf("modern %s: %s", c.result, got.body)
		}
	}
}

// An answer is one event however the upstream laid out its JSON (mcp-092).
func TestOneEventPerMessage(t *testing.T) {
	r := newRig(t)
	r.g.on(func(_ context.Context, req gateway.Request) gateway.Answer {
		req.Exchange.Progress(json.RawMessage("{\"progress\":1,\r\n\"message\":\"a\\n\\ndata: x\"}"))
		return permit("{\n\n\"content\":\r[]}")
	})
	rep := r.do("POST", "/mcp", modernCall(`"x":1,`)[:0]+`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","_meta":{"progressToken":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, modernHeaders("tools/call", "echo"))
	lines := strings.Split(string(rep.body), "\n")
	want := []string{"event: message", "data: ", "", "event: message", "data: "}
	if len(lines) != len(want) || rep.header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%q", rep.body)
	}
	for i, l := range lines {
		if !strings.HasPrefix(l, want[i]) || want[i] == "data: " && call.Check([]byte(l[6:]), limits) != nil {
			t.Errorf("line %d: %q", i, l)
		}
	}
}

func TestModernChecks(t *testing.T) {
	r := newRig(t)
	r.g.tool("region", `{"type":"object","properties":{"where":{"type":"string","x-mcp-header":"Where"},"deep":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}}}}`)
	good := modernHeaders("tools/call", "echo")
	but := func(kv ...string) map[string]string {
		h := map[string]string{}
		for k, v := range good {
			h[k] = v
		}
		for i := 0; i < len(kv); i += 2 {
			h[kv[i]] = kv[i+1]
		}
		return h
	}
	b64 := func(s string) string { return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?=" }
	region := func(args string) string {
		return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"region","arguments":` + args + `,` + modernMeta + `}}`
	}
	for i, c := range []struct {
		body    string
		headers map[string]string
		status  int
		code    int
	}{
		{modernCall(""), good, 200, 0},
		{modernCall(""), but(mcpwire.HeaderName, "  echo "), 200, 0},
		{modernCall(""), but(mcpwire.HeaderName, b64("echo")), 200, 0},
		{modernCall(""), but(mcpwire.HeaderName, b64("other")), 400, mcpwire.CodeHeaderMismatch},
		{modernCall(""), but(mcpwire.HeaderName, "Echo"), 400, mcpwire.CodeHeaderMismatch},
		{modernCall(""), but(mcpwire.HeaderName, ""), 400, mcpwire.CodeHeaderMismatch},
		{modernCall(""), but(mcpwire.HeaderMethod, "tools/list"), 400, mcpwire.CodeHeaderMismatch},
		{modernCall(""), but(mcpwire.HeaderMethod, "TOOLS/CALL"), 400, mcpwire.CodeHeaderMismatch},
		{modernCall(""), but(mcpwire.HeaderMethod, ""), 400, mcpwire.CodeHeaderMismatch},
		{modernCall(""), but(mcpwire.HeaderVersion, ""), 400, mcpwire.CodeHeaderMismatch},
		{modernCall(""), but(mcpwire.HeaderVersion, mcpwire.Revision1125), 400, mcpwire.CodeHeaderMismatch},
		{modernCall(""), but(mcpwire.HeaderVersion, "2027-01-01"), 400, mcpwire.CodeHeaderMismatch},
		{strings.ReplaceAll(modernCall(""), "2026-07-28", "2027-01-01"), but(mcpwire.HeaderVersion, "2027-01-01"), 400, mcpwire.CodeUnsupportedVersion},
		{echoCall, good, 400, mcpwire.CodeInvalidParams},
		{strings.ReplaceAll(modernCall(""), `"io.modelcontextprotocol/clientCapabilities":{}`, `"x":1`), good, 400, mcpwire.CodeInvalidParams},
		{strings.ReplaceAll(modernCall(""), `Capabilities":{}`, `Capabilities":7`), good, 400, mcpwire.CodeInvalidParams},
		{strings.ReplaceAll(modernCall(""), `"tools/call"`, `"vendor/x"`), but(mcpwire.HeaderMethod, "vendor/x"), 404, mcpwire.CodeMethodNotFound},
		{strings.ReplaceAll(modernCall(""), `"tools/call"`, `"initialize"`), but(mcpwire.HeaderMethod, "initialize"), 404, mcpwire.CodeMethodNotFound},
		{strings.ReplaceAll(modernCall(""), `"tools/call"`, `"ping"`), but(mcpwire.HeaderMethod, "ping"), 404, mcpwire.CodeMethodNotFound},
		{region(`{"where":"Zürich"}`), but(mcpwire.HeaderName, "region", "Mcp-Param-Where", b64("Zürich")), 200, 0},
		{region(`{"where":"eu","deep":{"n":3}}`), but(mcpwire.HeaderName, "region", "Mcp-Param-Where", "eu", "mcp-param-n", "3"), 200, 0},
		{region(`{}`), but(mcpwire.HeaderName, "region"), 200, 0},
		{region(`{"where":null}`), but(mcpwire.HeaderName, "region"), 200, 0},
		{region(`{"where":"eu"}`), but(mcpwire.HeaderName, "region"), 400, mcpwire.CodeHeaderMismatch},
		{region(`{"where":"eu"}`), but(mcpwire.HeaderName, "region", "Mcp-Param-Where", "us"), 400, mcpwire.CodeHeaderMismatch},
		{region(`{"where":"eu"}`), but(mcpwire.HeaderName, "region", "Mcp-Param-Where", "=?base64?SGVs!!?="), 400, mcpwire.CodeHeaderMismatch},
		{region(`{"where":["eu"]}`), but(mcpwire.HeaderName, "region", "Mcp-Param-Where", "eu"), 400, mcpwire.CodeHeaderMismatch},
		{region(`{}`), but(mcpwire.HeaderName, "region", "Mcp-Param-Where", "eu"), 400, mcpwire.CodeHeaderMismatch},
		{region(`{"deep":{"n":9007199254740993}}`), but(mcpwire.HeaderName, "region", "Mcp-Param-N", "9007199254740992"), 400, mcpwire.CodeHeaderMismatch},
	} {
		before := len(r.g.called())
		rep := r.do("POST", "/mcp", c.body, c.headers)
		if rep.status != c.status || rep.code() != c.code || string(rep.member("id")) != "7" {
			t.Errorf("%d: %s %v: %d %s", i, c.body, c.headers, rep.status, rep.body)
		}
		if (len(r.g.called()) > before) != (c.status == 200) {
			t.Errorf("%d: called, or not, against the answer", i)
		}
	}
	for _, method := range []string{"GET", "DELETE"} {
		if rep := r.do(method, "/mcp", "", map[string]string{mcpwire.HeaderVersion: mcpwire.Revision0728, mcpwire.HeaderSession: "x"}); rep.status != 405 {
			t.Errorf("%s: %d", method, rep.status)
		}
	}
}

// A new definition's headers count as soon as the catalogue says that it changed.
func TestParamHeadersFollowTheCatalogue(t *testing.T) {
	r := newRig(t)
	if rep := r.do("POST", "/mcp", modernCall(""), modernHeaders("tools/call", "echo")); rep.status != 200 {
		t.Fatalf("%s", rep.body)
	}
	r.g.tool("region", `{"type":"object","properties":{"where":{"type":"string","x-mcp-header":"Where"}}}`)
	r.g.changed()
	body := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"region","arguments":{"where":"eu"},` + modernMeta + `}}`
	if rep := r.do("POST", "/mcp", body, modernHeaders("tools/call", "region")); rep.code() != mcpwire.CodeHeaderMismatch {
		t.Errorf("%s", rep.body)
	}
}

// Transport sessions: dropped, invented, somebody else's, ended, idle. None of them reaches a call, and governance sees the
// credential alone.
func TestTransportSessions(t *testing.T) {
	r := newRig(t)
	h := r.open(agentToken, "{}")
	as := func(token, id string) map[string]string {
		return map[string]string{"Authorization": "Bearer " + token, mcpwire.HeaderSession: id, mcpwire.HeaderVersion: mcpwire.Revision1125}
	}
	id := h[mcpwire.HeaderSession]
	if rep := r.do("POST", "/mcp", echoCall, h); rep.status != 200 || rep.code() != 0 {
		t.Fatalf("%d %s", rep.status, rep.body)
	}
	for _, c := range []struct {
		name   string
		h      map[string]string
		status int
	}{
		{"none", map[string]string{}, 400},
		{"invented", as(agentToken, "AAAAAAAAAAAAAAAAAAAAAAAAAA"), 404},
		{"long", as(agentToken, strings.Repeat("A", 4096)), 404},
		{"another agent's", as(otherToken, id), 404},
		{"another token of the same agent", as(agentToken2, id), 404},
		{"a session token of the same agent", as(sessionToken, id), 404},
		{"another revision", map[string]string{mcpwire.HeaderSession: id, mcpwire.HeaderVersion: "2024-10-07"}, 400},
	} {
		if rep := r.do("POST", "/mcp", echoCall, c.h); rep.status != c.status || rep.code() == 0 && c.name != "long" {
			t.Errorf("%s: %d %s", c.name, rep.status, rep.body)
		}
		if c.name == "another revision" {
			continue
		}
		for _, body := range []string{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, `{"jsonrpc":"2.0","id":"sallyport-1","result":{}}`} {
			if rep := r.do("POST", "/mcp", body, c.h); rep.status != c.status {
				t.Errorf("%s, %s: %d", c.name, body, rep.status)
			}
		}
		for _, method := range []string{"GET", "DELETE"} {
			c.h["Accept"] = "text/event-stream"
			if rep := r.do(method, "/mcp", "", c.h); rep.status != c.status {
				t.Errorf("%s %s: %d", c.name, method, rep.status)
			}
			delete(c.h, "Accept")
		}
	}
	// A second session of the same credential is the same principal to the corridor; the label follows it.
	h2 := r.open(agentToken, "{}")
	r.do("POST", "/mcp", echoCall, h2)
	r.do("POST", "/mcp", modernCall(""), modernHeaders("tools/call", "echo"))
	calls := r.g.called()
	if len(calls) != 3 {
		t.Fatalf("%d calls", len(calls))
	}
	for _, c := range calls {
		if c.Principal.TokenID != "tok_1" || c.Session != "" {
			t.Errorf("%+v", c)
		}
	}
	if rep := r.do("DELETE", "/mcp", "", h); rep.status != 204 {
		t.Errorf("DELETE: %d", rep.status)
	}
	for range 2 {
		if rep := r.do("POST", "/mcp", echoCall, h); rep.status != 404 {
			t.Errorf("after DELETE: %d", rep.status)
		}
	}
	// The idle time counts from the last request, on our path too.
	r.clock.add(idleTimeout - time.Second)
	r.do("POST", "/mcp", echoCall, h2)
	r.clock.add(idleTimeout - time.Second)
	r.f.sweep(r.clock.now())
	if rep := r.do("POST", "/mcp", echoCall, h2); rep.status != 200 {
		t.Errorf("swept while in use: %d", rep.status)
	}
	r.clock.add(idleTimeout)
	r.f.sweep(r.clock.now())
	if rep := r.do("POST", "/mcp", echoCall, h2); rep.status != 404 {
		t.Errorf("idle: %d", rep.status)
	}
}

func TestTooManyTransportSessions(t *testing.T) {
	r := newRig(t)
	first := r.open(agentToken, "{}")
	r.clock.add(time.Second)
	second := r.open(agentToken, "{}")
	for range maxConnections - 1 {
		r.clock.add(time.Second)
		r.open(agentToken, "{}")
	}
	others := r.open(otherToken, "{}")
	if rep := r.do("POST", "/mcp", echoCall, first); rep.status != 404 {
		t.Errorf("the one that idled longest: %d", rep.status)
	}
	for _, h := range []map[string]string{second, others} {
		if rep := r.do("POST", "/mcp", echoCall, h); rep.status != 200 {
			t.Errorf("%d", rep.status)
		}
	}
	r.f.conns.mu.Lock()
	defer r.f.conns.mu.Unlock()
	if n := len(r.f.conns.byID); n != maxConnections+1 {
		t.Errorf("%d transport sessions", n)
	}
}

// notifications/cancelled ends exactly the request that it names; the same id can't run twice; the end of the session ends its calls.
func TestRunningRequests(t *testing.T) {
	r := newRig(t)
	h := r.open(agentToken, "{}")
	started, ended := make(chan struct{}, 8), make(chan error, 8)
	r.g.on(func(ctx context.Context, _ gateway.Request) gateway.Answer {
		started <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return gateway.Answer{Verdict: fault.Refuse("act", fault.TimeExceeded, "")}
	})
	run := func(id string) chan rawReply {
		done := make(chan rawReply, 1)
		go func() { done <- r.do("POST", "/mcp", strings.Replace(echoCall, "7", id, 1), h) }()
		<-started
		return done
	}
	a := run(`"\u0061"`)
	if rep := r.do("POST", "/mcp", strings.Replace(echoCall, "7", `"a"`, 1), h); rep.status != 400 || rep.code() != mcpwire.CodeInvalidRequest {
		t.Errorf("the same id twice: %d %s", rep.status, rep.body)
	}
	b := run("1")
	r.do("POST", "/mcp", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1"}}`, h) // a string is not the number
	r.do("POST", "/mcp", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}`, h)
	if err := <-ended; err != errCancelled {
		t.Errorf("%v", err)
	}
	<-a
	select {
	case <-b:
		t.Error("the wrong request was cancelled")
	default:
	}
	r.do("DELETE", "/mcp", "", h)
	if err := <-ended; err != errDeleted {
		t.Errorf("%v", err)
	}
	<-b
}

func TestDisconnectCancels(t *testing.T) {
	r := newRig(t)
	h := r.open(agentToken, "{}")
	started, ended := make(chan struct{}), make(chan struct{})
	r.g.on(func(ctx context.Context, req gateway.Request) gateway.Answer {
		close(started)
		<-ctx.Done()
		close(ended)
		return permit(`{"content":[]}`)
	})
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "POST", r.srv.URL+"/mcp", strings.NewReader(echoCall))
	for k, v := range h {
		req.Header.Set(k, v)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "*/*")
	go func() { <-started; cancel() }()
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the call runs on without its client")
	}
}

// What an exchange says after the call came back goes nowhere, and harms nothing.
func TestLateWords(t *testing.T) {
	r := newRig(t)
	h := r.open(agentToken, `{"elicitation":{}}`)
	var x call.Exchange
	r.g.on(func(_ context.Context, req gateway.Request) gateway.Answer {
		x = req.Exchange
		return permit(`{"content":[]}`)
	})
	r.do("POST", "/mcp", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","_meta":{"progressToken":1}}}`, h)
	x.Progress(json.RawMessage(`{"progress":1}`))
	if _, err := x.Ask(t.Context(), "elicitation/create", json.RawMessage(`{}`)); err == nil {
		t.Error("a question after the end was asked")
	}
}

// A stream that has ended writes nothing more, and ends once.
func TestStreamEndsOnce(t *testing.T) {
	for _, talked := range []bool{false, true} {
		rec := httptest.NewRecorder()
		s := newStream(rec, json.RawMessage("1"))
		if talked {
			if err := s.message("notifications/progress", nil, json.RawMessage(`{}`)); err != nil {
				t.Fatal(err)
			}
		}
		s.result(json.RawMessage(`{}`))
		before := rec.Body.String()
		if err := s.message("notifications/progress", nil, json.RawMessage(`{}`)); err != errEnded {
			t.Errorf("%v", err)
		}
		s.result(json.RawMessage(`{}`))
		s.fail(internalError("req_1"))
		if rec.Body.String() != before {
			t.Errorf("written after the end: %q", rec.Body)
		}
	}
}

func TestDiscoverIsPrivate(t *testing.T) {
	r := newRig(t)
	rep := r.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{`+modernMeta+`}}`, modernHeaders("server/discover", ""))
	if rep.status != 200 || string(rep.member("result", "cacheScope")) != `"private"` || string(rep.member("result", "instructions")) == "" {
		t.Errorf("%d %s", rep.status, rep.body)
	}
}

// What we add to a result is there once, whatever the upstream said of it.
func TestDressedOnce(t *testing.T) {
	r := newRig(t)
	r.g.on(func(context.Context, gateway.Request) gateway.Answer {
		return permit(`{"contents":[],"cacheScope":"public","ttlMs":9,"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"upstream","version":"1"}},"a\"b":1}`)
	})
	rep := r.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"test://a",`+modernMeta+`}}`, modernHeaders("resources/read", "test://a"))
	if err := call.Check(rep.body, limits); err != nil {
		t.Errorf("%v: %s", err, rep.body)
	}
	if string(rep.member("result", "cacheScope")) != `"private"` || string(rep.member("result", `a"b`)) != "1" || strings.Contains(string(rep.body), "upstream") {
		t.Errorf("%s", rep.body)
	}
}

// mcp-073: a request state is good for the one call it was made for, once, for ten minutes.
func TestRequestState(t *testing.T) {
	r := newRig(t)
	r.g.on(func(_ context.Context, req gateway.Request) gateway.Answer {
		if req.Exchange.RequestState == "" {
			return permit(`{"resultType":"input_required","requestState":"inner secret","inputRequests":{"q":{"method":"roots/list"}}}`)
		}
		if req.Exchange.RequestState != "inner secret" {
			t.Errorf("state %q", req.Exchange.RequestState)
		}
		return permit(`{"content":[]}`)
	})
	h := modernHeaders("tools/call", "echo")
	begin := func() string {
		rep := r.do("POST", "/mcp", modernCall(`"arguments":{"a":1,"b":2},`), h)
		sealed, _ := call.Text(rep.member("result", "requestState"))
		if sealed == "" || strings.Contains(sealed, "inner") {
			t.Fatalf("%s", rep.body)
		}
		return sealed
	}
	retry := func(sealed, args string, headers map[string]string) rawReply {
		return r.do("POST", "/mcp", modernCall(`"arguments":`+args+`,"inputResponses":{"q":{"roots":[]}},"requestState":`+string(mcpwire.AppendJSON(nil, sealed))+`,`), headers)
	}
	with := func(token string) map[string]string {
		c := modernHeaders("tools/call", "echo")
		c["Authorization"] = "Bearer " + token
		return c
	}
	recorded := int64(0)
	refuse := func(name string, rep rawReply) {
		t.Helper()
		if rep.status != 400 || rep.code() != mcpwire.CodeInvalidParams {
			t.Errorf("%s: %d %s", name, rep.status, rep.body)
		}
		if recorded++; r.g.refused.Load() != recorded {
			t.Errorf("%s: %d refusals on record, want %d", name, r.g.refused.Load(), recorded)
			recorded = r.g.refused.Load()
		}
	}
	s := begin()
	for i := range len(s) {
		c := byte('A')
		if s[i] == c {
			c = 'B'
		}
		refuse("changed", retry(s[:i]+string(c)+s[i+1:], `{"a":1,"b":2}`, h))
	}
	for _, bad := range []string{"", "x", s + "A", s[:len(s)-1], s + "-TAMPERED", s + "=", s + "\n"} {
		refuse("malformed", retry(bad, `{"a":1,"b":2}`, h))
	}
	refuse("other arguments", retry(s, `{"a":1,"b":3}`, h))
	refuse("another agent", retry(s, `{"a":1,"b":2}`, with(otherToken)))
	refuse("another session", retry(s, `{"a":1,"b":2}`, with(sessionToken)))
	other := strings.Replace(modernCall(`"arguments":{"a":1,"b":2},"requestState":`+string(mcpwire.AppendJSON(nil, s))+`,`), `"echo"`, `"echo2"`, 1)
	refuse("another tool", r.do("POST", "/mcp", other, modernHeaders("tools/call", "echo2")))
	prompt := strings.Replace(modernCall(`"arguments":{"a":1,"b":2},"requestState":`+string(mcpwire.AppendJSON(nil, s))+`,`), `tools/call`, `prompts/get`, 1)
	refuse("another method", r.do("POST", "/mcp", prompt, modernHeaders("prompts/get", "echo")))
	refuse("no string", r.do("POST", "/mcp", modernCall(`"requestState":{},`), h))
	refuse("no object", r.do("POST", "/mcp", modernCall(`"inputResponses":[],`), h))
	refuse("another process", func() rawReply {
		return retry(newSealer(r.clock.now).seal(state{binding: bind("agent:local", "sess_local", "tools/call", "echo", json.RawMessage(`{"a":1,"b":2}`)), Round: 1, Inner: "inner secret"}), `{"a":1,"b":2}`, h)
	}())
	if rep := retry(s, `{"b":2,"a":1}`, h); rep.status != 200 || rep.code() != 0 { // the same arguments, written otherwise
		t.Errorf("good: %d %s", rep.status, rep.body)
	}
	refuse("again", retry(s, `{"a":1,"b":2}`, h))
	s = begin()
	r.clock.add(stateLife - time.Millisecond)
	if rep := retry(s, `{"a":1,"b":2}`, h); rep.status != 200 {
		t.Errorf("just in time: %d %s", rep.status, rep.body)
	}
	s = begin()
	r.clock.add(stateLife)
	refuse("expired", retry(s, `{"a":1,"b":2}`, h))
	r.f.sweep(r.clock.now())
	if n := len(r.f.seal.spent); n != 0 {
		t.Errorf("%d used states are still remembered", n)
	}
}

// mcp-112: a server that always asks back is stopped.
func TestRounds(t *testing.T) {
	r := newRig(t)
	r.g.on(func(context.Context, gateway.Request) gateway.Answer {
		return permit(`{"resultType":"input_required","inputRequests":{"q":{"method":"roots/list"}}}`)
	})
	h := modernHeaders("tools/call", "echo")
	state := ""
	for round := 1; ; round++ {
		rep := r.do("POST", "/mcp", modernCall(state), h)
		next := rep.member("result", "requestState")
		if next == nil {
			if round != maxRounds+1 || string(rep.member("result", "isError")) != "true" {
				t.Errorf("round %d: %s", round, rep.body)
			}
			return
		}
		state = `"inputResponses":{"q":{"roots":[]}},"requestState":` + string(next) + `,`
	}
}

// mcp-101: what could be read in two ways is refused by the one HTTP parser there is.
func TestSmuggling(t *testing.T) {
	r := newRig(t)
	h := r.open(agentToken, "{}")
	common := "Authorization: Bearer " + agentToken + "\r\nContent-Type: application/json\r\nAccept: */*\r\nMcp-Session-Id: " + h[mcpwire.HeaderSession] + "\r\n"
	host := strings.TrimPrefix(r.srv.URL, "http://")
	n := fmt.Sprint(len(echoCall))
	chunk := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(echoCall), echoCall)
	smuggled := "POST /mcp HTTP/1.1\r\nHost: " + host + "\r\n" + common + "Content-Length: " + n + "\r\n\r\n" + echoCall
	for _, c := range []struct{ name, raw, want string }{
		{"plain", "POST /mcp HTTP/1.1\r\nHost: " + host + "\r\n" + common + "Content-Length: " + n + "\r\n\r\n" + echoCall, "200"},
		{"chunked", "POST /mcp HTTP/1.1\r\nHost: " + host + "\r\n" + common + "Transfer-Encoding: chunked\r\n\r\n" + chunk, "200"},
		{"TE.TE", "POST /mcp HTTP/1.1\r\nHost: " + host + "\r\n" + common + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + chunk, "400 501"},
		{"TE obfuscated", "POST /mcp HTTP/1.1\r\nHost: " + host + "\r\n" + common + "Transfer-Encoding: xchunked\r\n\r\n" + chunk, "400 501"},
		{"TE space", "POST /mcp HTTP/1.1\r\nHost: " + host + "\r\n" + common + "Transfer-Encoding : chunked\r\n\r\n" + chunk, "400"},
		{"bare LF chunk", "POST /mcp HTTP/1.1\r\nHost: " + host + "\r\n" + common + "Transfer-Encoding: chunked\r\n\r\n" + strings.ReplaceAll(chunk, "\r\n", "\n"), "400"},
		{"CL plus", "POST /mcp HTTP/1.1\r\nHost: " + host + "\r\n" + common + "Content-Length: +" + n + "\r\n\r\n" + echoCall, "400"},
		{"CL twice", "POST /mcp HTTP/1.1\r\nHost: " + host + "\r\n" + common + "Content-Length: " + n + "\r\nContent-Length: 5\r\n\r\n" + echoCall, "400"},
		{"obs-fold", "POST /mcp HTTP/1.1\r\nHost: " + host + "\r\nX-A: b\r\n Content-Length: 0\r\n" + common + "Content-Length: 3\r\n\r\nabc", "400"},
		{"two hosts", "POST /mcp HTTP/1.1\r\nHost: " + host + "\r\nHost: evil\r\n" + common + "Content-Length: " + n + "\r\n\r\n" + echoCall, "400"},
		{"absolute form, other host", "POST http://evil.example/mcp HTTP/1.1\r\nHost: " + host + "\r\n" + common + "Content-Length: " + n + "\r\n\r\n" + echoCall, "421"},
		{"two credentials", "POST /mcp HTTP/1.1\r\nHost: " + host + "\r\n" + common + "Authorization: Bearer " + otherToken + "\r\nContent-Length: " + n + "\r\n\r\n" + echoCall, "400"},
		{"two sessions", "POST /mcp HTTP/1.1\r\nHost: " + host + "\r\n" + common + "Mcp-Session-Id: x\r\nContent-Length: " + n + "\r\n\r\n" + echoCall, "400"},
		{"two content types", "POST /mcp HTTP/1.1\r\nHost: " + host + "\r\n" + common + "Content-Type: text/plain\r\nContent-Length: " + n + "\r\n\r\n" + echoCall, "400"},
		{"short body", "POST /mcp HTTP/1.1\r\nHost: " + host + "\r\n" + common + "Content-Length: 20\r\n\r\n" + echoCall, "400"},
	} {
		before := len(r.g.called())
		status := strings.Join(send(t, host, c.raw), " ")
		ok := status != "" && strings.Contains(c.want, strings.Fields(status)[0])
		if !ok || (len(r.g.called()) > before) != (c.want == "200") {
			t.Errorf("%s: %q, %d calls", c.name, status, len(r.g.called())-before)
		}
	}
	// CL and TE together: net/http takes the chunks and closes the connection, so that what was smuggled behind is never read.
	before := len(r.g.called())
	status := send(t, host, "POST /mcp HTTP/1.1\r\nHost: "+host+"\r\n"+common+"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk+smuggled)
	if n := len(r.g.called()) - before; n > 1 || len(status) > 1 {
		t.Errorf("CL and TE: %q, %d calls", status, n)
	}
}

// send writes raw bytes to the server and returns the status codes of all answers until it closes or falls silent.
func send(t *testing.T, addr, raw string) (statuses []string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, raw); err != nil {
		return nil
	}
	_ = c.(*net.TCPConn).CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	br := bufio.NewReader(c)
	for {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			return statuses
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		statuses = append(statuses, fmt.Sprint(resp.StatusCode))
	}
}

// A face that is closed answers no call, and closing again is harmless.
func TestClose(t *testing.T) {
	r := newRig(t)
	h := r.open(agentToken, `{"roots":{}}`)
	get := make(chan rawReply, 1)
	go func() {
		g := map[string]string{"Accept": "text/event-stream"}
		for k, v := range h {
			g[k] = v
		}
		get <- r.do("GET", "/mcp", "", g)
	}()
	for busy := false; !busy; { // until the standing stream is there
		r.f.conns.mu.Lock()
		c := r.f.conns.byID[h[mcpwire.HeaderSession]]
		r.f.conns.mu.Unlock()
		c.mu.Lock()
		busy = c.users > 0
		c.mu.Unlock()
	}
	r.f.Close()
	r.f.Close()
	<-get
	if rep := r.do("POST", "/mcp", echoCall, h); rep.status != 404 {
		t.Errorf("after Close: %d", rep.status)
	}
	rep := r.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`, nil)
	if rep.code() == 0 || rep.header.Get(mcpwire.HeaderSession) != "" && len(r.f.conns.byID) > 0 {
		t.Errorf("initialize after Close: %d %s", rep.status, rep.body)
	}
	if fmt.Sprint(r.released) != "["+h[mcpwire.HeaderSession]+"]" {
		t.Errorf("released %v", r.released)
	}
}

func FuzzEnvelope(f *testing.F) {
	for _, s := range []string{
		echoCall, modernCall(`"requestState":"x","inputResponses":{},`), `[]`, `{}`, `{"jsonrpc":"2.0","id":"a","result":{}}`,
		`{"jsonrpc":"2.0","id":-1,"error":{"code":1,"message":"x"}}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"\u0061"}}`,
		`{"jsonrpc":"2.0","id":7,"method":"t","params":{"_meta":{"progressToken":9}}}`, "\xef\xbb\xbf{}", `{"jsonrpc":"2.0","method":"\u0000"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, e := parse(body)
		if e != nil {
			if call.Check(e.object(), limits) != nil {
				t.Fatalf("the error is no JSON: %s", e.object())
			}
			rec := httptest.NewRecorder()
			newStream(rec, m.ID).fail(e)
			if call.Check(rec.Body.Bytes(), limits) != nil {
				t.Fatalf("the answer is no JSON: %s", rec.Body)
			}
			return
		}
		// What was accepted means the same to the standard library's parser.
		var std struct {
			JSONRPC string          `json:"jsonrpc"`
			ID      json.RawMessage `json:"id"`
			Method  string          `json:"method"`
			Params  json.RawMessage `json:"params"`
		}
		if err := json.Unmarshal(body, &std); err != nil {
			t.Fatalf("accepted %q, which is no JSON: %v", body, err)
		}
		if std.JSONRPC != "2.0" || std.Method != m.Method || !bytes.Equal(std.ID, m.ID) || !bytes.Equal(std.Params, m.Params) {
			t.Fatalf("%q read as %+v and %+v", body, m, std)
		}
		r, e := parseRequest(m)
		if e != nil {
			return
		}
		isModern(http.Header{}, &r)
		checkModern(http.Header{mcpwire.HeaderVersion: {"2026-07-28"}, mcpwire.HeaderMethod: {m.Method}, mcpwire.HeaderName: {"x"}}, &r)
		if name, ok := call.Text(r.name); ok && r.Method == "tools/call" {
			var p struct {
				Name string `json:"name"`
			}
			if err := json.Unmarshal(m.Params, &p); err != nil || p.Name != name {
				t.Fatalf("%q names %q and %q", body, name, p.Name)
			}
		}
	})
}

// Answers that come without a state of ours, so to no question, don't reach the corridor.
func TestAnswersToNoQuestionDoNotReachTheGateway(t *testing.T) {
	r := newRig(t)
	r.g.on(func(_ context.Context, req gateway.Request) gateway.Answer {
		if req.Exchange.InputResponses != nil {
			t.Errorf("the corridor saw %s", req.Exchange.InputResponses)
		}
		return permit(`{"content":[]}`)
	})
	r.do("POST", "/mcp", modernCall(`"arguments":{"a":1},"inputResponses":{"q":{"action":"accept"}},`), modernHeaders("tools/call", "echo"))
}

// A subscription is held under the transport session's key, whether or not its client can be asked: it goes when the session goes.
func TestSubscriptionsEndWithTheirTransportSession(t *testing.T) {
	r := newRig(t)
	h := r.open(agentToken, "{}")
	if rep := r.do("POST", "/mcp", `{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"test://a"}}`, h); rep.status != 200 || rep.code() != 0 {
		t.Fatalf("%d %s", rep.status, rep.body)
	}
	key := ""
	for _, c := range r.g.called() {
		if c.Method == "resources/subscribe" {
			key = c.Exchange.ClientKey
		}
	}
	if key == "" {
		t.Fatal("no key was given out")
	}
	if rep := r.do("DELETE", "/mcp", "", h); rep.status != 204 {
		t.Fatalf("%d", rep.status)
	}
	unsubscribed := slices.ContainsFunc(r.g.called(), func(c gateway.Request) bool { return c.Method == "resources/unsubscribe" })
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.released, key) && !unsubscribed {
		t.Errorf("the upstream was given the key %s with the subscription, and nobody told it that the session has ended: 1000 of those and nobody can subscribe", key)
	}
}
