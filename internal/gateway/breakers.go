package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/breaker"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/changes"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/limit"
	"sallyport.example/internal/session"
	"sallyport.example/internal/standing"
)

// Breakers are the operator's thresholds of the circuit breakers.
type Breakers struct {
	breaker.Rules
	// CountReads says that an error which a server answers a read with counts for the agent, as one of a write does.
	CountReads bool
}

// The actions of entries about agents that miss one that they depend on, and that have it back.
const (
	ActionDegraded = "agent.degraded"
	ActionWhole    = "agent.whole"
)

// Breakers returns the circuit breakers that have counted something.
func (g *Gateway) Breakers() []breaker.State { return g.breakers.List() }

// ResetBreaker closes a circuit breaker by a person's word. It is a NotFound where none of that name counts anything.
func (g *Gateway) ResetBreaker(ctx context.Context, name, reason, by string) error {
	e, is := g.breakers.Reset(name)
	if !is {
		return fault.New(fault.NotFound, "No circuit breaker %.160q is open or counts failures.", name).At("name").Try("sallyport breaker list shows those that do.")
	}
	return g.writeBreaker(ctx, e, by, reason)
}

// TestBreaker proves that an agent's circuit breaker stops its calls (AU-7): it opens it, has a call of the agent judged as the corridor judges it, and
// resets it. Calls that the agent makes meanwhile are refused. operation is what was to be called; "": the agent can call nothing just now, and only the breaker was asked.
func (g *Gateway) TestBreaker(ctx context.Context, agent, by string) (refused bool, operation string, err error) {
	if err := g.standing.Declared(agent); err != nil {
		return false, "", err
	}
	judged := func() fault.Verdict { return fault.Verdict{} }
	for _, op := range g.operationsOf(agent) {
		c, err := g.imagined(agent, op)
		if err != nil {
			return false, "", err
		}
		if v := c.remembered(); v.Decision != fault.Deny {
			judged, operation = c.remembered, op.ID
			break
		}
	}
	const why = "a person tests it"
	e, ok := g.breakers.Open(agent, why)
	if !ok {
		return false, "", fault.New(fault.Conflict, "The circuit breaker of %s is open, so it can't be tested.", agent).Try("Reset it first: sallyport breaker reset %s", breaker.AgentName(agent))
	}
	opened := g.writeBreaker(ctx, e, by, why)
	refused = g.breakers.Look(agent, "") != nil && (operation == "" || judged().Code == fault.BreakerOpen)
	e, _ = g.breakers.Reset(e.Name)
	return refused, operation, errors.Join(opened, g.writeBreaker(ctx, e, by, why))
}

// imagined is a call of the agent's in a session that is new and ready to act, and that nobody else has.
func (g *Gateway) imagined(agent string, op *catalogue.Operation) (*crossing, error) {
	set := g.settings.Load()
	d, err := set.declared(agent)
	if err != nil {
		return nil, err
	}
	s, tier := session.New(agent, session.Execution, "gateway", g.now()), set.tierOf(d)
	l := &live{meter: limit.NewMeter(s.Budget, 0), pace: &limit.Pace{}, rates: limit.NewRates(tier.CallsPerMinute, tier.CommRequestsPerMinute)}
	c := &crossing{g: g, moment: judge.Check, r: Request{Method: call.CallTool, DryRun: true}, speaker: speaker{set: set, agent: agent, decl: d, live: l, session: l.see(s)}}
	c.subject = subject{effect: effect.Of(op), op: op, args: []byte("{}"), grounds: grounds{inPlan: true}, partial: true}
	c.understand()
	return c, nil
}

// remembered judges by what memory knows.
func (c *crossing) remembered() fault.Verdict {
	f := c.load()
	p := judge.Memory(c.moment, &f)
	return p.Verdict()
}

// RunEnded counts how a run of the agent ended, by its status and the code of its verdict: failed ones in a row open its circuit breaker. It is on record.
func (g *Gateway) RunEnded(ctx context.Context, agent, status string, code fault.Code) {
	failed, ended := breaker.RunFailed(status, code)
	if !ended {
		return
	}
	g.breakersMoved(ctx, g.breakers.Run(agent, failed))
	if rule := runRule(status, code); rule != "" {
		g.did(ctx, rule, agent)
	}
}

// BreakerOpen is the error of a run of the agent while its circuit breaker is open; nil: it is closed, or one may try.
func (g *Gateway) BreakerOpen(agent string) error {
	b := g.breakers.Look(agent, "")
	if b == nil {
		return nil
	}
	v := judge.BreakerOpen(shownBreaker(b), g.now())
	e := fault.New(fault.BreakerOpen, "%s", v.Reason).Try("%s", v.Remedies[0].Text)
	e.Again = v.Again
	return e
}

// restoreBreakers takes their state from the log.
func (g *Gateway) restoreBreakers(ctx context.Context) error {
	g.breakers = breaker.New(g.now, g.settings.Load().Breakers.Rules)
	history, err := g.o.History(ctx)
	if err != nil {
		return fmt.Errorf("reading what circuit breakers counted: %w", err)
	}
	g.restoreConduct(history)
	g.breakersMoved(ctx, g.breakers.Restore(history))
	for i := range history {
		switch e := &history[i]; e.Action {
		case ActionDegraded:
			g.missed[e.Agent], _ = call.GetText(e.Detail, "by") // what an entry of another form says is written down anew
		case ActionWhole:
			delete(g.missed, e.Agent)
		}
	}
	return nil
}

// breakersMoved writes down what opened and closed by itself. The breakers act from memory, so a store that fails changes nothing about that.
func (g *Gateway) breakersMoved(ctx context.Context, events []breaker.Event) {
	for _, e := range events {
		if err := g.writeBreaker(ctx, e, "gateway", ""); err != nil {
			g.log.Error("a circuit breaker is not written down; it acts all the same", "breaker", e.Name, "open", e.Open, "error", err)
		}
		if e.Open && !e.Again && e.Kind == breaker.OfAgent && e.Opened >= g.settings.Load().Quarantine.BreakerOpenings {
			times := fmt.Sprintf("%d times within an hour", e.Opened)
			if e.Opened == 1 {
				times = "once"
			}
			g.quarantineByRule(ctx, e.Agent, fmt.Sprintf("its circuit breaker opened %s: %s", times, e.Cause), ByBreaker)
		}
	}
}

func (g *Gateway) writeBreaker(ctx context.Context, e breaker.Event, by, reason string) error {
	entry := audit.Entry{Kind: audit.Change, Action: breaker.ActionClosed, Agent: e.Agent, Actor: by, Reason: audit.Clip(reason), Decision: "ok"}
	if e.Open {
		entry.Action, entry.Reason = breaker.ActionOpen, audit.Clip(e.Cause)
	}
	entry.Detail, _ = json.Marshal(e) // of strings, numbers and times: can't fail
	err := g.store.Record(context.WithoutCancel(ctx), entry)
	g.feed.Publish(changes.Breaker, e.Name)
	g.desk.WakeAll() // a call that is held for an agent or a server that is away is judged again
	g.voidStopped()  // and who depends on the agent is told
	return err
}

// server is the server, or the model, that the call goes to; "" for what the gateway does itself. What an agent reaches through comm.* is no server of the
// operator's. Each model counts by itself: one may be overloaded while another of its provider answers, and takes its place.
func (c *crossing) server() string {
	switch {
	case c.op.Model != nil:
		return breaker.ModelServer(c.op.Model.ID)
	case c.op.Command != nil:
		return ""
	}
	return c.op.Server
}

// shownBreaker is an open breaker as the stages read it.
func shownBreaker(b *breaker.Blocked) *judge.Breaker {
	if b == nil {
		return nil
	}
	what := "the server " + b.Name
	id, model := breaker.Model(b.Name)
	switch {
	case b.Kind == breaker.OfAgent:
		what = "this agent"
	case b.Kind == breaker.Pair:
		what = "this agent's calls to the server"
		if _, server, _ := strings.Cut(b.Name, "@"); strings.HasPrefix(server, breaker.ModelServer("")) {
			what = "this agent's requests to the model"
		}
	case model:
		what = "the model " + id
	}
	return &judge.Breaker{Name: b.Name, What: what, Cause: b.Cause, Since: b.Since, Retry: b.Retry}
}

// takeTry lets the call through the breakers, or refuses it: another call was faster to try.
func (c *crossing) takeTry() fault.Verdict {
	c.releaseTry()
	try, blocked := c.g.breakers.Take(c.agent, c.server())
	if blocked != nil {
		return judge.BreakerOpen(shownBreaker(blocked), c.g.now())
	}
	c.try = try
	return fault.Permitted()
}

// releaseTry gives back what a call took of the breakers that did not run, or whose end says nothing.
func (c *crossing) releaseTry() {
	c.try.Release()
	c.try = nil
}

// ended counts how the call ended. Its outcome is durable.
func (c *crossing) ended(ctx context.Context, r breaker.Result) {
	try := c.try
	c.try = nil
	c.g.breakersMoved(ctx, try.End(r))
}

// rpcInternal is JSON-RPC's code of a server that failed inside. The other codes refuse the request.
const rpcInternal = -32603

// endedAs is how the call ended, as breakers count it: what it was stopped by, and what an agent can make happen anywhere, says nothing.
func (c *crossing) endedAs(out *outcome, err error) breaker.Result {
	var rpc *call.RPCError
	var unsent *fault.NotDispatched
	counts := c.writes || c.set.Breakers.CountReads
	switch {
	case c.server() == "":
		return breaker.Void
	case err == nil && out.entry.Code == string(fault.ResultInvalid), err == nil && effect.ProviderFails(c.effect, out.result):
		return breaker.Broken
	case err == nil && effect.Asks(c.effect): // an error of its provider's about the request, too
		return breaker.Answered
	case err == nil && out.entry.Decision == "ok", err == nil && !counts:
		return breaker.Answered
	case err == nil:
		return breaker.Refused
	case errors.As(err, &rpc):
		var said struct {
			Code int `json:"code"`
		}
		if counts && json.Unmarshal(rpc.JSON, &said) == nil && said.Code == rpcInternal {
			return breaker.Refused
		}
		return breaker.Answered
	case slices.ContainsFunc([]error{standing.ErrKilled, errClosed, errStopping, errUntaken, limit.ErrBudget, context.Canceled}, func(cause error) bool { return errors.Is(err, cause) }):
		return breaker.Void
	}
	var ended *fault.Ended
	switch code := fault.Of(err).Code; {
	case errors.As(err, &unsent) && unsent.Starting:
		return breaker.Starting
	case code == fault.UpstreamFailed && unsent != nil && !unsent.Own:
		return breaker.Unreachable
	case errors.As(err, &ended) && ended.Others:
		return breaker.ExitedTogether
	case ended != nil:
		return breaker.Exited
	case code == fault.UpstreamFailed, code == fault.TimeExceeded, code == fault.ResultInvalid:
		return breaker.Broken
	}
	return breaker.Void
}

// degraded is the first agent that the declared one depends on, directly or through others, and that is aside; nil: none is.
func (g *Gateway) degraded(set *settings, d *agent.Declaration) *agent.Degraded {
	if d == nil || len(d.DependsOn) == 0 {
		return nil
	}
	seen := map[string]bool{agent.Base(d.AgentID): true}
	for waiting := d.DependsOn; len(waiting) > 0; waiting = waiting[1:] {
		id := waiting[0]
		if seen[id] {
			continue
		}
		seen[id] = true
		if since, why := g.aside(id); why != "" {
			return &agent.Degraded{By: id, Since: since, Why: why}
		}
		if of, ok := set.Agents.Get(id); ok {
			waiting = append(slices.Clip(waiting), of.DependsOn...)
		}
	}
	return nil
}

// noteDegraded writes down which agents have come to miss one that they depend on, and which have it back.
func (g *Gateway) noteDegraded(ctx context.Context) error {
	set := g.settings.Load()
	for _, d := range set.Agents.All() {
		if len(d.DependsOn) == 0 {
			continue
		}
		now := g.degraded(set, d)
		by := ""
		if now != nil {
			by = now.By
		}
		if g.missed[d.AgentID] == by {
			continue
		}
		e := audit.Entry{Kind: audit.Change, Action: ActionWhole, Agent: d.AgentID, Actor: "gateway", Decision: "ok", Reason: "the agents that it depends on are back"}
		if now != nil {
			e.Action, e.Reason = ActionDegraded, audit.Clip(now.By+" is aside: "+now.Why)
			e.Detail, _ = json.Marshal(map[string]any{"by": now.By, "since": now.Since, "why": now.Why}) // of strings and a time: can't fail
		}
		if err := g.store.Record(context.WithoutCancel(ctx), e); err != nil {
			return err
		}
		g.missed[d.AgentID] = by
		g.feed.Publish(changes.Agent, d.AgentID)
	}
	return nil
}

// aside says since when an agent is aside, and why; "" if it is not.
func (g *Gateway) aside(id string) (since time.Time, why string) {
	if q, is := g.standing.Quarantined(id); is {
		return q.Since, "it is quarantined"
	}
	if g.standing.Killed(id) {
		status := g.standing.KillStatus()
		if sw := status.Agents[id]; sw.Active {
			return sw.Since, "it is stopped"
		}
		return status.Global.Since, "all agents are stopped"
	}
	if since, open := g.breakers.Opened(id); open {
		return since, "its circuit breaker is open"
	}
	return time.Time{}, ""
}

// Degraded says which agent that this one depends on is aside, since when and why; nil: none is, and it may do what it is permitted.
func (g *Gateway) Degraded(id string) *agent.Degraded {
	set := g.settings.Load()
	d, ok := set.Agents.Get(id)
	if !ok {
		return nil
	}
	return g.degraded(set, d)
}
