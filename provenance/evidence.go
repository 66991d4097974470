package provenance

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"iter"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"sallyport.example/flow"
)

// Bounds of the evidence of one session. Values beyond them are not kept, so they confirm nothing.
const (
	maxRecords      = 1000    // of one result
	maxSeenValues   = 4000    // of one result
	maxEvidence     = 40_000  // values of one session
	maxApproved     = 1000    // approvals of one session
	maxDepth        = 32      // of a result's JSON
	maxParsed       = 8 << 20 // bytes of one result that are read
	maxSegments     = 500     // of one trusted text
	largeResult     = 500     // values: of a larger result, untrusted text is kept only in labelled fields; links, addresses and numbers are always kept
	maxQueryValues  = 64
	maxNames        = 200 // of one result that the request has: with more, no record is singled out
	maxPayloads     = 1000
	maxDisplayField = 64
	maxNamedBy      = 8 // values by which one record is named
)

// class says how far a value of a record can be trusted. Where it is kept it is one letter; 0, which is none, confirms nothing.
type class byte

const (
	classTrusted   class = 't' // a value of a trusted result
	classSystem    class = 's' // a trusted field
	classDelegable class = 'd' // a delegable field
	classFree      class = 'f' // any other field: it confirms nothing, but tells where a value occurred
)

// trusted reports whether no outsider can have written such a value.
func (c class) trusted() bool { return c == classTrusted || c == classSystem }

func (c class) String() string {
	if c == 0 {
		return ""
	}
	return string(rune(c))
}

// MarshalText writes its letter.
func (c class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads its letter.
func (c *class) UnmarshalText(b []byte) error {
	switch {
	case len(b) == 0:
		*c = 0
	case len(b) == 1 && b[0] < utf8.RuneSelf:
		*c = class(b[0])
	default:
		return errForm
	}
	return nil
}

// Observation is the part of a result that is kept: enough to find its values again, and to say where they occurred. It may also hold an approval, or what
// a call gave away. MarshalBinary encodes it.
type Observation struct {
	Operation string       `json:"operation"`
	CallID    string       `json:"call_id"`
	IDKind    string       `json:"id_kind,omitempty"`
	Trusted   bool         `json:"trusted,omitempty"` // the whole result is trusted: its operation is, and it matches the shape
	Cut       bool         `json:"cut,omitempty"`     // the result had more than is kept
	Records   []seenRecord `json:"records,omitempty"`
	Approved  *approved    `json:"approved,omitempty"`
	GivenAway *givenAway   `json:"gave,omitempty"`
}

// seenRecord is one record of a result.
type seenRecord struct {
	Named  string      `json:"named,omitempty"` // the naming field whose value the request has
	By     []namedBy   `json:"by,omitempty"`    // all of these fields, with their values, in order; Named is the first
	Only   bool        `json:"only,omitempty"`  // the only record, and the request has the whole query, or there was none
	Values []seenValue `json:"values"`
}

// namedBy is a value by which the request names a record.
type namedBy struct {
	Field string `json:"field"`          // "id" for an id or number, whatever the field is called
	Text  string `json:"text"`           // as it is compared
	ID    bool   `json:"id,omitempty"`   // it is an id or number
	Many  bool   `json:"many,omitempty"` // it singles none out: another record of the result has it, or a name that it is part of
	List  bool   `json:"list,omitempty"` // the profile lists the field as a name
	Made  bool   `json:"made,omitempty"` // the call made the record under this name: its id counts as that of the named record, and nothing else of it does
}

type seenValue struct {
	Field string `json:"field"`
	Text  string `json:"text"`
	Hash  string `json:"hash,omitempty"` // in place of the text, where a secret stands in it
	Class class  `json:"class"`
	ID    bool   `json:"id,omitempty"`   // the field is called an id
	Code  bool   `json:"code,omitempty"` // another trusted field: an id for arguments of the same name
	Many  bool   `json:"many,omitempty"` // one of several side by side in a text, or one of the names in a table

	kind kind // of the text's form; formless where nobody has looked
	same bool // the form's value is the text as it stands
}

// form is the form of its text.
func (v *seenValue) form() (f form, ok bool) {
	switch {
	case v.kind != formless && v.same:
		return form{v.kind, v.Text}, true
	case v.kind == text:
		return form{text, fold(v.Text)}, true
	}
	return formOf(v.Text)
}

// approved holds the arguments of a call that a person approved.
type approved struct {
	Values  []approvedValue  `json:"values"`
	Sources []approvedSource `json:"sources,omitempty"`
	Labels  []flow.Label     `json:"labels,omitempty"` // that the session held
}

// approvedSource is a record that an approval covers, as the person was shown.
type approvedSource struct {
	Argument  string `json:"argument"`
	Operation string `json:"operation"`
	CallID    string `json:"call_id"`
	Record    int    `json:"record"`
}

type approvedValue struct {
	Argument string `json:"argument"`
	Text     string `json:"text"`
}

// Result is the result of a call.
type Result struct {
	Operation string
	CallID    string
	Arguments []byte  // of the call: a canonical JSON object
	Values    []Value // its JSON values, or its texts where it has no structure
	Writes    bool    // the call may have changed something
}

// Observe takes the values out of a result, by the profile of the operation and the person's request. It never fails: a result that can't be read
// has no values.
func Observe(p *Profile, request *Request, r Result) Observation {
	p = cmp.Or(p, &Profile{})
	o := observer{p: p, request: request, answers: map[question]bool{}, arguments: map[form]bool{}, names: map[string]form{}, seen: Observation{Operation: r.Operation, CallID: r.CallID, IDKind: p.IDKind}}
	size := 0
	var values []any
	for i, v := range r.Values {
		if size += v.size; size > maxParsed || i == maxPayloads {
			o.seen.Cut = true
			break
		}
		if !v.known {
			o.seen.Cut = true
			continue
		}
		values = append(values, v.value)
	}
	o.trusted = (p.Output == TrustedOutput || p.Output == TypedOutput && p.Shape != nil) && !o.seen.Cut
	if o.trusted && p.Shape != nil {
		o.trusted = !slices.ContainsFunc(values, func(v any) bool { return !matchesShape(p, v) })
	}
	o.seen.Trusted = o.trusted
	args, err := decode(r.Arguments)
	o.args, o.writes = args, r.Writes
	if err == nil {
		leaves(args, "", func(_ string, value any) {
			if s, ok := scalar(value); ok && len(o.arguments) < maxQueryValues {
				if f, ok := formOf(s); ok {
					o.arguments[f] = true
				}
			}
		})
	}
	o.room = rooms.Get().(*room)
	defer o.room.release()
	var records []record
	for _, v := range values {
		records = o.split(records, v, true)
	}
	if len(records) > maxRecords {
		records, o.seen.Cut = records[:maxRecords], true
	}
	for _, r := range records {
		o.total += len(r.fields) + r.keys
	}
	o.large = o.total > largeResult
	named, only := make([][]namedBy, len(records)), false
	if !o.elsewhere(r.Arguments) {
		only = len(records) == 1 && err == nil && o.queryRequested(args)
		named = o.named(records)
		o.namedByCreation(named, records, args)
	}
	o.seen.Records = make([]seenRecord, len(records))
	for i := range records {
		o.seen.Records[i] = seenRecord{By: named[i], Only: only}
		if len(named[i]) > 0 && !named[i][0].Many && !named[i][0].Made {
			o.seen.Records[i].Named = named[i][0].Field
		}
	}
	// Values that can confirm come first, so that the others can't crowd them out.
	for _, free := range []bool{false, true} {
		if free && o.trusted {
			break // no field of it is
		}
		for i, rec := range records {
			o.record(&o.seen.Records[i], rec, free)
		}
	}
	return o.seen
}

// elsewhere reports whether the call was about a repository that the request does not name: ids are counted anew in each, so none of its records is one
// that the request means.
func (o *observer) elsewhere(arguments []byte) bool {
	if !o.p.hasRole(Repository) {
		return false
	}
	t, _, ok := newTracer(flow.Operation{}, o.p, arguments, &Situation{Request: o.request, Evidence: &Evidence{}})
	return !ok || slices.ContainsFunc(t.values, func(v traced) bool { return v.role == Repository && !t.confirm(v).Confirmed })
}

// named finds for each record the naming fields, or the trusted id, by which the request names it, and which of them single it out. A name has to belong to one record alone:
// two records of one name are not singled out, nor is a record whose name is part of the name of another one in the request. A short name (without
// the ending of a file, say) counts only if no record of the result has it as its full name. A field that the profile does not list as a name, and
// that only repeats what the call was given, names nothing.
func (o *observer) named(records []record) [][]namedBy {
	named := make([][]namedBy, len(records))
	if o.request == nil || o.request.text == "" { // it names none
		return named
	}
	type hit struct {
		id    bool   // the record's id or number, whatever the field is called
		field string // the name of any other field
		list  bool   // the profile lists it as a name
		form  form
	}
	hits, loose := map[hit][]int{}, map[hit][]int{}
	for i, rec := range records {
		hasID := slices.ContainsFunc(rec.fields, func(f field) bool { return !f.key && f.of.id })
		for j := range rec.fields {
			f := &rec.fields[j]
			if f.key {
				continue
			}
			add := func(in map[hit][]int, h hit, fm form, ok bool) {
				if h.form = fm; ok && !slices.Contains(in[h], i) {
					in[h] = append(in[h], i)
				}
			}
			if f.of.class.trusted() && f.of.idOrNumber && !(hasID && f.of.number) && o.cached(question{value: f.text, id: true}, func() bool { return o.request.givesID(f.text, o.p.IDKind) }) {
				fm, ok := o.form(f)
				add(hits, hit{id: true}, fm, ok)
				continue
			}
			if !f.of.listed && !(o.trusted && o.p.Names == nil) { // it names none
				continue
			}
			if fm, ok := o.form(f); ok && o.request.hasName(fm) && o.requestNames(f.text, f.of.author) {
				if !o.echoes(f.text) {
					add(hits, hit{field: f.of.name, list: f.of.listed}, fm, ok)
				}
				continue
			}
			for _, name := range shortNames(f.text) {
				if o.requestNames(name, f.of.author) && !o.echoes(name) {
					fm, ok := formOf(name)
					add(loose, hit{field: f.of.name, list: f.of.listed}, fm, ok)
				}
			}
		}
	}
	full := map[form]bool{}
	for h := range hits {
		full[h.form] = true
	}
	for h, in := range loose {
		if !full[h.form] {
			hits[h] = in
		}
	}
	for h, in := range hits {
		less := !h.id && len(hits) <= maxNames && slices.ContainsFunc(slices.Collect(maps.Keys(hits)), func(other hit) bool {
			part, of := h.form.value, other.form.value
			if other.id { // a record whose name holds an id of another one is not the one that the request means
				part, of = of, part
			}
			return (other.id || len(of) > len(part)) && strings.Contains(of, part) && !slices.Equal(hits[other], in)
		})
		name := clipField(h.field)
		if h.id {
			name = "id"
		}
		for _, i := range in {
			named[i] = append(named[i], namedBy{Field: name, Text: h.form.value, ID: h.id, List: h.list, Many: len(in) > 1 || less || len(hits) > maxNames})
		}
	}
	for i, by := range named { // the same for every order of the map, and what names the record first
		slices.SortFunc(by, func(a, b namedBy) int {
			switch {
			case a.Many == b.Many:
				return cmp.Or(strings.Compare(a.Field, b.Field), strings.Compare(a.Text, b.Text))
			case a.Many:
				return 1
			}
			return -1
		})
		named[i] = by[:min(len(by), maxNamedBy)]
	}
	return named
}

// echoes reports whether a field with this value may only repeat what the call was given. A field that the profile lists as a name does not.
func (o *observer) echoes(value string) bool {
	return o.p.Names == nil && o.asked().since(value, 0) < never
}

// asked is what the call was given.
func (o *observer) asked() *given {
	if o.given == nil {
		o.given = &given{}
		givenTexts(o.p, o.args, "", func(text string) { o.given.add(text, 0, nil) })
	}
	return o.given
}

// namedByCreation names the record that a call made by the name that the call gave it, if the request has that name. A call that puts anything into the
// record that says who it is for, and that the request doesn't have, names none, and nor does one with a second name that the request doesn't have: a contact
// of the request's name with a stranger's address is not the one that the person means.
func (o *observer) namedByCreation(named [][]namedBy, records []record, args any) {
	if !o.writes || len(records) != 1 || !o.p.makes(args) {
		return
	}
	var names []namedBy
	stranger := false
	leaves(args, "", func(path string, value any) {
		s, ok := scalar(value)
		f, has := formOf(s)
		r := o.p.RoleOf(path)
		known := ok && has && o.request.has(f)
		if strings.TrimSpace(s) != "" && !known && (r.Core() && r != Amount || r == Name) {
			stranger = true
		}
		if r == Name && known && (countDistinctive(f.value) > 0 || o.request.setApart(strings.TrimSpace(s))) {
			names = append(names, namedBy{Field: clipField(path), Text: f.value, Made: true})
		}
	})
	givenTexts(&Profile{}, args, "", func(s string) { stranger = stranger || o.reachesStranger(s) }) // whatever its role
	if !stranger && len(named[0])+len(names) <= maxNamedBy {
		named[0] = append(named[0], names...)
	}
}

// reachesStranger reports whether a text is an address, a link or an account that the request doesn't have, or has such an address or account in it.
func (o *observer) reachesStranger(s string) bool {
	all, ok := readings(s)
	for _, reading := range all {
		reading = strings.ReplaceAll(reading, decodedMark, " ")
		if f, ok := formOf(reading); ok && pieced(f.kind) && !o.request.has(f) {
			return true
		}
		for _, f := range tokens(reading) {
			if (f.kind == mail || f.kind == account) && !o.request.has(f) {
				return true
			}
		}
	}
	return !ok
}

// class is the class of the values in a field.
func (o *observer) class(name string) class {
	switch {
	case o.trusted:
		return classTrusted
	case listedIn(name, o.p.TrustedFields):
		return classSystem
	case listedIn(name, o.p.Delegable):
		return classDelegable
	}
	return classFree
}

// place is what the profile says of the fields with one path.
type place struct {
	name       string
	class      class
	author     author // who may have written a naming field
	listed     bool   // as a name
	id         bool   // it holds the id of its record
	idOrNumber bool
	number     bool
	code       bool // an id for arguments of the same name, where it holds one
}

// place looks up what the profile says of a field, once for each path.
func (o *observer) place(name string) *place {
	p := o.places[name]
	if p == nil {
		p = &place{
			name: name, class: o.class(name), listed: listedIn(name, o.p.Names), author: byOutsider,
			id: idField(name, o.p.IDKind), idOrNumber: isIDOrNumber(name, o.p.IDKind), number: bareName(name) == "number",
		}
		switch {
		case p.class.trusted():
			p.author = bySystem
		case p.class == classDelegable:
			p.author = inAddressField
		}
		p.code = o.p.IDKind != "" && p.class.trusted() && name != "" && !strings.Contains(name, ".")
		if o.places == nil {
			o.places = map[string]*place{}
		}
		o.places[name] = p
	}
	return p
}

// usual is the place of a member of a record, which is that of the member with the same number of the record before in most lists.
func (o *observer) usual(i int, name string) *place {
	if i < len(o.row) && o.row[i].name == name {
		return o.row[i]
	}
	p := o.place(joinPath("", name))
	if i < len(o.row) {
		o.row[i] = p
	} else if i == len(o.row) && i < maxLikely {
		o.row = append(o.row, p)
	}
	return p
}

// kind is the kind of a field's form, looked for once: most texts that an outsider may have written are not kept, so nobody folds them. The names of
// members are the same in most records.
func (o *observer) kind(f *field) kind {
	if f.read {
		return f.form.kind
	}
	f.read = true
	if f.key {
		if known, ok := o.names[f.text]; ok {
			f.form, f.folded = known, true
			return known.kind
		}
	}
	if f.form, f.folded = unfoldedForm(f.text); f.key && len(f.text) <= maxValue {
		o.form(f)
		o.names[f.text] = f.form
	}
	return f.form.kind
}

// form is the form of a field's text.
func (o *observer) form(f *field) (fm form, ok bool) {
	kind := o.kind(f)
	if !f.folded {
		f.form.value, f.folded = fold(f.form.value), true
	}
	return f.form, kind != formless
}

// maxQuestions bounds how many values of one result are compared with the request.
const maxQuestions = 2000

// requestNames reports whether the request names a record by the value.
func (o *observer) requestNames(value string, by author) bool {
	return o.cached(question{value: value, by: by}, func() bool { return o.request.namesRecord(value, by) })
}

// cached looks up once what the request says of a value.
func (o *observer) cached(q question, look func() bool) bool {
	known, ok := o.answers[q]
	if !ok && len(o.answers) < maxQuestions {
		known = look()
		o.answers[q] = known
	}
	return known
}

// question is one about the request: whether it names a record by the value or, with id, gives the value as an id.
type question struct {
	value string
	by    author
	id    bool
}

type observer struct {
	args      any    // the arguments of the call
	given     *given // the same, once it is needed
	writes    bool   // the call may have changed something
	answers   map[question]bool
	arguments map[form]bool // the values of the call's arguments: a result that repeats one is no evidence for it
	p         *Profile
	request   *Request
	trusted   bool
	total     int  // fields of all records
	large     bool // they are many
	seen      Observation
	kept      []seenValue // memory for the values of the records to come, behind those of the ones before
	values    int
	places    map[string]*place // by their paths
	row       []*place          // of the members of the record before, by their numbers
	room      *room
	names     map[string]form // of members -> their forms
	keys      map[string]int  // how many members there are below each path of a record
}

// queryRequested reports whether the request has everything that the call searched for. A call without a search term returns all there is.
func (o *observer) queryRequested(args any) bool {
	counted, in := 0, 0
	leaves(args, "", func(path string, value any) {
		s, ok := scalar(value)
		if ok && s == "" {
			return
		}
		if o.p.HasRoles() && o.p.RoleOf(path) == Flag {
			if !ok || !keepsAll(path, s) {
				counted++
			}
			return
		}
		if counted++; counted > maxQueryValues || !ok || strings.Contains(path, ".") { // a flag and a nested value narrow the result as a search term does
			return
		}
		by := bySystem
		if !o.trusted {
			by = byOutsider
		}
		if f, ok := formOf(s); ok && (o.request.namesRecord(s, by) || f.kind != text && f.kind != number && o.request.has(f) || o.request.hasTime(s)) {
			in++
		}
	})
	return counted == in && (counted > 0 || o.trusted)
}

// limitNames are the names, as bareName has them, of arguments that limit the number of results.
var limitNames = set("limit maxresults maxitems maxcount maxrows count top perpage pagesize")

// keepsAll reports whether the value of a flag leaves a result complete: it does if it is a limit of two or more. An offset, a filter and a limit
// of one narrow the result as a search term does.
func keepsAll(path, value string) bool {
	n, err := strconv.Atoi(value)
	return err == nil && n > 1 && limitNames[bareName(path[strings.LastIndexByte(path, '.')+1:])]
}

// record keeps either the values of a record that outsiders may have written (free), or the others.
func (o *observer) record(out *seenRecord, rec record, free bool) {
	clear(o.keys)
	if !free {
		for i := range rec.fields {
			if f := &rec.fields[i]; f.key && f.of.class != classFree {
				if o.keys == nil {
					o.keys = map[string]int{}
				}
				o.keys[f.of.name]++
			}
		}
	}
	first := len(out.Values) == 0 // then its values stand behind those of the record before
	if first {
		if cap(o.kept)-len(o.kept) < minKept {
			o.kept = make([]seenValue, 0, min(maxKept, minKept+2*o.total))
		}
		out.Values = o.kept[len(o.kept):]
	} else if o.values < maxSeenValues {
		out.Values = slices.Grow(out.Values, min(len(rec.fields)/2+1, maxSeenValues))
	}
	for i := range rec.fields {
		if f := &rec.fields[i]; (f.of.class == classFree) == free {
			o.value(out, f, f.key && o.keys[f.of.name] > 1)
		}
	}
	if first && len(out.Values) <= cap(o.kept)-len(o.kept) {
		o.kept = o.kept[:len(o.kept)+len(out.Values)]
		out.Values = slices.Clip(out.Values)
	}
}

// The values of several records stand in one piece of memory.
const (
	minKept = 32  // values that it has room for when another record begins
	maxKept = 512 // values in all
)

// value keeps a value, and its parts if it is a text of several.
func (o *observer) value(out *seenRecord, f *field, many bool) {
	c := f.of.class
	kind := o.kind(f)
	if kind != formless && (c != classFree || !o.large || kind != text || f.of.listed) {
		whole, _ := o.form(f)
		o.keep(out, f, strings.TrimSpace(f.text), whole, f.of.id, many)
	}
	switch {
	case kind != formless && kind != text:
	case c == classTrusted && hasParts(f.text):
		o.segments(out, f, many)
	case c == classFree && nextMark(f.text, 0) < len(f.text):
		o.tokens(out, f)
	}
}

// segments keeps the parts of a trusted text.
func (o *observer) segments(out *seenRecord, f *field, many bool) {
	all, n := strings.TrimSpace(f.text), 0
	for part, alone := range segments(f.text) {
		if n++; n > maxSegments {
			o.seen.Cut = true
			return
		}
		if part == all {
			continue
		}
		if fm, ok := formOf(part); ok {
			o.keep(out, f, part, fm, false, many || !alone)
		}
	}
}

// tokens keeps the addresses, links, numbers and accounts in a text that an outsider may have written.
func (o *observer) tokens(out *seenRecord, f *field) {
	n := 0
	for token, fm := range tokens(f.text) {
		if n++; n > maxSegments {
			o.seen.Cut = true
			return
		}
		o.keep(out, f, token, fm, false, true)
	}
}

// keep keeps one value of a field.
func (o *observer) keep(out *seenRecord, f *field, text string, fm form, id, many bool) {
	c := f.of.class
	code := !id && !many && !f.key && f.of.code && !strings.ContainsFunc(text, unicode.IsSpace)
	if !id && len(o.arguments) > 0 {
		if other, _ := fm.regrouped(); o.arguments[fm] || o.arguments[other] {
			c, code = classFree, code && f.of.idOrNumber
		}
	}
	if o.values++; o.values > maxSeenValues {
		o.seen.Cut = true
		return
	}
	out.Values = append(out.Values, seenValue{Field: clipField(f.of.name), Text: text, Class: c, ID: id, Code: code, Many: many, kind: fm.kind, same: fm.value == text})
}

// hasParts reports whether segments may yield more than the text as a whole.
func hasParts(s string) bool {
	for i := range len(s) {
		switch s[i] {
		case '\n', '\r', '\t', '|', ';':
			return true
		case ':', ',':
			if i+1 < len(s) && s[i+1] == ' ' {
				return true
			}
		}
	}
	return false
}

// segments yields the parts of a text: its lines, the items between commas, and what follows a colon. alone says that the part has no other beside
// it.
func segments(s string) func(yield func(part string, alone bool) bool) {
	return func(yield func(string, bool) bool) {
		one := [...]string{s}
		lines := one[:]
		if strings.ContainsAny(s, "\n\r\t|;") {
			lines = strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' || r == '\t' || r == '|' || r == ';' })
		}
		for _, line := range lines {
			line = strings.TrimSpace(line)
			if line != "" && !yield(line, len(lines) == 1) {
				return
			}
			if head, tail, ok := strings.Cut(line, ": "); ok {
				tail = strings.TrimSpace(tail)
				if head = strings.TrimSpace(head); head != "" && !yield(head, false) || tail != "" && !yield(tail, len(lines) == 1 && !strings.Contains(tail, ", ")) {
					return
				}
				line = tail
			}
			if strings.Contains(line, ", ") {
				for part := range strings.SplitSeq(line, ", ") {
					if part = strings.Trim(part, " .'\"[]"); part != "" && !yield(part, false) {
						return
					}
				}
			}
		}
	}
}

// tokens yields the words of a text that are an address, a link, a number or an account, with their forms.
func tokens(s string) iter.Seq2[string, form] {
	return func(yield func(string, form) bool) {
		for end := 0; ; {
			mark := nextMark(s, end) // most words have no byte that none of these is without
			if mark == len(s) {
				return
			}
			begin := end
			if i := strings.LastIndexFunc(s[end:mark], betweenTokens); i >= 0 {
				_, size := utf8.DecodeRuneInString(s[end+i:])
				begin = end + i + size
			}
			for end = mark; end < len(s); {
				if c := s[end]; c < utf8.RuneSelf {
					if tokenBytes[c] == separatorByte {
						break
					}
					end++
					continue
				}
				r, size := utf8.DecodeRuneInString(s[end:])
				if betweenTokens(r) {
					break
				}
				end += size
			}
			token := bareToken(s[begin:end])
			if f, ok := tokenForm(token); ok && len(token) <= maxValue && !yield(token, f) {
				return
			}
		}
	}
}

// nextMark returns the index of the first markByte at or after i, or the length of s.
func nextMark(s string, i int) int {
	for ; i < len(s); i++ {
		for ; i+8 <= len(s); i += 8 { // eight bytes at a time: all of these bytes stand between '.' and '@' in ASCII
			w := binary.LittleEndian.Uint64([]byte(s[i : i+8]))
			// 0x80 in from and over where the lower seven bits of a byte are at least '.', and over '@'.
			low := w &^ highBits
			from, over := low+(0x80-'.')*eachByte, low+(0x7f-'@')*eachByte
			if in := from &^ over &^ w & highBits; in != 0 {
				i += bits.TrailingZeros64(in) / 8
				break
			}
		}
		if i < len(s) && s[i] < utf8.RuneSelf && tokenBytes[s[i]] == markByte {
			return i
		}
	}
	return len(s)
}

// A byte of 1, and the high bit, in each of eight bytes.
const (
	eachByte = 0x0101010101010101
	highBits = 0x80 * eachByte
)

// Kinds of bytes, for tokens.
const (
	wordByte = iota
	separatorByte
	markByte // no plainWord has it
)

var tokenBytes = func() (kinds [utf8.RuneSelf]byte) {
	for c := range kinds {
		switch {
		case betweenTokens(rune(c)):
			kinds[c] = separatorByte
		case !plainWord(string(rune(c))):
			kinds[c] = markByte
		}
	}
	return kinds
}()

// betweenTokens reports whether a character stands between tokens.
func betweenTokens(r rune) bool {
	switch r {
	case '"', '“', '”', '„', '«', '»', '<', '>', '(', ')', '[', ']', '{', '}', ',', ';', '|':
		return true
	}
	return unicode.IsSpace(r)
}

// aroundTokens are the marks that may stand around a token and are not part of it.
const aroundTokens = ".:!?'’*_`"

// bareToken is a token without the marks that stand around it.
func bareToken(s string) string {
	if s != "" && isAlnum(s[0]) && isAlnum(s[len(s)-1]) { // as most are
		return s
	}
	return strings.Trim(s, aroundTokens)
}

func isAlnum(c byte) bool { return c-'0' <= 9 || c|0x20-'a' <= 'z'-'a' }

var separators = strings.NewReplacer("_", "", "-", "")

// idField reports whether the field at a path holds the id of its record. A field called id that lies deeper is the id of something else.
func idField(name, kind string) bool {
	if strings.Contains(name, ".") {
		return false
	}
	name = strings.ToLower(strings.Trim(name, "_"))
	if idFields[name] || kind == "" {
		return idFields[name]
	}
	bare := separators.Replace(name)
	kind = separators.Replace(strings.ToLower(kind))
	return bare == kind+"id" || bare == kind+"uuid" || bare == kind+"key"
}

var idFields = set("id uuid guid key uid")

// isIDOrNumber reports whether the field holds the id or the number of its record: people refer to records by both.
func isIDOrNumber(name, kind string) bool {
	bare := bareName(name)
	return idField(name, kind) || bare == "number" || bare == bareName(kind)+"number"
}

// bareName is a name in lower case, without the characters that join its words.
func bareName(s string) string { return strings.ToLower(separators.Replace(s)) }

// idNamed reports whether a field has the name of an argument that takes the id of a record of this kind, such as number, or issue_number of an
// issue.
func idNamed(field, kind, argument string) bool {
	if field == "" || argument == "" {
		return false
	}
	one := strings.TrimSuffix(argument, "s")
	return argument == field || one == field || strings.TrimPrefix(argument, kind) == field || strings.TrimPrefix(one, kind) == field || strings.TrimPrefix(field, kind) == argument
}

func clipField(name string) string { return clip(name, maxDisplayField) }

func clip(s string, most int) string {
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}

// field is one scalar of a record. If an object serves as a table, its member names are fields too: then key is set.
type field struct {
	of   *place
	text string
	key  bool

	read, folded bool // its form was looked for, and is not of a text that is yet to be folded
	form         form
}

// listedIn reports whether the list has a path or the beginning of it.
func listedIn(path string, listed []string) bool {
	return path != "" && slices.ContainsFunc(listed, func(name string) bool { return within(path, name) })
}

// room is memory for the fields of records, which is used again.
type room struct {
	fields []field
	used   int
}

// roomFields is how many fields it has room for: those of a result of 64 KiB. What is beyond them has memory of its own.
const roomFields = 4096

var rooms = sync.Pool{New: func() any { return &room{fields: make([]field, roomFields)} }}

// of is an empty list with room for n fields.
func (r *room) of(n int) []field {
	if r == nil || n > len(r.fields)-r.used {
		return make([]field, 0, n)
	}
	r.used += n
	return r.fields[r.used-n : r.used-n : r.used]
}

// release gives it back with nothing in it.
func (r *room) release() {
	clear(r.fields[:r.used])
	r.used = 0
	rooms.Put(r)
}

type record struct {
	fields []field
	keys   int // names of members that are no fields, since nothing of them is kept
}

// split adds the records of a value. An object is a record, and so is each element of a list. An object that only wraps lists of objects is not
// one: the elements are records, and the rest of the object is another. An object that has a field with a label is one record with everything
// inside it, because an outsider who fills a record's list must not create records.
func (o *observer) split(records []record, v any, outer bool) []record {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if len(records) > maxRecords { // the rest is not kept
				break
			}
			records = o.split(records, e, false)
		}
		return records
	case object:
		outer = outer && !slices.ContainsFunc(v, func(m member) bool {
			return listedIn(m.name, o.p.TrustedFields) || listedIn(m.name, o.p.Names) || listedIn(m.name, o.p.Delegable) || idField(m.name, o.p.IDKind)
		})
		room := len(v) + 1
		if o.place("").class != classFree {
			room += len(v) // the names of members
		}
		rest, root := record{fields: o.room.of(room)}, o.place("")
		for i, m := range v {
			list, isList := m.value.([]any)
			inner, isObject := m.value.(object)
			switch {
			case outer && isList && len(list) > 0 && !slices.ContainsFunc(list, func(e any) bool { _, ok := e.(object); return !ok }):
				records = o.split(records, list, false)
			case outer && isObject && len(v) == 1:
				records = o.split(records, inner, true)
			default:
				o.key(&rest, root, m.name)
				if s, ok := scalar(m.value); ok {
					o.add(&rest, o.usual(i, m.name), s)
				} else {
					o.flatten(&rest, joinPath("", m.name), m.value)
				}
			}
		}
		if len(rest.fields)+rest.keys > 0 {
			records = append(records, rest)
		}
		return records
	}
	var whole record
	if o.flatten(&whole, "", v); len(whole.fields)+whole.keys > 0 {
		records = append(records, whole)
	}
	return records
}

func (o *observer) flatten(r *record, name string, v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			o.flatten(r, name, e)
		}
	case object:
		of := o.place(name)
		for _, m := range v {
			o.key(r, of, m.name)
			o.flatten(r, joinPath(name, m.name), m.value)
		}
	default:
		if s, ok := scalar(v); ok {
			o.add(r, o.place(name), s)
		}
	}
}

// add adds a scalar.
func (o *observer) add(r *record, of *place, text string) {
	if of.name == "" || len(r.fields)+r.keys < maxSeenValues {
		r.fields = append(r.fields, field{of: of, text: text})
	}
}

// key adds the name of a member. One that an outsider may have chosen is not kept.
func (o *observer) key(r *record, of *place, name string) {
	if of.class == classFree {
		r.keys++
		return
	}
	r.fields = append(r.fields, field{of: of, text: name, key: true})
}

// scalar is a string or a number as text. Booleans and null are not compared.
func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	}
	return "", false
}

// leaves calls f with every scalar of v, booleans too, and with its path: names joined by points, without list positions.
func leaves(v any, path string, f func(path string, value any)) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			leaves(e, path, f)
		}
	case object:
		for _, m := range v {
			leaves(m.value, joinPath(path, m.name), f)
		}
	case nil:
	default:
		f(path, v)
	}
}

// joinPath is the path of a member. A point inside a name does not separate names.
func joinPath(path, name string) string {
	name = strings.ReplaceAll(name, ".", "%2E")
	if path == "" {
		return name
	}
	return path + "." + name
}

// matchesShape reports whether every string and number of v, including the names of members, matches the shape: an outsider's figure is as good a
// message as a word. A number is matched as it is written.
func matchesShape(p *Profile, v any) bool {
	switch v := v.(type) {
	case string:
		return p.Shape.MatchString(v)
	case json.Number:
		return p.Shape.MatchString(v.String())
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !matchesShape(p, e) })
	case object:
		return !slices.ContainsFunc(v, func(m member) bool { return !p.Shape.MatchString(m.name) || !matchesShape(p, m.value) })
	}
	return true
}
