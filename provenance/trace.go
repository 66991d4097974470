package provenance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/sentence"
)

// maxTraced bounds the values of one call that are traced. A person is asked about a call with more.
const maxTraced = 200

// Verdict is the decision of JudgeCall.
type Verdict string

// The verdicts, from the mildest to the strictest.
const (
	Permit Verdict = "permit"
	Ask    Verdict = "ask"
	Deny   Verdict = "deny"
)

// Confirmation names the source that confirms a value.
type Confirmation string

// The sources, in the order in which JudgeCall tries them.
const (
	ByNone           Confirmation = ""
	ByRequest        Confirmation = "words"     // the person's request has it
	ByPlan           Confirmation = "plan"      // a sealed plan has it, as SealedPlan.Confirms says
	ByIdentity       Confirmation = "own"       // it is the person's own identity
	ByApproval       Confirmation = "approval"  // a person approved it, or another value of its record for the same argument
	ByTrustedOutput  Confirmation = "trusted"   // a trusted result has it
	ByTrustedField   Confirmation = "system"    // a trusted field of an untrusted record has it
	ByDelegableField Confirmation = "delegated" // a delegable field of a record that the request singles out has it
	ByNamedPayee     Confirmation = "payee"     // for an amount: the person named who gets it
)

// Finding says where one value of a call came from.
type Finding struct {
	Argument  string       `json:"argument"` // name, or path into it
	Role      Role         `json:"role"`
	Value     string       `json:"value"` // as in the call, cut to 200 bytes. Hostile: escape it where it is shown
	Confirmed bool         `json:"vouched"`
	By        Confirmation `json:"by,omitempty"`
	Text      string       `json:"text"` // a sentence for a model: it quotes neither the value nor the record
	Operation string       `json:"operation,omitempty"`
	CallID    string       `json:"call_id,omitempty"`
	Record    int          `json:"record,omitempty"` // number in the result of that call, from 1
	Field     string       `json:"field,omitempty"`
	Covers    bool         `json:"covers,omitempty"` // an approval also covers other values that the system set in this record, for this argument
}

// Ruling is the answer of JudgeCall.
type Ruling struct {
	Verdict  Verdict     `json:"verdict"`
	Because  []flow.Held `json:"because"`            // labels that block the call or caused the tracing; never nil
	Evidence []Finding   `json:"evidence"`           // one finding for each traced value; nil: none was traced
	Reason   string      `json:"reason"`             // a sentence for a model; "" if nothing was traced
	OffPlan  bool        `json:"off_plan,omitempty"` // the only reason to ask is that the call leaves the sealed plan
	Unasked  string      `json:"unasked,omitempty"`  // why the result of this permitted read counts as unasked; "" if it does not
}

// Situation is the state of a session, as JudgeCall needs it.
type Situation struct {
	Held       []flow.Held
	Request    *Request    // the person's request
	Own        []string    // the person's own addresses and accounts
	Evidence   *Evidence   // what the session has read
	FreeLevel1 bool        // writes that only the person sees and can undo are not traced
	Plan       *SealedPlan // nil: the session has no sealed plan
	// Choices are the values of an argument that the accepted definition of the operation lists.
	Choices map[string][]string
}

// JudgeCall decides about one call; docs/flow.md has the rules. Labels decide as in flow.Judge. If the operator gave the arguments roles, a refusal
// by labels is narrowed: private data may go where the person's request, or a record that it singles out, says. In a session that holds untrusted
// content, a write runs if its critical arguments are confirmed, and a person is asked otherwise. In a session that holds Unasked, a person is
// asked about every call that would take private data to anybody else.
//
// A person is also asked about a call that could carry labelled data out and leaves the sealed plan, even if all its arguments are confirmed
// (OffPlan).
//
// Untrusted evidence never permits anything: no evidence taken from untrusted text turns an ask into a permit.
func JudgeCall(op flow.Operation, p *Profile, args []byte, s Situation) Ruling {
	r := askOffPlan(judgeCall(op, p, args, s), op, p, args, s)
	if r.Verdict == Permit {
		r.Unasked = UnaskedFor(op, p, args, s)
	}
	return r
}

func untrusted(h flow.Held) bool { return h.Label == flow.Untrusted }

// judgeCall is JudgeCall without the rules about leaving the sealed plan and about unasked data.
func judgeCall(op flow.Operation, p *Profile, args []byte, s Situation) Ruling {
	labels := flow.Judge(op, s.Held)
	p = cmp.Or(p, &Profile{Level: 2})
	if !op.Sensitivity.Valid() || !labels.Allowed && !p.HasRoles() {
		return Ruling{Verdict: Deny, Because: labels.Because, Reason: labels.Reason}
	}
	tainted := slices.IndexFunc(s.Held, untrusted)
	traced := tainted >= 0 && (p.Level != 0 && !(p.Level == 1 && s.FreeLevel1) || p.EgressURL)
	if labels.Allowed && !traced {
		return Ruling{Verdict: Permit, Because: []flow.Held{}}
	}
	t, v, ok := newTracer(op, p, args, &s)
	if !ok {
		return Ruling{Verdict: Deny, Because: labels.Because, Reason: op.ShownName() + " is blocked: its arguments can't be read"}
	}
	if !labels.Allowed && p.Boundary == BoundaryByArg && !t.leavesPerson() {
		labels = flow.Decision{Allowed: true, Because: []flow.Held{}}
		if !traced {
			return Ruling{Verdict: Permit, Because: []flow.Held{}}
		}
	}
	because := labels.Because
	if labels.Allowed {
		because = []flow.Held{s.Held[tainted]}
	} else if t.carriesNothing(v) {
		return Ruling{Verdict: Permit, Because: because, Reason: op.ShownName() + " gets only words of the person's request and small choices, so it carries nothing out"}
	} else if !t.labelled || !t.namesDestination() && !t.mayOmit() { // nothing says where the data would go
		return Ruling{Verdict: Deny, Because: because, Reason: labels.Reason}
	}
	if at := slices.IndexFunc(s.Held, func(h flow.Held) bool { return h.Label == flow.Unasked }); at >= 0 && !labels.Allowed {
		because = append(slices.Clip(because), s.Held[at])
		t.unasked = &s.Held[at]
		t.blockedBy = because
	} else {
		t.blockedBy = labels.Because
	}
	t.followed, _ = s.Plan.Follow(op.ID, p, args, s.Evidence)
	t.trace()
	t.withdrawForUnasked()
	t.askForMissing()
	r := Ruling{Verdict: Permit, Because: because, Evidence: t.findings}
	bad := slices.DeleteFunc(slices.Clone(t.findings), func(f Finding) bool { return f.Confirmed })
	switch {
	case t.tooMany:
		r.Verdict, r.Reason = Ask, fmt.Sprintf("%s has more than %d values, so a person must look at it", op.ShownName(), maxTraced)
	case len(bad) > 0:
		r.Verdict, r.Reason = Ask, sentence.Chain(sentences(bad), "; ")+"; "+flow.Origins(because)
	case len(t.findings) == t.links+t.unlabelled && t.followed.Confirmed:
		r.Reason = "it is " + t.followed.Text
	case len(t.findings) == t.links+t.unlabelled: // a confirmed link, or an argument that the tool may not even have, does not confirm the call
		r.Verdict, r.Reason = Ask, fmt.Sprintf("no argument of %s can be traced to the person's request, and %s", op.ShownName(), flow.Origins(because))
	default:
		r.Reason = sentence.Chain(sentences(t.findings), "; ")
	}
	return r
}

// tracer finds the source that confirms each value of one call.
type tracer struct {
	op        flow.Operation
	p         *Profile
	s         *Situation
	call      any // its arguments
	values    []traced
	core      bool        // one of the values has a core role
	labelled  bool        // one has it by a label: an argument that no label names may be one that the tool doesn't have, and says nothing of the call
	onlyOwn   bool        // every core value is the person's own: it says whom the call is for, not what it is for
	blockedBy []flow.Held // the labels that refuse the call
	unasked   *flow.Held  // the mark of unasked data, if labels refuse the call; nil otherwise
	followed  Followed
	tooMany   bool
	findings  []Finding
	links     int // how many findings are about links in content
	// unlabelled is how many findings are about arguments that no label names, where others are named.
	unlabelled int
}

type traced struct {
	path string
	role Role
	text string
	ok   bool // a string or a number
	// by label: the role is one that the operator gave, or no argument of the operation has any.
	labelled bool
	hollow   bool // a member's name with nothing behind it
}

// form is the form of the value. What an argument takes for a web address is one, whatever it looks like elsewhere.
func (v traced) form() (form, bool) {
	if v.role == URL {
		if l, ok := linkOf(strings.TrimSpace(v.text)); ok && len(v.text) <= maxValue && printable(v.text) {
			return form{link, l}, true
		}
	}
	return formOf(v.text)
}

// newTracer reads a call. ok is false if its arguments are not a JSON object.
func newTracer(op flow.Operation, p *Profile, args []byte, s *Situation) (t *tracer, v any, ok bool) {
	t = &tracer{op: op, p: p, s: s}
	v, err := decode(args)
	if _, ok = v.(object); err != nil || !ok {
		return t, nil, false
	}
	t.call = v
	t.read(v)
	return t, v, true
}

// read collects the values of the call.
func (t *tracer) read(v any) {
	t.readKeys(v, "")
	leaves(v, "", func(path string, value any) {
		s, ok := scalar(value)
		if ok && strings.TrimSpace(s) == "" {
			return
		}
		if !ok {
			s = fmt.Sprint(value)
		}
		r, labelled := t.role(path)
		for _, one := range splitAddresses(r, s) {
			t.add(traced{path: path, role: r, text: one, ok: ok, labelled: labelled})
		}
	})
}

// role is the role of the value at a path, and whether a label gives it, where the operation has any.
func (t *tracer) role(path string) (r Role, labelled bool) {
	_, labelled = t.p.labelledRole(path)
	return t.p.RoleOf(path), labelled || !t.p.HasRoles()
}

func (t *tracer) add(v traced) {
	t.core = t.core || v.role.Core()
	t.labelled = t.labelled || v.role.Core() && v.labelled
	if t.tooMany = t.tooMany || len(t.values) == maxTraced; !t.tooMany {
		t.values = append(t.values, v)
	}
}

// readKeys collects member names that stand in the place of values, as in {"to": {"a@b.c": …}}. A name that is part of a labelled path is none.
func (t *tracer) readKeys(v any, path string) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			t.readKeys(e, path)
		}
	case object:
		for _, m := range v {
			inner := joinPath(path, m.name)
			if r, labelled := t.role(path); path != "" && (r.Core() || r == Content) && !t.p.labelStartsWith(inner) && !t.p.labelsInside(path) {
				t.add(traced{path, r, m.name, true, labelled, hollow(m.value)})
			}
			t.readKeys(m.value, inner)
		}
	}
}

// splitAddresses returns the addresses of a list of addresses in one text, or else the whole text.
func splitAddresses(r Role, s string) []string {
	if r != Destination || len(s) > maxTraced*maxValue {
		return []string{s}
	}
	list := strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ';' })
	noAddress := func(s string) bool { _, ok := mailOf(strings.TrimSpace(s)); return !ok }
	if len(list) == 0 || slices.ContainsFunc(list, noAddress) {
		return []string{s}
	}
	return list
}

// leavesPerson reports whether the call names a destination that is not the person's own. An argument without a role may be one, and so may the
// repository that a call writes to.
func (t *tracer) leavesPerson() bool {
	return t.tooMany || slices.ContainsFunc(t.values, func(v traced) bool {
		f, ok := formOf(v.text)
		_, labelled := t.p.labelledRole(v.path)
		return (v.role.places() || v.role == Repository && t.op.Effect != flow.Read || !labelled) && !(ok && t.isOwn(f))
	})
}

// namesDestination reports whether the call has a value for a destination or URL, as far as the operation has arguments for one. Null, blank and
// empty values are none, and nor is a member's name with such a value.
func (t *tracer) namesDestination() bool {
	return !t.p.hasRole(Destination, URL) || slices.ContainsFunc(t.values, func(v traced) bool { return v.role.places() && !v.hollow && visible(v.text) })
}

// visible reports whether s has a character that can be seen.
func visible(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsSpace(r) && printable(string(r)) })
}

// hollow reports whether nothing stands in a value: it is null, false or blank, or a list or an object of nothing else.
func hollow(v any) bool {
	switch v := v.(type) {
	case object:
		return !slices.ContainsFunc(v, func(m member) bool { return !hollow(m.value) })
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !hollow(e) })
	case string:
		return !visible(v)
	case bool:
		return !v
	}
	return v == nil
}

// mayOmit reports whether leaving out every destination and URL keeps what is stored. An argument that is given empty is not left out, since that
// may clear what is stored.
func (t *tracer) mayOmit() bool {
	for arg, r := range t.p.Args {
		if r.places() && (!slices.Contains(t.p.MayOmit, arg) || hasValueAt(t.call, "", arg)) {
			return false
		}
	}
	return true
}

// hasValueAt reports whether v, which stands at the path at, has anything at another path, or is emptied around it: null and empty values count, too. A
// list stands in the place of the list that is stored.
func hasValueAt(v any, at, path string) bool {
	o, ok := v.(object)
	return !ok || at != "" && hollow(o) || slices.ContainsFunc(o, func(m member) bool {
		inner := joinPath(at, m.name)
		if within(path, inner) {
			return inner == path || hasValueAt(m.value, inner, path)
		}
		return within(inner, path) || NearPaths(inner, path)
	})
}

// askForMissing adds a finding for each destination and URL if the call has a value for none of them: then the tool chooses where the call goes.
// Nothing leaves without one under BoundaryByArg, and a sealed plan that confirms the call confirms it as it is.
func (t *tracer) askForMissing() {
	if t.namesDestination() || t.p.Boundary == BoundaryByArg || t.mayOmit() || t.followed.Confirmed {
		return
	}
	for _, arg := range slices.Sorted(maps.Keys(t.p.Args)) {
		if role := t.p.Args[arg]; role.places() {
			t.findings = append(t.findings, Finding{Argument: clipField(arg), Role: role, Text: sentence.Name(arg) + " has no value, so the tool chooses where the call goes"})
		}
	}
}

// isOwn reports whether the value is one of the person's own addresses and accounts.
func (t *tracer) isOwn(f form) bool {
	other, _ := f.regrouped()
	return slices.ContainsFunc(t.s.Own, func(own string) bool { o, ok := formOf(own); return ok && (o == f || o == other) })
}

// trace looks for the sources of the core arguments, of the soft ones where no core argument says enough, and of links in content.
func (t *tracer) trace() {
	for _, v := range t.values {
		if v.role.Core() && v.role != Amount {
			t.findings = append(t.findings, t.confirm(v))
			if !v.labelled {
				t.unlabelled++
			}
		}
	}
	t.onlyOwn = t.everyCoreIsOwn()
	soft := t.softRole()
	for _, v := range t.values {
		if v.role == soft {
			t.findings = append(t.findings, t.confirm(v))
		}
	}
	payee := t.payeeNamed() // before there are amounts
	for _, v := range t.values {
		switch {
		case v.role == Amount:
			f := t.confirm(v)
			if fm, ok := formOf(v.text); ok && fm.kind == number && fm.value[0] != '-' && !f.Confirmed && payee {
				f.Confirmed, f.By = true, ByNamedPayee
				f.Text = sentence.Name(v.path) + " was calculated, for a payee that the person named"
			}
			t.findings = append(t.findings, f)
		case v.role == Content || v.role.Soft() && v.role != soft:
			for l := range linksIn(v.text) {
				if len(t.findings) == maxTraced {
					t.tooMany = true
					return
				}
				role := URL
				if isFileName(l) { // a mail program may make a link of README.md, but the person who says so means the file
					role = Content
				}
				f := t.confirm(traced{path: v.path, role: role, text: l, ok: true, labelled: v.labelled})
				f.Role = v.role
				if fm, ok := formOf(l); ok && !f.Confirmed && t.s.Evidence != nil && covers(t.s.Evidence.approved[approvedAt{form: fm}], t.blockedBy) {
					f.Confirmed, f.By, f.Text = true, ByApproval, sentence.Name(v.path)+" is one that a person approved before"
				}
				if f.Confirmed {
					f.Text = "a link in " + f.Text
				} else {
					f.Text = unconfirmedText("a link in " + sentence.Name(v.path))
				}
				t.findings, t.links = append(t.findings, f), t.links+1
			}
		}
	}
}

// softRole is the soft role whose values are traced: names, or times in a call without a name, because a name says more about the purpose. It is
// "" if a core argument says enough.
func (t *tracer) softRole() Role {
	switch {
	case t.labelled && !t.onlyOwn:
		return ""
	case slices.ContainsFunc(t.values, func(v traced) bool { return v.role == Name }):
		return Name
	}
	return Time
}

// everyCoreIsOwn reports whether every core value of the call, amounts aside, is one of the person's own addresses and accounts, in a session that
// holds untrusted content: there an outsider may have chosen the rest.
func (t *tracer) everyCoreIsOwn() bool {
	found := false
	for _, v := range t.values {
		if !v.role.Core() || v.role == Amount || !v.labelled {
			continue
		}
		if f, ok := formOf(v.text); !ok || !v.ok || !t.isOwn(f) {
			return false
		}
		found = true
	}
	return found && slices.ContainsFunc(t.s.Held, untrusted)
}

// blocked reports whether labels refuse the call.
func (t *tracer) blocked() bool { return len(t.blockedBy) > 0 }

// payeeNamed reports whether the person named who gets the money: every destination, or every selector where there is no destination, is in the
// request, in a sealed plan, or in a record that the request names. An approved payment says nothing about the amount of the next one, and the
// person's own account nothing about any amount.
func (t *tracer) payeeNamed() bool {
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
			if f.CallID != "" { // from a result, not fixed in the plan
				return false
			}
		case ByRequest:
		case ByTrustedOutput, ByTrustedField:
			if !t.recordNamed(f) {
				return false
			}
		default:
			return false
		}
	}
	return found
}

// recordNamed reports whether the request names the record of a finding.
func (t *tracer) recordNamed(f Finding) bool {
	e := t.s.Evidence
	return e != nil && slices.ContainsFunc(e.records, func(r evidenceRecord) bool {
		return r.operation == f.Operation && r.callID == f.CallID && r.number == f.Record && r.named != ""
	})
}

// confirm looks for the source of one value.
func (t *tracer) confirm(v traced) Finding {
	arg := sentence.Name(v.path)
	f := Finding{Argument: clipField(v.path), Role: v.role, Value: clip(v.text, 200), Text: unconfirmedText(arg)}
	fm, ok := v.form()
	by := func(source Confirmation, format string, a ...any) Finding {
		f.Confirmed, f.By, f.Text = true, source, fmt.Sprintf(format, a...)
		return f
	}
	if t.confirmedByPlan(&f, v) {
		return f
	}
	if !ok || !v.ok || v.role == Amount && fm.kind == account {
		return f
	}
	if !v.labelled && t.p.nearLabel(v.path) {
		f.Text = arg + " is not confirmed: no label names it, and a label names an argument that is written almost alike"
		return f
	}
	if v.role == Selector && t.s.Request.givesID(v.text, t.p.IDKind) || v.role != Selector && t.inRequest(v, fm) || t.inHandles(v) {
		return by(ByRequest, "%s is in the person's request", arg)
	}
	if (v.role == Destination || v.role == Identity) && t.isOwn(fm) {
		return by(ByIdentity, "%s is the person's own address or account", arg)
	}
	e := t.s.Evidence
	if e == nil {
		return f
	}
	if t.approvedBefore(v) {
		return by(ByApproval, "a person approved this %s before", arg)
	}
	spots, repeats := e.valuesOf(fm, v.role), t.repeats(v)
	if v.role == Selector {
		spots = e.idsFor(v.text, v.path)
	}
	for _, sp := range spots {
		if r := &e.records[sp.record]; t.confirms(v.role, sp, r) && !repeats(sp.record) {
			f.at(r, sp)
			switch sp.class {
			case classTrusted:
				return by(ByTrustedOutput, "%s is from %s%s", arg, f.place(), r.why())
			case classSystem:
				return by(ByTrustedField, "%s is from a field that the system sets in %s%s", arg, f.place(), r.why())
			case classDelegable:
				return by(ByDelegableField, "%s is from %s%s", arg, f.place(), r.why())
			}
		}
	}
	if v.role == Name && t.composed(v.text) {
		return by(ByTrustedOutput, "%s joins words of the person's request and a trusted result", arg)
	}
	for _, sp := range e.values.of(fm) {
		if v.role != Selector && v.role != Credential && sp.trusted() && covers(e.sources[sourceAt{t.op.ID, v.path, sp.record}], t.blockedBy) && !repeats(sp.record) {
			f.at(&e.records[sp.record], sp)
			return by(ByApproval, "%s is from %s, which a person approved as its source before", arg, f.place())
		}
	}
	return t.withoutSource(f, v, fm, repeats)
}

// repeats tells of a record whether it may only repeat the value, because a call had been given it by then. It looks for no answer that an earlier one has.
func (t *tracer) repeats(v traced) func(record int) bool {
	from, to := never, 0 // records from "from" on repeat it, those before "to" don't
	return func(record int) bool {
		switch e := t.s.Evidence; {
		case record < to || record >= from:
		case v.role == Selector:
			from = e.idGivenSince(v.text, t.op.ID, t.p.IDKind)
			to = from
		case e.repeats(record, v.text):
			from = record
		default:
			to = record + 1
		}
		return record >= from
	}
}

// approvedBefore reports whether a person approved the value earlier, for this argument of this operation.
func (t *tracer) approvedBefore(v traced) bool {
	fm, ok := formOf(v.text)
	if !ok || t.s.Evidence == nil {
		return false
	}
	if v.role == Selector || v.role == Credential {
		fm = form{formless, v.text}
	}
	return covers(t.s.Evidence.approved[approvedAt{t.op.ID, v.path, fm}], t.blockedBy)
}

// unconfirmedText says of a value, by its argument's name, that it was seen nowhere.
func unconfirmedText(arg string) string {
	return arg + " is not confirmed: the person did not name it, and no trusted record has it"
}

// withoutSource is the finding for an unconfirmed value: it says where the session saw the value, and why that does not count.
func (t *tracer) withoutSource(f Finding, v traced, fm form, repeats func(record int) bool) Finding {
	e := t.s.Evidence
	anID := v.role == Selector && len(e.idsFor(v.text, v.path)) > 0
	all := e.values.of(fm)
	if len(all) == 0 {
		return f
	}
	first := all[0]
	if i := slices.IndexFunc(all, occurrence.trusted); i >= 0 {
		first = all[i]
		f.Covers = v.role != Selector && v.role != Credential && fm.kind != number
	}
	r := &e.records[first.record]
	f.at(r, first)
	f.Text = sentence.Name(v.path) + " is not confirmed: it is from " + f.place()
	switch {
	case repeats(first.record):
		f.Text += ", which may repeat what this session gave away"
	case anID && r.singledOut(first):
		f.Text += ", where it is the id of something else"
	case first.class == classFree && !anID:
		f.Text += ", where an outsider may have written it"
	default:
		f.Text += ", a record that the person's request does not single out"
	}
	return f
}

// composed reports whether a name joins words of the request and a trusted value, in either order, like a title that the request gave with a blank
// to fill.
func (t *tracer) composed(name string) bool {
	bare := func(s string) (form, bool) { return formOf(strings.Trim(s, " :-–—()'\"“”")) }
	trusted := func(s string) bool {
		f, _ := bare(s)
		spots := t.s.Evidence.values.of(f)
		i := slices.IndexFunc(spots, func(sp occurrence) bool { return sp.class == classTrusted })
		return i >= 0 && spots[i].record < t.s.Evidence.givenSince(s)
	}
	inRequest := func(s string) bool {
		f, ok := bare(s)
		return ok && f.kind == text && t.s.Request.has(f)
	}
	if name = strings.TrimSpace(name); len(name) > maxValue {
		return false
	}
	for i, r := range name {
		if r == ' ' && (inRequest(name[:i]) && trusted(name[i:]) || trusted(name[:i]) && inRequest(name[i:])) {
			return true
		}
	}
	return false
}

// inRequest reports whether the request has the value, in a way that counts for its role.
func (t *tracer) inRequest(v traced, f form) bool {
	switch {
	case v.role == Credential && !t.s.Request.literal(v.text):
		return false
	case v.role == Time:
		return t.s.Request.hasTime(v.text) || f.kind != number && t.s.Request.has(f)
	case f.kind == number && v.role != Amount && len(f.value) < 8: // a short number has no meaning without the word before it: port 8443
		label, _, ok := call.LongestPrefix(t.p.Args, v.path)
		name := label[strings.LastIndexByte(label, '.')+1:]
		return ok && v.role == Target && bareWord(name) != "" && !commonWords[bareWord(name)] && t.s.Request.givesID(v.text, name)
	case f.kind == text && v.role == Name && !strings.ContainsFunc(f.value, func(r rune) bool { return !inWord(r) }) && connects(f.value):
		return false
	case f.kind == text && v.role.Core() && v.role != Identity:
		if v.role == Destination && (isFileName(f.value) || !t.s.Request.namesPlace(v.text)) {
			return false
		}
		return t.s.Request.has(f) && (countDistinctive(f.value) > 0 || t.s.Request.setApart(strings.TrimSpace(v.text)))
	case f.kind == number && v.role != Amount:
		other, _ := f.regrouped()
		return t.s.Request.has(f) || t.s.Request.has(other)
	}
	return t.s.Request.has(f)
}

// confirms reports whether a value that occurred there may be used for the role. Values that leave to others or can't be undone have to come from a
// record that the request singles out.
func (t *tracer) confirms(role Role, sp occurrence, r *evidenceRecord) bool {
	if role == Selector && (!sp.trusted() || !sameKind(t.op.ID, t.p.IDKind, r)) {
		return false
	}
	switch sp.class {
	case classTrusted, classSystem:
		return role != Credential && (!t.mustBind(role) || r.singledOut(sp) || role == Selector && r.made && sp.own)
	case classDelegable:
		return (role == Destination || role == Target) && r.singledOut(sp)
	}
	return false
}

// mustBind reports whether a value has to come from a record that the request singles out. That is so where it decides where private data goes, or
// what leaves to others or can't be undone. A message to somebody inside the organisation is neither, and a call without a core argument, or with
// none but the person's own addresses, affects nobody else.
func (t *tracer) mustBind(role Role) bool {
	if role.Soft() && t.onlyOwn {
		return false
	}
	return t.blocked() || t.p.Level != 0 && t.p.Level != 1 && t.core && !(role == Destination && t.p.Boundary == BoundaryInternal)
}

// sameKind reports whether an id out of the record may select a thing that the operation changes. The kinds have to be equal; without kinds, the
// servers.
func sameKind(operation, kind string, r *evidenceRecord) bool {
	if kind != "" || r.idKind != "" {
		return kind == r.idKind
	}
	own, _, _ := strings.Cut(operation, ".")
	theirs, _, _ := strings.Cut(r.operation, ".")
	return own == theirs
}

func (f *Finding) at(r *evidenceRecord, sp occurrence) {
	f.Operation, f.CallID, f.Record, f.Field = r.operation, r.callID, r.number, sp.field
}

// place names the record that had the value.
func (f *Finding) place() string {
	return fmt.Sprintf("record %d of %s", f.Record, sentence.Name(f.Operation))
}

// why says how the request singles the record out.
func (r *evidenceRecord) why() string {
	switch {
	case r.named != "":
		return ", which the person's request names"
	case r.made:
		return ", which a call made under a name of the person's request"
	case r.only:
		return ", the only record found for the person's request"
	}
	return ""
}

// sentences are the texts of the findings, each once.
func sentences(findings []Finding) (out []string) {
	for _, f := range findings {
		if !slices.Contains(out, f.Text) {
			out = append(out, f.Text)
		}
	}
	return out
}
