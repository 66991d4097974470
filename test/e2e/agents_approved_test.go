package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/client"
)

// echoServer is a server with one tool.
func echoServer(t testing.TB) string {
	s := newServer("echo")
	tool(s, "say", "Says it.", func(_ context.Context, arguments json.RawMessage) (*mcp.CallToolResult, error) {
		return text("said"), nil
	})
	return serve(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
}

// TestDeclarationsAreApproved: the binary refuses an agent's calls until a person has approved its declaration, and after each change; connecting works all along.
func TestDeclarationsAreApproved(t *testing.T) {
	p := newPlace(t, "upstreams: {echo: {url: \""+echoServer(t)+"\"}}\noperations: {echo.say: {sensitivity: none, effect: read}}\n")
	p.leaveAgents = true
	w := launch(t, p)
	eventually(t, patience, "the start says it", func() bool {
		return strings.Contains(w.output.String(), "nobody has approved the declarations of tester")
	})
	w.acceptDefinitions(anyDefinition)
	_, session := w.open("tester")
	cs := w.connect(session, revision1125, nil)
	tools, err := cs.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) == 0 {
		t.Fatalf("connecting: %v %v", tools, err)
	}
	refused := func() *client.Verdict {
		t.Helper()
		r := must(t, cs, "echo_say", map[string]any{})
		if r.code() != "agent.unapproved" {
			t.Fatalf("%s: %s", r.code(), r.text())
		}
		return r.verdict
	}
	agent := func() *client.Agent {
		t.Helper()
		a, err := w.root.Agent(t.Context(), "tester")
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	v := refused()
	if a := agent(); v.Stage != "standing" || len(v.Remedies) != 1 || !strings.Contains(v.Remedies[0].Text, "sallyport agents approve tester --digest "+a.Digest) || a.Standing != "unapproved" {
		t.Errorf("%+v %+v", v, a)
	}
	if code, out, _ := cli(t, p, nil, "status", "--data", p.data); code != 0 || !strings.Contains(out, "1 agent's declaration (sallyport agents approve") {
		t.Errorf("status: %d %s", code, out)
	}
	if code, _, errs := cli(t, p, nil, "agents", "approve", "tester", "--digest", strings.Repeat("0", 64), "--data", p.data); code != 1 || !strings.Contains(errs, agent().Digest) {
		t.Errorf("another digest: %d %s", code, errs)
	}
	refused()
	if code, out, errs := cli(t, p, nil, "agents", "approve", "tester", "--digest", agent().Digest, "--data", p.data); code != 0 || !strings.Contains(out, "Approved by admin (their own)") {
		t.Errorf("approve: %d %s%s", code, out, errs)
	}
	if r := must(t, cs, "echo_say", map[string]any{}); r.code() != "" || !strings.Contains(r.text(), "said") {
		t.Errorf("approved: %s %s", r.code(), r.text())
	}

	// Layout is no change; one permission is.
	file := filepath.Join(p.dir, "agents", "a0.yaml")
	before := declaration("tester")
	write(t, file, "# a comment\n"+before)
	if _, err := w.root.Reload(t.Context()); err != nil || agent().Standing != "approved" {
		t.Errorf("layout: %v %s", err, agent().Standing)
	}
	write(t, file, strings.Replace(before, `write: ["*"]`, `write: ["mail.*"]`, 1))
	if _, err := w.root.Reload(t.Context()); err != nil || agent().Standing != "unapproved" {
		t.Errorf("a permission: %v %s", err, agent().Standing)
	}
	if v := refused(); !strings.Contains(v.Reason, "changed since admin") {
		t.Error(v.Reason)
	}
	if code, out, _ := cli(t, p, nil, "agents", "diff", "tester", "--data", p.data); code != 0 || !strings.Contains(out, "permissions.write") || !strings.Contains(out, "- *, + mail.*") || strings.Contains(out, "purpose") {
		t.Errorf("diff: %d %s", code, out)
	}
	if code, out, errs := cli(t, p, nil, "agents", "approve", "--all", "--reason", "narrower", "--data", p.data); code != 0 {
		t.Errorf("approve: %d %s%s", code, out, errs)
	}
	if r := must(t, cs, "echo_say", map[string]any{}); r.code() != "" {
		t.Errorf("approved again: %s", r.text())
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	p.verify(t)

	w = launch(t, p) // what people approved stands over a restart
	if agent().Standing != "approved" {
		t.Error("after a restart:", agent().Standing)
	}
	cs = w.connect(session, revision1125, nil)
	if r := must(t, cs, "echo_say", map[string]any{}); r.code() != "" {
		t.Errorf("after a restart: %s", r.text())
	}
}

// TestDeclarationsOfTwo: where two people can answer, an operator agent that may do everything takes both; an advisory one takes one.
func TestDeclarationsOfTwo(t *testing.T) {
	p := newPlace(t, "people: [{id: alice, roles: [approver]}, {id: bob, roles: [admin]}, {id: carol, roles: [operator]}]\ndeclarations: {}\n",
		declaration("tester"), declare("reader", "advisory", "planning", []string{"mail.search"}, nil))
	p.leaveAgents = true
	raw, err := os.ReadFile(p.config)
	if err != nil {
		t.Fatal(err)
	}
	config := string(raw)
	w := launch(t, p)
	people := map[string]*client.Client{}
	for person, role := range map[string]string{"alice": "approver", "bob": "admin", "carol": "operator"} {
		made, err := w.root.CreateToken(t.Context(), client.NewToken{Kind: "person", ID: person, Roles: []string{role}})
		if err != nil {
			t.Fatal(err)
		}
		people[person] = w.client(w.admin, made.Secret)
	}
	agents, err := w.root.Agents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range agents {
		if _, err := people["carol"].ApproveAgent(t.Context(), a.AgentID, a.Digest, ""); err == nil {
			t.Errorf("%s: an operator approves", a.AgentID)
		}
		after, err := people["alice"].ApproveAgent(t.Context(), a.AgentID, a.Digest, "")
		if err != nil {
			t.Fatal(err)
		}
		if want := map[string]string{"tester": "unapproved", "reader": "approved"}[a.AgentID]; after.Standing != want {
			t.Errorf("%s: %s after one, want %s", a.AgentID, after.Standing, want)
		}
		if a.AgentID != "tester" {
			continue
		}
		if _, err := people["alice"].ApproveAgent(t.Context(), a.AgentID, a.Digest, ""); err == nil {
			t.Error("one person is two")
		}
		if s := after.Approval; s.StillNeeded != 1 || !slices.Equal(s.MayApprove, []string{"admin", "bob"}) || time.Until(s.ExpiresAt) < 20*time.Minute {
			t.Errorf("what is still needed: %+v", s)
		}
		if code, out, _ := w.command(nil, "agents", "diff", a.AgentID); code != 0 || !strings.Contains(out, "Still needed: 1 person (admin, bob).") {
			t.Errorf("%d %s", code, out)
		}
		// A vote of somebody who lost the role counts no more.
		write(t, p.config, strings.Replace(config, "{id: alice, roles: [approver]}", "{id: alice, roles: [viewer]}, {id: dora, roles: [approver]}", 1))
		if _, err := w.root.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after, err = w.root.Agent(t.Context(), a.AgentID); err != nil || len(after.Approval.Votes) != 0 || after.Approval.StillNeeded != 2 || !strings.Contains(after.Approval.Text, "The vote of alice counts no more") {
			t.Errorf("%v %+v", err, after.Approval)
		}
		write(t, p.config, config)
		if _, err := w.root.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after, err = people["bob"].ApproveAgent(t.Context(), a.AgentID, a.Digest, ""); err != nil || after.Standing != "approved" || len(after.Approval.Votes) != 2 {
			t.Errorf("%v %+v", err, after)
		}
	}
}

// TestInitApproves: what init writes to a new data directory is approved, on record, in the name of the account; what is written later is not.
func TestInitApproves(t *testing.T) {
	p := place{dir: t.TempDir(), leaveAgents: true}
	p.config, p.data = filepath.Join(p.dir, "sallyport.yaml"), filepath.Join(p.dir, "sallyport-data")
	if code, out, errs := cli(t, p, nil, "init"); code != 0 || !strings.Contains(out, "approved the declaration of research-assistant") {
		t.Fatalf("%d %s%s", code, out, errs)
	}
	config, err := os.ReadFile(p.config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, p.config, strings.NewReplacer("127.0.0.1:7575", "127.0.0.1:0", "127.0.0.1:7576", "127.0.0.1:0").Replace(string(config)))
	write(t, filepath.Join(p.dir, "agents", "other.yaml"), declaration("other"))
	w := launch(t, p)
	for id, want := range map[string]string{"research-assistant": "approved", "other": "unapproved"} {
		a, err := w.root.Agent(t.Context(), id)
		if err != nil || a.Standing != want {
			t.Errorf("%s: %v %+v", id, err, a)
		}
	}
	a, err := w.root.Agent(t.Context(), "research-assistant")
	if err != nil || len(a.Approval.Votes) != 1 || !a.Approval.Votes[0].Own || !strings.HasPrefix(a.Approval.Votes[0].Person, "terminal:") {
		t.Errorf("%v %+v", err, a.Approval)
	}
	found := 0
	for _, e := range w.entries() {
		if e.Action == "agent.approve" && e.Agent == "research-assistant" && strings.HasPrefix(e.Actor, "terminal:") {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%d entries", found)
	}
}

// TestApprovalsOfAFleet: what people approved at one gateway is taken over by another whose configuration names the key of the first, by the command line.
func TestApprovalsOfAFleet(t *testing.T) {
	const people = "people: [{id: admin, roles: [admin]}, {id: alice, roles: [approver]}]\n"
	first := newPlace(t, people, declaration("bot"))
	first.leaveAgents = true
	one := launch(t, first)
	agents, err := one.root.Agents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if code, _, said := one.command(nil, "agents", "approvals", "export"); code != 1 || !strings.Contains(said, "nothing to export") {
		t.Errorf("%d %s", code, said)
	}
	if _, err := one.person("alice", "approver").ApproveAgent(t.Context(), "bot", agents[0].Digest, ""); err != nil {
		t.Fatal(err)
	}
	code, bundle, said := one.command(nil, "agents", "approvals", "export", "bot", "--for", "1h")
	if code != 0 || !strings.HasPrefix(bundle, "sallyport-approvals v1\n") {
		t.Fatalf("%d %s %s", code, bundle, said)
	}
	key, err := os.ReadFile(first.data + "/audit.pub")
	if err != nil {
		t.Fatal(err)
	}
	file := t.TempDir() + "/approvals.txt"
	write(t, file, bundle)

	strange := newPlace(t, people, declaration("bot"))
	strange.leaveAgents = true
	if code, out, said := launch(t, strange).command(nil, "agents", "approvals", "import", file); code != 1 || !strings.Contains(said, "declarations.trusted") {
		t.Errorf("a gateway that trusts no other: %d %s %s", code, out, said)
	}
	second := newPlace(t, people+"declarations: {approvers: 1, trusted: ["+strings.TrimSpace(string(key))+"]}\n", declaration("bot"))
	second.leaveAgents = true
	two := launch(t, second)
	if code, out, said := two.command(strings.NewReader(strings.Replace(bundle, "alice", "admin", 1)), "agents", "approvals", "import", "-"); code != 1 || !strings.Contains(said, "it was changed since") {
		t.Errorf("forged: %d %s %s", code, out, said)
	}
	if code, out, said := two.command(nil, "agents", "approvals", "import", file); code != 0 || !strings.Contains(out, "bot") {
		t.Errorf("%d %s %s", code, out, said)
	}
	a, err := two.root.Agent(t.Context(), "bot")
	if err != nil || a.Approval.State != "approved" || len(a.Approval.Votes) != 1 || a.Approval.Votes[0].Person != "alice" || !strings.Contains(a.Approval.Text, "signed by sallyport/") {
		t.Errorf("%+v %v", a, err)
	}
	if all := two.recorded("agent.approve"); len(all) != 1 || all[0].Actor != "person:admin" || !strings.Contains(string(all[0].Detail), "signed_by") {
		t.Errorf("on record: %+v", all)
	}
	if code, out, _ := two.command(nil, "agents", "approvals", "import", file); code != 1 || !strings.Contains(out, "already") {
		t.Errorf("twice: %d %s", code, out)
	}

	write(t, file, bundle)
	third := newPlace(t, people+"declarations: {approvers: 1, trusted: ["+strings.TrimSpace(string(key))+"]}\n", declaration("bot"))
	third.leaveAgents = true
	three := launch(t, third)
	if _, err := three.root.Quarantine(t.Context(), "bot", "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := three.root.Restore(t.Context(), "bot", "test"); err != nil {
		t.Fatal(err)
	}
	if code, out, _ := three.command(nil, "agents", "approvals", "import", file); code != 1 || !strings.Contains(out, "put aside") {
		t.Errorf("signed before the agent was put aside: %d %s", code, out)
	}
	if err := two.stop(); err != nil {
		t.Fatal(err)
	}
	second.verify(t)
}
