package httpapi

import (
	"context"
	"net/http"
	"time"

	"sallyport.example/internal/agent/approved"
	"sallyport.example/internal/agent/deployed"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/limit"
	"sallyport.example/internal/quota"
)

var approver = []identity.Role{identity.Approver}

// ApproveAgentBody names the declaration that the person has read.
type ApproveAgentBody struct {
	Digest string `json:"digest" maxLength:"128" doc:"Of the declaration as it is loaded: see GET /v1/agents/{id}."`
	Reason string `json:"reason,omitempty" maxLength:"2000" doc:"Goes on the record."`
}

// ExportApprovalsBody says which approvals are exported, and for how long.
type ExportApprovalsBody struct {
	Agents    []string `json:"agents,omitempty" maxItems:"1000" doc:"Absent: all that people approved as they are loaded."`
	ExpiresIn int64    `json:"expires_in,omitempty" minimum:"0" maximum:"7776000" doc:"For how many seconds they can be taken over. Default: 7 days."`
}

// ImportApprovalsBody is what another gateway exported.
type ImportApprovalsBody struct {
	Bundle string `json:"bundle" maxLength:"1048576" doc:"As the export gave it."`
}

// QuotaList is the use of each quota, and how fast agents may call.
type QuotaList struct {
	Quotas    []quota.Status   `json:"quotas"`
	Throttles []limit.Throttle `json:"throttles"`
}

// declaredRoutes are the routes by which people approve declarations.
func (a *API) declaredRoutes(s *side) {
	handle(s, route{method: http.MethodPost, path: "/v1/agents/{id}/approve", roles: approver, summary: "Approve an agent's declaration, named by its digest"},
		func(ctx context.Context, p identity.Principal, in *struct {
			PathID
			Body ApproveAgentBody
		}) (Agent, error) {
			if _, err := a.o.Approved.Approve(ctx, in.ID, in.Body.Digest, in.Body.Reason, approval.Voter{Person: p.ID, Roles: p.Roles}); err != nil {
				return Agent{}, err
			}
			return a.agentByID(in.ID)
		})
	handle(s, route{method: http.MethodPost, path: "/v1/agents/approvals/export", roles: approver, summary: "Sign approvals of declarations for other gateways"},
		func(ctx context.Context, p identity.Principal, in *struct{ Body ExportApprovalsBody }) (approved.Bundle, error) {
			return a.o.Approved.Export(ctx, p.String(), in.Body.Agents, time.Duration(in.Body.ExpiresIn)*time.Second)
		})
	handle(s, route{method: http.MethodPost, path: "/v1/agents/approvals/import", roles: approver, summary: "Take over approvals that another gateway signed, under a key that the configuration names"},
		func(ctx context.Context, p identity.Principal, in *struct{ Body ImportApprovalsBody }) (approved.Imported, error) {
			return a.o.Approved.Import(ctx, p.String(), in.Body.Bundle)
		})
	handle(s, route{method: http.MethodGet, path: "/v1/quotas", roles: readers, summary: "What agents have used of their quotas, and how fast they may call"},
		func(ctx context.Context, _ identity.Principal, in *struct {
			Agent string `query:"agent" maxLength:"64"`
		}) (QuotaList, error) {
			found, err := a.g.Quotas(ctx, in.Agent)
			return QuotaList{Quotas: found, Throttles: a.g.Throttles(in.Agent)}, err
		})
	handle(s, route{method: http.MethodGet, path: "/v1/agents/audit", roles: readers, summary: "The deployment checklists, answered from the running gateway"},
		func(ctx context.Context, _ identity.Principal, _ *none) (deployed.Report, error) {
			return a.o.Deployment(ctx)
		})
	handle(s, route{method: http.MethodGet, path: "/v1/agents/{id}/diff", roles: readers, summary: "An agent's declaration compared with the one that was approved, field by field"},
		func(_ context.Context, _ identity.Principal, in *PathID) (approved.Difference, error) {
			d, ok := a.o.Agents().Get(in.ID)
			if !ok {
				return approved.Difference{}, a.g.Standing().Declared(in.ID)
			}
			return a.o.Approved.Difference(d)
		})
}
