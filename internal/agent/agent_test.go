package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestExampleAndLocalLintClean(t *testing.T) {
	d, problems := Parse("example.yaml", []byte(Example()))
	if len(problems) > 0 {
		t.Errorf("the example has problems: %v", problems)
	}
	if d.AgentID != "research-assistant" || d.Mode != Advisory || d.MaxExecutionTime != 30_000 || len(d.DataSources.Models) != 1 {
		t.Errorf("%+v", d)
	}
	if !d.Permits("mail.search_email", false) || d.Permits("mail.send", false) || d.Permits("mail.search_email", true) {
		t.Error("the example's permissions are wrong")
	}
	local := Local()
	if p := Lint(&local); len(p) > 0 {
		t.Errorf("the built-in declaration has problems: %v", p)
	}
	if !local.Permits("mail.send", true) || !local.Permits("mail.search", false) || local.Permits("bare", false) || local.StartPhase != Planning || local.Digest == "" {
		t.Error("the built-in declaration is wrong")
	}
}

// with returns the example with one line replaced; the line is named by its start. An empty replacement removes it.
func with(t *testing.T, line, replacement string) string {
	t.Helper()
	var out []string
	found := 0
	for l := range strings.Lines(Example()) {
		if strings.HasPrefix(l, line) {
			found++
			l = replacement
			if l != "" {
				l += "\n"
			}
		}
		out = append(out, l)
	}
	if found != 1 {
		t.Fatalf("%d lines start with %q", found, line)
	}
	return strings.Join(out, "")
}

func TestProblems(t *testing.T) {
	at := func(text, part string) (line, column int) {
		before, _, ok := strings.Cut(text, part)
		if !ok {
			t.Fatalf("%q is not in the text", part)
		}
		return strings.Count(before, "\n") + 1, len(before) - strings.LastIndexByte(before, '\n')
	}
	for _, c := range []struct {
		name, line, replacement string
		severity                Severity
		field, problem          string
		where                   string // the text at which the problem is reported; "" not checked
	}{
		// the twelve, as far as a declaration shows them
		{"1 writes", "  write: []", "  write: [mail.send]", P0, "permissions.write", "advisory agent has write", "[mail.send]"},
		{"1 writes everything", "  write: []", "  write: ['*']", P0, "permissions.write", "advisory agent has write", ""},
		{"2 autonomous", "humanApprovalRequired", "humanApprovalRequired: false", P0, "humanApprovalRequired", "without a person's approval", ""},
		{"2 not said", "humanApprovalRequired", "", P0, "humanApprovalRequired", "without a person's approval", ""},
		{"3 no switch", "killSwitchEnabled", "killSwitchEnabled: false", P0, "killSwitchEnabled", "can't be switched off", ""},
		{"3 not said", "killSwitchEnabled", "", P0, "killSwitchEnabled", "can't be switched off", ""},
		{"4 free text", "  type: object", "  type: string", P0, "outputSchema", "it accepts a string", ""},
		{"5 knowledge", "  write: []", "  write: [knowledge.update]\n", P0, "permissions.write[0]", "knowledge store", "knowledge.update"},
		{"6 unpinned", "  models:", "  models: [gpt-4o-2024-08-06, gpt-4o]", P0, "dataSources.models[1]", "not pinned", "gpt-4o]"},
		{"6 latest", "  models:", "  models: [anthropic.claude-latest]", P0, "dataSources.models[0]", "not pinned", ""},
		{"7 own output", "  tables:", "  tables: [research-assistant-recommendations]", P0, "dataSources.tables[0]", "feedback loop", ""},
		{"7 itself", "mode:", "dependsOn: [research-assistant]", P0, "dependsOn[0]", "depends on itself", ""},
		{"9 too long", "maxExecutionTime", "maxExecutionTime: 300001", Error, "maxExecutionTime", "over the limit", "300001"},
		{"10 no citations", "    citations:", "    sources:", P1, "outputSchema", "no citations", ""},
		{"11 not versioned", "version:", "", P2, "version", "not versioned", ""},
		{"12 schema not versioned", "outputSchemaVersion", "", P2, "outputSchemaVersion", "not versioned", ""},

		{"unknown field", "mode:", "modus: advisory", Error, "modus", "unknown field", "modus"},
		{"snake case", "agentName", "agent_name: x", Error, "agent_name", "unknown field", "agent_name"},
		{"unknown inside", "  apis:", "  api: []", Error, "dataSources.api", "unknown field", "api: []"},
		{"twice", "mode:", "version: 2.0.0", Error, "version", "appears twice", "version: 2.0.0"},
		{"missing name", "agentName", "", Error, "agentName", "is missing", ""},
		{"missing version", "version:", "", Error, "version", "is missing", ""},
		{"missing inside", "  write: []", "", Error, "permissions.write", "is missing", ""},
		{"missing time", "maxExecutionTime", "", Error, "maxExecutionTime", "is missing", ""},
		{"missing tokens", "maxTokens", "", Error, "maxTokens", "is missing", ""},
		{"not semver", "version:", "version: v1.0", Error, "version", "not a semantic version", "v1.0"},
		{"number as version", "version:", "version: 1.0", Error, "version", "must be text, not a fraction", "1.0"},
		{"schema version", "outputSchemaVersion", "outputSchemaVersion: 01.0.0", Error, "outputSchemaVersion", "not a semantic version", ""},
		{"text as bool", "killSwitchEnabled", `killSwitchEnabled: "true"`, Error, "killSwitchEnabled", "must be true or false", `"true"`},
		{"yes as bool", "killSwitchEnabled", "killSwitchEnabled: yes", Error, "killSwitchEnabled", "must be true or false", ""},
		{"text as number", "maxTokens", `maxTokens: "5"`, Error, "maxTokens", "must be a whole number", ""},
		{"octal", "maxTokens", "maxTokens: 010", Error, "maxTokens", "plain decimal", ""},
		{"hex", "maxTokens", "maxTokens: 0x10", Error, "maxTokens", "plain decimal", ""},
		{"float", "maxTokens", "maxTokens: 1.5", Error, "maxTokens", "must be a whole number", ""},
		{"negative", "maxTokens", "maxTokens: -1", Error, "maxTokens", "negative", ""},
		{"huge", "maxTokens", "maxTokens: 99999999999999999999999999", Error, "maxTokens", "number too large", ""},
		{"no time", "maxExecutionTime", "maxExecutionTime: 0", Error, "maxExecutionTime", "at least 1", ""},
		{"null", "purpose:", "purpose:", Error, "purpose", "must be text, not empty", ""},
		{"blank", "purpose:", `purpose: "  "`, Error, "purpose", "is empty", ""},
		{"escape", "purpose:", `purpose: "a\e[31m"`, Error, "purpose", "control or invisible", ""},
		{"bidi", "purpose:", `purpose: "a\u202eb"`, Error, "purpose", "control or invisible", ""},
		{"list", "capabilities:", "capabilities: all\nx:", Error, "capabilities", "must be a list", ""},
		{"reserved id", "agentId", "agentId: audit", Error, "agentId", "is reserved for the audit of agents", ""},
		{"bad id", "agentId", "agentId: ../x", Error, "agentId", "not a valid id", ""},
		{"glob", "  read:", "  read: ['mail.s*']", Error, "permissions.read[0]", "no other patterns", ""},
		{"regex", "  read:", "  read: ['mail.[a-z]']", Error, "permissions.read[0]", "no other patterns", ""},
		{"double star", "  read:", "  read: ['**']", Error, "permissions.read[0]", "no other patterns", ""},
		{"star server", "  read:", "  read: ['*.search']", Error, "permissions.read[0]", "no other patterns", ""},
		{"star star", "  read:", "  read: ['*.*']", Error, "permissions.read[0]", "no other patterns", ""},
		{"deep star", "  read:", "  read: ['mail.a.*']", Error, "permissions.read[0]", "whole servers", ""},
		{"bare tool", "  read:", "  read: [search_email]", Error, "permissions.read[0]", "needs a server and a tool", ""},
		{"no tool", "  read:", "  read: [mail.]", Error, "permissions.read[0]", "needs a server and a tool", ""},
		{"no server", "  read:", "  read: [.x]", Error, "permissions.read[0]", "needs a server and a tool", ""},
		{"space", "  read:", "  read: ['mail. x']", Error, "permissions.read[0]", "white space", ""},
		{"permission twice", "  read:", "  read: [a.b, c.d, a.b]", Error, "permissions.read[2]", "appears twice", ""},
		{"mode", "mode:", "mode: Operator", Error, "mode", "not known", ""},
		{"phase", "startPhase", "startPhase: now", Error, "startPhase", "not known", ""},
		{"both sessions", "sessions", "sessionsSideBySide: true", P1, "sessionsSideBySide", "beside those that hosts and people open", ""},
		{"structured", "sessions", "structured: true", P1, "structured", "without a fence", ""},
		{"structured, not said", "sessions", "structured: 1", Error, "structured", "", ""},
		{"both, not said", "sessions", "sessionsSideBySide: maybe", Error, "sessionsSideBySide", "", ""},
		{"quota", "mode:", "quotas: {api_calls: 5}", Error, "quotas.api_calls", "unknown field", ""},
		{"schema is text", "outputSchemaVersion", "outputSchemaVersion: 1.0.0\noutputSchema: text", Error, "outputSchema", "appears twice", ""},
		{"bad schema", "  type: object", "  type: thing", Error, "outputSchema", "not a JSON Schema", ""},
		{"schema from a file", "  type: object", "  $ref: file:///etc/passwd", Error, "outputSchema", "references to other documents", ""},
		{"schema infinity", "  type: object", "  maxProperties: .inf", Error, "outputSchema", "can't be written in JSON", ""},
		{"anchor", "purpose:", "purpose: &a text", Error, "", "anchors", ""},
		{"tag", "purpose:", "purpose: !!str text", Error, "", "tags", ""},
		{"two documents", "mode:", "---\nmode: advisory", Error, "", "it has more than one document", ""},
		{"syntax", "mode:", "mode: [", Error, "", "a list that begins with [ has no end", ""},
	} {
		text := with(t, c.line, c.replacement)
		d, problems := Parse("x.yaml", []byte(text))
		k := slices.IndexFunc(problems, func(p Problem) bool {
			return p.Severity == c.severity && p.Field == c.field && strings.Contains(p.Problem, c.problem)
		})
		if k < 0 {
			t.Errorf("%s: got %v", c.name, problems)
			continue
		}
		if c.where != "" {
			// Positions are where the value, or an unknown name, starts.
			line, column := at(text, c.where)
			if problems[k].Line != line || problems[k].Column != column {
				t.Errorf("%s: at %d:%d, want %d:%d", c.name, problems[k].Line, problems[k].Column, line, column)
			}
		}
		if problems[k].Line == 0 && c.name != "two documents" {
			t.Errorf("%s: has no place: %v", c.name, problems[k])
		}
		if c.severity.Blocks() && d.Permits("mail.search_email", false) {
			t.Errorf("%s: a blocked declaration permits", c.name)
		}
	}
	if _, p := Parse("x.yaml", []byte(strings.Repeat("# comment\n", MaxFile))); len(p) != 1 || !strings.Contains(p[0].Problem, "more than") {
		t.Errorf("oversized: %v", p)
	}
	for _, empty := range []string{"", "# nothing\n", "~", "[]", "text"} {
		if _, p := Parse("x.yaml", []byte(empty)); len(p) == 0 || p[0].Severity != Error {
			t.Errorf("%q: %v", empty, p)
		}
	}
}

func TestPinned(t *testing.T) {
	for model, want := range map[string]bool{
		"claude-sonnet-4-5-20250929": true, "gpt-4o-2024-08-06": true, "anthropic.claude-3-sonnet-20240229-v1:0": true,
		"anthropic.claude-v2:1": true, "us.anthropic.claude-sonnet-4-20250514-v1:0": true, "anthropic.claude-v2:1:18k": true,
		"arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-3-sonnet-20240229-v1:0": true,
		"claude-3-5-sonnet@20240620": true, "claude-3-5-sonnet-v2@20241022": true, "gpt-4-0613": true, "gpt-4-0125-preview": true,
		"gpt-3.5-turbo-1106": true, "o1-preview-2024-09-12": true, "ft:gpt-4o-mini-2024-07-18:acme::abc123": true, "gemini-1.5-pro-002": true,
		"text-bison@001": true, "text-embedding-ada-002": true, "gemini-2.5-flash-preview-05-20": true, "mistral-large-2411": true, "codestral-2501": true,
		"command-r-08-2024": true, "amazon.nova-pro-v1:0": true, "meta.llama3-70b-instruct-v1:0": true, "deepseek-r1-0528": true,
		"stability.stable-diffusion-xl-v1:1": true, "llama3@sha256:" + strings.Repeat("ab", 32): true, "org/model@" + strings.Repeat("0a", 20): true,
		"openai/gpt-4o-2024-08-06": true,

		"claude-sonnet-4-5": false, "gpt-4o": false, "anthropic.claude-v2": false, "anthropic.claude-latest": false, "claude-3-7-sonnet-latest": false,
		"chatgpt-4o-latest": false, "LATEST": false, "": false, "gpt-4-32k": false, "gpt-4.1": false, "gpt-5": false, "o1": false, "claude-opus-4-0": false,
		"llama3:latest": false, "llama3:8b": false, "llama3:70b": false, "mistral:7b": false, "mistral-large-latest": false, "gemini-2.5-pro": false,
		"gemini-1.5-pro": false, "model@default": false, "model@main": false, "model@abc1234": false, "foo-4096": false, "foo-1024": false,
		"foo-99999999": false, "foo-20241399": false, "foo-20240001": false, "20240620": false, "gpt-4o-2024-13-06": false,
		"gpt-4o-2024-08-06-latest": false, "gpt-4o-2024-08-06 ": false, "gpt-4o-2024-08-06\n": false, "gpt-4o‑2024‑08‑06": false,
		"amazon.titan-text-express-v1": false, "deepseek-chat": false, "foo-v1:x": false, "llama-3-70b": false,
	} {
		if Pinned(model) != want {
			t.Errorf("Pinned(%q) = %v", model, !want)
		}
	}
}

func TestPermits(t *testing.T) {
	parse := func(mode, read, write string) Declaration {
		text := with(t, "  read:", "  read: "+read)
		text = strings.Replace(text, "  write: []", "  write: "+write, 1)
		text = strings.Replace(text, "mode: advisory ", "mode: "+mode+" ", 1)
		d, problems := Parse("x.yaml", []byte(text))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return d
	}
	d := parse("operator", "[mail.search, docs.*, 'a.b.c']", "[mail.send, wiki.*]")
	for _, c := range []struct {
		operation string
		write, ok bool
	}{
		{"mail.search", false, true}, {"mail.search", true, false}, {"mail.send", true, true}, {"mail.send", false, false},
		{"mail.search_email", false, false}, {"mail.Search", false, false}, {"Mail.search", false, false},
		{"docs.read", false, true}, {"docs.a.b", false, true}, {"docs.read", true, false}, {"docs2.read", false, false}, {"docs", false, false}, {"xdocs.read", false, false},
		{"wiki.put", true, true}, {"a.b.c", false, true}, {"a.b", false, false}, {"", false, false}, {".", false, false}, {"*", false, false}, {"mail.*", false, false},
	} {
		if d.Permits(c.operation, c.write) != c.ok {
			t.Errorf("Permits(%q, %v) = %v", c.operation, c.write, !c.ok)
		}
	}
	// AG-1: an advisory agent never writes, whatever its list says and however it came about.
	for _, mode := range []Mode{Advisory, "", "other"} {
		d := Local()
		if d.Mode = mode; d.Permits("mail.send", true) {
			t.Errorf("mode %q writes", mode)
		}
	}
	if (&Declaration{Mode: Operator, Permissions: Permissions{Read: []string{"*"}, Write: []string{"*"}}}).Permits("a.b", true) {
		t.Error("a declaration that nobody checked permits")
	}
}

func TestPermitsIsThePatternsMeaning(t *testing.T) {
	part := rapid.StringOfN(rapid.SampledFrom([]rune("ab_")), 1, 2, -1)
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.Custom(func(t *rapid.T) string { return part.Draw(t, "server") + "." + part.Draw(t, "tool") })
		pattern := rapid.OneOf(id, rapid.Custom(func(t *rapid.T) string { return part.Draw(t, "server") + ".*" }), rapid.Just("*"))
		list, operation := rapid.SliceOfN(pattern, 0, 4).Draw(t, "list"), id.Draw(t, "operation")
		want := slices.ContainsFunc(list, func(p string) bool {
			return p == "*" || p == operation || strings.HasSuffix(p, ".*") && strings.HasPrefix(operation, p[:len(p)-1])
		})
		for _, p := range list {
			if wrong := checkPattern(p); wrong != "" {
				t.Fatal(wrong)
			}
		}
		if compile(list).hold(operation) != want {
			t.Fatalf("%v %s: want %v", list, operation, want)
		}
	})
}

// AG-3: any change of any field is another digest; layout is not a change.
func TestDigest(t *testing.T) {
	d, _ := Parse("a.yaml", []byte(Example()))
	reordered := "# other\nmode:   \"advisory\"\n" + strings.Replace(with(t, "mode:", ""), "[mail.search_email, web.web_search]", "\n    - mail.search_email\n    - 'web.web_search'", 1)
	e, problems := Parse("b.yaml", []byte(reordered))
	if len(problems) > 0 || d.Digest != e.Digest || len(d.Digest) != 64 {
		t.Errorf("layout changes the digest: %v %s %s", problems, d.Digest, e.Digest)
	}
	if f, _ := Parse("c.yaml", []byte(with(t, "sessions:", ""))); f.Digest != d.Digest {
		t.Error("writing a default out changes the digest")
	}
	seen := map[string]string{d.Digest: "unchanged"}
	var change func(v reflect.Value, path string)
	one := func(path string) {
		c := d
		if err := c.seal(); err != nil {
			t.Fatal(path, err)
		}
		if was, ok := seen[c.Digest]; ok {
			t.Errorf("changing %s gives the digest of %s", path, was)
		}
		seen[c.Digest] = path
	}
	change = func(v reflect.Value, path string) {
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		defer v.Set(old)
		switch {
		case path == ".File" || path == ".Digest" || path == ".read" || path == ".write":
		case v.Type() == reflect.TypeFor[json.Number]():
			v.SetString("1.5")
			one(path)
		case v.Kind() == reflect.Pointer && v.Type().Elem().Kind() == reflect.Struct:
			v.Set(reflect.New(v.Type().Elem()))
			one(path)
			change(v.Elem(), path)
		case v.Type() == reflect.TypeFor[[]Mitigation]():
			v.Set(reflect.ValueOf([]Mitigation{{}}))
			one(path)
			change(v.Index(0), path+"[0]")
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					change(v.Field(i), path+"."+v.Type().Field(i).Name)
				}
			}
		case v.Kind() == reflect.String:
			v.SetString(v.String() + "x")
			one(path)
		case v.Kind() == reflect.Int:
			v.SetInt(v.Int() + 1)
			one(path)
		case v.Kind() == reflect.Bool:
			v.SetBool(!v.Bool())
			one(path)
		case v.Type() == reflect.TypeFor[[]string]():
			v.Set(reflect.ValueOf(append(slices.Clone(v.Interface().([]string)), "x")))
			one(path)
		case v.Type() == reflect.TypeFor[*int]():
			v.Set(reflect.ValueOf(new(int)))
			one(path)
		case path == ".Run":
			v.Set(reflect.ValueOf(&Run{Kind: RunCommand, Command: []string{"x"}}))
			one(path)
			change(v.Elem(), path+".")
		case path == ".Run.Files":
			v.Set(reflect.ValueOf(map[string]string{"./x": "1"}))
			one(path)
		case path == ".RecommendationActions":
			for _, a := range []Action{{}, {Operation: "x"}, {Operation: "x", Args: map[string]json.RawMessage{"a": json.RawMessage("1")}}, {Operation: "x", Args: map[string]json.RawMessage{"a": json.RawMessage("2")}}} {
				v.Set(reflect.ValueOf(map[string]Action{"X": a}))
				one(fmt.Sprint(path, a))
			}
		case path == ".OutputSchema":
			v.SetBytes([]byte(`{"type":"object"}`))
			one(path)
		default:
			t.Fatalf("%s: a field of kind %s that this test can't change", path, v.Kind())
		}
	}
	change(reflect.ValueOf(&d).Elem(), "")
	if len(seen) < 26 {
		t.Errorf("only %d changes tried", len(seen))
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a.yaml", with(t, "agentId", "agentId: a\ndependsOn: [b, ghost]"))
	write("b.yml", with(t, "agentId", "agentId: b\ndependsOn: [a]"))
	write("c.yaml", with(t, "agentId", "agentId: twin"))
	write("d.yaml", with(t, "agentId", "agentId: twin"))
	write("e.yaml", "agentId: broken\n")
	write("f.yaml", with(t, "  models:", "  models: [gpt-4o]"))
	write(".hidden.yaml", "{{{")
	write("notes.txt", "{{{")
	os.Mkdir(filepath.Join(dir, "sub.yaml"), 0o700)
	outside := filepath.Join(t.TempDir(), "outside.yaml")
	os.WriteFile(outside, []byte(with(t, "agentId", "agentId: outside")), 0o600)
	os.Symlink(outside, filepath.Join(dir, "link-out.yaml"))
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	set, problems := Load(dir)
	var ids []string
	for _, d := range set.All() {
		ids = append(ids, d.AgentID)
	}
	if !slices.Equal(ids, []string{"a", "b"}) {
		t.Errorf("in force: %v", ids)
	}
	for _, id := range []string{"twin", "broken", "research-assistant", "outside", "ghost", ""} {
		if _, ok := set.Get(id); ok {
			t.Errorf("%q is in force", id)
		}
	}
	if d, ok := set.Get("a"); !ok || !d.Permits("mail.search_email", false) || d.File != filepath.Join(dir, "a.yaml") {
		t.Error("a is not usable")
	}
	all := fmt.Sprint(problems)
	for _, want := range []string{
		`"twin" is declared in ` + filepath.Join(dir, "c.yaml") + ` and in ` + filepath.Join(dir, "d.yaml"),
		"e.yaml:1:1: error: agentName: is missing", "f.yaml:", "sub.yaml: error: is not a regular file", "pipe.yaml: error: is not a regular file",
		"link-out.yaml: error: can't be read", `"ghost" has no declaration file`, `"b" depends on "a" in turn`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no problem says %q in\n%s", want, all)
		}
	}
	if strings.Contains(all, "hidden") || strings.Contains(all, "notes") {
		t.Error("files that aren't declarations were read")
	}
	if set, problems := Load(filepath.Join(dir, "nowhere")); len(set.All()) != 0 || len(problems) != 1 || problems[0].Severity != Error {
		t.Errorf("missing folder: %v", problems)
	}
	if _, ok := (Set{}).Get("a"); ok {
		t.Error("the zero set has agents")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Example())
	f.Add("a: &x [*x]\n")
	f.Add("? {a: b}\n: c\n<<: {a: 1}")
	f.Add("outputSchema: {$ref: '#', pattern: '(?!x)', type: [object], minimum: 1e999}\nmaxTokens: 1_0\nversion: 2026-01-01\n")
	f.Add("permissions: {read: ['*', \"\\e\"], write: [\"\\u202e.x\"]}\n\"\\e[2J\": 1\n")
	f.Add("a:\n- - - - {b: [[[[]]]]}\n---\n")
	f.Fuzz(func(t *testing.T, text string) {
		d, problems := Parse("x.yaml", []byte(text))
		blocked := false
		for _, p := range problems {
			blocked = blocked || p.Severity.Blocks()
			if s := p.String(); !utf8.ValidString(s) || strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) {
				t.Fatalf("problem shows raw text: %q", s)
			}
		}
		if blocked {
			if d.Permits("a.b", false) || d.Permits("a.b", true) {
				t.Fatal("a blocked declaration permits")
			}
			return
		}
		if d.AgentID == "" || d.AgentName == "" || d.Version == "" || d.Purpose == "" || d.MaxExecutionTime < 1 || d.MaxExecutionTime > MaxExecutionTime ||
			!d.KillSwitchEnabled || !d.HumanApprovalRequired || len(d.Digest) != 64 || d.Mode != Operator && len(d.Permissions.Write) > 0 {
			t.Fatalf("accepted %q as %+v", text, d)
		}
	})
}

func BenchmarkPermits(b *testing.B) {
	d, _ := Parse("x.yaml", []byte(Example()))
	b.ReportAllocs()
	for b.Loop() {
		d.Permits("mail.search_email", false)
	}
}
