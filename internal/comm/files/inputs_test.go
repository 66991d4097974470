package files

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// inputWorld is a workspace with a script, a data file, a link to the script, a folder, and a pipe of which nobody reads.
func inputWorld(t *testing.T) (s *Store, dir string) {
	t.Helper()
	s, err := Open(Options{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if dir, err = s.Dir(inputSession); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "run.sh", "echo hello\n")
	put(t, dir, "notes/a.txt", "a")
	if err := errors.Join(os.Symlink("run.sh", filepath.Join(dir, "alias")), os.Symlink("/etc/hostname", filepath.Join(dir, "out"))); err != nil {
		t.Fatal(err)
	}
	return s, dir
}

const inputSession = "sess_01a2009ca9eb71aca8a6d450ac52f9ed"

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func inputs(t *testing.T, s *Store, whole bool, words ...string) *call.Inputs {
	t.Helper()
	in, err := s.Inputs(t.Context(), inputSession, words, whole)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// With a word that is no plain path a program could read what the path doesn't tell: the person answers for the whole workspace.
func TestInputsOfWordsThatAreNoPlainPaths(t *testing.T) {
	s, dir := inputWorld(t)
	put(t, dir, "deep/below/report", "another report")
	put(t, dir, "report", "the report")
	if err := errors.Join(os.Symlink("deep/below", filepath.Join(dir, "l")), os.Symlink("nothing", filepath.Join(dir, "dangling"))); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{
		"notes", ".", "./", dir, dir + "/", "alias", "dangling", "l", "l/report", "l/../report", "./l/../report", "notes/../report", dir + "/l/../report", "..", "../x", "../" + filepath.Base(dir) + "/report",
		"/etc/passwd", "/proc/self/cwd/report", "//proc/self/cwd/report", "/dev/stdin", "/dev/fd/3", strings.Repeat("./", maxPath) + "report",
	} {
		before := inputs(t, s, false, word)
		if before.Workspace == nil {
			t.Errorf("%q: not the whole workspace", word)
			continue
		}
		put(t, dir, "deep/report", word) // what l/../report reads
		if inputs(t, s, false, word).Same(before) {
			t.Errorf("%q: a change goes unnoticed", word)
		}
	}
}

// A word that names a file of the workspace, however it is written, is described; what names none is not.
func TestInputsAreTheFilesThatWordsName(t *testing.T) {
	s, dir := inputWorld(t)
	for word, want := range map[string]string{
		"run.sh": "run.sh", "./run.sh": "run.sh", ".//run.sh": "run.sh", dir + "/run.sh": "run.sh", dir + "//./run.sh": "run.sh", "notes/a.txt": "notes/a.txt",
		"": "", "nothing": "", "-n": "", "hello world": "", "run.sh/x": "", strings.Repeat("n", 900): "", "a\x00b": "", "...": "", "a..b": "",
	} {
		in := inputs(t, s, false, word)
		switch {
		case want == "" && len(in.Files) > 0, want != "" && (len(in.Files) != 1 || in.Files[0].Path != want):
			t.Errorf("%q: %+v", word, in)
		case want == "run.sh":
			if f := in.Files[0]; f.Size != 11 || f.SHA256 != call.HashBytes([]byte("echo hello\n")) {
				t.Errorf("%q: %+v", word, f)
			}
		}
		if in.Workspace != nil {
			t.Errorf("%q: the whole workspace", word)
		}
	}
	if in := inputs(t, s, false, "run.sh", "./run.sh", "run.sh"); len(in.Files) != 1 {
		t.Errorf("once: %+v", in)
	}
	if in := inputs(t, s, false, "notes"); in.Workspace == nil {
		t.Error("a folder that a word names is not described")
	}
	if _, err := s.Inputs(t.Context(), inputSession, []string{"out"}, false); !fault.Is(err, fault.PathBlocked) {
		t.Errorf("a link out of the workspace: %v", err)
	}
}

// Whatever changes in the workspace changes its description, and what only looks at it does not.
func TestInputsOfTheWholeWorkspaceCoverEverythingInIt(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"content of the same length": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "run.sh"), []byte("echo hullo\n"), 0o600)
		},
		"a new file":  func(dir string) error { return os.WriteFile(filepath.Join(dir, ".gitconfig"), nil, 0o600) },
		"a file gone": func(dir string) error { return os.Remove(filepath.Join(dir, "notes/a.txt")) },
		"a new name":  func(dir string) error { return os.Rename(filepath.Join(dir, "run.sh"), filepath.Join(dir, "run2.sh")) },
		"executable":  func(dir string) error { return os.Chmod(filepath.Join(dir, "run.sh"), 0o700) },
		"a link elsewhere": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "alias")), os.Symlink("notes/a.txt", filepath.Join(dir, "alias")))
		},
		"an empty folder": func(dir string) error { return os.Mkdir(filepath.Join(dir, "empty"), 0o700) },
		"a file for a folder": func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, "notes")), os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600))
		},
		"deep in a folder": func(dir string) error { return os.WriteFile(filepath.Join(dir, "notes/b.txt"), []byte("b"), 0o600) },
		"a temporary file": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, tempPrefix+"x"+tempSuffix), []byte("b"), 0o600)
		},
		"a hidden folder's file": func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, ".x"), 0o700), os.WriteFile(filepath.Join(dir, ".x/y"), nil, 0o600))
		},
	} {
		s, dir := inputWorld(t)
		before := inputs(t, s, true)
		if again := inputs(t, s, true); !again.Same(before) || before.Workspace == nil || before.Workspace.Entries != 5 {
			t.Fatalf("looked at twice: %+v, %+v", before.Workspace, again.Workspace)
		}
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		if after := inputs(t, s, true); after.Same(before) {
			t.Errorf("%s changes nothing in what a person answers for", name)
		}
	}
}

// What is more than a person can answer for is refused, and not left out.
func TestInputsAreBounded(t *testing.T) {
	s, dir := inputWorld(t)
	f, err := os.Create(filepath.Join(dir, "big"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(maxInputBytes+1), f.Close()); err != nil {
		t.Fatal(err)
	}
	for _, whole := range []bool{true, false} {
		if _, err := s.Inputs(t.Context(), inputSession, []string{"big"}, whole); !fault.Is(err, fault.LimitQuota) {
			t.Errorf("a large file, whole %t: %v", whole, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "big")); err != nil {
		t.Fatal(err)
	}
	for i := range maxInputEntries {
		if err := os.Mkdir(filepath.Join(dir, "d"+strings.Repeat("i", i%9)+string(rune('a'+i%26))+random()[:6]), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Inputs(t.Context(), inputSession, nil, true); !fault.Is(err, fault.LimitQuota) {
		t.Errorf("many folders: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Inputs(ended, inputSession, []string{"run.sh"}, false); !fault.Is(err, fault.TimeExceeded) {
		t.Errorf("out of time: %v", err)
	}
}

// Who has a workspace alone keeps writes and others out until it lets go, and is kept out by them; sessions do not wait for each other.
func TestWorkspaceIsHeldAlone(t *testing.T) {
	s, _ := inputWorld(t)
	soon := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	w, err := s.Workspace(inputSession)
	if err != nil {
		t.Fatal(err)
	}
	letGo, err := s.Hold(t.Context(), inputSession)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(soon(), "run.sh", []byte("evil"), WriteOptions{}); !fault.Is(err, fault.Conflict) {
		t.Errorf("written while a program has it alone: %v", err)
	}
	if _, err := s.Share(soon(), inputSession); !fault.Is(err, fault.Conflict) {
		t.Errorf("shared: %v", err)
	}
	if _, err := s.Hold(soon(), inputSession); !fault.Is(err, fault.Conflict) {
		t.Errorf("twice alone: %v", err)
	}
	if other, err := s.Hold(soon(), "sess_01a2"); err != nil {
		t.Errorf("of another session: %v", err)
	} else {
		other()
	}
	letGo()
	one, err := s.Share(t.Context(), inputSession)
	if err != nil {
		t.Fatal(err)
	}
	two, err := s.Share(t.Context(), inputSession)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Hold(soon(), inputSession); !fault.Is(err, fault.Conflict) {
		t.Errorf("alone beside two programs: %v", err)
	}
	one()
	two()
	if letGo, err = s.Hold(t.Context(), inputSession); err != nil {
		t.Fatal(err)
	}
	letGo()
	if n := len(s.locks.gates); n != 0 {
		t.Errorf("%d gates are left", n)
	}
}
