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

// Bounds of a sealed plan. A step over them is matched by nothing, and a call over them leaves the plan.
const (
	maxFrom     = 10                  // arguments of one step that come from results
	maxPlanFrom = 200                 // and of all steps
	maxOpen     = 50                  // arguments of one step that are left open
	maxTaken    = 50                  // values of one argument that comes from a result
	MaxDone     = 500                 // calls that one plan has room for
	MaxField    = maxDisplayField - 1 // bytes of a field's name; longer ones are not kept whole
)

// Source says where a step's argument comes from: from one record of what an earlier step's result showed. The record has the value as the
// whole of the field, or, of a role, in a field that the operator has said may serve for it: a trusted or a delegable one, an id of the
// same kind. What stands inside a text of an outsider's is never meant.
type Source struct {
	Step  int    `json:"step"`            // from 0
	Field string `json:"field,omitempty"` // path in the record: names joined by points, list positions left out
	Role  Role   `json:"role,omitempty"`  // in place of a field
}

// SealedStep is one step of a sealed plan. One that has neither Arguments nor From nor Open leaves everything open: calls of the operation
// are in the plan, but it vouches for none of their arguments. Any other fixes the whole call: what it doesn't name may not be there.
type SealedStep struct {
	Operation string
	Arguments []byte            // canonical JSON object of what is fixed; nil: nothing is
	From      map[string]Source // argument -> where it comes from
	Open      []string          // arguments that the agent may choose; they go by where they came from
	Each      *int              // the step may be called once for every record that this step's results show; nil: once. A read as often as it likes
}

// Weak reports whether the step leaves everything open.
func (s *SealedStep) Weak() bool { return s.Arguments == nil && len(s.From) == 0 && len(s.Open) == 0 }

// Record is one record of a call's result.
type Record struct {
	CallID string `json:"call_id"`
	Number int    `json:"number"` // from 1
}

// Done says that a call was made for a step.
type Done struct {
	Step    int     `json:"step"`
	CallID  string  `json:"call_id"`
	Record  *Record `json:"record,omitempty"`  // the one that the step was made for, of a step that is repeated
	Loose   bool    `json:"loose,omitempty"`   // untrusted content may have had a say in its arguments: no argument comes from its result
	Instead string  `json:"instead,omitempty"` // the call that failed before it, and had no effect
	Again   bool    `json:"again,omitempty"`   // it only reads, or its step vouches for nothing: the step may be called again
}

// Sealed is an approved plan with what was done of it. Only one that was clean or that a person decided vouches for anything.
type Sealed struct {
	Steps  []SealedStep
	Clean  bool // the session held no label when the plan was submitted and when it was approved
	Person bool // a person approved it, with its arguments in sight
	Done   []Done
	Failed []string // ids of calls in Done that certainly had no effect: their steps may be called again
}

// Followed says which step a call follows. The zero value follows none.
type Followed struct {
	Step int
	// Firm says that the plan vouches for the call: that untrusted content can have had no say in any argument but open ones, none of which
	// decides where something goes or what it hits. A weak step is never firm.
	Firm bool
	// Exact says that it vouches for every argument.
	Exact bool
	// Fixed says that the plan has the call's arguments to the letter.
	Fixed bool
	// Text is a sentence fit for a model: which step and which records, or why the call leaves the plan.
	Text string

	record  *Record
	instead string
	again   bool
	args    map[string]plannedArg
}

// plannedArg is what a step says about one argument of a call.
type plannedArg struct {
	fixed  bool
	from   Source
	record int  // index into the evidence's records
	serves bool // by the operator's word, and not only the plan's
	booked bool // trusted output or what the system sets, which also vouches for links
}

// Done is what is to be kept of the call when it is made.
func (f Followed) Done(callID string, loose bool) Done {
	return Done{Step: f.Step, CallID: callID, Record: f.record, Loose: loose, Instead: f.instead, Again: f.again}
}

// Vouches reports whether the plan vouches for anything.
func (s *Sealed) Vouches() bool { return s != nil && (s.Clean || s.Person) }

// Asks reports whether a step takes arguments of the operation from results, so that what follows it depends on evidence.
func (s *Sealed) Asks(operation string) bool {
	return slices.ContainsFunc(s.Steps, func(st SealedStep) bool { return st.Operation == operation && len(st.From) > 0 })
}

// Take reports whether the plan still has the room that d takes: a step that changes something is called once, or once for each record; again
// only instead of a call that failed.
func (s *Sealed) Take(d Done) bool {
	if d.Step < 0 || d.Step >= len(s.Steps) || len(s.Done) >= MaxDone || d.CallID == "" || (s.Steps[d.Step].Each != nil) != (d.Record != nil) {
		return false
	}
	if d.Again {
		return true
	}
	holds := ""
	for _, done := range s.Done {
		if slotOf(done.Step, done.Record) == slotOf(d.Step, d.Record) {
			holds = done.CallID
		}
	}
	return holds == d.Instead
}

// slot is what one call takes: a step, or a step for one record.
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

// Follow finds the step that a call follows: the first that has room and fixes what the call has, or else the first weak one of the
// operation. Arguments are the canonical JSON object. What untrusted results show can only fill in the arguments for which a step names a
// step of theirs, only with what stands in the field named and was not written there by the session, and, where nobody but a rule has approved the plan, only out of fields that the
// operator lets serve.
func (s *Sealed) Follow(operation string, p *Profile, args []byte, e *Evidence) (Followed, bool) {
	if s == nil {
		return Followed{}, false
	}
	if p == nil {
		p = &Profile{}
	}
	m := matcher{s: s, operation: operation, p: p, e: e, taken: map[slot]*Done{}, results: map[int]map[string]bool{}}
	if v, err := decode(args); err != nil || json.Unmarshal(args, &m.args) != nil || m.args == nil {
		return Followed{Text: "its arguments can't be read"}, false
	} else {
		m.values = v.(object)
	}
	for i := range s.Done {
		m.taken[slotOf(s.Done[i].Step, s.Done[i].Record)] = &s.Done[i]
	}
	for _, d := range s.Done {
		if m.results[d.Step] == nil {
			m.results[d.Step] = map[string]bool{}
		}
		m.results[d.Step][d.CallID] = !d.Loose
		delete(m.results[d.Step], d.Instead) // it failed
	}
	weak, soft, why := Followed{Step: -1}, Followed{Step: -1}, ""
	for i := range s.Steps {
		if s.Steps[i].Operation != operation {
			continue
		}
		if s.Steps[i].Weak() {
			if weak.Step < 0 {
				weak = Followed{Step: i, Text: fmt.Sprintf("step %d of the sealed plan, which leaves its arguments open", i), again: true}
			}
			continue
		}
		switch f, problem := m.match(i); {
		case problem != "":
			why = cmp.Or(why, problem)
		case f.Firm || f.Fixed:
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

// matcher matches one call.
type matcher struct {
	s         *Sealed
	operation string
	p         *Profile
	e         *Evidence
	args      map[string]json.RawMessage
	values    object
	taken     map[slot]*Done          // the last call for each
	results   map[int]map[string]bool // step -> calls made for it -> whether arguments may come from their results
}

// room reports whether the step can be called, for that record, and which failed call that would be instead of.
func (m *matcher) room(step int, record *Record) (instead string, ok bool) {
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

// match matches the call to one step. problem says why it doesn't fit.
func (m *matcher) match(at int) (f Followed, problem string) {
	step := &m.s.Steps[at]
	which := fmt.Sprintf("step %d of the sealed plan", at)
	var fixed map[string]json.RawMessage
	if step.Arguments != nil && json.Unmarshal(step.Arguments, &fixed) != nil || len(step.From) > maxFrom || len(step.Open) > maxOpen {
		return f, which + " can't be read"
	}
	f = Followed{Step: at, Fixed: true, again: m.p.Level == 0, args: map[string]plannedArg{}}
	open := false
	for _, name := range slices.Sorted(maps.Keys(m.args)) {
		value, isFixed := fixed[name]
		from, isFrom := step.From[name]
		switch {
		// A name with a point in it reads like a path into another argument.
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
				return f, which + " may not leave " + sentence.Name(name) + " open: it decides where the call goes or what it hits"
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
		instead, ok := m.room(at, nil)
		if !ok {
			return f, which + " has been called"
		}
		f.instead = instead
	}
	if problem := m.fill(step, &f); problem != "" {
		return f, which + ": " + problem
	}
	f.Firm, f.Exact = m.s.Vouches(), m.s.Vouches() && !open
	for name, a := range f.args {
		if role := m.p.role(name); !a.fixed && !a.serves && (!m.s.Person || role == Credential) {
			f.Firm, f.Exact = f.Firm && !role.Core(), false
		}
	}
	f.Text = which + m.told(step, &f)
	return f, ""
}

// core reports whether an argument, or something in it, decides where the call goes or what it hits.
func (m *matcher) core(name string) bool {
	core := m.p.role(name).Core()
	for _, v := range m.values {
		if v.name == name {
			leaves(v.value, name, func(path string, _ any) { core = core || m.p.role(path).Core() })
		}
	}
	return core
}

// fill finds for each earlier step a record that has all values that come from there, and that was not used yet where the step is repeated.
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
		used := false
		chosen := -1
		for _, at := range slices.Sorted(maps.Keys(found)) {
			if step.Each != nil && *step.Each == source {
				r := &m.e.records[at]
				record := &Record{r.callID, r.number}
				instead, ok := m.room(f.Step, record)
				if !ok {
					used = true
					continue
				}
				if chosen < 0 || !served(found[chosen]) && served(found[at]) {
					chosen, f.record, f.instead = at, record, instead
				}
			} else if chosen < 0 || !served(found[chosen]) && served(found[at]) {
				chosen = at
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

// first is the first call for a step that did not fail: what is repeated for each record is not repeated for each time that they are read.
func (m *matcher) first(source int) map[string]bool {
	for _, d := range m.s.Done {
		if sound, ok := m.results[source][d.CallID]; ok && d.Step == source && !slices.Contains(m.s.Failed, d.CallID) {
			return map[string]bool{d.CallID: sound}
		}
	}
	return nil
}

func served(args map[string]plannedArg) bool {
	for _, a := range args {
		if !a.serves {
			return false
		}
	}
	return true
}

// records finds the records of the source step's results that have the values of all these arguments.
func (m *matcher) records(step *SealedStep, at, source int, args []string, calls map[string]bool) (found map[int]map[string]plannedArg, problem string) {
	if source < 0 || source >= at || m.e == nil || len(calls) == 0 {
		return nil, fmt.Sprintf("step %d has not been called", source)
	}
	for _, name := range args {
		values, ok := m.leaves(name)
		if !ok {
			return nil, sentence.Name(name) + " is not a value, or a short list of values, that a result can have shown"
		}
		for _, v := range values {
			here := m.spots(step.From[name], name, v, calls)
			if found == nil { // the first value of all
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
					b.serves, b.booked = b.serves && was.serves, b.booked && was.booked
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

// leaves are the values of an argument that comes from a result: one, or a list.
func (m *matcher) leaves(name string) (values []string, ok bool) {
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
			s, _ := scalar(one) // "" of what is none
			for _, part := range apart(m.p.role(name), s) {
				if strings.TrimSpace(part) != "" && !slices.Contains(values, part) {
					values = append(values, part)
				}
			}
			ok = ok && len(values) <= maxTaken && strings.TrimSpace(s) != ""
		}
	}
	return values, ok && len(values) > 0
}

// spots finds the records of the calls that have the value where the source says.
func (m *matcher) spots(from Source, argument, value string, calls map[string]bool) map[int]plannedArg {
	role := m.p.role(argument)
	found := map[int]plannedArg{}
	f, ok := formOf(value)
	if !ok {
		return found
	}
	written := m.e.written(value)
	keep := func(sp spot, serves bool) {
		r := &m.e.records[sp.record]
		if !calls[r.callID] || sp.record >= written || sp.many && sp.class != classTrusted || from.Field != "" && sp.field != from.Field {
			return
		}
		serves = serves && m.serves(role, sp, r)
		if from.Field == "" && !(serves && m.serves(from.Role, sp, r)) {
			return
		}
		booked := sp.class == classTrusted || sp.class == classSystem
		if was, ok := found[sp.record]; ok {
			serves, booked = serves || was.serves, booked || was.booked
		}
		found[sp.record] = plannedArg{from: from, record: sp.record, serves: serves, booked: booked}
	}
	for _, sp := range m.e.valuesOf(f, role) {
		keep(sp, role != Selector)
	}
	if role == Selector { // an id is one to the letter, out of an id field
		for _, sp := range m.e.idsFor(value, argument) {
			keep(sp, true)
		}
	}
	return found
}

// serves reports whether the operator's word lets a value that stood there serve for the role, once a plan has singled the record out.
func (m *matcher) serves(role Role, sp spot, r *seenAt) bool {
	switch {
	case role == Credential:
		return false
	case role == Selector:
		return (sp.class == classTrusted || sp.class == classSystem) && sameKind(m.operation, m.p.IDKind, r)
	case sp.class == classTrusted, sp.class == classSystem:
		return true
	}
	return sp.class == classDelegable && (role == Destination || role == Target || !role.Core())
}

// told says where the arguments that come from results come from.
func (m *matcher) told(step *SealedStep, f *Followed) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(step.From)) {
		a := f.args[name]
		fmt.Fprintf(&out, ", its %s from record %d of step %d's result", sentence.Name(name), m.e.records[a.record].number, a.from.Step)
	}
	return out.String()
}

// planned reports whether the sealed plan vouches for a value of the call. Private data goes only where a plan that a person decided fixed it,
// or where that plan and the operator's word let a result lead.
func (t *tracer) planned(f *Finding, v traced) bool {
	name, _, _ := strings.Cut(v.path, ".")
	a, ok := t.followed.args[name]
	if !ok || !t.s.Plan.Vouches() || t.blocked() && !t.s.Plan.Person {
		return false
	}
	arg, step := sentence.Name(v.path), t.followed.Step
	if a.fixed {
		f.Vouched, f.By, f.Text = true, ByPlan, fmt.Sprintf("%s is fixed in step %d of the sealed plan", arg, step)
		return true
	}
	trusts := t.s.Plan.Person && !t.blocked() && v.role != Credential
	link := v.role == URL && t.p.role(v.path) != URL // in what is sent
	if !trusts && (!a.serves || link && !a.booked) {
		return false
	}
	r := &t.s.Evidence.records[a.record]
	f.at(r, spot{field: a.from.Field})
	f.Vouched, f.By = true, ByPlan
	f.Text = fmt.Sprintf("%s is from record %d of step %d's result, as step %d of the sealed plan says", arg, r.number, a.from.Step, step)
	return true
}

// MayServe reports whether, going by the operator's word alone, an argument of an operation may come from a field of another's results. It is
// what can be said before there is a result: one that doesn't have its shape lends nothing.
func MayServe(operation string, p *Profile, argument, source string, of *Profile, path string) bool {
	o := observer{p: of, trusted: of.Output == TrustedOutput || of.Output == TypedOutput && of.Shape != nil}
	m := matcher{operation: operation, p: p}
	role := p.role(argument)
	return m.serves(role, spot{class: o.class(field{name: path})}, &seenAt{operation: source, idKind: of.IDKind}) && (role != Selector || idField(path, of.IDKind) || of.IDKind != "" && idNamed(bareName(path), bareName(of.IDKind), bareName(argument[strings.LastIndexByte(argument, '.')+1:])))
}

// RoleOf is what an argument is for: as told, or else Target, which has to be vouched for.
func (p *Profile) RoleOf(argument string) Role { return p.role(argument) }
