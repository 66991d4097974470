// Package test holds the tests of the whole: the structure of the house here, and end-to-end tests against the real binary,
// real MCP servers and a real browser in the packages below.
package test

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// house is who may import whom inside the module (docs/design.md, "The house"). A package that is not here fails the test: think
// about where it stands, then add it.
var house = map[string][]string{
	"flow":              {"internal/sentence"},
	"provenance":        {"flow", "internal/sentence"},
	"guard":             {},
	"client":            {},
	"internal/sentence": {},
	"internal/fault":    {},
	"internal/identity": {"internal/fault"},
	"internal/call":     {"internal/fault", "internal/identity"},
	"internal/audit":    {"internal/fault", "internal/identity", "internal/call"},
	"internal/session":  {"flow", "provenance", "internal/fault", "internal/identity", "internal/call", "internal/audit"},
	"internal/agent":    {"internal/fault", "internal/identity", "internal/call", "internal/audit"},
	"internal/policy":   {"internal/fault", "internal/identity", "internal/call", "internal/audit"},
	"internal/limit":    {"internal/fault", "internal/identity", "internal/call", "internal/audit"},
	"internal/threat":   {"internal/fault", "internal/identity", "internal/call", "internal/audit"},
	"internal/declare":  {"internal/fault", "internal/identity", "internal/call"},
	"internal/approval": {"internal/fault", "internal/identity", "internal/call"},
	"internal/egress":   {"internal/fault"},
	"internal/sandbox":  {"internal/fault"},
	// comm is the operations in the one form that the gateway takes; each of its packages does one kind of work and knows no guard.
	"internal/comm":        {"flow", "internal/fault", "internal/call", "internal/catalogue", "internal/gateway", "internal/egress", "internal/sandbox", "internal/comm/fetch", "internal/comm/search", "internal/comm/query", "internal/comm/files", "internal/comm/exec"},
	"internal/comm/fetch":  {"internal/fault", "internal/call", "internal/egress"},
	"internal/comm/search": {"internal/fault", "internal/call"},
	"internal/comm/query":  {"internal/fault", "internal/call", "internal/threat"},
	"internal/comm/files":  {"internal/fault", "internal/call", "internal/threat", "internal/sandbox"},
	"internal/comm/exec":   {"internal/fault", "internal/call", "internal/sandbox"},
	// reading tells what a tool's call may do besides, statement what a text of SQL is.
	"internal/statement": {},
	"internal/reading":   {"provenance", "internal/statement"},
	"internal/judge":     {"flow", "provenance", "internal/declare", "internal/approval", "internal/fault", "internal/session", "internal/agent", "internal/policy"},
	// catalogue and standing are what the corridor looks up: what can be called, and who may call. Neither knows of the other.
	"internal/catalogue": {"flow", "provenance", "internal/fault", "internal/call", "internal/audit", "internal/agent", "internal/policy", "internal/threat", "internal/reading"},
	"internal/standing":  {"internal/fault", "internal/identity", "internal/call", "internal/audit", "internal/agent"},
	"internal/gateway":   {"flow", "provenance", "guard", "internal/declare", "internal/approval", "internal/fault", "internal/identity", "internal/call", "internal/audit", "internal/session", "internal/agent", "internal/policy", "internal/judge", "internal/limit", "internal/threat", "internal/catalogue", "internal/standing"},
	"internal/notify":    {"internal/fault", "internal/threat"},
	"internal/store":     {"internal/catalogue", "internal/standing", "flow", "internal/notify", "internal/declare", "internal/approval", "internal/fault", "internal/identity", "internal/call", "internal/audit", "internal/session", "internal/gateway"},
	"internal/upstream":  {"internal/fault", "internal/identity", "internal/call", "internal/threat", "internal/gateway", "internal/sandbox", "internal/egress"},
	"internal/mcpapi":    {"flow", "internal/declare", "internal/fault", "internal/identity", "internal/call", "internal/audit", "internal/session", "internal/catalogue", "internal/gateway", "internal/threat"},
	"internal/console":   {"flow", "provenance", "internal/approval", "internal/agent", "internal/policy", "internal/fault", "internal/identity", "internal/call", "internal/audit", "internal/session", "internal/catalogue", "internal/standing", "internal/gateway", "internal/threat"},
	"internal/httpapi":   {"flow", "internal/declare", "internal/approval", "internal/fault", "internal/identity", "internal/call", "internal/audit", "internal/session", "internal/agent", "internal/catalogue", "internal/standing", "internal/gateway", "internal/threat", "internal/console"},
	"internal/suggest":   {"flow", "provenance", "internal/call", "internal/threat"},
	"internal/connect":   {"internal/fault", "internal/call"},
	// replay judges recorded work by the rules that the gateway enforces, and enforces nothing.
	"internal/replay": {"flow", "provenance", "internal/fault", "internal/call", "internal/audit", "internal/session", "internal/approval", "internal/threat", "internal/catalogue", "internal/gateway", "internal/store"},
	"internal/daemon": {"*"},
	"internal/demo":   {"client", "internal/daemon", "internal/threat", "internal/audit", "internal/fault", "internal/gateway"},
	"cmd/sallyport":   {"client", "internal/sandbox", "internal/audit", "internal/agent", "internal/connect", "internal/daemon", "internal/demo", "internal/fault", "internal/identity", "internal/store", "internal/threat", "internal/gateway", "internal/replay", "internal/standing", "internal/suggest"},
	"test":            {"*"},
	"test/bench":      {},
}

// outside is which packages may import a third-party module. Whatever is not listed may be imported by nobody but tests.
var outside = map[string][]string{
	"github.com/modelcontextprotocol/go-sdk":          {"internal/mcpapi", "internal/upstream", "internal/demo", "test/bench"},
	"github.com/cedar-policy/cedar-go":                {"internal/policy"},
	"modernc.org/sqlite":                              {"internal/store", "internal/comm/query"},
	"modernc.org/libc":                                {"internal/comm/query"},
	"database/sql":                                    {"internal/store", "internal/comm/query"},
	"github.com/jackc/pgx/v5":                         {"internal/comm/query"},
	"code.dny.dev/ssrf":                               {"internal/egress"},
	"github.com/JohannesKaufmann/html-to-markdown/v2": {"internal/comm/fetch"},
	"golang.org/x/net":                                {"internal/egress", "internal/comm/fetch"},
	"github.com/coreos/go-oidc/v3":                    {"internal/console"},
	"golang.org/x/oauth2":                             {"internal/console"},
	"github.com/chromedp":                             {},
	"github.com/danielgtaylor/huma/v2":                {"internal/httpapi"},
	"github.com/santhosh-tekuri/jsonschema/v6":        {"internal/upstream", "internal/agent"},
	"github.com/google/jsonschema-go":                 {"internal/daemon", "internal/mcpapi"},
	"github.com/spf13/cobra":                          {"cmd/sallyport"},
	"github.com/spf13/pflag":                          {"cmd/sallyport"},
	"go.yaml.in/yaml/v4":                              {"internal/agent", "internal/daemon", "cmd/sallyport"},
	"golang.org/x/mod":                                {"internal/audit", "internal/store", "internal/httpapi"},
	"golang.org/x/sync":                               {"internal/upstream", "internal/store", "internal/mcpapi"},
	"golang.org/x/sys":                                {"internal/store", "internal/upstream", "internal/sandbox", "internal/comm/files", "internal/comm/exec"},
	"golang.org/x/time":                               {"internal/upstream"},
	"golang.org/x/text":                               {"internal/call", "internal/threat", "internal/declare", "internal/egress", "internal/comm/fetch", "internal/comm/files", "internal/comm/search"},
	"golang.org/x/term":                               {"cmd/sallyport", "internal/demo"},
	"github.com/zricethezav/gitleaks/v8":              {"internal/threat"},
	"github.com/wasilibs/go-pgquery":                  {"internal/statement"},
}

func TestHouse(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "sallyport.example/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	seen := 0
	for dec.More() {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		seen++
		name := strings.TrimPrefix(p.ImportPath, "sallyport.example/")
		room := name
		if strings.HasPrefix(name, "test/") && house[name] == nil {
			room = "test"
		}
		allowed, known := house[room]
		if !known {
			t.Errorf("%s has no place in the house: add it to the table with who it may import", name)
			continue
		}
		for _, imp := range p.Imports {
			if inside, ok := strings.CutPrefix(imp, "sallyport.example/"); ok {
				if !slices.Contains(allowed, inside) && !slices.Contains(allowed, "*") {
					t.Errorf("%s imports %s, which the house does not allow", name, inside)
				}
				continue
			}
			for module, who := range outside {
				if (imp == module || strings.HasPrefix(imp, module+"/")) && !slices.Contains(who, name) && room != "test" {
					t.Errorf("%s imports %s; only %s may", name, imp, strings.Join(who, ", "))
				}
			}
			if first, _, _ := strings.Cut(imp, "/"); strings.Contains(first, ".") {
				known := false
				for module := range outside {
					known = known || imp == module || strings.HasPrefix(imp, module+"/")
				}
				if !known && room != "test" {
					t.Errorf("%s imports %s, a module that no package was given", name, imp)
				}
			}
			if (name == "flow" || name == "provenance" || name == "guard") && strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") {
				t.Errorf("%s is public and pure; it imports %s", name, imp)
			}
		}
	}
	if seen < 10 {
		t.Fatalf("only %d packages were looked at", seen)
	}
}
