package catalogue

import (
	"encoding/json"
	"regexp"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/reading"
	"sallyport.example/provenance"
)

// Classification is the operator's word on one operation, resolved from its own entry, its server's "server.*" entry and the
// defaults. What a server says about itself never enters here (docs/design.md, rule 6).
type Classification struct {
	ExposeAs    string // the name the agent sees; "" means <server>_<tool>; "{tool}" stands for the server's own name
	Flow        flow.Spec
	ExternalIO  bool
	Level       int // 0 reads, 1 write only the person sees and can undo, 2 the rest
	Output      provenance.Output
	Shape       *regexp.Regexp
	Description string // replaces the server's
	Timeout     time.Duration
	Action      string                  // what the operation does, by its name in the risk rules
	RiskFloor   policy.Risk             // the operator's word; it only raises
	Roles       map[string]string       // argument -> role: which one is the amount, the destination …; none: nobody said
	Code        map[string]reading.Rule // of a read: argument that holds code -> what it may say
	Facts       Facts                   // what the operator says about the data of its results
	Listed      bool                    // false: no entry of the operator's covers it
	Named       bool                    // an entry of the operator's names it outright, not only by "server.*"
	// TrustFirstSight: what only a rule accepted of the server's definitions brings no label into a session that lists it.
	TrustFirstSight bool
}

// Risk is the tier as far as it can be said before the call: amounts and context are the call's own.
func (c Classification) Risk() policy.Risk {
	return policy.Rules{}.Rate(policy.Subject{Action: c.Action, Floor: c.RiskFloor}).Risk
}

// Reading is what the operator says about a tool that reads, as far as it tells whether a call does more.
func (c Classification) Reading(server, tool string) *reading.Operation {
	return &reading.Operation{Server: server, Tool: tool, Roles: c.Roles, Code: c.Code}
}

// Facts are what the operator says about an operation's data besides Output and Shape (provenance.Profile has the words).
type Facts struct {
	TrustedFields, Names, Delegable []string
	IDKind                          string
	Boundary                        provenance.Boundary
	EgressURL                       bool
}

// Profile is all of it as the flow rules read it.
func (c Classification) Profile() *provenance.Profile {
	p := &provenance.Profile{
		Output: c.Output, Shape: c.Shape, Level: c.Level, TrustedFields: c.Facts.TrustedFields, Names: c.Facts.Names, Delegable: c.Facts.Delegable,
		IDKind: c.Facts.IDKind, Boundary: c.Facts.Boundary, EgressURL: c.Facts.EgressURL,
	}
	for arg, role := range c.Roles {
		if p.Args == nil {
			p.Args = map[string]provenance.Role{}
		}
		p.Args[arg] = provenance.Role(role)
	}
	return p
}

// Standing is whether an operation can be called at all.
type Standing string

const (
	Active      Standing = "active"
	Quarantined Standing = "quarantined" // its definition changed and was not accepted
	Unlisted    Standing = "unlisted"    // no operator's entry names it, and unlisted_operations is deny
	Unfit       Standing = "unfit"       // its definition can't be exposed (name, schema, size); Fault says why
	Gone        Standing = "gone"        // the server no longer offers it
)

// Operation is one thing an agent can call, as the catalogue holds it. Immutable once published.
type Operation struct {
	ID         string // "<server>.<tool>"
	Server     string
	Tool       string // the server's own name; for resources and prompts the operation's word (read_resource, get_prompt)
	Name       string // what the agent sees
	Kind       call.Kind
	Definition json.RawMessage // what the agent sees of it: name and description replaced, otherwise the accepted definition
	Hash       string          // of the whole definition as the server gave it, accepted
	Standing   Standing
	Fault      string
	Class      Classification
	Flow       flow.Operation
	Profile    *provenance.Profile
	Acts       string // of a read: why each call counts as a write; "": that depends on its arguments
	AskFirst   bool   // unlisted_operations: ask, or ask_once
	AskOnce    bool   // ask_once
	Accepted   bool   // a person accepted its definition: it came, or changed, after its server was first seen
	Unread     bool   // only a rule accepted its definition, and the operator doesn't trust that: its words are an outsider's

	Command *Command // what runs it, of a built-in operation; nil: an upstream server

	Check func(value []byte) error // structuredContent against the accepted outputSchema; nil: none
}

// Traced tells whether provenance decides about its calls: of a server's tool always, of a built-in operation where the operator has told what
// its arguments are for.
func (op *Operation) Traced() bool {
	return op.Command == nil || op.Profile.Told() || op.Profile.EgressURL
}

// Choices are the texts that the accepted definition of a read lists for an argument.
func (op *Operation) Choices() map[string][]string {
	if op.Flow.Effect != flow.Read || !op.Profile.Told() || len(op.Definition) == 0 {
		return nil
	}
	schema, _ := call.Get(op.Definition, "inputSchema")
	properties, _ := call.Get(schema, "properties")
	var all map[string][]string
	for argument := range op.Profile.Args {
		property, _ := call.Get(properties, argument)
		listed, _ := call.Get(property, "enum")
		var values []string
		if listed == nil || json.Unmarshal(listed, &values) != nil {
			continue
		}
		if all == nil {
			all = map[string][]string{}
		}
		all[argument] = values
	}
	return all
}
