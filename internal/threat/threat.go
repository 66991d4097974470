// Package threat judges text from outside: it finds sensitive data in what
// tools return and are given (FL-3), replaces secrets in what people are
// shown, and makes hostile text harmless to print.
//
// The work is one pass of an automaton over the text. It stops only where a
// keyword or a shape ends, and there a rule looks at a bounded neighbourhood:
// exact prefix, alphabet, length, check digits, words nearby. So the time is
// linear in the length of the text whatever it holds, and a clean text costs
// no allocation.
//
// A finding is a reason to raise a label, not proof of anything. The rules
// report nothing where a shape alone says little: numbers without a strong
// check need a word nearby that says what they are.
package threat

import (
	"bytes"
	"slices"
	"sort"
	"sync"
)

// The labels a finding raises.
const (
	LabelSecret = "secret"
	LabelPII    = "pii"
)

// Detector holds the compiled rules. It does not change after New and is safe
// for concurrent use.
type Detector struct {
	auto  *automaton
	words []keyword
	pool  sync.Pool // *scan: scratch memory only, nothing outlives a call
}

// The largest scratch memory that is kept between calls.
const (
	pooledMax  = 1 << 20 // bytes
	pooledHits = 4000
)

// New compiles the rules.
func New() (*Detector, error) {
	words := keywords()
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = w.text
	}
	auto, err := newAutomaton(texts)
	if err != nil {
		return nil, err
	}
	return &Detector{auto: auto, words: words, pool: sync.Pool{New: func() any { return new(scan) }}}, nil
}

// Labels returns the labels that what b holds raises, sorted, each once.
func (d *Detector) Labels(b []byte) []string {
	s := d.scan(b, true)
	defer d.release(s)
	return s.labels()
}

// reach is how far before a finding its rule reads, but for what farReaching names. Words that say what a number is are the farthest (wide).
const reach = 1 << 10

// LabelsSince returns the labels that b raises beyond those that its first known bytes raise by themselves. It reads no more of these than it has to, so
// a text that comes in many pieces, each looked at with the end of what came before, costs little more than the text.
func (d *Detector) LabelsSince(b []byte, known int) []string {
	if known > reach && !farReaching(b, known) {
		start := known - reach
		b = b[start+bytes.IndexFunc(b[start:known], breaks):]
	}
	return d.Labels(b)
}

// farReaching tells whether what follows the first known bytes can belong to a finding that begins more than reach before it: a list of addresses, something
// written with escapes, or what has no space in it.
func farReaching(b []byte, known int) bool {
	word := known - reach + bytes.LastIndexFunc(b[known-reach:known], breaks)
	return word < known-reach || bytes.IndexByte(b[word:], '@') >= 0 || bytes.IndexByte(b, '\\') >= 0
}

func breaks(r rune) bool { return r <= ' ' }

// labels are those that the findings so far raise.
func (s *scan) labels() []string {
	switch {
	case s.pii && s.secret:
		return []string{LabelPII, LabelSecret}
	case s.pii:
		return []string{LabelPII}
	case s.secret:
		return []string{LabelSecret}
	}
	return nil
}

// hit is a finding inside the detector. While scanning, offsets are in the view.
type hit struct {
	kind       kind
	start, end int
}

// scan is the state of one pass. v is the view; nothing writes to it.
type scan struct {
	v      []byte
	hits   []hit
	pii    bool
	secret bool

	buf  []byte              // backing store of v where the text has escapes
	ends [lanes][]keywordEnd // what the lanes of one stretch of v met

	// seen[c] is the end of the last context word of class c.
	seen [ctxClasses]int
	memo

	mails     [manyMails]uint64
	mailCount int
	mailStart int
}

func (s *scan) add(k kind, start, end int) {
	s.hits = append(s.hits, hit{k, start, end})
	if k.secret() {
		s.secret = true
	} else {
		s.pii = true
	}
}

// memo holds how far the rules have read beyond the automaton, so that text made of
// nothing but triggers is still read only a few times.
type memo struct {
	numEnd    int // the digit run or number that ends here is judged
	identEnd  int // the name that ends here is judged
	pemEnd    int
	jwtEnd    int
	ibanTried int // where an IBAN was last looked for; -1: nowhere
	// the unquoted value that is known to reach valueEnd from valueStart, and likewise the run of tokenSet
	valueStart, valueEnd int
	tokenStart, tokenEnd int
	tokenSet             *charset
}

// scan runs the rules over the view of b; labels stops as soon as both labels are known. The caller releases the result.
func (d *Detector) scan(b []byte, labels bool) *scan {
	s := d.pool.Get().(*scan)
	s.hits = s.hits[:0]
	s.pii, s.secret = false, false
	s.memo = memo{ibanTried: -1}
	s.mailCount, s.mailStart = 0, 0
	for i := range s.seen {
		s.seen[i] = never
	}
	s.v = b
	if bytes.IndexByte(b, '\\') >= 0 {
		s.buf = appendView(slices.Grow(s.buf[:0], len(b)), b)
		s.v = s.buf
	}

	a := d.auto
	st, at := uint32(0), 0
	for ; len(s.v)-at >= lanes*laneSize; at += lanes * laneSize {
		st = a.abreast(&s.ends, s.v, at, st)
		for lane := range s.ends {
			for _, e := range s.ends[lane] {
				d.confirm(s, e.state, at+lane*laneSize+int(e.at))
			}
		}
		if labels && s.pii && s.secret {
			return s
		}
	}
	for i, c := range s.v[at:] {
		if st = a.next[st+uint32(a.class[c])]; st < a.firstOut {
			continue
		}
		if d.confirm(s, st, at+i+1); labels && s.pii && s.secret {
			break
		}
	}
	return s
}

// confirm has the rules look at the keywords that end at a place, where the automaton is in a state of a keyword.
func (d *Detector) confirm(s *scan, state uint32, end int) {
	for _, k := range d.auto.outs[(state-d.auto.firstOut)/d.auto.stride] {
		w := &d.words[k]
		w.confirm(s, w, end)
	}
}

func (d *Detector) release(s *scan) {
	s.v = nil
	if cap(s.buf) > pooledMax {
		s.buf = nil
	}
	if cap(s.hits) > pooledHits {
		s.hits = nil
	}
	d.pool.Put(s)
}

// settle orders the hits, joins overlapping secrets under the more telling
// kind, and maps offsets back to b.
func (s *scan) settle(b []byte) {
	if len(s.v) != len(b) { // an escape always shrinks, so equal length is the text itself
		toRaw(b, s.hits)
	}
	sort.Slice(s.hits, func(i, j int) bool {
		x, y := s.hits[i], s.hits[j]
		if x.start != y.start {
			return x.start < y.start
		}
		if x.end != y.end {
			return x.end > y.end
		}
		return x.kind < y.kind
	})
	out := s.hits[:0]
	last := -1 // index in out of the last secret
	for _, h := range s.hits {
		if h.kind.secret() {
			if last >= 0 && h.start < out[last].end {
				out[last].end = max(out[last].end, h.end)
				out[last].kind = min(out[last].kind, h.kind)
				continue
			}
			last = len(out)
		}
		out = append(out, h)
	}
	s.hits = out
}
