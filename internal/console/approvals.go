package console

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/policy"
)

// risksDown are the risks, the highest first.
var risksDown = []policy.Risk{policy.Critical, policy.High, policy.Medium, policy.Low}

const (
	pageOfApprovals = 50
	maxSimilar      = 100 // of one session, which has no more open
)

// queuePage lists the questions of one state: those that wait by risk and then by deadline, others newest first. Similar ones that wait stand together.
type queuePage struct {
	Done   *desk.Question // the question that the person has just answered
	Vote   *approval.Vote // how
	State  approval.State
	States []approval.State
	Risk   string // of which requests are shown; "": of any
	Risks  []policy.Risk
	Agent  string // of which requests are shown; "": of any
	// Soon are the questions that silence will permit, the next one first. They stand on the first page: whoever does nothing lets them run.
	Soon    []group
	Groups  []group
	Plans   *plansPart // on the first page of what is pending
	NoPlans bool       // the store did not give them
	// Later are the questions that were put off. They stand on the last page of those that are pending.
	Later []row
	Next  string // id to go on after
	After string
	Live  bool // this is the first page, which is kept up to date
}

// group holds questions that can be answered together, or a single one.
type group struct {
	Questions []row
}

// row is a question in a list.
type row struct {
	desk.Question
	Focus bool // the person who has just answered another one comes to it next
}

// countWaiting is how many approvals and plans wait for an answer, and the id of the oldest of these approvals; "": none waits.
func (c *Console) countWaiting(ctx context.Context) (n int64, oldest string, err error) {
	pending, oldest, err := c.o.Gateway.Desk().Waiting(ctx)
	if err != nil {
		return 0, "", err
	}
	_, plans, err := c.o.Gateway.WaitingPlans(ctx, 0)
	return pending + plans, oldest, err
}

// waiting is how many approvals and plans wait for an answer, in words.
func (c *Console) waiting(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	n, _, err := c.countWaiting(ctx)
	if err != nil {
		return "?"
	}
	return strconv.FormatInt(n, 10)
}

func (c *Console) waitingCount(w http.ResponseWriter, r *http.Request, _ identity.Principal) {
	c.part(w, "count", c.waiting(r.Context()))
}

func (c *Console) approvals(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	q := r.URL.Query()
	d := queuePage{State: approval.State(q.Get("state")), States: approval.States, After: q.Get("after")}
	if d.State == "" {
		d.State = approval.Pending
	}
	if !slices.Contains(approval.States, d.State) {
		c.fail(w, r, p, fault.New(fault.NotFound, "There is no such state of approvals.").Try("Choose one of those above the list."))
		return
	}
	d.Risk, d.Agent, d.Risks = q.Get("risk"), q.Get("agent"), risksDown
	if d.Risk != "" && !slices.Contains(policy.Risks, policy.Risk(d.Risk)) {
		c.fail(w, r, p, fault.New(fault.NotFound, "There is no such risk.").Try("Choose one of those above the list."))
		return
	}
	var found []desk.Question
	var err error
	if d.State == approval.Pending {
		found, err = c.o.Gateway.Desk().Urgent(r.Context(), d.Risk, d.Agent, d.After, pageOfApprovals+1)
	} else {
		found, err = c.o.Gateway.Desk().Questions(r.Context(), d.State, "", d.After, pageOfApprovals+1)
	}
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	if len(found) > pageOfApprovals {
		found = found[:pageOfApprovals]
		d.Next = found[pageOfApprovals-1].ID
	}
	if d.Live = d.After == "" && d.Risk == "" && d.Agent == ""; d.Live && d.State == approval.Pending {
		soon, err := c.o.Gateway.Desk().Silent(r.Context())
		if err != nil {
			c.fail(w, r, p, err)
			return
		}
		d.Soon = grouped(soon, true)
		found = except(found, soon)
		ctx, cancel := context.WithTimeout(r.Context(), storeTime)
		plans, err := c.plansOf(ctx, p)
		cancel()
		if d.Plans = &plans; err != nil { // requests can be answered all the same
			c.missing("the plans that wait", err)
			d.Plans, d.NoPlans = nil, true
		}
	}
	if d.State == approval.Pending { // what the person may answer stands first
		mine := func(q desk.Question) bool { return c.o.Gateway.Desk().Entitled(voter(p), q.Approval) == nil }
		slices.SortStableFunc(found, func(a, b desk.Question) int {
			if x, y := mine(a), mine(b); x != y && x {
				return -1
			} else if x != y {
				return 1
			}
			return 0
		})
	}
	d.Groups = grouped(found, d.State == approval.Pending)
	if d.State == approval.Pending && d.Next == "" {
		later, err := c.o.Gateway.Desk().Questions(r.Context(), approval.Deferred, "", "", pageOfApprovals)
		if err != nil {
			c.fail(w, r, p, err)
			return
		}
		for _, q := range later {
			d.Later = append(d.Later, row{Question: q})
		}
	}
	if d.Done, d.Vote = c.done(r, p); d.Done != nil {
		c.focus(&d, p)
	}
	c.show(w, r, p, view{template: "approvals", title: "Approvals", place: "/approvals", data: d})
}

// focus marks the first question that waits for the person. What gets the focus is a link: a second click or key press after an answer must
// not meet the button under a request that nobody has read.
func (c *Console) focus(d *queuePage, p identity.Principal) {
	for _, groups := range [][]group{d.Soon, d.Groups} {
		for _, g := range groups {
			for i, q := range g.Questions {
				if q.State == approval.Pending && c.o.Gateway.Desk().Entitled(voter(p), q.Approval) == nil && voteOf(q.Approval, p.ID) == nil {
					g.Questions[i].Focus = true
					return
				}
			}
		}
	}
}

// except returns the questions of all that are not among some.
func except(all, some []desk.Question) []desk.Question {
	return slices.DeleteFunc(all, func(q desk.Question) bool {
		return slices.ContainsFunc(some, func(s desk.Question) bool { return s.ID == q.ID })
	})
}

// grouped puts similar questions together, at the place of the first of them.
func grouped(found []desk.Question, similar bool) []group {
	var groups []group
	at := map[string]int{}
	for _, q := range found {
		if i, ok := at[q.Similar]; ok && similar && q.Similar != "" {
			groups[i].Questions = append(groups[i].Questions, row{Question: q})
			continue
		}
		at[q.Similar] = len(groups)
		groups = append(groups, group{[]row{{Question: q}}})
	}
	return groups
}

// done is the question that ?done names, which the person answered on the page before, and their vote.
func (c *Console) done(r *http.Request, p identity.Principal) (*desk.Question, *approval.Vote) {
	id := r.URL.Query().Get("done")
	if id == "" {
		return nil, nil
	}
	q, err := c.o.Gateway.Desk().Question(r.Context(), id)
	if err != nil {
		return nil, nil
	}
	if v := voteOf(q.Approval, p.ID); v != nil {
		return &q, v
	}
	return nil, nil
}

func voteOf(a approval.Approval, person string) *approval.Vote {
	for _, v := range a.Votes {
		if v.Person == person {
			return &v
		}
	}
	return nil
}
