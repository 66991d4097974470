package replay

import (
	"sallyport.example/flow"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/judge"
	"sallyport.example/provenance"
)

// tool is one operation under its label.
type tool struct {
	op      flow.Operation
	profile *provenance.Profile
}

// state is what the gateway would keep of a session, as far as the flow rules look at it.
type state struct {
	rules    judge.Rules
	own      []string // the person's own addresses and accounts
	words    *provenance.Request
	held     []flow.Held
	evidence *provenance.Evidence
	sealed   *provenance.SealedPlan // nil: no plan was approved
}

// rule asks the stages of a replay (judge.Replay) about a call: the verdict is theirs. Where the call is traced the ruling says where its
// arguments came from; elsewhere labels alone decide.
func (s *state) rule(t tool, args []byte, traced bool) provenance.Ruling {
	f := s.facts(t, args, traced)
	r := provenance.Ruling{Verdict: provenance.Permit, Because: []flow.Held{}}
	if traced {
		f.Evidence.Ruling, f.Evidence.Unasked, _ = judge.Trace(&f, s.evidence)
		r = *f.Evidence.Ruling
	}
	v, _ := judge.Judge(judge.Replay, &f)
	if decided := provenance.Verdict(v.Decision); decided != r.Verdict { // labels refuse it, wherever its arguments came from
		r = provenance.Ruling{Verdict: decided, Reason: v.Reason, Because: held(v.Because)}
	}
	return r
}

// facts are what the stages are told of a call.
func (s *state) facts(t tool, args []byte, traced bool) judge.Facts {
	return judge.Facts{
		Rules:     &s.rules,
		Caller:    judge.Caller{Own: s.own},
		Session:   judge.Session{Labels: s.held, Request: s.words, Sealed: s.sealed},
		Operation: judge.Operation{ID: t.op.ID, Name: t.op.Name, Level: t.profile.Level, Flow: t.op, Profile: t.profile, Traced: traced},
		Arguments: judge.Arguments{Canonical: args},
		Evidence:  judge.Evidence{Loaded: true},
	}
}

// held are the labels that a verdict names.
func held(because []fault.Because) []flow.Held {
	all := []flow.Held{}
	for _, b := range because {
		if b.Label != "" {
			all = append(all, flow.Held{Label: flow.Label(b.Label), Operation: b.Operation, CallID: b.CallID, Cause: b.Detail})
		}
	}
	return all
}

// tainted tells whether the session holds what outsiders may have written.
func (s *state) tainted() bool {
	for _, h := range s.held {
		if h.Label == flow.Untrusted {
			return true
		}
	}
	return false
}

// raise adds what a session holds after a result, as the gateway decides it: what repeats what it was given is untrusted, an error's text
// too, unless the operation is trusted, or has the shape under which it is.
func (s *state) raise(t tool, id string, seen provenance.Observation, unasked string, found ...flow.Label) {
	if !(seen.Trusted || t.profile.Output == provenance.TrustedOutput && t.profile.Shape == nil) {
		found = append(found, flow.Untrusted)
	}
	for _, h := range (provenance.Ruling{Unasked: unasked}).WithUnasked(flow.Raise(nil, t.op, id, found...), t.op.ID, id) {
		s.held = flow.Raise(s.held, flow.Operation{ID: h.Operation}, h.CallID, h.Label)
	}
}

// giveAway notes what a call gives away, as the gateway does: what outsiders may have had it say is not believed when it is read back.
func (s *state) giveAway(t tool, callID string, args []byte, writes bool) {
	if s.tainted() {
		s.evidence.Add(provenance.GivenAway(provenance.GivenCall{
			Operation: t.op.ID, CallID: callID, Profile: t.profile, Arguments: args, Writes: writes, Request: s.words, Own: s.own,
		}))
	}
}
