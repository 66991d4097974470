package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// countFields are those of Anthropic's counting of tokens: a request without what is about its answer.
var countFields = func() fields {
	f := maps.Clone(messagesFields)
	for _, name := range []string{"max_tokens", "stream", "temperature", "top_p", "top_k", "stop_sequences", "metadata", "service_tier", "inference_geo"} {
		delete(f, name)
	}
	return f
}()

// responsesFields are those of OpenAI's responses.
var responsesFields = fields{
	"model": name, "input": textOr(list(typed("content", responsesItems, "message"))), "instructions": orNull(text),
	"stream": orNull(boolean), "stream_options": orNull(of(fields{"include_obfuscation": boolean})),
	"max_output_tokens": orNull(count), "temperature": orNull(number), "top_p": orNull(number), "truncation": orNull(word("auto", "disabled")),
	"tools": list(typed("tool", map[string]check{
		"function": of(fields{"type": name, "name": name, "description": orNull(text), "parameters": orNull(object), "strict": orNull(boolean)}, "name"),
		"custom":   of(fields{"type": name, "name": name, "description": orNull(text), "format": orNull(object)}, "name"),
		// Functions under a common name. Only functions: what a provider runs would be overlooked in here.
		"namespace": of(fields{"type": name, "name": name, "description": orNull(text), "tools": list(of(fields{
			"type": word("function"), "name": name, "description": orNull(text), "parameters": orNull(object), "strict": orNull(boolean),
		}, "type", "name"))}, "name", "tools"),
		// The agent's own program runs these: to the gateway they are functions.
		"local_shell": of(fields{"type": name}), "apply_patch": of(fields{"type": name}),
		"computer_use_preview": of(fields{"type": name, "display_width": number, "display_height": number, "environment": name}),
	}, "")),
	"tool_choice": orNull(textOr(choice)), "parallel_tool_calls": orNull(boolean),
	"text":      orNull(of(fields{"format": orNull(object), "verbosity": orNull(name)})),
	"reasoning": orNull(of(fields{"effort": orNull(name), "summary": orNull(name), "generate_summary": orNull(name), "context": orNull(name)})),
	"include":   orNull(list(word("reasoning.encrypted_content"))),
	"metadata":  orNull(object), "client_metadata": orNull(metadata), "user": orNull(text), "safety_identifier": orNull(text), "service_tier": orNull(name),
	"prompt_cache_key": orNull(text), "prompt_cache_retention": orNull(word("in_memory", "24h")),
	"store": orNull(notKept), "top_logprobs": orNull(func(p *parser, at string, v json.RawMessage) {
		exactly(p, at, v, "0", "Log probabilities do not pass: they are a second form of the text.")
	}),
	"background": orNull(func(p *parser, at string, v json.RawMessage) {
		exactly(p, at, v, "false", "An answer in the background stays with the provider, where nobody here inspects it. No setting allows this.")
	}),
	"previous_response_id": orNull(kept("An earlier response")), "conversation": orNull(kept("A conversation")), "prompt": orNull(kept("A stored prompt")),
}

// metadata accepts what a client says of itself: texts by name.
func metadata(p *parser, at string, v json.RawMessage) {
	if !call.IsObject(v) {
		p.fail(at, "It must be an object.", "")
		return
	}
	for name, member := range call.Members(v) {
		text(p, join(at, name), member)
	}
}

// responsesItems are the parts of the input of a response.
var responsesItems = map[string]check{
	"message": of(fields{
		"type": name, "id": orNull(name), "status": orNull(name), "phase": orNull(name), "role": word("user", "assistant", "system", "developer"), "content": textOr(list(typed("content", responsesContent, ""))),
	}, "role", "content"),
	"function_call":        of(fields{"type": name, "id": orNull(name), "status": orNull(name), "call_id": name, "namespace": orNull(name), "name": name, "arguments": text}, "call_id", "name", "arguments"),
	"function_call_output": responsesOutput, "custom_tool_call_output": responsesOutput, "local_shell_call_output": responsesOutput, "apply_patch_call_output": responsesOutput,
	"custom_tool_call": of(fields{"type": name, "id": orNull(name), "status": orNull(name), "call_id": name, "name": name, "input": text}, "call_id", "name", "input"),
	"local_shell_call": of(fields{"type": name, "id": orNull(name), "status": orNull(name), "call_id": name, "action": object}, "call_id", "action"),
	"apply_patch_call": of(fields{"type": name, "id": orNull(name), "status": orNull(name), "call_id": name, "operation": object}, "call_id", "operation"),
	"reasoning": of(fields{
		"type": name, "id": orNull(name), "status": orNull(name), "summary": list(of(fields{"type": word("summary_text"), "text": text}, "text")),
		"content": orNull(list(of(fields{"type": word("reasoning_text"), "text": text}, "text"))), "encrypted_content": orNull(text),
	}, "summary"),
	"item_reference": kept("An item's id"),
}

var responsesOutput = of(fields{
	"type": name, "id": orNull(name), "status": orNull(name), "call_id": orNull(name), "output": textOr(list(typed("content", responsesContent, ""))),
}, "output")

// responsesContent are the kinds of content of messages and of tools' results.
var responsesContent = map[string]check{
	"input_text":  of(fields{"type": name, "text": text}, "text"),
	"output_text": of(fields{"type": name, "text": text, "annotations": citations, "logprobs": noCitations}, "text"),
	"refusal":     of(fields{"type": name, "refusal": text}, "refusal"),
	"input_image": of(fields{"type": name, "image_url": dataURL, "detail": orNull(name), "file_id": orNull(kept("A file's id"))}, "image_url"),
	"input_file":  never("Files do not pass: nothing here reads what is in them.", "Send their text."),
	"input_audio": never("Audio does not pass: nothing here hears what is in it.", "Send its text."),
}

// ofItem is one part of the input of a response.
func ofItem(item json.RawMessage) Block {
	kind, _ := call.GetText(item, "type")
	role, _ := call.GetText(item, "role")
	b := block("input "+kind+" "+role, item)
	content, _ := call.Get(item, "content")
	if strings.HasSuffix(kind, "_output") {
		content, _ = call.Get(item, "output")
		b.result(content, "output")
		b.Use, _ = call.GetText(item, "call_id")
	}
	_, known := responsesItems[cmp.Or(kind, "message")] // what is not on the list the operator allows, and nobody here can read it
	b.Opaque = !known || kind != "reasoning" && hasOpaque(content)
	return b
}

// withoutOurs are a client's own instructions: what stands after the gateway's message; nil where there are none.
func withoutOurs(instructions json.RawMessage, message string) json.RawMessage {
	text, is := call.Text(instructions)
	if !is || message == "" {
		return instructions
	}
	own := strings.TrimPrefix(strings.TrimPrefix(text, message), "\n")
	if own == "" {
		return nil
	}
	encoded, _ := call.Encode(own) // of a text: can't fail
	return encoded
}

// responseMembers are those of a response that say how it was asked for, and that there is nothing in it yet.
var responseMembers = []string{
	"id", "object", "created_at", "status", "error", "incomplete_details", "instructions", "metadata", "model", "output", "parallel_tool_calls", "temperature", "tool_choice", "tools", "top_p", "background",
	"completed_at", "max_output_tokens", "max_tool_calls", "previous_response_id", "prompt_cache_key", "prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store", "text", "top_logprobs",
	"truncation", "usage", "user",
}

// places of a piece in a response, and what tells nothing.
var responsePlaces = []string{"type", "item_id", "output_index", "content_index", "summary_index", "sequence_number", "obfuscation"}

// responseEvent reads an event of OpenAI's responses.
func (s *Stream) responseEvent(data []byte) (e Event, passes bool, err error) {
	kind, _ := call.GetText(data, "type")
	if !isEventName(kind, true) {
		return e, false, fault.New(fault.ResultInvalid, "An event of the provider's answer has no type; it was cut.")
	}
	if kind == "error" {
		return e, false, failedWithin(data)
	}
	e.Raw = slices.Concat([]byte("event: "+kind+"\ndata: "), data, []byte("\n\n"))
	response, whole := call.Get(data, "response")
	if whole {
		name, _ := call.GetText(response, "model")
		if err := CheckName(s.r.Model, s.as, name); err != nil {
			return e, false, err
		}
		s.named = true
	}
	if !s.named {
		return e, false, CheckName(s.r.Model, s.as, "")
	}
	output, _ := call.Get(response, "output")
	plain := isNumber(data, "sequence_number") && numbers(data, "output_index", "content_index", "summary_index") && plainMembers(data, "item_id", "obfuscation")
	place := placeOf(data, "output_index") + " " + placeOf(data, "content_index") + placeOf(data, "summary_index")
	switch kind {
	case "response.created", "response.in_progress", "response.queued":
		e.Text, e.Calls = allTexts(response)+"\n", CallsIn(Responses, response)
		e.Holds = !plain || string(output) != "[]" || !only(data, "type", "sequence_number", "response") || !only(response, responseMembers...)
	case "response.completed", "response.incomplete":
		s.ended, e.Holds = true, true
		e.Calls = s.unnamed(CallsIn(Responses, response))
		s.usage, _ = UsageOf(response)
		if s.structured {
			e.Structured = StructuredIn(Responses, response)
			if n := len(e.Structured); n > 0 && len(s.texts) > 0 && !bytes.Equal(s.texts[len(s.texts)-1], e.Structured[n-1]) {
				return e, false, fault.New(fault.ResultInvalid, "The provider's answer ends with another text than it streamed; it was cut.")
			}
		}
	case "response.failed":
		return e, false, failedWithin(response)
	case "response.output_item.added", "response.output_item.done":
		item, _ := call.Get(data, "item")
		e.Text, e.Settles = allTexts(item)+"\n", true
		calls, at := responseCalls(item), placeOf(data, "output_index")
		if kind, _ := call.GetText(item, "type"); len(calls) > 0 || isHostedContent(kind) {
			s.puts(at)
		}
		if delete(s.begun, at); kind == "response.output_item.done" {
			e.Calls = calls
		} else if len(calls) > 0 {
			if s.begun == nil {
				s.begun = map[string][]Called{}
			}
			s.begun[at] = append(s.begun[at], calls...)
		}
		e.Holds = !plain || !only(data, "type", "output_index", "sequence_number", "item") || !textItem(item)
	case "response.content_part.added", "response.content_part.done", "response.reasoning_summary_part.added", "response.reasoning_summary_part.done":
		part, _ := call.Get(data, "part")
		e.Text, e.Settles = allTexts(part)+"\n", true
		e.Holds = !plain || !only(data, append([]string{"part"}, responsePlaces...)...) || !textPart(part)
	case "response.output_text.delta", "response.refusal.delta", "response.reasoning_text.delta", "response.reasoning_summary_text.delta":
		delta, isText := call.GetText(data, "delta")
		e.Text, e.Args = delta, []Arg{{Of: kind + " " + place, Text: delta}}
		if kind == "response.output_text.delta" {
			if s.place != place {
				s.place = place
				s.begin()
			}
			s.add(delta)
		}
		e.Holds = !plain || !isText || !noneOf(data, "logprobs") || !only(data, append([]string{"delta", "logprobs"}, responsePlaces...)...)
	case "response.output_text.done", "response.refusal.done", "response.reasoning_text.done", "response.reasoning_summary_text.done":
		e.Text, e.Settles = allTexts(data)+"\n", true
		e.Holds = !plain || !noneOf(data, "logprobs") || !texts(data, "text", "refusal") || !only(data, append([]string{"text", "refusal", "logprobs"}, responsePlaces...)...)
	default:
		for _, field := range []string{"delta", "arguments", "input"} { // of a call's arguments, in pieces or whole
			if text, isText := call.GetText(data, field); isText {
				e.Args = append(e.Args, Arg{Of: kind + " " + field + " " + place, Text: text, Call: true, at: placeOf(data, "output_index")})
			}
		}
		e.Holds, e.Unknown = true, !slices.Contains(knownEvents[Responses], kind)
	}
	return e, true, nil
}

// allTexts are the texts in an object, one in a line.
func allTexts(object json.RawMessage) string {
	var all strings.Builder
	call.Strings(object, func(_, text string) bool {
		all.WriteString(text)
		all.WriteByte('\n')
		return true
	})
	return all.String()
}

// textItem tells whether an item of a response has nothing but text in it.
func textItem(item json.RawMessage) bool {
	kind, _ := call.GetText(item, "type")
	if !plainMembers(item, "id", "status", "role", "phase") {
		return false
	}
	parts := []string{"content"}
	switch kind {
	case "message":
		if !only(item, "type", "id", "status", "role", "phase", "content") {
			return false
		}
	case "reasoning":
		if !only(item, "type", "id", "status", "summary", "content", "encrypted_content") || !texts(item, "encrypted_content") {
			return false
		}
		parts = append(parts, "summary")
	default:
		return false
	}
	for _, name := range parts {
		list, there := call.Get(item, name)
		if !there || string(list) == "null" {
			continue
		}
		if list[0] != '[' {
			return false
		}
		for part := range call.Elements(list) {
			if !textPart(part) {
				return false
			}
		}
	}
	return true
}

func textPart(part json.RawMessage) bool {
	kind, _ := call.GetText(part, "type")
	return slices.Contains([]string{"output_text", "refusal", "reasoning_text", "summary_text"}, kind) && texts(part, "text", "refusal") && noneOf(part, "annotations") && noneOf(part, "logprobs") &&
		only(part, "type", "text", "refusal", "annotations", "logprobs")
}

// noneOf tells whether a member is a list of nothing, as far as it is there.
func noneOf(object json.RawMessage, name string) bool {
	v, there := call.Get(object, name)
	return !there || string(v) == "null" || string(v) == "[]"
}
