package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/client"
)

// official is the three official servers behind a gateway: one trusted, two not, as an operator might have it.
func official(t *testing.T) (config, docs string) {
	t.Helper()
	program := node(t)
	docs = filepath.Join(t.TempDir(), "docs")
	write(t, filepath.Join(docs, "hello.txt"), "hello from a file\n")
	return fmt.Sprintf(`
upstreams:
  files:      {command: [%q, %q, %q]}
  memory:     {command: [%q, %q], env: {MEMORY_FILE_PATH: %q}}
  everything: {command: [%q, %q, stdio]}
operations:
  files.*:      {sensitivity: internal_source, effect: read, args: {path: path}}
  memory.*:     {sensitivity: none, level: 1}
  everything.*: {sensitivity: none, output: trusted, effect: read}
flow: {free_level_1: true}
`,
		program, npm(t, "@modelcontextprotocol/server-filesystem/dist/index.js"), docs,
		program, npm(t, "@modelcontextprotocol/server-memory/dist/index.js"), filepath.Join(t.TempDir(), "memory.jsonl"),
		program, npm(t, "@modelcontextprotocol/server-everything/dist/index.js")), docs
}

// The official TypeScript client at the official servers: over HTTP, and over stdio through `sallyport connect` at the real binary
// (mcp-126: nothing benign is refused).
func TestTypeScriptClient(t *testing.T) {
	t.Parallel()
	t.Run("http", func(t *testing.T) {
		config, docs := official(t)
		w := start(t, config)
		token := w.token("tester")
		typeScript(t, w, docs, nil, "http", w.agent+"/mcp", token)
	})
	t.Run("stdio", func(t *testing.T) {
		config, docs := official(t)
		w := launch(t, newPlace(t, config))
		env := []string{"SALLYPORT_TOKEN=" + w.token("tester"), "SALLYPORT_URL=" + w.agent}
		typeScript(t, w, docs, env, "stdio", build(t, "sallyport.example/cmd/sallyport"), "connect")
	})
}

// Clients of older revisions, which take no other answer to initialize than their own revision, and check what they get against its schema.
func TestOlderTypeScriptClients(t *testing.T) {
	t.Parallel()
	for _, sdk := range []string{"sdk-2024-11-05", "sdk-2025-03-26"} {
		t.Run(sdk+" stdio", func(t *testing.T) {
			npm(t, sdk+"/package.json")
			config, docs := official(t)
			w := launch(t, newPlace(t, config))
			env := []string{"SDK=" + sdk, "SALLYPORT_TOKEN=" + w.token("tester"), "SALLYPORT_URL=" + w.agent}
			typeScript(t, w, docs, env, "stdio", build(t, "sallyport.example/cmd/sallyport"), "connect")
		})
	}
	t.Run("sdk-2025-03-26 http", func(t *testing.T) {
		npm(t, "sdk-2025-03-26/package.json")
		config, docs := official(t)
		w := start(t, config)
		typeScript(t, w, docs, []string{"SDK=sdk-2025-03-26"}, "http", w.agent+"/mcp", w.token("tester"))
	})
}

func typeScript(t *testing.T, w *world, docs string, env []string, args ...string) {
	t.Helper()
	npm(t, "@modelcontextprotocol/sdk/package.json")
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, node(t), append([]string{filepath.Join(root(), "test", "npm", "client.mjs")}, args...)...)
	cmd.Env = append(append(os.Environ(), "DOCS="+docs), env...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("%v\n%s", err, exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	var did struct {
		Server, Instructions, Phase string
		Tools                       []string
		Cancelled                   int `json:"cancelled_after_ms"`
	}
	if err := json.Unmarshal(out, &did); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	unread := slices.Contains(env, "SDK=sdk-2024-11-05") // that client has no function for the instructions
	if did.Server != "sallyport" || did.Phase != "execution" || !unread && !strings.Contains(did.Instructions, "Tool ordering constraint") {
		t.Errorf("%+v", did)
	}
	t.Logf("%d tools; a cancelled call ended after %d ms", len(did.Tools), did.Cancelled)
	checkNothingRefused(t, w)
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	if report := w.place.verify(t); len(report.Unknown) > 0 {
		t.Errorf("calls without an outcome: %v", report.Unknown)
	}
}

// checkNothingRefused looks for refusals of benign calls in the record. Only tools that don't exist may have been refused.
func checkNothingRefused(t *testing.T, w *world) {
	t.Helper()
	for _, e := range w.entries() {
		if e.Kind == "decision" && e.Code != "tool.unknown" && e.Code != "request.malformed" && e.Action != "plan.submit" && e.Action != "approval.ask" { // silence has answered those
			t.Errorf("refused: %s %s %s: %s", e.Action, e.Operation, e.Code, e.Reason)
		}
	}
}

// The Go SDK's client of each revision at the official servers.
func TestGoClientAtOfficialServers(t *testing.T) {
	config, docs := official(t)
	w := start(t, config)
	token := w.token("tester")
	for _, revision := range []string{revision0326, revision0618, revision1125, revision0728} {
		t.Run(revision, func(t *testing.T) {
			var progress atomic.Int64
			seen := make(chan struct{}, 1000)
			cs := w.connect(token, revision, &mcp.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					if r.Params.Total == 5 {
						progress.Add(1)
					}
					select {
					case seen <- struct{}{}:
					default:
					}
				},
			})
			ctx := t.Context()
			tools := map[string]*mcp.Tool{}
			for tool, err := range cs.Tools(ctx, nil) {
				if err != nil {
					t.Fatal(err)
				}
				tools[tool.Name] = tool
			}
			if tools["everything_get-structured-content"].OutputSchema == nil || tools["memory_read_graph"].OutputSchema != nil {
				t.Error("outputSchema is kept for trusted tools only")
			}
			if r := must(t, cs, "everything_echo", map[string]any{"message": "hi"}); r.text() != "Echo: hi" {
				t.Errorf("echo: %s", r.text())
			}
			r := must(t, cs, "everything_get-tiny-image", nil)
			if image, ok := r.Content[1].(*mcp.ImageContent); !ok || string(image.Data[1:4]) != "PNG" || image.MIMEType != "image/png" {
				t.Errorf("image: %+v", r.Content)
			}
			r = must(t, cs, "everything_get-structured-content", map[string]any{"location": "New York"})
			if m, ok := r.StructuredContent.(map[string]any); !ok || m["temperature"] == nil {
				t.Errorf("structured: %+v", r.StructuredContent)
			}
			if r := must(t, cs, "everything_get-sum", map[string]any{"a": "two"}); !r.IsError || r.verdict != nil {
				t.Errorf("the server's own error: %s", r.text())
			}
			if r := must(t, cs, "everything_none", nil); r.code() != "tool.unknown" {
				t.Errorf("unknown tool: %s", r.text())
			}

			long := &mcp.CallToolParams{Name: "everything_trigger-long-running-operation", Arguments: map[string]any{"duration": 0.5, "steps": 5}}
			long.SetProgressToken("p-" + revision)
			if res, err := cs.CallTool(ctx, long); err != nil || res.IsError {
				t.Fatalf("long call: %v %+v", err, res)
			}
			eventually(t, 5*time.Second, "five steps of progress", func() bool { return progress.Load() == 5 })
			for len(seen) > 0 {
				<-seen
			}
			cancelled, cancel := context.WithCancel(ctx)
			go func() {
				<-seen
				cancel()
			}()
			endless := &mcp.CallToolParams{Name: long.Name, Arguments: map[string]any{"duration": 15, "steps": 150}}
			endless.SetProgressToken("c-" + revision)
			within(t, 5*time.Second, "a cancelled call", func() {
				if _, err := cs.CallTool(cancelled, endless); !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled call: %v", err)
				}
			})
			// The record has the call as what it is: nobody knows what became of it.
			eventually(t, 5*time.Second, "the cancelled call's outcome", func() bool {
				es := w.entries()
				last := es[len(es)-1]
				return last.Kind == "outcome" && strings.HasSuffix(last.Operation, "trigger-long-running-operation") && last.Decision == "unknown"
			})

			n := 0
			var first *mcp.Resource
			for resource, err := range cs.Resources(ctx, nil) {
				if err != nil {
					t.Fatal(err)
				}
				if first == nil {
					first = resource
				}
				n++
			}
			if n == 0 {
				t.Fatal("no resources")
			}
			if res, err := cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: first.URI}); err != nil || len(res.Contents) == 0 || res.Contents[0].URI != first.URI {
				t.Errorf("reading %s: %v %+v", first.URI, err, res)
			}
			if res, err := cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "demo://resource/dynamic/blob/3"}); err != nil || len(res.Contents) == 0 || len(res.Contents[0].Blob) == 0 {
				t.Errorf("reading a blob of a template: %v %+v", err, res)
			}
			var rpc *jsonrpc.Error
			if _, err := cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "demo://nowhere"}); !errors.As(err, &rpc) {
				t.Errorf("a resource that is not there: %v", err)
			}
			p, err := cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: "everything_args-prompt", Arguments: map[string]string{"city": "Bern"}})
			if err != nil || len(p.Messages) == 0 {
				t.Errorf("prompt: %v %+v", err, p)
			}
			done, err := cs.Complete(ctx, &mcp.CompleteParams{
				Ref:      &mcp.CompleteReference{Type: "ref/prompt", Name: "everything_completable-prompt"},
				Argument: mcp.CompleteParamsArgument{Name: "department", Value: "E"},
			})
			if err != nil || !slices.Equal(done.Completion.Values, []string{"Engineering"}) {
				t.Errorf("completion: %v %+v", err, done)
			}

			if r := must(t, cs, "files_read_text_file", map[string]any{"path": filepath.Join(docs, "hello.txt")}); !strings.Contains(r.text(), "hello from a file") ||
				!strings.Contains(r.text(), "UNTRUSTED_EXTERNAL_CONTENT") || r.StructuredContent != nil {
				t.Errorf("fenced: %s", r.text())
			}
			if r := must(t, cs, "memory_create_entities", map[string]any{"entities": []any{map[string]any{
				"name": revision, "entityType": "revision", "observations": []string{"seen"}}}}); r.IsError {
				t.Errorf("memory: %s", r.text())
			}
		})
	}
	checkNothingRefused(t, w)
}

// A server that answers in many small pages, and a list of ours that needs several: nothing is lost and nothing comes twice.
func TestPages(t *testing.T) {
	s := mcp.NewServer(&mcp.Implementation{Name: "many", Version: "1"}, &mcp.ServerOptions{PageSize: 7})
	for i := range 450 {
		tool(s, fmt.Sprintf("t%03d", i), "One of many.", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
			return text(fmt.Sprint(i)), nil
		})
		s.AddResource(&mcp.Resource{URI: fmt.Sprintf("many://r/%03d", i), Name: "r"}, func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: fmt.Sprint(i)}}}, nil
		})
	}
	w := start(t, fmt.Sprintf("upstreams: {many: {url: %q}}\noperations: {many.*: {sensitivity: none, effect: read}}\n", sdkServer(t, s)))
	token := w.token("tester")
	for _, revision := range []string{revision1125, revision0728} {
		cs := w.connect(token, revision, nil)
		names := map[string]int{}
		for tool, err := range cs.Tools(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			names[tool.Name]++
		}
		resources := 0
		for _, err := range cs.Resources(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			resources++
		}
		for i := range 450 {
			if n := names[fmt.Sprintf("many_t%03d", i)]; n != 1 {
				t.Fatalf("%s: tool %d is there %d times", revision, i, n)
			}
		}
		if resources != 450 {
			t.Errorf("%s: %d resources", revision, resources)
		}
		if r := must(t, cs, "many_t449", nil); !strings.Contains(r.text(), "449") {
			t.Errorf("%s", r.text())
		}
	}
}

// A server that gains a tool: the agent's client hears of the change; the newcomer waits for an operator, whoever added it (mcp-018).
func TestListChanged(t *testing.T) {
	s := newServer("growing")
	say := func(words string) func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
		return func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) { return text(words), nil }
	}
	tool(s, "old", "Is there from the start.", say("old"))
	w := start(t, fmt.Sprintf("upstreams: {growing: {url: %q}}\noperations: {growing.*: {sensitivity: none, effect: read}}\n", sdkServer(t, s)))
	token := w.token("tester")
	for i, revision := range []string{revision1125, revision0728} {
		t.Run(revision, func(t *testing.T) {
			changed := make(chan struct{}, 100)
			cs := w.connect(token, revision, &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} }})
			name := fmt.Sprintf("new%d", i)
			tool(s, name, "Comes later.", say("new"))
			var waiting client.Tool
			eventually(t, 10*time.Second, "the newcomer is quarantined", func() bool {
				tools, err := w.root.Tools(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				at := slices.IndexFunc(tools, func(c client.Tool) bool { return c.Operation == "growing."+name })
				if at < 0 {
					return false
				}
				waiting = tools[at]
				return true
			})
			if waiting.Standing != "quarantined" || waiting.PendingHash == "" {
				t.Fatalf("%+v", waiting)
			}
			if r := must(t, cs, "growing_"+name, nil); r.code() != "tool.quarantined" {
				t.Errorf("a tool that nobody accepted: %s", r.text())
			}
			if _, err := w.root.AcceptTool(t.Context(), waiting.Operation, "0000"); err == nil {
				t.Error("accepted with another hash")
			}
			for len(changed) > 0 {
				<-changed
			}
			if _, err := w.root.AcceptTool(t.Context(), waiting.Operation, waiting.PendingHash); err != nil {
				t.Fatal(err)
			}
			select {
			case <-changed:
			case <-time.After(10 * time.Second):
				t.Error("the client was not told of the new tool")
			}
			if r := must(t, cs, "growing_"+name, nil); r.IsError {
				t.Errorf("accepted, and: %s", r.text())
			}
		})
	}
}
