package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/session"
	"sallyport.example/provenance"
)

const (
	// maxSeen bounds what is kept of one result, in bytes; of a larger one nothing is, so it confirms nothing.
	maxSeen = 1 << 20
)

// witness is what a session has seen, as far as memory has it: an index of what the store keeps. It is brought up to date before it is asked,
// so replicas see one another's evidence.
type witness struct {
	once  sync.Once
	said  *provenance.Request
	mu    sync.Mutex // guards the rest
	index provenance.Evidence
	last  int64             // number of the newest evidence in the index
	under map[string]string // operation -> digest of the profile under which its evidence is in the index, or was left out
}

// words are the person's request, read once: it doesn't change in a session.
func (w *witness) words(s *session.Session) *provenance.Request {
	w.once.Do(func() { w.said = provenance.ParseRequest(s.UserRequest) })
	return w.said
}

// profileDigest is the digest of what the operator says about an operation today; "" of one that nobody knows any more.
func (g *Gateway) profileDigest(operation string) string {
	if op := g.catalogue.ByID(operation); op != nil {
		return op.Profile.Digest()
	}
	return ""
}

// catchUp takes in what was kept since. Evidence that was taken under other labels than today's is left out, but for what the session gave
// away, which confirms nothing. The caller holds mu.
func (w *witness) catchUp(ctx context.Context, g *Gateway, sessionID string) error {
	for op, digest := range w.under {
		if g.profileDigest(op) != digest { // the operator's word has changed since: read it all again
			w.index, w.last, w.under = provenance.Evidence{}, 0, nil
			break
		}
	}
	kept, err := g.store.Evidence(ctx, sessionID, w.last)
	if err != nil {
		return err
	}
	for _, ev := range kept {
		var seen provenance.Observation
		if err := json.Unmarshal(ev.Body, &seen); err != nil {
			return fault.Wrap(err, fault.StoreUnavailable, "What the session has seen can't be read.")
		}
		w.last = ev.Seq
		if seen.GivenAway == nil {
			if w.under == nil {
				w.under = map[string]string{}
			}
			digest, known := w.under[seen.Operation]
			if !known {
				digest = g.profileDigest(seen.Operation)
				w.under[seen.Operation] = digest
			}
			if digest != ev.Rules {
				continue
			}
		}
		w.index.Add(seen)
	}
	return nil
}

// finding is what the log has of a finding: everything but the value.
type finding struct {
	Argument  string                  `json:"argument"`
	Role      provenance.Role         `json:"role"`
	Confirmed bool                    `json:"vouched"`
	By        provenance.Confirmation `json:"by,omitempty"`
	Text      string                  `json:"text"`
	Operation string                  `json:"operation,omitempty"`
	CallID    string                  `json:"call_id,omitempty"`
	Record    int                     `json:"record,omitempty"`
	Field     string                  `json:"field,omitempty"`
}

// evidenceDetail is what the log has of what the trace found; nil where nothing was traced.
func (c *crossing) evidenceDetail() []finding {
	r := c.judged.facts.Evidence.Ruling
	if r == nil {
		return nil
	}
	var all []finding
	for _, f := range r.Evidence[:min(len(r.Evidence), judge.MaxShown)] {
		all = append(all, finding{f.Argument, f.Role, f.Confirmed, f.By, f.Text, f.Operation, f.CallID, f.Record, f.Field})
	}
	return all
}

// shownEvidence is what a person is shown of it.
func (c *crossing) shownEvidence() []approval.Finding {
	r := c.judged.facts.Evidence.Ruling
	if r == nil {
		return nil
	}
	var all []approval.Finding
	for _, f := range r.Evidence {
		all = append(all, approval.Finding{
			Argument: f.Argument, Role: string(f.Role), Value: f.Value, Confirmed: f.Confirmed, By: string(f.By), Text: f.Text, Operation: f.Operation, CallID: f.CallID,
			Record: f.Record, Field: f.Field, Covers: f.Covers,
		})
	}
	return all
}

// maxSources bounds the records that a question says its answer covers.
const maxSources = 10

// codeSource is the code of reasons that say what else a yes covers.
const codeSource = "flow.source"

// sources say what else a yes covers: one source is asked about once (PV-8).
func (c *crossing) sources() []approval.Reason {
	e := &c.judged.facts.Evidence
	if !e.Unconfirmed() {
		return nil
	}
	var names []string
	var all []approval.Reason
	for _, f := range e.Ruling.Evidence {
		if f.Confirmed {
			continue
		}
		if f.Role.Core() || f.Role.Soft() { // not a link in what is sent
			names = append(names, f.Argument)
		}
		if !f.Covers || len(all) == maxSources {
			continue
		}
		r := approval.Reason{Stage: "flow", Code: codeSource, Text: fmt.Sprintf(
			"Your yes also covers other values of %s that the system set in the same record (%d of %s), for the rest of this session.", shownWord(f.Argument), f.Record, f.Operation)}
		if !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return append(usedAgain(c.op.ID, names), all...)
}

// usedAgain says that an approval confirms the values of the arguments with these names beyond the one call.
func usedAgain(operation string, arguments []string) []approval.Reason {
	var names []string
	more := 0
	for _, name := range arguments {
		switch name = shownWord(name); {
		case slices.Contains(names, name):
		case len(names) == maxSources:
			more++
		default:
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	list := strings.Join(names, ", ")
	if more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return []approval.Reason{{Stage: "flow", Code: codeSource, Text: fmt.Sprintf(
		"Your yes also lets the values of %s be used again in calls of %s, with any other arguments, for the rest of this session.", list, operation)}}
}

// shownWord is a name out of a call for a sentence.
func shownWord(s string) string { return short(display.Line(s, 80)) }

// sameEvidence tells whether no value is unconfirmed by now that the person was not shown as unconfirmed.
func (c *crossing) sameEvidence(a approval.Approval) bool {
	e := &c.judged.facts.Evidence
	if !e.Unconfirmed() {
		return true
	}
	return slices.ContainsFunc(a.Reasons, func(r approval.Reason) bool { return r.Stage == "flow" }) &&
		!slices.ContainsFunc(e.Ruling.Evidence, func(f provenance.Finding) bool {
			return !f.Confirmed && !slices.ContainsFunc(a.Evidence, func(s approval.Finding) bool { return s.Argument == f.Argument && s.Value == f.Value && !s.Confirmed })
		})
}

// kept is what of a call is evidence from its intent on: what a person has approved, having been shown where it came from; and what a write
// gives away in a session that outsiders have written in, so that it is not believed when it is read back.
func (c *crossing) kept() ([]Evidence, error) {
	var all []Evidence
	if answer := c.judged.facts.Answer; answer.ByPerson() && len(answer.Approval.Evidence) > 0 && c.effect.Traits().Traced {
		var shown []provenance.Finding
		if r := c.judged.facts.Evidence.Ruling; r != nil {
			shown = r.Evidence
		}
		body, err := json.Marshal(provenance.Approve(c.op.ID, c.id, c.op.Profile, c.args, shown, c.raised().Labels))
		if err != nil {
			return nil, err
		}
		all = append(all, c.evidence(body))
	}
	if s := c.raised(); c.writes && s.Holds(flow.Untrusted) {
		for _, given := range [][]byte{c.args, c.answers} {
			if given == nil {
				continue
			}
			body, err := json.Marshal(provenance.GivenAway(c.op.ID, c.id, c.op.Profile, given))
			if err == nil && len(body) > maxSeen {
				body, err = json.Marshal(provenance.GivenAway(c.op.ID, c.id, nil, nil)) // it may have been anything
			}
			if err != nil {
				return nil, err
			}
			all = append(all, c.evidence(body))
		}
	}
	return all, nil
}

func (c *crossing) evidence(body []byte) Evidence {
	return Evidence{CallID: c.id, Rules: c.op.Profile.Digest(), Body: body}
}

// observe reads what came back by what the operator says about the operation: what it shows, and whether it can be trusted. Both are one
// decision, but that what is trusted without a shape is so however much it is.
func (c *crossing) observe(result json.RawMessage) (seen provenance.Observation, trusted bool) {
	payloads, plain := c.effect.Payloads(result)
	seen = provenance.Observe(c.op.Profile, c.live.seen.words(c.session), provenance.Result{Operation: c.op.ID, CallID: c.id, Arguments: c.args, Payloads: payloads})
	switch out := c.op.Class.Output; {
	case out == provenance.TrustedOutput && c.op.Class.Shape == nil:
		return seen, true
	case out != provenance.TrustedOutput && out != provenance.TypedOutput:
		return seen, false
	case !plain || call.Check(result, resultLimits) != nil:
		return provenance.Observation{}, false // there is more in it than the shape could speak for
	}
	return seen, seen.Trusted
}

// resultLimits bound a result that is held against a shape.
var resultLimits = call.Limits{Bytes: 8 << 20, Depth: 64, Members: 100_000}

// keepSeen makes evidence of what a result showed; none where it showed nothing, or too much.
func (c *crossing) keepSeen(seen provenance.Observation) []Evidence {
	if len(seen.Records) == 0 {
		return nil
	}
	body, err := json.Marshal(seen)
	if err != nil || len(body) > maxSeen {
		return nil
	}
	return []Evidence{c.evidence(body)}
}
