// Package refusals writes down what was refused: while the caller waits, or behind the answer.
//
// Promises: every refusal is on record, and nobody can fill the record with them: of one actor and one code, the first twelve of a minute
// have an entry each, and the others one with their number, what was tried and from where, which is written when the minute is over and when the
// program stops. The sessions of an agent count as the agent. Of each kind of refusal (waited for, of calls, at doors), the store is given few
// at a time, so that what somebody keeps trying takes no more than a turn of the store from everybody else; who waits is answered within two
// seconds; what is written behind an answer is tried until the store takes it or the program ends, within a bound above which it is in the
// program's log only.
package refusals

import (
	"context"
	"log/slog"
	"slices"
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

	folder folder     // of those that have no entry of their own
	ending sync.Mutex // held while a window ends

	turns        chan struct{} // has a place for each refusal that is waited for and that the store is given at a time
	calls, doors queue
	counts       queue // of the entries that stand for many
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
	r := &Recorder{store: store, log: log, turns: places(), calls: queue{beside: places()}, doors: queue{beside: places()}, counts: queue{beside: places()}}
	r.running, r.stopRetrying = context.WithCancel(context.Background())
	return r
}

// Record writes a refusal down in its turn, or says within two seconds that it can't be. Where it is only counted, nobody waits.
func (r *Recorder) Record(ctx context.Context, e audit.Entry) error {
	if r.folder.fold(&e, r.writeCounts) {
		return nil
	}
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
func (r *Recorder) RecordCallLater(e audit.Entry) { r.foldOrLater(&r.calls, e) }

// RecordDoorLater writes down behind the answer that a door turned a request away. These have a queue of their own, so that a flood at the
// doors does not crowd out the record of refused calls.
func (r *Recorder) RecordDoorLater(e audit.Entry) { r.foldOrLater(&r.doors, e) }

func (r *Recorder) foldOrLater(q *queue, e audit.Entry) {
	if !r.folder.fold(&e, r.writeCounts) {
		r.later(q, e)
	}
}

// writeCounts writes down what was only counted in the minute that is over.
func (r *Recorder) writeCounts() { r.endWindow(false) }

func (r *Recorder) endWindow(last bool) {
	r.ending.Lock() // so that Close waits for what a window that ends meanwhile hands over
	defer r.ending.Unlock()
	r.later(&r.counts, r.folder.take(last)...)
}

// maxTogether bounds the entries of one transaction.
const maxTogether = 256

// later writes entries that nobody waits for, until the store takes them or the Recorder is closed.
func (r *Recorder) later(q *queue, entries ...audit.Entry) {
	for some := range slices.Chunk(entries, maxTogether) {
		n := int64(len(some))
		if q.waiting.Add(n) > maxBehind {
			q.waiting.Add(-n)
			r.log.Error("refusals were not written down: too many wait for the store", "entries", n, "first", some[0].Reason)
			continue
		}
		r.background.Go(func() {
			defer q.waiting.Add(-n)
			q.beside <- struct{}{}
			defer func() { <-q.beside }()
			r.persist(some)
		})
	}
}

func (r *Recorder) persist(entries []audit.Entry) {
	for {
		err := r.store.Record(context.Background(), entries...)
		if err == nil {
			return
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-r.running.Done():
			r.log.Error("audit entries were not written down", "entries", len(entries), "error", err)
			return
		}
	}
}

// Close waits until the entries that are on their way are written down, with those of what was only counted, or the store has refused them
// once more. Closing twice is harmless.
func (r *Recorder) Close() {
	r.endWindow(true)
	r.stopRetrying()
	r.background.Wait()
}
