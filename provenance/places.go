package provenance

import (
	"slices"
	"strings"
)

// A Reach says which records of its kind (Profile.IDKind) a call writes, or gives back.
type Reach struct {
	IDs  []string // of records, in the form in which they are compared; sorted
	Any  bool     // it may be any record of the kind, so IDs are not all of them
	Adds bool     // of a write: it selects no record, so it makes a new one
}

// Kind is the kind of the records, in the form in which kinds are compared; "" if nobody said it.
func (p *Profile) Kind() string {
	if p == nil {
		return ""
	}
	return bareName(clipField(p.IDKind))
}

// maxReached bounds the ids of one call, in all their spellings. A call that has more may reach any record.
const maxReached = 400

// CallReach says which records the arguments of a call select. A write that is said nothing of may change any record.
func (p *Profile) CallReach(args []byte, writes bool) Reach {
	v, err := decode(args)
	if p == nil || p.IDKind == "" || err != nil || !p.HasRoles() {
		return Reach{Any: true}
	}
	var w wrote
	w.read(p, v)
	var r Reach
	for _, id := range w.IDs {
		r.add(id)
	}
	r.Any = r.Any || w.Any || len(r.IDs) == 0 && (!writes || w.Selects)
	r.Adds = !r.Any && len(r.IDs) == 0
	return r.sorted()
}

// ResultReach says which records stand in a result. It has all of them only if the system has set the id of each record in it.
func (p *Profile) ResultReach(values []Value) Reach {
	if p == nil || p.IDKind == "" || len(values) == 0 || len(values) > maxPayloads {
		return Reach{Any: true}
	}
	o, r, size := observer{p: p, trusted: p.Output == TrustedOutput}, Reach{}, 0
	for _, v := range values {
		if size += v.size; !v.known || size > maxParsed {
			return Reach{Any: true}
		}
		leaves(v.value, "", func(path string, value any) { // also of records inside others
			if s, ok := scalar(value); ok && idField(path[strings.LastIndexByte(path, '.')+1:], p.IDKind) {
				r.add(s)
			}
		})
		records := o.split(nil, v.value, true)
		r.Any = r.Any || len(records) > maxRecords || slices.ContainsFunc(records, func(rec record) bool {
			return !slices.ContainsFunc(rec.fields, func(f field) bool {
				return !f.key && f.of.id && f.of.class.trusted()
			})
		})
	}
	return r.sorted()
}

// add adds an id, as it may be meant. One that is not compared may be any.
func (r *Reach) add(id string) {
	values := selected(id)
	if r.Any = r.Any || len(values) == 0 || len(r.IDs)+len(values) > maxReached; !r.Any {
		r.IDs = append(r.IDs, values...)
	}
}

func (r Reach) sorted() Reach {
	slices.Sort(r.IDs)
	r.IDs = slices.Compact(r.IDs)
	return r
}
