package diff

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
)

func TestFields(t *testing.T) {
	before := json.RawMessage(`{"name":"a","permissions":{"read":["x.a","x.b"],"write":[]},"list":[{"id":"p","n":1}],"gone":true}`)
	after := json.RawMessage(`{"name":"b","permissions":{"read":["x.b","x.c"],"write":[]},"list":[{"id":"p","n":2}],"new":null}`)
	var names []string
	for _, f := range Fields(before, after) {
		names = append(names, f.Field+" "+string(f.From)+">"+string(f.To))
		if f.Field == "permissions.read" && (!slices.Equal(f.Added, []string{"x.c"}) || !slices.Equal(f.Removed, []string{"x.a"})) {
			t.Errorf("lists: %+v", f)
		}
	}
	want := []string{`gone true>`, `list[0].n 1>2`, `name "a">"b"`, `new >null`, `permissions.read ["x.a","x.b"]>["x.b","x.c"]`}
	if !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	if n := len(Fields(nil, before)); n != 6 {
		t.Errorf("all of a new one: %d fields", n)
	}
	if n := len(Fields(json.RawMessage(`{"a":"<b>","n":12345678901234567890}`), json.RawMessage(`{"n":12345678901234567890,"a":"\u003cb\u003e"}`))); n != 0 {
		t.Errorf("the same in another spelling: %d fields", n)
	}
	if n := len(Fields(before, before)); n != 0 {
		t.Errorf("nothing differs: %d fields", n)
	}
}

// Values that differ have a field that differs, however their names look: a person approves what she is shown.
func TestDifferencesDontHide(t *testing.T) {
	for _, c := range []struct{ before, after string }{
		{`{"s":{"properties":{"a":{"x-fact":true}}}}`, `{"s":{"properties":{"a":{}},"properties.a.x-fact":true}}`},
		{`{"s":{"a":{"b":1}}}`, `{"s":{"a.b":1}}`},
		{`{"s":{"a":{"b":1}}}`, `{"s.a":{"b":1}}`},
		{`{"s":[{"x":1}]}`, `{"s":{"0":{"x":1}}}`},
		{`{"s":[{"x":1}]}`, `{"s":{"[0]":{"x":1}}}`},
		{`{"s":[{"id":"r","n":500},{"id":"r","n":5}]}`, `{"s":[{"id":"r","n":5}]}`},
		{`{"s":[{"id":"a"},{"id":"b"}]}`, `{"s":[{"id":"b"},{"id":"a"}]}`},
		{`{"s":{}}`, `{"s":[]}`},
		{`{"s":null}`, `{}`},
		{`{"":1}`, `1`},
		{`{"a\"]":1}`, `{"a":{"\"]":1}}`},
	} {
		if len(Fields(json.RawMessage(c.before), json.RawMessage(c.after))) == 0 || len(Fields(json.RawMessage(c.after), json.RawMessage(c.before))) == 0 {
			t.Errorf("%s and %s have no field that differs", c.before, c.after)
		}
	}
}

// FuzzFields holds that values are the same where no field differs.
func FuzzFields(f *testing.F) {
	f.Add(`{"a":{"b":1}}`, `{"a.b":1}`)
	f.Add(`[{"id":"x"}]`, `{"x":{"id":"x"}}`)
	f.Fuzz(func(t *testing.T, before, after string) {
		var a, b any
		if json.Unmarshal([]byte(before), &a) != nil || json.Unmarshal([]byte(after), &b) != nil {
			return
		}
		one, _ := json.Marshal(a) // without names that are there twice
		two, _ := json.Marshal(b)
		if len(Fields(one, two)) == 0 && !bytes.Equal(one, two) {
			t.Fatalf("%s and %s have no field that differs", one, two)
		}
	})
}
