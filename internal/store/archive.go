package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/segment"
)

// Archive moves sealed segments to a folder outside the data directory, the oldest first: those whose newest entry is older than before, or all if that
// is zero. Each is copied, compared with the SHA-256 that it was sealed with, put on record, and only then removed. stays says why it stopped before a
// file that is old enough; nil: it did not. Nothing else may read the directory
// meanwhile as if the files were there: a gateway that runs on it holds the lock, so it can't.
func (db *DB) Archive(ctx context.Context, to string, before time.Time, actor, reason string) (moved []Segment, stays, err error) {
	moved = []Segment{}
	if to, err = db.archiveFolder(to); err != nil {
		return moved, nil, err
	}
	if err := db.sealOlder(); err != nil {
		return moved, nil, err
	}
	sealed, _ := db.Segments()
	for _, s := range sealed {
		path := filepath.Join(db.dir, s.Name)
		if s.ArchivedTo != "" {
			if err := db.finishMove(s, path); err != nil {
				return moved, nil, err
			}
			continue
		}
		if !before.IsZero() && !s.At.Before(before) {
			break
		}
		if err := db.archivable(s); fault.Is(err, fault.Conflict) {
			return moved, err, nil
		} else if err != nil {
			return moved, nil, err
		}
		if err := copyArchived(path, filepath.Join(to, s.Name), s.SHA256); err != nil {
			return moved, nil, err
		}
		s.ArchivedTo, s.ArchivedAt = to, db.w.clock().UTC().Truncate(time.Microsecond)
		if err := db.w.do(ctx, &job{run: func(t *tx) error {
			return t.changeSegment(s.Name, func(now *Segment) { now.ArchivedTo, now.ArchivedAt = s.ArchivedTo, s.ArchivedAt }, audit.Entry{Action: "audit.archive", Actor: actor, Reason: audit.Clip(reason)})
		}}); err != nil {
			return moved, nil, err
		}
		if err := db.finishMove(s, path); err != nil {
			return moved, nil, err
		}
		moved = append(moved, s)
	}
	return moved, nil, nil
}

// startAction is of entries that each start of a gateway writes.
const startAction = "gateway.start"

// archiveFolder refuses what is no folder, and one in the data directory.
func (db *DB) archiveFolder(to string) (string, error) {
	to, err := filepath.Abs(to)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(to); err != nil || !info.IsDir() {
		return "", fault.Wrap(err, fault.ConfigurationInvalid, "%s is not a folder.", to).Try("Make it first, or name another with --to.")
	}
	folder, err := filepath.EvalSymlinks(to)
	own, failed := filepath.EvalSymlinks(db.dir)
	if err = errors.Join(err, failed); err != nil {
		return "", err
	}
	if folder == own || strings.HasPrefix(folder, own+string(filepath.Separator)) {
		return "", fault.New(fault.ConfigurationInvalid, "%s is in the data directory.", to).Try("Name a folder outside of it with --to, best on another disk.")
	}
	return folder, nil
}

// archivable refuses a segment that the gateway may still need.
func (db *DB) archivable(s Segment) error {
	switch {
	case !s.Present:
		return fault.New(fault.StoreUnavailable, "%s is gone.", s.Name).Try("Put it back from a backup.")
	case s.SHA256 == "":
		return fault.New(fault.Conflict, "%s is not sealed yet: another program has it open.", s.Name).Try("End that program and try again.")
	}
	if newer, _, err := db.Entries(context.Background(), audit.Filter{Action: startAction, Min: s.End, Limit: 1}); err != nil || len(newer) == 0 {
		return errors.Join(err, fault.New(fault.Conflict, "%s has the newest entry %s, which the next start compares itself with.", s.Name, startAction).
			Try("Start the gateway once and stop it again; then a newer one is on record. --before names a time up to which files can be moved."))
	}
	var mark int64
	if err := db.w.do(context.Background(), &job{run: func(t *tx) (err error) {
		return t.w.c.query(func(v []driver.Value) error { mark = number(v[0]); return nil }, selectLowWater)
	}}); err != nil {
		return err
	}
	if mark < s.End {
		return fault.New(fault.Conflict, "%s has the beginning of a call that has no outcome yet.", s.Name).Try("Try again: the end of this command gives such calls an outcome.")
	}
	return nil
}

// copyArchived copies a segment. A copy that an interrupted attempt left whole is good.
func copyArchived(from, to, sum string) error {
	if _, got, err := segment.Sum(to, nil); err == nil && got == sum {
		return nil
	} else if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(err, fault.ConfigurationInvalid, "%s is in the way: it is another file than the one to be moved there.", to).Try("Name another folder with --to.")
	}
	if err := segment.Copy(from, to, sum); err != nil {
		return fault.Wrap(err, fault.StoreUnavailable, "%s can't be moved: %v.", filepath.Base(from), err).
			Try("\"sallyport audit verify\" says whether the file is as it was sealed.")
	}
	return nil
}

// finishMove removes a segment that is on record as archived, if the copy is whole.
func (db *DB) finishMove(s Segment, path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, got, err := segment.Sum(filepath.Join(s.ArchivedTo, s.Name), nil); err != nil || got != s.SHA256 {
		return fault.Wrap(err, fault.StoreUnavailable, "%s stays where it is: the copy in %s is not whole.", s.Name, s.ArchivedTo).
			Try("Remove the copy there, copy the file again by hand, and run this command again.")
	}
	if err := db.reopen(context.Background()); err != nil { // readers don't look at it any more
		return err
	}
	return db.w.aside(func() error {
		if err := segment.Remove(path); err != nil {
			return fmt.Errorf("%s was copied, and can't be removed: %w", s.Name, err)
		}
		db.w.held = nil
		return db.w.holdFiles()
	})
}
