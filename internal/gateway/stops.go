package gateway

import (
	"context"
	"encoding/json"
	"time"

	"sallyport.example/internal/audit"
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
				err = g.noteDegraded(g.background.running)
			}
			if err == nil {
				break
			}
			g.log.Warn("what follows from a stopped agent is not written down yet; its requests permit nothing", "error", err)
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
	const reason = "The agent was stopped after it submitted this plan: by the kill switch or by a quarantine."
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
	return g.takePhasesBack(ctx)
}

// pageOfSessions is how many sessions are read at once.
const pageOfSessions = 200

// takePhasesBack writes down which plans, and execution phases that a plan had opened, no longer count: a stop reached the agent, or the gateway enforces
// what it only observed when a rule approved the plan. It is so already (session.PhaseAt, crossing.plan).
func (g *Gateway) takePhasesBack(ctx context.Context) error {
	for after := ""; ; {
		page, err := g.store.SessionsPage(ctx, after, pageOfSessions, session.Open)
		if err != nil {
			return err
		}
		for _, s := range page.Sessions {
			after = s.ID
			if err := g.takeOrderBack(ctx, s); err != nil {
				return err
			}
			observing := g.settings.Load().rules.Observe
			if !s.TakenBack(g.standing.StopEpoch(s.Agent), observing) {
				continue
			}
			by, reason, plan := "rule:enforce", "The plan was approved while the gateway only observed. It enforces now.", ""
			if s.Plan != nil {
				plan = s.Plan.ID
			}
			if o := s.Opened; o != nil && o.StopEpoch != g.standing.StopEpoch(s.Agent) {
				by, reason, plan = "rule:stopped", "The agent was stopped after it submitted the plan that had opened the execution phase: by the kill switch or by a quarantine.", o.Plan
			}
			detail, _ := json.Marshal(map[string]any{"phase": s.PhaseAt(g.standing.StopEpoch(s.Agent), observing), "from": s.Phase, "plan_id": plan}) // of plain values: can't fail
			_, err := g.change(ctx, s.ID, audit.Entry{Action: "session.phase", Actor: by, Reason: reason, Detail: detail}, func(s session.Session) (session.Session, error) {
				return s.TakeBack(g.standing.StopEpoch(s.Agent), observing, by, reason, g.now())
			})
			if err != nil && !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.SessionClosed) { // moved by a person meanwhile, or closed
				return err
			}
		}
		if len(page.Sessions) < pageOfSessions {
			return nil
		}
	}
}

// takeOrderBack writes down that a stop took back what a person had ordered for the agent's next conversation. It is so already (session.Ordered).
func (g *Gateway) takeOrderBack(ctx context.Context, s session.Session) error {
	if s.Next == nil || g.ordered(s) {
		return nil
	}
	const reason = "The agent was stopped after a fresh session was ordered for its next conversation: by the kill switch or by a quarantine."
	_, err := g.change(ctx, s.ID, audit.Entry{Action: "session.next", Actor: "rule:stopped", Reason: reason, Detail: json.RawMessage(`{"taken_back":true}`)},
		func(s session.Session) (session.Session, error) {
			return s.TakeBackOrder(g.standing.StopEpoch(s.Agent))
		})
	if fault.Is(err, fault.Conflict) { // ordered anew meanwhile
		return nil
	}
	return err
}

// stoppedSince tells whether the agent was stopped after a plan was submitted.
func (g *Gateway) stoppedSince(s *session.Session) bool {
	return s.Plan.StopEpoch != g.standing.StopEpoch(s.Agent)
}
