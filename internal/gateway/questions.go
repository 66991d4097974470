package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/display"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/evidence"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/session"
)

// flagged are the flags of a declaration in words.
var flagged = map[string]string{
	declare.RequestParaphrased: "The agent does not quote the request that is on record, but words it differently.",
	declare.NoRequestOnRecord:  "There is no request of a person on record that the agent's words could be held against.",
	requestScreened:            "Screening takes words of the request that is on record for orders to an agent: somebody else may have written them.",
}

// asked looks for a person's answer to this very call, and asks for one where there is none. What was approved is judged again from the
// first stage, with the approval as a fact (docs/design.md, rule 2).
func (c *crossing) asked(ctx context.Context, v fault.Verdict) fault.Verdict {
	const stage = "approve"
	if c.r.composed {
		return fault.Refuse(stage, fault.ApprovalRequired, "A person would have to be asked about this request.", fault.Remedy{Kind: "ask_person", Text: "Ask a person to do it."})
	}
	if v.ApprovalID != nil { // the declaration it runs on waits
		return v
	}
	if c.answers != nil {
		return fault.Refuse(stage, fault.ApprovalRequired, "A person would have to decide on this call, and can't be shown what a server was answered.",
			fault.Remedy{Kind: "ask_person", Text: "Ask a person to do it."})
	}
	if err := c.lookAtInputs(ctx); err != nil {
		return fault.RefuseErr(stage, err)
	}
	if a := c.shownBefore(); a != nil {
		return c.judgeAnswered(a)
	}
	answer, err := c.g.desk.Answer(ctx, c.session.ID, c.digest, c.stands)
	switch a := answer.Approval; {
	case err != nil:
		return fault.RefuseErr(stage, err)
	case answer.Replacement != nil:
		return c.otherArguments(answer)
	case answer.Refusal != nil:
		return rejected(stage, answer)
	case a != nil && !answer.Waits:
		return c.judgeAnswered(a)
	case a != nil:
		if c.judged.found.Silence && (a.SilenceAt.IsZero() || len(a.Votes) > 0) { // a person changed it or put it off
			v = judge.Ask(v.Stage, c.op.Name+" waits for a person's answer.")
		}
		v.ApprovalID = &a.ID
		return v
	case c.r.DryRun:
		return v
	}
	q := c.draft(v)
	q.Entry = c.entry(audit.Decision)
	q.Entry.Action, q.Entry.Decision, q.Entry.Stage, q.Entry.Code, q.Entry.Reason = "approval.ask", string(fault.Ask), v.Stage, string(v.Code), v.Reason
	q.Entry.Risk, q.Entry.Amount = q.Approval.Risk, q.Approval.Amount
	a, err := c.g.desk.Ask(ctx, q)
	switch {
	case errors.Is(err, desk.ErrTooManySilent) && !c.silenceFull:
		c.silenceFull, c.judged.facts.Evidence.StoppedLately = true, true
		if v = c.judgeAnswered(nil); v.Decision != fault.Ask {
			return v
		}
		return c.asked(ctx, v)
	case errors.Is(err, desk.ErrTooLong):
		return fault.Refuse(stage, fault.LimitQuota, fmt.Sprintf("A person would have to decide on this call, and nobody reads arguments of %d bytes; at most %d.", len(c.args), desk.MaxArguments),
			fault.Remedy{Kind: "ask_person", Text: "Make it smaller, or ask a person to do it."})
	case fault.Is(err, fault.LimitRate):
		e := fault.Of(err)
		return fault.Refuse(stage, e.Code, e.Message, fault.Remedy{Kind: "wait", Text: e.Remedy})
	case err != nil:
		return fault.RefuseErr(stage, err)
	}
	c.opened = a.ID
	v.ApprovalID = &a.ID
	return v
}

// meets tells whether the call does nothing but meet a question that an earlier one opened, which is on record. Only of requests to models: their SDKs repeat by themselves what
// waits for a person.
func (c *crossing) meets(v fault.Verdict) bool {
	return v.Decision == fault.Ask && v.ApprovalID != nil && *v.ApprovalID != c.opened && c.op.Model != nil
}

// wait holds a call that a person was asked about. It tells whether there is something to judge again.
func (c *crossing) wait(ctx context.Context, v fault.Verdict) (again bool) {
	return v.Decision == fault.Ask && v.ApprovalID != nil && !c.r.DryRun && c.g.desk.Wait(ctx, c.agent, *v.ApprovalID, &c.hold)
}

// lookAtInputs describes what the call reads of the workspace, for the person who is asked about it.
func (c *crossing) lookAtInputs(ctx context.Context) (err error) {
	c.inputs, err = c.effect.Inputs(ctx, c.session.ID, c.args)
	return err
}

// answeredBy is the role that people need to answer questions about the operation; "": any that answers.
func (c *crossing) answeredBy() identity.Role {
	if c.op.Class.AdminAnswers {
		return identity.Admin
	}
	return ""
}

// shownScreening tells whether who answered a question was shown what screening found in the arguments, where that is a person's to decide.
func (c *crossing) shownScreening(a approval.Approval) bool {
	return !c.screened.Hit() || c.screens() != judge.ScreenAsk || slices.ContainsFunc(a.Reasons, func(r approval.Reason) bool { return r.Stage == "screen" })
}

// stands tells whether an older question is about the call as it is now: the same people answer it, what screening found was shown, it reads the same files, it is no riskier, the session holds no label that was not shown, the
// policies are those that were in force, and what silence was to permit is still left to silence.
func (c *crossing) stands(a approval.Approval) bool {
	if !a.SilenceAt.IsZero() && len(a.Votes) == 0 && !c.judged.found.Silence {
		return false
	}
	return a.Role == c.answeredBy() && c.shownScreening(a) && a.LaunchHash == c.op.Launch && a.Inputs.Same(c.inputs) && a.Amount == c.judged.found.Rating.Amount && c.sameReasons(a) && evidence.WasShown(&c.judged.facts.Evidence, &a) && c.judged.found.Rating.Risk.Rank() <= policy.Risk(a.Risk).Rank() && a.PolicyVersion == c.set.Policies.Version() &&
		!slices.ContainsFunc(c.raised().Labels, func(h flow.Held) bool { return !slices.Contains(a.Labels, string(h.Label)) })
}

// sameReasons tells whether the reasons that the person was shown can be what the call runs on: those of its declaration, of its step in the
// sealed plan as that is now, or a justification, which takes the place of the one that the call comes with.
func (c *crossing) sameReasons(a approval.Approval) bool {
	if c.declaration != nil {
		return a.DeclarationID == c.declaration.ID
	}
	var shown struct {
		Step string `json:"plan_step"`
	}
	if len(a.Justification) == 0 || json.Unmarshal(a.Justification, &shown) != nil {
		return !c.effect.Traits().NeedsReasons // nobody has to give reasons for it
	}
	if shown.Step != "" {
		step := c.step()
		return step != nil && step.Justification == shown.Step
	}
	return c.justification != nil || !c.effect.Traits().NeedsReasons
}

// draft composes the question about this call: everything that the person is shown.
func (c *crossing) draft(v fault.Verdict) desk.Draft {
	rating := &c.judged.found.Rating
	a := approval.Approval{
		CallDigest: c.digest, Risk: string(rating.Risk), Amount: rating.Amount, Consequence: rating.Consequence, Operation: c.op.ID, DefinitionHash: c.effect.Definition(), LaunchHash: c.op.Launch, Role: c.answeredBy(),
		Arguments: c.args, Session: c.session.ID, Agent: c.agent, Requester: c.session.Requester, OpenedBy: c.session.OpenedBy, WordsBy: c.session.WordsBy,
		StopEpoch: c.stops.epoch, Labels: labelWords(c.raised().Labels), SessionVersion: c.session.Version, PolicyVersion: c.set.Policies.Version(),
		Destinations: policy.Destinations(c.op.Class.Roles, c.args), Evidence: evidence.ForPerson(c.judged.facts.Evidence.Ruling), Inputs: c.inputs,
	}
	a.Destinations = a.Destinations[:min(len(a.Destinations), maxDestinations)]
	for _, b := range v.Because {
		if stage, text, ok := strings.Cut(b.Detail, ": "); ok && judge.IsReason(b) {
			a.Reasons = append(a.Reasons, approval.Reason{Stage: stage, Code: string(b.Code), Text: text})
		}
	}
	a.Reasons = append(append(a.Reasons, c.onceForAll()...), evidence.AlsoCovered(c.op.ID, &c.judged.facts.Evidence)...)
	for _, r := range rating.Reasons { // which rules gave the risk
		a.Reasons = append(a.Reasons, approval.Reason{Stage: "risk", Code: r.Code, Text: r.Text})
	}
	for _, says := range c.op.LeftOut(c.args) {
		a.Reasons = append(a.Reasons, approval.Reason{Stage: "declare", Code: "arguments.default", Text: says})
	}
	a.Reasons = append(append(a.Reasons, c.willCarry()...), c.showsBeside()...)
	if c.set.rules.Screen != judge.ScreenObserve && c.g.screenRequest(c.session.UserRequest, c.session.OpenedBy).Hit() {
		a.Reasons = append(a.Reasons, approval.Reason{Stage: "declare", Code: requestScreened, Text: flagged[requestScreened]})
	}
	for _, flag := range c.flags { // what is doubtful about the reasons is shown with them
		a.Reasons = append(a.Reasons, approval.Reason{Stage: "declare", Code: flag, Text: flagged[flag]})
	}
	if c.justification != nil {
		a.Justification, _ = json.Marshal(c.justification) // of three strings: can't fail
	} else if step := c.step(); step != nil && step.Justification != "" {
		a.Justification, _ = json.Marshal(map[string]string{"plan_step": step.Justification}) // of a string: can't fail
	}
	if len(a.Justification) == 0 && rating.Risk.Rank() >= policy.High.Rank() {
		a.Reasons = append(a.Reasons, approval.NoReason)
	}
	q := desk.Draft{Approval: a, Declaration: c.declaration, Stands: c.stands, Roles: c.op.Class.Roles, Reasons: evidence.CoveredAnew}
	if c.judged.found.Silence { // nobody but the risk stage asks, and it asks for nobody's no
		q.SilentFor = c.set.Limits.MediumDelay
	}
	return q
}

// rejected tells the agent that a person said no, to which question, and that asking again changes nothing.
func rejected(stage string, answer desk.Answer) fault.Verdict {
	v := fault.RefuseErr(stage, answer.Refusal)
	if answer.Approval != nil {
		v.ApprovalID = &answer.Approval.ID
	}
	v.Remedies = []fault.Remedy{{Kind: "ask_person", Text: "Don't make this call again: the answer stays. Do what the person says, or ask them."}}
	return v
}

// maxShownArguments bounds the arguments that an agent is told in a refusal, in bytes.
const maxShownArguments = 8 << 10

// otherArguments tells the agent that a person wants other arguments.
func (c *crossing) otherArguments(answer desk.Answer) fault.Verdict {
	v, next := fault.RefuseErr("approve", answer.Refusal), answer.Replacement
	v.ApprovalID = &next.ID
	text := "Make the call with the arguments that the person wants, or don't make it."
	switch {
	case next.DeclarationID != "":
		text = "Call " + c.op.Name + " with the declaration_id " + next.DeclarationID + " alone: it has the arguments that the person wants."
	case len(next.Arguments) <= maxShownArguments:
		text = fmt.Sprintf("Make the call with these arguments, or don't make it: %s", next.Arguments)
	}
	v.Remedies = []fault.Remedy{{Kind: "approve", Text: text}}
	return v
}

// judgeChanged judges the call that a question is about with the arguments that a person wants, and composes the question about it.
func (g *Gateway) judgeChanged(ctx context.Context, old approval.Approval, arguments []byte) (desk.Draft, error) {
	c, err := g.changedCall(ctx, old, arguments)
	if err != nil {
		return desk.Draft{}, err
	}
	c.carry()
	c.understand()
	v := c.judge(ctx)
	if v.Decision == fault.Deny {
		return desk.Draft{}, fault.New(v.Code, "With these arguments it would be refused: %s", v.Reason).At("arguments")
	}
	if err := c.lookAtInputs(ctx); err != nil {
		return desk.Draft{}, err
	}
	v.Because = slices.DeleteFunc(slices.Clone(v.Because), func(b fault.Because) bool { // whoever answers answers for where the new arguments came from
		return !strings.HasPrefix(b.Detail, "flow: ")
	})
	q := c.draft(v)
	q.Entry = c.entry(audit.Decision)
	q.Entry.Risk, q.Entry.Arguments = q.Approval.Risk, g.Payload(c.args)
	return q, nil
}

// changedCall is the call that was asked about, with other arguments.
func (g *Gateway) changedCall(ctx context.Context, old approval.Approval, arguments []byte) (*crossing, error) {
	l, err := g.liveSession(ctx, old.Session)
	if err != nil {
		return nil, err
	}
	s := l.current.Load()
	if s.State != session.Open {
		return nil, fault.New(fault.SessionClosed, "The session that asked is closed.")
	}
	now := g.now()
	set, snap := g.view()
	c := &crossing{
		g: g, r: Request{Session: s.ID, Method: call.CallTool, Door: "http", DryRun: true}, moment: judge.Modification, request: call.NewID("req_", now),
		speaker: speaker{set: set, agent: s.Agent, live: l, session: s}, subject: subject{args: arguments, op: snap.ByID(old.Operation)},
	}
	if c.op == nil || c.op.Hash != old.DefinitionHash {
		return nil, fault.New(fault.Conflict, "The arguments of %s can't be changed: it is no tool, or not the one that was asked about any more.", display.Clip(old.Operation, 80)).
			Try("Reject the request with a reason.")
	}
	c.use(effect.Of(c.op))
	if c.decl, err = set.declared(s.Agent); err != nil {
		return nil, err
	}
	if j, problems := declare.ParseJustification(old.Justification); len(problems) == 0 {
		c.justification = &j
	} else if c.effect.Traits().NeedsReasons { // the reason is a step of the plan, and the plan has no other step for what it would be then
		return nil, fault.New(fault.Conflict, "It is a step of the session's plan, with the arguments of the plan.").Try("Reject the request with a reason.")
	}
	if c.args, err = c.op.WithDefaults(arguments, nil); err != nil {
		return nil, err
	}
	return c, c.pair(snap)
}
