package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"sallyport/internal/approval"
	"sallyport/internal/fault"
	"sallyport/internal/gateway"
	"sallyport/internal/identity"
)

const (
	pageOfApprovals = 50
	mostCounted     = 100 // "99+": counting ten thousand would cost more than it tells
)

// queuePage is the queue of one state, newest first. Of those that wait, similar ones stand together.
type queuePage struct {
	Done   *gateway.Question // what the person has answered just now
	Vote   *approval.Vote    // how
	State  approval.State
	States []approval.State
	Groups []group
	// Later are those put off, on the last page of what is pending.
	Later []gateway.Question
	Next  string // id to go on after
	After string
	Live  bool // the first page is kept up to date
}

// group is questions that can be answered together, or one by itself.
type group struct {
	Questions []gateway.Question
}

// waiting is how many approvals wait for an answer, in words.
func (c *Console) waiting(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	found, err := c.o.Gateway.Questions(ctx, approval.Pending, "", "", mostCounted)
	switch {
	case err != nil:
		return "?"
	case len(found) == mostCounted:
		return strconv.Itoa(mostCounted-1) + "+"
	}
	return strconv.Itoa(len(found))
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
	found, err := c.o.Gateway.Questions(r.Context(), d.State, "", d.After, pageOfApprovals+1)
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	if len(found) > pageOfApprovals {
		found = found[:pageOfApprovals]
		d.Next = found[pageOfApprovals-1].ID
	}
	d.Groups = together(found, d.State == approval.Pending)
	if d.State == approval.Pending && d.Next == "" {
		if d.Later, err = c.o.Gateway.Questions(r.Context(), approval.Deferred, "", "", pageOfApprovals); err != nil {
			c.fail(w, r, p, err)
			return
		}
	}
	d.Live = d.After == ""
	d.Done, d.Vote = c.done(r, p)
	c.show(w, r, p, view{template: "approvals", title: "Approvals", place: "/approvals", data: d})
}

// together puts similar questions under one another, where the first of them stands.
func together(found []gateway.Question, similar bool) []group {
	var groups []group
	at := map[string]int{}
	for _, q := range found {
		if i, ok := at[q.Similar]; ok && similar && q.Similar != "" {
			groups[i].Questions = append(groups[i].Questions, q)
			continue
		}
		at[q.Similar] = len(groups)
		groups = append(groups, group{[]gateway.Question{q}})
	}
	return groups
}

// done is the question that ?done names and what the person said to it: what the page before this one did.
func (c *Console) done(r *http.Request, p identity.Principal) (*gateway.Question, *approval.Vote) {
	id := r.URL.Query().Get("done")
	if id == "" {
		return nil, nil
	}
	q, err := c.o.Gateway.Question(r.Context(), id)
	if err != nil {
		return nil, nil
	}
	for _, v := range q.Votes {
		if v.Person == p.ID {
			return &q, &v
		}
	}
	return nil, nil
}

// onward is where a person goes after an answer: to the next question that waits for them, or to the queue.
func (c *Console) onward(ctx context.Context, p identity.Principal, done string) string {
	query := url.Values{"done": {done}}.Encode()
	found, err := c.o.Gateway.Questions(ctx, approval.Pending, "", "", pageOfApprovals)
	if err == nil {
		for _, q := range found {
			if q.ID != done && q.Entitled(voter(p)) == nil && voteOf(q.Approval, p.ID) == nil {
				return "/approvals/" + q.ID + "?" + query
			}
		}
	}
	return "/approvals?" + query
}

func voteOf(a approval.Approval, person string) *approval.Vote {
	for _, v := range a.Votes {
		if v.Person == person {
			return &v
		}
	}
	return nil
}
