package screen

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// A word that no step can follow on is held against first steps alone. Rules fire as if each word were held against all steps that want it.
func TestStepsOutOfReach(t *testing.T) {
	d, err := New(Options{Name: "own.txt", Rules: []byte("date 2026-12-01\nclass NEARBY zebra lion\nclass BEYOND lion tiger\nrule nearby 1 : NEARBY 0 BEYOND 2 NEARBY\nrule beyond 2 : BEYOND 40 NEARBY 0 NEARBY\n")})
	if err != nil {
		t.Fatal(err)
	}
	var words []uint32
	for line := range strings.Lines(string(ownRules)) {
		if class, ok := strings.CutPrefix(line, "class "); ok {
			for _, w := range strings.Fields(class)[1:] {
				words = append(words, hashWord(w))
			}
		}
	}
	own := []uint32{hashWord("zebra"), hashWord("lion"), hashWord("tiger")}
	fired := 0
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		some := words
		if seed%2 == 0 {
			some = own
		} else if seed%3 == 0 {
			some = []uint32{words[random.IntN(len(words))], words[random.IntN(len(words))], words[random.IntN(len(words))], words[random.IntN(len(words))]}
		}
		s := d.pool.New().(*scratch)
		last := slices.Clone(s.reading.met.last)
		for range 3 { // texts
			s.reading.begin()
			for range 400 {
				if s.reading.met.at++; random.IntN(3) == 0 {
					s.reading.met.at += uint32(random.IntN(maxGap + 3))
				}
				at, h := s.reading.met.at, some[random.IntN(len(some))]
				var want reading
				want.d, want.now = d, s.reading.now
				if w := d.rules.find(h); w != nil {
					for _, p := range w.places {
						if p.gap == anyGap || at-last[p.at-1]-1 <= p.gap {
							if last[p.at] = at; p.fires >= 0 {
								want.fire(p.fires)
								fired++
							}
						}
					}
				}
				s.reading.word(h)
				if s.reading.now != want.now || !slices.Equal(s.reading.met.last, last) {
					t.Fatalf("seed %d, word %d: steps that were reached are not those that all steps give, or %+v is not %+v", seed, at, s.reading.now, want.now)
				}
			}
		}
	}
	if fired < 1000 {
		t.Errorf("only %d rules fired", fired)
	}
}

// The marks that begin at a place are those that a comparison with each mark finds.
func TestMarks(t *testing.T) {
	d := testDetector(t)
	type known struct {
		text string
		rule int32
	}
	var all []known
	for rule, r := range d.rules.all {
		for line := range strings.Lines(string(ownRules)) {
			if head, text, ok := strings.Cut(line, " : "); ok && strings.HasPrefix(head, "mark "+r.id+" ") {
				all = append(all, known{strings.TrimSpace(text), int32(rule)})
			}
		}
	}
	if len(all) < 20 {
		t.Fatalf("only %d marks", len(all))
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		m := all[random.IntN(len(all))].text
		text := m[:random.IntN(len(m))+1] + all[random.IntN(len(all))].text
		if random.IntN(2) == 0 {
			text = strings.ToUpper(text)
		}
		text = text[:random.IntN(len(text))+1]
		got, want := reading{d: d, now: chunk{rule: -1}}, reading{d: d, now: chunk{rule: -1}}
		if o := d.rules.opens[text[0]]; o != nil {
			got.mark(o, []byte(text))
		}
		for _, k := range all {
			if strings.HasPrefix(strings.ToLower(text), k.text) {
				want.fire(k.rule)
			}
		}
		if got.now != want.now {
			t.Fatalf("%q: %+v, with each mark %+v", text, got.now, want.now)
		}
	}
}
