package provenance

import (
	"slices"
	"strings"
)

// What an untrusted session wrote to a server may come back in a later session, which knows nothing of it. So the gateway keeps hashes of it, and a
// later result of the server confirms none of these values. Hashes can be compared whole alone: unlike what the session itself gave away, a value
// is not found in pieces or at a host.

const (
	phraseWords = 4    // of a longer text, each so many words behind one another are compared
	maxWritten  = 4096 // values of one call
)

// Written are the values that a call writes, in the form in which they are compared; ok is false where they are too many, or can't be read. What
// selects a record is not written.
func Written(p *Profile, args []byte) (values []string, ok bool) {
	v, err := decode(args)
	if err != nil || len(args) > maxGivenAway {
		return nil, false
	}
	skip := map[string]bool{}
	if p != nil {
		leaves(v, "", func(path string, value any) {
			if s, isText := scalar(value); isText && p.RoleOf(path) == Selector {
				skip[s] = true
			}
		})
	}
	seen, ok := map[string]bool{}, true
	givenTexts(&Profile{}, v, "", func(s string) {
		if ok && !skip[s] {
			ok = pieces(s, seen)
		}
	})
	if !ok || len(seen) > maxWritten {
		return nil, false
	}
	for value := range seen {
		values = append(values, value)
	}
	slices.Sort(values)
	return values, true
}

// pieces adds what of a text is compared by hashes; it reports false where the text can't be read.
func pieces(s string, seen map[string]bool) bool {
	all, ok := readings(s)
	if !ok {
		return false
	}
	var g given
	g.add(s, 0, nil)
	for f := range g.values {
		seen[f.token()] = true
	}
	for host := range g.hosts {
		seen["host "+host] = true
	}
	for _, reading := range all {
		for part := range strings.SplitSeq(reading, decodedMark) {
			words := slices.Collect(wordsIn(part))
			for n := 1; n <= phraseWords; n++ {
				for i := 0; i+n <= len(words) && len(seen) <= maxWritten; i++ {
					if phrase := strings.Join(words[i:i+n], " "); n > 1 || countLetters(phrase) >= pieceLetters {
						seen["phrase "+phrase] = true
					}
				}
			}
		}
	}
	return true
}

func (f form) token() string { return string(rune('0'+f.kind)) + " " + f.value }

// Distrust takes from an observation what was written by a session that outsiders had spoken into: such values confirm nothing and name nothing. written tells
// of a value in the form of Written whether it was.
func (s *Observation) Distrust(written func(value string) bool) {
	known := map[string]bool{}
	was := func(text string, id bool) bool {
		if is, ok := known[text]; ok {
			return is
		}
		known[text] = wasWritten(text, id, written)
		return known[text]
	}
	for i := range s.Records {
		r := &s.Records[i]
		r.By = slices.DeleteFunc(slices.Clone(r.By), func(by namedBy) bool { return was(by.Text, by.ID) })
		if r.Named = ""; len(r.By) > 0 && !r.By[0].Many {
			r.Named = r.By[0].Field
		}
		r.Values = slices.Clone(r.Values)
		for j := range r.Values {
			if v := &r.Values[j]; (v.Class != classFree || v.ID || v.Code) && was(v.Text, v.ID || v.Code) {
				v.Class, v.ID, v.Code = classFree, false, false
			}
		}
	}
}

func wasWritten(value string, id bool, written func(string) bool) bool {
	all, ok := readings(strings.TrimSpace(value))
	if !ok {
		return true
	}
	for _, reading := range all {
		f, ok := formOf(strings.ReplaceAll(reading, decodedMark, ""))
		if !ok {
			continue
		}
		if written(f.token()) {
			return true
		}
		if other, regrouped := f.regrouped(); regrouped && written(other.token()) {
			return true
		}
		if f.kind != text || id {
			continue
		}
		for _, t := range tokens(f.value) {
			if pieced(t.kind) && written(t.token()) {
				return true
			}
		}
		words := slices.Collect(wordsIn(f.value))
		if n := min(len(words), phraseWords); n > 0 && (n > 1 || countLetters(words[0]) >= pieceLetters) {
			all := true
			for i := 0; all && i+n <= len(words); i++ {
				all = written("phrase " + strings.Join(words[i:i+n], " "))
			}
			if all {
				return true
			}
		}
	}
	return false
}
