package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/changes"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/evidence"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/quota"
	"sallyport.example/internal/session"
	"sallyport.example/internal/standing"
)

// intent: durable before the effect, in the transaction that reads the labels it was judged on. A call that talks while it runs
// (progress, log lines, questions) brings its labels in with the intent, before the first word.
func (c *crossing) intent(ctx context.Context) error {
	e := c.entry(audit.Intent)
	e.Decision = string(fault.Permit)
	e.Arguments = c.payload()
	wouldBe(&e, c.judged.found.WouldBe())
	c.ran.reasons = c.reasons()
	spend, detail, err := c.spends(&e)
	if err != nil {
		return err
	}
	if len(detail) > 0 {
		b, err := json.Marshal(detail)
		if err != nil {
			return err
		}
		e.Detail = b
	}
	raise := slices.Clone(c.carried)
	talks := c.op.Command == nil || !c.op.Command.Inside // what is inside the gateway says nothing while it runs
	if talks && (c.r.Exchange.Progress != nil || c.r.Exchange.Log != nil || c.r.Exchange.Ask != nil) {
		raise = addHeld(append(raise, c.declaredLabels()...), c.storedLabels(nil))
		if c.r.Exchange.Ask != nil && !c.trustsWords() {
			raise = flow.Raise(raise, flow.Operation{ID: c.op.ID}, c.id, flow.Untrusted)
		}
	}
	if len(c.hosted) > 0 { // what they bring can be in the first piece that leaves
		raise = flow.Raise(raise, flow.Operation{ID: c.op.ID}, c.id, flow.Untrusted)
	}
	for _, h := range raise {
		e.Labels = append(e.Labels, string(h.Label))
	}
	s, err := c.g.store.Intent(context.WithoutCancel(ctx), c.session.ID, c.session.Version, e, raise, spend)
	if err != nil {
		if errors.Is(err, ErrMoved) && s.ID != "" {
			c.live.see(s)
		}
		return err
	}
	if spend.Wrote != nil {
		c.g.written.Add(spend.Wrote)
	}
	c.ran.quota = spend.Quota
	c.session = c.live.see(s)
	c.ran.intended = true
	c.heard()
	c.wroteHit(ctx, c.screened.Worse(c.said))
	c.g.letThrough(&e)
	c.g.feed.Publish(changes.Session, c.session.ID)
	if a := c.judged.facts.Answer.Approval; a != nil {
		c.g.desk.Changed(a.ID)
	}
	return nil
}

// spends says what the intent uses up and keeps, and adds what the call rests on to its entry.
func (c *crossing) spends(e *audit.Entry) (spend Spend, detail map[string]any, err error) {
	detail = map[string]any{}
	if c.answers != nil {
		detail["input_responses"] = c.g.Payload(c.answers)
	}
	if d := c.declaredDetail(c.ran.reasons); d != nil {
		detail["declaration"] = d
	}
	if len(c.carries) > 0 {
		detail["carries"] = c.carries
	}
	if found := evidence.ForRecord(c.judged.facts.Evidence.Ruling); found != nil {
		detail["evidence"] = found
	}
	f := &c.judged.facts
	if f.Evidence.CoveredBy != "" {
		detail["covered_by"] = f.Evidence.CoveredBy
	}
	if f.Evidence.Unasked != "" && !f.Answer.ByPerson() {
		detail["unasked"] = f.Evidence.Unasked
	}
	if c.acts != "" {
		detail["acts"] = c.acts
	}
	if c.lowered > 0 {
		detail["output_lowered_to"] = c.lowered
	}
	if c.r.failed != "" {
		detail["fallback_of"] = c.r.failed
	}
	if len(c.masked) > 0 {
		detail["masked"] = c.masked[:min(len(c.masked), maxCarried)]
	}
	if len(c.hosted) > 0 {
		detail["hosted_tools"] = c.hosted
	}
	c.noteSent(e, detail)
	if lifted := c.lifted(&c.judged.found); lifted != nil {
		detail["observed"] = lifted
	}
	kept, err := c.kept()
	if err != nil {
		return spend, detail, err
	}
	spend = Spend{StopEpoch: c.stops.epoch, CallDigest: c.digest, CallID: c.id, At: c.g.now(), Found: c.found, Seen: kept, Wrote: c.wrote()}
	spend.Quota = c.claims()
	if c.judged.found.Lifted == nil { // what only observing let through is no reason to find its tool and its destinations familiar later
		spend.First = c.usedKeys()
	}
	if spend.Step = c.takes(); spend.Step != nil {
		detail["plan_step"] = f.Evidence.Step.Text
	}
	e.Risk, e.Amount = string(c.judged.found.Rating.Risk), c.judged.found.Rating.Amount
	if c.usesDeclaration() {
		spend.Declaration, spend.Approval = c.declaration.ID, c.declaration.ApprovalID
	}
	if a := f.Answer.Approval; a != nil {
		e.Risk = a.Risk
		e.Approvers = a.Approvers()
		c.spendsApproval(&spend, a, detail)
		if a.Inputs != nil {
			if detail["inputs"], err = a.Inputs.Record(); err != nil {
				return spend, nil, err
			}
		}
		if a.Silent(spend.At) {
			detail["permitted_by"] = "silence" // nobody's answer (docs/design.md, rule 9)
		}
	}
	return spend, detail, nil
}

// declaredLabels is what the operation's results bring in by the operator's word. What the session held when it was judged is no
// reason to leave a label out: a person may release it while the call runs. The store adds what is missing.
func (c *crossing) declaredLabels() []flow.Held {
	labels := flow.Raise(nil, c.op.Flow, c.id)
	if set, snap := c.g.view(); set != c.set { // what is in force by now may bring more
		if op := snap.ByID(c.op.ID); op != nil {
			labels = flow.Raise(labels, op.Flow, c.id)
		}
	}
	if of := c.stored(); of != nil {
		labels = flow.Raise(labels, flow.Operation{ID: c.op.ID, Emits: of.Flow.Emits}, c.id)
	}
	return c.brings(labels)
}

// act sends the very bytes that were judged, bounded in time by the operation, the session's budget and the switch.
func (c *crossing) act(ctx context.Context) (effect.Result, error) {
	defer c.talk.end()
	if w, ok := c.stores(c.session, c.answers != nil); ok { // until that is durable, nothing is sent
		if err := c.g.stored.Before(ctx, w); err != nil {
			return effect.Result{}, unsent(err)
		}
		c.ran.stores = w
	}
	if c.stops.caught.Load() || c.g.standing.StopEpoch(c.agent) != c.stops.epoch { // stopped while the intent was being written
		return effect.Result{}, &fault.NotDispatched{Err: standing.ErrKilled}
	}
	bound := c.bound()
	if q := c.ran.quota; q != nil {
		if granted, ok := q.Granted(quota.ComputeSeconds); ok {
			bound = min(bound, time.Duration(granted)*time.Millisecond)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	c.ran.at = time.Now()
	if c.effect.Traits().Converses {
		c.live.meter.Follow(c)
	} else {
		c.live.meter.Start(c)
	}
	defer c.live.meter.End(c)
	if c.g.ending.Load() {
		return effect.Result{}, &fault.NotDispatched{Err: errStopping}
	}
	if c.live.current.Load().State != session.Open { // closed before there was a call to end
		return effect.Result{}, &fault.NotDispatched{Err: errClosed}
	}
	var shown *call.Inputs
	if a := c.judged.facts.Answer.Approval; a != nil {
		shown = a.Inputs
	}
	collections, labels := c.decl.ReadsKnowledge()
	if c.op.Server != catalogue.KnowledgeServer && !c.consults() {
		collections = nil
	}
	if c.r.failed != "" && c.r.Instead != nil && c.op.Model != nil {
		c.r.Instead(c.op.Model.ID)
	}
	if c.lowered > 0 && c.r.Lowered != nil {
		c.r.Lowered(c.lowered)
	}
	var release func(piece, text []byte, known int) error
	if c.r.Stream != nil {
		release = func(piece, text []byte, known int) error { return c.releasePiece(ctx, piece, text, known) }
	}
	c.g.acted.Add(1)
	result, err := c.effect.Act(ctx, effect.Run{
		Release: release,
		Agent:   c.agent, Collections: collections, Labels: labels, Ask: c.asksModel,
		Inputs: shown, Session: c.session.ID, Parameters: effect.Parameters{Canonical: c.args, Selects: c.selects}, Upstreams: c.g.o.Upstreams, Models: c.g.o.Models, Exchange: c.exchange(),
	})
	result.Sealed = result.Sealed || c.r.composed
	return result, err
}
