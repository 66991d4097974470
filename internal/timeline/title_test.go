package timeline

import "testing"

// A moment is named in words: acts as the log names them, calls and declarations by their operation, as it is written.
func TestTitles(t *testing.T) {
	for _, c := range []struct {
		lane      Lane
		operation string
		want      string
	}{
		{LaneSinks, "web.search", "web.search"},
		{LaneOthers, "plan.submit", "plan.submit"}, // an operation of a server
		{LanePlans, "plan.submit", "Plan submitted"},
		{LanePlans, "declare web.fetch_page", "Need declared: web.fetch_page"},
		{LanePeople, "session.open", "Session opened"},
		{LanePeople, "session.words", "Person’s words added"},
		{LanePeople, "approval.reject", "Request rejected"},
		{LanePeople, "some.new_thing", "Some new thing"},
		{LanePeople, "élan", "Élan"},
		{LanePeople, "", ""},
	} {
		if got := (Moment{Lane: c.lane, Operation: c.operation}).Title(); got != c.want {
			t.Errorf("%s %q is %q, not %q", c.lane, c.operation, got, c.want)
		}
	}
}
