package diff

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Flatten takes a JSON value apart: into its members by their path, and lists of objects by their place. Other lists stay whole. Two values that differ never
// come out alike: a name with anything but letters, digits, _, - and $ is written in brackets and quotes, and a place in brackets.
func Flatten(at string, value json.RawMessage, into map[string]json.RawMessage) {
	flatten(at, value, into, func(at, name string) string {
		if plainName(name) {
			return strings.TrimPrefix(at+"."+name, ".")
		}
		quoted, _ := json.Marshal(name) // of a text: can't fail
		return at + "[" + string(quoted) + "]"
	}, func(at string, list []map[string]json.RawMessage) (paths []string) {
		for i := range list {
			paths = append(paths, at+"["+strconv.Itoa(i)+"]")
		}
		return paths
	})
}

func plainName(name string) bool {
	for _, c := range []byte(name) {
		if c|0x20 < 'a' || c|0x20 > 'z' {
			if (c < '0' || c > '9') && c != '_' && c != '-' && c != '$' {
				return false
			}
		}
	}
	return name != ""
}

// FlattenNamed takes a JSON value apart whose names are known, as those of a configuration are: names are joined by dots, and elements of a list that have ids of
// their own go by these.
func FlattenNamed(value json.RawMessage, into map[string]json.RawMessage) {
	join := func(at, name string) string { return strings.TrimPrefix(at+"."+name, ".") }
	flatten("", value, into, join, func(at string, list []map[string]json.RawMessage) (paths []string) {
		ids := map[string]bool{}
		for i, element := range list {
			id := ""
			if json.Unmarshal(element["id"], &id) != nil || id == "" || ids[id] {
				id = strconv.Itoa(i)
			}
			ids[id] = true
			paths = append(paths, join(at, id))
		}
		return paths
	})
}

func flatten(at string, value json.RawMessage, into map[string]json.RawMessage, join func(at, name string) string, places func(at string, list []map[string]json.RawMessage) []string) {
	var members map[string]json.RawMessage
	if json.Unmarshal(value, &members) == nil && len(members) > 0 { // an empty one is a value: an operation with no words is listed
		for name, v := range members {
			flatten(join(at, name), v, into, join, places)
		}
		return
	}
	var list []map[string]json.RawMessage
	if json.Unmarshal(value, &list) == nil && len(list) > 0 {
		for i, path := range places(at, list) {
			whole, _ := json.Marshal(list[i]) // of JSON: can't fail
			flatten(path, whole, into, join, places)
		}
		return
	}
	var b bytes.Buffer
	if json.Compact(&b, value) == nil {
		into[at] = b.Bytes()
	}
}

// Field is one field that differs between two JSON values. From is nil where the field is new, To where it is gone. Of lists of texts, Added and Removed are
// the texts that only one side has.
type Field struct {
	Field   string          `json:"field"`
	From    json.RawMessage `json:"from,omitempty"`
	To      json.RawMessage `json:"to,omitempty"`
	Added   []string        `json:"added,omitempty"`
	Removed []string        `json:"removed,omitempty"`
}

// Fields lists the fields in which two JSON values differ, by their paths. Values that differ have at least one such field. A nil value has no fields.
func Fields(before, after json.RawMessage) []Field {
	was, is := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if before != nil {
		Flatten("", before, was)
	}
	if after != nil {
		Flatten("", after, is)
	}
	for _, side := range []map[string]json.RawMessage{was, is} {
		for name, value := range side {
			side[name] = Plain(value)
		}
	}
	all := []Field{}
	for name, from := range was {
		if to, still := is[name]; !still || !bytes.Equal(from, to) {
			f := Field{Field: name, From: from, To: is[name]}
			f.Removed, f.Added = apart(from, f.To), apart(f.To, from)
			all = append(all, f)
		}
	}
	for name, to := range is {
		if _, had := was[name]; !had {
			all = append(all, Field{Field: name, To: to})
		}
	}
	slices.SortFunc(all, func(a, b Field) int { return strings.Compare(a.Field, b.Field) })
	return all
}

// Plain is a JSON value in one form, without escapes that it needs not.
func Plain(value json.RawMessage) json.RawMessage {
	decode := json.NewDecoder(bytes.NewReader(value))
	decode.UseNumber()
	var v any
	if decode.Decode(&v) != nil {
		return value
	}
	var b bytes.Buffer
	encode := json.NewEncoder(&b)
	encode.SetEscapeHTML(false)
	if encode.Encode(v) != nil {
		return value
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// apart are the texts of one list that the other lacks; nil where one of them is no list of texts.
func apart(of, other json.RawMessage) (only []string) {
	var a, b []string
	if json.Unmarshal(of, &a) != nil || json.Unmarshal(other, &b) != nil {
		return nil
	}
	for _, text := range a {
		if !slices.Contains(b, text) {
			only = append(only, text)
		}
	}
	return only
}
