package shelf

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sallyport.example/internal/knowledge"
)

// formatOf is how words and chunks are made. An index of another one is built again.
const formatOf = "words 1, chunks 1, postings 1, vectors 1"

// partChunks bounds the chunks whose postings are in memory while an index is built.
const partChunks = 20_000

const indexSchema = `
CREATE TABLE about (body TEXT NOT NULL);
CREATE TABLE chunks (g INTEGER NOT NULL, n INTEGER NOT NULL, document TEXT NOT NULL, version INTEGER NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL, words INTEGER NOT NULL, PRIMARY KEY (g, n)) WITHOUT ROWID;
CREATE TABLE terms (g INTEGER NOT NULL, term TEXT NOT NULL, chunks INTEGER NOT NULL, postings BLOB NOT NULL, PRIMARY KEY (g, term));
CREATE TABLE parts (g INTEGER NOT NULL, term TEXT NOT NULL, part INTEGER NOT NULL, chunks INTEGER NOT NULL, last INTEGER NOT NULL, postings BLOB NOT NULL, PRIMARY KEY (g, term, part)) WITHOUT ROWID;
CREATE TABLE vectors (id INTEGER PRIMARY KEY, vector BLOB NOT NULL);
CREATE TABLE vector_parts (g INTEGER NOT NULL, n INTEGER NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (g, n));
`

// about is what an index says of itself.
type about struct {
	Snapshot string  `json:"snapshot"`
	State    string  `json:"state"` // of labels and of what is taken out, when it was built
	Format   string  `json:"format"`
	Digest   string  `json:"digest"`
	Groups   []Group `json:"groups"`
}

// Group is a table of an index: the chunks of one collection and one set of labels.
type Group struct {
	Source string   `json:"source"`
	Labels []string `json:"labels"`
	Chunks int      `json:"chunks"`
	Words  int64    `json:"words"` // in all chunks

	Vectors    int `json:"vectors,omitempty"` // chunks that have one
	Dimensions int `json:"dimensions,omitempty"`
}

// Source is a text to put into an index.
type Source struct {
	Document string
	Version  int
	Source   string
	Labels   []string // sorted
	Content  func(ctx context.Context) (string, error)
	Model    string // whose embeddings of all chunks there are; "": it has none
}

// Built says what was built.
type Built struct {
	Digest string // over chunks, terms, postings and vectors, in hex
	Chunks int
}

func (s *Shelf) indexPath(snapshot string) string {
	return filepath.Join(s.dir, Indexes, snapshot+".db")
}

// Build makes the index of a snapshot, in place of one that is there. state names what it follows from besides the texts. The sources are in the order of their
// documents. Searches that run go on in the old one.
func (s *Shelf) Build(ctx context.Context, snapshot, state string, sources []Source) (b Built, err error) {
	path := s.indexPath(snapshot)
	part := path + ".new"
	s.mu.Lock()
	s.parts[filepath.Base(part)] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.parts, filepath.Base(part))
	}()
	for _, suffix := range []string{"", "-journal", "-wal", "-shm"} {
		if err := os.Remove(part + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return b, unavailable(err)
		}
	}
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return b, unavailable(err)
	}
	if err := f.Close(); err != nil {
		return b, unavailable(err)
	}
	defer func() {
		if err != nil {
			os.Remove(part) // an error is one that the next attempt meets
		}
	}()
	if b, err = s.fill(ctx, part, snapshot, state, sources); err != nil {
		return b, err
	}
	if err := os.Rename(part, path); err != nil {
		return b, unavailable(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retire(snapshot)
	return b, nil
}

// building is an index under way.
type building struct {
	ctx    context.Context
	tx     *sql.Tx
	digest hash.Hash
	groups map[string]*buildGroup
	parts  int
	held   int // chunks whose postings are in memory
	chunks int

	shelf                   *Shelf
	putVector, getEmbedding *sql.Stmt
}

type buildGroup struct {
	Group
	name  string
	chunk []chunkRow
	terms map[string]*posting
}

type chunkRow struct {
	document                    string
	version, start, stop, words int
}

type posting struct {
	chunks, last int
	bytes        []byte
}

func (s *Shelf) fill(ctx context.Context, path, snapshot, state string, sources []Source) (b Built, err error) {
	// There is no journal to go back by: what fails is thrown away whole. One in memory would hold the file a second time, for VACUUM.
	db, err := sql.Open("sqlite", dsn(path, "_pragma=journal_mode(OFF)&_pragma=synchronous(OFF)&_pragma=secure_delete(1)&_pragma=cache_size(-8192)&_dqs=0"))
	if err != nil {
		return b, unavailable(err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, indexSchema); err != nil {
		return b, unavailable(err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return b, unavailable(err)
	}
	defer tx.Rollback() // does nothing after the commit
	w := &building{ctx: ctx, tx: tx, digest: sha256.New(), groups: map[string]*buildGroup{}, shelf: s}
	if w.putVector, err = tx.PrepareContext(ctx, "INSERT INTO vector_parts (g, n, vector) VALUES (?, ?, ?)"); err != nil {
		return b, unavailable(err)
	}
	defer w.putVector.Close()
	if w.getEmbedding, err = s.db.PrepareContext(ctx, "SELECT sealed FROM knowledge_embeddings WHERE id = $1"); err != nil {
		return b, unavailable(err)
	}
	defer w.getEmbedding.Close()
	for i := range sources {
		if err := w.add(&sources[i]); err != nil {
			return b, err
		}
	}
	a := about{Snapshot: snapshot, State: state, Format: formatOf, Groups: []Group{}}
	if err := w.finish(&a); err != nil {
		return b, err
	}
	body, err := json.Marshal(a)
	if err != nil {
		return b, err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO about (body) VALUES ($1)", string(body)); err != nil {
		return b, unavailable(err)
	}
	if err := tx.Commit(); err != nil {
		return b, unavailable(err)
	}
	_, err = db.ExecContext(ctx, "VACUUM") // nothing of the parts is left, and pages lie in order
	return Built{Digest: a.Digest, Chunks: w.chunks}, unavailable(err)
}

func (w *building) add(src *Source) error {
	text, err := src.Content(w.ctx)
	if err != nil {
		return err
	}
	name := groupName(src.Source, src.Labels)
	g := w.groups[name]
	if g == nil {
		g = &buildGroup{name: name, Group: Group{Source: src.Source, Labels: slices.Clone(src.Labels)}, terms: map[string]*posting{}}
		w.groups[name] = g
	}
	var key []byte
	if src.Model != "" {
		if key, err = keyOf(w.ctx, w.shelf.db, src.Document); err != nil {
			return err
		}
	}
	count := map[string]int{}
	for _, span := range knowledge.Chunks(text) {
		clear(count)
		all := 0
		for word := range knowledge.Words(text[span.Start:span.End]) {
			count[word]++
			all++
		}
		n := g.Chunks
		g.Chunks, g.Words = g.Chunks+1, g.Words+int64(all)
		g.chunk = append(g.chunk, chunkRow{src.Document, src.Version, span.Start, span.End, all})
		for word, times := range count {
			p := g.terms[word]
			if p == nil {
				p = &posting{last: -1}
				g.terms[word] = p
			}
			p.bytes = binary.AppendUvarint(p.bytes, uint64(n-max(p.last, 0)))
			p.bytes = binary.AppendUvarint(p.bytes, uint64(times))
			p.chunks, p.last = p.chunks+1, n
		}
		if src.Model != "" {
			v, err := embedding(w.ctx, w.getEmbedding, key, src.Model, text[span.Start:span.End])
			switch {
			case err == nil:
				err = w.vector(g, n, v)
			case errors.Is(err, sql.ErrNoRows): // the text is cut in another way than when it was embedded: its words still find it
				err = nil
			}
			if err != nil {
				return err
			}
		}
		w.chunks++
		if w.held++; w.held >= partChunks {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return w.ctx.Err()
}

// ordered are the groups by name. Their numbers in the file are in this order, whatever came first.
func (w *building) ordered() []*buildGroup {
	return slices.SortedFunc(maps.Values(w.groups), func(a, b *buildGroup) int { return strings.Compare(a.name, b.name) })
}

// flush puts the postings in memory into the file. Groups are named by where they are found first, until finish numbers them.
func (w *building) flush() error {
	insert, err := w.tx.PrepareContext(w.ctx, "INSERT INTO parts (g, term, part, chunks, last, postings) VALUES (?, ?, ?, ?, ?, ?)")
	if err != nil {
		return unavailable(err)
	}
	defer insert.Close()
	for _, g := range w.groups {
		id := g.id()
		for _, term := range slices.Sorted(maps.Keys(g.terms)) {
			p := g.terms[term]
			if _, err := insert.ExecContext(w.ctx, id, term, w.parts, p.chunks, p.last, p.bytes); err != nil {
				return unavailable(err)
			}
		}
		clear(g.terms)
	}
	w.parts++
	w.held = 0
	return nil
}

// id names a group while it is built.
func (g *buildGroup) id() int64 {
	sum := sha256.Sum256([]byte(g.name))
	return int64(binary.BigEndian.Uint64(sum[:]) >> 1)
}

func (w *building) finish(a *about) error {
	if err := w.flush(); err != nil {
		return err
	}
	for number, g := range w.ordered() {
		a.Groups = append(a.Groups, g.Group)
		fmt.Fprintf(w.digest, "group %q %d %d\n", g.name, g.Chunks, g.Words)
		for n, c := range g.chunk {
			fmt.Fprintf(w.digest, "chunk %s %d %d %d %d\n", c.document, c.version, c.start, c.stop, c.words)
			if _, err := w.tx.ExecContext(w.ctx, "INSERT INTO chunks (g, n, document, version, start, stop, words) VALUES (?, ?, ?, ?, ?, ?, ?)", number, n, c.document, c.version, c.start, c.stop, c.words); err != nil {
				return unavailable(err)
			}
		}
		g.chunk = nil
		if err := w.merge(g.id(), number); err != nil {
			return err
		}
		if err := w.placeVectors(g, number); err != nil {
			return err
		}
	}
	if _, err := w.tx.ExecContext(w.ctx, "DROP TABLE parts; DROP TABLE vector_parts"); err != nil {
		return unavailable(err)
	}
	a.Digest = hex.EncodeToString(w.digest.Sum(nil))
	return nil
}

// merge makes the terms of a group of its parts.
func (w *building) merge(id int64, number int) error {
	rows, err := w.tx.QueryContext(w.ctx, "SELECT term, chunks, last, postings FROM parts WHERE g = $1 ORDER BY term, part", id)
	if err != nil {
		return unavailable(err)
	}
	defer rows.Close()
	insert, err := w.tx.PrepareContext(w.ctx, "INSERT INTO terms (g, term, chunks, postings) VALUES (?, ?, ?, ?)")
	if err != nil {
		return unavailable(err)
	}
	defer insert.Close()
	var term string
	whole := posting{last: -1}
	put := func() error {
		if whole.chunks == 0 {
			return nil
		}
		fmt.Fprintf(w.digest, "term %q %d %x\n", term, whole.chunks, sha256.Sum256(whole.bytes))
		_, err := insert.ExecContext(w.ctx, number, term, whole.chunks, whole.bytes)
		return unavailable(err)
	}
	for rows.Next() {
		var next string
		var chunks, last int
		var part []byte
		if err := rows.Scan(&next, &chunks, &last, &part); err != nil {
			return unavailable(err)
		}
		if next != term {
			if err := put(); err != nil {
				return err
			}
			term, whole = next, posting{last: -1}
		}
		first, size := binary.Uvarint(part)
		if size <= 0 {
			return fmt.Errorf("a part of the index is damaged")
		}
		whole.bytes = binary.AppendUvarint(whole.bytes, first-uint64(max(whole.last, 0)))
		whole.bytes = append(whole.bytes, part[size:]...)
		whole.chunks, whole.last = whole.chunks+chunks, last
	}
	return errors.Join(unavailable(rows.Err()), put())
}

// Index is the index of a snapshot. Safe for concurrent use.
type Index struct {
	about
	db      *sql.DB
	lengths [][]uint16 // by group: the words of each chunk
	vectors []vectors  // by group
	using   chan struct{}
	retired chan struct{} // closed once another one is in its place
}

// maxSearches bounds the searches of one index that run at once.
const maxSearches = 8

// retire closes an index once nobody uses it any more.
func (x *Index) retire() {
	close(x.retired)
	go func() {
		for range maxSearches {
			x.using <- struct{}{}
		}
		x.db.Close() // it was only read
	}()
}

// ErrStale says that there is no index of the snapshot, or one that is not what it should be: build it.
var ErrStale = errors.New("the index has to be built")

// retire ends the use of the file of a snapshot, which is another one now or gone. The caller has the lock.
func (s *Shelf) retire(snapshot string) {
	s.swaps++
	if x := s.open[snapshot]; x != nil {
		delete(s.open, snapshot)
		x.retire()
	}
}

// Use returns the index of a snapshot, as it was built for a state and with the digest, and what ends its use. Nobody else waits while it is read or busy.
func (s *Shelf) Use(ctx context.Context, snapshot, state, digest string) (x *Index, done func(), err error) {
	s.mu.Lock()
	x = s.open[snapshot]
	s.mu.Unlock()
	if x == nil {
		if x, err = s.read(ctx, snapshot, state, digest); err != nil {
			return nil, nil, err
		}
	}
	if x == nil || !x.is(state, digest) {
		return nil, nil, ErrStale
	}
	select {
	case x.using <- struct{}{}:
		return x, func() { <-x.using }, nil
	case <-x.retired:
		return nil, nil, ErrStale
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// read opens and verifies an index; nil if it was replaced meanwhile. One at a time: others would read the same file.
func (s *Shelf) read(ctx context.Context, snapshot, state, digest string) (*Index, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	s.mu.Lock()
	have, swaps := s.open[snapshot], s.swaps
	s.mu.Unlock()
	if have != nil {
		return have, nil
	}
	x, err := s.load(ctx, snapshot)
	if err != nil {
		return nil, err
	}
	err = errors.New("it was built for another state")
	if x.is(state, digest) {
		err = x.verify(ctx)
	}
	if err != nil {
		x.db.Close() // it was only read
		return nil, fmt.Errorf("%w: %w", ErrStale, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.swaps != swaps {
		x.db.Close() // it was only read
		return nil, nil
	}
	s.open[snapshot] = x
	return x, nil
}

// is tells whether the index was built for a state and has the digest.
func (x *Index) is(state, digest string) bool {
	return x.State == state && x.Digest == digest && x.Format == formatOf
}

func (s *Shelf) load(ctx context.Context, snapshot string) (x *Index, err error) {
	path := s.indexPath(snapshot)
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return nil, ErrStale
	}
	db, err := sql.Open("sqlite", dsn(path, "mode=ro&immutable=1&_pragma=query_only(1)&_pragma=trusted_schema(0)&_pragma=mmap_size(1073741824)"))
	if err != nil {
		return nil, unavailable(err)
	}
	db.SetMaxOpenConns(4)
	x = &Index{db: db, using: make(chan struct{}, maxSearches), retired: make(chan struct{})}
	var body string
	err = db.QueryRowContext(ctx, "SELECT body FROM about").Scan(&body)
	if err == nil {
		err = json.Unmarshal([]byte(body), &x.about)
	}
	if err == nil {
		err = x.readLengths(ctx)
	}
	if err == nil {
		err = x.readVectors(ctx)
	}
	if err != nil {
		return nil, errors.Join(ErrStale, err, db.Close())
	}
	return x, nil
}

func (x *Index) readLengths(ctx context.Context) error {
	x.lengths = make([][]uint16, len(x.Groups))
	rows, err := x.db.QueryContext(ctx, "SELECT g, n, words FROM chunks ORDER BY g, n")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var g, n, words int
		if err := rows.Scan(&g, &n, &words); err != nil {
			return err
		}
		if g < 0 || g >= len(x.lengths) || n != len(x.lengths[g]) {
			return errors.New("its chunks are not in order")
		}
		x.lengths[g] = append(x.lengths[g], uint16(min(words, math.MaxUint16)))
	}
	for g := range x.lengths {
		if len(x.lengths[g]) != x.Groups[g].Chunks {
			return errors.New("chunks are missing in it")
		}
	}
	return rows.Err()
}

// verify computes the digest anew of what is in the file.
func (x *Index) verify(ctx context.Context) error {
	digest := sha256.New()
	for number, g := range x.Groups {
		fmt.Fprintf(digest, "group %q %d %d\n", groupName(g.Source, g.Labels), g.Chunks, g.Words)
		for _, of := range []struct {
			query string
			write func(rows *sql.Rows) error
		}{
			{"SELECT document, version, start, stop, words FROM chunks WHERE g = $1 ORDER BY n", func(rows *sql.Rows) error {
				var c chunkRow
				err := rows.Scan(&c.document, &c.version, &c.start, &c.stop, &c.words)
				fmt.Fprintf(digest, "chunk %s %d %d %d %d\n", c.document, c.version, c.start, c.stop, c.words)
				return err
			}},
			{"SELECT term, chunks, postings FROM terms WHERE g = $1 ORDER BY term", func(rows *sql.Rows) error {
				var term string
				var chunks int
				var postings sql.RawBytes
				err := rows.Scan(&term, &chunks, &postings)
				fmt.Fprintf(digest, "term %q %d %x\n", term, chunks, sha256.Sum256(postings))
				return err
			}},
		} {
			if err := eachRow(ctx, x.db, of.query, of.write, number); err != nil {
				return err
			}
		}
		if g.Vectors == 0 {
			continue
		}
		fmt.Fprintf(digest, "vectors %d %d\n", g.Vectors, g.Dimensions)
		err := eachVector(ctx, x.db, number, func(n int, vector []byte) error {
			fmt.Fprintf(digest, "vector %d %x\n", n, sha256.Sum256(vector))
			return nil
		})
		if err != nil {
			return err
		}
	}
	if have := hex.EncodeToString(digest.Sum(nil)); have != x.Digest {
		return errors.New("the file does not hold what its digest says")
	}
	return nil
}

// rowsOf is a database or a transaction.
type rowsOf interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func eachRow(ctx context.Context, db rowsOf, query string, each func(*sql.Rows) error, args ...any) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Drop removes the index of a snapshot: nothing of it is left in the file system.
func (s *Shelf) Drop(snapshot string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retire(snapshot)
	if err := os.Remove(s.indexPath(snapshot)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unavailable(err)
	}
	return nil
}

// Known returns the snapshots that have an index file.
func (s *Shelf) Known() (snapshots []string, err error) {
	files, err := os.ReadDir(filepath.Join(s.dir, Indexes))
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), ".db"); ok {
			snapshots = append(snapshots, name)
		}
	}
	return snapshots, unavailable(err)
}

// Sweep removes every file among the indexes that is no index and is not being made one: what a crash left.
func (s *Shelf) Sweep() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	files, err := os.ReadDir(filepath.Join(s.dir, Indexes))
	errs := []error{err}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".db") && !s.parts[f.Name()] {
			errs = append(errs, os.RemoveAll(filepath.Join(s.dir, Indexes, f.Name())))
		}
	}
	return unavailable(errors.Join(errs...))
}

// Hit is a chunk that was found.
type Hit struct {
	Group    Group
	Document string
	Version  int
	Span     knowledge.Span
	Score    float64 // by its rank
	Weight   float64 // of the question's words in it: what it is ranked by in its group
}

// Bounds of a search.
const (
	maxTerms = 48 // of a question
	perGroup = 50 // hits of one group that are fused
	fuse     = 60 // of reciprocal rank fusion
)

// Search returns the chunks that answer a question best, in the groups that may be read and of the versions that may be. Each group is ranked by itself (BM25), so that no other group
// shows in what is found; the score of a hit is its reciprocal rank among what may be read.
func (x *Index) Search(ctx context.Context, question string, may func(source string, labels []string) bool, version func(document string, version int) bool, most int) (hits []Hit, err error) {
	var words []string
	seen := map[string]bool{}
	for w := range knowledge.Words(question) {
		if !seen[w] {
			seen[w] = true
			words = append(words, w)
		}
		if len(words) == maxTerms {
			break
		}
	}
	if len(words) == 0 {
		return nil, nil
	}
	for number := range x.Groups {
		g := &x.Groups[number]
		if !may(g.Source, g.Labels) {
			continue
		}
		scores, err := x.rank(ctx, number, words)
		if err == nil {
			hits, err = x.readable(ctx, number, scores, version, min(most, perGroup), hits)
		}
		if err != nil {
			return nil, unavailable(err)
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int {
		switch {
		case a.Score > b.Score:
			return -1
		case a.Score < b.Score:
			return 1
		}
		return 0
	})
	return hits[:min(len(hits), most)], nil
}

// readable adds to hits the best chunks of a group, of versions that may be read, each with its rank among those. What may not be read takes no place.
func (x *Index) readable(ctx context.Context, number int, scores []float32, version func(document string, version int) bool, most int, hits []Hit) ([]Hit, error) {
	ranked, rank := best(scores, most), 0
	for at := 0; rank < most; at++ {
		if at == most { // some of the first may not be read
			ranked = ordered(scores)
		}
		if at == len(ranked) {
			break
		}
		h := Hit{Group: x.Groups[number]}
		err := x.db.QueryRowContext(ctx, "SELECT document, version, start, stop FROM chunks WHERE g = $1 AND n = $2", number, ranked[at]).Scan(&h.Document, &h.Version, &h.Span.Start, &h.Span.End)
		if err != nil {
			return nil, err
		}
		if version(h.Document, h.Version) {
			rank++
			h.Score, h.Weight = 1/float64(fuse+rank), float64(scores[ranked[at]])
			hits = append(hits, h)
		}
	}
	return hits, nil
}

// found is a word of the question in a group.
type found struct {
	idf      float64
	common   bool
	chunks   int
	postings []byte
}

// rank returns the score of each chunk of a group. Words that stand in over a tenth of the chunks only refine: they find nothing by themselves, unless
// all words are such.
func (x *Index) rank(ctx context.Context, number int, words []string) ([]float32, error) {
	g := &x.Groups[number]
	if g.Chunks == 0 {
		return nil, nil
	}
	terms := make([]found, 0, len(words))
	rare := 0
	for _, w := range words {
		var t found
		err := x.db.QueryRowContext(ctx, "SELECT chunks, postings FROM terms WHERE g = $1 AND term = $2", number, w).Scan(&t.chunks, &t.postings)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, err
		}
		t.idf = math.Log(1 + (float64(g.Chunks)-float64(t.chunks)+0.5)/(float64(t.chunks)+0.5))
		if t.common = t.chunks > 20 && t.chunks*10 > g.Chunks; !t.common {
			rare++
		}
		terms = append(terms, t)
	}
	scores := make([]float32, g.Chunks)
	average := float64(g.Words) / float64(g.Chunks)
	for _, common := range []bool{false, true} {
		for i := range terms {
			if terms[i].common == common {
				if err := x.score(number, &terms[i], scores, average, common && rare > 0); err != nil {
					return nil, err
				}
			}
		}
	}
	return scores, nil
}

// score adds what a word gives each chunk that it stands in; with refine only to those that have a score.
func (x *Index) score(number int, t *found, scores []float32, average float64, refine bool) error {
	const k1, b = 1.2, 0.75
	lengths := x.lengths[number]
	r := bytes.NewReader(t.postings)
	n := 0
	for range t.chunks {
		delta, err := binary.ReadUvarint(r)
		if err != nil {
			return err
		}
		times, err := binary.ReadUvarint(r)
		if err != nil {
			return err
		}
		if n += int(delta); n >= len(scores) {
			return errors.New("the index names a chunk that is not there")
		}
		if refine && scores[n] == 0 {
			continue
		}
		tf := float64(times)
		scores[n] += float32(t.idf * tf * (k1 + 1) / (tf + k1*(1-b+b*float64(lengths[n])/average)))
	}
	return nil
}

// best are the chunks with the highest scores, the best first; of equal ones the first in the index.
func best(scores []float32, most int) []int {
	top := make([]int, 0, most+1)
	for n, s := range scores {
		if s == 0 || len(top) == most && s <= scores[top[most-1]] {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, s, func(o int, s float32) int {
			if scores[o] >= s {
				return -1
			}
			return 1
		})
		if top = slices.Insert(top, at, n); len(top) > most {
			top = top[:most]
		}
	}
	return top
}

// ordered are all chunks that have a score, as best has the first of them.
func ordered(scores []float32) []int {
	var all []int
	for n, s := range scores {
		if s != 0 {
			all = append(all, n)
		}
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	return all
}
