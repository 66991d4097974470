//go:build !race

package threat

import (
	"strings"
	"testing"
)

// With the race detector the pool of scratch memory forgets some at random, so this is tested without it.
func TestCleanTextCostsNoAllocation(t *testing.T) {
	d := newDetector(t)
	for _, b := range [][]byte{cleanJSON(64 << 10), []byte(strings.Repeat("no escapes here, 2024-05-26. ", 2000))} {
		if len(d.Scan(b)) != 0 {
			t.Fatal("not clean")
		}
		for name, f := range map[string]func(){"Scan": func() { d.Scan(b) }, "Labels": func() { d.Labels(b) }, "Redact": func() { d.Redact(b) }} {
			// One is left for scratch memory that a collection took away.
			if n := testing.AllocsPerRun(50, f); n > 1 {
				t.Errorf("%s: %v allocations", name, n)
			}
		}
	}
}
