// Package fingerprint recognises texts that were seen before, also where they were shortened, rearranged or put into a longer text.
//
// A text is cut into shingles: each five words that follow one another, in lower case and without punctuation. Two texts are alike if half of the shingles
// of one are in the other. Of a long text a sample is kept that is the same whatever else the text stands in: those of its shingles with the smallest hashes.
//
// Promises: the same text gives the same print in every process and every version; a print says nothing about a text that isn't known already; a text with
// too few words to tell is like no other; what is kept is bounded, and the oldest is forgotten first. Whoever words a text anew is not recognised.
package fingerprint

import (
	"encoding/binary"
	"hash/fnv"
	"iter"
	"slices"
	"strings"
	"sync"
	"unicode"
)

const (
	// shingleWords is how many words make a shingle.
	shingleWords = 5
	// minShingles is how many shingles a text has at least: fewer are in too many texts to tell them apart.
	minShingles = 8
	// sampled is how many shingles are kept of a text that has more; of a long one, each in sampledOf, at most maxSampled: so a part of some hundred words is recognised, too.
	sampled    = 256
	sampledOf  = 8
	maxSampled = 8192
	// Alike is the share of shingles from which two texts are alike.
	Alike = 0.5
	// maxWords bounds the words of a text that are looked at.
	maxWords = 200_000
)

// Print is the fingerprint of a text: the hashes of its shingles, ascending and distinct.
type Print []uint64

// Of returns the print of texts that belong together. No shingle reaches from one into the next.
func Of(texts ...string) Print {
	var p Print
	left := maxWords
	for _, text := range texts {
		var last [shingleWords]uint64
		n := 0
		for word := range words(text) {
			if left--; left < 0 {
				break
			}
			copy(last[:], last[1:])
			last[shingleWords-1] = hashOf(word)
			if n++; n >= shingleWords {
				p = append(p, mix(last))
			}
		}
	}
	slices.Sort(p)
	return slices.Compact(p)
}

// Running holds the shingles of texts that come one after the other, with those that reach from one into the next.
type Running struct {
	has  map[uint64]struct{}
	last [shingleWords]uint64
	n    int // words so far
}

// Add adds texts. whole is false where there are more words than are looked at: then some shingles are missing.
func (r *Running) Add(texts ...string) (whole bool) {
	if r.has == nil {
		r.has = map[uint64]struct{}{}
	}
	for _, text := range texts {
		for word := range words(text) {
			if r.n >= maxWords {
				return false
			}
			copy(r.last[:], r.last[1:])
			r.last[shingleWords-1] = hashOf(word)
			if r.n++; r.n >= shingleWords {
				r.has[mix(r.last)] = struct{}{}
			}
		}
	}
	return true
}

// Has tells whether a shingle is among them.
func (r *Running) Has(shingle uint64) bool { _, has := r.has[shingle]; return has }

// words are the runs of letters and digits of a text, in lower case.
func words(text string) iter.Seq[string] {
	return strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

func hashOf(word string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(word)) // it can't fail
	return h.Sum64()
}

// mix is one hash of the words of a shingle. Its bits are spread evenly, because the smallest hashes are the sample.
func mix(words [shingleWords]uint64) uint64 {
	h := fnv.New64a()
	var b [8]byte
	for _, w := range words {
		binary.BigEndian.PutUint64(b[:], w)
		_, _ = h.Write(b[:]) // it can't fail
	}
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// Tells tells whether the text has enough words to be recognised.
func (p Print) Tells() bool { return len(p) >= minShingles }

// Without are the shingles of the print that o has not.
func (p Print) Without(o Print) Print {
	return slices.DeleteFunc(slices.Clone(p), func(h uint64) bool { _, has := slices.BinarySearch(o, h); return has })
}

// Sample is what is kept of a print. It is recognised as the whole is.
func (p Print) Sample() Print {
	return slices.Clone(p[:min(len(p), max(sampled, min(len(p)/sampledOf, maxSampled)))])
}

// Match is a text that is known, and how much of it was found.
type Match struct {
	ID    string
	Share float64 // of the shingles of one that are in the other, the larger of both
}

// Known holds the prints of texts that are known. Make it with New. Safe for concurrent use.
type Known struct {
	max int

	mu     sync.Mutex // guards what follows
	prints map[string]Print
	order  []string // of ids, the oldest first
	in     map[uint64][]string
	hashes int // of all prints
}

// New returns a Known that keeps the newest max texts: fewer, where they are so long that their samples would take more room than those of max short ones.
func New(max int) *Known {
	return &Known{max: max, prints: map[string]Print{}, in: map[uint64][]string{}}
}

// Add notes a text by its sample. One that tells nothing, or whose id is known, is left out.
func (k *Known) Add(id string, p Print) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, has := k.prints[id]; has || !p.Tells() {
		return
	}
	kept := slices.Clone(p[:min(len(p), maxSampled)])
	k.prints[id] = kept
	k.hashes += len(kept)
	k.order = append(k.order, id)
	for _, h := range kept {
		k.in[h] = append(k.in[h], id)
	}
	for len(k.order) > k.max || k.hashes > k.max*sampled+64*maxSampled {
		k.forget(k.order[0])
		k.order = slices.Delete(k.order, 0, 1)
	}
}

// forget drops a text. It holds mu.
func (k *Known) forget(id string) {
	for _, h := range k.prints[id] {
		left := slices.DeleteFunc(k.in[h], func(other string) bool { return other == id })
		if len(left) == 0 {
			delete(k.in, h)
		} else {
			k.in[h] = left
		}
	}
	k.hashes -= len(k.prints[id])
	delete(k.prints, id)
}

// Similar returns the known text that is most like the given ones, which belong together; false if none is.
func (k *Known) Similar(texts ...string) (Match, bool) { return k.Like(Of(texts...)) }

// Holds tells whether half of the shingles of a text stand in known texts, of all of them together, and names the one that has most of them. It is for a part of
// a longer text: what a known text has besides does not count. Of a known text that is kept as a sample, what was kept stands for all of it.
func (k *Known) Holds(p Print) (Match, bool) {
	if !p.Tells() {
		return Match{}, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	shared, found := map[string]int{}, 0
	for _, h := range p {
		ids := k.in[h]
		if len(ids) > 0 {
			found++
		}
		for _, id := range ids {
			shared[id]++
		}
	}
	var most Match
	together := float64(found) / float64(len(p))
	for id, n := range shared {
		part, comparable := float64(n)/float64(len(p)), k.prints[id].comparable(p)
		if comparable >= minShingles {
			part = float64(n) / float64(comparable)
		}
		if part > most.Share || part == most.Share && id < most.ID {
			most = Match{id, part}
		}
	}
	most.Share = max(most.Share, together)
	return most, most.Share >= Alike
}

// Like returns the known text that is most like what has the print; false if none is.
func (k *Known) Like(p Print) (Match, bool) {
	if !p.Tells() {
		return Match{}, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	shared := map[string]int{}
	for _, h := range p {
		for _, id := range k.in[h] {
			shared[id]++
		}
	}
	var best Match
	for id, n := range shared {
		if share := k.prints[id].share(p, n); share > best.Share || share == best.Share && id < best.ID {
			best = Match{id, share}
		}
	}
	return best, best.Share >= Alike
}

// share is the larger of how much of the kept print stands in the text, and how much of the text stands in what was kept. n shingles are in both. Where the
// kept print is a sample, it says nothing about hashes above its largest, so only those up to there are counted.
func (kept Print) share(text Print, n int) float64 {
	share := float64(n) / float64(len(kept))
	if comparable := kept.comparable(text); comparable >= minShingles {
		share = max(share, float64(n)/float64(comparable))
	}
	return share
}

// comparable is how many shingles of a text can be looked for in the kept print.
func (kept Print) comparable(text Print) int {
	if len(kept) < sampled {
		return len(text)
	}
	at, found := slices.BinarySearch(text, kept[len(kept)-1])
	if found {
		at++
	}
	return at
}
