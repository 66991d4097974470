package provenance

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// What is kept of records says what was seen, in the compact form as in the JSON of versions before.
func TestKeptForm(t *testing.T) {
	text := rapid.StringOfN(rapid.SampledFrom([]rune("ab\x00\n\"é\U0001f600")), 0, 6, -1)
	name := rapid.SampledFrom([]string{"", "id", "sender", "a.b[0]"})
	flag := rapid.Bool()
	rapid.Check(t, func(t *rapid.T) {
		o := Observation{Operation: text.Draw(t, "operation"), CallID: text.Draw(t, "call"), IDKind: text.Draw(t, "kind"), Trusted: flag.Draw(t, "trusted"), Cut: flag.Draw(t, "cut")}
		o.Records = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) seenRecord {
			return seenRecord{
				Named: name.Draw(t, "named"), Only: flag.Draw(t, "only"),
				By: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) namedBy {
					return namedBy{name.Draw(t, "field"), text.Draw(t, "text"), flag.Draw(t, "id"), flag.Draw(t, "many"), flag.Draw(t, "list"), flag.Draw(t, "made")}
				}), 0, 3).Draw(t, "by"),
				Values: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) seenValue {
					return seenValue{name.Draw(t, "field"), text.Draw(t, "text"), rapid.SampledFrom([]class{classTrusted, classSystem, classFree}).Draw(t, "class"), text.Draw(t, "hash"), flag.Draw(t, "id"), flag.Draw(t, "code"), flag.Draw(t, "many")}
				}), 0, 4).Draw(t, "values"),
			}
		}), 1, 4).Draw(t, "records")
		for i := range o.Records {
			if len(o.Records[i].By) == 0 {
				o.Records[i].By = nil
			}
		}
		b, err := o.MarshalBinary()
		if err != nil || b[0] != compactForm {
			t.Fatal(b, err)
		}
		var got, old Observation
		if err := got.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(got, o) {
			t.Fatalf("%v\n%+v\n%+v", err, o, got)
		}
		j, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := old.UnmarshalBinary(j); err != nil || !reflect.DeepEqual(old, o) {
			t.Fatalf("%v\n%+v\n%+v", err, o, old)
		}
		for i := range b { // cut short, it is refused as a whole
			if err := got.UnmarshalBinary(b[:i]); err == nil {
				t.Fatalf("%d of %d bytes are read", i, len(b))
			}
		}
		if err := got.UnmarshalBinary(append(bytes.Clone(b), 0)); err == nil {
			t.Fatal("a byte too many is read")
		}
		if !reflect.DeepEqual(got, o) {
			t.Fatal("a broken form has changed an observation")
		}
	})
}

func TestKeptFormOfOtherPieces(t *testing.T) {
	for _, o := range []Observation{{}, {Operation: "a.find", Cut: true}, {CallID: "c", GivenAway: &givenAway{}}, {Approved: &approved{Values: []approvedValue{{"to", "ann@books.example"}}}}} {
		b, err := o.MarshalBinary()
		if err != nil || b[0] != '{' {
			t.Errorf("%+v is %q, %v", o, b, err)
		}
		var got Observation
		if err := got.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(got, o) {
			t.Errorf("%+v, read as %+v, %v", o, got, err)
		}
	}
}

// Whatever stands in the database, it is read whole or refused, in memory of its own size.
func FuzzKeptForm(f *testing.F) {
	o := Observation{Operation: "a.find", CallID: "call_1", Records: []seenRecord{{Named: "id", By: []namedBy{{Field: "id", Text: "7", ID: true}}, Values: []seenValue{{Field: "id", Text: "7", Class: classSystem, ID: true}, {Field: "note", Class: classFree, Hash: "h"}}}}}
	b, err := o.MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Add([]byte{compactForm, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add([]byte(`{"operation":"a.find"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var o, again Observation
		if o.UnmarshalBinary(b) != nil {
			return
		}
		next, err := o.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if err := again.UnmarshalBinary(next); err != nil {
			t.Fatalf("%q became %q: %v", b, next, err)
		}
		if twice, err := again.MarshalBinary(); err != nil || !bytes.Equal(next, twice) {
			t.Fatalf("%q became %q, and that %q, %v", b, next, twice, err)
		}
	})
}
