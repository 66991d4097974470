package effect

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"sallyport.example/internal/call"
	"sallyport.example/provenance"
)

// Content is what came back from a server or a command. It is read once for all that look at it: what is in it, and how it leaves. It is not for
// concurrent use.
type Content struct {
	JSON json.RawMessage // as it came

	strict  bool // it can be read without looking back: no name stands in an object twice, or in two spellings
	modest  bool // it is strict and within the limits of modest, and so is whatever stands in it
	members map[string]json.RawMessage
	objects map[*byte]map[string]json.RawMessage // members of the long objects in it, by where they stand
	lists   map[string][]json.RawMessage         // elements of its members
	texts   map[*byte]string                     // of long texts in it, by where they stand
	again   repetition                           // of its structured content
}

// NewContent returns the content of a result.
func NewContent(result json.RawMessage) *Content {
	c := &Content{JSON: result}
	c.modest = call.Check(result, modest) == nil
	if c.strict = c.modest || call.Check(result, readable) == nil; c.strict {
		c.members = maps.Collect(call.Members(result))
	}
	return c
}

// readable bounds what is read of a result. Its length was bounded when it came.
var readable = call.Limits{Bytes: 1 << 30, Depth: 256, Members: 1 << 30}

// modest bounds what needs no second check: neither as what the observer decodes, nor as what has a canonical form.
var modest = call.Limits{Bytes: call.DefaultLimits().Bytes, Depth: min(call.DefaultLimits().Depth, provenance.MaxDepth), Members: call.DefaultLimits().Members}

// lenient is the content as encoding/json reads it: of what a server says twice, or in two spellings of a name, one counts.
func (c *Content) lenient() (*Content, error) {
	if c.strict {
		return c, nil
	}
	var v any
	if err := decode(c.JSON, &v); err != nil {
		return nil, err
	}
	b, err := call.Encode(v)
	if err != nil {
		return nil, err
	}
	return &Content{JSON: b, members: maps.Collect(call.Members(b))}, nil
}

// complete is the list of objects that one of its members is; false if the content can't be read, or is no result yet.
func (c *Content) complete(list string) (blocks []json.RawMessage, ok bool) {
	if !c.strict || !call.IsObject(bytes.TrimSpace(c.JSON)) {
		return nil, false
	}
	if kind := c.members["resultType"]; kind != nil && string(kind) != `"complete"` { // results of revision 2026-07-28 say that they are one
		return nil, false
	}
	raw := c.members[list]
	blocks = c.elements(list)
	if blocks == nil && raw != nil && !isNull(raw) && raw[0] != '[' || slices.ContainsFunc(blocks, func(b json.RawMessage) bool { return !call.IsObject(b) }) {
		return nil, false
	}
	return blocks, true
}

// elements are those of one of its members; none where that is no list.
func (c *Content) elements(name string) []json.RawMessage {
	all, ok := c.lists[name]
	if !ok {
		if c.lists == nil {
			c.lists = map[string][]json.RawMessage{}
		}
		all = slices.Collect(call.Elements(c.members[name]))
		c.lists[name] = all
	}
	return all
}

// long is from how many bytes on an object is read once, and a text decoded once.
const long = 256

// membersOf are those of an object that stands in the content.
func (c *Content) membersOf(object json.RawMessage) map[string]json.RawMessage {
	if len(object) < long {
		return maps.Collect(call.Members(object))
	}
	members, ok := c.objects[&object[0]]
	if !ok {
		if c.objects == nil {
			c.objects = map[*byte]map[string]json.RawMessage{}
		}
		members = maps.Collect(call.Members(object))
		c.objects[&object[0]] = members
	}
	return members
}

// get is call.Get of an object that stands in the content.
func (c *Content) get(object json.RawMessage, name string) json.RawMessage {
	if len(object) < long {
		value, _ := call.Get(object, name)
		return value
	}
	return c.membersOf(object)[name]
}

// text is call.GetText of an object that stands in the content.
func (c *Content) text(object json.RawMessage, name string) (string, bool) {
	value := c.get(object, name)
	if len(value) < long {
		return call.Text(value)
	}
	if s, ok := c.texts[&value[0]]; ok {
		return s, true
	}
	s, ok := call.Text(value)
	if ok {
		if c.texts == nil {
			c.texts = map[*byte]string{}
		}
		c.texts[&value[0]] = s
	}
	return s, ok
}

// repeats tells whether a text says nothing but what the structured content says.
func (c *Content) repeats(text string) bool { return c.repeated(text) != differs }

func (c *Content) repeated(text string) sameness {
	if structured := c.members["structuredContent"]; c.again.structured == nil && structured != nil && !isNull(structured) {
		c.again = repetitionOf(structured, c.modest)
	}
	return c.again.of(text)
}

// Once is the content without the text of its only block, where that repeats the structured content, but for white space between tokens. A search for words
// then reads them once: in the structured content, where their quotes are not escaped.
func (c *Content) Once() []byte {
	blocks := c.elements("content")
	if !c.strict || c.members["structuredContent"] == nil || len(blocks) != 1 { // beside another block, its words may go on there
		return c.JSON
	}
	text, ok := c.text(blocks[0], "text")
	if !ok || len(text) < long || c.repeated(text) != sameTokens {
		return c.JSON
	}
	at := call.Place(c.JSON, "content")
	at += bytes.IndexByte(c.JSON[at:], '{') // the block
	at += call.Place(c.JSON[at:], "text")
	return slices.Concat(c.JSON[:at], []byte(`""`), c.JSON[at+len(c.get(blocks[0], "text")):])
}
