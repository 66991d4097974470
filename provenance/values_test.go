package provenance

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"sallyport.example/internal/call"
)

// jsonValues are JSON values as a result has them.
func jsonValues(all ...json.RawMessage) []Value {
	var values []Value
	for _, raw := range all {
		values = append(values, JSONValue(raw))
	}
	return values
}

func TestTextValue(t *testing.T) {
	for s, want := range map[string]any{
		`{"a":1}`: object{{"a", json.Number("1")}}, " [1, 2]\n": []any{json.Number("1"), json.Number("2")}, `hello`: "hello", `13`: "13", `"x"`: `"x"`, `{"a":1} and more`: `{"a":1} and more`, `{"a":1,"A":2}`: `{"a":1,"A":2}`,
		`{"a":1,"a":2}`: `{"a":1,"a":2}`, ``: "", `{`: "{", `null`: "null", `{}`: object{}, `[]`: []any{}, `[[]]`: []any{[]any{}},
		`{"a b":"x\"y","c\u0041":[true,false,null,-1.5e3],"":{"d":{}}}`: object{{"a b", `x"y`}, {"cA", []any{true, false, nil, json.Number("-1.5e3")}}, {"", object{{"d", object{}}}}},
		`["a\\","\\\"","b"]`: []any{`a\`, `\"`, "b"},
	} {
		if v := TextValue(s); !v.known || !reflect.DeepEqual(v.value, want) {
			t.Errorf("%q is %#v, want %#v", s, v.value, want)
		}
	}
}

func TestValuesThatCannotBeRead(t *testing.T) {
	for _, s := range []string{"", " ", "{", `{"a":1}{}`, "nul", "01", `"\xff"`, `{"a":1,"A":2}`, strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)} {
		if v := JSONValue([]byte(s)); v.known {
			t.Errorf("%q is %#v", s, v.value)
		}
	}
	if v := JSONValue([]byte(strings.Repeat("[", maxDepth) + "1" + strings.Repeat("]", maxDepth))); !v.known {
		t.Errorf("a value in %d lists can't be read", maxDepth)
	}
}

// FuzzDecode: what is read of a value is what encoding/json reads of it, and what it doesn't read isn't read.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"a":[1,"b\n",{"c":null}],"d":true}`, ` [ "x" , "\u00e9\ud83d\ude00" ] `, `"\\"`, `["\\\"",""]`, "1e5", "[]", "{}", "{\"a\"\n:\t1}", `[1`, `"a`, `{"a"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v := JSONValue(b)
		var want any
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.UseNumber()
		if err := dec.Decode(&want); v.known != (call.Check(b, decodable) == nil) || v.known && (err != nil || !reflect.DeepEqual(v.Plain(), want)) {
			t.Errorf("%q is %#v, want %#v (%v)", b, v.value, want, err)
		}
	})
}
