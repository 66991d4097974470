package gateway_test

import (
	"context"
	"encoding/json"
	"strings"
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

// stuck is a store whose outcomes do not come back for a while.
type stuck struct {
	gateway.Store
	mu   sync.Mutex
	hold chan struct{} // outcomes wait until it is closed; nil: none does
}

func (s *stuck) Outcome(ctx context.Context, id string, e audit.Entry, raise []flow.Held, used time.Duration, seen ...evidence.Kept) (session.Session, error) {
	s.mu.Lock()
	hold := s.hold
	s.mu.Unlock()
	if hold != nil {
		<-hold
		return session.Session{}, fault.New(fault.AuditUnavailable, "")
	}
	return s.Store.Outcome(ctx, id, e, raise, used, seen...)
}

// Stopping never waits for the store: not the second call of a session either.
func TestKillDoesNotWaitForOwedOutcomes(t *testing.T) {
	w := newWorld(t)
	st := &stuck{Store: w.store}
	g := gatewayOn(t, w, st)
	started := make(chan struct{}, 8)
	w.up.answers["docs.think"] = func(ctx context.Context, params json.RawMessage, _ *call.Exchange) (json.RawMessage, error) {
		started <- struct{}{}
		<-ctx.Done()
		if strings.Contains(string(params), "late") {
			time.Sleep(100 * time.Millisecond)
		}
		return nil, ctx.Err()
	}
	if _, err := g.SessionFor(t.Context(), as("worker")); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, arg := range []string{`{"q":"first"}`, `{"q":"late"}`} {
		wg.Go(func() {
			g.Call(context.Background(), gateway.Request{Principal: as("worker"), Method: "tools/call", Tool: "think", Arguments: json.RawMessage(arg), Door: "mcp"})
		})
	}
	<-started
	<-started
	hold := make(chan struct{})
	set := func(to chan struct{}) {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.hold = to
	}
	set(hold)
	g.Standing().Disable("worker", "person:admin", "stop")
	answered := make(chan struct{})
	go func() { wg.Wait(); close(answered) }()
	select {
	case <-answered:
	case <-time.After(10 * time.Second):
		t.Error("a killed call waits for the store behind another call's outcome")
	}
	set(nil)
	close(hold)
	<-answered
}

type stuckLookUp struct {
	gateway.Store
	in chan struct{}
}

func (s *stuckLookUp) Used(ctx context.Context, key string) (bool, error) {
	close(s.in)
	<-ctx.Done()
	return false, ctx.Err()
}

// Stopping never waits for the store, not even while it is asked what was used before.
func TestKillDoesNotWaitForTheLookUpOfDestinations(t *testing.T) {
	w := newPeopleWorld(t)
	s := &stuckLookUp{Store: w.store, in: make(chan struct{})}
	w.o.Store = s
	g, err := gateway.New(t.Context(), w.o)
	if err != nil {
		t.Fatal(err)
	}
	w.offerAll(g)
	w.g = g
	p := w.open("worker", "erin", widgets)
	done := make(chan gateway.Answer, 1)
	go func() { done <- w.do(p, "slack_send", `{"to":"x"}`, "") }()
	<-s.in
	g.Standing().Disable("worker", "person:alice", "stop")
	select {
	case a := <-done:
		w.mustRefuse(a, fault.KillSwitch)
	case <-time.After(10 * time.Second):
		t.Error("the call of a killed agent hangs with the store: the look-up has no context")
	}
}

// Stopping never waits for the store: not for the record of an answer either.
func TestKillDoesNotWaitForAnAnswersRecord(t *testing.T) {
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
	for end := time.Now().Add(10 * time.Second); w.store.blocked.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the answer is not being recorded")
		}
	}
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

// Quarantine stops what is held at once, as the kill switch and the session's end do.
func TestQuarantineEndsHeldCalls(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	h := w.hold(p, "slack_publish", `{}`, time.Hour)
	h.waits()
	w.quarantine("worker")
	select {
	case a := <-h.answer:
		w.mustRefuse(a, fault.AgentQuarantined)
	case <-time.After(10 * time.Second):
		t.Error("the call of a quarantined agent stays held for an hour")
		h.hangUp()
		h.ends()
	}
}
