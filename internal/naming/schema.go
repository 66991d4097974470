// Package naming reads what the names of tools and arguments tell, and what a tool's schema says about its arguments.
//
// Promises: a definition is hostile. Reading one takes bounded time whatever is in it. What a name tells is a guess: it may raise a question, and
// never takes one away.
package naming

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"sallyport.example/internal/call"
)

// Bounds of what is read of one schema. What is over them is as if the schema didn't say it, and Schema.Cut tells.
const (
	maxArguments = 200
	maxDepth     = 8
	maxSteps     = 5000
)

// Argument is a value that a schema takes, with the path under which it gets a role: names joined by points, without positions in lists.
type Argument struct {
	Path    string
	Types   []string // of string, number, integer, boolean, object …, as the schema gives them; nil: it gives none
	Format  string   // as the schema gives it: email, uri, date-time …
	Enum    bool     // one of a few values
	Open    bool     // a value with members that the schema doesn't name
	Comment string   // the server's text
}

// Is reports whether the argument takes one type and nothing else. A list takes what its elements take.
func (a Argument) Is(types ...string) bool {
	return len(a.Types) > 0 && !slices.ContainsFunc(a.Types, func(t string) bool { return !slices.Contains(types, t) })
}

// Schema is what could be read of a JSON Schema of an object.
type Schema struct {
	Arguments []Argument // sorted by path; a path is there once
	Cut       bool       // there was more than is read
	Open      bool       // it doesn't say which arguments there are
}

// ReadSchema reads a JSON Schema. It follows references within the document, and takes what any of its alternatives takes. What it can't read
// says nothing.
func ReadSchema(schema json.RawMessage) Schema {
	r := reader{found: map[string]*Argument{}}
	if err := call.Decode(schema, &r.root); err != nil {
		return Schema{Cut: true}
	}
	r.walk(r.root, "", "", 0)
	s := Schema{Cut: r.cut}
	if m, ok := r.root.(map[string]any); !ok || m["properties"] == nil && len(r.found) == 0 && m["additionalProperties"] != false {
		s.Open = true
	}
	for _, a := range r.found {
		s.Arguments = append(s.Arguments, *a)
	}
	slices.SortFunc(s.Arguments, func(a, b Argument) int { return cmp.Compare(a.Path, b.Path) })
	return s
}

// Takes reports whether a role for the path can meet a value: the schema has it, something below it, or leaves open what is there.
func (s Schema) Takes(path string) bool {
	return s.Cut || s.Open || slices.ContainsFunc(s.Arguments, func(a Argument) bool {
		return a.Path == path || strings.HasPrefix(a.Path, path+".") || a.Open && strings.HasPrefix(path, a.Path+".")
	})
}

type reader struct {
	root  any
	found map[string]*Argument
	steps int
	cut   bool
}

func (r *reader) walk(schema any, path, comment string, depth int) {
	if r.steps++; depth > maxDepth || r.steps > maxSteps {
		r.cut = true
		return
	}
	m, ok := schema.(map[string]any)
	if !ok {
		if path != "" && schema == true {
			r.add(Argument{Path: path, Open: true, Comment: comment})
		}
		return
	}
	if s, ok := m["description"].(string); ok {
		comment = s
	}
	inner := r.below(m, path, comment, depth+1)
	extra, closed := m["additionalProperties"], false
	if b, ok := extra.(bool); ok {
		closed = !b
	}
	if inner && (extra == nil || closed) || path == "" {
		return
	}
	a := Argument{Path: path, Comment: comment}
	switch t := m["type"].(type) {
	case string:
		a.Types = []string{t}
	case []any:
		for _, word := range t {
			if s, ok := word.(string); ok {
				a.Types = append(a.Types, s)
			}
		}
	}
	if a.Types = slices.DeleteFunc(a.Types, func(t string) bool { return t == "null" }); m["type"] != nil && len(a.Types) == 0 {
		return // nothing, or null alone: no value to have a role
	}
	a.Format, _ = m["format"].(string)
	_, a.Enum = m["enum"]
	if _, ok := m["const"]; ok {
		a.Enum = true
	}
	a.Open = !closed && (len(a.Types) == 0 && !a.Enum || slices.Contains(a.Types, "object") || slices.Contains(a.Types, "array"))
	r.add(a)
}

// below walks what a schema is made of, and reports whether there is anything.
func (r *reader) below(m map[string]any, path, comment string, depth int) (inner bool) {
	if ref, ok := m["$ref"].(string); ok {
		inner = true
		if to, ok := r.pointer(ref); ok {
			r.walk(to, path, comment, depth)
		} else {
			r.cut = true
		}
	}
	for _, word := range []string{"allOf", "anyOf", "oneOf"} {
		if list, ok := m[word].([]any); ok {
			inner = true
			for _, s := range list {
				r.walk(s, path, comment, depth)
			}
		}
	}
	properties, _ := m["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) { // in order, so that what is over a bound is the same each time
		inner = true
		at := name
		if path != "" {
			at = path + "." + name
		}
		r.walk(properties[name], at, "", depth)
	}
	switch items := m["items"].(type) {
	case map[string]any:
		inner = true
		r.walk(items, path, comment, depth)
	case []any:
		inner = true
		for _, s := range items {
			r.walk(s, path, comment, depth)
		}
	}
	if list, ok := m["prefixItems"].([]any); ok {
		inner = true
		for _, s := range list {
			r.walk(s, path, comment, depth)
		}
	}
	return inner
}

// add keeps an argument. One that two alternatives tell of differently is what both say, at its widest.
func (r *reader) add(a Argument) {
	old := r.found[a.Path]
	switch {
	case old == nil && len(r.found) == maxArguments:
		r.cut = true
	case old == nil:
		r.found[a.Path] = &a
	default:
		if len(old.Types) == 0 || len(a.Types) == 0 {
			old.Types = nil
		} else {
			old.Types = append(old.Types, a.Types...)
		}
		if old.Format != a.Format {
			old.Format = ""
		}
		old.Enum, old.Open = old.Enum && a.Enum, old.Open || a.Open
	}
}

// pointer finds what a reference within the document means.
func (r *reader) pointer(ref string) (any, bool) {
	rest, ok := strings.CutPrefix(ref, "#")
	if !ok || rest != "" && rest[0] != '/' || len(rest) > 1000 {
		return nil, false
	}
	at := r.root
	for rest != "" {
		step, tail, _ := strings.Cut(rest[1:], "/")
		if rest = ""; len(tail) > 0 {
			rest = "/" + tail
		}
		m, ok := at.(map[string]any)
		if !ok {
			return nil, false
		}
		if at, ok = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]; !ok {
			return nil, false
		}
	}
	return at, true
}
