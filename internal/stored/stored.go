// Package stored keeps the confidentiality labels of what was written to servers: a write in a session that holds labels gives them to what it
// wrote, and whoever reads it gets them. They are durable, and only a person takes them off. It also keeps hashes of what untrusted sessions wrote, which
// confirms nothing when it is read.
package stored

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/sentence"
	"sallyport.example/provenance"
)

// maxMarks bounds the marks of one kind of records of a server. Where there would be more, all records of the kind are marked.
const maxMarks = 1000

// Place is where something is stored.
type Place struct {
	Server string `json:"server"`
	Kind   string `json:"id_kind,omitempty"` // of records; "": everything that the server gives back
	Record string `json:"record,omitempty"`  // the id of one; "": all of the kind
}

// Mark is the labels that one place has.
type Mark struct {
	ID string `json:"id"`
	Place
	Making string      `json:"making,omitempty"` // the call that makes a record, whose id is not known yet: it may be any of the kind
	Labels []flow.Held `json:"labels"`           // each with the call that wrote it
	Since  time.Time   `json:"since"`
	Launch string      `json:"launch,omitempty"` // the hash of how the server was started or reached
	// Released is when a person took the last label off, until there is one again.
	Released time.Time `json:"released,omitzero"`
}

// Dropped reports whether nothing has to be known of the mark any more. What a person released is known, so that releasing it again is no error.
func (mark *Mark) Dropped() bool { return len(mark.Labels) == 0 && mark.Released.IsZero() }

// Store keeps marks.
type Store interface {
	// StoredMarks returns all marks.
	StoredMarks(ctx context.Context) ([]Mark, error)
	// SaveStoredMarks writes marks by their ids, and the entry, in one transaction. Those that are Dropped are removed.
	SaveStoredMarks(ctx context.Context, marks []Mark, e audit.Entry) error
}

// Write is a call that stores something.
type Write struct {
	Server, Operation, CallID string
	Profile                   *provenance.Profile
	Arguments                 []byte
	Labels                    []flow.Held // what the session holds
	Entry                     audit.Entry // who calls, for the record
	Now                       time.Time
}

// Marks are the marks of all servers, in memory as in the store. Safe for concurrent use.
type Marks struct {
	store   Store
	servers Servers

	changing sync.Mutex // held from what memory says until store and memory say something else
	mu       sync.RWMutex
	known    map[string]*server
}

// Servers are those of the configuration, each with the hash of how it is started or reached.
type Servers map[string]string

// renamed are the servers that may be the one which had this name: none while it is there as it was.
func (s Servers) renamed(name, launch string) (now []string) {
	if launch == "" || s[name] == launch {
		return nil
	}
	for other, same := range s {
		if same == launch {
			now = append(now, other)
		}
	}
	return now
}

// server has the marks of one server, and what follows from them.
type server struct {
	marks map[string]Mark // by id; never changed in place
	all   []flow.Held     // each label once
	kinds map[string]*kind
}

// kind has the marks of one kind of records; "" is the kind of everything.
type kind struct {
	all     []flow.Held // also of single records
	whole   []flow.Held // of the kind, or of a record that is not known
	records map[string][]flow.Held
	marks   int
}

// Open reads the marks. Those of a server that the configuration no longer has as it was hold for each one that is started or reached in that way, too.
func Open(ctx context.Context, s Store, servers Servers) (*Marks, error) {
	found, err := s.StoredMarks(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the labels of stored data: %w", err)
	}
	m := &Marks{store: s, servers: servers, known: map[string]*server{}}
	for _, mark := range found {
		for _, now := range servers.renamed(mark.Server, mark.Launch) {
			renamed := mark
			renamed.Server = now
			found = append(found, renamed)
		}
	}
	m.take(found)
	return m, nil
}

// take puts marks into memory, as they were saved.
func (m *Marks) take(marks []Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	touched := map[string]map[string]Mark{}
	for _, mark := range marks {
		to := touched[mark.Server]
		if to == nil {
			if to = map[string]Mark{}; m.known[mark.Server] != nil {
				to = maps.Clone(m.known[mark.Server].marks)
			}
			touched[mark.Server] = to
		}
		if to[mark.ID] = mark; mark.Dropped() {
			delete(to, mark.ID)
		}
	}
	for name, to := range touched {
		if len(to) == 0 {
			delete(m.known, name)
		} else {
			m.known[name] = summed(to)
		}
	}
}

func summed(marks map[string]Mark) *server {
	s := &server{marks: marks, kinds: map[string]*kind{}}
	for _, id := range slices.Sorted(maps.Keys(marks)) {
		mark := marks[id]
		if len(mark.Labels) == 0 {
			continue
		}
		k := s.kinds[mark.Kind]
		if k == nil {
			k = &kind{records: map[string][]flow.Held{}}
			s.kinds[mark.Kind] = k
		}
		k.marks++
		s.all, k.all = union(s.all, mark.Labels), union(k.all, mark.Labels)
		if mark.Record == "" {
			k.whole = union(k.whole, mark.Labels)
		} else {
			k.records[mark.Record] = union(k.records[mark.Record], mark.Labels)
		}
	}
	return s
}

// union adds the labels that held lacks.
func union(held, more []flow.Held) []flow.Held {
	for _, h := range more {
		if !has(held, h.Label) {
			held = append(held[:len(held):len(held)], h)
		}
	}
	return held
}

func has(held []flow.Held, l flow.Label) bool {
	return slices.ContainsFunc(held, func(h flow.Held) bool { return h.Label == l })
}

// view is the server as it is marked now; nil if it has no marks.
func (m *Marks) view(name string) *server {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.known[name]
}

// Of are the labels of all that a server has stored: of what a call of it may bring at most.
func (m *Marks) Of(server string) []flow.Held {
	if s := m.view(server); s != nil {
		return s.all
	}
	return nil
}

// Read are the labels of what a call gives back. payloads is the result as JSON values; nil as long as there is none, and then the call may give back
// whatever it does not leave out by what it selects. An operation without a kind of records may give back everything.
func (m *Marks) Read(name string, p *provenance.Profile, args []byte, payloads []provenance.Value) []flow.Held {
	s := m.view(name)
	if s == nil {
		return nil
	}
	if p.Kind() == "" {
		return s.all
	}
	var held []flow.Held
	if k := s.kinds[""]; k != nil {
		held = k.all
	}
	k := s.kinds[p.Kind()]
	if k == nil {
		return held
	}
	held = union(held, k.whole)
	called := p.CallReach(args, false)
	given := provenance.Reach{Any: true}
	if payloads != nil {
		given = p.ResultReach(payloads)
	}
	if called.Any && given.Any {
		return union(held, k.all)
	}
	for _, ids := range [][]string{called.IDs, given.IDs} {
		for _, id := range ids {
			held = union(held, k.records[id])
		}
	}
	return held
}

// Carries are the labels that a write gives to what it writes: those of the session, and those that the records already have which it selects.
func (m *Marks) Carries(w *Write) []flow.Held {
	var held []flow.Held
	for _, h := range w.Labels {
		if !h.Label.Marks() { // outsiders and the question who asked are the session's matter
			held = append(held, flow.Held{Label: h.Label, Operation: w.Operation, CallID: w.CallID})
		}
	}
	if s := m.view(w.Server); s != nil && s.kinds[w.Profile.Kind()] != nil {
		for _, id := range w.Profile.CallReach(w.Arguments, true).IDs {
			held = union(held, s.kinds[w.Profile.Kind()].records[id])
		}
	}
	return held
}

// Before marks what a call is about to write. It has to return before the call runs: whoever reads afterwards gets the labels.
func (m *Marks) Before(ctx context.Context, w *Write) error {
	held := m.Carries(w)
	if len(held) == 0 {
		return nil
	}
	m.changing.Lock()
	defer m.changing.Unlock()
	return m.save(ctx, w, "labels of the session that writes it", m.missing(w, w.marks(held)))
}

// marks are those of what a call is about to write.
func (w *Write) marks(held []flow.Held) []Mark {
	place, reach := Place{Server: w.Server, Kind: w.Profile.Kind()}, w.Profile.CallReach(w.Arguments, true)
	if reach.Adds {
		return []Mark{{Place: place, Making: w.CallID, Labels: held}}
	}
	return marksOf(place, reach, held)
}

// Foretell says which labels what would carry from the call on, for the person who is asked about it; "" if nothing changes.
func (m *Marks) Foretell(w *Write) string {
	const most = 3
	var what, labels []string
	marks := m.missing(w, w.marks(m.Carries(w)))
	for i, mark := range marks {
		for _, h := range mark.Labels {
			if !slices.Contains(labels, string(h.Label)) {
				labels = append(labels, string(h.Label))
			}
		}
		switch {
		case i == most:
			what = append(what, fmt.Sprintf("%d more", len(marks)-most))
		case i > most:
		case mark.Making != "":
			what = append(what, fmt.Sprintf("the %s that it makes in %s (every %[1]s there, until its id is known)", mark.Kind, mark.Server))
		case mark.Record != "":
			what = append(what, fmt.Sprintf("%s %s of %s", mark.Kind, display.Clip(mark.Record, 40), mark.Server))
		case mark.Kind != "":
			what = append(what, fmt.Sprintf("every %s of %s", mark.Kind, mark.Server))
		default:
			what = append(what, "everything that "+mark.Server+" gives back")
		}
	}
	if len(marks) == 0 {
		return ""
	}
	label, it := "label", "it"
	if len(labels) > 1 {
		label, it = "labels", "them"
	}
	return fmt.Sprintf("Once it runs, the %s %s will come with %s, in every session that reads it, until a person takes %s off.", label, strings.Join(labels, ", "), strings.Join(what, ", "), it)
}

// After says what a call has written that had labels to give, once its result is there; payloads is nil where it is not known. Where the result tells the
// id of each new record, these are marked in place of all. What a person released while the call ran is marked again: they did not see what it wrote.
func (m *Marks) After(ctx context.Context, w *Write, payloads []provenance.Value) error {
	held, place := m.Carries(w), Place{Server: w.Server, Kind: w.Profile.Kind()}
	if len(held) == 0 {
		return nil
	}
	made := Mark{Place: place, Making: w.CallID}
	made.ID = made.key()
	m.changing.Lock()
	defer m.changing.Unlock()
	wanted, reach := w.marks(held), w.Profile.ResultReach(payloads)
	told, adds := !reach.Any && len(reach.IDs) > 0, wanted[0].Making != ""
	var waiting Mark
	if s := m.view(w.Server); s != nil {
		waiting = s.marks[made.ID]
	}
	reach.Any = false // what else the result holds was there before
	switch {
	case place.Kind == "" || adds && !told: // it stays unknown what it is
	case adds:
		wanted = marksOf(place, reach, union(held, waiting.Labels))
	default:
		wanted = append(wanted, marksOf(place, reach, held)...)
	}
	marks := m.missing(w, wanted)
	if adds && told && waiting.ID != "" {
		marks = append(marks, made)
	}
	return m.save(ctx, w, "what the call wrote, by its result", marks)
}

// marksOf are the marks of what a call reaches.
func marksOf(place Place, reach provenance.Reach, held []flow.Held) []Mark {
	if reach.Any || place.Kind == "" {
		return []Mark{{Place: place, Labels: held}}
	}
	var marks []Mark
	for _, id := range reach.IDs {
		one := place
		one.Record = id
		marks = append(marks, Mark{Place: one, Labels: held})
	}
	return marks
}

// missing are the marks without what their places have already, each with its id and all its labels.
func (m *Marks) missing(w *Write, wanted []Mark) []Mark {
	s := m.view(w.Server)
	if s == nil {
		s = &server{}
	}
	var marks []Mark
	for _, mark := range wanted {
		if k := s.kinds[mark.Kind]; (mark.Record != "" || mark.Making != "") && k != nil && k.marks+len(marks) >= maxMarks {
			mark.Record, mark.Making = "", ""
		}
		mark.ID = mark.key()
		covered := s.marks[mark.ID].Labels
		for _, wide := range []Mark{{Place: Place{Server: w.Server}}, {Place: Place{Server: w.Server, Kind: mark.Kind}}} {
			covered = union(covered, s.marks[wide.key()].Labels)
		}
		if !slices.ContainsFunc(mark.Labels, func(h flow.Held) bool { return !has(covered, h.Label) }) {
			continue
		}
		mark.Labels, mark.Since, mark.Launch = union(s.marks[mark.ID].Labels, mark.Labels), w.Now, m.servers[w.Server]
		if !slices.ContainsFunc(marks, func(o Mark) bool { return o.ID == mark.ID }) {
			marks = append(marks, mark)
		}
	}
	return marks
}

// save writes marks with their entry, and then takes them. The caller holds changing.
func (m *Marks) save(ctx context.Context, w *Write, why string, marks []Mark) error {
	if len(marks) == 0 {
		return nil
	}
	e := w.Entry
	e.Kind, e.Action, e.Decision, e.Actor, e.Reason = audit.Change, "stored.label", "ok", "rule:stored", why
	for _, mark := range marks {
		for _, h := range mark.Labels {
			if !slices.Contains(e.Labels, string(h.Label)) {
				e.Labels = append(e.Labels, string(h.Label))
			}
		}
	}
	return m.write(ctx, e, marks)
}

func (m *Marks) write(ctx context.Context, e audit.Entry, marks []Mark) (err error) {
	type shown struct { // at most as much as fits an entry
		Marks []Mark `json:"stored"`
		All   int    `json:"all"`
	}
	if e.Detail, err = json.Marshal(shown{marks[:min(len(marks), 10)], len(marks)}); err != nil {
		return err
	}
	if err := m.store.SaveStoredMarks(context.WithoutCancel(ctx), marks, e); err != nil {
		return err
	}
	m.mu.RLock()
	for name, s := range m.known { // also where a mark holds for a server that was renamed
		for _, mark := range marks[:len(marks):len(marks)] {
			if _, has := s.marks[mark.ID]; has && mark.Server != name {
				mark.Server = name
				marks = append(marks, mark)
			}
		}
	}
	m.mu.RUnlock()
	m.take(marks)
	return nil
}

// key names the mark's row.
func (mark *Mark) key() string {
	b, _ := json.Marshal([]string{mark.Server, mark.Kind, mark.Record, mark.Making}) // of strings: can't fail
	return "mark_" + call.HashBytes(b)[:32]
}

// List returns all marks that have labels, by server, kind and record.
func (m *Marks) List() []Mark {
	m.mu.RLock()
	defer m.mu.RUnlock()
	list := []Mark{}
	shown := map[string]bool{}
	for _, name := range slices.SortedFunc(maps.Keys(m.known), func(a, b string) int { return cmp.Or(m.gone(a)-m.gone(b), strings.Compare(a, b)) }) {
		for _, mark := range m.known[name].marks {
			if len(mark.Labels) > 0 && !shown[mark.ID] { // once, and where servers were renamed under a name of today
				shown[mark.ID] = true
				list = append(list, mark)
			}
		}
	}
	slices.SortFunc(list, func(a, b Mark) int {
		return strings.Compare(a.Server+"\x00"+a.Kind+"\x00"+a.Record+"\x00"+a.ID, b.Server+"\x00"+b.Kind+"\x00"+b.Record+"\x00"+b.ID)
	})
	return list
}

// Release takes labels off a mark: a person's act, with a reason on the record. Sessions that have read it keep theirs. What is off already stays so, and
// writes nothing.
func (m *Marks) Release(ctx context.Context, id string, labels []flow.Label, by, reason string, now time.Time) (Mark, error) {
	if strings.TrimSpace(reason) == "" {
		return Mark{}, fault.New(fault.RequestMalformed, "say why the labels are released").At("reason")
	}
	if len(labels) == 0 {
		return Mark{}, fault.New(fault.RequestMalformed, "name a label").At("labels")
	}
	m.changing.Lock()
	defer m.changing.Unlock()
	mark, known := m.find(id)
	if !known {
		return Mark{}, m.unknown(id)
	}
	left := mark
	left.Labels = []flow.Held{}
	for _, h := range mark.Labels {
		if !slices.Contains(labels, h.Label) {
			left.Labels = append(left.Labels, h)
		}
	}
	if len(left.Labels) == len(mark.Labels) {
		return mark, nil
	}
	if len(left.Labels) == 0 {
		left.Released = now
	}
	e := audit.Entry{Kind: audit.Change, Action: "stored.release", Decision: "ok", Actor: by, Reason: reason}
	for _, h := range mark.Labels {
		if slices.Contains(labels, h.Label) {
			e.Labels = append(e.Labels, string(h.Label))
		}
	}
	return left, m.write(ctx, e, []Mark{left})
}

// gone is 1 of a server that the configuration doesn't have, and 0 of others.
func (m *Marks) gone(server string) int {
	if _, there := m.servers[server]; there {
		return 0
	}
	return 1
}

func (m *Marks) find(id string) (mark Mark, known bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, s := range m.known {
		if mark, known = s.marks[id]; known {
			return mark, true
		}
	}
	return mark, false
}

// unknown refuses an id, with those that may have been meant.
func (m *Marks) unknown(id string) error {
	var ids []string
	for _, mark := range m.List() {
		ids = append(ids, mark.ID)
	}
	err := fault.New(fault.NotFound, "Nothing that was written to a server is known as %.80q.", id).At("id")
	if near := sentence.Near(id, ids); near != nil {
		return err.Try("Near it: %s.", sentence.Names(near))
	}
	return err.Try("See sallyport stored list.")
}
