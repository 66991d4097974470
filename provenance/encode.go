package provenance

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
)

// This file is the form in which an Observation is kept. Records have a compact one, which begins with the byte compactForm: the length of each text
// stands before it, numbers are unsigned varints, and field names and classes stand once each. With the flags of a value stands the kind that formOf
// found, so that who reads it need not look again; when formOf changes, compactForm does. Approvals and what a call gave away are rare, and JSON.
// So were records in versions before, which are still read, as are those that begin with withoutKinds.

const (
	withoutKinds = 1
	compactForm  = 2
)

var errForm = errors.New("evidence: its form is broken")

// MarshalBinary encodes the observation.
func (o Observation) MarshalBinary() ([]byte, error) {
	if o.Approved != nil || o.GivenAway != nil || len(o.Records) == 0 {
		return json.Marshal(o)
	}
	e := encoder{names: map[string]uint64{}, b: make([]byte, 1, 256+32*o.size())}
	e.b[0] = compactForm
	for _, s := range []string{o.Operation, o.CallID, o.IDKind} {
		e.text(s)
	}
	e.flags(o.Trusted, o.Cut)
	e.number(len(o.Records))
	for i := range o.Records {
		r := &o.Records[i]
		e.name(r.Named)
		e.flags(r.Only)
		e.number(len(r.By))
		for _, by := range r.By {
			e.name(by.Field)
			e.text(by.Text)
			e.flags(by.ID, by.Many, by.List, by.Made)
		}
		e.number(len(r.Values))
		for j := range r.Values {
			v := &r.Values[j]
			e.name(v.Field)
			e.class(v.Class)
			e.flags(v.ID, v.Code, v.Many, v.Hash != "", v.kind&1 != 0, v.kind&2 != 0, v.kind&4 != 0, v.same)
			e.text(v.Text)
			if v.Hash != "" {
				e.text(v.Hash)
			}
		}
	}
	return e.b, nil
}

// UnmarshalBinary decodes what MarshalBinary has encoded, in this version or one before.
func (o *Observation) UnmarshalBinary(b []byte) error {
	read, err := new(Reader).Read(b)
	if err == nil {
		*o = read
	}
	return err
}

// Reader decodes observations one after another, in the same memory. The zero Reader is ready.
type Reader struct {
	records []seenRecord
	values  []seenValue
}

const (
	likelyValue    = 24            // bytes that one value takes
	maxReaderKeeps = maxSeenValues // for how many records and values a Reader keeps memory, once it is cleared
)

// Clear forgets what was read.
func (r *Reader) Clear() {
	if cap(r.records) > maxReaderKeeps || cap(r.values) > maxReaderKeeps {
		*r = Reader{}
		return
	}
	clear(r.records[:cap(r.records)])
	clear(r.values[:cap(r.values)])
}

// Read decodes what Observation.MarshalBinary has encoded. The observation counts until the next one is read, or the Reader is cleared.
func (r *Reader) Read(b []byte) (o Observation, err error) {
	if len(b) == 0 || b[0] != compactForm && b[0] != withoutKinds {
		err = json.Unmarshal(b, &o)
		return o, err
	}
	d := scanner{rest: string(b[1:])}
	var read Observation
	read.Operation, read.CallID, read.IDKind = d.text(), d.text(), d.text()
	d.flags(&read.Trusted, &read.Cut)
	read.Records = append(r.records[:0], make([]seenRecord, d.number())...)
	values := slices.Grow(r.values[:0], len(b)/likelyValue+1)
	for i := range read.Records {
		r := &read.Records[i]
		r.Named = d.name()
		d.flags(&r.Only)
		if n := d.number(); n > 0 {
			r.By = make([]namedBy, n)
		}
		for j := range r.By {
			by := &r.By[j]
			by.Field, by.Text = d.name(), d.text()
			d.flags(&by.ID, &by.Many, &by.List, &by.Made)
		}
		first := len(values)
		for range d.number() {
			values = append(values, seenValue{})
			v, hidden := &values[len(values)-1], false
			v.Field = d.name()
			if v.Class.UnmarshalText([]byte(d.name())) != nil {
				d.fail()
			}
			if b[0] == withoutKinds {
				d.flags(&v.ID, &v.Code, &v.Many, &hidden)
			} else {
				d.value(v, &hidden)
			}
			if v.Text = d.text(); hidden {
				v.Hash = d.text()
			}
			if d.broken {
				break
			}
		}
		r.Values = values[first:len(values):len(values)] // when values outgrow their memory, these stay where they are
		if d.broken {
			break
		}
	}
	r.records, r.values = read.Records, values
	if d.broken || d.rest != "" || len(read.Records) == 0 {
		return Observation{}, errForm
	}
	return read, nil
}

type encoder struct {
	b       []byte
	names   map[string]uint64 // numbers of those that were written, from 1
	classes [256]uint64       // of classes as names
}

func (e *encoder) number(n int) { e.b = binary.AppendUvarint(e.b, uint64(n)) }

func (e *encoder) text(s string) {
	e.number(len(s))
	e.b = append(e.b, s...)
}

// name writes the number of a name, or 0 and the name where it is new.
func (e *encoder) name(s string) {
	if n := e.names[s]; n != 0 {
		e.b = binary.AppendUvarint(e.b, n)
		return
	}
	e.names[s] = uint64(len(e.names) + 1)
	e.number(0)
	e.text(s)
}

// class writes a class as a name: most values have one of a few.
func (e *encoder) class(c class) {
	if n := e.classes[c]; n != 0 {
		e.b = binary.AppendUvarint(e.b, n)
		return
	}
	e.name(c.String())
	e.classes[c] = e.names[c.String()]
}

func (e *encoder) flags(all ...bool) {
	var b byte
	for i, yes := range all {
		if yes {
			b |= 1 << i
		}
	}
	e.b = append(e.b, b)
}

// scanner reads what an encoder wrote. Once it is broken it reads nothing more.
type scanner struct {
	rest   string
	names  []string
	broken bool
}

func (d *scanner) fail() {
	d.broken, d.rest = true, ""
}

// number reads a number. It counts what follows, each of at least one byte, or bytes, or names, so it is never more than what is left.
func (d *scanner) number() int {
	n, size := uint64(0), 0
	for size < len(d.rest) && size < binary.MaxVarintLen32 {
		c := d.rest[size]
		n |= uint64(c&0x7f) << (7 * size)
		if size++; c < 0x80 {
			if d.rest = d.rest[size:]; n <= uint64(len(d.rest)+len(d.names)) {
				return int(n)
			}
			break
		}
	}
	d.fail()
	return 0
}

func (d *scanner) text() string {
	n := d.number()
	if n > len(d.rest) {
		d.fail()
		return ""
	}
	s := d.rest[:n]
	d.rest = d.rest[n:]
	return s
}

func (d *scanner) name() string {
	switch n := d.number(); {
	case n == 0:
		s := d.text()
		d.names = append(d.names, s)
		return s
	case n <= len(d.names):
		return d.names[n-1]
	}
	d.fail()
	return ""
}

// value reads the flags of a value.
func (d *scanner) value(v *seenValue, hidden *bool) {
	var one, two, four bool
	d.flags(&v.ID, &v.Code, &v.Many, hidden, &one, &two, &four, &v.same)
	for i, set := range []bool{one, two, four} {
		if set {
			v.kind |= 1 << i
		}
	}
	if v.kind > text || v.kind == formless && v.same {
		d.fail()
	}
}

func (d *scanner) flags(all ...*bool) {
	if d.rest == "" {
		d.fail()
		return
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	for i, yes := range all {
		*yes = b&(1<<i) != 0
	}
	if b>>len(all) != 0 {
		d.fail()
	}
}
