package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/segment"
)

// Segment is a file of the log that is not written to any more.
type Segment struct {
	Name  string    `json:"name"`
	First int64     `json:"first"` // its first entry
	End   int64     `json:"end"`   // the size of the log when it was sealed
	At    time.Time `json:"at"`    // the time of its last entry
	Root  string    `json:"root"`  // of the log at its end, as the checkpoint there has it
	State string    `json:"state"` // digest of all rows that decide at its end, from the same checkpoint
	// Blocks is the keyed digest of the rows of audit_blocks that were completed in the file, by which queries find entries.
	Blocks string `json:"blocks"`
	// Bytes and SHA256 are "" and 0 until the file is folded and was read as a whole.
	Bytes  int64  `json:"bytes,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	// ArchivedTo is the directory that it was moved to, or "".
	ArchivedTo string    `json:"archived_to,omitempty"`
	ArchivedAt time.Time `json:"archived_at,omitzero"`
	// Present: the file is there to be read.
	Present bool `json:"-"`
}

// where says where the file is to be found.
func (s *Segment) where() string {
	if s.ArchivedTo != "" {
		return s.Name + ", which was moved to " + s.ArchivedTo
	}
	return s.Name + ", which is gone"
}

const selectSegments = "SELECT name, body FROM segments ORDER BY name"

// files are the databases of a data directory as they were at one moment.
type files struct {
	newest *pool  // the one that is written to
	path   string // of it
	first  int64  // its first own entry
	older  []part // the oldest first

	users   int // guarded by Reader.mu, and so is retired
	retired bool
}

// part is a file that is not written to any more.
type part struct {
	Segment
	path string
	db   *pool // nil: it is not there
}

// pool is the connections to one file, with the queries that are prepared: to prepare one anew costs more than a read of a few rows. They end with the
// connections.
type pool struct {
	*sql.DB
	mu     sync.Mutex // guards byText
	byText map[string]*sql.Stmt
}

// prepared returns a query that is prepared once. Queries are constants, put together with other constants, so there are few.
func (p *pool) prepared(ctx context.Context, query string) (*sql.Stmt, error) {
	p.mu.Lock()
	st := p.byText[query]
	p.mu.Unlock()
	if st != nil {
		return st, nil
	}
	st, err := p.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if other := p.byText[query]; other != nil {
		st.Close() // nothing has used it
		return other, nil
	}
	p.byText[query] = st
	return st, nil
}

func openPool(path, params string) *pool {
	db, err := sql.Open("sqlite", dsn(path, params))
	if err != nil {
		panic("store: the driver is not registered: " + err.Error()) // sql.Open does nothing else that could fail
	}
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	return &pool{DB: db, byText: map[string]*sql.Stmt{}}
}

func openNewest(dir, name, params string) *files {
	path := filepath.Join(dir, name)
	first, _ := segment.First(name)
	return &files{newest: openPool(path, params), path: path, first: first}
}

func (f *files) close() error {
	err := f.newest.Close()
	for _, p := range f.older {
		if p.db != nil {
			err = errors.Join(err, p.db.Close())
		}
	}
	return err
}

// openOlder opens the older files, which are in the directory of the newest or in one of those where they were archived.
func (f *files) openOlder(ctx context.Context, archives []string) error {
	rows, err := f.newest.QueryContext(ctx, selectSegments)
	if err != nil {
		return unavailable(err, fault.StoreUnavailable)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var body []byte
		var p part
		if err := rows.Scan(&name, &body); err != nil {
			return unavailable(err, fault.StoreUnavailable)
		}
		first, ok := segment.First(name)
		if err := json.Unmarshal(body, &p.Segment); err != nil || !ok || name != p.Name || first != p.First {
			continue // its MAC does not fit either: the start refuses it, and "audit verify" names it
		}
		f.older = append(f.older, p)
	}
	slices.SortFunc(f.older, func(a, b part) int { return cmp.Compare(a.First, b.First) })
	f.addUnnamed()
	for i := range f.older {
		f.older[i].find(filepath.Dir(f.path), archives)
	}
	return unavailable(rows.Err(), fault.StoreUnavailable)
}

// addUnnamed adds the file before the newest one, where the newest one is so new that its first entry, which names it, is still to come.
func (f *files) addUnnamed() {
	end := int64(0)
	if n := len(f.older); n > 0 {
		end = f.older[n-1].End
	}
	if end < f.first {
		f.older = append(f.older, part{Segment: Segment{Name: segment.Name(end), First: end, End: f.first}})
	}
}

// find looks for the file, and prepares to read it.
func (p *part) find(dir string, archives []string) {
	if p.ArchivedTo == "" {
		archives = []string{dir}
	}
	for _, dir := range archives {
		path := filepath.Join(dir, p.Name)
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		params := readParams
		if wal, err := os.Stat(path + "-wal"); errors.Is(err, fs.ErrNotExist) || err == nil && wal.Size() == 0 {
			params += "&immutable=1"
		}
		p.path, p.Present, p.db = path, true, openPool(path, params)
		return
	}
}

// end is the index after the last entry that readers look for in the i-th older file: the next one has the others, too.
func (f *files) end(i int) int64 {
	if i+1 < len(f.older) {
		return segment.Base(f.older[i+1].First)
	}
	return segment.Base(f.first)
}

// oldest is the first entry from which on all entries can be read.
func (f *files) oldest() int64 {
	from := segment.Base(f.first)
	for _, p := range slices.Backward(f.older) {
		if p.db == nil {
			break
		}
		from = segment.Base(p.First)
	}
	return from
}

// own is the first row of audit_blocks that the row of state_proof covers in a log of size entries, and the file with those rows. They are the ones that
// were completed in the newest file. As long as that has no entry of its own, it has the row of state_proof of the file before it.
func (f *files) own(size int64) (db *pool, from int64) {
	if n := len(f.older); n > 0 && size == f.first {
		return f.older[n-1].db, f.older[n-1].First / blockSize
	}
	return f.newest, f.first / blockSize
}

// copied are the complete rows of audit_blocks that files which are here begin with: readers read these copies.
func (f *files) copied() (rows []int64) {
	for _, p := range append(slices.Clone(f.older), part{Segment: Segment{First: f.first}, db: f.newest}) {
		if p.db != nil && p.First > 0 && p.First%blockSize == 0 {
			rows = append(rows, p.First/blockSize-1)
		}
	}
	return rows
}

// of is the file that readers look in for an entry.
func (f *files) of(index int64) (*pool, error) {
	if index >= segment.Base(f.first) {
		return f.newest, nil
	}
	for i, p := range f.older {
		if index >= f.end(i) {
			continue
		}
		if p.db == nil {
			return nil, notHere(index, &p.Segment)
		}
		return p.db, nil
	}
	return nil, damaged(errors.New("no segment has the entry"))
}

// notHere says that an entry is in a file that is somewhere else.
func notHere(index int64, s *Segment) *fault.Error {
	f := fault.Wrap(fs.ErrNotExist, fault.NotFound, "Entry %d is in the segment %s.", index, s.where()).At("index")
	if s.ArchivedTo == "" {
		return f.Try("Put the file back from a backup.")
	}
	return f.Try("Read it there: each segment is an SQLite database with the view \"log\". \"sallyport audit verify --segments %s\" checks it with the rest.", s.ArchivedTo)
}

// use takes the files as they are now. The caller gives them back with done.
func (r *Reader) use() *files {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files.users++
	return r.files
}

func (r *Reader) done(f *files) {
	r.mu.Lock()
	f.users--
	last := f.retired && f.users == 0
	r.mu.Unlock()
	if last {
		_ = f.close() // they were only read
	}
}

// replace makes readers use other files from now on. The old ones are closed when nobody uses them any more.
func (r *Reader) replace(f *files) {
	r.mu.Lock()
	old := r.files
	r.files, old.retired = f, true
	idle := old.users == 0
	r.mu.Unlock()
	if idle {
		_ = old.close() // they were only read
	}
}

// reopen takes the files as they are in the directory now.
func (r *Reader) reopen(ctx context.Context) error {
	first, found, err := segment.Newest(r.dir)
	if err != nil || !found {
		return unavailable(errors.Join(err, errors.New("there is no database")), fault.StoreUnavailable)
	}
	f := openNewest(r.dir, segment.Name(first), r.params)
	if !r.unsegmented {
		if err := f.openOlder(ctx, r.archives); err != nil {
			return errors.Join(err, f.close())
		}
	}
	r.replace(f)
	return nil
}

// Segments returns the sealed files of the log, the oldest first, and the first entry of the file that is written to.
func (r *Reader) Segments() (sealed []Segment, first int64) {
	f := r.use()
	defer r.done(f)
	sealed = []Segment{}
	for _, p := range f.older {
		sealed = append(sealed, p.Segment)
	}
	return sealed, f.first
}

// Oldest is the first entry from which on all entries can be read: above 0 where segments were archived.
func (r *Reader) Oldest() int64 {
	f := r.use()
	defer r.done(f)
	return f.oldest()
}

// Archived says which entries that the filter asks for were not looked at; nil if all were.
func (r *Reader) Archived(q audit.Filter) *audit.Archived {
	f := r.use()
	defer r.done(f)
	a := &audit.Archived{Before: f.oldest()}
	for _, p := range f.older {
		if p.db == nil && q.Min < p.End && q.Min < a.Before && !q.From.After(p.At) {
			a.Files = append(a.Files, p.where())
		}
	}
	if len(a.Files) == 0 {
		return nil
	}
	return a
}

// inOrder refuses files that don't follow one another.
func (r *Reader) inOrder(ctx context.Context) error {
	f := r.use()
	defer r.done(f)
	var base, size, end int64
	if _, err := oneOf(ctx, f.newest, selectReach, nil, &base, &size); err != nil {
		return err
	}
	follows := true
	for _, p := range f.older {
		follows, end = follows && p.First == end, p.End
	}
	if !follows || f.first != end || size < f.first || size > 0 && base != segment.Base(f.first) {
		return fault.New(fault.AuditUnavailable, "The files of the log in %s don't follow one another.", r.dir).
			Try("Remove what was put there, or put back a backup. \"sallyport audit segments\" lists the files.")
	}
	return nil
}
