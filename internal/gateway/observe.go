package gateway

import (
	"encoding/json"
	"slices"
	"sync/atomic"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/screen"
)

// Observed counts what a gateway that observes let through since it started, and would have stopped if it enforced.
type Observed struct {
	Refusals  int64 `json:"refusals"`
	Questions int64 `json:"questions"`
}

// ObservingWords say to people that a gateway only observes.
const ObservingWords = "Observing: questions and refusals are recorded, not enforced."

// Observing tells whether the gateway only observes, and what it has let through since it started.
func (g *Gateway) Observing() (Observed, bool) {
	return Observed{g.observed.refusals.Load(), g.observed.questions.Load()}, g.settings.Load().rules.Observe
}

type observed struct{ refusals, questions atomic.Int64 }

// Lifted is a verdict that was only recorded, as it stands in the detail of an entry under "observed".
type Lifted struct {
	Decision fault.Decision  `json:"decision"` // ask or deny
	Stage    string          `json:"stage"`
	Code     fault.Code      `json:"code"`
	Reason   string          `json:"reason"`
	Because  []fault.Because `json:"because,omitempty"`
}

// lifted are the verdicts on the call that were recorded and not enforced; nil if there is none.
func (c *crossing) lifted(found *judge.Finding) (all []Lifted) {
	for _, v := range found.Lifted {
		all = append(all, Lifted{v.Decision, v.Stage, v.Code, audit.Clip(v.Reason), c.rules(v)})
	}
	return all
}

// wouldBe writes into the entry of what was let through the verdict that it would have had.
func wouldBe(e *audit.Entry, v *fault.Verdict) {
	if v != nil {
		e.Shadow, e.Stage, e.Code, e.Reason = true, v.Stage, string(v.Code), audit.Clip(v.Reason)
	}
}

// letThrough counts and logs what was let through, once its entry is durable.
func (g *Gateway) letThrough(e *audit.Entry) {
	if !e.Shadow {
		return
	}
	decision, count := fault.Deny, &g.observed.refusals
	if e.Code == string(fault.ApprovalRequired) {
		decision, count = fault.Ask, &g.observed.questions
	}
	count.Add(1)
	g.log.Info("observed, and not enforced", "action", e.Action, "operation", e.Operation, "agent", e.Agent, "session", e.Session, "call_id", e.CallID,
		"decision", string(decision), "stage", e.Stage, "code", e.Code, "reason", e.Reason)
}

// answerObserved records the verdicts that would have kept an answer to a server's question from being sent.
func (c *crossing) answerObserved(e *audit.Entry, found *judge.Finding, said *screen.Found) {
	wouldBe(e, found.WouldBe())
	detail := map[string]any{}
	if e.Shadow {
		detail["observed"] = c.lifted(found)
	}
	if noteScreened(said, e, detail); len(detail) > 0 {
		e.Detail, _ = json.Marshal(detail) // of strings and numbers: can't fail
	}
}

// usesDeclaration tells whether the call uses up the declaration that it names. A declaration that doesn't count, which observing only records, is not
// used up.
func (c *crossing) usesDeclaration() bool {
	return c.declaration != nil && !slices.ContainsFunc(c.judged.found.Lifted, func(v fault.Verdict) bool { return v.Stage == "declare" })
}
