package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
)

// elsewhere are the codes that no call is refused with here, and who tests them.
var elsewhere = map[fault.Code]string{
	fault.AgentUnapproved: "no declaration waits for approval yet", fault.SessionExpired: "a budget ends sessions", fault.BreakerOpen: "breakers_test.go", fault.AgentDegraded: "breakers_test.go", fault.ThreatInjection: "screening_test.go",
	fault.FallbackFailed: "no fallback yet", fault.OutputInvalid: "no runs yet", fault.CitationUndeclared: "no runs yet", fault.ModelUnpinned: "no models yet", fault.ModelUndeclared: "no models yet",
	fault.ModelHostedTool: "no models yet", fault.SandboxUnavailable: "internal/comm", fault.PathBlocked: "internal/comm", fault.RoleMissing: "people's acts", fault.Conflict: "people's acts",
	fault.ConfigurationInvalid: "the start", fault.CredentialMissing: "the doors: nobody is there whom an entry could name", fault.ApprovalExpired: "a declaration that expired: declare_test.go",
	fault.ConfirmationRequired: "people's acts", fault.StoreUnavailable: "a store that fails can't record it", fault.LimitQuota: "bounds_test.go", fault.PlanMismatch: "offplan_test.go",
	fault.ContentSynthetic: "people's acts",
}

// Every way in which a call is refused, with what the agent is told and what the entry says: stage, code, and the rule in its words.
func TestEveryRefusalIsOnRecordWithItsCause(t *testing.T) {
	type want struct {
		told       fault.Code
		stage      string
		code       fault.Code
		reason     string // part of it
		operation  string
		because    string // part of the rules on record; "" none is looked for
		wasOutcome bool
	}
	world := func(t *testing.T, tweak ...func(*gateway.Options)) *commWorld {
		w := newCommWorld(t, append([]func(*gateway.Options){func(o *gateway.Options) {
			o.Limits.MediumDelay, o.Limits.CallsPerMinute = delay, 0
		}}, tweak...)...)
		return w
	}
	do := func(tool, arguments string) func(*commWorld, identity.Principal) gateway.Answer {
		return func(w *commWorld, p identity.Principal) gateway.Answer { return w.do(p, tool, arguments, "") }
	}
	method := func(method call.Method, name string) func(*commWorld, identity.Principal) gateway.Answer {
		return func(w *commWorld, p identity.Principal) gateway.Answer {
			return w.g.Call(w.t.Context(), gateway.Request{Principal: p, Method: method, Tool: name, Door: "mcp"})
		}
	}
	answering := func(f func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error)) func(*commWorld, identity.Principal) gateway.Answer {
		return func(w *commWorld, p identity.Principal) gateway.Answer {
			w.up.mu.Lock()
			w.up.answers["mail.search_email"] = f
			w.up.mu.Unlock()
			return w.do(p, "search_email", `{}`, "")
		}
	}
	covered := map[fault.Code]bool{}
	for name, c := range map[string]struct {
		tweak func(*gateway.Options)
		do    func(*commWorld, identity.Principal) gateway.Answer
		want
	}{
		"a tool that is none": {nil, do("nope", `{}`), want{told: fault.ToolUnknown, stage: "resolve", code: fault.ToolUnknown, reason: "nope", operation: "nope"}},
		"a tool that no entry names": {nil, func(w *commWorld, p identity.Principal) gateway.Answer {
			w.offer("shy", definition("shy", "look", "New."))
			return w.do(p, "shy_look", `{}`, "")
		}, want{told: fault.ToolUnknown, stage: "permit", code: fault.PermissionDenied, reason: "No entry under operations names shy.look, and unlisted_operations is deny", operation: "shy.look"}},
		"a resource of a server that no entry names": {nil, func(w *commWorld, p identity.Principal) gateway.Answer {
			w.offer("shy", call.Definition{Server: "shy", Name: "note://1", Kind: call.Resource, JSON: []byte(`{"name":"n","uri":"note://1"}`)})
			return method("resources/read", "note://1")(w, p)
		}, want{told: fault.ToolUnknown, stage: "permit", code: fault.PermissionDenied, reason: "names shy.read_resource", operation: "shy.read_resource"}},
		"a resource by a template of such a server": {nil, func(w *commWorld, p identity.Principal) gateway.Answer {
			w.offer("shy", call.Definition{Server: "shy", Name: "note://{id}", Kind: call.Resource, JSON: []byte(`{"name":"n","uriTemplate":"note://{id}"}`)})
			return method("resources/read", "note://17")(w, p)
		}, want{told: fault.ToolUnknown, stage: "permit", code: fault.PermissionDenied, reason: "names shy.read_resource", operation: "shy.read_resource"}},
		"a prompt of such a server": {nil, func(w *commWorld, p identity.Principal) gateway.Answer {
			w.offer("shy", call.Definition{Server: "shy", Name: "greet", Kind: call.Prompt, JSON: []byte(`{"name":"greet"}`)})
			return method("prompts/get", "shy_greet")(w, p)
		}, want{told: fault.ToolUnknown, stage: "permit", code: fault.PermissionDenied, reason: "names shy.get_prompt", operation: "shy.get_prompt"}},
		"a tool that can't be offered": {nil, func(w *commWorld, p identity.Principal) gateway.Answer {
			d := definition("mail", "search_email", "A tool.")
			d.Fault = "inputSchema: too deep"
			w.offer("mail", d)
			return w.do(p, "search_email", `{}`, "")
		}, want{told: fault.ToolUnknown, stage: "standing", code: fault.ToolUnknown, reason: "mail.search_email can't be offered: inputSchema: too deep", operation: "mail.search_email"}},
		"a tool that is gone": {nil, func(w *commWorld, p identity.Principal) gateway.Answer {
			w.offer("mail")
			return w.do(p, "search_email", `{}`, "")
		}, want{told: fault.ToolUnknown, stage: "standing", code: fault.ToolUnknown, reason: "no longer offers", operation: "mail.search_email"}},
		"a tool that changed": {nil, func(w *commWorld, p identity.Principal) gateway.Answer {
			w.offer("mail", definition("mail", "search_email", "Another."))
			return w.do(p, "search_email", `{}`, "")
		}, want{told: fault.ToolQuarantined, stage: "standing", code: fault.ToolQuarantined, operation: "mail.search_email"}},
		"a tool that changed, which the agent may not call": {nil, func(w *commWorld, p identity.Principal) gateway.Answer {
			w.offer("bank", definition("bank", "transfer", "Another."))
			return w.do(p, "transfer", `{}`, "")
		}, want{told: fault.PermissionDenied, stage: "permit", code: fault.PermissionDenied, reason: `The declaration of the agent "worker" does not permit bank.transfer`, operation: "bank.transfer"}},
		"a tool that the agent may not call": {nil, do("transfer", `{}`), want{told: fault.PermissionDenied, stage: "permit", code: fault.PermissionDenied, reason: "does not permit bank.transfer", operation: "bank.transfer"}},
		"arguments that can't be read":       {nil, do("search_email", `{"a":1,"A":2}`), want{told: fault.RequestMalformed, stage: "resolve", code: fault.RequestMalformed}},
		"another session": {nil, func(w *commWorld, p identity.Principal) gateway.Answer {
			other := w.open("worker", "erin", widgets)
			return w.g.Call(w.t.Context(), gateway.Request{Principal: p, Session: other.ID, Method: "tools/call", Tool: "search_email", Door: "http"})
		}, want{told: fault.NotFound, stage: "resolve", code: fault.PermissionDenied, reason: "The credential is for the session sess_"}},
		"another host's session": {nil, func(w *commWorld, p identity.Principal) gateway.Answer {
			return w.g.Call(w.t.Context(), gateway.Request{Principal: identity.Principal{Kind: identity.Host, ID: "h2"}, Session: p.ID, Method: "tools/call", Tool: "search_email", Door: "http"})
		}, want{told: fault.NotFound, stage: "resolve", code: fault.PermissionDenied, reason: "was opened by host:ci, and host:h2 asked for it"}},
		"a session that is none": {nil, func(w *commWorld, p identity.Principal) gateway.Answer {
			return w.g.Call(w.t.Context(), gateway.Request{Principal: identity.Principal{Kind: identity.Host, ID: "h2"}, Session: "sess_none", Method: "tools/call", Tool: "search_email", Door: "http"})
		}, want{told: fault.NotFound, stage: "resolve", code: fault.NotFound}},
		"a person": {nil, func(w *commWorld, _ identity.Principal) gateway.Answer {
			return w.g.Call(w.t.Context(), gateway.Request{Principal: identity.Principal{Kind: identity.Person, ID: "alice"}, Method: "tools/call", Tool: "search_email", Door: "mcp"})
		}, want{told: fault.CredentialWrongKind, stage: "resolve", code: fault.CredentialWrongKind}},
		"an agent without a declaration": {nil, func(w *commWorld, _ identity.Principal) gateway.Answer { return w.as(as("stranger"), "search_email") },
			want{told: fault.AgentUndeclared, stage: "resolve", code: fault.AgentUndeclared, reason: "stranger"}},
		"a closed session": {nil, func(w *commWorld, p identity.Principal) gateway.Answer {
			if _, err := w.g.CloseSession(w.t.Context(), p.ID, "person:alice", ""); err != nil {
				w.t.Fatal(err)
			}
			return w.do(p, "search_email", `{}`, "")
		}, want{told: fault.SessionClosed, stage: "standing", code: fault.SessionClosed}},
		"the switch": {nil, func(w *commWorld, p identity.Principal) gateway.Answer {
			w.g.Standing().Disable("", "person:alice", "stop")
			return w.do(p, "search_email", `{}`, "")
		}, want{told: fault.KillSwitch, stage: "kill", code: fault.KillSwitch}},
		"an agent put aside": {nil, func(w *commWorld, p identity.Principal) gateway.Answer {
			w.quarantine("worker")
			return w.do(p, "search_email", `{}`, "")
		}, want{told: fault.AgentQuarantined, stage: "standing", code: fault.AgentQuarantined, reason: "worker"}},
		"planning": {nil, func(w *commWorld, _ identity.Principal) gateway.Answer {
			return w.do(w.open("planner", "erin", widgets), "web_search", `{}`, "")
		}, want{told: fault.PhaseBlocked, stage: "phase", code: fault.PhaseBlocked, reason: "planning"}},
		"no declaration":      {nil, do("comm_get", `{"url":"https://example.com"}`), want{told: fault.DeclarationMissing, stage: "declare", code: fault.DeclarationMissing}},
		"a bad declaration":   {nil, do("comm_get", `{"url":"https://example.com","justification":{}}`), want{told: fault.DeclarationInvalid, stage: "declare", code: fault.DeclarationInvalid, because: "justification"}},
		"other arguments":     {nil, otherArguments, want{told: fault.ApprovalMismatch, stage: "declare", code: fault.ApprovalMismatch}},
		"a forbidden address": {nil, do("comm_get", `{"url":"https://forbidden.example",`+because+`}`), want{told: fault.EgressBlocked, stage: "declare", code: fault.EgressBlocked}},
		"too many calls": {func(o *gateway.Options) { o.Limits.CallsPerMinute = 1 }, func(w *commWorld, p identity.Principal) gateway.Answer {
			w.mustPermit(w.do(p, "think", `{}`, ""))
			return w.do(p, "think", `{}`, "")
		}, want{told: fault.LimitRate, stage: "limit", code: fault.LimitRate, reason: "At most 1 calls"}},
		"no time left": {func(o *gateway.Options) { o.Limits.Budget = time.Nanosecond }, func(w *commWorld, p identity.Principal) gateway.Answer {
			w.do(p, "think", `{}`, "")
			return w.do(p, "think", `{}`, "")
		}, want{told: fault.LimitBudget, stage: "standing", code: fault.LimitBudget}},
		"a label": {nil, func(w *commWorld, p identity.Principal) gateway.Answer {
			w.mustPermit(w.do(p, "search_email", `{}`, ""))
			return w.do(p, "web_search", `{}`, "")
		}, want{told: fault.FlowContaminated, stage: "flow", code: fault.FlowContaminated, because: `"label":"internal","operation":"mail.search_email"`}},
		"a person's answer": {nil, do("comm_send", `{"url":"https://example.com",`+because+`}`), want{told: fault.ApprovalRequired, stage: "risk", code: fault.ApprovalRequired, because: "risk: comm_send is of risk HIGH"}},
		"a no": {nil, func(w *commWorld, p identity.Principal) gateway.Answer {
			id := w.mustAsk(w.do(p, "comm_send", `{"url":"https://example.com",`+because+`}`, ""))
			w.mustRespond("bob", id, approval.Reject, "not today")
			return w.do(p, "comm_send", `{"url":"https://example.com",`+because+`}`, "")
		}, want{told: fault.ApprovalRejected, stage: "approve", code: fault.ApprovalRejected, reason: "not today"}},
		"untraced arguments": {func(o *gateway.Options) {
			inner := o.Classify
			o.Classify = func(server, tool string) catalogue.Classification {
				c := inner(server, tool)
				if tool == "post" {
					c.Level, c.Flow.BlockedBy = 2, &[]flow.Label{}
				}
				return c
			}
		}, func(w *commWorld, p identity.Principal) gateway.Answer {
			w.mustPermit(w.do(p, "web_search", `{}`, ""))
			return w.do(p, "slack_post", `{"text":"x"}`, "")
		}, want{told: fault.ApprovalRequired, stage: "flow", code: fault.ApprovalRequired, because: `"code":"flow.untrusted_argument","detail":"flow: text is not confirmed`}},
		"a server that fails": {nil, answering(func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
			return nil, fault.New(fault.UpstreamFailed, "")
		}), want{told: fault.UpstreamFailed, stage: "act", code: fault.UpstreamFailed, wasOutcome: true}},
		"a server that is slow": {nil, answering(func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
			return nil, context.DeadlineExceeded
		}), want{told: fault.TimeExceeded, stage: "act", code: fault.TimeExceeded, wasOutcome: true}},
		"an answer too large": {nil, answering(func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
			return nil, fault.New(fault.ResultTooLarge, "")
		}), want{told: fault.ResultTooLarge, stage: "act", code: fault.ResultTooLarge, wasOutcome: true}},
		"no object": {nil, answering(func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
			return json.RawMessage(`[]`), nil
		}), want{told: fault.ResultInvalid, stage: "inspect", code: fault.ResultInvalid, reason: "not an object", wasOutcome: true}},
		"a stage that panics": {func(o *gateway.Options) {
			o.Identities = func(string) []string { panic("x") }
		}, do("slack_post", `{}`), want{told: fault.Internal, code: fault.Internal}},
		"a log that fails": {nil, func(w *commWorld, p identity.Principal) gateway.Answer {
			w.store.set(func(b *brittle) { b.intent = errors.New("disk full") })
			a := w.do(p, "think", `{}`, "")
			w.store.set(func(b *brittle) { b.intent = nil })
			return a
		}, want{told: fault.AuditUnavailable, stage: "intent", code: fault.AuditUnavailable}},
	} {
		covered[c.told], covered[c.code] = true, true
		if strings.Contains(c.because, string(fault.FlowUntrusted)) { // asks rest on it
			covered[fault.FlowUntrusted] = true
		}
		t.Run(name, func(t *testing.T) {
			var w *commWorld
			if c.tweak != nil {
				w = world(t, c.tweak)
			} else {
				w = world(t)
			}
			a := c.do(w, w.open("worker", "erin", widgets))
			if a.Verdict.Decision == fault.Permit || a.Verdict.Code != c.told {
				t.Fatalf("told %+v", a.Verdict)
			}
			var e audit.Entry
			for end := time.Now().Add(20 * time.Second); ; { // some are written behind the answer
				es := w.entriesOf(a.CallID)
				if i := slices.IndexFunc(es, func(e audit.Entry) bool {
					return e.Kind == audit.Outcome && c.wasOutcome || e.Kind == audit.Decision && e.Action != "approval.ask" && !c.wasOutcome
				}); i >= 0 {
					e = es[i]
					break
				}
				if time.Now().After(end) {
					t.Fatalf("not on record: %+v", es)
				}
				time.Sleep(time.Millisecond)
			}
			if e.Stage != c.stage || e.Code != string(c.code) || !strings.Contains(e.Reason, c.reason) || !strings.Contains(string(e.Detail), c.because) || c.operation != "" && e.Operation != c.operation {
				t.Errorf("on record: %s: %s %s %q %s", e.Operation, e.Stage, e.Code, e.Reason, e.Detail)
			}
			if e.Reason == "" && c.code != fault.KillSwitch || c.code != c.told && !strings.Contains(string(e.Detail), `"told":{"stage":"resolve","code":"`+string(c.told)) {
				t.Errorf("on record: %q %s", e.Reason, e.Detail)
			}
		})
	}
	for _, code := range fault.Codes() {
		if _, other := elsewhere[code]; other == covered[code] {
			t.Errorf("%s: covered %v, said to be elsewhere %v", code, covered[code], other)
		}
	}
}

// otherArguments calls with a declaration of another call.
func otherArguments(w *commWorld, p identity.Principal) gateway.Answer {
	d := w.mustDeclare(p, "comm.get", `{"url":"https://example.com/a"}`, fault.Permit)
	return w.do(p, "comm_get", `{"url":"https://example.com/b"}`, d.DeclarationID)
}

// Plans that a rule does not approve say which stage, code and step kept it from that.
func TestPlanRefusalsAreOnRecord(t *testing.T) {
	w := newPlanWorld(t, func(o *gateway.Options) {
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if tool == "odd" {
				c.Listed, c.Flow.Sensitivity = true, "odd"
			}
			return c
		}
	})
	w.offer("odd", definition("odd", "odd", "Odd."))
	p := w.open("worker", "erin", chores)
	for steps, want := range map[string]audit.Entry{
		`[{"tool":"nope","justification":"to look at the widgets"}]`:                                                                {Decision: "deny", Stage: "resolve", Code: "tool.unknown", Reason: "step 0: There is no tool"},
		`[{"tool":"odd_odd","justification":"to look at the widgets"}]`:                                                             {Decision: "deny", Stage: "standing", Code: "tool.unknown", Reason: "step 0: odd.odd can't be offered: operation"},
		`[{"tool":"transfer","justification":"to pay for the widgets"}]`:                                                            {Decision: "deny", Stage: "permit", Code: "permission.denied", Reason: "step 0: The declaration"},
		`[{"tool":"mail_crm","justification":"to know the widgets"},{"tool":"slack_sink","justification":"to tell about widgets"}]`: {Decision: "deny", Stage: "flow", Code: "flow.contaminated", Reason: "step 1:"},
		`[{"tool":"shy_look","justification":"to look at the widgets"}]`:                                                            {Decision: "ask", Stage: "permit", Code: "approval.required", Reason: "step 0: No entry of the configuration names shy.look"},
	} {
		w.submit(p, steps)
		es := w.entries()
		e := es[len(es)-1]
		if e.Action != "plan.submit" || e.Decision != want.Decision || e.Stage != want.Stage || e.Code != want.Code || !strings.HasPrefix(e.Reason, want.Reason) {
			t.Errorf("%s: %s %s %s %s %q", steps, e.Action, e.Decision, e.Stage, e.Code, e.Reason)
		}
	}
}
