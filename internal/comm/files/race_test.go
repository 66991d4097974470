//go:build unix

package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sallyport.example/internal/fault"
)

// races are the scenarios of the shared cases that the tests in this file play.
var races = []string{"path-093", "path-094", "path-097", "path-100", "path-102", "path-104", "path-106", "path-108"}

// until runs f over and over on another goroutine until the returned function is called.
func until(f func()) (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
				f()
			}
		}
	})
	return func() { close(end); wg.Wait() }
}

// A folder turns into a link to outside and back while it is read, written and listed.
func TestRaceCheckThenOpen(t *testing.T) {
	d := newWorld(t, Options{})
	dir, link, flip := d.ws+"/real", d.ws+"/link", d.ws+"/flip"
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/secret.txt", []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(d.out, link); err != nil {
		t.Fatal(err)
	}
	before := d.outsides(t)
	stop := until(func() {
		if os.Rename(dir, flip) != nil {
			os.RemoveAll(flip) // a write made it
			return
		}
		os.Rename(flip, dir)
		os.Rename(link, flip)
		os.Rename(flip, link)
	})
	read, refused := 0, 0
	for i := range 20_000 {
		f, err := d.w.Read(t.Context(), "flip/secret.txt", 0, 0)
		switch {
		case err != nil:
			refused++
		case string(f.Bytes) != "mine":
			t.Fatalf("read %q", f.Bytes)
		default:
			read++
		}
		if i%20 == 0 {
			d.w.Write(t.Context(), "flip/new.txt", []byte("x"), WriteOptions{})
			if l, err := d.w.List(t.Context(), "flip", 2, 0); err == nil {
				for _, e := range l.Entries {
					if e.Size == int64(len("SECRET")) {
						t.Fatalf("listed %v", e)
					}
				}
			}
		}
	}
	stop()
	if read == 0 || refused == 0 {
		t.Errorf("the race was not run: %d reads, %d refusals", read, refused)
	}
	if after := d.outsides(t); after != before {
		t.Errorf("outside was\n%s\nis\n%s", before, after)
	}
}

// The folder of a write moves out while the write is under way.
func TestRaceFolderMovesOut(t *testing.T) {
	d := newWorld(t, Options{})
	stop := until(func() {
		os.Rename(d.ws+"/sub", d.out+"/moved")
		os.Rename(d.out+"/moved", d.ws+"/sub")
	})
	wrote := 0
	for i := range 200 {
		content := fmt.Appendf(nil, "content %d", i)
		if _, err := d.w.Write(t.Context(), "sub/x", content, WriteOptions{}); err != nil {
			continue
		}
		wrote++
		// sub is the folder that moved, or one that Write made meanwhile; either holds what was written by somebody's Write.
		for _, at := range []string{d.ws + "/sub/x", d.out + "/moved/x"} {
			if got, err := os.ReadFile(at); err == nil && !bytes.HasPrefix(got, []byte("content ")) {
				t.Fatalf("%s holds %q", at, got)
			}
		}
	}
	stop()
	if wrote == 0 {
		t.Error("nothing was written")
	}
	if _, err := os.Stat(d.out + "/x"); err == nil {
		t.Error("written beside the folder")
	}
	if got, err := os.ReadFile(d.out + "/secret.txt"); err != nil || string(got) != "SECRET" {
		t.Errorf("outside: %q, %v", got, err)
	}
	noTemps(t, d)
}

func noTemps(t *testing.T, d *world) {
	t.Helper()
	left, err := filepath.Glob(d.ws + "/" + tempPrefix + "*")
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// Of two writers who saw the same content one wins.
func TestRaceLostUpdate(t *testing.T) {
	d := newWorld(t, Options{})
	for round := range 50 {
		f, err := d.w.Write(t.Context(), "plan.md", fmt.Appendf(nil, "round %d", round), WriteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		errs := make([]error, 8)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				_, errs[i] = d.w.Write(t.Context(), "plan.md", fmt.Appendf(nil, "writer %d", i), WriteOptions{Expected: f.SHA256})
			})
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else if !fault.Is(err, fault.Conflict) {
				t.Fatal(err)
			}
		}
		if won != 1 {
			t.Fatalf("%d of %d won", won, len(errs))
		}
	}
	// The same for a file that must not be there, and no line is lost by appending.
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			_, errs[i] = d.w.Write(t.Context(), "new.md", nil, WriteOptions{Expected: Absent})
			d.w.Write(t.Context(), "log.txt", []byte("line\n"), WriteOptions{Append: true})
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		}
	}
	if got, _ := os.ReadFile(d.ws + "/log.txt"); won != 1 || string(got) != strings.Repeat("line\n", len(errs)) {
		t.Errorf("%d made the file; log %q", won, got)
	}
}

// endless says that it is short. It gives up long after its reader should have.
type endless struct{ read int64 }

func (e *endless) Read(p []byte) (int, error) {
	if e.read > 64<<20 {
		return 0, io.EOF
	}
	clear(p)
	e.read += int64(len(p))
	return len(p), nil
}

// The cap counts bytes that came.
func TestRaceLyingSize(t *testing.T) {
	var r endless
	if _, err := slurp(t.Context(), &r, 10, 1<<20); !fault.Is(err, fault.ResultTooLarge) {
		t.Fatal(err)
	}
	if r.read > 2<<20 {
		t.Errorf("%d bytes were read for a limit of 1 MiB", r.read)
	}
	if _, err := slurp(t.Context(), bytes.NewReader(make([]byte, 100)), 10, 100); err != nil {
		t.Error(err)
	}
	if _, err := slurp(t.Context(), bytes.NewReader(make([]byte, 101)), 10, 100); !fault.Is(err, fault.ResultTooLarge) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := slurp(ctx, &r, 10, 1<<40); !fault.Is(err, fault.TimeExceeded) {
		t.Error(err)
	}

	// A file of procfs says 0 bytes and has some: it is read by what comes.
	const status = "/proc/self/status"
	if _, err := os.Stat(status); err != nil {
		return
	}
	f, err := os.Open(status)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := slurp(t.Context(), f, 0, 1<<20); err != nil || len(got) < 100 {
		t.Errorf("%d bytes, %v", len(got), err)
	}

	// A sparse file is as long as it says.
	d := newWorld(t, Options{})
	if err := os.Truncate(d.ws+"/sub/ok.txt", 1<<40); err != nil {
		t.Fatal(err)
	}
	if _, err := d.w.Read(t.Context(), "sub/ok.txt", 1<<39, 10); !fault.Is(err, fault.ResultTooLarge) {
		t.Error(err)
	}
	if _, err := d.w.Write(t.Context(), "more.txt", []byte("x"), WriteOptions{}); !fault.Is(err, fault.LimitQuota) {
		t.Error(err)
	}
}

// A folder on the way becomes a link to outside while the way is made.
func TestRaceMkdirAll(t *testing.T) {
	d := newWorld(t, Options{})
	before := d.outsides(t)
	if err := os.Symlink(d.out, d.ws+"/link"); err != nil {
		t.Fatal(err)
	}
	var attempts atomic.Int64
	rounds := 0
	stop := until(func() {
		if rounds++; rounds%10 == 0 { // let one through now and then
			for now := attempts.Load(); now >= 0 && attempts.Load() == now; {
				runtime.Gosched()
			}
		}
		os.RemoveAll(d.ws + "/a")
		os.Symlink(d.out, d.ws+"/a")
		os.Remove(d.ws + "/a")
	})
	wrote := 0
	for i := range 3000 {
		attempts.Add(1)
		if _, err := d.w.Write(t.Context(), fmt.Sprintf("a/b%d/c/x", i%7), []byte("x"), WriteOptions{}); err == nil {
			wrote++
		}
	}
	attempts.Store(-1)
	stop()
	if after := d.outsides(t); after != before {
		t.Errorf("outside was\n%s\nis\n%s", before, after)
	}
	if wrote == 0 {
		t.Error("nothing was written")
	}
	noTemps(t, d)
}

// Removal takes links, not what they point to; and comes to an end with trees that are deep, large or locked.
func TestRaceRemove(t *testing.T) {
	d := newWorld(t, Options{})
	before := d.outsides(t)
	for name, target := range map[string]string{"dir": d.out, "sub/file": d.out + "/secret.txt", "sub/rel": "../../outside", "loop": "."} {
		if err := os.Symlink(target, filepath.Join(d.ws, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(d.out+"/secret.txt", d.ws+"/hard"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(d.ws+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	deep(t, d.ws+"/deep", 4000)
	if err := os.MkdirAll(d.ws+"/locked/in", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(d.ws+"/locked", 0); err != nil {
		t.Fatal(err)
	}
	within(t, func() {
		if err := d.s.Remove(session); err != nil {
			t.Error(err)
		}
	})
	if _, err := os.Lstat(d.ws); !os.IsNotExist(err) {
		t.Errorf("the workspace is there: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(d.s.opt.Root, closedDir)); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if after := d.outsides(t); after != before {
		t.Errorf("outside was\n%s\nis\n%s", before, after)
	}
	if err := d.s.Remove(session); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if _, err := d.w.Read(t.Context(), "sub/ok.txt", 0, 0); !fault.Is(err, fault.NotFound) {
		t.Errorf("read after removal: %v", err)
	}
	if _, err := d.w.Write(t.Context(), "x", nil, WriteOptions{}); !fault.Is(err, fault.NotFound) {
		t.Errorf("write after removal: %v", err)
	}
}

// deep makes n folders inside one another; their path is longer than the system takes, so it goes down piece by piece.
func deep(t testing.TB, dir string, n int) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	piece := strings.TrimSuffix(strings.Repeat("d/", 50), "/")
	for i := 0; i < n; i += 50 {
		if err := r.MkdirAll(piece, 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := r.OpenRoot(piece)
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		r = next
	}
	r.Close()
}

// Listings of what is too wide or too deep are cut, and say so.
func TestRaceListingBomb(t *testing.T) {
	d := newWorld(t, Options{MaxFiles: 100})
	const wide = 10_000
	if err := os.Mkdir(d.ws+"/wide", 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range wide {
		if err := os.Symlink("x", fmt.Sprintf("%s/wide/%06d", d.ws, wide-i)); err != nil {
			t.Fatal(err)
		}
	}
	l, err := d.w.List(t.Context(), "wide", 1, 1<<30)
	if err != nil || len(l.Entries) != 1000 || !l.Truncated {
		t.Fatalf("%d entries, truncated %v, %v", len(l.Entries), l.Truncated, err)
	}
	for i, e := range l.Entries { // the first by name, whatever the order on the disk
		if want := fmt.Sprintf("wide/%06d", i+1); e.Path != want || e.Kind != KindLink {
			t.Fatalf("entry %d is %v, not %s", i, e, want)
		}
	}
	if l, err = d.w.List(t.Context(), ".", 5, 10); err != nil || len(l.Entries) != 10 || !l.Truncated {
		t.Fatalf("%v, %v", l, err)
	}
	scan := 500
	root, err := os.OpenRoot(d.ws)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if found, more, err := children(t.Context(), root, "wide", 1000, &scan); err != nil || !more || len(found) != 500 {
		t.Fatalf("%d found, more %v, %v", len(found), more, err)
	}
	deep(t, d.ws+"/deep", 2000)
	if l, err = d.w.List(t.Context(), "deep", 10_000, 0); err != nil || len(l.Entries) != maxDepth || !l.Truncated {
		t.Fatalf("%d entries, truncated %v, %v", len(l.Entries), l.Truncated, err)
	}
	// Neither can be measured cheaply, so nothing more is written, not even in place of what is there.
	for _, name := range []string{"x", "sub/ok.txt"} {
		if _, err := d.w.Write(t.Context(), name, nil, WriteOptions{}); !fault.Is(err, fault.LimitQuota) {
			t.Error(err)
		}
	}
	within(t, func() {
		if err := d.s.Remove(session); err != nil {
			t.Error(err)
		}
	})
}

// A process is killed while it writes; the file is one of the contents, and the next start cleans up.
func TestRaceCrash(t *testing.T) {
	const env = "FILES_TEST_CRASH"
	contents := [2][]byte{bytes.Repeat([]byte("a"), 1<<20), bytes.Repeat([]byte("b"), 1<<20)}
	if root := os.Getenv(env); root != "" {
		s, err := Open(Options{Root: root})
		if err != nil {
			t.Fatal(err)
		}
		w, err := s.Workspace(session)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("ready")
		for i := 0; ; i++ {
			if _, err := w.Write(t.Context(), "file", contents[i%2], WriteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	tmp := t.TempDir()
	temps := 0
	for i := range 12 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestRaceCrash$")
		cmd.Env = append(os.Environ(), env+"="+tmp)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		out.Read(make([]byte, 5))
		name := filepath.Join(tmp, workspaceDir, session, "file")
		for {
			if _, err := os.Stat(name); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(i) * 700 * time.Microsecond) // any moment will do
		cmd.Process.Kill()
		cmd.Wait()
		got, err := os.ReadFile(name)
		if err != nil || !bytes.Equal(got, contents[0]) && !bytes.Equal(got, contents[1]) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		left, _ := filepath.Glob(filepath.Join(filepath.Dir(name), tempPrefix+"*"))
		temps += len(left)
		s, err := Open(Options{Root: tmp})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(name), tempPrefix+"*")); len(left) != 0 {
			t.Fatalf("after the start: %v", left)
		}
	}
	t.Logf("%d unfinished writes were left and cleaned", temps)
}

// What a crash can leave is cleaned at the start, and nothing else is.
func TestOpenCleans(t *testing.T) {
	d := newWorld(t, Options{})
	temp := tempPrefix + random() + tempSuffix
	for _, name := range []string{d.ws + "/" + temp, d.ws + "/sub/" + temp, d.ws + "/.sallyport-note"} {
		if err := os.WriteFile(name, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(d.out+"/secret.txt", d.ws+"/"+tempPrefix+"link"+tempSuffix); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(d.tmp+"/sess_other", filepath.Join(d.s.opt.Root, closedDir, "sess_other-1")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(d.s.CacheDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := Open(d.s.opt)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	noTemps := []string{d.ws + "/" + temp, d.ws + "/" + tempPrefix + "link" + tempSuffix, filepath.Join(s.opt.Root, closedDir, "sess_other-1")}
	for _, name := range noTemps {
		if _, err := os.Lstat(name); !os.IsNotExist(err) {
			t.Errorf("%s is there: %v", name, err)
		}
	}
	for _, name := range []string{d.ws + "/sub/ok.txt", d.ws + "/sub/" + temp, d.ws + "/.sallyport-note", d.out + "/secret.txt"} {
		if _, err := os.Lstat(name); err != nil {
			t.Error(err)
		}
	}
	for _, dir := range []string{workspaceDir, cacheDir, closedDir} {
		if fi, err := os.Stat(filepath.Join(s.opt.Root, dir)); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v %v", dir, fi.Mode(), err)
		}
	}
}

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}
