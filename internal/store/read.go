package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

const (
	maxPage = 1000 // rows of one answer
	// maxScan bounds the blocks that one query reads. It then answers with the entries that it found, and where to go on.
	maxScan = 256
)

// Reader reads a data directory. It never writes, never delays a writer, and sees what is committed. Safe for concurrent use.
//
// Its errors carry fault.StoreUnavailable, fault.NotFound or fault.RequestMalformed.
type Reader struct {
	dir    string
	keys   string // where StateKeyFile is
	params string // of its connections
	db     *sql.DB
	stmts  *statements

	proof *proof // checks the rows that decide; nil: they are read as they are

	// No gateway of this version has opened the database yet: its pins don't say who confirmed them or how their server is started, its rows not which
	// entry changed them.
	unconfirmed, unproved, unlaunched bool
}

// OpenReadOnly opens a data directory for reading, whether a gateway runs on it or not.
func OpenReadOnly(dir string) (*Reader, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, databaseFile)
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil, fault.Wrap(err, fault.StoreUnavailable, "%s is not a data directory: there is no database %s in it.", dir, databaseFile).
			Try("Name the directory with --data.")
	}
	r := newReader(dir, readParams)
	version, err := r.version()
	if err != nil {
		r.db.Close()
		// Without a gateway there may be no files of the write-ahead log, and no permission to make them: then no process writes.
		if _, missing := os.Stat(path + "-wal"); !errors.Is(missing, fs.ErrNotExist) {
			return nil, err
		}
		r = newReader(dir, readParams+"&immutable=1")
		if version, err = r.version(); err != nil {
			r.db.Close()
			return nil, err
		}
	}
	files, err := fs.Glob(migrations, "migrations/sqlite/*.sql")
	if err == nil {
		err = tooNew(version, int64(len(files)))
	}
	if err != nil {
		r.db.Close()
		return nil, err
	}
	r.unconfirmed, r.unproved, r.unlaunched = version < 8, version < 11, version < 13
	return r, nil
}

func newReader(dir, params string) *Reader {
	db, err := sql.Open("sqlite", dsn(filepath.Join(dir, databaseFile), params))
	if err != nil {
		panic("store: the driver is not registered: " + err.Error()) // sql.Open does nothing else that could fail
	}
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	return &Reader{dir: dir, keys: dir, params: params, db: db, stmts: &statements{byText: map[string]*sql.Stmt{}}}
}

// statements are the queries of a Reader that are prepared: to prepare one anew costs more than a read of a few rows. They end with the connections.
type statements struct {
	mu     sync.Mutex // guards byText
	byText map[string]*sql.Stmt
}

// prepared returns a query that is prepared once. Queries are constants, put together with other constants, so there are few.
func (r *Reader) prepared(ctx context.Context, query string) (*sql.Stmt, error) {
	r.stmts.mu.Lock()
	st := r.stmts.byText[query]
	r.stmts.mu.Unlock()
	if st != nil {
		return st, nil
	}
	st, err := r.db.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	r.stmts.mu.Lock()
	defer r.stmts.mu.Unlock()
	if other := r.stmts.byText[query]; other != nil {
		st.Close() // nothing has used it
		return other, nil
	}
	r.stmts.byText[query] = st
	return st, nil
}

func (r *Reader) version() (version int64, err error) {
	_, err = r.row(context.Background(), selectVersion, nil, &version)
	return version, err
}

// Close closes the connections. Closing twice is harmless.
func (r *Reader) Close() error { return r.db.Close() }

// row reads one row; false if there is none.
func (r *Reader) row(ctx context.Context, query string, args []any, into ...any) (bool, error) {
	st, err := r.prepared(ctx, query)
	if err == nil {
		err = st.QueryRowContext(ctx, args...).Scan(into...)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, unavailable(err, fault.StoreUnavailable)
}

func (r *Reader) rows(ctx context.Context, each func(scan func(...any) error) error, query string, args ...any) error {
	st, err := r.prepared(ctx, query)
	var rows *sql.Rows
	if err == nil {
		rows, err = st.QueryContext(ctx, args...)
	}
	if err != nil {
		return unavailable(err, fault.StoreUnavailable)
	}
	defer rows.Close() // after the loop it has nothing left to report
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return unavailable(err, fault.StoreUnavailable)
		}
	}
	return unavailable(rows.Err(), fault.StoreUnavailable)
}

// Size is the number of entries.
func (r *Reader) Size(ctx context.Context) (int64, error) {
	size, _, err := r.extent(ctx)
	return size, err
}

func (r *Reader) extent(ctx context.Context) (entries, payloads int64, err error) {
	_, err = r.row(ctx, selectExtent, nil, &entries, &payloads)
	return entries, payloads, err
}

// leaves reads the bytes of the entries from..to-1, which must be there.
func (r *Reader) leaves(ctx context.Context, from, to int64) ([][]byte, error) {
	var leaves [][]byte
	err := r.rows(ctx, func(scan func(...any) error) error {
		var idx int64
		var body []byte
		if err := scan(&idx, &body); err != nil {
			return err
		}
		if want := from + int64(len(leaves)); idx != want {
			return damaged(fmt.Errorf("entry %d is missing", want))
		}
		leaves = append(leaves, body)
		return nil
	}, selectLeaves, from, to)
	if err == nil && int64(len(leaves)) != to-from {
		err = damaged(fmt.Errorf("entry %d is missing", from+int64(len(leaves))))
	}
	return leaves, err
}

// Entries returns the entries that match the filter, the oldest first, at most Limit of them (at most 1000 in any case). next is the
// "after" of the next page: -1 when there is nothing more. A page may be short, or empty, and still have a next one: a
// query looks at a bounded part of the log at a time. Later calls see what was appended since, in order and without gaps.
func (r *Reader) Entries(ctx context.Context, f audit.Filter) (page []audit.Entry, next int64, err error) {
	page = []audit.Entry{}
	limit := f.Limit
	if limit <= 0 || limit > maxPage {
		limit = maxPage
	}
	size, err := r.Size(ctx)
	if err != nil {
		return nil, -1, err
	}
	from := max(f.Min, 0)
	if !f.From.IsZero() {
		first, err := r.since(ctx, f.From, size)
		if err != nil {
			return nil, -1, err
		}
		from = max(from, first)
	}
	if !f.To.IsZero() {
		if size, err = r.since(ctx, f.To, size); err != nil {
			return nil, -1, err
		}
	}
	keys := wanted(f)
	for scanned := 0; from < size; scanned++ {
		if from, err = r.candidate(ctx, keys, from, size); err != nil || from >= size {
			break
		}
		if scanned == maxScan {
			return page, from - 1, nil
		}
		to := min(from&^(blockSize-1)+blockSize, size)
		leaves, err := r.leaves(ctx, from, to)
		if err != nil {
			return nil, -1, err
		}
		for _, leaf := range leaves {
			e, err := audit.Unmarshal(leaf)
			if err != nil {
				return nil, -1, damaged(err)
			}
			from++
			if !f.Match(e) {
				continue
			}
			if page = append(page, e); len(page) == limit {
				if from >= size {
					return page, -1, nil
				}
				return page, from - 1, nil
			}
		}
	}
	if err != nil {
		return nil, -1, err
	}
	return page, -1, nil
}

// since finds the first entry that is not older than t. Times in the log never run backwards.
func (r *Reader) since(ctx context.Context, t time.Time, size int64) (int64, error) {
	var failed error
	i := sort.Search(int(size), func(i int) bool {
		var at int64
		if failed == nil {
			_, failed = r.row(ctx, selectAt, []any{int64(i)}, &at)
		}
		return !time.UnixMicro(at).Before(t)
	})
	return int64(i), failed
}

// wantedKeys are the keys of the blocks in which an entry that the filter selects can be.
type wantedKeys struct {
	always []uint32 // of the fields that every block has keys of
	marked []uint32 // of those that only marked blocks have keys of
}

func wanted(f audit.Filter) wantedKeys {
	e := audit.Entry{Kind: audit.Kind(f.Kind), Agent: f.Agent, Session: f.Session, CallID: f.CallID, Action: f.Action, Operation: f.Operation, Decision: f.Decision,
		Requester: f.Requester, Type: f.Type, Risk: f.Risk, Severity: audit.Severity(f.Severity), Event: audit.Event(f.Event), Code: f.Code}
	if f.Approver != "" {
		e.Approvers = []string{f.Approver}
	}
	return wantedKeys{appendKeys(nil, &e), appendMarked(nil, &e)}
}

// in reports whether the block can have such an entry.
func (w *wantedKeys) in(block []byte) bool {
	missing := func(key uint32) bool { return !blockHas(block, key) }
	return !slices.ContainsFunc(w.always, missing) && (!blockHas(block, markedKey) || !slices.ContainsFunc(w.marked, missing))
}

var errFound = errors.New("found")

// candidate returns the first index, from from on, at which an entry with all the keys can be.
func (r *Reader) candidate(ctx context.Context, keys wantedKeys, from, size int64) (int64, error) {
	if len(keys.always)+len(keys.marked) == 0 {
		return from, nil
	}
	const some = 64 // blocks at a time; the rows are some kilobytes
	for from < size {
		n := from / blockSize
		first := n
		err := r.rows(ctx, func(scan func(...any) error) error {
			var have int64
			var block []byte
			if err := scan(&have, &block); err != nil {
				return err
			}
			if have != n {
				return damaged(fmt.Errorf("block %d is missing", n))
			}
			if !keys.in(block) {
				n++
				from = n * blockSize
				return nil
			}
			return errFound
		}, selectBlocks, n, some)
		switch {
		case errors.Is(err, errFound):
			return from, nil
		case err != nil:
			return 0, err
		case n*blockSize+blockSize > size: // the last block is not complete and has no row
			return from, nil
		case n == first:
			return 0, damaged(fmt.Errorf("block %d is missing", n))
		}
	}
	return from, nil
}

// Entry returns one entry, and the exact bytes that the log's tree is over.
func (r *Reader) Entry(ctx context.Context, index int64) (e audit.Entry, leaf []byte, err error) {
	var idx int64
	ok, err := r.row(ctx, selectLeaves, []any{index, index + 1}, &idx, &leaf)
	if err != nil {
		return e, nil, err
	}
	if !ok || index < 0 {
		return e, nil, fault.New(fault.NotFound, "There is no entry %d.", index).At("index")
	}
	if e, err = audit.Unmarshal(leaf); err != nil {
		return e, nil, damaged(err)
	}
	return e, leaf, nil
}

// Payload returns what is stored under the key of an audit.Payload, and only if it still hashes to it.
func (r *Reader) Payload(ctx context.Context, key string) (data []byte, err error) {
	ok, err := r.row(ctx, selectPayload, []any{key}, &data)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fault.New(fault.NotFound, "There is no payload %.80q.", key)
	}
	if call.HashBytes(data) != key {
		return nil, damaged(fmt.Errorf("payload %s does not hash to its key", key))
	}
	return data, nil
}

// tile reads complete tiles.
func (r *Reader) tile(ctx context.Context) audit.ReadTile {
	return func(level int, n int64) (data []byte, err error) {
		ok, err := r.row(ctx, selectTile, []any{int64(level), n}, &data)
		if err == nil && !ok {
			err = fs.ErrNotExist
		}
		return data, err
	}
}

// snapshot is the log as it is now.
func (r *Reader) snapshot(ctx context.Context) (audit.Snapshot, error) {
	size, err := r.Size(ctx)
	if err != nil {
		return audit.Snapshot{}, err
	}
	tree, err := audit.Restore(size, r.tile(ctx), func(from, to int64) ([][]byte, error) { return r.leaves(ctx, from, to) })
	if err != nil {
		return audit.Snapshot{}, damaged(err)
	}
	return tree.Snapshot(), nil
}

// Tile returns the tile of that width at a level, as of now: C2SP tlog-tiles' tile/<level>/<n>[.p/<width>].
func (r *Reader) Tile(ctx context.Context, level int, n int64, width int) ([]byte, error) {
	if width == blockSize { // complete tiles are stored
		if data, err := r.tile(ctx)(level, n); err == nil {
			return data, nil
		}
	}
	s, err := r.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	data, err := s.Tile(level, n, width, r.tile(ctx))
	if err != nil {
		return nil, fault.Wrap(err, fault.NotFound, "There is no such tile in a log of %d entries.", s.Size())
	}
	return data, nil
}

// EntryBundle returns the first width entries of the n-th 256: tlog-tiles' tile/entries/<n>[.p/<width>].
func (r *Reader) EntryBundle(ctx context.Context, n int64, width int) ([]byte, error) {
	size, err := r.Size(ctx)
	if err != nil {
		return nil, err
	}
	if n < 0 || n > size/blockSize || width < 1 || width > blockSize || n*blockSize+int64(width) > size {
		return nil, fault.New(fault.NotFound, "There is no such bundle in a log of %d entries.", size)
	}
	leaves, err := r.leaves(ctx, n*blockSize, n*blockSize+int64(width))
	if err != nil {
		return nil, err
	}
	var bundle []byte
	for _, leaf := range leaves {
		bundle = audit.AppendBundle(bundle, leaf)
	}
	return bundle, nil
}

// Inclusion proves an entry in the log of size entries; size 0 is the log as of the latest checkpoint.
func (r *Reader) Inclusion(ctx context.Context, index, size int64) (audit.Inclusion, error) {
	hashes, size, err := r.hashes(ctx, size)
	if err != nil {
		return audit.Inclusion{}, err
	}
	return audit.InclusionProof(hashes, size, index)
}

// Consistency proves that the log of from entries is the beginning of the log of size entries; size 0 as for Inclusion.
func (r *Reader) Consistency(ctx context.Context, from, size int64) (audit.Consistency, error) {
	hashes, size, err := r.hashes(ctx, size)
	if err != nil {
		return audit.Consistency{}, err
	}
	return audit.ConsistencyProof(hashes, from, size)
}

func (r *Reader) hashes(ctx context.Context, size int64) (tlog.HashReader, int64, error) {
	if size == 0 {
		if _, err := r.row(ctx, selectNote, nil, &size, new([]byte)); err != nil {
			return nil, 0, err
		}
	}
	s, err := r.snapshot(ctx)
	if err != nil {
		return nil, 0, err
	}
	if size < 0 || size > s.Size() {
		return nil, 0, fault.New(fault.RequestMalformed, "size must be from 1 to %d.", s.Size()).At("size")
	}
	return s.Hashes(r.tile(ctx)), size, nil
}

// LatestCheckpoint returns the newest signed checkpoint of the database; fault.NotFound if nothing was signed yet.
func (r *Reader) LatestCheckpoint(ctx context.Context) ([]byte, error) {
	var size int64
	var note []byte
	ok, err := r.row(ctx, selectNote, nil, &size, &note)
	if err == nil && !ok {
		err = fault.New(fault.NotFound, "No checkpoint has been signed yet.")
	}
	return note, err
}

// Source returns the log as it is now for audit.Verify and audit.WriteExport. What is appended later is not part of it.
// Its checkpoint is the file beside the database, which a rollback of the database leaves as it is.
func (r *Reader) Source(ctx context.Context) (*Source, error) {
	// The file first: what it covers was in the database before it.
	note, err := audit.ReadFile(filepath.Join(r.dir, AnchorFile))
	if err != nil {
		note = nil
	}
	s := &Source{r: r, ctx: ctx, note: note, missing: err}
	s.size, s.payloads, err = r.extent(ctx)
	return s, err
}

// Source is a log at rest, for audit.Verify and audit.WriteExport. It implements audit.Source.
type Source struct {
	r        *Reader
	ctx      context.Context // audit.Source has none to pass
	note     []byte
	missing  error
	size     int64
	payloads int64
	held     *held
}

// PublicKey implements audit.Source.
func (s *Source) PublicKey() ([]byte, error) {
	return audit.ReadFile(filepath.Join(s.r.dir, audit.PublicFile))
}

// Checkpoint implements audit.Source.
func (s *Source) Checkpoint() ([]byte, error) { return s.note, s.missing }

// Size implements audit.Source.
func (s *Source) Size() (int64, error) { return s.size, nil }

// Entries implements audit.Source.
func (s *Source) Entries(from, to int64) ([][]byte, error) { return s.r.leaves(s.ctx, from, to) }

// Tile implements audit.Source. Incomplete tiles are not stored.
func (s *Source) Tile(level int, n int64, width int) ([]byte, error) {
	if width < blockSize {
		return nil, nil
	}
	return s.r.tile(s.ctx)(level, n)
}

// Payload implements audit.Source. It does not judge what it finds.
func (s *Source) Payload(key string) (data []byte, err error) {
	ok, err := s.r.row(s.ctx, selectPayload, []any{key}, &data)
	if err == nil && !ok {
		err = fs.ErrNotExist
	}
	return data, err
}

// Names implements audit.Source.
func (s *Source) Names(yield func(name string) error) error {
	names := []string{} // collected first: yield may ask for more while it holds no connection
	type tile struct {
		level int
		n     int64
	}
	var tiles []tile
	err := s.r.rows(s.ctx, func(scan func(...any) error) error {
		var t tile
		err := scan(&t.level, &t.n)
		tiles = append(tiles, t)
		return err
	}, selectTiles)
	if err != nil {
		return err
	}
	now, _, err := s.r.extent(s.ctx)
	if err != nil {
		return err
	}
	for _, t := range tiles {
		// One that was completed since this source was opened is no part of it; one that is not complete even now belongs nowhere.
		if shift := 8 * (t.level + 1); shift < 0 || shift > 62 || t.n < s.size>>shift || t.n >= now>>shift {
			names = append(names, audit.TilePath(t.level, t.n, blockSize))
		}
	}
	if err := s.r.rows(s.ctx, func(scan func(...any) error) error {
		var key string
		err := scan(&key)
		names = append(names, "payload/"+key)
		return err
	}, selectPayloads, s.payloads); err != nil {
		return err
	}
	for _, name := range names {
		if err := yield(name); err != nil {
			return err
		}
	}
	return nil
}
