package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/gateway/gatewaytest"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/run"
	"sallyport.example/internal/runner"
	"sallyport.example/internal/store"
)

const advisor = `agentId: advisor
agentName: Advisor
version: 1.2.3
purpose: gives advice
capabilities: [advice]
dataSources: {tables: [t], apis: [], models: []}
permissions: {read: [], write: []}
outputSchema: {type: object, properties: {answer: {type: string, pattern: "^[^<>]*$", x-fact: true}}, required: [answer], additionalProperties: false}
outputSchemaVersion: 1.0.0
maxExecutionTime: 20000
maxTokens: 1000
killSwitchEnabled: true
humanApprovalRequired: true
run: {kind: http, url: %q}
`

// meanwhile does something between the checks of a run that is asked for and its beginning.
type meanwhile struct {
	*store.DB
	do func()
}

func (m *meanwhile) StartRun(ctx context.Context, r run.Run, e audit.Entry) (run.Run, bool, error) {
	m.do()
	return m.DB.StartRun(ctx, r, e)
}

// A run that an agent's stop reaches before it begins does not begin, also when the stop is over by then: nobody asks the agent.
func TestStoppedBeforeItBegins(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(g *gateway.Gateway)
		runs bool
	}{
		"nothing happens": {func(*gateway.Gateway) {}, true},
		"stopped":         {func(g *gateway.Gateway) { g.Standing().Disable("advisor", "person:ann", "look") }, false},
		"stopped and started again": {func(g *gateway.Gateway) {
			g.Standing().Disable("advisor", "person:ann", "look")
			g.Standing().Enable("advisor", "person:ann", "fine")
		}, false},
		"all stopped, and started": {func(g *gateway.Gateway) {
			g.Standing().Disable("", "person:ann", "look")
			g.Standing().Enable("", "person:ann", "fine")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				w.WriteHeader(http.StatusTeapot)
			}))
			t.Cleanup(program.Close)
			o := gatewaytest.Options(t, fmt.Sprintf(advisor, program.URL))
			db := &meanwhile{DB: gatewaytest.Store(t)}
			o.Store = db.DB
			g := gatewaytest.New(t, o)
			db.do = func() { c.do(g) }
			r, err := runner.New(t.Context(), runner.Options{Gateway: g, Store: db, AgentURL: func() string { return "http://127.0.0.1:1" }, Dir: t.TempDir(),
				Env: func(string) string { return "" }, Hosts: func(string) []string { return nil }, Alert: func(run.Run) {}, Log: slog.New(slog.DiscardHandler), Clock: time.Now})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(r.Close)
			begun, err := r.Start(t.Context(), identity.Principal{Kind: identity.Person, ID: "ann", Roles: []identity.Role{identity.Operator}}, runner.Start{Agent: "advisor", Input: json.RawMessage(`{"q":"?"}`)})
			if err != nil {
				t.Fatal(err)
			}
			ended, err := r.Run(t.Context(), begun.ID, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if (asked.Load() > 0) != c.runs || (ended.Status == run.Killed) == c.runs {
				t.Errorf("the agent was asked %d times, and the run is %s", asked.Load(), ended.Status)
			}
		})
	}
}
