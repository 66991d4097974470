package shelf

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"sallyport.example/internal/knowledge"
)

// The order by signs is a whole one: each vector once, the nearest first, equal ones in the order of the index.
func TestNearestBySigns(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	v := vectors{dimensions: 100, words: 2}
	for n := range 500 {
		v.chunks = append(v.chunks, int32(n))
		v.signs = signsOf(v.signs, func(int) bool { return r.IntN(2) == 0 }, 100)
	}
	question := signsOf(nil, func(int) bool { return r.IntN(2) == 0 }, 100)
	apart := func(i int32) (n int) {
		for at := range 100 {
			if (v.signs[int(i)*2+at/64]^question[at/64])>>(at%64)&1 == 1 {
				n++
			}
		}
		return n
	}
	order := v.nearest(question)
	if len(order) != 500 || !slices.IsSortedFunc(order, func(a, b int32) int {
		if d := apart(a) - apart(b); d != 0 {
			return d
		}
		return int(a - b)
	}) {
		t.Errorf("%v", order)
	}
}

func TestSmallKeepsDirections(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		a, b := make([]float32, 256), make([]float32, 256)
		var dot float64
		for i := range a {
			a[i], b[i] = float32(r.NormFloat64()), float32(r.NormFloat64())
			b[i] += a[i] * 0.5
			dot += float64(a[i]) * float64(b[i])
		}
		want := dot / (lengthOf(a) * lengthOf(b))
		if got := cosine(a, lengthOf(a), small(b)); math.Abs(got-want) > 0.02 {
			t.Errorf("%f, and not %f", got, want)
		}
	}
	if small([]float32{0, 0})[1] != 0 || cosine([]float32{1}, 1, []byte{0}) != 0 {
		t.Error("zeros")
	}
}

// randomEmbeddings keeps a random embedding of each chunk of a text.
func randomEmbeddings(ctx context.Context, s *Shelf, document, text string, dimensions int, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 9))
	var chunks []string
	var all [][]float32
	for _, span := range knowledge.Chunks(text) {
		v := make([]float32, dimensions)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		chunks, all = append(chunks, text[span.Start:span.End]), append(all, v)
	}
	return s.PutEmbeddings(ctx, document, "m", chunks, all)
}
