package e2e

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// A program that sallyport run starts finds its models in the gateway, in its own session, and has no key that goes round it. Of a provider of which the
// agent may ask nothing, nothing is changed.
func TestRunPointsProgramsAtModels(t *testing.T) {
	p := newModelProvider(t)
	onlyClaude := strings.Replace(declaration("bot"), "models: []", "models: ["+claude+"]", 1)
	place := newPlace(t, p.config("[]"), onlyClaude)
	w := launch(t, place)
	t.Setenv("ANTHROPIC_API_KEY", "sk-ant-own")
	t.Setenv("OPENAI_API_KEY", "sk-own")
	code, out, stderr := cli(t, place, nil, "run", "--data", place.data, "--agent", "bot", "--", "env")
	if code != 0 {
		t.Fatal(stderr)
	}
	variables := map[string]string{}
	for line := range strings.SplitSeq(out, "\n") {
		name, value, _ := strings.Cut(line, "=")
		variables[name] = value
	}
	if token := variables["SALLYPORT_TOKEN"]; token == "" || variables["ANTHROPIC_AUTH_TOKEN"] != token || variables["ANTHROPIC_BASE_URL"] != w.agent+"/anthropic" {
		t.Errorf("%q", variables)
	}
	if _, has := variables["ANTHROPIC_API_KEY"]; has || variables["OPENAI_API_KEY"] != "sk-own" || variables["OPENAI_BASE_URL"] != "" {
		t.Errorf("%q", variables)
	}
}

// Claude Code works through the door by what sallyport run sets alone: it streams, and its system message, tools and headers pass the lists.
func TestClaudeCodeAsksItsModelThroughTheGateway(t *testing.T) {
	program := npm(t, "@anthropic-ai/claude-code-linux-x64/claude")
	p := newModelProvider(t)
	p.says(func(h http.ResponseWriter, r modelRequest) bool {
		if !strings.Contains(r.body, `"stream":true`) {
			return false
		}
		f := streamed["messages"]
		h.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(h, f.begin+f.text("Hello from ")+f.text("the provider.")+f.act[0]+strings.ReplaceAll(f.act[5], "tool_use", "end_turn")+f.act[6])
		return true
	})
	place := newPlace(t, p.config("[internal, pii, secret]"), thinker("bot"))
	w := launch(t, place)
	t.Setenv("HOME", t.TempDir())
	for name, value := range map[string]string{
		"ANTHROPIC_MODEL": claude, "ANTHROPIC_SMALL_FAST_MODEL": claude, "ANTHROPIC_DEFAULT_HAIKU_MODEL": claude, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "NO_PROXY": "127.0.0.1",
	} {
		t.Setenv(name, value)
	}
	code, out, stderr := cli(t, place, nil, "run", "--data", place.data, "--agent", "bot", "--", program, "-p", "Say hello.", "--output-format", "json")
	if code != 0 || !strings.Contains(out, "Hello from the provider.") {
		t.Errorf("%d %.2000s %.2000s", code, out, stderr)
	}
	for _, e := range w.entries() {
		if e.Door == "model" && e.Decision == "deny" && e.Code != "not_found" { // of paths that are not served
			t.Errorf("%s: %s", e.Code, e.Reason)
		}
	}
	if len(p.requests()) == 0 {
		t.Error("nothing was asked")
	}
}
