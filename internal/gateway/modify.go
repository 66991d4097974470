package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/session"
)

// Modification is what a person wants a call's arguments to be instead (DE-4).
type Modification struct {
	Approval  string          `json:"approval_id"`
	Digest    string          `json:"digest,omitempty"` // of what they were shown; "": of what is asked now
	Arguments json.RawMessage `json:"arguments"`        // the whole of them
	Reason    string          `json:"reason"`           // the agent is told
}

// Modify withdraws a question and asks about the same operation with other arguments, under a digest of their own and judged like a call of
// the agent's. It approves nothing: the new question is answered like any other. The agent is told when it comes back with the old call, and
// makes the new one itself, or not.
func (g *Gateway) Modify(ctx context.Context, voter approval.Voter, m Modification) (Question, error) {
	old, err := g.o.Store.Approval(ctx, m.Approval)
	if err != nil {
		return Question{}, err
	}
	next, err := g.modify(ctx, voter, m, old)
	if err != nil {
		return Question{}, g.refusedAnswer(ctx, voter, old, "approval.modify", err)
	}
	g.changed(ApprovalChanged, old.ID)
	g.changed(ApprovalChanged, next.ID)
	return g.Question(ctx, next.ID)
}

func (g *Gateway) modify(ctx context.Context, voter approval.Voter, m Modification, old approval.Approval) (next approval.Approval, err error) {
	if voter, err = g.voter(voter, m.Reason); err != nil {
		return next, err
	}
	if err := old.Entitled(voter); err != nil { // before anything is said about the arguments
		return next, err
	}
	c, err := g.wanted(ctx, old, m)
	if err != nil {
		return next, err
	}
	now, by := g.now(), "person:"+voter.Person
	c.carry()
	c.understand()
	judged := c.judge(ctx)
	if judged.Decision == fault.Deny {
		return next, fault.New(judged.Code, "With these arguments it would be refused: %s", judged.Reason).At("arguments")
	}
	if old.DeclarationID != "" {
		if c.declaration, err = g.redeclare(ctx, old.DeclarationID, c.args, string(c.judged.found.Rating.Risk)); err != nil {
			return next, err
		}
	}
	c.judged.found.Silence = false // a person cared enough to change it: a person answers
	c.modified = &modified{from: old.ID, by: voter.Person, reason: m.Reason}
	v := judge.Ask("approve", "A person changed the arguments: "+m.Reason)
	v.Because = []fault.Because{{Code: fault.ApprovalRequired, Detail: "approve: " + v.Reason}}
	for _, b := range judged.Because { // whoever answers answers for where the new arguments came from
		if judge.IsReason(b) && strings.HasPrefix(b.Detail, "flow: ") {
			v.Because = append(v.Because, b)
		}
	}
	if next, err = c.newApproval(v, now); err != nil {
		return next, err
	}
	if c.declaration != nil {
		c.declaration.ApprovalID = next.ID
	}
	e := c.entry(audit.Decision)
	e.Action, e.Actor, e.Decision, e.Stage, e.Code, e.Reason, e.Risk = "approval.ask", by, string(fault.Ask), v.Stage, string(v.Code), m.Reason, next.Risk
	e.Arguments = g.payload(c.args)
	e.Detail, _ = json.Marshal(map[string]any{"approval_id": next.ID, "digest": next.Digest, "modified_from": old.ID}) // of strings: can't fail
	return g.ask(ctx, Ask{
		Approval: next, Declaration: c.declaration, At: now, Entry: e,
		Twin: func(t Twin) (bool, Twin, error) { return c.replace(t, now) },
		Instead: &Instead{ID: old.ID, Change: func(t Twin) (Twin, error) {
			digest := m.Digest
			if digest == "" {
				digest = t.Approval.Digest
			}
			e := approvalEntry(t.Approval, "approval.modify", by)
			e.Reason = m.Reason
			e.Detail, _ = json.Marshal(map[string]any{"approval_id": t.Approval.ID, "digest": t.Approval.Digest, "replaced_by": next.ID}) // of strings: can't fail
			t.Entry = &e
			var err error
			if t.Approval, err = t.Approval.Recount(g.o.Voter).Modify(voter, digest, m.Reason, next.ID, now); err != nil {
				return t, err
			}
			if d := t.Declaration; d != nil && (d.At(now) == declare.Pending || d.At(now) == declare.Approved) {
				over, err := d.Decide(false, by, m.Reason, now)
				if err != nil {
					return t, err
				}
				t.Declaration = &over
			}
			return t, nil
		}},
	})
}

// modified is what a question has of the one that it takes the place of.
type modified struct{ from, by, reason string }

// wanted is the call as a person wants it: the one that was asked about, with other arguments.
func (g *Gateway) wanted(ctx context.Context, old approval.Approval, m Modification) (*crossing, error) {
	args, err := call.Canonical(m.Arguments, call.DefaultLimits())
	if err != nil {
		f := fault.Of(err)
		return nil, fault.Wrap(err, fault.RequestMalformed, "%s", f.Public()).At("arguments")
	}
	switch {
	case args[0] != '{':
		return nil, fault.New(fault.RequestMalformed, "the arguments must be a JSON object").At("arguments")
	case len(args) > maxAsked:
		return nil, fault.New(fault.RequestMalformed, "at most %d bytes", maxAsked).At("arguments")
	case bytes.Equal(args, old.Arguments):
		return nil, fault.New(fault.RequestMalformed, "they are as they were").At("arguments").Try("Approve, reject or put off the request as it is.")
	}
	l, err := g.liveSession(ctx, old.Session)
	if err != nil {
		return nil, err
	}
	s := l.current.Load()
	if s.State != session.Open {
		return nil, fault.New(fault.SessionClosed, "The session that asked is closed.")
	}
	now := g.now()
	c := &crossing{
		g: g, r: Request{Session: s.ID, Method: "tools/call", Door: "http", DryRun: true}, moment: judge.Modification, request: call.NewID("req_", now),
		speaker: speaker{agent: s.Agent, live: l, session: s}, subject: subject{args: args, op: g.catalogue.ByID(old.Operation)},
	}
	if c.op == nil || c.op.Hash != old.DefinitionHash {
		return nil, fault.New(fault.Conflict, "The arguments of %s can't be changed: it is no tool, or not the one that was asked about any more.", short(old.Operation)).
			Try("Reject the request with a reason.")
	}
	if c.decl, err = g.declared(s.Agent); err != nil {
		return nil, err
	}
	if j, problems := declare.ParseJustification(old.Justification); len(problems) == 0 {
		c.justification = &j
	} else if c.op.Command != nil { // the reason is a step of the plan, and the plan has no other step for what it would be then
		return nil, fault.New(fault.Conflict, "It is a step of the session's plan, with the arguments of the plan.").Try("Reject the request with a reason.")
	}
	c.digest = call.Digest(c.agent, s.ID, c.op.ID, c.definition(), args)
	return c, nil
}

// redeclare is a declaration with other parameters, for the same reasons.
func (g *Gateway) redeclare(ctx context.Context, id string, parameters json.RawMessage, risk string) (*declare.Declaration, error) {
	d, err := g.o.Store.Declaration(ctx, id)
	if err != nil {
		return nil, err
	}
	d, err = declare.New(declare.Declaration{
		Session: d.Session, Agent: d.Agent, Requester: d.Requester, Operation: d.Operation, DefinitionHash: d.DefinitionHash, Parameters: parameters,
		Justification: d.Justification, Flags: d.Flags, Risk: risk,
	}, g.now(), g.o.Limits.ApprovalExpires)
	return &d, err
}

// maxReplaced is how often changed arguments are followed to where they were changed again.
const maxReplaced = 16

// maxTold bounds the arguments that an agent is told in a refusal, in bytes.
const maxTold = 8 << 10

// instead tells the agent that a person wants other arguments; ok is false where that is over.
func (c *crossing) instead(ctx context.Context, a approval.Approval) (v fault.Verdict, ok bool, err error) {
	next, err := c.g.o.Store.Approval(ctx, a.ReplacedBy)
	for range maxReplaced { // people thought again
		if err != nil || next.State != approval.Superseded || next.ReplacedBy == "" {
			break
		}
		next, err = c.g.o.Store.Approval(ctx, next.ReplacedBy)
	}
	if err != nil {
		return v, false, err
	}
	switch next.StateAt(c.g.now()) {
	case approval.Pending, approval.Deferred, approval.Approved:
	default:
		return v, false, nil
	}
	v = fault.RefuseErr("approve", a.Covers(c.digest, c.g.now()))
	v.ApprovalID = &next.ID
	text := "Make the call with the arguments that the person wants, or don't make it."
	switch {
	case next.DeclarationID != "":
		text = "Call " + c.op.Name + " with the declaration_id " + next.DeclarationID + " alone: it has the arguments that the person wants."
	case len(next.Arguments) <= maxTold:
		text = fmt.Sprintf("Make the call with these arguments, or don't make it: %s", next.Arguments)
	}
	v.Remedies = []fault.Remedy{{Kind: "approve", Text: text}}
	return v, true, nil
}
