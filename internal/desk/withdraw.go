package desk

import (
	"context"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/fault"
)

// Why a question was withdrawn, as people read it.
const (
	whyStopped = "The agent was stopped after this was asked: by the kill switch or by a quarantine."
	whyClosed  = "The session that asked was closed."
)

// Cause is why all questions about an operation are withdrawn: by which rule, and in words.
type Cause struct{ by, text string }

var (
	// Redefined: people were asked about another definition of the tool.
	Redefined = Cause{"rule:definition", "The definition of the tool changed after this was asked."}
	// Withheld: agents can't call the operation any more.
	Withheld = Cause{"rule:reload", "The configuration was changed after this was asked: agents can't call the operation any more."}
)

// withdraw ends one question by a rule, and the declaration that it is about.
func (d *Desk) withdraw(ctx context.Context, id, by, reason string) error {
	_, err := d.o.Store.ChangeApproval(ctx, id, func(old Stored) (u Update, err error) {
		now := d.o.Now()
		u = Update{Stored: old, Entry: d.entry(old.Approval, "approval.withdraw", by)}
		u.Entry.Reason = reason
		if u.Approval, err = old.Approval.Supersede(reason, now); err == nil && old.Declaration != nil {
			u.Declaration, err = refused(old.Declaration, declare.ByRule, reason, now)
		}
		return u, err
	})
	if err == nil {
		d.Changed(id)
	}
	return err
}

// isOver tells whether a question could not be withdrawn because it is over in another way.
func isOver(err error) bool {
	return fault.Is(err, fault.ApprovalExpired) || fault.Is(err, fault.Conflict)
}

// WithdrawSession withdraws the questions of a session that has ended. A question that can't be written now is void all the same: no person can approve it.
func (d *Desk) WithdrawSession(ctx context.Context, sessionID string) {
	for {
		ids, err := d.o.Store.OpenApprovals(ctx, sessionID, d.o.Now(), maxOpen)
		if err != nil || len(ids) == 0 {
			return
		}
		ended := 0
		for _, id := range ids {
			if err := d.withdraw(ctx, id, "rule:session-closed", whyClosed); err == nil {
				ended++
			} else if !isOver(err) {
				return
			}
		}
		if ended == 0 {
			return
		}
	}
}

// open are the states of questions that could still lead to a call.
var open = []approval.State{approval.Pending, approval.Deferred, approval.Approved}

// WithdrawOperation withdraws the questions that wait, and the approvals that were not used, about an operation. A question that can't be written now is
// void all the same: its call has another digest by then, or is refused.
func (d *Desk) WithdrawOperation(ctx context.Context, operation string, why Cause) {
	for _, state := range open {
		found, err := d.o.Store.Approvals(ctx, Filter{Operation: operation, State: state, Now: d.o.Now(), Limit: maxOpenOfAgent})
		if err != nil {
			d.o.Log.Warn("questions about an operation that changed were not withdrawn; they run nothing", "operation", operation, "error", err)
			return
		}
		for _, a := range found {
			if a.State == approval.Damaged {
				continue
			}
			_ = d.withdraw(ctx, a.ID, why.by, why.text)
		}
	}
}

// WithdrawStopped withdraws the questions that wait, and the approvals that were not used, of agents that were stopped after they were asked. It says
// so on them and on record. Before that they count for nothing already, because their stop epoch is past. After an error, call it again.
func (d *Desk) WithdrawStopped(ctx context.Context) error {
	now := d.o.Now()
	for _, state := range open {
		for after := ""; ; {
			page, err := d.o.Store.Approvals(ctx, Filter{State: state, Now: now, After: after, Limit: maxOpenOfAgent})
			if err != nil {
				return err
			}
			for _, a := range page {
				if err := d.withdrawStopped(ctx, a); err != nil {
					return err
				}
			}
			if len(page) < maxOpenOfAgent {
				break
			}
			after = page[len(page)-1].ID
		}
	}
	return nil
}

func (d *Desk) withdrawStopped(ctx context.Context, a approval.Approval) error {
	if a.State == approval.Damaged || !d.stopped(a) {
		return nil
	}
	if a.State == approval.Approved {
		if drill, err := d.o.Store.IsDrill(ctx, a.ID); err != nil || drill { // it was answered, and that answer is counted
			return err
		}
	}
	why := whyStopped
	if by := d.o.StoppedBy(a.Agent); by != "" {
		why = by
	}
	if err := d.withdraw(ctx, a.ID, "rule:stopped", why); err != nil && !isOver(err) {
		return err
	}
	return nil
}
