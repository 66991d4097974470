package desk

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/limit"
)

// People approve unread what they can't read, so questions are bounded.
const (
	maxOpen        = 100 // questions of one session that may wait
	maxOpenOfAgent = 500 // and of one agent, in all of its sessions
	// maxSilent bounds how many calls of one agent wait for silence. People could not stop more in time, so more need a yes.
	maxSilent = 10
	// MaxArguments bounds the arguments that a person is asked about, in bytes.
	MaxArguments = 128 << 10
)

// Draft is a question as its author composes it: a plain value, and two functions that only read.
type Draft struct {
	// Approval has what the person is shown. The desk adds its id, times, people needed, declaration, environment and digest.
	Approval  approval.Approval
	SilentFor time.Duration // silence for so long permits the call (HI-2); 0: it takes a yes
	// Declaration is the one that the call runs on, or, in AskDeclared, the one that is asked about; nil: none.
	Declaration *declare.Declaration
	Entry       audit.Entry    // that a person was asked. The desk adds which question it is
	Detail      map[string]any // more of the entry; nil: nothing
	// Stands tells whether the answer to an older question about the call still stands for the call as it is now. AskDeclared doesn't need it: there
	// an older question stays that shows the same.
	Stands func(older approval.Approval) bool
	// Roles are the roles of the arguments, by name; Reasons gives the reasons anew for the question with another destination. Both are for drills.
	Roles   map[string]string
	Reasons func(approval.Approval) []approval.Reason
}

// rates counts the questions of each agent, in all of its sessions.
type rates struct {
	mu      sync.Mutex // guards byAgent
	byAgent map[string]*limit.Window
}

// take counts a question of an agent's; most are allowed in any minute, 0: any number.
func (r *rates) take(agent string, most int, now time.Time) (wait time.Duration, ok bool) {
	if most <= 0 {
		return 0, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byAgent == nil {
		r.byAgent = map[string]*limit.Window{}
	}
	w := r.byAgent[agent]
	if w == nil { // as many as there are declared agents
		w = limit.NewWindow(most, time.Minute)
		r.byAgent[agent] = w
	}
	return w.Take(now)
}

// TakeTurn counts a question of the agent's, or returns fault.LimitRate if the agent has asked too often. what names the question in the message; ""
// means a question about one call.
func (d *Desk) TakeTurn(agent, what string) error {
	wait, ok := d.rates.take(agent, d.o.PerMinute, d.o.Now())
	if ok {
		return nil
	}
	return fault.New(fault.LimitRate, "At most %d questions a minute of one agent%s.", d.o.PerMinute, what).Try("Try again in %s.", wait.Round(time.Millisecond))
}

// Ask puts a question about a call before people, within the bounds of what they can read. It returns the question that waits: the new one, or
// that of another call of the same that was asked first. Errors: ErrTooLong; fault.LimitRate; fault.LimitQuota; fault.ApprovalRejected where a person has rejected
// this very call; ErrTooManySilent; those of the declaration where another call has spent it meanwhile; those of the store.
func (d *Desk) Ask(ctx context.Context, q Draft) (approval.Approval, error) {
	if len(q.Approval.Arguments) > MaxArguments {
		return approval.Approval{}, ErrTooLong
	}
	if err := d.TakeTurn(q.Approval.Agent, ""); err != nil {
		return approval.Approval{}, err
	}
	now := d.o.Now()
	if q.Declaration != nil { // spent by another call meanwhile: then there is nothing to ask about
		current, err := d.o.Store.Declaration(ctx, q.Declaration.ID)
		if err == nil {
			err = current.Covers(q.Approval.CallDigest, now)
		}
		if err != nil {
			return approval.Approval{}, err
		}
	}
	next, err := d.complete(q, now)
	if err != nil {
		return approval.Approval{}, err
	}
	asked, err := d.write(ctx, next, "", now, func(f Found) (Written, error) {
		if f.Same != nil && (waits(f.Same.Approval, now) || f.Same.Approval.StateAt(now) == approval.Approved) && d.stands(f.Same.Approval, q.Stands) {
			return Written{}, nil // another call of the same asked first
		}
		next := next
		if q.SilentFor > 0 { // silence permits nothing that people could not see for as long as they were promised
			next = next.Begin(d.o.Now())
		}
		w, err := d.place(f, next, now)
		w.Entry = q.entry(map[string]any{"approval_id": next.ID, "digest": next.Digest})
		return w, err
	})
	if err == nil && asked.ID == next.ID {
		d.Changed(asked.ID)
		d.drill(ctx, asked, q)
	}
	return asked, err
}

// AskDeclared puts a question about a new declaration before people, and writes the declaration with it. Where an older question that waits shows
// the same, that one is returned and nothing is written: the agent declares again what it declared before. Errors are those of Ask.
func (d *Desk) AskDeclared(ctx context.Context, q Draft) (approval.Approval, error) {
	if err := d.TakeTurn(q.Approval.Agent, ""); err != nil {
		return approval.Approval{}, err
	}
	now := d.o.Now()
	next, err := d.complete(q, now)
	if err != nil {
		return next, err
	}
	asked, err := d.write(ctx, next, "", now, func(f Found) (Written, error) {
		if f.Same != nil && asksTheSame(*f.Same, next, now) {
			return Written{}, nil
		}
		w, err := d.place(f, next, now)
		w.Declaration = about(*q.Declaration, next)
		w.Entry = q.entry(map[string]any{"approval_id": next.ID})
		return w, err
	})
	if err == nil && asked.ID == next.ID {
		d.Changed(asked.ID)
	}
	return asked, err
}

// entry returns the draft's entry, with its detail and more.
func (q *Draft) entry(more map[string]any) audit.Entry {
	detail := maps.Clone(more)
	maps.Copy(detail, q.Detail)
	e := q.Entry
	e.Detail, _ = json.Marshal(detail) // of what was JSON before, and strings: can't fail
	return e
}

// about returns the declaration with the id of the question about it.
func about(d declare.Declaration, a approval.Approval) *declare.Declaration {
	d.ApprovalID = a.ID
	return &d
}

// complete makes the draft a question: pending, under a digest of everything that the person is shown.
func (d *Desk) complete(q Draft, now time.Time) (approval.Approval, error) {
	a, life := q.Approval, d.o.Expires()
	a.Environment = d.o.Environment
	if q.SilentFor > 0 {
		a.SilenceAt = now.Add(q.SilentFor)
	}
	if q.Declaration != nil { // a yes that comes after the declaration's end would be worth nothing
		a.DeclarationID = q.Declaration.ID
		life = min(life, q.Declaration.ExpiresAt.Sub(now))
	}
	return approval.New(a, now, life)
}

// write writes a question. decide decides what is written, by what the store has.
func (d *Desk) write(ctx context.Context, next approval.Approval, replaces string, now time.Time, decide func(Found) (Written, error)) (approval.Approval, error) {
	return d.o.Store.AskPerson(context.WithoutCancel(ctx), Ask{Session: next.Session, Agent: next.Agent, CallDigest: next.CallDigest, Replaces: replaces, At: now}, decide)
}

// place decides what is written of a new question. The question takes the place of an older one about the same call. It is refused if people
// could not read so many.
func (d *Desk) place(f Found, next approval.Approval, now time.Time) (w Written, err error) {
	if f.Same != nil {
		if w.Older, err = d.supersede(*f.Same, next, now); err != nil {
			return w, err
		}
	}
	takesPlace := f.Replaced != nil || f.Same != nil && waits(f.Same.Approval, now)
	switch {
	case !takesPlace && f.OpenOfSession >= maxOpen:
		return w, fault.New(fault.LimitQuota, "%d questions of this session wait for a person already.", f.OpenOfSession).Try("Wait until some of them are answered.")
	case !takesPlace && f.OpenOfAgent >= maxOpenOfAgent:
		return w, fault.New(fault.LimitQuota, "%d questions of this agent wait for a person already.", f.OpenOfAgent).Try("Wait until some of them are answered.")
	case !next.SilenceAt.IsZero() && f.SilentOfAgent >= maxSilent:
		return w, ErrTooManySilent
	}
	w.Question = &next
	return w, nil
}

// supersede withdraws an older question about the same call, because what it showed has changed. A rejection stays.
func (d *Desk) supersede(old Stored, next approval.Approval, now time.Time) ([]Update, error) {
	switch state := old.Approval.StateAt(now); {
	case state == approval.Rejected:
		return nil, old.Approval.Covers(next.CallDigest, now)
	case state.Final(), state == approval.Expired:
		return nil, nil
	}
	reason := "A newer request about the same call took its place."
	switch {
	case old.Approval.StopEpoch != next.StopEpoch:
		reason = whyStopped
	case !old.Approval.Inputs.Same(next.Inputs):
		reason = "The files that the call reads changed after this was asked."
	}
	u := Update{Stored: old, Entry: d.entry(old.Approval, "approval.supersede", "rule:asked-anew")}
	u.Entry.Reason = reason
	var err error
	if u.Approval, err = old.Approval.Supersede(reason, now); err != nil {
		return nil, err
	}
	if about := old.Declaration; about != nil && about.ID != next.DeclarationID {
		u.Declaration, err = refused(about, declare.ByRule, reason, now)
	}
	return []Update{u}, err
}

// refused returns the declaration as it is once the question about it ended without a yes. A declaration that is decided or over stays as it is.
func refused(d *declare.Declaration, by, reason string, now time.Time) (*declare.Declaration, error) {
	if state := d.At(now); state != declare.Pending && state != declare.Approved {
		return d, nil
	}
	over, err := d.Decide(false, by, reason, now)
	return &over, err
}

// asksTheSame tells whether a question that waits is the one that would be asked now: about the same declaration but for its id.
func asksTheSame(old Stored, next approval.Approval, now time.Time) bool {
	a := old.Approval
	return waits(a, now) && old.Declaration != nil && old.Declaration.At(now) == declare.Pending && a.Intact() &&
		bytes.Equal(a.Justification, next.Justification) && a.Risk == next.Risk && a.Amount == next.Amount && a.PolicyVersion == next.PolicyVersion &&
		a.Environment == next.Environment && a.StopEpoch == next.StopEpoch && a.LaunchHash == next.LaunchHash && a.Role == next.Role && a.Inputs.Same(next.Inputs) && a.ModifiedFrom == "" && slices.Equal(a.Labels, next.Labels)
}

// waits tells whether nobody has answered the question, put off or not.
func waits(a approval.Approval, now time.Time) bool {
	state := a.StateAt(now)
	return state == approval.Pending || state == approval.Deferred
}

// entry returns the log entry for a question.
func (d *Desk) entry(a approval.Approval, action, by string) audit.Entry {
	e := audit.Entry{
		Kind: audit.Change, Action: action, Agent: a.Agent, Session: a.Session, Requester: a.Requester, Actor: by, Operation: a.Operation, Type: d.o.ActionType(a.Operation),
		Digest: a.CallDigest, DefHash: a.DefinitionHash, Risk: a.Risk, Amount: a.Amount, Decision: "ok",
	}
	e.Detail, _ = json.Marshal(map[string]any{"approval_id": a.ID, "digest": a.Digest, "declaration_id": a.DeclarationID}) // of strings: can't fail
	return e
}
