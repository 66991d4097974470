package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/judge"
)

// paired is what a call of a tool has of the operation that it is judged together with: the one that it falls back to, or the one that failed and whose
// fallback it is (TH-8).
type paired struct {
	beside *catalogue.Operation // nil: there is none
	other  *crossing            // the same call of that, judged and never made; nil: it is not judged yet
	aside  bool                 // this is such a call
}

// standIn is what the fallback of a tool's call has from the call that failed.
type standIn struct {
	of       string             // the operation that failed
	approval *approval.Approval // of that call; nil: it had none
	spent    bool               // by that call
}

// pair finds the operation that the call is judged together with, and makes the digest of both.
func (c *crossing) pair(snap *catalogue.Snapshot) error {
	before := c.beside
	c.beside, c.other = nil, nil
	if s := c.r.standIn; s != nil {
		if c.beside = snap.ByID(s.of); c.beside == nil {
			return fault.New(fault.ToolUnknown, "The tool that failed is gone.").Try("Look at the list of tools again.")
		}
	} else if server := c.set.Fallbacks[c.op.Server]; server != "" && c.r.Method == call.CallTool && c.op.Kind == call.Tool && c.declaration == nil && c.answers == nil {
		if op := snap.ByID(server + "." + c.op.Tool); op != nil && c.takesTheSame(op) {
			c.beside = op
		}
	}
	if c.digest == "" || !same(before, c.beside) {
		c.digest = c.digested(c.op, c.effect.Definition(), c.beside)
	}
	return nil
}

// same tells whether a person who was shown the one operation was shown the other.
func same(a, b *catalogue.Operation) bool {
	return a == b || a != nil && b != nil && a.ID == b.ID && a.Hash == b.Hash && a.Launch == b.Launch
}

// takesTheSame tells whether the operation can be called with the very arguments of the call.
func (c *crossing) takesTheSame(op *catalogue.Operation) bool {
	if op.Kind != call.Tool || op.Standing != catalogue.Active {
		return false
	}
	arguments, err := op.WithDefaults(c.args, nil)
	return err == nil && bytes.Equal(arguments, c.args) && op.CheckArguments(c.args) == nil
}

// judge judges the call as everything is now, with no person's answer to it. Where another operation may come in its place, or it is made in the place of another one, both
// are judged, and the stricter verdict holds.
func (c *crossing) judge(ctx context.Context) fault.Verdict {
	v := c.judgeAlone(ctx)
	if c.other = nil; c.beside == nil || v.Decision == fault.Deny {
		return v
	}
	c.other = &crossing{g: c.g, r: c.r, moment: c.moment, id: c.id, request: c.request, speaker: c.speaker, subject: c.subject, taken: c.taken, asking: c.asking, paired: paired{aside: true}}
	c.other.taken.call, c.other.taken.request = true, true // it is one call, whichever server has it
	c.other.use(effect.Of(c.beside))
	c.other.understand()
	c.other.judgeAlone(ctx)
	c.stricter()
	return c.judged.verdict
}

// stricter puts the stricter of the two verdicts, and the higher risk, in the place of the call's own. The plan of the session names the one operation that
// is called: that the other one is in no plan is asked about when it is called.
func (c *crossing) stricter() {
	own, other := &c.judged, &c.other.judged
	about := "Its fallback"
	if c.r.standIn != nil {
		about = "It takes the place of " + c.beside.ID + ", and that call"
	}
	switch {
	case other.verdict.Decision == fault.Deny:
		own.verdict = other.verdict
		own.verdict.Reason = fmt.Sprintf("%s %s may not be made: %s", about, c.beside.ID, other.verdict.Reason)
	case other.verdict.Decision == fault.Ask && !own.facts.Evidence.Follows:
		silence := other.found.Silence && (own.verdict.Decision == fault.Permit || own.found.Silence)
		own.verdict = judge.BothAsk(own.verdict, other.verdict)
		own.found.Silence = silence
	}
	if other.found.Rating.Risk.Rank() > own.found.Rating.Risk.Rank() {
		own.found.Rating = other.found.Rating
	}
}

// showsBeside shows people the operation that may come in the place of the one they are asked about, or in whose place that is.
func (c *crossing) showsBeside() []approval.Reason {
	if c.beside == nil {
		return nil
	}
	text := fmt.Sprintf("If %s fails before it has the call, or the call only reads, %s gets the same call.", c.op.Server, c.beside.ID)
	if c.r.standIn != nil {
		text = fmt.Sprintf("It takes the place of %s, which failed.", c.beside.ID)
	}
	if d, ok := c.g.toolDefinition(c.beside.ID); ok && d.Says != nil {
		text += fmt.Sprintf(" The %s describes that tool so: %q", d.Says.By, d.Says.Text)
	}
	return []approval.Reason{{Stage: "act", Code: "fallback", Text: text + " Its definition: " + c.beside.Hash}}
}

// shownBefore is the approval of the call which failed, where whoever gave it was shown this operation, as it is now, in its place; nil: there is none.
func (c *crossing) shownBefore() *approval.Approval {
	s := c.r.standIn
	if s == nil || s.approval == nil {
		return nil
	}
	a := *s.approval
	if a.CallDigest != c.digested(c.beside, c.beside.Hash, c.op) || a.LaunchHash != c.beside.Launch || a.StopEpoch != c.stops.epoch || !c.g.now().Before(a.ExpiresAt) {
		return nil
	}
	if a.LaunchHash = c.op.Launch; !c.stands(a) { // that is in the digest
		return nil
	}
	return s.approval
}

// spendsApproval says how the call uses up the approval that it runs on: as that of the call which failed, and not at all where that has spent it.
func (c *crossing) spendsApproval(spend *Spend, a *approval.Approval, detail map[string]any) {
	if s := c.r.standIn; s != nil && s.approval == a {
		if s.spent {
			return
		}
		spend.CallDigest = a.CallDigest
	}
	spend.Declaration, spend.Approval = cmp.Or(spend.Declaration, a.DeclarationID), a.ID
	detail["approval_id"] = a.ID
}

// failure says why a call failed that has a fallback or is one, in words without any of the server's or provider's; "" where it did not.
func (c *crossing) failure(out *outcome) string {
	switch {
	case c.g.ending.Load(): // the gateway ended it
		return ""
	case c.beside != nil:
		if out.ended.Failed() {
			return out.verdict.Reason
		}
	case !effect.Asks(c.effect):
	case out.verdict.Decision != fault.Permit && (out.verdict.Code == fault.UpstreamFailed || out.verdict.Code == fault.TimeExceeded):
		return out.verdict.Reason
	case out.verdict.Decision == fault.Permit && effect.ProviderFailed(c.effect, out.result):
		return "The provider says that it can't answer now."
	}
	return ""
}

// canFallBack notes in the answer to a call that failed what can be called in its place. A write whose request may have reached its server is not made twice.
func (c *crossing) canFallBack(a Answer, failure string, err error) Answer {
	var unsent *fault.NotDispatched
	switch {
	case failure == "":
		return a
	case c.beside == nil:
		return c.askInstead(a, failure)
	case c.writes && !errors.As(err, &unsent):
		return a
	}
	return c.callInstead(a, failure)
}

// blocked does the same for a call that was refused because a circuit breaker is open, or its server could not list its tools, so that nothing of it was sent.
func (c *crossing) blocked(a Answer) Answer {
	switch {
	case a.Verdict.Code != fault.BreakerOpen && a.Verdict.Code != fault.UpstreamFailed, c.g.breakers.Look(c.agent, "") != nil: // the agent's own is in the way of both
		return a
	case effect.Asks(c.effect):
		return c.askInstead(a, a.Verdict.Reason)
	case c.beside == nil:
		return a
	}
	return c.callInstead(a, a.Verdict.Reason)
}

func (c *crossing) callInstead(a Answer, failure string) Answer {
	if a.failure = failure; c.r.standIn != nil {
		return a
	}
	a.fallback, a.arguments, a.standIn = c.beside.Name, c.args, &standIn{of: c.op.ID, approval: c.judged.facts.Answer.Approval, spent: c.ran.intended}
	if c.beside.Class.NeedsReasons { // they stand in the arguments
		a.arguments = c.r.Arguments
	}
	return a
}

// fallBack takes a call that failed through the whole corridor again, for its fallback: with an intent, an outcome and rules of its own.
func (g *Gateway) fallBack(ctx context.Context, r Request, first Answer) Answer {
	failed := r.Tool
	r.Tool, r.Arguments, r.failed, r.standIn = first.fallback, first.arguments, first.CallID, first.standIn
	second := g.cross(ctx, r)
	v := second.Verdict
	because := fault.Because{CallID: first.CallID, Code: first.Verdict.Code, Detail: first.failure}
	if because.Code == "" { // an error of the provider's, which is a result
		because.Code = fault.UpstreamFailed
	}
	switch {
	case second.failure != "":
		code, reason, remedies := v.Code, v.Reason, v.Remedies
		if v.Decision == fault.Permit {
			code, reason, remedies = fault.UpstreamFailed, second.failure, []fault.Remedy{{Kind: "wait", Text: "Try again later."}}
		}
		both := fault.Refuse("act", fault.FallbackFailed, fmt.Sprintf("%s failed: %s Its fallback %s failed, too: %s", failed, first.failure, r.Tool, reason), remedies...)
		if first.standIn != nil { // what its server may have had is not to be sent again
			both.Retriable = v.Retriable
		}
		both.RequestID, both.Because = v.RequestID, []fault.Because{because, {CallID: second.CallID, Code: code, Detail: reason}}
		second.Verdict, second.Result = both, nil
	case v.Decision == fault.Deny && v.Code != fault.KillSwitch: // by a rule, which stays the answer: who repeats that gets it again
		second.Verdict.Reason = fmt.Sprintf("%s failed: %s Its fallback %s may not be asked: %s", failed, first.failure, r.Tool, v.Reason)
		second.Verdict.Because = append([]fault.Because{because}, v.Because...)
	case first.standIn != nil && v.Decision == fault.Permit: // a model's client is told by a header
		second.Verdict.Reason = fmt.Sprintf("%s failed: %s Its fallback %s served the call. %s", failed, first.failure, r.Tool, v.Reason)
		second.Verdict.Because = append([]fault.Because{because}, v.Because...)
	}
	return second
}
