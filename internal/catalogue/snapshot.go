package catalogue

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// Snapshot is one state of the catalogue. Nothing in it changes.
type Snapshot struct {
	byID   map[string]*Operation
	byName map[string]*Operation // exposed tools that can be called or are quarantined
	tools  []*Operation          // by exposed name
	offers map[call.Kind][]Offer

	withheld map[call.Kind][]Offer // offers that agents can't see, kept to explain refusals
}

// Offer is a resource, a resource template or a prompt as it is exposed.
type Offer struct {
	Operation  *Operation
	Name       string // exposed prompt name, URI or URI template
	Upstream   string // the server's own name for it
	Definition json.RawMessage
	Template   bool
	Hidden     bool // lists leave it out: see addOffer
}

// Offer finds an exposed prompt by name, or a resource by URI, listed or made from a template.
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

// ByID finds an operation by its id, even one that can't be called; nil if there is none.
func (s *Snapshot) ByID(id string) *Operation { return s.byID[id] }

// Lookup finds an operation by its exposed name. An id is no name: agents use the names that they see.
func (s *Snapshot) Lookup(name string) *Operation { return s.byName[name] }

// templateMatches tells whether the URI can come from the template: it has the literal parts in order, the first at its start and the last at
// its end. This only finds the server, which decides what the URI means.
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

// visible tells whether lists show the operation to the agent. Only permission and standing count, not phase and labels.
func (op *Operation) visible(d *agent.Declaration) bool {
	return d != nil && op.Standing == Active && d.Permits(op.ID, op.Flow.Effect != flow.Read)
}

// Operations returns the tools that an agent with the declaration may see, by exposed name; none without a declaration. A command that can't work here
// is left out, and so are those of the knowledge store where the declaration names no collection; who calls one by its name is told why, or finds nothing.
func (c *Catalogue) Operations(d *agent.Declaration) []*Operation {
	var seen []*Operation
	knows := false
	if d != nil {
		collections, _ := d.ReadsKnowledge()
		knows = len(collections) > 0
	}
	for _, op := range c.Snapshot().tools {
		if op.visible(d) && (op.Command == nil || op.Command.Missing == "" && (knows || op.Server != KnowledgeServer)) {
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

// WhyWithheld says why agents can't call the operation under the name.
func (op *Operation) WhyWithheld(name string) fault.Verdict {
	switch op.Standing {
	case Unlisted:
		return fault.Refuse("permit", fault.PermissionDenied, "No entry under operations names "+op.ID+", and unlisted_operations is deny.")
	case Active: // the operation can be called, but not for this name
		return fault.Refuse("resolve", fault.ToolUnknown, fmt.Sprintf("The server offers %.80q in a form that can't be passed on.", name))
	}
	return fault.Refuse("standing", fault.ToolUnknown, fmt.Sprintf("%s can't be offered: %.80s", op.ID, op.Fault))
}

// Withheld finds the operation of a kind that would have the name if agents could call it; nil if there is none.
func (s *Snapshot) Withheld(kind call.Kind, name string) *Operation {
	if kind == call.Tool {
		var found *Operation
		for _, op := range s.byID {
			if op.Kind == call.Tool && (op.Standing == Unlisted || op.Standing == Unfit) && op.Name == name && (found == nil || op.ID < found.ID) {
				found = op
			}
		}
		return found
	}
	if i := slices.IndexFunc(s.withheld[kind], func(o Offer) bool {
		return o.Name == name || kind == call.Resource && strings.Contains(o.Name, "{") && templateMatches(o.Name, name)
	}); i >= 0 {
		return s.withheld[kind][i].Operation
	}
	return nil
}
