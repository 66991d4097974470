package provenance

import (
	"fmt"
	"slices"
	"strings"

	"sallyport.example/flow"
	"sallyport.example/internal/sentence"
)

// UnaskedFor says why what a read brings counts as unasked for, in a sentence; "" if it does not, as in a session without untrusted content.
// It asks for every argument that says what is read: all but switches, times and numbers that only bound a look.
func UnaskedFor(op flow.Operation, p *Profile, args []byte, s Situation) string {
	if op.Sensitivity == flow.External && !slices.ContainsFunc(op.Emits, confidential) { // nothing outside is private, whatever a detector finds in it
		return ""
	}
	if p == nil || !(p.Level == 0 || p.Level == 1 && s.FreeLevel1) || !slices.ContainsFunc(s.Held, func(h flow.Held) bool { return h.Label == flow.Untrusted }) {
		return ""
	}
	bound := *p // its values come from records that the person singled out, as those of a write do
	bound.Level = 2
	t := tracer{op: op, p: &bound, s: &s}
	v, err := decode(args)
	if _, isObject := v.(object); err != nil || !isObject {
		return "its arguments can't be read"
	}
	t.read(v)
	if t.tooMany {
		return fmt.Sprintf("it has more than %d values", maxTraced)
	}
	t.core = true
	t.followed, _ = s.Plan.Follow(op.ID, p, args, s.Evidence)
	for _, v := range t.values {
		if selects(p, v) {
			if f := t.vouch(v); !f.Vouched {
				return f.Text
			}
		}
	}
	return ""
}

// selects reports whether a value says what is read.
func selects(p *Profile, v traced) bool {
	name := v.path[strings.LastIndexByte(v.path, '.')+1:]
	if _, told := p.told(v.path); !told || v.role == Query {
		f, ok := formOf(v.text)
		return idName(name) || !told && !(ok && f.kind == number)
	}
	return v.role.Core() && v.role != Amount
}

// idName reports whether an argument's name says that it takes an id or a path: file_id, file-id, fileId and fileID do, grid doesn't.
func idName(name string) bool {
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

// doubt takes the voucher away from each place to which data would go that nobody asked for: the person named the place, and not this data.
// Their own addresses stay, and what they said yes to knowing of it; so does a call in which nothing stands but what a person's plan says.
func (t *tracer) doubt() {
	if t.unasked == nil || t.followed.Exact {
		return
	}
	i := 0 // trace has a finding of each such value, before all others
	for _, v := range t.values {
		if !v.role.Core() || v.role == Amount {
			continue
		}
		f := &t.findings[i]
		i++
		if !f.Vouched || f.By == ByOwn || f.By == ByApproval || t.agreed(v) {
			continue
		}
		f.Vouched, f.By = false, ByNothing
		f.Text += fmt.Sprintf(", but nobody asked for the data that %s brought", sentence.Name(t.unasked.Operation))
	}
}

func confidential(l flow.Label) bool { return l != flow.Untrusted && l != flow.Unasked }

// Brings adds Unasked to the labels that a result brings, where the call's ruling says so and one of them is a confidentiality label.
func (r Ruling) Brings(labels []flow.Held, operation, callID string) []flow.Held {
	if r.Unasked == "" || !slices.ContainsFunc(labels, func(h flow.Held) bool { return confidential(h.Label) }) {
		return labels
	}
	return flow.Raise(labels, flow.Operation{ID: operation}, callID, flow.Unasked)
}
