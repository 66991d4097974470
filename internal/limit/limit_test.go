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

// Another limit counts what was admitted before, the newest first, wherever the ring stands.
func TestWindowLimit(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	w := NewWindow(3, time.Minute)
	for _, s := range []int{0, 10, 20, 61} { // the last takes the place of the first
		if _, ok := w.Take(at(s)); !ok {
			t.Fatalf("refused at %d", s)
		}
	}
	w.Limit(4)
	if _, ok := w.Take(at(62)); !ok {
		t.Error("a fourth is refused")
	}
	if wait, ok := w.Take(at(63)); ok || wait != 7*time.Second { // until the one at 10 is a minute old
		t.Errorf("a fifth: %t, %s", ok, wait)
	}
	w.Limit(2)
	if wait, ok := w.Room(at(63)); ok || wait != 58*time.Second { // until the one at 61 is
		t.Errorf("of two: %t, %s", ok, wait)
	}
	w.Limit(0)
	if _, ok := w.Take(at(63)); !ok {
		t.Error("without a limit one is refused")
	}
	w.Limit(1)
	if _, ok := w.Take(at(64)); !ok {
		t.Error("what was not counted counts")
	}
	if _, ok := w.Take(at(65)); ok {
		t.Error("a second of one is admitted")
	}
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
