package standing

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/identity"
)

// ErrKilled is the cause with which the switch cancels running calls.
var ErrKilled = errors.New("the kill switch was switched on")

// Switches is the whole state of the kill switch. Epoch grows with every change.
type Switches struct {
	Epoch  int64             `json:"epoch"`
	Global Switch            `json:"global"`
	Agents map[string]Switch `json:"agents"`
}

// Switch is the switch of all agents or of one (AG-4).
type Switch struct {
	Active  bool      `json:"active"`
	Since   time.Time `json:"since"`
	By      string    `json:"by"`
	Reason  string    `json:"reason"`
	Durable bool      `json:"durable"`
	// Pulled is the epoch at which it was last pulled; 0: never. Taking it back leaves it.
	Pulled int64 `json:"pulled,omitempty"`
}

// killSwitch acts from memory: flipping it stores one pointer and cancels running calls. A goroutine writes it down, again and again until the
// store has it; until then Durable is false.
type killSwitch struct {
	now   func() time.Time
	state atomic.Pointer[Switches] // immutable; replaced under mu

	mu      sync.Mutex // guards replacing state, pending, running and calls
	pending []audit.Entry
	running map[Running]string // the agent of each call under way
	calls   map[string]int     // how many there are, by agent

	wake chan struct{} // buffered 1: there is something to write
}

func newKillSwitch(s Switches, now func() time.Time) *killSwitch {
	s.Global = s.Global.pulledBefore(s.Epoch)
	agents := make(map[string]Switch, len(s.Agents))
	for agent, sw := range s.Agents {
		agents[agent] = sw.pulledBefore(s.Epoch)
	}
	s.Agents = agents
	k := &killSwitch{now: now, running: map[Running]string{}, calls: map[string]int{}, wake: make(chan struct{}, 1)}
	k.state.Store(&s)
	return k
}

// pulledBefore returns a switch from the store. One that is active and was written by a version that kept no Pulled was pulled at the stored epoch at
// the latest.
func (sw Switch) pulledBefore(epoch int64) Switch {
	if sw.Active && sw.Pulled == 0 {
		sw.Pulled = max(epoch, 1)
	}
	return sw
}

// stops returns the newest epoch at which the switch of all agents, or that of this one, was pulled. It reads one pointer and takes no lock.
func (k *killSwitch) stops(agent string) int64 {
	state := k.state.Load()
	return max(state.Global.Pulled, state.Agents[agent].Pulled)
}

// flip switches an agent, or with "" all agents, off or on. Off cancels their calls. It never waits for the store.
func (k *killSwitch) flip(agent string, active bool, by, reason string) Switches {
	now := k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	next := *k.state.Load()
	next.Agents = maps.Clone(next.Agents)
	next.Epoch++
	sw, action := next.Global, "kill.disable"
	if agent != "" {
		sw = next.Agents[agent]
	}
	sw = Switch{Active: active, Since: now, By: by, Reason: reason, Pulled: sw.Pulled}
	if active {
		sw.Pulled = next.Epoch
	} else {
		action = "kill.enable"
	}
	if agent == "" {
		next.Global = sw
	} else {
		next.Agents[agent] = sw
	}
	k.state.Store(&next)
	detail, _ := json.Marshal(map[string]any{"epoch": next.Epoch, "global": agent == ""}) // of an int and a bool: can't fail
	k.pending = append(k.pending, audit.Entry{
		Kind: audit.Change, Action: action, Agent: agent, Actor: by, Reason: reason, Decision: "ok", Detail: detail,
	})
	if active {
		for call, of := range k.running {
			if agent == "" || of == agent {
				call.Cancel(ErrKilled)
			}
		}
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
	return next
}

// persist writes changes down until ctx ends, and then once more. Only written ones become durable.
func (k *killSwitch) persist(ctx context.Context, store Store, log *slog.Logger) {
	const pause = 250 * time.Millisecond // between attempts while the store refuses
	for {
		ended := false
		select {
		case <-k.wake:
		case <-ctx.Done():
			ended = true
		}
		for {
			k.mu.Lock()
			state, entries := *k.state.Load(), k.pending
			k.mu.Unlock()
			if len(entries) == 0 {
				break
			}
			durable := state
			durable.Agents = maps.Clone(state.Agents)
			durable.Global.Durable = true
			for a, sw := range durable.Agents {
				sw.Durable = true
				durable.Agents[a] = sw
			}
			err := store.SaveSwitches(context.WithoutCancel(ctx), durable, entries...)
			if err == nil {
				k.mu.Lock()
				k.pending = k.pending[len(entries):]
				if k.state.Load().Epoch == state.Epoch {
					k.state.Store(&durable)
				}
				k.mu.Unlock()
				continue
			}
			log.Error("the kill switch is not written down yet; it acts all the same", "epoch", state.Epoch, "error", err)
			if ended {
				return // the daemon is stopping with a store that refuses: the log line above is what remains
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				ended = true
			}
		}
		if ended {
			return
		}
	}
}

// Running is a running call. It must be comparable, such as a pointer.
type Running interface {
	// Cancel ends the call. It must not block.
	Cancel(cause error)
}

// Enter registers a call so that the switch can cancel it, and returns how many calls of the agent run now. Ask Killed only after Enter: a
// change between the two is then seen by one of them.
func (s *Standing) Enter(agent string, r Running) int {
	k := s.kill
	of := base(agent)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running[r] = of
	k.calls[of]++
	return k.calls[of]
}

// Leave ends what Enter began.
func (s *Standing) Leave(r Running) {
	k := s.kill
	k.mu.Lock()
	defer k.mu.Unlock()
	agent, entered := k.running[r]
	if !entered {
		return
	}
	delete(k.running, r)
	if k.calls[agent]--; k.calls[agent] == 0 {
		delete(k.calls, agent)
	}
}

// UnderWay is how many calls each agent has under way; those without any are left out.
func (s *Standing) UnderWay() map[string]int {
	s.kill.mu.Lock()
	defer s.kill.mu.Unlock()
	return maps.Clone(s.kill.calls)
}

// Killed tells whether the agent is switched off. It reads one pointer and takes no lock.
func (s *Standing) Killed(agent string) bool {
	state := s.kill.state.Load()
	return state.Global.Active || state.Agents[base(agent)].Active
}

// StopEpoch returns a number that grows with each stop that reaches the agent: its own switch or that of all pulled, or a quarantine. What people answered
// about the agent before counts only while the number is the same.
func (s *Standing) StopEpoch(agent string) int64 {
	return s.kill.stops(base(agent)) + s.aside.times(base(agent))
}

// base is the agent whose switch and quarantine count: what carries an agent's recommendations out stops with it.
func base(id string) string { return agent.Base(id) }

// StoppedBy says in a sentence who stopped the agent, or put it in quarantine, and why; "" for one that may work. The reason is a person's: it
// is escaped where it is shown.
func (s *Standing) StoppedBy(agent string) string {
	said := func(what, by, reason string) string {
		return what + " by " + cmp.Or(identity.Shown(by), "nobody known") + ": " + cmp.Or(reason, "no reason given")
	}
	switches := s.KillStatus()
	if sw := switches.Agents[agent]; sw.Active {
		return said("The agent was stopped after this was asked,", sw.By, sw.Reason)
	}
	if q, is := s.Quarantined(agent); is {
		return said("The agent was stopped after this was asked, put in quarantine", q.By, q.Reason)
	}
	if switches.Global.Active {
		return said("All agents were stopped after this was asked,", switches.Global.By, switches.Global.Reason)
	}
	return ""
}

// Disable pulls the switch for one agent, or for all with "". Running calls are cancelled before it returns (AG-4).
func (s *Standing) Disable(agent, by, reason string) Switches {
	defer s.o.SwitchChanged(agent)
	return s.kill.flip(agent, true, by, reason)
}

// Enable takes the switch back.
func (s *Standing) Enable(agent, by, reason string) Switches {
	defer s.o.SwitchChanged(agent)
	return s.kill.flip(agent, false, by, reason)
}

// KillStatus returns the state of every switch that was ever used.
func (s *Standing) KillStatus() Switches { return *s.kill.state.Load() }
