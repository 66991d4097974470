// Package flow decides where labelled data may go. It is pure: no clock, no network, no state of its own, and no
// dependencies but the standard library. Its names are stable.
//
// # The model
//
// A session is the working context of one agent. Content that it has read stays in it, so the session holds labels, and labels only rise.
// "internal" is data of the organisation; detectors find "pii" and "secret" in results; an operator may add more. These are confidentiality
// labels. [Untrusted] is the integrity label: somebody outside wrote content that the session has read. It always exists.
//
// An operation is one thing that an agent can call. A source emits labels: once its result is released, the session holds them. A sink is
// blocked by labels: it is refused while the session holds one of them, because it could carry the data out. The operator classifies each
// operation by its sensitivity:
//
//	sensitivity       emits        is blocked by
//	internal_source   internal     nothing
//	external          nothing      every confidentiality label
//	both              internal     every confidentiality label
//	none              nothing      nothing
//
// or lists the labels instead (emits, blocked_by). An unclassified operation is external. [Resolve] turns the operator's configuration into an
// [Operation], and refuses unknown names.
//
// # One function
//
// [Judge] is the rule of labels, and nothing else in this package decides. [Manifest], [SystemPrompt] and [OrderingHint] tell the agent in
// advance what Judge will say, so that it can plan; [Validate] applies Judge to a whole plan. Before a call runs, the caller asks Judge, or
// JudgeCall of package provenance, which also checks where the arguments came from. Before a result is released, the caller calls [Raise].
// Judge allows every order that Validate calls safe, as long as results bring no labels beyond the declared ones.
//
// # Plans
//
// In a plan, a sink has to come before every source that would block it, and a step has to come after the steps whose results it needs. That
// is a precedence graph. Labels that the session already holds block their sinks in any order. Apart from that, a safe order exists exactly if
// the graph has no cycle, and Validate answers with the one nearest to the plan: it always takes the available step that was planned first. If
// there is none, the shortest cycle is the proof, and the report names the cheapest ways out: the steps to ask a person about, or to run in a
// session of their own.
//
// A refused step brings no labels, here as in enforcement.
//
// # What callers must keep
//
// Held labels are in the order in which they came. Only a person removes one, on the record. Judge knows the labels with which an operation was
// resolved: if the operator removes a label from the configuration while a session still holds it, the caller has to refuse that session or
// keep the label.
//
// Structured fields hold names unchanged. Sentences are for a model to read: names in them are shortened and stripped of everything but
// letters, digits and "_-.:/@", so that the name of a tool can't give orders.
package flow

import (
	"fmt"
	"slices"
	"strings"

	"sallyport.example/internal/sentence"
)

// Label names a kind of content that a session holds.
type Label string

const (
	// Internal is what an internal source emits unless the operator names other labels.
	Internal Label = "internal"
	// Untrusted is the integrity label. It blocks only operations that name it in blocked_by.
	Untrusted Label = "untrusted"
	// Unasked marks a session that holds private data nobody asked for. It rises like a label, and has the call that it came
	// with. It never refuses a call by itself; package provenance sets it, and asks a person because of it.
	Unasked Label = "unasked"
	// Flagged marks a session that has read words in which screening found an attempt to order an agent about. It rises like a label, never refuses a call
	// by itself, and makes the calls riskier that change what others see.
	Flagged Label = "flagged"
)

// Marks reports whether the label is one that every session can hold and no operator lists: the integrity label, and the marks of the gateway's own.
func (l Label) Marks() bool { return l == Untrusted || l == Unasked || l == Flagged }

// ParseLabel accepts [a-z][a-z0-9_-]{0,31}.
func ParseLabel(s string) (Label, error) {
	ok := len(s) >= 1 && len(s) <= 32 && s[0] >= 'a' && s[0] <= 'z'
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-'
	}
	if !ok {
		return "", fmt.Errorf("label %.40q: use a lower-case letter, then up to 31 of a-z, 0-9, _ and -", s)
	}
	return Label(s), nil
}

// Sensitivity is the operator's class of an operation (FL-1).
type Sensitivity string

const (
	InternalSource Sensitivity = "internal_source"
	External       Sensitivity = "external"
	Both           Sensitivity = "both" // a source and a sink
	None           Sensitivity = "none"
)

// Valid reports whether s is one of the four classes.
func (s Sensitivity) Valid() bool {
	switch s {
	case InternalSource, External, Both, None:
		return true
	}
	return false
}

// ParseSensitivity accepts the exact names of the four classes.
func ParseSensitivity(s string) (Sensitivity, error) {
	if v := Sensitivity(s); v.Valid() {
		return v, nil
	}
	return "", fmt.Errorf("sensitivity %.40q: use internal_source, external, both or none", s)
}

// Effect says whether an operation changes anything. The manifest shows it; Judge ignores it.
type Effect string

const (
	Read  Effect = "read"
	Write Effect = "write"
)

// Valid reports whether e is read or write.
func (e Effect) Valid() bool { return e == Read || e == Write }

// ParseEffect accepts the exact names of the two effects.
func ParseEffect(s string) (Effect, error) {
	if v := Effect(s); v.Valid() {
		return v, nil
	}
	return "", fmt.Errorf("effect %.40q: use read or write", s)
}

// Operation is an operation with all defaults applied: Emits and BlockedBy are complete. Make it with [Resolve].
type Operation struct {
	ID          string // the operator's id, as "mail.search_email"
	Name        string // the tool name the agent sees
	Sensitivity Sensitivity
	Effect      Effect
	Emits       []Label // the session holds them once a result is released
	BlockedBy   []Label // the operation is refused while the session holds one of these
}

// Spec is an operation as the operator configured it, before defaults. Nil Emits or BlockedBy mean the default of the sensitivity; empty ones mean
// none.
type Spec struct {
	ID          string
	Name        string
	Sensitivity Sensitivity // default external
	Effect      Effect      // default write
	Emits       *[]Label
	BlockedBy   *[]Label
	Untrusted   bool // the output is untrusted: adds Untrusted to Emits
}

// Emitting returns the operation as one whose results bring these labels, too.
func (op Operation) Emitting(more []Label) Operation {
	op.Emits = sortedSet(slices.Concat(op.Emits, more))
	return op
}

// Resolve applies the defaults. confidentiality is the operator's list of confidentiality labels. Labels outside it (except Untrusted) are errors,
// and so are unknown names. Errors name the field and the remedy.
func Resolve(s Spec, confidentiality []Label) (Operation, error) {
	bad := func(field, format string, args ...any) (Operation, error) {
		return Operation{}, fmt.Errorf("operation %.200q: %s: %s", s.ID, field, fmt.Sprintf(format, args...))
	}
	if s.ID == "" {
		return bad("id", "is empty; use server.tool")
	}
	if s.Name == "" {
		return bad("expose_as", "is empty; give the tool a name")
	}
	known := make([]Label, 0, len(confidentiality)+1)
	for _, l := range confidentiality {
		if _, err := ParseLabel(string(l)); err != nil {
			return bad("flow.labels", "%v", err)
		}
		if l.Marks() {
			return bad("flow.labels", "%q is always there; leave it out", l)
		}
		known = append(known, l)
	}
	known = sortedSet(known)

	op := Operation{ID: s.ID, Name: s.Name, Sensitivity: s.Sensitivity, Effect: s.Effect}
	if op.Sensitivity == "" {
		op.Sensitivity = External
	}
	if _, err := ParseSensitivity(string(op.Sensitivity)); err != nil {
		return bad("sensitivity", "%v", err)
	}
	if op.Effect == "" {
		op.Effect = Write
	}
	if _, err := ParseEffect(string(op.Effect)); err != nil {
		return bad("effect", "%v", err)
	}

	switch {
	case s.Emits != nil:
		op.Emits = *s.Emits
	case op.Sensitivity == InternalSource || op.Sensitivity == Both:
		op.Emits = []Label{Internal}
	}
	switch {
	case s.BlockedBy != nil:
		op.BlockedBy = *s.BlockedBy
	case op.Sensitivity == External || op.Sensitivity == Both:
		op.BlockedBy = known
	}
	for _, f := range []struct {
		name   string
		labels []Label
	}{{"emits", op.Emits}, {"blocked_by", op.BlockedBy}} {
		for _, l := range f.labels {
			// No sink would be blocked by an unknown label.
			if l != Untrusted && !slices.Contains(known, l) {
				return bad(f.name, "%.40q is not in flow.labels; add it there or use one of %s", l, sentence.Names(append(known, Untrusted)))
			}
		}
	}
	op.Emits = slices.Clone(op.Emits)
	if s.Untrusted {
		op.Emits = append(op.Emits, Untrusted)
	}
	op.Emits = sortedSet(op.Emits)
	op.BlockedBy = sortedSet(slices.Clone(op.BlockedBy))
	return op, nil
}

func sortedSet(labels []Label) []Label {
	slices.Sort(labels)
	return slices.Compact(labels)
}

// Held is a label that a session holds, with its origin.
type Held struct {
	Label     Label  `json:"label"`
	Operation string `json:"operation"` // operation id; "" if the session began with it
	CallID    string `json:"call_id"`
	Cause     string `json:"cause,omitempty"` // in words, if no result of an operation brought it
}

// Decision is the answer of Judge.
type Decision struct {
	Allowed bool   `json:"allowed"`
	Because []Held `json:"because"` // the earliest origin of each blocking label, sorted by label
	Reason  string `json:"reason"`  // a sentence for a model; "" when allowed
}

// Judge decides whether op may be called in a session that holds these labels (FL-2), whatever its arguments. Everything else in this package
// relies on it. It refuses an operation whose sensitivity is unknown. Adding to held never turns a refusal into a permission.
func Judge(op Operation, held []Held) Decision {
	if allowed(op, held) {
		return Decision{Allowed: true, Because: []Held{}}
	}
	because := []Held{}
	for _, h := range held {
		if slices.Contains(op.BlockedBy, h.Label) && !slices.ContainsFunc(because, func(b Held) bool { return b.Label == h.Label }) {
			because = append(because, h)
		}
	}
	slices.SortFunc(because, func(a, b Held) int { return strings.Compare(string(a.Label), string(b.Label)) })
	if !op.Sensitivity.Valid() {
		return Decision{Because: because, Reason: fmt.Sprintf("%s is blocked: its sensitivity is not known", op.ShownName())}
	}
	return Decision{Because: because, Reason: op.ShownName() + " is blocked for the rest of this session: " + Origins(because)}
}

// allowed is the rule itself; Judge adds the words. The graph of a plan relies on its form: it looks at one held label at a time.
func allowed(op Operation, held []Held) bool {
	if !op.Sensitivity.Valid() {
		return false
	}
	for i := range held {
		for _, l := range op.BlockedBy {
			if l == held[i].Label {
				return false
			}
		}
	}
	return true
}

// Raise returns the labels that a session holds after a result of op: all that it held, then the new labels of op, then new extra labels (found by
// a detector, FL-3). It drops nothing and does not write to held.
func Raise(held []Held, op Operation, callID string, extra ...Label) []Held {
	out := held[:len(held):len(held)]
	add := func(l Label) {
		for i := range out {
			if out[i].Label == l {
				return
			}
		}
		out = append(out, Held{Label: l, Operation: op.ID, CallID: callID})
	}
	for _, l := range op.Emits {
		add(l)
	}
	for _, l := range extra {
		add(l)
	}
	return out
}
