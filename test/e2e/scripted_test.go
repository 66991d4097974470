package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
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
	replies            chan string // answers to requests of this server's, if it makes any
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

// writeHuge answers with 100 MiB, or until the gateway hangs up, as it should.
func writeHuge(w http.ResponseWriter, m message) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, m.ID)
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	for range 100 {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
	_, _ = io.WriteString(w, `"}]}}`)
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
	if m.Method == "" {
		if s.replies != nil {
			s.replies <- string(body)
		}
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

// rawClient is a client of 2025-11-25 or an older revision that answers what a server asks back with the bytes that a test wants.
type rawClient struct {
	w              *world
	token, session string
	revision       string
	answer         func(method string, params json.RawMessage) string // the result object
}

func (w *world) rawClient(token, capabilities string, answer func(string, json.RawMessage) string) *rawClient {
	w.t.Helper()
	return w.rawClientOf(revision1125, token, capabilities, answer)
}

func (w *world) rawClientOf(revision, token, capabilities string, answer func(string, json.RawMessage) string) *rawClient {
	w.t.Helper()
	c := &rawClient{w: w, token: token, revision: revision, answer: answer}
	resp := c.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + revision + `","capabilities":` + capabilities + `,"clientInfo":{"name":"raw","version":"1"}}}`)
	defer resp.Body.Close()
	if c.session = resp.Header.Get("Mcp-Session-Id"); c.session == "" {
		w.t.Fatalf("initialize: %s", resp.Status)
	}
	_ = c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`).Body.Close()
	return c
}

func (c *rawClient) post(body string) *http.Response {
	c.w.t.Helper()
	version := c.revision
	if version < revision0618 {
		version = "" // these have no such header
	}
	req, err := http.NewRequestWithContext(c.w.t.Context(), http.MethodPost, c.w.agent+"/mcp", strings.NewReader(body))
	if err != nil {
		c.w.t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer " + c.token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Session-Id": c.session, "Mcp-Protocol-Version": version,
	} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.w.t.Fatal(err)
	}
	return resp
}

// call calls a tool, answers what is asked meanwhile, and returns the response.
func (c *rawClient) call(tool string) string {
	c.w.t.Helper()
	resp := c.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%s,"arguments":{}}}`, quote(tool)))
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data := strings.TrimPrefix(lines.Text(), "data: ")
		var m struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
		}
		if json.Unmarshal([]byte(data), &m) != nil {
			continue
		}
		if m.Method == "" {
			return data
		}
		if m.ID != nil {
			_ = c.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, c.answer(m.Method, m.Params))).Body.Close()
		}
	}
	c.w.t.Fatalf("no response to %s: %v", tool, lines.Err())
	return ""
}

// asks is a server that asks the client back while its tool runs, and says in its result what it was told.
func asks(method, params string) *scripted {
	s := &scripted{tools: plainTools("ask"), replies: make(chan string, 1)}
	s.write = func(w http.ResponseWriter, m message) bool {
		if m.Method != "tools/call" {
			return false
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"asked-1\",\"method\":%s,\"params\":%s}\n\n", quote(method), params)
		_ = http.NewResponseController(w).Flush()
		told := "nothing"
		select {
		case told = <-s.replies:
		case <-time.After(5 * time.Second):
		}
		_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", m.ID, textResult(told))
		return true
	}
	return s
}
