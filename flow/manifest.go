package flow

import (
	"slices"
	"strings"

	"sallyport.example/internal/sentence"
)

// Tool is one line of a session's manifest (FL-4).
type Tool struct {
	Name             string      `json:"name"`
	Operation        string      `json:"operation"`
	Sensitivity      Sensitivity `json:"sensitivity"`
	Effect           Effect      `json:"effect"`
	Risk             string      `json:"risk,omitempty"` // the caller fills it in; flow doesn't know it
	Blocks           []string    `json:"blocks"`         // names of the tools that its labels block; never nil
	BlockedBySession bool        `json:"blocked_by_session"`
	Consequence      string      `json:"consequence"` // Blocks as a sentence
}

const (
	blocksNothing = "none — safe to call before internal tools"
	blocksPrefix  = "calling this tool will block: "
)

// Manifest describes each operation, in the order given. Blocks are the tools that the declared labels of a tool's result would block in a session
// without labels, so they don't change with the session. BlockedBySession is what Judge says now. A tool of sensitivity both is one of the tools it
// blocks.
func Manifest(ops []Operation, held []Held) []Tool {
	of, sets := consequences(ops)
	names := make([][]string, len(sets))
	texts := make([]string, len(sets))
	for k, set := range sets {
		names[k] = make([]string, len(set))
		for j, i := range set {
			names[k][j] = ops[i].Name
		}
		texts[k] = blocksNothing
		if len(set) > 0 {
			texts[k] = blocksPrefix + sentence.List(shownNames(ops, set))
		}
	}
	tools := make([]Tool, len(ops))
	for i, op := range ops {
		blocks := make([]string, len(names[of[i]]))
		copy(blocks, names[of[i]])
		tools[i] = Tool{
			Name: op.Name, Operation: op.ID, Sensitivity: op.Sensitivity, Effect: op.Effect,
			Blocks: blocks, BlockedBySession: !allowed(op, held), Consequence: texts[of[i]],
		}
	}
	return tools
}

// consequences finds the operations that the labels of each operation i block: sets[of[i]], as indexes of ops. Operations that emit the same labels
// share a set.
func consequences(ops []Operation) (of []int, sets [][]int) {
	of = make([]int, len(ops))
	var emits [][]Label
	for i, op := range ops {
		k := slices.IndexFunc(emits, func(e []Label) bool { return slices.Equal(e, op.Emits) })
		if k < 0 {
			k = len(emits)
			emits = append(emits, op.Emits)
			after := Raise(nil, op, "")
			var set []int
			for j, o := range ops {
				// An operation that a clean session refuses isn't blocked by op.
				if !allowed(o, after) && allowed(o, nil) {
					set = append(set, j)
				}
			}
			sets = append(sets, set)
		}
		of[i] = k
	}
	return of, sets
}

func shownNames(ops []Operation, set []int) []string {
	words := make([]string, len(set))
	for j, i := range set {
		words[j] = ops[i].ShownName()
	}
	return words
}

// OrderingHint is the manifest's advice in one sentence.
func OrderingHint(ops []Operation) string {
	of, sets := consequences(ops)
	hint := "any order is safe: no tool here blocks another"
	for i, op := range ops {
		for _, j := range sets[of[i]] {
			source := op.Sensitivity == InternalSource || op.Sensitivity == Both
			sink := ops[j].Sensitivity == External || ops[j].Sensitivity == Both
			if source && sink {
				return "complete all external tool calls before calling internal_source tools"
			}
			hint = "call each tool that blocks others after the tools it blocks"
		}
	}
	return hint
}

// SystemPrompt is the planning constraint for the agent's system prompt, worded as the requirement has it (FL-5). It names the affected tools and
// those that are safe in any order and, if the session already holds labels, the tools that are blocked now. Long lists are cut, so its size is
// bounded for any catalogue.
func SystemPrompt(ops []Operation, held []Held) string {
	of, sets := consequences(ops)
	blocked := make([]bool, len(ops)) // by the labels of some tool
	for _, set := range sets {
		for _, i := range set {
			blocked[i] = true
		}
	}
	type group struct {
		members []string
		set     []int
	}
	var groups []group
	var safe, now []string
	var because []Held
	for i, op := range ops {
		set := sets[of[i]]
		d := Judge(op, held)
		if !d.Allowed {
			now = append(now, op.ShownName())
			because = append(because, d.Because...)
		}
		if len(set) == 0 {
			if d.Allowed && !blocked[i] {
				safe = append(safe, op.ShownName())
			}
			continue
		}
		mark := " [internal]"
		if blocked[i] {
			mark = " [internal, external]"
		}
		k := slices.IndexFunc(groups, func(g group) bool { return slices.Equal(g.set, set) })
		if k < 0 {
			k = len(groups)
			groups = append(groups, group{set: set})
		}
		groups[k].members = append(groups[k].members, op.ShownName()+mark)
	}

	const title = "Tool ordering constraint (enforced by authorization layer):"
	var b strings.Builder
	b.WriteString(title)
	if len(groups) == 0 {
		b.WriteString(" none. No tool's declared results restrict another tool; call them in any order.")
	} else {
		affected := make([]string, len(groups))
		for k, g := range groups {
			affected[k] = sentence.List(g.members) + " → blocks " + sentence.List(shownNames(ops, g.set))
		}
		if len(safe) == 0 {
			safe = []string{"none"}
		}
		b.WriteString("\n- Tools marked [internal] will restrict your access to tools marked [external] for the remainder of this session." +
			"\n- If your task requires both internal and external tools, call external tools first." +
			"\n- Affected tools: " + sentence.Chain(affected, "; ") +
			"\n- Safe to call in any order: " + sentence.List(safe))
	}
	if len(now) > 0 {
		b.WriteString("\n- Blocked now: " + sentence.List(now))
		if len(because) > 0 {
			b.WriteString(", because " + Origins(earliest(because)))
		}
	}
	return b.String()
}

// earliest sorts by label and keeps one of each. For one label, Judge gives the same Held for every operation.
func earliest(because []Held) []Held {
	slices.SortStableFunc(because, func(a, b Held) int { return strings.Compare(string(a.Label), string(b.Label)) })
	return slices.CompactFunc(because, func(a, b Held) bool { return a.Label == b.Label })
}
