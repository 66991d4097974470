package gateway

import (
	"context"
	"encoding/json"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/models/wire"
)

// asksModel asks a model for what a built-in operation does, as the caller's own request: it goes through the whole corridor, under the agent's declaration, the session's labels and
// the agent's quotas. It is judged before it is tried, so that no refusal stands on the agent's record. Nobody is asked about it, also where rules or labels changed
// since. The log gets nothing of its texts, which may be those of documents that are erased one day, nor of the answer.
func (c *crossing) asksModel(ctx context.Context, form wire.Form, body json.RawMessage) (json.RawMessage, error) {
	asked := wire.Request{Form: form, Body: body}
	if form.Provider() == wire.Anthropic {
		asked.Version = wire.Versions[0]
	}
	packed, err := wire.Packed(asked)
	if err != nil {
		return nil, err
	}
	r := Request{Principal: c.r.Principal, Session: c.r.Session, Method: call.AskModel, Tool: wire.ModelOf(body), Arguments: packed, Door: c.r.Door, DryRun: true, composed: true}
	if err := permitted(c.g.Call(ctx, r).Verdict); err != nil {
		return nil, err
	}
	r.DryRun = false
	a := c.g.Call(ctx, r)
	if err := permitted(a.Verdict); err != nil {
		return nil, err
	}
	if status, _ := call.Get(a.Result, "status"); string(status) != "200" {
		return nil, fault.New(fault.UpstreamFailed, "The provider answered with an error.")
	}
	answer, ok := call.Get(a.Result, "body")
	if !ok {
		return nil, fault.New(fault.ResultInvalid, "The answer is empty.")
	}
	return answer, nil
}

// permitted is the error of a verdict that is no permit.
func permitted(v fault.Verdict) error {
	switch v.Decision {
	case fault.Permit:
		return nil
	case fault.Ask:
		return fault.New(fault.ApprovalRequired, "A person would have to be asked about this request.")
	}
	return fault.New(v.Code, "%s", v.Reason)
}
