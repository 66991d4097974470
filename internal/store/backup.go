package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/tlog"
	"modernc.org/sqlite"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/segment"
)

// DatabaseFile is the name of the first database in a data directory. NewestFile is the one that is written to once the log went on in others: first is
// its first entry.
const DatabaseFile = segment.FirstFile

// NewestFile names the file whose first own entry has that index.
func NewestFile(first int64) string { return segment.Name(first) }

// CopyTo writes the log and the state as they are at one moment to a folder: the database that is written to, whose name comes first, and the older
// segments that are there, the oldest first. A gateway that runs on them goes on meanwhile.
func (r *Reader) CopyTo(ctx context.Context, dir string) (names []string, err error) {
	if dir, err = filepath.Abs(dir); err != nil { // the engine takes no others
		return nil, err
	}
	for left := 5; ; left-- {
		if names, err = r.copyTo(ctx, dir); err != nil {
			return nil, err
		}
		first, _, err := segment.Newest(r.dir)
		if err != nil || segment.Name(first) == names[0] {
			return names, unavailable(err, fault.StoreUnavailable)
		}
		// The log went on in another file, and the one that was copied may have been sealed before that.
		if left == 0 {
			return nil, fault.New(fault.StoreUnavailable, "The log went on in a new file each time that it was copied.").Try("Try again.")
		}
		for _, name := range names {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return nil, err
			}
		}
		if err := r.reopen(ctx); err != nil {
			return nil, err
		}
	}
}

func (r *Reader) copyTo(ctx context.Context, dir string) (names []string, err error) {
	f := r.use()
	defer r.done(f)
	names = []string{filepath.Base(f.path)}
	if err := copyDatabase(ctx, f.newest, filepath.Join(dir, names[0])); err != nil {
		return nil, err
	}
	if r.unsegmented {
		return names, nil
	}
	// Which of the others are sealed, with which SHA-256, is what the copy says: one may have been sealed since the reader was opened.
	copied := openNewest(dir, names[0], readParams+"&immutable=1")
	defer func() { err = errors.Join(err, copied.close()) }()
	if err := copied.openOlder(ctx, nil); err != nil {
		return nil, err
	}
	for _, p := range copied.older {
		if p.find(r.dir, r.archives); p.db == nil {
			continue
		}
		names = append(names, p.Name)
		if p.SHA256 == "" {
			err = copyDatabase(ctx, p.db, filepath.Join(dir, p.Name))
		} else if err = os.Link(p.path, filepath.Join(dir, p.Name)); err != nil { // another disk, or one without links
			err = segment.Copy(p.path, filepath.Join(dir, p.Name), p.SHA256)
		}
		if err = errors.Join(err, p.db.Close()); err != nil {
			return nil, unavailable(err, fault.StoreUnavailable)
		}
	}
	return names, nil
}

// copyDatabase copies one database as it is at one moment.
func copyDatabase(ctx context.Context, db *pool, path string) error {
	c, err := db.Conn(ctx)
	if err != nil {
		return unavailable(err, fault.StoreUnavailable)
	}
	path, err = filepath.Abs(path)
	if err == nil {
		err = c.Raw(func(driver any) (err error) {
			source, ok := driver.(interface {
				NewBackup(name string) (*sqlite.Backup, error)
			})
			if !ok {
				return fmt.Errorf("the driver of type %T can't copy", driver)
			}
			b, err := source.NewBackup(dsn(path, ""))
			if err != nil {
				return err
			}
			more, err := b.Step(-1) // all pages in one read transaction
			if err == nil && more {
				err = errors.New("the copy is not complete")
			}
			return errors.Join(err, b.Finish())
		})
	}
	return unavailable(errors.Join(err, c.Close()), fault.StoreUnavailable)
}

// Proved tells whether the rows of the database were ever proved, so that nobody can use it without its StateKeyFile.
func (r *Reader) Proved(ctx context.Context) (bool, error) {
	if r.unproved {
		return false, nil
	}
	return r.row(ctx, "SELECT size FROM state_proof", nil, new(int64))
}

// WithKeyIn makes Source read StateKeyFile in another folder: a copy of a database has it where it was made.
func (r *Reader) WithKeyIn(dir string) *Reader {
	r.keys = dir
	return r
}

// RootAt is the root of the log's first size entries.
func (r *Reader) RootAt(ctx context.Context, size int64) (tlog.Hash, error) {
	s, err := r.snapshot(ctx)
	if err != nil {
		return tlog.Hash{}, err
	}
	if size < 0 || size > s.Size() {
		return tlog.Hash{}, fault.New(fault.NotFound, "There are no %d entries: the log has %d.", size, s.Size())
	}
	if size == 0 {
		return sha256.Sum256(nil), nil // RFC 6962
	}
	root, err := tlog.TreeHash(size, s.Hashes(r.tile(ctx)))
	if err != nil {
		return tlog.Hash{}, damaged(err)
	}
	return root, nil
}
