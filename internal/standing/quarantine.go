package standing

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/sentence"
)

// Quarantine is an agent's quarantine. The agent's calls are refused as long as it holds.
type Quarantine struct {
	Since  time.Time `json:"since"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	Number int64     `json:"-"` // how many quarantines the agent has had, with this one

	durable bool // the store has it
}

// quarantines holds the present quarantines.
type quarantines struct {
	saving  sync.Mutex   // held while one or its end is written, before mu
	mu      sync.RWMutex // guards byAgent and counts
	byAgent map[string]Quarantine
	counts  map[string]int64 // how many quarantines each agent has had, ended ones included
}

// times returns how many quarantines the agent has had.
func (q *quarantines) times(agent string) int64 {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.counts[agent]
}

// Quarantine refuses an agent's calls (agent.quarantined) until a person restores it. Its sessions stay. The quarantine holds at once. If this
// returns an error of the store, the quarantine is not written down and holds only as long as this process runs.
func (s *Standing) Quarantine(ctx context.Context, agent, reason, by string) error {
	if err := s.Declared(agent); err != nil {
		return err
	}
	return s.QuarantineUndeclared(ctx, agent, reason, by)
}

// QuarantineUndeclared is Quarantine for an agent that may not be declared: it is refused once it is.
func (s *Standing) QuarantineUndeclared(ctx context.Context, agent, reason, by string) error {
	if err := canPutAside(agent, reason); err != nil {
		return err
	}
	q := Quarantine{Since: s.o.Now(), By: by, Reason: audit.Clip(reason)}
	s.aside.mu.Lock()
	if before, already := s.aside.byAgent[agent]; already {
		q = before
	} else {
		s.aside.counts[agent]++
		q.Number = s.aside.counts[agent]
	}
	s.aside.byAgent[agent] = q
	s.aside.mu.Unlock()
	defer s.o.AgentChanged(agent)
	s.aside.saving.Lock() // one at a time, so that the last one is written last
	defer s.aside.saving.Unlock()
	if now, is := s.Quarantined(agent); !is || now.durable {
		return nil
	}
	e := audit.Entry{Kind: audit.Change, Action: "agent.quarantine", Agent: agent, Actor: by, Reason: q.Reason, Decision: "ok"}
	if err := s.o.Store.SaveQuarantine(context.WithoutCancel(ctx), agent, &q, e); err != nil {
		return err // quarantining it again tries to write it again
	}
	s.aside.mu.Lock()
	q.durable = true
	s.aside.byAgent[agent] = q
	s.aside.mu.Unlock()
	return nil
}

// Restore ends an agent's quarantine once the end is written down.
func (s *Standing) Restore(ctx context.Context, agent, reason, by string) error {
	if err := canPutAside(agent, reason); err != nil {
		return err
	}
	s.aside.saving.Lock()
	defer s.aside.saving.Unlock()
	if _, is := s.Quarantined(agent); !is {
		return s.Declared(agent)
	}
	e := audit.Entry{Kind: audit.Change, Action: "agent.restore", Agent: agent, Actor: by, Reason: audit.Clip(reason), Decision: "ok"}
	if err := s.o.Store.SaveQuarantine(context.WithoutCancel(ctx), agent, nil, e); err != nil {
		return err
	}
	s.aside.mu.Lock()
	delete(s.aside.byAgent, agent)
	s.aside.mu.Unlock()
	s.o.AgentChanged(agent)
	return nil
}

// Declared refuses an agent that nobody declared, with the ids that may have been meant.
func (s *Standing) Declared(agent string) error {
	if _, ok := s.o.Agents().Get(agent); ok {
		return nil
	}
	var ids []string
	for _, d := range s.o.Agents().All() {
		ids = append(ids, d.AgentID)
	}
	err := fault.New(fault.NotFound, "No agent %.80q is declared.", agent).At("id")
	if near := sentence.Near(agent, ids); near != nil {
		err = err.Try("Near it: %s.", sentence.Names(near))
	}
	return err
}

func canPutAside(agent, reason string) error {
	if err := identity.CheckID(agent); err != nil {
		return fault.Wrap(err, fault.RequestMalformed, "%.80q can't be the id of an agent", agent).At("id")
	}
	if strings.TrimSpace(reason) == "" {
		return fault.New(fault.RequestMalformed, "say why").At("reason")
	}
	return nil
}

// Quarantines returns all quarantines by agent.
func (s *Standing) Quarantines() map[string]Quarantine {
	s.aside.mu.RLock()
	defer s.aside.mu.RUnlock()
	return maps.Clone(s.aside.byAgent)
}

// Quarantined returns an agent's quarantine; false if it has none.
func (s *Standing) Quarantined(agent string) (Quarantine, bool) {
	s.aside.mu.RLock()
	defer s.aside.mu.RUnlock()
	q, is := s.aside.byAgent[base(agent)]
	return q, is
}
