package gateway

import (
	"context"
	"encoding/json"
	"slices"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/changes"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/session"
	"sallyport.example/internal/stored"
	"sallyport.example/provenance"
)

// ReleaseStored takes labels off stored data: a person's act, with a reason on the record.
func (g *Gateway) ReleaseStored(ctx context.Context, id string, labels []flow.Label, by, reason string) (stored.Mark, error) {
	mark, err := g.stored.Release(ctx, id, labels, by, reason, g.now())
	if err == nil {
		g.feed.Publish(changes.Tool, id)
	}
	return mark, err
}

// stores is the call as what stores something in a server, in a session as it is; false if it stores nothing. answered says that it sends the server
// answers to its questions: these the server may keep anywhere, also where the call is said to read. Built-in operations store in the session's
// workspace, which no other session reads.
func (c *crossing) stores(s *session.Session, answered bool) (w *stored.Write, ok bool) {
	if !c.writes && !answered || c.op.Command != nil || c.op.Class.Forgets {
		return nil, false
	}
	w = &stored.Write{
		Server: c.op.Server, Operation: c.op.ID, CallID: c.id, Profile: c.op.Profile, Arguments: c.args, Labels: s.Labels, Entry: c.entry(audit.Change), Now: c.g.now(),
	}
	if c.op.Kind != call.Tool || answered {
		w.Profile = nil // nothing says which records
	}
	return w, true
}

// wrote is what the call writes to a server while the session holds untrusted content, with nobody's yes: in later sessions it confirms nothing.
func (c *crossing) wrote() *stored.Written {
	s := c.raised()
	if !s.Holds(flow.Untrusted) || c.judged.facts.Answer.ByPerson() {
		return nil
	}
	w, ok := c.stores(&s, c.answers != nil)
	switch {
	case !ok:
		return nil
	case c.answers != nil:
		return c.g.written.Of(w.Server, c.id, c.op.Profile, c.args, c.answers)
	}
	return c.g.written.Of(w.Server, c.id, c.op.Profile, c.args)
}

// wroteAnswer is the same of an answer to a question that the server asks while the call runs. A person's yes to the call did not show it.
func (c *crossing) wroteAnswer(s *session.Session, answer []byte) *stored.Written {
	w, ok := c.stores(s, true)
	if !ok || !s.Holds(flow.Untrusted) {
		return nil
	}
	return c.g.written.Of(w.Server, call.NewID("answer_", c.g.now()), nil, answer)
}

// willCarry says to the person what will carry the session's labels once the call has run.
func (c *crossing) willCarry() []approval.Reason {
	s := c.raised()
	w, ok := c.stores(&s, c.answers != nil)
	if !ok {
		return nil
	}
	if says := c.g.stored.Foretell(w); says != "" {
		return []approval.Reason{{Stage: "label", Code: "stored.label", Text: says}}
	}
	return nil
}

// marked says where the labels went, once the result names the records; result is nil where it is not known.
func (c *crossing) marked(ctx context.Context, result json.RawMessage) {
	w := c.ran.stores
	if w == nil {
		return
	}
	var payloads []provenance.Value
	if result != nil {
		var plain bool
		if payloads, plain = c.effect.Payloads(effect.NewContent(result)); !plain {
			payloads = nil // there is more in it
		}
	}
	if err := c.g.stored.After(ctx, w, payloads); err != nil {
		c.g.log.Warn("which records a call wrote is not known: all of their kind keep its labels", "operation", c.op.ID, "call_id", c.id, "error", err)
	}
}

// storedLabels are the labels that stored data brings into the session by this call; content is nil as long as there is none.
func (c *crossing) storedLabels(content *effect.Content) []flow.Held {
	if c.op.Command != nil || len(c.g.stored.Of(c.op.Server)) == 0 {
		return nil
	}
	if c.op.Kind != call.Tool { // a resource or prompt may have anything in it
		return storedHeld(c.g.stored.Of(c.op.Server))
	}
	var payloads []provenance.Value
	if content != nil {
		var plain bool
		if payloads, plain = c.effect.Payloads(content); !plain {
			payloads = nil
		}
	}
	return storedHeld(c.g.stored.Read(c.op.Server, c.op.Profile, c.args, payloads))
}

// foreseen is the operation as one that also brings the labels of what its server has stored, or of the documents that the agent may read. args is nil where they are not known.
func (g *Gateway) foreseen(d *agent.Declaration, op *catalogue.Operation, args []byte) flow.Operation {
	if op.Server == catalogue.KnowledgeServer && d != nil { // the labels of what it may read, which some of it may have
		_, words := d.ReadsKnowledge()
		labels := []flow.Label{flow.Untrusted} // as documents are, but for collections that the operator trusts
		for _, word := range words {
			labels = append(labels, flow.Label(word))
		}
		return op.Flow.Emitting(labels)
	}
	all := g.stored.Of(op.Server)
	if op.Command != nil || len(all) == 0 {
		return op.Flow
	}
	if op.Kind == call.Tool {
		all = g.stored.Read(op.Server, op.Profile, args, nil)
	}
	var labels []flow.Label
	for _, h := range all {
		labels = append(labels, h.Label)
	}
	return op.Flow.Emitting(labels)
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
