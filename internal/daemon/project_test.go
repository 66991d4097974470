package daemon

import (
	"os"
	"path/filepath"
	"testing"
)

// TestProjectIsNoHome: a folder that is the home or holds it, also by a link, is no project; one in it is.
func TestProjectIsNoHome(t *testing.T) {
	dir := t.TempDir()
	home := filepath.Join(dir, "homes", "erin")
	if err := os.MkdirAll(filepath.Join(home, "work"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(home, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	for folder, refused := range map[string]bool{home: true, filepath.Dir(home): true, dir: true, filepath.Join(dir, "link"): true, filepath.Join(home, "work"): false} {
		c := &Config{Dir: dir, Flow: FlowConfig{Project: folder}}
		p := &complaints{root: parsed(t, "").root}
		c.checkProject(p)
		if (len(p.all) > 0) != refused {
			t.Errorf("%s: %v", folder, p.all)
		}
	}
}

// A server may begin a relative path at a folder that its command names: what lies outside of the project there is no write in it.
func TestRelativePathsBeginWhereTheCommandSays(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	for _, sub := range []string{"docs", "x"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := parsed(t, `
flow: {project: `+dir+`, free_level_1: true}
upstreams:
  inside:  {command: [fs, ./docs], cwd: `+dir+`}
  both:    {command: [fs, `+outside+`, `+dir+`], cwd: `+dir+`}
  flagged: {command: [fs, --root=`+outside+`], cwd: `+dir+`}
  text:    {command: [fs, "not a folder"], cwd: `+dir+`}
  script:  {command: [node, --require=./x/hook.js, ./x/server.mjs, x/data.json], cwd: `+dir+`}
  program: {command: [./x/run], cwd: `+dir+`}
operations:
  inside.w:  {sensitivity: none, level: 1, args: {path: path}}
  both.w:    {sensitivity: none, level: 1, args: {path: path}}
  flagged.w: {sensitivity: none, level: 1, args: {path: path}}
  text.w:    {sensitivity: none, level: 1, args: {path: path}}
`)
	for server, stays := range map[string]bool{"inside": true, "both": false, "flagged": false, "text": true} {
		class := c.Classifier(nil)(server, "w")
		if why := class.Beyond(server, "w", []byte(`{"path":"notes.txt"}`)); (why == "") != stays {
			t.Errorf("%s: a relative path: %q", server, why)
		}
		if why := class.Beyond(server, "w", []byte(`{"path":"`+dir+`/notes.txt"}`)); why != "" {
			t.Errorf("%s: a path in the project: %q", server, why)
		}
	}
	class := c.Classifier(nil)("inside", "w")
	for path, stays := range map[string]bool{"x/hook.js": false, "x/server.mjs": false, "x/run": false, "x/data.json": true, "x/other.js": true} {
		if why := class.Beyond("inside", "w", []byte(`{"path":"`+dir+"/"+path+`"}`)); (why == "") != stays {
			t.Errorf("%s, which a server's command may name: %q", path, why)
		}
	}
}
