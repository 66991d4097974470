package gateway_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
)

// A session without a call leaves memory, and comes back as it was: with its labels and its evidence.
func TestIdleSessionsLeaveMemory(t *testing.T) {
	w := newTracedWorld(t)
	p := w.tainted()
	if left := w.g.DropIdle(time.Now().Add(-time.Minute)); left == 0 {
		t.Error("a session that was just used is gone")
	}
	for range 2 {
		if left := w.g.DropIdle(time.Now().Add(time.Minute)); left != 0 {
			t.Errorf("%d sessions are still in memory", left)
		}
		w.mustPermit(w.do(p, "slack_send", to("sales@acme.example"), "")) // what it has seen confirms the address
		w.mustAsk(w.do(p, "slack_send", to("mallory@evil.example"), ""))  // and what it holds still asks for that
	}
}

// What sessions have seen is bounded in memory: the index of the one that was used longest ago is emptied, and made anew when it is needed.
func TestSeenIsBoundedInMemory(t *testing.T) {
	w := newTracedWorld(t)
	p := w.tainted()
	confirmed := func() {
		t.Helper()
		w.mustPermit(w.do(p, "slack_send", to("sales@acme.example"), ""))
		w.mustAsk(w.do(p, "slack_send", to("mallory@evil.example"), ""))
	}
	confirmed()
	before, after := w.g.Shed(1 << 40)
	if before == 0 || after != before {
		t.Errorf("%d bytes, and %d where there is room for all", before, after)
	}
	if _, after := w.g.Shed(before - 1); after != 0 {
		t.Errorf("%d bytes are left", after)
	}
	confirmed()
	if again, _ := w.g.Shed(1 << 40); again < before {
		t.Errorf("%d bytes, %d before", again, before)
	}
}

// While a call runs its session stays, whatever the time, and a session that is dropped between the look-up and the call is taken up again.
func TestSessionWithACallStays(t *testing.T) {
	w := newWorld(t)
	began, end := make(chan struct{}), make(chan struct{})
	w.up.answers["mail.search_email"] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
		close(began)
		<-end
		return text("a mail"), nil
	}
	var running sync.WaitGroup
	running.Go(func() { w.mustPermit(w.call("worker", "search_email")) })
	<-began
	if left := w.g.DropIdle(time.Now().Add(time.Hour)); left != 1 {
		t.Errorf("%d sessions are in memory while a call runs", left)
	}
	close(end)
	running.Wait()
	if left := w.g.DropIdle(time.Now().Add(time.Hour)); left != 0 {
		t.Errorf("%d sessions are in memory after it", left)
	}
	w.mustRefuse(w.call("worker", "web_search"), fault.FlowContaminated) // the label that the mail brought is still there
	delete(w.up.answers, "mail.search_email")
	stop, cancel := context.WithCancel(t.Context())
	var dropping, calling sync.WaitGroup
	dropping.Go(func() {
		for stop.Err() == nil {
			w.g.DropIdle(time.Now().Add(time.Hour))
		}
	})
	for range 4 {
		calling.Go(func() {
			for range 25 {
				if a := w.call("worker", "search_email"); a.Verdict.Decision != fault.Permit {
					t.Errorf("%+v", a.Verdict)
				}
			}
		})
	}
	calling.Wait()
	cancel()
	dropping.Wait()
	if s, err := w.g.Status(t.Context(), as("worker"), ""); err != nil || len(s.(gateway.Status).Labels) == 0 {
		t.Errorf("%+v %v", s, err)
	}
}
