package gateway_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
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
func TestHostile2ClosedBetweenIntentAndDispatch(t *testing.T) {
	w := newWorld(t)
	c := &closing{Store: w.store}
	g := hostile2Gateway(t, w, c)
	ran := false
	w.up.answers["docs.think"] = func(ctx context.Context, _ json.RawMessage, _ *call.Exchange) (json.RawMessage, error) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(500 * time.Millisecond):
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
