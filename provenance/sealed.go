package provenance

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sallyport.example/internal/sentence"
)

// Bounds of a sealed plan. No call follows a step that exceeds them, and a call that exceeds them leaves the plan.
const (
	maxFrom  = 10                  // arguments of one step that come from results
	maxOpen  = 50                  // arguments of one step that are left open
	maxTaken = 50                  // values of one argument that comes from a result
	MaxDone  = 500                 // calls for one plan
	MaxField = maxDisplayField - 1 // bytes of a field's name; longer ones are not kept whole
)

// Source says where a step's argument comes from: from one record of an earlier step's result. The value has to be the whole content of the field,
// or, if a role is given, of a field that the operator's profile allows for that role: a trusted or delegable field, or an id of the same kind. A
// piece of an outsider's text never counts.
type Source struct {
	Step  int    `json:"step"`            // from 0
	Field string `json:"field,omitempty"` // path in the record: names joined by points, without list positions
	Role  Role   `json:"role,omitempty"`  // in place of a field
}

// SealedStep is one step of a sealed plan. A step without Arguments, From and Open fixes nothing: it permits calls of the operation but confirms
// none of their arguments. Any other step fixes the whole call: the call may have no other arguments.
type SealedStep struct {
	Operation string
	Arguments []byte            // fixed arguments, as a canonical JSON object; nil: none
	From      map[string]Source // argument -> its source
	Open      []string          // arguments that the agent may choose; they are traced like those of any call
	Each      *int              // the step may be called once for each record of that step's result; nil: once. A read may be called any number of times
}

// FixesNothing reports whether the step fixes nothing.
func (s *SealedStep) FixesNothing() bool {
	return s.Arguments == nil && len(s.From) == 0 && len(s.Open) == 0
}

// Record is one record of a call's result.
type Record struct {
	CallID string `json:"call_id"`
	Number int    `json:"number"` // from 1
}

// Done says that a call was made for a step.
type Done struct {
	Step       int     `json:"step"`
	CallID     string  `json:"call_id"`
	Record     *Record `json:"record,omitempty"`  // of a repeated step: the record that the call was made for
	Tainted    bool    `json:"loose,omitempty"`   // untrusted content may have influenced its arguments, so its result supplies none
	Replaces   string  `json:"instead,omitempty"` // the failed call before it that had no effect
	Repeatable bool    `json:"again,omitempty"`   // the step may be called again, because it only reads or confirms nothing
}

// SealedPlan is an approved plan with the calls that were made for it.
type SealedPlan struct {
	Steps  []SealedStep
	Clean  bool // the session held no label when the plan was submitted and when it was approved
	Person bool // a person approved it, and was shown its arguments
	Done   []Done
	Failed []string // ids of calls in Done that certainly had no effect; their steps may be called again
}

// Followed says which step a call follows. The zero value means none.
type Followed struct {
	Step int
	// Confirmed says that the plan confirms the call: untrusted content can only have influenced open arguments, none of which
	// decides where something goes or what it affects. A step that fixes nothing never confirms a call.
	Confirmed bool
	// FullyConfirmed says that it confirms every argument.
	FullyConfirmed bool
	// Fixed says that the plan fixes all arguments of the call.
	Fixed bool
	// Text is a sentence for a model: which step and which records, or why the call leaves the plan.
	Text string

	record     *Record
	replaces   string
	repeatable bool
	args       map[string]plannedArg
}

// plannedArg holds what a step fixes for one argument of a call.
type plannedArg struct {
	fixed   bool
	from    Source
	record  int  // index in Evidence.records
	allowed bool // by the profile, and not only by the plan
	trusted bool // it is from a trusted result or field, which also confirms links
}

// Done is the entry to keep when the call is made. tainted says that untrusted content may have influenced its arguments.
func (f Followed) Done(callID string, tainted bool) Done {
	return Done{Step: f.Step, CallID: callID, Record: f.record, Tainted: tainted, Replaces: f.replaces, Repeatable: f.repeatable}
}

// Confirms reports whether the plan confirms anything: it was clean, or a person approved it.
func (s *SealedPlan) Confirms() bool { return s != nil && (s.Clean || s.Person) }

// NeedsEvidence reports whether a step takes arguments of the operation from results. If so, Follow needs the evidence.
func (s *SealedPlan) NeedsEvidence(operation string) bool {
	return slices.ContainsFunc(s.Steps, func(st SealedStep) bool { return st.Operation == operation && len(st.From) > 0 })
}

// HasRoom reports whether the plan still has room for d. A step that changes something is called once, or once for each record; a second call is only
// allowed in place of a call that failed.
func (s *SealedPlan) HasRoom(d Done) bool {
	if d.Step < 0 || d.Step >= len(s.Steps) || len(s.Done) >= MaxDone || d.CallID == "" || (s.Steps[d.Step].Each != nil) != (d.Record != nil) {
		return false
	}
	if d.Repeatable {
		return true
	}
	holds := ""
	for _, done := range s.Done {
		if slotOf(done.Step, done.Record) == slotOf(d.Step, d.Record) {
			holds = done.CallID
		}
	}
	return holds == d.Replaces
}

// slot is the place that one call takes: a step, or a step for one record.
type slot struct {
	step   int
	record Record // zero: the step is not repeated
}

func slotOf(step int, record *Record) slot {
	if record == nil {
		return slot{step: step}
	}
	return slot{step, *record}
}

// Follow finds the step that a call follows: the first one with room that fixes the call, or else the first one of the operation that fixes
// nothing. args is a canonical JSON object. Untrusted results can only fill the arguments for which a step names them as the source, and only with
// the content of that field that the session did not write itself. If only a rule approved the plan, the operator's profile also has to allow the
// field.
func (s *SealedPlan) Follow(operation string, p *Profile, args []byte, e *Evidence) (Followed, bool) {
	if s == nil {
		return Followed{}, false
	}
	p = cmp.Or(p, &Profile{})
	m := matcher{s: s, operation: operation, p: p, e: e, taken: map[slot]*Done{}, results: map[int]map[string]bool{}}
	if v, err := decode(args); err != nil || json.Unmarshal(args, &m.args) != nil || m.args == nil {
		return Followed{Text: "its arguments can't be read"}, false
	} else {
		m.values = v.(object)
	}
	for i, d := range s.Done {
		m.taken[slotOf(d.Step, d.Record)] = &s.Done[i]
		if m.results[d.Step] == nil {
			m.results[d.Step] = map[string]bool{}
		}
		m.results[d.Step][d.CallID] = !d.Tainted
		delete(m.results[d.Step], d.Replaces) // that call failed
	}
	weak, soft, why := Followed{Step: -1}, Followed{Step: -1}, ""
	for i := range s.Steps {
		if s.Steps[i].Operation != operation {
			continue
		}
		if s.Steps[i].FixesNothing() {
			if weak.Step < 0 {
				weak = Followed{Step: i, Text: fmt.Sprintf("step %d of the sealed plan, which leaves its arguments open", i), repeatable: true}
			}
			continue
		}
		switch f, problem := m.match(i); {
		case problem != "":
			why = cmp.Or(why, problem)
		case f.Confirmed || f.Fixed:
			return f, true
		case soft.Step < 0:
			soft = f
		}
	}
	for _, f := range []Followed{soft, weak} {
		if f.Step >= 0 {
			return f, true
		}
	}
	return Followed{Text: cmp.Or(why, "the sealed plan has no step that calls "+sentence.Name(operation))}, false
}

// matcher compares one call with the steps.
type matcher struct {
	s         *SealedPlan
	operation string
	p         *Profile
	e         *Evidence
	args      map[string]json.RawMessage
	values    object
	taken     map[slot]*Done          // the last call for each slot
	results   map[int]map[string]bool // step -> its calls -> whether their results may supply arguments
}

// room reports whether the step can be called for that record, and which failed call the new one would replace.
func (m *matcher) room(step int, record *Record) (failed string, ok bool) {
	if m.p.Level == 0 {
		return "", true
	}
	if len(m.s.Done) >= MaxDone {
		return "", false
	}
	d := m.taken[slotOf(step, record)]
	if d == nil {
		return "", true
	}
	return d.CallID, slices.Contains(m.s.Failed, d.CallID)
}

// match compares the call with one step. problem says why it differs.
func (m *matcher) match(at int) (f Followed, problem string) {
	step := &m.s.Steps[at]
	which := fmt.Sprintf("step %d of the sealed plan", at)
	var fixed map[string]json.RawMessage
	if step.Arguments != nil && json.Unmarshal(step.Arguments, &fixed) != nil || len(step.From) > maxFrom || len(step.Open) > maxOpen {
		return f, which + " can't be read"
	}
	f = Followed{Step: at, Fixed: true, repeatable: m.p.Level == 0, args: map[string]plannedArg{}}
	open := false
	for _, name := range slices.Sorted(maps.Keys(m.args)) {
		value, isFixed := fixed[name]
		from, isFrom := step.From[name]
		switch {
		// A name with a point in it looks like a path into another argument.
		case isFixed && isFrom, !isFixed && strings.Contains(name, "."), !isFixed && !isFrom && !slices.Contains(step.Open, name):
			return f, which + " has no argument " + sentence.Name(name)
		case isFixed && !bytes.Equal(value, m.args[name]):
			return f, which + " has another value for " + sentence.Name(name)
		case isFixed:
			f.args[name] = plannedArg{fixed: true}
		case isFrom:
			f.Fixed = false
			f.args[name] = plannedArg{from: from}
		default:
			f.Fixed, open = false, true
			if m.core(name) {
				return f, which + " may not leave " + sentence.Name(name) + " open: it decides where the call goes or what it affects"
			}
		}
	}
	for name := range fixed {
		if _, ok := m.args[name]; !ok {
			return f, which + " has the argument " + sentence.Name(name) + ", which the call lacks"
		}
	}
	for name := range step.From {
		if _, ok := m.args[name]; !ok {
			return f, which + " takes " + sentence.Name(name) + " from a result, and the call lacks it"
		}
	}
	if step.Each == nil {
		failed, ok := m.room(at, nil)
		if !ok {
			return f, which + " has been called"
		}
		f.replaces = failed
	}
	if problem := m.fill(step, &f); problem != "" {
		return f, which + ": " + problem
	}
	f.Confirmed, f.FullyConfirmed = m.s.Confirms(), m.s.Confirms() && !open
	for name, a := range f.args {
		if role := m.p.RoleOf(name); !a.fixed && !a.allowed && (!m.s.Person || role == Credential) {
			f.Confirmed, f.FullyConfirmed = f.Confirmed && !role.Core(), false
		}
	}
	f.Text = which + m.describeSources(step, &f)
	return f, ""
}

// core reports whether an argument, or a part of it, has a core role.
func (m *matcher) core(name string) bool {
	core := m.p.RoleOf(name).Core()
	for _, v := range m.values {
		if v.name == name {
			leaves(v.value, name, func(path string, _ any) { core = core || m.p.RoleOf(path).Core() })
		}
	}
	return core
}

// fill finds, for each earlier step, a record that has all values that come from there. If the step repeats over records, it has to be an unused
// one.
func (m *matcher) fill(step *SealedStep, f *Followed) (problem string) {
	bySource := map[int][]string{}
	for _, name := range slices.Sorted(maps.Keys(step.From)) {
		bySource[step.From[name].Step] = append(bySource[step.From[name].Step], name)
	}
	if step.Each != nil && bySource[*step.Each] == nil {
		return fmt.Sprintf("nothing in it comes from step %d, which it repeats over", *step.Each)
	}
	for _, source := range slices.Sorted(maps.Keys(bySource)) {
		calls := m.results[source]
		if step.Each != nil && *step.Each == source {
			calls = m.first(source)
		}
		found, problem := m.records(step, f.Step, source, bySource[source], calls)
		if problem != "" {
			return problem
		}
		used, chosen := false, -1
		for _, at := range slices.Sorted(maps.Keys(found)) {
			record, failed := f.record, f.replaces
			if step.Each != nil && *step.Each == source {
				record = &Record{m.e.records[at].callID, m.e.records[at].number}
				var ok bool
				if failed, ok = m.room(f.Step, record); !ok {
					used = true
					continue
				}
			}
			if chosen < 0 || !allAllowed(found[chosen]) && allAllowed(found[at]) {
				chosen, f.record, f.replaces = at, record, failed
			}
		}
		if chosen < 0 && used {
			return fmt.Sprintf("it has been called for the record of step %d's result that has the call's %s", source, sentence.Names(bySource[source]))
		}
		if chosen < 0 {
			return fmt.Sprintf("no record of step %d's result has the call's %s", source, sentence.Names(bySource[source]))
		}
		for name, a := range found[chosen] {
			f.args[name] = a
		}
	}
	return ""
}

// first is the first successful call for a step. A step that repeats over its records uses only this call, so that reading them again does not
// repeat it.
func (m *matcher) first(source int) map[string]bool {
	for _, d := range m.s.Done {
		if sound, ok := m.results[source][d.CallID]; ok && d.Step == source && !slices.Contains(m.s.Failed, d.CallID) {
			return map[string]bool{d.CallID: sound}
		}
	}
	return nil
}

// allAllowed reports whether the profile allows every argument.
func allAllowed(args map[string]plannedArg) bool {
	return !slices.ContainsFunc(slices.Collect(maps.Values(args)), func(a plannedArg) bool { return !a.allowed })
}

// records finds the records of the source step's results that have the values of all these arguments.
func (m *matcher) records(step *SealedStep, at, source int, args []string, calls map[string]bool) (found map[int]map[string]plannedArg, problem string) {
	if source < 0 || source >= at || m.e == nil || len(calls) == 0 {
		return nil, fmt.Sprintf("step %d has not been called", source)
	}
	for _, name := range args {
		values, ok := m.valuesOf(name)
		if !ok {
			return nil, sentence.Name(name) + " is not a value or a short list of values that a result can have"
		}
		for _, v := range values {
			here := m.occurrences(step.From[name], name, v, calls)
			if found == nil { // for the first value
				found = map[int]map[string]plannedArg{}
				for r := range here {
					found[r] = map[string]plannedArg{}
				}
			}
			for r, a := range found {
				b, ok := here[r]
				if !ok {
					delete(found, r)
					continue
				}
				if was, ok := a[name]; ok {
					b.allowed, b.trusted = b.allowed && was.allowed, b.trusted && was.trusted
				}
				a[name] = b
			}
		}
	}
	if slices.Contains(slices.Collect(maps.Values(calls)), false) && len(found) == 0 {
		return nil, fmt.Sprintf("step %d was called with arguments that the plan does not have, after untrusted content came in", source)
	}
	return found, ""
}

// valuesOf returns the values of an argument that comes from a result: one, or the elements of a list.
func (m *matcher) valuesOf(name string) (values []string, ok bool) {
	ok = true
	for _, v := range m.values {
		if v.name != name {
			continue
		}
		list, isList := v.value.([]any)
		if !isList {
			list = []any{v.value}
		}
		for _, one := range list {
			s, _ := scalar(one) // "" if it is no scalar
			for _, part := range splitAddresses(m.p.RoleOf(name), s) {
				if strings.TrimSpace(part) != "" && !slices.Contains(values, part) {
					values = append(values, part)
				}
			}
			ok = ok && len(values) <= maxTaken && strings.TrimSpace(s) != ""
		}
	}
	return values, ok && len(values) > 0
}

// occurrences finds the records of the calls that have the value in the place that the source names.
func (m *matcher) occurrences(from Source, argument, value string, calls map[string]bool) map[int]plannedArg {
	role := m.p.RoleOf(argument)
	found := map[int]plannedArg{}
	f, ok := formOf(value)
	if !ok {
		return found
	}
	givenSince := m.e.givenSince(value)
	if role == Selector {
		givenSince = m.e.idGivenSince(value, m.operation, m.p.IDKind)
	}
	keep := func(sp occurrence, allowed bool) {
		r := &m.e.records[sp.record]
		if !calls[r.callID] || sp.record >= givenSince || sp.many && sp.class != classTrusted || from.Field != "" && sp.field != from.Field {
			return
		}
		allowed = allowed && m.allows(role, sp, r)
		if from.Field == "" && !(allowed && m.allows(from.Role, sp, r)) {
			return
		}
		trusted := sp.trusted()
		if was, ok := found[sp.record]; ok {
			allowed, trusted = allowed || was.allowed, trusted || was.trusted
		}
		found[sp.record] = plannedArg{from: from, record: sp.record, allowed: allowed, trusted: trusted}
	}
	for _, sp := range m.e.valuesOf(f, role) {
		keep(sp, role != Selector)
	}
	if role == Selector { // an id has to be literally the same, and in an id field
		for _, sp := range m.e.idsFor(value, argument) {
			keep(sp, true)
		}
	}
	return found
}

// allows reports whether the profile allows a value that occurred there for the role, once a plan has singled the record out.
func (m *matcher) allows(role Role, sp occurrence, r *evidenceRecord) bool {
	switch {
	case role == Credential:
		return false
	case role == Selector:
		return sp.trusted() && sameKind(m.operation, m.p.IDKind, r)
	case sp.class == classTrusted, sp.class == classSystem:
		return true
	}
	return sp.class == classDelegable && (role == Destination || role == Target || !role.Core())
}

// describeSources says which records the arguments come from.
func (m *matcher) describeSources(step *SealedStep, f *Followed) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(step.From)) {
		a := f.args[name]
		fmt.Fprintf(&out, ", its %s from record %d of step %d's result", sentence.Name(name), m.e.records[a.record].number, a.from.Step)
	}
	return out.String()
}

// confirmedByPlan reports whether the sealed plan confirms a value of the call. Private data may only go to a destination that a person's plan
// fixes, or that such a plan and the profile together let a result supply.
func (t *tracer) confirmedByPlan(f *Finding, v traced) bool {
	name, _, _ := strings.Cut(v.path, ".")
	a, ok := t.followed.args[name]
	if !ok || !t.s.Plan.Confirms() || t.blocked() && !t.s.Plan.Person {
		return false
	}
	arg, step := sentence.Name(v.path), t.followed.Step
	if a.fixed {
		f.Confirmed, f.By, f.Text = true, ByPlan, fmt.Sprintf("%s is fixed in step %d of the sealed plan", arg, step)
		return true
	}
	trusts := t.s.Plan.Person && !t.blocked() && v.role != Credential
	link := v.role == URL && t.p.RoleOf(v.path) != URL // in content
	if !trusts && (!a.allowed || link && !a.trusted) {
		return false
	}
	r := &t.s.Evidence.records[a.record]
	f.at(r, occurrence{field: a.from.Field})
	f.Confirmed, f.By = true, ByPlan
	f.Text = fmt.Sprintf("%s is from record %d of step %d's result, as step %d of the sealed plan says", arg, r.number, a.from.Step, step)
	return true
}

// MaySupply reports whether, by the profiles alone, an argument of an operation may come from a field of another operation's results. It answers
// before there is a result; a result that does not match its shape supplies nothing.
func MaySupply(operation string, p *Profile, argument, source string, of *Profile, path string) bool {
	o := observer{p: of, trusted: of.Output == TrustedOutput || of.Output == TypedOutput && of.Shape != nil}
	m := matcher{operation: operation, p: p}
	role := p.RoleOf(argument)
	return m.allows(role, occurrence{class: o.class(path)}, &evidenceRecord{operation: source, idKind: of.IDKind}) && (role != Selector || idField(path, of.IDKind) || of.IDKind != "" && idNamed(bareName(path), bareName(of.IDKind), bareName(argument[strings.LastIndexByte(argument, '.')+1:])))
}
