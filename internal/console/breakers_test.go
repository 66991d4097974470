package console

import (
	"net/url"
	"strings"
	"testing"
)

// The overview has the circuit breakers that are open: whose, since when, why, when one call may try. Operators reset them, with a reason. The page of an agent has its own.
func TestBreakersOnPages(t *testing.T) {
	w := newPagesWorld(t)
	if page := w.ask("viewer operator", "/", nil).Body.String(); strings.Contains(page, "breakers") {
		t.Error("a circuit breaker is open")
	}
	for range 5 {
		w.g.RunEnded(t.Context(), "worker", "timeout", "")
	}
	const says, form = `<strong class="bad">open</strong>: agent <a href="/agents/worker">worker</a>`, `action="/breakers/reset"`
	page := w.ask("viewer", "/", nil).Body.String()
	contains(t, page, "Circuit breakers <small>1 open</small>", says, "its runs failed in a row. One call may try in ")
	if strings.Contains(page, form) {
		t.Error("a viewer may reset it")
	}
	contains(t, w.ask("viewer operator", "/", nil).Body.String(), form, `<input type="hidden" name="name" value="agent:worker">`)
	of := w.ask("viewer", "/agents/worker", nil).Body.String()
	contains(t, of, "Circuit breaker "+says)
	if strings.Index(of, "Circuit breaker "+says) > strings.Index(of, "Approved by") {
		t.Errorf("what keeps it from working is not said first:\n%s", of)
	}
	if strings.Contains(w.ask("viewer", "/agents/planner", nil).Body.String(), "Circuit breaker <strong") {
		t.Error("it is on the page of another agent")
	}

	if rec := w.ask("viewer operator", "/breakers/reset", url.Values{"name": {"agent:worker"}, "reason": {" "}}); rec.Code != 400 || !strings.Contains(rec.Body.String(), "A reason is needed") {
		t.Errorf("without a reason: %d", rec.Code)
	}
	if rec := w.ask("viewer operator", "/breakers/reset", url.Values{"name": {"crm"}, "reason": {"mended"}}); rec.Code != 404 || !strings.Contains(rec.Body.String(), "No circuit breaker") {
		t.Errorf("one that counts nothing: %d", rec.Code)
	}
	if rec := w.ask("viewer operator", "/breakers/reset", url.Values{"name": {"agent:worker"}, "reason": {"mended"}}); rec.Code != 303 || len(w.g.Breakers()) != 0 && w.g.Breakers()[0].State != "closed" {
		t.Errorf("%d %+v", rec.Code, w.g.Breakers())
	}
}
