package desk

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/approval"
)

// countedRequests is how many requests the figures are about, at most: they are read from the requests themselves.
const countedRequests = 500

// VoteCounts are figures on how people answer: of the newest requests that were answered, at most 500.
type VoteCounts struct {
	Requests int64 `json:"requests" doc:"How many requests these figures are about: the newest that people approved or rejected, at most 500."`
	Approved int64 `json:"approved" doc:"Answers that said yes."`
	Rejected int64 `json:"rejected" doc:"Answers that said no."`
	Own      int64 `json:"own" doc:"Answers of people who had asked for the call themselves, opened its session or own the agent. HI-2."`
}

// VoteCounts counts the answers that people gave.
func (d *Desk) VoteCounts(ctx context.Context) (VoteCounts, error) {
	return d.o.Store.VoteCounts(ctx, countedRequests)
}

// RuleFigure is what became of the questions that a rule asked, alone or with others.
type RuleFigure struct {
	Code                                           string // of the rule, as a question's reasons have it
	Asked, Approved, Rejected, Unanswered, Waiting int
	Newest, Operation                              string // id of the newest question, and what it is about
}

// RuleFigures are those of all rules that asked, the one that asked most first.
type RuleFigures struct {
	Rules     []RuleFigure
	Questions int           // that were counted
	Cut       bool          // there were more: only the newest were counted
	Answered  int           // of them, those that people decided
	Median    time.Duration // that these took, from the question to the answer that decided
}

const (
	// RuleQuestions is how many questions are counted at most: the page that shows them stays under 100 ms of the server's time (BenchmarkPages in internal/console).
	RuleQuestions = 2000
	rulePage      = 500
)

// RuleFigures counts the questions since a time by the rules that asked them, the newest so many at most. Drills are among them: figures without them would tell who looks which ones they are.
func (d *Desk) RuleFigures(ctx context.Context, since time.Time, most int) (RuleFigures, error) {
	var f RuleFigures
	var took []time.Duration
	size := min(most+1, rulePage)
	rules := map[string]*RuleFigure{}
	for after, more := "", true; more && !f.Cut; {
		page, err := d.o.Store.Approvals(ctx, Filter{Now: d.o.Now(), After: after, Limit: size})
		if err != nil {
			return RuleFigures{}, err
		}
		more = len(page) == size
		for _, a := range page {
			after = a.ID
			if a.State == approval.Damaged {
				continue
			}
			if a.CreatedAt.Before(since) {
				more = false
				break
			}
			if f.Cut = f.Questions == most; f.Cut {
				break
			}
			f.Questions++
			if one, ok := answeredIn(a); ok {
				took = append(took, one)
			}
			for _, code := range rulesThatAsked(a.Reasons) {
				if rules[code] == nil {
					rules[code] = &RuleFigure{Code: code, Newest: a.ID, Operation: a.Operation}
				}
				rules[code].add(a.State)
			}
		}
	}
	for _, one := range rules {
		f.Rules = append(f.Rules, *one)
	}
	slices.SortFunc(f.Rules, func(a, b RuleFigure) int {
		return cmp.Or(cmp.Compare(b.Asked, a.Asked), strings.Compare(a.Code, b.Code))
	})
	if f.Answered = len(took); f.Answered > 0 {
		slices.Sort(took)
		f.Median = took[(len(took)-1)/2]
	}
	return f, nil
}

// answeredIn is how long people took to decide a question; false where none did.
func answeredIn(a approval.Approval) (time.Duration, bool) {
	decided := map[approval.State]approval.Decision{approval.Approved: approval.Approve, approval.Spent: approval.Approve, approval.Rejected: approval.Reject}[a.State]
	if len(a.Votes) == 0 || a.Votes[len(a.Votes)-1].Decision != decided {
		return 0, false
	}
	return max(a.Votes[len(a.Votes)-1].At.Sub(a.CreatedAt), 0), true
}

// add counts a question.
func (r *RuleFigure) add(state approval.State) {
	r.Asked++
	switch state {
	case approval.Approved, approval.Spent:
		r.Approved++
	case approval.Rejected:
		r.Rejected++
	case approval.Pending, approval.Deferred:
		r.Waiting++
	default:
		r.Unanswered++
	}
}

// rulesThatAsked are the codes of the rules among a question's reasons, each once. Where rules gave the risk, that it asks for the risk says nothing more.
func rulesThatAsked(reasons []approval.Reason) (codes []string) {
	ruled := slices.ContainsFunc(reasons, func(r approval.Reason) bool { return strings.HasPrefix(r.Code, "risk.") })
	for _, r := range reasons {
		switch {
		case r.Stage == "declare" || r.Stage == "label" || r.Code == "flow.source": // they tell more about the call, and ask nothing
		case ruled && r.Stage == "risk" && !strings.HasPrefix(r.Code, "risk."):
		case !slices.Contains(codes, r.Code):
			codes = append(codes, r.Code)
		}
	}
	return codes
}
