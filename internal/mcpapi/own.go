package mcpapi

import (
	"bytes"
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
	recommends bool            // Options.Recommend does its work
	declares   bool            // listed only where there are tools that a need is declared for
	run        func(g Gateway, ctx context.Context, p identity.Principal, session string, body json.RawMessage) (any, error)
}

// ownTools shadow an upstream's tool of the same name. Their definitions are part of every conversation, so they are short: what is rarely needed
// is said in the answers and refusals, and in docs/external.md and docs/flow.md. TestConversationCost in test/e2e holds their length.
var ownTools = map[string]ownTool{
	"sallyport_status": {
		definition: define("sallyport_status",
			"Your session's phase, labels, plan, open questions and budget: for when a refusal surprises you. manifest: what each tool blocks, and a safe order; read it before you plan.",
			`{"type":"object","properties":{"manifest":{"type":"boolean"}}}`, true),
		arguments: true,
		run:       status,
	},
	"sallyport_manifest": {run: func(g Gateway, ctx context.Context, p identity.Principal, session string, _ json.RawMessage) (any, error) {
		return g.Manifest(ctx, p, session)
	}},
	"sallyport_submit_plan": {
		definition: define("sallyport_submit_plan",
			"Submit a plan before you read what you don't trust: once approved, calls that follow it run. "+
				"A step, called once, can have arguments (known values), from ({\"to\":{\"step\":0,\"field\":\"sender\"}}: out of a result), open (names of arguments you will write), each (N: once per record of step N). "+
				"check_only: what would be refused or asked, and a safe order.",
			`{"type":"object","properties":{"steps":{"type":"array","items":{"type":"object","required":["tool","justification"]}},"check_only":{"type":"boolean"}}}`, false),
		arguments: true,
		run:       submitPlan,
	},
	"sallyport_validate_plan": {arguments: true, run: Gateway.ValidatePlan},
	recommendTool:             {arguments: true, recommends: true},
	"sallyport_declare": {
		definition: define("sallyport_declare",
			"Ask ahead about one call (operation: comm.fetch) that a person may have to approve. Then call the tool with declaration_id alone.",
			`{"type":"object","properties":{"operation":{"type":"string"},"parameters":{"type":"object"},"justification":{"type":"object","required":["user_request","missing_knowledge","expected_use"]}}}`, false),
		arguments: true,
		declares:  true,
		run:       declareNeed,
	},
}

// recommendTool is listed to agents whose outputs recommend actions, each with its own schema.
const recommendTool = "sallyport_recommend"

func recommendDefinition(schema json.RawMessage) json.RawMessage {
	if kind, _ := call.GetText(schema, "type"); kind != "object" { // MCP demands it of arguments
		schema = json.RawMessage(`{"type":"object"}`)
	}
	return define(recommendTool, "Recommend an action to people, who decide whether it is carried out. Cite what you read in this session.", string(schema), false)
}

// declareNeed fills in what can only be one thing: the session that the credential stands for, and the phase in which external operations run.
func declareNeed(g Gateway, ctx context.Context, p identity.Principal, session string, body json.RawMessage) (any, error) {
	for name, value := range map[string]string{"session_id": session, "phase": "execution"} {
		if _, ok := call.Get(body, name); !ok && call.IsObject(body) {
			body = withMember(body, name, mcpwire.AppendJSON(nil, value))
		}
	}
	return g.Declare(ctx, p, session, body)
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
	asked := json.RawMessage("{}")
	for name, raw := range call.Members(rest) {
		if name == "steps" {
			name = "planned_calls"
		}
		asked = withMember(asked, name, raw)
	}
	return g.ValidatePlan(ctx, p, session, asked)
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
	rest = json.RawMessage("{}")
	for other, raw := range call.Members(object) {
		if other != name {
			rest = withMember(rest, other, raw)
		}
	}
	return set, rest, nil
}

// withMember is a copy of the object with one member more.
func withMember(object json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	object = bytes.TrimSpace(object)
	b := append(json.RawMessage(nil), object[:len(object)-1]...)
	if len(bytes.TrimSpace(b)) > 1 {
		b = append(b, ',')
	}
	b = append(append(b, mcpwire.AppendJSON(nil, name)...), ':')
	return append(append(b, value...), '}')
}

func define(name, description, schema string, reads bool) json.RawMessage {
	tool := map[string]any{"name": name, "description": description, "inputSchema": json.RawMessage(schema)}
	if reads {
		tool["annotations"] = map[string]any{"readOnlyHint": true}
	}
	return mcpwire.AppendJSON(nil, tool)
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
	if t.recommends {
		return f.o.Recommend(ctx, p, s.ID, arguments)
	}
	return t.run(f.g, ctx, p, s.ID, arguments)
}
