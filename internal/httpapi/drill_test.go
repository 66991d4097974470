package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/flow"
	"sallyport.example/guard"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/console"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/gateway/gatewaytest"
	"sallyport.example/internal/httpapi"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/store"
	"sallyport.example/internal/threat"
	"sallyport.example/provenance"
)

func newDrillWorld(t testing.TB) *world {
	t.Helper()
	var declared []agent.Declaration
	for id, d := range map[string]string{
		"worker":  fmt.Sprintf(declaration, "worker", "execution", "host"),
		"planner": fmt.Sprintf(declaration, "planner", "planning", "host"),
		"selfish": fmt.Sprintf(declaration, "selfish", "execution", "self"),
	} {
		one, problems := agent.Parse(id+".yaml", []byte(d))
		if one.Digest == "" {
			t.Fatalf("declaration: %v", problems)
		}
		declared = append(declared, one)
	}
	set := agent.NewSet(declared...)
	policies, err := policy.Load("")
	if err != nil {
		t.Fatal(err)
	}
	detector, err := threat.New()
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := guard.NewIssuer([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(gatewaytest.DataDir(t, t.TempDir()), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, store: &brittle{DB: db}, up: &upstreams{wait: map[string]chan struct{}{}}, clock: &clock{}}
	w.g, err = gateway.New(t.Context(), gateway.Options{
		Store: w.store, Upstreams: w.up, Agents: set, Policies: policies, Detector: detector, Issuer: issuer, Classify: classify,
		Labels: []flow.Label{"internal", "pii", "secret"}, Unlisted: catalogue.Unlisted, Mode: gateway.Enforce,
		Limits:   gateway.Limits{CallsPerMinute: 10_000, CommRequestsPerMinute: 1000, Budget: 300 * time.Second, ApprovalExpires: time.Minute, MediumDelay: 20 * time.Millisecond, DrillEvery: 1},
		Draw:     func(int) int { return 0 },
		Commands: []catalogue.Command{command("fetch", flow.Read, 0), command("exec", flow.Write, 2), command("wire", flow.Write, 2)},
		Tiers:    gateway.Tiers(), Voter: voter,
		Schema: func(json.RawMessage) (func([]byte) error, error) { return func([]byte) error { return nil }, nil },
		Clock:  w.clock.now,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range []string{"mail", "web", "slack", "docs"} {
		var defs []call.Definition
		for _, id := range slices.Sorted(maps.Keys(classes)) {
			if s, tool, _ := strings.Cut(id, "."); s == server {
				defs = append(defs, definition(server, tool, "A tool."))
			}
		}
		if err := w.g.Catalogue().UpdateDefinitions(t.Context(), server, defs); err != nil {
			t.Fatal(err)
		}
	}
	w.servers = []console.ServerStatus{{ID: "mail", State: "ready", Protocol: "2025-11-25", Name: "Mail", Version: "1", Instructions: "i", LastError: "e", Restarts: 1, Definitions: 1, Since: time.Now()}}
	w.api = httpapi.New(w.g, w.store, httpapi.Options{
		Version: "test", Agents: set, Clock: w.clock.now,
		People:    map[string][]identity.Role{"bob": {identity.Viewer, identity.Operator}, "alice": {identity.Admin}},
		Upstreams: func() []console.ServerStatus { return w.servers },
		Source:    func(ctx context.Context) (audit.Source, error) { return db.Source(ctx) },
	})
	w.agent, w.admin = httptest.NewServer(w.api.Agent()), httptest.NewServer(w.api.Admin())
	t.Cleanup(func() {
		w.api.Close()
		w.agent.Close()
		w.admin.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(w.g.Close(ctx), db.Close()); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return w
}

// A drill is not to be told from a request before it is answered: not on its page, not in the API, not in the session's timeline.
func TestDrillsLookLikeRequests(t *testing.T) {
	was := classes["slack.post"]
	classes["slack.post"] = catalogue.Classification{ExposeAs: "slack_post", Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Write}, Output: provenance.TrustedOutput, Level: 2,
		Action: "transfer_money", RiskFloor: policy.High, Roles: map[string]string{"to": "destination", "sum": "amount"}}
	t.Cleanup(func() { classes["slack.post"] = was })
	w := newDrillWorld(t)
	c, session := w.open("dora")
	real := w.askRaw(c, map[string]any{"to": "bo@example.com", "sum": 5000})
	open, err := w.g.Desk().Questions(t.Context(), approval.Pending, session, "", 10)
	if err != nil || len(open) != 2 {
		t.Fatalf("%d, %v", len(open), err)
	}
	drill := open[0].ID
	if drill == real {
		drill = open[1].ID
	}
	carol := w.browser("carol", identity.Approver, identity.Viewer)
	to := map[string]string{}
	for _, q := range open {
		to[q.ID], _ = strings.CutPrefix(string(q.Arguments), `{"sum":5000,"to":"`)
		to[q.ID] = strings.TrimSuffix(to[q.ID], `"}`)
	}
	same := func(id, s string) string {
		s = strings.ReplaceAll(strings.ReplaceAll(s, to[id], "TO"), id, "ID")
		return regexp.MustCompile(`[0-9a-f]{64}|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?|\d+ (s|min)\b|[0-9a-f]{32}|delay:\d+s|\d+ characters`).ReplaceAllString(s, "#")
	}
	differ := func(what, a, b string) {
		t.Helper()
		x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
		for i := range min(len(x), len(y)) {
			if x[i] != y[i] {
				t.Errorf("%s: the request has\n%.400s\nthe drill\n%.400s", what, x[i], y[i])
				return
			}
		}
		if len(x) != len(y) {
			t.Errorf("%s: %d lines, %d of the drill", what, len(x), len(y))
		}
	}
	nav := regexp.MustCompile(`(?s)<nav aria-label="Requests".*?</nav>`)
	differ("page", nav.ReplaceAllString(same(real, carol.get("/approvals/"+real).body), ""), nav.ReplaceAllString(same(drill, carol.get("/approvals/"+drill).body), ""))
	token := w.token(identity.Person, "carol", identity.Approver)
	keys := func(id string) string {
		var m map[string]json.RawMessage
		if err := json.Unmarshal([]byte(w.send(w.admin, "GET", "/v1/approvals/"+id, token, "").body), &m); err != nil {
			t.Fatal(err)
		}
		return strings.Join(slices.Sorted(maps.Keys(m)), "\n")
	}
	differ("API", keys(real), keys(drill))
	body := carol.get("/sessions/" + session).body
	row := func(id string) string {
		at := strings.Index(body, "/approvals/"+id+"\">request")
		if at < 0 {
			t.Fatal("not in the timeline")
		}
		from, to := strings.LastIndex(body[:at], "<tr"), strings.Index(body[at:], "</tr>")
		s := same(id, body[from:at+to])
		s = regexp.MustCompile(`id="n\d+"|<th.*?</th>`).ReplaceAllString(s, "")
		return s
	}
	differ("timeline", row(real), row(drill))
	// The agent is not told either.
	st, err := c.Status(t.Context(), session)
	if err == nil {
		b, _ := json.Marshal(st)
		if strings.Contains(string(b), drill) {
			t.Errorf("the agent is told of the drill: %s", st.PendingApprovals)
		}
	}
}

// Who approved a drill and is told so can't make it a rejection afterwards: the figure is of what people did before they knew.
func TestAnswerToADrillIsNotTakenBack(t *testing.T) {
	was := classes["slack.post"]
	classes["slack.post"] = catalogue.Classification{ExposeAs: "slack_post", Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Write}, Output: provenance.TrustedOutput, Level: 2,
		RiskFloor: policy.High, Roles: map[string]string{"to": "destination"}}
	t.Cleanup(func() { classes["slack.post"] = was })
	w := newDrillWorld(t)
	c, session := w.open("dora")
	real := w.askRaw(c, map[string]any{"to": "bo@example.com"})
	open, err := w.g.Desk().Questions(t.Context(), approval.Pending, session, "", 10)
	if err != nil || len(open) != 2 {
		t.Fatalf("%d, %v", len(open), err)
	}
	carol := w.client(w.admin, w.token(identity.Person, "carol", identity.Approver))
	for _, q := range open {
		if q.ID == real {
			continue
		}
		if _, err := carol.Approve(t.Context(), q.ID, q.Digest, ""); err != nil {
			t.Fatal(err)
		}
		if told, err := carol.Approval(t.Context(), q.ID); err != nil || !told.Drill {
			t.Fatalf("not told: %v", err)
		}
		_, err := carol.Reject(t.Context(), q.ID, q.Digest, "oh, a drill")
		t.Log(err)
	}
	if n, err := w.g.Desk().Drills(t.Context()); err != nil || n.Approved != 1 || n.Rejected != 0 {
		t.Errorf("one drill was approved: %+v, %v", n, err)
	}
}
