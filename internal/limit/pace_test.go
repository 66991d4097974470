package limit

import (
	"testing"
	"time"
)

// TestPace: after a rest a sixth of what may come in a minute is admitted at once, then one after the other, and never more than both together.
func TestPace(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for n, atOnce := range map[int]int{1: 1, 6: 1, 60: 10, 600: 100} {
		var p Pace
		now, admitted := t0, 0
		for {
			room, fits := p.Room(n, now)
			wait, ok := p.Take(n, now)
			if room != wait || fits != ok {
				t.Fatalf("%d: Room says %s %t, Take %s %t", n, room, fits, wait, ok)
			}
			if !ok {
				if each := time.Minute / time.Duration(n); wait != each {
					t.Errorf("%d: wait %s, want %s", n, wait, each)
				}
				break
			}
			admitted++
		}
		if admitted != atOnce {
			t.Errorf("%d a minute: %d at once, want %d", n, admitted, atOnce)
		}
		if s := p.Throttle("a", n, now); s.AtOnce != atOnce || s.CallsPerMinute != n || s.Next == nil || !s.Next.Equal(now.Add(time.Minute/time.Duration(n))) {
			t.Errorf("%d a minute: shown as %+v", n, s)
		}
		if s := p.Throttle("a", n, now.Add(time.Minute)); s.Next != nil {
			t.Errorf("%d a minute: shown as %+v after a rest", n, s)
		}
		for now.Before(t0.Add(10 * time.Minute)) { // whoever waits as long as it is told is admitted
			wait, ok := p.Take(n, now)
			if ok {
				admitted++
				continue
			}
			if _, early := p.Take(n, now.Add(wait-1)); early {
				t.Fatalf("%d: admitted before the wait of %s was over", n, wait)
			}
			now = now.Add(wait)
		}
		if most := 10*n + atOnce; admitted > most || admitted < most-1 {
			t.Errorf("%d a minute: %d in ten, want %d", n, admitted, most)
		}
	}
}

// A clock that is set back admits nothing early and refuses no longer than before; another n counts at once.
func TestPaceMoves(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var p Pace
	if _, ok := p.Take(1, t0); !ok {
		t.Fatal("the first is refused")
	}
	if wait, ok := p.Take(1, t0.Add(-time.Hour)); ok || wait != time.Minute {
		t.Errorf("an hour earlier: %t %s", ok, wait)
	}
	if _, ok := p.Take(0, t0); !ok {
		t.Error("without a limit one is refused")
	}
	if wait, _ := p.Take(600, t0.Add(time.Second)); wait > 100*time.Millisecond {
		t.Errorf("of many more a minute one has to wait %s", wait)
	}
}
