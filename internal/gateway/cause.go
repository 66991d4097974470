package gateway

import (
	"fmt"
	"slices"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/judge"
)

// What stands in the log of a refusal is why it was refused, also where the agent is told less: that a tool exists which it may not know of,
// or that a session is another's.

// refused is the verdict that the agent is shown. It keeps the cause for the record.
func (c *crossing) refused(shown, cause fault.Verdict) fault.Verdict {
	c.cause = &cause
	return shown
}

// refusedErr is a refusal for an error of which the agent may be told less than the record.
func (c *crossing) refusedErr(stage string, err error) fault.Verdict {
	return c.refused(fault.RefuseErr(stage, err), fault.RefuseErr(stage, fault.ForTheRecord(err)))
}

// unknownTool refuses what the agent is told does not exist. If an operation has that name and is withheld, the record names it, and why.
func (c *crossing) unknownTool(snap *catalogue.Snapshot) fault.Verdict {
	const stage = "resolve"
	shown := fault.Refuse(stage, fault.ToolUnknown, fmt.Sprintf("There is no tool %q.", short(c.r.Tool)),
		fault.Remedy{Kind: "reorder", Text: "Use one of the tools in the list or the manifest."})
	if c.op == nil {
		c.op = effect.Withheld(snap, c.r.Method, c.r.Tool)
	}
	if c.op == nil {
		return shown
	}
	return c.refused(shown, c.op.WhyWithheld(c.r.Tool))
}

// rules are what a verdict rests on, for the record: labels with the calls that brought them, policies, and the codes of the stages that asked. What was
// found of arguments is on record by itself.
func (c *crossing) rules(v fault.Verdict) (all []fault.Because) {
	traced := c.judged.facts.Traced()
	for _, b := range v.Because {
		if b.Code == "" && b.Label == "" && slices.Contains(traced, b) {
			continue
		}
		if b.Detail = audit.Clip(b.Detail); len(all) < judge.MaxShown {
			all = append(all, b)
		}
	}
	return all
}

// Disclosed is the part of a refusal that the agent was given; its entry says more.
type Disclosed struct {
	Stage  string     `json:"stage"`
	Code   fault.Code `json:"code"`
	Reason string     `json:"reason"`
}
