package audit

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func TestKeyIsMadeOnceAndKept(t *testing.T) {
	dir := t.TempDir()
	first, err := LoadOrCreateKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^sallyport/[0-9a-f]{16}$`).MatchString(first.Origin()) {
		t.Errorf("origin %q", first.Origin())
	}
	for _, name := range []string{KeyFile, PublicFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	pub, err := os.ReadFile(filepath.Join(dir, PublicFile))
	if err != nil || string(pub) != first.PublicKey()+"\n" {
		t.Errorf("%s holds %q (%v), want %q", PublicFile, pub, err, first.PublicKey())
	}
	if err := os.Remove(filepath.Join(dir, PublicFile)); err != nil { // as after a crash between the two files
		t.Fatal(err)
	}
	again, err := LoadOrCreateKey(dir)
	if err != nil || again.PublicKey() != first.PublicKey() {
		t.Errorf("loaded again: %+v, %v", again, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestOnlyOneKeyWhenTwoStart(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	keys := make([]string, 8)
	for i := range keys {
		wg.Go(func() {
			s, err := LoadOrCreateKey(dir)
			if err != nil {
				t.Error(err)
				return
			}
			keys[i] = s.PublicKey()
		})
	}
	wg.Wait()
	for _, k := range keys {
		if k != keys[0] {
			t.Fatalf("two keys: %s and %s", k, keys[0])
		}
	}
}

func TestKeyIsRefused(t *testing.T) {
	remedies := map[string]string{
		"key gone": "restore the key", "key readable": "chmod 600", "key empty": "not a note private key", "key of another kind": "not a note private key",
		"key huge": "is not a key file", "another's public key": "restore the pair", "key is a link": "is not a key file",
	}
	for name, harm := range map[string]func(t *testing.T, dir string) error{
		"key gone":     func(_ *testing.T, dir string) error { return os.Remove(filepath.Join(dir, KeyFile)) },
		"key readable": func(_ *testing.T, dir string) error { return os.Chmod(filepath.Join(dir, KeyFile), 0o640) },
		"key empty":    func(_ *testing.T, dir string) error { return os.Truncate(filepath.Join(dir, KeyFile), 0) },
		"key of another kind": func(_ *testing.T, dir string) error {
			return os.WriteFile(filepath.Join(dir, KeyFile), []byte("PRIVATE+KEY+x+00000000+AQ=="), 0o600)
		},
		"key huge": func(_ *testing.T, dir string) error { return os.Truncate(filepath.Join(dir, KeyFile), 1<<20) },
		"another's public key": func(t *testing.T, dir string) error {
			other, err := LoadOrCreateKey(t.TempDir())
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, PublicFile), []byte(other.PublicKey()+"\n"), 0o600)
		},
		"key is a link": func(t *testing.T, dir string) error {
			key := filepath.Join(dir, KeyFile)
			moved := filepath.Join(t.TempDir(), "key")
			if err := os.Rename(key, moved); err != nil {
				return err
			}
			return os.Symlink(moved, key)
		},
	} {
		dir := t.TempDir()
		if _, err := LoadOrCreateKey(dir); err != nil {
			t.Fatal(err)
		}
		if err := harm(t, dir); err != nil {
			t.Fatal(err)
		}
		if s, err := LoadOrCreateKey(dir); err == nil {
			t.Errorf("%s: loaded as %s", name, s.Origin())
		} else if !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), remedies[name]) {
			t.Errorf("%s: the error names no file or not %q: %v", name, remedies[name], err)
		}
		if _, err := os.Lstat(filepath.Join(dir, KeyFile)); name == "key gone" && err == nil {
			t.Error("another key was made in place of the one that is gone")
		}
	}
	file := filepath.Join(t.TempDir(), KeyFile)
	if err := WriteKeyFile(file, "first"); err != nil {
		t.Fatal(err)
	}
	if err := WriteKeyFile(file, "second"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a key was replaced: %v", err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "first" {
		t.Errorf("the key is now %q (%v)", data, err)
	}
	if _, err := LoadOrCreateKey(filepath.Join(t.TempDir(), "nowhere")); err == nil {
		t.Error("a key in a directory that is not there")
	}
}

func TestCheckpoint(t *testing.T) {
	s, err := LoadOrCreateKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root := tlog.RecordHash([]byte("x"))
	data, err := s.Checkpoint(42, root, "")
	if err != nil {
		t.Fatal(err)
	}
	want := s.Origin() + "\n42\n" + root.String() + "\n\n— " + s.Origin() + " "
	if !strings.HasPrefix(string(data), want) {
		t.Errorf("checkpoint:\n%s\nwant it to begin with:\n%s", data, want)
	}
	v, err := ParsePublicKey(s.PublicKey() + "\n")
	if err != nil {
		t.Fatal(err)
	}
	if cp, err := OpenCheckpoint(data, v); err != nil || cp != (Checkpoint{s.Origin(), 42, root, ""}) {
		t.Errorf("opened as %+v, %v", cp, err)
	}
	digest := base64.StdEncoding.EncodeToString(root[:])
	if data, err = s.Checkpoint(42, root, digest); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(data), s.Origin()+"\n42\n"+root.String()+"\nsallyport-state "+digest+"\n\n— ") {
		t.Errorf("checkpoint with a state:\n%s", data)
	}
	if cp, err := OpenCheckpoint(data, v); err != nil || cp != (Checkpoint{s.Origin(), 42, root, digest}) {
		t.Errorf("opened as %+v, %v", cp, err)
	}
	if _, err := tlog.ParseTree([]byte(strings.Replace(string(data), s.Origin(), "go.sum database tree", 1))); err != nil {
		t.Errorf("a reader that knows nothing of the extension: %v", err)
	}
	for _, bad := range []string{"x", digest + "=", digest[:40], digest + "\n"} {
		if _, err := s.Checkpoint(42, root, bad); err == nil {
			t.Errorf("a checkpoint with the state %q", bad)
		}
	}
	if _, err := s.Checkpoint(-1, root, ""); err == nil {
		t.Error("a checkpoint of -1 entries")
	}

	sign := func(text string) []byte {
		data, err := note.Sign(&note.Note{Text: text}, s.signer)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	other, err := LoadOrCreateKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := other.Checkpoint(42, root, "")
	if err != nil {
		t.Fatal(err)
	}
	both, err := note.Sign(&note.Note{Text: Checkpoint{s.Origin(), 42, root, ""}.text()}, s.signer, other.signer)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"empty":            nil,
		"unsigned":         []byte(Checkpoint{s.Origin(), 42, root, ""}.text()),
		"another's":        theirs,
		"another origin":   sign(Checkpoint{"sallyport/other", 42, root, ""}.text()),
		"negative size":    sign(Checkpoint{s.Origin(), -42, root, ""}.text()),
		"size with plus":   sign(s.Origin() + "\n+42\n" + root.String() + "\n"),
		"size with zeros":  sign(s.Origin() + "\n042\n" + root.String() + "\n"),
		"no root":          sign(s.Origin() + "\n42\n"),
		"short root":       sign(s.Origin() + "\n42\nAAAA\n"),
		"no state":         sign(Checkpoint{s.Origin(), 42, root, ""}.text() + "sallyport-state \n"),
		"short state":      sign(Checkpoint{s.Origin(), 42, root, "AAAA"}.text()),
		"two states":       sign(Checkpoint{s.Origin(), 42, root, digest}.text() + "sallyport-state " + digest + "\n"),
		"a line more":      sign(Checkpoint{s.Origin(), 42, root, ""}.text() + "more\n"),
		"a signature more": both,
		"a newline more":   append(bytes.Clone(data), '\n'),
		"huge":             sign(strings.Repeat("x", maxCheckpoint) + "\n"),
	} {
		if cp, err := OpenCheckpoint(bad, v); err == nil {
			t.Errorf("%s: opened as %+v", name, cp)
		}
	}
}

func TestParsePublicKey(t *testing.T) {
	s, err := LoadOrCreateKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	pub := s.PublicKey()
	for _, bad := range []string{"", "x", pub + "\n\n", pub + " ", " " + pub, pub[:len(pub)-4] + "\n" + pub[len(pub)-4:], strings.Repeat("x", 5000)} {
		if _, err := ParsePublicKey(bad); err == nil {
			t.Errorf("%.100q is taken for a key", bad)
		}
	}
	name, rest, _ := strings.Cut(pub, "+")
	if upper := name + "+" + strings.ToUpper(rest[:8]) + rest[8:]; upper != pub {
		if _, err := ParsePublicKey(upper); err == nil {
			t.Errorf("%q is taken for a key", upper)
		}
	}
}

func FuzzOpenCheckpoint(f *testing.F) {
	s, err := LoadOrCreateKey(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	data, err := s.Checkpoint(7, tlog.RecordHash(nil), "")
	if err != nil {
		f.Fatal(err)
	}
	v, err := ParsePublicKey(s.PublicKey())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("a\n1\nx\n\n— a AAAA\n"))
	f.Fuzz(func(t *testing.T, got []byte) {
		if cp, err := OpenCheckpoint(got, v); err == nil && !bytes.Equal(got, data) {
			t.Fatalf("%q is taken for %+v", got, cp)
		}
	})
}

// What lies at path.new is not written to, whatever it is: a symbolic link, a second name of another file, an empty folder.
func TestReplaceFileWritesThroughNoLink(t *testing.T) {
	for name, put := range map[string]func(victim, next string) error{
		"a link":           os.Symlink,
		"a hard link":      os.Link,
		"a dangling link":  func(victim, next string) error { return os.Symlink(victim+"-2", next) },
		"a file of others": func(_, next string) error { return os.WriteFile(next, []byte("half"), 0o666) },
		"an empty folder":  func(_, next string) error { return os.Mkdir(next, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "file")
			for _, err := range []error{os.WriteFile(victim, []byte("victim"), 0o644), put(victim, path+".new"), ReplaceFile(path, []byte("new"))} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if data, err := os.ReadFile(victim); err != nil || string(data) != "victim" {
				t.Errorf("the other file holds %q, %v", data, err)
			}
			if data, err := os.ReadFile(path); err != nil || string(data) != "new" {
				t.Errorf("the file holds %q, %v", data, err)
			}
			if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info, err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
				t.Errorf("%v, %v", left, err)
			}
		})
	}
}
