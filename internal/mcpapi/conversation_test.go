package mcpapi

import (
	"context"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/internal/identity"
	"sallyport.example/internal/mcpwire"
)

// own is the agent's own session.
func (h *house) own() string {
	h.t.Helper()
	s, err := h.gate.SessionFor(h.t.Context(), identity.Principal{Kind: identity.Agent, ID: "worker"})
	if err != nil {
		h.t.Fatal(err)
	}
	return s.ID
}

func (h *house) ordersNext() {
	h.t.Helper()
	if _, err := h.gate.OrderNext(h.t.Context(), "worker", "person:alice"); err != nil {
		h.t.Fatal(err)
	}
}

func look(t *testing.T, cs *mcp.ClientSession) string {
	t.Helper()
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "look", Arguments: map[string]any{}})
	if err != nil {
		return err.Error()
	}
	return called{res: res}.text()
}

// With every revision, the conversation after a person's order is in a fresh session, and no other.
func TestTheNextConversationIsFresh(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		h := newHouse(t, Options{})
		first := h.connect(h.token, revision, nil)
		look(t, first)
		before := h.own()
		h.connect(h.token, revision, nil)
		if h.own() != before {
			t.Fatal("a connection made a session")
		}
		h.ordersNext()
		if revision < mcpwire.Revision0728 {
			look(t, first) // the old conversation doesn't use the order up
			if h.own() != before {
				t.Fatal("a call of the old conversation made a session")
			}
		}
		second := h.connect(h.token, revision, nil)
		fresh := h.own()
		if fresh == before {
			t.Fatal("the conversation is not fresh")
		}
		if got := look(t, second); got != "paid" {
			t.Errorf("%s", got)
		}
		h.connect(h.token, revision, nil)
		if h.own() != fresh {
			t.Error("the order counted twice")
		}
		if revision == mcpwire.Revision0728 {
			return // its requests belong to no conversation
		}
		if got := look(t, first); !strings.Contains(got, "This conversation is over") || strings.Contains(got, "sallyport sessions") {
			t.Errorf("%s", got)
		}
		if _, err := first.ListTools(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "This conversation is over") {
			t.Errorf("%v", err)
		}
	})
}

// A second initialize in a transport session begins no conversation.
func TestASecondInitializeBeginsNothing(t *testing.T) {
	h := newHouse(t, Options{})
	headers := h.open(h.token, "{}")
	before := h.own()
	h.ordersNext()
	h.do("POST", "/mcp", `{"jsonrpc":"2.0","id":9,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`, headers)
	if h.own() != before {
		t.Error("it made a session")
	}
}

// The token of a session begins nothing for its agent.
func TestASessionsTokenUsesNoOrder(t *testing.T) {
	h := newHouse(t, Options{})
	h.open(h.token, "{}")
	h.ordersNext()
	own := h.own()
	secret, _, err := h.gate.Standing().IssueToken(context.Background(), identity.Principal{Kind: identity.Session, ID: own, Agent: "worker"}, "test")
	if err != nil {
		t.Fatal(err)
	}
	h.open(secret, "{}")
	if h.own() != own {
		t.Error("it made a session")
	}
}
