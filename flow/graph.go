package flow

import (
	"container/heap"
	"slices"
)

// graph is the precedence graph of a plan. A step comes before another if the other waits for its result, or if it is a sink of a label that the
// other emits. The second kind isn't stored as edges (two hundred sinks and two hundred sources would make forty thousand): steps are kept by
// label, and the edges are all pairs of a label's sinks and sources, except a step and itself.
type graph struct {
	labels  []Label // emitted in the plan
	emits   [][]int // per step: numbers of the labels it brings
	stops   [][]int // per step: numbers of the labels it is a sink of
	sources [][]int // per label: steps that emit it, ascending
	sinks   [][]int // per label: steps that it blocks, ascending
	steps   []Step
	then    [][]int // per step: the steps that wait for it
	out     []bool  // steps that aren't in this session's plan
}

// newGraph builds the graph; then is dependents(steps). Asked steps run whatever the labels, so they are no sinks. Out steps are not in the graph,
// and no other step may wait for one. Either may be nil. The graph ignores the labels that the session holds already: the sinks of those have to be
// asked or out.
func newGraph(steps []Step, then [][]int, asked, out []bool) *graph {
	n := len(steps)
	g := &graph{emits: make([][]int, n), stops: make([][]int, n), steps: steps, then: then, out: make([]bool, n)}
	copy(g.out, out)
	number := map[Label]int{}
	for i, s := range steps {
		if g.out[i] {
			continue
		}
		for _, l := range s.Op.Emits {
			k, ok := number[l]
			if !ok {
				k = len(g.labels)
				number[l] = k
				g.labels = append(g.labels, l)
				g.sources = append(g.sources, nil)
				g.sinks = append(g.sinks, nil)
			}
			if !slices.Contains(g.emits[i], k) {
				g.emits[i] = append(g.emits[i], k)
				g.sources[k] = append(g.sources[k], i)
			}
		}
	}
	for i, s := range steps {
		if g.out[i] || asked != nil && asked[i] {
			continue
		}
		for _, l := range s.Op.BlockedBy {
			if k, ok := number[l]; ok && !slices.Contains(g.stops[i], k) {
				g.stops[i] = append(g.stops[i], k)
				g.sinks[k] = append(g.sinks[k], i)
			}
		}
	}
	return g
}

// dependents inverts After: for each step, the steps that wait for it.
func dependents(steps []Step) [][]int {
	count, total := make([]int, len(steps)), 0
	for _, s := range steps {
		for _, d := range s.After {
			count[d]++
			total++
		}
	}
	then, room := make([][]int, len(steps)), make([]int, total)
	for d, c := range count {
		then[d], room = room[:0:c], room[c:]
	}
	for i, s := range steps {
		for _, d := range s.After {
			then[d] = append(then[d], i)
		}
	}
	return then
}

// order is the topological order that always takes the available step with the smallest index. If there is none, it is nil; with force, it then
// gives up sinks until there is one, and returns them: a person has to be asked about those. Each time it gives up the fewest sinks that free a
// waiting step.
func (g *graph) order(force bool) (order, asked []int) {
	o := newOrdering(g)
	total := 0
	for i := range g.emits {
		if !g.out[i] {
			total++
		}
		o.offer(i)
	}
	order = make([]int, 0, total)
	for len(order) < total {
		if len(o.queue) > 0 {
			i := heap.Pop(&o.queue).(int)
			order = append(order, i)
			if !o.given[i] {
				o.drop(i)
			}
			for _, d := range g.then[i] {
				o.waits[d]--
				o.offer(d)
			}
			continue
		}
		if !force {
			return nil, nil
		}
		o.giveUp()
	}
	return order, o.asked
}

// ordering is the rest of a graph while its order is made.
type ordering struct {
	*graph
	waits []int  // per step: results still missing
	left  []int  // per label: sinks still to come
	given []bool // per step: it is a sink that was given up
	taken []bool // per step: it is in the order or in the queue
	queue intHeap
	asked []int // the sinks given up, in this order
}

func newOrdering(g *graph) *ordering {
	n := len(g.emits)
	o := &ordering{graph: g, waits: make([]int, n), left: make([]int, len(g.sinks)), given: make([]bool, n), taken: slices.Clone(g.out)}
	for i := range n {
		o.waits[i] = len(g.steps[i].After)
	}
	for k, sinks := range g.sinks {
		o.left[k] = len(sinks)
	}
	return o
}

// before counts the sinks of the label that come before step i, which may be one itself.
func (o *ordering) before(i, label int) int {
	if !o.given[i] && !o.taken[i] && slices.Contains(o.stops[i], label) {
		return o.left[label] - 1
	}
	return o.left[label]
}

// offer puts step i into the queue if nothing has to come before it.
func (o *ordering) offer(i int) {
	if o.taken[i] || o.waits[i] > 0 {
		return
	}
	for _, k := range o.emits[i] {
		if o.before(i, k) > 0 {
			return
		}
	}
	o.taken[i] = true
	heap.Push(&o.queue, i)
}

// drop removes step i from the sinks to come. The sources of a label may be free once no sink is left, or only the source itself.
func (o *ordering) drop(i int) {
	for _, k := range o.stops[i] {
		o.left[k]--
		if o.left[k] <= 1 {
			for _, s := range o.sources[k] {
				o.offer(s)
			}
		}
	}
}

// giveUp frees a waiting step by giving up the fewest sinks.
func (o *ordering) giveUp() {
	best, cost := -1, 0
	for i := range o.emits {
		if o.taken[i] || o.waits[i] > 0 {
			continue
		}
		c := 0
		for _, k := range o.emits[i] {
			c += o.before(i, k)
		}
		if best < 0 || c < cost {
			best, cost = i, c
		}
	}
	for _, k := range o.emits[best] {
		for _, s := range o.sinks[k] {
			if s != best && !o.taken[s] && !o.given[s] {
				o.given[s] = true
				o.asked = append(o.asked, s)
				o.drop(s)
				o.offer(s)
			}
		}
	}
	o.offer(best)
}

// possible reports whether the same plan has a safe order with other steps asked and out.
func (g *graph) possible(asked, out []bool) bool {
	order, _ := newGraph(g.steps, g.then, asked, out).order(false)
	return order != nil
}

// cycle is the shortest cycle, beginning with its smallest index; nil if there is none. Each step has to come before the next, and the last before
// the first. Stuck steps are the sinks on any cycle: each comes, through others, after a source that it has to precede, so no reordering helps it.
//
// Results alone make no cycle, so each cycle goes from a sink of some label to one of its sources. For each label, the shortest way back is
// searched.
func (g *graph) cycle() (cycle []int, stuck []bool) {
	stuck = make([]bool, len(g.emits))
	parent, dist := make([]int, len(g.emits)), make([]int, len(g.emits))
	consider := func(origins, ends []int) {
		if len(origins) == 0 || len(ends) == 0 {
			return
		}
		g.reach(origins, parent, dist)
		for _, e := range ends {
			if dist[e] < 0 {
				continue
			}
			stuck[e] = true
			if cycle == nil || dist[e]+1 < len(cycle) {
				cycle = cycle[:0]
				for i := e; i >= 0; i = parent[i] {
					cycle = append(cycle, i)
				}
				slices.Reverse(cycle)
			}
		}
	}
	for k := range g.labels {
		// A step that is both doesn't precede itself, so it is never an origin
		// and an end of one search.
		var sources, both, sinks []int
		for _, i := range g.sources[k] {
			if slices.Contains(g.stops[i], k) {
				both = append(both, i)
			} else {
				sources = append(sources, i)
			}
		}
		for _, i := range g.sinks[k] {
			if !slices.Contains(g.emits[i], k) {
				sinks = append(sinks, i)
			}
		}
		if len(both) > 1 {
			for _, i := range both {
				stuck[i] = true
			}
			if len(cycle) != 2 {
				cycle = []int{both[0], both[1]}
			}
		}
		consider(sources, append(slices.Clone(sinks), both...))
		consider(both, sinks)
	}
	if cycle != nil {
		first := slices.Index(cycle, slices.Min(cycle))
		cycle = slices.Concat(cycle[first:], cycle[:first])
	}
	return cycle, stuck
}

// reach walks the graph from the origins, breadth first. It sets the distance of every step (-1 if it isn't reached) and its parent (-1 if it has
// none).
func (g *graph) reach(origins, parent, dist []int) {
	for i := range dist {
		parent[i], dist[i] = -1, -1
	}
	walked := make([]bool, len(g.labels)) // a label's sources are all reached by its first sink
	queue := make([]int, 0, len(g.emits))
	for _, i := range origins {
		dist[i] = 0
		queue = append(queue, i)
	}
	for at := 0; at < len(queue); at++ {
		i := queue[at]
		step := func(to int) {
			if dist[to] < 0 {
				dist[to], parent[to] = dist[i]+1, i
				queue = append(queue, to)
			}
		}
		for _, to := range g.then[i] {
			step(to)
		}
		for _, k := range g.stops[i] {
			if !walked[k] {
				walked[k] = true
				for _, to := range g.sources[k] {
					step(to)
				}
			}
		}
	}
}

// common is a label that blocks the sink and that the source brings, or -1.
func (g *graph) common(sink, source int) int {
	for _, k := range g.stops[sink] {
		if slices.Contains(g.emits[source], k) {
			return k
		}
	}
	return -1
}

type intHeap []int

func (h intHeap) Len() int           { return len(h) }
func (h intHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h intHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *intHeap) Push(x any)        { *h = append(*h, x.(int)) }
func (h *intHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
