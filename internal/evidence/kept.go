// Package evidence holds what a session has seen: pieces of it as they are kept, an index of them, and what the record and people are told of
// a finding.
//
// Promises: evidence that was taken under other labels than today's confirms nothing; a piece is bounded, and what is too large confirms
// nothing; what was given away stays given away, also in the agent's next session.
package evidence

import (
	"sallyport.example/flow"
	"sallyport.example/internal/fault"
	"sallyport.example/provenance"
)

const (
	// maxBody bounds what is kept of one result, in bytes; of a larger one nothing is, so it confirms nothing.
	maxBody = 1 << 20

	// What the next session takes over of what the one before gave away: above it, that may have been anything.
	maxTaken    = 1000    // pieces
	maxTakenAll = 4 << 20 // bytes
)

// The bounds of what one session keeps. After the first piece that has no room, none is kept.
const (
	MaxPieces = 20_000
	MaxBytes  = 16 << 20

	MaxPiecesBefore = 2000 // in versions before: a session with as many may have left out more
)

// Full is the body of the last piece where there was no room in bytes.
const Full = "{}"

// Kept is what one result showed, what a person approved, or what a call gave away, as it is kept.
type Kept struct {
	Seq    int64 // of its session, from 1; the store's
	CallID string
	Rules  string // digest of the profile that it was observed under: under another one it is worth nothing
	Body   []byte // a provenance.Observation in its binary form, at most 1 MiB
}

// Source is the call that brings evidence.
type Source struct {
	CallID    string
	Operation string
	Profile   *provenance.Profile
	Rules     string                    // its digest
	Secrets   []string                  // that were found in what it brings: kept by their hashes
	Hash      func(value string) string // of a value with a secret
}

func (s Source) kept(body []byte) Kept {
	return Kept{CallID: s.CallID, Rules: s.Rules, Body: body}
}

// Observed makes evidence of what a result showed; none where it showed nothing, or too much.
func (s Source) Observed(seen provenance.Observation) []Kept {
	if len(seen.Records) == 0 {
		return nil
	}
	seen.Hide(s.Secrets, s.Hash)
	body, err := seen.MarshalBinary()
	if err != nil || len(body) > maxBody {
		return nil
	}
	return []Kept{s.kept(body)}
}

// Approved makes evidence of the arguments that a person has approved, having been shown where they came from. labels are what the
// session holds.
func (s Source) Approved(args []byte, shown []provenance.Finding, labels []flow.Held) (Kept, error) {
	approved := provenance.Approve(s.Operation, s.CallID, s.Profile, args, shown, labels)
	approved.Hide(s.Secrets, s.Hash)
	body, err := approved.MarshalBinary()
	return s.kept(body), err
}

// Sent is what a call of an untrusted session sends out.
type Sent struct {
	Arguments []byte
	Writes    bool                // the call may change something
	Request   *provenance.Request // the person's
	Own       []string            // the person's addresses and accounts
}

// GivenAway notes what the call sends out, so that it is not believed when it is read back; nothing where it sends nothing and changes nothing.
func (s Source) GivenAway(sent Sent) ([]Kept, error) {
	of := provenance.GivenCall{Operation: s.Operation, CallID: s.CallID, Profile: s.Profile, Arguments: sent.Arguments, Writes: sent.Writes, Request: sent.Request, Own: sent.Own}
	given := provenance.GivenAway(of)
	if given.GivenAway == nil {
		return nil, nil
	}
	given.Hide(s.Secrets, s.Hash)
	body, err := given.MarshalBinary()
	if err == nil && len(body) > maxBody {
		of.Arguments = nil // it may have been anything
		body, err = provenance.GivenAway(of).MarshalBinary()
	}
	return []Kept{s.kept(body)}, err
}

// TakenOver is what the agent's next own session takes over of what the last one has kept: what that gave away while it was untrusted, and
// those before it. Read back in the next one, it is no more evidence than it was there.
func TakenOver(kept []Kept) ([]Kept, error) {
	var all []Kept
	size, full := 0, len(kept) >= MaxPieces // what was given away later is not there
	for _, ev := range kept {
		var seen provenance.Observation
		if err := seen.UnmarshalBinary(ev.Body); err != nil {
			return nil, fault.Wrap(err, fault.StoreUnavailable, "What the session before has seen can't be read.")
		}
		full = full || string(ev.Body) == Full
		if seen.GivenAway != nil {
			all, size = append(all, ev), size+len(ev.Body)
		}
	}
	if !full && len(all) <= maxTaken && size <= maxTakenAll {
		return all, nil
	}
	return TakenAsAnything()
}

// TakenAsAnything is one piece that says that the session may have given anything away.
func TakenAsAnything() ([]Kept, error) {
	body, err := provenance.GivenAway(provenance.GivenCall{CallID: "session", Writes: true}).MarshalBinary()
	return []Kept{{CallID: "session", Rules: (&provenance.Profile{}).Digest(), Body: body}}, err
}
