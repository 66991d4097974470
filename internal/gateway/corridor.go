package gateway

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.example/internal/breaker"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/quota"
	"sallyport.example/internal/session"
	"sallyport.example/internal/stored"
)

const (
	// maxRejudge bounds how often a call is judged again because its session moved under it. Labels rise at most once each, so a
	// session that moves more often than this is being played with.
	maxRejudge = 8
	// maxAct bounds one operation where neither its configuration nor the session's budget is tighter.
	maxAct = 5 * time.Minute
	// maxAtOnce bounds the calls of one agent that are under way, in all of its sessions (TH-5): each takes memory, and a turn of the store.
	maxAtOnce = 512
)

// crossing is one call on its way through the corridor. One goroutine owns it, except cancel, which the kill switch calls.
type crossing struct {
	g       *Gateway
	r       Request
	moment  judge.Moment
	id      string
	request string
	cancel  context.CancelCauseFunc

	speaker
	subject
	judged judgement // the newest
	paired
	taken taken
	asking
	ran        ran
	talk       talk
	cause      *fault.Verdict // of the refusal, where the agent is told less
	try        *breaker.Try   // the call goes through the breakers
	hitCounted bool           // a hit in what the agent wrote counts, once
	stops      stops
}

// asking is what a call knows of the people who are asked about it.
type asking struct {
	hold desk.Hold
	// silenceFull says that more calls of the agent wait for silence than people could stop: this one waits for a yes.
	silenceFull bool
	inputs      *call.Inputs // what the call reads of the workspace, as it was when people were last to be asked
	opened      string       // the question that this call opened; "": none
}

// stops are those that reached the call's agent.
type stops struct {
	epoch  int64       // how many there were when the newest judgement began
	caught atomic.Bool // the kill switch was pulled since the call came
}

// ran is what a call has of its run.
type ran struct {
	intended bool          // the intent is durable: from here on there is an outcome to write
	at       time.Time     // when the effect began, on the monotonic clock
	stores   *stored.Write // what it stores with its server; nil: nothing
	reasons  reasons
	left     left         // what of its result left before the outcome
	quota    *quota.Claim // what it took of its agent's quotas; nil: nothing
}

// talk guards the messages that may leave while a call runs.
type talk struct {
	exchange call.Exchange // what may pass
	mu       sync.Mutex    // guards over
	over     bool          // the call has its outcome: no answer follows
}

func (t *talk) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
}

// ended is asked before and after an answer is recorded, and its lock not held meanwhile: stopping waits for no store.
func (t *talk) ended() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.over
}

// Call takes one call through the corridor, from credential to durable outcome. A request to a model, or a call of a tool, that failed goes through it again
// with the fallback of that.
func (g *Gateway) Call(ctx context.Context, r Request) Answer {
	answer := g.cross(ctx, r)
	if answer.fallback == "" || ctx.Err() != nil {
		return answer
	}
	return g.fallBack(ctx, r, answer)
}

// cross is one way through the corridor. The stages are a closed list in a fixed order; they return verdicts, and only this function, with run, acts on them
// (docs/design.md, "The corridor").
func (g *Gateway) cross(ctx context.Context, r Request) (answer Answer) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	now := g.now()
	c := &crossing{g: g, r: r, speaker: speaker{agent: agentOf(r.Principal)}, id: call.NewID("call_", now), request: call.NewID("req_", now), cancel: cancel, asking: asking{hold: desk.Hold{For: r.Hold, Tell: r.Waiting}}}
	if r.DryRun {
		c.moment = judge.Check
	}
	defer func() {
		if p := recover(); p != nil {
			g.log.Error("a stage panicked", "request_id", c.request, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			answer = c.panicked()
		}
	}()
	atOnce := g.standing.Enter(c.agent, c)
	defer g.standing.Leave(c)
	defer c.releaseTry()
	defer func() {
		if c.taken.session {
			g.sessions.end(c.live)
		}
	}()

	// The switch and the bound on calls under way come before any work; the rest in the order of the design.
	if v := g.killed(c.agent); v.Decision != fault.Permit {
		return c.refuseBehind(v)
	}
	if atOnce > maxAtOnce {
		return c.refuse(ctx, fault.Refuse("limit", fault.LimitRate, fmt.Sprintf("At most %d calls of one agent at a time.", maxAtOnce),
			fault.Remedy{Kind: "wait", Text: "Try again when one of them has ended."}))
	}
	v := c.resolveInTurn(ctx)
	if v.Decision != fault.Permit {
		return c.refuse(ctx, v)
	}
	for try := 0; ; {
		c.inTurn(ctx, len(c.args), func() { v = c.judge(ctx) })
		if v.Decision == fault.Ask {
			v = c.asked(ctx, v)
		}
		if c.wait(ctx, v) { // the call enters again at the top: what was asked about may be answered, and the session have moved
			if err := c.again(ctx); err != nil {
				return c.refuse(ctx, fault.RefuseErr("approve", err))
			}
			continue
		}
		if v := c.killed(); v.Decision != fault.Permit { // pulled while it was held
			return c.refuseBehind(v)
		}
		if v.Decision != fault.Permit || r.DryRun {
			return c.blocked(c.refuse(ctx, v))
		}
		if v := c.renew(ctx); v.Decision == fault.Ask { // judged again, with the tool as its server has it now
			continue
		} else if v.Decision != fault.Permit {
			return c.blocked(c.refuse(ctx, v))
		}
		if c.set != g.settings.Load() { // replaced since it was judged
			if err := c.again(ctx); err != nil {
				return c.refuse(ctx, fault.RefuseErr("resolve", err))
			}
			continue
		}
		if v := c.takeTry(); v.Decision != fault.Permit {
			return c.blocked(c.refuse(ctx, v))
		}
		if v := c.takeRequest(); v.Decision != fault.Permit {
			return c.refuse(ctx, v)
		}
		err := c.intent(ctx)
		if err == nil {
			return c.run(ctx)
		}
		c.releaseTry() // before it is judged again: its own try must not be in its way
		if spent := (*SpendError)(nil); errors.As(err, &spent) {
			return c.refuse(ctx, fault.RefuseErr("intent", spent.Err))
		}
		if !errors.Is(err, ErrMoved) || try == maxRejudge {
			return c.refuseBehind(fault.RefuseErr("intent", audited(err)))
		}
		if err := c.reload(ctx); err != nil {
			return c.refuseBehind(fault.RefuseErr("intent", audited(err)))
		}
		try++ // what the session holds now may not be what the person was shown: the call is judged anew
	}
}

// renew takes the lists of the server anew before a call of risk HIGH or above, so that what runs is the tool as it is now and not as it was up to
// half a minute ago. It happens once for a call; Ask means that the call has to be judged again.
func (c *crossing) renew(ctx context.Context) fault.Verdict {
	if c.taken.lists || c.judged.found.Rating.Risk.Rank() < policy.High.Rank() {
		return fault.Permitted()
	}
	c.taken.lists = true
	const stage = "standing"
	if err := c.effect.Renew(ctx, c.g.o.Upstreams); err != nil {
		if v := c.killed(); v.Decision != fault.Permit {
			return v
		}
		return fault.Refuse(stage, fault.UpstreamFailed, fmt.Sprintf("%s is of risk %s, so its server has to list its tools first, and that failed: %s", c.op.Name, c.judged.found.Rating.Risk, fault.Of(err).Public()),
			fault.Remedy{Kind: "wait", Text: "Try again when the server answers."})
	}
	if err := c.again(ctx); err != nil {
		return fault.RefuseErr(stage, err)
	}
	return fault.Verdict{Decision: fault.Ask}
}

// heavyFrom is how long arguments or a result are that are worked on in turns: reading them takes a processor for a noticeable time.
const heavyFrom = 128 << 10

// inTurn does work on so many bytes. Where they are many, agents take turns and a processor is left for all else, so that nobody's long texts hold up the
// others' calls. A call that is stopped, or whose caller went away, waits no longer.
func (c *crossing) inTurn(ctx context.Context, bytes int, work func()) {
	if bytes < heavyFrom {
		work()
		return
	}
	c.g.heavy.Do(ctx.Done(), c.agent, work)
}

// resolveInTurn is resolve in its turn. A call that was stopped, or whose caller went away, before its turn came is not looked at: it would be work out of
// turn.
func (c *crossing) resolveInTurn(ctx context.Context) (v fault.Verdict) {
	c.inTurn(ctx, len(c.r.Arguments), func() {
		if len(c.r.Arguments) < heavyFrom || ctx.Err() == nil {
			v = c.resolve(ctx)
			return
		}
		if v = c.killed(); v.Decision == fault.Permit {
			v = fault.Refuse("resolve", fault.TimeExceeded, "The caller went away before the call was looked at.")
		}
	})
	return v
}

// run is what Call does once the intent is durable: act, inspect, write the outcome, release. From here on an outcome is owed.
func (c *crossing) run(ctx context.Context) Answer {
	result, err := c.act(ctx)
	var out outcome
	c.inTurn(ctx, len(result.JSON), func() { out = c.inspect(ctx, result, err) })
	c.gaveBack(out, err)
	if v := c.killed(); v.Decision != fault.Permit {
		return c.discard(out, v) // stopping waits for nothing: the outcome is written behind the answer
	}
	failure := c.failure(&out)
	if err := c.outcome(ctx, out); err != nil {
		return c.answer(fault.RefuseErr("outcome", audited(err)))
	}
	c.ended(ctx, out.ended)
	if c.op.Model != nil { // in what it answered with for functions
		c.wroteHit(ctx, out.screened)
	}
	c.readHit(out.screened)
	if err != nil || out.entry.Decision != "ok" {
		result.JSON = nil
	}
	c.marked(ctx, result.JSON)
	if v := c.killed(); v.Decision != fault.Permit {
		return c.answer(v)
	}
	if c.session.State != session.Open {
		return c.answer(fault.Refuse("outcome", fault.SessionClosed, "The session was closed while the call ran; its result was discarded."))
	}
	return c.canFallBack(c.release(out), failure, err)
}

// release is the answer to a call whose outcome is durable.
func (c *crossing) release(out outcome) Answer {
	v := out.verdict
	if v.Decision == fault.Permit {
		v = judge.WithEvidence(v, &c.judged.facts)
	}
	a := c.answer(v)
	a.Result, a.RPCError = out.result, out.rpcError
	if c.effect.Traits().AttributionApart {
		a.Metadata = out.attribution
	}
	for _, h := range out.raise {
		a.Brings = append(a.Brings, h.Label)
	}
	c.delivers(a.Result)
	return a
}

// again takes a call that was held back to the top, with everything as it is by now.
func (c *crossing) again(ctx context.Context) error {
	c.session = c.live.current.Load()
	err := c.g.standing.StillValid(c.r.Principal)
	if err != nil {
		return err
	}
	set, snap := c.g.view()
	before := c.decl
	if c.decl, err = set.declared(c.agent); err != nil {
		return err
	}
	if set != c.set {
		c.set = set
		c.screened, c.unscreened = nil, true // its rules may be others
		c.carry()
	}
	now := effect.Again(snap, c.effect, c.r.Method, c.r.Tool)
	if now == nil {
		return fault.New(fault.ToolUnknown, "The tool changed while the call waited for an answer.").Try("Look at the list of tools again.")
	}
	was := c.op.Model
	if c.use(now); effect.Asks(now) { // its limits were made of the declaration and the model as they were
		if asked := now.Operation().Model; was.Mask != asked.Mask || !slices.Equal(was.Allow, asked.Allow) {
			return fault.New(fault.Conflict, "What the model may be sent changed while the request waited.").Try("Send the request again.")
		}
		if before.Digest != c.decl.Digest {
			return fault.New(fault.Conflict, "The agent's declaration changed while the request waited.").Try("Send the request again.")
		}
		if _, err := c.terms(); err != nil {
			return err
		}
	}
	if err := c.pair(snap); err != nil {
		return err
	}
	c.understand() // of the operation that was found anew: what the arguments make of it holds for each judgement
	if c.declaration != nil {
		d, err := c.g.store.Declaration(ctx, c.declaration.ID)
		if err != nil {
			return err
		}
		c.declaration = &d
	}
	return nil
}

// audited makes sure that a failing log is called that, whatever the store called it.
func audited(err error) error {
	if f := fault.Of(err); f.Code == fault.AuditUnavailable || f.Code == fault.SessionClosed {
		return f
	}
	return fault.Wrap(err, fault.AuditUnavailable, "")
}

// resolve: credential -> agent, session, operation; one strict parse. What is unknown is refused.
func (c *crossing) resolve(ctx context.Context) fault.Verdict {
	const stage = "resolve"
	if c.g.closed.Load() {
		return fault.Refuse(stage, fault.StoreUnavailable, "The gateway is stopping.")
	}
	l, err := c.g.sessionOf(ctx, c.r.Principal, c.r.Session)
	if err != nil {
		return c.refusedErr(stage, err)
	}
	c.live, c.session = l, l.current.Load()
	if !c.r.DryRun {
		held, given := c.g.sessions.begin(l, c.g.sideBySide(c.session.Agent))
		if held == nil { // it was given one since it was asked for its own
			return c.refusedErr(stage, ownWaits(given))
		}
		c.live, c.session, c.taken.session = held, held.current.Load(), true
	}
	if c.agent == "" { // a host speaks for the session's agent, and that agent may be switched off
		c.g.standing.Leave(c)
		c.agent = c.session.Agent
		c.g.standing.Enter(c.agent, c)
		if v := c.g.killed(c.agent); v.Decision != fault.Permit {
			return v
		}
	}
	set, snap := c.g.view()
	c.set = set
	if c.decl, err = set.declared(c.agent); err != nil {
		return fault.RefuseErr(stage, err)
	}
	arguments := c.r.Arguments
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	if arguments, err = call.Canonical(arguments, call.DefaultLimits()); err != nil {
		return fault.RefuseErr(stage, err)
	}
	if c.args = arguments; !call.IsObject(c.args) {
		return fault.RefuseErr(stage, fault.New(fault.RequestMalformed, "the arguments must be a JSON object").At("arguments"))
	}
	found, err := effect.Find(snap, c.r.Method, c.r.Tool)
	c.use(found)
	if err != nil {
		return fault.RefuseErr(stage, err)
	}
	if c.op == nil || c.op.Standing == catalogue.Unlisted || c.op.Standing == catalogue.Unfit {
		return c.unknownTool(snap)
	}
	if v := tried(c.agent, c.op); v.Decision != fault.Permit && !c.r.DryRun {
		return v
	}
	if err := c.instruct(ctx); err != nil {
		return fault.RefuseErr(stage, err)
	}
	if err := c.read(ctx, snap); err != nil {
		return fault.RefuseErr(stage, err)
	}
	c.carry()
	c.understand()
	return fault.Permitted()
}

// use takes what was found to be called; nil if nothing was.
func (c *crossing) use(e effect.Effect) {
	if c.effect = e; e != nil {
		c.op = e.Operation()
	}
}

// read takes the arguments as the effect reads them, with what the call says about itself and the answers that go out with it, under one digest.
func (c *crossing) read(ctx context.Context, snap *catalogue.Snapshot) error {
	bare := string(c.args) == "{}"
	p, err := c.effect.Parameters(c.args)
	c.args, c.selects, c.lowered, c.masked = p.Canonical, p.Selects, p.Lowered, p.Masked
	if err != nil {
		return err
	}
	hosting, tools := effect.Hosting(c.effect, c.args)
	c.use(hosting)
	c.hosted = tools
	c.unfold(ctx, p, bare || string(c.args) == "{}")
	if answers := c.r.Exchange.InputResponses; answers != nil { // what goes out beside the arguments is part of the call
		if c.answers, err = call.Canonical(answers, call.DefaultLimits()); err != nil {
			return err
		}
		c.r.Exchange.InputResponses = c.answers
	}
	c.screened, c.unscreened = nil, true
	return c.pair(snap)
}

// digested is the digest of the call of an operation: of all that is sent, and of the operation that is judged together with it, so that a person's answer
// is about both.
func (c *crossing) digested(op *catalogue.Operation, definition string, beside *catalogue.Operation) string {
	sent := c.args
	if c.answers != nil {
		sent = append(append(slices.Clip(sent), 0), c.answers...)
	}
	if beside != nil {
		sent = append(slices.Clip(sent), "\x00beside\x00"+beside.ID+"\x00"+beside.Hash+"\x00"+beside.Launch...)
	}
	return call.Digest(c.agent, c.session.ID, op.ID, definition, sent)
}

// reload takes the newest version of the session, from the store where memory has missed a move.
func (c *crossing) reload(ctx context.Context) error {
	judged := c.session.Version
	if c.session = c.live.current.Load(); c.session.Version != judged {
		return nil
	}
	s, err := c.g.store.Session(context.WithoutCancel(ctx), c.session.ID)
	if err == nil {
		c.session = c.live.see(s)
	}
	return err
}
