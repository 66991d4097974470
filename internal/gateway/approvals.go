package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport/internal/approval"
	"sallyport/internal/audit"
	"sallyport/internal/declare"
	"sallyport/internal/fault"
	"sallyport/internal/session"
)

// maxPending bounds how many questions one session may have open: what people can't read, they would wave through.
const maxPending = 100

// askFor is the verdict of a stage that leaves it to a person.
func askFor(stage, reason string) fault.Verdict {
	v := fault.Refuse(stage, fault.ApprovalRequired, reason,
		fault.Remedy{Kind: "approve", Text: "A person has been asked. Make the same call again later: it runs once when it is approved."})
	v.Decision = fault.Ask
	return v
}

// strictest runs the stages in their order. The first deny ends it; what asks is asked for only if no later stage denies.
func strictest(stages ...func() fault.Verdict) fault.Verdict {
	ask := fault.Permitted()
	for _, stage := range stages {
		v := stage()
		if v.Decision == fault.Deny {
			return v
		}
		if v.Decision == fault.Ask {
			if ask.Decision == fault.Permit {
				ask = v
			}
			ask.Because = append(ask.Because, fault.Because{Code: fault.ApprovalRequired, Operation: "", Detail: v.Stage + ": " + v.Reason})
		}
	}
	return ask
}

// asked looks for a person's answer to this very call, and asks for one where there is none. What was approved is judged again from the
// first stage, with the approval as a fact (DESIGN.md rule 2).
func (c *crossing) asked(ctx context.Context, v fault.Verdict) fault.Verdict {
	const stage = "approve"
	if v.ApprovalID != nil { // the declaration it runs on waits
		return v
	}
	now := c.g.now()
	a, err := c.g.o.Store.ApprovalFor(ctx, c.session.ID, c.digest)
	if err == nil {
		a = a.Recount(c.g.o.Voter) // who approved must still be one who may
		covers := a.Covers(c.digest, now)
		switch state := a.StateAt(now); {
		case state == approval.Rejected:
			return fault.RefuseErr(stage, covers)
		case c.risen(a):
		case covers == nil:
			c.approval = &a
			return c.judge()
		case state == approval.Pending, state == approval.Deferred:
			v.ApprovalID = &a.ID
			return v
		}
		// Expired, spent, superseded, or given for less risk: it is asked anew.
	} else if !fault.Is(err, fault.NotFound) {
		return fault.RefuseErr(stage, err)
	}
	if c.r.DryRun || c.answers != nil { // a person can't be shown what a server was answered
		return v
	}
	waiting, err := c.g.o.Store.Approvals(ctx, c.session.ID, approval.Pending, "", maxPending)
	if err != nil {
		return fault.RefuseErr(stage, err)
	}
	if len(waiting) >= maxPending {
		return fault.Refuse(stage, fault.LimitQuota, fmt.Sprintf("%d questions of this session wait for a person already.", maxPending),
			fault.Remedy{Kind: "wait", Text: "Wait until some of them are answered."})
	}
	next, err := c.newApproval(v, now)
	if err != nil {
		return fault.RefuseErr(stage, err)
	}
	e := c.entry(audit.Decision)
	e.Action, e.Decision, e.Stage, e.Code, e.Reason, e.Risk = "approval.ask", string(fault.Ask), v.Stage, string(v.Code), v.Reason, next.Risk
	e.Detail, _ = json.Marshal(map[string]any{"approval_id": next.ID, "digest": next.Digest}) // of two strings: can't fail
	if a, err = c.g.o.Store.AskPerson(context.WithoutCancel(ctx), next, func(a approval.Approval) bool {
		return open(a, now) && !c.risen(a)
	}, e); err != nil {
		return fault.RefuseErr(stage, audited(err))
	}
	v.ApprovalID = &a.ID
	return v
}

// open tells whether the question waits for an answer.
func open(a approval.Approval, now time.Time) bool {
	state := a.StateAt(now)
	return state == approval.Pending || state == approval.Deferred
}

// risen tells whether the call is riskier by now than what the person was asked about.
func (c *crossing) risen(a approval.Approval) bool {
	return slices.Index(risks, c.op.Class.Risk()) > slices.Index(risks, Risk(a.Risk))
}

// newApproval is the question about this call, with everything that the person is shown under its digest.
func (c *crossing) newApproval(v fault.Verdict, now time.Time) (approval.Approval, error) {
	a := approval.Approval{
		CallDigest: c.digest, Risk: string(c.op.Class.Risk()), Operation: c.op.ID, DefinitionHash: c.op.Hash,
		Arguments: c.args, Session: c.session.ID, Agent: c.agent, Requester: c.session.Requester, OpenedBy: c.session.OpenedBy,
		Labels: labelWords(c.session.Labels), SessionVersion: c.session.Version, PolicyVersion: c.g.o.Policies.Version(),
	}
	for _, b := range v.Because {
		if stage, text, ok := strings.Cut(b.Detail, ": "); ok {
			a.Reasons = append(a.Reasons, approval.Reason{Stage: stage, Code: string(b.Code), Text: text})
		}
	}
	if c.declaration != nil {
		a.DeclarationID = c.declaration.ID
	}
	if c.justification != nil {
		a.Justification, _ = json.Marshal(c.justification) // of three strings: can't fail
	}
	return approval.New(a, now, c.g.o.Limits.ApprovalExpires)
}

// supersede withdraws the question about a call that is asked anew.
func (g *Gateway) supersede(ctx context.Context, sessionID, callDigest string) error {
	old, err := g.o.Store.ApprovalFor(ctx, sessionID, callDigest)
	if fault.Is(err, fault.NotFound) || err == nil && !open(old, g.now()) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = g.o.Store.ChangeApproval(ctx, old.ID, func(a approval.Approval, d *declare.Declaration) (approval.Approval, *declare.Declaration, audit.Entry, error) {
		e := approvalEntry(a, "approval.supersede", "rule")
		next, err := a.Supersede(g.now())
		if err != nil {
			return a, d, e, err
		}
		if d != nil && d.At(g.now()) == declare.Pending {
			decided, err := d.Decide(false, "rule", "it was declared again", g.now())
			return next, &decided, e, err
		}
		return next, nil, e, nil
	})
	if fault.Is(err, fault.Conflict) || fault.Is(err, fault.ApprovalExpired) { // decided in between: then there is nothing to withdraw
		return nil
	}
	return err
}

func approvalEntry(a approval.Approval, action, by string) audit.Entry {
	e := audit.Entry{
		Kind: audit.Change, Action: action, Agent: a.Agent, Session: a.Session, Requester: a.Requester, Actor: by, Operation: a.Operation,
		Digest: a.CallDigest, DefHash: a.DefinitionHash, Risk: a.Risk, Decision: "ok",
	}
	e.Detail, _ = json.Marshal(map[string]any{"approval_id": a.ID, "digest": a.Digest, "declaration_id": a.DeclarationID}) // of strings: can't fail
	return e
}

// Question is an approval as people see it. Arguments and justification are the agent's words: hostile text.
type Question struct {
	approval.Approval
	// Similar is the same for questions that may be answered as one batch (DE-5); "" for one that stands alone.
	Similar string `json:"similar,omitempty"`
	// Session now: what it holds may have grown since it was asked.
	SessionLabels []string      `json:"session_labels"`
	SessionPhase  session.Phase `json:"session_phase,omitempty"`
}

func (g *Gateway) question(ctx context.Context, a approval.Approval) Question {
	a.State = a.StateAt(g.now())
	q := Question{Approval: a, Similar: similar(a), SessionLabels: []string{}}
	if l, err := g.liveSession(ctx, a.Session); err == nil { // its state helps to decide; the decision is judged again anyway
		s := l.current.Load()
		q.SessionLabels, q.SessionPhase = notNil(labelWords(s.Labels)), s.Phase
	}
	return q
}

// similar is the key under which questions can be answered together.
func similar(a approval.Approval) string {
	return declare.Declaration{
		Agent: a.Agent, Session: a.Session, Operation: a.Operation, DefinitionHash: a.DefinitionHash, Risk: a.Risk, Parameters: a.Arguments,
	}.Key()
}

// Questions returns approvals, newest first: in one state ("": any), of one session ("": any), those asked before the one with the id after.
func (g *Gateway) Questions(ctx context.Context, state approval.State, sessionID, after string, limit int) ([]Question, error) {
	stored := state
	if state == approval.Expired { // expiry is a matter of when one looks
		stored = ""
	}
	page := []Question{}
	for len(page) < limit {
		found, err := g.o.Store.Approvals(ctx, sessionID, stored, after, limit)
		if err != nil {
			return nil, err
		}
		for _, a := range found {
			after = a.ID
			if state == "" || a.StateAt(g.now()) == state {
				if page = append(page, g.question(ctx, a)); len(page) == limit {
					break
				}
			}
		}
		if len(found) < limit {
			break
		}
	}
	return page, nil
}

// Question returns one approval.
func (g *Gateway) Question(ctx context.Context, id string) (Question, error) {
	a, err := g.o.Store.Approval(ctx, id)
	if err != nil {
		return Question{}, err
	}
	return g.question(ctx, a), nil
}

// Response is a person's answer to one question.
type Response struct {
	Approval string            `json:"approval_id"`
	Digest   string            `json:"digest"` // of what they were shown
	Decision approval.Decision `json:"decision"`
	Reason   string            `json:"reason,omitempty"` // needed to reject; a comment otherwise
	Until    time.Time         `json:"until,omitzero"`   // of a deferral
}

// Respond takes a person's answer: a vote, which decides once there are as many as the risk needs. It runs nothing; the agent's next call
// does, judged again by then.
func (g *Gateway) Respond(ctx context.Context, voter approval.Voter, r Response) (Question, error) {
	a, err := g.respond(ctx, voter, r)
	if err != nil {
		return Question{}, err
	}
	return g.question(ctx, a), nil
}

func (g *Gateway) respond(ctx context.Context, voter approval.Voter, r Response) (approval.Approval, error) {
	if asked, err := g.o.Store.Approval(ctx, r.Approval); err != nil {
		return asked, err
	} else if l, err := g.liveSession(ctx, asked.Session); err != nil {
		return asked, err
	} else if l.current.Load().State != session.Open && r.Decision != approval.Reject {
		return asked, fault.New(fault.SessionClosed, "The session that asked is closed.")
	}
	known, ok := g.o.Voter(voter.Person)
	if !ok {
		return approval.Approval{}, fault.New(fault.RoleMissing, "Nobody knows who %s is: who approves must be listed under people in sallyport.yaml.", short(voter.Person))
	}
	voter.Aliases = append(slices.Clone(voter.Aliases), known.Aliases...)
	by := "person:" + voter.Person
	return g.o.Store.ChangeApproval(context.WithoutCancel(ctx), r.Approval, func(a approval.Approval, d *declare.Declaration) (approval.Approval, *declare.Declaration, audit.Entry, error) {
		now := g.now()
		a = a.Recount(g.o.Voter) // who may no longer answer does not count
		e := approvalEntry(a, "approval."+string(r.Decision), by)
		e.Reason = r.Reason
		var next approval.Approval
		var err error
		switch r.Decision {
		case approval.Approve:
			next, err = a.Approve(voter, r.Digest, r.Reason, now)
		case approval.Reject:
			next, err = a.Reject(voter, r.Digest, r.Reason, now)
		case approval.Deferral:
			next, err = a.Defer(voter, r.Digest, r.Until, now)
		default:
			err = fault.New(fault.RequestMalformed, "It is approve, reject or defer.").At("decision")
		}
		if err != nil {
			return a, d, e, err
		}
		for _, v := range next.Votes {
			e.Approvers = append(e.Approvers, v.Person)
		}
		if d == nil || next.State != approval.Approved && next.State != approval.Rejected {
			return next, nil, e, nil
		}
		decided, err := d.Decide(next.State == approval.Approved, by, r.Reason, now)
		return next, &decided, e, err
	})
}

// maxTogether bounds a batch: each is looked at before it is answered.
const maxTogether = 100

// Batched is what became of one of a batch.
type Batched struct {
	Question *Question    `json:"approval,omitempty"`
	ID       string       `json:"approval_id"`
	Error    *fault.Error `json:"-"`
	Problem  string       `json:"problem,omitempty"`
	Code     fault.Code   `json:"code,omitempty"`
}

// RespondTogether answers similar questions with one decision, each under the digest that was looked at (DE-5). They are similar or none
// is answered; beyond that each stands or falls for itself.
func (g *Gateway) RespondTogether(ctx context.Context, voter approval.Voter, answers []Response) ([]Batched, error) {
	if len(answers) == 0 || len(answers) > maxTogether {
		return nil, fault.New(fault.RequestMalformed, "Answer 1 to %d at once.", maxTogether).At("approvals")
	}
	key := ""
	for i, r := range answers {
		a, err := g.o.Store.Approval(ctx, r.Approval)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			key = similar(a)
		}
		if similar(a) != key {
			return nil, fault.New(fault.Conflict, "They are not similar: a batch is of one session, operation and destination.").
				At(fmt.Sprintf("approvals[%d]", i)).Try("Answer it by itself.")
		}
		if a.Needed > 1 && r.Decision == approval.Approve {
			return nil, fault.New(fault.Conflict, "What needs two people is not approved in a batch.").At(fmt.Sprintf("approvals[%d]", i)).Try("Answer it by itself.")
		}
	}
	var all []Batched
	for _, r := range answers {
		b := Batched{ID: r.Approval}
		if q, err := g.Respond(ctx, voter, r); err != nil {
			f := fault.Of(err)
			b.Problem, b.Code = f.Public(), f.Code
			g.log.Info("one of a batch was not taken", "approval_id", r.Approval, "error", cmp.Or(err.Error(), string(f.Code)))
		} else {
			b.Question = &q
		}
		all = append(all, b)
	}
	return all, nil
}
