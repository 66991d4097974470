// Package memory bounds the memory that callers and servers can make the gateway take (TH-5): what requests hold at a time, in all and by agent, and the
// heap of the process.
//
// A request takes what its body will cost before the body is read, takes more as its answer comes in, and gives everything back when the answer has left.
//
// Promises: never more is held than the whole budget; everything is given back by Release, and twice is harmless; who holds something never waits for
// more, so nobody waits for each other; an agent's requests together hold at most as much as they leave free, unless it is a single one, so one agent
// leaves room for all others, however much it sends; a part of the budget is for small requests alone; where requests wait, the next one is that of the
// agent which holds least; a wait ends after Patience.
package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"sallyport.example/internal/fault"
)

const (
	// PerCall is what a request holds whatever its size: its goroutines, its buffers, its facts, and an answer of up to PerCall/Factor bytes.
	PerCall = 64 << 10
	// Factor is what a byte of a body, or of an answer, takes while a call goes through the corridor.
	Factor = 12
	// Patience is how long a request waits for memory.
	Patience = 10 * time.Second
	// Again is when a request that was refused should come again.
	Again = 5 * time.Second

	// small is what a small request holds at most. One in kept bytes of the budget is for such requests alone.
	small = PerCall + 4<<10*Factor
	kept  = 8
	// maxWaiting bounds the requests of one agent that wait.
	maxWaiting = 512
)

// Budget is the memory for requests. Make it with New.
type Budget struct {
	total int64

	mu      sync.Mutex // guards the rest, and the holds' bytes
	used    int64
	held    map[string]int64 // by agent; without those that hold nothing
	waiting []*waiter        // in the order in which they came
}

// waiter is a request that waits. granted is closed when it got its hold.
type waiter struct {
	hold    *Hold
	bytes   int64
	granted chan struct{}
}

// Hold is what one request holds. A nil one is of no budget: there is always more.
type Hold struct {
	b     *Budget
	agent string
	bytes int64
	ended bool
}

// New returns a budget that may hold total bytes.
func New(total int64) *Budget { return &Budget{total: total, held: map[string]int64{}} }

// ForLimit returns the budget of a process with that limit: half of it. The other half is for what no request holds, and for what waits to be collected.
func ForLimit(limit int64) *Budget { return New(limit / 2) }

// Take takes the memory for a request of the agent's with a body of so many bytes; where its length is not known it is 0, and each piece is taken with
// More. Where there is no room it waits, for Patience at most. The error is fault.LimitRate, or that of ctx. A nil budget gives a nil hold.
func (b *Budget) Take(ctx context.Context, agent string, body int64) (*Hold, error) {
	if b == nil {
		return nil, nil
	}
	w := &waiter{hold: &Hold{b: b, agent: agent}, bytes: PerCall + Factor*max(0, body)}
	if granted, err := b.enter(w); granted || err != nil {
		return w.hold, err
	}
	patience := time.NewTimer(Patience)
	defer patience.Stop()
	select {
	case <-w.granted:
		return w.hold, nil
	case <-patience.C:
		if b.leave(w) {
			return nil, full("No memory for this request became free in %s.", Patience)
		}
		return w.hold, nil
	case <-ctx.Done():
		if !b.leave(w) {
			w.hold.Release()
		}
		return nil, ctx.Err()
	}
}

// enter gives w its bytes, or lets it wait.
func (b *Budget) enter(w *waiter) (granted bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	agent, before, own := w.hold.agent, false, 0
	for _, other := range b.waiting {
		before = before || isSmall(other) == isSmall(w) && b.held[other.hold.agent] <= b.held[agent]
		if other.hold.agent == agent {
			own++
		}
	}
	switch {
	case !before && b.fits(agent, w.bytes):
		b.give(w.hold, w.bytes)
		return true, nil
	case w.bytes > b.largest():
		return false, fault.New(fault.RequestMalformed, "A request of this size does not fit into the gateway's memory.").Try("Ask an operator to raise limits.memory.")
	case own >= maxWaiting:
		return false, full("%d requests of this agent wait for memory.", own)
	}
	w.granted = make(chan struct{})
	b.waiting = append(b.waiting, w)
	return false, nil
}

// Held is how much requests hold now, of how much they may, and how many wait for some. Of a nil budget all are 0.
func (b *Budget) Held() (used, total int64, waiting int) {
	if b == nil {
		return 0, 0, 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used, b.total, len(b.waiting)
}

func full(format string, args ...any) error {
	e := fault.New(fault.LimitRate, format, args...).Try("Try again in %s, with fewer or smaller requests at a time.", Again)
	e.Again = Again
	return e
}

func isSmall(w *waiter) bool { return w.bytes <= small }

// largest is what a request that is not small can hold at most.
func (b *Budget) largest() int64 { return b.total - b.total/kept }

// fits tells whether the agent may hold n bytes more. It holds mu.
func (b *Budget) fits(agent string, n int64) bool {
	room := b.total
	if n > small {
		room = b.largest()
	}
	free := room - b.used - n
	return free >= 0 && (b.held[agent] == 0 || b.held[agent]+n <= free)
}

// grows tells whether the hold may have n bytes more. The only one of an agent may grow as far as there is room. It holds mu.
func (b *Budget) grows(h *Hold, n int64) bool {
	free := b.largest() - b.used - n
	return free >= 0 && (b.held[h.agent] == h.bytes || b.held[h.agent]+n <= free)
}

// give holds mu.
func (b *Budget) give(h *Hold, n int64) {
	h.bytes += n
	b.used += n
	b.held[h.agent] += n
}

// leave ends a wait; false if it was granted meanwhile. Those behind it may fit.
func (b *Budget) leave(w *waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.waiting, w)
	if i < 0 {
		return false
	}
	b.waiting = slices.Delete(b.waiting, i, i+1)
	b.grant()
	return true
}

// grant gives waiting requests what has become free: small ones and others in turns of their own, and among them the first of the agent that holds least.
// One that does not fit is waited for, so that it is not passed by for ever. It holds mu.
func (b *Budget) grant() {
	for _, class := range []bool{true, false} {
		for {
			next := -1
			for i, w := range b.waiting {
				if isSmall(w) == class && (next < 0 || b.held[w.hold.agent] < b.held[b.waiting[next].hold.agent]) {
					next = i
				}
			}
			if next < 0 || !b.fits(b.waiting[next].hold.agent, b.waiting[next].bytes) {
				break
			}
			w := b.waiting[next]
			b.waiting = slices.Delete(b.waiting, next, next+1)
			b.give(w.hold, w.bytes)
			close(w.granted)
		}
	}
}

// More takes the memory for n bytes more, of a body or of an answer. It never waits. The error is fault.LimitRate.
func (h *Hold) More(n int) error {
	if h == nil {
		return nil
	}
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	switch bytes := Factor * int64(n); {
	case h.ended: // whoever still reads for it reads in vain
		return full("The request has ended.")
	case !h.b.grows(h, bytes):
		return full("There is no memory for more of it now.")
	default:
		h.b.give(h, bytes)
		return nil
	}
}

// Release gives back everything. It is called when the answer has left.
func (h *Hold) Release() {
	if h == nil {
		return
	}
	b := h.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.ended {
		return
	}
	h.ended = true
	b.used -= h.bytes
	if b.held[h.agent] -= h.bytes; b.held[h.agent] == 0 {
		delete(b.held, h.agent)
	}
	h.bytes = 0
	if len(b.waiting) > 0 {
		b.grant()
	}
}
