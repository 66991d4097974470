package gateway

import (
	"context"
	"time"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/session"
)

// voidStopped has followStops look for what waits of agents that were stopped. It never blocks.
func (g *Gateway) voidStopped() {
	select {
	case g.stops <- struct{}{}:
	default:
	}
}

// followStops withdraws what waits for people, and what they approved and no call has used, once the agent that asked was stopped. It writes down what
// holds already: the stop epoch of each is past, so none of it permits a call, whenever this comes and whether or not it does.
func (g *Gateway) followStops() {
	const pause = 250 * time.Millisecond // between attempts while the store refuses
	for {
		select {
		case <-g.stops:
		case <-g.background.running.Done():
			return
		}
		for {
			err := g.withdrawStopped(g.background.running)
			if err == nil {
				break
			}
			g.log.Warn("requests of a stopped agent are not withdrawn yet; they permit nothing", "error", err)
			select {
			case <-time.After(pause):
			case <-g.background.running.Done():
				return
			}
		}
	}
}

func (g *Gateway) withdrawStopped(ctx context.Context) error {
	if err := g.desk.WithdrawStopped(ctx); err != nil {
		return err
	}
	const reason = "The agent was stopped after it submitted this plan: the kill switch was pulled, or the agent was quarantined."
	_, all, err := g.store.WaitingPlans(ctx, 0)
	if err != nil {
		return err
	}
	waiting, _, err := g.store.WaitingPlans(ctx, int(all))
	if err != nil {
		return err
	}
	for _, s := range waiting {
		if !g.stoppedSince(&s) {
			continue
		}
		_, err := g.DecidePlan(ctx, s.ID, s.Plan.Digest, false, "rule:stopped", reason)
		if err != nil && !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.ApprovalMismatch) && !fault.Is(err, fault.SessionClosed) { // decided meanwhile
			return err
		}
	}
	return nil
}

// stoppedSince tells whether the agent was stopped after a plan was submitted.
func (g *Gateway) stoppedSince(s *session.Session) bool {
	return s.Plan.StopEpoch != g.standing.StopEpoch(s.Agent)
}
