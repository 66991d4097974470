package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// Own names, in place of a session id on the agents' side, the session that the token itself stands for.
const Own = "self"

// Held is a label that a session holds, and the call that brought it. Operation is empty for a label that was there from the start.
type Held struct {
	Label     string `json:"label"`
	Operation string `json:"operation"`
	CallID    string `json:"call_id"`
	Cause     string `json:"cause,omitempty"` // in words, where no operation's result brought it
}

// PhaseOpening is a person's yes to a plan, which opened the execution phase.
type PhaseOpening struct {
	PlanID    string `json:"plan_id"`
	StopEpoch int64  `json:"stop_epoch,omitempty"` // of the plan: after one more stop of the agent, the yes counts for nothing
}

// Session is the state of a session.
type Session struct {
	SessionID        string        `json:"session_id"`
	AgentID          string        `json:"agent_id"`
	Requester        string        `json:"requester,omitempty"`
	UserRequest      string        `json:"user_request,omitempty"`
	WordsBy          []string      `json:"words_by,omitempty"` // who else added to the request: principals, as kind:id
	OpenedBy         string        `json:"opened_by"`
	RunID            string        `json:"run_id,omitempty"` // the run that it was opened for
	Own              bool          `json:"own"`              // the session that the agent's own token stands for
	Autonomous       bool          `json:"autonomous"`       // nobody but the agent opened it, so it works for nobody
	Piece            int64         `json:"piece,omitempty"`  // of an own session: how many fresh ones people ordered for the agent before and with it
	Next             *OrderedNext  `json:"next,omitempty"`   // a person ordered that the agent's next conversation is a fresh own session; for people alone
	Phase            string        `json:"phase"`
	PhaseBy          string        `json:"phase_by,omitempty"`     // who moved it there: a principal, or rule; "": it began there
	PhaseOpened      *PhaseOpening `json:"phase_opened,omitempty"` // the person's yes to a plan that opened the execution phase; nil: something else did
	State            string        `json:"state"`
	Labels           []Held        `json:"labels"`
	Plan             *Plan         `json:"plan,omitempty"`
	Version          int64         `json:"version"`
	UsedNS           int64         `json:"used_ns"`
	BudgetNS         int64         `json:"budget_ns"`
	OpenedAt         time.Time     `json:"opened_at"`
	ClosedAt         time.Time     `json:"closed_at,omitzero"`
	BudgetLeftMS     int64         `json:"budget_left_ms"`
	PendingApprovals []string      `json:"pending_approvals"`
}

// OrderedNext says who ordered a fresh session for an agent's next conversation.
type OrderedNext struct {
	By        string    `json:"by"` // principal, as kind:id
	At        time.Time `json:"at"`
	StopEpoch int64     `json:"stop_epoch,omitempty"` // how many stops had reached the agent: after one more, the order counts for nothing
}

// Plan is a submitted plan.
type Plan struct {
	PlanID    string     `json:"plan_id"`
	Digest    string     `json:"digest"`
	State     string     `json:"state"` // approved, pending, rejected
	Steps     []PlanStep `json:"steps"`
	Submitted time.Time  `json:"submitted"`
	DecidedBy string     `json:"decided_by,omitempty"`
	DecidedAt time.Time  `json:"decided_at,omitzero"`
	Reason    string     `json:"reason,omitempty"`
	Why       string     `json:"why,omitempty"`        // why a person is asked about it; "": none is
	Own       bool       `json:"own,omitempty"`        // who decided had asked for the session, or owns the agent
	StopEpoch int64      `json:"stop_epoch,omitempty"` // how many stops had reached the agent when it was submitted: after one more, a person's yes to it covers nothing
	Clean     bool       `json:"clean,omitempty"`      // the session held no label when it was submitted and when it was approved
	Observed  bool       `json:"observed,omitempty"`   // a rule approved it only because the gateway observed
	Done      []StepDone `json:"done,omitempty"`       // the calls made for its steps, in their order
}

// PlanStep is one step of a plan. Leave Operation empty in a plan that you submit. Steps are counted from 0. A step with Arguments, From or
// Open has no other argument than those. A step with none of them leaves everything open, and confirms nothing.
type PlanStep struct {
	Tool          string                `json:"tool"`
	Operation     string                `json:"operation,omitempty"`  // set by the gateway
	Definition    string                `json:"definition,omitempty"` // hash of its definition when the plan was submitted; set by the gateway
	Arguments     json.RawMessage       `json:"arguments,omitempty"`  // fixed
	From          map[string]StepSource `json:"from,omitempty"`       // argument -> where in an earlier step's result it comes from
	Open          []string              `json:"open,omitempty"`       // arguments that the agent chooses when it calls
	Each          *int                  `json:"each,omitempty"`       // the earlier step for each record of whose result it is called once; nil: it is called once
	After         []int                 `json:"after,omitempty"`      // steps that must come before
	Justification string                `json:"justification"`
}

// StepSource says where an argument comes from: from a field of one record of an earlier step's result, or from one that may serve for a role.
type StepSource struct {
	Step  int    `json:"step"`
	Field string `json:"field,omitempty"` // path in the record, names joined by points
	Role  string `json:"role,omitempty"`  // in place of a field, such as destination
}

// StepDone is a call that was made for a step.
type StepDone struct {
	Step       int         `json:"step"`
	CallID     string      `json:"call_id"`
	Record     *StepRecord `json:"record,omitempty"`  // of a step that is called for each
	Tainted    bool        `json:"loose,omitempty"`   // untrusted content may have influenced its arguments
	Replaces   string      `json:"instead,omitempty"` // the call that failed before it
	Repeatable bool        `json:"again,omitempty"`   // the step may be called again: it only reads, or confirms nothing
}

// StepRecord is one record of a call's result.
type StepRecord struct {
	CallID string `json:"call_id"`
	Number int    `json:"number"` // from 1
}

// OpenSession asks for a fresh session.
type OpenSession struct {
	AgentID     string   `json:"agent_id"`
	UserRequest string   `json:"user_request"`
	Requester   string   `json:"requester,omitempty"`
	Labels      []string `json:"labels,omitempty"`
}

// OpenedSession is a new session with the token that stands for it. The token is shown this once.
type OpenedSession struct {
	SessionID    string   `json:"session_id"`
	SessionToken string   `json:"session_token"`
	Phase        string   `json:"phase"`
	Manifest     Manifest `json:"manifest"`
	SystemPrompt string   `json:"system_prompt"`
}

// Manifest lists the tools that a session's agent can call, and what calling each one blocks.
type Manifest struct {
	SessionID    string         `json:"session_id"`
	Phase        string         `json:"phase"`
	Labels       []Held         `json:"labels"`
	Tools        []ManifestTool `json:"tools"`
	OrderingHint string         `json:"ordering_hint"`
	SystemPrompt string         `json:"system_prompt"`
	Quotas       []Quota        `json:"quotas,omitempty"`    // what the agent has used of its quotas
	Throttles    []Throttle     `json:"throttles,omitempty"` // how fast the agent may call, where its declaration says so
	Degraded     *Degraded      `json:"degraded,omitempty"`  // until this is nil again, only what the declaration lists under degraded can be called, or what reads
}

// Degraded says which agent that another one depends on is aside, since when and why.
type Degraded struct {
	By    string    `json:"by"`
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
}

// ManifestTool is one tool in a manifest.
type ManifestTool struct {
	Name             string   `json:"name"`
	Operation        string   `json:"operation"`
	Sensitivity      string   `json:"sensitivity"`
	Effect           string   `json:"effect"`
	Risk             string   `json:"risk,omitempty"`
	Blocks           []string `json:"blocks"`                // names, at most 100
	BlocksMore       int      `json:"blocks_more,omitempty"` // how many more there are
	BlockedBySession bool     `json:"blocked_by_session"`
	Consequence      string   `json:"consequence"`
}

// PlannedCall is one call of a plan that is to be validated.
type PlannedCall struct {
	Tool      string                `json:"tool"`
	Arguments json.RawMessage       `json:"arguments,omitempty"`
	From      map[string]StepSource `json:"from,omitempty"`
	After     []int                 `json:"after,omitempty"`
}

// PlanReport says whether planned calls would run in their order, and in which order they would.
type PlanReport struct {
	Valid        bool        `json:"valid"`
	Violations   []Violation `json:"violations"`
	SafeOrdering []string    `json:"safe_ordering"` // nil: there is none, and Impossible says why
	Impossible   *Impossible `json:"impossible,omitempty"`
	Asks         []PlanAsk   `json:"asks"` // steps that people would be asked about
}

// PlanAsk is a step that would wait for people when it is called, by what is known before. Needed is how many have to approve it; 0: it runs by
// itself unless one of them stops it.
type PlanAsk struct {
	AtStep int    `json:"at_step"`
	Tool   string `json:"tool"`
	Risk   string `json:"risk"`
	Needed int    `json:"needed"`
	Reason string `json:"reason"`
}

// Violation is a step that would be refused.
type Violation struct {
	AtStep     int    `json:"at_step"`
	Tool       string `json:"tool"`
	Code       string `json:"code"`
	Reason     string `json:"reason"`
	Suggestion string `json:"suggestion"`
}

// Impossible says why no order of the steps is safe.
type Impossible struct {
	Because string   `json:"because"`
	Steps   []int    `json:"steps"`
	Ways    []string `json:"ways,omitempty"`
}

// PlanAnswer is the answer to a submitted plan.
type PlanAnswer struct {
	PlanID       string       `json:"plan_id"`
	Digest       string       `json:"digest"`
	State        string       `json:"state"`
	Steps        []JudgedStep `json:"steps"`
	Violations   []Violation  `json:"violations"`
	SafeOrdering []string     `json:"safe_ordering"`
	ApprovalID   string       `json:"approval_id,omitempty"`
	Phase        string       `json:"phase"`
	Reason       string       `json:"reason,omitempty"`
}

// JudgedStep is one step of a plan with its verdict.
type JudgedStep struct {
	Tool      string  `json:"tool"`
	Operation string  `json:"operation,omitempty"`
	Verdict   Verdict `json:"verdict"`
	Confirms  string  `json:"vouches"` // which arguments of its calls the plan confirms, once the session has read untrusted content
}

// Verdict is the gateway's decision about a call.
type Verdict struct {
	Decision   string     `json:"decision"` // permit, ask, deny
	Stage      string     `json:"stage"`
	Code       string     `json:"code,omitempty"`
	Reason     string     `json:"reason"`
	Because    []Because  `json:"because"`
	Retriable  bool       `json:"retriable"`
	Remedies   []Remedy   `json:"remedies"`
	ApprovalID *string    `json:"approval_id"`
	RequestID  string     `json:"request_id"`
	Status     string     `json:"status,omitempty"` // SKIPPED, by the kill switch
	Timestamp  *time.Time `json:"timestamp,omitempty"`
}

// Because is one fact that a verdict rests on.
type Because struct {
	Label     string `json:"label,omitempty"`
	Operation string `json:"operation,omitempty"`
	CallID    string `json:"call_id,omitempty"`
	Code      string `json:"code,omitempty"`
	Detail    string `json:"detail,omitempty"`
}

// Remedy is a way out.
type Remedy struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// CallAnswer is the answer to a call. Result is the MCP result object, or an External of a built-in external operation; it is there
// only when the verdict permits. Error is the server's own JSON-RPC error, in place of a result.
type CallAnswer struct {
	CallID  string          `json:"call_id"`
	Verdict Verdict         `json:"verdict"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// CallOutcome is the state of an earlier call. The result is there as long as the gateway keeps it.
type CallOutcome struct {
	CallID  string          `json:"call_id"`
	State   string          `json:"state"` // running, done, unknown, refused
	Verdict *Verdict        `json:"verdict,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

type toolCall struct {
	Tool          string          `json:"tool"`
	Arguments     json.RawMessage `json:"arguments,omitempty"`
	DeclarationID string          `json:"declaration_id,omitempty"`
}

func sessionPath(id, rest string) string { return "/v1/session/" + seg(id) + rest }

// Open opens a session on the agents' side: with a host's token, or an agent's whose declaration lets it.
func (c *Client) Open(ctx context.Context, r OpenSession) (*OpenedSession, error) {
	return do[OpenedSession](ctx, c, http.MethodPost, "/v1/session", r)
}

// Status returns the state of a session on the agents' side. For people there is Session.
func (c *Client) Status(ctx context.Context, session string) (*Session, error) {
	return get[Session](ctx, c, sessionPath(session, ""), nil)
}

// Manifest returns the tools of a session. Agents' side.
func (c *Client) Manifest(ctx context.Context, session string) (*Manifest, error) {
	return get[Manifest](ctx, c, sessionPath(session, "/manifest"), nil)
}

// ValidatePlan asks whether planned calls would run in this order. Nothing is changed. Agents' side.
func (c *Client) ValidatePlan(ctx context.Context, session string, calls []PlannedCall) (*PlanReport, error) {
	return do[PlanReport](ctx, c, http.MethodPost, sessionPath(session, "/validate-plan"), struct {
		PlannedCalls []PlannedCall `json:"planned_calls"`
	}{calls})
}

// SubmitPlan submits a plan. An approved one is sealed and opens the execution phase. Agents' side.
func (c *Client) SubmitPlan(ctx context.Context, session string, steps []PlanStep) (*PlanAnswer, error) {
	return do[PlanAnswer](ctx, c, http.MethodPost, sessionPath(session, "/plan"), struct {
		Steps []PlanStep `json:"steps"`
	}{steps})
}

// Check asks what the verdict on a call would be; nothing is called. arguments is a JSON object, nil for none. Agents' side.
func (c *Client) Check(ctx context.Context, session, tool string, arguments json.RawMessage) (*Verdict, error) {
	return do[Verdict](ctx, c, http.MethodPost, sessionPath(session, "/check"), toolCall{Tool: tool, Arguments: arguments})
}

// Call calls a tool. arguments is a JSON object, nil for none. A verdict that denies is not an error. Agents' side.
func (c *Client) Call(ctx context.Context, session, tool string, arguments json.RawMessage) (*CallAnswer, error) {
	return do[CallAnswer](ctx, c, http.MethodPost, sessionPath(session, "/calls"), toolCall{Tool: tool, Arguments: arguments})
}

// Outcome returns the state of an earlier call of the session. It waits up to wait for the call to end. Agents' side.
func (c *Client) Outcome(ctx context.Context, session, call string, wait time.Duration) (*CallOutcome, error) {
	q := url.Values{}
	if wait > 0 {
		q.Set("wait", wait.String())
	}
	return get[CallOutcome](ctx, c, sessionPath(session, "/calls/"+seg(call)), q)
}
