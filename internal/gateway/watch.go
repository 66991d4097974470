package gateway

import (
	"slices"
	"sync"
)

// Change says that something people look at is not as it was: what it is now is read from where it is kept.
type Change struct {
	Topic string // "approval", "plan", "session", "tool", "kill", "agent"; "": some were missed, so look at everything again
	ID    string // of what changed; of a plan that of its session
}

// The topics of changes.
const (
	ApprovalChanged = "approval"
	PlanChanged     = "plan"
	SessionChanged  = "session"
	ToolChanged     = "tool"
	KillChanged     = "kill"
	AgentChanged    = "agent"
)

// watched is how many changes may wait for one watcher. Beyond that it is told that it missed some: nobody is waited for.
const watched = 64

// watchers are those who are told of changes.
type watchers struct {
	mu   sync.Mutex // guards the rest
	next int
	byID map[int]watcher
}

// watcher is one of them.
type watcher struct {
	topics []string // empty: all
	ch     chan Change
}

// Watch tells of changes from now on, of these topics or without any of all, until end is called. A change is told after it is durable,
// except for the kill switch, which acts from memory. A session changes with each of its calls.
func (g *Gateway) Watch(topics ...string) (changes <-chan Change, end func()) {
	w := &g.watchers
	w.mu.Lock()
	defer w.mu.Unlock()
	id, ch := w.next, make(chan Change, watched)
	w.next++
	if w.byID == nil {
		w.byID = map[int]watcher{}
	}
	w.byID[id] = watcher{topics: topics, ch: ch}
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.byID, id)
	}
}

// changed tells everybody. It never blocks.
func (g *Gateway) changed(topic, id string) {
	w := &g.watchers
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.byID {
		ch := one.ch
		if len(one.topics) > 0 && !slices.Contains(one.topics, topic) {
			continue
		}
		select {
		case ch <- Change{Topic: topic, ID: id}:
		default:
			select { // only this function sends, under mu: one that is taken out makes room for one
			case <-ch:
			default:
			}
			ch <- Change{}
		}
	}
}
