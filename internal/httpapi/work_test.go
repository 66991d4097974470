package httpapi_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"sallyport.example/client"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/gateway/gatewaytest"
	"sallyport.example/internal/identity"
)

func code(err error) string {
	var p *client.Problem
	if errors.As(err, &p) {
		return p.Code
	}
	return ""
}

// TestAgentAtWork is a session from its opening by a host to its end: manifest, refused plan, good plan, calls, a refusal at run time.
func TestAgentAtWork(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	host := w.client(w.agent, w.token(identity.Host, "laptop"))
	opened, err := host.Open(ctx, client.OpenSession{AgentID: "planner", UserRequest: "find it", Requester: "bob"})
	if err != nil {
		t.Fatal(err)
	}
	if opened.Phase != "planning" || opened.SystemPrompt == "" || opened.SystemPrompt != opened.Manifest.SystemPrompt || opened.Manifest.SessionID != opened.SessionID {
		t.Errorf("opened %+v", opened)
	}
	c := w.client(w.agent, opened.SessionToken)
	m, err := c.Manifest(ctx, client.Own)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(m.Tools, func(t client.ManifestTool) bool { return t.Name == "search_email" })
	if i < 0 || !slices.Contains(m.Tools[i].Blocks, "web_search") || m.Tools[i].Consequence == "" {
		t.Errorf("manifest %+v", m)
	}
	if v, err := c.Check(ctx, client.Own, "web_search", nil); err != nil || v.Code != "phase.blocked" || v.RequestID == "" {
		t.Errorf("check: %+v %v", v, err)
	}
	r, err := c.ValidatePlan(ctx, opened.SessionID, []client.PlannedCall{{Tool: "search_email"}, {Tool: "web_search"}})
	if err != nil || r.Valid || len(r.Violations) != 1 || r.Violations[0].AtStep != 1 || !slices.Equal(r.SafeOrdering, []string{"web_search", "search_email"}) {
		t.Errorf("validate: %+v %v", r, err)
	}
	if a := w.send(w.agent, "POST", "/v1/session/self/validate-plan", opened.SessionToken, `{"planned_calls":["search_email",{"tool":"web_search","after":[0]}]}`); a.status != 200 ||
		!strings.Contains(a.body, `"safe_ordering":null`) || !strings.Contains(a.body, `"impossible"`) {
		t.Errorf("validate, as text: %d %s", a.status, a.body)
	}
	p, err := c.SubmitPlan(ctx, client.Own, []client.PlanStep{{Tool: "web_search", Justification: "a"}, {Tool: "search_email", Justification: "b", After: []int{0}}})
	if err != nil || p.State != "approved" || p.Phase != "execution" || p.Digest == "" || len(p.Steps) != 2 || p.Steps[0].Verdict.Decision != "permit" {
		t.Fatalf("plan: %+v %v", p, err)
	}
	web, err := c.Call(ctx, client.Own, "web_search", json.RawMessage(`{"query":"x"}`))
	if err != nil || web.Verdict.Decision != "permit" || !strings.HasPrefix(web.CallID, "call_") {
		t.Fatalf("call: %+v %v", web, err)
	}
	if a := w.send(w.agent, "GET", "/v1/session/self/calls/"+web.CallID, opened.SessionToken, ""); a.status != 200 || !strings.Contains(a.body, `"state":"done"`) {
		t.Errorf("outcome: %d %s", a.status, a.body)
	}
	if _, err := c.Call(ctx, client.Own, "search_email", nil); err != nil {
		t.Fatal(err)
	}
	refused, err := c.Call(ctx, opened.SessionID, "web_search", nil)
	if err != nil || refused.Verdict.Code != "flow.contaminated" || len(refused.Verdict.Because) == 0 || refused.Verdict.Because[0].Label != "internal" || refused.Result != nil {
		t.Errorf("contaminated: %+v %v", refused, err)
	}
	out, err := c.Outcome(ctx, client.Own, refused.CallID, time.Second)
	if err != nil || out.State != "refused" || out.Verdict == nil || out.Verdict.Code != "flow.contaminated" {
		t.Errorf("outcome of a refusal: %+v %v", out, err)
	}
	st, err := host.Status(ctx, opened.SessionID)
	if err != nil || st.Requester != "bob" || st.Plan == nil || st.Plan.PlanID != p.PlanID || st.BudgetLeftMS == 0 || !slices.ContainsFunc(st.Labels, func(h client.Held) bool { return h.Label == "internal" && h.Operation == "mail.search_email" }) {
		t.Errorf("status: %+v %v", st, err)
	}

	// What is not theirs does not exist.
	other := w.client(w.agent, w.token(identity.Host, "desk"))
	if _, err := other.Status(ctx, opened.SessionID); code(err) != "not_found" {
		t.Errorf("another host: %v", err)
	}
	if _, err := other.Call(ctx, opened.SessionID, "think", nil); code(err) != "not_found" {
		t.Errorf("another host calls: %v", err)
	}
	if _, err := other.Call(ctx, client.Own, "think", nil); code(err) != "credential.wrong_kind" {
		t.Errorf("a host has no session of its own: %v", err)
	}
	if _, err := w.client(w.agent, w.token(identity.Agent, "worker")).Outcome(ctx, client.Own, web.CallID, 0); code(err) != "not_found" {
		t.Errorf("a call of another session: %v", err)
	}
	if _, err := c.Call(ctx, client.Own, "think", json.RawMessage(`[1]`)); code(err) != "request.malformed" {
		t.Errorf("arguments that are no object: %v", err)
	}
	if _, err := c.Open(ctx, client.OpenSession{AgentID: "planner"}); code(err) != "credential.wrong_kind" {
		t.Errorf("a session opens a session: %v", err)
	}
	if _, err := c.Outcome(ctx, client.Own, web.CallID, time.Hour); code(err) != "request.malformed" {
		t.Errorf("an hour's wait: %v", err)
	}
}

// TestOutcomes: an answer is kept as it was released; where it may not be released any more, or is not kept, the log's word stands, and
// the log's raw result never reaches an agent.
func TestOutcomes(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	c, people := w.client(w.agent, w.token(identity.Agent, "worker")), w.root()
	web, err := c.Call(ctx, client.Own, "web_search", nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := c.Outcome(ctx, client.Own, web.CallID, 0)
	if err != nil || again.State != "done" || string(again.Result) != string(web.Result) || !strings.Contains(string(web.Result), "sallyport/attribution") {
		t.Errorf("again: %+v %v", again, err)
	}
	if _, err := people.Kill(ctx, "worker", ""); err != nil {
		t.Fatal(err)
	}
	if again, err = c.Outcome(ctx, client.Own, web.CallID, 0); err != nil || again.Result != nil || again.State != "done" {
		t.Errorf("past the kill switch: %+v %v", again, err)
	}
	killed, err := c.Call(ctx, client.Own, "web_search", nil)
	if err != nil || killed.Verdict.Code != "kill_switch.active" {
		t.Fatal(killed, err)
	}
	if _, err := people.Unkill(ctx, "worker", ""); err != nil {
		t.Fatal(err)
	}
	for range 256 { // the first answer is kept no longer
		if _, err := c.Call(ctx, client.Own, "think", nil); err != nil {
			t.Fatal(err)
		}
	}
	again, err = c.Outcome(ctx, client.Own, web.CallID, 0)
	if err != nil || again.State != "done" || again.Verdict.Decision != "permit" || again.Result != nil {
		t.Errorf("from the log: %+v %v", again, err)
	}
	if _, err := c.Outcome(ctx, client.Own, "call_0", 0); code(err) != "not_found" {
		t.Errorf("no such call: %v", err)
	}
	opened, err := people.StartSession(ctx, client.OpenSession{AgentID: "worker"})
	if err != nil {
		t.Fatal(err)
	}
	own := w.client(w.agent, opened.SessionToken)
	last, err := own.Call(ctx, client.Own, "think", nil)
	if err != nil || last.Result == nil {
		t.Fatal(last, err)
	}
	if _, err := people.CloseSession(ctx, opened.SessionID, ""); err != nil {
		t.Fatal(err)
	}
	if out, err := own.Outcome(ctx, client.Own, last.CallID, 0); err != nil || out.State != "done" || out.Result != nil {
		t.Errorf("in a closed session: %+v %v", out, err)
	}
	tokens, err := people.Tokens(ctx)
	if err != nil || len(tokens) == 0 {
		t.Fatal(err)
	}
	for _, tok := range tokens { // its entry stands under a call id and in the session, too, and is none
		if _, err := own.Outcome(ctx, client.Own, tok.TokenID, 0); code(err) != "not_found" {
			t.Errorf("a token as a call: %v", err)
		}
	}
}

// TestWaiting: a request for the outcome of a running call is answered when the call ends, and when the server drains.
func TestWaiting(t *testing.T) {
	for _, drain := range []bool{false, true} {
		w := newWorld(t)
		ctx := t.Context()
		release := make(chan struct{})
		w.up.wait["think"] = release
		c := w.client(w.agent, w.token(identity.Agent, "worker"))
		if _, err := c.Status(ctx, client.Own); err != nil {
			t.Fatal(err)
		}
		called := make(chan error, 1)
		go func() { _, err := c.Call(ctx, client.Own, "think", nil); called <- err }()
		id := ""
		for id == "" { // the intent is durable before the server sees the call
			entries, _, err := w.store.Entries(ctx, audit.Filter{Kind: "intent"})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				id = e.CallID
			}
		}
		if out, err := c.Outcome(ctx, client.Own, id, 0); err != nil || out.State != "running" || out.Verdict != nil {
			t.Errorf("running: %+v %v", out, err)
		}
		if out, err := c.Outcome(ctx, client.Own, id, time.Millisecond); err != nil || out.State != "running" {
			t.Errorf("waited: %+v %v", out, err)
		}
		waited := make(chan *client.CallOutcome, 1)
		go func() {
			out, err := c.Outcome(ctx, client.Own, id, 55*time.Second)
			if err != nil {
				t.Error(err)
			}
			waited <- out
		}()
		want := "done"
		if drain {
			w.api.Close()
			w.api.Close()
			want = "running"
			if out := <-waited; out == nil || out.State != want {
				t.Errorf("drained: %+v", out)
			}
			close(release)
		} else {
			close(release)
			if out := <-waited; out == nil || out.State != want {
				t.Errorf("ended: %+v", out)
			}
		}
		if err := <-called; err != nil {
			t.Error(err)
		}
	}
}

// TestPeopleAtWork walks what a person does with sessions, tools, agents, servers and tokens.
func TestPeopleAtWork(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	c := w.root()
	opened, err := c.StartSession(ctx, client.OpenSession{AgentID: "planner", UserRequest: "x", Labels: []string{"internal"}})
	if err != nil || opened.SessionToken == "" {
		t.Fatal(err)
	}
	id := opened.SessionID
	for range 3 {
		if _, err := c.StartSession(ctx, client.OpenSession{AgentID: "worker"}); err != nil {
			t.Fatal(err)
		}
	}
	var seen []string
	for q := (client.SessionQuery{Limit: 3}); ; {
		page, err := c.Sessions(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page.Sessions {
			seen = append(seen, s.SessionID)
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	if len(seen) != 4 || seen[3] != id || len(slices.Compact(slices.Sorted(slices.Values(seen)))) != 4 {
		t.Errorf("pages: %v", seen)
	}
	if s, err := c.SetPhase(ctx, id, "execution", "go"); err != nil || s.Phase != "execution" {
		t.Errorf("phase: %+v %v", s, err)
	}
	if _, err := c.SetPhase(ctx, id, "lunch", ""); code(err) != "request.malformed" {
		t.Errorf("phase lunch: %v", err)
	}
	if _, err := c.Release(ctx, id, []string{"internal"}, " "); code(err) != "request.malformed" {
		t.Errorf("release without a reason: %v", err)
	}
	if s, err := c.Release(ctx, id, []string{"internal"}, "it was mine"); err != nil || len(s.Labels) != 0 {
		t.Errorf("release: %+v %v", s, err)
	}
	if _, err := c.ApprovePlan(ctx, id, "x", ""); code(err) != "conflict" {
		t.Errorf("no plan to approve: %v", err)
	}
	if _, err := c.RejectPlan(ctx, id, "x", ""); code(err) != "conflict" {
		t.Errorf("no plan to reject: %v", err)
	}
	if s, err := c.CloseSession(ctx, id, "done"); err != nil || s.State != "closed" || s.ClosedAt.IsZero() {
		t.Errorf("close: %+v %v", s, err)
	}
	if s, err := c.Session(ctx, id); err != nil || s.State != "closed" {
		t.Errorf("show: %+v %v", s, err)
	}
	if _, err := c.Session(ctx, ".."); code(err) != "not_found" {
		t.Errorf("dots: %v", err)
	}
	if page, err := c.Sessions(ctx, client.SessionQuery{State: "closed"}); err != nil || len(page.Sessions) != 1 {
		t.Errorf("closed ones: %+v %v", page, err)
	}

	changed := gatewaytest.Tool("web", "web_search", "Now with a twist.")
	if err := w.g.Catalogue().UpdateDefinitions(ctx, "web", []call.Definition{changed}); err != nil {
		t.Fatal(err)
	}
	find := func() client.Tool {
		tools, err := c.Tools(ctx)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(tools, func(t client.Tool) bool { return t.Operation == "web.web_search" })
		return tools[i]
	}
	if tool := find(); tool.Standing != "quarantined" || tool.PendingHash != changed.Hash || !strings.Contains(string(tool.Pending), "twist") {
		t.Errorf("tool: %+v", tool)
	}
	if _, err := c.AcceptTool(ctx, "web.web_search", "0000"); code(err) != "conflict" {
		t.Errorf("another hash: %v", err)
	}
	if tool, err := c.AcceptTool(ctx, "web.web_search", changed.Hash); err != nil || tool.Standing != "active" || tool.AcceptedBy != "person:root" || find().Standing != "active" {
		t.Errorf("accepted: %+v %v", tool, err)
	}
	unread := slices.DeleteFunc(func() []client.Tool { all, _ := c.Tools(ctx); return all }(), func(t client.Tool) bool { return !t.Unread })
	if len(unread) == 0 || unread[0].AcceptedBy != "rule:first-sight" {
		t.Fatalf("nothing was accepted by rule: %+v", unread)
	}
	results, err := c.AcceptTools(ctx, []client.Acceptance{{Operation: unread[0].Operation, DefinitionHash: unread[0].Hash}, {Operation: unread[0].Operation, DefinitionHash: "0000"}})
	if err != nil || len(results) != 2 || results[0].Problem != "" || !strings.Contains(results[1].Problem, "hash") {
		t.Errorf("accepted at once: %+v %v", results, err)
	}
	if servers, err := c.Servers(ctx); err != nil {
		t.Errorf("servers: %+v %v", servers, err)
	}
	if _, err := c.AcceptTool(ctx, "web.none", "0000"); code(err) != "not_found" {
		t.Errorf("no tool: %v", err)
	}

	if _, err := c.Kill(ctx, "worker", "x"); err != nil {
		t.Fatal(err)
	}
	agents, err := c.Agents(ctx)
	if err != nil || len(agents) != 3 || agents[0].AgentID != "planner" || agents[0].Killed || !agents[2].Killed || agents[2].Kill == nil || agents[0].Declaration != nil {
		t.Errorf("agents: %+v %v", agents, err)
	}
	if a, err := c.Agent(ctx, "worker"); err != nil || a.Standing != "approved" || !strings.Contains(string(a.Declaration), `"agentId":"worker"`) || a.Digest == "" {
		t.Errorf("agent: %+v %v", a, err)
	}
	if _, err := c.Agent(ctx, "nobody"); code(err) != "not_found" {
		t.Errorf("nobody: %v", err)
	}
	if servers, err := c.Servers(ctx); err != nil || len(servers) != 1 || servers[0].ID != "mail" || servers[0].State != "up" {
		t.Errorf("servers: %+v %v", servers, err)
	}

	for _, bad := range []struct {
		token client.NewToken
		code  string
		field string
	}{
		{client.NewToken{Kind: "agent", ID: "nobody"}, "agent.undeclared", "id"},
		{client.NewToken{Kind: "agent", ID: "worker", Roles: []string{"admin"}}, "request.malformed", "roles"},
		{client.NewToken{Kind: "session", ID: id}, "request.malformed", "kind"},
		{client.NewToken{Kind: "person", ID: "carol"}, "request.malformed", "roles"},
		{client.NewToken{Kind: "person", ID: "carol", Roles: []string{"king"}}, "request.malformed", "roles"},
		{client.NewToken{Kind: "person", ID: "bob", Roles: []string{"viewer", "admin"}}, "permission.denied", "roles"},
		{client.NewToken{Kind: "person", ID: "../x", Roles: []string{"viewer"}}, "request.malformed", "id"},
		{client.NewToken{Kind: "host", ID: "laptop", Expires: time.Now().Add(-time.Second)}, "request.malformed", "expires"},
	} {
		_, err := c.CreateToken(ctx, bad.token)
		var p *client.Problem
		if !errors.As(err, &p) || p.Code != bad.code || p.Field != bad.field {
			t.Errorf("token %+v: %v", bad.token, err)
		}
	}
	made, err := c.CreateToken(ctx, client.NewToken{Kind: "person", ID: "bob", Roles: []string{"viewer"}, Expires: time.Now().Add(time.Hour)})
	if err != nil || !strings.HasPrefix(made.Secret, "spt_person_") || made.Expires.IsZero() || !slices.Equal(made.Roles, []string{"viewer"}) {
		t.Fatalf("token: %+v %v", made, err)
	}
	if _, err := c.CreateToken(ctx, client.NewToken{Kind: "person", ID: "alice", Roles: []string{"auditor"}}); err != nil {
		t.Errorf("an admin may have less: %v", err)
	}
	bob := w.client(w.admin, made.Secret)
	if _, err := bob.Agents(ctx); err != nil {
		t.Errorf("bob: %v", err)
	}
	tokens, err := c.Tokens(ctx)
	if err != nil || !slices.ContainsFunc(tokens, func(t client.Token) bool { return t.TokenID == made.TokenID && t.ID == "bob" }) {
		t.Errorf("tokens: %+v %v", tokens, err)
	}
	if a := w.send(w.admin, "GET", "/v1/tokens", w.token(identity.Person, "r", identity.Admin), ""); strings.Contains(a.body, made.Secret) || strings.Contains(a.body, identity.HashSecret(made.Secret)) {
		t.Error("the list gives the secret away")
	}
	if err := c.RevokeToken(ctx, made.TokenID); err != nil {
		t.Error(err)
	}
	if _, err := bob.Agents(ctx); code(err) != "credential.missing" {
		t.Errorf("revoked: %v", err)
	}
	if err := c.RevokeToken(ctx, "tok_none"); code(err) != "not_found" {
		t.Errorf("no token: %v", err)
	}
}

// TestAudit queries the log, checks its proofs with another implementation, and verifies an export.
func TestAudit(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	agents, c := w.client(w.agent, w.token(identity.Agent, "worker")), w.root()
	for range 3 {
		if _, err := agents.Call(ctx, client.Own, "think", json.RawMessage(`{"about":"tea"}`)); err != nil {
			t.Fatal(err)
		}
	}
	first, err := c.Audit(ctx, client.AuditQuery{Agent: "worker", Action: "call", Kind: "intent", Limit: 2})
	if err != nil || len(first.Entries) != 2 || first.Next == nil || first.Entries[0].Arguments == nil || !strings.Contains(string(first.Entries[0].Arguments.Shown), "tea") {
		t.Fatalf("query: %+v %v", first, err)
	}
	rest, err := c.Audit(ctx, client.AuditQuery{Agent: "worker", Action: "call", Kind: "intent", After: first.Next})
	if err != nil || len(rest.Entries) != 1 || rest.Next != nil {
		t.Errorf("rest: %+v %v", rest, err)
	}
	if _, err := c.Audit(ctx, client.AuditQuery{Kind: "rumour"}); code(err) != "request.malformed" {
		t.Errorf("kind: %v", err)
	}
	for _, q := range []string{"?agent=a&agent=b", "?limit=0", "?limit=x", "?from=yesterday", "?agnet=worker"} {
		if a := w.send(w.admin, "GET", "/v1/audit"+q, w.token(identity.Person, "a", identity.Auditor), ""); a.status != 400 && a.status != 422 {
			t.Errorf("%s: %d", q, a.status)
		}
	}
	index := first.Entries[1].Index
	e, err := c.AuditEntry(ctx, index)
	if err != nil || e.CallID != first.Entries[1].CallID || len(e.Leaf) == 0 {
		t.Fatalf("entry: %+v %v", e, err)
	}
	if _, err := c.AuditEntry(ctx, 1<<40); code(err) != "not_found" {
		t.Errorf("no entry: %v", err)
	}
	note, err := c.AuditCheckpoint(ctx)
	if err != nil {
		t.Fatal(err)
	}
	key, err := audit.ParsePublicKey(w.store.Signer().PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	cp, err := audit.OpenCheckpoint(note, key)
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.AuditInclusion(ctx, index, cp.Size)
	if err != nil || p.Index != index || p.RootHash != cp.Root.String() {
		t.Fatalf("inclusion: %+v %v", p, err)
	}
	if err := tlog.CheckRecord(hashes(t, p.Hashes...), cp.Size, cp.Root, index, tlog.RecordHash(e.Leaf)); err != nil {
		t.Error(err)
	}
	k, err := c.AuditConsistency(ctx, 2, cp.Size)
	if err != nil {
		t.Fatal(err)
	}
	if err := tlog.CheckTree(hashes(t, k.Hashes...), cp.Size, cp.Root, 2, hashes(t, k.FromRoot)[0]); err != nil {
		t.Error(err)
	}
	if _, err := c.AuditInclusion(ctx, index, 1<<40); code(err) != "request.malformed" {
		t.Errorf("a log that is not there yet: %v", err)
	}
	token := w.token(identity.Person, "aud", identity.Auditor)
	for _, q := range []string{"", "?index=1&from=1", "?index=-1", "?index=x"} {
		if a := w.send(w.admin, "GET", "/v1/audit/proof"+q, token, ""); a.status != 400 && a.status != 422 {
			t.Errorf("proof%s: %d %s", q, a.status, a.body)
		}
	}

	tile := w.send(w.admin, "GET", "/tile/0/000.p/2", token, "")
	if tile.status != 200 || len(tile.body) != 64 || tile.body[:32] != string(leafHash(t, c, 0)) {
		t.Errorf("tile: %d, %d bytes", tile.status, len(tile.body))
	}
	bundle := w.send(w.admin, "GET", "/tile/entries/000.p/2", token, "")
	if leaves, err := audit.ParseBundle([]byte(bundle.body), 2); err != nil || tlog.RecordHash(leaves[0]) != tlog.Hash([]byte(tile.body[:32])) {
		t.Errorf("bundle: %d %v", bundle.status, err)
	}
	for _, path := range []string{"/tile/0/000", "/tile/9/000", "/tile/x", "/tile/entries/0", "/tile/0/000.p/256"} {
		if a := w.send(w.admin, "GET", path, token, ""); a.status != 404 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	if a := w.send(w.admin, "GET", "/checkpoint", token, ""); a.status != 200 || !strings.HasPrefix(a.body, w.store.Signer().Origin()+"\n") {
		t.Errorf("checkpoint: %d %s", a.status, a.body)
	}
	if _, err := c.AuditPayload(ctx, strings.Repeat("0", 64)); code(err) != "not_found" {
		t.Errorf("no payload: %v", err)
	}
	large := json.RawMessage(`{"about":"` + strings.Repeat("tea ", 20_000) + `"}`)
	if _, err := agents.Call(ctx, client.Own, "think", large); err != nil {
		t.Fatal(err)
	}
	stored, err := c.Audit(ctx, client.AuditQuery{Kind: "intent", Operation: "docs.think", After: first.Next})
	if err != nil {
		t.Fatal(err)
	}
	if last := stored.Entries[len(stored.Entries)-1].Arguments; !last.Stored {
		t.Errorf("stored: %+v", last)
	} else if b, err := c.AuditPayload(ctx, last.Key); err != nil || string(b) != string(large) {
		t.Errorf("payload: %d bytes, %v", len(b), err)
	}

	tar, err := c.AuditExport(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tar.Close()
	b, err := io.ReadAll(tar)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "log.tar")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	x, err := audit.OpenExport(name)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if _, err := audit.Verify(x, w.store.Signer().PublicKey(), note); err != nil {
		t.Errorf("the export: %v", err)
	}
}

func hashes(t *testing.T, base ...string) []tlog.Hash {
	t.Helper()
	var out []tlog.Hash
	for _, s := range base {
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil || len(b) != tlog.HashSize {
			t.Fatalf("%q is no hash: %v", s, err)
		}
		out = append(out, tlog.Hash(b))
	}
	return out
}

func leafHash(t *testing.T, c *client.Client, index int64) []byte {
	t.Helper()
	e, err := c.AuditEntry(t.Context(), index)
	if err != nil {
		t.Fatal(err)
	}
	h := tlog.RecordHash(e.Leaf)
	return h[:]
}

// TestOutcomeInTheArchive: who asks for the outcome of a call whose entries are in a file that was archived is told so, and not where that is.
func TestOutcomeInTheArchive(t *testing.T) {
	w := newWorld(t)
	opened, err := w.client(w.agent, w.token(identity.Host, "laptop")).Open(t.Context(), client.OpenSession{AgentID: "planner", UserRequest: "find it", Requester: "bob"})
	if err != nil {
		t.Fatal(err)
	}
	ask := func() string {
		a := w.send(w.agent, "GET", "/v1/session/self/calls/call_00000000000000000000000000", opened.SessionToken, "")
		if a.status != 404 {
			t.Errorf("%d %s", a.status, a.body)
		}
		return a.body
	}
	if body := ask(); strings.Contains(body, "archive") {
		t.Error(body)
	}
	w.store.gone = &audit.Archived{Before: 512, Files: []string{"sallyport.db, which was moved to /archive"}}
	if body := ask(); !strings.Contains(body, "Entries before 512, which may have it, were archived") || strings.Contains(body, "moved to") {
		t.Error(body)
	}
}
