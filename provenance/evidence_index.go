package provenance

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"sallyport.example/flow"
)

// Evidence is an index of what a session has read. It is not safe for use by several goroutines while one of them adds. Observations have to be
// added in the order in which they came, with none left out in between. Evidence that ends early only leads to more questions.
type Evidence struct {
	values   valueIndex
	ids      map[string][]occurrence // id -> where it occurred as the id of a record
	records  []evidenceRecord
	approved map[approvedAt][]consent
	sources  map[sourceAt][]consent
	given    given                      // what calls were given
	names    given                      // what writes were given that may have changed a record: it names none
	written  map[writtenKind]*selection // what writes changed
	making   map[string]*making         // ids of calls that may have changed something -> what they were given
	bearers  map[bearer]bearers
	hidden   map[string][]occurrence // hash of a value -> where it occurred
	hash     func(value string) string
	count    int // values
	spare    []occurrence
}

// one is a list of a single place: most values occur once, and these lists are made many at a time.
func (e *Evidence) one(sp occurrence) []occurrence {
	if len(e.spare) == 0 {
		e.spare = make([]occurrence, 64)
	}
	list := e.spare[:1:1]
	list[0], e.spare = sp, e.spare[1:]
	return list
}

// valueIndex tells where values occurred, by their forms: a map for each kind, because texts alone are found faster than texts with a kind.
type valueIndex [text + 1]map[string][]occurrence

func (x *valueIndex) of(f form) []occurrence { return x[f.kind][f.value] }

// occurrence is a place where a value occurred.
type occurrence struct {
	record int // index into records
	field  string
	class  class
	many   bool
	own    bool // only in ids: the field is called an id
}

// evidenceRecord is a record with the result that had it.
type evidenceRecord struct {
	operation, callID, idKind string
	bareKind                  string // bareName of idKind
	number                    int    // in its result, from 1
	named                     string
	only                      bool
	made                      bool // a call made it under a name of the request: its id counts as singled out
}

// singledOut reports whether the request singles out the record and, of several such values side by side, the value.
func (r *evidenceRecord) singledOut(sp occurrence) bool { return r.named != "" || r.only && !sp.many }

// trusted reports whether no outsider can have written the value. Only such a value makes its record the source of an approved one, or is confirmed
// by an approved source.
func (sp occurrence) trusted() bool { return sp.class.trusted() }

// valuesOf returns where a value occurred. Digits that are no amount are also found in their other form: in groups, or without.
func (e *Evidence) valuesOf(f form, r Role) []occurrence {
	if other, ok := f.regrouped(); ok && r != Amount && len(e.values.of(other)) > 0 {
		return slices.Concat(e.values.of(f), e.values.of(other))
	}
	if len(e.hidden) > 0 && e.hash != nil {
		return slices.Concat(e.values.of(f), e.hidden[e.hash(f.token())])
	}
	return e.values.of(f)
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
	field, bare := "", "" // of the one before: most have the same
	return slices.DeleteFunc(slices.Clone(all), func(sp occurrence) bool {
		if sp.own {
			return false
		}
		if sp.field != field {
			field, bare = sp.field, bareName(clipField(sp.field))
		}
		return !idNamed(bare, e.records[sp.record].bareKind, argument)
	})
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
func (e *Evidence) giveAway(operation, callID string, g *givenAway) {
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
	names := &given{full: true} // none
	if w := g.Wrote; w != nil {
		names = e.named(kindOn(operation, w.Kind), w)
	}
	for _, value := range g.Values {
		if e.given.has(value) && names.has(value) { // names of arguments, and much of what agents say, come with each call
			continue
		}
		read := readText(value)
		e.given.addRead(read, at, known)
		names.addRead(read, at, nil)
	}
	e.given.addHashes(g.Hashes, at)
	if w := g.Wrote; w != nil {
		names.addHashes(g.Hashes, at)
		e.wrote(operation, callID, w, g)
	}
}

// selection are the records that writes may have changed.
type selection struct {
	any   bool
	byID  bool // one of them was selected by an id
	ids   map[idForm]bool
	by    map[form]bool // values by which they may have been selected: a record may have one in any field
	names given         // what these writes were given
	made  given         // what writes were given that made a record
}

// making is what a call was given that may have changed something.
type making struct {
	at     int // records before it began
	kind   writtenKind
	makes  bool
	keeps  bool // it made or changed something
	values []string
}

// wrote adds what a call may have changed.
func (e *Evidence) wrote(operation, callID string, w *wrote, g *givenAway) {
	at, k := len(e.records), kindOn(operation, w.Kind)
	m := e.making[callID]
	if m == nil {
		m = &making{at: at, kind: k, makes: true}
		e.making[callID] = m
	}
	m.makes, m.keeps = m.makes && w.Makes && len(g.Hashes) == 0, m.keeps || w.Makes || w.Selects // answers to questions of the server are given, too
	if !e.given.full {                                                                           // then nothing that comes later confirms anything
		m.values = append(m.values, g.Values...)
	}
	if e.selection(k); w.Selects {
		e.changed(k, w, g)
	}
}

// named holds the names that a write takes away.
func (e *Evidence) named(k writtenKind, w *wrote) *given {
	switch sel := e.selection(k); {
	case w.Makes:
		return &sel.made
	case w.Selects && w.Reaches:
		return &sel.names
	case w.Selects:
		return &e.names
	}
	return &given{full: true} // none
}

// selection is what writes of a kind changed.
func (e *Evidence) selection(k writtenKind) *selection {
	if e.written[k] == nil {
		e.written[k] = &selection{ids: map[idForm]bool{}, by: map[form]bool{}, names: given{hash: e.hash}, made: given{hash: e.hash}}
	}
	return e.written[k]
}

// changed adds the records that a write may have changed.
func (e *Evidence) changed(k writtenKind, w *wrote, g *givenAway) {
	names, kinds := e.named(k, w), []writtenKind{k}
	if any := (writtenKind{k.server, ""}); w.Mixed && k != any {
		kinds = append(kinds, any)
	}
	for _, k := range kinds {
		sel := e.selection(k)
		sel.any = sel.any || w.Any || g.All || names.full
		for _, id := range w.IDs {
			sel.any, sel.byID = sel.any || !sel.addID(id) || e.mayBeMany(id), true
		}
		sel.byID = sel.byID || w.Mixed
		for _, value := range w.By {
			sel.any = sel.any || len(value) <= maxValue && !sel.addID(value) || !sel.addValue(value, true)
		}
		for _, id := range w.IDs {
			sel.any = sel.any || !sel.addValue(id, false)
		}
	}
}

// mayBeMany reports whether a value in the place of an id may stand for other records than the one with this id: the last one, all, a range. The session has
// read of no record with such an id.
func (e *Evidence) mayBeMany(id string) bool {
	id = strings.TrimSpace(id)
	return len(e.ids[id]) == 0 && (!hasDigit(id) || strings.ContainsAny(id, ",;*%?") || strings.Contains(id, "..") || span.MatchString(id))
}

var span = regexp.MustCompile(`^\s*[0-9]*\s*(?:-|:|to)\s*[0-9]*\s*$`)

// filterSigns stand before a value in a search: from:ann@books.example.
var filterSigns = strings.NewReplacer(":", " ", "=", " ")

// maxSelecting bounds the part of a value that may select records, in bytes: what is longer is a text.
const maxSelecting = 8 << 10

// addValue adds a value by which a record may have been selected, and the addresses, links and accounts in it. whole says that it may be a number in any field of
// the record. It reports whether the value can be compared.
func (s *selection) addValue(value string, whole bool) bool {
	all, ok := readings(clip(value, maxSelecting))
	for _, reading := range all {
		for part := range strings.SplitSeq(reading, decodedMark) {
			if f, ok := formOf(part); ok && (whole || !hasDigit(f.value) || pieced(f.kind)) {
				s.by[f] = true
			}
			for one := range segments(part) {
				if f, ok := formOf(one); ok && f.kind != number {
					s.by[f] = true
				}
			}
			for _, f := range tokens(filterSigns.Replace(part)) {
				if pieced(f.kind) {
					s.by[f] = true
				}
			}
		}
	}
	return ok
}

// has reports whether a record may be one of those that were selected.
func (s *selection) has(r *seenRecord, kind string) bool {
	if s.any {
		return true
	}
	if s.byID && r.id() == (form{}) {
		return true // nobody knows which record it is
	}
	return slices.ContainsFunc(r.Values, func(v seenValue) bool {
		if (v.ID || v.Code && isIDOrNumber(v.Field, kind)) && s.hasID(v.Text) {
			return true
		}
		if len(s.by) == 0 {
			return false
		}
		f, ok := v.form()
		return ok && s.by[f]
	})
}

// singleOut says whether the request singles out a record that was just read, as far as no write of this untrusted session may be the reason. What a
// write gave a record names nothing, and the record that it selected is not singled out. If a write may have removed others, a record is not the only
// one, and a name does not single it out that another one had. Of a record that a write gives back, the id alone counts, and only if the write made it. Where
// nobody told which fields are names, a name that any call was given may be a repetition.
func (e *Evidence) singleOut(r *evidenceRecord, seen *seenRecord) {
	k, m := kindOn(r.operation, r.idKind), e.making[r.callID]
	r.only = seen.Only && m == nil
	touched := false
	for written, sel := range e.written {
		if k.mayBe(written, true) {
			touched, r.only = true, false
		}
		if k.mayBe(written, false) && sel.has(seen, r.idKind) {
			r.only = false
			return
		}
	}
	if m != nil {
		switch gave := seen.changed(); {
		case m.makes && !e.knows(seen, k, len(e.records)) && !m.gave(gave.IDs):
			r.made = slices.ContainsFunc(seen.By, func(by namedBy) bool { return by.Made })
		case m.keeps && len(gave.IDs) > 0: // whatever its labels say, it gives back a record that was there before
			for _, value := range m.values {
				e.named(m.kind, gave).add(value, m.at, nil)
			}
			e.changed(m.kind, gave, &givenAway{})
		}
		return
	}
	if seen.By == nil && len(e.written) == 0 { // kept by an earlier version
		r.named = seen.Named
	}
	if len(seen.By) == 0 {
		return
	}
	id := seen.id()
	for _, by := range seen.By {
		if by.Made {
			r.made = true
			continue
		}
		other := e.bearers[bearer{k, by.Text}]
		if r.named == "" && !by.Many && (by.ID || e.namesFor(&by, seen, k) && !(touched && (other.many || other.id != (form{}) && other.id != id))) {
			r.named = by.Field
		}
		other.many = other.many || other.id != (form{}) && id != (form{}) && other.id != id
		e.bearers[bearer{k, by.Text}] = bearers{cmp.Or(id, other.id), other.many || by.Many}
	}
}

// changed is what a write changed that gives this record back.
func (r *seenRecord) changed() *wrote {
	w := &wrote{Selects: true, Reaches: true}
	for _, v := range r.Values {
		if v.ID {
			w.IDs = append(w.IDs, v.Text)
		}
	}
	return w
}

// gave reports whether the call was given one of these ids, in any spelling: then it chose the record, whatever its labels say.
func (m *making) gave(ids []string) bool {
	given := selection{ids: map[idForm]bool{}}
	for _, value := range m.values {
		given.addID(value)
	}
	return slices.ContainsFunc(ids, given.hasID)
}

// namesFor reports whether a name of a record may be its own, and not one that this session gave it.
func (e *Evidence) namesFor(by *namedBy, seen *seenRecord, k writtenKind) bool {
	if e.names.since(by.Text, 0) < never || !by.List && e.given.since(by.Text, 0) < never {
		return false
	}
	for written, sel := range e.written {
		if !k.mayBe(written, false) {
			continue
		}
		if at := sel.made.since(by.Text, 0); at < never && !e.knows(seen, k, at) || sel.names.since(by.Text, 0) < never {
			return false
		}
	}
	return true
}

// knows reports whether the session had read of a record, by an id that the system set, among its first records.
func (e *Evidence) knows(seen *seenRecord, k writtenKind, before int) bool {
	return slices.ContainsFunc(seen.Values, func(v seenValue) bool {
		return v.ID && slices.ContainsFunc(e.ids[v.Text], func(sp occurrence) bool {
			r := &e.records[sp.record]
			return sp.own && sp.trusted() && sp.record < before && k.mayBe(kindOn(r.operation, r.idKind), false)
		})
	})
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
			f, _ = v.form()
			return f
		}
	}
	return f
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

// size is how many values it has.
func (o *Observation) size() (n int) {
	for i := range o.Records {
		n += len(o.Records[i].Values)
	}
	return n
}

// sizeOf is how many values of a kind it has.
func (o *Observation) sizeOf(k kind) (n int) {
	for i := range o.Records {
		for j := range o.Records[i].Values {
			if o.Records[i].Values[j].kind == k {
				n++
			}
		}
	}
	return n
}

// Add adds what a result had, an approval, or what a call gave away.
func (e *Evidence) Add(s Observation) {
	if e.ids == nil {
		e.ids = map[string][]occurrence{}
		e.approved, e.sources = map[approvedAt][]consent{}, map[sourceAt][]consent{}
		e.hidden = map[string][]occurrence{}
		e.written = map[writtenKind]*selection{}
		e.making, e.bearers = map[string]*making{}, map[bearer]bearers{}
	}
	switch {
	case s.Approved != nil:
		e.approve(s)
		return
	case s.GivenAway != nil:
		e.giveAway(s.Operation, s.CallID, s.GivenAway)
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
		for j := range r.Values {
			v := &r.Values[j]
			if e.count >= maxEvidence {
				return
			}
			if v.Hash != "" {
				e.count++
				e.hidden[v.Hash] = append(e.hidden[v.Hash], occurrence{record: at, field: v.Field, class: v.Class, many: v.Many})
				continue
			}
			f, ok := v.form()
			if !ok {
				continue
			}
			e.count++
			sp := occurrence{record: at, field: v.Field, class: v.Class, many: v.Many}
			if e.values[f.kind] == nil {
				e.values[f.kind] = make(map[string][]occurrence, s.sizeOf(f.kind))
			}
			if all := e.values.of(f); len(all) == 0 {
				e.values[f.kind][f.value] = e.one(sp)
			} else if all[len(all)-1] != sp { // a list may repeat one value
				e.values[f.kind][f.value] = append(all, sp)
			}
			if v.ID || v.Code {
				if sp.own = v.ID; v.Code {
					sp.class = classSystem
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

// repeats tells whether a record may only repeat the value, as givenSince does.
func (e *Evidence) repeats(record int, value string) bool {
	return e.given.by(record, value, pieceLetters)
}

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
