// Package store keeps everything that must outlive the process in one SQLite database in the data directory: sessions, tokens,
// pinned definitions, the kill switch, and the audit log with the Merkle tree over it. It implements gateway.Store.
//
// Promises:
//   - When a method returns without error, its change is on the disk (WAL, synchronous=FULL), the state and its entry in one transaction.
//     When it returns an error, it has left nothing, except after an AuditUnavailable once the commit had begun:
//     then it is not known until the store is back, and nothing was dispatched or delivered on it.
//   - Writers that come at the same time share one fsync; none waits for others to come. A write that can't be done is refused
//     within 2 s, and when the fault has gone, writes are taken again with the next call.
//   - The log is append-only: index without gaps, time never backwards, each call one intent and then one outcome. A database
//     that has lost or changed signed entries is not opened.
//   - A row that decides is the one that the log says, or it is refused: at the start, and when it is read (proof).
//   - One process writes a data directory at a time; any number read it.
//   - A store whose files are removed or replaced while it is open, or whose log is found changed, never writes again (DB.Lost).
//
// One goroutine (writer) owns the writing connection. Readers have a pool of their own and never wait for it.
package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/segment"
)

const lockFile = "lock"

// Options of Open.
type Options struct {
	Clock  func() time.Time // nil: time.Now
	Signer *audit.Signer    // nil: the key in the data directory, which is made if there is none
	Log    *slog.Logger     // nil: nothing is logged
	// Segment is the number of entries after which the log goes on in a new file; 0: it never does.
	Segment int64

	patience time.Duration
}

// DB is an open data directory. Safe for concurrent use.
type DB struct {
	*Reader
	w      *writer
	signer *audit.Signer
	log    *slog.Logger
	lock   *os.File

	signing
	segmenting
	probing chan struct{} // holds one: who writes to see whether the store takes writes

	closeOnce sync.Once
	closing   chan struct{}
	loops     sync.WaitGroup // keep and watch
	closeErr  error
}

// signing is what was signed.
type signing struct {
	signMu      sync.Mutex  // guards the four below, and that checkpoints are signed one after the other
	signed      []byte      // the newest checkpoint; nil: none was signed
	signedSize  int64       // -1: none was signed
	signedState string      // the digest in it
	stored      bool        // it is in the database
	unsigned    atomic.Bool // the last attempt to sign failed
}

// segmenting is when the log goes on in a new file.
type segmenting struct {
	perSegment int64         // entries; 0: never
	firstOwn   atomic.Int64  // entry of the file that is written to
	unsealed   chan struct{} // holds one: there are files to seal
	sealMu     sync.Mutex    // held while they are
}

var _ gateway.Store = (*DB)(nil)

// Open opens the data directory, making it (0700) and its files (0600) if need be. It brings the schema up to date,
// refuses a log that does not continue the signed one and a state that does not follow from it, and writes the outcome "unknown" for every call that the
// process before left without one.
func Open(dir string, o Options) (_ *DB, err error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	lock, path, err := claim(dir, o.Log)
	if err != nil {
		return nil, err
	}
	db := &DB{
		Reader: newReader(dir, readParams), w: newWriter(path, o), signer: o.Signer, log: o.Log, lock: lock,
		segmenting: segmenting{perSegment: o.Segment, unsealed: make(chan struct{}, 1)},
		signing:    signing{signedSize: -1}, closing: make(chan struct{}), probing: make(chan struct{}, 1),
	}
	defer func() {
		if err != nil {
			db.w.disconnect()
			err = errors.Join(err, db.Reader.Close(), db.lock.Close())
		}
	}()
	if db.signer == nil {
		if db.signer, err = audit.LoadOrCreateKey(dir); err != nil {
			return nil, fault.Wrap(err, fault.ConfigurationInvalid, "The audit log's key can't be used.")
		}
	}
	if err := db.followFiles(); err != nil {
		return nil, err
	}
	if err := db.w.start(); err != nil {
		return nil, err
	}
	ctx := context.Background()
	if err := db.reopen(ctx); err != nil {
		return nil, err
	}
	if err := db.checkSegments(); err != nil {
		return nil, err
	}
	if err := db.checkAnchor(ctx); err != nil {
		return nil, err
	}
	if err := db.checkShare(ctx, db.w.tree.Snapshot()); err != nil {
		return nil, err
	}
	if err := db.proveState(ctx); err != nil {
		return nil, err
	}
	unknown := len(db.w.open)
	go db.w.loop()
	db.loops.Go(db.keep)
	db.loops.Go(db.watch)
	db.loops.Go(db.sealLoop)
	if unknown > 0 {
		o.Log.Warn("calls were under way when the gateway stopped; their outcome is recorded as unknown", "calls", unknown)
		err = db.w.do(ctx, &job{run: db.w.recover})
	}
	if err == nil {
		err = db.w.do(ctx, &job{run: (*tx).sweep})
	}
	if err == nil {
		_, err = db.Checkpoint(ctx)
	}
	if err == nil && db.full() {
		err = db.roll(0)
	}
	if err != nil {
		close(db.closing)
		db.loops.Wait()
		db.w.queue.close()
		return nil, err
	}
	return db, nil
}

// Close takes no more writes, finishes those that wait, signs, and folds the write-ahead log into the database. Closing twice
// is harmless.
func (db *DB) Close() error {
	db.closeOnce.Do(func() {
		close(db.closing)
		db.loops.Wait()
		_, err := db.Checkpoint(context.Background())
		if err == nil {
			err = db.closeLog(context.Background())
		}
		db.w.queue.close()
		db.closeErr = errors.Join(err, db.Reader.Close(), db.lock.Close())
	})
	return db.closeErr
}

// closeLog notes that the log ends where it was signed last: an entry that is there at the next start, and that no signature covers, is not the store's.
// Nothing is written afterwards.
func (db *DB) closeLog(ctx context.Context) error {
	return db.w.do(ctx, &job{run: func(t *tx) error {
		p, err := t.w.c.stateProof()
		if err != nil || p == nil || t.w.tree.Size() != db.signedSize || p.size != db.signedSize {
			return err // what came since is signed by the next start, as after a crash
		}
		p.closed = true
		if err := t.writeProof(p); err != nil {
			return err
		}
		t.w.ended = true
		return nil
	}})
}

// Signer is the log's signer.
func (db *DB) Signer() *audit.Signer { return db.signer }

// InUse is an error if a gateway runs on the directory. A directory that is not there, or is none, is not in use.
func InUse(dir string) error {
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer lock.Close() // which also ends the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return inUse(dir, lock)
	}
	return nil
}

func inUse(dir string, lock *os.File) error {
	holder := make([]byte, 32)
	n, _ := lock.Read(holder) // only a hint
	return fault.New(fault.ConfigurationInvalid, "%s is in use by another gateway%s.", dir, strings.TrimRight(string(holder[:n]), "\n")).
		Try("It may be this one, started before: sallyport status. Stop it, or start this one with another --data directory.")
}

// claim makes the directory, checks that it can be used, and locks it for this process.
// It returns the path of the database that is written to.
func claim(dir string, log *slog.Logger) (lock *os.File, path string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, "", unusable(err, "%s can't be the data directory", dir)
	}
	lock, err = os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600) // it is written to, so it may be no link to another file
	if err != nil {
		return nil, "", unusable(err, "%s can't be written", dir)
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, "", inUse(dir, lock)
	} else if err != nil {
		return nil, "", unusable(err, "%s can't be locked", dir)
	}
	if st, err := lock.Stat(); err != nil || !st.Mode().IsRegular() || st.Sys().(*syscall.Stat_t).Nlink != 1 {
		return nil, "", unusable(err, "%s is in the way: it is not the gateway's own file", filepath.Join(dir, lockFile))
	}
	if err := errors.Join(lock.Truncate(0), func() error { _, err := fmt.Fprintf(lock, " (process %d)\n", os.Getpid()); return err }()); err != nil {
		return nil, "", unusable(err, "%s can't be written", dir)
	}
	// SQLite would make the file readable for others; its companions get the mode of the file. Nothing but SQLite may open it
	// once SQLite has: closing another descriptor of it would drop SQLite's locks.
	removed, err := segment.CleanUp(dir)
	if err != nil {
		return nil, "", unusable(err, "%s can't be written", dir)
	}
	if len(removed) > 0 {
		log.Warn("the log was about to go on in a new file when the gateway stopped; what there was of that file is removed", "files", removed)
	}
	first, _, err := segment.Newest(dir)
	if err != nil {
		return nil, "", unusable(err, "%s can't be read", dir)
	}
	path = filepath.Join(dir, segment.Name(first))
	return lock, path, private(path)
}

// private makes the database file if there is none, for nobody else to read.
func private(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			return unusable(err, "%s can't be made", path)
		}
	case err != nil:
		return unusable(err, "%s can't be used", path)
	case !info.Mode().IsRegular():
		return unusable(nil, "%s is in the way: it is not a database file", path)
	case info.Mode().Perm()&0o077 != 0:
		if err := os.Chmod(path, 0o600); err != nil {
			return unusable(err, "%s can be read by others", path)
		}
	}
	return besides(path)
}

// besides refuses what is in the place of the database's companions and no file: the engine would open a pipe, and wait for a writer for ever.
func besides(path string) error {
	for _, suffix := range []string{"-wal", "-shm", "-journal"} {
		if info, err := os.Lstat(path + suffix); err == nil && !info.Mode().IsRegular() {
			return unusable(nil, "%s%s is in the way: it is not the database's own file", path, suffix)
		}
	}
	return nil
}

func unusable(err error, format string, args ...any) *fault.Error {
	why := fmt.Sprintf(format, args...)
	if err != nil { // of the file system, about a path that the operator named: safe to show
		why += ": " + err.Error()
	}
	return fault.Wrap(err, fault.ConfigurationInvalid, "%s.", why).
		Try("Name a directory that this user can write with --data, or put the permissions right.")
}

// followFiles makes readers follow the writer from one file to the next.
func (db *DB) followFiles() error {
	key, err := audit.ParsePublicKey(db.signer.PublicKey())
	if err != nil {
		return fault.Wrap(err, fault.ConfigurationInvalid, "The signing key is not usable.")
	}
	first, _ := segment.First(filepath.Base(db.w.path))
	db.w.writeTo(db.w.path, first)
	db.w.followed = db.w.path
	db.firstOwn.Store(first)
	db.w.checkpoint = func(note []byte) (audit.Checkpoint, error) { return audit.OpenCheckpoint(note, key) }
	db.w.changed = func() {
		if err := db.reopen(context.Background()); err != nil {
			db.log.Error("the new file of the log can't be read", "error", err)
		}
		db.firstOwn.Store(db.w.first)
		db.toSeal()
	}
	return nil
}

// start connects for the first time: with the schema brought up to date.
func (w *writer) start() error {
	c, err := dial(dsn(w.path, writeParams))
	if err != nil {
		return unavailable(err, fault.StoreUnavailable)
	}
	folder, err := fs.Sub(migrations, "migrations/sqlite")
	if err == nil {
		err = migrate(c, folder)
	}
	if err = errors.Join(err, c.close()); err != nil {
		return err
	}
	return unavailable(w.connect(), fault.StoreUnavailable)
}
