package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// rawHTTP is a scripted legacy server over HTTP. What tools/call does is in call; the rest behaves unless a hook says otherwise.
type rawHTTP struct {
	call     func(w http.ResponseWriter, r *http.Request, id string)
	list     func(id, cursor string) string // the whole answer to tools/list
	stream   http.HandlerFunc               // GET
	session  atomic.Pointer[string]
	inits    atomic.Int64
	deletes  atomic.Int64
	mu       sync.Mutex
	requests []*http.Request
	posted   []string // notifications and answers
}

func (s *rawHTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	s.mu.Unlock()
	switch r.Method {
	case http.MethodGet:
		if s.stream == nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		s.stream(w, r)
		return
	case http.MethodDelete:
		s.deletes.Add(1)
		return
	}
	body, _ := io.ReadAll(r.Body)
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ Cursor string }
	}
	json.Unmarshal(body, &m)
	if sid := s.session.Load(); sid != nil && m.Method != "initialize" && m.Method != "server/discover" && r.Header.Get("Mcp-Session-Id") != *sid {
		http.Error(w, "no such session", http.StatusNotFound)
		return
	}
	answer := func(format string, args ...any) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, format, args...)
	}
	switch {
	case m.Method == "initialize":
		sid := fmt.Sprint("session-", s.inits.Add(1))
		s.session.Store(&sid)
		w.Header().Set("Mcp-Session-Id", sid)
		answer(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"raw","version":"0"}}}`, m.ID)
	case m.Method == "tools/list" && s.list != nil:
		answer("%s", s.list(string(m.ID), m.Params.Cursor))
	case m.Method == "tools/list":
		answer(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"run","inputSchema":{"type":"object"}}]}}`, m.ID)
	case m.Method == "tools/call":
		s.call(w, r, string(m.ID))
	case m.ID == nil || m.Method == "":
		s.mu.Lock()
		s.posted = append(s.posted, string(body))
		s.mu.Unlock()
		w.WriteHeader(http.StatusAccepted)
	default:
		http.Error(w, "unknown", http.StatusBadRequest)
	}
}

func events1(w http.ResponseWriter, s string) {
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, s)
	w.(http.Flusher).Flush()
}

const good = `{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}`

// TestAnswersOverHTTP: media type and status games (mcp-091), framing games (mcp-092), a byte order mark (mcp-093), foreign ids (mcp-094),
// and broken answers. ID stands for the request's id.
func TestAnswersOverHTTP(t *testing.T) {
	const js, sse = "application/json", "text/event-stream"
	fill := strings.Repeat("x", 2<<20)
	for _, c := range []struct {
		name   string
		status int
		media  string
		body   string
		want   fault.Code
	}{
		{"plain", 200, js, good, ""},
		{"upper case type", 200, "Application/JSON; charset=utf-8", good, ""},
		{"white space around", 200, js, "\r\n " + good + "\n", ""},
		{"text/plain", 200, "text/plain", good, fault.ResultInvalid},
		{"no type", 200, "", good, fault.ResultInvalid},
		{"html", 200, "text/html", "<p>hi", fault.ResultInvalid},
		{"201", 201, js, good, fault.UpstreamFailed},
		{"206", 206, js, good, fault.UpstreamFailed},
		{"202", 202, js, "", fault.UpstreamFailed},
		{"500 with a result", 500, js, good, fault.UpstreamFailed},
		{"400 with a result and an error", 400, js, `{"jsonrpc":"2.0","id":ID,"result":{},"error":{"code":1,"message":"m"}}`, fault.UpstreamFailed},
		{"500 in text", 500, "text/plain", "oops", fault.UpstreamFailed},
		{"401", 401, "text/plain", "who", fault.UpstreamFailed},
		{"redirect", 302, js, good, fault.UpstreamFailed},
		{"byte order mark", 200, js, "\xef\xbb\xbf" + good, fault.ResultInvalid},
		{"half", 200, js, good[:30], fault.ResultInvalid},
		{"empty", 200, js, "", fault.ResultInvalid},
		{"batch", 200, js, "[" + good + "]", fault.ResultInvalid},
		{"two values", 200, js, good + good, fault.ResultInvalid},
		{"wrong id", 200, js, `{"jsonrpc":"2.0","id":"sp-1","result":{"content":[]}}`, fault.ResultInvalid},
		{"number id", 200, js, `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`, fault.ResultInvalid},
		{"no id", 200, js, `{"jsonrpc":"2.0","result":{"content":[]}}`, fault.ResultInvalid},
		{"case variants", 200, js, `{"jsonrpc":"2.0","id":ID,"result":{"content":[]},"Result":{}}`, fault.ResultInvalid},
		{"escaped key", 200, js, `{"jsonrpc":"2.0","id":ID,"result":{"content":[]},"r\u0065sult":{}}`, fault.ResultInvalid},
		{"invalid UTF-8", 200, js, "{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"a\":\"\xff\"}}", fault.ResultInvalid},
		{"too deep", 200, js, `{"jsonrpc":"2.0","id":ID,"result":{"a":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}}`, fault.ResultInvalid},
		{"too large", 200, js, `{"jsonrpc":"2.0","id":ID,"result":{"a":"` + fill + `"}}`, fault.ResultTooLarge},
		{"just too large", 200, js, `{"jsonrpc":"2.0","id":ID,"result":{"a":"` + fill[:1<<20] + `"}}`, fault.ResultTooLarge},
		{"error over 200", 200, js, `{"jsonrpc":"2.0","id":ID,"error":{"code":-1,"message":"m"}}`, "rpc"},
		{"error over 400", 400, js, `{"jsonrpc":"2.0","id":ID,"error":{"code":-1,"message":"m"}}`, "rpc"},

		{"event", 200, sse, "data: " + good + "\n\n", ""},
		{"two data lines", 200, sse, "data: {\"jsonrpc\":\"2.0\",\ndata:\"id\":ID,\"result\":{\"content\":[]}}\n\n", ""},
		{"CR", 200, sse, "event: message\rdata: " + good + "\r\r", ""},
		{"CRLF and LF", 200, sse, ": hi\r\ndata: " + good + "\r\n\n", ""},
		{"mark and comments", 200, sse, "\xef\xbb\xbf:x\n\nid: 1\nretry: 10\ndata\n\ndata: " + good + "\n\n", ""},
		{"other event name", 200, sse, "event: endpoint\ndata: " + strings.Replace(good, "[]", "[1]", 1) + "\n\ndata: " + good + "\n\n", ""},
		{"answered twice", 200, sse, "data: " + good + "\n\ndata: " + strings.Replace(good, "[]", "[1]", 1) + "\n\n", ""},
		{"foreign answers first", 200, sse, "data: {\"jsonrpc\":\"2.0\",\"id\":\"sp-1\",\"result\":{\"content\":[1]}}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\ndata: " + good + "\n\n", ""},
		{"another call's progress", 200, sse, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":\"sp-1\",\"progress\":1}}\n\ndata: " + good + "\n\n", ""},
		{"garbage first", 200, sse, "data: {\n\ndata: []\n\ndata: " + good + "\n\n", ""},
		{"error and result", 200, sse, "data: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{},\"error\":{}}\n\n", fault.ResultInvalid},
		{"cut event", 200, sse, "data: " + good + "\n", fault.UpstreamFailed},
		{"closes before", 200, sse, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n", fault.UpstreamFailed},
		{"event too large", 200, sse, "data: " + fill + "\n\n", fault.ResultTooLarge},
		{"lines too large", 200, sse, strings.Repeat("data: "+fill[:64<<10]+"\n", 40) + "\n", fault.ResultTooLarge},
		{"stream too large", 200, sse, strings.Repeat("data: {\"a\":\""+fill[:512<<10]+"\"}\n\n", 16), fault.ResultTooLarge},
		{"flood", 200, sse, strings.Repeat("data: {\"method\":\"x\"}\n\n", 50000), fault.UpstreamFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &rawHTTP{}
			s.call = func(w http.ResponseWriter, _ *http.Request, id string) {
				w.Header().Set("Location", "/elsewhere")
				w.Header()["Content-Type"] = nil
				if c.media != "" {
					w.Header().Set("Content-Type", c.media)
				}
				w.WriteHeader(c.status)
				io.WriteString(w, strings.ReplaceAll(c.body, "ID", id))
			}
			m, _ := start(t, Config{URL: serve(t, s)}, func(o *Options) { o.MaxResult = 1 << 20 })
			r, err := run(m, "x", &call.Exchange{Progress: func(json.RawMessage) { t.Error("progress of another call") }})
			var rpc *call.RPCError
			switch {
			case c.want == "":
				if err != nil || string(r) != `{"content":[]}` {
					t.Fatalf("%s %v", r, err)
				}
			case c.want == "rpc":
				if !errors.As(err, &rpc) {
					t.Fatal(err)
				}
			case !fault.Is(err, c.want) || !dispatched(err):
				t.Fatalf("%s %v", r, err)
			}
			if s := m.Status()[0]; s.State != Up || s.Restarts != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestHeaders: the operator's headers are there on every request, and nothing else of anybody's (mcp-067).
func TestHeaders(t *testing.T) {
	s := &rawHTTP{call: func(w http.ResponseWriter, r *http.Request, id string) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, strings.ReplaceAll(good, "ID", id))
	}}
	m, _ := start(t, Config{URL: serve(t, s), Headers: map[string]string{"authorization": "Bearer own"}}, nil)
	if _, err := run(m, "x", nil); err != nil {
		t.Fatal(err)
	}
	m.Close()
	if s.deletes.Load() != 1 {
		t.Error("the session was not ended")
	}
	allowed := map[string]bool{"Authorization": true, "Content-Type": true, "Content-Length": true, "Accept": true, "User-Agent": true,
		"Mcp-Protocol-Version": true, "Mcp-Session-Id": true, "Mcp-Method": true}
	for _, r := range s.requests {
		if r.Header.Get("Authorization") != "Bearer own" {
			t.Errorf("%s without the credential", r.Method)
		}
		for name := range r.Header {
			if !allowed[name] {
				t.Errorf("%s sent %s", r.Method, name)
			}
		}
	}
}

// TestNeverTwice: a connection that breaks after the request was read fails the call, which is not repeated.
func TestNeverTwice(t *testing.T) {
	for _, half := range []string{"", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"jsonrpc\"", "garbage"} {
		var calls atomic.Int64
		s := &rawHTTP{call: func(w http.ResponseWriter, r *http.Request, id string) {
			calls.Add(1)
			conn, _, _ := w.(http.Hijacker).Hijack()
			io.WriteString(conn, half)
			conn.Close()
		}}
		m, _ := start(t, Config{URL: serve(t, s)}, nil)
		if _, err := run(m, "x", nil); !fault.Is(err, fault.UpstreamFailed) || !dispatched(err) {
			t.Error(err)
		}
		if calls.Load() != 1 {
			t.Errorf("%d requests", calls.Load())
		}
	}
}

// TestSessionLost: a server that forgot the session is initialized again; the call that found out is not repeated.
func TestSessionLost(t *testing.T) {
	var calls atomic.Int64
	s := &rawHTTP{call: func(w http.ResponseWriter, r *http.Request, id string) {
		calls.Add(1)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, strings.ReplaceAll(good, "ID", id))
	}}
	m, _ := start(t, Config{URL: serve(t, s)}, nil)
	other := "other"
	s.session.Store(&other)
	if _, err := run(m, "x", nil); !fault.Is(err, fault.UpstreamFailed) {
		t.Fatal(err)
	}
	until(t, "it is up again", func() bool { s := m.Status()[0]; return s.State == Up && s.Restarts == 1 })
	if _, err := run(m, "x", nil); err != nil || calls.Load() != 1 || s.inits.Load() != 2 {
		t.Fatal(err, calls.Load(), s.inits.Load())
	}
}

// TestUnreachable: a call that finds nobody certainly never left; the server is connected to again once it is back.
func TestUnreachable(t *testing.T) {
	s := &rawHTTP{call: func(w http.ResponseWriter, r *http.Request, id string) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, strings.ReplaceAll(good, "ID", id))
	}}
	srv := httptest.NewServer(s)
	m, _ := start(t, Config{URL: srv.URL}, nil)
	if _, err := run(m, "x", nil); err != nil {
		t.Fatal(err)
	}
	address := srv.Listener.Addr().String()
	srv.CloseClientConnections()
	srv.Close()
	until(t, "calls find nobody", func() bool {
		_, err := run(m, "x", nil)
		if err == nil {
			t.Fatal("answered by nobody")
		}
		return !dispatched(err)
	})
	until(t, "it is down", func() bool { return m.Status()[0].State == Down })
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skip("the port is taken: ", err)
	}
	back := &httptest.Server{Listener: l, Config: &http.Server{Handler: s}}
	back.Start()
	defer back.Close()
	defer m.Close()
	until(t, "it is up again", func() bool { return m.Status()[0].State == Up })
	if _, err := run(m, "x", nil); err != nil {
		t.Fatal(err)
	}
}

// TestResume: a legacy server may close a call's stream and have the rest fetched. The call is not sent again.
func TestResume(t *testing.T) {
	var calls atomic.Int64
	var id atomic.Value
	s := &rawHTTP{}
	s.call = func(w http.ResponseWriter, r *http.Request, i string) {
		calls.Add(1)
		id.Store(i)
		events1(w, "id: e1\nretry: 1\ndata:\n\n")
	}
	s.stream = func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Last-Event-Id") {
		case "e1":
			events1(w, "id: e2\nretry: 1\ndata: {\"method\":\"x\"}\n\n")
		case "e2":
			events1(w, "data: "+strings.ReplaceAll(good, "ID", id.Load().(string))+"\n\n")
		default:
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
	}
	m, _ := start(t, Config{URL: serve(t, s)}, nil)
	if r, err := run(m, "x", nil); err != nil || string(r) != `{"content":[]}` || calls.Load() != 1 {
		t.Fatalf("%s %v %d", r, err, calls.Load())
	}
}

// TestStandingStream: announcements on the GET stream have the lists taken again, at most once a second however many there
// are; a flood ends the conversation.
func TestStandingStream(t *testing.T) {
	const notice = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n"
	var lists atomic.Int64
	flood := make(chan struct{})
	s := &rawHTTP{
		list: func(id, _ string) string {
			lists.Add(1)
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[]}}`, id)
		},
		stream: func(w http.ResponseWriter, r *http.Request) {
			for tick := time.NewTicker(5 * time.Millisecond); ; {
				events1(w, notice)
				select {
				case <-tick.C:
				case <-flood:
					events1(w, strings.Repeat(notice, 20000))
				case <-r.Context().Done():
					return
				}
			}
		},
	}
	began := time.Now()
	m, _ := start(t, Config{URL: serve(t, s)}, nil)
	until(t, "it is listed again", func() bool { return lists.Load() >= 3 })
	if took := time.Since(began); took < 2*relistGap {
		t.Errorf("three lists in %v", took)
	}
	close(flood)
	until(t, "it is cut off", func() bool { return strings.Contains(m.Status()[0].LastError, "floods") || m.Status()[0].Restarts > 0 })
}

// TestHangs: a server that never answers, or trickles, costs its caller the time it gave, and is told (legacy).
func TestHangs(t *testing.T) {
	s := &rawHTTP{call: func(w http.ResponseWriter, r *http.Request, id string) {
		events1(w, ": wait\n\n")
		<-r.Context().Done()
	}}
	m, _ := start(t, Config{URL: serve(t, s)}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := m.Do(ctx, "srv", "tools/call", toolCall("run", `{}`), nil); !fault.Is(err, fault.TimeExceeded) || !dispatched(err) {
		t.Fatal(err)
	}
	until(t, "the server is told", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return strings.Contains(strings.Join(s.posted, ""), `"notifications/cancelled"`)
	})
}

// TestServerRequests: what a server asks in the conversation that all share is answered with "no such method", a ping with a result.
func TestServerRequests(t *testing.T) {
	s := &rawHTTP{call: func(w http.ResponseWriter, r *http.Request, id string) {
		events1(w, `data: {"jsonrpc":"2.0","id":"a","method":"sampling/createMessage","params":{}}`+"\n\n"+
			`data: {"jsonrpc":"2.0","id":"b","method":"ping"}`+"\n\ndata: "+strings.ReplaceAll(good, "ID", id)+"\n\n")
	}}
	m, _ := start(t, Config{URL: serve(t, s), ClientFeatures: []string{"sampling"}}, nil)
	x := &call.Exchange{Ask: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
		t.Error("asked")
		return nil, nil
	}}
	if _, err := run(m, "x", x); err != nil {
		t.Fatal(err)
	}
	until(t, "both are answered", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		all := strings.Join(s.posted, "")
		return strings.Contains(all, `"id":"a","error":{"code":-32601`) && strings.Contains(all, `"id":"b","result":{}`)
	})
}

// TestManyCallers: answers reach the calls they belong to, whatever the order.
func TestManyCallers(t *testing.T) {
	for _, cfg := range []Config{{URL: serve(t, modernHandler(sdkServer()))}, childConfig("sdk")} {
		m, _ := start(t, cfg, nil)
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for j := range 20 {
					mark := fmt.Sprintf("%d/%d", i, j)
					r, err := do(m, "tools/call", toolCall("echo", `{"mark":"`+mark+`"}`), nil)
					if err != nil || !strings.Contains(string(r), mark) {
						t.Errorf("%s: %s %v", mark, r, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}
