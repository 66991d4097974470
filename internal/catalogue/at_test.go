package catalogue

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.example/internal/call"
	"sallyport.example/internal/project"
)

// Only a write of level 1 to a file is raised, for the one call, and nothing else of the operation changes.
func TestAt(t *testing.T) {
	dir := t.TempDir()
	p, err := project.New(dir, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	class := Classification{Level: 1, Project: p, StartsIn: []string{dir}, Roles: map[string]string{"path": "path", "content": "content"}}
	op := &Operation{ID: "s.write", Server: "s", Tool: "write", Kind: call.Tool, Hash: "h", Class: class}
	op.profile()
	for arguments, level := range map[string]int{
		`{"path":"a.md","content":"../x"}`: 1, `{"path":".git/config"}`: 2, `{"path":["a",{"b":"../x"}]}`: 2, `{"path":7}`: 1, `{}`: 1, ``: 1, `[`: 2, `{"path":"a","more":"/etc/passwd"}`: 2,
	} {
		got := op.At([]byte(arguments))
		if got.Class.Level != level || got.Profile.Level != level || (got.Beyond != "") != (level == 2) || got.Hash != op.Hash || got.Rules != op.Rules {
			t.Errorf("%s is of level %d (%s)", arguments, got.Class.Level, got.Beyond)
		}
		if level == 2 && got.At([]byte(arguments)) != got {
			t.Errorf("%s is raised twice", arguments)
		}
	}
	commit := *op
	commit.Class.Action = Commits
	commit.Class.Roles = map[string]string{"path": "path", "message": "content", "files": "path"}
	for arguments, level := range map[string]int{
		`{"path":".","message":"x"}`: 1, `{"path":".","files":["a.js","src/b.js"]}`: 1, `{"message":"x"}`: 2, `{"path":""}`: 2, `{}`: 2, `{"path":"../x"}`: 2, `{"path":".","files":[".mcp.json"]}`: 2,
	} {
		if got := commit.At([]byte(arguments)); got.Class.Level != level {
			t.Errorf("a commit, %s, is of level %d (%s)", arguments, got.Class.Level, got.Beyond)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, ".git", "hooks"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".git", "hooks", "commit-msg"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := commit.At([]byte(`{"path":"."}`)); got.Class.Level != 2 || !strings.Contains(got.Beyond, "hooks") {
		t.Errorf("a commit that runs hooks is of level %d (%s)", got.Class.Level, got.Beyond)
	}
	if got := op.At([]byte(`{"path":"."}`)); got.Class.Level != 1 {
		t.Errorf("what is no commit is of level %d (%s)", got.Class.Level, got.Beyond)
	}
	commit.Class.Project = nil
	if got := commit.At([]byte(`{"path":"."}`)); got.Class.Level != 2 {
		t.Error("a commit without a project is of level 1")
	}
	if op.Class.Level != 1 || op.Profile.Level != 1 || op.Beyond != "" {
		t.Error("the operation itself changed")
	}
	arguments := []byte(`{"path":".git/config"}`)
	for name, change := range map[string]func(o *Operation){
		"no project": func(o *Operation) { o.Class.Project = nil }, "a read": func(o *Operation) { o.Class.Level = 0 }, "level 2": func(o *Operation) { o.Class.Level = 2 }, "a built-in": func(o *Operation) { o.Command = &Command{} },
	} {
		other := *op
		change(&other)
		if other.At(arguments) != &other {
			t.Errorf("%s is raised", name)
		}
	}
}
