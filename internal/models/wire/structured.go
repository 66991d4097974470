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

// exempt are the words of all forms for answers that were cut at a bound or refused, which clients take for what they are. With any other word, or none, an
// answer is checked.
var exempt = []string{"max_tokens", "model_context_window_exceeded", "refusal", "pause_turn", "length", "content_filter", "incomplete"}

// StructuredIn are the texts of a whole answer that a request's schema is about, the last one being the answer itself. It is nil of an answer that calls a
// function, that refuses, or that was cut at its bound.
func StructuredIn(form Form, answer []byte) (all [][]byte) {
	if len(CallsIn(form, answer)) > 0 {
		return nil
	}
	all = [][]byte{}
	put := func(part json.RawMessage, field string) {
		text, _ := call.GetText(part, field)
		all = append(all, []byte(text))
	}
	switch form {
	case Messages:
		if reason, _ := call.GetText(answer, "stop_reason"); slices.Contains(exempt, reason) {
			return nil
		}
		content, _ := call.Get(answer, "content")
		for block := range call.Elements(content) {
			if kind, _ := call.GetText(block, "type"); kind == "text" {
				put(block, "text")
			}
		}
	case Chat:
		choices, _ := call.Get(answer, "choices")
		n := 0
		for choice := range call.Elements(choices) {
			if n++; n > 1 { // one was asked for: nothing matches
				return [][]byte{{}}
			}
			message, _ := call.Get(choice, "message")
			refusal, _ := call.GetText(message, "refusal")
			if reason, _ := call.GetText(choice, "finish_reason"); slices.Contains(exempt, reason) || refusal != "" {
				all = nil
				continue
			}
			put(message, "content")
		}
	case Responses:
		if status, _ := call.GetText(answer, "status"); slices.Contains(exempt, status) {
			return nil
		}
		output, _ := call.Get(answer, "output")
		for item := range call.Elements(output) {
			content, _ := call.Get(item, "content")
			for part := range call.Elements(content) {
				switch kind, _ := call.GetText(part, "type"); kind {
				case "output_text":
					put(part, "text")
				case "refusal":
					return nil
				}
			}
		}
	}
	return all
}
