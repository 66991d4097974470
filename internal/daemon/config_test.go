package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sallyport.example/flow"
	"sallyport.example/provenance"
)

// Every way in which a file can be wrong names the field, the place where there is one, and what is wrong.
func TestConfigProblems(t *testing.T) {
	t.Setenv("SET", "value")
	t.Setenv("EMPTY", "")
	for name, c := range map[string]struct {
		yaml  string
		field string
		line  int
		says  string
	}{
		"unknown key":                     {"mode: enforce\nlisen: x\n", "", 2, `unknown key "lisen"`},
		"unknown nested key":              {"limits:\n  calls: 3\n", "", 2, `unknown key "calls"`},
		"duplicate key":                   {"mode: enforce\nmode: observe\n", "", 2, `the key "mode" is there twice, in line 1, too`},
		"not YAML":                        {"mode: [\n", "", 0, ""},
		"wrong type":                      {"people: 7\n", "", 1, ""},
		"a time without a unit":           {"limits: {network_timeout: 30}\n", "", 1, "not a time"},
		"a size without a unit":           {"limits: {memory: 512}\n", "", 1, "not a size"},
		"a size that is too large":        {"limits: {memory: 9999999GiB}\n", "", 1, "not a size"},
		"too little memory":               {"limits: {memory: 100MiB}\n", "limits.memory", 1, "less than"},
		"unset variable":                  {"upstreams:\n  a: {url: \"${NOT_SET_ANYWHERE}\"}\n", "", 2, "NOT_SET_ANYWHERE is not set"},
		"unknown mode":                    {"mode: off\n", "mode", 1, `unknown word "off"`},
		"an empty secret":                 {"notify:\n  - {kind: webhook, url: \"https://h.example/\", secret: \"${EMPTY}\"}\n", "notify[0].secret", 2, "it is empty"},
		"unknown store":                   {"store: mysql\n", "store", 1, "the gateway's own store is SQLite"},
		"not loopback":                    {"listen: 0.0.0.0:7575\n", "listen", 1, "not a loopback address"},
		"no port":                         {"admin_listen: localhost\n", "admin_listen", 1, "not an address"},
		"one address twice":               {"listen: 127.0.0.1:1\nadmin_listen: 127.0.0.1:1\n", "admin_listen", 2, "same as listen"},
		"unknown role":                    {"people:\n  - {id: a, roles: [king]}\n", "people[0].roles", 2, "king"},
		"a list for roles":                {"operations:\n  a.b: {args: [to]}\n", "operations.a.b.args", 2, "a list stands here, where each argument with its role belongs"},
		"roles in a block":                {"operations:\n  a.b:\n    args:\n      - to\n", "operations.a.b.args", 4, "each argument with its role"},
		"too many dimensions":             {"knowledge: {dimensions: 5000}\n", "knowledge.dimensions", 1, "can't have 5000 numbers"},
		"a trusted path":                  {"knowledge:\n  collections: {a: {trusted_fields: [b.c]}}\n", "knowledge.collections.a.trusted_fields[0]", 2, "can't be a trusted field"},
		"trusted exports":                 {"knowledge:\n  collections: {snapshot: {trusted_fields: [b]}}\n", "knowledge.collections.snapshot.trusted_fields", 2, "confirms nothing"},
		"a host without rights":           {"hosts:\n  - {id: a}\n", "hosts[0]", 2, "no right"},
		"a host that adds exports":        {"hosts:\n  - {id: a, adds_to: [snapshot]}\n", "hosts[0].adds_to", 2, "from people"},
		"text for a list":                 {"operations:\n  a.b: {trusted_fields: id}\n", "operations.a.b.trusted_fields", 2, "text stands here, where a list belongs"},
		"text for a number":               {"operations:\n  a.b:\n    level: high\n", "operations.a.b.level", 3, "where a whole number belongs"},
		"text for a map":                  {"flow: x\n", "flow", 1, "where a map belongs"},
		"a map for a list":                {"notify:\n  a: b\n", "notify", 2, "where a list of entries belongs"},
		"people of no form":               {"people: alice\n", "people", 1, "people is a list of persons, or a map"},
		"people with another key":         {"people:\n  a: b\n", "people.a", 2, `unknown key "a"`},
		"no way to confirm":               {"people:\n  confirm: phone\n", "people.confirm", 2, `unknown word "phone"`},
		"confirm is one text":             {"people:\n  confirm: [terminal]\n", "people.confirm", 2, "a list stands here, where one text belongs"},
		"a key in an entry of a map":      {"people:\n  list:\n    - id: a\n      rolls: []\n", "people.list[0].rolls", 4, `unknown key "rolls"`},
		"no role in a map":                {"people:\n  list: [{id: a, roles: [king]}]\n", "people.list[0].roles", 2, "king"},
		"a map for the list in a map":     {"people: {list: {id: a}}\n", "people.list", 1, "where a list of entries belongs"},
		"text for an entry":               {"people:\n  - id: a\n    roles: []\n  - b\n", "people[1]", 4, "where a map belongs"},
		"list in a list":                  {"people: [{id: a, roles: [[x]]}]\n", "people[0].roles[0]", 1, "where one text belongs"},
		"text for a truth":                {"operations: {a.b: {egress_url: maybe}}\n", "operations.a.b.egress_url", 1, "where true or false belongs"},
		"not one map":                     {"- x\n", "", 1, "a list stands here, where a map belongs"},
		"a key in an entry":               {"people:\n  - id: a\n    rolls: []\n", "people[0].rolls", 3, `unknown key "rolls"`},
		"person twice":                    {"people: [{id: a, roles: []}, {id: a, roles: []}]\n", "people[1].id", 1, "twice"},
		"both command and url":            {"upstreams:\n  a: {command: [x], url: http://x}\n", "upstreams.a", 2, "either"},
		"neither":                         {"upstreams:\n  a: {}\n", "upstreams.a", 2, "either"},
		"dot in a server's id":            {"upstreams:\n  a.b: {url: http://x}\n", "upstreams.a.b", 2, "can't be a server's id"},
		"reserved server":                 {"upstreams:\n  comm: {url: http://x}\n", "upstreams.comm", 2, "reserved"},
		"not a web address":               {"upstreams:\n  a: {url: file:///etc/passwd}\n", "upstreams.a.url", 2, "not a web address"},
		"a fallback of no server":         {"upstreams:\n  a: {url: http://x, fallback: b}\n", "upstreams.a.fallback", 2, "no server is called"},
		"its own fallback":                {"upstreams:\n  a: {url: http://x, fallback: a}\n", "upstreams.a.fallback", 2, "circle: a, a"},
		"fallbacks in a circle":           {"upstreams:\n  a: {url: http://x}\n  b: {url: http://x, fallback: c}\n  c: {url: http://x, fallback: b}\n", "upstreams.b.fallback", 3, "circle: b, c, b"},
		"unknown feature":                 {"upstreams:\n  a: {url: http://x, client_features: [everything]}\n", "upstreams.a.client_features", 2, "everything"},
		"operation of no one":             {"operations:\n  a.b: {}\n", "operations.a.b", 2, `no upstream "a"`},
		"no built-in one":                 {"operations:\n  comm.fecth: {risk: HIGH}\n", "operations.comm.fecth", 2, "no built-in operation"},
		"open to planning":                {"operations:\n  comm.fetch: {external_io: false}\n", "operations.comm.fetch.external_io", 2, "never runs in the planning phase"},
		"trusted outside text":            {"operations:\n  comm.*: {output: trusted}\n", "operations.comm.*.output", 2, "always untrusted"},
		"an entry of no form":             {"comm: {allowed_domains: [\"https://x.example\"]}\n", "comm.allowed_domains[0]", 1, "URL"},
		"no protocol":                     {"comm: {protocols: [ftp]}\n", "comm.protocols[0]", 1, "ftp"},
		"no method":                       {"comm: {methods: [DELETE]}\n", "comm.methods", 1, "DELETE"},
		"no provider":                     {"comm: {search: {provider: oracle}}\n", "comm.search.provider", 1, "not a known search provider"},
		"no database":                     {"comm: {databases: {crm: \"mysql://x\"}}\n", "comm.databases", 1, "crm"},
		"asks too late":                   {"trust_tiers:\n  x: {ask_from: CRITICAL}\n", "trust_tiers.x.ask_from", 2, "people always decide on what is HIGH"},
		"a judge of results that is none": {"threat: {judge: x}\n", "threat.judge", 1, "no model of models"},
		"a judge of nobody":               {"claims: {judge: x}\n", "claims.judge", 1, "no model of models"},
		"a judge with a fallback":         {"models: [{id: claude-sonnet-4-5-20250929, provider: anthropic, fallback: claude-haiku-4-5-20251001}, {id: claude-haiku-4-5-20251001, provider: anthropic}]\nclaims: {judge: claude-sonnet-4-5-20250929}\n", "claims.judge", 2, "fallback"},
		"embeddings of nobody":            {"knowledge: {embeddings: x}\n", "knowledge.embeddings", 1, "no model of models"},
		"embeddings of two models":        {"models: [{id: text-embedding-3-small-20240125, provider: openai, fallback: text-embedding-3-large-20240125}, {id: text-embedding-3-large-20240125, provider: openai}]\nknowledge: {embeddings: text-embedding-3-small-20240125}\n", "knowledge.embeddings", 2, "can't be compared"},
		"embeddings of no embedder":       {"models: [{id: claude-sonnet-4-5-20250929, provider: anthropic}]\nknowledge: {embeddings: claude-sonnet-4-5-20250929}\n", "knowledge.embeddings", 2, "has no embeddings"},
		"no tier of risk":                 {"trust_tiers: {x: {ask_from: SOME}}\n", "trust_tiers.x.ask_from", 1, "SOME"},
		"not an operation":                {"operations:\n  a: {}\n", "operations.a", 2, "not an operation"},
		"glob":                            {"upstreams: {a: {url: http://x}}\noperations:\n  a.git_*: {}\n", "operations.a.git_*", 3, "not an operation"},
		"unknown sensitivity":             {"upstreams: {a: {url: http://x}}\noperations:\n  a.b: {sensitivity: public}\n", "operations.a.b.sensitivity", 3, "public"},
		"unknown label":                   {"upstreams: {a: {url: http://x}}\noperations:\n  a.b: {emits: [hr]}\n", "operations.a.b.emits", 3, `unknown label "hr"`},
		"level out of range":              {"upstreams: {a: {url: http://x}}\noperations:\n  a.b: {level: 3}\n", "operations.a.b.level", 3, "not a level"},
		"level against effect":            {"upstreams: {a: {url: http://x}}\noperations:\n  a.b: {level: 2, effect: read}\n", "operations.a.b.level", 3, "contradicts"},
		"typed without shape":             {"upstreams: {a: {url: http://x}}\noperations:\n  a.b: {output: typed}\n", "operations.a.b.shape", 3, "needs a shape"},
		"stores of a built-in":            {"operations:\n  comm.fetch: {stores: false}\n", "operations.comm.fetch.stores", 2, "in the workspace of their session"},
		"no place to omit":                {"upstreams: {a: {url: http://x}}\noperations:\n  a.b: {args: {to: content}, may_omit: [to]}\n", "operations.a.b.may_omit", 3, `"to" has neither role`},
		"unknown role of an argument":     {"upstreams: {a: {url: http://x}}\noperations:\n  a.b: {args: {to: whom}}\n", "operations.a.b.args.to", 3, `unknown word "whom"`},
		"text is no role":                 {"upstreams: {a: {url: http://x}}\noperations:\n  a.b: {args: {body: text}}\n", "operations.a.b.args.body", 3, "text is no role"},
		"argument of no name":             {"upstreams: {a: {url: http://x}}\noperations:\n  a.b: {args: {\"\": content}}\n", "operations.a.b.args", 3, "no name"},
		"unknown boundary":                {"upstreams: {a: {url: http://x}}\noperations:\n  a.b: {boundary: home}\n", "operations.a.b.boundary", 3, "home"},
		"a field of no name":              {"upstreams: {a: {url: http://x}}\noperations:\n  a.b: {trusted_fields: [id, \"\"]}\n", "operations.a.b.trusted_fields", 3, "no name"},
		"shape of another kind":           {"upstreams: {a: {url: http://x}}\noperations:\n  a.b: {output: typed, shape: \"(?=x)\"}\n", "operations.a.b.shape", 3, "regexp"},
		"two of one name":                 {"upstreams: {a: {url: http://x}, b: {url: http://y}}\noperations:\n  a.x: {expose_as: search}\n  b.y: {expose_as: search}\n", "operations.b.y.expose_as", 4, `a.x has the name "search" already`},
		"a server of one name":            {"upstreams: {a: {url: http://x}}\noperations:\n  a.*: {expose_as: search}\n", "operations.a.*.expose_as", 3, "all tools"},
		"the gateway's name":              {"upstreams: {a: {url: http://x}}\noperations:\n  a.b: {expose_as: Sallyport_status}\n", "operations.a.b.expose_as", 3, "gateway's own"},
		"name with a dot":                 {"upstreams: {a: {url: http://x}}\noperations:\n  a.b: {expose_as: x.y}\n", "operations.a.b.expose_as", 3, "can't be a tool's name"},
		"label in capitals":               {"flow: {labels: [HR]}\n", "flow.labels", 1, "HR"},
		"integrity as label":              {"flow: {labels: [untrusted]}\n", "flow.labels", 1, "integrity label"},
		"alias bomb":                      {"a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b]\nd: [*c, *c, *c, *c, *c, *c, *c]\n", "", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := ParseConfig("sallyport.yaml", []byte(c.yaml), t.TempDir())
			var invalid *ConfigError
			if !errors.As(err, &invalid) || cfg != nil {
				t.Fatalf("taken: %+v, %v", cfg, err)
			}
			for _, p := range invalid.Problems {
				if (c.field == "" || p.Field == c.field) && (c.line == 0 || p.Line == c.line) && strings.Contains(p.Problem, c.says) && p.File == "sallyport.yaml" {
					return
				}
			}
			t.Errorf("want %s at line %d saying %q, got\n%v", c.field, c.line, c.says, err)
		})
	}
}

// All problems are reported, not only the first.
func TestConfigReportsEveryProblem(t *testing.T) {
	_, err := ParseConfig("f", []byte("mode: off\nstore: mysql\nunlisted_operations: maybe\n"), t.TempDir())
	var invalid *ConfigError
	if !errors.As(err, &invalid) || len(invalid.Problems) != 3 {
		t.Errorf("%v", err)
	}
}

func TestDefaults(t *testing.T) {
	for _, file := range []string{"", "\n# nothing\n", "{}\n"} {
		c, err := ParseConfig("f", []byte(file), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if c.Listen != "127.0.0.1:7575" || c.AdminListen != "127.0.0.1:7576" || c.Mode != "enforce" || c.Unlisted != "deny" || c.Agents != "" ||
			c.Limits.CallsPerMinute != 600 || fmt.Sprint(c.Flow.Labels) != "[internal pii secret]" {
			t.Errorf("%q: %+v", file, c)
		}
	}
}

// What comes from the environment is a string, whatever it looks like: it can't become structure, another type or another reference.
func TestEnvironmentIsText(t *testing.T) {
	t.Setenv("HOSTILE", "x\", url: \"http://evil\n${OTHER}")
	t.Setenv("LOOKS_LIKE_A_LIST", "[a, b]")
	t.Setenv("OTHER", "expanded")
	c, err := ParseConfig("f", []byte("upstreams:\n  a:\n    url: http://x\n    headers: {Authorization: \"Bearer ${HOSTILE}\", B: \"${LOOKS_LIKE_A_LIST}\"}\n"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"Authorization": "Bearer x\", url: \"http://evil\n${OTHER}", "B": "[a, b]"}
	if got := c.Upstreams["a"].Headers; !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
}

func TestClassification(t *testing.T) {
	c, err := ParseConfig("f", []byte(`
upstreams: {fs: {url: http://x, timeout: 7s}, web: {url: http://y}}
operations:
  fs.*: {sensitivity: internal_source, effect: read, expose_as: "f_{tool}", output: trusted}
  fs.delete: {level: 2}
  fs.note: {effect: write}
  fs.undo: {level: 1, output: untrusted, blocked_by: [], external_io: false}
  web.search: {sensitivity: external, effect: read}
`), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	classify := c.Classifier(nil)
	labels, err := c.labels()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct {
		server, tool  string
		listed, named bool
		effect        flow.Effect
		level         int
		sensitivity   flow.Sensitivity
		output        provenance.Output
		external      bool
		emits         string
		blocked       string
		timeout       string
	}{
		{"fs", "read", true, false, flow.Read, 0, flow.InternalSource, provenance.TrustedOutput, true, "[internal]", "[]", "7s"},
		{"fs", "delete", true, true, flow.Write, 2, flow.InternalSource, provenance.TrustedOutput, true, "[internal]", "[]", "7s"}, // its own level, not the server's effect
		{"fs", "note", true, true, flow.Write, 2, flow.InternalSource, provenance.TrustedOutput, true, "[internal]", "[]", "7s"},
		{"fs", "undo", true, true, flow.Write, 1, flow.InternalSource, provenance.UntrustedOutput, false, "[internal untrusted]", "[]", "7s"},
		{"web", "search", true, true, flow.Read, 0, flow.External, provenance.UntrustedOutput, true, "[untrusted]", "[internal pii secret]", "30s"},
		{"web", "other", false, false, flow.Write, 2, flow.External, provenance.UntrustedOutput, true, "[untrusted]", "[internal pii secret]", "30s"},
		{"unheard", "of", false, false, flow.Write, 2, flow.External, provenance.UntrustedOutput, true, "[untrusted]", "[internal pii secret]", "30s"},
	} {
		got := classify(w.server, w.tool)
		spec := got.Flow
		spec.ID, spec.Name = w.server+"."+w.tool, w.server+"_"+w.tool
		op, err := flow.Resolve(spec, labels)
		if err != nil {
			t.Errorf("%s.%s: %v", w.server, w.tool, err)
		}
		if got.Listed != w.listed || got.Named != w.named || op.Effect != w.effect || got.Level != w.level || op.Sensitivity != w.sensitivity || got.Output != w.output ||
			got.ExternalIO != w.external || fmt.Sprint(op.Emits) != w.emits || fmt.Sprint(op.BlockedBy) != w.blocked || got.Timeout.String() != w.timeout {
			t.Errorf("%s.%s: %+v, %+v", w.server, w.tool, got, op)
		}
	}
}

// An operation's own entry adds to what its server's says about the risk: it loses no role of an argument, and lowers nothing.
func TestOwnEntryOnlyRaises(t *testing.T) {
	c, err := ParseConfig("f", []byte(`
upstreams: {bank: {url: http://x}, shop: {url: http://y}, wire: {url: http://z}}
operations:
  bank.*: {action: transfer_money, risk: HIGH, args: {amount: amount, note: content}}
  bank.pay: {args: {payee: destination}}
  bank.move: {risk: LOW, args: {amount: name}}
  bank.wipe: {risk: CRITICAL, action: delete_data}
  shop.*: {args: {sum: amount}}
  shop.buy: {action: transfer_money, risk: MEDIUM}
  wire.send: {action: transfer_money}
`), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"bank.pay":   "transfer_money HIGH map[amount:amount note:content payee:destination]",
		"bank.move":  "transfer_money HIGH map[amount:name note:content]",
		"bank.wipe":  "delete_data CRITICAL map[amount:amount note:content]",
		"bank.other": "transfer_money HIGH map[amount:amount note:content]",
		"shop.buy":   "transfer_money MEDIUM map[sum:amount]",
		"shop.look":  "  map[sum:amount]",
		"wire.send":  "transfer_money  map[]",
		"wire.other": "  map[]",
	} {
		server, tool, _ := strings.Cut(id, ".")
		got := c.Classifier(nil)(server, tool)
		if is := fmt.Sprintf("%s %s %v", got.Action, got.RiskFloor, got.Roles); is != want {
			t.Errorf("%s: %s, want %s", id, is, want)
		}
	}
	if got := c.Operations["bank.*"].Args; len(got) != 2 {
		t.Errorf("the server's own roles are %v", got)
	}
	var warned []string
	for _, w := range c.Warnings("f") {
		if strings.Contains(w.Problem, "role amount") {
			warned = append(warned, w.Field)
		}
	}
	if want := "[operations.bank.move.args operations.wire.send.args]"; fmt.Sprint(warned) != want {
		t.Errorf("lint warns of %v, want %s", warned, want)
	}
}

// Labels come field by field: lists that are given replace the server's, roles add to them, and egress_url is never taken away.
func TestLabelsOfAnOperation(t *testing.T) {
	c, err := ParseConfig("f", []byte(`
upstreams: {cal: {url: http://x}}
operations:
  cal.*: {effect: read, trusted_fields: [id], names: [title], delegable: [owner], id_kind: event, boundary: internal, output: typed, shape: "^x$", egress_url: true, args: {id: selector}}
  cal.own: {level: 2, trusted_fields: [], names: [name, subject], id_kind: entry, boundary: none, output: untrusted, egress_url: false, args: {id: content, text: content}}
  cal.typed: {output: typed}
  cal.move: {args: {to: destination}, may_omit: [to], stores: false}
`), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if problems := c.Warnings("f"); len(problems) > 0 {
		t.Errorf("what is used is warned of: %v", problems)
	}
	for tool, want := range map[string]string{
		"own":    "untrusted ^x$ [] [name subject] [owner] entry 2 none true map[id:content text:content]",
		"typed":  "typed ^x$ [id] [title] [owner] event 0 internal true map[id:selector]",
		"other":  "typed ^x$ [id] [title] [owner] event 0 internal true map[id:selector]",
		"nobody": "typed ^x$ [id] [title] [owner] event 0 internal true map[id:selector]",
	} {
		p := c.Classifier(nil)("cal", tool).Profile()
		if got := strings.TrimSuffix(fmt.Sprintln(p.Output, p.Shape, p.TrustedFields, p.Names, p.Delegable, p.IDKind, p.Level, p.Boundary, p.EgressURL, p.Args), "\n"); got != want {
			t.Errorf("%s is\n%s\nwant\n%s", tool, got, want)
		}
		if problems := p.Check(); problems != nil {
			t.Errorf("%s: %v", tool, problems)
		}
	}
	if p := c.Classifier(nil)("cal", "move").Profile(); !slices.Equal(p.MayOmit, []string{"to"}) || p.Check() != nil {
		t.Errorf("may_omit: %q, %v", p.MayOmit, p.Check())
	}
	if !c.Classifier(nil)("cal", "move").Forgets || c.Classifier(nil)("cal", "own").Forgets || c.Classifier(nil)("unheard", "of").Forgets {
		t.Error("what stores: false says holds for others, or not for its own")
	}
	p := c.Classifier(nil)("unheard", "of").Profile()
	if p.HasRoles() || p.Level != 2 || p.Output != provenance.UntrustedOutput || p.Boundary != provenance.BoundaryExternal || p.TrustedFields != nil || p.EgressURL {
		t.Errorf("an operation that nobody named says %+v", p)
	}
}

// The configuration knows the roles that the flow rules know.
func TestRoles(t *testing.T) {
	for _, r := range roles {
		if _, err := provenance.ParseRole(r); err != nil {
			t.Error(err)
		}
	}
	if _, err := provenance.ParseRole("?"); err == nil || !strings.HasSuffix(err.Error(), strings.Join(roles, ", ")) {
		t.Errorf("the flow rules know other roles: %v", err)
	}
}

// A person's own identities are theirs by id or by one of them, and nobody's when two people have it.
func TestIdentitiesOf(t *testing.T) {
	c, err := ParseConfig("f", []byte(`
people:
  - {id: alice, roles: [], identities: [alice@example.com, shared@example.com]}
  - {id: bob, roles: [], identities: [Bob@example.com, shared@example.com, alice]}
  - {id: carol, roles: []}
`), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for person, want := range map[string]string{
		"alice": "[alice@example.com shared@example.com]", "bob": "[Bob@example.com shared@example.com alice]", "bob@example.com": "[Bob@example.com shared@example.com alice]",
		"shared@example.com": "[]", "carol": "[]", "": "[]", "nobody": "[]",
	} {
		if got := fmt.Sprint(c.IdentitiesOf(person)); got != want {
			t.Errorf("%q has %s, want %s", person, got, want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte("mode: observe\n"))
	f.Add([]byte(exampleConfig))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("operations: {x.y: {shape: \"(\"}}\nupstreams: {x: {url: http://x}}\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig("f", data, dir)
		if err != nil {
			if c != nil || err.Error() == "" {
				t.Errorf("an error with a configuration, or without words: %v", err)
			}
			return
		}
		classify := c.Classifier(nil) // whatever was taken classifies any name, closed
		if got := classify("nobody", "knows"); got.Listed || got.Output == provenance.TrustedOutput || !got.ExternalIO {
			t.Errorf("an operation that nobody named is %+v", got)
		}
	})
}

// The folder of a server is for that server alone: what holds the gateway's own, or everybody's, is none.
func TestServerFolders(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", filepath.Join(dir, "home"))
	for folder, want := range map[string]string{
		"./work":             "",
		"~/work":             "",
		"data/servers/files": "",
		"/srv/files":         "",
		".":                  "the gateway's own",
		"..":                 "the gateway's own",
		"data":               "the gateway's own",
		"data/workspace":     "the gateway's own",
		"data/servers":       "the gateway's own",
		"agents/x":           "the gateway's own",
		"~/":                 "more than what belongs",
		"/tmp":               "the gateway's own",
		"/etc":               "of the system's",
		"/usr/local/lib":     "of the system's",
		"/var/tmp":           "more than what belongs",
	} {
		file := filepath.Join(dir, "sallyport.yaml")
		if err := os.MkdirAll(filepath.Join(dir, "agents"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("upstreams: {files: {command: [x], folder: "+strconv.Quote(folder)+"}}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := LoadConfig(file)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = c.servers(filepath.Join(dir, "data"))
		if got := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %v, want %q", folder, err, want)
		}
	}
}
