// Package refusals writes down what was refused: while the caller waits, or behind the answer.
//
// Promises: of each kind of refusal (waited for, of calls, at doors), the store is given few at a time, so that what somebody keeps trying
// takes no more than a turn of the store from everybody else; who waits is answered within two seconds; what is written behind an answer
// is tried until the store takes it or the program ends, within a bound above which it is in the program's log only.
package refusals

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
)

const (
	// maxBehind bounds how many entries of one kind wait for a store that does not answer.
	maxBehind = 10_000
	// maxBeside bounds how many of one kind the store is given at a time.
	maxBeside = 64
	// maxWait is how long a refusal waits for its turn and for the store (docs/design.md, rule 1).
	maxWait = 2 * time.Second
)

// Store is where entries are kept.
type Store interface {
	// Record appends entries; when it returns nil they are durable.
	Record(ctx context.Context, entries ...audit.Entry) error
}

// Recorder writes refusals down. Make it with New, end it with Close.
type Recorder struct {
	store Store
	log   *slog.Logger

	turns        chan struct{} // has a place for each refusal that is waited for and that the store is given at a time
	calls, doors queue
	background   sync.WaitGroup
	running      context.Context // ends with Close
	stopRetrying context.CancelFunc
}

// queue are entries of one kind that are written behind their answers.
type queue struct {
	waiting atomic.Int64
	beside  chan struct{} // has a place for each that the store is given at a time
}

// New returns a Recorder.
func New(store Store, log *slog.Logger) *Recorder {
	places := func() chan struct{} { return make(chan struct{}, maxBeside) }
	r := &Recorder{store: store, log: log, turns: places(), calls: queue{beside: places()}, doors: queue{beside: places()}}
	r.running, r.stopRetrying = context.WithCancel(context.Background())
	return r
}

// Record writes a refusal down in its turn, or says within two seconds that it can't be.
func (r *Recorder) Record(ctx context.Context, e audit.Entry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxWait)
	defer cancel()
	select {
	case r.turns <- struct{}{}:
		defer func() { <-r.turns }()
		return r.store.Record(ctx, e)
	case <-ctx.Done():
		return fault.New(fault.AuditUnavailable, "too many refusals wait to be written down")
	}
}

// RecordCallLater writes down behind the answer that a call, or something in it, was refused.
func (r *Recorder) RecordCallLater(e audit.Entry) { r.later(&r.calls, e) }

// RecordDoorLater writes down behind the answer that a door turned a request away. These have a queue of their own, so that a flood at the
// doors does not crowd out the record of refused calls.
func (r *Recorder) RecordDoorLater(e audit.Entry) { r.later(&r.doors, e) }

// later writes an entry that nobody waits for, until the store takes it or the Recorder is closed.
func (r *Recorder) later(q *queue, e audit.Entry) {
	if q.waiting.Add(1) > maxBehind {
		q.waiting.Add(-1)
		r.log.Error("a refusal was not written down: too many wait for the store")
		return
	}
	r.background.Go(func() {
		defer q.waiting.Add(-1)
		q.beside <- struct{}{}
		defer func() { <-q.beside }()
		for {
			err := r.store.Record(context.Background(), e)
			if err == nil {
				return
			}
			select {
			case <-time.After(250 * time.Millisecond):
			case <-r.running.Done():
				r.log.Error("an audit entry was not written down", "error", err)
				return
			}
		}
	})
}

// Close waits until the entries that are on their way are written down, or the store has refused them once more. Closing twice is harmless.
func (r *Recorder) Close() {
	r.stopRetrying()
	r.background.Wait()
}
