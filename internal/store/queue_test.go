package store

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sallyport.example/internal/audit"
)

// waitsIn makes a job that waits in a line.
func waitsIn(agent string, refused bool) *job { return &job{whose: whose{agent, refused}} }

// In whatever order jobs come and batches are made: a line keeps its order; a batch has its bounds and is as full as they let it be; whoever waits gets a turn.
func TestQueueTakesTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newQueue()
		model := map[whose][]*job{}
		passed := map[whose]int{} // batches that had nothing of a line in which jobs waited
		agents := rapid.IntRange(1, 400).Draw(t, "agents")
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "add") {
				for range rapid.IntRange(1, 6).Draw(t, "bursts") {
					w := whose{fmt.Sprint("agent-", rapid.IntRange(0, agents-1).Draw(t, "agent")), rapid.Bool().Draw(t, "refused")}
					for range rapid.SampledFrom([]int{1, 2, maxTurn, 3 * maxTurn, 400}).Draw(t, "jobs") {
						j := &job{whose: w}
						waiting := 0
						for _, jobs := range model {
							waiting += len(jobs)
						}
						full := waiting >= maxQueue && len(model[w]) >= maxTurn
						if err := q.add(j); (err != nil) != full {
							t.Fatalf("%d wait, %d of them in %v: %v", waiting, len(model[w]), w, err)
						} else if err == nil {
							model[w] = append(model[w], j)
						}
					}
				}
				continue
			}
			want, refused, lines, refusedLines := 0, 0, 0, 0
			for w, jobs := range model {
				if n := min(len(jobs), maxTurn); w.refused {
					refused += n
					refusedLines++
				} else {
					want += n
					lines++
				}
			}
			want = min(want+min(refused, maxRefusals), maxBatch)
			batch := q.next(nil)
			if len(batch) != want {
				t.Fatalf("a batch of %d, want %d", len(batch), want)
			}
			of := map[whose]int{}
			for _, j := range batch {
				if model[j.whose][0] != j {
					t.Fatalf("%v: out of its order", j.whose)
				}
				model[j.whose] = model[j.whose][1:]
				of[j.whose]++
			}
			refusals := 0
			for w, n := range of {
				if n > maxTurn {
					t.Fatalf("%v has %d of a batch", w, n)
				}
				if w.refused {
					refusals += n
				}
			}
			if refusals > maxRefusals {
				t.Fatalf("%d refusals in a batch", refusals)
			}
			for w, jobs := range model {
				switch {
				case of[w] > 0 || len(jobs) == 0:
					passed[w] = 0
				default:
					passed[w]++
				}
				if most := (lines+refusedLines)/maxBatch + refusedLines/maxRefusals + 1; passed[w] > most {
					t.Fatalf("%v waits for the %dth batch of %d lines, %d of them of refusals", w, passed[w]+1, lines+refusedLines, refusedLines)
				}
				if len(jobs) == 0 {
					delete(model, w)
				}
			}
		}
		left := 0
		for batch := q.next(nil); len(batch) > 0; batch = q.next(batch[:0]) {
			left += len(batch)
		}
		for _, jobs := range model {
			left -= len(jobs)
		}
		if left != 0 || q.waiting != 0 || len(q.turns) != 0 {
			t.Fatalf("%d jobs too many, %d wait, %d lines", left, q.waiting, len(q.turns))
		}
	})
}

// Lines in which nothing waits are forgotten once there are many, and one that is never empty does not grow.
func TestQueueForgets(t *testing.T) {
	q := newQueue()
	for i := range 3 * maxIdleLines {
		if err := q.add(waitsIn(fmt.Sprint(i), false)); err != nil {
			t.Fatal(err)
		}
		q.next(nil)
	}
	if len(q.lines) > maxIdleLines+1 {
		t.Errorf("%d lines", len(q.lines))
	}
	busy := whose{agent: "busy"}
	for range maxTurn {
		if err := q.add(&job{whose: busy}); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		for range maxTurn {
			if err := q.add(&job{whose: busy}); err != nil {
				t.Fatal(err)
			}
		}
		q.next(nil)
	}
	if n := cap(q.lines[busy].jobs); n > 16*maxTurn {
		t.Errorf("a line of %d has room for %d", q.lines[busy].len(), n)
	}
}

func TestLineOf(t *testing.T) {
	for want, entries := range map[whose][]audit.Entry{
		{}:                 nil,
		{"a", false}:       {{Kind: audit.Intent, Agent: "a", Decision: "permit"}, {Kind: audit.Change, Agent: "b"}},
		{"a", true}:        {{Kind: audit.Decision, Agent: "a", Decision: "deny"}},
		{"b", false}:       {{Kind: audit.Decision, Agent: "b", Decision: "ask"}},
		{"", true}:         {{Kind: audit.Decision, Decision: "deny"}},
		{"person", false}:  {{Kind: audit.Change, Agent: "person"}},
		{"outcome", false}: {{Kind: audit.Outcome, Agent: "outcome", Decision: "error"}},
	} {
		if got := lineOf(entries...); got != want {
			t.Errorf("%+v: %+v", entries, got)
		}
	}
}

// While the writer is busy, one agent has many calls refused and many more under way. The one call of another agent is in the next transaction, before most
// of them; and the refusals that are in it are few.
func TestOneCallAmongMany(t *testing.T) {
	db, err := Open(dataDir(t), Options{patience: time.Minute})
	must(t, err)
	defer db.Close()
	flood, other := opened(t, db, "flood"), opened(t, db, "other")
	busy, let := make(chan struct{}), make(chan struct{})
	done := make(chan error, 2000)
	go func() { done <- db.w.aside(func() error { close(busy); <-let; return nil }) }()
	<-busy
	const refusals, calls = 200, 500
	for i := range refusals {
		go func() {
			done <- db.Record(t.Context(), audit.Entry{Kind: audit.Decision, Action: "call", Agent: "flood", Decision: "deny", Code: fmt.Sprint("code.", i)})
		}()
	}
	for i := range calls {
		go func() { done <- db.Record(t.Context(), change(fmt.Sprint("work.", i), flood)) }()
	}
	for waiting(db) < refusals+calls {
		runtime.Gosched()
	}
	go func() {
		done <- second(db.Intent(t.Context(), other.ID, other.Version, intent(other, "call_one"), nil))
	}()
	waits := func() bool { // the one call, and not a job of the store's own
		db.w.queue.mu.Lock()
		defer db.w.queue.mu.Unlock()
		l := db.w.queue.lines[whose{agent: "other"}]
		return l != nil && l.len() > 0
	}
	for !waits() {
		runtime.Gosched()
	}
	close(let)
	for range refusals + calls + 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	all := log(t, db)
	all = all[len(all)-refusals-calls-1:]
	at := slices.IndexFunc(all, func(e audit.Entry) bool { return e.CallID == "call_one" })
	refused := 0
	for _, e := range all[:maxTurn+maxRefusals+1] {
		if strings.HasPrefix(e.Code, "code.") {
			refused++
		}
	}
	if at > maxTurn+maxRefusals || refused > maxRefusals {
		t.Errorf("it is entry %d of %d, with %d refusals in the first transaction", at, len(all), refused)
	}
}
