package desk

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/session"
)

// Response is a person's answer to one question.
type Response struct {
	Approval string            `json:"approval_id"`
	Digest   string            `json:"digest"` // of the question that they were shown
	Decision approval.Decision `json:"decision"`
	Reason   string            `json:"reason,omitempty"` // needed to reject; a comment otherwise
	Until    time.Time         `json:"until,omitzero"`   // of a deferral
}

// Respond takes a person's answer: a vote, which decides once there are as many as the risk needs. It runs nothing: the agent's next call
// does, and is judged again by then. An answer that is refused is on record, too.
func (d *Desk) Respond(ctx context.Context, voter approval.Voter, r Response) (Question, error) {
	a, err := d.respond(ctx, voter, r)
	if err == nil {
		return d.question(a, d.sessions(ctx)), nil
	}
	return Question{}, d.refusedAnswer(ctx, voter, a, "approval."+verb(r.Decision), err)
}

// refusedAnswer puts on record that an answer was refused (TH-4), and returns the reason.
func (d *Desk) refusedAnswer(ctx context.Context, voter approval.Voter, a approval.Approval, action string, err error) error {
	f := fault.Of(err)
	if f.Code == fault.NotFound || f.Code == fault.AuditUnavailable || f.Code == fault.StoreUnavailable {
		return err
	}
	e := d.entry(a, action, "person:"+voter.Person)
	e.Kind, e.Decision, e.Stage, e.Code, e.Reason = audit.Decision, string(fault.Deny), "approve", string(f.Code), audit.Clip(f.Public())
	if err := d.o.Store.Record(context.WithoutCancel(ctx), e); err != nil {
		if fault.Is(err, fault.AuditUnavailable) {
			return err
		}
		return fault.Wrap(err, fault.AuditUnavailable, "")
	}
	return OnRecord{err}
}

// OnRecord is an error that has its entry.
type OnRecord struct{ error }

func (e OnRecord) Unwrap() error { return e.error }

// maxReason bounds what a person writes with an answer, in bytes.
const maxReason = 2000

// voter adds the identities of the person who answers. Only people in the configuration can answer.
func (d *Desk) voter(v approval.Voter, reason string) (approval.Voter, error) {
	if len(reason) > maxReason {
		return v, fault.New(fault.RequestMalformed, "at most %d bytes", maxReason).At("reason")
	}
	known, ok := d.o.Voter(v.Person)
	if !ok {
		return v, fault.New(fault.RoleMissing, "Nobody knows who %s is: who approves must be listed under people in sallyport.yaml.", display.Clip(v.Person, maxNamed))
	}
	v.Aliases, v.AnswersOwn, v.Others = append(slices.Clone(v.Aliases), known.Aliases...), known.AnswersOwn, known.Others
	return v, nil
}

// Entitled checks whether a person may answer a question, with all their identities.
func (d *Desk) Entitled(v approval.Voter, a approval.Approval) error {
	v, err := d.voter(v, "")
	if err != nil {
		return err
	}
	return a.Entitled(v)
}

// Own reports whether a person asked for the call themselves, under any of their identities.
func (d *Desk) Own(v approval.Voter, a approval.Approval) bool {
	v, err := d.voter(v, "")
	return err == nil && a.Own(v)
}

// maxNamed bounds a name in a message, in bytes.
const maxNamed = 80

// respond returns the approval as it is after the answer, or with an error as it was before.
func (d *Desk) respond(ctx context.Context, voter approval.Voter, r Response) (approval.Approval, error) {
	asked, err := d.o.Store.Approval(ctx, r.Approval)
	if err != nil {
		return asked, err
	}
	if s, err := d.o.Store.Session(ctx, asked.Session); err != nil {
		return asked, err
	} else if s.State != session.Open && r.Decision != approval.Reject {
		return asked, fault.New(fault.SessionClosed, "The session that asked is closed.")
	}
	if voter, err = d.voter(voter, r.Reason); err != nil {
		return asked, err
	}
	if now, ok := d.o.Definition(asked.Operation); r.Decision == approval.Approve && ok && now.Hash != asked.DefinitionHash {
		return asked, fault.New(fault.ApprovalMismatch, "%s is not the tool any more that was asked about: its definition has changed.", display.Clip(asked.Operation, maxNamed)).
			Try("Reject it. What the agent calls from now on is asked about anew.")
	}
	if err := d.stillWaiting(asked); err != nil && r.Decision != approval.Reject {
		return asked, err
	}
	drill, err := d.o.Store.IsDrill(ctx, asked.ID)
	if err != nil {
		return asked, err
	}
	after, err := d.o.Store.ChangeApproval(context.WithoutCancel(ctx), r.Approval, func(old Stored) (Update, error) {
		return d.vote(old, voter, r, drill)
	})
	if err != nil {
		return asked, err
	}
	d.Changed(after.ID)
	return after, nil
}

// vote is a question after the answer, and the declaration that it is about.
func (d *Desk) vote(old Stored, voter approval.Voter, r Response, drill bool) (u Update, err error) {
	now, by := d.o.Now(), "person:"+voter.Person
	if drill && old.Approval.State == approval.Approved {
		return u, fault.New(fault.Conflict, "It was a drill, and is answered.")
	}
	a := old.Approval.Recount(d.o.Voter) // votes of people who may no longer answer do not count
	u = Update{Stored: old, Entry: d.entry(a, "approval."+verb(r.Decision), by)}
	u.Entry.Reason = r.Reason
	switch r.Decision {
	case approval.Approve:
		u.Approval, err = a.Approve(voter, r.Digest, r.Reason, now)
	case approval.Reject:
		u.Approval, err = a.Reject(voter, r.Digest, r.Reason, now)
	case approval.Deferral:
		u.Approval, err = a.Defer(voter, r.Digest, r.Until, now)
	default:
		err = fault.New(fault.RequestMalformed, "It is approve, reject or defer.").At("decision")
	}
	if err != nil {
		return u, err
	}
	u.Entry.Approvers = u.Approval.Approvers()
	if a.Own(voter) {
		u.Entry.Detail, _ = json.Marshal(map[string]any{"approval_id": a.ID, "digest": a.Digest, "declaration_id": a.DeclarationID, "own": true}) // of strings: can't fail
	}
	about := old.Declaration
	if u.Declaration = nil; about == nil {
		return u, nil
	}
	switch state := about.At(now); {
	case u.Approval.State == approval.Approved && state == declare.Pending, u.Approval.State == approval.Rejected && (state == declare.Pending || state == declare.Approved):
		decided, err := about.Decide(u.Approval.State == approval.Approved, by, r.Reason, now)
		u.Declaration = &decided
		return u, err
	}
	return u, nil
}

// verb returns a decision as the log names it.
func verb(d approval.Decision) string {
	if d == approval.Approve || d == approval.Reject || d == approval.Deferral {
		return string(d)
	}
	return "answer"
}

// maxTogether bounds a batch, because a person reads each question before answering.
const maxTogether = 100

// Batched is the result for one question of a batch.
type Batched struct {
	Question *Question  `json:"approval,omitempty"`
	ID       string     `json:"approval_id"`
	Problem  string     `json:"problem,omitempty"`
	Code     fault.Code `json:"code,omitempty"`
}

// RespondTogether answers similar questions with one decision, each under the digest that the person saw (DE-5). If they are not similar, none
// is answered. Otherwise each answer is taken or refused on its own.
func (d *Desk) RespondTogether(ctx context.Context, voter approval.Voter, answers []Response) ([]Batched, error) {
	if len(answers) == 0 || len(answers) > maxTogether {
		return nil, fault.New(fault.RequestMalformed, "Answer 1 to %d at once.", maxTogether).At("approvals")
	}
	key := ""
	for i, r := range answers {
		a, err := d.o.Store.Approval(ctx, r.Approval)
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
		if q, err := d.Respond(ctx, voter, r); err != nil {
			f := fault.Of(err)
			b.Problem, b.Code = f.Public(), f.Code
			d.o.Log.Info("one of a batch was not taken", "approval_id", r.Approval, "error", cmp.Or(err.Error(), string(f.Code)))
		} else {
			b.Question = &q
		}
		all = append(all, b)
	}
	return all, nil
}
