package wire

import (
	"encoding/json"
	"strings"

	"sallyport.example/internal/call"
)

// CallsIn are the functions that a whole answer asks its client to call, by name and in order. What the client runs by a type of its own goes by that type.
func CallsIn(form Form, answer []byte) (all []string) {
	switch form {
	case Messages:
		content, _ := call.Get(answer, "content")
		for block := range call.Elements(content) {
			all = append(all, calledBy(block, "tool_use")...)
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

// calledBy is the name of the function that a part of an answer calls, if it is of the type.
func calledBy(part json.RawMessage, kind string) []string {
	if is, _ := call.GetText(part, "type"); is != kind {
		return nil
	}
	name, _ := call.GetText(part, "name")
	return []string{name}
}

// chatCalls are the functions that a message of a chat, or a piece of one, calls. A piece that goes on with a call's arguments names none.
func chatCalls(message json.RawMessage) (all []string) {
	calls, _ := call.Get(message, "tool_calls")
	for one := range call.Elements(calls) {
		for _, kind := range []string{"function", "custom"} {
			of, _ := call.Get(one, kind)
			if name, _ := call.GetText(of, "name"); name != "" {
				all = append(all, name)
			}
		}
	}
	if old, is := call.Get(message, "function_call"); is {
		if name, _ := call.GetText(old, "name"); name != "" {
			all = append(all, name)
		}
	}
	return all
}

// responseCalls is the function that an item of a response calls.
func responseCalls(item json.RawMessage) []string {
	kind, _ := call.GetText(item, "type")
	switch kind {
	case "function_call", "custom_tool_call":
		return calledBy(item, kind)
	case "local_shell_call", "shell_call", "apply_patch_call", "computer_call":
		return []string{strings.TrimSuffix(kind, "_call")}
	}
	return nil
}

// knownEvents are the types of events that this package knows, besides those that it reads.
var knownEvents = map[Form][]string{
	Messages: {"message_delta"},
	Responses: {
		"response.function_call_arguments.delta", "response.function_call_arguments.done", "response.custom_tool_call_input.delta", "response.custom_tool_call_input.done",
		"response.web_search_call.in_progress", "response.web_search_call.searching", "response.web_search_call.completed", "response.output_text.annotation.added",
	},
}
