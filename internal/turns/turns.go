// Package turns shares out heavy work: so much of it is done at a time, and agents take turns.
//
// Promises: never more than the set number of pieces of work have a turn; an agent with one piece of work waits for at most one piece of each other agent
// before it, however many these have; nobody waits once its stop is closed.
package turns

import (
	"slices"
	"sync"
)

// Turns are turns for heavy work. Make them with New.
type Turns struct {
	mu      sync.Mutex // guards the rest
	free    int
	agents  []string                   // those that wait, in the order in which they are served
	waiting map[string][]chan struct{} // by agent, the first to be served first; a channel is closed when its turn comes
}

// New returns turns for n pieces of work at a time, at least one.
func New(n int) *Turns { return &Turns{free: max(1, n), waiting: map[string][]chan struct{}{}} }

// Do does the agent's work in its turn, or when stop is closed at once.
func (t *Turns) Do(stop <-chan struct{}, agent string, work func()) {
	if turn := t.enter(agent); turn != nil {
		select {
		case <-turn:
		case <-stop:
			if t.leave(agent, turn) {
				work()
				return
			}
		}
	}
	defer t.next()
	work()
}

// enter returns nil where it is the agent's turn at once.
func (t *Turns) enter(agent string) (turn chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free > 0 {
		t.free--
		return nil
	}
	turn = make(chan struct{})
	if len(t.waiting[agent]) == 0 {
		t.agents = append(t.agents, agent)
	}
	t.waiting[agent] = append(t.waiting[agent], turn)
	return turn
}

// leave takes back a wait; false if its turn had come.
func (t *Turns) leave(agent string, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting[agent], turn)
	if i < 0 {
		return false
	}
	t.keep(agent, slices.Delete(t.waiting[agent], i, i+1))
	return true
}

// keep notes which of an agent's wait. It holds mu.
func (t *Turns) keep(agent string, rest []chan struct{}) {
	if len(rest) > 0 {
		t.waiting[agent] = rest
		return
	}
	delete(t.waiting, agent)
	t.agents = slices.DeleteFunc(t.agents, func(a string) bool { return a == agent })
}

// next gives the turn on: to the agent that has waited longest for one, which is then the last.
func (t *Turns) next() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.agents) == 0 {
		t.free++
		return
	}
	agent := t.agents[0]
	turn := t.waiting[agent][0]
	t.agents = append(t.agents[1:], agent)
	t.keep(agent, t.waiting[agent][1:])
	close(turn)
}
