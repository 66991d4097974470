package evidence

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sallyport.example/internal/call"
	"sallyport.example/provenance"
)

// kept is a store with the evidence of one session, and notes from where on it was read.
type kept struct {
	all   []Kept
	after []int64
}

func (k *kept) Evidence(_ context.Context, _ string, after int64) ([]Kept, error) {
	k.after = append(k.after, after)
	return k.all[after:], nil
}

func (*kept) KeyedHash(of, value string) string { return call.HashBytes([]byte(of + value)) }

func (k *kept) add(t *testing.T, rules string, seen provenance.Observation) {
	t.Helper()
	body, err := json.Marshal(seen)
	if err != nil {
		t.Fatal(err)
	}
	k.all = append(k.all, Kept{Seq: int64(len(k.all) + 1), Rules: rules, Body: body})
}

// The index reads what is new, and everything again when the operator's word on an operation has changed.
func TestIndexIsReadAgain(t *testing.T) {
	k, x, rules := &kept{}, &Index{}, "one"
	use := func() {
		t.Helper()
		if err := x.Use(t.Context(), k, "s", func(string) string { return rules }, func(e *provenance.Evidence) {
			if e != &x.index {
				t.Error("another index")
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	k.add(t, "one", provenance.Observation{Operation: "a.find"})
	use()
	k.add(t, "one", provenance.Observation{Operation: "a.find"})
	use()
	use()
	rules = "two"
	use()
	if want := []int64{0, 1, 2, 0}; !slices.Equal(k.after, want) {
		t.Errorf("read after %v, want %v", k.after, want)
	}
	k.all = append(k.all, Kept{Seq: 3, Body: []byte("{")})
	if err := x.Use(t.Context(), k, "s", func(string) string { return rules }, func(*provenance.Evidence) { t.Error("asked all the same") }); err == nil {
		t.Error("evidence that can't be read is passed over")
	}
}

// The next session takes over what was given away and nothing else; above the bounds, one piece that says that it may have been anything.
func TestTakenOver(t *testing.T) {
	k, from := &kept{}, Source{CallID: "call_1", Operation: "a.send", Profile: &provenance.Profile{}, Rules: "rules"}
	k.add(t, "", provenance.Observation{Operation: "a.find"})
	all, err := from.GivenAway(Sent{Arguments: []byte(`{"to":"x@example.com"}`)})
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	given := all[0]
	k.all = append(k.all, given)
	got, err := TakenOver(k.all)
	if err != nil || len(got) != 1 || !bytes.Equal(got[0].Body, given.Body) {
		t.Errorf("%+v %v", got, err)
	}
	many := slices.Repeat([]Kept{given}, maxTaken)
	if got, err := TakenOver(many); err != nil || len(got) != maxTaken {
		t.Errorf("%d pieces, %v", len(got), err)
	}
	if got, err := TakenOver(append(many, given)); err != nil || len(got) != 1 || got[0].CallID != "session" {
		t.Errorf("%d pieces, %v", len(got), err)
	}
	results := slices.Repeat(k.all[:1], MaxPieces-2)
	if got, err := TakenOver(append(results, given)); err != nil || len(got) != 1 || got[0].CallID != "call_1" {
		t.Errorf("behind many results %+v, %v", got, err)
	}
	for name, full := range map[string][]Kept{"pieces": append(results, given, given), "bytes": {given, {Body: []byte(Full)}}} { // what was given away later is not there
		if got, err := TakenOver(full); err != nil || len(got) != 1 || got[0].CallID != "session" {
			t.Errorf("full of %s: %+v, %v", name, got, err)
		}
	}
	if _, err := TakenOver([]Kept{{Body: []byte("{")}}); err == nil {
		t.Error("evidence that can't be read is left behind")
	}
}

// What is too large to be kept confirms nothing, or may have given anything away.
func TestPiecesAreBounded(t *testing.T) {
	from := Source{CallID: "call_1", Operation: "a.send", Profile: &provenance.Profile{}, Rules: "rules"}
	if got := from.Observed(provenance.Observation{Operation: "a.send"}); got != nil {
		t.Errorf("%d pieces of a result that shows nothing", len(got))
	}
	seen := provenance.Observe(nil, provenance.ParseRequest(""), provenance.Result{Operation: "a.find", Values: []provenance.Value{provenance.JSONValue([]byte(`{"mail":"ann@books.example"}`))}})
	if got := from.Observed(seen); len(got) != 1 {
		t.Fatalf("%d pieces", len(got))
	}
	seen.Operation = strings.Repeat("x", maxBody)
	if got := from.Observed(seen); got != nil {
		t.Errorf("%d pieces of a result that shows too much", len(got))
	}
	var large bytes.Buffer
	large.WriteString(`{"x":["`)
	for i := range 200_000 {
		fmt.Fprintf(&large, "%06d@example.com\",\"", i)
	}
	large.WriteString(`"]}`)
	all, err := from.GivenAway(Sent{Arguments: large.Bytes()})
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	given := all[0]
	if err != nil || len(given.Body) > maxBody || given.CallID != "call_1" || given.Rules != "rules" {
		t.Errorf("%d bytes, %v", len(given.Body), err)
	}
	if got, err := TakenOver([]Kept{given}); err != nil || len(got) != 1 {
		t.Errorf("%d pieces, %v", len(got), err)
	}
}
