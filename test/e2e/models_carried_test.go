package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What another session was delivered keeps its labels in a request to a model, wherever it stands: by its fence, and by an attribution with a valid signature. The session that sends it
// has them before a byte leaves, and where the model may not get them nothing does. An attribution that somebody changed brings nothing.
func TestAttributionsOfOtherSessionsRaiseLabels(t *testing.T) {
	p := newModelProvider(t)
	mail := newServer("mail")
	tool(mail, "read", "Reads a mail.", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
		return text("The salaries are high."), nil
	})
	config := "upstreams: {mail: {url: " + fmt.Sprintf("%q", sdkServer(t, mail)) + "}}\noperations: {mail.read: {sensitivity: internal_source, effect: read}}\n"
	w := start(t, config+p.config("[internal]"), thinker("bot"), thinker("other"))
	strict := start(t, config+p.config("[]"), thinker("bot"))

	labels := func(w *world, session string) (all []string) {
		s, err := w.root.Session(t.Context(), session)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range s.Labels {
			all = append(all, h.Label)
		}
		slices.Sort(all)
		return all
	}
	// delivered is what a session of another agent got: the text in its fence, and the attribution.
	delivered := func(w *world, agent string) (fenced, attribution string) {
		_, token := w.open(agent)
		r := must(t, w.connect(token, revision1125, nil), "mail_read", map[string]any{})
		if r.code() != "" || !strings.Contains(r.text(), "The salaries are high.") {
			t.Fatalf("%s %s", r.code(), r.text())
		}
		for name, v := range r.Meta {
			if strings.HasPrefix(name, "sallyport/") {
				if b, _ := json.Marshal(v); strings.Contains(string(b), "signature") || strings.Contains(string(b), "mail.read") {
					attribution = string(b)
				}
			}
		}
		if attribution == "" {
			t.Fatalf("no attribution: %v", r.Meta)
		}
		return r.text(), attribution
	}
	turns := map[string]map[string]string{
		"messages": {
			"a message":  `{"model":"` + claude + `","max_tokens":16,"messages":[{"role":"user","content":%q}]}`,
			"a result":   `{"model":"` + claude + `","max_tokens":16,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":%q}]}]}]}`,
			"its system": `{"model":"` + claude + `","max_tokens":16,"system":%q,"messages":[{"role":"user","content":"Hi."}]}`,
			"a call":     `{"model":"` + claude + `","max_tokens":16,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"x","input":{"a":{"b":[%q]}}}]}]}`,
		},
		"chat": {
			"a message":  `{"model":"` + gpt + `","messages":[{"role":"user","content":%q}]}`,
			"a result":   `{"model":"` + gpt + `","messages":[{"role":"tool","tool_call_id":"t1","content":%q}]}`,
			"its system": `{"model":"` + gpt + `","messages":[{"role":"developer","content":[{"type":"text","text":%q}]},{"role":"user","content":"Hi."}]}`,
		},
		"responses": {
			"a message":  `{"model":"` + gpt + `","input":[{"role":"user","content":[{"type":"input_text","text":%q}]}]}`,
			"a result":   `{"model":"` + gpt + `","input":[{"type":"function_call_output","call_id":"t1","output":%q}]}`,
			"its system": `{"model":"` + gpt + `","instructions":%q,"input":"Hi."}`,
			"a text":     `{"model":"` + gpt + `","input":%q}`,
		},
	}
	fenced, attribution := delivered(w, "other")
	there, thereAttribution := delivered(strict, "bot")
	forged := strings.Replace(attribution, "mail.read", "mail.rEad", 1)
	if forged == attribution {
		t.Fatalf("%s", attribution)
	}
	for form, places := range turns {
		for place, turn := range places {
			for what, said := range map[string]string{"fence": fenced, "attribution": "It is " + attribution + ", said another."} {
				name := form + ", " + place + ", " + what
				session, token := w.open("bot")
				if status, body := w.post(modelForms[form].path, token, fmt.Sprintf(turn, said), nil); status != 200 {
					t.Errorf("%s: %d %s", name, status, body)
				}
				if got := labels(w, session); !slices.Equal(got, []string{"internal", "untrusted"}) {
					t.Errorf("%s: the session has %v", name, got)
				}
			}
			for what, said := range map[string]string{"fence": there, "attribution": thereAttribution} {
				name := form + ", " + place + ", " + what
				session, token := strict.open("bot")
				before := len(p.requests())
				status, body := strict.post(modelForms[form].path, token, fmt.Sprintf(turn, said), nil)
				if code, _ := modelRefusal(t, body); status != 403 || code != "flow.contaminated" || len(p.requests()) != before {
					t.Errorf("%s, to a model that may not get it: %d %s", name, status, body)
				}
				if got := labels(strict, session); !slices.Equal(got, []string{"internal", "untrusted"}) {
					t.Errorf("%s, refused: the session has %v", name, got)
				}
			}
			session, token := w.open("bot")
			if status, body := w.post(modelForms[form].path, token, fmt.Sprintf(turn, forged), nil); status != 200 {
				t.Errorf("%s, %s, forged: %d %s", form, place, status, body)
			}
			if got := labels(w, session); slices.Contains(got, "internal") || slices.Contains(got, "untrusted") != (place == "a result") {
				t.Errorf("%s, %s, forged: the session has %v", form, place, got)
			}
		}
	}
	w.sane()
	strict.sane()
}
