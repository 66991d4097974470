package anchor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sallyport.example/internal/fault"
)

const (
	// late is how much newer the newest entry may be than the newest that the anchor saw, while the anchor is being moved on.
	late = time.Minute
	// lookEvery bounds how often a Watch looks at the place, and lookFor how long it waits for it: pages are shown with what it says.
	lookEvery = 5 * time.Second
	lookFor   = 2 * time.Second
)

// Status is how a log stands to its anchor, in the words that people are shown everywhere.
type Status struct {
	State   string    `json:"state"` // ok, late, missing, behind, forked, unreadable, not configured
	Text    string    `json:"text"`  // one sentence, which begins with the state
	Place   string    `json:"place,omitempty"`
	At      time.Time `json:"anchored_at,omitzero"`
	Missing int64     `json:"entries_behind"` // entries of the log that the anchor has not seen
}

// NotConfigured is the status without an anchor.
func NotConfigured() Status {
	return Status{State: "not configured", Text: "not configured: nothing outside the data directory tells when an older copy of it is put back (audit.anchor)"}
}

// Good tells whether nobody has to look at it.
func (s Status) Good() bool { return s.State == "ok" || s.State == "not configured" }

// StatusOf is what a comparison, or its error, comes to.
func StatusOf(f Finding, err error, now time.Time) Status {
	if err != nil {
		return Status{State: "unreadable", Text: "unreadable: " + fault.Of(err).Public(), Place: f.Place}
	}
	s := Status{State: string(f.State), Place: f.Place, At: f.At, Missing: max(0, f.LogSize-f.Size)}
	if f.State != Held {
		s.Text = s.State + ": " + f.String()
		return s
	}
	s.State = "ok"
	if s.Missing > 0 && f.LogAt.Sub(f.Newest) > late {
		s.State = "late"
	}
	s.Text = fmt.Sprintf("%s: the log goes on from the anchor, which was moved on %s ago and is %s behind the log", s.State, max(0, now.Sub(f.At)).Round(time.Second), entries(s.Missing))
	return s
}

// Watch tells how a log stands to its anchor while a gateway runs. Safe for concurrent use.
type Watch struct {
	a   *Anchor
	log Log

	mu   sync.Mutex // held while one looks, so that all others wait for what it sees
	last Status
	at   time.Time
}

// Watch returns a Watch of the log.
func (a *Anchor) Watch(log Log) *Watch { return &Watch{a: a, log: log} }

// Status is how the log stands to its anchor, as it was a few seconds ago at most. A nil Watch has none.
func (w *Watch) Status(ctx context.Context) Status {
	if w == nil {
		return NotConfigured()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := w.a.clock(); now.Sub(w.at).Abs() > lookEvery {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookFor) // whoever asked first may go: the others wait for the same look
		defer cancel()
		f, err := w.a.Compare(ctx, w.log)
		w.last, w.at = StatusOf(f, err, now), now
	}
	return w.last
}
