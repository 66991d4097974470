package gateway_test

import (
	"strings"
	"testing"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
)

// Who asked for a session decides on its plan where nobody else could, on record as their own decision; its CRITICAL call still takes two other people.
func TestOwnPlan(t *testing.T) {
	other := approval.Voter{Person: "alice", Roles: []identity.Role{identity.Approver}}
	for name, c := range map[string]struct {
		others []approval.Voter
		lets   bool // approvals.requester
		may    bool
	}{
		"alone":                         {nil, false, true},
		"beside an approver":            {[]approval.Voter{other}, false, false},
		"beside an approver, and let":   {[]approval.Voter{other}, true, true},
		"beside an operator":            {[]approval.Voter{{Person: "alice", Roles: []identity.Role{identity.Operator}}}, false, false},
		"beside a viewer":               {[]approval.Voter{{Person: "alice", Roles: []identity.Role{identity.Viewer}}}, false, true},
		"beside somebody without roles": {[]approval.Voter{{Person: "alice"}}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := unlistedWorld(t, func(o *gateway.Options) {
				o.Voter = func(person string) (approval.Voter, bool) {
					v := approval.Voter{Person: person, Roles: []identity.Role{identity.Approver}, AnswersOwn: c.lets, Others: func() []approval.Voter { return c.others }}
					return v, person == "erin"
				}
			})
			p := w.open("planner", "erin", "What do widgets cost in 2026?")
			plan := w.submit(p, `[{"tool":"shy_look","justification":"why not"},{"tool":"comm_wipe","arguments":`+getPage+`,"justification":"old widget prices"}]`)
			s, err := w.g.DecidePlan(t.Context(), p.ID, plan.Digest, true, "person:erin", "")
			if !c.may {
				if !fault.Is(err, fault.RoleMissing) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !s.Plan.Own || !strings.Contains(s.Plan.Why, "step 0") {
				t.Errorf("own %v, and a person was asked because: %q", s.Plan.Own, s.Plan.Why)
			}
			recorded := false
			for _, e := range w.entries() {
				recorded = recorded || e.Action == "plan.approve" && e.Actor == "person:erin" && strings.Contains(string(e.Detail), `"own":true`)
			}
			if !recorded {
				t.Error("the record doesn't say that it was their own plan")
			}
			for range 2 {
				if a := w.do(p, "comm_wipe", getPage, ""); a.Verdict.Decision == fault.Permit {
					t.Error("a CRITICAL call ran on the word of the person who asked for it")
				}
			}
		})
	}
}
