package limit

import (
	"sync"
	"time"
)

// Pace spreads events evenly (GCRA): n a minute on average, and after a rest up to a sixth of n at once. So in any minute there are at most n and a sixth.
// The zero Pace has rested.
type Pace struct {
	mu   sync.Mutex
	next time.Time // when the event after those that were admitted would come, were they spread evenly
}

// Throttle is how fast an agent may call, as people see it.
type Throttle struct {
	Agent          string     `json:"agent_id"`
	CallsPerMinute int        `json:"calls_per_minute"`
	AtOnce         int        `json:"at_once" doc:"How many calls may come at once after a rest."`
	Next           *time.Time `json:"next,omitempty" doc:"When the next call may run. Absent: now."`
}

// Throttle is the pace of an agent's calls at a moment, where n a minute may come.
func (p *Pace) Throttle(of string, n int, now time.Time) Throttle {
	t := Throttle{Agent: of, CallsPerMinute: n, AtOnce: atOnce(n)}
	if wait, ok := p.Room(n, now); !ok {
		next := now.Add(wait)
		t.Next = &next
	}
	return t
}

func atOnce(n int) int { return max(1, n/6) }

// Room tells what Take would answer, and takes nothing.
func (p *Pace) Room(n int, now time.Time) (wait time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, wait = p.room(n, now)
	return wait, wait == 0
}

// Take admits an event at now where n a minute may come, n <= 0: any number; or says how long to wait until one would be admitted.
func (p *Pace) Take(n int, now time.Time) (wait time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next, wait := p.room(n, now)
	if wait == 0 {
		p.next = next
	}
	return wait, wait == 0
}

// room is what next becomes with one event more, and how long to wait until it is admitted. It holds mu.
func (p *Pace) room(n int, now time.Time) (next time.Time, wait time.Duration) {
	if n <= 0 {
		return p.next, 0
	}
	each := time.Minute / time.Duration(n)
	ahead := each * time.Duration(atOnce(n)) // how far next may be ahead of the clock
	next = p.next
	if next.Before(now) {
		next = now
	}
	if most := now.Add(ahead); next.After(most) { // the clock was set back, or n was raised
		next = most
	}
	next = next.Add(each)
	return next, max(0, next.Sub(now)-ahead)
}
