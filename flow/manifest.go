package flow

import (
	"slices"

	"sallyport.example/internal/sentence"
)

// Tool is one line of a session's manifest (FL-4).
type Tool struct {
	Name             string      `json:"name"`
	Operation        string      `json:"operation"`
	Sensitivity      Sensitivity `json:"sensitivity"`
	Effect           Effect      `json:"effect"`
	Risk             string      `json:"risk,omitempty"`        // the caller fills it in; flow doesn't know it
	Blocks           []string    `json:"blocks"`                // names of the tools that its labels block, at most MaxBlocks; never nil
	BlocksMore       int         `json:"blocks_more,omitempty"` // how many more there are
	BlockedBySession bool        `json:"blocked_by_session"`
	Consequence      string      `json:"consequence"` // Blocks as a sentence
}

// MaxBlocks bounds the names that a tool's Blocks have: with all of them, the manifest of 2000 tools would have ten megabytes.
const MaxBlocks = 100

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
		names[k] = make([]string, min(len(set), MaxBlocks))
		for j, i := range set[:len(names[k])] {
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
			Blocks: blocks, BlocksMore: len(sets[of[i]]) - len(blocks), BlockedBySession: !allowed(op, held), Consequence: texts[of[i]],
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
