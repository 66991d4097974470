package gatewaytest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/flow"
	"sallyport.example/guard"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/knowledge/library"
	"sallyport.example/internal/knowledge/shelf"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/store"
	"sallyport.example/internal/threat"
)

// Options are what most gateways of tests have in common, for agents with these declarations, which begin with agentId. The test adds the servers, the store, how
// operations are classified, and what it is about.
func Options(t testing.TB, declarations ...string) gateway.Options {
	t.Helper()
	var agents []agent.Declaration
	for _, text := range declarations {
		id, _, _ := strings.Cut(strings.TrimPrefix(text, "agentId: "), "\n")
		d, problems := agent.Parse(id+".yaml", []byte(text))
		if d.Digest == "" {
			t.Fatalf("declaration: %v", problems)
		}
		agents = append(agents, d)
	}
	policies, err := policy.Load("")
	if err != nil {
		t.Fatal(err)
	}
	detector, err := threat.New()
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := guard.NewIssuer([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	return gateway.Options{
		Settings: gateway.Settings{
			Agents: agent.NewSet(agents...), Policies: policies, Tiers: gateway.Tiers(),
			Labels: []flow.Label{"internal", "pii", "secret"}, Unlisted: catalogue.Unlisted, Mode: gateway.Enforce,
			Limits: gateway.Limits{CallsPerMinute: 10_000, CommRequestsPerMinute: 1000, Budget: 300 * time.Second, ApprovalExpires: time.Minute, MediumDelay: 20 * time.Millisecond},
		},
		Detector: detector, Issuer: issuer,
		Unapproved: func(*agent.Declaration) (string, string) { return "", "" }, // what a test declares, it means
		Schema:     func(json.RawMessage) (func([]byte) error, error) { return func([]byte) error { return nil }, nil },
	}
}

// Store opens an empty store, which is closed when the test ends.
func Store(t testing.TB) *store.DB {
	t.Helper()
	db, err := store.Open(DataDir(t, t.TempDir()), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	return db
}

// AgentsWords is what an agent of Library said, in the run run_1.
const AgentsWords = "what the agent said"

type said struct{}

func (said) Holds(part string) (from string, found bool) {
	return "run_1", strings.Contains(part, AgentsWords)
}

func (said) Imported(_ context.Context, _, _ string) (text, from string, labels []string, err error) {
	return "", "", nil, fault.New(fault.RequestMalformed, "There was no export.")
}

// Library opens a knowledge store beside a store, which is closed when the test ends.
func Library(t testing.TB, db library.Store) *library.Library {
	t.Helper()
	s, err := shelf.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l, err := library.Open(t.Context(), library.Options{
		Store: db, Shelf: s, Clock: time.Now, Log: slog.New(slog.DiscardHandler),
		Detect:     func([]byte) []string { return nil },
		KnownLabel: func(label string) bool { return slices.Contains([]string{"internal", "pii", "secret"}, label) },
		Erasers:    func(first, second string) (bool, bool) { return first == second, true },
		Parse:      func(_ context.Context, _ string, file []byte) (string, error) { return string(file), nil },
		Said:       said{},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("closing the knowledge store: %v", err)
		}
	})
	return l
}

// New starts a gateway, which is closed when the test ends: before the store, if Store was called first.
func New(t testing.TB, o gateway.Options) *gateway.Gateway {
	t.Helper()
	g, err := gateway.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Errorf("closing the gateway: %v", err)
		}
	})
	return g
}

// Tool is the definition of a tool that takes any arguments.
func Tool(server, name, description string) call.Definition {
	raw := fmt.Appendf(nil, `{"description":%q,"inputSchema":{"type":"object"},"name":%q}`, description, name)
	return call.Definition{Server: server, Name: name, Kind: call.Tool, JSON: raw, Hash: call.HashBytes(raw)}
}
