package upstream

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/internal/mcpwire"
)

// quickHTTP answers at the least cost, so that what is measured is our side.
func quickHTTP(b *testing.B, sse bool, size int) string {
	fill := strings.Repeat("x", size)
	s := &rawHTTP{}
	s.call = func(w http.ResponseWriter, r *http.Request, id string) {
		answer := `{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":"` + fill + `"}]}}`
		if sse {
			events1(w, "event: message\ndata: "+answer+"\n\n")
			return
		}
		w.Header()["Content-Type"] = []string{"application/json"}
		w.Write([]byte(answer))
	}
	srv := httptest.NewServer(s)
	b.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return srv.URL
}

func benchmarkLean(b *testing.B, cfg Config) {
	m, _ := start(b, cfg, nil)
	params := toolCall("echo", `{"do":"ok","text":"hello"}`)
	if _, err := do(m, "tools/call", params, nil); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Do(context.Background(), "srv", "tools/call", params, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkSDK(b *testing.B, t mcp.Transport) {
	client := mcp.NewClient(implementation, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
	session, err := client.Connect(context.Background(), t, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer session.Close()
	params := &mcp.CallToolParams{Name: "echo", Arguments: json.RawMessage(`{"do":"ok","text":"hello"}`)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := session.CallTool(context.Background(), params); err != nil {
			b.Fatal(err)
		}
	}
}

// The server runs in the same process: its cost, the same for all rows of one server, is in the figures. Quick is a scripted server that
// costs little more than net/http itself; Floor is a bare POST to it.
func BenchmarkCall(b *testing.B) {
	b.Run("quick/floor", func(b *testing.B) {
		url := quickHTTP(b, false, 5)
		tr := newTransport()
		defer tr.CloseIdleConnections()
		const frame = `{"jsonrpc":"2.0","id":"sp-1","method":"tools/call","params":{"arguments":{"do":"ok","text":"hello"},"name":"echo"}}`
		b.ReportAllocs()
		for b.Loop() {
			req, _ := http.NewRequest("POST", url, strings.NewReader(frame))
			resp, err := tr.RoundTrip(req)
			if err != nil {
				b.Fatal(err)
			}
			mcpwire.ReadBody(resp.Body, resp.ContentLength, 1<<20)
			resp.Body.Close()
		}
	})
	b.Run("quick/lean-json", func(b *testing.B) { benchmarkLean(b, Config{URL: quickHTTP(b, false, 5)}) })
	b.Run("quick/lean-sse", func(b *testing.B) { benchmarkLean(b, Config{URL: quickHTTP(b, true, 5)}) })
	b.Run("quick/lean-json-64k", func(b *testing.B) { benchmarkLean(b, Config{URL: quickHTTP(b, false, 64<<10)}) })
	b.Run("quick/lean-sse-64k", func(b *testing.B) { benchmarkLean(b, Config{URL: quickHTTP(b, true, 64<<10)}) })
	b.Run("quick/sdk-json", func(b *testing.B) {
		benchmarkSDK(b, &mcp.StreamableClientTransport{Endpoint: quickHTTP(b, false, 5), DisableStandaloneSSE: true})
	})
	b.Run("quick/sdk-json-64k", func(b *testing.B) {
		benchmarkSDK(b, &mcp.StreamableClientTransport{Endpoint: quickHTTP(b, false, 64<<10), DisableStandaloneSSE: true})
	})
	for name, handler := range map[string]func(*mcp.Server) http.Handler{"sdk-server-legacy": legacyHandler, "sdk-server-modern": modernHandler} {
		b.Run(name+"/lean", func(b *testing.B) { benchmarkLean(b, Config{URL: serve(b, handler(sdkServer()))}) })
		b.Run(name+"/sdk", func(b *testing.B) {
			benchmarkSDK(b, &mcp.StreamableClientTransport{Endpoint: serve(b, handler(sdkServer()))})
		})
	}
	b.Run("stdio/lean", func(b *testing.B) {
		cfg := childConfig("sdk")
		benchmarkLean(b, cfg)
	})
	b.Run("stdio/sdk", func(b *testing.B) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childMode+"=sdk")
		benchmarkSDK(b, &mcp.CommandTransport{Command: cmd})
	})
}
