package search

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver of database/sql

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
)

// File is the file of the index in the data directory.
const File = "audit-search.db"

const (
	schema = `
CREATE TABLE IF NOT EXISTS about (one INTEGER PRIMARY KEY CHECK (one = 1), format TEXT NOT NULL, first INTEGER NOT NULL, next INTEGER NOT NULL, leaf TEXT NOT NULL);
CREATE VIRTUAL TABLE IF NOT EXISTS texts USING fts5(words, content='', tokenize='unicode61 remove_diacritics 0');
`
	// The index can be made anew, so a crash may cost what was written last, but not the order of what is there.
	params = "_pragma=busy_timeout(2000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=trusted_schema(0)&_dqs=0&_defensive=1"

	someFound = 200 // entries of one look into the index

	batchEntries = 100       // entries that are put in at a time, at most
	batchBytes   = 256 << 10 // of words, after which a step ends
	lookEvery    = time.Second
	busyRest     = 50 // while the log grows, the index rests so many times as long as it worked
)

// Source is the log that an index is made of.
type Source interface {
	Store
	// Oldest is the first entry that is here; those before are archived.
	Oldest() int64
	Payload(ctx context.Context, key string) ([]byte, error)
}

// Index has the words of entries. Make it with Open, and have Run run. Safe for concurrent use.
type Index struct {
	store Source
	warn  *slog.Logger
	path  string

	mu   sync.RWMutex // guards the rest; who reads db holds it
	db   *sql.DB
	next int64  // the first entry that it doesn't have
	leaf string // hash of the last entry that it has
}

// Open opens the index of a data directory. One that can't be used is made anew; where that fails, Run tries it again.
func Open(dir string, store Source, warn *slog.Logger) (*Index, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	x := &Index{store: store, warn: warn, path: filepath.Join(dir, File)}
	if err = x.open(); err == nil {
		return x, nil
	}
	warn.Warn("the index of the log can't be used; it is made anew", "error", err)
	if err := x.again(); err != nil { // nothing that decides rests on it
		warn.Warn("the index of the log can't be made; it is tried again", "error", err)
	}
	return x, nil
}

// Remove removes the index of a data directory.
func Remove(dir string) error { return remove(filepath.Join(dir, File)) }

func remove(path string) error {
	var errs []error
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Close closes the file, after Run has ended.
func (x *Index) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.db == nil {
		return nil
	}
	db := x.db
	x.db = nil
	return db.Close()
}

// open opens the file, and makes it if need be.
func (x *Index) open() error {
	f, err := os.OpenFile(x.path, os.O_RDWR|os.O_CREATE, 0o600) // SQLite would make it readable for others
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: x.path, RawQuery: params}).String())
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(3)
	var format string
	var next int64
	var leaf string
	if _, err = db.Exec(schema); err == nil {
		_, err = db.Exec(`INSERT INTO about (one, format, first, next, leaf) VALUES (1, $1, $2, $2, '') ON CONFLICT DO NOTHING`, formatOf, x.store.Oldest())
	}
	if err == nil {
		err = db.QueryRow(`SELECT format, next, leaf FROM about`).Scan(&format, &next, &leaf)
	}
	if err == nil && format != formatOf {
		err = errors.New("it is of another version")
	}
	if err != nil {
		return errors.Join(err, db.Close())
	}
	x.db, x.next, x.leaf = db, next, leaf
	return nil
}

// again makes the index anew.
func (x *Index) again() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var err error
	if x.db != nil {
		err = x.db.Close()
		x.db = nil
	}
	x.next, x.leaf = 0, ""
	if err = errors.Join(err, remove(x.path)); err != nil {
		return err
	}
	return x.open()
}

func (x *Index) to() int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.next
}

// Run fills the index until ctx ends. It rests most of the time while the log grows, so that calls don't wait for it.
func (x *Index) Run(ctx context.Context) {
	last, failing := int64(-1), false
	for {
		began := time.Now()
		size, more, err := x.step(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			x.warn.Warn("the index of the log can't be filled; it is tried again", "error", err)
		}
		rest := lookEvery
		var ofStore *fault.Error
		switch failing = err != nil; {
		case errors.As(err, &ofStore): // the index itself is good
			err = nil
		case failing:
			rest = time.Minute
			err = x.again()
		case more && size == last:
			rest = time.Since(began)
		case more:
			rest = max(lookEvery, busyRest*time.Since(began))
		}
		if err != nil {
			x.warn.Warn("the index of the log can't be made anew; it is tried again", "error", err)
		}
		last = size
		select {
		case <-ctx.Done():
			return
		case <-time.After(rest):
		}
	}
}

// CatchUp puts everything in that the log has.
func (x *Index) CatchUp(ctx context.Context) error {
	for {
		_, more, err := x.step(ctx)
		if err != nil || !more {
			return err
		}
	}
}

// step puts some entries in. more tells whether there are more.
func (x *Index) step(ctx context.Context) (size int64, more bool, err error) {
	if err := x.check(ctx); err != nil {
		return 0, false, err
	}
	if size, err = x.store.Size(ctx); err != nil {
		return 0, false, err
	}
	x.mu.RLock()
	db, next := x.db, x.next
	x.mu.RUnlock()
	if db == nil {
		return 0, false, errors.New("the index is closed")
	}
	if next >= size {
		return size, false, nil
	}
	page, _, err := x.store.Entries(ctx, audit.Filter{Min: next, Limit: batchEntries})
	if err != nil || len(page) == 0 {
		return size, false, err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return size, false, err
	}
	defer tx.Rollback() // does nothing after the commit
	put := 0
	for _, e := range page {
		if put > batchBytes {
			break
		}
		words, err := wordsOf(ctx, e, x.store.Payload)
		if err != nil {
			return size, false, err
		}
		next, put = e.Index+1, put+len(words)
		if words == "" {
			continue
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO texts (rowid, words) VALUES ($1, $2)`, e.Index, words); err != nil {
			return size, false, err
		}
	}
	_, leaf, err := x.store.Entry(ctx, next-1)
	if err != nil {
		return size, false, err
	}
	hash := hashOf(leaf)
	if _, err := tx.ExecContext(ctx, `UPDATE about SET next = $1, leaf = $2`, next, hash); err != nil {
		return size, false, err
	}
	if err := tx.Commit(); err != nil {
		return size, false, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.next, x.leaf = next, hash
	return size, next < size, nil
}

// check makes the index anew where it is not of this log as it is: where the last entry that it has is another one by now, as after a restore, and where
// entries that it has were archived.
func (x *Index) check(ctx context.Context) error {
	x.mu.RLock()
	db, next, leaf := x.db, x.next, x.leaf
	x.mu.RUnlock()
	if db == nil {
		return errors.New("the index is closed")
	}
	var first int64
	if err := db.QueryRowContext(ctx, `SELECT first FROM about`).Scan(&first); err != nil {
		return err
	}
	if first < x.store.Oldest() {
		return x.again()
	}
	if leaf == "" {
		return nil
	}
	_, bytes, err := x.store.Entry(ctx, next-1)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if err != nil || hashOf(bytes) != leaf {
		return x.again()
	}
	return nil
}

func hashOf(leaf []byte) string {
	sum := sha256.Sum256(leaf)
	return hex.EncodeToString(sum[:])
}

// find returns the indexes of at most someFound entries that have the words, from first on and before end, in order: the oldest first, or the newest.
func (x *Index) find(ctx context.Context, text string, first, end int64, newest bool) (found []int64, err error) {
	words := parsed(text)
	if words == "" {
		return nil, noWord()
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.db == nil {
		return nil, fault.New(fault.StoreUnavailable, "The index of the log is being made anew.").Try("Try again in a minute.")
	}
	order := "ASC"
	if newest {
		order = "DESC"
	}
	rows, err := x.db.QueryContext(ctx, `SELECT rowid FROM texts WHERE texts MATCH $1 AND rowid >= $2 AND rowid < $3 ORDER BY rowid `+order+` LIMIT $4`, words, first, end, someFound)
	if err != nil {
		return nil, unreadable(err)
	}
	defer rows.Close()
	for rows.Next() {
		var index int64
		if err := rows.Scan(&index); err != nil {
			return nil, unreadable(err)
		}
		found = append(found, index)
	}
	return found, unreadable(rows.Err())
}

func unreadable(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fault.Wrap(err, fault.StoreUnavailable, "The index of the log can't be read.").Try("It is made anew by itself; if it can't be read after a minute, restart the gateway.")
}

func noWord() error {
	return fault.New(fault.RequestMalformed, "q needs a word of letters or digits to look for.").At("q")
}
