package gateway

import (
	"encoding/json"
	"regexp"
	"slices"
	"time"

	"sallyport/flow"
	"sallyport/internal/call"
)

// Output is how far an operation's result can be trusted (CONTRACT, operation fields).
type Output string

const (
	Trusted   Output = "trusted"
	Untrusted Output = "untrusted" // the default: text is fenced
	Typed     Output = "typed"     // trusted only while every string of the result matches Shape
	Echo      Output = "echo"      // repeats its arguments
)

// Classification is the operator's word on one operation, resolved from its own entry, its server's "server.*" entry and the
// defaults. What a server says about itself never enters here (DESIGN.md rule 6).
type Classification struct {
	ExposeAs    string // the name the agent sees; "" means <server>_<tool>; "{tool}" stands for the server's own name
	Flow        flow.Spec
	ExternalIO  bool
	Level       int // 0 reads, 1 write only the person sees and can undo, 2 the rest
	Output      Output
	Shape       *regexp.Regexp
	Description string // replaces the server's
	Timeout     time.Duration
	Action      string // what the operation does, by its name in the risk rules
	RiskFloor   Risk   // the operator's word; it only raises
	Listed      bool   // false: no entry of the operator's covers it
	Named       bool   // an entry of the operator's names it outright, not only by "server.*"
}

// Risk is how much an operation can do (HI-1).
type Risk string

const (
	Low      Risk = "LOW"
	Medium   Risk = "MEDIUM"
	High     Risk = "HIGH"
	Critical Risk = "CRITICAL"
)

// risks is the order of the tiers; what is not in it is above all of them.
var risks = []Risk{Low, Medium, High, Critical}

// Risk is the tier by the action's name, as far as it can be said before the call: amounts are the call's own.
func (c Classification) Risk() Risk {
	tier := Low
	switch c.Action {
	case "transfer_money", "delete_data", "grant_access", "publish_content":
		tier = High
	case "send_email", "schedule_meeting", "book_appointment":
		tier = Medium
	}
	if slices.Index(risks, c.RiskFloor) > slices.Index(risks, tier) {
		tier = c.RiskFloor
	}
	return tier
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
	AskFirst   bool // unlisted_operations: ask

	command *Command // what runs it, of a built-in operation; nil: an upstream server

	check func(value []byte) error // structuredContent against the accepted outputSchema; nil: none
}
