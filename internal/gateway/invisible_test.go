package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
)

// Characters that show nothing are refused in arguments, and in their names, but for content and where the operator allows them; what passes is counted in the record,
// and is sent as it came.
func TestInvisibleArguments(t *testing.T) {
	w := newWorld(t, func(o *gateway.Options) {
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if server == "web" {
				c.Roles = map[string]string{"q": "query", "body": "content", "mail.text": "content", "to": "destination"}
				c.AllowInvisible = []string{"raw"}
			}
			return c
		}
	})
	const zeroWidth, override, family = "\u200b", "\u202e", "👩\u200d👩"
	for name, c := range map[string]struct {
		arguments map[string]any
		at        string // "": it runs
		marked    string // in the record
	}{
		"plain":                      {map[string]any{"q": "widgets"}, "", ""},
		"letters":                    {map[string]any{"q": "Zürich"}, "", ""},
		"Persian":                    {map[string]any{"q": "می\u200cخواهم"}, "", `"invisible":1`},
		"an emoji":                   {map[string]any{"q": family}, "", `"invisible":1`},
		"a zero-width space":         {map[string]any{"q": "pass" + zeroWidth + "word"}, "q has the invisible character U+200B", `"invisible":1`},
		"an override in a list":      {map[string]any{"to": []any{"a", "b" + override}}, "to has the invisible character U+202E", `"invisible":1`},
		"an escape":                  {map[string]any{"q": "\x1b[2J"}, "q has the invisible character U+001B", `"invisible":1`},
		"content":                    {map[string]any{"body": "a" + zeroWidth + override + "b"}, "", `"invisible":2`},
		"content deeper":             {map[string]any{"mail": map[string]any{"text": "a" + zeroWidth}}, "", `"invisible":1`},
		"beside content":             {map[string]any{"mail": map[string]any{"text": "a", "subject": "b" + zeroWidth}}, "mail.subject has", `"invisible":1`},
		"like content":               {map[string]any{"bodyguard": "a" + zeroWidth}, "bodyguard has", `"invisible":1`},
		"allowed":                    {map[string]any{"raw": []any{"a" + zeroWidth}}, "", `"invisible":1`},
		"like what is allowed":       {map[string]any{"rawer": "a" + zeroWidth}, "rawer has", `"invisible":1`},
		"in a name":                  {map[string]any{"q": map[string]any{"a" + override: 1}}, `has the invisible character U+202E`, `"invisible":1`},
		"in the name of an argument": {map[string]any{"q" + zeroWidth: "x"}, `has the invisible character U+200B`, ``},
	} {
		b, err := json.Marshal(c.arguments)
		if err != nil {
			t.Fatal(err)
		}
		before, sent := w.up.count(), len(w.entries())
		a := w.g.Call(t.Context(), gateway.Request{Principal: as("worker"), Method: "tools/call", Tool: "web_search", Arguments: b, Door: "mcp"})
		ran := w.up.count() - before
		switch {
		case c.at == "" && (a.Verdict.Decision != fault.Permit || ran != 1):
			t.Errorf("%s: %+v", name, a.Verdict)
		case c.at != "" && (a.Verdict.Code != fault.RequestMalformed || !strings.Contains(a.Verdict.Reason, c.at) || ran != 0):
			t.Errorf("%s: %+v", name, a.Verdict)
		}
		recorded := ""
		for _, e := range w.entries()[sent:] {
			recorded += string(e.Detail)
		}
		if !strings.Contains(recorded, c.marked) || c.marked == "" && c.at == "" && strings.Contains(recorded, "invisible") {
			t.Errorf("%s: on record: %s", name, recorded)
		}
	}
}
