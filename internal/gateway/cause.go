package gateway

import (
	"fmt"
	"slices"
	"strings"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/judge"
)

// What stands in the log of a refusal is why it was refused, also where the agent is told less: that a tool exists which it may not know of,
// or that a session is another's.

// refused is what the agent is told, and keeps what the record says instead.
func (c *crossing) refused(told, cause fault.Verdict) fault.Verdict {
	c.cause = &cause
	return told
}

// refusedErr is a refusal for an error of which the agent may be told less than the record.
func (c *crossing) refusedErr(stage string, err error) fault.Verdict {
	return c.refused(fault.RefuseErr(stage, err), fault.RefuseErr(stage, fault.ForTheRecord(err)))
}

// unknownTool refuses what the agent is told does not exist. If an operation has that name and is withheld, the record names it, and why.
func (c *crossing) unknownTool(snap *snapshot) fault.Verdict {
	const stage = "resolve"
	told := fault.Refuse(stage, fault.ToolUnknown, fmt.Sprintf("There is no tool %q.", short(c.r.Tool)),
		fault.Remedy{Kind: "reorder", Text: "Use one of the tools in the list or the manifest."})
	if c.op == nil {
		c.op = snap.withheldAs(c.r.Method, c.r.Tool)
	}
	if c.op == nil {
		return told
	}
	return c.refused(told, c.op.withheld(c.r.Tool))
}

// withheld says why an operation that has the name is none for agents.
func (op *Operation) withheld(name string) fault.Verdict {
	switch op.Standing {
	case Unlisted:
		return fault.Refuse("permit", fault.PermissionDenied, "No entry under operations names "+op.ID+", and unlisted_operations is deny.")
	case Active: // it is callable, and what it was called for is not
		return fault.Refuse("resolve", fault.ToolUnknown, fmt.Sprintf("The server offers %q in a form that can't be passed on.", short(name)))
	}
	return fault.Refuse("standing", fault.ToolUnknown, op.ID+" can't be offered: "+short(op.Fault))
}

// withheldAs finds the operation that would have the name if it could be called; nil if there is none.
func (s *snapshot) withheldAs(method, name string) *Operation {
	var kinds []call.Kind
	switch method {
	case "tools/call":
		var found *Operation
		for _, op := range s.byID {
			if op.Kind == call.Tool && (op.Standing == Unlisted || op.Standing == Unfit) && op.Name == name && (found == nil || op.ID < found.ID) {
				found = op
			}
		}
		return found
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		kinds = []call.Kind{call.Resource}
	case "prompts/get":
		kinds = []call.Kind{call.Prompt}
	case "completion/complete":
		kinds = []call.Kind{call.Prompt, call.Resource}
	}
	for _, kind := range kinds {
		if i := slices.IndexFunc(s.withheld[kind], func(o Offer) bool {
			return o.Name == name || kind == call.Resource && strings.Contains(o.Name, "{") && templateMatches(o.Name, name)
		}); i >= 0 {
			return s.withheld[kind][i].Operation
		}
	}
	return nil
}

// rules are what a verdict rests on, for the record: labels with the calls that brought them, policies, and the codes of the stages that asked. What was
// found of arguments is on record by itself.
func (c *crossing) rules(v fault.Verdict) (all []fault.Because) {
	traced := c.judged.facts.Traced()
	for _, b := range v.Because {
		if b.Code == "" && b.Label == "" && slices.Contains(traced, b) {
			continue
		}
		if b.Detail = clip(b.Detail); len(all) < judge.MaxShown {
			all = append(all, b)
		}
	}
	return all
}

// Told is what an agent was told of a refusal whose entry says more.
type Told struct {
	Stage  string     `json:"stage"`
	Code   fault.Code `json:"code"`
	Reason string     `json:"reason"`
}
