package gateway

import (
	"context"
	"time"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/quota"
)

// OverQuota is the refusal of a call for which a quota of its agent has no room.
func OverQuota(e *quota.Exceeded) error {
	return fault.New(fault.LimitQuota, "The agent has %s.", e.Error()).
		Try("Wait until %s, or ask an operator for a larger quota in the agent's declaration.", e.Use.Frees(e.Limit).Format(time.RFC3339))
}

// overQuota tells whether a quota of the agent has no room for this call, so that nobody is asked about one that can't run. What counts is the intent's
// transaction. A call of an agent without quotas costs nothing here.
func (c *crossing) overQuota(now time.Time) (over *quota.Exceeded, err error) {
	agent, limits := c.decl.Limits()
	for _, l := range limits {
		u, err := c.g.store.QuotaUse(context.Background(), agent, l)
		if err != nil {
			return nil, err
		}
		if u = u.At(l, now); u.Left(l) == 0 {
			return &quota.Exceeded{Limit: l, Use: u}, nil
		}
	}
	return nil, nil
}

// claims is what the call takes of its agent's quotas; nil if there are none. The time that it may take at most is set aside until its outcome says what it
// took.
func (c *crossing) claims() *quota.Claim {
	agent, limits := c.decl.Limits()
	if len(limits) == 0 {
		return nil
	}
	bound := c.bound()
	if c.session.Budget > 0 {
		bound = min(bound, max(c.session.BudgetLeft(), time.Millisecond))
	}
	return &quota.Claim{
		Agent: agent, Limits: limits,
		Amount: map[quota.Resource]int64{quota.APICalls: 1}, Bound: map[quota.Resource]int64{quota.ComputeSeconds: max(1, bound.Milliseconds())},
	}
}

// bound is the time that the operation may take, but for the session's budget and the agent's quotas.
func (c *crossing) bound() time.Duration {
	if t := c.op.Class.Timeout; t > 0 {
		return min(maxAct, t)
	}
	return maxAct
}

// Quotas are the quotas of the declared agents with what is used of them; of one agent, or of all ("").
func (g *Gateway) Quotas(ctx context.Context, only string) ([]quota.Status, error) {
	all, now := []quota.Status{}, g.now()
	for _, d := range g.Agents().All() {
		agent, limits := d.Limits()
		if only != "" && agent != only {
			continue
		}
		for _, l := range limits {
			u, err := g.store.QuotaUse(ctx, agent, l)
			if err != nil {
				return nil, err
			}
			all = append(all, quota.StatusOf(agent, l, u, now))
		}
	}
	return all, nil
}
