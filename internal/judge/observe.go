package judge

import (
	"slices"

	"sallyport.example/flow"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/policy"
)

// A gateway that observes (mode: observe) judges each call by all stages. What a stage says that it lifts is recorded instead of enforced, and
// the later stages judge on. All else holds as ever.

// lift records a verdict that the stage lifts and permits in its place, if the gateway observes.
func (found *Finding) lift(f *Facts, s *stage, v fault.Verdict) fault.Verdict {
	if v.Decision == fault.Permit || s.lifts == nil {
		return v
	}
	if looked := v; !s.lifts(f, found, &looked) || !f.Rules.Observe { // a copy, so that verdicts that permit need no memory of their own
		return v
	}
	found.Lifted = append(slices.Clip(found.Lifted), v)
	found.Silence = false // nobody is asked, so silence has nothing to permit
	return fault.Permitted()
}

// WouldBe is the verdict that a gateway which enforces would have given in place of what was lifted: the first deny ends its judgement, and
// otherwise the first question is asked. Nil if nothing was lifted.
func (found *Finding) WouldBe() *fault.Verdict {
	for i := range found.Lifted {
		if found.Lifted[i].Decision != fault.Ask {
			return &found.Lifted[i]
		}
	}
	if len(found.Lifted) > 0 {
		return &found.Lifted[0]
	}
	return nil
}

// withLifted adds what was lifted to a question that holds, so that whoever answers it knows.
func (found *Finding) withLifted(v fault.Verdict) fault.Verdict {
	if v.Decision != fault.Ask {
		return v
	}
	for _, lifted := range found.Lifted {
		v.Because = append(slices.Clip(v.Because), fault.Because{Code: lifted.Code, Detail: lifted.Stage + ": " + lifted.Reason})
	}
	return v
}

// LiftFlow records and lifts a verdict of the flow rules about what is sent while a call of the operation runs, in a session that holds the labels.
func (found *Finding) LiftFlow(r *Rules, op *Operation, held []flow.Held, v fault.Verdict) fault.Verdict {
	if v.Decision == fault.Permit || !Lifts(r, op, held) {
		return v
	}
	if !slices.ContainsFunc(found.Lifted, func(old fault.Verdict) bool { return old.Code == v.Code && old.Reason == v.Reason }) {
		found.Lifted = append(found.Lifted, v)
	}
	return fault.Permitted()
}

// codes lifts the verdicts that have one of the codes.
func codes(lifted ...fault.Code) func(*Facts, *Finding, *fault.Verdict) bool {
	return func(_ *Facts, _ *Finding, v *fault.Verdict) bool { return slices.Contains(lifted, v.Code) }
}

// liftsRisk lifts questions up to HIGH, but not about what an agent recommended: nothing of that runs without a yes.
func liftsRisk(f *Facts, found *Finding, v *fault.Verdict) bool {
	return !f.Caller.recommended() && v.Decision == fault.Ask && found.Rated && found.Rating.Risk.Rank() <= policy.High.Rank()
}

// liftsFlow lifts what the flow rules say, but not where a secret could leave.
func liftsFlow(f *Facts, _ *Finding, v *fault.Verdict) bool {
	return slices.Contains(flowCodes, v.Code) && Lifts(f.Rules, &f.Operation, f.Session.Labels)
}

var flowCodes = []fault.Code{fault.FlowContaminated, fault.FlowUntrusted, fault.ApprovalRequired}

// liftedLabels are the labels because of which the flow rules refuse nothing where the gateway observes. All others hold: secret, and each label
// that the operator has added, which may stand for more than these.
var liftedLabels = []flow.Label{flow.Internal, "pii", flow.Untrusted, flow.Unasked, flow.Flagged}

// Lifts reports whether a verdict of the flow rules on the operation is only recorded, in a session that holds the labels: the gateway observes, and none
// of the labels is one that is enforced against the operation, or that the configuration no longer has.
func Lifts(r *Rules, op *Operation, held []flow.Held) bool {
	return r.Observe && !slices.ContainsFunc(held, func(h flow.Held) bool {
		return len(op.Flow.BlockedBy) > 0 && !slices.Contains(liftedLabels, h.Label) && (slices.Contains(op.Flow.BlockedBy, h.Label) || !r.KnownLabel(h.Label))
	})
}

// EnforcedLabels are those of the labels that block while the gateway observes.
func EnforcedLabels[L ~string](all []L) []L {
	return slices.DeleteFunc(slices.Clone(all), func(name L) bool { return slices.Contains(liftedLabels, flow.Label(name)) })
}

// Enforced is the operation with those labels alone that block it while the gateway observes, for advice about the order of calls.
func Enforced(r *Rules, op flow.Operation) flow.Operation {
	if r.Observe {
		op.BlockedBy = slices.DeleteFunc(slices.Clone(op.BlockedBy), func(l flow.Label) bool { return slices.Contains(liftedLabels, l) })
	}
	return op
}

func stageNamed(name string) *stage {
	return &stages[slices.IndexFunc(stages, func(s stage) bool { return s.name == name })]
}
