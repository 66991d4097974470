package gateway

import (
	"context"
	"fmt"
	"slices"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/judge"
)

// codeOnce is the code of the reason that says that a yes covers the operation in the session (unlisted_operations: ask_once). An approval
// covers more than its own call only if the person was shown this.
const codeOnce = "permit.session"

// onceForAll says to the person that their yes covers later calls of an operation that no entry names.
func (c *crossing) onceForAll() []approval.Reason {
	if !c.op.AskOnce || judge.Unlisted(&c.judged.facts).Decision != fault.Ask {
		return nil
	}
	return []approval.Reason{{Stage: "permit", Code: codeOnce, Text: fmt.Sprintf(
		"Your yes covers further calls of this tool in this session, with any arguments: nobody is asked again only because no entry names %s. All other rules still judge each call.", c.op.ID)}}
}

// askedOnce finds the approval of an earlier call in the session that covers the operation as it is defined now; "" if there is none. It is one
// that people gave who still may, and that was used.
func (c *crossing) askedOnce(ctx context.Context) (string, error) {
	if !c.op.AskOnce {
		return "", nil
	}
	found, err := c.g.o.Store.Approvals(ctx, ApprovalFilter{Session: c.session.ID, Operation: c.op.ID, State: approval.Spent, Now: c.g.now(), Limit: maxPending})
	if err != nil {
		return "", err
	}
	for _, a := range found {
		if a.DefinitionHash == c.definition() && a.Session == c.session.ID && a.Environment == c.g.o.Environment && a.Intact() && a.Recount(c.g.o.Voter).ByPeople() &&
			slices.ContainsFunc(a.Reasons, func(r approval.Reason) bool { return r.Code == codeOnce }) {
			return a.ID, nil
		}
	}
	return "", nil
}
