package console

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/agent/approved"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/limit"
	"sallyport.example/internal/quota"
	"sallyport.example/internal/session"
	"sallyport.example/internal/standing"
)

// countedSessions bounds how many open sessions are counted; the newest are.
const countedSessions = 500

// agentRow is a declared agent with its switch, its quarantine and its sessions.
type agentRow struct {
	*agent.Declaration
	Tier       string
	Kill       *standing.Switch // its own switch, if it was ever used
	Quarantine *standing.Quarantine
	Degraded   *agent.Degraded // an agent that it depends on is aside
	Open       int             // open sessions
	Approval   approved.Standing
}

// Approved tells whether its declaration counts.
func (a agentRow) Approved() bool { return a.Approval.State == approved.Approved }

// Killed tells whether its own switch is pulled.
func (a agentRow) Killed() bool { return a.Kill != nil && a.Kill.Active }

// Keeps are the operations that its declaration keeps while it is degraded.
func (a agentRow) Keeps() string { return strings.Join(a.Declaration.Degraded, ", ") }

// agentsPage shows every declared agent.
type agentsPage struct {
	Kill   standing.Switch // of all agents
	Agents []agentRow
	// Switched are agents that are not declared but whose switch is pulled.
	Switched []switchedAgent
	AtLeast  bool // there are more open sessions than were counted
	Missing  string
}

type switchedAgent struct {
	ID string
	standing.Switch
}

func (c *Console) agents(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	kill, aside := c.o.Gateway.Standing().KillStatus(), c.o.Gateway.Standing().Quarantines()
	d := agentsPage{Kill: kill.Global}
	open, atLeast, err := c.openSessions(r.Context())
	if d.AtLeast = atLeast; err != nil { // the switches come from memory, and must be there without the store
		d.Missing = c.missing("the agents' sessions", err)
	}
	for _, a := range c.o.Agents().All() {
		row := c.rowOf(a, kill, aside)
		row.Open = open[a.AgentID]
		d.Agents = append(d.Agents, row)
	}
	for _, id := range slices.Sorted(maps.Keys(kill.Agents)) {
		if _, declared := c.o.Agents().Get(id); !declared && kill.Agents[id].Active {
			d.Switched = append(d.Switched, switchedAgent{id, kill.Agents[id]})
		}
	}
	c.show(w, r, p, view{template: "agents", title: "Agents", place: "/agents", data: d})
}

func (c *Console) rowOf(a *agent.Declaration, kill standing.Switches, aside map[string]standing.Quarantine) agentRow {
	row := agentRow{Declaration: a, Tier: a.TrustTier, Approval: c.o.Approved.Of(a), Degraded: c.o.Gateway.Degraded(a.AgentID)}
	if row.Tier == "" {
		row.Tier = gateway.TierStandard
	}
	if sw, ok := kill.Agents[a.AgentID]; ok {
		row.Kill = &sw
	}
	if q, ok := aside[a.AgentID]; ok {
		row.Quarantine = &q
	}
	return row
}

// openSessions counts the open sessions by agent.
func (c *Console) openSessions(ctx context.Context) (byAgent map[string]int, atLeast bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	byAgent = map[string]int{}
	found, err := c.o.Store.SessionsPage(ctx, "", countedSessions, session.Open)
	for _, s := range found.Sessions {
		byAgent[s.Agent]++
	}
	return byAgent, len(found.Sessions) == countedSessions, err
}

// agentPage shows one agent with its whole declaration.
type agentPage struct {
	agentRow
	refusedAct
	Global   standing.Switch
	Operator bool
	Approver bool
	// Difference is what a person decides on, where the declaration is not approved.
	Difference approved.Difference
	Sessions   []session.Session // open ones, newest first
	Quotas     []quota.Status
	Throttle   *limit.Throttle // where its declaration says how fast it may call
	Breakers   []shownBreaker  // of it, that are open
	Next       *session.Next   // a person ordered that its next conversation is a fresh session
	AtLeast    bool
	Missing    string
	Exact      []piece
	TypedInput string // of a run that was not started
	AskOwn     bool   // what was typed is like what an agent said: is it the person's?
}

// Agent is the agent's id, as the page of a session names it.
func (d agentPage) Agent() string { return d.AgentID }

func (c *Console) showAgent(w http.ResponseWriter, r *http.Request, p identity.Principal, d agentPage, status int) {
	id := r.PathValue("id")
	a, ok := c.o.Agents().Get(id)
	if !ok {
		c.fail(w, r, p, fault.New(fault.NotFound, "No agent %.80q is declared.", id).Try("Add a file for it to the agents folder and reload the configuration; sallyport init writes an example."))
		return
	}
	kill := c.o.Gateway.Standing().KillStatus()
	d.agentRow, d.Global, d.Operator = c.rowOf(a, kill, c.o.Gateway.Standing().Quarantines()), kill.Global, p.Has(identity.Operator)
	d.Approver = p.Has(identity.Approver)
	declaration, err := json.Marshal(a)
	if err == nil && !d.Approved() {
		d.Difference, err = c.o.Approved.Difference(a)
	}
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	d.Exact = exactly(declaration)
	ctx, cancel := context.WithTimeout(r.Context(), storeTime)
	defer cancel()
	open, err := c.o.Store.SessionsPage(ctx, "", countedSessions, session.Open)
	if err != nil {
		d.Missing = c.missing("an agent's sessions", err)
	}
	for _, s := range open.Sessions {
		if s.Agent != id {
			continue
		}
		if d.Open++; len(d.Sessions) < shownSessions {
			d.Sessions = append(d.Sessions, s)
		}
	}
	if all := c.o.Gateway.Throttles(id); len(all) > 0 {
		d.Throttle = &all[0]
	}
	if d.Quotas, err = c.o.Gateway.Quotas(ctx, id); err != nil {
		d.Missing = c.missing("an agent's quotas", err)
	}
	d.Breakers = slices.DeleteFunc(c.openBreakers(false), func(b shownBreaker) bool { return b.Agent != id })
	d.AtLeast = len(open.Sessions) == countedSessions
	if d.Next, err = c.o.Gateway.Ordered(ctx, id); err != nil {
		d.Missing = c.missing("an agent's sessions", err)
	}
	c.show(w, r, p, view{template: "agent", title: a.AgentID, place: "/agents", status: status, data: d})
}

// actOnAgent shows the agent after the act.
func (c *Console) actOnAgent(w http.ResponseWriter, r *http.Request, p identity.Principal, name string, do action) {
	if refused := c.act(r, p, name, do); refused != nil {
		c.showAgent(w, r, p, agentPage{refusedAct: *refused}, refused.status)
		return
	}
	to, id := "/agents", r.PathValue("id")
	if _, ok := c.o.Agents().Get(id); ok {
		to += "/" + url.PathEscape(id)
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// killAgent acts from memory: nothing on this path waits for the store. Any well-formed id may be switched, as over HTTP, even that of an agent
// that is not declared.
func (c *Console) killAgent(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	c.actOnAgent(w, r, p, "kill", switching(p, c.o.Gateway.Standing().Disable))
}

func (c *Console) unkillAgent(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	c.actOnAgent(w, r, p, "unkill", switching(p, c.o.Gateway.Standing().Enable))
}

func switching(p identity.Principal, flip func(agent, by, reason string) standing.Switches) action {
	return func(_ context.Context, agent, reason string) error {
		if err := identity.CheckID(agent); err != nil {
			return fault.Wrap(err, fault.RequestMalformed, "%v.", err).At("agent")
		}
		flip(agent, p.String(), reason)
		return nil
	}
}

func (c *Console) quarantineAgent(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	c.actOnAgent(w, r, p, "quarantine", func(ctx context.Context, agent, reason string) error {
		return c.o.Gateway.Standing().Quarantine(ctx, agent, reason, p.String())
	})
}

// approveAgent approves the declaration that the page showed.
func (c *Console) approveAgent(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	c.actOnAgent(w, r, p, "approve", func(ctx context.Context, agent, reason string) error {
		_, err := c.o.Approved.Approve(ctx, agent, r.PostForm.Get("digest"), reason, approval.Voter{Person: p.ID, Roles: p.Roles})
		return err
	})
}

// orderNext lets the agent's next conversation be a fresh session. It takes no reason: it loosens nothing that a person has set.
func (c *Console) orderNext(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	id := r.PathValue("id")
	if _, err := c.o.Gateway.OrderNext(r.Context(), id, p.String()); err != nil {
		d := agentPage{refusedAct: refusedAct{Act: "next"}}
		d.Problem, d.status = c.refused(r, p, err, "next", "id", id)
		c.showAgent(w, r, p, d, d.status)
		return
	}
	http.Redirect(w, r, "/agents/"+url.PathEscape(id), http.StatusSeeOther)
}

func (c *Console) restoreAgent(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	c.actOnAgent(w, r, p, "restore", func(ctx context.Context, agent, reason string) error {
		return c.o.Gateway.Standing().Restore(ctx, agent, reason, p.String())
	})
}
