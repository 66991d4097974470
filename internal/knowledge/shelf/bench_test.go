package shelf

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var chunks = flag.Int("chunks", 10_000, "chunks of the index that is searched")

// BenchmarkSearch asks questions of 5 to 12 words of an index, whose words are as frequent as those of a language. It reports the median.
func BenchmarkSearch(b *testing.B) {
	s, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	r := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(r, 1.07, 8, 200_000)
	text := func(words int) string {
		var t strings.Builder
		for range words {
			fmt.Fprintf(&t, "w%d ", zipf.Uint64())
		}
		return t.String()
	}
	sources := make([]Source, *chunks/10)
	for i := range sources {
		var t strings.Builder
		for range 10 {
			t.WriteString(text(140) + "\n\n")
		}
		content := t.String()
		sources[i] = Source{Document: fmt.Sprintf("doc_%08d", i), Version: 1, Source: "books", Content: func(context.Context) (string, error) { return content, nil }}
	}
	began := time.Now()
	built, err := s.Build(b.Context(), "snap_x", "state", sources)
	if err != nil {
		b.Fatal(err)
	}
	building := time.Since(began)
	x, done, err := s.Use(b.Context(), "snap_x", "state", built.Digest)
	if err != nil {
		b.Fatal(err)
	}
	defer done()
	var took []time.Duration
	for b.Loop() {
		question := text(5 + r.IntN(8))
		began := time.Now()
		if _, err := x.Search(b.Context(), question, func(string, []string) bool { return true }, func(string, int) bool { return true }, 10); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-median")
	b.ReportMetric(float64(built.Chunks), "chunks")
	b.ReportMetric(building.Seconds(), "s-build")
}
