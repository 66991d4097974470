package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/session"
)

// copyFile copies a file's bytes into another, which keeps its identity if it is there.
func copyFile(t testing.TB, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	must(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	must(t, err)
	_, err = io.Copy(out, in)
	must(t, err)
	must(t, out.Close())
}

// A store that loses a file, by whatever hand, is lost within a second, writes nothing from then on, and says which file it was.
func TestLostFiles(t *testing.T) {
	replace := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			copyFile(t, path, path+".copy")
			must(t, os.Rename(path+".copy", path))
		}
	}
	remove := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, name))) }
	}
	for name, c := range map[string]struct {
		harm func(t *testing.T, dir string)
		says string
	}{
		"database removed":         {remove(databaseFile), "sallyport.db of the data directory is gone"},
		"database replaced":        {replace(databaseFile), "sallyport.db of the data directory was replaced"},
		"database cut":             {func(t *testing.T, dir string) { must(t, os.Truncate(filepath.Join(dir, databaseFile), 0)) }, "sallyport.db of the data directory was cut"},
		"write-ahead log removed":  {remove(databaseFile + "-wal"), "sallyport.db-wal of the data directory is gone"},
		"write-ahead log replaced": {replace(databaseFile + "-wal"), "sallyport.db-wal of the data directory was replaced"},
		"shared memory removed":    {remove(databaseFile + "-shm"), "sallyport.db-shm of the data directory is gone"},
		"lock removed":             {remove(lockFile), "lock of the data directory is gone"},
		"lock replaced":            {replace(lockFile), "lock of the data directory was replaced"},
		"directory moved away":     {func(t *testing.T, dir string) { must(t, os.Rename(dir, dir+".old")) }, "sallyport.db of the data directory is gone"},
		"directory put in its stead": {func(t *testing.T, dir string) {
			must(t, os.CopyFS(dir+".copy", os.DirFS(dir)))
			must(t, os.Rename(dir, dir+".old"))
			must(t, os.Rename(dir+".copy", dir))
		}, "sallyport.db of the data directory was replaced"},
	} {
		for _, busy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, busy %v", name, busy), func(t *testing.T) {
				db, err := Open(dataDir(t), Options{})
				must(t, err)
				defer db.Close()
				record(t, db, 3)
				c.harm(t, dataDir(t))
				began := time.Now()
				last := make(chan error, 1)
				stop := make(chan struct{})
				go func() {
					var err error
					for busy && err == nil {
						select {
						case <-stop:
							last <- nil
							return
						default:
							err = db.Record(context.Background(), audit.Entry{Kind: audit.Change})
						}
					}
					last <- err
				}()
				select {
				case <-db.Lost():
				case <-time.After(20 * time.Second):
					close(stop)
					t.Fatal("not noticed")
				}
				t.Logf("noticed after %s", time.Since(began).Round(time.Millisecond))
				if err := <-last; busy && !fault.Is(err, fault.AuditUnavailable) {
					t.Errorf("the last of many writes: %v", err)
				}
				for i, err := range []error{db.LostBecause(), db.Record(t.Context(), audit.Entry{Kind: audit.Change}), db.Ready(t.Context())} {
					if !fault.Is(err, fault.AuditUnavailable) || !strings.Contains(err.Error(), c.says) {
						t.Errorf("%v, want a word about %q", err, c.says)
					}
					if i == 1 && strings.Contains(fault.Of(err).Public(), "data directory") {
						t.Errorf("an agent is told: %s", fault.Of(err).Public())
					}
				}
			})
		}
	}
}

// A database that is gone is not made anew by the connection that follows a fault.
func TestLostDatabaseIsNotMadeAnew(t *testing.T) {
	db, err := Open(dataDir(t), Options{})
	must(t, err)
	defer db.Close()
	record(t, db, 3)
	path := filepath.Join(dataDir(t), databaseFile)
	onWriter(t, db, func(*conn) error {
		db.w.commit = func(*conn) error { return errors.Join(os.Remove(path), errors.New("the disk fails")) } // the connection is dropped then
		return nil
	})
	for range 2 {
		if err := db.Record(t.Context(), audit.Entry{Kind: audit.Change}); !fault.Is(err, fault.AuditUnavailable) {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("there is a new database in the place of the one that was removed")
	}
}

// fill writes entries with payloads until the log has n of them.
func fill(t testing.TB, db *DB, n int) {
	t.Helper()
	size, err := db.Size(t.Context())
	must(t, err)
	for i := int(size); i < n; i += 100 {
		var entries []audit.Entry
		for k := i; k < min(i+100, n); k++ {
			entries = append(entries, audit.Entry{Kind: audit.Change, Action: "test", Agent: "a", Reason: fmt.Sprint(k)})
		}
		must(t, db.Record(t.Context(), entries...))
	}
}

// tampering is what somebody with the file can do to the entries from 256 to 511 of 600.
var tampering = map[string]string{
	"an entry changed":        `DROP TRIGGER audit_entries_update; UPDATE audit_entries SET body = CAST(replace(CAST(body AS TEXT), '"agent":"a"', '"agent":"b"') AS BLOB) WHERE idx = 300`,
	"an entry removed":        `DROP TRIGGER audit_entries_delete; DELETE FROM audit_entries WHERE idx = 300`,
	"an entry's time changed": `DROP TRIGGER audit_entries_update; UPDATE audit_entries SET at = at - 1 WHERE idx = 300`,
	"an entry's kind changed": `DROP TRIGGER audit_entries_update; UPDATE audit_entries SET kind = 'decision' WHERE idx = 300`,
	"a tile changed":          `DROP TRIGGER audit_tiles_update; UPDATE audit_tiles SET hashes = zeroblob(8192) WHERE level = 0 AND n = 1`,
	"a tile and its entry changed": `DROP TRIGGER audit_entries_update; DROP TRIGGER audit_tiles_update; UPDATE audit_entries SET body = '{}' WHERE idx = 300;
		UPDATE audit_tiles SET hashes = zeroblob(8192) WHERE level = 0 AND n = 1`,
	"the row of a block changed": `DROP TRIGGER IF EXISTS audit_blocks_update; UPDATE audit_blocks SET keys = zeroblob(4) WHERE n = 1`,
	"the newest entry changed":   `DROP TRIGGER audit_entries_update; UPDATE audit_entries SET body = CAST(replace(CAST(body AS TEXT), '"agent":"a"', '"agent":"b"') AS BLOB) WHERE idx = 599`,
}

// What was changed in the log while the gateway runs is found by the share that is compared all the time; the store is lost then, and the start after
// it looks at that entry first.
func TestShareOfTheLogIsComparedAllTheTime(t *testing.T) {
	for name, statement := range tampering {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := Open(dataDir(t), Options{})
			must(t, err)
			defer db.Close()
			fill(t, db, 600)
			_, err = outside(t).Exec(statement)
			must(t, err)
			fill(t, db, 601) // so that pages are read anew
			select {
			case <-db.Lost():
			case <-time.After(30 * time.Second):
				t.Fatal("not found")
			}
			if err := db.LostBecause(); !fault.Is(err, fault.AuditUnavailable) || !strings.Contains(err.Error(), "is damaged at entry ") {
				t.Error(err)
			}
			marked, err := os.ReadFile(filepath.Join(dataDir(t), damageFile))
			if err != nil {
				t.Error(err)
			}
			db.Close()
			_, err = Open(dataDir(t), Options{})
			if !fault.Is(err, fault.AuditUnavailable) && !fault.Is(err, fault.StoreUnavailable) {
				t.Errorf("the next start, after %s was written down: %v", marked, err)
			}
		})
	}
}

// A start compares the newest entries and blocks of the log with the tree: of a small log, all of it.
func TestStartComparesAShare(t *testing.T) {
	for name, statement := range tampering {
		t.Run(name, func(t *testing.T) {
			db, err := Open(dataDir(t), Options{})
			must(t, err)
			fill(t, db, 600)
			must(t, db.Close())
			c := outside(t)
			_, err = c.Exec(statement)
			must(t, err)
			must(t, c.Close())
			again, err := Open(dataDir(t), Options{})
			if err == nil {
				again.Close()
				t.Fatal("opened")
			}
			t.Log(err)
		})
	}
}

// What was found damaged and put right since keeps nobody from a start.
func TestMarkOfDamageGoes(t *testing.T) {
	db, err := Open(dataDir(t), Options{})
	must(t, err)
	fill(t, db, 300)
	must(t, db.Close())
	mark := filepath.Join(dataDir(t), damageFile)
	for _, text := range []string{"17\n", "100000\n", "-1", "rubbish", ""} {
		must(t, os.WriteFile(mark, []byte(text), 0o600))
		db, err := Open(dataDir(t), Options{})
		must(t, err)
		must(t, db.Close())
		if _, err := os.Lstat(mark); err == nil {
			t.Errorf("the mark %q is still there", text)
		}
	}
}

// Ready means that a write succeeded within two seconds, or does now.
func TestReady(t *testing.T) {
	db, err := Open(dataDir(t), Options{patience: 20 * time.Second})
	must(t, err)
	defer db.Close()
	must(t, db.Ready(t.Context()))
	db.w.written.Store(-int64(time.Hour)) // long ago
	before := db.w.commits.Load()
	must(t, db.Ready(t.Context()))
	if n := db.w.commits.Load(); n == before {
		t.Error("ready without a write")
	}
	if commits, took, waiting := db.Writes(); commits <= before || took <= 0 || took > time.Minute || waiting != 0 {
		t.Errorf("%d commits in %s, %d wait", commits, took, waiting)
	}
	if size, err := db.Size(t.Context()); size != 0 || err != nil {
		t.Errorf("asking whether it is ready wrote %d entries, %v", size, err)
	}
	// A write that fails makes it unready at once, and reads that still work don't help.
	onWriter(t, db, func(*conn) error {
		db.w.commit = func(*conn) error { return fmt.Errorf("no room") }
		return nil
	})
	if err := db.Record(t.Context(), audit.Entry{Kind: audit.Change}); err == nil {
		t.Fatal("written")
	}
	if err := db.Ready(t.Context()); !fault.Is(err, fault.AuditUnavailable) {
		t.Errorf("ready although writes fail: %v", err)
	}
	if _, err := db.Size(t.Context()); err != nil {
		t.Error(err)
	}
	onWriter(t, db, func(*conn) error {
		db.w.commit = func(c *conn) error { return c.exec("COMMIT") }
		return nil
	})
	must(t, db.Ready(t.Context()))
	// Nor is it ready while nothing can be signed.
	db.unsigned.Store(true)
	if err := db.Ready(t.Context()); !fault.Is(err, fault.AuditUnavailable) || !strings.Contains(err.Error(), "not being signed") {
		t.Error(err)
	}
}

// Who gives up waiting gets an answer, and a store that hangs is asked by one at a time.
func TestReadyOfAStoreThatHangs(t *testing.T) {
	db, err := Open(dataDir(t), Options{})
	must(t, err)
	defer db.Close()
	hang, hung := make(chan struct{}), make(chan struct{})
	onWriter(t, db, func(*conn) error {
		db.w.commit = func(c *conn) error {
			close(hung)
			<-hang
			db.w.commit = func(c *conn) error { return c.exec("COMMIT") }
			return c.exec("COMMIT")
		}
		return nil
	})
	go db.Record(context.Background(), audit.Entry{Kind: audit.Change})
	<-hung
	db.w.written.Store(-int64(time.Hour))
	answers := make(chan error, 5)
	ctx, cancel := context.WithCancel(t.Context())
	for range cap(answers) {
		go func() { answers <- db.Ready(ctx) }()
	}
	cancel()
	for range cap(answers) {
		if err := <-answers; err == nil {
			t.Error("ready")
		}
	}
	close(hang)
	must(t, db.Ready(t.Context()))
}

// A session whose row is damaged while the gateway runs is named and set aside: the others are listed, page by page, and it can't be used.
func TestDamagedSessions(t *testing.T) {
	db, err := Open(dataDir(t), Options{})
	must(t, err)
	defer db.Close()
	var all []string // the newest first
	for i := range 9 {
		s := newSession(fmt.Sprint("a", i), false)
		must(t, db.OpenSession(t.Context(), s, change("session.open", s)))
		all = append([]string{s.ID}, all...)
	}
	c := outside(t)
	bad := map[string]string{ // by id: what is done to its row
		all[0]: "body = '{'",
		all[1]: "body = (SELECT body FROM sessions WHERE id = '" + all[2] + "')",
		all[4]: "agent = 'another'",
		all[5]: "phase = 'planning'",
		all[8]: "body = x'00'",
	}
	for id, set := range bad {
		_, err := c.Exec("UPDATE sessions SET " + set + " WHERE id = '" + id + "'")
		must(t, err)
	}
	must(t, c.Close())
	var listed, aside []string
	for after := ""; ; after = listed[len(listed)-1] {
		page, err := db.SessionsPage(t.Context(), after, 2, session.Open)
		must(t, err)
		for _, s := range page.Sessions {
			listed = append(listed, s.ID)
		}
		for _, d := range page.Aside {
			aside = append(aside, d.ID)
			if !strings.Contains(d.Problem, d.ID) || !strings.Contains(d.Problem, "not written by the gateway") || d.Agent == "" {
				t.Errorf("%+v", d)
			}
		}
		if len(page.Sessions) < 2 {
			break
		}
	}
	equal(t, "listed", listed, []string{all[2], all[3], all[6], all[7]})
	if len(aside) != len(bad) {
		t.Errorf("set aside: %v", aside)
	}
	for _, id := range aside {
		if bad[id] == "" {
			t.Errorf("%s is set aside", id)
		}
	}
	if waiting, _, err := db.WaitingPlans(t.Context(), 10); err != nil || len(waiting) != 0 {
		t.Errorf("%v, %v", waiting, err)
	}
	must(t, db.Close())
	if db, err := Open(dataDir(t), Options{}); !fault.Is(err, fault.StoreUnavailable) || !strings.Contains(err.Error(), "sess_") {
		t.Errorf("started with a changed session: %v, %v", db, err)
	}
}

// An older copy that is written over the running database, in the same file and padded to its length, is found by what is read.
func TestDatabaseWrittenOver(t *testing.T) {
	path := filepath.Join(dataDir(t), databaseFile)
	var old []byte
	for _, n := range []int{600, 2000} { // folded into the database at each end
		db, err := Open(dataDir(t), Options{})
		must(t, err)
		fill(t, db, n)
		must(t, db.Close())
		if old == nil {
			old, err = os.ReadFile(path)
			must(t, err)
		}
	}
	db, err := Open(dataDir(t), Options{})
	must(t, err)
	defer db.Close()
	fill(t, db, 2001)
	now, err := os.ReadFile(path)
	must(t, err)
	copy(now, old)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.Write(now)
	must(t, errors.Join(err, f.Close()))
	for end, lost := time.After(2*time.Minute), false; !lost; { // few writes: the watch goes round the log, which must not grow faster
		if err = db.Record(t.Context(), audit.Entry{Kind: audit.Change}); err != nil {
			break
		}
		select {
		case <-db.Lost():
			lost = true
		case <-end:
			t.Fatal("not found")
		case <-time.After(50 * time.Millisecond):
		}
	}
	if err = db.Record(t.Context(), audit.Entry{Kind: audit.Change}); !fault.Is(err, fault.AuditUnavailable) {
		t.Error(err)
	}
	t.Log(err)
}
