package gateway

import (
	"context"
	"fmt"

	"sallyport.example/internal/effect"
	"sallyport.example/internal/fault"
)

// canFallBack notes in the answer to a request to a model that failed before anything of it left which model can be asked in its place (TH-8). failure is ""
// for a request that did not fail. One for which the provider may have run a tool is not made twice.
func (c *crossing) canFallBack(a Answer, failure string) Answer {
	if failure == "" || c.ran.left.bytes > 0 || !effect.Asks(c.effect) {
		return a
	}
	a.failure = failure
	if id := c.op.Model.Fallback; id != "" && c.r.failed == "" && len(c.hosted) == 0 && c.decl.UsesModel(id) {
		a.fallback = id
	}
	return a
}

// failure says why a request to a model failed, in words without any of the provider's; "" where it did not.
func (c *crossing) failure(out *outcome) string {
	switch {
	case c.g.ending.Load(): // the gateway ended it
		return ""
	case out.verdict.Decision != fault.Permit && (out.verdict.Code == fault.UpstreamFailed || out.verdict.Code == fault.TimeExceeded):
		return out.verdict.Reason
	case out.verdict.Decision == fault.Permit && effect.ProviderFailed(c.effect, out.result):
		return "The provider says that it can't answer now."
	}
	return ""
}

// fallBack takes a request to a model that failed through the whole corridor again, for its fallback: with an intent, an outcome and rules of its own.
func (g *Gateway) fallBack(ctx context.Context, r Request, first Answer) Answer {
	arguments, err := effect.AskInstead(r.Arguments, first.fallback)
	if err != nil {
		g.log.Error("a request can't be made for another model", "error", err)
		return first
	}
	failed := r.Tool
	r.Tool, r.Arguments, r.failed = first.fallback, arguments, first.CallID
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
		both.RequestID, both.Because = v.RequestID, []fault.Because{because, {CallID: second.CallID, Code: code, Detail: reason}}
		second.Verdict, second.Result = both, nil
	case v.Decision == fault.Deny && v.Code != fault.KillSwitch: // by a rule, which stays the answer: who repeats that gets it again
		second.Verdict.Reason = fmt.Sprintf("%s failed: %s Its fallback %s may not be asked: %s", failed, first.failure, r.Tool, v.Reason)
		second.Verdict.Because = append([]fault.Because{because}, v.Because...)
	}
	return second
}
