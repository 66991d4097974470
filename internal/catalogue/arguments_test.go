package catalogue_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/schema"
)

// offered is the operation shy.t, whose arguments have these roles and this input schema.
func offered(t *testing.T, roles map[string]string, input string) (*world, *catalogue.Operation) {
	t.Helper()
	w := newWorld(t, shy(catalogue.Classification{Flow: flow.Spec{Sensitivity: flow.None}, Level: 2, Roles: roles}), func(o *catalogue.Options) {
		o.Schema = func(raw json.RawMessage) (func([]byte) error, error) {
			s, err := schema.Compile(raw)
			if err != nil {
				return nil, err
			}
			return s.Validate, nil
		}
	})
	return w, w.define(input)
}

func (w *world) define(input string) *catalogue.Operation {
	w.t.Helper()
	raw, err := call.Canonical([]byte(`{"description":"A tool.","inputSchema":`+input+`,"name":"t"}`), call.DefaultLimits())
	if err != nil {
		w.t.Fatal(err)
	}
	w.offer("shy", call.Definition{Server: "shy", Name: "t", Kind: call.Tool, JSON: raw, Hash: call.HashBytes(raw)})
	return w.c.ByID("shy.t")
}

// What the definition says of a destination that is left out is written into the call; nothing else is.
func TestDefaultsOfDestinationsAreWritten(t *testing.T) {
	to := map[string]string{"email": "destination", "link": "url", "note": "content", "to.address": "destination", "people": "destination", "rows.who": "destination", "a.b": "destination"}
	anyone := `{"type":"object","properties":{"id":{},"email":{"default":"anyone"}}}`
	for _, c := range []struct{ input, arguments, want string }{
		{anyone, `{"id":13}`, `{"email":"anyone","id":13}`},
		{anyone, `{}`, `{"email":"anyone"}`},
		{anyone, `{"email":"ann@books.example","id":13}`, `{"email":"ann@books.example","id":13}`},
		{anyone, `{"email":null}`, `{"email":null}`}, // it is given, and judged as it is
		{anyone, `{"email":""}`, `{"email":""}`},
		{`{"type":"object","properties":{"email":{"default":null}}}`, `{}`, `{}`},
		{`{"type":"object","properties":{"email":{}}}`, `{}`, `{}`},
		{`{"type":"object","properties":{"note":{"default":"hello"},"other":{"default":"anyone"}}}`, `{}`, `{}`}, // other roles, and no role
		{`{"type":"object","properties":{"link":{"default":"https://x.example/"}}}`, `{}`, `{"link":"https://x.example/"}`},
		{`{"type":"object","properties":{"email":{"anyOf":[{"type":"string"},{"type":"null"}],"default":"anyone"}}}`, `{}`, `{"email":"anyone"}`},
		{`{"type":"object","properties":{"email":{"anyOf":[{"type":"null"},{"type":"string","default":"anyone"}]}}}`, `{}`, `{"email":"anyone"}`},
		{`{"type":"object","$defs":{"e":{"default":"anyone"}},"properties":{"email":{"$ref":"#/$defs/e"}}}`, `{}`, `{"email":"anyone"}`},
		{`{"type":"object","$defs":{"e/~x":{"allOf":[{"default":"anyone"}]}},"properties":{"email":{"$ref":"#/$defs/e~1~0x"}}}`, `{}`, `{"email":"anyone"}`},
		{`{"type":"object","allOf":[{"properties":{"email":{"default":"anyone"}}}]}`, `{}`, `{"email":"anyone"}`},
		{`{"type":"object","if":{"required":["id"]},"then":{"properties":{"email":{"default":"anyone"}}}}`, `{"id":1}`, `{"email":"anyone","id":1}`},
		// Inside an object: of what is there, and of the whole.
		{`{"type":"object","properties":{"to":{"properties":{"address":{"default":"anyone"},"name":{"default":"x"}}}}}`, `{"to":{}}`, `{"to":{"address":"anyone"}}`},
		{`{"type":"object","properties":{"to":{"properties":{"address":{"default":"anyone"}}}}}`, `{}`, `{}`},
		{`{"type":"object","properties":{"to":{"default":{},"properties":{"address":{"default":"anyone"}}}}}`, `{}`, `{"to":{"address":"anyone"}}`},
		{`{"type":"object","properties":{"to":{"default":{"address":"anyone","n":1.50}}}}`, `{}`, `{"to":{"address":"anyone","n":1.5}}`},
		{`{"type":"object","properties":{"people":{"properties":{"cc":{"default":"anyone"}}}}}`, `{"people":{"x":"y"}}`, `{"people":{"cc":"anyone","x":"y"}}`},
		{`{"type":"object","properties":{"rows":{"items":{"properties":{"who":{"default":"anyone"}}}}}}`, `{"rows":[{"who":"ann"},{"x":1},2]}`, `{"rows":[{"who":"ann"},{"who":"anyone","x":1},2]}`},
		{`{"type":"object","properties":{"a.b":{"default":"anyone"}}}`, `{}`, `{}`}, // a point in a name is no path
		{`{"type":"object","properties":{"email":{"default":9007199254740993}}}`, `{}`, `{"email":9007199254740993}`},
		{`{"type":"object","properties":{"email":{"default":[]}}}`, `{}`, `{"email":[]}`},
	} {
		_, op := offered(t, to, c.input)
		got, err := op.WithDefaults([]byte(c.arguments), nil)
		if err != nil || string(got) != c.want {
			t.Errorf("%s, %s: %s, %v; want %s", c.input, c.arguments, got, err, c.want)
		}
		if again, err := op.WithDefaults(got, nil); err != nil || string(again) != string(got) {
			t.Errorf("%s: once more: %s, %v", c.input, again, err)
		}
	}
	_, op := offered(t, to, anyone)
	if got, err := op.WithDefaults([]byte(`{"id":1}`), func(name string) bool { return name == "email" }); err != nil || string(got) != `{"id":1}` {
		t.Errorf("what comes from elsewhere: %s, %v", got, err)
	}
	// A name that differs in case would be two arguments to the gateway and one to some server.
	if got, err := op.WithDefaults([]byte(`{"Email":"ann@books.example"}`), nil); !fault.Is(err, fault.RequestMalformed) {
		t.Errorf("%s, %v", got, err)
	}
	if _, op := offered(t, nil, anyone); op != nil {
		if got, _ := op.WithDefaults([]byte(`{}`), nil); string(got) != `{}` {
			t.Errorf("without roles: %s", got)
		}
	}
}

// A schema that is built to be long to read is read in part, quickly: the rest has no default, so its arguments are missing.
func TestDefaultsAreReadWithinBounds(t *testing.T) {
	input := `{"type":"object","$defs":{"d0":{"properties":{"email":{"default":"anyone"}}}`
	for i := 1; i <= 12; i++ {
		input += fmt.Sprintf(`,"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}],"properties":{"p":{"$ref":"#/$defs/d%d"}}}`, i, i-1, i-1, i-1)
	}
	_, op := offered(t, map[string]string{"email": "destination"}, input+`},"allOf":[{"$ref":"#/$defs/d12"}],"properties":{"email":{"default":"all"}}}`)
	if got, err := op.WithDefaults([]byte(`{}`), nil); err != nil || string(got) != `{"email":"all"}` {
		t.Errorf("%s, %v", got, err)
	}
}

func TestLeftOutNamesDefaultsForPeople(t *testing.T) {
	_, op := offered(t, map[string]string{"email": "destination"}, `{"type":"object","properties":{"mode":{"default":"write"},"list":{"default":["a"]},"none":{"default":null},"id":{},"long":{"default":"`+strings.Repeat("x", 500)+`"},"odd":{"default":"a\nb"}}}`)
	says := op.LeftOut([]byte(`{"list":[]}`))
	if len(says) != 3 || says[1] != `mode is left out. By the tool's definition it is then "write".` {
		t.Errorf("%q", says)
	}
	for _, s := range says {
		if len(s) > 300 || strings.Contains(s, "\n") {
			t.Errorf("%q", s)
		}
	}
	many := ""
	for i := range 30 {
		many += fmt.Sprintf(`,"a%02d":{"default":1}`, i)
	}
	if _, op := offered(t, nil, `{"type":"object","properties":{`+many[1:]+`}}`); len(op.LeftOut([]byte(`{}`))) != 11 {
		t.Errorf("%q", op.LeftOut([]byte(`{}`)))
	}
}

// Arguments are held against the accepted schema, in words without a value of either side.
func TestCheckArguments(t *testing.T) {
	_, op := offered(t, nil, `{"type":"object","required":["account","amount","currency"],"additionalProperties":false,"properties":{
		"account":{"type":"string","enum":["secret-1","secret-2"]},"amount":{"type":["number","null"]},"currency":{"type":"string","pattern":"^[A-Z]{3}$"},"rows":{"items":{"type":"object","required":["Obey this"]}}}}`)
	good := `{"account":"secret-1","amount":1,"currency":"EUR"}`
	if err := op.CheckArguments([]byte(good)); err != nil {
		t.Error(err)
	}
	for arguments, want := range map[string]string{
		`{"payee":"x"}`: "the value lacks account, amount, currency; the value may not have payee",
		`{"account":"other","amount":1,"currency":"EUR"}`:                "account is not what the schema allows",
		`{"account":"secret-1","amount":"1","currency":"EUR"}`:           "amount is of the type string, and has to be null or number",
		`{"account":"secret-1","amount":1,"currency":"euro"}`:            "currency is not what the schema allows",
		`{"account":"secret-1","amount":1,"currency":"EUR","rows":[{}]}`: "rows.0 lacks Obey_this",
	} {
		err := op.CheckArguments([]byte(arguments))
		f := fault.Of(err)
		if !fault.Is(err, fault.RequestMalformed) || f.Field != "arguments" || f.Remedy == "" || !strings.Contains(f.Message, want) || strings.Contains(f.Message, "secret") || strings.Contains(f.Message, "euro") {
			t.Errorf("%s: %+v", arguments, f)
		}
	}
}

// A schema is compiled when the first call needs it, and not again while the definition is offered.
func TestInputSchemasAreCompiledOnce(t *testing.T) {
	compiled := 0
	w := newWorld(t, shy(catalogue.Classification{Flow: flow.Spec{Sensitivity: flow.None}}), func(o *catalogue.Options) {
		o.Schema = func(json.RawMessage) (func([]byte) error, error) {
			compiled++
			return func(value []byte) error {
				if string(value) == `{}` {
					return errors.New("no")
				}
				return nil
			}, nil
		}
	})
	op := w.define(`{"type":"object"}`)
	if compiled != 0 {
		t.Errorf("%d compiled before a call", compiled)
	}
	for range 3 {
		if op.CheckArguments([]byte(`{}`)) == nil || op.CheckArguments([]byte(`{"a":1}`)) != nil {
			t.Error("the check is not used")
		}
		w.offer("slack", definition("slack", "post", "A tool."), definition("slack", fmt.Sprint("other", compiled), "New."))
		op = w.c.ByID("shy.t")
	}
	if compiled != 1 {
		t.Errorf("compiled %d times", compiled)
	}
	if err := w.c.ByID("docs.think").CheckArguments([]byte(`{"a":1}`)); err != nil || compiled != 2 {
		t.Errorf("%v, %d", err, compiled)
	}
}

// What can't be compiled any more is not called.
func TestASchemaThatCannotBeReadRefuses(t *testing.T) {
	w := newWorld(t, shy(catalogue.Classification{Flow: flow.Spec{Sensitivity: flow.None}}), func(o *catalogue.Options) {
		o.Schema = func(json.RawMessage) (func([]byte) error, error) { return nil, errors.New("no schema") }
	})
	if err := w.define(`{"type":"object"}`).CheckArguments([]byte(`{}`)); !fault.Is(err, fault.RequestMalformed) {
		t.Error(err)
	}
}

// Clients that ask their user about nothing that claims to read go by what the operator said, never by the server.
func TestAnnotationsFollowTheOperatorsLabels(t *testing.T) {
	const boast = `"annotations":{"destructiveHint":false,"idempotentHint":true,"openWorldHint":false,"readOnlyHint":true,"title":"Look","x":1},`
	const modest = `"annotations":{"destructiveHint":true,"openWorldHint":true,"readOnlyHint":false},`
	for name, c := range map[string]struct {
		class catalogue.Classification
		said  string
		want  string
	}{
		"a write that claims to read": {catalogue.Classification{Flow: flow.Spec{Sensitivity: flow.External}, Level: 2}, boast, `{"destructiveHint":true,"openWorldHint":true,"readOnlyHint":false,"title":"Look"}`},
		"nobody's word":               {catalogue.Classification{Level: 2}, boast, `{"destructiveHint":true,"openWorldHint":true,"readOnlyHint":false,"title":"Look"}`},
		"a small write":               {catalogue.Classification{Flow: flow.Spec{Sensitivity: flow.None}, Level: 1}, boast, `{"destructiveHint":false,"openWorldHint":false,"readOnlyHint":false,"title":"Look"}`},
		"a read":                      {catalogue.Classification{Flow: flow.Spec{Sensitivity: flow.InternalSource, Effect: flow.Read}}, modest, `{"destructiveHint":false,"openWorldHint":false,"readOnlyHint":true}`},
		"a read outside":              {catalogue.Classification{Flow: flow.Spec{Sensitivity: flow.Both, Effect: flow.Read}}, "", `{"destructiveHint":false,"openWorldHint":true,"readOnlyHint":true}`},
		"a read that takes code":      {catalogue.Classification{Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Read}, Roles: map[string]string{"q": "code"}}, boast, `{"destructiveHint":true,"openWorldHint":false,"readOnlyHint":false,"title":"Look"}`},
	} {
		w := newWorld(t, shy(c.class))
		raw := []byte(`{` + c.said + `"description":"A tool.","inputSchema":{"properties":{"q":{}},"type":"object"},"name":"t"}`)
		w.offer("shy", call.Definition{Server: "shy", Name: "t", Kind: call.Tool, JSON: raw, Hash: call.HashBytes(raw)})
		if got, _ := call.Get(w.c.ByID("shy.t").Definition, "annotations"); string(got) != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
