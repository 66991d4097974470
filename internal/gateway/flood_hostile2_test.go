package gateway_test

import (
	"testing"

	"sallyport/internal/fault"
	"sallyport/internal/gateway"
)

// The rate limit bounds what an agent can have written down, too: it stands after permission, so a refused call costs nothing but a
// durable entry, as often as the agent likes.
func TestHostile2RefusedCallsDoNotFillTheLog(t *testing.T) {
	w := newWorld(t, func(o *gateway.Options) { o.Limits.CallsPerMinute = 10 })
	w.mustPermit(w.call("worker", "think"))
	before, err := w.db.Size(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		w.mustRefuse(w.call("worker", "no_such_tool"), fault.ToolUnknown)
	}
	after, err := w.db.Size(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := after - before; n > 100 {
		t.Errorf("an agent that may call 10 times a minute wrote %d durable entries at once", n)
	}
}
