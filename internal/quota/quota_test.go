package quota_test

import (
	"errors"
	"testing"
	"time"

	"sallyport.example/internal/quota"
)

var (
	noon = time.Date(2026, 11, 24, 12, 59, 59, 0, time.UTC)
	hour = quota.Limit{Resource: quota.APICalls, Window: quota.Hour, Most: 10}
)

func TestTakeIsExact(t *testing.T) {
	u := quota.Use{}.At(hour, noon)
	for i := range 10 {
		var err error
		if u, err = u.Take(hour, 1, 0); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	_, err := u.Take(hour, 1, 0)
	var e *quota.Exceeded
	if !errors.As(err, &e) || err.Error() != "used 10 of 10 api_calls, free again at 13:00 UTC" {
		t.Errorf("%v", err)
	}
	if u, err = u.At(hour, noon.Add(time.Second)).Take(hour, 1, 0); err != nil || u.Used != 1 {
		t.Errorf("the next hour: %v %+v", err, u)
	}
	if back := u.At(hour, noon.Add(-time.Hour)); back != u {
		t.Errorf("a clock that was set back freed %+v", back)
	}
}

// TestReservedCounts: what is set aside counts, and is given back when it is known what was used.
func TestReservedCounts(t *testing.T) {
	l := quota.Limit{Resource: quota.ComputeSeconds, Window: quota.Day, Most: 60_000}
	u, err := quota.Use{}.At(l, noon).Take(l, 0, 60_000)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Take(l, 0, 1); err == nil || err.Error() != "used 0 of 60 compute_seconds, and 60 are set aside for what is under way, free again at 2026-11-25 00:00 UTC" {
		t.Errorf("%v", err)
	}
	settled := u.Settle(u.Start, 60_000, 1500)
	if settled.Used != 1500 || settled.Reserved != 0 || settled.Left(l) != 58_500 {
		t.Errorf("%+v", settled)
	}
	if over := u.Settle(u.Start.Add(-24*time.Hour), 60_000, 1500); over != u {
		t.Errorf("a window that is over changed this one: %+v", over)
	}
}

// Nothing gives back by taking less than nothing.
func TestTakeLessThanNothing(t *testing.T) {
	u, err := quota.Use{}.At(hour, noon).Take(hour, 5, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]int64{{-1, 0}, {0, -1}, {-5, 5}} {
		if after, err := u.Take(hour, c[0], c[1]); err == nil || after != u {
			t.Errorf("%v: %+v %v", c, after, err)
		}
	}
}

func TestCrossed(t *testing.T) {
	at := func(used int64) quota.Use { return quota.Use{Start: noon.Truncate(time.Hour), Used: used} }
	for _, c := range []struct{ before, after, want int64 }{{0, 7, 0}, {7, 8, 80}, {8, 9, 0}, {9, 10, 100}, {7, 10, 100}, {10, 11, 0}} {
		if got := quota.Crossed(at(c.before), at(c.after), hour); got != int(c.want) {
			t.Errorf("%d -> %d: %d, want %d", c.before, c.after, got, c.want)
		}
	}
	last := quota.Use{Start: noon.Truncate(time.Hour).Add(-time.Hour), Used: 10}
	if got := quota.Crossed(last, at(8), hour); got != 80 {
		t.Errorf("the next window: %d", got)
	}
	for used, want := range map[int64]int{7: 0, 8: 80, 9: 80, 10: 100, 12: 100} {
		if m, passed := quota.Standing("a", hour, at(used)); m.Percent != want || passed != (want > 0) {
			t.Errorf("%d stands at %d, want %d", used, m.Percent, want)
		}
	}
}
