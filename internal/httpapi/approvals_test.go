package httpapi_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.example/client"
	"sallyport.example/internal/identity"
)

var why = client.Justification{
	UserRequest: "Which Go release added range over functions?", MissingKnowledge: "The version number of that release.",
	ExpectedUse: "Cite the version in the answer.",
}

func inline(t testing.TB, url string) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(map[string]any{"url": url, "justification": why})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ask lets the agent make a call that a person has to decide on, and returns its approval.
func (w *world) ask(c *client.Client, session, tool, url string) *client.Approval {
	w.t.Helper()
	a, err := c.Call(w.t.Context(), session, tool, inline(w.t, url))
	if err != nil || a.Verdict.Decision != "ask" || a.Verdict.Code != "approval.required" || a.Verdict.ApprovalID == nil {
		w.t.Fatalf("ask: %+v %v", a, err)
	}
	q, err := w.root().Approval(w.t.Context(), *a.Verdict.ApprovalID)
	if err != nil {
		w.t.Fatal(err)
	}
	return q
}

// open opens a session in execution, as a host on behalf of somebody.
func (w *world) open(requester string) (*client.Client, string) {
	w.t.Helper()
	opened, err := w.client(w.agent, w.token(identity.Host, "laptop")).Open(w.t.Context(), client.OpenSession{AgentID: "worker", Requester: requester, UserRequest: why.UserRequest})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.client(w.agent, opened.SessionToken), opened.SessionID
}

// TestUndeclarable: everything that is wrong with a declaration is in one answer, field by field, and nothing of what was sent.
func TestUndeclarable(t *testing.T) {
	w := newWorld(t)
	token := w.token(identity.Agent, "worker")
	const good = `"user_request":"Which Go release added it?","missing_knowledge":"The version number of that release.","expected_use":"Cite it in the answer."`
	for _, c := range []struct {
		name, body string
		fields     []string
	}{
		{"nothing", `{}`, []string{"operation", "parameters", "justification", "phase", "session_id"}},
		{"empty justification", `{"operation":"comm.fetch","parameters":{"url":"https://docs.example/"},"justification":{},"phase":"execution","session_id":"SELF"}`,
			[]string{"justification.user_request", "justification.missing_knowledge", "justification.expected_use"}},
		{"wrong types", `{"operation":1,"parameters":[],"justification":"x","phase":{},"session_id":null}`, []string{"operation", "parameters", "justification", "phase", "session_id"}},
		{"names in another case", `{"Operation":"comm.fetch","parameters":{"url":"https://docs.example/"},"justification":{` + good + `},"phase":"execution","session_id":"SELF"}`,
			[]string{"Operation", "operation"}},
		{"vague, in planning, of another session", `{"operation":"comm.nope","parameters":{"url":"secret-word"},"justification":{"user_request":"x","missing_knowledge":"more information","expected_use":"secret-word ideas"},"phase":"planning","session_id":"sess_secret-word"}`,
			[]string{"operation", "parameters.url", "justification.user_request", "justification.missing_knowledge", "phase", "session_id"}},
		{"what the operation says", `{"operation":"comm.fetch","parameters":{},"justification":{` + good + `},"phase":"execution","session_id":"SELF"}`, []string{"parameters.url"}},
	} {
		st, err := w.client(w.agent, token).Status(t.Context(), client.Own)
		if err != nil {
			t.Fatal(err)
		}
		a := w.send(w.agent, "POST", "/v1/session/self/declarations", token, strings.ReplaceAll(c.body, "SELF", st.SessionID))
		p := a.problem(t)
		var fields []string
		for _, e := range p.Errors {
			fields = append(fields, e.Field)
			if e.Problem == "" {
				t.Errorf("%s: %s has no problem", c.name, e.Field)
			}
		}
		if a.status != 422 || p.Code != "declaration.invalid" || !slices.Equal(fields, c.fields) {
			t.Errorf("%s: %d %v, %s", c.name, a.status, fields, a.body)
		}
		if strings.Contains(a.body, "secret-word") {
			t.Errorf("%s: a value is echoed: %s", c.name, a.body)
		}
	}
	if a := w.send(w.agent, "POST", "/v1/session/self/declarations", token, `{"operation":`); a.status != 400 {
		t.Errorf("not JSON: %d", a.status)
	}
}

// TestDeclared: a declaration that is approved by rule is good for one call without arguments, and its result has the contract's form, when
// answered and when fetched again.
func TestDeclared(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	c, id := w.open("bob")
	d, err := c.Declare(ctx, client.Own, client.NewDeclaration{Operation: "comm.fetch", Parameters: json.RawMessage(`{"url":"https://docs.example/a"}`), Justification: why})
	if err != nil || d.State != "approved" || d.Verdict.Decision != "permit" || d.Digest == "" || d.ExpiresAt.IsZero() {
		t.Fatalf("declare: %+v %v", d, err)
	}
	opened, err := w.client(w.agent, w.token(identity.Host, "laptop")).Open(ctx, client.OpenSession{AgentID: "worker"})
	if err != nil {
		t.Fatal(err)
	}
	if a := w.send(w.agent, "POST", "/v1/session/self/check", opened.SessionToken, `{"tool":"comm_fetch","declaration_id":"`+d.DeclarationID+`"}`); a.status != 200 || !strings.Contains(a.body, "declaration.invalid") {
		t.Errorf("another session checks it: %d %s", a.status, a.body)
	}
	if v := w.send(w.agent, "POST", "/v1/session/"+id+"/check", w.token(identity.Host, "laptop"), `{"tool":"comm_fetch","declaration_id":"`+d.DeclarationID+`"}`); v.status != 200 || !strings.Contains(v.body, `"permit"`) {
		t.Errorf("check: %d %s", v.status, v.body)
	}
	if other, err := c.CallDeclared(ctx, client.Own, "comm_fetch", d.DeclarationID, json.RawMessage(`{"url":"https://evil.example/"}`)); err != nil || other.Verdict.Code != "approval.mismatch" {
		t.Errorf("other arguments: %+v %v", other, err)
	}
	a, err := c.CallDeclared(ctx, client.Own, "comm_fetch", d.DeclarationID, nil)
	if err != nil || a.Verdict.Decision != "permit" {
		t.Fatalf("call: %+v %v", a, err)
	}
	var members map[string]json.RawMessage
	var x client.External
	if json.Unmarshal(a.Result, &members) != nil || len(members) != 2 || json.Unmarshal(a.Result, &x) != nil {
		t.Fatalf("result %s", a.Result)
	}
	m := x.Metadata
	if m.TrustLevel != "UNTRUSTED_EXTERNAL_CONTENT" || m.SessionID != id || m.CallID != a.CallID || m.Source != "https://docs.example/" || m.Operation != "comm.fetch" ||
		m.Timestamp.IsZero() || len(m.ContentSHA256) != 64 || m.Attribution != "CommunicationOS (fetch) in session "+id {
		t.Errorf("metadata %+v", m)
	}
	var content []struct{ Type, Text string }
	if err := json.Unmarshal(x.Results, &content); err != nil || len(content) == 0 || !strings.Contains(string(x.Results), "outside") || strings.HasPrefix(content[0].Text, "brought") {
		t.Errorf("results are not a fenced content list: %s %v", x.Results, err)
	}
	if again, err := c.Outcome(ctx, client.Own, a.CallID, 0); err != nil || string(again.Result) != string(a.Result) {
		t.Errorf("again: %s %v", again.Result, err)
	}
	was, err := c.Declaration(ctx, client.Own, d.DeclarationID)
	if err != nil || was.State != "spent" || was.SpentBy != a.CallID || was.DecidedBy != "rule" || was.Justification != why || was.Digest != d.Digest {
		t.Errorf("declaration: %+v %v", was, err)
	}
	if twice, err := c.CallDeclared(ctx, client.Own, "comm_fetch", d.DeclarationID, nil); err != nil || twice.Verdict.Decision != "deny" || twice.Result != nil {
		t.Errorf("twice: %+v %v", twice, err)
	}
	if _, err := c.Declaration(ctx, client.Own, "decl_nope"); code(err) != "not_found" {
		t.Errorf("no declaration: %v", err)
	}
	other, _ := w.open("bob")
	if _, err := other.Declaration(ctx, client.Own, d.DeclarationID); code(err) != "not_found" {
		t.Errorf("another session's: %v", err)
	}
	// A declaration that is judged badly is an answer, and on record.
	if _, err := c.Call(ctx, client.Own, "search_email", nil); err != nil {
		t.Fatal(err)
	}
	denied, err := c.Declare(ctx, id, client.NewDeclaration{Operation: "comm.fetch", Parameters: json.RawMessage(`{"url":"https://docs.example/b"}`), Justification: why})
	if err != nil || denied.State != "rejected" || denied.Verdict.Code != "flow.contaminated" || denied.DeclarationID == "" {
		t.Errorf("denied: %+v %v", denied, err)
	}
	// Results of other operations stay as they are.
	if plain, err := c.Call(ctx, client.Own, "think", nil); err != nil || !strings.HasPrefix(string(plain.Result), `{"_meta"`) && !strings.Contains(string(plain.Result), `"content"`) {
		t.Errorf("plain: %+v %v", plain, err)
	}
}

// TestApprovals is a question from the call that raises it to the call that its answer lets run.
func TestApprovals(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	c, id := w.open("bob")
	alice := w.client(w.admin, w.token(identity.Person, "alice", identity.Approver))
	q := w.ask(c, client.Own, "comm_exec", "https://docs.example/<script>")
	if q.State != "pending" || q.Risk != "HIGH" || q.Operation != "comm.exec" || q.SessionID != id || q.Requester != "bob" || q.AgentID != "worker" || q.Needed != 1 ||
		len(q.Reasons) == 0 || q.Digest == "" || q.CallDigest == "" || q.Similar == "" || !strings.Contains(string(q.Justification), "version") || !strings.Contains(string(q.Arguments), "script") {
		t.Errorf("approval %+v", q)
	}
	if a := w.send(w.admin, "GET", "/v1/approvals/"+q.ApprovalID, w.token(identity.Person, "v", identity.Viewer), ""); strings.ContainsAny(a.body, "<>&") {
		t.Errorf("the agent's words stand as markup: %s", a.body)
	}
	if again, err := c.Call(ctx, client.Own, "comm_exec", inline(t, "https://docs.example/<script>")); err != nil || again.Verdict.ApprovalID == nil || *again.Verdict.ApprovalID != q.ApprovalID {
		t.Errorf("the same call asks a second time: %+v %v", again, err)
	}
	for name, answer := range map[string]func() (*client.Approval, error){
		"approve": func() (*client.Approval, error) { return alice.Approve(ctx, q.ApprovalID, strings.Repeat("0", 64), "") },
		"reject":  func() (*client.Approval, error) { return alice.Reject(ctx, q.ApprovalID, "x", "no") },
		"defer":   func() (*client.Approval, error) { return alice.Defer(ctx, q.ApprovalID, "x", time.Time{}) },
	} {
		if a, err := answer(); code(err) != "approval.mismatch" {
			t.Errorf("%s of another digest: %+v %v", name, a, err)
		}
	}
	if _, err := alice.Reject(ctx, q.ApprovalID, q.Digest, " "); code(err) != "request.malformed" {
		t.Errorf("a no without a reason: %v", err)
	}
	if _, err := alice.Defer(ctx, q.ApprovalID, q.Digest, w.clock.now().Add(time.Hour)); code(err) != "request.malformed" {
		t.Errorf("deferred past the expiry: %v", err)
	}
	later := w.clock.now().Add(30 * time.Second)
	if d, err := alice.Defer(ctx, q.ApprovalID, q.Digest, later); err != nil || d.State != "deferred" || !d.DeferredUntil.Equal(later) {
		t.Errorf("defer: %+v %v", d, err)
	}
	if d, err := alice.Defer(ctx, q.ApprovalID, "", time.Time{}); err != nil || d.State != "deferred" || !d.DeferredUntil.IsZero() {
		t.Errorf("defer what is asked now: %+v %v", d, err)
	}
	yes, err := alice.Approve(ctx, q.ApprovalID, q.Digest, "go on")
	if err != nil || yes.State != "approved" || len(yes.Votes) != 1 || yes.Votes[0].Person != "alice" || yes.Votes[0].Decision != "approve" || yes.Votes[0].Comment != "go on" {
		t.Fatalf("approve: %+v %v", yes, err)
	}
	ran, err := c.Call(ctx, client.Own, "comm_exec", inline(t, "https://docs.example/<script>"))
	if err != nil || ran.Verdict.Decision != "permit" || ran.Result == nil {
		t.Fatalf("the approved call: %+v %v", ran, err)
	}
	if spent, err := alice.Approval(ctx, q.ApprovalID); err != nil || spent.State != "spent" || spent.SpentBy != ran.CallID {
		t.Errorf("spent: %+v %v", spent, err)
	}
	no := w.ask(c, client.Own, "comm_exec", "https://docs.example/<script>")
	if no.ApprovalID == q.ApprovalID {
		t.Error("one yes is good for two calls")
	}
	if r, err := alice.Reject(ctx, no.ApprovalID, no.Digest, "once is enough"); err != nil || r.State != "rejected" || r.Reason != "once is enough" {
		t.Errorf("reject: %+v %v", r, err)
	}
	if _, err := alice.Approve(ctx, no.ApprovalID, no.Digest, ""); code(err) != "conflict" {
		t.Errorf("a yes after the no: %v", err)
	}
	if a, err := c.Call(ctx, client.Own, "comm_exec", inline(t, "https://docs.example/<script>")); err != nil || a.Verdict.Code != "approval.rejected" || !strings.Contains(a.Verdict.Reason, "once is enough") {
		t.Errorf("after the no: %+v %v", a, err)
	}
	if _, err := alice.Approval(ctx, "appr_nope"); code(err) != "not_found" {
		t.Errorf("no approval: %v", err)
	}
	// One is for a declaration made ahead.
	d, err := c.Declare(ctx, client.Own, client.NewDeclaration{Operation: "comm.exec", Parameters: json.RawMessage(`{"url":"https://docs.example/ahead"}`), Justification: why})
	if err != nil || d.State != "pending" || d.Verdict.Decision != "ask" || d.ApprovalID == "" {
		t.Fatalf("declare ahead: %+v %v", d, err)
	}
	ahead, err := alice.Approval(ctx, d.ApprovalID)
	if err != nil || ahead.DeclarationID != d.DeclarationID {
		t.Fatal(ahead, err)
	}
	if _, err := alice.Approve(ctx, ahead.ApprovalID, ahead.Digest, ""); err != nil {
		t.Fatal(err)
	}
	if a, err := c.CallDeclared(ctx, client.Own, "comm_exec", d.DeclarationID, nil); err != nil || a.Verdict.Decision != "permit" {
		t.Errorf("the declared call: %+v %v", a, err)
	}
}

// TestOwnRequests: nobody answers what they asked for themselves, under any of their names, and CRITICAL takes two people.
func TestOwnRequests(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	alice := w.client(w.admin, w.token(identity.Person, "alice", identity.Admin))
	carol := w.client(w.admin, w.token(identity.Person, "carol", identity.Approver))
	for _, requester := range []string{"alice", "alice.work", "Alice.Work"} {
		opened, err := w.root().StartSession(ctx, client.OpenSession{AgentID: "worker", Requester: requester})
		if err != nil {
			t.Fatal(err)
		}
		q := w.ask(w.client(w.agent, opened.SessionToken), client.Own, "comm_exec", "https://docs.example/")
		for name, answer := range map[string]func() (*client.Approval, error){
			"approve": func() (*client.Approval, error) { return alice.Approve(ctx, q.ApprovalID, q.Digest, "") },
			"reject":  func() (*client.Approval, error) { return alice.Reject(ctx, q.ApprovalID, q.Digest, "no") },
			"defer":   func() (*client.Approval, error) { return alice.Defer(ctx, q.ApprovalID, q.Digest, time.Time{}) },
		} {
			if _, err := answer(); code(err) != "role.missing" {
				t.Errorf("%s answers with %s: %v", requester, name, err)
			}
		}
		if b, err := alice.RespondTogether(ctx, "approve", "", []client.ApprovalRef{{ApprovalID: q.ApprovalID, Digest: q.Digest}}); err != nil || b[0].Code != "role.missing" || b[0].Approval != nil {
			t.Errorf("%s answers in a batch: %+v %v", requester, b, err)
		}
		if a, err := carol.Approve(ctx, q.ApprovalID, q.Digest, ""); err != nil || a.State != "approved" {
			t.Errorf("another person: %+v %v", a, err)
		}
	}
	// A host of hers opened it.
	opened, err := w.client(w.agent, w.token(identity.Host, "alices-laptop")).Open(ctx, client.OpenSession{AgentID: "worker"})
	if err != nil {
		t.Fatal(err)
	}
	q := w.ask(w.client(w.agent, opened.SessionToken), client.Own, "comm_exec", "https://docs.example/")
	if _, err := alice.Approve(ctx, q.ApprovalID, q.Digest, ""); code(err) != "role.missing" {
		t.Errorf("her laptop asked: %v", err)
	}
	c, _ := w.open("bob")
	critical := w.ask(c, client.Own, "comm_wire", "https://bank.example/")
	if critical.Needed != 2 {
		t.Errorf("critical: %+v", critical)
	}
	if a, err := alice.Approve(ctx, critical.ApprovalID, critical.Digest, ""); err != nil || a.State != "pending" || len(a.Votes) != 1 {
		t.Errorf("one of two: %+v %v", a, err)
	}
	if _, err := alice.Approve(ctx, critical.ApprovalID, critical.Digest, ""); code(err) != "conflict" {
		t.Errorf("the same again: %v", err)
	}
	if a, err := carol.Approve(ctx, critical.ApprovalID, critical.Digest, ""); err != nil || a.State != "approved" {
		t.Errorf("two of two: %+v %v", a, err)
	}
	// Roles are those of today: bob's token says approver, the configuration doesn't.
	bob := w.client(w.admin, w.token(identity.Person, "bob", identity.Viewer, identity.Approver))
	if _, err := bob.Approve(ctx, critical.ApprovalID, critical.Digest, ""); code(err) != "role.missing" {
		t.Errorf("a role of yesterday: %v", err)
	}
}

// TestBatches: similar ones are answered together, each under the digest that was looked at; others not at all.
func TestBatches(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	c, _ := w.open("bob")
	carol := w.client(w.admin, w.token(identity.Person, "carol", identity.Approver))
	ref := func(q *client.Approval) client.ApprovalRef {
		return client.ApprovalRef{ApprovalID: q.ApprovalID, Digest: q.Digest}
	}
	a, b := w.ask(c, client.Own, "comm_exec", "https://docs.example/a"), w.ask(c, client.Own, "comm_exec", "https://docs.example/b")
	far := w.ask(c, client.Own, "comm_exec", "https://other.example/a")
	one, two := w.ask(c, client.Own, "comm_wire", "https://bank.example/a"), w.ask(c, client.Own, "comm_wire", "https://bank.example/b")
	if a.Similar != b.Similar || a.Similar == far.Similar || a.Similar == one.Similar {
		t.Errorf("similar: %q %q %q %q", a.Similar, b.Similar, far.Similar, one.Similar)
	}
	for name, refs := range map[string][]client.ApprovalRef{"another place": {ref(a), ref(b), ref(far)}, "another operation": {ref(a), ref(one)}, "two people needed": {ref(one), ref(two)}} {
		_, err := carol.RespondTogether(ctx, "approve", "", refs)
		var p *client.Problem
		if !errors.As(err, &p) || p.Code != "conflict" || !strings.HasPrefix(p.Field, "approvals[") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := carol.RespondTogether(ctx, "approve", "", []client.ApprovalRef{ref(a), {ApprovalID: "appr_nope", Digest: "x"}}); code(err) != "not_found" {
		t.Errorf("one that is not there: %v", err)
	}
	for _, q := range []*client.Approval{a, b, far, one, two} {
		if now, err := carol.Approval(ctx, q.ApprovalID); err != nil || now.State != "pending" || len(now.Votes) > 0 {
			t.Errorf("a refused batch answered one: %+v %v", now, err)
		}
	}
	all, err := carol.RespondTogether(ctx, "approve", "both", []client.ApprovalRef{ref(a), {ApprovalID: b.ApprovalID, Digest: a.Digest}})
	if err != nil || len(all) != 2 || all[0].Approval == nil || all[0].Approval.State != "approved" || all[1].Approval != nil || all[1].Code != "approval.mismatch" || all[1].Problem == "" || all[1].ApprovalID != b.ApprovalID {
		t.Errorf("batch: %+v %v", all, err)
	}
	third := w.ask(c, client.Own, "comm_exec", "https://docs.example/c")
	all, err = carol.RespondTogether(ctx, "reject", "too many", []client.ApprovalRef{ref(b), ref(third)})
	if err != nil || len(all) != 2 || all[0].Approval == nil || all[1].Approval == nil || all[0].Approval.State != "rejected" || all[1].Approval.Reason != "too many" || all[1].ApprovalID != third.ApprovalID {
		t.Errorf("each under its own digest: %+v %v", all, err)
	}
	for body, field := range map[string]string{
		`{"decision":"approve","approvals":[{"Approval_ID":"x","digest":"y"}]}`:        "approvals[0].Approval_ID",
		`{"decision":"approve","approvals":[{"approval_id":"x","digest":"y","a":1}]}`:  "approvals[0].a",
		`{"decision":"maybe","approvals":[{"approval_id":"x","digest":"y"}]}`:          "decision",
		`{"decision":"approve","approvals":[]}`:                                        "approvals",
		`{"decision":"approve","approvals":[{"approval_id":"x"}]}`:                     "approvals[0]",
		`{"decision":"approve","approvals":["x"]}`:                                     "approvals[0]",
		`{"decision":"approve","approvals":[{"approval_id":"x","digest":"y"}],"u":""}`: "u",
	} {
		r := w.send(w.admin, "POST", "/v1/approvals/batch", w.token(identity.Person, "carol", identity.Approver), body)
		if p := r.problem(t); r.status != 400 && r.status != 422 || p.Field != field {
			t.Errorf("%s: %d %s", body, r.status, r.body)
		}
	}
}

// TestApprovalPages walks the list: newest first, each once, by state and session, also of what is past its time.
func TestApprovalPages(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	root := w.root()
	c, id := w.open("bob")
	other, otherID := w.open("bob")
	var asked []string
	for _, url := range []string{"https://a.example/", "https://b.example/", "https://c.example/"} {
		asked = append([]string{w.ask(c, client.Own, "comm_exec", url).ApprovalID}, asked...)
	}
	q := w.ask(other, client.Own, "comm_exec", "https://d.example/")
	if _, err := root.Reject(ctx, q.ApprovalID, q.Digest, "no"); err != nil {
		t.Fatal(err)
	}
	walk := func(q client.ApprovalQuery) (ids []string) {
		for {
			page, err := root.Approvals(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range page.Approvals {
				ids = append(ids, a.ApprovalID)
			}
			if q.After = page.Next; q.After == "" {
				return ids
			}
		}
	}
	for _, c := range []struct {
		query client.ApprovalQuery
		want  []string
	}{
		{client.ApprovalQuery{}, append([]string{q.ApprovalID}, asked...)},
		{client.ApprovalQuery{Limit: 1}, append([]string{q.ApprovalID}, asked...)},
		{client.ApprovalQuery{Limit: 2, State: "pending"}, asked},
		{client.ApprovalQuery{Limit: 3, Session: id}, asked},
		{client.ApprovalQuery{Session: otherID}, []string{q.ApprovalID}},
		{client.ApprovalQuery{Session: otherID, State: "pending"}, nil},
		{client.ApprovalQuery{State: "rejected"}, []string{q.ApprovalID}},
		{client.ApprovalQuery{State: "expired"}, nil},
	} {
		if got := walk(c.query); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, not %v", c.query, got, c.want)
		}
	}
	w.clock.forward(2 * time.Minute)
	if got := walk(client.ApprovalQuery{State: "expired", Limit: 2}); !slices.Equal(got, asked) {
		t.Errorf("expired: %v", got)
	}
	if got := walk(client.ApprovalQuery{State: "pending"}); got != nil {
		t.Errorf("pending after their time: %v", got)
	}
	for _, bad := range []string{"?state=maybe", "?limit=0", "?limit=501", "?status=pending", "?state=pending&state=approved"} {
		if a := w.send(w.admin, "GET", "/v1/approvals"+bad, w.token(identity.Person, "v", identity.Viewer), ""); a.status != 400 && a.status != 422 {
			t.Errorf("%s: %d", bad, a.status)
		}
	}
	if _, err := root.Approvals(ctx, client.ApprovalQuery{After: "appr_nope"}); code(err) != "not_found" {
		t.Errorf("after what is not there: %v", err)
	}
}

// TestModify: a person's arguments take the place of the agent's, under a digest of their own, and wait to be answered.
func TestModify(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	c, _ := w.open("bob")
	carol := w.client(w.admin, w.token(identity.Person, "carol", identity.Approver))
	q := w.ask(c, client.Own, "comm_exec", "https://docs.example/all")
	token := w.token(identity.Person, "carol", identity.Approver)
	arguments := func(url string) json.RawMessage {
		return json.RawMessage(strings.ReplaceAll(string(q.Arguments), "https://docs.example/all", url))
	}
	for name, c := range map[string]struct{ body, field string }{
		"no reason":              {`{"arguments":{"url":"x"}}`, "body"},
		"an empty reason":        {`{"arguments":{"url":"x"},"reason":" "}`, "reason"},
		"no arguments":           {`{"reason":"x"}`, "body"},
		"a list":                 {`{"arguments":[],"reason":"x"}`, "arguments"},
		"a string":               {`{"arguments":"{}","reason":"x"}`, "arguments"},
		"as they were":           {`{"arguments":` + string(q.Arguments) + `,"reason":"x"}`, "arguments"},
		"names twice":            {`{"arguments":{"url":"x","url":"y"},"reason":"x"}`, ""},
		"what is no field":       {`{"arguments":{"url":"x"},"reason":"x","operation":"comm.wire"}`, "operation"},
		"what the tool can't do": {`{"arguments":{},"reason":"x"}`, ""},
	} {
		a := w.send(w.admin, "POST", "/v1/approvals/"+q.ApprovalID+"/modify", token, c.body)
		if p := a.problem(t); a.status < 400 || a.status >= 500 || c.field != "" && p.Field != c.field {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if _, err := carol.Modify(ctx, q.ApprovalID, strings.Repeat("0", 64), arguments("https://docs.example/one"), "one is enough"); code(err) != "approval.mismatch" {
		t.Errorf("of another digest: %v", err)
	}
	if _, err := carol.Modify(ctx, "appr_nope", "", arguments("https://docs.example/one"), "one is enough"); code(err) != "not_found" {
		t.Errorf("of nothing: %v", err)
	}
	if now, err := carol.Approval(ctx, q.ApprovalID); err != nil || now.State != "pending" {
		t.Fatalf("a refused change changed it: %+v %v", now, err)
	}
	next, err := carol.Modify(ctx, q.ApprovalID, q.Digest, arguments("https://docs.example/one"), "one is enough")
	if err != nil || next.State != "pending" || next.ApprovalID == q.ApprovalID || next.Digest == q.Digest || next.ModifiedFrom != q.ApprovalID || next.ModifiedBy != "carol" ||
		next.ModifiedReason != "one is enough" || string(next.Before) != string(q.Arguments) || !strings.Contains(string(next.Arguments), "docs.example/one") || len(next.Votes) > 0 {
		t.Fatalf("modified: %+v %v", next, err)
	}
	if was, err := carol.Approval(ctx, q.ApprovalID); err != nil || was.State != "superseded" || was.ReplacedBy != next.ApprovalID {
		t.Errorf("the old one: %+v %v", was, err)
	}
	if _, err := carol.Modify(ctx, q.ApprovalID, q.Digest, arguments("https://docs.example/two"), "twice"); code(err) != "conflict" {
		t.Errorf("of what is over: %v", err)
	}
	if told, err := c.Call(ctx, client.Own, "comm_exec", inline(t, "https://docs.example/all")); err != nil || told.Result != nil || !strings.Contains(told.Verdict.Reason, "one is enough") {
		t.Errorf("the agent is told: %+v %v", told, err)
	}
	// Who asked for it, changes nothing of it either.
	opened, err := w.root().StartSession(ctx, client.OpenSession{AgentID: "worker", Requester: "carol"})
	if err != nil {
		t.Fatal(err)
	}
	own := w.ask(w.client(w.agent, opened.SessionToken), client.Own, "comm_exec", "https://docs.example/all")
	if _, err := carol.Modify(ctx, own.ApprovalID, own.Digest, arguments("https://docs.example/one"), "mine"); code(err) != "role.missing" {
		t.Errorf("one's own: %v", err)
	}
}

// TestOneQuestionIsWhole: what only one question has is there, and not in lists.
func TestOneQuestionIsWhole(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	c, _ := w.open("bob")
	if _, err := c.Call(ctx, client.Own, "web_search", nil); err != nil { // brings a label in
		t.Fatal(err)
	}
	q := w.ask(c, client.Own, "comm_exec", "https://docs.example/")
	if q.Consequence == "" || q.UserRequest != why.UserRequest || len(q.Held) == 0 || q.Held[0].Operation != "web.web_search" || q.Held[0].CallID == "" {
		t.Errorf("%+v", q)
	}
	page, err := w.root().Approvals(ctx, client.ApprovalQuery{})
	if err != nil || len(page.Approvals) != 1 || page.Approvals[0].Held != nil || page.Approvals[0].UserRequest != "" {
		t.Errorf("%+v %v", page, err)
	}
}

// TestQuarantine: an operator puts an agent aside and takes it back; everybody who sees agents sees it.
func TestQuarantine(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	c, _ := w.open("bob")
	op := w.client(w.admin, w.token(identity.Person, "op", identity.Operator))
	viewer := w.client(w.admin, w.token(identity.Person, "v", identity.Viewer))
	for name, bad := range map[string]struct{ id, reason, code string }{"no reason": {"worker", " ", "request.malformed"}, "nobody": {"ghost", "x", "not_found"}} {
		if _, err := op.Quarantine(ctx, bad.id, bad.reason); code(err) != bad.code {
			t.Errorf("quarantine, %s: %v", name, err)
		}
		if _, err := op.Restore(ctx, bad.id, bad.reason); code(err) != bad.code {
			t.Errorf("restore, %s: %v", name, err)
		}
	}
	if a, err := viewer.Agent(ctx, "worker"); err != nil || a.Standing != "approved" || a.Quarantine != nil {
		t.Fatalf("%+v %v", a, err)
	}
	aside, err := op.Quarantine(ctx, "worker", "asks for passwords")
	if err != nil || aside.Standing != "quarantined" || aside.Quarantine == nil || aside.Quarantine.By != "person:op" || aside.Quarantine.Reason != "asks for passwords" || aside.Quarantine.Since.IsZero() || aside.Declaration == nil {
		t.Errorf("%+v %v", aside, err)
	}
	all, err := viewer.Agents(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if (a.Standing == "quarantined") != (a.AgentID == "worker") || (a.Quarantine != nil) != (a.AgentID == "worker") {
			t.Errorf("%+v", a)
		}
	}
	if r, err := c.Call(ctx, client.Own, "think", nil); err != nil || r.Verdict.Code != "agent.quarantined" || r.Result != nil {
		t.Errorf("it calls: %+v %v", r, err)
	}
	if back, err := op.Restore(ctx, "worker", "prompt fixed"); err != nil || back.Standing != "approved" || back.Quarantine != nil {
		t.Errorf("%+v %v", back, err)
	}
	if r, err := c.Call(ctx, client.Own, "think", nil); err != nil || r.Verdict.Decision != "permit" {
		t.Errorf("restored, it calls: %+v %v", r, err)
	}
	// What holds and is not written down is said to be that.
	w.store.mu.Lock()
	w.store.full = true
	w.store.mu.Unlock()
	_, err = op.Quarantine(ctx, "worker", "odd")
	if code(err) != "store.unavailable" || !strings.Contains(err.Error(), "put aside, but only until") {
		t.Errorf("not written down: %v", err)
	}
	if a, err := viewer.Agent(ctx, "worker"); err != nil || a.Standing != "quarantined" {
		t.Errorf("%+v %v", a, err)
	}
}
