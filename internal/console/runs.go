package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/run"
	"sallyport.example/internal/runner"
)

// pageOfRuns is how many runs, or recommendations, a page has.
const pageOfRuns = 50

// runsPage shows runs, newest first, and how those of the last day went, by agent.
type runsPage struct {
	Agent   string // "": of all agents
	Runs    []run.Run
	Figures []runner.Figures
	After   string
	Next    string // link to the page after, or ""
	Refresh string // this page
}

func (c *Console) runs(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	q := r.URL.Query()
	d := runsPage{Agent: q.Get("agent"), After: q.Get("after")}
	ctx, cancel := context.WithTimeout(r.Context(), storeTime)
	defer cancel()
	found, err := c.o.Runs.Runs(ctx, run.Filter{Agent: d.Agent, After: d.After, Limit: pageOfRuns + 1})
	if err == nil {
		d.Figures, err = c.o.Runs.Lately(ctx, d.Agent)
	}
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	if d.Runs = found; len(found) > pageOfRuns {
		d.Runs = found[:pageOfRuns]
		d.Next = link("/runs", "agent", d.Agent, "after", found[pageOfRuns-1].ID)
	}
	d.Refresh = link("/runs", "agent", d.Agent, "after", d.After)
	c.show(w, r, p, view{template: "runs", title: "Runs", place: "/runs", data: d})
}

// runPage shows one run, while it runs and after.
type runPage struct {
	run.Run
	refusedAct
	Starter  bool // this person may end it
	Exact    []piece
	Said     []piece // the output
	Progress []step  // its calls, oldest first
	More     bool    // it has more calls than are shown
	Missing  string
}

// step is a call of a run.
type step struct {
	Operation, CallID, Fate string
	At                      time.Time
}

// shownSteps bounds the calls that the page of a run names.
const shownSteps = 50

// Took is how long the run lasted.
func (d runPage) Took() time.Duration { return d.Ended.Sub(d.Started).Round(time.Millisecond) }

// Proof says how much the citations prove.
func (d runPage) Proof() string { return run.Proof(d.Citations) }

// startsRuns tells whether the person may start and end runs, as in the HTTP API.
func startsRuns(p identity.Principal) bool {
	return p.Has(identity.Operator) || p.Has(identity.Approver)
}

func (c *Console) showRun(w http.ResponseWriter, r *http.Request, p identity.Principal, d runPage, status int) {
	ctx, cancel := context.WithTimeout(r.Context(), storeTime)
	defer cancel()
	found, err := c.o.Runs.Run(ctx, r.PathValue("id"), 0)
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	d.Run, d.Starter, d.Exact, d.Said = found, startsRuns(p), exactly(found.Input), exactly(found.Output)
	if err := c.progress(ctx, &d); err != nil {
		d.Missing = c.missing("the calls of a run", err)
	}
	c.show(w, r, p, view{template: "run", title: "Run of " + found.Agent, place: "/runs", status: status, data: d})
}

// progress reads the calls that a run has made so far.
func (c *Console) progress(ctx context.Context, d *runPage) error {
	if d.Session == "" {
		return nil
	}
	page, next, err := c.o.Store.Entries(ctx, audit.Filter{Session: d.Session, From: d.Started.Add(-time.Minute)})
	at := map[string]int{}
	for _, e := range page {
		i, known := at[e.CallID]
		switch {
		case e.Kind == audit.Intent && !known && len(d.Progress) < shownSteps:
			at[e.CallID] = len(d.Progress)
			d.Progress = append(d.Progress, step{Operation: e.Operation, CallID: e.CallID, At: e.At, Fate: "under way"})
		case e.Kind == audit.Intent && !known:
			d.More = true
		case e.Kind == audit.Outcome && known:
			d.Progress[i].Fate = map[bool]string{true: "done", false: "failed"}[e.Decision == "ok"]
		}
	}
	d.More = d.More || next >= 0
	return err
}

// RunKey makes the form of a run start one run, however often it is sent.
func (d agentPage) RunKey() string { return call.NewID("form_", time.Now()) }

// Starter tells whether the person may start a run of the agent.
func (d agentPage) Starter() bool { return d.Declaration.Run != nil && (d.Operator || d.Approver) }

// startRun starts a run with what a person typed: what they ask for, and further input as a JSON object.
func (c *Console) startRun(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	form := r.PostForm.Get
	input, err := typedInput(form("request"), form("input"))
	var started run.Run
	if err == nil {
		started, err = c.o.Runs.Start(r.Context(), p, runner.Start{Agent: r.PathValue("id"), Input: input, Key: form("key"), Own: form("own") == "yes"})
	}
	if err != nil {
		d := agentPage{refusedAct: refusedAct{Act: "run", Typed: form("request")}, TypedInput: form("input"), AskOwn: errors.Is(err, runner.ErrReturned)}
		d.Problem, d.status = c.refused(r, p, err, "run", "id", r.PathValue("id"))
		c.showAgent(w, r, p, d, d.status)
		return
	}
	http.Redirect(w, r, "/runs/"+url.PathEscape(started.ID), http.StatusSeeOther)
}

// typedInput is the input of a run: a JSON object with what the person asks for in it.
func typedInput(request, input string) (json.RawMessage, error) {
	input = cmp.Or(strings.TrimSpace(input), "{}")
	if request = strings.TrimSpace(request); request == "" {
		return json.RawMessage(input), nil
	}
	given, err := run.ReadInput(json.RawMessage(input))
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := call.Decode(given, &members); err != nil {
		return nil, fault.Wrap(err, fault.RequestMalformed, "must be a JSON object").At("input")
	}
	if _, twice := members[run.UserRequest]; twice {
		return nil, fault.New(fault.RequestMalformed, "has %s, and so has the field above it: say it once", run.UserRequest).At("input")
	}
	if members[run.UserRequest], err = call.Encode(request); err != nil {
		return nil, err
	}
	return call.Encode(members)
}

// cancelRun ends a run.
func (c *Console) cancelRun(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	id := r.PathValue("id")
	if _, err := c.o.Runs.Cancel(r.Context(), p, id); err != nil {
		d := runPage{refusedAct: refusedAct{Act: "cancel"}}
		d.Problem, d.status = c.refused(r, p, err, "cancel", "id", id)
		c.showRun(w, r, p, d, d.status)
		return
	}
	http.Redirect(w, r, "/runs/"+url.PathEscape(id), http.StatusSeeOther)
}
