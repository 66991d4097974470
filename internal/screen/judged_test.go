package screen

import (
	"fmt"
	"math"
	"testing"
)

// Wilson's interval by the book, and its ends.
func TestRates(t *testing.T) {
	for _, c := range []struct {
		are, of   int
		low, high float64
	}{{0, 0, 0, 1}, {0, 10, 0, 0.2775}, {10, 10, 0.7225, 1}, {5, 10, 0.2366, 0.7634}, {1, 100, 0.0018, 0.0545}} {
		if r := RateOf(c.are, c.of); math.Abs(r.Low-c.low) > 1e-4 || math.Abs(r.High-c.high) > 1e-4 {
			t.Errorf("%d of %d: %+v", c.are, c.of, r)
		}
	}
	alarms, missed := Rates([]Judged{{1, true, true, 1}, {2, true, true, 1}, {2, true, false, 1}, {3, false, false, SampleOf}, {4, false, true, SampleOf}, {5, false, false, SampleOf}})
	if alarms.Are != 1 || alarms.Of != 2 || missed.Are != 1 || missed.Of != 3 {
		t.Errorf("%+v, %+v", alarms, missed)
	}
}

// About one call of SampleOf is in the sample, always the same ones.
func TestSampled(t *testing.T) {
	in := 0
	for i := range 20_000 {
		if id := fmt.Sprint("call_", i); Sampled(id) {
			in++
			if !Sampled(id) {
				t.Fatal("not the same twice")
			}
		}
	}
	if want := 20_000 / SampleOf; in < want*8/10 || in > want*12/10 || Sampled("") {
		t.Errorf("%d", in)
	}
}
