package gateway_test

import (
	"testing"

	"sallyport.example/internal/changes"
	"sallyport.example/internal/gateway"
)

// People are told of a session that opens, and of labels that rise.
func TestWatchSessions(t *testing.T) {
	w := newPeopleWorld(t)
	told, end := w.g.Watch()
	defer end()
	seen := func(id string) bool {
		for {
			select {
			case c := <-told:
				if c.Topic == changes.Session && c.ID == id {
					return true
				}
			default:
				return false
			}
		}
	}
	p := w.open("worker", "erin", widgets)
	if !seen(p.ID) {
		t.Error("nobody is told of a new session")
	}
	w.mustPermit(w.do(p, "search_email", `{"q":"x"}`, ""))
	if !seen(p.ID) {
		t.Error("nobody is told that its labels rose")
	}
}

// Who finds the question that another call has just asked changes nothing, and nobody is told.
func TestKeptTwinIsNoChange(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	told, end := w.g.Watch()
	defer end()
	const calls = 8
	done := make(chan gateway.Answer, calls)
	for range calls {
		go func() { done <- w.do(p, "slack_publish", `{"x":1}`, "") }()
	}
	for range calls {
		w.mustAsk(<-done)
	}
	n := 0
	for len(told) > 0 {
		if c := <-told; c.Topic == changes.Approval {
			n++
		}
	}
	if n != 1 {
		t.Errorf("people were told %d times of one question", n)
	}
}
