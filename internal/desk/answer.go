package desk

import (
	"context"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/fault"
)

// Answer is what people have said about a call by now. The zero value is nothing: nobody was asked, or about something else than the call is now.
type Answer struct {
	Approval *approval.Approval // the question that still stands for the call; nil: none
	Waits    bool               // nobody has answered it yet. Otherwise it permits the call
	Refusal  error              // why people refuse the call; nil: they don't
	Instead  *approval.Approval // with Refusal: the question with the arguments that a person wants in place of these
}

// maxReplaced is how often changed arguments are followed to where they were changed again.
const maxReplaced = 16

// Answer looks for the answer to one call of a session. stands tells whether an older answer still stands for the call as it is now.
func (d *Desk) Answer(ctx context.Context, session, callDigest string, stands func(approval.Approval) bool) (Answer, error) {
	a, err := d.o.Store.ApprovalFor(ctx, session, callDigest)
	if fault.Is(err, fault.NotFound) {
		return Answer{}, nil
	}
	if err != nil {
		return Answer{}, err
	}
	now := d.o.Now()
	a = a.Recount(d.o.Voter) // who approved must still be one who may
	covers := a.Covers(callDigest, now)
	if a.State == approval.Superseded && a.ReplacedBy != "" {
		if next, open, err := d.replacement(ctx, a); err != nil || open {
			return Answer{Refusal: covers, Instead: &next}, err
		}
	}
	switch {
	case a.StateAt(now) == approval.Rejected:
		return Answer{Refusal: covers}, nil
	case !d.stands(a, stands):
		return Answer{}, nil
	case covers == nil, waits(a, now):
		return Answer{Approval: &a, Waits: covers != nil}, nil
	}
	return Answer{}, nil // expired, spent, superseded
}

// stands tells whether an answer still stands: nothing that was shown has changed, it was given to this gateway, people could look at it for as
// long as it was open, and it is about the call as it is now.
func (d *Desk) stands(a approval.Approval, forTheCall func(approval.Approval) bool) bool {
	if !a.Intact() || a.Environment != d.o.Environment {
		return false
	}
	if !a.SilenceAt.IsZero() && len(a.Votes) == 0 && a.CreatedAt.Before(d.o.Since) { // nobody could object while the gateway was down
		return false
	}
	return forTheCall(a)
}

// replacement is the question with the arguments that a person wants in place of those of a; open is false where that is over.
func (d *Desk) replacement(ctx context.Context, a approval.Approval) (next approval.Approval, open bool, err error) {
	next, err = d.o.Store.Approval(ctx, a.ReplacedBy)
	for range maxReplaced { // people thought again
		if err != nil || next.State != approval.Superseded || next.ReplacedBy == "" {
			break
		}
		next, err = d.o.Store.Approval(ctx, next.ReplacedBy)
	}
	now := d.o.Now()
	return next, err == nil && (waits(next, now) || next.StateAt(now) == approval.Approved), err
}

// Covering finds the approval of an earlier call in the session that covers more calls of the operation; "" if there is none. It is one that people
// gave who still may, and that was used. covers tells whether the person was shown so, and of what.
func (d *Desk) Covering(ctx context.Context, session, operation string, covers func(approval.Approval) bool) (id string, err error) {
	found, err := d.o.Store.Approvals(ctx, Filter{Session: session, Operation: operation, State: approval.Spent, Now: d.o.Now(), Limit: maxOpen})
	if err != nil {
		return "", err
	}
	for _, a := range found {
		if a.Session == session && a.Environment == d.o.Environment && a.Intact() && a.Recount(d.o.Voter).ByPeople() && covers(a) {
			return a.ID, nil
		}
	}
	return "", nil
}

// objectionHolds is how long silence permits nothing alike after a person answered anything but yes about an operation of an agent's.
const objectionHolds = 24 * time.Hour

// Objected tells whether people have lately answered anything but yes about an operation of an agent's: silence permits nothing alike then.
func (d *Desk) Objected(ctx context.Context, agent, operation string) (bool, error) {
	return d.o.Store.Objected(ctx, agent, operation, d.o.Now().Add(-objectionHolds))
}
