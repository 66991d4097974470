// Package segment handles the files that the log of a data directory is written to, one after the other. Each is a whole SQLite database: the entries of
// its part of the log with the tree over them, and the state beside the log. The newest is the one that is written to. The others are sealed: their
// state is the one of their last entry, and nothing in them changes any more.
//
// Promises: a file gets its name in one step, once it is whole and durable, and with its name it is the newest. No row is deleted from any file. A file
// that is moved is compared with its SHA-256 before it is removed where it was.
package segment

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	_ "modernc.org/sqlite" // the driver of database/sql

	"sallyport.example/internal/audit"
)

// block is the number of entries that a tile, and a row of audit_blocks, is of.
const block = 256

// Least is the smallest number of entries after which a segment may end: no block of 256 entries is in three files.
const Least = block + 1

const (
	// FirstFile is the first segment of a log.
	FirstFile = "sallyport.db"
	prefix    = "sallyport-"
	suffix    = ".db"
	unready   = ".new" // of a file that is being made
)

// Name is the name of the file whose first own entry has that index.
func Name(first int64) string {
	if first == 0 {
		return FirstFile
	}
	return fmt.Sprintf("%s%012d%s", prefix, first, suffix)
}

// First is the index of the first own entry of a file, by its name.
func First(name string) (first int64, ok bool) {
	if name == FirstFile {
		return 0, true
	}
	digits, ok := strings.CutSuffix(strings.TrimPrefix(name, prefix), suffix)
	first, err := strconv.ParseInt(digits, 10, 64)
	return first, ok && err == nil && first >= Least && Name(first) == name
}

// Base is the index of the first entry that a file holds. It begins with a copy of the newest entries of the file before, at most 256, so that no
// block of entries is cut in two: readers find each block in one file, and the newer one has it.
func Base(first int64) int64 {
	if first == 0 {
		return 0
	}
	return (first - 1) &^ (block - 1)
}

// List returns the files of a data directory by the index of their first own entry, the oldest first.
func List(dir string) (firsts []int64, err error) {
	found, err := os.ReadDir(dir)
	for _, f := range found {
		if first, ok := First(f.Name()); ok {
			firsts = append(firsts, first)
		}
	}
	slices.Sort(firsts)
	return firsts, err
}

// Newest is the file of a data directory that is written to; false if there is none.
func Newest(dir string) (first int64, ok bool, err error) {
	firsts, err := List(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(firsts) == 0 {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	return firsts[len(firsts)-1], true, nil
}

// CleanUp removes what an interrupted Make left, and says what.
func CleanUp(dir string) (removed []string, err error) {
	found, err := os.ReadDir(dir)
	for _, f := range found {
		name, _, cut := strings.Cut(f.Name(), unready)
		if _, ok := First(name); ok && cut && f.Type().IsRegular() {
			err = errors.Join(err, os.Remove(filepath.Join(dir, f.Name())))
			removed = append(removed, f.Name())
		}
	}
	return removed, err
}

func dsn(path, params string) string {
	return (&url.URL{Scheme: "file", Path: path, RawQuery: params}).String()
}

// Make makes the file that follows the one named from, whose log has first entries. check looks at the file before it gets its name. Nothing is left of it
// after an error.
func Make(ctx context.Context, dir, from string, first int64, check func(path string) error) (err error) {
	path := filepath.Join(dir, Name(first))
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s is there already", path)
	}
	part := path + unready
	if _, err := CleanUp(dir); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_, left := CleanUp(dir)
			err = errors.Join(err, left)
		}
	}()
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return err
	}
	if err := fill(ctx, filepath.Join(dir, from), part, Base(first)); err != nil {
		return err
	}
	if err := check(part); err != nil {
		return err
	}
	if err := syncFile(part); err != nil {
		return err
	}
	if err := os.Rename(part, path); err != nil {
		return err
	}
	return syncFile(dir)
}

// syncFile makes a file, or the names in a directory, durable.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// fill copies the schema and the rows. The file has no name yet, so nothing has to be durable before the end. No page keeps a second copy of
// what is to be deleted one day (secure_delete).
func fill(ctx context.Context, from, to string, base int64) (err error) {
	db, err := sql.Open("sqlite", dsn(to, "_pragma=journal_mode(MEMORY)&_pragma=synchronous(OFF)&_pragma=secure_delete(1)&_dqs=0"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	c, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if _, err := c.ExecContext(ctx, "ATTACH DATABASE $1 AS old", dsn(from, "mode=ro")); err != nil {
		return err
	}
	tx, err := c.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := copyAll(ctx, tx, base); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	for _, statement := range []string{"DETACH DATABASE old", "PRAGMA journal_mode = WAL"} {
		if _, err := c.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// logTables are the tables of the log, each with the rows that the next file takes over. Of all other tables it takes every row.
var logTables = map[string]string{
	"audit_entries": "idx >= $1",
	"audit_blocks":  "n >= $1 / 256",
	// Those of which the tree at its edge is built: the others of a tile above that is not complete.
	"audit_tiles":       "n >= (($1 >> (8 * (level + 1))) & ~255)",
	"audit_checkpoints": "size = (SELECT max(size) FROM old.audit_checkpoints)",
	"audit_payloads":    "", // see copyPayloads
}

type object struct{ kind, name, sql string }

func copyAll(ctx context.Context, tx *sql.Tx, base int64) error {
	objects, err := schema(ctx, tx)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if _, err := tx.ExecContext(ctx, o.sql); err != nil {
			return fmt.Errorf("make %s %s: %w", o.kind, o.name, err)
		}
		if o.kind != "table" {
			continue
		}
		where, ofLog := logTables[o.name]
		var args []any
		switch {
		case !ofLog:
			where = "1"
		case where == "":
			continue
		case strings.Contains(where, "$1"):
			args = []any{base}
		}
		quoted := `"` + strings.ReplaceAll(o.name, `"`, `""`) + `"`
		if _, err := tx.ExecContext(ctx, "INSERT INTO main."+quoted+" SELECT * FROM old."+quoted+" WHERE "+where, args...); err != nil {
			return fmt.Errorf("copy %s: %w", o.name, err)
		}
	}
	return copyPayloads(ctx, tx)
}

// schema returns what the schema is made of: tables first, triggers last, so that no trigger sees the copying.
func schema(ctx context.Context, tx *sql.Tx) (objects []object, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT type, name, sql FROM old.sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'
		ORDER BY CASE type WHEN 'table' THEN 0 WHEN 'index' THEN 1 WHEN 'view' THEN 2 ELSE 3 END, rowid`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var o object
		if err := rows.Scan(&o.kind, &o.name, &o.sql); err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, rows.Err()
}

// copyPayloads copies what the entries that were copied keep apart.
func copyPayloads(ctx context.Context, tx *sql.Tx) error {
	rows, err := tx.QueryContext(ctx, "SELECT body FROM main.audit_entries")
	if err != nil {
		return err
	}
	defer rows.Close()
	var keys []string
	for rows.Next() {
		var leaf []byte
		if err := rows.Scan(&leaf); err != nil {
			return err
		}
		e, err := audit.Unmarshal(leaf)
		if err != nil {
			return err
		}
		for _, p := range []*audit.Payload{e.Arguments, e.Result} {
			if p != nil && p.Stored {
				keys = append(keys, p.Key)
			}
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		if _, err := tx.ExecContext(ctx, "INSERT INTO main.audit_payloads (key, bytes) SELECT key, bytes FROM old.audit_payloads WHERE key = $1", key); err != nil {
			return err
		}
	}
	return nil
}

// Fold puts everything of a file's write-ahead log into the file itself. It reports false while another connection still needs the log.
func Fold(ctx context.Context, path string) (done bool, err error) {
	if info, err := os.Stat(path + "-wal"); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return true, nil
	}
	db, err := sql.Open("sqlite", dsn(path, "_pragma=busy_timeout(100)"))
	if err != nil {
		return false, err
	}
	db.SetMaxOpenConns(1)
	var busy, frames, folded int64
	err = db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &folded)
	return err == nil && busy == 0, errors.Join(err, db.Close())
}

// Sum is the size of a file and its SHA-256. It ends early, with an error, when stop is closed.
func Sum(path string, stop <-chan struct{}) (size int64, sum string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	size, err = io.Copy(h, &stoppable{f, stop})
	return size, hex.EncodeToString(h.Sum(nil)), err
}

type stoppable struct {
	r    io.Reader
	stop <-chan struct{}
}

// ErrStopped is what Sum ends with when it is stopped.
var ErrStopped = errors.New("stopped")

func (s *stoppable) Read(b []byte) (int, error) {
	select {
	case <-s.stop:
		return 0, ErrStopped
	default:
		return s.r.Read(b)
	}
}

// Copy copies a file to a new one, durably, and compares what came to rest with the SHA-256.
func Copy(from, to, sum string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Sync(), out.Close()); err == nil {
		var got string
		if _, got, err = Sum(to, nil); err == nil && got != sum {
			err = fmt.Errorf("%s is not as it was sealed: its SHA-256 is %s, not %s", from, got, sum)
		}
	}
	if err != nil {
		return errors.Join(err, os.Remove(to))
	}
	return syncFile(filepath.Dir(to))
}

// Remove removes a file that was copied elsewhere, with what its connections left beside it.
func Remove(path string) error {
	for _, companion := range []string{"-wal", "-shm"} {
		if err := os.Remove(path + companion); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return errors.Join(os.Remove(path), syncFile(filepath.Dir(path)))
}
