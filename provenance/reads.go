package provenance

import "slices"

// Read is one record of a result as people are shown it: where a value of a call was seen, and which other value stands in the place where
// one would look for it. It informs. Nothing is confirmed by it, whatever it has.
type Read struct {
	Operation, CallID string
	Number            int    // in the result of that call, from 1
	Named             string // the value by which the request names the record; "": it does not
	Trusted           bool   // no outsider can have written it
	Values            []ReadValue
}

// ReadValue is one value of a Read. It may be hostile.
type ReadValue struct {
	Field   string
	Text    string
	Trusted bool // no outsider can have written it
	Part    bool // it stands in a longer text, or is one of several side by side
}

// Reads are the records of the result; none for what was approved or given away. Values that were hidden are left out.
func (o Observation) Reads() []Read {
	var all []Read
	for i, rec := range o.Records {
		r := Read{Operation: o.Operation, CallID: o.CallID, Number: i + 1, Trusted: o.Trusted}
		for _, by := range rec.By {
			if !by.Many && !by.Made {
				r.Named = by.Text
				break
			}
		}
		whole := map[string]bool{} // fields whose whole text was kept: what follows under the name are its parts
		for _, v := range rec.Values {
			if v.Text == "" {
				continue
			}
			r.Values = append(r.Values, ReadValue{Field: v.Field, Text: v.Text, Trusted: v.Class.trusted(), Part: v.Many || whole[v.Field]})
			whole[v.Field] = true
		}
		all = append(all, r)
	}
	return all
}

// Kind is the kind of a value: mail, link, number, account or text, as values are compared; "" for what equals nothing.
func Kind(value string) string {
	f, ok := formOf(value)
	if !ok {
		return ""
	}
	return [...]string{formless: "", mail: "mail", link: "link", number: "number", account: "account", text: "text"}[f.kind]
}

// Comparison compares other values with one.
type Comparison struct {
	forms []form
	kind  kind
}

// Compare prepares to compare others with a value.
func Compare(value string) Comparison {
	f, ok := formOf(value)
	if !ok {
		return Comparison{}
	}
	c := Comparison{forms: []form{f}, kind: f.kind}
	if other, ok := f.regrouped(); ok {
		c.forms = append(c.forms, other)
	}
	return c
}

// With reports whether the other value is the same, and whether it is of the same kind.
func (c Comparison) With(other string) (same, alike bool) {
	f, ok := formOf(other)
	if !ok || len(c.forms) == 0 {
		return false, false
	}
	return slices.Contains(c.forms, f), f.kind == c.kind
}

// Leaf is one value of the arguments of a call.
type Leaf struct {
	Path  string // names joined by points, without list positions, as findings have it
	Value any    // string, json.Number or bool
}

// Leaves are the values of a call's arguments, in their order; nil for what is not JSON.
func Leaves(arguments []byte) []Leaf {
	v, err := decode(arguments)
	if err != nil {
		return nil
	}
	var all []Leaf
	leaves(v, "", func(path string, value any) { all = append(all, Leaf{path, value}) })
	return all
}

// Has reports whether the request has the value as a whole.
func (r *Request) Has(value string) bool {
	f, ok := formOf(value)
	return ok && r != nil && r.has(f)
}
