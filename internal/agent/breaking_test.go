package agent

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestBreaking has a row for each way in which a schema breaks its readers, and for changes that break nobody.
func TestBreaking(t *testing.T) {
	for name, c := range map[string]struct{ before, after, want string }{
		"required added":            {`{"properties":{"a":{}},"required":[]}`, `{"properties":{"a":{}},"required":["a"]}`, "a: is required now"},
		"property removed":          {`{"properties":{"a":{},"b":{}}}`, `{"properties":{"a":{}}}`, "b: the property was removed"},
		"type narrowed":             {`{"properties":{"a":{"type":["string","null"]}}}`, `{"properties":{"a":{"type":"string"}}}`, "a: the type was narrowed: null is not allowed any more"},
		"type added":                {`{"properties":{"a":{}}}`, `{"properties":{"a":{"type":"string"}}}`, "a: the type was narrowed: it is string now, and was anything"},
		"number to integer":         {`{"type":"number"}`, `{"type":"integer"}`, "the output: the type was narrowed: number is not allowed any more"},
		"enum shrunk":               {`{"properties":{"a":{"enum":["X","Y"]}}}`, `{"properties":{"a":{"enum":["X"]}}}`, `a: the enum lost the value "Y"`},
		"enum added":                {`{"properties":{"a":{}}}`, `{"properties":{"a":{"enum":["X"]}}}`, "a: an enum was added"},
		"closed":                    {`{"type":"object"}`, `{"type":"object","additionalProperties":false}`, "the output: additionalProperties was closed"},
		"closed below":              {`{"properties":{"a":{"items":{"type":"object"}}}}`, `{"properties":{"a":{"items":{"type":"object","additionalProperties":false}}}}`, "a[]: additionalProperties was closed"},
		"extra members narrowed":    {`{"additionalProperties":{"type":["string","null"]}}`, `{"additionalProperties":{"type":"string"}}`, "*: the type was narrowed: null is not allowed any more"},
		"nothing allowed":           {`{"properties":{"a":{}}}`, `{"properties":{"a":false}}`, "a: nothing is allowed here any more"},
		"in a definition":           {`{"$defs":{"d":{"enum":[1,2]}}}`, `{"$defs":{"d":{"enum":[1]}}}`, "$defs.d: the enum lost the value 2"},
		"a combinator":              {`{"anyOf":[{"type":"object"}]}`, `{"anyOf":[{"type":"array"}]}`, "the output: anyOf changed, and whether that breaks anything can't be told"},
		"property added":            {`{"properties":{"a":{}}}`, `{"properties":{"a":{},"b":{}}}`, ""},
		"required dropped":          {`{"required":["a"]}`, `{"required":[]}`, ""},
		"type widened":              {`{"type":"integer"}`, `{"type":["number","null"]}`, ""},
		"enum grown":                {`{"enum":["X"]}`, `{"enum":["Y","X"]}`, ""},
		"opened":                    {`{"additionalProperties":false}`, `{"additionalProperties":true}`, ""},
		"no schema before":          {`null`, `{"type":"object"}`, ""},
		"the same in another order": {`{"required":["a","b"]}`, `{"required":["b","a"]}`, ""},
	} {
		if got := strings.Join(Breaking(json.RawMessage(c.before), json.RawMessage(c.after)), "; "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestNewMajor(t *testing.T) {
	for versions, want := range map[[2]string]bool{
		{"1.0.0", "1.9.0"}: false, {"1.0.0", "2.0.0"}: true, {"10.0.0", "1.0.0"}: true,
		{"", ""}: false, {"1.0.0", ""}: false, {"", "1.0.0"}: true, {"", "0.1.0"}: true,
	} {
		if got := NewMajor(versions[0], versions[1]); got != want {
			t.Errorf("from %q to %q: %v", versions[0], versions[1], got)
		}
	}
}

func FuzzBreaking(f *testing.F) {
	f.Add(`{"properties":{"a":{"type":"string"}}}`, `{"properties":{"a":false}}`)
	f.Fuzz(func(t *testing.T, before, after string) {
		Breaking(json.RawMessage(before), json.RawMessage(after))
		if json.Valid([]byte(before)) && len(Breaking(json.RawMessage(before), json.RawMessage(before))) > 0 {
			t.Error("a schema breaks itself")
		}
	})
}
