package judge

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/policy"
)

// kill denies while everything, or this agent, is switched off.
func kill(f *Facts, _ *Finding) fault.Verdict {
	if f.Caller.Stopped {
		return fault.Killed(f.Time)
	}
	return fault.Permitted()
}

// NewSession is the way out where a session can't go on.
var NewSession = fault.Remedy{Kind: "new_session", Text: "Ask a person or a host to open a new session."}

// standing requires that the agent is not quarantined and its declaration is approved, the session is open and has time left, and the tool's definition is accepted and unchanged.
func standing(f *Facts, _ *Finding) fault.Verdict {
	const stage = "standing"
	op := &f.Operation
	switch {
	case !f.Caller.Quarantined.IsZero():
		return fault.Refuse(stage, fault.AgentQuarantined, "The agent "+f.Caller.Agent+" is quarantined since "+f.Caller.Quarantined.Format(time.RFC3339)+".",
			fault.Remedy{Kind: "ask_person", Text: "An operator can restore it."})
	case !f.Caller.Approved:
		return fault.Refuse(stage, fault.AgentUnapproved, f.Caller.Unapproved.Reason, fault.Remedy{Kind: "ask_person", Text: f.Caller.Unapproved.Remedy})
	case !f.Session.Open:
		return fault.Refuse(stage, fault.SessionClosed, "", NewSession)
	case f.Caller.Degraded != nil && !f.Caller.Declaration.KeepsDegraded(op.ID, f.Arguments.Writes):
		d := f.Caller.Degraded
		return fault.Refuse(stage, fault.AgentDegraded, fmt.Sprintf("The agent %s depends on %s, which is aside since %s: %s. Until it is back, this agent may call only what its declaration lists under degraded, or, without that, reads.",
			f.Caller.Agent, d.By, d.Since.Format(time.RFC3339), d.Why),
			fault.Remedy{Kind: "wait", Text: "Call it again when " + d.By + " is back. sallyport_status says what is left."})
	case (op.Quarantined || op.Gone) && !f.Caller.Declaration.Permits(op.ID, op.Flow.Effect != flow.Read):
		return Permit(f) // an agent learns nothing about operations that it may not call
	case op.Quarantined:
		return fault.Refuse(stage, fault.ToolQuarantined, "",
			fault.Remedy{Kind: "ask_person", Text: "An operator has to look at the tool's definition and accept it: POST /v1/tools/" + op.ID + "/accept"})
	case op.Gone:
		return fault.Refuse(stage, fault.ToolUnknown, "The server no longer offers this tool.")
	case f.Session.BudgetSpent:
		return fault.Refuse(stage, fault.LimitBudget, "", NewSession)
	case f.Session.OutcomeOwed:
		return fault.Refuse(stage, fault.AuditUnavailable, "The outcome of an earlier call of this session is not written down yet.",
			fault.Remedy{Kind: "wait", Text: "Try again when the store answers."})
	}
	return fault.Permitted()
}

// phase allows external I/O only in the execution phase (PH-1, PH-2), except for operations that the operator allows in planning (PH-4).
func phase(f *Facts, _ *Finding) fault.Verdict {
	if !f.Operation.ExternalIO || f.Operation.InPhase {
		return fault.Permitted()
	}
	return fault.Refuse("phase", fault.PhaseBlocked,
		fmt.Sprintf("%s reaches outside, and the session is in the planning phase.", f.Operation.Name),
		fault.Remedy{Kind: "declare", Text: "Submit a plan with sallyport_submit_plan; an approved plan opens the execution phase."},
		fault.Remedy{Kind: "ask_person", Text: "A person can move the session to execution."})
}

// declared requires a declaration for every built-in external operation, and for tools of which the operator says so (DE-1): one made before, the justification in the call, or a step of the
// sealed plan. Other operations may have one.
func declared(f *Facts, found *Finding) fault.Verdict {
	const stage = "declare"
	d := &f.Declaration
	switch {
	case d.Problem != nil:
		return fault.RefuseErr(stage, d.Problem)
	case d.Made != nil:
		found.DeclaredBy = d.Made.Digest
		return madeBefore(f)
	case !f.Operation.NeedsReasons:
		return fault.Permitted()
	case len(d.Invalid) > 0:
		v := fault.RefuseErr(stage, declare.Refuse(d.Invalid))
		for _, p := range d.Invalid {
			v.Because = append(v.Because, fault.Because{Code: fault.DeclarationInvalid, Detail: p.Field})
		}
		return v
	case d.Justification != nil:
		found.DeclaredBy = d.Digest
		return fault.Permitted()
	case d.InPlan:
		return fault.Permitted()
	case f.PlanStep() != nil:
		found.DeclaredBy = f.Session.Plan.Digest
		return fault.Permitted()
	case !f.Evidence.Loaded && f.Session.Sealed != nil && f.Session.Sealed.NeedsEvidence(f.Operation.ID): // only the evidence can tell whether it follows the plan
		found.undecided = true
		return fault.Permitted()
	}
	return fault.Refuse(stage, fault.DeclarationMissing, f.Operation.Name+" has to be declared: say why it is needed.",
		fault.Remedy{Kind: "declare", Text: "Call it with a justification: {user_request, missing_knowledge, expected_use}; or declare it first with sallyport_declare and give its declaration_id."})
}

// madeBefore checks the declaration that the call names.
func madeBefore(f *Facts) fault.Verdict {
	const stage = "declare"
	d := f.Declaration.Made
	err := d.Covers(f.Arguments.Digest, f.Time)
	switch {
	case err == nil:
		return fault.Permitted()
	case fault.Is(err, fault.ApprovalRequired):
		v := Ask(stage, "The declaration waits for a person's approval.")
		v.ApprovalID = &d.ApprovalID
		return v
	}
	v := fault.RefuseErr(stage, err)
	v.Remedies = append(v.Remedies, fault.Remedy{Kind: "declare", Text: "Declare it again: one declaration is for one call."})
	return v
}

// permit requires the agent's declaration and the operator's policies to allow the operation; the default is deny. A call that reads stored results
// of another operation needs the permission for that one, too.
func permit(f *Facts, _ *Finding) fault.Verdict { return Permit(f) }

// Permit is that stage by itself.
func Permit(f *Facts) fault.Verdict {
	v := permitted(f, &f.Operation, f.Arguments.Writes)
	if of := f.Operation.Stored; of != nil && v.Decision == fault.Permit {
		v = permitted(f, of, of.Flow.Effect != flow.Read)
	}
	return v
}

func permitted(f *Facts, op *Operation, write bool) fault.Verdict {
	effect, level := flow.Read, op.Level
	if write {
		effect = flow.Write
		if level == 0 { // a write without a level
			level = 2
		}
	}
	may := f.Caller.Declaration.Permits(op.ID, write)
	if op.Model != "" {
		if may = f.Caller.Declaration.UsesModel(op.Model); !may {
			return fault.Refuse("permit", fault.ModelUndeclared, fmt.Sprintf("The declaration of %s names no model %s.", f.Caller.Agent, op.Model),
				fault.Remedy{Kind: "ask_person", Text: "An operator can add it to dataSources.models of the agent's declaration."})
		}
	}
	d := f.Rules.Policies.Decide(policy.Request{
		Agent: f.Caller.Declaration.JudgedAs(), Operation: op.ID, Server: op.Server, Requester: f.Caller.Requester, Door: f.Caller.Door,
		Phase: string(f.Session.Phase), Effect: string(effect), Sensitivity: string(op.Flow.Sensitivity), Level: level,
		Labels: f.Session.LabelWords(), Arguments: f.Arguments.Canonical, Permitted: may,
	})
	if d.Allowed {
		if v := sources(f, op); v.Decision != fault.Permit {
			return v
		}
		return withinRoots(f, op)
	}
	v := fault.Refuse("permit", fault.PermissionDenied, d.Reason,
		fault.Remedy{Kind: "ask_person", Text: "An operator can add " + op.ID + " to the agent's declaration, or change the policy."})
	if acts := f.Arguments.Acts; acts != "" && op == &f.Operation {
		v.Reason = acts + " " + v.Reason
		v.Remedies = append([]fault.Remedy{{Kind: "ask_person", Text: "Use plain values. An operator can say what the argument may hold: a shape or a class under code, or its role under args."}}, v.Remedies...)
	}
	for _, id := range d.Policies {
		v.Because = append(v.Because, fault.Because{Operation: op.ID, Detail: "policy " + id})
	}
	return v
}

// sources refuses, in a run, what the agent's declaration does not name among its data sources (AG-9). Models, and collections of the knowledge store, are asked for by
// name elsewhere.
func sources(f *Facts, op *Operation) fault.Verdict {
	if !f.Session.OfRun || op.Model != "" || strings.HasPrefix(op.ID, agent.KnowledgePrefix) || op.Server == agent.TrialServer || f.Caller.Declaration.DataSources.Has(op.ID, f.Arguments.Canonical) {
		return fault.Permitted()
	}
	return fault.Refuse("permit", fault.PermissionDenied, fmt.Sprintf("This is a run, and the declaration of %s does not name %s among its data sources.", f.Caller.Agent, op.ID),
		fault.Remedy{Kind: "ask_person", Text: "An operator can add " + op.Server + ", or " + op.ID + ", to dataSources.tables or dataSources.apis of the agent's declaration; for comm.fetch the host, for comm.query the database."})
}

// withinRoots checks that the arguments lie below the root under which the agent's declaration permits to read. It applies to any call that reads.
func withinRoots(f *Facts, op *Operation) fault.Verdict {
	if op.Flow.Effect != flow.Read && op.Acts == "" {
		return fault.Permitted()
	}
	roles := op.Roles
	if len(op.Places) > 0 {
		roles = maps.Clone(op.Places)
		maps.Copy(roles, op.Roles)
	}
	outside := f.Caller.Declaration.Outside(op.ID, roles, f.Arguments.Canonical, f.Arguments.Partial)
	if outside == "" {
		return fault.Permitted()
	}
	v := fault.Refuse("permit", fault.PermissionDenied, outside,
		fault.Remedy{Kind: "ask_person", Text: "Read what lies there, or ask an operator to change permissions.read in the agent's declaration."})
	v.Because = append(v.Because, fault.Because{Operation: op.ID, Detail: "permissions.read: a root"})
	return v
}

// parameters is the operation's own check of the arguments: a forbidden address or path is refused before anybody is asked about it.
func parameters(f *Facts, _ *Finding) fault.Verdict {
	if f.Arguments.Problem != nil {
		return fault.RefuseErr("declare", f.Arguments.Problem)
	}
	return fault.Permitted()
}

// limit bounds how often the session and its agent may call (TH-5), and how often the session may start external requests (EX-5).
func limit(f *Facts, found *Finding) fault.Verdict {
	r := &f.Session.Room
	if r.CallIn > 0 {
		return tooMany(r.CallsPerMinute, "calls", r.CallIn)
	}
	if p := f.Caller.Pace; p.CallIn > 0 {
		return fault.Refuse("limit", fault.LimitRate, fmt.Sprintf("At most %d calls a minute of this agent, spread evenly.", p.CallsPerMinute), tryIn(p.CallIn))
	}
	if over, err := f.Caller.OverQuota, f.Caller.QuotaUnknown; err != nil {
		return fault.RefuseErr("limit", err)
	} else if over != nil {
		return fault.Refuse("limit", fault.LimitQuota, "The agent has "+over.Error()+".", fault.Remedy{Kind: "wait", Text: over.Remedy()},
			fault.Remedy{Kind: "ask_person", Text: "An operator can change quotas in the agent's declaration."})
	}
	found.Counts = true
	if f.Operation.Requests && r.RequestIn > 0 {
		return TooManyRequests(r.RequestsPerMinute, r.RequestIn)
	}
	return fault.Permitted()
}

// screening leaves a call to a person whose arguments look like an attempt to order an agent about, or refuses it, as the operator chose (TH-2). Silence is no answer to it. Where it refuses, it
// does so too where they could not be screened whole.
func screening(f *Facts, _ *Finding) fault.Verdict {
	const stage = "screen"
	s := f.Arguments.Screened
	if s != nil && !s.Hit() && f.screens() != ScreenAsk && f.screens() != ScreenObserve {
		return fault.Refuse(stage, fault.ThreatInjection, fmt.Sprintf("The arguments of %s could not be screened whole.", f.Operation.Name),
			fault.Remedy{Kind: "ask_person", Text: "Send less of it encoded, or in smaller calls. An operator can have such calls pass instead: threat.input."})
	}
	if !s.Hit() || f.screens() == ScreenObserve || f.screens() == ScreenAsk && f.Answer.ByPerson() {
		return fault.Permitted()
	}
	reason := fmt.Sprintf("The arguments of %s look like an attempt to order an agent about (%s).", f.Operation.Name, s.Rule)
	if f.screens() != ScreenAsk {
		return fault.Refuse(stage, fault.ThreatInjection, reason,
			fault.Remedy{Kind: "ask_person", Text: "Leave out the words that read like orders. An operator can have people asked instead: threat.input."})
	}
	v := Ask(stage, reason)
	v.Because = append(v.Because, fault.Because{Code: fault.ThreatInjection, Detail: stage + ": " + reason})
	return v
}

// screened reports whether a person has to decide because of what screening found.
func (f *Facts) screened() bool { return f.Arguments.Screened.Hit() && f.screens() == ScreenAsk }

// screens is what a hit in the arguments of the operation does.
func (f *Facts) screens() Screening {
	if f.Operation.ScreenNotes {
		return ScreenObserve
	}
	return f.Rules.Screen
}

// TooManyRequests refuses an external request that exceeds the limit.
func TooManyRequests(perMinute int, wait time.Duration) fault.Verdict {
	return tooMany(perMinute, "external requests", wait)
}

func tooMany(perMinute int, what string, wait time.Duration) fault.Verdict {
	return fault.Refuse("limit", fault.LimitRate, fmt.Sprintf("At most %d %s a minute in one session.", perMinute, what), tryIn(wait))
}

func tryIn(wait time.Duration) fault.Remedy {
	return fault.Remedy{Kind: "wait", Text: fmt.Sprintf("Try again in %s.", wait.Round(time.Millisecond))}
}

// breaker refuses calls while a circuit breaker is open (TH-8).
func breaker(f *Facts, _ *Finding) fault.Verdict {
	if f.Operation.Breaker == nil {
		return fault.Permitted()
	}
	return BreakerOpen(f.Operation.Breaker, f.Time)
}

// BreakerOpen refuses a call that meets the open breaker.
func BreakerOpen(b *Breaker, now time.Time) fault.Verdict {
	when := "One call is trying now."
	if b.Retry.After(now) {
		when = "One call may try at " + b.Retry.Format(time.RFC3339) + "."
	}
	again := max(b.Retry.Sub(now), time.Second).Round(time.Second)
	v := fault.Refuse("breaker", fault.BreakerOpen, fmt.Sprintf("The circuit breaker of %s is open since %s: %s. %s", b.What, b.Since.Format(time.RFC3339), b.Cause, when),
		fault.Remedy{Kind: "wait", Text: fmt.Sprintf("Try again in %s.", again)},
		fault.Remedy{Kind: "ask_person", Text: "An operator can look at what fails, and reset it: sallyport breaker reset " + b.Name})
	v.Again = again
	return v
}
