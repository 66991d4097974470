package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport/flow"
	"sallyport/internal/call"
	"sallyport/internal/fault"
	"sallyport/internal/policy"
	"sallyport/internal/session"
)

// seldom is the level of writes that only the person sees and can undo: context does not make them riskier.
const seldom = 1

// maxDestinations is how many destinations of one call are looked up and remembered.
const maxDestinations = 32

// rate says how risky the call is as the session is now (HI-1). Once per state of the session.
func (c *crossing) rate() error {
	if c.rated {
		return nil
	}
	if err := c.lookAround(); err != nil {
		return err
	}
	s := c.raised()
	var around policy.Context
	for _, h := range s.Labels {
		if h.Label == flow.Untrusted {
			around.Untrusted = true
		} else {
			around.Contaminated, around.Labels = true, append(around.Labels, string(h.Label))
		}
	}
	around.LeftPlan = s.Plan != nil && s.Plan.State == session.PlanApproved && !c.inPlan()
	for _, key := range c.first {
		switch kind, _, _ := strings.Cut(key, ":"); kind {
		case "tool":
			around.NewTool = true
		case "destination":
			around.FirstDestination = true
		}
	}
	c.rating = c.g.o.Risk.Rate(policy.Subject{
		Action: c.op.Class.Action, Floor: c.op.Class.RiskFloor, Roles: c.op.Class.Roles, Arguments: c.args,
		Write: c.consequential(), Context: around,
	})
	c.rated = true
	return nil
}

// consequential tells whether the call changes something that more than the person sees.
func (c *crossing) consequential() bool {
	return c.writes() && c.op.Class.Level != seldom
}

// inPlan tells whether the sealed plan has the call as a step: the operation, and its arguments where the plan fixed them.
func (c *crossing) inPlan() bool {
	return slices.ContainsFunc(c.session.Plan.Steps, func(s session.Step) bool {
		return s.Operation == c.op.ID && (s.Arguments == nil || string(s.Arguments) == string(c.args))
	})
}

// lookAround finds what the call would use that its agent has not used before. Only what could raise the risk is looked up.
func (c *crossing) lookAround() error {
	if c.looked {
		return nil
	}
	c.first = nil
	if c.consequential() {
		var keys []string
		if c.op.Accepted {
			keys = append(keys, "tool:"+c.op.ID+"\x00"+c.op.Hash)
		}
		for i, d := range policy.Destinations(c.op.Class.Roles, c.args) {
			if i == maxDestinations { // so many at once are new in themselves
				c.first = append(c.first, "destination:")
				break
			}
			keys = append(keys, "destination:"+d)
		}
		for _, key := range keys {
			used, err := c.g.o.Store.Used(context.Background(), c.usedKey(key))
			if err != nil {
				return err
			}
			if !used {
				c.first = append(c.first, key)
			}
		}
	}
	c.looked = true
	return nil
}

// usedKey is how the store has what the agent used.
func (c *crossing) usedKey(key string) string {
	return call.HashBytes([]byte(c.agent + "\x00" + key))
}

// usedKeys are those of what the call is the first to use.
func (c *crossing) usedKeys() []string {
	var keys []string
	for _, key := range c.first {
		keys = append(keys, c.usedKey(key))
	}
	return keys
}

// risk: LOW passes; MEDIUM waits for a person's no; what is riskier, or too risky for the agent's tier to be approved by rule, is a person's
// to decide (HI-2, DE-5). A plan's approval is no answer here: it is one person's, and not for one call.
func (c *crossing) risk() fault.Verdict {
	const stage = "risk"
	c.silence = false
	if err := c.rate(); err != nil {
		return fault.RefuseErr(stage, err)
	}
	tier := c.g.tierOf(c.decl)
	if c.op.command == nil && c.declaration == nil { // what nobody has to declare is asked about from where everybody is
		tier.AskFrom = policy.High
	}
	rating := c.rating
	asks := tier.asks(rating.Risk)
	if c.approval != nil || !asks && rating.Risk.Rank() < policy.Medium.Rank() {
		return fault.Permitted()
	}
	var v fault.Verdict
	switch {
	case !asks:
		v = askFor(stage, fmt.Sprintf("%s is of risk %s: it runs in %s unless a person stops it.", c.op.Name, rating.Risk, c.g.o.Limits.MediumDelay.Round(time.Millisecond)))
		v.Remedies = []fault.Remedy{{Kind: "wait", Text: "Make the same call again later: it runs unless a person has stopped it."}}
	case rating.Risk.Rank() >= policy.Critical.Rank():
		v = askFor(stage, fmt.Sprintf("%s is of risk %s, so two people must decide.", c.op.Name, rating.Risk))
	case rating.Risk.Rank() >= policy.High.Rank():
		v = askFor(stage, fmt.Sprintf("%s is of risk %s, so a person must decide.", c.op.Name, rating.Risk))
	default:
		v = askFor(stage, fmt.Sprintf("%s is of risk %s, and of agents of this trust tier a person decides on everything from %s.", c.op.Name, rating.Risk, tier.AskFrom))
	}
	if c.g.o.Mode == Shadow { // only noted, like verdicts of the flow stage
		if c.shadow == nil {
			c.shadow = &v
		}
		return fault.Permitted()
	}
	c.silence = !asks && !c.op.AskFirst // who is asked about more than the risk has to answer
	return v
}
