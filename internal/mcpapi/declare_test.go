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
