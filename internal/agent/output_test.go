package agent

import (
	"encoding/json"
	"strings"
	"testing"
)

// Tools that a model's provider runs are named for as long as they are declared, and so is one that nothing allows.
func TestHostedToolsAreNamed(t *testing.T) {
	for tool, want := range map[string]string{"web_search": "the model's provider runs web_search", "code_execution": "the model's provider runs code_execution", "file_search": "no declaration allows"} {
		d := Local()
		if all := Lint(&d); len(all) > 0 {
			t.Fatalf("the built-in declaration: %+v", all)
		}
		d.HostedTools = []string{tool}
		if all := Lint(&d); len(all) != 1 || all[0].Field != "hostedTools[0]" || all[0].Severity != P1 || !strings.Contains(all[0].Problem, want) {
			t.Errorf("%s: %+v", tool, all)
		}
	}
}

// What the schema of an output accepts counts, however it is spelled (AG-7, AG-9).
func TestOutputSchema(t *testing.T) {
	const cited = `"f":{"enum":["x"],"x-fact":true},"citations":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["source","timestamp","confidence"],"properties":{"source":{"enum":["mail"]},"timestamp":{"type":"string","format":"date-time"},"confidence":{"type":"number"}}}}`
	member := func(schema string) string {
		return `{"type":"object","additionalProperties":false,"required":["a","citations"],"properties":{"a":` + schema + `,` + cited + `}}`
	}
	cites := func(schema string) string {
		return `{"type":"object","additionalProperties":false,"required":["citations"],"properties":{"citations":` + schema + `}}`
	}
	for name, c := range map[string]struct {
		schema string
		want   string // severity and a part of what is said; "" nothing
	}{
		"a string":                 {`{"type":"string"}`, "P0 accepts a string"},
		"an object or a string":    {`{"type":["object","string"],"properties":{"a":{"type":"number"}}}`, "P0 accepts a string"},
		"a string by anyOf":        {`{"anyOf":[{"type":"object","properties":{"a":{"type":"number"}}},{"type":"string"}]}`, "P0 accepts a string"},
		"a string by reference":    {`{"$ref":"#/$defs/x","$defs":{"x":{"type":"string"}}}`, "P0 accepts a string"},
		"no type":                  {`{"properties":{"a":{"type":"number"}}}`, "P0 accepts a string"},
		"not a number":             {`{"not":{"type":"number"}}`, "P0 accepts a string"},
		"an array":                 {`{"type":"array","items":{"type":"object"}}`, "P0 accepts an array"},
		"a longer array":           {`{"type":["object","array"],"minItems":3,"properties":{"a":{"type":"number"}}}`, "P0 type is not object"},
		"a number":                 {`{"type":"number"}`, "P0 accepts a number"},
		"anything":                 {`true`, "P0 accepts a string"},
		"nothing but an object":    {`{"type":"object"}`, "P0 accepts {}"},
		"nothing required":         {`{"type":"object","additionalProperties":false,"properties":{"a":{"type":"number"},` + cited + `}}`, "P0 accepts {}"},
		"unknown members":          {`{"type":"object","required":["citations"],"properties":{` + cited + `}}`, "P1 accepts unknown members"},
		"unknown members, inside":  {member(`{"type":"object","required":["b"],"properties":{"b":{"type":"number"}}}`), "P1 the member a accepts unknown members"},
		"members of any type":      {member(`true`), "P0 a may be of any type"},
		"no type inside":           {member(`{"description":"whatever"}`), "P0 a may be of any type"},
		"any object":               {member(`{"type":"object"}`), "P0 a may have members of any type"},
		"any elements":             {member(`{"type":"array"}`), "P0 the elements of a may be of any type"},
		"other members":            {`{"type":"object","required":["citations"],"additionalProperties":{"type":"string"},"properties":{` + cited + `}}`, "P0 * may hold HTML"},
		"text":                     {member(`{"type":"string"}`), "P0 a may hold HTML"},
		"text or nothing":          {member(`{"type":["string","null"]}`), "P0 a may hold HTML"},
		"long text":                {member(`{"type":"string","minLength":500}`), "P0 a may hold HTML"},
		"text of a beginning":      {member(`{"type":"string","pattern":"^Result: "}`), "P0 a may hold HTML"},
		"text with a space for it": {member(`{"type":"string","pattern":"^Result: .*$"}`), "P0 a may hold HTML"},
		"text not anchored":        {member(`{"type":"string","pattern":"[^<>]+"}`), "P0 a may hold HTML"},
		"a line without":           {member(`{"type":"string","pattern":"(?m)^[^<>]+$"}`), "P0 a may hold HTML"},
		"text in an array":         {member(`{"type":"array","items":{"type":"string"}}`), "P0 a[] may hold HTML"},
		"text deep inside":         {member(`{"type":"object","additionalProperties":false,"properties":{"b":{"$ref":"#/$defs/t"}}},"x":{"type":"number"}`) + ``, "P0 a.b may hold HTML"},
		"a tag that is listed":     {member(`{"enum":["ok","<b>no</b>"]}`), "P0 a may hold HTML"},
		"one of two":               {member(`{"anyOf":[{"type":"number"},{"type":"string"}]}`), "P0 a may hold HTML"},

		"plain text":         {member(`{"type":"string","pattern":"^[^<>]*$","maxLength":100}`), ""},
		"an enum":            {member(`{"enum":["ESCALATE","CLOSE"]}`), ""},
		"a constant":         {member(`{"const":"x"}`), ""},
		"a time":             {member(`{"type":"string","format":"date-time"}`), ""},
		"two letters":        {member(`{"type":"string","maxLength":2}`), ""},
		"all of two":         {member(`{"allOf":[{"type":"string"},{"pattern":"^[a-z]{1,9}$"}]}`), ""},
		"either is plain":    {member(`{"oneOf":[{"type":"number"},{"type":"string","pattern":"^([a-z]+|[0-9]+)$"}]}`), ""},
		"without tags":       {member(`{"type":"string","not":{"pattern":"<"}}`), ""},
		"a list of numbers":  {member(`{"type":"array","items":{"type":"number"}}`), ""},
		"closed by the rest": {`{"type":"object","required":["citations"],"unevaluatedProperties":false,"properties":{` + cited + `}}`, ""},

		"no fact":                  {strings.Replace(member(`{"type":"number"}`), `,"x-fact":true`, "", 1), "P1 no member is marked as a fact"},
		"a fact that is none":      {strings.Replace(member(`{"type":"number"}`), `"x-fact":true`, `"x-fact":false`, 1), "P1 no member is marked as a fact"},
		"a fact that is a word":    {strings.Replace(member(`{"type":"number"}`), `"x-fact":true`, `"x-fact":"true"`, 1), "P1 no member is marked as a fact"},
		"a claim that is a word":   {strings.Replace(member(`{"type":"number"}`), `"x-fact":true`, `"x-fact":true,"x-claim":"required"`, 1), "P0 x-claim is neither true nor false"},
		"no citations":             {`{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":{"type":"number"}}}`, "P1 has no citations"},
		"citations left out":       {`{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":{"type":"number"},` + cited + `}}`, "P1 without citations is accepted"},
		"citations of text":        {cites(`{"type":"array","items":{"type":"string","pattern":"^[a-z]*$"}}`), "P1 not a list of objects"},
		"a citation":               {cites(`{"type":"object","additionalProperties":false,"required":["source","timestamp","confidence"],"properties":{"source":{"enum":["mail"]},"timestamp":{"type":"string","format":"date-time"},"confidence":{"type":"number"},"recordId":{"enum":["1"]}}}`), "P1 not a list of objects"},
		"citations without a time": {cites(`{"type":"array","items":{"type":"object","additionalProperties":false,"required":["source","confidence"],"properties":{"source":{"enum":["mail"]},"timestamp":{"enum":["2026-01-02T15:04:05Z"]},"recordId":{"enum":["1"]},"confidence":{"type":"number"}}}}`), "P1 not a list of objects"},
		"free text in citations":   {cites(`{"type":"array","items":{"type":"object","additionalProperties":false,"required":["source","timestamp","confidence"],"properties":{"source":{"type":"string"},"timestamp":{"type":"string","format":"date-time"},"confidence":{"type":"number"}}}}`), "P1 citations[].source may hold HTML"},
	} {
		t.Run(name, func(t *testing.T) {
			schema := c.schema
			if strings.Contains(schema, "#/$defs/t") {
				schema = strings.TrimSuffix(schema, "}") + `,"$defs":{"t":{"type":"string"}}}`
			}
			if !json.Valid([]byte(schema)) {
				t.Fatalf("not JSON: %s", schema)
			}
			var said []string
			for _, p := range lintOutput(&Declaration{OutputSchema: json.RawMessage(schema)}) {
				said = append(said, string(p.Severity)+" "+p.Problem)
				if p.Remedy == "" || p.Field != "outputSchema" || p.Blocks() != strings.HasPrefix(p.Problem, "output is not structured") {
					t.Errorf("%+v", p)
				}
			}
			severity, words, _ := strings.Cut(c.want, " ")
			switch found := strings.Join(said, "\n"); {
			case c.want == "" && found != "":
				t.Errorf("%s: %s", schema, found)
			case c.want != "":
				for _, line := range said {
					if strings.HasPrefix(line, severity+" ") && strings.Contains(line, words) {
						return
					}
				}
				t.Errorf("%s: %q is not said in %q", schema, c.want, found)
			}
		})
	}
}
