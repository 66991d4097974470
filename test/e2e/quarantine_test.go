package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"sallyport.example/client"
)

// An operator's rule puts an agent in quarantine for what it writes, and not for what it reads; a reload puts the rule in force, a crash forgets nothing, and a person restores the agent.
func TestQuarantineByHits(t *testing.T) {
	crm := &scripted{tools: plainTools("get"), answer: says(ordersAgent)}
	config := fmt.Sprintf("upstreams:\n  crm: {url: %q}\noperations:\n  crm.get: {sensitivity: none, effect: read, output: untrusted}\nthreat: {input: deny}\n", crm.url(t))
	p := newPlace(t, config, declaration("tester"), declaration("second"))
	w := launch(t, p)
	tokens := map[string]string{"tester": w.token("tester"), "second": w.token("second")}
	call := func(agent, arguments string) string {
		t.Helper()
		a, err := w.client(w.agent, tokens[agent]).Call(t.Context(), client.Own, "crm_get", json.RawMessage(arguments))
		if err != nil {
			t.Fatal(err)
		}
		return a.Verdict.Code
	}
	bad := `{"q":"` + ordersAgent + `"}`
	for range 4 {
		if code := call("tester", bad); code != "threat.injection" {
			t.Fatalf("without a rule: %s", code)
		}
	}
	b, err := os.ReadFile(p.config)
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range []string{"hits_written: -1", "hits_written: 3"} {
		if err := os.WriteFile(p.config, []byte(string(b)+"quarantine: {"+rule+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := w.root.Reload(t.Context())
		if good := rule == "hits_written: 3"; (err == nil) != good || !good && !strings.Contains(err.Error(), "quarantine.hits_written") {
			t.Fatalf("%s: %v", rule, err)
		}
	}
	for range 5 { // its results are full of orders
		if code := call("second", `{}`); code != "" {
			t.Fatalf("what it reads: %s", code)
		}
	}
	for range 2 {
		call("tester", bad)
	}
	w.kill()
	w = launch(t, p)
	if code := call("tester", bad); code != "agent.quarantined" { // four of before the reload are in the log, too
		if code = call("tester", `{}`); code != "agent.quarantined" {
			t.Errorf("after the third: %s", code)
		}
	}
	if code := call("second", `{}`); code != "" {
		t.Errorf("another agent: %s", code)
	}
	last := w.recorded("agent.quarantine")
	if len(last) != 1 || last[0].Actor != "rule:hits_written" || last[0].Agent != "tester" || !strings.Contains(last[0].Reason, "3 times what it wrote") {
		t.Fatalf("%+v", last)
	}
	if _, err := w.root.Restore(t.Context(), "tester", "the prompt is fixed"); err != nil {
		t.Fatal(err)
	}
	if code := call("tester", `{}`); code != "" {
		t.Errorf("restored: %s", code)
	}
	w.sane()
}

// What an agent says to a model counts for the rule, once; what it read does not, whoever says it again, and is on record as a warning. A crash forgets nothing.
func TestQuarantineByMessages(t *testing.T) {
	p := newModelProvider(t)
	place := newPlace(t, p.config("[]")+"quarantine: {hits_written: 2}\n", thinker("writer"), thinker("reader"))
	w := launch(t, place)
	f := modelForms["messages"]
	tokens := map[string]string{"writer": w.token("writer"), "reader": w.token("reader")}
	ask := func(agent, message string, more ...string) int {
		t.Helper()
		body := `{"model":"` + claude + `","max_tokens":16,"messages":[` + message + `]` + strings.Join(more, "") + `}`
		status, _ := w.post(f.path, tokens[agent], body, nil)
		return status
	}
	user := func(words string) string { return `{"role":"user","content":` + quote(words) + `}` }
	result := func(words string) string {
		return user("Hi.") + `,{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"x","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":` + quote(words) + `}]}`
	}
	for i := range 4 { // different ones: each is new
		if status := ask("reader", result(fmt.Sprintf("%s %d", ordersAgent, i))); status != 200 {
			t.Fatalf("what a tool answered: %d", status)
		}
		tools := fmt.Sprintf(`,"tools":[{"name":"x%d","description":%s,"input_schema":{"type":"object"}}]`, i, quote(ordersAgent))
		if status := ask("reader", user("Hi."), tools); status != 200 {
			t.Fatalf("what a server says of its tool: %d", status)
		}
	}
	read := 0
	for _, e := range w.entries() {
		if e.Agent == "reader" && e.Event == "threat.hit" {
			if read++; e.Severity != "warning" || strings.Contains(string(e.Detail), `"wrote"`) {
				t.Errorf("%s %s", e.Severity, e.Detail)
			}
		}
	}
	if read < 4 {
		t.Errorf("%d hits in what it read are on record", read)
	}
	for range 3 { // the same conversation goes on
		if status := ask("writer", user(ordersAgent)); status != 200 {
			t.Fatalf("the first: %d", status)
		}
	}
	w.kill()
	w = launch(t, place)
	if status := ask("reader", user("Hi.")); status != 200 {
		t.Errorf("who only read: %d", status)
	}
	ask("writer", user(ordersAgent+" Now."))
	if status := ask("writer", user("Hi.")); status != 403 {
		t.Errorf("after the second: %d", status)
	}
	last := w.recorded("agent.quarantine")
	if len(last) != 1 || last[0].Actor != "rule:hits_written" || last[0].Agent != "writer" {
		t.Fatalf("%+v", last)
	}
	w.sane()
}

// With every rule at one, what the gateway refuses, a person's no and hits in what an agent reads put it in quarantine never: people are told of such hits
// instead, once. One hit in what it writes does.
func TestWhatNeverQuarantines(t *testing.T) {
	hook := newReceiver(t)
	crm := &scripted{tools: plainTools("get", "pay"), answer: says(ordersAgent)}
	config := fmt.Sprintf("upstreams:\n  crm: {url: %q}\noperations:\n  crm.get: {sensitivity: none, effect: read, output: untrusted}\n  crm.pay: {sensitivity: none, effect: write, level: 2, risk: HIGH, args: {}}\n", crm.url(t)) +
		"threat: {input: deny}\nquarantine: {breaker_openings: 1, failed_runs: 1, invalid_outputs: 1, hits_written: 1}\napprovals: {hold: 10ms}\n" +
		fmt.Sprintf("notify: [{kind: webhook, url: %q, secret: %q, on: [alert]}]\n", hook.url, hook.secret)
	p := newPlace(t, config, declare("tester", "operator", "execution", []string{"crm.get"}, []string{"crm.pay"})+"quotas: {apiCalls: {day: 8}}\n", declaration("writer"))
	w := launch(t, p)
	token := w.token("tester")
	call := func(tool, arguments string) client.Verdict {
		t.Helper()
		a, err := w.client(w.agent, token).Call(t.Context(), client.Own, tool, json.RawMessage(arguments))
		if err != nil {
			t.Fatal(err)
		}
		return a.Verdict
	}
	for i := range 7 {
		pays := fmt.Sprintf(`{"q":"invoice %d"}`, i)
		asked := call("crm_pay", pays)
		if asked.ApprovalID == nil {
			t.Fatalf("%+v", asked)
		}
		q, err := w.root.Approval(t.Context(), *asked.ApprovalID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.root.Reject(t.Context(), q.ApprovalID, q.Digest, "no"); err != nil {
			t.Fatal(err)
		}
		if v := call("crm_pay", pays); v.Code != "approval.rejected" {
			t.Fatalf("%+v", v)
		}
		for tool, arguments := range map[string]string{"crm_none": `{}`, "comm_fetch": `{"url":"https://example.com/"}`} {
			if v := call(tool, arguments); v.Decision != "deny" {
				t.Fatalf("%s %s: %+v", tool, arguments, v)
			}
		}
		if _, err := w.client(w.agent, token).Call(t.Context(), client.Own, "crm_get", json.RawMessage(`[1]`)); err == nil {
			t.Fatal("arguments that are no object are taken")
		}
	}
	for i := range 10 {
		v := call("crm_get", `{}`)
		if want := map[bool]string{true: "", false: "limit.quota"}[i < 8]; v.Code != want {
			t.Fatalf("read %d: %+v", i, v)
		}
	}
	eventually(t, 20*time.Second, "people are told", func() bool { return hook.about("Something that tester read looks like orders to an agent") == 1 })
	if all := w.recorded("agent.quarantine"); len(all) > 0 {
		t.Fatalf("%+v", all)
	}
	token = w.token("writer")
	call("crm_pay", `{"q":"`+ordersAgent+`"}`)
	if all := w.recorded("agent.quarantine"); len(all) != 1 || all[0].Actor != "rule:hits_written" || all[0].Agent != "writer" {
		t.Errorf("%+v", all)
	}
	if v := call("crm_get", `{}`); v.Code != "agent.quarantined" {
		t.Errorf("%+v", v)
	}
	eventually(t, 20*time.Second, "people are told of the quarantine", func() bool { return hook.about("The agent writer was quarantined") == 1 })
	if n := hook.about("looks like orders to an agent"); n > 2 { // two where an hour began meanwhile
		t.Errorf("%d messages about what it read", n)
	}
	w.sane()
}

// Without any rule in the configuration, an agent whose own circuit breaker opens for the third time in an hour is put in quarantine, and no other agent is. Openings of
// before a crash count, and people's resets forgive none. It is on record, people are told, and a person restores it.
func TestQuarantineByOpenings(t *testing.T) {
	hook := newReceiver(t)
	upstreams, operations := "upstreams:\n", "operations:\n"
	for _, id := range []string{"one", "two", "fine"} {
		s := &scripted{tools: plainTools("get"), answer: says("fine"), write: func(w http.ResponseWriter, m message) bool {
			if m.Method != "tools/call" || !strings.Contains(string(m.Params.Arguments), "bad") {
				return false
			}
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}}
		upstreams += fmt.Sprintf("  %s: {url: %q}\n", id, s.url(t))
		operations += "  " + id + ".*: {sensitivity: none, effect: read, output: trusted}\n"
	}
	p := newPlace(t, upstreams+operations+fmt.Sprintf("breakers: {failures: 2, wait: 5m}\nnotify: [{kind: webhook, url: %q, secret: %q, on: [alert]}]\n", hook.url, hook.secret), declaration("tester"), declaration("second"))
	w := launch(t, p)
	tokens := map[string]string{"tester": w.token("tester"), "second": w.token("second")}
	call := func(agent, tool, arguments string) string {
		t.Helper()
		a, err := w.client(w.agent, tokens[agent]).Call(t.Context(), client.Own, tool, json.RawMessage(arguments))
		if err != nil {
			t.Fatal(err)
		}
		return a.Verdict.Code
	}
	const good, bad = `{}`, `{"q":"bad"}`
	for opening := 1; opening <= 3; opening++ {
		for _, tool := range []string{"one_get", "one_get", "two_get", "two_get"} {
			if code := call("tester", tool, bad); code != "upstream.failed" {
				t.Fatalf("opening %d: %s", opening, code)
			}
		}
		want := map[bool]string{false: "breaker.open", true: "agent.quarantined"}[opening == 3]
		if code := call("tester", "fine_get", good); code != want {
			t.Fatalf("after opening %d: %s", opening, code)
		}
		all, err := w.root.Breakers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range all {
			if b.State == "open" {
				if _, err := w.root.ResetBreaker(t.Context(), b.Name, "once more"); err != nil {
					t.Fatal(err)
				}
			}
		}
		if opening == 3 {
			eventually(t, 20*time.Second, "people are told", func() bool { return hook.about("The agent tester was quarantined") == 1 })
		}
		w.kill()
		w = launch(t, p)
	}
	if code := call("tester", "fine_get", good); code != "agent.quarantined" {
		t.Errorf("after a crash, with its breakers closed: %q", code)
	}
	if code := call("second", "fine_get", good); code != "" {
		t.Errorf("another agent: %s", code)
	}
	last := w.recorded("agent.quarantine")
	if len(last) != 1 || last[0].Actor != "rule:breaker" || last[0].Agent != "tester" || !strings.Contains(last[0].Reason, "its circuit breaker opened 3 times within an hour") {
		t.Fatalf("%+v", last)
	}
	a, err := w.root.Agent(t.Context(), "tester")
	if err != nil || a.Quarantine == nil || a.Quarantine.By != "rule:breaker" {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := w.root.Restore(t.Context(), "tester", "the prompt is fixed"); err != nil {
		t.Fatal(err)
	}
	if code := call("tester", "fine_get", good); code != "" {
		t.Errorf("restored: %s", code)
	}
	w.sane()
}

// The operator's rules for runs: an agent is put in quarantine for runs that fail, and by another rule for outputs that are invalid. Each counts its own kind, over a crash; a person who restores the agent begins both counts anew.
func TestQuarantineByRuns(t *testing.T) {
	w, _, _ := onDuty(t, "breakers: {failures: 50}\nquarantine: {failed_runs: 2, invalid_outputs: 3}\n", advisor(program(t), 20_000))
	carol, err := w.root.CreateToken(t.Context(), client.NewToken{Kind: "person", ID: "carol", Roles: []string{"operator"}})
	if err != nil {
		t.Fatal(err)
	}
	ends := func(want string, modes ...string) {
		t.Helper()
		for _, mode := range modes {
			if r := runToEnd(t, w.client(w.admin, carol.Secret), runInput(mode)); r.Status != want {
				t.Fatalf("%s: %s, want %s: %+v", mode, r.Status, want, r.Verdict)
			}
		}
	}
	aside := func(actor, reason string, times int) {
		t.Helper()
		_, err := w.client(w.admin, carol.Secret).StartRun(t.Context(), "incident-advisor", client.RunRequest{Input: runInput("advise")})
		if problemCode(err) != "agent.quarantined" {
			t.Errorf("%s: a run: %v", actor, err)
		}
		all := w.recorded("agent.quarantine")
		if len(all) != times || all[times-1].Actor != actor || all[times-1].Agent != "incident-advisor" || !strings.Contains(all[times-1].Reason, reason) {
			t.Fatalf("%s: %+v", actor, all)
		}
		if _, err := w.root.Restore(t.Context(), "incident-advisor", "it is mended"); err != nil {
			t.Fatal(err)
		}
	}
	ends("invalid", "text", "text")
	ends("failed", "crash")
	ends("done", "advise") // which forgives none
	if all := w.recorded("agent.quarantine"); len(all) > 0 {
		t.Fatalf("before any rule is met: %+v", all)
	}
	w.kill()
	w = launch(t, w.place)
	ends("failed", "crash")
	aside("rule:failed_runs", "2", 1)
	ends("invalid", "text", "text")
	ends("failed", "crash")
	ends("invalid", "text")
	aside("rule:invalid_outputs", "3", 2)
	ends("done", "advise")
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.place.verify(t)
}
