// Package catalogue holds the operations that agents can call: what servers offer and what is built in, under the operator's word on it.
//
// Promises: a tool is the operator's id plus the hash of its whole definition, and what was accepted is pinned; a definition that changed is
// not exposed before a person accepts it; nothing is exposed before its pin is durable; what a server says about itself lowers nothing; no
// newcomer takes or imitates a name. The catalogue knows no sessions, calls or questions to people.
package catalogue

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/threat"
)

// Store keeps the pins. When SavePins returns nil, the pins and their entries are durable, in one transaction; otherwise nothing of it is
// written. Errors are fault errors. Safe for concurrent use.
type Store interface {
	// Pins returns every pinned definition; SavePins writes some with their entries.
	Pins(ctx context.Context) ([]Pin, error)
	SavePins(ctx context.Context, pins []Pin, entries ...audit.Entry) error
}

// Options is what a Catalogue is built of. Every field is needed.
type Options struct {
	Store Store
	// Classify is the operator's word on a server's tool, with all defaults applied. It must answer for any string.
	Classify func(server, tool string) Classification
	Labels   []flow.Label // the confidentiality labels
	Unlisted Standing     // what an operation is that no entry names: Unlisted (deny) or Active (ask first)
	AskOnce  bool         // a person's yes to a call of such an operation covers its later calls in the session
	// Schema compiles a JSON schema into a check of a result; hostile schemas are refused quickly.
	Schema   func(schema json.RawMessage) (func(value []byte) error, error)
	Commands []Command        // the built-in operations
	Now      func() time.Time // the time on record
	Log      *slog.Logger
	// Void is called with the id of an operation whose accepted definition is no longer what its server offers: what was asked about it is void.
	Void func(ctx context.Context, operation string)
	// Changed is called after each change. It must not block.
	Changed func()
}

// Catalogue is the set of operations. Make it with New, end it with Close. Safe for concurrent use; reading takes no lock.
type Catalogue struct {
	o    Options
	snap atomic.Pointer[Snapshot]

	mu       sync.Mutex        // guards the rest and publishing
	commands []call.Definition // of the built-in operations, by their place in Options

	offered map[string][]call.Definition
	rounds  map[string]int // how often a server's offer was taken
	pins    map[string]Pin
	doubts  map[string][]threat.Suspicion // by operation and hash: what was found in definitions that no person has accepted
	subs    map[int]func()
	nextSub int

	background sync.WaitGroup  // definitions that are tried again
	running    context.Context // ends with Close
	stop       context.CancelFunc
}

// New reads the pins and returns a Catalogue of the built-in operations. Servers' operations come with UpdateDefinitions.
func New(ctx context.Context, o Options) (*Catalogue, error) {
	pins, err := o.Store.Pins(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the pinned tool definitions: %w", err)
	}
	c := &Catalogue{o: o, offered: map[string][]call.Definition{}, rounds: map[string]int{}, pins: map[string]Pin{}, doubts: map[string][]threat.Suspicion{}, subs: map[int]func(){}}
	for _, p := range pins {
		c.pins[p.Operation] = p
	}
	for i := range o.Commands {
		d, err := o.Commands[i].definition()
		if err != nil {
			return nil, err
		}
		c.commands = append(c.commands, d)
	}
	c.running, c.stop = context.WithCancel(context.Background())
	c.publish() // nobody subscribes yet, so there is nobody to keep out
	return c, nil
}

// Close gives up what is still to be written down, and waits for what is being written. Closing twice is harmless.
func (c *Catalogue) Close() {
	c.stop()
	c.background.Wait()
}

// Subscribe calls f after each change of the catalogue, from the goroutine that made it; f must not block. The returned func ends it.
func (c *Catalogue) Subscribe(f func()) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.nextSub
	c.nextSub++
	c.subs[id] = f
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.subs, id)
	}
}

// Snapshot is the catalogue as it is now. Look at one snapshot where two answers must fit together.
func (c *Catalogue) Snapshot() *Snapshot { return c.snap.Load() }

// ByID finds an operation by its id as it is now, also one that can't be called; nil if there is none.
func (c *Catalogue) ByID(id string) *Operation { return c.Snapshot().ByID(id) }

// UpdateDefinitions takes a server's whole current offer. Of the first offer ever seen of a server a rule accepts what looks like no order to
// the model; after that a tool that is new or whose definition changed waits for an operator, unless the operator's configuration names the new
// tool itself and it looks like none. Nothing is exposed before the pin is durable.
func (c *Catalogue) UpdateDefinitions(ctx context.Context, server string, defs []call.Definition) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	firstSight := true
	for op := range c.pins {
		if strings.HasPrefix(op, server+".") {
			firstSight = false
			break
		}
	}
	if server == CommServer {
		return fault.New(fault.Internal, "the id %s is that of the built-in operations", server)
	}
	now := c.o.Now()
	var pins []Pin
	var entries []audit.Entry
	if firstSight { // that the server was seen is kept even when it offered nothing, so that what it offers later is a newcomer
		pins = append(pins, Pin{Operation: server + seen, AcceptedAt: now})
		entries = append(entries, audit.Entry{Kind: audit.Change, Action: "server.seen", Actor: FirstSight, Operation: server + seen, Decision: "ok"})
	}
	room := maxPins - len(c.pins)
	names := sync.OnceValue(func() threat.ToolNames { return c.namesFor(server, defs) })
	c.measure(server, defs)
	for _, d := range defs {
		if d.Kind != call.Tool || d.Fault != "" {
			continue
		}
		id := server + "." + d.Name
		pin, known := c.pins[id]
		if !known {
			if room--; room < 0 {
				continue // unpinned, so it is not exposed
			}
		}
		switch {
		case known && (pin.Hash == d.Hash || pin.Pending == d.Hash):
			continue
		case known && pin.Pending != "":
			// It waits already, and that is on record. What it waits with is the newest; a server that keeps changing its mind does not
			// fill the log. Accepting writes the definition that is accepted.
			pin.Pending, pin.PendingDef = d.Hash, d.JSON
			c.pins[id] = pin
			continue
		case known:
			pin.Pending, pin.PendingDef = d.Hash, d.JSON
		case (firstSight || c.o.Classify(server, d.Name).Named) && len(c.read(id, d.Hash, d.JSON, names)) == 0:
			pin = Pin{Operation: id, Hash: d.Hash, Definition: d.JSON, AcceptedBy: FirstSight, AcceptedAt: now}
		default:
			pin = Pin{Operation: id, Pending: d.Hash, PendingDef: d.JSON, AcceptedAt: now}
		}
		e := audit.Entry{Kind: audit.Change, Action: "tool.accept", Actor: pin.AcceptedBy, Operation: id, DefHash: pin.Hash, Decision: "ok"}
		if pin.Pending != "" {
			e = quarantined(id, pin.Pending, c.read(id, d.Hash, d.JSON, names))
		}
		pins, entries = append(pins, pin), append(entries, e)
	}
	err := c.save(ctx, pins, entries)
	before := c.namesFor("", nil)
	c.offered[server] = slices.Clone(defs)
	c.rounds[server]++
	c.publish()
	if err != nil {
		c.retryDefinitions(server, defs, c.rounds[server])
		return err
	}
	withheld, err := c.reread(ctx, before)
	for _, pin := range withheld {
		c.o.Void(ctx, pin.Operation)
	}
	for _, pin := range pins {
		if pin.Hash != "" && pin.Pending != "" { // what was asked about is no more
			c.o.Void(ctx, pin.Operation)
		}
	}
	return err
}

// retryDefinitions takes the same offer again soon, unless the server has made another by then.
func (c *Catalogue) retryDefinitions(server string, defs []call.Definition, round int) {
	c.background.Go(func() {
		select {
		case <-time.After(500 * time.Millisecond):
		case <-c.running.Done():
			return
		}
		c.mu.Lock()
		stale := c.rounds[server] != round
		c.mu.Unlock()
		if stale {
			return
		}
		if err := c.UpdateDefinitions(context.Background(), server, defs); err != nil {
			c.o.Log.Warn("tool definitions are still not written down", "server", server, "error", err)
		}
	})
}
