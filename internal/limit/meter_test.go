package limit

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// running is a call that notes when it was cancelled, and why.
type running struct {
	at    time.Time
	cause error
}

func (r *running) Cancel(cause error) { r.at, r.cause = time.Now(), cause }

// Calls that run at once spend the budget together, and all of them end when it is used up.
func TestMeterEndsAllCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		m := NewMeter(20*time.Second, 5*time.Second)
		a, b, short := &running{}, &running{}, &running{}
		m.Start(short)
		time.Sleep(3 * time.Second)
		m.End(short) // 12 s are left
		m.Start(a)
		time.Sleep(2 * time.Second) // 10 s
		m.Start(b)                  // two at once: 5 s
		time.Sleep(time.Second)
		if left := m.Left(); left != 8*time.Second {
			t.Errorf("%s are left", left)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, c := range []*running{a, b} {
			if !errors.Is(c.cause, ErrBudget) || c.at.Sub(start) != 10*time.Second {
				t.Errorf("cancelled after %s for %v", c.at.Sub(start), c.cause)
			}
		}
		if short.cause != nil {
			t.Error("a call that had ended was cancelled")
		}
	})
}

// Stopping ends the calls in flight for the cause that is given, and says what was spent; without a budget, nothing else ends them.
func TestMeterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, c, closed := NewMeter(0, time.Second), &running{}, errors.New("closed")
		m.Start(c)
		time.Sleep(time.Hour)
		synctest.Wait()
		if c.cause != nil {
			t.Errorf("cancelled for %v", c.cause)
		}
		if spent := m.Stop(closed); spent != time.Hour+time.Second || c.cause != closed {
			t.Errorf("%s were spent, and it ended for %v", spent, c.cause)
		}
	})
}
