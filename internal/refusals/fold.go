package refusals

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/identity"
)

const (
	// window is the time after which what was only counted is written down.
	window = time.Minute
	// ownEntries is how many refusals of one actor for one cause have an entry of their own in a window. The others are counted.
	ownEntries = 12 // so that the 11th access violation, which raises an alert, is on record at once
	// maxBundles bounds the pairs of actor and code that are counted apart in a window. Above it, all actors count as one.
	maxBundles = 4096
	// maxNamed bounds the operations, sessions and addresses that the entry of a bundle names.
	maxNamed = 8
)

// folder counts refusals by actor and code.
type folder struct {
	mu     sync.Mutex // guards the rest
	of     map[bundleKey]*bundle
	timer  *time.Timer // runs while a bundle is open
	closed bool        // nothing is folded any more
}

type bundleKey struct{ actor, code string }

// bundle are the refusals of one actor for one cause in one window.
type bundle struct {
	alone                    int         // have entries of their own
	folded, hits             int64       // hits: of the folded ones, those in which screening found something
	first, last              time.Time   // of the folded ones
	like                     audit.Entry // the first folded one
	tried, sessions, remotes tally
}

// actorOf is whose refusals are counted together. The sessions of an agent are the agent, so that opening sessions gives nobody more room.
func actorOf(e *audit.Entry) string {
	if kind, _, _ := strings.Cut(e.Actor, ":"); kind == string(identity.Session) || kind == string(identity.Hook) {
		return string(identity.Agent) + ":" + e.Agent
	}
	return e.Actor
}

// fold tells whether the refusal is to have no entry of its own, and counts it if so. due is called when the window ends.
func (f *folder) fold(e *audit.Entry, due func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	if f.of == nil {
		f.of = map[bundleKey]*bundle{}
	}
	key := bundleKey{actorOf(e), e.Code}
	b := f.of[key]
	if b == nil && len(f.of) >= maxBundles {
		key.actor = ""
		b = f.of[key]
	}
	if b == nil {
		b = &bundle{}
		f.of[key] = b
		if f.timer == nil {
			f.timer = time.AfterFunc(window, due)
		}
	}
	if b.alone < ownEntries {
		b.alone++
		return false
	}
	now := time.Now().UTC()
	if b.folded++; b.folded == 1 {
		b.first, b.like = now, *e
	}
	b.last = now
	if e.Event == audit.ThreatHit {
		b.hits++
	}
	b.tried.add(e.Operation)
	b.sessions.add(e.Session)
	b.remotes.add(e.Remote)
	if b.like.Agent != e.Agent { // of the actor all, of the agent not
		b.like.Agent = ""
	}
	if b.like.Actor != e.Actor {
		b.like.Actor = key.actor
	}
	return true
}

// take ends the window and returns the entries of what was counted in it. With last, nothing is folded afterwards.
func (f *folder) take(last bool) (entries []audit.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
	f.closed = f.closed || last
	for _, b := range f.of {
		if b.folded > 0 {
			entries = append(entries, b.entry())
		}
	}
	f.of = nil
	slices.SortFunc(entries, func(a, b audit.Entry) int {
		return cmp.Or(strings.Compare(a.Actor, b.Actor), strings.Compare(a.Code, b.Code))
	})
	return entries
}

// entry is the one that stands for all folded refusals of the bundle.
func (b *bundle) entry() audit.Entry {
	like := &b.like
	e := audit.Entry{
		Kind: audit.Decision, Action: audit.Folded, Agent: like.Agent, Requester: like.Requester, Actor: like.Actor, Door: like.Door,
		Decision: like.Decision, Stage: like.Stage, Code: like.Code,
		Reason: fmt.Sprintf("%d more were refused for this: of one actor and code, the first %d of a minute have entries of their own", b.folded, ownEntries),
	}
	if only, ok := b.sessions.only(); ok {
		e.Session = only
	} else {
		e.Requester = ""
	}
	if only, ok := b.tried.only(); ok {
		e.Operation = only
	}
	if only, ok := b.remotes.only(); ok {
		e.Remote = only
	}
	if b.hits > 0 {
		e.Event = audit.ThreatHit
	}
	e.Detail, _ = json.Marshal(struct { // of strings and numbers: can't fail
		Count    int64     `json:"count"`
		Hits     int64     `json:"hits,omitempty"`
		From     time.Time `json:"from"`
		To       time.Time `json:"to"`
		Tried    []counted `json:"tried,omitempty"`
		Sessions []counted `json:"sessions,omitempty"`
		Remotes  []counted `json:"remotes,omitempty"`
	}{b.folded, b.hits, b.first, b.last, b.tried.list(), b.sessions.list(), b.remotes.list()})
	return e
}

// tally counts names. Those above maxNamed are counted together.
type tally struct {
	of     map[string]int64
	others int64
}

// counted is one line of a tally; without a name, the others.
type counted struct {
	Name  string `json:"name,omitempty"`
	Count int64  `json:"count"`
}

func (t *tally) add(name string) {
	if name == "" {
		return
	}
	if t.of == nil {
		t.of = map[string]int64{}
	}
	if _, known := t.of[name]; !known && len(t.of) >= maxNamed {
		t.others++
		return
	}
	t.of[name]++
}

// only is the one name that there is.
func (t *tally) only() (name string, ok bool) {
	for name = range t.of {
	}
	return name, len(t.of) == 1
}

// list is the tally, the most frequent first.
func (t *tally) list() (all []counted) {
	for name, n := range t.of {
		all = append(all, counted{name, n})
	}
	slices.SortFunc(all, func(a, b counted) int { return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Name, b.Name)) })
	if t.others > 0 {
		all = append(all, counted{Count: t.others})
	}
	return all
}
