package refusals

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sallyport.example/internal/audit"
)

// recorder is a Recorder with a store that takes everything at once.
func recorder() (*Recorder, *store) {
	s := &store{let: make(chan struct{})}
	close(s.let)
	return New(s, slog.New(slog.DiscardHandler)), s
}

// written are the entries that the store took so far.
func (s *store) written() []audit.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.entries)
}

func denied(actor, code, operation, remote string) audit.Entry {
	return audit.Entry{Kind: audit.Decision, Action: "call", Actor: actor, Code: code, Operation: operation, Remote: remote, Decision: "deny"}
}

// counts is the number of refusals that the entries stand for, and the entries that stand for many.
func counts(t *testing.T, entries []audit.Entry) (all int64, folded []audit.Entry) {
	for _, e := range entries {
		if e.Action != audit.Folded {
			all++
			continue
		}
		var d struct{ Count int64 }
		if err := json.Unmarshal(e.Detail, &d); err != nil || d.Count < 1 {
			t.Errorf("%s %v", e.Detail, err)
		}
		all += d.Count
		folded = append(folded, e)
	}
	return all, folded
}

// Of one actor and one code, twelve have an entry each and the rest one, when the minute is over; the next minute begins anew. No refusal is lost,
// and who is refused for another cause, or is somebody else, is not crowded out.
func TestFold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := recorder()
		defer r.Close()
		for i := range 1000 {
			for _, e := range []audit.Entry{denied("agent:a", "permission.denied", fmt.Sprint("bank.", i%3), ""), denied("agent:a", "phase.blocked", "web.get", ""), denied("agent:b", "permission.denied", "bank.0", "10.0.0.1")} {
				switch i % 3 {
				case 0:
					if err := r.Record(t.Context(), e); err != nil {
						t.Fatal(err)
					}
				case 1:
					r.RecordCallLater(e)
				default:
					r.RecordDoorLater(e)
				}
			}
		}
		synctest.Wait()
		if len(s.written()) != 3*ownEntries {
			t.Errorf("%d entries before the minute was over", len(s.written()))
		}
		time.Sleep(window)
		synctest.Wait()
		all, folded := counts(t, s.written())
		if all != 3000 || len(folded) != 3 || len(s.written()) != 3*ownEntries+3 {
			t.Errorf("%d refusals in %d entries, %d of them for many", all, len(s.written()), len(folded))
		}
		if e := folded[0]; e.Actor != "agent:a" || e.Code != "permission.denied" || e.Decision != "deny" || e.Operation != "" || !strings.Contains(string(e.Detail), `"tried":[{"name":"bank.`) || !strings.Contains(e.Reason, "988 more") {
			t.Errorf("%+v %s", e, e.Detail)
		}
		if e := folded[2]; e.Actor != "agent:b" || e.Operation != "bank.0" || e.Remote != "10.0.0.1" {
			t.Errorf("%+v", e)
		}
		before := len(s.written())
		time.Sleep(10 * window)
		synctest.Wait()
		if len(s.written()) != before {
			t.Errorf("%d entries of nothing", len(s.written())-before)
		}
		r.RecordDoorLater(denied("agent:a", "permission.denied", "bank.0", ""))
		synctest.Wait()
		if len(s.written()) != before+1 {
			t.Error("the first refusal of a later minute has no entry of its own")
		}
	})
}

// What is only counted when the program stops is written down then, and what comes later has its own entry.
func TestFoldedIsWrittenAtTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := recorder()
		for range 25 {
			r.RecordDoorLater(denied("unknown:agents", "credential.missing", "POST /mcp", "127.0.0.1"))
		}
		r.Close()
		if all, folded := counts(t, s.written()); all != 25 || len(folded) != 1 {
			t.Errorf("%d in %+v", all, folded)
		}
		for range 25 {
			if err := r.Record(t.Context(), denied("unknown:agents", "credential.missing", "POST /mcp", "127.0.0.1")); err != nil {
				t.Fatal(err)
			}
		}
		if all, _ := counts(t, s.written()); all != 50 {
			t.Errorf("%d after the stop", all)
		}
	})
}

// An agent gets no more entries by speaking for more sessions, and many actors at once take no more memory than the bound.
func TestFoldedActors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := recorder()
		defer r.Close()
		for i := range 100 {
			e := denied(fmt.Sprint("session:sess_", i), "permission.denied", "bank.pay", "")
			e.Agent, e.Session = "a", fmt.Sprint("sess_", i)
			r.RecordCallLater(e)
		}
		time.Sleep(window)
		synctest.Wait()
		_, folded := counts(t, s.written())
		if len(s.written()) != ownEntries+1 || len(folded) != 1 || folded[0].Actor != "agent:a" || folded[0].Agent != "a" || folded[0].Session != "" || strings.Count(string(folded[0].Detail), "sess_") != maxNamed {
			t.Errorf("%d entries: %+v", len(s.written()), folded)
		}
		for i := range 3 * maxBundles {
			r.RecordCallLater(denied(fmt.Sprint("agent:", i), "x", "", ""))
		}
		r.folder.mu.Lock()
		n := len(r.folder.of)
		r.folder.mu.Unlock()
		if n > maxBundles+1 {
			t.Errorf("%d bundles", n)
		}
		time.Sleep(window)
		synctest.Wait()
		if all, _ := counts(t, s.written()); all != 100+3*maxBundles {
			t.Errorf("%d on record", all)
		}
	})
}

// An entry that stands for many refusals says in how many of them screening found something, and has that as its event.
func TestFoldedHits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := recorder()
		for i := range 30 {
			e := denied("agent:a", "approval.required", "web.get", "")
			if i%10 == 5 {
				e.Event = audit.ThreatHit
			}
			r.RecordCallLater(e)
			r.RecordCallLater(denied("agent:b", "approval.required", "web.get", ""))
		}
		r.Close()
		_, folded := counts(t, s.written())
		if len(folded) != 2 {
			t.Fatalf("%+v", folded)
		}
		for _, e := range folded {
			var d struct{ Hits int64 }
			if err := json.Unmarshal(e.Detail, &d); err != nil {
				t.Fatal(err)
			}
			if hit := e.Actor == "agent:a"; (e.Event == audit.ThreatHit) != hit || (d.Hits == 2) != hit {
				t.Errorf("%s: event %q, %s", e.Actor, e.Event, e.Detail)
			}
		}
	})
}
