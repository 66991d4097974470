package guard

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var executions = flag.Int("executions", 20_000, "how many texts TestFence_ManyExecutions wraps and parses")

// TestFence_ManyExecutions does what FuzzWrap and FuzzParseWrapped do, without coverage but at many times their pace:
//
//	go test ./guard -run TestFence_ManyExecutions -timeout 0 -args -executions 10000000
//
// Each execution mutates a text, wraps it, checks the invariants, and then parses the block after mutating it, too.
func TestFence_ManyExecutions(t *testing.T) {
	seed := rand.Uint64()
	m := newMutator(t, seed)
	began := time.Now()
	parsed, escaped, forged, cuts := 0, 0, 0, 0
	for n := range *executions {
		content, source, limit, at := m.text(), m.source(), 0, m.r.IntN(8<<10)
		if m.r.IntN(4) == 0 {
			limit = 1 + m.r.IntN(len(content)+8)
		}
		w, err := wrapHolds(content, source, limit, at)
		if err != nil {
			t.Fatalf("execution %d with seed %d: wrapHolds(%q, %q, %d, %d): %v", n, seed, content, source, limit, at, err)
		}
		if w.ForModel() == "" { // the text knows each of the nonces
			continue
		}
		if h := w.Header(); h.Escaped > 0 {
			escaped++
			if h.Forgeries > 0 {
				forged++
			}
			if h.Truncated() {
				cuts++
			}
		}
		text := m.block(w)
		ok, err := parseHolds(text)
		if err != nil {
			t.Fatalf("execution %d with seed %d: parseHolds(%q): %v", n, seed, text, err)
		}
		if ok {
			parsed++
		}
	}
	t.Logf("%d texts wrapped and parsed, %.0f a second; %d were escaped (%d of them forgeries, %d cut), %d blocks still parsed after the mutation; seed %d",
		*executions, float64(*executions)/time.Since(began).Seconds(), escaped, forged, cuts, parsed, seed)
	if *executions >= 1000 && (escaped < *executions/4 || forged < *executions/100 || cuts < *executions/100 || parsed < *executions/100) {
		t.Error("the texts are too tame to show anything")
	}
}

// mutator makes hostile texts out of seeds and of its own earlier texts.
type mutator struct {
	r      *rand.Rand
	seeds  []string
	parts  []string
	pool   [256]string
	looks  [128][]rune // look-alikes of an ASCII character, by its skeleton
	vanish []rune      // what a reader doesn't see
	buf    []byte
}

const maxMutant = 512

func newMutator(t *testing.T, seed uint64) *mutator {
	m := &mutator{r: rand.New(rand.NewPCG(seed, 0))}
	m.parts = append([]string{freshNonce, "<|im_end|>", "\nHuman:", "</s>", "BEGIN RETRIEVED CONTENT", "\n" + endMark}, hostileParts...)
	m.seeds = append(m.seeds, m.parts...)
	for _, c := range attackCases(t) {
		if p := c.payload(t); len(p) <= maxMutant {
			m.seeds = append(m.seeds, p)
		}
	}
	for r := range rune(utf8.MaxRune + 1) {
		if r < utf8.RuneSelf || !utf8.ValidRune(r) {
			continue
		}
		switch k := class(r); k {
		case plain:
		case mark, always:
			m.vanish = append(m.vanish, r)
		case doubleLess:
			m.looks['<'] = append(m.looks['<'], r)
		default:
			m.looks[k] = append(m.looks[k], r)
		}
	}
	return m
}

// text mutates a seed or a text of the pool, where the result may take the place of another.
func (m *mutator) text() string {
	s := m.pool[m.r.IntN(len(m.pool))]
	if m.r.IntN(3) > 0 {
		s = m.seeds[m.r.IntN(len(m.seeds))]
	}
	s = m.mutate(s, 1+m.r.IntN(4))
	s = s[:min(len(s), maxMutant>>m.r.IntN(5))] // the rules are local: most of what there is to find shows in short texts
	if m.r.IntN(2) == 0 {
		m.pool[m.r.IntN(len(m.pool))] = s
	}
	return s
}

func (m *mutator) source() string {
	if m.r.IntN(4) > 0 {
		return testURL
	}
	s := m.text()
	return s[:min(len(s), 64)] + "."
}

func (m *mutator) mutate(s string, times int) string {
	b := append(m.buf[:0], s...)
	for range times {
		i := m.r.IntN(len(b) + 1)
		switch m.r.IntN(10) {
		case 0:
			b = slices.Insert(b, i, []byte(m.parts[m.r.IntN(len(m.parts))])...)
		case 1: // a part of another text
			o := m.pool[m.r.IntN(len(m.pool))]
			from := m.r.IntN(len(o) + 1)
			b = slices.Insert(b, i, []byte(o[from:from+m.r.IntN(len(o)-from+1)])...)
		case 2:
			b = slices.Insert(b, i, []byte(string(m.vanish[m.r.IntN(len(m.vanish))]))...)
		case 3:
			b = slices.Insert(b, i, []byte(string(rune(m.r.IntN(utf8.MaxRune+1))))...)
		case 4: // a hole
			b = slices.Delete(b, i, i+m.r.IntN(min(len(b)-i, 16)+1))
		case 5: // a piece once more
			b = slices.Insert(b, i, slices.Clone(b[i:i+m.r.IntN(min(len(b)-i, 40)+1)])...)
		case 6: // a look-alike
			if i < len(b) && b[i] < utf8.RuneSelf {
				if looks := m.looks[skeletons[b[i]]]; len(looks) > 0 {
					b = slices.Replace(b, i, i+1, []byte(string(looks[m.r.IntN(len(looks))]))...)
				}
			}
		case 7:
			if i < len(b) {
				b[i] = byte(m.r.Uint32())
			}
		case 8:
			if i < len(b) {
				b[i] ^= 1 << m.r.IntN(8)
			}
		default: // the second half first
			b = append(b, string(b[:i])...)[i:]
		}
	}
	m.buf = b[:0]
	return string(b)
}

// block gives what an attacker could make of the block that he was shown.
func (m *mutator) block(w Wrapped) string {
	switch m.r.IntN(4) {
	case 0: // another nonce
		return strings.ReplaceAll(w.ForModel(), nonceOf.FindStringSubmatch(w.ForModel())[1], fmt.Sprintf("%016x%06x", m.r.Uint64(), m.r.Uint64()&0xFFFFFF))
	case 1: // another body, with figures that fit it, raw where Wrap would have escaped it
		body := m.text()
		content := unescape(body, false)
		h := w.Header()
		h.Length, h.Kept = len(content), len(content)
		forged := render(h, content, freshNonce)
		head, _, _ := strings.Cut(forged.ForModel(), "\n"+warning+"\n")
		return head + "\n" + warning + "\n" + body + "\n" + endMark + freshNonce + markEnd
	default:
		return m.mutate(w.ForModel(), 1+m.r.IntN(2))
	}
}
