package desk

import (
	"context"
	"errors"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/session"
)

// ErrTooLong says that the arguments are longer than MaxArguments.
var ErrTooLong = errors.New("nobody reads arguments of this length")

// ErrTooManySilent says that as many calls of the agent wait for silence as people could stop: ask for a yes.
var ErrTooManySilent = errors.New("too many calls of the agent wait to be stopped")

// Store keeps the questions. Each method is one transaction; when it returns nil, what it wrote is durable. Errors are fault errors, or those of
// the functions that it is given; none leaves half of its work behind. Safe for concurrent use.
type Store interface {
	// AskPerson reads what decide decides on, for a session that is open, and writes what it returns. It returns the question that waits: the new
	// one, or Found.Same where that stays. decide may be called more than once and must have no effect of its own. An error of decide is returned
	// as it is and nothing is written.
	AskPerson(ctx context.Context, q Ask, decide func(Found) (Written, error)) (approval.Approval, error)
	// ChangeApproval reads an approval with the declaration that it is about, and writes what change returns. change may be called more than once
	// and must have no effect of its own. An error of change is returned as it is and nothing is written.
	ChangeApproval(ctx context.Context, id string, change func(Stored) (Update, error)) (approval.Approval, error)
	// Approval returns an approval as it was last written; fault.NotFound if there is none.
	Approval(ctx context.Context, id string) (approval.Approval, error)
	// ApprovalFor returns the newest approval that was asked for one call of a session; fault.NotFound if there is none.
	ApprovalFor(ctx context.Context, session, callDigest string) (approval.Approval, error)
	// Approvals returns the approvals that match the filter, newest first. One whose row is damaged has its id, what the row says of session, agent and
	// operation, and the state approval.Damaged: nothing may be decided by it.
	Approvals(ctx context.Context, f Filter) ([]approval.Approval, error)
	// OpenApprovals returns the ids of a session's questions that are pending or deferred at that time, oldest first.
	OpenApprovals(ctx context.Context, session string, now time.Time, limit int) ([]string, error)
	// CountApprovals counts the approvals in a state at that time ("": in any), and returns the id of the one that was asked first; "": there is none.
	CountApprovals(ctx context.Context, state approval.State, now time.Time) (n int64, oldest string, err error)
	// Objected tells whether a person has answered anything but yes about an operation of an agent's since that time.
	Objected(ctx context.Context, agent, operation string, since time.Time) (bool, error)
	// IsDrill tells whether a question is a drill; Drills counts them.
	IsDrill(ctx context.Context, id string) (bool, error)
	Drills(ctx context.Context) (DrillCounts, error)
	// VoteCounts counts the answers of people to the newest requests that were answered, so many at most.
	VoteCounts(ctx context.Context, requests int) (VoteCounts, error)

	// Declaration returns a declaration as it was last written; fault.NotFound if there is none.
	Declaration(ctx context.Context, id string) (declare.Declaration, error)
	// Session returns a session by id; fault.NotFound if there is none.
	Session(ctx context.Context, id string) (session.Session, error)
	// Record appends entries that change no other state.
	Record(ctx context.Context, entries ...audit.Entry) error
}

// Ask says what a new question is about.
type Ask struct {
	Session    string
	Agent      string
	CallDigest string
	Replaces   string // id of the question that it takes the place of, with other arguments; "": none
	At         time.Time
}

// Found holds what the store has when a question is to be written.
type Found struct {
	Same     *Stored // the newest question about the same call; nil: there is none
	Replaced *Stored // the question with the id Ask.Replaces; nil: none was named
	// The numbers of questions without an answer at Ask.At: of the session, of the agent in all of its sessions, and those of the agent that
	// silence answers.
	OpenOfSession, OpenOfAgent, SilentOfAgent int64
}

// Stored is an approval as the store has it, with the declaration that it is about (nil: none).
type Stored struct {
	Approval    approval.Approval
	Declaration *declare.Declaration
}

// Update is the new state of a stored approval, with its log entry.
type Update struct {
	Stored
	Entry audit.Entry
}

// Written says what to write for a question. The zero value writes nothing: Found.Same stays.
type Written struct {
	Older       []Update             // changes of older questions; their entries come first, in this order
	Question    *approval.Approval   // the new one
	Declaration *declare.Declaration // a new one that it is about, written with it; nil: none
	Drill       bool                 // no agent asked it
	Entry       audit.Entry
}

// Filter selects approvals. State is the state at Now, because approvals expire and deferrals end with time.
type Filter struct {
	Session string         // "": of all
	State   approval.State // "": in any
	// Silent, without a Session: only those that silence answers, the next one first.
	Silent bool
	// Urgent, with the state Pending and without a Session: the riskiest first, and of one risk the one that ends first.
	Urgent bool
	Risk   string // with Urgent, those of this risk; "": of any
	Agent  string // with Urgent, those of this agent; "": of any
	// Operation: those about this operation, of the Session if there is one.
	Operation string
	// Destination, without a Session: those about this value of an argument, as canonical JSON.
	Destination string
	Now         time.Time
	After       string // id of the last one of the page before; "": from the newest on
	Limit       int
}
