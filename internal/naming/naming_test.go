package naming

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sallyport.example/provenance"
)

func TestReadSchema(t *testing.T) {
	for name, c := range map[string]struct{ schema, want string }{
		"plain":          {`{"type":"object","properties":{"to":{"type":"string","format":"email"},"n":{"type":["integer","null"]}}}`, "n:integer to:string/email"},
		"nested":         {`{"properties":{"payment":{"type":"object","properties":{"amount":{"type":"number"}}}}}`, "payment.amount:number"},
		"lists":          {`{"properties":{"to":{"type":"array","items":{"type":"string"}},"rows":{"type":"array","items":{"properties":{"id":{"type":"string"}}}}}}`, "rows.id:string to:string"},
		"tuples":         {`{"properties":{"p":{"prefixItems":[{"type":"string"},{"type":"number"}]}}}`, "p:string|number"},
		"maps":           {`{"properties":{"h":{"type":"object","additionalProperties":{"type":"string"}}}}`, "h:object+"},
		"named and more": {`{"properties":{"h":{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":true}}}`, "h:object+ h.a:string"},
		"closed":         {`{"properties":{"h":{"type":"object","additionalProperties":false}}}`, "h:object"},
		"alternatives":   {`{"properties":{"x":{"anyOf":[{"type":"string","format":"uri"},{"type":"integer"},{"type":"null"}]}}}`, "x:string|integer"},
		"references":     {`{"properties":{"x":{"$ref":"#/$defs/a~1b"}},"$defs":{"a/b":{"type":"object","properties":{"y":{"enum":["a"]}}}}}`, "x.y:="},
		"of itself":      {`{"properties":{"x":{"$ref":"#"}}}`, "cut"},
		"elsewhere":      {`{"properties":{"x":{"$ref":"https://evil.example/s"},"y":{"type":"boolean"}}}`, "y:boolean cut"},
		"anything":       {`{"properties":{"x":{},"y":true,"z":false}}`, "x:+ y:+"},
		"no schema":      {`[1]`, ""},
		"no JSON":        {`{`, "cut"},
	} {
		t.Run(name, func(t *testing.T) {
			s := ReadSchema(json.RawMessage(c.schema))
			var got []string
			for _, a := range s.Arguments {
				word := a.Path + ":" + strings.Join(a.Types, "|")
				if a.Format != "" {
					word += "/" + a.Format
				}
				if a.Enum {
					word += "="
				}
				if a.Open {
					word += "+"
				}
				got = append(got, word)
			}
			if s.Cut {
				got = append(got, "cut")
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%s, want %s", strings.Join(got, " "), c.want)
			}
		})
	}
}

func TestSchemaTakes(t *testing.T) {
	s := ReadSchema(json.RawMessage(`{"type":"object","properties":{"to":{"type":"string"},"payment":{"type":"object","properties":{"amount":{"type":"number"}}},"extra":{"type":"object"}}}`))
	for path, want := range map[string]bool{"to": true, "payment": true, "payment.amount": true, "extra.x": true, "paymen": false, "too": false, "to.x": false, "payment.sum": false} {
		if s.Takes(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
	for _, open := range []string{`{}`, `{`, `[]`, `{"type":"object"}`} {
		if !ReadSchema([]byte(open)).Takes("x") {
			t.Errorf("%s says nothing, or can't be read, and is taken to say no", open)
		}
	}
	for _, empty := range []string{`{"properties":{}}`, `{"type":"object","additionalProperties":false}`} {
		if ReadSchema([]byte(empty)).Takes("x") {
			t.Errorf("%s takes something", empty)
		}
	}
}

// Hostile schemas are read in bounded time and space.
func TestReadSchemaIsBounded(t *testing.T) {
	wide := strings.Builder{}
	for i := range 10_000 {
		fmt.Fprintf(&wide, `"p%d":{"type":"string"},`, i)
	}
	bomb := `{"properties":{"a":{"$ref":"#/x"}},"x":{"anyOf":[` + strings.Repeat(`{"$ref":"#/x"},`, 500) + `{"$ref":"#/x"}]}}`
	for name, schema := range map[string]string{
		"wide": `{"properties":{` + strings.TrimSuffix(wide.String(), ",") + `}}`,
		"bomb": bomb, "deep": strings.Repeat(`{"properties":{"a":`, 2000) + `{}` + strings.Repeat(`}}`, 2000),
	} {
		if s := ReadSchema(json.RawMessage(schema)); len(s.Arguments) > maxArguments || !s.Cut {
			t.Errorf("%s: %d arguments, cut %v", name, len(s.Arguments), s.Cut)
		}
	}
}

func TestWrites(t *testing.T) {
	for _, name := range strings.Fields("delete_file sendMail set_limit create update_x add remove_all move pay transfer post invite forward reset_password bulkDelete run_sql get_or_create read_and_delete mark_as_read") {
		if !Writes(name) {
			t.Errorf("%s is taken for a read", name)
		}
	}
	for _, name := range strings.Fields("get_transfer list_comments search_code fetch_draft read_text_file news code new balance frob _ -") {
		if Writes(name) {
			t.Errorf("%s is taken for a write", name)
		}
	}
}

func TestRoleByName(t *testing.T) {
	for name, want := range map[string]provenance.Role{
		"cc": provenance.Destination, "mail.recipients": provenance.Destination, "callback_url": provenance.URL, "amount": provenance.Amount, "apiKey": provenance.Credential, "file_id": provenance.Selector, "payee": provenance.Destination,
		"email_body": "", "query": "", "q": "", "search": "", "title": "", "body": "", "max_amount": "", "page_token": "", "": "", "x.": "", "start_time": "",
	} {
		if got, ok := Role(name); ok != (want != "") || ok && got != want {
			t.Errorf("%q: %s %v, want %q", name, got, ok, want)
		}
	}
}
