// Package desk holds the questions that are put to people: they are asked, listed, answered, changed, put off and withdrawn here, and here the
// calls wait for their answers.
//
// Promises: a question and its entry are written in one transaction, and so is each answer; nobody is asked about more than people can read, and
// silence permits no more than they could stop; an answer counts only from people who are entitled to it when it is used; an answer runs nothing,
// the agent's next call does, judged again by then; what is put before people instead of another question takes that one's place. The desk
// judges no call and knows no stages: whoever asks composes what the person is shown (Draft), and says whether an older answer still stands.
package desk

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"sallyport.example/internal/approval"
)

// Options is what a Desk is built of. Every field is needed.
type Options struct {
	Store Store
	// Voter is who a person is today: roles and every identity that is theirs; false for people nobody knows.
	Voter       func(person string) (approval.Voter, bool)
	Environment string        // which gateway this is: an answer that was given to another one is none to it
	Expires     time.Duration // how long a question is good for
	PerMinute   int           // questions that one agent may raise in any minute, answered or not; 0: any number
	DrillEvery  int           // one drill for so many questions, on average; 0: none
	// Draw draws a number from 0 to n-1, for drills.
	Draw func(n int) int
	Now  func() time.Time // the time on record
	// Since is when people could first look at this desk: silence about an older question permits nothing, because nobody could object.
	Since time.Time
	Log   *slog.Logger
	// Definition is the hash of a tool's definition as it is now; false for what is no tool.
	Definition func(operation string) (hash string, ok bool)
	// JudgeChanged judges the call that a question is about with other arguments, which are canonical JSON, and composes the question about that call. It
	// fails where the call would be refused.
	JudgeChanged func(ctx context.Context, old approval.Approval, arguments []byte) (Draft, error)
	// Changed is called with the id of a question after it was written. It must not block.
	Changed func(id string)
}

// Desk is where people are asked. Make it with New. Safe for concurrent use.
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

// Changed wakes the calls that wait for the question, and tells everybody else: it was written.
func (d *Desk) Changed(id string) {
	d.calls.wake(id)
	d.o.Changed(id)
}

// WakeAll wakes every call that waits, so that it is judged again.
func (d *Desk) WakeAll() { d.calls.wakeAll() }
