package gateway_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/session"
)

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
func TestHostile2HalfARotationRenewsNoBudget(t *testing.T) {
	w := newWorld(t, func(o *gateway.Options) { o.Limits.Budget = 3 * time.Second })
	h := &hangingUp{Store: w.store}
	g := hostile2Gateway(t, w, h)
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
func TestHostile2RotationCountsWhatStillRuns(t *testing.T) {
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
