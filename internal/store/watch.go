package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/tlog"
	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
)

const (
	// watchEvery bounds the time that a lost file goes unnoticed while nothing is written.
	watchEvery = 250 * time.Millisecond
	// lookEvery bounds the same time while much is written: a look costs four system calls.
	lookEvery = 100 * time.Millisecond
	// shareEvery is how many rounds of the watch pass between two shares of the log.
	shareEvery = 4

	// sharePayloads is how many bytes of payloads a share reads of each block, from anywhere in it. With results of 64 KiB a block has 8 MiB and more.
	sharePayloads = 1 << 20
	// readyFor is how long one successful write shows that the next will succeed, too.
	readyFor = 2 * time.Second
)

// startShare is how many blocks a start compares besides the newest ones. Tests of what else finds a change have none.
var startShare int64 = 16

// damageFile names an entry that was found damaged, with the hash that it had when it was written if that is known: the next start looks there first.
const damageFile = "audit.damage"

// heldFile is a file that may not be lost while the store is open, as it was when the store opened it.
type heldFile struct {
	path string
	info fs.FileInfo
	// whole: the file never gets shorter. The write-ahead log is cut after each fold.
	whole bool
}

// heldFiles are those that the connection has open. The writer's goroutine owns them.
type heldFiles struct {
	held   []heldFile // the database and the lock come first
	looked time.Time  // when they were all seen last
}

// health is whether the store takes writes.
type health struct {
	started time.Time
	written atomic.Int64  // when the last transaction was committed, since started
	down    atomic.Bool   // the last write failed; the log has one line for each time, not one for each call
	gone    chan struct{} // closed when lost is set
	// lost is set when acknowledged entries, or files, are gone: never write again. The writer's goroutine sets both; others read them once gone is closed.
	lost, why error
}

// holdFiles remembers the files that the connection has open.
func (w *writer) holdFiles() error {
	held := w.held[:0:0]
	files := []heldFile{{path: w.path, whole: true}, {path: filepath.Join(filepath.Dir(w.path), lockFile)}, {path: w.path + "-wal"}, {path: w.path + "-shm"}}
	if err := w.eachOlder(func(path string, _, _ int64) error {
		files = append(files, heldFile{path: path, whole: true})
		return nil
	}); err != nil {
		return err
	}
	for _, f := range files {
		info, err := os.Lstat(f.path)
		if err != nil {
			return w.lose(lostFile(filepath.Base(f.path), "is gone"))
		}
		f.info = info
		held = append(held, f)
	}
	if len(w.held) > 0 { // a connection opened anew: what it opened must be what the one before had
		for i, f := range held[:2] {
			if !os.SameFile(w.held[i].info, f.info) {
				return w.lose(lostFile(filepath.Base(f.path), "was replaced"))
			}
		}
	}
	w.held = held
	return nil
}

// look tells whether the files that are open are still those that the directory names. What is written to a file that is not in the directory any more
// is gone with the process, so a store that lost one never writes again. A check is skipped where the one before is younger than age.
func (w *writer) look(age time.Duration) error {
	if w.lost != nil {
		return w.lost
	}
	if time.Since(w.looked) < age {
		return nil
	}
	for i, f := range w.held {
		now, err := os.Lstat(f.path)
		name := filepath.Base(f.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return w.lose(lostFile(name, "is gone"))
		case err != nil: // what can't be looked at can't be written either: the engine's error says more
		case !os.SameFile(f.info, now):
			return w.lose(lostFile(name, "was replaced"))
		case f.whole && now.Size() < f.info.Size():
			return w.lose(lostFile(name, "was cut or written over"))
		default:
			w.held[i].info = now
		}
	}
	w.looked = time.Now()
	return nil
}

func lostFile(name, how string) *fault.Error {
	return fault.New(fault.AuditUnavailable, "The file %s of the data directory %s while the gateway had it open.", name, how).
		Try("Find out who did it. Put the files back as they were, or restore a backup, and start the gateway again.")
}

// lose ends all writing for good. Agents are told that it did, and not why.
func (w *writer) lose(why error) error {
	if w.lost == nil {
		w.why = why
		w.lost = fault.Wrap(why, fault.AuditUnavailable, "%s (the store was changed from outside)", fault.AuditUnavailable.Sentence())
		w.log.Error("the store is lost; nothing is written any more", "error", why)
		close(w.gone)
	}
	return w.lost
}

// Lost is closed when the store can never write again: a file of it was removed or replaced, or its log was found changed. LostBecause says why.
func (db *DB) Lost() <-chan struct{} { return db.w.gone }

// LostBecause is nil until Lost is closed.
func (db *DB) LostBecause() error {
	select {
	case <-db.w.gone:
		return db.w.why
	default:
		return nil
	}
}

// watch looks at the files and compares a share of the log again and again, until Close.
func (db *DB) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	ctx := context.Background()
	next := rand.Int64N(1 << 40) // a lap begins anywhere, so that starts one after the other don't look at the same part
	newest := int64(-1)
	for round := 0; ; round++ {
		select {
		case <-db.closing:
			return
		case <-db.w.gone:
			return
		case <-tick.C:
		}
		var s audit.Snapshot
		if db.w.do(ctx, &job{run: func(t *tx) error { s = t.w.tree.Snapshot(); return t.w.look(0) }}) != nil || round%shareEvery != 0 || s.Size() == 0 {
			continue
		}
		blocks := []int64{}
		oldest := db.Oldest()
		if full := s.Size()/blockSize - oldest/blockSize; full > 0 {
			blocks = append(blocks, oldest/blockSize+next%full)
		}
		if s.Size() != newest { // with every write the pages that readers hold are read anew
			blocks = append(blocks, (s.Size()-1)/blockSize)
		}
		newest = s.Size()
		next++
		for _, n := range blocks {
			db.checkHere(ctx, s, n)
		}
	}
}

// checkHere compares a row of 256 entries with the tree, and ends the store if it is damaged. Other errors are the store's, and its next use tells them.
// A row that was archived since it was chosen is not in the directory any more, so its absence is no damage.
func (db *DB) checkHere(ctx context.Context, s audit.Snapshot, n int64) {
	var d *damage
	if err := db.checkBlock(ctx, s, n, sharePayloads); !errors.As(err, &d) || n*blockSize < db.Oldest() {
		return
	}
	if err := audit.ReplaceFile(filepath.Join(db.dir, damageFile), fmt.Appendf(nil, "%d %s\n", d.entry, d.was)); err != nil {
		db.log.Warn("which entry is damaged could not be written down for the next start", "entry", d.entry, "error", err)
	}
	_ = db.w.do(ctx, &job{run: func(t *tx) error { return t.w.lose(isDamaged(d)) }}) // the answer is the loss itself
}

func isDamaged(d *damage) *fault.Error {
	return fault.New(fault.AuditUnavailable, "The audit log is damaged at entry %d: %s.", d.entry, d.what).
		Try("Run \"sallyport audit verify\" with the data directory: it names all that is in doubt. Then restore a backup.")
}

// damage is an entry that is not the one that was written.
type damage struct {
	entry int64
	what  string
	was   string // its hash when it was written, or ""
}

func (d *damage) Error() string { return fmt.Sprintf("entry %d: %s", d.entry, d.what) }

// checkShare compares the newest entries, some blocks anywhere, and the one that was found damaged before, with the tree.
func (db *DB) checkShare(ctx context.Context, s audit.Snapshot) error {
	if s.Size() == 0 {
		return nil
	}
	oldest := db.Oldest()
	newest, full := (s.Size()-1)/blockSize, s.Size()/blockSize-oldest/blockSize
	marked, found, was := db.marked()
	if found >= s.Size() || found < oldest { // it was archived, or the log that was damaged was longer, so this is an older one: the mark says nothing of its entries
		found, was = newest*blockSize, ""
	}
	blocks := []int64{found / blockSize, newest}
	for n := range min(startShare, full) {
		if full > startShare {
			n = rand.Int64N(full)
		}
		blocks = append(blocks, oldest/blockSize+n)
	}
	for _, n := range blocks {
		err := db.checkBlock(ctx, s, n, math.MaxInt64)
		var d *damage
		if errors.As(err, &d) {
			return isDamaged(d)
		}
		if err != nil {
			return err
		}
	}
	if !marked {
		return nil
	}
	if leaves, err := db.leaves(ctx, found, found+1); was != "" && (err != nil || tlog.RecordHash(leaves[0]).String() != was) {
		return isDamaged(&damage{entry: found, what: "it was changed while the gateway ran, and still is"})
	}
	return os.Remove(filepath.Join(db.dir, damageFile))
}

// marked returns the entry that was found damaged, and its hash if that is known.
func (db *DB) marked() (there bool, entry int64, was string) {
	text, err := audit.ReadFile(filepath.Join(db.dir, damageFile))
	number, was, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if entry, no := strconv.ParseInt(number, 10, 64); no == nil && entry >= 0 {
		return err == nil, entry, was
	}
	return err == nil, 0, ""
}

// checkBlock compares one row of 256 entries, as the database gives it now, with the tree in memory: each entry's bytes, the columns that
// follow from them, the payloads that are kept apart, and the row by which queries find them. It reads payloads until it has read most bytes of them, from anywhere in the block on.
func (r *Reader) checkBlock(ctx context.Context, s audit.Snapshot, n, most int64) error {
	from, to := n*blockSize, min((n+1)*blockSize, s.Size())
	hashes, err := r.blockHashes(ctx, s, from, to)
	if err != nil {
		return damageOf(err, from, "the tree over it can't be read")
	}
	next := from
	missing := func(i int64) error { return &damage{i, "it is missing", hashes[i-from].String()} }
	var payloads []*audit.Payload
	var keys, marked []uint32
	err = r.logRows(ctx, from, func(scan func(...any) error) error {
		var idx, at int64
		var kind, callID string
		var body []byte
		if err := scan(&idx, &at, &kind, &callID, &body); err != nil {
			return err
		}
		if idx != next {
			return missing(next)
		}
		next++
		if tlog.RecordHash(body) != hashes[idx-from] {
			return &damage{idx, "it was changed", hashes[idx-from].String()}
		}
		e, err := audit.Unmarshal(body)
		if err != nil {
			return &damage{entry: idx, what: "it can't be read"}
		}
		if e.At.UnixMicro() != at || string(e.Kind) != kind || e.CallID != callID {
			return &damage{entry: idx, what: "its columns say something else than it does"}
		}
		keys, marked = appendKeys(keys, &e), appendMarked(marked, &e)
		for _, p := range []*audit.Payload{e.Arguments, e.Result} {
			if p != nil && p.Stored {
				payloads = append(payloads, p)
			}
		}
		return nil
	}, selectBlock, from, to)
	if err == nil && next < to {
		err = missing(next)
	}
	if err == nil && to-from == blockSize {
		var have []byte
		if _, err = r.logRow(ctx, from, selectBlockKeys, []any{n}, &have); err == nil {
			if _, same := sameBlock(have, keys, marked); !same {
				err = &damage{entry: from, what: "the row of audit_blocks by which queries find it and those after it was changed"}
			}
		}
	}
	first := rand.IntN(max(1, len(payloads)))
	for i := 0; err == nil && i < len(payloads) && most > 0; i++ {
		p := payloads[(first+i)%len(payloads)]
		most -= p.Size
		if _, err = r.Payload(ctx, p.Key); err != nil && !engineFailed(err) {
			err = &damage{entry: from, what: "a payload of the 256 entries from it on is missing or changed"}
		}
	}
	return damageOf(err, next, "the database is damaged there")
}

// blockHashes returns the leaf hashes of a block as the tree's root confirms them.
func (r *Reader) blockHashes(ctx context.Context, s audit.Snapshot, from, to int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, to-from)
	if to-from < blockSize {
		tail, err := s.Tile(0, from/blockSize, int(to-from), nil) // from memory
		for i := range hashes {
			if err == nil {
				hashes[i] = tlog.Hash(tail[i*tlog.HashSize:])
			}
		}
		return hashes, err
	}
	indexes := make([]int64, 0, to-from)
	for i := from; i < to; i++ {
		indexes = append(indexes, tlog.StoredHashIndex(0, i))
	}
	return s.Hashes(r.tile(ctx)).ReadHashes(indexes)
}

// damageOf tells damage from errors that may pass: a lock, a disk that fails to answer.
func damageOf(err error, entry int64, what string) error {
	var d *damage
	var e *sqlite.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &d):
		return d
	case !errors.As(err, &e) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded):
		return &damage{entry: entry, what: what}
	case errors.As(err, &e) && (e.Code()&0xff == lib.SQLITE_CORRUPT || e.Code()&0xff == lib.SQLITE_NOTADB):
		return &damage{entry: entry, what: what}
	}
	return err
}

// Writes is how many transactions were committed since the start, how long their commits took together, and how many wait now.
func (db *DB) Writes() (commits int64, took time.Duration, waiting int) {
	db.w.queue.mu.Lock()
	defer db.w.queue.mu.Unlock()
	return db.w.commits.Load(), time.Duration(db.w.took.Load()), db.w.queue.waiting
}

// Ready tells whether writes are taken: one succeeded within the last two seconds, or one that is made now does. It does not say so while entries
// can't be signed.
func (db *DB) Ready(ctx context.Context) error {
	fresh := func() bool {
		return !db.w.down.Load() && time.Since(db.w.started) < time.Duration(db.w.written.Load())+readyFor
	}
	if !fresh() {
		select {
		case db.probing <- struct{}{}: // one at a time; those that wait take its result
		case <-ctx.Done():
			return gaveUp("it did not answer in time", ctx.Err())
		}
		defer func() { <-db.probing }()
		if !fresh() {
			if err := db.w.do(ctx, &job{run: func(t *tx) error { t.wrote++; return t.w.c.exec(upsertPulse, t.now.UnixMicro()) }}); err != nil {
				return err
			}
		}
	}
	if err := db.LostBecause(); err != nil {
		return err
	}
	if db.unsigned.Load() {
		return fault.New(fault.AuditUnavailable, "The audit log is not being signed.").Try("Look at the gateway's own log: it says why.")
	}
	return nil
}
