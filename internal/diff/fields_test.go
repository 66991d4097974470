package diff

import (
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
	want := []string{`gone true>`, `list.p.n 1>2`, `name "a">"b"`, `new >null`, `permissions.read ["x.a","x.b"]>["x.b","x.c"]`}
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
