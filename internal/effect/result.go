package effect

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

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
func Payloads(m call.Method, result json.RawMessage) (all []provenance.Value, plain bool) {
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

// complete reads the members of a result, and the list of objects that one of them is; false if it can't be read, or is no result yet.
func complete(result json.RawMessage, list string) (members map[string]json.RawMessage, blocks []json.RawMessage, ok bool) {
	if call.Check(result, readable) != nil || !call.IsObject(bytes.TrimSpace(result)) {
		return nil, nil, false
	}
	members = maps.Collect(call.Members(result))
	if kind := members["resultType"]; kind != nil && string(kind) != `"complete"` { // results of revision 2026-07-28 say that they are one
		return nil, nil, false
	}
	raw := members[list]
	blocks = slices.Collect(call.Elements(raw))
	if blocks == nil && raw != nil && !isNull(raw) && raw[0] != '[' || slices.ContainsFunc(blocks, func(b json.RawMessage) bool { return !call.IsObject(b) }) {
		return nil, nil, false
	}
	return members, blocks, true
}

// readable bounds what is read of a result. Its length was bounded when it came.
var readable = call.Limits{Bytes: 1 << 30, Depth: 256, Members: 1 << 30}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

func toolPayloads(result json.RawMessage) (all []provenance.Value, plain bool) {
	members, blocks, ok := complete(result, "content")
	if !ok {
		return nil, false
	}
	plain = true
	for name := range members {
		plain = plain && slices.Contains([]string{"content", "structuredContent", "isError", "resultType"}, name)
	}
	var again repetition
	if structured := members["structuredContent"]; structured != nil && !isNull(structured) {
		all, again = append(all, provenance.JSONValue(structured)), repetitionOf(structured)
	}
	for _, b := range blocks {
		s, ok := call.GetText(b, "text")
		if kind, _ := call.Get(b, "type"); string(kind) != `"text"` || !ok {
			plain = false
			inner, _ := call.Get(b, "resource")
			if s, ok = call.GetText(inner, "text"); !ok {
				continue
			}
		} else if membersOf(b) != 2 {
			plain = false
		}
		if !again.of(s) {
			all = append(all, provenance.TextValue(s))
		}
	}
	return all, plain
}

func membersOf(object []byte) (n int) {
	for range call.Members(object) {
		n++
	}
	return n
}

func resourcePayloads(result json.RawMessage) (all []provenance.Value, plain bool) {
	_, contents, _ := complete(result, "contents")
	for _, b := range contents {
		if s, ok := call.GetText(b, "text"); ok {
			all = append(all, provenance.TextValue(s))
		}
	}
	return all, false
}

func promptPayloads(result json.RawMessage) (all []provenance.Value, plain bool) {
	_, messages, _ := complete(result, "messages")
	for _, m := range messages {
		block, _ := call.Get(m, "content")
		if s, ok := call.GetText(block, "text"); ok {
			all = append(all, provenance.TextValue(s))
		}
	}
	return all, false
}

// repetition finds the texts that repeat structured content: its JSON, or the one text in it.
type repetition struct {
	structured []byte
	canonical  func() []byte // of structured; nil where it has no canonical form, so that nothing repeats it
	only       string
	isOnly     bool
}

func repetitionOf(structured json.RawMessage) (r repetition) {
	r.structured = bytes.TrimSpace(structured)
	members := 0
	for _, v := range call.Members(r.structured) {
		if members++; members > 1 {
			r.isOnly = false
			break
		}
		r.only, r.isOnly = call.Text(v)
	}
	r.canonical = sync.OnceValue(func() []byte {
		b, err := call.Canonical(r.structured, call.DefaultLimits())
		if err != nil {
			return nil
		}
		return b
	})
	return r
}

func (r *repetition) of(text string) bool {
	if r.structured == nil {
		return false
	}
	if r.isOnly && text == r.only {
		return true
	}
	text = strings.TrimSpace(text)
	if c := r.structured[0]; (c == '{' || c == '[') && (text == "" || text[0] != c) {
		return false
	}
	b := []byte(text)
	if sameButSpace(b, r.structured) { // as most servers write it: no need to bring both into canonical form
		return call.Check(b, call.DefaultLimits()) == nil
	}
	same, err := call.Canonical(b, call.DefaultLimits())
	return err == nil && bytes.Equal(same, r.canonical())
}

// sameButSpace reports whether a and b, of which one is JSON, are the same but for white space between tokens. Of what is no JSON it may say so wrongly.
func sameButSpace(a, b []byte) bool {
	quoted := false
	for i, j := 0, 0; ; i, j = i+1, j+1 {
		for !quoted && i < len(a) && isSpace(a[i]) {
			i++
		}
		for !quoted && j < len(b) && isSpace(b[j]) {
			j++
		}
		switch {
		case i >= len(a) || j >= len(b):
			return i >= len(a) && j >= len(b)
		case a[i] != b[j]:
			return false
		case a[i] == '"':
			quoted = !quoted
		case a[i] == '\\' && quoted:
			if i++; i < len(a) {
				if j++; j >= len(b) || a[i] != b[j] {
					return false
				}
			}
		}
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// repeats tells whether the structured content says nothing that a text block doesn't. Showing it twice would only cost the model's attention.
func repeats(texts []string, structured json.RawMessage) bool {
	r := repetitionOf(structured)
	return slices.ContainsFunc(texts, r.of)
}
