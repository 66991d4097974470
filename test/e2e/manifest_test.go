package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/client"
)

// office is the servers of source 004: a mailbox and documents that are internal, a web search, a chat and a code host that are not.
func office(t *testing.T) (config string, sent *recorder) {
	t.Helper()
	sent = &recorder{}
	mail, web, code, slack := newServer("mail"), newServer("web"), newServer("github"), newServer("slack")
	answer := func(s *mcp.Server, name, words string) {
		tool(s, name, "Does "+name+".", func(_ context.Context, args json.RawMessage) (*mcp.CallToolResult, error) {
			sent.add("%s %s", name, args)
			return text(words), nil
		})
	}
	answer(mail, "search_email", "The offer is 40 000, and the other side does not know.")
	answer(mail, "search_docs", "Our limit is 55 000.")
	answer(web, "web_search", "Offers in this market are around 50 000.")
	answer(slack, "slack_post", "posted")
	answer(code, "github_create_pr", "pull request 7")
	answer(code, "github_read_file", "package main")
	return `
upstreams:
  mail:   {url: "` + sdkServer(t, mail) + `"}
  web:    {url: "` + sdkServer(t, web) + `"}
  slack:  {url: "` + sdkServer(t, slack) + `"}
  github: {url: "` + sdkServer(t, code) + `"}
operations:
  mail.*:           {expose_as: "{tool}", sensitivity: internal_source, effect: read}
  web.web_search:   {expose_as: web_search, sensitivity: external, effect: read}
  slack.slack_post: {expose_as: slack_post, sensitivity: external}
  github.*:         {expose_as: "{tool}", sensitivity: external, blocked_by: []}
`, sent
}

// The example of source 004, word for word, on every door (FL-4, FL-5, FL-6).
func TestExampleOfTheSource(t *testing.T) {
	config, _ := office(t)
	// An agent without the built-in operations, so that the answers are the source's to the word.
	office := []string{"mail.*", "web.*", "slack.*", "github.*"}
	w := start(t, config, declare("tester", "operator", "execution", office, office))
	id, token := w.open("tester")
	planned := `{"planned_calls":["search_email","web_search","github_create_pr"]}`
	type violation struct {
		AtStep     int    `json:"at_step"`
		Tool       string `json:"tool"`
		Reason     string `json:"reason"`
		Suggestion string `json:"suggestion"`
	}
	type report struct {
		Valid        bool        `json:"valid"`
		Violations   []violation `json:"violations"`
		SafeOrdering []string    `json:"safe_ordering"`
	}
	want := report{
		Violations: []violation{{
			AtStep: 1, Tool: "web_search",
			Reason:     "web_search is blocked after search_email (step 0) loads internal data",
			Suggestion: "move web_search before search_email",
		}},
		SafeOrdering: []string{"web_search", "search_email", "github_create_pr"},
	}
	check := func(t *testing.T, body []byte) {
		t.Helper()
		var got report
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	t.Run("http", func(t *testing.T) {
		status, body := w.post("/v1/session/"+id+"/validate-plan", token, planned, nil)
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		check(t, body)
	})
	for _, revision := range []string{revision0618, revision1125, revision0728} {
		t.Run(revision, func(t *testing.T) {
			r := must(t, w.connect(token, revision, nil), "sallyport_validate_plan", json.RawMessage(planned))
			structured, err := json.Marshal(r.StructuredContent)
			if err != nil || r.IsError {
				t.Fatalf("%v %s", err, r.text())
			}
			check(t, structured)
			check(t, []byte(r.text()))
		})
	}
	t.Run("manifest", func(t *testing.T) {
		m, err := w.client(w.agent, token).Manifest(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		const blocking, nothing = "calling this tool will block: slack_post, web_search", "none — safe to call before internal tools"
		want := map[string][2]string{
			"search_email": {"internal_source", blocking}, "search_docs": {"internal_source", blocking},
			"web_search": {"external", nothing}, "slack_post": {"external", nothing},
			"github_create_pr": {"external", nothing}, "github_read_file": {"external", nothing},
		}
		for _, tool := range m.Tools {
			if got := [2]string{tool.Sensitivity, tool.Consequence}; got != want[tool.Name] {
				t.Errorf("%s: %q, want %q", tool.Name, got, want[tool.Name])
			}
			delete(want, tool.Name)
		}
		if len(want) > 0 {
			t.Errorf("not in the manifest: %v", want)
		}
		if m.OrderingHint != "complete all external tool calls before calling internal_source tools" {
			t.Errorf("hint %q", m.OrderingHint)
		}
		if m.SessionID != id {
			t.Errorf("manifest of %s", m.SessionID)
		}
		for _, line := range []string{
			"Tool ordering constraint (enforced by authorization layer):",
			"\n- Tools marked [internal] will restrict your access to tools marked [external] for the remainder of this session.",
			"\n- If your task requires both internal and external tools, call external tools first.",
			"\n- Affected tools: search_docs [internal], search_email [internal] → blocks slack_post, web_search",
			"\n- Safe to call in any order: github_create_pr, github_read_file",
		} {
			if !strings.Contains(m.SystemPrompt, line) {
				t.Errorf("the system prompt lacks %q:\n%s", line, m.SystemPrompt)
			}
		}
		for _, revision := range []string{revision1125, revision0728} {
			if got := w.connect(token, revision, nil).InitializeResult().Instructions; !strings.Contains(got, "Affected tools: search_docs [internal]") {
				t.Errorf("%s: instructions without the constraint: %q", revision, got)
			}
		}
	})
}

// The acceptance scenario of source 004: the same task by an agent that reads the manifest and by one that doesn't (FL-7, FL-2).
func TestAcceptanceScenario(t *testing.T) {
	for _, revision := range []string{revision1125, revision0728} {
		t.Run(revision, func(t *testing.T) {
			config, sent := office(t)
			w := start(t, config, declare("tester", "operator", "planning", []string{"*"}, []string{"*"}))

			t.Run("with the manifest", func(t *testing.T) {
				_, token := w.open("tester")
				cs := w.connect(token, revision, nil)
				task := []string{"search_email", "web_search"}
				order := plan(t, cs, task)
				if want := []string{"web_search", "search_email"}; !slices.Equal(order, want) {
					t.Fatalf("the manifest and the plan gave %v", order)
				}
				for _, name := range order {
					if r := must(t, cs, name, map[string]any{"query": "offer"}); r.IsError {
						t.Errorf("%s was refused: %s", name, r.text())
					}
				}
			})

			t.Run("without it", func(t *testing.T) {
				_, token := w.open("tester")
				cs := w.connect(token, revision, nil)
				// It does need the execution phase: any plan opens it. What writes and is not in it would be asked about later.
				submit(t, cs, "search_email", "github_create_pr")
				before := len(sent.all())
				if r := must(t, cs, "search_email", map[string]any{"query": "offer"}); r.IsError {
					t.Fatal(r.text())
				}
				r := must(t, cs, "web_search", map[string]any{"query": "offer 40 000"})
				if !r.IsError || r.code() != "flow.contaminated" || r.verdict.Stage != "flow" || r.verdict.Decision != "deny" || r.verdict.Retriable {
					t.Fatalf("not refused as it should be: %s %+v", r.text(), r.verdict)
				}
				if b := r.verdict.Because; len(b) != 1 || b[0].Label != "internal" || b[0].Operation != "mail.search_email" || !strings.HasPrefix(b[0].CallID, "call_") {
					t.Errorf("because %+v", b)
				}
				kinds := []string{}
				for _, m := range r.verdict.Remedies {
					kinds = append(kinds, m.Kind)
					if !strings.Contains(r.text(), m.Text) {
						t.Errorf("the text for the model lacks the remedy %q", m.Text)
					}
				}
				if !slices.Equal(kinds, []string{"reorder", "new_session", "release"}) {
					t.Errorf("remedies %v", kinds)
				}
				if r.StructuredContent != nil {
					t.Error("a refusal has structured content")
				}
				if got := sent.all()[before:]; len(got) != 1 {
					t.Errorf("the refused call reached the server: %v", got)
				}
				// Only a rule approved the plan that opened the phase, so a person says that calls outside it are judged by themselves.
				if _, err := w.root.SetPhase(t.Context(), sessionOf(t, cs), "execution", "go on without the plan"); err != nil {
					t.Fatal(err)
				}
				// A tool that nothing blocks still works, and so does going on with internal ones.
				if r := must(t, cs, "search_docs", map[string]any{}); r.IsError {
					t.Errorf("search_docs: %s", r.text())
				}
				// What writes is not blocked either; but the mails may be outsiders' words, and nothing in it is the person's.
				if r := must(t, cs, "github_create_pr", map[string]any{}); r.code() != "approval.required" || r.verdict.Stage != "flow" {
					t.Errorf("github_create_pr: %s", r.text())
				}
				// A new connection, another revision or an invented session id cleans nothing.
				again := w.connect(token, revision0618, nil)
				if r := must(t, again, "web_search", map[string]any{}); r.code() != "flow.contaminated" {
					t.Errorf("reconnecting cleaned the session: %s", r.text())
				}
				body, headers := modern("tools/call", "web_search", `"name":"web_search","arguments":{}`)
				headers["Mcp-Session-Id"] = "invented"
				if _, b := w.post("/mcp", token, body, headers); !strings.Contains(string(b), "flow.contaminated") {
					t.Errorf("an invented session id: %s", b)
				}
				// The way out that the verdict names: a person releases the labels, with a reason on the record.
				s, err := w.root.Release(t.Context(), sessionOf(t, cs), []string{"internal"}, "")
				if err == nil {
					t.Errorf("released without a reason: %+v", s)
				}
				if _, err := w.root.Release(t.Context(), sessionOf(t, cs), []string{"internal"}, "the person asked for it"); err != nil {
					t.Fatal(err)
				}
				if r := must(t, cs, "web_search", map[string]any{}); r.IsError {
					t.Errorf("after the release: %s", r.text())
				}
			})

			t.Run("before any plan", func(t *testing.T) {
				_, token := w.open("tester")
				r := must(t, w.connect(token, revision, nil), "web_search", map[string]any{})
				if r.code() != "phase.blocked" || r.verdict.Stage != "phase" {
					t.Errorf("%s", r.text())
				}
			})
		})
	}
}

// plan reorders a task as an agent would that reads the manifest and asks whether its plan holds.
func plan(t *testing.T, cs *mcp.ClientSession, task []string) []string {
	t.Helper()
	var m client.Manifest
	structured(t, must(t, cs, "sallyport_manifest", map[string]any{}), &m)
	order := slices.Clone(task)
	slices.SortStableFunc(order, func(a, b string) int { // external ones first, as the hint says
		rank := func(name string) int {
			i := slices.IndexFunc(m.Tools, func(t client.ManifestTool) bool { return t.Name == name })
			if i < 0 {
				t.Fatalf("%s is not in the manifest", name)
			}
			if len(m.Tools[i].Blocks) > 0 {
				return 1
			}
			return 0
		}
		return rank(a) - rank(b)
	})
	var r client.PlanReport
	structured(t, must(t, cs, "sallyport_validate_plan", map[string]any{"planned_calls": order}), &r)
	if !r.Valid {
		t.Fatalf("the manifest's order is not valid: %+v", r)
	}
	submit(t, cs, order...)
	return order
}

// submit has a plan sealed by rule, which opens the execution phase.
func submit(t *testing.T, cs *mcp.ClientSession, tools ...string) {
	t.Helper()
	var steps []map[string]any
	for _, name := range tools {
		steps = append(steps, map[string]any{"tool": name, "justification": "the task needs it"})
	}
	var a client.PlanAnswer
	structured(t, must(t, cs, "sallyport_submit_plan", map[string]any{"steps": steps}), &a)
	if a.State != "approved" || a.Phase != "execution" {
		t.Fatalf("the plan is %+v", a)
	}
}

func structured(t *testing.T, r result, into any) {
	t.Helper()
	if r.IsError {
		t.Fatal(r.text())
	}
	b, err := json.Marshal(r.StructuredContent)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func sessionOf(t *testing.T, cs *mcp.ClientSession) string {
	t.Helper()
	var s client.Session
	structured(t, must(t, cs, "sallyport_status", map[string]any{}), &s)
	return s.SessionID
}
