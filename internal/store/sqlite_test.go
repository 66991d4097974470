package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/session"
)

func openDB(t testing.TB) *DB {
	t.Helper()
	return openWith(t, Options{patience: time.Minute})
}

func openWith(t testing.TB, o Options) *DB {
	t.Helper()
	db, err := Open(dataDir(t), o)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// outside is a connection as another program would have one, with none of our settings.
func outside(t *testing.T) *sql.DB {
	t.Helper()
	c, err := sql.Open("sqlite", "file:"+filepath.Join(dataDir(t), databaseFile))
	must(t, err)
	c.SetMaxOpenConns(1)
	t.Cleanup(func() { c.Close() })
	return c
}

func record(t *testing.T, db *DB, n int) {
	t.Helper()
	entries := make([]audit.Entry, n)
	for i := range entries {
		entries[i] = audit.Entry{Kind: audit.Decision, Action: "call", Agent: "a", CallID: newCall()}
	}
	must(t, db.Record(t.Context(), entries...))
}

func verify(t *testing.T, r *Reader) audit.Report {
	t.Helper()
	src, err := r.Source(t.Context())
	must(t, err)
	report, err := audit.Verify(src, "")
	must(t, err)
	return report
}

func payload(text string) *audit.Payload {
	return &audit.Payload{SHA256: call.HashBytes([]byte(text)), Size: int64(len(text)), Stored: true, Key: call.HashBytes([]byte(text)), Bytes: []byte(text)}
}

// TestAppendOnly tries every form of statement that changes, removes or replaces a row, on every table of the log, with our own
// connection's settings and with those of a stranger.
func TestAppendOnly(t *testing.T) {
	db := openDB(t)
	record(t, db, 300)
	must(t, db.Record(t.Context(), audit.Entry{Kind: audit.Decision, Action: "call", Arguments: payload("large")}))
	if _, err := db.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(t, db.w.do(t.Context(), &job{run: func(t *tx) error {
		if err := t.put(spentRows, "appr_1", "call_1"); err != nil {
			return err
		}
		return t.append(&audit.Entry{Kind: audit.Decision, Action: "call"})
	}}))
	tables := map[string][]string{ // table -> key columns, other column
		"audit_entries": {"idx", "at"}, "audit_tiles": {"n", "hashes"}, "audit_blocks": {"n", "keys"},
		"audit_payloads": {"key", "bytes"}, "audit_checkpoints": {"size", "note"}, "audit_spent": {"id", "call_id"},
	}
	stranger := outside(t)
	rows, err := stranger.Query("SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'audit%'")
	must(t, err)
	for rows.Next() {
		var name string
		must(t, rows.Scan(&name))
		if tables[name] == nil {
			t.Errorf("table %s is not tried", name)
		}
	}
	must(t, rows.Close())
	own, err := sql.Open("sqlite", dsn(filepath.Join(dataDir(t), databaseFile), writeParams))
	must(t, err)
	defer own.Close()
	for who, c := range map[string]*sql.DB{"stranger": stranger, "own settings": own} {
		for table, cols := range tables {
			key, other := cols[0], cols[1]
			for _, form := range []string{
				"UPDATE %[1]s SET %[3]s = %[3]s",
				"UPDATE OR IGNORE %[1]s SET %[3]s = %[3]s",
				"UPDATE OR REPLACE %[1]s SET %[2]s = %[2]s",
				"UPDATE %[1]s SET %[2]s = (SELECT max(%[2]s) FROM %[1]s) WHERE %[2]s = (SELECT min(%[2]s) FROM %[1]s)",
				"DELETE FROM %[1]s",
				"DELETE FROM %[1]s WHERE %[2]s = (SELECT max(%[2]s) FROM %[1]s)",
				"INSERT INTO %[1]s SELECT * FROM %[1]s",
				"INSERT OR REPLACE INTO %[1]s SELECT * FROM %[1]s",
				"INSERT OR IGNORE INTO %[1]s SELECT * FROM %[1]s",
				"REPLACE INTO %[1]s SELECT * FROM %[1]s LIMIT 1",
				"INSERT INTO %[1]s SELECT * FROM %[1]s WHERE true ON CONFLICT DO UPDATE SET %[3]s = excluded.%[3]s",
				"WITH x AS (SELECT * FROM %[1]s) REPLACE INTO %[1]s SELECT * FROM x",
			} {
				query := fmt.Sprintf(form, table, key, other)
				_, err := c.Exec(query)
				for err != nil && strings.Contains(err.Error(), "SQLITE_BUSY") { // the store writes something of its own
					_, err = c.Exec(query)
				}
				if err == nil || !strings.Contains(err.Error(), "is append-only") {
					t.Errorf("%s: %s: %v", who, query, err)
				}
			}
		}
		for _, query := range []string{
			"INSERT INTO audit_entries VALUES (500, 0, 'change', '', 'x')",
			"INSERT INTO audit_entries VALUES (-1, 0, 'change', '', 'x')",
			"INSERT INTO audit_entries (at, kind, call_id, body) VALUES (0, 'rumour', '', 'x')",
			"INSERT INTO audit_checkpoints VALUES (0, 'x')",
			"UPDATE sessions SET version = 0", "INSERT INTO tokens (id, hash, kind, subject, agent, roles, created) VALUES ('t', 'short', 'agent', 'a', '', '[]', 0)",
		} {
			if res, err := c.Exec(query); err == nil {
				if n, _ := res.RowsAffected(); n != 0 {
					t.Errorf("%s: %s was done", who, query)
				}
			}
		}
	}
	if report := verify(t, db.Reader); !report.OK {
		t.Errorf("%+v", report)
	}
}

// waiting counts the jobs that wait for the writer.
func waiting(db *DB) int {
	db.w.queue.mu.Lock()
	defer db.w.queue.mu.Unlock()
	return db.w.queue.waiting
}

// waitingAgents counts those of agents. The store has jobs of its own now and then.
func waitingAgents(db *DB) (n int) {
	db.w.queue.mu.Lock()
	defer db.w.queue.mu.Unlock()
	for of, l := range db.w.queue.lines {
		if of.agent != "" {
			n += l.len()
		}
	}
	return n
}

// TestGroupCommit holds the writer in a commit while 64 callers come: they must share the next one.
func TestGroupCommit(t *testing.T) {
	db := openDB(t)
	var sessions []session.Session
	for i := range 64 {
		sessions = append(sessions, opened(t, db, fmt.Sprint("a", i)))
	}
	gate, entered := make(chan struct{}), make(chan struct{})
	hold := func() {
		go db.w.do(t.Context(), &job{run: func(x *tx) error {
			entered <- struct{}{}
			<-gate
			return x.append(&audit.Entry{Kind: audit.Change, Action: "hold"})
		}})
		<-entered
	}
	for _, step := range []func(s session.Session) error{
		func(s session.Session) error {
			return second(db.Intent(t.Context(), s.ID, s.Version, intent(s, "call_"+s.ID), nil))
		},
		func(s session.Session) error {
			return second(db.Outcome(t.Context(), s.ID, outcome(intent(s, "call_"+s.ID), "ok"), []flow.Held{{Label: "internal"}}, time.Second))
		},
	} {
		hold()
		before := db.w.commits.Load()
		var wg sync.WaitGroup
		for _, s := range sessions {
			wg.Go(func() {
				if err := step(s); err != nil {
					t.Error(err)
				}
			})
		}
		for waitingAgents(db) < 64 {
			time.Sleep(time.Millisecond)
		}
		gate <- struct{}{}
		wg.Wait()
		if n := db.w.commits.Load() - before; n > 3 { // the one held, one for all, and perhaps a checkpoint's
			t.Errorf("64 callers took %d commits", n-1)
		}
	}
}

// TestSettleWithOutcome has used time put into a session's row by an outcome and, in the same batch, by what was put off: the newer stays.
func TestSettleWithOutcome(t *testing.T) {
	db := openDB(t)
	a := opened(t, db, "a")
	for _, id := range []string{"c1", "c2"} {
		get(t)(db.Intent(t.Context(), a.ID, a.Version, intent(a, id), nil))
	}
	get(t)(db.Outcome(t.Context(), a.ID, outcome(intent(a, "c1"), "ok"), nil, time.Second))
	run := &job{run: func(x *tx) error {
		if err := x.append(&audit.Entry{Kind: audit.Outcome, Action: "call", CallID: "c2"}); err != nil {
			return err
		}
		s, err := x.session(a.ID)
		if err != nil {
			return err
		}
		s = s.Raise(flow.Held{Label: "internal"})
		s.Used += time.Second
		if err := x.save(s); err != nil {
			return err
		}
		return db.w.settle(x)
	}}
	must(t, db.w.do(t.Context(), run))
	for _, s := range []session.Session{get(t)(db.Session(t.Context(), a.ID)), get(t)(db.Reader.Session(t.Context(), a.ID))} {
		if s.Used != 2*time.Second {
			t.Errorf("used %v", s.Used)
		}
	}
}

// TestSpoiler puts jobs that fail in every way into one batch with good ones.
func TestSpoiler(t *testing.T) {
	db := openDB(t)
	gate, entered := make(chan struct{}), make(chan struct{})
	go db.w.do(t.Context(), &job{run: func(*tx) error { close(entered); <-gate; return nil }})
	<-entered
	a := newSession("a", true)
	errs := make([]error, 60)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			switch i % 6 {
			case 1: // fails before it writes
				errs[i] = second(db.Intent(t.Context(), "sess_none", 1, intent(a, newCall()), nil))
			case 3: // fails after it has written
				errs[i] = db.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: "bad"}, audit.Entry{Kind: "rumour"})
			case 5: // panics after it has written
				errs[i] = db.w.do(t.Context(), &job{run: func(x *tx) error {
					if err := x.append(&audit.Entry{Kind: audit.Change, Action: "bad"}); err != nil {
						return err
					}
					panic("boo")
				}})
			default:
				errs[i] = db.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: "good"}, audit.Entry{Kind: audit.Change, Action: "good"})
			}
		})
	}
	for waiting(db) < len(errs) {
		time.Sleep(time.Millisecond)
	}
	close(gate)
	wg.Wait()
	for i, err := range errs {
		if (err == nil) != (i%2 == 0) {
			t.Errorf("job %d: %v", i, err)
		}
	}
	entries := log(t, db)
	if len(entries) != 60 {
		t.Errorf("%d entries", len(entries))
	}
	for _, e := range entries {
		if e.Action != "good" {
			t.Errorf("entry %d is %s", e.Index, e.Action)
		}
	}
	_, err := db.Checkpoint(t.Context())
	must(t, err)
	if report := verify(t, db.Reader); !report.OK || report.Size != 60 {
		t.Errorf("%+v", report)
	}
}

// refused says that err came, as what it must be, by the end of the caller's patience and not of the fault. The bound leaves room
// for a starved test machine; TestPatience shows that the patience is within 2 s.
func refused(t *testing.T, what string, began time.Time, err error) {
	t.Helper()
	if !fault.Is(err, fault.AuditUnavailable) {
		t.Errorf("%s: %v", what, err)
	}
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("%s: refused after %v", what, d)
	}
}

func TestPatience(t *testing.T) {
	if patience >= 2*time.Second || !strings.Contains(writeParams, "busy_timeout(900)") || 2*900*time.Millisecond >= patience {
		t.Error("a failing audit must refuse within 2 s, also who queued behind a batch that waits for a lock")
	}
}

// TestLocked: another program holds the database.
func TestLocked(t *testing.T) {
	db := openWith(t, Options{})
	a := opened(t, db, "a")
	c := outside(t)
	_, err := c.Exec("BEGIN IMMEDIATE")
	must(t, err)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			began := time.Now()
			refused(t, "locked", began, second(db.Intent(t.Context(), a.ID, a.Version, intent(a, fmt.Sprint("c", i)), nil)))
		})
	}
	wg.Wait()
	equal(t, "read while locked", get(t)(db.Session(t.Context(), a.ID)), a)
	_, err = c.Exec("ROLLBACK")
	must(t, err)
	get(t)(db.Intent(t.Context(), a.ID, a.Version, intent(a, "after"), nil))
	// On a slow machine a caller's patience may end while its batch waits for the lock, which the batch then gets. Such an intent is
	// written once, and has no outcome but "unknown".
	intents := map[string]int{}
	for _, e := range log(t, db) {
		if e.Kind == audit.Intent {
			intents[e.CallID]++
		}
		if e.Kind == audit.Outcome && e.Decision != "unknown" {
			t.Errorf("call %s, which was refused, has the outcome %s", e.CallID, e.Decision)
		}
	}
	for id, n := range intents {
		if n != 1 {
			t.Errorf("call %s has %d intents", id, n)
		}
	}
	if intents["after"] != 1 {
		t.Error("the call after the lock was released is not on record")
	}
}

// onWriter runs f with the writing connection, between transactions.
func onWriter(t *testing.T, db *DB, f func(*conn) error) {
	t.Helper()
	ran := make(chan error, 16) // a batch may be run again
	err := db.w.do(t.Context(), &job{run: func(*tx) error { ran <- f(db.w.c); return nil }})
	select {
	case err := <-ran:
		must(t, err)
	default:
		t.Fatal("it did not run", err)
	}
}

// TestFull: the disk is full (SQLITE_FULL, as SQLite answers it for ENOSPC too), and then has room again.
func TestFull(t *testing.T) {
	db := openDB(t)
	a := opened(t, db, "a")
	pages := int64(0)
	full := true
	onWriter(t, db, func(c *conn) (err error) { pages, err = c.number("PRAGMA page_count"); return err })
	limit := func(x *tx) error { // it lasts as long as the connection, which the writer drops after each failure
		n := int64(1 << 30)
		if full {
			n = pages
		}
		_, err := x.w.c.number(fmt.Sprintf("PRAGMA max_page_count(%d)", n))
		return err
	}
	big := payload(strings.Repeat("x", 1<<16))
	for range 5 {
		began := time.Now()
		refused(t, "full", began, db.w.do(t.Context(), &job{run: func(x *tx) error {
			if err := limit(x); err != nil {
				return err
			}
			return x.append(&audit.Entry{Kind: audit.Change, Action: "big", Arguments: big})
		}}))
	}
	full = false
	must(t, db.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: "big", Arguments: big}))
	get(t)(db.Intent(t.Context(), a.ID, a.Version, intent(a, "c1"), nil))
	equal(t, "entries", actions(log(t, db)), []string{"session.open", "big", "call"})
}

// TestCommitFails breaks each commit of a history twice: it fails, and it fails although it was applied.
// Every call that was told yes is there, what was told no is there at most once, and the log is sound.
func TestCommitFails(t *testing.T) {
	for _, applied := range []bool{false, true} {
		for n := range 6 {
			t.Run(fmt.Sprintf("commit %d, applied %v", n, applied), func(t *testing.T) {
				db := openDB(t)
				ctx := t.Context()
				a := opened(t, db, "a")
				count := 0
				onWriter(t, db, func(*conn) error {
					commit := db.w.commit
					db.w.commit = func(c *conn) error {
						if count++; count != n+1 {
							return commit(c)
						}
						if applied {
							must(t, commit(c))
						}
						return errors.New("fsync: input/output error")
					}
					return nil
				})
				failed := 0
				try := func(f func() error) {
					if err := f(); err != nil {
						failed++
						if fault.Is(err, fault.Conflict) || errors.Is(err, errors.ErrUnsupported) {
							t.Error(err)
						}
					}
				}
				version := func() int64 { return get(t)(db.Session(ctx, a.ID)).Version }
				var calls []string
				for i := range 3 {
					id := fmt.Sprint("c", i)
					ok := false
					try(func() error {
						err := second(db.Intent(ctx, a.ID, version(), intent(a, id), nil))
						ok = err == nil
						return err
					})
					if !ok {
						continue // refused: nothing is dispatched
					}
					calls = append(calls, id)
					var raise []flow.Held
					if i == 1 {
						raise = []flow.Held{{Label: flow.Label(id), CallID: id}}
					}
					again := func() error { return second(db.Outcome(ctx, a.ID, outcome(intent(a, id), "ok"), raise, time.Second)) }
					if err := again(); err != nil { // the gateway repeats what it owes until it is taken
						failed++
						must(t, again())
					}
				}
				if failed != 1 {
					t.Fatalf("%d failures", failed)
				}
				_, err := db.Checkpoint(ctx)
				must(t, err)
				_, err = db.Checkpoint(ctx) // the first one wrote what was put off
				must(t, err)
				s := get(t)(db.Session(ctx, a.ID))
				if slices.Contains(calls, "c1") && !s.Holds("c1") {
					t.Error("the label is lost")
				}
				// The used time of an outcome that was applied and reported as failed may be lost, as in a crash; no more than that.
				most := time.Duration(len(calls)) * time.Second
				if lost := most - s.Used; lost != 0 && !(applied && n%2 == 1 && lost == time.Second) {
					t.Errorf("%v of used time are lost", lost)
				}
				report := verify(t, db.Reader)
				if !report.OK || len(report.Unknown) != 0 {
					t.Errorf("%+v", report)
				}
				must(t, db.Close())
				db = openDB(t)
				if report = verify(t, db.Reader); !report.OK || len(report.Unknown) != 0 {
					t.Errorf("after a restart: %+v", report)
				}
				must(t, db.Close())
			})
		}
	}
}

// TestOrphansAreTakenOverOnce has the store fail while it finds out what a commit did that was reported as failed: each intent without a caller gets one
// outcome, however often it tries.
func TestOrphansAreTakenOverOnce(t *testing.T) {
	db := openDB(t)
	a := opened(t, db, "a")
	onWriter(t, db, func(c *conn) error {
		commit := db.w.commit
		db.w.commit = func(c *conn) error {
			db.w.commit = commit
			must(t, commit(c))
			return errors.New("fsync: input/output error")
		}
		return nil
	})
	if err := second(db.Intent(t.Context(), a.ID, a.Version, intent(a, "c1"), nil)); err == nil {
		t.Fatal("the commit did not fail")
	}
	onWriter(t, db, func(c *conn) error { return nil }) // connects, and takes it over
	onWriter(t, db, func(c *conn) error {
		open := maps.Clone(db.w.open)
		db.w.open, db.w.orphans = map[string]int64{}, nil
		for i := range 8 { // maps have no order: the entry that can't be read comes at any place
			open["not there"] = 1000 + int64(i)
			if err := db.w.acceptCommit(c, logState{open: open}); err == nil {
				t.Error("an entry that is not there was taken over")
			}
		}
		delete(open, "not there")
		err := db.w.acceptCommit(c, logState{open: open})
		db.w.open = open
		if len(db.w.orphans) != 1 {
			t.Errorf("%d orphans", len(db.w.orphans))
		}
		return err
	})
	if _, err := db.Checkpoint(t.Context()); err != nil {
		t.Error(err)
	}
	if report := verify(t, db.Reader); !report.OK || len(report.Unknown) != 0 {
		t.Errorf("%+v", report)
	}
}

// TestLostEntries: after a failure the database no longer has what was acknowledged. Nothing may be written again.
func TestLostEntries(t *testing.T) {
	db := openDB(t)
	record(t, db, 10)
	onWriter(t, db, func(*conn) error {
		commit := db.w.commit
		db.w.commit = func(c *conn) error { db.w.commit = commit; return errors.New("gone") }
		return nil
	})
	c := outside(t)
	_, err := c.Exec("DROP TRIGGER audit_entries_delete; DELETE FROM audit_entries WHERE idx = 9")
	must(t, err)
	for i := range 3 {
		err := db.Record(t.Context(), audit.Entry{Kind: audit.Change})
		if !fault.Is(err, fault.AuditUnavailable) || i > 0 && !strings.Contains(err.Error(), "no longer holds the 10 entries") {
			t.Error(err)
		}
	}
	if n, err := db.Size(t.Context()); n != 9 || err != nil {
		t.Errorf("%d entries, %v", n, err)
	}
	db.Close()
}

// TestGivenUp: callers stop waiting before and after their job has begun.
func TestGivenUp(t *testing.T) {
	db := openWith(t, Options{})
	a := opened(t, db, "a")
	gate, entered := make(chan struct{}), make(chan struct{})
	go db.w.do(t.Context(), &job{run: func(*tx) error { close(entered); <-gate; return nil }})
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- second(db.Intent(ctx, a.ID, a.Version, intent(a, "c1"), nil)) }()
	for waiting(db) < 1 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; !fault.Is(err, fault.AuditUnavailable) {
		t.Error(err)
	}
	close(gate)
	equal(t, "abandoned in the queue", len(log(t, db)), 1)

	// The commit hangs: the callers are told no in time, and what they wrote is settled when it ends.
	hang, hanging := make(chan struct{}), make(chan struct{})
	hangOnce := func(call string) { // not the commit of a checkpoint, which the store signs by itself
		onWriter(t, db, func(*conn) error {
			commit := db.w.commit
			db.w.commit = func(c *conn) error {
				if _, opened := db.w.tx.opened[call]; !opened && !slices.Contains(db.w.tx.closed, call) {
					return commit(c)
				}
				db.w.commit = commit
				hanging <- struct{}{}
				<-hang
				return commit(c)
			}
			return nil
		})
	}
	get(t)(db.Intent(t.Context(), a.ID, a.Version, intent(a, "c3"), nil))
	calls := map[string]string{"intent": "c2", "outcome": "c3"}
	for what, f := range map[string]func() error{
		"intent": func() error { return second(db.Intent(t.Context(), a.ID, a.Version, intent(a, "c2"), nil)) },
		"outcome": func() error {
			return second(db.Outcome(t.Context(), a.ID, outcome(intent(a, "c3"), "ok"), nil, time.Second))
		},
	} {
		hangOnce(calls[what])
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		errs := make(chan error, 2)
		go func() { errs <- f() }()
		<-hanging
		go func() { errs <- db.Record(ctx, audit.Entry{Kind: audit.Change, Action: "behind"}) }()
		refused(t, what, began, <-errs)
		refused(t, "behind the "+what, began.Add(time.Second), <-errs)
		cancel()
		hang <- struct{}{}
	}
	// The outcome is repeated by who owes it, and found done.
	s := get(t)(db.Outcome(t.Context(), a.ID, outcome(intent(a, "c3"), "ok"), nil, time.Second))
	if s.Used != time.Second {
		t.Errorf("used %v", s.Used)
	}
	_, err := db.Checkpoint(t.Context())
	must(t, err)
	var unknown []string
	for _, e := range log(t, db) {
		if e.Decision == "unknown" {
			unknown = append(unknown, e.CallID)
		}
	}
	equal(t, "unknown", unknown, []string{"c2"})
	_, err = db.Checkpoint(t.Context())
	must(t, err)
	if report := verify(t, db.Reader); !report.OK || len(report.Unknown) != 0 {
		t.Errorf("%+v", report)
	}
}

func TestAnchor(t *testing.T) {
	setup := func(t *testing.T) string {
		db := openDB(t)
		record(t, db, 300)
		must(t, db.Close())
		return dataDir(t)
	}
	copyOf := func(t *testing.T, dir, name string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		return data
	}
	put := func(t *testing.T, dir, name string, data []byte) {
		must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	refuses := func(t *testing.T, words string) {
		t.Helper()
		db, err := Open(dataDir(t), Options{})
		if err == nil {
			db.Close()
			t.Fatal("the store was opened")
		}
		if f := fault.Of(err); f.Code != fault.AuditUnavailable || !strings.Contains(f.Message, words) || f.Remedy == "" {
			t.Errorf("%v", err)
		}
	}
	t.Run("rolled back", func(t *testing.T) {
		dir := setup(t)
		old := copyOf(t, dir, databaseFile)
		db := openDB(t)
		record(t, db, 1)
		must(t, db.Close())
		put(t, dir, databaseFile, old)
		refuses(t, "rolled back")
		r, err := OpenReadOnly(dir)
		must(t, err)
		defer r.Close()
		if report := verify(t, r); report.OK {
			t.Error("verify accepts it")
		}
	})
	edit := func(statement string) func(t *testing.T) {
		return func(t *testing.T) {
			setup(t)
			c := outside(t)
			_, err := c.Exec("DROP TRIGGER audit_entries_update; DROP TRIGGER audit_entries_delete; DROP TRIGGER audit_tiles_update; DROP TRIGGER audit_entries_insert; " + statement)
			must(t, err)
			must(t, c.Close())
			words := "changed"
			if strings.HasPrefix(statement, "DELETE") {
				words = "cut"
			}
			refuses(t, words)
		}
	}
	t.Run("cut", edit("DELETE FROM audit_entries WHERE idx = 299"))
	t.Run("changed", edit(`UPDATE audit_entries SET body = CAST(replace(CAST(body AS TEXT), '"agent":"a"', '"agent":"b"') AS BLOB) WHERE idx = 299`))
	t.Run("tile", edit("UPDATE audit_tiles SET hashes = zeroblob(8192)"))
	t.Run("gone", func(t *testing.T) {
		must(t, os.Remove(filepath.Join(setup(t), AnchorFile)))
		refuses(t, "gone")
	})
	t.Run("forged", func(t *testing.T) {
		dir := setup(t)
		put(t, dir, AnchorFile, bytes.Replace(copyOf(t, dir, AnchorFile), []byte("300"), []byte("200"), 1))
		refuses(t, "not a checkpoint signed")
	})
	t.Run("another key", func(t *testing.T) {
		dir := setup(t)
		must(t, os.Remove(filepath.Join(dir, audit.KeyFile)))
		must(t, os.Remove(filepath.Join(dir, audit.PublicFile)))
		refuses(t, "not a checkpoint signed")
	})
	t.Run("behind", func(t *testing.T) { // killed before the last signature: that is no fault
		dir := setup(t)
		old := copyOf(t, dir, AnchorFile)
		db := openDB(t)
		record(t, db, 1)
		must(t, db.Close())
		put(t, dir, AnchorFile, old)
		refuses(t, "an older file was put in its place")
		tamper(t, dir, "DELETE FROM audit_checkpoints WHERE size > 300")
		unclosed(t, dir)
		must(t, openDB(t).Close())
	})
}

// TestOpen: what is wrong with the directory is said, with a way out.
func TestOpen(t *testing.T) {
	refuses := func(t *testing.T, words ...string) {
		t.Helper()
		db, err := Open(dataDir(t), Options{})
		if err == nil {
			db.Close()
			t.Fatal("the store was opened")
		}
		for _, w := range words {
			if !strings.Contains(fault.Of(err).Public(), w) {
				t.Errorf("%q is not in: %s", w, fault.Of(err).Public())
			}
		}
		if fault.Of(err).Remedy == "" {
			t.Errorf("no remedy: %v", err)
		}
	}
	t.Run("modes", func(t *testing.T) {
		db := openDB(t)
		record(t, db, 1)
		info, err := os.Stat(dataDir(t))
		must(t, err)
		if info.Mode().Perm() != 0o700 {
			t.Errorf("directory %v", info.Mode())
		}
		must(t, filepath.WalkDir(dataDir(t), func(path string, d fs.DirEntry, err error) error {
			if info, err := d.Info(); err == nil && !d.IsDir() && info.Mode().Perm() != 0o600 {
				t.Errorf("%s %v", path, info.Mode())
			}
			return err
		}))
	})
	t.Run("second process", func(t *testing.T) {
		openDB(t)
		refuses(t, "in use by another gateway", fmt.Sprint(os.Getpid()))
	})
	t.Run("newer schema", func(t *testing.T) {
		must(t, openDB(t).Close())
		c := outside(t)
		_, err := c.Exec(fmt.Sprint("UPDATE schema_version SET version = ", lastVersion(t)+1))
		must(t, err)
		refuses(t, fmt.Sprint("schema version ", lastVersion(t)+1), fmt.Sprintf("versions up to %d", lastVersion(t)), "newer program")
		if _, err := OpenReadOnly(dataDir(t)); err == nil || !strings.Contains(err.Error(), fmt.Sprint("schema version ", lastVersion(t)+1)) {
			t.Errorf("read only: %v", err)
		}
	})
	t.Run("file for a directory", func(t *testing.T) {
		must(t, os.WriteFile(dataDir(t), []byte("x"), 0o600))
		refuses(t, "can't be the data directory")
	})
	t.Run("directory for a file", func(t *testing.T) {
		must(t, os.MkdirAll(filepath.Join(dataDir(t), databaseFile), 0o700))
		refuses(t, "is in the way")
	})
	t.Run("not a database", func(t *testing.T) {
		must(t, os.MkdirAll(dataDir(t), 0o700))
		must(t, os.WriteFile(filepath.Join(dataDir(t), databaseFile), []byte(strings.Repeat("nonsense ", 1000)), 0o600))
		refuses(t, "damaged")
	})
	t.Run("no permission", func(t *testing.T) {
		if os.Getuid() == 0 {
			t.Skip("root may write anything")
		}
		must(t, os.MkdirAll(dataDir(t), 0o500))
		refuses(t, "can't be written")
	})
	t.Run("no such place", func(t *testing.T) {
		if _, err := Open("/proc/sallyport", Options{}); !fault.Is(err, fault.ConfigurationInvalid) || !strings.Contains(err.Error(), "/proc/sallyport can't be the data directory") {
			t.Error(err)
		}
	})
	t.Run("nothing to read", func(t *testing.T) {
		if _, err := OpenReadOnly(dataDir(t)); fault.Of(err).Code != fault.StoreUnavailable {
			t.Error(err)
		}
		if _, err := os.Stat(dataDir(t)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("looking made something: %v", err)
		}
	})
}

// TestMigrationInterrupted breaks a migration at each of its statements, then runs it whole.
func TestMigrationInterrupted(t *testing.T) {
	one, two := "CREATE TABLE a (x INTEGER)", []string{"CREATE TABLE b (x INTEGER)", "INSERT INTO a VALUES (1)", "INSERT INTO b SELECT x FROM a"}
	for n := range len(two) + 1 {
		path := filepath.Join(t.TempDir(), "x.db")
		folder := func(second string) fs.FS {
			return fstest.MapFS{"0001_one.sql": {Data: []byte(one)}, "0002_two.sql": {Data: []byte(second)}}
		}
		c, err := dial(dsn(path, writeParams))
		must(t, err)
		if err := migrate(c, folder(strings.Join(two[:n], ";")+"; INSERT INTO nowhere VALUES (1)")); err == nil {
			t.Fatal("the broken migration worked")
		}
		if v, err := schemaVersion(c); v != 1 || err != nil {
			t.Errorf("version %d, %v", v, err)
		}
		must(t, c.close())
		c, err = dial(dsn(path, writeParams))
		must(t, err)
		for range 2 { // the second time there is nothing to do
			must(t, migrate(c, folder(strings.Join(two, ";"))))
		}
		rows, err := c.number("SELECT count(*) FROM b")
		if rows != 1 || err != nil {
			t.Errorf("%d rows, %v", rows, err)
		}
		if err := migrate(c, fstest.MapFS{"0001_one.sql": {Data: []byte(one)}}); !fault.Is(err, fault.ConfigurationInvalid) {
			t.Errorf("a newer schema: %v", err)
		}
		must(t, c.close())
	}
}

// Numbers of migrations rise, and may leave some out.
func TestMigrationNumbers(t *testing.T) {
	for name, second := range map[string]string{"with a gap": "0007_two.sql", "twice": "0001_two.sql", "without a number": "two.sql"} {
		c, err := dial(dsn(filepath.Join(t.TempDir(), "x.db"), writeParams))
		must(t, err)
		err = migrate(c, fstest.MapFS{"0001_one.sql": {Data: []byte("CREATE TABLE a (x INTEGER)")}, second: {Data: []byte("CREATE TABLE b (x INTEGER)")}})
		if gap := second == "0007_two.sql"; (err == nil) != gap {
			t.Errorf("%s: %v", name, err)
		} else if v, err := schemaVersion(c); gap && (v != 7 || err != nil) {
			t.Errorf("version %d, %v", v, err)
		}
		must(t, c.close())
	}
}

// TestMigratedPlans: plans that waited before the store could be asked for them still do.
func TestMigratedPlans(t *testing.T) {
	var rows []string
	var want []string
	for i, state := range []session.PlanState{session.PlanPending, session.PlanRejected, session.PlanPending, ""} {
		s := newSession(fmt.Sprint("a", i), false)
		if state != "" {
			s = get(t)(s.SubmitPlan(session.Plan{ID: "plan_" + s.ID, State: state, Steps: []session.Step{{Tool: "x"}}}))
		}
		rows = append(rows, sessionOfBefore(t, s))
		if state == session.PlanPending {
			want = append([]string{s.ID}, want...)
		}
	}
	db, err := Open(dirOfBefore(t, 6, 4, rows...), Options{})
	must(t, err)
	defer db.Close()
	got, all, err := db.WaitingPlans(t.Context(), 10)
	if err != nil || !slices.Equal(ids(got), want) || all != 2 {
		t.Errorf("%v, %d, %v", ids(got), all, err)
	}
}

// Before an upgraded gateway starts, doctor and lint read a database of a version before.
func TestReadTheVersionsBefore(t *testing.T) {
	files, err := fs.Glob(migrations, "migrations/sqlite/*.sql")
	must(t, err)
	for _, name := range files[:len(files)-1] {
		n, err := migrationNumber(name)
		must(t, err)
		version := int(n)
		if version < 7 {
			continue
		}
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			r, err := OpenReadOnly(dirOfBefore(t, version, 1,
				"INSERT INTO pins (operation, hash, definition, pending, accepted_by) VALUES ('a.b', 'h', CAST('{}' AS BLOB), '', 'rule:first-sight')"))
			must(t, err)
			defer r.Close()
			if pins, err := r.Pins(t.Context()); err != nil || len(pins) != 1 || pins[0].AcceptedBy != "rule:first-sight" || pins[0].ConfirmedBy != "" {
				t.Errorf("%+v, %v", pins, err)
			}
		})
	}
}

// dirOfBefore makes a data directory as a program of an older version left it: with its schema, a signed log of some entries, and rows.
func dirOfBefore(t *testing.T, version, entries int, rows ...string) string {
	t.Helper()
	dir := dataDir(t)
	must(t, os.MkdirAll(dir, 0o700))
	signer, err := audit.LoadOrCreateKey(dir)
	must(t, err)
	c, err := dial(dsn(filepath.Join(dir, databaseFile), writeParams))
	must(t, err)
	files, err := fs.Glob(migrations, "migrations/sqlite/*.sql")
	must(t, err)
	files = slices.DeleteFunc(files, func(name string) bool { // numbers may leave some out
		n, err := migrationNumber(name)
		must(t, err)
		return n > int64(version)
	})
	must(t, migrate(c, olderSchema(t, files)))
	tree, keys := &audit.Tree{}, []uint32(nil)
	for i := range entries {
		e := audit.Entry{Index: int64(i), At: time.Unix(int64(i), 0), Kind: audit.Decision, Action: "call", Agent: "a", CallID: newCall()}
		leaf, err := e.Marshal()
		must(t, err)
		tree.Append(leaf)
		must(t, c.exec(insertEntry, e.Index, e.At.UnixMicro(), string(e.Kind), e.CallID, leaf))
		if keys = appendKeys(keys, &e); (e.Index+1)%blockSize == 0 {
			must(t, c.exec(insertBlock, e.Index/blockSize, encodeKeys(keys)))
			keys = nil
		}
	}
	for _, tile := range tree.Completed() {
		must(t, c.exec(insertTile, int64(tile.Level), tile.Index, tile.Hashes))
	}
	for _, sql := range rows {
		must(t, c.script(sql))
	}
	note, err := signer.Checkpoint(tree.Size(), tree.Root(), "")
	must(t, err)
	must(t, c.exec(insertNote, tree.Size(), note))
	must(t, c.close())
	must(t, os.WriteFile(filepath.Join(dir, AnchorFile), note, 0o600))
	return dir
}

// olderSchema has some of the migrations.
func olderSchema(t *testing.T, files []string) fs.FS {
	t.Helper()
	older := fstest.MapFS{}
	for _, name := range files {
		sql, err := fs.ReadFile(migrations, name)
		must(t, err)
		older[filepath.Base(name)] = &fstest.MapFile{Data: sql}
	}
	return older
}

// sessionOfBefore is the statement that writes a session in a database of an older version.
func sessionOfBefore(t *testing.T, s session.Session) string {
	t.Helper()
	body, err := encodeSession(s)
	must(t, err)
	own := 0
	if s.Own {
		own = 1
	}
	return fmt.Sprintf("INSERT INTO sessions (id, agent, own, phase, state, version, used_ns, body) VALUES ('%s', '%s', %d, '%s', '%s', %d, %d, CAST('%s' AS BLOB))",
		s.ID, s.Agent, own, s.Phase, s.State, s.Version, s.Used, strings.ReplaceAll(string(body), "'", "''"))
}

// TestQuery compares queries with a plain walk over everything, for random entries and filters.
func TestQuery(t *testing.T) {
	t.Run("in one file", func(t *testing.T) { testQuery(t, false) })
	t.Run("in three files", func(t *testing.T) { testQuery(t, true) })
}

func testQuery(t *testing.T, segments bool) {
	var seconds atomic.Int64
	db, err := Open(dataDir(t), Options{patience: time.Minute, Clock: func() time.Time { return time.Unix(1782000000+seconds.Load(), 0) }})
	must(t, err)
	defer db.Close()
	rnd := rand.New(rand.NewPCG(1, 2))
	pick := func(prefix string, n int) string { return fmt.Sprint(prefix, rnd.IntN(n)) }
	const size = 256*5 + 77
	for i := 0; i < size; i += 7 {
		seconds.Add(1)
		batch := make([]audit.Entry, 7)
		for k := range batch {
			batch[k] = audit.Entry{Kind: audit.Decision, Requester: pick("q", 5), Type: pick("y", 60), Approvers: []string{pick("p", 40), pick("p", 40)}, Risk: pick("r", 2),
				Code: []string{"permission.denied", "flow.contaminated", "x" + pick("", 300)}[rnd.IntN(3)], Action: pick("act", 3), Agent: pick("a", 4), Session: fmt.Sprint("s", i/150), Operation: pick("o", 90), CallID: fmt.Sprint("c", i+k), Decision: []string{"deny", "d1"}[rnd.IntN(2)]}
		}
		must(t, db.Record(t.Context(), batch...))
		if segments && i%455 == 448 { // in the middle of a block of 256, and of what a query looks for
			roll(t, db)
		}
	}
	all, _ := every(t, db, audit.Filter{})
	for i, e := range all {
		if e.Index != int64(i) {
			t.Fatalf("entry %d is at place %d", e.Index, i)
		}
	}
	if sealed, _ := db.Segments(); segments && len(sealed) != 2 || len(all) < size {
		t.Fatalf("%d entries, and %d files", len(all), len(sealed))
	}
	for n := range 100 {
		f := audit.Filter{Limit: 1 + rnd.IntN(300)}
		for _, set := range []func(){
			func() { f.Action = pick("act", 4) }, func() { f.Agent = pick("a", 5) }, func() { f.Session = pick("s", 12) }, func() { f.Operation = pick("o", 100) },
			func() { f.CallID = pick("c", size+100) }, func() { f.Decision = []string{"deny", "d1", "d2"}[rnd.IntN(3)] }, func() { f.Kind = []string{"decision", "intent"}[rnd.IntN(2)] },
			func() { f.Requester = pick("q", 6) }, func() { f.Type = pick("y", 70) }, func() { f.Approver = pick("p", 50) }, func() { f.Risk = pick("r", 3) },
			func() { f.Code = "x" + pick("", 330) }, func() { f.Severity = []string{"info", "warning", "critical"}[rnd.IntN(3)] },
			func() { f.Event = []string{"access_violation", "flow_violation", "kill_switched"}[rnd.IntN(3)] },
			func() { f.Min = rnd.Int64N(size + 100) }, func() { f.End = 1 + rnd.Int64N(size+100) },
			func() { f.From = all[rnd.IntN(len(all))].At.Add(time.Duration(rnd.IntN(3)-1) * time.Millisecond) },
			func() { f.To = all[rnd.IntN(len(all))].At.Add(time.Duration(rnd.IntN(3)-1) * time.Millisecond) },
		} {
			if rnd.IntN(4) == 0 {
				set()
			}
		}
		var want []audit.Entry
		for _, e := range all {
			if f.Match(e) {
				want = append(want, e)
			}
		}
		got, pages := every(t, db, f)
		if fmt.Sprint(indexes(got)) != fmt.Sprint(indexes(want)) {
			t.Fatalf("filter %d %+v: %d entries on %d pages, want %d", n, f, len(got), pages, len(want))
		}
	}
}

// Blocks that an older version wrote lack the keys of some fields. A query for these reads them, instead of passing over what it looks for.
func TestQueryOfOlderBlocks(t *testing.T) {
	e := audit.Entry{Kind: audit.Decision, Action: "call", Agent: "a", Requester: "alice", Code: "permission.denied", Risk: "HIGH"}
	older := appendKeys(nil, &e)
	slices.Sort(older)
	var block []byte
	for _, k := range older {
		block = binary.BigEndian.AppendUint32(block, k)
	}
	for _, c := range []struct {
		f         audit.Filter
		old, here bool
	}{
		{audit.Filter{Agent: "a", Code: "permission.denied"}, true, true},
		{audit.Filter{Agent: "a", Code: "flow.contaminated"}, true, false},
		{audit.Filter{Requester: "alice"}, true, true},
		{audit.Filter{Approver: "bob"}, true, false},
		{audit.Filter{Agent: "b", Code: "permission.denied"}, false, false},
	} {
		w := wanted(c.f)
		if w.in(block) != c.old || w.in(encodeBlock(appendMarked(appendKeys(nil, &e), &e))) != c.here {
			t.Errorf("%+v", c.f)
		}
	}
}

func every(t *testing.T, db *DB, f audit.Filter) (all []audit.Entry, pages int) {
	t.Helper()
	for {
		page, next, err := db.Entries(t.Context(), f)
		must(t, err)
		if f.Limit > 0 && len(page) > f.Limit {
			t.Fatalf("%d entries on a page of %d", len(page), f.Limit)
		}
		all, pages = append(all, page...), pages+1
		if next < 0 {
			return all, pages
		}
		if next < f.Min-1 || pages > 10000 {
			t.Fatalf("next is %d", next)
		}
		f.Min = next + 1
	}
}

func indexes(entries []audit.Entry) (list []int64) {
	for _, e := range entries {
		list = append(list, e.Index)
	}
	return list
}

// TestReadOnly reads a directory while a gateway writes it, and after it has ended.
func TestReadOnly(t *testing.T) {
	db := openDB(t)
	must(t, db.Record(t.Context(), audit.Entry{Kind: audit.Decision, Action: "call", Result: payload("a large result")}, audit.Entry{Kind: audit.Decision, Action: "call", Result: payload("a large result")}))
	record(t, db, 700)
	read := func(t *testing.T, r *Reader) {
		ctx := t.Context()
		if report := verify(t, r); !report.OK || report.Checked < 702 {
			t.Errorf("%+v", report)
		}
		data, err := r.Payload(ctx, call.HashBytes([]byte("a large result")))
		if string(data) != "a large result" || err != nil {
			t.Errorf("%q, %v", data, err)
		}
		if _, err := r.Payload(ctx, call.HashBytes(nil)); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
		e, leaf, err := r.Entry(ctx, 300)
		must(t, err)
		if again, err := e.Marshal(); e.Index != 300 || !bytes.Equal(again, leaf) || err != nil {
			t.Errorf("%+v, %v", e, err)
		}
		for _, i := range []int64{-1, 1 << 40} {
			if _, _, err := r.Entry(ctx, i); !fault.Is(err, fault.NotFound) {
				t.Error(err)
			}
		}
		if p, err := r.Inclusion(ctx, 300, 702); err != nil || p.Size != 702 {
			t.Errorf("%+v, %v", p, err)
		}
		if p, err := r.Consistency(ctx, 300, 0); err != nil || p.Size < 702 {
			t.Errorf("%+v, %v", p, err)
		}
		if _, err := r.Inclusion(ctx, 0, 1<<40); !fault.Is(err, fault.RequestMalformed) {
			t.Error(err)
		}
		for _, tile := range []struct {
			level int
			n     int64
			width int
			there bool
		}{{0, 0, 256, true}, {0, 0, 3, true}, {0, 2, 190, true}, {0, 1000, 1, false}, {1, 0, 2, true}, {1, 0, 256, false}, {9, 0, 1, false}, {-1, 0, 1, false}, {0, -1, 1, false}, {0, 0, 257, false}} {
			data, err := r.Tile(ctx, tile.level, tile.n, tile.width)
			if tile.there != (err == nil) || err == nil && len(data) != 32*tile.width || err != nil && !fault.Is(err, fault.NotFound) {
				t.Errorf("tile %+v: %d bytes, %v", tile, len(data), err)
			}
		}
		bundle, err := r.EntryBundle(ctx, 2, 190)
		must(t, err)
		if leaves, err := audit.ParseBundle(bundle, 190); err != nil || len(leaves) != 190 {
			t.Error(err)
		}
		if _, err := r.EntryBundle(ctx, 1000, 256); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
		var export bytes.Buffer
		src, err := r.Source(ctx)
		must(t, err)
		var names []string
		must(t, src.Names(func(name string) error { names = append(names, name); return nil }))
		for _, name := range []string{"tile/0/000", "tile/0/001", "payload/" + call.HashBytes([]byte("a large result"))} {
			if !slices.Contains(names, name) {
				t.Errorf("%s is not listed", name)
			}
		}
		must(t, audit.WriteExport(&export, src))
		if _, err := r.LatestCheckpoint(ctx); err != nil {
			t.Error(err)
		}
		tokens, err := r.Tokens(ctx)
		if len(tokens) != 0 || err != nil {
			t.Error(tokens, err)
		}
	}
	_, err := db.Checkpoint(t.Context())
	must(t, err)
	r, err := OpenReadOnly(dataDir(t))
	must(t, err)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := db.Record(context.Background(), audit.Entry{Kind: audit.Change, Action: "write", Arguments: payload(newCall())}); err != nil {
					t.Error(err)
				}
			}
		}
	})
	read(t, r)
	close(stop)
	wg.Wait()
	must(t, r.Close())
	must(t, db.Close())
	must(t, r.Close())
	r, err = OpenReadOnly(dataDir(t))
	must(t, err)
	defer r.Close()
	read(t, r)
	if _, err := r.files.newest.Exec("INSERT INTO low_water VALUES (1, 1)"); err == nil {
		t.Error("it can be written")
	}
}

// TestUnknown: what was under way when the process ended is recorded as unknown, once, and without reading the whole log.
func TestUnknown(t *testing.T) {
	db := openDB(t)
	ctx := t.Context()
	a := opened(t, db, "a")
	for i := range 300 {
		id := fmt.Sprint("c", i)
		get(t)(db.Intent(ctx, a.ID, a.Version, intent(a, id), nil))
		if i%100 != 99 {
			get(t)(db.Outcome(ctx, a.ID, outcome(intent(a, id), "ok"), nil, 0))
		}
		if i == 50 {
			_, err := db.Checkpoint(ctx)
			must(t, err)
		}
	}
	must(t, db.Close())
	c := outside(t)
	var mark int64
	must(t, c.QueryRow("SELECT idx FROM low_water").Scan(&mark))
	if mark != 199 {
		t.Errorf("low water at %d", mark) // c99's intent: nothing before it waits
	}
	must(t, c.Close())
	for range 2 {
		db = openDB(t)
		unknown, _ := every(t, db, audit.Filter{Decision: "unknown"})
		var got []string
		for _, e := range unknown {
			got = append(got, e.CallID)
			if e.Kind != audit.Outcome || e.Action != "call" || e.Session != a.ID || e.Operation == "" || e.Reason == "" {
				t.Errorf("%+v", e)
			}
		}
		equal(t, "unknown", got, []string{"c99", "c199", "c299"})
		if report := verify(t, db.Reader); !report.OK || len(report.Unknown) != 0 {
			t.Errorf("%+v", report)
		}
		must(t, db.Close())
	}
}

// TestTamperedWhileRunning changes a row under a running gateway: the next checkpoint signs what was written, so verify finds it.
func TestTamperedWhileRunning(t *testing.T) {
	db := openDB(t)
	record(t, db, 10)
	c := outside(t)
	for _, q := range []string{"DROP TRIGGER audit_entries_update", `UPDATE audit_entries SET body = CAST(replace(CAST(body AS TEXT), '"agent":"a"', '"agent":"b"') AS BLOB) WHERE idx = 3`} {
		_, err := c.Exec(q)
		must(t, err)
	}
	record(t, db, 1)
	_, err := db.Checkpoint(t.Context())
	must(t, err)
	if report := verify(t, db.Reader); report.OK || report.Size != 11 {
		t.Errorf("%+v", report)
	}
	db.Close()
}

// TestForeignRows: what an outsider adds or changes beside the entries is found too.
func TestForeignRows(t *testing.T) {
	db := openDB(t)
	must(t, db.Record(t.Context(), audit.Entry{Kind: audit.Decision, Action: "call", Result: payload("a large result")}))
	_, err := db.Checkpoint(t.Context())
	must(t, err)
	c := outside(t)
	_, err = c.Exec("INSERT INTO audit_tiles VALUES (0, 1000, zeroblob(8192))")
	must(t, err)
	if report := verify(t, db.Reader); report.OK {
		t.Error("a tile of no log was accepted")
	}
	for _, q := range []string{"DROP TRIGGER audit_tiles_delete", "DELETE FROM audit_tiles", "DROP TRIGGER audit_payloads_update", "UPDATE audit_payloads SET bytes = 'another'"} {
		_, err := c.Exec(q)
		must(t, err)
	}
	if report := verify(t, db.Reader); report.OK || len(report.Problems) != 3 { // the two triggers, too
		t.Errorf("%+v", report)
	}
	if data, err := db.Payload(t.Context(), call.HashBytes([]byte("a large result"))); !fault.Is(err, fault.StoreUnavailable) {
		t.Errorf("%q, %v", data, err)
	}
}

// lastVersion is the number of the last migration.
func lastVersion(t *testing.T) int64 {
	t.Helper()
	files, err := fs.Glob(migrations, "migrations/sqlite/*.sql")
	must(t, err)
	n, err := migrationNumber(files[len(files)-1])
	must(t, err)
	return n
}
