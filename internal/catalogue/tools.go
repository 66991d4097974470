package catalogue

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/threat"
	"sallyport.example/provenance"
)

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
	// Launch is the hash of how the server is started or reached, accepted with the definition, and PendingLaunch that of what waits.
	Launch        string `json:"launch_hash,omitempty"`
	PendingLaunch string `json:"pending_launch_hash,omitempty"`
	// Definition and Pending are the server's own words: hostile text.
	Definition json.RawMessage `json:"definition,omitempty"`
	Pending    json.RawMessage `json:"pending,omitempty"`
	AcceptedBy string          `json:"accepted_by,omitempty"`
	AcceptedAt time.Time       `json:"accepted_at,omitzero"`
	// Unread: only a rule accepted the definition, so a session that lists it holds untrusted.
	Unread bool `json:"unread,omitempty"`
	// Suspicions are texts that look like an order, or are hidden, in the definition that no person has accepted yet.
	Suspicions []threat.Suspicion `json:"suspicions,omitempty"`
}

// Tools returns the operations of all servers, even those that can't be called or are gone, by id.
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
			Output: op.Class.Output, ExternalIO: op.Class.ExternalIO, Listed: op.Class.Listed, Hash: pin.Hash, PendingHash: pin.Pending, Launch: pin.Launch, PendingLaunch: pin.PendingLaunch,
			Definition: pin.Definition, Pending: pin.PendingDef, AcceptedBy: cmp.Or(pin.ConfirmedBy, pin.AcceptedBy), AcceptedAt: pin.AcceptedAt, Unread: op.Unread,
		}
		if names[op.Server] == nil {
			names[op.Server] = sync.OnceValue(func() threat.ToolNames { return c.toolNames(op.Server, nil) })
		}
		switch {
		case pin.Pending != "":
			t.Suspicions = c.suspicionsIn(id, pin.Pending, pin.PendingDef, names[op.Server])
		case pin.Unread():
			t.Suspicions = c.suspicionsIn(id, pin.Hash, pin.Definition, names[op.Server])
		}
		all = append(all, t)
	}
	return all
}

// ToolView is a tool with its whole classification. It is for people; nothing is decided on it.
type ToolView struct {
	Tool
	Level    int    // 0 reads, 1 write only the person sees and can undo, 2 the rest
	Risk     string // without the arguments of a call, which can raise it
	Action   string // its name in the risk rules, or ""
	Named    bool   // an entry of the configuration names it; if only Listed is set, an entry covers its whole server
	AskFirst bool   // a person is asked about every call, because no entry covers it
	Denied   bool   // no entry covers it, and every call would be refused if the gateway enforced
	AskOnce  bool   // about the first one in a session
	Admin    bool   // a person with the role admin decides about each call
	BuiltIn  bool   // it runs in this process and not on a server

	Profile *provenance.Profile // the classification of its arguments and results; nil: it came or went while the view was made
	Allows  []string            // sentences about what the profile allows
	Traced  bool                // provenance decides about its calls at all
}

// ToolViews returns the tools of Tools, in its order, with their classifications.
func (c *Catalogue) ToolViews() []ToolView {
	all := c.Tools()
	views := make([]ToolView, 0, len(all))
	snap := c.Snapshot()
	for _, t := range all {
		v := ToolView{Tool: t}
		if op := snap.ByID(t.Operation); op != nil { // one that came or went between the two looks is shown next time
			v.Level, v.Risk, v.Action = op.Class.Level, string(op.Class.Risk()), op.Class.Action
			v.Named, v.AskFirst, v.AskOnce, v.Denied, v.Admin, v.BuiltIn = op.Class.Named, op.AskFirst, op.AskOnce, op.Denied, op.Class.AdminAnswers, op.Command != nil
			v.Profile, v.Allows = op.Profile, op.Profile.Explain(op.Flow)
			v.Traced = op.Kind == call.Tool && op.Traced()
		}
		views = append(views, v)
	}
	return views
}

// Usability counts a server's tools and those that can be called. Why says what is wrong with the others, in text that is safe to show.
type Usability struct {
	Tools, Usable int
	Why           []string
}

// maxUnfit is how many unfit tools of a server Why names.
const maxUnfit = 3

// Usability returns the usability of each server that offers tools.
func (c *Catalogue) Usability() map[string]Usability {
	byServer := map[string]Usability{}
	waiting, unlisted, unfit := map[string]int{}, map[string]int{}, map[string]int{}
	byID := c.Snapshot().byID
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		op := byID[id]
		if op.Kind != call.Tool || op.Command != nil || op.Standing == Gone {
			continue
		}
		u := byServer[op.Server]
		u.Tools++
		switch op.Standing {
		case Active:
			u.Usable++
		case Quarantined:
			waiting[op.Server]++
		case Unlisted:
			unlisted[op.Server]++
		default:
			if unfit[op.Server]++; unfit[op.Server] <= maxUnfit {
				u.Why = append(u.Why, display.Line(op.Tool, 80)+": "+display.Line(op.Fault, 300))
			}
		}
		byServer[op.Server] = u
	}
	for server, u := range byServer {
		if more := unfit[server] - maxUnfit; more > 0 {
			u.Why = append(u.Why, fmt.Sprintf("%d more are unfit", more))
		}
		if n := waiting[server]; n > 0 {
			u.Why = append(u.Why, fmt.Sprintf("waiting for a person to accept the definition: %d", n))
		}
		if n := unlisted[server]; n > 0 {
			u.Why = append(u.Why, fmt.Sprintf("not named under operations: %d", n))
		}
		byServer[server] = u
	}
	return byServer
}
