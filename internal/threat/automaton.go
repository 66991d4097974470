package threat

import (
	"errors"
	"fmt"
)

// automaton is an Aho-Corasick machine compiled to a table: one lookup per
// byte whatever the number of keywords. It works on folded bytes (see fold)
// and is therefore only a filter; each rule confirms on the exact bytes.
type automaton struct {
	class [256]uint8
	// next[state+class]: a state is the offset of its row of stride entries. States that
	// complete a keyword stand last, so that the inner loop finds them with one
	// comparison against firstOut.
	next     []uint32
	stride   uint32
	firstOut uint32
	outs     [][]uint16 // by row after firstOut: indices of the keywords that end here
}

const (
	maxClasses = 64
	maxStates  = 1 << 15
)

// fold makes the machine small: letter case, the digits and the separators
// '-' and '_' each count as one symbol. A keyword writes '0' for any digit.
func fold(c byte) byte {
	switch {
	case c >= 'A' && c <= 'Z':
		return c | 0x20
	case c >= '0' && c <= '9':
		return '0'
	case c == '_':
		return '-'
	}
	return c
}

func newAutomaton(words []string) (*automaton, error) {
	a := &automaton{}
	classes := 1 // class 0: every byte no keyword has
	var classOf [256]uint8
	for _, w := range words {
		if w == "" {
			return nil, errors.New("threat: empty keyword")
		}
		for i := 0; i < len(w); i++ {
			if c := fold(w[i]); classOf[c] == 0 {
				if classes == maxClasses {
					return nil, fmt.Errorf("threat: more than %d distinct bytes in keywords", maxClasses-1)
				}
				classOf[c] = uint8(classes)
				classes++
			}
		}
	}
	for c := range 256 {
		a.class[c] = classOf[fold(byte(c))]
	}

	type node struct {
		next [maxClasses]int32 // 0: none, while the trie is built
		fail int32
		out  []uint16
	}
	trie := []node{{}}
	for k, w := range words {
		s := int32(0)
		for i := 0; i < len(w); i++ {
			c := a.class[w[i]]
			if trie[s].next[c] == 0 {
				if len(trie) == maxStates {
					return nil, fmt.Errorf("threat: more than %d automaton states", maxStates)
				}
				trie = append(trie, node{})
				trie[s].next[c] = int32(len(trie) - 1)
			}
			s = trie[s].next[c]
		}
		trie[s].out = append(trie[s].out, uint16(k))
	}

	// Breadth first: a node's fail link is shallower and already complete.
	var queue []int32
	for _, s := range trie[0].next {
		if s != 0 {
			queue = append(queue, s)
		}
	}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		f := trie[s].fail
		trie[s].out = append(trie[s].out, trie[f].out...)
		for c, t := range trie[s].next {
			if t == 0 {
				trie[s].next[c] = trie[f].next[c]
				continue
			}
			trie[t].fail = trie[f].next[c]
			queue = append(queue, t)
		}
	}

	a.stride = uint32(classes)
	row := make([]uint32, len(trie))
	n := uint32(0)
	for s := range trie {
		if len(trie[s].out) == 0 {
			row[s] = n
			n += a.stride
		}
	}
	a.firstOut = n
	for s := range trie {
		if len(trie[s].out) > 0 {
			row[s] = n
			n += a.stride
			a.outs = append(a.outs, trie[s].out)
		}
	}
	a.next = make([]uint32, n)
	for s := range trie {
		for c := range classes {
			a.next[int(row[s])+c] = row[trie[s].next[c]]
		}
	}
	return a, nil
}
