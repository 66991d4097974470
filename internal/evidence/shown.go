package evidence

import (
	"fmt"
	"slices"
	"strings"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/display"
	"sallyport.example/internal/judge"
	"sallyport.example/provenance"
)

// Finding is what the log has of a finding: everything but the value.
type Finding struct {
	Argument  string                  `json:"argument"`
	Role      provenance.Role         `json:"role"`
	Confirmed bool                    `json:"vouched"`
	By        provenance.Confirmation `json:"by,omitempty"`
	Text      string                  `json:"text"`
	Operation string                  `json:"operation,omitempty"`
	CallID    string                  `json:"call_id,omitempty"`
	Record    int                     `json:"record,omitempty"`
	Field     string                  `json:"field,omitempty"`
}

// ForRecord is what the log has of what the trace found; nil where nothing was traced.
func ForRecord(r *provenance.Ruling) []Finding {
	if r == nil {
		return nil
	}
	var all []Finding
	for _, f := range r.Evidence[:min(len(r.Evidence), judge.MaxShown)] {
		all = append(all, Finding{f.Argument, f.Role, f.Confirmed, f.By, f.Text, f.Operation, f.CallID, f.Record, f.Field})
	}
	return all
}

// ForPerson is what a person is shown of it.
func ForPerson(r *provenance.Ruling) []approval.Finding {
	if r == nil {
		return nil
	}
	var all []approval.Finding
	for _, f := range r.Evidence {
		all = append(all, approval.Finding{
			Argument: f.Argument, Role: string(f.Role), Value: f.Value, Confirmed: f.Confirmed, By: string(f.By), Text: f.Text, Operation: f.Operation, CallID: f.CallID,
			Record: f.Record, Field: f.Field, Covers: f.Covers,
		})
	}
	return all
}

// maxSources bounds the records that a question says its answer covers.
const maxSources = 10

// codeSource is the code of reasons that say what else a yes covers.
const codeSource = "flow.source"

// AlsoCovered says what else a yes to a call of the operation covers: one source is asked about once (PV-8).
func AlsoCovered(operation string, e *judge.Evidence) []approval.Reason {
	if !e.Unconfirmed() {
		return nil
	}
	var names []string
	var all []approval.Reason
	for _, f := range e.Ruling.Evidence {
		if f.Confirmed {
			continue
		}
		if (f.Role.Core() || f.Role.Soft()) && f.Value != "" { // not a link in what is sent, nor a value that is missing
			names = append(names, f.Argument)
		}
		if !f.Covers || len(all) == maxSources {
			continue
		}
		r := approval.Reason{Stage: "flow", Code: codeSource, Text: fmt.Sprintf(
			"Your yes also covers other values of %s that the system set in the same record (%d of %s), for the rest of this session.", shownWord(f.Argument), f.Record, f.Operation)}
		if !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return append(usedAgain(operation, names), all...)
}

// usedAgain says that an approval confirms the values of the arguments with these names beyond the one call.
func usedAgain(operation string, arguments []string) []approval.Reason {
	var names []string
	more := 0
	for _, name := range arguments {
		switch name = shownWord(name); {
		case slices.Contains(names, name):
		case len(names) == maxSources:
			more++
		default:
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	list := strings.Join(names, ", ")
	if more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return []approval.Reason{{Stage: "flow", Code: codeSource, Text: fmt.Sprintf(
		"Your yes also allows more calls of %s with the same %s in this session, with any other arguments.", operation, list)}}
}

// CoveredAnew are a question's reasons with those that say what else a yes covers made anew, by what the question shows. No yes to a drill covers
// another record.
func CoveredAnew(q approval.Approval) []approval.Reason {
	var all []approval.Reason
	again := false
	for _, r := range q.Reasons {
		switch {
		case r.Code != codeSource:
			all = append(all, r)
		case !again:
			again = true
			var names []string
			for _, f := range q.Evidence {
				if r := provenance.Role(f.Role); !f.Confirmed && (r.Core() || r.Soft()) && f.Value != "" {
					names = append(names, f.Argument)
				}
			}
			all = append(all, usedAgain(q.Operation, names)...)
		}
	}
	return all
}

// shownWord is a name out of a call for a sentence.
func shownWord(s string) string { return display.Clip(display.Line(s, 80), 80) }

// WasShown tells whether no value is unconfirmed by now that the person who answered was not shown as unconfirmed.
func WasShown(e *judge.Evidence, a *approval.Approval) bool {
	if !e.Unconfirmed() {
		return true
	}
	return slices.ContainsFunc(a.Reasons, func(r approval.Reason) bool { return r.Stage == "flow" }) &&
		!slices.ContainsFunc(e.Ruling.Evidence, func(f provenance.Finding) bool {
			return !f.Confirmed && !slices.ContainsFunc(a.Evidence, func(s approval.Finding) bool { return s.Argument == f.Argument && s.Value == f.Value && !s.Confirmed })
		})
}
