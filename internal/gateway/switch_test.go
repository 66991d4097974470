package gateway_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/evidence"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/session"
)

// untouched is a store that counts how often a call asks it for a session.
type untouched struct {
	gateway.Store
	asked atomic.Int64
}

func (s *untouched) Session(ctx context.Context, id string) (session.Session, error) {
	s.asked.Add(1)
	return s.Store.Session(ctx, id)
}

func (s *untouched) OwnSession(ctx context.Context, agent string) (session.Session, error) {
	s.asked.Add(1)
	return s.Store.OwnSession(ctx, agent)
}

func (s *untouched) OpenSession(ctx context.Context, o session.Session, e audit.Entry, given ...evidence.Kept) error {
	s.asked.Add(1)
	return s.Store.OpenSession(ctx, o, e, given...)
}

// The switch comes before any work: a stopped agent's call is not parsed, and the store is not asked for its session.
func TestSwitchComesBeforeAnyWork(t *testing.T) {
	for _, agent := range []string{"", "worker"} {
		w := newWorld(t)
		store := &untouched{Store: w.store.Store}
		w.store.Store = store
		w.g.Standing().Disable(agent, "person:admin", "stop")
		for what, r := range map[string]gateway.Request{
			"a call":           {Tool: "web_search", Arguments: json.RawMessage(`{"q":"x"}`)},
			"what is no JSON":  {Tool: "web_search", Arguments: json.RawMessage(`{`)},
			"an unknown tool":  {Tool: "nothing", Arguments: json.RawMessage(`{}`)},
			"a question of it": {Tool: "web_search", Arguments: json.RawMessage(`{}`), DryRun: true},
		} {
			r.Principal, r.Method, r.Door = as("worker"), "tools/call", "mcp"
			if a := w.g.Call(t.Context(), r); a.Verdict.Code != fault.KillSwitch || a.Session != "" {
				t.Errorf("switch of %q, %s: %+v in session %q", agent, what, a.Verdict, a.Session)
			}
		}
		if n := store.asked.Load(); n != 0 {
			t.Errorf("switch of %q: the store was asked for the session of a stopped agent %d times", agent, n)
		}
	}
}
