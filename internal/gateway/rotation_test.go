package gateway_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/evidence"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/session"
)

// closing closes the session between a call's intent and its dispatch.
type closing struct {
	gateway.Store
	then func(id string)
}

func (c *closing) Intent(ctx context.Context, id string, v int64, e audit.Entry, raise []flow.Held, spend ...gateway.Spend) (session.Session, error) {
	s, err := c.Store.Intent(ctx, id, v, e, raise, spend...)
	if err == nil && c.then != nil {
		c.then(id)
	}
	return s, err
}

// A session that is closed after the intent and before the dispatch has no effect any more.
func TestSessionClosedBetweenIntentAndDispatchHasNoEffect(t *testing.T) {
	w := newWorld(t)
	c := &closing{Store: w.store}
	g := gatewayOn(t, w, c)
	ran := false
	w.up.answers["docs.think"] = func(ctx context.Context, _ json.RawMessage, _ *call.Exchange) (json.RawMessage, error) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Second): // that it is cancelled can take its time on a busy machine
			ran = true
			return text("done"), nil
		}
	}
	if _, err := g.SessionFor(t.Context(), as("worker")); err != nil {
		t.Fatal(err)
	}
	c.then = func(id string) {
		c.then = nil
		if _, err := g.CloseSession(context.Background(), id, "person:admin", "stop"); err != nil {
			t.Error(err)
		}
	}
	g.Call(t.Context(), gateway.Request{Principal: as("worker"), Method: "tools/call", Tool: "think", Arguments: json.RawMessage(`{}`), Door: "mcp"})
	if ran {
		t.Error("the operation ran to its end in a session that was closed before it was dispatched")
	}
}

// pausing holds the first OpenSession after it was armed back until released: what a scheduler does to a goroutine between reading
// what is inherited and writing the session.
type pausing struct {
	gateway.Store
	mu      sync.Mutex
	armed   bool
	reached chan struct{}
	release chan struct{}
}

func (p *pausing) OpenSession(ctx context.Context, s session.Session, e audit.Entry, given ...evidence.Kept) error {
	p.mu.Lock()
	wait := p.armed
	p.armed = false
	p.mu.Unlock()
	if wait {
		close(p.reached)
		<-p.release
	}
	return p.Store.OpenSession(ctx, s, e, given...)
}

// Two rotations at a time: one has read what it inherits, the other opens, reads internal data and closes in between.
func TestRotationsThatCrossKeepLabels(t *testing.T) {
	w := newWorld(t)
	p := &pausing{Store: w.store, reached: make(chan struct{}), release: make(chan struct{})}
	g := gatewayOn(t, w, p)
	do := func(tool string) gateway.Answer {
		return g.Call(t.Context(), gateway.Request{Principal: as("selfish"), Method: "tools/call", Tool: tool, Arguments: json.RawMessage(`{"q":"x"}`), Door: "mcp"})
	}
	w.mustPermit(do("think"))
	p.mu.Lock()
	p.armed = true
	p.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, _, err := g.OpenSession(context.Background(), as("selfish"), gateway.OpenRequest{}); err != nil {
			t.Error(err)
		}
	})
	<-p.reached
	w.mustPermit(do("search_email")) // the agent's session: opened, holds internal
	s, err := g.SessionFor(t.Context(), as("selfish"))
	if err != nil {
		t.Fatal(err)
	}
	if !s.Holds("internal") {
		t.Fatal("no label to lose")
	}
	// What the second rotation does first.
	if _, err := g.CloseSession(t.Context(), s.ID, "agent:selfish", "the agent opened its next session"); err != nil {
		t.Fatal(err)
	}
	close(p.release)
	wg.Wait()
	if a := do("web_search"); a.Verdict.Decision == fault.Permit {
		t.Error("the agent read internal mail and then reached the web: its newest session lost the label")
	}
}

// An agent that may open sessions has no rate and no budget at all.
func TestRotationRenewsNoLimit(t *testing.T) {
	w := newWorld(t, func(o *gateway.Options) { o.Limits.CallsPerMinute = 3 })
	permitted := 0
	for range 4 {
		for range 3 {
			if w.call("selfish", "think").Verdict.Decision == fault.Permit {
				permitted++
			}
		}
		if _, _, err := w.g.OpenSession(t.Context(), as("selfish"), gateway.OpenRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if permitted > 3 {
		t.Errorf("%d calls in a minute, where 3 are allowed", permitted)
	}
}

// hangingUp ends the caller's context as soon as a session was closed, as a client does that hangs up.
type hangingUp struct {
	gateway.Store
	hangUp context.CancelFunc
}

func (h *hangingUp) ChangeSession(ctx context.Context, id string, change func(session.Session) (session.Session, audit.Entry, error)) (session.Session, error) {
	s, err := h.Store.ChangeSession(ctx, id, change)
	if err == nil && s.State == session.Closed && h.hangUp != nil {
		h.hangUp()
	}
	return s, err
}

// Half a rotation renews no budget: the agent hangs up between the end of its session and the beginning of the next.
func TestHalfARotationRenewsNoBudget(t *testing.T) {
	w := newWorld(t, func(o *gateway.Options) { o.Limits.Budget = 3 * time.Second })
	h := &hangingUp{Store: w.store}
	g := gatewayOn(t, w, h)
	w.up.answers["docs.think"] = func(ctx context.Context, _ json.RawMessage, _ *call.Exchange) (json.RawMessage, error) {
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return text("ok"), nil
	}
	do := func() gateway.Answer {
		return g.Call(t.Context(), gateway.Request{Principal: as("selfish"), Method: "tools/call", Tool: "think", Arguments: json.RawMessage(`{}`), Door: "mcp"})
	}
	w.mustPermit(do())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h.hangUp = cancel
	_, _, err := g.OpenSession(ctx, as("selfish"), gateway.OpenRequest{})
	h.hangUp = nil
	t.Logf("the rotation: %v", err)
	if a := do(); a.Verdict.Decision == fault.Permit {
		t.Error("4 s of a budget of 3 s were spent")
	}
}

// What still runs in the session before is spent, too: opening the next one does not leave it behind.
func TestRotationCountsWhatStillRuns(t *testing.T) {
	w := newWorld(t, func(o *gateway.Options) { o.Limits.Budget = 4 * time.Second })
	started := make(chan struct{}, 16)
	w.up.answers["docs.think"] = func(ctx context.Context, _ json.RawMessage, _ *call.Exchange) (json.RawMessage, error) {
		started <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	began := time.Now()
	var all []chan time.Duration
	for range 4 {
		ran := make(chan time.Duration, 1)
		all = append(all, ran)
		go func() {
			at := time.Now()
			w.call("selfish", "think")
			ran <- time.Since(at)
		}()
		<-started
		time.Sleep(time.Second)
		if _, _, err := w.g.OpenSession(t.Context(), as("selfish"), gateway.OpenRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	var sum time.Duration
	for _, ran := range all {
		sum += <-ran
	}
	t.Logf("%s in %s", sum, time.Since(began))
	if sum > 8*time.Second {
		t.Errorf("%s in operations, of a budget of 4 s", sum)
	}
}
