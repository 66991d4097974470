package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Security are the security figures.
type Security struct {
	From                   time.Time `json:"from"` // the beginning of an hour
	To                     time.Time `json:"to"`
	InjectionDetectionRate Figure    `json:"injection_detection_rate"`
	AccessViolationRate    Figure    `json:"access_violation_rate"`
	HighApprovalRate       Figure    `json:"high_approval_rate"`
	AuditCompleteness      Figure    `json:"audit_completeness"`
	MeanTimeToDetect       Figure    `json:"mean_time_to_detect"`
	MeanTimeToRespond      Figure    `json:"mean_time_to_respond"`
	OpenAlerts             int       `json:"open_alerts"`           // that nobody has resolved
	UncontainedIncidents   int       `json:"uncontained_incidents"` // whose agents are neither stopped nor quarantined, and that nobody has resolved
}

// Figure is one of them.
type Figure struct {
	Value *float64 `json:"value"` // nil: nothing is known of it yet
	Unit  string   `json:"unit"`  // share (0 to 1) or seconds
	Goal  float64  `json:"goal"`
	Bound string   `json:"bound"` // at_least or at_most: which side of the goal is right
	Met   *bool    `json:"met"`   // nil: nothing is known of it yet
	Count int64    `json:"count"` // of a share: so many; of a time: over so many incidents
	Total int64    `json:"total"` // of a share: of so many
	Basis string   `json:"basis"` // what was counted, in words
}

// Alert is something that people should look at.
type Alert struct {
	ID          string          `json:"alert_id"`
	Kind        string          `json:"kind"`     // injection_attempts, access_violations, quota, timeout or log_damage
	Severity    string          `json:"severity"` // critical: an incident that needs people; warning: the gateway itself bounds it
	State       string          `json:"state"`    // open, acknowledged or resolved
	Title       string          `json:"title"`
	Explanation string          `json:"explanation"`
	Involved    []AlertInvolved `json:"involved"`
	Count       int64           `json:"count"` // events so far
	Entry       int64           `json:"entry"` // of the log: the event that met the rule
	FirstAt     time.Time       `json:"first_event_at"`
	EventAt     time.Time       `json:"event_at"` // the event that met the rule
	LastAt      time.Time       `json:"last_event_at"`
	DetectedAt  time.Time       `json:"detected_at"`

	AcknowledgedAt *time.Time `json:"acknowledged_at"`
	AcknowledgedBy string     `json:"acknowledged_by,omitempty"`
	Comment        string     `json:"comment,omitempty"`
	ContainedAt    *time.Time `json:"contained_at"` // when all agents involved were stopped or quarantined, or the gateway itself ended the matter
	ContainedBy    string     `json:"contained_by,omitempty"`
	ResolvedAt     *time.Time `json:"resolved_at"`
	ResolvedBy     string     `json:"resolved_by,omitempty"`
	Reason         string     `json:"reason,omitempty"`

	TimeToDetect  float64  `json:"time_to_detect_seconds"`  // from the event that met the rule until the alert
	TimeToRespond *float64 `json:"time_to_respond_seconds"` // from the alert to the containment or the resolution, whichever came first; nil: neither did yet
}

// AlertInvolved says how many events an agent caused.
type AlertInvolved struct {
	Agent  string `json:"agent_id"` // the agent; or the credential that acted, as kind:id, where none was at work
	Events int64  `json:"events"`
}

// Security returns the security figures of so many hours, the one under way included. For everybody on the people's side.
func (c *Client) Security(ctx context.Context, hours int) (*Security, error) {
	return do[Security](ctx, c, http.MethodGet, fmt.Sprintf("/v1/security?hours=%d", hours), nil)
}

// Alerts returns alerts of a state, or with "" of every state: the newest first. For everybody on the people's side.
func (c *Client) Alerts(ctx context.Context, state string) ([]Alert, error) {
	out, err := do[struct {
		Alerts []Alert `json:"alerts"`
	}](ctx, c, http.MethodGet, "/v1/alerts?limit=1000&state="+url.QueryEscape(state), nil)
	if err != nil {
		return nil, err
	}
	return out.Alerts, nil
}

// Alert returns one alert. For everybody on the people's side.
func (c *Client) Alert(ctx context.Context, id string) (*Alert, error) {
	return do[Alert](ctx, c, http.MethodGet, "/v1/alerts/"+seg(id), nil)
}

// AcknowledgeAlert says that the caller looks after an alert. For people who operate.
func (c *Client) AcknowledgeAlert(ctx context.Context, id, comment string) (*Alert, error) {
	return do[Alert](ctx, c, http.MethodPost, "/v1/alerts/"+seg(id)+"/acknowledge", struct {
		Comment string `json:"comment,omitempty"`
	}{comment})
}

// ResolveAlert says that an alert is dealt with, and how. For people who operate.
func (c *Client) ResolveAlert(ctx context.Context, id, reason string) (*Alert, error) {
	return do[Alert](ctx, c, http.MethodPost, "/v1/alerts/"+seg(id)+"/resolve", reasonBody{reason})
}
