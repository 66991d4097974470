package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
)

// AnchorFile holds the newest signed checkpoint, outside the database: a database that was rolled back or cut is found at the
// next start, because this file is ahead of it. For proof against someone who can write
// the whole directory, copy it elsewhere.
const AnchorFile = "audit.checkpoint"

// signEvery bounds the time that entries wait for a signature.
const signEvery = time.Second

// Checkpoint signs the log as it is now and returns the signed checkpoint. When it returns, it is in the anchor file and in the
// database; entries newer than the last checkpoint are signed within a second without a call.
func (db *DB) Checkpoint(ctx context.Context) ([]byte, error) {
	db.signMu.Lock()
	defer db.signMu.Unlock()
	if err := db.sign(func(j *job) error { return db.w.do(ctx, j) }); err != nil {
		return nil, err
	}
	return bytes.Clone(db.signed), nil
}

// sign signs the log, with signMu held.
func (db *DB) sign(do func(*job) error) error {
	// The tree that grew with the entries, not one built from what the database holds now: a row that was changed under
	// a running gateway must not be signed.
	var size int64
	var root tlog.Hash
	var state string
	if err := do(&job{run: func(t *tx) (err error) {
		state = "" // a batch is run again without a job that failed
		if db.signed == nil || t.w.tree.Size() != db.signedSize || len(t.w.orphans) > 0 {
			if err := t.w.settle(t); err != nil {
				return err
			}
			if state, err = t.prove(db.signedSize, db.signedState); err != nil {
				return err
			}
			// As they are at this place of the batch, which the digest is of: entries of jobs before this one are not committed yet.
			size, root = t.w.tree.Size(), t.w.tree.Root()
		}
		return nil
	}}); err != nil {
		return err
	}
	if state != "" {
		note, err := db.signer.Checkpoint(size, root, state)
		if err != nil {
			return fault.Wrap(err, fault.AuditUnavailable, "The checkpoint can't be signed.")
		}
		// The file first: a checkpoint in the database has always been in the file, so that a missing file is a removed one.
		path := filepath.Join(db.dir, AnchorFile)
		failed := audit.ReplaceFile(path, note)
		if now, err := audit.ReadFile(path); failed == nil || err == nil && bytes.Equal(now, note) {
			db.signed, db.signedSize, db.signedState, db.stored = note, size, state, false
		}
		if failed != nil {
			return fault.Wrap(failed, fault.AuditUnavailable, "The checkpoint can't be written to %s.", AnchorFile)
		}
	}
	note, size := db.signed, db.signedSize
	if !db.stored {
		if err := do(&job{run: func(t *tx) error {
			t.wrote++
			return t.w.c.exec(insertNote, size, note)
		}}); err != nil {
			return err
		}
		db.stored = true
	}
	return nil
}

// keep signs once a second while there is something to sign, until Close.
func (db *DB) keep() {
	tick := time.NewTicker(signEvery)
	defer tick.Stop()
	failing, slow := false, false
	for {
		select {
		case <-db.closing:
			return
		case <-tick.C:
		}
		_, err := db.Checkpoint(context.Background())
		if err != nil && !failing {
			db.log.Error("the audit log is not being signed", "error", err)
		}
		failing = err != nil
		db.unsigned.Store(failing)
		if err == nil && !slow && db.full() {
			if err := db.roll(rollWithin); err != nil {
				slow = true
				db.log.Warn("the log stays in its file until the next start, which begins a new one", "error", err)
			}
		}
	}
}

// checkAnchor refuses a log that doesn't continue the last signed one.
func (db *DB) checkAnchor(ctx context.Context) error {
	path := filepath.Join(db.dir, AnchorFile)
	refuse := func(cause error, format string, args ...any) *fault.Error {
		return fault.Wrap(cause, fault.AuditUnavailable, "The audit log in %s is not the one that was signed: %s.", db.dir, fmt.Sprintf(format, args...))
	}
	data, err := audit.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		_, err := db.LatestCheckpoint(ctx)
		switch {
		case fault.Is(err, fault.NotFound):
			s, err := db.snapshot(ctx)
			if err != nil || s.Size() == 0 {
				return err // the first start, which signs the empty log before it takes an entry
			}
			return refuse(nil, "it has %d entries, and every checkpoint of them is gone", s.Size()).
				Try("Put the database and %s back from one backup.", AnchorFile)
		case err != nil:
			return err
		}
		return refuse(nil, "its file %s is gone", AnchorFile).
			Try("Put the file back from where it was moved to, or a backup of the whole directory.")
	}
	if err != nil {
		return refuse(err, "its file %s can't be read", AnchorFile).Try("Check the permissions of the data directory.")
	}
	key, err := audit.ParsePublicKey(db.signer.PublicKey())
	if err != nil {
		return fault.Wrap(err, fault.ConfigurationInvalid, "The signing key is not usable.")
	}
	cp, err := audit.OpenCheckpoint(data, key)
	if err != nil {
		return refuse(err, "%s is not a checkpoint signed with %s", AnchorFile, audit.KeyFile).
			Try("Put the two files and the database back from one backup.")
	}
	s, err := db.snapshot(ctx)
	if err != nil {
		return err
	}
	if cp.Size > s.Size() {
		return refuse(nil, "%d entries were signed, and the database holds %d: it was rolled back or cut", cp.Size, s.Size()).
			Try("Put back the newest database. To go on with what is there, move the directory away and start with a new one; nobody can continue the old log as if nothing had happened.")
	}
	root, err := tlog.TreeHash(cp.Size, s.Hashes(db.tile(ctx)))
	if err != nil || root != cp.Root {
		return refuse(err, "its first %d entries have changed", cp.Size).
			Try("Run \"sallyport audit verify --data %s\": it names the first entry in doubt.", db.dir)
	}
	// An old file put back must not get what was changed since signed anew: the signatures in the database must hold too.
	if note, err := db.LatestCheckpoint(ctx); err == nil {
		kept, err := audit.OpenCheckpoint(note, key)
		if err != nil {
			return refuse(err, "the newest checkpoint in the database is not signed with %s", audit.KeyFile).
				Try("Put the two files and the database back from one backup.")
		}
		if kept.Size > cp.Size { // the file is written first
			return refuse(nil, "%s covers %d entries, and the newest checkpoint in the database %d: an older file was put in its place", AnchorFile, cp.Size, kept.Size).
				Try("Put the two files and the database back from one backup.")
		}
		if kept.Size > s.Size() {
			return refuse(nil, "%d entries were signed, and the database holds %d: it was cut", kept.Size, s.Size()).
				Try("Put the two files and the database back from one backup.")
		}
		if root, err := tlog.TreeHash(kept.Size, s.Hashes(db.tile(ctx))); err != nil || root != kept.Root {
			return refuse(err, "its first %d entries have changed", kept.Size).
				Try("Run \"sallyport audit verify --data %s\": it names the first entry in doubt.", db.dir)
		}
	} else if !fault.Is(err, fault.NotFound) {
		return err
	}
	db.signed, db.signedSize, db.signedState = data, cp.Size, cp.State
	return nil
}
