package effect

import (
	"bytes"
	"encoding/json"
	"testing"

	"sallyport.example/internal/call"
)

func TestRepetition(t *testing.T) {
	for _, c := range []struct {
		structured, text string
		want             bool
	}{
		{`{"a":[1,2]}`, `{"a":[1,2]}`, true},
		{`{"a":[1,2]}`, "{\n  \"a\": [ 1, 2 ]\n}\n", true},
		{`{"a":1,"b":2}`, `{"b":2,"a":1.0}`, true},
		{`{"a":"x y"}`, `x y`, true},
		{`{"a":"x y"}`, `{"a":"xy"}`, false},
		{`{"a":"x\" y"}`, `{"a":"x\"y"}`, false},
		{`{"a":[12]}`, `{"a":[1 2]}`, false},
		{`{"a":[12]}`, `{"a":[12]} and more`, false},
		{`{"a":[12]}`, `{"a":[12]`, false},
		{`{"a":"x","b":"y"}`, `x`, false},
		{`{"a":1}`, ``, false},
		{`"x"`, `"\u0078"`, true},
		{`{"a":1}`, `{"a":1,"a":1}`, false},
	} {
		r := repetitionOf(json.RawMessage(c.structured))
		if got := r.of(c.text); got != c.want {
			t.Errorf("%s repeats %s: %t", c.text, c.structured, got)
		}
	}
	if r := (repetition{}); r.of("x") {
		t.Error("a text repeats structured content that is not there")
	}
}

// The fast comparison finds only what has the same canonical form.
func FuzzSameButSpace(f *testing.F) {
	f.Add(`{"a": [1, "x \" y"]}`, `{"a":[1,"x \" y"]}`)
	f.Add(`"\\"`, ` "\\" `)
	f.Add(`[1 2]`, `[12]`)
	f.Fuzz(func(t *testing.T, a, b string) {
		if !sameButSpace([]byte(a), []byte(b)) {
			return
		}
		ca, err := call.Canonical([]byte(a), call.DefaultLimits())
		if err != nil {
			return
		}
		if cb, err := call.Canonical([]byte(b), call.DefaultLimits()); err == nil && !bytes.Equal(ca, cb) {
			t.Fatalf("%s and %s are not the same", a, b)
		}
	})
}
