package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math"
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
	"sallyport.example/internal/segment"
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
	dir      string
	keys     string   // where StateKeyFile is
	params   string   // of its connections
	archives []string // directories in which archived segments are looked for

	mu    sync.Mutex // guards files, which are replaced as a whole, and who uses them
	files *files

	proof *proof // checks the rows that decide; nil: they are read as they are

	// No gateway of this version has opened the database yet: its pins don't say who confirmed them or how their server is started, its rows not which
	// entry changed them. It has no older segments.
	unconfirmed, unproved, unlaunched, unsegmented bool
}

// OpenReadOnly opens a data directory for reading, whether a gateway runs on it or not. Segments that were archived are read from the directories archives.
func OpenReadOnly(dir string, archives ...string) (*Reader, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	first, _, err := segment.Newest(dir)
	path := filepath.Join(dir, segment.Name(first))
	if info, missing := os.Stat(path); err != nil || missing != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil, fault.Wrap(errors.Join(err, missing), fault.StoreUnavailable, "%s is not a data directory: there is no database %s in it.", dir, filepath.Base(path)).
			Try("Name the directory with --data.")
	}
	if err := besides(path); err != nil {
		return nil, err
	}
	r := newReader(dir, readParams)
	version, err := r.version()
	if err != nil {
		r.Close()
		// Without a gateway there may be no files of the write-ahead log, and no permission to make them: then no process writes.
		if _, missing := os.Stat(path + "-wal"); !errors.Is(missing, fs.ErrNotExist) {
			return nil, err
		}
		r = newReader(dir, readParams+"&immutable=1")
		if version, err = r.version(); err != nil {
			r.Close()
			return nil, err
		}
	}
	for _, folder := range archives {
		if folder, err = filepath.Abs(folder); err != nil {
			r.Close()
			return nil, err
		}
		r.archives = append(r.archives, folder)
	}
	r.unconfirmed, r.unproved, r.unlaunched, r.unsegmented = version < 8, version < 11, version < 13, version < 17
	files, err := fs.Glob(migrations, "migrations/sqlite/*.sql")
	var newest int64
	if err == nil {
		newest, err = migrationNumber(files[len(files)-1])
	}
	if err == nil {
		err = tooNew(version, newest)
	}
	if err == nil {
		err = r.reopen(context.Background())
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// newReader reads the newest file of a data directory alone; see reopen.
func newReader(dir, params string) *Reader {
	first, _, err := segment.Newest(dir)
	if err != nil {
		first = 0 // its use tells what is wrong
	}
	return &Reader{dir: dir, keys: dir, params: params, files: openNewest(dir, segment.Name(first), params)}
}

// HasDatabase tells whether a directory has a database in it.
func HasDatabase(dir string) bool {
	_, found, err := segment.Newest(dir)
	return found && err == nil
}

func (r *Reader) version() (version int64, err error) {
	_, err = r.row(context.Background(), selectVersion, nil, &version)
	return version, err
}

// Close closes the connections. Closing twice is harmless.
func (r *Reader) Close() error {
	f := r.use()
	defer r.done(f)
	return f.close()
}

// row reads one row of the newest file; false if there is none.
func (r *Reader) row(ctx context.Context, query string, args []any, into ...any) (bool, error) {
	f := r.use()
	defer r.done(f)
	return oneOf(ctx, f.newest, query, args, into...)
}

// logRow reads one row of the file that has an entry.
func (r *Reader) logRow(ctx context.Context, index int64, query string, args []any, into ...any) (bool, error) {
	f := r.use()
	defer r.done(f)
	db, err := f.of(index)
	if err != nil {
		return false, err
	}
	return oneOf(ctx, db, query, args, into...)
}

func oneOf(ctx context.Context, db *pool, query string, args []any, into ...any) (bool, error) {
	st, err := db.prepared(ctx, query)
	if err == nil {
		err = st.QueryRowContext(ctx, args...).Scan(into...)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, unavailable(err, fault.StoreUnavailable)
}

// rows reads rows of the newest file.
func (r *Reader) rows(ctx context.Context, each func(scan func(...any) error) error, query string, args ...any) error {
	f := r.use()
	defer r.done(f)
	return rowsOf(ctx, f.newest, each, query, args...)
}

// logRows reads rows of the file that has an entry.
func (r *Reader) logRows(ctx context.Context, index int64, each func(scan func(...any) error) error, query string, args ...any) error {
	f := r.use()
	defer r.done(f)
	db, err := f.of(index)
	if err != nil {
		return err
	}
	return rowsOf(ctx, db, each, query, args...)
}

func rowsOf(ctx context.Context, db *pool, each func(scan func(...any) error) error, query string, args ...any) error {
	st, err := db.prepared(ctx, query)
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

// leaves reads the bytes of the entries from..to-1, which must be there, and of one block of 256.
func (r *Reader) leaves(ctx context.Context, from, to int64) ([][]byte, error) {
	var leaves [][]byte
	err := r.logRows(ctx, from, func(scan func(...any) error) error {
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
// query looks at a bounded part of the log at a time. It passes over segments that are archived, see Oldest. Later calls see what was appended since, in order and without gaps.
func (r *Reader) Entries(ctx context.Context, f audit.Filter) (page []audit.Entry, next int64, err error) {
	page = []audit.Entry{}
	if f.Text != "" { // it would answer with entries that don't have it
		return nil, -1, fault.New(fault.RequestMalformed, "The store does not search by content.").At("q")
	}
	limit := f.Limit
	if limit <= 0 || limit > maxPage {
		limit = maxPage
	}
	size, err := r.Size(ctx)
	if err != nil {
		return nil, -1, err
	}
	oldest := r.Oldest()
	from := max(f.Min, oldest)
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
	if f.End > 0 {
		size = min(size, f.End)
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

// since finds the first entry here that is not older than t. Times in the log never run backwards.
func (r *Reader) since(ctx context.Context, t time.Time, size int64) (int64, error) {
	var failed error
	oldest := r.Oldest()
	i := sort.Search(int(size-oldest), func(i int) bool {
		var at int64
		if failed == nil {
			_, failed = r.logRow(ctx, oldest+int64(i), selectAt, []any{oldest + int64(i)}, &at)
		}
		return !time.UnixMicro(at).Before(t)
	})
	return oldest + int64(i), failed
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
		err := r.logRows(ctx, from, func(scan func(...any) error) error {
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
	ok, err := index >= 0, error(nil)
	if ok {
		ok, err = r.logRow(ctx, index, selectLeaves, []any{index, index + 1}, &idx, &leaf)
	}
	if err != nil {
		return e, nil, err
	}
	if !ok {
		return e, nil, fault.New(fault.NotFound, "There is no entry %d.", index).At("index")
	}
	if e, err = audit.Unmarshal(leaf); err != nil {
		return e, nil, damaged(err)
	}
	return e, leaf, nil
}

// Payload returns what is stored under the key of an audit.Payload, and only if it still hashes to it.
func (r *Reader) Payload(ctx context.Context, key string) (data []byte, err error) {
	data, err = r.payload(ctx, key)
	if err != nil {
		return nil, err
	}
	if data == nil {
		return nil, fault.New(fault.NotFound, "There is no payload %.80q.", key)
	}
	if call.HashBytes(data) != key {
		return nil, damaged(fmt.Errorf("payload %s does not hash to its key", key))
	}
	return data, nil
}

// payload looks for a payload in all files, the newest first; nil if it is in none.
func (r *Reader) payload(ctx context.Context, key string) (data []byte, err error) {
	f := r.use()
	defer r.done(f)
	found, err := oneOf(ctx, f.newest, selectPayload, []any{key}, &data)
	for i := len(f.older) - 1; i >= 0 && !found && err == nil; i-- {
		if db := f.older[i].db; db != nil {
			found, err = oneOf(ctx, db, selectPayload, []any{key}, &data)
		}
	}
	return data, err
}

// tile reads complete tiles. A tile is in the file that has the last of the entries below it. Those that the edge of the oldest file here is built of
// are in that file, too.
func (r *Reader) tile(ctx context.Context) audit.ReadTile {
	return func(level int, n int64) (data []byte, err error) {
		last := int64(math.MaxInt64)
		if shift := 8 * (level + 1); shift < 62 && n < math.MaxInt64>>shift {
			last = (n+1)<<shift - 1
		}
		oldest := r.Oldest()
		ok, err := r.logRow(ctx, max(last, oldest), selectTile, []any{int64(level), n}, &data)
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
	_, s.first = r.Segments()
	s.size, s.payloads, err = r.extent(ctx)
	return s, err
}

// Source is a log at rest, for audit.Verify and audit.WriteExport. It implements audit.Source.
type Source struct {
	r        *Reader
	ctx      context.Context // audit.Source has none to pass
	note     []byte
	missing  error
	first    int64 // of the newest file
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
	if data, err = s.r.payload(s.ctx, key); err == nil && data == nil {
		err = fs.ErrNotExist
	}
	return data, err
}

// Names implements audit.Source.
func (s *Source) Names(yield func(name string) error) error {
	tiles, names, err := s.stored() // collected first: yield may ask for more while it holds no connection
	if err != nil {
		return err
	}
	now, _, err := s.r.extent(s.ctx) // after the tiles: a log that grows has each of them by now
	if err != nil {
		return err
	}
	for _, t := range tiles {
		// One that was completed since this source was opened is no part of it; one that is not complete even now belongs nowhere.
		if shift := 8 * (t.level + 1); shift < 0 || shift > 62 || t.n < s.size>>shift || t.n >= now>>shift {
			names = append(names, audit.TilePath(t.level, t.n, blockSize))
		}
	}
	for _, name := range names {
		if err := yield(name); err != nil {
			return err
		}
	}
	return nil
}

type tileAt struct {
	level int
	n     int64
}

// stored lists the tiles of all files, and the names of their payloads.
func (s *Source) stored() (tiles []tileAt, names []string, err error) {
	f := s.r.use()
	defer s.r.done(f)
	list := func(db *pool, payloads int64) error {
		if err := rowsOf(s.ctx, db, func(scan func(...any) error) error {
			var t tileAt
			err := scan(&t.level, &t.n)
			tiles = append(tiles, t)
			return err
		}, selectTiles); err != nil {
			return err
		}
		return rowsOf(s.ctx, db, func(scan func(...any) error) error {
			var key string
			err := scan(&key)
			names = append(names, "payload/"+key)
			return err
		}, selectPayloads, payloads)
	}
	all := append(slices.Clone(f.older), part{Segment: Segment{First: f.first}, db: f.newest})
	for _, p := range all {
		payloads := int64(math.MaxInt64)
		if p.First == s.first {
			payloads = s.payloads
		}
		if p.db == nil || p.First > s.first || segment.Base(p.First) < f.oldest() {
			continue
		}
		if err := list(p.db, payloads); err != nil {
			return nil, nil, err
		}
	}
	return tiles, names, nil
}
