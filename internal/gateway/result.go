package gateway

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport.example/flow"
	"sallyport.example/guard"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/breaker"
	"sallyport.example/internal/call"
	"sallyport.example/internal/changes"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/evidence"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/limit"
	"sallyport.example/internal/screen"
	"sallyport.example/internal/session"
	"sallyport.example/internal/standing"
)

const (
	// shownMax is the largest payload that stands in its entry; larger ones are stored apart, and above keptMax only by hash.
	shownMax = 1 << 10
	keptMax  = 1 << 20
	// releasedMax bounds what leaves: the largest result of a server, with room for its fences and for what has to be escaped in them.
	releasedMax = 20 << 20
)

// outcome is what became of a call: what is written down, and what is released once it is.
type outcome struct {
	entry       audit.Entry
	raise       []flow.Held
	screened    *screen.Found   // what screening found in the result
	judged      *secondLook     // what the judge said of it; nil: it was not asked
	sampled     bool            // it was screened whole with no hit, and is in the sample that people judge
	stored      []flow.Held     // of raise, what stored data brings
	attribution json.RawMessage // of the result
	detail      []byte          // members for the entry's detail: an object
	used        time.Duration
	verdict     fault.Verdict
	result      json.RawMessage
	rpcError    json.RawMessage
	seen        []evidence.Kept // what it showed, where it is released
	ended       breaker.Result
}

// Payload is a body as the log keeps it: by the hash of its exact bytes, shown with secrets redacted.
func (g *Gateway) Payload(b []byte) *audit.Payload {
	p, _ := g.looked(b)
	return p
}

// looked is Payload, with the labels that the detector finds in the body (FL-3).
func (g *Gateway) looked(b []byte) (p *audit.Payload, labels []string) {
	p = &audit.Payload{SHA256: call.HashBytes(b), Size: int64(len(b))}
	if len(b) > keptMax {
		return p, g.o.Detector.Labels(b)
	}
	shown, labels := g.o.Detector.Look(b)
	p.Redacted = len(shown) != len(b) || len(b) > 0 && &shown[0] != &b[0]
	if len(shown) <= shownMax {
		p.Shown = shown
		return p, labels
	}
	p.Stored, p.Bytes, p.Key = true, shown, p.SHA256
	if p.Redacted {
		p.Key = call.HashBytes(shown)
	}
	return p, labels
}

// exchange lets through what may pass while the call runs. By then the labels that the operation is declared to bring are on the
// session (see intent); what a detector finds in it besides is held back.
func (c *crossing) exchange() *call.Exchange {
	c.talk.exchange = c.r.Exchange
	x := &c.talk.exchange
	x.Agent = agent.Base(c.agent)
	pass := func(f func(json.RawMessage)) func(json.RawMessage) {
		if f == nil {
			return nil
		}
		return func(params json.RawMessage) {
			if c.g.standing.Killed(c.agent) || c.live.current.Load().State != session.Open || len(c.newLabels(params)) > 0 || c.talksOrders(params) != "" {
				return
			}
			f(params)
		}
	}
	progress := pass(x.Progress)
	x.Progress, x.Log = progress, pass(x.Log)
	if !c.trustsWords() { // words that can't be fenced are not passed on; numbers are
		x.Log = nil
		if progress != nil {
			x.Progress = func(params json.RawMessage) { progress(effect.NumbersOnly(params)) }
		}
	}
	if ask := x.Ask; ask != nil {
		x.Ask = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
			return c.ask(ctx, method, params, ask)
		}
	}
	return x
}

// ask carries a server's question to the agent's client and the answer back. The answer is data that leaves, so the call is judged
// again on what the session holds by then, before the question and before the answer; and the answer is on record before it goes.
func (c *crossing) ask(ctx context.Context, method string, params json.RawMessage, ask func(context.Context, string, json.RawMessage) (json.RawMessage, error)) (json.RawMessage, error) {
	var said *screen.Found                // what screening found in the answer
	held := func(v fault.Verdict) error { // the server is told nothing; the record says why
		e := c.entry(audit.Decision)
		e.Action, e.Decision, e.Stage, e.Code, e.Reason = "question", string(fault.Deny), v.Stage, string(v.Code), audit.Clip(v.Reason)
		c.answerObserved(&e, &judge.Finding{}, said)
		c.g.refusals.RecordCallLater(e)
		return fault.New(fault.FlowContaminated, "The question was held back.")
	}
	var found judge.Finding // of the flow rules, as far as they are only recorded
	lifted := func(v fault.Verdict, labels []flow.Held) fault.Verdict {
		return found.LiftFlow(c.set.rules, &c.judged.facts.Operation, labels, v)
	}
	if v := lifted(untracedAnswer(&c.judged.facts.Evidence), c.live.current.Load().Labels); v.Decision != fault.Permit {
		return nil, held(v)
	}
	mayTalk := func() fault.Verdict {
		s := c.live.current.Load()
		switch {
		case c.g.standing.Killed(c.agent):
			return fault.Refuse("kill", fault.KillSwitch, "")
		case s.State != session.Open:
			return fault.Refuse("standing", fault.SessionClosed, "")
		}
		return lifted(judge.Labels(c.set.rules, &c.judged.facts.Operation, s.Labels), s.Labels)
	}
	if v := mayTalk(); v.Decision != fault.Permit {
		return nil, held(v)
	}
	if fresh := c.newLabels(params); len(fresh) > 0 {
		return nil, held(fault.Refuse("inspect", fault.FlowContaminated, fmt.Sprintf("The question has %s data in it, which the session does not hold.", fresh[0])))
	}
	if why := c.talksOrders(params); why != "" {
		return nil, held(fault.Refuse("inspect", fault.ThreatInjection, "The question "+why+"."))
	}
	if !c.trustsWords() {
		params = effect.PlainJSON(params)
	}
	answer, err := ask(ctx, method, params)
	if err != nil {
		return nil, err
	}
	if _, labels := c.g.carriedIn(c.set, answer); len(labels) > 0 { // delivered text that goes out again in an answer
		s := c.live.current.Load().Raise(labels...)
		if v := lifted(judge.Labels(c.set.rules, &c.judged.facts.Operation, s.Labels), s.Labels); v.Decision != fault.Permit {
			return nil, held(v)
		}
	}
	said = c.set.Screens.Find(screen.Arguments, c.agent, answer)
	c.wroteHit(ctx, said)
	if c.refusesAnswer(said) {
		why := "could not be screened whole"
		if said.Hit() {
			why = "looks like an attempt to order an agent about"
		}
		return nil, held(fault.Refuse("screen", fault.ThreatInjection, "The answer "+why+"."))
	}
	late := func() error {
		if c.talk.ended() {
			return held(fault.Refuse("act", fault.TimeExceeded, "The call had ended when the answer to the server's question came."))
		}
		if v := mayTalk(); v.Decision != fault.Permit {
			return held(v)
		}
		return nil
	}
	if err := late(); err != nil {
		return nil, err
	}
	e := c.entry(audit.Decision)
	e.Action, e.Decision, e.Arguments = "answer", string(fault.Permit), c.g.Payload(answer)
	given, err := c.givenAway(c.live.current.Load(), answer)
	if err != nil {
		return nil, err
	}
	c.answerObserved(&e, &found, said)
	if err := c.keepAnswer(ctx, e, answer, given); err != nil {
		return nil, audited(err)
	}
	recorded := len(found.Lifted)
	if err := late(); err != nil {
		return nil, err
	}
	c.g.letThrough(&e)
	if found.Lifted = found.Lifted[recorded:]; len(found.Lifted) > 0 { // labels rose while that was written
		c.answerObserved(&e, &found, said)
		c.g.refusals.RecordCallLater(e)
	}
	return answer, nil
}

// untracedAnswer refuses an answer that would go out untraced.
func untracedAnswer(e *judge.Evidence) fault.Verdict {
	if !e.Needed() {
		return fault.Permitted()
	}
	return fault.Refuse("flow", fault.FlowUntrusted, "An answer to the server's question can't be traced, and the session holds labels.")
}

// keepAnswer makes durable what an answer gives away, before it leaves: the labels of the session are the server's from then on.
func (c *crossing) keepAnswer(ctx context.Context, e audit.Entry, answer []byte, given []evidence.Kept) error {
	s := c.live.current.Load()
	wrote := c.wroteAnswer(s, answer)
	if err := c.g.store.Answer(context.WithoutCancel(ctx), c.session.ID, e, wrote, given...); err != nil {
		return err
	}
	if wrote != nil {
		c.g.written.Add(wrote)
	}
	if w, ok := c.stores(s, true); ok {
		return c.g.stored.Before(ctx, w)
	}
	return nil
}

// known are the labels that the detector has found, as far as the operator has such labels.
func (c *crossing) known(words []string) []flow.Label {
	var found []flow.Label
	now := c.g.settings.Load()
	for _, word := range words {
		if l := flow.Label(word); c.set.rules.KnownLabel(l) || now.rules.KnownLabel(l) {
			found = append(found, l)
		}
	}
	return found
}

// newLabels is what b raises that the session does not hold.
func (c *crossing) newLabels(b []byte) []flow.Label { return c.fresh(c.g.o.Detector.Labels(b)) }

// fresh is what of that the session does not hold: reason enough to hold back what can't be labelled first.
func (c *crossing) fresh(words []string) []flow.Label {
	found := c.known(words)
	for _, h := range c.storedLabels(nil) { // that came to be stored while the call runs
		found = append(found, h.Label)
	}
	return slices.DeleteFunc(found, c.live.current.Load().Holds)
}

// inspect looks at what came back, decides what labels it brings, and wraps it. Nothing of it is released here.
func (c *crossing) inspect(ctx context.Context, result effect.Result, err error) outcome {
	out := outcome{entry: c.entry(audit.Outcome), verdict: fault.Permitted(), detail: result.Record}
	if !c.ran.at.IsZero() {
		out.used = time.Since(c.ran.at)
	}
	if out.entry.DurationMS = out.used.Milliseconds(); c.effect.Traits().Converses {
		out.used = 0 // the budget is for operations, and a model thinks for as long as all of them take
	}
	var rpc *call.RPCError
	switch {
	case err == nil:
		c.inspectResult(ctx, &out, result)
	case errors.As(err, &rpc):
		c.inspectError(ctx, &out, rpc.JSON)
	default:
		c.inspectFailure(&out, err)
	}
	for _, h := range out.raise {
		out.entry.Labels = append(out.entry.Labels, string(h.Label))
	}
	detail := map[string]any{}
	if out.ended = c.endedAs(&out, err); c.server() != "" && out.ended != breaker.Void && (out.ended != breaker.Answered || out.entry.Decision != "ok") {
		detail["breaker"] = breaker.Noted{Server: c.server(), Result: out.ended}
	}
	noteScreened(out.screened, &out.entry, detail)
	if out.judged != nil {
		detail["judge"] = out.judged
	}
	if out.sampled {
		detail["sampled"] = true
	}
	if len(out.stored) > 0 {
		detail["stored"] = out.stored
	}
	if c.ran.left.bytes > 0 {
		detail["left"] = c.ran.left.record()
		detail["first_ms"] = c.ran.left.first.Milliseconds()
	}
	if outside := c.ungoverned(result.Calls); len(outside) > 0 {
		detail["ungoverned"] = outside
	}
	if result.Unknown > 0 {
		detail["unknown_events"] = result.Unknown
	}
	for name, value := range call.Members(out.detail) {
		detail[name] = value
	}
	if len(detail) > 0 {
		out.entry.Detail, _ = json.Marshal(detail) // of strings and of JSON: can't fail
	}
	return out
}

// contaminate adds the labels that content brings: those the operation is declared to bring, and those the detector has found in it.
func (c *crossing) contaminate(out *outcome, content *effect.Content, words []string) {
	out.stored = c.storedLabels(content)
	out.raise = c.brings(addHeld(flow.Raise(c.declaredLabels(), flow.Operation{ID: c.op.ID}, c.id, c.known(words)...), out.stored))
}

// distrust adds the integrity label.
func (c *crossing) distrust(out *outcome) {
	out.raise = flow.Raise(out.raise, flow.Operation{ID: c.op.ID}, c.id, flow.Untrusted)
}

func (c *crossing) inspectResult(ctx context.Context, out *outcome, result effect.Result) {
	payload, words := c.g.looked(result.JSON)
	for _, text := range result.Looked {
		words = append(words, c.g.o.Detector.Labels([]byte(text))...)
	}
	if words = append(words, result.Labels...); result.Sealed {
		payload = &audit.Payload{SHA256: payload.SHA256, Size: payload.Size}
	} else {
		out.entry.Result = payload
	}
	content := effect.NewContent(result.JSON)
	c.contaminate(out, content, words)
	out.entry.Decision = "ok"
	discarded := func(code fault.Code, reason string) {
		out.verdict = fault.Refuse("inspect", code, reason)
		out.entry.Decision, out.entry.Stage, out.entry.Code, out.entry.Reason = "error", "inspect", string(code), out.verdict.Reason
	}
	failed, err := c.effect.Inspect(content)
	if err != nil {
		f := fault.Of(err)
		if f.Cause != nil {
			c.g.log.Warn("a result does not match its schema", "operation", c.op.ID, "call_id", c.id, "error", f.Cause)
		}
		discarded(fault.ResultInvalid, f.Message)
		return
	}
	if failed {
		out.entry.Decision = "error"
	}
	if c.withholds(out, &result) {
		discarded(fault.ThreatInjection, "The model's answer calls functions of the agent's own program with arguments that look like an attempt to order an agent about. It was withheld.")
		out.verdict.Remedies = []fault.Remedy{{Kind: "ask_person", Text: "Go on without what led to this answer. An operator can have such answers noted instead: threat.input."}}
		return
	}
	seen, trusted := c.observe(content)
	doubtful := c.screenResult(ctx, out, content.Once())
	trusted = trusted && !doubtful
	if !trusted && !result.Clean && !c.effect.Traits().OwnWords {
		c.distrust(out)
	}
	wrapped, attribution, err := c.wrap(content, result, payload.SHA256, trusted, out)
	if err != nil {
		c.g.log.Warn("a result could not be wrapped", "operation", c.op.ID, "call_id", c.id, "error", err)
		if fault.Is(err, fault.ResultTooLarge) {
			discarded(fault.ResultTooLarge, fault.Of(err).Message)
			return
		}
		discarded(fault.ResultInvalid, fmt.Sprintf("The server's result has not the form of an answer to %s; it was discarded.", c.r.Method))
		return
	}
	out.result, out.attribution = wrapped, attribution
	if !result.Sealed { // it has a hash of the content
		out.entry.Attribution = attribution
	}
	if out.entry.Decision != "ok" || doubtful { // results with a hit and errors confirm nothing
		return
	}
	if result.Sealed { // documents confirm nothing, but for what the operator trusts in them
		if result.Confirms != nil {
			out.seen = c.confirmed(result.Confirms)
		}
	} else {
		looked := []byte(result.JSON)
		if p := out.entry.Result; p != nil && p.Size <= keptMax && !p.Redacted {
			looked = nil // there is no secret in it
		}
		out.seen = c.evidenceSource(looked).Observed(seen)
	}
}

// inspectError handles a JSON-RPC error of the server's. Its text is as hostile as any result: it labels, and from an operation
// that is not trusted it arrives fenced.
func (c *crossing) inspectError(ctx context.Context, out *outcome, object json.RawMessage) {
	out.entry.Decision, out.entry.Reason = "error", "the server answered with a JSON-RPC error"
	payload, words := c.g.looked(object)
	out.entry.Result = payload
	c.contaminate(out, effect.NewContent(object), words)
	if doubtful := c.screenResult(ctx, out, object); c.trustsWords() && !doubtful {
		out.rpcError = object
		return
	}
	c.distrust(out)
	refused := func() { out.verdict = fault.Refuse("act", fault.UpstreamFailed, "The server refused the request.") }
	result, ok := c.effect.Refusal(object)
	if !ok {
		refused()
		return
	}
	wrapped, attribution, err := c.wrap(effect.NewContent(result), effect.Result{}, "", false, out)
	if err != nil {
		refused()
		return
	}
	out.result, out.attribution, out.entry.Attribution = wrapped, attribution, attribution
}

// inspectFailure handles a call without an answer. None of the server's words are in what the agent is told.
func (c *crossing) inspectFailure(out *outcome, err error) {
	f := fault.Of(err)
	code := f.Code
	failure := c.effect.Failed(err, c.writes)
	switch {
	case errors.Is(err, standing.ErrKilled):
		code = fault.KillSwitch
	case errors.Is(err, errClosed):
		code = fault.SessionClosed
	case errors.Is(err, errStopping):
		code, f = fault.TimeExceeded, fault.New(fault.TimeExceeded, "The gateway stopped before the operation ended; partial results were discarded.")
	case errors.Is(err, limit.ErrBudget):
		code = fault.LimitBudget
	case errors.Is(err, context.DeadlineExceeded):
		code = fault.TimeExceeded
	case errors.Is(err, context.Canceled):
		code = fault.TimeExceeded
	}
	out.verdict = fault.Refuse("act", code, "")
	if code == fault.LimitBudget || code == fault.SessionClosed {
		out.verdict.Remedies = []fault.Remedy{judge.NewSession}
	}
	if f.Code == code && f.Message != "" {
		out.verdict = fault.RefuseErr("act", f)
	}
	// Whether an operation may have had its effect is what the log has to know: it is never retried silently (docs/design.md, rule 1).
	out.entry.Decision = "unknown"
	if failure.Nothing {
		out.entry.Decision = "error"
	} else {
		out.verdict.Retriable = false
		if code == fault.UpstreamFailed || code == fault.TimeExceeded {
			out.verdict.Remedies = append(out.verdict.Remedies, fault.Remedy{Kind: "ask_person",
				Text: "The operation may or may not have had its effect. Find out before it is done again."})
		}
	}
	if code == fault.ResultTooLarge || code == fault.ResultInvalid || code == fault.OutputInvalid || code == fault.LimitRate {
		out.entry.Decision = "error" // it was answered, and the answer was thrown away
	}
	if failure.Tells { // it reached what it is for: what became of that can show in how it failed
		out.stored = c.storedLabels(nil)
		out.raise = addHeld(c.declaredLabels(), out.stored)
	}
	out.entry.Stage, out.entry.Code, out.entry.Reason = "act", string(code), short(string(c.g.o.Detector.Redact([]byte(err.Error()))))
	c.g.log.Warn("a call failed", "operation", c.op.ID, "call_id", c.id, "error", err)
}

// outcome writes down what became of the call, with the labels it brings, before anything of it is released. The write does not
// die with the caller's connection.
func (c *crossing) outcome(ctx context.Context, out outcome) error {
	s, err := c.g.store.Outcome(context.WithoutCancel(ctx), c.session.ID, out.entry, out.raise, out.used, out.seen...)
	if err != nil {
		out.entry.Decision, out.entry.Reason = "unknown", "the outcome could not be written when it was due; the result was not released"
		out.entry.Result = nil
		c.live.owe(owedOutcome{entry: out.entry, raise: out.raise, used: out.used})
		c.g.payOwed(c.live)
		return err
	}
	c.session = c.live.see(s)
	c.g.feed.Publish(changes.Session, s.ID)
	return nil
}

// wrap freezes attribution and fences what is not trusted. hash is the content's SHA-256 in hex, "" where nobody has it yet.
func (c *crossing) wrap(content *effect.Content, result effect.Result, hash string, trusted bool, out *outcome) (wrapped, attribution json.RawMessage, err error) {
	if trusted {
		return content.JSON, nil, nil
	}
	e := effect.Envelope{
		From:   guard.Source{Operation: c.op.ID, Session: c.session.ID, Source: c.source(result), CallID: c.id, At: result.At, Declaration: c.ran.reasons.digest},
		Issuer: c.g.o.Issuer, Asked: c.r.Tool, MayAsk: c.r.Door == "mcp", Structured: c.decl != nil && c.decl.Structured,
	}
	if out.screened.Hit() {
		e.Suspected = max(1, out.screened.Places)
	}
	if e.From.At.IsZero() {
		e.From.At = c.g.now()
	}
	if sum, err := hex.DecodeString(hash); err == nil && len(sum) == len(e.From.SHA256) {
		copy(e.From.SHA256[:], sum)
	}
	for _, h := range addHeld(c.declaredLabels(), out.stored) {
		e.Brings = append(e.Brings, string(h.Label))
	}
	if wrapped, attribution, err = c.effect.Wrap(content, e); len(wrapped) > releasedMax {
		return nil, nil, fault.New(fault.ResultTooLarge, "With its fences the result is over %d bytes; it was discarded.", releasedMax)
	}
	return wrapped, attribution, err
}

// source is where the content came from, as the attribution names it.
func (c *crossing) source(result effect.Result) string {
	if result.Source == "" {
		return c.op.ID
	}
	redacted := string(c.g.o.Detector.Redact([]byte(result.Source))) // an address can have a secret in it, and this stands in the log
	return strings.ToValidUTF8(redacted[:min(len(redacted), effect.MaxName)], "")
}
