package store

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/quota"
	"sallyport.example/internal/session"
)

func cpuTime() time.Duration {
	var r syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkCall is one call's intent and outcome, durable, at 1, 8 and 64 callers with a session each.
func BenchmarkCall(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			db, err := Open(b.TempDir(), Options{patience: time.Minute})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			sessions := make([]session.Session, callers)
			for i := range sessions {
				sessions[i] = session.New(fmt.Sprintf("agent-%d", i), session.Execution, "person:admin", time.Now())
				if err := db.OpenSession(b.Context(), sessions[i], change("session.open", sessions[i])); err != nil {
					b.Fatal(err)
				}
			}
			before, cpu := db.w.commits.Load(), cpuTime()
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for _, s := range sessions {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						e := intent(s, call.NewID("call_", time.Now()))
						s, err := db.Intent(b.Context(), s.ID, s.Version, e, nil)
						if err != nil {
							b.Error(err)
							return
						}
						if _, err := db.Outcome(b.Context(), s.ID, outcome(e, "ok"), nil, time.Millisecond); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(db.w.commits.Load()-before)/float64(b.N), "commits/op")
		})
	}
}

// BenchmarkQuota is what writing an intent takes of the processor, without quotas and with some. Hundreds are written in one transaction, so that the commit
// doesn't drown the difference.
func BenchmarkQuota(b *testing.B) {
	limit := func(r quota.Resource, w quota.Window) quota.Limit {
		return quota.Limit{Resource: r, Window: w, Most: 1 << 60}
	}
	both := func(of ...quota.Resource) (limits []quota.Limit) {
		for _, r := range of {
			limits = append(limits, limit(r, quota.Hour), limit(r, quota.Day))
		}
		return limits
	}
	for _, c := range []struct {
		name   string
		limits []quota.Limit
	}{
		{"none", nil},
		{"calls", []quota.Limit{limit(quota.APICalls, quota.Day)}},
		{"calls-time", both(quota.APICalls, quota.ComputeSeconds)},
		{"all", both(quota.APICalls, quota.ComputeSeconds, quota.Tokens, quota.Cost)},
	} {
		b.Run(c.name, func(b *testing.B) {
			db, err := Open(b.TempDir(), Options{patience: time.Minute})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			s := session.New("agent", session.Execution, "person:admin", time.Now())
			if err := db.OpenSession(b.Context(), s, change("session.open", s)); err != nil {
				b.Fatal(err)
			}
			const batch = 500
			var cpu time.Duration
			b.ReportAllocs()
			for left := b.N; left > 0; left -= batch {
				err := db.w.do(b.Context(), &job{run: func(t *tx) error {
					began := cpuTime()
					defer func() { cpu += cpuTime() - began }()
					for range min(left, batch) {
						e := intent(s, call.NewID("call_", time.Now()))
						var claim *quota.Claim
						if len(c.limits) > 0 {
							claim = &quota.Claim{Agent: s.Agent, Limits: c.limits, Amount: map[quota.Resource]int64{quota.APICalls: 1}, Bound: map[quota.Resource]int64{quota.ComputeSeconds: 1000, quota.Tokens: 2000, quota.Cost: 300}}
						}
						uses, err := t.claims(claim)
						if err != nil {
							return err
						}
						if err := t.claim(claim, uses, e.CallID); err != nil {
							return err
						}
						if err := t.append(&e); err != nil {
							return err
						}
					}
					return nil
				}})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpu.Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkFloor is what the disk takes for two durable records by themselves: append and fsync, twice; and the same on a file
// that has its size already, as SQLite's log has after the first round.
func BenchmarkFloor(b *testing.B) {
	record := make([]byte, 900)
	for _, sized := range []bool{false, true} {
		b.Run(map[bool]string{false: "append", true: "overwrite"}[sized], func(b *testing.B) {
			f, err := os.Create(filepath.Join(b.TempDir(), "records"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			const size = 8 << 20
			if sized {
				if _, err := f.Write(make([]byte, size)); err != nil {
					b.Fatal(err)
				}
			}
			cpu, at := cpuTime(), int64(0)
			b.ReportAllocs()
			for b.Loop() {
				for range 2 {
					if _, err := f.WriteAt(record, at); err != nil {
						b.Fatal(err)
					}
					if err := f.Sync(); err != nil {
						b.Fatal(err)
					}
					if at += int64(len(record)); sized {
						at %= size - int64(len(record))
					}
				}
			}
			b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}

func change(action string, s session.Session) audit.Entry {
	return audit.Entry{Kind: audit.Change, Action: action, Agent: s.Agent, Session: s.ID, Actor: "person:admin"}
}

func intent(s session.Session, callID string) audit.Entry {
	return audit.Entry{
		Kind: audit.Intent, Action: "call", Agent: s.Agent, Session: s.ID, Requester: "alice", Actor: "agent:" + s.Agent, Door: "mcp",
		RequestID: "req_0190163d8694739b9b7d5f1d1c1c1c1c", Operation: "mail.search_email", CallID: callID,
		Digest:  "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		DefHash: "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752", Decision: "permit",
		Arguments: &audit.Payload{SHA256: "fd61a03af4f77d870fc21e05e7e80678095c92d808cfb3b5c279ee04c74aca13", Size: 24, Shown: []byte(`{"query":"invoices 2026"}`)},
	}
}

func outcome(intent audit.Entry, decision string) audit.Entry {
	e := intent
	e.Kind, e.Decision, e.Arguments, e.DurationMS = audit.Outcome, decision, nil, 3
	e.Result = &audit.Payload{SHA256: "fd61a03af4f77d870fc21e05e7e80678095c92d808cfb3b5c279ee04c74aca13", Size: 24, Shown: []byte(`{"content":[{"type":"text","text":"three messages"}]}`)}
	return e
}
