// Package catalogue holds the operations that agents can call: what servers offer and what is built in, under the operator's word on it.
//
// Promises: a tool is the operator's id plus the hash of its whole definition, and what was accepted is pinned; a definition that changed is
// not exposed before a person accepts it; nothing is exposed before its pin is durable; what a server says about itself lowers nothing; no
// newcomer takes or imitates a name. The catalogue knows no sessions, calls or questions to people.
package catalogue

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/threat"
	"sallyport.example/provenance"
)

// Offer is a resource, a resource template or a prompt as it is exposed.
type Offer struct {
	Operation  *Operation
	Name       string // exposed prompt name, URI or URI template
	Upstream   string // the server's own name for it
	Definition json.RawMessage
	Template   bool
	Hidden     bool // not listed: see addOffer
}

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

// Snapshot is one state of the catalogue. Nothing in it changes.
type Snapshot struct {
	byID   map[string]*Operation
	byName map[string]*Operation // exposed tools that can be called or are quarantined
	tools  []*Operation          // by exposed name
	offers map[call.Kind][]Offer

	withheld map[call.Kind][]Offer // what is offered and can't be passed on: only for the record
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

// save writes pins, each with its entry, in portions: a server with thousands of tools does not keep the only writer to itself. What is not
// written stays as it was: an unpinned definition is not exposed. It holds c.mu.
func (c *Catalogue) save(ctx context.Context, pins []Pin, entries []audit.Entry) error {
	for from := 0; from < len(pins); from += pinsAtOnce {
		to := min(from+pinsAtOnce, len(pins))
		if err := c.o.Store.SavePins(ctx, pins[from:to], entries[from:to]...); err != nil {
			return err
		}
		for _, pin := range pins[from:to] {
			c.pins[pin.Operation] = pin
		}
	}
	return nil
}

// reread reads again what nobody has accepted, where tools have names now that they hadn't before: a server that is up before the others could
// speak of their tools unnoticed. What a rule accepted and looks like an order now is withheld as it would have been. It holds c.mu.
func (c *Catalogue) reread(ctx context.Context, before threat.ToolNames) (withheld []Pin, err error) {
	fresh := map[string]bool{}
	for name := range c.namesFor("", nil) {
		if _, known := before[name]; !known {
			fresh[name] = true
		}
	}
	if len(fresh) == 0 {
		return nil, nil
	}
	names := map[string]func() threat.ToolNames{} // by server
	var entries []audit.Entry
	for _, id := range slices.Sorted(maps.Keys(c.pins)) {
		pin := c.pins[id]
		unread := pin.Unread() && pin.Pending == ""
		hash, definition := pin.Pending, pin.PendingDef
		if unread {
			hash, definition = pin.Hash, pin.Definition
		}
		if hash == "" || !speaksOf(definition, fresh) {
			continue
		}
		server, _, _ := strings.Cut(id, ".")
		if names[server] == nil {
			names[server] = sync.OnceValue(func() threat.ToolNames { return c.namesFor(server, nil) })
		}
		if found := c.doubts[id+"\x00"+hash]; len(found) == 0 {
			delete(c.doubts, id+"\x00"+hash)
		}
		if found := c.read(id, hash, definition, names[server]); unread && len(found) > 0 {
			withheld = append(withheld, Pin{Operation: id, Pending: hash, PendingDef: definition, AcceptedAt: c.o.Now()})
			entries = append(entries, quarantined(id, hash, found))
		}
	}
	if len(withheld) == 0 {
		return nil, nil
	}
	err = c.o.Store.SavePins(ctx, withheld, entries...)
	for _, pin := range withheld { // whether that is written down or not
		c.pins[pin.Operation] = pin
	}
	c.publish()
	return withheld, err
}

// speaksOf tells whether one of the names may stand in a definition: as a word, or in letters that only pass for others. It takes time for the
// definition's length and not for the number of names, which servers choose.
func speaksOf(definition []byte, names map[string]bool) (found bool) {
	call.Strings(definition, func(_, text string) bool {
		for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool {
			return r < utf8.RuneSelf && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-", r)
		}) {
			if names[strings.Trim(word, "._-")] || strings.ContainsFunc(word, func(r rune) bool { return r >= utf8.RuneSelf }) {
				found = true
			}
		}
		return !found
	})
	return found
}

// quarantined is the entry of a definition that waits for a person.
func quarantined(operation, hash string, found []threat.Suspicion) audit.Entry {
	e := audit.Entry{Kind: audit.Change, Action: "tool.quarantine", Actor: "rule:definition", Operation: operation, DefHash: hash, Decision: "ok"}
	if len(found) > 0 {
		e.Reason = audit.Clip(found[0].String())
		e.Detail, _ = json.Marshal(map[string]any{"suspicions": found}) // of plain words: can't fail
	}
	return e
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

// pinsAtOnce is how many pins are written in one transaction.
const pinsAtOnce = 100

const (
	// maxPins bounds what servers can make the gateway remember; what comes after it is not exposed.
	maxPins = 20_000
	// readResource and getPrompt are the operations that stand for all of a server's resources and prompts.
	readResource, getPrompt = "read_resource", "get_prompt"
	// FirstSight is who accepts what a server offers when it is first seen, or what the operator's configuration names.
	FirstSight = "rule:first-sight"
	// seen is the pin that says that a server was seen, in place of a tool's name. No tool can have it.
	seen = ".*"
)

// Pin is the definition that was accepted for one operation.
type Pin struct {
	Operation  string `json:"operation"`
	Hash       string `json:"definition_hash"`
	Definition []byte `json:"-"` // canonical JSON
	Pending    string `json:"pending_hash,omitempty"`
	PendingDef []byte `json:"-"` // the changed definition that waits to be accepted
	AcceptedBy string `json:"accepted_by"`
	// ConfirmedBy is the person who has read a definition that a rule accepted, and accepts it as it is.
	ConfirmedBy string `json:"confirmed_by,omitempty"`
	// AcceptedAt is when a definition was first accepted (or, before that, first seen). It stays when a later definition is
	// accepted, because it is what the operation's claim to its exposed name rests on.
	AcceptedAt time.Time `json:"accepted_at"`
}

// Acceptance names a definition that a person looked at.
type Acceptance struct {
	Operation string `json:"operation" maxLength:"256"`
	Hash      string `json:"definition_hash" maxLength:"128"`
}

// AcceptTool accepts a definition that waits, or one that only a rule accepted, named by its hash.
func (c *Catalogue) AcceptTool(ctx context.Context, operation, hash, by string) error {
	errs, err := c.AcceptTools(ctx, []Acceptance{{operation, hash}}, by)
	if err != nil {
		return err
	}
	return errs[0]
}

// AcceptTools accepts definitions that a person looked at, each for itself: one that changed meanwhile is not accepted, and its error says so.
// The second error is the store's, after which none of the rest is accepted.
func (c *Catalogue) AcceptTools(ctx context.Context, all []Acceptance, by string) ([]error, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	errs := make([]error, len(all))
	var pins []Pin
	var entries []audit.Entry
	for i, a := range all {
		pin, ok := c.pins[a.Operation]
		switch {
		case !ok || strings.HasSuffix(a.Operation, seen):
			errs[i] = fault.New(fault.NotFound, "There is no tool %.80q.", a.Operation).Try("See sallyport tools list, the console, or GET /v1/tools.")
			continue
		case pin.Pending == "" && pin.Hash != a.Hash:
			errs[i] = fault.New(fault.Conflict, "No definition of %s with this hash waits to be accepted.", a.Operation).
				At("definition_hash").Try("Look at it again before you accept it.")
			continue
		case pin.Pending == "" && !pin.Unread():
			continue // a person has accepted it
		case pin.Pending == "":
			pin.ConfirmedBy = by
		case pin.Pending != a.Hash:
			errs[i] = fault.New(fault.Conflict, "The definition of %s that waits has the hash %s.", a.Operation, pin.Pending).
				At("definition_hash").Try("Look at it again before you accept it.")
			continue
		default:
			pin.Hash, pin.Definition, pin.Pending, pin.PendingDef = pin.Pending, pin.PendingDef, "", nil
			if pin.AcceptedBy == "" {
				pin.AcceptedAt = c.o.Now()
			}
			pin.AcceptedBy, pin.ConfirmedBy = by, ""
		}
		pins = append(pins, pin)
		entries = append(entries, audit.Entry{Kind: audit.Change, Action: "tool.accept", Actor: by, Operation: a.Operation, DefHash: a.Hash, Decision: "ok"})
	}
	err := c.save(ctx, pins, entries)
	if len(pins) > 0 {
		c.publish()
	}
	return errs, err
}

// Unread tells whether only a rule accepted the definition.
func (p Pin) Unread() bool { return p.AcceptedBy == FirstSight && p.ConfirmedBy == "" }

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

// publish builds the next snapshot from offers, pins and classification. It holds c.mu.
func (c *Catalogue) publish() {
	s := &Snapshot{
		byID: map[string]*Operation{}, byName: map[string]*Operation{},
		offers: map[call.Kind][]Offer{}, withheld: map[call.Kind][]Offer{},
	}
	c.builtins(s)
	for _, server := range slices.Sorted(maps.Keys(c.offered)) {
		for _, d := range c.offered[server] {
			if d.Kind == call.Tool {
				op := c.operation(server, d.Name, call.Tool)
				c.addTool(s, op, d)
			} else {
				c.addOffer(s, server, d)
			}
		}
	}
	// Pinned tools that are no longer offered keep their id, so that a call of one says so.
	for id, pin := range c.pins {
		if s.byID[id] == nil && !strings.HasSuffix(id, seen) {
			server, tool, _ := strings.Cut(id, ".")
			op := c.operation(server, tool, call.Tool)
			op.Standing, op.Hash, op.Unread = Gone, pin.Hash, pin.Unread() && !op.Class.TrustFirstSight
			s.byID[id] = op
		}
	}
	c.name(s)
	c.snap.Store(s)
	for _, f := range c.subs {
		f()
	}
	c.o.Changed()
}

// operation makes an operation of the operator's word on it. What can't be resolved is unfit, not open.
func (c *Catalogue) operation(server, tool string, kind call.Kind) *Operation {
	return c.classified(c.o.Classify(server, tool), server, tool, kind)
}

func (c *Catalogue) classified(class Classification, server, tool string, kind call.Kind) *Operation {
	op := &Operation{ID: server + "." + tool, Server: server, Tool: tool, Kind: kind, Class: class, Profile: class.Profile(), Standing: Active}
	if !class.Listed {
		op.Standing, op.AskFirst = c.o.Unlisted, c.o.Unlisted == Active
		op.AskOnce = op.AskFirst && c.o.AskOnce
	}
	spec := class.Flow
	spec.ID, spec.Name = op.ID, exposedName(class, server, tool)
	op.Name = spec.Name
	f, err := flow.Resolve(spec, c.o.Labels)
	if err != nil {
		op.Standing, op.Fault = Unfit, err.Error()
	}
	op.Flow = f
	return op
}

func exposedName(class Classification, server, tool string) string {
	if class.ExposeAs == "" {
		return strings.ReplaceAll(server+"_"+tool, ".", "_")
	}
	return strings.ReplaceAll(class.ExposeAs, "{tool}", tool)
}

func (c *Catalogue) addTool(s *Snapshot, op *Operation, d call.Definition) {
	pin := c.pins[op.ID]
	op.Hash, op.Accepted = pin.Hash, pin.AcceptedBy != FirstSight
	op.Unread = pin.Unread() && !op.Class.TrustFirstSight
	switch {
	case d.Fault != "":
		op.Standing, op.Fault = Unfit, d.Fault
	case op.Tool == readResource || op.Tool == getPrompt:
		op.Standing, op.Fault = Unfit, "its name is that of the operation for the server's resources or prompts"
	case op.Standing != Active:
	case pin.Hash != d.Hash:
		op.Standing = Quarantined
	default:
		def, err := exposedTool(op, pin.Definition)
		if err != nil {
			op.Standing, op.Fault = Unfit, err.Error()
			break
		}
		op.Definition = def
		op.acts(pin.Definition)
		if schema, ok := call.Get(pin.Definition, "outputSchema"); ok && op.Class.Output == provenance.TrustedOutput {
			check, err := c.o.Schema(schema)
			if err != nil {
				op.Standing, op.Fault = Unfit, "its outputSchema: "+err.Error()
				break
			}
			op.Check = check
		}
	}
	if s.byID[op.ID] == nil { // a server that offers a name twice has said so in Fault, on both
		s.byID[op.ID] = op
	} else if op.Standing == Unfit {
		s.byID[op.ID] = op
	}
}

func (c *Catalogue) addOffer(s *Snapshot, server string, d call.Definition) {
	word := readResource
	if d.Kind == call.Prompt {
		word = getPrompt
	}
	op := s.byID[server+"."+word]
	if op == nil || op.Kind != d.Kind {
		op = c.operation(server, word, d.Kind)
		op.Hash = call.HashBytes([]byte(op.ID)) // one operation for all of a server's resources: there is no definition to pin
		s.byID[op.ID] = op
	}
	withhold := func() {
		o := Offer{Operation: op, Name: d.Name}
		if d.Kind == call.Prompt {
			o.Name = exposedName(op.Class, server, d.Name)
		}
		s.withheld[d.Kind] = append(s.withheld[d.Kind], o)
	}
	if op.Standing != Active {
		withhold() // what nobody can call takes nobody's name
		return
	}
	if d.Fault != "" || d.Kind == call.Resource && !threat.PlainURI(strings.NewReplacer("{", "", "}", "").Replace(d.Name)) {
		withhold() // unfit, or a URI that could be read as a sentence
		return
	}
	// Lists are read without a label rising, so they show nothing that would need one: of a server whose results bring
	// confidentiality labels nothing (what it has can still be read by name), of one that is only not trusted no free text.
	brings := slices.DeleteFunc(slices.Clone(op.Flow.Emits), func(l flow.Label) bool { return l == flow.Untrusted })
	bare := op.Class.Output != provenance.TrustedOutput
	o := Offer{Operation: op, Name: d.Name, Upstream: d.Name, Hidden: len(brings) > 0}
	if d.Kind == call.Prompt {
		o.Name = exposedName(op.Class, server, d.Name)
	}
	members, err := objectOf(d.JSON)
	if err != nil {
		return
	}
	if d.Kind == call.Prompt {
		members["name"] = o.Name
	}
	_, o.Template = members["uriTemplate"]
	if bare {
		members = bareOffer(members)
		o.Hidden = o.Hidden || !op.Class.TrustFirstSight && c.steers(server, d, members)
	}
	o.Definition, err = json.Marshal(threat.PlainValue(members))
	if err != nil {
		return
	}
	s.offers[d.Kind] = append(s.offers[d.Kind], o)
}

// name gives out the exposed names. A name that two operations claim, to the letter or but for case and dashes, goes to the one the
// operator named outright, then to the one accepted first; the other is unfit. A newcomer can't take or imitate a name, and
// an operation keeps its name while its server is away.
func (c *Catalogue) name(s *Snapshot) {
	var claims []*Operation
	for _, op := range s.byID {
		if op.Kind == call.Tool && (op.Standing == Active || op.Standing == Quarantined || op.Standing == Gone && op.Hash != "") {
			claims = append(claims, op)
		}
	}
	slices.SortFunc(claims, func(a, b *Operation) int {
		if an, bn := a.Class.Named, b.Class.Named; an != bn {
			if an {
				return -1
			}
			return 1
		}
		if d := c.pins[a.ID].AcceptedAt.Compare(c.pins[b.ID].AcceptedAt); d != 0 {
			return d
		}
		return strings.Compare(a.ID, b.ID)
	})
	taken := map[string]*Operation{}
	for _, op := range claims {
		key := strings.ReplaceAll(strings.ToLower(op.Name), "-", "_")
		if other := taken[key]; other != nil {
			op.Standing, op.Fault = Unfit, fmt.Sprintf("its exposed name %q is taken by %s, or looks like it: set expose_as", op.Name, other.ID)
			continue
		}
		if strings.HasPrefix(key, "sallyport_") {
			op.Standing, op.Fault = Unfit, "names that begin with sallyport_ are the gateway's own: set expose_as"
			continue
		}
		taken[key] = op
		s.byName[op.Name] = op
		if op.Standing == Active {
			s.tools = append(s.tools, op)
		}
	}
	slices.SortFunc(s.tools, func(a, b *Operation) int { return strings.Compare(a.Name, b.Name) })
	seen := map[string]bool{}
	for kind, offers := range s.offers {
		slices.SortStableFunc(offers, func(a, b Offer) int { return strings.Compare(a.Name, b.Name) })
		// The same URI of two servers: the first by server id has it. Reading it says which server answered.
		s.offers[kind] = slices.DeleteFunc(offers, func(o Offer) bool {
			key := string(kind) + "\x00" + o.Name
			dup := seen[key]
			seen[key] = true
			return dup
		})
	}
}

// acts makes a write of a tool that is said to read, where no call of it can do without an argument that holds code, and nobody said what that
// may be.
func (op *Operation) acts(definition []byte) {
	if op.Flow.Effect != flow.Read {
		return
	}
	schema, _ := call.Get(definition, "inputSchema")
	raw, _ := call.Get(schema, "required")
	var required []string
	if json.Unmarshal(raw, &required) != nil {
		return // no argument is required, as far as can be read: each call is looked at
	}
	unruled := op.Class.Reading(op.Server, op.Tool).Unruled(required)
	if len(unruled) == 0 {
		return
	}
	op.Acts = fmt.Sprintf("The argument %s of %s holds code, and no shape or class says what it may say, so it counts as an operation that changes what others see.", display.Line(unruled[0], 80), op.Name)
	op.Class.Level, op.Flow.Effect, op.Class.Flow.Effect = 2, flow.Write, flow.Write
	op.Profile = op.Class.Profile()
}

// exposedTool is the accepted definition as the agent sees it: under its exposed name, without what could mislead a terminal or
// a model's tokenizer, and without outputSchema where the result comes fenced.
func exposedTool(op *Operation, definition []byte) (json.RawMessage, error) {
	members, err := objectOf(definition)
	if err != nil {
		return nil, err
	}
	members = threat.PlainValue(members).(map[string]any)
	members["name"] = op.Name
	if op.Class.Description != "" {
		members["description"] = op.Class.Description
	}
	if op.Class.Output != provenance.TrustedOutput && op.Class.Output != provenance.TypedOutput {
		delete(members, "outputSchema")
	}
	delete(members, "_meta")
	return json.Marshal(members)
}

// read is what looks like an order, or is hidden, in a definition. It holds c.mu.
func (c *Catalogue) read(id, hash string, definition []byte, names func() threat.ToolNames) []threat.Suspicion {
	key := id + "\x00" + hash
	found, known := c.doubts[key]
	if !known {
		_, tool, _ := strings.Cut(id, ".")
		found = threat.SuspicionsIn(definition, tool, names())
		c.doubt(key, found)
	}
	return found
}

func (c *Catalogue) doubt(key string, found []threat.Suspicion) {
	if len(c.doubts) > 2*maxPins { // a server that keeps changing its mind
		clear(c.doubts)
	}
	c.doubts[key] = found
}

// maxOffer is how many bytes of definitions of one server are read: no honest one has so many, and other servers wait for it.
const maxOffer = 2 << 20

// steers tells whether the names in the list entry of a resource or a prompt look like an order to the model: they are read without a label
// rising. It holds c.mu.
func (c *Catalogue) steers(server string, d call.Definition, members map[string]any) bool {
	key := server + "." + string(d.Kind) + "\x00" + d.Name + "\x00" + d.Hash
	found, known := c.doubts[key]
	if !known {
		listed, _ := json.Marshal(members) // of texts: can't fail
		names := map[string]bool{}         // as names of members they are read word by word
		call.Strings(listed, func(_, s string) bool { names[s] = true; return true })
		listed, _ = json.Marshal(names)
		found = threat.SuspicionsIn(listed, "", nil)
		c.doubt(key, found)
	}
	return slices.ContainsFunc(found, func(s threat.Suspicion) bool { return s.Kind == "order" })
}

// measure finds an offer too long to be read. It holds c.mu.
func (c *Catalogue) measure(server string, defs []call.Definition) {
	size := 0
	for _, d := range defs {
		size += len(d.JSON)
	}
	if size <= maxOffer {
		return
	}
	long := []threat.Suspicion{{Kind: "long", Where: "definition", Quote: fmt.Sprintf("the server's definitions have over %d bytes", maxOffer)}}
	for _, d := range defs {
		c.doubt(server+"."+d.Name+"\x00"+d.Hash, long)
	}
}

// namesFor are the names of tools that a definition of the server could be about: its own, also those that it offers now, and those of all
// others and of the gateway, by which the servers or the agent know them. It holds c.mu.
func (c *Catalogue) namesFor(server string, offered []call.Definition) threat.ToolNames {
	names := threat.ToolNames{}
	add := func(name string, own bool) {
		name = strings.ToLower(name)
		names[name] = names[name] || own
	}
	if s := c.snap.Load(); s != nil {
		for id, op := range s.byID {
			if op.Kind == call.Tool && !strings.HasSuffix(id, seen) {
				add(op.Tool, op.Server == server)
				add(op.Name, op.Server == server)
			}
		}
	}
	for _, d := range offered {
		if d.Kind == call.Tool {
			add(d.Name, true)
		}
	}
	return names
}

func objectOf(data []byte) (map[string]any, error) {
	var m map[string]any
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.UseNumber()
	if err := dec.Decode(&m); err != nil {
		return nil, fmt.Errorf("its definition is not an object: %w", err)
	}
	return m, nil
}

// ByID finds an operation by its id, also one that can't be called; nil if there is none.
func (s *Snapshot) ByID(id string) *Operation { return s.byID[id] }

// Lookup finds an operation by its exposed name. Ids are never names: what the agent sees is what it can say.
func (s *Snapshot) Lookup(name string) *Operation { return s.byName[name] }

// Offer finds an exposed prompt by name, or a resource by URI: listed as it is, or made from a template.
func (s *Snapshot) Offer(kind call.Kind, name string) *Offer {
	for i := range s.offers[kind] {
		o := &s.offers[kind][i]
		if !o.Template && o.Name == name {
			return o
		}
	}
	if kind == call.Resource {
		for i := range s.offers[kind] {
			if o := &s.offers[kind][i]; o.Template && (o.Name == name || templateMatches(o.Name, name)) {
				return o
			}
		}
	}
	return nil
}

// templateMatches tells whether the URI can come from the template: its literal parts in order, the first at the start and the
// last at the end. The server decides what it means; this only finds the server.
func templateMatches(template, uri string) bool {
	rest, first := uri, true
	for template != "" {
		literal, tail, found := strings.Cut(template, "{")
		if first {
			if !strings.HasPrefix(rest, literal) || literal == "" {
				return false
			}
			rest, first = rest[len(literal):], false
		} else if literal != "" {
			i := strings.Index(rest, literal)
			if i < 0 || !found && !strings.HasSuffix(rest, literal) {
				return false
			}
			rest = rest[i+len(literal):]
		}
		if !found {
			return true
		}
		if _, template, found = strings.Cut(tail, "}"); !found {
			return false
		}
	}
	return true
}

// visible tells whether listing shows the operation to the agent: by permission and standing only, never by phase or labels.
func (op *Operation) visible(d *agent.Declaration) bool {
	return d != nil && op.Standing == Active && d.Permits(op.ID, op.Flow.Effect != flow.Read)
}

// Operations returns the tools that an agent with the declaration may see, by exposed name; none without a declaration.
func (c *Catalogue) Operations(d *agent.Declaration) []*Operation {
	var seen []*Operation
	for _, op := range c.Snapshot().tools {
		if op.visible(d) {
			seen = append(seen, op)
		}
	}
	return seen
}

// Offers returns the resources (and templates) or prompts that an agent with the declaration may see; none without a declaration.
func (c *Catalogue) Offers(d *agent.Declaration, kind call.Kind) []Offer {
	var seen []Offer
	for _, o := range c.Snapshot().offers[kind] {
		if !o.Hidden && o.Operation.visible(d) {
			seen = append(seen, o)
		}
	}
	return seen
}

// bareOffer keeps what is needed to ask for a resource or prompt: names and types, no sentences.
func bareOffer(members map[string]any) map[string]any {
	next := map[string]any{}
	for _, key := range []string{"name", "uri", "uriTemplate", "mimeType"} {
		s, ok := members[key].(string)
		if !ok {
			continue
		}
		if key == "mimeType" && !threat.MediaType(s) || len(s) > 1000 {
			continue
		}
		if key == "name" { // a name that reads as a sentence becomes one that doesn't
			s = bareName(s)
		}
		next[key] = s
	}
	if list, ok := members["arguments"].([]any); ok {
		var arguments []any
		for _, a := range list {
			if a, ok := a.(map[string]any); ok {
				name, _ := a["name"].(string)
				arguments = append(arguments, map[string]any{"name": bareName(name), "required": a["required"] == true})
			}
		}
		next["arguments"] = arguments
	}
	return next
}

func bareName(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-/", r)) {
			return r
		}
		return '_'
	}, s)
	return s[:min(len(s), 128)]
}

// Tool is one operation as people see it (GET /v1/tools).
type Tool struct {
	Operation   string            `json:"operation"`
	Name        string            `json:"name"`
	Server      string            `json:"server"`
	Kind        call.Kind         `json:"kind"`
	Standing    Standing          `json:"standing"`
	Fault       string            `json:"fault,omitempty"`
	Sensitivity string            `json:"sensitivity"`
	Effect      string            `json:"effect"`
	Emits       []flow.Label      `json:"emits"`
	BlockedBy   []flow.Label      `json:"blocked_by"`
	Output      provenance.Output `json:"output"`
	ExternalIO  bool              `json:"external_io"`
	Listed      bool              `json:"listed"`
	Hash        string            `json:"definition_hash,omitempty"`
	PendingHash string            `json:"pending_hash,omitempty"`
	// Definition and Pending are the server's own words: hostile text.
	Definition json.RawMessage `json:"definition,omitempty"`
	Pending    json.RawMessage `json:"pending,omitempty"`
	AcceptedBy string          `json:"accepted_by,omitempty"`
	AcceptedAt time.Time       `json:"accepted_at,omitzero"`
	// Unread: only a rule accepted the definition, so a session that lists it holds untrusted.
	Unread bool `json:"unread,omitempty"`
	// Suspicions are what looks like an order, or is hidden, in the definition that no person has accepted yet.
	Suspicions []threat.Suspicion `json:"suspicions,omitempty"`
}

// Tools returns everything that servers offer or offered, whatever its standing, by id.
func (c *Catalogue) Tools() []Tool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.snap.Load()
	var all []Tool
	names := map[string]func() threat.ToolNames{} // by server
	for _, id := range slices.Sorted(maps.Keys(s.byID)) {
		op, pin := s.byID[id], c.pins[id]
		t := Tool{
			Operation: id, Name: op.Name, Server: op.Server, Kind: op.Kind, Standing: op.Standing, Fault: op.Fault,
			Sensitivity: string(op.Flow.Sensitivity), Effect: string(op.Flow.Effect), Emits: append([]flow.Label{}, op.Flow.Emits...), BlockedBy: append([]flow.Label{}, op.Flow.BlockedBy...),
			Output: op.Class.Output, ExternalIO: op.Class.ExternalIO, Listed: op.Class.Listed, Hash: pin.Hash, PendingHash: pin.Pending,
			Definition: pin.Definition, Pending: pin.PendingDef, AcceptedBy: cmp.Or(pin.ConfirmedBy, pin.AcceptedBy), AcceptedAt: pin.AcceptedAt, Unread: op.Unread,
		}
		if names[op.Server] == nil {
			names[op.Server] = sync.OnceValue(func() threat.ToolNames { return c.namesFor(op.Server, nil) })
		}
		switch {
		case pin.Pending != "":
			t.Suspicions = c.read(id, pin.Pending, pin.PendingDef, names[op.Server])
		case pin.Unread():
			t.Suspicions = c.read(id, pin.Hash, pin.Definition, names[op.Server])
		}
		all = append(all, t)
	}
	return all
}
