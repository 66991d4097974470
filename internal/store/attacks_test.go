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

// TestManyAttacks does what somebody with sqlite3 and the files, and without the keys, can do to a directory at rest. A start refuses it, or goes on as
// if it had not been done.
func TestManyAttacks(t *testing.T) {
	db := openDB(t)
	lived(t, db)
	fill(t, db, 600)
	must(t, db.Record(t.Context(), audit.Entry{Kind: audit.Decision, Action: "call", Result: payload("a large result")}))
	must(t, db.Close())
	whole := copyDir(t, dataDir(t))
	crashed := copyDir(t, whole)
	unclosed(t, crashed)
	sql := func(queries ...string) func(string) { return func(dir string) { tamper(t, dir, queries...) } }
	for name, c := range map[string]struct {
		attack func(dir string)
		goesOn bool
	}{
		"the mark of the end changed":    {sql("UPDATE state_proof SET used = used || 'x'"), false},
		"the last entry removed":         {sql("DELETE FROM audit_entries WHERE idx = (SELECT max(idx) FROM audit_entries)"), false},
		"entries renumbered":             {sql("UPDATE audit_entries SET idx = -idx WHERE idx > 590"), false},
		"time set forward":               {sql("UPDATE audit_entries SET at = at + 86400000000 WHERE idx = (SELECT max(idx) FROM audit_entries)"), false},
		"time set back":                  {sql("UPDATE audit_entries SET at = 1 WHERE idx = (SELECT max(idx) FROM audit_entries)"), false},
		"an intent's column":             {sql("UPDATE audit_entries SET kind = 'outcome' WHERE idx = (SELECT max(idx) FROM audit_entries)"), false},
		"a tile":                         {sql("UPDATE audit_tiles SET hashes = zeroblob(8192) WHERE n = 1"), false},
		"a tile gone":                    {sql("DELETE FROM audit_tiles WHERE n = 0"), false},
		"the newest checkpoint gone":     {sql("DELETE FROM audit_checkpoints"), true},
		"the mark of open calls raised":  {sql("UPDATE low_water SET idx = 1000000"), false},
		"the mark of open calls lowered": {sql("UPDATE low_water SET idx = 0"), false},
		"a label taken away":             {sql("UPDATE sessions SET body = CAST(replace(CAST(body AS TEXT), 'internal', 'xnternal') AS BLOB)"), false},
		"two sessions exchanged":         {sql("UPDATE sessions SET id = id || 'x'", "UPDATE sessions SET id = (SELECT max(id) FROM sessions) WHERE 0"), false},
		"the switch released":            {sql("UPDATE switches SET body = CAST(replace(CAST(body AS TEXT), 'true', 'false') AS BLOB)"), false},
		"the switch's row gone":          {sql("DELETE FROM switches"), false},
		"a quarantine gone":              {sql("DELETE FROM quarantines"), false},
		"a quarantine of another":        {sql("UPDATE quarantines SET agent = 'zed'"), false},
		"what was used forgotten":        {sql("DELETE FROM used"), false},
		"what was spent forgotten":       {sql("DELETE FROM audit_spent"), false},
		"a rejection unsaid":             {sql("UPDATE approvals SET spoken = NULL"), false},
		"an approval for longer":         {sql("UPDATE approvals SET expires = expires + 1000000000"), false},
		"an order of approvals":          {sql("UPDATE approvals SET n = n + 1000"), false},
		"drills unmade":                  {sql("DELETE FROM drills"), false},
		"a stored label gone":            {sql("DELETE FROM stored_labels"), false},
		"written values gone":            {sql("DELETE FROM written_values"), false},
		"a pin accepted":                 {sql("UPDATE pins SET pending = '', confirmed_by = 'person:bob'"), false},
		"a MAC of another table":         {sql("UPDATE used SET mac = (SELECT mac FROM tokens LIMIT 1)"), false},
		"all entries of rows moved":      {sql("UPDATE tokens SET entry = entry + 1"), false},
		"columns of another type":        {sql("UPDATE tokens SET hash = CAST(hash AS BLOB)"), false},
		"a trigger that undoes": {func(dir string) {
			script(t, dir, "CREATE TRIGGER undo AFTER INSERT ON audit_spent BEGIN DELETE FROM audit_spent; END")
		}, false},
		"a trigger taken away": {func(dir string) { script(t, dir, "DROP TRIGGER audit_entries_delete") }, false},
		"a table that is a view": {func(dir string) {
			script(t, dir, "ALTER TABLE drills RENAME TO d2; CREATE VIEW drills AS SELECT * FROM d2")
		}, false},
		"the layout of the proof shorter":  {sql("UPDATE state_proof SET layout = substr(layout, 1, 100)"), false},
		"an older schema":                  {sql("UPDATE schema_version SET version = 10"), false},
		"a newer schema":                   {sql("UPDATE schema_version SET version = 1000"), false},
		"the key of another directory":     {func(dir string) { foreignKey(t, dir, StateKeyFile) }, false},
		"the signing key of another":       {func(dir string) { foreignKey(t, dir, audit.KeyFile) }, false},
		"another signing key, both halves": {func(dir string) { foreignKey(t, dir, audit.KeyFile); foreignKey(t, dir, audit.PublicFile) }, false},
		"the key a link": {func(dir string) {
			path := filepath.Join(dir, StateKeyFile)
			must(t, os.Rename(path, path+"2"))
			must(t, os.Symlink(path+"2", path))
		}, false},
		"a key that is new, planted":         {func(dir string) { must(t, os.WriteFile(filepath.Join(dir, newKeyFile), []byte("planted"), 0o600)) }, true},
		"a checkpoint half written":          {func(dir string) { must(t, os.WriteFile(filepath.Join(dir, AnchorFile+".new"), []byte("half"), 0o600)) }, true},
		"a mark of damage that says nothing": {func(dir string) { must(t, os.WriteFile(filepath.Join(dir, damageFile), []byte("what"), 0o600)) }, true},
		"a mark of damage beyond the end": {func(dir string) {
			must(t, os.WriteFile(filepath.Join(dir, damageFile), []byte("99999999999 x"), 0o600))
		}, true},
		"a write-ahead log of something else": {func(dir string) {
			must(t, os.WriteFile(filepath.Join(dir, databaseFile+"-wal"), []byte(strings.Repeat("junk", 2000)), 0o600))
		}, true},
	} {
		for state, from := range map[string]string{"closed": whole, "crashed": crashed} {
			dir := copyDir(t, from)
			c.attack(dir)
			db, err := Open(dir, Options{})
			if (err == nil) != c.goesOn {
				t.Errorf("%s, %s: %v", name, state, err)
			}
			if err == nil {
				must(t, db.Close())
				starts(t, dir)
			}
		}
	}
}

func script(t *testing.T, dir, sql string) {
	t.Helper()
	c, err := dial(dsn(filepath.Join(dir, databaseFile), ""))
	must(t, err)
	must(t, c.script(sql))
	must(t, c.close())
}

// foreignKey puts a file of another directory there.
func foreignKey(t *testing.T, dir, name string) {
	t.Helper()
	other := filepath.Join(t.TempDir(), "other")
	db, err := Open(other, Options{})
	must(t, err)
	must(t, db.Close())
	must(t, os.Remove(filepath.Join(dir, name)))
	copyFile(t, filepath.Join(other, name), filepath.Join(dir, name))
}
