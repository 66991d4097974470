package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/evidence"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/session"
)

var host = identity.Principal{Kind: identity.Host, ID: "h"}

// gives opens a session for an agent as a host does.
func (w *world) gives(agentID string) (session.Session, identity.Principal) {
	w.t.Helper()
	s, token, err := w.g.OpenSession(w.t.Context(), host, gateway.OpenRequest{Agent: agentID})
	if err != nil {
		w.t.Fatal(err)
	}
	p, err := w.g.Standing().Authenticate(token)
	if err != nil {
		w.t.Fatal(err)
	}
	return s, p
}

// While a session is open that somebody gave an agent, its own one is closed to it at every door, for its own token and for those of earlier own
// sessions. Afterwards the agent goes on in its own, with the labels of before.
func TestOwnSessionWaitsForTheOneThatWasGiven(t *testing.T) {
	for name, opener := range map[string]identity.Principal{"a host": host, "a person": {Kind: identity.Person, ID: "alice"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			self := as("selfish")
			_, token, err := w.g.OpenSession(t.Context(), self, gateway.OpenRequest{})
			if err != nil {
				t.Fatal(err)
			}
			earlier, err := w.g.Standing().Authenticate(token)
			if err != nil {
				t.Fatal(err)
			}
			w.mustPermit(w.call("selfish", "search_email"))
			own, err := w.g.SessionFor(t.Context(), self)
			if err != nil {
				t.Fatal(err)
			}
			given, _, err := w.g.OpenSession(t.Context(), opener, gateway.OpenRequest{Agent: "selfish"})
			if err != nil {
				t.Fatal(err)
			}
			if s, err := w.g.SessionByID(t.Context(), own.ID); err != nil || s.State != session.Closed {
				t.Errorf("the agent's own session is %s, %v", s.State, err)
			}
			a := w.mustRefuse(w.call("selfish", "web_search"), fault.SessionClosed)
			if !strings.Contains(a.Verdict.Reason, "Ask your person") || strings.Contains(a.Verdict.Reason, given.ID) {
				t.Errorf("%s", a.Verdict.Reason)
			}
			w.mustRefuse(w.as(earlier, "web_search"), fault.SessionClosed)
			dry := w.g.Call(t.Context(), gateway.Request{Principal: self, Method: "tools/call", Tool: "web_search", Door: "mcp", DryRun: true})
			if dry.Verdict.Code != fault.SessionClosed {
				t.Errorf("check: %+v", dry.Verdict)
			}
			plan := json.RawMessage(`{"steps":[{"tool":"think","justification":"to think"}]}`)
			for door, use := range map[string]func() error{
				"session":  func() error { _, err := w.g.SessionFor(t.Context(), self); return err },
				"manifest": func() error { _, err := w.g.Manifest(t.Context(), self, ""); return err },
				"status":   func() error { _, err := w.g.Status(t.Context(), self, own.ID); return err },
				"plan":     func() error { _, err := w.g.SubmitPlan(t.Context(), self, "", plan); return err },
				"declare":  func() error { _, err := w.g.Declare(t.Context(), self, "", json.RawMessage(`{}`)); return err },
				"open":     func() error { _, _, err := w.g.OpenSession(t.Context(), self, gateway.OpenRequest{}); return err },
			} {
				if err := use(); !fault.Is(err, fault.SessionClosed) {
					t.Errorf("%s: %v", door, err)
				}
			}
			recorded := false
			for _, e := range w.entries() {
				recorded = recorded || e.Kind == audit.Decision && e.Code == string(fault.SessionClosed) && strings.Contains(e.Reason, given.ID)
			}
			if !recorded {
				t.Error("the record doesn't say which session was open")
			}
			// It holds for other agents' sessions alone, and ends with the last one that was given.
			w.mustPermit(w.call("worker", "think"))
			second, _ := w.gives("selfish")
			for _, s := range []session.Session{given, second} {
				w.mustRefuse(w.call("selfish", "think"), fault.SessionClosed)
				if _, err := w.g.CloseSession(t.Context(), s.ID, "person:alice", "done"); err != nil {
					t.Fatal(err)
				}
			}
			w.mustPermit(w.call("selfish", "think"))
			w.mustRefuse(w.call("selfish", "web_search"), fault.FlowContaminated)
		})
	}
}

// A restart doesn't open the agent's own session again.
func TestGivenSessionsOutliveARestart(t *testing.T) {
	w := newWorld(t)
	given, _ := w.gives("worker")
	g := gatewayOn(t, w, w.store)
	if _, err := g.SessionFor(t.Context(), as("worker")); !fault.Is(err, fault.SessionClosed) {
		t.Errorf("%v", err)
	}
	if _, err := g.CloseSession(t.Context(), given.ID, "person:alice", "done"); err != nil {
		t.Fatal(err)
	}
	if _, err := g.SessionFor(t.Context(), as("worker")); err != nil {
		t.Error(err)
	}
}

// A call that runs in the agent's own session isn't cut off: whoever opens one is told to wait.
func TestSessionsAreNotGivenWhileOwnCallsRun(t *testing.T) {
	w := newWorld(t)
	begun, ends := make(chan struct{}), make(chan struct{})
	w.up.answers["mail.search_email"] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
		close(begun)
		<-ends
		return text("mails"), nil
	}
	done := make(chan gateway.Answer)
	go func() { done <- w.call("worker", "search_email") }()
	<-begun
	if _, _, err := w.g.OpenSession(t.Context(), host, gateway.OpenRequest{Agent: "worker"}); !fault.Is(err, fault.Conflict) || fault.Of(err).Code.HTTPStatus() != 409 || fault.Of(err).Remedy == "" {
		t.Errorf("%v", err)
	}
	w.gives("selfish") // another agent's
	close(ends)
	w.mustPermit(<-done)
	w.gives("worker")
	w.mustRefuse(w.call("worker", "think"), fault.SessionClosed)
}

// A session that can't be opened leaves the agent its own.
func TestASessionThatWasNeverOpenedStopsNobody(t *testing.T) {
	w := newWorld(t)
	w.mustPermit(w.call("worker", "search_email"))
	refused := failing{Store: w.store}
	g := gatewayOn(t, w, &refused)
	refused.open = fault.New(fault.StoreUnavailable, "")
	if _, _, err := g.OpenSession(t.Context(), host, gateway.OpenRequest{Agent: "worker"}); !fault.Is(err, fault.StoreUnavailable) {
		t.Errorf("%v", err)
	}
	refused.open = nil
	if s, err := g.SessionFor(t.Context(), as("worker")); err != nil || !s.Holds("internal") {
		t.Errorf("%+v, %v", s.Labels, err)
	}
}

// failing is a store that opens no session.
type failing struct {
	gateway.Store
	open error
}

func (f *failing) OpenSession(ctx context.Context, s session.Session, e audit.Entry, given ...evidence.Kept) error {
	if f.open != nil {
		return f.open
	}
	return f.Store.OpenSession(ctx, s, e, given...)
}

// Of calls in the own session and sessions that are given at once, never both win: a call that runs has been let in before, and none begins after.
func TestOwnCallsAndGivenSessionsExclude(t *testing.T) {
	w := newWorld(t)
	w.mustPermit(w.call("worker", "think"))
	var mu sync.Mutex
	running, given, both := 0, 0, false
	w.up.answers["docs.think"] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
		mu.Lock()
		running++
		both = both || given > 0
		mu.Unlock()
		defer func() { mu.Lock(); running--; mu.Unlock() }()
		return text("thought"), nil
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				w.call("worker", "think")
			}
		})
	}
	all.Go(func() {
		for range 50 {
			s, _, err := w.g.OpenSession(context.Background(), host, gateway.OpenRequest{Agent: "worker"})
			if fault.Is(err, fault.Conflict) {
				continue
			}
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			given++
			both = both || running > 0
			mu.Unlock()
			mu.Lock()
			given--
			mu.Unlock()
			if _, err := w.g.CloseSession(context.Background(), s.ID, "host:h", "done"); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	if both {
		t.Error("a call ran in the agent's own session while one was given")
	}
}

// A declaration can allow both.
func TestADeclarationAllowsBoth(t *testing.T) {
	w := newWorld(t, func(o *gateway.Options) {
		d, problems := agent.Parse("both.yaml", []byte(strings.ReplaceAll(fmt.Sprintf(declaration, "both", "execution", "host"), "mode: operator", "mode: operator\nsessionsSideBySide: true")))
		if d.Digest == "" {
			t.Fatalf("%v", problems)
		}
		o.Agents = agent.NewSet(d)
	})
	w.mustPermit(w.call("both", "search_email"))
	_, p := w.gives("both")
	w.mustPermit(w.call("both", "search_email"))
	w.mustPermit(w.as(p, "web_search")) // this is what remains: what one refuses, the other does
	w.mustRefuse(w.call("both", "web_search"), fault.FlowContaminated)
}
