package reading

import (
	"strings"
	"testing"
)

// The texts that can say which file a call is about: by role, by name, in lists and objects, and what nobody said anything about beside them.
func TestPaths(t *testing.T) {
	for name, c := range map[string]struct {
		roles     map[string]string
		arguments string
		want      string
	}{
		"role":             {map[string]string{"a": "path", "b": "content"}, `{"a":"x","b":"y"}`, "a=x"},
		"name":             {map[string]string{"b": "content"}, `{"b":"y","file_path":"x","outputDir":"z"}`, "file_path=x outputDir=z"},
		"other role":       {map[string]string{"repo_path": "repository", "files": "selector", "folderId": "target"}, `{"files":["x","y"],"folderId":"f","repo_path":"z"}`, "files=x files=y folderId=f repo_path=z"},
		"content":          {map[string]string{"path": "content"}, `{"path":"x"}`, ""},
		"no role beside":   {map[string]string{"a": "path"}, `{"a":"x","b":"y","c":{"d":["z"]},"n":1}`, "a=x b=y c=d c.d=z"},
		"no role alone":    {nil, `{"b":"y"}`, ""},
		"members":          {map[string]string{"files": "path"}, `{"files":{"x/y":"z"}}`, "files=x/y files.x/y=z"},
		"list of records":  {map[string]string{"edits.path": "path", "edits.text": "content"}, `{"edits":[{"path":"x","text":"t"},{"path":"y","text":"u"}]}`, "edits.path=x edits.path=y edits=path edits=text edits=path edits=text"},
		"point in a name":  {map[string]string{"a": "path"}, `{"a":"x","b.c":"y"}`, "a=x b%2Ec=y"},
		"plural":           {map[string]string{"b": "flag"}, `{"b":"y","paths":["x"]}`, "paths=x"},
		"nothing":          {map[string]string{"a": "path"}, `{}`, ""},
		"where to":         {map[string]string{"source": "path", "destination": "path"}, `{"destination":"x","source":"y"}`, "destination=x source=y"},
		"a role for above": {map[string]string{"o": "content"}, `{"o":{"path":"x"}}`, ""},
	} {
		var got []string
		o := &Operation{Server: "s", Tool: "t", Roles: c.roles}
		if err := o.Paths([]byte(c.arguments), func(at, text string) bool { got = append(got, at+"="+text); return true }); err != nil {
			t.Fatal(err)
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %s, not %s", name, s, c.want)
		}
	}
	n := 0
	o := &Operation{Roles: map[string]string{"a": "path"}}
	if err := o.Paths([]byte(`{"a":["x","y","z"],"b":"u"}`), func(string, string) bool { n++; return n < 2 }); err != nil || n != 2 {
		t.Errorf("it went on: %d, %v", n, err)
	}
	if err := o.Paths([]byte(`[`), func(string, string) bool { return true }); err == nil {
		t.Error("what is no object was read")
	}
}
