package judge

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/call"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/quota"
	"sallyport.example/internal/screen"
	"sallyport.example/internal/session"
	"sallyport.example/provenance"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// rules are those of an operator who wrote no policy of their own.
func rules(t testing.TB) *Rules {
	t.Helper()
	set, err := policy.Load("")
	if err != nil {
		t.Fatal(err)
	}
	return &Rules{Policies: set, Labels: []flow.Label{"internal"}, MediumDelay: 10 * time.Second}
}

// declaration is an agent that may read from mail and write to chat.
func declaration(t testing.TB, read, write string) *agent.Declaration {
	t.Helper()
	d, problems := agent.Parse("worker.yaml", []byte(strings.NewReplacer("READ", read, "WRITE", write).Replace(`agentId: worker
agentName: Test
version: 1.0.0
purpose: tests
capabilities: [testing]
dataSources: {tables: [], apis: [], models: []}
permissions: {read: [READ], write: [WRITE]}
outputSchema: {type: object, properties: {answer: {enum: [a]}}, required: [answer], additionalProperties: false}
outputSchemaVersion: 1.0.0
maxExecutionTime: 30000
maxTokens: 1000
killSwitchEnabled: true
humanApprovalRequired: true
mode: operator
startPhase: execution
sessions: host
`)))
	for _, p := range problems {
		if p.Blocks() {
			t.Fatalf("declaration: %+v", p)
		}
	}
	return &d
}

// fine is a call against which no stage has anything: a write to a chat, by an agent that may, in a clean session.
func fine(t testing.TB) Facts {
	op, err := flow.Resolve(flow.Spec{ID: "chat.post", Name: "chat_post", Sensitivity: flow.External, Effect: flow.Write}, []flow.Label{"internal"})
	if err != nil {
		t.Fatal(err)
	}
	return Facts{
		Rules: rules(t), Time: noon,
		Caller:    Caller{Agent: "worker", Door: "mcp", Declaration: declaration(t, `"mail.*"`, `"chat.*"`), Approved: true, AskFrom: policy.High},
		Session:   Session{Open: true, Phase: session.Execution, Room: Room{CallsPerMinute: 60, RequestsPerMinute: 10}},
		Operation: Operation{ID: "chat.post", Server: "chat", Name: "chat_post", ExternalIO: true, InPhase: true, Level: 2, Flow: op, Profile: &provenance.Profile{Level: 2}},
		Arguments: Arguments{Canonical: []byte(`{"text":"hello"}`), Digest: "d", Writes: true},
		Evidence:  Evidence{Loaded: true},
	}
}

func builtIn(f *Facts) {
	f.Operation.NeedsReasons, f.Operation.Requests = true, true
}

// violations are facts against which one stage has something, by the name of the stage.
var violations = map[string][]struct {
	name     string
	change   func(t testing.TB, f *Facts)
	decision fault.Decision
	code     fault.Code
}{
	"kill": {
		{"switch pulled", func(_ testing.TB, f *Facts) { f.Caller.Stopped = true }, fault.Deny, fault.KillSwitch},
	},
	"standing": {
		{"agent quarantined", func(_ testing.TB, f *Facts) { f.Caller.Quarantined = noon }, fault.Deny, fault.AgentQuarantined},
		{"declaration not approved", func(_ testing.TB, f *Facts) { f.Caller.Approved = false }, fault.Deny, fault.AgentUnapproved},
		{"session closed", func(_ testing.TB, f *Facts) { f.Session.Open = false }, fault.Deny, fault.SessionClosed},
		{"definition changed", func(_ testing.TB, f *Facts) { f.Operation.Quarantined = true }, fault.Deny, fault.ToolQuarantined},
		{"tool gone", func(_ testing.TB, f *Facts) { f.Operation.Gone = true }, fault.Deny, fault.ToolUnknown},
		{"an agent that it depends on is aside", func(_ testing.TB, f *Facts) {
			f.Caller.Degraded, f.Arguments.Writes = &agent.Degraded{By: "other", Since: noon, Why: "it is quarantined"}, true
		}, fault.Deny, fault.AgentDegraded},
		{"budget spent", func(_ testing.TB, f *Facts) { f.Session.BudgetSpent = true }, fault.Deny, fault.LimitBudget},
		{"outcome owed", func(_ testing.TB, f *Facts) { f.Session.OutcomeOwed = true }, fault.Deny, fault.AuditUnavailable},
	},
	"plan": {
		{"not in the plan of a rule", func(_ testing.TB, f *Facts) { f.Session.OpenedByRule = true }, fault.Ask, fault.ApprovalRequired},
	},
	"phase": {
		{"planning", func(_ testing.TB, f *Facts) { f.Session.Phase, f.Operation.InPhase = session.Planning, false }, fault.Deny, fault.PhaseBlocked},
	},
	"declare": {
		{"not declared", func(_ testing.TB, f *Facts) { builtIn(f) }, fault.Deny, fault.DeclarationMissing},
		{"two declarations", func(_ testing.TB, f *Facts) { f.Declaration.Problem = fault.New(fault.DeclarationInvalid, "two") }, fault.Deny, fault.DeclarationInvalid},
		{"empty justification", func(_ testing.TB, f *Facts) {
			builtIn(f)
			f.Declaration.Invalid = []declare.Problem{{Field: "justification", Problem: "empty"}}
		}, fault.Deny, fault.DeclarationInvalid},
		{"rejected by a person", func(_ testing.TB, f *Facts) { f.Declaration.Problem = fault.New(fault.ApprovalRejected, "no") }, fault.Deny, fault.ApprovalRejected},
		{"the store is away", func(_ testing.TB, f *Facts) { f.Declaration.Problem = fault.New(fault.StoreUnavailable, "") }, fault.Deny, fault.StoreUnavailable},
	},
	"permit": {
		{"not permitted", func(t testing.TB, f *Facts) { f.Caller.Declaration = declaration(t, `"mail.*"`, ``) }, fault.Deny, fault.PermissionDenied},
		{"no data source of a run", func(_ testing.TB, f *Facts) { f.Session.OfRun = true }, fault.Deny, fault.PermissionDenied},
		{"stored by another", func(_ testing.TB, f *Facts) {
			stored := f.Operation
			stored.ID, stored.Server = "bank.list", "bank"
			f.Operation.Stored = &stored
		}, fault.Deny, fault.PermissionDenied},
	},
	"parameters": {
		{"forbidden address", func(_ testing.TB, f *Facts) { f.Arguments.Problem = fault.New(fault.EgressBlocked, "no") }, fault.Deny, fault.EgressBlocked},
	},
	"limit": {
		{"a quota is used up", func(_ testing.TB, f *Facts) {
			f.Caller.OverQuota = &quota.Exceeded{Limit: quota.Limit{Resource: quota.APICalls, Window: quota.Hour}}
		}, fault.Deny, fault.LimitQuota},
		{"the use of a quota is not known", func(_ testing.TB, f *Facts) {
			f.Caller.QuotaUnknown = fault.New(fault.StoreUnavailable, "The store is away.")
		}, fault.Deny, fault.StoreUnavailable},
		{"calls too fast", func(_ testing.TB, f *Facts) { f.Caller.Pace = Pace{CallsPerMinute: 6, CallIn: time.Second} }, fault.Deny, fault.LimitRate},
		{"too many calls", func(_ testing.TB, f *Facts) { f.Session.Room.CallIn = time.Second }, fault.Deny, fault.LimitRate},
		{"too many requests", func(_ testing.TB, f *Facts) {
			f.Operation.Requests, f.Session.Room.RequestIn = true, time.Second
		}, fault.Deny, fault.LimitRate},
	},
	"breaker": {
		{"open", func(_ testing.TB, f *Facts) {
			f.Operation.Breaker = &Breaker{Name: "crm", What: "the server crm", Cause: "calls failed", Since: noon, Retry: noon.Add(time.Minute)}
		}, fault.Deny, fault.BreakerOpen},
	},
	"screen": {
		{"words that order an agent about", func(_ testing.TB, f *Facts) {
			f.Rules.Screen, f.Arguments.Screened = ScreenAsk, &screen.Found{Event: "threat.hit", Score: 1, Rule: "override-prior"}
		}, fault.Ask, fault.ApprovalRequired},
		{"the same, where they are denied", func(_ testing.TB, f *Facts) {
			f.Rules.Screen, f.Arguments.Screened = ScreenDeny, &screen.Found{Event: "threat.hit", Score: 1, Rule: "override-prior"}
		}, fault.Deny, fault.ThreatInjection},
		{"the same, where nobody said what is done", func(_ testing.TB, f *Facts) {
			f.Arguments.Screened = &screen.Found{Event: "threat.hit", Score: 1, Rule: "override-prior"}
		}, fault.Deny, fault.ThreatInjection},
	},
	"flow": {
		{"contaminated", func(_ testing.TB, f *Facts) { f.Session.Labels = []flow.Held{{Label: "internal"}} }, fault.Deny, fault.FlowContaminated},
		{"secret", func(_ testing.TB, f *Facts) {
			f.Operation.Flow.BlockedBy, f.Rules.Labels = []flow.Label{"internal", "secret"}, []flow.Label{"internal", "secret"}
			f.Session.Labels = []flow.Held{{Label: "internal"}, {Label: "secret"}}
		}, fault.Deny, fault.FlowContaminated},
		{"a label of the operator's own", func(_ testing.TB, f *Facts) {
			f.Operation.Flow.BlockedBy, f.Rules.Labels = []flow.Label{"salaries"}, []flow.Label{"salaries"}
			f.Session.Labels = []flow.Held{{Label: "salaries"}}
		}, fault.Deny, fault.FlowContaminated},
		{"not confirmed, with a secret", func(_ testing.TB, f *Facts) {
			f.Operation.Flow.BlockedBy, f.Rules.Labels = []flow.Label{"secret"}, []flow.Label{"secret"}
			f.Session.Labels = []flow.Held{{Label: "secret"}}
			f.Evidence.Ruling = &provenance.Ruling{Verdict: provenance.Ask, Reason: "the address comes from a page"}
		}, fault.Ask, fault.ApprovalRequired},
		{"a label nobody knows", func(_ testing.TB, f *Facts) { f.Session.Labels = []flow.Held{{Label: "old"}} }, fault.Deny, fault.FlowContaminated},
		{"not confirmed", func(_ testing.TB, f *Facts) {
			f.Evidence.Ruling = &provenance.Ruling{Verdict: provenance.Ask, Reason: "the address comes from a page"}
		}, fault.Ask, fault.ApprovalRequired},
		{"not traceable", func(_ testing.TB, f *Facts) { f.Evidence.Untraceable = fault.New(fault.StoreUnavailable, "") }, fault.Deny, fault.StoreUnavailable},
		{"an answer that can't be traced", func(_ testing.TB, f *Facts) {
			f.Arguments.Answers, f.Evidence.Ruling = true, &provenance.Ruling{Verdict: provenance.Ask}
		}, fault.Deny, fault.FlowUntrusted},
	},
	"unlisted": {
		{"no entry names it", func(_ testing.TB, f *Facts) { f.Operation.AskFirst = true }, fault.Ask, fault.ApprovalRequired},
		{"no entry names it, which is denied", func(_ testing.TB, f *Facts) { f.Operation.Denied = true }, fault.Deny, fault.PermissionDenied},
	},
	"risk": {
		{"high", func(_ testing.TB, f *Facts) { f.Operation.RiskFloor = policy.High }, fault.Ask, fault.ApprovalRequired},
		{"critical", func(_ testing.TB, f *Facts) { f.Operation.RiskFloor = policy.Critical }, fault.Ask, fault.ApprovalRequired},
		{"medium", func(_ testing.TB, f *Facts) { f.Operation.RiskFloor = policy.Medium }, fault.Ask, fault.ApprovalRequired},
		{"an administrator answers", func(_ testing.TB, f *Facts) { f.Operation.AdminAnswers = true }, fault.Ask, fault.ApprovalRequired},
		{"low, of a restricted agent", func(_ testing.TB, f *Facts) {
			f.Operation.NeedsReasons, f.Declaration.Justification, f.Caller.AskFrom = true, &declare.Justification{}, policy.Low
		}, fault.Ask, fault.ApprovalRequired},
		{"not loaded", func(_ testing.TB, f *Facts) { f.Evidence.Problem = fault.New(fault.StoreUnavailable, "") }, fault.Deny, fault.StoreUnavailable},
	},
}

// Every moment runs every stage, or the table says why not. For those that run, the same facts give the same decision and code at every
// moment; and taking the stage out of the table lets through what it alone refuses.
func TestEveryMomentReadsTheSameTable(t *testing.T) {
	if len(violations) != len(stages) {
		t.Fatalf("%d stages and facts against %d of them", len(stages), len(violations))
	}
	for _, s := range slices.Clone(stages) {
		cases := violations[s.name]
		if len(cases) == 0 {
			t.Errorf("no facts against the stage %s", s.name)
		}
		for _, m := range Moments {
			why, absent := s.absent[m]
			if absent && len(strings.Fields(why)) < 4 {
				t.Errorf("%s takes no part in a %s, and the table does not say why", s.name, m)
			}
			for _, c := range cases {
				t.Run(s.name+"/"+m.String()+"/"+c.name, func(t *testing.T) {
					f := fine(t)
					if v, _ := Judge(m, &f); v.Decision != fault.Permit {
						t.Fatalf("without the violation: %+v", v)
					}
					c.change(t, &f)
					v, _ := Judge(m, &f)
					if absent {
						if v.Decision != fault.Permit {
							t.Errorf("%s takes no part, and the verdict is %+v", s.name, v)
						}
						return
					}
					if v.Decision != c.decision || v.Code != c.code {
						t.Errorf("got %s %s (%s), want %s %s", v.Decision, v.Code, v.Reason, c.decision, c.code)
					}
					whole := stages
					defer func() { stages = whole }()
					stages = slices.DeleteFunc(slices.Clone(whole), func(other stage) bool { return other.name == s.name })
					if v, _ := Judge(m, &f); v.Decision == c.decision && v.Code == c.code {
						t.Errorf("without the stage it is still %s %s: the case proves nothing about %s", v.Decision, v.Code, s.name)
					}
				})
			}
		}
	}
}

// An agent that may not call a tool is not told that its definition has changed, at no moment.
func TestWhoMayNotCallIsToldNothingOfTheTool(t *testing.T) {
	for _, change := range []func(*Facts){func(f *Facts) { f.Operation.Quarantined = true }, func(f *Facts) { f.Operation.Gone = true }} {
		f := fine(t)
		f.Caller.Declaration = declaration(t, `"mail.*"`, ``)
		change(&f)
		for _, m := range Moments[:Replay] {
			if v, _ := Judge(m, &f); v.Code != fault.PermissionDenied {
				t.Errorf("%s: %+v", m, v)
			}
		}
	}
}

// The order of the table is a security property: what comes first gives the code, and an agent learns nothing of what comes after.
func TestOrder(t *testing.T) {
	var names []string
	for _, s := range stages {
		names = append(names, s.name)
	}
	if want := strings.Fields("kill standing phase declare permit parameters limit breaker screen flow plan unlisted risk"); !slices.Equal(names, want) {
		t.Fatalf("the order is %v", names)
	}
	for i, first := range names {
		for _, second := range names[i+1:] {
			if first == "unlisted" || first == "flow" || first == "screen" { // with an ask of theirs the others go on
				continue
			}
			f := fine(t)
			violations[second][0].change(t, &f)
			violations[first][0].change(t, &f)
			if v, _ := Judge(Call, &f); v.Code != violations[first][0].code {
				t.Errorf("%s and %s violated: the code is %s, want that of %s", first, second, v.Code, first)
			}
		}
	}
}

// Judging changes nothing of the facts and keeps nothing: the same facts give the same verdict, whatever was judged between.
func TestJudgingIsPure(t *testing.T) {
	for name, cases := range violations {
		for _, c := range cases {
			f, untouched := fine(t), fine(t)
			c.change(t, &f)
			c.change(t, &untouched)
			f.Rules, f.Caller.Declaration = untouched.Rules, untouched.Caller.Declaration
			before, found := Judge(Call, &f)
			if !reflect.DeepEqual(f, untouched) {
				t.Errorf("%s, %s: judging changed the facts", name, c.name)
			}
			other := fine(t)
			Judge(Call, &other)
			if after, again := Judge(Call, &f); !reflect.DeepEqual(before, after) || !reflect.DeepEqual(found, again) {
				t.Errorf("%s, %s: judged twice, %+v and %+v", name, c.name, before, after)
			}
		}
	}
}

// A judgement that is finished twice, with more evidence, is as if it had been made once with it.
func TestFinishedTwice(t *testing.T) {
	f := fine(t)
	f.Operation.RiskFloor = policy.Medium
	p := Memory(Call, &f)
	if v, found := p.Finish(&f); v.Decision != fault.Ask || !found.Silence {
		t.Fatalf("of risk MEDIUM: %+v, %+v", v, found)
	}
	f.Evidence.StoppedLately = true
	v, found := p.Finish(&f)
	once, foundOnce := Judge(Call, &f)
	if found.Silence || !reflect.DeepEqual(v, once) || !reflect.DeepEqual(found, foundOnce) {
		t.Errorf("finished twice %+v, at once %+v", v, once)
	}
}

// Without evidence nothing is permitted: a stage that needs it denies.
func TestMissingEvidenceDenies(t *testing.T) {
	for _, m := range Moments {
		f := fine(t)
		f.Evidence = Evidence{}
		if v, _ := Judge(m, &f); m != PlanStep && (v.Decision != fault.Deny || v.Code != fault.Internal) {
			t.Errorf("%s: %+v", m, v)
		}
	}
	if v, _ := StepRisk(&Facts{}); v.Decision != fault.Deny {
		t.Errorf("the risk of a step without evidence: %+v", v)
	}
}

// Whether a call that the plan may have as a step is declared depends on what the session has seen: without evidence it is left open, and
// with it decided.
func TestDeclaredByAPlanThatTakesArguments(t *testing.T) {
	f := fine(t)
	builtIn(&f)
	f.Session.Plan = &session.Plan{State: session.PlanApproved, DecidedBy: "rule", Digest: "plan", Steps: []session.Step{{Operation: "chat.post"}}}
	f.Session.Sealed = &provenance.SealedPlan{Clean: true, Steps: []provenance.SealedStep{{Operation: "chat.post", From: map[string]provenance.Source{"text": {Field: "x"}}}}}
	f.Evidence = Evidence{}
	p := Memory(Call, &f)
	if p.Denied() {
		t.Fatalf("denied before the evidence was read: %+v", p.verdict)
	}
	f.Evidence.Loaded = true
	if v, _ := p.Finish(&f); v.Code != fault.DeclarationMissing {
		t.Errorf("a call that follows no step: %+v", v)
	}
	f.Evidence.Follows, f.Evidence.Step = true, provenance.Followed{FullyConfirmed: true, Confirmed: true}
	if v, found := p.Finish(&f); v.Decision != fault.Permit || found.DeclaredBy != "plan" {
		t.Errorf("a call that follows the step: %+v, declared by %q", v, found.DeclaredBy)
	}
}

// What several stages ask is one question with all reasons; a deny of a later stage ends it.
func TestTheStrictestVerdictWins(t *testing.T) {
	f := fine(t)
	f.Operation.AskFirst, f.Operation.RiskFloor = true, policy.High
	f.Evidence.Ruling = &provenance.Ruling{Verdict: provenance.Ask, Reason: "from a page"}
	v, _ := Judge(Call, &f)
	var stages []string
	for _, b := range v.Because {
		if IsReason(b) {
			stage, _, _ := strings.Cut(b.Detail, ":")
			stages = append(stages, stage)
		}
	}
	if v.Decision != fault.Ask || !slices.Equal(stages, []string{"flow", "permit", "risk"}) {
		t.Errorf("the question has reasons of %v: %+v", stages, v)
	}
	f.Evidence.Problem = errors.New("store gone")
	if v, _ := Judge(Call, &f); v.Decision != fault.Deny {
		t.Errorf("with a deny after the asks: %+v", v)
	}
}

// A person's yes answers what asks, and nothing that denies; silence answers the risk stage alone.
func TestAnswer(t *testing.T) {
	yes := &approval.Approval{State: approval.Approved}
	silent := &approval.Approval{State: approval.Pending, SilenceAt: noon}
	for name, cases := range violations {
		for _, c := range cases {
			f := fine(t)
			c.change(t, &f)
			f.Answer.Approval = yes
			v, _ := Judge(Call, &f)
			if c.decision == fault.Ask && v.Decision != fault.Permit || c.decision == fault.Deny && v.Decision != fault.Deny {
				t.Errorf("%s, %s: with a person's yes %+v", name, c.name, v)
			}
			f.Answer.Approval = silent
			if v, _ := Judge(Call, &f); (name == "flow" || name == "screen") && v.Decision == fault.Permit {
				t.Errorf("%s: silence permitted what the flow rules leave to a person", c.name)
			}
		}
	}
}

// What a gateway that observes lets through, by stage: all violations of the stage but those named. Everything else holds, in each moment.
func TestObserveLiftsWhatTheTableSays(t *testing.T) {
	lifts := map[string][]string{
		"phase": {}, "declare": {"rejected by a person", "the store is away"}, "plan": {}, "unlisted": {},
		"screen": {"the same, where they are denied", "the same, where nobody said what is done"},
		"flow":   {"secret", "a label of the operator's own", "not confirmed, with a secret", "a label nobody knows", "not traceable"},
		"risk":   {"critical", "not loaded"},
	}
	for _, s := range stages {
		but, some := lifts[s.name]
		for _, c := range violations[s.name] {
			for _, m := range Moments {
				f := fine(t)
				c.change(t, &f)
				enforced, _ := Judge(m, &f)
				if enforced.Decision == fault.Permit { // the stage takes no part
					continue
				}
				f.Rules.Observe = true
				v, found := Judge(m, &f)
				would := found.WouldBe()
				if some && !slices.Contains(but, c.name) {
					if v.Decision != fault.Permit || would == nil || would.Decision != enforced.Decision || would.Code != enforced.Code || would.Reason != enforced.Reason || found.Silence {
						t.Errorf("%s, %s, %s: %+v, would be %+v; enforced %+v", s.name, c.name, m, v, would, enforced)
					}
				} else if !reflect.DeepEqual(v, enforced) || would != nil {
					t.Errorf("%s, %s, %s holds: %+v, would be %+v; enforced %+v", s.name, c.name, m, v, would, enforced)
				}
			}
		}
	}
}

// All that was lifted of a call is kept. What a gateway that enforces would have said is the first refusal, or else the first question; what holds is
// judged as ever, and whoever is asked about it is told of the rest.
func TestObserveKeepsEachVerdict(t *testing.T) {
	f := fine(t)
	f.Rules.Observe = true
	f.Operation.RiskFloor, f.Operation.AskFirst = policy.High, true
	f.Evidence.Ruling = &provenance.Ruling{Verdict: provenance.Ask, Reason: "from a page"}
	v, found := Judge(Call, &f)
	var stages []string
	for _, l := range found.Lifted {
		stages = append(stages, l.Stage)
	}
	if v.Decision != fault.Permit || !slices.Equal(stages, []string{"flow", "permit", "risk"}) || found.WouldBe().Stage != "flow" {
		t.Errorf("%+v lifted %v", v, found.Lifted)
	}
	f.Operation.Denied = true
	if _, found = Judge(Call, &f); found.WouldBe().Code != fault.PermissionDenied {
		t.Errorf("a refusal after a question: %+v", found.WouldBe())
	}
	f.Operation.RiskFloor = policy.Critical
	if v, found = Judge(Call, &f); v.Decision != fault.Ask || v.Stage != "risk" || len(found.Lifted) != 2 || !slices.ContainsFunc(v.Because, func(b fault.Because) bool { return strings.HasPrefix(b.Detail, "permit: No entry") }) {
		t.Errorf("CRITICAL: %+v lifted %v", v, found.Lifted)
	}
	f.Answer.Approval = &approval.Approval{State: approval.Approved}
	if v, _ = Judge(Call, &f); v.Decision != fault.Permit {
		t.Errorf("CRITICAL, with a yes: %+v", v)
	}
	p, later := Memory(Call, &f), f
	later.Evidence.Problem = fault.New(fault.StoreUnavailable, "")
	before, _ := p.Finish(&f)
	if v, _ := p.Finish(&later); v.Decision != fault.Deny || before.Decision != fault.Permit {
		t.Errorf("the store is away: %+v", v)
	}
}

// What is refused before the limit takes no place in the minute; what is refused after it does.
func TestWhatCounts(t *testing.T) {
	for i, s := range stages {
		f := fine(t)
		violations[s.name][0].change(t, &f)
		_, found := Judge(Call, &f)
		if want := i > slices.IndexFunc(stages, func(s stage) bool { return s.name == "limit" }); found.Counts != want {
			t.Errorf("refused by %s: counts %t, want %t", s.name, found.Counts, want)
		}
	}
	f := fine(t)
	f.Operation.Requests, f.Session.Room.RequestIn = true, time.Second
	if _, found := Judge(Call, &f); !found.Counts {
		t.Error("a call without room for its request takes no place among the calls")
	}
}

func BenchmarkJudge(b *testing.B) {
	f := fine(b)
	f.Arguments.Canonical = []byte(`{"text":"` + strings.Repeat("word ", 200) + `"}`)
	f.Arguments.Digest = call.HashBytes(f.Arguments.Canonical)
	for b.Loop() {
		if v, _ := Judge(Call, &f); v.Decision != fault.Permit {
			b.Fatal(v)
		}
	}
}

// A write that nobody classified is MEDIUM, before and after a person's yes to the call. A yes to the tool for the session, or to a plan with the
// step, says as much as the configuration would.
func TestUnclassified(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Facts)
		want   policy.Risk
	}{
		"a write":            {func(*Facts) {}, policy.Medium},
		"a read":             {func(f *Facts) { f.Arguments.Writes = false }, policy.Low},
		"a read that writes": {func(f *Facts) { f.Operation.Flow.Effect = flow.Read }, policy.Medium},
		"classified":         {func(f *Facts) { f.Operation.Unclassified = false }, policy.Low},
		"not listed":         {func(f *Facts) { f.Operation.AskFirst = true }, policy.Medium},
		"not listed, this call is": {func(f *Facts) {
			f.Operation.AskFirst, f.Answer.Approval = true, &approval.Approval{State: approval.Approved}
		}, policy.Medium},
		"not listed, its tool is":    {func(f *Facts) { f.Operation.AskFirst, f.Evidence.CoveredBy = true, "appr_1" }, policy.Low},
		"not listed, its plan is":    {func(f *Facts) { f.Operation.AskFirst, f.Evidence.Follows = true, true }, policy.Low},
		"listed, its plan is":        {func(f *Facts) { f.Evidence.Follows = true }, policy.Medium},
		"an argument like an amount": {func(f *Facts) { f.Arguments.Canonical = []byte(`{"amount":50000}`) }, policy.High},
		"the same, of the person's": {func(f *Facts) {
			f.Operation.Level, f.Arguments.Canonical = 1, []byte(`{"amount":50000}`)
			f.Operation.Unclassified = false
		}, policy.Low},
		"the same, not said to be so": {func(f *Facts) {
			f.Operation.AskFirst, f.Evidence.CoveredBy, f.Arguments.Canonical = true, "appr_1", []byte(`{"amount":50000}`)
		}, policy.High},
	} {
		risks, err := policy.NewRules(0, 0, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		f := &Facts{Rules: &Rules{Risk: risks}, Operation: Operation{ID: "a.b", Level: 2, Unclassified: true}, Arguments: Arguments{Canonical: []byte(`{}`), Writes: true}, Evidence: Evidence{Loaded: true}}
		f.Session.Sealed, f.Session.Plan = &provenance.SealedPlan{}, &session.Plan{State: session.PlanApproved, DecidedBy: "person:bob"}
		c.change(f)
		if got, err := Rate(f); err != nil || got.Risk != c.want {
			t.Errorf("%s: %v %v, want %s", name, got, err, c.want)
		}
	}
}

// What a hit raised is a person's to permit, whatever is confirmed: silence is not.
func TestSilenceDoesNotPermitWhatAHitRaised(t *testing.T) {
	f := fine(t)
	f.Arguments.Writes, f.Operation.Level = true, 2
	f.Session.Labels = []flow.Held{{Label: flow.Flagged}}
	f.Operation.Flow.BlockedBy = nil
	v, found := Judge(Call, &f)
	if v.Decision != fault.Ask || found.Rating.Risk != policy.Medium || !found.Rating.Raised(policy.ReasonFlagged) || found.Silence {
		t.Fatalf("%+v, %+v", v, found)
	}
	f.Answer.Approval = &approval.Approval{State: approval.Pending, SilenceAt: noon}
	if v, _ := Judge(Call, &f); v.Decision != fault.Ask {
		t.Errorf("silence permitted it: %+v", v)
	}
	f.Answer.Approval = &approval.Approval{State: approval.Approved}
	if v, _ := Judge(Call, &f); v.Decision != fault.Permit {
		t.Errorf("a person's yes did not: %+v", v)
	}
}

// A person decides about a hit in the arguments of a call that silence would permit otherwise; where the operation's entry says that hits are noted, silence permits it.
func TestSilenceDoesNotPermitAHit(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*Facts)
		silence bool
		asks    int // stages that ask
	}{
		"no hit":             {func(f *Facts) { f.Arguments.Screened = nil }, true, 1},
		"a hit":              {func(*Facts) {}, false, 1},
		"noted only":         {func(f *Facts) { f.Operation.ScreenNotes = true }, true, 1},
		"noted everywhere":   {func(f *Facts) { f.Rules.Screen = ScreenObserve }, true, 1},
		"a hit of a LOW one": {func(f *Facts) { f.Operation.RiskFloor = policy.Low }, false, 1},
	} {
		f := fine(t)
		rules := *f.Rules
		rules.Screen = ScreenAsk
		f.Rules = &rules
		f.Arguments.Writes, f.Operation.Level, f.Operation.RiskFloor = true, 2, policy.Medium
		f.Operation.Flow.BlockedBy = nil
		f.Arguments.Screened = &screen.Found{Event: "threat.hit", Score: 1, Rule: "r"}
		c.change(&f)
		v, found := Judge(Call, &f)
		if v.Decision != fault.Ask || found.Silence != c.silence || len(v.Because) != c.asks {
			t.Errorf("%s: silence permits it: %t, %+v", name, found.Silence, v)
		}
	}
}
