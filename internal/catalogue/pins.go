package catalogue

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/screen"
	"sallyport.example/internal/threat"
)

const (
	// maxPins bounds how many definitions servers can make the gateway remember. Further ones are not exposed.
	maxPins = 20_000
	// readResource is the operation that stands for all of a server's resources, getPrompt the one for all of its prompts.
	readResource, getPrompt = "read_resource", "get_prompt"
	// FirstSight is the rule that accepts definitions of a server that is first seen, and of tools that the operator's configuration names.
	FirstSight = "rule:first-sight"
	// serverSeen stands in place of a tool's name in the pin that records that a server was seen. No tool can have this name.
	serverSeen = ".*"
)

// pinsAtOnce is how many pins are written in one transaction.
const pinsAtOnce = 100

// Pin is the accepted definition of one operation, or the one that waits to be accepted, or both.
type Pin struct {
	Operation  string `json:"operation"`
	Hash       string `json:"definition_hash"`
	Definition []byte `json:"-"` // canonical JSON
	Pending    string `json:"pending_hash,omitempty"`
	PendingDef []byte `json:"-"` // the definition that waits to be accepted
	// Launch is the hash of how the server was started or reached (Options.Launch) when the definition was accepted, and PendingLaunch that of the
	// definition that waits. "": not known, of a pin that was made by an older version.
	Launch        string `json:"launch_hash,omitempty"`
	PendingLaunch string `json:"pending_launch_hash,omitempty"`
	AcceptedBy    string `json:"accepted_by"`
	// ConfirmedBy is the person who has read a definition that a rule accepted, and accepts it as it is.
	ConfirmedBy string `json:"confirmed_by,omitempty"`
	// AcceptedAt is when a definition was first accepted or, before that, first seen. It stays when a later definition is accepted,
	// since the older of two claims to an exposed name counts.
	AcceptedAt time.Time `json:"accepted_at"`
}

// Unread tells whether only a rule accepted the definition.
func (p Pin) Unread() bool { return p.AcceptedBy == FirstSight && p.ConfirmedBy == "" }

// Acceptance names a definition that a person has read.
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

// AcceptTools accepts definitions that a person has read, each by itself. A definition that changed meanwhile is not accepted, and its error
// says so. The second error is the store's, after which none of the rest is accepted.
func (c *Catalogue) AcceptTools(ctx context.Context, all []Acceptance, by string) ([]error, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	errs := make([]error, len(all))
	var pins []Pin
	var entries []audit.Entry
	for i, a := range all {
		pin, ok := c.pins[a.Operation]
		switch {
		case !ok || strings.HasSuffix(a.Operation, serverSeen):
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
			pin.Launch, pin.PendingLaunch = pin.PendingLaunch, ""
			if pin.AcceptedBy == "" {
				pin.AcceptedAt = c.o.Now()
			}
			pin.AcceptedBy, pin.ConfirmedBy = by, ""
		}
		pins = append(pins, pin)
		entries = append(entries, accepted(pin, by))
	}
	err := c.save(ctx, pins, entries)
	if len(pins) > 0 {
		c.publish()
	}
	return errs, err
}

// save writes pins, each with its entry, in portions, so that a server with thousands of tools does not block the only writer. Pins that are
// not written stay as they were. c.mu is held.
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

// accepted is the audit entry for the definition of a pin that was accepted.
func accepted(pin Pin, by string) audit.Entry {
	return audit.Entry{
		Kind: audit.Change, Action: "tool.accept", Actor: by, Operation: pin.Operation, DefHash: pin.Hash, Decision: "ok", Detail: launched(pin.Launch, nil, nil),
	}
}

// takenOver is the audit entry for a pin that says from now on how its server is started. An older version made it.
func takenOver(pin Pin) audit.Entry {
	return audit.Entry{
		Kind: audit.Change, Action: "tool.launch", Actor: "rule:upgrade", Operation: pin.Operation, DefHash: pin.Hash, Decision: "ok", Detail: launched(pin.Launch, nil, nil),
		Reason: "An older version did not note how the server is started or reached.",
	}
}

// quarantined is the audit entry for the definition of a pin that waits for a person.
func (c *Catalogue) quarantined(pin Pin, found []threat.Suspicion) audit.Entry {
	e := audit.Entry{Kind: audit.Change, Action: "tool.quarantine", Actor: "rule:definition", Operation: pin.Operation, DefHash: pin.Pending, Decision: "ok"}
	var hit *screen.Found
	if slices.ContainsFunc(found, func(s threat.Suspicion) bool { return s.Kind == threat.ScreenedKind }) {
		hit = c.screened(pin.Operation, pin.PendingDef)
	}
	e.Detail = launched(pin.PendingLaunch, found, hit)
	switch {
	case pin.Hash == pin.Pending:
		e.Actor, e.Reason = "rule:launch", "The server is started or reached in another way than when this was accepted."
	case len(found) > 0:
		e.Reason = audit.Clip(found[0].String())
	}
	return e
}

// launched is the detail of an entry about a definition.
func launched(launch string, found []threat.Suspicion, hit *screen.Found) json.RawMessage {
	detail := map[string]any{}
	if launch != "" {
		detail["launch_hash"] = launch
	}
	if len(found) > 0 {
		detail["suspicions"] = found
	}
	if hit != nil {
		detail["threat"] = hit
	}
	if len(detail) == 0 {
		return nil
	}
	raw, _ := json.Marshal(detail) // of plain words: can't fail
	return raw
}
