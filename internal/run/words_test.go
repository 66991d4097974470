package run

import (
	"strings"
	"testing"
)

// Every state has words of its own for people, without the forms of the code.
func TestWords(t *testing.T) {
	check := func(word string, seen map[string]bool) {
		t.Helper()
		if word == "" || seen[word] || strings.Contains(word, "_") || word != strings.ToLower(word) || word == "pending" || word == "superseded" {
			t.Errorf("%q", word)
		}
		seen[word] = true
	}
	states, statuses := map[string]bool{}, map[string]bool{}
	for _, s := range RecommendationStates {
		check(s.Words(), states)
	}
	for _, s := range Statuses {
		check(s.Words(), statuses)
	}
}
