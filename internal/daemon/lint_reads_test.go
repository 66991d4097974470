package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.example/internal/agent"
)

// configFile makes a configuration file in a directory of its own.
func configFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sallyport.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestLintReads(t *testing.T) {
	for name, c := range map[string]struct {
		entry string // of a.b
		want  [][2]string
	}{
		"code without a word": {`{effect: read, args: {sql: code}}`, [][2]string{{"P1 operations.a.b.args.sql", "no shape or class"}}},
		"looked for":          {`{effect: read, args: {command: query}}`, [][2]string{{"P1 operations.a.b.args.command", "no shape or class"}}},
		"of a class":          {`{effect: read, args: {sql: code}, code: {sql: {class: select}}}`, nil},
		"of a shape":          {`{effect: read, args: {command: code}, code: {command: {shape: "git log"}}}`, nil},
		"no code":             {`{effect: read, args: {code: target}}`, nil},
		"a write":             {`{level: 2, args: {command: code}}`, nil},
	} {
		file := configFile(t, "upstreams: {a: {url: http://x}}\noperations:\n  a.b: "+c.entry+"\n")
		problems, err := Lint(t.Context(), "", nil, file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) { holds(t, problems, c.want) })
		for _, p := range problems {
			if !strings.Contains(p.Remedy, "comm.query") {
				t.Errorf("%s: %s", name, p.Remedy)
			}
		}
	}
}

func TestCodeIsConfiguredStrictly(t *testing.T) {
	for entry, want := range map[string]string{
		`{args: {x: code}, code: {x: {class: select}}}`:             "",
		`{code: {x: {class: select}}}`:                              "does not have the role code",
		`{args: {x: query}, code: {x: {class: select}}}`:            "does not have the role code",
		`{args: {x: code}, code: {x: {}}}`:                          "a shape or a class",
		`{args: {x: code}, code: {x: {class: select, shape: "a"}}}`: "a shape or a class",
		`{args: {x: code}, code: {x: {class: delete}}}`:             `unknown word "delete"`,
		`{args: {x: code}, code: {x: {shape: "("}}}`:                "missing closing",
		`{args: {x: code}, code: {x: {shape: "a", more: 1}}}`:       "more",
	} {
		_, err := ParseConfig("sallyport.yaml", []byte("upstreams: {a: {url: http://x}}\noperations:\n  a.b: "+entry+"\n"), t.TempDir())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", entry, err)
		}
	}
	comm := "operations:\n  comm.query: {args: {sql: code}, code: {sql: {class: select}}}\n"
	if _, err := ParseConfig("sallyport.yaml", []byte(comm), t.TempDir()); err == nil || !strings.Contains(err.Error(), "rules of their own") {
		t.Errorf("comm: %v", err)
	}
}

// The server's word holds for its tools, and an operation's own replaces it, argument by argument.
func TestCodeOfAServer(t *testing.T) {
	c, err := ParseConfig("sallyport.yaml", []byte(`
upstreams: {a: {url: http://x}}
operations:
  a.*: {effect: read, args: {sql: code, cmd: code}, code: {sql: {class: select}, cmd: {shape: "x"}}}
  a.b: {code: {cmd: {shape: "y|z"}}}
`), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	op := c.Classifier(nil)("a", "b").Reading("a", "b")
	for args, reads := range map[string]bool{`{"sql":"SELECT 1"}`: true, `{"sql":"DROP TABLE t"}`: false, `{"cmd":"z"}`: true, `{"cmd":"x"}`: false, `{"cmd":"yz"}`: false} {
		if got := op.Acts([]byte(args)); (got == "") != reads {
			t.Errorf("%s: %q", args, got)
		}
	}
	if !c.parses() || (&Config{}).parses() {
		t.Error("which configurations need the grammar")
	}
}

func TestLintRoots(t *testing.T) {
	file := configFile(t, "agents: ./agents\nupstreams: {fs: {url: http://x}, x: {url: http://y}}\noperations:\n  fs.read: {effect: read, args: {path: path}}\n  fs.list: {effect: read, args: {query: query}}\n")
	dir := filepath.Join(filepath.Dir(file), "agents")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	declared := strings.Replace(agent.Example(), "read: [mail.search_email, web.web_search]",
		`read: [fs.read under docs/, fs.list under docs/, fs.* under src/, x.* under a/, comm.read_file under notes/, comm.query under a, fs.read]`, 1)
	if err := os.WriteFile(filepath.Join(dir, "research-assistant.yaml"), []byte(declared), 0o600); err != nil {
		t.Fatal(err)
	}
	problems, err := Lint(t.Context(), "", nil, file)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, problems, [][2]string{
		{"P1 permissions.read[0]", "the root has no effect"},
		{"P1 permissions.read[1]", "no argument of fs.list has the role"},
		{"P1 permissions.read[3]", "no argument of x.* has the role"},
		{"P1 permissions.read[5]", "no argument of comm.query has the role"},
	})
}
