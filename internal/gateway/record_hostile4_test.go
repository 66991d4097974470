package gateway_test

import (
	"testing"

	"sallyport.example/internal/approval"
)

// What was asked and answered is on record with the amount that it was about, not only what ran.
func TestHostile4EntriesOfQuestionsHaveTheAmount(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	q := w.asks(p, "slack_pay", `{"sum":500,"to":"acme"}`)
	w.mustRespond("bob", q.ID, approval.Reject, "no")
	for _, e := range w.entries() {
		if (e.Action == "approval.ask" || e.Action == "approval.reject") && e.Amount != "500 USD" {
			t.Errorf("%s (%s): amount %q", e.Action, e.Risk, e.Amount)
		}
	}
}
