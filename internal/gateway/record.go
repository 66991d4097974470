package gateway

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/changes"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/session"
)

// entry is what all entries of this call say.
func (c *crossing) entry(kind audit.Kind) audit.Entry {
	e := audit.Entry{Kind: kind, Action: short(effect.Action(c.r.Method)), Agent: c.agent, Actor: c.r.Principal.String(), Door: c.r.Door, RequestID: c.request, CallID: c.id, Digest: c.digest}
	if c.session != nil {
		e.Session, e.Requester = c.session.ID, c.session.Requester
	}
	if c.op != nil {
		e.Operation, e.DefHash = c.op.ID, c.op.Hash
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
	if c.r.DryRun {
		return c.answer(v)
	}
	if v.Code == fault.KillSwitch || v.Code == fault.AuditUnavailable { // the caller has waited for the store long enough
		return c.refuseBehind(v)
	}
	if err := c.taint(ctx); err != nil {
		return c.refuseBehind(fault.RefuseErr(v.Stage, audited(err)))
	}
	if err := c.g.recordRefusal(ctx, c.refusal(v)); err != nil {
		return c.answer(fault.RefuseErr(v.Stage, audited(err)))
	}
	if c.session != nil {
		c.g.feed.Publish(changes.Session, c.session.ID)
	}
	return c.answer(v)
}

// recordRefusal writes a refusal down in its turn, or says within 2 s that it can't be.
func (g *Gateway) recordRefusal(ctx context.Context, e audit.Entry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxRefusing)
	defer cancel()
	select {
	case g.refusals.turns <- struct{}{}:
		defer func() { <-g.refusals.turns }()
		return g.store.Record(ctx, e)
	case <-ctx.Done():
		return fault.New(fault.AuditUnavailable, "too many refusals wait to be written down")
	}
}

// taint raises the labels of what the arguments carried although the call was refused: the agent has it in its context.
func (c *crossing) taint(ctx context.Context) error {
	if c.session == nil || !holdsNew(c.live.current.Load(), c.carried) {
		return nil
	}
	e := audit.Entry{Action: "session.taint", Actor: c.r.Principal.String(), RequestID: c.request, Reason: "the arguments of a refused call carried labelled text"}
	for _, h := range c.carried {
		e.Labels = append(e.Labels, string(h.Label))
	}
	_, err := c.g.change(context.WithoutCancel(ctx), c.session.ID, e, func(s session.Session) (session.Session, error) { return s.Raise(c.carried...), nil })
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
	if found := c.evidenceDetail(); found != nil {
		detail["evidence"] = found
	}
	if rules := c.rules(cause); rules != nil {
		detail["because"] = rules
	}
	if len(detail) > 0 {
		e.Detail, _ = json.Marshal(detail) // of strings and numbers: can't fail
	}
	if c.args != nil {
		if e.Arguments = c.g.payload(c.args); e.Arguments.Stored { // what was refused is not worth keeping whole
			e.Arguments = &audit.Payload{SHA256: e.Arguments.SHA256, Size: e.Arguments.Size}
		}
	}
	return e
}

// refuseBehind answers at once and writes behind: stopping never waits for the store, and a store that just failed is not waited for twice.
func (c *crossing) refuseBehind(v fault.Verdict) Answer {
	if !c.r.DryRun {
		e := c.refusal(v)
		c.g.refusals.ofCalls.record(c.g, e)
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
		c.live.owe(owedOutcome{entry: e, raise: c.declaredLabels()})
		c.g.payOwed(c.live)
	} else if !c.r.DryRun {
		e := c.entry(audit.Decision)
		e.Decision, e.Code, e.Reason = string(fault.Deny), string(fault.Internal), "the gateway failed inside"
		c.g.refusals.ofCalls.record(c.g, e)
	}
	return c.answer(v)
}

const (
	// maxBehind bounds how many entries of one kind wait for a store that does not answer. Above it they are in the program's log only.
	maxBehind = 10_000
	// maxBeside bounds how many of them, and of the refusals that are waited for, the store is given at a time, so that what an agent keeps
	// trying takes no more than a turn of the store from everybody else's calls.
	maxBeside = 64
	// maxRefusing is how long a refusal waits for its turn and for the store (docs/design.md, rule 1).
	maxRefusing = 2 * time.Second
)

// refusals are what is written down of requests that were refused.
type refusals struct {
	turns            chan struct{} // has a place for each refusal that the store is given at a time
	ofCalls, atDoors behind
}

func newRefusals() refusals {
	places := func() chan struct{} { return make(chan struct{}, maxBeside) }
	return refusals{turns: places(), ofCalls: behind{beside: places()}, atDoors: behind{beside: places()}}
}

// behind are entries of one kind that are written behind their answers. Calls and what doors turn away are apart, so that a flood at the
// doors does not crowd out the record of refused calls.
type behind struct {
	waiting atomic.Int64
	beside  chan struct{} // has a place for each that the store is given at a time
}

// record writes an entry that nobody waits for, until the store takes it or the gateway closes.
func (b *behind) record(g *Gateway, e audit.Entry) {
	if b.waiting.Add(1) > maxBehind {
		b.waiting.Add(-1)
		g.log.Error("a refusal was not written down: too many wait for the store")
		return
	}
	g.background.Go(func() {
		defer b.waiting.Add(-1)
		b.beside <- struct{}{}
		defer func() { <-b.beside }()
		for {
			err := g.store.Record(context.Background(), e)
			if err == nil {
				return
			}
			select {
			case <-time.After(250 * time.Millisecond):
			case <-g.background.running.Done():
				g.log.Error("an audit entry was not written down", "error", err)
				return
			}
		}
	})
}

// Refused records that a door turned a request away without a call: malformed, in the wrong form, with a state that was tampered with, or
// for what v says. What it asked for is what, as far as that is known. It is written behind the answer, like refusals by the switch.
func (g *Gateway) Refused(p identity.Principal, door, what string, v fault.Verdict) {
	e := audit.Entry{
		Kind: audit.Decision, Action: "request", Agent: agentOf(p), Actor: p.String(), Door: door, Operation: short(what), RequestID: v.RequestID,
		Decision: string(fault.Deny), Stage: v.Stage, Code: string(v.Code), Reason: audit.Clip(v.Reason),
	}
	if p.Kind == identity.Session {
		e.Session = p.ID
	}
	g.refusals.atDoors.record(g, e)
}
