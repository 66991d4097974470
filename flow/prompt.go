package flow

import (
	"fmt"
	"slices"
	"strings"

	"sallyport.example/internal/sentence"
)

const (
	// promptMost bounds a system prompt, in bytes. It is part of every conversation; the manifest has the rest.
	promptMost = 1500
	// wholeServer is from how many tools on a server is named in place of them.
	wholeServer = 3
)

// SystemPrompt is the planning constraint for the agent's system prompt, worded as the requirement has it (FL-5). It names the affected tools and
// those that are safe in any order and, if the session already holds labels, the tools that are blocked now. Where all tools of a server belong to
// one list, it names the server. Long lists are cut: it has at most 1500 bytes for any catalogue.
func SystemPrompt(ops []Operation, held []Held) string {
	const title = "Tool ordering constraint (enforced by authorization layer):"
	const rules = "\n- Tools marked [internal] will restrict your access to tools marked [external] for the remainder of this session." +
		"\n- If your task requires both internal and external tools, call external tools first."
	p := promptOf(ops, held)
	head := title + rules
	if len(p.groups) == 0 {
		head = title + " none. No tool's declared results restrict another tool; call them in any order."
	}
	for room := promptMost; ; room -= room/4 + 1 {
		if lists := p.lists(max(room, 0)); len(head)+len(lists) <= promptMost {
			return head + lists
		}
	}
}

// prompt is what a system prompt lists, as indexes of ops.
type prompt struct {
	ops     []Operation
	of      map[string]int // server -> how many tools it has
	blocked []bool         // by the labels of some tool
	groups  []promptGroup
	safe    []int // in any order
	now     []int // blocked now
	because []Held
}

// promptGroup are the tools that block the same tools.
type promptGroup struct{ tools, blocks []int }

func promptOf(ops []Operation, held []Held) *prompt {
	p := &prompt{ops: ops, of: map[string]int{}, blocked: make([]bool, len(ops))}
	of, sets := consequences(ops)
	for _, set := range sets {
		for _, i := range set {
			p.blocked[i] = true
		}
	}
	for i, op := range ops {
		p.of[op.server()]++
		set := sets[of[i]]
		d := Judge(op, held)
		if !d.Allowed {
			p.now = append(p.now, i)
			p.because = append(p.because, d.Because...)
		}
		if len(set) == 0 {
			if d.Allowed && !p.blocked[i] {
				p.safe = append(p.safe, i)
			}
			continue
		}
		k := slices.IndexFunc(p.groups, func(g promptGroup) bool { return slices.Equal(g.blocks, set) })
		if k < 0 {
			k = len(p.groups)
			p.groups = append(p.groups, promptGroup{blocks: set})
		}
		p.groups[k].tools = append(p.groups[k].tools, i)
	}
	return p
}

// lists are the lines that name tools, none of whose lists is much longer than room, in bytes.
func (p *prompt) lists(room int) string {
	mark := func(i int) string {
		if p.blocked[i] {
			return " [internal, external]"
		}
		return " [internal]"
	}
	bare := func(int) string { return "" }
	var b strings.Builder
	if len(p.groups) > 0 {
		affected := make([]string, len(p.groups))
		for k, g := range p.groups {
			affected[k] = p.names(g.tools, mark, room) + " → blocks " + p.names(g.blocks, bare, room)
		}
		safe := "none"
		if len(p.safe) > 0 {
			safe = p.names(p.safe, bare, room)
		}
		b.WriteString("\n- Affected tools: " + sentence.Chain(affected, "; ") + "\n- Safe to call in any order: " + safe)
	}
	if len(p.now) > 0 {
		b.WriteString("\n- Blocked now: " + p.names(p.now, bare, room))
		if why := Origins(earliest(p.because)); why != "" && len(why) <= room {
			b.WriteString(", because " + why)
		}
	}
	return b.String()
}

// names are those of the tools with the indexes, each with its mark, in at most about room bytes. A server whose tools are all among them, under one
// mark, stands for them, and comes first.
func (p *prompt) names(tools []int, mark func(int) string, room int) string {
	type kind struct{ server, mark string }
	of := func(i int) kind { return kind{p.ops[i].server(), mark(i)} }
	here := map[kind]int{}
	for _, i := range tools {
		here[of(i)]++
	}
	whole := func(k kind) bool { return here[k] >= wholeServer && here[k] == p.of[k.server] }

	var words []string
	size, named, told := 0, 0, map[kind]bool{}
	add := func(word string, stands int) {
		if size += len(word) + len(", "); size <= room {
			words, named = append(words, word), named+stands
		}
	}
	for _, i := range tools {
		if k := of(i); whole(k) && !told[k] {
			told[k] = true
			add(fmt.Sprintf("all %d tools of %s%s", here[k], sentence.Name(k.server), k.mark), here[k])
		}
	}
	for _, i := range tools {
		if k := of(i); !whole(k) {
			add(p.ops[i].ShownName()+k.mark, 1)
		}
	}
	switch more := len(tools) - named; {
	case more > 0 && named == 0:
		return sentence.Count(more, "tool")
	case more > 0:
		return fmt.Sprintf("%s and %d more", strings.Join(words, ", "), more)
	}
	return strings.Join(words, ", ")
}

// server is the operator's id of the server.
func (op Operation) server() string {
	server, _, _ := strings.Cut(op.ID, ".")
	return server
}

// earliest sorts by label and keeps one of each. For one label, Judge gives the same Held for every operation.
func earliest(because []Held) []Held {
	slices.SortStableFunc(because, func(a, b Held) int { return strings.Compare(string(a.Label), string(b.Label)) })
	return slices.CompactFunc(because, func(a, b Held) bool { return a.Label == b.Label })
}
