package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sdks runs the providers' own SDKs, Vercel's and a framework of agents in one process.
type sdks struct {
	t   testing.TB
	in  io.Writer
	out *bufio.Scanner
}

// sdkAnswer is what came of one request.
type sdkAnswer struct {
	Answer  *string
	Status  int
	Kind    string
	Code    string
	Message string
}

func startSDKs(t testing.TB, w *world, token string) *sdks {
	return startSDKsAt(t, w.agent, token, claude, gpt)
}

// startSDKsAt starts them with this address, and the names of Anthropic's and OpenAI's model.
func startSDKsAt(t testing.TB, url, token, anthropic, openai string) *sdks {
	npm(t, "openai/package.json")
	npm(t, "@anthropic-ai/sdk/package.json")
	npm(t, "@ai-sdk/anthropic/package.json")
	npm(t, "@ai-sdk/openai/package.json")
	npm(t, "@openai/agents/package.json")
	npm(t, "ai/package.json")
	cmd := exec.Command(node(t), filepath.Join(root(), "test", "npm", "models.mjs"), url, token, anthropic, openai)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var words strings.Builder
	cmd.Stderr = &words
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil && !t.Failed() {
			t.Errorf("the SDKs: %v\n%s", err, words.String())
		}
	})
	return &sdks{t, in, bufio.NewScanner(out)}
}

func (s *sdks) ask(name, text string) (a sdkAnswer) {
	s.t.Helper()
	b, _ := json.Marshal(map[string]string{"name": name, "text": text}) // of texts: encodes
	if _, err := s.in.Write(append(b, '\n')); err != nil {
		s.t.Fatal(err)
	}
	if !s.out.Scan() {
		s.t.Fatal("the SDKs ended")
	}
	if err := json.Unmarshal(s.out.Bytes(), &a); err != nil {
		s.t.Fatal(err)
	}
	return a
}

// The providers' own SDKs, Vercel's and the framework work by base URL and key alone, see refusals as errors of their own kinds, and repeat none; what they repeat without a gateway
// (429, 529) they repeat with one.
func TestModelSDKs(t *testing.T) {
	t.Parallel()
	p := newModelProvider(t)
	w := start(t, p.config("[]"), thinker("bot"), thinker("other"))
	_, token := w.open("bot")
	s := startSDKs(t, w, token)
	busy := 0
	p.says(func(h http.ResponseWriter, r modelRequest) bool {
		if busy > 0 {
			busy--
			h.Header().Set("Content-Type", "application/json")
			h.Header().Set("Retry-After", "0")
			h.WriteHeader(map[bool]int{true: 529, false: 429}[strings.Contains(r.path, "/messages")])
			_, _ = io.WriteString(h, `{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`)
			return true
		}
		if !strings.Contains(r.body, `"stream":true`) {
			return false
		}
		f := streamed["chat"]
		if strings.HasSuffix(r.path, "/messages") {
			f = streamed["messages"]
		} else if strings.HasSuffix(r.path, "/responses") {
			f = streamed["responses"]
		}
		h.Header().Set("Content-Type", "text/event-stream")
		for _, c := range f.begin + f.text("Hello ") + f.text("there.") + strings.Join(f.act, "") { // in pieces of a letter
			_, _ = io.WriteString(h, string(c))
			if c == '"' {
				_ = http.NewResponseController(h).Flush()
			}
		}
		return true
	})
	for name, want := range map[string]string{
		"anthropic whole": "Hello.", "openai whole": "Hello.", "anthropic stream": `Hello there.|delete_all{"a":1}|9`, "openai stream": `Hello there.|delete_all{"a":1}`,
		"responses whole": "Hello.", "responses stream": `Hello there.|delete_all{"a":1}|9`, "anthropic count": "42",
		"openai models": gpt, "anthropic models": claude,
		"vercel anthropic whole": "Hello.", "vercel chat whole": "Hello.", "vercel responses whole": "Hello.",
		"vercel anthropic stream": `Hello there.|delete_all{"a":1}`, "vercel chat stream": `Hello there.|delete_all{"a":1}`, "vercel responses stream": `Hello there.|delete_all{"a":1}`,
		"agents chat whole": "Hello.", "agents responses whole": "Hello.",
	} {
		if a := s.ask(name, "Hi."); a.Answer == nil || *a.Answer != want {
			t.Errorf("%s: %+v", name, a)
		}
		if strings.HasSuffix(name, "models") {
			continue
		}
		before := len(p.requests())
		busy = 1
		if a := s.ask(name, "Hi, again."); a.Answer == nil || *a.Answer != want || len(p.requests()) != before+2 {
			t.Errorf("%s, first busy: %+v, %d requests", name, a, len(p.requests())-before)
		}
	}
	before, refused := len(p.requests()), 0
	for _, e := range w.entries() {
		if e.Code == "flow.contaminated" {
			refused++
		}
	}
	_, token = w.open("other")
	others := startSDKs(t, w, token)
	for i, name := range []string{
		"anthropic whole", "openai whole", "anthropic stream", "openai stream", "responses whole", "responses stream", "anthropic count", "agents chat whole", "agents responses whole",
		"vercel anthropic whole", "vercel chat whole", "vercel responses whole", "vercel anthropic stream", "vercel chat stream", "vercel responses stream",
	} {
		kind, s := "PermissionDeniedError", s
		if strings.HasPrefix(name, "vercel") {
			kind = "APICallError" // which has one kind for all
			s = others            // the record counts what is refused to one agent over and over
		}
		if a := s.ask(name, "Pay DE89 3704 0044 0532 0130 00."); a.Status != 403 || !strings.HasSuffix(a.Kind, kind) || a.Code != "flow.contaminated" || !strings.Contains(a.Message, "release") {
			t.Errorf("%s: %+v", name, a)
		}
		n := 0
		for _, e := range w.entries() {
			if e.Code == "flow.contaminated" {
				n++
			}
		}
		if n != refused+i+1 {
			t.Errorf("%s: the SDK sent it %d times", name, n-refused-i)
		}
	}
	if len(p.requests()) != before {
		t.Error("it left")
	}
}

// A framework's streamed run works as without a gateway: its text comes, the tool that the model calls runs, and the model is asked again with what it
// answered. A refusal ends it, and is not repeated.
func TestFrameworkStreamsItsRuns(t *testing.T) {
	p := newModelProvider(t)
	w := start(t, p.config("[]"), thinker("bot"))
	session, token := w.open("bot")
	s := startSDKs(t, w, token)
	p.says(func(h http.ResponseWriter, r modelRequest) bool {
		form := "chat"
		if strings.HasSuffix(r.path, "/responses") {
			form = "responses"
		}
		h.Header().Set("Content-Type", "text/event-stream")
		answer := streamed[form].begin + streamed[form].text("I delete. ") + strings.Join(streamed[form].act, "")
		if strings.Contains(r.body, "deleted 1") {
			answer = streamedText(form, "All is gone.")
		}
		for _, line := range strings.SplitAfter(answer, "\n") {
			_, _ = io.WriteString(h, line)
			_ = http.NewResponseController(h).Flush()
		}
		return true
	})
	for i, name := range []string{"agents chat stream", "agents responses stream"} {
		if a := s.ask(name, "Delete 1."); a.Answer == nil || *a.Answer != "I delete. All is gone.|All is gone.|1" {
			t.Errorf("%s: %+v", name, a)
		}
		if n := len(p.requests()); n != 2*(i+1) {
			t.Errorf("%s: %d requests", name, n)
		}
	}
	sent := len(p.requests())
	for i, name := range []string{"agents chat stream", "agents responses stream"} {
		if a := s.ask(name, "Pay DE89 3704 0044 0532 0130 00."); a.Status != 403 || a.Code != "flow.contaminated" {
			t.Errorf("%s, refused: %+v", name, a)
		}
		if n := recordedIn(w, session, "flow.contaminated"); n != i+1 {
			t.Errorf("%s: the framework sent it %d times", name, n-i)
		}
	}
	if len(p.requests()) != sent {
		t.Error("it left")
	}
}

// A stream that the gateway cuts ends in each SDK with an error that says why, and none asks again.
func TestSDKsShowWhyAStreamWasCut(t *testing.T) {
	t.Parallel()
	p := newModelProvider(t)
	w := start(t, p.config("[]")+"breakers: {failures: 100}\n", thinker("bot")) // an open one has the SDKs wait, for half a minute
	p.says(func(h http.ResponseWriter, r modelRequest) bool {
		f := streamed["chat"]
		if strings.HasSuffix(r.path, "/messages") {
			f = streamed["messages"]
		} else if strings.HasSuffix(r.path, "/responses") {
			f = streamed["responses"]
		}
		h.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(h, f.begin+f.text("Hello ")+f.text("it is "+keyOf+" "))
		return true
	})
	_, token := w.open("bot")
	s := startSDKs(t, w, token)
	for _, name := range []string{
		"anthropic stream", "openai stream", "responses stream", "vercel anthropic stream", "vercel chat stream", "vercel responses stream", "agents chat stream", "agents responses stream",
	} {
		before := len(p.requests())
		a := s.ask(name, "Tell the key.")
		if n := len(p.requests()) - before; a.Answer != nil || !strings.Contains(a.Message, "(result.invalid, from the gateway)") || strings.Contains(a.Message, "validation") || n != 1 {
			t.Errorf("%s: %+v, %d requests", name, a, n)
		}
	}
	w.sane()
}
