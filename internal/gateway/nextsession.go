package gateway

import (
	"context"
	"encoding/json"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/session"
)

// NextSession is a person's order of a fresh session for an agent's next conversation.
type NextSession struct {
	AgentID string `json:"agent_id"`
	// SessionID is the agent's own session, whose place the fresh one takes. "": it has none yet, so that its first conversation is fresh without an order.
	SessionID string     `json:"session_id,omitempty"`
	OrderedBy string     `json:"ordered_by,omitempty"`
	OrderedAt *time.Time `json:"ordered_at,omitempty"`
}

// OrderNext lets the agent's next conversation be a fresh session of its own, once: a person's act. Until that begins, everything stays as it is.
func (g *Gateway) OrderNext(ctx context.Context, agent, by string) (NextSession, error) {
	next := NextSession{AgentID: agent}
	if err := identity.CheckID(agent); err != nil {
		return next, fault.Wrap(err, fault.RequestMalformed, "%v", err).At("agent_id")
	}
	if err := g.standing.Declared(agent); err != nil {
		return next, fault.Of(err).At("agent_id")
	}
	for range maxRejudge {
		last, err := g.lastOwn(ctx, agent)
		if err != nil || last.ID == "" {
			return next, err
		}
		s, err := g.change(ctx, last.ID, audit.Entry{Action: "session.next", Actor: by}, func(s session.Session) (session.Session, error) {
			return s.OrderNext(by, g.standing.StopEpoch(agent), g.now())
		})
		if err != nil {
			return next, err
		}
		if last, err = g.lastOwn(ctx, agent); err != nil {
			return next, err
		}
		if last.ID == s.ID || last.Next != nil || last.Piece > s.Piece { // what follows a session takes the order over, or carries it out
			next.SessionID, next.OrderedBy, next.OrderedAt = last.ID, by, &s.Next.At
			return next, nil
		}
	}
	return next, fault.New(fault.Conflict, "The agent keeps opening sessions.").Try("Try again.")
}

// Ordered tells whether a person ordered that the agent's next conversation is fresh, and who.
func (g *Gateway) Ordered(ctx context.Context, agent string) (*session.Next, error) {
	last, err := g.lastOwn(ctx, agent)
	if err != nil || !g.ordered(last) {
		return nil, err
	}
	return last.Next, nil
}

// ordered tells whether a person's order for a fresh session stands: the agent was not stopped since.
func (g *Gateway) ordered(s session.Session) bool {
	return s.Ordered(g.standing.StopEpoch(s.Agent))
}

// BeginConversation begins a conversation of an agent, and returns the principal for the rest of it. If a person ordered it, the agent's own session is
// closed and a fresh one is opened in its place: without labels, words, evidence or a plan of any before. Nothing that an agent sends does that.
//
// stateless: the door knows no conversations, so that each request may begin one, and belongs to whichever session is the agent's.
func (g *Gateway) BeginConversation(ctx context.Context, p identity.Principal, stateless bool) (identity.Principal, error) {
	if p.Kind != identity.Agent {
		return p, nil
	}
	if err := g.mayUseOwn(p.ID); err != nil {
		return p, err
	}
	for range maxRejudge {
		l := g.sessions.ownOf(p.ID)
		if l != nil && stateless && !g.ordered(*l.current.Load()) {
			return p, nil
		}
		last, err := g.lastOwn(ctx, p.ID)
		if err != nil {
			return p, err
		}
		if !g.ordered(last) {
			if l, err = g.ownSession(ctx, p); err == nil && !stateless {
				p.Conversation = l.current.Load().Piece + 1
			}
			return p, err
		}
		if l != nil && g.sessions.busy(l) { // whoever begins this one may be what such a call started
			if stateless {
				return p, nil
			}
			return p, fault.New(fault.Conflict, "Calls of an earlier conversation of this agent still run, or wait for a person.").
				Try("Let them end, or ask your person to end that conversation, and connect again.")
		}
		err = g.openNext(ctx, p, last)
		if err != nil && !fault.Is(err, fault.Conflict) {
			return p, err
		}
	}
	return p, fault.New(fault.Conflict, "Another connection of the agent keeps opening sessions.").Try("Try again.")
}

// openNext opens the fresh session that a person ordered in the agent's last own one, in the place of that. A crash in between leaves the order. p is who
// began the conversation, for the record.
func (g *Gateway) openNext(ctx context.Context, p identity.Principal, last session.Session) error {
	ctx = context.WithoutCancel(ctx) // half of it would close a session and open none
	d, err := g.declared(last.Agent)
	if err != nil {
		return err
	}
	if last.State == session.Open {
		_, err := g.CloseSession(ctx, last.ID, last.Next.By, "the agent's next conversation began, which was to be a fresh session")
		if err != nil && !fault.Is(err, fault.SessionClosed) {
			return err
		}
	}
	s := session.New(last.Agent, session.Phase(d.StartPhase), last.Next.By, g.now()).Anew(last)
	s.Own, s.Budget = true, g.settings.Load().tierOf(d).Budget
	e := opened(s, last.Next.By)
	e.Detail, _ = json.Marshal(map[string]any{"phase": s.Phase, "own": s.Own, "for": p.String(), "token": p.TokenID}) // of plain values: can't fail
	if err := g.store.OpenSession(ctx, s, e); err != nil {
		return err
	}
	g.hold(s)
	return nil
}

// conversationOver is the error for a conversation whose session a fresh one has replaced. The agent isn't told which session that is; the record is.
func conversationOver(own string) error {
	return fault.Wrap(fault.New(fault.SessionClosed, "The agent's own session is %s, and a conversation from before it was used.", own),
		fault.SessionClosed, "This conversation is over: your person let a new one begin, and the session of this one is closed.").
		Try("Ask your person to go on in the new conversation, or to end this one and start another.")
}
