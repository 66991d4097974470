package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/evidence"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/session"
	"sallyport.example/internal/standing"
	"sallyport.example/provenance"
)

// engine is what every store must be: gateway.Store, and the log readable.
type engine interface {
	gateway.Store
	Entries(context.Context, audit.Filter) ([]audit.Entry, int64, error)
	SessionsPage(context.Context, string, int, session.State) (session.Page, error)
	OpenSessions(context.Context) (int64, error)
	Close() error
}

// testEngine defines the behaviour of a store, whatever engine it is on. open opens the same store each time it is called with the
// same t; the suite closes it before it opens it again.
func testEngine(t *testing.T, open func(t *testing.T, clock func() time.Time) engine) {
	run := func(name string, test func(t *testing.T, s engine)) {
		t.Run(name, func(t *testing.T) {
			s := open(t, time.Now)
			test(t, s)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	run("sessions are opened once and found", func(t *testing.T, s engine) {
		ctx := t.Context()
		for _, find := range []func() (session.Session, error){
			func() (session.Session, error) { return s.Session(ctx, "sess_none") },
			func() (session.Session, error) { return s.OwnSession(ctx, "a") },
			func() (session.Session, error) { return s.LastOwnSession(ctx, "a") },
		} {
			if _, err := find(); !fault.Is(err, fault.NotFound) {
				t.Fatalf("before: %v", err)
			}
		}
		first := newSession("a", true)
		first.UserRequest, first.Requester, first.Budget = "pay <b>the</b> bill ✓", "alice", time.Minute
		first = first.Raise(flow.Held{Label: "internal", Operation: "mail.search_email", CallID: "call_1"})
		must(t, s.OpenSession(ctx, first, change("session.open", first)))
		if err := s.OpenSession(ctx, first, change("session.open", first)); !fault.Is(err, fault.Conflict) {
			t.Errorf("the same id again: %v", err)
		}
		if err := s.OpenSession(ctx, newSession("a", true), change("session.open", first)); !fault.Is(err, fault.Conflict) {
			t.Errorf("a second own session: %v", err)
		}
		hosted := newSession("a", false)
		must(t, s.OpenSession(ctx, hosted, change("session.open", hosted)))
		if n, err := s.OpenSessions(ctx); n != 2 || err != nil {
			t.Errorf("%d sessions are open, %v", n, err)
		}
		for name, got := range map[string]session.Session{
			"by id": get(t)(s.Session(ctx, first.ID)), "own": get(t)(s.OwnSession(ctx, "a")),
		} {
			equal(t, name, got, first)
		}
		equal(t, "last", get(t)(s.LastOwnSession(ctx, "a")), first)
		closed := get(t)(s.ChangeSession(ctx, first.ID, closing))
		if closed.State != session.Closed {
			t.Errorf("closed: %+v", closed)
		}
		if _, err := s.OwnSession(ctx, "a"); !fault.Is(err, fault.NotFound) {
			t.Errorf("own session after it was closed: %v", err)
		}
		again := newSession("a", true)
		again.Labels = nil
		if err := s.OpenSession(ctx, again, change("session.open", again)); !fault.Is(err, fault.Conflict) {
			t.Errorf("an own session without the labels of the one before: %v", err)
		}
		again = again.Raise(closed.Labels...)
		if err := s.OpenSession(ctx, again, change("session.open", again)); !fault.Is(err, fault.Conflict) {
			t.Errorf("an own session that follows another than the newest: %v", err)
		}
		again.Follows = first.ID
		must(t, s.OpenSession(ctx, again, change("session.open", again), evidence.Kept{Seq: 7, CallID: "call_0", Rules: call.HashBytes(nil), Body: []byte(`{"gave":{}}`)}))
		if given, err := s.Evidence(ctx, again.ID, 0); err != nil || len(given) != 1 || given[0].Seq != 1 || given[0].CallID != "call_0" || string(given[0].Body) != `{"gave":{}}` {
			t.Errorf("taken over: %+v, %v", given, err)
		}
		again.Follows = ""
		equal(t, "own again", get(t)(s.OwnSession(ctx, "a")), again)

		page, err := s.SessionsPage(ctx, "", 2, "")
		must(t, err)
		equal(t, "page", ids(page.Sessions), []string{again.ID, hosted.ID})
		page, err = s.SessionsPage(ctx, hosted.ID, 2, "")
		must(t, err)
		equal(t, "next page", ids(page.Sessions), []string{first.ID})
		page, err = s.SessionsPage(ctx, "", 10, session.Open)
		must(t, err)
		equal(t, "open ones", ids(page.Sessions), []string{again.ID, hosted.ID})
		if _, err = s.SessionsPage(ctx, "sess_none", 10, ""); !fault.Is(err, fault.NotFound) {
			t.Errorf("page after nothing: %v", err)
		}
		equal(t, "entries", actions(log(t, s)), []string{"session.open", "session.open", "session.close", "session.open"})

		other := newSession("a", false)
		must(t, s.OpenSession(ctx, other, change("session.open", other)))
		given, err := s.GivenSessions(ctx)
		must(t, err)
		equal(t, "given", given, map[string][]string{"a": {hosted.ID, other.ID}})
		get(t)(s.ChangeSession(ctx, other.ID, closing))
		given, err = s.GivenSessions(ctx)
		must(t, err)
		equal(t, "given and open", given, map[string][]string{"a": {hosted.ID}})
	})
	run("plans that wait", func(t *testing.T, s engine) {
		ctx := t.Context()
		var waiting []string
		move := func(id string, how func(session.Session) (session.Session, error)) {
			t.Helper()
			_, err := s.ChangeSession(ctx, id, func(x session.Session) (session.Session, audit.Entry, error) {
				next, err := how(x)
				return next, change("session.move", next), err
			})
			must(t, err)
		}
		waits := func(want ...string) {
			t.Helper()
			newest, all, err := s.WaitingPlans(ctx, 2)
			must(t, err)
			if !slices.Equal(ids(newest), want[:min(2, len(want))]) || all != int64(len(want)) {
				t.Errorf("%q of %d wait, not %q", ids(newest), all, want)
			}
		}
		waits()
		for range 4 {
			x := newSession("a", false)
			must(t, s.OpenSession(ctx, x, change("session.open", x)))
			id := x.ID
			move(id, func(x session.Session) (session.Session, error) {
				return x.SubmitPlan(session.Plan{ID: "plan_" + id, Digest: "d", State: session.PlanPending, Steps: []session.Step{{Tool: "x"}}})
			})
			waiting = append([]string{id}, waiting...)
			waits(waiting...)
		}
		move(waiting[0], func(x session.Session) (session.Session, error) {
			return x.DecidePlan("d", true, "person:b", "", false, time.Now())
		})
		waits(waiting[1:]...)
		move(waiting[1], func(x session.Session) (session.Session, error) {
			return x.DecidePlan("d", false, "person:b", "no", false, time.Now())
		})
		move(waiting[2], func(x session.Session) (session.Session, error) { return x.Close(time.Now()) })
		waits(waiting[3])
	})
	run("a change is whole or not at all", func(t *testing.T, s engine) {
		ctx := t.Context()
		a := opened(t, s, "a")
		own := errors.New("no")
		for name, change := range map[string]func(session.Session) (session.Session, audit.Entry, error){
			"refused": func(x session.Session) (session.Session, audit.Entry, error) { return x, change("x", x), own },
			"bad entry": func(x session.Session) (session.Session, audit.Entry, error) {
				return x, audit.Entry{Kind: "rumour"}, nil
			},
			"another's": func(x session.Session) (session.Session, audit.Entry, error) {
				x.ID = "b"
				return x, change("x", x), nil
			},
			"back in time": func(x session.Session) (session.Session, audit.Entry, error) {
				x.Version = 0
				return x, change("x", x), nil
			},
			"panic": func(x session.Session) (session.Session, audit.Entry, error) { panic("boo") },
			"unknown phase": func(x session.Session) (session.Session, audit.Entry, error) {
				x.Phase = "party"
				return x, change("x", x), nil
			},
			"unknown state": func(x session.Session) (session.Session, audit.Entry, error) {
				x.State = "ajar"
				return x, change("x", x), nil
			},
			"negative spent": func(x session.Session) (session.Session, audit.Entry, error) {
				x.Used = -1
				return x, change("x", x), nil
			},
		} {
			if _, err := s.ChangeSession(ctx, a.ID, change); err == nil || name == "refused" && err != own {
				t.Errorf("%s: %v", name, err)
			}
			equal(t, name, get(t)(s.Session(ctx, a.ID)), a)
		}
		if _, err := s.ChangeSession(ctx, "sess_none", closing); !fault.Is(err, fault.NotFound) {
			t.Errorf("no such session: %v", err)
		}
		get(t)(s.ChangeSession(ctx, a.ID, closing))
		if _, err := s.ChangeSession(ctx, a.ID, func(x session.Session) (session.Session, audit.Entry, error) {
			x.State = session.Open
			return x, change("session.reopen", x), nil
		}); err == nil {
			t.Error("a closed session was opened")
		}
		equal(t, "entries", actions(log(t, s)), []string{"session.open", "session.close"})
	})
	run("an intent needs the session at its version", func(t *testing.T, s engine) {
		ctx := t.Context()
		a := opened(t, s, "a")
		raise := []flow.Held{{Label: "internal", Operation: "mail.search_email", CallID: "c1"}}
		moved := get(t)(s.Intent(ctx, a.ID, a.Version, intent(a, "c1"), raise))
		if !moved.Holds("internal") || moved.Version != a.Version+1 {
			t.Fatalf("after an intent that raises: %+v", moved)
		}
		equal(t, "session", get(t)(s.Session(ctx, a.ID)), moved)
		for name, err := range map[string]error{
			"old version":  second(s.Intent(ctx, a.ID, a.Version, intent(a, "c2"), nil)),
			"later":        second(s.Intent(ctx, a.ID, moved.Version+1, intent(a, "c2"), nil)),
			"same call":    second(s.Intent(ctx, a.ID, moved.Version, intent(a, "c1"), nil)),
			"no session":   second(s.Intent(ctx, "sess_none", 1, intent(a, "c2"), nil)),
			"not one":      second(s.Intent(ctx, a.ID, moved.Version, outcome(intent(a, "c1"), "ok"), nil)),
			"no call":      second(s.Intent(ctx, a.ID, moved.Version, intent(a, ""), nil)),
			"no intent":    second(s.Outcome(ctx, a.ID, outcome(intent(a, "c2"), "ok"), nil, 0)),
			"not outcome":  second(s.Outcome(ctx, a.ID, intent(a, "c1"), nil, 0)),
			"out, no sess": second(s.Outcome(ctx, "sess_none", outcome(intent(a, "c1"), "ok"), nil, 0)),
		} {
			want := map[string]error{"old version": gateway.ErrMoved, "later": gateway.ErrMoved}[name]
			if err == nil || want != nil && !errors.Is(err, want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		get(t)(s.ChangeSession(ctx, a.ID, closing))
		if _, err := s.Intent(ctx, a.ID, moved.Version+1, intent(a, "c3"), nil); !errors.Is(err, gateway.ErrMoved) {
			t.Errorf("closed: %v", err)
		}
		// What has come in has come in, even when the session was closed meanwhile.
		after := get(t)(s.Outcome(ctx, a.ID, outcome(intent(a, "c1"), "ok"), []flow.Held{{Label: "pii", CallID: "c1"}}, time.Second))
		if !after.Holds("pii") || after.Used != time.Second {
			t.Errorf("after the outcome: %+v", after)
		}
		if err := second(s.Outcome(ctx, a.ID, outcome(intent(a, "c1"), "ok"), nil, 0)); !fault.Is(err, fault.Conflict) {
			t.Errorf("a second outcome: %v", err)
		}
		equal(t, "entries", actions(log(t, s)), []string{"session.open", "call", "session.close", "call"})
	})
	run("one of many intents on a version wins", func(t *testing.T, s engine) {
		a := opened(t, s, "a")
		var wg sync.WaitGroup
		errs := make([]error, 32)
		for i := range errs {
			wg.Go(func() {
				id := fmt.Sprint("c", i)
				_, errs[i] = s.Intent(t.Context(), a.ID, a.Version, intent(a, id), []flow.Held{{Label: flow.Label("l" + id), CallID: id}})
			})
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else if !errors.Is(err, gateway.ErrMoved) {
				t.Error(err)
			}
		}
		if n := len(log(t, s)); won != 1 || n != 2 {
			t.Errorf("%d intents won, %d entries", won, n)
		}
	})
	run("concurrent changes lose nothing", func(t *testing.T, s engine) {
		a := opened(t, s, "a")
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				id := fmt.Sprint("c", i)
				for {
					cur, err := s.Session(t.Context(), a.ID)
					if err != nil {
						t.Error(err)
						return
					}
					if _, err = s.Intent(t.Context(), a.ID, cur.Version, intent(a, id), nil); errors.Is(err, gateway.ErrMoved) {
						continue
					}
					if err != nil {
						t.Error(err)
					}
					break
				}
				if _, err := s.Outcome(t.Context(), a.ID, outcome(intent(a, id), "ok"), []flow.Held{{Label: flow.Label(id), CallID: id}}, time.Millisecond); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		got := get(t)(s.Session(t.Context(), a.ID))
		if len(got.Labels) != 50 || got.Used != 50*time.Millisecond || got.Version != a.Version+50 {
			t.Errorf("%d labels, %v used, version %d", len(got.Labels), got.Used, got.Version)
		}
		if n := len(log(t, s)); n != 101 {
			t.Errorf("%d entries", n)
		}
	})
	run("tokens", func(t *testing.T, s engine) {
		ctx := t.Context()
		now := time.Now().UTC().Truncate(time.Microsecond)
		var want []identity.Token
		for i, p := range []identity.Principal{
			{Kind: identity.Agent, ID: "a"}, {Kind: identity.Host, ID: "h", Expires: now.Add(time.Hour)},
			{Kind: identity.Session, ID: "sess_1", Agent: "a"}, {Kind: identity.Person, ID: "p", Roles: []identity.Role{identity.Admin, identity.Viewer}},
		} {
			_, hash := identity.Mint(p.Kind)
			tok := identity.Token{ID: fmt.Sprint("tok_", i), Hash: hash, Subject: p, Created: now.Add(time.Duration(i) * time.Second)}
			tok.Subject.TokenID = tok.ID
			must(t, s.AddToken(ctx, tok, audit.Entry{Kind: audit.Change, Action: "token.create"}))
			if err := s.AddToken(ctx, tok, audit.Entry{Kind: audit.Change, Action: "token.create"}); !fault.Is(err, fault.Conflict) {
				t.Errorf("the same token again: %v", err)
			}
			want = append(want, tok)
		}
		if err := s.AddToken(ctx, identity.Token{ID: "tok_x", Hash: want[0].Hash + "", Subject: identity.Principal{Kind: "ghost", ID: "g"}}, audit.Entry{Kind: audit.Change}); err == nil {
			t.Error("a token of no kind was taken")
		}
		must(t, s.RevokeToken(ctx, "tok_1", now, audit.Entry{Kind: audit.Change, Action: "token.revoke"}))
		want[1].Revoked = now
		if err := s.RevokeToken(ctx, "tok_1", now, audit.Entry{Kind: audit.Change, Action: "token.revoke"}); !fault.Is(err, fault.Conflict) {
			t.Errorf("revoked twice: %v", err)
		}
		if err := s.RevokeToken(ctx, "tok_none", now, audit.Entry{Kind: audit.Change, Action: "token.revoke"}); !fault.Is(err, fault.NotFound) {
			t.Errorf("no such token: %v", err)
		}
		got, err := s.Tokens(ctx)
		must(t, err)
		equal(t, "tokens", got, want)
		if n := len(log(t, s)); n != 5 {
			t.Errorf("%d entries", n)
		}
	})
	run("pins", func(t *testing.T, s engine) {
		ctx := t.Context()
		p := catalogue.Pin{Operation: "mail.search", Hash: "h1", Definition: []byte(`{"name":"search"}`), AcceptedBy: "configuration", ConfirmedBy: "person:ann", AcceptedAt: time.Now().UTC().Truncate(time.Microsecond)}
		q := catalogue.Pin{Operation: "docs.read", Hash: "h2", AcceptedBy: "person:bob"}
		must(t, s.SavePins(ctx, []catalogue.Pin{p}, audit.Entry{Kind: audit.Change, Action: "tool.accept"}))
		must(t, s.SavePins(ctx, []catalogue.Pin{q}, audit.Entry{Kind: audit.Change, Action: "tool.accept"}))
		p.Pending, p.PendingDef = "h3", []byte(`{"name":"search","evil":true}`)
		must(t, s.SavePins(ctx, []catalogue.Pin{p}, audit.Entry{Kind: audit.Change, Action: "tool.quarantine"}))
		got, err := s.Pins(ctx)
		must(t, err)
		equal(t, "pins", got, []catalogue.Pin{q, p})
		if err := s.SavePins(ctx, []catalogue.Pin{{}}, audit.Entry{Kind: audit.Change}); err == nil {
			t.Error("a pin of nothing was taken")
		}
		if n := len(log(t, s)); n != 3 {
			t.Errorf("%d entries", n)
		}
	})
	run("switches", func(t *testing.T, s engine) {
		ctx := t.Context()
		none, err := s.Switches(ctx)
		must(t, err)
		equal(t, "none", none, standing.Switches{Global: standing.Switch{Durable: true}, Agents: map[string]standing.Switch{}})
		want := standing.Switches{Epoch: 2, Global: standing.Switch{Active: true, Since: time.Now().UTC(), By: "person:admin", Reason: "fire", Durable: true},
			Agents: map[string]standing.Switch{"a": {Active: true, By: "person:bob", Durable: true}}}
		kill := audit.Entry{Kind: audit.Change, Action: "kill.disable"}
		must(t, s.SaveSwitches(ctx, want, kill, kill))
		got, err := s.Switches(ctx)
		must(t, err)
		equal(t, "switches", got, want)
		must(t, s.SaveSwitches(ctx, want, kill)) // the same epoch again is the same state
		want.Epoch = 1
		if err := s.SaveSwitches(ctx, want, kill); !fault.Is(err, fault.Conflict) {
			t.Errorf("an older epoch: %v", err)
		}
		if err := s.SaveSwitches(ctx, standing.Switches{Epoch: 3}); !fault.Is(err, fault.Internal) {
			t.Errorf("without an entry: %v", err)
		}
		if n := len(log(t, s)); n != 3 {
			t.Errorf("%d entries", n)
		}
	})
	run("records are all there or none", func(t *testing.T, s engine) {
		ok := audit.Entry{Kind: audit.Decision, Action: "call", CallID: "c"}
		must(t, s.Record(t.Context(), ok, ok, ok))
		if err := s.Record(t.Context(), ok, ok, audit.Entry{Kind: "rumour"}); err == nil {
			t.Error("an entry of no kind was taken")
		}
		must(t, s.Record(t.Context()))
		entries := log(t, s)
		if len(entries) != 3 {
			t.Errorf("%d entries", len(entries))
		}
	})
	run("a request that was given up is not begun", func(t *testing.T, s engine) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Record(ctx, audit.Entry{Kind: audit.Change}); !fault.Is(err, fault.AuditUnavailable) {
			t.Error(err)
		}
		if n := len(log(t, s)); n != 0 {
			t.Errorf("%d entries", n)
		}
	})

	t.Run("a step of the plan is taken once", func(t *testing.T) {
		ctx := t.Context()
		s := open(t, time.Now)
		a := opened(t, s, "a")
		planned := get(t)(s.ChangeSession(ctx, a.ID, func(x session.Session) (session.Session, audit.Entry, error) {
			x, err := x.SubmitPlan(session.Plan{ID: "plan_1", Digest: "d", State: session.PlanApproved, Steps: []session.Step{{Operation: "o"}, {Operation: "o"}}, Submitted: a.OpenedAt})
			return x, change("plan.submit", x), err
		}))
		var wg sync.WaitGroup
		var won, lost atomic.Int32
		for i := range 20 {
			wg.Go(func() {
				id := fmt.Sprintf("c%d", i)
				switch _, err := s.Intent(ctx, a.ID, planned.Version, intent(a, id), nil, gateway.Spend{CallID: id, Step: &provenance.Done{Step: i % 2, CallID: id}}); {
				case err == nil:
					won.Add(1)
				case errors.Is(err, gateway.ErrMoved):
					lost.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 2 || lost.Load() != 18 {
			t.Errorf("%d took one of two steps, %d did not", won.Load(), lost.Load())
		}
		want := get(t)(s.Session(ctx, a.ID))
		if len(want.Plan.Done) != 2 || want.Plan.Done[0].Step == want.Plan.Done[1].Step || want.Version != planned.Version {
			t.Errorf("%+v", want.Plan)
		}
		equal(t, "entries", actions(log(t, s)), []string{"session.open", "plan.submit", "call", "call"})
		must(t, s.Close())
		s = open(t, time.Now)
		equal(t, "session", get(t)(s.Session(ctx, a.ID)), want)
		must(t, s.Close())
	})
	t.Run("state survives", func(t *testing.T) {
		ctx := t.Context()
		s := open(t, time.Now)
		a := opened(t, s, "a")
		get(t)(s.Intent(ctx, a.ID, a.Version, intent(a, "c1"), nil))
		want := get(t)(s.Outcome(ctx, a.ID, outcome(intent(a, "c1"), "ok"), []flow.Held{{Label: "internal", Operation: "o", CallID: "c1"}}, time.Second))
		get(t)(s.Intent(ctx, a.ID, want.Version, intent(a, "c2"), nil))
		steps := []session.Step{{Tool: "search_email", Operation: "mail.search_email", Arguments: []byte(`{"q":"<b>&\u2028é"}`), After: []int{0}, Justification: "<why> & \u2028"}}
		want = get(t)(s.ChangeSession(ctx, a.ID, func(x session.Session) (session.Session, audit.Entry, error) {
			x, err := x.SubmitPlan(session.Plan{ID: "plan_1", Digest: session.PlanDigest(x.ID, x.Agent, steps), State: session.PlanApproved, Steps: steps, Submitted: a.OpenedAt})
			return x, change("plan.submit", x), err
		}))
		want = get(t)(s.Outcome(ctx, a.ID, outcome(intent(a, "c2"), "ok"), nil, time.Second)) // used time alone
		must(t, s.Close())
		must(t, s.Close())
		if err := s.Record(ctx, audit.Entry{Kind: audit.Change}); !fault.Is(err, fault.AuditUnavailable) {
			t.Errorf("after Close: %v", err)
		}
		s = open(t, time.Now)
		got := get(t)(s.Session(ctx, a.ID))
		equal(t, "session", got, want)
		equal(t, "plan digest", session.PlanDigest(got.ID, got.Agent, got.Plan.Steps), want.Plan.Digest)
		equal(t, "entries", actions(log(t, s)), []string{"session.open", "call", "call", "call", "plan.submit", "call"})
		must(t, s.Close())
	})
	t.Run("time never runs backwards", func(t *testing.T) {
		now := time.Date(2026, 7, 1, 12, 0, 0, 999, time.FixedZone("x", 3600))
		var mu sync.Mutex
		clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
		set := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
		s := open(t, clock)
		for _, d := range []time.Duration{0, time.Minute, -time.Hour, 30 * time.Minute, time.Hour, -24 * time.Hour} {
			set(d)
			must(t, s.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: d.String()}))
		}
		must(t, s.Close())
		set(-24 * time.Hour)
		s = open(t, clock)
		must(t, s.Record(t.Context(), audit.Entry{Kind: audit.Change, Action: "again"}))
		entries := log(t, s)
		if len(entries) != 7 {
			t.Fatalf("%d entries", len(entries))
		}
		for i, e := range entries[1:] {
			if e.At.Before(entries[i].At) || e.Index != entries[i].Index+1 {
				t.Errorf("entry %d: %v after %v", e.Index, e.At, entries[i].At)
			}
		}
		if got, want := entries[4].At, time.Date(2026, 7, 1, 11, 31, 0, 0, time.UTC); !got.Equal(want) || got.Location() != time.UTC {
			t.Errorf("the clock caught up: %v, want %v", got, want)
		}
		must(t, s.Close())
	})
}

func newSession(agent string, own bool) session.Session {
	s := session.New(agent, session.Execution, "agent:"+agent, time.Now().Truncate(time.Microsecond))
	s.Own = own
	return s
}

func opened(t *testing.T, s gateway.Store, agent string) session.Session {
	t.Helper()
	x := newSession(agent, true)
	must(t, s.OpenSession(t.Context(), x, change("session.open", x)))
	return x
}

func closing(x session.Session) (session.Session, audit.Entry, error) {
	after, err := x.Close(time.Now())
	return after, change("session.close", x), err
}

func log(t *testing.T, s engine) []audit.Entry {
	t.Helper()
	entries, next, err := s.Entries(context.WithoutCancel(t.Context()), audit.Filter{})
	must(t, err)
	if next >= 0 {
		t.Fatal("more entries than a page")
	}
	return entries
}

func actions(entries []audit.Entry) (words []string) {
	for _, e := range entries {
		words = append(words, e.Action)
	}
	return words
}

func ids(page []session.Session) (words []string) {
	for _, s := range page {
		words = append(words, s.ID)
	}
	return words
}

func second[T any](_ T, err error) error { return err }

func get(t *testing.T) func(session.Session, error) session.Session {
	return func(s session.Session, err error) session.Session {
		t.Helper()
		must(t, err)
		return s
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

func newCall() string { return call.NewID("call_", time.Now()) }

func TestSQLite(t *testing.T) {
	testEngine(t, func(t *testing.T, clock func() time.Time) engine {
		db, err := Open(dataDir(t), Options{Clock: clock, patience: time.Minute})
		must(t, err)
		return db
	})
}
