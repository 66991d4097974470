package store

import (
	"slices"
	"sync"

	"sallyport.example/internal/evidence"
)

// recent is the evidence that this process wrote last, by session, so that the next call of a session doesn't read back what the one before has written. It
// holds what is durable alone, and answers only where its last row is the one that the proof names. The zero recent is empty.
type recent struct {
	mu        sync.Mutex
	bySession map[string][]recentRow
	bytes     int
}

type recentRow struct {
	at rowAt
	ev evidence.Kept
}

const (
	maxRecentBytes = 8 << 20 // of all bodies; then all are left out
	maxRecentRows  = 32      // of one session; then the older half is left out
)

func (r *recent) add(sessionID string, row recentRow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bySession == nil || r.bytes+len(row.ev.Body) > maxRecentBytes {
		r.bySession, r.bytes = map[string][]recentRow{}, 0
	}
	rows := append(r.bySession[sessionID], row)
	if len(rows) > maxRecentRows {
		older := rows[:maxRecentRows/2]
		for _, row := range older {
			r.bytes -= len(row.ev.Body)
		}
		rows = slices.Clone(rows[maxRecentRows/2:])
	}
	r.bySession[sessionID] = rows
	r.bytes += len(row.ev.Body)
}

// drop leaves out what a session has, whose evidence is deleted.
func (r *recent) drop(sessionID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, row := range r.bySession[sessionID] {
		r.bytes -= len(row.ev.Body)
	}
	delete(r.bySession, sessionID)
}

// since is the evidence of a session after the row with that number, up to the row last; false if it doesn't have all of it.
func (r *recent) since(sessionID string, after int64, last rowAt) (all []evidence.Kept, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rows := r.bySession[sessionID]
	if len(rows) == 0 || rows[0].at.n > after+1 || rows[len(rows)-1].at != last {
		return nil, false
	}
	for i, row := range rows {
		if row.at.n != rows[0].at.n+int64(i) { // one between them is not known
			return nil, false
		}
		if row.at.n > after {
			all = append(all, row.ev)
		}
	}
	return all, true
}
