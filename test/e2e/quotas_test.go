package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/client"
)

// limited is the declaration of an agent with quotas.
func limited(id, quotas string) string {
	return declare(id, "operator", "execution", []string{"*"}, []string{"*"}) + "quotas: " + quotas + "\n"
}

// TestQuotasHold: of 64 calls at once exactly as many run as the quota has room for, over sessions and over a crash; what people see of it, and what the
// log adds up to, is the same number.
func TestQuotasHold(t *testing.T) {
	const most, callers = 40, 64
	p := newPlace(t, "upstreams: {echo: {url: \""+echoServer(t)+"\"}}\noperations: {echo.say: {sensitivity: none, effect: read}}\n",
		limited("tester", "{apiCalls: {hour: 100000, day: 40}}"), declare("free", "operator", "execution", []string{"*"}, []string{"*"}))
	w := launch(t, p)
	w.acceptDefinitions(anyDefinition)
	used := func() client.Quota {
		t.Helper()
		all, err := w.root.Quotas(t.Context(), "tester")
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range all {
			if q.Resource == "api_calls" && q.Window == "day" {
				return q
			}
		}
		t.Fatalf("%+v", all)
		return client.Quota{}
	}
	before := used()
	if before.Used != 0 || before.Limit != most {
		t.Fatalf("%+v", before)
	}
	var sessions []*mcp.ClientSession
	for range 4 {
		_, token := w.open("tester")
		sessions = append(sessions, w.connect(token, revision1125, nil))
	}
	var ran, refused atomic.Int64
	var callsDone sync.WaitGroup
	for i := range callers {
		callsDone.Go(func() {
			r, err := callTool(t.Context(), sessions[i%len(sessions)], "echo_say", map[string]any{})
			switch {
			case err != nil:
				t.Error(err)
			case r.code() == "":
				ran.Add(1)
			case r.code() == "limit.quota":
				refused.Add(1)
			default:
				t.Errorf("%s: %s", r.code(), r.text())
			}
		})
	}
	callsDone.Wait()
	now := used()
	if !now.Frees.Equal(before.Frees) {
		return // a day ended meanwhile, and another began
	}
	if ran.Load() != most || refused.Load() != callers-most || now.Used != most || now.Percent != 100 {
		t.Errorf("%d ran and %d were refused; %+v", ran.Load(), refused.Load(), now)
	}
	r := must(t, sessions[0], "echo_say", map[string]any{})
	if want := fmt.Sprintf("used 40 of 40 api_calls, free again at %s UTC", now.Frees.Format("2006-01-02 15:04")); r.code() != "limit.quota" || !strings.Contains(r.verdict.Reason, want) {
		t.Errorf("%s %q, want %q", r.code(), r.verdict.Reason, want)
	}
	_, token := w.open("free")
	if r := must(t, w.connect(token, revision1125, nil), "echo_say", map[string]any{}); r.code() != "" {
		t.Errorf("an agent without quotas: %s", r.code())
	}
	actions := map[string]int{}
	for _, e := range w.entries() {
		actions[e.Action]++
	}
	if actions["quota.80"] != 1 || actions["quota.100"] != 1 {
		t.Errorf("%d entries of 80 %%, %d of 100 %%", actions["quota.80"], actions["quota.100"])
	}
	for _, args := range [][]string{{"status"}, {"agents", "show", "tester"}} {
		if code, out, errs := cli(t, p, nil, append(args, "--data", p.data)...); code != 0 || !strings.Contains(out, "40 of 40 api_calls a day (100 %)") {
			t.Errorf("%v: %d %s%s", args, code, out, errs)
		}
	}

	w.kill()
	w = launch(t, p)
	if again := used(); again.Used != most {
		t.Errorf("after a crash: %+v", again)
	}
	_, token = w.open("tester")
	if r := must(t, w.connect(token, revision1125, nil), "echo_say", map[string]any{}); r.code() != "limit.quota" {
		t.Errorf("after a crash: %q", r.code())
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	p.verify(t)
}

// TestQuotaMessages: 80 % and 100 % of a quota are each told to people once in a window, in plain words; what was passed while nobody could be told is told at
// the next start, and a crash repeats nothing.
func TestQuotaMessages(t *testing.T) {
	hook := newReceiver(t)
	p := newPlace(t, "upstreams: {echo: {url: \""+echoServer(t)+"\"}}\noperations: {echo.say: {sensitivity: none, effect: read}}\n",
		limited("early", "{apiCalls: {day: 5}}"), limited("late", "{apiCalls: {day: 5}}"), limited("last", "{apiCalls: {day: 1}}"))
	w := launch(t, p)
	w.acceptDefinitions(anyDefinition)
	frees := func() time.Time {
		t.Helper()
		all, err := w.root.Quotas(t.Context(), "late")
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v %v", all, err)
		}
		return all[0].Frees
	}
	day := frees()
	calls := func(agent string, codes ...string) {
		t.Helper()
		_, token := w.open(agent)
		cs := w.connect(token, revision1125, nil)
		for _, want := range codes {
			if r := must(t, cs, "echo_say", map[string]any{}); r.code() != want {
				t.Fatalf("%s: %q %s, want %q", agent, r.code(), r.text(), want)
			}
		}
	}
	calls("early", "", "", "", "")
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	write(t, p.config, string(read(t, p.config))+fmt.Sprintf("notify: [{kind: webhook, url: %q, secret: %q, on: [alert]}]\n", hook.url, hook.secret))

	w = launch(t, p)
	arrives := func(words string) {
		t.Helper()
		eventually(t, 20*time.Second, words, func() bool { return hook.about(words) > 0 })
	}
	arrives("early: 80 % of 5 api_calls a day are used")
	calls("late", "", "", "")
	if n := hook.about("late: "); n != 0 {
		t.Errorf("%d messages below 80 %%", n)
	}
	calls("late", "")
	arrives("From 100 % on its calls are refused, until " + day.Format(time.RFC3339))
	arrives("late: 80 % of 5 api_calls a day are used")
	calls("late", "", "limit.quota", "limit.quota")
	arrives("late: 100 % of 5 api_calls a day are used")
	arrives("Its calls are refused until " + day.Format(time.RFC3339))
	w.kill()

	w = launch(t, p)
	calls("last", "", "limit.quota")
	arrives("last: 100 % of 1 api_calls a day are used") // what a start repeats would have come before it
	if !frees().Equal(day) {
		return // a day ended meanwhile, and another began
	}
	for words, want := range map[string]int{"early: 80 %": 1, "early: 100 %": 0, "late: 80 %": 1, "late: 100 %": 1, "last: ": 1} {
		if n := hook.about(words); n != want {
			t.Errorf("%d messages %q, want %d", n, words, want)
		}
	}
	actions := map[string]int{}
	for _, e := range w.entries() {
		actions[e.Agent+" "+e.Action]++
	}
	for what, want := range map[string]int{"early quota.80": 1, "late quota.80": 1, "late quota.100": 1, "last quota.80": 0, "last quota.100": 1} {
		if actions[what] != want {
			t.Errorf("%d entries %q, want %d", actions[what], what, want)
		}
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	p.verify(t)
}

// TestCallsOfAnAgentAreSpread: what an agent may call in a minute holds for its sessions together, and for no other agent; whoever is refused is told how
// long to wait, and is let through then.
func TestCallsOfAnAgentAreSpread(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "upstreams: {echo: {url: \""+echoServer(t)+"\"}}\noperations: {echo.say: {sensitivity: none, effect: read}}\n",
		limited("tester", "{apiCalls: {minute: 4}}"), declare("free", "operator", "execution", []string{"*"}, []string{"*"}))
	w := launch(t, p)
	w.acceptDefinitions(anyDefinition)
	sessions := map[string]*mcp.ClientSession{}
	for name, agent := range map[string]string{"one": "tester", "two": "tester", "free": "free"} {
		_, token := w.open(agent)
		sessions[name] = w.connect(token, revision1125, nil)
	}
	if r := must(t, sessions["one"], "echo_say", map[string]any{}); r.code() != "" {
		t.Fatalf("%q %s", r.code(), r.text())
	}
	for _, name := range []string{"one", "two"} {
		r := must(t, sessions[name], "echo_say", map[string]any{})
		if r.code() != "limit.rate" || !strings.Contains(r.verdict.Reason, "At most 4 calls a minute of this agent, spread evenly.") || !strings.Contains(r.text(), "Try again in ") {
			t.Errorf("session %s: %q %s", name, r.code(), r.text())
		}
	}
	limits, err := w.root.Limits(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if all := limits.Throttles; len(all) != 1 || all[0].AgentID != "tester" || all[0].CallsPerMinute != 4 || all[0].AtOnce != 1 || all[0].Next == nil {
		t.Errorf("%+v, %v", all, err)
	}
	_, token := w.open("tester")
	if m, err := w.client(w.agent, token).Manifest(t.Context(), client.Own); err != nil || len(m.Throttles) != 1 || m.Throttles[0].CallsPerMinute != 4 {
		t.Errorf("%+v, %v", m, err)
	}
	_, token = w.open("free")
	if m, err := w.client(w.agent, token).Manifest(t.Context(), client.Own); err != nil || len(m.Throttles) != 0 {
		t.Errorf("an agent reads another's: %+v, %v", m, err)
	}
	for command, want := range map[string]string{
		"status": "tester: at most 4 calls a minute, spread evenly, 1 at once; the next may run ", "agents show tester": "at most 4 calls a minute", "agents audit --evidence": "1 of them spread over their sessions",
	} {
		if _, out, errs := cli(t, p, nil, append(strings.Fields(command), "--data", p.data)...); !strings.Contains(out, want) {
			t.Errorf("%s: %s%s", command, out, errs)
		}
	}
	if page := w.pages()("/agents/tester"); !strings.Contains(page, "At most 4, spread evenly") {
		t.Error("the agent's page does not show it")
	}
	for range 3 {
		if r := must(t, sessions["free"], "echo_say", map[string]any{}); r.code() != "" {
			t.Errorf("another agent: %q %s", r.code(), r.text())
		}
	}
	eventually(t, 20*time.Second, "the next call may run", func() bool { return must(t, sessions["two"], "echo_say", map[string]any{}).code() == "" })
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	p.verify(t)
}

// TestComputeQuota: time in operations counts as it was measured, what may be used at most is set aside while a call runs, and a call ends when its agent's
// quota does.
func TestComputeQuota(t *testing.T) {
	p := newPlace(t, "upstreams: {slow: {url: \""+slowServer(t)+"\"}}\noperations: {slow.wait: {sensitivity: none, effect: read}}\n",
		limited("tester", "{computeSeconds: {day: 1}}"))
	w := launch(t, p)
	w.acceptDefinitions(anyDefinition)
	_, token := w.open("tester")
	cs := w.connect(token, revision1125, nil)
	if r := must(t, cs, "slow_wait", map[string]any{}); r.code() != "time.exceeded" {
		t.Errorf("longer than the quota: %q %s", r.code(), r.text())
	}
	if r := must(t, cs, "slow_wait", map[string]any{}); r.code() != "limit.quota" || !strings.Contains(r.text(), "compute_seconds") {
		t.Errorf("after it: %q %s", r.code(), r.text())
	}
	all, err := w.root.Quotas(t.Context(), "")
	if err != nil || len(all) != 1 || all[0].Used < 1 || all[0].Reserved != 0 {
		t.Errorf("%v %+v", err, all)
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	p.verify(t)
}

// TestQuotaSpendsNoApproval: a call that a quota refuses leaves the yes that people gave to it unspent, nobody is asked about one that can't run, and with room
// again the call runs on that yes, once.
func TestQuotaSpendsNoApproval(t *testing.T) {
	p := newPlace(t, "upstreams: {echo: {url: \""+echoServer(t)+"\"}}\noperations: {echo.say: {sensitivity: none, effect: write, level: 2, risk: HIGH}}\napprovals: {hold: 1s}\n",
		limited("tester", "{apiCalls: {day: 1}}"))
	w := launch(t, p)
	w.acceptDefinitions(anyDefinition)
	_, first := w.open("tester")
	_, second := w.open("tester")
	one, two := w.connect(first, revision1125, nil), w.connect(second, revision1125, nil)
	ask := func(cs *mcp.ClientSession) string {
		t.Helper()
		r := must(t, cs, "echo_say", map[string]any{})
		if r.code() != "approval.required" || r.verdict.ApprovalID == nil {
			t.Fatalf("%q %s", r.code(), r.text())
		}
		a, err := w.root.Approval(t.Context(), *r.verdict.ApprovalID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.root.Approve(t.Context(), a.ApprovalID, a.Digest, ""); err != nil {
			t.Fatal(err)
		}
		return a.ApprovalID
	}
	ask(one)
	unspent := ask(two)
	if r := must(t, one, "echo_say", map[string]any{}); r.code() != "" {
		t.Fatalf("%q %s", r.code(), r.text())
	}
	if r := must(t, two, "echo_say", map[string]any{}); r.code() != "limit.quota" {
		t.Errorf("%q %s", r.code(), r.text())
	}
	if a, err := w.root.Approval(t.Context(), unspent); err != nil || a.State != "approved" {
		t.Errorf("%v %s", err, a.State)
	}
	write(t, filepath.Join(p.dir, "agents", "a0.yaml"), limited("tester", "{apiCalls: {day: 3}}"))
	if _, err := w.root.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.approveAgents()
	if r := must(t, two, "echo_say", map[string]any{}); r.code() != "" {
		t.Errorf("with room again: %q %s", r.code(), r.text())
	}
	if a, err := w.root.Approval(t.Context(), unspent); err != nil || a.State != "spent" {
		t.Errorf("%v %s", err, a.State)
	}
	if r := must(t, two, "echo_say", map[string]any{}); r.code() != "approval.required" {
		t.Errorf("one yes for two calls: %q %s", r.code(), r.text())
	}
	w.sane()
}

// TestUnknownOutcomeKeepsItsQuota: of a write whose server dies it is known how long it took, and that counts. Of one in which the gateway dies nothing is known: what was set aside for it stays so, over starts.
func TestUnknownOutcomeKeepsItsQuota(t *testing.T) {
	arrived, release := make(chan struct{}, 2), make(chan struct{})
	defer close(release)
	crm := &scripted{tools: plainTools("put"), answer: says("fine"), write: func(w http.ResponseWriter, m message) bool {
		if m.Method != "tools/call" {
			return false
		}
		arrived <- struct{}{}
		if strings.Contains(string(m.Params.Arguments), "hang") {
			<-release
		}
		panic(http.ErrAbortHandler) // the connection breaks
	}}
	p := newPlace(t, fmt.Sprintf("upstreams: {crm: {url: %q}}\noperations: {crm.put: {sensitivity: none, effect: write, level: 1, output: trusted, args: {}}}\n", crm.url(t)), limited("tester", "{apiCalls: {day: 10}, computeSeconds: {day: 600}}"))
	w := launch(t, p)
	token := w.token("tester")
	call := func(arguments string) (string, error) {
		a, err := w.client(w.agent, token).Call(context.Background(), client.Own, "crm_put", json.RawMessage(arguments))
		if err != nil {
			return "", err
		}
		return a.Verdict.Code, nil
	}
	use := func() (calls, seconds client.Quota) {
		t.Helper()
		all, err := w.root.Quotas(t.Context(), "tester")
		if err != nil || len(all) != 2 {
			t.Fatalf("%+v %v", all, err)
		}
		if all[0].Resource == "compute_seconds" {
			all[0], all[1] = all[1], all[0]
		}
		return all[0], all[1]
	}
	day, _ := use()
	if code, err := call(`{}`); err != nil || code != "upstream.failed" {
		t.Fatalf("%s %v", code, err)
	}
	<-arrived
	calls, seconds := use()
	if calls.Used != 1 || seconds.Reserved != 0 || seconds.Used > 60 {
		t.Errorf("its server died: %+v %+v", calls, seconds)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = call(`{"q":"hang"}`)
	}()
	<-arrived
	_, under := use()
	w.kill()
	<-done
	for _, start := range []string{"after the crash", "after another start"} {
		w = launch(t, p)
		calls, seconds = use()
		if !calls.Frees.Equal(day.Frees) {
			return // a day ended meanwhile, and another began
		}
		if under.Reserved <= 0 || seconds.Reserved != under.Reserved || calls.Used != 2 {
			t.Errorf("%s: %+v %+v, before it %+v", start, calls, seconds, under)
		}
		if err := w.stop(); err != nil {
			t.Fatal(err)
		}
	}
	p.verify(t)
}

// TestRefusalsTakeNoStep: a call that a breaker or a quota refuses leaves the step of the plan that it would have been, and takes it once it may run.
func TestRefusalsTakeNoStep(t *testing.T) {
	var down atomic.Bool
	mail := &scripted{tools: plainTools("list", "delete"), answer: func(m message) string {
		if m.Params.Name == "list" {
			return says(`[{"id": "m1", "body": "Monday"}, {"id": "m2", "body": "Tuesday"}]`)(m)
		}
		return says("deleted")(m)
	}, write: func(w http.ResponseWriter, m message) bool {
		if m.Method != "tools/call" || !down.Load() {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}}
	declared := func(most int) string {
		return declare("tester", "operator", "planning", []string{"*"}, []string{"*"}) + fmt.Sprintf("quotas: {apiCalls: {day: %d}}\n", most)
	}
	p := newPlace(t, people+fmt.Sprintf("upstreams:\n  mail: {url: %q}\n", mail.url(t))+`operations:
  mail.list:   {expose_as: list, sensitivity: internal_source, effect: read, id_kind: mail, trusted_fields: [id]}
  mail.delete: {expose_as: delete, sensitivity: none, id_kind: mail, args: {id: selector}}
breakers: {failures: 2, wait: 5m}
`, declared(4))
	w := launch(t, p)
	w.acceptDefinitions(anyDefinition)
	id, token := w.openFor("Delete everything.", "bob")
	other, otherToken := w.openFor("Look.", "bob")
	const list = `{"tool": "list", "arguments": {}, "justification": "to see what there is"}`
	for session, plan := range map[string][2]string{
		id:    {token, list + `, {"tool": "delete", "from": {"id": {"step": 0, "field": "id"}}, "each": 0, "justification": "each mail is deleted once it was read"}`},
		other: {otherToken, list},
	} {
		if status, body := w.post("/v1/session/"+session+"/plan", plan[0], `{"steps": [`+plan[1]+`]}`, nil); !strings.Contains(string(body), `"approved"`) {
			t.Fatalf("%d %s", status, body)
		}
	}
	call := func(session, token, tool, arguments, want string) {
		t.Helper()
		a, err := w.client(w.agent, token).Call(t.Context(), session, tool, json.RawMessage(arguments))
		if err != nil {
			t.Fatal(err)
		}
		if got := cmp.Or(a.Verdict.Code, a.Verdict.Decision); got != want {
			t.Fatalf("%s %s: %+v, want %s", tool, arguments, a.Verdict, want)
		}
	}
	call(id, token, "list", `{}`, "permit")
	down.Store(true)
	for range 2 {
		call(other, otherToken, "list", `{}`, "upstream.failed")
	}
	down.Store(false)
	for range 2 {
		call(id, token, "delete", `{"id": "m2"}`, "breaker.open")
	}
	if _, err := w.root.ResetBreaker(t.Context(), "tester@mail", "it is mended"); err != nil {
		t.Fatal(err)
	}
	call(id, token, "delete", `{"id": "m2"}`, "permit")
	for range 2 {
		call(id, token, "delete", `{"id": "m1"}`, "limit.quota")
	}
	write(t, filepath.Join(p.dir, "agents", "a0.yaml"), declared(100))
	if _, err := w.root.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.approveAgents()
	call(id, token, "delete", `{"id": "m1"}`, "permit")
	call(id, token, "delete", `{"id": "m1"}`, "approval.required") // each step once
	w.sane()
}

// slowServer is a server with a tool that ends only when it is cancelled.
func slowServer(t testing.TB) string {
	s := newServer("slow")
	tool(s, "wait", "Waits.", func(ctx context.Context, _ json.RawMessage) (*mcp.CallToolResult, error) {
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Second):
		}
		return text("over"), nil
	})
	return serve(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
}

// TestQuotaRacedOverACrash: the gateway dies while 64 callers race for a quota, and they go on with the one that starts then. No more calls than the quota has room for
// reach the server in all, and no more are counted.
func TestQuotaRacedOverACrash(t *testing.T) {
	t.Parallel()
	const most, callers = 300, 64
	crm := &scripted{tools: plainTools("get"), answer: func(message) string {
		time.Sleep(5 * time.Millisecond)
		return says("fine")(message{})
	}}
	p := newPlace(t, fmt.Sprintf("upstreams: {crm: {url: %q}}\noperations: {crm.get: {sensitivity: none, effect: read, output: trusted}}\n", crm.url(t)), limited("tester", "{apiCalls: {day: 300}}"))
	w := launch(t, p)
	w.acceptDefinitions(anyDefinition)
	use := func() client.Quota {
		t.Helper()
		all, err := w.root.Quotas(t.Context(), "tester")
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v %v", all, err)
		}
		return all[0]
	}
	day := use().Frees
	token := w.token("tester")
	race := func(stop <-chan struct{}) *sync.WaitGroup {
		agent, done := w.client(w.agent, token), &sync.WaitGroup{}
		for range callers {
			done.Go(func() {
				for {
					a, err := agent.Call(context.Background(), client.Own, "crm_get", json.RawMessage(`{}`))
					if err == nil && a.Verdict.Code == "limit.quota" {
						return
					}
					select {
					case <-stop:
						return
					default:
					}
				}
			})
		}
		return done
	}
	dead := make(chan struct{})
	racing := race(dead)
	eventually(t, 20*time.Second, "calls are under way", func() bool { return len(crm.calls()) >= most/4 })
	w.kill()
	close(dead)
	racing.Wait()
	before := len(crm.calls())
	w = launch(t, p)
	counted := int(use().Used)
	t.Logf("%d calls had reached the server at the crash, %d are counted", before, counted)
	if use().Frees.Equal(day) && (before > counted || counted > most) {
		t.Errorf("%d calls reached the server before the crash, and %d are counted", before, counted)
	}
	race(make(chan struct{})).Wait()
	if !use().Frees.Equal(day) {
		return // a day ended meanwhile, and another began
	}
	intents := 0
	for _, e := range w.entries() {
		if e.Kind == "intent" {
			intents++
		}
	}
	if all := len(crm.calls()); use().Used != most || intents != most || all > most || all < most-counted {
		t.Errorf("%d calls reached the server, %d of them before the crash; %d intents; %+v", all, before, intents, use())
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	p.verify(t)
}
