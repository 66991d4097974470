package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// counted stands between clients and the gateway, and keeps what each request for an answer came to. It can change the requests.
type counted struct {
	url    string
	change func(path, body string) string // set before the first request

	mu      sync.Mutex
	answers []countedAnswer // guarded by mu
}

type countedAnswer struct {
	status int
	retry  string // the header by which the gateway says whether to send it again
	body   string // of the request, as its client sent it
}

// countedBody is the key of a request's body in its context.
type countedBody struct{}

func newCounted(t testing.TB, w *world) *counted {
	to, err := url.Parse(w.agent)
	if err != nil {
		t.Fatal(err)
	}
	c := new(counted)
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			body, _ := io.ReadAll(r.In.Body)
			r.Out = r.Out.WithContext(context.WithValue(r.Out.Context(), countedBody{}, string(body)))
			if c.change != nil {
				body = []byte(c.change(r.In.URL.Path, string(body)))
			}
			r.Out.Body, r.Out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		},
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Method == http.MethodPost && strings.Contains(r.Request.URL.Path, "/v1/") {
				c.mu.Lock()
				defer c.mu.Unlock()
				r.Header.Del("Retry-After") // a breaker's is minutes
				c.answers = append(c.answers, countedAnswer{r.StatusCode, r.Header.Get("X-Should-Retry"), r.Request.Context().Value(countedBody{}).(string)})
			}
			return nil
		},
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

// take is what came since the last time.
func (c *counted) take() []countedAnswer {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.answers
	c.answers = nil
	return all
}

// fallingBack is the configuration of both models, each with a fallback.
func fallingBack(p *modelProvider, labels string) string {
	config := p.config(labels) + fmt.Sprintf("  - {id: %s, provider: anthropic, base_url: %q}\n  - {id: %s, provider: openai, base_url: %q}\n", spareClaude, p.url, spareGPT, p.url+"/v1")
	for _, id := range []string{spareClaude, spareGPT} {
		config = strings.Replace(config, "labels: "+labels+"}", "labels: "+labels+", fallback: "+id+"}", 1)
	}
	return config
}

// falls declares an agent that may ask the fallbacks, too.
func falls() string {
	return strings.Replace(declaration("falls"), "models: []", "models: ["+strings.Join([]string{claude, gpt, spareClaude, spareGPT}, ", ")+"]", 1)
}

const spareClaude, spareGPT = "claude-haiku-4-5-20251001", "gpt-4o-mini-2024-07-18"

// say asks a model in a form.
func (w *world) say(form, token string) {
	w.post(modelForms[form].path, token, fmt.Sprintf(modelForms[form].body, "Hi."), nil)
}

// formOf is the form of the requests to a path.
func formOf(path string) string {
	switch {
	case strings.HasSuffix(path, "/messages"):
		return "messages"
	case strings.HasSuffix(path, "/responses"):
		return "responses"
	}
	return "chat"
}

func overloaded(h http.ResponseWriter, _ modelRequest) bool {
	h.Header().Set("Content-Type", "application/json")
	h.WriteHeader(529)
	_, _ = io.WriteString(h, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
	return true
}

// breaksOff is a provider that ends the connection without an answer.
func breaksOff(http.ResponseWriter, modelRequest) bool { panic(http.ErrAbortHandler) }

// anothersAnswer is an answer of another model than the one that was asked.
func anothersAnswer(h http.ResponseWriter, r modelRequest) bool {
	if strings.Contains(r.body, `"stream":true`) {
		h.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(h, strings.NewReplacer(claude, "another", gpt, "another").Replace(streamedText(formOf(r.path), "Hello.")))
		return true
	}
	h.Header().Set("Content-Type", "application/json")
	parts := map[string]string{"messages": "content", "responses": "output", "chat": "choices"}[formOf(r.path)]
	_, _ = io.WriteString(h, `{"id":"x1","model":"another","`+parts+`":[]}`)
	return true
}

var (
	// once are a request of each SDK and form, whole or streamed; again are fewer, for what is sent again after a wait.
	once  = []string{"anthropic whole", "anthropic stream", "openai stream", "responses whole", "agents chat whole", "agents responses stream", "vercel anthropic whole", "vercel chat stream", "vercel responses whole"}
	again = []string{"anthropic stream", "responses whole", "agents responses stream", "vercel chat stream"}
)

// What each SDK sends after each refusal. All go by the status, and those of the providers by x-should-retry first: what stays refused is sent once. Vercel's sends a 409 again whatever
// that header says. Where a circuit breaker is open or models failed, all try again, as without a gateway.
func TestWhatSDKsSendAfterRefusals(t *testing.T) {
	t.Parallel()
	p := newModelProvider(t)
	config := opens("http://127.0.0.1:1") + fallingBack(p, "[]")
	agents := []string{
		thinker("bot"), thinker("killed"), thinker("aside"), thinker("poor") + "quotas: {tokens: {day: 10}}\n", thinker("slow") + "quotas: {apiCalls: {minute: 1}}\n", declaration("none"), planner("asks"), falls(),
	}
	w := start(t, config+"breakers: {failures: 100}\n", agents...)
	shut := start(t, config+"breakers: {wait: 5m}\n", agents...)
	for _, c := range []struct {
		code, agent, text string
		status            int
		anthropic, openai string // "": the models that are there
		sent, vercel      int    // how often, in all; 0: once; vercel 0: as by the others
		says              func(h http.ResponseWriter, r modelRequest) bool
		before            func(w *world, door *counted, token string) error
	}{
		{code: "model.undeclared", agent: "none", status: 403},
		{code: "model.unpinned", agent: "bot", status: 403, anthropic: "claude-sonnet-4-5", openai: "gpt-4o"},
		{code: "request.malformed", agent: "bot", status: 400, anthropic: gpt, openai: claude},
		{code: "flow.contaminated", agent: "bot", status: 403, text: "Pay DE89 3704 0044 0532 0130 00."},
		{code: "limit.quota", agent: "poor", status: 403},
		{code: "limit.rate", agent: "slow", status: 403, before: func(w *world, _ *counted, token string) error { w.say("chat", token); return nil }},
		{code: "agent.quarantined", agent: "aside", status: 403, before: func(w *world, _ *counted, _ string) error {
			_, err := w.root.Quarantine(t.Context(), "aside", "a test")
			return err
		}},
		{code: "kill_switch.active", agent: "killed", status: 403, before: func(w *world, _ *counted, _ string) error {
			_, err := w.root.Kill(t.Context(), "killed", "a test")
			return err
		}},
		{code: "approval.required", agent: "asks", status: 409, vercel: 3, before: func(_ *world, door *counted, _ string) error {
			door.change = func(path, body string) string { return searching(formOf(path), body) }
			return nil
		}},
		{code: "upstream.failed", agent: "bot", status: 502, sent: 3, says: breaksOff},
		{code: "output.invalid", agent: "bot", status: 502, vercel: 3, says: anothersAnswer},
		{code: "fallback.failed", agent: "falls", status: 502, sent: 3},
		{code: "breaker.open", agent: "bot", status: 503, sent: 3, before: func(w *world, _ *counted, token string) error {
			for range 5 {
				w.say("messages", token)
				w.say("chat", token)
			}
			return nil
		}},
	} {
		t.Run(c.code, func(t *testing.T) {
			w, forms, want, models := w, once, max(c.sent, 1), []string{claude, gpt}
			if c.sent > 1 {
				forms = again
				p.says(overloaded)
			}
			if c.says != nil {
				p.says(c.says)
			}
			if c.code == "breaker.open" {
				w = shut
			}
			if c.anthropic != "" {
				models = []string{c.anthropic, c.openai}
			}
			session, token := "", ""
			if c.code == "approval.required" {
				session, token = w.planned(c.agent)
			} else {
				session, token = w.open(c.agent)
			}
			door := newCounted(t, w)
			if c.before != nil {
				if err := c.before(w, door, token); err != nil {
					t.Fatal(err)
				}
			}
			s := startSDKsAt(t, door.url, token, models[0], models[1])
			for _, name := range forms {
				text := c.text
				if text == "" {
					text = "Hi, " + name + "."
				}
				want := want
				if c.vercel > 0 && strings.HasPrefix(name, "vercel") {
					want = c.vercel
				}
				a := s.ask(name, text)
				got := door.take()
				if a.Code != c.code || a.Status != c.status || len(got) != want {
					t.Errorf("%s: sent %d times, want %d: %+v, %+v", name, len(got), want, a, got)
				}
				for _, one := range got {
					if one.status != c.status || (one.retry == "false") != (c.sent == 0) {
						t.Errorf("%s: %+v", name, got)
					}
				}
			}
			if n := asksOf(w, session); c.code == "approval.required" && n != len(forms) {
				t.Errorf("%d questions for %d requests", n, len(forms))
			}
		})
	}
	w.sane()
	shut.sane()
}

// What Claude Code and Codex send after refusals, each with what client config prints. Claude Code sends what is refused once. Codex doesn't go by the header, and sends again
// what its settings let it (stream_max_retries): where a request failed, five times for each of these. Claude Code sends what failed again ten times, minutes long, or as often as
// CLAUDE_CODE_MAX_RETRIES says.
func TestWhatClientsSendAfterRefusals(t *testing.T) {
	t.Parallel()
	const claudeRetries = 2
	p := newModelProvider(t)
	config, agents := fallingBack(p, "[internal]")+opens("http://127.0.0.1:1"), []string{thinker("bot"), thinker("killed"), planner("asks"), falls()}
	w := launch(t, newPlace(t, config+"breakers: {failures: 100}\n", agents...))
	shut := launch(t, newPlace(t, config+"breakers: {wait: 5m}\n", agents...))
	if _, err := w.root.Kill(t.Context(), "killed", "a test"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code, agent   string
		status        int
		claude, codex int // how often it is sent again
		change        func(path, body string) string
		says          func(h http.ResponseWriter, r modelRequest) bool // the provider; nil: it is not asked
	}{
		{"upstream.failed", "bot", 502, claudeRetries, 9, nil, breaksOff},
		{"fallback.failed", "falls", 502, claudeRetries, 9, nil, overloaded},
		{"output.invalid", "bot", 502, 0, 9, nil, anothersAnswer},
		{"breaker.open", "bot", 503, claudeRetries, 9, nil, overloaded},
		{"kill_switch.active", "killed", 403, 0, 1, nil, nil},
		{"request.malformed", "bot", 400, 0, 0, func(_, body string) string { return strings.Replace(body, "{", `{"turbo":true,`, 1) }, nil},
		{"approval.required", "asks", 409, 0, 1, func(path, body string) string { return searching(formOf(path), body) }, nil},
	} {
		for client, want := range map[string]int{"claude-code": c.claude, "codex": c.codex} {
			t.Run(client+"/"+c.code, func(t *testing.T) {
				w := w
				p.says(c.says)
				if c.code == "breaker.open" {
					w = shut
				}
				session, token := "", ""
				if c.code == "approval.required" {
					session, token = w.planned(c.agent)
				} else {
					session, token = w.open(c.agent)
				}
				for range 5 {
					if c.code == "breaker.open" {
						w.say("messages", token)
						w.say("responses", token)
					}
				}
				door := newCounted(t, w)
				door.change = c.change
				settings := w.configured(token, client)
				var out string
				var err error
				if client == "codex" {
					config := strings.ReplaceAll(strings.Join(settings, "\n\n"), w.agent, door.url)
					out, err = clientRun(t, token, map[string]string{".codex/config.toml": config}, npm(t, "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"),
						"exec", "--strict-config", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Say hello.")
				} else {
					config := strings.ReplaceAll(settings[len(settings)-1], w.agent, door.url)
					more := strings.Replace(config, `"env": {`, fmt.Sprintf(`"env": {"CLAUDE_CODE_MAX_RETRIES": "%d",`, claudeRetries), 1)
					if more == config {
						t.Fatalf("no environment in %s", config)
					}
					config = more
					out, err = clientRun(t, token, map[string]string{".claude/settings.json": config}, npm(t, "@anthropic-ai/claude-code-linux-x64/claude"), "-p", "Say hello.")
				}
				got := door.take()
				// Claude Code asks for a title beside its own request. Codex sends one, and writes it anew each time.
				requests, repeated := map[string]int{}, 0
				for _, one := range got {
					requests[one.body]++
					repeated = max(repeated, requests[one.body]-1)
					if (one.retry == "false") == (c.claude > 0) {
						t.Errorf("%d with x-should-retry %q: %s", one.status, one.retry, one.body)
					}
				}
				if client == "codex" {
					repeated = len(got) - 1
				}
				if err == nil || repeated != want || len(got) == 0 || got[len(got)-1].status != c.status {
					t.Errorf("sent again %d times, want %d: %v\n%s", repeated, want, err, out)
				}
				asked := len(requests)
				if client == "codex" {
					asked = 1
				}
				if n := asksOf(w, session); c.code == "approval.required" && n != asked {
					t.Errorf("%d questions for %d requests", n, asked)
				}
			})
		}
	}
	w.sane()
}
