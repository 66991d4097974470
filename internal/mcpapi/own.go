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
	definition json.RawMessage
	arguments  bool // takes some
	run        func(g Gateway, ctx context.Context, p identity.Principal, session string, body json.RawMessage) (any, error)
}

// ownTools shadow an upstream's tool of the same name.
var ownTools = map[string]ownTool{
	"sallyport_status": {
		definition: define("sallyport_status", "Session status",
			"Shows the governed session that you work in: its phase (planning or execution), the labels it holds and which call brought each, the plan, what waits for a person, and the budget left. Call it when a refusal surprises you.",
			`{"type":"object","properties":{},"additionalProperties":false}`, true),
		run: func(g Gateway, ctx context.Context, p identity.Principal, session string, _ json.RawMessage) (any, error) {
			return g.Status(ctx, p, session)
		},
	},
	"sallyport_manifest": {
		definition: define("sallyport_manifest", "Planning manifest",
			"Lists your tools with what calling each of them will block later, and the order that is safe. Read it before you plan: a tool that brings in internal data can close the tools that reach outside for the rest of the session.",
			`{"type":"object","properties":{},"additionalProperties":false}`, true),
		run: func(g Gateway, ctx context.Context, p identity.Principal, session string, _ json.RawMessage) (any, error) {
			return g.Manifest(ctx, p, session)
		},
	},
	"sallyport_validate_plan": {
		definition: define("sallyport_validate_plan", "Check a plan",
			"Checks an ordered list of tool calls against the flow rules without running anything. Answers with each step that would be refused where there is one, a safe order of the same calls, and which calls would wait for people.",
			`{"type":"object","properties":{"planned_calls":{"type":"array","minItems":1,"description":"The calls in the order you mean to make them: tool names, or objects.","items":{"anyOf":[{"type":"string","description":"A tool's name."},{"type":"object","properties":{"tool":{"type":"string","description":"The tool's name."},"arguments":{"type":"object"},"from":{"type":"object","description":"Argument -> {step, field} or {step, role}: the earlier step that its value comes from."},"after":{"type":"array","items":{"type":"integer","minimum":0},"description":"0-based indexes of steps whose results this step needs."}},"required":["tool"],"additionalProperties":false}]}}},"required":["planned_calls"],"additionalProperties":false}`, true),
		arguments: true,
		run:       Gateway.ValidatePlan,
	},
	"sallyport_submit_plan": {
		definition: define("sallyport_submit_plan", "Submit the plan",
			"Submits your plan for approval. An approved plan is sealed and opens the execution phase, in which tools that reach outside can be called. Do it before you read anything that you don't trust: later, calls that follow the plan run, and others may have to wait for a person. "+
				"Every step says why it is needed, and is called once. Fix what you know in arguments. What you will only learn from an earlier step goes into from, as {\"to\": {\"step\": 0, \"field\": \"sender\"}}; with each, the step is called once for every record of that step's result. Text that you will write yourself goes into open. A step with none of these may be called with anything, and then counts for little. The answer says what each step confirms.",
			`{"type":"object","properties":{"steps":{"type":"array","minItems":1,"description":"The calls in the order you will make them, counted from 0.","items":{"type":"object","properties":{"tool":{"type":"string","description":"The tool's name."},"arguments":{"type":"object","description":"The arguments that are known now. The call must have exactly these, and those in from and open."},"from":{"type":"object","description":"Argument -> where in one record of an earlier step's result its value will stand.","additionalProperties":{"type":"object","properties":{"step":{"type":"integer","minimum":0,"description":"0-based index of the earlier step."},"field":{"type":"string","description":"The field's path in the record, names joined by points, without list positions."},"role":{"type":"string","description":"In place of field: what the value is, such as destination, url, amount or selector."}},"required":["step"],"additionalProperties":false}},"open":{"type":"array","items":{"type":"string"},"description":"Arguments that you choose when you call, such as the text of a message: nothing that decides where it goes or what it hits."},"each":{"type":"integer","minimum":0,"description":"0-based index of an earlier step: this one is called once for every record of its result, with what from takes out of that record."},"after":{"type":"array","items":{"type":"integer","minimum":0},"description":"0-based indexes of steps whose results this step needs."},"justification":{"type":"string","description":"Why the person's request needs this step."}},"required":["tool","justification"],"additionalProperties":false}}},"required":["steps"],"additionalProperties":false}`, false),
		arguments: true,
		run:       Gateway.SubmitPlan,
	},
	"sallyport_declare": {
		definition: define("sallyport_declare", "Declare an external need",
			"Declares one external need before you meet it: which comm.… operation, with which exact parameters, and why. Use it before a call that a person probably has to approve, or to ask ahead while you still plan. "+
				"It runs nothing. The answer's verdict says permit, ask (a person decides; the approval_id names the question) or deny. Then make the call with the declaration_id alone: it is good for exactly that call, once, until it expires. "+
				"A call that needs nobody's approval can carry the same justification itself, without a declaration.",
			`{"type":"object","properties":{"operation":{"type":"string","description":"The operation, such as comm.fetch for the tool comm_fetch."},"parameters":{"type":"object","description":"Exactly what the tool will be called with, such as url or query, without justification."},"justification":{"type":"object","description":"Why. Be specific: a person may read it, and what says nothing is refused.","properties":{"user_request":{"type":"string","description":"The person's request, in their words."},"missing_knowledge":{"type":"string","description":"What exactly you do not know."},"expected_use":{"type":"string","description":"What you will do with the result: summarize, cite, compare …"}},"required":["user_request","missing_knowledge","expected_use"],"additionalProperties":false},"phase":{"type":"string","enum":["execution"],"description":"The phase in which it will be called."},"session_id":{"type":"string","description":"The id of this session: sallyport_status tells it."}},"required":["operation","parameters","justification","phase","session_id"],"additionalProperties":false}`, false),
		arguments: true,
		run:       Gateway.Declare,
	},
}

func define(name, title, description, schema string, reads bool) json.RawMessage {
	return mcpwire.AppendJSON(nil, map[string]any{
		"name": name, "title": title, "description": description, "inputSchema": json.RawMessage(schema),
		"annotations": map[string]any{"readOnlyHint": reads, "destructiveHint": false, "openWorldHint": false},
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
