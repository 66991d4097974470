package audit

import (
	"slices"

	"sallyport.example/internal/fault"
)

// Severity says how soon somebody should look at an entry.
type Severity string

const (
	Info     Severity = "info"     // the day's work
	Warning  Severity = "warning"  // something was refused, asked about, changed by hand, or went wrong
	Critical Severity = "critical" // look at it now
)

// Severities are all of them, in rising order.
var Severities = []Severity{Info, Warning, Critical}

// Event names what an entry means for security. Most entries mean nothing by themselves, and have none.
type Event string

const (
	CredentialRefused    Event = "credential_refused" // no valid credential, at a listener or at the sign-in
	AccessViolation      Event = "access_violation"   // something was tried that whoever tried it may not do, or that is another's
	FlowViolation        Event = "flow_violation"     // data would have gone where it may not, or arguments came from nobody trusted
	PhaseViolation       Event = "phase_violation"    // something reached outside in planning, or left the plan
	Undeclared           Event = "undeclared"         // a need was not declared, or not in the form that is asked for
	LimitReached         Event = "limit_reached"
	InjectionFound       Event = "injection_found"
	ThreatHit            Event = "threat.hit" // screening found words that order an agent about; set by who screened
	ApprovalAsked        Event = "approval_asked"
	ApprovalAnswered     Event = "approval_answered"
	KillSwitched         Event = "kill_switched" // the switch was moved, or refused something
	QuarantineChanged    Event = "quarantine"    // of an agent or a tool: set, ended, or refused something
	OutcomeUnknown       Event = "outcome_unknown"
	GatewayStarted       Event = "gateway_started"
	ConfigurationChanged Event = "configuration_changed" // also: an agent's declaration
	PhaseMoved           Event = "phase_moved"
	LabelsChanged        Event = "labels_changed" // of a session, apart from a call
	TokenChanged         Event = "token_changed"
	AlertChanged         Event = "alert" // one was raised, acknowledged or resolved
)

// Events are all of them.
var Events = []Event{
	CredentialRefused, AccessViolation, FlowViolation, PhaseViolation, Undeclared, LimitReached, InjectionFound, ThreatHit, ApprovalAsked, ApprovalAnswered,
	KillSwitched, QuarantineChanged, OutcomeUnknown, GatewayStarted, ConfigurationChanged, PhaseMoved, LabelsChanged, TokenChanged, AlertChanged,
}

// byAction are the events of changes, and their severity.
var byAction = map[string]struct {
	event    Event
	severity Severity
}{
	"kill.disable":        {KillSwitched, Critical},
	"kill.enable":         {KillSwitched, Warning},
	"agent.quarantine":    {QuarantineChanged, Critical},
	"agent.restore":       {QuarantineChanged, Warning},
	"tool.quarantine":     {QuarantineChanged, Warning},
	"gateway.start":       {GatewayStarted, Info},
	"anchor.behind":       {GatewayStarted, Critical},
	"anchor.forked":       {GatewayStarted, Critical},
	"anchor.make":         {GatewayStarted, Warning},
	"anchor.missing":      {GatewayStarted, Warning},
	"anchor.move":         {"", Warning},
	"restore":             {"", Warning},
	"state.adopt":         {GatewayStarted, Warning},
	"audit.archive":       {"", Warning},
	"config.change":       {ConfigurationChanged, Warning},
	"config.reload":       {ConfigurationChanged, Info},
	"labels.add":          {ConfigurationChanged, Warning},
	"agent.change":        {ConfigurationChanged, Warning},
	"session.phase":       {PhaseMoved, Info},
	"session.release":     {LabelsChanged, Warning},
	"session.taint":       {LabelsChanged, Warning},
	"session.definitions": {LabelsChanged, Info},
	"token.create":        {TokenChanged, Info},
	"token.revoke":        {TokenChanged, Info},
	"approval.ask":        {ApprovalAsked, Info},
	"approval.drill":      {ApprovalAsked, Info},
	"approval.approve":    {ApprovalAnswered, Info},
	"approval.reject":     {ApprovalAnswered, Warning},
	"approval.modify":     {ApprovalAnswered, Warning},
	"approval.defer":      {ApprovalAnswered, Info},
	"run.timeout":         {LimitReached, Warning},
	"breaker.open":        {LimitReached, Warning},
	"breaker.closed":      {LimitReached, Info},
	"agent.degraded":      {LimitReached, Warning},
	"agent.whole":         {LimitReached, Info},
	"alert.open":          {AlertChanged, Warning},
	"alert.acknowledge":   {AlertChanged, Info},
	"alert.resolve":       {AlertChanged, Info},
	"plan.approve":        {ApprovalAnswered, Info},
	"plan.reject":         {ApprovalAnswered, Warning},
}

// byCode are the events of refusals.
var byCode = map[fault.Code]Event{
	fault.CredentialMissing: CredentialRefused,
	fault.AgentUndeclared:   AccessViolation, fault.AgentUnapproved: AccessViolation, fault.PermissionDenied: AccessViolation,
	fault.CredentialWrongKind: AccessViolation, fault.RoleMissing: AccessViolation, fault.EgressBlocked: AccessViolation, fault.PathBlocked: AccessViolation,
	fault.ModelUndeclared: AccessViolation, fault.ModelHostedTool: AccessViolation, fault.ModelUnpinned: AccessViolation, fault.CitationUndeclared: AccessViolation,
	fault.FlowContaminated: FlowViolation, fault.FlowUntrusted: FlowViolation,
	fault.PhaseBlocked: PhaseViolation, fault.PlanMismatch: PhaseViolation,
	fault.DeclarationMissing: Undeclared, fault.DeclarationInvalid: Undeclared,
	fault.LimitRate: LimitReached, fault.LimitQuota: LimitReached, fault.LimitBudget: LimitReached, fault.BreakerOpen: LimitReached, fault.AgentDegraded: LimitReached, fault.TimeExceeded: LimitReached,
	fault.ThreatInjection:  InjectionFound,
	fault.ApprovalRequired: ApprovalAsked,
	fault.KillSwitch:       KillSwitched,
	fault.AgentQuarantined: QuarantineChanged, fault.ToolQuarantined: QuarantineChanged,
}

// EventOf is what a refusal with the code means, also where the entry of it has a hit as its event; "": nothing by itself.
func EventOf(code string) Event { return byCode[fault.Code(code)] }

// Classify gives the entry its severity, and its event where it has one. Both follow from what the entry says, so whoever makes one can't forget
// them; but for a hit, which its maker notes as event. The log does it when the entry is appended.
func (e *Entry) Classify() {
	hit := e.Event == ThreatHit
	e.Severity, e.Event = Info, ""
	switch found, known := byAction[e.Action]; {
	case e.Kind == Outcome && e.Decision == "unknown":
		e.Severity, e.Event = Warning, OutcomeUnknown
	case e.Decision == string(fault.Deny), e.Decision == "error", e.Decision == "discarded":
		e.Severity, e.Event = Warning, EventOf(e.Code)
	case known:
		e.Severity, e.Event = found.severity, found.event
	case e.Decision == string(fault.Ask):
		e.Event = ApprovalAsked
	case e.Shadow:
		e.Event = EventOf(e.Code)
	}
	if hit && e.Event != OutcomeUnknown { // the code still says which stage refused, and nothing else says that there was a hit
		e.Event = ThreatHit
		e.raise(Warning)
	}
	if e.Shadow {
		e.raise(Warning)
	}
	switch {
	case e.Risk == "CRITICAL" && (e.Kind == Intent || e.Kind == Outcome):
		e.Severity = Critical
	case e.Risk == "CRITICAL" || e.Risk == "HIGH":
		e.raise(Warning)
	}
}

// raise makes the severity at least s.
func (e *Entry) raise(s Severity) {
	if slices.Index(Severities, e.Severity) < slices.Index(Severities, s) {
		e.Severity = s
	}
}
