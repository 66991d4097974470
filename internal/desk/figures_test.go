package desk

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/internal/approval"
)

// pages is a store of questions, the newest first.
type pages struct {
	Store
	all []approval.Approval
}

func (p *pages) Approvals(_ context.Context, f Filter) ([]approval.Approval, error) {
	from := 0
	if f.After != "" {
		from = slices.IndexFunc(p.all, func(a approval.Approval) bool { return a.ID == f.After }) + 1
	}
	return p.all[from:min(len(p.all), from+f.Limit)], nil
}

// The questions of a time are counted once for each rule that asked, by what became of them, over pages; older ones and damaged ones are not.
func TestRuleFigures(t *testing.T) {
	asked := func(at time.Time, state approval.State, codes ...string) approval.Approval {
		a := question(t)
		a.CreatedAt, a.State = at, state
		for _, code := range codes {
			stage := "risk"
			if strings.HasPrefix(code, "flow.") {
				stage = "flow"
			}
			a.Reasons = append(a.Reasons, approval.Reason{Stage: stage, Code: code})
		}
		return a
	}
	old := asked(noon.Add(-time.Hour), approval.Rejected, "risk.amount")
	s := &pages{}
	for range rulePage { // a page of its own
		s.all = append(s.all, asked(noon, approval.Spent, "risk.amount", "risk.amount", "approval.required"))
	}
	s.all = append(s.all, asked(noon, approval.Rejected, "risk.amount", "flow.untrusted"), asked(noon, approval.Expired, "flow.untrusted", "flow.source"), asked(noon, approval.Deferred, "flow.untrusted"),
		asked(noon, approval.Approved, "approval.required"), asked(noon, approval.Damaged, "risk.amount"), approval.Approval{ID: "appr_x", State: approval.Damaged}, old)
	d := over(&shelf{})
	d.o.Store = s
	got, err := d.RuleFigures(t.Context(), noon.Add(-time.Minute), RuleQuestions)
	if err != nil {
		t.Fatal(err)
	}
	var lines []RuleFigure
	for _, r := range got.Rules {
		r.Newest, r.Operation = "", ""
		lines = append(lines, r)
	}
	want := []RuleFigure{{Code: "risk.amount", Asked: rulePage + 1, Approved: rulePage, Rejected: 1}, {Code: "flow.untrusted", Asked: 3, Rejected: 1, Unanswered: 1, Waiting: 1}, {Code: "approval.required", Asked: 1, Approved: 1}}
	if !slices.Equal(lines, want) || got.Questions != rulePage+4 || got.Cut || got.Rules[0].Newest != s.all[0].ID {
		t.Errorf("%+v, of %d", lines, got.Questions)
	}
	for len(s.all) <= RuleQuestions+rulePage {
		s.all = append(s.all[:rulePage:rulePage], s.all...)
	}
	if got, err = d.RuleFigures(t.Context(), noon.Add(-time.Minute), RuleQuestions); err != nil || !got.Cut || got.Questions != RuleQuestions {
		t.Errorf("of very many: %d, cut %t, %v", got.Questions, got.Cut, err)
	}
}

// The time to an answer is the middle one of the questions that people decided: from the question to the answer that decided it.
func TestMedianToAnswer(t *testing.T) {
	s := &pages{}
	d := over(&shelf{})
	d.o.Store = s
	ask := func(state approval.State, votes ...approval.Vote) {
		a := question(t)
		a.CreatedAt, a.State, a.Votes = noon, state, votes
		s.all = append(s.all, a)
	}
	after := func(minutes int, decision approval.Decision) approval.Vote {
		return approval.Vote{Person: "ann", Decision: decision, At: noon.Add(time.Duration(minutes) * time.Minute)}
	}
	for _, c := range []struct {
		name   string
		state  approval.State
		votes  []approval.Vote
		of     int
		median time.Duration
	}{
		{"waits", approval.Pending, []approval.Vote{after(1, approval.Approve)}, 0, 0},
		{"silence", approval.Spent, nil, 0, 0},
		{"ran out after one of two approvals", approval.Expired, []approval.Vote{after(1, approval.Approve)}, 0, 0},
		{"rejected", approval.Rejected, []approval.Vote{after(1, approval.Approve), after(3, approval.Reject)}, 1, 3 * time.Minute},
		{"two approvals", approval.Spent, []approval.Vote{after(2, approval.Approve), after(9, approval.Approve)}, 2, 3 * time.Minute},
		{"approved", approval.Approved, []approval.Vote{after(5, approval.Approve)}, 3, 5 * time.Minute},
	} {
		ask(c.state, c.votes...)
		got, err := d.RuleFigures(t.Context(), noon.Add(-time.Minute), 100)
		if err != nil || got.Answered != c.of || got.Median != c.median {
			t.Errorf("%s: %s of %d, %v", c.name, got.Median, got.Answered, err)
		}
	}
	if got, err := d.RuleFigures(t.Context(), noon.Add(-time.Minute), 2); err != nil || !got.Cut || got.Questions != 2 {
		t.Errorf("two at most: %+v, %v", got, err)
	}
}
