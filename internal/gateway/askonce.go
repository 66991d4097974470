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

// askedOnce finds the approval of an earlier call in the session that covers the operation as it is defined now; "" if there is none.
func (c *crossing) askedOnce(ctx context.Context) (string, error) {
	if !c.op.AskOnce {
		return "", nil
	}
	return c.g.desk.Covering(ctx, c.session.ID, c.op.ID, func(a approval.Approval) bool {
		return a.DefinitionHash == c.effect.Definition() && slices.ContainsFunc(a.Reasons, func(r approval.Reason) bool { return r.Code == codeOnce })
	})
}
