package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/session"
)

// unfold takes what a call says about why it is needed, or the declaration that stands for that and for its parameters. What is wrong with
// it is reported by the declare stage, in its turn. bare says that the call has no arguments of its own.
func (c *crossing) unfold(ctx context.Context, p effect.Parameters, bare bool) {
	id, justified := c.r.Declaration, p.Justification
	if id != "" && c.r.Method != call.CallTool { // its parameters are a tool's
		c.undeclared = fault.New(fault.DeclarationInvalid, "Only calls of tools are declared.").At("declaration_id")
		return
	}
	if p.Declaration != nil {
		word, ok := call.Text(p.Declaration)
		if !ok || word == "" || id != "" && id != word {
			c.undeclared = fault.New(fault.DeclarationInvalid, "It must be the id of one declaration.").At("declaration_id")
		}
		id = word
	}
	if p.Problem != nil {
		c.undeclared = p.Problem
	}
	switch {
	case c.undeclared != nil:
	case id != "" && justified != nil:
		c.undeclared = fault.New(fault.DeclarationInvalid, "Give a declaration_id or a justification, not both.").At("justification")
	case id != "":
		c.undeclared = c.recall(ctx, id, bare)
	case justified != nil:
		c.justify(justified)
	}
}

// recall finds the declaration that a call names. It stands for the arguments of a bare call, which has none.
func (c *crossing) recall(ctx context.Context, id string, bare bool) error {
	d, err := c.g.store.Declaration(ctx, id)
	if fault.Is(err, fault.NotFound) || err == nil && d.Session != c.session.ID {
		return fault.New(fault.DeclarationInvalid, "This session has no declaration %q.", short(id)).At("declaration_id").
			Try("Declare it with sallyport_declare, or POST /v1/session/{id}/declarations.")
	}
	if err != nil {
		return err
	}
	if d.Operation != c.op.ID {
		return fault.New(fault.DeclarationInvalid, "The declaration is for %s.", d.Operation).At("declaration_id")
	}
	if d.DefinitionHash != c.op.Hash {
		return fault.New(fault.DeclarationInvalid, "The tool has changed since it was declared.").At("declaration_id").Try("Declare it again.")
	}
	if bare {
		c.args = d.Parameters
	}
	if !bytes.Equal(c.args, d.Parameters) {
		return fault.New(fault.ApprovalMismatch, "The arguments are not those that were declared.").At("declaration_id").
			Try("Leave them out, or declare the call that you mean.")
	}
	c.declaration = &d
	return nil
}

// justify reads the justification in a call. What is wrong with it is reported by the declare stage.
func (c *crossing) justify(raw json.RawMessage) {
	j, problems := declare.ParseJustification(raw)
	if len(problems) == 0 {
		r := declare.Request{Operation: c.op.ID, Parameters: c.args, Justification: j, Phase: string(session.Execution), SessionID: c.session.ID}
		problems, c.flags = r.Check(c.g.declareContext(c.session, func(string) bool { return true }))
	}
	if c.invalid = problems; len(problems) == 0 {
		c.justification = &j
	}
}

// reasons are what a call runs on.
type reasons struct {
	digest string                 // of a declaration, made before or in the call, or of the sealed plan; "" of what nobody has to declare
	given  *declare.Justification // in the call, or the one that a person approved in its place
	inCall *declare.Justification // the one in the call, where a person approved it with another
}

// reasons are what the call runs on: where a person approved it with other reasons than it came with, those that the person was shown.
func (c *crossing) reasons() reasons {
	r := reasons{digest: c.judged.found.DeclaredBy, given: c.justification}
	a := c.judged.facts.Answer.Approval
	if a == nil || c.declaration != nil || c.justification == nil {
		return r
	}
	shown, problems := declare.ParseJustification(a.Justification)
	switch step := c.step(); {
	case len(problems) == 0 && shown != *c.justification:
		r.inCall, r.given = c.justification, &shown
		r.digest = declare.Digest(c.agent, c.session.ID, c.op.ID, c.op.Hash, c.args, shown)
	case len(problems) > 0 && step != nil: // the reason shown was the plan's
		r.inCall, r.given, r.digest = c.justification, nil, c.session.Plan.Digest
	}
	return r
}

// declaredDetail is what the log has of the declaration that a call runs on.
func (c *crossing) declaredDetail(r reasons) map[string]any {
	if r.digest == "" {
		return nil
	}
	d := map[string]any{"digest": r.digest}
	if c.declaration != nil {
		d["id"] = c.declaration.ID
		if r.given == nil {
			d["justification"] = c.g.redacted(c.declaration.Justification)
		}
	}
	if r.given != nil {
		d["justification"] = c.g.redacted(r.given)
	}
	if r.inCall != nil {
		d["justification_of_the_call"] = c.g.redacted(r.inCall)
	}
	if len(c.flags) > 0 {
		d["flags"] = c.flags
	}
	return d
}

// redacted is a value as JSON for the log, with secrets taken out.
func (g *Gateway) redacted(v any) json.RawMessage {
	b, err := call.Encode(v)
	if err != nil {
		return json.RawMessage("null")
	}
	if b = g.o.Detector.Redact(b); !json.Valid(b) {
		return json.RawMessage("null")
	}
	return b
}

func (g *Gateway) declareContext(s *session.Session, known func(string) bool) declare.Context {
	return declare.Context{Session: s.ID, UserRequest: s.UserRequest, Known: known}
}

// DeclareAnswer is what became of a declaration.
type DeclareAnswer struct {
	DeclarationID string        `json:"declaration_id"`
	Digest        string        `json:"digest"`
	State         declare.State `json:"state"`
	Verdict       fault.Verdict `json:"verdict"`
	ApprovalID    string        `json:"approval_id,omitempty"`
	Flags         []string      `json:"flags,omitempty"`
	ExpiresAt     time.Time     `json:"expires_at"`
}

// Declare takes a declaration: checked field by field, judged by permission, limits, flow, tier and risk, approved by rule or left to a
// person (DE-1 … DE-3). It is for the execution phase, and may be made in both. One that is refused is on record too.
func (g *Gateway) Declare(ctx context.Context, p identity.Principal, sessionID string, body json.RawMessage) (any, error) {
	l, err := g.sessionOf(ctx, p, sessionID)
	if err != nil {
		return nil, err
	}
	if err := g.takeTurn(l); err != nil {
		return nil, err
	}
	now := g.now()
	s := l.current.Load()
	c := &crossing{
		g: g, r: Request{Principal: p, Session: s.ID, Method: call.CallTool, DryRun: true}, speaker: speaker{agent: s.Agent, live: l, session: s},
		moment: judge.Declaration, request: call.NewID("req_", now), taken: taken{call: true},
	}
	if g.closed.Load() {
		return nil, fault.New(fault.StoreUnavailable, "The gateway is stopping.")
	}
	if v := g.killed(s.Agent); v.Decision != fault.Permit {
		e := c.refusal(v)
		e.Action = "declare"
		g.refusals.RecordCallLater(e)
		return nil, fault.New(fault.KillSwitch, "")
	}
	set, snap := g.view()
	c.set = set
	if c.decl, err = set.declared(s.Agent); err != nil {
		return nil, err
	}
	r, err := c.readDeclaration(ctx, snap, body)
	if err != nil {
		return nil, err
	}
	c.justification = &r.Justification
	c.carry() // what is rated is the call with what it carries
	c.understand()
	f := c.load()
	c.judged.firstUse = c.loadEvidence(ctx, &f, map[string]bool{})
	rating, err := judge.Rate(&f)
	if err != nil {
		return nil, err
	}
	d, err := declare.New(declare.Declaration{
		Session: s.ID, Agent: s.Agent, Requester: s.Requester, Operation: c.op.ID, DefinitionHash: c.op.Hash, Parameters: r.Parameters,
		Justification: r.Justification, Flags: c.flags, Risk: string(rating.Risk),
	}, now, g.settings.Load().Limits.ApprovalExpires)
	if err != nil {
		return nil, err
	}
	c.args, c.digest, c.declaration = d.Parameters, d.CallDigest, &d
	f.Declaration.Made, f.Arguments.Canonical, f.Arguments.Digest = &d, c.args, c.digest
	c.judged.facts = f
	c.judgeAnswered(nil)
	return c.decideDeclaration(ctx, &d, now)
}

// readDeclaration reads a declaration and says everything that is wrong with it; one that can't be taken is on record.
func (c *crossing) readDeclaration(ctx context.Context, snap *catalogue.Snapshot, body json.RawMessage) (declare.Request, error) {
	g := c.g
	r, problems := declare.Parse(body)
	more, flags := r.Check(g.declareContext(c.session, func(operation string) bool {
		op := snap.ByID(operation)
		return op != nil && op.Standing != catalogue.Unlisted && op.Standing != catalogue.Unfit
	}))
	problems, c.flags = declare.Merge(problems, more), flags
	if c.args = r.Parameters; snap.ByID(r.Operation) != nil {
		c.use(effect.Of(snap.ByID(r.Operation)))
	}
	if c.op != nil && len(r.Parameters) > 0 {
		completed, err := c.op.WithDefaults(r.Parameters, nil)
		if err != nil {
			return r, err
		}
		r.Parameters, c.args = completed, completed
		if err = c.effect.Check(r.Parameters); err == nil {
			err = c.op.CheckArguments(r.Parameters)
		}
		if fault.Is(err, fault.RequestMalformed) && c.mayCall() { // what it may not call tells it nothing
			f := fault.Of(err)
			problems = declare.Merge(problems, []declare.Problem{{Field: strings.TrimSuffix("parameters."+strings.TrimPrefix(f.Field, "arguments"), "."), Problem: f.Public()}})
		}
	}
	if len(problems) > 0 {
		f := declare.Refuse(problems)
		e := c.entry(audit.Decision)
		e.Action, e.Decision, e.Stage, e.Code, e.Reason = "declare", string(fault.Deny), "declare", string(fault.DeclarationInvalid), audit.Clip(f.Message)
		e.Arguments = &audit.Payload{SHA256: call.HashBytes(body), Size: int64(len(body))}
		if err := g.refusals.Record(ctx, e); err != nil {
			return r, audited(err)
		}
		return r, f
	}
	return r, nil
}

// mayCall tells whether the agent is permitted the call, before anything else is judged.
func (c *crossing) mayCall() bool {
	c.understand()
	f := c.load()
	return judge.Permit(&f).Decision == fault.Permit
}

// decideDeclaration takes the verdict on a declaration and writes down what became of it, with the question to a person where there is one.
func (c *crossing) decideDeclaration(ctx context.Context, d *declare.Declaration, now time.Time) (answer DeclareAnswer, err error) {
	g, v := c.g, c.judged.verdict
	if v.Decision == fault.Ask && c.judged.found.Silence { // approved by rule; what waits to be stopped is the call
		v = fault.Permitted()
	}
	if v.Decision == fault.Ask {
		switch v, err = c.askDeclared(ctx, d, v); {
		case fault.Is(err, fault.ApprovalRejected), fault.Is(err, fault.LimitQuota): // nobody is asked again, or nobody more
			v = fault.RefuseErr("approve", err)
		case fault.Is(err, fault.LimitRate):
			return answer, err
		case err != nil:
			return answer, audited(err)
		}
	}
	if v.Decision != fault.Ask {
		reason := v.Reason
		if v.Decision == fault.Permit {
			reason = ""
		}
		if *d, err = d.Decide(v.Decision == fault.Permit, declare.ByRule, reason, now); err != nil {
			return answer, err
		}
		e, detail := c.declareEntry(d, v)
		if e.Detail, err = json.Marshal(detail); err == nil {
			err = g.store.Declare(context.WithoutCancel(ctx), *d, e)
		}
		if err != nil {
			return answer, audited(err)
		}
		g.letThrough(&e)
	}
	if err := c.taint(ctx); err != nil { // the agent has what it carried in its context, whatever became of the declaration
		return answer, audited(err)
	}
	v.RequestID = c.request
	return DeclareAnswer{DeclarationID: d.ID, Digest: d.Digest, State: d.State, Verdict: v, ApprovalID: d.ApprovalID, Flags: d.Flags, ExpiresAt: d.ExpiresAt}, nil
}

// askDeclared asks a person about a declaration. Where a question that waits already shows the same, d becomes the declaration that it is about.
func (c *crossing) askDeclared(ctx context.Context, d *declare.Declaration, v fault.Verdict) (fault.Verdict, error) {
	if err := c.lookAtInputs(ctx); err != nil {
		return v, err
	}
	q := c.draft(v)
	q.Entry, q.Detail = c.declareEntry(d, v)
	asked, err := c.g.desk.AskDeclared(ctx, q)
	if err != nil {
		return v, err
	}
	if d.ApprovalID = asked.ID; asked.DeclarationID != d.ID {
		if *d, err = c.g.store.Declaration(ctx, asked.DeclarationID); err != nil {
			return v, err
		}
	}
	v.ApprovalID = &d.ApprovalID
	v.Remedies = []fault.Remedy{{Kind: "approve", Text: "A person has been asked. When it is approved, call " + c.op.Name + " with the declaration_id " + d.ID + "."}}
	return v, nil
}

// declareEntry is what the log has of a declaration.
func (c *crossing) declareEntry(d *declare.Declaration, v fault.Verdict) (e audit.Entry, detail map[string]any) {
	e = c.entry(audit.Decision)
	e.Action, e.Arguments, e.Risk = "declare", c.g.Payload(c.args), d.Risk
	if v.Decision == fault.Deny {
		e.Arguments = onlyShown(e.Arguments)
	}
	e.Decision, e.Stage, e.Code, e.Reason = string(v.Decision), v.Stage, string(v.Code), audit.Clip(v.Reason)
	detail = map[string]any{"declaration": c.declaredDetail(reasons{digest: d.Digest, given: c.justification})}
	if lifted := c.lifted(&c.judged.found); lifted != nil {
		detail["observed"] = lifted
	}
	if v.Decision == fault.Permit {
		wouldBe(&e, c.judged.found.WouldBe())
	}
	return e, detail
}

// Declaration tells an agent or its host what became of a declaration.
func (g *Gateway) Declaration(ctx context.Context, p identity.Principal, sessionID, id string) (declare.Declaration, error) {
	l, err := g.sessionOf(ctx, p, sessionID)
	if err != nil {
		return declare.Declaration{}, err
	}
	d, err := g.store.Declaration(ctx, id)
	if fault.Is(err, fault.NotFound) || err == nil && d.Session != l.current.Load().ID {
		return declare.Declaration{}, fault.New(fault.NotFound, "There is no declaration %q in this session.", short(id)).At("declaration_id")
	}
	d.State = d.At(g.now())
	return d, err
}
