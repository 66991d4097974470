package gateway

import (
	"context"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/evidence"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/session"
	"sallyport.example/provenance"
)

// origins are what the session of a request has read, and where its arguments came from, for people to look at. Where no rule asked for it the
// arguments are traced as if a stranger had written in the session: a person who decides wants to know all the same.
func (g *Gateway) origins(ctx context.Context, a approval.Approval, s session.Session) (desk.Origins, error) {
	var out desk.Origins
	kept, err := g.store.Evidence(ctx, a.Session, 0)
	if err != nil {
		return out, err
	}
	var index provenance.Evidence
	index.HashWith(func(value string) string { return evidence.Hash(g.store, value) })
	for _, ev := range kept {
		var seen provenance.Observation
		if err := seen.UnmarshalBinary(ev.Body); err != nil {
			return out, fault.Wrap(err, fault.StoreUnavailable, "What the session has seen can't be read.")
		}
		if seen.GivenAway == nil && ev.Rules != g.profileDigest(seen.Operation) { // it confirms nothing under today's labels, and was read all the same
			out.Reads = append(out.Reads, seen.Reads()...)
			continue
		}
		index.Add(seen)
		out.Reads = append(out.Reads, seen.Reads()...)
	}
	op := g.catalogue.ByID(a.Operation)
	if len(a.Evidence) > 0 || op == nil || op.Hash != a.DefinitionHash || !op.Profile.HasRoles() {
		return out, nil
	}
	ruling := provenance.JudgeCall(op.Flow, op.Profile, a.Arguments, provenance.Situation{
		Held: []flow.Held{{Label: flow.Untrusted}}, Request: provenance.ParseRequest(s.UserRequest), Own: g.settings.Load().Identities(s.Requester), Evidence: &index,
	})
	out.Findings = evidence.ForPerson(&ruling)
	return out, nil
}
