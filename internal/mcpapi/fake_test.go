package mcpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/mcpwire"
	"sallyport.example/internal/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a gateway that enforces what the interface promises and demands of its caller: Arguments are a checked JSON object,
// the door is named, the principal is one it gave out, a call with a verdict that doesn't permit has no result.
type fake struct {
	t testing.TB

	refused  atomic.Int64
	attempt  gateway.Attempt // the last refused one
	last     fault.Verdict   // of what was turned away, under mu
	lastOf   string
	quiet    bool // don't remember calls
	mu       sync.Mutex
	tokens   map[string]identity.Principal
	ops      []*catalogue.Operation
	offers   []catalogue.Offer
	calls    []gateway.Request
	subs     map[int]func()
	nextSub  int
	onCall   func(ctx context.Context, r gateway.Request) gateway.Answer
	onPrompt func() (string, error)
	unlisted error // why no list of tools can be given
	begun    int64 // conversations
}

const (
	agentToken   = "spt_agent_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	agentToken2  = "spt_agent_cccccccccccccccccccccccccccccccc"
	otherToken   = "spt_agent_bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	sessionToken = "spt_session_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	hookToken    = "spt_hook_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	hostToken    = "spt_host_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	personToken  = "spt_person_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
)

func newFake(t testing.TB) *fake {
	f := &fake{t: t, subs: map[int]func(){}, tokens: map[string]identity.Principal{
		agentToken:   {Kind: identity.Agent, ID: "local", TokenID: "tok_1"},
		agentToken2:  {Kind: identity.Agent, ID: "local", TokenID: "tok_6"},
		otherToken:   {Kind: identity.Agent, ID: "other", TokenID: "tok_2"},
		sessionToken: {Kind: identity.Session, ID: "sess_9", Agent: "local", TokenID: "tok_3"},
		hookToken:    {Kind: identity.Hook, ID: "sess_1", TokenID: "tok_5"},
		hostToken:    {Kind: identity.Host, ID: "ide", TokenID: "tok_4"},
		personToken:  {Kind: identity.Person, ID: "alice", TokenID: "tok_5"},
	}}
	f.tool("echo", `{"type":"object","properties":{"text":{"type":"string"}}}`)
	return f
}

func (f *fake) tool(name, schema string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ops = append(f.ops, &catalogue.Operation{
		ID: "srv." + name, Server: "srv", Tool: name, Name: name, Kind: call.Tool, Standing: catalogue.Active,
		Definition: json.RawMessage(fmt.Sprintf(`{"description":"does %s","inputSchema":%s,"name":%q,"x-unknown":{"kept":1}}`, name, schema, name)),
	})
	slices.SortFunc(f.ops, func(a, b *catalogue.Operation) int { return strings.Compare(a.Name, b.Name) })
}

func (f *fake) offer(kind call.Kind, name, upstream, definition string, template bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.offers = append(f.offers, catalogue.Offer{
		Operation: &catalogue.Operation{ID: "srv." + string(kind), Server: "srv", Kind: kind, Standing: catalogue.Active},
		Name:      name, Upstream: upstream, Definition: json.RawMessage(definition), Template: template,
	})
}

func (f *fake) changed() {
	f.mu.Lock()
	subs := make([]func(), 0, len(f.subs))
	for _, s := range f.subs {
		subs = append(subs, s)
	}
	f.mu.Unlock()
	for _, s := range subs {
		s()
	}
}

func (f *fake) Authenticate(secret string) (identity.Principal, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.tokens[secret]
	if !ok {
		return p, fault.New(fault.CredentialMissing, "The token is not known, or revoked, or has expired.")
	}
	return p, nil
}

func (f *fake) Call(ctx context.Context, r gateway.Request) gateway.Answer {
	if r.Door != "mcp" || r.Tool == "" || r.Session != "" || r.DryRun && (r.Hold > 0 || r.Waiting != nil) || (r.Principal.Kind != identity.Agent && r.Principal.Kind != identity.Session) {
		f.t.Errorf("bad request to the corridor: %+v", r)
	}
	if r.Arguments != nil {
		if err := call.Check(r.Arguments, limits); err != nil || !call.IsObject(r.Arguments) {
			f.t.Errorf("arguments are not a checked object: %s (%v)", r.Arguments, err)
		}
	}
	f.mu.Lock()
	if !f.quiet {
		f.calls = append(f.calls, r)
	}
	on := f.onCall
	f.mu.Unlock()
	a := gateway.Answer{CallID: "call_1", Session: sessionOf(r.Principal), Verdict: fault.Permitted()}
	a.Verdict.RequestID = "req_1"
	if on != nil {
		a = on(ctx, r)
		if a.Verdict.RequestID == "" {
			a.Verdict.RequestID = "req_1"
		}
		if a.Session == "" {
			a.Session = sessionOf(r.Principal)
		}
	} else if r.Method == "tools/call" {
		a.Result = json.RawMessage(`{"content":[{"type":"text","text":"ok"}],"_meta":{"sallyport/attribution":{"call_id":"call_1"}}}`)
	} else {
		a.Result = json.RawMessage(`{}`)
	}
	if r.DryRun {
		a.Result, a.RPCError = nil, nil
	}
	if a.Verdict.Decision != fault.Permit && (a.Result != nil || a.RPCError != nil) {
		f.t.Error("a refusal has no result")
	}
	return a
}

func sessionOf(p identity.Principal) string {
	if p.Kind == identity.Session {
		return p.ID
	}
	return "sess_" + p.ID
}

func (f *fake) SessionFor(_ context.Context, p identity.Principal) (session.Session, error) {
	return session.Session{ID: sessionOf(p), Agent: p.ID, State: session.Open, Phase: session.Planning}, nil
}

// BeginConversation counts the conversations that begin.
func (f *fake) BeginConversation(_ context.Context, p identity.Principal, stateless bool) (identity.Principal, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !stateless {
		f.begun++
		p.Conversation = f.begun
	}
	return p, nil
}

// Operations hides tools that start with secret_ from the agent "other".
func (f *fake) Operations(_ context.Context, p identity.Principal) []*catalogue.Operation {
	f.mu.Lock()
	defer f.mu.Unlock()
	var seen []*catalogue.Operation
	for _, op := range f.ops {
		if p.ID != "other" || !strings.HasPrefix(op.Name, "secret_") {
			seen = append(seen, op)
		}
	}
	return seen
}

func (f *fake) Listing(ctx context.Context, p identity.Principal) ([]*catalogue.Operation, error) {
	f.mu.Lock()
	err := f.unlisted
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return f.Operations(ctx, p), nil
}

func (*fake) Gave(context.Context, identity.Principal, []json.RawMessage) {}

func (f *fake) Offers(_ context.Context, _ identity.Principal, kind call.Kind) []catalogue.Offer {
	f.mu.Lock()
	defer f.mu.Unlock()
	var seen []catalogue.Offer
	for _, o := range f.offers {
		if o.Operation.Kind == kind {
			seen = append(seen, o)
		}
	}
	return seen
}

func (f *fake) SystemPrompt(_ context.Context, p identity.Principal) (string, error) {
	f.mu.Lock()
	on := f.onPrompt
	f.mu.Unlock()
	if on != nil {
		return on()
	}
	return "Plan external calls first, " + p.ID + ".", nil
}

func (f *fake) Manifest(_ context.Context, _ identity.Principal, s string) (any, error) {
	return map[string]any{"session_id": s, "tools": []string{}}, nil
}

func (f *fake) Status(_ context.Context, _ identity.Principal, s string) (any, error) {
	return map[string]any{"session_id": s, "phase": "planning"}, nil
}

func (f *fake) ValidatePlan(_ context.Context, _ identity.Principal, _ string, body json.RawMessage) (any, error) {
	if _, ok := call.Get(body, "planned_calls"); !ok {
		return nil, fault.New(fault.RequestMalformed, "is missing").At("planned_calls")
	}
	return map[string]any{"valid": true, "got": body}, nil
}

func (f *fake) SubmitPlan(context.Context, identity.Principal, string, json.RawMessage) (any, error) {
	return nil, fmt.Errorf("disk on fire at /secret/path")
}

// Declare permits a declaration of comm.fetch, asks about one of comm.exec, refuses any other, and one that lacks something it lists.
func (f *fake) Declare(_ context.Context, p identity.Principal, s string, body json.RawMessage) (any, error) {
	if s != sessionOf(p) {
		f.t.Errorf("a declaration for %s in %s", p, s)
	}
	r, problems := declare.Parse(body)
	if len(problems) > 0 {
		e := &declare.Invalid{Problems: problems}
		return nil, fault.Wrap(e, fault.DeclarationInvalid, "%s", e.Error())
	}
	a := gateway.DeclareAnswer{DeclarationID: "decl_1", Digest: "d", State: declare.Approved, Verdict: fault.Permitted()}
	if r.Operation == "comm.exec" {
		a.State, a.ApprovalID, a.Verdict.Decision, a.Verdict.Code = declare.Pending, "appr_1", fault.Ask, fault.ApprovalRequired
	} else if r.Operation != "comm.fetch" {
		a.State, a.Verdict = declare.Rejected, fault.Refuse("permit", fault.PermissionDenied, "")
	}
	return a, nil
}

// Refused counts what the face turned away.
func (f *fake) Refused(a gateway.Attempt, v fault.Verdict) {
	if a.Door != "mcp" || v.Reason == "" || v.Stage == "" || !v.Code.Known() {
		panic("a refusal without door, reason, stage or code")
	}
	f.refused.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.lastOf, f.attempt = v, a.What, a
}

// lastRefused is what the face recorded last, and of what.
func (f *fake) lastRefused() (fault.Verdict, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.lastOf
}

func (f *fake) Subscribe(fn func()) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := f.nextSub
	f.nextSub++
	f.subs[id] = fn
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.subs, id)
	}
}

func (f *fake) on(fn func(ctx context.Context, r gateway.Request) gateway.Answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onCall = fn
}

func (f *fake) called() []gateway.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func permit(result string) gateway.Answer {
	return gateway.Answer{CallID: "call_1", Verdict: fault.Permitted(), Result: json.RawMessage(result)}
}

// clock is set by hand.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// rig is a Face behind a real HTTP server.
type rig struct {
	t     testing.TB
	g     *fake
	f     *Face
	srv   *httptest.Server
	clock *clock

	mu       sync.Mutex
	released []string
}

func newRig(t testing.TB, tweak ...func(*Options)) *rig {
	r := &rig{t: t, g: newFake(t), clock: &clock{at: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}}
	o := Options{Version: "1.2.3", Clock: r.clock.now, Release: func(k string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.released = append(r.released, k)
	}}
	for _, f := range tweak {
		f(&o)
	}
	o.Authenticate, o.Subscribe = r.g.Authenticate, r.g.Subscribe
	r.f = New(r.g, o)
	r.srv = httptest.NewServer(r.f.Handler())
	t.Cleanup(func() {
		r.f.Close()
		r.srv.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return r
}

// reply of a raw request.
type rawReply struct {
	status int
	header http.Header
	body   []byte
}

func (r rawReply) member(path ...string) json.RawMessage {
	v := json.RawMessage(r.body)
	for _, p := range path {
		v, _ = call.Get(v, p)
	}
	return v
}

func (r rawReply) code() int {
	var n int
	_ = json.Unmarshal(r.member("error", "code"), &n)
	return n
}

func (r *rig) do(method, url string, body string, headers map[string]string) rawReply {
	r.t.Helper()
	req, err := http.NewRequest(method, r.srv.URL+url, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+agentToken)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
	}
	for k, v := range headers {
		if v == "" {
			req.Header.Del(k)
		} else {
			req.Header.Set(k, v)
		}
	}
	if h := headers["Host"]; h != "" {
		req.Host = h
		req.Header.Del("Host")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return rawReply{resp.StatusCode, resp.Header, bytes.TrimSpace(b)}
}

// open initialises a legacy transport session and returns the headers that go with it.
func (r *rig) open(token, caps string) map[string]string {
	r.t.Helper()
	return r.openAs(mcpwire.Revision1125, token, caps)
}

// openAs is open for a revision. Before 2025-06-18 there is no header for it.
func (r *rig) openAs(revision, token, caps string) map[string]string {
	r.t.Helper()
	rep := r.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+revision+`","capabilities":`+caps+`,"clientInfo":{"name":"raw","version":"1"}}}`,
		map[string]string{"Authorization": "Bearer " + token})
	id := rep.header.Get(mcpwire.HeaderSession)
	if rep.status != 200 || id == "" {
		r.t.Fatalf("initialize: %d %s", rep.status, rep.body)
	}
	h := map[string]string{"Authorization": "Bearer " + token, mcpwire.HeaderSession: id}
	if !older(revision) {
		h[mcpwire.HeaderVersion] = revision
	}
	return h
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

func modernHeaders(method, name string) map[string]string {
	h := map[string]string{mcpwire.HeaderVersion: mcpwire.Revision0728, mcpwire.HeaderMethod: method}
	if name != "" {
		h[mcpwire.HeaderName] = name
	}
	return h
}

// connect is the Go SDK's client on the rig.
func (r *rig) connect(token, revision string, o *mcp.ClientOptions) *mcp.ClientSession {
	r.t.Helper()
	hc := &http.Client{Transport: bearer{token}}
	client := mcp.NewClient(&mcp.Implementation{Name: "sdk", Version: "1"}, o)
	cs, err := client.Connect(r.t.Context(), &mcp.StreamableClientTransport{Endpoint: r.srv.URL + "/mcp", HTTPClient: hc, MaxRetries: -1},
		&mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		r.t.Fatalf("connect %s: %v", revision, err)
	}
	r.t.Cleanup(func() { _ = cs.Close() })
	return cs
}

type bearer struct{ token string }

func (b bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(req)
}
