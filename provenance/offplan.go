package provenance

import (
	"fmt"
	"maps"
	"slices"

	"sallyport.example/flow"
)

// OffPlan tells whether a call could carry what the session holds out of it, and is in no step of the session's sealed plan; why says how it
// leaves the plan. Such a call is a person's to answer, whoever vouches for its arguments: the plan said what would be sent.
func OffPlan(op flow.Operation, p *Profile, args []byte, s Situation) (why string, off bool) {
	if s.Plan == nil || !slices.ContainsFunc(s.Held, func(h flow.Held) bool { return h.Label != flow.Untrusted }) {
		return "", false
	}
	if p == nil {
		p = &Profile{Level: 2}
	}
	if !sends(op, p, s.Held) {
		return "", false
	}
	t := tracer{op: op, p: p, s: &s}
	if v, err := decode(args); err == nil {
		t.read(v)
		if p.Boundary == BoundaryByArg && !t.leaves() || t.inert(v) {
			return "", false
		}
	}
	followed, ok := s.Plan.Follow(op.ID, p, args, s.Evidence)
	return followed.Text, !ok
}

// sends reports whether what the operation is given may leave: it is a sink, a label held would block it, or an argument says where to.
func sends(op flow.Operation, p *Profile, held []flow.Held) bool {
	return op.Sensitivity != flow.None && op.Sensitivity != flow.InternalSource || !flow.Judge(op, held).Allowed || p.EgressURL ||
		slices.ContainsFunc(slices.Collect(maps.Values(p.Args)), func(r Role) bool { return r == Destination || r == URL })
}

// offPlan makes an ask of a permit for what leaves the sealed plan (OffPlan).
func offPlan(r Ruling, op flow.Operation, p *Profile, args []byte, s Situation) Ruling {
	if r.Verdict != Permit {
		return r
	}
	why, off := OffPlan(op, p, args, s)
	if !off {
		return r
	}
	r.Verdict, r.OffPlan, r.Because = Ask, true, []flow.Held{}
	for _, h := range s.Held {
		if h.Label != flow.Untrusted {
			r.Because = append(r.Because, h)
		}
	}
	r.Reason = fmt.Sprintf("%s could carry data out and is not in the session's sealed plan: %s; %s", op.ShownName(), why, flow.Origins(r.Because))
	return r
}
