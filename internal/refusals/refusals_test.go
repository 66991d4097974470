package refusals

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
)

// store takes entries when it is let, and counts how many it is given at a time.
type store struct {
	mu           sync.Mutex
	let          chan struct{} // closed: it answers
	fails        bool
	now, most, n int
	entries      []audit.Entry
}

func (s *store) Record(ctx context.Context, entries ...audit.Entry) error {
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	var err error
	select {
	case <-s.let:
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
	if err == nil && s.fails {
		err = errors.New("no")
	}
	if err == nil {
		s.n += len(entries)
		s.entries = append(s.entries, entries...)
	}
	return err
}

// Who waits for a store that hangs is answered within two seconds, and those who wait behind them too; no kind of refusal crowds out another.
func TestHangingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{let: make(chan struct{})}
		r := New(s, slog.New(slog.DiscardHandler))
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 3 * maxBeside { // of so many actors: each has entries of its own
			e := audit.Entry{Actor: fmt.Sprint("agent:", i)}
			wg.Go(func() {
				if err := r.Record(t.Context(), e); err == nil {
					t.Error("written down by a store that hangs")
				}
			})
			r.RecordCallLater(e)
			r.RecordDoorLater(e)
		}
		wg.Wait()
		if took := time.Since(start); took != maxWait {
			t.Errorf("answered after %s", took)
		}
		if err := full(r).Record(t.Context(), audit.Entry{}); !fault.Is(err, fault.AuditUnavailable) {
			t.Errorf("%v", err)
		}
		close(s.let)
		r.Close()
		r.Close()
		if s.most > 3*maxBeside || s.n != 6*maxBeside {
			t.Errorf("%d at a time, %d written", s.most, s.n)
		}
	})
}

// full is a Recorder whose turns are all taken.
func full(r *Recorder) *Recorder {
	taken := New(r.store, r.log)
	for range maxBeside {
		taken.turns <- struct{}{}
	}
	return taken
}

// What is written behind an answer is tried again until the store takes it; what it still refuses when the Recorder is closed is given up.
func TestLaterIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{let: make(chan struct{}), fails: true}
		close(s.let)
		r := New(s, slog.New(slog.DiscardHandler))
		r.RecordCallLater(audit.Entry{})
		time.Sleep(time.Minute)
		s.mu.Lock()
		s.fails = false
		s.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		if s.n != 1 {
			t.Errorf("%d written", s.n)
		}
		s.fails = true
		r.RecordDoorLater(audit.Entry{})
		r.Close()
		if s.n != 1 {
			t.Errorf("%d written", s.n)
		}
	})
}
