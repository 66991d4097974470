package agent

import (
	"encoding/json"
	"path"
	"strings"
	"testing"
)

// permitted is a declaration with these permissions to read.
func permitted(t testing.TB, permissions ...string) *Declaration {
	t.Helper()
	for _, p := range permissions {
		if problem := checkRead(p); problem != "" {
			t.Fatal(problem)
		}
	}
	d := Local()
	d.Permissions.Read = permissions
	if err := d.seal(); err != nil {
		t.Fatal(err)
	}
	return &d
}

func TestRootsAreReadStrictly(t *testing.T) {
	for p, want := range map[string]string{
		"fs.read_file under docs/":         "",
		"fs.read_file under docs":          "",
		"fs.read_file under my docs/a.md":  "",
		"fs.* under /srv/docs":             "",
		"db.rows under sales.orders":       "",
		"git.file under acme/site":         "",
		"* under docs/":                    "name the operation",
		"fs.read_file under":               "white space",
		"fs.read_file under ":              "names everything",
		"fs.read_file under .":             "names everything",
		"fs.read_file under /":             "names everything",
		"fs.read_file under ./docs":        `is written as "docs"`,
		"fs.read_file under docs//a":       `is written as "docs/a"`,
		"fs.read_file under docs/../a":     `is written as "a"`,
		"fs.read_file under ../docs":       "points outside",
		"fs.read_file under docs%2Fa":      "percent-encoding",
		`fs.read_file under docs\a`:        "backslash",
		"fs.read_file under ~/docs":        "home folder",
		"fs.read_file under C:/docs":       "drive",
		"fs.read_file under docs\x00":      "control characters",
		"fs.read_file under docs/ ":        "white space",
		"fs.read_file under  docs/":        "white space",
		"fs.read_file  under docs/":        "white space",
		"fs.read_file under docs under x/": "",
		"fs.read_*  under docs/":           "no other patterns",
	} {
		if got := checkRead(p); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", p, got, want)
		}
	}
	if got := checkPattern("fs.write_file under docs/"); !strings.Contains(got, "only reads can") {
		t.Errorf("a write with a root: %q", got)
	}
}

func TestOutside(t *testing.T) {
	files := map[string]string{"path": "path", "paths": "path", "query": "query", "opts.at": "path"}
	git := map[string]string{"owner": "repository", "repo": "repository", "path": "path", "ref": "target"}
	db := map[string]string{"table": "table", "where": "query"}
	for name, c := range map[string]struct {
		permissions string // one a line
		roles       map[string]string
		args        string
		want        string // in the sentence; "" below
	}{
		"below":                       {"fs.read under docs/", files, `{"path":"docs/a.md"}`, ""},
		"the root itself":             {"fs.read under docs/", files, `{"path":"docs"}`, ""},
		"with a slash":                {"fs.read under docs", files, `{"path":"docs/"}`, ""},
		"points and slashes":          {"fs.read under docs/", files, `{"path":"./docs//x/../a.md"}`, ""},
		"a file as root":              {"fs.read under docs/a.md", files, `{"path":"docs/a.md"}`, ""},
		"beside":                      {"fs.read under docs/", files, `{"path":"docs2/a.md"}`, "elsewhere"},
		"above":                       {"fs.read under docs/", files, `{"path":"docs/../keys"}`, "elsewhere"},
		"far above":                   {"fs.read under docs/", files, `{"path":"docs/../../docs/a"}`, "points outside"},
		"letter case":                 {"fs.read under docs/", files, `{"path":"Docs/a.md"}`, "elsewhere"},
		"absolute":                    {"fs.read under docs/", files, `{"path":"/docs/a.md"}`, "elsewhere"},
		"below an absolute root":      {"fs.read under /srv/docs", files, `{"path":"/srv/docs/a.md"}`, ""},
		"relative, the root absolute": {"fs.read under /srv/docs", files, `{"path":"srv/docs/a.md"}`, "elsewhere"},
		"encoded":                     {"fs.read under docs/", files, `{"path":"docs/%2e%2e/keys"}`, "percent-encoding"},
		"backslashes":                 {"fs.read under docs/", files, `{"path":"docs\\..\\keys"}`, "backslash"},
		"a wide slash":                {"fs.read under docs/", files, `{"path":"docs/．．／keys"}`, "looks like"},
		"a NUL":                       {"fs.read under docs/", files, `{"path":"docs/a\u0000"}`, "control characters"},
		"a list":                      {"fs.read under docs/", files, `{"paths":["docs/a","docs/b"]}`, ""},
		"one of a list":               {"fs.read under docs/", files, `{"paths":["docs/a","keys"]}`, "elsewhere"},
		"two roots":                   {"fs.read under docs/\nfs.read under src/", files, `{"paths":["docs/a","src/b"]}`, ""},
		"the server's root":           {"fs.* under docs/", files, `{"path":"docs/a"}`, ""},
		"another operation's root":    {"fs.other under keys/\nfs.read under docs/", files, `{"path":"keys/a"}`, "under docs/ only"},
		"free by another entry":       {"fs.read under docs/\nfs.*", files, `{"path":"keys"}`, ""},
		"inside an object":            {"fs.read under docs/", files, `{"opts":{"at":"keys"}}`, "elsewhere"},
		"an object":                   {"fs.read under docs/", files, `{"path":{"docs/a":"docs/b"}}`, "is an object"},
		"a number":                    {"fs.read under docs/", files, `{"path":7}`, "is a number"},
		"null":                        {"fs.read under docs/", files, `{"path":null}`, "does not say where"},
		"nothing":                     {"fs.read under docs/", files, `{}`, "does not say where"},
		"a search besides":            {"fs.read under docs/", files, `{"path":"docs","query":"../keys"}`, ""},
		"an argument nobody told":     {"fs.read under docs/", files, `{"path":"docs/a","file":"/etc/passwd"}`, "has no role"},
		"a number nobody told":        {"fs.read under docs/", files, `{"path":"docs/a","head":3}`, ""},
		"no role at all":              {"fs.read under docs/", nil, `{"head":3}`, "does not say where"},
		"repository":                  {"fs.read under acme/site", git, `{"owner":"acme","repo":"site","path":"README.md","ref":"main"}`, ""},
		"all of an owner's":           {"fs.read under acme/", git, `{"repo":"site","owner":"acme"}`, ""},
		"another repository":          {"fs.read under acme/site", git, `{"owner":"acme","repo":"private","path":"README.md"}`, "elsewhere"},
		"another owner":               {"fs.read under acme/site", git, `{"owner":"evil","repo":"acme/site"}`, "elsewhere"},
		"out of the repository":       {"fs.read under acme/site", git, `{"owner":"acme","repo":"site","path":"../private/x"}`, "points outside"},
		"a repository that goes up":   {"fs.read under acme/site", git, `{"owner":"acme","repo":"site/../private"}`, "not a repository"},
		"a folder of the repository":  {"fs.read under acme/site/docs", git, `{"owner":"acme","repo":"site","path":"/docs/a"}`, ""},
		"another folder of it":        {"fs.read under acme/site/docs", git, `{"owner":"acme","repo":"site","path":"src/a"}`, "elsewhere"},
		"the repository as a whole":   {"fs.read under acme/site/docs", git, `{"owner":"acme","repo":"site"}`, "elsewhere"},
		"an owner alone":              {"fs.read under acme/site", git, `{"owner":"acme"}`, "elsewhere"},
		"a path alone":                {"fs.read under acme/site", git, `{"path":"README.md"}`, "elsewhere"},
		"a name alone, and a path":    {"fs.read under acme/site", git, `{"repo":"acme","path":"site/x"}`, "elsewhere"},
		"an owner alone, and a path":  {"fs.read under acme/site", git, `{"owner":"acme","repo":".","path":"site/x"}`, "elsewhere"},
		"a path like a repository":    {"fs.read under acme/site", git, `{"path":"acme/site/x"}`, "elsewhere"},
		"an id besides":               {"fs.read under acme/site", git, `{"owner":"acme","repo":"site","repository_id":7}`, "has no role"},
		"an id in camel case besides": {"fs.read under docs/", files, `{"path":"docs/a","opts":{"fileIds":[7]}}`, "has no role"},
		"no id":                       {"fs.read under docs/", files, `{"path":"docs/a","width":7,"grid":1}`, ""},
		"a member's name":             {"fs.read under docs/", files, `{"path":"docs/a","include":{"/etc/passwd":true}}`, "a member's name"},
		"a point that is small":       {"fs.read under docs/", files, `{"path":"docs/﹒﹒/keys"}`, "looks like"},
		"points and a space":          {"fs.read under docs/", files, `{"path":"docs/.. /keys"}`, "take for .."},
		"three points":                {"fs.read under docs/", files, `{"path":"docs/.../keys"}`, "take for .."},
		"one of two names":            {"fs.read under docs/", files, `{"path":"docs/{..,a}/keys"}`, "take for .."},
		"points in two parts":         {"fs.read under docs/", files, `{"path":"docs/{.,}./keys"}`, "take for .."},
		"any name of two points":      {"fs.read under docs/", files, `{"paths":["docs/.?/keys"]}`, "take for .."},
		"any name with a point":       {"fs.read under docs/", files, `{"path":"docs/[.]./keys"}`, "take for .."},
		"patterns":                    {"fs.read under docs/", files, `{"paths":["docs/**/*.md","docs/[id].tsx","docs/{a,b}.md","docs/.env","docs/a..b"]}`, ""},
		"in one argument":             {"fs.read under acme/site", map[string]string{"repo": "repository"}, `{"repo":"acme/site"}`, ""},
		"table":                       {"fs.read under sales.orders", db, `{"table":"sales.orders"}`, ""},
		"schema":                      {"fs.read under sales", db, `{"table":"sales.orders"}`, ""},
		"another schema":              {"fs.read under sales", db, `{"table":"hr.orders"}`, "elsewhere"},
		"no schema":                   {"fs.read under sales", db, `{"table":"orders"}`, "elsewhere"},
		"quoted":                      {"fs.read under sales", db, `{"table":"sales.\"orders\""}`, "not a table's name"},
		"a statement":                 {"fs.read under sales", db, `{"table":"sales.orders; drop table x"}`, "not a table's name"},
		"a folder is no schema":       {"fs.read under sales/", db, `{"table":"sales.orders"}`, "elsewhere"},
	} {
		got := permitted(t, strings.Split(c.permissions, "\n")...).Outside("fs.read", c.roles, []byte(c.args), false)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	d := permitted(t, "fs.read under docs/")
	if !d.Permits("fs.read", false) || d.Permits("fs.other", false) {
		t.Error("a root permits something else, or nothing")
	}
	if got := d.Outside("fs.read", files, []byte(`{}`), true); got != "" {
		t.Errorf("what is not known yet: %q", got)
	}
	if got := d.Outside("fs.read", files, []byte(`{"path":"keys"}`), true); got == "" {
		t.Error("what is known already is not looked at")
	}
	if got := compile([]string{"fs.read under ../x"}); len(got.roots["fs.read"]) != 1 || (place{}).below(got.roots["fs.read"][0].path) || (place{names: []string{"x"}}).below(got.roots["fs.read"][0].table) {
		t.Error("something lies below a root that can't be read")
	}
}

// What lies below a root by text lies below it for whoever resolves paths as path.Clean does.
func FuzzOutside(f *testing.F) {
	for _, s := range []string{"docs/a", "docs/../x", "./docs//a/", "/docs/a", "docs%2f..", `docs\..\x`, "docs/./../docs/a", "..", "docs/．．/x"} {
		f.Add(s)
	}
	d := permitted(f, "fs.read under docs/")
	f.Fuzz(func(t *testing.T, s string) {
		args, err := json.Marshal(map[string]string{"path": s})
		if err != nil {
			t.Skip()
		}
		var read map[string]string
		if json.Unmarshal(args, &read) != nil {
			t.Skip()
		}
		if d.Outside("fs.read", map[string]string{"path": "path"}, args, false) != "" {
			return
		}
		if c := path.Clean(read["path"]); c != "docs" && !strings.HasPrefix(c, "docs/") {
			t.Errorf("%q lies below docs, and is %q", s, c)
		}
	})
}
