package gateway

import (
	"context"
	"sync"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/fault"
)

// Waiting is what is said while a call is held for an answer.
type Waiting struct {
	ApprovalID string
	Risk       string
	SilenceAt  time.Time // when silence permits; zero: only a person's answer does
}

const (
	// saying is how often a held call says that it still waits.
	saying = 5 * time.Second
	// leastWait is between two looks at an approval whose time should have come.
	leastWait = 5 * time.Millisecond
)

// maxHeld bounds how many calls of one agent are held at a time: each costs what its arguments cost. One more is answered at once.
const maxHeld = 32

// heldCalls counts the calls that are held, by agent.
type heldCalls struct {
	mu      sync.Mutex // guards byAgent
	byAgent map[string]int
}

func (h *heldCalls) take(agent string) bool {
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

// hold is what a call that waits for an answer has to remember.
type hold struct {
	until    time.Time // how long its door holds it
	judgedOn string    // the approval and its state on which it was judged again
}

// wait holds a call for the answer that it waits for: as long as its door wants, and where silence permits at a stated time until then
// (HI-2). It tells whether there is something to judge again. A call that ends here has lost nothing: the same call finds the answer.
func (c *crossing) wait(ctx context.Context, v fault.Verdict) (again bool) {
	if v.Decision != fault.Ask || v.ApprovalID == nil || c.r.DryRun {
		return false
	}
	if !c.g.held.take(c.agent) {
		return false
	}
	defer c.g.held.leave(c.agent)
	changed, leave := c.g.park(*v.ApprovalID)
	defer leave()
	a, err := c.g.o.Store.Approval(ctx, *v.ApprovalID)
	if err != nil {
		return false
	}
	now := c.g.now()
	a = a.Recount(c.g.o.Voter)
	if state := a.StateAt(now); state != approval.Pending && state != approval.Deferred { // answered between the judgement and here
		answer := a.ID + string(state)
		isNew := answer != c.hold.judgedOn // judged on it already, and asked again
		c.hold.judgedOn = answer
		return isNew
	}
	if c.hold.until.IsZero() {
		c.hold.until = now.Add(c.r.Hold)
	}
	look, waiting := c.hold.until, Waiting{ApprovalID: a.ID, Risk: a.Risk}
	if a.State == approval.Pending && !a.SilenceAt.IsZero() && len(a.Votes) == 0 {
		look, waiting.SilenceAt = a.SilenceAt, a.SilenceAt // it comes, whatever the door's patience
	}
	if a.ExpiresAt.Before(look) {
		look = a.ExpiresAt
	}
	if !now.Before(look) {
		return false
	}
	say := func() {
		if c.r.Waiting != nil {
			c.r.Waiting(waiting)
		}
	}
	say()
	tick := time.NewTicker(saying)
	defer tick.Stop()
	timer := time.NewTimer(max(look.Sub(now), leastWait))
	defer timer.Stop()
	for {
		select {
		case <-changed:
			return ctx.Err() == nil // who has left gets nothing run
		case <-timer.C:
			return ctx.Err() == nil // its time has come, or nobody waits any longer: judged again, it is permitted or asked about as before
		case <-tick.C:
			say()
		case <-ctx.Done():
			return false
		case <-c.g.draining:
			return false
		}
	}
}
