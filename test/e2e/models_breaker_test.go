package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// A provider that is overloaded, and then dies: the circuit breaker of its model opens, over a crash of the gateway, and says so in the provider's form. A model
// in its place is asked. What is the fault of requests opens nothing, and one agent shuts a model for itself alone.
func TestAModelsBreaker(t *testing.T) {
	t.Parallel()
	const spare, lone = "claude-haiku-4-5-20251001", "claude-opus-4-1-20250805"
	type way func(rw http.ResponseWriter, model string)
	answers := func(status int, body string) way {
		return func(rw http.ResponseWriter, model string) {
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(status)
			_, _ = io.WriteString(rw, strings.ReplaceAll(body, "MODEL", model))
		}
	}
	good := answers(200, `{"id":"m","type":"message","role":"assistant","model":"MODEL","content":[],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}`)
	overloaded := answers(529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
	busy := answers(429, `{"type":"error","error":{"type":"rate_limit_error","message":"Too many"}}`)
	wrong := answers(400, `{"type":"error","error":{"type":"invalid_request_error","message":"No"}}`)
	cut := func(rw http.ResponseWriter, _ string) {
		rw.Header().Set("Content-Type", "application/json")
		rw.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(rw, `{"id":`)
	}
	var now atomic.Pointer[way]
	now.Store(&good)
	asked := map[string]*atomic.Int32{claude: {}, spare: {}, lone: {}}
	provider := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		for id, n := range asked {
			if strings.Contains(string(body), `"model":"`+id) {
				n.Add(1)
				if f := *now.Load(); id != spare {
					f(rw, id)
				} else {
					good(rw, id)
				}
			}
		}
	}))
	t.Cleanup(provider.Close)
	config := "models:\n"
	for _, id := range []string{claude, spare, lone} {
		config += fmt.Sprintf("  - {id: %s, provider: anthropic, base_url: %q, labels: [internal]", id, provider.URL)
		if id == claude {
			config += ", fallback: " + spare
		}
		config += "}\n"
	}
	may := func(id string, models ...string) string {
		return strings.Replace(declaration(id), "models: []", "models: ["+strings.Join(models, ", ")+"]", 1)
	}
	place := newPlace(t, config+"breakers: {wait: 5m}\n", may("first", claude, lone), may("second", claude, lone), may("third", claude, spare, lone))
	w := launch(t, place)
	tokens := map[string]string{}
	for _, id := range []string{"first", "second", "third"} {
		tokens[id] = w.token(id)
	}
	ask := func(agent, model string) (int, string, http.Header) {
		t.Helper()
		header := http.Header{}
		status, body := w.postModel("/anthropic/v1/messages", tokens[agent], strings.ReplaceAll(fmt.Sprintf(modelForms["messages"].body, "Hi."), claude, model), &header)
		return status, string(body), header
	}
	open := func() (names []string) {
		t.Helper()
		all, err := w.root.Breakers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range all {
			if b.State != "closed" {
				names = append(names, b.Name)
			}
		}
		return names
	}
	check := func(when string, want ...string) {
		t.Helper()
		if got := open(); !slices.Equal(got, want) {
			t.Fatalf("%s: open %q, want %q", when, got, want)
		}
	}
	reset := func() {
		t.Helper()
		for _, name := range open() {
			if _, err := w.root.ResetBreaker(t.Context(), name, "it is well"); err != nil {
				t.Fatal(err)
			}
		}
		check("after the reset")
	}

	now.Store((*way)(&wrong))
	for range 8 {
		if status, body, _ := ask("first", claude); status != 400 {
			t.Fatalf("%d %s", status, body)
		}
	}
	check("requests that are wrong")
	for name, f := range map[string]way{"overloaded": overloaded, "too many requests": busy, "cut": cut} {
		now.Store(&f)
		for range 5 {
			ask("first", claude)
		}
		check(name+", by one agent", "first@model:"+claude)
		before := asked[claude].Load()
		status, body, header := ask("first", claude)
		code, message := modelRefusal(t, []byte(body))
		if wait, _ := strconv.Atoi(header.Get("Retry-After")); status != 503 || code != "breaker.open" || wait < 200 || wait > 300 || header.Get("X-Should-Retry") != "" || !strings.Contains(message, "this agent's requests to the model") || !strings.Contains(body, `"type":"error"`) {
			t.Errorf("%s: %d %s %v", name, status, body, header)
		}
		if asked[claude].Load() != before {
			t.Errorf("%s: the provider was asked", name)
		}
		for range 2 {
			ask("second", claude)
		}
		check(name+", by two agents", "first@model:"+claude, "model:"+claude)
		if status, body, _ := ask("third", lone); status == 503 {
			t.Errorf("%s: another model is shut: %s", name, body)
		}
		reset()
		now.Store(&good)
		for _, id := range []string{"first", "second", "third"} { // and nothing is counted
			for _, model := range []string{claude, lone} {
				if status, body, _ := ask(id, model); status != 200 {
					t.Fatalf("%s: %s asks %s: %d %s", name, id, model, status, body)
				}
			}
		}
	}

	// The provider dies. What is open stays open over a crash, and the fallback serves without a request to the model that is shut.
	now.Store(&overloaded)
	for range 5 {
		ask("first", claude)
		ask("second", claude)
	}
	if status, body, _ := ask("second", claude); status != 503 || !strings.Contains(body, "the model "+claude+" is open") {
		if status, body, _ = ask("third", claude); status != 200 {
			t.Errorf("%d %s", status, body)
		}
	}
	w.kill()
	w = launch(t, place)
	before := asked[claude].Load()
	status, body, header := ask("third", claude)
	if status != 200 || !strings.Contains(body, spare) || header.Get("X-Sallyport-Fallback") != spare || asked[claude].Load() != before {
		t.Errorf("the fallback: %d %s %v", status, body, header)
	}
	provider.CloseClientConnections()
	provider.Close()
	for range 5 { // the first may meet a connection that breaks, which could be its own doing
		ask("third", lone)
		ask("second", lone)
	}
	if all := open(); !slices.Contains(all, "model:"+lone) {
		t.Errorf("dead: open %q", all)
	}
	if status, body, _ := ask("first", lone); status != 503 || !strings.Contains(body, "The circuit breaker of the model "+lone+" is open") {
		t.Errorf("%d %s", status, body)
	}
	for range 6 { // the fallback is dead, too: both causes
		status, body, _ = ask("third", claude)
	}
	if code, message := modelRefusal(t, []byte(body)); status != 502 || code != "fallback.failed" || strings.Count(message, "The circuit breaker of") != 2 {
		t.Errorf("%d %s", status, body)
	}
	for _, args := range [][]string{{"status"}, {"breaker", "list"}} {
		if _, out, _ := cli(t, place, nil, append(args, "--data", place.data)...); !strings.Contains(out, "model:"+claude) || !strings.Contains(out, "requests failed in a row at the model "+claude) {
			t.Errorf("%s: %s", args, out)
		}
	}
	b := w.ann()
	for name, path := range map[string]string{"breakers-overview": "/", "breakers-agent": "/agents/third"} {
		b.open(w.admin + path)
		b.see("requests failed in a row at the model")
		b.accessible(name)
		b.phone()
		b.open(w.admin + path)
		b.fitsPhone()
		b.shot(name)
	}
	reset()
	n := map[string]int{}
	for _, e := range w.entries() {
		if e.Action == "breaker.open" || e.Action == "breaker.closed" {
			n[e.Action]++
		}
	}
	if n["breaker.open"] != n["breaker.closed"] {
		t.Errorf("%v", n)
	}
	w.sane()
}
