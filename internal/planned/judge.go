package planned

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/session"
	"sallyport.example/provenance"
)

// Judge judges lists of steps by one version of a session.
type Judge struct {
	Rules   *judge.Rules
	Session *session.Session
	Own     []string // the requester's own addresses and accounts
	Lookup  func(tool string) *catalogue.Operation
	// Flow is an operation with the labels that a call of it brings; args is nil where they are not all known.
	Flow func(op *catalogue.Operation, args []byte) flow.Operation
	// Step judges a step by what is known before it is called. held are the labels that the steps before it bring.
	Step func(op *catalogue.Operation, st Step, at string, held []flow.Held) Said
}

// Judged is a list of steps with what each stage that can be asked beforehand says.
type Judged struct {
	Operations []*catalogue.Operation // nil where there is no such tool
	Verdicts   []fault.Verdict        // what becomes of the plan
	Risks      []fault.Verdict        // what becomes of the step when it is called
	Report     Report
}

// Judge judges each step by the table of stages, and the order of all by the rule of labels.
func (j Judge) Judge(steps []Step, list List) (Judged, error) {
	out := Judged{Operations: make([]*catalogue.Operation, len(steps)), Verdicts: make([]fault.Verdict, len(steps)), Risks: make([]fault.Verdict, len(steps))}
	if err := checkSources(steps, list, j.Lookup); err != nil {
		return out, err
	}
	order := make([]flow.Step, len(steps))
	var unfit []flow.Violation
	var held []flow.Held
	out.Report.Asks = []Ask{}
	request := sync.OnceValue(func() *provenance.Request { return provenance.ParseRequest(j.Session.UserRequest) })
	for i, st := range steps {
		op := j.Lookup(st.Tool)
		v := fault.Refuse("resolve", fault.ToolUnknown, fmt.Sprintf("There is no tool %q.", short(st.Tool)))
		if op != nil && op.Standing != catalogue.Unlisted && op.Standing != catalogue.Unfit {
			said := j.Step(op, st, list.at(i), held)
			if v, out.Risks[i] = said.Verdict, said.Risk; said.Ask != nil {
				said.Ask.AtStep, said.Ask.Tool = i, short(st.Tool)
				out.Report.Asks = append(out.Report.Asks, *said.Ask)
			}
		}
		out.Operations[i], out.Verdicts[i] = op, v
		// A step that can't be called moves nothing, so it stands in the order where it was planned.
		order[i] = flow.Step{Op: flow.Operation{ID: short(st.Tool), Name: short(st.Tool), Sensitivity: flow.None, Effect: flow.Read}, After: st.Needs()}
		if v.Decision != fault.Deny {
			fixed := st.Arguments
			if len(st.From) > 0 || len(st.Open) > 0 {
				fixed = nil
			}
			order[i].Op = j.Flow(op, fixed)
			if st.Arguments != nil && len(st.From) == 0 {
				sealed := list == Submitted && len(j.Session.Labels) == 0 // what the plan fixes is confirmed by the plan
				tainted := j.Session.Holds(flow.Untrusted) || slices.ContainsFunc(order[:i], func(before flow.Step) bool { return slices.Contains(before.Op.Emits, flow.Untrusted) })
				order[i].Op = j.operation(op, order[i].Op, st.Arguments, request, tainted && !sealed)
			}
			order[i].Op = judge.Enforced(j.Rules, order[i].Op)
			held = append(held, ahead(order[i].Op)...)
		} else {
			unfit = append(unfit, flow.Violation{AtStep: i, Tool: short(st.Tool), Code: string(v.Code), Reason: v.Reason, Suggestion: suggestion(v)})
		}
	}
	var err error
	if out.Report.Report, err = flow.Validate(order, j.Session.Labels); err != nil {
		return out, fault.Wrap(err, fault.RequestMalformed, "%s", strings.ReplaceAll(err.Error(), string(Asked), string(list)))
	}
	if list == Submitted { // what a person is asked about with the plan
		out.Report.Violations = slices.DeleteFunc(out.Report.Violations, func(bad flow.Violation) bool {
			i := bad.AtStep
			v, ok := narrowed(steps, out.Operations, i)
			if ok = ok && bad.Code == flow.CodeContaminated && out.Verdicts[i].Decision != fault.Deny; ok && v.Decision == fault.Ask {
				out.Verdicts[i] = v
			}
			return ok
		})
		out.Report.Valid = out.Report.Valid || len(out.Report.Violations) == 0
	}
	for _, bad := range out.Report.Violations {
		v := fault.Refuse("flow", fault.Code(bad.Code), bad.Reason, fault.Remedy{Kind: "reorder", Text: bad.Suggestion})
		out.Verdicts[bad.AtStep] = v
	}
	if len(unfit) > 0 {
		out.Report.Valid, out.Report.SafeOrdering = false, nil
		out.Report.Violations = append(unfit, out.Report.Violations...)
		var at []int
		for _, u := range unfit {
			at = append(at, u.AtStep)
		}
		out.Report.Impossible = &flow.Impossible{Because: "some steps can't be called in any order: " + unfit[0].Reason, Steps: at}
	}
	out.Report.Asks = slices.DeleteFunc(out.Report.Asks, func(a Ask) bool { // what is refused is not asked about
		return slices.ContainsFunc(out.Report.Violations, func(bad flow.Violation) bool { return bad.AtStep == a.AtStep })
	})
	return out, nil
}

// suggestion says what to do about a step that can't be called.
func suggestion(v fault.Verdict) string {
	switch v.Code {
	case fault.RequestMalformed:
		return "correct its arguments"
	case fault.DeclarationInvalid:
		return "say in its justification what exactly is needed and what for"
	case fault.KillSwitch, fault.AgentUnapproved, fault.AgentQuarantined, fault.SessionClosed, fault.LimitBudget, fault.AuditUnavailable: // no other step would do
		if len(v.Remedies) > 0 {
			return v.Remedies[0].Text
		}
	}
	return "leave this step out, or use another tool"
}

// checkSources refuses what can't be meant: an argument that is given twice, one that is left open and decides where the call goes, repeating
// over a step that nothing comes from.
func checkSources(steps []Step, list List, lookup func(string) *catalogue.Operation) error {
	total := 0
	for i := range steps {
		st := &steps[i]
		at := list.at(i)
		if total += len(st.From); total > maxAllFrom {
			return malformed(at+".from", "at most %d arguments of a plan come from results", maxAllFrom)
		}
		p := &provenance.Profile{}
		if op := lookup(st.Tool); op != nil && op.Profile != nil {
			p = op.Profile
		}
		for _, name := range slices.Sorted(maps.Keys(st.From)) {
			where := at + ".from." + short(name)
			if _, ok := call.Get(st.Arguments, name); ok {
				return malformed(where, "the argument is in arguments too").Try("Fix it in arguments, or take it from a step.")
			}
			if p.RoleOf(name) == provenance.Credential {
				return malformed(where, "a credential never comes from a result")
			}
		}
		for j, name := range st.Open {
			where := fmt.Sprintf("%s.open[%d]", at, j)
			_, fixed := call.Get(st.Arguments, name)
			_, from := st.From[name]
			switch {
			case name == "" || len(name) > maxName || strings.Contains(name, "."):
				return malformed(where, "name an argument of the tool's own: 1 to %d bytes, no point", maxName)
			case fixed || from || slices.Contains(st.Open[:j], name):
				return malformed(where, "the argument %s is given already", short(name))
			case p.RoleOf(name).Core():
				return fault.New(fault.RequestMalformed, "%s decides where the call goes or what it hits (its role is %s), so it can't be left open", short(name), p.RoleOf(name)).
					At(where).Try("Fix it in arguments, take it from an earlier step, or leave out arguments, from and open: then the call goes by where its arguments came from.")
			}
		}
		if st.Each == nil {
			continue
		}
		if !slices.ContainsFunc(slices.Collect(maps.Values(st.From)), func(s provenance.Source) bool { return s.Step == *st.Each }) {
			return malformed(at+".each", "a step that repeats over another takes an argument from it").
				Try("Name in from what differs from call to call.")
		}
	}
	return nil
}

// operation is the operation as a step with these arguments is planned: nothing blocks it where the person's words, or who they are, lead to
// everything in it that decides, but data that nobody asked for; and it brings such data where, after untrusted content, nobody's words lead to
// what it reads. planned is op with the labels that it brings. request parses the person's request.
func (j Judge) operation(op *catalogue.Operation, planned flow.Operation, args json.RawMessage, request func() *provenance.Request, tainted bool) flow.Operation {
	at := provenance.Situation{Request: request(), Own: j.Own, Held: []flow.Held{{Label: flow.Untrusted}}} // the strictest: then nothing but the request will do
	if tainted && provenance.UnaskedFor(planned, op.Profile, args, at) != "" && slices.ContainsFunc(planned.Emits, func(l flow.Label) bool { return l != flow.Untrusted }) {
		planned.Emits = append(slices.Clip(planned.Emits), flow.Unasked)
	}
	if !op.Profile.HasRoles() || len(op.Flow.BlockedBy) == 0 {
		return planned
	}
	for _, l := range op.Flow.BlockedBy {
		at.Held = append(at.Held, flow.Held{Label: l})
	}
	if provenance.JudgeCall(op.Flow, op.Profile, args, at).Verdict != provenance.Permit {
		return planned
	}
	planned.BlockedBy = nil // whatever the session has read by then
	at.Held = append(at.Held, flow.Held{Label: flow.Unasked})
	if provenance.JudgeCall(op.Flow, op.Profile, args, at).Verdict != provenance.Permit {
		planned.BlockedBy = []flow.Label{flow.Unasked}
	}
	return planned
}

// narrowed judges a step that labels would refuse, where it says where private data would go (PV-7): it is
// permitted if the person's words lead there (operation), and asked about if the plan does. A plan that a rule approves takes private data
// nowhere.
func narrowed(steps []Step, ops []*catalogue.Operation, i int) (v fault.Verdict, ok bool) {
	st, op := &steps[i], ops[i]
	if op == nil || !op.Profile.HasRoles() || st.Arguments == nil && st.From == nil {
		return v, false
	}
	core := false
	for name := range call.Members(st.Arguments) {
		core = core || op.Profile.RoleOf(name).Core()
	}
	for name, from := range st.From {
		if !op.Profile.RoleOf(name).Core() {
			continue
		}
		if source := ops[from.Step]; source == nil || from.Field != "" && !provenance.MaySupply(op.ID, op.Profile, name, source.ID, source.Profile, from.Field) {
			return v, false
		}
		core = true
	}
	if !core {
		return v, false
	}
	return judge.Ask("flow", op.Name+" would take private data where the plan says, so a person must approve the plan."), true
}

// Confirms says for each step which arguments the plan will confirm.
func Confirms(p *session.Plan, ops []*catalogue.Operation) []string {
	out := make([]string, len(p.Steps))
	for i, st := range p.Steps {
		sealed := provenance.SealedStep{Arguments: st.Arguments, From: st.From, Open: st.Open}
		switch {
		case p.State == session.PlanRejected:
			out[i] = "nothing: the plan is rejected"
			continue
		case sealed.FixesNothing():
			out[i] = "open: goes by where its arguments came from"
			continue
		case !p.Clean && p.State == session.PlanApproved && !p.ByPerson():
			out[i] = "nothing: the session held labels when the plan was sealed, and no person approved it"
			continue
		}
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(st.From)) {
			from := st.From[name]
			where := "field " + shownWord(from.Field)
			if from.Field == "" {
				where = "a field that may serve as " + string(from.Role)
			}
			part := fmt.Sprintf("%s from step %d (%s)", shownWord(name), from.Step, where)
			if to, source := ops[i], ops[from.Step]; from.Field != "" && to != nil && source != nil && p.State == session.PlanApproved && !p.ByPerson() &&
				to.Profile.RoleOf(name).Core() && !provenance.MaySupply(to.ID, to.Profile, name, source.ID, source.Profile, from.Field) {
				part += ", which an outsider may have written: a person is asked once the session is untrusted"
			}
			parts = append(parts, part)
		}
		if st.Each != nil {
			parts = append(parts, fmt.Sprintf("once for each record of step %d", *st.Each))
		}
		if len(st.Open) > 0 {
			parts = append(parts, "open: "+shownWord(strings.Join(st.Open, ", ")))
		}
		if len(parts) == 0 {
			out[i] = "fixed"
		} else if st.Arguments != nil && string(st.Arguments) != "{}" {
			out[i] = strings.Join(append(parts, "the rest is fixed"), "; ")
		} else {
			out[i] = strings.Join(parts, "; ")
		}
	}
	return out
}
