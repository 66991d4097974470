package store

import (
	"os"
	"path/filepath"
	"testing"
)

// The first start signs the empty log before it takes an entry, so a log with entries and without any checkpoint is one whose
// checkpoints were taken away. It must not be signed anew.
func TestEntriesWithoutACheckpointAreNotSignedAnew(t *testing.T) {
	db := openDB(t)
	record(t, db, 20)
	must(t, db.Close())
	dir := dataDir(t)
	c := outside(t)
	_, err := c.Exec(`DROP TRIGGER audit_entries_update; DROP TRIGGER audit_checkpoints_delete; DELETE FROM audit_checkpoints;
		UPDATE audit_entries SET body = CAST(replace(CAST(body AS TEXT), '"agent":"a"', '"agent":"b"') AS BLOB) WHERE idx = 7`)
	must(t, err)
	must(t, c.Close())
	must(t, os.Remove(filepath.Join(dir, AnchorFile)))
	again, err := Open(dir, Options{})
	if err != nil {
		return // refused
	}
	defer again.Close()
	if report := verify(t, again.Reader); report.OK {
		t.Errorf("the changed log was opened, signed anew with the true key, and verifies: %+v", report)
	}
}

// Every checkpoint is in the file before it is in the database, so a file that is behind the database's own newest checkpoint was put
// there by somebody: with an old one, what was signed after it could be changed.
func TestAnchorBehindTheCheckpointsIsRefused(t *testing.T) {
	db := openDB(t)
	record(t, db, 5)
	old, err := db.Checkpoint(t.Context()) // anybody can read it out of the database later, too
	must(t, err)
	record(t, db, 15)
	must(t, db.Close())
	dir := dataDir(t)
	c := outside(t)
	_, err = c.Exec(`DROP TRIGGER audit_entries_update;
		UPDATE audit_entries SET body = CAST(replace(CAST(body AS TEXT), '"agent":"a"', '"agent":"b"') AS BLOB) WHERE idx = 7`)
	must(t, err)
	must(t, c.Close())
	must(t, os.WriteFile(filepath.Join(dir, AnchorFile), old, 0o600))
	again, err := Open(dir, Options{})
	if err != nil {
		return // refused
	}
	defer again.Close()
	record(t, again, 1)
	if _, err := again.Checkpoint(t.Context()); err != nil {
		return
	}
	if report := verify(t, again.Reader); report.OK {
		t.Errorf("a log with a changed entry 7 of 20 signed ones was opened, signed anew with the true key, and verifies: %+v", report)
	}
}
