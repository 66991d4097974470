package judge

import (
	"fmt"

	"sallyport.example/flow"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/provenance"
)

// Trace finds out where the arguments came from. seen is the evidence of the session, nil until it is loaded; wanted says that the answer depends
// on it. It is not needed if the person's request settles the answer, or if the session is clean.
func Trace(f *Facts, seen *provenance.Evidence) (ruling *provenance.Ruling, unasked string, wanted bool) {
	op := &f.Operation
	if op.Model != "" {
		return nil, "", false
	}
	at := f.situation(f.Session.Labels)
	at.Evidence = seen
	if op.Traced {
		r := provenance.JudgeCall(op.Flow, op.Profile, f.Arguments.Canonical, at)
		return &r, r.Unasked, r.Verdict == provenance.Ask || r.Unasked != ""
	}
	if why, off := provenance.OffPlan(op.Flow, op.Profile, f.Arguments.Canonical, at); off && flow.Judge(op.Flow, f.Session.Labels).Allowed {
		return &provenance.Ruling{Verdict: provenance.Ask, OffPlan: true, Because: []flow.Held{},
			Reason: op.Name + " could carry data out and is not in the session's sealed plan: " + why}, "", false
	}
	if f.Arguments.ReadsNothing {
		return nil, "", false
	}
	selects := f.Arguments.Canonical
	if f.Arguments.Selects != nil {
		selects = f.Arguments.Selects
	}
	unasked = provenance.UnaskedFor(op.Flow, op.Profile, selects, at)
	return nil, unasked, unasked != ""
}

// situation is the situation of the call, for package provenance.
func (f *Facts) situation(held []flow.Held) provenance.Situation {
	at := provenance.Situation{Held: held, Request: f.Session.Request, Own: f.Caller.Own, FreeLevel1: f.Rules.FreeLevel1, Plan: f.Session.Sealed}
	if len(f.Session.Labels) > 0 && !f.Session.holds(flow.Untrusted) { // in all other sessions they do not matter
		at.Choices = f.Operation.Choices
	}
	return at
}

// personNamed reports whether the person chose the destinations of the call: they are in the request, the person's own, in a sealed plan, or
// approved before. In a clean session nothing has been traced, so only the request is checked.
func (f *Facts) personNamed() bool {
	if f.Session.Request == nil || !f.Operation.Traced || f.Arguments.Answers {
		return false
	}
	var findings []provenance.Finding
	if f.Evidence.Ruling != nil {
		findings = f.Evidence.Ruling.Evidence
	}
	if findings == nil {
		at := f.situation([]flow.Held{{Label: flow.Untrusted}})
		findings = provenance.JudgeCall(f.Operation.Flow, f.Operation.Profile, f.Arguments.Canonical, at).Evidence
	}
	named := 0
	for _, found := range findings {
		if found.Role != provenance.Destination {
			continue
		}
		switch named++; found.By {
		case provenance.ByPlan: // if a rule approved the plan, the agent chose; and a person did not choose a result
			if !f.Session.Plan.ByPerson() || found.CallID != "" {
				return false
			}
		case provenance.ByRequest, provenance.ByIdentity, provenance.ByApproval:
		default:
			return false
		}
	}
	return named > 0
}

// flowRules applies the sink rule to the labels of the session (FL-2), and judges where the arguments came from (PV-1).
func flowRules(f *Facts, _ *Finding) fault.Verdict {
	const stage = "flow"
	if !f.Evidence.Loaded {
		return fault.RefuseErr(stage, errNotLoaded)
	}
	v := f.tracedVerdict()
	if v.Decision == fault.Permit {
		return v
	}
	for _, t := range f.Arguments.Carries {
		v.Because = append(v.Because, fault.Because{Operation: t.Operation, CallID: t.CallID, Detail: "the arguments carry text from " + display.Clip(t.Source, 80)})
	}
	return v
}

// tracedVerdict turns the ruling into a verdict; without a ruling, labels alone decide. A person's approval of this very call answers an ask.
func (f *Facts) tracedVerdict() fault.Verdict {
	const stage = "flow"
	e, op, held := &f.Evidence, &f.Operation, f.Session.Labels
	if e.Untraceable != nil {
		return fault.RefuseErr(stage, e.Untraceable)
	}
	r := e.Ruling
	if r == nil {
		return Labels(f.Rules, op, held)
	}
	if v := unknownLabel(f.Rules, op, held); v.Decision != fault.Permit {
		return v
	}
	labels := flow.Judge(op.Flow, held)
	switch {
	case f.Arguments.Answers && !labels.Allowed:
		return Labels(f.Rules, op, held)
	case f.Arguments.Answers && e.Needed(): // an agent may send them without a question
		return fault.Refuse(stage, fault.FlowUntrusted, "Answers to a server's questions can't be traced, and the session holds labels.",
			fault.Remedy{Kind: "new_session", Text: "Make the call anew without answers, or ask for a separate session for it."})
	case r.Verdict == provenance.Permit, r.Verdict == provenance.Ask && f.Answer.ByPerson():
		return fault.Permitted()
	case r.Verdict == provenance.Ask:
		code := fault.FlowUntrusted
		switch {
		case r.OffPlan:
			code = fault.PlanMismatch
		case !labels.Allowed:
			code = fault.FlowContaminated
		}
		v := Ask(stage, r.Reason)
		v.Because = append(v.Because, heldBecause(r.Because)...)
		v.Because = append(append(v.Because, f.Traced()...), fault.Because{Code: code, Detail: stage + ": " + r.Reason})
		return v
	case !labels.Allowed:
		return Labels(f.Rules, op, held)
	}
	return fault.Refuse(stage, fault.FlowUntrusted, r.Reason, fault.Remedy{Kind: "ask_person", Text: "Make the arguments simpler, or ask a person to do it."})
}

// Labels is the verdict of labels alone for an operation in a session that holds them.
func Labels(r *Rules, op *Operation, held []flow.Held) fault.Verdict {
	d := flow.Judge(op.Flow, held)
	if d.Allowed {
		return unknownLabel(r, op, held)
	}
	v := fault.Refuse("flow", fault.FlowContaminated, d.Reason,
		fault.Remedy{Kind: "reorder", Text: "Call " + op.Name + " before the tools that bring such data, in a session that does not hold it yet. sallyport_submit_plan with check_only gives a safe order."},
		fault.Remedy{Kind: "new_session", Text: "Ask for a separate session for the part that needs " + op.Name + "."},
		fault.Remedy{Kind: "release", Text: "A person can release the session's labels, with a reason on the record."})
	if op.Model != "" {
		v.Remedies[0] = fault.Remedy{Kind: "ask_person", Text: "An operator can say that such data may go to the model: labels of " + op.Name + ", under models in sallyport.yaml."}
		v.Remedies[1].Text = "Ask for a new session, which does not hold such data."
	}
	v.Because = append(v.Because, heldBecause(d.Because)...)
	return v
}

// unknownLabel refuses a sink if the session holds a label that the configuration no longer has, because it is unknown which sinks it blocks.
func unknownLabel(r *Rules, op *Operation, held []flow.Held) fault.Verdict {
	for _, h := range held {
		if (len(op.Flow.BlockedBy) > 0 || op.Model != "") && !r.KnownLabel(h.Label) {
			v := fault.Refuse("flow", fault.FlowContaminated, fmt.Sprintf("the session holds the label %q, which the configuration no longer has", h.Label),
				fault.Remedy{Kind: "release", Text: "A person can release the label, or put it back under flow.labels."})
			v.Because = heldBecause([]flow.Held{h})
			return v
		}
	}
	return fault.Permitted()
}

func heldBecause(held []flow.Held) (all []fault.Because) {
	for _, h := range held {
		all = append(all, fault.Because{Label: string(h.Label), Operation: h.Operation, CallID: h.CallID, Detail: h.Cause})
	}
	return all
}

// MaxShown bounds the findings in an entry and in a verdict; an approval has all of them.
const MaxShown = 50

// Traced are the findings of the trace, for a verdict.
func (f *Facts) Traced() []fault.Because {
	r := f.Evidence.Ruling
	if r == nil {
		return nil
	}
	var all []fault.Because
	if acts := f.Arguments.Acts; acts != "" {
		all = append(all, fault.Because{Operation: f.Operation.ID, Detail: acts})
	}
	for i, found := range r.Evidence {
		if i == MaxShown {
			return append(all, fault.Because{Detail: fmt.Sprintf("and %d more", len(r.Evidence)-i)})
		}
		all = append(all, fault.Because{Operation: found.Operation, CallID: found.CallID, Detail: found.Text})
	}
	return all
}
