package provenance

import (
	"cmp"
	"fmt"
	"slices"

	"sallyport.example/flow"
)

// OffPlan reports whether a call could carry session data out and is in no step of the sealed plan. why says how it leaves the plan. A person
// decides about such a call even if its arguments are confirmed, because the plan listed everything that would be sent.
func OffPlan(op flow.Operation, p *Profile, args []byte, s Situation) (why string, off bool) {
	if s.Plan == nil || !slices.ContainsFunc(s.Held, func(h flow.Held) bool { return h.Label != flow.Untrusted && h.Label != flow.Flagged }) {
		return "", false
	}
	p = cmp.Or(p, &Profile{Level: 2})
	if !mayCarryOut(op, p, s.Held) {
		return "", false
	}
	if t, v, ok := newTracer(op, p, args, &s); ok && (p.Boundary == BoundaryByArg && !t.leavesPerson() || t.carriesNothing(v)) {
		return "", false
	}
	followed, ok := s.Plan.Follow(op.ID, p, args, s.Evidence)
	return followed.Text, !ok
}

// mayCarryOut reports whether the data that the operation is given may leave: it is a sink, a held label would block it, or it has an argument for
// a destination.
func mayCarryOut(op flow.Operation, p *Profile, held []flow.Held) bool {
	return op.Sensitivity != flow.None && op.Sensitivity != flow.InternalSource || !flow.Judge(op, held).Allowed || p.EgressURL || p.hasRole(Destination, URL)
}

// askOffPlan turns a permit into an ask if the call leaves the sealed plan (OffPlan).
func askOffPlan(r Ruling, op flow.Operation, p *Profile, args []byte, s Situation) Ruling {
	if r.Verdict != Permit {
		return r
	}
	why, off := OffPlan(op, p, args, s)
	if !off {
		return r
	}
	r.Verdict, r.OffPlan, r.Because = Ask, true, slices.DeleteFunc(slices.Clone(s.Held), untrusted)
	r.Reason = fmt.Sprintf("%s could carry data out and is not in the session's sealed plan: %s; %s", op.ShownName(), why, flow.Origins(r.Because))
	return r
}
