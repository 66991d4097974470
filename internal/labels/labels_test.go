package labels

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sallyport.example/internal/call"
	"sallyport.example/internal/naming"
	"sallyport.example/provenance"
)

// label is what these tests look at of a label.
type label struct {
	Sensitivity   string
	Effect        string
	Level         *int
	Output        string
	TrustedFields []string `yaml:"trusted_fields"`
	Names         []string
	Delegable     []string
	Action        string
	Risk          string
	Boundary      string
	EgressURL     bool     `yaml:"egress_url"`
	MayOmit       []string `yaml:"may_omit"`
	Args          map[string]string
	Emits         *[]string
	BlockedBy     *[]string `yaml:"blocked_by"`
	ExternalIO    *bool     `yaml:"external_io"`
	ExposeAs      string    `yaml:"expose_as"`
	Description   string
}

func (l label) reads() bool { return l.Effect == "read" || l.Level != nil && *l.Level == 0 }

// every calls f for each label of the catalogue, with each definition that it is for.
func every(t *testing.T, f func(t *testing.T, e *Entry, tool string, l label, definition json.RawMessage)) {
	t.Helper()
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		recorded := definitions(t, e)
		for _, tool := range slices.Sorted(maps.Keys(e.Operations)) {
			var l label
			n := e.Operations[tool]
			if err := n.Decode(&l); err != nil {
				t.Fatalf("%s.%s: %v", e.ID, tool, err)
			}
			for _, definition := range recorded[tool] {
				f(t, e, tool, l, definition)
			}
		}
	}
}

// definitions are those that an entry was recorded from.
func definitions(t *testing.T, e *Entry) map[string][]json.RawMessage {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("entries", e.ID+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string][]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatalf("%s: %v", e.ID, err)
	}
	return all
}

// TestEntriesAreOfRecordedDefinitions: what stands in an entry is the hash of what its server said, as the gateway computes it, and each tool that the server
// had is labelled, or left without a label for a reason.
func TestEntriesAreOfRecordedDefinitions(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 25 {
		t.Errorf("only %d entries", len(all))
	}
	for _, e := range all {
		recorded := definitions(t, e)
		if len(recorded) != len(e.Definitions) {
			t.Errorf("%s: %d definitions, and %d hashes", e.ID, len(recorded), len(e.Definitions))
		}
		for tool, definitions := range recorded {
			var hashes []string
			for _, definition := range definitions {
				canonical, err := call.Canonical(definition, call.DefaultLimits())
				if err != nil {
					t.Errorf("%s.%s: %v", e.ID, tool, err)
				}
				hashes = append(hashes, call.HashBytes(canonical))
				if name, _ := call.Get(definition, "name"); string(name) != `"`+tool+`"` {
					t.Errorf("%s.%s is the definition of %s", e.ID, tool, name)
				}
			}
			if !slices.Equal(hashes, e.Definitions[tool]) {
				t.Errorf("%s.%s: the definitions have the hashes %v, the entry says %v", e.ID, tool, hashes, e.Definitions[tool])
			}
		}
		for tool, why := range e.Unlabelled {
			if strings.TrimSpace(why) == "" {
				t.Errorf("%s.%s has no label, and no reason is given", e.ID, tool)
			}
		}
	}
}

// TestRolesAreOfArguments: each role is one, and of an argument that the definition has; no argument that names an address, an amount or a file is free in a write.
func TestRolesAreOfArguments(t *testing.T) {
	every(t, func(t *testing.T, e *Entry, tool string, l label, definition json.RawMessage) {
		raw, _ := call.Get(definition, "inputSchema")
		schema := naming.ReadSchema(raw)
		for arg, role := range l.Args {
			if _, err := provenance.ParseRole(role); err != nil {
				t.Errorf("%s.%s: %v", e.ID, tool, err)
			}
			if !schema.Takes(arg) {
				t.Errorf("%s.%s takes no argument %s", e.ID, tool, arg)
			}
		}
		for _, arg := range l.MayOmit {
			if l.Args[arg] != "destination" && l.Args[arg] != "url" {
				t.Errorf("%s.%s: may_omit names %s, which is no destination", e.ID, tool, arg)
			}
		}
	})
}

// TestTrustHasAReason: nothing that a server answers confirms a value but for a reason that the entry gives; and an entry takes nothing from the gateway's other guards.
func TestTrustHasAReason(t *testing.T) {
	every(t, func(t *testing.T, e *Entry, tool string, l label, _ json.RawMessage) {
		if (l.Output == "trusted" || l.Output == "typed" || len(l.TrustedFields) > 0 || len(l.Delegable) > 0) && strings.TrimSpace(e.Trusts[tool]) == "" {
			t.Errorf("%s.%s: its results confirm values, and trusts gives no reason", e.ID, tool)
		}
		if l.Output == "trusted" {
			t.Errorf("%s.%s: output trusted is too much for any server: use typed with a shape, or trusted_fields", e.ID, tool)
		}
		if l.ExternalIO != nil || l.ExposeAs != "" || l.Description != "" || l.Emits != nil {
			t.Errorf("%s.%s: external_io, expose_as, description and emits are the operator's to say", e.ID, tool)
		}
		if l.BlockedBy != nil && (len(*l.BlockedBy) > 0 || l.reads() || l.Action == "" && l.Risk != "HIGH") {
			t.Errorf("%s.%s: blocked_by may be empty only where a person is asked about every call", e.ID, tool)
		}
		if l.Sensitivity == "" || l.Effect == "" && l.Level == nil {
			t.Errorf("%s.%s: say its sensitivity, and its effect or level", e.ID, tool)
		}
	})
}

// TestReadsKnowTheirArguments: of a read somebody has looked at each argument. Nothing is compared in one that stays inside; one that takes an address has the others confirmed.
func TestReadsKnowTheirArguments(t *testing.T) {
	every(t, func(t *testing.T, e *Entry, tool string, l label, definition json.RawMessage) {
		if !l.reads() || l.EgressURL {
			return
		}
		raw, _ := call.Get(definition, "inputSchema")
		for _, a := range naming.ReadSchema(raw).Arguments {
			if e.ID+"."+tool == "firecrawl.firecrawl_search" && strings.HasPrefix(a.Path, "scrapeOptions.") {
				continue // without a role nothing in it is confirmed, so private data keeps it in; what is a script makes it a write
			}
			if _, _, labelled := call.LongestPrefix(l.Args, a.Path); !labelled {
				t.Errorf("%s.%s: nobody says what %s is for", e.ID, tool, a.Path)
			}
		}
	})
}

// changingWords are words that say, in a tool's name or at the beginning of what its server says of it, that it changes something.
var changingWords = strings.Fields(`add append apply archive assign cancel change clean clear click clone close commit connect copy create delete disable disconnect download
	drag drop edit enable execute export fill fork forward generate import insert install invite kill launch mark merge modify move navigate open patch pause pay post press publish pull push
	put rebase rebuild refund register remove rename replace reply reset resolve restart restore revoke rotate run save scale schedule select send set share start stage stop submit switch toggle
	transfer trigger type uninstall unset update upload upsert write`)

// onlyReads are the tools whose name, or whose server, uses such a word and that change nothing all the same; each was looked up in its server's code.
var onlyReads = map[string]string{
	"context7.resolve-library-id":               "it looks an id up",
	"everything.trigger-long-running-operation": "it waits, and tells how long",
	"memory.open_nodes":                         "it shows the nodes",
	"mongodb.find":                              "a filter, which can hold code, makes it a write",
	"notion.API-get-block-children":             "block is a thing here",
	"notion.API-post-search":                    "named after the method of HTTP",
	"notion.API-retrieve-a-block":               "block is a thing here",
	"notion.API-retrieve-a-comment":             "comment is a thing here",
	"playwright.browser_navigate":               "its address has to be confirmed",
	"playwright.browser_navigate_back":          "it goes where the page before was",
	"postgres.query":                            "what is no plain SELECT counts as a write",
	"sentry.get_event_attachment":               "it answers with the attachment, and writes no file",
}

// TestNoWriteIsCalledARead holds the labels of reads against what names and descriptions tell.
func TestNoWriteIsCalledARead(t *testing.T) {
	used := map[string]bool{}
	every(t, func(t *testing.T, e *Entry, tool string, l label, definition json.RawMessage) {
		if !l.reads() {
			return
		}
		id := e.ID + "." + tool
		var description string
		if raw, ok := call.Get(definition, "description"); ok {
			if err := json.Unmarshal(raw, &description); err != nil {
				t.Fatal(err)
			}
		}
		said := naming.Split(description)
		name := strings.ReplaceAll(tool, "pull_request", "request") // a thing
		suspect := naming.Writes(name) || naming.Has(naming.Split(name), changingWords...) || len(said) > 0 && naming.Has(said[:1], changingWords...)
		if suspect && onlyReads[id] == "" {
			t.Errorf("%s is said to read, and by its name or description (%.60q) it changes something", id, description)
		}
		used[id] = suspect
	})
	for id := range onlyReads {
		if !used[id] {
			t.Errorf("onlyReads names %s, which needs no excuse", id)
		}
	}
}

// TestWritesThatLeave: a write that only the person sees takes nobody's address, and what sends, shares, pays, deletes or runs code is not of that kind.
func TestWritesThatLeave(t *testing.T) {
	every(t, func(t *testing.T, e *Entry, tool string, l label, _ json.RawMessage) {
		id := e.ID + "." + tool
		words := naming.Split(tool)
		if l.Level != nil && *l.Level == 1 {
			if l.Boundary != "none" || l.Sensitivity == "external" || l.Sensitivity == "both" {
				t.Errorf("%s: level 1 says that only the person sees it", id)
			}
			for arg, role := range l.Args {
				if role == "destination" || role == "url" || role == "code" {
					t.Errorf("%s: level 1, and %s is a %s", id, arg, role)
				}
			}
			if naming.Has(words, "delete", "remove", "drop", "send", "post", "publish", "share", "pay", "refund", "push", "merge", "run", "exec", "evaluate") {
				t.Errorf("%s: by its name it is no write that the person alone sees and can undo", id)
			}
		}
		if naming.Has(words, "delete", "drop", "uninstall") && tool != "browser_drop" && (l.Action != "delete_data" || l.reads()) {
			t.Errorf("%s deletes, and action: delete_data isn't said", id)
		}
		for arg, role := range l.Args {
			if role == "code" && !l.reads() && l.Risk != "HIGH" && l.Risk != "CRITICAL" && l.Action == "" && e.ID != "mongodb" {
				t.Errorf("%s runs what %s says: say risk: HIGH", id, arg)
			}
			if role == "url" && l.reads() && !l.EgressURL {
				t.Errorf("%s reads the address %s: say egress_url", id, arg)
			}
			if (role == "query" || role == "content") && l.reads() && (l.Sensitivity == "external" || l.Sensitivity == "both") && slices.ContainsFunc(slices.Collect(maps.Values(l.Args)), func(r string) bool { return provenance.Role(r).Core() }) {
				t.Errorf("%s: where its other arguments are confirmed, private data could leave in %s: give it no role, or none of them a core one", id, arg)
			}
		}
	})
}

func TestFor(t *testing.T) {
	const memory = "@modelcontextprotocol/server-memory"
	for name, c := range map[string]struct {
		server  Server
		want    string
		fetched bool
	}{
		"npx":                         {Server{Command: []string{"npx", "-y", memory + "@2026.8.31"}}, "memory", true},
		"npx without a version":       {Server{Command: []string{"npx", memory, "x"}}, "memory", true},
		"npm exec":                    {Server{Command: []string{"npm", "exec", "-y", "--", memory}}, "memory", true},
		"node":                        {Server{Command: []string{"node", "/srv/node_modules/" + memory + "/dist/index.js"}}, "memory", false},
		"node by its path":            {Server{Command: []string{"/usr/bin/node", "node_modules/" + memory + "/dist/index.js"}}, "memory", false},
		"a package without a scope":   {Server{Command: []string{"node", "node_modules/tavily-mcp/build/index.js"}}, "tavily", false},
		"a host":                      {Server{URL: "https://mcp.context7.com/mcp"}, "context7", false},
		"a host with a query":         {Server{URL: "https://MCP.tavily.com:443/mcp/?tavilyApiKey=x"}, "tavily", false},
		"another package":             {Server{Command: []string{"npx", "-y", "@evil/server-memory"}}, "", false},
		"a name that begins alike":    {Server{Command: []string{"npx", "-y", memory + "-x"}}, "", false},
		"another source":              {Server{Command: []string{"npx", "-y", memory + "@npm:evil"}}, "", false},
		"an option of npx":            {Server{Command: []string{"npx", "--registry=https://evil.example", memory}}, "", false},
		"an option of node":           {Server{Command: []string{"node", "--require=./x.js", "node_modules/" + memory + "/dist/index.js"}}, "", false},
		"a node of the project":       {Server{Command: []string{"./bin/node", "node_modules/" + memory + "/dist/index.js"}}, "", false},
		"a package below the package": {Server{Command: []string{"node", "node_modules/" + memory + "/node_modules/evil/index.js"}}, "", false},
		"out of the package again":    {Server{Command: []string{"node", "node_modules/" + memory + "/../../../evil.js"}}, "", false},
		"no file of the package":      {Server{Command: []string{"node", "node_modules/" + memory}}, "", false},
		"a file of that name":         {Server{Command: []string{"node", "server-memory/index.js"}}, "", false},
		"a shell":                     {Server{Command: []string{"sh", "-c", "npx -y " + memory}}, "", false},
		"a variable for node":         {Server{Command: []string{"npx", "-y", memory}, Env: map[string]string{"NODE_OPTIONS": "--require=./x.js"}}, "", false},
		"a variable for npm":          {Server{Command: []string{"npx", "-y", memory}, Env: map[string]string{"npm_config_registry": "https://evil.example"}}, "", false},
		"a variable for the loader":   {Server{Command: []string{"npx", "-y", memory}, Env: map[string]string{"LD_PRELOAD": "./x.so"}}, "", false},
		"a cache of compiled code":    {Server{Command: []string{"npx", "-y", memory}, Env: map[string]string{"NODE_COMPILE_CACHE": "./c"}}, "", false},
		"a configuration of OpenSSL":  {Server{Command: []string{"npx", "-y", memory}, Env: map[string]string{"OPENSSL_CONF": "./c"}}, "", false},
		"another PATH":                {Server{Command: []string{"npx", "-y", memory}, Env: map[string]string{"PATH": "."}}, "", false},
		"its own variables":           {Server{Command: []string{"npx", "-y", memory}, Env: map[string]string{"MEMORY_FILE_PATH": "m.json"}}, "memory", true},
		"a host without TLS":          {Server{URL: "http://mcp.context7.com/mcp"}, "", false},
		"a host at another port":      {Server{URL: "https://mcp.context7.com:8443/mcp"}, "", false},
		"a user in front of the host": {Server{URL: "https://mcp.context7.com@evil.example/"}, "", false},
		"a host that ends alike":      {Server{URL: "https://evil-mcp.context7.com.example/"}, "", false},
		"a host below it":             {Server{URL: "https://x.mcp.context7.com/"}, "", false},
		"nothing":                     {Server{}, "", false},
	} {
		m, err := For(c.server)
		got := ""
		if err == nil {
			got = m.ID
		}
		if got != c.want || err == nil && m.Fetched != c.fetched {
			t.Errorf("%s: %q (fetched %v), want %q (%v): %v", name, got, err == nil && m.Fetched, c.want, c.fetched, err)
		}
	}
}

// TestParseRefuses: an entry is read whole, or not at all.
func TestParseRefuses(t *testing.T) {
	const good = "server: X\npackages: [x]\nversion: \"1\"\ntested: stub\nsandbox: full\negress: none\nunasked: nothing\noperations:\n  a: {level: 2}\ndefinitions:\n  a: [14a58b0dee37f4d4b3982c5d3eda734acbe407fd7a3fc90154154618bddc1741]\n"
	if _, err := Parse("x", []byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"an unknown key":                  {"egress: none", "egress: none\nextra: x"},
		"no package":                      {"[x]", "[]"},
		"an unknown word for tested":      {"tested: stub", "tested: yes"},
		"an unknown sandbox":              {"sandbox: full", "sandbox: none"},
		"partial without a reason":        {"sandbox: full", "sandbox: partial"},
		"nothing said of what runs":       {"unasked: nothing", "unasked: \"\""},
		"a hash that is none":             {"14a58b", "zzzzzz"},
		"a label without a definition":    {"  a: {level: 2}", "  a: {level: 2}\n  b: {level: 2}"},
		"a tool with and without a label": {"operations:", "unlabelled: {a: why}\noperations:"},
		"a tool that nobody mentions":     {"definitions:", "definitions:\n  b: [14a58b0dee37f4d4b3982c5d3eda734acbe407fd7a3fc90154154618bddc1741]"},
		"a reason for no tool":            {"operations:", "trusts: {b: why}\noperations:"},
		"the same key twice":              {"egress: none", "egress: none\negress: any"},
	} {
		text := strings.Replace(good, change[0], change[1], 1)
		if e, err := Parse("x", []byte(text)); err == nil {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// TestPage holds the table of docs/labels.md to the entries.
func TestPage(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "labels.md"))
	if err != nil {
		t.Fatal(err)
	}
	tools := 0
	var rows []string
	for _, e := range all {
		tools += len(e.Definitions)
		sandbox := e.Sandbox
		if e.Egress == "any" {
			sandbox += ", network"
		}
		if e.Confined != "" {
			sandbox += ": " + e.Confined
		}
		name := "`" + e.Packages[0] + "`"
		for _, host := range e.Hosts {
			name += ", `" + host + "`"
		}
		rows = append(rows, "| "+strings.Join([]string{e.Server, name, e.Version, e.Tested, sandbox, strings.TrimSpace(e.Unasked)}, " | ")+" |")
	}
	slices.Sort(rows)
	want := strings.Join(rows, "\n") + "\n"
	_, table, _ := strings.Cut(string(b), "| server | package | version | tested | sandbox | runs unasked |\n|---|---|---|---|---|---|\n")
	if table != want {
		t.Errorf("the table of docs/labels.md should be:\n%s", want)
	}
	if count := fmt.Sprintf("%d servers, %d tools.", len(all), tools); !strings.Contains(string(b), count) {
		t.Errorf("docs/labels.md should say: %s", count)
	}
}

func TestHosts(t *testing.T) {
	s := Server{Command: []string{"x", "postgres://u:p@db.example:5432/d?a=b", "http://localhost:1", "http://[::1]:2", "http://127.0.0.1", "--url=https://A.example/x", "postgres://one.example,two.example/d", "http://[2001:db8::1]:8/", "mongodb://localhost:1,Hidden.example:2/d",
		"--host", "flag.example", "--host=localhost", "--verbose", "no.host"},
		Env: map[string]string{"API": "https://u@evil.example", "PATH": "/usr/bin:/bin", "REDIS_HOST": "redis.example:6379", "PGHOST": "127.0.0.1", "NAME": "no.host"}}
	if got := strings.Join(s.Hosts(), " "); got != "2001:db8::1 a.example db.example evil.example flag.example hidden.example one.example redis.example two.example" {
		t.Error(got)
	}
	if (Server{URL: "https://a.example"}).Hosts() != nil {
		t.Error("a server that is reached by a url names hosts")
	}
}
