package screen

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// The lengths up to which a threshold holds, in bytes; the last holds for all longer texts.
var lengths = [...]int{512, 4 << 10, 16 << 10}

// Header says what a model is and how its weights are used. It is the first line of a model's file; the weights follow, one byte each.
type Header struct {
	Format  string `json:"format"`
	Version string `json:"version"`
	// Data is the SHA-256 of the rows it was trained on, and Rows how many these were.
	Data string `json:"data_sha256"`
	Rows int    `json:"rows"`
	// Scale is what a weight of 1 counts, Bias what an empty text scores.
	Scale float64 `json:"scale"`
	Bias  float64 `json:"bias"`
	// Thresholds of a hit, by kind of channel (people, tools) and length.
	Thresholds map[string][]float64 `json:"thresholds"`
}

// Format is the form of model files that this program reads.
const Format = "screen/1"

// model is the trained part.
type model struct {
	Header
	weights string
	scale   float32
	bias    float32
	limits  [2][len(lengths) + 1]float32
}

const (
	people = iota
	tools
)

// parseModel reads a model's file.
func parseModel(b string) (*model, error) {
	line, weights, ok := bytes.Cut([]byte(b[:min(len(b), 4<<10)]), []byte("\n"))
	if !ok {
		return nil, errors.New("the model has no header")
	}
	m := &model{}
	if err := json.Unmarshal(line, &m.Header); err != nil {
		return nil, fmt.Errorf("the model's header: %w", err)
	}
	if m.Format != Format || len(weights) == 0 {
		return nil, fmt.Errorf("the model has the form %q; this program reads %s", m.Format, Format)
	}
	m.weights = b[len(line)+1:]
	m.scale, m.bias = float32(m.Scale), float32(m.Bias)
	for i, kind := range [...]string{"people", "tools"} {
		t := m.Thresholds[kind]
		if len(t) != len(lengths)+1 {
			return nil, fmt.Errorf("the model has not %d thresholds for %s", len(lengths)+1, kind)
		}
		for k, v := range t {
			m.limits[i][k] = float32(v)
		}
	}
	return m, nil
}

// Write puts a model's file together.
func Write(h Header, weights []int8) ([]byte, error) {
	h.Format = Format
	line, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	b := append(line, '\n')
	for _, w := range weights {
		b = append(b, byte(w))
	}
	return b, nil
}

// score is what the model says of so many features with this sum of weights.
func (m *model) score(sum, n int32) float32 {
	return m.bias + m.scale*float32(sum)/float32(math.Sqrt(float64(n+evenOut)))
}

func (m *model) limit(kind, length int) float32 {
	for i, most := range lengths {
		if length <= most {
			return m.limits[kind][i]
		}
	}
	return m.limits[kind][len(lengths)]
}
