package store

import (
	"bytes"
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/segment"
)

// rollWithin bounds the time that calls wait while the state is copied to a new file, well below their patience. Where it takes longer, the next start does it.
const rollWithin = 800 * time.Millisecond

// rolling is what the writer knows of the file that it writes to. Its goroutine owns it.
type rolling struct {
	path       string                                 // of the file
	first      int64                                  // own entry of the file
	checkpoint func([]byte) (audit.Checkpoint, error) // reads a signed one
	changed    func()                                 // readers have to look at the files anew
	followed   string                                 // the file that readers look at as the newest
}

// aside runs do in the writer's goroutine, between two batches, and waits for its end.
func (w *writer) aside(do func() error) error {
	j := &job{aside: do, done: make(chan struct{}, 1)}
	if err := w.queue.add(j); err != nil {
		return err
	}
	<-j.done
	return j.err
}

// direct is do for the writer's goroutine.
func (w *writer) direct(j *job) error {
	j.done = make(chan struct{}, 1)
	j.state.Store(started)
	w.attempt([]*job{j})
	return j.err
}

// full tells whether the file that is written to has its number of entries.
func (db *DB) full() bool {
	db.signMu.Lock()
	defer db.signMu.Unlock()
	return db.perSegment > 0 && db.signedSize-db.firstOwn.Load() >= max(db.perSegment, segment.Least)
}

// roll seals the file that is written to, and goes on in a new one. Calls wait meanwhile; within is how long they may, 0 for as long as it takes.
func (db *DB) roll(within time.Duration) error {
	db.signMu.Lock()
	defer db.signMu.Unlock()
	return db.w.aside(func() error {
		if err := db.sign(db.w.direct); err != nil {
			return err
		}
		ctx := context.Background()
		if within > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, within)
			defer cancel()
		}
		return db.w.roll(ctx)
	})
}

// roll goes on in a new file. The newest checkpoint covers all entries, and no transaction is under way. After an error the file that was written to
// is still the one that is, or, once the new one has its name, that.
func (w *writer) roll(ctx context.Context) error {
	dir := filepath.Dir(w.path)
	if err := segment.Make(ctx, dir, filepath.Base(w.path), w.size, w.continues); err != nil {
		return fault.Wrap(err, fault.AuditUnavailable, "The log can't go on in a new file")
	}
	w.disconnect()
	w.writeTo(filepath.Join(dir, segment.Name(w.size)), w.size)
	// The first transaction in the file begins with the entry segment.start: this one, or whatever comes next if it fails.
	return w.direct(&job{run: func(*tx) error { return nil }})
}

// writeTo makes a file the one that is written to.
func (w *writer) writeTo(path string, first int64) {
	w.path, w.first = path, first
	w.held = nil
}

// continues checks that a file that was made holds the edge of the log: the tree, and each entry that was copied with what is stored beside it.
func (w *writer) continues(path string) error {
	var found logState
	err := reading(path, found.readTree)
	if err == nil && (found.size != w.size || found.tree.Root() != w.tree.Root()) {
		err = errors.New("the new file is not the continuation of the log")
	}
	if err != nil {
		return err
	}
	r := &Reader{files: &files{newest: openPool(path, readParams), path: path}}
	err = r.checkBlock(context.Background(), w.tree.Snapshot(), (w.size-1)/blockSize, math.MaxInt64)
	return errors.Join(err, r.Close())
}

// startSegment writes the first entry of a file, with the row of the file before.
func (t *tx) startSegment() error {
	w := t.w
	sealed := Segment{First: -1, End: w.first}
	var note []byte
	if err := w.c.query(func(v []driver.Value) error { note = blob(v[1]); return nil }, selectNote); err != nil {
		return err
	}
	cp, err := w.checkpoint(note)
	if err != nil || cp.Size != w.first {
		return damaged(fmt.Errorf("the file %s has no checkpoint of the one before it: %w", filepath.Base(w.path), err))
	}
	sealed.Root, sealed.State, sealed.At = cp.Root.String(), cp.State, w.lastAt
	sealed.First = 0
	if err := w.c.query(func(v []driver.Value) error {
		var before Segment
		err := json.Unmarshal(blob(v[1]), &before)
		sealed.First = max(sealed.First, before.End)
		return err
	}, selectSegments); err != nil {
		return err
	}
	sealed.Name = segment.Name(sealed.First)
	// The digest of the rows of audit_blocks begins anew with each file, since this one has none of those before.
	sealed.Blocks, t.moved.blocks = w.proof.key.blocksOf(w.first, w.proof.blocks), total{}
	if _, err := t.prove(cp.Size, cp.State); err != nil {
		return err
	}
	t.after = append(t.after, w.changed)
	return t.recordSegment(sealed, audit.Entry{Action: "segment.start", Actor: "rule:segment", Reason: fmt.Sprintf("entries up to here are in %s, which is sealed", sealed.Name)})
}

// changeSegment changes what is on record of a sealed file.
func (t *tx) changeSegment(name string, change func(*Segment), e audit.Entry) error {
	row, err := t.read(segmentRows, name)
	if err != nil {
		return err
	}
	if row == nil {
		return fault.New(fault.Conflict, "No entry says yet that %s is sealed.", name)
	}
	var s Segment
	if err := json.Unmarshal(blob(row[1]), &s); err != nil {
		return damaged(err)
	}
	change(&s)
	return t.recordSegment(s, e)
}

// recordSegment writes the row of a sealed file, and the entry that says what was done with the file.
func (t *tx) recordSegment(s Segment, e audit.Entry) error {
	body, err := json.Marshal(s)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "the row of a segment can't be written")
	}
	if err := t.put(segmentRows, s.Name, body); err != nil {
		return err
	}
	e.Kind, e.Decision, e.Detail = audit.Change, "ok", body
	return t.append(&e)
}

// eachOlder goes through the files of the directory before the one that is written to, with their first entry and the one after their last.
func (w *writer) eachOlder(each func(path string, first, end int64) error) error {
	dir := filepath.Dir(w.path)
	firsts, err := segment.List(dir)
	for i := 0; err == nil && i+1 < len(firsts) && firsts[i] < w.first; i++ {
		err = each(filepath.Join(dir, segment.Name(firsts[i])), firsts[i], firsts[i+1])
	}
	return err
}

// reading opens a file to read something in it.
func reading(path string, read func(*conn) error) error {
	c, err := dial(dsn(path, readParams))
	if err != nil {
		return err
	}
	return errors.Join(read(c), c.close())
}

// sealLoop reads files that are not written to any more as a whole and puts their SHA-256 on record, until Close.
func (db *DB) sealLoop() {
	tick := time.NewTicker(signEvery)
	defer tick.Stop()
	for {
		if err := db.sealOlder(); err != nil && !errors.Is(err, segment.ErrStopped) {
			db.log.Warn("a full file of the log is not sealed yet", "error", err)
		}
		select {
		case <-db.closing:
			return
		case <-db.w.gone:
			return
		case <-db.unsealed:
		}
		select { // what other connections keep from being folded is tried again
		case <-db.closing:
			return
		case <-tick.C:
		}
	}
}

func (db *DB) toSeal() {
	select {
	case db.unsealed <- struct{}{}:
	default:
	}
}

// sealOlder seals the older files that are not sealed yet.
func (db *DB) sealOlder() error {
	db.sealMu.Lock()
	defer db.sealMu.Unlock()
	sealed, _ := db.Segments()
	for _, s := range sealed {
		if s.SHA256 != "" || !s.Present || s.Root == "" { // without a root the entry that names it is still to come
			continue
		}
		path := filepath.Join(db.dir, s.Name)
		if err := db.markSealed(path); err != nil {
			return err
		}
		done, err := segment.Fold(context.Background(), path)
		if err != nil || !done {
			db.toSeal()
			return err
		}
		size, sum, err := segment.Sum(path, db.closing)
		if err != nil {
			return err
		}
		if err := os.Chmod(path, 0o400); err != nil {
			return err
		}
		if err := db.w.do(context.Background(), &job{run: func(t *tx) error {
			return t.changeSegment(s.Name, func(s *Segment) { s.Bytes, s.SHA256 = size, sum }, audit.Entry{Action: "segment.seal", Actor: "rule:segment", Reason: s.Name + " is sealed and changes no more"})
		}}); err != nil {
			db.toSeal()
			return err
		}
		if err := db.reopen(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

// markSealed makes a file one that no start takes for the newest: it is a whole database with an old state. Nobody can take the mark off without the key.
// What sessions saw goes with that: the newest file has it, and deletes it when they close.
func (db *DB) markSealed(path string) error {
	c, err := dial(dsn(path, "_pragma=busy_timeout(900)&_pragma=synchronous(FULL)&_pragma=secure_delete(1)"))
	if err != nil {
		return unavailable(err, fault.StoreUnavailable)
	}
	p, err := c.stateProof()
	if err == nil && p == nil {
		err = damaged(errors.New("it has no row in state_proof"))
	}
	if mark := p.sealed(db.w.proof.key); err == nil && !bytes.Equal(p.mac, mark) {
		if err = c.exec("BEGIN IMMEDIATE"); err == nil {
			err = errors.Join(c.exec("UPDATE state_proof SET mac = $1", mark), c.exec("DELETE FROM evidence"))
		}
		if err == nil {
			err = c.exec("COMMIT")
		}
	}
	return unavailable(errors.Join(err, c.close()), fault.StoreUnavailable)
}

// checkSegments refuses a directory from which a sealed file is gone that was not archived.
func (db *DB) checkSegments() error {
	if err := db.inOrder(context.Background()); err != nil {
		return err
	}
	sealed, _ := db.Segments()
	for _, s := range sealed {
		if s.ArchivedTo != "" {
			if _, err := os.Lstat(filepath.Join(db.dir, s.Name)); err == nil {
				db.log.Warn("a file of the log is on record as archived and is still here; \"sallyport audit archive\" finishes that", "file", s.Name)
			}
			continue
		}
		info, err := os.Lstat(filepath.Join(db.dir, s.Name))
		switch {
		case err != nil || !info.Mode().IsRegular():
			return fault.Wrap(err, fault.AuditUnavailable, "%s, which has the entries %d to %d of the log, is gone.", s.Name, s.First, s.End-1).
				Try("Put the file back from where it was moved to, or from a backup. \"sallyport audit archive\" moves such files and puts it on record.")
		case s.Bytes > 0 && info.Size() != s.Bytes:
			return fault.New(fault.AuditUnavailable, "%s was sealed with %d bytes, and has %d.", s.Name, s.Bytes, info.Size()).
				Try("Put the file back from a backup. \"sallyport audit verify\" says what is in doubt.")
		case s.Bytes > 0 && info.Mode().Perm() != 0o400: // it comes from a backup
			if err := os.Chmod(filepath.Join(db.dir, s.Name), 0o400); err != nil {
				return unusable(err, "%s can't be made read-only", s.Name)
			}
		}
	}
	return nil
}
