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
	"sallyport.example/internal/threat"
	"sallyport.example/provenance"
)

// Unexplained is the code of the objection that the agent gave no reason.
const Unexplained = "unexplained"

// objections are what speaks against the call, the strongest first.
func (r *reviewer) objections(of Review) []Objection {
	var all []Objection
	for _, v := range of.Values {
		if why := threat.NameLookalike(v.Text); why != "" && reaches(v) {
			all = append(all, Objection{Code: "lookalike", Argument: v.Argument, Title: "Look at the " + v.Thing(), Text: v.Text + ": " + why + ".", weight: 100})
		}
		if o, ok := r.against(v); ok {
			all = append(all, o)
		}
	}
	if r.dataLeaves() {
		all = append(all, r.leaving(of))
	}
	if r.Rejected != "" {
		all = append(all, Objection{Code: "rejected", Title: "Rejected before", Text: "A person rejected a call to the same destination: " + r.Rejected, weight: 55})
	}
	for _, reason := range r.Approval.Reasons {
		switch {
		case reason == approval.NoReason:
			all = append(all, Objection{Code: Unexplained, Title: "No reason given", Text: approval.NoReason.Text, weight: 30})
		case reason.Code == string(fault.PlanMismatch):
			all = append(all, Objection{Code: "off_plan", Title: "Not in the plan", Text: "The approved plan has no such step.", weight: 40})
		case reason.Code == "risk.unreadable_amount":
			all = append(all, Objection{Code: "amount", Title: "The amount can’t be read", Text: reason.Text, weight: 50})
		}
	}
	slices.SortStableFunc(all, func(a, b Objection) int { return cmp.Compare(b.weight, a.weight) })
	all = slices.CompactFunc(all, func(a, b Objection) bool { return a.Code == b.Code && a.Title == b.Title && a.Text == b.Text })
	return all[:min(len(all), maxObjections)]
}

// reaches tells whether a value says who or what a call reaches.
func reaches(v Value) bool {
	switch provenance.Role(v.Role) {
	case provenance.Destination, provenance.URL, provenance.Identity:
		return true
	}
	return false
}

// Thing is what a value is, to be looked at: "account".
func (v Value) Thing() string {
	switch role := provenance.Role(v.Role); {
	case role == provenance.Amount:
		return "amount"
	case v.kind == "account":
		return "account"
	case v.kind == "link" || role == provenance.URL:
		return "address"
	case v.kind == "mail":
		return "address"
	case role == provenance.Destination || role == provenance.Identity:
		return "recipient"
	}
	return v.Argument
}

// against is what speaks against one value.
func (r *reviewer) against(v Value) (Objection, bool) {
	if len(v.Others) > 0 && v.Verdict == Confirmed && v.Core { // calculated, and a record has another
		return Objection{Code: "contradiction", Argument: v.Argument, Title: "Look at the " + v.Thing(), Text: "Calculated by the agent. " + another(v), weight: 60}, true
	}
	if v.Verdict != Unconfirmed || !v.Core {
		return Objection{}, false
	}
	o := Objection{Code: "unconfirmed", Argument: v.Argument, Title: "Look at the " + v.Thing(), Text: whence(v)}
	switch {
	case v.missing:
		o.Code, o.Title, o.Text, o.weight = "missing", "No "+v.Argument, "The call names no "+v.Argument+": the tool chooses where it goes.", 65
	case v.resembles != "":
		o.Code, o.Text, o.weight = "lookalike", "Can be taken for "+v.resembles+". "+o.Text, 98
	case len(v.Others) > 0:
		o.Code, o.Text, o.weight = "contradiction", o.Text+" "+another(v), 90
	case len(v.Seen) == 0:
		o.weight = 70
	case v.Seen[0].Outsider:
		o.weight = 80
	default:
		o.weight = 66
	}
	if provenance.Role(v.Role) == provenance.Amount { // whom it reaches comes first
		o.weight -= 2
	}
	return o, true
}

// whence says of an unconfirmed value where it came from.
func whence(v Value) string {
	if len(v.Seen) == 0 {
		return "Not named by the person, and in nothing that this session has read."
	}
	first := v.Seen[0]
	if first.Outsider {
		return "Not named by the person. Seen only in " + first.Place + clock(first.At) + "."
	}
	return "Not named by the person. It is from " + first.Place + clock(first.At) + ", which the request does not name."
}

// another says which other value stands in the place of this one.
func another(v Value) string {
	o := v.Others[0]
	switch role := provenance.Role(v.Role); {
	case role == provenance.Selector, role == provenance.Target:
		return "The request names " + o.Place + "."
	case o.Place == "the request":
		return "The request says " + Short(o.Value) + "."
	}
	return upper(o.Place) + " has another: " + Short(o.Value) + "."
}

func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// clock is the time of day of a call, in brackets.
func clock(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return " (" + at.UTC().Format("15:04") + ")"
}

// leaving says which private data could leave, and where to.
func (r *reviewer) leaving(of Review) Objection {
	text, argument := "Private data could leave", ""
	if len(of.To) > 0 {
		text = "Private data could go to " + Short(of.To[0])
	}
	if !strings.HasSuffix(text, "…") { // an address that was cut ends the sentence itself
		text += "."
	}
	for _, v := range of.Values {
		if v.MustCheck() && reaches(v) {
			text, argument = text+" "+whence(v), v.Argument
			break
		}
	}
	for _, h := range r.Held {
		if h.Label.Marks() {
			continue
		}
		text += fmt.Sprintf(" This session has read %s%s.", Data(string(h.Label)), source(h))
		break
	}
	return Objection{Code: "leaving", Argument: argument, Title: "Private data could leave", Text: text, weight: 95}
}

// Data names what a session has read that holds the label.
func Data(label string) string {
	switch label {
	case "internal":
		return "internal data"
	case "pii":
		return "personal data"
	case "secret":
		return "secrets"
	case string(flow.Untrusted):
		return "text that a stranger may have written"
	case string(flow.Unasked):
		return "data that nobody asked for"
	case string(flow.Flagged):
		return "words that read like orders to an agent"
	}
	return "data labelled " + label
}

// source is the call that brought a label, in brackets.
func source(h flow.Held) string {
	if h.Operation == "" {
		return ""
	}
	_, tool, _ := strings.Cut(h.Operation, ".")
	if at := call.TimeOf(h.CallID); !at.IsZero() {
		return " (" + tool + ", " + at.UTC().Format("15:04") + ")"
	}
	return " (" + tool + ")"
}
