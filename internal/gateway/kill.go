package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
)

// errKilled is the cause with which the switch cancels calls in flight.
var errKilled = errors.New("the kill switch was pulled")

// killSwitch acts from memory: flipping it stores one pointer and cancels what runs. Writing it down happens behind, again and
// again until the store has it; until then status shows durable: false.
type killSwitch struct {
	clock Clock
	state atomic.Pointer[Switches] // immutable; replaced under mu

	mu       sync.Mutex // guards replacing state, pending and inflight
	pending  []audit.Entry
	inflight map[string]map[*crossing]struct{} // by agent

	wake chan struct{} // buffered 1: there is something to write
}

func newKillSwitch(s Switches, clock Clock) *killSwitch {
	if s.Agents == nil {
		s.Agents = map[string]Switch{}
	}
	k := &killSwitch{clock: clock, inflight: map[string]map[*crossing]struct{}{}, wake: make(chan struct{}, 1)}
	k.state.Store(&s)
	return k
}

// active tells whether the agent is switched off. It reads one pointer and takes no lock.
func (k *killSwitch) active(agent string) bool {
	s := k.state.Load()
	return s.Global.Active || s.Agents[agent].Active
}

// enter registers a call so that the switch can cancel it. Register first, then look at the switch: a switching in between is
// then seen by one or the other. It returns how many calls of the agent are under way with it.
func (k *killSwitch) enter(c *crossing) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	calls := k.inflight[c.agent]
	if calls == nil {
		calls = map[*crossing]struct{}{}
		k.inflight[c.agent] = calls
	}
	calls[c] = struct{}{}
	return len(calls)
}

func (k *killSwitch) leave(c *crossing) {
	k.mu.Lock()
	delete(k.inflight[c.agent], c)
	if len(k.inflight[c.agent]) == 0 {
		delete(k.inflight, c.agent)
	}
	k.mu.Unlock()
}

// flip switches an agent (or, with agent "", everything) off or on and cancels the calls it stops. It never waits for the store.
func (k *killSwitch) flip(agent string, active bool, by, reason string) Switches {
	now := k.clock().UTC()
	k.mu.Lock()
	defer k.mu.Unlock()
	next := *k.state.Load()
	next.Agents = maps.Clone(next.Agents)
	next.Epoch++
	sw := Switch{Active: active, Since: now, By: by, Reason: reason}
	action := "kill.disable"
	if !active {
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
		for a, calls := range k.inflight {
			if agent == "" || a == agent {
				for c := range calls {
					c.cancel(errKilled)
				}
			}
		}
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
	return next
}

// persist writes switchings down until ctx ends, and once more then. Only what was written is shown as durable.
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

// Disable pulls the switch: for one agent, or for all with agent "". Calls in flight are cancelled before it returns (AG-4).
func (g *Gateway) Disable(agent, by, reason string) Switches {
	defer g.changed(KillChanged, agent)
	return g.kill.flip(agent, true, by, reason)
}

// Enable takes the switch back.
func (g *Gateway) Enable(agent, by, reason string) Switches {
	defer g.changed(KillChanged, agent)
	return g.kill.flip(agent, false, by, reason)
}

// KillStatus returns the state of every switch ever pulled.
func (g *Gateway) KillStatus() Switches { return *g.kill.state.Load() }

// killed is the kill stage: SKIPPED, KILL_SWITCH_ACTIVE, and when.
func (g *Gateway) killed(agent string) fault.Verdict {
	if !g.kill.active(agent) {
		return fault.Permitted()
	}
	return fault.Killed(g.now())
}
