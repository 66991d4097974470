package monitor

import (
	"encoding/json"
	"testing"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/screen"
)

func (w *world) figures(t *testing.T, from time.Time, acted int64) Security {
	t.Helper()
	s, err := w.Security(t.Context(), from, func() int64 { return acted })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (w *world) judged(entry int64, hit, attack bool, weight int) {
	detail, _ := json.Marshal(screen.Judged{Entry: entry, Hit: hit, Attack: attack, Weight: weight})
	w.append(audit.Entry{Kind: audit.Change, Action: screen.VerdictAction, Decision: "ok", Detail: detail})
}

func is(t *testing.T, name string, f Figure, value float64, are, of int64, met bool) {
	t.Helper()
	if f.Value == nil || *f.Value != value || f.Are != are || f.Of != of || *f.Met() != met {
		t.Errorf("%s: %+v, value %v, want %v, %d of %d", name, f, f.Value, value, are, of)
	}
}

// Each figure is what its entries say, of the time that was asked for.
func TestSecurity(t *testing.T) {
	w := newWorld(t)
	old := func() { // the same again, of another day
		w.violation("a")
		w.append(audit.Entry{Kind: audit.Intent, Action: "call", Agent: "a", Decision: "permit", Risk: "HIGH"})
		w.judged(1, true, true, 1)
	}
	old()
	w.at = w.at.Add(48 * time.Hour)
	from := w.at
	for i := range 20 {
		e := audit.Entry{Kind: audit.Intent, Action: "call", Agent: "a", Decision: "permit", Risk: "LOW"}
		switch {
		case i < 3:
			e.Risk, e.Approvers = "HIGH", []string{"ann"}
		case i == 3:
			e.Risk, e.Approvers = "CRITICAL", []string{"ann", "bob"}
		case i == 4:
			e.Risk = "HIGH" // as a gateway that observes lets it run
		case i == 5:
			e.Agent = agent.Trial("a")
		case i == 6:
			e.Actor = ownActor // the gateway asks a model
		}
		w.append(e)
	}
	w.append(audit.Entry{Kind: audit.Decision, Action: "approval.ask", Agent: "a", Decision: "ask"})
	w.append(audit.Entry{Kind: audit.Decision, Action: "check", Agent: "a", Decision: "deny", Code: string(fault.PermissionDenied)})
	w.append(audit.Entry{Kind: audit.Decision, Action: "call", Agent: "a", Decision: "deny", Code: string(fault.FlowContaminated)})
	for range 11 {
		w.violation("a")
	}
	due := w.at
	w.at = w.at.Add(4 * time.Second)
	w.look(t)
	w.judged(10, true, true, 1)
	w.judged(11, true, false, 1)
	w.judged(12, false, true, screen.SampleOf)
	w.judged(13, false, false, screen.SampleOf)
	w.judged(14, true, false, 1)
	w.judged(14, true, true, 1) // the later word counts

	s := w.figures(t, from, 20) // one of another day is in the log since the start, and the gateway's own request is none
	is(t, "violations", s.AccessViolations, 11.0/32, 11, 32, false)
	is(t, "approval", s.HighApproval, 4.0/5, 4, 5, false)
	is(t, "completeness", s.AuditCompleteness, 1, 20, 20, true)
	is(t, "detection", s.InjectionDetection, 2.0/22, 2, 22, false)
	is(t, "time to detect", s.TimeToDetect, 4, 1, 1, true)
	if s.TimeToRespond.Value != nil || s.Waiting != 1 {
		t.Errorf("%+v", s)
	}
	w.append(audit.Entry{Kind: audit.Intent, Action: "knowledge.fetch", Actor: "person:ann", Decision: "permit"}) // is no call of an agent
	if s := w.figures(t, from, 21); *s.AuditCompleteness.Met() || s.AuditCompleteness.Are != 20 {
		t.Errorf("a call that is not in the log: %+v", s.AuditCompleteness)
	}
	w.at = due.Add(20 * time.Minute)
	if _, err := w.Resolve(t.Context(), w.Alerts("")[0].ID, "done", "person:ann"); err != nil {
		t.Fatal(err)
	}
	s = w.figures(t, from, 20)
	is(t, "time to respond", s.TimeToRespond, (20*time.Minute - 4*time.Second).Seconds(), 1, 1, false)
	if s.Waiting != 0 {
		t.Errorf("%d wait", s.Waiting)
	}
	w.at = w.at.Add(48 * time.Hour)
	if s := w.figures(t, w.at, 20); s.AccessViolations.Value != nil || s.HighApproval.Value != nil || s.InjectionDetection.Value != nil || s.TimeToDetect.Value != nil || s.TimeToRespond.Value != nil {
		t.Errorf("of a day without anything: %+v", s)
	}
}

// Where nothing was counted no goal is met and none is missed.
func TestFiguresOfNothing(t *testing.T) {
	s := newWorld(t).figures(t, noon, 0)
	for _, f := range []Figure{s.InjectionDetection, s.AccessViolations, s.HighApproval, s.AuditCompleteness, s.TimeToDetect, s.TimeToRespond} {
		if f.Value != nil || f.Met() != nil || f.Basis == "" {
			t.Errorf("%+v", f)
		}
	}
}
