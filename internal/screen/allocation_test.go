//go:build !race

package screen

import (
	"strings"
	"testing"
)

// The race detector drops what pools keep, at random, so allocations are counted without it.
func TestNoAllocation(t *testing.T) {
	d := testDetector(t)
	texts := [][]byte{[]byte(strings.Repeat("Some plain text of a page, with nothing in it. ", 100)), []byte(known[0])}
	for _, g := range disguises {
		texts = append(texts, []byte(strings.Repeat(g.as(known[0])+"\n", 20)))
	}
	for _, b := range texts {
		d.Scan(Result, b)
		if n := testing.AllocsPerRun(20, func() { d.Scan(Result, b) }); n > 0.5 {
			t.Errorf("%v allocations for %.60q", n, b)
		}
	}
}
