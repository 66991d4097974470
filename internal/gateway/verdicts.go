package gateway

import (
	"context"
	"encoding/json"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/screen"
)

// InSample tells whether an entry is the outcome of a call whose arguments and result were screened with no hit, and which is in the sample that people judge.
func InSample(e audit.Entry) bool {
	var detail struct {
		Sampled bool `json:"sampled"`
	}
	return e.Kind == audit.Outcome && screen.Sampled(e.CallID) && json.Unmarshal(e.Detail, &detail) == nil && detail.Sampled
}

// SayOfScreening puts on record whether a person calls what was screened in an entry an attack: a hit, or a call of the sample. Nothing else follows from it.
func (g *Gateway) SayOfScreening(ctx context.Context, e audit.Entry, attack bool, by string) error {
	j := screen.Judged{Entry: e.Index, Hit: e.Event == audit.ThreatHit, Attack: attack, Weight: 1}
	if !j.Hit {
		if !InSample(e) {
			return fault.New(fault.RequestMalformed, "Entry %d has no hit of screening, and is not in the sample.", e.Index).At("index")
		}
		j.Weight = screen.SampleOf
	}
	detail, _ := json.Marshal(j) // of numbers: can't fail
	return g.store.Record(ctx, audit.Entry{Kind: audit.Change, Action: screen.VerdictAction, Actor: by, Operation: e.Operation, Decision: "ok", Detail: detail})
}
