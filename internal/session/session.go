// Package session holds one governed piece of work of one agent as a pure state machine: phase, labels, plan, budget.
//
// Promises: every move is a pure function of the state before it; an impossible move is an error and changes nothing; a closed
// session is final; labels only rise, except by Release, which is a person's act. Version grows with every move that a decision
// depends on, so that a decision made on one version can be refused when the session has moved on.
package session

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/provenance"
)

// Phase is the phase of a session (PH-1). There are only two.
type Phase string

const (
	Planning  Phase = "planning"
	Execution Phase = "execution"
)

// Words is the phase as people read it (docs/glossary.md).
func (p Phase) Words() string {
	if p == Planning {
		return "planning (nothing reaches outside)"
	}
	return string(p)
}

// ParsePhase accepts the exact names of the two phases (PH-2).
func ParsePhase(s string) (Phase, error) {
	switch p := Phase(s); p {
	case Planning, Execution:
		return p, nil
	}
	return "", fault.New(fault.RequestMalformed, "unknown phase %q: planning or execution", s).At("phase")
}

// State says whether a session is still open.
type State string

const (
	Open   State = "open"
	Closed State = "closed"
)

// PlanState is the state of a plan.
type PlanState string

const (
	PlanApproved PlanState = "approved" // sealed: the session is in execution
	PlanPending  PlanState = "pending"  // a person must decide
	PlanRejected PlanState = "rejected"
)

// Words is the state as people read it (docs/glossary.md).
func (s PlanState) Words() string {
	switch s {
	case PlanApproved:
		return "sealed"
	case PlanPending:
		return "waiting"
	}
	return string(s)
}

// Step is one step of a plan as it was submitted, resolved to an operation. provenance.SealedStep has what it fixes.
type Step struct {
	Tool          string                       `json:"tool"`
	Operation     string                       `json:"operation"`
	Definition    string                       `json:"definition,omitempty"` // hash of the operation's definition when the plan was submitted; "" in old plans
	Arguments     json.RawMessage              `json:"arguments,omitempty"`  // canonical
	From          map[string]provenance.Source `json:"from,omitempty"`
	Open          []string                     `json:"open,omitempty"`
	Each          *int                         `json:"each,omitempty"`
	After         []int                        `json:"after,omitempty"`
	Justification string                       `json:"justification"`
}

// Plan is an ordered list of steps under a digest. An approval is for the digest.
type Plan struct {
	ID        string    `json:"plan_id"`
	Digest    string    `json:"digest"`
	State     PlanState `json:"state"`
	Steps     []Step    `json:"steps"`
	Submitted time.Time `json:"submitted"`
	DecidedBy string    `json:"decided_by,omitempty"` // "rule" or a principal
	DecidedAt time.Time `json:"decided_at,omitzero"`
	Reason    string    `json:"reason,omitempty"`
	Why       string    `json:"why,omitempty"` // why a person is asked about it; "": none is
	Own       bool      `json:"own,omitempty"` // who decided had asked for the session, or the like (approval.Own)
	// StopEpoch counts the stops that had reached the agent when the plan was submitted. After one more, a person's yes to it covers nothing.
	StopEpoch int64 `json:"stop_epoch,omitempty"`
	// Clean says that the session held no label when the plan was submitted and when it was approved.
	Clean bool `json:"clean,omitempty"`
	// Observed says that a rule approved it only because the gateway observed. It counts while the gateway observes.
	Observed bool `json:"observed,omitempty"`
	// Done are the calls made for its steps, in order. It only grows.
	Done []provenance.Done `json:"done,omitempty"`
}

// ByRule stands in the place of a principal where a rule decided.
const ByRule = "rule"

// ByPerson reports whether a person approved the plan.
func (p *Plan) ByPerson() bool {
	return p.State == PlanApproved && p.DecidedBy != "" && p.DecidedBy != ByRule
}

// lapsed reports whether the plan counts only while the gateway observes.
func (p *Plan) lapsed() bool { return p != nil && p.State == PlanApproved && p.Observed }

// Sealed is the plan as package provenance reads it; nil unless it is approved. The caller must not change it.
func (p *Plan) Sealed() *provenance.SealedPlan {
	if p == nil || p.State != PlanApproved {
		return nil
	}
	sealed := &provenance.SealedPlan{Clean: p.Clean, Person: p.ByPerson(), Done: p.Done}
	for _, s := range p.Steps {
		sealed.Steps = append(sealed.Steps, provenance.SealedStep{Operation: s.Operation, Arguments: s.Arguments, From: s.From, Open: s.Open, Each: s.Each})
	}
	return sealed
}

// PlanDigest is the digest of a plan of the session: its steps in canonical form, bound to session and agent.
func PlanDigest(sessionID, agent string, steps []Step) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(steps); err != nil { // Arguments are canonical JSON already, so this can't fail
		panic("session: plan steps do not encode: " + err.Error())
	}
	return call.Digest(agent, sessionID, "plan", "", b.Bytes())
}

// Session is the whole state. Treat it as a value: moves return a new one and share no slice that they changed.
type Session struct {
	ID          string        `json:"session_id"`
	Agent       string        `json:"agent_id"`
	Requester   string        `json:"requester,omitempty"`
	UserRequest string        `json:"user_request,omitempty"`
	WordsBy     []string      `json:"words_by,omitempty"` // who else added to the request: principals, as kind:id
	OpenedBy    string        `json:"opened_by"`          // principal, as kind:id
	Run         string        `json:"run_id,omitempty"`   // the run that it was opened for; "": none
	Own         bool          `json:"own"`                // the session that the agent's own token stands for
	Follows     string        `json:"-"`                  // of an own session that is to be opened: the session before it; "" if there is none
	Piece       int64         `json:"piece,omitempty"`    // of an own session: the number of the agent's piece of work; each fresh session that a person orders begins the next one
	Next        *Next         `json:"next,omitempty"`     // a person ordered that the agent's next conversation is a fresh own session; nil: nobody did
	Phase       Phase         `json:"phase"`
	PhaseBy     string        `json:"phase_by,omitempty"`     // who moved it to the phase: a principal, or ByRule; "": it began in it
	Opened      *Opening      `json:"phase_opened,omitempty"` // the person's yes to a plan that opened the execution phase; nil: something else did, or it is not open
	State       State         `json:"state"`
	Labels      []flow.Held   `json:"labels"`
	Found       Found         `json:"-"` // what requests to models brought that has a label; for the store and releases, not for who looks at the session
	Released    Found         `json:"-"` // what a person released of that: it brings the label no more
	Plan        *Plan         `json:"plan,omitempty"`
	Version     int64         `json:"version"`
	Used        time.Duration `json:"used_ns"`   // time spent in operations (EX-6)
	Budget      time.Duration `json:"budget_ns"` // limit of Used
	OpenedAt    time.Time     `json:"opened_at"`
	ClosedAt    time.Time     `json:"closed_at,omitzero"`
}

// Autonomous tells whether nobody but the agent opened the session, so that it works for nobody.
func (s Session) Autonomous() bool {
	kind, _, _ := strings.Cut(s.OpenedBy, ":")
	return s.Own && s.Requester == "" && kind != "person" && kind != "host"
}

// Found are things that bring a label, each by a keyed hash, the oldest first.
type Found map[flow.Label][]string

const (
	maxFound    = 1024 // of one session, all labels together: so many fit into the entry of a release
	maxReleased = 2048 // of one label
)

// Opening is a person's yes to a plan, which opened the execution phase.
type Opening struct {
	Plan      string `json:"plan_id"`
	StopEpoch int64  `json:"stop_epoch,omitempty"` // of the plan: after one more stop of the agent, the yes counts for nothing
}

// Next is a person's order that the agent's next conversation is a fresh session of its own.
type Next struct {
	By        string    `json:"by"` // principal, as kind:id
	At        time.Time `json:"at"`
	StopEpoch int64     `json:"stop_epoch,omitempty"` // how many stops had reached the agent: after one more, the order counts for nothing
}

// Page is a part of the list of sessions.
type Page struct {
	Sessions []Session
	Aside    []Damaged // those among them that can't be read
}

// Damaged is a session whose row in the store can't be read. Nothing can be done in it.
type Damaged struct {
	ID      string `json:"session_id"`
	Agent   string `json:"agent_id"`
	Problem string `json:"problem"`
}

// New opens a session. Nothing in it comes from the agent except the person's request, if the host passed it on.
func New(agent string, phase Phase, openedBy string, now time.Time) Session {
	return Session{
		ID: call.NewID("sess_", now), Agent: agent, OpenedBy: openedBy, Phase: phase, State: Open,
		Labels: []flow.Held{}, Version: 1, OpenedAt: now.UTC(),
	}
}

// After returns a new own session that follows the agent's last one, with its labels and a person's order: neither a new connection nor a closed session
// cleans an agent.
func (s Session) After(last Session) Session {
	s = s.Raise(last.Labels...)
	s.Follows, s.Piece, s.Next = last.ID, last.Piece, last.Next
	return s
}

// Anew returns a new own session that begins the agent's next piece of work, as a person ordered: it takes nothing over from the last session.
func (s Session) Anew(last Session) Session {
	s.Follows, s.Piece = last.ID, last.Piece+1
	return s
}

// Succeeds reports whether the new own session may come after the agent's last one: it has all of that one's labels and its open order, or it is the
// fresh session that was ordered.
func (s Session) Succeeds(last Session) bool {
	if last.Next != nil && s.Piece == last.Piece+1 {
		return true
	}
	return s.Piece == last.Piece && (s.Next == nil) == (last.Next == nil) && !slices.ContainsFunc(last.Labels, func(h flow.Held) bool { return !s.Holds(h.Label) })
}

// OrderNext notes a person's order for the agent's next conversation, in an own session that is open or the last one.
func (s Session) OrderNext(by string, stopEpoch int64, now time.Time) (Session, error) {
	if !s.Own {
		return s, fault.New(fault.Conflict, "Session %s is not the agent's own.", s.ID)
	}
	s.Next = &Next{By: by, At: now.UTC(), StopEpoch: stopEpoch}
	s.Version++
	return s, nil
}

// Ordered reports whether a person's order stands by the number of stops that have reached the agent: a stop takes back what was ordered before it.
func (s Session) Ordered(stopEpoch int64) bool { return s.Next != nil && s.Next.StopEpoch == stopEpoch }

// TakeBackOrder writes down what a stop of the agent did (Ordered). It is a fault.Conflict where no stop has taken an order back.
func (s Session) TakeBackOrder(stopEpoch int64) (Session, error) {
	if s.Next == nil || s.Ordered(stopEpoch) {
		return s, fault.New(fault.Conflict, "No stop has taken an order for a fresh session back.")
	}
	s.Next = nil
	s.Version++
	return s, nil
}

func (s Session) open() error {
	if s.State != Open {
		return fault.New(fault.SessionClosed, "Session %s is closed.", s.ID).Try("Open a new session.")
	}
	return nil
}

// SetPhase moves the session to a phase. Only a person may ask for it; an agent gets there by an approved plan (PH-5).
func (s Session) SetPhase(to Phase, by string) (Session, error) {
	if err := s.open(); err != nil {
		return s, err
	}
	if _, err := ParsePhase(string(to)); err != nil {
		return s, err
	}
	if s.Phase != to || s.PhaseBy != by || s.Opened != nil {
		s.Phase, s.PhaseBy, s.Opened = to, by, nil
		s.Version++
	}
	return s, nil
}

// MaxUserRequest bounds the person's words of one session, in bytes.
const MaxUserRequest = 64 << 10

// AddWords adds what the person asked for later to their request. Only the person, or a host that passes it on, may add any. by is that principal; "" is
// the hook of a client, which speaks for who let it.
func (s Session) AddWords(by, text string) (Session, error) {
	if err := s.open(); err != nil {
		return s, err
	}
	if strings.TrimSpace(text) == "" {
		return s, fault.New(fault.RequestMalformed, "is missing: what did the person ask for?").At("text")
	}
	const between = "\n\n"
	if len(s.UserRequest)+len(between)+len(text) > MaxUserRequest {
		return s, fault.New(fault.RequestMalformed, "The person's words have at most %d bytes in one session.", MaxUserRequest).At("text").Try("Shorten it, or open a new session.")
	}
	if s.UserRequest != "" {
		text = s.UserRequest + between + text
	}
	s.UserRequest = text
	return s.SpokenFor(by)
}

// SpokenFor notes who says what the person asks for in the session, beside who opened it.
func (s Session) SpokenFor(by string) (Session, error) {
	if err := s.open(); err != nil {
		return s, err
	}
	if by != "" && by != s.OpenedBy && !slices.Contains(s.WordsBy, by) {
		s.WordsBy = append(slices.Clip(s.WordsBy), by)
	}
	s.Version++
	return s, nil
}

// Raise adds labels that are not held yet. It also works on a closed session, because the content is there. If a call brings a label that was held
// for another cause, the call replaces that cause: people who look at the session, or release the label, see content rather than definitions.
func (s Session) Raise(held ...flow.Held) Session {
	labels := s.Labels
	for _, h := range held {
		if i := slices.IndexFunc(labels, func(o flow.Held) bool { return o.Label == h.Label }); i >= 0 {
			if labels[i].Cause != "" && h.Cause == "" && h.Operation != "" {
				labels = slices.Clone(labels)
				labels[i] = h
				s.Labels = labels
				s.Version++
			}
			continue
		}
		labels = append(slices.Clip(labels), h)
		s.Labels = labels
		s.Version++
	}
	return s
}

// Holds reports whether the session holds the label.
func (s Session) Holds(l flow.Label) bool {
	return slices.ContainsFunc(s.Labels, func(h flow.Held) bool { return h.Label == l })
}

// AddFound adds parts of requests that brought labels. No decision rests on them, so the version stays. grew tells whether any is new.
func (s Session) AddFound(found Found) (after Session, grew bool) {
	s.Found, grew = s.Found.With(found)
	return s, grew
}

// With is f and more, of which the newest maxFound are kept. grew tells whether any is new.
func (f Found) With(more Found) (all Found, grew bool) {
	if len(more) == 0 {
		return f, false
	}
	all = maps.Clone(f)
	if all == nil {
		all = Found{}
	}
	for l, hashes := range more {
		newest := hashes[max(0, len(hashes)-maxFound):] // more than that of one request would be dropped anyway, and the store's only writer does this
		grew = all.add(l, newest) || grew
	}
	if !grew {
		return f, false
	}
	all.shorten(maxFound)
	return all, true
}

// add adds the hashes of a label that are not there yet, and tells whether there were any. The map's copies share its lists, which stay as they are.
func (f Found) add(l flow.Label, hashes []string) (grew bool) {
	all := slices.Clip(f[l])
	for _, h := range hashes {
		if !slices.Contains(all, h) {
			all, grew = append(all, h), true
		}
	}
	if grew {
		f[l] = all
	}
	return grew
}

// shorten drops the oldest hash of the label that has most of them, until there are at most so many in all.
func (f Found) shorten(most int) {
	for n := f.count(); n > most; n-- {
		var longest flow.Label
		for l, hashes := range f {
			if len(hashes) > len(f[longest]) || len(hashes) == len(f[longest]) && l < longest {
				longest = l
			}
		}
		f[longest] = f[longest][1:]
	}
}

func (f Found) count() (n int) {
	for _, hashes := range f {
		n += len(hashes)
	}
	return n
}

// IsReleased tells whether a person released the label for what has this hash.
func (s Session) IsReleased(l flow.Label, hash string) bool {
	return slices.Contains(s.Released[l], hash)
}

// noteReleased counts what was found for these labels, and what has one of the further hashes, as released: it brings these labels no more.
func (s Session) noteReleased(labels []flow.Label, also []string) Session {
	released, found := maps.Clone(s.Released), maps.Clone(s.Found)
	if released == nil {
		released = Found{}
	}
	for _, l := range labels {
		released.add(l, also)
		released.add(l, found[l])
		if extra := len(released[l]) - maxReleased; extra > 0 {
			released[l] = released[l][extra:]
		}
		delete(found, l)
	}
	if s.Found = found; len(released) > 0 {
		s.Released = released
	}
	return s
}

// Release removes labels. Only a person may do it, with a reason on the record (docs/design.md, rule 3). Naming a label that is not held is an
// error. Parts of requests that brought these labels, and what has one
// of the further hashes, bring them no more.
func (s Session) Release(labels []flow.Label, also ...string) (Session, error) {
	if len(labels) == 0 {
		return s, fault.New(fault.RequestMalformed, "name at least one label to release").At("labels")
	}
	for _, l := range labels {
		if !s.Holds(l) {
			return s, fault.New(fault.Conflict, "Session %s does not hold the label %q.", s.ID, l).At("labels")
		}
	}
	s.Labels = slices.DeleteFunc(slices.Clone(s.Labels), func(h flow.Held) bool { return slices.Contains(labels, h.Label) })
	s = s.noteReleased(labels, also)
	s.Version++
	return s, nil
}

// SubmitPlan adds a plan. An approved plan seals and opens the execution phase. A sealed plan stays: it is not replaced by a plan that is not
// approved, nor once the session holds labels (a plan is trusted because no untrusted content could influence it), nor after a person has moved the
// session back to planning.
func (s Session) SubmitPlan(p Plan) (Session, error) {
	if err := s.open(); err != nil {
		return s, err
	}
	if s.Plan != nil && s.Plan.State == PlanApproved && (p.State != PlanApproved || len(s.Labels) > 0 || s.Phase == Planning) {
		return s, fault.New(fault.Conflict, "The session has a sealed plan already.").Try("Follow it, or ask a person to approve calls outside it.")
	}
	switch p.State {
	case PlanApproved:
		if s.Phase != Execution { // otherwise it was open before, by whoever opened it
			s.Phase, s.PhaseBy, s.Opened = Execution, p.DecidedBy, nil
		}
	case PlanPending, PlanRejected:
	default:
		return s, fault.New(fault.Internal, "unknown plan state %q", p.State)
	}
	p.Clean, p.Done = len(s.Labels) == 0, nil
	s.Plan = &p
	s.Version++
	return s, nil
}

// Take records that a call is made for a step of the sealed plan. A step is called once, or once for each record that it repeats over
// (fault.Conflict). It doesn't change the version, because calls are judged on the same state as before; here it is decided which of two calls
// takes a step.
func (s Session) Take(d provenance.Done) (Session, error) {
	if err := s.open(); err != nil {
		return s, err
	}
	if sealed := s.Plan.Sealed(); sealed == nil || !sealed.HasRoom(d) {
		return s, fault.New(fault.Conflict, "Step %d of the sealed plan has been called.", d.Step)
	}
	p := *s.Plan
	p.Done = append(slices.Clip(p.Done), d)
	s.Plan = &p
	return s, nil
}

// Behind reports whether the session is an earlier state than other, which has to be of the same session.
func (s Session) Behind(other Session) bool {
	if s.Version != other.Version {
		return s.Version < other.Version
	}
	return s.Used < other.Used || len(s.done()) < len(other.done())
}

func (s Session) done() []provenance.Done {
	if s.Plan == nil {
		return nil
	}
	return s.Plan.Done
}

// PlanWaits reports whether a person has to decide on the session's plan.
func (s Session) PlanWaits() bool {
	return s.State == Open && s.Plan != nil && s.Plan.State == PlanPending
}

// DecidePlan applies a person's answer to a pending plan, named by its digest.
func (s Session) DecidePlan(digest string, approve bool, by, reason string, own bool, now time.Time) (Session, error) {
	if err := s.open(); err != nil {
		return s, err
	}
	if s.Plan == nil || s.Plan.State != PlanPending {
		return s, fault.New(fault.Conflict, "Session %s has no plan that waits for an answer.", s.ID)
	}
	if s.Plan.Digest != digest {
		return s, fault.New(fault.ApprovalMismatch, "The plan has changed: its digest is now %s.", s.Plan.Digest).At("digest").Try("Look at the plan again.")
	}
	p := *s.Plan
	p.DecidedBy, p.DecidedAt, p.Reason, p.Own, p.Clean = by, now.UTC(), reason, own, p.Clean && len(s.Labels) == 0
	if approve {
		if s.Phase != Execution || s.PhaseBy == ByRule || s.Opened != nil { // otherwise a person or the operator had opened it without a plan
			s.Opened = &Opening{Plan: p.ID, StopEpoch: p.StopEpoch}
		}
		p.State, s.Phase, s.PhaseBy = PlanApproved, Execution, by
	} else {
		p.State = PlanRejected
	}
	s.Plan = &p
	s.Version++
	return s, nil
}

// PhaseAt is the phase that the session is in. A stop of the agent takes back the execution phase that a person's yes to a plan had opened before it:
// stopEpoch is the number of stops that have reached the agent. A gateway that enforces takes back what a plan had opened only because it observed.
func (s Session) PhaseAt(stopEpoch int64, observing bool) Phase {
	if s.Opened != nil && s.Opened.StopEpoch != stopEpoch || s.PhaseBy == ByRule && !observing && s.Plan.lapsed() {
		return Planning
	}
	return s.Phase
}

// TakenBack tells whether the phase or the plan of the session no longer counts: the agent was stopped, or the gateway enforces and observed before.
func (s Session) TakenBack(stopEpoch int64, observing bool) bool {
	return s.PhaseAt(stopEpoch, observing) != s.Phase || !observing && s.Plan.lapsed()
}

// TakeBack writes down what no longer counts (TakenBack): the session is in planning again where the plan had opened execution, and the plan is over, so
// that the agent can submit another one. It is a fault.Conflict where all of it counts.
func (s Session) TakeBack(stopEpoch int64, observing bool, by, reason string, now time.Time) (Session, error) {
	if err := s.open(); err != nil {
		return s, err
	}
	if !s.TakenBack(stopEpoch, observing) {
		return s, fault.New(fault.Conflict, "The phase and the plan of session %s are as they were.", s.ID)
	}
	phase := s.PhaseAt(stopEpoch, observing)
	if s.Opened != nil && s.Plan != nil && s.Plan.ID == s.Opened.Plan && s.Plan.State == PlanApproved || s.Plan.lapsed() {
		p := *s.Plan
		p.State, p.DecidedBy, p.DecidedAt, p.Reason = PlanRejected, by, now.UTC(), reason
		s.Plan = &p
	}
	if phase != s.Phase {
		s.Phase, s.PhaseBy, s.Opened = Planning, ByRule, nil
	}
	s.Version++
	return s, nil
}

// OpenedByRule reports whether nothing but a rule opened the execution phase: neither the operator, whose declaration says in which phase
// sessions start, nor a person. Sessions of older versions don't say who moved them: if a rule approved their plan, it counts as the one.
func (s Session) OpenedByRule(start Phase) bool {
	if s.Phase != Execution || s.PhaseBy != "" {
		return s.Phase == Execution && s.PhaseBy == ByRule
	}
	return start != Execution && s.Plan != nil && s.Plan.State == PlanApproved && !s.Plan.ByPerson()
}

// Close ends the session for good.
func (s Session) Close(now time.Time) (Session, error) {
	if err := s.open(); err != nil {
		return s, err
	}
	s.State, s.ClosedAt, s.Found, s.Released = Closed, now.UTC(), nil, nil
	s.Version++
	return s, nil
}

// BudgetLeft is the time in operations that the session still has; never negative.
func (s Session) BudgetLeft() time.Duration { return max(0, s.Budget-s.Used) }
