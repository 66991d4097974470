package gateway

import (
	"context"
	"errors"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/session"
	"sallyport.example/internal/standing"
	"sallyport.example/provenance"
)

// ErrMoved says that the session is no longer at the version that the decision was made on: judge again.
var ErrMoved = errors.New("the session has moved on")

// ErrTooManySilent says that so many calls of the agent wait for silence already that nobody could stop them all: ask for a yes.
var ErrTooManySilent = errors.New("too many calls of the agent wait to be stopped")

// Store is what the corridor needs kept. Each method is one transaction; when it returns nil, what it wrote is durable
// (synchronous=FULL or better). Errors carry fault.StoreUnavailable or fault.AuditUnavailable, fault.NotFound or
// fault.Conflict; none leaves half of its work behind. Safe for concurrent use; concurrent transactions may share one commit.
type Store interface {
	catalogue.Store
	standing.Store

	// OpenSession writes a new session, its entry and the evidence that it takes over. For an own session it is a Conflict when the agent has an
	// open one, when the last one isn't the one that it follows, or holds a label that it doesn't: what was read to inherit has moved on, so
	// read it again.
	OpenSession(ctx context.Context, s session.Session, e audit.Entry, given ...Evidence) error
	// Session returns a session by id; fault.NotFound if there is none.
	Session(ctx context.Context, id string) (session.Session, error)
	// OwnSession returns the open own session of an agent; fault.NotFound if there is none.
	OwnSession(ctx context.Context, agent string) (session.Session, error)
	// LastOwnSession returns the agent's most recently opened own session, open or closed; fault.NotFound if there is none.
	LastOwnSession(ctx context.Context, agent string) (session.Session, error)
	// ChangeSession reads the session, applies change and writes the result and the entry in one transaction. change may be
	// called more than once and must have no effect of its own. An error of change is returned as it is and nothing is written.
	ChangeSession(ctx context.Context, id string, change func(session.Session) (session.Session, audit.Entry, error)) (session.Session, error)

	// Intent appends the entry if, in the same transaction, the session is open and still at the version; else ErrMoved.
	// Labels to raise already now (for calls that talk while they run) are raised in it too.
	// What it spends (a declaration, an approval) is spent in it too; a *SpendError says that it can't be, and nothing is written.
	Intent(ctx context.Context, sessionID string, version int64, e audit.Entry, raise []flow.Held, spend ...Spend) (session.Session, error)
	// Outcome appends the entry, raises the labels, adds to the used time and, where the session is open, keeps what was seen, in one
	// transaction. What is over the bounds of one session is not kept, and nothing after it.
	Outcome(ctx context.Context, sessionID string, e audit.Entry, raise []flow.Held, used time.Duration, seen ...Evidence) (session.Session, error)
	// Evidence returns what a session has kept after the one with that number, in order.
	Evidence(ctx context.Context, sessionID string, after int64) ([]Evidence, error)
	// Record appends entries that change no other state.
	Record(ctx context.Context, entries ...audit.Entry) error

	// Declare writes a declaration that nobody has to be asked about, with its entry.
	Declare(ctx context.Context, d declare.Declaration, e audit.Entry) error
	// Declaration returns a declaration as it was last written; fault.NotFound if there is none.
	Declaration(ctx context.Context, id string) (declare.Declaration, error)
	// AskPerson writes, for a session that is open, a question to a person, and the declaration that it is about where there is one, with the entry. It returns the
	// question that waits: that one, or an older one about the same call that stays.
	AskPerson(ctx context.Context, q Ask) (approval.Approval, error)
	// Approval returns an approval as it was last written; fault.NotFound if there is none.
	Approval(ctx context.Context, id string) (approval.Approval, error)
	// ApprovalFor returns the newest approval that was asked for one call of a session; fault.NotFound if there is none.
	ApprovalFor(ctx context.Context, session, callDigest string) (approval.Approval, error)
	// Approvals returns those that the filter wants, newest first.
	Approvals(ctx context.Context, f ApprovalFilter) ([]approval.Approval, error)
	// OpenApprovals returns the ids of a session's questions that nobody has answered at that time, put off or not, oldest first.
	OpenApprovals(ctx context.Context, session string, now time.Time, limit int) ([]string, error)
	// ChangeApproval reads an approval with the declaration that it is about (nil if none), applies change and writes both with the entry
	// in one transaction. change may be called more than once. An error of change is returned as it is and nothing is written.
	ChangeApproval(ctx context.Context, id string, change func(approval.Approval, *declare.Declaration) (approval.Approval, *declare.Declaration, audit.Entry, error)) (approval.Approval, error)

	// Latest is the time of the newest entry; the zero time if there is none.
	Latest(ctx context.Context) (time.Time, error)
	// WaitingPlans returns open sessions whose plan waits for a person, the newest first and at most limit of them, and how many there are.
	WaitingPlans(ctx context.Context, limit int) (newest []session.Session, all int64, err error)
	// CountApprovals is how many approvals are in a state at that time ("": in any).
	CountApprovals(ctx context.Context, state approval.State, now time.Time) (int64, error)
	// Spoken tells whether a person has said anything but yes about an operation of an agent's since that time.
	Spoken(ctx context.Context, agent, operation string, since time.Time) (bool, error)
	// IsDrill tells whether a question is a drill; Drills counts them.
	IsDrill(ctx context.Context, id string) (bool, error)
	Drills(ctx context.Context) (DrillCounts, error)
	// Used tells whether an intent has written the key (Spend.First).
	Used(ctx context.Context, key string) (bool, error)
}

// Ask is a question to a person, as it is written.
type Ask struct {
	Approval    approval.Approval
	Declaration *declare.Declaration // written with it, or nil
	At          time.Time
	Most        int // questions of one session that may be open; one more is a fault.LimitQuota
	MostOfAgent int // and of one agent, in all of its sessions
	MostSilent  int // and of one agent that wait for silence; one more is ErrTooManySilent
	// Instead is the question that this one takes the place of, with other arguments; nil: none. It is changed in the same transaction.
	Instead *Instead
	Drill   bool // no agent asked it
	// Begin, where it is set, returns Approval and Entry as of the time at which they are written: silence permits nothing that people could
	// not see for as long as they were promised. It may be called more than once.
	Begin func() (approval.Approval, audit.Entry)
	// Twin decides in the transaction about the newest question about the same call, if there is one: to keep it (then nothing is written), to
	// write it as it returns it, or, with an error, to ask nobody. It may be called more than once.
	Twin  func(t Twin) (keep bool, next Twin, err error)
	Entry audit.Entry
}

// Instead is a question that another takes the place of. Change returns it as it is to be written, with its entry; an error of it is
// returned as it is and nothing is written. It may be called more than once.
type Instead struct {
	ID     string
	Change func(t Twin) (Twin, error)
}

// Twin is a question about the same call, with the declaration that it is about (nil if none).
type Twin struct {
	Approval    approval.Approval
	Declaration *declare.Declaration
	Entry       *audit.Entry // of what became of it, to be written with it
}

// ApprovalFilter says which approvals are wanted. State is that at Now: expiry and deferral are matters of when one looks.
type ApprovalFilter struct {
	Session string         // "": of all
	State   approval.State // "": in any
	// Silent, without a Session: only those that silence answers, the next one first.
	Silent bool
	// Operation: those about this operation, of the Session if there is one.
	Operation string
	// Destination, without a Session: those about this value of an argument, as canonical JSON.
	Destination string
	Now         time.Time
	After       string // id of the last one of the page before; "": from the newest on
	Limit       int
}

// Spend is what an intent uses up: what was approved is approved for one call (docs/design.md, rule 2).
type Spend struct {
	Declaration string           // id, or ""
	Approval    string           // id, or ""
	First       []string         // keys of what the agent uses from now on: see Used
	Step        *provenance.Done // the step of the sealed plan that it takes, or nil; where another call was faster, ErrMoved
	CallDigest  string           // of the call that it is spent on
	CallID      string
	At          time.Time
	Seen        []Evidence // what is kept of the call before it runs, in this order
}

// Evidence is what one result showed, what a person approved, or what a call gave away, as it is kept.
type Evidence struct {
	Seq    int64 // of its session, from 1; the store's
	CallID string
	Rules  string // digest of the profile that it was observed under: under another one it is worth nothing
	Body   []byte // a provenance.Seen as JSON, at most 1 MiB
}

// SpendError says why what an intent was to spend can't be spent: it is spent already, has expired, was decided otherwise since.
type SpendError struct{ Err error }

func (e *SpendError) Error() string { return e.Err.Error() }
func (e *SpendError) Unwrap() error { return e.Err }
