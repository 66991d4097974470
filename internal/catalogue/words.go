package catalogue

import (
	"context"
	"encoding/json"
	"sync"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/threat"
)

// Words are what a server says about itself when a conversation with it begins. No model and no agent gets them; people do.
type Words struct {
	Name         string `json:"name,omitempty"`
	Version      string `json:"version,omitempty"`
	Instructions string `json:"instructions,omitempty"`
}

// SuspicionsIn returns the texts in a server's words that look like an order, or are hidden, for whoever reads them.
func (c *Catalogue) SuspicionsIn(server string, words Words) []threat.Suspicion {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, _ := json.Marshal(words) // of texts: can't fail
	return c.suspicionsIn(server+".", call.HashBytes(text), text, sync.OnceValue(func() threat.ToolNames { return c.toolNames(server, nil) }))
}

// HearWords puts on record what screening finds in a server's words: once, as long as the server says nothing without a hit in between. So a server that
// keeps changing them does not fill the log.
func (c *Catalogue) HearWords(ctx context.Context, server string, words Words) error {
	text, _ := json.Marshal(words)
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.screened(server, text)
	if !found.Hit() {
		delete(c.ordering, server)
		return nil
	}
	if c.ordering[server] {
		return nil
	}
	e := audit.Entry{Kind: audit.Change, Action: "server.words", Actor: "rule:definition", Operation: server + serverSeen, Decision: "ok", Event: audit.ThreatHit, Detail: launched("", nil, found)}
	if err := c.o.Store.SavePins(ctx, nil, e); err != nil {
		return err
	}
	c.ordering[server] = true
	return nil
}
