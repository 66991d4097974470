package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// What agents asked models for, by agent and model: as many as the log has, with tokens, cost and the time to the first text.
func TestModelsInTheBrowser(t *testing.T) {
	p := newModelProvider(t)
	config := strings.Replace(p.config("[internal]"), "labels: [internal]", "labels: [internal], price: {input: 3, output: 15}, fallback: claude-haiku-4-5-20251001", 1) +
		fmt.Sprintf("  - {id: claude-haiku-4-5-20251001, provider: anthropic, base_url: %q}\n", p.url)
	w := start(t, config, thinker("asker"), thinker("poor")+"quotas: {tokens: {day: 10}}\n")
	token := w.token("asker")
	text := modelForms["messages"].body
	for range 3 {
		if status, body := w.post("/anthropic/v1/messages", token, fmt.Sprintf(text, "Hi."), nil); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	f := streamed["chat"]
	p.says(func(rw http.ResponseWriter, r modelRequest) bool {
		if !strings.HasSuffix(r.path, "/chat/completions") {
			return false
		}
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(rw, f.begin+f.text("Hello there ")+strings.Join(f.act, ""))
		return true
	})
	if status, body := w.post(f.path, token, f.body, nil); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if status, _ := w.post("/anthropic/v1/messages", w.token("poor"), fmt.Sprintf(text, "Hi."), nil); status != 403 {
		t.Fatalf("%d", status)
	}

	b := newBrowser(t)
	b.signIn(w, w.tokenOf("carol", "viewer", "auditor"))
	eventually(t, patience, "the counters have counted all", func() bool {
		b.open(w.admin + "/models")
		return strings.Contains(b.text(), "4 answered, 1 refused, 0 failed")
	})
	for _, want := range []string{"12 tokens in, 15 out, 0.000117 spent", "asker", claude, gpt, "poor", "May get data labelled internal", "Falls back to claude-haiku-4-5-20251001", "May get no labelled data"} {
		b.see(want)
	}
	first := eval[string](b, `[...document.querySelectorAll("#main tbody tr")].find(r => r.innerText.includes("`+gpt+`")).children[7].innerText`)
	if _, err := time.ParseDuration(first); err != nil {
		t.Errorf("the time to the first text is %q", first)
	}
	b.accessible("models")
	b.look("light", 360)
	b.shot("models-360")
	b.look("light", 1280)
	b.click(`#main tbody a[href*="operation=model.` + claude + `"]`)
	b.see("model." + claude)
}

// What the gateway itself asks models for stands on the page in lines of its own: for embeddings and for judges of claims, with tokens and cost, each leading to its entries.
func TestOwnModelRequestsInTheBrowser(t *testing.T) {
	const small = "text-embedding-3-small"
	p := newModelProvider(t)
	p.says(embeds(small))
	config := p.config("[internal]") + fmt.Sprintf("  - {id: %[1]s, provider: openai, base_url: %[2]q, pinned: true, price: {input: 2, output: 0}}\nknowledge: {embeddings: %[1]s}\nclaims: {sources: [knowledge.handbook], judge: %[3]s}\n", small, p.url+"/v1", claude)
	w := start(t, config, thinker("asker"))
	id := w.addDocument("handbook", "acme.md", "Three sisters founded Acme in 1999.")
	w.snapshot()
	w.embedded(id)
	if status, body := w.send("POST", w.admin+"/v1/claims", w.place.secret(t, "admin.token"), `{"claim":"Acme was founded in 1999."}`, nil); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	embedded := 0 // requests
	for _, r := range p.requests() {
		if strings.HasSuffix(r.path, "/embeddings") {
			embedded++
		}
	}
	b := newBrowser(t)
	b.signIn(w, w.tokenOf("carol", "viewer", "auditor"))
	row := func(what string) string {
		return eval[string](b, `[...document.querySelectorAll("#main tbody tr")].filter(r => r.innerText.includes("`+what+`")).map(r => [...r.children].slice(1, 7).map(c => c.innerText).join(" ")).join("; ")`)
	}
	embeddings, judged := fmt.Sprintf("%d 0 0 %d 0 %.6f", embedded, 3*embedded, float64(6*embedded)/1e6), "1 0 0 3 2 –"
	eventually(t, patience, "the counters have counted all", func() bool {
		b.open(w.admin + "/models")
		return row("The gateway itself: judging") == judged
	})
	if got := row("The gateway itself: embeddings"); got != embeddings {
		t.Errorf("%q, want %q", got, embeddings)
	}
	b.accessible("models-own")
	b.look("light", 360)
	b.shot("models-own-360")
	b.look("light", 1280)
	b.click(`#main tbody a[href*="action=claim.judge"]`)
	b.see("claim.judge")
}
