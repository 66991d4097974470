package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// scriptedModel stands in for the model behind Claude Code: it makes the calls of its script one after the other, and then those that it was ordered to
// make in what the tools gave back, in the form "call TOOL with {ARGUMENTS}". So it is as obedient as a model can be.
type scriptedModel struct {
	steps []agentStep

	mu   sync.Mutex
	made []madeCall // guarded by mu
}

// madeCall is a call that Claude Code made for the model.
type madeCall struct {
	tool, arguments string
	result          string
	failed          bool
}

// modelMessage is a message of the API that Claude Code speaks.
type modelMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// modelBlock is a part of such a message.
type modelBlock struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	Name    string          `json:"name"`
	Input   json.RawMessage `json:"input"`
	Content json.RawMessage `json:"content"`
	IsError bool            `json:"is_error"`
}

// blocks reads content, which is a text or a list of blocks.
func blocks(content json.RawMessage) (all []modelBlock) {
	var words string
	if json.Unmarshal(content, &words) == nil {
		return []modelBlock{{Type: "text", Text: words}}
	}
	_ = json.Unmarshal(content, &all) // what is neither says nothing
	return all
}

const gatewayTool = "mcp__sallyport__" // what Claude Code's names of the gateway's tools begin with

func (m *scriptedModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/v1/messages") {
		http.NotFound(w, r)
		return
	}
	var asked struct {
		Messages []modelMessage
		Tools    []struct{ Name string }
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var next *agentStep
	if slices.ContainsFunc(asked.Tools, func(tool struct{ Name string }) bool { return strings.HasPrefix(tool.Name, gatewayTool) }) {
		next = m.next(asked.Messages)
	}
	w.Header().Set("Content-Type", "text/event-stream")
	event := func(kind, rest string) { fmt.Fprintf(w, "event: %[1]s\ndata: {\"type\":%[1]q%[2]s}\n\n", kind, rest) }
	event("message_start", `,"message":{"id":"m","type":"message","role":"assistant","model":"scripted","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}`)
	reason := "end_turn"
	if next == nil {
		event("content_block_start", `,"index":0,"content_block":{"type":"text","text":""}`)
		event("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":"Done."}`)
	} else {
		reason = "tool_use"
		arguments, _ := json.Marshal(next.arguments) // it came as JSON, or is of this package
		event("content_block_start", fmt.Sprintf(`,"index":0,"content_block":{"type":"tool_use","id":"toolu_%d","name":%q,"input":{}}`, time.Now().UnixNano(), gatewayTool+next.tool))
		event("content_block_delta", `,"index":0,"delta":{"type":"input_json_delta","partial_json":`+quote(string(arguments))+`}`)
	}
	event("content_block_stop", `,"index":0`)
	event("message_delta", `,"delta":{"stop_reason":`+quote(reason)+`,"stop_sequence":null},"usage":{"output_tokens":1}`)
	event("message_stop", "")
}

// next is the call that comes after those of a conversation; nil at its end.
func (m *scriptedModel) next(conversation []modelMessage) *agentStep {
	var made []madeCall
	read := 0 // how many of the calls have their result
	todo, known := slices.Clone(m.steps), map[string]bool{}
	var seen strings.Builder
	for _, message := range conversation {
		for _, b := range blocks(message.Content) {
			switch b.Type {
			case "tool_use":
				made = append(made, madeCall{tool: strings.TrimPrefix(b.Name, gatewayTool), arguments: string(b.Input)})
			case "tool_result":
				var words []string
				for _, part := range blocks(b.Content) {
					words = append(words, part.Text)
				}
				if read < len(made) {
					made[read].result, made[read].failed = strings.Join(words, "\n"), b.IsError
				}
				read++
				said := fence.ReplaceAllString(strings.Join(words, "\n"), "$1")
				seen.WriteString(said + "\n")
				for _, order := range ordersIn(said) {
					arguments, _ := json.Marshal(order.arguments) // it came as JSON
					if id := order.tool + string(arguments); !known[id] {
						known[id] = true
						todo = append(todo, order)
					}
				}
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made = made
	if len(made) >= len(todo) {
		return nil
	}
	found := secretForm.FindAllString(seen.String(), -1)
	slices.Sort(found)
	secrets := strings.Join(slices.Compact(found), "-")
	return &agentStep{todo[len(made)].tool, withSecrets(todo[len(made)].arguments, secrets).(map[string]any)}
}

// ordersIn are the calls that words tell an agent to make, also where the words are a text in JSON.
func ordersIn(words string) (all []agentStep) {
	for range 3 {
		for _, m := range callOrder.FindAllStringSubmatchIndex(words, -1) {
			var arguments map[string]any
			if json.NewDecoder(strings.NewReader(words[m[1]-1:])).Decode(&arguments) == nil {
				all = append(all, agentStep{words[m[2]:m[3]], arguments})
			}
		}
		words = strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\n`, "\n", `\_`, "_", `\[`, "[", `\]`, "]").Replace(words)
	}
	return all
}

// withSecrets puts the secrets into an argument that is to carry them.
func withSecrets(v any, secrets string) any {
	switch v := v.(type) {
	case string:
		return strings.ReplaceAll(v, codes, secrets)
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = withSecrets(v[i], secrets)
		}
		return all
	case map[string]any:
		all := map[string]any{}
		for k := range v {
			all[k] = withSecrets(v[k], secrets)
		}
		return all
	}
	return v
}

// claudeCode runs Claude Code on a request, in a session of its own, as its person does in the project: nothing is configured but what is in the
// project's .mcp.json. It returns the calls that it made.
func claudeCode(t testing.TB, project, home, request string, steps []agentStep) []madeCall {
	t.Helper()
	m := &scriptedModel{steps: steps}
	srv := httptest.NewServer(m)
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, build(t, "sallyport.example/cmd/sallyport"), "run", "--agent", "dev", "--request", request, "--",
		npm(t, "@anthropic-ai/claude-code-linux-x64/claude"), "-p", request, "--mcp-config", ".mcp.json", "--strict-mcp-config", "--tools", "",
		"--allowedTools", strings.TrimSuffix(gatewayTool, "__"), "--output-format", "json")
	cmd.Dir = project
	cmd.Env = append(os.Environ(), "HOME="+home, "ANTHROPIC_BASE_URL="+srv.URL, "ANTHROPIC_API_KEY=scripted", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"DISABLE_AUTOUPDATER=1", "NO_PROXY=127.0.0.1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("Claude Code: %v\n%s", err, out)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.made
}
