package store

import (
	"os"
	"path/filepath"
	"testing"
)

// The first start signs the empty log before it takes an entry, so a log with entries and without any checkpoint is one whose
// checkpoints were taken away. It must not be signed anew.
func TestHostile2EntriesWithoutAnyCheckpoint(t *testing.T) {
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
