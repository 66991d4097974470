package console

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/run"
)

// recommendationsPage shows what agents recommended, newest first.
type recommendationsPage struct {
	State   run.RecommendationState
	Tabs    []tab
	All     []run.Recommendation
	After   string
	Next    string // link to the page after, or ""
	Refresh string // this page
}

func (c *Console) recommendations(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	q := r.URL.Query()
	state, err := run.ParseRecommendationState(q.Get("state"))
	d := recommendationsPage{State: state, After: q.Get("after")}
	var found []run.Recommendation
	if err == nil {
		found, err = c.o.Runs.Recommendations(r.Context(), run.RecommendationFilter{State: state, After: d.After, Limit: pageOfRuns + 1})
	}
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	if d.All = found; len(found) > pageOfRuns {
		d.All = found[:pageOfRuns]
		d.Next = link("/recommendations", "state", string(state), "after", found[pageOfRuns-1].ID)
	}
	d.Refresh = link("/recommendations", "state", string(state), "after", d.After)
	for _, t := range []struct {
		name  string
		state run.RecommendationState
	}{{"all", ""}, {"waiting", run.Pending}, {"advice", run.Advice}, {"carried out", run.CarriedOut}, {"can’t be carried out", run.Blocked}} {
		d.Tabs = append(d.Tabs, tab{t.name, link("/recommendations", "state", string(t.state)), t.state == state})
	}
	c.show(w, r, p, view{template: "recommendations", title: "Recommendations", place: "/runs", data: d})
}

// recommendationPage shows one, with the exact call and where each value of it comes from.
type recommendationPage struct {
	run.Recommendation
	refusedAct
	Asked     *approvalPage // the question about its call, where there is one
	Exact     []piece       // the arguments of the call
	Said      []piece       // the output
	From      []valueFrom
	MayAnswer bool // this person may say yes or no now
	Advises   bool // a yes only says that it is right
	Until     []instant
}

// valueFrom is an argument and where it is taken from.
type valueFrom struct{ Argument, From string }

// Proof says how much the citations prove.
func (d recommendationPage) Proof() string { return run.Proof(d.Citations) }

func (c *Console) showRecommendation(w http.ResponseWriter, r *http.Request, p identity.Principal, d recommendationPage, status int) {
	ctx, cancel := context.WithTimeout(r.Context(), storeTime)
	defer cancel()
	rec, err := c.o.Runs.Recommendation(ctx, r.PathValue("id"))
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	d.Recommendation, d.Said = rec, exactly(rec.Output)
	d.Advises = rec.State == run.Advice
	d.MayAnswer = p.Has(identity.Approver) && (d.Advises || rec.State == run.Blocked)
	if called := rec.Call; called != nil {
		d.Exact = exactly(called.Arguments)
		for name, from := range called.From {
			d.From = append(d.From, valueFrom{name, from})
		}
		slices.SortFunc(d.From, func(a, b valueFrom) int { return cmp.Compare(a.Argument, b.Argument) })
		if called.Approval != "" {
			q, err := c.o.Gateway.Desk().Question(ctx, called.Approval)
			if err != nil {
				c.fail(w, r, p, err)
				return
			}
			asked := c.approvalOf(ctx, q, p)
			d.Asked, d.Until = &asked, asked.Until
			d.MayAnswer = rec.State == run.Pending && asked.MayNot == nil && asked.CanReject && p.Has(identity.Approver)
		}
	}
	c.show(w, r, p, view{template: "recommendation", title: rec.Agent + " recommends " + rec.Action, place: "/runs", status: status, data: d})
}

// approveRecommendation is the vote on its call, with what a yes to that needs, or says that advice is right.
func (c *Console) approveRecommendation(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	form := r.PostForm.Get
	rec, err := c.o.Runs.Recommendation(r.Context(), r.PathValue("id"))
	if err == nil && rec.State == run.Pending && rec.Call.Approval != "" {
		var q desk.Question
		if q, err = c.o.Gateway.Desk().Question(r.Context(), rec.Call.Approval); err == nil {
			err = checkRead(form, "read", q.Approval)
		}
		if err == nil {
			err = checkTicks(form, q)
		}
	}
	c.respond(w, r, p, err, "approve", desk.Response{Decision: approval.Approve, Reason: form("comment")})
}

func (c *Console) rejectRecommendation(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	c.respond(w, r, p, checkReason(r.PostForm.Get("reason")), "reject", desk.Response{Decision: approval.Reject, Reason: r.PostForm.Get("reason")})
}

func (c *Console) deferRecommendation(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	a, err := c.deferral(r)
	c.respond(w, r, p, err, "defer", a)
}

// respond passes a person's answer on, under the digest of the page that they saw, and shows what became of it.
func (c *Console) respond(w http.ResponseWriter, r *http.Request, p identity.Principal, err error, act string, a desk.Response) {
	id := r.PathValue("id")
	if a.Digest = r.PostForm.Get("digest"); err == nil {
		_, err = c.o.Runs.Respond(r.Context(), voter(p), id, a)
	}
	if err != nil {
		d := recommendationPage{refusedAct: refusedAct{Act: act, Typed: a.Reason}}
		d.Problem, d.status = c.refused(r, p, err, act, "recommendation_id", id)
		c.showRecommendation(w, r, p, d, d.status)
		return
	}
	http.Redirect(w, r, "/recommendations/"+url.PathEscape(id), http.StatusSeeOther)
}
