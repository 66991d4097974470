package provenance

import (
	"fmt"
	"slices"
	"strings"

	"sallyport.example/flow"
	"sallyport.example/internal/sentence"
)

// UnaskedFor says in a sentence why the result of a read counts as unasked; "" if it does not, or if the session holds no untrusted content. Every
// argument that selects data has to be confirmed: all but flags, times and limits.
func UnaskedFor(op flow.Operation, p *Profile, args []byte, s Situation) string {
	if op.Sensitivity == flow.External && !slices.ContainsFunc(op.Emits, confidential) { // an outside source has nothing private, whatever a detector finds in its results
		return ""
	}
	if p == nil || !(p.Level == 0 || p.Level == 1 && s.FreeLevel1) || !slices.ContainsFunc(s.Held, untrusted) {
		return ""
	}
	bound := *p // its values have to come from records that the request singles out, as those of a write do
	bound.Level = 2
	t, _, ok := newTracer(op, &bound, args, &s)
	if !ok {
		return "its arguments can't be read"
	}
	if t.tooMany {
		return fmt.Sprintf("it has more than %d values", maxTraced)
	}
	t.core = true
	t.followed, _ = s.Plan.Follow(op.ID, p, args, s.Evidence)
	for _, v := range t.values {
		if selectsData(p, v) {
			if f := t.confirm(v); !f.Confirmed {
				return f.Text
			}
		}
	}
	return ""
}

// selectsData reports whether a value selects the data that is read.
func selectsData(p *Profile, v traced) bool {
	name := v.path[strings.LastIndexByte(v.path, '.')+1:]
	if _, labelled := p.labelledRole(v.path); !labelled || v.role == Query {
		f, ok := formOf(v.text)
		return takesID(name) || !labelled && !(ok && f.kind == number)
	}
	return v.role.Core() && v.role != Amount
}

// takesID reports whether the name of an argument says that it takes an id or a path: file_id, file-id, fileId and fileID do, grid does not.
func takesID(name string) bool {
	end := len(name)
	for end > 0 && name[end-1] >= '0' && name[end-1] <= '9' {
		end--
	}
	name = strings.TrimRight(name[:end], "_-")
	at := strings.LastIndexAny(name, "_-") + 1
	for i := len(name) - 1; i > at; i-- {
		if isUpper(name[i]) && !isUpper(name[i-1]) {
			at = i
		}
	}
	last := strings.ToLower(name[at:])
	return idNames[last] || idNames[strings.TrimSuffix(last, "s")]
}

func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }

var idNames = set("id uuid guid key path uri repo repository table")

// withdrawForUnasked withdraws the confirmation of every place to which data would go that nobody asked for: the person named the place but not
// this data. It keeps the person's own addresses, values that a person approved while the data was there, calls of which a sealed plan confirms
// every argument, and reads that have no room for data.
func (t *tracer) withdrawForUnasked() {
	if t.unasked == nil || t.followed.FullyConfirmed || t.repeatsRequest() {
		return
	}
	i := 0 // the findings begin with one for each such value
	for _, v := range t.values {
		if !v.role.Core() || v.role == Amount {
			continue
		}
		f := &t.findings[i]
		i++
		if !f.Confirmed || f.By == ByIdentity || f.By == ByApproval || t.approvedBefore(v) {
			continue
		}
		f.Confirmed, f.By = false, ByNone
		f.Text += fmt.Sprintf(", but nobody asked for the data that %s brought", sentence.Name(t.unasked.Operation))
	}
}

// confidential reports whether a label is about confidentiality.
func confidential(l flow.Label) bool { return !l.Marks() }

// WithUnasked adds Unasked to the labels of a result, if the ruling says that the result counts as unasked and it has a confidentiality label.
func (r Ruling) WithUnasked(labels []flow.Held, operation, callID string) []flow.Held {
	if r.Unasked == "" || !slices.ContainsFunc(labels, func(h flow.Held) bool { return confidential(h.Label) }) {
		return labels
	}
	return flow.Raise(labels, flow.Operation{ID: operation}, callID, flow.Unasked)
}
