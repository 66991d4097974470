package loop

import (
	"encoding/json"
	"strings"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/models/wire"
)

// said is what the model answered.
type said struct {
	text  string
	calls []asked
	cut   bool // it had no tokens left
}

// asked is one call that the model asks for.
type asked struct {
	id, tool  string
	arguments json.RawMessage
}

// talk is a conversation in a provider's form. One goroutine owns it.
type talk interface {
	form() wire.Form
	// request is the next request, with at most so many tokens for its answer.
	request(tokens int) (json.RawMessage, error)
	// read reads an answer; said adds it to the conversation, and results what its calls brought, with what the gateway says after them.
	read(answer json.RawMessage) (said, error)
	said(said)
	results(all []result, after string)
}

func newTalk(o Options) talk {
	first := o.Task + "\n\n" + now(o)
	if o.Provider == wire.Anthropic {
		return &messages{o: o, turns: []any{map[string]any{"role": "user", "content": first}}}
	}
	return &chat{o: o, turns: []any{map[string]any{"role": "system", "content": o.System}, map[string]any{"role": "user", "content": first}}}
}

// messages is a conversation in Anthropic's form.
type messages struct {
	o     Options
	turns []any
}

func (*messages) form() wire.Form { return wire.Messages }

func (m *messages) request(tokens int) (json.RawMessage, error) {
	body := map[string]any{"model": m.o.Model, "max_tokens": tokens, "system": m.o.System, "messages": m.turns}
	if len(m.o.Tools) > 0 {
		var tools []any
		for _, t := range m.o.Tools {
			tools = append(tools, map[string]any{"name": t.Name, "description": t.Description, "input_schema": t.Schema})
		}
		body["tools"] = tools
	}
	return json.Marshal(body)
}

func (*messages) read(answer json.RawMessage) (s said, err error) {
	var said strings.Builder
	content, _ := call.Get(answer, "content")
	for block := range call.Elements(content) {
		switch kind, _ := call.GetText(block, "type"); kind {
		case "text":
			text, _ := call.GetText(block, "text")
			said.WriteString(text)
		case "tool_use":
			var c asked
			c.id, _ = call.GetText(block, "id")
			c.tool, _ = call.GetText(block, "name")
			c.arguments, _ = call.Get(block, "input")
			if c.id == "" || c.tool == "" {
				return s, unreadable("asks for a call without a name or an id")
			}
			s.calls = append(s.calls, c)
		}
	}
	s.text = said.String()
	switch why, _ := call.GetText(answer, "stop_reason"); why {
	case "max_tokens", "model_context_window_exceeded":
		s.cut = true
	case "end_turn", "stop_sequence", "tool_use":
		if (why == "tool_use") != (len(s.calls) > 0) {
			return s, unreadable("ends with " + why + ", which does not fit what is in it")
		}
	default:
		return s, unreadable("is not whole: it ends with " + display.Quote(why, 40))
	}
	return s, nil
}

func (m *messages) said(s said) {
	var content []any
	if strings.TrimSpace(s.text) != "" { // a block of nothing but space is refused
		content = append(content, map[string]any{"type": "text", "text": s.text})
	}
	for _, c := range s.calls {
		content = append(content, map[string]any{"type": "tool_use", "id": c.id, "name": c.tool, "input": object(c.arguments)})
	}
	m.turns = append(m.turns, map[string]any{"role": "assistant", "content": content})
}

func (m *messages) results(all []result, after string) {
	var content []any
	for _, r := range all {
		content = append(content, map[string]any{"type": "tool_result", "tool_use_id": r.id, "is_error": r.failed, "content": texts(r.texts)})
	}
	m.turns = append(m.turns, map[string]any{"role": "user", "content": append(content, map[string]any{"type": "text", "text": after})})
}

// chat is a conversation in OpenAI's form.
type chat struct {
	o     Options
	turns []any
}

func (*chat) form() wire.Form { return wire.Chat }

func (c *chat) request(tokens int) (json.RawMessage, error) {
	body := map[string]any{"model": c.o.Model, "max_completion_tokens": tokens, "messages": c.turns}
	if len(c.o.Tools) > 0 {
		var tools []any
		for _, t := range c.o.Tools {
			tools = append(tools, map[string]any{"type": "function", "function": map[string]any{"name": t.Name, "description": t.Description, "parameters": t.Schema}})
		}
		body["tools"] = tools
	}
	return json.Marshal(body)
}

func (*chat) read(answer json.RawMessage) (s said, err error) {
	choices, _ := call.Get(answer, "choices")
	var choice json.RawMessage
	for c := range call.Elements(choices) {
		choice = c
		break
	}
	message, ok := call.Get(choice, "message")
	if !ok || !call.IsObject(message) {
		return s, unreadable("has no message")
	}
	if refusal, _ := call.GetText(message, "refusal"); refusal != "" {
		return s, unreadable("is a refusal of the model's")
	}
	s.text, _ = call.GetText(message, "content")
	all, _ := call.Get(message, "tool_calls")
	if len(all) > 0 && all[0] == '[' {
		for t := range call.Elements(all) {
			function, _ := call.Get(t, "function")
			var c asked
			c.id, _ = call.GetText(t, "id")
			c.tool, _ = call.GetText(function, "name")
			if c.id == "" || c.tool == "" {
				return s, unreadable("asks for a call without a name or an id")
			}
			text, _ := call.GetText(function, "arguments")
			if arguments, err := call.Canonical([]byte(text), call.DefaultLimits()); err == nil { // what is none is refused as the arguments of its call
				c.arguments = arguments
			}
			s.calls = append(s.calls, c)
		}
	}
	switch why, _ := call.GetText(choice, "finish_reason"); {
	case why == "length":
		s.cut = true
	case why == "stop": // some servers of this form say so of calls, too
	case why == "tool_calls" && len(s.calls) > 0:
	default:
		return s, unreadable("is not whole: it ends with " + display.Quote(why, 40))
	}
	return s, nil
}

func (c *chat) said(s said) {
	var calls []any
	for _, a := range s.calls {
		calls = append(calls, map[string]any{"id": a.id, "type": "function", "function": map[string]any{"name": a.tool, "arguments": string(object(a.arguments))}})
	}
	turn := map[string]any{"role": "assistant", "content": nil, "tool_calls": calls}
	if s.text != "" {
		turn["content"] = s.text
	}
	c.turns = append(c.turns, turn)
}

func (c *chat) results(all []result, after string) {
	for _, r := range all {
		var content any = texts(r.texts)
		if len(r.texts) == 1 { // many servers of this form read nothing else
			content = r.texts[0]
		}
		c.turns = append(c.turns, map[string]any{"role": "tool", "tool_call_id": r.id, "content": content})
	}
	c.turns = append(c.turns, map[string]any{"role": "user", "content": after})
}

func texts(all []string) (blocks []any) {
	for _, t := range all {
		blocks = append(blocks, map[string]any{"type": "text", "text": t})
	}
	return blocks
}

// object is what a model gave as arguments, as far as that is an object.
func object(arguments json.RawMessage) json.RawMessage {
	if call.IsObject(arguments) {
		return arguments
	}
	return json.RawMessage("{}")
}
