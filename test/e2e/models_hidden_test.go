package e2e

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// Whatever a provider hides a call in, it waits for the outcome: of a stream that breaks off before it, nothing of the call has left.
func TestCallsThatAProviderHides(t *testing.T) {
	p := newModelProvider(t)
	w := start(t, p.config("[]")+"breakers: {failures: 100}\n", thinker("bot"))
	_, token := w.open("bot")
	for name, hidden := range map[string][]string{
		"messages": {
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"","input":{"a":"MARK"}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","name":"MARK"}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x ","partial_json":"MARK"}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":"MARK"}}`,
			`{"type":"content_block_stop","index":0,"content_block":{"type":"tool_use","name":"MARK"}}`,
			`{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"` + claude + `","content":[{"type":"tool_use","name":"MARK"}]}}`,
			`{"type":"ping","tool":"MARK"}`,
		},
		"chat": {
			`{"id":"c","model":"` + gpt + `","choices":[{"index":0,"delta":{"content":[{"type":"tool_use","name":"MARK"}]}}]}`,
			`{"id":"c","model":"` + gpt + `","choices":[{"index":0,"message":{"tool_calls":[{"function":{"name":"MARK"}}]},"delta":{"content":"x "}}]}`,
			`{"id":"c","model":"` + gpt + `","choices":[{"index":0,"delta":{"content":"x "}}],"tool_calls":[{"name":"MARK"}]}`,
			`{"id":"c","model":"` + gpt + `","choices":[{"index":0,"delta":{"content":"x ","role":"MARK"}}]}`,
			`{"id":"c","model":"` + gpt + `","choices":[{"index":0,"delta":{"content":"x "}},{"index":0,"delta":{"tool_calls":[{"function":{"name":"MARK"}}]}}]}`,
			`{"id":"c","model":"` + gpt + `","choices":{"0":{"delta":{"tool_calls":[{"function":{"name":"MARK"}}]}}}}`,
		},
		"responses": {
			`{"type":"response.output_text.delta","sequence_number":1,"item_id":"i","output_index":0,"content_index":0,"delta":"x ","response":{"model":"` + gpt + `","output":[{"type":"function_call","name":"MARK"}]}}`,
			`{"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"type":"message","role":"assistant","content":[],"call_id":"MARK"}}`,
			`{"type":"response.in_progress","sequence_number":1,"response":{"model":"` + gpt + `","output":[],"required_action":{"name":"MARK"}}}`,
			`{"type":"response.in_progress","sequence_number":1,"response":{"model":"` + gpt + `","output":{"0":{"name":"MARK"}}}}`,
			`{"type":"response.content_part.added","sequence_number":1,"item_id":"i","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[],"tool":"MARK"}}`,
		},
	} {
		f := streamed[name]
		for _, event := range hidden {
			p.says(func(h http.ResponseWriter, _ modelRequest) bool {
				h.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(h, f.begin+"data: "+event+"\n\n"+f.text("and so on "))
				return true
			})
			status, answer := w.post(f.path, token, f.body, nil)
			if got := string(answer); status != 200 || !strings.Contains(got, "upstream.failed") || strings.Contains(got, "MARK") || strings.Contains(got, "and so on") {
				t.Errorf("%s, %s: %d %s", name, event, status, got)
			}
		}
	}
	w.sane()
}

// A secret has the same placeholder in each form and session, and after a restart.
func TestPlaceholdersStay(t *testing.T) {
	t.Parallel()
	p := newModelProvider(t)
	w := launch(t, newPlace(t, strings.ReplaceAll(p.config("[]"), "labels: []", "labels: [], secrets: mask"), thinker("bot")))
	first := ""
	ask := func(token string) {
		t.Helper()
		for form, f := range modelForms {
			before := len(p.requests())
			status, answer := w.post(f.path, token, strings.Replace(f.body, "%q", `"Use ghp_`+`16C7e42F292c6912E7710c838347Ae178B4a"`, 1), nil)
			if status != 200 {
				t.Fatalf("%s: %d %s", form, status, answer)
			}
			_, placeholder, _ := strings.Cut(p.requests()[before].body, "[masked:")
			placeholder, _, _ = strings.Cut(placeholder, "]")
			if first == "" {
				first = placeholder
			}
			if placeholder == "" || placeholder != first {
				t.Errorf("%s: %q, before %q", form, placeholder, first)
			}
		}
	}
	_, token := w.open("bot")
	ask(token)
	w.kill()
	w = launch(t, w.place)
	ask(token)
	_, token = w.open("bot")
	ask(token)
	if _, err := w.root.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	ask(token)
}
