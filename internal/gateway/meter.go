package gateway

import (
	"errors"
	"sync"
	"time"
)

// errBudget is the cause with which a session's calls end when its budget does.
var errBudget = errors.New("the session's execution budget is used up")

// errClosed is the cause with which a session's calls end when the session does.
var errClosed = errors.New("the session was closed")

// meter spends a session's budget of time in operations (EX-6). Calls that run at the same time spend it together, and when it is
// gone all of them end.
type meter struct {
	mu     sync.Mutex
	budget time.Duration // 0: none
	spent  time.Duration // up to last
	last   time.Time
	flying map[*crossing]struct{}
	timer  *time.Timer
	due    time.Time // when the timer is set to; it is set anew only to come sooner, and looks again when it comes too soon
}

// advance counts the time since the last look. It holds mu.
func (m *meter) advance() {
	now := time.Now() // monotonic: the gateway's clock is for what is written down
	m.spent += time.Duration(len(m.flying)) * now.Sub(m.last)
	m.last = now
}

// left is what remains.
func (m *meter) left() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	return m.budget - m.spent
}

// start begins to spend on a call.
func (m *meter) start(c *crossing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	if m.flying == nil {
		m.flying = map[*crossing]struct{}{}
	}
	m.flying[c] = struct{}{}
	m.watch()
}

// end stops spending on it.
func (m *meter) end(c *crossing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	delete(m.flying, c)
}

// watch sees to it that the timer comes no later than when the calls in flight will have spent what is left. It holds mu.
func (m *meter) watch() {
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

// stop ends the calls in flight, and returns what the session has spent.
func (m *meter) stop(cause error) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	for c := range m.flying {
		c.cancel(cause)
	}
	return m.spent
}

func (m *meter) expire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	m.due = time.Time{}
	if m.spent < m.budget {
		m.watch()
		return
	}
	for c := range m.flying {
		c.cancel(errBudget)
	}
}
