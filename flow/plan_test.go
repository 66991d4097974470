package flow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func plan(ops ...Operation) []Step {
	steps := make([]Step, len(ops))
	for i, op := range ops {
		steps[i] = Step{Op: op}
	}
	return steps
}

func TestPlanOfSource004(t *testing.T) {
	r, err := Validate(plan(source004(t, "search_email", "web_search", "github_create_pr")...), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(r)
	want := `{"valid":false,"violations":[{"at_step":1,"tool":"web_search","code":"flow.contaminated",` +
		`"reason":"web_search is blocked after search_email (step 0) loads internal data",` +
		`"suggestion":"move web_search before search_email"}],` +
		`"safe_ordering":["web_search","search_email","github_create_pr"]}`
	if string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
}

func TestValidate(t *testing.T) {
	mail, docs := source004(t, "search_email")[0], source004(t, "search_docs")[0]
	web, slack := source004(t, "web_search")[0], source004(t, "slack_post")[0]
	pr := source004(t, "github_create_pr")[0]
	sync := resolve(t, Spec{Name: "sync", Sensitivity: Both})
	people := resolve(t, Spec{Name: "people", Sensitivity: None, Emits: &[]Label{"pii"}})
	undescribed := Operation{ID: "a.b", Name: "b"}
	held := []Held{{Label: "internal", Operation: "mail.search_email", CallID: "call_1"}}

	for _, tt := range []struct {
		name  string
		steps []Step
		held  []Held
		want  string
	}{
		{"safe as planned", plan(web, mail, pr), nil,
			`{"valid":true,"violations":[],"safe_ordering":["web_search","search_email","github_create_pr"]}`},
		{"contaminated, but no sink", plan(mail, pr), held,
			`{"valid":true,"violations":[],"safe_ordering":["search_email","github_create_pr"]}`},
		{"one both is no cycle", plan(web, sync, mail), nil,
			`{"valid":true,"violations":[],"safe_ordering":["web_search","sync","search_email"]}`},
		{"both stands between sinks and sources", plan(mail, sync, web), nil,
			`{"valid":false,"violations":[` +
				`{"at_step":1,"tool":"sync","code":"flow.contaminated","reason":"sync is blocked after search_email (step 0) loads internal data","suggestion":"move sync before search_email"},` +
				`{"at_step":2,"tool":"web_search","code":"flow.contaminated","reason":"web_search is blocked after search_email (step 0) loads internal data","suggestion":"move web_search before search_email"}],` +
				`"safe_ordering":["web_search","sync","search_email"]}`},
		{"two sources of two labels", plan(mail, people, web), nil,
			`{"valid":false,"violations":[{"at_step":2,"tool":"web_search","code":"flow.contaminated",` +
				`"reason":"web_search is blocked after search_email (step 0) loads internal data and people (step 1) loads pii data","suggestion":"move web_search before search_email"}],` +
				`"safe_ordering":["web_search","search_email","people"]}`},
		{"blockers in the order of the plan", plan(people, mail, web), nil,
			`{"valid":false,"violations":[{"at_step":2,"tool":"web_search","code":"flow.contaminated",` +
				`"reason":"web_search is blocked after people (step 0) loads pii data and search_email (step 1) loads internal data","suggestion":"move web_search before people"}],` +
				`"safe_ordering":["web_search","people","search_email"]}`},
		{"a refused step brings nothing", plan(mail, resolve(t, Spec{Name: "book", Emits: &[]Label{"pii"}}), resolve(t, Spec{Name: "narrow", BlockedBy: &[]Label{"pii"}})), nil,
			`{"valid":false,"violations":[{"at_step":1,"tool":"book","code":"flow.contaminated","reason":"book is blocked after search_email (step 0) loads internal data","suggestion":"move book before search_email"}],` +
				`"safe_ordering":["narrow","book","search_email"]}`},
		{"both twice", plan(sync, pr, sync), nil,
			`{"valid":false,"violations":[{"at_step":2,"tool":"sync","code":"flow.contaminated","reason":"sync is blocked after sync (step 0) loads internal data","suggestion":"no order helps sync: ask a person about it, or leave it out of this session"}],` +
				`"safe_ordering":null,"impossible":{"because":"no order is safe: sync (step 0) must come before sync (step 2), which loads internal data; sync (step 2) must come before sync (step 0), which loads internal data","steps":[0,2],` +
				`"ways":["ask a person about sync (step 0)","ask a person about sync (step 2)","run sync (step 0) in a session of its own","run sync (step 2) in a session of its own"]}}`},
		{"both three times", plan(sync, sync, sync), nil,
			`{"valid":false,"violations":[{"at_step":1,"tool":"sync","code":"flow.contaminated","reason":"sync is blocked after sync (step 0) loads internal data","suggestion":"no order helps sync: ask a person about it, or leave it out of this session"},` +
				`{"at_step":2,"tool":"sync","code":"flow.contaminated","reason":"sync is blocked after sync (step 0) loads internal data","suggestion":"no order helps sync: ask a person about it, or leave it out of this session"}],` +
				`"safe_ordering":null,"impossible":{"because":"no order is safe: sync (step 0) must come before sync (step 1), which loads internal data; sync (step 1) must come before sync (step 0), which loads internal data","steps":[0,1],` +
				`"ways":["ask a person about sync (step 1), sync (step 2)"]}}`},
		{"the post needs the mail", []Step{{Op: mail}, {Op: slack, After: []int{0}}, {Op: web}}, nil,
			`{"valid":false,"violations":[{"at_step":1,"tool":"slack_post","code":"flow.contaminated","reason":"slack_post is blocked after search_email (step 0) loads internal data","suggestion":"no order helps slack_post: ask a person about it, or leave it out of this session"},` +
				`{"at_step":2,"tool":"web_search","code":"flow.contaminated","reason":"web_search is blocked after search_email (step 0) loads internal data","suggestion":"move web_search before search_email"}],` +
				`"safe_ordering":null,"impossible":{"because":"no order is safe: search_email (step 0) must come before slack_post (step 1), which needs its result; slack_post (step 1) must come before search_email (step 0), which loads internal data","steps":[0,1],` +
				`"ways":["ask a person about slack_post (step 1)"]}}`},
		{"dependencies are kept", []Step{{Op: mail}, {Op: pr, After: []int{0}}, {Op: web}, {Op: docs, After: []int{1, 2, 2}}}, nil,
			`{"valid":false,"violations":[{"at_step":2,"tool":"web_search","code":"flow.contaminated","reason":"web_search is blocked after search_email (step 0) loads internal data","suggestion":"move web_search before search_email"}],` +
				`"safe_ordering":["web_search","search_email","github_create_pr","search_docs"]}`},
		{"needed later than planned", []Step{{Op: pr, After: []int{1}}, {Op: mail}}, nil,
			`{"valid":false,"violations":[{"at_step":0,"tool":"github_create_pr","code":"plan.mismatch","reason":"github_create_pr needs the result of search_email (step 1), which is planned later","suggestion":"move github_create_pr after search_email"}],` +
				`"safe_ordering":["search_email","github_create_pr"]}`},
		{"blocked by the session", plan(pr, web), held,
			`{"valid":false,"violations":[{"at_step":1,"tool":"web_search","code":"flow.contaminated","reason":"web_search is blocked for the rest of this session: mail.search_email (call_1) loaded internal data","suggestion":"ask a person about web_search, or leave it out of this session"}],` +
				`"safe_ordering":null,"impossible":{"because":"no order is safe: this session already blocks web_search (step 1), because mail.search_email (call_1) loaded internal data","steps":[1],` +
				`"ways":["ask a person about web_search (step 1)","run web_search (step 1) in a session of its own","run the whole plan in a new session that holds no labels"]}}`},
		{"blocked by the session, and a cycle besides", func(steps ...Step) []Step { steps[0].After = []int{1}; return steps }(plan(web, people, resolve(t, Spec{Name: "x", Sensitivity: Both, Emits: &[]Label{"pii"}, BlockedBy: &[]Label{"pii"}}), resolve(t, Spec{Name: "x", Sensitivity: Both, Emits: &[]Label{"pii"}, BlockedBy: &[]Label{"pii"}}))...), held,
			`{"valid":false,"violations":[{"at_step":0,"tool":"web_search","code":"plan.mismatch","reason":"web_search needs the result of people (step 1), which is planned later","suggestion":"move web_search after people"},{"at_step":0,"tool":"web_search","code":"flow.contaminated","reason":"web_search is blocked for the rest of this session: mail.search_email (call_1) loaded internal data","suggestion":"ask a person about web_search, or leave it out of this session"},` +
				`{"at_step":2,"tool":"x","code":"flow.contaminated","reason":"x is blocked after people (step 1) loads pii data","suggestion":"no order helps x: ask a person about it, or leave it out of this session"},` +
				`{"at_step":3,"tool":"x","code":"flow.contaminated","reason":"x is blocked after people (step 1) loads pii data","suggestion":"no order helps x: ask a person about it, or leave it out of this session"}],` +
				`"safe_ordering":null,"impossible":{"because":"no order is safe: this session already blocks web_search (step 0), because mail.search_email (call_1) loaded internal data; and among the rest, x (step 2) must come before x (step 3), which loads pii data; x (step 3) must come before x (step 2), which loads pii data","steps":[0],` +
				`"ways":["ask a person about web_search (step 0), x (step 2)","ask a person about web_search (step 0), x (step 3)"]}}`},
		{"an operation that nobody described", plan(mail, undescribed), nil,
			`{"valid":false,"violations":[{"at_step":1,"tool":"b","code":"flow.contaminated","reason":"b is blocked: its sensitivity is not known","suggestion":"ask a person about b, or leave it out of this session"}],` +
				`"safe_ordering":null,"impossible":{"because":"no order is safe: this session already blocks b (step 1)","steps":[1]}}`},
	} {
		r, err := Validate(tt.steps, tt.held)
		b, _ := json.Marshal(r)
		want := strings.NewReplacer("<", `\u003c`, ">", `\u003e`).Replace(tt.want)
		if err != nil || string(b) != want {
			t.Errorf("%s: %v\n got %s\nwant %s", tt.name, err, b, want)
		}
	}
}

func TestMalformedAfter(t *testing.T) {
	pr := source004(t, "github_create_pr")[0]
	for _, tt := range []struct {
		after [][]int
		want  string
	}{
		{[][]int{{}, {2}}, "planned_calls[1].after: step 2 is not in the plan; name a step from 0 to 1"},
		{[][]int{{-1}}, "planned_calls[0].after: step -1 is not in the plan; name a step from 0 to 0"},
		{[][]int{{}, {0, 1}}, "planned_calls[1].after: a step can't wait for itself; leave 1 out"},
		{[][]int{{}, {2}, {1}}, "planned_calls[1].after: steps 1, 2 wait for each other in a ring; drop one of these dependencies"},
		{[][]int{{1}, {0, 2}, {3}, {2}}, "planned_calls[0].after: steps 0, 1 wait for each other in a ring; drop one of these dependencies"},
		{[][]int{{1}, {2}, {3}, {1}}, "planned_calls[1].after: steps 1, 2, 3 wait for each other in a ring; drop one of these dependencies"},
	} {
		var steps []Step
		for _, a := range tt.after {
			steps = append(steps, Step{Op: pr, After: a})
		}
		r, err := Validate(steps, nil)
		if err == nil || err.Error() != tt.want || r.Valid {
			t.Errorf("%v: %v; want %s", tt.after, err, tt.want)
		}
	}
}

// Two knots, each cut by asking about the one sink or about the two: the set
// given when no single step suffices should be the small one.
func TestFewAreAsked(t *testing.T) {
	var steps []Step
	for k := range 2 {
		a, b := Label(fmt.Sprint("a", k)), Label(fmt.Sprint("b", k))
		op := func(name string, emits, blockedBy []Label) Operation {
			return Operation{ID: "s." + name, Name: name, Sensitivity: Both, Effect: Read, Emits: emits, BlockedBy: blockedBy}
		}
		at := len(steps)
		steps = append(steps,
			Step{Op: op("source_a", []Label{a}, nil)},
			Step{Op: op("source_b", []Label{b}, nil)},
			Step{Op: op("wide", nil, []Label{a}), After: []int{at + 1}},
			Step{Op: op("wide", nil, []Label{a}), After: []int{at + 1}},
			Step{Op: op("narrow", nil, []Label{b}), After: []int{at}})
	}
	r, err := Validate(steps, nil)
	if want := []string{"ask a person about narrow (step 4), narrow (step 9)"}; err != nil || r.Impossible == nil || !slices.Equal(r.Impossible.Ways, want) {
		t.Errorf("got %+v, %v; want %q", r.Impossible, err, want)
	}
}

// A step given up early turns out to have been freed by one given up later.
func TestNobodyIsAskedInVain(t *testing.T) {
	op := func(name string, emits, blockedBy []Label) Operation {
		return Operation{ID: "s." + name, Name: name, Sensitivity: Both, Effect: Read, Emits: emits, BlockedBy: blockedBy}
	}
	sync := op("sync", []Label{"d"}, []Label{"d"})
	steps := []Step{
		{Op: op("a", []Label{"a"}, nil)},
		{Op: op("b", []Label{"b"}, nil)},
		{Op: op("c", []Label{"c"}, nil)},
		{Op: op("x", nil, []Label{"a"}), After: []int{1}},
		{Op: op("y", nil, []Label{"b", "c"}), After: []int{0, 2}},
		{Op: sync}, {Op: sync},
	}
	r, err := Validate(steps, nil)
	if err != nil || r.Impossible == nil || len(r.Impossible.Ways) != 1 ||
		!slices.Contains([]string{"ask a person about y (step 4), sync (step 5)", "ask a person about y (step 4), sync (step 6)"}, r.Impossible.Ways[0]) {
		t.Errorf("got %+v, %v", r.Impossible, err)
	}
}

// genPlan draws a plan with dependencies that make sense, some of them forward.
func genPlan(max int) *rapid.Generator[[]Step] {
	return rapid.Custom(func(t *rapid.T) []Step {
		ops := rapid.SliceOfN(genOperation(), 1, 4).Draw(t, "catalogue")
		n := rapid.IntRange(0, max).Draw(t, "steps")
		steps := make([]Step, n)
		rank := rapid.Permutation(upTo(n)).Draw(t, "rank") // dependencies go down in rank
		planned := rapid.Bool().Draw(t, "dependencies as planned")
		for i := range steps {
			steps[i].Op = rapid.SampledFrom(ops).Draw(t, "op")
			for d := range n {
				lower := rank[d] < rank[i]
				if planned {
					lower = d < i
				}
				if lower && rapid.IntRange(0, 4).Draw(t, "after") == 0 {
					steps[i].After = append(steps[i].After, d)
				}
			}
		}
		return steps
	})
}

func upTo(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// runs replays an order past Judge and Raise as enforcement would, with some
// steps permitted by a person.
func runs(steps []Step, held []Held, order, asked []int) bool {
	done := make([]bool, len(steps))
	for _, i := range order {
		for _, d := range steps[i].After {
			if !done[d] {
				return false
			}
		}
		if !slices.Contains(asked, i) && !Judge(steps[i].Op, held).Allowed {
			return false
		}
		held = Raise(held, steps[i].Op, "call")
		done[i] = true
	}
	return true
}

// firstSafe tries all permutations of the indexes in lexicographic order, and
// with them all that exists: the first is the one nearest to the plan.
func firstSafe(steps []Step, held []Held, indexes, asked []int) []int {
	var walk func(order []int, used []bool) []int
	walk = func(order []int, used []bool) []int {
		if len(order) == len(indexes) {
			return slices.Clone(order)
		}
		for _, i := range indexes {
			if used[i] || !runs(steps, held, append(order, i), asked) {
				continue
			}
			used[i] = true
			if found := walk(append(order, i), used); found != nil {
				return found
			}
			used[i] = false
		}
		return nil
	}
	return walk([]int{}, make([]bool, len(steps)))
}

// edges are the precedence graph by its definition, in terms of Judge alone.
func edges(steps []Step, held []Held) (edge, byFlow [][]bool) {
	n := len(steps)
	edge, byFlow = make([][]bool, n), make([][]bool, n)
	for i := range n {
		edge[i], byFlow[i] = make([]bool, n), make([]bool, n)
		for j := range n {
			byFlow[i][j] = i != j && Judge(steps[i].Op, held).Allowed && !Judge(steps[i].Op, Raise(held, steps[j].Op, "")).Allowed
			edge[i][j] = byFlow[i][j] || slices.Contains(steps[j].After, i)
		}
	}
	return edge, byFlow
}

// distances by Floyd and Warshall; a step's distance to itself is its shortest cycle.
func distances(edge [][]bool) [][]int {
	n := len(edge)
	d := make([][]int, n)
	for i := range n {
		d[i] = make([]int, n)
		for j := range n {
			d[i][j] = 1 << 20
			if edge[i][j] {
				d[i][j] = 1
			}
		}
	}
	for k := range n {
		for i := range n {
			for j := range n {
				d[i][j] = min(d[i][j], d[i][k]+d[k][j])
			}
		}
	}
	return d
}

func checkPlan(t interface{ Fatalf(string, ...any) }, steps []Step, held []Held) {
	r, err := Validate(steps, held)
	if err != nil {
		t.Fatalf("%v", err)
	}
	all := upTo(len(steps))
	want := firstSafe(steps, held, all, nil)
	if !slices.Equal(r.Order, want) || (r.Order == nil) != (want == nil) {
		t.Fatalf("order %v, want %v", r.Order, want)
	}
	if r.Valid != runs(steps, held, all, nil) || r.Valid != (len(r.Violations) == 0) || r.Violations == nil {
		t.Fatalf("valid %v with %v", r.Valid, r.Violations)
	}
	if r.Valid && !slices.Equal(r.Order, all) {
		t.Fatalf("a valid plan was reordered to %v", r.Order)
	}
	if (r.SafeOrdering == nil) != (r.Order == nil) || len(r.SafeOrdering) != len(r.Order) || (r.Impossible == nil) != (r.Order != nil) {
		t.Fatalf("the answers disagree: %+v", r)
	}
	for at, i := range r.Order {
		if r.SafeOrdering[at] != steps[i].Op.Name {
			t.Fatalf("%v is not %v", r.SafeOrdering, r.Order)
		}
	}

	// Violations are what enforcement refuses, one by one.
	edge, byFlow := edges(steps, held)
	dist := distances(edge)
	now, got := held, slices.Clone(r.Violations)
	for i, s := range steps {
		if slices.ContainsFunc(s.After, func(d int) bool { return d > i }) {
			if len(got) == 0 || got[0].AtStep != i || got[0].Code != CodeMismatch {
				t.Fatalf("step %d: no violation for what it needs", i)
			}
			got = got[1:]
		}
		if Judge(s.Op, now).Allowed {
			now = Raise(now, s.Op, "c")
			continue
		}
		if len(got) == 0 || got[0].AtStep != i || got[0].Code != CodeContaminated || got[0].Tool != s.Op.Name {
			t.Fatalf("step %d is refused, violations %+v", i, r.Violations)
		}
		// "move" is suggested exactly where an order can help.
		helps := Judge(s.Op, held).Allowed
		for j := range steps {
			helps = helps && !(byFlow[i][j] && dist[j][i] < 1<<20)
		}
		if helps != strings.HasPrefix(got[0].Suggestion, "move ") {
			t.Fatalf("step %d: an order helps: %v, suggestion %q", i, helps, got[0].Suggestion)
		}
		got = got[1:]
	}
	if len(got) > 0 {
		t.Fatalf("violations that are none: %+v", got)
	}

	if im := r.Impossible; im != nil {
		var first []int
		for i, s := range steps {
			if !Judge(s.Op, held).Allowed {
				first = append(first, i)
			}
		}
		if first != nil {
			if !slices.Equal(im.Steps, first) {
				t.Fatalf("the session blocks %v, not %v", first, im.Steps)
			}
		} else {
			shortest := 1 << 20
			for i := range steps {
				shortest = min(shortest, dist[i][i])
			}
			if len(im.Steps) != shortest || im.Steps[0] != slices.Min(im.Steps) {
				t.Fatalf("cycle %v, the shortest has %d", im.Steps, shortest)
			}
			for k, i := range im.Steps {
				if !edge[i][im.Steps[(k+1)%len(im.Steps)]] {
					t.Fatalf("%v is no cycle", im.Steps)
				}
			}
		}
		checkWays(t, steps, held, first, im)
	}
}

// checkWays compares the ways out with all there are, by brute force.
func checkWays(t interface{ Fatalf(string, ...any) }, steps []Step, held []Held, first []int, im *Impossible) {
	all := upTo(len(steps))
	names := func(set []int) string {
		var words []string
		for _, i := range set {
			words = append(words, fmt.Sprintf("%s (step %d)", steps[i].Op.Name, i))
		}
		return strings.Join(words, ", ")
	}
	asks := slices.DeleteFunc(slices.Clone(im.Ways), func(w string) bool { return !strings.HasPrefix(w, "ask a person about ") })
	var want []string
	if firstSafe(steps, held, all, first) != nil {
		want = []string{"ask a person about " + names(first)}
	} else {
		for _, i := range all {
			if set := append(slices.Clone(first), i); !slices.Contains(first, i) && firstSafe(steps, held, all, set) != nil {
				slices.Sort(set)
				want = append(want, "ask a person about "+names(set))
			}
		}
	}
	switch {
	case want != nil:
		slices.Sort(want)
		if got := slices.Sorted(slices.Values(asks)); !slices.Equal(got, want) {
			t.Fatalf("ways %q, want %q", got, want)
		}
	case len(asks) != 1:
		t.Fatalf("no way out is named: %q", im.Ways)
	default: // sufficient, and nothing in it too much
		var set []int
		for _, i := range all {
			if strings.Contains(asks[0], fmt.Sprintf("(step %d)", i)) {
				set = append(set, i)
			}
		}
		if firstSafe(steps, held, all, set) == nil {
			t.Fatalf("%q is not enough", asks[0])
		}
		for _, i := range set {
			if !slices.Contains(first, i) && firstSafe(steps, held, all, slices.DeleteFunc(slices.Clone(set), func(j int) bool { return j == i })) != nil {
				t.Fatalf("%q has step %d too many", asks[0], i)
			}
		}
	}

	// A session of its own: both plans run, and no result crosses.
	sets := [][]int{first}
	if first == nil {
		sets = nil
		for _, i := range all {
			sets = append(sets, []int{i})
		}
	}
	for _, set := range sets {
		in := func(i int) bool { return slices.Contains(set, i) }
		ok := firstSafe(steps, nil, set, nil) != nil
		for i, s := range steps {
			for _, d := range s.After {
				ok = ok && !in(i) && !in(d)
			}
		}
		ok = ok && firstSafe(steps, held, slices.DeleteFunc(slices.Clone(all), in), nil) != nil
		if got := slices.Contains(im.Ways, "run "+names(set)+" in a session of its own"); got != ok {
			t.Fatalf("a session of its own for %v: %v, ways %q", set, ok, im.Ways)
		}
	}
	fresh := firstSafe(steps, nil, all, nil) != nil
	if got := slices.Contains(im.Ways, "run the whole plan in a new session that holds no labels"); got != fresh {
		t.Fatalf("a new session helps: %v, ways %q", fresh, im.Ways)
	}
}

// Everything Validate says is checked against all permutations of small plans.
func TestValidateAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkPlan(t, genPlan(6).Draw(t, "plan"), genHeld(2).Draw(t, "held"))
	})
}

// What Validate calls safe runs without a refusal, in plans of any size.
func TestSafeOrdersRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := genPlan(40).Draw(t, "plan")
		held := genHeld(3).Draw(t, "held")
		r, err := Validate(steps, held)
		if err != nil {
			t.Fatal(err)
		}
		if r.Order != nil && !runs(steps, held, r.Order, nil) {
			t.Fatalf("%v is refused", r.Order)
		}
		if r.Order != nil && !slices.Equal(slices.Sorted(slices.Values(r.Order)), upTo(len(steps))) {
			t.Fatalf("%v is no order", r.Order)
		}
		more, err := Validate(steps, append(slices.Clone(held), genHeld(2).Draw(t, "more")...))
		if err != nil || more.Order != nil && r.Order == nil || more.Valid && !r.Valid {
			t.Fatalf("more labels made the plan possible: %v", err)
		}
	})
}

// A plan as it comes from outside: steps by tool number, labels by number.
type wirePlan struct {
	Tools []struct {
		Sensitivity string `json:"s"`
		Emits       []uint `json:"e"`
		BlockedBy   []uint `json:"b"`
	} `json:"tools"`
	Calls []struct {
		Tool  uint  `json:"t"`
		After []int `json:"a"`
	} `json:"calls"`
	Held []uint `json:"held"`
}

func FuzzValidate(f *testing.F) {
	for _, s := range []string{
		`{}`,
		`{"tools":[{"s":"internal_source","e":[0]},{"s":"external","b":[0,1,2]}],"calls":[{"t":0},{"t":1}]}`,
		`{"tools":[{"s":"both","e":[0],"b":[0]}],"calls":[{"t":0},{"t":0},{"t":0}],"held":[3]}`,
		`{"tools":[{"s":"external","e":[0],"b":[1]},{"s":"external","e":[1],"b":[0]}],"calls":[{"t":0,"a":[1]},{"t":1},{"t":0},{"t":1,"a":[2,0]}]}`,
		`{"tools":[{"s":"external","b":[0]},{"s":"?"}],"calls":[{"t":0},{"t":1,"a":[-1]}],"held":[0,0]}`,
		`{"tools":[{"s":"none"}],"calls":[{"t":0,"a":[1]},{"t":0,"a":[2]},{"t":0,"a":[0]}]}`,
		`{"tools":[{"s":"internal_source","e":[0]},{"s":"none"},{"s":"external","b":[0]}],"calls":[{"t":0},{"t":1,"a":[0]},{"t":2,"a":[1]}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var w wirePlan
		if json.Unmarshal(data, &w) != nil || len(w.Tools) == 0 || len(w.Calls) > 2000 {
			return
		}
		labels := func(ns []uint) []Label {
			var out []Label
			for _, n := range ns {
				out = append(out, testLabels[n%uint(len(testLabels))])
			}
			return out
		}
		steps := []Step{}
		for _, c := range w.Calls {
			k := c.Tool % uint(len(w.Tools))
			steps = append(steps, Step{After: c.After, Op: Operation{
				ID: fmt.Sprint("s.", k), Name: fmt.Sprint("t", k), Sensitivity: Sensitivity(w.Tools[k].Sensitivity), Effect: Read,
				Emits: labels(w.Tools[k].Emits), BlockedBy: labels(w.Tools[k].BlockedBy),
			}})
		}
		var held []Held
		for _, l := range labels(w.Held) {
			held = append(held, Held{Label: l, Operation: "s.0", CallID: "c"})
		}
		r, err := Validate(steps, held)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "planned_calls[") || !strings.Contains(err.Error(), "; ") {
				t.Fatalf("the error names no field or no remedy: %v", err)
			}
			return
		}
		if r.Order != nil && !runs(steps, held, r.Order, nil) {
			t.Fatalf("%v is refused", r.Order)
		}
		described := !slices.ContainsFunc(steps, func(s Step) bool { return !s.Op.Sensitivity.Valid() })
		if len(steps) <= 6 && described {
			checkPlan(t, steps, held)
		}
	})
}
