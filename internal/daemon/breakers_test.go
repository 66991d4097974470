package daemon

import (
	"fmt"
	"slices"
	"testing"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/store"
)

// TestBreakerHistoryReadsOnlyTheNewest: of the entries that say which agents miss another, a start takes the newest of each agent that depends on others, however old they are.
func TestBreakerHistoryReadsOnlyTheNewest(t *testing.T) {
	on := []string{"alone"}
	agents := agent.NewSet(agent.Declaration{AgentID: "alone"}, agent.Declaration{AgentID: "back", DependsOn: on}, agent.Declaration{AgentID: "missing", DependsOn: on}, agent.Declaration{AgentID: "never", DependsOn: on})
	db, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	of := func(action, agent string) audit.Entry {
		return audit.Entry{Kind: audit.Change, Action: action, Agent: agent, Actor: "gateway", Decision: "ok"}
	}
	const degraded, whole = gateway.ActionDegraded, gateway.ActionWhole
	var batch []audit.Entry
	for range 50 {
		batch = append(batch, of(degraded, "alone"), of(degraded, "back"), of(whole, "back"), of(degraded, "missing"))
	}
	first, err := db.Size(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	last := first + int64(len(batch))
	for range breakerEntries {
		batch = append(batch, of("other", "worker"))
	}
	for some := range slices.Chunk(batch, 500) {
		if err := db.Record(t.Context(), some...); err != nil {
			t.Fatal(err)
		}
	}
	history, err := (&Daemon{store: db}).breakerHistory(t.Context(), agents)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range history[:len(history)-breakerEntries] {
		found = append(found, fmt.Sprint(e.Index-last, " ", e.Action, " ", e.Agent))
	}
	if want := []string{"-3 agent.degraded back", "-2 agent.whole back", "-1 agent.degraded missing"}; !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}
