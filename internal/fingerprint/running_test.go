package fingerprint

import (
	"strings"
	"testing"
)

// What is added in pieces has the shingles of the whole, and says when there is more than is looked at.
func TestRunning(t *testing.T) {
	text := strings.Repeat("each of these words stands in another place of the text ", 3)
	var r Running
	for _, piece := range strings.SplitAfter(text, " ") {
		if !r.Add(piece) {
			t.Fatal("it was too much")
		}
	}
	for _, h := range Of(text) {
		if !r.Has(h) {
			t.Fatal("a shingle is missing")
		}
	}
	for _, h := range Of("some other words that nobody has ever added to it") {
		if r.Has(h) {
			t.Fatal("it has what was not added")
		}
	}
	if r.Add(strings.Repeat("a ", maxWords)) {
		t.Error("more than is looked at was not told")
	}
}
