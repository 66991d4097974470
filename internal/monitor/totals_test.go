package monitor

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"time"

	"sallyport.example/internal/audit"
)

// Totals are a recount of the log since the start, and of nothing before; none ever falls, however long the gateway runs.
func TestTotals(t *testing.T) {
	l := &memoryLog{scans: 7}
	entry := func(i int) audit.Entry {
		return audit.Entry{Kind: audit.Outcome, Action: "call", Agent: fmt.Sprint("a", i%3), Decision: "ok", Model: []string{"", "m"}[i%2], Detail: json.RawMessage(`{"tokens":{"input":3,"output":9}}`)}
	}
	for i := range 40 {
		l.add(noon.Add(-time.Hour), entry(i))
	}
	at := noon
	c := New(l, func() time.Time { return at }, slog.New(slog.DiscardHandler))
	want, wantModels, last := map[Key]int64{}, map[ModelKey]ModelUse{}, int64(0)
	for i := range 300 {
		at = at.Add(time.Hour) // hours are forgotten after a week, totals are not
		when := at
		if i == 5 {
			when = noon.Add(-time.Minute) // the clock was set back
		}
		l.add(when, entry(i))
		e := l.entries[len(l.entries)-1]
		k, n := Of(e)
		want[k] += n
		if k, u, is := OfModel(e); is {
			wantModels[k] = wantModels[k].Plus(u)
		}
		if err := c.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		counts, models := c.Totals()
		sum := int64(0)
		for _, n := range counts {
			sum += n
		}
		if !maps.Equal(counts, want) || !maps.Equal(models, wantModels) || sum < last {
			t.Fatalf("after %d: %v, a recount gives %v; models %v, a recount gives %v", i, counts, want, models, wantModels)
		}
		last = sum
	}
}

// Totals keep so many counters and no more, and lose nothing of the sum.
func TestTotalsAreBounded(t *testing.T) {
	l := &memoryLog{}
	c := New(l, func() time.Time { return noon }, slog.New(slog.DiscardHandler))
	for i := range 3 * maxKeys {
		l.add(noon, audit.Entry{Kind: audit.Outcome, Action: "call", Agent: fmt.Sprint("agent-", i), Decision: "ok", Model: fmt.Sprint("m", i)})
	}
	if err := c.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	counts, models := c.Totals()
	sum, answered := int64(0), int64(0)
	for _, n := range counts {
		sum += n
	}
	for _, u := range models {
		answered += u.Answered
	}
	if len(counts) != maxKeys+1 || len(models) != maxKeys+1 || sum != 3*maxKeys || answered != sum || counts[Key{Others, Ran, ""}] != 2*maxKeys {
		t.Errorf("%d counters, %d of models, %d calls, %d answers", len(counts), len(models), sum, answered)
	}
}
