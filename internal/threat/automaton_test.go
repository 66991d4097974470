package threat

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// The automaton meets the same keywords at the same places in lanes as it does byte by byte.
func TestLanes(t *testing.T) {
	d := newDetector(t)
	a := d.auto
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 7))
		var text []byte
		for len(text) < 3*lanes*laneSize {
			switch word := []byte(d.words[random.IntN(len(d.words))].text); {
			case seed%3 == 0 || random.IntN(4) == 0:
				text = append(text, word...)
			case random.IntN(3) == 0: // keywords within one another, and cut short
				text = append(text, word[:random.IntN(len(word))]...)
			default:
				for range random.IntN(20) {
					text = append(text, byte(random.IntN(128)))
				}
			}
		}
		var want, got []keywordEnd
		var ends [lanes][]keywordEnd
		one, state := uint32(0), uint32(0)
		at := random.IntN(40) // lanes begin anywhere in a keyword
		for _, c := range text[:at] {
			one = a.next[one+uint32(a.class[c])]
		}
		state = one
		for ; len(text)-at >= lanes*laneSize; at += lanes * laneSize {
			state = a.abreast(&ends, text, at, state)
			for lane := range ends {
				for _, e := range ends[lane] {
					got = append(got, keywordEnd{e.state, e.at + uint32(at+lane*laneSize)})
				}
			}
			for i, c := range text[at:][:lanes*laneSize] {
				if one = a.next[one+uint32(a.class[c])]; one >= a.firstOut {
					want = append(want, keywordEnd{one, uint32(at + i + 1)})
				}
			}
			if state != one {
				t.Fatalf("seed %d: state %d at %d, byte by byte %d", seed, state, at, one)
			}
		}
		if !slices.Equal(got, want) || len(want) == 0 {
			t.Fatalf("seed %d: %d ends of keywords, byte by byte %d", seed, len(got), len(want))
		}
	}
}

// A secret is found where it stands, wherever lanes begin.
func TestSecretAcrossLanes(t *testing.T) {
	d := newDetector(t)
	secret := []byte(" ghp_" + fake(alnum, 36, 9) + " ")
	one := d.Scan(secret)
	if len(one) != 1 {
		t.Fatalf("%v", one)
	}
	for border := 0; border <= 2*lanes*laneSize; border += laneSize {
		for at := max(0, border-len(secret)-1); at <= border+1; at++ {
			text := bytes.Repeat([]byte("words "), 3*lanes*laneSize/6)
			copy(text[at:], secret)
			found := d.Scan(text)
			if len(found) != 1 || found[0].Start != at+one[0].Start || found[0].End != at+one[0].End {
				t.Fatalf("at %d: %v", at, found)
			}
		}
	}
}
