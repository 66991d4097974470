package catalogue

import (
	"fmt"
	"slices"
	"strings"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// WhyWithheld says why an operation that has the name is none for agents.
func (op *Operation) WhyWithheld(name string) fault.Verdict {
	switch op.Standing {
	case Unlisted:
		return fault.Refuse("permit", fault.PermissionDenied, "No entry under operations names "+op.ID+", and unlisted_operations is deny.")
	case Active: // it is callable, and what it was called for is not
		return fault.Refuse("resolve", fault.ToolUnknown, fmt.Sprintf("The server offers %.80q in a form that can't be passed on.", name))
	}
	return fault.Refuse("standing", fault.ToolUnknown, fmt.Sprintf("%s can't be offered: %.80s", op.ID, op.Fault))
}

// Withheld finds the operation that would have the name if it could be called; nil if there is none.
func (s *Snapshot) Withheld(method, name string) *Operation {
	var kinds []call.Kind
	switch method {
	case "tools/call":
		var found *Operation
		for _, op := range s.byID {
			if op.Kind == call.Tool && (op.Standing == Unlisted || op.Standing == Unfit) && op.Name == name && (found == nil || op.ID < found.ID) {
				found = op
			}
		}
		return found
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		kinds = []call.Kind{call.Resource}
	case "prompts/get":
		kinds = []call.Kind{call.Prompt}
	case "completion/complete":
		kinds = []call.Kind{call.Prompt, call.Resource}
	}
	for _, kind := range kinds {
		if i := slices.IndexFunc(s.withheld[kind], func(o Offer) bool {
			return o.Name == name || kind == call.Resource && strings.Contains(o.Name, "{") && templateMatches(o.Name, name)
		}); i >= 0 {
			return s.withheld[kind][i].Operation
		}
	}
	return nil
}
