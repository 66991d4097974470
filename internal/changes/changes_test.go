package changes

import "testing"

// A subscriber is told of its topics alone; one that is too slow is told last that it missed some; one that has ended is told nothing.
func TestPublish(t *testing.T) {
	var f Feed
	f.Publish(Kill, "nobody listens")
	all, endAll := f.Subscribe()
	plans, endPlans := f.Subscribe(Plan, Session)
	f.Publish(Plan, "p")
	f.Publish(Kill, "k")
	if c := <-plans; c != (Change{Topic: Plan, ID: "p"}) || len(plans) != 0 || len(all) != 2 {
		t.Errorf("%+v, and %d more; %d in all", c, len(plans), len(all))
	}
	for range 10 * maxWaiting {
		f.Publish(Session, "s")
	}
	var last Change
	n := 0
	for ; len(plans) > 0; n++ {
		last = <-plans
	}
	if n != maxWaiting || last != (Change{}) {
		t.Errorf("%d changes, the last %+v", n, last)
	}
	endPlans()
	endPlans()
	f.Publish(Plan, "q")
	if len(plans) != 0 {
		t.Error("told after the end")
	}
	endAll()
}
