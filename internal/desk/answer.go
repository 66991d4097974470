package desk

import (
	"context"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/fault"
)

// Answer holds the state of the question about a call. The zero value means that there is none: no person was asked about the call as it is now.
type Answer struct {
	Approval *approval.Approval // the question that still stands for the call, or with Refusal the one that was rejected; nil: none
	Waits    bool               // nobody has answered it yet. Otherwise it permits the call
	Refusal  error              // why people refuse the call; nil: they don't
	// Replacement, with Refusal, is the question with the arguments that a person wants in place of these; nil: there is none.
	Replacement *approval.Approval
}

// maxReplaced bounds how many changes of one question are followed to the newest.
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
	a = a.Recount(d.o.Voter) // votes of people who may no longer approve do not count
	covers := a.Covers(callDigest, now)
	if a.State == approval.Superseded && a.ReplacedBy != "" {
		if next, open, err := d.replacement(ctx, a); err != nil || open {
			return Answer{Refusal: covers, Replacement: &next}, err
		}
	}
	switch {
	case a.StateAt(now) == approval.Rejected:
		return Answer{Approval: &a, Refusal: covers}, nil
	case !d.stands(a, stands):
		return Answer{}, nil
	case covers == nil, waits(a, now):
		return Answer{Approval: &a, Waits: covers != nil}, nil
	}
	return Answer{}, nil // expired, spent, superseded
}

// stands tells whether an answer still stands: nothing that was shown has changed, it was given to this gateway, the agent was not stopped since,
// people could look at it for as long as it was open, and it is about the call as it is now.
func (d *Desk) stands(a approval.Approval, forTheCall func(approval.Approval) bool) bool {
	if !a.Intact() || a.Environment != d.o.Environment || d.stopped(a) {
		return false
	}
	if !a.SilenceAt.IsZero() && len(a.Votes) == 0 && a.CreatedAt.Before(d.o.Since) { // nobody could object while the gateway was down
		return false
	}
	return forTheCall(a)
}

// stopped tells whether the agent was stopped after the call was judged that the question is about.
func (d *Desk) stopped(a approval.Approval) bool { return a.StopEpoch != d.o.StopEpoch(a.Agent) }

// stillWaiting refuses a question of an agent that was stopped after it was asked.
func (d *Desk) stillWaiting(a approval.Approval) error {
	if !d.stopped(a) {
		return nil
	}
	return fault.New(fault.ApprovalMismatch, "%s", whyStopped).Try("What the agent calls once it may call again is asked about anew.")
}

// replacement returns the question with the arguments that a person wants in place of those of a. open reports whether it waits or is approved.
func (d *Desk) replacement(ctx context.Context, a approval.Approval) (next approval.Approval, open bool, err error) {
	next, err = d.o.Store.Approval(ctx, a.ReplacedBy)
	for range maxReplaced { // a person may have changed the arguments again
		if err != nil || next.State != approval.Superseded || next.ReplacedBy == "" {
			break
		}
		next, err = d.o.Store.Approval(ctx, next.ReplacedBy)
	}
	now := d.o.Now()
	return next, err == nil && !d.stopped(next) && (waits(next, now) || next.StateAt(now) == approval.Approved), err
}

// Covering finds the approval of an earlier call in the session that covers more calls of the operation; "" if there is none. The approval has been
// used, and the people who gave it may still approve. covers tells whether the person was shown that it covers more calls, and which.
func (d *Desk) Covering(ctx context.Context, session, operation string, covers func(approval.Approval) bool) (id string, err error) {
	found, err := d.o.Store.Approvals(ctx, Filter{Session: session, Operation: operation, State: approval.Spent, Now: d.o.Now(), Limit: maxOpen})
	if err != nil {
		return "", err
	}
	for _, a := range found {
		if a.State == approval.Spent && a.Session == session && a.Environment == d.o.Environment && a.Intact() && !d.stopped(a) && a.Recount(d.o.Voter).ByPeople() && covers(a) {
			return a.ID, nil
		}
	}
	return "", nil
}

// objectionHolds is the time for which silence permits no calls of an operation after a person answered anything but yes about one.
const objectionHolds = 24 * time.Hour

// Objected tells whether people have lately answered anything but yes about an operation of an agent's. Silence permits no calls of it then.
func (d *Desk) Objected(ctx context.Context, agent, operation string) (bool, error) {
	return d.o.Store.Objected(ctx, agent, operation, d.o.Now().Add(-objectionHolds))
}
