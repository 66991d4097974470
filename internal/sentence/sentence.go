// Package sentence puts names and lists into sentences that a model reads. Names can come from tool servers and be long, so a name is shortened
// and stripped of everything that isn't a letter, a digit or one of "_-.:/@": a tool's name can't give orders. Lists are cut.
package sentence

import (
	"fmt"
	"strings"
	"unicode"
)

// Sentences must stay short whatever the catalogue is.
const (
	maxListed = 50  // names in one list
	maxShown  = 128 // characters of one name
	maxLinks  = 8   // clauses of a chain
)

// Name is a name as it may stand in a sentence: letters, digits and "_-.:/@", everything else as "_".
func Name(s string) string {
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

// Names is a list of names.
func Names[S ~string](names []S) string {
	words := make([]string, len(names))
	for i, name := range names {
		words[i] = Name(string(name))
	}
	return List(words)
}

// List joins words that are fit to be shown with commas, at most maxListed of them.
func List(words []string) string {
	if more := len(words) - maxListed; more > 0 {
		return strings.Join(words[:maxListed], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(words, ", ")
}

// Chain joins clauses, at most maxLinks of them.
func Chain(clauses []string, sep string) string {
	if more := len(clauses) - maxLinks; more > 0 {
		return strings.Join(clauses[:maxLinks], sep) + fmt.Sprintf("%sand %d more", sep, more)
	}
	return strings.Join(clauses, sep)
}

// Percent is a share as people read it: "0.1 %", "61.11 %", "100 %".
func Percent(share float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", 100*share), "0"), ".") + " %"
}

// Count is a number of things: "1 tool", "2 tools".
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
