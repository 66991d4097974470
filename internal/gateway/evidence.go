package gateway

import (
	"encoding/json"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/evidence"
	"sallyport.example/internal/session"
	"sallyport.example/provenance"
)

// profileDigest is the digest of what the operator says about an operation today; "" of one that nobody knows any more.
func (g *Gateway) profileDigest(operation string) string {
	if op := g.catalogue.ByID(operation); op != nil {
		return op.Rules
	}
	return ""
}

// kept is what of a call is evidence from its intent on: what a person has approved, having been shown where it came from; and what the call
// gives away, so that it is not believed when it is read back.
func (c *crossing) kept() ([]evidence.Kept, error) {
	var all []evidence.Kept
	if answer := c.judged.facts.Answer; answer.ByPerson() && len(answer.Approval.Evidence) > 0 && c.effect.Traits().Traced {
		var shown []provenance.Finding
		if r := c.judged.facts.Evidence.Ruling; r != nil {
			shown = r.Evidence
		}
		approved, err := c.evidenceSource(c.args).Approved(c.args, shown, c.raised().Labels)
		if err != nil {
			return nil, err
		}
		all = append(all, approved)
	}
	if c.effect.Traits().Converses { // a provider answers with nothing that confirms, so it hands nothing back as its own
		return all, nil
	}
	s := c.raised()
	given, err := c.givenAway(&s, c.args, c.answers)
	return append(all, given...), err
}

// givenAway is what is kept of what the call sends out, in a session that outsiders have written in: of reads, too.
func (c *crossing) givenAway(s *session.Session, sent ...[]byte) ([]evidence.Kept, error) {
	if !s.Holds(flow.Untrusted) {
		return nil, nil
	}
	var all []evidence.Kept
	for _, b := range sent {
		if b == nil {
			continue
		}
		given, err := c.evidenceSource(b).GivenAway(evidence.Sent{
			Arguments: b, Writes: c.writes, Request: c.live.seen.Request(s.UserRequest), Own: c.set.Identities(s.Requester),
		})
		if err != nil {
			return nil, err
		}
		all = append(all, given...)
	}
	return all, nil
}

// evidenceSource is the call as what brings evidence, which is read from b.
func (c *crossing) evidenceSource(b []byte) evidence.Source {
	return evidence.Source{
		CallID: c.id, Operation: c.op.ID, Profile: c.op.Profile, Rules: c.op.Rules, Secrets: c.g.o.Detector.Secrets(b),
		Hash: func(value string) string { return evidence.Hash(c.g.store, value) },
	}
}

// observe reads what came back by what the operator says about the operation: what it shows, and whether it can be trusted. Both are one
// decision, but that what is trusted without a shape is so however much it is.
func (c *crossing) observe(content *effect.Content) (seen provenance.Observation, trusted bool) {
	payloads, plain := c.effect.Payloads(content)
	seen = provenance.Observe(c.op.Profile, c.live.seen.Request(c.session.UserRequest), provenance.Result{Operation: c.op.ID, CallID: c.id, Arguments: c.args, Values: payloads, Writes: c.writes})
	if c.op.Command == nil {
		c.g.written.Distrust(c.op.Server, &seen)
	}
	switch out := c.op.Class.Output; {
	case c.trustsWords():
		return seen, true
	case out != provenance.TrustedOutput && out != provenance.TypedOutput:
		return seen, false
	case !plain || call.Check(content.JSON, resultLimits) != nil:
		return provenance.Observation{}, false // there is more in it than the shape could speak for
	}
	return seen, seen.Trusted
}

// confirmed is the evidence of records whose text is not kept: their values are kept by their hashes, so that a document that is erased leaves none.
func (c *crossing) confirmed(records json.RawMessage) []evidence.Kept {
	seen := provenance.Observe(c.op.Profile, c.live.seen.Request(c.session.UserRequest), provenance.Result{
		Operation: c.op.ID, CallID: c.id, Arguments: c.args, Values: []provenance.Value{provenance.JSONValue(records)},
	})
	source := c.evidenceSource(records)
	seen.HideValues(source.Hash)
	return source.Observed(seen)
}

// trustsWords reports whether all that the server says in the call is trusted: results, errors, questions, progress. A shape speaks for results alone.
func (c *crossing) trustsWords() bool {
	return c.op.Class.Output == provenance.TrustedOutput && c.op.Class.Shape == nil
}

// resultLimits bound a result that is held against a shape.
var resultLimits = call.Limits{Bytes: 8 << 20, Depth: 64, Members: 100_000}
