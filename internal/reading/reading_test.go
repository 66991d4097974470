package reading

import (
	"slices"
	"strings"
	"testing"
)

func mustShape(t testing.TB, pattern string) Rule {
	t.Helper()
	re, err := Shape(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return Rule{Shape: re}
}

func TestActs(t *testing.T) {
	sqlSelect := map[string]Rule{"sql": {Class: ClassSelect}}
	git := map[string]Rule{"command": mustShape(t, `git (status|log)`)}
	role := func(arg, role string) map[string]string { return map[string]string{arg: role} }
	for name, c := range map[string]struct {
		server, tool string
		roles        map[string]string
		code         map[string]Rule
		args         string
		want         string // in the sentence; "" reads
	}{
		"nothing":                        {"a", "b", nil, nil, `{}`, ""},
		"sql":                            {"a", "b", nil, nil, `{"sql":"SELECT 1"}`, "no shape or class"},
		"sql of a class":                 {"a", "b", role("sql", "code"), sqlSelect, `{"sql":"SELECT 1"}`, ""},
		"sql that deletes":               {"a", "b", role("sql", "code"), sqlSelect, `{"sql":"COMMIT; DELETE FROM t"}`, `"sql" is not one plain SELECT: it is more than one`},
		"a command of a shape":           {"a", "b", role("command", "code"), git, `{"command":"git log"}`, ""},
		"more than the shape":            {"a", "b", role("command", "code"), git, `{"command":"git log; id"}`, "does not have the shape"},
		"a line more":                    {"a", "b", role("command", "code"), git, `{"command":"git log\n"}`, "does not have the shape"},
		"nothing where a shape wants":    {"a", "b", role("command", "code"), git, `{"command":""}`, "does not have the shape"},
		"no code at all":                 {"a", "b", nil, nil, `{"sql":" "}`, ""},
		"each of a list":                 {"a", "b", role("command", "code"), git, `{"command":["git log","id"]}`, "does not have the shape"},
		"an object":                      {"a", "b", role("command", "code"), git, `{"command":{"run":"git log"}}`, "not one text"},
		"a number":                       {"a", "b", nil, nil, `{"command":7,"shell":true}`, ""},
		"in an object":                   {"a", "b", nil, nil, `{"opts":{"command":"id"}}`, `"opts.command"`},
		"in a list of objects":           {"a", "b", nil, nil, `{"steps":[{"script":"id"}]}`, `"steps.script"`},
		"a role that is no code":         {"a", "b", role("code", "selector"), nil, `{"code":"DE"}`, ""},
		"what is looked for may be code": {"a", "b", role("sql", "query"), nil, `{"sql":"SELECT 1"}`, "no shape or class"},
		"content may be code":            {"a", "b", role("script", "content"), nil, `{"script":"id"}`, "no shape or class"},
		"another name by its role":       {"a", "b", role("ask", "code"), nil, `{"ask":"id"}`, "no shape or class"},
		"a search":                       {"mail", "search", nil, nil, `{"query":"a; b | c"}`, ""},
		"a query of a database":          {"postgres", "query", nil, nil, `{"query":"DELETE FROM t"}`, "no shape or class"},
		"a database by the tool's name":  {"x", "runMysqlQuery", nil, nil, `{"query":"DELETE FROM t"}`, "no shape or class"},
		"a filter of a database":         {"mongo-main", "find", nil, nil, `{"filter":{"$where":"x"}}`, "not one text"},
		"a filter of none":               {"shop", "list", nil, nil, `{"filter":"open > 3"}`, ""},
		"country code":                   {"a", "b", nil, nil, `{"country_code":"D;E"}`, ""},
		"a name with a point":            {"a", "b", nil, nil, `{"x.sql":"SELECT 1"}`, `"x%2Esql"`},
		"jq":                             {"a", "b", nil, nil, `{"jq":".a"}`, "no shape or class"},

		"an id":                     {"a", "b", nil, nil, `{"id":"A-7","fileId":"x_1","pages_ids":["1","2"]}`, ""},
		"a shell in an id":          {"a", "b", nil, nil, `{"id":"$(id)"}`, "shell acts on"},
		"in one of a list":          {"a", "b", nil, nil, `{"file_ids":["1","2;id"]}`, "shell acts on"},
		"as a member's name":        {"a", "b", nil, nil, `{"ids":{"x;id":1}}`, "shell acts on"},
		"a name":                    {"a", "b", nil, nil, `{"name":"O'Brien (2) – Ünïted, Inc."}`, ""},
		"a branch":                  {"a", "b", nil, nil, `{"branch":"feature/a..b","ref":"HEAD~1"}`, ""},
		"a branch with a shell":     {"a", "b", nil, nil, "{\"branch\":\"main`id`\"}", "shell acts on"},
		"a line more in a name":     {"a", "b", nil, nil, `{"file_name":"a\nb"}`, "shell acts on"},
		"the id of a mail":          {"a", "b", nil, nil, `{"message_id":"<x1@mail.example>"}`, ""},
		"and more":                  {"a", "b", nil, nil, `{"message_id":"<x1@mail.example>;id>"}`, "shell acts on"},
		"a path":                    {"a", "b", nil, nil, `{"path":"docs/a b.md"}`, ""},
		"upwards":                   {"a", "b", nil, nil, `{"path":"docs/../../keys"}`, "upwards"},
		"upwards, backslashes":      {"a", "b", nil, nil, `{"path":"docs\\..\\keys"}`, "upwards"},
		"upwards, encoded":          {"a", "b", nil, nil, `{"file":"docs%2F%2E./keys"}`, "upwards"},
		"absolute":                  {"a", "b", nil, nil, `{"path":"/etc/passwd"}`, "absolute"},
		"a drive":                   {"a", "b", nil, nil, `{"path":"C:\\keys"}`, "absolute"},
		"a home folder":             {"a", "b", nil, nil, `{"path":"~/.ssh/id"}`, "absolute"},
		"absolute by its role":      {"a", "b", role("path", "path"), nil, `{"path":"/srv/docs/a"}`, ""},
		"upwards by its role":       {"a", "b", role("path", "path"), nil, `{"path":"/srv/docs/../x"}`, "upwards"},
		"a shell by its role":       {"a", "b", role("path", "path"), nil, `{"path":"/srv/docs/$(id)"}`, "shell acts on"},
		"by the role alone":         {"a", "b", role("which", "selector"), nil, `{"which":"a|b"}`, "shell acts on"},
		"looked for, and a path":    {"a", "b", role("file_path", "query"), nil, `{"file_path":"../x"}`, "upwards"},
		"free by its role":          {"a", "b", role("name", "content"), nil, `{"name":"R&D <x>"}`, ""},
		"free text":                 {"a", "b", nil, nil, `{"text":"../ ; | & $(id)","title":"a;b"}`, ""},
		"somebody's name is a name": {"a", "b", nil, nil, `{"hotel_name":"Bed & Breakfast"}`, ""},
		"more of them":              {"a", "b", nil, nil, `{"commands":["id"]}`, "no shape or class"},
		"sql with a word":           {"a", "b", nil, nil, `{"sql_query":"DELETE FROM t"}`, "no shape or class"},
		"sql in capitals":           {"a", "b", nil, nil, `{"SQLQuery":"DELETE FROM t"}`, "no shape or class"},
		"queries of a database":     {"postgres", "run", nil, nil, `{"queries":["DELETE FROM t"]}`, "no shape or class"},
		"a shell's command":         {"a", "b", nil, nil, `{"shellCmd":"id"}`, "no shape or class"},
		"code of a language":        {"a", "b", nil, nil, `{"python_code":"1"}`, "no shape or class"},
		"in an object with a role":  {"a", "b", role("opts", "flag"), nil, `{"opts":{"command":"id","depth":"2"}}`, `"opts.command" holds code`},
		"in one of ids":             {"a", "b", role("at", "selector"), nil, `{"at":{"sql":"DELETE FROM t"}}`, `"at.sql" holds code`},
		"a postal code":             {"a", "b", nil, nil, `{"postal_code":"D; 1","codes_of_conduct":"a;b"}`, ""},
		"an option":                 {"a", "b", nil, nil, `{"branch":"--upload-pack=touch x"}`, "an option"},
		"an option after a space":   {"a", "b", role("path", "path"), nil, `{"path":" -rf"}`, "an option"},
		"no option":                 {"a", "b", nil, nil, `{"chat_id":"-100123","id":"-","file_id":"a-b"}`, ""},
		"somebody's home folder":    {"a", "b", nil, nil, `{"path":"~root/.ssh/id"}`, "absolute"},
		"a file by its URI":         {"a", "b", nil, nil, `{"path":"file:///etc/passwd"}`, "absolute"},
		"absolute after a space":    {"a", "b", nil, nil, `{"path":" /etc/passwd"}`, "absolute"},
		"upwards after a space":     {"a", "b", nil, nil, `{"path":" ../keys"}`, "upwards"},
		"upwards, encoded twice":    {"a", "b", nil, nil, `{"path":"docs/%252e%252e/keys"}`, "upwards"},
		"not an object":             {"a", "b", nil, nil, `[]`, "can't be read"},
	} {
		o := Operation{Server: c.server, Tool: c.tool, Roles: c.roles, Code: c.code}
		got := o.Acts([]byte(c.args))
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if strings.Contains(got, "DELETE") || strings.Contains(got, "passwd") {
			t.Errorf("%s: the agent's words are in %q", name, got)
		}
	}
}

func TestUnruled(t *testing.T) {
	o := Operation{Server: "pg", Tool: "q", Roles: map[string]string{"known": "code", "none": "code", "id": "selector"}, Code: map[string]Rule{"known": {Class: ClassSelect}}}
	if got := o.Unruled([]string{"sql", "known", "id", "none", "query", "limit"}); !slices.Equal(got, []string{"none", "query", "sql"}) {
		t.Error(got)
	}
}

func TestShapeIsOfTheWhole(t *testing.T) {
	for _, pattern := range []string{`a|b`, `^a|b$`, `(?m)^a$`} {
		if r := mustShape(t, pattern); r.problem("a") != "" || r.problem("xb") == "" || r.problem("a\nrm") == "" {
			t.Errorf("%s matches a part", pattern)
		}
	}
	for _, bad := range []string{`(`, `a)(b`, `)|(`} {
		if _, err := Shape(bad); err == nil {
			t.Errorf("%q is a shape", bad)
		}
	}
}

// Whatever stands in a call, what is said to read has nothing of a shell in its ids, and nothing crashes.
func FuzzActs(f *testing.F) {
	for _, s := range []string{`{"id":"$(x)"}`, `{"path":["..",{"a":"/"}]}`, `{"opts":{"command":{"x":[]}}}`, `{"file_id":"<a@b>"}`, `[`} {
		f.Add(s)
	}
	o := Operation{Server: "db", Tool: "t"}
	f.Fuzz(func(t *testing.T, s string) {
		if o.Acts([]byte(s)) == "" && strings.HasPrefix(s, `{"id":"`) && strings.HasSuffix(s, `"}`) && strings.Count(s, `"`) == 4 && strings.Contains(s, "$(") {
			t.Errorf("%s reads", s)
		}
	})
}
