package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"sallyport.example/client"
)

// planner declares an agent that starts in planning and may have its models' providers search.
func planner(id string) string {
	return strings.Replace(declare(id, "operator", "planning", []string{"*"}, []string{"*"}), "models: []", "models: ["+claude+", "+gpt+"]", 1) + "hostedTools: [web_search]\n"
}

// planned opens a session whose plan nobody but a rule approved: a person is asked about each request that has the provider search, which is in no plan.
func (w *world) planned(agent string) (session, token string) {
	w.t.Helper()
	session, token = w.open(agent)
	steps := []client.PlanStep{{Tool: "comm_fetch", Arguments: json.RawMessage(`{"url":"http://127.0.0.1:1/planned"}`), Justification: "The price is on this page."}}
	p, err := w.client(w.agent, token).SubmitPlan(w.t.Context(), session, steps)
	if err != nil || p.State != "approved" || p.Phase != "execution" {
		w.t.Fatalf("%+v %v", p, err)
	}
	return session, token
}

// searching has a request ask the provider to search.
func searching(form, body string) string {
	tool := map[string]string{"messages": `{"type":"web_search_20250305","name":"web_search"}`, "chat": `{"type":"web_search"}`, "responses": `{"type":"web_search"}`}[form]
	switch {
	case strings.Contains(body, `"tools":[]`):
		return strings.Replace(body, `"tools":[]`, `"tools":[`+tool+"]", 1)
	case strings.Contains(body, `"tools":[`):
		return strings.Replace(body, `"tools":[`, `"tools":[`+tool+",", 1)
	}
	return strings.Replace(body, "{", `{"tools":[`+tool+`],`, 1)
}

// asksOf are the questions of a session that are on record.
func asksOf(w *world, session string) (n int) {
	for _, e := range w.entries() {
		if e.Session == session && e.Action == "approval.ask" {
			n++
		}
	}
	return n
}

// A request that waits for a person is 409, and the same request again meets the same question: SDKs that repeat a 409 ask nobody twice and leave nothing more on record. Once it is
// approved, the same request leaves, once.
func TestAModelRequestThatIsAskedIsAskedOnce(t *testing.T) {
	p := newModelProvider(t)
	w := start(t, p.config("[]")+opens("http://127.0.0.1:1"), planner("bot"))
	for form, f := range modelForms {
		for _, stream := range []bool{false, true} {
			p.says(nil)
			session, token := w.planned("bot")
			name, body := fmt.Sprintf("%s, stream %v", form, stream), searching(form, strings.Replace(fmt.Sprintf(f.body, "Hi."), "{", fmt.Sprintf(`{"stream":%v,`, stream), 1))
			before, recorded := len(p.requests()), 0
			approval := ""
			for i := range 3 {
				var header http.Header
				status, answer := w.postModel(f.path, token, body, &header)
				var e struct {
					Error struct {
						Sallyport struct {
							Decision   string
							ApprovalID string `json:"approval_id"`
						}
					}
				}
				if err := json.Unmarshal(answer, &e); err != nil || status != 409 || e.Error.Sallyport.Decision != "ask" || e.Error.Sallyport.ApprovalID == "" || header.Get("X-Should-Retry") != "false" {
					t.Fatalf("%s: %d %s", name, status, answer)
				}
				if i == 0 {
					approval, recorded = e.Error.Sallyport.ApprovalID, len(w.entries())
				}
				if e.Error.Sallyport.ApprovalID != approval {
					t.Errorf("%s: time %d: another question: %s", name, i, answer)
				}
			}
			if n, all := asksOf(w, session), len(w.entries()); n != 1 || all != recorded || len(p.requests()) != before {
				t.Errorf("%s: %d questions, %d entries after the first request, %d requests left", name, n, all-recorded, len(p.requests())-before)
			}
			q, err := w.root.Approval(t.Context(), approval)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.root.Approve(t.Context(), approval, q.Digest, ""); err != nil {
				t.Fatal(err)
			}
			if stream {
				p.saysText("text/event-stream", streamedText(form, "Hello."))
			}
			if status, answer := w.post(f.path, token, body, nil); status != 200 || len(p.requests()) != before+1 {
				t.Errorf("%s, approved: %d %s", name, status, answer)
			}
			if status, answer := w.post(f.path, token, body, nil); status != 409 || strings.Contains(string(answer), approval) || len(p.requests()) != before+1 {
				t.Errorf("%s, once more: %d %s", name, status, answer)
			}
			if n := asksOf(w, session); n != 2 {
				t.Errorf("%s: %d questions after the one that was answered", name, n)
			}
		}
	}
	w.sane()
}
