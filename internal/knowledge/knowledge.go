// Package knowledge holds what a document of the knowledge store is: its id, its history as events that are only ever added, what it was at a time, how
// its text is cut into chunks and words, and the list that a snapshot pins. It is pure.
//
// Promises: an id follows from collection and key alone; a document is what its events say, in their order, and an event that does not follow from those before
// is an error; a snapshot's id follows from what is in it. Who may read a version is decided in one place, Reader.May, by the labels that this version has now: what a
// person takes off a newer version stays on the older ones.
package knowledge

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"sallyport.example/internal/fault"
)

// Kind is what an event did to a document.
type Kind string

const (
	Versioned Kind = "version"  // a new version; the first makes the document
	Deleted   Kind = "delete"   // a soft deletion
	Restored  Kind = "restore"  // the end of a deletion, or of a withdrawal that no new version ended
	Labelled  Kind = "labels"   // other labels
	Withdrawn Kind = "withdraw" // gone at once from every snapshot
	EraseAsk  Kind = "erase.ask"
	Erased    Kind = "erase" // the key of its content is destroyed
)

const (
	// MaxKey bounds the key of a document, MaxContent its text, MaxFile a file that its text is taken from, and MaxReason a reason, in bytes.
	MaxKey     = 1 << 10
	MaxContent = 2 << 20
	MaxFile    = 16 << 20
	MaxReason  = 2000
	MaxLabels  = 16
)

// ExportCollection is the collection that exports of recommendations go into, which people answered: the one way in for an agent's words.
const ExportCollection = "snapshot"

// Event is one thing that happened to a document. It is never changed.
type Event struct {
	Document string    `json:"document"`
	Seq      int       `json:"seq"`   // of the document, from 1
	Order    int64     `json:"order"` // of all events, rising
	Kind     Kind      `json:"kind"`
	At       time.Time `json:"at"`
	By       string    `json:"by"` // a person or host, as kind:id
	Reason   string    `json:"reason,omitempty"`

	// Of Versioned.
	Version  int    `json:"version,omitempty"`
	Hash     string `json:"hash,omitempty"`    // HMAC-SHA256 of the text under the document's key, in hex
	Content  string `json:"content,omitempty"` // which sealed text it is
	Size     int    `json:"size,omitempty"`
	Type     string `json:"type,omitempty"`     // media type of what was given
	Snapshot string `json:"snapshot,omitempty"` // the snapshot or export that it is from
	Own      string `json:"own,omitempty"`      // the run or recommendation that the text is like: its author said that it is theirs
	Key      string `json:"key,omitempty"`      // of the first version
	Source   string `json:"source,omitempty"`   // the collection, of the first version

	Labels []string `json:"labels,omitempty"` // of Versioned and Labelled: those of the newest version from then on
}

// RowKey is the key of an event's row in the store.
func (e *Event) RowKey() string { return fmt.Sprintf("%s/%06d", e.Document, e.Seq) }

// DocumentID is the id of the document with a key in a collection.
func DocumentID(source, key string) string {
	sum := sha256.Sum256([]byte("sallyport document v1\x00" + source + "\x00" + key))
	return "doc_" + hex.EncodeToString(sum[:20])
}

// Document is what the events of one document say. It is never changed: Follow returns the next one.
type Document struct {
	Events []Event // in order, at least one
}

// ID is the document's id.
func (d *Document) ID() string { return d.Events[0].Document }

// Key is the key under which the document was added.
func (d *Document) Key() string { return d.Events[0].Key }

// Source is the collection.
func (d *Document) Source() string { return d.Events[0].Source }

// Follow returns the document after an event; d is nil before the first.
func (d *Document) Follow(e Event) (*Document, error) {
	wrong := func(why string) error {
		return fmt.Errorf("event %d of %s (%s) does not follow: %s", e.Seq, e.Document, e.Kind, why)
	}
	if d == nil {
		if e.Seq != 1 || e.Kind != Versioned || e.Version != 1 || e.Document != DocumentID(e.Source, e.Key) {
			return nil, wrong("a document begins with its first version")
		}
		return &Document{Events: []Event{e}}, nil
	}
	s := d.Now()
	last := d.Events[len(d.Events)-1]
	switch {
	case e.Document != d.ID() || e.Seq != last.Seq+1 || e.Order <= last.Order:
		return nil, wrong("it is not the next one")
	case s.Erased:
		return nil, wrong("the document is erased")
	case e.Kind == Versioned && e.Version != s.Version.Version+1:
		return nil, wrong("its version is not the next one")
	case e.Kind == Versioned && s.Deleted, e.Kind == Deleted && s.Deleted, e.Kind == Withdrawn && s.Withdrawn, e.Kind == Restored && !s.Gone():
		return nil, wrong("of the state that the document is in")
	case e.Kind == Erased && (s.EraseAsked == "" || s.EraseAsked == e.By):
		return nil, wrong("two people erase")
	}
	return &Document{Events: append(d.Events[:len(d.Events):len(d.Events)], e)}, nil
}

// State is a document at one moment.
type State struct {
	Version    *Event   // the newest
	Labels     []string // of the newest version, sorted
	Deleted    bool
	DeletedAt  time.Time
	Withdrawn  bool // all versions
	Poisoned   int  // versions up to this one stay withdrawn: one that came after them ended the withdrawal
	Erased     bool
	EraseAsked string // who asked for the erasure and waits for a second person
	EraseAt    time.Time
}

// Gone reports whether it is deleted, withdrawn or erased.
func (s *State) Gone() bool { return s.Deleted || s.Withdrawn || s.Erased }

// Now is the document as all its events leave it.
func (d *Document) Now() State { return d.state(func(*Event) bool { return true }) }

// AsOf is the document as it was at a time; false if it was not there yet.
func (d *Document) AsOf(at time.Time) (State, bool) {
	s := d.state(func(e *Event) bool { return !e.At.After(at) })
	return s, s.Version != nil
}

// AtOrder is the document after the event with that order; false if it was not there yet.
func (d *Document) AtOrder(order int64) (State, bool) {
	s := d.state(func(e *Event) bool { return e.Order <= order })
	return s, s.Version != nil
}

func (d *Document) state(counts func(*Event) bool) (s State) {
	for i := range d.Events {
		e := &d.Events[i]
		if !counts(e) {
			break
		}
		switch e.Kind {
		case Versioned:
			if s.Withdrawn {
				s.Withdrawn, s.Poisoned = false, s.Version.Version
			}
			s.Version, s.Labels = e, e.Labels
		case Labelled:
			s.Labels = e.Labels
		case Deleted:
			s.Deleted, s.DeletedAt = true, e.At
		case Withdrawn:
			s.Withdrawn = true
		case Restored:
			s.Deleted, s.DeletedAt, s.Withdrawn = false, time.Time{}, false
		case EraseAsk:
			s.EraseAsked, s.EraseAt = e.By, e.At
		case Erased:
			s.Erased = true
		}
	}
	return s
}

// Rights are what decides who may read a version.
type Rights struct {
	Labels []string // sorted
	Gone   bool     // withdrawn or erased
}

// Rights of a version as all events leave them. A change of labels replaces those of the version that was the newest then. Older versions lose nothing by it, and get what it
// added and did not take back.
func (d *Document) Rights(version int) (r Rights) {
	var added, before []string // by changes of labels of the version that is looked at, and the labels that it came with
	n := 0
	for i := range d.Events {
		e := &d.Events[i]
		switch {
		case e.Kind == Versioned:
			if n = e.Version; n == version {
				r.Labels = slices.Clone(e.Labels)
			}
			r.Labels, added, before = append(r.Labels, added...), nil, e.Labels
		case e.Kind == Labelled && n == version:
			r.Labels = slices.Clone(e.Labels)
		case e.Kind == Labelled && n > version:
			added = slices.DeleteFunc(slices.Clone(e.Labels), func(l string) bool { return slices.Contains(before, l) })
		}
	}
	r.Labels = append(r.Labels, added...)
	slices.Sort(r.Labels)
	r.Labels = slices.Compact(r.Labels)
	s := d.Now()
	r.Gone = s.Withdrawn || version <= s.Poisoned || s.Erased
	return r
}

// Version is a version by its number; nil if there is none.
func (d *Document) Version(n int) *Event {
	for i := range d.Events {
		if e := &d.Events[i]; e.Kind == Versioned && e.Version == n {
			return e
		}
	}
	return nil
}

// Reader is what somebody may read.
type Reader struct {
	All        bool     // a person: everything
	AllSources bool     // every collection
	Sources    []string // or these
	AllLabels  bool     // every confidentiality label
	Labels     []string // or these
}

// Declared is the reader of an agent whose declaration names these collections, all of them with a star, and these labels.
func Declared(collections, labels []string) Reader {
	return Reader{AllSources: slices.Contains(collections, "*"), Sources: collections, Labels: labels}
}

// MayGroup tells whether documents of a collection with these labels may be read.
func (r Reader) MayGroup(source string, labels []string) bool {
	return r.All || (r.AllSources || slices.Contains(r.Sources, source)) && (r.AllLabels || !slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(r.Labels, l) }))
}

// May tells whether a version of a document may be read, by the collection and the labels that this version has now. Nobody reads what is withdrawn or erased.
func (r Reader) May(d *Document, version int) bool {
	now := d.Rights(version)
	return !now.Gone && r.MayGroup(d.Source(), now.Labels)
}

// CheckKey refuses keys that could not be kept or shown.
func CheckKey(key string) error {
	if key == "" || len(key) > MaxKey {
		return fault.New(fault.RequestMalformed, "A key has 1 to %d bytes.", MaxKey).At("key").Try("Give the path or address that the document is from.")
	}
	return nil
}

// Erasure says that a document was erased, and by whom.
type Erasure struct {
	Document string    `json:"documentId"`
	AskedBy  string    `json:"asked_by"`
	AskedAt  time.Time `json:"asked_at"`
	By       string    `json:"by"`
	At       time.Time `json:"at"`
}
