package gateway

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/policy"
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
	if !c.looked || c.lookErr != nil {
		if c.lookErr == nil {
			return errNotLooked
		}
		return c.lookErr
	}
	s := c.raised()
	var around policy.Context
	if !c.vouched() { // that is what provenance relieves
		for _, h := range s.Labels {
			switch h.Label {
			case flow.Untrusted:
				around.Untrusted = true
			case flow.Unasked: // of data whose label is there too
			default:
				around.Contaminated, around.Labels = true, append(around.Labels, string(h.Label))
			}
		}
	}
	followed, inPlan := c.follow()
	around.LeftPlan, around.Vouched = c.sealed() && !inPlan, c.vouched() && s.Holds(flow.Untrusted)
	if followed.Firm { // what the session has read had no say in it
		around.Untrusted = false
	}
	if followed.Exact { // nor is there anything in it but what the plan says
		around.Contaminated, around.Labels = false, nil
	}
	for _, key := range c.first {
		switch kind, _, _ := strings.Cut(key, ":"); kind {
		case "tool":
			around.NewTool = true
		case "destination":
			around.FirstDestination = true
		}
	}
	around.FirstDestination = around.FirstDestination && !c.personNamed()
	c.rating = c.g.o.Risk.Rate(policy.Subject{
		Action: c.op.Class.Action, Floor: c.op.Class.RiskFloor, Roles: c.op.Class.Roles, Arguments: c.args,
		Write: c.consequential(), Acts: c.acts(), Context: around,
	})
	if c.writes() && !c.consequential() && c.op.Class.Action == "" {
		c.rating.Consequence = "It changes what only the person sees, and can undo. The change may be wrong."
	}
	c.rated = true
	return nil
}

// errNotLooked is a defect: a stage may not be judged on what nobody looked up.
var errNotLooked = fault.New(fault.Internal, "the risk stage before what it needs was looked up")

// consequential tells whether the call changes something that more than the person sees.
func (c *crossing) consequential() bool {
	return c.writes() && c.op.Class.Level != seldom
}

// spokenFor is how long silence permits nothing alike after a person said anything but yes about an operation of an agent's.
const spokenFor = 24 * time.Hour

// lookAround finds what the flow and risk stages need of the store: where the arguments came from, what the call would use that its agent has
// not used before, and whether people have spoken about the like. Only what could raise the risk is looked up. What goes wrong is said by the
// stage, in its turn.
func (c *crossing) lookAround(ctx context.Context) {
	if c.looked {
		return
	}
	c.looked, c.first, c.lookErr = true, nil, nil
	c.trace(ctx)
	c.findStep(ctx)
	if c.yes, c.lookErr = c.askedOnce(ctx); c.lookErr != nil {
		return
	}
	if c.known == nil {
		c.known = map[string]bool{}
	}
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
			keys = append(keys, "destination:"+c.op.ID+"\x00"+d)
		}
		for _, key := range keys {
			used, known := c.known[key]
			if !known {
				if used, c.lookErr = c.g.o.Store.Used(ctx, c.usedKey(key)); c.lookErr != nil {
					return
				}
				c.known[key] = used
			}
			if !used {
				c.first = append(c.first, key)
			}
		}
	}
	if c.rate() == nil && c.rating.Risk == policy.Medium && !c.spoken && !c.r.DryRun { // of nothing else it matters
		c.spoken, c.lookErr = c.g.o.Store.Spoken(ctx, c.agent, c.op.ID, c.g.now().Add(-spokenFor))
	}
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
	person := c.unvouched() && c.g.o.Mode != Shadow // decides anyway: there is nothing for silence to permit
	if c.approval != nil || !asks && (person || rating.Risk.Rank() < policy.Medium.Rank()) {
		return fault.Permitted()
	}
	var v fault.Verdict
	switch {
	case !asks && c.spoken:
		v = askFor(stage, fmt.Sprintf("%s is of risk %s, and a person has stopped the like lately, or more waits than people could stop: a person must decide.", c.op.Name, rating.Risk))
	case !asks && c.op.AskFirst:
		v = askFor(stage, fmt.Sprintf("%s is of risk %s, and no entry of the configuration names it: a person must decide.", c.op.Name, rating.Risk))
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
	c.silence = !asks && !c.spoken && !c.op.AskFirst && rating.Risk == policy.Medium // who is asked about more than the risk has to answer
	return v
}
