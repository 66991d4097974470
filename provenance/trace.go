package provenance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sallyport.example/flow"
	"sallyport.example/internal/sentence"
)

// maxTraced is how many values of one call are traced. A call with more is asked about.
const maxTraced = 200

// Verdict is what JudgeCall says. Each is stricter than the one before.
type Verdict string

// The verdicts.
const (
	Permit Verdict = "permit"
	Ask    Verdict = "ask"
	Deny   Verdict = "deny"
)

// Voucher says who or what vouches for a value.
type Voucher string

// The vouchers, in the order in which they are looked for.
const (
	ByNothing   Voucher = ""
	ByWords     Voucher = "words"     // the person's request has it
	ByPlan      Voucher = "plan"      // a plan that was sealed while the session was clean has it
	ByOwn       Voucher = "own"       // it is the person's own identity
	ByApproval  Voucher = "approval"  // a person said yes to it, or to another value of its record for the same argument
	ByTrusted   Voucher = "trusted"   // trusted output
	BySystem    Voucher = "system"    // a trusted field of an untrusted record
	ByDelegated Voucher = "delegated" // a delegable field of a record that the person's words single out
	ByPayee     Voucher = "payee"     // an amount, where the person named who gets it
)

// Finding says where one value of a call came from.
type Finding struct {
	Argument  string  `json:"argument"` // name, or path into it
	Role      Role    `json:"role"`
	Value     string  `json:"value"` // as in the call, cut to 200 bytes. Hostile: escape it where it is shown
	Vouched   bool    `json:"vouched"`
	By        Voucher `json:"by,omitempty"`
	Text      string  `json:"text"` // a sentence fit for a model: none of the value's or a record's own words are in it
	Operation string  `json:"operation,omitempty"`
	CallID    string  `json:"call_id,omitempty"`
	Record    int     `json:"record,omitempty"` // of the result of that call, from 1
	Field     string  `json:"field,omitempty"`
	Covers    bool    `json:"covers,omitempty"` // a person's yes also covers other values that the system set in this record, for this argument
}

// Ruling is JudgeCall's answer.
type Ruling struct {
	Verdict  Verdict     `json:"verdict"`
	Because  []flow.Held `json:"because"`            // labels that block, or that made it look; never nil
	Evidence []Finding   `json:"evidence"`           // of every value that was traced; nil: none was
	Reason   string      `json:"reason"`             // a sentence fit for a model; "" when nothing had to be looked at
	OffPlan  bool        `json:"off_plan,omitempty"` // a person is asked only because the call leaves the sealed plan
	Unasked  string      `json:"unasked,omitempty"`  // of a read that may run: why what it brings counts as unasked for; "" it does not
}

// Situation is what JudgeCall has to know of a session.
type Situation struct {
	Held       []flow.Held
	Words      *Words    // the person's request
	Own        []string  // the person's own addresses and accounts
	Evidence   *Evidence // what the session has seen
	FreeLevel1 bool      // writes that only the person sees and can undo are not traced
	Plan       *Sealed   // the sealed plan; nil: none
	// Choices are the values that the operation's accepted definition allows an argument, where it lists them.
	Choices map[string][]string
}

// JudgeCall decides about one call (docs/flow.md). Labels decide as flow.Judge says; where the operator has told what the arguments are for, a
// refusal is narrowed: private data may go where the person's words, or what they vouch for, lead. A session that holds untrusted content
// may go on with writes whose critical arguments are vouched for, and a person is asked about the rest. A session that holds Unasked asks
// about every call that would take private data to anybody but the person.
//
// What could carry labelled data out and leaves the sealed plan is asked about, whoever vouches for it (OffPlan).
//
// Untrusted evidence never permits anything: what is added to the evidence out of untrusted text changes no ask into a permit.
func JudgeCall(op flow.Operation, p *Profile, args []byte, s Situation) Ruling {
	r := offPlan(judgeCall(op, p, args, s), op, p, args, s)
	if r.Verdict == Permit {
		r.Unasked = UnaskedFor(op, p, args, s)
	}
	return r
}

// judgeCall is JudgeCall but for the sealed plan and for what a read brings.
func judgeCall(op flow.Operation, p *Profile, args []byte, s Situation) Ruling {
	labels := flow.Judge(op, s.Held)
	if p == nil {
		p = &Profile{Level: 2}
	}
	if !op.Sensitivity.Valid() || !labels.Allowed && !p.Told() {
		return Ruling{Verdict: Deny, Because: labels.Because, Reason: labels.Reason}
	}
	tainted := slices.IndexFunc(s.Held, func(h flow.Held) bool { return h.Label == flow.Untrusted })
	looks := tainted >= 0 && (p.Level != 0 && !(p.Level == 1 && s.FreeLevel1) || p.EgressURL)
	if labels.Allowed && !looks {
		return Ruling{Verdict: Permit, Because: []flow.Held{}}
	}
	t := tracer{op: op, p: p, s: &s}
	v, err := decode(args)
	if _, isObject := v.(object); err != nil || !isObject {
		return Ruling{Verdict: Deny, Because: labels.Because, Reason: op.ShownName() + " is blocked: its arguments can't be read"}
	}
	t.read(v)
	if !labels.Allowed && p.Boundary == BoundaryByArg && !t.leaves() {
		labels = flow.Decision{Allowed: true, Because: []flow.Held{}}
		if !looks {
			return Ruling{Verdict: Permit, Because: []flow.Held{}}
		}
	}
	because := labels.Because
	if labels.Allowed {
		because = []flow.Held{s.Held[tainted]}
	} else if t.inert(v) {
		return Ruling{Verdict: Permit, Because: because, Reason: op.ShownName() + " is given nothing but words of the person's and small choices, so it carries nothing out"}
	} else if !t.core || !t.destined() {
		// Nothing says where the data would go.
		return Ruling{Verdict: Deny, Because: because, Reason: labels.Reason}
	}
	if at := slices.IndexFunc(s.Held, func(h flow.Held) bool { return h.Label == flow.Unasked }); at >= 0 && !labels.Allowed {
		because = append(slices.Clip(because), s.Held[at])
		t.unasked = &s.Held[at]
		t.blocking = because
	} else {
		t.blocking = labels.Because
	}
	t.followed, _ = s.Plan.Follow(op.ID, p, args, s.Evidence)
	t.trace()
	t.doubt()
	r := Ruling{Verdict: Permit, Because: because, Evidence: t.findings}
	switch bad := t.unvouched(); {
	case t.tooMany:
		r.Verdict, r.Reason = Ask, fmt.Sprintf("%s has more than %d values, so a person must look at it", op.ShownName(), maxTraced)
	case len(bad) > 0:
		r.Verdict, r.Reason = Ask, sentence.Chain(bad, "; ")+"; "+flow.Origins(because)
	case len(t.findings) == t.links && t.followed.Firm:
		r.Reason = "it is " + t.followed.Text
	case len(t.findings) == t.links: // that the person knows a link in it says nothing about the call
		r.Verdict, r.Reason = Ask, fmt.Sprintf("nothing in the arguments of %s can be traced to what the person asked for, and %s", op.ShownName(), flow.Origins(because))
	default:
		r.Reason = sentence.Chain(t.sentences(), "; ")
	}
	return r
}

// tracer looks for what vouches for each value of one call.
type tracer struct {
	op       flow.Operation
	p        *Profile
	s        *Situation
	values   []traced
	core     bool        // there is a value with a core role
	blocking []flow.Held // the labels that refuse the call; none: none does
	unasked  *flow.Held  // that private data is there which nobody asked for; nil: labels don't refuse the call, or it isn't
	followed Followed
	tooMany  bool
	findings []Finding
	links    int // of the findings, those about links in what is sent
}

type traced struct {
	path string
	role Role
	text string
	ok   bool // a string or a number
}

// read collects the values of the call.
func (t *tracer) read(v any) {
	t.keys(v, "")
	leaves(v, "", func(path string, value any) {
		s, ok := scalar(value)
		if ok && strings.TrimSpace(s) == "" {
			return
		}
		if !ok {
			s = fmt.Sprint(value)
		}
		r := t.p.role(path)
		if r.Core() {
			t.core = true
		}
		for _, one := range apart(r, s) {
			if len(t.values) == maxTraced {
				t.tooMany = true
				return
			}
			t.values = append(t.values, traced{path, r, one, ok})
		}
	})
}

// keys collects what stands as a member's name where values are meant: {"to": {"a@b.c": …}}. A name that a label speaks of is none.
func (t *tracer) keys(v any, path string) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			t.keys(e, path)
		}
	case object:
		for _, m := range v {
			inner := joined(path, m.name)
			if r := t.p.role(path); path != "" && (r.Core() || r == Content) && !t.p.leads(inner) && !t.p.leadsOn(path) {
				t.core = t.core || r.Core()
				if len(t.values) == maxTraced {
					t.tooMany = true
					return
				}
				t.values = append(t.values, traced{path, r, m.name, true})
			}
			t.keys(m.value, inner)
		}
	}
}

// apart are the addresses of a list of them in one text, or the text.
func apart(r Role, s string) []string {
	if r != Destination || len(s) > maxTraced*maxValue {
		return []string{s}
	}
	list := strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ';' })
	for _, one := range list {
		if _, ok := mailOf(strings.TrimSpace(one)); !ok {
			return []string{s}
		}
	}
	if len(list) == 0 {
		return []string{s}
	}
	return list
}

// leaves reports whether a destination is given that is not the person's own, or what may be one: an argument nobody spoke of, and the repository
// that is written to.
func (t *tracer) leaves() bool {
	return t.tooMany || slices.ContainsFunc(t.values, func(v traced) bool {
		f, ok := formOf(v.text)
		_, told := t.p.told(v.path)
		return (v.role == Destination || v.role == URL || v.role == Repository && t.op.Effect != flow.Read || !told) && !(ok && t.own(f))
	})
}

// destined reports whether the call says where data goes, as far as the operation lets it: to a destination, a URL, or what a selector selects.
func (t *tracer) destined() bool {
	has := func(r Role) bool { return r == Destination || r == URL }
	if !slices.ContainsFunc(slices.Collect(maps.Values(t.p.Args)), has) {
		return true
	}
	return slices.ContainsFunc(t.values, func(v traced) bool { return has(v.role) || v.role == Selector })
}

func (t *tracer) own(f form) bool {
	other, _ := f.alike()
	return slices.ContainsFunc(t.s.Own, func(own string) bool { o, ok := formOf(own); return ok && (o == f || o == other) })
}

// trace finds what vouches for the core arguments, or where there is none for the soft ones, and for links in what is sent.
func (t *tracer) trace() {
	soft := Name // what it is called says what it is for; when it is comes after that
	if !slices.ContainsFunc(t.values, func(v traced) bool { return v.role == Name }) {
		soft = Time
	}
	for _, v := range t.values {
		if v.role.Core() && v.role != Amount || !t.core && v.role == soft {
			t.findings = append(t.findings, t.vouch(v))
		}
	}
	payee := t.payee() // before there are amounts
	for _, v := range t.values {
		switch {
		case v.role == Amount:
			f := t.vouch(v)
			if fm, ok := formOf(v.text); ok && fm.kind == number && fm.value[0] != '-' && !f.Vouched && payee {
				f.Vouched, f.By = true, ByPayee
				f.Text = sentence.Name(v.path) + " was worked out, for a payee that the person named"
			}
			t.findings = append(t.findings, f)
		case v.role == Content || v.role.Soft() && (t.core || v.role != soft):
			for l := range linksIn(v.text) {
				if len(t.findings) == maxTraced {
					t.tooMany = true
					return
				}
				f := t.vouch(traced{v.path, URL, l, true})
				f.Role = v.role
				if fm, ok := formOf(l); ok && !f.Vouched && t.s.Evidence != nil && covers(t.s.Evidence.approved[approvedAt{form: fm}], t.blocking) {
					f.Vouched, f.By, f.Text = true, ByApproval, sentence.Name(v.path)+" is one that a person approved before"
				}
				if f.Vouched {
					f.Text = "a link in " + f.Text
				} else {
					f.Text = "nothing vouches for a link in " + sentence.Name(v.path)
				}
				t.findings, t.links = append(t.findings, f), t.links+1
			}
		}
	}
}

// blocked reports whether labels refuse the call.
func (t *tracer) blocked() bool { return len(t.blocking) > 0 }

// payee reports whether the person named who gets the money: each destination, or where none is given each selector, by their words, a
// sealed plan, or as a record that their words name. A yes to a payment says nothing about the next one's amount.
func (t *tracer) payee() bool {
	role := Destination
	if !slices.ContainsFunc(t.values, func(v traced) bool { return v.role == Destination }) {
		role = Selector
	}
	found := false
	for _, f := range t.findings {
		if f.Role != role {
			continue
		}
		found = true
		switch f.By {
		case ByPlan:
			if f.CallID != "" { // out of a result, and not the plan's own
				return false
			}
		case ByWords, ByOwn:
		case ByTrusted, BySystem:
			if !t.named(f) {
				return false
			}
		default:
			return false
		}
	}
	return found
}

// named reports whether the record of a finding is one that the person's words name.
func (t *tracer) named(f Finding) bool {
	e := t.s.Evidence
	return e != nil && slices.ContainsFunc(e.records, func(r seenAt) bool {
		return r.operation == f.Operation && r.callID == f.CallID && r.number == f.Record && r.named != ""
	})
}

// vouch finds what vouches for one value.
func (t *tracer) vouch(v traced) Finding {
	f := Finding{Argument: clipField(v.path), Role: v.role, Value: clipValue(v.text)}
	arg := sentence.Name(v.path)
	fm, ok := formOf(v.text)
	by := func(voucher Voucher, format string, a ...any) Finding {
		f.Vouched, f.By, f.Text = true, voucher, fmt.Sprintf(format, a...)
		return f
	}
	if t.planned(&f, v) {
		return f
	}
	if !ok || !v.ok || v.role == Amount && fm.kind == account {
		f.Text = "nothing vouches for " + arg
		return f
	}
	if v.role == Selector && t.s.Words.id(v.text, t.p.IDKind) || v.role != Selector && t.inWords(v, fm) || t.asWritten(v) {
		return by(ByWords, "%s is in the person's request", arg)
	}
	if v.role != Selector && v.role != Credential && t.own(fm) {
		return by(ByOwn, "%s is the person's own", arg)
	}
	e := t.s.Evidence
	if e == nil {
		f.Text = "nothing vouches for " + arg
		return f
	}
	if t.agreed(v) {
		return by(ByApproval, "a person approved this %s before", arg)
	}
	spots, written := e.valuesOf(fm, v.role), e.written(v.text)
	if v.role == Selector {
		spots = e.idsFor(v.text, v.path)
	}
	for _, sp := range spots {
		if r := &e.records[sp.record]; t.vouches(v.role, sp, r) && sp.record < written {
			f.at(r, sp)
			switch sp.class {
			case classTrusted:
				return by(ByTrusted, "%s is from %s%s", arg, f.place(), r.why())
			case classSystem:
				return by(BySystem, "%s is from a field that the system sets in %s%s", arg, f.place(), r.why())
			case classDelegable:
				return by(ByDelegated, "%s is from %s%s", arg, f.place(), r.why())
			}
		}
	}
	if v.role == Name && t.composed(v.text) {
		return by(ByTrusted, "%s is put together of the person's words and of trusted results", arg)
	}
	for _, sp := range e.values[fm] {
		if v.role != Selector && v.role != Credential && sp.sound() && covers(e.sources[sourceAt{t.op.ID, v.path, sp.record}], t.blocking) && sp.record < written {
			f.at(&e.records[sp.record], sp)
			return by(ByApproval, "%s is from %s, which a person approved as its source before", arg, f.place())
		}
	}
	return t.nobody(f, v, fm, written)
}

// agreed reports whether a person said yes to the value before, as this argument of this operation.
func (t *tracer) agreed(v traced) bool {
	fm, ok := formOf(v.text)
	if !ok || t.s.Evidence == nil {
		return false
	}
	if v.role == Selector || v.role == Credential {
		fm = form{formless, v.text}
	}
	return covers(t.s.Evidence.approved[approvedAt{t.op.ID, v.path, fm}], t.blocking)
}

// nobody is the finding of a value that nobody vouches for: where it was seen, and why that is not enough.
func (t *tracer) nobody(f Finding, v traced, fm form, written int) Finding {
	e := t.s.Evidence
	f.Text = "nothing vouches for " + sentence.Name(v.path)
	anID := v.role == Selector && len(e.idsFor(v.text, v.path)) > 0
	all := e.values[fm]
	if len(all) == 0 {
		return f
	}
	first := all[0]
	if i := slices.IndexFunc(all, spot.sound); i >= 0 {
		first = all[i]
		f.Covers = v.role != Selector && v.role != Credential && fm.kind != number
	}
	r := &e.records[first.record]
	f.at(r, first)
	f.Text += ", which is from " + f.place()
	switch {
	case first.record >= written:
		f.Text += ", where the session may have written it itself"
	case anID && r.bound(first):
		f.Text += " and the id of something else"
	case first.class == classFree && !anID:
		f.Text += ", where an outsider may have written it"
	default:
		f.Text += ", a record that the person's request does not single out"
	}
	return f
}

// composed reports whether a name begins with words of the person's and goes on with a trusted value, or the other way round: as in a title
// that they gave with a blank to fill.
func (t *tracer) composed(name string) bool {
	trusted := func(s string) bool {
		f, ok := formOf(strings.Trim(s, " :-–—()'\"“”"))
		if !ok {
			return false
		}
		spots := t.s.Evidence.values[f]
		i := slices.IndexFunc(spots, func(sp spot) bool { return sp.class == classTrusted })
		return i >= 0 && spots[i].record < t.s.Evidence.written(s)
	}
	said := func(s string) bool {
		f, ok := formOf(strings.Trim(s, " :-–—()'\"“”"))
		return ok && f.kind == text && t.s.Words.has(f)
	}
	if name = strings.TrimSpace(name); len(name) > maxValue {
		return false
	}
	for i, r := range name {
		if r == ' ' && (said(name[:i]) && trusted(name[i:]) || trusted(name[:i]) && said(name[i:])) {
			return true
		}
	}
	return false
}

// inWords reports whether the person's request has the value, as far as the role takes their word for it.
func (t *tracer) inWords(v traced, f form) bool {
	switch {
	case v.role == Credential && !t.s.Words.letter(v.text):
		return false
	case v.role == Time:
		return t.s.Words.at(v.text) || f.kind != number && t.s.Words.has(f)
	case f.kind == number && v.role != Amount && len(f.value) < 8: // a short number means what stands around it: port 8443
		label, ok := t.p.label(v.path)
		name := label[strings.LastIndexByte(label, '.')+1:]
		return ok && v.role == Target && bareWord(name) != "" && !ordinary[bareWord(name)] && t.s.Words.id(v.text, name)
	case f.kind == text && v.role.Core() && v.role != Identity:
		return t.s.Words.has(f) && (telling(f.value) > 0 || t.s.Words.marked(strings.TrimSpace(v.text)))
	case f.kind == number && v.role != Amount:
		other, _ := f.alike()
		return t.s.Words.has(f) || t.s.Words.has(other)
	}
	return t.s.Words.has(f)
}

// vouches reports whether a value that stood there may be used for the role. What leaves to others or can't be undone has to come from a
// record that the person singled out.
func (t *tracer) vouches(role Role, sp spot, r *seenAt) bool {
	if role == Selector && (sp.class != classTrusted && sp.class != classSystem || !sameKind(t.op.ID, t.p.IDKind, r)) {
		return false
	}
	switch sp.class {
	case classTrusted, classSystem:
		return role != Credential && (!t.binds(role) || r.bound(sp))
	case classDelegable:
		return (role == Destination || role == Target) && r.bound(sp)
	}
	return false
}

// binds reports whether a value has to come from a record that the person singled out: where it decides what leaves to others or can't be
// undone, and where private data goes. A message to somebody inside the organisation is neither, and a call without a core argument hits nobody.
func (t *tracer) binds(role Role) bool {
	return t.blocked() || t.p.Level != 0 && t.p.Level != 1 && t.core && !(role == Destination && t.p.Boundary == BoundaryInternal)
}

// sameKind reports whether an id out of the record may select what the operation changes: the kinds are the same, and where nobody named one,
// it is the same server's.
func sameKind(operation, kind string, r *seenAt) bool {
	if kind != "" || r.idKind != "" {
		return kind == r.idKind
	}
	own, _, _ := strings.Cut(operation, ".")
	theirs, _, _ := strings.Cut(r.operation, ".")
	return own == theirs
}

func (f *Finding) at(r *seenAt, sp spot) {
	f.Operation, f.CallID, f.Record, f.Field = r.operation, r.callID, r.number, sp.field
}

// place says where a value was found.
func (f *Finding) place() string {
	return fmt.Sprintf("record %d of %s", f.Record, sentence.Name(f.Operation))
}

// why says how the person singled the record out.
func (r *seenAt) why() string {
	switch {
	case r.named != "":
		return ", which the person's request names"
	case r.only:
		return ", all there was to what the person asked for"
	}
	return ""
}

func (t *tracer) unvouched() []string {
	var out []string
	for _, f := range t.findings {
		if !f.Vouched && !slices.Contains(out, f.Text) {
			out = append(out, f.Text)
		}
	}
	return out
}

func (t *tracer) sentences() []string {
	var out []string
	for _, f := range t.findings {
		if !slices.Contains(out, f.Text) {
			out = append(out, f.Text)
		}
	}
	return out
}

func clipValue(s string) string {
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "")
	}
	return s
}
