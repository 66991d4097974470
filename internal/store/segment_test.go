package store

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/segment"
)

// roll makes the log go on in a new file, and seals the one before.
func roll(t testing.TB, db *DB) {
	t.Helper()
	must(t, db.roll(0))
	must(t, db.sealOlder())
}

// rolled fills a directory with entries in three files, the newest of which has some of its own. What each file has differs in its rows, too.
func rolled(t testing.TB) (dir string, db *DB) {
	t.Helper()
	db = openDB(t)
	dir = db.dir
	for i := range 2 {
		if t, ok := t.(*testing.T); ok {
			opened(t, db, fmt.Sprint("a", i))
		}
		must(t, db.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: "kept apart", Arguments: payload(fmt.Sprint("large ", i))}))
		fill(t, db, 400*(i+1))
		roll(t, db)
	}
	must(t, db.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: startAction}))
	fill(t, db, 1000)
	return dir, db
}

func names(t testing.TB, dir string) (all []string) {
	t.Helper()
	found, err := os.ReadDir(dir)
	must(t, err)
	for _, f := range found {
		if strings.HasPrefix(f.Name(), "sallyport") && !strings.HasSuffix(f.Name(), "-wal") && !strings.HasSuffix(f.Name(), "-shm") {
			all = append(all, f.Name())
		}
	}
	return all
}

// A log in three files is one log: all that can be read of it, and its proofs, are what they were.
func TestSegments(t *testing.T) {
	dir, db := rolled(t)
	equal(t, "files", len(names(t, dir)), 3)
	if report := verify(t, db.Reader); !report.OK || report.Checked != 1000 || report.Unsigned > 1000 {
		t.Fatalf("%+v", report)
	}
	sealed, first := db.Segments()
	if len(sealed) != 2 || sealed[0].First != 0 || sealed[0].End != 400 || sealed[1].First != 400 || sealed[1].End != first {
		t.Errorf("%+v, %d", sealed, first)
	}
	for i, s := range sealed {
		if info, err := os.Stat(filepath.Join(dir, s.Name)); err != nil || info.Mode().Perm() != 0o400 || info.Size() != s.Bytes {
			t.Errorf("%s: %v, %v", s.Name, info.Mode(), err)
		}
		start, _, err := db.Entry(t.Context(), s.End)
		if must(t, err); start.Action != "segment.start" || !strings.Contains(string(start.Detail), s.Root) || !strings.Contains(string(start.Detail), s.State) || s.State == "" {
			t.Errorf("the entry after %s is %+v", s.Name, start)
		}
		root, err := db.RootAt(t.Context(), s.End)
		if must(t, err); root.String() != s.Root {
			t.Errorf("%s has another root than the log there", s.Name)
		}
		if data, err := db.Payload(t.Context(), payload(fmt.Sprint("large ", i)).Key); err != nil || string(data) != fmt.Sprint("large ", i) {
			t.Errorf("%q, %v", data, err)
		}
	}
	_, err := db.Checkpoint(t.Context())
	must(t, err)
	s, err := db.snapshot(t.Context())
	must(t, err)
	for _, i := range []int64{0, 255, 256, 399, 400, 401, 511, 512, 801, 999} {
		e, leaf, err := db.Entry(t.Context(), i)
		must(t, err)
		proof, err := db.Inclusion(t.Context(), i, 0)
		if err != nil || e.Index != i {
			t.Fatalf("entry %d: %v", i, err)
		}
		if err := tlog.CheckRecord(proof.Hashes, proof.Size, s.Root(), i, tlog.RecordHash(leaf)); err != nil {
			t.Errorf("entry %d: %v", i, err)
		}
	}
	must(t, db.Close())
	starts(t, dir)
}

// Two processes: a reader that was opened before sees the log as it was, or as it is.
func TestReaderOutsideWhileTheLogGoesOn(t *testing.T) {
	db := openDB(t)
	fill(t, db, 400)
	r, err := OpenReadOnly(db.dir)
	must(t, err)
	defer r.Close()
	_, _, err = r.Entry(t.Context(), 5)
	must(t, err)
	must(t, db.roll(0))
	fill(t, db, 700)
	roll(t, db)
	if size, err := r.Size(t.Context()); err != nil || size != 400 {
		t.Errorf("%d, %v", size, err)
	}
	must(t, db.sealOlder())
	for range 2 {
		if report := verify(t, r); !report.OK || report.Checked < 701 {
			t.Errorf("%+v", report)
		}
	}
	fill(t, db, 900)
	if size, err := r.Size(t.Context()); err != nil || size != 900 {
		t.Errorf("%d, %v", size, err)
	}
}

// The process may end at each step of going on in a new file. The next start has either the old file or the new one, and every entry.
func TestCrashWhileTheLogGoesOn(t *testing.T) {
	for name, step := range map[string]struct {
		do    func(t *testing.T, dir, unnamed string) // unnamed: the new file before it has its name
		files int
		next  string // action of the entry 400
	}{
		"nothing was made": {func(*testing.T, string, string) {}, 1, "call"},
		"the new file is not whole": {func(t *testing.T, dir, _ string) {
			must(t, os.WriteFile(filepath.Join(dir, segment.Name(400)+".new"), []byte("half of it"), 0o600))
			must(t, os.WriteFile(filepath.Join(dir, segment.Name(400)+".new-journal"), []byte("half of it"), 0o600))
		}, 1, "call"},
		"the new file is whole, without its name": {func(t *testing.T, dir, unnamed string) {
			copyFile(t, unnamed, filepath.Join(dir, segment.Name(400)+".new"))
		}, 1, "call"},
		"the new file has its name, and no entry of its own": {func(t *testing.T, dir, unnamed string) {
			copyFile(t, unnamed, filepath.Join(dir, segment.Name(400)))
		}, 2, "segment.start"},
	} {
		t.Run(name, func(t *testing.T) {
			db := openDB(t)
			dir := db.dir
			s := opened(t, db, "a")
			get(t)(db.Intent(t.Context(), s.ID, s.Version, intent(s, "c1"), nil)) // under way until after the crash
			fill(t, db, 400)
			_, err := db.Checkpoint(t.Context())
			must(t, err)
			unnamed := filepath.Join(t.TempDir(), "unnamed")
			if err := db.w.aside(func() error {
				return segment.Make(t.Context(), db.dir, DatabaseFile, 400, func(path string) error {
					copyFile(t, path, unnamed)
					return errors.New("the crash")
				})
			}); err == nil || !strings.Contains(err.Error(), "the crash") || len(names(t, dir)) != 1 {
				t.Fatalf("%v, %v", err, names(t, dir))
			}
			crashed := copyDir(t, dir) // while it is open: what is in the write-ahead log is part of it
			must(t, db.Close())
			step.do(t, crashed, unnamed)
			if db, err = Open(crashed, Options{}); err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if got := names(t, crashed); len(got) != step.files {
				t.Errorf("%v", got)
			}
			e, _, err := db.Entry(t.Context(), 400)
			must(t, err)
			if e.Action != step.next {
				t.Errorf("%+v", e)
			}
			roll(t, db) // it goes on from there
			if got, _, err := db.Entries(t.Context(), audit.Filter{Kind: "outcome"}); err != nil || len(got) != 1 || got[0].Decision != "unknown" {
				t.Errorf("%+v, %v", got, err)
			}
			if report := verify(t, db.Reader); !report.OK {
				t.Errorf("%+v", report)
			}
		})
	}
}

// Where a call is under way while the log goes on, its outcome goes to the new file, and after a crash it is unknown.
func TestCallsThatBeganInAnOlderFile(t *testing.T) {
	db := openDB(t)
	dir := db.dir
	s := opened(t, db, "a")
	get(t)(db.Intent(t.Context(), s.ID, s.Version, intent(s, "c1"), nil))
	get(t)(db.Intent(t.Context(), s.ID, s.Version, intent(s, "c2"), nil))
	for i := range 2 {
		fill(t, db, 500*(i+1))
		roll(t, db)
	}
	get(t)(db.Outcome(t.Context(), s.ID, outcome(intent(s, "c1"), "ok"), nil, time.Second))
	must(t, db.Close())
	db, err := Open(dir, Options{})
	must(t, err)
	defer db.Close()
	got, _, err := db.Entries(t.Context(), audit.Filter{Kind: "outcome"})
	must(t, err)
	if len(got) != 2 || got[0].CallID != "c1" || got[0].Decision != "ok" || got[1].CallID != "c2" || got[1].Decision != "unknown" {
		t.Errorf("%+v", got)
	}
	if report := verify(t, db.Reader); !report.OK {
		t.Errorf("%+v", report)
	}
}

// The configured number of entries makes the log go on in a new file by itself, at most a second later, and at a start.
func TestSegmentsByNumber(t *testing.T) {
	dir := dataDir(t)
	db, err := Open(dir, Options{Segment: 300, patience: time.Minute})
	must(t, err)
	fill(t, db, 299)
	_, err = db.Checkpoint(t.Context())
	must(t, err)
	if db.full() {
		t.Error("full with 299 of 300")
	}
	fill(t, db, 300)
	for len(names(t, dir)) == 1 {
		time.Sleep(10 * time.Millisecond)
	}
	must(t, db.Close())
	db, err = Open(dir, Options{patience: time.Minute})
	must(t, err)
	fill(t, db, 650)
	must(t, db.Close())
	db, err = Open(dir, Options{Segment: 300})
	must(t, err)
	defer db.Close()
	equal(t, "files", len(names(t, dir)), 3)
}

func newestPath(t *testing.T, dir string) string {
	first, _, err := segment.Newest(dir)
	must(t, err)
	return filepath.Join(dir, segment.Name(first))
}

// Each byte of a sealed file counts, and each file.
func TestSealedSegmentsAreProved(t *testing.T) {
	dir, db := rolled(t)
	sealed, _ := db.Segments()
	must(t, db.Close())
	starts(t, dir)
	path := func(dir string, i int) string { return filepath.Join(dir, sealed[i].Name) }
	flip := func(at func(data []byte) int) func(string) error {
		return func(dir string) error {
			data, err := os.ReadFile(path(dir, 0))
			must(t, err)
			data[at(data)] ^= 1
			return os.WriteFile(path(dir, 0), data, 0o600)
		}
	}
	for name, c := range map[string]struct {
		do     func(dir string) error
		starts bool // a start may not read it
	}{
		"removed": {func(dir string) error { return os.Remove(path(dir, 0)) }, false},
		"cut":     {func(dir string) error { return os.Truncate(path(dir, 1), 4096) }, false},
		"swapped": {func(dir string) error {
			x, y := path(dir, 0), path(dir, 1)
			must(t, os.Rename(x, x+".x"))
			must(t, os.Rename(y, x))
			return os.Rename(x+".x", y)
		}, false},
		"a byte of an entry":    {flip(func(b []byte) int { return bytes.Index(b, []byte(`"reason":"7"`)) + 3 }), true},
		"a byte of a row":       {flip(func(b []byte) int { return bytes.LastIndex(b, []byte("sess_")) }), true},
		"the last byte":         {flip(func(b []byte) int { return len(b) - 1 }), true},
		"a byte of the schema":  {flip(func(b []byte) int { return bytes.Index(b, []byte("is append-only")) }), true},
		"the newest is removed": {func(dir string) error { return os.Remove(newestPath(t, dir)) }, false},
		"the newest is removed, and the checkpoint is the one at its beginning": {func(dir string) error {
			newest := newestPath(t, dir)
			must(t, reading(newest, func(c *conn) error {
				return c.query(func(v []driver.Value) error {
					return os.WriteFile(filepath.Join(dir, AnchorFile), blob(v[0]), 0o600)
				}, "SELECT note FROM audit_checkpoints ORDER BY size LIMIT 1")
			}))
			return os.Remove(newest)
		}, false},
		"a later one is put there": {func(dir string) error {
			copyFile(t, newestPath(t, dir), filepath.Join(dir, segment.Name(5000)))
			return nil
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			changed := copyDir(t, dir)
			must(t, c.do(changed))
			if r, err := OpenReadOnly(changed); err == nil {
				if report := verify(t, r); report.OK {
					t.Errorf("it verifies: %v", report.Notes)
				}
				r.Close()
			}
			db, err := Open(changed, Options{})
			if err == nil {
				must(t, db.Close())
			}
			if (err == nil) && !c.starts || err != nil && fault.Of(err).Remedy == "" {
				t.Errorf("the start: %v", err)
			}
		})
	}
}

// What was archived is on record with its hash. The rest is proved from the checkpoint at its end on, and the whole with the folder.
func TestArchive(t *testing.T) {
	dir, db := rolled(t)
	key := func(i int) string { return payload(fmt.Sprint("large ", i)).Key }
	s := opened(t, db, "z")
	get(t)(db.Intent(t.Context(), s.ID, s.Version, intent(s, "c1"), nil))
	get(t)(db.Outcome(t.Context(), s.ID, outcome(intent(s, "c1"), "ok"), nil, time.Second))
	size, err := db.Size(t.Context())
	must(t, err)
	to := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(dir, link))
	for folder, says := range map[string]string{dir: "in the data directory", link: "in the data directory", filepath.Join(to, "none"): "not a folder"} {
		if _, _, err := db.Archive(t.Context(), folder, time.Time{}, "local:me", "why"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", folder, err)
		}
	}
	if moved, _, err := db.Archive(t.Context(), to, time.Now().Add(-time.Hour), "local:me", "why"); err != nil || len(moved) != 0 {
		t.Errorf("younger ones: %v, %v", moved, err)
	}
	moved, stays, err := db.Archive(t.Context(), to, time.Time{}, "local:me", "old")
	must(t, errors.Join(err, stays))
	if len(moved) != 2 || len(names(t, to)) != 2 || len(names(t, dir)) != 1 {
		t.Fatalf("%v, %v, %v", moved, names(t, to), names(t, dir))
	}
	found, _, err := db.Entries(t.Context(), audit.Filter{Action: "audit.archive"})
	must(t, err)
	if len(found) != 2 || found[0].Index < size || found[0].Actor != "local:me" || found[0].Reason != "old" || found[0].Severity != audit.Warning ||
		!strings.Contains(string(found[0].Detail), moved[0].SHA256) || !strings.Contains(string(found[0].Detail), moved[0].Root) {
		t.Errorf("%+v", found)
	}
	if again, _, err := db.Archive(t.Context(), to, time.Time{}, "local:me", "old"); err != nil || len(again) != 0 {
		t.Errorf("again: %v, %v", again, err)
	}
	// What is not here is never silently missing.
	for name, err := range map[string]error{
		"an entry": func() error { _, _, err := db.Entry(t.Context(), 7); return err }(),
		"a bundle": func() error { _, err := db.EntryBundle(t.Context(), 0, 256); return err }(),
	} {
		if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), to) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The check that runs all the time may have chosen these entries just before they were moved.
	oldest := db.Oldest()
	for n := range oldest / blockSize {
		db.checkHere(t.Context(), db.w.tree.Snapshot(), n)
	}
	if all, _ := every(t, db, audit.Filter{}); oldest == 0 || all[0].Index != oldest {
		t.Errorf("from %d", oldest)
	}
	for f, files := range map[*audit.Filter]int{{}: 2, {Min: moved[0].End}: 1, {Min: oldest}: 0, {From: moved[0].At.Add(time.Nanosecond)}: 1, {From: time.Now()}: 0} {
		if got := db.Archived(*f); files == 0 && got != nil || files > 0 && (got == nil || got.Before != oldest || len(got.Files) != files || !strings.Contains(got.Files[0], to)) {
			t.Errorf("%+v: %+v", *f, got)
		}
	}
	if all, _ := every(t, db, audit.Filter{Agent: "a", From: time.Now().Add(-time.Hour)}); len(all) == 0 || all[0].Index < oldest {
		t.Errorf("%d entries", len(all))
	}
	if report := verify(t, db.Reader); !report.OK || report.From != oldest || report.Checked == 0 {
		t.Errorf("%+v", report)
	}
	roll(t, db) // it goes on
	must(t, db.Close())
	starts(t, dir)

	whole := func(dir string) audit.Report {
		r, err := OpenReadOnly(dir, to)
		must(t, err)
		defer r.Close()
		if _, err := r.Payload(t.Context(), key(0)); err != nil {
			t.Error(err)
		}
		return verify(t, r)
	}
	if report := whole(dir); !report.OK || report.From != 0 || report.Checked < size {
		t.Errorf("%+v", report)
	}
	for name, attack := range map[string]func(dir string){
		"an old row changed":    func(dir string) { tamper(t, dir, "UPDATE sessions SET phase = 'planning' WHERE agent = 'a0'") },
		"an old row removed":    func(dir string) { tamper(t, dir, "DELETE FROM sessions WHERE agent = 'a0'") },
		"the row of an archive": func(dir string) { tamper(t, dir, "DELETE FROM segments WHERE name = 'sallyport.db'") },
		"a tile at the edge":    func(dir string) { tamper(t, dir, "UPDATE audit_tiles SET hashes = zeroblob(8192) WHERE n = 2") },
		"an entry that was there": func(dir string) {
			tamper(t, dir, "UPDATE audit_entries SET at = at - 1 WHERE idx = (SELECT min(idx) FROM audit_entries)")
		},
	} {
		t.Run(name, func(t *testing.T) {
			changed := copyDir(t, dir)
			attack(changed)
			r, err := OpenReadOnly(changed)
			must(t, err)
			defer r.Close()
			if report := verify(t, r); report.OK {
				t.Errorf("it verifies: %v", report.Notes)
			}
		})
	}
	keyless := copyDir(t, dir)
	must(t, os.Remove(filepath.Join(keyless, StateKeyFile)))
	r, err := OpenReadOnly(keyless)
	must(t, err)
	defer r.Close()
	if report := verify(t, r); !report.OK || !strings.Contains(strings.Join(report.Notes, " "), "rows that archived entries made were not compared") {
		t.Errorf("%+v", report)
	}
	data, err := os.ReadFile(filepath.Join(to, moved[1].Name))
	must(t, err)
	data[len(data)-1] ^= 1
	must(t, os.Chmod(filepath.Join(to, moved[1].Name), 0o600))
	must(t, os.WriteFile(filepath.Join(to, moved[1].Name), data, 0o600))
	if report := whole(dir); report.OK {
		t.Error("a changed archive verifies")
	}
}

// What the next start compares itself with stays.
func TestArchiveKeepsTheLastStart(t *testing.T) {
	db := openDB(t)
	must(t, db.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: startAction}))
	fill(t, db, 400)
	roll(t, db)
	if moved, stays, err := db.Archive(t.Context(), t.TempDir(), time.Time{}, "local:me", "old"); !fault.Is(stays, fault.Conflict) || err != nil || len(moved) > 0 {
		t.Errorf("%v, %v, %v", moved, stays, err)
	}
}

// An archiving that is interrupted is finished by the next one, and never removes what was not copied.
func TestArchiveInterrupted(t *testing.T) {
	dir, db := rolled(t)
	to := t.TempDir()
	sealed, _ := db.Segments()
	must(t, os.WriteFile(filepath.Join(to, sealed[0].Name), []byte("half"), 0o600))
	if _, _, err := db.Archive(t.Context(), to, time.Time{}, "local:me", "old"); err == nil || !strings.Contains(err.Error(), "in the way") {
		t.Errorf("%v", err)
	}
	equal(t, "files", len(names(t, dir)), 3)
	must(t, os.Remove(filepath.Join(to, sealed[0].Name)))
	kept := t.TempDir()
	copyFile(t, filepath.Join(dir, sealed[0].Name), filepath.Join(kept, sealed[0].Name))
	_, _, err := db.Archive(t.Context(), to, sealed[0].At.Add(time.Microsecond), "local:me", "old")
	must(t, err)
	must(t, db.Close())
	copyFile(t, filepath.Join(kept, sealed[0].Name), filepath.Join(dir, sealed[0].Name)) // the crash was before it was removed
	starts(t, dir)
	db, err = Open(dir, Options{})
	must(t, err)
	defer db.Close()
	if _, _, err := db.Archive(t.Context(), to, time.Now().Add(-time.Hour), "local:me", "old"); err != nil {
		t.Error(err)
	}
	equal(t, "files", len(names(t, dir)), 2)
}

// Calls that wait while the log goes on in a new file are served, and readers find every entry all the time.
func TestNobodyIsRefusedWhileTheLogGoesOn(t *testing.T) {
	db := openDB(t)
	fill(t, db, 300)
	stop := make(chan struct{})
	var all sync.WaitGroup
	busy := func(do func() error) {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := do(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 4 {
		busy(func() error {
			if err := db.Record(context.Background(), audit.Entry{Kind: audit.Change, Action: "test"}); err != nil {
				return err
			}
			size, err := db.Size(context.Background())
			if err == nil && size < 301 {
				err = fmt.Errorf("%d entries", size)
			}
			return err
		})
	}
	busy(func() error {
		size, err := db.Size(context.Background())
		if err != nil {
			return err
		}
		for _, i := range []int64{0, 299, size - 1} {
			if e, _, err := db.Entry(context.Background(), i); err != nil || e.Index != i {
				return fmt.Errorf("entry %d: %w", i, err)
			}
		}
		_, err = db.Inclusion(context.Background(), size-1, size)
		return err
	})
	for range 4 {
		for before := db.firstOwn.Load(); ; {
			size, err := db.Size(t.Context())
			must(t, err)
			if size > before+segment.Least {
				break
			}
			must(t, db.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: "test"}))
		}
		must(t, db.roll(0))
	}
	close(stop)
	all.Wait()
	must(t, db.sealOlder())
	if report := verify(t, db.Reader); !report.OK {
		t.Errorf("%+v", report)
	}
	if sealed, _ := db.Segments(); len(sealed) != 4 {
		t.Errorf("%+v", sealed)
	}
}

// Where the state takes too long to be copied, or there is no room, the log stays where it is, and nobody notices.
func TestTheLogStaysWhereItCannotGoOn(t *testing.T) {
	db := openDB(t)
	fill(t, db, 400)
	if err := db.roll(time.Nanosecond); err == nil {
		t.Error("copied in no time")
	}
	equal(t, "files", names(t, db.dir), []string{DatabaseFile})
	must(t, os.Mkdir(filepath.Join(db.dir, segment.Name(400)), 0o700))
	if err := db.roll(0); err == nil {
		t.Error("a file replaced what was there")
	}
	must(t, os.Remove(filepath.Join(db.dir, segment.Name(400))))
	fill(t, db, 500)
	roll(t, db)
	fill(t, db, 600)
	if report := verify(t, db.Reader); !report.OK || report.Checked != 600 {
		t.Errorf("%+v", report)
	}
}

// The new file has its name, and the first commit in it fails: the next one begins with the entry that names the file before.
func TestFirstCommitInANewFileFails(t *testing.T) {
	db := openDB(t)
	fill(t, db, 400)
	failed := 0
	must(t, db.w.aside(func() error {
		whole := db.w.commit
		db.w.commit = func(c *conn) error {
			if db.w.first == 400 && failed == 0 {
				failed++
				return errors.New("the disk failed")
			}
			return whole(c)
		}
		return nil
	}))
	if err := db.roll(0); err == nil || failed != 1 {
		t.Fatalf("%v, %d", err, failed)
	}
	must(t, db.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: "test"}))
	e, _, err := db.Entry(t.Context(), 400)
	if err != nil || e.Action != "segment.start" {
		t.Errorf("%+v, %v", e, err)
	}
	fill(t, db, 700)
	roll(t, db)
	if report := verify(t, db.Reader); !report.OK || report.Checked < 701 {
		t.Errorf("%+v", report)
	}
}

// Somebody reads a file for long: it is sealed once nothing of it is needed beside it.
func TestSealingWaitsForReaders(t *testing.T) {
	db := openDB(t)
	fill(t, db, 100)
	other := outside(t)
	reading, err := other.Begin()
	must(t, err)
	var n int
	must(t, reading.QueryRow("SELECT count(*) FROM audit_entries").Scan(&n))
	fill(t, db, 400)
	must(t, db.roll(0))
	must(t, db.sealOlder())
	if sealed, _ := db.Segments(); sealed[0].SHA256 != "" {
		t.Errorf("sealed while a reader needs what is beside it: %+v", sealed)
	}
	if _, stays, err := db.Archive(t.Context(), t.TempDir(), time.Time{}, "local:me", "old"); !fault.Is(stays, fault.Conflict) || err != nil {
		t.Errorf("%v, %v", stays, err)
	}
	if report := verify(t, db.Reader); !report.OK {
		t.Errorf("%+v", report)
	}
	must(t, reading.Rollback())
	must(t, other.Close())
	must(t, db.sealOlder())
	if sealed, _ := db.Segments(); sealed[0].SHA256 == "" {
		t.Errorf("not sealed: %+v", sealed)
	}
	if report := verify(t, db.Reader); !report.OK {
		t.Errorf("%+v", report)
	}
}

// A sealed file that is removed or replaced while the gateway runs ends it, like the newest one.
func TestLostSegments(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, path string){
		"removed": func(t *testing.T, path string) { must(t, os.Remove(path)) },
		"replaced": func(t *testing.T, path string) {
			copyFile(t, path, path+".x")
			must(t, os.Rename(path+".x", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, db := rolled(t)
			do(t, filepath.Join(dir, DatabaseFile))
			select {
			case <-db.Lost():
			case <-time.After(20 * time.Second):
				t.Fatal("nobody noticed")
			}
			if err := db.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: "test"}); !fault.Is(err, fault.AuditUnavailable) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A file may end where a tile of the tree's second level does: the edge is proved all the same, without what came before.
func TestArchiveAtALargerTile(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes 66,000 entries")
	}
	db := openDB(t)
	batch := make([]audit.Entry, 1024)
	for i := range batch {
		batch[i] = audit.Entry{Kind: audit.Change, Action: startAction, Agent: "a"}
	}
	for range 64 {
		must(t, db.Record(t.Context(), batch...))
	}
	roll(t, db)
	must(t, db.Record(t.Context(), batch[:300]...))
	to := t.TempDir()
	moved, stays, err := db.Archive(t.Context(), to, time.Time{}, "local:me", "old")
	if must(t, errors.Join(err, stays)); len(moved) != 1 || moved[0].End != 65536 {
		t.Fatalf("%+v", moved)
	}
	report := verify(t, db.Reader)
	if !report.OK || report.From != 65280 {
		t.Errorf("%+v", report)
	}
	must(t, db.Close())
	starts(t, db.dir)
	r, err := OpenReadOnly(db.dir, to)
	must(t, err)
	defer r.Close()
	if report := verify(t, r); !report.OK || report.From != 0 {
		t.Errorf("%+v", report)
	}
}

// TestBlocksOfSegments changes the rows by which queries find entries in each file of the log. A start finds that, as it does in a log in one file.
func TestBlocksOfSegments(t *testing.T) {
	defer func(n int64) { startShare = n }(startShare)
	startShare = 0
	db := openDB(t)
	dir := db.dir
	for _, n := range []int{512, 1300} { // the first file ends with a block of 256 entries, with which the second one begins
		fill(t, db, n)
		roll(t, db)
	}
	fill(t, db, 2000)
	sealed, first := db.Segments()
	must(t, db.Close())
	starts(t, dir)
	if sealed[0].End != 512 || first%blockSize == 0 {
		t.Fatalf("%+v, %d", sealed, first)
	}
	for name, c := range map[string]struct{ file, query string }{
		"a row of a sealed file":        {sealed[0].Name, "UPDATE audit_blocks SET keys = zeroblob(length(keys)) WHERE n = 0"},
		"a row of the next one":         {sealed[1].Name, "UPDATE audit_blocks SET keys = zeroblob(length(keys)) WHERE n = 3"},
		"a row gone":                    {sealed[1].Name, "DELETE FROM audit_blocks WHERE n = 4"},
		"a row that a file begins with": {sealed[1].Name, "UPDATE audit_blocks SET keys = zeroblob(4) WHERE n = 1"},
		"the first row of the newest":   {segment.Name(first), fmt.Sprint("UPDATE audit_blocks SET keys = zeroblob(4) WHERE n = ", first/blockSize)},
		"the last row of the newest":    {segment.Name(first), "UPDATE audit_blocks SET keys = zeroblob(4) WHERE n = (SELECT max(n) FROM audit_blocks)"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := copyDir(t, dir)
			path := filepath.Join(changed, c.file)
			if c.file == segment.Name(first) {
				tamperFile(t, path, c.query)
			} else { // of the same size as before
				conn, err := dial(dsn(path, ""))
				must(t, err)
				must(t, conn.script("DROP TRIGGER audit_blocks_update; DROP TRIGGER audit_blocks_delete; "+c.query))
				must(t, conn.close())
			}
			r, err := OpenReadOnly(changed)
			must(t, err)
			if report := verify(t, r); report.OK {
				t.Errorf("it verifies: %v", report.Notes)
			}
			must(t, r.Close())
			db, err := Open(changed, Options{})
			if err == nil {
				must(t, db.Close())
			}
			if err == nil || !strings.Contains(err.Error(), "audit_blocks") || fault.Of(err).Remedy == "" {
				t.Errorf("the start: %v", err)
			}
		})
	}
}

// TestBlocksBeforeTheFirstEntry: after a crash before the first entry of a new file, its row of state_proof is of the file before, whose rows of
// audit_blocks have to fit to it.
func TestBlocksBeforeTheFirstEntry(t *testing.T) {
	defer func(n int64) { startShare = n }(startShare)
	startShare = 0
	db := openDB(t)
	fill(t, db, 300)
	roll(t, db)
	fill(t, db, 1000)
	_, err := db.Checkpoint(t.Context())
	must(t, err)
	must(t, db.w.aside(func() error {
		return segment.Make(t.Context(), db.dir, filepath.Base(db.w.path), db.w.size, db.w.continues)
	}))
	crashed := copyDir(t, db.dir)
	old := filepath.Base(db.w.path)
	must(t, segment.Remove(filepath.Join(db.dir, segment.Name(1000))))
	must(t, db.Close())

	changed := copyDir(t, crashed)
	if !tamperFile(t, filepath.Join(changed, old), "UPDATE audit_blocks SET keys = zeroblob(4) WHERE n = 2") {
		t.Fatal("nothing was changed")
	}
	if db, err := Open(changed, Options{}); err == nil || !strings.Contains(err.Error(), "audit_blocks") {
		t.Errorf("%v", err)
		if err == nil {
			must(t, db.Close())
		}
	}
	r, err := OpenReadOnly(crashed)
	must(t, err)
	if report := verify(t, r); !report.OK {
		t.Errorf("%+v", report)
	}
	must(t, r.Close())
	starts(t, crashed)
	starts(t, crashed)
}

// TestSealedFilesForget: what a session saw is in the newest file alone, so that it goes with the session.
func TestSealedFilesForget(t *testing.T) {
	db := openDB(t)
	s, secret := secretSeen(t, db, "a", false)
	fill(t, db, 300)
	roll(t, db)
	if got, err := db.Evidence(t.Context(), s.ID, 0); err != nil || len(got) == 0 {
		t.Fatalf("%d pieces, %v", len(got), err)
	}
	for sealed, _ := db.Segments(); sealed[0].SHA256 == ""; sealed, _ = db.Segments() { // a reader of the store's own may be in the way
		time.Sleep(20 * time.Millisecond)
		must(t, db.sealOlder())
	}
	stands := func() []string {
		copied := t.TempDir() // this process may not open the files: it would lose its locks on them
		must(t, exec.Command("cp", "-r", db.dir, copied).Run())
		return standsIn(t, copied, secret)
	}
	if in := stands(); len(in) == 0 || slices.Contains(in, DatabaseFile) || slices.Contains(in, DatabaseFile+"-wal") {
		t.Errorf("it stands in %v", in)
	}
	get(t)(db.ChangeSession(t.Context(), s.ID, closing))
	scrubbed(t, db)
	if in := stands(); in != nil {
		t.Errorf("it stands in %v", in)
	}
	must(t, db.Close())
	starts(t, db.dir)
}

// TestCopiesWhileTheLogGoesOn: a copy, and what verifies beside a gateway, never take a file that was sealed meanwhile for the newest.
func TestCopiesWhileTheLogGoesOn(t *testing.T) {
	db := openDB(t)
	opened(t, db, "a")
	fill(t, db, 300)
	_, err := db.Checkpoint(t.Context())
	must(t, err)
	r, err := OpenReadOnly(db.dir)
	must(t, err)
	defer r.Close()
	rolls := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		var err error
		for err == nil {
			select {
			case <-stop:
				rolls <- nil
				return
			default:
			}
			var size int64
			if size, err = db.Size(context.Background()); err == nil {
				for ; err == nil && size-db.firstOwn.Load() < segment.Least; size += 50 {
					err = db.Record(context.Background(), slices.Repeat([]audit.Entry{{Kind: audit.Change, Action: "test"}}, 50)...)
				}
			}
			if err == nil {
				err = errors.Join(db.roll(0), db.sealOlder())
			}
		}
		rolls <- err
	}()
	for range 15 {
		if report := verify(t, r); !report.OK {
			t.Errorf("beside it: %+v", report)
		}
		to := t.TempDir()
		note, err := os.ReadFile(filepath.Join(db.dir, AnchorFile))
		must(t, err)
		_, err = r.CopyTo(t.Context(), to)
		must(t, err)
		copied, err := OpenReadOnly(to)
		must(t, err)
		if kept, err := copied.LatestCheckpoint(t.Context()); err == nil && noteSize(kept) > noteSize(note) {
			note = kept
		}
		must(t, os.WriteFile(filepath.Join(to, AnchorFile), note, 0o600))
		copyFile(t, filepath.Join(db.dir, audit.PublicFile), filepath.Join(to, audit.PublicFile))
		if report := verify(t, copied.WithKeyIn(db.dir)); !report.OK {
			t.Errorf("a copy: %+v", report)
		}
		must(t, copied.Close())
	}
	close(stop)
	must(t, <-rolls)
	if sealed, _ := db.Segments(); len(sealed) < 3 {
		t.Errorf("%d files", len(sealed))
	}
}
