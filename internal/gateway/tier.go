package gateway

import (
	"cmp"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/session"
)

// Tier is what agents of one trust tier may do unasked and how often (DE-3). A zero field is the gateway's own limit.
type Tier struct {
	CommRequestsPerMinute int           // external requests that one session may start in any minute (EX-5)
	CallsPerMinute        int           // calls of any kind
	Budget                time.Duration // time in operations over a session's life (EX-6)
	AskFrom               policy.Risk   // the risk from which a person decides on a declared operation; "" is HIGH
	PlansWait             bool          // a person decides on every plan
}

// The built-in tiers. Standard is that of an agent whose declaration names none.
const (
	TierRestricted = "restricted"
	TierStandard   = "standard"
	TierTrusted    = "trusted"
)

// Tiers returns the built-in tiers by name.
func Tiers() map[string]Tier {
	return map[string]Tier{
		TierRestricted: {CommRequestsPerMinute: 5, AskFrom: policy.Low},
		TierStandard:   {AskFrom: policy.High},
		TierTrusted:    {CommRequestsPerMinute: 30, AskFrom: policy.High},
	}
}

// tierOf is the tier of an agent with nothing left to default. A tier that nobody configured is the restricted one: an operator who
// mistyped a word has not granted more.
func (s *settings) tierOf(d *agent.Declaration) Tier {
	t, ok := s.Tiers[cmp.Or(d.TrustTier, TierStandard)]
	if !ok {
		t = Tiers()[TierRestricted]
	}
	t.CommRequestsPerMinute = cmp.Or(t.CommRequestsPerMinute, s.Limits.CommRequestsPerMinute)
	t.CallsPerMinute = cmp.Or(t.CallsPerMinute, s.Limits.CallsPerMinute)
	t.Budget = cmp.Or(t.Budget, s.Limits.Budget)
	if t.AskFrom == "" || t.AskFrom.Rank() > policy.High.Rank() { // HIGH is people's to decide, whatever a tier says (HI-2)
		t.AskFrom = policy.High
	}
	return t
}

// plansWait says why a person decides on every plan in a session; "": a rule may. The agent's tier demands it, or its declaration does, or the session is
// autonomous, so that no rule may let it act (AG-5). The built-in agent works for whoever started the gateway at a terminal.
func (s *settings) plansWait(d *agent.Declaration, in *session.Session) string {
	switch {
	case in.Autonomous() && !d.BuiltIn():
		return "Nobody but the agent opened this session, so a person decides on every plan in it."
	case d.PlanApproval == agent.PlansByPerson || s.tierOf(d).PlansWait:
		return "A person decides on every plan of this agent."
	}
	return ""
}

// CallsPerMinute is how many calls a session of the agent may make in any minute; 0: as many as it likes.
func (g *Gateway) CallsPerMinute(agent string) int { return g.tierOfAgent(agent).CallsPerMinute }

// tierOfAgent is the tier of an agent by its id; of one that is no longer declared the restricted one.
func (g *Gateway) tierOfAgent(id string) Tier {
	set := g.settings.Load()
	if d, ok := set.Agents.Get(id); ok {
		return set.tierOf(d)
	}
	return set.tierOf(&agent.Declaration{TrustTier: TierRestricted})
}
