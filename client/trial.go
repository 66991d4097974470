package client

import (
	"context"
	"net/http"
)

// Trial says what of a gateway there is to try.
type Trial struct {
	Mode      string       `json:"mode"`
	Labels    []string     `json:"labels"`          // the confidentiality labels
	Enforced  []string     `json:"enforced_labels"` // those of them that block in this mode
	Databases []string     `json:"databases"`       // ids
	Programs  []string     `json:"programs"`        // that comm.exec may run
	Domains   []string     `json:"allowed_domains"` // of comm.fetch; none: any public one
	Confirm   string       `json:"confirm"`         // how people confirm what they do; "": not at all
	Workspace string       `json:"workspace"`       // the folder that has one for each session
	Agents    []TrialAgent `json:"agents"`          // by id
}

// TrialAgent is an agent with the one that stands for it in a trial.
type TrialAgent struct {
	AgentID        string `json:"agent_id"`
	TrialID        string `json:"trial_id"`
	CallsPerMinute int    `json:"calls_per_minute"` // of one session; 0: no limit
}

type trialBody struct {
	Do string `json:"do"`
}

// BeginTrial begins a trial of the controls: until EndTrial, or some minutes, there are trial agents and a server whose tools have no effect. For people
// who operate.
func (c *Client) BeginTrial(ctx context.Context) (*Trial, error) {
	return do[Trial](ctx, c, http.MethodPost, "/v1/trial", trialBody{"begin"})
}

// ChangeTrial gives a tool of the trial's server another definition.
func (c *Client) ChangeTrial(ctx context.Context) error {
	_, err := do[Trial](ctx, c, http.MethodPost, "/v1/trial", trialBody{"change"})
	return err
}

// EndTrial ends the trial: its sessions are closed, its switches and quarantines taken back.
func (c *Client) EndTrial(ctx context.Context) error {
	_, err := do[Trial](ctx, c, http.MethodPost, "/v1/trial", trialBody{"end"})
	return err
}
