package httpapi

import (
	"context"
	"net/http"
	"time"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/standing"
)

// Switch is one kill switch (AG-4). Since is null if it was never used.
type Switch struct {
	Active  bool       `json:"active"`
	Since   *time.Time `json:"since"`
	By      string     `json:"by"`
	Reason  string     `json:"reason"`
	Durable bool       `json:"durable" doc:"the store has it; the switch acts before that"`
}

// Replica is one gateway process and how far it has followed the switch.
type Replica struct {
	ID    string    `json:"id"`
	Epoch int64     `json:"epoch"`
	Seen  time.Time `json:"seen"`
}

// KillStatus is every switch that was ever used.
type KillStatus struct {
	Global   Switch            `json:"global"`
	Agents   map[string]Switch `json:"agents"`
	Epoch    int64             `json:"epoch"`
	Replicas []Replica         `json:"replicas"`
}

// ReasonBody is the reason for an act.
type ReasonBody struct {
	Reason string `json:"reason" required:"false" maxLength:"2000"`
}

// killRoutes show and flip the kill switch. They act from memory: nothing on this path waits for the store.
func (a *API) killRoutes(s *side) {
	type all struct{ Body ReasonBody }
	type one struct {
		AgentID string `path:"agentId" maxLength:"64"`
		Body    ReasonBody
	}
	const at = "/agents/kill-switch/"
	operator := []identity.Role{identity.Operator}
	for _, act := range []struct {
		path, summary string
		stops         bool
		flip          func(agent, by, reason string) standing.Switches
	}{
		{"disable", "Pull the kill switch", true, a.g.Standing().Disable},
		{"enable", "Take the kill switch back", false, a.g.Standing().Enable},
	} {
		handle(s, route{method: http.MethodPost, path: at + act.path, roles: operator, emptyBody: true, noConfirmation: act.stops, summary: act.summary + " for all agents"},
			func(_ context.Context, p identity.Principal, in *all) (KillStatus, error) {
				return a.killStatus(act.flip("", p.String(), in.Body.Reason)), nil
			})
		// Any well-formed id may be switched, even that of an agent that is not declared.
		handle(s, route{method: http.MethodPost, path: at + act.path + "/{agentId}", roles: operator, emptyBody: true, noConfirmation: act.stops, summary: act.summary + " for one agent"},
			func(_ context.Context, p identity.Principal, in *one) (KillStatus, error) {
				if err := identity.CheckID(in.AgentID); err != nil {
					return KillStatus{}, fault.Wrap(err, fault.RequestMalformed, "%v.", err).At("agentId")
				}
				return a.killStatus(act.flip(in.AgentID, p.String(), in.Body.Reason)), nil
			})
	}
	handle(s, route{method: http.MethodGet, path: at + "status", roles: readers, summary: "Every switch that was ever used"},
		func(context.Context, identity.Principal, *none) (KillStatus, error) {
			return a.killStatus(a.g.Standing().KillStatus()), nil
		})
}

func (a *API) killStatus(s standing.Switches) KillStatus {
	st := KillStatus{
		Global: switchOf(s.Global), Agents: make(map[string]Switch, len(s.Agents)), Epoch: s.Epoch,
		Replicas: []Replica{{ID: "local", Epoch: s.Epoch, Seen: a.clock().UTC()}}, // one process, which follows itself at once
	}
	for id, sw := range s.Agents {
		st.Agents[id] = switchOf(sw)
	}
	return st
}

func switchOf(s standing.Switch) Switch {
	out := Switch{Active: s.Active, By: s.By, Reason: s.Reason, Durable: s.Durable}
	if !s.Since.IsZero() {
		out.Since = &s.Since
	}
	return out
}
