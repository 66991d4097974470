package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// scripted is an MCP server of revision 2025-11-25 over HTTP that says exactly what a test wants it to, however wrong. It records every
// byte that reaches it. Empty hooks behave.
type scripted struct {
	recorder
	name, instructions string
	capabilities       string                                  // more of them, as members of an object
	tools              func(asked int) string                  // the tools array, by how often it was asked for
	answer             func(m message) string                  // the result object of anything else
	write              func(http.ResponseWriter, message) bool // the whole HTTP answer; false: as usual
	asked              atomic.Int64
}

// message is a request as it reached a scripted server.
type message struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name      string
		URI       string
		Arguments json.RawMessage
		Meta      json.RawMessage `json:"_meta"`
	}
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.add("%s %s %v %s", r.Method, r.URL, r.Header, body)
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var m message
	if json.Unmarshal(body, &m) != nil || m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if s.write != nil && s.write(w, m) {
		return
	}
	result := ""
	switch m.Method {
	case "server/discover":
		rpc(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID))
		return
	case "initialize":
		name := s.name
		if name == "" {
			name = "scripted"
		}
		result = fmt.Sprintf(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}%s},"serverInfo":{"name":%s,"version":"1"},"instructions":%s}`,
			s.capabilities, quote(name), quote(s.instructions))
	case "ping":
		result = "{}"
	case "tools/list":
		tools := "[]"
		if s.tools != nil {
			tools = s.tools(int(s.asked.Add(1)))
		}
		result = `{"tools":` + tools + `}`
	default:
		if s.answer != nil {
			result = s.answer(m)
		}
	}
	if result == "" {
		rpc(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID))
		return
	}
	rpc(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result))
}

func rpc(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, body) // a gateway that hung up is part of some tests
}

// calls are the tools/call requests that reached the server.
func (s *scripted) calls() []string {
	var all []string
	for _, e := range s.all() {
		if strings.Contains(e, `"method":"tools/call"`) {
			all = append(all, e)
		}
	}
	return all
}

func quote(s string) string {
	b, _ := json.Marshal(s) // a string encodes
	return string(b)
}

// plainTools is a tools array of tools that take anything.
func plainTools(names ...string) func(int) string {
	return func(int) string {
		var defs []string
		for _, n := range names {
			defs = append(defs, fmt.Sprintf(`{"name":%s,"description":"Does it.","inputSchema":{"type":"object"}}`, quote(n)))
		}
		return "[" + strings.Join(defs, ",") + "]"
	}
}

// says is an answer with one text.
func says(words string) func(message) string {
	return func(message) string { return fmt.Sprintf(`{"content":[{"type":"text","text":%s}]}`, quote(words)) }
}

func (s *scripted) url(t *testing.T) string { return serve(t, s) }
