package flow

import (
	"fmt"
	"slices"
	"strconv"

	"sallyport.example/internal/sentence"
)

// Step is one planned call. After holds the indexes of the steps whose results it needs; they may come later in the plan.
type Step struct {
	Op    Operation
	After []int
}

// The codes of violations, in the words of the gateway's verdicts.
const (
	CodeContaminated = "flow.contaminated" // Judge would refuse the step
	CodeMismatch     = "plan.mismatch"     // the step stands before one it needs
)

// Violation is a step that can't run where it is planned.
type Violation struct {
	AtStep     int    `json:"at_step"`
	Tool       string `json:"tool"`
	Code       string `json:"code"`
	Reason     string `json:"reason"`
	Suggestion string `json:"suggestion"`
}

// Impossible says why no order of the plan is safe.
type Impossible struct {
	Because string `json:"because"`
	// Steps are those that the session already blocks, ascending; or, if there
	// are none, the shortest cycle: each has to stand before the next, and the
	// last before the first.
	Steps []int `json:"steps"`
	// Ways are the cheapest ways out: each alone makes the plan possible.
	Ways []string `json:"ways,omitempty"`
}

// Report is the answer of Validate. Its slices are never nil, except that SafeOrdering and Order are nil if no order is safe.
type Report struct {
	Valid        bool        `json:"valid"` // the plan is safe in its order
	Violations   []Violation `json:"violations"`
	SafeOrdering []string    `json:"safe_ordering"` // tool names
	Order        []int       `json:"-"`             // SafeOrdering as indexes of the plan
	Impossible   *Impossible `json:"impossible,omitempty"`
}

// Validate judges a plan for a session that holds these labels (FL-6). Violations are the steps that Judge would refuse if the steps ran in the
// order given, and the steps that come before one they need. The safe order keeps every After, and equals the planned order if that is valid. An
// error names the After that makes no sense.
func Validate(steps []Step, held []Held) (Report, error) {
	then, err := checkAfter(steps)
	if err != nil {
		return Report{}, err
	}
	barred := make([]bool, len(steps)) // the session blocks it in any order
	var first []int
	for i, s := range steps {
		if !allowed(s.Op, held) {
			barred[i] = true
			first = append(first, i)
		}
	}
	g := newGraph(steps, then, barred, nil)
	order, _ := g.order(false)
	var cycle []int
	stuck := make([]bool, len(steps))
	if order == nil {
		cycle, stuck = g.cycle()
	}
	r := Report{Violations: replay(steps, held, stuck)}
	if cycle != nil || first != nil {
		r.Impossible = impossible(steps, held, g, barred, first, cycle)
		return r, nil
	}
	r.Valid = len(r.Violations) == 0
	r.Order = order
	r.SafeOrdering = make([]string, len(order))
	for at, i := range order {
		r.SafeOrdering[at] = steps[i].Op.Name
	}
	return r, nil
}

// checkAfter refuses dependencies that no order can keep, and returns the others as dependents does.
func checkAfter(steps []Step) (then [][]int, err error) {
	waits := make([]int, len(steps))
	for i, s := range steps {
		for _, d := range s.After {
			switch {
			case d < 0 || d >= len(steps):
				return nil, fmt.Errorf("planned_calls[%d].after: step %d is not in the plan; name a step from 0 to %d", i, d, len(steps)-1)
			case d == i:
				return nil, fmt.Errorf("planned_calls[%d].after: a step can't wait for itself; leave %d out", i, i)
			}
		}
		waits[i] = len(s.After)
	}
	then = dependents(steps)
	var free []int
	for i := range steps {
		if waits[i] == 0 {
			free = append(free, i)
		}
	}
	for at := 0; at < len(free); at++ {
		for _, i := range then[free[at]] {
			if waits[i]--; waits[i] == 0 {
				free = append(free, i)
			}
		}
	}
	if len(free) == len(steps) {
		return then, nil
	}
	// Every remaining step waits for another one, so following them comes round.
	at := slices.IndexFunc(waits, func(w int) bool { return w > 0 })
	seen := map[int]int{}
	var path []int
	for {
		if k, ok := seen[at]; ok {
			path = path[k:]
			break
		}
		seen[at] = len(path)
		path = append(path, at)
		at = steps[at].After[slices.IndexFunc(steps[at].After, func(d int) bool { return waits[d] > 0 })]
	}
	loop := make([]string, len(path))
	for k, i := range path {
		loop[k] = strconv.Itoa(i)
	}
	return nil, fmt.Errorf("planned_calls[%d].after: steps %s wait for each other in a ring; drop one of these dependencies", path[0], sentence.List(loop))
}

// replay runs the plan in its order through Judge and Raise. A refused step brings no labels.
func replay(steps []Step, held []Held, stuck []bool) []Violation {
	violations := []Violation{}
	now := held
	var bringer []int // the steps that brought now[len(held):]
	for i, s := range steps {
		name := s.Op.ShownName()
		report := func(code, reason, suggestion string) {
			violations = append(violations, Violation{AtStep: i, Tool: s.Op.Name, Code: code, Reason: reason, Suggestion: suggestion})
		}
		if late := slices.IndexFunc(s.After, func(d int) bool { return d > i }); late >= 0 {
			needed := s.After[late]
			report(CodeMismatch,
				fmt.Sprintf("%s needs the result of %s (step %d), which is planned later", name, steps[needed].Op.ShownName(), needed),
				fmt.Sprintf("move %s after %s", name, steps[needed].Op.ShownName()))
		}
		d := Judge(s.Op, now)
		if d.Allowed {
			next := Raise(now, s.Op, "")
			for range next[len(now):] {
				bringer = append(bringer, i)
			}
			now = next
			continue
		}
		if !allowed(s.Op, held) {
			report(CodeContaminated, Judge(s.Op, held).Reason, "ask a person about "+name+", or leave it out of this session")
			continue
		}
		brought := map[int][]Label{} // by the steps that block this one
		var by []int
		for _, b := range d.Because {
			at := slices.IndexFunc(now, func(h Held) bool { return h.Label == b.Label })
			j := bringer[at-len(held)]
			if _, ok := brought[j]; !ok {
				by = append(by, j)
			}
			brought[j] = append(brought[j], b.Label)
		}
		slices.Sort(by)
		clauses := make([]string, len(by))
		for k, j := range by {
			clauses[k] = fmt.Sprintf("%s (step %d) loads %s data", steps[j].Op.ShownName(), j, sentence.Names(brought[j]))
		}
		suggestion := "move " + name + " before " + steps[by[0]].Op.ShownName()
		if stuck[i] {
			suggestion = "no order helps " + name + ": ask a person about it, or leave it out of this session"
		}
		report(CodeContaminated, name+" is blocked after "+sentence.Chain(clauses, " and "), suggestion)
	}
	return violations
}

// impossible explains why no order is safe, and looks for ways out. g is the graph in which the barred steps are asked about, and cycle is its
// shortest cycle, if any.
func impossible(steps []Step, held []Held, g *graph, barred []bool, first, cycle []int) *Impossible {
	names := func(set []int) string {
		words := make([]string, len(set))
		for k, i := range set {
			words[k] = stepName(steps, i)
		}
		return sentence.List(words)
	}
	im := &Impossible{Steps: first}
	if first == nil {
		im.Steps = cycle
		im.Because = "no order is safe: " + describeCycle(steps, g, cycle)
	} else {
		var because []Held
		for _, i := range first {
			because = append(because, Judge(steps[i].Op, held).Because...)
		}
		im.Because = "no order is safe: this session already blocks " + names(first)
		if len(because) > 0 {
			im.Because += ", because " + Origins(earliest(because))
		}
		if cycle != nil {
			im.Because += "; and among the rest, " + describeCycle(steps, g, cycle)
		}
	}
	if slices.ContainsFunc(first, func(i int) bool { return !steps[i].Op.Sensitivity.Valid() }) {
		return im // nothing helps an operation without a description
	}
	for _, set := range askSets(g, barred, first, cycle) {
		im.Ways = append(im.Ways, "ask a person about "+names(set))
	}
	for _, set := range apartSets(steps, g, first, cycle) {
		im.Ways = append(im.Ways, "run "+names(set)+" in a session of its own")
	}
	if first != nil && g.possible(nil, nil) {
		im.Ways = append(im.Ways, "run the whole plan in a new session that holds no labels")
	}
	return im
}

func stepName(steps []Step, i int) string {
	return fmt.Sprintf("%s (step %d)", steps[i].Op.ShownName(), i)
}

// describeCycle spells a cycle out.
func describeCycle(steps []Step, g *graph, cycle []int) string {
	clauses := make([]string, len(cycle))
	for k, i := range cycle {
		next := cycle[(k+1)%len(cycle)]
		why := "needs its result"
		if l := g.common(i, next); l >= 0 {
			why = "loads " + sentence.Name(string(g.labels[l])) + " data"
		}
		clauses[k] = stepName(steps, i) + " must come before " + stepName(steps, next) + ", which " + why
	}
	return sentence.Chain(clauses, "; ")
}

// askSets are the smallest sets of steps that let the plan run once a person permits them. A single additional step has to be a sink on the cycle,
// because it must break it: all such steps that suffice are found. If none does, one set is given that may not be the smallest (finding that is
// NP-hard).
func askSets(g *graph, barred []bool, first, cycle []int) [][]int {
	if cycle == nil {
		return [][]int{first}
	}
	with := func(more ...int) []int {
		set := slices.Concat(first, more)
		slices.Sort(set)
		return set
	}
	suffices := func(more ...int) bool {
		asked := slices.Clone(barred)
		for _, i := range more {
			asked[i] = true
		}
		return g.possible(asked, nil)
	}
	var sets [][]int
	for k, i := range cycle {
		if g.common(i, cycle[(k+1)%len(cycle)]) >= 0 && suffices(i) {
			sets = append(sets, with(i))
		}
	}
	if sets != nil {
		return sets
	}
	_, more := g.order(true)
	if len(more) <= maxPruned {
		for k := 0; k < len(more); {
			if rest := slices.Delete(slices.Clone(more), k, k+1); suffices(rest...) {
				more = rest
			} else {
				k++
			}
		}
	}
	return [][]int{with(more...)}
}

// maxPruned bounds the work of making a set of asked steps smaller.
const maxPruned = 16

// apartSets are sets of steps that can run in another session so that both plans have safe orders: all steps that this session blocks or, if it
// blocks none, a single step of the cycle. They must neither need nor give results, because results would carry their labels across.
func apartSets(steps []Step, g *graph, first, cycle []int) [][]int {
	candidates := [][]int{first}
	if first == nil {
		candidates = nil
		for k, i := range cycle {
			before := cycle[(k+len(cycle)-1)%len(cycle)]
			if g.common(i, cycle[(k+1)%len(cycle)]) >= 0 || g.common(before, i) >= 0 {
				candidates = append(candidates, []int{i})
			}
		}
	}
	var sets [][]int
	for _, set := range candidates {
		here, there := make([]bool, len(steps)), slices.Repeat([]bool{true}, len(steps))
		apart := true
		for _, i := range set {
			here[i], there[i] = true, false
			apart = apart && len(steps[i].After) == 0 && len(g.then[i]) == 0
		}
		if apart && g.possible(nil, here) && g.possible(nil, there) {
			sets = append(sets, set)
		}
	}
	return sets
}
