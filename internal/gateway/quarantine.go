package gateway

import (
	"context"
	"maps"
	"strings"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
)

// Quarantine says since when an agent is put aside, by whom and why.
type Quarantine struct {
	Since  time.Time `json:"since"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`

	durable bool // the store has it
}

// Quarantine puts an agent aside until a person restores it: its calls are refused (agent.quarantined), its sessions and what they hold
// stay. It holds from memory at once. With an error it holds as long as this process runs, and is not written down.
func (g *Gateway) Quarantine(ctx context.Context, agent, reason, by string) error {
	if err := g.canPutAside(agent, reason); err != nil {
		return err
	}
	q := Quarantine{Since: g.now(), By: by, Reason: clip(reason)}
	g.asideMu.Lock()
	if before, already := g.aside[agent]; already {
		q = before
	}
	g.aside[agent] = q
	g.asideMu.Unlock()
	defer g.changed(AgentChanged, agent)
	g.asideSaving.Lock() // one at a time, so that what is written is what was said last
	defer g.asideSaving.Unlock()
	if now, is := g.quarantined(agent); !is || now.durable {
		return nil
	}
	e := audit.Entry{Kind: audit.Change, Action: "agent.quarantine", Agent: agent, Actor: by, Reason: q.Reason, Decision: "ok"}
	if err := g.o.Store.SaveQuarantine(context.WithoutCancel(ctx), agent, &q, e); err != nil {
		return err // it is written at the next try
	}
	g.asideMu.Lock()
	q.durable = true
	g.aside[agent] = q
	g.asideMu.Unlock()
	return nil
}

// Restore ends an agent's quarantine, once that is written down.
func (g *Gateway) Restore(ctx context.Context, agent, reason, by string) error {
	if err := g.canPutAside(agent, reason); err != nil {
		return err
	}
	g.asideSaving.Lock()
	defer g.asideSaving.Unlock()
	if _, is := g.quarantined(agent); !is {
		return nil
	}
	e := audit.Entry{Kind: audit.Change, Action: "agent.restore", Agent: agent, Actor: by, Reason: clip(reason), Decision: "ok"}
	if err := g.o.Store.SaveQuarantine(context.WithoutCancel(ctx), agent, nil, e); err != nil {
		return err
	}
	g.asideMu.Lock()
	delete(g.aside, agent)
	g.asideMu.Unlock()
	g.changed(AgentChanged, agent)
	return nil
}

func (g *Gateway) canPutAside(agent, reason string) error {
	if _, err := g.declared(agent); err != nil {
		return fault.New(fault.NotFound, "No agent %q is declared.", short(agent)).At("id")
	}
	if strings.TrimSpace(reason) == "" {
		return fault.New(fault.RequestMalformed, "say why").At("reason")
	}
	return nil
}

// Quarantines returns the agents that are put aside.
func (g *Gateway) Quarantines() map[string]Quarantine {
	g.asideMu.RLock()
	defer g.asideMu.RUnlock()
	return maps.Clone(g.aside)
}

func (g *Gateway) quarantined(agent string) (Quarantine, bool) {
	g.asideMu.RLock()
	defer g.asideMu.RUnlock()
	q, is := g.aside[agent]
	return q, is
}
