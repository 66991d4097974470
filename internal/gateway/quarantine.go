package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/breaker"
	"sallyport.example/internal/changes"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/screen"
)

// Quarantine are the rules that put an agent in quarantine (TH-9): how often within an hour; 0: never.
type Quarantine struct {
	BreakerOpenings int // of the agent's own circuit breaker; default 3
	FailedRuns      int // runs that failed by the agent, or timed out
	InvalidOutputs  int // runs whose output was invalid
	HitsWritten     int // hits of screening in what the agent wrote: arguments of calls, and of functions that its model calls, and messages to models
}

// quarantineAfter is how often an agent's own circuit breaker opens within an hour until it is quarantined, where nothing is configured.
const quarantineAfter = 3

// The rules, as they stand behind a quarantine.
const (
	ByBreaker        = "rule:breaker"
	ByFailedRuns     = "rule:failed_runs"
	ByInvalidOutputs = "rule:invalid_outputs"
	ByHitsWritten    = "rule:hits_written"
)

// within is the time that the rules look at.
const within = time.Hour

// conduct is when agents did what rules of quarantine count, in the last hour, by rule and agent. Refusals of the gateway, answers of people and what agents read
// are none of it.
type conduct struct {
	mu sync.Mutex
	at map[string]map[string][]time.Time
}

// add counts one more, and returns how many there were within the hour, most at most.
func (c *conduct) add(rule, of string, at time.Time, most int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil {
		c.at = map[string]map[string][]time.Time{}
	}
	if c.at[rule] == nil {
		c.at[rule] = map[string][]time.Time{}
	}
	all := slices.DeleteFunc(c.at[rule][of], func(t time.Time) bool { return at.Sub(t) > within })
	all = append(all, at)
	all = all[max(0, len(all)-most):]
	c.at[rule][of] = all
	return len(all)
}

// forget begins anew for an agent: it is in quarantine, or a person restored it.
func (c *conduct) forget(of string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, agents := range c.at {
		delete(agents, of)
	}
}

// needs is how many a rule needs, and in what words it says so.
func (q *Quarantine) needs(rule string) (most int, what string) {
	switch rule {
	case ByFailedRuns:
		return q.FailedRuns, "of its runs failed or timed out"
	case ByInvalidOutputs:
		return q.InvalidOutputs, "of its runs had an invalid output"
	case ByHitsWritten:
		return q.HitsWritten, "times what it wrote looked like orders to an agent"
	}
	return 0, ""
}

// did counts what an agent did, and puts it in quarantine where a rule has enough.
func (g *Gateway) did(ctx context.Context, rule, of string) {
	of = agent.Base(of)
	most, what := g.settings.Load().Quarantine.needs(rule)
	if most == 0 || g.conduct.add(rule, of, g.now(), most) < most {
		return
	}
	g.quarantineByRule(ctx, of, fmt.Sprintf("%d %s within an hour", most, what), rule)
}

func (g *Gateway) quarantineByRule(ctx context.Context, of, reason, rule string) {
	g.conduct.forget(of)
	if err := g.standing.QuarantineUndeclared(ctx, of, reason, rule); err != nil {
		g.log.Error("a quarantine by rule is not written down; it holds until a restart", "agent", of, "rule", rule, "error", err)
	}
}

// runRule is the rule that counts a run that ended so; "": none does.
func runRule(status string, code fault.Code) string {
	failed, _ := breaker.RunFailed(status, code)
	switch {
	case !failed:
		return ""
	case status == "invalid" || code == fault.OutputInvalid:
		return ByInvalidOutputs
	}
	return ByFailedRuns
}

// wroteHit counts a hit in what the call's agent wrote, once. What a person has approved counts for nothing.
func (c *crossing) wroteHit(ctx context.Context, found *screen.Found) {
	if c.hitCounted || c.r.DryRun || !found.Hit() || c.judged.facts.Answer.Approval != nil {
		return
	}
	c.hitCounted = true
	c.g.did(ctx, ByHitsWritten, c.agent)
}

// readHit tells people of a hit in what the agent read. No rule counts it: whoever writes what agents read would stop them with it.
func (c *crossing) readHit(found *screen.Found) {
	if found.Hit() && found.Channel != string(screen.Arguments) {
		c.g.feed.Publish(changes.Hit, c.agent)
	}
}

// restoreConduct takes what was counted from entries of the log, the oldest first. It quarantines nobody: that happens when something is added.
func (g *Gateway) restoreConduct(entries []audit.Entry) {
	rules := g.settings.Load().Quarantine
	seen := map[string]bool{} // calls whose hit is counted
	for i := range entries {
		e := &entries[i]
		rule := ""
		switch {
		case e.Action == "agent.quarantine" || e.Action == "agent.restore":
			g.conduct.forget(e.Agent)
		case e.Kind == audit.Change && strings.HasPrefix(e.Action, "run."):
			rule = runRule(strings.TrimPrefix(e.Action, "run."), fault.Code(e.Code))
		case e.Event == audit.ThreatHit && len(e.Approvers) == 0 && !seen[e.CallID]:
			var detail struct {
				Threat screen.Found `json:"threat"`
				Wrote  bool         `json:"wrote"`
			}
			if json.Unmarshal(e.Detail, &detail) == nil && (detail.Wrote || detail.Threat.Channel == string(screen.Arguments)) {
				rule, seen[e.CallID] = ByHitsWritten, true
			}
		}
		if most, _ := rules.needs(rule); most > 0 && g.now().Sub(e.At) <= within {
			g.conduct.add(rule, agent.Base(e.Agent), e.At, most)
		}
	}
}
