package gateway

import (
	"context"
	"encoding/json"
	"slices"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/session"
	"sallyport.example/internal/stored"
)

// stores is the call as what stores something in a server, in a session as it is; false if it stores nothing. Built-in operations store in the session's
// workspace, which no other session reads.
func (c *crossing) stores(s *session.Session) (w *stored.Write, ok bool) {
	if !c.writes || c.op.Kind != call.Tool || c.op.Command != nil || c.op.Class.Forgets {
		return nil, false
	}
	return &stored.Write{
		Server: c.op.Server, Operation: c.op.ID, CallID: c.id, Profile: c.op.Profile, Arguments: c.args, Labels: s.Labels, Entry: c.entry(audit.Change), Now: c.g.now(),
	}, true
}

// mark gives the labels of the session to what the call is about to store. Until that is durable, nothing is sent.
func (c *crossing) mark(ctx context.Context, s *session.Session) error {
	w, ok := c.stores(s)
	if !ok {
		return nil
	}
	return c.g.stored.Before(ctx, w)
}

// wrote is what the call writes to a server while the session holds untrusted content, with nobody's yes: in later sessions it confirms nothing.
func (c *crossing) wrote() *stored.Written {
	s := c.raised()
	w, ok := c.stores(&s)
	if !ok || !s.Holds(flow.Untrusted) || c.judged.facts.Answer.ByPerson() {
		return nil
	}
	return c.g.written.Of(w.Server, w.CallID, w.Profile, w.Arguments)
}

// willCarry says to the person what will carry the session's labels once the call has run.
func (c *crossing) willCarry() []approval.Reason {
	s := c.raised()
	w, ok := c.stores(&s)
	if !ok {
		return nil
	}
	if says := c.g.stored.Foretell(w); says != "" {
		return []approval.Reason{{Stage: "label", Code: "stored.label", Text: says}}
	}
	return nil
}

// marked says where the labels went, once the result names the records.
func (c *crossing) marked(ctx context.Context, result json.RawMessage) {
	w, ok := c.stores(c.live.current.Load())
	if !ok || result == nil {
		return
	}
	payloads, plain := c.effect.Payloads(result)
	if !plain {
		payloads = nil // there is more in it
	}
	if err := c.g.stored.After(ctx, w, payloads); err != nil {
		c.g.log.Warn("which records a call wrote is not known: all of their kind keep its labels", "operation", c.op.ID, "call_id", c.id, "error", err)
	}
}

// storedLabels are the labels that stored data brings into the session by this call; result is nil as long as there is none.
func (c *crossing) storedLabels(result json.RawMessage) []flow.Held {
	if c.op.Command != nil || len(c.g.stored.Of(c.op.Server)) == 0 {
		return nil
	}
	if c.op.Kind != call.Tool { // a resource or prompt may have anything in it
		return storedHeld(c.g.stored.Of(c.op.Server))
	}
	var payloads []json.RawMessage
	if result != nil {
		var plain bool
		if payloads, plain = c.effect.Payloads(result); !plain {
			payloads = nil
		}
	}
	return storedHeld(c.g.stored.Read(c.op.Server, c.op.Profile, c.args, payloads))
}

// storedHeld are the labels as the session that reads gets them: with the call that stored the data.
func storedHeld(labels []flow.Held) []flow.Held {
	held := slices.Clone(labels)
	for i := range held {
		held[i].Cause = "data that " + held[i].Operation + " stored"
	}
	return held
}

// addHeld adds the labels that held lacks.
func addHeld(held, more []flow.Held) []flow.Held {
	for _, h := range more {
		if !slices.ContainsFunc(held, func(o flow.Held) bool { return o.Label == h.Label }) {
			held = append(held[:len(held):len(held)], h)
		}
	}
	return held
}

// unsent is the error of a call that must not be sent because what it stores could not be marked.
func unsent(err error) error {
	return &fault.NotDispatched{Err: audited(err)}
}
