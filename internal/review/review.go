// Package review says what a person needs to know to answer one request: what it does in one sentence, for each value of the call where it came
// from, what speaks against it with the strongest objection first, and what a yes also covers.
//
// Promises: it is pure, and bounded in what it returns. What it finds informs the person: nothing is permitted or confirmed by it. Texts hold
// values of agents and strangers, so whoever shows them escapes them.
package review

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/provenance"
)

// Facts are what a review rests on.
type Facts struct {
	Approval approval.Approval
	Action   string            // what the operation does, in the operator's word; "": nobody said
	Roles    map[string]string // of its arguments
	Request  string            // the person's words on record
	// Findings say where the arguments came from: those of the approval or, where no rule asked for them, those that were made for this review.
	Findings []approval.Finding
	Reads    []provenance.Read // what the session has read, oldest first
	Held     []flow.Held       // its labels
	Rejected string            // why a person rejected a call to the same destination before; "": nobody did
}

// Review is what a person needs to know.
type Review struct {
	Does string   `json:"does"`         // "Transfer 4,800 EUR"
	To   []string `json:"to,omitempty"` // whom or what it reaches, as written
	Line string   `json:"line"`         // both, on one short line
	// Objections speak against the call, the strongest first.
	Objections []Objection `json:"objections,omitempty"`
	Values     []Value     `json:"values,omitempty"` // of the arguments, the deciding ones first
	Covers     []string    `json:"covers,omitempty"` // what a yes allows besides this call
	Harm       string      `json:"harm,omitempty"`   // what happens if the call is wrong
}

// Objection is one thing that speaks against a call.
type Objection struct {
	Code     string `json:"code"`
	Argument string `json:"argument,omitempty"` // that it is about
	Title    string `json:"title"`
	Text     string `json:"text"`

	weight int
}

// Verdict says whether a value is confirmed.
type Verdict string

const (
	Confirmed   Verdict = "confirmed"
	Unconfirmed Verdict = "unconfirmed"
	Unchecked   Verdict = "unchecked"
)

// Value is one value of the arguments.
type Value struct {
	Argument string  `json:"argument"`
	Role     string  `json:"role,omitempty"`
	Text     string  `json:"text"`
	Verdict  Verdict `json:"verdict"`
	Says     string  `json:"says"`          // the verdict in words
	Why      string  `json:"why,omitempty"` // what the rules found, in their words
	// Core values decide where something goes, what it costs and what it affects. Whoever approves an unconfirmed one says that they checked it.
	Core bool       `json:"core,omitempty"`
	Seen []Sighting `json:"seen,omitempty"` // where the session has read it
	// Others stand where one would look for this value, and differ from it.
	Others []Sighting `json:"others,omitempty"`

	kind      string
	resembles string // a known value that it can be taken for, and why
	missing   bool
}

// MustCheck tells whether the person who approves has to say that they checked the value.
func (v Value) MustCheck() bool { return v.Core && v.Verdict == Unconfirmed }

// Sighting is a place where the session has read a value.
type Sighting struct {
	Place     string    `json:"place"` // "invoice 2026-118", "a mail from billing@initech.example"
	Value     string    `json:"value"`
	Operation string    `json:"operation,omitempty"`
	CallID    string    `json:"call_id,omitempty"`
	Record    int       `json:"record,omitempty"`
	Field     string    `json:"field,omitempty"`
	At        time.Time `json:"at,omitzero"`
	Outsider  bool      `json:"outsider,omitempty"` // an outsider may have written it
}

// Bounds of a review.
const (
	maxValues     = 60
	maxSightings  = 3
	maxObjections = 8
	maxCompared   = 20_000 // values of what the session has read
)

// Of reviews a request.
func Of(f Facts) Review {
	r := reviewer{Facts: f, records: bounded(f.Reads)}
	out := Review{Harm: f.Approval.Consequence}
	out.Values = r.values()
	out.Does, out.To = sentence(f.Action, f.Approval, out.Values)
	out.Line = line(out.Does, out.To)
	out.Objections = r.objections(out)
	out.Covers = covers(f.Approval, out.Values)
	return out
}

// Line is what a request does, on one short line.
func Line(action string, roles map[string]string, a approval.Approval) string {
	r := reviewer{Facts: Facts{Approval: a, Roles: roles, Findings: a.Evidence}}
	return line(sentence(action, a, r.values()))
}

// Unconfirmed counts the core values of a request that nothing confirms, as far as it was traced when it was asked.
func UnconfirmedIn(a approval.Approval) (n int) {
	for _, f := range a.Evidence {
		if !f.Confirmed && provenance.Role(f.Role).Core() {
			n++
		}
	}
	return n
}

// reviewer makes one review.
type reviewer struct {
	Facts
	records []provenance.Read
}

// bounded is the newest of what was read that is compared.
func bounded(all []provenance.Read) []provenance.Read {
	n := 0
	for i := len(all) - 1; i >= 0; i-- {
		if n += len(all[i].Values); n > maxCompared {
			return all[i+1:]
		}
	}
	return all
}

// values are the values of the arguments, the deciding ones first.
func (r *reviewer) values() []Value {
	var all []Value
	for _, leaf := range provenance.Leaves(r.Approval.Arguments) {
		if len(all) == maxValues {
			break
		}
		all = append(all, r.value(leaf.Path, fmt.Sprint(leaf.Value)))
	}
	for _, f := range r.Findings {
		if f.Value != "" && provenance.Role(f.Role) != provenance.Content && len(all) < maxValues && !slices.ContainsFunc(all, func(v Value) bool { return isAbout(f, v.Argument, v.Text) }) {
			all = append(all, r.value(f.Argument, f.Value)) // what was traced is shown, wherever it stands
		}
		if f.Value == "" && !f.Confirmed && len(all) < maxValues { // a destination without a value
			all = append(all, Value{Argument: f.Argument, Role: f.Role, Verdict: Unconfirmed, Says: "missing: the tool chooses", Core: true, missing: true})
		}
		if provenance.Role(f.Role) == provenance.Content && !f.Confirmed && f.Value != "" && len(all) < maxValues && !slices.ContainsFunc(all, func(v Value) bool { return v.Argument == f.Argument && v.Text == f.Value }) {
			v := r.value(f.Argument, f.Value) // a link in a text
			v.Role, v.Verdict, v.Core = "url", Unconfirmed, true
			r.trace(&v)
			v.Argument = "link in " + f.Argument
			all = append(all, v)
		}
	}
	slices.SortStableFunc(all, func(a, b Value) int { return cmp.Compare(order(a), order(b)) })
	return all
}

// order is the place of a value in the list.
func order(v Value) int {
	if i := slices.Index([]provenance.Role{provenance.Destination, provenance.URL, provenance.Identity, provenance.Amount, provenance.Selector, provenance.Target, provenance.Path,
		provenance.Repository, provenance.Table, provenance.Code, provenance.Credential, provenance.Currency, provenance.Name, provenance.Time}, provenance.Role(v.Role)); i >= 0 {
		return i
	}
	return 100
}

// value is one value with what is known about it.
func (r *reviewer) value(path, text string) Value {
	v := Value{Argument: path, Text: text, Verdict: Unchecked, kind: provenance.Kind(text)}
	_, v.Role, _ = call.LongestPrefix(r.Roles, path)
	i := slices.IndexFunc(r.Findings, func(f approval.Finding) bool { return isAbout(f, path, text) })
	if i < 0 {
		v.Says = unchecked(v.Role)
		return v
	}
	f := r.Findings[i]
	v.Role = cmp.Or(v.Role, f.Role)
	v.Core, v.Why = provenance.Role(f.Role).Core(), f.Text
	if f.Confirmed {
		v.Verdict, v.Says = Confirmed, r.confirmedBy(f)
		if f.By == string(provenance.ByNamedPayee) { // calculated: what else it could be helps to decide
			r.trace(&v)
		}
		return v
	}
	v.Verdict = Unconfirmed
	r.trace(&v)
	if len(v.Seen) == 0 && f.Operation != "" { // what the session read is not here any more, and the rules had it
		v.Seen = []Sighting{{
			Place: fmt.Sprintf("record %d of %s", f.Record, f.Operation), Value: f.Value, Operation: f.Operation, CallID: f.CallID, Record: f.Record, Field: f.Field,
			At: call.TimeOf(f.CallID), Outsider: true,
		}}
	}
	v.Says = says(v)
	return v
}

// isAbout tells whether a finding is about the value at a path. Both are cut in findings.
func isAbout(f approval.Finding, path, text string) bool {
	same := func(cut, whole string) bool {
		head, short := strings.CutSuffix(cut, "…")
		return cut == whole || short && head != "" && strings.HasPrefix(whole, head)
	}
	return f.Value != "" && same(f.Argument, path) && same(f.Value, text)
}

// unchecked says why nobody looked where a value came from.
func unchecked(role string) string {
	switch provenance.Role(role) {
	case provenance.Content, provenance.Query:
		return "free text"
	}
	return "not checked"
}

// confirmedBy says what confirms a value.
func (r *reviewer) confirmedBy(f approval.Finding) string {
	switch provenance.Confirmation(f.By) {
	case provenance.ByRequest:
		return "named in the request"
	case provenance.ByPlan:
		return "in the approved plan"
	case provenance.ByIdentity:
		return "the person’s own"
	case provenance.ByApproval:
		return "approved before"
	case provenance.ByNamedPayee:
		return "calculated, for a payee that the request names"
	}
	for _, rec := range r.records {
		if rec.CallID == f.CallID && rec.Number == f.Record {
			return place(rec)
		}
	}
	return cmp.Or(noun(f.Operation), "a trusted record")
}

// says puts the verdict on an unconfirmed value into few words.
func says(v Value) string {
	switch {
	case v.missing:
		return v.Says
	case len(v.Seen) == 0:
		return "nobody named it; seen nowhere"
	}
	if first := v.Seen[0]; !first.Outsider {
		return "from " + first.Place + ", which the request does not name"
	}
	return "only in " + v.Seen[0].Place
}

// leaves tells whether the rules asked because private data could leave.
func (r *reviewer) dataLeaves() bool {
	return slices.ContainsFunc(r.Approval.Reasons, func(x approval.Reason) bool {
		return x.Stage == "flow" && x.Code == string(fault.FlowContaminated)
	})
}

// covers says what a yes allows besides this call, as the approval has it.
func covers(a approval.Approval, values []Value) []string {
	const code = "flow.source"
	if !slices.ContainsFunc(a.Reasons, func(r approval.Reason) bool { return r.Code == code }) {
		return nil
	}
	var again []string
	for _, v := range values {
		if v.Core && v.Verdict == Unconfirmed && !v.missing && !strings.HasPrefix(v.Argument, "link in ") && !slices.Contains(again, v.Thing()) {
			again = append(again, v.Thing())
		}
	}
	var out []string
	if len(again) > 0 {
		out = append(out, fmt.Sprintf("A yes covers this %s for the session.", strings.Join(again, " and this ")))
	}
	for _, f := range a.Evidence {
		if f.Covers && !f.Confirmed {
			out = append(out, fmt.Sprintf("Also allows other values of %s that the system set in the same record.", f.Argument))
			break
		}
	}
	return out
}

// ToWord is what stands between what a call does, as Review.Does has it, and whom it reaches.
func ToWord(does string) string {
	if slices.ContainsFunc([]string{"Transfer", "Send", "Give access", "Publish"}, func(verb string) bool { return strings.HasPrefix(does, verb) }) {
		return "to"
	}
	return ""
}
