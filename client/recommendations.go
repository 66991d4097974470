package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Recommendation is what an agent recommends. State is advice, blocked, pending, accepted, carried_out, failed, rejected, expired or superseded.
type Recommendation struct {
	RecommendationID string           `json:"recommendation_id"`
	RunID            string           `json:"run_id,omitempty"`
	SessionID        string           `json:"session_id"`
	AgentID          string           `json:"agent_id"`
	Declaration      string           `json:"declaration"` // digest
	Model            string           `json:"model"`
	Requester        string           `json:"requester,omitempty"`
	At               time.Time        `json:"at"`
	Synthetic        bool             `json:"synthetic"` // always: an agent said it
	Output           json.RawMessage  `json:"output"`
	Labels           []string         `json:"labels,omitempty"` // of data that may stand in the output
	Citations        []Citation       `json:"citations,omitempty"`
	Claims           []ConfirmedClaim `json:"claims,omitempty"` // what the schema marks with x-claim
	Action           string           `json:"action"`
	Call             *RecommendedCall `json:"call,omitempty"`
	Digest           string           `json:"digest"` // what an answer names
	State            string           `json:"state"`
	ExpiresAt        time.Time        `json:"expires_at,omitzero"` // until when people can answer it
	Why              string           `json:"why,omitempty"`
	DecidedBy        []string         `json:"decided_by,omitempty"`
	DecidedAt        time.Time        `json:"decided_at,omitzero"`
}

// ConfirmedClaim is a claim in an output that its sources confirm.
type ConfirmedClaim struct {
	Field       string   `json:"field"`
	Confidence  float64  `json:"confidence"`
	ConfirmedBy []string `json:"confirmed_by"`
}

// Found says what the sources say of the claim.
func (c *ConfirmedClaim) Found() string {
	return fmt.Sprintf("confidence %.2f, confirmed by %s", c.Confidence, strings.Join(c.ConfirmedBy, ", "))
}

// RecommendedCall is the exact call that a recommendation is about. From says of each argument where in the output it comes from.
type RecommendedCall struct {
	Operation  string            `json:"operation"`
	Arguments  json.RawMessage   `json:"arguments"`
	From       map[string]string `json:"from"`
	Risk       string            `json:"risk,omitempty"`
	Needed     int               `json:"needed,omitempty"`
	SessionID  string            `json:"session_id,omitempty"`
	ApprovalID string            `json:"approval_id,omitempty"`
	CallID     string            `json:"call_id,omitempty"`
	ExpiresAt  time.Time         `json:"expires_at,omitzero"`
}

// RecommendationPage is a page of recommendations, the newest first. Next is "" on the last one.
type RecommendationPage struct {
	Recommendations []Recommendation `json:"recommendations"`
	Next            string           `json:"next,omitempty"`
	Snapshot        string           `json:"snapshotId,omitempty"` // of an export: what it is named by
}

// Recommended is what became of an output that a session recommended.
type Recommended struct {
	RecommendationID string `json:"recommendation_id"`
	State            string `json:"state"`
	Why              string `json:"why,omitempty"`
}

// Recommendations lists recommendations of an agent, or with "" of all, in a state, or with "" in any.
func (c *Client) Recommendations(ctx context.Context, agent, state, after string) (*RecommendationPage, error) {
	v := url.Values{}
	set(v, "agent", agent)
	set(v, "state", state)
	set(v, "after", after)
	return get[RecommendationPage](ctx, c, "/v1/recommendations", v)
}

// ExportRecommendations lists those that people answered: all that anything may be learned from.
// The first page names the export (Snapshot); the further ones are asked for with it.
func (c *Client) ExportRecommendations(ctx context.Context, after, snapshot string) (*RecommendationPage, error) {
	v := url.Values{}
	set(v, "after", after)
	set(v, "snapshotId", snapshot)
	return get[RecommendationPage](ctx, c, "/v1/recommendations/export", v)
}

// Recommendation returns one.
func (c *Client) Recommendation(ctx context.Context, id string) (*Recommendation, error) {
	return get[Recommendation](ctx, c, "/v1/recommendations/"+seg(id), nil)
}

// ApproveRecommendation says yes to the recommendation that the digest names.
func (c *Client) ApproveRecommendation(ctx context.Context, id, digest, comment string) (*Recommendation, error) {
	return do[Recommendation](ctx, c, http.MethodPost, "/v1/recommendations/"+seg(id)+"/approve", struct {
		Digest  string `json:"digest"`
		Comment string `json:"comment,omitempty"`
	}{digest, comment})
}

// RejectRecommendation says no.
func (c *Client) RejectRecommendation(ctx context.Context, id, reason string) (*Recommendation, error) {
	return do[Recommendation](ctx, c, http.MethodPost, "/v1/recommendations/"+seg(id)+"/reject", reasonBody{reason})
}

// DeferRecommendation puts the answer off, until a time or with none until somebody takes it up. The expiry stays.
func (c *Client) DeferRecommendation(ctx context.Context, id, digest string, until time.Time) (*Recommendation, error) {
	return do[Recommendation](ctx, c, http.MethodPost, "/v1/recommendations/"+seg(id)+"/defer", struct {
		Digest string    `json:"digest,omitempty"`
		Until  time.Time `json:"until,omitzero"`
	}{digest, until.UTC()})
}

// Recommend stores an output of the credential's session as a recommendation. It is for agents.
func (c *Client) Recommend(ctx context.Context, output json.RawMessage) (*Recommended, error) {
	return do[Recommended](ctx, c, http.MethodPost, "/v1/session/self/recommendations", output)
}
