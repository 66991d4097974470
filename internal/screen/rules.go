package screen

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bounds of a file of rules.
const (
	MaxRulesFile = 256 << 10
	maxRules     = 1000
	maxClasses   = 250
	maxSteps     = 8
	maxGap       = 40
	maxWeight    = 9
	maxWord      = 40
	maxMark      = 60
)

// rule is met where words of its classes follow one another with so many words between them at most.
type rule struct {
	id       string
	weight   float32
	template bool // it has words of a published benchmark's template
}

type step struct{ class, gap int }

// place is a step of a rule.
type place struct {
	at    uint32 // its index among all steps
	gap   uint32 // the most words after the step before; of the first step any
	reach uint32 // within how many words the next step has to follow; of the last step 0
	fires int32  // the rule that is met with it; -1: steps follow
}

// anyGap lets a first step follow whatever came before.
const anyGap = math.MaxUint32

// wanted is what the rules do with a word.
type wanted struct {
	places, firsts    []place // the steps that want it, later steps of a rule first, and the first steps among them
	reversed, rotated bool    // it is a word in another spelling
}

// mark is a text, in small letters, that is looked for as it stands.
type mark struct {
	text string
	rule int32
}

// opener has the marks that begin with one byte, and which bytes come second in them.
type opener struct {
	second [256]bool
	marks  []mark
}

// rules are all that a detector knows.
type rules struct {
	date    time.Time // of the newest, own of the program's, and last of the operator's, where there are any
	own     time.Time
	last    time.Time
	all     []rule
	steps   int
	of      [][]place // by class: the steps that want it, later steps of a rule first
	classes map[string]int
	slots   []slot // open addressing by hash
	bloom   [1024]uint64
	words   []wanted
	opens   [256]*opener // by the byte with which marks begin

	reversed, rotated       int // classes of words in other spellings
	hiddenTags, hiddenMarks int32
}

type slot struct {
	hash uint32
	word uint32 // index of words, plus one
}

// met says where each step of each rule was last reached, by the number of the word. Numbers only rise, so that nothing has to be cleared.
type met struct {
	at    uint32
	until uint32 // beyond this word no step can follow another, unless one is reached before
	last  []uint32
}

// apart is more than any rule spans: what an earlier text reached is out of reach for the next.
const apart = maxSteps * (maxGap + 2)

func (m *met) begin() {
	if m.at > 1<<31 {
		m.at, m.until = 0, 0
		clear(m.last)
	}
	m.at += apart
}

func (r *rules) maybe(h uint32) bool { return r.bloom[h>>6&1023]>>(h&63)&1 != 0 }

// find returns what rules do with a word; nil: they don't know it.
func (r *rules) find(h uint32) *wanted {
	for i := h; ; i++ {
		s := &r.slots[i&uint32(len(r.slots)-1)]
		if s.word == 0 {
			return nil
		}
		if s.hash == h {
			return &r.words[s.word-1]
		}
	}
}

// word takes the rules a step further that want this word, and reports whether there are any.
func (s *reading) word(h uint32) bool {
	w := s.d.rules.find(h)
	if w == nil {
		return false
	}
	s.wants.reversed = s.wants.reversed || w.reversed
	s.wants.rotated = s.wants.rotated || w.rotated
	places := w.places
	if s.met.at > s.met.until { // nothing was begun that it could go on with
		places = w.firsts
	}
	for i := range places {
		p := &places[i]
		if p.gap != anyGap && s.met.at-s.met.last[p.at-1]-1 > p.gap {
			continue
		}
		s.met.last[p.at] = s.met.at
		s.met.until = max(s.met.until, s.met.at+p.reach)
		if p.fires >= 0 {
			s.fire(p.fires)
		}
	}
	return true
}

// mark looks for the marks that begin here.
func (s *reading) mark(o *opener, b []byte) {
	if len(b) < 2 || !o.second[lower(b[1])] {
		return
	}
	for i := range o.marks {
		m := &o.marks[i]
		if len(b) < len(m.text) {
			continue
		}
		k := 1
		for k < len(m.text) && lower(b[k]) == m.text[k] {
			k++
		}
		if k == len(m.text) {
			s.fire(m.rule)
		}
	}
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c |= 0x20
	}
	return c
}

// parser reads files of rules. A file has lines of these forms; what follows # at the beginning of a line is a comment:
//
//	date 2026-11-24
//	class NAME word word …            a second line of the same name adds words
//	rule ID WEIGHT [template] : CLASS GAP CLASS GAP CLASS
//	mark ID WEIGHT [template] : text, as it stands, in small letters
//
// GAP is how many other words may stand between. WEIGHT is what is added to the score, up to 9.
type parser struct {
	r     *rules
	words map[uint32][]uint8
	ids   map[string]bool
}

func (p *parser) file(name string, b []byte) error {
	if len(b) > MaxRulesFile {
		return fmt.Errorf("%s: over %d bytes", name, MaxRulesFile)
	}
	var date time.Time
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, MaxRulesFile+1)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		kind, rest, _ := strings.Cut(line, " ")
		var err error
		switch kind {
		case "date":
			if date, err = time.Parse(time.DateOnly, strings.TrimSpace(rest)); err != nil {
				err = fmt.Errorf("a date has the form 2026-11-24")
			}
		case "class":
			err = p.class(rest)
		case "rule", "mark":
			err = p.rule(kind, rest)
		default:
			err = fmt.Errorf("a line begins with date, class, rule or mark")
		}
		if err != nil {
			return fmt.Errorf("%s: line %d: %w", name, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if date.IsZero() {
		return fmt.Errorf("%s: it has no line with its date, such as: date 2026-11-24", name)
	}
	if p.r.date.IsZero() { // the program's own come first
		p.r.own = date
	}
	p.r.last = date
	if date.After(p.r.date) {
		p.r.date = date
	}
	return nil
}

func (p *parser) class(rest string) error {
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return fmt.Errorf("a class has a name and words")
	}
	c, ok := p.r.classes[fields[0]]
	if !ok {
		if c = len(p.r.of); c == maxClasses {
			return fmt.Errorf("over %d classes", maxClasses)
		}
		p.r.classes[fields[0]] = c
		p.r.of = append(p.r.of, nil)
	}
	for _, w := range fields[1:] {
		if len(w) > maxWord {
			return fmt.Errorf("the word %.20q… is over %d bytes", w, maxWord)
		}
		p.add(hashWord(w), uint8(c))
	}
	return nil
}

func (p *parser) add(h uint32, class uint8) {
	if !bytes.Contains(p.words[h], []byte{class}) {
		p.words[h] = append(p.words[h], class)
	}
}

// hashWord hashes a word as a reading does.
func hashWord(w string) uint32 {
	h, f := uint32(offset32), folded()
	for _, r := range w {
		if r < 0x80 {
			h = (h ^ uint32(ascii[r])) * prime32
		} else if r = f.of(r); r != dropped {
			h = (h ^ uint32(r)) * prime32
		}
	}
	return h
}

func (p *parser) rule(kind, rest string) error {
	head, body, ok := strings.Cut(rest, " : ")
	fields := strings.Fields(head)
	if !ok || len(fields) < 2 || len(fields) > 3 || len(fields) == 3 && fields[2] != "template" {
		return fmt.Errorf("a %s has the form: %s ID WEIGHT [template] : …", kind, kind)
	}
	w, err := strconv.ParseFloat(fields[1], 32)
	if err != nil || !(w > 0 && w <= maxWeight) {
		return fmt.Errorf("the weight of %s is not above 0 and at most %d", fields[0], maxWeight)
	}
	if len(fields[0]) > maxWord || p.ids[fields[0]] {
		return fmt.Errorf("the id %.40q is there twice, or is over %d bytes", fields[0], maxWord)
	}
	if len(p.r.all) == maxRules {
		return fmt.Errorf("over %d rules", maxRules)
	}
	p.ids[fields[0]] = true
	r := rule{id: fields[0], weight: float32(w), template: len(fields) == 3}
	if kind == "mark" {
		text := strings.TrimSpace(body)
		if len(text) < 3 || len(text) > maxMark || ascii[text[0]] != ' ' || strings.ToLower(text) != text {
			return fmt.Errorf("the text of the mark %s has 3 to %d bytes, in small letters, and begins with a sign", r.id, maxMark)
		}
		o := p.r.opens[text[0]]
		if o == nil {
			o = &opener{}
			p.r.opens[text[0]] = o
		}
		o.second[text[1]] = true
		o.marks = append(o.marks, mark{text, int32(len(p.r.all))})
	} else if err := p.steps(&r, strings.Fields(body)); err != nil {
		return err
	}
	p.r.all = append(p.r.all, r)
	return nil
}

func (p *parser) steps(r *rule, fields []string) error {
	var steps []step
	if len(fields)%2 == 0 || len(fields) < 3 || len(fields) > 2*maxSteps-1 {
		return fmt.Errorf("the rule %s has not the form CLASS GAP CLASS, with %d classes at most", r.id, maxSteps)
	}
	for i := 0; i < len(fields); i += 2 {
		c, ok := p.r.classes[fields[i]]
		if !ok {
			return fmt.Errorf("the rule %s names a class %.40q that is not there; classes stand above rules", r.id, fields[i])
		}
		st := step{class: c}
		if i > 0 {
			gap, err := strconv.Atoi(fields[i-1])
			if err != nil || gap < 0 || gap > maxGap {
				return fmt.Errorf("a gap of the rule %s is not a number from 0 to %d", r.id, maxGap)
			}
			st.gap = gap
		}
		steps = append(steps, st)
	}
	for i := len(steps) - 1; i >= 0; i-- {
		c := steps[i].class
		at := place{at: uint32(p.r.steps + i), gap: uint32(steps[i].gap), fires: -1}
		if i == 0 {
			at.gap = anyGap
		}
		if i == len(steps)-1 {
			at.fires = int32(len(p.r.all))
		} else {
			at.reach = uint32(steps[i+1].gap) + 1
		}
		p.r.of[c] = append(p.r.of[c], at)
	}
	p.r.steps += len(steps)
	return nil
}

// otherSpellings are words by which a text that is spelled backwards or turned by 13 letters is known.
var otherSpellings = []string{"ignore", "instructions", "instruction", "previous", "disregard", "system", "prompt", "reveal", "password", "override", "forget"}

// parseRules reads the rules of the program and those of an operator.
func parseRules(own []byte, name string, operators []byte) (*rules, error) {
	r := &rules{classes: map[string]int{}, hiddenTags: -1, hiddenMarks: -1}
	p := &parser{r: r, words: map[uint32][]uint8{}, ids: map[string]bool{}}
	if err := p.file("the program's own rules", own); err != nil {
		return nil, err
	}
	if operators != nil {
		if err := p.file(name, operators); err != nil {
			return nil, err
		}
	}
	r.reversed, r.rotated = len(r.of), len(r.of)+1
	r.of = append(r.of, nil, nil)
	for _, w := range otherSpellings {
		b := []byte(w)
		for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
			b[i], b[j] = b[j], b[i]
		}
		p.add(hashWord(string(b)), uint8(r.reversed))
		p.add(hashWord(string(rotate([]byte(w)))), uint8(r.rotated))
	}
	for i := range r.all {
		switch r.all[i].id {
		case "hidden-tags":
			r.hiddenTags = int32(i)
		case "hidden-selectors":
			r.hiddenMarks = int32(i)
		}
	}
	r.index(p.words)
	return r, nil
}

func (r *rules) index(words map[uint32][]uint8) {
	size := 16
	for size < 2*len(words)+2 {
		size *= 2
	}
	r.slots = make([]slot, size)
	of := map[string]uint32{} // words of the same classes share what is done with them
	for h, classes := range words {
		at, ok := of[string(classes)]
		if !ok {
			r.words = append(r.words, r.want(classes))
			at = uint32(len(r.words))
			of[string(classes)] = at
		}
		i := h
		for r.slots[i&uint32(size-1)].word != 0 {
			i++
		}
		r.slots[i&uint32(size-1)] = slot{h, at}
		r.bloom[h>>6&1023] |= 1 << (h & 63)
	}
}

// want puts together what the rules do with a word of these classes.
func (r *rules) want(classes []uint8) (w wanted) {
	for _, c := range classes {
		w.reversed = w.reversed || int(c) == r.reversed
		w.rotated = w.rotated || int(c) == r.rotated
		for _, p := range r.of[c] {
			w.places = append(w.places, p)
			if p.gap == anyGap {
				w.firsts = append(w.firsts, p)
			}
		}
	}
	return w
}

// rotate turns each letter by 13, in place.
func rotate(b []byte) []byte {
	for i, c := range b {
		switch {
		case c >= 'a' && c <= 'z':
			b[i] = 'a' + (c-'a'+13)%26
		case c >= 'A' && c <= 'Z':
			b[i] = 'A' + (c-'A'+13)%26
		}
	}
	return b
}
