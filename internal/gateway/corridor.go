package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.example/flow"
	"sallyport.example/guard"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/session"
)

const (
	// maxRejudge bounds how often a call is judged again because its session moved under it. Labels rise at most once each, so a
	// session that moves more often than this is being played with.
	maxRejudge = 8
	// maxAct bounds one operation where neither its configuration nor the session's budget is tighter.
	maxAct = 5 * time.Minute
	// maxAtOnce bounds the calls of one agent that are under way, in all of its sessions (TH-5): each takes memory, and a turn of the store.
	maxAtOnce = 512
	// maxName bounds URIs and names of prompts, in bytes: they stand in records and attributions.
	maxName = 8 << 10
)

// crossing is one call on its way through the corridor. One goroutine owns it, except cancel, which the kill switch calls.
type crossing struct {
	g       *Gateway
	r       Request
	agent   string
	id      string
	request string
	acted   time.Time // when the effect began, on the monotonic clock
	cancel  context.CancelCauseFunc

	decl    *agent.Declaration // of the agent
	live    *live
	session *session.Session // the version that is judged
	op      *Operation
	offer   *Offer
	partial bool   // a step of a plan, some of whose arguments are not known yet
	args    []byte // canonical; with what is read or asked for, where that is no tool
	prompt  []byte // the canonical arguments of a prompt alone
	answers []byte // canonical answers to a server's questions, which go out beside the arguments
	digest  string

	justified     json.RawMessage        // the justification in the call, as it came
	justification *declare.Justification // that, checked
	declaration   *declare.Declaration   // the one that the call names
	said          *declare.Justification // the one in the call, where a person approved it with another
	declared      string                 // digest of what the call runs on: a declaration, made before or in the call, or the sealed plan
	undeclared    error                  // what is wrong with how the call is declared
	flags         []string
	approval      *approval.Approval // a person's answer that covers the call, or the silence that permits it
	until         time.Time          // how long the call is held for an answer; zero: not yet
	news          string             // the answer for which it was judged again last
	rating        policy.Rating      // how risky it is, as the session is now
	rated         bool
	first         []string        // keys of what the agent has not used before
	looked        bool            // whether that is known
	known         map[string]bool // what was found in the store of it; shared by the steps of a plan
	lookErr       error
	spoken        bool         // a person has said something but yes about the like lately, or nobody could stop it: silence permits nothing
	silence       bool         // the risk stage leaves it to a person's silence
	yes           string       // the approval of an earlier call that covers the operation in this session (askedOnce)
	ruling        *flow.Ruling // where the arguments came from, as the session is now; nil: labels alone decide
	traceErr      error        // what kept that from being found out
	actsSaid      string       // of a tool that is said to read: why the call does more
	actsKnown     bool
	unasked       string        // of a read: why what it brings counts as unasked for
	followed      *following    // the step of the sealed plan that it follows; nil: nobody has looked
	modified      *modified     // the question takes the place of one whose arguments a person changed
	carries       []carriedText // delivered content in the arguments
	carried       []flow.Held   // the labels that it has
	brought       string        // where a command's result is from
	broughtAt     time.Time     // and when it was there; zero: now

	requested bool // the limit of external requests has counted it
	limited   bool // the rate limit has counted this call
	acting    bool // the intent is durable: from here on there is an outcome to write
	shadow    *fault.Verdict
	cause     *fault.Verdict // of the refusal, where the agent is told less

	talk sync.Mutex // guards over
	over bool       // the call has its outcome: no answer follows
}

// Call takes one call through the corridor, from credential to durable outcome. The stages are a closed list in a fixed order;
// they return verdicts, and only this function acts on them (DESIGN.md, "The corridor").
func (g *Gateway) Call(ctx context.Context, r Request) (answer Answer) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	now := g.now()
	c := &crossing{g: g, r: r, agent: agentOf(r.Principal), id: call.NewID("call_", now), request: call.NewID("req_", now), cancel: cancel}
	defer func() {
		if p := recover(); p != nil {
			g.log.Error("a stage panicked", "request_id", c.request, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			answer = c.panicked()
		}
	}()
	atOnce := g.kill.enter(c)
	defer g.kill.leave(c)

	// Judge. The switch and the bound on calls under way come before any work; the rest in the order of the design.
	if v := g.killed(c.agent); v.Decision != fault.Permit {
		return c.refuseBehind(v)
	}
	if atOnce > maxAtOnce {
		return c.refuse(ctx, fault.Refuse("limit", fault.LimitRate, fmt.Sprintf("At most %d calls of one agent at a time.", maxAtOnce),
			fault.Remedy{Kind: "wait", Text: "Try again when one of them has ended."}))
	}
	if v := c.resolve(ctx); v.Decision != fault.Permit {
		return c.refuse(ctx, v)
	}
	for try := 0; ; {
		c.lookAround(ctx)
		v := c.judge()
		if v.Decision == fault.Ask {
			v = c.asked(ctx, v)
		}
		if c.wait(ctx, v) { // the call enters again at the top: what was asked about may be answered, and the session have moved
			if err := c.again(ctx); err != nil {
				return c.refuse(ctx, fault.RefuseErr("approve", err))
			}
			continue
		}
		if v := g.killed(c.agent); v.Decision != fault.Permit { // pulled while it was held
			return c.refuseBehind(v)
		}
		if v.Decision != fault.Permit || r.DryRun {
			return c.refuse(ctx, v)
		}
		if v := c.takeRequest(); v.Decision != fault.Permit {
			return c.refuse(ctx, v)
		}
		err := c.intent(ctx)
		if err == nil {
			break
		}
		if spent := (*SpendError)(nil); errors.As(err, &spent) {
			return c.refuse(ctx, fault.RefuseErr("intent", spent.Err))
		}
		if !errors.Is(err, ErrMoved) || try == maxRejudge {
			return c.refuseBehind(fault.RefuseErr("intent", audited(err)))
		}
		if err := c.reload(ctx); err != nil {
			return c.refuseBehind(fault.RefuseErr("intent", audited(err)))
		}
		c.forget() // what the session holds now may not be what the person was shown
		try++
	}

	// Act. From here on an outcome is owed.
	result, err := c.act(ctx)
	c.talk.Lock()
	c.over = true
	c.talk.Unlock()
	out := c.inspect(result, err)
	c.gaveBack(out, err)
	if v := g.killed(c.agent); v.Decision != fault.Permit {
		return c.discard(out, v) // stopping waits for nothing: the outcome is written behind the answer
	}
	if err := c.outcome(ctx, out); err != nil {
		return c.answer(fault.RefuseErr("outcome", audited(err)))
	}
	if v := g.killed(c.agent); v.Decision != fault.Permit {
		return c.answer(v)
	}
	if c.session.State != session.Open {
		return c.answer(fault.Refuse("outcome", fault.SessionClosed, "The session was closed while the call ran; its result was discarded."))
	}
	a := c.answer(c.named(out.verdict))
	a.Result, a.RPCError = out.result, out.rpcError
	if c.op.command != nil {
		a.Metadata = out.entry.Attribution
	}
	for _, h := range out.raise {
		a.Brings = append(a.Brings, h.Label)
	}
	return a
}

// forget drops what was found out about the call in a state of the session that is over.
func (c *crossing) forget() {
	c.approval, c.shadow, c.ruling, c.traceErr, c.followed = nil, nil, nil, nil, nil
	c.rated, c.looked, c.silence, c.known, c.yes = false, false, false, nil, ""
}

// again takes a call that was held back to the top, with everything as it is by now.
func (c *crossing) again(ctx context.Context) error {
	c.forget()
	c.session = c.live.current.Load()
	err := c.g.creds.holds(c.r.Principal)
	if err != nil {
		return err
	}
	if c.decl, err = c.g.declared(c.agent); err != nil {
		return err
	}
	op := c.g.cat.snap.Load().byID[c.op.ID]
	if op == nil || op.Hash != c.op.Hash {
		return fault.New(fault.ToolUnknown, "The tool changed while the call waited for an answer.").Try("Look at the list of tools again.")
	}
	if c.offer == nil { // an offer's operation is not in the list of tools
		c.op = op
	}
	if c.declaration != nil {
		d, err := c.g.o.Store.Declaration(ctx, c.declaration.ID)
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
	if c.agent == "" { // a host speaks for the session's agent, and that agent may be switched off
		c.g.kill.leave(c)
		c.agent = c.session.Agent
		c.g.kill.enter(c)
		if v := c.g.killed(c.agent); v.Decision != fault.Permit {
			return v
		}
	}
	if c.decl, err = c.g.declared(c.agent); err != nil {
		return fault.RefuseErr(stage, err)
	}
	arguments := c.r.Arguments
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	if c.args, err = call.Canonical(arguments, call.DefaultLimits()); err != nil {
		return fault.RefuseErr(stage, err)
	}
	if c.args[0] != '{' {
		return fault.RefuseErr(stage, fault.New(fault.RequestMalformed, "the arguments must be a JSON object").At("arguments"))
	}
	snap := c.g.cat.snap.Load()
	switch c.r.Method {
	case "tools/call":
		c.op = snap.lookup(c.r.Tool)
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		c.offer = snap.offer(call.Resource, c.r.Tool)
	case "prompts/get":
		c.offer = snap.offer(call.Prompt, c.r.Tool)
	case "completion/complete":
		if c.offer = snap.offer(call.Prompt, c.r.Tool); c.offer == nil {
			c.offer = snap.offer(call.Resource, c.r.Tool)
		}
	}
	if c.offer != nil {
		c.op = c.offer.Operation
	}
	if c.r.Method != "tools/call" && len(c.r.Tool) > maxName {
		return fault.RefuseErr(stage, fault.New(fault.RequestMalformed, "at most %d bytes", maxName).At("uri"))
	}
	if c.op == nil || c.op.Standing == Unlisted || c.op.Standing == Unfit {
		return c.unknownTool(snap)
	}
	// What is read or asked for is the call as much as its arguments are: it is judged, hashed and kept with them.
	switch c.r.Method {
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		c.args = appendQuoted([]byte(`{"uri":`), c.r.Tool, '}')
	case "prompts/get":
		c.prompt, c.args = c.args, appendNamed(nil, "name", c.offer.Upstream, c.args)
	}
	if c.r.Method != "tools/call" {
		if c.args, err = call.Canonical(c.args, call.DefaultLimits()); err != nil {
			return fault.RefuseErr(stage, err)
		}
	}
	if c.r.Method == "tools/call" {
		c.unfold(ctx)
	}
	sent := c.args
	if answers := c.r.Exchange.InputResponses; answers != nil { // what goes out beside the arguments is part of the call
		if c.answers, err = call.Canonical(answers, call.DefaultLimits()); err != nil {
			return fault.RefuseErr(stage, err)
		}
		c.r.Exchange.InputResponses = c.answers
		sent = append(append(append([]byte{}, sent...), 0), c.answers...)
	}
	c.digest = call.Digest(c.agent, c.session.ID, c.op.ID, c.definition(), sent)
	c.carry()
	return fault.Permitted()
}

// definition is the hash of what is called, as digests have it. Of what is no tool the method is part of it: to read is not to subscribe.
func (c *crossing) definition() string {
	if c.r.Method == "tools/call" {
		return c.op.Hash
	}
	return call.HashBytes([]byte(c.op.Hash + "\x00" + c.r.Method))
}

// raised is the session as it will be once the call runs: with the labels of what the arguments carry.
func (c *crossing) raised() session.Session {
	if len(c.carried) == 0 {
		return *c.session
	}
	return c.session.Raise(c.carried...)
}

// reload takes the newest version of the session, from the store where memory has missed a move.
func (c *crossing) reload(ctx context.Context) error {
	judged := c.session.Version
	if c.session = c.live.current.Load(); c.session.Version != judged {
		return nil
	}
	s, err := c.g.o.Store.Session(context.WithoutCancel(ctx), c.session.ID)
	if err == nil {
		c.session = c.live.see(s)
	}
	return err
}

// judge runs the judging stages on one version of the session. The strictest verdict wins; the first deny ends it.
func (c *crossing) judge() fault.Verdict {
	return c.named(strictest(c.standing, c.inPhase, c.declare, c.permit, c.checked, c.limit, c.flow, c.listed, c.risk))
}

// standing: tool accepted and unchanged, session open, time left.
func (c *crossing) standing() fault.Verdict {
	const stage = "standing"
	aside, quarantined := c.g.quarantined(c.agent)
	switch {
	case quarantined:
		return fault.Refuse(stage, fault.AgentQuarantined, "The agent "+c.agent+" is quarantined since "+aside.Since.Format(time.RFC3339)+".",
			fault.Remedy{Kind: "ask_person", Text: "An operator can restore it."})
	case c.session.State != session.Open:
		return fault.Refuse(stage, fault.SessionClosed, "", fault.Remedy{Kind: "new_session", Text: "Ask a person or a host to open a new session."})
	case c.op.Standing != Active && !c.decl.Permits(c.op.ID, c.op.Flow.Effect != flow.Read):
		return c.permit() // what the agent may not call, it is not told about
	case c.op.Standing == Quarantined:
		return fault.Refuse(stage, fault.ToolQuarantined, "",
			fault.Remedy{Kind: "ask_person", Text: "An operator has to look at the tool's definition and accept it: POST /v1/tools/" + c.op.ID + "/accept"})
	case c.op.Standing != Active:
		return fault.Refuse(stage, fault.ToolUnknown, "The server no longer offers this tool.")
	case c.session.Budget > 0 && (c.session.BudgetLeft() == 0 || c.live.meter.left() <= 0):
		return fault.Refuse(stage, fault.LimitBudget, "", fault.Remedy{Kind: "new_session", Text: "Ask a person or a host to open a new session."})
	}
	if c.live.owes() {
		return fault.Refuse(stage, fault.AuditUnavailable, "The outcome of an earlier call of this session is not written down yet.",
			fault.Remedy{Kind: "wait", Text: "Try again when the store answers."})
	}
	return fault.Permitted()
}

// inPhase: external I/O only in execution (PH-1, PH-2); what runs in planning is the operator's allow-list (PH-4).
func (c *crossing) inPhase() fault.Verdict {
	if !c.op.Class.ExternalIO || c.g.phase.Allowed(c.op.ID, guard.Phase(c.session.Phase)) {
		return fault.Permitted()
	}
	return fault.Refuse("phase", fault.PhaseBlocked,
		fmt.Sprintf("%s reaches outside, and the session is in the planning phase.", c.op.Name),
		fault.Remedy{Kind: "declare", Text: "Submit a plan with sallyport_submit_plan; an approved plan opens the execution phase."},
		fault.Remedy{Kind: "ask_person", Text: "A person can move the session to execution."})
}

// permit: the agent's declaration, narrowed by the operator's policies; default deny. Whoever reads what another operation stored needs its
// permission too.
func (c *crossing) permit() fault.Verdict {
	v := c.permitted(c.op, c.writes())
	if of := c.stored(); of != nil && v.Decision == fault.Permit {
		v = c.permitted(of, of.Flow.Effect != flow.Read)
	}
	return v
}

func (c *crossing) permitted(op *Operation, write bool) fault.Verdict {
	effect, level := flow.Read, op.Class.Level
	if write {
		effect = flow.Write
		if level == 0 { // a write that nobody gave a level
			level = 2
		}
	}
	d := c.g.o.Policies.Decide(policy.Request{
		Agent: c.agent, Operation: op.ID, Server: op.Server, Requester: c.session.Requester, Door: c.r.Door,
		Phase: string(c.session.Phase), Effect: string(effect), Sensitivity: string(op.Flow.Sensitivity), Level: level,
		Labels: labelWords(c.raised().Labels), Arguments: c.args, Permitted: c.decl.Permits(op.ID, write),
	})
	if d.Allowed {
		return c.within(op)
	}
	v := fault.Refuse("permit", fault.PermissionDenied, d.Reason,
		fault.Remedy{Kind: "ask_person", Text: "An operator can add " + op.ID + " to the agent's declaration, or change the policy."})
	if acts := c.acts(); acts != "" && op == c.op {
		v.Reason = acts + " " + v.Reason
		v.Remedies = append([]fault.Remedy{{Kind: "ask_person", Text: "Use plain values. An operator can say what the argument may hold: a shape or a class under code, or its role under args."}}, v.Remedies...)
	}
	for _, id := range d.Policies {
		v.Because = append(v.Because, fault.Because{Operation: op.ID, Detail: "policy " + id})
	}
	return v
}

// within: what the agent's declaration permits to read under a root lies below it, also where the call does more than read.
func (c *crossing) within(op *Operation) fault.Verdict {
	if op.Flow.Effect != flow.Read && op.Acts == "" {
		return fault.Permitted()
	}
	roles := op.Class.Roles
	if op.command != nil && len(op.command.Places) > 0 {
		roles = maps.Clone(op.command.Places)
		maps.Copy(roles, op.Class.Roles)
	}
	outside := c.decl.Outside(op.ID, roles, c.args, c.partial)
	if outside == "" {
		return fault.Permitted()
	}
	v := fault.Refuse("permit", fault.PermissionDenied, outside,
		fault.Remedy{Kind: "ask_person", Text: "Read what lies there, or ask an operator to change permissions.read in the agent's declaration."})
	v.Because = append(v.Because, fault.Because{Operation: op.ID, Detail: "permissions.read: a root"})
	return v
}

// stored is the operation whose stored results the call reads; nil if it reads none.
func (c *crossing) stored() *Operation {
	if c.op.command == nil || c.op.command.Of == nil {
		return nil
	}
	if id := c.op.command.Of(c.args); id != "" {
		return c.g.cat.snap.Load().byID[id]
	}
	return nil
}

// limit: how often the session may call. A dry run takes nothing, and a call that is judged again has taken already.
func (c *crossing) limit() fault.Verdict {
	if c.limited {
		return fault.Permitted()
	}
	window := c.live.rates.calls
	if c.r.DryRun { // asking is work too, and takes nothing from the calls
		window = c.live.rates.checks
	}
	wait, ok := window.Take(c.g.now())
	if !ok {
		return fault.Refuse("limit", fault.LimitRate,
			fmt.Sprintf("At most %d calls a minute in one session.", c.g.tierOf(c.decl).CallsPerMinute),
			fault.Remedy{Kind: "wait", Text: fmt.Sprintf("Try again in %s.", wait.Round(time.Millisecond))})
	}
	c.limited = true
	return c.room()
}

// takeRequest counts an external request: now that it is to be made, not each time that it is asked whether it may be.
func (c *crossing) takeRequest() fault.Verdict {
	if c.op.command == nil || !c.op.command.Requests || c.requested {
		return fault.Permitted()
	}
	if wait, ok := c.live.rates.requests.Take(c.g.now()); !ok {
		return c.tooMany(wait)
	}
	c.requested = true
	return fault.Permitted()
}

// flow: the labels of the session against the operation's sink rule (FL-2), and where the arguments came from (PV-1). In shadow
// mode the verdict is only noted.
func (c *crossing) flow() fault.Verdict {
	if !c.looked {
		return fault.RefuseErr("flow", errNotLooked)
	}
	s := c.raised()
	var v fault.Verdict
	if c.ruling == nil && c.traceErr == nil {
		v = c.g.flowVerdict(c.op, &s)
	} else {
		v = c.traceVerdict(&s)
	}
	if v.Decision != fault.Permit {
		for _, t := range c.carries {
			v.Because = append(v.Because, fault.Because{Operation: t.Operation, CallID: t.CallID, Detail: "the arguments carry text from " + short(t.Source)})
		}
	}
	if v.Decision != fault.Permit && c.g.o.Mode == Shadow {
		c.shadow = &v
		return fault.Permitted()
	}
	return v
}

// flowVerdict is what labels alone say of an operation.
func (g *Gateway) flowVerdict(op *Operation, s *session.Session) fault.Verdict {
	d := flow.Judge(op.Flow, s.Labels)
	if d.Allowed {
		return g.unknownLabel(op, s)
	}
	v := fault.Refuse("flow", fault.FlowContaminated, d.Reason,
		fault.Remedy{Kind: "reorder", Text: "Call " + op.Name + " before the tools that bring such data, in a session that does not hold it yet. sallyport_validate_plan gives a safe order."},
		fault.Remedy{Kind: "new_session", Text: "Ask for a separate session for the part that needs " + op.Name + "."},
		fault.Remedy{Kind: "release", Text: "A person can release the session's labels, with a reason on the record."})
	for _, h := range d.Because {
		v.Because = append(v.Because, fault.Because{Label: string(h.Label), Operation: h.Operation, CallID: h.CallID, Detail: h.Cause})
	}
	return v
}

// unknownLabel refuses a sink in a session that holds a label which the configuration no longer has: nobody can say any more what it blocks.
func (g *Gateway) unknownLabel(op *Operation, s *session.Session) fault.Verdict {
	for _, h := range s.Labels {
		if len(op.Flow.BlockedBy) > 0 && !g.knownLabel(h.Label) {
			v := fault.Refuse("flow", fault.FlowContaminated, fmt.Sprintf("the session holds the label %q, which the configuration no longer has", h.Label),
				fault.Remedy{Kind: "release", Text: "A person can release the label, or put it back under flow.labels."})
			v.Because = append(v.Because, fault.Because{Label: string(h.Label), Operation: h.Operation, CallID: h.CallID, Detail: h.Cause})
			return v
		}
	}
	return fault.Permitted()
}

// listed: an operation that no entry of the operator's names is asked about, where the operator chose that over deny.
func (c *crossing) listed() fault.Verdict {
	if !c.op.AskFirst || c.covered() || c.yes != "" {
		return fault.Permitted()
	}
	v := askFor("permit", fmt.Sprintf("No entry of the configuration names %s, so a person must decide.", c.op.ID))
	v.Remedies = append(v.Remedies, fault.Remedy{Kind: "ask_person", Text: "An operator can classify " + c.op.ID + " under operations in sallyport.yaml."})
	return v
}

// entry is what all entries of this call say.
func (c *crossing) entry(kind audit.Kind) audit.Entry {
	e := audit.Entry{Kind: kind, Action: "call", Agent: c.agent, Actor: c.r.Principal.String(), Door: c.r.Door, RequestID: c.request, CallID: c.id, Digest: c.digest}
	if c.session != nil {
		e.Session, e.Requester = c.session.ID, c.session.Requester
	}
	if c.op != nil {
		e.Operation, e.DefHash = c.op.ID, c.op.Hash
	} else {
		e.Operation = short(c.r.Tool)
	}
	if c.r.Method != "tools/call" {
		e.Action = short(c.r.Method)
	}
	return e
}

// intent: durable before the effect, in the transaction that reads the labels it was judged on. A call that talks while it runs
// (progress, log lines, questions) brings its labels in with the intent, before the first word.
func (c *crossing) intent(ctx context.Context) error {
	e := c.entry(audit.Intent)
	e.Decision = string(fault.Permit)
	e.Arguments = c.g.payload(c.args)
	if c.shadow != nil {
		e.Shadow, e.Stage, e.Code, e.Reason = true, c.shadow.Stage, string(c.shadow.Code), c.shadow.Reason
	}
	c.approvedReasons()
	detail := map[string]any{}
	if c.answers != nil {
		detail["input_responses"] = c.g.payload(c.answers)
	}
	if d := c.declaredDetail(); d != nil {
		detail["declaration"] = d
	}
	if len(c.carries) > 0 {
		detail["carries"] = c.carries
	}
	if found := c.evidenceDetail(); found != nil {
		detail["evidence"] = found
	}
	if c.yes != "" {
		detail["covered_by"] = c.yes
	}
	if c.unasked != "" && !c.personApproved() {
		detail["unasked"] = c.unasked
	}
	if acts := c.acts(); acts != "" {
		detail["acts"] = acts
	}
	kept, err := c.kept()
	if err != nil {
		return err
	}
	spend := Spend{CallDigest: c.digest, CallID: c.id, At: c.g.now(), First: c.usedKeys(), Seen: kept}
	if spend.Step = c.takes(); spend.Step != nil {
		detail["plan_step"] = c.followed.Text
	}
	e.Risk, e.Amount = string(c.rating.Risk), c.rating.Amount
	if c.declaration != nil {
		spend.Declaration, spend.Approval = c.declaration.ID, c.declaration.ApprovalID
	}
	if c.approval != nil {
		spend.Declaration, spend.Approval = cmp.Or(spend.Declaration, c.approval.DeclarationID), c.approval.ID
		e.Risk = c.approval.Risk
		e.Approvers = c.approval.Approvers()
		detail["approval_id"] = c.approval.ID
		if c.approval.Silent(spend.At) {
			detail["permitted_by"] = "silence" // nobody's answer (DESIGN.md rule 9)
		}
	}
	if len(detail) > 0 {
		b, err := json.Marshal(detail)
		if err != nil {
			return err
		}
		e.Detail = b
	}
	raise := slices.Clone(c.carried)
	if c.r.Exchange.Progress != nil || c.r.Exchange.Log != nil || c.r.Exchange.Ask != nil {
		raise = append(raise, c.declaredLabels()...)
		if c.r.Exchange.Ask != nil && c.op.Class.Output != flow.TrustedOutput { // a question is the server's words, whatever shape its results have
			raise = flow.Raise(raise, flow.Operation{ID: c.op.ID}, c.id, flow.Untrusted)
		}
	}
	for _, h := range raise {
		e.Labels = append(e.Labels, string(h.Label))
	}
	s, err := c.g.o.Store.Intent(context.WithoutCancel(ctx), c.session.ID, c.session.Version, e, raise, spend)
	if err != nil {
		if errors.Is(err, ErrMoved) && s.ID != "" {
			c.live.see(s)
		}
		return err
	}
	c.session = c.live.see(s)
	c.acting = true
	c.g.changed(SessionChanged, c.session.ID)
	if c.approval != nil {
		c.g.changed(ApprovalChanged, c.approval.ID)
	}
	return nil
}

// declaredLabels is what the operation's results bring in by the operator's word. What the session held when it was judged is no
// reason to leave a label out: a person may release it while the call runs. The store adds what is missing.
func (c *crossing) declaredLabels() []flow.Held {
	labels := flow.Raise(nil, c.op.Flow, c.id)
	if of := c.stored(); of != nil {
		labels = flow.Raise(labels, flow.Operation{ID: c.op.ID, Emits: of.Flow.Emits}, c.id)
	}
	return c.brings(labels)
}

// act sends the very bytes that were judged, bounded in time by the operation, the session's budget and the switch.
func (c *crossing) act(ctx context.Context) (json.RawMessage, error) {
	if c.g.kill.active(c.agent) { // pulled while the intent was being written
		return nil, &NotDispatched{Err: errKilled}
	}
	bound := maxAct
	if t := c.op.Class.Timeout; t > 0 {
		bound = min(bound, t)
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	c.acted = time.Now()
	c.live.meter.start(c)
	defer c.live.meter.end(c)
	if c.live.current.Load().State != session.Open { // closed before there was a call to end
		return nil, &NotDispatched{Err: errClosed}
	}
	if c.op.command != nil {
		return c.run(ctx)
	}
	return c.g.o.Upstreams.Do(ctx, c.op.Server, c.r.Method, c.params(), c.exchange())
}

// params builds the request's params around the canonical arguments.
func (c *crossing) params() json.RawMessage {
	switch c.r.Method {
	case "tools/call":
		return appendNamed(nil, "name", c.op.Tool, c.args)
	case "prompts/get":
		return appendNamed(nil, "name", c.offer.Upstream, c.prompt)
	}
	return c.args // a resource's uri, or a completion, in which the door rewrote ref to the server's own name
}

func appendNamed(b []byte, key, name string, args []byte) []byte {
	b = append(b, `{"`...)
	b = append(b, key...)
	b = append(b, `":`...)
	b = appendQuoted(b, name, ',')
	b = append(b, `"arguments":`...)
	b = append(b, args...)
	return append(b, '}')
}

func appendQuoted(b []byte, s string, end byte) []byte {
	q, _ := json.Marshal(s) // a string always encodes
	return append(append(b, q...), end)
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
		c.g.changed(SessionChanged, c.session.ID)
	}
	return c.answer(v)
}

// recordRefusal writes a refusal down in its turn, or says within 2 s that it can't be.
func (g *Gateway) recordRefusal(ctx context.Context, e audit.Entry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxRefusing)
	defer cancel()
	select {
	case g.refusing <- struct{}{}:
		defer func() { <-g.refusing }()
		return g.o.Store.Record(ctx, e)
	case <-ctx.Done():
		return fault.New(fault.AuditUnavailable, "too many refusals wait to be written down")
	}
}

// taint raises the labels of what the arguments carried although the call was refused: the agent has it in its context.
func (c *crossing) taint(ctx context.Context) error {
	if c.session == nil || !slices.ContainsFunc(c.carried, func(h flow.Held) bool { return !c.live.current.Load().Holds(h.Label) }) {
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
			detail["told"] = Told{v.Stage, v.Code, clip(v.Reason)}
		}
	}
	e.Decision, e.Stage, e.Code, e.Reason = string(v.Decision), cause.Stage, string(cause.Code), clip(cause.Reason)
	if c.rated {
		e.Risk, e.Amount = string(c.rating.Risk), c.rating.Amount
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
		c.g.refusedCalls.record(c.g, e)
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
	if c.acting {
		e := c.entry(audit.Outcome)
		e.Decision, e.Code, e.Reason = "unknown", string(fault.Internal), "the gateway failed inside while the call ran"
		c.live.owe(owedOutcome{entry: e, raise: c.declaredLabels()})
		c.g.payOwed(c.live)
	} else if !c.r.DryRun {
		e := c.entry(audit.Decision)
		e.Decision, e.Code, e.Reason = string(fault.Deny), string(fault.Internal), "the gateway failed inside"
		c.g.refusedCalls.record(c.g, e)
	}
	return c.answer(v)
}

const (
	// maxBehind bounds how many entries of one kind wait for a store that does not answer. Above it they are in the program's log only.
	maxBehind = 10_000
	// maxBeside bounds how many of them, and of the refusals that are waited for, the store is given at a time, so that what an agent keeps
	// trying takes no more than a turn of the store from everybody else's calls.
	maxBeside = 64
	// maxRefusing is how long a refusal waits for its turn and for the store (DESIGN.md rule 1).
	maxRefusing = 2 * time.Second
)

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
			err := g.o.Store.Record(context.Background(), e)
			if err == nil {
				return
			}
			select {
			case <-time.After(250 * time.Millisecond):
			case <-g.running.Done():
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
		Decision: string(fault.Deny), Stage: v.Stage, Code: string(v.Code), Reason: clip(v.Reason),
	}
	if p.Kind == identity.Session {
		e.Session = p.ID
	}
	g.refusedAtDoors.record(g, e)
}
