package shelf

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"sallyport.example/internal/knowledge"
)

// Vectors of an index are embeddings with each number in one byte, relative to the largest of them. In memory there is one bit of each number: its sign.
type vectors struct {
	dimensions, words int
	chunks            []int32  // those that have a vector, in order
	signs             []uint64 // words of each
}

// ErrNoVectors says that nothing that may be read has an embedding by the question's model.
var ErrNoVectors = errors.New("there are no vectors")

// rescored is how many of the chunks that are nearest by their signs are looked at by all of their numbers, in all groups that may be read.
const rescored = 200

// vectorID is the key of a vector in the file.
func vectorID(group, n int) int64 { return int64(group)<<40 | int64(n) }

// small is an embedding with each number in one byte.
func small(v []float32) []byte {
	largest := float32(0)
	for _, f := range v {
		largest = max(largest, float32(math.Abs(float64(f))))
	}
	b := make([]byte, len(v))
	if largest == 0 {
		return b
	}
	for i, f := range v {
		b[i] = byte(int8(math.Round(float64(f / largest * 127))))
	}
	return b
}

// signsOf appends the signs of numbers.
func signsOf(to []uint64, positive func(i int) bool, dimensions int) []uint64 {
	for at := 0; at < dimensions; at += 64 {
		var word uint64
		for i := at; i < min(at+64, dimensions); i++ {
			if positive(i) {
				word |= 1 << (i - at)
			}
		}
		to = append(to, word)
	}
	return to
}

// cosine is how alike a question's embedding and a small one are, from -1 to 1.
func cosine(question []float32, length float64, vector []byte) float64 {
	var dot, square float64
	for i, f := range question {
		n := float64(int8(vector[i]))
		dot += float64(f) * n
		square += n * n
	}
	if square == 0 || length == 0 {
		return 0
	}
	return dot / (length * math.Sqrt(square))
}

func lengthOf(v []float32) float64 {
	var square float64
	for _, f := range v {
		square += float64(f) * float64(f)
	}
	return math.Sqrt(square)
}

// vector takes the embedding of a chunk into an index.
func (w *building) vector(g *buildGroup, n int, v []float32) error {
	if g.Dimensions == 0 {
		g.Dimensions = len(v)
	}
	if g.Dimensions != len(v) {
		return errors.New("embeddings of one model have different numbers of dimensions")
	}
	g.Vectors++
	_, err := w.putVector.ExecContext(w.ctx, g.id(), n, small(v))
	return unavailable(err)
}

// placeVectors gives the vectors of a group their place in the file.
func (w *building) placeVectors(g *buildGroup, number int) error {
	if g.Vectors == 0 {
		return nil
	}
	fmt.Fprintf(w.digest, "vectors %d %d\n", g.Vectors, g.Dimensions)
	if _, err := w.tx.ExecContext(w.ctx, "INSERT INTO vectors (id, vector) SELECT $1 + n, vector FROM vector_parts WHERE g = $2 ORDER BY n", vectorID(number, 0), g.id()); err != nil {
		return unavailable(err)
	}
	return unavailable(eachVector(w.ctx, w.tx, number, func(n int, vector []byte) error {
		fmt.Fprintf(w.digest, "vector %d %x\n", n, sha256.Sum256(vector))
		return nil
	}))
}

// eachVector reads the vectors of a group in order.
func eachVector(ctx context.Context, q rowsOf, number int, each func(n int, vector []byte) error) error {
	return eachRow(ctx, q, "SELECT id, vector FROM vectors WHERE id >= $1 AND id < $2 ORDER BY id", func(rows *sql.Rows) error {
		var id int64
		var vector sql.RawBytes
		if err := rows.Scan(&id, &vector); err != nil {
			return err
		}
		return each(int(id-vectorID(number, 0)), vector)
	}, vectorID(number, 0), vectorID(number+1, 0))
}

// readVectors reads the signs of all vectors.
func (x *Index) readVectors(ctx context.Context) error {
	x.vectors = make([]vectors, len(x.Groups))
	for number, g := range x.Groups {
		if g.Vectors == 0 {
			continue
		}
		if g.Dimensions < 1 || g.Dimensions > knowledge.MaxDimensions || g.Vectors > g.Chunks {
			return errors.New("its vectors are not what it says")
		}
		v := vectors{dimensions: g.Dimensions, words: (g.Dimensions + 63) / 64, chunks: make([]int32, 0, g.Vectors), signs: make([]uint64, 0, g.Vectors*((g.Dimensions+63)/64))}
		err := eachVector(ctx, x.db, number, func(n int, vector []byte) error {
			if len(vector) != g.Dimensions || n >= g.Chunks {
				return errors.New("its vectors are not what it says")
			}
			v.chunks = append(v.chunks, int32(n))
			v.signs = signsOf(v.signs, func(i int) bool { return int8(vector[i]) > 0 }, g.Dimensions)
			return nil
		})
		if err == nil && len(v.chunks) != g.Vectors {
			err = errors.New("vectors are missing in it")
		}
		if err != nil {
			return err
		}
		x.vectors[number] = v
	}
	return nil
}

// Near returns the chunks whose embeddings are the most like a question's, in the groups that may be read and of the versions that may be. How alike
// two embeddings are follows from these two alone, so all groups are ranked together; the score of a hit is its reciprocal rank among what may be read. ErrNoVectors: there is none in these groups.
func (x *Index) Near(ctx context.Context, question []float32, may func(source string, labels []string) bool, version func(document string, version int) bool, most int) (hits []Hit, err error) {
	var groups []int
	for number, g := range x.Groups {
		if g.Dimensions == len(question) && g.Vectors > 0 && may(g.Source, g.Labels) {
			groups = append(groups, number)
		}
	}
	if len(groups) == 0 {
		return nil, ErrNoVectors
	}
	get, err := x.db.PrepareContext(ctx, "SELECT c.document, c.version, c.start, c.stop, v.vector FROM chunks c, vectors v WHERE c.g = $1 AND c.n = $2 AND v.id = $3")
	if err != nil {
		return nil, unavailable(err)
	}
	defer get.Close()
	signs, length := signsOf(nil, func(i int) bool { return question[i] > 0 }, len(question)), lengthOf(question)
	for _, number := range groups {
		left := max(perGroup, rescored/len(groups))
		for _, at := range x.vectors[number].nearest(signs) {
			n := int(x.vectors[number].chunks[at])
			h := Hit{Group: x.Groups[number]}
			var vector []byte
			if err := get.QueryRowContext(ctx, number, n, vectorID(number, n)).Scan(&h.Document, &h.Version, &h.Span.Start, &h.Span.End, &vector); err != nil {
				return nil, unavailable(err)
			}
			if !version(h.Document, h.Version) { // it takes no place
				continue
			}
			if h.Weight = cosine(question, length, vector); h.Weight > 0 {
				hits = append(hits, h)
			}
			if left--; left == 0 {
				break
			}
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return cmp.Compare(b.Weight, a.Weight) })
	hits = hits[:min(len(hits), most)]
	for i := range hits {
		hits[i].Score = 1 / float64(fuse+i+1)
	}
	return hits, nil
}

// nearest are the vectors by how many of their signs are those of the question, the nearest first; of equal ones the first in the index.
func (v *vectors) nearest(question []uint64) (order []int32) {
	apart := make([]uint16, len(v.chunks))
	place := make([]int, v.dimensions+2) // where the vectors that are so far apart begin
	for i := range apart {
		n := 0
		for j, word := range v.signs[i*v.words : (i+1)*v.words] {
			n += bits.OnesCount64(word ^ question[j])
		}
		apart[i] = uint16(n)
		place[n+1]++
	}
	for n := 1; n < len(place); n++ {
		place[n] += place[n-1]
	}
	order = make([]int32, len(apart))
	for i, n := range apart {
		order[place[n]] = int32(i)
		place[n]++
	}
	return order
}
