package mcpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/mcpwire"
)

// eras runs a test with the official Go client of every revision that we serve.
func eras(t *testing.T, test func(t *testing.T, revision string)) {
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) { test(t, revision) })
	}
}

func TestHandshake(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		r := newRig(t)
		cs := r.connect(agentToken, revision, nil)
		init := cs.InitializeResult()
		if init.ProtocolVersion != revision {
			t.Errorf("negotiated %s", init.ProtocolVersion)
		}
		if init.Instructions != "Plan external calls first, local." {
			t.Errorf("instructions %q", init.Instructions)
		}
		if init.ServerInfo == nil || init.ServerInfo.Name != "sallyport" || init.ServerInfo.Version != "1.2.3" {
			t.Errorf("server info %+v", init.ServerInfo)
		}
		c := init.Capabilities
		if c.Tools == nil || !c.Tools.ListChanged || c.Resources == nil || !c.Resources.Subscribe || c.Prompts == nil || c.Completions == nil || !strings.Contains(string(mcpwire.AppendJSON(nil, c)), `"logging":{}`) {
			t.Errorf("capabilities %+v", c)
		}
		if revision < mcpwire.Revision0728 {
			if err := cs.Ping(t.Context(), nil); err != nil {
				t.Errorf("ping: %v", err)
			}
		}
	})
}

func TestHandshakeFails(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		r := newRig(t)
		r.g.onPrompt = func() (string, error) {
			return "", fault.New(fault.AgentUndeclared, "The agent has no declaration.")
		}
		body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + revision + `","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
		headers := map[string]string{}
		if revision == mcpwire.Revision0728 {
			body = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + modernMeta + `}}`
			headers = modernHeaders("server/discover", "")
		}
		rep := r.do("POST", "/mcp", body, headers)
		if !strings.Contains(string(rep.body), "The agent has no declaration.") || rep.code() == 0 {
			t.Errorf("%d %s", rep.status, rep.body)
		}
		if len(r.f.conns.byID) != 0 {
			t.Error("a failed handshake left a transport session")
		}
		r.g.onPrompt = func() (string, error) { panic("boom: secret") }
		rep = r.do("POST", "/mcp", body, headers)
		if rep.code() != mcpwire.CodeInternal || strings.Contains(string(rep.body), "secret") || !strings.Contains(string(rep.body), "req_") {
			t.Errorf("panic: %d %s", rep.status, rep.body)
		}
	})
}

func TestListsInPages(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		r := newRig(t)
		for i := range 450 {
			r.g.tool(fmt.Sprintf("t%03d", i), `{"type":"object"}`)
			r.g.offer(call.Resource, fmt.Sprintf("test://r/%03d", i), "", fmt.Sprintf(`{"uri":"test://r/%03d","name":"r"}`, i), false)
			r.g.offer(call.Resource, fmt.Sprintf("test://t/%03d/{x}", i), "", fmt.Sprintf(`{"uriTemplate":"test://t/%03d/{x}","name":"t"}`, i), true)
			r.g.offer(call.Prompt, fmt.Sprintf("p%03d", i), "", fmt.Sprintf(`{"name":"p%03d"}`, i), false)
		}
		r.g.tool("sallyport_status", `{"type":"object"}`) // ours wins
		cs := r.connect(agentToken, revision, nil)
		ctx := t.Context()
		var tools []string
		for tool, err := range cs.Tools(ctx, nil) {
			if err != nil {
				t.Fatal(err)
			}
			if tool.Name == "sallyport_status" && !strings.Contains(tool.Description, "session") {
				t.Error("an upstream took the name of an own tool")
			}
			tools = append(tools, tool.Name)
		}
		if own := slices.DeleteFunc(slices.Clone(tools), func(n string) bool { return !strings.HasPrefix(n, "sallyport_") }); len(tools) != 450+1+len(own) || !slices.Equal(own, []string{"sallyport_status", "sallyport_submit_plan"}) {
			t.Errorf("%d tools, of these %v", len(tools), own) // none here has to be declared
		}
		n := 0
		for _, err := range cs.Resources(ctx, nil) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		for _, err := range cs.ResourceTemplates(ctx, nil) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		for _, err := range cs.Prompts(ctx, nil) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != 3*450 {
			t.Errorf("%d offers", n)
		}
		first, err := cs.ListTools(ctx, &mcp.ListToolsParams{})
		if err != nil || len(first.Tools) != pageSize || first.NextCursor == "" {
			t.Fatalf("first page: %v, %d", err, len(first.Tools))
		}
		if revision == mcpwire.Revision0728 && (first.CacheScope != "private" || first.TTLMs > 5000) {
			t.Errorf("cacheable by others: %+v", first.Cacheable)
		}
		for _, cursor := range []string{"x", "AAAA", first.NextCursor + "=", string(mustText(writeCursor("prompts", "p")))} {
			if _, err := cs.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor}); code(err) != mcpwire.CodeInvalidParams {
				t.Errorf("cursor %q: %v", cursor, err)
			}
		}
	})
}

func mustText(raw json.RawMessage) string { s, _ := call.Text(raw); return s }

func code(err error) int64 {
	var w *jsonrpc.Error
	if errors.As(err, &w) {
		return w.Code
	}
	return 0
}

// What an upstream's definition says beyond what the SDK knows gets through, and lists depend on who asks.
func TestListIsThePrincipals(t *testing.T) {
	r := newRig(t)
	r.g.tool("secret_tool", `{"type":"object"}`)
	for token, want := range map[string]bool{agentToken: true, otherToken: false} {
		rep := r.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, r.open(token, "{}"))
		if strings.Contains(string(rep.body), "secret_tool") != want || !strings.Contains(string(rep.body), `"x-unknown":{"kept":1}`) {
			t.Errorf("%s: %s", token, rep.body)
		}
	}
}

func TestCall(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		r := newRig(t)
		r.g.on(func(_ context.Context, req gateway.Request) gateway.Answer {
			if req.Tool != "echo" || string(req.Arguments) != `{"text":"hé\n"}` || req.Principal.ID != "local" || req.Method != "tools/call" {
				t.Errorf("%+v %s", req, req.Arguments)
			}
			x := req.Exchange
			if x.Progress != nil || x.Log != nil || x.Ask != nil || x.ClientKey != "" {
				t.Error("a call that asked for nothing can talk")
			}
			return permit(`{"content":[{"type":"text","text":"pong"},{"type":"image","data":"aGk=","mimeType":"image/png"}],
				"structuredContent":{"n":9007199254740993},"_meta":{"k":1}}`)
		})
		cs := r.connect(agentToken, revision, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "hé\n"}})
		if err != nil || res.IsError || len(res.Content) != 2 || res.Meta["k"] != 1.0 {
			t.Fatalf("%v %+v", err, res)
		}
		if revision == mcpwire.Revision0728 && res.Meta[mcpwire.MetaServerInfo] == nil {
			t.Error("the result does not say who answers")
		}
	})
}

func TestRefusedCallIsAResult(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		r := newRig(t)
		r.g.on(func(context.Context, gateway.Request) gateway.Answer {
			v := fault.Refuse("flow", fault.FlowContaminated, "The session holds internal data.", fault.Remedy{Kind: "reorder", Text: "Call web_search first."})
			v.Because = append(v.Because, fault.Because{Label: "internal", Operation: "mail.search_email", CallID: "call_7"})
			return gateway.Answer{Verdict: v}
		})
		cs := r.connect(agentToken, revision, nil)
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"})
		if err != nil || !res.IsError || res.StructuredContent != nil || len(res.Content) != 1 {
			t.Fatalf("%v %+v", err, res)
		}
		said := res.Content[0].(*mcp.TextContent).Text
		for _, want := range []string{"The session holds internal data.", "internal", "mail.search_email", "call_7", "Call web_search first.", "flow.contaminated", "req_1"} {
			if !strings.Contains(said, want) {
				t.Errorf("the text does not say %q: %s", want, said)
			}
		}
		v, ok := res.Meta["sallyport/verdict"].(map[string]any)
		if !ok || v["decision"] != "deny" || v["stage"] != "flow" || v["code"] != "flow.contaminated" || v["request_id"] != "req_1" || v["retriable"] != false {
			t.Errorf("verdict %v", res.Meta)
		}
	})
}

// Every code comes out of every door of this face as the contract says, and never with a cause.
func TestEveryCode(t *testing.T) {
	r := newRig(t)
	h := r.open(agentToken, "{}")
	for _, c := range fault.Codes() {
		r.g.on(func(context.Context, gateway.Request) gateway.Answer {
			return gateway.Answer{Verdict: fault.RefuseErr("x", fault.Wrap(errors.New("the cause"), c, ""))}
		})
		rep := r.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`, h)
		if string(rep.member("result", "isError")) != "true" || string(rep.member("result", "_meta", "sallyport/verdict", "code")) != `"`+string(c)+`"` {
			t.Errorf("%s: %s", c, rep.body)
		}
		for method, params := range map[string]string{
			"resources/read": `{"uri":"test://a"}`, "prompts/get": `{"name":"p"}`, "resources/subscribe": `{"uri":"test://a"}`,
			"completion/complete": `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""}}`,
		} {
			want := int(c.RPCCode())
			if method == "resources/read" && c == fault.ToolUnknown {
				want = mcpwire.CodeResourceNotFound
			}
			rep := r.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`, h)
			if rep.code() != want || string(rep.member("error", "data", "verdict", "code")) != `"`+string(c)+`"` || strings.Contains(string(rep.body), "cause\"") && strings.Contains(string(rep.body), "the cause") {
				t.Errorf("%s %s: %s", c, method, rep.body)
			}
		}
	}
}

// Arguments that are no arguments at all are the client's mistake; what a tool doesn't take is the model's, which reads results only.
func TestMalformedCalls(t *testing.T) {
	r := newRig(t)
	h := r.open(agentToken, "{}")
	for stage, protocol := range map[string]bool{"resolve": true, "declare": false} {
		r.g.on(func(context.Context, gateway.Request) gateway.Answer {
			return gateway.Answer{Verdict: fault.RefuseErr(stage, fault.New(fault.RequestMalformed, "It is missing.").At("url"))}
		})
		rep := r.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`, h)
		if told := rep.code() == mcpwire.CodeInvalidParams && rep.member("error", "data", "verdict") != nil; told != protocol || (string(rep.member("result", "isError")) == "true") == protocol {
			t.Errorf("%s: %s", stage, rep.body)
		}
	}
}

func TestUpstreamErrorPasses(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		r := newRig(t)
		r.g.on(func(context.Context, gateway.Request) gateway.Answer {
			return gateway.Answer{Verdict: fault.Permitted(), RPCError: json.RawMessage(`{"code":-31999,"message":"no","data":{"x":1}}`)}
		})
		cs := r.connect(agentToken, revision, nil)
		_, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"})
		var w *jsonrpc.Error
		if !errors.As(err, &w) || w.Code != -31999 || string(w.Data) != `{"x":1}` {
			t.Errorf("%v", err)
		}
	})
}

func TestProgressAndLog(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		r := newRig(t)
		r.g.on(func(_ context.Context, req gateway.Request) gateway.Answer {
			req.Exchange.Progress(json.RawMessage(`{"progressToken":"ours","progress":1,"total":2,"message":"half"}`))
			if req.Exchange.Log != nil {
				req.Exchange.Log(json.RawMessage(`{"level":"debug","data":"quiet"}`))
				req.Exchange.Log(json.RawMessage(`{"level":"error","data":"loud"}`))
			}
			return permit(`{"content":[]}`)
		})
		var mu sync.Mutex
		var progress, logs []string
		done := make(chan struct{}, 8)
		cs := r.connect(agentToken, revision, hearing(&mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
				mu.Lock()
				defer mu.Unlock()
				progress = append(progress, fmt.Sprint(req.Params.ProgressToken, req.Params.Progress, req.Params.Message))
				done <- struct{}{}
			},
		}, func(data string) {
			mu.Lock()
			defer mu.Unlock()
			logs = append(logs, data)
			done <- struct{}{}
		}))
		params := &mcp.CallToolParams{Name: "echo", Meta: mcp.Meta{"progressToken": "mine"}}
		if revision < mcpwire.Revision0728 {
			h := map[string]string{mcpwire.HeaderSession: cs.ID(), mcpwire.HeaderVersion: revision}
			if rep := r.do("POST", "/mcp", `{"jsonrpc":"2.0","id":"l","method":"logging/setLevel","params":{"level":"warning"}}`, h); string(rep.member("result")) != "{}" {
				t.Fatalf("%s", rep.body)
			}
		} else {
			params.Meta[mcpwire.MetaLogLevel] = "warning"
		}
		if _, err := cs.CallTool(t.Context(), params); err != nil {
			t.Fatal(err)
		}
		<-done
		<-done
		mu.Lock()
		defer mu.Unlock()
		if fmt.Sprint(progress) != "[mine1half]" && fmt.Sprint(progress) != "[mine 1 half]" || fmt.Sprint(logs) != "[loud]" {
			t.Errorf("progress %q, logs %q", progress, logs)
		}
	})
}

func TestCancel(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		r := newRig(t)
		started, ended := make(chan struct{}), make(chan error, 1)
		r.g.on(func(ctx context.Context, _ gateway.Request) gateway.Answer {
			close(started)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return gateway.Answer{Verdict: fault.Refuse("act", fault.TimeExceeded, "")}
		})
		cs := r.connect(agentToken, revision, nil)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-started; cancel() }()
		if _, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "echo"}); err == nil {
			t.Error("a cancelled call came back")
		}
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Fatal("the call's context did not end")
		}
	})
}

func TestListChanged(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		r := newRig(t)
		changed := make(chan string, 16)
		cs := r.connect(agentToken, revision, &mcp.ClientOptions{
			ToolListChangedHandler:     func(context.Context, *mcp.ToolListChangedRequest) { changed <- "tools" },
			PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) { changed <- "prompts" },
			ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { changed <- "resources" },
		})
		want := map[string]bool{"tools": true, "prompts": true, "resources": true}
		deadline := time.After(20 * time.Second)
		for again := time.NewTicker(200 * time.Millisecond); len(want) > 0; { // the client's stream may open after Connect returns
			r.g.changed()
			select {
			case c := <-changed:
				delete(want, c)
			case <-again.C:
			case <-deadline:
				t.Fatalf("not told of %v", want)
			}
		}
		res, err := cs.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range res.Tools {
			if tool.Name == "sallyport" {
				t.Error("the tool that announces changes is listed")
			}
		}
	})
}

func TestResourcesPromptsCompletion(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		r := newRig(t)
		r.g.offer(call.Prompt, "srv_greet", "greet", `{"name":"srv_greet","arguments":[{"name":"who"}]}`, false)
		r.g.on(func(_ context.Context, req gateway.Request) gateway.Answer {
			switch req.Method {
			case "resources/read":
				if req.Tool != "test://a?b=ü" || req.Arguments != nil {
					t.Errorf("%+v", req)
				}
				return permit(`{"contents":[{"uri":"test://a?b=ü","text":"body","odd":true}],"cacheScope":"public","ttlMs":99999}`)
			case "prompts/get":
				if req.Tool != "srv_greet" || string(req.Arguments) != `{"who":"bob"}` {
					t.Errorf("%+v %s", req, req.Arguments)
				}
				return permit(`{"messages":[{"role":"user","content":{"type":"text","text":"hi bob"}}]}`)
			case "completion/complete":
				if req.Tool != "srv_greet" || !strings.Contains(string(req.Arguments), `"name":"greet"`) || !strings.Contains(string(req.Arguments), `"context":{"arguments":{"x":"y"}}`) {
					t.Errorf("%+v %s", req, req.Arguments)
				}
				return permit(`{"completion":{"values":["bob"],"total":1}}`)
			}
			t.Errorf("unexpected %s", req.Method)
			return permit(`{}`)
		})
		cs := r.connect(agentToken, revision, nil)
		ctx := t.Context()
		res, err := cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "test://a?b=ü"})
		if err != nil || len(res.Contents) != 1 || res.Contents[0].Text != "body" {
			t.Fatalf("read: %v %+v", err, res)
		}
		if revision == mcpwire.Revision0728 && (res.CacheScope != "private" || res.TTLMs != 0) {
			t.Errorf("a shared cache may keep it: %+v", res.Cacheable)
		}
		p, err := cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: "srv_greet", Arguments: map[string]string{"who": "bob"}})
		if err != nil || len(p.Messages) != 1 {
			t.Fatalf("prompt: %v %+v", err, p)
		}
		c, err := cs.Complete(ctx, &mcp.CompleteParams{
			Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "srv_greet"}, Argument: mcp.CompleteParamsArgument{Name: "who", Value: "b"},
			Context: &mcp.CompleteContext{Arguments: map[string]string{"x": "y"}},
		})
		if err != nil || fmt.Sprint(c.Completion.Values) != "[bob]" {
			t.Fatalf("complete: %v %+v", err, c)
		}
	})
}

func TestSubscriptions(t *testing.T) {
	r := newRig(t)
	updated := make(chan string, 4)
	cs := r.connect(agentToken, mcpwire.Revision1125, &mcp.ClientOptions{
		ResourceUpdatedHandler: func(_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) { updated <- req.Params.URI },
	})
	if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "test://w"}); err != nil {
		t.Fatal(err)
	}
	if calls := r.g.called(); len(calls) != 1 || calls[0].Method != "resources/subscribe" || calls[0].Tool != "test://w" {
		t.Fatalf("%+v", calls)
	}
	deadline := time.After(20 * time.Second)
	for got := false; !got; {
		r.f.ResourceUpdated("srv", "test://other")
		r.f.ResourceUpdated("srv", "test://w")
		select {
		case uri := <-updated:
			if uri != "test://w" {
				t.Fatalf("told of %s", uri)
			}
			got = true
		case <-time.After(200 * time.Millisecond):
		case <-deadline:
			t.Fatal("not told")
		}
	}
	if err := cs.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: "test://w"}); err != nil {
		t.Fatal(err)
	}
	r.g.on(func(context.Context, gateway.Request) gateway.Answer {
		return gateway.Answer{Verdict: fault.Refuse("permit", fault.PermissionDenied, "")}
	})
	if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "test://w"}); err == nil || !strings.Contains(err.Error(), fault.PermissionDenied.Sentence()) {
		t.Errorf("a refused subscription: %v", err)
	}
}

// An upstream's questions reach a client that answers them, on the call's own stream, and only that client.
func TestAsk(t *testing.T) {
	r := newRig(t)
	r.g.on(func(ctx context.Context, req gateway.Request) gateway.Answer {
		x := req.Exchange
		if x.Ask == nil || x.ClientKey == "" || !strings.Contains(string(x.ClientCapabilities), "elicitation") {
			t.Errorf("%+v", x)
			return permit(`{"content":[]}`)
		}
		ans, err := x.Ask(ctx, "elicitation/create", json.RawMessage(`{"message":"Name?","mode":"form","requestedSchema":{"type":"object","properties":{"n":{"type":"string"}}}}`))
		if err != nil {
			t.Error(err)
		}
		_, err = x.Ask(ctx, "sampling/createMessage", json.RawMessage(`{}`))
		var refused *call.RPCError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), "does not answer") {
			t.Errorf("asked for what the client does not answer: %v", err)
		}
		return permit(`{"content":[{"type":"text","text":` + string(mcpwire.AppendJSON(nil, string(ans))) + `}]}`)
	})
	cs := r.connect(agentToken, mcpwire.Revision1125, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{},
		ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"n": req.Params.Message}}, nil
		},
	})
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"})
	if err != nil || !strings.Contains(res.Content[0].(*mcp.TextContent).Text, `"n":"Name?"`) {
		t.Fatalf("%v %+v", err, res)
	}
	id := cs.ID()
	if err := cs.Close(); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if fmt.Sprint(r.released) != "["+id+"]" {
		t.Errorf("released %v, not %s", r.released, id)
	}
}

// The client of 2026-07-28 answers by itself and comes back with the state that we sealed.
func TestMultiRoundTrip(t *testing.T) {
	r := newRig(t)
	r.g.on(func(_ context.Context, req gateway.Request) gateway.Answer {
		x := req.Exchange
		switch x.RequestState {
		case "":
			if x.InputResponses != nil || !strings.Contains(string(x.ClientCapabilities), "elicitation") {
				t.Errorf("%+v", x)
			}
			return permit(`{"resultType":"input_required","requestState":"upstream's","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"Name?","mode":"form","requestedSchema":{"type":"object","properties":{"n":{"type":"string"}}}}}}}`)
		case "upstream's":
			return permit(`{"content":[{"type":"text","text":` + string(mcpwire.AppendJSON(nil, string(x.InputResponses))) + `}]}`)
		}
		t.Errorf("state %q", x.RequestState)
		return permit(`{"content":[]}`)
	})
	cs := r.connect(agentToken, mcpwire.Revision0728, &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"n": "Ann"}}, nil
		},
	})
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"b": 1, "a": 2}})
	if err != nil || !strings.Contains(res.Content[0].(*mcp.TextContent).Text, `"n":"Ann"`) {
		t.Fatalf("%v %+v", err, res)
	}
	if n := len(r.g.called()); n != 2 {
		t.Errorf("%d calls", n)
	}
}

func TestOwnTools(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		r := newRig(t)
		cs := r.connect(sessionToken, revision, nil)
		ask := func(name, args string) *mcp.CallToolResult {
			res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return res
		}
		for _, name := range []string{"sallyport_status", "sallyport_manifest"} {
			res := ask(name, `{}`)
			if res.IsError || res.StructuredContent.(map[string]any)["session_id"] != "sess_9" || !strings.Contains(res.Content[0].(*mcp.TextContent).Text, `"session_id":"sess_9"`) {
				t.Errorf("%s: %+v", name, res)
			}
			if res := ask(name, `{"session_id":"sess_1"}`); !res.IsError {
				t.Errorf("%s takes an argument", name)
			}
		}
		if res := ask("sallyport_validate_plan", `{"planned_calls":["a"]}`); res.IsError || res.StructuredContent.(map[string]any)["valid"] != true {
			t.Errorf("%+v", res)
		}
		if res := ask("sallyport_validate_plan", `{}`); !res.IsError || !strings.Contains(res.Content[0].(*mcp.TextContent).Text, "planned_calls") {
			t.Errorf("%+v", res)
		}
		// What has folded into another tool is there, too.
		if res := ask("sallyport_status", `{"manifest":true}`); res.IsError || res.StructuredContent.(map[string]any)["tools"] == nil {
			t.Errorf("%+v", res)
		}
		if res := ask("sallyport_status", `{"manifest":false}`); res.IsError || res.StructuredContent.(map[string]any)["phase"] == nil {
			t.Errorf("%+v", res)
		}
		if res := ask("sallyport_submit_plan", `{"check_only":true,"steps":[{"tool":"a"}]}`); res.IsError ||
			!reflect.DeepEqual(res.StructuredContent.(map[string]any)["got"], map[string]any{"planned_calls": []any{map[string]any{"tool": "a"}}}) {
			t.Errorf("%+v", res.StructuredContent)
		}
		for name, wrong := range map[string]string{"sallyport_status": `{"manifest":"yes"}`, "sallyport_submit_plan": `{"check_only":1,"steps":[]}`} {
			if res := ask(name, wrong); !res.IsError || !strings.Contains(res.Content[0].(*mcp.TextContent).Text, "true or false") {
				t.Errorf("%s takes %s: %+v", name, wrong, res)
			}
		}
		res := ask("sallyport_submit_plan", `{"steps":[]}`)
		if !res.IsError || strings.Contains(fmt.Sprint(res.Content[0].(*mcp.TextContent).Text, res.Meta), "disk") {
			t.Errorf("a raw error got out: %+v", res.Content[0])
		}
		if calls := r.g.called(); len(calls) != 0 {
			t.Errorf("own tools went through the corridor: %+v", calls)
		}
	})
}

func TestPanicCostsOneAnswer(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		r := newRig(t)
		boom := true
		r.g.on(func(_ context.Context, req gateway.Request) gateway.Answer {
			if boom {
				boom = false
				panic("secret inside")
			}
			return permit(`{"content":[]}`)
		})
		cs := r.connect(agentToken, revision, nil)
		_, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"})
		if code(err) != mcpwire.CodeInternal || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "req_") {
			t.Errorf("%v", err)
		}
		if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"}); err != nil {
			t.Error(err)
		}
	})
}

// An upstream that asks back in the way of 2026-07-28 finds an older client too: we ask it, and call again with its answers.
func TestAskingBackToAnOlderClient(t *testing.T) {
	r := newRig(t)
	r.g.on(func(_ context.Context, req gateway.Request) gateway.Answer {
		switch x := req.Exchange; x.RequestState {
		case "":
			return permit(`{"resultType":"input_required","requestState":"s","inputRequests":{"q\"1":{"method":"elicitation/create","params":{"message":"Name?","mode":"form","requestedSchema":{"type":"object","properties":{"n":{"type":"string"}}}}},"q2":{"method":"elicitation/create","params":{"message":"Age?","mode":"form","requestedSchema":{"type":"object","properties":{"n":{"type":"string"}}}}}}}`)
		case "s":
			return permit(`{"content":[{"type":"text","text":` + string(mcpwire.AppendJSON(nil, string(x.InputResponses))) + `}]}`)
		}
		return permit(`{"resultType":"input_required"}`)
	})
	answer := func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"n": req.Params.Message}}, nil
	}
	res, err := r.connect(agentToken, mcpwire.Revision1125, &mcp.ClientOptions{ElicitationHandler: answer}).CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"})
	if err != nil || len(res.Content) != 1 {
		t.Fatalf("%v %+v", err, res)
	}
	var said map[string]struct{ Content struct{ N string } }
	if err := json.Unmarshal([]byte(res.Content[0].(*mcp.TextContent).Text), &said); err != nil || said["q\"1"].Content.N != "Name?" || said["q2"].Content.N != "Age?" {
		t.Errorf("%v %+v", err, said)
	}
	if n := len(r.g.called()); n != 2 {
		t.Errorf("%d calls", n)
	}
	// A client that can't answer gets a refusal, and a server that never stops asking is stopped.
	if res, err = r.connect(agentToken, mcpwire.Revision1125, nil).CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"}); err != nil || !res.IsError {
		t.Errorf("%v %+v", err, res)
	}
	r.g.on(func(context.Context, gateway.Request) gateway.Answer {
		return permit(`{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"?","mode":"form"}}}}`)
	})
	before := len(r.g.called())
	res, err = r.connect(agentToken, mcpwire.Revision1125, &mcp.ClientOptions{ElicitationHandler: answer}).CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"})
	if n := len(r.g.called()) - before; err != nil || !res.IsError || n != maxRounds+1 {
		t.Errorf("%v %+v after %d calls", err, res, n)
	}
}

// hearing makes a client hear log messages. It sets the handler by name, because the SDK deprecates it with the feature, which clients of
// older revisions have.
func hearing(o *mcp.ClientOptions, f func(data string)) *mcp.ClientOptions {
	handler := reflect.ValueOf(o).Elem().FieldByName("LoggingMessageHandler")
	handler.Set(reflect.MakeFunc(handler.Type(), func(in []reflect.Value) []reflect.Value {
		f(fmt.Sprint(in[1].Elem().FieldByName("Params").Elem().FieldByName("Data").Interface()))
		return nil
	}))
	return o
}

// TestNoListWithoutItsLabel: what a session could not be marked for is not listed to it.
func TestNoListWithoutItsLabel(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		r := newRig(t)
		r.g.tool("echo", `{"type":"object"}`)
		cs := r.connect(agentToken, revision, nil)
		r.g.mu.Lock()
		r.g.unlisted = fault.New(fault.AuditUnavailable, "")
		r.g.mu.Unlock()
		if list, err := cs.ListTools(t.Context(), nil); err == nil || code(err) != int64(fault.AuditUnavailable.RPCCode()) {
			t.Errorf("%+v %v", list, err)
		}
	})
}
