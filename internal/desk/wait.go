package desk

import (
	"context"
	"sync"
	"time"

	"sallyport.example/internal/approval"
)

// Waiting reports that a call is held for an answer.
type Waiting struct {
	ApprovalID string
	Risk       string
	SilenceAt  time.Time // when silence permits; zero: only a person's answer does
}

const (
	// tellEvery is the time between two reports that a call is held.
	tellEvery = 5 * time.Second
	// leastWait is the time between two reads of an approval whose time should have come.
	leastWait = 5 * time.Millisecond
)

// maxHeld bounds how many calls of one agent are held at a time, because each keeps its arguments in memory. One more is answered at once.
const maxHeld = 32

// heldCalls counts the calls that are held, by agent.
type heldCalls struct {
	mu      sync.Mutex // guards byAgent
	byAgent map[string]int
}

func (h *heldCalls) enter(agent string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byAgent == nil {
		h.byAgent = map[string]int{}
	}
	if h.byAgent[agent] >= maxHeld {
		return false
	}
	h.byAgent[agent]++
	return true
}

func (h *heldCalls) leave(agent string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byAgent[agent]--; h.byAgent[agent] == 0 {
		delete(h.byAgent, agent)
	}
}

// Held is how many calls are held for an answer now.
func (d *Desk) Held() (n int) {
	d.held.mu.Lock()
	defer d.held.mu.Unlock()
	for _, calls := range d.held.byAgent {
		n += calls
	}
	return n
}

// waitingCalls are the calls that wait for an approval to change.
type waitingCalls struct {
	mu         sync.Mutex // guards byApproval
	byApproval map[string]*waitingRoom
}

// waitingRoom holds the calls that wait for one approval.
type waitingRoom struct {
	changed chan struct{} // closed when it changes
	calls   int
}

// enter returns a channel that is closed when the approval changes. Enter before the approval is read, and leave at the end.
func (w *waitingCalls) enter(approval string) (changed <-chan struct{}, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byApproval == nil {
		w.byApproval = map[string]*waitingRoom{}
	}
	room := w.byApproval[approval]
	if room == nil {
		room = &waitingRoom{changed: make(chan struct{})}
		w.byApproval[approval] = room
	}
	room.calls++
	return room.changed, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if room.calls--; room.calls == 0 && w.byApproval[approval] == room {
			delete(w.byApproval, approval)
		}
	}
}

// wake wakes the calls that wait for the approval.
func (w *waitingCalls) wake(approval string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if room := w.byApproval[approval]; room != nil {
		close(room.changed)
		delete(w.byApproval, approval)
	}
}

// wakeAll wakes every call that waits.
func (w *waitingCalls) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for approval, room := range w.byApproval {
		close(room.changed)
		delete(w.byApproval, approval)
	}
}

// Hold says how a call waits for answers, and keeps its state from one wait to the next.
type Hold struct {
	For  time.Duration // how long its door holds it; 0: it is held for a silence alone
	Tell func(Waiting) // called while the call is held, from its goroutine; nil: never

	until    time.Time // when the door stops holding it
	lastSeen string    // the approval and its state on which the call was judged again
}

// isNew tells whether the call was not judged on this state of the approval yet.
func (h *Hold) isNew(a approval.Approval, now time.Time) bool {
	seen := a.ID + string(a.StateAt(now))
	was := h.lastSeen
	h.lastSeen = seen
	return seen != was
}

// Wait holds a call of the agent's for the answer to a question: as long as its door holds it, or until the time when silence permits it
// (HI-2). It tells whether there is something to judge again. A call that ends here has lost nothing: the same call finds the answer.
func (d *Desk) Wait(ctx context.Context, agent, id string, h *Hold) (again bool) {
	if !d.held.enter(agent) {
		return false
	}
	defer d.held.leave(agent)
	changed, leave := d.calls.enter(id)
	defer leave()
	a, err := d.o.Store.Approval(ctx, id)
	if err != nil {
		return false
	}
	now := d.o.Now()
	a = a.Recount(d.o.Voter)
	if !waits(a, now) { // answered between the judgement and here
		return h.isNew(a, now)
	}
	if h.until.IsZero() {
		h.until = now.Add(h.For)
	}
	look, waiting := h.until, Waiting{ApprovalID: a.ID, Risk: a.Risk}
	if a.State == approval.Pending && !a.SilenceAt.IsZero() && len(a.Votes) == 0 {
		look, waiting.SilenceAt = a.SilenceAt, a.SilenceAt // silence permits it then, however long the door holds it
	}
	if a.ExpiresAt.Before(look) {
		look = a.ExpiresAt
	}
	if !now.Before(look) { // where it was put off between the judgement and here, the caller is told so
		return a.State == approval.Deferred && h.isNew(a, now)
	}
	return d.hold(ctx, changed, look.Sub(now), func() {
		if h.Tell != nil {
			h.Tell(waiting)
		}
	})
}

// hold waits until the approval changes or the time is over, and reports from time to time that it waits. again is false once the caller has gone.
func (d *Desk) hold(ctx context.Context, changed <-chan struct{}, wait time.Duration, tell func()) (again bool) {
	tell()
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	timer := time.NewTimer(max(wait, leastWait))
	defer timer.Stop()
	for {
		select {
		case <-changed:
			return ctx.Err() == nil // a call whose caller has gone is not run
		case <-timer.C:
			return ctx.Err() == nil // its time has come, or nobody waits any longer: judged again, it is permitted or asked about as before
		case <-tick.C:
			tell()
		case <-ctx.Done():
			return false
		case <-d.draining:
			return false
		}
	}
}
