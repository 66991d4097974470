package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/session"
	"sallyport.example/provenance"
)

// What steps say about arguments that they don't fix. The flow package has the rules; these are the bounds of what is read.
const (
	maxFrom       = 10  // arguments of one step that come from results
	maxPlanFrom   = 200 // of all steps
	maxOpen       = 50  // arguments of one step that are left open
	maxPlanArgLen = 128 // bytes of an argument's name
)

// readFrom reads what a step's arguments come from, strictly. at is where the step stands in the request.
func readFrom(raw json.RawMessage, step int, at string) (map[string]provenance.Source, error) {
	bad := func(where, format string, args ...any) *fault.Error {
		return fault.New(fault.RequestMalformed, format, args...).At(where)
	}
	if len(raw) == 0 || raw[0] != '{' {
		return nil, bad(at, "must be an object: argument -> {step, field} or {step, role}")
	}
	from := map[string]provenance.Source{}
	for name, m := range call.Members(raw) {
		where := at + "." + short(name)
		switch {
		case len(from) == maxFrom:
			return nil, bad(at, "at most %d arguments of a step come from results", maxFrom)
		case name == "" || len(name) > maxPlanArgLen || strings.Contains(name, "."):
			return nil, bad(where, "name an argument of the tool's own: 1 to %d bytes, no point", maxPlanArgLen)
		case m[0] != '{':
			return nil, bad(where, "must be an object {step, field} or {step, role}")
		}
		s := provenance.Source{Step: -1}
		for key, v := range call.Members(m) {
			var err error
			switch key {
			case "step":
				err = json.Unmarshal(v, &s.Step)
				if err != nil || string(v) == "null" {
					return nil, bad(where+".step", "must be the number of a step, from 0")
				}
			case "field":
				if json.Unmarshal(v, &s.Field) != nil || s.Field == "" || len(s.Field) > provenance.MaxField {
					return nil, bad(where+".field", "must be the path of a field in the step's result, names joined by points, 1 to %d bytes", provenance.MaxField)
				}
			case "role":
				var word string
				if json.Unmarshal(v, &word) != nil {
					return nil, bad(where+".role", "must be a string")
				}
				if s.Role, err = provenance.ParseRole(word); err != nil {
					return nil, bad(where+".role", "%s", err)
				}
			default:
				return nil, bad(where+"."+short(key), "unknown field").Try("It has step, and field or role.")
			}
		}
		switch {
		case s.Step < 0 || s.Step >= step:
			return nil, bad(where+".step", "must be the number of an earlier step, from 0")
		case (s.Field == "") == (s.Role == ""):
			return nil, bad(where, "say the field that it comes from, or the role that it has, and not both")
		case s.Role == provenance.Credential:
			return nil, bad(where+".role", "a credential never comes from a result")
		}
		from[name] = s
	}
	if len(from) == 0 {
		return nil, bad(at, "name at least one argument, or leave it out")
	}
	return from, nil
}

// checkSources refuses what can't be meant: an argument that is told twice, one that is left open and decides where the call goes, repeating
// over a step that nothing comes from.
func checkSources(steps []plannedStep, field string, lookup func(string) *catalogue.Operation) error {
	total := 0
	for i := range steps {
		st := &steps[i]
		at := fmt.Sprintf("%s[%d]", field, i)
		if total += len(st.From); total > maxPlanFrom {
			return fault.New(fault.RequestMalformed, "at most %d arguments of a plan come from results", maxPlanFrom).At(at + ".from")
		}
		p := &provenance.Profile{}
		if op := lookup(st.Tool); op != nil && op.Profile != nil {
			p = op.Profile
		}
		for _, name := range slices.Sorted(maps.Keys(st.From)) {
			where := at + ".from." + short(name)
			if _, ok := call.Get(st.Arguments, name); ok {
				return fault.New(fault.RequestMalformed, "the argument is in arguments too").At(where).Try("Fix it in arguments, or take it from a step.")
			}
			if p.RoleOf(name) == provenance.Credential {
				return fault.New(fault.RequestMalformed, "a credential never comes from a result").At(where)
			}
		}
		for j, name := range st.Open {
			where := fmt.Sprintf("%s.open[%d]", at, j)
			_, fixed := call.Get(st.Arguments, name)
			_, from := st.From[name]
			switch {
			case name == "" || len(name) > maxPlanArgLen || strings.Contains(name, "."):
				return fault.New(fault.RequestMalformed, "name an argument of the tool's own: 1 to %d bytes, no point", maxPlanArgLen).At(where)
			case fixed || from || slices.Contains(st.Open[:j], name):
				return fault.New(fault.RequestMalformed, "the argument %s is told already", short(name)).At(where)
			case p.RoleOf(name).Core():
				return fault.New(fault.RequestMalformed, "%s decides where the call goes or what it hits (its role is %s), so it can't be left open", short(name), p.RoleOf(name)).
					At(where).Try("Fix it in arguments, take it from an earlier step, or leave out arguments, from and open: then the call goes by where its arguments came from.")
			}
		}
		if st.Each == nil {
			continue
		}
		if !slices.ContainsFunc(slices.Collect(maps.Values(st.From)), func(s provenance.Source) bool { return s.Step == *st.Each }) {
			return fault.New(fault.RequestMalformed, "a step that repeats over another takes an argument from it").At(at + ".each").
				Try("Name in from what differs from call to call.")
		}
	}
	return nil
}

// needs are the steps whose results a step needs: those listed in after, and those that its arguments come from.
func (st *plannedStep) needs() []int {
	needs := slices.Clone(st.After)
	for _, name := range slices.Sorted(maps.Keys(st.From)) {
		if s := st.From[name].Step; !slices.Contains(needs, s) {
			needs = append(needs, s)
		}
	}
	return needs
}

// plannedOp is the operation as a step with these arguments is planned: nothing blocks it where the person's words, or who they are, lead to
// everything in it that decides, but data that nobody asked for; and it brings such data where, after untrusted content, nobody's words lead to
// what it reads. said reads the person's words.
func (g *Gateway) plannedOp(s *session.Session, op *catalogue.Operation, args json.RawMessage, said func() *provenance.Request, tainted bool) flow.Operation {
	planned := op.Flow
	at := provenance.Situation{Request: said(), Own: g.o.Identities(s.Requester), Held: []flow.Held{{Label: flow.Untrusted}}} // the strictest: then nothing but words will do
	if tainted && provenance.UnaskedFor(op.Flow, op.Profile, args, at) != "" && slices.ContainsFunc(op.Flow.Emits, func(l flow.Label) bool { return l != flow.Untrusted }) {
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

// judgeNarrowed judges a step that labels would refuse, where it says where private data would go (PV-7): it is
// permitted if the person's words lead there (plannedOp), and asked about if the plan does. A plan that a rule approves takes private data
// nowhere.
func (g *Gateway) judgeNarrowed(s *session.Session, steps []plannedStep, ops []*catalogue.Operation, i int) (v fault.Verdict, ok bool) {
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

// confirmations says for each step which arguments the plan will confirm.
func confirmations(p *session.Plan, ops []*catalogue.Operation) []string {
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

// maxFailed is how many calls that gave their step back are remembered.
const maxFailed = 500

// gaveBack notes that the call took a step and certainly had no effect: it was never sent, or it only reads and brought nothing. The step may
// be called again. Only this process knows; after a restart the step counts as called.
func (c *crossing) gaveBack(out outcome, err error) {
	var unsent *fault.NotDispatched
	if c.judged.facts.Evidence.Follows && (errors.As(err, &unsent) || out.entry.Decision != "ok" && !c.writes) {
		c.live.mu.Lock()
		defer c.live.mu.Unlock()
		c.live.failed = append(c.live.failed[max(0, len(c.live.failed)-maxFailed+1):], c.id)
	}
}

func (l *live) failedCalls() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.failed)
}
