package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/client"
)

// dayCall is one call of a developer's day. outside: what it reads may be a stranger's.
type dayCall struct {
	tool, arguments string
	outside         bool
}

// developersDay is a piece of work with six servers: an issue is read, looked into, mended, committed and answered.
var developersDay = []dayCall{
	{tool: "git.git_status", arguments: `{"repo_path":"."}`},
	{tool: "git.git_log", arguments: `{"repo_path":".","max_count":5}`},
	{tool: "github.list_issues", arguments: `{"owner":"acme","repo":"lathe"}`, outside: true},
	{tool: "github.get_issue", arguments: `{"owner":"acme","repo":"lathe","issue_number":7}`, outside: true},
	{tool: "files.search_files", arguments: `{"path":"src","pattern":"feed"}`},
	{tool: "files.read_text_file", arguments: `{"path":"src/feed.go"}`},
	{tool: "memory.search_nodes", arguments: `{"query":"feed rate"}`},
	{tool: "web.fetch", arguments: `{"url":"https://docs.example/feed"}`, outside: true},
	{tool: "db.read_query", arguments: `{"query":"SELECT rate FROM feeds"}`},
	{tool: "files.edit_file", arguments: `{"path":"src/feed.go","edits":[{"oldText":"rate = 4","newText":"rate = 5"}]}`},
	{tool: "files.write_file", arguments: `{"path":"src/feed_test.go","content":"package feed"}`},
	{tool: "git.git_diff", arguments: `{"repo_path":"."}`},
	{tool: "git.git_add", arguments: `{"repo_path":".","files":["src/feed.go","src/feed_test.go"]}`},
	{tool: "git.git_commit", arguments: `{"repo_path":".","message":"feed: raise the rate"}`},
	{tool: "memory.add_observations", arguments: `{"observations":[{"entityName":"feed","contents":["the rate is 5"]}]}`},
	{tool: "github.create_pull_request", arguments: `{"owner":"acme","repo":"lathe","title":"Raise the rate","head":"feed","base":"main"}`},
}

// The labels of that day, by somebody who knows the servers: what stays with the developer is of level 1. kinds says so; without it each
// write is only said to be one.
func dayLabels(kinds bool) string {
	own, others := "effect: write", "effect: write"
	if kinds {
		own, others = "level: 1", "level: 2"
	}
	return fmt.Sprintf(`
flow: {free_level_1: true}
operations:
  git.git_status: {sensitivity: none, effect: read, output: trusted}
  git.git_log: {sensitivity: none, effect: read, output: trusted}
  git.git_diff: {sensitivity: none, effect: read, output: trusted}
  git.git_add: {sensitivity: none, %[1]s, output: trusted}
  git.git_commit: {sensitivity: none, %[1]s, output: trusted}
  files.search_files: {sensitivity: none, effect: read, output: trusted}
  files.read_text_file: {sensitivity: none, effect: read, output: trusted}
  files.edit_file: {sensitivity: none, %[1]s, output: trusted}
  files.write_file: {sensitivity: none, %[1]s, output: trusted}
  memory.search_nodes: {sensitivity: none, effect: read, output: trusted}
  memory.add_observations: {sensitivity: none, %[1]s, output: trusted}
  db.read_query: {sensitivity: none, effect: read, args: {query: code}, code: {query: {class: select}}, output: trusted}
  web.fetch: {sensitivity: external, effect: read}
  github.list_issues: {sensitivity: external, effect: read}
  github.get_issue: {sensitivity: external, effect: read}
  github.create_pull_request: {sensitivity: external, %[2]s, args: {owner: repository, repo: repository, title: content, head: target, base: target}}
`, own, others)
}

// What the day costs its developer: calls that run at once, calls that wait to be stopped, and questions. A write that nobody classified waits;
// one of level 1 never does.
func TestDevelopersDay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		labels  string
		strange bool // what comes from outside is read, too
		runs    int
		waits   int // MEDIUM
		asked   int
		refused int
	}{
		{"nothing said", "", true, 0, 0, 0, 16},
		{"each unlisted tool asked about", "unlisted_operations: ask\n", true, 0, 0, 16, 0},
		{"each unlisted tool asked about once", "unlisted_operations: ask_once\n", true, 0, 0, 16, 0},
		{"writes of no kind", dayLabels(false), false, 7, 5, 0, 0},
		{"writes of no kind, after strangers' words", dayLabels(false), true, 10, 0, 6, 0},
		{"writes of a kind", dayLabels(true), false, 12, 0, 0, 0},
		{"writes of a kind, after strangers' words", dayLabels(true), true, 15, 0, 1, 0},
		{"nothing said, only observed", "mode: observe\n", true, 16, 0, 0, 0},
		{"each unlisted tool asked about, only observed", "mode: observe\nunlisted_operations: ask_once\n", true, 16, 0, 0, 0},
		{"writes of a kind, after strangers' words, only observed", "mode: observe\n" + dayLabels(true), true, 16, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			servers, upstreams := map[string]*mcp.Server{}, ""
			for _, call := range developersDay {
				id, name, _ := strings.Cut(call.tool, ".")
				if servers[id] == nil {
					servers[id] = newServer(id)
				}
				tool(servers[id], name, "Does "+name+".", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) { return text("done"), nil })
			}
			for id, s := range servers {
				upstreams += fmt.Sprintf("  %s: {url: %q}\n", id, sdkServer(t, s))
			}
			w := start(t, "people: [{id: bob, roles: [approver]}]\nupstreams:\n"+upstreams+c.labels)
			bob := w.person("bob", "approver")
			eventually(t, 20*time.Second, "the tools are there", func() bool {
				tools, err := w.root.Tools(t.Context())
				return err == nil && len(tools) >= len(developersDay)
			})
			w.acceptDefinitions(anyDefinition)
			id, token := w.openFor("Look into issue 7 of acme/lathe, and raise the feed rate from 4 to 5.", "dana")
			agent := w.client(w.agent, token)
			var calls []dayCall
			var plan []client.PlannedCall
			for _, call := range developersDay {
				if c.strange || !call.outside && call.tool != "github.create_pull_request" {
					calls = append(calls, call)
					plan = append(plan, client.PlannedCall{Tool: strings.Replace(call.tool, ".", "_", 1), Arguments: json.RawMessage(call.arguments)})
				}
			}
			report, err := agent.ValidatePlan(t.Context(), id, plan)
			if err != nil {
				t.Fatal(err)
			}
			foreseen := map[int]client.PlanAsk{}
			for _, ask := range report.Asks {
				foreseen[ask.AtStep] = ask
			}
			var runs, waits, asked, refused int
			for i, call := range calls {
				server, name, _ := strings.Cut(call.tool, ".")
				tool, arguments := server+"_"+name, json.RawMessage(call.arguments)
				v, err := agent.Check(t.Context(), id, tool, arguments)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%-28s %-7s %s", call.tool, v.Decision, v.Reason)
				silence := len(v.Remedies) > 0 && v.Remedies[0].Kind == "wait"
				if ask, is := foreseen[i]; is != (v.Decision == "ask") || is && (ask.Tool != tool || (ask.Needed == 0) != silence || ask.Reason == "" || ask.Risk == "") {
					t.Errorf("the plan's answer on step %d, %s, was %+v; the call is %s", i, tool, ask, v.Decision)
				}
				switch {
				case v.Decision == "permit":
					runs++
				case v.Decision == "deny":
					refused++
					continue
				case silence:
					waits++
				default:
					asked++
				}
				answer, err := agent.Call(t.Context(), id, tool, arguments)
				if err != nil {
					t.Fatal(err)
				}
				if v.Decision == "ask" && !silence {
					a, err := bob.Approval(t.Context(), *answer.Verdict.ApprovalID)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := bob.Approve(t.Context(), a.ApprovalID, a.Digest, ""); err != nil {
						t.Fatal(err)
					}
					if answer, err = agent.Call(t.Context(), id, tool, arguments); err != nil {
						t.Fatal(err)
					}
				}
				if answer.Verdict.Decision != "permit" {
					t.Fatalf("%s: %+v", call.tool, answer)
				}
			}
			if runs != c.runs || waits != c.waits || asked != c.asked || refused != c.refused {
				t.Errorf("%d run, %d wait, %d are asked about, %d refused; want %d, %d, %d, %d", runs, waits, asked, refused, c.runs, c.waits, c.asked, c.refused)
			}
		})
	}
}

// An operation of which the operator said nothing but where it goes does not move money unseen, and no argument named like an amount passes for
// small change.
func TestUnclassifiedTransfer(t *testing.T) {
	bank := newServer("bank")
	for _, name := range []string{"transfer_money", "note", "level", "own", "large"} {
		tool(bank, name, "Moves.", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) { return text("done"), nil })
	}
	w := start(t, fmt.Sprintf(`
upstreams: {bank: {url: %q}}
operations:
  bank.transfer_money: {sensitivity: external}
  bank.note: {effect: write, args: {amount: content}}
  bank.level: {level: 2}
  bank.own: {level: 1}
  bank.large: {action: transfer_money}
`, sdkServer(t, bank)))
	eventually(t, 20*time.Second, "the tools are there", func() bool {
		tools, err := w.root.Tools(t.Context())
		return err == nil && len(tools) >= 5
	})
	w.acceptDefinitions(anyDefinition)
	id, token := w.open("tester")
	report, err := w.client(w.agent, token).ValidatePlan(t.Context(), id, []client.PlannedCall{{Tool: "bank_large", Arguments: json.RawMessage(`{"amount":10000}`)}, {Tool: "bank_level"}, {Tool: "bank_own"}})
	if err != nil || !report.Valid || len(report.Asks) != 3 {
		t.Fatalf("%+v %v", report, err)
	}
	for i, want := range []client.PlanAsk{{AtStep: 0, Tool: "bank_large", Risk: "CRITICAL", Needed: 2}, {AtStep: 1, Tool: "bank_level", Risk: "MEDIUM", Needed: 1}, {AtStep: 2, Tool: "bank_own", Risk: "MEDIUM", Needed: 1}} {
		if got := report.Asks[i]; got.AtStep != want.AtStep || got.Tool != want.Tool || got.Risk != want.Risk || got.Needed != want.Needed {
			t.Errorf("%+v, want %+v", got, want) // what bank.large answers is an outsider's, and what the others are called with is not planned
		}
	}
	for _, c := range []struct{ tool, arguments, verdict string }{
		{"bank_transfer_money", `{"recipient":"x","amount":50000}`, "bank_transfer_money is of risk HIGH, so a person must decide."},
		{"bank_transfer_money", `{"recipient":"x","amount":5}`, "bank_transfer_money is of risk MEDIUM: it runs in 5ms unless a person stops it."},
		{"bank_note", `{"amount":50000}`, "bank_note is of risk MEDIUM: it runs in 5ms unless a person stops it."},
		{"bank_level", `{"amount":"5.00"}`, ""},
		{"bank_level", `{"order":{"total":"5.000"}}`, "bank_level is of risk HIGH, so a person must decide."},
		{"bank_own", `{"amount":50000}`, ""},
	} {
		if v, err := w.client(w.agent, token).Check(t.Context(), id, c.tool, json.RawMessage(c.arguments)); err != nil || v.Reason != c.verdict {
			t.Errorf("%s %s: %+v %v", c.tool, c.arguments, v, err)
		}
	}
}

// A tool of a server can want to be told why, as the gateway's own operations do: the agent says it, the person sees it, and the server doesn't.
func TestDeclareRequired(t *testing.T) {
	sent, s := &recorder{}, newServer("mail")
	s.AddTool(&mcp.Tool{Name: "send", Description: "Sends mail.", InputSchema: json.RawMessage(`{"type":"object","properties":{"to":{"type":"string"}},"required":["to"],"additionalProperties":false}`)},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			sent.add("%s", r.Params.Arguments)
			return text("sent"), nil
		})
	s.AddTool(&mcp.Tool{Name: "odd", Description: "Has its own.", InputSchema: json.RawMessage(`{"type":"object","properties":{"Justification":{"type":"string"}}}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("done"), nil })
	w := start(t, fmt.Sprintf("people: [{id: bob, roles: [approver]}]\nupstreams: {mail: {url: %q}}\noperations:\n  mail.*: {declare: required, risk: HIGH, sensitivity: none}\n", sdkServer(t, s)))
	bob := w.person("bob", "approver")
	w.offered(2)
	w.acceptDefinitions(anyDefinition)
	id, token := w.openFor("Tell ann@corp.example that the lathe is ready.", "dana")
	agent := w.client(w.agent, token)
	call := func(arguments string) *client.CallAnswer {
		t.Helper()
		a, err := agent.Call(t.Context(), id, "mail_send", json.RawMessage(arguments))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	const why = `"justification":{"user_request":"Tell ann@corp.example that the lathe is ready","missing_knowledge":"whether ann knows that the lathe is ready","expected_use":"ann can plan the delivery"}`
	if a := call(`{"to":"ann@corp.example"}`); a.Verdict.Code != "declaration.missing" {
		t.Errorf("without a reason: %+v", a.Verdict)
	}
	if a := call(`{"to":"ann@corp.example","justification":{"user_request":"x"}}`); a.Verdict.Code != "declaration.invalid" {
		t.Errorf("with half a reason: %+v", a.Verdict)
	}
	asked := call(`{"to":"ann@corp.example",` + why + `}`)
	if asked.Verdict.Code != "approval.required" {
		t.Fatalf("%+v", asked.Verdict)
	}
	a, err := bob.Approval(t.Context(), *asked.Verdict.ApprovalID)
	if err != nil || !strings.Contains(string(a.Justification), "ann can plan the delivery") || string(a.Arguments) != `{"to":"ann@corp.example"}` {
		t.Fatalf("%s %s %v", a.Justification, a.Arguments, err)
	}
	if _, err := bob.Approve(t.Context(), a.ApprovalID, a.Digest, ""); err != nil {
		t.Fatal(err)
	}
	if a := call(`{"to":"ann@corp.example",` + why + `}`); a.Verdict.Decision != "permit" {
		t.Errorf("after the yes: %+v", a.Verdict)
	}
	if got := sent.all(); len(got) != 1 || got[0] != `{"to":"ann@corp.example"}` {
		t.Errorf("the server got %q", got)
	}
	cs := w.connect(token, "2025-06-18", nil)
	for tool, err := range cs.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		schema, _ := json.Marshal(tool.InputSchema)
		if tool.Name == "mail_odd" || tool.Name == "mail_send" && (!strings.Contains(string(schema), `"justification":{`) || !strings.Contains(string(schema), `"required":["to"]`)) {
			t.Errorf("%s: %s", tool.Name, schema)
		}
	}
}
