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
	got, err := d.RuleFigures(t.Context(), noon.Add(-time.Minute))
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
	for len(s.all) <= ruleQuestions+rulePage {
		s.all = append(s.all[:rulePage:rulePage], s.all...)
	}
	if got, err = d.RuleFigures(t.Context(), noon.Add(-time.Minute)); err != nil || !got.Cut || got.Questions != ruleQuestions {
		t.Errorf("of very many: %d, cut %t, %v", got.Questions, got.Cut, err)
	}
}
