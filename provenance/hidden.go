package provenance

import (
	"slices"
	"strings"
)

// A secret that was found in a result or in arguments is not kept as it is: a value that has one, or is part of one, is kept by a keyed hash. It is found
// again as a whole. What a call gave away is also found by its pieces, as in Written, and what stands around the secret is kept: tools join it with other
// arguments.

// maxSecrets bounds the secrets of one observation: with more, nothing of it is kept.
const maxSecrets = 64

// minSecretPart is the length from which on a value that is part of a secret is hidden, too.
const minSecretPart = 4 // bytes

// Hide replaces each value of the observation in which a secret stands by its hash. What can't be compared by a hash confirms less than it did.
func (s *Observation) Hide(secrets []string, hash func(value string) string) {
	switch {
	case len(secrets) == 0:
		return
	case len(secrets) > maxSecrets:
		s.Records, s.Approved = nil, nil
		if s.GivenAway != nil {
			s.GivenAway = GivenAway(GivenCall{Writes: s.GivenAway.Wrote != nil}).GivenAway // it may have been anything
		}
		return
	}
	folded := make([]string, len(secrets))
	for i, secret := range secrets {
		folded[i] = fold(secret)
	}
	has := func(text string) bool {
		text = fold(text)
		return slices.ContainsFunc(folded, func(secret string) bool {
			return strings.Contains(text, secret) || len(text) >= minSecretPart && strings.Contains(secret, text)
		})
	}
	for i := range s.Records {
		s.Records[i].hide(has, hash)
	}
	if a := s.Approved; a != nil { // asked about again
		a.Values = slices.DeleteFunc(a.Values, func(v approvedValue) bool { return has(v.Text) || has(v.Argument) })
	}
	if g := s.GivenAway; g != nil {
		rest := slices.DeleteFunc(around(g.Values, folded), has)
		g.hide(has, hash)
		g.Values = append(g.Values, rest...)
	}
}

// HideValues replaces each value of the records by its hash. By what the request names a record stays: the request has it, too.
func (s *Observation) HideValues(hash func(value string) string) {
	for i := range s.Records {
		for j := range s.Records[i].Values {
			s.Records[i].Values[j].hide(hash)
		}
	}
}

// hide replaces a value by its hash.
func (v *seenValue) hide(hash func(value string) string) {
	f, _ := v.form()
	*v = seenValue{Field: v.Field, Class: v.Class, Many: v.Many, Hash: hash(f.token())}
}

// around returns what stands before, between and behind the secrets in the values that have any.
func around(values, secrets []string) (rest []string) {
	seen := map[string]bool{"": true}
	for _, value := range values {
		text := fold(value)
		in := make([]bool, len(text)) // of each byte: it is one of a secret
		found := false
		for _, secret := range secrets {
			for from := 0; secret != ""; {
				i := strings.Index(text[from:], secret)
				if i < 0 {
					break
				}
				found, from = true, from+i+1
				for j := range len(secret) {
					in[from-1+j] = true
				}
			}
		}
		for from := 0; found && from < len(text); {
			to := from + 1
			for to < len(text) && in[to] == in[from] {
				to++
			}
			if part := strings.TrimSpace(text[from:to]); !in[from] && !seen[part] {
				seen[part], rest = true, append(rest, part)
			}
			from = to
		}
	}
	return rest
}

func (r *seenRecord) hide(has func(string) bool, hash func(string) string) {
	r.By = slices.DeleteFunc(r.By, func(by namedBy) bool { return has(by.Text) || has(by.Field) })
	if r.Named = ""; len(r.By) > 0 && !r.By[0].Many {
		r.Named = r.By[0].Field
	}
	for i := range r.Values {
		v := &r.Values[i]
		if has(v.Field) {
			v.Field = ""
		}
		if !has(v.Text) {
			continue
		}
		v.hide(hash)
	}
}

func (g *givenAway) hide(has func(string) bool, hash func(string) string) {
	seen, ok := map[string]bool{}, true
	g.Values = slices.DeleteFunc(g.Values, func(value string) bool {
		hidden := has(value)
		if hidden {
			ok = hiddenPieces(value, seen) && ok
		}
		return hidden
	})
	g.Known, g.Hosts = slices.DeleteFunc(g.Known, has), slices.DeleteFunc(g.Hosts, has)
	if w := g.Wrote; w != nil {
		before := len(w.IDs) + len(w.By)
		if w.IDs, w.By = slices.DeleteFunc(w.IDs, has), slices.DeleteFunc(w.By, has); len(w.IDs)+len(w.By) < before {
			w.Any = true
		}
	}
	if !ok || len(seen) > maxWritten {
		g.All = true
		return
	}
	for piece := range seen {
		g.Hashes = append(g.Hashes, hash(piece))
	}
	slices.Sort(g.Hashes)
}

// hiddenPieces are pieces, and those words of the value of which a tool can put another one together.
func hiddenPieces(value string, seen map[string]bool) bool {
	if !pieces(value, seen) {
		return false
	}
	var g given
	g.add(value, 0, nil)
	for word := range g.words {
		seen[hiddenWord+word] = true
	}
	for word := range g.edges {
		seen[hiddenEdge+word] = true
	}
	for _, t := range g.texts {
		words := strings.Fields(t.words)
		for n := 2; n <= phraseWords; n++ {
			for i := 0; i+n <= len(words) && len(seen) <= maxWritten; i++ {
				seen[hiddenBare+strings.Join(words[i:i+n], "")] = true
			}
		}
	}
	return true
}

// What is hashed beside the pieces of Written: words, the first and last word of an argument, and words that stand behind one another, as one.
const (
	hiddenWord = "word "
	hiddenEdge = "edge "
	hiddenBare = "bare "
)

// hashed is since for one piece of what was given and hidden.
func (g *given) hashed(piece string) int {
	if len(g.hashes) == 0 {
		return never
	}
	if at, ok := g.hashes[g.hash(piece)]; ok {
		return at
	}
	return never
}

// HashWith sets how values are hashed that were hidden.
func (e *Evidence) HashWith(hash func(value string) string) {
	e.hash, e.given.hash, e.names.hash = hash, hash, hash
}

// addHashes adds the pieces of what was given and hidden.
func (g *given) addHashes(hashes []string, at int) {
	if len(hashes) == 0 {
		return
	}
	g.begin(at)
	if g.size += len(hashes) * len(hashes[0]); g.hash == nil || g.size > maxGivenAway {
		g.fill(at)
		return
	}
	if g.hashes == nil {
		g.hashes, g.last = map[string]int{}, maxPiece // how long the longest edge is, nobody can tell
	}
	for _, hash := range hashes {
		first(g.hashes, hash, at)
	}
}

// hiddenSince is since for what was given and hidden.
func (g *given) hiddenSince(value string, id bool) int {
	at := never
	if len(g.hashes) == 0 || len(value) > maxValue {
		return at
	}
	found := never
	was := func(piece string) bool {
		since, ok := g.hashes[g.hash(piece)]
		if ok {
			found = min(found, since)
		}
		return ok
	}
	if wasWritten(value, id, was) {
		at = min(at, found)
		if found == never { // it can't be read
			at = 0
		}
	}
	all, _ := readings(strings.TrimSpace(value))
	for _, reading := range all {
		if f, ok := formOf(strings.ReplaceAll(reading, decodedMark, "")); ok && (f.kind == mail || f.kind == link) && !id {
			for host := hostOf(f); strings.Contains(host, "."); _, host, _ = strings.Cut(host, ".") {
				if was("host " + host) {
					at = min(at, found)
				}
			}
		}
	}
	return at
}
