package store

import (
	"fmt"
	"testing"

	"sallyport.example/internal/evidence"
)

// What was written last is answered from memory only where nothing is missing between what the caller has and the row that the proof names.
func TestRecentEvidence(t *testing.T) {
	var r recent
	row := func(n int64) recentRow {
		return recentRow{rowAt{entry: 100 + n, n: n}, evidence.Kept{Seq: n, Body: []byte{byte(n)}}}
	}
	if _, ok := r.since("s", 0, row(1).at); ok {
		t.Error("an answer from nothing")
	}
	for _, n := range []int64{3, 4, 5} {
		r.add("s", row(n))
	}
	for name, c := range map[string]struct {
		after int64
		last  rowAt
		want  string
	}{
		"all it has":                  {2, row(5).at, "[3 4 5]"},
		"the newest":                  {4, row(5).at, "[5]"},
		"nothing new":                 {5, row(5).at, "[]"},
		"one before is missing":       {1, row(5).at, "none"},
		"a newer one is missing":      {4, row(6).at, "none"},
		"another row in its place":    {4, rowAt{entry: 7, n: 5}, "none"},
		"the last is one from before": {2, row(4).at, "none"},
	} {
		all, ok := r.since("s", c.after, c.last)
		seqs := []int64{}
		for _, ev := range all {
			seqs = append(seqs, ev.Seq)
		}
		got := fmt.Sprint(seqs)
		if !ok {
			got = "none"
		}
		if got != c.want {
			t.Errorf("%s: %s, not %s", name, got, c.want)
		}
	}
	r.add("s", row(7))
	if _, ok := r.since("s", 2, row(7).at); ok {
		t.Error("a gap is passed over")
	}
	r.drop("s")
	if _, ok := r.since("s", 6, row(7).at); ok || r.bytes != 0 {
		t.Errorf("%d bytes are left of what was dropped", r.bytes)
	}
	for n := range int64(10 * maxRecentRows) {
		r.add("s", row(n+1))
	}
	if n := len(r.bySession["s"]); n > maxRecentRows || r.bytes != n {
		t.Errorf("%d rows, %d bytes", n, r.bytes)
	}
	for n := range int64(12) {
		r.add(fmt.Sprint(n), recentRow{rowAt{n, 1}, evidence.Kept{Body: make([]byte, 1<<20)}})
	}
	if r.bytes > maxRecentBytes {
		t.Errorf("%d bytes", r.bytes)
	}
}
