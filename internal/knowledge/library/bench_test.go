package library

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// Ingest of texts of 2 KiB, each durable with its event and entry before the next: the goal is above 100 documents a second.
func BenchmarkIngest(b *testing.B) {
	p := open(b, b.TempDir())
	text := strings.Repeat("Expenses for travel abroad are paid within thirty days. ", 36)
	b.ResetTimer()
	for i := range b.N {
		p.add("handbook", fmt.Sprint(i), fmt.Sprint(text, i))
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "documents/s")
}

// A search in a library, with the texts of hits, which the index has not: documents of 10 KiB, each with ten chunks.
func BenchmarkSearch(b *testing.B) {
	p := open(b, b.TempDir())
	r := rand.New(rand.NewPCG(1, 2))
	words := func(n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprint("w", int(r.ExpFloat64()*600))
		}
		return strings.Join(all, " ")
	}
	for i := range 200 {
		var text strings.Builder
		for range 10 {
			text.WriteString(words(200) + "\n\n")
		}
		p.add("books", fmt.Sprint(i), text.String())
	}
	p.snap()
	p.find(all, "", "w1")
	for b.Loop() {
		p.find(all, "", words(8))
	}
}
