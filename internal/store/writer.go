package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/tlog"
	"modernc.org/sqlite"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/quota"
	"sallyport.example/internal/session"
)

const (
	// patience is the time that a caller waits for its commit; docs/design.md, rule 1 gives a failing audit 2 s to refuse.
	patience = 1900 * time.Millisecond
	maxLive  = 4096 // sessions held in memory
)

// job is one transaction that a caller waits for. Jobs that wait at the same time share one commit.
type job struct {
	// run does the work. It may be called more than once, each time on a fresh transaction, so its only
	// effects are on the transaction and on values that its caller reads after success.
	run func(*tx) error
	// entry is the intent or outcome that the job writes, for the case that its caller has gone.
	entry *audit.Entry
	whose // the line that it waits in
	// aside is done between two batches, in place of run.
	aside func() error

	state atomic.Int32
	err   error
	done  chan struct{} // one signal, sent by the writer
}

// A job's state. The writer claims it (queued -> started) and answers it (started -> answered); the caller gives it up
// (queued -> abandoned: it never runs; started -> left: it may be written all the same).
const (
	queued int32 = iota
	started
	answered
	abandoned
	left
)

// writer owns the writing connection, the tree and everything else that changes with a commit. One goroutine runs it.
//
// The writer waits for no further jobs: it commits what is queued at once, and jobs that arrive during that fsync are the next batch.
type writer struct {
	clock    func() time.Time
	log      *slog.Logger
	patience time.Duration // of callers; tests of other things than that have more

	queue   queue
	live    liveSessions
	quotas  quotas
	passed  atomic.Pointer[func(quota.Mark)]    // is told of marks of quotas; nil: nobody is
	entries atomic.Pointer[func([]audit.Entry)] // is told of entries; nil: nobody is
	commits atomic.Int64                        // transactions committed
	took    atomic.Int64                        // nanoseconds that their commits took
	// commit is COMMIT; tests put failing ones in its place.
	commit func(*conn) error
	health

	// Below: the goroutine's own.
	c    *conn  // nil while the store is unusable
	leaf []byte // the entry under way
	tx   tx     // the transaction under way; its maps are used again
	heldFiles
	rolling
	known
	logState
	deferred
}

// known is what the writer knows of the rows that decide.
type known struct {
	proof  *proof
	unsure *changes                // what a commit that failed would have changed in proof, until it is known whether it did
	heads  map[string]evidenceHead // of sessions that keep evidence now
	tried  *tried                  // the log as a commit that failed would have left it, until it is known whether it did
	ended  bool                    // the log was closed for good: see closeLog
}

// tried is a log that a commit would have made.
type tried struct {
	size int64
	root tlog.Hash
}

// deferred holds what the writer has to write with some later transaction.
type deferred struct {
	used       map[string]usedTime // of sessions: used time that is not in their rows yet
	unsureUsed map[string]usedTime // the same, of a commit that failed, until it is known whether it did
	settled    map[string]bool     // calls whose outcome was written although its caller had given up
	orphans    []*audit.Entry      // intents that were written although their caller had given up
	scrub      bool                // something was deleted that may still stand in the write-ahead log
}

// maxUnsettled bounds the used time of a session that is in memory alone: that much of its budget a crash gives back, with the time of the calls that
// run then.
const maxUnsettled = time.Second

// usedTime is the used time of a session whose row may lack some of it.
type usedTime struct {
	used, durable time.Duration // durable: what its row has
}

func newWriter(path string, o Options) *writer {
	return &writer{
		rolling: rolling{path: path}, clock: o.Clock, log: o.Log, patience: cmp.Or(o.patience, patience),
		health:   health{started: time.Now(), gone: make(chan struct{})},
		queue:    newQueue(),
		live:     liveSessions{byID: map[string]session.Session{}},
		quotas:   quotas{byKey: map[string]quota.Use{}, claimed: map[string]*quota.Claim{}},
		commit:   func(c *conn) error { return c.exec("COMMIT") },
		tx:       tx{sessions: map[string]session.Session{}, used: map[string]usedTime{}, opened: map[string]int64{}, heads: map[string]evidenceHead{}, moved: newChanges()},
		known:    known{heads: map[string]evidenceHead{}},
		logState: logState{open: map[string]int64{}},
		deferred: deferred{used: map[string]usedTime{}, settled: map[string]bool{}},
	}
}

// liveSessions are sessions as of the last commit, in memory. The writer's goroutine alone changes them, and reads them without the lock.
type liveSessions struct {
	mu   sync.RWMutex
	byID map[string]session.Session
}

func (l *liveSessions) get(id string) (session.Session, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s, ok := l.byID[id]
	return s, ok
}

// put takes over the changed sessions, and forgets some if there are more than maxLive.
func (l *liveSessions) put(changed map[string]session.Session) {
	if len(changed) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.Copy(l.byID, changed)
	for id := range l.byID {
		if len(l.byID) <= maxLive {
			break
		}
		delete(l.byID, id)
	}
}

func (l *liveSessions) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.byID)
}

var timers = sync.Pool{New: func() any { return time.NewTimer(time.Hour) }}

func gaveUp(why string, cause error) error {
	return fault.Wrap(cause, fault.AuditUnavailable, "%s (%s)", fault.AuditUnavailable.Sentence(), why)
}

// do queues the job and waits for its end. A caller that gives up before the job has started leaves nothing behind. Once it has
// started the caller's cancellation no longer counts, and only the end of its patience makes it answer AuditUnavailable although
// the job may still be written: for an intent that is an entry that nothing follows but an outcome "unknown", for an outcome it
// is what the next attempt finds done.
func (w *writer) do(ctx context.Context, j *job) error {
	if err := ctx.Err(); err != nil {
		return gaveUp("the request was given up", err)
	}
	j.done = make(chan struct{}, 1)
	if err := w.queue.add(j); err != nil {
		return err
	}
	timer := timers.Get().(*time.Timer)
	timer.Reset(w.patience)
	defer func() { timer.Stop(); timers.Put(timer) }()
	cancelled := ctx.Done()
	for {
		select {
		case <-j.done:
			return j.err
		case <-cancelled:
			if j.state.CompareAndSwap(queued, abandoned) {
				return gaveUp("the request was given up", ctx.Err())
			}
			cancelled = nil
		case <-timer.C:
			if j.state.CompareAndSwap(queued, abandoned) || j.state.CompareAndSwap(started, left) {
				return gaveUp("it did not answer in time", nil)
			}
			<-j.done // answered at the last moment
			return j.err
		}
	}
}

// answer answers the waiting caller. It reports false when the caller has gone.
func (j *job) answer(err error) bool {
	j.err = err
	if !j.state.CompareAndSwap(started, answered) {
		return false
	}
	j.done <- struct{}{}
	return true
}

// loop is the writer's goroutine. It ends when the queue is closed and empty.
func (w *writer) loop() {
	defer close(w.queue.stopped)
	for batch := w.queue.take(nil); len(batch) > 0; batch = w.queue.take(batch) {
		w.serve(batch)
		clear(batch)
	}
	if w.c != nil {
		if err := w.c.exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			w.log.Warn("the write-ahead log was not folded into the database; the next start does it", "error", err)
		}
		w.disconnect()
	}
}

// serve answers every job of the batch.
func (w *writer) serve(batch []*job) {
	jobs := batch[:0]
	var aside []*job
	for _, j := range batch {
		switch {
		case !j.state.CompareAndSwap(queued, started):
		case j.aside != nil:
			aside = append(aside, j)
		default:
			jobs = append(jobs, j)
		}
	}
	if len(jobs)+len(aside) == 0 {
		return
	}
	defer w.emptyLog()
	if len(jobs) > 0 && w.attempt(jobs) {
		// One of them failed after it had written. Alone, each fails or succeeds for itself.
		for _, j := range jobs {
			w.attempt([]*job{j})
		}
	}
	for _, j := range aside {
		j.answer(j.aside())
	}
}

// attempt runs the jobs in one transaction and answers them. When a job among several fails after having written, it
// answers none, rolls back and reports true.
func (w *writer) attempt(jobs []*job) (spoiled bool) {
	errs := make([]error, len(jobs))
	t, err := w.begin()
	for i := 0; err == nil && i < len(jobs); i++ {
		before := t.wrote
		errs[i] = run(jobs[i], t)
		// The engine may have ended the transaction by itself when it failed: nothing may follow on it then.
		if errs[i] == nil || t.wrote == before && !engineFailed(errs[i]) {
			continue
		}
		if engineFailed(errs[i]) || fault.Is(errs[i], fault.AuditUnavailable) || w.rollback() != nil {
			w.disconnect()
		}
		if len(jobs) > 1 {
			return true
		}
		w.refuse(jobs, errs[i])
		return false
	}
	if err == nil {
		err = t.commit()
	}
	if err != nil {
		w.refuse(jobs, unavailable(err, fault.AuditUnavailable))
		return false
	}
	if t.wrote > 0 && w.down.CompareAndSwap(true, false) {
		w.log.Info("the store is back")
	}
	for i, j := range jobs {
		if !j.answer(ofJob(errs[i])) && errs[i] == nil && j.entry != nil {
			switch j.entry.Kind {
			case audit.Outcome:
				w.settled[j.entry.CallID] = true
			case audit.Intent:
				w.orphans = append(w.orphans, j.entry)
			}
		}
	}
	return false
}

// refuse answers every job with err. The log has one line for a fault, however many calls it refuses.
func (w *writer) refuse(jobs []*job, err error) {
	if err = ofJob(err); fault.Is(err, fault.AuditUnavailable) && w.down.CompareAndSwap(false, true) && w.lost == nil {
		w.log.Error("the store refuses writes; calls are refused until it is back", "error", err)
	}
	for _, j := range jobs {
		j.answer(err)
	}
}

// ofJob is the answer to a job that failed: the error of its own code, as it is, or that of the engine.
func ofJob(err error) error {
	if err == nil {
		return nil
	}
	var e *sqlite.Error
	if errors.As(err, &e) {
		return unavailable(err, fault.AuditUnavailable)
	}
	return err
}

// run shields the writer from a panic in a caller's code.
func run(j *job, t *tx) (err error) {
	defer func() {
		if r := recover(); r != nil {
			t.wrote++ // it may have written
			err = fault.Wrap(fmt.Errorf("panic: %v", r), fault.Internal, "%s", fault.Internal.Sentence())
		}
	}()
	size := t.w.tree.Size()
	if err := j.run(t); err != nil {
		return err
	}
	return t.flush(t.w.tree.Size() > size)
}

// tx is one transaction, shared by the jobs of a batch.
type tx struct {
	w     *writer
	now   time.Time // the clock is read once for a transaction, and never runs backwards from one to the next
	wrote int       // grows with everything written, so that a failing job tells whether it left something behind

	sessions map[string]session.Session // changed
	used     map[string]usedTime        // of those whose used time changed; the row gets it later where it lacks some
	opened   map[string]int64           // intents of this transaction that have no outcome, as writer.open
	closed   []string                   // calls that got their outcome
	keys     []uint32
	heads    map[string]evidenceHead // of sessions whose evidence grew
	moved    changes                 // of the rows that decide
	quotaUse map[string]quota.Use    // changed; nil: none
	told     []audit.Entry           // for OnEntries
	after    []func()                // done when the transaction is durable
}

// begin connects if need be and starts a transaction.
func (w *writer) begin() (*tx, error) {
	if w.lost != nil {
		return nil, w.lost
	}
	if w.c == nil {
		if err := w.connect(); err != nil {
			return nil, err
		}
	}
	if err := w.c.exec("BEGIN IMMEDIATE"); err != nil {
		if !locked(err) { // a lock goes away by itself
			w.disconnect()
		}
		return nil, err
	}
	now := w.clock().UTC().Truncate(time.Microsecond)
	if now.Before(w.lastAt) {
		now = w.lastAt
	}
	t := &w.tx
	clear(t.sessions)
	clear(t.used)
	clear(t.opened)
	clear(t.heads)
	clear(t.told)
	t.moved.reset(w.proof)
	*t = tx{w: w, now: now, keys: w.keys, moved: t.moved, sessions: t.sessions, used: t.used, opened: t.opened, heads: t.heads, closed: t.closed[:0], told: t.told[:0]}
	if w.first > 0 && w.size == w.first {
		if err := t.startSegment(); err != nil {
			if engineFailed(err) || w.rollback() != nil {
				w.disconnect()
			}
			return nil, err
		}
	}
	return t, nil
}

// commit makes the transaction durable, and takes over the writer's state. After an error nothing that the writer holds can be
// relied on: an fsync that failed once may answer well the next time without having written anything, so the
// connection goes, and the next attempt reads everything again from the database.
func (t *tx) commit() error {
	w := t.w
	for _, tile := range w.tree.Completed() {
		if err := w.c.exec(insertTile, int64(tile.Level), tile.Index, tile.Hashes); err != nil {
			w.disconnect()
			return err
		}
	}
	if t.wrote == 0 {
		if err := w.rollback(); err != nil {
			w.disconnect()
			return err
		}
		t.done()
		return nil
	}
	t.moved.size = w.tree.Size()
	began := time.Since(w.started)
	if err := w.commitProved(&t.moved); err != nil {
		w.tried = &tried{w.tree.Size(), w.tree.Root()}
		w.unsureUsed = maps.Clone(t.used)
		w.disconnect()
		return err
	}
	now := time.Since(w.started)
	w.commits.Add(1)
	w.took.Add(int64(now - began))
	w.written.Store(int64(now))
	if err := w.look(lookEvery); err != nil { // before anybody is told that it is durable
		return err
	}
	if w.tree.Size() != w.size {
		w.tree.Commit()
		w.size, w.lastAt, w.keys = w.tree.Size(), t.now, t.keys
	}
	t.done()
	maps.Copy(w.open, t.opened)
	for _, id := range t.closed {
		delete(w.open, id)
	}
	w.takeUsed(t.used)
	if len(w.heads)+len(t.heads) > maxLive {
		clear(w.heads) // they are read again
	}
	maps.Copy(w.heads, t.heads)
	w.live.put(t.sessions)
	w.quotas.put(t.quotaUse)
	if f := w.entries.Load(); f != nil && len(t.told) > 0 {
		(*f)(t.told)
	}
	return nil
}

// takeUsed takes over used times that are committed.
func (w *writer) takeUsed(all map[string]usedTime) {
	for id, u := range all {
		if w.used[id] = u; u.used <= u.durable {
			delete(w.used, id)
		}
	}
}

// rollback takes back a transaction that was sound but for what a job did in it.
func (w *writer) rollback() error {
	if err := w.c.exec("ROLLBACK"); err != nil {
		return err
	}
	w.tree.Rollback()
	return nil
}

func (t *tx) done() {
	for _, f := range t.after {
		f()
	}
}

// disconnect drops the connection, and a transaction on it.
func (w *writer) disconnect() {
	if w.c != nil {
		w.c.close() // it is dropped because it failed, or after its last commit
		w.c = nil
	}
}

// session returns a session as this transaction sees it.
func (t *tx) session(id string) (session.Session, error) {
	if s, ok := t.sessions[id]; ok {
		return s, nil
	}
	if s, ok := t.w.live.byID[id]; ok {
		return s, nil
	}
	row, err := t.read(sessionRows, id)
	if err != nil {
		return session.Session{}, err
	}
	if row == nil {
		return session.Session{}, noSession(id)
	}
	return decodeSession(id, blob(row[sessionBody]), max(t.w.proof.usedTime(id), t.w.used[id].used))
}

func (t *tx) hold(s session.Session) {
	t.sessions[s.ID] = s
	t.wrote++
}

// spend holds a session in which only the used time differs from before. Its row gets it later, see settle, but for what no crash may give back.
func (t *tx) spend(s session.Session, before time.Duration) error {
	if s.Used == before {
		t.hold(s)
		return nil
	}
	u, known := t.used[s.ID]
	if !known {
		u, known = t.w.used[s.ID]
	}
	if !known {
		u.durable = before
	}
	if u.used = s.Used; u.used-u.durable > maxUnsettled {
		return t.save(s)
	}
	t.hold(s)
	t.used[s.ID] = u
	return nil
}

// save writes the session's row. Its used time is in the body; the column has what was settled.
func (t *tx) save(s session.Session) error {
	if _, known := t.at(sessionRows, s.ID); !known {
		return noSession(s.ID)
	}
	return t.write(s)
}

// write writes a session's row, which may be new.
func (t *tx) write(s session.Session) error {
	body, err := encodeSession(s)
	if err != nil {
		return err
	}
	own, waits := int64(0), int64(0)
	if s.Own {
		own = 1
	}
	if s.PlanWaits() {
		waits = 1
	}
	if s.Used < 0 {
		return fault.New(fault.Internal, "a session with a used time below zero")
	}
	if err := t.put(sessionRows, s.ID, s.Agent, own, string(s.Phase), string(s.State), s.Version, waits, body); err != nil {
		return err
	}
	t.hold(s)
	t.used[s.ID] = usedTime{used: s.Used, durable: s.Used}
	return nil
}

// append adds an entry to the log and sets its index, time, severity and event.
func (t *tx) append(e *audit.Entry) error {
	w := t.w
	if w.ended {
		return gaveUp("the store is closed", nil)
	}
	if err := t.fits(e); err != nil {
		return err
	}
	e.Index, e.At, e.Rows = w.tree.Size(), t.now, t.moved.take()
	e.Classify()
	leaf, err := e.AppendLeaf(w.leaf[:0])
	if err != nil {
		return fault.Wrap(err, fault.Internal, "the entry can't be written")
	}
	w.leaf = leaf // the engine and the tree are done with it when this returns
	for _, p := range []*audit.Payload{e.Arguments, e.Result} {
		if p == nil || !p.Stored {
			continue
		}
		if len(p.Bytes) == 0 || len(p.Key) != 64 {
			return fault.New(fault.Internal, "an entry says that a payload is stored and gives no bytes or no key for it")
		}
		n, err := w.c.changed(insertPayload, p.Key, p.Bytes)
		if err != nil {
			return err
		}
		t.wrote += int(n)
	}
	t.wrote++
	if err := w.c.exec(insertEntry, e.Index, e.At.UnixMicro(), string(e.Kind), e.CallID, leaf); err != nil {
		if !engineFailed(err) { // another process wrote to the log: not this entry's fault
			err = fault.Wrap(err, fault.AuditUnavailable, "%s (it is not as it was left)", fault.AuditUnavailable.Sentence())
		}
		return err
	}
	w.tree.Append(leaf)
	t.tell(e, leaf)
	switch e.Kind {
	case audit.Intent:
		t.opened[e.CallID] = e.Index
	case audit.Outcome:
		delete(t.opened, e.CallID)
		t.closed = append(t.closed, e.CallID)
	}
	t.keys = appendMarked(appendKeys(t.keys, e), e)
	if size := e.Index + 1; size%blockSize == 0 {
		row := encodeBlock(t.keys)
		if err := w.c.exec(insertBlock, size/blockSize-1, row); err != nil {
			return err
		}
		t.moved.blocks.add(w.proof.key.block(size/blockSize-1, row))
		t.keys = make([]uint32, 0, cap(t.keys))
	}
	return nil
}

// maxTold bounds the leaf of an entry that OnEntries tells of.
const maxTold = 8 << 10

// OnEntries has f called with entries that were appended, once they are durable, in the order of the log: as whoever reads them in the log gets them, but
// without Arguments, Result, Attribution and Rows. It leaves out entries that are large, those in which a character is replaced when they are written, and
// what was written by a commit that seemed to fail: the log alone has all of them. f must not block, nor keep the slice.
func (db *DB) OnEntries(f func([]audit.Entry)) { db.w.entries.Store(&f) }

// tell keeps an entry for OnEntries.
func (t *tx) tell(e *audit.Entry, leaf []byte) {
	if t.w.entries.Load() == nil || len(leaf)+len(e.Detail) > maxTold || bytes.Contains(leaf, []byte("\ufffd")) {
		return
	}
	told := *e
	told.Arguments, told.Result, told.Attribution, told.Rows = nil, nil, nil, nil
	t.told = append(t.told, told)
}

// fits refuses an entry that would make the log one that "audit verify" refuses: a call has one intent and then one outcome.
func (t *tx) fits(e *audit.Entry) error {
	if e.Kind != audit.Intent && e.Kind != audit.Outcome {
		return nil
	}
	_, open := t.w.open[e.CallID]
	if slices.Contains(t.closed, e.CallID) {
		open = false
	}
	if _, ok := t.opened[e.CallID]; ok {
		open = true
	}
	switch {
	case e.CallID == "":
		return fault.New(fault.Internal, "an entry of kind %s names no call", e.Kind)
	case e.Kind == audit.Intent && open:
		return fault.New(fault.Conflict, "Call %s has an intent already.", e.CallID)
	case e.Kind == audit.Outcome && !open:
		return fault.New(fault.Conflict, "Call %s has no intent that waits for an outcome.", e.CallID)
	}
	return nil
}

// settle writes what was deferred: used times, the outcomes of intents whose callers had gone, the low-water mark.
func (w *writer) settle(t *tx) error {
	for _, e := range w.orphans {
		if _, ok := w.open[e.CallID]; !ok {
			continue
		}
		unknown := unknownOutcome(e, "the gateway gave up waiting for the intent to be durable; nothing was dispatched on it")
		if err := t.append(&unknown); err != nil {
			return err
		}
		if _, err := t.settleQuota(e.CallID, nil); err != nil {
			return err
		}
	}
	for id, u := range w.used {
		if err := t.settleUsed(id, int64(u.used)); err != nil {
			return err
		}
	}
	t.after = append(t.after, func() {
		clear(w.used)
		w.orphans = nil
	})
	t.wrote++
	return w.c.exec(updateLowWater, w.lowWater())
}

// lowWater is the index below which every intent has its outcome.
func (w *writer) lowWater() int64 {
	mark := w.size
	for _, i := range w.open {
		mark = min(mark, i)
	}
	return mark
}
