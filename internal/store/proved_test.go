package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/agent/approved"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/evidence"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/quota"
	"sallyport.example/internal/segment"
	"sallyport.example/internal/session"
	"sallyport.example/internal/standing"
	"sallyport.example/internal/stored"
)

// Each table of the schema is proved, or there is a reason why it need not be.
func TestEveryTableIsProvedOrNamed(t *testing.T) {
	openDB(t)
	c := outside(t)
	rows, err := c.Query("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
	must(t, err)
	defer rows.Close()
	left := maps.Clone(unproved)
	for rows.Next() {
		var name string
		must(t, rows.Scan(&name))
		i := slices.IndexFunc(proved, func(t *table) bool { return t.name == name })
		if _, named := left[name]; named == (i >= 0) {
			t.Errorf("the table %s is neither proved nor named with a reason, or both", name)
		}
		delete(left, name)
	}
	for name := range left {
		t.Errorf("%s is named and is no table", name)
	}
}

// Every column of a proved table is covered by its MAC, proved apart, or the proof itself.
func TestEveryColumnIsProved(t *testing.T) {
	db := openDB(t)
	for _, tab := range proved {
		onWriter(t, db, func(c *conn) error {
			return c.query(func(v []driver.Value) error {
				if name := text(v[0]); tab.place(name) < 0 && name != "entry" && name != "mac" && name != tab.zero {
					t.Errorf("%s.%s is not covered", tab.name, name)
				}
				return nil
			}, "SELECT name FROM pragma_table_info('"+tab.name+"')")
		})
	}
}

func TestOwnTriggers(t *testing.T) {
	db := openDB(t)
	onWriter(t, db, func(c *conn) error { return c.foreignTriggers(func(what string) { t.Error(what) }) })
	if len(ownTriggers()) < 20 {
		t.Errorf("%d triggers were found in the migrations", len(ownTriggers()))
	}
}

// lived fills every table that decides with rows, some of which changed.
func lived(t *testing.T, db *DB) (s session.Session) {
	t.Helper()
	ctx := t.Context()
	token := func(n int) identity.Token {
		return identity.Token{ID: fmt.Sprint("tok_", n), Hash: call.HashBytes([]byte{byte(n)}), Created: time.Now().UTC().Truncate(time.Microsecond),
			Subject: identity.Principal{Kind: identity.Person, ID: "bob", Roles: []identity.Role{identity.Approver}}}
	}
	ch := audit.Entry{Kind: audit.Change, Action: "x", Decision: "ok"}
	must(t, db.AddToken(ctx, token(1), ch))
	must(t, db.AddToken(ctx, token(2), ch))
	must(t, db.RevokeToken(ctx, "tok_1", time.Now(), ch))
	s = opened(t, db, "a")
	own := newSession("b", true)
	must(t, db.OpenSession(ctx, own, change("session.open", own)))
	seen := evidence.Kept{CallID: "c1", Rules: call.HashBytes(nil), Body: []byte(`{"saw":1}`)}
	get(t)(db.Intent(ctx, own.ID, own.Version, intent(own, "c1"), nil))
	get(t)(db.Outcome(ctx, own.ID, outcome(intent(own, "c1"), "ok"), []flow.Held{{Label: "internal"}}, time.Second, seen, seen))
	get(t)(db.Intent(ctx, own.ID, own.Version+1, intent(own, "c2"), nil))
	get(t)(db.Outcome(ctx, own.ID, outcome(intent(own, "c2"), "ok"), nil, time.Second, seen))
	a := vote(t, db, ask(t, db, question(t, s, 1)))
	ask(t, db, question(t, s, 2))
	must(t, spend(db, t, s, a, "c3", call.HashBytes([]byte("first"))))
	get(t)(db.Outcome(ctx, s.ID, outcome(intent(s, "c3"), "ok"), nil, 0))
	no := ask(t, db, question(t, s, 4))
	_, err := db.ChangeApproval(ctx, no.ID, func(old desk.Stored) (u desk.Update, err error) {
		u = desk.Update{Stored: old, Entry: change2("approval.reject", no)}
		u.Approval, err = old.Approval.Reject(bob, no.Digest, "no", time.Now())
		return u, err
	})
	must(t, err)
	drill := question(t, s, 3)
	_, err = db.AskPerson(ctx, about(drill), written(desk.Written{Question: &drill, Drill: true, Entry: change2("approval.ask", drill)}))
	must(t, err)
	must(t, db.SavePins(ctx, []catalogue.Pin{{Operation: "m.x", Hash: "h", Definition: []byte("{}"), AcceptedBy: "rule"}, {Operation: "m.y", Hash: "h"}}, ch, ch))
	must(t, db.SavePins(ctx, []catalogue.Pin{{Operation: "m.x", Hash: "h", Definition: []byte("{}"), Pending: "g", AcceptedBy: "rule"}}, ch))
	for epoch := range int64(3) {
		must(t, db.SaveSwitches(ctx, standing.Switches{Epoch: epoch + 1, Global: standing.Switch{Active: epoch == 2}}, ch))
	}
	must(t, db.SaveQuarantine(ctx, "a", &standing.Quarantine{Since: time.Now(), By: "person:bob", Reason: "odd", Number: 1}, ch))
	must(t, db.SaveQuarantine(ctx, "b", &standing.Quarantine{Since: time.Now(), By: "person:bob", Reason: "odd", Number: 1}, ch))
	must(t, db.SaveQuarantine(ctx, "b", nil, ch))
	word := func(digest string) *approved.Word { return &approved.Word{Digest: digest, Declaration: []byte("{}")} }
	must(t, db.SaveAgentApprovals(ctx, []approved.Record{{Agent: "a", Waiting: word("d1")}, {Agent: "b", InForce: word("d2")}}, ch, ch))
	must(t, db.SaveAgentApprovals(ctx, []approved.Record{{Agent: "a", InForce: word("d1")}}, ch))
	mark := func(id string, labels ...flow.Label) stored.Mark {
		m := stored.Mark{ID: id, Place: stored.Place{Server: "memory"}}
		for _, l := range labels {
			m.Labels = append(m.Labels, flow.Held{Label: l})
		}
		return m
	}
	for i := range 2 {
		id, at := fmt.Sprint("w", i), get(t)(db.Session(ctx, own.ID)).Version
		get(t)(db.Intent(ctx, own.ID, at, intent(own, id), nil, gateway.Spend{
			Wrote: &stored.Written{ID: id, Server: "memory", Hashes: []string{"h"}},
			Quota: &quota.Claim{Agent: own.Agent, Limits: []quota.Limit{{Resource: quota.APICalls, Window: quota.Hour, Most: 5}, {Resource: quota.ComputeSeconds, Window: quota.Day, Most: 9000}},
				Amount: map[quota.Resource]int64{quota.APICalls: 1}, Bound: map[quota.Resource]int64{quota.ComputeSeconds: 5000}},
		}))
		get(t)(db.Outcome(ctx, own.ID, outcome(intent(own, id), "ok"), nil, 0))
	}
	must(t, db.SaveStoredMarks(ctx, []stored.Mark{mark("mark_1", "internal"), mark("mark_2", "internal"), mark("mark_3", "pii")}, ch))
	must(t, db.SaveStoredMarks(ctx, []stored.Mark{mark("mark_1", "internal", "pii"), mark("mark_2")}, ch))
	livedRuns(t, db)
	for i := range 2 {
		must(t, db.w.do(ctx, &job{run: func(x *tx) error {
			return x.recordSegment(Segment{Name: DatabaseFile, ArchivedTo: fmt.Sprint("/elsewhere/", i)}, audit.Entry{Action: "x"})
		}}))
	}
	for i := range 2 {
		must(t, db.AddKnowledgeEvents(ctx, []knowledge.Event{{Document: "doc_1", Seq: i + 1, Order: int64(i + 1), Kind: knowledge.Versioned, Version: i + 1}}, []audit.Entry{ch}))
		must(t, db.AddKnowledgeSnapshot(ctx, knowledge.Snapshot{ID: fmt.Sprint("snap_", i), Documents: 1}, ch))
		must(t, db.AddKnowledgeDigest(ctx, fmt.Sprint("snap_", i, "/x"), strings.Repeat("0", 63)+fmt.Sprint(i), ch))
		must(t, db.PinKnowledge(ctx, fmt.Sprint("sess_", i), fmt.Sprint("snap_", i), ch))
		must(t, db.KeepSessionPrompt(ctx, fmt.Sprint("sess_", i), fmt.Sprint("text ", i), ch))
	}
	must(t, db.Declare(ctx, declare.Declaration{ID: "decl_1", Session: s.ID, State: declare.Approved}, ch))
	return s
}

// tamper does what somebody can who may write the database: triggers and constraints hold nobody, and are put back afterwards.
func tamper(t *testing.T, dir string, queries ...string) (changed bool) {
	t.Helper()
	first, _, err := segment.Newest(dir)
	must(t, err)
	return tamperFile(t, filepath.Join(dir, segment.Name(first)), queries...)
}

func tamperFile(t *testing.T, path string, queries ...string) (changed bool) {
	t.Helper()
	c, err := dial(dsn(path, "_pragma=busy_timeout(5000)&_pragma=ignore_check_constraints(1)"))
	must(t, err)
	defer c.close()
	var triggers [][2]string
	must(t, c.query(func(v []driver.Value) error {
		triggers = append(triggers, [2]string{text(v[0]), text(v[1])})
		return nil
	}, "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"))
	if strings.HasPrefix(queries[0], "ATTACH") {
		must(t, c.script(queries[0]))
		queries = queries[1:]
	}
	must(t, c.script("BEGIN IMMEDIATE"))
	for _, tr := range triggers {
		must(t, c.script("DROP TRIGGER "+tr[0]))
	}
	for _, q := range queries {
		n, err := c.changed(q)
		if err != nil && engineFailed(err) && !strings.Contains(err.Error(), "mismatch") {
			t.Errorf("%s: %v", q, err)
		}
		changed = changed || n > 0
	}
	for _, tr := range triggers {
		must(t, c.script(tr[1]))
	}
	must(t, c.script("COMMIT"))
	return changed
}

// copyDir copies a closed data directory.
func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	must(t, os.Chmod(to, 0o700))
	files, err := os.ReadDir(from)
	must(t, err)
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(from, f.Name()))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(to, f.Name()), data, 0o600))
	}
	return to
}

// refusesStart tells that neither a start nor verify takes the directory for whole.
func refusesStart(t *testing.T, dir, what string) {
	t.Helper()
	db, err := Open(dir, Options{})
	if err == nil { // what is in evidence is checked when it is read
		for _, agent := range []string{"a", "b"} {
			if s, none := db.LastOwnSession(t.Context(), agent); none == nil && err == nil {
				_, err = db.Evidence(t.Context(), s.ID, 0)
			}
		}
		must(t, db.Close())
	}
	if err == nil {
		t.Errorf("%s: it starts", what)
		return
	}
	if f := fault.Of(err); f.Code != fault.StoreUnavailable || f.Remedy == "" {
		t.Errorf("%s: refused without the right code or a remedy: %v", what, err)
	}
	r, err := OpenReadOnly(dir)
	must(t, err)
	defer r.Close()
	if report := verify(t, r); report.OK {
		t.Errorf("%s: it verifies: %v", what, report.Notes)
	}
}

// starts tells that a directory is whole.
func starts(t *testing.T, dir string) {
	t.Helper()
	db, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	must(t, db.Close())
	r, err := OpenReadOnly(dir)
	must(t, err)
	defer r.Close()
	if report := verify(t, r); !report.OK {
		t.Fatalf("%+v", report)
	}
}

// TestChangedRows changes each column of each table that decides, removes its rows, adds some, swaps them, and takes their MACs away.
func TestChangedRows(t *testing.T) {
	db := openDB(t)
	lived(t, db)
	must(t, db.Close())
	dir := dataDir(t)
	starts(t, copyDir(t, dir))
	for _, tab := range proved {
		one := fmt.Sprintf("(SELECT max(rowid) FROM %s)", tab.name)
		row := "rowid = " + one
		if slices.Contains([]string{"quarantines", "quarantine_counts", "drills", "used", "audit_spent"}, tab.name) { // they have no rowid
			row = fmt.Sprintf("%s = (SELECT max(%[1]s) FROM %s)", tab.key, tab.name)
		}
		attacks := []string{
			"DELETE FROM " + tab.name + " WHERE " + row,
			"DELETE FROM " + tab.name,
			"UPDATE " + tab.name + " SET mac = NULL WHERE " + row,
			"UPDATE " + tab.name + " SET entry = entry - 1 WHERE " + row,
			"UPDATE " + tab.name + " SET entry = -1, mac = NULL",
			"UPDATE " + tab.name + " SET mac = (SELECT min(mac) FROM (SELECT mac FROM sessions UNION SELECT mac FROM tokens)) WHERE " + row + " AND mac IS NOT (SELECT min(mac) FROM (SELECT mac FROM sessions UNION SELECT mac FROM tokens))",
		}
		for _, column := range append(tab.covered(), tab.zero) {
			if column == "" {
				continue
			}
			for _, value := range []string{column + " || 'x'", column + " + 1", "CAST(" + column + " AS BLOB)"} {
				attacks = append(attacks, fmt.Sprintf("UPDATE %s SET %s = %s WHERE %s AND %[2]s IS NOT %[3]s", tab.name, column, value, row))
			}
		}
		all := strings.Join(tab.covered()[1:], ", ")
		if all != "" {
			all += ", "
		}
		also, zero := "", ""
		if tab.zero != "" {
			also, zero = tab.zero+", ", "0, "
		}
		attacks = append(attacks, fmt.Sprintf("INSERT INTO %s (%s, %s%sentry, mac) SELECT 'zz', %s%sentry, mac FROM %[1]s WHERE %s", tab.name, tab.key, all, also, strings.Replace(all, "n, ", "n + 1000, ", 1), zero, row))
		done := 0
		for _, attack := range attacks {
			attacked := copyDir(t, dir)
			if !tamper(t, attacked, attack) {
				continue
			}
			done++
			refusesStart(t, attacked, attack)
		}
		if done < 6 {
			t.Errorf("%s: only %d attacks could be done", tab.name, done)
		}
	}
}

// TestOldRows puts each row back as it was at some earlier time, with the MAC that it had then.
func TestOldRows(t *testing.T) {
	db := openDB(t)
	s := lived(t, db)
	must(t, db.Close())
	dir := dataDir(t)
	old := copyDir(t, dir)
	db = openDB(t)
	ctx, ch := t.Context(), audit.Entry{Kind: audit.Change, Action: "x", Decision: "ok"}
	must(t, db.RevokeToken(ctx, "tok_2", time.Now(), ch))
	open := get(t)(db.OwnSession(ctx, "b"))
	get(t)(db.ChangeSession(ctx, open.ID, func(x session.Session) (session.Session, audit.Entry, error) {
		x = x.Raise(flow.Held{Label: "untrusted"})
		return x, change("session.taint", x), nil
	}))
	get(t)(db.Intent(ctx, open.ID, open.Version+1, intent(open, "c9"), nil))
	get(t)(db.Outcome(ctx, open.ID, outcome(intent(open, "c9"), "ok"), nil, time.Hour, evidence.Kept{CallID: "c9", Rules: call.HashBytes(nil), Body: []byte(`{"gave":1}`)}))
	asked, err := db.Approvals(ctx, desk.Filter{Now: time.Now(), Limit: 10, State: "pending"})
	must(t, err)
	a := vote(t, db, asked[0])
	must(t, spend(db, t, s, a, "c10"))
	must(t, db.SavePins(ctx, []catalogue.Pin{{Operation: "m.x", Hash: "g"}}, ch))
	must(t, db.SaveSwitches(ctx, standing.Switches{Epoch: 9}, ch))
	must(t, db.SaveQuarantine(ctx, "a", nil, ch))
	must(t, db.SaveQuarantine(ctx, "c", &standing.Quarantine{Since: time.Now(), Number: 1}, ch))
	must(t, db.Close())
	starts(t, copyDir(t, dir))
	from := "ATTACH '" + filepath.Join(old, databaseFile) + "' AS old"
	for _, tab := range proved {
		list := tab.list
		if tab.zero != "" {
			list += ", " + tab.zero
		}
		same := fmt.Sprintf("o.%s = main.%s.%[1]s", tab.key, tab.name)
		if tab.chained {
			same += fmt.Sprintf(" AND o.seq = main.%s.seq", tab.name)
		}
		for what, attack := range map[string][]string{
			"all rows put back":      {"DELETE FROM main." + tab.name, fmt.Sprintf("INSERT INTO main.%s (%s) SELECT %[2]s FROM old.%[1]s", tab.name, list)},
			"changed rows put back":  {fmt.Sprintf("INSERT OR REPLACE INTO main.%s (%s) SELECT %[2]s FROM old.%[1]s", tab.name, list)},
			"new rows removed":       {fmt.Sprintf("DELETE FROM main.%s WHERE NOT EXISTS (SELECT 1 FROM old.%[1]s o WHERE %s)", tab.name, same)},
			"removed rows put back":  {fmt.Sprintf("INSERT OR IGNORE INTO main.%s (%s) SELECT %[2]s FROM old.%[1]s", tab.name, list)},
			"the digest put back":    {"INSERT OR REPLACE INTO main.state_proof SELECT * FROM old.state_proof"},
			"rows and the digest":    {"DELETE FROM main." + tab.name, fmt.Sprintf("INSERT INTO main.%s (%s) SELECT %[2]s FROM old.%[1]s", tab.name, list), "INSERT OR REPLACE INTO main.state_proof SELECT * FROM old.state_proof"},
			"the digest removed":     {"DELETE FROM main.state_proof"},
			"the digest, and no MAC": {"DELETE FROM main.state_proof", "UPDATE main." + tab.name + " SET entry = -1, mac = NULL"},
		} {
			if slices.Contains([]string{"declarations", "drills", "used"}, tab.name) && !strings.Contains(what, "digest") {
				continue // no row of it was changed
			}
			attacked := copyDir(t, dir)
			tamper(t, attacked, append([]string{from}, attack...)...)
			if same := sameRows(t, attacked, dir); same {
				continue
			}
			refusesStart(t, attacked, tab.name+": "+what)
		}
	}
}

// sameRows tells whether two databases have the same rows.
func sameRows(t *testing.T, a, b string) bool {
	t.Helper()
	dump := func(dir string) (all []string) {
		c, err := dial(dsn(filepath.Join(dir, databaseFile), readParams))
		must(t, err)
		defer c.close()
		for _, tab := range slices.Sorted(maps.Keys(unproved)) {
			must(t, c.query(func(v []driver.Value) error { all = append(all, fmt.Sprintf("%v", v)); return nil }, "SELECT * FROM "+tab+" ORDER BY 1, 2"))
		}
		for _, tab := range proved {
			must(t, c.query(func(v []driver.Value) error { all = append(all, fmt.Sprintf("%v", v)); return nil }, tab.all+" ORDER BY "+tab.key+", "+tab.nth))
		}
		return all
	}
	return slices.Equal(dump(a), dump(b))
}

// TestChangedWhileRunning changes rows under a running gateway: what it reads it does not take.
func TestChangedWhileRunning(t *testing.T) {
	for name, attack := range map[string]struct {
		sql string
		use func(t *testing.T, db *DB, s session.Session, a string) error
	}{
		"a vote forged": {"UPDATE approvals SET state = 'approved', body = CAST(replace(CAST(body AS TEXT), '\"state\":\"pending\"', '\"state\":\"approved\"') AS BLOB)",
			func(t *testing.T, db *DB, s session.Session, a string) error {
				return second(db.Approval(t.Context(), a))
			}},
		"an approval moved to another call": {"UPDATE approvals SET call_digest = '" + strings.Repeat("0", 64) + "'",
			func(t *testing.T, db *DB, s session.Session, a string) error {
				return second(db.ApprovalFor(t.Context(), s.ID, strings.Repeat("0", 64)))
			}},
		"approvals removed": {"DELETE FROM approvals",
			func(t *testing.T, db *DB, s session.Session, a string) error {
				return second(db.Approval(t.Context(), a))
			}},
		"declarations removed": {"DELETE FROM declarations",
			func(t *testing.T, db *DB, s session.Session, a string) error {
				return second(db.Declaration(t.Context(), "decl_1"))
			}},
		"a declaration forged": {"UPDATE declarations SET body = CAST('{}' AS BLOB)",
			func(t *testing.T, db *DB, s session.Session, a string) error {
				return second(db.Declaration(t.Context(), "decl_1"))
			}},
		"a token forged": {"INSERT INTO tokens (id, hash, kind, subject, agent, roles, created) VALUES ('tok_9', '" + strings.Repeat("9", 64) + "', 'person', 'eve', '', '[\"approver\"]', 0)",
			func(t *testing.T, db *DB, s session.Session, a string) error { return second(db.Tokens(t.Context())) }},
		"a token given another role": {"UPDATE tokens SET roles = '[\"admin\"]' WHERE id = 'tok_2'",
			func(t *testing.T, db *DB, s session.Session, a string) error { return second(db.Tokens(t.Context())) }},
		"a token removed": {"DELETE FROM tokens WHERE id = 'tok_1'",
			func(t *testing.T, db *DB, s session.Session, a string) error { return second(db.Tokens(t.Context())) }},
		"a quarantine removed": {"DELETE FROM quarantines",
			func(t *testing.T, db *DB, s session.Session, a string) error {
				_, _, err := db.Quarantines(t.Context())
				return err
			}},
		"a count of quarantines set back": {"DELETE FROM quarantine_counts",
			func(t *testing.T, db *DB, s session.Session, a string) error {
				_, _, err := db.Quarantines(t.Context())
				return err
			}},
		"the switch removed": {"DELETE FROM switches",
			func(t *testing.T, db *DB, s session.Session, a string) error {
				return second(db.Switches(t.Context()))
			}},
		"an older epoch": {"UPDATE switches SET epoch = 1, body = CAST('{\"epoch\":1}' AS BLOB)",
			func(t *testing.T, db *DB, s session.Session, a string) error {
				return db.SaveSwitches(t.Context(), standing.Switches{Epoch: 2}, audit.Entry{Kind: audit.Change, Action: "x"})
			}},
		"a pin accepted": {"UPDATE pins SET hash = pending, pending = '' WHERE operation = 'm.x'",
			func(t *testing.T, db *DB, s session.Session, a string) error { return second(db.Pins(t.Context())) }},
		"labels removed": {"UPDATE sessions SET body = CAST(replace(CAST(body AS TEXT), 'internal', 'harmless') AS BLOB) WHERE agent = 'b'",
			func(t *testing.T, db *DB, s session.Session, a string) error {
				return second(db.OwnSession(t.Context(), "b"))
			}},
		"the agent's session removed": {"DELETE FROM sessions WHERE agent = 'b'",
			func(t *testing.T, db *DB, s session.Session, a string) error {
				next := newSession("b", true)
				return db.OpenSession(t.Context(), next, change("session.open", next))
			}},
		"evidence added": {"UPDATE evidence SET body = CAST('{\"saw\":2}' AS BLOB)",
			func(t *testing.T, db *DB, s session.Session, a string) error {
				return second(db.Evidence(t.Context(), get(t)(db.Session(t.Context(), db.w.proof.own("b"))).ID, 0))
			}},
		"evidence cut": {"DELETE FROM evidence WHERE seq > 1",
			func(t *testing.T, db *DB, s session.Session, a string) error {
				return second(db.Evidence(t.Context(), db.w.proof.own("b"), 0))
			}},
		"evidence removed": {"DELETE FROM evidence",
			func(t *testing.T, db *DB, s session.Session, a string) error {
				return second(db.Evidence(t.Context(), db.w.proof.own("b"), 0))
			}},
		"the first evidence removed": {"DELETE FROM evidence WHERE seq = 1",
			func(t *testing.T, db *DB, s session.Session, a string) error {
				return second(db.Evidence(t.Context(), db.w.proof.own("b"), 0))
			}},
		"a no hidden": {"UPDATE approvals SET spoken = NULL",
			func(t *testing.T, db *DB, s session.Session, a string) error {
				if said, err := db.Objected(t.Context(), "a", "bank.transfer", time.Now().Add(-time.Hour)); err != nil || !said {
					return errors.New("the no is gone")
				}
				return fault.New(fault.StoreUnavailable, "the memory knows better")
			}},
		"a used time put back": {"UPDATE sessions SET used_ns = 0",
			func(t *testing.T, db *DB, s session.Session, a string) error {
				if got := get(t)(db.Session(t.Context(), db.w.proof.own("b"))); got.Used != 2*time.Second {
					return nil
				}
				return fault.New(fault.StoreUnavailable, "the memory knows better")
			}},
	} {
		t.Run(name, func(t *testing.T) {
			db := openDB(t)
			s := lived(t, db)
			asked, err := db.Approvals(t.Context(), desk.Filter{Now: time.Now(), Limit: 10, State: "pending"})
			must(t, err)
			must(t, db.Close())
			db = openDB(t) // with nothing in memory
			if strings.HasPrefix(name, "a used") {
				get(t)(db.Session(t.Context(), db.w.proof.own("b")))
			}
			if !tamper(t, dataDir(t), attack.sql) {
				t.Fatal("nothing was changed")
			}
			if err := attack.use(t, db, s, asked[0].ID); !fault.Is(err, fault.StoreUnavailable) {
				t.Errorf("%v", err)
			}
			must(t, db.Close())
			refusesStart(t, dataDir(t), name)
		})
	}
}

// A row of what was spent that is put back as it was, with its MAC, is not spent again, in the running gateway either.
func TestSpentOnceWhateverIsPutBack(t *testing.T) {
	db := openDB(t)
	s := opened(t, db, "a")
	a := vote(t, db, ask(t, db, question(t, s, 1)))
	attach := "ATTACH '" + filepath.Join(t.TempDir(), "old.db") + "' AS old"
	tamper(t, dataDir(t), attach, "CREATE TABLE old.approvals AS SELECT * FROM main.approvals")
	must(t, spend(db, t, s, a, "c1"))
	tamper(t, dataDir(t), attach, "INSERT OR REPLACE INTO main.approvals SELECT * FROM old.approvals", "DELETE FROM main.audit_spent")
	var refused *gateway.SpendError
	if err := spend(db, t, s, a, "c2"); !errors.As(err, &refused) {
		t.Errorf("%v", err)
	}
}

// A row that is put back while the gateway runs, with the MAC that it had, is not read.
func TestOldRowsWhileRunning(t *testing.T) {
	db := openDB(t)
	lived(t, db)
	asked, err := db.Approvals(t.Context(), desk.Filter{Now: time.Now(), Limit: 10, State: "pending"})
	must(t, err)
	attach := "ATTACH '" + filepath.Join(t.TempDir(), "old.db") + "' AS old"
	tables := []string{"sessions", "approvals", "pins", "tokens", "quarantines"}
	var take, put []string
	for _, name := range tables {
		take = append(take, fmt.Sprintf("CREATE TABLE old.%s AS SELECT * FROM main.%[1]s", name))
		put = append(put, fmt.Sprintf("INSERT OR REPLACE INTO main.%s SELECT * FROM old.%[1]s", name))
	}
	tamper(t, dataDir(t), append([]string{attach}, take...)...)
	ctx, ch := t.Context(), audit.Entry{Kind: audit.Change, Action: "x", Decision: "ok"}
	own := get(t)(db.OwnSession(ctx, "b"))
	get(t)(db.ChangeSession(ctx, own.ID, func(x session.Session) (session.Session, audit.Entry, error) {
		x = x.Raise(flow.Held{Label: "untrusted"})
		return x, change("session.taint", x), nil
	}))
	vote(t, db, asked[0])
	must(t, db.SavePins(ctx, []catalogue.Pin{{Operation: "m.x", Hash: "g"}}, ch))
	must(t, db.RevokeToken(ctx, "tok_2", time.Now(), ch))
	must(t, db.SaveQuarantine(ctx, "a", nil, ch))
	must(t, db.Close())
	db = openDB(t) // with nothing in memory
	tamper(t, dataDir(t), append([]string{attach}, put...)...)
	for name, read := range map[string]func() error{
		"the session":     func() error { return second(db.OwnSession(ctx, "b")) },
		"the approval":    func() error { return second(db.Approval(ctx, asked[0].ID)) },
		"a call's":        func() error { return second(db.ApprovalFor(ctx, asked[0].Session, asked[0].CallDigest)) },
		"the pins":        func() error { return second(db.Pins(ctx)) },
		"the tokens":      func() error { return second(db.Tokens(ctx)) },
		"the quarantines": func() error { _, _, err := db.Quarantines(ctx); return err },
		"in a transaction": func() error {
			return second(db.ChangeSession(ctx, own.ID, closing))
		},
	} {
		if err := read(); !fault.Is(err, fault.StoreUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if page, err := db.SessionsPage(ctx, "", 10, ""); err != nil || len(page.Aside) == 0 {
		t.Errorf("no session is set aside: %+v, %v", page, err)
	}
}

// TestKey has the key file away, replaced, or open for others.
func TestKey(t *testing.T) {
	db := openDB(t)
	lived(t, db)
	must(t, db.Close())
	dir := dataDir(t)
	for name, change := range map[string]func(path string) error{
		"gone": os.Remove,
		"another": func(path string) error {
			_, err := createStateKey(filepath.Dir(path))
			return errors.Join(err, os.Rename(path+".new", path))
		},
		"another, not used yet": func(path string) error {
			_, err := createStateKey(filepath.Dir(path))
			return errors.Join(err, os.Remove(path))
		},
		"cut":      func(path string) error { return os.Truncate(path, 20) },
		"readable": func(path string) error { return os.Chmod(path, 0o644) },
	} {
		attacked := copyDir(t, dir)
		must(t, change(filepath.Join(attacked, StateKeyFile)))
		db, err := Open(attacked, Options{})
		if err == nil {
			db.Close()
			t.Errorf("%s: it starts", name)
			continue
		}
		if f := fault.Of(err); f.Remedy == "" || !strings.Contains(f.Public()+f.Remedy, StateKeyFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
	info, err := os.Stat(filepath.Join(dir, StateKeyFile))
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("%v", info.Mode())
	}
	without := copyDir(t, dir)
	must(t, os.Remove(filepath.Join(without, StateKeyFile)))
	r, err := OpenReadOnly(without)
	must(t, err)
	defer r.Close()
	if report := verify(t, r); !report.OK || !slices.ContainsFunc(report.Notes, func(n string) bool { return strings.Contains(n, StateKeyFile) }) {
		t.Errorf("without the key: %+v", report)
	}
}

// TestVerifyWithoutKey compares which rows there are, in databases of older versions too, and claims nothing about what it could not check.
func TestVerifyWithoutKey(t *testing.T) {
	const (
		to13 = "DROP TABLE written_values; DROP TABLE stored_labels; UPDATE schema_version SET version = 13"
		to12 = to13 + "; ALTER TABLE pins DROP COLUMN launch; ALTER TABLE pins DROP COLUMN pending_launch; UPDATE schema_version SET version = 12"
		to11 = to12 + "; UPDATE schema_version SET version = 11"
	)
	db := openDB(t)
	opened(t, db, "a")
	must(t, db.AddToken(t.Context(), identity.Token{ID: "tok_1", Hash: call.HashBytes(nil), Subject: identity.Principal{Kind: identity.Person, ID: "bob"}, Created: time.Now()},
		audit.Entry{Kind: audit.Change, Action: "x", Decision: "ok"}))
	must(t, db.SavePins(t.Context(), []catalogue.Pin{{Operation: "m.x", Hash: "h"}, {Operation: "m.y", Hash: "h"}}, audit.Entry{Kind: audit.Change, Action: "p"}))
	must(t, db.Close())
	for version, back := range map[string]string{"15": "SELECT 1", "13": to13, "12": to12, "11": to11} {
		for what, attack := range map[string]string{"": "SELECT 1", "gone": "DELETE FROM pins WHERE operation = 'm.y'", "not made": "UPDATE pins SET operation = 'm.z' WHERE operation = 'm.y'",
			"another version": "UPDATE tokens SET entry = 0", "another MAC": "UPDATE tokens SET mac = x'00'"} {
			dir := copyDir(t, dataDir(t))
			must(t, os.Remove(filepath.Join(dir, StateKeyFile)))
			tamper(t, dir, append(strings.Split(back, "; "), attack)...)
			r, err := OpenReadOnly(dir)
			must(t, err)
			report := verify(t, r)
			must(t, r.Close())
			said := strings.Join(report.Notes, " ")
			if report.OK != (what == "") || len(report.Problems) > 2 {
				t.Errorf("version %s, %s: %+v", version, what, report.Problems)
			}
			if !strings.Contains(said, "no "+StateKeyFile) || !strings.Contains(said, "Not checked: what is in the rows") || strings.Contains(said, "proved") {
				t.Errorf("version %s, %s: %s", version, what, said)
			}
		}
	}
}

// TestBesideTheLog changes what is stored beside the entries, by which they are found.
func TestBesideTheLog(t *testing.T) {
	db := openDB(t)
	lived(t, db)
	record(t, db, 300)
	s := opened(t, db, "z")
	get(t)(db.Intent(t.Context(), s.ID, s.Version, intent(s, "open"), nil))
	must(t, db.Close())
	for attack, words := range map[string]string{
		"UPDATE audit_entries SET at = at + 1 WHERE idx = 7":                          "entry 7: the column at",
		"UPDATE audit_entries SET kind = 'decision' WHERE idx = 9":                    "entry 9: the column kind",
		"UPDATE audit_entries SET call_id = 'x' WHERE idx = 270":                      "entry 270: the column call_id",
		"UPDATE audit_blocks SET keys = x'00000000'":                                  "audit_blocks",
		"UPDATE low_water SET idx = (SELECT max(idx) + 1 FROM audit_entries)":         "low_water",
		"CREATE TRIGGER evil AFTER INSERT ON used BEGIN SELECT 1; END":                "evil",
		"DROP TRIGGER audit_spent_delete":                                             "audit_spent_delete",
		"DROP INDEX sessions_own":                                                     "",
		"UPDATE sessions SET used_ns = used_ns + 1 WHERE used_ns > 0":                 "used time",
		"UPDATE state_proof SET low_water = 0, was_size = 0, was_digest = ''":         "state_proof",
		"UPDATE state_proof SET layout = 'sessions(id,n) ' || layout":                 "",
		"UPDATE state_proof SET layout = replace(layout, ',roles,', ',')":             "",
		"INSERT INTO audit_spent (id, call_id) VALUES ('appr_x', 'y')":                "audit_spent",
		"UPDATE evidence SET rules = '" + strings.Repeat("1", 64) + "' WHERE seq = 1": "evidence",
	} {
		attacked := copyDir(t, dataDir(t))
		if strings.HasPrefix(attack, "CREATE") || strings.HasPrefix(attack, "DROP") {
			c, err := dial(dsn(filepath.Join(attacked, databaseFile), "_pragma=busy_timeout(5000)"))
			must(t, err)
			must(t, c.script(attack))
			must(t, c.close())
		} else if !tamper(t, attacked, attack) {
			t.Errorf("%s changed nothing", attack)
		}
		r, err := OpenReadOnly(attacked)
		must(t, err)
		report := verify(t, r)
		must(t, r.Close())
		if words == "" {
			continue
		}
		if report.OK || !slices.ContainsFunc(report.Problems, func(p audit.Problem) bool { return strings.Contains(p.What, words) }) {
			t.Errorf("%s: %+v", attack, report.Problems)
		}
	}
}

// TestDamagedPage: verify names the page of the file that is damaged.
func TestDamagedPage(t *testing.T) {
	db := openDB(t)
	lived(t, db)
	record(t, db, 40)
	must(t, db.Close())
	c := outside(t)
	page := func(query string) (n int64) {
		t.Helper()
		must(t, c.QueryRow(query).Scan(&n))
		return n
	}
	size := page("PRAGMA page_size")
	pages := []int64{page("SELECT rootpage FROM sqlite_schema WHERE name = 'tokens'"), page("SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_tokens_1'")}
	must(t, c.Close())
	for _, n := range pages {
		damaged := copyDir(t, dataDir(t))
		f, err := os.OpenFile(filepath.Join(damaged, databaseFile), os.O_RDWR, 0)
		must(t, err)
		_, err = f.WriteAt([]byte{0xff, 0xff, 0xff, 0xff}, (n-1)*size)
		must(t, errors.Join(err, f.Close()))
		r, err := OpenReadOnly(damaged)
		must(t, err)
		report := verify(t, r)
		must(t, r.Close())
		if report.OK || !slices.ContainsFunc(report.Problems, func(p audit.Problem) bool { return strings.Contains(p.What, fmt.Sprintf("page %d", n)) }) {
			t.Errorf("page %d: %+v", n, report.Problems)
		}
	}
}

// TestAdoption starts on a database of the version before: its rows are taken over once, on record.
func TestAdoption(t *testing.T) {
	s := newSession("a", true)
	s = s.Raise(flow.Held{Label: "internal"})
	s.Used = time.Second
	rows := []string{
		sessionOfBefore(t, s),
		"INSERT INTO tokens (id, hash, kind, subject, agent, roles, created, revoked) VALUES ('tok_1', '" + strings.Repeat("1", 64) + "', 'person', 'bob', '', '[\"approver\"]', 1, 2)",
		"INSERT INTO tokens (id, hash, kind, subject, agent, roles, created) VALUES ('tok_2', '" + strings.Repeat("2", 64) + "', 'person', 'bob', '', '[\"approver\"]', 1)",
		"INSERT INTO audit_spent (id, call_id) VALUES ('appr_1', 'c1')",
		"INSERT INTO quarantines (agent, since, by, reason) VALUES ('b', 1, 'person:bob', 'odd')",
		"INSERT INTO switches (one, epoch, body) VALUES (1, 4, CAST('{\"epoch\":4}' AS BLOB))",
		fmt.Sprintf("INSERT INTO evidence (session_id, seq, call_id, rules, total, body) VALUES ('%s', 1, 'c1', '%s', 2, x'7b7d'), ('%[1]s', 2, 'c1', '%s', 4, x'7b7d')", s.ID, call.HashBytes(nil), call.HashBytes(nil)),
	}
	dir := dirOfBefore(t, 8, 300, rows...)
	before := copyDir(t, dir)
	t.Run("once", func(t *testing.T) {
		db, err := Open(dir, Options{})
		must(t, err)
		adoptions, _ := every(t, db, audit.Filter{Action: audit.Adopt})
		if len(adoptions) != 1 || adoptions[0].Index != 300 || !strings.Contains(string(adoptions[0].Detail), `"tokens":2`) {
			t.Fatalf("%+v", adoptions)
		}
		own := get(t)(db.OwnSession(t.Context(), "a"))
		if !own.Holds("internal") || own.Used != time.Second {
			t.Errorf("%+v", own)
		}
		if kept, err := db.Evidence(t.Context(), s.ID, 1); err != nil || len(kept) != 1 {
			t.Errorf("%+v, %v", kept, err)
		}
		report := verify(t, db.Reader)
		if !report.OK || !slices.ContainsFunc(report.Notes, func(n string) bool { return strings.Contains(n, "proved from entry 300 on: 8 rows") }) {
			t.Errorf("%+v", report)
		}
		must(t, db.RevokeToken(t.Context(), fmt.Sprint("tok_", 2), time.Now(), audit.Entry{Kind: audit.Change, Action: "x", Decision: "ok"}))
		if report := verify(t, db.Reader); !report.OK {
			t.Errorf("after a change of what was taken over: %+v", report)
		}
		must(t, db.Close())
	})
	starts(t, dir)
	t.Run("a row less", func(t *testing.T) {
		attacked := copyDir(t, dir)
		tamper(t, attacked, "DELETE FROM quarantines")
		refusesStart(t, attacked, "a row that was taken over, removed")
	})
	t.Run("taken over again", func(t *testing.T) {
		attacked := copyDir(t, dir)
		queries := []string{"DELETE FROM state_proof", "DELETE FROM audit_checkpoints WHERE size > 300", "UPDATE tokens SET revoked = NULL"}
		for _, tab := range proved {
			queries = append(queries, "UPDATE "+tab.name+" SET entry = -1, mac = NULL")
		}
		tamper(t, attacked, queries...)
		must(t, os.Remove(filepath.Join(attacked, StateKeyFile)))
		data, err := os.ReadFile(filepath.Join(before, AnchorFile))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(attacked, AnchorFile), data, 0o600))
		refusesStart(t, attacked, "everything as before the upgrade but the log")
	})
	t.Run("put back from before the upgrade", func(t *testing.T) {
		attacked := copyDir(t, before)
		tamper(t, attacked, "UPDATE tokens SET subject = 'eve'")
		key, err := os.ReadFile(filepath.Join(dir, StateKeyFile))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(attacked, StateKeyFile), key, 0o600))
		refusesStart(t, attacked, "a database and a checkpoint from before the upgrade, beside the key")
		must(t, os.Remove(filepath.Join(attacked, StateKeyFile))) // what the message says that a person may do
		starts(t, attacked)
	})
	t.Run("taken over again before anything was changed", func(t *testing.T) {
		attacked := copyDir(t, before)
		starts(t, attacked)
		queries := []string{"DELETE FROM state_proof", "DELETE FROM audit_checkpoints WHERE size > 300"}
		for _, tab := range proved {
			queries = append(queries, "UPDATE "+tab.name+" SET entry = -1, mac = NULL")
		}
		tamper(t, attacked, queries...)
		must(t, os.Remove(filepath.Join(attacked, StateKeyFile)))
		copyFile(t, filepath.Join(before, AnchorFile), filepath.Join(attacked, AnchorFile))
		refusesStart(t, attacked, "a log that says that its rows were taken over")
	})
	t.Run("interrupted", func(t *testing.T) {
		crashed := copyDir(t, before)
		must(t, os.WriteFile(filepath.Join(crashed, newKeyFile), []byte("half a key"), 0o600))
		starts(t, crashed) // before anything was proved
		must(t, os.Rename(filepath.Join(crashed, StateKeyFile), filepath.Join(crashed, newKeyFile)))
		starts(t, crashed) // before the key had its name
		starts(t, crashed)
		if left, err := filepath.Glob(filepath.Join(crashed, newKeyFile)); err != nil || left != nil {
			t.Errorf("%v, %v", left, err)
		}
	})
	t.Run("a damaged log", func(t *testing.T) {
		attacked := copyDir(t, before)
		tamper(t, attacked, "UPDATE audit_entries SET at = at + 1 WHERE idx = 290", "UPDATE audit_tiles SET hashes = zeroblob(8192)")
		if db, err := Open(attacked, Options{}); err == nil {
			db.Close()
			t.Error("it was taken over")
		}
	})
	t.Run("rows and no log", func(t *testing.T) {
		attacked := t.TempDir()
		db, err := Open(attacked, Options{})
		must(t, err)
		must(t, db.Close())
		tamper(t, attacked, rows[1], "DELETE FROM state_proof")
		refusesStart(t, attacked, "a token in an empty log")
	})
}

// TestRollback goes back to the version before: its program refuses the upgraded database, and works on a back-up from before. The upgrade can be done again.
func TestRollback(t *testing.T) {
	dir := dirOfBefore(t, 8, 3, sessionOfBefore(t, newSession("a", false)))
	backup := copyDir(t, dir)
	starts(t, dir)
	files, err := fs.Glob(migrations, "migrations/sqlite/*.sql")
	must(t, err)
	older := olderSchema(t, files[:8])
	c, err := dial(dsn(filepath.Join(dir, databaseFile), writeParams))
	must(t, err)
	if err := migrate(c, older); !fault.Is(err, fault.ConfigurationInvalid) || !strings.Contains(fault.Of(err).Remedy, "backup") {
		t.Errorf("the older program on the newer database: %v", err)
	}
	must(t, c.close())
	again := copyDir(t, backup)
	c, err = dial(dsn(filepath.Join(again, databaseFile), writeParams))
	must(t, err)
	must(t, migrate(c, older))
	must(t, c.close())
	starts(t, again)
}

// TestNewColumn upgrades a database whose MACs don't cover a column that is there now.
func TestNewColumn(t *testing.T) {
	db := openDB(t)
	lived(t, db)
	must(t, db.Close())
	dir := dataDir(t)
	confirmed := pinRows.columns
	defer func() { pinRows.columns = confirmed; pinRows.prepare() }()
	pinRows.columns = pinRows.columns[:len(pinRows.columns)-1] // as in a version that didn't know the last one
	pinRows.prepare()
	starts(t, dir)
	pinRows.columns = confirmed
	pinRows.prepare()
	starts(t, dir)
	r, err := OpenReadOnly(dir)
	must(t, err)
	defer r.Close()
	adoptions, _, err := r.Entries(t.Context(), audit.Filter{Action: audit.Adopt})
	must(t, err)
	if len(adoptions) != 2 || !strings.Contains(string(adoptions[1].Detail), `"rows":{"pins":2}`) {
		t.Errorf("%+v", adoptions)
	}
	attacked := copyDir(t, dir)
	tamper(t, attacked, "UPDATE pins SET confirmed_by = 'person:eve'")
	refusesStart(t, attacked, "the new column changed")
}

// TestNewTable upgrades a database whose program did not know a table: a migration makes it empty, so rows in it are somebody else's.
func TestNewTable(t *testing.T) {
	all := proved
	defer func() { proved = all }()
	proved = all[:len(all)-1] // without written_values
	db := openDB(t)
	must(t, db.SavePins(t.Context(), []catalogue.Pin{{Operation: "m.x", Hash: "h"}}, audit.Entry{Kind: audit.Change, Action: "p"}))
	must(t, db.Close())
	dir := dataDir(t)
	proved = all
	starts(t, copyDir(t, dir))
	attacked := copyDir(t, dir)
	tamper(t, attacked, "INSERT INTO written_values (id, body, entry, mac) VALUES ('c9', x'7b7d', 1, x'00')")
	refusesStart(t, attacked, "a row in a table that is new")
}

// TestCrashBetweenDigestAndCheckpoint: the digest in the database is one ahead of the checkpoint, or the checkpoint's file is new and the database has not got it yet.
func TestCrashBetweenDigestAndCheckpoint(t *testing.T) {
	db := openDB(t)
	lived(t, db)
	note, err := db.Checkpoint(t.Context())
	must(t, err)
	s := opened(t, db, "q")
	get(t)(db.Intent(t.Context(), s.ID, s.Version, intent(s, "c77"), nil))
	get(t)(db.Outcome(t.Context(), s.ID, outcome(intent(s, "c77"), "ok"), nil, time.Minute))
	must(t, db.Close())
	dir := dataDir(t)
	t.Run("before the file", func(t *testing.T) {
		crashed := copyDir(t, dir)
		tamper(t, crashed, "DELETE FROM audit_checkpoints WHERE size = (SELECT max(size) FROM audit_checkpoints)")
		must(t, os.WriteFile(filepath.Join(crashed, AnchorFile), note, 0o600))
		unclosed(t, crashed)
		starts(t, crashed)
	})
	t.Run("before the database", func(t *testing.T) {
		crashed := copyDir(t, dir)
		tamper(t, crashed, "DELETE FROM audit_checkpoints WHERE size = (SELECT max(size) FROM audit_checkpoints)")
		starts(t, crashed)
	})
}

// TestCheckpointWithinABatch signs in one batch with others: what is signed is what the digest is of, and what was committed.
func TestCheckpointWithinABatch(t *testing.T) {
	for name, fails := range map[string]bool{"after a change": false, "after one that fails": true} {
		t.Run(name, func(t *testing.T) {
			db := openWith(t, Options{})
			opened(t, db, "a")
			get := func(_ []byte, err error) { t.Helper(); must(t, err) }
			get(db.Checkpoint(t.Context()))
			gate, entered, done := make(chan struct{}), make(chan struct{}), make(chan error, 3)
			go func() {
				done <- db.w.do(t.Context(), &job{run: func(*tx) error { close(entered); <-gate; return nil }})
			}()
			<-entered
			for i, f := range []func() error{
				func() error {
					return db.w.do(t.Context(), &job{run: func(tx *tx) error {
						if err := tx.append(&audit.Entry{Kind: audit.Change, Action: "beside"}); err != nil || !fails {
							return err
						}
						return errors.New("not this one")
					}})
				},
				func() error { _, err := db.Checkpoint(t.Context()); return err },
			} {
				go func() { done <- f() }()
				for waiting(db) < i+1 {
					time.Sleep(time.Millisecond)
				}
			}
			close(gate)
			failed := 0
			for range 3 {
				if err := <-done; err != nil {
					failed++
				}
			}
			if failed > 0 != fails {
				t.Errorf("%d failed", failed)
			}
			// As after a crash right now.
			again, err := Open(copyDir(t, db.dir), Options{})
			must(t, err)
			must(t, again.Close())
		})
	}
}

// TestVerifyBesideAWriter verifies again and again while entries are written and signed as fast as it goes: nothing is ever in doubt.
func TestVerifyBesideAWriter(t *testing.T) {
	db := openDB(t)
	lived(t, db)
	many := make([]audit.Entry, 2000)
	for i := range many {
		many[i] = audit.Entry{Kind: audit.Change, Action: "test", Reason: strings.Repeat("x", 900)}
	}
	for range 6 { // so that reading them takes longer than signing some checkpoints
		must(t, db.Record(t.Context(), slices.Clone(many)...))
	}
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			err := db.SavePins(context.Background(), []catalogue.Pin{{Operation: "m.x", Hash: fmt.Sprint(i)}}, audit.Entry{Kind: audit.Change, Action: "p"})
			if err == nil {
				_, err = db.Checkpoint(context.Background())
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	r, err := OpenReadOnly(dataDir(t))
	must(t, err)
	defer r.Close()
	before, err := r.Size(t.Context())
	must(t, err)
	for range 3 {
		if report := verify(t, r); !report.OK || report.Checked < before {
			t.Errorf("%+v", report.Problems)
		}
	}
	close(stop)
	must(t, <-done)
	if after, err := r.Size(t.Context()); err != nil || after == before {
		t.Errorf("nothing was written meanwhile: %d entries, %v", after, err)
	}
}

// TestNamesBesideAWriter lists the files of the log while blocks are completed: none that is complete belongs nowhere.
func TestNamesBesideAWriter(t *testing.T) {
	db := openDB(t)
	r, err := OpenReadOnly(db.dir)
	must(t, err)
	defer r.Close()
	const blocks = 40
	done := make(chan error, 1)
	go func() {
		var err error
		for i := 0; err == nil && i < blocks; i++ {
			err = db.Record(context.Background(), slices.Repeat([]audit.Entry{{Kind: audit.Change, Action: "test"}}, blockSize)...)
		}
		done <- err
	}()
	for listed := 0; ; listed++ {
		select {
		case err := <-done:
			must(t, err)
			if listed == 0 {
				t.Error("nothing was listed meanwhile")
			}
			return
		default:
		}
		src, err := r.Source(t.Context())
		must(t, err)
		must(t, src.Names(func(name string) error {
			if _, n, _, err := audit.ParseTilePath(name); err == nil && n >= src.size/blockSize {
				t.Errorf("%s of a log of %d entries", name, src.size)
			}
			return nil
		}))
	}
}

// TestBlocksAreProved has somebody hide an entry from queries, by the row that tells where it is, in every state that a stop can leave.
func TestBlocksAreProved(t *testing.T) {
	db := openDB(t)
	must(t, db.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: "gateway.start", Decision: "ok"}))
	fill(t, db, 20*blockSize)
	_, err := db.Checkpoint(t.Context())
	must(t, err)
	// As after a crash: entries and a complete block more than the newest checkpoint covers. None is written meanwhile.
	var crashed string
	db.signMu.Lock()
	onWriter(t, db, func(c *conn) error {
		for range blockSize {
			must(t, db.w.tx.append(&audit.Entry{Kind: audit.Change, Action: "late", Decision: "ok"}))
		}
		db.w.tx.wrote++
		return nil
	})
	crashed = copyDir(t, db.dir)
	db.signMu.Unlock()
	must(t, db.Close())
	older := copyDir(t, db.dir) // as a program left it whose proof did not cover the blocks
	onClosed(t, older, func(c *conn, k *stateKey) {
		p, err := c.stateProof()
		must(t, err)
		p.layout = strings.TrimSuffix(p.layout, " "+blocksLaidOut)
		p.used, p.closed = k.digestOf(p.size, total{}), false
		must(t, c.exec(upsertProof, p.size, p.digest, p.wasSize, p.wasDigest, p.usedColumn(), p.lowWater, p.layout, p.seal(k)))
	})
	for state, dir := range map[string]string{"stopped": db.dir, "crashed": crashed, "of an older program": older} {
		starts(t, copyDir(t, dir))
		for attack, query := range map[string]string{
			"a start hidden":     "UPDATE audit_blocks SET keys = zeroblob(0) WHERE n = 0",
			"a row elsewhere":    "UPDATE audit_blocks SET keys = (SELECT keys FROM audit_blocks WHERE n = 5) WHERE n = 0",
			"a row gone":         "DELETE FROM audit_blocks WHERE n = 7",
			"the newest changed": "UPDATE audit_blocks SET keys = zeroblob(4) WHERE n = 20",
		} {
			attacked := copyDir(t, dir)
			if !tamper(t, attacked, query) {
				t.Errorf("%s, %s: nothing was changed", state, attack)
			}
			db, err := Open(attacked, Options{})
			if err == nil {
				t.Errorf("%s, %s: it starts", state, attack)
				must(t, db.Close())
			}
			r, err := OpenReadOnly(attacked)
			must(t, err)
			if report := verify(t, r); report.OK {
				t.Errorf("%s, %s: it verifies", state, attack)
			}
			must(t, r.Close())
		}
	}
}

// unclosed makes a directory as a process leaves it that was killed.
func unclosed(t *testing.T, dir string) {
	t.Helper()
	onClosed(t, dir, func(c *conn, k *stateKey) {
		p, err := c.stateProof()
		must(t, err)
		p.closed = false
		must(t, c.exec(upsertProof, p.size, p.digest, p.wasSize, p.wasDigest, p.usedColumn(), p.lowWater, p.layout, p.seal(k)))
	})
}

// onClosed changes a database as its program could have.
func onClosed(t *testing.T, dir string, change func(c *conn, k *stateKey)) {
	t.Helper()
	k, err := readStateKey(dir)
	must(t, err)
	c, err := dial(dsn(filepath.Join(dir, databaseFile), writeParams))
	must(t, err)
	change(c, k)
	must(t, c.close())
}

// TestDamagedApprovals has one row of the queue damaged: it is named and set aside, the rest is listed, and nothing is decided by it.
func TestDamagedApprovals(t *testing.T) {
	for name, attack := range map[string]string{
		"its body changed":    `UPDATE approvals SET body = CAST(replace(CAST(body AS TEXT), 'agent', 'agenT') AS BLOB) WHERE id = $1`,
		"no JSON":             `UPDATE approvals SET body = x'00' WHERE id = $1`,
		"a body of another":   `UPDATE approvals SET body = (SELECT body FROM approvals WHERE id <> $1 LIMIT 1) WHERE id = $1`,
		"made approved":       `UPDATE approvals SET body = CAST(replace(CAST(body AS TEXT), '"state":"pending"', '"state":"approved"') AS BLOB) WHERE id = $1`,
		"of an older version": `UPDATE approvals SET entry = entry - 1 WHERE id = $1`,
		"its MAC gone":        `UPDATE approvals SET mac = NULL WHERE id = $1`,
		"a type changed":      `UPDATE approvals SET body = 7 WHERE id = $1`,
	} {
		t.Run(name, func(t *testing.T) {
			db := openDB(t)
			s := opened(t, db, "a")
			var asked []approval.Approval
			for i := range 5 {
				asked = append(asked, ask(t, db, question(t, s, i+1)))
			}
			bad := asked[2]
			_, err := outside(t).Exec(attack, bad.ID)
			must(t, err)
			var listed []string
			for after := ""; ; { // a page at a time, also from the damaged one on
				page, err := db.Approvals(t.Context(), desk.Filter{Now: time.Now(), Limit: 1, After: after})
				must(t, err)
				if len(page) == 0 {
					break
				}
				after = page[0].ID
				listed = append(listed, after)
				if damaged := page[0].State == approval.Damaged; damaged != (after == bad.ID) || damaged && (page[0].Digest != "" || len(page[0].Votes) > 0 || page[0].Agent != "a") {
					t.Errorf("%+v", page[0])
				}
			}
			if len(listed) != 5 {
				t.Errorf("%v", listed)
			}
			for what, use := range map[string]func() error{
				"it is read":  func() error { return second(db.Approval(t.Context(), bad.ID)) },
				"it is found": func() error { return second(db.ApprovalFor(t.Context(), s.ID, bad.CallDigest)) },
				"it is answered": func() error {
					return second(db.ChangeApproval(t.Context(), bad.ID, func(st desk.Stored) (desk.Update, error) {
						return desk.Update{Stored: st, Entry: change2("approval.approve", bad)}, nil
					}))
				},
				"it is used": func() error { return spend(db, t, s, bad, "c9") },
			} {
				var unusable *gateway.SpendError
				if err := use(); !fault.Is(err, fault.StoreUnavailable) && !(errors.As(err, &unusable) && fault.Is(unusable.Err, fault.StoreUnavailable)) {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}
