package runner

import (
	"context"
	"encoding/json"
	"slices"

	"sallyport.example/guard"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/loop"
	"sallyport.example/internal/run"
)

// Door is the door of the calls that the gateway makes for a run of kind model.
const Door = "run"

// think lets the declaration's model work on the task, in the run's session, and returns its answer.
func (c *carried) think(ctx context.Context) ([]byte, error) {
	g := c.r.o.Gateway
	p := identity.Principal{Kind: identity.Session, ID: c.run.Session, Agent: c.decl.AgentID}
	hold, err := c.r.o.Memory.Take(ctx, c.decl.AgentID, int64(len(c.run.Input)))
	if err != nil {
		return nil, err
	}
	defer hold.Release()
	mine, err := g.Models(ctx, p)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(mine, func(op *catalogue.Operation) bool { return op.Model.ID == c.decl.Run.Model })
	if i < 0 {
		return nil, fault.New(fault.ModelUndeclared, "The configuration has no model %s.", c.decl.Run.Model).Try("An operator can add it to models in sallyport.yaml.")
	}
	listed, err := g.Listing(ctx, p)
	if err != nil {
		return nil, err
	}
	definitions := make([]json.RawMessage, len(listed))
	for i, t := range listed {
		definitions[i] = t.Definition
	}
	g.Gave(ctx, p, definitions)
	task, err := c.prompt()
	if err != nil {
		return nil, err
	}
	o := loop.Options{
		Model: mine[i].Model.ID, Provider: mine[i].Model.Provider, MaxTokens: c.decl.MaxTokens, Now: c.r.o.Clock,
		Task: task,
		Call: func(ctx context.Context, method call.Method, tool string, arguments json.RawMessage) (json.RawMessage, fault.Verdict) {
			a := g.Call(ctx, gateway.Request{Principal: p, Method: method, Tool: tool, Arguments: arguments, Door: Door, Exchange: call.Exchange{Room: hold}})
			if a.RPCError != nil { // the server's own word
				return nil, fault.Refuse("act", fault.UpstreamFailed, "The server answered with an error.")
			}
			return a.Result, a.Verdict
		},
	}
	for _, t := range listed {
		description, _ := call.GetText(t.Definition, "description")
		schema, ok := call.Get(t.Definition, "inputSchema")
		if !ok {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		o.Tools = append(o.Tools, loop.Tool{Name: t.Name, Description: description, Schema: schema})
	}
	o.System = loop.System(c.decl)
	return loop.Run(ctx, o)
}

// prompt is what the model is to work on. What a host sent is data but for the person's request, and stands in a fence.
func (c *carried) prompt() (string, error) {
	const words = "Work on this input and answer as you were told:\n"
	if !c.data {
		return words + string(c.run.Input), nil
	}
	fenced, err := guard.Wrap(string(c.run.Input), "run.input")
	if err != nil {
		return "", fault.Wrap(err, fault.Internal, "The input can't be put into a fence.")
	}
	return run.Words(c.run.Input, false) + "\n\n" + words + fenced.ForModel(), nil
}
