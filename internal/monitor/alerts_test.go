package monitor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
)

// world is a log that grows, counters on it, and a clock.
type world struct {
	*memoryLog
	*Counters
	at   time.Time
	fail error // of the next Record
}

// Record implements Log.
func (w *world) Record(_ context.Context, entries ...audit.Entry) error {
	if err := w.fail; err != nil {
		w.fail = nil
		return err
	}
	for _, e := range entries {
		e.Classify()
		w.memoryLog.add(w.at, e)
	}
	return nil
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{memoryLog: &memoryLog{}, at: noon}
	w.restart()
	return w
}

// restart makes new counters on the log as it is.
func (w *world) restart() {
	w.Counters = New(w, func() time.Time { return w.at }, slog.New(slog.DiscardHandler))
}

func (w *world) append(e audit.Entry) {
	e.Classify()
	w.memoryLog.add(w.at, e)
}

func (w *world) violation(agent string) {
	w.append(audit.Entry{Kind: audit.Decision, Action: "call", Agent: agent, Decision: "deny", Code: string(fault.PermissionDenied)})
}

func (w *world) hit(agent, callID string) {
	w.append(audit.Entry{Kind: audit.Outcome, Action: "call", Agent: agent, CallID: callID, Decision: "ok", Event: audit.ThreatHit})
}

// look raises what is due.
func (w *world) look(t *testing.T) {
	t.Helper()
	if err := w.raise(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (w *world) only(t *testing.T, kind AlertKind) Alert {
	t.Helper()
	w.look(t)
	all := w.Alerts("")
	if len(all) != 1 || all[0].Kind != kind {
		t.Fatalf("alerts %+v, want one of kind %s", all, kind)
	}
	return all[0]
}

// An alert is raised for one more than the limit within an hour, and not for the limit.
func TestThresholds(t *testing.T) {
	for kind, c := range map[AlertKind]struct {
		limit int
		event func(w *world, i int)
	}{
		Injections: {InjectionsAnHour, func(w *world, i int) { w.hit("a", fmt.Sprint("call_", i)) }},
		Violations: {ViolationsAnHour, func(w *world, _ int) { w.violation("a") }},
		Quota: {0, func(w *world, _ int) {
			w.append(audit.Entry{Kind: audit.Change, Action: "quota.80", Agent: "a", Decision: "ok", Reason: "80 % of 10 calls"})
		}},
		Timeout: {0, func(w *world, _ int) {
			w.append(audit.Entry{Kind: audit.Outcome, Action: "call", Agent: "a", Decision: "error", Code: string(fault.TimeExceeded)})
		}},
		LogDamage: {0, func(w *world, _ int) { w.append(audit.Entry{Kind: audit.Change, Action: "anchor.behind"}) }},
	} {
		t.Run(string(kind), func(t *testing.T) {
			w := newWorld(t)
			for i := range c.limit {
				c.event(w, i)
				w.at = w.at.Add(time.Minute)
			}
			w.look(t)
			if all := w.Alerts(""); len(all) > 0 {
				t.Fatalf("alerts at the limit: %+v", all)
			}
			first := w.memoryLog.entries
			c.event(w, c.limit)
			due := w.at
			w.at = w.at.Add(3 * time.Second)
			a := w.only(t, kind)
			if len(first) > 0 && !a.First.Equal(first[0].At) || !a.Due.Equal(due) || !a.Detected.Equal(w.at) || a.Entry != int64(c.limit) || a.Count() != int64(c.limit+1) || a.State != AlertOpen {
				t.Fatalf("got %+v", a)
			}
			if a.Critical() != a.Contained.IsZero() {
				t.Fatalf("contained at %v", a.Contained)
			}
		})
	}
}

// What is older than an hour counts no more.
func TestOldEventsCountNoMore(t *testing.T) {
	w := newWorld(t)
	for i := range 50 {
		w.hit("a", fmt.Sprint("call_", i))
		w.at = w.at.Add(12 * time.Minute) // five an hour
	}
	w.look(t)
	if all := w.Alerts(""); len(all) > 0 {
		t.Fatalf("alerts %+v", all)
	}
}

// All agents together count, a call counts once, refusals that were folded count as many as they were, and trials count for nothing.
func TestWhatCounts(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		w.hit("a", fmt.Sprint("call_a", i))
		w.hit("a", fmt.Sprint("call_a", i)) // its intent and its outcome
		w.hit("b", fmt.Sprint("call_b", i))
	}
	if a := w.only(t, Injections); !maps.Equal(a.Involved, map[string]int64{"a": 3, "b": 3}) {
		t.Fatalf("involved %v", a.Involved)
	}

	w = newWorld(t)
	w.append(audit.Entry{Kind: audit.Decision, Action: audit.Folded, Actor: "unknown:agents", Decision: "deny", Code: string(fault.CredentialMissing), Detail: json.RawMessage(`{"count":11}`)})
	if a := w.only(t, Violations); !maps.Equal(a.Involved, map[string]int64{"unknown:agents": 11}) || a.Count() != 11 {
		t.Fatalf("involved %v", a.Involved)
	}

	w = newWorld(t)
	for range 20 {
		w.violation(agent.Trial("a"))
	}
	w.look(t)
	if all := w.Alerts(""); len(all) > 0 {
		t.Fatalf("alerts of a trial: %+v", all)
	}

	for _, code := range []fault.Code{fault.FlowContaminated, fault.ApprovalRequired, fault.LimitRate, fault.KillSwitch, fault.RequestMalformed} {
		w = newWorld(t)
		for range 20 {
			w.append(audit.Entry{Kind: audit.Decision, Action: "call", Agent: "a", Decision: "deny", Code: string(code)})
		}
		w.look(t)
		if all := w.Alerts(""); len(all) > 0 {
			t.Fatalf("%s raised %+v", code, all)
		}
	}
}

// Until it is resolved an alert takes what its agents do later, and another agent raises another.
func TestAlertsTakeWhatFollows(t *testing.T) {
	w := newWorld(t)
	for range 11 {
		w.violation("a")
	}
	first := w.only(t, Violations)
	for range 30 {
		w.violation("a")
	}
	w.at = w.at.Add(time.Minute)
	for range 10 {
		w.violation("b")
	}
	if a := w.only(t, Violations); a.Count() != 41 || a.ID != first.ID {
		t.Fatalf("got %+v", a)
	}
	w.violation("b")
	w.look(t)
	if all := w.Alerts(""); len(all) != 2 || !maps.Equal(all[0].Involved, map[string]int64{"b": 11}) {
		t.Fatalf("alerts %+v", all)
	}
	if _, err := w.Resolve(t.Context(), first.ID, "a was mended", "person:ann"); err != nil {
		t.Fatal(err)
	}
	for range 11 {
		w.violation("a")
	}
	w.look(t)
	if all := w.Alerts(AlertOpen); len(all) != 2 {
		t.Fatalf("alerts %+v", all)
	}
}

// Alerts in memory are bounded: those of a kind that are open, the agents of one that are counted apart, and those that are resolved.
func TestAlertsAreBounded(t *testing.T) {
	w := newWorld(t)
	used := func(i int) {
		w.append(audit.Entry{Kind: audit.Change, Action: "quota.80", Agent: fmt.Sprint("agent-", i), Decision: "ok"})
	}
	for i := range maxOpenAlerts + 2*maxInvolved {
		used(i)
	}
	w.look(t)
	all := w.Alerts(AlertOpen)
	var events int64
	for _, a := range all {
		events += a.Count()
		if len(a.Involved) > maxInvolved+1 {
			t.Errorf("%d agents are counted apart", len(a.Involved))
		}
	}
	if len(all) != maxOpenAlerts || events != maxOpenAlerts+2*maxInvolved {
		t.Errorf("%d alerts are open, of %d events", len(all), events)
	}

	w = newWorld(t)
	for i := range maxAlerts + 5 {
		used(i)
		w.look(t)
		w.at = w.at.Add(time.Second)
		if _, err := w.Resolve(t.Context(), w.Alerts(AlertOpen)[0].ID, "done", "person:ann"); err != nil {
			t.Fatal(err)
		}
	}
	used(maxAlerts + 5)
	w.look(t)
	if all := w.Alerts(AlertResolved); len(all) != maxAlerts || all[len(all)-1].Involved["agent-5"] != 1 {
		t.Errorf("%d resolved alerts are kept", len(all))
	}
}

// People acknowledge an alert once and resolve it once, with their names and words.
func TestAnswersToAlerts(t *testing.T) {
	w := newWorld(t)
	for range 11 {
		w.violation("a")
	}
	id := w.only(t, Violations).ID
	w.at = w.at.Add(time.Minute)
	a, err := w.Acknowledge(t.Context(), id, "I look", "person:ann")
	if err != nil || a.State != AlertAcknowledged || a.AcknowledgedBy != "person:ann" || a.Comment != "I look" || !a.Acknowledged.Equal(w.at) || !a.Responded().IsZero() {
		t.Fatalf("got %+v, %v", a, err)
	}
	if _, err := w.Acknowledge(t.Context(), id, "", "person:bob"); !fault.Is(err, fault.Conflict) {
		t.Fatalf("acknowledged twice: %v", err)
	}
	if _, err := w.Resolve(t.Context(), id, " ", "person:bob"); !fault.Is(err, fault.RequestMalformed) {
		t.Fatalf("resolved without a reason: %v", err)
	}
	w.at = w.at.Add(time.Minute)
	if a, err = w.Resolve(t.Context(), id, "token changed", "person:bob"); err != nil || a.State != AlertResolved || a.ResolvedBy != "person:bob" || a.Reason != "token changed" || !a.Responded().Equal(w.at) {
		t.Fatalf("got %+v, %v", a, err)
	}
	for _, act := range []func() (Alert, error){
		func() (Alert, error) { return w.Resolve(t.Context(), id, "again", "person:ann") },
		func() (Alert, error) { return w.Acknowledge(t.Context(), id, "", "person:ann") },
	} {
		if _, err := act(); !fault.Is(err, fault.Conflict) {
			t.Fatalf("a resolved alert was answered: %v", err)
		}
	}
	if _, err := w.Resolve(t.Context(), "alert_none", "x", "person:ann"); !fault.Is(err, fault.NotFound) {
		t.Fatalf("an unknown alert: %v", err)
	}
	w.fail = errors.New("no store")
	for range 11 {
		w.violation("b")
	}
	if err := w.raise(t.Context()); err == nil || len(w.Alerts(AlertOpen)) > 0 {
		t.Fatalf("an alert that is not on record is shown: %v, %v", w.Alerts(AlertOpen), err)
	}
	w.look(t)
	if len(w.Alerts(AlertOpen)) != 1 {
		t.Fatal("it was not raised once the store was back")
	}
}

// An incident is contained once everybody involved is stopped or put aside, and not before.
func TestContainment(t *testing.T) {
	stop := func(w *world, action, agent string) {
		w.at = w.at.Add(time.Second)
		w.append(audit.Entry{Kind: audit.Change, Action: action, Agent: agent, Actor: "person:ann", Decision: "ok"})
		w.look(t)
	}
	for name, c := range map[string]struct {
		acts      [][2]string
		contained bool
	}{
		"one of two":                   {[][2]string{{"kill.disable", "a"}}, false},
		"the same one twice":           {[][2]string{{"kill.disable", "a"}, {"agent.quarantine", "a"}}, false},
		"both":                         {[][2]string{{"kill.disable", "a"}, {"agent.quarantine", "b"}}, true},
		"all":                          {[][2]string{{"kill.disable", ""}}, true},
		"another one":                  {[][2]string{{"kill.disable", "c"}}, false},
		"they were let work again":     {[][2]string{{"kill.enable", ""}}, false},
		"somebody else and all others": {[][2]string{{"agent.quarantine", "c"}, {"kill.disable", "b"}}, false},
	} {
		w := newWorld(t)
		for range 6 {
			w.violation("a")
			w.violation("b")
		}
		w.look(t)
		for _, act := range c.acts {
			stop(w, act[0], act[1])
		}
		a := w.only(t, Violations)
		if a.Contained.IsZero() == c.contained || c.contained && (!a.Responded().Equal(w.at) || a.ContainedBy != "person:ann" || a.State != AlertOpen) {
			t.Errorf("%s: %+v", name, a)
		}
	}
	w := newWorld(t) // what was let work again and goes on raises another
	for range 11 {
		w.violation("a")
	}
	w.look(t)
	stop(w, "kill.disable", "a")
	stop(w, "kill.enable", "a")
	for range 11 {
		w.violation("a")
	}
	w.look(t)
	if all := w.Alerts(AlertOpen); len(all) != 2 || !all[0].Contained.IsZero() || all[1].Contained.IsZero() || all[1].Count() != 11 {
		t.Errorf("after the stop ended: %+v", all)
	}
	w = newWorld(t) // stopped before the alert is on record
	for range 11 {
		w.violation("a")
	}
	w.append(audit.Entry{Kind: audit.Change, Action: "kill.disable", Agent: "a", Actor: "person:ann", Decision: "ok"})
	w.at = w.at.Add(2 * time.Second)
	if a := w.only(t, Violations); !a.Responded().Equal(a.Detected) {
		t.Fatalf("responded at %v, detected at %v", a.Responded(), a.Detected)
	}
}

// However often the gateway stops, and wherever, the alerts are the same as without a stop: none is lost, none is raised twice.
func TestRestartsChangeNoAlert(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 14))
		steady, stopping := newWorld(t), newWorld(t)
		stopping.scans = 1 + rnd.IntN(40)
		for step := range 400 {
			who := string(rune('a' + rnd.IntN(3)))
			act := rnd.IntN(100)
			wait := time.Duration(rnd.IntN(300)) * time.Second
			if rnd.IntN(60) == 0 {
				wait = time.Duration(rnd.IntN(72)) * time.Hour
			}
			id := fmt.Sprint("call_", step/2)
			restart, look := rnd.IntN(10) == 0, rnd.IntN(2) == 0
			for _, w := range []*world{steady, stopping} {
				w.at = w.at.Add(wait)
				switch {
				case act < 40:
					w.violation(who)
				case act < 70:
					w.hit(who, id)
				case act < 72:
					w.append(audit.Entry{Kind: audit.Change, Action: "kill.disable", Agent: who, Actor: "person:ann", Decision: "ok"})
				case act < 76:
					w.append(audit.Entry{Kind: audit.Change, Action: "quota.80", Agent: who, Decision: "ok"})
				case act < 82:
					if all := w.Alerts(AlertOpen); len(all) > 0 {
						w.Acknowledge(t.Context(), all[len(all)-1].ID, "", "person:ann")
					}
				case act < 90:
					if all := w.Alerts(""); len(all) > 0 {
						w.Resolve(t.Context(), all[0].ID, "done", "person:ann")
					}
				case act < 92:
					w.append(audit.Entry{Kind: audit.Change, Action: "kill.enable", Agent: who, Actor: "person:ann", Decision: "ok"})
				case act < 93:
					w.append(audit.Entry{Kind: audit.Change, Action: "agent.quarantine", Agent: who, Actor: "rule:hits", Decision: "ok"})
				case act < 94:
					w.append(audit.Entry{Kind: audit.Change, Action: "agent.restore", Agent: who, Actor: "person:ann", Decision: "ok"})
				case act < 97: // counts towards two kinds
					w.append(audit.Entry{Kind: audit.Outcome, Action: "call", Agent: who, CallID: id, Decision: "error", Code: string(fault.EgressBlocked), Event: audit.ThreatHit})
				}
				if look {
					w.look(t)
				}
			}
			if restart {
				stopping.restart()
				stopping.look(t) // a start looks at once, as the steady one does
				steady.look(t)
			}
		}
		steady.look(t)
		stopping.look(t)
		a, b := shape(steady), shape(stopping)
		if len(a) != len(b) {
			t.Fatalf("seed %d: %d alerts without a stop, %d with stops", seed, len(a), len(b))
		}
		for i := range a {
			if !reflect.DeepEqual(a[i], b[i]) {
				t.Fatalf("seed %d: without a stop %+v\nwith stops %+v", seed, a[i], b[i])
			}
		}
	}
}

// shape is what alerts say but for their IDs, and but for what a restart may forget: how many events an alert has whose first is older than what is counted anew, and its newest.
func shape(w *world) (all []Alert) {
	for _, a := range w.Alerts("") {
		a.ID = ""
		if a.First.Before(w.oldest()) {
			a.Involved, a.Last, a.Text = nil, time.Time{}, ""
		}
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b Alert) int { return cmp.Or(cmp.Compare(a.Entry, b.Entry), cmp.Compare(a.Kind, b.Kind)) })
	return all
}

// Who was stopped and let work again is not stopped when the others are.
func TestLetGoBeforeContained(t *testing.T) {
	w := newWorld(t)
	for range 6 {
		w.violation("a")
		w.violation("b")
	}
	w.look(t)
	change := func(action, agent string) Alert {
		w.at = w.at.Add(time.Minute)
		w.append(audit.Entry{Kind: audit.Change, Action: action, Agent: agent, Actor: "person:ann", Decision: "ok"})
		return w.only(t, Violations)
	}
	change("kill.disable", "a")
	change("kill.enable", "a")
	if a := change("kill.disable", "b"); !a.Contained.IsZero() {
		t.Errorf("contained while a works: %+v", a)
	}
	a := change("agent.quarantine", "a")
	if a.Contained.IsZero() {
		t.Errorf("both are stopped: %+v", a)
	}
	w.restart()
	if again := w.only(t, Violations); !reflect.DeepEqual(again, a) {
		t.Errorf("after a restart %+v, before %+v", again, a)
	}
}

// A hit hides no violation: a refusal in which screening found something counts for what it is, too, alone and among those that were only counted.
func TestHitsHideNoViolations(t *testing.T) {
	folded := func(code fault.Code, event audit.Event, count, hits int) audit.Entry {
		detail, _ := json.Marshal(map[string]int{"count": count, "hits": hits})
		return audit.Entry{Kind: audit.Decision, Action: audit.Folded, Agent: "a", Decision: "deny", Code: string(code), Event: event, Detail: detail}
	}
	single := audit.Entry{Kind: audit.Decision, Action: "call", Agent: "a", Decision: "deny", Code: string(fault.EgressBlocked), Event: audit.ThreatHit}
	injection := audit.Entry{Kind: audit.Decision, Action: "call", Agent: "a", Decision: "deny", Code: string(fault.ThreatInjection), Event: audit.ThreatHit}
	shadow := single
	shadow.Decision, shadow.Shadow = "permit", true
	for name, c := range map[string]struct {
		e                      audit.Entry
		injections, violations int64
	}{
		"one":                          {single, 1, 1},
		"one that was let through":     {shadow, 1, 0},
		"one refused for the hit":      {injection, 1, 0},
		"many, one with a hit":         {folded(fault.PermissionDenied, audit.ThreatHit, 40, 1), 1, 40},
		"many, none with a hit":        {folded(fault.PermissionDenied, "", 40, 0), 0, 40},
		"many refused as injections":   {folded(fault.ThreatInjection, audit.ThreatHit, 40, 3), 40, 0},
		"many that weren't read whole": {folded(fault.ThreatInjection, "", 40, 0), 40, 0},
	} {
		e := c.e
		e.Classify()
		got := map[AlertKind]int64{}
		all, _ := concerns(&e)
		for _, one := range all {
			got[one.kind] += one.n
		}
		if got[Injections] != c.injections || got[Violations] != c.violations {
			t.Errorf("%s: %v", name, got)
		}
		w := newWorld(t)
		w.append(c.e)
		s, err := w.Security(t.Context(), w.at, func() int64 { return 0 })
		if err != nil || s.AccessViolations.Are != c.violations {
			t.Errorf("%s: %d violations, %v", name, s.AccessViolations.Are, err)
		}
	}
}

// What others did until an alert was on record counts on, also what is of the very time of the event that met the rule.
func TestOpeningForgetsNobody(t *testing.T) {
	w := newWorld(t)
	for range 11 {
		w.violation("a")
	}
	for range 10 {
		w.violation("b")
	}
	w.look(t)
	w.violation("b")
	w.look(t)
	if all := w.Alerts(AlertOpen); len(all) != 2 {
		t.Errorf("alerts %+v", all)
	}
}

// People are told of each alert once it is raised, also of one that a stop kept from being raised, and at a start again of open incidents alone.
func TestWhoIsToldOfAlerts(t *testing.T) {
	w := newWorld(t)
	var told []AlertKind
	start := func() {
		w.restart()
		told = nil
		w.OnAlert(func(a Alert) { told = append(told, a.Kind) })
	}
	start()
	w.look(t)
	for range 11 {
		w.violation("a")
	}
	w.look(t)
	w.look(t)
	if !slices.Equal(told, []AlertKind{Violations}) {
		t.Errorf("told of %v", told)
	}
	w.append(audit.Entry{Kind: audit.Outcome, Action: "call", Agent: "a", Decision: "error", Code: string(fault.TimeExceeded)})
	start()
	w.look(t)
	if !slices.Equal(told, []AlertKind{Violations, Timeout}) {
		t.Errorf("after a stop: told of %v", told)
	}
	start()
	w.look(t)
	if !slices.Equal(told, []AlertKind{Violations}) {
		t.Errorf("after another one: told of %v", told)
	}
}
