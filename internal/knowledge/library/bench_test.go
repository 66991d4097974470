package library

import (
	"fmt"
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
