package schema

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.example/internal/fault"
)

// TestBombs: each is refused, fast.
func TestBombs(t *testing.T) {
	doubled := `{"type":"object","$defs":{"d0":{}`
	for i := 1; i <= 20; i++ {
		doubled += fmt.Sprintf(`,"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i-1, i-1)
	}
	doubled += `},"anyOf":[{"$ref":"#/$defs/d20"}]}`
	many := `{"type":"object","properties":{"p":{}`
	for i := range 6000 {
		many += fmt.Sprintf(`,"p%d":{"type":"string"}`, i)
	}
	many += `}}`
	for name, schema := range map[string]string{
		"doubling":           doubled,
		"self":               `{"type":"object","properties":{"a":{"$ref":"#"}}}`,
		"recursive":          `{"type":"object","$defs":{"a":{"items":{"$ref":"#/$defs/a"}}},"properties":{"x":{"$ref":"#/$defs/a"}}}`,
		"mutual":             `{"type":"object","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`,
		"file":               `{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}`,
		"http":               `{"type":"object","allOf":[{"$ref":"http://127.0.0.1/x"}]}`,
		"relative":           `{"type":"object","allOf":[{"$ref":"other.json"}]}`,
		"dynamic":            `{"type":"object","allOf":[{"$dynamicRef":"#x"}]}`,
		"hidden in default":  `{"type":"object","properties":{"default":{"$ref":"file:///x"}}}`,
		"ref to data":        `{"type":"object","const":{"$ref":"#/const"},"allOf":[{"$ref":"#/const"}]}`,
		"meta schema":        `{"$schema":"http://evil.example/s","type":"object"}`,
		"nested id":          `{"type":"object","properties":{"a":{"$id":"http://x/"}}}`,
		"look-ahead":         `{"type":"object","properties":{"a":{"pattern":"(?!x)"}}}`,
		"pattern name":       `{"type":"object","patternProperties":{"(?=x)":{}}}`,
		"huge repeat":        `{"type":"object","properties":{"a":{"pattern":"((a{1,1000}){1,1000}){1,1000}"}}}`,
		"long pattern":       `{"type":"object","properties":{"a":{"pattern":"` + strings.Repeat("a?", 5000) + `"}}}`,
		"deep":               `{"type":"object","not":` + strings.Repeat(`{"not":`, 200) + `{}` + strings.Repeat(`}`, 201),
		"5 MB":               `{"type":"object","description":"` + strings.Repeat("d", 5<<20) + `"}`,
		"many":               many,
		"wrong types":        `{"type":"object","properties":[1],"required":"x"}`,
		"negative":           `{"type":"object","minProperties":-1}`,
		"bad type":           `{"type":"nonsense"}`,
		"array":              `[]`,
		"null":               `null`,
		"dangling":           `{"type":"object","allOf":[{"$ref":"#/$defs/no"}]}`,
		"percent":            `{"type":"object","$defs":{"a":{}},"allOf":[{"$ref":"#/%24defs/a"}]}`,
		"duplicate":          `{"type":"object","type":"string"}`,
		"dependencies maps":  `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","dependencies":{"a":{"$ref":"#"}}}`,
		"unknown word":       `{"type":"object","x-y":{"$ref":"http://x/"}}`,
		"recursive anchor":   `{"$schema":"https://json-schema.org/draft/2019-09/schema","type":"object","$recursiveAnchor":true}`,
		"quadratic repeated": `{"type":"object","properties":{"a":{"pattern":"` + strings.Repeat("(x+x+)+y", 200) + `"}}}`,
	} {
		_, err := Compile([]byte(schema))
		if err == nil || !fault.Is(err, fault.ResultInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if recursion := name == "self" || name == "recursive" || name == "mutual"; recursion && !strings.Contains(fmt.Sprint(err), "refers to itself") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReadsNoFile: not even as the schema's own schema.
func TestReadsNoFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "meta.json")
	if err := os.WriteFile(file, []byte(`{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"file://`+file+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Compile([]byte(`{"$schema":"file://` + file + `","type":"object"}`)); !fault.Is(err, fault.ResultInvalid) {
		t.Error(err)
	}
}

// TestOrdinarySchemas: ordinary schemas compile and judge.
func TestOrdinarySchemas(t *testing.T) {
	for _, c := range []struct{ schema, good, bad string }{
		{`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`, `{"n":9007199254740993}`, `{"n":1.5}`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","$id":"http://x.example/s","type":"object","definitions":{"s":{"type":"string"}},"properties":{"a":{"$ref":"#/definitions/s"},"b":{"$ref":"#/definitions/s"}}}`, `{"a":"x"}`, `{"b":1}`},
		{`{"type":"object","properties":{"id":{"type":"string"},"$ref":{"type":"string"},"pattern":{"type":"string","pattern":"^a+$"}}}`, `{"pattern":"aa"}`, `{"pattern":"b"}`},
		{`{"type":"object","properties":{"default":{"enum":[1,{"$ref":"x"}],"default":{"$ref":"y"}}}}`, `{"default":1}`, `{"default":2}`},
		{`{"type":"object"}`, `{}`, `{`},
	} {
		s, err := Compile([]byte(c.schema))
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		if err := s.Validate([]byte(c.good)); err != nil {
			t.Errorf("%s: %v", c.schema, err)
		}
		if err := s.Validate([]byte(c.bad)); !fault.Is(err, fault.ResultInvalid) {
			t.Errorf("%s takes %s: %v", c.schema, c.bad, err)
		}
	}
}

// FuzzCompile: no schema panics, hangs, or reaches out.
func FuzzCompile(f *testing.F) {
	for _, seed := range []string{`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"string","pattern":"^a"}}}`, `{"allOf":[true,false,{"not":{}}]}`, `{"$id":"x","$anchor":"y"}`, `true`} {
		f.Add([]byte(seed), []byte(`{"a":"a"}`))
	}
	f.Fuzz(func(t *testing.T, schema, data []byte) {
		if s, err := Compile(schema); err == nil {
			s.Validate(data)
		}
	})
}

// A value of so many parts that checking each against a large schema would take minutes is refused at once.
func TestAnInstanceThatMultipliesWithItsSchema(t *testing.T) {
	schema := `{"type":"object","$defs":{"d0":{"type":"number"}`
	for i := 1; i <= 12; i++ {
		schema += fmt.Sprintf(`,"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i-1, i-1)
	}
	s, err := Compile([]byte(schema + `},"properties":{"a":{"items":{"$ref":"#/$defs/d12"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate([]byte(`{"a":[1,2,3]}`)); err != nil {
		t.Error(err)
	}
	if err := s.Validate([]byte(`{"a":[1` + strings.Repeat(",1", 99_000) + `]}`)); !fault.Is(err, fault.ResultInvalid) || !strings.Contains(err.Error(), "too many parts") {
		t.Error(err)
	}
}

func TestProblemsSayWhatDoesNotMatch(t *testing.T) {
	s, err := Compile([]byte(`{"type":"object","required":["a"],"properties":{"n":{"anyOf":[{"type":"number"},{"type":"null"}]},"many":{"items":{"type":"string"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{
		`{"n":"x\n"}`:                    "[n is of the type string, and has to be null n is of the type string, and has to be number the value lacks a]",
		`{"a":1,"many":[1,2,3,4,5,6,7]}`: "[many.0 is of the type number, and has to be string many.1 is of the type number, and has to be string many.2 is of the type number, and has to be string many.3 is of the type number, and has to be string many.4 is of the type number, and has to be string]",
		`[]`:                             "[the value is of the type array, and has to be object]",
	} {
		var m *Mismatch
		err := s.Validate([]byte(value))
		if !errors.As(err, &m) {
			t.Fatalf("%s: %v", value, err)
		}
		if got := fmt.Sprint(m.Problems()); got != want {
			t.Errorf("%s: %s", value, got)
		}
	}
}

// list is n values with commas between them, each by its number where it has a place for it.
func list(n int, format string) string {
	var all []string
	for i := range n {
		all = append(all, strings.ReplaceAll(format, "%", fmt.Sprint(i)))
	}
	return strings.Join(all, ",")
}

// What takes time besides subschemas is bounded, too, and refused by its bound when it is compiled or when a value is checked. Without the bounds some of
// these take many minutes.
func TestWhatElseTakesTime(t *testing.T) {
	for name, c := range map[string]struct{ schema, value, why string }{
		"booleans in a list":         {`{"allOf":[` + list(50_000, "true") + `]}`, ``, "subschemas"},
		"booleans as members":        {`{"properties":{` + list(2_100, `"p%":true`) + `}}`, ``, "subschemas"},
		"a pattern of many states":   {`{"pattern":"(` + strings.Repeat("ab", 400) + `){1000}"}`, ``, "repeat too much"},
		"many such patterns":         {`{"anyOf":[` + list(20, `{"pattern":"(%abc){1000}"}`) + `]}`, ``, "repeat too much"},
		"names of many states":       {`{"patternProperties":{"(` + strings.Repeat("ab", 400) + `){1000}":{}}}`, ``, "repeat too much"},
		"numbers of an enum":         {`{"items":{"enum":[` + list(30_000, "%") + `]}}`, `[` + list(3_000, "-1") + `]`, "too many parts"},
		"objects of an enum":         {`{"items":{"enum":[` + list(10_000, `{"a":%}`) + `]}}`, `[` + list(1_000, `{"a":-1}`) + `]`, "too many parts"},
		"texts of an enum":           {`{"items":{"enum":[` + list(20_000, `"s%"`) + `]}}`, `[` + list(20_000, `"z"`) + `]`, "too many parts"},
		"members that are needed":    {`{"items":{"required":[` + list(20_000, `"s%"`) + `]}}`, `[` + list(10_000, `{}`) + `]`, "too many parts"},
		"a long text":                {`{"pattern":"((a|b|c|d?){1,30}){1,30}x$"}`, `"` + strings.Repeat("abcd", 1<<19) + `"`, "too much text"},
		"many names":                 {`{"patternProperties":{` + list(50, `"(a|b?){1,100}%$":{}`) + `}}`, `{` + list(10_000, `"`+strings.Repeat("ab", 20)+`%":1`) + `}`, "too much text"},
		"patterns as values":         {`{"$schema":"http://json-schema.org/draft-07/schema#","items":{"format":"regex"}}`, `[` + list(4_000, `"(`+strings.Repeat("ab", 400)+`){1000}"`) + `]`, "does not match"},
		"an ordinary enum":           {`{"items":{"enum":[` + list(100, `"s%"`) + `]}}`, `[` + list(10_000, `"s7"`) + `]`, ""},
		"an ordinary pattern":        {`{"items":{"pattern":"^[0-9a-f]{8}-[0-9a-f]{4}$"}}`, `[` + list(20_000, `"0123abcd-0123"`) + `]`, ""},
		"a text with a bound":        {`{"pattern":"^[a-z]{1,1000}$"}`, `"` + strings.Repeat("a", 900) + `"`, ""},
		"patterns and much text":     {`{"properties":{"id":{"pattern":"^[a-z0-9-]{1,64}$"},"text":{}}}`, `{"id":"a","text":"` + strings.Repeat("a", 3<<20) + `"}`, ""},
		"a pattern that is no match": {`{"properties":{"id":{"pattern":"^[a-z0-9-]{1,64}$"},"text":{}}}`, `{"id":"A","text":"` + strings.Repeat("a", 3<<20) + `"}`, "does not match"},
	} {
		s, err := Compile([]byte(c.schema))
		if err == nil {
			err = s.Validate([]byte(c.value))
		}
		if c.why == "" && err != nil || c.why != "" && (!fault.Is(err, fault.ResultInvalid) || !strings.Contains(err.Error(), c.why)) {
			t.Errorf("%s: %.300v", name, err)
		}
	}
}
