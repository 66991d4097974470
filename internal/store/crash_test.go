package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/session"
)

// crashWriter is the process that TestKill kills: eight agents that make calls until it happens. Whatever was acknowledged it
// says on standard output, a line each, after the acknowledgement.
func crashWriter(dir string) {
	db, err := Open(dir, Options{patience: time.Minute})
	if err != nil {
		fmt.Println("fail", err)
		os.Exit(1)
	}
	var mu sync.Mutex
	say := func(words ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(words...)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			ctx := context.Background()
			s, err := db.OwnSession(ctx, fmt.Sprint("agent-", i))
			if err != nil {
				s = session.New(fmt.Sprint("agent-", i), session.Execution, "test:crash", time.Now())
				s.Own = true
				err = db.OpenSession(ctx, s, change("session.open", s))
			}
			for n := 0; err == nil; n++ {
				e := intent(s, newCall())
				if n%5 == 0 {
					e.Arguments = payload(strings.Repeat(e.CallID, 300))
				}
				if s, err = db.Intent(ctx, s.ID, s.Version, e, nil); err != nil {
					break
				}
				say("intent", e.CallID)
				var raise []flow.Held
				if n%10 == 0 {
					raise = []flow.Held{{Label: flow.Label(e.CallID), Operation: e.Operation, CallID: e.CallID}}
				}
				if s, err = db.Outcome(ctx, s.ID, outcome(e, "ok"), raise, time.Microsecond); err != nil {
					break
				}
				say("outcome", e.CallID)
				if raise != nil {
					say("label", s.ID, e.CallID)
				}
				if len(s.Labels) > 200 {
					if s, err = db.ChangeSession(ctx, s.ID, func(x session.Session) (session.Session, audit.Entry, error) {
						var all []flow.Label
						for _, h := range x.Labels {
							all = append(all, h.Label)
						}
						after, err := x.Release(all)
						return after, change("session.release", x), err
					}); err == nil {
						say("release", s.ID)
					}
				}
			}
			if !errors.Is(err, gateway.ErrMoved) {
				say("fail", err)
			}
		})
	}
	wg.Wait()
	os.Exit(1)
}

// TestKill kills a writing process again and again: what it had acknowledged is there, what was under way is unknown,
// and the log continues what was signed.
func TestKill(t *testing.T) {
	rounds := 5
	if os.Getenv("SALLYPORT_TEST_ALL") == "1" {
		rounds = 15
	}
	dir := dataDir(t)
	acknowledged := map[string]string{} // call -> intent or outcome
	labels := map[string]map[flow.Label]bool{}
	for round := range rounds {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), "SALLYPORT_STORE_CRASH="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		var kill *time.Timer
		lines := 0
		for in := bufio.NewScanner(out); in.Scan(); {
			if kill == nil { // from the first line on: not while it is still starting
				kill = time.AfterFunc(time.Duration(20+67*round%400)*time.Millisecond, func() { cmd.Process.Kill() })
			}
			lines++
			words := strings.Fields(in.Text())
			switch words[0] {
			case "intent", "outcome":
				acknowledged[words[1]] = words[0]
			case "label":
				if labels[words[1]] == nil {
					labels[words[1]] = map[flow.Label]bool{}
				}
				labels[words[1]][flow.Label(words[2])] = true
			case "release":
				delete(labels, words[1])
			default:
				t.Errorf("round %d: %s", round, in.Text())
			}
		}
		cmd.Wait() // killed, as it was meant to be
		if kill == nil {
			t.Fatalf("round %d: the writer said nothing", round)
		}
		kill.Stop()

		db, err := Open(dir, Options{patience: time.Minute})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		all, _ := every(t, db, audit.Filter{})
		became := map[string]string{}
		for _, e := range all {
			if e.CallID != "" {
				became[e.CallID] = string(e.Kind) + " " + e.Decision
			}
		}
		unknown := 0
		for id, said := range acknowledged {
			switch got := became[id]; {
			case got == "outcome ok":
			case got == "outcome unknown" && said == "intent":
				unknown++
			default:
				t.Fatalf("round %d: call %s: acknowledged %s, found %q", round, id, said, got)
			}
		}
		for id, got := range became {
			if !strings.HasPrefix(got, "outcome") {
				t.Errorf("round %d: call %s has only an %s", round, id, got)
			}
		}
		for id, want := range labels {
			s := get(t)(db.Session(t.Context(), id))
			for l := range want {
				// A release whose line was lost with the process may have been the last thing it did.
				if !s.Holds(l) && len(s.Labels) > 0 {
					t.Errorf("round %d: session %s lost label %s", round, id, l)
				}
			}
		}
		if report := verify(t, db.Reader); !report.OK || report.Unsigned != 0 || len(report.Unknown) != 0 {
			t.Fatalf("round %d: %+v", round, report)
		}
		must(t, db.Close())
		t.Logf("round %d: %d lines, %d entries, %d unknown so far", round, lines, len(all), unknown)
	}
}
