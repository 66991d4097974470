package audit

import (
	"testing"

	"sallyport.example/internal/fault"
)

// A hit of screening is the event of its entry, whichever stage refused the call: the code still says which. A call whose end nobody knows stays that.
func TestClassifyKeepsAHit(t *testing.T) {
	refused := func(code fault.Code) Entry {
		return Entry{Kind: Decision, Action: "call", Decision: string(fault.Deny), Code: string(code)}
	}
	for name, c := range map[string]struct {
		entry Entry
		want  Event // of the entry with a hit
		plain Event // of the same without
	}{
		"a call":          {Entry{Kind: Outcome, Action: "call", Decision: "ok"}, ThreatHit, ""},
		"asked":           {Entry{Kind: Decision, Action: "call", Decision: string(fault.Ask), Code: string(fault.ApprovalRequired)}, ThreatHit, ApprovalAsked},
		"refused for it":  {refused(fault.ThreatInjection), ThreatHit, InjectionFound},
		"refused by flow": {refused(fault.FlowContaminated), ThreatHit, FlowViolation},
		"refused by plan": {refused(fault.PlanMismatch), ThreatHit, PhaseViolation},
		"an error":        {Entry{Kind: Outcome, Action: "call", Decision: "error", Code: string(fault.ResultInvalid)}, ThreatHit, ""},
		"a session":       {Entry{Kind: Decision, Action: "session.open", Decision: string(fault.Permit)}, ThreatHit, ""},
		"unknown":         {Entry{Kind: Outcome, Action: "call", Decision: "unknown"}, OutcomeUnknown, OutcomeUnknown},
	} {
		plain, hit := c.entry, c.entry
		hit.Event = ThreatHit
		plain.Classify()
		hit.Classify()
		if plain.Event != c.plain || hit.Event != c.want || hit.Severity == Info {
			t.Errorf("%s: %q, with a hit %q (%s)", name, plain.Event, hit.Event, hit.Severity)
		}
	}
}
