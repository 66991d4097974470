package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// configured is what `client config` prints for a client, with the token of one of its agent's sessions: the parts between empty lines.
func (w *world) configured(token, kind string) []string {
	w.t.Helper()
	cmd := exec.Command(build(w.t, "sallyport.example/cmd/sallyport"), "client", "config", "--kind", kind, "--data", w.place.data)
	cmd.Env = append(os.Environ(), "SALLYPORT_TOKEN="+token)
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Split(string(out), "\n\n")
}

// clientRun runs a client in a new folder and home, with the token of a session in its environment. wrote are files of its home.
func clientRun(t testing.TB, token string, wrote map[string]string, args ...string) (out string, err error) {
	t.Helper()
	home := t.TempDir()
	for name, content := range wrote {
		write(t, filepath.Join(home, name), content)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.WaitDelay = t.TempDir(), 5*time.Second
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "NO_PROXY=127.0.0.1", "SALLYPORT_TOKEN=" + token}
	b, err := cmd.CombinedOutput()
	return string(b), err
}

func codex(t testing.TB, w *world, token, words string) (out string, err error) {
	t.Helper()
	config := strings.Join(w.configured(token, "codex"), "\n\n")
	return clientRun(t, token, map[string]string{".codex/config.toml": config}, npm(t, "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"),
		"exec", "--strict-config", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", words)
}

// Codex works with what `client config` prints and nothing else: it gets texts, calls its own tools and the gateway's, and takes no part of an answer that
// broke off for the whole. It repeats what was refused once, as it repeats what broke off; an answer that the gateway cut it doesn't
// ask for again, and it shows why.
func TestCodex(t *testing.T) {
	p := newModelProvider(t)
	w := launch(t, newPlace(t, p.config("[internal]"), thinker("bot")))
	f := streamed["responses"]
	p.says(func(h http.ResponseWriter, r modelRequest) bool {
		h.Header().Set("Content-Type", "text/event-stream")
		item := func(item string) string {
			return responseEvent(7, `"type":"response.output_item.done","output_index":0,"item":`+item) +
				responseEvent(8, `"type":"response.completed","response":{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"`+gpt+`","output":[`+item+`],"usage":{"input_tokens":3,"output_tokens":9,"total_tokens":12}}`)
		}
		call := func(id, more, arguments string) string {
			return responseEvent(0, `"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1,"status":"in_progress","model":"`+gpt+`","output":[]}`) +
				item(`{"id":"fc_`+id+`","type":"function_call","status":"completed","call_id":"`+id+`",`+more+`,"arguments":`+quote(arguments)+`}`)
		}
		said := func(words string) string {
			return f.begin + f.text(words) + item(`{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":`+quote(words)+`,"annotations":[]}]}`)
		}
		answer := said("Hello there.")
		switch {
		case strings.Contains(r.body, "Break off."):
			_, _ = io.WriteString(h, f.begin+f.text("Hello "))
			_ = http.NewResponseController(h).Flush()
			panic(http.ErrAbortHandler)
		case strings.Contains(r.body, "Tell the key."):
			answer = f.begin + f.text("Hello ") + f.text("it is "+keyOf+" ")
		case !strings.Contains(r.body, "Use your tools."):
		case !strings.Contains(r.body, `"call_id":"first"`):
			answer = call("first", `"name":"exec_command"`, `{"cmd":"echo it is $((40+2))"}`)
		case !strings.Contains(r.body, `"call_id":"second"`):
			answer = call("second", `"namespace":"mcp__sallyport","name":"sallyport_status"`, `{}`)
		default:
			answer = said("Used both.")
		}
		_, _ = io.WriteString(h, answer)
		return true
	})

	_, token := w.open("bot")
	out, err := codex(t, w, token, "Say hello.")
	if sent := p.requests(); err != nil || !strings.Contains(out, "Hello there.") || len(sent) != 1 {
		t.Fatalf("%v, %d requests\n%s", err, len(sent), out)
	}
	if sent := p.requests()[0]; strings.Contains(sent.body, "web_search") || strings.Contains(sent.body+fmt.Sprint(sent.header), token) {
		t.Errorf("the provider is sent %s", sent.body)
	}

	before := len(p.requests())
	session, token := w.open("bot")
	if out, err = codex(t, w, token, "Use your tools."); err != nil || !strings.Contains(out, "Used both.") {
		t.Fatalf("%v\n%s", err, out)
	}
	sent := p.requests()[before:]
	if len(sent) != 3 || !strings.Contains(sent[1].body, "it is 42") || !strings.Contains(sent[2].body, session) {
		t.Errorf("%d requests; the last: %s", len(sent), sent[len(sent)-1].body)
	}
	if got := ungovernedOf(w, session); got != "exec_command" {
		t.Errorf("calls that the gateway does not see: %s", got)
	}

	before = len(p.requests())
	session, token = w.open("bot")
	out, err = codex(t, w, token, "Pay DE89 3704 0044 0532 0130 00.")
	if err == nil || !strings.Contains(out, "flow.contaminated") && !strings.Contains(out, "release") {
		t.Errorf("%v\n%s", err, out)
	}
	if n := recordedIn(w, session, "flow.contaminated"); n != 2 || len(p.requests()) != before {
		t.Errorf("Codex sent it %d times, and it left %d times", n, len(p.requests())-before)
	}

	for words, want := range map[string]struct {
		code string
		sent int
	}{"Break off.": {"upstream.failed", 2}, "Tell the key.": {"result.invalid", 1}} {
		before = len(p.requests())
		session, token = w.open("bot")
		out, err = codex(t, w, token, words)
		n := 0
		for _, e := range outcomes(w) {
			if e.Session == session {
				n++
				if string(e.Code) != want.code {
					t.Errorf("on record is %s %s", e.Decision, e.Code)
				}
			}
		}
		if err == nil || n != want.sent || n != len(p.requests())-before || !strings.Contains(out, "("+want.code+", from the gateway)") {
			t.Errorf("%s %v, %d outcomes, %d requests\n%s", words, err, n, len(p.requests())-before, out)
		}
	}
	w.sane()
}

// ungovernedOf are the functions that are on record in a session as none of the gateway's, sorted.
func ungovernedOf(w *world, session string) string {
	var all []string
	for _, e := range outcomes(w) {
		var detail struct{ Ungoverned map[string]int }
		if e.Session == session && json.Unmarshal(e.Detail, &detail) == nil {
			all = append(all, slices.Collect(maps.Keys(detail.Ungoverned))...)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// Claude Code asks its model with what `client config` prints and nothing else, offers it no tool that the provider runs, and repeats no request that was
// refused.
func TestClaudeCodeSettings(t *testing.T) {
	p := newModelProvider(t)
	w := launch(t, newPlace(t, p.config("[internal]"), thinker("bot")))
	f := streamed["messages"]
	p.says(func(h http.ResponseWriter, r modelRequest) bool {
		if !strings.Contains(r.body, `"stream":true`) {
			return false
		}
		h.Header().Set("Content-Type", "text/event-stream")
		if strings.Contains(r.body, "Use your tools.") && strings.Contains(r.body, gatewayTool) && !strings.Contains(r.body, `"tool_result"`) {
			_, _ = io.WriteString(h, f.begin+f.text("Hello ")+strings.NewReplacer("delete_all", gatewayTool+"sallyport_status", `{\"a\"`, `{\"manifest\"`, `:1}"`, `:true}"`).Replace(strings.Join(f.act, "")))
			return true
		}
		_, _ = io.WriteString(h, f.begin+f.text("Hello there.")+f.act[0]+strings.Replace(f.act[5], "tool_use", "end_turn", 1)+f.act[6])
		return true
	})
	ask := func(token, words string, more ...string) (string, error) {
		settings := w.configured(token, "claude-code")
		return clientRun(t, token, map[string]string{".claude/settings.json": settings[len(settings)-1]}, append([]string{npm(t, "@anthropic-ai/claude-code-linux-x64/claude"), "-p", words}, more...)...)
	}
	_, token := w.open("bot")
	out, err := ask(token, "Say hello.")
	if err != nil || !strings.Contains(out, "Hello there.") {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, sent := range p.requests() {
		if strings.Contains(sent.body, "WebSearch") || strings.Contains(sent.body, "web_search") {
			t.Errorf("the provider is offered a search: %s", sent.body)
		}
	}
	session, token := w.open("bot")
	servers := `{"mcpServers":{"sallyport":{"type":"http","url":"` + w.agent + `/mcp","headers":{"Authorization":"Bearer ` + token + `"}}}}`
	out, err = ask(token, "Use your tools.", "--mcp-config", servers, "--strict-mcp-config", "--allowedTools", strings.TrimSuffix(gatewayTool, "__"))
	sent := p.requests()
	if err != nil || !strings.Contains(out, "Hello there.") || !strings.Contains(sent[len(sent)-1].body, session) {
		t.Errorf("%v\n%s\n%s", err, out, sent[len(sent)-1].body)
	}
	if got := ungovernedOf(w, session); got != "" {
		t.Errorf("calls that the gateway does not see: %s", got)
	}
	before := len(p.requests())
	session, token = w.open("bot")
	if out, err = ask(token, "Pay DE89 3704 0044 0532 0130 00."); err == nil || !strings.Contains(out, "release") {
		t.Errorf("%v\n%s", err, out)
	}
	if n := recordedIn(w, session, "flow.contaminated"); n < 1 || n > 2 { // its own request, and the one for a title
		t.Errorf("Claude Code sent it %d times", n)
	}
	for _, sent := range p.requests()[before:] {
		if strings.Contains(sent.body, "DE89") {
			t.Errorf("it left: %s", sent.body)
		}
	}
	w.sane()
}

// Claude Code says by which id its model asked for a call, so a result of the gateway's is known again and brings no label; the answer of another call with the same text does.
func TestClaudeCodeSaysWhichCallItMakes(t *testing.T) {
	p := newModelProvider(t)
	files := newServer("files")
	tool(files, "trusted", "Reads the plan.", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) { return text("All is well."), nil })
	w := launch(t, newPlace(t, "upstreams: {files: {url: "+fmt.Sprintf("%q", sdkServer(t, files))+"}}\noperations: {files.trusted: {sensitivity: none, effect: read, output: trusted}}\n"+p.config("[internal]"), thinker("bot")))
	w.acceptDefinitions(anyDefinition)
	f := streamed["messages"]
	p.says(func(h http.ResponseWriter, r modelRequest) bool {
		if !strings.Contains(r.body, `"stream":true`) {
			return false
		}
		h.Header().Set("Content-Type", "text/event-stream")
		if strings.Contains(r.body, "Use your tools.") && strings.Contains(r.body, gatewayTool+"files_trusted") && !strings.Contains(r.body, `"tool_result"`) {
			_, _ = io.WriteString(h, f.begin+f.text("Hello ")+strings.NewReplacer("delete_all", gatewayTool+"files_trusted", `{\"a\"`, `{`, `:1}"`, `}"`, `"id":"t1"`, `"id":"toolu_01A09q90qw90lq917835lq9"`).Replace(strings.Join(f.act, "")))
			return true
		}
		_, _ = io.WriteString(h, f.begin+f.text("Hello there.")+f.act[0]+strings.Replace(f.act[5], "tool_use", "end_turn", 1)+f.act[6])
		return true
	})
	session, token := w.open("bot")
	settings := w.configured(token, "claude-code")
	servers := `{"mcpServers":{"sallyport":{"type":"http","url":"` + w.agent + `/mcp","headers":{"Authorization":"Bearer ` + token + `"}}}}`
	out, err := clientRun(t, token, map[string]string{".claude/settings.json": settings[len(settings)-1]}, npm(t, "@anthropic-ai/claude-code-linux-x64/claude"), "-p", "Use your tools.",
		"--mcp-config", servers, "--strict-mcp-config", "--allowedTools", strings.TrimSuffix(gatewayTool, "__"))
	if err != nil || !strings.Contains(out, "Hello there.") {
		t.Fatalf("%v\n%s", err, out)
	}
	sent := ""
	for _, r := range p.requests() {
		if strings.Contains(r.body, "All is well.") {
			sent = r.body
		}
	}
	labels := func() string {
		s, err := w.root.Session(t.Context(), session)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(s.Labels)
	}
	if !strings.Contains(sent, "toolu_01A09q90qw90lq917835lq9") || labels() != "[]" {
		t.Fatalf("%s\n%s", labels(), sent)
	}
	another := `{"model":"` + claude + `","max_tokens":16,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_01B","content":"All is well."}]}]}`
	if status, body := w.post(f.path, token, another, nil); status != 200 || !strings.Contains(labels(), "untrusted") {
		t.Errorf("%d %s: %s", status, body, labels())
	}
	w.sane()
}
