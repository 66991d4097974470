package gateway

import (
	"context"
	"encoding/json"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/session"
)

// RecommendationDoor is the door of calls that agents recommended.
const RecommendationDoor = "recommendation"

// OpenRecommended opens a session for carrying out what an agent recommended, for the person who asked for the run: its principal may call what the
// action map names. The session holds the labels of what the run had read, so that the values that come from there are judged as such, and the words of the person.
func (g *Gateway) OpenRecommended(ctx context.Context, of, requester, words, by string, labels []flow.Held) (session.Session, error) {
	id := agent.Recommendations(of)
	d, ok := g.Agents().Get(id)
	if !ok {
		return session.Session{}, fault.New(fault.PermissionDenied, "The declaration of the agent %q names no operation under recommendationActions.", short(of))
	}
	s := session.New(id, session.Execution, by, g.now())
	s.UserRequest, s.Requester, s.Budget = words, requester, g.settings.Load().tierOf(d).Budget
	s = s.Raise(labels...)
	if err := g.openGiven(ctx, identity.Principal{Kind: identity.Host, ID: RecommendationDoor}, s, true); err != nil {
		return session.Session{}, err
	}
	g.hold(s)
	return s, nil
}

// CallRecommended makes the recommended call in its session, or with hold 0 has people asked about it and answers at once. operation is the operator's
// id. It is a call like any other: what a stage denies is denied, and nothing runs without a person's yes.
func (g *Gateway) CallRecommended(ctx context.Context, sessionID, operation string, arguments json.RawMessage) Answer {
	s, err := g.SessionByID(ctx, sessionID)
	if err != nil {
		return Answer{Verdict: fault.RefuseErr("resolve", err)}
	}
	if !agent.IsRecommendations(s.Agent) {
		return Answer{Verdict: fault.Refuse("resolve", fault.PermissionDenied, "This session is not one for recommendations.")}
	}
	op := g.catalogue.ByID(operation)
	if op == nil {
		return Answer{Verdict: fault.Refuse("resolve", fault.ToolUnknown, "No server offers "+short(operation)+".")}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	return g.Call(ctx, Request{
		Principal: identity.Principal{Kind: identity.Session, ID: s.ID, Agent: s.Agent}, Method: call.CallTool, Tool: op.Name, Arguments: arguments, Door: RecommendationDoor,
	})
}

// whole is the declaration that people approve: of the principal of an agent's recommendations that of the agent, with its action map.
func (s *settings) whole(d *agent.Declaration) *agent.Declaration {
	if of, ok := s.Agents.Get(agent.Base(d.AgentID)); ok {
		return of
	}
	return d
}
