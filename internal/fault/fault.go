// Package fault holds the words in which Sallyport refuses: the closed list of codes, the verdict that every door answers
// with, and the error that carries a sentence safe to show apart from a cause that is only for the log.
//
// Promises: a Code that is not in the list does not exist (Known tells); every code has a public sentence, an HTTP status and
// a JSON-RPC code; an error that is not an *Error is shown as Internal with a fixed sentence and an id to quote, never as its text.
package fault

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code names why something was refused or failed. The list is closed and public (docs/errors.md).
type Code string

const (
	KillSwitch           Code = "kill_switch.active"
	AgentUndeclared      Code = "agent.undeclared"
	AgentUnapproved      Code = "agent.unapproved"
	AgentQuarantined     Code = "agent.quarantined"
	SessionClosed        Code = "session.closed"
	SessionExpired       Code = "session.expired"
	ToolUnknown          Code = "tool.unknown"
	ToolQuarantined      Code = "tool.quarantined"
	PhaseBlocked         Code = "phase.blocked"
	DeclarationMissing   Code = "declaration.missing"
	DeclarationInvalid   Code = "declaration.invalid"
	PlanMismatch         Code = "plan.mismatch"
	PermissionDenied     Code = "permission.denied"
	LimitRate            Code = "limit.rate"
	LimitQuota           Code = "limit.quota"
	LimitBudget          Code = "limit.budget"
	BreakerOpen          Code = "breaker.open"
	ThreatInjection      Code = "threat.injection"
	FlowContaminated     Code = "flow.contaminated"
	FlowUntrusted        Code = "flow.untrusted_argument"
	ApprovalRequired     Code = "approval.required"
	ApprovalRejected     Code = "approval.rejected"
	ApprovalExpired      Code = "approval.expired"
	ApprovalMismatch     Code = "approval.mismatch"
	RequestMalformed     Code = "request.malformed"
	ResultInvalid        Code = "result.invalid"
	ResultTooLarge       Code = "result.too_large"
	TimeExceeded         Code = "time.exceeded"
	UpstreamFailed       Code = "upstream.failed"
	FallbackFailed       Code = "fallback.failed"
	AgentDegraded        Code = "agent.degraded"
	OutputInvalid        Code = "output.invalid"
	CitationUndeclared   Code = "citation.undeclared"
	ModelUnpinned        Code = "model.unpinned"
	ModelUndeclared      Code = "model.undeclared"
	ModelHostedTool      Code = "model.hosted_tool"
	EgressBlocked        Code = "egress.blocked"
	PathBlocked          Code = "path.blocked"
	SandboxUnavailable   Code = "sandbox.unavailable"
	StoreUnavailable     Code = "store.unavailable"
	AuditUnavailable     Code = "audit.unavailable"
	Internal             Code = "internal"
	CredentialMissing    Code = "credential.missing"    // no credential, or one that is not known, revoked or expired
	CredentialWrongKind  Code = "credential.wrong_kind" // a good credential at the wrong door
	RoleMissing          Code = "role.missing"          // a person without the role that the act needs
	ConfirmationRequired Code = "confirmation.required" // a person has to confirm it at their terminal
	NotFound             Code = "not_found"             // no such session, entry, tool … (or not yours to see)
	Conflict             Code = "conflict"              // the state moved on, or the thing exists
	ContentSynthetic     Code = "content.synthetic"     // a text that a person adds is like what an agent said, and the person has not said that it is theirs
	ConfigurationInvalid Code = "configuration.invalid"
)

// row is what a code means at the edges.
type row struct {
	http   int    // status of a problem+json answer; verdict endpoints answer 200 whatever the verdict
	rpc    int64  // JSON-RPC error code where a protocol error is due
	public string // shown when nothing better is known
	retry  bool   // whether the same request can succeed later without anybody changing it
}

// JSON-RPC codes. Refused tool calls reach an MCP agent as tool results; these are for everything else. The two of our own lie in
// the implementation-defined range, outside what the MCP revisions (-32020 …) and the SDKs' own states (-32000 … -32005) use.
const (
	rpcParse          = -32700
	rpcInvalidRequest = -32600
	rpcInvalidParams  = -32602
	rpcInternal       = -32603
	rpcRefused        = -32010 // the gateway refused; data holds the verdict
	rpcUnavailable    = -32011 // the same, but it can succeed later
)

var table = map[Code]row{
	KillSwitch:           {503, rpcRefused, "The kill switch is active.", false},
	AgentUndeclared:      {403, rpcRefused, "This agent has no declaration.", false},
	AgentUnapproved:      {403, rpcRefused, "This agent's declaration is not approved.", false},
	AgentQuarantined:     {403, rpcRefused, "This agent is quarantined.", false},
	SessionClosed:        {409, rpcRefused, "This session is closed.", false},
	SessionExpired:       {409, rpcRefused, "This session has expired.", false},
	ToolUnknown:          {404, rpcInvalidParams, "There is no such tool.", false},
	ToolQuarantined:      {403, rpcRefused, "This tool's definition waits for an operator to accept it: it changed, it is new, or it looks like an order.", false},
	PhaseBlocked:         {403, rpcRefused, "The session's phase does not allow this operation.", false},
	DeclarationMissing:   {403, rpcRefused, "This operation needs a declaration.", false},
	DeclarationInvalid:   {422, rpcInvalidParams, "The declaration is not valid.", false},
	PlanMismatch:         {403, rpcRefused, "The call does not follow the sealed plan.", false},
	PermissionDenied:     {403, rpcRefused, "The agent's declaration does not permit this operation.", false},
	LimitRate:            {429, rpcUnavailable, "Too many requests.", true},
	LimitQuota:           {429, rpcRefused, "A quota is used up.", false},
	LimitBudget:          {429, rpcRefused, "The session's execution budget is used up.", false},
	AgentDegraded:        {503, rpcUnavailable, "An agent that this one depends on is aside.", true},
	BreakerOpen:          {503, rpcUnavailable, "The circuit breaker is open.", true},
	ThreatInjection:      {403, rpcRefused, "The request looks like an injection.", false},
	FlowContaminated:     {403, rpcRefused, "The session holds data that must not reach this operation.", false},
	FlowUntrusted:        {403, rpcRefused, "An argument comes from untrusted content.", false},
	ApprovalRequired:     {403, rpcRefused, "A person must approve this.", true},
	ApprovalRejected:     {403, rpcRefused, "A person rejected this.", false},
	ApprovalExpired:      {403, rpcRefused, "The approval expired.", false},
	ApprovalMismatch:     {409, rpcRefused, "The approval is for something else.", false},
	RequestMalformed:     {400, rpcInvalidParams, "The request is malformed.", false},
	ResultInvalid:        {502, rpcInternal, "The upstream server's answer was not valid and was discarded.", false},
	ResultTooLarge:       {502, rpcInternal, "The upstream server's answer was too large and was discarded.", false},
	TimeExceeded:         {504, rpcUnavailable, "The operation took too long; partial results were discarded.", false},
	UpstreamFailed:       {502, rpcInternal, "The upstream server failed.", true},
	FallbackFailed:       {502, rpcInternal, "The operation and its fallback both failed.", true},
	OutputInvalid:        {422, rpcInvalidParams, "The output does not match its schema.", false},
	CitationUndeclared:   {422, rpcInvalidParams, "A citation names a source that was not declared.", false},
	ModelUnpinned:        {403, rpcRefused, "The model is not pinned to a version.", false},
	ModelUndeclared:      {403, rpcRefused, "The agent's declaration does not name this model.", false},
	ModelHostedTool:      {403, rpcRefused, "Tools hosted by the model provider are not permitted.", false},
	EgressBlocked:        {403, rpcRefused, "The destination is not permitted.", false},
	PathBlocked:          {403, rpcRefused, "The path is outside the session's workspace.", false},
	SandboxUnavailable:   {503, rpcRefused, "The sandbox is not available on this machine.", false},
	StoreUnavailable:     {503, rpcUnavailable, "The store is not available; nothing was done.", true},
	AuditUnavailable:     {503, rpcUnavailable, "The audit log can't be written; nothing is done without it.", true},
	Internal:             {500, rpcInternal, "Something went wrong inside the gateway.", false},
	CredentialMissing:    {401, rpcInvalidRequest, "A valid credential is needed.", false},
	CredentialWrongKind:  {403, rpcInvalidRequest, "This credential is not for this door.", false},
	RoleMissing:          {403, rpcInvalidRequest, "Your roles do not include this act.", false},
	ConfirmationRequired: {403, rpcInvalidRequest, "A person has to confirm this at their terminal.", false},
	NotFound:             {404, rpcInvalidParams, "There is no such thing here.", false},
	Conflict:             {409, rpcRefused, "The state has moved on.", true},
	ContentSynthetic:     {409, rpcRefused, "The text is like what an agent said.", false},
	ConfigurationInvalid: {500, rpcInternal, "The configuration is not valid.", false},
}

// Codes returns every code, in no order. Tests walk it so that a new code fails until both edges know it.
func Codes() []Code {
	all := make([]Code, 0, len(table))
	for c := range table {
		all = append(all, c)
	}
	return all
}

// Known tells whether c is in the closed list.
func (c Code) Known() bool { _, ok := table[c]; return ok }

// lookup treats a code outside the list as Internal: unknown is never friendlier than known.
func (c Code) lookup() row {
	if r, ok := table[c]; ok {
		return r
	}
	return table[Internal]
}

// HTTPStatus is the status of a problem+json answer with this code.
func (c Code) HTTPStatus() int { return c.lookup().http }

// RPCCode is the JSON-RPC error code with this code.
func (c Code) RPCCode() int64 { return c.lookup().rpc }

// Sentence is the code's public sentence.
func (c Code) Sentence() string { return c.lookup().public }

// Retriable tells whether the same request can succeed later without anybody changing it.
func (c Code) Retriable() bool { return c.lookup().retry }

// Error is a failure with a code, a message that is safe to show, and a cause that is not.
type Error struct {
	Code    Code
	Message string        // safe to show; names the field where there is one
	Field   string        // the field at fault, as the sender wrote it ("planned_calls[1].after"), or ""
	Remedy  string        // the way out, or ""
	Cause   error         // for the log only
	Again   time.Duration // when the same request should come again; 0: nobody knows. HTTP has it as Retry-After
}

// NotDispatched wraps the error of an act that certainly did not begin: a request that never left, a program that was not started. Its
// outcome is known to be nothing. The outcome of any other error is unknown.
type NotDispatched struct {
	Err error
	Own bool // the agent's own client can have caused it
	// Starting: the server ended after it had been given calls, and no try to start it again has failed since. A call can have caused that.
	Starting bool
}

func (e *NotDispatched) Error() string { return e.Err.Error() }
func (e *NotDispatched) Unwrap() error { return e.Err }

// Ended is the cause of an error of a call during which its server's program or session ended. The call can have caused that.
type Ended struct {
	Err    error
	Others bool // calls of other agents were under way, and one of them can have caused it
}

func (e *Ended) Error() string { return e.Err.Error() }
func (e *Ended) Unwrap() error { return e.Err }

// New returns an Error with a message that may be shown to whoever asked.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap returns an Error that shows message and logs cause.
func Wrap(cause error, code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Cause: cause}
}

// At names the field at fault.
func (e *Error) At(field string) *Error { e.Field = field; return e }

// Try names the way out.
func (e *Error) Try(format string, args ...any) *Error {
	e.Remedy = fmt.Sprintf(format, args...)
	return e
}

// Error is for logs and terminals of trusted people: it includes the cause.
func (e *Error) Error() string {
	s := e.Message
	if s == "" {
		s = e.Code.Sentence()
	}
	if e.Field != "" {
		s = e.Field + ": " + s
	}
	if e.Cause != nil {
		s = strings.TrimSuffix(s, ".") + ": " + e.Cause.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Cause }

// Of finds the Error in err's chain. What carries none is Internal, with err as its cause and nothing of it to show.
func Of(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: Internal, Cause: err}
}

// ForTheRecord is the Error that a log has to name: one that stands behind the one to show, if the caller may see less.
func ForTheRecord(err error) *Error {
	shown := Of(err)
	if e := (*Error)(nil); errors.As(shown.Cause, &e) {
		return e
	}
	return shown
}

// Is tells whether err carries the code.
func Is(err error, code Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}

// Public is the sentence to show for e. For Internal errors it never includes anything of the cause.
func (e *Error) Public() string {
	s := e.Message
	if s == "" || e.Code == Internal {
		s = e.Code.Sentence()
	}
	if e.Remedy != "" {
		s = ended(s) + " " + e.Remedy
	}
	return s
}

// ended puts a full stop behind a sentence that has none, which another one follows: what is wrong with a field is worded to stand behind its name.
func ended(s string) string {
	if strings.HasSuffix(s, ".") || strings.HasSuffix(s, "!") || strings.HasSuffix(s, "?") || strings.HasSuffix(s, "…") {
		return s
	}
	return s + "."
}

// Decision is how a stage ends. The strictest of all stages wins.
type Decision string

const (
	Permit Decision = "permit"
	Ask    Decision = "ask"
	Deny   Decision = "deny"
)

// Verdict is what every door answers about a call (docs/errors.md, "A verdict").
type Verdict struct {
	Decision   Decision  `json:"decision"`
	Stage      string    `json:"stage"`
	Code       Code      `json:"code,omitempty"`
	Reason     string    `json:"reason"`
	Because    []Because `json:"because"`
	Retriable  bool      `json:"retriable"`
	Remedies   []Remedy  `json:"remedies"`
	ApprovalID *string   `json:"approval_id"`
	RequestID  string    `json:"request_id"`

	// Again is when the same request may be tried again; 0: nobody knows. HTTP has it as Retry-After.
	Again time.Duration `json:"-"`

	// Only for kill_switch.active (AG-4): SKIPPED and when.
	Status    string     `json:"status,omitempty"`
	Timestamp *time.Time `json:"timestamp,omitempty"`
}

// Because is one fact that a verdict rests on: a label and the call that brought it, or the code of a stage that asked.
type Because struct {
	Label     string `json:"label,omitempty"`
	Operation string `json:"operation,omitempty"`
	CallID    string `json:"call_id,omitempty"`
	Code      Code   `json:"code,omitempty"`
	Detail    string `json:"detail,omitempty"`
}

// Remedy is a way out that whoever was refused can take.
type Remedy struct {
	Kind string `json:"kind"` // reorder, approve, declare, wait, release, new_session, ask_person
	Text string `json:"text"`
}

// Permitted is the verdict of a call that no stage objected to.
func Permitted() Verdict {
	return Verdict{Decision: Permit, Because: []Because{}, Remedies: []Remedy{}}
}

// Refuse is a deny of the given stage. An empty reason becomes the code's sentence.
func Refuse(stage string, code Code, reason string, remedies ...Remedy) Verdict {
	if reason == "" {
		reason = code.Sentence()
	}
	if remedies == nil {
		remedies = []Remedy{}
	}
	return Verdict{Decision: Deny, Stage: stage, Code: code, Reason: reason, Because: []Because{}, Retriable: code.Retriable(), Remedies: remedies}
}

// Killed is the refusal of the kill switch (AG-4): SKIPPED, KILL_SWITCH_ACTIVE, and when.
func Killed(at time.Time) Verdict {
	v := Refuse("kill", KillSwitch, "KILL_SWITCH_ACTIVE",
		Remedy{Kind: "ask_person", Text: "An operator switched this agent off. Stop; a person has to switch it on again."})
	v.Status, v.Timestamp = "SKIPPED", &at
	return v
}

// RefuseErr is a deny made of an error: its public words, never its cause.
func RefuseErr(stage string, err error) Verdict {
	e := Of(err)
	if e.Code == KillSwitch {
		return Killed(time.Now().UTC())
	}
	v := Refuse(stage, e.Code, e.Public())
	if e.Field != "" {
		v.Because = append(v.Because, Because{Code: e.Code, Detail: e.Field})
	}
	return v
}
