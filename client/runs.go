package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// Run is one run of an agent. Status is running, done, invalid, timeout, cancelled, killed, SKIPPED or failed; only a run that is done has an output.
type Run struct {
	RunID       string          `json:"run_id"`
	AgentID     string          `json:"agent_id"`
	Kind        string          `json:"kind"`
	Declaration string          `json:"declaration"` // digest
	Requester   string          `json:"requester"`
	StartedBy   string          `json:"started_by"`
	SessionID   string          `json:"session_id,omitempty"`
	Status      string          `json:"status"`
	Input       json.RawMessage `json:"input"`
	Started     time.Time       `json:"started"`
	Deadline    time.Time       `json:"deadline"`
	Ended       time.Time       `json:"ended,omitzero"`

	Verdict      *Verdict         `json:"verdict,omitempty"` // why it has no output
	EndedBy      string           `json:"ended_by,omitempty"`
	Output       json.RawMessage  `json:"output,omitempty"`
	Synthetic    bool             `json:"synthetic,omitempty"`     // the output is an agent's words
	Labels       []string         `json:"labels,omitempty"`        // of data that may stand in the output
	Returned     []string         `json:"returned,omitempty"`      // outputs of agents that came back in its input or in what it read
	OutputSHA256 string           `json:"output_sha256,omitempty"` // also of an output that was refused
	Citations    []Citation       `json:"citations,omitempty"`
	Claims       []ConfirmedClaim `json:"claims,omitempty"`
	Quality      *Quality         `json:"quality,omitempty"`
	Calls        int              `json:"calls"`
	Writes       []string         `json:"writes,omitempty"` // operations that changed something, whatever became of the run
	Tokens       int              `json:"tokens"`

	RecommendationID string `json:"recommendation_id,omitempty"`
}

// Citation is where an output has a fact from, with what the gateway found. Origin is internal or external.
type Citation struct {
	Source     string  `json:"source"`
	RecordID   string  `json:"recordId,omitempty"`
	Timestamp  string  `json:"timestamp"`
	Confidence float64 `json:"confidence"`
	Quote      string  `json:"quote,omitempty"`
	Field      string  `json:"field,omitempty"`

	Verified  bool      `json:"verified"`
	Origin    string    `json:"origin,omitempty"`
	CallID    string    `json:"call_id,omitempty"`
	Operation string    `json:"operation,omitempty"`
	ReadAt    time.Time `json:"read_at,omitzero"`
	Grade     string    `json:"grade,omitempty"` // what was verified: source, record or quote
	Why       string    `json:"why,omitempty"`   // it is not verified
}

// Found says in words what the gateway found of the citation.
func (c Citation) Found() string {
	switch {
	case !c.Verified:
		return "not verified: " + c.Why
	case c.Grade == "source":
		return "verified by source only, " + c.Origin
	}
	return "verified by " + c.Grade + ", " + c.Origin
}

// Quality is how good citations are.
type Quality struct {
	Citations     int `json:"citations"`
	Verified      int `json:"verified"`
	Quotes        int `json:"quotes"`
	QuotesMatched int `json:"quotes_matched"`
}

// RunFigures are those of an agent's runs of the last 24 hours.
type RunFigures struct {
	AgentID  string  `json:"agent_id"`
	Runs     int     `json:"runs"`
	Done     int     `json:"done"`
	Timeouts int     `json:"timeouts"`
	Invalid  int     `json:"invalid"`
	Returned int     `json:"returned"` // runs whose input, or what they read, brought back what an agent said
	Quality  Quality `json:"quality"`
}

// RunPage is a page of runs, the newest first. Next is "" on the last one.
type RunPage struct {
	Runs    []Run        `json:"runs"`
	Figures []RunFigures `json:"figures"`
	Next    string       `json:"next,omitempty"`
}

// RunRequest asks for a run. Requester is the person whom a host asks for; a person asks in their own name. With the same Key the same request starts one run.
type RunRequest struct {
	Input     json.RawMessage `json:"input"`
	Requester string          `json:"requester,omitempty"`
	Own       bool            `json:"own,omitempty"` // a person says that an input which is like what an agent said is theirs
	Key       string          `json:"-"`
}

// StartRun starts a run of an agent.
func (c *Client) StartRun(ctx context.Context, agent string, r RunRequest) (*Run, error) {
	with := *c
	with.key = r.Key
	return do[Run](ctx, &with, http.MethodPost, "/v1/agents/"+seg(agent)+"/runs", r)
}

// Run returns a run. It waits for its end for as long as wait says, which is 55 seconds at most.
func (c *Client) Run(ctx context.Context, id string, wait time.Duration) (*Run, error) {
	v := url.Values{}
	if wait > 0 {
		v.Set("wait", wait.String())
	}
	return get[Run](ctx, c, "/v1/runs/"+seg(id), v)
}

// Runs lists runs of an agent, or with "" of all.
func (c *Client) Runs(ctx context.Context, agent, after string, limit int) (*RunPage, error) {
	v := url.Values{}
	set(v, "agent", agent)
	set(v, "after", after)
	setInt(v, "limit", int64(limit))
	return get[RunPage](ctx, c, "/v1/runs", v)
}

// CancelRun ends a run. What it had is discarded.
func (c *Client) CancelRun(ctx context.Context, id string) (*Run, error) {
	return do[Run](ctx, c, http.MethodPost, "/v1/runs/"+seg(id)+"/cancel", struct{}{})
}
