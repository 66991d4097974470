package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/run"
	"sallyport.example/internal/runner"
)

// starters may ask for runs.
var starters = []identity.Role{identity.Operator, identity.Approver}

// RunBody asks for a run. The input is kept as it was sent: the runner reads it strictly itself.
type RunBody struct {
	Input     json.RawMessage `json:"input" doc:"An object. All texts of a person's input are their words; of a host's only user_request."`
	Own       bool            `json:"own" required:"false" doc:"A person says that an input which is like what an agent said is theirs."`
	Requester string          `json:"requester" required:"false" maxLength:"64" doc:"The person whom a host asks for. It is one of those whom the configuration lists for the host."`
}

// startRun is the request for a run.
type startRun struct {
	PathID
	Key  string `header:"Idempotency-Key" doc:"The same key with the same request starts one run. At most 200 bytes."`
	Body RunBody
}

func (in *startRun) start() runner.Start {
	return runner.Start{Agent: in.ID, Input: in.Body.Input, Requester: in.Body.Requester, Key: in.Key, Own: in.Body.Own}
}

// awaitRun names a run to look at.
type awaitRun struct {
	PathID
	Wait string `query:"wait" doc:"How long to wait for the run to end, such as 55s, which is the most."`
}

// RunPage is a page of runs, the newest first, with the figures of each agent that has had runs lately. Next is "after" for the next page.
type RunPage struct {
	Runs    []run.Run        `json:"runs"`
	Figures []runner.Figures `json:"figures" doc:"Of the last 24 hours, by agent."`
	Next    string           `json:"next,omitempty"`
}

func (a *API) runRoutes(s *side) {
	handle(s, route{method: http.MethodPost, path: "/v1/agents/{id}/runs", roles: starters, status: http.StatusAccepted, summary: "Start a run of an agent; hosts that the configuration lists do so on the agents' side, for a person"},
		func(ctx context.Context, p identity.Principal, in *startRun) (run.Run, error) {
			return a.o.Runs.Start(ctx, p, in.start())
		})
	handle(s, route{method: http.MethodGet, path: "/v1/runs", roles: readers, summary: "Runs, newest first"},
		func(ctx context.Context, _ identity.Principal, in *struct {
			Agent string `query:"agent" maxLength:"64"`
			After string `query:"after" maxLength:"128" doc:"Next of the page before."`
			Limit int    `query:"limit" minimum:"1" maximum:"100" default:"50"`
		}) (RunPage, error) {
			found, err := a.o.Runs.Runs(ctx, run.Filter{Agent: in.Agent, After: in.After, Limit: in.Limit + 1})
			if err != nil {
				return RunPage{}, err
			}
			page := RunPage{Runs: found}
			if len(found) > in.Limit {
				page.Runs, page.Next = found[:in.Limit], found[in.Limit-1].ID
			}
			page.Figures, err = a.o.Runs.Lately(ctx, in.Agent)
			return page, err
		})
	handle(s, route{method: http.MethodGet, path: "/v1/runs/{id}", roles: readers, summary: "A run: its status, output and citations; hosts find those that they started on the agents' side"},
		func(ctx context.Context, _ identity.Principal, in *awaitRun) (run.Run, error) {
			wait, err := waitOf(in.Wait)
			if err != nil {
				return run.Run{}, err
			}
			return a.o.Runs.Run(ctx, in.ID, wait)
		})
	handle(s, route{method: http.MethodPost, path: "/v1/runs/{id}/cancel", roles: starters, emptyBody: true, noConfirmation: true, summary: "End a run; what it had is discarded. Hosts end those that they started on the agents' side"},
		func(ctx context.Context, p identity.Principal, in *PathID) (run.Run, error) {
			return a.o.Runs.Cancel(ctx, p, in.ID)
		})
}

// hostRunRoutes are for hosts with a person's authority. Whatever else has a credential of the agents' side is refused, on record.
func (a *API) hostRunRoutes(s *side) {
	handle(s, route{twin: true, method: http.MethodPost, path: "/v1/agents/{id}/runs", status: http.StatusAccepted, summary: "Start a run of an agent for a person; for hosts that the configuration lists"},
		func(ctx context.Context, p identity.Principal, in *startRun) (run.Run, error) {
			return a.o.Runs.Start(ctx, p, in.start())
		})
	own := func(ctx context.Context, p identity.Principal, id string) error {
		if p.Kind != identity.Host {
			return fault.New(fault.CredentialWrongKind, "Runs are for people, and for hosts with a person's authority.")
		}
		r, err := a.o.Runs.Run(ctx, id, 0)
		if err == nil && r.StartedBy != p.String() {
			err = fault.New(fault.NotFound, "There is no run %.80q for this credential.", id).At("run_id").Try("A host sees the runs that it started.")
		}
		return err
	}
	handle(s, route{twin: true, method: http.MethodGet, path: "/v1/runs/{id}", summary: "A run that the host started"},
		func(ctx context.Context, p identity.Principal, in *awaitRun) (run.Run, error) {
			wait, err := waitOf(in.Wait)
			if err == nil {
				err = own(ctx, p, in.ID)
			}
			if err != nil {
				return run.Run{}, err
			}
			return a.o.Runs.Run(ctx, in.ID, wait)
		})
	handle(s, route{twin: true, method: http.MethodPost, path: "/v1/runs/{id}/cancel", emptyBody: true, summary: "End a run that the host started"},
		func(ctx context.Context, p identity.Principal, in *PathID) (run.Run, error) {
			if err := own(ctx, p, in.ID); err != nil {
				return run.Run{}, err
			}
			return a.o.Runs.Cancel(ctx, p, in.ID)
		})
}
