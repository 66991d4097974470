package wire

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"sallyport.example/internal/call"
)

// Called is a function that an answer asks its client to call. What the client runs by a type of its own goes by that type. One in a namespace has that before its name.
type Called struct {
	Name      string
	Arguments string // as far as they come with the name; "" where they come in pieces
}

// Described are the functions that a request says its client has, each with its description. One of another type, without a description, or with several has "".
func Described(form Form, body []byte) map[string]string {
	all := map[string]string{}
	put := func(name, kind string, of json.RawMessage) {
		description, _ := call.GetText(of, "description")
		if before, is := all[name]; kind != "function" || is && before != description {
			description = ""
		}
		all[name] = description
	}
	tools, _ := call.Get(body, "tools")
	for tool := range call.Elements(tools) {
		kind, typed := call.GetText(tool, "type")
		name, _ := call.GetText(tool, "name")
		switch {
		case form == Messages && (!typed || kind == "custom"):
			put(name, "function", tool)
		case form == Chat:
			of, _ := call.Get(tool, kind)
			name, _ = call.GetText(of, "name")
			put(name, kind, of)
		case kind == "namespace":
			within, _ := call.Get(tool, "tools")
			for one := range call.Elements(within) {
				kind, _ := call.GetText(one, "type")
				own, _ := call.GetText(one, "name")
				put(qualified(name, own), kind, one)
			}
		default:
			put(name, kind, tool)
		}
	}
	return all
}

// qualified is the name of a function in a namespace; "": it is in none.
func qualified(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return strings.TrimSuffix(namespace, "__") + "__" + name
}

// CallsIn are the functions that a whole answer asks its client to call, in order.
func CallsIn(form Form, answer []byte) (all []Called) {
	switch form {
	case Messages:
		content, _ := call.Get(answer, "content")
		for block := range call.Elements(content) {
			all = append(all, messageCalls(block)...)
		}
	case Chat:
		choices, _ := call.Get(answer, "choices")
		for choice := range call.Elements(choices) {
			message, _ := call.Get(choice, "message")
			all = append(all, chatCalls(message)...)
		}
	case Responses:
		output, _ := call.Get(answer, "output")
		for item := range call.Elements(output) {
			all = append(all, responseCalls(item)...)
		}
	}
	return all
}

// calledBy is the function that a part of an answer calls, if it is of the type.
func calledBy(part json.RawMessage, kind string) []Called {
	if is, _ := call.GetText(part, "type"); is != kind {
		return nil
	}
	name, _ := call.GetText(part, "name")
	namespace, _ := call.GetText(part, "namespace")
	return []Called{{qualified(namespace, name), argumentsOf(part)}}
}

// argumentsOf are the arguments of a call, wherever its form has them: texts as they are, objects as JSON.
func argumentsOf(of json.RawMessage) (all string) {
	for _, field := range []string{"input", "arguments", "action", "actions", "operation"} {
		v, is := call.Get(of, field)
		if !is || string(v) == "{}" || string(v) == "null" {
			continue
		}
		text, isText := call.Text(v)
		if !isText {
			text = string(v)
		}
		if all != "" && text != "" {
			all += "\n"
		}
		all += text
	}
	return all
}

// messageCalls is the function that a block of a message calls. Of a type that nobody here knows it is one where it has an input.
func messageCalls(block json.RawMessage) []Called {
	kind, _ := call.GetText(block, "type")
	if _, has := call.Get(block, "input"); !has || kind == "tool_use" || isHostedContent(kind) {
		return calledBy(block, "tool_use")
	}
	return []Called{{strings.TrimSuffix(kind, "_use"), string(block)}}
}

// calledPart is a call in a message of a chat, or a piece of one.
type calledPart struct {
	at     string // its place
	called Called
}

// chatCalls are the functions that a whole message of a chat calls, also one that it does not name.
func chatCalls(message json.RawMessage) (all []Called) {
	for _, part := range calledParts(message) {
		all = append(all, part.called)
	}
	return all
}

func calledParts(message json.RawMessage) []calledPart {
	calls, _ := call.Get(message, "tool_calls")
	old, _ := call.Get(message, "function_call")
	return append(callParts("tool_calls", calls), callParts("function_call", old)...)
}

// callParts are the calls in a member of a chat's message. One of a type that nobody here knows has all of it as its arguments.
func callParts(name string, v []byte) (all []calledPart) {
	switch name {
	case "function_call":
		if call.IsObject(v) {
			all = append(all, calledPart{name, namedIn(v)})
		}
	case "tool_calls":
		for one := range call.Elements(v) {
			at, known := name+" "+placeOf(one, "index"), false
			for _, kind := range []string{"function", "custom"} {
				if of, is := call.Get(one, kind); is && string(of) != "null" {
					known = true
					all = append(all, calledPart{at, namedIn(of)})
				}
			}
			if !known && !only(one, "index", "id", "type") {
				all = append(all, calledPart{at, Called{Arguments: string(one)}})
			}
		}
	}
	return all
}

func namedIn(of json.RawMessage) Called {
	name, _ := call.GetText(of, "name")
	return Called{name, argumentsOf(of)}
}

// responseCalls is the function that an item of a response calls. Of a type that nobody here knows it is one where it has an id of a call that waits for an answer.
func responseCalls(item json.RawMessage) []Called {
	kind, _ := call.GetText(item, "type")
	switch kind {
	case "function_call", "custom_tool_call":
		return calledBy(item, kind)
	case "local_shell_call", "shell_call", "apply_patch_call", "computer_call":
		return []Called{{strings.TrimSuffix(kind, "_call"), argumentsOf(item)}}
	}
	if id, _ := call.GetText(item, "call_id"); id != "" && !strings.HasSuffix(kind, "_output") {
		return []Called{{strings.TrimSuffix(kind, "_call"), string(item)}}
	}
	return nil
}

// unnamed are the calls of a whole response that no event before named, and those whose item began and was never said to be done.
func (s *Stream) unnamed(whole []Called) (all []Called) {
	before, names := map[Called]int{}, map[string]bool{}
	for _, one := range s.calls {
		before[one]++
	}
	for _, one := range whole {
		names[one.Name] = true
		if before[one]--; before[one] < 0 {
			all = append(all, one)
		}
	}
	for _, place := range slices.Sorted(maps.Keys(s.begun)) {
		for _, one := range s.begun[place] {
			if !names[one.Name] {
				all = append(all, one)
			}
		}
	}
	return all
}

// knownEvents are the types of events that this package knows, besides those that it reads.
var knownEvents = map[Form][]string{
	Messages: {"message_delta"},
	Responses: {
		"response.function_call_arguments.delta", "response.function_call_arguments.done", "response.custom_tool_call_input.delta", "response.custom_tool_call_input.done",
		"response.web_search_call.in_progress", "response.web_search_call.searching", "response.web_search_call.completed", "response.output_text.annotation.added",
	},
}
