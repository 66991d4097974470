package standing_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway/gatewaytest"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/standing"
	"sallyport.example/internal/store"
)

// brittle is the real store, with writes that can be made to fail.
type brittle struct {
	*store.DB
	revocations, quarantines bool // fail
}

func (b *brittle) RevokeToken(ctx context.Context, id string, at time.Time, e audit.Entry) error {
	if b.revocations {
		return fault.New(fault.AuditUnavailable, "")
	}
	return b.DB.RevokeToken(ctx, id, at, e)
}

func (b *brittle) SaveQuarantine(ctx context.Context, agent string, q *standing.Quarantine, e audit.Entry) error {
	if b.quarantines {
		return fault.New(fault.StoreUnavailable, "")
	}
	return b.DB.SaveQuarantine(ctx, agent, q, e)
}

// world is a standing on the real store.
type world struct {
	t     *testing.T
	dir   string
	store *brittle
	s     *standing.Standing
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: gatewaytest.DataDir(t, t.TempDir())}
	db, err := store.Open(w.dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w.store = &brittle{DB: db}
	w.s = w.start()
	t.Cleanup(func() {
		w.s.Close()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// start begins with what the store holds, as after a restart.
func (w *world) start() *standing.Standing {
	w.t.Helper()
	worker := declared(w.t, "worker")
	s, err := standing.New(w.t.Context(), standing.Options{
		Store: w.store, Agents: func() agent.Set { return worker }, Now: func() time.Time { return time.Now().UTC() },
		Log: slog.New(slog.DiscardHandler), SwitchChanged: func(string) {}, AgentChanged: func(string) {},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) entries(action string) []audit.Entry {
	w.t.Helper()
	r, err := store.OpenReadOnly(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Close()
	all, _, err := r.Entries(w.t.Context(), audit.Filter{Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(e audit.Entry) bool { return e.Action != action })
}

// A revocation that the store refused is not called done when it is tried again.
func TestFailedRevocationIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	secret, tok, err := w.s.IssueToken(t.Context(), identity.Principal{Kind: identity.Agent, ID: "worker"}, "person:admin")
	if err != nil {
		t.Fatal(err)
	}
	w.store.revocations = true
	if err := w.s.RevokeToken(t.Context(), tok.ID, "person:admin"); err == nil {
		t.Fatal("want the store's error")
	}
	w.store.revocations = false
	if err := w.s.RevokeToken(t.Context(), tok.ID, "person:admin"); err != nil {
		t.Fatal(err)
	}
	again := w.start()
	defer again.Close()
	if _, err := again.Authenticate(secret); err == nil {
		t.Error("the token that was revoked, successfully at the second try, is good again after a restart")
	}
}

// Time on record can be ahead of the clock. A token that is made then is either good, or refused at once.
func TestTokensExpireByTheTimeOnRecord(t *testing.T) {
	w := newWorld(t)
	ahead := time.Now().Add(30 * 24 * time.Hour)
	worker := declared(t, "worker")
	s, err := standing.New(t.Context(), standing.Options{
		Store: w.store, Agents: func() agent.Set { return worker }, Now: func() time.Time { return ahead },
		Log: slog.New(slog.DiscardHandler), SwitchChanged: func(string) {}, AgentChanged: func(string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	subject := identity.Principal{Kind: identity.Person, ID: "ann", Roles: []identity.Role{identity.Admin}, Expires: ahead.Add(-time.Hour)}
	if _, _, err := s.IssueToken(t.Context(), subject, "person:admin"); fault.Of(err).Field != "expires" {
		t.Errorf("a token that is refused at once was made: %v", err)
	}
	subject.Expires = ahead.Add(time.Hour)
	secret, _, err := s.IssueToken(t.Context(), subject, "person:admin")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Authenticate(secret); err != nil {
		t.Error(err)
	}
}

// A quarantine that could not be written is written when it is asked for again, not called done.
func TestFailedQuarantineIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.store.quarantines = true
	if err := w.s.Quarantine(t.Context(), "worker", "odd", "person:alice"); err == nil {
		t.Fatal("want the store's error")
	}
	if _, is := w.s.Quarantined("worker"); !is {
		t.Error("it does not hold from memory")
	}
	w.store.quarantines = false
	if err := w.s.Quarantine(t.Context(), "worker", "odd", "person:alice"); err != nil {
		t.Fatal(err)
	}
	kept, _, err := w.store.Quarantines(t.Context())
	if _, ok := kept["worker"]; !ok || err != nil {
		t.Errorf("said to be done, and the store has %v (%v): after a restart the agent is free", kept, err)
	}
	if n := len(w.entries("agent.quarantine")); n != 1 {
		t.Errorf("%d entries of it", n)
	}
}

// running is a call under way.
type running struct{ cause error }

func (r *running) Cancel(cause error) { r.cause = cause }

// The switch cancels the calls that it reaches, and no others: not those of other agents, and not those that have left.
func TestSwitchCancelsWhatItReaches(t *testing.T) {
	for name, c := range map[string]struct {
		agent           string
		worker, planner bool // is cancelled
	}{
		"one agent":  {agent: "worker", worker: true},
		"all agents": {agent: "", worker: true, planner: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			worker, left, planner := &running{}, &running{}, &running{}
			if n := w.s.Enter("worker", worker); n != 1 {
				t.Errorf("%d calls of the worker", n)
			}
			if n := w.s.Enter("worker", left); n != 2 {
				t.Errorf("%d calls of the worker", n)
			}
			if n := w.s.Enter("planner", planner); n != 1 {
				t.Errorf("%d calls of the planner", n)
			}
			w.s.Leave(left)
			w.s.Leave(left) // it has left, and takes nobody else along
			if under := w.s.UnderWay(); !maps.Equal(under, map[string]int{"worker": 1, "planner": 1}) {
				t.Errorf("under way: %v", under)
			}
			w.s.Disable(c.agent, "person:alice", "odd")
			if errors.Is(worker.cause, standing.ErrKilled) != c.worker || errors.Is(planner.cause, standing.ErrKilled) != c.planner || left.cause != nil {
				t.Errorf("worker %v, planner %v, left %v", worker.cause, planner.cause, left.cause)
			}
			if got := w.s.StoppedBy("worker"); !strings.HasSuffix(got, " stopped after this was asked, by alice: odd") {
				t.Errorf("%q", got)
			}
			if w.s.Killed("worker") != c.worker || w.s.Killed("planner") != c.planner {
				t.Errorf("worker %v, planner %v", w.s.Killed("worker"), w.s.Killed("planner"))
			}
			if n := w.s.Enter("worker", left); n != 2 {
				t.Errorf("%d calls of the worker", n)
			}
			w.s.Enable(c.agent, "person:alice", "found it")
			if w.s.Killed("worker") || w.s.Killed("planner") {
				t.Error("it was taken back")
			}
			w.s.Close()
			if on, off := w.entries("kill.disable"), w.entries("kill.enable"); len(on) != 1 || len(off) != 1 || on[0].Agent != c.agent || on[0].Reason != "odd" {
				t.Errorf("on record: %+v %+v", on, off)
			}
		})
	}
}
