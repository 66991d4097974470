package library

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/knowledge/ask"
	"sallyport.example/internal/knowledge/shelf"
)

// indexes are those that are ready, and those that are being built.
type indexes struct {
	ctx    context.Context // of what is built
	stop   context.CancelFunc
	builds sync.WaitGroup

	mu       sync.Mutex // guards the rest
	ready    map[string]ready
	building map[string]*build
}

// ready is an index that can be searched: what it was built for, and its digest.
type ready struct {
	state, digest string
	rights        int64  // when state was computed
	model         string // that embeds
}

// build is one that is under way; others wait for it.
type build struct {
	ctx  context.Context
	stop context.CancelFunc
	done chan struct{} // the rest is set when it is closed

	made  ready
	err   error
	ended bool // by stop, before it was made
}

// state is a digest of what an index of a snapshot follows from besides the texts: the labels that its versions have now, what is taken out, and what has embeddings by which model. sources are the
// texts that are in it.
func (l *Library) state(s knowledge.Snapshot, have embedded) (state string, rights int64, sources []shelf.Source) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	members, rights := knowledge.Members(l.documents, s.Order), l.rights
	h := sha256.New()
	for _, m := range members {
		now := m.Document.Rights(m.Version.Version)
		if now.Gone {
			continue
		}
		fmt.Fprintf(h, "%s\x00%d\x00%q\n", m.Document.ID(), m.Version.Version, now.Labels)
		model := ""
		if _, has := have.texts[m.Version.Content]; has && have.model != "" {
			model = have.kept()
			fmt.Fprintf(h, "embedded by %q\n", model)
		}
		sources = append(sources, shelf.Source{Document: m.Document.ID(), Version: m.Version.Version, Source: m.Document.Source(), Labels: now.Labels, Model: model,
			Content: func(ctx context.Context) (string, error) { return l.Text(ctx, m.Document, m.Version) }})
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), rights, sources
}

// index returns the index of a snapshot, and builds it where there is none. While one that follows from today's labels is built, the older one is used, and each hit is asked for by them.
func (l *Library) index(ctx context.Context, snapshot string) (ready, error) {
	s, err := l.SnapshotByID(snapshot)
	if err != nil {
		return ready{}, err
	}
	l.mu.RLock()
	rights := l.rights
	l.mu.RUnlock()
	l.indexes.mu.Lock()
	have, ok := l.indexes.ready[s.ID]
	b := l.indexes.building[s.ID]
	if ok && have.model != l.embeddingModel().kept() {
		l.EmbedSoon()
	}
	if b == nil && (!ok || have.rights != rights || have.model != l.embeddingModel().kept()) {
		b = &build{done: make(chan struct{})}
		b.ctx, b.stop = context.WithCancel(l.indexes.ctx)
		l.indexes.building[s.ID] = b
		l.indexes.builds.Go(func() { l.build(s, b) })
	}
	l.indexes.mu.Unlock()
	if ok {
		return have, nil
	}
	select {
	case <-b.done:
		if b.ended && l.indexes.ctx.Err() == nil {
			return l.index(ctx, snapshot)
		}
		return b.made, b.err
	case <-ctx.Done():
		return ready{}, fault.Wrap(ctx.Err(), fault.TimeExceeded, "The index of the snapshot is being built.").Try("Try again in a moment.")
	}
}

// endBuilds ends all builds that are under way, and waits for them: they may have read what is to be erased. Those that begin later don't read it.
func (l *Library) endBuilds(ctx context.Context) error {
	l.indexes.mu.Lock()
	under := slices.Collect(maps.Values(l.indexes.building))
	l.indexes.mu.Unlock()
	for _, b := range under {
		b.stop()
	}
	for _, b := range under {
		select {
		case <-b.done:
		case <-ctx.Done():
			return fault.Wrap(ctx.Err(), fault.TimeExceeded, "An index of the texts is still being built.").Try("Do the same again.")
		}
	}
	return nil
}

// build makes an index ready: the one that is there where it is the right one, else a new one.
func (l *Library) build(s knowledge.Snapshot, b *build) {
	defer b.stop()
	b.made, b.err = l.make(b.ctx, s)
	b.ended = b.err != nil && b.ctx.Err() != nil
	l.indexes.mu.Lock()
	defer l.indexes.mu.Unlock()
	delete(l.indexes.building, s.ID)
	if b.err == nil {
		l.indexes.ready[s.ID] = b.made
	} else if !b.ended {
		l.o.Log.Error("an index of the knowledge store can't be built", "snapshot", s.ID, "error", b.err)
	}
	close(b.done)
}

func (l *Library) make(ctx context.Context, s knowledge.Snapshot) (ready, error) {
	if err := l.pinned(s); err != nil {
		return ready{}, err
	}
	have, err := l.embedding(ctx)
	if err != nil {
		return ready{}, err
	}
	made, err := l.makeOf(ctx, s, have)
	if !errors.Is(err, errOther) || len(have.texts) == 0 {
		return made, err
	}
	// Embeddings were lost or changed. The texts are checked by themselves, and stay to be searched by their words.
	l.o.Log.Error("embeddings of the knowledge store are not those that were fetched; the snapshot is searched by words alone", "snapshot", s.ID, "error", err)
	made, err = l.makeOf(ctx, s, embedded{})
	made.model = have.kept()
	return made, err
}

// errOther is the cause of an index that is not the one that was built before.
var errOther = errors.New("another digest")

// makeOf makes the index with these embeddings.
func (l *Library) makeOf(ctx context.Context, s knowledge.Snapshot, have embedded) (ready, error) {
	state, rights, sources := l.state(s, have)
	made := ready{state: state, rights: rights, model: have.kept()}
	name := s.ID + "/" + state
	known, err := l.o.Store.KnowledgeDigest(ctx, name)
	if err != nil {
		return made, err
	}
	if known != "" {
		if _, done, err := l.o.Shelf.Use(ctx, s.ID, state, known); err == nil {
			done()
			made.digest = known
			return made, nil
		} else if !errors.Is(err, shelf.ErrStale) {
			return made, err
		}
	}
	built, err := l.o.Shelf.Build(ctx, s.ID, state, sources)
	if err != nil {
		return made, err
	}
	made.digest = built.Digest
	if known == "" {
		detail, err := json.Marshal(map[string]any{"snapshot": s.ID, "state": state, "digest": built.Digest, "chunks": built.Chunks})
		if err != nil {
			return made, err
		}
		return made, l.o.Store.AddKnowledgeDigest(ctx, name, built.Digest, audit.Entry{Kind: audit.Change, Action: "knowledge.index", Actor: "rule:index", Decision: "ok", Detail: detail})
	}
	if known != built.Digest {
		return made, errors.Join(l.o.Shelf.Drop(s.ID), fault.Wrap(errOther, fault.StoreUnavailable, "The index of %s is not the one that was built of the same documents before.", s.ID))
	}
	return made, nil
}

// pinned checks that a snapshot still has the documents that its root is over.
func (l *Library) pinned(s knowledge.Snapshot) error {
	l.mu.RLock()
	members := knowledge.Members(l.documents, s.Order)
	l.mu.RUnlock()
	if now := knowledge.SnapshotOf(members, s.Order, s.At, s.By); now.ID != s.ID || now.Root != s.Root {
		return fault.New(fault.StoreUnavailable, "The documents of the snapshot %s are not those that it pins.", s.ID).Try("Put back a backup of the whole data directory.")
	}
	return nil
}

// renew builds the index of the newest snapshot by today's labels, in the background. The others are built again when they are asked for.
func (l *Library) renew() {
	s, err := l.SnapshotByID("")
	if err != nil {
		return // there is none
	}
	if err := l.dropIndexes(func(id string) bool { return id != s.ID }); err != nil {
		l.o.Log.Error("old indexes of the knowledge store could not be removed; they are not used", "error", err)
	}
	l.indexes.builds.Go(func() {
		if _, err := l.index(l.indexes.ctx, s.ID); err != nil && l.indexes.ctx.Err() == nil {
			l.o.Log.Error("the index of the knowledge store can't be built", "snapshot", s.ID, "error", err)
		}
	})
}

// renewAfter is renew after an act that worked.
func (l *Library) renewAfter(err error) error {
	if err == nil {
		l.renew()
	}
	return err
}

// dropIndexes removes the indexes of some snapshots.
func (l *Library) dropIndexes(which func(snapshot string) bool) error {
	known, err := l.o.Shelf.Known()
	if err != nil {
		return err
	}
	l.indexes.mu.Lock()
	known = append(known, slices.Collect(maps.Keys(l.indexes.ready))...)
	for _, id := range known {
		if which(id) {
			delete(l.indexes.ready, id)
		}
	}
	l.indexes.mu.Unlock()
	var errs []error
	for _, id := range known {
		if which(id) {
			errs = append(errs, l.o.Shelf.Drop(id))
		}
	}
	return errors.Join(errs...)
}

// use returns an index to search, and what ends its use. One that is replaced at this moment is waited for.
func (l *Library) use(ctx context.Context, snapshot string) (*shelf.Index, func(), error) {
	for range 3 {
		have, err := l.index(ctx, snapshot)
		if err != nil {
			return nil, nil, err
		}
		x, done, err := l.o.Shelf.Use(ctx, snapshot, have.state, have.digest)
		if !errors.Is(err, shelf.ErrStale) {
			return x, done, err
		}
		l.indexes.mu.Lock()
		b := l.indexes.building[snapshot]
		if b == nil && l.indexes.ready[snapshot] == have { // its file is gone, or another one
			delete(l.indexes.ready, snapshot)
		}
		l.indexes.mu.Unlock()
		if b != nil {
			select {
			case <-b.done:
			case <-ctx.Done():
			}
		}
	}
	return nil, nil, fault.New(fault.TimeExceeded, "The index of the snapshot is being built.").Try("Try again in a moment.")
}

// Citation names what was read: a part of a version of a document, in a snapshot.
type Citation struct {
	Document string         `json:"documentId"`
	Version  int            `json:"version"`
	Span     knowledge.Span `json:"span"`
}

// Hit is a part of a document that answers a question.
type Hit struct {
	Citation
	Text   string   `json:"text"`
	Score  float64  `json:"score" doc:"Reciprocal rank by words, within the collection and labels of the hit, or by meaning; the sum where both found it"`
	Labels []string `json:"labels"`
	Source string   `json:"source"`
	Key    string   `json:"key"`
}

// Found is what a search finds.
type Found struct {
	Snapshot string `json:"snapshot_id"`
	Hits     []Hit  `json:"hits"`
	Search   string `json:"search" doc:"How was searched: text, by words alone; or hybrid, by words and by meaning"`
	TextOnly string `json:"text_only,omitempty" doc:"Why it was searched by words alone"`
}

// MaxHits bounds the hits of one search.
const MaxHits = 50

// Search finds the parts of documents that answer a question best, among those that the reader may read, in a snapshot ("": the newest). asking is how the embedding of the question is asked for; where
// there is none, the answer says why.
func (l *Library) Search(ctx context.Context, r knowledge.Reader, asking ask.Ask, snapshot, question string, k int) (Found, error) {
	s, err := l.SnapshotByID(snapshot)
	if err != nil {
		return Found{}, err
	}
	f := Found{Snapshot: s.ID, Hits: []Hit{}, Search: "text"}
	var vector []float32
	vector, f.TextOnly = l.meaning(ctx, r, asking, s.Order, question) // before the index is in use: it may take a while
	x, done, err := l.use(ctx, s.ID)
	if err != nil {
		return f, err
	}
	defer done()
	may := func(document string, version int) bool { // not by the index: labels may have risen since it was built
		d, err := l.Document(document)
		return err == nil && r.May(d, version)
	}
	hits, err := x.Search(ctx, question, r.MayGroup, may, MaxHits)
	if err != nil {
		return f, err
	}
	texts := l.texts(nearBytes)
	if hits, err = l.nearest(ctx, r, texts, question, hits); err != nil {
		return f, err
	}
	if vector != nil {
		switch near, err := x.Near(ctx, vector, r.MayGroup, may, MaxHits); {
		case errors.Is(err, shelf.ErrNoVectors):
			f.TextOnly = noneEmbedded
		case err != nil:
			return f, err
		default:
			hits, f.Search = fuse(hits, near), "hybrid"
		}
	}
	for _, h := range hits {
		d, err := l.Document(h.Document)
		if err != nil || !r.May(d, h.Version) {
			continue // since a moment ago
		}
		whole, err := texts.of(ctx, d, h.Version)
		if err != nil {
			return f, err
		}
		f.Hits = append(f.Hits, Hit{
			Citation: Citation{h.Document, h.Version, h.Span}, Text: whole[h.Span.Start:h.Span.End], Score: h.Score,
			Labels: append([]string{}, d.Rights(h.Version).Labels...), Source: d.Source(), Key: d.Key(),
		})
		if len(f.Hits) == k {
			break
		}
	}
	return f, nil
}

// Bounds of the hits whose texts are looked at before they are put in order.
const (
	nearMost  = 30
	nearBytes = 4 << 20 // of the documents that they are in
)

// texts reads whole texts of documents, each once as long as those that it holds are not over the bound. It is for one goroutine.
type texts struct {
	l          *Library
	have       map[string]string // by document and version
	size, most int
}

func (l *Library) texts(most int) *texts { return &texts{l: l, have: map[string]string{}, most: most} }

// full tells whether what is held is over the bound.
func (t *texts) full() bool { return t.size > t.most }

// of is the text of a version.
func (t *texts) of(ctx context.Context, d *knowledge.Document, version int) (string, error) {
	key := fmt.Sprintf("%s@%d", d.ID(), version)
	if text, has := t.have[key]; has {
		return text, nil
	}
	text, err := t.l.Text(ctx, d, d.Version(version))
	if err == nil && !t.full() {
		t.have[key] = text
		t.size += len(text)
	}
	return text, err
}

// nearest orders the first hits anew by what stands together in their texts as it does in the question. Hits of a group change places
// among themselves alone, so a score is still that of the rank in the group. What may not be read any more is left out.
func (l *Library) nearest(ctx context.Context, r knowledge.Reader, texts *texts, question string, hits []shelf.Hit) ([]shelf.Hit, error) {
	type candidate struct {
		hit    shelf.Hit
		weight float64
	}
	var first []candidate
	var rest []shelf.Hit
	groups := map[string][]candidate{}
	name := func(h shelf.Hit) string { return fmt.Sprintf("%q %q", h.Group.Source, h.Group.Labels) }
	phrase := knowledge.NewPhrase(question)
	for at, h := range hits {
		if at == nearMost || texts.full() {
			rest = hits[at:]
			break
		}
		d, err := l.Document(h.Document)
		if err != nil || !r.May(d, h.Version) {
			continue
		}
		whole, err := texts.of(ctx, d, h.Version)
		if err != nil {
			return nil, err
		}
		c := candidate{h, h.Weight * (1 + 0.3*phrase.In(whole[h.Span.Start:h.Span.End]))}
		first, groups[name(h)] = append(first, c), append(groups[name(h)], c)
	}
	for _, g := range groups {
		slices.SortStableFunc(g, func(a, b candidate) int { return cmp.Compare(b.weight, a.weight) })
	}
	ordered := make([]shelf.Hit, 0, len(first)+len(rest))
	for _, place := range first {
		g := groups[name(place.hit)]
		groups[name(place.hit)] = g[1:]
		h := g[0].hit
		h.Score = place.hit.Score
		ordered = append(ordered, h)
	}
	return append(ordered, rest...), nil
}

// TextOf is the whole text of the version that a citation names.
func (l *Library) TextOf(ctx context.Context, r knowledge.Reader, c Citation) (string, error) {
	d, err := l.Document(c.Document)
	if err != nil || !r.May(d, c.Version) {
		return "", noDocument(c.Document)
	}
	v := d.Version(c.Version)
	if v == nil {
		return "", noDocument(c.Document)
	}
	return l.Text(ctx, d, v)
}

// Rows are the rows of a CSV document that a citation shows whole, with the values of some columns. A version that its author took for their own words, though an agent said
// them, has none, and neither has one in another format.
func (l *Library) Rows(ctx context.Context, c Citation, columns []string) ([]map[string]string, error) {
	d, err := l.Document(c.Document)
	if err != nil {
		return nil, err
	}
	v := d.Version(c.Version)
	if v == nil || v.Type != knowledge.CSV || v.Own != "" || d.Rights(c.Version).Gone {
		return nil, nil
	}
	text, err := l.Text(ctx, d, v)
	if err != nil {
		return nil, err
	}
	return knowledge.Rows(text, c.Span, columns), nil
}

// Reading is a version of a document as an agent reads it.
type Reading struct {
	Citation
	Snapshot string   `json:"snapshot_id"`
	Text     string   `json:"text"`
	Labels   []string `json:"labels"`
	Source   string   `json:"source"`
	Key      string   `json:"key"`
	More     bool     `json:"more,omitempty"` // the text goes on after the span
}

// Read returns a part of a document as a snapshot has it, or in an older version. What the reader may not read, and what the snapshot has not, is not found.
func (l *Library) Read(ctx context.Context, r knowledge.Reader, snapshot, id string, version, offset, most int) (Reading, error) {
	s, err := l.SnapshotByID(snapshot)
	if err != nil {
		return Reading{}, err
	}
	d, err := l.Document(id)
	if err != nil {
		return Reading{}, err
	}
	then, ok := d.AtOrder(s.Order)
	if !ok || then.Gone() {
		return Reading{}, noDocument(id)
	}
	v := then.Version
	if version != 0 && version != v.Version {
		if v = d.Version(version); (v == nil || v.Order > s.Order) && r.May(d, then.Version.Version) {
			return Reading{}, fault.New(fault.NotFound, "The snapshot has the document up to version %d.", then.Version.Version).At("version")
		}
	}
	if v == nil || v.Order > s.Order || !r.May(d, v.Version) {
		return Reading{}, noDocument(id)
	}
	text, err := l.Text(ctx, d, v)
	if err != nil {
		return Reading{}, err
	}
	if offset > len(text) {
		return Reading{}, fault.New(fault.RequestMalformed, "The text has %d bytes.", len(text)).At("offset")
	}
	span := part(text, offset, most)
	return Reading{Citation: Citation{id, v.Version, span}, Snapshot: s.ID, Text: text[span.Start:span.End], Labels: append([]string{}, d.Rights(v.Version).Labels...), Source: d.Source(), Key: d.Key(), More: span.End < len(text)}, nil
}

// part is a part of a text that cuts no character in two.
func part(text string, offset, most int) knowledge.Span {
	whole := func(n int) int {
		for n > 0 && n < len(text) && text[n]&0xC0 == 0x80 {
			n--
		}
		return n
	}
	start := whole(offset)
	return knowledge.Span{Start: start, End: max(whole(min(len(text), offset+most)), start)}
}

// Pin returns the snapshot that a session reads: the newest one, from its first reading on.
func (l *Library) Pin(ctx context.Context, session, agent string) (string, error) {
	pinned, err := l.o.Store.KnowledgePin(ctx, session)
	if pinned != "" || err != nil {
		return pinned, err
	}
	s, err := l.SnapshotByID("")
	if err != nil {
		return "", err
	}
	detail, err := json.Marshal(map[string]string{"snapshot": s.ID})
	if err != nil {
		return "", err
	}
	err = l.o.Store.PinKnowledge(ctx, session, s.ID, audit.Entry{Kind: audit.Change, Action: "knowledge.pin", Agent: agent, Session: session, Actor: "rule:pin", Decision: "ok", Detail: detail})
	if fault.Is(err, fault.Conflict) { // another call of the session was faster
		return l.o.Store.KnowledgePin(ctx, session)
	}
	return s.ID, err
}
