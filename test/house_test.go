// Package test holds the tests of the whole: the structure of the house here, and end-to-end tests against the real binary,
// real MCP servers and a real browser in the packages below.
package test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the imports in docs/design.md anew")

const module = "sallyport.example/"

// outside is which packages may import a third-party module. Whatever is not listed may be imported by nobody but tests.
var outside = map[string][]string{
	"github.com/modelcontextprotocol/go-sdk":          {"internal/mcpapi", "internal/upstream", "internal/demo", "lab/bench", "lab/benign"},
	"github.com/cedar-policy/cedar-go":                {"internal/policy"},
	"modernc.org/sqlite":                              {"internal/store", "internal/segment", "internal/comm/query", "internal/knowledge/shelf", "internal/search"},
	"modernc.org/libc":                                {"internal/comm/query"},
	"database/sql":                                    {"internal/store", "internal/segment", "internal/comm/query", "internal/knowledge/shelf", "internal/search"},
	"github.com/jackc/pgx/v5":                         {"internal/comm/query"},
	"code.dny.dev/ssrf":                               {"internal/egress"},
	"github.com/JohannesKaufmann/html-to-markdown/v2": {"internal/comm/fetch"},
	"golang.org/x/net":                                {"internal/egress", "internal/comm/fetch", "internal/knowledge/claims"},
	"github.com/coreos/go-oidc/v3":                    {"internal/console"},
	"golang.org/x/oauth2":                             {"internal/console"},
	"github.com/chromedp":                             {},
	"github.com/danielgtaylor/huma/v2":                {"internal/httpapi"},
	"github.com/santhosh-tekuri/jsonschema/v6":        {"internal/schema", "internal/agent"},
	"github.com/google/jsonschema-go":                 {"internal/daemon", "internal/mcpapi"},
	"github.com/spf13/cobra":                          {"cmd/sallyport"},
	"github.com/spf13/pflag":                          {"cmd/sallyport"},
	"go.yaml.in/yaml/v4":                              {"internal/agent", "internal/daemon", "internal/labels", "cmd/sallyport"},
	"github.com/pelletier/go-toml/v2":                 {"internal/clients"},
	"github.com/prometheus/client_golang":             {"internal/metrics"},
	"golang.org/x/mod":                                {"internal/audit", "internal/store", "internal/httpapi", "internal/anchor"},
	"golang.org/x/sync":                               {"internal/upstream", "internal/store", "internal/mcpapi"},
	"golang.org/x/sys":                                {"cmd/sallyport", "internal/store", "internal/upstream", "internal/sandbox", "internal/comm/files", "internal/comm/exec"},
	"golang.org/x/time":                               {"internal/upstream"},
	"golang.org/x/text":                               {"provenance", "internal/call", "internal/threat", "internal/screen", "internal/declare", "internal/egress", "internal/project", "internal/comm/fetch", "internal/comm/files", "internal/comm/search", "internal/knowledge"},
	"github.com/ledongthuc/pdf":                       {"internal/knowledge/extract"},
	"github.com/zricethezav/gitleaks/v8":              {"internal/threat"},
	"github.com/wasilibs/go-pgquery":                  {"internal/statement"},
}

// room is a package as "The house" of docs/design.md has it.
type room struct {
	holds   string
	imports string // names without internal/, sorted, or "any"
	line    int    // of the picture, 0 if it is not there
}

var roomName = regexp.MustCompile("^`[a-z/]+`$")

// rooms reads the house's table and picture.
func rooms(t *testing.T) map[string]*room {
	t.Helper()
	_, section, _ := strings.Cut(read(t, "docs/design.md"), "\n## The house\n")
	all := map[string]*room{}
	for _, row := range rows(section, roomName) {
		name := strings.Trim(row[0], "`")
		if len(row) != 3 || row[1] == "" || all[name] != nil {
			t.Errorf("docs/design.md: %s is there twice, or its row does not say what it holds and imports", name)
			continue
		}
		all[name] = &room{holds: row[1], imports: row[2]}
	}
	_, picture, _ := strings.Cut(section, "```text\n")
	picture, _, _ = strings.Cut(picture, "```")
	caption := regexp.MustCompile(`\([^)]*\)`)
	word := regexp.MustCompile(`[a-z][a-z/]+`)
	for i, line := range strings.Split(picture, "\n") {
		for _, name := range word.FindAllString(caption.ReplaceAllString(line, ""), -1) {
			r := all["internal/"+name]
			if r == nil {
				r = all[name]
			}
			if r == nil || r.line != 0 {
				t.Errorf("docs/design.md: %s is twice in the picture of the house, or has no row in its table", name)
				continue
			}
			r.line = i + 1
		}
	}
	return all
}

// imports are the packages of this module with what they import, but for what only tests import.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string][]string{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all[strings.TrimPrefix(p.ImportPath, module)] = p.Imports
	}
	if len(all) < 10 {
		t.Fatalf("only %d packages were found", len(all))
	}
	return all
}

// The table and the picture of docs/design.md are the house as it stands: every package is there, imports what its row says, and only
// what stands on a lower line of the picture.
func TestHouse(t *testing.T) {
	house, code := rooms(t), imports(t)
	actual := map[string]string{}
	for name, imported := range code {
		r := house[name]
		if r == nil && strings.HasPrefix(name, "test/") {
			continue // the row of test speaks for them
		}
		if r == nil {
			t.Errorf("%s has no place in the house: give it a row and a place in the picture of docs/design.md", name)
			continue
		}
		if r.line == 0 && !strings.HasPrefix(name, "test") {
			t.Errorf("%s is not in the picture of docs/design.md", name)
		}
		var inside []string
		for _, i := range imported {
			other, ok := strings.CutPrefix(i, module)
			if !ok {
				continue
			}
			inside = append(inside, strings.TrimPrefix(other, "internal/"))
			if strings.HasSuffix(other, "test") {
				t.Errorf("%s imports %s, which only tests may", name, other)
			}
			if below := house[other]; below != nil && r.line != 0 && below.line <= r.line {
				t.Errorf("%s imports %s, which does not stand below it in the picture of docs/design.md", name, other)
			}
		}
		slices.Sort(inside)
		actual[name] = strings.Join(inside, ", ")
		if r.imports != "any" && r.imports != actual[name] && !*update {
			t.Errorf("%s imports %q; docs/design.md says %q (\"make house\" writes what is, if it should be)", name, actual[name], r.imports)
		}
	}
	for name := range house {
		if _, ok := code[name]; !ok {
			t.Errorf("docs/design.md has a row for %s, which is no package", name)
		}
	}
	if *update {
		writeImports(t, actual)
	}
}

// writeImports puts the imports into the third column of the table of docs/design.md, but where that says "any".
func writeImports(t *testing.T, actual map[string]string) {
	t.Helper()
	lines := strings.Split(read(t, "docs/design.md"), "\n")
	for i, line := range lines {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !roomName.MatchString(strings.TrimSpace(cells[1])) || strings.TrimSpace(cells[3]) == "any" {
			continue
		}
		if list, ok := actual[strings.Trim(cells[1], " `")]; ok {
			lines[i] = strings.TrimSuffix("|"+cells[1]+"|"+cells[2]+"| "+list, " ") + " |"
		}
	}
	if err := os.WriteFile(filepath.Join(repository, "docs/design.md"), []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Modules from outside are imported by the packages that were given them, and by none of the public ones.
func TestModulesFromOutside(t *testing.T) {
	for name, imported := range imports(t) {
		if strings.HasPrefix(name, "test") {
			continue
		}
		for _, i := range imported {
			first, _, _ := strings.Cut(i, "/")
			known := strings.HasPrefix(i, module) || !strings.Contains(first, ".")
			for from, who := range outside {
				if i == from || strings.HasPrefix(i, from+"/") {
					known = true
					if !slices.Contains(who, name) {
						t.Errorf("%s imports %s; only %s may", name, i, strings.Join(who, ", "))
					}
				}
			}
			if !known {
				t.Errorf("%s imports %s, a module that no package was given", name, i)
			}
		}
	}
}
