package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport.example/flow"
	"sallyport.example/guard"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/changes"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/session"
	"sallyport.example/provenance"
)

const (
	maxSteps         = 200
	maxPlan          = 64 << 10 // bytes
	maxJustification = 2000     // bytes
)

// Manifest is what an agent learns about its tools before it plans (FL-4).
type Manifest struct {
	SessionID    string        `json:"session_id"`
	Phase        session.Phase `json:"phase"`
	Labels       []flow.Held   `json:"labels"`
	Tools        []flow.Tool   `json:"tools"`
	OrderingHint string        `json:"ordering_hint"`
	SystemPrompt string        `json:"system_prompt"`
}

// Manifest describes the tools the session may call, what calling each would block, and what is blocked already.
func (g *Gateway) Manifest(ctx context.Context, p identity.Principal, sessionID string) (any, error) {
	l, err := g.sessionOf(ctx, p, sessionID)
	if err != nil {
		return nil, err
	}
	return g.manifestOf(l.current.Load()), nil
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
		SessionID: s.ID, Phase: s.Phase, Labels: notNil(s.Labels), Tools: tools,
		OrderingHint: flow.OrderingHint(ops), SystemPrompt: systemPrompt(ops, s.Labels),
	}
}

// declaring tells the model what the built-in external operations want of it.
const declaring = "Tools whose name begins with comm_ reach outside. You can't use them unasked: say why with justification " +
	"(user_request: what the person asked, in their words; missing_knowledge: what exactly you don't know; expected_use: what you will do with the result), " +
	"or declare the need first with sallyport_declare and call the tool with the declaration_id. They run in the execution phase only. " +
	"Where a person must decide, make the same call again later."

// systemPrompt is what belongs into the session's system prompt: the planning constraint, how external information is asked for, and how what
// comes back is to be treated (FL-5, FE-2).
func systemPrompt(ops []flow.Operation, held []flow.Held) string {
	parts := []string{flow.SystemPrompt(ops, held), guard.ModelInstructions}
	if slices.ContainsFunc(ops, func(op flow.Operation) bool { return strings.HasPrefix(op.ID, catalogue.CommServer+".") }) {
		parts = slices.Insert(parts, 1, declaring)
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "\n\n")
}

func (g *Gateway) flowOps(agent string) []flow.Operation {
	var ops []flow.Operation
	for _, op := range g.operationsOf(agent) {
		ops = append(ops, op.Flow)
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
	return systemPrompt(g.flowOps(s.Agent), s.Labels), nil
}

// ManifestOf is the manifest of a session that was just opened, for whoever opened it.
func (g *Gateway) ManifestOf(s session.Session) Manifest { return g.manifestOf(&s) }

// Status is where a session stands.
type Status struct {
	session.Session
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
	waiting, err := g.desk.OpenOf(ctx, st.ID)
	st.PendingApprovals = append(st.PendingApprovals, waiting...)
	return st, err
}

// StatusOf is the public form of a session.
func StatusOf(s session.Session) Status {
	st := Status{Session: s, BudgetLeftMS: s.BudgetLeft().Milliseconds(), PendingApprovals: []string{}}
	st.Labels = notNil(st.Labels)
	if s.Plan != nil && s.Plan.State == session.PlanPending {
		st.PendingApprovals = append(st.PendingApprovals, s.Plan.ID)
	}
	return st
}

// plannedStep is one step as it is sent: a name, or an object. Justification is for plans only.
type plannedStep struct {
	Tool          string          `json:"tool"`
	Arguments     json.RawMessage `json:"arguments"`
	After         []int           `json:"after"`
	Justification string          `json:"justification"`
	Open          []string        `json:"open"`
	Each          *int            `json:"each"`

	From map[string]provenance.Source `json:"-"` // read strictly
}

var stepFields = []string{"tool", "arguments", "from", "open", "each", "after", "justification"}

// readSteps reads a list of steps strictly. field is what the list is called in the request.
func readSteps(body json.RawMessage, field string, names bool) ([]plannedStep, error) {
	limits := call.DefaultLimits()
	limits.Bytes = maxPlan
	if err := call.Check(body, limits); err != nil {
		return nil, err
	}
	var list []json.RawMessage
	found := false
	if len(body) == 0 || body[0] != '{' {
		return nil, fault.New(fault.RequestMalformed, "the request must be an object with the list %s", field)
	}
	for name, raw := range call.Members(body) {
		if name != field {
			return nil, fault.New(fault.RequestMalformed, "unknown field").At(short(name)).Try("The request has one field, %s.", field)
		}
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, fault.New(fault.RequestMalformed, "must be a list").At(field)
		}
		found = true
	}
	if !found || len(list) == 0 {
		return nil, fault.New(fault.RequestMalformed, "name at least one step").At(field)
	}
	if len(list) > maxSteps {
		return nil, fault.New(fault.RequestMalformed, "at most %d steps", maxSteps).At(field)
	}
	steps := make([]plannedStep, len(list))
	for i, raw := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		if names && raw[0] == '"' {
			if err := json.Unmarshal(raw, &steps[i].Tool); err != nil {
				return nil, fault.New(fault.RequestMalformed, "not a tool name").At(at)
			}
			continue
		}
		if raw[0] != '{' {
			return nil, fault.New(fault.RequestMalformed, "must be an object with a tool").At(at)
		}
		for name := range call.Members(raw) { // to the letter: encoding/json would take Tool for tool
			if !slices.Contains(stepFields, name) {
				return nil, fault.New(fault.RequestMalformed, "unknown field").At(at+"."+short(name)).Try("A step has %s.", strings.Join(stepFields, ", "))
			}
		}
		if err := json.Unmarshal(raw, &steps[i]); err != nil {
			return nil, fault.New(fault.RequestMalformed, "tool and justification are strings, arguments and from are objects, open is a list of argument names, after is a list of step numbers, each is one").At(at)
		}
		if steps[i].Tool == "" {
			return nil, fault.New(fault.RequestMalformed, "name the tool").At(at + ".tool")
		}
		if a := steps[i].Arguments; len(a) > 0 {
			if a[0] != '{' {
				return nil, fault.New(fault.RequestMalformed, "must be an object").At(at + ".arguments")
			}
			canonical, err := call.Canonical(a, call.DefaultLimits())
			if err != nil {
				return nil, fault.Of(err).At(at + ".arguments")
			}
			steps[i].Arguments = canonical
		}
		if raw, ok := call.Get(raw, "from"); ok {
			var err error
			if steps[i].From, err = readFrom(raw, i, at+".from"); err != nil {
				return nil, err
			}
		}
		if e := steps[i].Each; e != nil && (*e < 0 || *e >= i) {
			return nil, fault.New(fault.RequestMalformed, "must be the number of an earlier step, from 0").At(at + ".each")
		}
		if len(steps[i].Open) > maxOpen {
			return nil, fault.New(fault.RequestMalformed, "at most %d arguments", maxOpen).At(at + ".open")
		}
		if !names {
			if strings.TrimSpace(steps[i].Justification) == "" {
				return nil, fault.New(fault.RequestMalformed, "say why the step is needed").At(at + ".justification")
			}
			if len(steps[i].Justification) > maxJustification {
				return nil, fault.New(fault.RequestMalformed, "at most %d bytes", maxJustification).At(at + ".justification")
			}
		}
	}
	return steps, nil
}

// judgedPlan is a plan's steps with what each stage that can be asked beforehand says.
type judgedPlan struct {
	ops      []*catalogue.Operation
	verdicts []fault.Verdict // what becomes of the plan
	risks    []fault.Verdict // what becomes of the step when it is called
	report   flow.Report
}

// judgeStep judges a step by what is known before it is called: as part of the plan, and by its risk when it is called. A plan that is
// submitted, whose field is steps, has to say why it reaches outside.
func (g *Gateway) judgeStep(ctx context.Context, l *live, s *session.Session, d *agent.Declaration, op *catalogue.Operation, st plannedStep, at string, known map[string]bool) (v, risk fault.Verdict) {
	c := crossing{g: g, moment: judge.PlanStep, r: Request{Method: call.CallTool, DryRun: true}, speaker: speaker{agent: s.Agent, session: s, live: l, decl: d}}
	c.subject = subject{effect: effect.Of(op), op: op, args: st.Arguments, grounds: grounds{inPlan: true}, partial: st.Arguments == nil || len(st.From) > 0 || len(st.Open) > 0}
	if c.args == nil {
		c.args = []byte("{}")
	}
	if c.effect.Traits().NeedsReasons && strings.HasPrefix(at, "steps[") {
		if problems := declare.CheckStep(at+".justification", st.Justification); len(problems) > 0 {
			c.undeclared = declare.Refuse(problems)
		}
	}
	c.understand()
	f := c.load()
	partial := judge.Memory(c.moment, &f)
	if !partial.Denied() {
		c.loadEvidence(ctx, &f, known)
	}
	v, _ = partial.Finish(&f)
	if v.Decision == fault.Deny {
		return v, fault.Permitted()
	}
	return v, judge.StepRisk(&f)
}

// judgeSteps judges each step by the table of stages, and the order of all by the rule of labels.
func (g *Gateway) judgeSteps(ctx context.Context, l *live, s *session.Session, steps []plannedStep, field string) (judgedPlan, error) {
	j := judgedPlan{ops: make([]*catalogue.Operation, len(steps)), verdicts: make([]fault.Verdict, len(steps)), risks: make([]fault.Verdict, len(steps))}
	d, err := g.declared(s.Agent)
	if err != nil {
		return j, err
	}
	snap := g.catalogue.Snapshot()
	if err := checkSources(steps, field, snap.Lookup); err != nil {
		return j, err
	}
	planned := make([]flow.Step, len(steps))
	var unfit []flow.Violation
	said := sync.OnceValue(func() *provenance.Request { return provenance.ParseRequest(s.UserRequest) })
	known := map[string]bool{}
	for i, st := range steps {
		op := snap.Lookup(st.Tool)
		v := fault.Permitted()
		switch {
		case op == nil || op.Standing == catalogue.Unlisted || op.Standing == catalogue.Unfit:
			v = fault.Refuse("resolve", fault.ToolUnknown, fmt.Sprintf("There is no tool %q.", short(st.Tool)))
		default:
			v, j.risks[i] = g.judgeStep(ctx, l, s, d, op, st, fmt.Sprintf("%s[%d]", field, i), known)
		}
		j.ops[i], j.verdicts[i] = op, v
		// A step that can't be called moves nothing, so it stands in the order where it was planned.
		planned[i] = flow.Step{Op: flow.Operation{ID: short(st.Tool), Name: short(st.Tool), Sensitivity: flow.None, Effect: flow.Read}, After: st.needs()}
		if v.Decision != fault.Deny {
			planned[i].Op = op.Flow
			if st.Arguments != nil && len(st.From) == 0 {
				sealed := field == "steps" && len(s.Labels) == 0 // what the plan fixes is confirmed by the plan
				tainted := s.Holds(flow.Untrusted) || slices.ContainsFunc(planned[:i], func(before flow.Step) bool { return slices.Contains(before.Op.Emits, flow.Untrusted) })
				planned[i].Op = g.plannedOp(s, op, st.Arguments, said, tainted && !sealed)
			}
		} else {
			unfit = append(unfit, flow.Violation{AtStep: i, Tool: short(st.Tool), Code: string(v.Code), Reason: v.Reason, Suggestion: suggestion(v)})
		}
	}
	j.report, err = flow.Validate(planned, s.Labels)
	if err != nil {
		return j, fault.Wrap(err, fault.RequestMalformed, "%s", strings.ReplaceAll(err.Error(), "planned_calls", field))
	}
	if field == "steps" { // what a person is asked about with the plan
		j.report.Violations = slices.DeleteFunc(j.report.Violations, func(bad flow.Violation) bool {
			i := bad.AtStep
			v, ok := g.judgeNarrowed(s, steps, j.ops, i)
			if ok = ok && bad.Code == flow.CodeContaminated && j.verdicts[i].Decision != fault.Deny; ok && v.Decision == fault.Ask {
				j.verdicts[i] = v
			}
			return ok
		})
		j.report.Valid = j.report.Valid || len(j.report.Violations) == 0
	}
	for _, bad := range j.report.Violations {
		v := fault.Refuse("flow", fault.Code(bad.Code), bad.Reason, fault.Remedy{Kind: "reorder", Text: bad.Suggestion})
		j.verdicts[bad.AtStep] = v
	}
	if len(unfit) > 0 {
		j.report.Valid, j.report.SafeOrdering = false, nil
		j.report.Violations = append(unfit, j.report.Violations...)
		var at []int
		for _, u := range unfit {
			at = append(at, u.AtStep)
		}
		j.report.Impossible = &flow.Impossible{Because: "some steps can't be called in any order: " + unfit[0].Reason, Steps: at}
	}
	return j, nil
}

// suggestion says what to do about a step that can't be called.
func suggestion(v fault.Verdict) string {
	switch v.Code {
	case fault.RequestMalformed:
		return "correct its arguments"
	case fault.DeclarationInvalid:
		return "say in its justification what exactly is needed and what for"
	case fault.KillSwitch, fault.AgentQuarantined, fault.SessionClosed, fault.LimitBudget, fault.AuditUnavailable: // no other step would do
		if len(v.Remedies) > 0 {
			return v.Remedies[0].Text
		}
	}
	return "leave this step out, or use another tool"
}

// ValidatePlan answers whether the planned calls would run in this order, and in which order they would (FL-6).
func (g *Gateway) ValidatePlan(ctx context.Context, p identity.Principal, sessionID string, body json.RawMessage) (any, error) {
	l, err := g.sessionOf(ctx, p, sessionID)
	if err != nil {
		return nil, err
	}
	if err := g.takeTurn(l); err != nil {
		return nil, err
	}
	steps, err := readSteps(body, "planned_calls", true)
	if err != nil {
		return nil, err
	}
	j, err := g.judgeSteps(ctx, l, l.current.Load(), steps, "planned_calls")
	return j.report, err
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
	steps, err := readSteps(body, "steps", false)
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
		if g.standing.Killed(s.Agent) {
			return nil, fault.New(fault.KillSwitch, "")
		}
		if _, aside := g.standing.Quarantined(s.Agent); aside {
			return nil, fault.New(fault.AgentQuarantined, "")
		}
		// Judged here, not in the transaction: a plan is work, and the transaction is everybody's.
		plan, answer, e, err := g.judgePlan(ctx, p, l, s, steps, planID, now)
		if err != nil {
			return nil, err
		}
		if plan.State == session.PlanPending && try == 0 {
			if err := g.desk.TakeTurn(s.Agent, ", and this plan would be one"); err != nil {
				return nil, err
			}
		}
		moved, err := g.store.ChangeSession(ctx, s.ID, func(cur session.Session) (session.Session, audit.Entry, error) {
			if cur.Version != s.Version {
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
		answer.Phase = moved.Phase
		return answer, nil
	}
}

// taintBy raises the labels of delivered content in a plan: the agent has it in its context, so the plan is one that outsiders could speak into.
func (g *Gateway) taintBy(ctx context.Context, p identity.Principal, l *live, plan json.RawMessage) error {
	_, held := g.carriedIn(plan)
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
func (g *Gateway) judgePlan(ctx context.Context, p identity.Principal, l *live, s session.Session, steps []plannedStep, id string, now time.Time) (session.Plan, PlanAnswer, audit.Entry, error) {
	plan := session.Plan{ID: id, Submitted: now, State: session.PlanApproved, DecidedBy: "rule", DecidedAt: now}
	j, err := g.judgeSteps(ctx, l, &s, steps, "steps")
	if err != nil {
		return plan, PlanAnswer{}, audit.Entry{}, err
	}
	var cause fault.Verdict // of the first step that kept the plan from being approved by rule
	answer := PlanAnswer{PlanID: plan.ID, Violations: j.report.Violations, SafeOrdering: j.report.SafeOrdering}
	for i, st := range steps {
		v := j.verdicts[i]
		step := session.Step{Tool: st.Tool, Arguments: st.Arguments, From: st.From, Open: st.Open, Each: st.Each, After: st.After, Justification: st.Justification}
		if j.ops[i] != nil {
			step.Operation, step.Definition = j.ops[i].ID, j.ops[i].Hash
		}
		plan.Steps = append(plan.Steps, step)
		shown := v
		if v.Decision == fault.Ask { // what a person decides on is the plan
			others := slices.DeleteFunc(slices.Clone(v.Remedies), func(r fault.Remedy) bool { return r.Kind == "approve" })
			shown.Remedies = append([]fault.Remedy{{Kind: "approve", Text: "An operator has been asked about the plan. Its steps can be called once it is approved."}}, others...)
		}
		if v.Decision == fault.Permit && j.risks[i].Decision == fault.Ask { // the plan can be approved; the call will be asked about all the same
			shown = j.risks[i]
			shown.Remedies = []fault.Remedy{{Kind: "approve", Text: "A person will be asked when it is called."}}
		}
		answer.Steps = append(answer.Steps, PlanStep{Tool: st.Tool, Operation: step.Operation, Verdict: shown})
		switch {
		case v.Decision == fault.Deny && plan.State != session.PlanRejected:
			cause = v
			if op := g.catalogue.Snapshot().Withheld(call.Tool, st.Tool); op != nil && j.ops[i] == nil {
				cause = op.WhyWithheld(st.Tool)
			}
			cause.Reason = fmt.Sprintf("step %d: %s", i, cause.Reason)
			plan.State, plan.Reason = session.PlanRejected, fmt.Sprintf("step %d: %s", i, v.Reason)
		case v.Decision == fault.Ask && plan.State == session.PlanApproved:
			cause = v
			cause.Reason = fmt.Sprintf("step %d: %s", i, v.Reason)
			plan.State, plan.DecidedBy = session.PlanPending, ""
		}
	}
	plan.Clean = len(s.Labels) == 0 // as it will be when it is put in place
	for i, confirms := range confirmations(&plan, j.ops) {
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
		Stage: cause.Stage, Code: string(cause.Code), Reason: audit.Clip(cause.Reason),
	}
	whole, err := json.Marshal(plan.Steps)
	if err != nil {
		return plan, answer, e, err
	}
	e.Arguments = g.payload(whole)
	return plan, answer, e, nil
}

// takeTurn counts a plan against the session's rate, like a call: judging one is work.
func (g *Gateway) takeTurn(l *live) error {
	if wait, ok := l.rates.Calls.Take(g.now()); !ok {
		return fault.New(fault.LimitRate, "At most %d calls, declarations and plans a minute in one session.", g.tierOfAgent(l.current.Load().Agent).CallsPerMinute).Try("Try again in %s.", wait.Round(time.Millisecond))
	}
	return nil
}
