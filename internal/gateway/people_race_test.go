package gateway_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
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
	"sallyport.example/internal/identity"
)

// redeems is how many calls race in TestRacingRedeemsRunOnce. The figure is 100,000: go test ./internal/gateway -run Appr018 -redeems 100000
var redeems = flag.Int("redeems", 2_000, "how many calls race for an approval")

// One hundred at a time, on three gateways over one store: of each approval exactly one call comes, and it is the one on record.
func TestRacingRedeemsRunOnce(t *testing.T) {
	const racers, replicas = 100, 3
	w := newPeopleWorld(t, func(o *gateway.Options) { o.Limits.Budget, o.Limits.CallsPerMinute = 0, 0 })
	gateways := []*gateway.Gateway{w.g}
	for len(gateways) < replicas {
		gateways = append(gateways, w.again(t))
	}
	p := w.open("worker", "erin", widgets)
	rounds := max(1, *redeems/racers)
	began := time.Now()
	won := make([]int, replicas)
	arguments := json.RawMessage(`{"x":1}`)
	redeem := func(g *gateway.Gateway) gateway.Answer {
		return g.Call(t.Context(), gateway.Request{Principal: p, Method: "tools/call", Tool: "slack_publish", Arguments: arguments, Door: "mcp"})
	}
	next := w.mustAsk(redeem(w.g))
	used := map[string]string{}
	for round := range rounds {
		id := next
		q := w.question(id)
		if _, err := w.g.Desk().Respond(t.Context(), voters["bob"], desk.Response{Approval: id, Digest: q.Digest, Decision: approval.Approve}); err != nil {
			t.Fatal(err)
		}
		before := w.sent("publish")
		var start, done sync.WaitGroup
		start.Add(1)
		winners := make(chan int, racers)
		var winner, anew atomic.Value
		for i := range racers {
			done.Go(func() {
				start.Wait()
				a := redeem(gateways[i%replicas])
				switch {
				case a.Verdict.Decision == fault.Permit:
					winner.Store(a.CallID)
					winners <- i % replicas
				case a.Verdict.Decision == fault.Ask && a.Verdict.ApprovalID != nil: // too late: asked anew
					anew.Store(*a.Verdict.ApprovalID)
				case a.Verdict.Code == fault.Conflict: // too late by less
				case a.Verdict.Code == fault.AuditUnavailable && a.Verdict.Stage == "approve": // a busy disk: too late, and nobody was asked
				default:
					t.Errorf("%+v", a.Verdict)
				}
			})
		}
		start.Done()
		done.Wait()
		close(winners)
		for i := range winners {
			won[i]++
		}
		after := w.question(id)
		if n := w.sent("publish") - before; n != 1 || after.State != approval.Spent || after.SpentBy != winner.Load() {
			t.Fatalf("round %d: %d dispatched, %s by %s, won by %v", round, n, after.State, after.SpentBy, winner.Load())
		}
		used[id] = after.SpentBy
		w.up.mu.Lock()
		w.up.calls = nil // they are counted, and would fill the memory
		w.up.mu.Unlock()
		if a, ok := anew.Load().(string); ok {
			next = a
		} else {
			next = w.mustAsk(redeem(w.g))
		}
		if next == id || used[next] != "" {
			t.Fatalf("round %d: a used question is asked again", round)
		}
	}
	total := 0
	for _, n := range won {
		total += n
	}
	if total != rounds {
		t.Errorf("%d of %d", total, rounds)
	}
	t.Logf("%d redeems in %d rounds, %d at a time on %d gateways: %d dispatched (%v) in %s", rounds*racers, rounds, racers, replicas, total, won, time.Since(began).Round(time.Millisecond))
}

// BenchmarkApproveToDispatch is the time from a person's yes, with the call held, to the server having the call.
func BenchmarkApproveToDispatch(b *testing.B) {
	w := newPeopleWorld(b, func(o *gateway.Options) { o.Limits.Budget, o.Limits.CallsPerMinute = 0, 0 })
	p := w.open("worker", "erin", widgets)
	arrived := make(chan time.Time, 1)
	w.up.answers["slack.publish"] = at(arrived)
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		h := w.hold(p, "slack_publish", fmt.Sprintf(`{"n":%d}`, i), time.Hour)
		id := h.waits().ApprovalID
		r := desk.Response{Approval: id, Digest: w.question(id).Digest, Decision: approval.Approve}
		b.StartTimer()
		began := time.Now()
		if _, err := w.g.Desk().Respond(b.Context(), voters["bob"], r); err != nil {
			b.Fatal(err)
		}
		took = append(took, (<-arrived).Sub(began))
		b.StopTimer()
		w.mustPermit(h.ends())
		b.StartTimer()
	}
	percentiles(b, took)
}

// BenchmarkAskAndAnswer is a call that is asked about, approved and made again, from beginning to end.
func BenchmarkAskAndAnswer(b *testing.B) {
	w := newPeopleWorld(b, func(o *gateway.Options) { o.Limits.Budget, o.Limits.CallsPerMinute = 0, 0 })
	p := w.open("worker", "erin", widgets)
	for i := 0; b.Loop(); i++ {
		arguments := fmt.Sprintf(`{"n":%d}`, i)
		id := w.mustAsk(w.do(p, "slack_publish", arguments, ""))
		w.mustRespond("bob", id, approval.Approve, "")
		w.mustPermit(w.do(p, "slack_publish", arguments, ""))
	}
}

// BenchmarkQueuePage10k is a page of the queue, the first and one from the middle, with ten thousand questions waiting.
func BenchmarkQueuePage10k(b *testing.B) {
	const waiting, page = 10_000, 50
	w := newPeopleWorld(b)
	var middle string
	var p identity.Principal
	for i := range waiting {
		if i%100 == 0 {
			p = w.open("worker", "erin", widgets)
		}
		a, err := approval.New(approval.Approval{
			CallDigest: fmt.Sprintf("%064x", i), Risk: "HIGH", Operation: "slack.publish", DefinitionHash: "hash", Arguments: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i)),
			Session: p.ID, Agent: fmt.Sprint("agent", i/500), Requester: "erin", OpenedBy: "host:ci",
		}, w.clock.now(), time.Hour)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := w.db.AskPerson(b.Context(), desk.Ask{Session: a.Session, Agent: a.Agent, CallDigest: a.CallDigest, At: w.clock.now()}, func(desk.Found) (desk.Written, error) {
			return desk.Written{Question: &a, Entry: audit.Entry{Kind: audit.Decision, Action: "approval.ask", Agent: a.Agent}}, nil
		}); err != nil {
			b.Fatal(err)
		}
		if i == waiting/2 {
			middle = a.ID
		}
	}
	for name, after := range map[string]string{"first": "", "middle": middle} {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			b.ReportAllocs()
			for b.Loop() {
				began := time.Now()
				found, err := w.g.Desk().Questions(b.Context(), approval.Pending, "", after, page)
				if err != nil || len(found) != page {
					b.Fatal(len(found), err)
				}
				took = append(took, time.Since(began))
			}
			percentiles(b, took)
		})
	}
	b.Run("count", func(b *testing.B) {
		for b.Loop() {
			if n, _, err := w.g.Desk().Waiting(b.Context()); err != nil || n != waiting {
				b.Fatal(n, err)
			}
		}
	})
}

// at answers a call and says when it came.
func at(arrived chan<- time.Time) func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
	return func(context.Context, json.RawMessage, *call.Exchange) (json.RawMessage, error) {
		arrived <- time.Now()
		return text("ok"), nil
	}
}

func percentiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
