package provenance

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sallyport.example/flow"
)

// What the generators draw from: few values, so that those of calls, words, labels and records meet.
var (
	someValues = []string{"ann@books.example", "eve@x.example", "Eve <eve@x.example>", "https://x.example/a", "books.example/a", "13", "7", "13.0", "-5", "1200.5", "A1B2C3D4", "DE89370400440532013000", "Blue Heron", "blue heron", "the Blue Heron", "Owl", "meeting", "2024-05-15 10:00",
		"Lunch Blue Heron", "Xk9-pass", "eve@x.example, ann@books.example", "see https://x.example/a and eve@x.example 13", "Hotel: Owl, pay to: eve@x.example", "", " ", "true", "\u200b", "[\"eve@x.example\"]"}
	someFields = []string{"id", "id_", "subject", "sender", "to", "body", "email", "amount", "number", "size", "items", "eve@x.example"}
	someWords  = []string{"", "Please do it", "Send the Blue Heron to ann@books.example", "Pay 1200.5 to 'Owl', see https://x.example/a", "Cancel event 13 and remove A1B2C3D4", "Lunch on 2024-05-15 10:00 about the 'Blue Heron'", "Write to eve@x.example and Owl", "Pay DE89 3704 0044 0532 0130 00 for event 13", "给ann@books.example发Owl的Blue Heron，mail 7"}
)

func drawValue(t *rapid.T, depth int, label string) any {
	switch n := rapid.IntRange(0, 9).Draw(t, label); {
	case n < 6 || depth > 3:
		return rapid.SampledFrom(someValues).Draw(t, label)
	case n == 6:
		return json.Number(rapid.SampledFrom([]string{"13", "7", "1200.5", "-5", "1e3"}).Draw(t, label))
	case n == 7:
		return rapid.SampledFrom([]any{true, nil, []any{}, map[string]any{}}).Draw(t, label)
	case n == 8:
		list := make([]any, rapid.IntRange(0, 4).Draw(t, label))
		for i := range list {
			list[i] = drawValue(t, depth+1, label)
		}
		return list
	}
	return drawObject(t, depth, someFields, label)
}

func drawObject(t *rapid.T, depth int, names []string, label string) map[string]any {
	o := map[string]any{}
	for range rapid.IntRange(0, 5).Draw(t, label) {
		o[rapid.SampledFrom(names).Draw(t, label)] = drawValue(t, depth+1, label)
	}
	return o
}

func encoded(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func drawProfile(t *rapid.T, label string) *Profile {
	some := func(label string) []string {
		return rapid.SliceOfN(rapid.SampledFrom(someFields), 0, 3).Draw(t, label)
	}
	return &Profile{
		Output:        rapid.SampledFrom([]Output{"", TrustedOutput, UntrustedOutput, EchoOutput}).Draw(t, label),
		TrustedFields: some(label), Names: some(label), Delegable: some(label),
		IDKind: rapid.SampledFrom([]string{"", "event", "mail"}).Draw(t, label),
	}
}

func drawResult(t *rapid.T, n int, label string) Result {
	r := Result{Operation: rapid.SampledFrom([]string{"srv.read", "mail.list", "web.fetch"}).Draw(t, label), CallID: fmt.Sprint(label, n), Arguments: encoded(drawObject(t, 3, []string{"query", "id"}, label))}
	for range rapid.IntRange(1, 2).Draw(t, label) {
		list := make([]any, rapid.IntRange(1, 4).Draw(t, label))
		for i := range list {
			list[i] = drawObject(t, 0, someFields, label)
		}
		r.Values = append(r.Values, JSONValue(encoded(rapid.SampledFrom([]any{list, list[0], drawValue(t, 0, label)}).Draw(t, label))))
	}
	return r
}

// judgedCall is a call with all that decides about it.
type judgedCall struct {
	op      flow.Operation
	profile *Profile
	args    []byte
	words   string
	own     []string
	held    []flow.Held
	free    bool
	seen    []func(words *Request) Observation // observed anew, as words may change
}

func (c *judgedCall) judge() Ruling {
	w := ParseRequest(c.words)
	var seen []Observation
	for _, s := range c.seen {
		seen = append(seen, s(w))
	}
	return JudgeCall(c.op, c.profile, c.args, Situation{Held: c.held, Request: w, Own: c.own, Evidence: gathered(seen...), FreeLevel1: c.free})
}

func (c judgedCall) with(at int, more ...func(*Request) Observation) *judgedCall {
	c.seen = slices.Insert(slices.Clone(c.seen), at, more...)
	return &c
}

func shownAs(p *Profile, r Result) func(*Request) Observation {
	return func(w *Request) Observation { return Observe(p, w, r) }
}

func drawCall(t *rapid.T) *judgedCall {
	args := map[string]Role{}
	for _, name := range []string{"to", "x", "body", "id"} {
		if rapid.Bool().Draw(t, "labelled") {
			args[name] = rapid.SampledFrom(roles).Draw(t, "role")
		}
	}
	c := &judgedCall{
		op:      rapid.SampledFrom([]flow.Operation{post, leak, {ID: "mail.send", Name: "send", Sensitivity: flow.Both, BlockedBy: []flow.Label{"internal", "pii"}}}).Draw(t, "operation"),
		profile: &Profile{Level: rapid.SampledFrom([]int{2, 2, 1, 0}).Draw(t, "level"), Boundary: rapid.SampledFrom([]Boundary{"", BoundaryInternal, BoundaryByArg}).Draw(t, "boundary"), EgressURL: rapid.Bool().Draw(t, "egress"), IDKind: rapid.SampledFrom([]string{"", "event", "mail"}).Draw(t, "kind"), Args: args},
		args:    encoded(drawObject(t, 2, []string{"to", "x", "body", "id"}, "argument")),
		words:   rapid.SampledFrom(someWords).Draw(t, "words"),
		own:     rapid.SampledFrom([][]string{nil, {"me@own.example", "Owl"}}).Draw(t, "own"),
		held:    rapid.SampledFrom([][]flow.Held{fromOutside, {{Label: "internal", Operation: "a.b", CallID: "c"}}, append(slices.Clone(fromOutside), flow.Held{Label: "internal", Operation: "a.b", CallID: "c"})}).Draw(t, "held"),
		free:    rapid.Bool().Draw(t, "free"),
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "results") {
		switch rapid.IntRange(0, 4).Draw(t, "evidence") {
		case 0:
			p, b := c.profile, encoded(drawObject(t, 2, []string{"to", "x", "body", "id"}, "approved"))
			c.seen = append(c.seen, func(*Request) Observation { return Approve(c.op.ID, fmt.Sprint("yes", i), p, b, nil, nil) })
		case 1:
			b := encoded(drawObject(t, 3, []string{"to", "text"}, "gave"))
			c.seen = append(c.seen, func(*Request) Observation { return wroteAway(c.op.ID, fmt.Sprint("gave", i), nil, string(b)) })
		default:
			c.seen = append(c.seen, shownAs(drawProfile(t, "label"), drawResult(t, i, "seen")))
		}
	}
	return c
}

// More untrusted evidence never permits more, wherever in the session it comes, whatever it says, and however much it is.
func TestUntrustedEvidenceNeverPermits(t *testing.T) {
	asked := 0
	rapid.Check(t, func(t *rapid.T) {
		c := drawCall(t)
		before := c.judge()
		if before.Verdict == Permit {
			t.Skip("it is permitted already")
		}
		asked++
		more := c
		for i := range rapid.IntRange(1, 4).Draw(t, "more") {
			p := drawProfile(t, "hostile label")
			p.Output = rapid.SampledFrom([]Output{"", UntrustedOutput, EchoOutput, TypedOutput, "sure"}).Draw(t, "untrusted")
			p.TrustedFields, p.Delegable = nil, nil
			r := drawResult(t, i, "hostile")
			if rapid.Bool().Draw(t, "copies") { // the call's own arguments, as a record
				r.Values = append(r.Values, JSONValue(c.args), JSONValue(encoded(string(c.args))))
			}
			more = more.with(rapid.IntRange(0, len(more.seen)).Draw(t, "at"), shownAs(p, r))
		}
		if after := more.judge(); after.Verdict == Permit {
			t.Fatalf("%s before, %s after: %q, then %q", before.Verdict, after.Verdict, before.Reason, after.Reason)
		}
	})
	if asked == 0 {
		t.Error("nothing was asked about")
	}
}

// Of a record that the system filled in partly, what an outsider wrote into it never permits either.
func TestOtherFieldsOfARecordNeverPermit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCall(t)
		p := &Profile{TrustedFields: []string{"booked"}, IDKind: c.profile.IDKind}
		record := drawObject(t, 1, someFields, "field")
		plain := map[string]any{"booked": "2024"}
		hostile := map[string]any{"booked": "2024"}
		for k, v := range record {
			plain[k], hostile[k] = "x", v
		}
		at := rapid.IntRange(0, len(c.seen)).Draw(t, "at")
		show := func(o any) func(*Request) Observation {
			return shownAs(p, Result{Operation: "mail.list", CallID: "h", Values: jsonValues(encoded([]any{o, map[string]any{"booked": "1"}}))})
		}
		if before, after := c.with(at, show(plain)).judge(), c.with(at, show(hostile)).judge(); before.Verdict != Permit && after.Verdict == Permit {
			t.Fatalf("%q, then %q", before.Reason, after.Reason)
		}
	})
}

// Evidence that ends early asks more: no result or approval that is missing at the end permits.
func TestEvidenceThatEndsEarlyNeverPermits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCall(t)
		full := c.judge()
		for n := range c.seen {
			early := *c
			early.seen = c.seen[:n]
			if r := early.judge(); strictness(r.Verdict) < strictness(full.Verdict) && !slices.ContainsFunc(c.seen[n:], func(s func(*Request) Observation) bool { return s(nil).GivenAway != nil }) {
				t.Fatalf("with %d of %d: %s, %q; with all: %s, %q", n, len(c.seen), r.Verdict, r.Reason, full.Verdict, full.Reason)
			}
		}
		// A result or an approval may be left out, too.
		for i, s := range c.seen {
			if s(nil).GivenAway != nil {
				continue
			}
			less := *c
			less.seen = slices.Delete(slices.Clone(c.seen), i, i+1)
			if r := less.judge(); strictness(r.Verdict) < strictness(full.Verdict) {
				t.Fatalf("without %d: %s, %q; with it: %s, %q", i, r.Verdict, r.Reason, full.Verdict, full.Reason)
			}
		}
	})
}

func strictness(v Verdict) int { return slices.Index([]Verdict{Permit, Ask, Deny}, v) }

// A person who says nothing, or is nobody, permits nothing more.
func TestFewerWordsNeverPermit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCall(t)
		full := c.judge()
		silent, nobody := *c, *c
		silent.words, nobody.own = "", nil
		if c.profile.Boundary == BoundaryByArg {
			nobody.own = c.own
		}
		for _, less := range []*judgedCall{&silent, &nobody} {
			if r := less.judge(); strictness(r.Verdict) < strictness(full.Verdict) {
				t.Fatalf("%s, %q; of one who speaks %s, %q", r.Verdict, r.Reason, full.Verdict, full.Reason)
			}
		}
	})
}

func TestMoreLabelsNeverPermit(t *testing.T) {
	all := []flow.Held{{Label: flow.Untrusted, Operation: "a", CallID: "1"}, {Label: "internal", Operation: "b", CallID: "2"}, {Label: "pii", Operation: "c", CallID: "3"}, {Label: "other", Operation: "d", CallID: "4"}}
	rapid.Check(t, func(t *rapid.T) {
		c := drawCall(t)
		some := rapid.SliceOfNDistinct(rapid.SampledFrom(all), 0, 3, func(h flow.Held) flow.Label { return h.Label }).Draw(t, "some")
		fewer, more := *c, *c
		fewer.held = some
		more.held = append(slices.Clone(some), rapid.SampledFrom(all).Draw(t, "one more"))
		if a, b := fewer.judge(), more.judge(); strictness(b.Verdict) < strictness(a.Verdict) {
			t.Fatalf("%v: %s, %q; %v: %s, %q", fewer.held, a.Verdict, a.Reason, more.held, b.Verdict, b.Reason)
		}
	})
}

// A call that is permitted is permitted with fewer arguments of the ones that were looked at, and not because of how they are written.
func TestRulingsDependOnNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCall(t)
		first := c.judge()
		if again := c.judge(); !reflect.DeepEqual(first, again) {
			t.Fatalf("%+v, then %+v", first, again)
		}
		if first.Because == nil || (first.Verdict != Permit && first.Reason == "") || len(first.Reason) > 8000 {
			t.Fatalf("%+v", first)
		}
		if first.Verdict == Permit {
			for _, f := range first.Evidence {
				if !f.Confirmed || f.By == ByNone || f.Text == "" {
					t.Fatalf("permitted with %+v", f)
				}
			}
		}
		// Kept, and read again by another replica.
		w := ParseRequest(c.words)
		e := &Evidence{}
		for _, s := range c.seen {
			kept := encoded(s(w))
			var read Observation
			if err := json.Unmarshal(kept, &read); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(kept), `"future"`) {
				kept = append([]byte(`{"future":1,`), kept[1:]...)
			}
			var newer Observation
			if err := json.Unmarshal(kept, &newer); err != nil || !reflect.DeepEqual(read, newer) {
				t.Fatal(err, newer)
			}
			e.Add(read)
		}
		if r := JudgeCall(c.op, c.profile, c.args, Situation{Held: c.held, Request: w, Own: c.own, Evidence: e, FreeLevel1: c.free}); !reflect.DeepEqual(r, first) {
			t.Fatalf("%+v, and out of the store %+v", first, r)
		}
	})
}

// Every value that decides has its finding.
func TestNoCoreValueIsOverlooked(t *testing.T) {
	permitted := 0
	property := func(t *rapid.T) {
		c := drawCall(t)
		c.held, c.profile.Level = fromOutside, 2
		r := c.judge()
		if r.Verdict != Permit {
			return
		}
		permitted++
		v, err := decode(c.args)
		if err != nil {
			t.Fatal(err)
		}
		core := false
		leaves(v, "", func(path string, value any) {
			s, ok := scalar(value)
			role := c.profile.RoleOf(path)
			if !role.Core() || ok && strings.TrimSpace(s) == "" {
				return
			}
			core = true
			for _, one := range splitAddresses(role, s) {
				if !slices.ContainsFunc(r.Evidence, func(f Finding) bool { return f.Argument == clipField(path) && f.Value == clip(one, 200) && f.Confirmed }) {
					t.Fatalf("nothing was found out about %s %q: %+v", path, one, r.Evidence)
				}
			}
		})
		if !core && !slices.ContainsFunc(r.Evidence, func(f Finding) bool { return f.Role.Soft() }) {
			t.Fatalf("permitted for nothing: %+v", r)
		}
	}
	for range 20 { // in a hundred random calls there may be none that is permitted
		if rapid.Check(t, property); permitted > 0 {
			return
		}
	}
	t.Error("nothing was permitted")
}
