package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport.example/flow"
	"sallyport.example/guard"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/changes"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/limit"
	"sallyport.example/internal/planned"
	"sallyport.example/internal/quota"
	"sallyport.example/internal/session"
)

// Manifest is what an agent learns about its tools before it plans (FL-4).
type Manifest struct {
	SessionID    string         `json:"session_id"`
	Phase        session.Phase  `json:"phase"`
	Labels       []flow.Held    `json:"labels"`
	Tools        []flow.Tool    `json:"tools"`
	OrderingHint string         `json:"ordering_hint"`
	SystemPrompt string         `json:"system_prompt"`
	Quotas       []quota.Status `json:"quotas,omitempty" doc:"What the agent has used of its quotas."`

	Throttles []limit.Throttle `json:"throttles,omitempty" doc:"How fast the agent may call, where its declaration says so."`

	Degraded *agent.Degraded `json:"degraded,omitempty" doc:"An agent that this one depends on is aside. Until it is back, only what the declaration lists under degraded can be called, or, without that, what reads."`
}

// Manifest describes the tools the session may call, what calling each would block, and what is blocked already.
func (g *Gateway) Manifest(ctx context.Context, p identity.Principal, sessionID string) (any, error) {
	l, err := g.sessionOf(ctx, p, sessionID)
	if err != nil {
		return nil, err
	}
	m := g.manifestOf(l.current.Load())
	m.Degraded = g.Degraded(l.current.Load().Agent)
	m.Throttles = g.Throttles(l.current.Load().Agent)
	if m.Quotas, err = g.Quotas(ctx, l.current.Load().Agent); err != nil {
		return nil, err
	}
	return m, nil
}

func (g *Gateway) manifestOf(s *session.Session) Manifest {
	ops := g.flowOps(s.Agent)
	tools := notNil(flow.Manifest(ops, s.Labels))
	byID := g.catalogue.Snapshot().ByID
	for i := range tools {
		if op := byID(tools[i].Operation); op != nil {
			tools[i].Risk = string(op.Class.Risk())
		}
	}
	return Manifest{
		SessionID: s.ID, Phase: s.PhaseAt(g.standing.StopEpoch(s.Agent), g.settings.Load().rules.Observe), Labels: notNil(s.Labels), Tools: tools,
		OrderingHint: flow.OrderingHint(ops), SystemPrompt: systemPrompt(g.settings.Load().rules, ops, s.Labels),
	}
}

// declaring tells the model what the built-in external operations want of it; enforced what else holds for them, unless the gateway only observes.
const (
	declaring = "comm_ tools need justification: user_request (what the person asked), missing_knowledge (what exactly you don't know), expected_use; " +
		"or a declaration_id of sallyport_declare."
	enforced = " They need the execution phase, too."
)

// systemPrompt is what belongs into the session's system prompt: the planning constraint, how external information is asked for, and how what
// comes back is to be treated (FL-5, FE-2).
func systemPrompt(rules *judge.Rules, ops []flow.Operation, held []flow.Held) string {
	parts := []string{flow.SystemPrompt(ops, held), guard.ModelInstructions}
	if slices.ContainsFunc(ops, func(op flow.Operation) bool { return strings.HasPrefix(op.ID, catalogue.CommServer+".") }) {
		words := declaring
		if !rules.Observe {
			words += enforced
		}
		parts = slices.Insert(parts, 1, words)
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "\n\n")
}

// flowOps are the operations of the agent, with the labels of all that their servers have stored, and those that block them in truth.
func (g *Gateway) flowOps(agent string) []flow.Operation {
	var ops []flow.Operation
	set := g.settings.Load()
	d, err := set.declared(agent)
	if err != nil {
		return nil // it may call nothing
	}
	for _, op := range g.operationsOf(agent) {
		ops = append(ops, judge.Enforced(set.rules, g.foreseen(d, op, nil)))
	}
	return ops
}

// SystemPrompt is the planning constraint for the session's system prompt (FL-5).
func (g *Gateway) SystemPrompt(ctx context.Context, p identity.Principal) (string, error) {
	l, err := g.sessionOf(ctx, p, "")
	if err != nil {
		return "", err
	}
	s := l.current.Load()
	return systemPrompt(g.settings.Load().rules, g.flowOps(s.Agent), s.Labels), nil
}

// ManifestOf is the manifest of a session that was just opened, for whoever opened it.
func (g *Gateway) ManifestOf(s session.Session) Manifest { return g.manifestOf(&s) }

// Status is where a session stands.
type Status struct {
	session.Session
	Autonomous       bool     `json:"autonomous"` // nobody but the agent opened it, so it works for nobody
	BudgetLeftMS     int64    `json:"budget_left_ms"`
	PendingApprovals []string `json:"pending_approvals"`
}

// Status tells an agent or its host where its session stands.
func (g *Gateway) Status(ctx context.Context, p identity.Principal, sessionID string) (any, error) {
	l, err := g.sessionOf(ctx, p, sessionID)
	if err != nil {
		return nil, err
	}
	st := StatusOf(*l.current.Load())
	st.Next = nil // what a person ordered for the next conversation is for people to see
	waiting, err := g.desk.OpenOf(ctx, st.ID)
	st.PendingApprovals = append(st.PendingApprovals, waiting...)
	return st, err
}

// StatusOf is the public form of a session.
func StatusOf(s session.Session) Status {
	st := Status{Session: s, Autonomous: s.Autonomous(), BudgetLeftMS: s.BudgetLeft().Milliseconds(), PendingApprovals: []string{}}
	st.Labels = notNil(st.Labels)
	if s.Plan != nil && s.Plan.State == session.PlanPending {
		st.PendingApprovals = append(st.PendingApprovals, s.Plan.ID)
	}
	return st
}

// judgeStep judges a step by what is known before it is called: as part of the plan, by its risk when it is called and, where the steps are only
// asked about, by what people would be asked then. why is the field that has to say why the step reaches outside; "" where they are only asked about.
func (g *Gateway) judgeStep(ctx context.Context, who speaker, op *catalogue.Operation, st planned.Step, why string, held []flow.Held, known map[string]bool) planned.Said {
	c := crossing{g: g, moment: judge.PlanStep, r: Request{Method: call.CallTool, DryRun: true}, speaker: who}
	c.subject = subject{effect: effect.Of(op), op: op, args: st.Arguments, grounds: grounds{inPlan: true}, partial: st.Arguments == nil || len(st.From) > 0 || len(st.Open) > 0}
	if c.args == nil {
		c.args = []byte("{}")
	}
	if c.effect.Traits().NeedsReasons && why != "" {
		if problems := declare.CheckStep(why, st.Justification); len(problems) > 0 {
			c.undeclared = declare.Refuse(problems)
		}
	}
	c.understand()
	f := c.load()
	partial := judge.Memory(c.moment, &f)
	if !partial.Denied() {
		c.loadEvidence(ctx, &f, known)
	}
	v, _ := partial.Finish(&f)
	if v.Decision == fault.Deny {
		return planned.Said{Verdict: v, Risk: fault.Permitted()}
	}
	said := planned.Said{Verdict: v}
	said.Risk, _ = judge.StepRisk(&f)
	if why == "" {
		said.Ask = c.foresee(ctx, &f, v, held)
	}
	return said
}

// foresee says what people would be asked about a step when it is called: with the labels that the steps before it bring, and by what can be known
// now of where its arguments come from. v is the verdict on it as part of the plan.
func (c *crossing) foresee(ctx context.Context, f *judge.Facts, v fault.Verdict, held []flow.Held) *planned.Ask {
	f.Session.Labels, f.Session.Request = append(slices.Clip(f.Session.Labels), held...), c.live.seen.Request(c.session.UserRequest)
	c.moment = judge.Check
	c.trace(ctx, f)
	untrusted := slices.ContainsFunc(f.Session.Labels, func(h flow.Held) bool { return h.Label == flow.Untrusted })
	free := !c.writes && !c.op.Profile.EgressURL || c.op.Class.Level == ownLevel && f.Rules.FreeLevel1
	risk, found := judge.StepRisk(f)
	offPlan, lifted := judge.StepOffPlan(f), judge.Lifts(f.Rules, &f.Operation, f.Session.Labels)
	ask := &planned.Ask{Risk: string(found.Rating.Risk), Needed: approval.Needed(string(found.Rating.Risk))}
	switch {
	case v.Decision == fault.Ask:
		ask.Reason = v.Reason
	case !lifted && f.Evidence.Unconfirmed():
		ask.Reason = f.Evidence.Ruling.Reason
	case !lifted && untrusted && c.partial && !free && f.Operation.Traced:
		ask.Reason = "Not all of its arguments are planned. After untrusted content, a call is asked about if the person, or what is trusted, did not name them."
	case offPlan.Decision == fault.Ask:
		ask.Reason = offPlan.Reason
	case risk.Decision == fault.Ask:
		if ask.Reason = risk.Reason; found.Silence {
			ask.Needed = 0
		}
	default:
		return nil
	}
	return ask
}

// judgeSteps judges each step by the table of stages, and the order of all by the rule of labels. strict judges as if the gateway enforced.
func (g *Gateway) judgeSteps(ctx context.Context, strict bool, l *live, s *session.Session, steps []planned.Step, list planned.List) (planned.Judged, error) {
	set, snap := g.view()
	if strict {
		set = set.enforcing()
	}
	d, err := set.declared(s.Agent)
	if err != nil {
		return planned.Judged{}, err
	}
	who, known := speaker{set: set, agent: s.Agent, session: s, live: l, decl: d}, map[string]bool{}
	j := planned.Judge{Rules: set.rules, Session: s, Own: set.Identities(s.Requester), Lookup: snap.Lookup, Flow: func(op *catalogue.Operation, args []byte) flow.Operation { return g.foreseen(d, op, args) }}
	j.Step = func(op *catalogue.Operation, st planned.Step, at string, held []flow.Held) planned.Said {
		why := ""
		if list == planned.Submitted {
			why = at + ".justification"
		}
		return g.judgeStep(ctx, who, op, st, why, held, known)
	}
	for i := range steps {
		if err := completeStep(&steps[i], j.Lookup(steps[i].Tool)); err != nil {
			return planned.Judged{}, fault.Of(err).At(fmt.Sprintf("%s[%d].arguments", list, i))
		}
	}
	return j.Judge(steps, list)
}

// completeStep writes into a step what will be written into its call, so that the call is the one that is judged and approved now.
func completeStep(st *planned.Step, op *catalogue.Operation) (err error) {
	if op == nil || st.Arguments == nil && st.From == nil && st.Open == nil { // a step that fixes nothing
		return nil
	}
	arguments := st.Arguments
	if arguments == nil {
		arguments = json.RawMessage("{}")
	}
	arguments, err = op.WithDefaults(arguments, func(name string) bool {
		_, from := st.From[name]
		return from || slices.Contains(st.Open, name)
	})
	if st.Arguments != nil || string(arguments) != "{}" {
		st.Arguments = arguments
	}
	return err
}

// ValidatePlan answers whether the planned calls would run in this order, in which order they would, and what people would be asked (FL-6).
func (g *Gateway) ValidatePlan(ctx context.Context, p identity.Principal, sessionID string, body json.RawMessage) (any, error) {
	l, err := g.sessionOf(ctx, p, sessionID)
	if err != nil {
		return nil, err
	}
	if err := g.takeTurn(l); err != nil {
		return nil, err
	}
	steps, err := planned.Read(body, planned.Asked)
	if err != nil {
		return nil, err
	}
	j, err := g.judgeSteps(ctx, false, l, l.current.Load(), steps, planned.Asked)
	return j.Report, err
}

// PlanAnswer is what became of a submitted plan.
type PlanAnswer struct {
	PlanID       string            `json:"plan_id"`
	Digest       string            `json:"digest"`
	State        session.PlanState `json:"state"`
	Steps        []PlanStep        `json:"steps"`
	Violations   []flow.Violation  `json:"violations"`
	SafeOrdering []string          `json:"safe_ordering"`
	ApprovalID   string            `json:"approval_id,omitempty"`
	Phase        session.Phase     `json:"phase"`
	Reason       string            `json:"reason,omitempty"`
}

// PlanStep is one step with its verdict.
type PlanStep struct {
	Tool      string        `json:"tool"`
	Operation string        `json:"operation,omitempty"`
	Verdict   fault.Verdict `json:"verdict"`
	Confirms  string        `json:"vouches"` // which arguments of its calls the plan confirms, once the session has read untrusted content
}

// SubmitPlan judges a plan and, when every step passes, seals it by rule and opens the execution phase. A plan that needs a person
// waits; one with a step that would be refused is rejected, with an order that would pass if there is one.
func (g *Gateway) SubmitPlan(ctx context.Context, p identity.Principal, sessionID string, body json.RawMessage) (any, error) {
	l, err := g.sessionOf(ctx, p, sessionID)
	if err != nil {
		return nil, err
	}
	if err := g.takeTurn(l); err != nil {
		return nil, err
	}
	steps, err := planned.Read(body, planned.Submitted)
	if err != nil {
		return nil, err
	}
	if err := g.taintBy(ctx, p, l, body); err != nil {
		return nil, err
	}
	now := g.now()
	planID := call.NewID("plan_", now)
	for try := 0; ; try++ {
		s := *l.current.Load()
		epoch := g.standing.StopEpoch(s.Agent) // before it is asked whether the agent is stopped
		if g.standing.Killed(s.Agent) {
			return nil, fault.New(fault.KillSwitch, "")
		}
		if _, aside := g.standing.Quarantined(s.Agent); aside {
			return nil, fault.New(fault.AgentQuarantined, "")
		}
		set := g.settings.Load()
		// Judged here, not in the transaction: a plan is work, and the transaction is everybody's.
		plan, answer, e, err := g.judgePlan(ctx, p, l, s, steps, planID, now)
		if err != nil {
			return nil, err
		}
		plan.StopEpoch = epoch
		if plan.State == session.PlanPending && try == 0 {
			if err := g.desk.TakeTurn(s.Agent, ", and this plan would be one"); err != nil {
				return nil, err
			}
		}
		moved, err := g.store.ChangeSession(ctx, s.ID, func(cur session.Session) (session.Session, audit.Entry, error) {
			if cur.Version != s.Version || set != g.settings.Load() {
				return cur, e, ErrMoved
			}
			next, err := cur.SubmitPlan(plan)
			return next, e, err
		})
		if errors.Is(err, ErrMoved) && try < maxRejudge {
			if cur, err := g.store.Session(ctx, s.ID); err == nil {
				l.see(cur)
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		l.see(moved)
		g.feed.Publish(changes.Session, moved.ID)
		g.feed.Publish(changes.Plan, moved.ID)
		g.letThrough(&e)
		answer.Phase = moved.Phase
		return answer, nil
	}
}

// taintBy raises the labels of delivered content in a plan: the agent has it in its context, so the plan is one that outsiders could speak into.
func (g *Gateway) taintBy(ctx context.Context, p identity.Principal, l *live, plan json.RawMessage) error {
	_, held := g.carriedIn(g.settings.Load(), plan)
	s := l.current.Load()
	if !holdsNew(s, held) {
		return nil
	}
	e := audit.Entry{Action: "session.taint", Actor: p.String(), Reason: "the steps of a submitted plan carried labelled text"}
	for _, h := range held {
		e.Labels = append(e.Labels, string(h.Label))
	}
	_, err := g.change(context.WithoutCancel(ctx), s.ID, e, func(s session.Session) (session.Session, error) { return s.Raise(held...), nil })
	return err
}

// judgePlan makes of the steps a plan with its state, the answer to it and its entry.
func (g *Gateway) judgePlan(ctx context.Context, p identity.Principal, l *live, s session.Session, steps []planned.Step, id string, now time.Time) (session.Plan, PlanAnswer, audit.Entry, error) {
	plan := session.Plan{ID: id, Submitted: now, State: session.PlanApproved, DecidedBy: session.ByRule, DecidedAt: now}
	j, err := g.judgeSteps(ctx, false, l, &s, steps, planned.Submitted)
	if err != nil {
		return plan, PlanAnswer{}, audit.Entry{}, err
	}
	set := g.settings.Load()
	d, err := set.declared(s.Agent)
	if err != nil {
		return plan, PlanAnswer{}, audit.Entry{}, err
	}
	waits := set.plansWait(d, &s)
	enforced := waits
	if set.rules.Observe {
		enforced = ""
	}
	said := g.decideSteps(j, steps, enforced)
	if plan.State, plan.Reason = said.state, said.reason; plan.State == session.PlanPending {
		plan.DecidedBy, plan.Why = "", said.cause.Reason
	}
	answer := PlanAnswer{PlanID: plan.ID, Violations: j.Report.Violations, SafeOrdering: j.Report.SafeOrdering}
	for i, st := range steps {
		v := j.Verdicts[i]
		step := session.Step{Tool: st.Tool, Arguments: st.Arguments, From: st.From, Open: st.Open, Each: st.Each, After: st.After, Justification: st.Justification}
		if j.Operations[i] != nil {
			step.Operation, step.Definition = j.Operations[i].ID, j.Operations[i].Hash
		}
		plan.Steps = append(plan.Steps, step)
		shown := v
		if v.Decision == fault.Ask { // what a person decides on is the plan
			others := slices.DeleteFunc(slices.Clone(v.Remedies), func(r fault.Remedy) bool { return r.Kind == "approve" })
			shown.Remedies = append([]fault.Remedy{{Kind: "approve", Text: "An operator has been asked about the plan. Its steps can be called once it is approved."}}, others...)
		}
		if v.Decision == fault.Permit && j.Risks[i].Decision == fault.Ask { // the plan can be approved; the call will be asked about all the same
			shown = j.Risks[i]
			shown.Remedies = []fault.Remedy{{Kind: "approve", Text: "A person will be asked when it is called."}}
		}
		answer.Steps = append(answer.Steps, PlanStep{Tool: st.Tool, Operation: step.Operation, Verdict: shown})
	}
	plan.Clean = len(s.Labels) == 0 // as it will be when it is put in place
	for i, confirms := range planned.Confirms(&plan, j.Operations) {
		answer.Steps[i].Confirms = confirms
	}
	plan.Digest = session.PlanDigest(s.ID, s.Agent, plan.Steps)
	answer.State, answer.Digest, answer.Reason = plan.State, plan.Digest, plan.Reason
	if plan.State == session.PlanPending {
		answer.ApprovalID = plan.ID
	}
	e := audit.Entry{
		Kind: audit.Decision, Action: "plan.submit", Session: s.ID, Agent: s.Agent, Requester: s.Requester, Actor: p.String(),
		Digest: plan.Digest, Decision: map[session.PlanState]string{session.PlanApproved: "permit", session.PlanPending: "ask", session.PlanRejected: "deny"}[plan.State],
		Stage: said.cause.Stage, Code: string(said.cause.Code), Reason: audit.Clip(said.cause.Reason),
	}
	if set.rules.Observe && plan.State == session.PlanApproved {
		strict, err := g.judgeSteps(ctx, true, l, &s, steps, planned.Submitted)
		if err != nil {
			return plan, answer, e, err
		}
		if would := g.decideSteps(strict, steps, waits); would.state != session.PlanApproved {
			plan.Observed = true
			wouldBe(&e, &would.cause)
		}
	}
	whole, err := json.Marshal(plan.Steps)
	if err != nil {
		return plan, answer, e, err
	}
	if e.Arguments = g.Payload(whole); plan.State == session.PlanRejected {
		e.Arguments = onlyShown(e.Arguments)
	}
	return plan, answer, e, nil
}

// decided is what becomes of a plan.
type decided struct {
	state  session.PlanState
	reason string        // as the agent is told
	cause  fault.Verdict // of the first step that kept the plan from being approved by rule
}

// decideSteps decides on a plan by what was said of its steps: the first refusal rejects it, and otherwise the first question makes it wait. waits says
// why a person decides whatever is said of the steps; "": none does.
func (g *Gateway) decideSteps(j planned.Judged, steps []planned.Step, waits string) decided {
	d := decided{state: session.PlanApproved}
	for i, v := range j.Verdicts {
		at := fmt.Sprintf("step %d: ", i)
		switch {
		case v.Decision == fault.Deny:
			d.state, d.reason, d.cause = session.PlanRejected, at+v.Reason, v
			if op := g.catalogue.Snapshot().Withheld(call.Tool, steps[i].Tool); op != nil && j.Operations[i] == nil {
				d.cause = op.WhyWithheld(steps[i].Tool)
			}
			d.cause.Reason = at + d.cause.Reason
			return d
		case v.Decision == fault.Ask && d.state == session.PlanApproved:
			d.state, d.cause = session.PlanPending, v
			d.cause.Reason = at + v.Reason
		}
	}
	if d.state == session.PlanApproved && waits != "" {
		d.state, d.cause = session.PlanPending, judge.Ask("plan", waits)
	}
	return d
}

// TakeTurn counts what an agent asks for in a session against its rate, like a call.
func (g *Gateway) TakeTurn(ctx context.Context, p identity.Principal, sessionID string) error {
	l, err := g.sessionOf(ctx, p, sessionID)
	if err != nil {
		return err
	}
	return g.takeTurn(l)
}

// takeTurn counts a plan against the session's rate, like a call: judging one is work.
func (g *Gateway) takeTurn(l *live) error {
	if wait, ok := l.rates.Calls.Take(g.now()); !ok {
		return fault.New(fault.LimitRate, "At most %d calls, declarations, plans and recommendations a minute in one session.", g.tierOfAgent(l.current.Load().Agent).CallsPerMinute).Try("Try again in %s.", wait.Round(time.Millisecond))
	}
	return nil
}
