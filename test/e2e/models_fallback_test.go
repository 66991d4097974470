package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"sallyport.example/client"
)

// A model that fails before its answer begins is answered for by its fallback, as a call of its own under all rules; both causes stand in the error where that fails, too.
func TestModelsFallBack(t *testing.T) {
	const spare, poor = "claude-haiku-4-5-20251001", "claude-haiku-4-4-20250101"
	p := newModelProvider(t)
	config := p.config("[internal, pii], fallback: "+spare) + fmt.Sprintf("  - {id: %s, provider: anthropic, base_url: %q, labels: [internal]}\n", spare, p.url)
	config = strings.Replace(config, "fallback: "+spare+"}\n  - {id: "+spare, "fallback: "+poor+"}\n  - {id: "+poor+", provider: openai, base_url: "+fmt.Sprintf("%q", p.url)+"}\n  - {id: "+spare, 1)
	may := strings.Replace(declaration("bot"), "models: []", "models: ["+claude+", "+spare+"]", 1)
	w := start(t, config+"breakers: {failures: 100}\n", may, thinker("alone"))
	f := streamed["messages"]
	overloaded := func(rw http.ResponseWriter) {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(529)
		_, _ = io.WriteString(rw, `{"type":"error","error":{"type":"overloaded_error","message":"words of the provider"}}`)
	}
	// answers has the provider answer for each model.
	answers := func(first, second func(rw http.ResponseWriter)) {
		p.says(func(rw http.ResponseWriter, r modelRequest) bool {
			if strings.Contains(r.body, `"model":"`+spare) {
				second(rw)
			} else {
				first(rw)
			}
			return true
		})
	}
	good := func(rw http.ResponseWriter) {
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(rw, `{"id":"m","type":"message","role":"assistant","model":%q,"content":[],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}`, spare)
	}
	streams := func(rw http.ResponseWriter) {
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(rw, strings.ReplaceAll(f.begin+f.text("Hello there ")+strings.Join(f.act, ""), claude, spare))
	}
	gone := func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	refused := func(rw http.ResponseWriter) { rw.WriteHeader(401) }
	busy := func(rw http.ResponseWriter) { rw.Header().Set("Retry-After", "7"); rw.WriteHeader(429) }
	cut := func(rw http.ResponseWriter) {
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(rw, f.begin+f.text("Hello there "))
		_ = http.NewResponseController(rw).Flush()
		panic(http.ErrAbortHandler)
	}
	text := modelForms["messages"].body
	for name, c := range map[string]struct {
		agent, body   string
		first, second func(rw http.ResponseWriter)
		status        int
		has, code     string
		asked         int
	}{
		"overloaded":                        {"bot", fmt.Sprintf(text, "Hi."), overloaded, good, 200, spare, "", 2},
		"the connection breaks":             {"bot", fmt.Sprintf(text, "Hi."), gone, good, 200, spare, "", 2},
		"the key is refused":                {"bot", fmt.Sprintf(text, "Hi."), refused, good, 200, spare, "", 2},
		"streamed":                          {"bot", f.body, overloaded, streams, 200, "Hello there", "", 2},
		"cut after its beginning":           {"bot", f.body, cut, streams, 200, "upstream.failed", "", 1},
		"too many requests":                 {"bot", fmt.Sprintf(text, "Hi."), busy, good, 429, "", "", 1},
		"both overloaded":                   {"bot", fmt.Sprintf(text, "Hi."), overloaded, overloaded, 502, claude + " failed", "fallback.failed", 2},
		"both break":                        {"bot", fmt.Sprintf(text, "Hi."), gone, gone, 502, spare + " failed, too", "fallback.failed", 2},
		"labels that the other may not get": {"bot", fmt.Sprintf(text, "Pay DE89 3704 0044 0532 0130 00."), overloaded, good, 403, "pii", "flow.contaminated", 1},
		"not declared":                      {"alone", fmt.Sprintf(text, "Hi."), overloaded, good, 529, "", "", 1},
	} {
		answers(c.first, c.second)
		session, token := w.open(c.agent)
		before := len(p.requests())
		header := http.Header{}
		status, body := w.postModel("/anthropic/v1/messages", token, c.body, &header)
		if n := len(p.requests()) - before; status != c.status || !strings.Contains(string(body), c.has) || n != c.asked {
			t.Errorf("%s: %d requests, %d %s", name, n, status, body)
		}
		if got := header.Get("X-Sallyport-Fallback"); (got == spare) != (c.asked == 2) {
			t.Errorf("%s: the fallback is %q", name, got)
		}
		if c.code != "" {
			code, message := modelRefusal(t, body)
			if code != c.code || !strings.Contains(message, claude) || !strings.Contains(message, spare) || strings.Contains(message, "words of the provider") {
				t.Errorf("%s: %s %s", name, code, message)
			}
		}
		var intents []client.Entry
		ended := 0
		for _, e := range w.entries() {
			if e.Session == session && e.Kind == "intent" {
				intents = append(intents, e)
			}
			if e.Session == session && e.Kind == "outcome" {
				ended++
			}
		}
		if len(intents) != c.asked || ended != c.asked {
			t.Errorf("%s: %d intents, %d outcomes", name, len(intents), ended)
		}
		if c.asked == 2 {
			if detail, _ := json.Marshal(intents[1].Detail); !strings.Contains(string(detail), `"fallback_of":"`+intents[0].CallID+`"`) || !slices.Equal([]string{intents[0].Operation, intents[1].Operation}, []string{"model." + claude, "model." + spare}) {
				t.Errorf("%s: %+v", name, intents)
			}
		}
	}
	w.sane()
}

// A request with tools that the provider runs goes to the fallback only where the first model was not asked at all: else they may have run. Embeddings never do, since
// those of two models can't be compared.
func TestRequestsThatAreNotMadeTwice(t *testing.T) {
	const spare, small, large = "claude-haiku-4-5-20251001", "text-embedding-3-small-20240125", "text-embedding-3-large-20240125"
	p := newModelProvider(t)
	p.says(func(rw http.ResponseWriter, r modelRequest) bool {
		rw.Header().Set("Content-Type", "application/json")
		if strings.Contains(r.body, `"model":"`+spare) {
			fmt.Fprintf(rw, `{"id":"m","type":"message","role":"assistant","model":%q,"content":[],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}`, spare)
			return true
		}
		rw.WriteHeader(529)
		_, _ = io.WriteString(rw, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
		return true
	})
	config := "breakers: {wait: 5m}\nmodels:\n"
	for _, m := range [][]string{{claude, "anthropic", p.url, ", fallback: " + spare}, {spare, "anthropic", p.url, ""}, {small, "openai", p.url + "/v1", ", fallback: " + large}, {large, "openai", p.url + "/v1", ""}} {
		config += fmt.Sprintf("  - {id: %s, provider: %s, base_url: %q%s}\n", m[0], m[1], m[2], m[3])
	}
	w := start(t, config, strings.Replace(declaration("bot"), "models: []", "models: ["+strings.Join([]string{claude, spare, small, large}, ", ")+"]", 1)+"hostedTools: [web_search]\n")
	for name, c := range map[string]struct {
		path, body string
		open       int // the status where the breaker is open
		falls      string
	}{
		"hosted tools": {modelForms["messages"].path, strings.Replace(fmt.Sprintf(modelForms["messages"].body, "Hi."), "{", `{"tools":[{"type":"web_search_20250305","name":"web_search"}],`, 1), 200, spare},
		"embeddings":   {"/openai/v1/embeddings", `{"model":"` + small + `","input":"What is paid abroad?"}`, 503, ""},
	} {
		_, token := w.open("bot")
		opened := false
		for range 12 {
			before, header := len(p.requests()), http.Header{}
			status, body := w.postModel(c.path, token, c.body, &header)
			asked := p.requests()[before:]
			if status == 529 && !opened {
				if len(asked) != 1 || header.Get("X-Sallyport-Fallback") != "" {
					t.Fatalf("%s: it failed and was made again: %d requests", name, len(asked))
				}
				continue
			}
			opened = true
			if status != c.open || header.Get("X-Sallyport-Fallback") != c.falls || len(asked) > 1 || (len(asked) == 1) != (c.falls != "") {
				t.Errorf("%s: where its breaker is open: %d %s, %d requests", name, status, body, len(asked))
			}
		}
		if !opened {
			t.Errorf("%s: the breaker never opened", name)
		}
	}
	w.sane()
}
