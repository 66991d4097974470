// Package flow decides where labelled data may go. It is pure: no clock, no
// network, no state of its own, and nothing outside the standard library. The names
// here are stable.
//
// # The model
//
// A session is one agent's working context. What it has read stays in it, so
// the session holds labels, and labels only rise. "internal" is data of the
// organisation's own; "pii" and "secret" are found in results by detectors; an
// operator may add more. These are confidentiality labels. [Untrusted] is the
// integrity label: it says that somebody outside wrote what the session has
// read, and it is always known.
//
// An operation is one thing an agent can call. A source emits labels: when its
// result is released, the session holds them. A sink is blocked by labels:
// while the session holds one of them, it is refused, because it could carry
// the data out. The operator says which is which with one word:
//
//	sensitivity       emits        is blocked by
//	internal_source   internal     nothing
//	external          nothing      every confidentiality label
//	both              internal     every confidentiality label
//	none              nothing      nothing
//
// and may name the labels instead (emits, blocked_by). An operation nobody
// described is external. [Resolve] turns the operator's words into an
// [Operation], and refuses words it doesn't know.
//
// # One function
//
// [Judge] is the rule of labels, and nothing else in this package decides: [Manifest], [SystemPrompt] and [OrderingHint] tell the agent
// beforehand what Judge will say, so that it can plan; [Validate] says it of a whole plan. Who enforces asks Judge before a call runs, or
// package provenance, whose JudgeCall also looks where the arguments came from, and calls [Raise] before a result is released. What
// Validate calls safe Judge allows, as long as results bring no labels beyond the declared ones.
//
// # Plans
//
// In a plan, a sink has to stand before every source that would block it, and
// a step has to stand after the steps whose results it needs. That is a
// precedence graph. What the session holds already blocks its sinks in any
// order. Apart from that a safe order exists exactly when the graph has no
// cycle, and Validate answers with the one nearest to the plan: it always takes
// the available step that was planned first. When there is none, the shortest
// cycle is the proof, and the report names the cheapest ways out: the steps to
// ask a person about, or to run in a session of their own.
//
// A step that is refused brings no labels, here as in enforcement.
//
// # What callers must keep
//
// Held labels are in the order in which they came, and nothing is taken away
// but by a person, on the record. Judge knows the labels an operation was
// resolved with: when the operator drops a label from the configuration while
// a session still holds it, the caller has to refuse that session or keep the
// label.
//
// Names go into structured fields as they are. In sentences, which a model
// reads, they are shortened and stripped of everything that isn't a letter, a
// digit or one of "_-.:/@", so that a tool's name can't give orders.
package flow

import (
	"fmt"
	"slices"
	"strings"

	"sallyport.example/internal/sentence"
)

// Label is something a session has in its context.
type Label string

const (
	// Internal is what an internal source emits unless the operator names other labels.
	Internal Label = "internal"
	// Untrusted is the integrity label. It blocks only what names it in blocked_by.
	Untrusted Label = "untrusted"
	// Unasked is the mark of a session that holds private data nobody asked for. Like a label it only rises, and says which call it came
	// with. It never refuses a call by itself: package provenance says when a session gets it, and what is asked about then.
	Unasked Label = "unasked"
)

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

// ParseSensitivity accepts the four classes by their exact words.
func ParseSensitivity(s string) (Sensitivity, error) {
	if v := Sensitivity(s); v.Valid() {
		return v, nil
	}
	return "", fmt.Errorf("sensitivity %.40q: use internal_source, external, both or none", s)
}

// Effect says whether an operation changes anything. It is shown, not judged here.
type Effect string

const (
	Read  Effect = "read"
	Write Effect = "write"
)

// Valid reports whether e is read or write.
func (e Effect) Valid() bool { return e == Read || e == Write }

// ParseEffect accepts the two effects by their exact words.
func ParseEffect(s string) (Effect, error) {
	if v := Effect(s); v.Valid() {
		return v, nil
	}
	return "", fmt.Errorf("effect %.40q: use read or write", s)
}

// Operation is an operation with nothing left to default: Emits and BlockedBy
// are the whole truth about it. Make it with [Resolve].
type Operation struct {
	ID          string // the operator's id, as "mail.search_email"
	Name        string // the tool name the agent sees
	Sensitivity Sensitivity
	Effect      Effect
	Emits       []Label // held by the session once a result is released
	BlockedBy   []Label // refused while the session holds one of these
}

// Spec is the operator's word on an operation before defaults. Nil Emits or
// BlockedBy mean the default of the sensitivity; empty ones mean none.
type Spec struct {
	ID          string
	Name        string
	Sensitivity Sensitivity // default external
	Effect      Effect      // default write
	Emits       *[]Label
	BlockedBy   *[]Label
	Untrusted   bool // the output is untrusted: adds Untrusted to Emits
}

// Resolve applies the defaults. Confidentiality is the operator's list of
// confidentiality labels; labels outside it (but for Untrusted) are errors, as
// is every other word that isn't known. Errors name the field and the remedy.
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
		if l == Untrusted || l == Unasked {
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
			// An emitted label that no sink knows would block nothing.
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

// Held is a label that a session holds, and what brought it.
type Held struct {
	Label     Label  `json:"label"`
	Operation string `json:"operation"` // operation id; "" when it was there from the start
	CallID    string `json:"call_id"`
	Cause     string `json:"cause,omitempty"` // in words, where no operation's result brought it
}

// Decision is Judge's answer.
type Decision struct {
	Allowed bool   `json:"allowed"`
	Because []Held `json:"because"` // what blocks: sorted by label, for each the earliest
	Reason  string `json:"reason"`  // a sentence fit for a model; "" when allowed
}

// Judge decides whether op may be called in a session that holds these labels
// (FL-2), whatever its arguments. Everything else in this package asks it. An
// operation whose sensitivity isn't known is refused. Adding to held never
// turns a refusal into a permission.
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

// allowed is the rule itself. Judge puts words to it; the plan's graph rests on
// its form: it looks at one held label at a time.
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

// Raise returns what a session holds after a result of op: everything it held,
// and the labels it didn't hold yet, those of op first and then extra ones (as
// found by a detector, FL-3). Nothing is ever dropped, and held isn't written
// to.
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
