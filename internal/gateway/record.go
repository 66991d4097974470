package gateway

import (
	"context"
	"encoding/json"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/changes"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/evidence"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/session"
)

// entry is what all entries of this call say.
func (c *crossing) entry(kind audit.Kind) audit.Entry {
	e := audit.Entry{Kind: kind, Action: short(effect.Action(c.r.Method)), Agent: c.agent, Actor: c.r.Principal.String(), Door: c.r.Door, RequestID: c.request, CallID: c.id, Digest: c.digest}
	if c.moment == judge.Check {
		e.Action, e.CallID = "check", "" // there is no call
	}
	if c.session != nil {
		e.Session, e.Requester = c.session.ID, c.session.Requester
	}
	if c.op != nil {
		e.Operation, e.DefHash, e.Type = c.op.ID, c.op.Hash, c.op.Class.Action
		if c.op.Model != nil {
			e.Model = c.op.Model.ID
		}
	} else {
		e.Operation = short(c.r.Tool)
	}
	return e
}

// answer is an Answer of this call with the verdict.
func (c *crossing) answer(v fault.Verdict) Answer {
	v.RequestID = c.request
	a := Answer{CallID: c.id, Verdict: v}
	if c.session != nil {
		a.Session = c.session.ID
	}
	return a
}

// refuse writes the refusal down and then answers it. A refusal that can't be written down is refused for that.
func (c *crossing) refuse(ctx context.Context, v fault.Verdict) Answer {
	if c.r.DryRun && c.session != nil { // a check is advice, which has no entry, unless it was asked for what is another's
		return c.answer(v)
	}
	if v.Code == fault.KillSwitch || v.Code == fault.AuditUnavailable { // the caller has waited for the store long enough
		return c.refuseBehind(v)
	}
	if err := c.taint(ctx); err != nil {
		return c.refuseBehind(fault.RefuseErr(v.Stage, audited(err)))
	}
	c.heard()
	if c.meets(v) {
		return c.answer(v)
	}
	if err := c.g.refusals.Record(ctx, c.refusal(v)); err != nil {
		return c.answer(fault.RefuseErr(v.Stage, audited(err)))
	}
	c.wroteHit(ctx, c.screened.Worse(c.said))
	if c.session != nil {
		c.g.feed.Publish(changes.Session, c.session.ID)
	}
	return c.answer(v)
}

// taint raises the labels of what the arguments carried although the call was refused: the agent has it in its context.
func (c *crossing) taint(ctx context.Context) error {
	if c.session == nil {
		return nil
	}
	if !holdsNew(c.live.current.Load(), c.carried) {
		c.live.said.noteFound(c.found)
		return nil
	}
	e := audit.Entry{Action: "session.taint", Actor: c.r.Principal.String(), RequestID: c.request, Reason: "the arguments of a refused call carried labelled text"}
	for _, h := range c.carried {
		e.Labels = append(e.Labels, string(h.Label))
	}
	_, err := c.g.change(context.WithoutCancel(ctx), c.session.ID, e, func(s session.Session) (session.Session, error) {
		s, _ = s.Raise(c.carried...).AddFound(c.found)
		return s, nil
	})
	return err
}

func (c *crossing) refusal(v fault.Verdict) audit.Entry {
	e := c.entry(audit.Decision)
	detail := map[string]any{}
	cause := v
	if c.cause != nil && v.Stage == "resolve" { // not where the switch came first
		if cause = *c.cause; cause.Code != v.Code || cause.Reason != v.Reason {
			detail["told"] = Disclosed{v.Stage, v.Code, audit.Clip(v.Reason)}
		}
	}
	e.Decision, e.Stage, e.Code, e.Reason = string(v.Decision), cause.Stage, string(cause.Code), audit.Clip(cause.Reason)
	if found := &c.judged.found; found.Rated {
		e.Risk, e.Amount = string(found.Rating.Risk), found.Rating.Amount
	}
	if found := evidence.ForRecord(c.judged.facts.Evidence.Ruling); found != nil {
		detail["evidence"] = found
	}
	if rules := c.rules(cause); rules != nil {
		detail["because"] = rules
	}
	c.noteSent(&e, detail)
	if lifted := c.lifted(&c.judged.found); lifted != nil {
		detail["observed"] = lifted
	}
	if len(detail) > 0 {
		e.Detail, _ = json.Marshal(detail) // of strings and numbers: can't fail
	}
	if c.args != nil {
		e.Arguments = onlyShown(c.payload())
	}
	return e
}

// onlyShown is the payload of what was refused: it is not worth keeping whole where it is large, and whoever is refused must not fill the record.
func onlyShown(p *audit.Payload) *audit.Payload {
	if p.Stored {
		return &audit.Payload{SHA256: p.SHA256, Size: p.Size}
	}
	return p
}

// payload is the arguments as the log keeps them.
func (c *crossing) payload() *audit.Payload {
	if c.r.composed {
		return &audit.Payload{SHA256: call.HashBytes(c.args), Size: int64(len(c.args))}
	}
	return c.g.Payload(c.args)
}

// refuseBehind answers at once and writes behind: stopping never waits for the store, and a store that just failed is not waited for twice.
func (c *crossing) refuseBehind(v fault.Verdict) Answer {
	if !c.r.DryRun {
		c.g.refusals.RecordCallLater(c.refusal(v))
	}
	return c.answer(v)
}

// discard ends a call that the switch stopped: its result is thrown away, and its outcome is written behind the answer.
func (c *crossing) discard(out outcome, v fault.Verdict) Answer {
	out.entry.Decision, out.entry.Stage, out.entry.Code, out.entry.Reason = "discarded", v.Stage, string(v.Code), v.Reason
	c.live.owe(owedOutcome{entry: out.entry, raise: nil, used: out.used})
	c.g.payOwed(c.live)
	return c.answer(v)
}

// panicked ends a call whose stage panicked. If the intent was durable, its outcome is unknown.
func (c *crossing) panicked() Answer {
	v := fault.Refuse("", fault.Internal, "")
	if c.ran.intended {
		e := c.entry(audit.Outcome)
		e.Decision, e.Code, e.Reason = "unknown", string(fault.Internal), "the gateway failed inside while the call ran"
		c.live.owe(owedOutcome{entry: e, raise: addHeld(c.declaredLabels(), c.storedLabels(nil))})
		c.g.payOwed(c.live)
	} else if !c.r.DryRun {
		e := c.entry(audit.Decision)
		e.Decision, e.Code, e.Reason = string(fault.Deny), string(fault.Internal), "the gateway failed inside"
		c.g.refusals.RecordCallLater(e)
	}
	return c.answer(v)
}

// Attempt is a request that a door turned away without a call.
type Attempt struct {
	Principal identity.Principal // without a kind: nobody knows whose the request is
	Door      string             // mcp, http or console
	People    bool               // it came to the people's side
	What      string             // what it asked for, as far as that is known
	Remote    string             // the address that it came from, as the listener saw it
}

// actor is who tried, for the record. Whoever has no valid credential is one actor of each listener.
func (a *Attempt) actor() string {
	switch {
	case a.Principal.Kind != "":
		return a.Principal.String()
	case a.People:
		return "unknown:people"
	}
	return "unknown:agents"
}

// RecordRefusal records what was refused to a person, or says that it can't be. Many of one actor are counted.
func (g *Gateway) RecordRefusal(ctx context.Context, e audit.Entry) error {
	return g.refusals.Record(ctx, e)
}

// Refused records that a door turned a request away without a call: without a valid credential, at the wrong door, without the role, for what is
// another's, malformed, or for what v says. It is written behind the answer, like refusals by the switch.
func (g *Gateway) Refused(a Attempt, v fault.Verdict) {
	p := a.Principal
	e := audit.Entry{
		Kind: audit.Decision, Action: "request", Agent: agentOf(p), Actor: a.actor(), Door: a.Door, Remote: a.Remote, Operation: short(a.What), RequestID: v.RequestID,
		Decision: string(fault.Deny), Stage: v.Stage, Code: string(v.Code), Reason: audit.Clip(v.Reason),
	}
	if p.Kind == identity.Session || p.Kind == identity.Hook {
		e.Session = p.ID
	}
	g.refusals.RecordDoorLater(e)
}
