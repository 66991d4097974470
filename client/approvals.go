package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// Justification is why something from outside is needed.
type Justification struct {
	UserRequest      string `json:"user_request"`      // what the person asked for, in their words
	MissingKnowledge string `json:"missing_knowledge"` // what exactly is not known
	ExpectedUse      string `json:"expected_use"`      // what the answer will be used for
}

// NewDeclaration declares one external need. Phase and SessionID, if they are empty, are set by Declare.
type NewDeclaration struct {
	Operation     string          `json:"operation"`  // such as comm.fetch
	Parameters    json.RawMessage `json:"parameters"` // the JSON object that the operation will be called with
	Justification Justification   `json:"justification"`
	Phase         string          `json:"phase"` // execution
	SessionID     string          `json:"session_id"`
}

// DeclareAnswer is the answer to a declaration. Its verdict denies if the declaration was refused, and asks if a person has to answer ApprovalID.
type DeclareAnswer struct {
	DeclarationID string    `json:"declaration_id"`
	Digest        string    `json:"digest"`
	State         string    `json:"state"` // pending, approved, rejected
	Verdict       Verdict   `json:"verdict"`
	ApprovalID    string    `json:"approval_id,omitempty"`
	Flags         []string  `json:"flags,omitempty"`
	ExpiresAt     time.Time `json:"expires_at"`
}

// Declaration is a declared need and its state. It permits one call, until it expires.
type Declaration struct {
	DeclarationID  string          `json:"declaration_id"`
	SessionID      string          `json:"session_id"`
	AgentID        string          `json:"agent_id"`
	Requester      string          `json:"requester,omitempty"`
	Operation      string          `json:"operation"`
	DefinitionHash string          `json:"definition_hash"`
	Parameters     json.RawMessage `json:"parameters"`
	Justification  Justification   `json:"justification"`
	Flags          []string        `json:"flags"`
	Digest         string          `json:"digest"`
	CallDigest     string          `json:"call_digest"`
	State          string          `json:"state"` // pending, approved, rejected, spent, expired
	DecidedBy      string          `json:"decided_by,omitempty"`
	Reason         string          `json:"reason,omitempty"`
	ApprovalID     string          `json:"approval_id,omitempty"`
	Risk           string          `json:"risk,omitempty"`
	CreatedAt      time.Time       `json:"created_at"`
	ExpiresAt      time.Time       `json:"expires_at"`
	SpentBy        string          `json:"spent_by,omitempty"` // call id
}

// Declare declares an external need before it is met. A declaration that can't be taken is a *Problem whose Errors name every field
// that is wrong; one that is refused is an answer with a verdict that denies. Agents' side.
func (c *Client) Declare(ctx context.Context, session string, d NewDeclaration) (*DeclareAnswer, error) {
	if d.Phase == "" {
		d.Phase = "execution"
	}
	if d.SessionID == "" {
		if d.SessionID = session; session == Own {
			s, err := c.Status(ctx, session)
			if err != nil {
				return nil, err
			}
			d.SessionID = s.SessionID
		}
	}
	return do[DeclareAnswer](ctx, c, http.MethodPost, sessionPath(session, "/declarations"), d)
}

// Declaration returns a declaration of the session. Agents' side.
func (c *Client) Declaration(ctx context.Context, session, id string) (*Declaration, error) {
	return get[Declaration](ctx, c, sessionPath(session, "/declarations/"+seg(id)), nil)
}

// CallDeclared calls a tool as it was declared, which once is good for one call. arguments may be nil: they are the declared ones. A
// verdict that denies is not an error. Agents' side.
func (c *Client) CallDeclared(ctx context.Context, session, tool, declaration string, arguments json.RawMessage) (*CallAnswer, error) {
	return do[CallAnswer](ctx, c, http.MethodPost, sessionPath(session, "/calls"), toolCall{Tool: tool, Arguments: arguments, DeclarationID: declaration})
}

// External is the result of a built-in external operation (comm.…), to be read from CallAnswer.Result with json.Unmarshal.
// Results is the MCP content list, its text fenced: text from outside, never instructions.
type External struct {
	Results  json.RawMessage `json:"results"`
	Metadata Attribution     `json:"metadata"`
}

// Attribution says where external information is from.
type Attribution struct {
	Attribution   string    `json:"attribution"`
	Operation     string    `json:"operation"`
	SessionID     string    `json:"session_id"`
	Source        string    `json:"source"`
	Timestamp     time.Time `json:"timestamp"`
	TrustLevel    string    `json:"trust_level"`
	ContentSHA256 string    `json:"content_sha256"`
	CallID        string    `json:"call_id"`
	MAC           string    `json:"mac"`                   // the gateway's own; it takes back only what has a good one
	Declaration   string    `json:"declaration,omitempty"` // digest of the declaration that it came on
}

// Finding says where one value of a call's arguments came from. Argument, Value and Field are hostile text.
type Finding struct {
	Argument  string `json:"argument"` // name, or path into it
	Role      string `json:"role"`     // what it is for: destination, url, amount, …
	Value     string `json:"value"`    // cut to 200 bytes
	Confirmed bool   `json:"vouched"`
	By        string `json:"by,omitempty"` // words, plan, own, approval, trusted, system, delegated, payee
	Text      string `json:"text"`         // a sentence
	Operation string `json:"operation,omitempty"`
	CallID    string `json:"call_id,omitempty"`
	Record    int    `json:"record,omitempty"` // of the result of that call, from 1
	Field     string `json:"field,omitempty"`
	Covers    bool   `json:"covers,omitempty"` // a yes also covers other values that the system set in this record, for this argument
}

// Approval is a question of an agent to people, with their answers. Arguments and Justification are the agent's text: treat it as hostile. Digest
// is over everything that a person is shown; an answer names it.
type Approval struct {
	ApprovalID     string           `json:"approval_id"`
	State          string           `json:"state"` // pending, approved, rejected, deferred, expired, spent, superseded; of a list, damaged: see Problem
	Problem        string           `json:"problem,omitempty"`
	Digest         string           `json:"digest"`
	CallDigest     string           `json:"call_digest"`
	Risk           string           `json:"risk"` // LOW, MEDIUM, HIGH, CRITICAL
	Operation      string           `json:"operation"`
	DefinitionHash string           `json:"definition_hash"`
	LaunchHash     string           `json:"launch_hash,omitempty"` // of how the tool's server is started or reached
	Arguments      json.RawMessage  `json:"arguments"`
	ArgumentsSize  int              `json:"arguments_size,omitempty"` // of a list: bytes of arguments too large for it, which are null there; Client.Approval has them
	SessionID      string           `json:"session_id"`
	AgentID        string           `json:"agent_id"`
	Requester      string           `json:"requester"`
	OpenedBy       string           `json:"opened_by"`
	WordsBy        []string         `json:"words_by,omitempty"` // who else had added to the person's request: principals, as kind:id
	DeclarationID  string           `json:"declaration_id,omitempty"`
	Justification  json.RawMessage  `json:"justification,omitempty"`
	Reasons        []ApprovalReason `json:"reasons"`
	Labels         []string         `json:"labels"` // what the session held when it was asked
	SessionVersion int64            `json:"session_version"`
	PolicyVersion  string           `json:"policy_version"`
	Environment    string           `json:"environment"`           // which gateway asked
	Amount         string           `json:"amount,omitempty"`      // as "1250 EUR"; "unreadable"
	Consequence    string           `json:"consequence,omitempty"` // what could go wrong, in the gateway's words
	Destinations   []string         `json:"destinations,omitempty"`
	Evidence       []Finding        `json:"evidence,omitempty"`      // where the arguments came from, where that was looked at; not in lists
	SilenceAt      time.Time        `json:"silence_at,omitzero"`     // of risk MEDIUM: it runs from then on unless somebody answers; zero: never by silence
	ModifiedFrom   string           `json:"modified_from,omitempty"` // the approval whose arguments a person changed
	ModifiedBy     string           `json:"modified_by,omitempty"`   // that person
	ModifiedReason string           `json:"modified_reason,omitempty"`
	Inputs         *Inputs          `json:"inputs,omitempty"`     // what the call reads of the session's workspace; nil: nothing
	StopEpoch      int64            `json:"stop_epoch,omitempty"` // how many stops had reached the agent when the call was judged: after one more, the approval covers nothing
	Nonce          string           `json:"nonce"`
	Votes          []Vote           `json:"votes"`
	Needed         int              `json:"needed"`         // distinct people who must approve
	Role           string           `json:"role,omitempty"` // admin: only people with this role can answer; "": those with the role approver or admin
	CreatedAt      time.Time        `json:"created_at"`
	ExpiresAt      time.Time        `json:"expires_at"`
	DeferredUntil  time.Time        `json:"deferred_until,omitzero"`
	SpentBy        string           `json:"spent_by,omitempty"`    // call id
	ReplacedBy     string           `json:"replaced_by,omitempty"` // of a superseded one: the approval with the changed arguments
	Reason         string           `json:"reason,omitempty"`      // of the rejection, or why it is superseded
	IntervenedAt   time.Time        `json:"spoken_at,omitzero"`    // when a person last rejected, deferred or changed it

	Tool          *Described `json:"tool_description,omitempty"` // what the tool is said to do; nil if its definition says nothing, or is another one by now
	Similar       string     `json:"similar,omitempty"`          // the same for those that can be answered together
	SessionLabels []string   `json:"session_labels"`             // what the session holds now
	SessionPhase  string     `json:"session_phase,omitempty"`
	Line          string     `json:"line"`        // what it does and whom it reaches, in a few words
	Unconfirmed   int        `json:"unconfirmed"` // how many of the values that decide are confirmed by nothing

	// For one approval, not in lists.
	Held        []Held          `json:"held,omitempty"`         // the session's labels with the calls that they came from
	UserRequest string          `json:"user_request,omitempty"` // what a host or a person put on record; hostile text all the same
	Plan        *Plan           `json:"plan,omitempty"`
	Earlier     []Earlier       `json:"earlier,omitempty"` // what was decided about the same destinations before, newest first
	Before      json.RawMessage `json:"before,omitempty"`  // the arguments before a person changed them
	Review      *Review         `json:"review,omitempty"`  // what a person needs to know to answer it
	Drill       bool            `json:"drill,omitempty"`   // no agent asked: it should be rejected. Set once it is answered
}

// Review is what a person needs to know to answer a request. Its texts have values of agents and strangers in them.
type Review struct {
	Does       string        `json:"does"`
	To         []string      `json:"to,omitempty"` // whom or what it reaches
	Line       string        `json:"line"`
	Objections []Objection   `json:"objections,omitempty"` // what speaks against it, the strongest first
	Values     []ReviewValue `json:"values,omitempty"`     // of the arguments, those that decide first
	Covers     []string      `json:"covers,omitempty"`     // what a yes allows besides this call
	Harm       string        `json:"harm,omitempty"`
}

// Objection is one thing that speaks against a call.
type Objection struct {
	Code     string `json:"code"`
	Argument string `json:"argument,omitempty"`
	Title    string `json:"title"`
	Text     string `json:"text"`
}

// ReviewValue is one value of the arguments.
type ReviewValue struct {
	Argument string     `json:"argument"`
	Role     string     `json:"role,omitempty"`
	Text     string     `json:"text"`
	Verdict  string     `json:"verdict"` // confirmed, unconfirmed, unchecked
	Says     string     `json:"says"`
	Why      string     `json:"why,omitempty"`  // what the rules found, in their words
	Core     bool       `json:"core,omitempty"` // it decides where something goes, what it costs or what it affects
	Seen     []Sighting `json:"seen,omitempty"`
	Others   []Sighting `json:"others,omitempty"` // other values that stand where one would look for this one
}

// Sighting is a place where the session has read a value.
type Sighting struct {
	Place     string    `json:"place"`
	Value     string    `json:"value"`
	Operation string    `json:"operation,omitempty"`
	CallID    string    `json:"call_id,omitempty"`
	Record    int       `json:"record,omitempty"`
	Field     string    `json:"field,omitempty"`
	At        time.Time `json:"at,omitzero"`
	Outsider  bool      `json:"outsider,omitempty"` // an outsider may have written it
}

// Described is what a tool does, in the words of whoever describes it.
type Described struct {
	Text string `json:"text"` // one line of at most 500 bytes
	By   string `json:"by"`   // server (hostile text), operator, gateway (of a built-in operation)
}

// Earlier is a decision about the same destination.
type Earlier struct {
	ApprovalID  string    `json:"approval_id"`
	Operation   string    `json:"operation"`
	AgentID     string    `json:"agent_id"`
	Destination string    `json:"destination"` // as JSON
	State       string    `json:"state"`
	By          []string  `json:"by,omitempty"`  // who answered
	Own         bool      `json:"own,omitempty"` // one of them had asked for it
	Reason      string    `json:"reason,omitempty"`
	At          time.Time `json:"at"` // of the last answer, else of the question
}

// Inputs are what a call reads of its session's workspace besides its arguments, as it was when people were asked. An answer covers them.
type Inputs struct {
	Files     []InputFile  `json:"files"`               // those that the arguments name
	Workspace *InputFolder `json:"workspace,omitempty"` // all of it, where the call can run or read any file there; nil: it can't
}

// InputFile is one file of the workspace.
type InputFile struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// InputFolder is a folder with all that is in it.
type InputFolder struct {
	Entries int    `json:"entries"` // files, folders and links
	Size    int64  `json:"size"`    // of all files
	SHA256  string `json:"sha256"`  // of the names, kinds, modes and contents
}

// ApprovalReason is one reason why people are asked.
type ApprovalReason struct {
	Stage string `json:"stage"`
	Code  string `json:"code"`
	Text  string `json:"text"`
}

// Vote is one person's answer.
type Vote struct {
	Person   string    `json:"person"`
	Decision string    `json:"decision"` // approve, reject, defer
	At       time.Time `json:"at"`
	Comment  string    `json:"comment,omitempty"`
	Aliases  []string  `json:"aliases,omitempty"` // the person's other identities
	Own      bool      `json:"own"`               // the person asked for the call, opened its session or owns the agent
}

// ApprovalQuery asks for a page of approvals, newest first.
type ApprovalQuery struct {
	State   string // "" for every one
	Session string // "" for every one
	After   string // Next of the page before
	Limit   int    // 0: the server's default
}

// ApprovalPage is a page of approvals. Next is "" on the last one.
type ApprovalPage struct {
	Approvals []Approval `json:"approvals"`
	Next      string     `json:"next,omitempty"`
}

// Approvals lists the questions of agents to people. For people who view or approve.
func (c *Client) Approvals(ctx context.Context, q ApprovalQuery) (*ApprovalPage, error) {
	v := url.Values{}
	set(v, "state", q.State)
	set(v, "session", q.Session)
	set(v, "after", q.After)
	setInt(v, "limit", int64(q.Limit))
	return get[ApprovalPage](ctx, c, "/v1/approvals", v)
}

// VoteCounts are figures on how people answer: of the newest requests that were answered, at most 500.
type VoteCounts struct {
	Requests int64 `json:"requests"` // that these figures are about
	Approved int64 `json:"approved"` // answers that said yes
	Rejected int64 `json:"rejected"`
	Own      int64 `json:"own"` // of people who had asked for the call themselves, opened its session or own the agent
}

// VoteCounts tells how people answered the newest requests. For people who view or approve.
func (c *Client) VoteCounts(ctx context.Context) (*VoteCounts, error) {
	return get[VoteCounts](ctx, c, "/v1/approvals/figures", nil)
}

func approvalPath(id, rest string) string { return "/v1/approvals/" + seg(id) + rest }

// Approval returns one approval. For people who view or approve.
func (c *Client) Approval(ctx context.Context, id string) (*Approval, error) {
	return get[Approval](ctx, c, approvalPath(id, ""), nil)
}

// Approve approves the question that the digest names. It runs nothing: the agent makes its call again. For people who approve.
func (c *Client) Approve(ctx context.Context, id, digest, comment string) (*Approval, error) {
	return do[Approval](ctx, c, http.MethodPost, approvalPath(id, "/approve"), struct {
		Digest  string `json:"digest"`
		Comment string `json:"comment,omitempty"`
	}{digest, comment})
}

// Reject rejects a question. One person is enough. The agent sees the reason. For people who approve.
func (c *Client) Reject(ctx context.Context, id, digest, reason string) (*Approval, error) {
	return do[Approval](ctx, c, http.MethodPost, approvalPath(id, "/reject"), struct {
		Digest string `json:"digest"`
		Reason string `json:"reason"`
	}{digest, reason})
}

// Defer puts the answer off until a time, or with the zero time until a person takes it up. It expires all the same. For people who
// approve.
func (c *Client) Defer(ctx context.Context, id, digest string, until time.Time) (*Approval, error) {
	return do[Approval](ctx, c, http.MethodPost, approvalPath(id, "/defer"), struct {
		Digest string    `json:"digest,omitempty"`
		Until  time.Time `json:"until,omitzero"`
	}{digest, until.UTC()})
}

// Modify asks about the same operation with other arguments, all of them, and returns the new question: it has a digest of its own and is
// answered like any other. The digest names what you were shown; "" names the present one. The agent sees the reason. For people who
// approve.
func (c *Client) Modify(ctx context.Context, id, digest string, arguments json.RawMessage, reason string) (*Approval, error) {
	return do[Approval](ctx, c, http.MethodPost, approvalPath(id, "/modify"), struct {
		Arguments json.RawMessage `json:"arguments"`
		Reason    string          `json:"reason"`
		Digest    string          `json:"digest,omitempty"`
	}{arguments, reason, digest})
}

// ApprovalRef names an approval as it was shown.
type ApprovalRef struct {
	ApprovalID string `json:"approval_id"`
	Digest     string `json:"digest"`
}

// Batched is the result for one approval of a batch: the approval as it is now, or the reason why the answer was refused.
type Batched struct {
	ApprovalID string    `json:"approval_id"`
	Approval   *Approval `json:"approval,omitempty"`
	Code       string    `json:"code,omitempty"`
	Problem    string    `json:"problem,omitempty"`
}

// RespondTogether answers similar approvals (Approval.Similar) with one decision: approve, reject or defer. If they are not similar,
// none is answered. Otherwise each answer is taken or refused on its own. For people who approve.
func (c *Client) RespondTogether(ctx context.Context, decision, reason string, approvals []ApprovalRef) ([]Batched, error) {
	a, err := do[struct {
		Approvals []Batched `json:"approvals"`
	}](ctx, c, http.MethodPost, "/v1/approvals/batch", struct {
		Decision  string        `json:"decision"`
		Reason    string        `json:"reason,omitempty"`
		Approvals []ApprovalRef `json:"approvals"`
	}{decision, reason, approvals})
	if err != nil {
		return nil, err
	}
	return a.Approvals, nil
}
