package provenance

import (
	"slices"
	"strings"

	"sallyport.example/flow"
)

// Evidence is what a session has seen, ready to be looked up. It is not safe for use by several goroutines while one of them adds. What is added
// has to be added in the order in which it came, and nothing left out in between; what was not kept vouches for nothing, so evidence that ends
// early asks more, never less.
type Evidence struct {
	values   map[form][]spot
	ids      map[string][]spot // id -> where it stood as the id of a record
	records  []seenAt
	approved map[approvedAt][]yes
	sources  map[sourceAt][]yes
	gave     []gaveAt
	gaveSize int
	count    int // values
}

// spot is where a value stood.
type spot struct {
	record int // index into records
	field  string
	class  class
	many   bool
	own    bool   // in the index of ids: of a field that is called one
	bare   string // in the index of ids: the field's name as idNamed takes it, where it is not called one
}

// seenAt is a record with what its result was.
type seenAt struct {
	operation, callID, idKind string
	bareKind                  string // as idNamed takes it
	number                    int    // of its result, from 1
	named                     string
	only                      bool
}

// bound reports whether the person singled out the record and, where it has several such values side by side, the value.
func (r *seenAt) bound(sp spot) bool { return r.named != "" || r.only && !sp.many }

// sound reports whether no outsider can have written the value: only such values make a record the source of one that was approved, and only such
// ones come from it.
func (sp spot) sound() bool { return sp.class == classTrusted || sp.class == classSystem }

// valuesOf is where a value stood. What is no amount stands there in another form, too, where it was written in groups of digits or without.
func (e *Evidence) valuesOf(f form, r Role) []spot {
	if other, ok := f.alike(); ok && r != Amount && len(e.values[other]) > 0 {
		return slices.Concat(e.values[f], e.values[other])
	}
	return e.values[f]
}

// idsFor is where an id stood as that of a record, in a field that is called one, or as the argument is that it is for: number, or
// issue_number of an issue.
func (e *Evidence) idsFor(id, argument string) []spot {
	all := e.ids[id]
	i := slices.IndexFunc(all, func(sp spot) bool { return !sp.own })
	if i < 0 {
		return all
	}
	argument = argument[strings.LastIndexByte(argument, '.')+1:]
	if len(argument) > 2*maxDisplayField { // no field and its kind have such a name
		argument = ""
	}
	argument = bareName(argument)
	var out []spot
	for _, sp := range all {
		if sp.own || idNamed(sp.bare, e.records[sp.record].bareKind, argument) {
			out = append(out, sp)
		}
	}
	return out
}

// gaveAt is what a write was given, and how many records had been seen by then.
type gaveAt struct {
	gave
	record int
}

// approvedAt is a value that a person said yes to, as an argument of an operation; of a link, also anywhere.
type approvedAt struct {
	operation, argument string
	form                form
}

// sourceAt is a record that a person said yes to, as where an argument of an operation came from.
type sourceAt struct {
	operation, argument string
	record              int
}

// Add takes in what a result showed, or an approval. The order is that in which it came.
func (e *Evidence) Add(s Seen) {
	if e.values == nil {
		e.values, e.ids = map[form][]spot{}, map[string][]spot{}
		e.approved, e.sources = map[approvedAt][]yes{}, map[sourceAt][]yes{}
	}
	switch {
	case s.Approved != nil:
		e.approve(s)
		return
	case s.Gave != nil:
		e.gaveSize += len(s.Gave.Text)
		e.gave = append(e.gave, gaveAt{*s.Gave, len(e.records)})
		if e.gaveSize > maxGave {
			e.gave = []gaveAt{{gave{All: true}, e.gave[0].record}}
		}
		return
	}
	kind := bareName(clipField(s.IDKind))
	for i, r := range s.Records {
		if len(r.Values) == 0 {
			continue
		}
		at := len(e.records)
		e.records = append(e.records, seenAt{operation: s.Operation, callID: s.CallID, idKind: s.IDKind, bareKind: kind, number: i + 1, named: r.Named, only: r.Only})
		for _, v := range r.Values {
			if e.count >= maxEvidence {
				return
			}
			f, ok := formOf(v.Text)
			if !ok {
				continue
			}
			e.count++
			sp := spot{record: at, field: v.Field, class: v.Class, many: v.Many}
			if all := e.values[f]; len(all) == 0 || all[len(all)-1] != sp { // a list of the same
				e.values[f] = append(all, sp)
			}
			if v.ID || v.Code {
				if sp.own = v.ID; v.Code {
					sp.class, sp.bare = classSystem, bareName(clipField(v.Field))
				}
				e.ids[v.Text] = append(e.ids[v.Text], sp)
			}
		}
	}
}

// yes is a person's approval: the labels that the session held when it was given. It says nothing about data that came later.
type yes struct{ labels []flow.Label }

// covers reports whether one of them was given with these labels in sight.
func covers(given []yes, blocking []flow.Held) bool {
	return slices.ContainsFunc(given, func(y yes) bool {
		return !slices.ContainsFunc(blocking, func(h flow.Held) bool { return !slices.Contains(y.labels, h.Label) })
	})
}

// approve remembers the values that a person said yes to, and the records that they were shown to stand in: one source is asked about once.
func (e *Evidence) approve(s Seen) {
	y := yes{s.Approved.Labels}
	for _, v := range s.Approved.Values {
		f, ok := formOf(v.Text)
		if !ok || len(e.approved) >= maxApproved {
			continue
		}
		ats := []approvedAt{{s.Operation, v.Argument, f}, {s.Operation, v.Argument, form{formless, v.Text}}} // to the letter, for ids and secrets
		if f.kind == link {
			ats = append(ats, approvedAt{form: f})
		}
		for _, at := range ats {
			e.approved[at] = append(e.approved[at], y)
		}
	}
	for _, src := range s.Approved.Sources {
		for i := range e.records {
			if r := &e.records[i]; r.operation == src.Operation && r.callID == src.CallID && r.number == src.Record && len(e.sources) < maxApproved {
				at := sourceAt{s.Operation, src.Argument, i}
				e.sources[at] = append(e.sources[at], y)
			}
		}
	}
}

// Approve is what a person's yes to a call adds: the values of its critical arguments, also of those that vouch for themselves, and the records
// that the person was shown as covered. Shown are the findings they saw, held the labels of the session at that time.
func Approve(operation, callID string, p *Profile, args []byte, shown []Finding, held []flow.Held) Seen {
	s := Seen{Operation: operation, CallID: callID, Approved: &approved{}}
	for _, h := range held {
		s.Approved.Labels = append(s.Approved.Labels, h.Label)
	}
	if p == nil {
		p = &Profile{}
	}
	v, err := decode(args)
	if err != nil {
		return s
	}
	leaves(v, "", func(path string, value any) {
		text, ok := scalar(value)
		if !ok {
			return
		}
		keep := func(one string) bool {
			if len(one) <= maxValue && len(path) <= maxDisplayField && len(s.Approved.Values) < maxTraced {
				s.Approved.Values = append(s.Approved.Values, approvedValue{path, one})
			}
			return len(s.Approved.Values) < maxTraced
		}
		switch r := p.role(path); {
		case r.Core() || r.Soft():
			for _, one := range apart(r, text) {
				keep(one)
			}
		case r == Content:
			linksIn(text)(keep)
		}
	})
	for _, f := range shown {
		if f.Covers && !f.Vouched && len(s.Approved.Sources) < maxTraced {
			s.Approved.Sources = append(s.Approved.Sources, approvedSource{f.Argument, f.Operation, f.CallID, f.Record})
		}
	}
	return s
}

// Gave is what a call adds that writes while its session is untrusted: the texts that it gives away. What is read back later and was among
// them is no evidence, whatever the operation is that it is read with: else an agent that was talked into it could write down what it wants
// to be told. It is to be added before the call runs, whatever becomes of it. The ids of what it changes are no news; of a call without a
// profile everything is.
func Gave(operation, callID string, p *Profile, args []byte) Seen {
	s := Seen{Operation: operation, CallID: callID, Gave: &gave{}}
	v, err := decode(args)
	if err != nil || len(args) > maxGave {
		s.Gave.All = true
		return s
	}
	var b strings.Builder
	leaves(v, "", func(path string, value any) {
		if text, ok := scalar(value); ok && !(p.Told() && p.role(path) == Selector) {
			b.WriteString(gaveForm(text) + "\n")
			for token := range tokens(text) { // as it is compared: 1200.5 is read back as 1200.50
				if f, ok := formOf(token); ok {
					b.WriteString(gaveForm(f.value) + "\n")
				}
			}
		}
	})
	s.Gave.Text = b.String()
	return s
}

// gaveForm is a text with nothing but its letters and digits, so that no change of form hides it.
func gaveForm(s string) string {
	return strings.Map(func(r rune) rune {
		if !inWord(r) {
			return -1
		}
		return r
	}, fold(s))
}

// written is the first record that may only repeat the value, because the session had given it away by then: whole, or, of an address, a link
// or an account, in pieces.
func (e *Evidence) written(value string) int {
	whole, pieces := []string{gaveForm(value)}, []string(nil)
	if f, ok := formOf(value); ok {
		whole = append(whole, gaveForm(f.value))
		if f.kind == mail || f.kind == link || f.kind == account {
			pieces = strings.FieldsFunc(fold(f.value), func(r rune) bool { return !inWord(r) })
		}
	}
	for _, g := range e.gave { // in order
		has := func(s string) bool { return strings.Contains(g.Text, s) }
		pieces = slices.DeleteFunc(pieces, has)
		if g.All || slices.ContainsFunc(whole, has) || pieces != nil && len(pieces) == 0 {
			return g.record
		}
	}
	return len(e.records)
}
