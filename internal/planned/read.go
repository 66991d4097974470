// Package planned holds the plans that agents send: it reads their steps, judges the order that they make, and says what a plan confirms.
//
// Promises: a list of steps is read strictly and within bounds, and a fault says which field is wrong and what to do about it; nothing
// is looked up but what is passed in, and nothing is kept.
package planned

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/provenance"
)

// List is what a list of steps is called in the request, which is also what it is for.
type List string

const (
	Submitted List = "steps"         // a plan that is to be sealed: each step says why it is needed
	Asked     List = "planned_calls" // calls that are only asked about: a step may be a name alone
)

const (
	maxSteps         = 200
	maxBytes         = 64 << 10
	maxJustification = 2000 // bytes
	maxFrom          = 10   // arguments of one step that come from results
	maxAllFrom       = 200  // of all steps
	maxOpen          = 50   // arguments of one step that are left open
	maxName          = 128  // bytes of an argument's name
)

// Step is one step as it is sent: a name, or an object. Justification is for plans only.
type Step struct {
	Tool          string          `json:"tool"`
	Arguments     json.RawMessage `json:"arguments"` // canonical, once it is read
	After         []int           `json:"after"`
	Justification string          `json:"justification"`
	Open          []string        `json:"open"`
	Each          *int            `json:"each"`

	From map[string]provenance.Source `json:"-"` // read strictly
}

var stepFields = []string{"tool", "arguments", "from", "open", "each", "after", "justification"}

// malformed is a fault in the field at.
func malformed(at, format string, args ...any) *fault.Error {
	return fault.New(fault.RequestMalformed, format, args...).At(at)
}

// Read reads a request that is a list of steps and nothing else, strictly.
func Read(body json.RawMessage, list List) ([]Step, error) {
	limits := call.DefaultLimits()
	limits.Bytes = maxBytes
	if err := call.Check(body, limits); err != nil {
		return nil, err
	}
	if len(body) == 0 || body[0] != '{' {
		return nil, fault.New(fault.RequestMalformed, "the request must be an object with the list %s", list)
	}
	var raws []json.RawMessage
	for name, raw := range call.Members(body) {
		if name != string(list) {
			return nil, malformed(short(name), "unknown field").Try("The request has one field, %s.", list)
		}
		if err := json.Unmarshal(raw, &raws); err != nil {
			return nil, malformed(string(list), "must be a list")
		}
	}
	if len(raws) == 0 {
		return nil, malformed(string(list), "name at least one step")
	}
	if len(raws) > maxSteps {
		return nil, malformed(string(list), "at most %d steps", maxSteps)
	}
	steps := make([]Step, len(raws))
	for i, raw := range raws {
		var err error
		if steps[i], err = readStep(raw, i, list); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

// readStep reads the step with the number i.
func readStep(raw json.RawMessage, i int, list List) (st Step, err error) {
	at := list.at(i)
	if list == Asked && raw[0] == '"' {
		if err := json.Unmarshal(raw, &st.Tool); err != nil {
			return st, malformed(at, "not a tool name")
		}
		return st, nil
	}
	if raw[0] != '{' {
		return st, malformed(at, "must be an object with a tool")
	}
	for name := range call.Members(raw) { // to the letter: encoding/json would take Tool for tool
		if !slices.Contains(stepFields, name) {
			return st, malformed(at+"."+short(name), "unknown field").Try("A step has %s.", strings.Join(stepFields, ", "))
		}
	}
	if err := json.Unmarshal(raw, &st); err != nil {
		return st, malformed(at, "tool and justification are strings, arguments and from are objects, open is a list of argument names, after is a list of step numbers, each is one")
	}
	if st.Tool == "" {
		return st, malformed(at+".tool", "name the tool")
	}
	if a := st.Arguments; len(a) > 0 {
		if a[0] != '{' {
			return st, malformed(at+".arguments", "must be an object")
		}
		if st.Arguments, err = call.Canonical(a, call.DefaultLimits()); err != nil {
			return st, fault.Of(err).At(at + ".arguments")
		}
	}
	if raw, ok := call.Get(raw, "from"); ok {
		if st.From, err = readFrom(raw, i, at+".from"); err != nil {
			return st, err
		}
	}
	if e := st.Each; e != nil && (*e < 0 || *e >= i) {
		return st, malformed(at+".each", "must be the number of an earlier step, from 0")
	}
	if len(st.Open) > maxOpen {
		return st, malformed(at+".open", "at most %d arguments", maxOpen)
	}
	if list == Submitted {
		if strings.TrimSpace(st.Justification) == "" {
			return st, malformed(at+".justification", "say why the step is needed")
		}
		if len(st.Justification) > maxJustification {
			return st, malformed(at+".justification", "at most %d bytes", maxJustification)
		}
	}
	return st, nil
}

// at is where the step with the number i stands in the request.
func (l List) at(i int) string { return fmt.Sprintf("%s[%d]", l, i) }

// readFrom reads what a step's arguments come from, strictly. at is where the step stands in the request.
func readFrom(raw json.RawMessage, step int, at string) (map[string]provenance.Source, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, malformed(at, "must be an object: argument -> {step, field} or {step, role}")
	}
	from := map[string]provenance.Source{}
	for name, m := range call.Members(raw) {
		where := at + "." + short(name)
		switch {
		case len(from) == maxFrom:
			return nil, malformed(at, "at most %d arguments of a step come from results", maxFrom)
		case name == "" || len(name) > maxName || strings.Contains(name, "."):
			return nil, malformed(where, "name an argument of the tool's own: 1 to %d bytes, no point", maxName)
		case m[0] != '{':
			return nil, malformed(where, "must be an object {step, field} or {step, role}")
		}
		s := provenance.Source{Step: -1}
		for key, v := range call.Members(m) {
			var err error
			switch key {
			case "step":
				err = json.Unmarshal(v, &s.Step)
				if err != nil || string(v) == "null" {
					return nil, malformed(where+".step", "must be the number of a step, from 0")
				}
			case "field":
				if json.Unmarshal(v, &s.Field) != nil || s.Field == "" || len(s.Field) > provenance.MaxField {
					return nil, malformed(where+".field", "must be the path of a field in the step's result, names joined by points, 1 to %d bytes", provenance.MaxField)
				}
			case "role":
				var word string
				if json.Unmarshal(v, &word) != nil {
					return nil, malformed(where+".role", "must be a string")
				}
				if s.Role, err = provenance.ParseRole(word); err != nil {
					return nil, malformed(where+".role", "%s", err)
				}
			default:
				return nil, malformed(where+"."+short(key), "unknown field").Try("It has step, and field or role.")
			}
		}
		switch {
		case s.Step < 0 || s.Step >= step:
			return nil, malformed(where+".step", "must be the number of an earlier step, from 0")
		case (s.Field == "") == (s.Role == ""):
			return nil, malformed(where, "say the field that it comes from, or the role that it has, and not both")
		case s.Role == provenance.Credential:
			return nil, malformed(where+".role", "a credential never comes from a result")
		}
		from[name] = s
	}
	if len(from) == 0 {
		return nil, malformed(at, "name at least one argument, or leave it out")
	}
	return from, nil
}

// Needs are the steps whose results a step needs: those listed in after, and those that its arguments come from.
func (st *Step) Needs() []int {
	needs := slices.Clone(st.After)
	for _, name := range slices.Sorted(maps.Keys(st.From)) {
		if s := st.From[name].Step; !slices.Contains(needs, s) {
			needs = append(needs, s)
		}
	}
	return needs
}

// short bounds a hostile string for a message.
func short(s string) string { return display.Clip(s, 80) }

// shownWord is a name out of a call for a sentence.
func shownWord(s string) string { return short(display.Line(s, 80)) }
