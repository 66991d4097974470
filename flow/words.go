package flow

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Sentences are read by models and must stay short whatever the catalogue is.
const (
	maxListed = 50  // names in one list
	maxShown  = 128 // characters of one name
	maxLinks  = 8   // links of a chain, and lists in a row
)

// shown is a name as it may stand in a sentence: letters, digits and "_-.:/@",
// everything else as "_". Names can come from tool servers.
func shown(s string) string {
	plain := len(s) <= maxShown
	for i := 0; plain && i < len(s); i++ {
		c := s[i]
		plain = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_-.:/@", c) >= 0
	}
	if plain {
		return s
	}
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n == maxShown {
			b.WriteString("…")
			break
		}
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-.:/@", r) {
			b.WriteRune(r)
		} else {
			b.WriteByte('_')
		}
		n++
	}
	return b.String()
}

func shownName(op Operation) string {
	if op.Name == "" {
		return shown(op.ID)
	}
	return shown(op.Name)
}

// list joins words that are fit to be shown with commas, at most maxListed of them.
func list(words []string) string {
	if more := len(words) - maxListed; more > 0 {
		return strings.Join(words[:maxListed], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(words, ", ")
}

// chain joins clauses, at most maxLinks of them.
func chain(clauses []string, sep string) string {
	if more := len(clauses) - maxLinks; more > 0 {
		return strings.Join(clauses[:maxLinks], sep) + fmt.Sprintf("%sand %d more", sep, more)
	}
	return strings.Join(clauses, sep)
}

func labelWords(labels []Label) []string {
	words := make([]string, len(labels))
	for i, l := range labels {
		words[i] = shown(string(l))
	}
	return words
}

// origins says which call brought which labels: "mail.search_email (call_1)
// loaded internal, pii data".
func origins(because []Held) string {
	var clauses []string
	for i, h := range because {
		same := func(o Held) bool { return o.Operation == h.Operation && o.CallID == h.CallID && o.Cause == h.Cause }
		if slices.ContainsFunc(because[:i], same) {
			continue
		}
		var labels []string
		for _, o := range because[i:] {
			if same(o) {
				labels = append(labels, shown(string(o.Label)))
			}
		}
		data := list(labels)
		switch {
		case h.Cause != "":
			clauses = append(clauses, "this session holds "+data+" because of "+shown(h.Cause))
		case h.Operation == "":
			clauses = append(clauses, "this session holds "+data+" data from the start")
		case h.CallID == "":
			clauses = append(clauses, shown(h.Operation)+" loaded "+data+" data")
		default:
			clauses = append(clauses, shown(h.Operation)+" ("+shown(h.CallID)+") loaded "+data+" data")
		}
	}
	return chain(clauses, "; ")
}
