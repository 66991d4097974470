package daemon

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/agent/deployed"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/session"
	"sallyport.example/internal/standing"
)

// auditedSessions is how many open sessions the deployment check looks at, the newest first.
const auditedSessions = 1000

// deployment answers the deployment checklists from what this gateway is doing.
func (d *Daemon) deployment(ctx context.Context) (deployed.Report, error) {
	now, cfg, agents := time.Now().UTC(), d.config(), d.gate.Agents()
	f := deployed.Facts{
		At: now, Observes: cfg.observes(), Answerers: d.answering(cfg), HighAmount: cmp.Or(cfg.Approvals.HighAmount, policy.DefaultHigh), CriticalAmount: cmp.Or(cfg.Approvals.CriticalAmount, policy.DefaultCritical),
		Currency: cmp.Or(cfg.Approvals.Currency, policy.DefaultCurrency), Policies: d.gate.Policies(), Operations: len(d.gate.Catalogue().Tools()), Undeclared: d.undeclared(agents, now), Switch: switchOf(d.gate.Standing().KillStatus()),
		LogWrites: d.store.Ready(ctx) == nil, Anchor: "the anchor is " + d.anchored.watch.Status(ctx).Text,
	}
	f.Breakers = deployed.Breakers{Failures: cfg.breakers().Failures, Wait: cfg.breakers().Wait}
	f.Fallbacks = slices.Sorted(maps.Keys(cfg.fallbacks()))
	for _, m := range cfg.Models {
		if m.Fallback != "" {
			f.Fallbacks = append(f.Fallbacks, m.ID)
		}
	}
	for _, b := range d.gate.Breakers() {
		if b.State != "closed" {
			f.Breakers.Open = append(f.Breakers.Open, b.Name)
		}
	}
	var err error
	if f.LogSize, err = d.store.Size(ctx); err != nil {
		return deployed.Report{}, err
	}
	if f.Knowledge, err = d.knowledgeFacts(ctx); err != nil {
		return deployed.Report{}, err
	}
	if f.Agents, err = d.agentFacts(ctx, agents, now); err != nil {
		return deployed.Report{}, err
	}
	if len(f.Agents) > 0 {
		f.PromptBytes = len(d.gate.ManifestOf(session.New(f.Agents[0].Declaration.AgentID, session.Planning, byStart, now)).SystemPrompt)
	}
	return deployed.Check(f), nil
}

// answering is how many people can answer: those of the configuration, or admin, who always can where nobody is listed.
func (d *Daemon) answering(cfg *Config) int {
	if n := cfg.answerers(); n > 0 || len(cfg.People.List) > 0 {
		return n
	}
	if v, ok := cfg.voter(bootstrapAdmin); ok && v.Answers() {
		return 1
	}
	return 0
}

// undeclared are the agents that have a credential which is valid, and no declaration.
func (d *Daemon) undeclared(agents agent.Set, now time.Time) (ids []string) {
	for _, t := range d.gate.Standing().ListTokens() {
		s := t.Subject
		if s.Kind != identity.Agent || !t.Revoked.IsZero() || !s.Expires.IsZero() && s.Expires.Before(now) || slices.Contains(ids, s.ID) {
			continue
		}
		if _, ok := agents.Get(s.ID); !ok {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

func switchOf(s standing.Switches) deployed.Switch {
	out := deployed.Switch{Epoch: s.Epoch, Durable: s.Global.Durable || s.Global.Since.IsZero(), Used: s.Global.Since}
	for _, one := range s.Agents {
		out.Durable = out.Durable && one.Durable
		if one.Since.After(out.Used) {
			out.Used = one.Since
		}
	}
	return out
}

// knowledgeFacts looks at the knowledge store.
func (d *Daemon) knowledgeFacts(ctx context.Context) (k deployed.Knowledge, err error) {
	if k.AppendOnly, k.Doubts, err = d.store.AppendOnly(ctx, "knowledge_"); err != nil {
		return k, err
	}
	const page = 1000
	for after := ""; ; {
		found := d.books.Documents(after, "", page)
		for _, doc := range found {
			k.Documents++
			after = doc.ID()
			for i := range doc.Events {
				e := &doc.Events[i]
				if e.Version == 0 {
					continue
				}
				k.Versions++
				if kind, _, _ := strings.Cut(e.By, ":"); kind != string(identity.Person) && kind != string(identity.Host) {
					k.ByAgents = append(k.ByAgents, "the document "+doc.ID()+" was written by "+e.By)
				}
			}
		}
		if len(found) < page {
			break
		}
	}
	snapshots := d.books.Snapshots()
	if k.Snapshots = len(snapshots); k.Snapshots > 0 {
		newest := slices.MaxFunc(snapshots, func(a, b knowledge.Snapshot) int { return a.At.Compare(b.At) })
		k.Newest = newest.ID
	}
	return k, nil
}

// agentFacts looks at each declared agent.
func (d *Daemon) agentFacts(ctx context.Context, agents agent.Set, now time.Time) ([]deployed.Agent, error) {
	figures, err := d.runs.Lately(ctx, "")
	if err != nil {
		return nil, err
	}
	open, err := d.store.SessionsPage(ctx, "", auditedSessions, session.Open)
	if err != nil {
		return nil, err
	}
	problems := agent.Found(agents, now)
	var all []deployed.Agent
	for _, decl := range agents.All() {
		a := deployed.Agent{Declaration: decl, Problems: problems[decl.AgentID], Approved: d.approved.Approved(decl), Throttled: decl.CallsPerMinute() > 0}
		_, quotas := decl.Limits()
		a.Quota = len(quotas) > 0
		for _, op := range d.gate.Catalogue().Operations(decl) {
			if op.Flow.Effect != flow.Read {
				a.Writes = append(a.Writes, op.ID)
			}
		}
		for _, f := range figures {
			if f.Agent == decl.AgentID {
				a.Runs = deployed.Runs{All: f.Runs, Done: f.Done, Timeouts: f.Timeouts, Invalid: f.Invalid, Returned: f.Returned, Citations: f.Quality.Given, Verified: f.Quality.Verified}
			}
		}
		for _, s := range open.Sessions {
			if s.Agent == decl.AgentID && s.Autonomous() {
				a.Alone = append(a.Alone, s.ID)
			}
		}
		all = append(all, a)
	}
	return all, nil
}
