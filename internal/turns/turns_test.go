package turns

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// However work comes, stops and panics: never more than n pieces have a turn, each is done once, and at the end all turns are free.
func TestNeverMoreThanTurns(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			n := rapid.IntRange(1, 3).Draw(rt, "turns")
			turns := New(n)
			var all sync.WaitGroup
			var at, done, stopped atomic.Int64
			pieces := rapid.IntRange(1, 40).Draw(rt, "pieces")
			for range pieces {
				agent := fmt.Sprint(rapid.IntRange(0, 3).Draw(rt, "agent"))
				after, lasts := time.Duration(rapid.IntRange(0, 50).Draw(rt, "after")), time.Duration(rapid.IntRange(0, 50).Draw(rt, "lasts"))
				patience := time.Duration(rapid.IntRange(0, 400).Draw(rt, "patience"))
				panics := rapid.Bool().Draw(rt, "panics")
				all.Go(func() {
					defer func() { _ = recover() }()
					time.Sleep(after)
					stop, begun := make(chan struct{}), time.Now()
					defer time.AfterFunc(patience, func() { close(stop) }).Stop()
					turns.Do(stop, agent, func() {
						done.Add(1)
						if waited := time.Since(begun); waited >= patience { // it may have had no turn
							if waited > patience {
								rt.Errorf("work waited %d longer than its patience", waited-patience)
							}
							stopped.Add(1)
						} else if at.Add(1) > int64(n) {
							rt.Errorf("more than %d have a turn", n)
						} else {
							defer at.Add(-1)
						}
						time.Sleep(lasts)
						if panics {
							panic("work")
						}
					})
				})
			}
			all.Wait()
			if done.Load() != int64(pieces) || turns.free != n || len(turns.agents) != 0 || len(turns.waiting) != 0 {
				rt.Errorf("%d of %d pieces are done, %d of %d turns are free, %v wait", done.Load(), pieces, turns.free, n, turns.waiting)
			}
		})
	})
}

// An agent with one piece of work waits for one of another's, not for all.
func TestAgentsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := New(1)
		var all sync.WaitGroup
		defer all.Wait()
		for range 100 {
			all.Go(func() { turns.Do(nil, "flooder", func() { time.Sleep(time.Second) }) })
		}
		synctest.Wait()
		for range 3 {
			begun := time.Now()
			turns.Do(nil, "quiet", func() {})
			if waited := time.Since(begun); waited > 2*time.Second {
				t.Errorf("waited %s", waited)
			}
		}
	})
}
