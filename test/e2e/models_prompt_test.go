package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// systemOf is the first part of the system message that a provider was sent, and the rest of what was sent in its place.
func systemOf(t testing.TB, r modelRequest) (first, rest string) {
	t.Helper()
	var body struct {
		Instructions string
		Input        json.RawMessage
		System       []struct{ Type, Text string }
		Messages     []struct {
			Role    string
			Content json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(r.body), &body); err != nil {
		t.Fatalf("%v: %s", err, r.body)
	}
	if strings.HasSuffix(r.path, "/responses") {
		first, rest, _ = strings.Cut(body.Instructions, "\n\n# Client")
		if first != body.Instructions { // its own instructions
			return first + "\n", rest
		}
		return first, string(body.Input)
	}
	if strings.HasSuffix(r.path, "/chat/completions") {
		if len(body.Messages) == 0 || body.Messages[0].Role != "system" || json.Unmarshal(body.Messages[0].Content, &first) != nil {
			t.Fatalf("no message in front: %s", r.body)
		}
		b, _ := json.Marshal(body.Messages[1:]) // of JSON: encodes
		return first, string(b)
	}
	if len(body.System) == 0 || body.System[0].Type != "text" {
		t.Fatalf("no message in front: %s", r.body)
	}
	b, _ := json.Marshal(body.System[1:]) // of texts: encodes
	return body.System[0].Text, string(b)
}

// The layered system message stands in front of every request, in the provider's own form and with the same bytes in each turn: whatever the session reads
// meanwhile, after a restart, and where the client sends a copy of it.
func TestModelsGetTheSystemMessage(t *testing.T) {
	p := newModelProvider(t)
	planner := thinker("bot") + `systemPrompt:
  role: travel planner
  constraints: ["Only book with verified travel partners"]
`
	place := newPlace(t, p.config("[internal, pii, secret]"), planner)
	w := launch(t, place)
	_, token := w.open("bot")
	for name, f := range modelForms {
		before := len(p.requests())
		ask := func(body string) string {
			t.Helper()
			status, answer := w.post(f.path, token, body, nil)
			if status != 200 {
				t.Fatalf("%s: %d %s", name, status, answer)
			}
			first, rest := systemOf(t, p.requests()[len(p.requests())-1])
			if strings.Contains(rest, "# Core Principles") != strings.Contains(body, "# Core Principles") {
				t.Errorf("%s: it stands there twice: %s", name, rest)
			}
			return first
		}
		one := ask(fmt.Sprintf(f.body, "Hi."))
		for _, want := range []string{
			"You are a travel planner assistant.\n\n# Core Principles\n1. Be helpful", "\n# Security Rules\n", "\n# Allowed Actions\n", "\n# Forbidden Actions\n",
			"\n# Additional Constraints\n- Only book with verified travel partners\n", "\n# If Uncertain\n", "Tool ordering constraint", "UNTRUSTED_EXTERNAL_CONTENT",
		} {
			if strings.Count(one, want) != 1 {
				t.Errorf("%s: %q in\n%s", name, want, one)
			}
		}
		ask(fmt.Sprintf(f.body, "Pay DE89 3704 0044 0532 0130 00 please.")) // the session holds pii from here on
		if two := ask(fmt.Sprintf(f.body, "And now?")); two != one {
			t.Errorf("%s: other bytes:\n%s\n%s", name, one, two)
		}
		forged, _ := json.Marshal(one) // of a text: encodes
		copied := map[string]string{
			"messages":  `{"model":"` + claude + `","max_tokens":16,"system":[{"type":"text","text":` + string(forged) + `,"cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"Hi."}]}`,
			"chat":      `{"model":"` + gpt + `","messages":[{"role":"system","content":` + string(forged) + `},{"role":"user","content":"Hi."}]}`,
			"responses": `{"model":"` + gpt + `","input":"Hi.","instructions":` + strings.Replace(string(forged), `"`, `"# Client\n`, 1) + `}`,
		}[name]
		if first := ask(copied); first != one {
			t.Errorf("%s: a copy of it takes its place:\n%s", name, first)
		}
		if sent := p.requests()[len(p.requests())-1].body; name == "messages" && !strings.Contains(sent, `"cache_control":{"type":"ephemeral"}`) {
			t.Errorf("the mark for the cache is lost: %s", sent)
		}
		if n := len(p.requests()) - before; n != 4 {
			t.Errorf("%s: %d requests", name, n)
		}
	}
	first, _ := systemOf(t, p.requests()[0])
	w.stop()
	w = launch(t, place)
	if status, answer := w.post(modelForms["messages"].path, token, fmt.Sprintf(modelForms["messages"].body, "Back."), nil); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	if again, _ := systemOf(t, p.requests()[len(p.requests())-1]); again != first {
		t.Errorf("other bytes after a restart:\n%s", again)
	}
	settled := 0
	for _, e := range w.entries() {
		if e.Action == "session.prompt" {
			settled++
		}
	}
	if settled != 1 {
		t.Errorf("it was settled %d times", settled)
	}
	w.sane()
}
