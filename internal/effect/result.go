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
		if c.modest {
			all = append(all, provenance.CheckedValue(structured))
		} else {
			all = append(all, provenance.JSONValue(structured))
		}
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
	modest     bool          // it, and what has the same tokens, needs no other check than the content's
	canonical  func() []byte // of structured; nil where it has no canonical form, so that nothing repeats it
	only       string
	isOnly     bool
	last       string // the text that was asked about last
	lastIs     sameness
	known      map[string]sameness // texts that were asked about
}

// sameness is how far a text repeats structured content.
type sameness byte

const (
	unknown    sameness = iota
	differs             // it says something else
	says                // it says the same
	sameTokens          // it has the same tokens, with other white space between them at most
)

func repetitionOf(structured json.RawMessage, modest bool) (r repetition) {
	r.structured, r.modest = bytes.TrimSpace(structured), modest
	r.only, r.isOnly = call.OnlyText(r.structured)
	r.canonical = sync.OnceValue(func() []byte {
		b, err := call.Canonical(r.structured, call.DefaultLimits())
		if err != nil {
			return nil
		}
		return b
	})
	return r
}

func (r *repetition) of(text string) sameness {
	if r.structured == nil {
		return differs
	}
	if r.lastIs != unknown && r.last == text { // in most cases it is the same string, so that nothing is compared
		return r.lastIs
	}
	is := r.known[text]
	if is == unknown {
		if r.known == nil {
			r.known = map[string]sameness{}
		}
		is = r.compare(text)
		r.known[text] = is
	}
	r.last, r.lastIs = text, is
	return is
}

func (r *repetition) compare(whole string) sameness {
	if r.isOnly && whole == r.only {
		return says
	}
	text := strings.TrimSpace(whole)
	if c := r.structured[0]; (c == '{' || c == '[') && (text == "" || text[0] != c) {
		return differs
	}
	if text == string(r.structured) || sameButSpace(text, r.structured) { // as most servers write it: no need to bring both into canonical form
		switch {
		case !r.modest && call.Check([]byte(text), call.DefaultLimits()) != nil:
			return differs
		case text != strings.Trim(whole, " \t\r\n"): // there is other white space around it
			return says
		}
		return sameTokens
	}
	if same, err := call.Canonical([]byte(text), call.DefaultLimits()); err != nil || !bytes.Equal(same, r.canonical()) {
		return differs
	}
	return says
}

// sameButSpace reports whether a has the tokens of b, which is JSON, with other white space between them at most. Then a is JSON, too.
func sameButSpace(a string, b []byte) bool {
	quoted := false
	for i, j := 0, 0; ; i, j = i+1, j+1 {
		for from := i; !quoted && i < len(a) && isSpace(a[i]); i++ {
			if from > 0 && i+1 < len(a) && inLiteral(a[from-1]) && inLiteral(a[i+1]) { // it would part a number or a word
				return false
			}
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

// inLiteral reports whether a byte of JSON outside strings may be part of a number or a word.
func inLiteral(c byte) bool { return !isSpace(c) && strings.IndexByte(`{}[],:"`, c) < 0 }
