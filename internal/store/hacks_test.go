package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/evidence"
	"sallyport.example/internal/session"
)

// TestPipesInTheWay has pipes where the gateway's own files were: a start that opens one for reading would wait for a writer for ever.
func TestPipesInTheWay(t *testing.T) {
	db := openDB(t)
	record(t, db, 3)
	must(t, db.Close())
	for _, name := range []string{AnchorFile, damageFile, audit.KeyFile, audit.PublicFile, StateKeyFile, databaseFile + "-journal", databaseFile + "-wal"} {
		t.Run(name, func(t *testing.T) {
			dir := copyDir(t, filepath.Dir(db.w.path))
			path := filepath.Join(dir, name)
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			must(t, syscall.Mkfifo(path, 0o600))
			ended := make(chan error, 1)
			go func() {
				db, err := Open(dir, Options{})
				if err == nil {
					err = db.Close()
					if name != damageFile {
						err = errors.New("it starts")
					}
				} else {
					err = nil
				}
				ended <- err
			}()
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the start waits for a writer")
			}
			if r, err := OpenReadOnly(dir); err == nil { // it must end, too
				must(t, r.Close())
			}
		})
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
