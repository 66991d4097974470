package httpapi

import (
	"context"
	"net/http"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/trial"
)

// TrialBody says what becomes of a trial.
type TrialBody struct {
	Do string `json:"do" enum:"begin,change,end"`
}

// trialRoutes are for sallyport doctor --live.
func (a *API) trialRoutes(s *side) {
	handle(s, route{method: http.MethodPost, path: "/v1/trial", roles: operator, summary: "Begin, change or end a trial of the controls"},
		func(ctx context.Context, p identity.Principal, in *struct{ Body TrialBody }) (trial.Here, error) {
			switch {
			case a.o.Trials == nil:
				return trial.Here{}, fault.New(fault.NotFound, "This gateway has no trials.")
			case in.Body.Do == "begin":
				return a.o.Trials.Begin(ctx, p.String())
			case in.Body.Do == "change":
				return trial.Here{}, a.o.Trials.Change(ctx, p.String())
			}
			return trial.Here{}, a.o.Trials.End(ctx, p.String())
		})
}
