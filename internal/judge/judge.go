// Package judge holds the stages that judge a call: one table, read by calls, checks, declarations, changes of arguments, plan steps and
// the replay of recorded work, so that advice and enforcement can't disagree.
//
// Promises: it is pure. It takes Facts and returns a verdict and a Finding; it has no store, no clock and no lock, it does not change the
// facts, and it keeps no state. The same facts give the same decision and the same code at every moment that a stage takes part in.
// Verdicts combine to the strictest: the first deny ends the judgement, and a later stage can only narrow the verdict of an earlier one.
// Missing facts deny.
package judge

import (
	"slices"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/policy"
	"sallyport.example/provenance"
)

// Moment is an occasion on which something is judged. For each moment, a stage takes part or the table says why it does not.
type Moment int

const (
	Call         Moment = iota // a call that is to run
	Check                      // the question whether a call would run
	Declaration                // a call that is declared before it is made
	Modification               // a call whose arguments a person changed
	PlanStep                   // a step of a plan, before the call is made
	Replay                     // a recorded call, under today's rules
)

// Moments are all of them.
var Moments = []Moment{Call, Check, Declaration, Modification, PlanStep, Replay}

func (m Moment) String() string {
	return [...]string{"call", "check", "declaration", "modification", "plan step", "replay"}[m]
}

// stage is one row of the table.
type stage struct {
	name string
	// evidence says that the stage needs Facts.Evidence, or what screening found. The others need only facts held in memory, and run before the store is
	// read and the arguments are screened.
	evidence bool
	// absent gives the reason for each moment in which the stage takes no part.
	absent map[Moment]string
	// lifts tells which verdicts of the stage a gateway that observes only records; nil: none. It names what it lifts, so an error never is.
	lifts func(f *Facts, found *Finding, v *fault.Verdict) bool
	run   func(f *Facts, found *Finding) fault.Verdict
}

// notReplayed is why stages that depend on the state of the day take no part in a replay.
const notReplayed = "a replay applies the flow rules to the past; the state of that day is not on record"

// stages is the table. Its order is a security property (docs/design.md, "The corridor").
var stages = []stage{
	{name: "kill", run: kill, absent: map[Moment]string{
		Replay: notReplayed}},
	{name: "standing", run: standing, absent: map[Moment]string{
		Replay: notReplayed}},
	{name: "phase", run: phase, lifts: codes(fault.PhaseBlocked), absent: map[Moment]string{
		Declaration:  "a declaration may be made in both phases; its call is judged in the phase in which it is made",
		Modification: "a changed call waits for a person and for the agent; it is judged in the phase in which it is made",
		PlanStep:     "an approved plan opens the execution phase",
		Replay:       notReplayed}},
	{name: "declare", run: declared, lifts: codes(fault.DeclarationMissing, fault.DeclarationInvalid, fault.ApprovalRequired, fault.ApprovalExpired, fault.ApprovalMismatch), absent: map[Moment]string{
		Declaration:  "it is the declaration that is judged; its fields are checked when it is read",
		Modification: "the reasons are those of the question whose arguments changed",
		Replay:       notReplayed}},
	{name: "permit", run: permit, absent: map[Moment]string{
		Replay: notReplayed}},
	{name: "parameters", run: parameters, absent: map[Moment]string{
		Replay: notReplayed}},
	{name: "limit", run: limit, absent: map[Moment]string{
		Modification: "it is counted when the agent makes the changed call",
		PlanStep:     "it is counted when the call is made",
		Replay:       notReplayed}},
	{name: "breaker", run: breaker, absent: map[Moment]string{
		Declaration:  "a declaration is made for later; its call meets the breaker as it is then",
		Modification: "a changed call is made later, and meets the breaker as it is then",
		PlanStep:     "a step is called later, and meets the breaker as it is then",
		Replay:       notReplayed}},
	{name: "screen", evidence: true, run: screening, lifts: codes(fault.ApprovalRequired), absent: map[Moment]string{
		Declaration:  "the words of a call are screened when it is made",
		Modification: "the person who changes the arguments has read them",
		PlanStep:     "the words of a step are screened when it is called",
		Replay:       notReplayed}},
	{name: "flow", evidence: true, run: flowRules, lifts: liftsFlow, absent: map[Moment]string{
		PlanStep: "the labels that a step meets depend on the steps before it: flow.Validate judges the whole plan by the same rules"}},
	{name: "plan", evidence: true, run: plan, lifts: codes(fault.ApprovalRequired), absent: map[Moment]string{
		PlanStep: "it is a step of the plan that would open the phase",
		Replay:   notReplayed}},
	{name: "unlisted", evidence: true, run: unlisted, lifts: codes(fault.ApprovalRequired, fault.PermissionDenied), absent: map[Moment]string{
		Modification: "the person who changes the arguments decides about the operation as well",
		Replay:       notReplayed}},
	{name: "risk", evidence: true, run: risk, lifts: liftsRisk, absent: map[Moment]string{
		PlanStep: "a plan answers for no risk: a risky step is asked about when it is called (see StepRisk)",
		Replay:   notReplayed}},
}

// Finding is what the stages learn in addition to the verdict, for the record, the question to a person and the answer.
type Finding struct {
	Rated  bool          // the risk stage has rated the call
	Rating policy.Rating // how risky the call is
	// Silence says that the risk stage leaves the call to a person's silence.
	Silence bool
	// Lifted are the verdicts that a gateway which observes only records, in the order of the stages; nil where none had one.
	Lifted []fault.Verdict
	// DeclaredBy is the digest of the declaration of the call: a declaration made before, the justification in the call, or the sealed plan.
	DeclaredBy string
	// Counts says that the call passed the limit stage: it counts for this minute, whatever its outcome.
	Counts bool

	undecided bool // whether the call is declared depends on evidence
}

// Partial is a judgement of the stages that need no evidence.
type Partial struct {
	moment  Moment
	verdict fault.Verdict // the questions so far, or the deny that ended it
	Found   Finding
}

// Memory runs the stages that need only facts held in memory.
func Memory(m Moment, f *Facts) Partial {
	p := Partial{moment: m, verdict: fault.Permitted()}
	p.run(f, func(s *stage) bool { return !s.evidence })
	return p
}

// Denied reports whether the judgement is complete without evidence.
func (p *Partial) Denied() bool { return p.verdict.Decision == fault.Deny }

// Verdict is the strictest so far.
func (p *Partial) Verdict() fault.Verdict { return p.verdict }

// Finish runs the other stages, once the facts have their evidence. The partial judgement does not change and can be finished again.
func (p Partial) Finish(f *Facts) (fault.Verdict, Finding) {
	if !p.Denied() {
		later := p.Found.undecided
		p.run(f, func(s *stage) bool { return s.evidence || later && s.name == "declare" })
	}
	return WithEvidence(p.Found.withLifted(p.verdict), f), p.Found
}

// Judge runs all stages that take part in the moment.
func Judge(m Moment, f *Facts) (fault.Verdict, Finding) { return Memory(m, f).Finish(f) }

// run runs the wanted stages in their order. The first deny ends it; an ask counts only if no later stage denies.
func (p *Partial) run(f *Facts, wanted func(*stage) bool) {
	for i := range stages {
		s := &stages[i]
		if _, absent := s.absent[p.moment]; absent || !wanted(s) {
			continue
		}
		switch v := p.Found.lift(f, s, s.run(f, &p.Found)); v.Decision {
		case fault.Permit:
		case fault.Ask:
			p.verdict = BothAsk(p.verdict, v)
		default:
			p.verdict = v
			p.verdict.Decision = fault.Deny
			return
		}
	}
}

// BothAsk adds the reasons of one question to those of another; the first one's sentence stays.
func BothAsk(first, v fault.Verdict) fault.Verdict {
	why := v.Because
	if !slices.ContainsFunc(why, IsReason) {
		why = append(slices.Clip(why), fault.Because{Code: fault.ApprovalRequired, Detail: v.Stage + ": " + v.Reason})
	}
	if first.Decision == fault.Permit {
		first, first.Because = v, nil
	}
	first.Because = append(slices.Clip(first.Because), why...)
	return first
}

// IsReason reports whether an entry says why a stage asks: its code, and "stage: reason".
func IsReason(b fault.Because) bool { return b.Code != "" }

// Ask is the verdict of a stage that leaves the decision to a person.
func Ask(stage, reason string) fault.Verdict {
	v := fault.Refuse(stage, fault.ApprovalRequired, reason,
		fault.Remedy{Kind: "approve", Text: "A person has been asked. Make the same call again later: it runs once when it is approved."})
	v.Decision = fault.Ask
	return v
}

// WithEvidence adds the sources of the arguments to a permit, for the caller to see.
func WithEvidence(v fault.Verdict, f *Facts) fault.Verdict {
	if v.Decision == fault.Permit && f.Evidence.Confirmed() {
		v.Reason, v.Because = f.Evidence.Ruling.Reason, append(v.Because, f.Traced()...)
	}
	return v
}

// Confirmed reports whether the arguments were traced and all of them are confirmed. Then the session's labels do not make the call riskier.
func (e *Evidence) Confirmed() bool {
	return e.Ruling != nil && e.Ruling.Verdict == provenance.Permit && len(e.Ruling.Evidence) > 0
}

// Unconfirmed reports whether the flow rules leave the call to a person.
func (e *Evidence) Unconfirmed() bool { return e.Ruling != nil && e.Ruling.Verdict == provenance.Ask }

// Needed reports whether the flow rules had to check the call. Anything that such a call sends beside its arguments can't be traced, so it is not
// sent.
func (e *Evidence) Needed() bool {
	return e.Ruling != nil && (e.Ruling.Verdict != provenance.Permit || len(e.Ruling.Because) > 0)
}
