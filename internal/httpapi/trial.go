package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/trial"
)

// TrialBody says what becomes of a trial.
type TrialBody struct {
	Do string `json:"do" enum:"begin,change,end"`
}

// trialInput is the input of the trial's route.
type trialInput struct{ Body TrialBody }

// trialTime is how long a person who confirms the beginning of a trial lets its program act.
const trialTime = trial.Longest + time.Minute

// wholeTrial covers what a program does in the trial that it begins: it opens sessions and answers for them, and stops trial agents for a moment.
func wholeTrial(in, _ any) (paths []string, d time.Duration) {
	if in.(*trialInput).Body.Do == "begin" {
		paths, d = []string{"/v1/trial", "/v1/sessions", "/v1/approvals/", "/agents/kill-switch/enable/" + agent.Trial(""), "/v1/agents/" + agent.Trial("")}, trialTime
	}
	return paths, d
}

// trialRoutes are for sallyport doctor --live.
func (a *API) trialRoutes(s *side) {
	handle(s, route{method: http.MethodPost, path: "/v1/trial", roles: operator, covers: wholeTrial, asks: fmt.Sprintf("Try the controls. For %.0f minutes this program opens sessions and answers requests in your name", trialTime.Minutes()), summary: "Begin, change or end a trial of the controls"},
		func(ctx context.Context, p identity.Principal, in *trialInput) (trial.Here, error) {
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
