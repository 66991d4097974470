package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/session"
)

// The bound on open questions holds for declarations as for calls.
func TestOpenQuestionsOfDeclarationsAreBounded(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	n := 0
	for ; n < 150; n++ {
		if d, err := w.declare(p, "comm.send", fmt.Sprintf(`{"url":"https://example.com/%d"}`, n)); err != nil || d.Verdict.Decision != fault.Ask {
			break
		}
	}
	if n != 100 {
		t.Errorf("one session has %d open questions", n)
	}
}

// Questions that expired wait for nobody.
func TestExpiredQuestionsDoNotUseUpTheBound(t *testing.T) {
	w := newCommWorld(t, func(o *gateway.Options) { o.Limits.CommRequestsPerMinute = 1000 })
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	for n := range 100 {
		w.mustAsk(w.do(p, "comm_send", fmt.Sprintf(`{"url":"https://example.com/%d",%s}`, n, because), ""))
	}
	w.clock.advance(time.Hour)
	if a := w.do(p, "comm_send", sendPage, ""); a.Verdict.Decision != fault.Ask {
		t.Errorf("nothing waits, and the session can never ask again: %s", a.Verdict.Reason)
	}
}

// Asking whether the answer is there reaches nothing outside.
func TestWaitingForAPersonUsesUpNoRequests(t *testing.T) {
	w := newCommWorld(t, func(o *gateway.Options) { o.Limits.CommRequestsPerMinute = 3 })
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	id := w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	for range 2 {
		w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	}
	if err := w.respond("bob", &id, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	if a := w.do(p, "comm_send", sendPage, ""); a.Verdict.Decision != fault.Permit {
		t.Errorf("nothing was requested yet: %s", a.Verdict.Reason)
	}
}

// Counting questions takes no copy of what they are about: an agent decides how large that is, and how often it asks.
func TestCountingQuestionsCopiesNone(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	big := strings.Repeat("x", 100<<10)
	for n := range 8 {
		w.mustAsk(w.do(p, "comm_send", fmt.Sprintf(`{"url":"https://example.com/%d/%s",%s}`, n, big, because), ""))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := w.g.Status(t.Context(), p, ""); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 2<<20 {
		t.Errorf("asking for the status of a session with 8 questions took %d MiB", used>>20)
	}
	runtime.ReadMemStats(&before)
	w.mustAsk(w.do(p, "comm_send", sendPage, ""))
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 2<<20 {
		t.Errorf("one more small question took %d MiB", used>>20)
	}
}

// counting lets a number of calls count the open questions before the first of them asks its own.
type counting struct {
	gateway.Store
	mu       sync.Mutex
	left     int
	together chan struct{}
}

func (c *counting) ApprovalFor(ctx context.Context, s, digest string) (approval.Approval, error) {
	found, err := c.Store.ApprovalFor(ctx, s, digest)
	c.mu.Lock()
	wait := c.left > 0
	if wait {
		if c.left--; c.left == 0 {
			close(c.together)
		}
	}
	c.mu.Unlock()
	if wait {
		select {
		case <-c.together:
		case <-time.After(5 * time.Second):
		}
	}
	return found, err
}

// The bound on open questions holds when they are asked at once.
func TestQuestionsAskedAtOnceAreBounded(t *testing.T) {
	w := newCommWorld(t, func(o *gateway.Options) { o.Limits.CommRequestsPerMinute = 0 })
	c := &counting{Store: w.store, left: 130, together: make(chan struct{})}
	w.g = gatewayOn(t, w.world, c)
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	var wg sync.WaitGroup
	for n := range 130 {
		wg.Go(func() { w.do(p, "comm_send", fmt.Sprintf(`{"url":"https://example.com/%d",%s}`, n, because), "") })
	}
	wg.Wait()
	open, err := w.g.Desk().Questions(t.Context(), approval.Pending, p.ID, "", 200)
	if err != nil || len(open) > 100 {
		t.Errorf("%d questions of one session wait, %v", len(open), err)
	}
}

// tallying counts reads of questions.
type tallying struct {
	gateway.Store
	mu    sync.Mutex
	reads int
}

func (c *tallying) Approvals(ctx context.Context, f desk.Filter) ([]approval.Approval, error) {
	c.mu.Lock()
	c.reads++
	c.mu.Unlock()
	return c.Store.Approvals(ctx, f)
}

// What expired long ago is not read whole each time somebody looks at what waits.
func TestListOfWhatWaitsDoesNotReadWhatExpired(t *testing.T) {
	w := newCommWorld(t, func(o *gateway.Options) { o.Limits.CommRequestsPerMinute, o.Limits.CallsPerMinute = 0, 0 })
	c := &tallying{Store: w.store}
	w.g = gatewayOn(t, w.world, c)
	for range 3 {
		p := w.open("worker", "erin", "What do widgets cost in 2026?")
		for n := range 100 {
			w.do(p, "comm_send", fmt.Sprintf(`{"url":"https://example.com/%d",%s}`, n, because), "")
		}
	}
	w.clock.advance(time.Hour)
	c.reads = 0
	if waiting, err := w.g.Desk().Questions(t.Context(), approval.Pending, "", "", 10); err != nil || len(waiting) != 0 {
		t.Fatal(len(waiting), err)
	}
	if c.reads > 3 {
		t.Errorf("%d pages were read to find that nothing waits", c.reads)
	}
}

// Asking "would this run" is work, and is counted as such.
func TestChecksCountAgainstTheRate(t *testing.T) {
	w := newCommWorld(t, func(o *gateway.Options) { o.Limits.CallsPerMinute = 5 })
	p := w.open("worker", "erin", "What do widgets cost in 2026?")
	for range 50 {
		a := w.g.Call(t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: "comm_get", Arguments: json.RawMessage(sendPage), DryRun: true})
		if a.Verdict.Code == fault.LimitRate {
			return
		}
	}
	t.Error("50 checks in a minute, where 5 calls are allowed")
}

// What waits for people has a bound in bytes as it has one in number: lists of questions, and whoever tells people of them, read whole pages
// of it into memory.
func TestOpenQuestionsAreBoundedInBytes(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	pad := strings.Repeat("x", 4<<20-200)
	for i := range 12 {
		a := w.do(p, "slack_publish", fmt.Sprintf(`{"n":%d,"text":%q}`, i, pad), "")
		if a.Verdict.ApprovalID == nil {
			break
		}
	}
	page, err := w.g.Desk().Questions(t.Context(), approval.Pending, p.ID, "", 500)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, q := range page {
		n += len(q.Arguments)
	}
	if n > 32<<20 {
		t.Errorf("%d questions of %d MiB wait; 500 of one agent, read as one page of 500 at each start and whenever changes were missed, are %d MiB", len(page), n>>20, n/len(page)*500>>20)
	}
}

// ownRefusals is how many refusals of one actor and one code have an entry of their own in a minute.
const ownRefusals = 12

// refused is how many refusals of an agent for a code are on record, and in how many entries.
func (w *world) refused(agent string, code fault.Code) (all, entries int64) {
	w.t.Helper()
	for _, e := range w.entries() {
		if e.Agent != agent || e.Code != string(code) {
			continue
		}
		entries++
		if e.Action != audit.Folded {
			all++
			continue
		}
		var d struct{ Count int64 }
		if err := json.Unmarshal(e.Detail, &d); err != nil {
			w.t.Fatal(err)
		}
		all += d.Count
	}
	return all, entries
}

// crowded counts the entries that the store is given at a time, and takes none until it is let go.
type crowded struct {
	gateway.Store
	now, most atomic.Int64
	once      sync.Once
	full, let chan struct{}
}

func (c *crowded) Record(ctx context.Context, e ...audit.Entry) error {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	if n == ownRefusals {
		c.once.Do(func() { close(c.full) })
	}
	select {
	case <-c.let:
	case <-ctx.Done():
		return fault.New(fault.AuditUnavailable, "")
	}
	return c.Store.Record(ctx, e...)
}

// What a stopped agent keeps trying neither crowds out the calls of others nor fills the record: the first of a minute have entries of their own,
// the rest is one with their number. All of them are on record, however soon the gateway stops.
func TestStoppedAgentDoesNotCrowdTheStore(t *testing.T) {
	w := newWorld(t)
	c := &crowded{Store: w.store, full: make(chan struct{}), let: make(chan struct{})}
	g := gatewayOn(t, w, c)
	g.Standing().Disable("worker", "person:admin", "stop")
	const tries = 1000
	for range tries {
		if a := g.Call(t.Context(), gateway.Request{Principal: as("worker"), Method: "tools/call", Tool: "think", Arguments: json.RawMessage(`{}`), Door: "mcp"}); a.Verdict.Code != fault.KillSwitch {
			t.Fatalf("%+v", a.Verdict)
		}
	}
	<-c.full
	if a := g.Call(t.Context(), gateway.Request{Principal: as("planner"), Method: "tools/call", Tool: "think", Arguments: json.RawMessage(`{}`), Door: "mcp"}); a.Verdict.Decision != fault.Permit {
		t.Errorf("another agent's call: %+v", a.Verdict)
	}
	if n := c.most.Load(); n != ownRefusals {
		t.Errorf("%d at a time", n)
	}
	close(c.let)
	if err := g.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all, entries := w.refused("worker", fault.KillSwitch); all != tries || entries != ownRefusals+1 {
		t.Errorf("%d of %d on record, in %d entries", all, tries, entries)
	}
}

// One agent has so many calls under way and no more, in all of its sessions; that is nothing to another, and over when one of them ends.
func TestCallsOfOneAgentAtOnceAreBounded(t *testing.T) {
	w := newWorld(t, func(o *gateway.Options) { o.Limits.Budget, o.Limits.CallsPerMinute = 0, 0 })
	const most = 512
	under, end := make(chan struct{}, most+1), make(chan struct{})
	w.up.answers["docs.think"] = func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
		under <- struct{}{}
		<-end
		return text("ok"), nil
	}
	var wg sync.WaitGroup
	for range most {
		wg.Go(func() { w.mustPermit(w.call("worker", "think")) })
	}
	for range most {
		<-under
	}
	a := w.mustRefuse(w.call("worker", "think"), fault.LimitRate)
	if !a.Verdict.Retriable || a.Verdict.Stage != "limit" {
		t.Errorf("%+v", a.Verdict)
	}
	if es := w.entriesOf(a.CallID); len(es) != 1 || es[0].Code != string(fault.LimitRate) {
		t.Errorf("on record: %+v", es)
	}
	go func() { w.mustPermit(w.call("planner", "think")); under <- struct{}{} }()
	<-under // at the server
	close(end)
	<-under // answered
	wg.Wait()
	w.mustPermit(w.call("worker", "think"))
}

// A refused agent waits for the record of its first refusals of a minute and not of the others; each is on record.
func TestRefusedAgentDoesNotFillTheRecord(t *testing.T) {
	w := newWorld(t, func(o *gateway.Options) { o.Limits.CallsPerMinute = 0 })
	c := &crowded{Store: w.store, full: make(chan struct{}), let: make(chan struct{})}
	g := gatewayOn(t, w, c)
	const tries = 300
	var wg sync.WaitGroup
	var late atomic.Int64
	for range tries {
		wg.Go(func() {
			switch a := g.Call(context.Background(), gateway.Request{Principal: as("worker"), Method: "tools/call", Tool: "nothing", Arguments: json.RawMessage(`{}`), Door: "mcp"}); a.Verdict.Code {
			case fault.ToolUnknown:
			case fault.AuditUnavailable: // on a machine that is that slow
				late.Add(1)
			default:
				t.Errorf("%+v", a.Verdict)
			}
		})
	}
	<-c.full
	if a := g.Call(t.Context(), gateway.Request{Principal: as("planner"), Method: "tools/call", Tool: "think", Arguments: json.RawMessage(`{}`), Door: "mcp"}); a.Verdict.Decision != fault.Permit {
		t.Errorf("another agent's call: %+v", a.Verdict)
	}
	close(c.let)
	wg.Wait()
	if err := g.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all, entries := w.refused("worker", fault.ToolUnknown); all != tries-late.Load() || entries != ownRefusals+1-late.Load() || c.most.Load() > ownRefusals {
		t.Errorf("%d of %d on record, in %d entries, %d too late; %d at a time", all, tries, entries, late.Load(), c.most.Load())
	}
}

// timedTransactions measures the decisions that are made inside the transaction of a session.
type timedTransactions struct {
	gateway.Store
	least time.Duration
}

func (s *timedTransactions) ChangeSession(ctx context.Context, id string, change func(session.Session) (session.Session, audit.Entry, error)) (session.Session, error) {
	return s.Store.ChangeSession(ctx, id, func(cur session.Session) (session.Session, audit.Entry, error) {
		began := time.Now()
		next, e, err := change(cur)
		s.least = min(s.least, time.Since(began))
		return next, e, err
	})
}

// A plan is judged before its transaction begins: the store has one writer, and the calls of every agent wait for it.
func TestPlansDoNotHoldUpTheWriter(t *testing.T) {
	w := newWorld(t)
	// Sources and sinks alternate and need one another's results. No order is safe, and finding the ways out is work.
	var b strings.Builder
	for i := range 200 {
		if i > 0 {
			b.WriteByte(',')
		}
		tool, after := "search_email", ""
		if i%2 == 1 {
			tool, after = "web_search", fmt.Sprintf(`,"after":[%d]`, i-1)
		}
		fmt.Fprintf(&b, `{"tool":%q,"justification":"x","arguments":{"a":"%s"}%s}`, tool, strings.Repeat(`a@b.co `, 33), after)
	}
	timed := &timedTransactions{Store: w.store, least: time.Hour}
	g := gatewayOn(t, w, timed)
	judging := time.Hour
	for range 5 { // the least of several, because the machine may be busy
		began := time.Now()
		if _, err := g.ValidatePlan(t.Context(), as("planner"), "", json.RawMessage(`{"planned_calls":[`+b.String()+`]}`)); err != nil {
			t.Fatal(err)
		}
		judging = min(judging, time.Since(began))
		if _, err := g.SubmitPlan(t.Context(), as("planner"), "", json.RawMessage(`{"steps":[`+b.String()+`]}`)); err != nil {
			t.Fatal(err)
		}
	}
	if timed.least > judging/4 {
		t.Errorf("submitting a plan holds the writer for %s; judging it takes %s", timed.least, judging)
	}
}

// The budget is one, however many calls run at a time.
func TestCallsAtOnceShareOneBudget(t *testing.T) {
	w := newWorld(t, func(o *gateway.Options) { o.Limits.Budget = 40 * time.Second })
	w.up.answers["docs.think"] = func(ctx context.Context, _ json.RawMessage, _ *call.Exchange) (json.RawMessage, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	var wg sync.WaitGroup
	began := time.Now()
	for range 40 {
		wg.Go(func() {
			if v := w.call("worker", "think").Verdict; v.Code == fault.LimitBudget && (len(v.Remedies) != 1 || v.Remedies[0].Kind != "new_session") {
				t.Errorf("without a way out: %+v", v)
			}
		})
	}
	wg.Wait()
	if alone := w.o.Limits.Budget; time.Since(began) > alone/2 { // forty spend it forty times as fast
		t.Errorf("the calls ran %s, as if each had a budget of its own", time.Since(began))
	}
	w.mustRefuse(w.call("worker", "think"), fault.LimitBudget)
}

// An agent that declares one need over and over puts a new question before people each time, and never has more than one open: the bounds on
// open questions bound nothing.
func TestDeclaringOverAndOverIsBounded(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	const tries = 300
	for range tries {
		if _, err := w.declare(p, "slack.publish", `{"x":1}`); err != nil && !fault.Is(err, fault.LimitQuota) {
			t.Fatal(err)
		}
	}
	asked := 0
	for after := ""; ; {
		page, err := w.g.Desk().Questions(t.Context(), "", p.ID, after, 100)
		if err != nil {
			t.Fatal(err)
		}
		asked += len(page)
		if len(page) < 100 {
			break
		}
		after = page[len(page)-1].ID
	}
	if asked > 100 {
		t.Errorf("%d questions about one call, each of them a message to everybody, and what anybody answered the one before is void", asked)
	}
}

// A held call costs memory for as long as it is held, whatever it asks: one agent must not hold any number of them.
func TestHeldCallsAreBounded(t *testing.T) {
	w := newPeopleWorld(t)
	p := w.open("worker", "erin", widgets)
	const calls = 400
	ctx, cancel := context.WithCancel(t.Context())
	var holding atomic.Int64
	done := make(chan struct{}, calls)
	for range calls { // the same call: one question
		go func() {
			var once atomic.Bool
			w.g.Call(ctx, gateway.Request{Principal: p, Method: "tools/call", Tool: "slack_publish", Arguments: json.RawMessage(`{"x":1}`), Door: "mcp", Hold: time.Hour, Waiting: func(desk.Waiting) {
				if once.CompareAndSwap(false, true) {
					holding.Add(1)
				}
			}})
			done <- struct{}{}
		}()
	}
	for end := time.Now().Add(5 * time.Second); holding.Load()+int64(len(done)) < calls && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	n, held := holding.Load(), w.g.Desk().Held()
	cancel()
	for range calls {
		<-done
	}
	if after := w.g.Desk().Held(); held == 0 || int64(held) > n || after != 0 { // some may have been let go by then
		t.Errorf("%d calls are said to be held, of %d that were; %d afterwards", held, n, after)
	}
	if n > 200 {
		t.Errorf("%d calls of one session are held at once; with 4 MiB of arguments each has several copies of them", n)
	}
}

type countedLookUps struct {
	gateway.Store
	used atomic.Int64
}

func (c *countedLookUps) Used(ctx context.Context, key string) (bool, error) {
	c.used.Add(1)
	return c.Store.Used(ctx, key)
}

// To ask what a plan would be judged is one request of the rate limit: it must not be thousands of look-ups.
func TestPlanDoesNotMultiplyLookUps(t *testing.T) {
	w := newPeopleWorld(t)
	c := &countedLookUps{Store: w.store}
	w.o.Store = c
	g, err := gateway.New(t.Context(), w.o)
	if err != nil {
		t.Fatal(err)
	}
	w.offerAll(g)
	w.g = g
	p := w.open("worker", "erin", widgets)
	var to []string
	for i := range 32 {
		to = append(to, fmt.Sprintf("%d", i))
	}
	step := `{"tool":"slack_send","arguments":{"to":[` + strings.Join(to, ",") + `]}}`
	began := time.Now()
	if _, err := g.ValidatePlan(t.Context(), p, "", json.RawMessage(`{"planned_calls":[`+strings.Repeat(step+",", 199)+step+`]}`)); err != nil {
		t.Fatal(err)
	}
	if n := c.used.Load(); n > 500 {
		t.Errorf("%d look-ups in the store for one request to validate a plan, %s; 600 such are allowed in a minute", n, time.Since(began))
	}
}

// An agent asks people so often in a minute and not more, by calls, declarations and in whatever session; what nobody is asked about goes on.
func TestQuestionsAMinuteAreBounded(t *testing.T) {
	const most = 4
	w := newPeopleWorld(t, func(o *gateway.Options) { o.Limits.AsksPerMinute = most })
	first := w.open("worker", "erin", widgets)
	asked := w.mustAsk(w.do(first, "slack_publish", `{"n":0}`, ""))
	w.mustDeclare(first, "slack.publish", `{"n":1}`, fault.Ask)
	second := w.open("worker", "erin", widgets)
	w.mustAsk(w.do(second, "slack_publish", `{"n":2}`, ""))
	w.mustDeclare(second, "slack.publish", `{"n":3}`, fault.Ask)

	a := w.do(first, "slack_publish", `{"n":4}`, "")
	w.mustRefuse(a, fault.LimitRate)
	if len(a.Verdict.Remedies) != 1 || a.Verdict.Remedies[0].Kind != "wait" || a.Verdict.ApprovalID != nil {
		t.Errorf("%+v", a.Verdict)
	}
	if _, err := w.declare(second, "slack.publish", `{"n":5}`); !fault.Is(err, fault.LimitRate) {
		t.Errorf("one more declaration: %v", err)
	}
	if again := w.mustAsk(w.do(first, "slack_publish", `{"n":0}`, "")); again != asked {
		t.Errorf("what waits already was asked anew: %s, not %s", again, asked)
	}
	if a := w.do(first, "slack_plain", `{}`, ""); a.Verdict.Decision != fault.Permit {
		t.Errorf("what needs nobody: %+v", a.Verdict)
	}
	w.mustAsk(w.do(w.open("selfish", "erin", widgets), "slack_publish", `{"n":0}`, ""))
	w.clock.advance(time.Minute)
	w.mustAsk(w.do(first, "slack_publish", `{"n":4}`, ""))
}

// What is refused leaves no payload, however large it was: neither a call, nor a plan or a declaration.
func TestRefusedLeavesNoPayload(t *testing.T) {
	w := newCommWorld(t)
	p := w.open("planner", "erin", "What do widgets cost in 2026?")
	long := strings.Repeat("long ", 4000)
	w.mustRefuse(w.do(p, "web_search", `{"q":"`+long+`"}`, ""), fault.PhaseBlocked)
	if plan := w.submit(p, `[{"tool":"nothing","arguments":{"q":"`+long+`"},"justification":"why not"}]`); plan.State != session.PlanRejected {
		t.Fatalf("%+v", plan)
	}
	w.mustDeclare(p, "comm.get", `{"url":"https://forbidden.example/`+strings.ReplaceAll(long, " ", "-")+`"}`, fault.Deny)
	found := 0
	for _, e := range w.entries() {
		if e.Decision != string(fault.Deny) || e.Arguments == nil {
			continue
		}
		if found++; e.Arguments.Stored || e.Arguments.Size < int64(len(long)) || len(e.Arguments.SHA256) != 64 {
			t.Errorf("%s: %+v", e.Action, e.Arguments)
		}
	}
	if found != 3 {
		t.Errorf("%d refusals", found)
	}
}
