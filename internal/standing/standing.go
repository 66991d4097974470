// Package standing answers three questions before every call: whether the kill switch is pulled, whether the agent is quarantined, and whom a
// credential stands for.
//
// Promises: each answer comes from memory and waits for nothing; pulling the switch cancels the running calls before it returns, and is written
// down afterwards; a quarantine and the end of a token hold at once; the end of a quarantine and a new token hold once they are durable; a
// token's secret is kept nowhere. If the store can't be read, the start fails.
package standing

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/identity"
)

// Store keeps switches, quarantines and tokens. Each method is one transaction, which is durable when it returns nil. Errors are fault errors.
// Safe for concurrent use.
type Store interface {
	// Switches returns the kill switch as last written. SaveSwitches writes it with the entries of the changes that it includes.
	Switches(ctx context.Context) (Switches, error)
	SaveSwitches(ctx context.Context, s Switches, entries ...audit.Entry) error

	// Quarantines returns the quarantined agents, and how many quarantines each agent has had, ended ones included. SaveQuarantine writes a quarantine
	// with its number, or with nil its end, with its entry.
	Quarantines(ctx context.Context) (now map[string]Quarantine, counts map[string]int64, err error)
	SaveQuarantine(ctx context.Context, agent string, q *Quarantine, e audit.Entry) error

	TokenStore
	// Tokens returns every token, with the revoked ones. RevokeToken revokes one, with its entry; it is a Conflict if it was revoked before.
	Tokens(ctx context.Context) ([]identity.Token, error)
	RevokeToken(ctx context.Context, id string, at time.Time, e audit.Entry) error
}

// TokenStore is all that making a token needs.
type TokenStore interface {
	// AddToken writes a token with its entry.
	AddToken(ctx context.Context, t identity.Token, e audit.Entry) error
}

// Options are the options of New. Every field is needed.
type Options struct {
	Store  Store
	Agents func() agent.Set // those that are declared now
	Now    func() time.Time // the time on record, in UTC, which no change of the wall clock sets back
	Log    *slog.Logger
	// SwitchChanged is called after the switch of an agent, or with "" that of all, was pulled or taken back; AgentChanged after an agent was
	// quarantined or restored. They must not block.
	SwitchChanged func(agent string)
	AgentChanged  func(agent string)
}

// Standing holds the switch, the quarantines and the tokens. Make it with New, end it with Close. Safe for concurrent use.
type Standing struct {
	o      Options
	kill   *killSwitch
	aside  quarantines
	tokens tokens

	background sync.WaitGroup // the switch's writer
	stop       context.CancelFunc
}

// New reads the switch, the quarantines and the tokens.
func New(ctx context.Context, o Options) (*Standing, error) {
	switches, err := o.Store.Switches(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the kill switch: %w", err)
	}
	aside, counts, err := o.Store.Quarantines(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading who is quarantined: %w", err)
	}
	for agent, q := range aside {
		q.durable, q.Number = true, counts[agent]
		aside[agent] = q
	}
	all, err := o.Store.Tokens(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the tokens: %w", err)
	}
	byHash := make(map[string]identity.Token, len(all))
	for _, t := range all {
		byHash[t.Hash] = t
	}
	running, stop := context.WithCancel(context.Background())
	s := &Standing{o: o, kill: newKillSwitch(switches, o.Now), aside: quarantines{byAgent: aside, counts: counts}, tokens: tokens{byHash: byHash}, stop: stop}
	s.background.Go(func() { s.kill.persist(running, o.Store, o.Log) })
	return s, nil
}

// Close waits until the switch is written down, or the store has refused it once more. Closing twice is harmless.
func (s *Standing) Close() {
	s.stop()
	s.background.Wait()
}
