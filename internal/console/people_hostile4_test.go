package console

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/session"
	"sallyport.example/provenance"
)

// TestPlansAreShownWhole: a plan is approved by its digest, which covers the arguments of its steps: all of them stand on the page, also
// when the log can't be read.
func TestPlansAreShownWhole(t *testing.T) {
	w := newPagesWorld(t)
	s, _ := w.open("planner", "")
	arguments, _ := json.Marshal(map[string]string{"about": strings.Repeat("the invoice of May ", 20) + "   \u202e", "to": "IBAN-OF-THIEF"})
	plan := session.Plan{ID: "plan_1", State: session.PlanPending, Submitted: time.Now(), Steps: []session.Step{{Tool: "docs_think", Operation: "docs.think", Justification: "x", Arguments: arguments, After: []int{1}}, {Tool: "docs_think", Operation: "docs.think", Justification: "y"},
		{Tool: "docs_think", Operation: "docs.think", Justification: "z", From: map[string]provenance.Source{"to": {Field: "iban\u202e"}}, Open: []string{"text"}, Each: new(int)}}}
	plan.Digest = session.PlanDigest(s.ID, s.Agent, plan.Steps)
	if _, err := w.store.ChangeSession(t.Context(), s.ID, func(now session.Session) (session.Session, audit.Entry, error) {
		next, err := now.SubmitPlan(plan)
		return next, audit.Entry{Kind: audit.Decision, Action: "plan.submit", Session: s.ID, Agent: s.Agent, Decision: "ask"}, err
	}); err != nil {
		t.Fatal(err)
	}
	// So that the gateway looks at the session again.
	w.ask("viewer operator", "/sessions/"+s.ID+"/phase", map[string][]string{"phase": {"execution"}, "reason": {"go on"}})
	pages := []string{w.ask("viewer operator", "/sessions/"+s.ID, nil).Body.String()}
	w.c.o.Store = unreadable{w.c.o.Store}
	pages = append(pages, w.ask("viewer operator", "/sessions/"+s.ID, nil).Body.String())
	for i, page := range pages {
		if strings.Contains(page, "can’t be shown") != (i == 1) {
			t.Errorf("%d: the log can or can't be read", i)
		}
	}
	for _, want := range []string{plan.Digest, "Approve the plan", "IBAN-OF-THIEF", `<mark>[4 spaces]\u202e</mark>`, "after step 1", `&#34;to&#34; comes from step 0: field &#34;iban\u202e&#34; of one record of its result`, "&#34;text&#34; is open: the agent chooses it", "called once for each record of step 0", "any arguments: the plan fixes none"} {
		for i, page := range pages {
			if !strings.Contains(page, want) {
				t.Errorf("%d: the page of the plan lacks %s", i, want)
			}
		}
	}
}

// unreadable is a store whose log can't be read.
type unreadable struct{ Store }

func (unreadable) Entries(context.Context, audit.Filter) ([]audit.Entry, int64, error) {
	return nil, -1, fault.New(fault.StoreUnavailable, "")
}

// TestBehindTheMarks: no two different values are shown alike, also behind the last mark that a page has.
func TestBehindTheMarks(t *testing.T) {
	for _, marks := range []int{0, marksOfValue - 1, marksOfValue, marksOfValue + 1} {
		shown := func(end string) []piece {
			raw, _ := json.Marshal(map[string]string{"k": strings.Repeat("a\u200b", marks) + "a" + end})
			return slices.DeleteFunc(exactly(raw), func(p piece) bool { return p.Kind == "note" }) // the length, which differs anyway
		}
		alike := []string{"   ", "[3 spaces]", `\[3 spaces]`, `\   `, "\u200b", `\u200b`, "\n", `\n`, "\n\u2502 ", "\u2502 "}
		var all [][]piece
		for i, end := range alike {
			now := shown(end)
			if at := slices.IndexFunc(all, func(p []piece) bool { return slices.Equal(p, now) }); at >= 0 {
				t.Errorf("behind %d marks %q and %q are shown alike", marks, alike[at], alike[i])
			}
			all = append(all, now)
		}
	}
}

// TestRefusalsAreNotSpent: who comes back with a refusal, which takes no account at the provider, fills nothing.
func TestRefusalsAreNotSpent(t *testing.T) {
	g := newOIDCRig(t)
	cookie, address := g.begin()
	back := g.authorize(address)
	q := back.Query()
	code := q.Get("code")
	q.Del("code")
	q.Set("error", "access_denied")
	back.RawQuery = q.Encode()
	if id, _, err := g.finish(back, cookie); id != "" || err == nil || len(g.o.spent) != 0 {
		t.Errorf("%q %v, %d kept", id, err, len(g.o.spent))
	}
	q.Set("code", code) // with both it is still a refusal
	back.RawQuery = q.Encode()
	if id, _, err := g.finish(back, cookie); id != "" || err == nil || len(g.o.spent) != 0 {
		t.Errorf("with a code: %q %v, %d kept", id, err, len(g.o.spent))
	}
}
