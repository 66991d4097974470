//go:build unix

package files

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport.example/internal/fault"
)

type attackCase struct {
	ID       string  `json:"id"`
	Category string  `json:"cat"`
	Op       string  `json:"op"`
	Arg      *string `json:"arg"`
	Expected string  `json:"expected"`
	Why      string  `json:"why"`
	Setup    string  `json:"setup"`
}

// attackCases reads the shared cases, which stand beside the repository.
func attackCases(t *testing.T) []attackCase {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Skip("no go.mod above: the shared path cases were not run")
		}
		dir = filepath.Dir(dir)
	}
	data, err := os.ReadFile(filepath.Join(dir, "..", "shared", "cases", "attacks", "paths.json"))
	if err != nil {
		t.Skip("the shared path cases are absent and were not run")
	}
	var file struct{ Cases []attackCase }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file.Cases
}

const session = "sess_0190a6f0c7d17c3e8a5b4c3d2e1f0a9b"

// world is the cases' fixture: a workspace and what lies beside it. {TMP}/ws of the cases is the session's folder here.
type world struct {
	s            *Store
	w            *Workspace
	tmp, ws, out string
}

func newWorld(t testing.TB, o Options) *world {
	t.Helper()
	tmp := t.TempDir()
	o.Root = filepath.Join(tmp, "data")
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	w, err := s.Workspace(session)
	if err != nil {
		t.Fatal(err)
	}
	// The parent of the workspace is where the cases' relative paths look for "outside".
	d := &world{s: s, w: w, tmp: filepath.Dir(w.dir), ws: w.dir, out: filepath.Join(filepath.Dir(w.dir), "outside")}
	for name, text := range map[string]string{
		d.ws + "/sub/ok.txt":              "ok",
		d.ws + "/..foo/ok.txt":            "ok",
		d.ws + "/re\u0301sume\u0301.txt":  "ok",
		d.out + "/secret.txt":             "SECRET",
		d.ws + "_secret/s.txt":            "SECRET",
		filepath.Join(tmp, "secret.txt"):  "SECRET",
		d.tmp + "/sess_other/private.txt": "SECRET",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func (d *world) fill(s string) string {
	return strings.NewReplacer("{WS}", d.ws, "{OUT}", d.out, "{TMP}/ws", d.ws, "{TMP}", d.tmp).Replace(s)
}

// prepare makes what the case's setup says.
func (d *world) prepare(t *testing.T, c attackCase) {
	t.Helper()
	var err error
	switch {
	case c.Setup == "":
	case strings.HasPrefix(c.Setup, "hard.txt hard link"):
		err = os.Link(d.out+"/secret.txt", d.ws+"/hard.txt")
	case strings.HasSuffix(c.Setup, "is a FIFO"):
		err = syscall.Mkfifo(d.ws+"/fifo.txt", 0o600)
	case strings.HasSuffix(c.Setup, "mode 0444"):
		err = os.WriteFile(d.ws+"/ro.txt", []byte("ro"), 0o444)
	default:
		for _, link := range strings.Split(c.Setup, ", ") {
			name, target, ok := strings.Cut(link, " -> ")
			if !ok {
				t.Fatalf("a setup that this test does not know: %q", c.Setup)
			}
			target = strings.TrimSuffix(target, " (absent)")
			if err = os.Symlink(d.fill(target), filepath.Join(d.ws, name)); err != nil {
				break
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// outsides is everything that must not change.
func (d *world) outsides(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, top := range []string{d.out, d.ws + "_secret", d.tmp + "/sess_other"} {
		filepath.WalkDir(top, func(name string, e os.DirEntry, err error) error {
			if err != nil {
				t.Fatal(err)
			}
			fi, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			all.WriteString(name + " " + fi.Mode().String() + " " + fi.ModTime().String())
			if fi.Mode().IsRegular() {
				text, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				all.Write(text)
			}
			all.WriteByte('\n')
			return nil
		})
	}
	return all.String()
}

func within(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("blocked")
	}
}

func TestAttackCases(t *testing.T) {
	seen := map[string]int{}
	for _, c := range attackCases(t) {
		switch c.Category {
		case "traversal", "control", "symlink", "write":
		case "race":
			if !slices.Contains(races, c.ID) {
				t.Errorf("%s (%s) has no test", c.ID, c.Why)
			}
			seen[c.Category]++
			continue
		default:
			continue // commands: another package's
		}
		seen[c.Category]++
		t.Run(c.ID, func(t *testing.T) {
			d := newWorld(t, Options{})
			d.prepare(t, c)
			before := d.outsides(t)
			ctx := t.Context()
			within(t, func() {
				arg := d.fill(*c.Arg)
				switch {
				case c.Op == "read" && c.Expected == "allow":
					f, err := d.w.Read(ctx, arg, 0, 0)
					if err != nil || string(f.Bytes) != "ok" {
						t.Errorf("%s: %v", c.Why, err)
					}
				case c.Expected != "deny":
					t.Errorf("%s expects %q", c.ID, c.Expected)
				case c.Op == "read":
					f, err := d.w.Read(ctx, arg, 0, 0)
					d.denied(t, c, f, err)
					// What can't be read can't be written, listed or opened by a search either.
					if c.Category != "symlink" && fault.Is(err, fault.PathBlocked) {
						if _, err := d.w.Write(ctx, arg, []byte("x"), WriteOptions{}); !fault.Is(err, fault.PathBlocked) {
							t.Errorf("%s: write: %v", c.Why, err)
						}
					}
					if l, err := d.w.List(ctx, arg, 1, 0); err == nil {
						t.Errorf("%s: listed %v", c.Why, l)
					}
				default:
					f, err := d.w.Write(ctx, arg, []byte("changed"), WriteOptions{})
					d.denied(t, c, f, err)
					f, err = d.w.Write(ctx, arg, []byte("changed"), WriteOptions{Append: true})
					d.denied(t, c, f, err)
				}
			})
			if after := d.outsides(t); after != before {
				t.Errorf("%s: outside was\n%s\nis\n%s", c.Why, before, after)
			}
		})
	}
	for _, cat := range []string{"traversal", "control", "symlink", "write", "race"} {
		if seen[cat] == 0 {
			t.Errorf("no case of %s", cat)
		}
	}
}

func (d *world) denied(t *testing.T, c attackCase, f *File, err error) {
	t.Helper()
	if f != nil || err == nil {
		t.Fatalf("%s: not denied", c.Why)
	}
	if !fault.Is(err, fault.PathBlocked) && !fault.Is(err, fault.NotFound) {
		t.Errorf("%s: %v", c.Why, err)
	}
	if public := fault.Of(err).Public(); strings.Contains(public, d.tmp) || strings.Contains(public, "SECRET") {
		t.Errorf("%s: says too much: %s", c.Why, public)
	}
}

// What lies outside is refused in the same words whether it is there or not.
func TestOutsideSaysNothing(t *testing.T) {
	d := newWorld(t, Options{})
	for name, target := range map[string]string{
		"abs_there": d.out + "/secret.txt", "abs_absent": d.out + "/absent.txt",
		"rel_there": "../outside/secret.txt", "rel_absent": "../outside/absent.txt", "other": "../sess_other/private.txt",
	} {
		if err := os.Symlink(target, filepath.Join(d.ws, name)); err != nil {
			t.Fatal(err)
		}
	}
	want := ""
	for _, name := range []string{
		"../outside/secret.txt", "../outside/absent.txt", "/etc/passwd", "/etc/absent", d.out + "/secret.txt", d.out + "/absent", "..",
		"../sess_other/private.txt", d.ws + "_secret/s.txt", d.ws + "/../outside/secret.txt", "abs_there", "abs_absent", "rel_there", "rel_absent", "other", "cache/../../outside/secret.txt",
	} {
		for op, try := range map[string]func() error{
			"read":  func() error { _, err := d.w.Read(t.Context(), name, 0, 0); return err },
			"list":  func() error { _, err := d.w.List(t.Context(), name+"/", 1, 0); return err },
			"write": func() error { _, err := d.w.Write(t.Context(), name+"/x", nil, WriteOptions{}); return err },
		} {
			err := try()
			if !fault.Is(err, fault.PathBlocked) {
				t.Fatalf("%s %s: %v", op, name, err)
			}
			if got := fault.Of(err).Public(); want == "" {
				want = got
			} else if got != want {
				t.Errorf("%s %s: %q, others %q", op, name, got, want)
			}
		}
	}
}

func TestContextEnds(t *testing.T) {
	d := newWorld(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.w.Read(ctx, "sub/ok.txt", 0, 0); !fault.Is(err, fault.TimeExceeded) {
		t.Errorf("read: %v", err)
	}
	if _, err := d.w.Write(ctx, "new.txt", []byte("x"), WriteOptions{}); !fault.Is(err, fault.TimeExceeded) {
		t.Errorf("write: %v", err)
	}
	if _, err := d.w.List(ctx, ".", 1, 0); !fault.Is(err, fault.TimeExceeded) {
		t.Errorf("list: %v", err)
	}
	unlock, err := d.s.locks.lock(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.w.Write(ctx, "new.txt", []byte("x"), WriteOptions{}); !fault.Is(err, fault.TimeExceeded) {
		t.Errorf("write that waits: %v", err)
	}
	unlock()
	if len(d.s.locks.per) != 0 {
		t.Errorf("%d locks are left", len(d.s.locks.per))
	}
}
