// Package policy holds the permission stage: what an agent's declaration permits, narrowed by the operator's Cedar policies. It also holds
// the risk rules: how risky a call is (HI-1), by Rules.Rate, as pure as Decide and independent of it.
//
// Promises: Decide is pure. A call is allowed if the declaration permits it, no forbid policy matches, and, where the folder holds
// permit policies, one of them matches: that is Cedar's own rule, and without any permit policy the declaration is the only one. So
// policies only ever narrow. A policy that can't be evaluated on a call refuses the call, whether it permits or forbids (Cedar itself
// skips it). Policies are parsed and checked at load, against the schema below; what Load accepts never changes under a Set.
//
// What a policy sees:
//
//	principal   Agent::"<agent id>"
//	action      Action::"call"
//	resource    Operation::"<server>.<tool>", in Server::"<server>"
//	context     phase, effect, sensitivity, door, requester (String), level (Long), labels (Set of String), arguments
//
// context.arguments is the call's arguments as a record. They have no declared types, so policies that mention them are checked
// only for the names of other attributes. JSON becomes Cedar so that no attribute ever goes missing:
//
//	true, false           Boolean
//	integer in 64 bits    Long
//	any other number      String, as written in canonical form ("0.5", "18446744073709551616")
//	string                String
//	null                  JSON::"null"
//	array                 Set: without order and repetition
//	object                Record
//
// So `context.arguments has amount && context.arguments.amount > 100` refuses an amount of 99.5 (a String can't be compared with >)
// instead of passing it by. Arguments too large for Cedar are refused once any policy mentions them.
package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	canonical "sallyport.example/internal/call"
	"sallyport.example/internal/display"
)

// shownMost bounds text of others in what people and models read, in bytes.
const shownMost = 200

// Request is one call to judge. Plain values: this package knows nothing of sessions and declarations.
type Request struct {
	Agent, Operation, Server, Requester, Door, Phase, Effect, Sensitivity string

	Level     int
	Labels    []string
	Arguments []byte // canonical JSON object; nil is none
	Permitted bool   // whether the agent's declaration permits the operation
}

// Decision is the stage's answer. Reason is "" if allowed, and safe to show otherwise. Policies are the ids of those that refused,
// sorted.
type Decision struct {
	Allowed  bool
	Reason   string
	Policies []string
}

// Set is the policies of one folder. Immutable; safe for concurrent use. A nil Set refuses everything: an empty one comes from Load("").
type Set struct {
	policies []policy
	permits  bool // some policy is a permit
	version  string
	reads    []string // the attributes of context that policies mention; only they are made, since making them is most of the work
}

type policy struct {
	id     string
	at     string // file:line:column
	reason string // of its annotation @reason, shown to whoever is refused
	scope  scope
	// conditions is the policy with a scope that covers everything: it is asked only about calls that its own scope covers.
	conditions *cedar.Policy
}

// scope is whom and what a policy is about. It can't fail on a call, and Cedar looks at it before the conditions, so that it may be looked at apart from
// them, for a fraction of the time.
type scope struct {
	principal ast.IsPrincipalScopeNode
	action    ast.IsActionScopeNode
	resource  ast.IsResourceScopeNode
}

// subjects are the entities of one call.
type subjects struct{ agent, action, operation, server cedar.EntityUID }

func (p *policy) covers(of *subjects) bool {
	return covers(p.scope.principal, &of.agent, &nothing) && covers(p.scope.action, &of.action, &nothing) && covers(p.scope.resource, &of.operation, &of.server)
}

// nothing is what an entity is in that is in no other.
var nothing cedar.EntityUID

// covers tells whether one part of a scope covers an entity, which is in parent alone.
func covers(part ast.IsScopeNode, entity, parent *cedar.EntityUID) bool {
	within := func(e cedar.EntityUID) bool { return e == *entity || e == *parent && parent != &nothing }
	switch part := part.(type) {
	case ast.ScopeTypeAll:
		return true
	case ast.ScopeTypeEq:
		return part.Entity == *entity
	case ast.ScopeTypeIn:
		return within(part.Entity)
	case ast.ScopeTypeInSet:
		return slices.ContainsFunc(part.Entities, within)
	case ast.ScopeTypeIs:
		return part.Type == entity.Type
	case ast.ScopeTypeIsIn:
		return part.Type == entity.Type && within(part.Entity)
	}
	panic("policy: a scope that add refuses")
}

// covering is what cedar.Authorize iterates over for one call: the policies whose scopes cover it, always in one order.
type covering struct {
	*Set
	of *subjects
}

func (s covering) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for i := range s.policies {
			if p := &s.policies[i]; p.covers(s.of) && !yield(cedar.PolicyID(p.id), p.conditions) {
				return
			}
		}
	}
}

// Version names what the set says: two sets with one version decide alike. It is the hex SHA-256 of the files.
func (s *Set) Version() string { return s.version }

// Len is how many policies there are.
func (s *Set) Len() int { return len(s.policies) }

// Decide judges one call.
func (s *Set) Decide(r Request) Decision {
	switch {
	case s == nil:
		return Decision{Reason: "No policies were loaded."}
	case !r.Permitted:
		return Decision{Reason: fmt.Sprintf("The declaration of the agent %q does not permit %s.", r.Agent, r.Operation)}
	case len(s.policies) == 0:
		return Decision{Allowed: true}
	}
	return s.evaluate(r)
}

const call = "call"

// evaluate asks Cedar. Whatever goes wrong in it refuses.
func (s *Set) evaluate(r Request) (d Decision) {
	defer func() {
		if recover() != nil {
			d = Decision{Reason: "The operator's policies can't be evaluated on this call."}
		}
	}()
	context := make(cedar.RecordMap, len(s.reads))
	for _, name := range s.reads {
		v, err := attribute(name, &r)
		if err != nil {
			return Decision{Reason: "The operator's policies can't be evaluated on this call: " + err.Error() + "."}
		}
		context[cedar.String(name)] = v
	}
	of := subjects{
		agent: cedar.NewEntityUID("Agent", cedar.String(r.Agent)), action: cedar.NewEntityUID("Action", call),
		operation: cedar.NewEntityUID("Operation", cedar.String(r.Operation)), server: cedar.NewEntityUID("Server", cedar.String(r.Server)),
	}
	decision, diagnostic := cedar.Authorize(covering{s, &of}, entity{UID: of.operation, Parents: cedar.NewEntityUIDSet(of.server)}, cedar.Request{
		Principal: of.agent, Action: of.action, Resource: of.operation, Context: cedar.NewRecord(context),
	})
	// Without permit policies Cedar's default deny says nothing; a deny that names a reason is a forbid.
	forbidden := decision == cedar.Deny && len(diagnostic.Reasons) > 0
	switch {
	case len(diagnostic.Errors) > 0:
		for _, e := range diagnostic.Errors {
			d.Policies = append(d.Policies, string(e.PolicyID))
		}
		d.Reason = fmt.Sprintf("A policy can't be evaluated on this call (%s).", display.Line(diagnostic.Errors[0].Message, shownMost))
		if forbidden {
			d.Policies = append(d.Policies, ids(diagnostic)...)
		}
	case forbidden:
		d.Policies = ids(diagnostic)
		d.Reason = "A policy forbids this call."
		if why := s.why(d.Policies); why != "" {
			d.Reason = "A policy forbids this call: " + why
		}
	case decision == cedar.Deny && s.permits:
		d.Reason = "No policy permits this call."
	default:
		return Decision{Allowed: true}
	}
	slices.Sort(d.Policies)
	d.Policies = slices.Compact(d.Policies)
	return d
}

// attributes are those of context.
var attributes = []string{"phase", "effect", "sensitivity", "door", "requester", "level", "labels", "arguments"}

// attribute is the value of one of them.
func attribute(name string, r *Request) (cedar.Value, error) {
	switch name {
	case "phase":
		return cedar.String(r.Phase), nil
	case "effect":
		return cedar.String(r.Effect), nil
	case "sensitivity":
		return cedar.String(r.Sensitivity), nil
	case "door":
		return cedar.String(r.Door), nil
	case "requester":
		return cedar.String(r.Requester), nil
	case "level":
		return cedar.Long(r.Level), nil
	case "labels":
		return stringSet(r.Labels), nil
	case "arguments":
		return record(r.Arguments)
	}
	return nil, fmt.Errorf("there is no attribute %q", name) // check lets no other name in
}

func ids(d cedar.Diagnostic) []string {
	out := make([]string, len(d.Reasons))
	for i, r := range d.Reasons {
		out[i] = string(r.PolicyID)
	}
	return out
}

// why is the first @reason among the policies.
func (s *Set) why(ids []string) string {
	for _, p := range s.policies {
		if p.reason != "" && slices.Contains(ids, p.id) {
			return p.reason
		}
	}
	return ""
}

// entity is the one entity with parents that a call has: its operation, in its server.
type entity cedar.Entity

func (e entity) Get(uid cedar.EntityUID) (cedar.Entity, bool) {
	if uid != e.UID {
		return cedar.Entity{}, false
	}
	return cedar.Entity(e), true
}

func stringSet(words []string) cedar.Set {
	values := make([]cedar.Value, len(words))
	for i, w := range words {
		values[i] = cedar.String(w)
	}
	return cedar.NewSet(values...)
}

// Cedar's sets compare in the worst case each element with each, on hashes that a caller can choose.
const (
	maxElements = 1000   // of one array
	maxValues   = 10_000 // in all
)

var null = cedar.NewEntityUID("JSON", "null")

// record turns a canonical JSON object into a Cedar record.
func record(arguments []byte) (cedar.Record, error) {
	if len(arguments) == 0 {
		return cedar.NewRecord(nil), nil
	}
	var object map[string]any
	if err := canonical.Decode(arguments, &object); err != nil || object == nil {
		return cedar.Record{}, fmt.Errorf("its arguments are not an object")
	}
	values := 0
	v, err := value(object, &values)
	if err != nil {
		return cedar.Record{}, err
	}
	return v.(cedar.Record), nil
}

func value(v any, values *int) (cedar.Value, error) {
	if *values++; *values > maxValues {
		return nil, fmt.Errorf("its arguments hold more than %d values", maxValues)
	}
	switch v := v.(type) {
	case bool:
		return cedar.Boolean(v), nil
	case string:
		return cedar.String(v), nil
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return cedar.Long(n), nil
		}
		return cedar.String(v), nil
	case []any:
		if len(v) > maxElements {
			return nil, fmt.Errorf("its arguments hold a list of more than %d elements", maxElements)
		}
		set := make([]cedar.Value, len(v))
		for i := range v {
			var err error
			if set[i], err = value(v[i], values); err != nil {
				return nil, err
			}
		}
		return cedar.NewSet(set...), nil
	case map[string]any:
		m := make(cedar.RecordMap, len(v))
		for name, member := range v {
			var err error
			if m[cedar.String(name)], err = value(member, values); err != nil {
				return nil, err
			}
		}
		return cedar.NewRecord(m), nil
	}
	return null, nil
}

func byID(a, b policy) int { return cmp.Compare(a.id, b.id) }
