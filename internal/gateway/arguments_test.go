package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/schema"
	"sallyport.example/provenance"
)

// drive is a traced world with a server whose tools have real schemas: share has a default for whom it shares with, pay takes three arguments.
func drive(t *testing.T, tweak ...func(*gateway.Options)) *commWorld {
	t.Helper()
	w := newTracedWorld(t, append([]func(*gateway.Options){func(o *gateway.Options) {
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			if server != "slack" || tool != "share" && tool != "pay" {
				return inner(server, tool)
			}
			c := catalogue.Classification{Listed: true, Named: true, ExternalIO: true, Level: 2, Output: provenance.EchoOutput,
				Flow: flow.Spec{Sensitivity: flow.None, Untrusted: true}, Facts: catalogue.Facts{IDKind: "file"}, Roles: map[string]string{"id": "selector", "email": "destination", "note": "content"}}
			if tool == "pay" {
				c.Action, c.RiskFloor, c.Roles = "transfer_money", policy.Critical, map[string]string{"account": "destination", "amount": "amount", "subject": "content"}
			}
			return c
		}
		o.Schema = func(raw json.RawMessage) (func([]byte) error, error) {
			s, err := schema.Compile(raw)
			if err != nil {
				return nil, err
			}
			return s.Validate, nil
		}
	}}, tweak...)...)
	var defs []call.Definition
	for name, input := range map[string]string{
		"share": `{"properties":{"email":{"default":"anyone","type":"string"},"id":{"type":"integer"},"mode":{"default":"write"},"note":{}},"required":["id"],"type":"object"}`,
		"pay":   `{"properties":{"account":{"type":"string"},"amount":{"type":"number"},"subject":{"type":"string"}},"required":["account","amount","subject"],"type":"object"}`,
	} {
		raw := []byte(`{"description":"A tool.","inputSchema":` + input + `,"name":"` + name + `"}`)
		defs = append(defs, call.Definition{Server: "slack", Name: name, Kind: call.Tool, JSON: raw, Hash: call.HashBytes(raw)})
	}
	for id := range tracedClasses {
		if server, tool, _ := strings.Cut(id, "."); server == "slack" {
			defs = append(defs, definition(server, tool, "A tool."))
		}
	}
	w.offer("slack", defs...)
	for _, tool := range []string{"slack.share", "slack.pay"} { // they came after the others
		if err := w.g.Catalogue().AcceptTool(t.Context(), tool, w.g.Catalogue().ByID(tool).Hash, "person:alice"); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// reads opens a session with a request in which an outsider's mail has been read.
func (w *commWorld) reads(request string) identity.Principal {
	w.t.Helper()
	w.says("mail.find", structured(`{"mails":`+inbox+`}`))
	p := w.open("worker", "erin", request)
	w.mustPermit(w.do(p, "mail_find", `{"q":"x"}`, ""))
	return p
}

// waiting are the questions that wait for people.
func (w *commWorld) waiting() []desk.Question {
	w.t.Helper()
	all, err := w.g.Desk().Questions(w.t.Context(), approval.Pending, "", "", 10)
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// The default of a destination is part of the call: judged, shown, bound by the answer, and sent.
func TestTheDefaultOfADestinationIsPartOfTheCall(t *testing.T) {
	w := drive(t)
	const whole = `{"email":"anyone","id":13}`
	p := w.reads("Share file 13")
	q := w.asks(p, "slack_share", `{"id":13}`)
	if string(q.Arguments) != whole {
		t.Errorf("shown: %s", q.Arguments)
	}
	said := false
	for _, r := range q.Reasons {
		said = said || r.Text == `mode is left out. By the tool's definition it is then "write".`
	}
	if !said {
		t.Errorf("the other default is not shown: %+v", q.Reasons)
	}
	for range q.Needed {
		w.mustRespond([]string{"bob", "alice"}[len(w.question(q.ID).Votes)], q.ID, "approve", "")
	}
	w.mustPermit(w.do(p, "slack_share", `{"id":13}`, ""))
	w.up.mu.Lock()
	defer w.up.mu.Unlock()
	if last := w.up.calls[len(w.up.calls)-1]; !strings.Contains(last, whole) {
		t.Errorf("sent: %s", last)
	}
}

// Empty values are no destination, whatever the server makes of them. One that the person named is.
func TestShareWithNobodyIsAskedAbout(t *testing.T) {
	w := drive(t)
	p := w.reads("Share file 13 with ann@books.example")
	for arguments, want := range map[string]fault.Decision{
		`{"id":13}`: fault.Ask, `{"id":13,"email":""}`: fault.Ask, `{"id":13,"email":" "}`: fault.Ask,
		`{"id":13,"email":null}`:                fault.Deny, // no string, by the tool's own schema
		`{"id":13,"email":"ann@books.example"}`: fault.Permit,
	} {
		v := judgedOnly(w, p, "slack_share", arguments)
		if v.Decision != want && !(want == fault.Permit && v.Stage == "risk") { // the agent has not shared before
			t.Errorf("%s: %+v", arguments, v)
		}
		if want == fault.Ask && v.Stage != "flow" {
			t.Errorf("%s: %s", arguments, v.Stage)
		}
	}
}

// Steps of plans, declarations and changed arguments are those of the calls that come later.
func TestDefaultsInPlansDeclarationsAndChanges(t *testing.T) {
	w := drive(t)
	p := w.open("worker", "erin", "Share file 13")
	if a := w.submit(p, `[{"tool":"slack_share","arguments":{"id":13},"open":["note"],"justification":"to share it"}]`); a.State != "approved" {
		t.Fatalf("%+v", a)
	}
	s, err := w.g.SessionFor(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(s.Plan.Steps[0].Arguments); got != `{"email":"anyone","id":13}` {
		t.Errorf("the step is %s", got)
	}
	w.says("mail.find", structured(`{"mails":`+inbox+`}`))
	w.mustPermit(w.do(p, "mail_find", `{"q":"x"}`, ""))
	if v := judgedOnly(w, p, "slack_share", `{"id":13,"note":"hello"}`); v.Stage == "flow" {
		t.Errorf("the planned call: %+v", v)
	}

	p = w.open("worker", "erin", widgets)
	d := w.mustDeclare(p, "slack.share", `{"id":13}`, fault.Permit)
	for _, arguments := range []string{`{}`, `{"id":13}`, `{"email":"anyone","id":13}`} {
		if v := w.g.Call(t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: "slack_share", Arguments: json.RawMessage(arguments), Declaration: d.DeclarationID, Door: "mcp", DryRun: true}).Verdict; v.Code == fault.ApprovalMismatch || v.Code == fault.RequestMalformed {
			t.Errorf("%s is not what was declared: %+v", arguments, v)
		}
	}

	p = w.reads("Share file 13")
	q := w.asks(p, "slack_share", `{"id":13,"email":"evil@other.example"}`)
	next, err := w.modify("alice", q.ID, `{"id":13}`, "not to him")
	if err != nil || string(next.Arguments) != `{"email":"anyone","id":13}` {
		t.Errorf("%s, %v", next.Arguments, err)
	}
}

// What the server would refuse is no question for people, by no door that asks them.
func TestMalformedCallsReachNobody(t *testing.T) {
	w := drive(t)
	for name, p := range map[string]identity.Principal{"untrusted": w.reads("Pay it"), "clean": w.open("worker", "erin", "Pay it")} {
		before := len(w.waiting())
		for _, arguments := range []string{`{"payee":"x"}`, `{}`, `{"account":"x","amount":"1","subject":"s"}`, `{"account":"x","amount":50000}`} {
			v := w.mustRefuse(w.do(p, "slack_pay", arguments, ""), fault.RequestMalformed).Verdict
			if !strings.Contains(v.Reason, "do not match the input schema of slack_pay: ") || !strings.Contains(v.Reason, "Correct them") {
				t.Errorf("%s, %s: %s", name, arguments, v.Reason)
			}
			if _, err := w.declare(p, "slack.pay", arguments); !fault.Is(err, fault.DeclarationInvalid) {
				t.Errorf("%s: declared %s: %v", name, arguments, err)
			}
		}
		if name == "clean" {
			if a := w.submit(p, `[{"tool":"slack_pay","arguments":{"payee":"x"},"justification":"to pay it"}]`); a.State != "rejected" {
				t.Errorf("plan: %+v", a)
			}
		}
		if n := len(w.waiting()); n != before {
			t.Errorf("%s: %d questions", name, n-before)
		}
		w.mustAsk(w.do(p, "slack_pay", `{"account":"x","amount":50000,"subject":"s"}`, ""))
	}
	// About what runs without a person, the server says itself what is wrong.
	p := w.open("worker", "erin", "Tell them")
	w.mustPermit(w.do(p, "slack_share", `{"email":[],"id":"13"}`, ""))
}

// Who may not call a tool learns nothing of its schema.
func TestTheSchemaIsForThoseWhoMayCall(t *testing.T) {
	w := drive(t)
	raw := []byte(`{"description":"A tool.","inputSchema":{"required":["amount"],"type":"object"},"name":"transfer"}`)
	d := call.Definition{Server: "bank", Name: "transfer", Kind: call.Tool, JSON: raw, Hash: call.HashBytes(raw)}
	w.offer("bank", d)
	if err := w.g.Catalogue().AcceptTool(t.Context(), "bank.transfer", d.Hash, "person:alice"); err != nil {
		t.Fatal(err)
	}
	w.mustRefuse(w.do(w.reads("Pay it"), "transfer", `{"payee":"x"}`, ""), fault.PermissionDenied)
}
