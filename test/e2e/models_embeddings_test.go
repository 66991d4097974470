package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Embeddings are asked for by the same door, under the same rules: labels of the session and of the texts, the declaration, the record, and the answer of the model that was asked.
func TestEmbeddingsThroughTheDoor(t *testing.T) {
	const small = "text-embedding-3-small"
	p := newModelProvider(t)
	p.says(func(w http.ResponseWriter, _ modelRequest) bool {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"object":"list","model":%q,"data":[{"object":"embedding","index":0,"embedding":[0.25,-0.5]}],"usage":{"prompt_tokens":4,"total_tokens":4}}`, small)
		return true
	})
	w := start(t, fmt.Sprintf("models:\n  - {id: %s, provider: openai, base_url: %q, key: %s, pinned: true, labels: [pii]}\n", small, p.url+"/v1", keyOf),
		strings.Replace(declaration("bot"), "models: []", "models: ["+small+"]", 1), declaration("other"))
	const path = "/openai/v1/embeddings"
	body := func(input string) string { return fmt.Sprintf(`{"model":%q,"input":[%q]}`, small, input) }
	token := w.token("bot")
	status, answer := w.post(path, token, body("What is paid abroad?"), nil)
	if sent := p.requests(); status != 200 || !strings.Contains(string(answer), "-0.5") || len(sent) != 1 || !strings.HasSuffix(sent[0].path, "/v1/embeddings") || sent[0].body != `{"input":["What is paid abroad?"],"model":"`+small+`"}` {
		t.Fatalf("%d %s; sent %+v", status, answer, p.requests())
	}
	for _, c := range []struct {
		name, token, body, code string
		status                  int
	}{
		{"an agent whose declaration does not name it", w.token("other"), body("x"), "model.undeclared", 403},
		{"tokens", token, `{"model":"` + small + `","input":[[1,2]]}`, "request.malformed", 400},
		{"a secret", token, body("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzKEY"), "flow.contaminated", 403},
	} {
		status, answer := w.post(path, c.token, c.body, nil)
		if code, _ := modelRefusal(t, answer); status != c.status || code != c.code {
			t.Errorf("%s: %d %s", c.name, status, answer)
		}
	}
	if n := len(p.requests()); n != 1 {
		t.Errorf("%d requests left", n)
	}
	intents, used := 0, false
	for _, e := range w.entries() {
		if e.Action == "models/request" && e.Model == small {
			if e.Kind == "intent" {
				intents++
			}
			used = used || strings.Contains(string(e.Detail), `"input":4`)
		}
	}
	if intents != 1 || !used {
		t.Errorf("%d intents, usage on record: %v", intents, used)
	}
	w.sane()
}
