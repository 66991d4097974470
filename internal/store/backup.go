package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/mod/sumdb/tlog"
	"modernc.org/sqlite"

	"sallyport.example/internal/fault"
)

// DatabaseFile is the name of the database in a data directory.
const DatabaseFile = databaseFile

// CopyTo writes the database as it is at one moment to a new file. A gateway that runs on it goes on meanwhile.
func (r *Reader) CopyTo(ctx context.Context, path string) error {
	c, err := r.db.Conn(ctx)
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
