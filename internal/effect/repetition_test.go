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
		for _, checked := range []bool{false, true} {
			r := repetitionOf(json.RawMessage(c.structured), checked)
			for range 2 {
				if got := r.of(c.text) != differs; got != c.want {
					t.Errorf("%s repeats %s, checked %t: %t", c.text, c.structured, checked, got)
				}
				r.of("another text")
			}
		}
	}
	if r := (repetition{}); r.of("x") != differs {
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
		"behind another text in a block": {
			`{"_meta":{"text":"x"},"content":[ {"type":"text","annotations":{"text":{}},"t\u0065xt":` + quoted(structured) + `}],"structuredContent":` + structured + `}`,
			`{"_meta":{"text":"x"},"content":[ {"type":"text","annotations":{"text":{}},"t\u0065xt":""}],"structuredContent":` + structured + `}`,
		},
		"with white space that JSON does not have":       {result: `{"content":[{"type":"text","text":` + quoted("\u00a0"+structured) + `}],"structuredContent":` + structured + `}`},
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

// The fast comparison finds only what has the same canonical form, and of what differs from JSON in white space only what is JSON.
func FuzzSameButSpace(f *testing.F) {
	f.Add(`{"a": [1, "x \" y"]}`, `{"a":[1,"x \" y"]}`)
	f.Add(`"\\"`, ` "\\" `)
	f.Add(`[1 2]`, `[12]`)
	f.Add(`[tr  ue,1]`, `[true, 1]`)
	f.Add("[ 1\n, 2\t] ", `[1,2]`)
	f.Fuzz(func(t *testing.T, a, b string) {
		cb, err := call.Canonical([]byte(b), call.DefaultLimits())
		if err != nil || !sameButSpace(a, []byte(b)) {
			return
		}
		if ca, err := call.Canonical([]byte(a), call.DefaultLimits()); err != nil || !bytes.Equal(ca, cb) {
			t.Fatalf("%s and %s are not the same (%v)", a, b, err)
		}
	})
}
