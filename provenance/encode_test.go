package provenance

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sallyport.example/lab/sample"
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
					v := seenValue{Field: name.Draw(t, "field"), Text: text.Draw(t, "text"), Class: rapid.SampledFrom([]class{classTrusted, classSystem, classFree}).Draw(t, "class"), Hash: text.Draw(t, "hash"), ID: flag.Draw(t, "id"), Code: flag.Draw(t, "code"), Many: flag.Draw(t, "many")}
					if v.kind = rapid.SampledFrom([]kind{formless, mail, link, number, account, kind(5)}).Draw(t, "kind"); v.kind != formless {
						v.same = flag.Draw(t, "same")
					}
					return v
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
		bare := o.withoutKinds()
		if err := old.UnmarshalBinary(j); err != nil || !reflect.DeepEqual(old, bare) {
			t.Fatalf("%v\n%+v\n%+v", err, bare, old)
		}
		first, err := bare.MarshalBinary() // that of the first compact form differs by its number alone
		first[0] = withoutKinds
		if old := (Observation{}); err != nil || old.UnmarshalBinary(first) != nil || !reflect.DeepEqual(old, bare) {
			t.Fatalf("%v\n%+v\n%+v", err, bare, old)
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

// withoutKinds is the observation as versions before kept it.
func (o Observation) withoutKinds() Observation {
	o.Records = slices.Clone(o.Records)
	for i, r := range o.Records {
		r.Values = slices.Clone(r.Values)
		for j := range r.Values {
			r.Values[j].kind, r.Values[j].same = formless, false
		}
		o.Records[i] = r
	}
	return o
}

// What is kept of a value's form is what formOf finds, and kinds that no value has are refused.
func TestKeptKinds(t *testing.T) {
	request := ParseRequest("Pay the invoice of 'Blue Heron' to ann@books.example")
	for _, output := range []*Profile{{Output: TrustedOutput}, {TrustedFields: []string{"id", "key"}, Names: []string{"name"}, Delegable: []string{"from"}, IDKind: "mail"}} {
		for _, kind := range append(sample.Kinds, "own") {
			text := sample.Text(kind, 16<<10)
			if kind == "own" {
				text = `[{"id":"7","name":"Blue  Heron","from":"Ann <ann@Books.example>","to":["EVE@x.example","1.50","DE89 3704 0044 0532 0130 00","https://Books.example/","README.md"," x  Y ","\u200b","",null],"key":{"A b":1e2,"c":"007"}}]`
			}
			seen := Observe(output, request, Result{Values: []Value{TextValue(text)}})
			b, err := seen.MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			var kept Observation
			if err := kept.UnmarshalBinary(b); err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, r := range kept.Records {
				for _, v := range r.Values {
					n++
					got, ok := v.form()
					if want, has := formOf(v.Text); got != want || ok != has || v.kind == formless {
						t.Errorf("%s: %q is kept as %v %v, and is %v %v", kind, v.Text, got, ok, want, has)
					}
				}
			}
			if kind == "own" && n < 8 {
				t.Errorf("%d values are kept", n)
			}
		}
	}
	for _, v := range []seenValue{{Text: "7", kind: text + 1}, {Text: "7", same: true}} {
		b, err := Observation{Records: []seenRecord{{Values: []seenValue{v}}}}.MarshalBinary()
		if err != nil || new(Observation).UnmarshalBinary(b) == nil {
			t.Errorf("%+v is read, %v", v, err)
		}
	}
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
	many := Observation{Operation: "b", CallID: "c", IDKind: "d", Trusted: true, Cut: true, Records: make([]seenRecord, 3)}
	for i := range many.Records {
		many.Records[i] = seenRecord{Named: "n", Only: true, By: []namedBy{{Field: "f", Text: "t", ID: true, Many: true, List: true, Made: true}}, Values: slices.Repeat([]seenValue{{Field: "f", Text: "t", Hash: "h", Class: classTrusted, ID: true, Code: true, Many: true, kind: text, same: true}}, i+1)}
	}
	other, err := many.MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(other)
	f.Add([]byte{compactForm, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add([]byte(`{"operation":"a.find"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var o, again Observation
		err := o.UnmarshalBinary(b)
		var r Reader
		for i, before := range [][]byte{other, b} { // what was read before leaves nothing behind
			if _, err := r.Read(before); err != nil && i == 0 {
				t.Fatal(err)
			}
			if i == 1 {
				r.Clear()
			}
			if got, failed := r.Read(b); !reflect.DeepEqual(got, o) || (failed == nil) != (err == nil) {
				t.Fatalf("%q is %+v, %v, and behind others %+v, %v", b, o, err, got, failed)
			}
		}
		if err != nil {
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
