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
	values   map[form][]occurrence
	ids      map[string][]occurrence // id -> where it occurred as the id of a record
	records  []evidenceRecord
	approved map[approvedAt][]consent
	sources  map[sourceAt][]consent
	given    given                         // what calls were given
	names    given                         // what writes were given that may have changed a record: it names none
	written  map[writtenKind]map[form]bool // what writes changed -> the records that they selected; the zero form: any
	bearers  map[bearer]bearers
	hidden   map[string][]occurrence // hash of a value -> where it occurred
	hash     func(value string) string
	count    int // values
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
	if len(e.hidden) > 0 && e.hash != nil {
		return slices.Concat(e.values[f], e.hidden[e.hash(f.token())])
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

// writtenKind is a kind of records, on one server. "" is a kind that no label tells, and may be any.
type writtenKind struct{ server, kind string }

func kindOn(operation, kind string) writtenKind {
	server, _, _ := strings.Cut(operation, ".")
	return writtenKind{server, clipField(kind)}
}

// mayBe reports whether the records of both may be the same. Records of one kind may be, on any server, unless sameServer is set.
func (k writtenKind) mayBe(other writtenKind, sameServer bool) bool {
	if k.kind == "" || other.kind == "" || sameServer {
		return k.server == other.server && (k.kind == "" || other.kind == "" || k.kind == other.kind)
	}
	return k.kind == other.kind
}

// giveAway adds what a call gave away, and what it may have changed.
func (e *Evidence) giveAway(operation string, g *givenAway) {
	at := len(e.records)
	if g.All || g.Text != "" && g.Values == nil {
		e.given.fill(at)
	}
	known := &known{forms: map[form]bool{}, hosts: map[string]bool{}, read: e}
	for _, s := range g.Known {
		f, _ := formOf(s)
		known.forms[f] = true
	}
	for _, host := range g.Hosts {
		known.hosts[host] = true
	}
	for _, value := range g.Values {
		e.given.add(value, at, known)
	}
	e.given.addHashes(g.Hashes, at)
	w := g.Wrote
	if w == nil {
		return
	}
	k := kindOn(operation, w.Kind)
	if e.written[k] == nil {
		e.written[k] = map[form]bool{}
	}
	if !w.Selects {
		return
	}
	for _, value := range g.Values {
		e.names.add(value, at, nil)
	}
	e.names.addHashes(g.Hashes, at)
	if e.names.full || g.All || w.Any {
		e.written[k][form{}] = true
	}
	for _, id := range w.IDs {
		e.written[k][selected(id)] = true
	}
}

// singleOut says whether the request singles out a record that was just read, as far as no write of this untrusted session may be the reason. What a
// write gave a record names nothing, and the record that it selected is not singled out. If a write may have removed others, a record is not the only
// one, and a name does not single it out that another one had.
func (e *Evidence) singleOut(r *evidenceRecord, seen *seenRecord) {
	k := kindOn(r.operation, r.idKind)
	r.only = seen.Only
	touched := false
	for written, ids := range e.written {
		if k.mayBe(written, true) {
			touched, r.only = true, false
		}
		if k.mayBe(written, false) && (ids[form{}] || slices.ContainsFunc(seen.Values, func(v seenValue) bool { return v.idIn(ids, r.idKind) })) {
			r.only = false
			return
		}
	}
	if seen.By == nil && e.names.empty() { // kept by an earlier version
		r.named = seen.Named
	}
	if len(seen.By) == 0 {
		return
	}
	id := seen.id()
	for _, by := range seen.By {
		other := e.bearers[bearer{k, by.Text}]
		if r.named == "" && !by.Many && (by.ID || e.names.since(by.Text, 0) == never && !(touched && (other.many || other.id != (form{}) && other.id != id))) {
			r.named = by.Field
		}
		other.many = other.many || other.id != (form{}) && id != (form{}) && other.id != id
		e.bearers[bearer{k, by.Text}] = bearers{cmp.Or(id, other.id), other.many || by.Many}
	}
}

// bearer is a name that the request has and that records of a kind bear.
type bearer struct {
	of   writtenKind
	name string
}

// bearers are the records that bear a name: the id of the one that was read last, and whether there are several.
type bearers struct {
	id   form
	many bool
}

// id is the id of the record; zero if none is known.
func (r *seenRecord) id() (f form) {
	for _, v := range r.Values {
		if v.ID {
			f, _ = formOf(v.Text)
			return f
		}
	}
	return f
}

// selected is an id as a write gives it, or as a record has it: without a sign and zeros in front. It is the zero form, which stands for any record, if
// the id can't be compared.
func selected(id string) form {
	f, _ := formOf(strings.TrimLeft(strings.TrimSpace(id), "#0"))
	if f == (form{}) {
		f, _ = formOf(id)
	}
	return f
}

// idIn reports whether the value is the id or number of its record, and one of these.
func (v *seenValue) idIn(ids map[form]bool, kind string) bool {
	return len(ids) > 0 && (v.ID || v.Code && isIDOrNumber(v.Field, kind)) && ids[selected(v.Text)]
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
		e.hidden = map[string][]occurrence{}
		e.written, e.bearers = map[writtenKind]map[form]bool{}, map[bearer]bearers{}
	}
	switch {
	case s.Approved != nil:
		e.approve(s)
		return
	case s.GivenAway != nil:
		e.giveAway(s.Operation, s.GivenAway)
		return
	}
	kind := bareName(clipField(s.IDKind))
	for i, r := range s.Records {
		if len(r.Values) == 0 {
			continue
		}
		at := len(e.records)
		e.records = append(e.records, evidenceRecord{operation: s.Operation, callID: s.CallID, idKind: s.IDKind, bareKind: kind, number: i + 1})
		e.singleOut(&e.records[at], &s.Records[i])
		for _, v := range r.Values {
			if e.count >= maxEvidence {
				return
			}
			if v.Hash != "" {
				e.count++
				e.hidden[v.Hash] = append(e.hidden[v.Hash], occurrence{record: at, field: v.Field, class: v.Class, many: v.Many})
				continue
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

// givenSince is the index of the first record that may only repeat the value, because a call had been given it by then.
func (e *Evidence) givenSince(value string) int { return e.given.since(value, pieceLetters) }

// idGivenSince is the same for an id. What the system set as the id of a record of the kind before any call was given it is not the session's own.
func (e *Evidence) idGivenSince(id, operation, kind string) int {
	at := e.given.sinceID(id)
	if at < never && slices.ContainsFunc(e.ids[id], func(sp occurrence) bool {
		return sp.record < at && sp.own && sp.trusted() && sameKind(operation, kind, &e.records[sp.record])
	}) {
		return never
	}
	return at
}
