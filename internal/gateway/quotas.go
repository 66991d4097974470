package gateway

import (
	"context"
	"errors"
	"slices"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/limit"
	"sallyport.example/internal/quota"
)

// OverQuota is the refusal of a call for which a quota of its agent has no room.
func OverQuota(e *quota.Exceeded) error {
	return fault.New(fault.LimitQuota, "The agent has %s.", e.Error()).Try("%s", e.Remedy()).Try("An operator can change quotas in the agent's declaration.")
}

// limits are those that the call is counted under, with whose they are: tokens and cost are of models, and those of a run are one sum.
func (c *crossing) limits() (agent string, all []quota.Limit) {
	agent, declared := c.decl.Limits()
	asks := effect.Asks(c.effect)
	for _, l := range declared {
		if asks || !ofModels(l) {
			all = append(all, l)
		}
	}
	if asks && c.session.Run != "" {
		all = append(all, quota.Limit{Resource: quota.Tokens, Window: quota.Run, Session: c.session.ID, Most: int64(c.decl.MaxTokens)})
	}
	return agent, all
}

// ofModels tells the limits of what models use.
func ofModels(l quota.Limit) bool { return l.Resource == quota.Tokens || l.Resource == quota.Cost }

// terms are what becomes of the call's request to a model.
func (c *crossing) terms() (t effect.Terms, err error) {
	if c.op.Model.Mask {
		t.Mask = func(request []byte) ([]byte, []string) { return c.g.o.Detector.Mask(c.g.o.MaskKey, request) }
	}
	t.Hosted, t.Schema = c.decl.HostedTools, c.checks
	t.Output, t.Hold = int64(c.decl.MaxTokens), c.decl.Stream == agent.StreamsHeld
	who, limits := c.limits()
	for _, l := range limits {
		t.Counted = t.Counted || ofModels(l)
		if l.Resource == quota.Cost && c.op.Model.Price == nil {
			return t, fault.New(fault.LimitQuota, "The agent has a quota of cost, and nobody has said what the model %s costs.", c.op.Model.ID).Try("An operator can write its price under models in sallyport.yaml.")
		}
		if l.Window != quota.Run {
			continue
		}
		u, err := c.g.store.QuotaUse(context.Background(), who, l)
		if err != nil {
			return t, err
		}
		left := u.Left(l)
		t.Left, t.Hold = &left, true
	}
	return t, nil
}

// overQuota tells whether a quota of the agent has no room for this call, so that nobody is asked about one that can't run. What counts is the intent's
// transaction. A call of an agent without quotas costs nothing here.
func (c *crossing) overQuota(now time.Time) (over *quota.Exceeded, err error) {
	claim := c.claims()
	if claim == nil {
		return nil, nil
	}
	for _, l := range claim.Limits {
		u, err := c.g.store.QuotaUse(context.Background(), claim.Agent, l)
		if err != nil {
			return nil, err
		}
		if u = u.At(l, now); c.partial { // what it would use is not known yet
			if u.Left(l) == 0 {
				return &quota.Exceeded{Limit: l, Use: u}, nil
			}
			continue
		}
		if _, err := u.Take(l, claim.Amount[l.Resource], claim.Reserve(l, u)); errors.As(err, &over) {
			return over, nil
		}
	}
	return nil, nil
}

// claims is what the call takes of its agent's quotas; nil if there are none. The time that it may take at most, and the tokens with what they may cost, are
// set aside until its outcome says what it used.
func (c *crossing) claims() *quota.Claim {
	agent, limits := c.limits()
	if len(limits) == 0 {
		return nil
	}
	bound := c.bound()
	if c.session.Budget > 0 {
		bound = min(bound, max(c.session.BudgetLeft(), time.Millisecond))
	}
	claim := &quota.Claim{
		Agent: agent, Limits: limits,
		Amount: map[quota.Resource]int64{quota.APICalls: 1}, Bound: map[quota.Resource]int64{quota.ComputeSeconds: max(1, bound.Milliseconds())},
	}
	if slices.ContainsFunc(limits, ofModels) {
		claim.Bound[quota.Tokens], claim.Bound[quota.Cost] = effect.Uses(c.effect, c.args)
	}
	return claim
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
	err := g.eachQuota(ctx, only, func(agent string, l quota.Limit, u quota.Use) { all = append(all, quota.StatusOf(agent, l, u, now)) })
	return all, err
}

// Throttles are how fast the declared agents may call, of those whose declaration says so; of one agent, or of all ("").
func (g *Gateway) Throttles(only string) []limit.Throttle {
	all, now := []limit.Throttle{}, g.now()
	for _, d := range g.Agents().All() {
		if n, of := d.CallsPerMinute(), agent.Base(d.AgentID); n > 0 && (only == "" || of == only) {
			all = append(all, g.sessions.paceOf(of).Throttle(of, n, now))
		}
	}
	return all
}

// QuotaMarks are the marks that the quotas of the declared agents stand at now.
func (g *Gateway) QuotaMarks(ctx context.Context) (all []quota.Mark, err error) {
	now := g.now()
	err = g.eachQuota(ctx, "", func(agent string, l quota.Limit, u quota.Use) {
		if m, passed := quota.Standing(agent, l, u.At(l, now)); passed {
			all = append(all, m)
		}
	})
	return all, err
}

// eachQuota hands over the quotas of the declared agents, or of one, with the use in the newest window that was counted.
func (g *Gateway) eachQuota(ctx context.Context, only string, f func(agent string, l quota.Limit, u quota.Use)) error {
	for _, d := range g.Agents().All() {
		agent, limits := d.Limits()
		if only != "" && agent != only {
			continue
		}
		for _, l := range limits {
			u, err := g.store.QuotaUse(ctx, agent, l)
			if err != nil {
				return err
			}
			f(agent, l, u)
		}
	}
	return nil
}
