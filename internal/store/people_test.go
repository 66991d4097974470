package store

import (
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/session"
	"sallyport.example/internal/standing"
)

var bob = approval.Voter{Person: "bob", Roles: []identity.Role{identity.Approver}}

// question is a new one about the n-th call of a session.
func question(t testing.TB, s session.Session, n int, change ...func(*approval.Approval)) approval.Approval {
	t.Helper()
	arguments := json.RawMessage(fmt.Sprintf(`{"n":%d,"to":"<a> & b"}`, n))
	a := approval.Approval{
		CallDigest: call.Digest(s.Agent, s.ID, "bank.transfer", "hash", arguments), Risk: "HIGH", Operation: "bank.transfer", DefinitionHash: "hash",
		Arguments: arguments, Session: s.ID, Agent: s.Agent, Requester: "erin", OpenedBy: s.OpenedBy,
	}
	for _, f := range change {
		f(&a)
	}
	a, err := approval.New(a, time.Now(), time.Hour)
	must(t, err)
	return a
}

func ask(t testing.TB, db *DB, a approval.Approval) approval.Approval {
	t.Helper()
	got, err := db.AskPerson(t.Context(), about(a), written(desk.Written{Question: &a, Entry: change2("approval.ask", a)}))
	must(t, err)
	return got
}

// about is what a question is about.
func about(a approval.Approval) desk.Ask {
	return desk.Ask{Session: a.Session, Agent: a.Agent, CallDigest: a.CallDigest, At: time.Now()}
}

// written decides to write this, whatever is found.
func written(w desk.Written) func(desk.Found) (desk.Written, error) {
	return func(desk.Found) (desk.Written, error) { return w, nil }
}

func change2(action string, a approval.Approval) audit.Entry {
	return audit.Entry{Kind: audit.Change, Action: action, Agent: a.Agent, Session: a.Session, Operation: a.Operation, Digest: a.CallDigest, Decision: "ok",
		Actor: "person:" + bob.Person, Detail: json.RawMessage(fmt.Sprintf(`{"approval_id":%q}`, a.ID))}
}

func vote(t testing.TB, db *DB, a approval.Approval) approval.Approval {
	t.Helper()
	after, err := db.ChangeApproval(t.Context(), a.ID, func(old desk.Stored) (u desk.Update, err error) {
		u = desk.Update{Stored: old, Entry: change2("approval.approve", a)}
		u.Approval, err = old.Approval.Approve(bob, a.Digest, "", time.Now())
		return u, err
	})
	must(t, err)
	return after
}

func spend(db *DB, t testing.TB, s session.Session, a approval.Approval, callID string, first ...string) error {
	_, err := db.Intent(t.Context(), s.ID, s.Version, intent(s, callID), nil, gateway.Spend{Approval: a.ID, CallDigest: a.CallDigest, CallID: callID, At: time.Now(), First: first})
	return err
}

// Of many intents at once that would spend one approval one is written, whatever else is in its batch.
func TestRacingSpends(t *testing.T) {
	const racers, rounds = 100, 30
	db := openDB(t)
	s := opened(t, db, "a")
	total := 0
	for n := range rounds {
		a := vote(t, db, ask(t, db, question(t, s, n)))
		var wg sync.WaitGroup
		var won atomic.Value
		var wins atomic.Int64
		for range racers {
			wg.Go(func() {
				id := newCall()
				err := spend(db, t, s, a, id)
				var refused *gateway.SpendError
				switch {
				case err == nil:
					wins.Add(1)
					won.Store(id)
				case !errors.As(err, &refused):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		after, err := db.Approval(t.Context(), a.ID)
		must(t, err)
		if wins.Load() != 1 || after.State != approval.Spent || after.SpentBy != won.Load() {
			t.Fatalf("%d won; %s by %s, not %v", wins.Load(), after.State, after.SpentBy, won.Load())
		}
		total++
	}
	intents := 0
	for _, e := range log(t, db) {
		if e.Kind == audit.Intent {
			intents++
		}
	}
	if intents != total {
		t.Errorf("%d intents for %d approvals", intents, total)
	}
}

// What is on record as used stays used, whatever becomes of the row; and the record can't be taken back.
func TestSpentForGood(t *testing.T) {
	db := openDB(t)
	s := opened(t, db, "a")
	a := vote(t, db, ask(t, db, question(t, s, 1)))
	must(t, spend(db, t, s, a, "call_1"))
	body, err := encode(a)
	must(t, err)
	c := outside(t)
	put := func() error {
		_, err := c.Exec("UPDATE approvals SET state = 'approved', body = ? WHERE id = ?", body, a.ID)
		return err
	}
	if err := put(); err == nil {
		t.Error("a final row was changed")
	}
	for _, form := range []string{"DELETE FROM approvals", "DELETE FROM audit_spent", "UPDATE audit_spent SET call_id = 'x'", "REPLACE INTO audit_spent VALUES ('" + a.ID + "', 'x')"} {
		if _, err := c.Exec(form); err == nil {
			t.Errorf("%s was done", form)
		}
	}
	_, err = c.Exec("DROP TRIGGER approvals_final")
	must(t, err)
	must(t, put())
	if back, err := db.Approval(t.Context(), a.ID); !fault.Is(err, fault.StoreUnavailable) {
		t.Errorf("the row that was put back is read: %+v, %v", back, err)
	}
	var refused *gateway.SpendError
	if err := spend(db, t, s, a, "call_2"); !errors.As(err, &refused) || !fault.Is(refused.Err, fault.StoreUnavailable) {
		t.Errorf("%v", err)
	}
	if n := slices.IndexFunc(log(t, db), func(e audit.Entry) bool { return e.CallID == "call_2" }); n >= 0 {
		t.Error("an intent on it was written")
	}
}

// A vote and its entry are one write. A question too, and what takes its place.
func TestVoteNeedsItsEntry(t *testing.T) {
	db := openDB(t)
	s := opened(t, db, "a")
	a := ask(t, db, question(t, s, 1))
	before := len(log(t, db))
	bad := audit.Entry{Kind: "rumour"}
	if _, err := db.ChangeApproval(t.Context(), a.ID, func(old desk.Stored) (u desk.Update, err error) {
		u = desk.Update{Stored: old, Entry: bad}
		u.Approval, err = old.Approval.Approve(bob, a.Digest, "", time.Now())
		return u, err
	}); err == nil {
		t.Error("a vote without its entry")
	}
	other := question(t, s, 2)
	if _, err := db.AskPerson(t.Context(), about(other), written(desk.Written{Question: &other, Entry: bad})); err == nil {
		t.Error("a question without its entry")
	}
	replaces := func(id string, old, next audit.Entry) error {
		q := about(other)
		q.Replaces = id
		_, err := db.AskPerson(t.Context(), q, func(f desk.Found) (desk.Written, error) {
			var err error
			u := desk.Update{Stored: *f.Replaced, Entry: old}
			u.Approval, err = u.Approval.Modify(bob, a.Digest, "less", other.ID, time.Now())
			return desk.Written{Older: []desk.Update{u}, Question: &other, Entry: next}, err
		})
		return err
	}
	asked, modified := change2("approval.ask", other), change2("approval.modify", a)
	for name, err := range map[string]error{
		"the old one's": replaces(a.ID, bad, asked),
		"the new one's": replaces(a.ID, modified, bad),
		"of no old one": replaces("appr_none", modified, asked),
	} {
		if err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	elsewhere := other
	elsewhere.Session = "sess_other"
	for name, decide := range map[string]func(desk.Found) (desk.Written, error){
		"refused": func(desk.Found) (desk.Written, error) {
			return desk.Written{Question: &other, Entry: asked}, errors.New("no")
		},
		"panicked inside":    func(desk.Found) (desk.Written, error) { panic("boo") },
		"no question":        written(desk.Written{Entry: asked}),
		"of another session": written(desk.Written{Question: &elsewhere, Entry: asked}),
	} {
		if _, err := db.AskPerson(t.Context(), about(other), decide); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if back, err := db.Approval(t.Context(), a.ID); err != nil || back.State != approval.Pending || len(back.Votes) != 0 {
		t.Errorf("%+v, %v", back, err)
	}
	if _, err := db.Approval(t.Context(), other.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("half of it was written: %v", err)
	}
	if n := len(log(t, db)); n != before {
		t.Errorf("%d entries more", n-before)
	}
	// The other way round both are there.
	must(t, replaces(a.ID, modified, asked))
	if back, err := db.Approval(t.Context(), a.ID); err != nil || back.State != approval.Superseded || back.ReplacedBy != other.ID {
		t.Errorf("%+v, %v", back, err)
	}
	equal(t, "entries", actions(log(t, db))[before:], []string{"approval.modify", "approval.ask"})
}

// A change of an approval can't make it another, and one that fails leaves it.
func TestApprovalStaysItself(t *testing.T) {
	db := openDB(t)
	s := opened(t, db, "a")
	a := ask(t, db, question(t, s, 1))
	for name, spoil := range map[string]func(*approval.Approval){
		"id": func(a *approval.Approval) { a.ID = "appr_x" }, "call": func(a *approval.Approval) { a.CallDigest = strings.Repeat("0", 64) }, "state": func(a *approval.Approval) { a.State = "granted" },
	} {
		if _, err := db.ChangeApproval(t.Context(), a.ID, func(old desk.Stored) (desk.Update, error) {
			spoil(&old.Approval)
			return desk.Update{Stored: old, Entry: change2("x", old.Approval)}, nil
		}); err == nil {
			t.Errorf("another %s was taken", name)
		}
	}
	back, err := db.Approval(t.Context(), a.ID)
	must(t, err)
	equal(t, "the approval", back, a)
	after := vote(t, db, a)
	must(t, spend(db, t, s, after, "call_1"))
	if _, err := db.ChangeApproval(t.Context(), a.ID, func(old desk.Stored) (desk.Update, error) {
		old.Approval.State, old.Approval.SpentBy = approval.Approved, ""
		return desk.Update{Stored: old, Entry: change2("x", old.Approval)}, nil
	}); err == nil {
		t.Error("a spent approval was given back")
	}
}

// Lists and counts by state know about time: expiry, a deferral that is over, and silence. They agree with the machine at any moment.
func TestStatesByTime(t *testing.T) {
	db := openDB(t)
	s := opened(t, db, "a")
	now := time.Now()
	silence := func(at time.Duration) func(*approval.Approval) {
		return func(a *approval.Approval) { a.Risk, a.SilenceAt = "MEDIUM", now.Add(at) }
	}
	change := func(a approval.Approval, move func(approval.Approval) (approval.Approval, error)) approval.Approval {
		t.Helper()
		after, err := db.ChangeApproval(t.Context(), a.ID, func(old desk.Stored) (u desk.Update, err error) {
			u = desk.Update{Stored: old, Entry: change2("x", old.Approval)}
			u.Approval, err = move(old.Approval)
			return u, err
		})
		must(t, err)
		return after
	}
	until := func(d time.Duration) func(approval.Approval) (approval.Approval, error) {
		return func(a approval.Approval) (approval.Approval, error) {
			at := time.Time{}
			if d > 0 {
				at = now.Add(d)
			}
			return a.Defer(bob, a.Digest, at, time.Now())
		}
	}
	n := 0
	next := func(c ...func(*approval.Approval)) approval.Approval { n++; return ask(t, db, question(t, s, n, c...)) }
	all := map[string]approval.Approval{
		"pending": next(), "silent soon": next(silence(10 * time.Second)), "silent later": next(silence(30 * time.Minute)), "approved": vote(t, db, next()),
		"silent, approved": vote(t, db, next(silence(10*time.Second))), "silent, put off": change(next(silence(10*time.Second)), until(time.Minute)),
		"silent, put off for good": change(next(silence(10*time.Second)), until(0)), "put off": change(next(), until(time.Minute)), "put off for good": change(next(), until(0)),
		"rejected":   change(next(silence(10*time.Second)), func(a approval.Approval) (approval.Approval, error) { return a.Reject(bob, a.Digest, "no", time.Now()) }),
		"superseded": change(next(silence(10*time.Second)), func(a approval.Approval) (approval.Approval, error) { return a.Supersede("It changed.", time.Now()) }),
		"modified": change(next(), func(a approval.Approval) (approval.Approval, error) {
			return a.Modify(bob, a.Digest, "less", "appr_2", time.Now())
		}),
		"spent": change(vote(t, db, next()), func(a approval.Approval) (approval.Approval, error) { return a.Spend("call_1", time.Now()) }),
	}
	for _, at := range []time.Duration{time.Second, 10 * time.Second, 11 * time.Second, time.Minute, 2 * time.Minute, 30 * time.Minute, 31 * time.Minute, 59 * time.Minute, 61 * time.Minute} {
		when := now.Add(at)
		for _, state := range approval.States {
			var want []string
			for name, a := range all {
				if a.StateAt(when) == state {
					want = append(want, name)
				}
			}
			found, err := db.Approvals(t.Context(), desk.Filter{State: state, Now: when, Limit: 100})
			must(t, err)
			var got []string
			for _, f := range found {
				for name, a := range all {
					if a.ID == f.ID {
						got = append(got, name)
					}
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			equal(t, fmt.Sprintf("%s after %s", state, at), got, want)
			count, oldest, err := db.CountApprovals(t.Context(), state, when)
			must(t, err)
			first := ""
			if len(found) > 0 {
				first = found[len(found)-1].ID
			}
			equal(t, fmt.Sprintf("the oldest that is %s after %s", state, at), oldest, first)
			equal(t, fmt.Sprintf("how many are %s after %s", state, at), count, int64(len(want)))
		}
	}
}

// What waits is read by risk, then by deadline, page after page, and each of it once.
func TestApprovalsByUrgency(t *testing.T) {
	db := openDB(t)
	s := opened(t, db, "a")
	n := 0
	next := func(risk string, in time.Duration) string {
		n++
		a, err := approval.New(question(t, s, n, func(a *approval.Approval) { a.Risk = risk }), time.Now(), in)
		must(t, err)
		return ask(t, db, a).ID
	}
	low, lateHigh, critical, high, medium := next("LOW", time.Minute), next("HIGH", 50*time.Minute), next("CRITICAL", 40*time.Minute), next("HIGH", 30*time.Minute), next("MEDIUM", time.Minute)
	read := func(f desk.Filter) (ids []string) {
		f.State, f.Urgent, f.Now, f.Limit = approval.Pending, true, time.Now(), 2
		for {
			page, err := db.Approvals(t.Context(), f)
			must(t, err)
			for _, a := range page {
				ids = append(ids, a.ID)
			}
			if len(page) < f.Limit {
				return ids
			}
			f.After = page[len(page)-1].ID
		}
	}
	equal(t, "all", read(desk.Filter{}), []string{critical, high, lateHigh, medium, low})
	equal(t, "of one risk", read(desk.Filter{Risk: "HIGH"}), []string{high, lateHigh})
	equal(t, "of the agent", read(desk.Filter{Agent: s.Agent}), []string{critical, high, lateHigh, medium, low})
	waits, oldest, err := db.CountApprovals(t.Context(), approval.Pending, time.Now())
	must(t, err)
	if waits != 5 || oldest != low {
		t.Errorf("%d wait, the oldest is %s, not %s", waits, oldest, low)
	}
	equal(t, "of another agent", read(desk.Filter{Agent: "nobody"}), []string(nil))
}

// What an agent used first is there once an intent has said so, and not for one that was refused.
func TestFirstUses(t *testing.T) {
	db := openDB(t)
	s := opened(t, db, "a")
	key := func(n int) string { return call.HashBytes([]byte(fmt.Sprint(n))) }
	used := func(n int) bool {
		t.Helper()
		is, err := db.Used(t.Context(), key(n))
		must(t, err)
		return is
	}
	a := ask(t, db, question(t, s, 1))
	if err := spend(db, t, s, a, "call_1", key(1)); err == nil || used(1) {
		t.Errorf("an intent that was refused has used it: %v", err)
	}
	a = vote(t, db, a)
	must(t, spend(db, t, s, a, "call_2", key(1), key(2)))
	if !used(1) || !used(2) || used(3) {
		t.Error("what was used is not there, or what was not is")
	}
	b := vote(t, db, ask(t, db, question(t, s, 2)))
	must(t, spend(db, t, s, b, "call_3", key(2), key(3))) // another was first in between
	if !used(3) {
		t.Error("the rest of it is lost")
	}
}

func TestQuarantinesAreKept(t *testing.T) {
	db := openDB(t)
	q := standing.Quarantine{Since: time.Now().UTC().Truncate(time.Microsecond), By: "person:alice", Reason: "<odd> & \x1b[31m", Number: 3}
	e := audit.Entry{Kind: audit.Change, Action: "agent.quarantine", Agent: "a"}
	must(t, db.SaveQuarantine(t.Context(), "a", &q, e))
	if err := db.SaveQuarantine(t.Context(), "b", &q, audit.Entry{Kind: "rumour"}); err == nil {
		t.Error("without its entry")
	}
	must(t, db.Close())
	db = openDB(t)
	all, counts, err := db.Quarantines(t.Context())
	must(t, err)
	q.Number = 0
	equal(t, "quarantines", all, map[string]standing.Quarantine{"a": q})
	equal(t, "how many", counts, map[string]int64{"a": 3})
	must(t, db.SaveQuarantine(t.Context(), "a", nil, e))
	all, counts, err = db.Quarantines(t.Context())
	must(t, err)
	equal(t, "quarantines", all, map[string]standing.Quarantine{})
	equal(t, "how many, after its end", counts, map[string]int64{"a": 3})
}

// Every ask, every status and every look at the list runs this. It must not read all questions that were ever asked.
func TestOpenQuestionsAreFoundByIndex(t *testing.T) {
	dir := t.TempDir()
	db, err := Open(dir, Options{Clock: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c, err := dial(filepath.Join(dir, "sallyport.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for name, q := range map[string]struct {
		query string
		args  []driver.Value
	}{
		"of a session":      {selectOpen, []driver.Value{"sess_1", int64(1), int64(100)}},
		"how many":          {countOpen, []driver.Value{"sess_1", int64(1)}},
		"of all":            {"SELECT body FROM approvals WHERE " + stateAt["pending"] + " AND n < $2 ORDER BY n DESC LIMIT $3", []driver.Value{int64(1), int64(1 << 62), int64(100)}},
		"by urgency":        {selectUrgent + stateAt["pending"] + " ORDER BY " + urgency + ", expires, n LIMIT $2", []driver.Value{int64(1), int64(50)}},
		"about one call":    {approvalRows.all + " " + selectApprovalFor, []driver.Value{"sess_1", "x"}},
		"of one with an id": {approvalRows.one, []driver.Value{"appr_1"}},
	} {
		var plan []string
		if err := c.query(func(v []driver.Value) error {
			for _, x := range v {
				if s, ok := x.(string); ok {
					plan = append(plan, s)
				} else if b, ok := x.([]byte); ok {
					plan = append(plan, string(b))
				}
			}
			return nil
		}, "EXPLAIN QUERY PLAN "+q.query, q.args...); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(plan, "; "); !strings.Contains(got, "INDEX") || name == "by urgency" && (!strings.Contains(got, "approvals_urgent") || strings.Contains(got, "TEMP B-TREE")) {
			t.Errorf("pending questions %s: %s", name, got)
		}
	}
}
