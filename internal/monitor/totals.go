package monitor

import (
	"maps"
	"time"

	"sallyport.example/internal/audit"
)

// totals are what happened since the gateway started: they only grow, and are bounded as a slot is. Counters holds mu for them.
type totals struct {
	since  time.Time
	begun  bool // an entry since then was met: all that follow count, also where the clock was set back
	counts map[Key]int64
	models map[ModelKey]ModelUse
}

func newTotals(since time.Time) totals {
	return totals{since: since, counts: map[Key]int64{}, models: map[ModelKey]ModelUse{}}
}

// count adds what an entry counts as. Those of before the start are history: a counter that began with them would jump at each start.
func (t *totals) count(e audit.Entry, k Key, n int64) {
	if t.begun = t.begun || !e.At.Before(t.since); !t.begun {
		return
	}
	if n > 0 {
		if _, known := t.counts[k]; !known && len(t.counts) >= maxKeys {
			k = Key{Agent: Others, What: k.What}
		}
		t.counts[k] += n
	}
	if k, u, is := OfModel(e); is {
		if _, known := t.models[k]; !known && len(t.models) >= maxKeys {
			k = ModelKey{Agent: Others, Model: Others}
		}
		t.models[k] = t.models[k].Plus(u)
	}
}

// Totals are what happened since these counters were made, by key and by model. No number in them ever falls.
func (c *Counters) Totals() (counts map[Key]int64, models map[ModelKey]ModelUse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.totals.counts), maps.Clone(c.totals.models)
}
