// Package changes tells those who subscribe what has changed of that which people look at.
//
// Promises: publishing never blocks; a subscriber that is too slow is told that it missed some.
package changes

import (
	"slices"
	"sync"
)

// Change says that something people look at is not as it was: what it is now is read from where it is kept.
type Change struct {
	Topic string // "approval", "plan", "session", "tool", "kill", "agent", "breaker", "run", "recommendation", "hit"; "": some were missed, so look at everything again
	ID    string // of what changed; of a plan that of its session
}

// The topics of changes.
const (
	Approval       = "approval"
	Plan           = "plan"
	Session        = "session"
	Tool           = "tool"
	Kill           = "kill"
	Agent          = "agent"
	Breaker        = "breaker"
	Run            = "run"
	Recommendation = "recommendation"
	Hit            = "hit" // of screening, in what an agent read; the ID is the agent's
)

// maxWaiting is how many changes may wait for one subscriber. Beyond that it is told that it missed some: nobody is waited for.
const maxWaiting = 64

// Feed is where changes are published. The zero Feed has no subscribers.
type Feed struct {
	mu   sync.Mutex // guards the rest
	next int
	byID map[int]subscriber
}

type subscriber struct {
	topics []string // empty: all
	ch     chan Change
}

// Subscribe tells of changes from now on, of these topics or without any of all, until end is called.
func (f *Feed) Subscribe(topics ...string) (changes <-chan Change, end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id, ch := f.next, make(chan Change, maxWaiting)
	f.next++
	if f.byID == nil {
		f.byID = map[int]subscriber{}
	}
	f.byID[id] = subscriber{topics: topics, ch: ch}
	return ch, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.byID, id)
	}
}

// Publish tells every subscriber to the topic. It never blocks.
func (f *Feed) Publish(topic, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.byID {
		if len(s.topics) > 0 && !slices.Contains(s.topics, topic) {
			continue
		}
		select {
		case s.ch <- Change{Topic: topic, ID: id}:
		default:
			select { // only this function sends, under mu: one that is taken out makes room for one
			case <-s.ch:
			default:
			}
			s.ch <- Change{}
		}
	}
}
