package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"sallyport.example/client"
)

// Two servers, and one of them takes the calls that the other failed: reads whatever became of them, writes where they were certainly not sent, and what a
// person approved where the person was shown both. The record has both attempts, and is whole.
func TestAServerInThePlaceOfAnother(t *testing.T) {
	var crmFails, spareFails atomic.Bool
	broken := func(fails *atomic.Bool) func(http.ResponseWriter, message) bool {
		return func(w http.ResponseWriter, m message) bool {
			if m.Method != "tools/call" || !fails.Load() {
				return false
			}
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
	}
	main := &scripted{tools: plainTools("get", "put", "pay"), answer: says("from crm"), write: broken(&crmFails)}
	spare := &scripted{tools: plainTools("get", "put", "pay"), answer: says("from spare"), write: broken(&spareFails)}
	crm := httptest.NewServer(main)
	t.Cleanup(crm.Close)
	config := fmt.Sprintf("people: [{id: admin, roles: [admin]}, {id: bob, roles: [approver]}]\nupstreams:\n  crm: {url: %q, timeout: 2s, fallback: spare}\n  spare: {url: %q, timeout: 2s}\noperations:\n", crm.URL, spare.url(t))
	for _, id := range []string{"crm", "spare"} {
		config += fmt.Sprintf("  %[1]s.get: {sensitivity: none, effect: read, output: untrusted}\n  %[1]s.put: {sensitivity: none, effect: write, level: 1, output: trusted, args: {}}\n  %[1]s.pay: {sensitivity: none, effect: write, level: 1, output: trusted, risk: HIGH, args: {}}\n", id)
	}
	p := newPlace(t, config+"breakers: {failures: 100}\n", declaration("tester"), declare("narrow", "operator", "execution", []string{"crm.*"}, []string{"crm.*"}))
	w := launch(t, p)
	call := func(agent, tool string) *client.CallAnswer {
		t.Helper()
		a, err := w.client(w.agent, w.token(agent)).Call(t.Context(), client.Own, tool, json.RawMessage(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	check := func(what, agent, tool, want string, crm, other int) *client.CallAnswer {
		t.Helper()
		before := [2]int{len(main.calls()), len(spare.calls())}
		a := call(agent, tool)
		if got := [2]int{len(main.calls()) - before[0], len(spare.calls()) - before[1]}; got != [2]int{crm, other} || a.Verdict.Code != want && !(a.Result != nil && strings.Contains(string(a.Result), want)) {
			t.Errorf("%s: calls %d: %+v %s", what, got, a.Verdict, a.Result)
		}
		return a
	}
	check("what the other server may not be asked", "narrow", "crm_put", "permission.denied", 0, 0)
	check("a write", "tester", "crm_put", "from crm", 1, 0)
	crmFails.Store(true)
	check("a write that may have had its effect", "tester", "crm_put", "upstream.failed", 1, 0)
	if a := check("a read", "tester", "crm_get", "from spare", 1, 1); !strings.Contains(a.Verdict.Reason, "spare_get served the call") || !strings.Contains(string(a.Result), "spare.get") {
		t.Errorf("nothing says who answered: %+v %s", a.Verdict, a.Result)
	}
	spareFails.Store(true)
	if a := check("both", "tester", "crm_get", "fallback.failed", 1, 1); len(a.Verdict.Because) != 2 || a.Verdict.Because[0].Code != "upstream.failed" || a.Verdict.Because[1].Code != "upstream.failed" {
		t.Errorf("%+v", a.Verdict)
	}
	spareFails.Store(false)

	bob := w.person("bob", "approver")
	asked := call("tester", "crm_pay")
	if asked.Verdict.ApprovalID == nil {
		t.Fatalf("%+v", asked.Verdict)
	}
	q, err := bob.Approval(t.Context(), *asked.Verdict.ApprovalID)
	if err != nil || !slices.ContainsFunc(q.Reasons, func(r client.ApprovalReason) bool {
		return r.Code == "fallback" && strings.Contains(r.Text, "spare.pay gets the same call") && strings.Contains(r.Text, "Does it.")
	}) {
		t.Fatalf("%+v, %v", q.Reasons, err)
	}
	if _, err := bob.Approve(t.Context(), q.ApprovalID, q.Digest, ""); err != nil {
		t.Fatal(err)
	}
	crm.CloseClientConnections()
	crm.Close()
	for range 3 { // a connection that was open may fail once otherwise
		if check("a write that can't be sent", "tester", "crm_get", "from spare", 0, 1); t.Failed() {
			return
		}
	}
	check("an approved write that can't be sent", "tester", "crm_pay", "from spare", 0, 1)
	if a := call("tester", "crm_pay"); a.Verdict.ApprovalID == nil || *a.Verdict.ApprovalID == *asked.Verdict.ApprovalID {
		t.Errorf("one yes for two calls: %+v", a.Verdict)
	}

	of := map[string]string{}
	for _, e := range w.entries() {
		if of[e.CallID] = e.Operation; e.Kind == "intent" {
			var detail struct {
				Of string `json:"fallback_of"`
			}
			if b, _ := json.Marshal(e.Detail); json.Unmarshal(b, &detail) == nil && strings.HasPrefix(e.Operation, "spare.") && of[detail.Of] != strings.Replace(e.Operation, "spare", "crm", 1) {
				t.Errorf("%s has no call that failed: %+v", e.Operation, e)
			}
		}
	}
	w.kill()
	if code, out, errs := cli(t, p, nil, "audit", "verify", "--data", p.data); code != 0 {
		t.Errorf("verify: %d\n%s%s", code, out, errs)
	}
}

// What people approved goes to no other server than the one that they were shown, and to that one only as they were shown it: with another definition of its tool, and with
// another server in the configuration, they are asked again, about what would be called now.
func TestAnotherFallbackIsAskedAbout(t *testing.T) {
	unavailable := func(w http.ResponseWriter, m message) bool {
		if m.Method == "tools/call" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return m.Method == "tools/call"
	}
	first := &scripted{tools: plainTools("pay", "get"), answer: says("from crm"), write: unavailable}
	described := "Does it."
	spare := &scripted{answer: says("from spare"), tools: func(int) string {
		return fmt.Sprintf(`[{"name":"pay","description":%s,"inputSchema":{"type":"object"}},{"name":"get","description":"Does it.","inputSchema":{"type":"object"}}]`, quote(described))
	}}
	third := &scripted{tools: plainTools("pay", "get"), answer: says("from third")}
	config := fmt.Sprintf("people: [{id: admin, roles: [admin]}, {id: bob, roles: [approver]}]\nupstreams:\n  crm: {url: %q, timeout: 2s, fallback: spare}\n  spare: {url: %q, timeout: 2s}\n  third: {url: %q, timeout: 2s}\noperations:\n", first.url(t), spare.url(t), third.url(t))
	for _, id := range []string{"crm", "spare", "third"} {
		config += fmt.Sprintf("  %[1]s.pay: {sensitivity: none, effect: read, output: trusted, risk: HIGH, args: {}}\n  %[1]s.get: {sensitivity: none, effect: read, output: trusted}\n", id)
	}
	p := newPlace(t, config+"breakers: {failures: 100}\n")
	w := launch(t, p)
	w.acceptDefinitions(anyDefinition)
	token := w.token("tester")
	bob, err := w.root.CreateToken(t.Context(), client.NewToken{Kind: "person", ID: "bob", Roles: []string{"approver"}})
	if err != nil {
		t.Fatal(err)
	}
	call := func(arguments string) client.Verdict {
		t.Helper()
		a, err := w.client(w.agent, token).Call(t.Context(), client.Own, "crm_pay", json.RawMessage(arguments))
		if err != nil {
			t.Fatal(err)
		}
		return a.Verdict
	}
	// approve has a person approve the call, and says what the person was shown.
	approve := func(v client.Verdict) (shown string) {
		t.Helper()
		if v.ApprovalID == nil {
			t.Fatalf("nobody is asked: %+v", v)
		}
		q, err := w.client(w.admin, bob.Secret).Approval(t.Context(), *v.ApprovalID)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range q.Reasons {
			if r.Code == "fallback" {
				shown = r.Text
			}
		}
		if _, err := w.client(w.admin, bob.Secret).Approve(t.Context(), q.ApprovalID, q.Digest, ""); err != nil {
			t.Fatal(err)
		}
		return shown
	}
	served := func(what string, want [3]int) {
		t.Helper()
		if got := [3]int{len(first.calls()), len(spare.calls()), len(third.calls())}; got != want {
			t.Errorf("%s: calls of crm, spare and third: %d, want %d", what, got, want)
		}
	}
	if shown := approve(call(`{"n":1}`)); !strings.Contains(shown, "spare.pay gets the same call") {
		t.Errorf("shown: %s", shown)
	}
	if v := call(`{"n":1}`); v.Decision != "permit" || !strings.Contains(v.Reason, "spare_pay served the call") {
		t.Errorf("as shown: %+v", v)
	}
	served("as shown", [3]int{1, 1, 0})

	asked := call(`{"n":2}`)
	approve(asked)
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	described = "Does more."
	w = launch(t, p)
	if v := call(`{"n":2}`); v.Decision == "permit" {
		t.Errorf("a definition that nobody accepted: %+v", v)
	}
	w.acceptDefinitions(anyDefinition)
	again := call(`{"n":2}`)
	if again.ApprovalID == nil || *again.ApprovalID == *asked.ApprovalID {
		t.Fatalf("another definition: %+v", again)
	}
	served("another definition", [3]int{1, 1, 0})
	if shown := approve(again); !strings.Contains(shown, "Does more.") {
		t.Errorf("shown: %s", shown)
	}

	write(t, p.config, strings.Replace(string(read(t, p.config)), "fallback: spare", "fallback: third", 1))
	if _, err := w.root.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := call(`{"n":2}`)
	if other.ApprovalID == nil || *other.ApprovalID == *again.ApprovalID {
		t.Fatalf("another server: %+v", other)
	}
	served("another server", [3]int{1, 1, 0})
	if shown := approve(other); !strings.Contains(shown, "third.pay gets the same call") {
		t.Errorf("shown: %s", shown)
	}
	if v := call(`{"n":2}`); v.Decision != "permit" || !strings.Contains(v.Reason, "third_pay served the call") {
		t.Errorf("as shown then: %+v", v)
	}
	served("as shown then", [3]int{2, 1, 1})
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	p.verify(t)
}
