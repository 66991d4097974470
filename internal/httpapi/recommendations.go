package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/run"
)

// RecommendationPage is a page of recommendations, the newest first. Next is "after" for the next page.
type RecommendationPage struct {
	Recommendations []run.Recommendation `json:"recommendations"`
	Next            string               `json:"next,omitempty"`
	Snapshot        string               `json:"snapshotId,omitempty" doc:"Of an export: what it is named by. The knowledge store takes its lines in, with this."`
}

// Recommended says what became of an output that a session recommended.
type Recommended struct {
	RecommendationID string                  `json:"recommendation_id"`
	State            run.RecommendationState `json:"state"`
	Why              string                  `json:"why,omitempty" doc:"Why it can't be carried out."`
}

// OutputBody is the whole body: the output, kept as it was sent, which is read strictly elsewhere.
type OutputBody struct {
	sent json.RawMessage
}

// UnmarshalJSON keeps the body.
func (b *OutputBody) UnmarshalJSON(sent []byte) error {
	b.sent = bytes.Clone(sent)
	return nil
}

// RefuseBody is a person's no to a recommendation.
type RefuseBody struct {
	Reason string `json:"reason" maxLength:"2000" doc:"Goes on the record."`
	Digest string `json:"digest" required:"false" maxLength:"128" doc:"Of the recommendation that was read."`
}

// PutOffBody puts an answer off.
type PutOffBody struct {
	Digest string    `json:"digest,omitempty" required:"false" maxLength:"128" doc:"Of what you were shown; without it, the request is postponed as it is now."`
	Until  time.Time `json:"until,omitzero" required:"false"`
}

func (a *API) recommendationRoutes(s *side) {
	approver := []identity.Role{identity.Approver}
	const at = "/v1/recommendations/{id}"
	handle(s, route{method: http.MethodGet, path: "/v1/recommendations", roles: readers, summary: "What agents recommended, newest first"},
		func(ctx context.Context, _ identity.Principal, in *struct {
			Agent string `query:"agent" maxLength:"64"`
			State string `query:"state" maxLength:"32"`
			After string `query:"after" maxLength:"128" doc:"Next of the page before."`
			Limit int    `query:"limit" minimum:"1" maximum:"100" default:"50"`
		}) (RecommendationPage, error) {
			state, err := run.ParseRecommendationState(in.State)
			if err != nil {
				return RecommendationPage{}, err
			}
			found, err := a.o.Runs.Recommendations(ctx, run.RecommendationFilter{Agent: in.Agent, State: state, After: in.After, Limit: in.Limit + 1})
			page := RecommendationPage{Recommendations: found}
			if len(found) > in.Limit {
				page.Recommendations, page.Next = found[:in.Limit], found[in.Limit-1].ID
			}
			return page, err
		})
	handle(s, route{method: http.MethodGet, path: "/v1/recommendations/export", roles: auditor, summary: "Recommendations that people answered, with who and when: all that anything may be learned from"},
		func(ctx context.Context, _ identity.Principal, in *struct {
			After    string `query:"after" maxLength:"128" doc:"Next of the page before."`
			Snapshot string `query:"snapshotId" maxLength:"128" doc:"The snapshotId of the page before; without it a new export begins."`
			Limit    int    `query:"limit" minimum:"1" maximum:"100" default:"50"`
		}) (RecommendationPage, error) {
			if in.Snapshot == "" {
				var err error
				if in.Snapshot, err = a.o.Runs.ExportOf(ctx); err != nil {
					return RecommendationPage{}, err
				}
			}
			all, next, err := a.o.Runs.Learned(ctx, in.After, in.Snapshot, in.Limit)
			return RecommendationPage{Recommendations: all, Next: next, Snapshot: in.Snapshot}, err
		})
	handle(s, route{method: http.MethodGet, path: at, roles: readers, summary: "A recommendation, with the exact call that it is about"},
		func(ctx context.Context, _ identity.Principal, in *PathID) (run.Recommendation, error) {
			return a.o.Runs.Recommendation(ctx, in.ID)
		})
	handle(s, route{method: http.MethodPost, path: at + "/approve", roles: approver, asks: "Approve the recommendation", summary: "Say yes to what the digest names: the vote on its call, which is carried out once there are enough"},
		func(ctx context.Context, p identity.Principal, in *struct {
			PathID
			Body ApproveBody
		}) (run.Recommendation, error) {
			return a.o.Runs.Respond(ctx, a.voter(p), in.ID, desk.Response{Decision: approval.Approve, Digest: in.Body.Digest, Reason: in.Body.Comment})
		})
	handle(s, route{method: http.MethodPost, path: at + "/reject", roles: approver, asks: "Reject the recommendation", summary: "Say no to a recommendation"},
		func(ctx context.Context, p identity.Principal, in *struct {
			PathID
			Body RefuseBody
		}) (run.Recommendation, error) {
			return a.o.Runs.Respond(ctx, a.voter(p), in.ID, desk.Response{Decision: approval.Reject, Digest: in.Body.Digest, Reason: in.Body.Reason})
		})
	handle(s, route{method: http.MethodPost, path: at + "/defer", roles: approver, asks: "Postpone the recommendation", summary: "Put the answer off; the expiry stays"},
		func(ctx context.Context, p identity.Principal, in *struct {
			PathID
			Body PutOffBody
		}) (run.Recommendation, error) {
			return a.o.Runs.Respond(ctx, a.voter(p), in.ID, desk.Response{Decision: approval.Deferral, Digest: in.Body.Digest, Until: in.Body.Until})
		})
}

// submitRoutes take recommendations of sessions.
func (a *API) submitRoutes(s *side) {
	handle(s, route{method: http.MethodPost, path: "/v1/session/{id}/recommendations", status: http.StatusCreated, listsFields: true, summary: "Recommend: the body is an output that the declaration's schema allows"},
		func(ctx context.Context, p identity.Principal, in *struct {
			SessionRef
			Body OutputBody
		}) (Recommended, error) {
			rec, err := a.o.Runs.Submit(ctx, p, in.session(), in.Body.sent)
			return Recommended{RecommendationID: rec.ID, State: rec.State, Why: rec.Why}, err
		})
}
