// Package catalogue holds the operations that agents can call, those of servers and the built-in ones, as the operator has classified them.
//
// Promises: a tool is identified by the operator's id and the hash of its whole definition, and an accepted definition is pinned; a definition
// that changed is not exposed before a person accepts it; nothing is exposed before its pin is durable; what a server says about itself lowers
// no guard; no new tool takes or imitates a name. The catalogue knows no sessions, calls or questions to people.
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
	"sallyport.example/internal/screen"
	"sallyport.example/internal/threat"
)

// Store keeps the pins. Errors are fault errors. Safe for concurrent use.
type Store interface {
	// Pins returns every pin.
	Pins(ctx context.Context) ([]Pin, error)
	// SavePins writes pins with their entries in one transaction. After nil they are durable, otherwise none is written.
	SavePins(ctx context.Context, pins []Pin, entries ...audit.Entry) error
}

// Settings are the operator's word on operations. They can be replaced (Reconfigure).
type Settings struct {
	// Classify returns the operator's classification of a tool, with all defaults applied. It must answer for any string.
	Classify func(server, tool string) Classification
	Labels   []flow.Label     // the confidentiality labels
	Unlisted Standing         // of an operation that no entry names: Unlisted (deny) or Active (ask first)
	AskOnce  bool             // a person's yes to a call of such an operation covers its later calls in the session
	Models   []Model          // those of the configuration
	Screen   *screen.Detector // reads definitions for orders to an agent; nil: nothing is screened
	Observe  bool             // operations that would be denied for that are offered, and said to be (Operation.Denied)
}

// Options are the options of New. Every field is needed but for Settings.Screen.
type Options struct {
	Settings
	Store Store
	// Launch returns the hash of how a server is started or reached, by the operator's configuration; "": nothing is known of it.
	Launch func(server string) string
	// Schema compiles a JSON schema into a check of a result; hostile schemas are refused quickly.
	Schema   func(schema json.RawMessage) (func(value []byte) error, error)
	Commands []Command        // the built-in operations
	Now      func() time.Time // the time on record
	Log      *slog.Logger
	// Void is called with the id of an operation whose server no longer offers the accepted definition: questions about it are void.
	Void func(ctx context.Context, operation string)
	// Changed is called after each change. It must not block.
	Changed func()
}

// Catalogue is the set of operations. Make it with New, end it with Close. Safe for concurrent use; reading takes no lock.
type Catalogue struct {
	o    Options // its Settings are guarded by mu
	snap atomic.Pointer[Snapshot]

	mu       sync.Mutex        // guards the rest and publishing
	commands []call.Definition // of the built-in operations, by their place in Options

	offered    map[string][]call.Definition
	rounds     map[string]int   // how often UpdateDefinitions was called, by server
	heard      map[string]heard // by server
	pins       map[string]Pin
	inputs     map[string]func() (func(arguments []byte) error, error) // checks of arguments by the hash of the definition
	suspicions map[string][]threat.Suspicion                           // in definitions that no person has accepted, by operation and hash
	subs       map[int]func()
	nextSub    int

	background sync.WaitGroup  // attempts to write definitions down again
	running    context.Context // ends with Close
	stop       context.CancelFunc
}

// New reads the pins and returns a Catalogue of the built-in operations. Servers' operations come with UpdateDefinitions.
func New(ctx context.Context, o Options) (*Catalogue, error) {
	pins, err := o.Store.Pins(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the pinned tool definitions: %w", err)
	}
	c := &Catalogue{o: o, offered: map[string][]call.Definition{}, rounds: map[string]int{}, heard: map[string]heard{}, pins: map[string]Pin{}, suspicions: map[string][]threat.Suspicion{}, subs: map[int]func(){}}
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
	c.publish() // needs no lock: nobody else has c yet
	return c, nil
}

// Close ends the attempts to write definitions down, and waits for writes that have begun. Closing twice is harmless.
func (c *Catalogue) Close() {
	c.stop()
	c.background.Wait()
}

// Subscribe calls f after each change, from the goroutine that made it, until end is called. f must not block.
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

// Snapshot is the present state. Use one snapshot where two answers must fit together.
func (c *Catalogue) Snapshot() *Snapshot { return c.snap.Load() }

// ByID finds an operation in the present snapshot, as Snapshot.ByID does.
func (c *Catalogue) ByID(id string) *Operation { return c.Snapshot().ByID(id) }

// UpdateDefinitions takes a server's whole current offer. When a server is first seen, a rule accepts its definitions, except those that look
// like an order to the model. Later, new and changed definitions wait for an operator; the rule accepts a new one only if the operator's
// configuration names the tool and it looks like no order. Nothing is exposed before its pin is durable.
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
	if server == CommServer || server == KnowledgeServer || server == ModelServer {
		return fault.New(fault.Internal, "the id %s is that of the built-in operations", server)
	}
	pins, entries := c.compare(server, defs, firstSight)
	err := c.save(ctx, pins, entries)
	before := c.toolNames("", nil)
	c.offered[server] = slices.Clone(defs)
	c.rounds[server]++
	c.publish()
	if err != nil {
		c.retryDefinitions(server, defs, c.rounds[server])
		return err
	}
	withheld, err := c.recheck(ctx, before)
	for _, pin := range withheld {
		c.o.Void(ctx, pin.Operation)
	}
	for _, pin := range pins {
		if pin.Hash != "" && pin.Pending != "" { // it changed, so questions about it are void
			c.o.Void(ctx, pin.Operation)
		}
	}
	return err
}

// compare compares what a server offers with the pins, and returns those to write, with their entries: of new tools, and of changed ones. A definition that
// changes again while it waits is kept in memory alone. c.mu is held.
func (c *Catalogue) compare(server string, defs []call.Definition, firstSight bool) (pins []Pin, entries []audit.Entry) {
	now := c.o.Now()
	if firstSight { // this is kept even if it offers nothing, so that its later tools count as new
		pins = append(pins, Pin{Operation: server + serverSeen, AcceptedAt: now})
		entries = append(entries, audit.Entry{Kind: audit.Change, Action: "server.seen", Actor: FirstSight, Operation: server + serverSeen, Decision: "ok"})
	}
	room, launch := maxPins-len(c.pins), c.o.Launch(server)
	names := sync.OnceValue(func() threat.ToolNames { return c.toolNames(server, defs) })
	c.markTooLong(server, defs)
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
		if known && pin.Launch == "" && pin.PendingLaunch == "" && launch != "" { // from an older version: taken over as it is
			if pin.Hash != "" {
				pin.Launch = launch
			}
			if pin.Pending != "" {
				pin.PendingLaunch = launch
			}
			pins, entries = append(pins, pin), append(entries, takenOver(pin))
		}
		switch {
		case known && (pin.Hash == d.Hash && pin.Launch == launch || pin.Pending == d.Hash && pin.PendingLaunch == launch):
			continue
		case known && pin.Pending != "":
			// That it waits is on record already, and only the newest definition counts. It is kept in memory, so that a server that keeps
			// changing it does not fill the log; accepting it writes it.
			pin.Pending, pin.PendingDef, pin.PendingLaunch = d.Hash, d.JSON, launch
			c.pins[id] = pin
			continue
		case known:
			pin.Pending, pin.PendingDef, pin.PendingLaunch = d.Hash, d.JSON, launch
		case (firstSight || c.o.Classify(server, d.Name).For(d.Hash).Named) && len(c.suspicionsIn(id, d.Hash, d.JSON, names)) == 0:
			pin = Pin{Operation: id, Hash: d.Hash, Definition: d.JSON, Launch: launch, AcceptedBy: FirstSight, AcceptedAt: now}
		default:
			pin = Pin{Operation: id, Pending: d.Hash, PendingDef: d.JSON, PendingLaunch: launch, AcceptedAt: now}
		}
		e := accepted(pin, pin.AcceptedBy)
		if pin.Pending != "" {
			e = c.quarantined(pin, c.suspicionsIn(id, d.Hash, d.JSON, names))
		}
		pins, entries = append(pins, pin), append(entries, e)
	}
	return pins, entries
}

// Reconfigure classifies all operations by other settings. swap puts what it is given in force, together with what the caller replaces. It returns the
// operations that agents could call before and can't any more.
func (c *Catalogue) Reconfigure(ctx context.Context, s Settings, swap func(publish func())) (closed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, names := c.snap.Load(), c.toolNames("", nil)
	if was := c.o.Screen; (was == nil) != (s.Screen == nil) || was != nil && was.Digest() != s.Screen.Digest() {
		clear(c.suspicions)
		clear(c.heard) // other rules find other things
	}
	c.o.Settings = s
	next := c.build()
	swap(func() { c.snap.Store(next) })
	c.tell()
	withheld, err := c.recheck(ctx, names) // a name that is new may be one that a definition speaks of
	if err != nil {
		c.o.Log.Error("definitions that look like an order are withheld; that could not be written down", "error", err)
	}
	for _, pin := range withheld {
		c.o.Void(ctx, pin.Operation)
	}
	for id, op := range old.byID {
		if now := next.byID[id]; op.Standing == Active && (now == nil || now.Standing != Active) {
			closed = append(closed, id)
		}
	}
	slices.Sort(closed)
	return closed
}

// retryDefinitions takes the same offer once more after a moment, unless the server has made another by then.
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
