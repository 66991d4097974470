package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.example/client"
	"sallyport.example/internal/sandbox"
)

// A server goes away: after five calls that could not be sent its breaker is open for every agent, over a crash of the gateway, and a person closes it. An
// agent that depends on one that is quarantined keeps what its declaration says.
func TestADeadServerOpensItsBreaker(t *testing.T) {
	crm := httptest.NewServer(&scripted{tools: plainTools("get"), answer: says("fine")})
	t.Cleanup(crm.Close)
	other := &scripted{tools: plainTools("get"), answer: says("fine")}
	p := newPlace(t, fmt.Sprintf("upstreams:\n  crm: {url: %q, timeout: 2s}\n  other: {url: %q}\noperations:\n  crm.*: {sensitivity: none, effect: read, output: trusted}\n  other.*: {sensitivity: none, effect: read, output: trusted}\nbreakers: {wait: 5m}\n",
		crm.URL, other.url(t)), declaration("tester"), declaration("second")+"dependsOn: [tester]\ndegraded: [other.get]\n")
	w := launch(t, p)
	first, second := w.token("tester"), w.token("second")
	call := func(token, tool string) *client.CallAnswer {
		t.Helper()
		a, err := w.client(w.agent, token).Call(t.Context(), client.Own, tool, json.RawMessage(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, token := range []string{first, second} {
		if a := call(token, "crm_get"); a.Result == nil {
			t.Fatalf("%+v", a)
		}
	}
	crm.CloseClientConnections()
	crm.Close()
	refused := 0
	for range 12 { // a call that was under way, and what the connection had, may end otherwise
		if call(first, "crm_get").Verdict.Code == "breaker.open" {
			refused++
		}
	}
	if refused < 5 {
		t.Fatalf("%d of 12 calls were refused by a breaker", refused)
	}
	open := func() (names []string) {
		t.Helper()
		all, err := w.root.Breakers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range all {
			if b.State == "open" {
				names = append(names, b.Name)
			}
		}
		return names
	}
	before := open()
	if !slices.Contains(before, "tester@crm") {
		t.Fatalf("open: %q", before)
	}
	if a := call(first, "other_get"); a.Result == nil {
		t.Errorf("another server is refused, too: %+v", a.Verdict)
	}
	w.kill()
	w = launch(t, p)
	if after := open(); !slices.Equal(after, before) {
		t.Errorf("open after a crash: %q, before: %q", after, before)
	}
	if v := call(first, "crm_get").Verdict; v.Code != "breaker.open" && v.Code != "tool.unknown" {
		t.Errorf("after a crash: %+v", v)
	}
	for _, name := range before {
		if _, err := w.root.ResetBreaker(t.Context(), name, "it is mended"); err != nil {
			t.Fatal(err)
		}
	}
	if still := open(); len(still) > 0 {
		t.Errorf("open after the reset: %q", still)
	}
	if out, err := w.root.TestBreaker(t.Context(), "tester"); err != nil || !out.Refused || out.Operation == "" {
		t.Errorf("%+v, %v", out, err)
	}

	if _, err := w.root.Quarantine(t.Context(), "tester", "odd"); err != nil {
		t.Fatal(err)
	}
	if a := call(second, "other_get"); a.Result == nil {
		t.Errorf("what the declaration keeps is refused: %+v", a.Verdict)
	}
	if v := call(second, "comm_list_files").Verdict; v.Code != "agent.degraded" {
		t.Errorf("what it doesn't keep: %+v", v)
	}
	// It is told, and people are: with whom, since when and why.
	told := func() []*client.Degraded {
		t.Helper()
		m, err := w.client(w.agent, second).Manifest(t.Context(), client.Own)
		if err != nil {
			t.Fatal(err)
		}
		a, err := w.root.Agent(t.Context(), "second")
		if err != nil {
			t.Fatal(err)
		}
		return []*client.Degraded{m.Degraded, a.Degraded}
	}
	for i, d := range told() {
		if d == nil || d.By != "tester" || d.Since.IsZero() || d.Why != "it is quarantined" {
			t.Errorf("%d: %+v", i, d)
		}
	}
	page := w.pages()
	for path, has := range map[string]string{"/": `DEGRADED</strong> <span class="soft">tester is aside, since it is quarantined`, "/agents": `<strong class="bad">degraded</strong>`, "/agents/second": "call only other.get"} {
		if got := page(path); !strings.Contains(got, has) {
			t.Errorf("%s has no %q", path, has)
		}
	}
	for _, args := range [][]string{{"status"}, {"agents", "show", "second"}} {
		if _, out, _ := cli(t, p, nil, append(args, "--data", p.data)...); !strings.Contains(out, "degraded") {
			t.Errorf("%s does not say it: %s", args, out)
		}
	}
	if _, err := w.root.Restore(t.Context(), "tester", "fine"); err != nil {
		t.Fatal(err)
	}
	for i, d := range told() {
		if d != nil {
			t.Errorf("%d, when it is back: %+v", i, d)
		}
	}
	if strings.Contains(page("/agents"), "degraded") {
		t.Error("the page says so when it is back")
	}
}

// Servers fail in four ways, and one agent makes them: it shuts none for others, and in the end itself. A server that fails each time but one is never shut; one
// that two agents find failing is. All of it is over when a person says so, and calls count again. A test of the agent's breaker has a call judged.
func TestServersThatFail(t *testing.T) {
	t.Parallel()
	var well atomic.Bool // all servers do what they should
	fails := func(how func(http.ResponseWriter)) func(http.ResponseWriter, message) bool {
		return func(w http.ResponseWriter, m message) bool {
			if m.Method != "tools/call" || well.Load() || !strings.Contains(string(m.Params.Arguments), "bad") {
				return false
			}
			how(w)
			return true
		}
	}
	servers := map[string]*scripted{
		"flaps": {write: fails(func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) })},
		"hangs": {write: fails(func(http.ResponseWriter) { time.Sleep(1500 * time.Millisecond) })},
		"lies":  {write: fails(func(w http.ResponseWriter) { _, _ = io.WriteString(w, "<html>It works!</html>") })},
		"fine":  {},
	}
	config := "operations:\n"
	upstreams := "upstreams:\n"
	for _, id := range slices.Sorted(maps.Keys(servers)) {
		s := servers[id]
		s.tools, s.answer = plainTools("get"), says("fine")
		upstreams += fmt.Sprintf("  %s: {url: %q, timeout: 1s}\n", id, s.url(t))
		config += "  " + id + ".*: {sensitivity: none, effect: read, output: trusted}\n"
	}
	p := newPlace(t, upstreams+config+"breakers: {wait: 5m}\n", declaration("tester"), declaration("second"), declaration("third"))
	w := launch(t, p)
	codeOf := func(agent, tool, arguments string) string {
		t.Helper()
		a, err := w.client(w.agent, w.token(agent)).Call(t.Context(), client.Own, tool, json.RawMessage(arguments))
		if err != nil {
			t.Fatal(err)
		}
		if a.Result != nil {
			return "ran"
		}
		return a.Verdict.Code
	}
	open := func() (names []string) {
		t.Helper()
		all, err := w.root.Breakers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range all {
			if b.State == "open" {
				names = append(names, b.Name)
			}
		}
		slices.Sort(names)
		return names
	}
	const good, bad = `{}`, `{"q":"bad"}`
	for range 2 { // four failures, and a success ends the row
		for range 4 {
			if code := codeOf("tester", "flaps_get", bad); code != "upstream.failed" {
				t.Fatalf("a server that flaps: %s", code)
			}
		}
		if code := codeOf("tester", "flaps_get", good); code != "ran" {
			t.Fatalf("a server that flaps, when it is well: %s", code)
		}
	}
	if is := open(); len(is) > 0 {
		t.Fatalf("open: %q", is)
	}

	for range 5 { // one agent makes the server fail
		if code := codeOf("tester", "hangs_get", bad); code != "time.exceeded" {
			t.Fatalf("a server that hangs: %s", code)
		}
	}
	if code := codeOf("tester", "hangs_get", good); code != "breaker.open" || !slices.Equal(open(), []string{"tester@hangs"}) {
		t.Errorf("after five: %s, open: %q", code, open())
	}
	if code := codeOf("second", "hangs_get", good); code != "ran" {
		t.Errorf("the server is shut for another agent: %s", code)
	}
	if code := codeOf("tester", "fine_get", good); code != "ran" {
		t.Errorf("another server is shut for the agent: %s", code)
	}

	for range 5 { // and another one: that is the agent's doing by now
		if code := codeOf("tester", "lies_get", bad); code != "upstream.failed" && code != "result.invalid" {
			t.Fatalf("a server that lies: %s", code)
		}
	}
	if is := open(); !slices.Equal(is, []string{"agent:tester", "tester@hangs", "tester@lies"}) {
		t.Errorf("open: %q", is)
	}
	if code := codeOf("tester", "fine_get", good); code != "breaker.open" {
		t.Errorf("the agent's own breaker lets it through: %s", code)
	}
	for _, tool := range []string{"fine_get", "lies_get", "hangs_get", "flaps_get"} {
		if code := codeOf("second", tool, good); code != "ran" {
			t.Errorf("the other agent calls %s: %s", tool, code)
		}
	}
	for range 5 { // three of one agent's and two of another's open the server's
		codeOf("second", "lies_get", bad)
		codeOf("third", "lies_get", bad)
	}
	if is := open(); !slices.Contains(is, "lies") {
		t.Errorf("open: %q", is)
	}
	if code := codeOf("third", "lies_get", good); code != "breaker.open" {
		t.Errorf("the server's breaker lets a call through: %s", code)
	}

	well.Store(true)
	for _, name := range open() {
		if _, err := w.root.ResetBreaker(t.Context(), name, "it is mended"); err != nil {
			t.Fatal(err)
		}
	}
	for _, tool := range []string{"fine_get", "lies_get", "hangs_get", "flaps_get"} {
		if code := codeOf("tester", tool, bad); code != "ran" {
			t.Errorf("after the reset, %s: %s", tool, code)
		}
	}
	code, out, errs := cli(t, p, nil, "breaker", "test", "tester", "--data", p.data)
	if code != 0 || !strings.Contains(out, "a call of ") || !strings.Contains(out, " was refused. It is closed again.") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if is := open(); len(is) > 0 {
		t.Errorf("open after the test: %q", is)
	}
	opened, closed := map[string]int{}, map[string]int{}
	for _, e := range w.entries() {
		name := ""
		var detail struct{ Breaker string }
		if e.Action == "breaker.open" || e.Action == "breaker.closed" {
			if err := json.Unmarshal(e.Detail, &detail); err != nil {
				t.Fatal(err)
			}
			name = detail.Breaker
		}
		switch e.Action {
		case "breaker.open":
			opened[name]++
		case "breaker.closed":
			closed[name]++
		}
	}
	if !maps.Equal(opened, closed) || opened["lies"] != 1 || opened["agent:tester"] != 2 { // once by its calls, once by the test
		t.Errorf("opened: %v, closed: %v", opened, closed)
	}
}

// A crash while one call tries leaves the breaker open: the gateway that starts then has it so on record and in its list, one call tries, and its success closes it.
func TestACrashWhileOneTries(t *testing.T) {
	t.Parallel()
	var well atomic.Bool
	arrived := make(chan struct{}, 16)
	crm := &scripted{tools: plainTools("get"), answer: says("fine"), write: func(_ http.ResponseWriter, m message) bool {
		if m.Method != "tools/call" || well.Load() {
			return false
		}
		arrived <- struct{}{}
		time.Sleep(3 * time.Second)
		return true
	}}
	p := newPlace(t, fmt.Sprintf("upstreams:\n  crm: {url: %q, timeout: 2s}\noperations:\n  crm.*: {sensitivity: none, effect: read, output: trusted}\nbreakers: {failures: 2, wait: 3s}\n", crm.url(t)))
	w := launch(t, p)
	token := w.token("tester")
	call := func() (code string) {
		a, err := w.client(w.agent, token).Call(context.Background(), client.Own, "crm_get", json.RawMessage(`{}`))
		switch {
		case err != nil:
			return err.Error()
		case a.Result != nil:
			return "ran"
		}
		return a.Verdict.Code
	}
	for range 2 {
		if code := call(); code != "time.exceeded" {
			t.Fatal(code)
		}
		<-arrived
	}
	if code := call(); code != "breaker.open" {
		t.Fatalf("after two: %s", code)
	}
	done := make(chan struct{})
	go func() { // until one tries
		defer close(done)
		for call() == "breaker.open" {
			time.Sleep(50 * time.Millisecond)
		}
	}()
	select {
	case <-arrived:
	case <-time.After(slack(20 * time.Second)):
		t.Fatal("no call tries")
	}
	w.kill()
	<-done
	w = launch(t, p)
	all, err := w.root.Breakers(t.Context())
	if err != nil || !slices.ContainsFunc(all, func(b client.Breaker) bool { return b.Name == "tester@crm" && b.State != "closed" }) {
		t.Errorf("after the crash: %+v, %v", all, err)
	}
	if n := len(w.recorded("breaker.closed")); n > 0 {
		t.Errorf("%d breakers were closed", n)
	}
	well.Store(true)
	eventually(t, 20*time.Second, "a call tries", func() bool { return call() == "ran" })
	closed := w.recorded("breaker.closed")
	if len(closed) != 1 || !strings.Contains(string(closed[0].Detail), "tester@crm") {
		t.Errorf("%+v", closed)
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	p.verify(t)
}

// A call that a circuit breaker refuses leaves the yes that people gave to it unspent, over a crash, too: when the breaker is closed the call runs on that yes, once.
func TestABreakerLeavesTheApproval(t *testing.T) {
	var down atomic.Bool
	crm := &scripted{tools: plainTools("get", "pay"), answer: says("fine"), write: func(w http.ResponseWriter, m message) bool {
		if m.Method != "tools/call" || !down.Load() {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}}
	p := newPlace(t, fmt.Sprintf("upstreams:\n  crm: {url: %q, timeout: 2s}\noperations:\n  crm.get: {sensitivity: none, effect: read, output: trusted}\n  crm.pay: {sensitivity: none, effect: write, level: 1, output: trusted, risk: HIGH, args: {}}\nbreakers: {failures: 2, wait: 5m}\n", crm.url(t)))
	w := launch(t, p)
	token := w.token("tester")
	call := func(tool string) client.Verdict {
		t.Helper()
		a, err := w.client(w.agent, token).Call(t.Context(), client.Own, tool, json.RawMessage(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		return a.Verdict
	}
	asked := call("crm_pay")
	if asked.ApprovalID == nil {
		t.Fatalf("%+v", asked)
	}
	state := func() string {
		t.Helper()
		a, err := w.root.Approval(t.Context(), *asked.ApprovalID)
		if err != nil {
			t.Fatal(err)
		}
		return a.State
	}
	q, err := w.root.Approval(t.Context(), *asked.ApprovalID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.root.Approve(t.Context(), q.ApprovalID, q.Digest, ""); err != nil {
		t.Fatal(err)
	}
	down.Store(true)
	for range 2 {
		call("crm_get")
	}
	for range 2 {
		if v := call("crm_pay"); v.Code != "breaker.open" || state() != "approved" {
			t.Fatalf("%+v, the approval is %s", v, state())
		}
		w.kill()
		w = launch(t, p)
	}
	down.Store(false)
	if _, err := w.root.ResetBreaker(t.Context(), "tester@crm", "it is mended"); err != nil {
		t.Fatal(err)
	}
	if v := call("crm_pay"); v.Decision != "permit" || state() != "spent" {
		t.Errorf("%+v, the approval is %s", v, state())
	}
	if v := call("crm_pay"); v.ApprovalID == nil || *v.ApprovalID == *asked.ApprovalID {
		t.Errorf("one yes for two calls: %+v", v)
	}
	w.sane()
}

// Runs that fail in a row open their agent's own circuit breaker; a success ends the row. While it is open the agent's runs and calls are refused, over a crash, and one run that tries and succeeds
// closes it.
func TestRunsThatFailOpenTheBreaker(t *testing.T) {
	t.Parallel()
	w, _, _ := onDuty(t, "breakers: {failures: 3, wait: 20s}\n", advisor(program(t), 20_000))
	carol, err := w.root.CreateToken(t.Context(), client.NewToken{Kind: "person", ID: "carol", Roles: []string{"operator"}})
	if err != nil {
		t.Fatal(err)
	}
	_, token := w.open("incident-advisor")
	ends := func(mode, want string) {
		t.Helper()
		if r := runToEnd(t, w.client(w.admin, carol.Secret), runInput(mode)); r.Status != want {
			t.Fatalf("%s: %s, want %s: %+v", mode, r.Status, want, r.Verdict)
		}
	}
	for range 2 { // a row that a success ends
		ends("text", "invalid")
		ends("text", "invalid")
		ends("advise", "done")
	}
	for range 3 {
		ends("text", "invalid")
	}
	refused := func(when string) {
		t.Helper()
		if _, err := w.client(w.admin, carol.Secret).StartRun(t.Context(), "incident-advisor", client.RunRequest{Input: runInput("advise")}); problemCode(err) != "breaker.open" || !strings.Contains(err.Error(), "its runs failed in a row") {
			t.Errorf("%s: a run: %v", when, err)
		}
		a, err := w.client(w.agent, token).Call(t.Context(), client.Own, "incidents_get", json.RawMessage(`{"id":"INC-7"}`))
		if err != nil || a.Verdict.Code != "breaker.open" || !strings.Contains(a.Verdict.Reason, "One call may try at ") {
			t.Errorf("%s: a call: %+v, %v", when, a, err)
		}
	}
	refused("after three")
	w.kill()
	w = launch(t, w.place)
	refused("after a crash")
	eventually(t, time.Minute, "a run may try", func() bool {
		all, err := w.root.Breakers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(all, func(b client.Breaker) bool { return b.Name == "agent:incident-advisor" && b.State == "half_open" })
	})
	ends("advise", "done")
	ends("advise", "done")
	if all, err := w.root.Breakers(t.Context()); err != nil || slices.ContainsFunc(all, func(b client.Breaker) bool { return b.State != "closed" }) {
		t.Errorf("%+v, %v", all, err)
	}
	for action, want := range map[string]int{"breaker.open": 1, "breaker.closed": 1} {
		if all := w.recorded(action); len(all) != want || all[0].Agent != "incident-advisor" {
			t.Errorf("%s: %+v", action, all)
		}
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.place.verify(t)
}

// Errors that a server answers an agent's writes with open the breaker of that agent at the server, and of nobody else; those of reads do where the operator says so, from the reload on.
func TestErrorsThatServersAnswerWith(t *testing.T) {
	crm := &scripted{tools: plainTools("get", "put"), answer: func(m message) string {
		return fmt.Sprintf(`{"content":[{"type":"text","text":"x"}],"isError":%t}`, strings.Contains(string(m.Params.Arguments), "bad"))
	}}
	p := newPlace(t, fmt.Sprintf("upstreams:\n  crm: {url: %q}\noperations:\n  crm.get: {sensitivity: none, effect: read, output: trusted}\n  crm.put: {sensitivity: none, effect: write, level: 1, output: trusted, args: {}}\nbreakers: {failures: 3, wait: 5m}\n", crm.url(t)),
		declaration("tester"), declaration("second"))
	w := launch(t, p)
	tokens := map[string]string{"tester": w.token("tester"), "second": w.token("second")}
	call := func(agent, tool, arguments string, times int, want string) {
		t.Helper()
		for range times {
			a, err := w.client(w.agent, tokens[agent]).Call(t.Context(), client.Own, tool, json.RawMessage(arguments))
			if err != nil {
				t.Fatal(err)
			}
			if a.Verdict.Code != want {
				t.Fatalf("%s calls %s %s: %+v, want %q", agent, tool, arguments, a.Verdict, want)
			}
		}
	}
	open := func(want ...string) {
		t.Helper()
		all, err := w.root.Breakers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, b := range all {
			if b.State == "open" {
				names = append(names, b.Name)
			}
		}
		if !slices.Equal(names, want) {
			t.Fatalf("open: %q, want %q", names, want)
		}
	}
	const good, bad = `{}`, `{"q":"bad"}`
	call("tester", "crm_get", bad, 6, "")
	open()
	call("tester", "crm_put", bad, 2, "")
	call("tester", "crm_put", good, 1, "") // it ends the row
	call("tester", "crm_put", bad, 3, "")
	open("tester@crm")
	call("tester", "crm_put", good, 1, "breaker.open")
	call("second", "crm_put", bad, 2, "")
	call("second", "crm_put", good, 1, "")
	open("tester@crm")
	if _, err := w.root.ResetBreaker(t.Context(), "tester@crm", "its prompt is fixed"); err != nil {
		t.Fatal(err)
	}
	write(t, p.config, strings.Replace(string(read(t, p.config)), "wait: 5m}", "wait: 5m, count_reads: true}", 1))
	if _, err := w.root.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	call("tester", "crm_get", bad, 3, "")
	open("tester@crm")
	call("second", "crm_get", good, 1, "")
	w.sane()
}

// An agent that makes a server's program exit with each of its calls shuts it for itself alone: others, who call it meanwhile as fast as they can, wait while it starts again and are served. Only a call
// that is under way when it exits fails. A program that exits and can't start again is shut for all, by calls of one who did nothing to it, over a crash of the gateway, too.
func TestAProgramThatOneAgentEnds(t *testing.T) {
	requireTool(t, sandbox.Probe().Tier != sandbox.None, "a kernel that holds the sandbox")
	program := filepath.Join(t.TempDir(), "mortal")
	if err := os.WriteFile(program, read(t, build(t, "sallyport.example/test/e2e/testdata/mortal")), 0o755); err != nil {
		t.Fatal(err)
	}
	p := newPlace(t, fmt.Sprintf("upstreams:\n  mortal: {command: [%s], timeout: 10s}\noperations:\n  mortal.get: {sensitivity: none, effect: read, output: trusted}\nbreakers: {failures: 3, wait: 5m}\n", program),
		declaration("tester"), declaration("second"), declaration("third"))
	w := launch(t, p)
	w.acceptDefinitions(anyDefinition)
	tokens := map[string]string{"tester": w.token("tester"), "second": w.token("second"), "third": w.token("third")}
	call := func(agent, arguments string) client.Verdict {
		a, err := w.client(w.agent, tokens[agent]).Call(context.Background(), client.Own, "mortal_get", json.RawMessage(arguments))
		if err != nil {
			return client.Verdict{Code: err.Error()}
		}
		return a.Verdict
	}
	opened := func() (names []string) {
		t.Helper()
		for _, e := range w.recorded("breaker.open") {
			var d struct{ Breaker string }
			if err := json.Unmarshal(e.Detail, &d); err != nil {
				t.Fatal(err)
			}
			names = append(names, d.Breaker)
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	if v := call("second", `{}`); v.Code != "" {
		t.Fatalf("at first: %+v", v)
	}

	var stop atomic.Bool
	busy := make(chan map[string]int)
	go func() {
		codes := map[string]int{}
		for n := 0; n < 400 && !stop.Load(); n++ { // fewer than a session may make in a minute
			codes[call("second", `{}`).Code]++
		}
		busy <- codes
	}()
	killed := 0
	for {
		v := call("tester", `{"q":"die"}`)
		if v.Code == "breaker.open" {
			break
		}
		if killed++; v.Code != "upstream.failed" || killed > 50 {
			t.Fatalf("its call %d: %+v", killed, v)
		}
		eventually(t, 30*time.Second, "another agent is served after an exit", func() bool {
			v := call("third", `{}`)
			if v.Code != "" && v.Code != "upstream.failed" {
				t.Fatalf("another agent after exit %d: %+v", killed, v)
			}
			return v.Code == ""
		})
	}
	stop.Store(true)
	codes := <-busy
	if codes[""] == 0 || codes[""]+codes["upstream.failed"] != sum(codes) {
		t.Errorf("the busy agent, over %d exits: %v", killed, codes)
	}
	if got := opened(); !slices.Equal(got, []string{"tester@mortal"}) {
		t.Errorf("opened: %q", got)
	}
	t.Logf("%d exits; the busy agent: %v", killed, codes)

	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	if v := call("third", `{"q":"die"}`); v.Code != "upstream.failed" {
		t.Fatalf("its last call: %+v", v)
	}
	eventually(t, 30*time.Second, "it is shut for an agent that did nothing to it", func() bool { return call("second", `{}`).Code == "breaker.open" })
	if got := opened(); !slices.Contains(got, "mortal") {
		t.Errorf("opened: %q", got)
	}
	w.kill()
	w = launch(t, p)
	for _, agent := range []string{"second", "third", "tester"} {
		if v := call(agent, `{}`); v.Code != "breaker.open" && v.Code != "tool.unknown" {
			t.Errorf("%s after a crash: %+v", agent, v)
		}
	}
	if all, err := w.root.Breakers(t.Context()); err != nil || !slices.ContainsFunc(all, func(b client.Breaker) bool { return b.Name == "mortal" && b.State == "open" }) {
		t.Errorf("after a crash: %+v, %v", all, err)
	}
	w.sane()
}

// An agent that has an easy call succeed after each that makes a server's program exit is shut out from it all the same, also after a crash of the gateway, and others are served.
func TestAnEasyCallAfterEachExit(t *testing.T) {
	requireTool(t, sandbox.Probe().Tier != sandbox.None, "a kernel that holds the sandbox")
	program := filepath.Join(t.TempDir(), "mortal")
	if err := os.WriteFile(program, read(t, build(t, "sallyport.example/test/e2e/testdata/mortal")), 0o755); err != nil {
		t.Fatal(err)
	}
	p := newPlace(t, fmt.Sprintf("upstreams:\n  mortal: {command: [%s], timeout: 10s}\noperations:\n  mortal.get: {sensitivity: none, effect: read, output: trusted}\nbreakers: {failures: 3, wait: 5m}\n", program),
		declaration("tester"), declaration("second"))
	w := launch(t, p)
	w.acceptDefinitions(anyDefinition)
	tokens := map[string]string{"tester": w.token("tester"), "second": w.token("second")}
	call := func(agent, arguments, code string) {
		t.Helper()
		a, err := w.client(w.agent, tokens[agent]).Call(context.Background(), client.Own, "mortal_get", json.RawMessage(arguments))
		if err != nil || string(a.Verdict.Code) != code {
			t.Fatalf("%s with %s: %+v, %v", agent, arguments, a, err)
		}
	}
	for range 2 {
		call("tester", `{"q":"die"}`, "upstream.failed")
		call("tester", `{}`, "")
	}
	w.kill()
	w = launch(t, p)
	call("tester", `{}`, "")
	call("tester", `{"q":"die"}`, "upstream.failed")
	call("tester", `{}`, "breaker.open")
	call("second", `{}`, "")
	w.sane()
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// The wait of an open breaker doubles with each try that fails, and is as long as at first when it opens anew after a success.
func TestTheWaitDoubles(t *testing.T) {
	var down atomic.Bool
	crm := &scripted{tools: plainTools("get"), answer: says("fine"), write: func(w http.ResponseWriter, m message) bool {
		if m.Method != "tools/call" || !down.Load() {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}}
	p := newPlace(t, fmt.Sprintf("upstreams:\n  crm: {url: %q}\noperations:\n  crm.get: {sensitivity: none, effect: read, output: trusted}\nbreakers: {failures: 2, wait: 1s}\n", crm.url(t)))
	w := launch(t, p)
	token := w.token("tester")
	call := func() string {
		a, err := w.client(w.agent, token).Call(t.Context(), client.Own, "crm_get", json.RawMessage(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		return a.Verdict.Code
	}
	waits := func() (all []string) {
		for _, e := range w.recorded("breaker.open") {
			var d struct {
				Breaker, Wait string
				Since         time.Time
				RetryAfter    time.Time `json:"retry_after"`
			}
			if err := json.Unmarshal(e.Detail, &d); err != nil || d.Breaker != "tester@crm" {
				t.Fatalf("%s: %v", e.Detail, err)
			}
			if wait, err := time.ParseDuration(d.Wait); err != nil || d.RetryAfter.Before(d.Since.Add(wait)) {
				t.Errorf("%s: %v", e.Detail, err)
			}
			all = append(all, d.Wait)
		}
		return all
	}
	down.Store(true)
	eventually(t, time.Minute, "two tries fail", func() bool { return call() != "" && len(waits()) == 3 })
	down.Store(false)
	eventually(t, time.Minute, "a try succeeds", func() bool { return call() == "" })
	down.Store(true)
	for call(); call() != "breaker.open"; {
	}
	if got := waits(); !slices.Equal(got[:4], []string{"1s", "2s", "4s", "1s"}) {
		t.Errorf("%q", got)
	}
	w.sane()
}

// What the gateway refuses, requests that are malformed, calls that the switch ends and a person's no count for no breaker, however many of them there are.
func TestWhatOpensNoBreaker(t *testing.T) {
	arrived := make(chan struct{}, 1)
	release := make(chan struct{})
	defer close(release)
	crm := &scripted{tools: plainTools("get", "pay"), answer: says("fine"), write: func(_ http.ResponseWriter, m message) bool {
		if m.Method == "tools/call" && strings.Contains(string(m.Params.Arguments), "hang") {
			arrived <- struct{}{}
			<-release
		}
		return false
	}}
	p := newPlace(t, fmt.Sprintf("upstreams:\n  crm: {url: %q}\noperations:\n  crm.get: {sensitivity: none, effect: read, output: trusted}\n  crm.pay: {sensitivity: none, effect: write, level: 2, risk: HIGH, args: {}}\nbreakers: {failures: 2, wait: 5m}\napprovals: {hold: 10ms}\n", crm.url(t)),
		declare("tester", "operator", "execution", []string{"crm.get"}, []string{"crm.pay"}))
	w := launch(t, p)
	token := w.token("tester")
	call := func(tool, arguments, want string) client.Verdict {
		t.Helper()
		a, err := w.client(w.agent, token).Call(context.Background(), client.Own, tool, json.RawMessage(arguments))
		var v client.Verdict
		if err != nil {
			v.Code = problemCode(err)
		} else {
			v = a.Verdict
		}
		if v.Code != want {
			t.Errorf("%s %s: %+v, want %s", tool, arguments, v, want)
		}
		return v
	}
	for i := range 3 {
		call("comm_fetch", `{"url":"https://example.com/"}`, "declaration.missing")
		call("crm_none", `{}`, "tool.unknown")
		call("crm_get", `[1]`, "request.malformed")
		pays := fmt.Sprintf(`{"q":"invoice %d"}`, i)
		asked := call("crm_pay", pays, "approval.required")
		q, err := w.root.Approval(t.Context(), *asked.ApprovalID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.root.Reject(t.Context(), q.ApprovalID, q.Digest, "no"); err != nil {
			t.Fatal(err)
		}
		call("crm_pay", pays, "approval.rejected")
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			call("crm_get", `{"q":"hang"}`, "kill_switch.active")
		}()
		<-arrived
		if _, err := w.root.Kill(t.Context(), "tester", "stop"); err != nil {
			t.Fatal(err)
		}
		<-ended
		if _, err := w.root.Unkill(t.Context(), "tester", "go on"); err != nil {
			t.Fatal(err)
		}
		token = w.token("tester")
	}
	eventually(t, 20*time.Second, "the end of the stop is in the store", func() bool { // it holds before, and a crash then brings the stop back
		status, err := w.root.KillStatus(t.Context())
		return err == nil && status.Agents["tester"].Durable
	})
	for _, when := range []string{"then", "from the log"} {
		if all, err := w.root.Breakers(t.Context()); err != nil || len(all) > 0 {
			t.Errorf("%s: %+v, %v", when, all, err)
		}
		w.kill()
		w = launch(t, p)
	}
	call("crm_get", `{}`, "")
	w.sane()
}
