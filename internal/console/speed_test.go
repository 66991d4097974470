package console

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/monitor"
	"sallyport.example/internal/session"
)

// BenchmarkPages is what the server takes for each page with many requests that wait and a long log. With SALLYPORT_BENCH_FULL=1 these are the 10,000
// requests and 1,000,000 entries that the gateway is meant for. ms/page is the time from the request to the last byte, cpu-ms/page the processor time.
func BenchmarkPages(b *testing.B) {
	requests, entries := 500, 5_000
	if os.Getenv("SALLYPORT_BENCH_FULL") != "" {
		requests, entries = 10_000, 1_000_000
	}
	w := newPagesWorld(b)
	newest := w.fill(requests, entries)
	w.c.o.Counters = monitor.New(w.store, time.Now, slog.New(slog.DiscardHandler))
	if err := w.c.o.Counters.CatchUp(b.Context()); err != nil {
		b.Fatal(err)
	}
	p := identity.Principal{Kind: identity.Person, ID: "ann", Roles: []identity.Role{identity.Approver, identity.Viewer, identity.Operator, identity.Auditor}}
	w.c.mu.Lock()
	w.c.signIns["ann"] = signIn{who: func() (identity.Principal, error) { return p, nil }, grant: grant{until: time.Now().Add(time.Hour)}}
	w.c.mu.Unlock()
	for _, path := range []string{
		"/", "/?span=1h", "/approvals", "/approvals?risk=HIGH", "/approvals?agent=worker", "/approvals?state=rejected", "/approvals/count", "/approvals/" + newest.ID, "/approvals/" + newest.ID + "/similar",
		"/sessions", "/sessions/" + newest.Session, "/agents", "/agents/worker", "/tools", "/tools/rules", "/audit", "/audit?since=24h&decision=deny", "/audit/4000",
	} {
		b.Run(strings.ReplaceAll(strings.ReplaceAll(path, newest.ID, "ID"), newest.Session, "ID"), func(b *testing.B) {
			before := cpuTime()
			for b.Loop() {
				r := httptest.NewRequest("GET", path, nil)
				r.AddCookie(&http.Cookie{Name: cookieName, Value: "ann"})
				rec := httptest.NewRecorder()
				if w.mux.ServeHTTP(rec, r); rec.Code != 200 {
					b.Fatal(rec.Code, rec.Body)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/page")
			b.ReportMetric(float64((cpuTime()-before).Microseconds())/1000/float64(b.N), "cpu-ms/page")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// cpuTime is the processor time of the process so far, which other work on the machine changes less than the time on the clock.
func cpuTime() time.Duration {
	var r syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// fill writes questions that wait and further entries, and returns the newest question.
func (w *pagesWorld) fill(requests, entries int) approval.Approval {
	w.t.Helper()
	ctx := context.Background()
	var all []session.Session
	for range max(1, requests/100) { // a session has no more that wait
		s := session.New("worker", session.Execution, "person:admin", time.Now())
		if err := w.store.OpenSession(ctx, s, audit.Entry{Kind: audit.Change, Action: "session.open", Agent: s.Agent, Session: s.ID, Actor: s.OpenedBy, Decision: "ok"}); err != nil {
			w.t.Fatal(err)
		}
		all = append(all, s)
	}
	risks := []string{"MEDIUM", "HIGH", "CRITICAL"}
	var last atomic.Pointer[approval.Approval]
	w.many(requests, func(i int) error {
		s, arguments := all[i%len(all)], fmt.Appendf(nil, `{"body":"Invoice %d is paid.","channel":"general"}`, i)
		a, err := approval.New(approval.Approval{
			CallDigest: call.HashBytes(arguments), Risk: risks[i%3], Operation: "slack.post", DefinitionHash: "d", Arguments: arguments, Session: s.ID, Agent: s.Agent, OpenedBy: s.OpenedBy,
			Environment: "bench", Reasons: []approval.Reason{{Stage: "risk", Code: "risk.action", Text: "Others see it."}}, Destinations: []string{`"general"`},
		}, time.Now(), time.Hour)
		if err != nil {
			return err
		}
		last.Store(&a)
		_, err = w.store.AskPerson(ctx, desk.Ask{Session: a.Session, Agent: a.Agent, CallDigest: a.CallDigest, At: time.Now()}, func(desk.Found) (desk.Written, error) {
			return desk.Written{Question: &a, Entry: audit.Entry{Kind: audit.Decision, Action: "approval.ask", Agent: a.Agent, Session: a.Session, Operation: a.Operation, Actor: "rule:test", Decision: "ask"}}, nil
		})
		return err
	})
	w.many(entries, func(i int) error {
		e := audit.Entry{Kind: audit.Decision, Action: "call", Agent: "worker", Session: all[i%len(all)].ID, Operation: "mail.search", Actor: "agent:worker", Decision: "permit"}
		if i%50 == 0 {
			e.Decision, e.Code, e.Reason = "deny", "flow.contaminated", "The session has read private data."
		}
		return w.store.Record(ctx, e)
	})
	return *last.Load()
}

// many runs do n times, many at once, so that they share commits.
func (w *pagesWorld) many(n int, do func(i int) error) {
	w.t.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				err := do(int(i - 1))
				for try := 0; try < 100 && fault.Is(err, fault.AuditUnavailable); try++ { // the machine has other work
					err = do(int(i - 1))
				}
				if err != nil {
					w.t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
