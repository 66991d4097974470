package effect

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/provenance"
)

// inspect holds a result of MCP against the schema that its operation declared. A result that says that it failed is not checked.
func inspect(op *catalogue.Operation, c *Content) (failed bool, err error) {
	get := func(name string) json.RawMessage {
		if c.strict {
			return c.members[name]
		}
		value, _ := call.Get(c.JSON, name)
		return value
	}
	failed = string(get("isError")) == "true"
	if !call.IsObject(c.JSON) {
		return failed, fault.New(fault.ResultInvalid, "The server's result is not an object; it was discarded.")
	}
	if op.Check == nil || failed {
		return failed, nil
	}
	if structured := get("structuredContent"); structured != nil {
		if err := op.Check(structured); err != nil {
			return false, fault.Wrap(err, fault.ResultInvalid, "The server's structured result does not match the schema it declared; it was discarded.")
		}
	}
	return false, nil
}

// Payloads are those of a method's result as an Effect of it would tell, for results that are on record.
func Payloads(m call.Method, result json.RawMessage) (all []provenance.Value, plain bool) {
	switch c := NewContent(result); m {
	case call.CallTool:
		return c.ofTool()
	case call.ReadResource:
		return c.ofResource()
	case call.GetPrompt:
		return c.ofPrompt()
	}
	return nil, false
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

func (c *Content) ofTool() (all []provenance.Value, plain bool) {
	blocks, ok := c.complete("content")
	if !ok {
		return nil, false
	}
	plain = true
	for name := range c.members {
		plain = plain && slices.Contains([]string{"content", "structuredContent", "isError", "resultType"}, name)
	}
	if structured := c.members["structuredContent"]; structured != nil && !isNull(structured) {
		all = append(all, provenance.JSONValue(structured))
	}
	for _, b := range blocks {
		s, ok := c.text(b, "text")
		if string(c.get(b, "type")) != `"text"` || !ok {
			plain = false
			if s, ok = c.text(c.get(b, "resource"), "text"); !ok {
				continue
			}
		} else if len(c.membersOf(b)) != 2 {
			plain = false
		}
		if !c.repeats(s) {
			all = append(all, provenance.TextValue(s))
		}
	}
	return all, plain
}

func (c *Content) ofResource() (all []provenance.Value, plain bool) {
	contents, _ := c.complete("contents")
	for _, b := range contents {
		if s, ok := c.text(b, "text"); ok {
			all = append(all, provenance.TextValue(s))
		}
	}
	return all, false
}

func (c *Content) ofPrompt() (all []provenance.Value, plain bool) {
	messages, _ := c.complete("messages")
	for _, m := range messages {
		if s, ok := c.text(c.get(m, "content"), "text"); ok {
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
	known      map[string]bool // texts that were asked about
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
	if same, ok := r.known[text]; ok {
		return same
	}
	same := r.compare(text)
	if r.known == nil {
		r.known = map[string]bool{}
	}
	r.known[text] = same
	return same
}

func (r *repetition) compare(text string) bool {
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
