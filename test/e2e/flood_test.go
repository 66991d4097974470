package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// floodCallers is how many callers an agent floods with.
const floodCallers = 256

// flooding is a gateway with two agents: flooder, which floods, and quiet, which goes on with its work.
type flooding struct {
	*world
	flooder, quiet string                  // their tokens
	clients        map[string]*http.Client // by token: no agent uses another one's connections
}

// call calls a tool, and returns status, headers and body; it is for many goroutines, and an error is the end of the connection.
func (f *flooding) call(ctx context.Context, token, tool, arguments string) (status int, h http.Header, body []byte, err error) {
	text, headers := modern("tools/call", tool, fmt.Sprintf(`"name":%q,"arguments":%s`, tool, arguments))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.agent+"/mcp", strings.NewReader(text))
	if err != nil {
		return 0, nil, nil, err
	}
	headers["Content-Type"], headers["Accept"], headers["Authorization"] = "application/json", "application/json, text/event-stream", "Bearer "+token
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	resp, err := f.clients[token].Do(r)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, body, err
}

// hang opens connections that begin a request and then neither write nor read.
func (f *flooding) hang(t *testing.T, n int, tool string, announced int) (end func()) {
	t.Helper()
	body, headers := modern("tools/call", tool, fmt.Sprintf(`"name":%q,"arguments":{}`, tool))
	var request strings.Builder
	fmt.Fprintf(&request, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n",
		strings.TrimPrefix(f.agent, "http://"), f.flooder, max(len(body), announced))
	for name, value := range headers {
		request.WriteString(name + ": " + value + "\r\n")
	}
	request.WriteString("\r\n" + body)
	var all []net.Conn
	for range n {
		c, err := net.Dial("tcp", strings.TrimPrefix(f.agent, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
		if _, err := io.WriteString(c, request.String()); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		for _, c := range all {
			_ = c.Close()
		}
	}
}

// One agent floods the gateway in every way that takes memory. None of another agent's calls is refused meanwhile, the process stays below its limit, and
// what the flood is refused with says when to come again.
func TestFloodRefusesNobodyElse(t *testing.T) {
	const limit = 256
	server := &scripted{tools: plainTools("take", "huge", "large", "quiet"), answer: func(m message) string {
		if m.Method == "tools/call" && m.Params.Name == "large" {
			return `{"content":[{"type":"text","text":"` + strings.Repeat("lorem ipsum ", 80_000) + `"}]}`
		}
		return `{"content":[{"type":"text","text":"fine"}]}`
	}, write: func(w http.ResponseWriter, m message) bool {
		if m.Method != "tools/call" || m.Params.Name != "huge" {
			return false
		}
		writeHuge(w, m)
		return true
	}}
	p := newPlace(t, fmt.Sprintf("upstreams:\n  s: {url: %q}\noperations:\n  s.*: {sensitivity: none, effect: read, external_io: false}\nlimits: {calls_per_minute: 10000000, execution_budget: 1000h, memory: %dMiB}\n", server.url(t), limit),
		declare("flooder", "operator", "planning", []string{"s.*"}, nil), declare("quiet", "operator", "planning", []string{"s.quiet"}, nil))
	w := launch(t, p)
	f := &flooding{world: w, flooder: w.token("flooder"), quiet: w.token("quiet"), clients: map[string]*http.Client{}}
	for _, token := range []string{f.flooder, f.quiet} {
		transport := &http.Transport{MaxIdleConnsPerHost: floodCallers}
		f.clients[token] = &http.Client{Transport: transport}
		t.Cleanup(transport.CloseIdleConnections)
	}
	if status, _, body, err := f.call(t.Context(), f.quiet, "s_quiet", `{}`); err != nil || status != http.StatusOK || !strings.Contains(string(body), "fine") {
		t.Fatalf("before any flood: %d %s %v", status, body, err)
	}
	loud := func(tool, arguments string) func(ctx context.Context) func() {
		return func(ctx context.Context) func() {
			var all sync.WaitGroup
			for range floodCallers {
				all.Go(func() {
					for ctx.Err() == nil {
						status, h, body, err := f.call(ctx, f.flooder, tool, arguments)
						if err == nil && status == http.StatusTooManyRequests && (h.Get("Retry-After") == "" || !strings.Contains(string(body), `"limit.rate"`)) {
							t.Errorf("a refusal without a time: %v %.300s", h, body)
						}
					}
				})
			}
			return all.Wait
		}
	}
	body := `{"text":"` + strings.Repeat("lorem ipsum ", 4<<20/12-200) + `"}`
	for _, flood := range []struct {
		name  string
		begin func(ctx context.Context) (end func())
	}{
		{"bodies of 4 MiB", loud("s_take", body)},
		{"answers of 100 MiB", loud("s_huge", `{}`)},
		{"answers of 1 MiB", loud("s_large", `{}`)},
		{"refused calls", loud("s_none", `{}`)},
		{"answers that nobody reads", func(context.Context) func() { return f.hang(t, floodCallers, "s_large", 0) }},
		{"bodies that don't come", func(context.Context) func() { return f.hang(t, floodCallers, "s_take", 4<<20-1) }},
	} {
		t.Run(flood.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			end := flood.begin(ctx)
			defer func() { cancel(); end() }()
			refused := 0
			for range 10 {
				status, _, body, err := f.call(ctx, f.quiet, "s_quiet", `{}`)
				if err != nil || status != http.StatusOK || !strings.Contains(string(body), "fine") || strings.Contains(string(body), `"isError":true`) {
					refused++
					t.Logf("%d %.300s %v", status, body, err)
				}
			}
			if refused != 0 {
				t.Errorf("refusals=%d of another agent's calls", refused)
			}
		})
	}
	peak := peakMiB(t, w.cmd.Process.Pid)
	t.Logf("peak memory %.0f MiB of %d", peak, limit)
	if peak > 1.25*limit && !raced {
		t.Errorf("the gateway took %.0f MiB", peak)
	}
	within(t, 30*time.Second, "the end", func() {
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	})
	p.verify(t)
}
