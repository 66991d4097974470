package limit

import (
	"errors"
	"sync"
	"time"
)

// ErrBudget is the cause with which a session's calls end when its budget does.
var ErrBudget = errors.New("the session's execution budget is used up")

// Call is a call that spends a budget. It must be comparable, and each call another.
type Call interface {
	// Cancel ends the call. It must not wait.
	Cancel(cause error)
}

// Meter spends a session's budget of time in operations (EX-6). Calls that run at the same time spend it together, and when it is
// gone all of them end.
type Meter struct {
	budget time.Duration // 0: none

	mu     sync.Mutex    // guards the rest
	spent  time.Duration // up to last
	last   time.Time
	flying map[Call]struct{}
	beside map[Call]struct{} // calls that spend nothing, and end with the session
	timer  *time.Timer
	due    time.Time // when the timer is set to; it is set anew only to come sooner, and looks again when it comes too soon
}

// NewMeter returns the meter of a session with a budget, of which it has spent some; a budget of 0 means no limit.
func NewMeter(budget, spent time.Duration) *Meter {
	return &Meter{budget: budget, spent: spent, flying: map[Call]struct{}{}, beside: map[Call]struct{}{}}
}

// advance counts the time since the last look. It holds mu.
func (m *Meter) advance() {
	now := time.Now() // monotonic: a clock that is passed in can be set back, and is for what is written down
	m.spent += time.Duration(len(m.flying)) * now.Sub(m.last)
	m.last = now
}

// Left is what remains.
func (m *Meter) Left() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	return m.budget - m.spent
}

// Start begins to spend on a call.
func (m *Meter) Start(c Call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	m.flying[c] = struct{}{}
	m.watch()
}

// Follow has a call end with the session, and spends nothing on it.
func (m *Meter) Follow(c Call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.beside[c] = struct{}{}
}

// End stops spending on it.
func (m *Meter) End(c Call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	delete(m.flying, c)
	delete(m.beside, c)
}

// watch sees to it that the timer comes no later than when the calls in flight will have spent what is left. It holds mu.
func (m *Meter) watch() {
	n := len(m.flying)
	if n == 0 || m.budget == 0 {
		return
	}
	in := max(0, m.budget-m.spent) / time.Duration(n)
	due := m.last.Add(in)
	switch {
	case m.timer == nil:
		m.timer = time.AfterFunc(in, m.expire)
	case !m.due.IsZero() && !due.Before(m.due):
		return
	default:
		m.timer.Reset(in)
	}
	m.due = due
}

// Stop ends the calls in flight, and returns what the session has spent.
func (m *Meter) Stop(cause error) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	for c := range m.flying {
		c.Cancel(cause)
	}
	for c := range m.beside {
		c.Cancel(cause)
	}
	return m.spent
}

func (m *Meter) expire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	m.due = time.Time{}
	if m.spent < m.budget {
		m.watch()
		return
	}
	for c := range m.flying {
		c.Cancel(ErrBudget)
	}
}
