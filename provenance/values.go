package provenance

import (
	"encoding/json"
	"strings"

	"sallyport.example/internal/call"
)

// Value is a JSON value, or a text, that was read once. The zero Value is one that could not be read.
type Value struct {
	value any
	known bool
	size  int // bytes of its text
}

// JSONValue reads a value.
func JSONValue(b []byte) Value {
	v, err := decode(b)
	return Value{value: v, known: err == nil, size: len(b)}
}

// MaxDepth is how many levels of lists and objects a value may have that is read.
const MaxDepth = maxDepth

// CheckedValue is JSONValue of what call.Check has passed, alone or in a larger value, with no more than MaxDepth levels.
func CheckedValue(b []byte) Value {
	return Value{value: decodeChecked(string(b)), known: true, size: len(b)}
}

// TextValue reads a text block: the JSON object or list that the text consists of, or else the text.
func TextValue(s string) Value {
	if t := strings.TrimSpace(s); t != "" && (t[0] == '{' || t[0] == '[') && len(t) <= maxParsed && call.Check([]byte(t), decodable) == nil {
		return Value{value: decodeChecked(t), known: true, size: len(t)}
	}
	return Value{value: s, known: true, size: len(s)}
}

// Plain is the value as encoding/json has it, with a json.Number for each number; nil if it could not be read.
func (v Value) Plain() any { return plain(v.value) }

func plain(v any) any {
	switch v := v.(type) {
	case []any:
		all := make([]any, len(v))
		for i, e := range v {
			all[i] = plain(e)
		}
		return all
	case object:
		all := make(map[string]any, len(v))
		for _, m := range v {
			all[m.name] = plain(m.value)
		}
		return all
	}
	return v
}

// object is a JSON object with its members in order.
type object []member

type member struct {
	name  string
	value any
}

// decodable bounds the depth of what is decoded. Its length is bounded by who has it.
var decodable = call.Limits{Bytes: 1 << 30, Depth: maxDepth, Members: 1 << 30}

// decode reads exactly one JSON value. It refuses what call.Check refuses, members whose names differ only in case among it, and more than maxDepth levels.
func decode(b []byte) (any, error) {
	if err := call.Check(b, decodable); err != nil {
		return nil, err
	}
	return decodeChecked(string(b)), nil
}

func decodeChecked(s string) any {
	d := decoder{text: s}
	return d.value()
}

// decoder reads a checked JSON value in one pass. The strings that it gives are parts of its text, unless they have escapes.
type decoder struct {
	text    string
	i       int // next byte to read
	members int // of the object before: the objects of a list have the same members
}

// maxLikely bounds the members that an object gets room for before they are read, so that many small objects behind a large one take no more than they need.
const maxLikely = 16

// next goes to the next value, or to the end of the list or object, and tells how it begins.
func (d *decoder) next() byte {
	for {
		switch c := d.text[d.i]; c {
		case ' ', '\t', '\n', '\r', ',', ':':
			d.i++
		default:
			return c
		}
	}
}

func (d *decoder) value() any {
	switch d.next() {
	case '"':
		return d.string()
	case '[':
		list := []any{}
		for d.i++; d.next() != ']'; {
			list = append(list, d.value())
		}
		d.i++
		return list
	case '{':
		o := make(object, 0, d.members)
		for d.i++; d.next() != '}'; {
			o = append(o, member{d.string(), d.value()})
		}
		d.i, d.members = d.i+1, min(len(o), maxLikely)
		return o
	}
	begin := d.i
	for d.i < len(d.text) && d.text[d.i] > ' ' && d.text[d.i] != ',' && d.text[d.i] != ']' && d.text[d.i] != '}' {
		d.i++
	}
	switch word := d.text[begin:d.i]; word {
	case "null":
		return nil
	case "true", "false":
		return word == "true"
	default:
		return json.Number(word)
	}
}

// string reads the string that begins here.
func (d *decoder) string() string {
	begin := d.i + 1
	end := begin + strings.IndexByte(d.text[begin:], '"')
	if strings.IndexByte(d.text[begin:end], '\\') < 0 {
		d.i = end + 1
		return d.text[begin:end]
	}
	for end = begin; d.text[end] != '"'; end++ {
		if d.text[end] == '\\' {
			end++
		}
	}
	d.i = end + 1
	s, _ := call.Text([]byte(d.text[begin-1 : d.i]))
	return s
}
