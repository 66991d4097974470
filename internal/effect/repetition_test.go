package effect

import (
	"bytes"
	"encoding/json"
	"strings"
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

// What is looked at for words has each text once: the only text is left out where it is the structured content again, and nothing else.
func TestOnce(t *testing.T) {
	words := strings.Repeat("ninety words ", 40)
	structured := `{"a":"` + words + `","b":2}`
	quoted := func(s string) string {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for name, c := range map[string]struct{ result, want string }{
		"the same": {
			`{"content":[{"type":"text","text":` + quoted(structured) + `}],"structuredContent":` + structured + `}`,
			`{"content":[{"type":"text","text":""}],"structuredContent":` + structured + `}`,
		},
		"spread over lines": {
			`{"structuredContent":` + structured + `,"content":[{"type":"text","text":` + quoted("{\n \"a\": \""+words+"\",\n \"b\": 2\n}\n") + `}],"_meta":{"x":1}}`,
			`{"structuredContent":` + structured + `,"content":[{"type":"text","text":""}],"_meta":{"x":1}}`,
		},
		"beside a text that its words go on with":        {result: `{"structuredContent":` + structured + `,"content":[{"type":"text","text":` + quoted(structured) + `},{"type":"text","text":"are void"}]}`},
		"in another order, which may make other words":   {result: `{"content":[{"type":"text","text":` + quoted(`{"b":2,"a":"`+words+`"}`) + `}],"structuredContent":` + structured + `}`},
		"with a word more":                               {result: `{"content":[{"type":"text","text":` + quoted(structured+" more") + `}],"structuredContent":` + structured + `}`},
		"with another spelling of a letter":              {result: `{"content":[{"type":"text","text":` + quoted(strings.Replace(structured, "n", `\u006e`, 1)) + `}],"structuredContent":` + structured + `}`},
		"no structured content":                          {result: `{"content":[{"type":"text","text":` + quoted(structured) + `}]}`},
		"a name twice, of which readers take either one": {result: `{"content":[{"type":"text","text":` + quoted(structured) + `}],"structuredContent":` + structured + `,"structuredContent":{}}`},
	} {
		if c.want == "" {
			c.want = c.result
		}
		if got := string(NewContent(json.RawMessage(c.result)).Once()); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
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
