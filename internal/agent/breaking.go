package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Breaking lists what in an output schema breaks who reads outputs by the one before: a member that is required now, a property that was removed, a
// type that was narrowed, an enum that lost values, an object that was closed (AG-7). What can't be compared counts as breaking. Both are JSON; a schema
// that is not there breaks nothing.
func Breaking(before, after json.RawMessage) []string {
	if absent(before) || absent(after) || bytes.Equal(before, after) {
		return nil
	}
	was, is := map[string]any{}, map[string]any{}
	if json.Unmarshal(before, &was) != nil || json.Unmarshal(after, &is) != nil {
		return []string{"the schemas can't be compared"}
	}
	var c comparison
	c.schema("", was, is)
	return c.found
}

func absent(schema json.RawMessage) bool { return len(schema) == 0 || string(schema) == "null" }

// NewMajor tells whether the version after says that outputs break who reads them: it has another major version than the one before. Having had none is
// a major of its own, so that a first version says it. Leaving the version out says nothing.
func NewMajor(before, after string) bool {
	major := func(v string) string { m, _, _ := strings.Cut(v, "."); return m }
	return after != "" && major(before) != major(after)
}

// comparison collects what breaks.
type comparison struct{ found []string }

func (c *comparison) say(path, format string, args ...any) {
	if path == "" {
		path = "the output"
	}
	c.found = append(c.found, path+": "+fmt.Sprintf(format, args...))
}

// schema compares two schemas of one place.
func (c *comparison) schema(path string, was, is any) {
	old, oldIs := was.(map[string]any)
	next, nextIs := is.(map[string]any)
	switch {
	case is == false && was != false:
		c.say(path, "nothing is allowed here any more")
		return
	case was == true && nextIs && len(next) > 0:
		c.say(path, "the type was narrowed: anything was allowed")
		return
	case !oldIs || !nextIs:
		return
	}
	c.types(path, old["type"], next["type"])
	c.values(path, old, next)
	c.required(path, old["required"], next["required"])
	c.properties(path, old, next)
	for _, name := range []string{"items", "contains", "additionalItems", "unevaluatedItems"} {
		if after, has := next[name]; has {
			before, had := old[name]
			if !had {
				before = true
			}
			c.schema(path+"[]", before, after)
		}
	}
	for _, name := range []string{"$defs", "definitions"} {
		before, _ := old[name].(map[string]any)
		after, _ := next[name].(map[string]any)
		for _, def := range slices.Sorted(maps.Keys(before)) {
			if _, still := after[def]; still {
				c.schema(join(path, name+"."+def), before[def], after[def])
			}
		}
	}
	for _, name := range []string{"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties", "propertyNames", "prefixItems"} {
		if !same(old[name], next[name]) {
			c.say(path, "%s changed, and whether that breaks anything can't be told", name)
		}
	}
}

func same(a, b any) bool {
	x, _ := json.Marshal(a) // of decoded JSON: can't fail
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

// types compares what a value may be.
func (c *comparison) types(path string, was, is any) {
	if is == nil {
		return
	}
	before, after := texts(was), texts(is)
	if was == nil {
		c.say(path, "the type was narrowed: it is %s now, and was anything", strings.Join(after, " or "))
		return
	}
	for _, t := range before {
		if !slices.Contains(after, t) && (t != "integer" || !slices.Contains(after, "number")) {
			c.say(path, "the type was narrowed: %s is not allowed any more", t)
		}
	}
}

// values compares the values that are listed.
func (c *comparison) values(path string, old, next map[string]any) {
	list := func(s map[string]any) (values []any, limited bool) {
		if one, ok := s["const"]; ok {
			return []any{one}, true
		}
		values, limited = s["enum"].([]any)
		return values, limited
	}
	after, limited := list(next)
	if !limited {
		return
	}
	before, had := list(old)
	if !had {
		c.say(path, "an enum was added")
		return
	}
	for _, v := range before {
		if !slices.ContainsFunc(after, func(o any) bool { return same(v, o) }) {
			text, _ := json.Marshal(v) // of decoded JSON: can't fail
			c.say(path, "the enum lost the value %.80s", text)
		}
	}
}

func (c *comparison) required(path string, was, is any) {
	before := texts(was)
	for _, name := range texts(is) {
		if !slices.Contains(before, name) {
			c.say(join(path, name), "is required now")
		}
	}
}

// properties compares the members of an object.
func (c *comparison) properties(path string, old, next map[string]any) {
	before, _ := old["properties"].(map[string]any)
	after, _ := next["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if now, still := after[name]; still {
			c.schema(join(path, name), before[name], now)
		} else {
			c.say(join(path, name), "the property was removed")
		}
	}
	for _, name := range []string{"additionalProperties", "unevaluatedProperties"} {
		now, has := next[name]
		if !has || now == true {
			continue
		}
		then, had := old[name]
		switch {
		case !had || then == true:
			c.say(path, "%s was closed", name)
		case then != false:
			c.schema(join(path, "*"), then, now)
		}
	}
}

// texts are the texts of a list, or the one text.
func texts(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var all []string
		for _, e := range v {
			if s, ok := e.(string); ok {
				all = append(all, s)
			}
		}
		return all
	}
	return nil
}
