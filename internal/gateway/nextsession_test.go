package gateway_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/session"
)

// begins begins a conversation of the agent, as a door that knows conversations does.
func (w *world) begins(agent string) identity.Principal {
	w.t.Helper()
	p, err := w.g.BeginConversation(w.t.Context(), as(agent), false)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) ordersNext(agent string) gateway.NextSession {
	w.t.Helper()
	n, err := w.g.OrderNext(w.t.Context(), agent, "person:alice")
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// One conversation after a person's order has a fresh session, and no other one.
func TestAPersonOrdersAFreshSession(t *testing.T) {
	w := newWorld(t)
	first := w.begins("worker")
	w.mustPermit(w.as(first, "search_email"))
	tainted := w.session("worker")
	if n := w.ordersNext("worker"); n.SessionID != tainted.ID || n.OrderedBy != "person:alice" || n.OrderedAt == nil {
		t.Errorf("%+v", n)
	}
	// Until a conversation begins, nothing changes: neither by calls, nor for a door without conversations.
	w.mustRefuse(w.as(first, "web_search"), fault.FlowContaminated)
	w.mustRefuse(w.call("worker", "web_search"), fault.FlowContaminated)

	second := w.begins("worker")
	fresh := w.session("worker")
	if fresh.ID == tainted.ID || len(fresh.Labels) != 0 || fresh.Used != 0 || fresh.Next != nil || fresh.OpenedBy != "person:alice" || !fresh.Own || fresh.Budget != tainted.Budget {
		t.Errorf("%+v", fresh)
	}
	if s, err := w.g.SessionByID(t.Context(), tainted.ID); err != nil || s.State != session.Closed {
		t.Errorf("%+v, %v", s, err)
	}
	w.mustPermit(w.as(second, "web_search"))
	a := w.mustRefuse(w.as(first, "think"), fault.SessionClosed)
	if !strings.Contains(a.Verdict.Reason, "Ask your person") || strings.Contains(a.Verdict.Reason, "sallyport") || strings.Contains(a.Verdict.Reason, fresh.ID) {
		t.Errorf("%s", a.Verdict.Reason)
	}
	w.mustPermit(w.as(second, "search_email"))
	w.begins("worker") // the order was for one
	if s := w.session("worker"); s.ID != fresh.ID {
		t.Error("the order counted twice")
	}
	w.mustRefuse(w.as(second, "web_search"), fault.FlowContaminated)

	var moves []string
	for _, e := range w.entries() {
		if e.Agent == "worker" && e.Kind == audit.Change && strings.HasPrefix(e.Action, "session.") {
			moves = append(moves, e.Action+" by "+e.Actor)
		}
	}
	if got := strings.Join(moves, ", "); got != "session.open by agent:worker, session.next by person:alice, session.close by person:alice, session.open by person:alice" {
		t.Errorf("on record: %s", got)
	}
}

// A stop takes back what was ordered before it, and what is ordered after it counts.
func TestAStopTakesAnOrderBack(t *testing.T) {
	for name, stop := range stops {
		t.Run(name, func(t *testing.T) {
			w := newCommWorld(t)
			old := w.begins("worker")
			w.mustPermit(w.as(old, "search_email"))
			w.ordersNext("worker")
			stop(w)
			if n, err := w.g.Ordered(t.Context(), "worker"); n != nil || err != nil {
				t.Errorf("%+v, %v", n, err)
			}
			again := w.begins("worker")
			w.mustRefuse(w.as(again, "web_search"), fault.FlowContaminated)
			told, end := w.g.Watch()
			defer end()
			for late := time.After(10 * time.Second); w.session("worker").Next != nil; { // written down behind the stop
				select {
				case <-told:
				case <-late:
					t.Fatal("the order still stands in the session")
				}
			}
			w.ordersNext("worker")
			w.mustPermit(w.as(w.begins("worker"), "web_search"))
			var moves []string
			for _, e := range w.entries() {
				if e.Action == "session.next" || e.Action == "session.open" {
					moves = append(moves, e.Action+" by "+e.Actor)
				}
				if e.Action == "session.open" && e.Actor == "person:alice" && !strings.Contains(string(e.Detail), `"for":"agent:worker"`) {
					t.Errorf("the entry doesn't say for whose conversation the session is: %s", e.Detail)
				}
			}
			if got := strings.Join(moves, ", "); got != "session.open by agent:worker, session.next by person:alice, session.next by rule:stopped, session.next by person:alice, session.open by person:alice" {
				t.Errorf("on record: %s", got)
			}
		})
	}
}

// Nothing but a person's order makes a clean session, however often the agent connects or closed its sessions are; and an order waits until it is carried out.
func TestNothingElseMakesAFreshSession(t *testing.T) {
	for name, between := range map[string]func(w *world){
		"nothing":           func(*world) {},
		"a closed session":  func(w *world) { w.closeOwn("selfish") },
		"a given session":   func(w *world) { s, _ := w.gives("selfish"); w.closes(s.ID) },
		"the agent's next":  func(w *world) { w.opens("selfish") },
		"both":              func(w *world) { w.opens("selfish"); w.closeOwn("selfish"); w.opens("selfish") },
		"a stateless start": func(w *world) { _, _ = w.g.BeginConversation(w.t.Context(), as("selfish"), true) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			old := w.begins("selfish")
			w.mustPermit(w.as(old, "search_email"))
			between(w)
			p := w.begins("selfish")
			w.mustRefuse(w.as(p, "web_search"), fault.FlowContaminated)
			w.mustRefuse(w.as(old, "web_search"), fault.FlowContaminated) // it goes on in the session that follows
			if name == "a stateless start" {
				return // would carry an order out
			}
			w.ordersNext("selfish")
			between(w)
			w.mustRefuse(w.call("selfish", "web_search"), fault.FlowContaminated)
			w.mustPermit(w.as(w.begins("selfish"), "web_search"))
			w.mustRefuse(w.as(p, "think"), fault.SessionClosed)
		})
	}
}

func (w *world) closes(id string) {
	w.t.Helper()
	if _, err := w.g.CloseSession(w.t.Context(), id, "person:alice", "done"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) closeOwn(agent string) { w.closes(w.session(agent).ID) }

func (w *world) opens(agent string) {
	w.t.Helper()
	if _, _, err := w.g.OpenSession(w.t.Context(), as(agent), gateway.OpenRequest{}); err != nil {
		w.t.Fatal(err)
	}
}

// A request of a protocol without conversations carries the order out, once, unless a call of before still runs.
func TestAStatelessRequestBeginsAnew(t *testing.T) {
	w := newWorld(t)
	w.mustPermit(w.call("worker", "search_email"))
	w.ordersNext("worker")
	for range 2 {
		if p, err := w.g.BeginConversation(t.Context(), as("worker"), true); err != nil || p.Conversation != 0 {
			t.Fatalf("%+v, %v", p, err)
		}
		w.mustPermit(w.call("worker", "web_search"))
	}
	w.mustPermit(w.call("worker", "search_email"))
	if _, err := w.g.BeginConversation(t.Context(), as("worker"), true); err != nil {
		t.Fatal(err)
	}
	w.mustRefuse(w.call("worker", "web_search"), fault.FlowContaminated)
}

// What a call of the agent started can't take the fresh session while that call runs.
func TestNoFreshSessionWhileCallsRun(t *testing.T) {
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
	before := w.session("worker")
	w.ordersNext("worker")
	if _, err := w.g.BeginConversation(t.Context(), as("worker"), false); !fault.Is(err, fault.Conflict) || fault.Of(err).Remedy == "" {
		t.Errorf("%v", err)
	}
	if _, err := w.g.BeginConversation(t.Context(), as("worker"), true); err != nil {
		t.Error(err)
	}
	if s := w.session("worker"); s.ID != before.ID {
		t.Error("a session began while a call ran")
	}
	close(ends)
	w.mustPermit(<-done)
	w.mustPermit(w.as(w.begins("worker"), "web_search"))
}

// The order outlives a restart, and so does that it was carried out.
func TestAnOrderOutlivesARestart(t *testing.T) {
	w := newWorld(t)
	w.mustPermit(w.call("worker", "search_email"))
	tainted := w.session("worker")
	w.ordersNext("worker")
	w.end()
	w.start()
	w.begins("worker")
	fresh := w.session("worker")
	if fresh.ID == tainted.ID || len(fresh.Labels) != 0 {
		t.Errorf("%+v", fresh)
	}
	w.end()
	w.start()
	w.begins("worker")
	if s := w.session("worker"); s.ID != fresh.ID || s.Piece != 1 {
		t.Errorf("%+v", s)
	}
}

// An order while a session is open that somebody gave the agent waits for its end.
func TestOrderWaitsForASessionOfAHost(t *testing.T) {
	w := newWorld(t)
	w.mustPermit(w.call("worker", "search_email"))
	given, _ := w.gives("worker")
	w.ordersNext("worker")
	if _, err := w.g.BeginConversation(t.Context(), as("worker"), false); !fault.Is(err, fault.SessionClosed) || !strings.Contains(fault.Of(err).Remedy, "Ask your person") {
		t.Errorf("%v", err)
	}
	w.closes(given.ID)
	w.mustPermit(w.as(w.begins("worker"), "web_search"))
}

// An agent without a session of its own needs no order, and an order for an agent that is not declared is refused.
func TestOrderWithoutASessionOrAnAgent(t *testing.T) {
	w := newWorld(t)
	if n := w.ordersNext("worker"); n.SessionID != "" || n.OrderedBy != "" {
		t.Errorf("%+v", n)
	}
	for id, want := range map[string]fault.Code{"nobody": fault.NotFound, "": fault.RequestMalformed, "a b": fault.RequestMalformed} {
		if _, err := w.g.OrderNext(t.Context(), id, "person:alice"); !fault.Is(err, want) || fault.Of(err).Field != "agent_id" {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// The agent doesn't learn that a fresh session waits.
func TestTheAgentDoesNotSeeTheOrder(t *testing.T) {
	w := newWorld(t)
	w.mustPermit(w.call("worker", "think"))
	w.ordersNext("worker")
	st, err := w.g.Status(t.Context(), as("worker"), "")
	if b, _ := json.Marshal(st); err != nil || strings.Contains(string(b), "next") || strings.Contains(string(b), "alice") {
		t.Errorf("%s, %v", b, err)
	}
	if n, err := w.g.Ordered(t.Context(), "worker"); err != nil || n == nil || n.By != "person:alice" {
		t.Errorf("%+v, %v", n, err)
	}
}

// Of conversations that begin at once, one opens the fresh session, and all are in it; calls of before end with the old one.
func TestConversationsBeginAtOnce(t *testing.T) {
	w := newWorld(t)
	old := w.begins("worker")
	w.mustPermit(w.as(old, "search_email"))
	w.ordersNext("worker")
	began := make([]identity.Principal, 8)
	var all sync.WaitGroup
	for i := range began {
		all.Go(func() {
			p, err := w.g.BeginConversation(t.Context(), as("worker"), false)
			if err != nil && !fault.Is(err, fault.Conflict) { // a call of another one that runs already
				t.Error(err)
			}
			if began[i] = p; err == nil {
				if a := w.as(p, "think"); a.Verdict.Decision != fault.Permit {
					t.Errorf("%+v", a.Verdict)
				}
			}
			if a := w.as(old, "web_search"); a.Verdict.Decision == fault.Permit {
				t.Error("the old conversation is in the fresh session")
			}
		})
	}
	all.Wait()
	for _, p := range began {
		if p.Conversation != 0 && p.Conversation != 2 {
			t.Errorf("%+v", p)
		}
	}
	opened := 0
	for _, e := range w.entries() {
		if e.Action == "session.open" {
			opened++
		}
	}
	if s := w.session("worker"); opened != 2 || s.Piece != 1 || len(s.Labels) != 0 {
		t.Errorf("%d sessions were opened, and the newest is %+v", opened, s)
	}
}
