package screening

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"sort"

	"sallyport.example/internal/screen"
)

// Settings of training. They are part of what makes a model, with the rows.
type Settings struct {
	Size       int     // weights
	Epochs     int     // passes over all rows
	SourceMost float64 // rows that the rows of one source count at most
	Rate       float64 // of learning
	Shrink     float64 // towards 0, for each step
}

// Standard are the settings of the program's model.
var Standard = Settings{Size: 250_000, Epochs: 8, SourceMost: 4000, Rate: 0.03, Shrink: 1e-6}

// example is a row, as features.
type example struct {
	row    int
	attack bool
	chunks []screen.Chunk
	weight float64
}

// longestRead bounds what of one text is trained on, in bytes.
const longestRead = 6 << 10

// synthetic is the source whose rows were written by a grammar: so many of them that one in so many is enough.
const synthetic, oneIn = "synth", 2

// Trained are weights before they are rounded.
type Trained struct {
	weights []float32
	bias    float64
}

// Train fits a model to rows. The same rows in the same order give the same model.
func Train(d *screen.Detector, rows []Row, set Settings) *Trained {
	examples := prepare(d, rows)
	count := map[string]float64{}
	key := func(e *example) string { return fmt.Sprint(rows[e.row].Source, e.attack) }
	for i := range examples {
		count[key(&examples[i])]++
	}
	var total [2]float64
	for i := range examples {
		e := &examples[i]
		e.weight = min(1, set.SourceMost/count[key(e)])
		total[kindOf(e.attack)] += e.weight
	}
	for i := range examples { // both kinds count alike
		e := &examples[i]
		e.weight *= (total[0] + total[1]) / 2 / total[kindOf(e.attack)]
	}
	t := &Trained{weights: make([]float32, set.Size), bias: -2}
	squares := make([]float32, set.Size)
	order := rand.New(rand.NewPCG(1, 2))
	for epoch := range set.Epochs {
		order.Shuffle(len(examples), func(i, j int) { examples[i], examples[j] = examples[j], examples[i] })
		for i := range examples {
			t.learn(&examples[i], squares, set, epoch, order)
		}
	}
	return t
}

func kindOf(attack bool) int {
	if attack {
		return 1
	}
	return 0
}

func prepare(d *screen.Detector, rows []Row) []example {
	var out []example
	for i, r := range rows {
		if r.Source == synthetic && r.Label == Attack {
			h := fnv.New32a()
			h.Write([]byte(r.Text))
			if h.Sum32()%oneIn != 0 {
				continue
			}
		}
		if chunks := d.Chunks([]byte(r.Text[:min(len(r.Text), longestRead)])); len(chunks) > 0 {
			out = append(out, example{row: i, attack: r.Label == Attack, chunks: chunks})
		}
	}
	return out
}

// learn takes a step for the windows of an example that matter: of an attack the one that looks most like one, of a benign text that as well and one at random.
func (t *Trained) learn(e *example, squares []float32, set Settings, epoch int, order *rand.Rand) {
	windows := max(1, len(e.chunks)-screen.WindowSpan+1)
	best, highest := 0, math.Inf(-1)
	if windows > 1 {
		if epoch == 0 && e.attack { // nothing is known yet: rules say where it may be, else the last words
			best = windows - 1
		}
		for w := range windows {
			score := t.score(window(e, w))
			if epoch == 0 {
				_, _, score = sums(window(e, w))
			}
			if score > highest && (epoch > 0 || score > 0) {
				best, highest = w, score
			}
		}
	}
	t.step(window(e, best), e.attack, e.weight, squares, set)
	if !e.attack && windows > 1 {
		t.step(window(e, order.IntN(windows)), false, e.weight/2, squares, set)
	}
}

func window(e *example, w int) []screen.Chunk {
	return e.chunks[w:min(len(e.chunks), w+screen.WindowSpan)]
}

func sums(chunks []screen.Chunk) (n int, scale, bonus float64) {
	for i := range chunks {
		n += len(chunks[i].Features)
		bonus += float64(chunks[i].Bonus)
	}
	return n, 1 / math.Sqrt(float64(n+screen.EvenOut)), min(bonus, screen.BonusMost)
}

func (t *Trained) at(feature uint32) int { return int(uint64(feature) * uint64(len(t.weights)) >> 32) }

func (t *Trained) score(chunks []screen.Chunk) float64 {
	_, scale, bonus := sums(chunks)
	sum := 0.0
	for i := range chunks {
		for _, f := range chunks[i].Features {
			sum += float64(t.weights[t.at(f)])
		}
	}
	return t.bias + sum*scale + bonus
}

// step is one of AdaGrad on the logistic loss.
func (t *Trained) step(chunks []screen.Chunk, attack bool, weight float64, squares []float32, set Settings) {
	_, scale, _ := sums(chunks)
	p := 1 / (1 + math.Exp(-t.score(chunks)))
	g := p * weight
	if attack {
		g = (p - 1) * weight
	}
	if math.Abs(g) < 1e-4 {
		return
	}
	t.bias -= 0.01 * g
	each := g * scale
	for i := range chunks {
		for _, f := range chunks[i].Features {
			k := t.at(f)
			gk := each + set.Shrink*float64(t.weights[k])
			squares[k] += float32(gk * gk)
			t.weights[k] -= float32(set.Rate * gk / math.Sqrt(float64(squares[k])+1e-3))
		}
	}
}

// Rounded returns the weights as bytes, and what a weight of 1 counts.
func (t *Trained) Rounded() (weights []int8, scale float64) {
	sizes := make([]float64, len(t.weights))
	for i, w := range t.weights {
		sizes[i] = math.Abs(float64(w))
	}
	sort.Float64s(sizes)
	scale = sizes[len(sizes)*9995/10000] / 127
	if scale == 0 {
		scale = 1
	}
	weights = make([]int8, len(t.weights))
	for i, w := range t.weights {
		weights[i] = int8(max(-127, min(127, math.Round(float64(w)/scale))))
	}
	return weights, scale
}

// Model puts the file of a model together. The thresholds are those of h.
func (t *Trained) Model(h screen.Header) ([]byte, error) {
	weights, scale := t.Rounded()
	h.Scale, h.Bias = scale, t.bias
	return screen.Write(h, weights)
}
