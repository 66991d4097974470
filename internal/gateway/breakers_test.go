package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/breaker"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/gateway/gatewaytest"
)

// breakerWorld has a clock that the test sets, and reads its own log at the start as the program does.
type breakerWorld struct {
	*world
	at atomic.Pointer[time.Time]
}

// pass lets time pass.
func (w *breakerWorld) pass(d time.Duration) {
	at := w.at.Load().Add(d)
	w.at.Store(&at)
}

func newBreakerWorld(t *testing.T, tweak ...func(*gateway.Options)) *breakerWorld {
	w := &breakerWorld{}
	now := time.Now()
	w.at.Store(&now)
	w.world = newWorld(t, append([]func(*gateway.Options){func(o *gateway.Options) {
		o.Clock = func() time.Time { return *w.at.Load() }
		o.History = func(ctx context.Context) (all []audit.Entry, err error) {
			if w.world == nil { // its first start
				return nil, nil
			}
			all, _, err = w.db.Entries(ctx, audit.Filter{Limit: 1000})
			return all, err
		}
	}}, tweak...)...)
	return w
}

// ends makes an operation end so from now on, and returns how often it was called since.
func (w *breakerWorld) ends(operation string, err error) *int {
	n := 0
	w.up.answers[operation] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
		n++
		if err != nil {
			return nil, err
		}
		return json.RawMessage(`{"content":[{"type":"text","text":"fine"}]}`), nil
	}
	return &n
}

// failsItself makes an operation answer that it failed.
func (w *breakerWorld) failsItself(operation string) {
	w.up.answers[operation] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
		return json.RawMessage(`{"content":[{"type":"text","text":"no"}],"isError":true}`), nil
	}
}

var (
	errDown = &fault.NotDispatched{Err: fault.New(fault.UpstreamFailed, "Upstream docs can't be reached.")}
	errHung = fault.New(fault.TimeExceeded, "Upstream docs took too long.")
)

func (w *breakerWorld) actions(prefix string) (all []string) {
	for _, e := range w.entries() {
		if strings.HasPrefix(e.Action, prefix) {
			all = append(all, e.Action)
		}
	}
	return all
}

func TestABreakerStopsCallsToADeadServer(t *testing.T) {
	w := newBreakerWorld(t)
	n := w.ends("docs.think", errDown)
	for range 5 {
		w.mustRefuse(w.call("worker", "think"), fault.UpstreamFailed)
	}
	a := w.mustRefuse(w.call("selfish", "think"), fault.BreakerOpen)
	if *n != 5 {
		t.Errorf("the server was called %d times", *n)
	}
	if v := a.Verdict; v.Stage != "breaker" || !v.Retriable || !strings.Contains(v.Reason, "docs") || !strings.Contains(v.Remedies[1].Text, "sallyport breaker reset docs") {
		t.Errorf("%+v", v)
	}
	if w.call("selfish", "search_email").Verdict.Decision != fault.Permit {
		t.Error("another server is refused too")
	}

	w.end()
	w.start() // a crash leaves it open
	w.g.Catalogue()
	w.offer("docs", definition("docs", "think", "A tool."))
	w.mustRefuse(w.call("worker", "think"), fault.BreakerOpen)

	w.pass(31 * time.Second)
	w.mustRefuse(w.call("worker", "think"), fault.UpstreamFailed) // the try
	w.mustRefuse(w.call("worker", "think"), fault.BreakerOpen)
	w.pass(31 * time.Second)
	w.mustRefuse(w.call("worker", "think"), fault.BreakerOpen) // the wait has doubled
	w.pass(31 * time.Second)
	w.ends("docs.think", nil)
	w.mustPermit(w.call("worker", "think"))
	w.mustPermit(w.call("selfish", "think"))
	want := []string{breaker.ActionOpen, breaker.ActionOpen, breaker.ActionOpen, breaker.ActionOpen, breaker.ActionClosed, breaker.ActionClosed}
	if got := w.actions("breaker."); !slices.Equal(got, want) { // of the server and of the agent at it
		t.Errorf("%q", got)
	}
}

func TestOneAgentShutsNoServerForOthers(t *testing.T) {
	w := newBreakerWorld(t)
	w.ends("docs.think", errHung)
	for range 20 {
		w.call("worker", "think")
		w.pass(2 * time.Minute) // every try of its own fails, too
	}
	w.mustRefuse(w.call("selfish", "think"), fault.TimeExceeded) // it reached the server
	w.ends("docs.think", nil)
	w.mustPermit(w.call("selfish", "think"))
	w.pass(-time.Hour)
	w.mustRefuse(w.call("worker", "think"), fault.BreakerOpen)
}

// What one agent can have done to a server's program counts for that agent alone: that it ended during its calls, and that it starts again. The server is shut for all once no start succeeds.
func TestOneAgentEndsAServer(t *testing.T) {
	w := newBreakerWorld(t)
	ended := func(others bool) error {
		return fault.Wrap(&fault.Ended{Err: errors.New("exit status 1"), Others: others}, fault.UpstreamFailed, "Upstream docs ended the conversation.")
	}
	starting := &fault.NotDispatched{Err: fault.New(fault.UpstreamFailed, "Upstream docs is down."), Starting: true}
	open := func() (names []string) {
		for _, b := range w.g.Breakers() {
			if b.State != "closed" {
				names = append(names, b.Name)
			}
		}
		return names
	}
	for _, step := range []struct {
		agent string
		err   error
		times int
		open  []string
	}{
		{"selfish", ended(true), 4, nil},
		{"selfish", starting, 9, nil},
		{"worker", ended(false), 5, []string{"worker@docs"}},
		{"selfish", starting, 9, []string{"worker@docs"}},
		{"selfish", nil, 1, []string{"worker@docs"}},
		{"selfish", errDown, 5, []string{"docs", "selfish@docs", "worker@docs"}},
	} {
		w.ends("docs.think", step.err)
		for range step.times {
			w.call(step.agent, "think")
		}
		if got := open(); !slices.Equal(got, step.open) {
			t.Errorf("%s, %v: open %q, want %q", step.agent, step.err, got, step.open)
		}
	}
}

func TestWhatCountsForNoBreaker(t *testing.T) {
	w := newBreakerWorld(t)
	stopped := make(chan struct{}, 1)
	w.up.answers["docs.think"] = func(ctx context.Context, _ json.RawMessage, _ *call.Exchange) (json.RawMessage, error) {
		stopped <- struct{}{}
		<-ctx.Done()
		return nil, fault.Wrap(context.Cause(ctx), fault.UpstreamFailed, "Upstream docs was not waited for.")
	}
	for range 6 { // its caller goes away
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.g.Call(ctx, gateway.Request{Principal: as("worker"), Method: "tools/call", Tool: "think", Arguments: json.RawMessage(`{"q":"x"}`), Door: "mcp"})
		}()
		<-stopped
		cancel()
		<-done
	}
	for range 6 { // the switch
		done := make(chan struct{})
		go func() {
			defer close(done)
			for w.call("worker", "think").Verdict.Code == fault.AuditUnavailable { // the outcome of the stopped call before is still being written
				runtime.Gosched()
			}
		}()
		<-stopped
		w.g.Standing().Disable("worker", "person:admin", "stop")
		<-done
		w.g.Standing().Enable("worker", "person:admin", "go on")
	}
	for range 6 { // refused, malformed, unknown
		w.call("worker", "nothing")
		w.g.Call(t.Context(), gateway.Request{Principal: as("worker"), Method: "tools/call", Tool: "think", Arguments: json.RawMessage(`[`), Door: "mcp"})
	}
	w.failsItself("docs.think") // a read's own error
	for range 6 {
		w.call("worker", "think")
	}
	rpc := &call.RPCError{JSON: json.RawMessage(`{"code":-32602,"message":"bad arguments"}`)}
	w.ends("docs.think", rpc)
	for range 6 {
		w.call("worker", "think")
	}
	if all := w.g.Breakers(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

// Three openings of an agent's breaker within an hour quarantine it; a person brings it back.
func TestQuarantineByRule(t *testing.T) {
	w := newBreakerWorld(t)
	for i := range 3 {
		for range 5 {
			w.g.RunEnded(t.Context(), "worker", "timeout", "")
		}
		if _, aside := w.g.Standing().Quarantined("worker"); aside != (i == 2) {
			t.Fatalf("after %d openings: quarantined %v", i+1, aside)
		}
		if err := w.g.BreakerOpen("worker"); !fault.Is(err, fault.BreakerOpen) {
			t.Errorf("%v", err)
		}
		if err := w.g.ResetBreaker(t.Context(), "agent:worker", "again", "person:admin"); err != nil {
			t.Fatal(err)
		}
		w.pass(10 * time.Minute)
	}
	q, _ := w.g.Standing().Quarantined("worker")
	if q.By != gateway.ByBreaker || !strings.Contains(q.Reason, "3 times") {
		t.Errorf("%+v", q)
	}
	w.mustRefuse(w.call("worker", "think"), fault.AgentQuarantined)
}

func TestOpeningsFarApartQuarantineNobody(t *testing.T) {
	w := newBreakerWorld(t)
	for range 6 {
		for range 5 {
			w.g.RunEnded(t.Context(), "worker", "timeout", "")
		}
		if err := w.g.ResetBreaker(t.Context(), "agent:worker", "again", "person:admin"); err != nil {
			t.Fatal(err)
		}
		w.pass(31 * time.Minute)
	}
	if _, aside := w.g.Standing().Quarantined("worker"); aside {
		t.Error("quarantined")
	}
}

func TestBreakerOfAnAgentIsTested(t *testing.T) {
	w := newBreakerWorld(t)
	if refused, operation, err := w.g.TestBreaker(t.Context(), "worker", "person:admin"); err != nil || !refused || operation == "" {
		t.Errorf("%v, %q, %v", refused, operation, err)
	}
	w.mustPermit(w.call("worker", "think"))
	if got := w.actions("breaker."); !slices.Equal(got, []string{breaker.ActionOpen, breaker.ActionClosed}) {
		t.Errorf("%q", got)
	}
	if _, _, err := w.g.TestBreaker(t.Context(), "nobody", "person:admin"); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
	if err := w.g.ResetBreaker(t.Context(), "docs", "x", "person:admin"); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
}

// An agent that depends on one that is aside does what its declaration keeps for that, and the rest when the other is back.
func TestDependantsAreDegraded(t *testing.T) {
	w := newWorld(t, func(o *gateway.Options) {
		o.Agents = gatewaytest.Options(t, fmt.Sprintf(declaration, "worker", "execution", "host"),
			fmt.Sprintf(declaration, "middle", "execution", "host")+"dependsOn: [worker]\n",
			fmt.Sprintf(declaration, "far", "execution", "host")+"dependsOn: [middle]\ndegraded: [slack.post]\n").Agents
	})
	check := func(agent, tool string, code fault.Code) {
		t.Helper()
		v := w.call(agent, tool).Verdict
		if code == "" && v.Decision == fault.Deny || code != "" && v.Code != code {
			t.Errorf("%s calls %s: %+v", agent, tool, v)
		}
	}
	n := 0
	written := func(action string) { // the entries of both dependants follow the act
		n += 2
		for !slices.Equal(w.lastTwo(), []string{action + " far", action + " middle"}) || len(w.degraded()) != n {
			runtime.Gosched()
		}
	}
	check("middle", "slack_post", "")
	for name, stop := range map[string][2]func(){
		"quarantined": {func() { _ = w.g.Standing().Quarantine(t.Context(), "worker", "odd", "person:admin") }, func() { _ = w.g.Standing().Restore(t.Context(), "worker", "fine", "person:admin") }},
		"stopped":     {func() { w.g.Standing().Disable("worker", "person:admin", "odd") }, func() { w.g.Standing().Enable("worker", "person:admin", "fine") }},
		"breaker open": {func() {
			for range 5 {
				w.g.RunEnded(t.Context(), "worker", "timeout", "")
			}
		}, func() { _ = w.g.ResetBreaker(t.Context(), "agent:worker", "fine", "person:admin") }},
	} {
		stop[0]()
		check("middle", "slack_post", fault.AgentDegraded)
		check("middle", "think", "")
		check("far", "slack_post", "")
		check("far", "think", fault.AgentDegraded)
		if d := w.g.Degraded("far"); d == nil || d.By != "worker" {
			t.Errorf("%s: %+v", name, d)
		}
		written("agent.degraded")
		stop[1]()
		check("middle", "slack_post", "")
		check("far", "think", "")
		written("agent.whole")
	}
}

func (w *world) lastTwo() []string {
	all := w.degraded()
	last := slices.Clone(all[max(0, len(all)-2):])
	slices.Sort(last)
	return last
}

func (w *world) degraded() (all []string) {
	for _, e := range w.entries() {
		if e.Action == "agent.degraded" || e.Action == "agent.whole" {
			all = append(all, e.Action+" "+e.Agent)
		}
	}
	return all
}

// A restart doesn't write down anew that an agent misses another; that it has it back is written down once.
func TestDegradedIsWrittenOnce(t *testing.T) {
	w := newWorld(t, func(o *gateway.Options) {
		o.Agents = gatewaytest.Options(t, fmt.Sprintf(declaration, "worker", "execution", "host"), fmt.Sprintf(declaration, "middle", "execution", "host")+"dependsOn: [worker]\n").Agents
		o.History = func(context.Context) ([]audit.Entry, error) { return nil, nil }
	})
	if err := w.g.Standing().Quarantine(t.Context(), "worker", "odd", "person:admin"); err != nil {
		t.Fatal(err)
	}
	wait := func(want ...string) {
		t.Helper()
		for !slices.Equal(w.degraded(), want) {
			if len(w.degraded()) > len(want) {
				t.Fatalf("on record: %q", w.degraded())
			}
			runtime.Gosched()
		}
	}
	wait("agent.degraded middle")
	for range 2 {
		before := w.entries()
		w.o.History = func(context.Context) ([]audit.Entry, error) { return before, nil }
		w.end()
		w.start()
	}
	if err := w.g.Standing().Restore(t.Context(), "worker", "fine", "person:admin"); err != nil {
		t.Fatal(err)
	}
	wait("agent.degraded middle", "agent.whole middle")
}

// A call that a breaker refuses uses nothing up: what people approved runs once the server is back.
func TestABreakerSpendsNoApproval(t *testing.T) {
	w := newOnceWorld(t)
	down := false
	w.up.answers["shy.look"] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
		if down {
			return nil, errDown
		}
		return json.RawMessage(`{"content":[]}`), nil
	}
	p := w.open("worker", "erin", widgets)
	w.agreed(p, "shy_look", `{"at":"other"}`)
	id := w.mustAsk(w.do(p, "shy_peek", `{"at":"x"}`, ""))
	w.mustRespond("bob", id, approval.Approve, "")
	down = true
	for range 5 {
		w.do(p, "shy_look", `{"at":"z"}`, "")
	}
	if a := w.do(p, "shy_peek", `{"at":"x"}`, ""); a.Verdict.Code != fault.BreakerOpen {
		t.Fatalf("%+v", a.Verdict)
	}
	if q, err := w.g.Desk().Question(t.Context(), id); err != nil || q.State != approval.Approved {
		t.Errorf("%+v, %v", q, err)
	}
	for _, b := range w.g.Breakers() {
		if err := w.g.ResetBreaker(t.Context(), b.Name, "mended", "person:admin"); err != nil {
			t.Fatal(err)
		}
	}
	w.mustPermit(w.do(p, "shy_peek", `{"at":"x"}`, ""))
}
