// Package library is the knowledge store at work: documents that people add, change, delete, restore, label, withdraw and erase, snapshots of them, and what is
// found in those.
//
// Promises: nothing is ever changed or removed but the keys of what was erased; each act is an event with its entry of the log, in one transaction, and
// what is in memory follows from events alone; a version that does not follow from the one that its author saw is a Conflict. What is searched is an
// index of one snapshot, built of that alone. Who may read what is asked anew for each hit, by today's labels.
package library

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/knowledge/shelf"
)

// Store keeps events and snapshots. Each method is one transaction with its entries. Errors carry fault.StoreUnavailable, fault.AuditUnavailable or fault.Conflict.
type Store interface {
	// KnowledgeEvents returns all events, those of a document in their order.
	KnowledgeEvents(ctx context.Context) ([]knowledge.Event, error)
	// AddKnowledgeEvents adds events, each with its entry. An event that is there already, or whose predecessor is not, is a Conflict.
	AddKnowledgeEvents(ctx context.Context, events []knowledge.Event, entries []audit.Entry) error
	KnowledgeSnapshots(ctx context.Context) ([]knowledge.Snapshot, error)
	AddKnowledgeSnapshot(ctx context.Context, s knowledge.Snapshot, e audit.Entry) error
	// KnowledgeDigest returns the digest that an index had when it was built; "" if it was not.
	KnowledgeDigest(ctx context.Context, index string) (string, error)
	AddKnowledgeDigest(ctx context.Context, index, digest string, e audit.Entry) error
	// KnowledgePin returns the snapshot that a session reads; "" if it has read none.
	KnowledgePin(ctx context.Context, session string) (string, error)
	PinKnowledge(ctx context.Context, session, snapshot string, e audit.Entry) error
}

// Options of Open.
type Options struct {
	Store Store
	Shelf *shelf.Shelf
	Clock func() time.Time
	Log   *slog.Logger
	// Detect returns the labels of sensitive data in a text, and KnownLabel tells whether there is a label of that name.
	Detect     func(text []byte) []string
	KnownLabel func(label string) bool
	// Erasers tells of two people, as kind:id, whether they are the same human, whatever names they go by, and whether the first is still an admin.
	Erasers func(first, second string) (same, stillAdmin bool)
	// Parse is the text of a file in a format of its own (knowledge.Foreign), of at most knowledge.MaxContent bytes. The file is hostile.
	Parse func(ctx context.Context, mediaType string, file []byte) (text string, err error)
	Said  Said

	Embeddings Embeddings
}

// Library is the open store. Safe for concurrent use.
type Library struct {
	o Options

	acting sync.Mutex // held by an act, from what it read to what it wrote
	doubt  bool       // an act failed, and it is not known whether it was written; guarded by acting

	mu        sync.RWMutex // guards the rest
	documents map[string]*knowledge.Document
	snapshots []knowledge.Snapshot // in the order in which they were made
	order     int64                // of the newest event
	rights    int64                // grows with each event by which somebody may read more or less, and with embeddings
	embedded  embedded

	indexes indexes
	wake    chan struct{} // of what fetches embeddings

	failures map[string]int // by text: how often its embeddings could not be had; for embedNewest alone
}

// Open reads what there is, and finishes erasures that were interrupted.
func Open(ctx context.Context, o Options) (*Library, error) {
	l := &Library{o: o, indexes: indexes{ready: map[string]ready{}, building: map[string]*build{}}, wake: make(chan struct{}, 1), failures: map[string]int{}}
	l.indexes.ctx, l.indexes.stop = context.WithCancel(context.Background())
	if err := l.reload(ctx); err != nil {
		return nil, err
	}
	var erased []string
	for id, d := range l.documents {
		if s := d.Now(); s.Erased {
			erased = append(erased, id)
		}
	}
	if err := l.repair(ctx, erased); err != nil {
		return nil, err
	}
	l.renew()
	return l, nil
}

// repair finishes the erasure of documents that have their keys again, by a crash or by a copy of the file from before, and removes what a crash left of a build.
func (l *Library) repair(ctx context.Context, erased []string) error {
	if len(erased) == 0 {
		return l.o.Shelf.Sweep()
	}
	left, err := l.o.Shelf.Keyed(ctx, erased)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		l.o.Log.Warn("erased documents have their keys again; they are destroyed", "documents", len(left))
		return l.destroy(ctx, left)
	}
	return errors.Join(l.o.Shelf.Sweep(), l.o.Shelf.Destroy(ctx, nil)) // the write-ahead log may still have them
}

// Close ends what is built in the background.
func (l *Library) Close() error {
	l.indexes.stop()
	l.indexes.builds.Wait()
	return l.o.Shelf.Close()
}

// reload reads everything anew.
func (l *Library) reload(ctx context.Context) error {
	events, err := l.o.Store.KnowledgeEvents(ctx)
	if err != nil {
		return err
	}
	snapshots, err := l.o.Store.KnowledgeSnapshots(ctx)
	if err != nil {
		return err
	}
	documents, order := map[string]*knowledge.Document{}, int64(0)
	for _, e := range events {
		d, err := documents[e.Document].Follow(e)
		if err != nil {
			return fault.Wrap(err, fault.StoreUnavailable, "The knowledge store is not what its events say.").Try("Put back a backup of the whole data directory.")
		}
		documents[e.Document], order = d, max(order, e.Order)
	}
	slices.SortStableFunc(snapshots, func(a, b knowledge.Snapshot) int { return cmp.Compare(a.Order, b.Order) })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.documents, l.snapshots, l.order = documents, snapshots, order
	l.rights++
	return nil
}

func noDocument(id string) *fault.Error {
	return fault.New(fault.NotFound, "There is no document %.80q here.", id).At("document_id").Try("Take an id from a search or from the list of documents.")
}

// Adding is a document to add.
type Adding struct {
	Key, Source, Type, Content, Snapshot string
	Labels                               []string
	UnlessSame                           bool // of a version: nothing is done if the newest one has the same text
	NoCorrection                         bool // nobody says that it corrects what was withdrawn, so it doesn't
	Own                                  bool // the author says that the text is theirs, though it is like what an agent said

	exported bool // it is what people answered of agents' recommendations
}

// Add adds a document in its first version. Where the key is taken it is a Conflict that names the document.
func (l *Library) Add(ctx context.Context, by string, a Adding) (*knowledge.Document, error) {
	if err := l.MayAdd(&a); err != nil {
		return nil, err
	}
	if err := l.convert(ctx, &a); err != nil {
		return nil, err
	}
	if err := l.takeExport(ctx, a.Source, &a); err != nil {
		return nil, err
	}
	labels, err := l.labels(a.Content, a.Labels)
	if err != nil {
		return nil, err
	}
	id := knowledge.DocumentID(a.Source, a.Key)
	return l.act(ctx, id, func(d *knowledge.Document) (e knowledge.Event, err error) {
		if d != nil {
			s := d.Now()
			return e, fault.New(fault.Conflict, "There is a document with this key already: %s, at version %d.", id, s.Version.Version).At("key").
				Try("Add a version to it, with expected_version.")
		}
		from, err := l.refuseAgentsWords(&a)
		if err != nil {
			return e, err
		}
		e = knowledge.Event{Kind: knowledge.Versioned, By: by, Version: 1, Key: a.Key, Source: a.Source, Type: a.Type, Size: len(a.Content), Snapshot: a.Snapshot, Labels: labels, Own: from}
		return e, l.keep(ctx, id, a.Content, &e)
	})
}

// MayAdd refuses a key, a collection or labels that no document can have, before its content is there.
func (l *Library) MayAdd(a *Adding) error {
	if err := knowledge.CheckKey(a.Key); err != nil {
		return err
	}
	if err := identity.CheckID(a.Source); err != nil {
		return fault.Wrap(err, fault.RequestMalformed, "%v.", err).At("source").Try("Use letters, digits, '.', '_' and '-'.")
	}
	_, err := l.labels("", a.Labels)
	return err
}

// Moved is the Conflict of a version that does not follow from the newest.
type Moved struct {
	Current int
	error
}

func (m *Moved) Unwrap() error { return m.error }

// AddVersion adds a version after the one that its author expects to be the newest; else the error is a *Moved. It keeps the labels of the one before. Of a withdrawn document it corrects
// the text: the withdrawal ends for this version and those to come, and the ones before stay withdrawn.
func (l *Library) AddVersion(ctx context.Context, by, id string, expected int, a Adding) (*knowledge.Document, error) {
	if err := l.convert(ctx, &a); err != nil {
		return nil, err
	}
	there, err := l.Document(id)
	if err != nil {
		return nil, err
	}
	if err := l.takeExport(ctx, there.Source(), &a); err != nil {
		return nil, err
	}
	return l.act(ctx, id, func(d *knowledge.Document) (e knowledge.Event, err error) {
		if d == nil {
			return e, noDocument(id)
		}
		s := d.Now()
		if s.Withdrawn && a.NoCorrection {
			return e, fault.New(fault.Conflict, "The document was withdrawn, and only a person can correct it.").Try("Have an operator read the new text and add it as a version, or restore the document.")
		}
		before := s
		before.Withdrawn = false
		if err := standing(&before); err != nil {
			return e, err
		}
		if s.Version.Version != expected {
			return e, &Moved{s.Version.Version, fault.New(fault.Conflict, "The document is at version %d, and not at %d.", s.Version.Version, expected).
				At("expected_version").Try("Read the newest version, and add yours after it.")}
		}
		if a.UnlessSame && !s.Withdrawn { // of a withdrawn one, its text is refused
			switch text, err := l.Text(ctx, d, s.Version); {
			case err != nil:
				return e, err
			case text == a.Content:
				return e, errSame
			}
		}
		from, err := l.refuseAgentsWords(&a)
		if err != nil {
			return e, err
		}
		labels, err := l.labels(a.Content, append(slices.Clone(s.Labels), a.Labels...))
		if err != nil {
			return e, err
		}
		e = knowledge.Event{Kind: knowledge.Versioned, By: by, Version: expected + 1, Type: a.Type, Size: len(a.Content), Snapshot: a.Snapshot, Labels: labels, Own: from}
		if err := l.keep(ctx, id, a.Content, &e); err != nil {
			return e, err
		}
		if slices.ContainsFunc(d.Events, func(o knowledge.Event) bool {
			return o.Kind == knowledge.Versioned && o.Hash == e.Hash && d.Rights(o.Version).Gone
		}) {
			return e, fault.New(fault.Conflict, "This is the text of a version that was withdrawn.").At("content").Try("Give a corrected text; if the withdrawal was a mistake, restore the document.")
		}
		return e, nil
	})
}

// Saved is what Save did.
type Saved string

const (
	Added     Saved = "added"
	Version   Saved = "new version"
	Unchanged Saved = "unchanged"
)

// Save adds a document, or where there is one with the key its next version; of the same text nothing is made.
func (l *Library) Save(ctx context.Context, by string, a Adding) (*knowledge.Document, Saved, error) {
	d, err := l.Add(ctx, by, a)
	if !fault.Is(err, fault.Conflict) {
		return d, Added, err
	}
	there, found := l.Document(knowledge.DocumentID(a.Source, a.Key))
	if found != nil {
		return nil, "", err
	}
	before := there.Now().Version.Version
	a.UnlessSame = true
	d, err = l.AddVersion(ctx, by, there.ID(), before, a)
	if err == nil && d.Now().Version.Version == before {
		return d, Unchanged, nil
	}
	return d, Version, err
}

// keep puts a text on the shelf, before the event that names it.
func (l *Library) keep(ctx context.Context, id, content string, e *knowledge.Event) error {
	e.Content = shelf.NewTextID()
	hashes, err := l.o.Shelf.Put(ctx, []shelf.Text{{Document: id, ID: e.Content, Content: content}})
	if err == nil {
		e.Hash = hashes[0]
	}
	return err
}

// Delete deletes a document softly: the next snapshot is without it.
func (l *Library) Delete(ctx context.Context, by, id, reason string) (*knowledge.Document, error) {
	return l.change(ctx, by, id, reason, knowledge.Deleted, standing)
}

// Restore ends a deletion or a withdrawal, but not of versions that were corrected.
func (l *Library) Restore(ctx context.Context, by, id, reason string) (*knowledge.Document, error) {
	return l.change(ctx, by, id, reason, knowledge.Restored, func(s *knowledge.State) error {
		if s.Erased {
			return erased()
		}
		if !s.Gone() {
			return fault.New(fault.Conflict, "The document is neither deleted nor withdrawn.")
		}
		return nil
	})
}

func erased() error {
	return fault.New(fault.Conflict, "The document is erased: nobody can read it any more.")
}

// standing refuses acts on a document that is gone.
func standing(s *knowledge.State) error {
	switch {
	case s.Erased:
		return erased()
	case s.Gone():
		return fault.New(fault.Conflict, "The document is deleted or withdrawn.").Try("Restore it first.")
	}
	return nil
}

// SetLabels gives the newest version of a document, and those to come, other labels; the reason says why it may lose some. Older versions lose none.
func (l *Library) SetLabels(ctx context.Context, by, id, reason string, labels []string) (*knowledge.Document, error) {
	labels, err := l.labels("", labels)
	if err != nil {
		return nil, err
	}
	if err := checkReason(reason); err != nil {
		return nil, err
	}
	d, err := l.act(ctx, id, func(d *knowledge.Document) (e knowledge.Event, err error) {
		if d == nil {
			return e, noDocument(id)
		}
		if s := d.Now(); s.Erased {
			return e, erased()
		}
		return knowledge.Event{Kind: knowledge.Labelled, By: by, Reason: reason, Labels: labels}, nil
	})
	return d, l.renewAfter(err)
}

// change is an act that takes a reason and nothing else.
func (l *Library) change(ctx context.Context, by, id, reason string, kind knowledge.Kind, may func(*knowledge.State) error) (*knowledge.Document, error) {
	if err := checkReason(reason); err != nil {
		return nil, err
	}
	return l.act(ctx, id, func(d *knowledge.Document) (e knowledge.Event, err error) {
		if d == nil {
			return e, noDocument(id)
		}
		s := d.Now()
		if err := may(&s); err != nil {
			return e, err
		}
		return knowledge.Event{Kind: kind, By: by, Reason: reason}, nil
	})
}

func checkReason(reason string) error {
	if strings.TrimSpace(reason) == "" || len(reason) > knowledge.MaxReason {
		return fault.New(fault.RequestMalformed, "A reason is needed, of at most %d bytes.", knowledge.MaxReason).At("reason").Try("Say why: it goes on the record.")
	}
	return nil
}

func checkText(content string) error {
	switch {
	case strings.TrimSpace(content) == "":
		return fault.New(fault.RequestMalformed, "The content is empty.").At("content")
	case len(content) > knowledge.MaxContent:
		return fault.New(fault.RequestMalformed, "The content has %d bytes, and at most %d are taken.", len(content), knowledge.MaxContent).At("content").Try("Split it into several documents.")
	case !utf8.ValidString(content) || strings.ContainsRune(content, 0):
		return fault.New(fault.RequestMalformed, "The content is not text in UTF-8.").At("content").Try("Convert it to UTF-8.")
	}
	return nil
}

// convert makes the text that is kept of what was given.
func (l *Library) convert(ctx context.Context, a *Adding) error {
	if a.Type == "" {
		a.Type = knowledge.Plain
	}
	if !slices.Contains(knowledge.Types, a.Type) {
		return fault.New(fault.RequestMalformed, "%.80q is not taken.", a.Type).At("content_type").Try("Give one of %s.", strings.Join(knowledge.Types, ", "))
	}
	if knowledge.Foreign(a.Type) {
		if len(a.Content) > knowledge.MaxFile {
			return fault.New(fault.RequestMalformed, "The file has %d bytes, and at most %d are taken.", len(a.Content), knowledge.MaxFile).At("content").Try("Split it into several documents.")
		}
		text, err := l.o.Parse(ctx, a.Type, []byte(a.Content))
		if err != nil {
			return err
		}
		a.Content = text
	}
	if err := checkText(a.Content); err != nil {
		return err
	}
	a.Content = strings.ReplaceAll(a.Content, "\r\n", "\n")
	return nil
}

// labels are those that a document gets: given ones, and those of what is found in the text.
func (l *Library) labels(content string, given []string) ([]string, error) {
	for _, label := range given {
		if !l.o.KnownLabel(label) {
			return nil, fault.New(fault.RequestMalformed, "There is no confidentiality label %.80q.", label).At("labels").Try("An operator can add it under flow.labels in sallyport.yaml.")
		}
	}
	all := slices.Clone(given)
	for _, label := range l.o.Detect([]byte(content)) {
		if l.o.KnownLabel(label) {
			all = append(all, label)
		}
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) > knowledge.MaxLabels {
		return nil, fault.New(fault.RequestMalformed, "A document has at most %d labels.", knowledge.MaxLabels).At("labels")
	}
	return all, nil
}

// errSame ends an act that has nothing to do.
var errSame = errors.New("nothing changed")

// act makes one event of one document.
func (l *Library) act(ctx context.Context, id string, make func(*knowledge.Document) (knowledge.Event, error)) (*knowledge.Document, error) {
	l.acting.Lock()
	defer l.acting.Unlock()
	if err := l.settle(ctx); err != nil {
		return nil, err
	}
	e, err := make(l.documents[id])
	if err == errSame {
		return l.documents[id], nil
	}
	if err != nil {
		return nil, err
	}
	e.Document = id
	done, err := l.write(ctx, []knowledge.Event{e}, "")
	if err != nil {
		return nil, err
	}
	return done[0], nil
}

// settle finds out, after an act that failed, whether it was written all the same.
func (l *Library) settle(ctx context.Context) error {
	if !l.doubt {
		return nil
	}
	err := l.reload(ctx)
	l.doubt = err != nil
	return err
}

// write makes events durable, with their entries, and then known. It numbers them; group joins those of one act.
func (l *Library) write(ctx context.Context, events []knowledge.Event, group string) ([]*knowledge.Document, error) {
	now := l.o.Clock().UTC()
	documents, entries := make([]*knowledge.Document, len(events)), make([]audit.Entry, len(events))
	for i := range events {
		e := &events[i]
		d := l.documents[e.Document]
		e.At, e.Order, e.Seq = now, l.order+1+int64(i), 1
		if d != nil {
			e.Seq = len(d.Events) + 1
		}
		next, err := d.Follow(*e)
		if err != nil {
			return nil, fault.Wrap(err, fault.Conflict, "The document is in another state than this needs.")
		}
		documents[i] = next
		if entries[i], err = entryOf(next, e, group); err != nil {
			return nil, err
		}
	}
	if err := l.o.Store.AddKnowledgeEvents(ctx, events, entries); err != nil {
		l.doubt = true
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.documents
	for i, d := range documents {
		next[d.ID()] = d
		if k := events[i].Kind; k != knowledge.Versioned && k != knowledge.Deleted {
			l.rights++
		}
	}
	l.order += int64(len(events))
	return documents, nil
}

// actions are the actions of entries by the kind of event.
var actions = map[knowledge.Kind]string{
	knowledge.Versioned: "knowledge.version", knowledge.Deleted: "knowledge.delete", knowledge.Restored: "knowledge.restore", knowledge.Labelled: "knowledge.label",
	knowledge.Withdrawn: "knowledge.withdraw", knowledge.EraseAsk: "knowledge.erase_ask", knowledge.Erased: "knowledge.erase",
}

// entryOf is the entry of an event. It has the keyed hash of a text, and nothing of the text.
func entryOf(d *knowledge.Document, e *knowledge.Event, group string) (audit.Entry, error) {
	action := actions[e.Kind]
	if e.Kind == knowledge.Versioned && e.Version == 1 {
		action = "knowledge.add"
	}
	detail, err := json.Marshal(struct {
		Document string `json:"document"`
		Source   string `json:"source"`
		Key      string `json:"key"`
		Version  int    `json:"version"`
		Hash     string `json:"hash,omitempty"`
		Size     int    `json:"size,omitempty"`
		Snapshot string `json:"snapshot,omitempty"`
		Own      string `json:"own,omitempty"`
		Group    string `json:"withdrawal,omitempty"`
	}{d.ID(), d.Source(), d.Key(), d.Now().Version.Version, e.Hash, e.Size, e.Snapshot, e.Own, group})
	return audit.Entry{Kind: audit.Change, Action: action, Actor: e.By, Decision: "ok", Reason: audit.Clip(e.Reason), Labels: e.Labels, Detail: detail}, err
}

// Documents returns documents by their ids, after the one with that id, at most some, of one collection or ("") of all.
func (l *Library) Documents(after, source string, most int) (page []*knowledge.Document) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, id := range slices.Sorted(maps.Keys(l.documents)) {
		if d := l.documents[id]; id > after && (source == "" || d.Source() == source) {
			if page = append(page, d); len(page) == most {
				break
			}
		}
	}
	return page
}

// Collection is a collection with how many documents it has, deleted ones among them.
type Collection struct {
	Name      string
	Documents int
}

// Collections are those that have documents, by name.
func (l *Library) Collections() (all []Collection) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	counts := map[string]int{}
	for _, d := range l.documents {
		counts[d.Source()]++
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, Collection{name, counts[name]})
	}
	return all
}

// Document returns a document for a person, whatever became of it.
func (l *Library) Document(id string) (*knowledge.Document, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if d := l.documents[id]; d != nil {
		return d, nil
	}
	return nil, noDocument(id)
}

// Text returns the text of a version. NotFound: it was erased.
func (l *Library) Text(ctx context.Context, d *knowledge.Document, v *knowledge.Event) (string, error) {
	if s := d.Now(); s.Erased {
		return "", fault.New(fault.NotFound, "The document was erased.")
	}
	content, hash, err := l.o.Shelf.Get(ctx, d.ID(), v.Content)
	if err == nil && hash != v.Hash {
		err = fault.New(fault.StoreUnavailable, "The text of %s is not the one that the log names.", d.ID()).Try("Put back a backup of the whole data directory.")
	}
	return content, err
}

// Snapshot makes a snapshot of the documents that are there now, and its index. Where nothing changed since the newest, it is that.
func (l *Library) Snapshot(ctx context.Context, by, reason string) (knowledge.Snapshot, error) {
	s, err := l.snapshot(ctx, by, reason)
	if err != nil {
		return s, err
	}
	_, err = l.index(ctx, s.ID)
	l.EmbedSoon()
	return s, err
}

func (l *Library) snapshot(ctx context.Context, by, reason string) (knowledge.Snapshot, error) {
	l.acting.Lock()
	defer l.acting.Unlock()
	if err := l.settle(ctx); err != nil {
		return knowledge.Snapshot{}, err
	}
	s := knowledge.SnapshotOf(knowledge.Members(l.documents, l.order), l.order, l.o.Clock().UTC(), by)
	if n := len(l.snapshots); n > 0 && l.snapshots[n-1].Root == s.Root {
		return l.snapshots[n-1], nil
	}
	detail, err := json.Marshal(s)
	if err != nil {
		return s, err
	}
	if err := l.o.Store.AddKnowledgeSnapshot(ctx, s, audit.Entry{Kind: audit.Change, Action: "knowledge.snapshot", Actor: by, Decision: "ok", Reason: audit.Clip(reason), Detail: detail}); err != nil {
		l.doubt = true
		return s, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.snapshots = append(l.snapshots, s)
	return s, nil
}

// Snapshots returns the snapshots, the newest first.
func (l *Library) Snapshots() []knowledge.Snapshot {
	l.mu.RLock()
	defer l.mu.RUnlock()
	all := slices.Clone(l.snapshots)
	slices.Reverse(all)
	return all
}

// SnapshotWith is the id of the newest snapshot that has a version of a document; "" if none has.
func (l *Library) SnapshotWith(d *knowledge.Document, version int) string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	before := int64(math.MaxInt64) // of the event after the one that is looked at: snapshots between the two see the document alike
	for i := len(d.Events) - 1; i >= 0; i-- {
		from := d.Events[i].Order
		s, _ := d.AtOrder(from)
		if s.Version.Version < version {
			break
		}
		if s.Version.Version == version && !s.Gone() {
			n, _ := slices.BinarySearchFunc(l.snapshots, before, func(s knowledge.Snapshot, order int64) int { return cmp.Compare(s.Order, order) })
			if n > 0 && l.snapshots[n-1].Order >= from {
				return l.snapshots[n-1].ID
			}
		}
		before = from
	}
	return ""
}

// SnapshotByID returns a snapshot; the newest for "".
func (l *Library) SnapshotByID(id string) (knowledge.Snapshot, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if id == "" && len(l.snapshots) > 0 {
		return l.snapshots[len(l.snapshots)-1], nil
	}
	for _, s := range l.snapshots {
		if s.ID == id {
			return s, nil
		}
	}
	if id == "" {
		return knowledge.Snapshot{}, fault.New(fault.NotFound, "There is no snapshot of the knowledge store yet.").Try("A person makes one: sallyport knowledge snapshot.")
	}
	return knowledge.Snapshot{}, fault.New(fault.NotFound, "There is no snapshot %.80q.", id).At("snapshot")
}

// Withdrawal says what to withdraw: documents for which all that is given holds.
type Withdrawal struct {
	Source, Author string
	From, To       time.Time // of any version
}

// Withdraw takes documents out of every snapshot at once, and returns them.
func (l *Library) Withdraw(ctx context.Context, by, reason string, w Withdrawal) ([]*knowledge.Document, error) {
	if err := checkReason(reason); err != nil {
		return nil, err
	}
	if w == (Withdrawal{}) {
		return nil, fault.New(fault.RequestMalformed, "Say which documents: by source, author, from or to.").At("source")
	}
	done, err := l.withdraw(ctx, by, reason, w)
	return done, l.renewAfter(err)
}

func (l *Library) withdraw(ctx context.Context, by, reason string, w Withdrawal) ([]*knowledge.Document, error) {
	l.acting.Lock()
	defer l.acting.Unlock()
	if err := l.settle(ctx); err != nil {
		return nil, err
	}
	var events []knowledge.Event
	for _, id := range slices.Sorted(maps.Keys(l.documents)) {
		d := l.documents[id]
		if s := d.Now(); !s.Withdrawn && !s.Erased && w.covers(d) {
			events = append(events, knowledge.Event{Document: id, Kind: knowledge.Withdrawn, By: by, Reason: reason})
		}
	}
	if len(events) == 0 {
		return nil, fault.New(fault.NotFound, "No document is meant by that.")
	}
	return l.write(ctx, events, fmt.Sprintf("withdraw_%d", l.order+1))
}

// covers tells whether one version of the document is meant, of those that are not withdrawn.
func (w Withdrawal) covers(d *knowledge.Document) bool {
	if w.Source != "" && d.Source() != w.Source {
		return false
	}
	poisoned := d.Now().Poisoned
	return slices.ContainsFunc(d.Events, func(e knowledge.Event) bool {
		return e.Kind == knowledge.Versioned && e.Version > poisoned && (w.Author == "" || e.By == w.Author || e.By == "person:"+w.Author) &&
			(w.From.IsZero() || !e.At.Before(w.From)) && (w.To.IsZero() || e.At.Before(w.To))
	})
}

// EraseTime is how long a first request to erase waits for a second one.
const EraseTime = 7 * 24 * time.Hour

// Erase destroys the key of a document, once two people asked for it: the first call asks, and done is false. A request that is too old, or whose author is no admin any more, does not count, and is asked anew. Of a document that is erased it does the destruction again, which may
// have been interrupted.
func (l *Library) Erase(ctx context.Context, by, id, reason string) (d *knowledge.Document, done bool, err error) {
	if err := checkReason(reason); err != nil {
		return nil, false, err
	}
	d, err = l.act(ctx, id, func(d *knowledge.Document) (e knowledge.Event, err error) {
		if d == nil {
			return e, noDocument(id)
		}
		s := d.Now()
		same, counts := s.EraseAsked == by, s.EraseAsked != "" && l.o.Clock().Before(s.EraseAt.Add(EraseTime))
		if counts && !same {
			same, counts = l.o.Erasers(s.EraseAsked, by)
		}
		switch {
		case s.Erased:
			return e, errSame
		case same && counts:
			return e, fault.New(fault.Conflict, "You have asked for this erasure; a second admin has to ask for it, too.").Try("Have another admin run: sallyport knowledge erase %s", id)
		}
		e = knowledge.Event{Kind: knowledge.EraseAsk, By: by, Reason: reason}
		if counts {
			e.Kind = knowledge.Erased
		}
		return e, nil
	})
	if err != nil {
		return nil, false, err
	}
	if s := d.Now(); !s.Erased {
		return d, false, nil
	}
	err = l.destroy(ctx, []string{id})
	l.renew()
	return d, err == nil, err
}

// destroy destroys keys, and before them every index and what is being built: words of the texts are in those. It can be done again.
func (l *Library) destroy(ctx context.Context, documents []string) error {
	if err := l.endBuilds(ctx); err != nil {
		return err
	}
	if err := l.dropIndexes(func(string) bool { return true }); err != nil {
		return err
	}
	if err := l.o.Shelf.Sweep(); err != nil {
		return err
	}
	return l.o.Shelf.Destroy(ctx, documents)
}
