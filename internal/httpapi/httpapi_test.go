package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.example/client"
	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/agent/deployed"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/comm/fetch"
	"sallyport.example/internal/console"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/gateway/gatewaytest"
	"sallyport.example/internal/httpapi"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/knowledge/claims"
	"sallyport.example/internal/knowledge/collect"
	"sallyport.example/internal/monitor"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/run"
	"sallyport.example/internal/runner"
	"sallyport.example/internal/standing"
	"sallyport.example/internal/store"
	"sallyport.example/provenance"
)

// upstreams plays the servers; a tool whose name has a channel here waits for it.
type upstreams struct {
	mu      sync.Mutex
	calls   int
	wait    map[string]chan struct{}
	started chan struct{} // closed by the first call of a tool that waits, if it is there
}

func (*upstreams) List(context.Context, string) error { return nil }

func (u *upstreams) Do(ctx context.Context, server, method string, params json.RawMessage, _ *call.Exchange) (json.RawMessage, error) {
	name, _ := call.Get(params, "name")
	u.mu.Lock()
	u.calls++
	wait := u.wait[strings.Trim(string(name), `"`)]
	if wait != nil && u.started != nil {
		close(u.started)
		u.started = nil
	}
	u.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return json.RawMessage(`{"content":[{"type":"text","text":"hello from ` + server + `"}]}`), nil
}

func (u *upstreams) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.calls
}

// brittle is the real store, which can be made to hang or fail.
type brittle struct {
	*store.DB
	mu    sync.Mutex
	block chan struct{} // non-nil: SaveSwitches and Record wait for it
	size  func() (int64, error)
	ready func() error
	full  bool // SaveQuarantine fails
	gone  *audit.Archived
}

// Archived tells of the entries that gone names, once it is set.
func (b *brittle) Archived(f audit.Filter) *audit.Archived {
	if b.gone == nil || f.From.IsZero() {
		return b.DB.Archived(f)
	}
	return b.gone
}

func (b *brittle) SaveQuarantine(ctx context.Context, agent string, q *standing.Quarantine, e audit.Entry) error {
	b.mu.Lock()
	full := b.full
	b.mu.Unlock()
	if full {
		return fault.New(fault.StoreUnavailable, "the disk is full")
	}
	return b.DB.SaveQuarantine(ctx, agent, q, e)
}

func (b *brittle) blocked() {
	b.mu.Lock()
	c := b.block
	b.mu.Unlock()
	if c != nil {
		<-c
	}
}

func (b *brittle) SaveSwitches(ctx context.Context, s standing.Switches, e ...audit.Entry) error {
	b.blocked()
	return b.DB.SaveSwitches(ctx, s, e...)
}

func (b *brittle) Record(ctx context.Context, e ...audit.Entry) error {
	b.blocked()
	return b.DB.Record(ctx, e...)
}

func (b *brittle) Ready(ctx context.Context) error {
	b.mu.Lock()
	f := b.ready
	b.mu.Unlock()
	if f != nil {
		return f()
	}
	return b.DB.Ready(ctx)
}

func (b *brittle) Size(ctx context.Context) (int64, error) {
	b.mu.Lock()
	f := b.size
	b.mu.Unlock()
	if f != nil {
		return f()
	}
	return b.DB.Size(ctx)
}

const declaration = `agentId: %s
agentName: Test
version: 1.0.0
purpose: tests
capabilities: [testing]
dataSources: {tables: [], apis: [], models: []}
permissions: {read: ["mail.*", "web.*", "docs.*", "comm.*"], write: ["slack.*", "comm.*"]}
outputSchema: {type: object, properties: {answer: {enum: [a]}}, required: [answer], additionalProperties: false}
outputSchemaVersion: 1.0.0
maxExecutionTime: 30000
maxTokens: 1000
killSwitchEnabled: true
humanApprovalRequired: true
mode: operator
startPhase: %s
sessions: %s
`

var classes = map[string]catalogue.Classification{
	"mail.search_email": {ExposeAs: "search_email", Flow: flow.Spec{Sensitivity: flow.InternalSource, Effect: flow.Read}, Output: provenance.TrustedOutput},
	"web.web_search":    {ExposeAs: "web_search", Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Read, Untrusted: true}, Output: provenance.UntrustedOutput},
	"slack.post":        {ExposeAs: "slack_post", Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Write}, Output: provenance.TrustedOutput},
	"docs.think":        {ExposeAs: "think", Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Read}, Output: provenance.TrustedOutput},
	"comm.fetch":        {ExposeAs: "comm_fetch", Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Read, Untrusted: true}, Output: provenance.UntrustedOutput},
	"comm.exec":         {ExposeAs: "comm_exec", Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Write, Untrusted: true}, Output: provenance.UntrustedOutput, Level: 2, RiskFloor: policy.High},
	"comm.wire":         {ExposeAs: "comm_wire", Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Write, Untrusted: true}, Output: provenance.UntrustedOutput, Level: 2, RiskFloor: policy.Critical},
}

func classify(server, tool string) catalogue.Classification {
	c, ok := classes[server+"."+tool]
	if !ok {
		return catalogue.Classification{ExternalIO: true, Level: 2, Output: provenance.UntrustedOutput, Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Write, Untrusted: true}}
	}
	c.Listed, c.Named, c.ExternalIO = true, true, server != "docs"
	if c.AllowInvisible == nil {
		c.AllowInvisible = []string{"q"}
	}
	return c
}

// command plays a built-in external operation: it takes a url and brings a line from there.
func command(name string, effect flow.Effect, level int) catalogue.Command {
	return catalogue.Command{
		Name: name, Description: "A played " + name + ".", Sensitivity: flow.External, Effect: effect, Level: level, Timeout: time.Minute, Requests: true,
		Parameters: json.RawMessage(`{"url":{"type":"string","description":"Where."}}`),
		Check: func(parameters json.RawMessage) error {
			if _, ok := call.Get(parameters, "url"); !ok {
				return fault.New(fault.RequestMalformed, "is missing").At("url")
			}
			return nil
		},
		Run: func(_ context.Context, r catalogue.CommandRun) (catalogue.Brought, error) {
			return catalogue.Brought{Source: "https://docs.example/", Blocks: []catalogue.Block{{Text: "brought <b>from</b> outside"}}}, nil
		},
	}
}

// aliases are the other identities of people.
var aliases = map[string][]string{"alice": {"alice@example.com", "alice.work", "host:alices-laptop"}}

// voter is who a person is, for the gateway: everybody approves here, under the aliases.
func voter(person string) (approval.Voter, bool) {
	return approval.Voter{Person: person, Roles: []identity.Role{identity.Approver}, Aliases: aliases[person]}, true
}

// clock can be put forward.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *clock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// world is both sides over a gateway on the real store with played servers.
type world struct {
	t            testing.TB
	store        *brittle
	up           *upstreams
	g            *gateway.Gateway
	api          *httpapi.API
	clock        *clock
	agent, admin *httptest.Server
	servers      []console.ServerStatus
	reloads      []string // by whom
	reloadFails  error
	confirms     bool // people confirm at their terminals
}

// nobody is the people of a configuration that names none.
func nobody() map[string][]identity.Role { return nil }

func newWorld(t testing.TB, tweak ...func(*gateway.Options)) *world {
	t.Helper()
	o := gatewaytest.Options(t, fmt.Sprintf(declaration, "worker", "execution", "host"), fmt.Sprintf(declaration, "planner", "planning", "host"),
		fmt.Sprintf(declaration, "selfish", "execution", "self"))
	db := gatewaytest.Store(t)
	w := &world{t: t, store: &brittle{DB: db}, up: &upstreams{wait: map[string]chan struct{}{}}, clock: &clock{}}
	o.Store, o.Upstreams, o.Classify, o.Voter, o.Clock = w.store, w.up, classify, voter, w.clock.now
	o.Commands = []catalogue.Command{command("fetch", flow.Read, 0), command("exec", flow.Write, 2), command("wire", flow.Write, 2)}
	for _, f := range tweak {
		f(&o)
	}
	w.g = gatewaytest.New(t, o)
	for _, server := range []string{"mail", "web", "slack", "docs"} {
		var defs []call.Definition
		for _, id := range slices.Sorted(maps.Keys(classes)) {
			if s, tool, _ := strings.Cut(id, "."); s == server {
				defs = append(defs, gatewaytest.Tool(server, tool, "A tool."))
			}
		}
		if err := w.g.Catalogue().UpdateDefinitions(t.Context(), server, defs); err != nil {
			t.Fatal(err)
		}
	}
	w.servers = []console.ServerStatus{{ID: "mail", State: "up", Protocol: "2025-11-25", Name: "Mail", Version: "1", Instructions: "i", LastError: "e", Restarts: 1, Definitions: 1, Since: time.Now()}}
	runs, err := runner.New(t.Context(), runner.Options{
		Dir:     t.TempDir(),
		Gateway: w.g, Store: db, AgentURL: func() string { return "" }, Hosts: func(string) []string { return nil }, Env: func(string) string { return "" },
		Alert: func(run.Run) {}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(runs.Close)
	w.api = httpapi.New(w.g, w.store, httpapi.Options{
		Runs: runs, Version: "test", Agents: w.g.Agents, Approved: gatewaytest.Approved(t, w.g.Agents), Deployment: func(context.Context) (deployed.Report, error) { return deployed.Check(deployed.Facts{}), nil }, Clock: w.clock.now, Confirm: func() bool { return w.confirms },
		People: func() map[string][]identity.Role {
			return map[string][]identity.Role{"bob": {identity.Viewer, identity.Operator}, "alice": {identity.Admin}}
		},
		Configuration: func() console.Configuration {
			return console.Configuration{File: "sallyport.yaml", LoadedBy: "gateway:start"}
		},
		Reload: func(_ context.Context, by string) (console.Reloaded, error) {
			w.reloads = append(w.reloads, by)
			return console.Reloaded{Changes: []console.ChangedField{}}, w.reloadFails
		},
		Upstreams: func() []console.ServerStatus { return w.servers },
		Source:    func(ctx context.Context) (audit.Source, error) { return db.Source(ctx) },
		Counters:  monitor.New(db, w.clock.now, slog.New(slog.DiscardHandler)),
		Library:   gatewaytest.Library(t, db),
		AddsTo:    func(string) []string { return nil },
		Metrics:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("figures")) }),
		Collector: collect.New(collect.Options{
			Web: nowhere{}, Record: db.Record, Clock: time.Now, Payload: w.g.Payload,
			Enter: func(collect.Running) (func(), func() bool) { return func() {}, func() bool { return false } },
		}),
		Claims: claims.New(claims.Options{Log: slog.New(slog.DiscardHandler), Configured: func() ([]string, int) { return nil, 2 }, Record: db.Record}),
	})
	w.agent, w.admin = httptest.NewServer(w.api.Agent()), httptest.NewServer(w.api.Admin())
	t.Cleanup(func() {
		w.api.Close()
		w.agent.Close()
		w.admin.Close()
	})
	return w
}

// token issues one. who is kind:id, for persons with a role: person:viewer is a person viewer with that role.
func (w *world) token(kind identity.Kind, id string, roles ...identity.Role) string {
	w.t.Helper()
	secret, _, err := w.g.Standing().IssueToken(w.t.Context(), identity.Principal{Kind: kind, ID: id, Roles: roles}, "test")
	if err != nil {
		w.t.Fatal(err)
	}
	return secret
}

func (w *world) client(server *httptest.Server, token string) *client.Client {
	w.t.Helper()
	c, err := client.New(server.URL, token)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) root() *client.Client {
	return w.client(w.admin, w.token(identity.Person, "root", identity.Admin))
}

// answer is a response, read whole.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) problem(t testing.TB) client.Problem {
	t.Helper()
	var p client.Problem
	if ct := a.header.Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("status %d comes as %q: %.200s", a.status, ct, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || p.Status != a.status || p.Code == "" || p.Detail == "" || p.RequestID == "" {
		t.Errorf("not a whole problem (%v): %s", err, a.body)
	}
	return p
}

func (w *world) send(server *httptest.Server, method, path, token, body string, tweak ...func(*http.Request)) answer {
	w.t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, server.URL+path, r)
	if err != nil {
		w.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for _, f := range tweak {
		f(req)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var read io.Reader = resp.Body
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		read = io.LimitReader(resp.Body, 1) // it has no end
	}
	b, err := io.ReadAll(read)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

// endpoint is one row of the table of everything there is. needs: "open", "agents" (any credential of the agents' side), "hosts" (a
// host's, on the agents' side), or the roles of which a person needs one.
type endpoint struct {
	method, path, body string
	needs              string
}

// agents tells whether it is on the agents' side.
func (e endpoint) agents() bool { return e.needs == "agents" || e.needs == "hosts" }

// endpoints is written down here a second time on purpose: a route that is added or opened wider fails until it was considered.
var endpoints = []endpoint{
	{"POST", "/v1/session", `{"agent_id":"worker","user_request":"x"}`, "agents"},
	{"GET", "/v1/session/{id}", "", "agents"},
	{"GET", "/v1/session/{id}/manifest", "", "agents"},
	{"POST", "/v1/session/{id}/words", `{"text":"x"}`, "hosts"},
	{"POST", "/v1/session/{id}/validate-plan", `{"planned_calls":["think"]}`, "agents"},
	{"POST", "/v1/session/{id}/plan", `{"steps":[{"tool":"think","justification":"x"}]}`, "agents"},
	{"POST", "/v1/session/{id}/declarations", `{"operation":"comm.fetch","parameters":{},"justification":{},"phase":"execution","session_id":"x"}`, "agents"},
	{"GET", "/v1/session/{id}/declarations/{declaration_id}", "", "agents"},
	{"POST", "/v1/session/{id}/check", `{"tool":"think","arguments":{}}`, "agents"},
	{"POST", "/v1/session/{id}/calls", `{"tool":"think","arguments":{}}`, "agents"},
	{"GET", "/v1/session/{id}/calls/{call_id}", "", "agents"},

	{"POST", "/agents/kill-switch/disable/{agentId}", `{"reason":"x"}`, "operator"},
	{"POST", "/agents/kill-switch/enable/{agentId}", `{"reason":"x"}`, "operator"},
	{"POST", "/agents/kill-switch/disable", `{"reason":"x"}`, "operator"},
	{"POST", "/agents/kill-switch/enable", `{"reason":"x"}`, "operator"},
	{"GET", "/agents/kill-switch/status", "", "viewer approver operator auditor"},
	{"GET", "/v1/sessions", "", "viewer approver operator auditor"},
	{"POST", "/v1/trial", `{"do":"end"}`, "operator"},
	{"GET", "/v1/stored", "", "viewer approver operator auditor"},
	{"POST", "/v1/sessions", `{"agent_id":"worker","user_request":"x"}`, "operator"},
	{"POST", "/v1/sessions/next", `{"agent_id":"worker"}`, "operator"},
	{"GET", "/v1/sessions/{id}", "", "viewer approver operator auditor"},
	{"POST", "/v1/sessions/{id}/hook-key", ``, "operator"},
	{"POST", "/v1/sessions/{id}/words", `{"text":"x"}`, "operator"},
	{"POST", "/v1/sessions/{id}/phase", `{"phase":"execution","reason":"x"}`, "operator"},
	{"POST", "/v1/sessions/{id}/release", `{"labels":["internal"],"reason":"x"}`, "operator"},
	{"POST", "/v1/stored/{id}/release", `{"labels":["internal"],"reason":"x"}`, "operator"},
	{"POST", "/v1/sessions/{id}/close", `{"reason":"x"}`, "operator"},
	{"POST", "/v1/sessions/{id}/remove-files", ``, "operator"},
	{"POST", "/v1/sessions/{id}/plan/approve", `{"digest":"x"}`, "operator"},
	{"POST", "/v1/sessions/{id}/plan/reject", `{"digest":"x"}`, "operator"},
	{"GET", "/v1/approvals", "", "viewer approver operator auditor"},
	{"GET", "/v1/approvals/{id}", "", "viewer approver operator auditor"},
	{"GET", "/v1/approvals/figures", "", "viewer approver operator auditor"},
	{"POST", "/v1/approvals/{id}/approve", `{"digest":"x"}`, "approver"},
	{"POST", "/v1/approvals/{id}/reject", `{"digest":"x","reason":"x"}`, "approver"},
	{"POST", "/v1/approvals/{id}/defer", `{"digest":"x"}`, "approver"},
	{"POST", "/v1/approvals/{id}/modify", `{"arguments":{},"reason":"x"}`, "approver"},
	{"POST", "/v1/approvals/batch", `{"decision":"approve","approvals":[{"approval_id":"x","digest":"x"}]}`, "approver"},
	{"GET", "/v1/agents", "", "viewer approver operator auditor"},
	{"GET", "/v1/agents/{id}", "", "viewer approver operator auditor"},
	{"GET", "/v1/quotas", "", "viewer approver operator auditor"},
	{"GET", "/v1/agents/audit", "", "viewer approver operator auditor"},
	{"GET", "/v1/agents/{id}/diff", "", "viewer approver operator auditor"},
	{"POST", "/v1/agents/{id}/approve", `{"digest":"x"}`, "approver"},
	{"POST", "/v1/agents/approvals/export", `{"agents":["worker"]}`, "approver"},
	{"POST", "/v1/agents/approvals/import", `{"bundle":"x"}`, "approver"},
	{"POST", "/v1/agents/{id}/quarantine", `{"reason":"x"}`, "operator"},
	{"POST", "/v1/agents/{id}/restore", `{"reason":"x"}`, "operator"},
	{"POST", "/v1/agents/{id}/runs", `{"input":{}}`, "operator approver"},
	{"GET", "/v1/runs", "", "viewer approver operator auditor"},
	{"GET", "/v1/runs/{id}", "", "viewer approver operator auditor"},
	{"POST", "/v1/runs/{id}/cancel", ``, "operator approver"},
	{"GET", "/v1/recommendations", "", "viewer approver operator auditor"},
	{"GET", "/v1/recommendations/export", "", "auditor"},
	{"GET", "/v1/recommendations/{id}", "", "viewer approver operator auditor"},
	{"POST", "/v1/recommendations/{id}/approve", `{"digest":"x"}`, "approver"},
	{"POST", "/v1/recommendations/{id}/reject", `{"reason":"x"}`, "approver"},
	{"POST", "/v1/recommendations/{id}/defer", `{"digest":"x"}`, "approver"},
	{"POST", "/v1/session/{id}/recommendations", `{"answer":"x"}`, "agents"},
	{"GET", "/v1/events", "", "viewer approver operator auditor"},
	{"GET", "/v1/tools", "", "viewer approver operator auditor"},
	{"POST", "/v1/tools/accept", `{"definitions":[{"operation":"x.y","definition_hash":"x"}]}`, "operator"},
	{"POST", "/v1/tools/{operation}/accept", `{"definition_hash":"x"}`, "operator"},
	{"GET", "/v1/servers", "", "viewer approver operator auditor"},
	{"GET", "/v1/mode", "", "viewer approver operator auditor"},
	{"GET", "/v1/alerts", "", "viewer approver operator auditor"},
	{"GET", "/v1/alerts/{id}", "", "viewer approver operator auditor"},
	{"POST", "/v1/alerts/{id}/acknowledge", `{"comment":"x"}`, "operator"},
	{"POST", "/v1/alerts/{id}/resolve", `{"reason":"x"}`, "operator"},
	{"GET", "/v1/security", "", "viewer approver operator auditor"},
	{"GET", "/v1/breakers", "", "viewer approver operator auditor"},
	{"POST", "/v1/breakers/{name}/reset", `{"reason":"x"}`, "operator"},
	{"POST", "/v1/agents/{id}/breaker-test", "", "operator"},
	{"GET", "/v1/anchor", "", "viewer approver operator auditor"},
	{"GET", "/v1/configuration", "", "viewer approver operator auditor"},
	{"POST", "/v1/reload", "", "admin"},
	{"GET", "/v1/tokens", "", "admin"},
	{"POST", "/v1/tokens", `{"kind":"host","id":"laptop"}`, "admin"},
	{"DELETE", "/v1/tokens/{id}", "", "admin"},
	{"POST", "/v1/sign-in-links", "", "viewer approver operator auditor"},
	{"POST", "/v1/claims", `{"claim":{"subject":"a","attribute":"b","value":"c"}}`, "viewer approver operator auditor"},
	{"GET", "/v1/knowledge/documents", "", "viewer approver operator auditor"},
	{"POST", "/v1/knowledge/documents", `{"key":"k","source":"s","content":"x"}`, "operator"},
	{"POST", "/v1/knowledge/fetch", `{"url":"https://example.com/x","source":"s"}`, "operator"},
	{"GET", "/v1/knowledge/documents/{id}", "", "viewer approver operator auditor"},
	{"GET", "/v1/knowledge/documents/{id}/versions", "", "viewer approver operator auditor"},
	{"GET", "/v1/knowledge/documents/{id}/versions/{n}", "", "viewer approver operator auditor"},
	{"GET", "/v1/knowledge/documents/{id}/diff", "", "viewer approver operator auditor"},
	{"POST", "/v1/knowledge/documents/{id}/versions", `{"expected_version":1,"content":"x"}`, "operator"},
	{"DELETE", "/v1/knowledge/documents/{id}", `{"reason":"x"}`, "operator"},
	{"POST", "/v1/knowledge/documents/{id}/restore", `{"reason":"x"}`, "operator"},
	{"POST", "/v1/knowledge/documents/{id}/labels", `{"labels":[],"reason":"x"}`, "operator"},
	{"POST", "/v1/knowledge/documents/{id}/erase", `{"reason":"x"}`, "admin"},
	{"POST", "/v1/knowledge/withdraw", `{"source":"none","reason":"x"}`, "operator"},
	{"POST", "/v1/knowledge/snapshots", ``, "operator"},
	{"GET", "/v1/knowledge/snapshots", "", "viewer approver operator auditor"},
	{"GET", "/v1/knowledge/snapshots/{id}", "", "viewer approver operator auditor"},
	{"POST", "/v1/knowledge/search", `{"query":"x"}`, "viewer approver operator auditor"},
	{"GET", "/v1/audit", "", "auditor"},
	{"GET", "/v1/audit/{index}", "", "auditor"},
	{"GET", "/v1/audit/proof", "", "auditor"},
	{"GET", "/v1/audit/checkpoint", "", "auditor"},
	{"GET", "/v1/audit/download", "", "auditor"},
	{"GET", "/v1/audit/export", "", "auditor"},
	{"GET", "/v1/audit/payload/{key}", "", "auditor"},
	{"GET", "/checkpoint", "", "auditor"},
	{"GET", "/tile/{path}", "", "auditor"},
	{"GET", "/healthz", "", "open"},
	{"GET", "/readyz", "", "open"},
	{"GET", "/openapi.json", "", "open"},
	{"GET", "/metrics", "", "viewer approver operator auditor"},
}

// url fills the places of the path.
func (e endpoint) url(session string) string {
	return strings.NewReplacer("{id}", session, "{call_id}", "call_x", "{declaration_id}", "decl_x", "{agentId}", "ghost", "{operation}", "docs.think", "{index}", "0", "{n}", "1",
		"{key}", strings.Repeat("0", 64), "{path}", "0/000.p/1").Replace(e.path)
}

// TestWhoMayDoWhat sends every kind of credential and every role to every endpoint of both sides.
func TestWhoMayDoWhat(t *testing.T) {
	w := newWorld(t)
	opened, err := w.client(w.agent, w.token(identity.Host, "laptop")).Open(t.Context(), client.OpenSession{AgentID: "worker"})
	if err != nil {
		t.Fatal(err)
	}
	past, soon := w.clock.now(), w.clock.now().Add(time.Hour)
	expiring, _, err := w.g.Standing().IssueToken(t.Context(), identity.Principal{Kind: identity.Agent, ID: "worker", Expires: soon}, "test")
	if err != nil {
		t.Fatal(err)
	}
	revoked, tok, err := w.g.Standing().IssueToken(t.Context(), identity.Principal{Kind: identity.Person, ID: "gone", Roles: identity.Roles}, "test")
	if err != nil || w.g.Standing().RevokeToken(t.Context(), tok.ID, "test") != nil {
		t.Fatal(err)
	}
	hook, err := w.g.HookKey(t.Context(), opened.SessionID, "person:root")
	if err != nil {
		t.Fatal(err)
	}
	type credential struct {
		name, token string
		bad         bool // opens nothing
		kind        identity.Kind
		role        identity.Role
	}
	credentials := []credential{
		{name: "none", bad: true}, {name: "garbage", token: "spt_agent_aaaa", bad: true}, {name: "no token of ours", token: "abc", bad: true},
		{name: "expired", token: expiring, bad: true}, {name: "revoked", token: revoked, bad: true},
		{name: "agent", token: w.token(identity.Agent, "worker"), kind: identity.Agent},
		{name: "session", token: opened.SessionToken, kind: identity.Session},
		{name: "host", token: w.token(identity.Host, "desk"), kind: identity.Host},
		{name: "hook", token: hook, kind: identity.Hook},
	}
	for _, r := range identity.Roles {
		credentials = append(credentials, credential{name: string(r), token: w.token(identity.Person, "p-"+string(r), r), kind: identity.Person, role: r})
	}
	w.clock.forward(2 * time.Hour)
	if !w.clock.now().After(soon) || past.After(soon) {
		t.Fatal("the clock stands")
	}
	for _, e := range endpoints {
		server := w.admin
		if e.agents() {
			server = w.agent
		}
		for _, c := range credentials {
			a := w.send(server, e.method, e.url(opened.SessionID), c.token, e.body)
			where := fmt.Sprintf("%s %s with %s: %d %.200s", e.method, e.path, c.name, a.status, a.body)
			allowed := e.needs == "open" ||
				e.needs == "agents" && c.kind != identity.Person && c.kind != identity.Hook && !c.bad || e.needs == "hosts" && (c.kind == identity.Host || c.kind == identity.Hook) && !c.bad ||
				c.kind == identity.Person && !e.agents() && (c.role == identity.Admin || slices.Contains(strings.Fields(e.needs), string(c.role)))
			switch {
			case allowed:
				if a.status >= 500 || a.status == 403 && e.path != "/v1/session" && !(c.kind == identity.Host && e.path == "/v1/session/{id}/recommendations") || a.status == 401 {
					t.Errorf("should be let in: %s", where)
				}
			case c.bad:
				if p := a.problem(t); a.status != 401 || p.Code != "credential.missing" || !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Bearer ") {
					t.Errorf("should need a credential: %s", where)
				}
			case c.kind == identity.Hook && e.agents(), e.needs == "hosts" && c.kind != identity.Person:
				if p := a.problem(t); a.status != 403 || p.Code != "credential.wrong_kind" {
					t.Errorf("should be for hosts alone: %s", where)
				}
			case (c.kind == identity.Person) == e.agents():
				if p := a.problem(t); a.status != 403 || p.Code != "credential.wrong_kind" || !strings.Contains(p.Remedy, "listen") {
					t.Errorf("should be sent to the other side: %s", where)
				}
			default:
				if p := a.problem(t); a.status != 403 || p.Code != "role.missing" {
					t.Errorf("should need a role: %s", where)
				}
			}
		}
	}
}

type document struct {
	Paths map[string]map[string]struct {
		RequestBody *struct {
			Content map[string]struct{ Schema json.RawMessage }
		}
		Security []any
	}
	Components struct {
		Schemas map[string]struct {
			Properties map[string]json.RawMessage
		}
	}
}

func (w *world) document() document {
	w.t.Helper()
	var d document
	if err := json.Unmarshal([]byte(w.send(w.admin, "GET", "/openapi.json", "", "").body), &d); err != nil {
		w.t.Fatal(err)
	}
	return d
}

// TestDocument holds the document against the table above, both ways.
func TestDocument(t *testing.T) {
	w := newWorld(t)
	var documented, table []string
	for path, methods := range w.document().Paths {
		for method, op := range methods {
			documented = append(documented, strings.ToUpper(method)+" "+path)
			i := slices.IndexFunc(endpoints, func(e endpoint) bool { return e.path == path && strings.EqualFold(e.method, method) })
			if i >= 0 && (endpoints[i].needs == "open") != (len(op.Security) == 0) {
				t.Errorf("%s %s: security %v", method, path, op.Security)
			}
		}
	}
	for _, e := range endpoints {
		table = append(table, e.method+" "+e.path)
	}
	slices.Sort(documented)
	slices.Sort(table)
	if !slices.Equal(documented, table) {
		t.Errorf("documented %v\nin the table %v", documented, table)
	}
}

// nowhere is a web of which nothing can be reached.
type nowhere struct{}

func (nowhere) CheckFile(string) error { return fault.New(fault.RequestMalformed, "This is a test.") }

func (n nowhere) File(context.Context, string) (*fetch.File, error) { return nil, n.CheckFile("") }

// TestNothingStartsAProcess walks every request that the API takes (mcp-076): no field names a command, an environment, a file or an
// address to connect to, and nothing but GET touches the servers.
func TestNothingStartsAProcess(t *testing.T) {
	w := newWorld(t)
	d := w.document()
	fields := 0
	for path, methods := range d.Paths {
		for method, op := range methods {
			if strings.Contains(path, "server") && method != "get" {
				t.Errorf("%s %s", method, path)
			}
			if op.RequestBody == nil {
				continue
			}
			for _, c := range op.RequestBody.Content {
				var ref struct {
					Ref        string `json:"$ref"`
					Properties map[string]json.RawMessage
				}
				if err := json.Unmarshal(c.Schema, &ref); err != nil {
					t.Fatal(err)
				}
				properties := ref.Properties
				if ref.Ref != "" {
					properties = d.Components.Schemas[ref.Ref[strings.LastIndex(ref.Ref, "/")+1:]].Properties
				}
				if len(properties) == 0 && path != "/v1/session/{id}/recommendations" { // an output, which the schema of its declaration describes
					t.Errorf("%s %s takes a body of unknown form", method, path)
				}
				for name := range properties {
					fields++
					if path == "/v1/knowledge/fetch" && name == "url" { // a document is fetched by the rules of egress, and nothing is configured by it
						continue
					}
					for _, bad := range []string{"command", "cmd", "args", "argv", "env", "exec", "url", "uri", "path", "file", "dir", "server", "upstream", "header", "config"} {
						if name == bad || strings.HasPrefix(name, bad+"_") || strings.HasSuffix(name, "_"+bad) || name == bad+"s" {
							t.Errorf("%s %s takes %s", method, path, name)
						}
					}
				}
			}
		}
	}
	if fields < 15 {
		t.Fatalf("only %d fields were looked at", fields)
	}
}

// TestMalformedBodies sends each kind of bad body to every endpoint that takes one. Nothing may come of it but a refusal on record.
func TestMalformedBodies(t *testing.T) {
	w := newWorld(t)
	tokens := map[*httptest.Server]string{w.agent: w.token(identity.Agent, "worker"), w.admin: w.token(identity.Person, "root", identity.Admin)}
	if _, err := w.client(w.agent, tokens[w.agent]).Status(t.Context(), client.Own); err != nil { // opens the session
		t.Fatal(err)
	}
	before, err := w.store.Size(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	undeclarable := int64(0)
	for _, e := range endpoints {
		if e.body == "" {
			continue
		}
		server := w.admin
		if e.agents() {
			server = w.agent
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(e.body, `{"`), `"`)
		inner := strings.TrimSuffix(strings.TrimPrefix(e.body, "{"), "}")
		typed := func(ct string) func(*http.Request) { return func(r *http.Request) { r.Header.Set("Content-Type", ct) } }
		for _, c := range []struct {
			name, body string
			status     []int
			field      string
			tweak      func(*http.Request)
		}{
			{name: "duplicate", body: "{" + inner + "," + inner + "}", status: []int{400}},
			{name: "case variant beside", body: `{` + inner + `,"` + strings.ToUpper(name) + `":1}`, status: []int{400}},
			{name: "case variant alone", body: strings.Replace(e.body, `"`+name+`"`, `"`+strings.ToUpper(name[:1])+name[1:]+`"`, 1), status: []int{400}, field: strings.ToUpper(name[:1]) + name[1:]},
			{name: "unknown field", body: `{` + inner + `,"wat":1}`, status: []int{400}, field: "wat"},
			{name: "trailing data", body: e.body + `{}`, status: []int{400}},
			{name: "not JSON", body: `reason=x`, status: []int{400}},
			{name: "not an object", body: `["x"]`, status: []int{400}},
			{name: "null", body: `null`, status: []int{400}},
			{name: "cut", body: e.body[:len(e.body)-1], status: []int{400}},
			{name: "invalid UTF-8", body: "{\"" + name + "\":\"\xff\"}", status: []int{400}},
			{name: "byte order mark", body: "\ufeff" + e.body, status: []int{400}},
			{name: "deep", body: `{"` + name + `":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, status: []int{400}},
			{name: "wrong type", body: `{"` + name + `":17}`, status: []int{400, 422}},
			{name: "huge", body: `{"` + name + `":"` + strings.Repeat("x", 4<<20) + `"}`, status: []int{413}},
			{name: "text", body: e.body, status: []int{415}, tweak: typed("text/plain")},
			{name: "form", body: e.body, status: []int{415}, tweak: typed("application/x-www-form-urlencoded")},
			{name: "no type", body: e.body, status: []int{415}, tweak: typed("")},
			{name: "other charset", body: e.body, status: []int{415}, tweak: typed("application/json; charset=utf-16")},
			{name: "compressed", body: e.body, status: []int{415}, tweak: func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }},
			{name: "two types", body: e.body, status: []int{400}, tweak: func(r *http.Request) { r.Header.Add("Content-Type", "text/plain") }},
			{name: "unknown parameter", body: e.body, status: []int{422}, field: "wat", tweak: func(r *http.Request) { r.URL.RawQuery = "wat=1" }},
		} {
			if c.name == "huge" && strings.HasPrefix(e.path, "/v1/knowledge/documents") {
				continue // a document can be larger: TestHostileFiles in test/e2e
			}
			tweak := c.tweak
			if tweak == nil {
				tweak = func(*http.Request) {}
			}
			a := w.send(server, e.method, e.url("self"), tokens[server], c.body, tweak)
			p := a.problem(t)
			if strings.HasSuffix(e.path, "/declarations") && slices.Contains([]string{"case variant alone", "unknown field", "wrong type"}, c.name) {
				undeclarable++
				if a.status != 422 || p.Code != "declaration.invalid" || len(p.Errors) < 4 || c.field != "" && p.Errors[0].Field != c.field {
					t.Errorf("a declaration with %s: %d %.300s", c.name, a.status, a.body)
				}
				continue
			}
			if strings.HasPrefix(e.path, "/v1/session/") && strings.HasSuffix(e.path, "/recommendations") && slices.Contains([]string{"case variant alone", "unknown field", "wrong type"}, c.name) {
				if a.status != 422 || p.Code != "output.invalid" { // the agent's own schema says what its fields are
					t.Errorf("an output with %s: %d %.300s", c.name, a.status, a.body)
				}
				continue
			}
			if !slices.Contains(c.status, a.status) || c.field != "" && p.Field != c.field || p.Code != "request.malformed" {
				t.Errorf("%s %s with %s: %d %.300s", e.method, e.path, c.name, a.status, a.body)
			}
			if strings.Contains(a.body, "xxxxxxxx") {
				t.Errorf("%s %s with %s: the value is echoed", e.method, e.path, c.name)
			}
		}
	}
	entries, _, err := w.store.Entries(t.Context(), audit.Filter{Min: before, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	declared := int64(0)
	for _, e := range entries { // the doors' are written behind the answers
		switch {
		case e.Kind == audit.Decision && e.Action == "request" && e.Decision == "deny" && e.Stage == "door" && e.Code == "request.malformed" && e.Agent == "worker":
		case e.Kind == audit.Decision && e.Action == "request" && e.Decision == "deny" && e.Stage == "door" && e.Code == "output.invalid" && strings.HasSuffix(e.Operation, "/recommendations"):
		case e.Kind == audit.Decision && e.Action == "declare" && e.Decision == "deny":
			declared++
		default:
			t.Errorf("a malformed request came to more than a refusal: %+v", e)
		}
	}
	if undeclarable != 3 || declared != 3 {
		t.Errorf("%d entries of %d declarations", declared, undeclarable)
	}
}

// TestPlainRequests stages mcp-075: neither Host nor the spelling of a path nor a header opens anything.
func TestPlainRequests(t *testing.T) {
	w := newWorld(t)
	token := w.token(identity.Person, "root", identity.Admin)
	host := func(h string) func(*http.Request) { return func(r *http.Request) { r.Host = h } }
	header := func(name string, values ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header[name] = values }
	}
	path := func(p string) func(*http.Request) { return func(r *http.Request) { r.URL.Opaque = p } }
	for _, c := range []struct {
		name   string
		tweak  func(*http.Request)
		status int
	}{
		{"another host", host("evil.example"), 421},
		{"another host with our port", host("evil.example:7576"), 421},
		{"a host that begins like ours", host("127.0.0.1.evil.example"), 421},
		{"an address that is not loopback", host("192.0.2.1"), 421},
		{"localhost", host("localhost:1234"), 200},
		{"IPv6 loopback", host("[::1]:1234"), 200},
		{"X-Forwarded-Host", header("X-Forwarded-Host", "evil.example"), 200},
		{"double slash", func(r *http.Request) { r.URL.Path = "//v1/sessions" }, 400},
		{"escaped dots", path("/v1/%2e%2e/v1/sessions"), 400},
		{"escaped slash", path("/v1%2fsessions"), 400},
		{"escaped letter", path("/v1/%73essions"), 400},
		{"dots", path("/v1/../v1/sessions"), 400},
		{"trailing slash", path("/v1/sessions/"), 400},
		{"backslash", path(`/v1\sessions`), 400},
		{"escaped backslash", path("/v1%5Csessions"), 400},
		{"escaped NUL", path("/v1/sessions%00"), 400},
		{"two credentials", header("Authorization", "Bearer "+token, "Bearer "+token), 400},
		{"another origin", func(r *http.Request) { r.Method = "POST"; r.Header.Set("Origin", "https://evil.example") }, 403},
		{"another site", func(r *http.Request) { r.Method = "POST"; r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		{"parameter twice", func(r *http.Request) { r.URL.RawQuery = "limit=1&limit=2" }, 400},
		{"semicolons", func(r *http.Request) { r.URL.RawQuery = "limit=1;limit=2" }, 400},
	} {
		a := w.send(w.admin, "GET", "/v1/sessions", token, "", c.tweak)
		if a.status != c.status {
			t.Errorf("%s: %d %.200s", c.name, a.status, a.body)
		}
		if a.status != 200 {
			a.problem(t)
		}
		if a.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: CORS", c.name)
		}
	}
	for _, tweak := range []func(*http.Request){header("X-Http-Method-Override", "POST"), header("X-Http-Method", "DELETE"), header("X-Original-Url", "/healthz"), header("X-Rewrite-Url", "/healthz")} {
		if a := w.send(w.admin, "GET", "/agents/kill-switch/disable", token, "", tweak); a.status != 405 || a.problem(t).Code != "request.malformed" || a.header.Get("Allow") != "POST" {
			t.Errorf("method override: %d %s", a.status, a.body)
		}
	}
	for _, where := range []*httptest.Server{w.agent, w.admin} {
		if a := w.send(where, "GET", "/admin", "", ""); a.status != 404 || a.problem(t).Code != "not_found" {
			t.Errorf("unknown path: %d %s", a.status, a.body)
		}
	}
	if a := w.send(w.agent, "GET", "/v1/sessions", token, ""); a.status != 404 {
		t.Errorf("the people's side on the agents' listener: %d", a.status)
	}
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"} {
		if got := w.send(w.admin, "GET", "/healthz", "", "").header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestNoEcho: what was wrong is said without repeating it, since it can be a secret in the wrong field.
func TestNoEcho(t *testing.T) {
	w := newWorld(t)
	token := w.token(identity.Person, "root", identity.Admin)
	for path, body := range map[string]string{
		"/v1/sessions/x/phase":                   `{"phase":"spt_person_secret"}`,
		"/v1/tokens":                             `{"kind":"spt_person_secret","id":"x"}`,
		"/v1/sessions/x/release":                 `{"labels":"spt_person_secret","reason":"x"}`,
		"/v1/sessions/x/close?reason=spt_person": `{}`,
	} {
		a := w.send(w.admin, "POST", path, token, body)
		if p := a.problem(t); a.status != 422 || len(p.Errors) == 0 || p.Field == "" || strings.Contains(a.body, "spt_person") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// TestRolesOfToday: a token opens no more than its person's roles in the configuration.
func TestRolesOfToday(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		person string
		roles  []identity.Role
		path   string
		status int
	}{
		{"bob", []identity.Role{identity.Viewer, identity.Auditor}, "/v1/sessions", 200},
		{"bob", []identity.Role{identity.Viewer, identity.Auditor}, "/v1/audit", 403},
		{"bob", []identity.Role{identity.Admin}, "/v1/tokens", 403},
		{"bob", []identity.Role{identity.Admin}, "/v1/sessions", 200},
		{"alice", []identity.Role{identity.Auditor}, "/v1/audit", 200},
		{"alice", []identity.Role{identity.Auditor}, "/v1/tokens", 403},
		{"carol", []identity.Role{identity.Auditor}, "/v1/audit", 200},
	} {
		if a := w.send(w.admin, "GET", c.path, w.token(identity.Person, c.person, c.roles...), ""); a.status != c.status {
			t.Errorf("%s with %v at %s: %d", c.person, c.roles, c.path, a.status)
		}
	}
}

// TestTrouble: a panic and a store that fails cost one answer, which says nothing of why.
func TestTrouble(t *testing.T) {
	w := newWorld(t)
	if a := w.send(w.admin, "GET", "/readyz", "", ""); a.status != 200 {
		t.Errorf("ready: %d %s", a.status, a.body)
	}
	for code, f := range map[string]func() error{
		"internal":          func() error { panic("tea in the disk of /secret/place") },
		"store.unavailable": func() error { return errors.New("tea in the disk of /secret/place") },
	} {
		w.store.mu.Lock()
		w.store.ready = f
		w.store.mu.Unlock()
		a := w.send(w.admin, "GET", "/readyz", "", "")
		if p := a.problem(t); p.Code != code || a.status < 500 || strings.Contains(a.body, "secret") {
			t.Errorf("%s: %d %s", code, a.status, a.body)
		}
	}
	if a := w.send(w.admin, "GET", "/healthz", "", ""); a.status != 200 {
		t.Errorf("alive: %d", a.status)
	}
}

// TestKillWithBlockedStore: the switch answers at once and calls are refused while the store takes nothing.
func TestKillWithBlockedStore(t *testing.T) {
	w := newWorld(t)
	people, agents := w.root(), w.client(w.agent, w.token(identity.Agent, "worker"))
	if a, err := agents.Call(t.Context(), client.Own, "think", nil); err != nil || a.Verdict.Decision != "permit" {
		t.Fatal(a, err)
	}
	block := make(chan struct{})
	w.store.mu.Lock()
	w.store.block = block
	w.store.mu.Unlock()
	// No call below may wait for the store: the test would hang, since only its end unblocks it.
	st, err := people.Kill(t.Context(), "worker", "it ran wild")
	if err != nil {
		t.Fatal(err)
	}
	if s := st.Agents["worker"]; !s.Active || s.Durable || s.Reason != "it ran wild" || s.By != "person:root" || s.Since.IsZero() || st.Global.Active || !st.Global.Since.IsZero() ||
		len(st.Replicas) != 1 || st.Replicas[0].Epoch != st.Epoch || st.Epoch == 0 {
		t.Errorf("status %+v", st)
	}
	before := w.up.count()
	a, err := agents.Call(t.Context(), client.Own, "think", nil)
	if err != nil || a.Verdict.Code != "kill_switch.active" || a.Verdict.Status != "SKIPPED" || a.Verdict.Reason != "KILL_SWITCH_ACTIVE" || a.Verdict.Timestamp == nil || a.Result != nil {
		t.Errorf("call: %+v %v", a, err)
	}
	if w.up.count() != before {
		t.Error("the call reached the server")
	}
	if st, err = people.Kill(t.Context(), "", ""); err != nil || !st.Global.Active || st.Global.Durable {
		t.Errorf("global: %+v %v", st, err)
	}
	token := w.token2(block)
	for _, path := range []string{"/agents/kill-switch/enable", "/agents/kill-switch/enable/worker", "/agents/kill-switch/disable/never-declared"} {
		if a := w.send(w.admin, "POST", path, token, ""); a.status != 200 { // an empty body is reason ""
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := w.send(w.admin, "POST", "/agents/kill-switch/disable/-bad", token, ""); a.status != 400 {
		t.Errorf("bad id: %d %s", a.status, a.body)
	}
	if a, err := agents.Call(t.Context(), client.Own, "think", nil); err != nil || a.Verdict.Decision != "permit" {
		t.Errorf("switched on again: %+v %v", a, err)
	}
}

// token2 lets the store go on, and makes a token.
func (w *world) token2(block chan struct{}) string {
	w.store.mu.Lock()
	w.store.block = nil
	w.store.mu.Unlock()
	close(block)
	return w.token(identity.Person, "oper", identity.Operator)
}

// FuzzBody: whatever is sent is answered in JSON, never with an internal error.
func FuzzBody(f *testing.F) {
	for _, e := range endpoints {
		f.Add([]byte(e.body))
	}
	f.Add([]byte(`{"tool":"think","arguments":{"a":1},"wat":1}`))
	f.Add([]byte(`{"tool":"think","arguments":[1]}`))
	f.Add([]byte(`{"planned_calls":[{"tool":"think","after":[7]}]}`))
	f.Add([]byte(`{"operation":"comm.fetch","parameters":{"url":"https://docs.example/"},"justification":{"user_request":"x"},"phase":"planning","session_id":1}`))
	w := newWorld(f)
	token := w.token(identity.Agent, "worker")
	h := w.api.Agent()
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{"/validate-plan", "/plan", "/check", "/declarations"} {
			r := httptest.NewRequest("POST", "http://127.0.0.1/v1/session/self"+path, bytes.NewReader(body))
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, w.agent.Listener.Addr()))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+token)
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			if rec.Code >= 500 || !json.Valid(rec.Body.Bytes()) {
				t.Errorf("%s: %d %s", path, rec.Code, rec.Body)
			}
		}
	})
}

// A proxy before the people's side may pass on the host that public_url names, and no other; the agents' side has no such host.
func TestPublicHost(t *testing.T) {
	w := newWorld(t)
	api := httpapi.New(w.g, w.store, httpapi.Options{
		Agents: func() agent.Set { return agent.NewSet() }, People: nobody, Public: "https://gate.example", Upstreams: func() []console.ServerStatus { return nil },
	})
	t.Cleanup(api.Close)
	people, agents := httptest.NewServer(api.Admin()), httptest.NewServer(api.Agent())
	t.Cleanup(people.Close)
	t.Cleanup(agents.Close)
	for _, c := range []struct {
		side   *httptest.Server
		host   string
		status int
	}{{people, "gate.example", 200}, {people, "GATE.example", 200}, {people, "gate.example:7576", 421}, {people, "x.gate.example", 421}, {people, "", 200}, {agents, "gate.example", 421}} {
		a := w.send(c.side, "GET", "/healthz", "", "", func(r *http.Request) { r.Host = c.host })
		if a.status != c.status {
			t.Errorf("%q: %d %.100s", c.host, a.status, a.body)
		}
	}
}
