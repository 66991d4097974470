package catalogue

import (
	"testing"

	"sallyport.example/internal/call"
	"sallyport.example/internal/project"
)

// Only a write of level 1 to a file is raised, for the one call, and nothing else of the operation changes.
func TestAt(t *testing.T) {
	dir := t.TempDir()
	p, err := project.New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	class := Classification{Level: 1, Project: p, StartsIn: dir, Roles: map[string]string{"path": "path", "content": "content"}}
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
