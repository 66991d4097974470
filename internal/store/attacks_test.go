package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
)

// forged is an entry that somebody with the file adds behind the last one.
func forged(t *testing.T, size int64) string {
	t.Helper()
	e := audit.Entry{Index: size, At: time.Now().UTC().Truncate(time.Microsecond), Kind: audit.Change, Action: "approval.approve", Actor: "person:alice", Decision: "ok"}
	leaf, err := e.Marshal()
	must(t, err)
	return fmt.Sprintf("INSERT INTO audit_entries (idx, at, kind, call_id, body) VALUES (%d, %d, 'change', '', x'%x')", size, e.At.UnixMicro(), leaf)
}

// TestForgedEntries has somebody add entries to the log: they are not signed, whether a gateway runs or not.
func TestForgedEntries(t *testing.T) {
	t.Run("while it runs", func(t *testing.T) {
		db := openDB(t)
		opened(t, db, "a")
		_, err := db.Checkpoint(t.Context())
		must(t, err)
		size, err := db.Size(t.Context())
		must(t, err)
		_, err = outside(t).Exec(forged(t, size))
		must(t, err)
		for range 3 {
			if err := db.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: "x"}); err == nil {
				t.Error("it goes on behind an entry of somebody else's")
			}
		}
		if why := db.LostBecause(); why == nil || !strings.Contains(why.Error(), "did not write") {
			t.Errorf("%v", why)
		}
		_ = db.Close()
		note, err := os.ReadFile(filepath.Join(dataDir(t), AnchorFile))
		if err != nil || noteSize(note) != size {
			t.Errorf("%d entries were signed, %v", noteSize(note), err)
		}
	})
	t.Run("after a stop", func(t *testing.T) {
		db := openDB(t)
		opened(t, db, "a")
		size, err := db.Size(t.Context())
		must(t, err)
		must(t, db.Close())
		dir := dataDir(t)
		starts(t, copyDir(t, dir))
		tamper(t, dir, forged(t, size))
		refusesStart(t, dir, "an entry after the log was closed")
	})
	t.Run("nothing is written after the end", func(t *testing.T) {
		db := openDB(t)
		opened(t, db, "a")
		_, err := db.Checkpoint(t.Context())
		must(t, err)
		must(t, db.closeLog(context.Background()))
		if err := db.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: "late"}); !fault.Is(err, fault.AuditUnavailable) {
			t.Errorf("%v", err)
		}
		must(t, db.Close())
		starts(t, dataDir(t))
		starts(t, dataDir(t))
	})
}

// TestLockIsNoLink has something else where the lock is to be made: nothing is written to it.
func TestLockIsNoLink(t *testing.T) {
	for name, put := range map[string]func(victim, lock string) error{
		"a link":      os.Symlink,
		"a hard link": os.Link,
		"a pipe":      func(_, lock string) error { return syscall.Mkfifo(lock, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			victim := filepath.Join(t.TempDir(), "victim")
			must(t, os.WriteFile(victim, []byte("victim"), 0o600))
			must(t, put(victim, filepath.Join(dir, lockFile)))
			if db, err := Open(dir, Options{}); err == nil {
				t.Error("it starts")
				must(t, db.Close())
			}
			if data, err := os.ReadFile(victim); err != nil || string(data) != "victim" {
				t.Errorf("it holds %q, %v", data, err)
			}
		})
	}
}

// TestFalseIndexes has an index that lacks rows: a no of a person would not be found by its call.
func TestFalseIndexes(t *testing.T) {
	db := openDB(t)
	s := opened(t, db, "a")
	a := ask(t, db, question(t, s, 1))
	must(t, db.Close())
	dir := dataDir(t)
	c, err := dial(dsn(filepath.Join(dir, databaseFile), ""))
	must(t, err)
	for _, q := range []string{
		"DROP INDEX approvals_call",
		"CREATE INDEX approvals_call ON approvals (session, call_digest, n) WHERE n < 0",
		"PRAGMA writable_schema = ON",
		"UPDATE sqlite_schema SET sql = replace(sql, ' WHERE n < 0', '') WHERE name = 'approvals_call'",
	} {
		must(t, c.script(q))
	}
	must(t, c.close())
	r, err := OpenReadOnly(dir)
	must(t, err)
	if _, err := r.ApprovalFor(t.Context(), s.ID, a.CallDigest); !fault.Is(err, fault.NotFound) {
		t.Errorf("the index is as it was: %v", err)
	}
	must(t, r.Close())
	refusesStart(t, dir, "an index without its rows")
}

// TestOldFiles puts single files, or some of them, back as they were before.
func TestOldFiles(t *testing.T) {
	db := openDB(t)
	lived(t, db)
	must(t, db.Close())
	before := copyDir(t, dataDir(t))
	db = openDB(t)
	s := opened(t, db, "q")
	ask(t, db, question(t, s, 9))
	fill(t, db, 300)
	_, err := db.Checkpoint(t.Context())
	must(t, err)
	crashed := copyDir(t, db.dir) // with a write-ahead log that is not folded
	must(t, db.Close())
	closed := copyDir(t, db.dir)
	for name, attack := range map[string]func(dir string){
		"the database":      func(dir string) { copyFile(t, filepath.Join(before, databaseFile), filepath.Join(dir, databaseFile)) },
		"the checkpoint":    func(dir string) { copyFile(t, filepath.Join(before, AnchorFile), filepath.Join(dir, AnchorFile)) },
		"no database":       func(dir string) { must(t, os.Remove(filepath.Join(dir, databaseFile))) },
		"an empty database": func(dir string) { must(t, os.Truncate(filepath.Join(dir, databaseFile), 0)) },
		"no database and no checkpoint": func(dir string) {
			must(t, os.Remove(filepath.Join(dir, databaseFile)))
			must(t, os.Remove(filepath.Join(dir, AnchorFile)))
		},
		"the database and no checkpoint": func(dir string) {
			copyFile(t, filepath.Join(before, databaseFile), filepath.Join(dir, databaseFile))
			must(t, os.Remove(filepath.Join(dir, AnchorFile)))
		},
		"a checkpoint, and others removed": func(dir string) {
			copyFile(t, filepath.Join(before, AnchorFile), filepath.Join(dir, AnchorFile))
			tamper(t, dir, "DELETE FROM audit_checkpoints")
		},
	} {
		for state, from := range map[string]string{"closed": closed, "crashed": crashed} {
			dir := copyDir(t, from)
			attack(dir)
			if name == "a checkpoint, and others removed" && state == "crashed" { // as if it was killed between the digest and the checkpoint
				continue
			}
			if strings.Contains(name, "database") {
				os.Remove(filepath.Join(dir, databaseFile+"-wal")) // the test has copied it from the other
				os.Remove(filepath.Join(dir, databaseFile+"-shm"))
			}
			if db, err := Open(dir, Options{}); err == nil {
				t.Errorf("%s, %s: it starts", state, name)
				must(t, db.Close())
			}
		}
	}
	t.Run("the write-ahead log", func(t *testing.T) {
		dir := copyDir(t, crashed)
		must(t, os.Remove(filepath.Join(dir, databaseFile+"-wal")))
		if db, err := Open(dir, Options{}); err == nil {
			t.Error("it starts without what was committed last")
			must(t, db.Close())
		}
	})
	starts(t, closed)
	starts(t, crashed)
}
