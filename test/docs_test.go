package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/daemon"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
)

// repository is the root of this module, as seen from this package.
const repository = ".."

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// pages are the documents by their path in the repository.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, name := range []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md"} {
		all[name] = read(t, name)
	}
	for _, f := range found {
		name := "docs/" + filepath.Base(f)
		all[name] = read(t, name)
	}
	return all
}

// rows are the table rows of a page whose first cell matches, cell by cell.
func rows(page string, first *regexp.Regexp) (all [][]string) {
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if first.MatchString(cells[0]) {
			all = append(all, cells)
		}
	}
	return all
}

var requirementID = regexp.MustCompile(`^[A-Z]{2}-[0-9]+$`)

// Every requirement has one row in guardrails.md, and its state is told in one of three words.
func TestGuardrailsCoverEveryRequirement(t *testing.T) {
	guardrails := read(t, "docs/guardrails.md")
	there := map[string]bool{}
	for _, row := range rows(guardrails, requirementID) {
		id := row[0]
		if len(row) != 5 {
			t.Fatalf("%s has %d columns", id, len(row))
		}
		if there[id] {
			t.Errorf("%s is there twice", id)
		}
		there[id] = true
		state, _, _ := strings.Cut(row[4], ":")
		switch state {
		case "held":
			if row[2] == "" || row[3] == "" {
				t.Errorf("%s is held, but by what or by which proof is not said", id)
			}
		case "partly":
			if row[2] == "" || row[4] == state {
				t.Errorf("%s is held in part, but by what, or which part, is not said", id)
			}
		case "later":
			if row[4] == state {
				t.Errorf("%s comes later, but not with what", id)
			}
		default:
			t.Errorf("%s: %q is not one of held, partly, later", id, state)
		}
	}
	const source = "../shared/requirements/REQUIREMENTS.md"
	b, err := os.ReadFile(filepath.Join(repository, source))
	if err != nil {
		t.Skipf("not checked: %s is not here, so the rows can't be compared with it", source)
	}
	required := rows(string(b), requirementID)
	if len(required) < 50 {
		t.Fatalf("only %d requirements were found", len(required))
	}
	for _, row := range required {
		if !there[row[0]] {
			t.Errorf("%s has no row in docs/guardrails.md: %s", row[0], row[1])
		}
		delete(there, row[0])
	}
	for id := range there {
		if !strings.HasPrefix(id, "PV-") { // the rules of docs/flow.md are the product's own
			t.Errorf("%s is no requirement", id)
		}
	}
}

// In guardrails.md code is named as `path: Symbol, Type.Method`. In other pages paths stand alone in backticks.
var named = regexp.MustCompile("`([^`\n]+)`")

// Every file, symbol and test that guardrails.md names exists.
func TestGuardrailsNameWhatExists(t *testing.T) {
	checked := 0
	for _, row := range rows(read(t, "docs/guardrails.md"), requirementID) {
		for column, cell := range row[2:4] {
			for _, m := range named.FindAllStringSubmatch(cell, -1) {
				file, names, ok := strings.Cut(m[1], ": ")
				if !ok {
					if column == 1 {
						t.Errorf("%s: `%s` does not name a test in a file", row[0], m[1])
					}
					continue
				}
				if isTest := strings.HasSuffix(file, "_test.go"); isTest != (column == 1) {
					t.Errorf("%s: %s is in the wrong column", row[0], file)
				}
				text, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(file)))
				if err != nil {
					t.Errorf("%s: %v", row[0], err)
					continue
				}
				symbols := map[string]bool{}
				if strings.HasSuffix(file, ".go") {
					symbols = declared(t, file, text)
				}
				for name := range strings.SplitSeq(names, ", ") {
					checked++
					if strings.HasSuffix(file, ".go") && !symbols[name] || !strings.Contains(string(text), name[strings.LastIndex(name, ".")+1:]) {
						t.Errorf("%s: there is no %s in %s", row[0], name, file)
					}
				}
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d names were checked", checked)
	}
}

// declared are the top-level names of a Go file; methods as Type.Method.
func declared(t *testing.T, file string, text []byte) map[string]bool {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				receiver := d.Recv.List[0].Type
				if star, ok := receiver.(*ast.StarExpr); ok {
					receiver = star.X
				}
				if generic, ok := receiver.(*ast.IndexExpr); ok {
					receiver = generic.X
				}
				name = receiver.(*ast.Ident).Name + "." + name
			}
			names[name] = true
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = true
				case *ast.ValueSpec:
					for _, n := range s.Names {
						names[n.Name] = true
					}
				}
			}
		}
	}
	return names
}

// configuration.md has a row for every key of sallyport.yaml and every field of a declaration, and for nothing else.
func TestConfigurationIsComplete(t *testing.T) {
	page := read(t, "docs/configuration.md")
	guardrails := read(t, "docs/guardrails.md")
	file, declaration, ok := strings.Cut(page, "\n## Agent declarations\n")
	if !ok {
		t.Fatal("there is no section on agent declarations")
	}
	for _, c := range []struct {
		part string
		of   reflect.Type
		tag  string
	}{{file, reflect.TypeFor[daemon.Config](), "yaml"}, {declaration, reflect.TypeFor[agent.Declaration](), "json"}} {
		want := map[string]bool{}
		keys(c.of, c.tag, "", want)
		delete(want, "run.files") // no declaration says it: the gateway fills it in
		if len(want) < 20 {
			t.Fatalf("only %d keys were found in %s", len(want), c.of)
		}
		for _, row := range rows(c.part, regexp.MustCompile("^`[^`]+`$")) {
			key := strings.Trim(row[0], "`")
			if !want[key] {
				t.Errorf("%s is there twice, or is no key of %s", key, c.of)
			}
			delete(want, key)
			if len(row) != 5 || row[1] == "" || row[3] == "" {
				t.Errorf("%s: a row says type, default, meaning and rule", key)
				continue
			}
			for id := range strings.SplitSeq(row[4], ", ") {
				if id != "" && !strings.Contains(guardrails, "\n| "+id+" |") {
					t.Errorf("%s: %q is no rule of docs/guardrails.md", key, id)
				}
			}
		}
		for key := range want {
			t.Errorf("%s of %s has no row in docs/configuration.md", key, c.of)
		}
	}
}

// configuration.md has the built-in trust tiers as the gateway has them.
func TestTiersAreDocumented(t *testing.T) {
	want := gateway.Tiers()
	section := regexp.MustCompile(`(?s)\n### trust_tiers\n.*?\n### `).FindString(read(t, "docs/configuration.md"))
	for _, row := range rows(section, regexp.MustCompile(`^[a-z]+$`)) {
		if row[0] == "tier" || row[0] == "key" {
			continue
		}
		tier, ok := want[row[0]]
		if !ok || len(row) != 5 {
			t.Errorf("%s is no built-in tier, is there twice, or has not five columns", row[0])
			continue
		}
		delete(want, row[0])
		shown := func(v any) string { // the zero value is the limit of everybody
			if reflect.ValueOf(v).IsZero() {
				return ""
			}
			return fmt.Sprint(v)
		}
		if is := []string{shown(tier.CommRequestsPerMinute), shown(tier.CallsPerMinute), shown(tier.Budget), shown(tier.AskFrom)}; !slices.Equal(is, row[1:]) {
			t.Errorf("%s is documented as %q and is %q", row[0], row[1:], is)
		}
	}
	for name := range want {
		t.Errorf("the tier %s has no row", name)
	}
}

// errors.md has a row for every code with the statuses that both edges give it and a way out, and for nothing else. Reserved are the codes
// that nothing gives.
func TestErrorCodesAreDocumented(t *testing.T) {
	given := givenCodes(t)
	want := map[string]fault.Code{}
	for _, c := range fault.Codes() {
		want["`"+string(c)+"`"] = c
	}
	_, page, _ := strings.Cut(read(t, "docs/errors.md"), "\n## Switches, agents and sessions\n") // above it are the fields of a verdict
	for _, row := range rows(page, regexp.MustCompile("^`[a-z_.]+`$")) {
		code, ok := want[row[0]]
		if !ok || len(row) != 6 {
			t.Errorf("%s is no code, is there twice, or has not six columns", row[0])
			continue
		}
		delete(want, row[0])
		again := "no"
		if code.Retriable() {
			again = "yes"
		}
		if is := []string{strconv.Itoa(code.HTTPStatus()), strconv.FormatInt(code.RPCCode(), 10), again}; !slices.Equal(is, row[1:4]) {
			t.Errorf("%s is documented as %q and is %q", code, row[1:4], is)
		}
		if row[4] == "" || row[5] == "" {
			t.Errorf("%s: what it means, or the way out, is not said", code)
		}
		if reserved := strings.HasPrefix(row[4], "reserved: "); reserved == given[code] {
			t.Errorf("%s is documented as reserved: %v; the gateway gives it: %v", code, reserved, given[code])
		}
	}
	for code := range want {
		t.Errorf("the code %s has no row in docs/errors.md", code)
	}
}

// givenCodes are the codes that the program names outside of their list and of tests.
func givenCodes(t *testing.T) map[fault.Code]bool {
	t.Helper()
	names := map[string]fault.Code{}
	for _, m := range regexp.MustCompile(`(?m)^\s+(\w+) +Code = "([a-z_.]+)"`).FindAllStringSubmatch(read(t, "internal/fault/fault.go"), -1) {
		names[m[1]] = fault.Code(m[2])
	}
	if len(names) != len(fault.Codes()) {
		t.Fatalf("%d names of %d codes were found", len(names), len(fault.Codes()))
	}
	given := map[fault.Code]bool{}
	use := regexp.MustCompile(`\bfault\.([A-Z]\w*)`)
	err := filepath.WalkDir(filepath.Join(repository, "internal"), func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") || d.Name() == "severity.go" { // that sorts codes into events
			return err
		}
		text, err := os.ReadFile(file)
		for _, m := range use.FindAllSubmatch(text, -1) {
			given[names[string(m[1])]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return given
}

// keys collects the names that the struct's fields have in a file, with those of structs inside: a.b, a[].b for lists, a.*.b for maps.
func keys(of reflect.Type, tag, prefix string, into map[string]bool) {
	for _, f := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(f.Tag.Get(tag), ",")
		if name == "" || name == "-" {
			continue
		}
		into[prefix+name] = true
		at, inner := prefix+name, f.Type
		for done := false; !done; {
			switch inner.Kind() {
			case reflect.Pointer:
				inner = inner.Elem()
			case reflect.Slice:
				at, inner = at+"[]", inner.Elem()
			case reflect.Map:
				at, inner = at+".*", inner.Elem()
			default:
				done = true
			}
		}
		if inner.Kind() == reflect.Struct {
			keys(inner, tag, at+".", into)
		}
	}
}

// Each attack of mcp-attacks.md is held, or its row names what is left by the words that begin it in the threat model; the page's sum counts them.
func TestMCPAttacksNameWhatIsLeft(t *testing.T) {
	page := read(t, "docs/mcp-attacks.md")
	_, remains, _ := strings.Cut(read(t, "docs/threat-model.md"), "\n## What remains\n")
	left := regexp.MustCompile(`what is left: \[([^\]]+)\]\(threat-model\.md#what-remains\)$`)
	held, part := 0, 0
	for _, row := range rows(page, regexp.MustCompile(`^mcp-[0-9]+$`)) {
		if len(row) != 5 {
			t.Errorf("the row %s has %d cells", row[0], len(row))
			continue
		}
		switch row[3] {
		case "held":
			held++
		case "held, in part":
			part++
			if m := left.FindStringSubmatch(row[4]); m == nil {
				t.Errorf("%s says not what is left", row[0])
			} else if !strings.Contains(remains, "\n- **"+m[1]) {
				t.Errorf("%s: the threat model has nothing that begins with %q under What remains", row[0], m[1])
			}
		default:
			t.Errorf("%s has the outcome %q", row[0], row[3])
		}
	}
	if sum := fmt.Sprintf("Of %d cases %d hold and %d hold in part", held+part, held, part); !strings.Contains(page, sum) {
		t.Errorf("docs/mcp-attacks.md does not say: %s", sum)
	}
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// Relative links lead somewhere, to a section that is there if they name one, and files that are named in backticks by their path exist.
func TestDocumentsLeadSomewhere(t *testing.T) {
	pathLike := regexp.MustCompile(`^(cmd|docs|flow|provenance|guard|client|internal|lab|test|\.ci)/[\w./-]*$`)
	for name, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(page, -1) {
			target, section, _ := strings.Cut(m[1], "#")
			if strings.Contains(m[1], "://") {
				continue
			}
			to := name
			if target != "" {
				to = path.Join(path.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join(repository, to)); err != nil {
				t.Errorf("%s: the link to %s is broken", name, m[1])
			} else if section != "" && !slices.Contains(anchors(read(t, to)), section) {
				t.Errorf("%s: the link to %s leads to no section", name, m[1])
			}
		}
		for _, m := range named.FindAllStringSubmatch(page, -1) {
			if !pathLike.MatchString(m[1]) {
				continue
			}
			if _, err := os.Stat(filepath.Join(repository, m[1])); err != nil {
				t.Errorf("%s: there is no %s", name, m[1])
			}
		}
	}
}

// anchors are the names by which links reach the headings of a page: in lower case, without punctuation, with hyphens for blanks.
func anchors(page string) (all []string) {
	page = regexp.MustCompile("(?s)```.*?\n *```").ReplaceAllString(page, "")
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(name, " ", "-"))
	}
	return all
}

// cited is what a comment or a page cites as a document: a file of docs, or one in capitals as README.md, with its numbered rule or its section.
var cited = regexp.MustCompile(`\b(docs/[\w.-]+\.(?:md|json)|[A-Z]{4,}\.md)(?:,? rule ([0-9]+)|, "([^"]+)")?`)

// What comments and pages cite is in the repository: the document, the rule of docs/design.md by its number, and the section. Nothing is
// cited by a number of a list that only its author has.
func TestCitedDocumentsExist(t *testing.T) {
	_, rest, _ := strings.Cut(read(t, "docs/design.md"), "\n## Rules that are not negotiable\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	rules := len(regexp.MustCompile(`(?m)^[0-9]+\. `).FindAllString(section, -1))
	if rules < 10 {
		t.Fatalf("only %d rules were found in docs/design.md", rules)
	}
	caseID := regexp.MustCompile(`\b(mcp|appr|fault)-[0-9]{3}\b`)
	checked := 0
	check := func(where, text string) {
		for _, m := range cited.FindAllStringSubmatch(text, -1) {
			checked++
			file, err := os.ReadFile(filepath.Join(repository, m[1]))
			if err != nil {
				t.Errorf("%s cites %s, which is not in the repository", where, m[1])
				continue
			}
			if m[2] != "" {
				if n, _ := strconv.Atoi(m[2]); n < 1 || n > rules {
					t.Errorf("%s cites rule %s; docs/design.md has %d", where, m[2], rules)
				}
			}
			if m[3] != "" && !regexp.MustCompile(`(?m)^#+ `+regexp.QuoteMeta(m[3])+`$`).Match(file) {
				t.Errorf("%s cites the section %q of %s, which has none of that name", where, m[3], m[1])
			}
		}
	}
	for name, page := range pages(t) {
		check(name, page)
	}
	for name, comments := range goComments(t) {
		for _, c := range comments {
			check(name, c)
			if id := caseID.FindString(c); id != "" && !strings.HasSuffix(name, "_test.go") {
				t.Errorf("%s cites %s: say the case in words", name, id)
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d citations were checked", checked)
	}
}

// goComments are the comments of every Go file, by the file's path; each is one line of text, however it is broken.
func goComments(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	err := filepath.WalkDir(repository, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name == "bin" || name == "node_modules" || name == "testdata" || strings.HasPrefix(name, ".") && name != ".." {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(repository, file)
		for _, c := range parsed.Comments {
			all[filepath.ToSlash(name)] = append(all[filepath.ToSlash(name)], strings.Join(strings.Fields(c.Text()), " "))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Every command that a page names, in a block or in backticks, exists with the flags that stand there.
func TestDocumentedCommandsExist(t *testing.T) {
	if testing.Short() {
		t.Skip("not checked in short mode: it builds and runs the program")
	}
	bin := filepath.Join(t.TempDir(), "sallyport")
	if out, err := exec.Command("go", "build", "-o", bin, "sallyport.example/cmd/sallyport").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	help := map[string]string{} // by command path
	helpOf := func(args ...string) string {
		key := strings.Join(args, " ")
		if _, ok := help[key]; !ok {
			out, _ := exec.Command(bin, append(slices.Clone(args), "--help")...).CombinedOutput() // of an unknown command it fails
			help[key] = string(out)
		}
		return help[key]
	}
	subcommands := regexp.MustCompile(`(?m)^  ([a-z-]+) +[A-Z]`)
	listed := regexp.MustCompile(`(?m)^(Available Commands|Begin):$`) // the first of the headings above commands
	isCommand := func(help, word string) bool {
		at := listed.FindStringIndex(help)
		ok, list := at != nil, ""
		if ok {
			list = help[at[1]:]
		}
		return ok && slices.ContainsFunc(subcommands.FindAllStringSubmatch(list, -1), func(m []string) bool { return m[1] == word })
	}
	flag := regexp.MustCompile(`^--?[a-z][a-z-]*`)
	word := regexp.MustCompile(`^[a-z]+$`)
	checked := 0
	for name, page := range pages(t) {
		for _, line := range commandLines(page) {
			words := strings.Fields(line)
			var at []string
			for len(words) > 0 && isCommand(helpOf(at...), words[0]) {
				at, words = append(at, words[0]), words[1:]
			}
			if len(at) == 0 {
				if len(words) > 0 && word.MatchString(words[0]) {
					t.Errorf("%s: there is no command %q", name, line)
				}
				continue
			}
			checked++
			if inside := helpOf(at...); strings.Contains(inside, "Available Commands:") && len(words) > 0 && word.MatchString(words[0]) {
				t.Errorf("%s: sallyport %s has no command %q", name, strings.Join(at, " "), words[0])
			}
			for _, w := range words {
				if f := flag.FindString(w); f != "" && !regexp.MustCompile(`(^|[ ,])`+f+`([ ,=]|$)`).MatchString(strings.ReplaceAll(helpOf(at...), "\n", " ")) {
					t.Errorf("%s: sallyport %s has no flag %s", name, strings.Join(at, " "), f)
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d commands were checked", checked)
	}
}

// commandLines are the command lines of a page without the word sallyport: the parts of its sh blocks and the texts in backticks
// that begin with it.
func commandLines(page string) (all []string) {
	starts := regexp.MustCompile(`(?:^|[;&|(]|=\$\(|\s)(?:\S*/)?sallyport\s+([^;&|)<>#"]*)`)
	rest := page
	for {
		before, after, ok := strings.Cut(rest, "```sh\n")
		all = append(all, inBackticks(before)...)
		if !ok {
			return all
		}
		block, behind, _ := strings.Cut(after, "```")
		for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
			for _, m := range starts.FindAllStringSubmatch(line, -1) {
				all = append(all, strings.TrimSpace(m[1]))
			}
		}
		rest = behind
	}
}

func inBackticks(text string) (all []string) {
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		if line, ok := strings.CutPrefix(m[1], "sallyport "); ok {
			line, _, _ = strings.Cut(line, " > ")
			all = append(all, line)
		}
	}
	return all
}

// block is a fenced block of a page that is marked to be run, or to be found in what the blocks before it printed.
type block struct {
	kind, text string // kind: run, run: tour, output
}

func marked(page string) (all []block) {
	fence := regexp.MustCompile("(?s)<!-- (run|run: tour|output) -->\n```(?:sh|text)\n(.*?)\n```")
	for _, m := range fence.FindAllStringSubmatch(page, -1) {
		all = append(all, block{m[1], m[2]})
	}
	return all
}

// clone is the last commit in a directory of its own, as a newcomer has it.
func clone(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("not checked in short mode: it clones the repository and runs the program")
	}
	here, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "sallyport")
	if out, err := exec.Command("git", "clone", "--quiet", here, dir).CombinedOutput(); err != nil {
		t.Skipf("not checked: this is not a git repository that can be cloned: %s", out)
	}
	return dir
}

// shell runs a script with bash in dir and returns what it printed. All of its processes end with it.
func shell(t *testing.T, dir, script string, limit time.Duration) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-trimpath", "SALLYPORT_TOKEN=", "SALLYPORT_URL=") // paths differ in every clone: without trimpath nothing is cached
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = end
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if cmd.Process != nil {
		_ = end() // what the script left running; nothing, when all went well
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return out.String()
}

// checkOutput finds each line of shown in printed, in order. An ellipsis stands for anything in a line, alone for any lines.
func checkOutput(t *testing.T, shown, printed string) {
	t.Helper()
	lines := strings.Split(printed, "\n")
	for want := range strings.SplitSeq(shown, "\n") {
		if want == "…" {
			continue
		}
		parts := strings.Split(want, "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		pattern := regexp.MustCompile(strings.Join(parts, ".*"))
		at := slices.IndexFunc(lines, pattern.MatchString)
		if at < 0 {
			t.Errorf("the page shows a line that was not printed (any more, or not in this order):\n%s", want)
			continue
		}
		lines = lines[at:] // the same line may carry the next one too: answers of curl have no newline
	}
}

// The README's demo, and how it installs the program, do on a clean clone what the README says, and print what it shows.
func TestReadmeDemo(t *testing.T) {
	dir := clone(t)
	if _, err := exec.LookPath("bash"); err != nil {
		missing(t, "bash")
	}
	script, output := "set -eo pipefail\n", ""
	for _, b := range marked(read(t, "README.md")) {
		if b.kind == "output" {
			output += b.text + "\n"
		} else {
			script += b.text + "\n"
		}
	}
	if output == "" {
		t.Fatal("the README shows nothing that the demo prints")
	}
	checkOutput(t, strings.TrimSpace(output), shell(t, dir, script, 15*time.Minute))
	if out, err := exec.Command("git", "-C", dir, "status", "--porcelain").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("it leaves the clone changed: %v\n%s", err, out)
	}
}

// The tour of docs/external.md does what it says and prints what it shows, on a clean clone and without a network. Only the ports are others.
func TestExternalTour(t *testing.T) {
	const page = "docs/external.md"
	dir := clone(t)
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing(t, tool)
		}
	}
	doctor := exec.Command("go", "run", "-trimpath", "./cmd/sallyport", "doctor")
	doctor.Dir = dir
	if out, err := doctor.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	} else if strings.Contains(string(out), "tier none") {
		missing(t, "a kernel that holds the sandbox")
	}
	var script, output strings.Builder
	script.WriteString("set -eo pipefail\n")
	toured := 0
	for _, b := range marked(read(t, page)) {
		if b.kind == "output" {
			fmt.Fprintln(&output, b.text)
			continue
		}
		toured++
		fmt.Fprintln(&script, b.text)
	}
	if toured < 5 {
		t.Fatalf("the page has only %d blocks of the tour", toured)
	}
	text := strings.NewReplacer("127.0.0.1:7575", "127.0.0.1:"+freePort(t), "127.0.0.1:7576", "127.0.0.1:"+freePort(t)).Replace(script.String())
	checkOutput(t, strings.TrimSpace(output.String()), shell(t, dir, text, 15*time.Minute))
	if out, err := exec.Command("git", "-C", dir, "status", "--porcelain").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("the tour leaves the clone changed: %v\n%s", err, out)
	}
}

// The first of the README's two commands starts the gateway on a clean clone; the second is what continuous integration runs. It
// isn't run here, where it would run this test.
func TestReadmeTwoCommands(t *testing.T) {
	readme := read(t, "README.md")
	const serve, tests = "go run ./cmd/sallyport serve", "go test -timeout 40m ./..."
	for _, command := range []string{serve, tests} {
		if !strings.Contains(readme, "```sh\n"+command+"\n```") {
			t.Errorf("the README has no block with %q", command)
		}
	}
	if !regexp.MustCompile(`(?m)^go test( -vet=off)? -timeout 40m \./\.\.\.$`).MatchString(read(t, ".ci/run")) {
		t.Errorf(".ci/run does not run %q (with whatever flags)", tests)
	}

	dir := clone(t)
	if err := os.WriteFile(filepath.Join(dir, "sallyport.yaml"), []byte("listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// go run passes an interrupt on only when the whole group gets it, as from a terminal.
	printed := shell(t, dir, `set -em
`+serve+` &
for i in $(seq 1200); do [ -f sallyport-data/addresses.json ] && break; sleep 0.1; done
cat sallyport-data/addresses.json
kill -INT -- -$!
wait $! || true`, 3*time.Minute)
	var addresses struct{ Agent, Admin string }
	for line := range strings.Lines(printed) {
		if strings.HasPrefix(line, "{\"") {
			_ = json.Unmarshal([]byte(line), &addresses) // what isn't it stays empty
		}
	}
	if !strings.HasPrefix(addresses.Agent, "http://127.0.0.1:") || !strings.HasPrefix(addresses.Admin, "http://127.0.0.1:") {
		t.Errorf("it did not say where it listens:\n%s", printed)
	}
}

// missing skips a test for want of a tool; where everything must be checked it fails.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("SALLYPORT_TEST_ALL") == "1" {
		t.Fatalf("%s is not here, and SALLYPORT_TEST_ALL=1 wants everything checked", what)
	}
	t.Skipf("not checked: %s is not here", what)
}

// freePort finds a port that nobody listens at. It lies below the ports that the system gives to listeners and connections that don't ask for one: such
// a neighbour could take it before the gateway does.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(12_000 + rand.IntN(20_000))
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port was found")
	return ""
}
