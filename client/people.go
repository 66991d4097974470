package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// SessionQuery asks for a page of sessions, newest first.
type SessionQuery struct {
	State string // open or closed; "" for both
	After string // Next of the page before
	Limit int    // 0: the server's default
}

// SessionPage is a page of sessions. Next is "" on the last one.
type SessionPage struct {
	Sessions []Session        `json:"sessions"`
	Aside    []DamagedSession `json:"set_aside,omitempty"`
	Next     string           `json:"next,omitempty"`
}

// DamagedSession is a session whose row in the gateway's store can't be read.
type DamagedSession struct {
	SessionID string `json:"session_id"`
	AgentID   string `json:"agent_id"`
	Problem   string `json:"problem"`
}

// Sessions lists sessions.
func (c *Client) Sessions(ctx context.Context, q SessionQuery) (*SessionPage, error) {
	v := url.Values{}
	set(v, "state", q.State)
	set(v, "after", q.After)
	setInt(v, "limit", int64(q.Limit))
	return get[SessionPage](ctx, c, "/v1/sessions", v)
}

// Session returns one session to a person. For agents and hosts there is Status.
func (c *Client) Session(ctx context.Context, id string) (*Session, error) {
	return get[Session](ctx, c, "/v1/sessions/"+seg(id), nil)
}

// StartSession opens a session for an agent as a person. For hosts there is Open.
func (c *Client) StartSession(ctx context.Context, r OpenSession) (*OpenedSession, error) {
	return do[OpenedSession](ctx, c, http.MethodPost, "/v1/sessions", r)
}

// NextSession is a person's order for an agent's next conversation. Without a SessionID the agent has had no session of its own, and its first is fresh anyway.
type NextSession struct {
	AgentID   string     `json:"agent_id"`
	SessionID string     `json:"session_id,omitempty"` // the one whose place the fresh one takes
	OrderedBy string     `json:"ordered_by,omitempty"`
	OrderedAt *time.Time `json:"ordered_at,omitempty"`
}

// OrderNextSession lets the agent's next conversation be a fresh session of its own, once.
func (c *Client) OrderNextSession(ctx context.Context, agent string) (*NextSession, error) {
	return do[NextSession](ctx, c, http.MethodPost, "/v1/sessions/next", struct {
		Agent string `json:"agent_id"`
	}{agent})
}

// HookKey makes a key with which the prompt hook of a client adds the person's words to the session, on the agents' side, and can do nothing else.
func (c *Client) HookKey(ctx context.Context, id string) (string, error) {
	k, err := do[HookKey](ctx, c, http.MethodPost, "/v1/sessions/"+seg(id)+"/hook-key", struct{}{})
	if err != nil {
		return "", err
	}
	return k.Key, nil
}

// HookKey is a key of a session.
type HookKey struct {
	SessionID string `json:"session_id"`
	Key       string `json:"hook_key"`
}

func (c *Client) act(ctx context.Context, id, act string, body any) (*Session, error) {
	return do[Session](ctx, c, http.MethodPost, "/v1/sessions/"+seg(id)+act, body)
}

type reasonBody struct {
	Reason string `json:"reason"`
}

type digestBody struct {
	Digest string `json:"digest"`
	Reason string `json:"reason,omitempty"`
}

// SetPhase moves a session to planning or execution.
func (c *Client) SetPhase(ctx context.Context, id, phase, reason string) (*Session, error) {
	return c.act(ctx, id, "/phase", struct {
		Phase  string `json:"phase"`
		Reason string `json:"reason"`
	}{phase, reason})
}

// AddedWords is what became of words that were added to a session.
type AddedWords struct {
	SessionID string `json:"session_id"`
	Confirms  bool   `json:"confirms"` // false: a call of the session was open, so they are on record alone; send them again when it has ended
}

// AddWords adds what the person asked for later to the request of a session.
func (c *Client) AddWords(ctx context.Context, id, text string) (*AddedWords, error) {
	return do[AddedWords](ctx, c, http.MethodPost, "/v1/sessions/"+seg(id)+"/words", struct {
		Text string `json:"text"`
	}{text})
}

// AddOwnWords adds what the person asked for later to the session of a hook's key.
func (c *Client) AddOwnWords(ctx context.Context, text string) (*AddedWords, error) {
	return do[AddedWords](ctx, c, http.MethodPost, "/v1/session/self/words", struct {
		Text string `json:"text"`
	}{text})
}

// Release takes labels off a session; the reason goes on the record.
func (c *Client) Release(ctx context.Context, id string, labels []string, reason string) (*Session, error) {
	return c.act(ctx, id, "/release", struct {
		Labels []string `json:"labels"`
		Reason string   `json:"reason"`
	}{labels, reason})
}

// StoredLabels are labels of data that was written to a server, by sessions that held them.
type StoredLabels struct {
	ID     string    `json:"id"`
	Server string    `json:"server"`
	Kind   string    `json:"id_kind,omitempty"` // of records; "" is all that the server gives back
	Record string    `json:"record,omitempty"`  // "" is all records of the kind
	Making string    `json:"making,omitempty"`  // the call that made a record whose id the gateway doesn't know
	Labels []Held    `json:"labels"`
	Since  time.Time `json:"since"`
	Launch string    `json:"launch,omitempty"` // the hash of how the server was started or reached
	// Released is when a person took the last label off; only as the answer to that.
	Released time.Time `json:"released,omitzero"`
}

// StoredList is the labels of all data that was written to servers.
type StoredList struct {
	Stored []StoredLabels `json:"stored"`
}

// Stored returns the labels of data that was written to servers.
func (c *Client) Stored(ctx context.Context) (*StoredList, error) {
	return do[StoredList](ctx, c, http.MethodGet, "/v1/stored", nil)
}

// ReleaseStored takes labels off stored data; the reason goes on the record. For people who operate.
func (c *Client) ReleaseStored(ctx context.Context, id string, labels []string, reason string) (*StoredLabels, error) {
	return do[StoredLabels](ctx, c, http.MethodPost, "/v1/stored/"+seg(id)+"/release", struct {
		Labels []string `json:"labels"`
		Reason string   `json:"reason"`
	}{labels, reason})
}

// CloseSession ends a session for good.
func (c *Client) CloseSession(ctx context.Context, id, reason string) (*Session, error) {
	return c.act(ctx, id, "/close", reasonBody{reason})
}

// RemoveSessionFiles removes what a closed session's workspace holds.
func (c *Client) RemoveSessionFiles(ctx context.Context, id string) (*Session, error) {
	return c.act(ctx, id, "/remove-files", nil)
}

// ApprovePlan approves the plan that waits in a session, named by the digest that the person saw.
func (c *Client) ApprovePlan(ctx context.Context, id, digest, reason string) (*Session, error) {
	return c.act(ctx, id, "/plan/approve", digestBody{digest, reason})
}

// RejectPlan rejects the plan that waits in a session.
func (c *Client) RejectPlan(ctx context.Context, id, digest, reason string) (*Session, error) {
	return c.act(ctx, id, "/plan/reject", digestBody{digest, reason})
}

// Switch is the state of one kill switch.
type Switch struct {
	Active  bool      `json:"active"`
	Since   time.Time `json:"since"` // zero if it was never switched
	By      string    `json:"by"`
	Reason  string    `json:"reason"`
	Durable bool      `json:"durable"` // the store has it; the switch acts before that
}

// Replica is one gateway process and how far it has followed the switch.
type Replica struct {
	ID    string    `json:"id"`
	Epoch int64     `json:"epoch"`
	Seen  time.Time `json:"seen"`
}

// KillStatus is the state of every switch that was ever used.
type KillStatus struct {
	Global   Switch            `json:"global"`
	Agents   map[string]Switch `json:"agents"`
	Epoch    int64             `json:"epoch"`
	Replicas []Replica         `json:"replicas"`
}

func (c *Client) flip(ctx context.Context, act, agent, reason string) (*KillStatus, error) {
	path := "/agents/kill-switch/" + act
	if agent != "" {
		path += "/" + seg(agent)
	}
	return do[KillStatus](ctx, c, http.MethodPost, path, reasonBody{reason})
}

// Kill switches an agent off, or all of them with agent "". It acts at once, whether the store answers or not.
func (c *Client) Kill(ctx context.Context, agent, reason string) (*KillStatus, error) {
	return c.flip(ctx, "disable", agent, reason)
}

// Unkill takes the switch back.
func (c *Client) Unkill(ctx context.Context, agent, reason string) (*KillStatus, error) {
	return c.flip(ctx, "enable", agent, reason)
}

// KillStatus returns the state of the switches.
func (c *Client) KillStatus(ctx context.Context) (*KillStatus, error) {
	return get[KillStatus](ctx, c, "/agents/kill-switch/status", nil)
}

// Agent is a declared agent. Declaration, all of its declaration's fields under their own names, is there for one agent, not in lists.
type Agent struct {
	AgentID     string          `json:"agent_id"`
	Name        string          `json:"agent_name"`
	Version     string          `json:"version"`
	Purpose     string          `json:"purpose"`
	Mode        string          `json:"mode"`
	StartPhase  string          `json:"start_phase"`
	Sessions    string          `json:"sessions"`
	Standing    string          `json:"standing"` // approved, unapproved, quarantined, undeclared
	Digest      string          `json:"digest"`
	Killed      bool            `json:"killed"` // by its own switch or the global one
	Kill        *Switch         `json:"kill,omitempty"`
	Quarantine  *Quarantine     `json:"quarantine,omitempty"`
	Degraded    *Degraded       `json:"degraded,omitempty"` // an agent that it depends on is aside, so it can do less
	Approval    *AgentApproval  `json:"approval,omitempty"`
	Declaration json.RawMessage `json:"declaration,omitempty"`
}

// AgentApproval is how an agent's declaration stands, and who approved it.
type AgentApproval struct {
	State         string      `json:"state"` // approved, waiting, changed, unapproved
	Text          string      `json:"text"`
	Digest        string      `json:"digest"`         // of the declaration as it is loaded
	Needed        int         `json:"needed"`         // how many people have to approve it
	Votes         []AgentVote `json:"votes"`          // those that count
	Rule          string      `json:"rule,omitempty"` // that approved it; "": people
	StillNeeded   int         `json:"still_needed"`
	MayApprove    []string    `json:"may_approve,omitempty"` // who can give a vote that is still needed
	ExpiresAt     time.Time   `json:"expires_at,omitzero"`   // when the oldest of the votes stops counting
	Before        string      `json:"approved_digest,omitempty"`
	BeforeVersion string      `json:"approved_version,omitempty"`
	LoadedBy      string      `json:"loaded_by,omitempty"`
}

// AgentVote is one person's yes to a declaration.
type AgentVote struct {
	Person  string    `json:"person"`
	Aliases []string  `json:"aliases,omitempty"`
	At      time.Time `json:"at"`
	Own     bool      `json:"own"` // the person wrote or loaded it, or nobody else could have approved it
	Reason  string    `json:"reason,omitempty"`
}

// AgentDifference compares a declaration with the one that was approved.
type AgentDifference struct {
	AgentID  string         `json:"agent_id"`
	Digest   string         `json:"digest"`
	Against  string         `json:"against,omitempty"` // "": none was approved
	Approval string         `json:"approval"`          // how it stands, and who still has to approve it
	Fields   []ChangedValue `json:"fields"`
	Breaking []string       `json:"breaking,omitempty"` // what in the output schema breaks its readers
	Blocked  string         `json:"blocked,omitempty"`  // why it can't be approved as it is
}

// ChangedValue is one field that differs. Of lists of texts, Added and Removed are the texts that only one side has.
type ChangedValue struct {
	Field   string          `json:"field"`
	From    json.RawMessage `json:"from,omitempty"`
	To      json.RawMessage `json:"to,omitempty"`
	Added   []string        `json:"added,omitempty"`
	Removed []string        `json:"removed,omitempty"`
}

// ApproveAgent approves an agent's declaration, named by its digest. For people who approve.
func (c *Client) ApproveAgent(ctx context.Context, agent, digest, reason string) (*Agent, error) {
	return do[Agent](ctx, c, http.MethodPost, "/v1/agents/"+seg(agent)+"/approve", struct {
		Digest string `json:"digest"`
		Reason string `json:"reason,omitempty"`
	}{digest, reason})
}

// ApprovalBundle are approvals of declarations that a gateway signed for others.
type ApprovalBundle struct {
	Bundle    string    `json:"bundle"`
	Agents    []string  `json:"agents"`
	Key       string    `json:"key"` // under which it is accepted
	ExpiresAt time.Time `json:"expires_at"`
}

// ImportedApprovals says what became of such a bundle at another gateway.
type ImportedApprovals struct {
	SignedBy string             `json:"signed_by"`
	SignedAt time.Time          `json:"signed_at"`
	Agents   []ImportedApproval `json:"agents"`
}

// ImportedApproval is what became of one of the approvals.
type ImportedApproval struct {
	AgentID  string `json:"agent_id"`
	Digest   string `json:"digest"`
	Imported bool   `json:"imported"`
	Why      string `json:"why,omitempty"` // why it was not
}

// ExportApprovals signs the approvals of agents, or of all, for other gateways. For people who approve.
func (c *Client) ExportApprovals(ctx context.Context, agents []string, life time.Duration) (*ApprovalBundle, error) {
	return do[ApprovalBundle](ctx, c, http.MethodPost, "/v1/agents/approvals/export", struct {
		Agents    []string `json:"agents,omitempty"`
		ExpiresIn int64    `json:"expires_in,omitempty"`
	}{agents, int64(life / time.Second)})
}

// ImportApprovals takes over approvals that another gateway signed. For people who approve.
func (c *Client) ImportApprovals(ctx context.Context, bundle string) (*ImportedApprovals, error) {
	return do[ImportedApprovals](ctx, c, http.MethodPost, "/v1/agents/approvals/import", struct {
		Bundle string `json:"bundle"`
	}{bundle})
}

// AgentDifference compares an agent's declaration with the one that was approved.
func (c *Client) AgentDifference(ctx context.Context, agent string) (*AgentDifference, error) {
	return get[AgentDifference](ctx, c, "/v1/agents/"+seg(agent)+"/diff", nil)
}

// Quota is one quota of an agent with its use, in the resource's own unit.
type Quota struct {
	AgentID  string    `json:"agent_id"`
	Resource string    `json:"resource"` // api_calls, compute_seconds, tokens, cost
	Window   string    `json:"window"`   // hour, day
	Used     float64   `json:"used"`
	Reserved float64   `json:"reserved"` // set aside for what is under way
	Limit    float64   `json:"limit"`
	Percent  int       `json:"percent"`
	Frees    time.Time `json:"frees"` // when the window ends
}

// Throttle is how fast an agent may call, where its declaration says so.
type Throttle struct {
	AgentID        string     `json:"agent_id"`
	CallsPerMinute int        `json:"calls_per_minute"`
	AtOnce         int        `json:"at_once"`        // after a rest
	Next           *time.Time `json:"next,omitempty"` // when the next call may run; nil: now
}

// Quotas returns what agents have used of their quotas; of one agent, or of all ("").
func (c *Client) Quotas(ctx context.Context, agent string) ([]Quota, error) {
	l, err := c.Limits(ctx, agent)
	if err != nil {
		return nil, err
	}
	return l.Quotas, nil
}

// Limits are what agents have used of their quotas, and how fast those may call whose declaration says so.
type Limits struct {
	Quotas    []Quota    `json:"quotas"`
	Throttles []Throttle `json:"throttles"`
}

// Limits returns the limits of one agent, or of all ("").
func (c *Client) Limits(ctx context.Context, agent string) (*Limits, error) {
	v := url.Values{}
	if agent != "" {
		v.Set("agent", agent)
	}
	return get[Limits](ctx, c, "/v1/quotas", v)
}

// Deployment answers the deployment checklists: of agents, and of what stands around them.
type Deployment struct {
	At         time.Time        `json:"at"`
	Boxes      []DeploymentBox  `json:"boxes"`
	Violations []FoundViolation `json:"violations"` // those that no file shows
}

// DeploymentBox is one box of a checklist.
type DeploymentBox struct {
	ID       string   `json:"id"`
	List     string   `json:"list"` // agents, deployment
	Question string   `json:"question"`
	Answer   string   `json:"answer"` // yes, no, unseen
	Reason   string   `json:"reason"`
	Evidence []string `json:"evidence"`
	Remedy   string   `json:"remedy,omitempty"` // the way to a yes
}

// FoundViolation says whether the running gateway shows a violation. Found is yes where it does.
type FoundViolation struct {
	Code     string `json:"code"`
	Severity string `json:"severity"`
	Title    string `json:"title"`
	Found    string `json:"found"` // yes, no, unseen
	Reason   string `json:"reason"`
}

// Deployment asks what the running gateway answers to the deployment checklists.
func (c *Client) Deployment(ctx context.Context) (*Deployment, error) {
	return get[Deployment](ctx, c, "/v1/agents/audit", nil)
}

// Quarantine says since when an agent is quarantined, by whom and why.
type Quarantine struct {
	Since  time.Time `json:"since"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
}

// Agents lists the declared agents.
func (c *Client) Agents(ctx context.Context) ([]Agent, error) {
	l, err := get[struct {
		Agents []Agent `json:"agents"`
	}](ctx, c, "/v1/agents", nil)
	if err != nil {
		return nil, err
	}
	return l.Agents, nil
}

// Agent returns one agent with its declaration.
func (c *Client) Agent(ctx context.Context, id string) (*Agent, error) {
	return get[Agent](ctx, c, "/v1/agents/"+seg(id), nil)
}

// Quarantine stops an agent until a person restores it: its calls are refused, its sessions and what they hold stay. It acts at once. For
// people who operate.
func (c *Client) Quarantine(ctx context.Context, agent, reason string) (*Agent, error) {
	return do[Agent](ctx, c, http.MethodPost, "/v1/agents/"+seg(agent)+"/quarantine", reasonBody{reason})
}

// QuarantineUndeclared is Quarantine for an agent that may not be declared, which Quarantine refuses: it is refused once it is. For people who operate.
func (c *Client) QuarantineUndeclared(ctx context.Context, agent, reason string) (*Agent, error) {
	return do[Agent](ctx, c, http.MethodPost, "/v1/agents/"+seg(agent)+"/quarantine", struct {
		Reason     string `json:"reason"`
		Undeclared bool   `json:"undeclared"`
	}{reason, true})
}

// Restore ends an agent's quarantine. For people who operate.
func (c *Client) Restore(ctx context.Context, agent, reason string) (*Agent, error) {
	return do[Agent](ctx, c, http.MethodPost, "/v1/agents/"+seg(agent)+"/restore", reasonBody{reason})
}

// Tool is an operation as the gateway knows it. Definition and Pending are the server's own text: treat it as hostile.
type Tool struct {
	Operation   string   `json:"operation"`
	Name        string   `json:"name"`
	Server      string   `json:"server"`
	Kind        string   `json:"kind"`
	Standing    string   `json:"standing"`
	Fault       string   `json:"fault,omitempty"`
	Sensitivity string   `json:"sensitivity"`
	Effect      string   `json:"effect"`
	Emits       []string `json:"emits"`
	BlockedBy   []string `json:"blocked_by"`
	Output      string   `json:"output"`
	ExternalIO  bool     `json:"external_io"`
	Listed      bool     `json:"listed"`
	Hash        string   `json:"definition_hash,omitempty"`
	PendingHash string   `json:"pending_hash,omitempty"`
	// LaunchHash is of how the server is started or reached, as it was accepted; PendingLaunchHash of what waits.
	LaunchHash        string          `json:"launch_hash,omitempty"`
	PendingLaunchHash string          `json:"pending_launch_hash,omitempty"`
	Definition        json.RawMessage `json:"definition,omitempty"`
	Pending           json.RawMessage `json:"pending,omitempty"`
	AcceptedBy        string          `json:"accepted_by,omitempty"`
	AcceptedAt        time.Time       `json:"accepted_at,omitzero"`
	Unread            bool            `json:"unread,omitempty"` // only a rule accepted the definition: a session that lists it holds untrusted
	Suspicions        []Suspicion     `json:"suspicions,omitempty"`
}

// Suspicion is a part of a definition, or of what a server says about itself, that looks like an order to the model or is hidden, before a person has accepted the definition.
type Suspicion struct {
	Kind  string `json:"kind"`
	Where string `json:"where"`
	Quote string `json:"quote"`
}

// Tools lists everything that servers offer or offered.
func (c *Client) Tools(ctx context.Context) ([]Tool, error) {
	l, err := get[struct {
		Tools []Tool `json:"tools"`
	}](ctx, c, "/v1/tools", nil)
	if err != nil {
		return nil, err
	}
	return l.Tools, nil
}

// AcceptTool accepts the definition that waits (Tool.PendingHash), named by its hash.
func (c *Client) AcceptTool(ctx context.Context, operation, definitionHash string) (*Tool, error) {
	return do[Tool](ctx, c, http.MethodPost, "/v1/tools/"+seg(operation)+"/accept", struct {
		DefinitionHash string `json:"definition_hash"`
	}{definitionHash})
}

// Acceptance names a definition that a person has read.
type Acceptance struct {
	Operation      string `json:"operation"`
	DefinitionHash string `json:"definition_hash"`
}

// Accepted is the result for one definition; Problem is "" if it was accepted.
type Accepted struct {
	Operation string `json:"operation"`
	Problem   string `json:"problem,omitempty"`
}

// AcceptTools accepts definitions that wait, or that only a rule accepted, each by its hash: one that changed meanwhile is not accepted. At
// most 1000 at a time.
func (c *Client) AcceptTools(ctx context.Context, all []Acceptance) ([]Accepted, error) {
	l, err := do[struct {
		Results []Accepted `json:"results"`
	}](ctx, c, http.MethodPost, "/v1/tools/accept", struct {
		Definitions []Acceptance `json:"definitions"`
	}{all})
	if err != nil {
		return nil, err
	}
	return l.Results, nil
}

// Server is an upstream MCP server and its state. Name, Version and Instructions are its own text.
type Server struct {
	ID           string    `json:"id"`
	State        string    `json:"state"`
	Protocol     string    `json:"protocol,omitempty"`
	Name         string    `json:"name,omitempty"`
	Version      string    `json:"version,omitempty"`
	Instructions string    `json:"instructions,omitempty"`
	LastError    string    `json:"last_error,omitempty"`
	Restarts     int       `json:"restarts"`
	Definitions  int       `json:"definitions"`
	Tools        int       `json:"tools"`
	Usable       int       `json:"usable"`             // of the tools, as far as the catalogue says
	Unusable     []string  `json:"unusable,omitempty"` // why not the others
	Sandbox      string    `json:"sandbox,omitempty"`  // of a server that the gateway starts: full, partial or none
	Since        time.Time `json:"since"`
	// Suspicions are texts in its own words that look like an order, or are hidden.
	Suspicions []Suspicion `json:"suspicions,omitempty"`
}

// Servers lists the upstream servers.
func (c *Client) Servers(ctx context.Context) ([]Server, error) {
	l, err := get[struct {
		Servers []Server `json:"servers"`
	}](ctx, c, "/v1/servers", nil)
	if err != nil {
		return nil, err
	}
	return l.Servers, nil
}

// Mode is whether the gateway enforces.
type Mode struct {
	Mode     string   `json:"mode"`           // enforce or observe
	Text     string   `json:"text,omitempty"` // of observe: what it means
	Observed Observed `json:"observed"`
}

// Observed is what a gateway that observes let through since it started, and would have stopped if it enforced.
type Observed struct {
	Refusals  int64 `json:"refusals"`
	Questions int64 `json:"questions"`
}

// Mode tells whether the gateway enforces.
func (c *Client) Mode(ctx context.Context) (*Mode, error) {
	return get[Mode](ctx, c, "/v1/mode", nil)
}

// Anchor is how the log stands to what is kept of it outside the data directory.
type Anchor struct {
	State         string    `json:"state"` // ok, late, missing, behind, forked, unreadable, not configured
	Text          string    `json:"text"`  // one sentence, which begins with the state
	Place         string    `json:"place,omitempty"`
	AnchoredAt    time.Time `json:"anchored_at,omitzero"`
	EntriesBehind int64     `json:"entries_behind"` // entries of the log that the anchor has not seen
}

// Anchor tells how the log stands to its anchor.
func (c *Client) Anchor(ctx context.Context) (*Anchor, error) {
	return get[Anchor](ctx, c, "/v1/anchor", nil)
}

// Configuration says since when the configuration is in force, who loaded it, and whether the files differ from it.
type Configuration struct {
	File     string         `json:"file,omitempty"` // as the gateway was given it; "": the defaults
	LoadedAt time.Time      `json:"loaded_at"`
	LoadedBy string         `json:"loaded_by"` // gateway:start, gateway:signal, or the person who reloaded it
	Differs  bool           `json:"differs"`   // the files differ from what is in force
	Changed  []string       `json:"changed,omitempty"`
	Unusable bool           `json:"unusable,omitempty"` // they can't be loaded as they are
	Refused  *ReloadRefusal `json:"refused,omitempty"`  // the last reload that was refused since
}

// ReloadRefusal is a reload that changed nothing.
type ReloadRefusal struct {
	At   time.Time `json:"at"`
	By   string    `json:"by"`
	Text string    `json:"text"`
}

// Reloaded is what a reload put in force.
type Reloaded struct {
	Configuration
	Changes []ChangedField `json:"changes"`
}

// ChangedField is one field that a reload changed. Of what may hold a secret there are no values.
type ChangedField struct {
	Agent string          `json:"agent,omitempty"` // of whose declaration it is; "": of the configuration
	Field string          `json:"field"`
	From  json.RawMessage `json:"from,omitempty"`
	To    json.RawMessage `json:"to,omitempty"`
}

// Configuration says what is in force.
func (c *Client) Configuration(ctx context.Context) (*Configuration, error) {
	return get[Configuration](ctx, c, "/v1/configuration", nil)
}

// Reload reads the configuration again and puts it in force as a whole. Where that can't be, nothing changes, and the error is a *Problem whose Errors
// name every field at fault.
func (c *Client) Reload(ctx context.Context) (*Reloaded, error) {
	return do[Reloaded](ctx, c, http.MethodPost, "/v1/reload", nil)
}

// Token is a credential without its secret.
type Token struct {
	TokenID string    `json:"token_id"`
	Kind    string    `json:"kind"` // agent, host, session, person
	ID      string    `json:"id"`
	AgentID string    `json:"agent_id,omitempty"` // of a session's token
	Roles   []string  `json:"roles,omitempty"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"`
	Revoked time.Time `json:"revoked,omitzero"`
}

// NewToken asks for a token.
type NewToken struct {
	Kind    string    `json:"kind"` // agent, host, person
	ID      string    `json:"id"`
	Roles   []string  `json:"roles,omitempty"` // of a person
	Expires time.Time `json:"expires,omitzero"`
}

// CreatedToken is a new token with its secret, which is shown this once.
type CreatedToken struct {
	Token
	Secret string `json:"token"`
}

// Tokens lists every token, revoked ones too.
func (c *Client) Tokens(ctx context.Context) ([]Token, error) {
	l, err := get[struct {
		Tokens []Token `json:"tokens"`
	}](ctx, c, "/v1/tokens", nil)
	if err != nil {
		return nil, err
	}
	return l.Tokens, nil
}

// CreateToken makes a token.
func (c *Client) CreateToken(ctx context.Context, t NewToken) (*CreatedToken, error) {
	return do[CreatedToken](ctx, c, http.MethodPost, "/v1/tokens", t)
}

// RevokeToken ends a token at once.
func (c *Client) RevokeToken(ctx context.Context, tokenID string) error {
	_, err := c.bytes(ctx, http.MethodDelete, "/v1/tokens/"+seg(tokenID), nil)
	return err
}

// SignInLink opens the console once. URL is a path of the people's side ("/login/link/…") where the gateway does not know its own address.
type SignInLink struct {
	URL     string    `json:"url"`
	Expires time.Time `json:"expires"`
}

// SignInLink makes a one-time link that signs the token's person in to the console. The link gives the token's roles there, so it is
// as secret as the token until it is used or expires.
func (c *Client) SignInLink(ctx context.Context) (*SignInLink, error) {
	return do[SignInLink](ctx, c, http.MethodPost, "/v1/sign-in-links", nil)
}

// AuditQuery selects entries. An empty field doesn't restrict.
type AuditQuery struct {
	Agent, Session, Action, Decision, Kind, Operation, CallID string
	Requester, Approver                                       string // ids of people
	ActionType                                                string // transfer_money, …
	Risk                                                      string // LOW, MEDIUM, HIGH or CRITICAL
	Severity                                                  string // info, warning or critical
	Event, Code                                               string // docs/operations.md has the events, docs/errors.md the codes

	Text string // words that all stand in arguments, result, reason or detail

	From, To time.Time // From is included, To is not
	After    *int64    // Next of the page before
	Newest   bool      // the newest first
	Before   *int64    // with Newest: Next of the page before
	Limit    int       // 0: the server's default
}

// AuditPage is a page of entries, oldest first if the query does not ask for the newest. Next is nil on the last one. A page may be empty and still have a next one.
type AuditPage struct {
	Entries []Entry `json:"entries"`
	Next    *int64  `json:"next"`
	// Archived is there where the query asks for entries that are not at the gateway any more.
	Archived *ArchivedEntries `json:"archived,omitempty"`
	// Searched is there where the query asks for content.
	Searched *Searched `json:"searched,omitempty"`
}

// Searched says how far the index goes that a search by content looks into: it has no entry from To on yet, in a log of Size entries.
type Searched struct {
	To   int64 `json:"to"`
	Size int64 `json:"size"`
}

// ArchivedEntries are those before an index that were moved elsewhere.
type ArchivedEntries struct {
	Before int64    `json:"before"`
	Files  []string `json:"files"` // each with where it was moved to
}

// Entry is one record of the audit log.
type Entry struct {
	Index     int64     `json:"index"`
	At        time.Time `json:"at"`
	Kind      string    `json:"kind"`               // intent, outcome, decision, change
	Severity  string    `json:"severity,omitempty"` // info, warning, critical
	Action    string    `json:"action"`
	Event     string    `json:"event,omitempty"` // what it means for security, if anything
	Agent     string    `json:"agent,omitempty"`
	Session   string    `json:"session,omitempty"`
	Requester string    `json:"requester,omitempty"`
	Actor     string    `json:"actor,omitempty"`
	Door      string    `json:"door,omitempty"`
	Remote    string    `json:"remote,omitempty"` // the address that a request came from that a door turned away
	RequestID string    `json:"request_id,omitempty"`
	Operation string    `json:"operation,omitempty"`
	Type      string    `json:"action_type,omitempty"` // transfer_money, …
	CallID    string    `json:"call_id,omitempty"`
	Digest    string    `json:"call_digest,omitempty"`
	DefHash   string    `json:"definition_hash,omitempty"`

	Decision string `json:"decision,omitempty"`
	Stage    string `json:"stage,omitempty"`
	Code     string `json:"code,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Shadow   bool   `json:"shadow,omitempty"` // it was let through, and stage, code and reason are of the verdict it would have had (mode: observe)

	Risk      string   `json:"risk,omitempty"`
	Amount    string   `json:"amount,omitempty"`
	Approvers []string `json:"approvers,omitempty"`
	Model     string   `json:"model,omitempty"`

	Arguments   *Payload        `json:"arguments,omitempty"`
	Result      *Payload        `json:"result,omitempty"`
	Labels      []string        `json:"labels,omitempty"`
	Attribution json.RawMessage `json:"attribution,omitempty"`
	Detail      json.RawMessage `json:"detail,omitempty"`
	DurationMS  int64           `json:"duration_ms,omitempty"`
	Rows        []Row           `json:"rows,omitempty"`
}

// Row is a row of the gateway's state that an entry changed: in Was, the entry that changed it before (-1: it is new), and in MAC, what proves
// the row as it is now ("": it was removed).
type Row struct {
	Table string `json:"table"`
	Key   string `json:"key"`
	Was   int64  `json:"was"`
	MAC   string `json:"mac,omitempty"`
}

// Payload is arguments or a result: by hash, shown with secrets redacted, and kept apart when it is large.
type Payload struct {
	SHA256   string          `json:"sha256"`
	Size     int64           `json:"size"`
	Shown    json.RawMessage `json:"shown,omitempty"`
	Stored   bool            `json:"stored,omitempty"`
	Key      string          `json:"key,omitempty"`
	Redacted bool            `json:"redacted,omitempty"`
}

// EntryLeaf is an entry with the exact bytes that the log's tree is over.
type EntryLeaf struct {
	Entry
	Leaf []byte `json:"leaf"`
}

// Inclusion proves an entry in the log (RFC 6962). Hashes are base64.
type Inclusion struct {
	Index    int64    `json:"index"`
	Size     int64    `json:"size"`
	LeafHash string   `json:"leaf_hash"`
	RootHash string   `json:"root_hash"`
	Hashes   []string `json:"hashes"`
}

// Consistency proves that one log is the beginning of another (RFC 6962). Hashes are base64.
type Consistency struct {
	From     int64    `json:"from"`
	Size     int64    `json:"size"`
	FromRoot string   `json:"from_root_hash"`
	RootHash string   `json:"root_hash"`
	Hashes   []string `json:"hashes"`
}

// Audit queries the log.
func (c *Client) Audit(ctx context.Context, q AuditQuery) (*AuditPage, error) {
	v := q.values()
	if q.After != nil {
		v.Set("after", strconv.FormatInt(*q.After, 10))
	}
	if q.Newest {
		v.Set("order", "newest")
	}
	if q.Before != nil {
		v.Set("before", strconv.FormatInt(*q.Before, 10))
	}
	setInt(v, "limit", int64(q.Limit))
	return get[AuditPage](ctx, c, "/v1/audit", v)
}

// AuditDownload streams all entries that a query selects, as "csv" or "jsonl". The caller closes it. One that was cut short ends with an error.
func (c *Client) AuditDownload(ctx context.Context, q AuditQuery, format string) (io.ReadCloser, error) {
	v := q.values()
	v.Set("format", format)
	resp, err := c.send(ctx, http.MethodGet, "/v1/audit/download?"+v.Encode(), nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// values are the parameters that select entries.
func (q AuditQuery) values() url.Values {
	v := url.Values{}
	for name, value := range map[string]string{
		"agent": q.Agent, "session": q.Session, "action": q.Action, "decision": q.Decision,
		"kind": q.Kind, "operation": q.Operation, "call_id": q.CallID, "requester": q.Requester, "approver": q.Approver,
		"action_type": q.ActionType, "risk": q.Risk, "severity": q.Severity, "event": q.Event, "code": q.Code, "q": q.Text,
	} {
		set(v, name, value)
	}
	setTime(v, "from", q.From)
	setTime(v, "to", q.To)
	return v
}

// AuditEntry returns one entry.
func (c *Client) AuditEntry(ctx context.Context, index int64) (*EntryLeaf, error) {
	return get[EntryLeaf](ctx, c, "/v1/audit/"+strconv.FormatInt(index, 10), nil)
}

// AuditCheckpoint returns a signed checkpoint of the whole log as it is now (C2SP tlog-checkpoint).
func (c *Client) AuditCheckpoint(ctx context.Context) ([]byte, error) {
	return c.bytes(ctx, http.MethodGet, "/v1/audit/checkpoint", nil)
}

// AuditInclusion proves an entry in the log of size entries; size 0 is the log as of its newest checkpoint.
func (c *Client) AuditInclusion(ctx context.Context, index, size int64) (*Inclusion, error) {
	v := url.Values{"index": {strconv.FormatInt(index, 10)}}
	setInt(v, "size", size)
	return get[Inclusion](ctx, c, "/v1/audit/proof", v)
}

// AuditConsistency proves that the log of from entries is the beginning of the log of size entries; size as for AuditInclusion.
func (c *Client) AuditConsistency(ctx context.Context, from, size int64) (*Consistency, error) {
	v := url.Values{"from": {strconv.FormatInt(from, 10)}}
	setInt(v, "size", size)
	return get[Consistency](ctx, c, "/v1/audit/proof", v)
}

// AuditPayload returns arguments or a result that is kept apart, by Payload.Key. It is as it was sent, but for redacted secrets.
func (c *Client) AuditPayload(ctx context.Context, key string) ([]byte, error) {
	return c.bytes(ctx, http.MethodGet, "/v1/audit/payload/"+seg(key), nil)
}

// AuditExport streams the whole log as a tar archive that sallyport audit verify reads. The caller closes it. An archive that was cut
// short ends with an error.
func (c *Client) AuditExport(ctx context.Context) (io.ReadCloser, error) {
	resp, err := c.send(ctx, http.MethodGet, "/v1/audit/export", nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Ready tells whether the gateway and its store answer. It needs no token.
func (c *Client) Ready(ctx context.Context) error {
	_, err := c.bytes(ctx, http.MethodGet, "/readyz", nil)
	return err
}
