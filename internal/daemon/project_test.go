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
