package effect

import (
	"bytes"
	"encoding/json"
	"slices"

	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/provenance"
)

// inspect holds a result of MCP against the schema that its operation declared. A result that says that it failed is not checked.
func inspect(op *catalogue.Operation, result json.RawMessage) (failed bool, err error) {
	if isError, ok := call.Get(result, "isError"); ok && string(isError) == "true" {
		failed = true
	}
	if !call.IsObject(result) {
		return failed, fault.New(fault.ResultInvalid, "The server's result is not an object; it was discarded.")
	}
	if op.Check == nil || failed {
		return failed, nil
	}
	if structured, ok := call.Get(result, "structuredContent"); ok {
		if err := op.Check(structured); err != nil {
			return false, fault.Wrap(err, fault.ResultInvalid, "The server's structured result does not match the schema it declared; it was discarded.")
		}
	}
	return false, nil
}

// Payloads are those of a method's result as an Effect of it would tell, for results that are on record.
func Payloads(m call.Method, result json.RawMessage) (all []json.RawMessage, plain bool) {
	switch m {
	case call.CallTool:
		return toolPayloads(result)
	case call.ReadResource:
		return resourcePayloads(result)
	case call.GetPrompt:
		return promptPayloads(result)
	}
	return nil, false
}

// complete reads the members of a result, and the list that one of them is; false if it can't be read, or is no result yet.
func complete(result json.RawMessage, list string) (members map[string]json.RawMessage, blocks []map[string]json.RawMessage, ok bool) {
	if json.Unmarshal(result, &members) != nil {
		return nil, nil, false
	}
	if kind := members["resultType"]; kind != nil && string(kind) != `"complete"` { // results of revision 2026-07-28 say that they are one
		return nil, nil, false
	}
	if raw := members[list]; raw != nil && json.Unmarshal(raw, &blocks) != nil {
		return nil, nil, false
	}
	return members, blocks, true
}

func textOf(raw json.RawMessage) (s string, ok bool) {
	return s, raw != nil && json.Unmarshal(raw, &s) == nil
}

func toolPayloads(result json.RawMessage) (all []json.RawMessage, plain bool) {
	members, blocks, ok := complete(result, "content")
	if !ok {
		return nil, false
	}
	plain = true
	for name := range members {
		plain = plain && slices.Contains([]string{"content", "structuredContent", "isError", "resultType"}, name)
	}
	var again repetition
	if structured := members["structuredContent"]; structured != nil && string(structured) != "null" {
		all, again = append(all, structured), repetitionOf(structured)
	}
	for _, b := range blocks {
		s, ok := textOf(b["text"])
		if string(b["type"]) != `"text"` || !ok {
			plain = false
			var inner map[string]json.RawMessage
			if json.Unmarshal(b["resource"], &inner) != nil {
				continue
			}
			if s, ok = textOf(inner["text"]); !ok {
				continue
			}
		} else if len(b) != 2 {
			plain = false
		}
		if !again.of(s) {
			all = append(all, provenance.TextPayload(s))
		}
	}
	return all, plain
}

func resourcePayloads(result json.RawMessage) (all []json.RawMessage, plain bool) {
	_, contents, _ := complete(result, "contents")
	for _, b := range contents {
		if s, ok := textOf(b["text"]); ok {
			all = append(all, provenance.TextPayload(s))
		}
	}
	return all, false
}

func promptPayloads(result json.RawMessage) (all []json.RawMessage, plain bool) {
	_, messages, _ := complete(result, "messages")
	for _, m := range messages {
		var block map[string]json.RawMessage
		if json.Unmarshal(m["content"], &block) != nil {
			continue
		}
		if s, ok := textOf(block["text"]); ok {
			all = append(all, provenance.TextPayload(s))
		}
	}
	return all, false
}

// repetition holds the texts that repeat structured content: its JSON, or the one text in it.
type repetition struct {
	canonical []byte
	only      string
	isOnly    bool
}

func repetitionOf(structured json.RawMessage) (r repetition) {
	var members map[string]json.RawMessage
	if json.Unmarshal(structured, &members) == nil && len(members) == 1 {
		for _, v := range members {
			r.isOnly = json.Unmarshal(v, &r.only) == nil
		}
	}
	r.canonical, _ = call.Canonical(structured, call.DefaultLimits()) // what has no canonical form is repeated by nothing
	return r
}

func (r *repetition) of(text string) bool {
	if r.isOnly && text == r.only {
		return true
	}
	if r.canonical == nil {
		return false
	}
	same, err := call.Canonical([]byte(text), call.DefaultLimits())
	return err == nil && bytes.Equal(same, r.canonical)
}

// repeats tells whether the structured content says nothing that a text block doesn't. Showing it twice would only cost the model's attention.
func repeats(texts []string, structured json.RawMessage) bool {
	r := repetitionOf(structured)
	return slices.ContainsFunc(texts, r.of)
}
