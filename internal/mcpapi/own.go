package mcpapi

import (
	"context"
	"encoding/json"
	"errors"

	"sallyport.example/internal/call"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/mcpwire"
	"sallyport.example/internal/web"
)

// ownTool is a tool of the gateway itself. It reads or plans the session that the credential stands for and reaches nothing outside, so it does
// not go through the corridor.
type ownTool struct {
	definition json.RawMessage // nil: another tool of the list does its work, too; it can be called all the same
	arguments  bool            // takes some
	declares   bool            // listed only where there are tools that a need is declared for
	run        func(g Gateway, ctx context.Context, p identity.Principal, session string, body json.RawMessage) (any, error)
}

// ownTools shadow an upstream's tool of the same name. Their definitions are part of every conversation, so they are short: what is rarely needed
// is said in the answers and refusals, and in docs/external.md and docs/flow.md. TestOwnPartIsShort holds their length.
var ownTools = map[string]ownTool{
	"sallyport_status": {
		definition: define("sallyport_status",
			"Where your session stands: phase, labels and the calls that brought them, plan, what waits for a person, budget. Call it when a refusal surprises you. manifest true: what calling each tool blocks later, and a safe order. Read that before you plan.",
			`{"type":"object","properties":{"manifest":{"type":"boolean"}}}`, true),
		arguments: true,
		run:       status,
	},
	"sallyport_manifest": {run: func(g Gateway, ctx context.Context, p identity.Principal, session string, _ json.RawMessage) (any, error) {
		return g.Manifest(ctx, p, session)
	}},
	"sallyport_submit_plan": {
		definition: define("sallyport_submit_plan",
			"Submit your plan before you read what you don't trust. Once approved it is sealed and opens execution: calls that follow it run, others may wait for a person. "+
				"Each step is called once. Known values go into arguments; what you learn from a step, into from: {\"to\":{\"step\":0,\"field\":\"sender\"}}; text you will write, into open. each: N calls it for every record of step N. "+
				"check_only: runs and seals nothing; tells what would be refused or asked, and a safe order.",
			`{"type":"object","properties":{"check_only":{"type":"boolean"},"steps":{"type":"array","items":{"type":"object","properties":{"tool":{"type":"string"},"justification":{"type":"string"},"arguments":{"type":"object"},"from":{"type":"object"},"open":{"type":"array","items":{"type":"string"}},"each":{"type":"integer"},"after":{"type":"array","items":{"type":"integer"}}},"required":["tool","justification"]}}},"required":["steps"]}`, false),
		arguments: true,
		run:       submitPlan,
	},
	"sallyport_validate_plan": {arguments: true, run: Gateway.ValidatePlan},
	"sallyport_declare": {
		definition: define("sallyport_declare",
			"Ask ahead about one call that needs a justification and that a person may have to approve. Runs nothing; the verdict is permit, ask or deny. Then call the tool with declaration_id alone, once.",
			`{"type":"object","properties":{"operation":{"type":"string","description":"comm.fetch for comm_fetch"},"parameters":{"type":"object"},"justification":{"type":"object","required":["user_request","missing_knowledge","expected_use"]},"phase":{"enum":["execution"]},"session_id":{"type":"string"}},"required":["operation","parameters","justification","phase","session_id"]}`, false),
		arguments: true,
		declares:  true,
		run:       Gateway.Declare,
	},
}

// status answers with the manifest, which has the phase and the labels too, where the arguments ask for it.
func status(g Gateway, ctx context.Context, p identity.Principal, session string, body json.RawMessage) (any, error) {
	manifest, rest, err := takeFlag(body, "manifest")
	if err != nil {
		return nil, err
	}
	for name := range call.Members(rest) {
		return nil, fault.New(fault.RequestMalformed, "There is no such argument. The only one is manifest.").At(mcpwire.Clip(name))
	}
	if manifest {
		return g.Manifest(ctx, p, session)
	}
	return g.Status(ctx, p, session)
}

// submitPlan submits a plan, or has it checked and no more.
func submitPlan(g Gateway, ctx context.Context, p identity.Principal, session string, body json.RawMessage) (any, error) {
	check, rest, err := takeFlag(body, "check_only")
	if err != nil {
		return nil, err
	}
	if !check {
		return g.SubmitPlan(ctx, p, session, rest)
	}
	asked := json.RawMessage("{")
	for name, raw := range call.Members(rest) {
		if name == "steps" {
			name = "planned_calls"
		}
		if len(asked) > 1 {
			asked = append(asked, ',')
		}
		asked = append(append(append(asked, mcpwire.AppendJSON(nil, name)...), ':'), raw...)
	}
	return g.ValidatePlan(ctx, p, session, append(asked, '}'))
}

// takeFlag returns the member with the name, which is true or false or absent, and the object without it.
func takeFlag(object json.RawMessage, name string) (set bool, rest json.RawMessage, err error) {
	flag, ok := call.Get(object, name)
	if !ok {
		return false, object, nil
	}
	if set = string(flag) == "true"; !set && string(flag) != "false" {
		return false, nil, fault.New(fault.RequestMalformed, "It must be true or false.").At(name)
	}
	rest = json.RawMessage("{")
	for other, raw := range call.Members(object) {
		if other == name {
			continue
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(append(append(rest, mcpwire.AppendJSON(nil, other)...), ':'), raw...)
	}
	return set, append(rest, '}'), nil
}

// define makes a definition. Hints that say what MCP takes for granted are left out.
func define(name, description, schema string, reads bool) json.RawMessage {
	hints := map[string]any{"readOnlyHint": true}
	if !reads {
		hints = map[string]any{"destructiveHint": false}
	}
	return mcpwire.AppendJSON(nil, map[string]any{
		"name": name, "description": description, "inputSchema": json.RawMessage(schema), "annotations": hints,
	})
}

// callOwn runs one of the gateway's own tools. Every failure is a result that the model can act on.
func (f *Face) callOwn(ctx context.Context, p identity.Principal, name string, t ownTool, arguments json.RawMessage) (json.RawMessage, *rpcError) {
	answer, err := f.runOwn(ctx, p, t, arguments)
	structured := mcpwire.AppendJSON(nil, answer)
	if err == nil && !call.IsObject(structured) {
		err = fault.Wrap(errors.New("its answer is no object"), fault.Internal, "")
	}
	var declared *declare.Invalid
	if errors.As(err, &declared) {
		v := fault.Refuse("declare", fault.DeclarationInvalid, "", fault.Remedy{Kind: "declare", Text: "Correct these fields, all of them, and declare it again."})
		for _, problem := range declared.Problems {
			v.Because = append(v.Because, fault.Because{Code: v.Code, Detail: problem.Field + ": " + problem.Problem})
		}
		v.RequestID = web.RequestID(ctx)
		return refused(v), nil
	}
	if err != nil {
		v, record := fault.RefuseErr("resolve", err), fault.RefuseErr("resolve", fault.ForTheRecord(err))
		v.RequestID, record.RequestID = web.RequestID(ctx), web.RequestID(ctx)
		if e := fault.Of(err); e.Cause != nil {
			f.o.Log.Error("an own tool failed", "request_id", v.RequestID, "principal", p.String(), "error", err)
		}
		f.g.Refused(gateway.Attempt{Principal: p, Door: "mcp", What: name}, record)
		return refused(v), nil
	}
	b := append(json.RawMessage(nil), `{"content":[{"type":"text","text":`...)
	b = mcpwire.AppendJSON(b, string(structured))
	b = append(append(b, `}],"structuredContent":`...), structured...)
	return append(b, '}'), nil
}

func (f *Face) runOwn(ctx context.Context, p identity.Principal, t ownTool, arguments json.RawMessage) (any, error) {
	if !t.arguments {
		for name := range call.Members(arguments) {
			return nil, fault.New(fault.RequestMalformed, "This tool takes no arguments.").At(mcpwire.Clip(name))
		}
	}
	if arguments == nil {
		arguments = json.RawMessage("{}")
	}
	s, err := f.g.SessionFor(ctx, p)
	if err != nil {
		return nil, err
	}
	return t.run(f.g, ctx, p, s.ID, arguments)
}
