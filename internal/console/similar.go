package console

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
)

// similarPage shows questions that differ only in their arguments, each with its own, to be answered with one decision (DE-5).
type similarPage struct {
	First    desk.Question
	Items    []similarItem
	Problem  *problem
	Outcomes []desk.Batched // the result of each after an answer. They stand in place of those that still wait, so that no second click answers those
	Reason   string
	MayNot   *problem
}

type similarItem struct {
	desk.Question
	Exact      []piece
	Lookalikes lookalikes
	Bytes      int  // of the arguments
	TooLong    bool // to be answered here; its own page shows it
	Wrote      bool // this person wrote the arguments
}

func (c *Console) showSimilar(w http.ResponseWriter, r *http.Request, p identity.Principal, d similarPage, status int) {
	var err error
	if d.First, err = c.o.Gateway.Desk().Question(r.Context(), r.PathValue("id")); err != nil {
		c.fail(w, r, p, err)
		return
	}
	found, err := c.similarTo(r.Context(), d.First)
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	for _, q := range found {
		n := max(len(q.Arguments), q.ArgumentsSize)
		item := similarItem{Question: q, Bytes: n, TooLong: n > mustRead, Wrote: q.ModifiedBy == p.ID}
		if !item.TooLong {
			item.Exact, item.Lookalikes = exactly(q.Arguments), lookalikesOf(q.Destinations, q.Arguments)
		}
		d.Items = append(d.Items, item)
	}
	if err := c.o.Gateway.Desk().Entitled(voter(p), d.First.Approval); err != nil {
		d.MayNot = problemOf(err)
	}
	c.show(w, r, p, view{template: "similar", title: "Similar requests for " + d.First.Operation, place: "/approvals", status: status, data: d})
}

// answerSimilar answers the questions that are ticked, each under the digest that was on the page.
func (c *Console) answerSimilar(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	form := r.PostForm.Get
	d := similarPage{Reason: form("reason")}
	refuse := func(err error) {
		d.Problem = problemOf(err)
		d.Problem.Title = "Your answer was not taken"
		c.showSimilar(w, r, p, d, fault.Of(err).Code.HTTPStatus())
	}
	decision := approval.Decision(form("decision"))
	if decision != approval.Approve && decision != approval.Reject {
		refuse(fault.New(fault.RequestMalformed, "Press approve or reject."))
		return
	}
	first, err := c.o.Gateway.Desk().Question(r.Context(), r.PathValue("id"))
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	var answers []desk.Response
	for _, name := range slices.Sorted(maps.Keys(r.PostForm)) {
		id, ok := strings.CutPrefix(name, "take.")
		if !ok {
			continue
		}
		q, err := c.o.Gateway.Desk().Question(r.Context(), id)
		if err == nil && q.Similar != first.Similar {
			err = fault.New(fault.Conflict, "They are not similar.").Try("Answer each by itself.")
		}
		if err == nil && len(q.Arguments) > mustRead {
			err = fault.New(fault.RequestMalformed, "One of them has long arguments.").Try("Open it, read it to its end, and answer it there.")
		}
		if err != nil {
			refuse(err)
			return
		}
		answers = append(answers, desk.Response{Approval: id, Digest: form("digest." + id), Decision: decision, Reason: d.Reason})
	}
	if len(answers) == 0 {
		refuse(fault.New(fault.RequestMalformed, "None is ticked.").Try("Tick those that you have looked at and mean."))
		return
	}
	if decision == approval.Reject {
		if err := checkReason(d.Reason); err != nil {
			refuse(err)
			return
		}
	}
	if d.Outcomes, err = c.o.Gateway.Desk().RespondTogether(r.Context(), voter(p), answers); err != nil {
		refuse(err)
		return
	}
	d.Reason = ""
	c.showSimilar(w, r, p, d, http.StatusOK)
}
