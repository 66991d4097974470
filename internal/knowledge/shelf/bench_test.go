package shelf

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	chunks     = flag.Int("chunks", 10_000, "chunks of the index that is searched")
	dimensions = flag.Int("dimensions", 1024, "numbers of an embedding, in searches by words and by meaning")
)

// BenchmarkSearch asks questions of 5 to 12 words of an index, whose words are as frequent as those of a language. It reports the median, and what the process
// holds of the heap once the index is built and in use.
func BenchmarkSearch(b *testing.B) { search(b, false) }

// BenchmarkHybrid asks the same by words and by embeddings, which are random: none is nearer than the others, so nothing is won by chance.
func BenchmarkHybrid(b *testing.B) { search(b, true) }

func search(b *testing.B, hybrid bool) {
	s, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	sources := make([]Source, *chunks/10)
	for i := range sources {
		sources[i] = Source{Document: fmt.Sprintf("doc_%08d", i), Version: 1, Source: "books", Content: func(context.Context) (string, error) {
			text := writer(uint64(i)) // made when it is read: what is measured is the index, and not its sources
			var t strings.Builder
			for range 10 {
				t.WriteString(text(140) + "\n\n")
			}
			return t.String(), nil
		}}
		if !hybrid {
			continue
		}
		content, err := sources[i].Content(b.Context())
		if err == nil {
			sources[i].Model = "m"
			_, err = s.Put(b.Context(), []Text{{Document: sources[i].Document, ID: NewTextID(), Content: "x"}})
		}
		if err == nil {
			err = randomEmbeddings(b.Context(), s, sources[i].Document, content, *dimensions, uint64(i))
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	text := writer(1 << 40)
	before := live()
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
	held := live() - before
	var took []time.Duration
	for b.Loop() {
		question := text(5 + r.IntN(8))
		began := time.Now()
		if _, err := x.Search(b.Context(), question, func(string, []string) bool { return true }, func(string, int) bool { return true }, 10); err != nil {
			b.Fatal(err)
		}
		if hybrid {
			v := make([]float32, *dimensions)
			for i := range v {
				v[i] = float32(r.NormFloat64())
			}
			if near, err := x.Near(b.Context(), v, func(string, []string) bool { return true }, func(string, int) bool { return true }, 10); err != nil || len(near) != 10 {
				b.Fatal(len(near), err)
			}
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-median")
	b.ReportMetric(float64(built.Chunks), "chunks")
	b.ReportMetric(building.Seconds(), "s-build")
	b.ReportMetric(held, "MiB-heap")
}

// writer writes texts whose words are as frequent as those of a language; the same ones for the same seed.
func writer(seed uint64) func(words int) string {
	zipf := rand.NewZipf(rand.New(rand.NewPCG(seed, 2)), 1.07, 8, 200_000)
	return func(words int) string {
		var t strings.Builder
		for range words {
			fmt.Fprintf(&t, "w%d ", zipf.Uint64())
		}
		return t.String()
	}
}

// live is what of the heap is in use, in MiB.
func live() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}
