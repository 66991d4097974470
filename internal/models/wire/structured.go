package wire

import (
	"encoding/json"
	"slices"

	"sallyport.example/internal/call"
)

// formatOf is the form that a request asks an answer to have; nil: none.
func formatOf(form Form, body []byte) json.RawMessage {
	format, _ := call.Get(body, "response_format")
	switch form {
	case Messages:
		config, _ := call.Get(body, "output_config")
		format, _ = call.Get(config, "format")
	case Responses:
		config, _ := call.Get(body, "text")
		format, _ = call.Get(config, "format")
	}
	if string(format) == "null" {
		return nil
	}
	return format
}

// MustHold tells whether a request asks for structured output, which can act: nothing of the answer leaves before its outcome.
func MustHold(form Form, body []byte) bool {
	format := formatOf(form, body)
	kind, _ := call.GetText(format, "type")
	return format != nil && kind != "text"
}

// SchemaOf is the JSON schema that a request asks the answer to match; nil: none.
func SchemaOf(form Form, body []byte) json.RawMessage {
	format := formatOf(form, body)
	if kind, _ := call.GetText(format, "type"); kind != "json_schema" {
		return nil
	}
	if form == Chat {
		format, _ = call.Get(format, "json_schema")
	}
	schema, _ := call.Get(format, "schema")
	return schema
}

// endedItself are the reasons of Anthropic's messages that mean that the model had nothing more to say.
var endedItself = []string{"end_turn", "stop_sequence"}

// StructuredIn is the last text of a whole answer that its model ended itself: what a request's schema is about. It is nil of an answer that calls a
// function, that refuses, or that was cut at its bound, all of which clients take for what they are.
func StructuredIn(form Form, answer []byte) (last []byte) {
	if len(CallsIn(form, answer)) > 0 {
		return nil
	}
	put := func(part json.RawMessage) {
		text, _ := call.GetText(part, "text")
		last = []byte(text)
	}
	switch form {
	case Messages:
		if reason, _ := call.GetText(answer, "stop_reason"); !slices.Contains(endedItself, reason) {
			return nil
		}
		content, _ := call.Get(answer, "content")
		for block := range call.Elements(content) {
			if kind, _ := call.GetText(block, "type"); kind == "text" {
				put(block)
			}
		}
	case Chat:
		choices, _ := call.Get(answer, "choices")
		for choice := range call.Elements(choices) {
			message, _ := call.Get(choice, "message")
			refusal, _ := call.GetText(message, "refusal")
			if reason, _ := call.GetText(choice, "finish_reason"); reason != "stop" || refusal != "" {
				return nil
			}
			text, _ := call.GetText(message, "content")
			last = []byte(text)
		}
	case Responses:
		if status, _ := call.GetText(answer, "status"); status != "completed" {
			return nil
		}
		output, _ := call.Get(answer, "output")
		for item := range call.Elements(output) {
			content, _ := call.Get(item, "content")
			for part := range call.Elements(content) {
				switch kind, _ := call.GetText(part, "type"); kind {
				case "output_text":
					put(part)
				case "refusal":
					return nil
				}
			}
		}
	}
	if last == nil {
		return []byte{}
	}
	return last
}
