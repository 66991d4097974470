package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
)

// Nobody is asked about what a built-in operation asks for, also where rules or labels changed since it was judged; and its texts are not in the log.
func TestComposedRequests(t *testing.T) {
	w := newOnceWorld(t)
	p := w.open("worker", "erin", widgets)
	const text = "a sentence of a document"
	r := gateway.Request{Principal: p, Method: "tools/call", Tool: "shy_look", Arguments: json.RawMessage(`{"at":"` + text + `"}`), Door: "mcp"}
	if a := w.g.Call(t.Context(), gateway.Composed(r)); a.Verdict.Decision != fault.Deny || a.Verdict.Code != fault.ApprovalRequired || len(w.waiting()) != 0 {
		t.Errorf("%+v, %d questions", a.Verdict, len(w.waiting()))
	}
	for _, e := range w.entries() {
		if b, err := json.Marshal(e); err != nil || strings.Contains(string(b), text) {
			t.Errorf("%s, %v", b, err)
		}
	}
	id := w.mustAsk(w.g.Call(t.Context(), r)) // as the agent's own call it asks
	w.mustRespond("bob", id, "approve", "")
}
