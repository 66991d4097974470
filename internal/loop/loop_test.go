package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/models/wire"
)

// forms are those that a run asks its model in: one of each provider.
var forms = []wire.Form{wire.Messages, wire.Chat}

// calling is an answer of a model that asks for so many calls, and saying one that answers with a text; each took so many tokens.
func calling(form wire.Form, calls, tokens int) string {
	if form == wire.Chat {
		all := strings.TrimSuffix(strings.Repeat(`{"id":"t","type":"function","function":{"name":"read","arguments":"{}"}},`, calls), ",")
		return fmt.Sprintf(`{"choices":[{"message":{"content":"","tool_calls":[%s]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":%d}}`, all, tokens)
	}
	all := strings.TrimSuffix(strings.Repeat(`{"type":"tool_use","id":"t","name":"read","input":{}},`, calls), ",")
	return fmt.Sprintf(`{"content":[%s],"stop_reason":"tool_use","usage":{"input_tokens":%d}}`, all, tokens)
}

func saying(form wire.Form, text, stop string, tokens int) string {
	encoded, _ := json.Marshal(text)
	if form == wire.Messages && stop == "stop" {
		stop = "end_turn"
	}
	if form == wire.Chat {
		return fmt.Sprintf(`{"choices":[{"message":{"content":%s},"finish_reason":%q}],"usage":{"prompt_tokens":%d}}`, encoded, stop, tokens)
	}
	return fmt.Sprintf(`{"content":[{"type":"text","text":%s}],"stop_reason":%q,"usage":{"input_tokens":%d}}`, encoded, stop, tokens)
}

// corridor answers requests to the model by a script, and calls of tools with a text.
type corridor struct {
	answers []string
	read    string
	asked   []wire.Request
	calls   int
}

func (c *corridor) call(_ context.Context, method call.Method, _ string, arguments json.RawMessage) (json.RawMessage, fault.Verdict) {
	if method != call.AskModel {
		c.calls++
		content, _ := json.Marshal(c.read)
		return json.RawMessage(`{"content":[{"type":"text","text":` + string(content) + `},{"type":"image","data":"x"}]}`), fault.Permitted()
	}
	r := wire.Unpack(arguments)
	c.asked = append(c.asked, r)
	answer := c.answers[min(len(c.asked), len(c.answers))-1]
	return json.RawMessage(`{"status":200,"headers":{},"body":` + answer + `}`), fault.Permitted()
}

func options(form wire.Form, c *corridor) Options {
	return Options{
		Model: "m-2025-01-01", Provider: form.Provider(), System: "Advise.", Task: "Look.", MaxTokens: 1_000_000, Call: c.call, Now: time.Now,
		Tools: []Tool{{Name: "read", Description: "Reads.", Schema: json.RawMessage(`{"type":"object"}`)}},
	}
}

// Every bound ends the work, with a reason, and each request has a form that the model door accepts.
func TestBounds(t *testing.T) {
	for _, form := range forms {
		stop, cut := "end_turn", "max_tokens"
		if form == wire.Chat {
			stop, cut = "stop", "length"
		}
		for name, c := range map[string]struct {
			answers  []string
			read     string
			code     fault.Code
			says     string
			requests int
		}{
			"an answer":         {[]string{calling(form, 2, 10), saying(form, "{}", stop, 10)}, "text", "", "", 2},
			"no end":            {[]string{calling(form, 1, 1)}, "text", fault.LimitQuota, "24 answers", MaxSteps},
			"too many calls":    {[]string{calling(form, maxCalls+1, 1)}, "", fault.OutputInvalid, "33 calls", 1},
			"all tokens":        {[]string{calling(form, 1, 1_000_000)}, "", fault.LimitQuota, "has not answered", 1},
			"nearly all tokens": {[]string{calling(form, 1, 999_950)}, "", fault.LimitQuota, "more tokens than are left", 1},
			"half a usage":      {[]string{strings.NewReplacer("input_tokens", "output_tokens", "prompt_tokens", "completion_tokens").Replace(saying(form, "{}", stop, 10))}, "", fault.ResultInvalid, "how many tokens", 1},
			"filtered":          {[]string{saying(form, "{}", "content_filter", 10)}, "", fault.ResultInvalid, "not whole", 1},
			"no reason to end":  {[]string{saying(form, "{}", "", 10)}, "", fault.ResultInvalid, "not whole", 1},
			"a call that isn't": {[]string{strings.Replace(saying(form, "{}", stop, 10), stop, map[wire.Form]string{wire.Messages: "tool_use", wire.Chat: "tool_calls"}[form], 1)}, "", fault.ResultInvalid, "ends with", 1},
			"too many results":  {[]string{calling(form, 5, 10)}, strings.Repeat("x", 300<<10), fault.LimitQuota, "1024 KiB", 1},
			"more than all":     {[]string{saying(form, "{}", stop, 1_000_001)}, "", fault.LimitQuota, "1000001 tokens", 1},
			"too much to read":  {[]string{calling(form, 1, 1)}, strings.Repeat("x", 600<<10), fault.LimitQuota, "1024 KiB", 2},
			"cut":               {[]string{saying(form, "{", cut, 10)}, "", fault.OutputInvalid, "was cut", 1},
			"tokens unknown":    {[]string{strings.Replace(saying(form, "{}", stop, 1), "usage", "used", 1)}, "", fault.ResultInvalid, "how many tokens", 1},
			"a call of no name": {[]string{strings.ReplaceAll(calling(form, 1, 1), `"read"`, `""`)}, "", fault.ResultInvalid, "without a name", 1},
		} {
			t.Run(string(form)+" "+name, func(t *testing.T) {
				door := &corridor{answers: c.answers, read: c.read}
				answer, err := Run(t.Context(), options(form, door))
				if c.code == "" && (err != nil || string(answer) != "{}" || door.calls != 2) {
					t.Fatalf("%s %v, %d calls", answer, err, door.calls)
				}
				if c.code != "" && (!fault.Is(err, c.code) || !strings.Contains(err.Error(), c.says)) {
					t.Errorf("%v", err)
				}
				if len(door.asked) != c.requests {
					t.Errorf("%d requests", len(door.asked))
				}
				for _, r := range door.asked {
					body, err := call.Canonical(r.Body, call.DefaultLimits())
					if err == nil {
						_, err = wire.Parse(r.Form, nil, body, wire.Allowed{})
					}
					if err != nil || r.Form != form {
						t.Errorf("%v: %s", err, r.Body)
					}
				}
			})
		}
	}
}

// A request allows its answer no more tokens than the declaration has left, without those of the request itself.
func TestTokensOfAnAnswer(t *testing.T) {
	for _, form := range forms {
		door := &corridor{answers: []string{calling(form, 1, 600), saying(form, "{}", "stop", 1)}, read: "text"}
		o := options(form, door)
		o.MaxTokens = 1000
		if _, err := Run(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		for i, left := range []int{1000, 400} {
			name := map[wire.Form]string{wire.Messages: "max_tokens", wire.Chat: "max_completion_tokens"}[form]
			raw, _ := call.Get(door.asked[i].Body, name)
			got, err := strconv.Atoi(string(raw))
			if want := left - len(door.asked[i].Body)/bytesPerToken; err != nil || got < want-1 || got > want {
				t.Errorf("%s: request %d allows %s, not %d", form, i, raw, want)
			}
		}
	}
}

// Arguments that are no object reach no tool, and no call begins after the end of the run.
func TestCallsThatAreNotMade(t *testing.T) {
	for _, form := range forms {
		broken := strings.NewReplacer(`"input":{}`, `"input":[]`, `"arguments":"{}"`, `"arguments":"{"`).Replace(calling(form, 1, 10))
		door := &corridor{answers: []string{broken, saying(form, "{}", "stop", 1)}}
		if _, err := Run(t.Context(), options(form, door)); err != nil || door.calls != 0 {
			t.Errorf("%s: %v, %d calls", form, err, door.calls)
		}
		ended := errors.New("over")
		ctx, cancel := context.WithCancelCause(t.Context())
		door = &corridor{answers: []string{calling(form, 3, 10)}}
		o := options(form, door)
		o.Call = func(ctx context.Context, method call.Method, tool string, arguments json.RawMessage) (json.RawMessage, fault.Verdict) {
			if method == call.CallTool {
				cancel(ended)
			}
			return door.call(ctx, method, tool, arguments)
		}
		if _, err := Run(ctx, o); !errors.Is(err, ended) || door.calls != 1 {
			t.Errorf("%s: %v, %d calls", form, err, door.calls)
		}
		cancel(nil)
	}
}

// What a tool brought is given on word for word, and a refusal so that the model can act on it.
func TestResults(t *testing.T) {
	const text = "\u201cfenced\u201d <text>\n with & all of it "
	for _, form := range forms {
		door := &corridor{answers: []string{calling(form, 1, 1), saying(form, "{}", "stop", 1)}, read: text}
		o := options(form, door)
		if _, err := Run(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, b := range wire.Blocks(form, door.asked[1].Body, "") {
			if b.Result {
				found = len(b.Texts) == 1 && b.Texts[0] == text
			}
		}
		if !found {
			t.Errorf("%s: %s", form, door.asked[1].Body)
		}
		door = &corridor{answers: door.answers}
		o.Call = func(ctx context.Context, method call.Method, tool string, arguments json.RawMessage) (json.RawMessage, fault.Verdict) {
			if method == call.CallTool {
				return nil, fault.Refuse("permit", fault.PermissionDenied, "It may not.")
			}
			return door.call(ctx, method, tool, arguments)
		}
		if _, err := Run(t.Context(), o); err != nil || !strings.Contains(string(door.asked[1].Body), "Refused: It may not.") {
			t.Errorf("%s: %v %s", form, err, door.asked[1].Body)
		}
	}
}

// A refused request, an error of the provider's and a context that ends leave no answer, and nothing is asked for again.
func TestEnds(t *testing.T) {
	ended := errors.New("over")
	for name, c := range map[string]struct {
		result  string
		verdict fault.Verdict
		end     bool
		code    fault.Code
	}{
		"refused":    {"", fault.Refuse("flow", fault.FlowContaminated, "It holds pii."), false, fault.FlowContaminated},
		"overloaded": {`{"status":529,"headers":{},"body":{}}`, fault.Permitted(), false, fault.UpstreamFailed},
		"ended":      {`{"status":200,"headers":{},"body":` + saying(wire.Chat, "{}", "stop", 1) + `}`, fault.Permitted(), true, ""},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		asked := 0
		o := options(wire.Chat, nil)
		o.Call = func(context.Context, call.Method, string, json.RawMessage) (json.RawMessage, fault.Verdict) {
			if asked++; c.end {
				cancel(ended)
			}
			return json.RawMessage(c.result), c.verdict
		}
		answer, err := Run(ctx, o)
		if answer != nil || asked != 1 || c.end && !errors.Is(err, ended) || !c.end && !fault.Is(err, c.code) {
			t.Errorf("%s: %s %v, asked %d times", name, answer, err, asked)
		}
		cancel(nil)
	}
}

func TestSystem(t *testing.T) {
	d := &agent.Declaration{
		AgentID: "bot", Purpose: "Advises.",
		OutputSchema: json.RawMessage(`{"type":"object"}`), DataSources: agent.DataSources{Tables: []string{"incidents"}}, Run: &agent.Run{Model: "m-2025-01-01"},
	}
	last := 0
	text := System(d)
	for _, part := range []string{"Advises.", `{"type":"object"}`, "incidents", "m-2025-01-01"} {
		at := strings.Index(text, part)
		if at < last {
			t.Errorf("%q is not there, or not in its place: %s", part, text)
		}
		last = at
	}
}

func FuzzRead(f *testing.F) {
	for _, form := range forms {
		f.Add(calling(form, 2, 1))
		f.Add(saying(form, "{}", "stop", 1))
	}
	f.Add(`{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"b","arguments":"{\"a\":1,\"a\":2}"}}]}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		answer, err := call.Canonical([]byte(text), call.DefaultLimits())
		if err != nil {
			return
		}
		for _, form := range forms {
			talk := newTalk(options(form, nil))
			s, err := talk.read(answer)
			if err != nil {
				continue
			}
			talk.said(s)
			if body, err := talk.request(1); err != nil || call.Check(body, call.DefaultLimits()) != nil {
				t.Errorf("%v: %s", err, body)
			}
			for _, c := range s.calls {
				if c.id == "" || c.tool == "" {
					t.Errorf("a call of no name: %s", text)
				}
			}
		}
	})
}
