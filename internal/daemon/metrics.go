package daemon

import (
	"context"
	"net/http"

	"sallyport.example/internal/metrics"
	"sallyport.example/internal/quota"
	"sallyport.example/internal/upstream"
)

// metrics serves the gateway's figures.
func (d *Daemon) metrics() http.Handler {
	desk, standing := d.gate.Desk(), d.gate.Standing()
	return metrics.Handler(metrics.Sources{
		Version: d.o.Version, Counters: d.counters,
		Switches: standing.KillStatus, Quarantined: standing.Quarantines, UnderWay: standing.UnderWay, Held: desk.Held, Breakers: d.gate.Breakers,
		Memory: d.requests.Held, Writes: d.store.Writes, Ready: d.store.Ready, Entries: d.store.Size, Sessions: d.store.OpenSessions,
		Quotas: func(ctx context.Context) ([]quota.Status, error) { return d.gate.Quotas(ctx, "") },
		Servers: func() map[string]bool {
			up := map[string]bool{}
			for _, s := range d.up.Status() {
				up[s.ID] = s.State == upstream.Up
			}
			return up
		},
		Approvals: func(ctx context.Context) (int64, error) {
			n, _, err := desk.Waiting(ctx)
			return n, err
		},
		Plans: func(ctx context.Context) (int64, error) {
			_, n, err := d.gate.WaitingPlans(ctx, 0)
			return n, err
		},
		Messages: func(ctx context.Context) (map[string]metrics.Messages, error) {
			found, err := d.teller.n.Status(ctx)
			all := map[string]metrics.Messages{}
			for _, s := range found { // several channels of one kind are one: their addresses are for operators alone
				m := all[s.Kind]
				all[s.Kind] = metrics.Messages{Waiting: m.Waiting + s.Waiting, GivenUp: m.GivenUp + s.Failed}
			}
			return all, err
		},
	}, d.o.Log)
}
