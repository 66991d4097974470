// Package anchor keeps the newest signed checkpoint of the log in a place outside the data directory, a file or a web address, and tells whether a log
// goes on from there. A data directory that was put back as a whole agrees with itself; only what lies elsewhere shows that it is older than it was.
//
// Promises: what is kept only ever goes forward, from a log to a longer one that begins with it; a place that holds anything else, or that has lost what
// it held, is left as it is until a person says that it may be moved (Move). What comes from the place is believed only where it is signed with the log's key.
//
// The place holds one JSON object:
//
//	{"checkpoint": "sallyport/…\n1431\n…", "newest_entry_at": "2026-01-31T08:00:00Z", "at": "2026-01-31T08:00:02Z"}
package anchor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
)

const (
	// every bounds how far the place is behind the log.
	every = 2 * time.Second
	// idleRounds is after how many of these times the place is looked at while nothing is written.
	idleRounds = 15
	// patience bounds one look at the place, or one change of it.
	patience = 5 * time.Second
	maxMark  = 64 << 10
)

// Log is the log that is compared. It is the store.
type Log interface {
	Size(ctx context.Context) (int64, error)
	// RootAt is the root of the first size entries.
	RootAt(ctx context.Context, size int64) (tlog.Hash, error)
	Entry(ctx context.Context, index int64) (audit.Entry, []byte, error)
	// Latest is the time of the newest entry; the zero time if there is none.
	Latest(ctx context.Context) (time.Time, error)
	// LatestCheckpoint is the newest signed checkpoint; fault.NotFound if there is none.
	LatestCheckpoint(ctx context.Context) ([]byte, error)
}

// Signed is a log whose holder can sign it.
type Signed interface {
	Log
	// Checkpoint signs the log as it is.
	Checkpoint(ctx context.Context) ([]byte, error)
}

// mark is what a place holds.
type mark struct {
	Checkpoint string    `json:"checkpoint"`
	Newest     time.Time `json:"newest_entry_at,omitzero"`
	At         time.Time `json:"at"`
}

// place is where a mark is kept.
type place interface {
	// get returns what is there; fs.ErrNotExist if nothing is.
	get(ctx context.Context) ([]byte, error)
	put(ctx context.Context, data []byte) error
	String() string
}

// Anchor is one place. Make it with File or Webhook.
type Anchor struct {
	place place
	key   note.Verifier
	clock func() time.Time
}

// State is how a log stands to what the place holds.
type State string

const (
	Missing State = "missing" // the place holds nothing yet
	Held    State = "held"    // the log goes on from what it holds
	Behind  State = "behind"  // the log has fewer entries
	Forked  State = "forked"  // the log has other entries
)

// Finding is a comparison.
type Finding struct {
	State   State     `json:"state"`
	Place   string    `json:"place"`
	Size    int64     `json:"anchor_entries"`
	Newest  time.Time `json:"anchor_newest_entry_at,omitzero"`
	At      time.Time `json:"anchored_at,omitzero"`
	LogSize int64     `json:"log_entries"`
	LogAt   time.Time `json:"log_newest_entry_at,omitzero"`
}

// Good tells whether the log may go on.
func (f Finding) Good() bool { return f.State == Held }

// String is the comparison in one sentence.
func (f Finding) String() string {
	when := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	log := fmt.Sprintf("The log's newest entry is from %s (%s)", when(f.LogAt), entries(f.LogSize))
	if f.LogAt.IsZero() {
		log = "The log is empty"
	}
	saw := fmt.Sprintf("The anchor saw %s, the newest from %s.", entries(f.Size), when(f.Newest))
	switch f.State {
	case Missing:
		return log + ", and " + f.Place + " holds no anchor yet."
	case Held:
		return fmt.Sprintf("%s: it goes on from the anchor. %s", log, saw)
	case Forked:
		return fmt.Sprintf("%s, and it does not go on from the anchor: this is another log, or one that was put back and went on. %s", log, saw)
	}
	older := ""
	if f.Newest.After(f.LogAt) {
		older = fmt.Sprintf(", and is %s older than the anchor's newest", f.Newest.Sub(f.LogAt).Round(time.Second))
	}
	return fmt.Sprintf("%s%s. %s This directory was put back, and it lacks %s or more.", log, older, saw, entries(f.Size-f.LogSize))
}

func entries(n int64) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}

// read returns what the place holds, believed.
func (a *Anchor) read(ctx context.Context) (m mark, cp audit.Checkpoint, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	data, err := a.place.get(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return m, cp, fs.ErrNotExist
	}
	if err != nil {
		return m, cp, fault.Wrap(err, fault.AuditUnavailable, "The anchor in %s can't be read", a.place).Try("See to the place, or to audit.anchor in the configuration.")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err = d.Decode(&m); err == nil {
		cp, err = audit.OpenCheckpoint([]byte(m.Checkpoint), a.key)
	}
	if err != nil {
		return m, cp, fault.Wrap(err, fault.AuditUnavailable, "What lies in %s is not an anchor of this log", a.place).
			Try("Find out who put it there. \"sallyport audit anchor --move\" writes a new one, on a person's word.")
	}
	return m, cp, nil
}

// Compare tells how the log stands to what the place holds.
func (a *Anchor) Compare(ctx context.Context, log Log) (f Finding, err error) {
	f.Place = a.place.String()
	// The place first: a log that grows beside this has all of what the place held before.
	m, cp, unread := a.read(ctx)
	if f.LogSize, err = log.Size(ctx); err != nil {
		return f, err
	}
	if f.LogAt, err = log.Latest(ctx); err != nil {
		return f, err
	}
	if errors.Is(unread, fs.ErrNotExist) {
		f.State = Missing
		return f, nil
	}
	if unread != nil {
		return f, unread
	}
	f.Size, f.Newest, f.At, f.State = cp.Size, m.Newest, m.At, Held
	if cp.Size > f.LogSize {
		f.State = Behind
		return f, nil
	}
	root, err := log.RootAt(ctx, cp.Size)
	if err == nil && root != cp.Root {
		f.State = Forked
	}
	return f, err
}

// forward puts the checkpoint there, unless what is there is not of this log's past, or nothing is. It returns how the log stood to it, where an error
// comes of that.
func (a *Anchor) forward(ctx context.Context, log Log, note []byte) (Finding, error) {
	f, err := a.Compare(ctx, log)
	if err != nil {
		return Finding{}, err
	}
	if !f.Good() {
		return f, fault.New(fault.AuditUnavailable, "%s", f.String()).
			Try("Find out who removed or replaced it: does another gateway use the same anchor, or was a directory put back? \"sallyport audit anchor --move\" moves it, on a person's word.")
	}
	return f, a.put(ctx, log, note, f.Size, false)
}

func (a *Anchor) put(ctx context.Context, log Log, note []byte, have int64, force bool) error {
	cp, err := audit.OpenCheckpoint(note, a.key)
	if err != nil {
		return err
	}
	if cp.Size <= have && !force {
		return nil
	}
	m := mark{Checkpoint: string(note), At: a.clock().UTC()}
	if cp.Size > 0 {
		e, _, err := log.Entry(ctx, cp.Size-1)
		if err != nil {
			return err
		}
		m.Newest = e.At
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := a.place.put(ctx, append(data, '\n')); err != nil {
		return fault.Wrap(err, fault.AuditUnavailable, "The anchor in %s can't be moved on", a.place)
	}
	return nil
}

// Move writes the log's newest checkpoint there, whatever is there: on a person's word.
func (a *Anchor) Move(ctx context.Context, log Signed) error {
	note, err := log.Checkpoint(ctx)
	if err != nil {
		return err
	}
	return a.put(ctx, log, note, 0, true)
}

// Keeper moves an anchor on while a gateway runs.
type Keeper struct {
	a       *Anchor
	log     Signed
	warn    *slog.Logger
	alarm   func(Finding)
	end     chan struct{}
	once    sync.Once
	running sync.WaitGroup

	// The goroutine's own, and Close's once that has ended.
	held    int64 // entries that the place holds; -1: it is not known
	idle    int   // looks left out since nothing was written
	failing bool
	told    State // the finding that the alarm was raised for
}

// Keep begins to move the anchor on behind the log. alarm is called when the place no longer holds what the log goes on from, once for each way; state is
// what is known already. Close ends it.
func (a *Anchor) Keep(log Signed, warn *slog.Logger, state State, alarm func(Finding)) *Keeper {
	k := &Keeper{a: a, log: log, warn: warn, alarm: alarm, end: make(chan struct{}), held: -1, told: state}
	k.running.Go(k.run)
	return k
}

func (k *Keeper) run() {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-k.end:
			return
		case <-tick.C:
		}
		k.step(context.Background())
	}
}

// step signs what there is, and moves the anchor to it. While nothing is written it looks now and then whether the place still holds it.
func (k *Keeper) step(ctx context.Context) {
	size, err := k.log.Size(ctx)
	if k.idle++; err == nil && size == k.held && k.idle < idleRounds {
		return
	}
	k.idle = 0
	var note []byte
	if err == nil {
		note, err = k.log.Checkpoint(ctx)
	}
	var f Finding
	if err == nil {
		f, err = k.a.forward(ctx, k.log, note)
	}
	if f.State != "" && f.State != k.told {
		if k.told = f.State; !f.Good() {
			k.alarm(f)
		}
	}
	if err == nil {
		k.held, k.failing = size, false
		return
	}
	if k.held = -1; !k.failing {
		k.failing = true
		k.warn.Error("the anchor is not being moved on", "error", err)
	}
}

// Close signs the log and moves the anchor on a last time. Closing twice is harmless.
func (k *Keeper) Close() {
	k.once.Do(func() {
		close(k.end)
		k.running.Wait()
		k.held, k.failing = -1, false
		k.step(context.Background())
	})
}

// Unpack returns the signed checkpoint in what an anchor's place holds; data that is no such thing is returned as it is.
func Unpack(data []byte) []byte {
	var m mark
	if json.Unmarshal(data, &m) == nil && m.Checkpoint != "" {
		return []byte(m.Checkpoint)
	}
	return data
}
