package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"sallyport.example/client"
)

// Tools that a provider runs are external I/O, where the declaration lets it run them: in the execution phase, without labelled data, and the session is untrusted before anything of
// the answer leaves.
func TestDeclaredHostedToolsAreExternal(t *testing.T) {
	p := newModelProvider(t)
	planner := strings.Replace(declare("planner", "operator", "planning", []string{"*"}, []string{"*"}), "models: []", "models: ["+claude+", "+gpt+"]", 1) + "hostedTools: [web_search]\n"
	w := start(t, p.config("[internal, pii]"), planner, thinker("bot")+"hostedTools: [web_search]\n", thinker("strict"))
	labels := func(session string) []string {
		s, err := w.root.Session(t.Context(), session)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, h := range s.Labels {
			all = append(all, h.Label)
		}
		return all
	}
	for form, tool := range map[string]string{"messages": `"tools":[{"type":"web_search_20250305","name":"web_search"}],`, "responses": `"tools":[{"type":"web_search"}],`} {
		f := modelForms[form]
		ask := func(token, text, more string) (int, []byte) {
			return w.post(f.path, token, strings.Replace(fmt.Sprintf(f.body, text), "{", "{"+more, 1), nil)
		}
		refused := func(what, code, token, text string) {
			t.Helper()
			sent := len(p.requests())
			status, body := ask(token, text, tool)
			if got, _ := modelRefusal(t, body); status < 400 || got != code || len(p.requests()) != sent {
				t.Errorf("%s: %s: %d %s", form, what, status, body)
			}
		}
		_, token := w.open("strict")
		refused("undeclared", "model.hosted_tool", token, "Hi.")
		session, token := w.open("planner")
		if status, body := ask(token, "Hi.", ""); status != 200 {
			t.Errorf("%s: a request in planning: %d %s", form, status, body)
		}
		refused("in planning", "phase.blocked", token, "Hi.")
		if l := labels(session); len(l) > 0 {
			t.Errorf("%s: the refusal brought %v", form, l)
		}

		session, token = w.open("bot")
		if status, body := ask(token, "My account is DE89 3704 0044 0532 0130 00.", ""); status != 200 {
			t.Errorf("%s: a request with personal data: %d %s", form, status, body)
		}
		refused("a session with personal data", "flow.contaminated", token, "Hi.")
		_, token = w.open("bot")
		refused("personal data in the request", "flow.contaminated", token, "My account is DE89 3704 0044 0532 0130 00.")

		session, token = w.open("bot")
		p.says(func(_ http.ResponseWriter, _ modelRequest) bool { // as the request arrives
			if !slices.Contains(labels(session), "untrusted") {
				t.Errorf("%s: the session is trusted while the provider searches: %v", form, labels(session))
			}
			return false
		})
		if status, body := ask(token, "Hi.", tool); status != 200 {
			t.Errorf("%s: %d %s", form, status, body)
		}
		p.says(nil)
		var intent client.Entry
		for _, e := range w.entries() {
			if e.Session == session && e.Kind == "intent" {
				intent = e
			}
		}
		if detail, _ := json.Marshal(intent.Detail); !strings.Contains(string(detail), `"hosted_tools":["web_search"]`) {
			t.Errorf("%s: the intent says %s", form, detail)
		}
		session, token = w.open("bot")
		again := `"messages":[{"role":"assistant","content":[{"type":"web_search_tool_result","tool_use_id":"s","content":[]}]},`
		if form == "responses" {
			again = `"input":[{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}},`
		}
		body := strings.NewReplacer(`"messages":[`, again, `"input":[`, again).Replace(fmt.Sprintf(f.body, "Go on."))
		if status, answer := w.post(f.path, token, body, nil); status != 200 || !slices.Contains(labels(session), "untrusted") {
			t.Errorf("%s: what a tool brought before: %d %s, %v", form, status, answer, labels(session))
		}
	}
	w.sane()
}

// Where the declaration says so, nothing of a streamed answer leaves before its outcome.
func TestStreamsThatAreHeld(t *testing.T) {
	for name, f := range streamed {
		p := newModelProvider(t)
		w := start(t, p.config("[]"), thinker("bot")+"stream: hold\n")
		s := p.streams(t)
		begun := w.begin(f.path, w.token("bot"), f.body)
		s.pieces <- f.begin
		s.pieces <- f.text("Hello there ")
		for _, piece := range f.act {
			s.pieces <- piece
		}
		close(s.pieces)
		if got := (<-begun).rest(); !strings.Contains(got, "Hello there") || !strings.Contains(got, f.end) {
			t.Errorf("%s: %s", name, got)
		}
		all := outcomes(w)
		if len(all) != 1 || all[0].Decision != "ok" {
			t.Fatalf("%s: %+v", name, all)
		}
		if detail, _ := json.Marshal(all[0].Detail); strings.Contains(string(detail), `"left"`) {
			t.Errorf("%s: some left before the outcome: %s", name, detail)
		}
		w.sane()
	}
}
