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
	case identity.Session, identity.Hook:
		return p.Agent
	}
	return ""
}

// Operations returns the tools that the principal's agent may see, by exposed name.
func (g *Gateway) Operations(_ context.Context, p identity.Principal) []*catalogue.Operation {
	return g.operationsOf(agentOf(p))
}

func (g *Gateway) operationsOf(agent string) []*catalogue.Operation {
	d, _ := g.Agents().Get(agent)
	return g.catalogue.Operations(d)
}

// Listing returns what Operations returns, for an answer that carries their definitions. A definition that only a rule accepted is an
// outsider's text, and its server may have written what it holds into it: the session that lists one holds untrusted, and the labels of what the
// server has stored, before the list leaves.
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
	slices.Sort(servers)
	cause := unreadCause(servers)
	held := []flow.Held{{Label: flow.Untrusted, Cause: cause}}
	for _, server := range servers {
		held = addHeld(held, storedHeld(g.stored.Of(server)))
	}
	s := l.current.Load()
	if !holdsNew(s, held) {
		return ops, nil
	}
	e := audit.Entry{Action: "session.definitions", Actor: catalogue.FirstSight, Reason: cause}
	for _, h := range held {
		e.Labels = append(e.Labels, string(h.Label))
	}
	_, err = g.change(context.WithoutCancel(ctx), s.ID, e, func(s session.Session) (session.Session, error) { return s.Raise(held...), nil })
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

// Offers returns the resources (and templates) or prompts that the principal's agent may see. Lists raise no label, so they hide what a server offers
// that holds labelled data; it can still be read by name.
func (g *Gateway) Offers(_ context.Context, p identity.Principal, kind call.Kind) []catalogue.Offer {
	d, _ := g.Agents().Get(agentOf(p))
	return slices.DeleteFunc(g.catalogue.Offers(d, kind), func(o catalogue.Offer) bool { return len(g.stored.Of(o.Operation.Server)) > 0 })
}
