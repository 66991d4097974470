package gateway

import (
	"context"
	"encoding/json"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/screen"
)

// VerdictAction is the action of an entry about what a person says of something that was screened.
const VerdictAction = "screening.verdict"

// Unfound tells whether an entry is of a call that was screened without a hit and is in the sample that people judge.
func Unfound(e audit.Entry) bool {
	return e.Kind == audit.Outcome && e.Action == effect.Action(call.CallTool) && e.Event != audit.ThreatHit && screen.Sampled(e.CallID)
}

// SayOfScreening puts on record whether a person calls what was screened in an entry an attack: a hit, or a call of the sample. Nothing else follows from it.
func (g *Gateway) SayOfScreening(ctx context.Context, e audit.Entry, attack bool, by string) error {
	j := screen.Judged{Entry: e.Index, Hit: e.Event == audit.ThreatHit, Attack: attack, Weight: 1}
	if !j.Hit {
		if !Unfound(e) {
			return fault.New(fault.RequestMalformed, "Entry %d has no hit of screening, and is not in the sample.", e.Index).At("index")
		}
		j.Weight = screen.SampleOf
	}
	detail, _ := json.Marshal(j) // of numbers: can't fail
	return g.store.Record(ctx, audit.Entry{Kind: audit.Change, Action: VerdictAction, Actor: by, Operation: e.Operation, Decision: "ok", Detail: detail})
}
