package catalogue_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway/gatewaytest"
	"sallyport.example/internal/store"
	"sallyport.example/provenance"
)

// world is a catalogue on the real store, whose writes can be made to fail.
type world struct {
	t      testing.TB
	dir    string
	db     *store.DB
	refuse bool // SavePins fails
	o      catalogue.Options
	c      *catalogue.Catalogue
	voided []string
	launch map[string]string  // by server; "": nothing is known of it
	worker *agent.Declaration // it may read what mail, web, docs and shy offer
}

func (w *world) Pins(ctx context.Context) ([]catalogue.Pin, error) { return w.db.Pins(ctx) }

func (w *world) SavePins(ctx context.Context, pins []catalogue.Pin, entries ...audit.Entry) error {
	if w.refuse {
		return fault.New(fault.StoreUnavailable, "")
	}
	return w.db.SavePins(ctx, pins, entries...)
}

// classes are what the operator says about some operations.
var classes = map[string]catalogue.Classification{
	"mail.search_email": {ExposeAs: "search_email", Flow: flow.Spec{Sensitivity: flow.InternalSource, Effect: flow.Read}, Output: provenance.TrustedOutput},
	"web.web_search":    {ExposeAs: "web_search", Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Read, Untrusted: true}, Output: provenance.UntrustedOutput},
	"slack.post":        {ExposeAs: "slack_post", Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Write}, Output: provenance.TrustedOutput},
	"docs.think":        {ExposeAs: "think", Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Read}, Output: provenance.TrustedOutput},
}

func classify(server, tool string) catalogue.Classification {
	c, ok := classes[server+"."+tool]
	if !ok {
		return catalogue.Classification{ExternalIO: true, Level: 2, Output: provenance.UntrustedOutput, Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Write, Untrusted: true}}
	}
	c.Listed, c.Named, c.ExternalIO = true, true, server != "docs"
	return c
}

// shy says the same about every operation of the server shy.
func shy(c catalogue.Classification) func(*catalogue.Options) {
	return func(o *catalogue.Options) {
		o.Classify = func(server, tool string) catalogue.Classification {
			if server == "shy" {
				c.Listed, c.ExternalIO = true, true
				return c
			}
			return classify(server, tool)
		}
	}
}

const declaration = `agentId: worker
agentName: Test
version: 1.0.0
purpose: tests
capabilities: [testing]
dataSources: {tables: [], apis: [], models: []}
permissions: {read: ["mail.*", "web.*", "docs.*", "shy.*"], write: []}
outputSchema: {type: object, properties: {answer: {type: string}}, required: [answer], additionalProperties: false}
outputSchemaVersion: 1.0.0
maxExecutionTime: 30000
maxTokens: 1000
killSwitchEnabled: true
humanApprovalRequired: true
mode: operator
`

func newWorld(t testing.TB, tweak ...func(*catalogue.Options)) *world {
	t.Helper()
	agents := t.TempDir()
	if err := os.WriteFile(filepath.Join(agents, "worker.yaml"), []byte(declaration), 0o600); err != nil {
		t.Fatal(err)
	}
	set, problems := agent.Load(agents)
	w := &world{t: t, dir: gatewaytest.DataDir(t, t.TempDir())}
	var ok bool
	if w.worker, ok = set.Get("worker"); !ok {
		t.Fatalf("declaration: %+v", problems)
	}
	w.o = catalogue.Options{
		Settings: catalogue.Settings{Classify: classify, Labels: []flow.Label{"internal", "pii", "secret"}, Unlisted: catalogue.Unlisted},
		Store:    w, Launch: func(server string) string { return w.launch[server] },
		Schema: func(json.RawMessage) (func([]byte) error, error) { return func([]byte) error { return nil }, nil },
		Now:    func() time.Time { return time.Now().UTC() }, Log: slog.New(slog.DiscardHandler),
		Void: func(_ context.Context, operation string) { w.voided = append(w.voided, operation) }, Changed: func() {},
	}
	for _, f := range tweak {
		f(&w.o)
	}
	w.start()
	for id := range classes {
		server, tool, _ := strings.Cut(id, ".")
		w.offer(server, definition(server, tool, "A tool."))
	}
	t.Cleanup(func() { w.end() })
	return w
}

func (w *world) start() {
	w.t.Helper()
	db, err := store.Open(w.dir, store.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.db = db
	if w.c, err = catalogue.New(w.t.Context(), w.o); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) end() {
	w.c.Close()
	if err := w.db.Close(); err != nil {
		w.t.Errorf("closing the store: %v", err)
	}
}

func definition(server, name, description string) call.Definition {
	return gatewaytest.Tool(server, name, description)
}

func (w *world) offer(server string, defs ...call.Definition) {
	w.t.Helper()
	if err := w.c.UpdateDefinitions(w.t.Context(), server, defs); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) tool(id string) catalogue.Tool {
	w.t.Helper()
	for _, t := range w.c.Tools() {
		if t.Operation == id {
			return t
		}
	}
	w.t.Fatalf("there is no tool %s", id)
	return catalogue.Tool{}
}

// acceptAll accepts what servers say of their tools, as a person does who has read it.
func (w *world) acceptAll() {
	w.t.Helper()
	var all []catalogue.Acceptance
	for _, t := range w.c.Tools() {
		switch {
		case t.PendingHash != "":
			all = append(all, catalogue.Acceptance{Operation: t.Operation, Hash: t.PendingHash})
		case t.Unread:
			all = append(all, catalogue.Acceptance{Operation: t.Operation, Hash: t.Hash})
		}
	}
	errs, err := w.c.AcceptTools(w.t.Context(), all, "person:ann")
	if err = errors.Join(append(errs, err)...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) entries() []audit.Entry {
	w.t.Helper()
	r, err := store.OpenReadOnly(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Close()
	all, _, err := r.Entries(w.t.Context(), audit.Filter{Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}
