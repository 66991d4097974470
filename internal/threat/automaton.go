package threat

import (
	"errors"
	"fmt"
)

// automaton is an Aho-Corasick machine compiled to a table: one lookup per
// byte whatever the number of keywords. It works on folded bytes (see fold)
// and is therefore only a filter: each rule checks the exact bytes.
type automaton struct {
	class [256]uint8
	// next[state+class]: a state is the offset of its row of stride entries. States that
	// complete a keyword stand last, so that the inner loop finds them with one
	// comparison against firstOut.
	next     []uint32
	stride   uint32
	firstOut uint32
	outs     [][]uint16 // by row after firstOut: indices of the keywords that end here
	longest  int        // of the keywords
}

const (
	maxClasses = 64
	maxStates  = 1 << 15
)

// The state at each byte depends on the one before, so stretches of a long text are read in lanes that don't wait for one another.
const (
	lanes    = 4
	laneSize = 2 << 10
)

// keywordEnd is a state in which keywords end, and how many bytes of its lane were read by then.
type keywordEnd struct{ state, at uint32 }

// abreast reads a stretch of v from a place on, in lanes, where the state there is known. It returns the state at its end, and gives each lane the ends of
// keywords in it. Which state a lane begins in follows from the bytes before it, as many as the longest keyword has: no state knows more of a text.
func (a *automaton) abreast(ends *[lanes][]keywordEnd, v []byte, at int, state uint32) uint32 {
	next, class, firstOut := a.next, &a.class, a.firstOut
	var in [lanes]uint32
	for lane := range lanes {
		ends[lane] = ends[lane][:0]
		if lane == 0 {
			in[lane] = state
			continue
		}
		begin := at + lane*laneSize
		for _, c := range v[begin-a.longest : begin] {
			in[lane] = next[in[lane]+uint32(class[c])]
		}
	}
	v0, v1, v2, v3 := v[at:][:laneSize], v[at+laneSize:][:laneSize], v[at+2*laneSize:][:laneSize], v[at+3*laneSize:][:laneSize]
	s0, s1, s2, s3 := in[0], in[1], in[2], in[3]
	for i := range laneSize {
		s0 = next[s0+uint32(class[v0[i]])]
		s1 = next[s1+uint32(class[v1[i]])]
		s2 = next[s2+uint32(class[v2[i]])]
		s3 = next[s3+uint32(class[v3[i]])]
		if max(s0, s1, s2, s3) < firstOut {
			continue
		}
		for lane, s := range [lanes]uint32{s0, s1, s2, s3} {
			if s >= firstOut {
				ends[lane] = append(ends[lane], keywordEnd{s, uint32(i + 1)})
			}
		}
	}
	return s3
}

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
	classes, err := a.classify(words)
	if err != nil {
		return nil, err
	}
	t, err := a.grow(words)
	if err != nil {
		return nil, err
	}
	t.link()
	a.tabulate(t, classes)
	return a, nil
}

// classify numbers the bytes that keywords have. Class 0 is every other byte.
func (a *automaton) classify(words []string) (classes int, err error) {
	classes = 1
	var classOf [256]uint8
	for _, w := range words {
		if w == "" || len(w) > laneSize {
			return 0, errors.New("threat: a keyword is empty, or longer than what is read at a time")
		}
		a.longest = max(a.longest, len(w))
		for i := 0; i < len(w); i++ {
			if c := fold(w[i]); classOf[c] == 0 {
				if classes == maxClasses {
					return 0, fmt.Errorf("threat: more than %d distinct bytes in keywords", maxClasses-1)
				}
				classOf[c] = uint8(classes)
				classes++
			}
		}
	}
	for c := range 256 {
		a.class[c] = classOf[fold(byte(c))]
	}
	return classes, nil
}

// trie has the keywords as paths from its first node.
type trie []node

type node struct {
	next [maxClasses]int32 // 0: none, until link completes it
	fail int32
	out  []uint16
}

func (a *automaton) grow(words []string) (trie, error) {
	t := trie{{}}
	for k, w := range words {
		s := int32(0)
		for i := 0; i < len(w); i++ {
			c := a.class[w[i]]
			if t[s].next[c] == 0 {
				if len(t) == maxStates {
					return nil, fmt.Errorf("threat: more than %d automaton states", maxStates)
				}
				t = append(t, node{})
				t[s].next[c] = int32(len(t) - 1)
			}
			s = t[s].next[c]
		}
		t[s].out = append(t[s].out, uint16(k))
	}
	return t, nil
}

// link gives every node a successor for every class, by the longest suffix that is in the trie. Breadth first: a node's fail link is
// shallower and already complete.
func (t trie) link() {
	var queue []int32
	for _, s := range t[0].next {
		if s != 0 {
			queue = append(queue, s)
		}
	}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		f := t[s].fail
		t[s].out = append(t[s].out, t[f].out...)
		for c, to := range t[s].next {
			if to == 0 {
				t[s].next[c] = t[f].next[c]
				continue
			}
			t[to].fail = t[f].next[c]
			queue = append(queue, to)
		}
	}
}

// tabulate writes the linked trie into the table.
func (a *automaton) tabulate(t trie, classes int) {
	a.stride = uint32(classes)
	row := make([]uint32, len(t))
	n := uint32(0)
	for s := range t {
		if len(t[s].out) == 0 {
			row[s] = n
			n += a.stride
		}
	}
	a.firstOut = n
	for s := range t {
		if len(t[s].out) > 0 {
			row[s] = n
			n += a.stride
			a.outs = append(a.outs, t[s].out)
		}
	}
	a.next = make([]uint32, n)
	for s := range t {
		for c := range classes {
			a.next[int(row[s])+c] = row[t[s].next[c]]
		}
	}
}
