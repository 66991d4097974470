package desk

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/call"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/fault"
)

// Modification holds the arguments that a person wants for a call in place of its own (DE-4).
type Modification struct {
	Approval  string          `json:"approval_id"`
	Digest    string          `json:"digest,omitempty"` // of the question that they were shown; "": of the present one
	Arguments json.RawMessage `json:"arguments"`        // all of them
	Reason    string          `json:"reason"`           // the agent sees it
}

// Modify withdraws a question and asks about the same operation with other arguments, under a digest of their own and judged like a call of
// the agent's. It approves nothing: the new question is answered like any other. The agent learns of it when it repeats the old call, and may
// then make the new one.
func (d *Desk) Modify(ctx context.Context, voter approval.Voter, m Modification) (Question, error) {
	old, err := d.o.Store.Approval(ctx, m.Approval)
	if err != nil {
		return Question{}, err
	}
	next, err := d.modify(ctx, voter, m, old)
	if err != nil {
		return Question{}, d.refusedAnswer(ctx, voter, old, "approval.modify", err)
	}
	d.Changed(old.ID)
	d.Changed(next.ID)
	return d.Question(ctx, next.ID)
}

func (d *Desk) modify(ctx context.Context, voter approval.Voter, m Modification, old approval.Approval) (next approval.Approval, err error) {
	if voter, err = d.voter(voter, m.Reason); err != nil {
		return next, err
	}
	if err := old.Entitled(voter); err != nil { // before any problem of the arguments is shown
		return next, err
	}
	if err := d.stillWaiting(old); err != nil {
		return next, err
	}
	arguments, err := changedArguments(m.Arguments, old.Arguments)
	if err != nil {
		return next, err
	}
	q, err := d.o.JudgeChanged(ctx, old, arguments)
	if err != nil {
		return next, err
	}
	now := d.o.Now()
	if old.DeclarationID != "" {
		if q.Declaration, err = d.redeclare(ctx, old.DeclarationID, q.Approval, now); err != nil {
			return next, err
		}
	}
	why := approval.Reason{Stage: "approve", Code: string(fault.ApprovalRequired), Text: "A person changed the arguments: " + m.Reason}
	q.SilentFor = 0 // a person changed it, so a person has to answer it
	q.Approval.Reasons = append([]approval.Reason{why}, q.Approval.Reasons...)
	q.Approval.ModifiedFrom, q.Approval.ModifiedBy, q.Approval.ModifiedReason = old.ID, voter.Person, m.Reason
	if next, err = d.complete(q, now); err != nil {
		return next, err
	}
	q.Entry.Action, q.Entry.Actor, q.Entry.Reason = "approval.ask", "person:"+voter.Person, m.Reason
	q.Entry.Decision, q.Entry.Stage, q.Entry.Code = string(fault.Ask), why.Stage, why.Code
	return d.write(ctx, next, old.ID, now, func(f Found) (Written, error) {
		w, err := d.place(f, next, now)
		if err != nil {
			return w, err
		}
		given, err := d.giveWay(*f.Replaced, next.ID, voter, m, now)
		w.Older = slices.Insert(w.Older, 0, given)
		if q.Declaration != nil {
			w.Declaration = about(*q.Declaration, next)
		}
		w.Entry = q.entry(map[string]any{"approval_id": next.ID, "digest": next.Digest, "modified_from": old.ID})
		return w, err
	})
}

// giveWay ends the question whose arguments a person changed: the one with the id next takes its place.
func (d *Desk) giveWay(old Stored, next string, voter approval.Voter, m Modification, now time.Time) (u Update, err error) {
	a, by := old.Approval, "person:"+voter.Person
	digest := m.Digest
	if digest == "" {
		digest = a.Digest
	}
	u = Update{Stored: old, Entry: d.entry(a, "approval.modify", by)}
	u.Entry.Reason = m.Reason
	u.Entry.Detail, _ = json.Marshal(map[string]any{"approval_id": a.ID, "digest": a.Digest, "replaced_by": next}) // of strings: can't fail
	if u.Approval, err = a.Recount(d.o.Voter).Modify(voter, digest, m.Reason, next, now); err != nil {
		return u, err
	}
	if old.Declaration != nil {
		u.Declaration, err = refused(old.Declaration, by, m.Reason, now)
	}
	return u, err
}

// changedArguments are the arguments that a person wants, as canonical JSON.
func changedArguments(wanted, old json.RawMessage) ([]byte, error) {
	arguments, err := call.Canonical(wanted, call.DefaultLimits())
	if err != nil {
		f := fault.Of(err)
		return nil, fault.Wrap(err, fault.RequestMalformed, "%s", f.Public()).At("arguments")
	}
	switch {
	case arguments[0] != '{':
		return nil, fault.New(fault.RequestMalformed, "the arguments must be a JSON object").At("arguments")
	case len(arguments) > MaxArguments:
		return nil, fault.New(fault.RequestMalformed, "at most %d bytes", MaxArguments).At("arguments")
	case bytes.Equal(arguments, old):
		return nil, fault.New(fault.RequestMalformed, "they are as they were").At("arguments").Try("Approve, reject or postpone the request as it is.")
	}
	return arguments, nil
}

// redeclare returns the declaration with the parameters and the risk of the changed call, and with the same reasons.
func (d *Desk) redeclare(ctx context.Context, id string, wanted approval.Approval, now time.Time) (*declare.Declaration, error) {
	old, err := d.o.Store.Declaration(ctx, id)
	if err != nil {
		return nil, err
	}
	next, err := declare.New(declare.Declaration{
		Session: old.Session, Agent: old.Agent, Requester: old.Requester, Operation: old.Operation, DefinitionHash: old.DefinitionHash, Parameters: wanted.Arguments,
		Justification: old.Justification, Flags: old.Flags, Risk: wanted.Risk,
	}, now, d.o.Expires())
	return &next, err
}
