package gateway

import (
	"context"
	"errors"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/evidence"
	"sallyport.example/internal/quota"
	"sallyport.example/internal/session"
	"sallyport.example/internal/standing"
	"sallyport.example/internal/stored"
	"sallyport.example/provenance"
)

// ErrMoved says that the session is no longer at the version that the decision was made on: judge again.
var ErrMoved = errors.New("the session has moved on")

// Store is one place where everything is kept: what the corridor needs kept, and what the rooms that it is built of do. Each method is one
// transaction; when it returns nil, what it wrote is durable (synchronous=FULL or better). Errors carry fault.StoreUnavailable or
// fault.AuditUnavailable, fault.NotFound or fault.Conflict; none leaves half of its work behind. Safe for concurrent use; concurrent transactions
// may share one commit.
type Store interface {
	SessionStore
	CallStore
	desk.Store
	catalogue.Store
	standing.Store
	stored.Store
	stored.HashStore
}

// corridorStore is all of the Store that the corridor itself uses.
type corridorStore interface {
	SessionStore
	CallStore
}

// SessionStore keeps the sessions.
type SessionStore interface {
	// OpenSession writes a new session, its entry and the evidence that it takes over. For an own session it is a Conflict when the agent has an
	// open one, when the last one isn't the one that it follows, or holds a label that it doesn't: what was read to inherit has moved on, so
	// read it again.
	OpenSession(ctx context.Context, s session.Session, e audit.Entry, given ...evidence.Kept) error
	// Session returns a session by id; fault.NotFound if there is none.
	Session(ctx context.Context, id string) (session.Session, error)
	// OwnSession returns the open own session of an agent; fault.NotFound if there is none.
	OwnSession(ctx context.Context, agent string) (session.Session, error)
	// LastOwnSession returns the agent's most recently opened own session, open or closed; fault.NotFound if there is none.
	LastOwnSession(ctx context.Context, agent string) (session.Session, error)
	// GivenSessions returns the ids of the open sessions that hosts and people opened, by agent, the oldest first.
	GivenSessions(ctx context.Context) (map[string][]string, error)
	// ChangeSession reads the session, applies change and writes the result and the entry in one transaction. change may be
	// called more than once and must have no effect of its own. An error of change is returned as it is and nothing is written. With a session that
	// it closes goes what that has seen; of an own one what it gave away stays, for the session that follows.
	ChangeSession(ctx context.Context, id string, change func(session.Session) (session.Session, audit.Entry, error)) (session.Session, error)
	// SessionsPage returns sessions, the newest first: those opened before the session after ("": from the newest on), at most limit of them, only
	// those in state ("": all).
	SessionsPage(ctx context.Context, after string, limit int, state session.State) (session.Page, error)
	// SessionPrompt is what the system message of the session's requests to models says of its tools; "" before the first one.
	SessionPrompt(ctx context.Context, session string) (string, error)
	// KeepSessionPrompt writes that once, with its entry; a Conflict if it is written.
	KeepSessionPrompt(ctx context.Context, session, text string, e audit.Entry) error
	// WaitingPlans returns open sessions whose plan waits for a person, the newest first and at most limit of them, and how many there are.
	WaitingPlans(ctx context.Context, limit int) (newest []session.Session, all int64, err error)
}

// CallStore keeps what calls declare, do, show and use up.
type CallStore interface {
	evidence.Store
	// Intent appends the entry if, in the same transaction, the session is open and still at the version; else ErrMoved.
	// Labels to raise already now (for calls that talk while they run) are raised in it too.
	// What it spends (a declaration, an approval) is spent in it too; a *SpendError says that it can't be, and nothing is written.
	Intent(ctx context.Context, sessionID string, version int64, e audit.Entry, raise []flow.Held, spend ...Spend) (session.Session, error)
	// Outcome appends the entry, raises the labels, adds to the used time and, where the session is open, keeps what was seen, in one
	// transaction. What is over the bounds of one session is not kept, and nothing after it.
	Outcome(ctx context.Context, sessionID string, e audit.Entry, raise []flow.Held, used time.Duration, seen ...evidence.Kept) (session.Session, error)
	// Answer appends the entry of an answer to a server's question, and keeps what it gives away and what it writes (Spend.Wrote), in one transaction.
	// Where the session is closed it is fault.SessionClosed, and nothing is written.
	Answer(ctx context.Context, sessionID string, e audit.Entry, wrote *stored.Written, given ...evidence.Kept) error
	// QuotaUse is what an agent has used under a limit, in the newest window that was counted.
	QuotaUse(ctx context.Context, agent string, l quota.Limit) (quota.Use, error)
	// Used tells whether an intent has written the key (Spend.First).
	Used(ctx context.Context, key string) (bool, error)
	// Record appends entries that change no other state.
	Record(ctx context.Context, entries ...audit.Entry) error
	// Latest is the time of the newest entry; the zero time if there is none.
	Latest(ctx context.Context) (time.Time, error)

	// Declare writes a declaration that nobody has to be asked about, with its entry.
	Declare(ctx context.Context, d declare.Declaration, e audit.Entry) error
	// Declaration returns a declaration as it was last written; fault.NotFound if there is none.
	Declaration(ctx context.Context, id string) (declare.Declaration, error)
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
	StopEpoch   int64           // the stops that had reached the agent when the call was judged; an approval from before another one is not spent
	Wrote       *stored.Written // what it writes to a server that nobody said yes to, in an untrusted session; nil: nothing
	Found       session.Found   // the parts of a request to a model that brought labels
	Seen        []evidence.Kept // what is kept of the call before it runs, in this order
	Quota       *quota.Claim    // what it takes of its agent's quotas; nil: there are none. What is over is settled with the outcome
}

// SpendError says why what an intent was to spend can't be spent: it is spent already, has expired, was decided otherwise since.
type SpendError struct{ Err error }

func (e *SpendError) Error() string { return e.Err.Error() }
func (e *SpendError) Unwrap() error { return e.Err }
