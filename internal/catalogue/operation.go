package catalogue

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/project"
	"sallyport.example/internal/reading"
	"sallyport.example/provenance"
)

// Classification is how the operator's configuration classifies one operation. It is resolved from the operation's own entry, its server's
// "server.*" entry and the defaults. What a server says about itself never enters it (docs/design.md, rule 6).
type Classification struct {
	ExposeAs     string // the name the agent sees; "" means <server>_<tool>, or <tool> where that begins with the server's id; "{tool}" stands for the server's own name
	Flow         flow.Spec
	ExternalIO   bool
	Level        int // 0 reads, 1 write only the person sees and can undo, 2 the rest
	Output       provenance.Output
	Shape        *regexp.Regexp
	Description  string // replaces the server's
	Timeout      time.Duration
	Action       string // its name in the risk rules
	NeedsReasons bool   // of a server's tool: each call has to say why
	// AllowInvisible are the arguments in which characters that show nothing are marked, and not refused.
	AllowInvisible []string
	ScreenNotes    bool        // what screening finds in its arguments and results is noted, and nothing follows from it
	RiskFloor      policy.Risk // the least risk; it only raises
	AdminAnswers   bool        // a person decides about each call of it, and only one with the role admin (DE-6)
	// Unclassified: the operator has not said what the operation changes, if it does: no action, no risk, and no level of a write.
	Unclassified bool
	Roles        map[string]string       // argument -> role: which one is the amount, the destination …
	Code         map[string]reading.Rule // of a read: argument that holds code -> the rule for it
	Facts        Facts                   // of the data in its results
	Project      *project.Project        // where a write of level 1 to a file is free; nil: nothing is said of files
	StartsIn     []string                // folders at which a relative path may begin: where the server starts, and those that its command names; none if it runs elsewhere
	Forgets      bool                    // a write that stores nothing of what it is given (stores: false)
	Listed       bool                    // an entry covers it
	Named        bool                    // an entry names it outright, not only by "server.*"
	// Definitions are the hashes of those that this classification is for, and Otherwise is what holds for any other one. Without both it is for all.
	Definitions []string
	Otherwise   *Classification
	// TrustFirstSight: what only a rule accepted of the server's definitions brings no label into a session that lists it.
	TrustFirstSight bool
}

// For is the classification of a tool with a definition of this hash; "": with one that is not known.
func (c Classification) For(definition string) Classification {
	if c.Otherwise == nil || slices.Contains(c.Definitions, definition) {
		return c
	}
	return *c.Otherwise
}

// Risk is the risk without a call, whose amounts and context can raise it.
func (c Classification) Risk() policy.Risk {
	return policy.Rules{}.Rate(policy.Subject{Action: c.Action, Floor: c.RiskFloor, Unclassified: c.Unclassified && c.Level > 0}).Risk
}

// Reading holds the part of the classification of a read that tells whether a call of it does more than read.
func (c Classification) Reading(server, tool string) *reading.Operation {
	return &reading.Operation{Server: server, Tool: tool, Roles: c.Roles, Code: c.Code}
}

// Facts classify an operation's data besides Output and Shape (provenance.Profile explains them).
type Facts struct {
	TrustedFields, Names, Delegable []string
	MayOmit                         []string
	IDKind                          string
	Boundary                        provenance.Boundary
	EgressURL                       bool
}

// Profile is the classification in the form that the flow rules use.
func (c Classification) Profile() *provenance.Profile {
	p := &provenance.Profile{
		Output: c.Output, Shape: c.Shape, Level: c.Level, TrustedFields: c.Facts.TrustedFields, Names: c.Facts.Names, Delegable: c.Facts.Delegable,
		IDKind: c.Facts.IDKind, Boundary: c.Facts.Boundary, EgressURL: c.Facts.EgressURL, MayOmit: c.Facts.MayOmit, Forgets: c.Forgets,
	}
	for arg, role := range c.Roles {
		if p.Args == nil {
			p.Args = map[string]provenance.Role{}
		}
		p.Args[arg] = provenance.Role(role)
	}
	return p
}

// Standing tells whether an operation can be called at all.
type Standing string

const (
	Active      Standing = "active"
	Quarantined Standing = "quarantined" // its definition changed and was not accepted
	Unlisted    Standing = "unlisted"    // no entry names it, and unlisted_operations is deny
	Unfit       Standing = "unfit"       // its definition can't be exposed (name, schema, size); Fault says why
	Gone        Standing = "gone"        // the server no longer offers it
)

// Operation is one thing that agents can call. It is immutable once published.
type Operation struct {
	ID         string // "<server>.<tool>"
	Server     string
	Tool       string // the server's own name, or read_resource or get_prompt
	Name       string // what the agent sees
	Kind       call.Kind
	Definition json.RawMessage // as the agent sees it: the accepted definition with name and description replaced
	Hash       string          // of the whole definition as the server gave it, accepted
	Launch     string          // hash of how its server is started or reached, accepted
	Standing   Standing
	Fault      string
	Class      Classification
	Flow       flow.Operation
	Profile    *provenance.Profile
	Rules      string // digest of the profile: evidence that was taken under another one is worth nothing
	Acts       string // of a read: why each call counts as a write; "": that depends on its arguments
	Beyond     string // of a write of level 1: why this call of it is one of level 2 (At)
	AskFirst   bool   // unlisted_operations: ask, or ask_once
	AskOnce    bool   // ask_once
	Denied     bool   // unlisted_operations: deny, in a gateway that observes: it is offered, and each call is recorded as one that would be refused
	Accepted   bool   // a person accepted its definition: it came, or changed, after its server was first seen
	Unread     bool   // only a rule accepted its definition, and the operator does not trust that

	Command *Command // what runs it, of a built-in operation; nil: an upstream server
	Model   *Model   // of a model; nil of everything else
	// Hosting is a model's operation where its provider runs tools for a request: external I/O, to which no label may go. nil of everything else.
	Hosting *Operation

	Check func(value []byte) error // structuredContent against the accepted outputSchema; nil: none

	input  func() (func(arguments []byte) error, error) // the check of CheckArguments, compiled at first use; nil: none
	places *defaults                                    // those of WithDefaults; nil: none
}

// Commits is the action of a tool that makes a commit. Git runs the repository's hooks then, so only where there are none does a commit of level 1 stay
// with the person.
const Commits = "commit_changes"

// Beyond says why a call of a write of level 1 is one of level 2: it names a file that does not stay with the person, or is a commit that can run
// hooks. "" if it isn't.
func (c Classification) Beyond(server, tool string, arguments []byte) (beyond string) {
	commits := c.Action == Commits
	switch {
	case c.Level != 1 || len(arguments) == 0:
		return ""
	case c.Project == nil && commits:
		return "It runs the hooks of a repository, and flow.project says of none that it has no hooks, so the call counts as one that changes what others see."
	case c.Project == nil:
		return ""
	}
	named := false
	err := c.Reading(server, tool).Paths(arguments, func(at, text string) bool {
		named = named || text != ""
		if why := c.leaves(text, commits); why != "" {
			beyond = fmt.Sprintf("The argument %s %s, so the call counts as one that changes what others see.", display.ASCII(at, 80), why)
		}
		return beyond == ""
	})
	switch {
	case err != nil:
		return "Its arguments can't be read."
	case beyond == "" && commits && !named:
		return "No argument says in which repository it commits, so the call counts as one that changes what others see."
	}
	return beyond
}

// leaves says why a file does not stay with the person, wherever its path may begin; "" if it does.
func (c Classification) leaves(path string, commits bool) (why string) {
	begins := c.StartsIn
	if len(begins) == 0 {
		begins = []string{""}
	}
	for _, from := range begins {
		if why = c.Project.Beyond(from, path); why == "" && commits {
			why = c.Project.Hooks(from, path)
		}
		if why != "" || filepath.IsAbs(path) {
			return why
		}
	}
	return ""
}

// At is the operation as a call with these arguments has it: a write of level 1 to a file that does not stay with the person is one of level 2.
func (op *Operation) At(arguments []byte) *Operation {
	if op.Command != nil {
		return op
	}
	beyond := op.Class.Beyond(op.Server, op.Tool, arguments)
	if beyond == "" {
		return op
	}
	raised, profile := *op, *op.Profile
	profile.Level = 2
	raised.Class.Level, raised.Profile, raised.Beyond = 2, &profile, beyond
	return &raised
}

// Traced tells whether provenance decides about its calls. It does for every tool of a server, and for a built-in operation if the operator has
// classified its arguments.
func (op *Operation) Traced() bool {
	return op.Command == nil || op.Profile.HasRoles() || op.Profile.EgressURL
}

// Choices are the texts that the accepted definition of a read lists for an argument.
func (op *Operation) Choices() map[string][]string {
	if op.Flow.Effect != flow.Read || !op.Profile.HasRoles() || len(op.Definition) == 0 {
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
