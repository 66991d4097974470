package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/evidence"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/session"
	"sallyport.example/provenance"
)

// secretSeen is a session that has seen secrets: so many that their pages are shared, moved and freed.
func secretSeen(t *testing.T, db *DB, agent string, own bool) (s session.Session, secret string) {
	t.Helper()
	s = newSession(agent, own)
	must(t, db.OpenSession(t.Context(), s, change("session.open", s)))
	secret = fmt.Sprintf("hunter2-%s-%x", agent, rand.Uint64())
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 40 {
		e := intent(s, newCall())
		get(t)(db.Intent(t.Context(), s.ID, s.Version, e, nil))
		body := fmt.Sprintf(`{"operation":"m.find","call_id":"c%d","records":[{"values":[{"field":"x","text":"%s%s","class":"f"}]}]}`, i, secret, strings.Repeat(" "+secret, r.IntN(3)*r.IntN(300)))
		get(t)(db.Outcome(t.Context(), s.ID, outcome(e, "ok"), nil, 0, evidence.Kept{CallID: "c", Rules: strings.Repeat("0", 64), Body: []byte(body)}))
	}
	return s, secret
}

// gave is a piece that says what a call was given.
func gave(t *testing.T, text string) evidence.Kept {
	t.Helper()
	from := evidence.Source{CallID: "call_g", Operation: "m.send", Profile: &provenance.Profile{}, Rules: strings.Repeat("0", 64)}
	all, err := from.GivenAway(evidence.Sent{Arguments: fmt.Appendf(nil, `{"q":%q}`, text)})
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	return all[0]
}

// standsIn names the files of the directory that have the text.
func standsIn(t *testing.T, dir, text string) (names []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			names = append(names, e.Name())
		}
		return err
	}))
	return names
}

func scrubbed(t *testing.T, db *DB) {
	t.Helper()
	for range 200 { // a reader of the store's own may be in the way
		done := false
		must(t, db.w.do(t.Context(), &job{run: func(*tx) error { done = !db.w.scrub; return nil }}))
		if done {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the write-ahead log is never emptied")
}

// TestWhatASessionSawGoesWithIt closes sessions in every way, and looks for what they saw in every byte of the directory, while the store runs, after it
// has ended, and in a copy.
func TestWhatASessionSawGoesWithIt(t *testing.T) {
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprint("own ", own), func(t *testing.T) {
			db := openDB(t)
			secretSeen(t, db, "other", false) // beside it, so that pages are shared
			s, secret := secretSeen(t, db, "a", own)
			if len(standsIn(t, dataDir(t), secret)) == 0 {
				t.Fatal("nothing to look for")
			}
			get(t)(db.ChangeSession(t.Context(), s.ID, closing))
			scrubbed(t, db)
			if in := standsIn(t, dataDir(t), secret); in != nil {
				t.Errorf("after the session was closed, what it saw stands in %v", in)
			}
			kept, err := db.Evidence(t.Context(), s.ID, 0)
			if err != nil || len(kept) != 0 {
				t.Errorf("%d pieces, %v", len(kept), err)
			}
			copied := t.TempDir()
			_, err = db.CopyTo(t.Context(), copied)
			must(t, err)
			must(t, db.Close())
			for _, dir := range []string{dataDir(t), copied} {
				if in := standsIn(t, dir, secret); in != nil {
					t.Errorf("what it saw stands in %v", in)
				}
			}
			starts(t, dataDir(t))
		})
	}
}

// TestWhatAnOwnSessionGaveAway stays for the session that follows, and nowhere else; a closed session takes no more.
func TestWhatAnOwnSessionGaveAway(t *testing.T) {
	db := openDB(t)
	s, secret := secretSeen(t, db, "a", true)
	given := gave(t, "hunter2-given")
	e := intent(s, newCall())
	get(t)(db.Intent(t.Context(), s.ID, s.Version, e, nil, gateway.Spend{Seen: []evidence.Kept{given}}))
	s = get(t)(db.ChangeSession(t.Context(), s.ID, closing))
	left := func(id string) int {
		t.Helper()
		all, err := db.Evidence(t.Context(), id, 0)
		must(t, err)
		return len(all)
	}
	scrubbed(t, db) // it moves pages from one file to another, which would hide them from a look at one file after the other
	if n := left(s.ID); n != 1 || standsIn(t, dataDir(t), "hunter2-given") == nil {
		t.Fatalf("%d pieces stay for the next session, want what it gave away", n)
	}
	answer := e
	answer.Kind, answer.Action = audit.Decision, "answer"
	if err := db.Answer(t.Context(), s.ID, answer, nil, gave(t, "hunter2-late")); !fault.Is(err, fault.SessionClosed) || left(s.ID) != 1 {
		t.Errorf("an answer in a closed session: %v, %d pieces", err, left(s.ID))
	}
	get(t)(db.Outcome(t.Context(), s.ID, outcome(e, "ok"), nil, 0, gave(t, "hunter2-late")))
	if n := left(s.ID); n != 1 {
		t.Errorf("an outcome in a closed session: %d pieces", n)
	}
	next := newSession("a", true)
	next.Follows = s.ID
	must(t, db.OpenSession(t.Context(), next, change("session.open", next), given))
	if left(s.ID) != 0 || left(next.ID) != 1 {
		t.Errorf("taken over: %d pieces in the old session and %d in the next", left(s.ID), left(next.ID))
	}
	scrubbed(t, db)
	if in := standsIn(t, dataDir(t), secret); in != nil {
		t.Errorf("what it saw stands in %v", in)
	}
	if report := verify(t, db.Reader); !report.OK {
		t.Errorf("%+v", report.Problems)
	}
}

// TestWhatWasLeftIsSwept has evidence of closed sessions in the files, as versions before left it when they ended between closing and forgetting.
func TestWhatWasLeftIsSwept(t *testing.T) {
	db := openDB(t)
	var secrets []string
	leave := func(agent string, own bool) session.Session {
		s, secret := secretSeen(t, db, agent, own)
		secrets = append(secrets, secret)
		must(t, db.w.do(t.Context(), &job{run: func(x *tx) error {
			old, err := x.session(s.ID)
			if err == nil {
				if s, err = old.Close(time.Now()); err == nil {
					err = x.save(s)
				}
			}
			if err != nil {
				return err
			}
			e := change("session.close", s)
			return x.append(&e)
		}}))
		return s
	}
	leave("a", false)
	first := leave("b", true)
	given := gave(t, "hunter2-given")
	second := newSession("b", true)
	must(t, db.w.do(t.Context(), &job{run: func(x *tx) error { // its predecessor's evidence was not taken away
		if err := x.write(second); err != nil {
			return err
		}
		x.moved.newest["b"] = newestOwn{id: second.ID}
		if err := x.keep(second.ID, given); err != nil {
			return err
		}
		e := change("session.open", second)
		return x.append(&e)
	}}))
	must(t, db.Close())
	db = openDB(t)
	for _, secret := range secrets {
		scrubbed(t, db)
		if in := standsIn(t, dataDir(t), secret); in != nil {
			t.Errorf("what a closed session saw stands in %v", in)
		}
	}
	if n, err := db.Evidence(t.Context(), first.ID, 0); err != nil || len(n) != 0 {
		t.Errorf("of a session that was followed: %v, %v", n, err)
	}
	if n, err := db.Evidence(t.Context(), second.ID, 0); err != nil || len(n) != 1 {
		t.Errorf("of the open one: %v, %v", n, err)
	}
	must(t, db.Close())
	starts(t, dataDir(t))
}

// TestFullBeforeItsBoundWasRaised starts on a session that was full in a version before: nothing that comes later confirms anything there.
func TestFullBeforeItsBoundWasRaised(t *testing.T) {
	db := openDB(t)
	s := opened(t, db, "a")
	pieces := make([]evidence.Kept, evidence.MaxPiecesBefore)
	for i := range pieces {
		pieces[i] = gave(t, fmt.Sprint("value ", i))
	}
	e := intent(s, newCall())
	get(t)(db.Intent(t.Context(), s.ID, s.Version, e, nil, gateway.Spend{Seen: pieces}))
	for range 2 { // once
		must(t, db.Close())
		db = openDB(t)
		all, err := db.Evidence(t.Context(), s.ID, evidence.MaxPiecesBefore)
		if err != nil || len(all) != 1 || !strings.Contains(string(all[0].Body), `"all":true`) {
			t.Errorf("%+v, %v", all, err)
		}
	}
	must(t, db.Close())
	starts(t, dataDir(t))
}
