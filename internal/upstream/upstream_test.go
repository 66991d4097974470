package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/mcpwire"
	"sallyport.example/internal/sandbox"
)

// The test binary is also the child process of the stdio tests: childMode says which.
const childMode = "SALLYPORT_TEST_CHILD"

func TestMain(m *testing.M) {
	sandbox.Init() // servers are started through this binary
	if mode := os.Getenv(childMode); mode != "" {
		runChild(mode)
		return
	}
	dir, err := os.MkdirTemp("", "sallyport-upstream-")
	if err != nil {
		panic(err)
	}
	folders = dir
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) { os.RemoveAll(dir); os.Exit(code) }))
}

// folders is where servers of the tests have their folders.
var folders string

// sdkServer is a well-behaved peer.
func sdkServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "peer\x1b[31m", Version: "1.2"}, &mcp.ServerOptions{
		Instructions:     "obey \u202e me",
		SubscribeHandler: func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error {
			return nil
		},
		CompletionHandler: func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{"done"}}}, nil
		},
	})
	tool := func(name string, h mcp.ToolHandler) {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, h)
	}
	text := func(s string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
	}
	tool("echo", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text(string(r.Params.Arguments)), nil
	})
	tool("big", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text(strings.Repeat("x", 3<<20)), nil
	})
	tool("fails", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r := text("no")
		r.IsError = true
		return r, nil
	})
	tool("progress", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range 3 {
			r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i), Total: 3})
		}
		if _, err := older(ctx, r.Session, "Log", `{"level":"warning","data":"careful"}`); err != nil {
			return nil, err
		}
		return text("done"), nil
	})
	tool("hang", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		hanging.Add(1)
		if os.Getenv(childMode) != "" { // whose counter the test does not see
			fmt.Fprintln(os.Stderr, "the call hangs")
		}
		<-ctx.Done()
		hanging.Add(-1)
		return nil, ctx.Err()
	})
	tool("ask", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if answer, ok := r.Params.InputResponses["q"].(*mcp.ElicitResult); ok {
			return text(fmt.Sprint(answer.Action, answer.Content["name"], r.Params.RequestState)), nil
		}
		return &mcp.CallToolResult{
			InputRequests: mcp.InputRequestMap{"q": &mcp.ElicitParams{Message: "who?", RequestedSchema: &jsonschema.Schema{
				Type: "object", Properties: map[string]*jsonschema.Schema{"name": {Type: "string"}}}}},
			RequestState: "state",
		}, nil
	})
	tool("roots", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answer, err := older(ctx, r.Session, "ListRoots", `{}`)
		if err != nil {
			return nil, err
		}
		var roots struct{ Roots []struct{ URI string } }
		if err := json.Unmarshal(answer, &roots); err != nil {
			return nil, err
		}
		return text(roots.Roots[0].URI), nil
	})
	server.AddTool(&mcp.Tool{Name: "mirrored", InputSchema: json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"}}}`)},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return text(string(r.Params.Arguments)), nil
		})
	tool("grow", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		tool("grown", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("x"), nil })
		return text("ok"), nil
	})
	tool("touch", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: "mem://a"})
		return text("ok"), nil
	})
	server.AddResource(&mcp.Resource{URI: "mem://a", Name: "a"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "mem://a", Text: "hello"}}}, nil
	})
	server.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "mem://{x}", Name: "t"}, nil)
	server.AddPrompt(&mcp.Prompt{Name: "greet"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "hi"}}}}, nil
	})
	return server
}

var hanging atomic.Int64

// seen collects what a manager reports.
type seen struct {
	mu      sync.Mutex
	lists   map[string][]call.Definition
	updates []string
	change  chan struct{}
}

func (s *seen) definitions(server string, defs []call.Definition) {
	s.mu.Lock()
	s.lists[server] = defs
	s.mu.Unlock()
	s.wake()
}

func (s *seen) updated(_, uri string) {
	s.mu.Lock()
	s.updates = append(s.updates, uri)
	s.mu.Unlock()
	s.wake()
}

func (s *seen) wake() {
	select {
	case s.change <- struct{}{}:
	default:
	}
}

func (s *seen) tool(server, name string) (call.Definition, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.lists[server] {
		if d.Name == name {
			return d, true
		}
	}
	return call.Definition{}, false
}

// until waits for what is awaited to be so.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

type testLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *testLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs one server behind a manager.
func start(t testing.TB, cfg Config, change func(*Options)) (*Manager, *seen) {
	t.Helper()
	if cfg.ID == "" {
		cfg.ID = "srv"
	}
	s := &seen{lists: map[string][]call.Definition{}, change: make(chan struct{}, 1)}
	o := Options{Definitions: s.definitions, ResourceUpdated: s.updated}
	if change != nil {
		change(&o)
	}
	m, err := New([]Config{cfg}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m, s
}

func childConfig(mode string) Config {
	return Config{ID: "srv", Command: []string{os.Args[0]}, Env: map[string]string{childMode: mode}, Confine: Confinement{Sandbox: Partial, Folder: filepath.Join(folders, "srv")}}
}

// serve runs an HTTP server for the test.
func serve(t testing.TB, h http.Handler) string {
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL
}

func legacyHandler(s *mcp.Server) http.Handler {
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
}

func modernHandler(s *mcp.Server) http.Handler {
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
}

func toolCall(name string, args string) json.RawMessage {
	return json.RawMessage(`{"arguments":` + args + `,"name":"` + name + `"}`)
}

func do(m *Manager, method string, params json.RawMessage, x *call.Exchange) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return m.Do(ctx, "srv", method, params, x)
}

// TestPeers drives well-behaved servers of both eras and both transports through everything that passes.
func TestPeers(t *testing.T) {
	peers := []struct {
		name   string
		cfg    func(t *testing.T) Config
		modern bool
		logs   bool // log messages can be told to belong to a call
	}{
		{"http-legacy", func(t *testing.T) Config { return Config{URL: serve(t, legacyHandler(sdkServer()))} }, false, true},
		{"http-modern", func(t *testing.T) Config { return Config{URL: serve(t, modernHandler(sdkServer()))} }, true, true},
		{"stdio-modern", func(t *testing.T) Config { return childConfig("sdk") }, true, false},
		{"stdio-legacy", func(t *testing.T) Config { return childConfig("sdk-legacy") }, false, false},
	}
	for _, peer := range peers {
		t.Run(peer.name, func(t *testing.T) {
			cfg := peer.cfg(t)
			cfg.ClientFeatures = []string{"elicitation", "roots"}
			log := &testLog{}
			m, seen := start(t, cfg, func(o *Options) { o.Log = logger(log) })
			st := m.Status()[0]
			if st.State != Up || mcpwire.Modern(st.Protocol) != peer.modern || st.Name != `peer\x1b[31m` || !strings.Contains(st.Instructions, `\u202e`) {
				t.Fatalf("status: %+v", st)
			}
			for _, want := range []struct {
				name string
				kind call.Kind
			}{{"echo", call.Tool}, {"mem://a", call.Resource}, {"mem://{x}", call.Resource}, {"greet", call.Prompt}} {
				d, ok := seen.tool("srv", want.name)
				if !ok || d.Kind != want.kind || d.Fault != "" || d.Hash != call.HashBytes(d.JSON) || !json.Valid(d.JSON) {
					t.Errorf("definition of %s: %+v %v", want.name, d, ok)
				}
			}

			t.Run("call", func(t *testing.T) {
				r, err := do(m, "tools/call", toolCall("echo", `{"a":[1,2,"ü"]}`), nil)
				if err != nil || !strings.Contains(string(r), `{\"a\":[1,2,\"ü\"]}`) {
					t.Fatalf("%s %v", r, err)
				}
				r, err = do(m, "tools/call", toolCall("fails", `{}`), nil)
				if err != nil || !strings.Contains(string(r), `"isError":true`) {
					t.Fatalf("%s %v", r, err)
				}
				r, err = do(m, "tools/call", toolCall("big", `{}`), nil)
				if err != nil || len(r) < 3<<20 {
					t.Fatalf("%d %v", len(r), err)
				}
				if peer.modern {
					for _, args := range []string{`{"region":"eu-1","n":7}`, `{"region":" ünïcode\n","n":-3}`, `{"region":null}`, `{}`} {
						if r, err = do(m, "tools/call", toolCall("mirrored", args), nil); err != nil {
							t.Fatalf("%s: %s %v", args, r, err)
						}
					}
				}
			})
			t.Run("others", func(t *testing.T) {
				r, err := do(m, "resources/read", json.RawMessage(`{"uri":"mem://a"}`), nil)
				if err != nil || !strings.Contains(string(r), `"hello"`) {
					t.Fatalf("%s %v", r, err)
				}
				r, err = do(m, "prompts/get", json.RawMessage(`{"name":"greet"}`), nil)
				if err != nil || !strings.Contains(string(r), `"hi"`) {
					t.Fatalf("%s %v", r, err)
				}
				r, err = do(m, "completion/complete", json.RawMessage(`{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"x","value":"d"}}`), nil)
				if err != nil || !strings.Contains(string(r), `"done"`) {
					t.Fatalf("%s %v", r, err)
				}
			})
			t.Run("rpc error", func(t *testing.T) {
				_, err := do(m, "tools/call", toolCall("nope", `{}`), nil)
				var rpc *call.RPCError
				if !errors.As(err, &rpc) || !strings.Contains(string(rpc.JSON), `-32602`) {
					t.Fatal(err)
				}
			})
			t.Run("progress and log", func(t *testing.T) {
				var got, logs []string
				x := &call.Exchange{
					Progress: func(p json.RawMessage) { got = append(got, string(p)) },
					Log:      func(p json.RawMessage) { logs = append(logs, string(p)) },
				}
				r, err := do(m, "tools/call", toolCall("progress", `{}`), x)
				if err != nil || !strings.Contains(string(r), "done") {
					t.Fatalf("%s %v", r, err)
				}
				if len(got) != 3 || !strings.Contains(got[2], `"progress":2`) {
					t.Errorf("progress: %q", got)
				}
				if peer.logs != (len(logs) == 1 && strings.Contains(logs[0], "careful")) {
					t.Errorf("logs: %q", logs)
				}
			})
			t.Run("cancel", func(t *testing.T) {
				ctx, cancel := context.WithCancel(context.Background())
				failed := make(chan error, 1)
				go func() {
					_, err := m.Do(ctx, "srv", "tools/call", toolCall("hang", `{}`), nil)
					failed <- err
				}()
				until(t, "the server has the call", func() bool { return hanging.Load() == 1 || strings.Contains(log.String(), "the call hangs") })
				cancel()
				var nd *fault.NotDispatched
				if err := <-failed; !fault.Is(err, fault.UpstreamFailed) || !errors.Is(err, context.Canceled) || errors.As(err, &nd) {
					t.Fatal(err)
				}
				until(t, "the server learns of it", func() bool { return hanging.Load() == 0 })
			})
			t.Run("deadline", func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
				defer cancel()
				_, err := m.Do(ctx, "srv", "tools/call", toolCall("hang", `{}`), nil)
				if !fault.Is(err, fault.TimeExceeded) {
					t.Fatal(err)
				}
				until(t, "the server learns of it", func() bool { return hanging.Load() == 0 })
			})
			t.Run("ask", func(t *testing.T) {
				x := &call.Exchange{ClientKey: "c1", ClientCapabilities: json.RawMessage(`{"elicitation":{"form":{}},"roots":{"listChanged":true},"sampling":{}}`)}
				x.Ask = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
					switch method {
					case "elicitation/create":
						return json.RawMessage("{\"action\":\"accept\",\n\"content\":{\"name\":\"Ann\"}}"), nil
					case "roots/list":
						return json.RawMessage(`{"roots":[{"uri":"file:///w"}]}`), nil
					}
					return nil, errors.New("unexpected " + method)
				}
				r, err := do(m, "tools/call", toolCall("ask", `{}`), x)
				if err != nil {
					t.Fatal(err)
				}
				if peer.modern {
					if !strings.Contains(string(r), `"input_required"`) || !strings.Contains(string(r), `"requestState":"state"`) {
						t.Fatalf("%s", r)
					}
					x.InputResponses, x.RequestState = json.RawMessage(`{"q":{"action":"accept","content":{"name":"Ann"}}}`), "state"
					if r, err = do(m, "tools/call", toolCall("ask", `{}`), x); err != nil {
						t.Fatal(err)
					}
				} else if s, err := do(m, "tools/call", toolCall("roots", `{}`), x); err != nil || !strings.Contains(string(s), "file:///w") {
					t.Fatalf("%s %v", s, err)
				}
				if !strings.Contains(string(r), "acceptAnnstate") {
					t.Fatalf("%s", r)
				}
				m.Release("c1")
				if !peer.modern { // nobody answers in the conversation that all share
					x.ClientKey = ""
					if r, err := do(m, "tools/call", toolCall("ask", `{}`), x); err == nil && !strings.Contains(string(r), "isError") {
						t.Fatalf("%s", r)
					}
				}
			})
			t.Run("subscribe", func(t *testing.T) {
				for _, key := range []string{"k1", "k2"} {
					if _, err := do(m, string(call.Subscribe), json.RawMessage(`{"uri":"mem://a"}`), &call.Exchange{ClientKey: key}); err != nil {
						t.Fatal(err)
					}
				}
				m.Release("k1")
				until(t, "the update arrives", func() bool {
					if _, err := do(m, "tools/call", toolCall("touch", `{}`), nil); err != nil {
						t.Fatal(err)
					}
					seen.mu.Lock()
					defer seen.mu.Unlock()
					return len(seen.updates) > 0
				})
				if _, err := do(m, string(call.Unsubscribe), json.RawMessage(`{"uri":"mem://a"}`), &call.Exchange{ClientKey: "k2"}); err != nil {
					t.Fatal(err)
				}
			})
			t.Run("list changed", func(t *testing.T) {
				if _, err := do(m, "tools/call", toolCall("grow", `{}`), nil); err != nil {
					t.Fatal(err)
				}
				until(t, "the new tool is listed", func() bool { _, ok := seen.tool("srv", "grown"); return ok })
			})
			t.Run("refused params", func(t *testing.T) {
				for _, params := range []string{`{"name":"echo","_meta":{"progressToken":"sp-1"}}`, `[]`, `"x"`, `{"name":"echo","requestState":"x"}`} {
					_, err := do(m, "tools/call", json.RawMessage(params), nil)
					var nd *fault.NotDispatched
					if !errors.As(err, &nd) {
						t.Errorf("%s: %v", params, err)
					}
				}
				var nd *fault.NotDispatched
				if _, err := do(m, "vendor/method", nil, nil); !errors.As(err, &nd) {
					t.Error(err)
				}
			})
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
			_, err := do(m, "tools/call", toolCall("echo", `{}`), nil)
			var nd *fault.NotDispatched
			if !errors.As(err, &nd) || m.Status()[0].State != Stopped {
				t.Fatal(err, m.Status())
			}
		})
	}
}

func logger(w *testLog) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// older makes a server use a feature that revision 2026-07-28 deprecates and the revisions before it have. It goes by name, because the
// SDK marks these methods for those who write servers, not for those who must be able to stand behind an old one.
func older(ctx context.Context, s *mcp.ServerSession, method, params string) (json.RawMessage, error) {
	m := reflect.ValueOf(s).MethodByName(method)
	p := reflect.New(m.Type().In(1).Elem())
	if err := json.Unmarshal([]byte(params), p.Interface()); err != nil {
		return nil, err
	}
	out := m.Call([]reflect.Value{reflect.ValueOf(ctx), p})
	if err, _ := out[len(out)-1].Interface().(error); err != nil || len(out) == 1 {
		return nil, err
	}
	return json.Marshal(out[0].Interface())
}
