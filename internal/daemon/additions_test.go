package daemon

import (
	"strings"
	"testing"
)

// Labels are put into a configuration of any usual form, and nothing else in it changes. Where that can't be done nothing is.
func TestLabelsAreAddedToTheText(t *testing.T) {
	level := 2
	add := Additions{Note: "from recorded work", Catalogue: []string{"mem"}, Operations: map[string]OperationConfig{
		"crm.find":        {Sensitivity: "internal_source", Effect: "read", Output: "untrusted", Args: map[string]string{"q": "query", "on": "destination"}},
		"crm.a: {b\u202e": {Sensitivity: "external", Level: &level, Action: "send_email", EgressURL: true, IDKind: "mail"},
	}}
	const servers = "upstreams:\n  crm: {url: \"http://127.0.0.1:9/mcp\"}\n  mem: {command: [npx, -y, \"@modelcontextprotocol/server-memory@2026.8.31\"]}\n"
	for name, text := range map[string]string{
		"no operations":         servers,
		"no end of line":        strings.TrimSuffix(servers, "\n"),
		"a block":               servers + "operations:\n    # about the first\n    crm.old:   {effect: read}   # kept\n    crm.b:\n      level: 2\nmode: enforce\n",
		"a block at the margin": "operations:\n crm.old: {effect: read}\n" + servers,
		"nothing in it":         servers + "operations:\nmode: enforce\n",
		"nothing, at the end":   servers + "operations:",
		"an empty map":          "operations: {}   # none\n" + servers,
		"a map on one line":     servers + "operations: {crm.old: {effect: read}, crm.b: {level: 2}} # kept\n",
		"a map on more lines":   servers + "operations: {\n  crm.old: {effect: read},\n  }\n",
		"a server as a block":   "upstreams:\n  crm: {url: \"http://127.0.0.1:9/mcp\"}\n  mem:\n    # it remembers\n    command: [npx, -y, \"@modelcontextprotocol/server-memory@2026.8.31\"]\n    sandbox: full\n",
		"other letters":         "people: [{id: zoe, name: Zoë, roles: [admin]}]\nupstreams: {\"crm\": {url: \"http://127.0.0.1:9/mcp?é=日本\"}, mem: {command: [npx, -y, \"@modelcontextprotocol/server-memory@2026.8.31\"]}}\noperations: {}\n",
		"lines of Windows":      strings.ReplaceAll(servers+"operations:\n  crm.old: {effect: read}\n", "\n", "\r\n"),
	} {
		got, err := Added("c.yaml", []byte(text), t.TempDir(), add)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c, err := ParseConfig("c.yaml", got, t.TempDir())
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, got)
		}
		if c.Upstreams["mem"].Labels != "catalogue" || c.Operations["crm.find"].Args["on"] != "destination" || c.Operations["crm.a: {b\u202e"].Action != "send_email" {
			t.Errorf("%s: %s", name, got)
		}
		rest := string(got) // what was there is there, in its order
		for line := range strings.Lines(text) {
			for _, piece := range strings.FieldsFunc(line, func(r rune) bool { return r == '{' || r == '\n' || r == '\r' }) {
				at := strings.Index(rest, piece)
				if at < 0 {
					t.Fatalf("%s: %q is gone or elsewhere:\n%s", name, piece, got)
				}
				rest = rest[at+len(piece):]
			}
		}
		if _, err := Added("c.yaml", got, t.TempDir(), add); err == nil {
			t.Errorf("%s: it was added twice", name)
		}
	}
	for name, text := range map[string]string{
		"not YAML":              "operations: [",
		"a link":                "x: &x {}\n" + servers,
		"an alias":              "comm: {databases: &d {}}\noperations: *d\n" + servers,
		"null, written out":     servers + "operations: ~\n",
		"a server that isn't":   "upstreams:\n  crm: {url: \"http://127.0.0.1:9/mcp\"}\n",
		"two of one server":     "upstreams:\n  crm: &a {command: [npx, -y, \"@modelcontextprotocol/server-memory@2026.8.31\"]}\n  mem: *a\n",
		"shared by two":         "upstreams:\n  mem: &a {command: [npx, -y, \"@modelcontextprotocol/server-memory@2026.8.31\"]}\n  crm: *a\n",
		"a block shared by two": "upstreams:\n  mem: &a\n    command: [npx, -y, \"@modelcontextprotocol/server-memory@2026.8.31\"]\n  crm: *a\n",
		"two documents":         servers + "---\nmode: enforce\n",
		"its end":               servers + "...\n",
	} {
		if got, err := Added("c.yaml", []byte(text), t.TempDir(), add); err == nil {
			t.Errorf("%s: taken\n%s", name, got)
		}
	}
	if _, err := Added("c.yaml", []byte(servers), t.TempDir(), Additions{Operations: map[string]OperationConfig{"crm.x": {Sensitivity: "nonsense"}}}); err == nil {
		t.Error("a label that no configuration may have was taken")
	}
}
