package store

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/session"
)

// grown are the two sizes that a benchmark of growth compares: what a page costs must be the same. With SALLYPORT_BENCH_FULL=1 the larger one is that
// which the gateway is meant for.
func grown(full int) []int {
	if os.Getenv("SALLYPORT_BENCH_FULL") == "" {
		full = min(full, 4000)
	}
	return []int{full / 20, full}
}

// many runs make n times, many at once, so that they share commits.
func many(b *testing.B, n int, make func(i int) error) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := make(int(i - 1)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func growing(b *testing.B) *DB {
	b.Helper()
	db, err := Open(b.TempDir(), Options{patience: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	return db
}

// BenchmarkSessionsPage is a page of the open sessions, which are the oldest, among many that are closed; and of all.
func BenchmarkSessionsPage(b *testing.B) {
	for _, n := range grown(100_000) {
		db := growing(b)
		const open = 50
		many(b, n, func(i int) error {
			s := session.New(fmt.Sprintf("agent-%d", i%100), session.Execution, "person:admin", time.Now())
			if err := db.OpenSession(b.Context(), s, change("session.open", s)); err != nil || i < open {
				return err
			}
			_, err := db.ChangeSession(b.Context(), s.ID, func(s session.Session) (session.Session, audit.Entry, error) {
				s.State, s.Version = session.Closed, s.Version+1
				return s, change("session.close", s), nil
			})
			return err
		})
		for _, state := range []session.State{session.Open, ""} {
			b.Run(fmt.Sprintf("sessions=%d/state=%s", n, state), func(b *testing.B) {
				cpu := cpuTime()
				for b.Loop() {
					if page, err := db.SessionsPage(b.Context(), "", open, state); err != nil || len(page.Sessions) != open {
						b.Fatal(len(page.Sessions), err)
					}
				}
				b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// BenchmarkApprovalsPage is what the console and the command line show of many requests: those that wait, which are the oldest, and the newest of all; and
// how many wait.
func BenchmarkApprovalsPage(b *testing.B) {
	for _, n := range grown(10_000) {
		db := growing(b)
		const waiting = 50
		sessions := make([]session.Session, 100)
		for i := range sessions {
			sessions[i] = session.New(fmt.Sprintf("agent-%d", i), session.Execution, "person:admin", time.Now())
			if err := db.OpenSession(b.Context(), sessions[i], change("session.open", sessions[i])); err != nil {
				b.Fatal(err)
			}
		}
		many(b, n, func(i int) error {
			a := question(b, sessions[i%len(sessions)], i, func(a *approval.Approval) {
				a.Arguments = json.RawMessage(fmt.Sprintf(`{"n":%d,"text":%q}`, i, strings.Repeat("words ", 80)))
			})
			_, err := db.AskPerson(b.Context(), about(a), written(desk.Written{Question: &a, Entry: change2("approval.ask", a)}))
			if err != nil || i < waiting {
				return err
			}
			_, err = db.ChangeApproval(b.Context(), a.ID, func(old desk.Stored) (u desk.Update, err error) {
				u = desk.Update{Stored: old, Entry: change2("approval.reject", a)}
				u.Approval, err = old.Approval.Reject(bob, a.Digest, "no", time.Now())
				return u, err
			})
			return err
		})
		for name, f := range map[string]desk.Filter{
			"waiting": {State: approval.Pending}, "by urgency": {State: approval.Pending, Urgent: true}, "all": {}, "rejected": {State: approval.Rejected}, "expired": {State: approval.Expired},
			"of a session": {Session: sessions[7].ID, State: approval.Rejected},
		} {
			b.Run(fmt.Sprintf("approvals=%d/%s", n, name), func(b *testing.B) {
				cpu := cpuTime()
				for b.Loop() {
					f.Now, f.Limit = time.Now(), waiting
					if _, err := db.Approvals(b.Context(), f); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/float64(b.N), "cpu-ns/op")
			})
		}
		b.Run(fmt.Sprintf("approvals=%d/count", n), func(b *testing.B) {
			cpu := cpuTime()
			for b.Loop() {
				if k, _, err := db.CountApprovals(b.Context(), approval.Pending, time.Now()); err != nil || k != waiting {
					b.Fatal(k, err)
				}
			}
			b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkEntriesPage is a page of a long log's entries, and one of those of an action that only the newest ones have.
func BenchmarkEntriesPage(b *testing.B) {
	for _, n := range grown(1_000_000) {
		db := growing(b)
		s := session.New("agent", session.Execution, "person:admin", time.Now())
		many(b, n, func(i int) error {
			e := change("common", s)
			if i >= n-50 {
				e.Action = "rare"
			}
			return db.Record(b.Context(), e)
		})
		for _, f := range []audit.Filter{{Limit: 50}, {Action: "rare", Limit: 50}} {
			b.Run(fmt.Sprintf("entries=%d/action=%s", n, f.Action), func(b *testing.B) {
				cpu := cpuTime()
				for b.Loop() {
					if all, _, err := db.Entries(b.Context(), f); err != nil || len(all) != 50 {
						b.Fatal(len(all), err)
					}
				}
				b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/float64(b.N), "cpu-ns/op")
			})
		}
	}
}
