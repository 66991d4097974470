package provenance

import (
	"cmp"
	"slices"
	"strings"

	"sallyport.example/flow"
)

// Evidence is an index of what a session has read. It is not safe for use by several goroutines while one of them adds. Observations have to be
// added in the order in which they came, with none left out in between. Evidence that ends early only leads to more questions.
type Evidence struct {
	values        map[form][]occurrence
	ids           map[string][]occurrence // id -> where it occurred as the id of a record
	records       []evidenceRecord
	approved      map[approvedAt][]consent
	sources       map[sourceAt][]consent
	givenAway     []givenAwayAt
	givenAwaySize int
	count         int // values
}

// occurrence is a place where a value occurred.
type occurrence struct {
	record int // index into records
	field  string
	class  class
	many   bool
	own    bool   // only in ids: the field is called an id
	bare   string // only in ids, for other fields: the field's bareName
}

// evidenceRecord is a record with the result that had it.
type evidenceRecord struct {
	operation, callID, idKind string
	bareKind                  string // bareName of idKind
	number                    int    // in its result, from 1
	named                     string
	only                      bool
}

// singledOut reports whether the request singles out the record and, of several such values side by side, the value.
func (r *evidenceRecord) singledOut(sp occurrence) bool { return r.named != "" || r.only && !sp.many }

// trusted reports whether no outsider can have written the value. Only such a value makes its record the source of an approved one, or is confirmed
// by an approved source.
func (sp occurrence) trusted() bool { return sp.class == classTrusted || sp.class == classSystem }

// valuesOf returns where a value occurred. Digits that are no amount are also found in their other form: in groups, or without.
func (e *Evidence) valuesOf(f form, r Role) []occurrence {
	if other, ok := f.regrouped(); ok && r != Amount && len(e.values[other]) > 0 {
		return slices.Concat(e.values[f], e.values[other])
	}
	return e.values[f]
}

// idsFor returns where an id occurred as the id of a record: in an id field, or in a field with the argument's name, such as number, or
// issue_number of an issue.
func (e *Evidence) idsFor(id, argument string) []occurrence {
	all := e.ids[id]
	if !slices.ContainsFunc(all, func(sp occurrence) bool { return !sp.own }) {
		return all
	}
	argument = argument[strings.LastIndexByte(argument, '.')+1:]
	if len(argument) > 2*maxDisplayField { // longer than any field's name with its kind
		argument = ""
	}
	argument = bareName(argument)
	return slices.DeleteFunc(slices.Clone(all), func(sp occurrence) bool { return !sp.own && !idNamed(sp.bare, e.records[sp.record].bareKind, argument) })
}

// givenAwayAt holds the texts that a call gave away, with the number of records that had been read by then.
type givenAwayAt struct {
	givenAway
	record int
}

// approvedAt is a value that a person approved as an argument of an operation. A link counts for any argument.
type approvedAt struct {
	operation, argument string
	form                form
}

// sourceAt is a record that a person approved as the source of an argument of an operation.
type sourceAt struct {
	operation, argument string
	record              int
}

// Add adds what a result had, an approval, or what a call gave away.
func (e *Evidence) Add(s Observation) {
	if e.values == nil {
		e.values, e.ids = map[form][]occurrence{}, map[string][]occurrence{}
		e.approved, e.sources = map[approvedAt][]consent{}, map[sourceAt][]consent{}
	}
	switch {
	case s.Approved != nil:
		e.approve(s)
		return
	case s.GivenAway != nil:
		e.givenAwaySize += len(s.GivenAway.Text)
		e.givenAway = append(e.givenAway, givenAwayAt{*s.GivenAway, len(e.records)})
		if e.givenAwaySize > maxGivenAway {
			e.givenAway = []givenAwayAt{{givenAway{All: true}, e.givenAway[0].record}}
		}
		return
	}
	kind := bareName(clipField(s.IDKind))
	for i, r := range s.Records {
		if len(r.Values) == 0 {
			continue
		}
		at := len(e.records)
		e.records = append(e.records, evidenceRecord{operation: s.Operation, callID: s.CallID, idKind: s.IDKind, bareKind: kind, number: i + 1, named: r.Named, only: r.Only})
		for _, v := range r.Values {
			if e.count >= maxEvidence {
				return
			}
			f, ok := formOf(v.Text)
			if !ok {
				continue
			}
			e.count++
			sp := occurrence{record: at, field: v.Field, class: v.Class, many: v.Many}
			if all := e.values[f]; len(all) == 0 || all[len(all)-1] != sp { // a list may repeat one value
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

// consent is an approval with the labels that the session held when it was given. It does not cover data that came later.
type consent struct{ labels []flow.Label }

// covers reports whether one of the approvals was given while the session held all these labels.
func covers(given []consent, blocking []flow.Held) bool {
	return slices.ContainsFunc(given, func(y consent) bool {
		return !slices.ContainsFunc(blocking, func(h flow.Held) bool { return !slices.Contains(y.labels, h.Label) })
	})
}

// approve adds the values that a person approved, and the records that the person was shown as their sources: one source is asked about once.
func (e *Evidence) approve(s Observation) {
	y := consent{s.Approved.Labels}
	for _, v := range s.Approved.Values {
		f, ok := formOf(v.Text)
		if !ok || len(e.approved) >= maxApproved {
			continue
		}
		ats := []approvedAt{{s.Operation, v.Argument, f}, {s.Operation, v.Argument, form{formless, v.Text}}} // ids and secrets have to be literally the same
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

// Approve is the observation that an approved call leaves: the values of its critical arguments, confirmed or not, and the records that the person
// was shown as covered. shown are the findings the person saw, held the labels of the session at that time.
func Approve(operation, callID string, p *Profile, args []byte, shown []Finding, held []flow.Held) Observation {
	s := Observation{Operation: operation, CallID: callID, Approved: &approved{}}
	for _, h := range held {
		s.Approved.Labels = append(s.Approved.Labels, h.Label)
	}
	p = cmp.Or(p, &Profile{})
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
		switch r := p.RoleOf(path); {
		case r.Core() || r.Soft():
			for _, one := range splitAddresses(r, text) {
				keep(one)
			}
		case r == Content:
			linksIn(text)(keep)
		}
	})
	for _, f := range shown {
		if f.Covers && !f.Confirmed && len(s.Approved.Sources) < maxTraced {
			s.Approved.Sources = append(s.Approved.Sources, approvedSource{f.Argument, f.Operation, f.CallID, f.Record})
		}
	}
	return s
}

// GivenAway is the observation that a call in an untrusted session leaves: the texts that it gives away. A later result that repeats one of them is no
// evidence, whatever operation reads it. Otherwise an agent under an outsider's influence could write a value down and have it confirmed by reading
// it back. The observation has to be added before the call runs, whatever its outcome. It leaves out the id of the record that the call changes,
// because that is not new; of a call without a profile it leaves out nothing.
func GivenAway(operation, callID string, p *Profile, args []byte) Observation {
	s := Observation{Operation: operation, CallID: callID, GivenAway: &givenAway{}}
	v, err := decode(args)
	if err != nil || len(args) > maxGivenAway {
		s.GivenAway.All = true
		return s
	}
	var b strings.Builder
	leaves(v, "", func(path string, value any) {
		if text, ok := scalar(value); ok && !(p.HasRoles() && p.RoleOf(path) == Selector) {
			b.WriteString(bareWord(text) + "\n")
			for token := range tokens(text) { // in the compared form: 1200.5 may come back as 1200.50
				if f, ok := formOf(token); ok {
					b.WriteString(bareWord(f.value) + "\n")
				}
			}
		}
	})
	s.GivenAway.Text = b.String()
	return s
}

// echoesFrom is the index of the first record that may only repeat the value, because the session had given it away by then: whole or, if it is an
// address, a link or an account, in pieces.
func (e *Evidence) echoesFrom(value string) int {
	whole, pieces := []string{bareWord(value)}, []string(nil)
	if f, ok := formOf(value); ok {
		whole = append(whole, bareWord(f.value))
		if f.kind == mail || f.kind == link || f.kind == account {
			pieces = strings.FieldsFunc(fold(f.value), func(r rune) bool { return !inWord(r) })
		}
	}
	for _, g := range e.givenAway { // in the order in which they came
		has := func(s string) bool { return strings.Contains(g.Text, s) }
		pieces = slices.DeleteFunc(pieces, has)
		if g.All || slices.ContainsFunc(whole, has) || pieces != nil && len(pieces) == 0 {
			return g.record
		}
	}
	return len(e.records)
}
