package mcpapi

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/mcpwire"
)

// TestDeclare: a declaration is answered as JSON whatever its verdict; one that can't be taken is a refused result that a model can
// correct from, field by field.
func TestDeclare(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		r := newRig(t)
		cs := r.connect(sessionToken, revision, nil)
		declare := func(args string) *mcp.CallToolResult {
			t.Helper()
			res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "sallyport_declare", Arguments: json.RawMessage(args)})
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		body := func(operation string) string {
			return `{"operation":"` + operation + `","parameters":{"url":"https://docs.example/"},"justification":{"user_request":"a","missing_knowledge":"b","expected_use":"c"},"phase":"execution","session_id":"sess_9"}`
		}
		for operation, want := range map[string][3]string{
			"comm.fetch": {"approved", "permit", ""}, "comm.exec": {"pending", "ask", "appr_1"}, "comm.other": {"rejected", "deny", ""},
		} {
			res := declare(body(operation))
			s, _ := res.StructuredContent.(map[string]any)
			verdict, _ := s["verdict"].(map[string]any)
			approval, _ := s["approval_id"].(string)
			if res.IsError || s["declaration_id"] != "decl_1" || s["state"] != want[0] || verdict["decision"] != want[1] || approval != want[2] {
				t.Errorf("%s: %+v", operation, s)
			}
		}
		// What can only be one thing may be left out, and what is wrong is not put right.
		short := `{"operation":"comm.fetch","parameters":{"url":"https://docs.example/"},"justification":{"user_request":"a","missing_knowledge":"b","expected_use":"c"}`
		if res := declare(short + ` }`); res.IsError {
			t.Errorf("%+v", res.Content[0])
		}
		if res := declare(short + `,"session_id":7}`); !res.IsError || !strings.Contains(res.Content[0].(*mcp.TextContent).Text, "- session_id: must be a string") {
			t.Errorf("%+v", res.Content[0])
		}
		refused := r.g.refused.Load()
		res := declare(`{"operation":"comm.fetch","Parameters":{},"justification":{"user_request":7},"phase":"execution"}`)
		text := res.Content[0].(*mcp.TextContent).Text
		if !res.IsError || res.StructuredContent != nil {
			t.Errorf("%+v", res)
		}
		var v fault.Verdict
		if err := json.Unmarshal(mcpwire.AppendJSON(nil, res.Meta["sallyport/verdict"]), &v); err != nil || v.Code != fault.DeclarationInvalid || v.RequestID == "" {
			t.Errorf("verdict %+v %v", v, err)
		}
		for _, line := range []string{
			"- Parameters: is not a field: write parameters", "- parameters: is missing: an object with what the operation is called with",
			"- justification.user_request: must be a string", "- justification.missing_knowledge: is missing", "- justification.expected_use: is missing",
		} {
			if strings.Count(text, "\n"+line+"\n") != 1 {
				t.Errorf("the model is not told %q:\n%s", line, text)
			}
		}
		if len(v.Because) != 5 || r.g.refused.Load() != refused {
			t.Errorf("%d facts, and the refusal is on record %d times beside the gateway's", len(v.Because), r.g.refused.Load()-refused)
		}
	})
}

// The list teaches the tool, and its schema asks for what a declaration needs.
func TestDeclareIsListed(t *testing.T) {
	r := newRig(t)
	r.g.tool("declared", `{"type":"object"}`)
	for _, op := range r.g.ops {
		op.Class.NeedsReasons = op.Name == "declared"
	}
	list, err := r.connect(agentToken, mcpwire.Revision1125, nil).ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		if tool.Name != "sallyport_declare" {
			continue
		}
		var schema struct {
			Properties map[string]struct {
				Type     string
				Required []string
			}
		}
		if err := json.Unmarshal(mcpwire.AppendJSON(nil, tool.InputSchema), &schema); err != nil {
			t.Fatal(err)
		}
		j := schema.Properties["justification"]
		if strings.Join(j.Required, " ") != "user_request missing_knowledge expected_use" || schema.Properties["parameters"].Type != "object" || schema.Properties["operation"].Type != "string" {
			t.Errorf("schema %+v", schema)
		}
		if a := tool.Annotations; a != nil && a.ReadOnlyHint {
			t.Errorf("annotations %+v", a)
		}
		return
	}
	t.Error("it is not listed")
}

// TestExplain reads verdicts as a model does.
func TestExplain(t *testing.T) {
	id := "appr_7"
	ask := fault.Refuse("risk", fault.ApprovalRequired, "comm_exec is of risk HIGH, so a person must decide.", fault.Remedy{Kind: "approve", Text: "A person has been asked. Make the same call again later."})
	ask.Decision, ask.ApprovalID = fault.Ask, &id
	ask.Because = []fault.Because{
		{Code: fault.ApprovalRequired, Detail: "risk: " + ask.Reason}, {Code: fault.ApprovalRequired, Detail: "listed: nobody classified it."},
	}
	traced := fault.Refuse("flow", fault.ApprovalRequired, "to is not confirmed; mail.find (call_1) loaded untrusted data")
	traced.Decision = fault.Ask
	traced.Because = []fault.Because{
		{Label: "untrusted", Operation: "mail.find", CallID: "call_1"}, {Detail: "to is not confirmed"},
		{Operation: "mail.people", CallID: "call_2", Detail: "cc is from record 3 of mail.people, which the person's request names"},
		{Code: fault.FlowUntrusted, Detail: "flow: " + traced.Reason}, {Code: fault.ApprovalRequired, Detail: "risk: it is of risk MEDIUM"},
	}
	inline := fault.Refuse("declare", fault.DeclarationInvalid, "justification.expected_use: is vague: say what for")
	inline.Because = []fault.Because{{Code: fault.DeclarationInvalid, Detail: "justification.expected_use"}}
	carried := fault.Refuse("flow", fault.FlowContaminated, "It carries mail.")
	carried.Because = []fault.Because{{Operation: "mail.read", CallID: "call_3", Detail: "the arguments carry text from mail.read"}}
	for _, c := range []struct {
		name string
		v    fault.Verdict
		want string
	}{
		{"ask", ask, `Not done yet: comm_exec is of risk HIGH, so a person must decide.
Asked by listed: nobody classified it.
The question to the person is appr_7. Nothing runs by itself when it is answered: the very same call has to be made again.
What you can do:
- A person has been asked. Make the same call again later.
The same call can succeed later.`},
		{"traced", traced, `Not done yet: to is not confirmed; mail.find (call_1) loaded untrusted data
The session holds the label untrusted since mail.find was called (call_1).
Detail: cc is from record 3 of mail.people, which the person's request names (mail.people, call_2).
Asked by risk: it is of risk MEDIUM
The same call can succeed later.`},
		{"a field", fault.RefuseErr("declare", fault.New(fault.DeclarationInvalid, "This session has no such declaration.").At("declaration_id").Try("Declare it first.")),
			`Refused: This session has no such declaration. Declare it first.
The field at fault: declaration_id.
Repeating the same call will not help.`},
		{"in the call", inline, `Refused: justification.expected_use: is vague: say what for
Repeating the same call will not help.`},
		{"carried", carried, `Refused: It carries mail.
Detail: the arguments carry text from mail.read (mail.read, call_3).
Repeating the same call will not help.`},
	} {
		c.v.RequestID = "req_1"
		if got, want := explain(c.v), c.want+"\nCode "+string(c.v.Code)+", request req_1."; got != want {
			t.Errorf("%s:\n%s\nnot\n%s", c.name, got, want)
		}
	}
}

// The sources of a call's arguments stand beside its result, which is unchanged.
func TestPermitNamesItsEvidence(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		r := newRig(t)
		for result, kept := range map[string]any{`{"content":[{"type":"text","text":"done"}]}`: nil, `{"_meta":{"k":"v"},"content":[{"type":"text","text":"done"}]}`: "v"} {
			for _, reason := range []string{"", "to is in the person's request"} {
				r.g.on(func(context.Context, gateway.Request) gateway.Answer {
					v := fault.Permitted()
					v.Reason = reason
					return gateway.Answer{CallID: "call_1", Verdict: v, Result: json.RawMessage(result)}
				})
				res, err := r.connect(agentToken, revision, nil).CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"})
				if err != nil {
					t.Fatal(err)
				}
				v, told := res.Meta["sallyport/verdict"].(map[string]any)
				if told != (reason != "") || told && (v["reason"] != reason || v["decision"] != "permit") || res.Meta["k"] != kept || res.Content[0].(*mcp.TextContent).Text != "done" {
					t.Errorf("%s, %q: %+v", result, reason, res)
				}
			}
		}
	})
}

// An ask of the corridor reaches a model with the approval's id, in words and in the verdict.
func TestAskIsAResult(t *testing.T) {
	eras(t, func(t *testing.T, revision string) {
		r := newRig(t)
		id := "appr_7"
		r.g.on(func(context.Context, gateway.Request) gateway.Answer {
			v := fault.Refuse("risk", fault.ApprovalRequired, "A person must decide.")
			v.Decision, v.ApprovalID = fault.Ask, &id
			return gateway.Answer{CallID: "call_1", Verdict: v}
		})
		res, err := r.connect(agentToken, revision, nil).CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"})
		if err != nil {
			t.Fatal(err)
		}
		v, _ := res.Meta["sallyport/verdict"].(map[string]any)
		if !res.IsError || !strings.Contains(res.Content[0].(*mcp.TextContent).Text, id) || v["approval_id"] != id || v["decision"] != "ask" {
			t.Errorf("%+v", res)
		}
	})
}
