package desk

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/review"
	"sallyport.example/internal/session"
)

// Question is an approval as people see it. Arguments and justification are the agent's words: hostile text.
type Question struct {
	approval.Approval
	// Similar is the same for questions that may be answered as one batch (DE-5); "" for one that stands alone.
	Similar string `json:"similar,omitempty"`
	// Session is the session as it is now: it may hold more labels than when the question was asked.
	SessionLabels []string      `json:"session_labels"`
	SessionPhase  session.Phase `json:"session_phase,omitempty"`
	// ArgumentsSize is the size of the arguments in bytes, if a list left them out.
	ArgumentsSize int `json:"arguments_size,omitempty"`
	// Tool is what the tool is said to do; nil if its definition says nothing, or is another one by now.
	Tool *Described `json:"tool_description,omitempty"`
	// Line says in a few words what it does and whom it reaches, and Unconfirmed how many of the values that decide are confirmed by nothing.
	Line        string `json:"line"`
	Unconfirmed int    `json:"unconfirmed"`
	// Problem says why nothing can be done with the one in the state "damaged".
	Problem string `json:"problem,omitempty"`

	// For one question, not in lists.
	Held        []flow.Held     `json:"held,omitempty"`         // the session's labels with the calls that they came from
	UserRequest string          `json:"user_request,omitempty"` // the request that a host or a person put on record; hostile text all the same
	Plan        *session.Plan   `json:"plan,omitempty"`
	Earlier     []Earlier       `json:"earlier,omitempty"` // earlier decisions about the same destinations, rejections first
	Before      json.RawMessage `json:"before,omitempty"`  // the arguments before a person changed them
	// Review is what a person needs to know to answer it.
	Review *review.Review `json:"review,omitempty"`
	// Drill says that no agent asked, and that it should be rejected. It is set once the question is answered.
	Drill bool `json:"drill,omitempty"`
}

// Described is what a tool does, in the words of whoever describes it. Text is one line of at most 500 bytes, and shows nothing that can't be seen.
type Described struct {
	Text string `json:"text"`
	By   string `json:"by"` // server (its words, in the definition that was accepted: hostile), operator, or gateway (of a built-in operation)
}

// Earlier is a decision about the same destination.
type Earlier struct {
	ApprovalID  string         `json:"approval_id"`
	Operation   string         `json:"operation"`
	Agent       string         `json:"agent_id"`
	Destination string         `json:"destination"` // as canonical JSON
	State       approval.State `json:"state"`
	By          []string       `json:"by,omitempty"`  // who answered
	Own         bool           `json:"own,omitempty"` // one of them had asked for it
	Reason      string         `json:"reason,omitempty"`
	At          time.Time      `json:"at"` // of the last answer, else of the question
}

// maxListed bounds the arguments that a list has of one question, in bytes. One question has all of them, and where they came from.
const maxListed = 2 << 10

// listed returns a question as lists have it.
func (d *Desk) listed(a approval.Approval, of sessions) Question {
	q := d.question(a, of)
	q.Evidence = nil
	if len(q.Arguments) > maxListed {
		q.ArgumentsSize, q.Arguments = len(q.Arguments), nil
	}
	return q
}

// sessions finds a session by its id; false where it can't be read.
type sessions func(id string) (session.Session, bool)

// sessions reads each session once: the questions of a list are often of the same.
func (d *Desk) sessions(ctx context.Context) sessions {
	known := map[string]session.Session{}
	return func(id string) (session.Session, bool) {
		s, has := known[id]
		if !has {
			var err error
			if s, err = d.o.Store.Session(ctx, id); err != nil {
				return s, false
			}
			known[id] = s
		}
		return s, true
	}
}

func (d *Desk) question(a approval.Approval, of sessions) Question {
	a.State = a.StateAt(d.o.Now())
	q := Question{Approval: a, SessionLabels: []string{}}
	if a.State == approval.Damaged {
		q.Problem = "The row of this request in the store is damaged, so nothing can be done with it. \"sallyport audit verify\" says more."
		return q
	}
	q.Similar = similar(a)
	now, _ := d.o.Definition(a.Operation)
	if now.Hash == a.DefinitionHash {
		q.Tool = now.Says
	}
	q.Line, q.Unconfirmed = review.Line(now.Action, now.Roles, a), review.UnconfirmedIn(a)
	if s, ok := of(a.Session); ok { // its state helps to decide; the decision is judged again anyway
		q.SessionPhase = s.Phase
		for _, h := range s.Labels {
			q.SessionLabels = append(q.SessionLabels, string(h.Label))
		}
	}
	return q
}

// similar returns the key that questions share if they can be answered together, each under its own digest.
func similar(a approval.Approval) string {
	key := declare.Declaration{
		Agent: a.Agent, Session: a.Session, Operation: a.Operation, DefinitionHash: a.DefinitionHash, Risk: a.Risk, Parameters: a.Arguments,
	}.Key()
	if key == "" || len(a.Destinations) == 0 {
		return key
	}
	return key + strings.Join(a.Destinations, "\x00")
}

// Questions returns approvals, newest first: in one state ("": any), of one session ("": any), those asked before the one with the id after.
func (d *Desk) Questions(ctx context.Context, state approval.State, sessionID, after string, limit int) ([]Question, error) {
	return d.list(ctx, Filter{Session: sessionID, State: state, Now: d.o.Now(), After: after, Limit: limit})
}

// Urgent returns the questions that wait, the riskiest first and of one risk the one that ends first, after the one with the id after; of one risk
// and agent, "": of any.
func (d *Desk) Urgent(ctx context.Context, risk, agent, after string, limit int) ([]Question, error) {
	return d.list(ctx, Filter{State: approval.Pending, Urgent: true, Risk: risk, Agent: agent, Now: d.o.Now(), After: after, Limit: limit})
}

// maxSilentListed bounds what Silent returns.
const maxSilentListed = 50

// Silent returns the questions that silence answers, the next one first. Their calls run then unless a person stops them.
func (d *Desk) Silent(ctx context.Context) ([]Question, error) {
	return d.list(ctx, Filter{State: approval.Pending, Silent: true, Now: d.o.Now(), Limit: maxSilentListed})
}

func (d *Desk) list(ctx context.Context, f Filter) ([]Question, error) {
	found, err := d.o.Store.Approvals(ctx, f)
	page, of := []Question{}, d.sessions(ctx)
	for _, a := range found {
		page = append(page, d.listed(a, of))
	}
	return page, err
}

// Question returns one approval.
func (d *Desk) Question(ctx context.Context, id string) (Question, error) {
	a, err := d.o.Store.Approval(ctx, id)
	if err != nil {
		return Question{}, err
	}
	of := d.sessions(ctx)
	q := d.question(a, of)
	s, ok := of(a.Session)
	if ok {
		q.Held, q.UserRequest, q.Plan = s.Labels, s.UserRequest, s.Plan
	}
	if a.ModifiedFrom != "" {
		before, err := d.o.Store.Approval(ctx, a.ModifiedFrom)
		if err != nil {
			return q, err
		}
		q.Before = before.Arguments
	}
	if q.State != approval.Pending && q.State != approval.Deferred {
		if q.Drill, err = d.o.Store.IsDrill(ctx, a.ID); err != nil {
			return q, err
		}
	}
	if q.Earlier, err = d.earlier(ctx, a); err != nil || q.State == approval.Damaged {
		return q, err
	}
	q.Review = d.review(ctx, q, s)
	q.Unconfirmed = 0
	for _, v := range q.Review.Values {
		if v.MustCheck() {
			q.Unconfirmed++
		}
	}
	return q, nil
}

// review says what a person needs to know. What can't be read of the session is missing in it, and the log of the program says so.
func (d *Desk) review(ctx context.Context, q Question, s session.Session) *review.Review {
	now, _ := d.o.Definition(q.Operation)
	f := review.Facts{Approval: q.Approval, Action: now.Action, Roles: now.Roles, Request: q.UserRequest, Findings: q.Evidence, Held: q.Held}
	origins, err := d.o.Origins(ctx, q.Approval, s)
	if err != nil {
		d.o.Log.Warn("where the arguments of a request came from can't be shown", "approval_id", q.ID, "error", err)
	}
	f.Reads = origins.Reads
	if f.Findings == nil {
		f.Findings = origins.Findings
	}
	for _, e := range q.Earlier {
		if e.State == approval.Rejected && e.Reason != "" {
			f.Rejected = e.Reason
			break
		}
	}
	r := review.Of(f)
	return &r
}

// Waiting says how many questions wait for an answer, and which of them was asked first; "": none waits.
func (d *Desk) Waiting(ctx context.Context) (n int64, oldest string, err error) {
	return d.o.Store.CountApprovals(ctx, approval.Pending, d.o.Now())
}

// AskedAt says when a question was asked.
func (d *Desk) AskedAt(ctx context.Context, id string) (time.Time, error) {
	a, err := d.o.Store.Approval(ctx, id)
	return a.CreatedAt, err
}

// OpenOf returns the ids of a session's questions without an answer, oldest first. It leaves out drills, which no agent may know of.
func (d *Desk) OpenOf(ctx context.Context, sessionID string) (ids []string, err error) {
	waiting, err := d.o.Store.OpenApprovals(ctx, sessionID, d.o.Now(), maxOpen)
	for _, id := range waiting {
		drill, failed := false, error(nil)
		if d.o.DrillEvery() > 0 {
			drill, failed = d.o.Store.IsDrill(ctx, id)
		}
		if err = errors.Join(err, failed); !drill {
			ids = append(ids, id)
		}
	}
	return ids, err
}

const (
	earlierShown = 5  // decisions that are shown of one destination
	earlierAsked = 10 // destinations of one call that are looked up
)

// answerBehind maps a state of an approval to the answer that brings it about.
var answerBehind = map[approval.State]approval.Decision{
	approval.Rejected: approval.Reject, approval.Approved: approval.Approve, approval.Spent: approval.Approve, approval.Deferred: approval.Deferral,
}

// earlier returns the decisions that were made before about the destinations of a call.
func (d *Desk) earlier(ctx context.Context, a approval.Approval) ([]Earlier, error) {
	var all []Earlier
	now := d.o.Now()
	for i, destination := range a.Destinations {
		if i == earlierAsked {
			break
		}
		found, err := d.o.Store.Approvals(ctx, Filter{Destination: destination, Now: now, Limit: earlierShown + 1})
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			if f.State == approval.Damaged || f.ID == a.ID || len(all) == earlierShown*(i+1) {
				continue
			}
			e := Earlier{ApprovalID: f.ID, Operation: f.Operation, Agent: f.Agent, Destination: destination, State: f.StateAt(now), Reason: f.Reason, At: f.CreatedAt}
			for _, v := range f.Votes {
				if answerBehind[e.State] == v.Decision {
					e.By, e.At, e.Own = append(e.By, v.Person), v.At, e.Own || v.Own
				}
			}
			if len(e.By) == 0 && f.ReplacedBy == "" && e.State != approval.Spent { // no person has answered, and it did not run by silence
				continue
			}
			all = append(all, e)
		}
	}
	return all, nil
}
