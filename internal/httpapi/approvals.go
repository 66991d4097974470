package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/identity"
)

// ApprovalPage is a page of approvals, newest first. Next is "after" for the next page; the last page has none.
type ApprovalPage struct {
	Approvals []desk.Question `json:"approvals"`
	Next      string          `json:"next,omitempty"`
}

// ApproveBody, RejectBody and DeferBody are a person's answers to the question with the digest.
type (
	ApproveBody struct {
		Digest  string `json:"digest" maxLength:"128" doc:"Of what you were shown."`
		Comment string `json:"comment" required:"false" maxLength:"2000"`
	}
	RejectBody struct {
		Digest string `json:"digest" maxLength:"128" doc:"Of what you were shown."`
		Reason string `json:"reason" maxLength:"2000" doc:"The agent is told."`
	}
	DeferBody struct {
		Digest string    `json:"digest,omitempty" required:"false" maxLength:"128" doc:"Of what you were shown; without it, the request is postponed as it is now."`
		Until  time.Time `json:"until,omitzero" required:"false" doc:"When to ask again; else when somebody takes it up. The deadline stays."`
	}
)

// ModifyBody holds the arguments that a person wants instead (DE-4).
type ModifyBody struct {
	Arguments json.RawMessage `json:"arguments" doc:"All of them: the object that the operation would be called with."`
	Reason    string          `json:"reason" maxLength:"2000" doc:"The agent is told."`
	Digest    string          `json:"digest,omitempty" required:"false" maxLength:"128" doc:"Of what you were shown; without it the change is to what is asked now."`
}

// BatchBody answers similar approvals at once (DE-5), each under its own digest.
type BatchBody struct {
	Decision  approval.Decision `json:"decision" enum:"approve,reject,defer"`
	Reason    string            `json:"reason" required:"false" maxLength:"2000" doc:"Needed to reject; a comment otherwise."`
	Approvals []BatchItem       `json:"approvals" minItems:"1" maxItems:"100"`
}

// BatchItem is one of a batch.
type BatchItem struct {
	Approval string `json:"approval_id" maxLength:"128"`
	Digest   string `json:"digest" maxLength:"128" doc:"Of what you were shown."`
}

// BatchAnswer is the outcome of each item of a batch, in its order.
type BatchAnswer struct {
	Approvals []desk.Batched `json:"approvals"`
}

// approvalRoutes are the questions to people and their answers. An answer runs nothing: the agent makes the call again, and it is judged again.
func (a *API) approvalRoutes(s *side) {
	const at = "/v1/approvals/{id}"
	approver := []identity.Role{identity.Approver}
	handle(s, route{method: http.MethodGet, path: "/v1/approvals", roles: readers, summary: "What agents ask people for, newest first"},
		func(ctx context.Context, _ identity.Principal, in *struct {
			State   string `query:"state" enum:"pending,approved,rejected,deferred,expired,spent,superseded"`
			Session string `query:"session" maxLength:"128"`
			After   string `query:"after" maxLength:"128" doc:"Next of the page before."`
			Limit   int    `query:"limit" minimum:"1" maximum:"500" default:"100"`
		}) (ApprovalPage, error) {
			found, err := a.g.Desk().Questions(ctx, approval.State(in.State), in.Session, in.After, in.Limit+1)
			if err != nil {
				return ApprovalPage{}, err
			}
			page := ApprovalPage{Approvals: found}
			if len(found) > in.Limit {
				page.Approvals = found[:in.Limit]
				page.Next = found[in.Limit-1].ID
			}
			return page, nil
		})
	handle(s, route{method: http.MethodGet, path: at, roles: readers, summary: "One approval with what it is about"},
		func(ctx context.Context, _ identity.Principal, in *PathID) (desk.Question, error) {
			return a.g.Desk().Question(ctx, in.ID)
		})
	handle(s, route{method: http.MethodPost, path: at + "/approve", roles: approver, asks: "Approve", summary: "Say yes to what the digest names"},
		func(ctx context.Context, p identity.Principal, in *struct {
			PathID
			Body ApproveBody
		}) (desk.Question, error) {
			return a.g.Desk().Respond(ctx, a.voter(p), desk.Response{Approval: in.ID, Decision: approval.Approve, Digest: in.Body.Digest, Reason: in.Body.Comment})
		})
	handle(s, route{method: http.MethodPost, path: at + "/reject", roles: approver, asks: "Reject", summary: "Say no to what the digest names"},
		func(ctx context.Context, p identity.Principal, in *struct {
			PathID
			Body RejectBody
		}) (desk.Question, error) {
			return a.g.Desk().Respond(ctx, a.voter(p), desk.Response{Approval: in.ID, Decision: approval.Reject, Digest: in.Body.Digest, Reason: in.Body.Reason})
		})
	handle(s, route{method: http.MethodPost, path: at + "/defer", roles: approver, asks: "Postpone", summary: "Put the answer off; the expiry stays"},
		func(ctx context.Context, p identity.Principal, in *struct {
			PathID
			Body DeferBody
		}) (desk.Question, error) {
			if in.Body.Digest == "" { // postponing decides nothing; the console has the digest of its page
				q, err := a.g.Desk().Question(ctx, in.ID)
				if err != nil {
					return q, err
				}
				in.Body.Digest = q.Digest
			}
			return a.g.Desk().Respond(ctx, a.voter(p), desk.Response{Approval: in.ID, Decision: approval.Deferral, Digest: in.Body.Digest, Until: in.Body.Until})
		})
	handle(s, route{method: http.MethodPost, path: at + "/modify", roles: approver, asks: "Ask about other arguments than those of", summary: "Ask about the same with other arguments; the answer is the new question, which waits to be answered"},
		func(ctx context.Context, p identity.Principal, in *struct {
			PathID
			Body ModifyBody
		}) (desk.Question, error) {
			return a.g.Desk().Modify(ctx, a.voter(p), desk.Modification{Approval: in.ID, Digest: in.Body.Digest, Arguments: in.Body.Arguments, Reason: in.Body.Reason})
		})
	handle(s, route{method: http.MethodGet, path: "/v1/approvals/figures", roles: readers, summary: "How people answered the newest requests"},
		func(ctx context.Context, _ identity.Principal, _ *struct{}) (desk.VoteCounts, error) {
			return a.g.Desk().VoteCounts(ctx)
		})
	handle(s, route{method: http.MethodPost, path: "/v1/approvals/batch", roles: approver, asks: "Answer requests", summary: "Answer similar approvals with one decision"},
		func(ctx context.Context, p identity.Principal, in *struct{ Body BatchBody }) (BatchAnswer, error) {
			var answers []desk.Response
			for _, one := range in.Body.Approvals {
				answers = append(answers, desk.Response{Approval: one.Approval, Digest: one.Digest, Decision: in.Body.Decision, Reason: in.Body.Reason})
			}
			all, err := a.g.Desk().RespondTogether(ctx, a.voter(p), answers)
			return BatchAnswer{Approvals: all}, err
		})
}

// voter is the person of the credential, with the roles that they have today, as the one who answers.
func (a *API) voter(p identity.Principal) approval.Voter {
	return approval.Voter{Person: p.ID, Roles: p.Roles}
}
