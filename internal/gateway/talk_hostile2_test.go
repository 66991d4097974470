package gateway_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/gateway"
)

// Stopping never waits for the store: not for the record of an answer either.
func TestHostile2KillDoesNotWaitForAnAnswersRecord(t *testing.T) {
	w := newWorld(t)
	asking := make(chan struct{})
	done := make(chan struct{})
	w.up.answers["web.web_search"] = func(ctx context.Context, _ json.RawMessage, x *call.Exchange) (json.RawMessage, error) {
		go func() { // as upstream does
			defer close(done)
			_, _ = x.Ask(ctx, "elicitation/create", json.RawMessage(`{"message":"?"}`))
		}()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	block := make(chan struct{})
	ended := make(chan time.Time, 1)
	go func() {
		w.g.Call(context.Background(), gateway.Request{Principal: as("worker"), Method: "tools/call", Tool: "web_search", Door: "mcp",
			Exchange: call.Exchange{Ask: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
				w.store.set(func(b *brittle) { b.block = block }) // the store hangs from here on
				close(asking)
				return json.RawMessage(`{"action":"accept"}`), nil
			}}})
		ended <- time.Now()
	}()
	<-asking
	time.Sleep(50 * time.Millisecond) // the answer is being recorded
	w.g.Standing().Disable("worker", "person:admin", "stop")
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("ten seconds after the switch the call is not answered: it waits for the store behind the record of an answer")
	}
	w.store.set(func(b *brittle) { b.block = nil })
	close(block)
	<-done
}
