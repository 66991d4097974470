package catalogue

import (
	"context"
	"encoding/json"
	"sync"
	"time"

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

// Bounds of what is on record of one server's words.
const (
	heardInHour = 4  // so that a server that keeps changing them does not fill the log
	heardKept   = 64 // known to be on record
)

// heard is what is on record of one server's words: the hashes of those with a hit, and how many were written down since the hour began.
type heard struct {
	words map[string]bool
	since time.Time
	count int
}

// HearWords puts on record what screening finds in a server's words: each different words once, and no more than heardInHour in an hour.
func (c *Catalogue) HearWords(ctx context.Context, server string, words Words) error {
	text, _ := json.Marshal(words)
	c.mu.Lock()
	defer c.mu.Unlock()
	found, hash, now := c.screened(server, text), call.HashBytes(text), c.o.Now()
	h := c.heard[server]
	if !found.Hit() || h.words[hash] {
		return nil
	}
	if now.Sub(h.since) >= time.Hour {
		h.since, h.count = now, 0
	}
	if h.count >= heardInHour {
		return nil
	}
	e := audit.Entry{Kind: audit.Change, Action: "server.words", Actor: "rule:definition", Operation: server + serverSeen, Decision: "ok", Event: audit.ThreatHit, Detail: launched("", nil, found)}
	if err := c.o.Store.SavePins(ctx, nil, e); err != nil {
		return err
	}
	if len(h.words) >= heardKept || h.words == nil {
		h.words = map[string]bool{}
	}
	h.words[hash] = true
	h.count++
	c.heard[server] = h
	return nil
}
