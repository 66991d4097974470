package daemon

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/breaker"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/search"
)

// BreakersConfig holds the thresholds of the circuit breakers.
type BreakersConfig struct {
	Failures   int      `yaml:"failures,omitempty" json:"failures,omitempty" jsonschema:"How many failures in a row open a circuit breaker: 2 to 100. Default 5."`
	Wait       Duration `yaml:"wait,omitempty" json:"wait,omitempty" jsonschema:"How long an open circuit breaker refuses calls until one may try: 1s to 5m. It doubles with each try that fails, to 5m at most. Default 30s."`
	CountReads bool     `yaml:"count_reads,omitempty" json:"count_reads,omitempty" jsonschema:"Errors that a server answers reads with count as those of writes do, for the agent's circuit breaker at this server. Default false."`
}

func (c *Config) checkBreakers(p *complaints) {
	if n := c.Breakers.Failures; n != 0 && (n < 2 || n > 100) {
		p.bad("breakers.failures", "write 2 to 100", "%d failures in a row", n)
	}
	if w := time.Duration(c.Breakers.Wait); w != 0 && (w < time.Second || w > 5*time.Minute) {
		p.bad("breakers.wait", "write 1s to 5m", "%s is out of bounds", w)
	}
}

func (c *Config) breakers() gateway.Breakers {
	return gateway.Breakers{
		Rules:      breaker.Rules{Failures: cmp.Or(c.Breakers.Failures, breaker.Default.Failures), Wait: cmp.Or(time.Duration(c.Breakers.Wait), breaker.Default.Wait)},
		CountReads: c.Breakers.CountReads,
	}
}

const (
	// breakerEntries is how many of the newest entries rows of failures are taken from at the start.
	breakerEntries = 5000
	// breakerDays is for how long the openings and closings of before are looked up.
	breakerDays = 24 * time.Hour
)

// breakerHistory is what circuit breakers take their state from, the oldest first: the newest entries, the openings and closings of the last day, and whether each agent that depends
// on others missed one of them, however long ago that was.
func (d *Daemon) breakerHistory(ctx context.Context, agents agent.Set) ([]audit.Entry, error) {
	size, err := d.store.Size(ctx)
	if err != nil {
		return nil, err
	}
	newest := max(0, size-breakerEntries)
	var all []audit.Entry
	since := time.Now().Add(-breakerDays)
	for _, f := range []audit.Filter{{Action: breaker.ActionOpen, From: since}, {Action: breaker.ActionClosed, From: since}} {
		older, err := d.entries(ctx, f, newest)
		if err != nil {
			return nil, err
		}
		all = append(all, older...)
	}
	for _, a := range agents.All() {
		if len(a.DependsOn) == 0 {
			continue
		}
		older, err := d.degraded(ctx, a.AgentID, newest)
		if err != nil {
			return nil, err
		}
		all = append(all, older...)
	}
	slices.SortFunc(all, func(a, b audit.Entry) int { return cmp.Compare(a.Index, b.Index) })
	recent, err := d.entries(ctx, audit.Filter{Min: newest}, size)
	return append(all, recent...), err
}

// degraded are the newest entry before index end that says that the agent misses another, and what says that it has it back. Such entries may be many, and only these are read.
func (d *Daemon) degraded(ctx context.Context, agentID string, end int64) ([]audit.Entry, error) {
	log := search.New(d.store, nil)
	missed, err := log.Newest(ctx, audit.Filter{Agent: agentID, Action: gateway.ActionDegraded}, end, 1, math.MaxInt64)
	if err != nil || len(missed.Entries) == 0 {
		return nil, err
	}
	back, err := log.Newest(ctx, audit.Filter{Agent: agentID, Action: gateway.ActionWhole, Min: missed.Entries[0].Index}, end, 1, math.MaxInt64)
	return append(missed.Entries, back.Entries...), err
}
