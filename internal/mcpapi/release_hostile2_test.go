package mcpapi

import (
	"slices"
	"testing"

	"sallyport.example/internal/gateway"
)

// A subscription is held under the transport session's key, whether or not its client can be asked: it goes when the session goes.
func TestHostile2SubscriptionsGoWithTheirTransportSession(t *testing.T) {
	r := newRig(t)
	h := r.open(agentToken, "{}")
	if rep := r.do("POST", "/mcp", `{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"test://a"}}`, h); rep.status != 200 || rep.code() != 0 {
		t.Fatalf("%d %s", rep.status, rep.body)
	}
	key := ""
	for _, c := range r.g.called() {
		if c.Method == "resources/subscribe" {
			key = c.Exchange.ClientKey
		}
	}
	if key == "" {
		t.Fatal("no key was given out")
	}
	if rep := r.do("DELETE", "/mcp", "", h); rep.status != 204 {
		t.Fatalf("%d", rep.status)
	}
	unsubscribed := slices.ContainsFunc(r.g.called(), func(c gateway.Request) bool { return c.Method == "resources/unsubscribe" })
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.released, key) && !unsubscribed {
		t.Errorf("the upstream was given the key %s with the subscription, and nobody told it that the session has ended: 1000 of those and nobody can subscribe", key)
	}
}
