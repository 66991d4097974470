package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/evidence"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/session"
)

// Evidence is kept with the outcome or intent that it belongs to, in order, and within the bounds of one session; over them nothing more is,
// so that what takes others' worth away is never left out before some of those.
func TestEvidence(t *testing.T) {
	ctx := t.Context()
	db := openDB(t)
	rules := strings.Repeat("0", 64)
	ev := func(id string, size int) evidence.Kept {
		return evidence.Kept{CallID: id, Rules: rules, Body: bytes.Repeat([]byte("x"), size)}
	}
	calls := 0
	call := func(s string, seen ...evidence.Kept) {
		t.Helper()
		calls++
		sess := get(t)(db.Session(ctx, s))
		e := intent(sess, fmt.Sprint("call_", calls))
		get(t)(db.Intent(ctx, s, sess.Version, e, nil))
		get(t)(db.Outcome(ctx, s, outcome(e, "ok"), nil, 0, seen...))
	}
	ids := func(s string, after int64) (all []string) {
		t.Helper()
		kept, err := db.Evidence(ctx, s, after)
		must(t, err)
		for _, ev := range kept {
			all = append(all, fmt.Sprint(ev.Seq, " ", ev.CallID, " ", len(ev.Body)))
		}
		return all
	}

	a, b := opened(t, db, "a"), opened(t, db, "b")
	call(a.ID, ev("c1", 10), ev("c1", 20))
	call(b.ID, ev("c2", 30))
	call(a.ID, ev("c3", 1<<20), ev("c3", 1<<20+1), ev("c3", 0))
	e := intent(a, "c9")
	get(t)(db.Intent(ctx, a.ID, a.Version, e, nil, gateway.Spend{Seen: []evidence.Kept{ev("c9", 5)}}))
	if got, want := ids(a.ID, 0), []string{"1 c1 10", "2 c1 20", "3 c3 1048576", "4 c9 5"}; !slices.Equal(got, want) {
		t.Errorf("kept %v, want %v", got, want)
	}
	if got := ids(a.ID, 3); !slices.Equal(got, []string{"4 c9 5"}) {
		t.Errorf("after the third %v", got)
	}
	if got := ids(b.ID, 0); !slices.Equal(got, []string{"1 c2 30"}) {
		t.Errorf("of the other %v", got)
	}

	// What an answer gives away is kept with its entry.
	answer := e
	answer.Kind, answer.Action = audit.Decision, "answer"
	must(t, db.Answer(ctx, b.ID, answer, nil, ev("c9", 7)))
	if got := ids(b.ID, 1); !slices.Equal(got, []string{"2 c9 7"}) {
		t.Errorf("of an answer %v", got)
	}

	// An intent that fails keeps nothing.
	if _, err := db.Intent(ctx, a.ID, a.Version+7, intent(a, "c10"), nil, gateway.Spend{Seen: []evidence.Kept{ev("c10", 5)}}); err == nil || len(ids(a.ID, 4)) != 0 {
		t.Errorf("%v, %v", err, ids(a.ID, 4))
	}

	// By size: the one that has no room is the end.
	c := opened(t, db, "c")
	for range 15 {
		call(c.ID, ev("big", 1<<20))
	}
	call(c.ID, ev("most", 1<<20-10))
	call(c.ID, ev("more", 11))
	call(c.ID, ev("small", 1))
	if got := ids(c.ID, 15); !slices.Equal(got, []string{"16 most 1048566", "17 more 2"}) {
		t.Errorf("at the end %v", got)
	}

	// By number.
	d := opened(t, db, "d")
	for i := range 11 {
		var many []evidence.Kept
		for range 2000 {
			many = append(many, ev(fmt.Sprint("n", i), 1))
		}
		call(d.ID, many...)
	}
	if got := ids(d.ID, 19_999); !slices.Equal(got, []string{"20000 n9 1"}) {
		t.Errorf("at the end %v", got)
	}

	// Of a session that has ended nothing is kept.
	f := opened(t, db, "f")
	e = intent(f, "late")
	get(t)(db.Intent(ctx, f.ID, f.Version, e, nil))
	get(t)(db.ChangeSession(ctx, f.ID, closing))
	get(t)(db.Outcome(ctx, f.ID, outcome(e, "ok"), []flow.Held{{Label: "internal"}}, 0, ev("late", 1)))
	if got := ids(f.ID, 0); got != nil {
		t.Errorf("of a closed session %v", got)
	}
}

// The caller of an answer gives up while it is committed: nothing is owed for it, and the outcome of its call is still the call's own.
func TestAnswerGivenUp(t *testing.T) {
	db := openWith(t, Options{})
	a := opened(t, db, "a")
	get(t)(db.Intent(t.Context(), a.ID, a.Version, intent(a, "c1"), nil))
	hang, hanging := make(chan struct{}), make(chan struct{})
	onWriter(t, db, func(*conn) error {
		commit := db.w.commit
		db.w.commit = func(c *conn) error {
			db.w.commit = commit
			hanging <- struct{}{}
			<-hang
			return commit(c)
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	e := intent(a, "c1")
	e.Kind, e.Action = audit.Decision, "answer"
	errs := make(chan error)
	go func() { errs <- db.Answer(ctx, a.ID, e, nil) }()
	<-hanging
	cancel()
	if err := <-errs; !fault.Is(err, fault.AuditUnavailable) {
		t.Errorf("given up: %v", err)
	}
	close(hang)
	_, err := db.Checkpoint(t.Context())
	must(t, err)
	get(t)(db.Outcome(t.Context(), a.ID, outcome(intent(a, "c1"), "ok"), nil, 0))
}

// TestTotalOfEvidenceIsProved has somebody write another total beside evidence, which would leave out all that comes later.
func TestTotalOfEvidenceIsProved(t *testing.T) {
	ev := func(id string) evidence.Kept {
		return evidence.Kept{CallID: id, Rules: strings.Repeat("0", 64), Body: []byte(`{"given_away":1}`)}
	}
	add := func(db *DB, s string, id string) error {
		t.Helper()
		x := get(t)(db.Session(t.Context(), s))
		get(t)(db.Intent(t.Context(), s, x.Version, intent(x, id), nil))
		return second(db.Outcome(t.Context(), s, outcome(intent(x, id), "ok"), nil, 0, ev(id)))
	}
	db := openDB(t)
	a, b := opened(t, db, "a"), opened(t, db, "b")
	for i, s := range []string{a.ID, a.ID, b.ID} {
		must(t, add(db, s, fmt.Sprint("c", i)))
	}
	full := "UPDATE evidence SET total = 16777216"
	_, err := outside(t).Exec(full)
	must(t, err)
	must(t, add(db, a.ID, "c3"))
	kept, err := db.Evidence(t.Context(), a.ID, 2)
	if err != nil || len(kept) != 1 {
		t.Errorf("while it runs: %v, %v", kept, err)
	}
	_, err = outside(t).Exec("UPDATE evidence SET total = CASE WHEN seq = 1 THEN 16 WHEN seq = 2 THEN 32 ELSE 48 END")
	must(t, err)
	if kept, err = db.Evidence(t.Context(), a.ID, 0); err != nil || len(kept) != 3 {
		t.Errorf("with the totals as they were: %v, %v", kept, err)
	}
	must(t, db.Close())
	db = openDB(t)
	must(t, add(db, b.ID, "c4"))
	must(t, db.Close())
	tamper(t, dataDir(t), full)
	db = openDB(t)
	if err := add(db, a.ID, "c5"); !fault.Is(err, fault.StoreUnavailable) {
		t.Errorf("after a start: %v", err)
	}
}

// TestEvidenceIsSeenWhoeverWrites reads evidence again and again, from memory and by a query that is kept: each read sees what was committed by then. What
// somebody else has changed or put beside it is not believed from memory, and noticed in the database.
func TestEvidenceIsSeenWhoeverWrites(t *testing.T) {
	db := openDB(t)
	s := opened(t, db, "a")
	read := func(after int64) []evidence.Kept {
		t.Helper()
		kept, err := db.Evidence(t.Context(), s.ID, after)
		must(t, err)
		return kept
	}
	for n := range 20 {
		x := get(t)(db.Session(t.Context(), s.ID))
		e := intent(x, fmt.Sprint("c", n))
		get(t)(db.Intent(t.Context(), s.ID, x.Version, e, nil))
		get(t)(db.Outcome(t.Context(), s.ID, outcome(e, "ok"), nil, 0, evidence.Kept{CallID: e.CallID, Rules: strings.Repeat("0", 64), Body: fmt.Appendf(nil, `{"call_id":"%d"}`, n)}))
		if n%2 == 0 {
			db.w.proof.recent.drop(s.ID)
		}
		all := read(0)
		if len(all) != n+1 {
			t.Fatalf("%d pieces after %d", len(all), n+1)
		}
		for after := range int64(n + 2) {
			if tail := read(after); !slices.EqualFunc(tail, all[after:], func(a, b evidence.Kept) bool {
				return a.Seq == b.Seq && a.CallID == b.CallID && bytes.Equal(a.Body, b.Body)
			}) {
				t.Errorf("after %d of %d: %v", after, n+1, tail)
			}
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := db.Evidence(over, s.ID, 0); !fault.Is(err, fault.StoreUnavailable) {
		t.Errorf("for a caller that has gone: %v", err)
	}
	outside := outside(t)
	_, err := outside.Exec("UPDATE evidence SET body = CAST('{}' AS BLOB) WHERE seq = 20")
	must(t, err)
	if got := read(19); len(got) != 1 || string(got[0].Body) != `{"call_id":"19"}` {
		t.Errorf("from memory, with a changed piece: %v", got)
	}
	db.w.proof.recent.drop(s.ID)
	if _, err := db.Evidence(t.Context(), s.ID, 19); !fault.Is(err, fault.StoreUnavailable) {
		t.Errorf("with a changed piece: %v", err)
	}
	_, err = outside.Exec(`UPDATE evidence SET body = CAST('{"call_id":"19"}' AS BLOB) WHERE seq = 20`)
	must(t, err)
	if got := read(19); len(got) != 1 {
		t.Errorf("put back: %v", got)
	}
	_, err = outside.Exec("INSERT INTO evidence SELECT session_id, 21, call_id, rules, total + 16, body, entry, mac FROM evidence WHERE seq = 20")
	if err == nil {
		_, err = db.Evidence(t.Context(), s.ID, 20)
	}
	if !fault.Is(err, fault.StoreUnavailable) {
		t.Errorf("with a piece that somebody added: %v", err)
	}
}

// TestWhatWasDeletedBeforeACrash has the process end between the commit that deletes what a session saw and the moment at which the write-ahead log
// is emptied: the next start empties it. So does the store after a commit that was reported as failed.
func TestWhatWasDeletedBeforeACrash(t *testing.T) {
	db := openDB(t)
	s, secret := secretSeen(t, db, "a", false)
	copied := t.TempDir()
	onWriter(t, db, func(*conn) error {
		commit := db.w.commit
		db.w.commit = func(c *conn) error {
			db.w.commit = commit
			must(t, commit(c))
			must(t, os.CopyFS(copied, os.DirFS(dataDir(t)))) // as a crash leaves it
			return errors.New("fsync: input/output error")
		}
		return nil
	})
	if err := second(db.ChangeSession(t.Context(), s.ID, closing)); err == nil {
		t.Fatal("the commit did not fail")
	}
	scrubbed(t, db)
	if s, err := db.Session(t.Context(), s.ID); err != nil || s.State != session.Closed {
		t.Fatal(s.State, err)
	}
	if in := standsIn(t, dataDir(t), secret); in != nil {
		t.Errorf("after a commit that was reported as failed, what it saw stands in %v", in)
	}
	if len(standsIn(t, copied, secret)) == 0 {
		t.Fatal("nothing to look for")
	}
	must(t, os.Chmod(copied, 0o700))
	for _, f := range []string{audit.KeyFile, audit.PublicFile, StateKeyFile, AnchorFile, databaseFile} {
		must(t, os.Chmod(filepath.Join(copied, f), 0o600))
	}
	after, err := Open(copied, Options{})
	must(t, err)
	scrubbed(t, after)
	if in := standsIn(t, copied, secret); in != nil {
		t.Errorf("after a crash, what it saw stands in %v", in)
	}
	must(t, after.Close())
}

// TestEvidenceGoesOnAfterAFailedCommit: a head of evidence in memory must not outlive a commit of which nobody knows.
func TestEvidenceGoesOnAfterAFailedCommit(t *testing.T) {
	for _, worked := range []bool{true, false} {
		db := openDB(t)
		s := opened(t, db, "a")
		see := func(call string) error {
			e := intent(s, call)
			if _, err := db.Intent(t.Context(), s.ID, s.Version, e, nil); err != nil {
				return err
			}
			return second(db.Outcome(t.Context(), s.ID, outcome(e, "ok"), nil, 0, evidence.Kept{CallID: "c", Rules: strings.Repeat("0", 64), Body: []byte("x")}))
		}
		must(t, see(newCall()))
		e := intent(s, newCall())
		get(t)(db.Intent(t.Context(), s.ID, s.Version, e, nil))
		onWriter(t, db, func(*conn) error {
			commit := db.w.commit
			db.w.commit = func(c *conn) error {
				db.w.commit = commit
				if worked {
					must(t, commit(c))
				}
				return errors.New("fsync: input/output error")
			}
			return nil
		})
		if err := second(db.Outcome(t.Context(), s.ID, outcome(e, "ok"), nil, 0, evidence.Kept{CallID: "c", Rules: strings.Repeat("0", 64), Body: []byte("y")})); err == nil {
			t.Fatal("the commit did not fail")
		}
		must(t, see(newCall()))
		must(t, see(newCall()))
		want := 3
		if worked {
			want = 4
		}
		all, err := db.Evidence(t.Context(), s.ID, 0)
		if err != nil || len(all) != want {
			t.Errorf("worked %v: %d pieces, want %d: %v", worked, len(all), want, err)
		}
		must(t, db.Close())
		if worked {
			must(t, os.RemoveAll(dataDir(t)))
		}
	}
}
