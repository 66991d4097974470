package store

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/session"
)

// TestUsedTimeIsSettled plays calls, failing commits, changes, settling and eviction in every mixture, and crashes: the budget of no session comes back
// by more than maxUnsettled.
func TestUsedTimeIsSettled(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := newUsedWorld(t, rand.New(rand.NewPCG(seed, 1)))
			for step := range 240 {
				w.step()
				if step%80 == 79 {
					w.crash()
				}
			}
			must(t, w.db.Close())
			w.compare(dataDir(t), 0)
		})
	}
}

// TestBusySessionIsSettled has an agent call so fast that each settling comes between an outcome and the next intent.
func TestBusySessionIsSettled(t *testing.T) {
	w := newUsedWorld(t, rand.New(rand.NewPCG(1, 1)))
	id := w.sessions[0]
	for range 30 {
		w.intent(id)
		w.outcome(id, 300*time.Millisecond)
		w.intent(id)
		must(t, second(w.db.Checkpoint(t.Context())))
		w.outcome(id, 0)
	}
	w.evict()
	w.same()
	w.crash()
}

// usedWorld is a store with sessions, and what they have used.
type usedWorld struct {
	t        *testing.T
	db       *DB
	rand     *rand.Rand
	sessions []string
	used     map[string]time.Duration
	running  map[string][]audit.Entry
	fail     string // how the next commit fails: "", "lost", "worked"
}

func newUsedWorld(t *testing.T, r *rand.Rand) *usedWorld {
	w := &usedWorld{t: t, db: openDB(t), rand: r, used: map[string]time.Duration{}, running: map[string][]audit.Entry{}}
	for i := range 3 {
		w.sessions = append(w.sessions, opened(t, w.db, fmt.Sprint("agent-", i)).ID)
	}
	onWriter(t, w.db, func(*conn) error {
		commit := w.db.w.commit
		w.db.w.commit = func(c *conn) error {
			fail := w.fail
			if w.fail = ""; fail == "lost" {
				return errors.New("input/output error")
			}
			if err := commit(c); err != nil || fail == "" {
				return err
			}
			return errors.New("input/output error, reported for a commit that worked")
		}
		return nil
	})
	return w
}

func (w *usedWorld) step() {
	id := w.sessions[w.rand.IntN(len(w.sessions))]
	if w.rand.IntN(6) == 0 {
		onWriter(w.t, w.db, func(*conn) error { w.fail = []string{"lost", "worked"}[w.rand.IntN(2)]; return nil })
	}
	switch w.rand.IntN(12) {
	case 0:
		w.evict()
	case 1:
		w.again(func() error { return second(w.db.Checkpoint(w.t.Context())) })
	case 2:
		w.again(func() error {
			return second(w.db.ChangeSession(w.t.Context(), id, func(s session.Session) (session.Session, audit.Entry, error) {
				after, err := s.SetPhase(session.Execution, fmt.Sprint("person:", w.rand.IntN(3)))
				return after, change("session.phase", s), err
			}))
		})
	case 3, 4, 5, 6:
		w.intent(id)
	default:
		w.outcome(id, time.Duration(w.rand.IntN(1500))*time.Millisecond)
	}
	w.same()
}

// again does something until it succeeds.
func (w *usedWorld) again(f func() error) {
	w.t.Helper()
	var err error
	for range 20 {
		if err = f(); err == nil {
			return
		}
	}
	w.t.Fatal(err)
}

func (w *usedWorld) intent(id string) {
	w.t.Helper()
	var e audit.Entry
	w.again(func() error {
		s, err := w.db.Session(w.t.Context(), id)
		if err == nil {
			e = intent(s, newCall())
			_, err = w.db.Intent(w.t.Context(), id, s.Version, e, nil)
		}
		return err
	})
	w.running[id] = append(w.running[id], e)
}

func (w *usedWorld) outcome(id string, used time.Duration) {
	w.t.Helper()
	if len(w.running[id]) == 0 {
		return
	}
	e := w.running[id][0]
	w.running[id] = w.running[id][1:]
	var raise []flow.Held
	if w.rand.IntN(4) == 0 {
		raise = []flow.Held{{Label: flow.Label(fmt.Sprint("label-", w.rand.IntN(9)))}}
	}
	w.again(func() error { return second(w.db.Outcome(w.t.Context(), id, outcome(e, "ok"), raise, used)) })
	w.used[id] += used
}

// evict lets the store forget the sessions that it has in memory.
func (w *usedWorld) evict() {
	onWriter(w.t, w.db, func(*conn) error { w.db.w.live.clear(); return nil })
}

// same compares what the running store says, to a call as much as to the next writer.
func (w *usedWorld) same() {
	w.t.Helper()
	var wrong string
	onWriter(w.t, w.db, func(*conn) error {
		x := w.db.w.tx
		for id, used := range w.used {
			clear(x.sessions)
			if s, err := x.session(id); err != nil || s.Used != used {
				wrong = fmt.Sprintf("%s has used %v, the store says %v, %v", id, used, s.Used, err)
			}
		}
		return nil
	})
	if wrong != "" {
		w.t.Fatal(wrong)
	}
}

// crash starts another store on the files as they are at this moment.
func (w *usedWorld) crash() {
	w.t.Helper()
	var dir string
	onWriter(w.t, w.db, func(*conn) error { dir = copyDir(w.t, dataDir(w.t)); return nil }) // no commit comes in between
	w.compare(dir, maxUnsettled)
}

func (w *usedWorld) compare(dir string, bound time.Duration) {
	w.t.Helper()
	db, err := Open(dir, Options{patience: time.Minute})
	must(w.t, err)
	defer db.Close()
	for id, used := range maps.All(w.used) {
		if s := get(w.t)(db.Session(w.t.Context(), id)); s.Used > used || s.Used < used-bound {
			w.t.Errorf("%s had used %v, and after the crash %v", id, used, s.Used)
		}
	}
}
