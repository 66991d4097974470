// Package limit holds how much a session may do in a time: an exact sliding window over call starts, and a budget of time in operations; and how fast an agent
// may call in all of its sessions.
//
// Promises: at most n calls start in any window, whatever their timing (TH-5, EX-5); a refusal says when the next one may start; all calls
// of a session end when its budget does (EX-6). Nothing here waits. The clock of windows is passed in; a budget is spent by the monotonic one.
package limit

import (
	"sync"
	"time"
)

// Window admits at most n events in any span of time. The zero of n means no limit.
type Window struct {
	span time.Duration

	mu    sync.Mutex // guards the rest
	n     int
	times []time.Time // ring of the last n admissions, grown on demand
	next  int
}

// NewWindow returns a window of n events per span; n <= 0 admits everything.
func NewWindow(n int, span time.Duration) *Window { return &Window{n: n, span: span} }

// Room tells what Take would answer, and takes nothing.
func (w *Window) Room(now time.Time) (wait time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.room(now)
}

// room is how long to wait until there is room. It holds mu.
func (w *Window) room(now time.Time) (wait time.Duration, ok bool) {
	if len(w.times) < w.n || w.n <= 0 {
		return 0, true
	}
	if since := now.Sub(w.times[w.next]); since < w.span {
		return w.span - max(0, since), false
	}
	return 0, true
}

// Take admits an event at now, or says how long to wait until one would be admitted. A clock that runs backwards admits nothing early.
func (w *Window) Take(now time.Time) (wait time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wait, ok := w.room(now); !ok || w.n <= 0 {
		return wait, ok
	}
	if len(w.times) < w.n {
		w.times = append(w.times, now)
		return 0, true
	}
	w.times[w.next] = now
	w.next = (w.next + 1) % w.n
	return 0, true
}

// Limit changes how many events are admitted, n <= 0: all. Those that were admitted before count as far as n goes; a window without a limit has counted
// none.
func (w *Window) Limit(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n == w.n {
		return
	}
	times := append(append([]time.Time{}, w.times[w.next:]...), w.times[:w.next]...) // the oldest first
	w.n, w.next, w.times = n, 0, times[max(0, len(times)-max(0, n)):]
}

// Rates are what a session may start in any minute. Own sessions of an agent share one: opening the next renews no limit.
type Rates struct {
	Calls    *Window
	Checks   *Window // questions what the verdict would be
	Requests *Window // external ones
}

// NewRates returns the rates of a session that may start so many calls and external requests in any minute.
func NewRates(calls, requests int) *Rates {
	return &Rates{Calls: NewWindow(calls, time.Minute), Checks: NewWindow(calls, time.Minute), Requests: NewWindow(requests, time.Minute)}
}

// Limit changes the rates. What was counted stays counted.
func (r *Rates) Limit(calls, requests int) {
	r.Calls.Limit(calls)
	r.Checks.Limit(calls)
	r.Requests.Limit(requests)
}
