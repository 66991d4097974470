package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/session"
)

func agentOf(p identity.Principal) string {
	switch p.Kind {
	case identity.Agent:
		return p.ID
	case identity.Session:
		return p.Agent
	}
	return ""
}

// Operations returns the tools that the principal's agent may see, by exposed name.
func (g *Gateway) Operations(_ context.Context, p identity.Principal) []*catalogue.Operation {
	return g.operationsOf(agentOf(p))
}

func (g *Gateway) operationsOf(agent string) []*catalogue.Operation {
	d, _ := g.o.Agents.Get(agent)
	return g.catalogue.Operations(d)
}

// Listing returns what Operations returns, for an answer that carries their definitions. A definition that only a rule accepted is an
// outsider's text: the session that lists one holds untrusted before the list leaves.
func (g *Gateway) Listing(ctx context.Context, p identity.Principal) ([]*catalogue.Operation, error) {
	ops := g.Operations(ctx, p)
	var servers []string
	for _, op := range ops {
		if op.Unread && !slices.Contains(servers, op.Server) {
			servers = append(servers, op.Server)
		}
	}
	if len(servers) == 0 {
		return ops, nil
	}
	l, err := g.sessionOf(ctx, p, "")
	if err != nil {
		return nil, err
	}
	s := l.current.Load()
	if s.Holds(flow.Untrusted) {
		return ops, nil
	}
	slices.Sort(servers)
	cause := unreadCause(servers)
	_, err = g.change(context.WithoutCancel(ctx), s.ID, audit.Entry{Action: "session.definitions", Actor: catalogue.FirstSight, Reason: cause, Labels: []string{string(flow.Untrusted)}},
		func(s session.Session) (session.Session, error) {
			return s.Raise(flow.Held{Label: flow.Untrusted, Cause: cause}), nil
		})
	if err != nil {
		return nil, audited(err)
	}
	return ops, nil
}

// unreadCause says of which servers a session has listed definitions that no person accepted.
func unreadCause(servers []string) string {
	const most = 5
	text := strings.Join(servers[:min(len(servers), most)], ", ")
	if more := len(servers) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "definitions of " + text + ", which no person accepted"
}

// Offers returns the resources (and templates) or prompts that the principal's agent may see.
func (g *Gateway) Offers(_ context.Context, p identity.Principal, kind call.Kind) []catalogue.Offer {
	d, _ := g.o.Agents.Get(agentOf(p))
	return g.catalogue.Offers(d, kind)
}
