package provenance

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// A question whether a record may only repeat a value is answered as by looking up all that was given, in whatever order records are asked about.
func TestRepeatsIsGivenSince(t *testing.T) {
	unreadable := "%" + strings.Repeat("25", 12) + "40"
	if _, ok := readings(unreadable); ok || len(unreadable) > maxValue {
		t.Fatal("it can be read")
	}
	pieces := []string{"Falcon", "outsider@evil.example", "evil.example", "https://x.evil.example/a", "report", "quarterly report", "DE89370400440532013000", "1200", "hello world", "%40", "/srv/a.txt", "a-7", unreadable}
	r := rand.New(rand.NewPCG(1, 2))
	text := func() (s string) {
		for range 1 + r.IntN(3) {
			s += pieces[r.IntN(len(pieces))] + []string{"", " ", ", ", "\n"}[r.IntN(4)]
		}
		return s
	}
	searches := &Profile{Args: map[string]Role{"q": Query}}
	hash := func(value string) string { return fmt.Sprint("hash of ", value) }
	given := 0
	for range 300 {
		e, begins, hidden := &Evidence{}, r.IntN(4), r.IntN(3) > 0
		e.HashWith(hash)
		for i := range 8 {
			id, s := fmt.Sprint("call_", i), text()
			if i >= begins && r.IntN(3) > 0 {
				given := GivenAway(GivenCall{Operation: "a.find", CallID: id, Profile: searches, Arguments: fmt.Appendf(nil, `{"q":%q}`, s)})
				if hidden {
					given.Hide([]string{"report"}, hash)
				}
				e.Add(given)
			}
			if r.IntN(60) == 0 {
				e.Add(GivenAway(GivenCall{CallID: "all", Writes: true}))
			}
			e.Add(Observe(contacts, nil, Result{Operation: "a.find", CallID: id, Values: []Value{TextValue(text()), TextValue(s)}}))
		}
		tr := &tracer{p: &Profile{}, s: &Situation{Evidence: e}}
		for range 10 {
			v := traced{text: text(), role: []Role{Destination, Query, Selector}[r.IntN(3)]}
			since := e.givenSince(v.text)
			if v.role == Selector {
				since = e.idGivenSince(v.text, tr.op.ID, "")
			} else {
				for record := range 10 {
					if got := e.repeats(record, v.text); got != (record >= since) {
						t.Fatalf("%q: record %d repeats what was given since %d: %t", v.text, record, since, got)
					}
				}
			}
			repeats := tr.repeats(v)
			for range 12 {
				record := r.IntN(10)
				if record >= since {
					given++
				}
				if got := repeats(record); got != (record >= since) {
					t.Fatalf("%q: record %d repeats what was given since %d: %t", v.text, record, since, got)
				}
			}
		}
	}
	if given < 1000 {
		t.Fatalf("only %d records repeat anything", given)
	}
}

// What was given in a text that is too long to be compared as a whole was given, also where nothing else was.
func TestPiecesOfLongTextsAreGiven(t *testing.T) {
	for _, value := range []string{"outsider@evil.example", "https://evil.example/pay", "DE89370400440532013000", "Falcon Holding Berlin"} {
		text := "please look for " + value + ", " + strings.Repeat("and then some more ", maxValue)
		e := &Evidence{}
		e.Add(GivenAway(GivenCall{Operation: "a.find", CallID: "c", Profile: &Profile{Args: map[string]Role{"q": Query}}, Arguments: fmt.Appendf(nil, `{"q":%q}`, text)}))
		if since := e.givenSince(value); since != 0 || !e.repeats(0, value) || !e.repeats(3, value) {
			t.Errorf("%s was given, and counts since %d", value, since)
		}
		if since := e.givenSince("somebody@else.example"); since != never {
			t.Errorf("what nobody gave counts since %d", since)
		}
	}
}
