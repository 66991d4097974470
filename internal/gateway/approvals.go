package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/limit"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/session"
)

// flagged are the flags of a declaration in words.
var flagged = map[string]string{
	declare.RequestParaphrased: "The agent does not quote the request that is on record, but words it differently.",
	declare.NoRequestOnRecord:  "There is no request of a person on record that the agent's words could be held against.",
}

// maxPending bounds how many questions one session may have open, and maxPendingOfAgent how many all sessions of one agent: what people
// can't read, they would wave through.
const (
	maxPending        = 100
	maxPendingOfAgent = 500
	// maxSilent bounds how many calls of one agent wait for silence: more than people could stop in its time take a yes.
	maxSilent = 10
	// maxAsked bounds the arguments that a person is asked about, in bytes.
	maxAsked = 128 << 10
)

// askRates are how often agents may ask people, in all of their sessions.
type askRates struct {
	mu      sync.Mutex // guards byAgent
	byAgent map[string]*limit.Window
}

// take counts a question of an agent's; most are allowed in any minute, 0: any number.
func (r *askRates) take(agent string, most int, now time.Time) (wait time.Duration, ok bool) {
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

// asked looks for a person's answer to this very call, and asks for one where there is none. What was approved is judged again from the
// first stage, with the approval as a fact (docs/design.md, rule 2).
func (c *crossing) asked(ctx context.Context, v fault.Verdict) fault.Verdict {
	const stage = "approve"
	if v.ApprovalID != nil { // the declaration it runs on waits
		return v
	}
	if c.answers != nil {
		return fault.Refuse(stage, fault.ApprovalRequired, "A person would have to decide on this call, and can't be shown what a server was answered.",
			fault.Remedy{Kind: "ask_person", Text: "Ask a person to do it."})
	}
	now := c.g.now()
	a, err := c.g.o.Store.ApprovalFor(ctx, c.session.ID, c.digest)
	if err == nil {
		a = a.Recount(c.g.o.Voter) // who approved must still be one who may
		covers := a.Covers(c.digest, now)
		if a.State == approval.Superseded && a.ReplacedBy != "" {
			if told, ok, err := c.instead(ctx, a); err != nil {
				return fault.RefuseErr(stage, err)
			} else if ok {
				return told
			}
		}
		switch state := a.StateAt(now); {
		case state == approval.Rejected:
			return fault.RefuseErr(stage, covers)
		case !c.stands(a):
		case covers == nil:
			return c.judgeAnswered(&a)
		case state == approval.Pending, state == approval.Deferred:
			if c.judged.found.Silence && (a.SilenceAt.IsZero() || len(a.Votes) > 0) { // a person changed it or put it off
				v = judge.Ask(v.Stage, c.op.Name+" waits for a person's answer.")
			}
			v.ApprovalID = &a.ID
			return v
		}
		// Expired, spent, superseded, or given for something else than what it would be spent on: it is asked anew.
	} else if !fault.Is(err, fault.NotFound) {
		return fault.RefuseErr(stage, err)
	}
	if c.r.DryRun {
		return v
	}
	if v := c.mayAsk(ctx, now); v.Decision != fault.Permit {
		return v
	}
	next, err := c.newApproval(v, now)
	if err != nil {
		return fault.RefuseErr(stage, err)
	}
	e := c.entry(audit.Decision)
	e.Action, e.Decision, e.Stage, e.Code, e.Reason, e.Risk, e.Amount = "approval.ask", string(fault.Ask), v.Stage, string(v.Code), v.Reason, next.Risk, next.Amount
	begin := func() (approval.Approval, audit.Entry) {
		if !next.SilenceAt.IsZero() {
			next = next.Begin(c.g.now())
		}
		e.Detail, _ = json.Marshal(map[string]any{"approval_id": next.ID, "digest": next.Digest}) // of two strings: can't fail
		return next, e
	}
	a, err = c.g.ask(ctx, Ask{Approval: next, At: now, Begin: begin, Twin: func(t Twin) (bool, Twin, error) {
		if state := t.Approval.StateAt(now); (state == approval.Pending || state == approval.Deferred || state == approval.Approved) && c.stands(t.Approval) {
			return true, t, nil // another call of the same asked first
		}
		return c.replace(t, now)
	}})
	if errors.Is(err, ErrTooManySilent) && !c.silenceFull {
		c.silenceFull, c.judged.facts.Evidence.StoppedLately = true, true
		if v = c.judgeAnswered(nil); v.Decision != fault.Ask {
			return v
		}
		return c.asked(ctx, v)
	}
	if err != nil {
		return fault.RefuseErr(stage, err)
	}
	v.ApprovalID = &a.ID
	if a.ID == next.ID { // else another call of the same asked first, and said so
		c.g.changed(ApprovalChanged, a.ID)
		c.g.drill(ctx, a, c.op.Class.Roles)
	}
	return v
}

// ask puts a question before people, within the bounds of what they can read.
func (g *Gateway) ask(ctx context.Context, q Ask) (approval.Approval, error) {
	q.Most, q.MostOfAgent, q.MostSilent = maxPending, maxPendingOfAgent, maxSilent
	return g.o.Store.AskPerson(context.WithoutCancel(ctx), q)
}

// mayAsk tells whether a person may be asked about the call: not about what nobody reads, not too often, and not about a declaration that
// another call has spent meanwhile.
func (c *crossing) mayAsk(ctx context.Context, now time.Time) fault.Verdict {
	const stage = "approve"
	if len(c.args) > maxAsked {
		return fault.Refuse(stage, fault.LimitQuota, fmt.Sprintf("A person would have to decide on this call, and nobody reads arguments of %d bytes; at most %d.", len(c.args), maxAsked),
			fault.Remedy{Kind: "ask_person", Text: "Make it smaller, or ask a person to do it."})
	}
	if wait, ok := c.g.asks.take(c.agent, c.g.o.Limits.AsksPerMinute, now); !ok {
		return fault.Refuse(stage, fault.LimitRate, fmt.Sprintf("At most %d questions a minute of one agent.", c.g.o.Limits.AsksPerMinute),
			fault.Remedy{Kind: "wait", Text: fmt.Sprintf("Try again in %s.", wait.Round(time.Millisecond))})
	}
	if c.declaration != nil { // spent by another call meanwhile: then there is nothing to ask about
		d, err := c.g.o.Store.Declaration(ctx, c.declaration.ID)
		if err == nil {
			err = d.Covers(c.digest, now)
		}
		if err != nil {
			return fault.RefuseErr(stage, err)
		}
	}
	return fault.Permitted()
}

// replace withdraws an older question about the same call: it was asked about something else by now. A no stays a no.
func (c *crossing) replace(t Twin, now time.Time) (keep bool, next Twin, err error) {
	switch state := t.Approval.StateAt(now); {
	case state == approval.Rejected:
		return false, t, t.Approval.Covers(c.digest, now)
	case state.Final(), state == approval.Expired:
		return false, t, nil
	}
	e := approvalEntry(t.Approval, "approval.supersede", "rule:asked-anew")
	t.Entry = &e
	if t.Approval, err = t.Approval.Supersede(now); err != nil {
		return false, t, err
	}
	if d := t.Declaration; d != nil && (c.declaration == nil || d.ID != c.declaration.ID) && (d.At(now) == declare.Pending || d.At(now) == declare.Approved) {
		over, err := d.Decide(false, declare.ByRule, "a newer question about the same call took its place", now)
		if err != nil {
			return false, t, err
		}
		t.Declaration = &over
	}
	return false, t, nil
}

// stands tells whether an approval is about the call as it is now: it is no riskier, the session holds no label that was not shown, the
// policies are those that were in force, and what silence was to permit is still left to silence.
func (c *crossing) stands(a approval.Approval) bool {
	if !a.Intact() { // of a form that nobody can answer any more
		return false
	}
	if !a.SilenceAt.IsZero() && len(a.Votes) == 0 && (!c.judged.found.Silence || a.CreatedAt.Before(c.g.since)) { // nobody could object while the gateway was down
		return false
	}
	return a.Amount == c.judged.found.Rating.Amount && c.sameReasons(a) && c.sameEvidence(a) && c.judged.found.Rating.Risk.Rank() <= policy.Risk(a.Risk).Rank() && a.PolicyVersion == c.g.o.Policies.Version() && a.Environment == c.g.o.Environment &&
		!slices.ContainsFunc(c.raised().Labels, func(h flow.Held) bool { return !slices.Contains(a.Labels, string(h.Label)) })
}

// sameReasons tells whether the reasons that the person was shown can be what the call runs on: those of its declaration, of its step in the
// sealed plan as that is now, or a justification, which takes the place of the one that the call comes with.
func (c *crossing) sameReasons(a approval.Approval) bool {
	if c.declaration != nil {
		return a.DeclarationID == c.declaration.ID
	}
	var shown struct {
		Step string `json:"plan_step"`
	}
	if len(a.Justification) == 0 || json.Unmarshal(a.Justification, &shown) != nil {
		return c.op.Command == nil // nobody has to give reasons for it
	}
	if shown.Step != "" {
		step := c.step()
		return step != nil && step.Justification == shown.Step
	}
	return c.justification != nil || c.op.Command == nil
}

// newApproval is the question about this call, with everything that the person is shown under its digest.
func (c *crossing) newApproval(v fault.Verdict, now time.Time) (approval.Approval, error) {
	a := approval.Approval{
		CallDigest: c.digest, Risk: string(c.judged.found.Rating.Risk), Amount: c.judged.found.Rating.Amount, Consequence: c.judged.found.Rating.Consequence, Operation: c.op.ID, DefinitionHash: c.definition(),
		Arguments: c.args, Session: c.session.ID, Agent: c.agent, Requester: c.session.Requester, OpenedBy: c.session.OpenedBy,
		Labels: labelWords(c.raised().Labels), SessionVersion: c.session.Version, PolicyVersion: c.g.o.Policies.Version(),
		Environment: c.g.o.Environment, Destinations: policy.Destinations(c.op.Class.Roles, c.args), Evidence: c.shownEvidence(),
	}
	a.Destinations = a.Destinations[:min(len(a.Destinations), maxDestinations)]
	for _, b := range v.Because {
		if stage, text, ok := strings.Cut(b.Detail, ": "); ok && judge.IsReason(b) {
			a.Reasons = append(a.Reasons, approval.Reason{Stage: stage, Code: string(b.Code), Text: text})
		}
	}
	a.Reasons = append(append(a.Reasons, c.onceForAll()...), c.sources()...)
	if m := c.modified; m != nil {
		a.ModifiedFrom, a.ModifiedBy, a.ModifiedReason = m.from, m.by, m.reason
	}
	for _, r := range c.judged.found.Rating.Reasons { // which rules gave the risk
		a.Reasons = append(a.Reasons, approval.Reason{Stage: "risk", Code: r.Code, Text: r.Text})
	}
	if c.declaration != nil {
		a.DeclarationID = c.declaration.ID
	}
	for _, flag := range c.flags { // what is doubtful about the reasons is shown with them
		a.Reasons = append(a.Reasons, approval.Reason{Stage: "declare", Code: flag, Text: flagged[flag]})
	}
	if c.justification != nil {
		a.Justification, _ = json.Marshal(c.justification) // of three strings: can't fail
	} else if step := c.step(); step != nil {
		a.Justification, _ = json.Marshal(map[string]string{"plan_step": step.Justification}) // of a string: can't fail
	}
	life := c.g.o.Limits.ApprovalExpires
	if c.judged.found.Silence { // nobody but the risk stage asks, and it asks for nobody's no
		a.SilenceAt = now.Add(c.g.o.Limits.MediumDelay)
	}
	if c.declaration != nil { // a yes that comes after the declaration's end would be worth nothing
		life = min(life, c.declaration.ExpiresAt.Sub(now))
	}
	return approval.New(a, now, life)
}

func approvalEntry(a approval.Approval, action, by string) audit.Entry {
	e := audit.Entry{
		Kind: audit.Change, Action: action, Agent: a.Agent, Session: a.Session, Requester: a.Requester, Actor: by, Operation: a.Operation,
		Digest: a.CallDigest, DefHash: a.DefinitionHash, Risk: a.Risk, Amount: a.Amount, Decision: "ok",
	}
	e.Detail, _ = json.Marshal(map[string]any{"approval_id": a.ID, "digest": a.Digest, "declaration_id": a.DeclarationID}) // of strings: can't fail
	return e
}

// Question is an approval as people see it. Arguments and justification are the agent's words: hostile text.
type Question struct {
	approval.Approval
	// Similar is the same for questions that may be answered as one batch (DE-5); "" for one that stands alone.
	Similar string `json:"similar,omitempty"`
	// Session now: what it holds may have grown since it was asked.
	SessionLabels []string      `json:"session_labels"`
	SessionPhase  session.Phase `json:"session_phase,omitempty"`
	// ArgumentsSize is how many bytes the arguments have where a list left them out.
	ArgumentsSize int `json:"arguments_size,omitempty"`

	// For one question, not in lists.
	Held        []flow.Held     `json:"held,omitempty"`         // the session's labels with the calls that they came from
	UserRequest string          `json:"user_request,omitempty"` // what a host or a person put on record; hostile text all the same
	Plan        *session.Plan   `json:"plan,omitempty"`
	Earlier     []Earlier       `json:"earlier,omitempty"` // what was decided about the same destinations before, each no first
	Before      json.RawMessage `json:"before,omitempty"`  // the arguments before a person changed them
	// Drill says that no agent asked: it was to be rejected. Told once it is answered.
	Drill bool `json:"drill,omitempty"`
}

// Earlier is a decision about the same destination.
type Earlier struct {
	ApprovalID  string         `json:"approval_id"`
	Operation   string         `json:"operation"`
	Agent       string         `json:"agent_id"`
	Destination string         `json:"destination"` // as canonical JSON
	State       approval.State `json:"state"`
	By          []string       `json:"by,omitempty"` // who answered
	Reason      string         `json:"reason,omitempty"`
	At          time.Time      `json:"at"` // of the last answer, else of the question
}

// maxListed bounds the arguments that a list has of one question, in bytes. One question has all of them, and where they came from.
const maxListed = 2 << 10

// listed is a question as lists have it.
func (g *Gateway) listed(ctx context.Context, a approval.Approval) Question {
	q := g.question(ctx, a)
	q.Evidence = nil
	if len(q.Arguments) > maxListed {
		q.ArgumentsSize, q.Arguments = len(q.Arguments), nil
	}
	return q
}

func (g *Gateway) question(ctx context.Context, a approval.Approval) Question {
	a.State = a.StateAt(g.now())
	q := Question{Approval: a, Similar: similar(a), SessionLabels: []string{}}
	if s, err := g.o.Store.Session(ctx, a.Session); err == nil { // its state helps to decide; the decision is judged again anyway
		q.SessionLabels, q.SessionPhase = notNil(labelWords(s.Labels)), s.Phase
	}
	return q
}

// similar is the key under which questions can be answered together, each under its own digest.
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
func (g *Gateway) Questions(ctx context.Context, state approval.State, sessionID, after string, limit int) ([]Question, error) {
	found, err := g.o.Store.Approvals(ctx, ApprovalFilter{Session: sessionID, State: state, Now: g.now(), After: after, Limit: limit})
	page := []Question{}
	for _, a := range found {
		page = append(page, g.listed(ctx, a))
	}
	return page, err
}

// maxSoon bounds what Soon returns.
const maxSoon = 50

// Soon returns the questions that silence answers, the next one first: what is not stopped by then runs.
func (g *Gateway) Soon(ctx context.Context) ([]Question, error) {
	found, err := g.o.Store.Approvals(ctx, ApprovalFilter{State: approval.Pending, Silent: true, Now: g.now(), Limit: maxSoon})
	page := []Question{}
	for _, a := range found {
		page = append(page, g.listed(ctx, a))
	}
	return page, err
}

// Question returns one approval.
func (g *Gateway) Question(ctx context.Context, id string) (Question, error) {
	a, err := g.o.Store.Approval(ctx, id)
	if err != nil {
		return Question{}, err
	}
	q := g.question(ctx, a)
	if s, err := g.o.Store.Session(ctx, a.Session); err == nil {
		q.Held, q.UserRequest, q.Plan = s.Labels, s.UserRequest, s.Plan
	}
	if a.ModifiedFrom != "" {
		before, err := g.o.Store.Approval(ctx, a.ModifiedFrom)
		if err != nil {
			return q, err
		}
		q.Before = before.Arguments
	}
	if q.State != approval.Pending && q.State != approval.Deferred {
		if q.Drill, err = g.o.Store.IsDrill(ctx, a.ID); err != nil {
			return q, err
		}
	}
	q.Earlier, err = g.earlier(ctx, a)
	return q, err
}

// Waits is how many questions nobody has answered, put off or not.
func (g *Gateway) Waits(ctx context.Context) (pending, deferred int64, err error) {
	now := g.now()
	if pending, err = g.o.Store.CountApprovals(ctx, approval.Pending, now); err != nil {
		return 0, 0, err
	}
	deferred, err = g.o.Store.CountApprovals(ctx, approval.Deferred, now)
	return pending, deferred, err
}

const (
	earlierShown = 5  // decisions that are shown of one destination
	earlierAsked = 10 // destinations of one call that are looked up
)

// saidSo is the answer that brings an approval into a state.
var saidSo = map[approval.State]approval.Decision{
	approval.Rejected: approval.Reject, approval.Approved: approval.Approve, approval.Spent: approval.Approve, approval.Deferred: approval.Deferral,
}

func (g *Gateway) earlier(ctx context.Context, a approval.Approval) ([]Earlier, error) {
	var all []Earlier
	now := g.now()
	for i, d := range a.Destinations {
		if i == earlierAsked {
			break
		}
		found, err := g.o.Store.Approvals(ctx, ApprovalFilter{Destination: d, Now: now, Limit: earlierShown + 1})
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			if f.ID == a.ID || len(all) == earlierShown*(i+1) {
				continue
			}
			e := Earlier{ApprovalID: f.ID, Operation: f.Operation, Agent: f.Agent, Destination: d, State: f.StateAt(now), Reason: f.Reason, At: f.CreatedAt}
			for _, v := range f.Votes {
				if saidSo[e.State] == v.Decision {
					e.By, e.At = append(e.By, v.Person), v.At
				}
			}
			if len(e.By) == 0 && f.ReplacedBy == "" && e.State != approval.Spent { // nobody has said anything, and it did not run by silence
				continue
			}
			all = append(all, e)
		}
	}
	return all, nil
}

// Response is a person's answer to one question.
type Response struct {
	Approval string            `json:"approval_id"`
	Digest   string            `json:"digest"` // of what they were shown
	Decision approval.Decision `json:"decision"`
	Reason   string            `json:"reason,omitempty"` // needed to reject; a comment otherwise
	Until    time.Time         `json:"until,omitzero"`   // of a deferral
}

// Respond takes a person's answer: a vote, which decides once there are as many as the risk needs. It runs nothing; the agent's next call
// does, judged again by then.
func (g *Gateway) Respond(ctx context.Context, voter approval.Voter, r Response) (Question, error) {
	a, err := g.respond(ctx, voter, r)
	if err == nil {
		return g.question(ctx, a), nil
	}
	return Question{}, g.refusedAnswer(ctx, voter, a, "approval."+word(r.Decision), err)
}

// refusedAnswer puts on record that an answer was not taken (TH-4), and returns why.
func (g *Gateway) refusedAnswer(ctx context.Context, voter approval.Voter, a approval.Approval, action string, err error) error {
	f := fault.Of(err)
	if f.Code == fault.NotFound || f.Code == fault.AuditUnavailable || f.Code == fault.StoreUnavailable {
		return err
	}
	e := approvalEntry(a, action, "person:"+voter.Person)
	e.Kind, e.Decision, e.Stage, e.Code, e.Reason = audit.Decision, string(fault.Deny), "approve", string(f.Code), audit.Clip(f.Public())
	if err := g.o.Store.Record(context.WithoutCancel(ctx), e); err != nil {
		return audited(err)
	}
	return err
}

// voter adds to who answers every identity that is theirs. Only people whom the configuration knows can answer.
func (g *Gateway) voter(v approval.Voter, text string) (approval.Voter, error) {
	if len(text) > maxJustification {
		return v, fault.New(fault.RequestMalformed, "at most %d bytes", maxJustification).At("reason")
	}
	known, ok := g.o.Voter(v.Person)
	if !ok {
		return v, fault.New(fault.RoleMissing, "Nobody knows who %s is: who approves must be listed under people in sallyport.yaml.", short(v.Person))
	}
	v.Aliases = append(slices.Clone(v.Aliases), known.Aliases...)
	return v, nil
}

// respond returns the approval as it is after the answer, or with an error as it was before.
func (g *Gateway) respond(ctx context.Context, voter approval.Voter, r Response) (approval.Approval, error) {
	asked, err := g.o.Store.Approval(ctx, r.Approval)
	if err != nil {
		return asked, err
	}
	if s, err := g.o.Store.Session(ctx, asked.Session); err != nil {
		return asked, err
	} else if s.State != session.Open && r.Decision != approval.Reject {
		return asked, fault.New(fault.SessionClosed, "The session that asked is closed.")
	}
	if voter, err = g.voter(voter, r.Reason); err != nil {
		return asked, err
	}
	if op := g.catalogue.ByID(asked.Operation); r.Decision == approval.Approve && op != nil && op.Kind == call.Tool && op.Hash != asked.DefinitionHash {
		return asked, fault.New(fault.ApprovalMismatch, "%s is not the tool any more that was asked about: its definition has changed.", short(asked.Operation)).
			Try("Reject it. What the agent calls from now on is asked about anew.")
	}
	drill, err := g.o.Store.IsDrill(ctx, asked.ID)
	if err != nil {
		return asked, err
	}
	by := "person:" + voter.Person
	after, err := g.o.Store.ChangeApproval(context.WithoutCancel(ctx), r.Approval, func(a approval.Approval, d *declare.Declaration) (approval.Approval, *declare.Declaration, audit.Entry, error) {
		now := g.now()
		if drill && a.State == approval.Approved {
			return a, d, audit.Entry{}, fault.New(fault.Conflict, "It was a drill, and is answered.")
		}
		a = a.Recount(g.o.Voter) // who may no longer answer does not count
		e := approvalEntry(a, "approval."+word(r.Decision), by)
		e.Reason = r.Reason
		var next approval.Approval
		var err error
		switch r.Decision {
		case approval.Approve:
			next, err = a.Approve(voter, r.Digest, r.Reason, now)
		case approval.Reject:
			next, err = a.Reject(voter, r.Digest, r.Reason, now)
		case approval.Deferral:
			next, err = a.Defer(voter, r.Digest, r.Until, now)
		default:
			err = fault.New(fault.RequestMalformed, "It is approve, reject or defer.").At("decision")
		}
		if err != nil {
			return a, d, e, err
		}
		e.Approvers = next.Approvers()
		if d == nil {
			return next, nil, e, nil
		}
		state := d.At(now)
		if next.State == approval.Approved && state == declare.Pending || next.State == approval.Rejected && (state == declare.Pending || state == declare.Approved) {
			decided, err := d.Decide(next.State == approval.Approved, by, r.Reason, now)
			return next, &decided, e, err
		}
		return next, nil, e, nil
	})
	if err != nil {
		return asked, err
	}
	g.changed(ApprovalChanged, after.ID)
	return after, nil
}

// word is a decision as the log names it.
func word(d approval.Decision) string {
	if d == approval.Approve || d == approval.Reject || d == approval.Deferral {
		return string(d)
	}
	return "answer"
}

// void ends one question by a rule.
func (g *Gateway) void(ctx context.Context, id, by string) error {
	_, err := g.o.Store.ChangeApproval(ctx, id, func(a approval.Approval, _ *declare.Declaration) (approval.Approval, *declare.Declaration, audit.Entry, error) {
		next, err := a.Supersede(g.now())
		return next, nil, approvalEntry(a, "approval.withdraw", by), err
	})
	if err == nil {
		g.changed(ApprovalChanged, id)
	}
	return err
}

// withdraw voids the questions of a session that has ended. What can't be written now is void all the same: nobody can say yes to it.
func (g *Gateway) withdraw(ctx context.Context, sessionID string) {
	for {
		ids, err := g.o.Store.OpenApprovals(ctx, sessionID, g.now(), maxPending)
		if err != nil || len(ids) == 0 {
			return
		}
		ended := 0
		for _, id := range ids {
			if err := g.void(ctx, id, "rule:session-closed"); err == nil {
				ended++
			} else if !fault.Is(err, fault.ApprovalExpired) && !fault.Is(err, fault.Conflict) { // over in another way is over
				return
			}
		}
		if ended == 0 {
			return
		}
	}
}

// voidQuestions voids what waits, and what was approved and not used, about an operation whose definition has changed: the yes was for the old one. What can't
// be written now is void all the same: its call has another digest by then.
func (g *Gateway) voidQuestions(ctx context.Context, operation string) {
	for _, state := range []approval.State{approval.Pending, approval.Deferred, approval.Approved} {
		found, err := g.o.Store.Approvals(ctx, ApprovalFilter{Operation: operation, State: state, Now: g.now(), Limit: maxPendingOfAgent})
		if err != nil {
			g.log.Warn("questions about a tool that changed were not withdrawn; they run nothing", "operation", operation, "error", err)
			return
		}
		for _, a := range found {
			_ = g.void(ctx, a.ID, "rule:definition")
		}
	}
}

// maxTogether bounds a batch: each is looked at before it is answered.
const maxTogether = 100

// Batched is what became of one of a batch.
type Batched struct {
	Question *Question  `json:"approval,omitempty"`
	ID       string     `json:"approval_id"`
	Problem  string     `json:"problem,omitempty"`
	Code     fault.Code `json:"code,omitempty"`
}

// RespondTogether answers similar questions with one decision, each under the digest that was looked at (DE-5). They are similar or none
// is answered; beyond that each stands or falls for itself.
func (g *Gateway) RespondTogether(ctx context.Context, voter approval.Voter, answers []Response) ([]Batched, error) {
	if len(answers) == 0 || len(answers) > maxTogether {
		return nil, fault.New(fault.RequestMalformed, "Answer 1 to %d at once.", maxTogether).At("approvals")
	}
	key := ""
	for i, r := range answers {
		a, err := g.o.Store.Approval(ctx, r.Approval)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			key = similar(a)
		}
		if similar(a) != key {
			return nil, fault.New(fault.Conflict, "They are not similar: a batch is of one session, operation and destination.").
				At(fmt.Sprintf("approvals[%d]", i)).Try("Answer it by itself.")
		}
		if a.Needed > 1 && r.Decision == approval.Approve {
			return nil, fault.New(fault.Conflict, "What needs two people is not approved in a batch.").At(fmt.Sprintf("approvals[%d]", i)).Try("Answer it by itself.")
		}
	}
	var all []Batched
	for _, r := range answers {
		b := Batched{ID: r.Approval}
		if q, err := g.Respond(ctx, voter, r); err != nil {
			f := fault.Of(err)
			b.Problem, b.Code = f.Public(), f.Code
			g.log.Info("one of a batch was not taken", "approval_id", r.Approval, "error", cmp.Or(err.Error(), string(f.Code)))
		} else {
			b.Question = &q
		}
		all = append(all, b)
	}
	return all, nil
}
