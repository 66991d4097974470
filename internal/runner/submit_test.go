package runner_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/gateway/gatewaytest"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/run"
	"sallyport.example/internal/runner"
)

// What a session recommends counts against its rate, also if it is refused: the record of the session is read for each.
func TestRecommendingIsBounded(t *testing.T) {
	o, db := gatewaytest.Options(t, fmt.Sprintf(advisor, "http://127.0.0.1:1/")), gatewaytest.Store(t)
	o.Store, o.Limits.CallsPerMinute = db, 2
	g := gatewaytest.New(t, o)
	r, err := runner.New(t.Context(), runner.Options{Gateway: g, Store: db, AgentURL: func() string { return "http://127.0.0.1:1" }, Dir: t.TempDir(),
		Env: func(string) string { return "" }, Hosts: func(string) []string { return nil }, Alert: func(run.Run) {}, Log: slog.New(slog.DiscardHandler), Clock: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	s, _, err := g.OpenSession(t.Context(), identity.Principal{Kind: identity.Host, ID: "ci"}, gateway.OpenRequest{Agent: "advisor", UserRequest: "x", Requester: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	p := identity.Principal{Kind: identity.Session, ID: s.ID, Agent: "advisor"}
	for i, want := range []fault.Code{fault.OutputInvalid, fault.OutputInvalid, fault.LimitRate} {
		if _, err := r.Submit(t.Context(), p, s.ID, json.RawMessage(`{"no":"answer"}`)); !fault.Is(err, want) {
			t.Errorf("recommendation %d: %v, want %s", i, err, want)
		}
	}
}
