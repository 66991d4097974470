package desk

import (
	"context"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/fault"
)

// withdraw ends one question by a rule.
func (d *Desk) withdraw(ctx context.Context, id, by string) error {
	_, err := d.o.Store.ChangeApproval(ctx, id, func(old Stored) (Update, error) {
		next, err := old.Approval.Supersede(d.o.Now())
		return Update{Stored: Stored{Approval: next}, Entry: entry(old.Approval, "approval.withdraw", by)}, err
	})
	if err == nil {
		d.Changed(id)
	}
	return err
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
			if err := d.withdraw(ctx, id, "rule:session-closed"); err == nil {
				ended++
			} else if !fault.Is(err, fault.ApprovalExpired) && !fault.Is(err, fault.Conflict) { // over in another way is over
				return
			}
		}
		if ended == 0 {
			return
		}
	}
}

// WithdrawOperation withdraws the questions that wait, and the approvals that were not used, about an operation whose definition has changed: people
// approved the old one. A question that can't be written now is void all the same, because its call has another digest by then.
func (d *Desk) WithdrawOperation(ctx context.Context, operation string) {
	for _, state := range []approval.State{approval.Pending, approval.Deferred, approval.Approved} {
		found, err := d.o.Store.Approvals(ctx, Filter{Operation: operation, State: state, Now: d.o.Now(), Limit: maxOpenOfAgent})
		if err != nil {
			d.o.Log.Warn("questions about a tool that changed were not withdrawn; they run nothing", "operation", operation, "error", err)
			return
		}
		for _, a := range found {
			_ = d.withdraw(ctx, a.ID, "rule:definition")
		}
	}
}
