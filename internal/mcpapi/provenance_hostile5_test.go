package mcpapi

import (
	"context"
	"testing"

	"sallyport.example/internal/gateway"
)

// Answers that come without a state of ours, so to no question, don't reach the corridor.
func TestAnswersToNoQuestion_hostile5(t *testing.T) {
	r := newRig(t)
	r.g.on(func(_ context.Context, req gateway.Request) gateway.Answer {
		if req.Exchange.InputResponses != nil {
			t.Errorf("the corridor saw %s", req.Exchange.InputResponses)
		}
		return permit(`{"content":[]}`)
	})
	r.do("POST", "/mcp", modernCall(`"arguments":{"a":1},"inputResponses":{"q":{"action":"accept"}},`), modernHeaders("tools/call", "echo"))
}
