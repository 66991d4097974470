package gatewaytest

import (
	"context"
	"maps"
	"testing"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/agent/approved"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/identity"
)

// Approved holds the declarations of agents, all of which are approved: what a test declares, it means.
func Approved(t testing.TB, agents func() agent.Set) *approved.Book {
	t.Helper()
	signer, err := audit.LoadOrCreateKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	book, err := approved.New(t.Context(), approved.Options{
		Store: kept{}, Agents: agents, Needed: func(*agent.Declaration) int { return 1 }, LoadedBy: func(string) string { return "" },
		Voter: func(person string) (approval.Voter, bool) {
			return approval.Voter{Person: person, Roles: []identity.Role{identity.Admin}}, true
		},
		Now: time.Now, Changed: func(string) {}, Signer: signer, Trusted: func() []string { return nil },
	})
	if err == nil {
		err = book.Write(t.Context(), "terminal:test", agents().All()...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return book
}

// kept are approvals in memory.
type kept map[string]approved.Record

func (k kept) AgentApprovals(context.Context) (map[string]approved.Record, error) {
	return maps.Clone(k), nil
}

func (k kept) SaveAgentApprovals(_ context.Context, records []approved.Record, _ ...audit.Entry) error {
	for _, r := range records {
		k[r.Agent] = r
	}
	return nil
}
