package limit

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestWindowBoundary(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	w := NewWindow(2, time.Minute)
	for i, at := range []time.Duration{0, time.Second} {
		if _, ok := w.Take(t0.Add(at)); !ok {
			t.Fatalf("event %d refused", i)
		}
	}
	if wait, ok := w.Take(t0.Add(time.Minute - 1)); ok || wait != 1 {
		t.Fatalf("one nanosecond early: ok=%v wait=%v", ok, wait)
	}
	if _, ok := w.Take(t0.Add(time.Minute)); !ok {
		t.Fatal("refused at the boundary")
	}
	if wait, ok := w.Take(t0); ok || wait != time.Minute {
		t.Fatalf("a clock that went back: ok=%v wait=%v", ok, wait)
	}
	if _, ok := NewWindow(0, time.Minute).Take(t0); !ok {
		t.Fatal("no limit refused")
	}
}

// In any window of the span there are at most n admissions, and what is refused would have exceeded them.
func TestWindowNeverExceeds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "n")
		span := 10 * time.Second
		w := NewWindow(n, span)
		now := time.Unix(0, 0)
		var admitted []time.Time
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.IntRange(0, 6000).Draw(t, "gap")) * time.Millisecond)
			in := 0
			for _, a := range admitted {
				if now.Sub(a) < span {
					in++
				}
			}
			wait, ok := w.Take(now)
			if ok != (in < n) {
				t.Fatalf("%d of %d in the window, admitted %v", in, n, ok)
			}
			if ok {
				admitted = append(admitted, now)
			} else if wait <= 0 || wait > span {
				t.Fatalf("wait %v", wait)
			}
		}
	})
}

func BenchmarkWindow(b *testing.B) {
	w := NewWindow(600, time.Minute)
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Second)
		w.Take(now)
	}
}
