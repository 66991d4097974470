// Package desk holds the questions that are put to people: they are asked, listed, answered, changed, put off and withdrawn here, and here the
// calls wait for their answers.
//
// Promises: a question and its entry are written in one transaction, and so is each answer. No person is asked about more than people can read, and
// silence permits no more calls than people could stop. An answer counts only from people who are entitled to it when it is used. An answer runs
// nothing: the agent's next call runs, and is judged again by then. A changed question takes the place of the one that was changed. The desk
// judges no call and knows no stages: its caller composes what the person is shown (Draft), and decides whether an older answer still stands.
package desk

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/session"
	"sallyport.example/provenance"
)

// Options are the parts of a Desk. Every field is needed.
type Options struct {
	Store Store
	// Voter returns the roles and identities that a person has today; false for people who are not configured.
	Voter       func(person string) (approval.Voter, bool)
	Environment string // names this gateway: answers that were given to another one do not count
	PerMinute   int    // questions that one agent may raise in any minute, answered or not; 0: any number
	// Expires returns the time for which a question that is asked now can be answered, and DrillEvery for how many questions there is one drill, on average;
	// 0: none.
	Expires    func() time.Duration
	DrillEvery func() int
	// Draw draws a number from 0 to n-1, for drills.
	Draw func(n int) int
	Now  func() time.Time // the time on record
	// Since is the time from which people could reach this desk. Silence about an older question permits nothing, because no person could object.
	Since time.Time
	Log   *slog.Logger
	// StopEpoch returns how many stops have reached the agent by now: the kill switch pulled, a quarantine. A question that was asked at another number
	// counts for nothing.
	StopEpoch func(agent string) int64
	// StoppedBy says in a sentence who stopped the agent last, and why; "" if nobody did, or it runs again.
	StoppedBy func(agent string) string
	// Definition returns a tool's definition as it is now; false if there is no such tool.
	Definition func(operation string) (Definition, bool)
	// Origins returns what the session has read, and where the arguments of a request came from that no rule asked to be traced. It informs people.
	Origins func(ctx context.Context, a approval.Approval, s session.Session) (Origins, error)
	// ActionType is an operation's action in the risk rules; "" if it has none, or there is no such operation.
	ActionType func(operation string) string
	// JudgeChanged judges the call that a question is about with other arguments, which are canonical JSON, and composes the question about that call. It
	// fails where the call would be refused.
	JudgeChanged func(ctx context.Context, old approval.Approval, arguments []byte) (Draft, error)
	// Changed is called with the id of a question after it was written. It must not block.
	Changed func(id string)
}

// Definition is what questions need of a tool's definition.
type Definition struct {
	Hash   string
	Says   *Described // nil: nothing
	Action string     // what it does, in the operator's word; "": nobody said
	Roles  map[string]string
}

// Origins is what is known of where the arguments of a request came from.
type Origins struct {
	Reads    []provenance.Read
	Findings []approval.Finding // nil: those of the approval
}

// Desk asks people. Make it with New. Safe for concurrent use.
type Desk struct {
	o     Options
	rates rates
	held  heldCalls
	calls waitingCalls

	draining chan struct{}
	drained  sync.Once
}

// New returns a Desk.
func New(o Options) *Desk { return &Desk{o: o, draining: make(chan struct{})} }

// Drain lets calls that wait for an answer go, so that they don't hold up doors that close. Draining twice is harmless.
func (d *Desk) Drain() { d.drained.Do(func() { close(d.draining) }) }

// Changed wakes the calls that wait for the question, and reports its change to Options.Changed.
func (d *Desk) Changed(id string) {
	d.calls.wake(id)
	d.o.Changed(id)
}

// WakeAll wakes every call that waits, so that it is judged again.
func (d *Desk) WakeAll() { d.calls.wakeAll() }
