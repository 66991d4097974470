package gateway_test

import (
	"strings"
	"testing"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/gateway"
)

// Now and then a question that no agent asked stands among the others, looks like them until it is answered, and
// never runs anything.
func TestDrills(t *testing.T) {
	w := newPeopleWorld(t, func(o *gateway.Options) {
		o.Limits.DrillEvery, o.Draw = 50, func(n int) int {
			if n != 50 {
				t.Errorf("drawn of %d", n)
			}
			return 0
		}
	})
	p := w.open("worker", "erin", widgets)
	for i, arguments := range []string{
		`{"sum":5,"to":"DE02120300000000202051"}`, `{"sum":5,"to":"bo@example.com"}`, `{"sum":5,"to":"general"}`, `{"sum":5,"to":"https://example.com/x"}`,
	} {
		real := w.asks(p, "slack_pay", arguments)
		open, err := w.g.Desk().Questions(t.Context(), approval.Pending, p.ID, "", 10)
		if err != nil || len(open) != 2 {
			t.Fatalf("%d questions, %v", len(open), err)
		}
		drill := w.question(open[0].ID)
		if open[0].ID == real.ID {
			drill = w.question(open[1].ID)
		}
		if drill.Operation != real.Operation || drill.Risk != real.Risk || drill.Needed != 1 || drill.Agent != real.Agent || drill.Requester != real.Requester ||
			len(drill.Reasons) != len(real.Reasons) || drill.Drill || drill.CallDigest == real.CallDigest || string(drill.Arguments) == string(real.Arguments) ||
			!strings.Contains(string(drill.Arguments), `"sum":5`) || len(drill.Destinations) != 1 || drill.Destinations[0] == real.Destinations[0] {
			t.Fatalf("the drill %+v\nof %+v", drill, real)
		}
		decision, reason := approval.Reject, "nobody asked to pay them"
		if i == 0 {
			decision, reason = approval.Approve, ""
		}
		w.mustRespond("bob", drill.ID, decision, reason)
		if q := w.question(drill.ID); !q.Drill {
			t.Error("an answered drill is not told")
		}
		// The same call of the agent's is another: it is asked about, whatever was said to the drill.
		if twin := w.asks(p, "slack_pay", string(drill.Arguments)); twin.ID == drill.ID || twin.State != approval.Pending || twin.Drill {
			t.Errorf("the agent's own call found the drill: %+v", twin)
		}
		for _, q := range []approval.State{approval.Pending} {
			rest, err := w.g.Desk().Questions(t.Context(), q, p.ID, "", 100)
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range rest {
				w.mustRespond("bob", q.ID, approval.Reject, "enough")
				if q := w.question(q.ID); q.Drill != (q.ID != real.ID && string(q.Arguments) != string(drill.Arguments)) {
					t.Errorf("told to be a drill: %v, %s", q.Drill, q.Arguments)
				}
			}
		}
	}
	if n, err := w.g.Desk().Drills(t.Context()); err != nil || n.Approved != 1 || n.Asked != 8 || n.Rejected != 7 {
		t.Errorf("%+v, %v", n, err)
	}
	if w.sent("pay") != 0 {
		t.Error("something was paid")
	}
}

// No drill is made where nothing could be seen to be wrong with it, where silence permits, or where nobody wants any.
func TestNoDrills(t *testing.T) {
	for name, every := range map[string]int{"wanted": 1, "not wanted": 0} {
		w := newPeopleWorld(t, func(o *gateway.Options) { o.Limits.DrillEvery, o.Draw = every, func(int) int { return 0 } })
		p := w.open("worker", "erin", widgets)
		w.asks(p, "slack_publish", `{"text":"x"}`)
		w.asks(p, "slack_mail", `{"to":"bo@example.com"}`)
		w.asks(p, "slack_pay", `{"sum":5,"to":{"iban":1}}`)
		if every == 0 {
			w.asks(p, "slack_pay", `{"sum":5,"to":"bo@example.com"}`)
		}
		if n, err := w.g.Desk().Drills(t.Context()); err != nil || n.Asked != 0 {
			t.Errorf("%s: %+v, %v", name, n, err)
		}
	}
}
