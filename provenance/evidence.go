package provenance

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"sallyport.example/flow"
)

// Bounds of what is kept of a session. What is over them is not kept, and so vouches for nothing.
const (
	maxRecords      = 1000    // of one result
	maxSeenValues   = 4000    // of one result
	maxEvidence     = 40_000  // values of one session
	maxApproved     = 1000    // approvals of one session
	maxGave         = 1 << 18 // bytes of what one session gave away: above it nothing that it reads back counts
	maxDepth        = 32      // of a result's JSON
	maxParsed       = 8 << 20 // bytes of one result that are looked at
	maxSegments     = 500     // of one trusted text
	largeResult     = 500     // values: from here on untrusted text is kept only as what labels name, and links, addresses and numbers
	maxQueryValues  = 64
	maxNames        = 200 // of one result, that stand in the person's words: with more, none is singled out
	maxPayloads     = 1000
	maxDisplayField = 64
)

// class is what a value of a record is good for.
type class string

const (
	classTrusted   class = "t" // of a trusted result
	classSystem    class = "s" // a trusted field
	classDelegable class = "d" // a delegable field
	classFree      class = "f" // anything else: it vouches for nothing, but says where a value was seen
)

// Seen is what one result showed, as it is kept: enough to find its values again, and to say where they were. It encodes as JSON, which is a
// format of this package's own; what it doesn't know it ignores.
type Seen struct {
	Operation string       `json:"operation"`
	CallID    string       `json:"call_id"`
	IDKind    string       `json:"id_kind,omitempty"`
	Trusted   bool         `json:"trusted,omitempty"` // the result as a whole can be trusted: its operation can, and it has the shape
	Cut       bool         `json:"cut,omitempty"`     // there was more than is kept
	Records   []seenRecord `json:"records,omitempty"`
	Approved  *approved    `json:"approved,omitempty"`
	Gave      *gave        `json:"gave,omitempty"`
}

// seenRecord is one record of a result.
type seenRecord struct {
	Named  string      `json:"named,omitempty"` // the naming field that stands in the person's words
	Only   bool        `json:"only,omitempty"`  // all there was to a query in their words, or to no query
	Values []seenValue `json:"values"`
}

type seenValue struct {
	Field string `json:"field"`
	Text  string `json:"text"`
	Class class  `json:"class"`
	ID    bool   `json:"id,omitempty"`   // of an id field
	Code  bool   `json:"code,omitempty"` // of another field that the system sets, and an id where an argument has the field's name
	Many  bool   `json:"many,omitempty"` // one of several that stood side by side in a text or as names in a table
}

// gave is what a write was given: its texts as gaveForm has them, a line each.
type gave struct {
	Text string `json:"text,omitempty"`
	All  bool   `json:"all,omitempty"` // more than is kept: it may have been anything
}

// approved are the arguments of a call that a person said yes to.
type approved struct {
	Values  []approvedValue  `json:"values"`
	Sources []approvedSource `json:"sources,omitempty"`
	Labels  []flow.Label     `json:"labels,omitempty"` // what the session held
}

// approvedSource is a record that a person was shown as covered.
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

// Result is a result as an operation gave it. Payloads are what is in it: JSON values where it has structure, otherwise its texts as JSON strings.
type Result struct {
	Operation string
	CallID    string
	Arguments []byte // canonical JSON object: what was asked for
	Payloads  []json.RawMessage
}

// Observe reads a result by what the operator says about the operation, and by the person's words. It never fails: what can't be read shows
// nothing.
func Observe(p *Profile, words *Words, r Result) Seen {
	if p == nil {
		p = &Profile{}
	}
	o := observer{p: p, words: words, naming: map[naming]bool{}, asked: map[form]bool{}, seen: Seen{Operation: r.Operation, CallID: r.CallID, IDKind: p.IDKind}}
	size := 0
	var values []any
	for i, payload := range r.Payloads {
		if size += len(payload); size > maxParsed || i == maxPayloads {
			o.seen.Cut = true
			break
		}
		v, err := decode(payload)
		if err != nil {
			o.seen.Cut = true
			continue
		}
		values = append(values, v)
	}
	o.trusted = (p.Output == TrustedOutput || p.Output == TypedOutput && p.Shape != nil) && !o.seen.Cut
	if o.trusted && p.Shape != nil {
		o.trusted = !slices.ContainsFunc(values, func(v any) bool { return !shaped(p, v) })
	}
	o.seen.Trusted = o.trusted
	args, err := decode(r.Arguments)
	if err == nil {
		leaves(args, "", func(_ string, value any) {
			if s, ok := scalar(value); ok && len(o.asked) < maxQueryValues {
				if f, ok := formOf(s); ok {
					o.asked[f] = true
				}
			}
		})
	}
	var records []record
	for _, v := range values {
		records = o.split(records, v, true)
	}
	if len(records) > maxRecords {
		records, o.seen.Cut = records[:maxRecords], true
	}
	total := 0
	for _, r := range records {
		total += len(r.fields)
	}
	o.large = total > largeResult
	only := len(records) == 1 && err == nil && o.queried(args)
	named := o.named(records)
	o.seen.Records = make([]seenRecord, len(records))
	for i := range records {
		o.seen.Records[i] = seenRecord{Named: named[i], Only: only}
	}
	// What vouches comes first, so that what doesn't can't crowd it out.
	for _, free := range []bool{false, true} {
		for i, rec := range records {
			o.record(&o.seen.Records[i], rec, free)
		}
	}
	return o.seen
}

// named finds for each record the naming field, or the id that the system set, by which the person's words single it out. It has to lead to one
// record alone: two of the same name, or one whose name is part of what the words say of another, are not singled out. What people call a thing
// without its ending counts where nothing in the result has that name in full.
func (o *observer) named(records []record) []string {
	named := make([]string, len(records))
	type hit struct {
		id    bool   // by the record's id or number, whatever the field is called
		field string // of another
		form  form
	}
	hits, loose := map[hit][]int{}, map[hit][]int{}
	for i, rec := range records {
		hasID := slices.ContainsFunc(rec.fields, func(f field) bool { return !f.key && idField(f.name, o.p.IDKind) })
		for _, f := range rec.fields {
			c := o.class(f)
			booked := c == classTrusted || c == classSystem
			told := f.in(o.p.Names) || o.trusted && o.p.Names == nil
			if f.key {
				continue
			}
			add := func(in map[hit][]int, h hit, name string) {
				var ok bool
				if h.form, ok = formOf(name); ok && !slices.Contains(in[h], i) {
					in[h] = append(in[h], i)
				}
			}
			switch {
			case booked && numbering(f.name, o.p.IDKind) && !(hasID && bareName(f.name) == "number") && o.gives(f.text):
				add(hits, hit{id: true}, f.text)
			case told && o.names(f.text, !booked):
				add(hits, hit{field: f.name}, f.text)
			case told:
				for _, name := range shortened(f.text) {
					if o.names(name, !booked) {
						add(loose, hit{field: f.name}, name)
					}
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
			if other.id { // who writes an id into a name is not meant by it
				part, of = of, part
			}
			return (other.id || len(of) > len(part)) && strings.Contains(of, part) && !slices.Equal(hits[other], in)
		})
		name := clipField(h.field)
		if h.id {
			name = "id"
		}
		if len(in) == 1 && !less && len(hits) <= maxNames && (named[in[0]] == "" || name < named[in[0]]) { // in whatever order the map has them
			named[in[0]] = name
		}
	}
	return named
}

// class is what a value of the field is good for.
func (o *observer) class(f field) class {
	switch {
	case o.trusted:
		return classTrusted
	case f.in(o.p.TrustedFields):
		return classSystem
	case f.in(o.p.Delegable):
		return classDelegable
	}
	return classFree
}

// maxNaming bounds the values of one result that are looked for in the person's words.
const maxNaming = 2000

// names reports whether the words name a record by the value.
func (o *observer) names(value string, outsider bool) bool {
	return o.known(naming{value, outsider, false}, func() bool { return o.words.names(value, outsider) })
}

// gives reports whether the words give the value as an id.
func (o *observer) gives(value string) bool {
	return o.known(naming{value, false, true}, func() bool { return o.words.id(value, o.p.IDKind) })
}

func (o *observer) known(at naming, look func() bool) bool {
	known, ok := o.naming[at]
	if !ok && len(o.naming) < maxNaming {
		known = look()
		o.naming[at] = known
	}
	return known
}

type naming struct {
	value        string
	outsider, id bool
}

type observer struct {
	naming  map[naming]bool
	asked   map[form]bool // what the call was given: that it comes back is no evidence
	p       *Profile
	words   *Words
	trusted bool
	large   bool
	seen    Seen
	values  int
}

// queried reports whether everything the call looked for stands in the person's words. A call that looks for nothing in particular asks for
// what there is.
func (o *observer) queried(args any) bool {
	told, in := 0, 0
	leaves(args, "", func(path string, value any) {
		s, ok := scalar(value)
		if ok && s == "" {
			return
		}
		if o.p.Told() && o.p.role(path) == Flag {
			if !ok || !wholeSize(path, s) {
				told++
			}
			return
		}
		if told++; told > maxQueryValues || !ok || strings.Contains(path, ".") { // a switch, and what a member is called, narrow a look as a word does
			return
		}
		if f, ok := formOf(s); ok && (o.words.names(s, !o.trusted) || f.kind != text && f.kind != number && o.words.has(f) || o.words.at(s)) {
			in++
		}
	})
	return told == in && (told > 0 || o.trusted)
}

// limits are the names, as bareName has them, by which calls say how much they want at most.
var limits = set("limit maxresults maxitems maxcount maxrows count top perpage pagesize")

// wholeSize reports whether a switch at a path leaves all there is: a limit of two or more. Where to begin, what to leave out and one alone narrow
// a look as a word does.
func wholeSize(path, value string) bool {
	n, err := strconv.Atoi(value)
	return err == nil && n > 1 && limits[bareName(path[strings.LastIndexByte(path, '.')+1:])]
}

// record keeps the values of a record: those that outsiders may have written, or the others.
func (o *observer) record(out *seenRecord, rec record, free bool) {
	keys := map[string]int{}
	for _, f := range rec.fields {
		if f.key {
			keys[f.name]++
		}
	}
	for _, f := range rec.fields {
		if c := o.class(f); (c == classFree) == free && !(f.key && free) {
			o.value(out, f, c, f.key && keys[f.name] > 1)
		}
	}
}

// value keeps a value, and what stands in it where it is a text of several.
func (o *observer) value(out *seenRecord, f field, c class, many bool) {
	keep := func(text string, id, many bool) {
		c := c
		code := !id && !many && !f.key && o.p.IDKind != "" && (c == classTrusted || c == classSystem) && f.name != "" && !strings.Contains(f.name, ".") && !strings.ContainsFunc(text, unicode.IsSpace)
		if fm, ok := formOf(text); ok && !id {
			if other, _ := fm.alike(); o.asked[fm] || o.asked[other] {
				c, code = classFree, code && numbering(f.name, o.p.IDKind)
			}
		}
		if o.values++; o.values > maxSeenValues {
			o.seen.Cut = true
			return
		}
		out.Values = append(out.Values, seenValue{Field: clipField(f.name), Text: text, Class: c, ID: id, Code: code, Many: many})
	}
	whole, ok := formOf(f.text)
	if ok && (c != classFree || !o.large || whole.kind != text || f.in(o.p.Names)) {
		keep(strings.TrimSpace(f.text), idField(f.name, o.p.IDKind), many)
	}
	switch {
	case c == classTrusted && (!ok || whole.kind == text):
		n := 0
		for part, alone := range segments(f.text) {
			if n++; n > maxSegments {
				o.seen.Cut = true
				break
			}
			if _, ok := formOf(part); ok && part != strings.TrimSpace(f.text) {
				keep(part, false, many || !alone)
			}
		}
	case c == classFree && (!ok || whole.kind == text):
		n := 0
		for token := range tokens(f.text) {
			if n++; n > maxSegments {
				o.seen.Cut = true
				break
			}
			keep(token, false, true)
		}
	}
}

// segments yields the parts of a text that separators set apart: what stands on a line, between commas, behind a colon. alone is a part that
// has no other beside it.
func segments(s string) func(yield func(part string, alone bool) bool) {
	return func(yield func(string, bool) bool) {
		lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' || r == '\t' || r == '|' || r == ';' })
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

// tokens yields the words of a text that are an address, a link, a number or an account.
func tokens(s string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for token := range strings.FieldsFuncSeq(s, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`"“”„«»<>()[]{},;|`, r) }) {
			token = strings.Trim(token, ".:!?'’*_`")
			if len(token) > maxValue {
				continue
			}
			if f, ok := formOf(token); ok && f.kind != text && !yield(token) {
				return
			}
		}
	}
}

var joints = strings.NewReplacer("_", "", "-", "")

// idField reports whether the field at a path holds the id of its record: what is called id further down is the id of something else.
func idField(name, kind string) bool {
	if strings.Contains(name, ".") {
		return false
	}
	name = strings.ToLower(strings.Trim(name, "_"))
	switch name {
	case "id", "uuid", "guid", "key", "uid":
		return true
	}
	if kind == "" {
		return false
	}
	bare := joints.Replace(name)
	kind = joints.Replace(strings.ToLower(kind))
	return bare == kind+"id" || bare == kind+"uuid" || bare == kind+"key"
}

// numbering reports whether people call a record by what stands in the field: its id, or its number.
func numbering(name, kind string) bool {
	bare := bareName(name)
	return idField(name, kind) || bare == "number" || bare == bareName(kind)+"number"
}

// bareName is a name as idNamed takes it: in lower case, without what joins its words.
func bareName(s string) string { return strings.ToLower(joints.Replace(s)) }

// idNamed reports whether a field has the name of an argument that takes the id of a record of the kind: number, or issue_number of an issue.
func idNamed(field, kind, argument string) bool {
	if field == "" || argument == "" {
		return false
	}
	one := strings.TrimSuffix(argument, "s")
	return argument == field || one == field || strings.TrimPrefix(argument, kind) == field || strings.TrimPrefix(one, kind) == field || strings.TrimPrefix(field, kind) == argument
}

func clipField(name string) string {
	if len(name) > maxDisplayField {
		name = strings.ToValidUTF8(name[:maxDisplayField], "")
	}
	return name
}

// field is one scalar of a record: under the name that leads to it, or, of an object used as a table, the name itself.
type field struct {
	name string
	text string
	key  bool
}

// in reports whether one of the names told is the field's path, or leads to it.
func (f field) in(told []string) bool {
	return f.name != "" && slices.ContainsFunc(told, func(name string) bool {
		return f.name == name || strings.HasPrefix(f.name, name) && f.name[len(name)] == '.'
	})
}

type record struct{ fields []field }

// split adds the records of a value. An object is a record, and a list's elements are records of their own. An object around them, with
// members that are lists of objects, is so many records and one of what is left; but one that has a field that labels speak of is a record,
// and what lies in it is its own: whoever fills a record's list may not make records.
func (o *observer) split(records []record, v any, outer bool) []record {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if len(records) > maxRecords { // more are not kept
				break
			}
			records = o.split(records, e, false)
		}
		return records
	case object:
		outer = outer && !slices.ContainsFunc(v, func(m member) bool {
			f := field{name: m.name}
			return f.in(o.p.TrustedFields) || f.in(o.p.Names) || f.in(o.p.Delegable) || idField(m.name, o.p.IDKind)
		})
		var rest record
		for _, m := range v {
			list, isList := m.value.([]any)
			inner, isObject := m.value.(object)
			switch {
			case outer && isList && len(list) > 0 && !slices.ContainsFunc(list, func(e any) bool { _, ok := e.(object); return !ok }):
				records = o.split(records, list, false)
			case outer && isObject && len(v) == 1:
				records = o.split(records, inner, true)
			default:
				rest.fields = append(rest.fields, field{text: m.name, key: true})
				rest.fields = flatten(rest.fields, joined("", m.name), m.value)
			}
		}
		if len(rest.fields) > 0 {
			records = append(records, rest)
		}
		return records
	}
	if fields := flatten(nil, "", v); len(fields) > 0 {
		records = append(records, record{fields})
	}
	return records
}

func flatten(fields []field, name string, v any) []field {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			fields = flatten(fields, name, e)
		}
	case object:
		for _, m := range v {
			fields = append(fields, field{name: name, text: m.name, key: true})
			fields = flatten(fields, joined(name, m.name), m.value)
		}
	default:
		if s, ok := scalar(v); ok {
			if name != "" && len(fields) < maxSeenValues {
				fields = append(fields, field{name: name, text: s})
			} else if name == "" {
				fields = append(fields, field{text: s})
			}
		}
	}
	return fields
}

// scalar is a string or a number as text. Booleans and null are no values to compare.
func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	}
	return "", false
}

// leaves calls f with every scalar of v, booleans too, under its path: names joined by points, list positions left out.
func leaves(v any, path string, f func(path string, value any)) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			leaves(e, path, f)
		}
	case object:
		for _, m := range v {
			leaves(m.value, joined(path, m.name), f)
		}
	case nil:
	default:
		f(path, v)
	}
}

// joined is the path of a member. A point in a name is no step of a path.
func joined(path, name string) string {
	name = strings.ReplaceAll(name, ".", "%2E")
	if path == "" {
		return name
	}
	return path + "." + name
}

// shaped reports whether every string of v, names of members too, matches the shape.
func shaped(p *Profile, v any) bool {
	switch v := v.(type) {
	case string:
		return p.Shape.MatchString(v)
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !shaped(p, e) })
	case object:
		return !slices.ContainsFunc(v, func(m member) bool { return !p.Shape.MatchString(m.name) || !shaped(p, m.value) })
	}
	return true
}

// object is a JSON object with its members in order.
type object []member

type member struct {
	name  string
	value any
}

var errJSON = errors.New("not one JSON value with distinct names, of a depth that can be read")

// decode reads one JSON value strictly: no two members whose names differ in case only, nothing behind it, at most maxDepth deep.
func decode(b []byte) (any, error) {
	if !utf8.Valid(b) {
		return nil, errJSON
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	v, err := decodeValue(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errJSON
	}
	return v, nil
}

func decodeValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errJSON
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	delim, ok := t.(json.Delim)
	if !ok {
		return t, nil
	}
	switch delim {
	case '[':
		list := []any{}
		for d.More() {
			v, err := decodeValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	case '{':
		o := object{}
		names := map[string]bool{}
		for d.More() {
			t, err := d.Token()
			if err != nil {
				return nil, err
			}
			name, ok := t.(string)
			if !ok || names[strings.ToLower(name)] {
				return nil, errJSON
			}
			names[strings.ToLower(name)] = true
			v, err := decodeValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			o = append(o, member{name, v})
		}
		_, err := d.Token()
		return o, err
	}
	return nil, errJSON
}

// Text is a text block's payload: the JSON value it consists of, if it is an object or a list, or the text as a JSON string.
func Text(s string) json.RawMessage {
	if t := strings.TrimSpace(s); t != "" && (t[0] == '{' || t[0] == '[') && len(t) <= maxParsed {
		if _, err := decode([]byte(t)); err == nil {
			return json.RawMessage(t)
		}
	}
	b, err := json.Marshal(s)
	if err != nil { // a string always encodes
		panic(err)
	}
	return b
}
