package gateway

import (
	"context"
	"encoding/json"
	"sync"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/prompt"
)

// settled is what the system message of a session's requests to models says of its tools. It is settled by the first request and never changes, so that
// the message has the same bytes in each turn. The lock is held while the store is asked, so that requests side by side settle on one text.
type settled struct {
	mu   sync.Mutex // guards text
	text string
}

// instruct has the system message put in front of a request to a model (TH-1).
func (c *crossing) instruct(ctx context.Context) error {
	if !effect.Asks(c.effect) {
		return nil
	}
	planning, err := c.planning(ctx)
	if err != nil {
		return err
	}
	t, err := c.terms()
	if err != nil {
		return err
	}
	t.Message = prompt.Compose(c.decl, planning)
	c.use(effect.OnTerms(c.effect, t))
	return nil
}

// planning is what the system message says of the session's tools: as it was at the session's first request, also after a restart.
func (c *crossing) planning(ctx context.Context) (string, error) {
	p := &c.live.prompt
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.text != "" {
		return p.text, nil
	}
	ctx = context.WithoutCancel(ctx)
	text, err := c.g.store.SessionPrompt(ctx, c.session.ID)
	if err != nil {
		return "", err
	}
	if text == "" {
		text = systemPrompt(c.set.rules, c.g.flowOps(c.agent), c.session.Labels)
		e := audit.Entry{Kind: audit.Change, Action: "session.prompt", Actor: "rule:prompt", Decision: "ok", Session: c.session.ID, Agent: c.agent, Requester: c.session.Requester, RequestID: c.request}
		e.Detail, _ = json.Marshal(map[string]any{"bytes": len(text), "sha256": call.HashBytes([]byte(text))}) // of plain values: can't fail
		err := c.g.store.KeepSessionPrompt(ctx, c.session.ID, text, e)
		if fault.Is(err, fault.Conflict) { // another gateway on the same store was faster
			text, err = c.g.store.SessionPrompt(ctx, c.session.ID)
		}
		if err != nil {
			return "", audited(err)
		}
	}
	p.text = text
	return text, nil
}
