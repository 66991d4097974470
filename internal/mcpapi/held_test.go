package mcpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/gateway/gatewaytest"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/mcpwire"
	"sallyport.example/internal/policy"
	"sallyport.example/provenance"
)

// house is a Face on the real gateway and the real store, with one played server "srv": pay and the resource and prompt take a person,
// note is of risk MEDIUM, look of none.
type house struct {
	*rig
	gate  *gateway.Gateway
	token string
	posts atomic.Int64 // requests in progress

	mu    sync.Mutex
	ran   []string // what the server got: method and params
	reply func(ctx context.Context, x *call.Exchange) (json.RawMessage, error)
}

func (*house) List(context.Context, string) error { return nil }

func (h *house) Do(ctx context.Context, _, method string, params json.RawMessage, x *call.Exchange) (json.RawMessage, error) {
	h.mu.Lock()
	h.ran = append(h.ran, method+" "+string(params))
	reply := h.reply
	h.mu.Unlock()
	switch {
	case reply != nil:
		return reply(ctx, x)
	case method == "resources/read":
		return json.RawMessage(`{"contents":[{"uri":"test://doc","text":"paid"}]}`), nil
	case method == "prompts/get":
		return json.RawMessage(`{"messages":[{"role":"user","content":{"type":"text","text":"paid"}}]}`), nil
	}
	return json.RawMessage(`{"content":[{"type":"text","text":"paid"}]}`), nil
}

func (h *house) runs() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.ran...)
}

var people = map[string]approval.Voter{
	"alice": {Person: "alice", Roles: []identity.Role{identity.Approver}},
	"bob":   {Person: "bob", Roles: []identity.Role{identity.Approver}},
}

const houseAgent = `agentId: worker
agentName: Test
version: 1.0.0
purpose: tests
capabilities: [testing]
dataSources: {tables: [], apis: [], models: []}
permissions: {read: ["srv.*"], write: ["srv.*"]}
outputSchema: {type: object, properties: {answer: {enum: [a]}}, required: [answer], additionalProperties: false}
outputSchemaVersion: 1.0.0
maxExecutionTime: 30000
maxTokens: 1000
killSwitchEnabled: true
humanApprovalRequired: true
mode: operator
startPhase: execution
sessions: self
`

func newHouse(t testing.TB, o Options) *house {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	g := gatewaytest.Options(t, houseAgent)
	h := &house{}
	g.Store, g.Upstreams = gatewaytest.Store(t), h
	g.Classify = func(_, tool string) catalogue.Classification {
		c := catalogue.Classification{ExposeAs: tool, Listed: true, Named: true, ExternalIO: true, Output: provenance.TrustedOutput, Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Write}}
		switch tool {
		case "pay":
			c.RiskFloor = policy.High
		case "read_resource", "get_prompt":
			c.RiskFloor, c.ExposeAs = policy.High, ""
		case "note":
			c.RiskFloor = policy.Medium
		}
		return c
	}
	g.Limits.ApprovalExpires, g.Limits.MediumDelay = time.Hour, 300*time.Millisecond
	g.Voter = func(p string) (approval.Voter, bool) { v, ok := people[p]; return v, ok }
	h.gate = gatewaytest.New(t, g)
	var defs []call.Definition
	define := func(kind call.Kind, name, format string) {
		raw := fmt.Appendf(nil, format, name)
		defs = append(defs, call.Definition{Server: "srv", Name: name, Kind: kind, JSON: raw, Hash: call.HashBytes(raw)})
	}
	for _, tool := range []string{"pay", "note", "look"} {
		define(call.Tool, tool, `{"description":"A tool.","inputSchema":{"type":"object"},"name":%q}`)
	}
	define(call.Resource, "test://doc", `{"name":"doc","uri":%q}`)
	define(call.Prompt, "ask", `{"name":%q}`)
	must(h.gate.Catalogue().UpdateDefinitions(t.Context(), "srv", defs))
	var err error
	h.token, _, err = h.gate.Standing().IssueToken(t.Context(), identity.Principal{Kind: identity.Agent, ID: "worker"}, "test")
	must(err)
	o.Authenticate, o.Subscribe = h.gate.Standing().Authenticate, h.gate.Catalogue().Subscribe
	h.rig = &rig{t: t, f: New(h.gate, o)}
	serve := h.f.Handler()
	h.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			h.posts.Add(1)
			defer h.posts.Add(-1)
		}
		serve.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		h.gate.Desk().Drain()
		h.f.Close()
		h.srv.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return h
}

// until waits for something that comes from elsewhere.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("in vain: %s", what)
		case <-tick.C:
		}
	}
}

// asked waits for the one question that nobody has answered.
func (h *house) asked() desk.Question {
	h.t.Helper()
	var found []desk.Question
	until(h.t, "a question", func() bool {
		var err error
		if found, err = h.gate.Desk().Questions(h.t.Context(), approval.Pending, "", "", 10); err != nil {
			h.t.Fatal(err)
		}
		return len(found) > 0
	})
	if len(found) != 1 {
		h.t.Fatalf("%d questions", len(found))
	}
	return found[0]
}

func (h *house) answer(q desk.Question, decision approval.Decision, reason string) {
	h.t.Helper()
	if _, err := h.gate.Desk().Respond(h.t.Context(), people["alice"], desk.Response{Approval: q.ID, Digest: q.Digest, Decision: decision, Reason: reason}); err != nil {
		h.t.Fatal(err)
	}
}

// answering is a client of either era that waits wherever it is asked to.
func answering(o *mcp.ClientOptions) *mcp.ClientOptions {
	if o == nil {
		o = &mcp.ClientOptions{}
	}
	o.ElicitationHandler = func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: "accept"}, nil
	}
	return o
}

type called struct {
	res *mcp.CallToolResult
	err error
}

func (c called) text() string {
	if c.err != nil {
		return c.err.Error()
	}
	return c.res.Content[0].(*mcp.TextContent).Text
}

func (c called) verdict() map[string]any {
	if c.err != nil {
		return nil
	}
	v, _ := c.res.Meta["sallyport/verdict"].(map[string]any)
	return v
}

// pay makes the call that a person decides on, on the side.
func pay(ctx context.Context, cs *mcp.ClientSession, arguments string) <-chan called {
	done := make(chan called, 1)
	go func() {
		res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "pay", Arguments: json.RawMessage(arguments)})
		done <- called{res, err}
	}()
	return done
}

func get(t testing.TB, done <-chan called) called {
	t.Helper()
	select {
	case c := <-done:
		return c
	case <-time.After(20 * time.Second):
		t.Fatal("no answer")
		return called{}
	}
}

const held = 30 * time.Second

func TestHeldAndApproved(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		h := newHouse(t, Options{Hold: held})
		cs := h.connect(h.token, revision, answering(nil))
		done := pay(t.Context(), cs, `{"to":"bob"}`)
		h.answer(h.asked(), approval.Approve, "")
		if c := get(t, done); c.err != nil || c.res.IsError || c.text() != "paid" {
			t.Fatalf("%v %+v", c.err, c.res)
		}
		if ran := h.runs(); len(ran) != 1 || ran[0] != `tools/call {"name":"pay","arguments":{"to":"bob"}}` {
			t.Errorf("ran %q", ran)
		}
	})
}

func TestHeldReadsAndPrompts(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		h := newHouse(t, Options{Hold: held})
		cs := h.connect(h.token, revision, answering(nil))
		done := make(chan string, 1)
		go func() {
			res, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "test://doc"})
			if err != nil {
				done <- err.Error()
				return
			}
			done <- res.Contents[0].Text
		}()
		h.answer(h.asked(), approval.Approve, "")
		if got := <-done; got != "paid" {
			t.Error(got)
		}
		go func() {
			res, err := cs.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "srv_ask"})
			if err != nil {
				done <- err.Error()
				return
			}
			done <- res.Messages[0].Content.(*mcp.TextContent).Text
		}()
		h.answer(h.asked(), approval.Approve, "")
		if got := <-done; got != "paid" {
			t.Error(got)
		}
		if ran := h.runs(); len(ran) != 2 {
			t.Errorf("ran %q", ran)
		}
	})
}

// Who stops waiting has lost nothing: the question stays, nothing runs, and the same call picks the answer up, once.
func TestDroppedWhileHeld(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		h := newHouse(t, Options{Hold: held})
		ctx, cancel := context.WithCancel(t.Context())
		done := pay(ctx, h.connect(h.token, revision, answering(nil)), `{"to":"bob"}`)
		q := h.asked()
		cancel()
		if c := get(t, done); c.err == nil {
			t.Fatalf("a call that was cancelled came back: %s", c.text())
		}
		until(t, "the call's end", func() bool { return h.posts.Load() == 0 })
		if again := h.asked(); again.ID != q.ID {
			t.Fatal("the question did not stay")
		}
		h.answer(q, approval.Approve, "")
		if ran := h.runs(); len(ran) != 0 {
			t.Fatalf("ran for nobody: %q", ran)
		}
		cs := h.connect(h.token, revision, answering(nil))
		if c := get(t, pay(t.Context(), cs, `{"to":"bob"}`)); c.err != nil || c.text() != "paid" {
			t.Fatalf("%v %+v", c.err, c.res)
		}
		if ran := h.runs(); len(ran) != 1 {
			t.Errorf("ran %q", ran)
		}
	})
}

// A connection that breaks is as good as a cancellation.
func TestConnectionLostWhileHeld(t *testing.T) {
	h := newHouse(t, Options{Hold: held})
	headers := h.open(h.token, "{}")
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", h.srv.URL+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","_meta":{"progressToken":1}}}`))
	if err != nil {
		t.Fatal(err)
	}
	headers["Content-Type"], headers["Accept"] = "application/json", "application/json, text/event-stream"
	for k, v := range headers {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req) // comes back with the first progress
	if err != nil {
		t.Fatal(err)
	}
	h.asked()
	cancel()
	_ = resp.Body.Close()
	until(t, "the call's end", func() bool { return h.posts.Load() == 0 })
	h.answer(h.asked(), approval.Approve, "")
	if ran := h.runs(); len(ran) != 0 {
		t.Errorf("ran %q", ran)
	}
}

func TestRejectedWhileHeld(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		h := newHouse(t, Options{Hold: held})
		cs := h.connect(h.token, revision, answering(nil))
		done := pay(t.Context(), cs, `{"to":"bob"}`)
		h.answer(h.asked(), approval.Reject, "Bob left in May.")
		c := get(t, done)
		if c.err != nil || !c.res.IsError || !strings.Contains(c.text(), "Refused: A person rejected this: Bob left in May.") || c.verdict()["code"] != "approval.rejected" {
			t.Errorf("%v %+v", c.err, c.text())
		}
		if c := get(t, pay(t.Context(), cs, `{"to":"bob"}`)); !strings.Contains(c.text(), "Bob left in May.") { // the no stays
			t.Error(c.text())
		}
		if ran := h.runs(); len(ran) != 0 {
			t.Errorf("ran %q", ran)
		}
	})
}

func TestModifiedWhileHeld(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		h := newHouse(t, Options{Hold: held})
		cs := h.connect(h.token, revision, answering(nil))
		done := pay(t.Context(), cs, `{"to":"bob"}`)
		next, err := h.gate.Desk().Modify(t.Context(), people["bob"], desk.Modification{Approval: h.asked().ID, Arguments: json.RawMessage(`{"to":"carol"}`), Reason: "Carol does it now."})
		if err != nil {
			t.Fatal(err)
		}
		c := get(t, done)
		for _, want := range []string{"Refused: A person wants other arguments for this call: Carol does it now.", `{"to":"carol"}`, next.ID, "Repeating the same call will not help."} {
			if !strings.Contains(c.text(), want) {
				t.Errorf("no word of %q: %s", want, c.text())
			}
		}
		if strings.Contains(c.text(), "the very same call") {
			t.Errorf("told to repeat it: %s", c.text())
		}
		h.answer(next, approval.Approve, "")
		if c := get(t, pay(t.Context(), cs, `{"to":"carol"}`)); c.err != nil || c.text() != "paid" {
			t.Fatalf("%v %s", c.err, c.text())
		}
		if ran := h.runs(); len(ran) != 1 || !strings.Contains(ran[0], "carol") {
			t.Errorf("ran %q", ran)
		}
	})
}

// What silence permits runs after its delay for clients of every revision, held by the corridor, whether or not anything else is held.
func TestMediumRunsWhenNobodyObjects(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		h := newHouse(t, Options{})
		var mu sync.Mutex
		var heard []*mcp.ProgressNotificationParams
		cs := h.connect(h.token, revision, &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, req.Params)
		}})
		h.reply = func(_ context.Context, x *call.Exchange) (json.RawMessage, error) {
			x.Progress(json.RawMessage(`{"progress":0,"total":10,"message":"begun"}`))
			x.Progress(json.RawMessage(`{"progress":10,"total":10,"message":"done"}`))
			return json.RawMessage(`{"content":[{"type":"text","text":"noted"}]}`), nil
		}
		begun := time.Now()
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "note", Meta: mcp.Meta{"progressToken": "mine"}})
		if err != nil || res.IsError {
			t.Fatalf("%v %+v", err, res)
		}
		if took := time.Since(begun); took < 300*time.Millisecond {
			t.Errorf("ran after %s", took)
		}
		until(t, "progress", func() bool { mu.Lock(); defer mu.Unlock(); return len(heard) >= 3 })
		mu.Lock()
		defer mu.Unlock()
		if m := heard[0].Message; !strings.HasPrefix(m, "Runs at ") || !strings.Contains(m, " UTC unless a person stops it: appr_") || !strings.HasSuffix(m, "(MEDIUM).") {
			t.Errorf("said %q", m)
		}
		var said []string
		for i, p := range heard {
			if i > 0 && p.Progress <= heard[i-1].Progress || p.ProgressToken != "mine" {
				t.Errorf("%d: %+v", i, p)
			}
			said = append(said, p.Message)
		}
		if last := heard[len(heard)-1]; said[len(said)-2] != "begun" || last.Message != "done" || last.Progress != last.Total {
			t.Errorf("said %q", said)
		}
		if n := len(h.runs()); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestHoldOver(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		h := newHouse(t, Options{Hold: 20 * time.Millisecond})
		cs := h.connect(h.token, revision, answering(nil))
		c := get(t, pay(t.Context(), cs, `{"to":"bob"}`))
		q := h.asked()
		if c.err != nil || !c.res.IsError || c.verdict()["decision"] != "ask" || c.verdict()["approval_id"] != q.ID ||
			!strings.HasPrefix(c.text(), "Not done yet: pay is of risk HIGH, so a person must decide.") || !strings.Contains(c.text(), "Make the same call again later") {
			t.Fatalf("%v %s", c.err, c.text())
		}
		h.answer(q, approval.Approve, "")
		if c := get(t, pay(t.Context(), cs, `{"to":"bob"}`)); c.text() != "paid" {
			t.Error(c.text())
		}
		if n := len(h.runs()); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

// A client of 2026-07-28 that can't be asked has its answer at once, and so has every client where nothing is held.
func TestNotHeld(t *testing.T) {
	for name, c := range map[string]struct {
		revision string
		hold     time.Duration
		options  *mcp.ClientOptions
	}{
		"no elicitation":  {mcpwire.Revision0728, time.Hour, nil},
		"nothing is held": {mcpwire.Revision1125, 0, nil},
		"asked, not held": {mcpwire.Revision0728, 0, answering(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, Options{Hold: c.hold})
			if got := get(t, pay(t.Context(), h.connect(h.token, c.revision, c.options), `{}`)); got.err != nil || got.verdict()["decision"] != "ask" {
				t.Errorf("%v %s", got.err, got.text())
			}
		})
	}
}

// Shutting down lets held calls go, with the ask.
func TestDrainWhileHeld(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		h := newHouse(t, Options{Hold: time.Hour})
		done := pay(t.Context(), h.connect(h.token, revision, answering(nil)), `{}`)
		h.asked()
		h.gate.Desk().Drain()
		if c := get(t, done); c.err != nil || c.verdict()["decision"] != "ask" {
			t.Errorf("%v %s", c.err, c.text())
		}
	})
}

// Thirty clients make the same call while a person approves it once: one runs. The others are told so, or asked about anew, together.
func TestOneApprovalIsOneRun(t *testing.T) {
	h := newHouse(t, Options{Hold: held})
	const clients = 30
	var all []<-chan called
	var sessions []*mcp.ClientSession
	for i := range clients {
		sessions = append(sessions, h.connect(h.token, []string{mcpwire.Revision1125, mcpwire.Revision0728}[i%2], answering(nil)))
	}
	for _, cs := range sessions {
		all = append(all, pay(t.Context(), cs, `{"to":"bob"}`))
	}
	one := h.asked()
	until(t, "all of them to wait", func() bool { return h.posts.Load() >= clients })
	h.answer(one, approval.Approve, "")
	until(t, "the run", func() bool { return len(h.runs()) > 0 })
	paid, late := 0, 0
	for n := 0; n < clients; { // those who come too late to lose the race ask anew, together, and wait again
		for i, done := range all {
			select {
			case c := <-done:
				n++
				all[i] = nil
				switch v := c.verdict(); {
				case c.err != nil:
					t.Error(c.err)
				case c.text() == "paid":
					paid++
				case v["code"] == "approval.rejected" && strings.Contains(c.text(), "Once is enough."):
					late++
				case v["code"] == "approval.required": // more than are held at a time
					late++
				case v["code"] != "conflict":
					t.Error(c.text())
				}
			default:
			}
		}
		found, err := h.gate.Desk().Questions(t.Context(), approval.Pending, "", "", 10)
		if err != nil || len(found) > 1 {
			t.Fatalf("%d questions, %v", len(found), err)
		}
		for _, q := range found {
			h.answer(q, approval.Reject, "Once is enough.")
		}
	}
	t.Logf("%d asked anew", late)
	if ran := h.runs(); paid != 1 || len(ran) != 1 {
		t.Errorf("%d paid, %d ran", paid, len(ran))
	}
}

// What the agent's client answers is nobody's approval, whatever it says.
func TestClientsAnswerIsNoApproval(t *testing.T) {
	for _, action := range []string{"accept", "decline", "cancel"} {
		h := newHouse(t, Options{Hold: 10 * time.Millisecond, Console: func(id string) string { return "https://people.example/approvals/" + id }})
		rounds := 0
		cs := h.connect(h.token, mcpwire.Revision0728, &mcp.ClientOptions{
			Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}},
			ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				rounds++
				q := h.asked()
				if req.Params.Mode != "url" || req.Params.URL != "https://people.example/approvals/"+q.ID || !strings.Contains(req.Params.Message, "pay is of risk HIGH, so a person must decide. Nothing has run yet. The question is "+q.ID) {
					t.Errorf("asked %+v", req.Params)
				}
				return &mcp.ElicitResult{Action: action, Content: map[string]any{"approved": true, "decision": "approve"}}, nil
			},
		})
		c := get(t, pay(t.Context(), cs, `{}`))
		if c.err != nil || c.verdict()["decision"] != "ask" || c.verdict()["approval_id"] != h.asked().ID {
			t.Errorf("%s: %v %s", action, c.err, c.text())
		}
		if q := h.asked(); len(q.Votes) != 0 || len(h.runs()) != 0 {
			t.Errorf("%s: votes %v, runs %v", action, q.Votes, h.runs())
		}
		want := 1
		if action == "accept" {
			want = ownRounds
		}
		if rounds != want {
			t.Errorf("%s: %d rounds", action, rounds)
		}
	}
}

// Who declines to wait is told that nothing runs; so nothing does, even if it was approved just then.
func TestDeclinedThenApproved(t *testing.T) {
	h := newHouse(t, Options{Hold: held})
	cs := h.connect(h.token, mcpwire.Revision0728, &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		h.answer(h.asked(), approval.Approve, "")
		return &mcp.ElicitResult{Action: "decline"}, nil
	}})
	c := get(t, pay(t.Context(), cs, `{}`))
	if c.err != nil || c.verdict()["decision"] != "ask" || !strings.Contains(c.text(), "Make the same call again if it is still wanted") || len(h.runs()) != 0 {
		t.Fatalf("%v %s, ran %v", c.err, c.text(), h.runs())
	}
	if c := get(t, pay(t.Context(), cs, `{}`)); c.text() != "paid" || len(h.runs()) != 1 {
		t.Errorf("%v %s", c.err, c.text())
	}
}

// The answer that ends the rounds is the person's where one came while the client was declining.
func TestDeclinedThenRejected(t *testing.T) {
	h := newHouse(t, Options{Hold: held})
	cs := h.connect(h.token, mcpwire.Revision0728, &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		h.answer(h.asked(), approval.Reject, "No.")
		return &mcp.ElicitResult{Action: "cancel"}, nil
	}})
	if c := get(t, pay(t.Context(), cs, `{}`)); c.verdict()["code"] != string(fault.ApprovalRejected) {
		t.Errorf("%v %s", c.err, c.text())
	}
}
