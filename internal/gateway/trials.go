package gateway

import (
	"sallyport.example/internal/agent"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
)

// Trial lets people open and use sessions of trial agents from now on, or no longer (internal/trial). Without a trial nobody acts as a trial agent, not
// with the token of a session that was left open either.
func (g *Gateway) Trial(runs bool) { g.sessions.trial(runs) }

// mayTry refuses what the credential wants of a trial agent, unless the credential is a person's, or a session's that a person has opened, and a trial runs.
func (g *Gateway) mayTry(p identity.Principal, id string) error {
	switch {
	case !agent.IsTrial(id):
		return nil
	case p.Kind != identity.Person && p.Kind != identity.Session:
		return fault.New(fault.PermissionDenied, "Only people open sessions of trial agents.").At("agent_id")
	case g.sessions.tries():
		return nil
	case p.Kind == identity.Session:
		return fault.New(fault.SessionClosed, "The trial is over that this session was opened for.")
	}
	return fault.New(fault.Conflict, "No trial runs, and the agent %q is there for one alone.", short(id)).At("agent_id").Try("Use sallyport doctor --live.")
}

// tried refuses a call of a trial agent to a tool of the operator's servers: a trial only asks what would become of it.
func tried(id string, op *catalogue.Operation) fault.Verdict {
	if !agent.IsTrial(id) || op.Server == agent.TrialServer || op.Command != nil {
		return fault.Permitted()
	}
	return fault.Refuse("permit", fault.PermissionDenied, "A trial agent calls no tool of a server; it only asks what would become of a call.")
}
