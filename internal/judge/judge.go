// Package judge holds the stages that judge a call: one table, read by calls, checks, declarations, changes of arguments, plan steps and
// the replay of recorded work, so that advice and enforcement can't disagree.
//
// Promises: it is pure. It takes Facts and returns a verdict and a Finding; it has no store, no clock and no lock, it changes nothing of
// the facts, and it keeps nothing. The same facts give the same decision and the same code at every moment that a stage takes part in.
// Verdicts combine to the strictest: the first deny ends it, and a later stage can narrow what an earlier one left open but never widen it.
// Facts that are missing deny.
package judge

import (
	"slices"

	"sallyport.example/internal/fault"
	"sallyport.example/internal/policy"
	"sallyport.example/provenance"
)

// Moment is when something is judged. A stage takes part in a moment, or the table says why it doesn't.
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
	// evidence says that the stage needs Facts.Evidence. The others need only what memory knows, and run before the store is read.
	evidence bool
	// absent says for each moment in which the stage takes no part why it doesn't.
	absent map[Moment]string
	run    func(f *Facts, found *Finding) fault.Verdict
}

// notReplayed is why the stages that rest on the state of the day take no part in a replay.
const notReplayed = "a replay asks what the flow rules say of the past; the state of that day is not on record"

// stages is the table. Its order is a security property (docs/design.md, "The corridor").
var stages = []stage{
	{name: "kill", run: kill, absent: map[Moment]string{
		Replay: notReplayed}},
	{name: "standing", run: standing, absent: map[Moment]string{
		Replay: notReplayed}},
	{name: "phase", run: phase, absent: map[Moment]string{
		Declaration:  "a declaration may be made in both phases; its call is judged in the phase in which it is made",
		Modification: "a changed call waits for a person and for the agent; it is judged in the phase in which it is made",
		PlanStep:     "an approved plan opens the execution phase",
		Replay:       notReplayed}},
	{name: "declare", run: declared, absent: map[Moment]string{
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
	{name: "flow", evidence: true, run: flowRules, absent: map[Moment]string{
		PlanStep: "what a step meets depends on the steps before it: flow.Validate judges the whole plan by the same rules"}},
	{name: "unlisted", evidence: true, run: unlisted, absent: map[Moment]string{
		Modification: "the person who changes the arguments decides about the operation as well",
		Replay:       notReplayed}},
	{name: "risk", evidence: true, run: risk, absent: map[Moment]string{
		PlanStep: "a plan answers for no risk: a risky step is asked about when it is called (see StepRisk)",
		Replay:   notReplayed}},
}

// Finding is what the stages found out on the way, for the record, the question to a person and the answer.
type Finding struct {
	Rated  bool          // the risk stage has rated the call
	Rating policy.Rating // how risky the call is
	// Silence says that the risk stage leaves the call to a person's silence.
	Silence bool
	// Shadow is what the flow or the risk stage would have said; shadow mode only notes it.
	Shadow *fault.Verdict
	// DeclaredBy is the digest of what the call runs on: a declaration, the justification in the call, or the sealed plan.
	DeclaredBy string
	// Counts says that the limit stage was reached with room for a call: it takes its place in the minute, whatever becomes of it.
	Counts bool

	undecided bool // whether the call is declared depends on evidence
}

// Partial is a judgement of the stages that need no evidence.
type Partial struct {
	moment  Moment
	verdict fault.Verdict // what has been asked for so far, or the deny that ended it
	Found   Finding
}

// Memory runs the stages that need only what memory knows.
func Memory(m Moment, f *Facts) Partial {
	p := Partial{moment: m, verdict: fault.Permitted()}
	p.run(f, func(s *stage) bool { return !s.evidence })
	return p
}

// Denied tells whether the judgement is over without evidence.
func (p *Partial) Denied() bool { return p.verdict.Decision == fault.Deny }

// Verdict is what was found so far.
func (p *Partial) Verdict() fault.Verdict { return p.verdict }

// Finish runs the other stages, now that the facts have their evidence. The partial judgement stays as it is and can be finished again.
func (p Partial) Finish(f *Facts) (fault.Verdict, Finding) {
	if !p.Denied() {
		later := p.Found.undecided
		p.run(f, func(s *stage) bool { return s.evidence || later && s.name == "declare" })
	}
	return WithEvidence(p.verdict, f), p.Found
}

// Judge runs all stages that take part in the moment.
func Judge(m Moment, f *Facts) (fault.Verdict, Finding) { return Memory(m, f).Finish(f) }

// run runs the wanted stages in their order. The first deny ends it; what asks is asked for only if no later stage denies.
func (p *Partial) run(f *Facts, wanted func(*stage) bool) {
	for i := range stages {
		s := &stages[i]
		if _, absent := s.absent[p.moment]; absent || !wanted(s) {
			continue
		}
		switch v := s.run(f, &p.Found); v.Decision {
		case fault.Permit:
		case fault.Ask:
			p.verdict = bothAsk(p.verdict, v)
		default:
			p.verdict = v
			p.verdict.Decision = fault.Deny
			return
		}
	}
}

// bothAsk adds the reasons of one question to those of another; the first gives the words.
func bothAsk(first, v fault.Verdict) fault.Verdict {
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

// IsReason tells whether an entry says why a stage asks: its code, and "stage: reason".
func IsReason(b fault.Because) bool { return b.Code != "" }

// Ask is the verdict of a stage that leaves it to a person.
func Ask(stage, reason string) fault.Verdict {
	v := fault.Refuse(stage, fault.ApprovalRequired, reason,
		fault.Remedy{Kind: "approve", Text: "A person has been asked. Make the same call again later: it runs once when it is approved."})
	v.Decision = fault.Ask
	return v
}

// WithEvidence puts what vouched for the arguments into a permit, so that whoever called can see it.
func WithEvidence(v fault.Verdict, f *Facts) fault.Verdict {
	if v.Decision == fault.Permit && f.Evidence.Vouched() {
		v.Reason, v.Because = f.Evidence.Ruling.Reason, append(v.Because, f.Traced()...)
	}
	return v
}

// Vouched tells whether the arguments were traced and everything in them is vouched for: then the session's labels make the call no riskier.
func (e *Evidence) Vouched() bool {
	return e.Ruling != nil && e.Ruling.Verdict == provenance.Permit && len(e.Ruling.Evidence) > 0
}

// Unvouched tells whether the flow rules leave the call to a person.
func (e *Evidence) Unvouched() bool { return e.Ruling != nil && e.Ruling.Verdict == provenance.Ask }

// Needed tells whether the flow rules had to look at the call. What goes out beside the arguments of such a call can't be traced, so it
// doesn't go out.
func (e *Evidence) Needed() bool {
	return e.Ruling != nil && (e.Ruling.Verdict != provenance.Permit || len(e.Ruling.Because) > 0)
}
