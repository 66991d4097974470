package daemon

import (
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/monitor"
)

// What a running gateway counts while it writes is a recount of its log, also after a restart.
func TestCountersAreARecountOfTheLog(t *testing.T) {
	i := install(t, "")
	check := func(want int64) {
		t.Helper()
		recount := monitor.New(i.d.store, time.Now, slog.New(slog.DiscardHandler))
		for _, c := range []*monitor.Counters{i.d.counters, recount} {
			if err := c.CatchUp(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		from := time.Now().Add(-3 * time.Hour)
		slots, _ := i.d.counters.Since(from)
		again, _ := recount.Since(from)
		counts, _ := monitor.Total(slots)
		counted, _ := monitor.Total(again)
		if !maps.Equal(counts, counted) || counts[monitor.Key{Agent: "bot", What: monitor.Refused, Code: "test"}] != want {
			t.Errorf("counted %v, the log gives %v", counts, counted)
		}
	}
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for range 100 {
				e := audit.Entry{Kind: audit.Decision, Action: "call", Agent: "bot", Decision: "deny", Code: "test", Reason: fmt.Sprint("caller ", n)}
				if err := i.d.store.Record(t.Context(), e); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	check(800)
	i.stop()
	i.start()
	check(800)
}
