package mcpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/mcpwire"
)

// discard is a response writer that costs nothing.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

func (*discard) SetReadDeadline(time.Time) error  { return nil }
func (*discard) SetWriteDeadline(time.Time) error { return nil }

func benchRequest(method, target, token string, body []byte, headers map[string]string) *http.Request {
	r := httptest.NewRequest(method, target, bytes.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for k, v := range headers {
		r.Header.Set(k, v)
	}
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}
	r.Host = local.String()
	return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(local)))
}

// BenchmarkCall is what this face costs of one call, without socket and corridor: legacy and modern, a small result and 64 KiB.
// The SDK rows are the same call through the SDK's own server, for comparison.
func BenchmarkCall(b *testing.B) {
	small := `{"content":[{"type":"text","text":"pong"}],"_meta":{"sallyport/attribution":{"call_id":"call_1"}}}`
	large := `{"content":[{"type":"text","text":"` + strings.Repeat("x", 64<<10) + `"}],"_meta":{"sallyport/attribution":{"call_id":"call_1"}}}`
	body := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello world, how are you"}}}`
	modernBody := strings.Replace(body, `}}}`, `},`+modernMeta+`}}`, 1)
	for _, c := range []struct{ name, result string }{{"small", small}, {"64KiB", large}} {
		answer := gateway.Answer{CallID: "call_1", Verdict: fault.Permitted(), Result: json.RawMessage(c.result)}
		b.Run("legacy/"+c.name, func(b *testing.B) {
			r := newRig(b)
			r.g.quiet, r.g.onCall = true, func(context.Context, gateway.Request) gateway.Answer { return answer }
			benchServe(b, r.f.Handler(), body, r.open(agentToken, "{}"))
		})
		b.Run("modern/"+c.name, func(b *testing.B) {
			r := newRig(b)
			r.g.quiet, r.g.onCall = true, func(context.Context, gateway.Request) gateway.Answer { return answer }
			benchServe(b, r.f.Handler(), modernBody, modernHeaders("tools/call", "echo"))
		})
		server := mcp.NewServer(&mcp.Implementation{Name: "x", Version: "1"}, nil)
		text := c.result[strings.Index(c.result, `"text":"`)+8:]
		text = text[:strings.IndexByte(text, '"')]
		server.AddTool(&mcp.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
		})
		get := func(*http.Request) *mcp.Server { return server }
		b.Run("sdk-legacy/"+c.name, func(b *testing.B) {
			h := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{JSONResponse: true})
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, benchRequest("POST", "/mcp", agentToken, []byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`), nil))
			id := rec.Header().Get(mcpwire.HeaderSession)
			benchServe(b, h, body, map[string]string{mcpwire.HeaderSession: id, mcpwire.HeaderVersion: mcpwire.Revision1125})
			del := benchRequest("DELETE", "/mcp", agentToken, nil, map[string]string{mcpwire.HeaderSession: id})
			h.ServeHTTP(httptest.NewRecorder(), del)
		})
		b.Run("sdk-modern/"+c.name, func(b *testing.B) {
			h := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{JSONResponse: true, Stateless: true})
			benchServe(b, h, modernBody, modernHeaders("tools/call", "echo"))
		})
	}
}

func benchServe(b *testing.B, h http.Handler, body string, headers map[string]string) {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, benchRequest("POST", "/mcp", agentToken, []byte(body), headers))
	if rec.Code != 200 || !strings.Contains(rec.Body.String(), `"result"`) {
		b.Fatalf("%d %s", rec.Code, rec.Body)
	}
	r := benchRequest("POST", "/mcp", agentToken, []byte(body), headers)
	rd := bytes.NewReader([]byte(body))
	w := &discard{h: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		rd.Seek(0, 0)
		r.Body = readCloser{rd}
		clear(w.h)
		h.ServeHTTP(w, r)
	}
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }
