package comm

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

// param is one parameter of an operation, with the checks that run before the operation. doc is for whoever gave a wrong one: in the schema, which is
// part of every conversation, the name and the operation's description have to do.
type param struct {
	name     string
	kind     string // text, integer, flag, texts, scalars
	doc      string
	required bool
	quiet    bool     // taken, but not in the schema: hardly ever needed
	words    []string // text: one of these
	least    int      // integer
	most     int      // text: bytes; integer: value; texts and scalars: elements
}

type params []param

// schema is the properties of the parameters' object in JSON Schema. What has one possible value is left out, and bounds are told by a refusal.
func (ps params) schema() json.RawMessage {
	properties := map[string]any{}
	for _, p := range ps {
		if p.quiet || len(p.words) == 1 {
			continue
		}
		s := map[string]any{}
		switch p.kind {
		case "text":
			s["type"] = "string"
			if p.words != nil {
				s["enum"] = p.words
			}
		case "integer":
			s["type"] = "integer"
		case "flag":
			s["type"] = "boolean"
		case "texts":
			s["type"], s["items"] = "array", map[string]any{"type": "string"}
		case "scalars":
			s["type"], s["items"] = "array", map[string]any{}
		}
		properties[p.name] = s
	}
	b, err := json.Marshal(properties)
	if err != nil {
		panic("comm: a parameter does not encode: " + err.Error()) // strings and numbers encode
	}
	return b
}

// values are the parameters of one call, checked: strings, int64s, bools, []string, []any (with json.Number).
type values map[string]any

func (v values) text(name string) string    { s, _ := v[name].(string); return s }
func (v values) integer(name string) int64  { n, _ := v[name].(int64); return n }
func (v values) flag(name string) bool      { b, _ := v[name].(bool); return b }
func (v values) texts(name string) []string { l, _ := v[name].([]string); return l }
func (v values) scalars(name string) []any  { l, _ := v[name].([]any); return l }

// parse reads canonical parameters strictly. null is not a value.
func (ps params) parse(raw json.RawMessage) (values, error) {
	v := values{}
	for name, member := range call.Members(raw) {
		i := slices.IndexFunc(ps, func(p param) bool { return p.name == name })
		if i < 0 {
			return nil, fault.New(fault.RequestMalformed, "There is no parameter %q.", display.Clip(name, 80)).At(display.Clip(name, 80)).Try("The parameters are %s.", ps.names())
		}
		value, wrong := ps[i].read(member)
		if wrong != "" {
			return nil, fault.New(fault.RequestMalformed, "%s %s", name, wrong).At(name)
		}
		v[name] = value
	}
	for _, p := range ps {
		if s, text := v[p.name].(string); p.required && (v[p.name] == nil || text && strings.TrimSpace(s) == "") {
			return nil, fault.New(fault.RequestMalformed, "%s is missing.", p.name).At(p.name).Try("It is: %s", p.doc)
		}
	}
	return v, nil
}

func (ps params) names() string {
	names := make([]string, len(ps))
	for i, p := range ps {
		names[i] = p.name
	}
	return strings.Join(names, ", ")
}

// read returns the value, or its problem as a sentence that follows its name.
func (p param) read(raw json.RawMessage) (value any, wrong string) {
	switch p.kind {
	case "text":
		var s *string
		switch {
		case json.Unmarshal(raw, &s) != nil || s == nil:
			return nil, "must be a string."
		case len(*s) > p.most:
			return nil, fmt.Sprintf("has more than %d bytes.", p.most)
		case p.words != nil && !slices.Contains(p.words, *s):
			return nil, "must be one of " + strings.Join(p.words, ", ") + "."
		}
		return *s, ""
	case "integer":
		var n *int64
		if json.Unmarshal(raw, &n) != nil || n == nil || *n < int64(p.least) || *n > int64(p.most) {
			return nil, fmt.Sprintf("must be a whole number from %d to %d.", p.least, p.most)
		}
		return *n, ""
	case "flag":
		var b *bool
		if json.Unmarshal(raw, &b) != nil || b == nil {
			return nil, "must be true or false."
		}
		return *b, ""
	case "texts":
		var list []*string
		if raw[0] != '[' || json.Unmarshal(raw, &list) != nil || slices.Contains(list, nil) {
			return nil, "must be a list of strings."
		}
		if len(list) > p.most {
			return nil, fmt.Sprintf("has more than %d elements.", p.most)
		}
		texts := make([]string, len(list))
		for i, s := range list {
			texts[i] = *s
		}
		return texts, ""
	default:
		var list []any
		if raw[0] != '[' || call.Decode(raw, &list) != nil {
			return nil, "must be a list."
		}
		if len(list) > p.most {
			return nil, fmt.Sprintf("has more than %d elements.", p.most)
		}
		return list, ""
	}
}
