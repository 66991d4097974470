package httpapi

import (
	"context"
	"net/http"

	"sallyport.example/internal/breaker"
	"sallyport.example/internal/identity"
)

// BreakerList is the circuit breakers that count something.
type BreakerList struct {
	Breakers []breaker.State `json:"breakers" nullable:"false"`
}

// BreakerTest is what a test of an agent's circuit breaker showed.
type BreakerTest struct {
	Agent     string `json:"agent_id"`
	Refused   bool   `json:"refused" doc:"its calls were refused while the circuit breaker was open"`
	Operation string `json:"operation,omitempty" doc:"the operation whose call was judged; absent where the agent can call nothing just now, so that only the circuit breaker was asked"`
}

func (a *API) breakerRoutes(s *side) {
	list := func(context.Context, identity.Principal, *none) (BreakerList, error) {
		return BreakerList{a.g.Breakers()}, nil
	}
	handle(s, route{method: http.MethodGet, path: "/v1/breakers", roles: readers, summary: "The circuit breakers that are open or count failures"}, list)
	handle(s, route{method: http.MethodPost, path: "/v1/breakers/{name}/reset", roles: operator, summary: "Close a circuit breaker"},
		func(ctx context.Context, p identity.Principal, in *struct {
			Name string `path:"name" maxLength:"160"`
			Body AsideBody
		}) (BreakerList, error) {
			if err := a.g.ResetBreaker(ctx, in.Name, in.Body.Reason, p.String()); err != nil {
				return BreakerList{}, err
			}
			return list(ctx, p, nil)
		})
	handle(s, route{method: http.MethodPost, path: "/v1/agents/{id}/breaker-test", roles: operator, summary: "Test that an agent's circuit breaker refuses its calls"},
		func(ctx context.Context, p identity.Principal, in *PathID) (BreakerTest, error) {
			refused, operation, err := a.g.TestBreaker(ctx, in.ID, p.String())
			return BreakerTest{Agent: in.ID, Refused: refused, Operation: operation}, err
		})
}
