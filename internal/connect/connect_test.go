package connect

import (
	"bufio"
	"bytes"
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

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/internal/mcpwire"
)

const secret = "spt_agent_test"

// everything is a server of the official SDK with the things that a bridge can get wrong.
type everything struct {
	*httptest.Server
	server  *mcp.Server
	started chan struct{} // one for each call of wait
	ended   chan struct{}
	handler atomic.Pointer[http.Handler]
	opened  atomic.Int32 // transport sessions
}

func newEverything(t *testing.T, stateless bool) *everything {
	e := &everything{started: make(chan struct{}, 8), ended: make(chan struct{}, 8)}
	e.server = mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	mcp.AddTool(e.server, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, a struct {
		Text string `json:"text"`
	}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: a.Text}}}, nil, nil
	})
	mcp.AddTool(e.server, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		e.started <- struct{}{}
		<-ctx.Done()
		e.ended <- struct{}{}
		return nil, nil, ctx.Err()
	})
	mcp.AddTool(e.server, &mcp.Tool{Name: "progress"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1, Total: 2})
		return &mcp.CallToolResult{}, nil, err
	})
	mcp.AddTool(e.server, &mcp.Tool{Name: "ask"}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		a, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "sure?", RequestedSchema: map[string]any{"type": "object"}})
		if err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: a.Action}}}, nil, nil
	})
	e.server.AddTool(&mcp.Tool{Name: "bound", InputSchema: json.RawMessage(`{"type":"object","properties":{"région":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"}}}`)},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
		})
	e.restart(stateless)
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+secret {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"status":401,"detail":"The token is not known here."}`)
			return
		}
		if r.Method == http.MethodPost && r.Header.Get(mcpwire.HeaderSession) == "" {
			e.opened.Add(1)
		}
		(*e.handler.Load()).ServeHTTP(w, r)
	}))
	t.Cleanup(func() { e.CloseClientConnections(); e.Close() })
	return e
}

// restart forgets every transport session, as a gateway that was started again does.
func (e *everything) restart(stateless bool) {
	var h http.Handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return e.server },
		&mcp.StreamableHTTPOptions{Stateless: stateless, PropagateRequestCancellation: true})
	e.handler.Store(&h)
}

// through returns an official client whose other end is the bridge.
func through(t *testing.T, url string, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := Run(t.Context(), inR, outW, Options{URL: url, Token: secret})
		outW.Close()
		done <- err
	}()
	client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, o)
	s, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: outR, Writer: inW}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the bridge ended with %v", err)
		}
	})
	return s
}

func say(t *testing.T, s *mcp.ClientSession, text string) {
	t.Helper()
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": text}})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Content[0].(*mcp.TextContent).Text; got != text {
		t.Fatalf("echo of %d bytes came back as %d bytes", len(text), len(got))
	}
}

func TestOfficialClient(t *testing.T) {
	for _, era := range []struct {
		name      string
		stateless bool
	}{{"sessions", false}, {"stateless", true}} {
		t.Run(era.name, func(t *testing.T) {
			e := newEverything(t, era.stateless)
			progressed, changed := make(chan float64, 1), make(chan struct{}, 8)
			s := through(t, e.URL, &mcp.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progressed <- r.Params.Progress },
				ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
				ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					return &mcp.ElicitResult{Action: "decline"}, nil
				},
			})
			if got := mcpwire.Modern(s.InitializeResult().ProtocolVersion); got != era.stateless {
				t.Fatalf("the client speaks %s", s.InitializeResult().ProtocolVersion)
			}
			say(t, s, "x")
			say(t, s, "line\nbreak \u2028 é 中 \"")
			say(t, s, strings.Repeat("long ", 700_000))
			var all sync.WaitGroup
			for i := range 40 {
				all.Go(func() { say(t, s, fmt.Sprint("parallel ", i)) })
			}
			all.Wait()

			list, err := s.ListTools(t.Context(), nil)
			if err != nil || len(list.Tools) != 5 {
				t.Fatalf("tools: %v, %v", list, err)
			}
			bound, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "bound", Arguments: map[string]any{"région": "São Paulo", "n": 7}})
			if err != nil || bound.IsError {
				t.Fatalf("a tool with arguments in headers: %v, %v", bound, err)
			}
			if _, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "nöpe"}); err == nil || !strings.Contains(err.Error(), "nöpe") {
				t.Fatalf("an unknown tool: %v", err)
			}

			p := &mcp.CallToolParams{Name: "progress", Arguments: map[string]any{}}
			p.SetProgressToken("t")
			if _, err := s.CallTool(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if got := <-progressed; got != 1 {
				t.Fatalf("progress %v", got)
			}

			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-e.started; cancel() }()
			if _, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "wait"}); !errors.Is(err, context.Canceled) {
				t.Fatalf("a cancelled call: %v", err)
			}
			<-e.ended // the server was told
			say(t, s, "after cancelling")

			if era.stateless {
				return // there, requests of the server's travel in results, which are forwarded as they are
			}
			asked, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "ask"})
			if err != nil || asked.Content[0].(*mcp.TextContent).Text != "decline" {
				t.Fatalf("a question of the server's: %v, %v", asked, err)
			}
			e.server.RemoveTools("bound")
			<-changed // on the stream that belongs to no request
			e.restart(false)
			say(t, s, "after the server lost the session")
			e.opened.Store(0)
			e.restart(false)
			for i := range 8 {
				all.Go(func() { say(t, s, fmt.Sprint("after it lost it again ", i)) })
			}
			all.Wait()
			if n := e.opened.Load(); n != 1 {
				t.Errorf("%d sessions were opened in place of one", n)
			}
		})
	}
}

// pipe feeds lines to the bridge and returns what came out.
func pipe(t *testing.T, url, tok, in string) []string {
	t.Helper()
	var out bytes.Buffer
	if err := Run(t.Context(), strings.NewReader(in), &out, Options{URL: url, Token: tok}); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"p","version":"1"}}}` + "\n" +
	`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"

func TestPipe(t *testing.T) {
	e := newEverything(t, false)
	got := pipe(t, e.URL, secret, hello+`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"}}}`)
	if len(got) != 2 || !strings.Contains(got[0], `"protocolVersion":"2025-11-25"`) || !strings.Contains(got[1], `"hi"`) || !strings.Contains(got[1], `"id":"a"`) {
		t.Fatalf("%q", got)
	}
}

func TestBadLines(t *testing.T) {
	e := newEverything(t, false)
	for name, c := range map[string]struct{ line, want string }{
		"not JSON":       {`hello`, `"code":-32700`},
		"duplicate key":  {`{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, `"code":-32700`},
		"case variant":   {`{"jsonrpc":"2.0","id":1,"Id":2,"method":"ping"}`, `"code":-32700`},
		"trailing":       {`{"jsonrpc":"2.0","id":1,"method":"ping"} {}`, `"code":-32700`},
		"batch":          {`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, `"code":-32600`},
		"no method":      {`{"jsonrpc":"2.0"}`, `"code":-32600`},
		"method a list":  {`{"jsonrpc":"2.0","id":1,"method":["ping"]}`, `"code":-32600`},
		"unknown member": {`{"jsonrpc":"2.0","id":1,"method":"ping","auth":"x"}`, `"id":1`},
		"bad UTF-8":      {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", `"code":-32700`},
		"too long":       {`{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", maxLine) + `"}`, `longer than`},
		"deep":           {`{"jsonrpc":"2.0","id":1,"method":"ping","params":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, `"code":-32700`},
		"params a list":  {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}`, `"id":1`},
		"meta a string":  {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":"x"}}`, `"id":1`},
		"name a number":  {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":3,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, `"id":1`},
		"version absurd": {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"9999\r\nX: y"}}}`, `"id":1`},
	} {
		t.Run(name, func(t *testing.T) {
			got := pipe(t, e.URL, secret, hello+c.line+"\n\n"+`{"jsonrpc":"2.0","id":"z","method":"ping"}`+"\n")
			all := strings.Join(got, "\n")
			if len(got) != 3 || !strings.Contains(all, c.want) || !strings.Contains(all, `"error"`) || !strings.Contains(all, `"id":"z"`) {
				t.Fatalf("%.2000q", got)
			}
		})
	}
}

// A client of 2025-03-26 gets one array for a batch, and one error for what is no batch.
func TestBatch(t *testing.T) {
	e := newEverything(t, false)
	old := strings.ReplaceAll(hello, "2025-11-25", "2025-03-26")
	echo := func(id, text string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"echo","arguments":{"text":"` + text + `"}}}`
	}
	for _, c := range []struct {
		name, line string
		want       []string // parts of the line, in order; none: there is no line
	}{
		{"calls", "[" + echo("1", "one") + `,{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}, ` + echo(`"b"`, "two") + "]", []string{`[{"jsonrpc":"2.0","id":1,`, "one", `},{"jsonrpc":"2.0","id":"b",`, "two", "}]"}},
		{"cancelled before its turn", `[{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}},` + echo("1", "one") + "," + echo("2", "two") + "]", []string{`[{"jsonrpc":"2.0","id":2,`, "two", "}]"}},
		{"an error among the answers", `[{"jsonrpc":"2.0","id":1,"method":"vendor/x"},` + echo("2", "two") + "]", []string{`[{"jsonrpc":"2.0","id":1,"error"`, `},{"jsonrpc":"2.0","id":2,`, "two"}},
		{"notifications", `[{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}]`, nil},
		{"one id twice", "[" + echo("1", "one") + "," + echo("1", "two") + "]", []string{`{"jsonrpc":"2.0","id":null,"error":{"code":-32600`}},
		{"one of 2026-07-28", `[{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}]`, []string{`{"jsonrpc":"2.0","id":null,"error":{"code":-32600`}},
		{"a wrong _meta", "[" + echo("1", "one") + `,{"jsonrpc":"2.0","id":2,"method":"ping","params":{"_meta":7}}]`, []string{`{"jsonrpc":"2.0","id":null,"error":{"code":-32602`}},
		{"none", "[]", []string{`{"jsonrpc":"2.0","id":null,"error":{"code":-32600`}},
		{"no end", "[" + echo("1", "one"), []string{`{"jsonrpc":"2.0","id":null,"error":{"code":-32700`}},
	} {
		got := pipe(t, e.URL, secret, old+c.line+"\n")
		if len(got) == 0 || !strings.Contains(got[0], `"protocolVersion":"2025-03-26"`) || len(got) > 2 || (len(got) == 2) != (c.want != nil) {
			t.Errorf("%s: %q", c.name, got)
			continue
		}
		for rest := got[len(got)-1]; len(c.want) > 0; c.want = c.want[1:] {
			var ok bool
			if _, rest, ok = strings.Cut(rest, c.want[0]); !ok {
				t.Errorf("%s: no %s in %q", c.name, c.want[0], got[1])
			}
		}
	}
}

// A request of a batch is cancelled while it runs, and the rest is answered.
func TestBatchCancelled(t *testing.T) {
	e := newEverything(t, false)
	in, w := io.Pipe()
	var out bytes.Buffer
	done := make(chan error, 1)
	go func() { done <- Run(t.Context(), in, &out, Options{URL: e.URL, Token: secret}) }()
	fmt.Fprint(w, strings.ReplaceAll(hello, "2025-11-25", "2025-03-26"), `[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","arguments":{}}},{"jsonrpc":"2.0","id":2,"method":"ping"}]`+"\n")
	<-e.started
	fmt.Fprint(w, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`+"\n")
	<-e.ended
	w.Close()
	err := <-done
	_, last, _ := strings.Cut(out.String(), "\n") // it may have the server's last word on the cancelled one, too
	if err != nil || !strings.HasPrefix(last, "[") || !strings.HasSuffix(last, `{"jsonrpc":"2.0","id":2,"result":{}}]`+"\n") {
		t.Errorf("%v: %s", err, out.String())
	}
}

// The answers to a batch are together no larger than one answer may be, and each request has one.
func TestBatchAnswersTooLarge(t *testing.T) {
	var a answers
	large := mcpwire.Message{ID: []byte("1"), Result: []byte(`"` + strings.Repeat("x", maxAnswer/2) + `"`)}
	a.add(large)
	large.ID = []byte("2")
	a.add(large)
	if len(a.json) > maxAnswer || !bytes.Contains(a.json, []byte(`,{"jsonrpc":"2.0","id":2,"error":{`)) {
		t.Errorf("%d bytes, which end in %s", len(a.json), a.json[len(a.json)-200:])
	}
}

func TestRefusalsAreAnswers(t *testing.T) {
	e := newEverything(t, false)
	if got := pipe(t, e.URL, "spt_agent_other", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); len(got) != 1 || !strings.Contains(got[0], "not known here") || !strings.Contains(got[0], `"id":1`) {
		t.Errorf("wrong token: %q", got)
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	if got := pipe(t, gone.URL, secret, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); len(got) != 1 || !strings.Contains(got[0], "sallyport serve") {
		t.Errorf("no server: %q", got)
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the token was carried to another address") }))
	defer elsewhere.Close()
	for name, h := range map[string]http.HandlerFunc{
		"HTML": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<p>")
		},
		"not JSON": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, "{")
		},
		"nothing": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "text/event-stream") },
		"cut short": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n") // the event is not ended
		},
		"aborted": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"reset": func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				err = errors.Join(c.(*net.TCPConn).SetLinger(0), c.Close())
			}
			if err != nil {
				t.Error(err)
			}
		},
		"see other": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusSeeOther) },
		"redirected": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { calls.Add(1); h(w, r) }))
			defer s.Close()
			got := pipe(t, s.URL, secret, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`)
			if len(got) != 1 || !strings.Contains(got[0], `"error"`) || !strings.Contains(got[0], `"id":1`) || strings.Contains(got[0], secret) {
				t.Errorf("%q", got)
			}
			if n := calls.Load(); n != 1 {
				t.Errorf("a request that may have had its effect was sent %d times", n)
			}
		})
	}
}

// What a server sends becomes one line, whatever it looks like.
func TestOneLineOut(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "\xef\xbb\xbf: comment\r\nevent: other\rdata: {\"no\":1}\r\r",
			"data: {\"jsonrpc\":\"2.0\",\r\ndata: \"method\":\"notifications/message\"}\n\n",
			"id: 1\ndata\n\n", // an event that is only there for its id
			"event: message\ndata:{\"jsonrpc\":\"2.0\",\ndata:\"id\":null,\"error\":{\"code\":1,\"message\":\"x\"}}\n\n",
			"data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"too\":\"late\"}}\n\n")
	}))
	defer s.Close()
	got := pipe(t, s.URL, secret, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`)
	want := []string{`{"jsonrpc":"2.0","method":"notifications/message"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}`}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("%q", got)
	}
}

func TestEndsWithContextAndOutput(t *testing.T) {
	e := newEverything(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- Run(ctx, r, io.Discard, Options{URL: e.URL, Token: secret}) }()
	fmt.Fprint(w, hello, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","arguments":{}}}`+"\n")
	<-e.started
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	<-e.ended
	w.Close()

	r, w = io.Pipe()
	defer w.Close()
	go func() { done <- Run(t.Context(), r, brokenWriter{}, Options{URL: e.URL, Token: secret}) }()
	fmt.Fprint(w, hello)
	if err := <-done; err == nil || !strings.Contains(err.Error(), "standard output") {
		t.Errorf("ended with %v", err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// A call that runs when the input ends is cut off after the grace, not waited for.
func TestEndOfInputEndsCalls(t *testing.T) {
	e := newEverything(t, false)
	began := time.Now()
	pipe(t, e.URL, secret, hello+`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","arguments":{}}}`)
	if d := time.Since(began); d < grace || d > grace+20*time.Second {
		t.Errorf("it took %v", d)
	}
	<-e.ended
}

func FuzzLine(f *testing.F) {
	for _, s := range []string{hello, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"é\n","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"arguments":{"a":1}}}`, "{", "[]", "\xff", `{"params":""}`} {
		f.Add([]byte(s))
	}
	b := &bridge{headers: map[string][]mcpwire.ParamHeader{"é\n": {{Path: []string{"a"}, Header: "Mcp-Param-A"}}, "x": {{Path: []string{"a", "b"}, Header: "Mcp-Param-B"}}}}
	f.Fuzz(func(t *testing.T, line []byte) {
		data, _ := mcpwire.NewLines(bytes.NewReader(line), maxLine).Next()
		if len(data) == 0 {
			return
		}
		m, e := parse(data)
		if e != nil {
			return
		}
		for name, values := range b.modernHeaders(m) {
			for _, v := range append(values, name) {
				if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' }) {
					t.Fatalf("header %q: %q", name, v)
				}
			}
		}
	})
}

// BenchmarkBridge is what the bridge adds to one call: an answer that is there at once, over a loopback connection.
func BenchmarkBridge(b *testing.B) {
	answer := []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", 1000) + `"}]}}`)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Write(answer)
	}))
	defer s.Close()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- Run(b.Context(), inR, outW, Options{URL: s.URL, Token: secret}) }()
	out := bufio.NewReader(outR)
	line := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}` + "\n")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := inW.Write(line); err != nil {
			b.Fatal(err)
		}
		if _, err := out.ReadSlice('\n'); err != nil {
			b.Fatal(err)
		}
	}
	inW.Close()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}
