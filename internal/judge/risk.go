package judge

import (
	"fmt"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/policy"
)

// errNotLoaded is a defect: a stage may not judge on what nobody looked up.
var errNotLoaded = fault.New(fault.Internal, "a stage was asked before its evidence was loaded")

// unlisted: an operation that no entry of the configuration names is asked about, where the operator chose that over deny. A person's
// approval of this very call is enough for it, by itself or in a plan; so is one that covers the operation in the session.
func unlisted(f *Facts, _ *Finding) fault.Verdict { return Unlisted(f) }

// Unlisted is that stage by itself: whether the question to a person is about the operation, besides the call.
func Unlisted(f *Facts) fault.Verdict {
	if !f.Operation.AskFirst || f.Answer.Approval != nil || f.planned() || f.Evidence.CoveredBy != "" {
		return fault.Permitted()
	}
	v := Ask("permit", fmt.Sprintf("No entry of the configuration names %s, so a person must decide.", f.Operation.ID))
	v.Remedies = append(v.Remedies, fault.Remedy{Kind: "ask_person", Text: "An operator can classify " + f.Operation.ID + " under operations in sallyport.yaml."})
	return v
}

// Rate says how risky the call is (HI-1).
func Rate(f *Facts) (policy.Rating, error) {
	e, op := &f.Evidence, &f.Operation
	switch {
	case e.Problem != nil:
		return policy.Rating{}, e.Problem
	case !e.Loaded:
		return policy.Rating{}, errNotLoaded
	}
	around := policy.Context{
		LeftPlan: f.Session.Sealed != nil && !e.Follows,
		Vouched:  e.Vouched() && f.Session.holds(flow.Untrusted),
		NewTool:  e.NewTool,
	}
	if !e.Vouched() { // that is what provenance relieves
		for _, h := range f.Session.Labels {
			switch h.Label {
			case flow.Untrusted:
				around.Untrusted = true
			case flow.Unasked: // of data whose label is there too
			default:
				around.Contaminated, around.Labels = true, append(around.Labels, string(h.Label))
			}
		}
	}
	if e.Follows && e.Step.Firm { // what the session has read had no say in it
		around.Untrusted = false
	}
	if e.Follows && e.Step.Exact { // nor is there anything in it but what the plan says
		around.Contaminated, around.Labels = false, nil
	}
	around.FirstDestination = e.NewDestination && !f.personNamed()
	rating := f.Rules.Risk.Rate(policy.Subject{
		Action: op.Action, Floor: op.RiskFloor, Roles: op.Roles, Arguments: f.Arguments.Canonical,
		Write: f.consequential(), Acts: f.Arguments.Acts, Context: around,
	})
	if f.Arguments.Writes && !f.consequential() && op.Action == "" {
		rating.Consequence = "It changes what only the person sees, and can undo. The change may be wrong."
	}
	return rating, nil
}

// StepRisk is what the risk stage says of a plan's step: not part of the plan's verdict, but told beside it.
func StepRisk(f *Facts) fault.Verdict {
	var found Finding
	return risk(f, &found)
}

// risk: LOW passes; MEDIUM waits for a person's no; what is riskier, or too risky for the agent's tier to be approved by rule, is a person's
// to decide (HI-2, DE-5). A plan's approval is no answer here: it is one person's, and not for one call.
func risk(f *Facts, found *Finding) fault.Verdict {
	const stage = "risk"
	rating, err := Rate(f)
	if err != nil {
		return fault.RefuseErr(stage, err)
	}
	found.Rated, found.Rating = true, rating
	askFrom := f.Caller.AskFrom
	if !f.Operation.BuiltIn && f.Declaration.Made == nil { // what nobody has to declare is asked about from where everybody is
		askFrom = policy.High
	}
	asks := rating.Risk.Rank() >= askFrom.Rank()
	person := f.Evidence.Unvouched() && !f.Rules.Shadow // decides anyway: there is nothing for silence to permit
	if f.Answer.Approval != nil || !asks && (person || rating.Risk.Rank() < policy.Medium.Rank()) {
		return fault.Permitted()
	}
	v := riskQuestion(f, rating.Risk, asks, askFrom)
	if f.Rules.Shadow { // only noted, like verdicts of the flow stage
		if found.Shadow == nil {
			found.Shadow = &v
		}
		return fault.Permitted()
	}
	// Who is asked about more than the risk has to answer.
	found.Silence = !asks && !f.Evidence.StoppedLately && !f.Operation.AskFirst && rating.Risk == policy.Medium
	return v
}

// riskQuestion is what a person is asked because of the risk.
func riskQuestion(f *Facts, rated policy.Risk, asks bool, askFrom policy.Risk) fault.Verdict {
	const stage = "risk"
	name := f.Operation.Name
	switch {
	case !asks && f.Evidence.StoppedLately:
		return Ask(stage, fmt.Sprintf("%s is of risk %s, and a person has stopped the like lately, or more waits than people could stop: a person must decide.", name, rated))
	case !asks && f.Operation.AskFirst:
		return Ask(stage, fmt.Sprintf("%s is of risk %s, and no entry of the configuration names it: a person must decide.", name, rated))
	case !asks:
		v := Ask(stage, fmt.Sprintf("%s is of risk %s: it runs in %s unless a person stops it.", name, rated, f.Rules.MediumDelay.Round(time.Millisecond)))
		v.Remedies = []fault.Remedy{{Kind: "wait", Text: "Make the same call again later: it runs unless a person has stopped it."}}
		return v
	case rated.Rank() >= policy.Critical.Rank():
		return Ask(stage, fmt.Sprintf("%s is of risk %s, so two people must decide.", name, rated))
	case rated.Rank() >= policy.High.Rank():
		return Ask(stage, fmt.Sprintf("%s is of risk %s, so a person must decide.", name, rated))
	}
	return Ask(stage, fmt.Sprintf("%s is of risk %s, and of agents of this trust tier a person decides on everything from %s.", name, rated, askFrom))
}
