package judge

import (
	"fmt"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/policy"
)

// errNotLoaded is a defect: a stage ran before its evidence was loaded.
var errNotLoaded = fault.New(fault.Internal, "a stage was asked before its evidence was loaded")

// unlisted asks about an operation that the configuration does not name, or denies it, as the operator chose. A person's approval of this very
// call answers what is asked, by itself or in a plan; so does an approval that covers the operation in the session.
func unlisted(f *Facts, _ *Finding) fault.Verdict {
	if f.Operation.Denied {
		return fault.Refuse("permit", fault.PermissionDenied, "No entry under operations names "+f.Operation.ID+", and unlisted_operations is deny.")
	}
	return Unlisted(f)
}

// Unlisted says whether the question to a person is about the operation as well as the call.
func Unlisted(f *Facts) fault.Verdict {
	if !f.Operation.AskFirst || f.Answer.Approval != nil || f.planned() || f.Evidence.CoveredBy != "" {
		return fault.Permitted()
	}
	v := Ask("permit", fmt.Sprintf("No entry of the configuration names %s, so a person must decide.", f.Operation.ID))
	v.Remedies = append(v.Remedies, fault.Remedy{Kind: "ask_person", Text: "An operator can classify " + f.Operation.ID + " under operations in sallyport.yaml."})
	return v
}

// plan asks about a call that is not in the plan, where a plan that only a rule approved opened the execution phase: an agent must not open that
// phase for one thing to do another. A person's approval of this very call answers it.
func plan(f *Facts, _ *Finding) fault.Verdict {
	const stage = "plan"
	if !f.offPlan() || f.Answer.ByPerson() {
		return fault.Permitted()
	}
	v := Ask(stage, f.Operation.Name+" is not in the plan that opened the execution phase, or was called for its step already, and only a rule approved that plan: a person must decide.")
	v.Remedies = append(v.Remedies, fault.Remedy{Kind: "ask_person", Text: "A person can move the session to execution; then calls are judged without the plan."})
	v.Because = append(v.Because, fault.Because{Code: fault.PlanMismatch, Detail: stage + ": " + v.Reason})
	return v
}

// StepOffPlan is what the stage plan says of a step when it is called.
func StepOffPlan(f *Facts) fault.Verdict {
	var found Finding
	return found.lift(f, stageNamed("plan"), plan(f, &found))
}

// Rate rates the risk of the call (HI-1). One about which the flow rules ask is riskier for that.
func Rate(f *Facts) (policy.Rating, error) {
	rating, err := rateAlone(f)
	return f.raisedByFlow(rating), err
}

// raisedByFlow is the rating of a call about which the flow rules ask a person, if they do.
func (f *Facts) raisedByFlow(rating policy.Rating) policy.Rating {
	if !f.Evidence.Unconfirmed() {
		return rating
	}
	return rating.Asked(!flow.Judge(f.Operation.Flow, f.Session.Labels).Allowed)
}

// rateAlone rates the call by what it does and where, whatever other stages ask.
func rateAlone(f *Facts) (policy.Rating, error) {
	e, op := &f.Evidence, &f.Operation
	switch {
	case e.Problem != nil:
		return policy.Rating{}, e.Problem
	case !e.Loaded:
		return policy.Rating{}, errNotLoaded
	}
	around := policy.Context{
		LeftPlan:  f.Session.Sealed != nil && !e.Follows,
		Confirmed: e.Confirmed() && f.Session.holds(flow.Untrusted),
		NewTool:   e.NewTool,
	}
	if !e.Confirmed() { // confirmed arguments make labels no ground
		for _, h := range f.Session.Labels {
			switch h.Label {
			case flow.Untrusted:
				around.Untrusted = true
			case flow.Unasked, flow.Flagged: // the label of its data counts already; a hit counts below, whatever is confirmed
			default:
				around.Contaminated, around.Labels = true, append(around.Labels, string(h.Label))
			}
		}
	}
	if e.Follows && e.Step.Confirmed { // untrusted content did not influence it
		around.Untrusted = false
	}
	if e.Follows && e.Step.FullyConfirmed { // the plan confirms every argument
		around.Contaminated, around.Labels = false, nil
	}
	around.Flagged = f.Session.holds(flow.Flagged)
	around.FirstDestination = e.NewDestination && !f.personNamed()
	rating := f.Rules.Risk.Rate(policy.Subject{
		Action: op.Action, Floor: op.RiskFloor, Roles: op.Roles, Arguments: f.Arguments.Canonical,
		Write: f.consequential(), Unclassified: f.unclassified(), Acts: f.Arguments.Acts, Context: around,
	})
	if f.Arguments.Writes && !f.consequential() && op.Action == "" {
		rating.Consequence = "It changes what only the person sees, and can undo. The change may be wrong."
	}
	return rating, nil
}

// unclassified reports whether the call changes something, and nobody has said what kind of change it is. A person's yes to the tool in this
// session, or to a plan with this step, says it as well as the configuration would.
func (f *Facts) unclassified() bool {
	return f.Arguments.Writes && f.Operation.Unclassified && f.Evidence.CoveredBy == "" && !(f.Operation.AskFirst && f.planned())
}

// StepRisk is the verdict of the risk stage on a plan's step, with what it found. It is shown beside the plan's verdict, and is not part of it.
func StepRisk(f *Facts) (fault.Verdict, Finding) {
	var found Finding
	v := found.lift(f, stageNamed("risk"), risk(f, &found))
	return v, found
}

// risk permits LOW, leaves MEDIUM to a person's silence, and asks a person about everything above, or from the risk on that the agent's tier sets
// (HI-2, DE-5). Where the operator wants an administrator's answer it asks whatever the risk (DE-6). The approval of a plan does not answer it: that is one person's approval, and not for one call.
func risk(f *Facts, found *Finding) fault.Verdict {
	const stage = "risk"
	rating, err := rateAlone(f) // what the flow stage asks raises what people see, and takes no question of this stage
	if err != nil {
		return fault.RefuseErr(stage, err)
	}
	found.Rated, found.Rating = true, f.raisedByFlow(rating)
	askFrom := f.Caller.AskFrom
	if !f.Operation.NeedsReasons && f.Declaration.Made == nil { // the tier's limit is for declared calls only
		askFrom = policy.High
	}
	asks := rating.Risk.Rank() >= askFrom.Rank() || f.Caller.recommended() || f.Operation.AdminAnswers
	person := f.Evidence.Unconfirmed() || f.offPlan() || f.screened() // decides anyway, so silence has nothing to permit
	raised := rating.Raised(policy.ReasonFlagged)                     // then silence is no answer
	if f.Answer.ByPerson() || f.Answer.Approval != nil && !raised || !asks && !raised && (person || rating.Risk.Rank() < policy.Medium.Rank()) {
		return fault.Permitted()
	}
	v := riskQuestion(f, rating.Risk, asks, askFrom)
	if raised && !asks {
		v = Ask(stage, fmt.Sprintf("%s is of risk %s since the session has read words that look like orders to an agent: a person must decide.", f.Operation.Name, rating.Risk))
	}
	// Silence is no answer to a question about more than the risk.
	found.Silence = !asks && !raised && !f.Evidence.StoppedLately && !f.Operation.AskFirst && rating.Risk == policy.Medium
	return v
}

// riskQuestion returns the question that the risk requires.
func riskQuestion(f *Facts, rated policy.Risk, asks bool, askFrom policy.Risk) fault.Verdict {
	const stage = "risk"
	name := f.Operation.Name
	switch {
	case f.Operation.AdminAnswers && rated.Rank() >= policy.Critical.Rank():
		return Ask(stage, fmt.Sprintf("%s is of risk %s, so two people with the role admin must decide.", name, rated))
	case f.Operation.AdminAnswers:
		return Ask(stage, fmt.Sprintf("A person with the role admin must decide on %s, whatever the risk, which is %s.", name, rated))
	case f.Caller.recommended() && rated.Rank() < policy.High.Rank():
		return Ask(stage, fmt.Sprintf("%s was recommended by an agent: a person must decide, whatever the risk, which is %s.", name, rated))
	case !asks && f.Evidence.StoppedLately:
		return Ask(stage, fmt.Sprintf("%s is of risk %s, and a person has stopped a similar call lately, or more calls wait than people could stop: a person must decide.", name, rated))
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
