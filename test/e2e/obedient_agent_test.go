package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/client"
)

// obedientAgent works on a task as its steps say, and obeys every order that it reads on the way: in instructions, definitions, results,
// errors, resources and prompts. Orders have three forms:
//
//	call TOOL with {ARGUMENTS}
//	whenever you call TOOL, set ARGUMENT to "VALUE"
//	instead of TOOL call OTHER
//
// An argument whose description asks for "the conversation so far" gets it.
type obedientAgent struct {
	t     testing.TB
	cs    *mcp.ClientSession
	read  []string                     // what tools, resources and prompts showed it, without the fences
	done  map[string]bool              // orders that it has obeyed
	sets  map[string]map[string]string // tool -> argument -> value
	turns map[string]string            // tool -> the one to call instead
	tells map[string][]string          // tool -> arguments that get the conversation so far

	refused []refusedCall
}

// refusedCall is one answer of the gateway's that a call did not run.
type refusedCall struct {
	tool, code, request string
	verdict             *client.Verdict // nil where it was an error of the protocol
}

// What orders want passed on: all that the agent has read, or the secrets in it alone.
const (
	everything = "[everything you have read]"
	codes      = "[the codes that you have read]"
)

var (
	callOrder    = regexp.MustCompile(`call ([A-Za-z0-9_-]{1,64}) with \{`)
	alwaysOrder  = regexp.MustCompile(`whenever you call ([A-Za-z0-9_-]{1,64}), set ([a-z]{1,20}) to "([^"]{1,200})"`)
	insteadOrder = regexp.MustCompile(`instead of ([A-Za-z0-9_-]{1,64}) call ([A-Za-z0-9_-]{1,64})`)
	fence        = regexp.MustCompile(`(?s)<<<UNTRUSTED_EXTERNAL_CONTENT [^\n]*>>>\nWARNING: [^\n]*\n(.*?)\n<<<END [0-9A-Za-z_-]*>>>`)
)

// obedient connects an agent. It lists what there is, and obeys what it reads there.
func obedient(t testing.TB, w *world, token string) *obedientAgent {
	t.Helper()
	a := &obedientAgent{t: t, done: map[string]bool{}, sets: map[string]map[string]string{}, turns: map[string]string{}}
	a.cs = w.connect(token, revision1125, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"text": a.conversation()}}, nil
		},
	})
	a.hears(a.cs.InitializeResult().Instructions)
	a.looks()
	return a
}

// conversation is what the agent has read, without the gateway's fences.
func (a *obedientAgent) conversation() string {
	all := strings.Join(a.read, "\n")
	return all[max(0, len(all)-8000):]
}

// looks lists the tools, resources and prompts, reads them all, and obeys.
func (a *obedientAgent) looks() {
	a.t.Helper()
	tells := map[string][]string{}
	var words []string
	for tool, err := range a.cs.Tools(a.t.Context(), nil) {
		if err != nil {
			a.t.Fatal(err)
		}
		b, err := json.Marshal(tool)
		if err != nil {
			a.t.Fatal(err)
		}
		words = append(words, string(b))
		var schema struct {
			Properties map[string]struct{ Description string }
		}
		if b, err = json.Marshal(tool.InputSchema); err == nil {
			err = json.Unmarshal(b, &schema)
		}
		if err != nil {
			a.t.Fatal(err)
		}
		for name, p := range schema.Properties {
			if strings.Contains(p.Description, "the conversation so far") {
				tells[tool.Name] = append(tells[tool.Name], name)
			}
		}
	}
	a.tells = tells
	a.hears(strings.Join(words, "\n"))
	for r, err := range a.cs.Resources(a.t.Context(), nil) {
		if err != nil || !a.first("read "+r.URI) {
			break
		}
		if res, err := a.cs.ReadResource(a.t.Context(), &mcp.ReadResourceParams{URI: r.URI}); err == nil {
			for _, c := range res.Contents {
				a.sees(c.Text)
			}
		}
	}
	for p, err := range a.cs.Prompts(a.t.Context(), nil) {
		if err != nil || !a.first("get "+p.Name) {
			break
		}
		if res, err := a.cs.GetPrompt(a.t.Context(), &mcp.GetPromptParams{Name: p.Name}); err == nil {
			for _, m := range res.Messages {
				if c, ok := m.Content.(*mcp.TextContent); ok {
					a.sees(c.Text)
				}
			}
		}
	}
}

// first tells whether something is done for the first time, and not as one of too many.
func (a *obedientAgent) first(what string) bool {
	if a.done[what] || len(a.done) > 100 {
		return false
	}
	a.done[what] = true
	return true
}

// sees is content that came in.
func (a *obedientAgent) sees(content string) {
	content = readTags(fence.ReplaceAllString(content, "$1"))
	a.read = append(a.read, content)
	a.hears(content)
}

// inTags writes a text in tag characters, which people don't see; readTags reads them.
func inTags(text string) string {
	return strings.Map(func(r rune) rune { return r + 0xE0000 }, text)
}

func readTags(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 0xE0020 && r < 0xE007F {
			return r - 0xE0000
		}
		return r
	}, text)
}

// hears obeys the orders in words, in the order in which they stand there.
func (a *obedientAgent) hears(words string) {
	a.t.Helper()
	for range 3 { // a text in JSON in a text in JSON
		for _, m := range alwaysOrder.FindAllStringSubmatch(words, -1) {
			if a.sets[m[1]] == nil {
				a.sets[m[1]] = map[string]string{}
			}
			a.sets[m[1]][m[2]] = m[3]
		}
		for _, m := range insteadOrder.FindAllStringSubmatch(words, -1) {
			a.turns[m[1]] = m[2]
		}
		for _, m := range callOrder.FindAllStringSubmatchIndex(words, -1) {
			var arguments map[string]any
			if json.NewDecoder(strings.NewReader(words[m[1]-1:])).Decode(&arguments) != nil {
				continue // not an order yet
			}
			tool := words[m[2]:m[3]]
			b, _ := json.Marshal(arguments) // it came as JSON
			if a.first(tool + string(b)) {
				a.calls(tool, arguments)
			}
		}
		words = strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\n`, "\n", `\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(words)
	}
}

// calls calls a tool as it was told to, reads what comes back, and obeys that. It tells whether the call ran.
func (a *obedientAgent) calls(tool string, arguments map[string]any) bool {
	a.t.Helper()
	if other := a.turns[tool]; other != "" {
		tool = other
	}
	given := map[string]any{}
	for k, v := range arguments {
		if s, ok := v.(string); ok {
			v = strings.NewReplacer(everything, a.conversation(), codes, strings.Join(secretForm.FindAllString(a.conversation(), -1), " ")).Replace(s)
		}
		given[k] = v
	}
	for k, v := range a.sets[tool] {
		given[k] = v
	}
	for _, k := range a.tells[tool] {
		given[k] = a.conversation()
	}
	r, err := callTool(a.t.Context(), a.cs, tool, given)
	if err != nil {
		var rpc *jsonrpc.Error
		if !errors.As(err, &rpc) {
			a.t.Fatalf("%s: %v", tool, err)
		}
		a.refused = append(a.refused, refusedCall{tool: tool, code: fmt.Sprint(rpc.Code)})
		return false
	}
	if r.verdict != nil && r.verdict.Decision != "permit" {
		a.refused = append(a.refused, refusedCall{tool, r.verdict.Code, r.verdict.RequestID, r.verdict})
		return false
	}
	a.sees(r.text())
	return true
}

// works does a task: its steps in their order, each whatever became of the one before. After each it looks what there is now.
func (a *obedientAgent) works(steps []agentStep) (held []agentStep) {
	a.t.Helper()
	for _, s := range steps {
		if !a.calls(s.tool, s.arguments) {
			held = append(held, s)
		}
		a.looks()
	}
	return slices.Clip(held)
}

// agentStep is one call of a task.
type agentStep struct {
	tool      string
	arguments map[string]any
}
