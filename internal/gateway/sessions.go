package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/changes"
	"sallyport.example/internal/display"
	"sallyport.example/internal/evidence"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/limit"
	"sallyport.example/internal/session"
)

// live is a session in use: the newest version of it that this process has seen, and what only memory holds.
type live struct {
	current atomic.Pointer[session.Session] // immutable; only ever replaced by a newer version
	rates   *limit.Rates
	pace    *limit.Pace // of the agent, in all of its sessions
	meter   *limit.Meter
	seen    evidence.Index
	said    said
	prompt  settled   // what the system message of its requests to models says of its tools
	running int       // calls under way; guarded by liveSessions.mu
	used    time.Time // when it was last taken up, or a call of it ended; guarded by liveSessions.mu

	paying sync.Mutex // held while an owed outcome is being written; never together with mu by anybody who waits for the store
	mu     sync.Mutex // guards owed and failed
	owed   []owedOutcome
	failed []string // calls that took a step of the plan and had no effect, the newest
}

// errClosed is the cause with which a session's calls end when the session does.
var errClosed = errors.New("the session was closed")

// errStopping is the cause with which all calls end that run longer than a stopping gateway waits.
var errStopping = errors.New("the gateway stopped before the operation ended")

// owedOutcome is the outcome of a call that could not be written when it was due. Until it is, the session makes no more calls.
type owedOutcome struct {
	entry audit.Entry
	raise []flow.Held
	used  time.Duration
}

// see takes a version of the session that came from the store, unless a newer one is known.
func (l *live) see(s session.Session) *session.Session {
	for {
		cur := l.current.Load()
		if cur != nil && !cur.Behind(s) {
			return cur
		}
		if l.current.CompareAndSwap(cur, &s) {
			return &s
		}
	}
}

// liveSessions are the sessions in use.
type liveSessions struct {
	mu    sync.Mutex // guards the rest
	byID  map[string]*live
	own   map[string]*live        // by agent: its open own session
	rates map[string]*limit.Rates // by agent: of its own sessions
	paces map[string]*limit.Pace  // by agent
	given map[string][]string     // by agent: the open sessions that hosts and people opened for it
	tried bool                    // a trial runs, so that sessions of trial agents are in use
}

// newLiveSessions begins with the sessions that hosts and people opened and nobody has closed.
func newLiveSessions(given map[string][]string) liveSessions {
	return liveSessions{byID: map[string]*live{}, own: map[string]*live{}, rates: map[string]*limit.Rates{}, paces: map[string]*limit.Pace{}, given: given}
}

// begin counts a call of a session, and returns the session as memory has it: it may have been dropped and taken up anew since l was found. For an own
// session it returns nil with the id of an open session that was given to the agent, if there is one.
func (a *liveSessions) begin(l *live, beside bool) (held *live, given string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := l.current.Load()
	if s.Own && !beside && len(a.given[s.Agent]) > 0 {
		return nil, a.given[s.Agent][0]
	}
	if now := a.byID[s.ID]; now != nil {
		l = now
	} else if s.State == session.Open {
		a.hold(l)
	}
	l.running++
	return l, ""
}

// hold makes l the session in use of its id. It holds mu.
func (a *liveSessions) hold(l *live) {
	s := l.current.Load()
	a.byID[s.ID], l.used = l, time.Now()
	if s.Own && s.State == session.Open {
		a.own[s.Agent] = l
	}
}

// idleAfter is how long a session without a call stays in memory. Its rates are over by then, and all else of it is in the store.
const idleAfter = 15 * time.Minute

// dropIdle drops the sessions that had no call since before: what they have seen takes memory. One that owes an outcome stays, and one with calls that gave
// their step back, which only memory knows.
func (a *liveSessions) dropIdle(before time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, l := range a.byID {
		if l.running > 0 || !l.used.Before(before) || l.owes() || len(l.failedCalls()) > 0 {
			continue
		}
		delete(a.byID, id)
		if agent := l.current.Load().Agent; a.own[agent] == l {
			delete(a.own, agent)
		}
	}
}

// shed empties the index of what sessions have seen, those first that had no call for longest, until all take no more than most bytes.
func (a *liveSessions) shed(most int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	total, all := int64(0), make([]*live, 0, len(a.byID))
	for _, l := range a.byID {
		if n := l.seen.Size(); n > 0 {
			total, all = total+n, append(all, l)
		}
	}
	if total <= most {
		return
	}
	slices.SortFunc(all, func(l, m *live) int { return l.used.Compare(m.used) })
	for _, l := range all {
		if total <= most {
			return
		}
		before := l.seen.Size()
		l.seen.Forget()
		total -= before - l.seen.Size()
	}
}

// tidyEvery is how often the memory of sessions is looked at.
const tidyEvery = 5 * time.Second

// tidy drops idle sessions, and bounds what all of them take, until the gateway closes.
func (g *Gateway) tidy() {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			g.sessions.dropIdle(now.Add(-idleAfter))
			g.sessions.shed(g.o.SeenMemory)
		case <-g.background.running.Done():
			return
		}
	}
}

// givenTo is the id of an open session that was given to the agent; "" if there is none.
func (a *liveSessions) givenTo(agent string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if given := a.given[agent]; len(given) > 0 {
		return given[0]
	}
	return ""
}

// trial notes that a trial runs, or no longer.
func (a *liveSessions) trial(runs bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tried = runs
}

// tries tells whether a trial runs.
func (a *liveSessions) tries() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tried
}

// busy tells whether a call of the session runs.
func (a *liveSessions) busy(l *live) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return l.running > 0
}

// end ends what begin began.
func (a *liveSessions) end(l *live) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l.running--
	l.used = time.Now()
}

// give notes a session that is about to be opened for the agent: from here on its own session begins no call. It fails while a call of that runs.
func (a *liveSessions) give(agent, id string, beside bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if own := a.own[agent]; own != nil && own.running > 0 && !beside {
		return false
	}
	a.given[agent] = append(a.given[agent], id)
	return true
}

// takeBack ends what give began: the session is closed, or was never opened.
func (a *liveSessions) takeBack(agent, id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if left := slices.DeleteFunc(a.given[agent], func(one string) bool { return one == id }); len(left) > 0 {
		a.given[agent] = left
	} else {
		delete(a.given, agent)
	}
}

// get finds a session by its id; nil if it is not in use.
func (a *liveSessions) get(id string) *live {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byID[id]
}

// ownOf finds the own session of an agent; nil if none is in use.
func (a *liveSessions) ownOf(agent string) *live {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.own[agent]
}

// paceOf is the pace of an agent's calls in all of its sessions.
func (a *liveSessions) paceOf(agent string) *limit.Pace {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pace(agent)
}

// pace holds mu.
func (a *liveSessions) pace(agent string) *limit.Pace {
	p := a.paces[agent]
	if p == nil {
		p = &limit.Pace{}
		a.paces[agent] = p
	}
	return p
}

// add makes a session live, once. Own sessions of an agent share their rates; tierOf is asked under the lock, so that no session
// begins with the limits of settings that are over (limit).
func (a *liveSessions) add(s session.Session, tierOf func(id string) Tier) (l *live, isNew bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l = a.byID[s.ID]
	if isNew = l == nil; isNew {
		l = &live{meter: limit.NewMeter(s.Budget, s.Used), pace: a.pace(agent.Base(s.Agent))}
		if s.Own {
			l.rates = a.rates[s.Agent]
		}
		if l.rates == nil {
			tier := tierOf(s.Agent)
			l.rates = limit.NewRates(tier.CallsPerMinute, tier.CommRequestsPerMinute)
		}
		if s.Own {
			a.rates[s.Agent] = l.rates
		}
	}
	l.see(s)
	a.hold(l)
	return l, isNew
}

// limit gives the sessions in use the limits that their agents have now. What was counted stays counted.
func (a *liveSessions) limit(tierOf func(agent string) Tier) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.byID {
		tier := tierOf(l.current.Load().Agent)
		l.rates.Limit(tier.CallsPerMinute, tier.CommRequestsPerMinute)
	}
	for agent, rates := range a.rates { // of agents whose own session is closed, too: the next one goes on with them
		tier := tierOf(agent)
		rates.Limit(tier.CallsPerMinute, tier.CommRequestsPerMinute)
	}
}

// all returns the sessions in use.
func (a *liveSessions) all() []*live {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.byID))
}

// forget drops a closed session and returns what was held of it; one that owes an outcome stays until that is written.
func (a *liveSessions) forget(s session.Session) *live {
	a.mu.Lock()
	defer a.mu.Unlock()
	closed := a.byID[s.ID]
	if closed != nil && !closed.owes() {
		delete(a.byID, s.ID)
	}
	if l := a.own[s.Agent]; l != nil && l.current.Load().ID == s.ID {
		delete(a.own, s.Agent)
	}
	return closed
}

// hold makes a session live in memory, once.
func (g *Gateway) hold(s session.Session) *live {
	l, isNew := g.sessions.add(s, g.tierOfAgent)
	if isNew {
		g.feed.Publish(changes.Session, s.ID)
	}
	return l
}

// liveSession finds a session by id, in memory or in the store.
func (g *Gateway) liveSession(ctx context.Context, id string) (*live, error) {
	if l := g.sessions.get(id); l != nil {
		return l, nil
	}
	s, err := g.store.Session(ctx, id)
	if err != nil {
		return nil, err
	}
	return g.hold(s), nil
}

// sessionOf finds the session that the principal speaks for. id is what it asked for, "" for its own. What it may not see does
// not exist for it. An agent's own session is opened at first use, and inherits the labels of the agent's last session: neither a
// new connection nor a closed session cleans an agent.
func (g *Gateway) sessionOf(ctx context.Context, p identity.Principal, id string) (*live, error) {
	hidden := func(why string) error { // whose a session is, or that there is one, is for the record
		return fault.Wrap(fault.New(fault.PermissionDenied, "%s", why), fault.NotFound, "There is no session %q for this credential.", short(id)).At("session_id")
	}
	switch p.Kind {
	case identity.Session:
		if id != "" && id != p.ID {
			return nil, hidden("The credential is for the session " + p.ID + " alone, and was used for " + short(id) + ".")
		}
		if err := g.mayTry(p, p.Agent); err != nil {
			return nil, err
		}
		return g.liveSession(ctx, p.ID)
	case identity.Agent:
		if err := g.mayUseOwn(p.ID); err != nil {
			return nil, err
		}
		l, err := g.ownSession(ctx, p)
		if err != nil {
			return nil, err
		}
		own := l.current.Load()
		if id != "" && id != own.ID {
			return nil, hidden("The credential is for the agent's own session " + own.ID + " alone, and was used for " + short(id) + ".")
		}
		if p.Conversation != 0 && p.Conversation != own.Piece+1 {
			return nil, conversationOver(own.ID)
		}
		return l, nil
	case identity.Host:
		if id == "" {
			return nil, fault.New(fault.CredentialWrongKind, "A host's token speaks for no session of its own.").
				Try("Open one with POST /v1/session and use its session_token.")
		}
		l, err := g.liveSession(ctx, id)
		switch {
		case err == nil && l.current.Load().OpenedBy != p.String():
			return nil, hidden("The session " + short(id) + " was opened by " + l.current.Load().OpenedBy + ", and " + p.String() + " asked for it.")
		case fault.Is(err, fault.NotFound):
			return nil, fault.New(fault.NotFound, "There is no session %q for this credential.", short(id)).At("session_id")
		}
		return l, err
	}
	return nil, fault.New(fault.CredentialWrongKind, "A %s's token is not for the agents' side.", p.Kind)
}

// mayUseOwn refuses an agent's own session while one is open that a host or a person opened for it: with two, what one refuses could be done in
// the other. The agent's declaration can allow both.
func (g *Gateway) mayUseOwn(agent string) error {
	if given := g.sessions.givenTo(agent); given != "" && !g.sideBySide(agent) {
		return ownWaits(given)
	}
	return nil
}

// sideBySide tells whether the declaration of an agent allows its own session beside those that it is given.
func (g *Gateway) sideBySide(agent string) bool {
	d, ok := g.Agents().Get(agent)
	return ok && d.SessionsSideBySide
}

// ownWaits is the error of an own session beside one that was given. Only the record has whose it is.
func ownWaits(given string) error {
	return fault.Wrap(fault.New(fault.SessionClosed, "The session %s is open, which was opened for the agent, and its own session was used.", given),
		fault.SessionClosed, "A session is open that a host or a person opened for this agent. The agent's own one can't be used beside it.").
		Try("Ask your person to go on in that session, which has a token of its own, or to end it.")
}

func (g *Gateway) ownSession(ctx context.Context, p identity.Principal) (*live, error) {
	if l := g.sessions.ownOf(p.ID); l != nil && l.current.Load().State == session.Open {
		return l, nil
	}
	s, err := g.store.OwnSession(ctx, p.ID)
	if err == nil {
		return g.hold(s), nil
	}
	if !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	d, err := g.declared(p.ID)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		last, err := g.lastOwn(ctx, p.ID)
		if err != nil {
			return nil, err
		}
		s = session.New(p.ID, session.Phase(d.StartPhase), p.String(), g.now())
		s.Own, s.Budget = true, g.settings.Load().tierOf(d).Budget
		s = s.After(last)
		given, err := g.given(ctx, last.ID)
		if err != nil {
			return nil, err
		}
		err = g.store.OpenSession(ctx, s, opened(s, p.String()), given...)
		if err == nil {
			return g.hold(s), nil
		}
		if !fault.Is(err, fault.Conflict) || try == maxRejudge {
			return nil, err
		}
		// Another connection of the same agent was first, or its labels moved on.
		if s, err = g.store.OwnSession(ctx, p.ID); err == nil {
			return g.hold(s), nil
		} else if !fault.Is(err, fault.NotFound) {
			return nil, err
		}
	}
}

// lastOwn is the agent's last own session, whose labels it still has in its context; a zero one if it has had none. Sessions that hosts
// and people open are others' work: they neither hand labels on to it nor clean it.
func (g *Gateway) lastOwn(ctx context.Context, agent string) (session.Session, error) {
	last, err := g.store.LastOwnSession(ctx, agent)
	if fault.Is(err, fault.NotFound) {
		return session.Session{}, nil
	}
	return last, err
}

// given is what the agent's next own session takes over of what the last one has kept. "" is no session.
func (g *Gateway) given(ctx context.Context, last string) ([]evidence.Kept, error) {
	if last == "" {
		return nil, nil
	}
	kept, err := g.store.Evidence(ctx, last, 0)
	if err != nil {
		return nil, err
	}
	return evidence.TakenOver(kept)
}

// trialBudget is the budget of a trial agent's session.
const trialBudget = 2 * time.Second

// declared finds the agent's declaration; an agent without one does nothing.
func (g *Gateway) declared(id string) (*agent.Declaration, error) {
	return g.settings.Load().declared(id)
}

func (s *settings) declared(id string) (*agent.Declaration, error) {
	d, ok := s.Agents.Get(id)
	if !ok {
		return nil, fault.New(fault.AgentUndeclared, "The agent %q has no declaration.", short(id)).
			Try("Add a file for it to the agents folder, and reload the configuration (sallyport reload).")
	}
	return d, nil
}

func opened(s session.Session, by string) audit.Entry {
	e := audit.Entry{Kind: audit.Change, Action: "session.open", Agent: s.Agent, Session: s.ID, Requester: s.Requester, Actor: by, Decision: "ok"}
	e.Labels = labelWords(s.Labels)
	e.Detail, _ = json.Marshal(map[string]any{"phase": s.Phase, "own": s.Own}) // of two plain values: can't fail
	return e
}

func labelWords(held []flow.Held) []string {
	var words []string
	for _, h := range held {
		words = append(words, string(h.Label))
	}
	return words
}

// OpenRequest asks for a fresh session.
type OpenRequest struct {
	Agent       string   `json:"agent_id"`
	UserRequest string   `json:"user_request"`
	Requester   string   `json:"requester,omitempty"`
	Labels      []string `json:"labels,omitempty"`
	Run         string   `json:"-"` // the run that it is for: nobody outside says so
}

// OpenSession opens a session for an agent: by a host or a person, or by an agent whose declaration says sessions: self, which
// then keeps the labels of its earlier session. It returns the session and its token.
func (g *Gateway) OpenSession(ctx context.Context, p identity.Principal, r OpenRequest) (session.Session, string, error) {
	var s session.Session
	if r.Agent == "" && p.Kind == identity.Agent {
		r.Agent = p.ID
	}
	if err := identity.CheckID(r.Agent); err != nil {
		return s, "", fault.Wrap(err, fault.RequestMalformed, "%v", err).At("agent_id")
	}
	if len(r.UserRequest) > session.MaxUserRequest {
		return s, "", fault.New(fault.RequestMalformed, "at most %d bytes", session.MaxUserRequest).At("user_request")
	}
	if r.Requester != "" {
		if err := identity.CheckID(r.Requester); err != nil {
			return s, "", fault.Wrap(err, fault.RequestMalformed, "%v", err).At("requester")
		}
	}
	d, err := g.declared(r.Agent)
	if err != nil {
		return s, "", err
	}
	if err := g.mayTry(p, r.Agent); err != nil {
		return s, "", err
	}
	var labels []flow.Held
	for _, word := range r.Labels {
		l, err := flow.ParseLabel(word)
		if err != nil || !g.settings.Load().rules.KnownLabel(l) {
			return s, "", fault.New(fault.RequestMalformed, "unknown label %q", short(word)).At("labels").Try("Use one of flow.labels, or untrusted.")
		}
		labels = append(labels, flow.Held{Label: l})
	}
	s = session.New(r.Agent, session.Phase(d.StartPhase), p.String(), g.now())
	s.UserRequest, s.Requester, s.Budget, s.Run = r.UserRequest, r.Requester, g.settings.Load().tierOf(d).Budget, r.Run
	if agent.IsTrial(r.Agent) { // so that a person can see within a moment that a spent budget ends the work
		s.Budget = min(s.Budget, trialBudget)
	}
	switch p.Kind {
	case identity.Host, identity.Person:
	case identity.Agent:
		if p.ID != r.Agent || d.Sessions != "self" {
			return s, "", fault.New(fault.PermissionDenied, "The agent %q may not open sessions.", p.ID).
				Try("Let a host or a person open it, or set sessions: self in its declaration.")
		}
		if r.Requester != "" {
			return s, "", fault.New(fault.PermissionDenied, "An agent can't say whom it works for.").At("requester")
		}
		if err := g.mayUseOwn(p.ID); err != nil {
			return s, "", err
		}
		s.UserRequest = "" // the agent's words are not the person's words
		if s, err = g.rotate(ctx, p, s, labels); err != nil {
			return s, "", err
		}
		return g.sessionToken(ctx, p, s)
	default:
		return s, "", fault.New(fault.CredentialWrongKind, "A session's token can't open sessions.")
	}
	s = s.Raise(labels...)
	if err := g.openGiven(ctx, p, s, d.SessionsSideBySide); err != nil {
		return s, "", err
	}
	g.hold(s)
	return g.sessionToken(ctx, p, s)
}

// openGiven opens a session that a host or a person gives an agent. The agent's own one is closed before, unless both are allowed beside each other: an
// idle one has nothing to lose, since the next one follows it with its labels.
func (g *Gateway) openGiven(ctx context.Context, p identity.Principal, s session.Session, beside bool) (err error) {
	if !g.sessions.give(s.Agent, s.ID, beside) {
		return fault.New(fault.Conflict, "Calls of the agent %q run in its own session, which has to be closed first.", s.Agent).
			Try("Try again when they have ended, or close that session.")
	}
	defer func() {
		if err != nil {
			g.sessions.takeBack(s.Agent, s.ID)
		}
	}()
	if !beside {
		own, err := g.store.OwnSession(ctx, s.Agent)
		if err == nil {
			_, err = g.CloseSession(ctx, own.ID, p.String(), "a session was opened for the agent")
		}
		if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.SessionClosed) {
			return err
		}
	}
	e, detail := opened(s, p.String()), map[string]any{"phase": s.Phase, "own": s.Own}
	noteScreened(g.screenRequest(s.UserRequest, p.String()), &e, detail)
	e.Detail, _ = json.Marshal(detail) // of plain values: can't fail
	return g.store.OpenSession(ctx, s, e)
}

// rotate opens the agent's next own session in place of the one before, whose labels it keeps. There is one at a time: an agent
// with two could read in one and send in the other. Calls that still run in the closed one have their results discarded.
func (g *Gateway) rotate(ctx context.Context, p identity.Principal, s session.Session, labels []flow.Held) (session.Session, error) {
	s.Own = true
	ctx = context.WithoutCancel(ctx) // half of it would close a session and open none
	for range maxRejudge {
		own, err := g.store.OwnSession(ctx, p.ID)
		if err == nil {
			own, err = g.CloseSession(ctx, own.ID, p.String(), "the agent opened its next session")
			s.Used = max(s.Used, own.Used) // opening the next session renews no budget
		}
		if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.SessionClosed) {
			return s, err
		}
		last, err := g.lastOwn(ctx, p.ID)
		if err != nil {
			return s, err
		}
		next := s.After(last).Raise(labels...)
		next.Used = max(s.Used, last.Used)
		given, err := g.given(ctx, last.ID)
		if err != nil {
			return s, err
		}
		err = g.store.OpenSession(ctx, next, opened(next, p.String()), given...)
		if fault.Is(err, fault.Conflict) {
			continue // another connection opened one in between
		}
		if err == nil {
			g.hold(next)
		}
		return next, err
	}
	return s, fault.New(fault.Conflict, "Another connection of the agent keeps opening sessions.").Try("Try again.")
}

func (g *Gateway) sessionToken(ctx context.Context, p identity.Principal, s session.Session) (session.Session, string, error) {
	secret, _, err := g.standing.IssueToken(ctx, identity.Principal{Kind: identity.Session, ID: s.ID, Agent: s.Agent}, p.String())
	return s, secret, err
}

// Words is what became of words that were added to a session.
type Words struct {
	SessionID string `json:"session_id"`
	// Confirms: they are part of the person's request from now on. false: a call of the session was open, which could have made a client send them. They
	// are on record alone; send them again when the call has ended.
	Confirms bool `json:"confirms"`
}

// AddWords adds what the person asked for later to the request of a session, as an entry (FL-2). Hosts may in the sessions that they opened, people in any,
// and the hook of a client in its own. No agent can: its words are not the person's, whatever token it has.
func (g *Gateway) AddWords(ctx context.Context, p identity.Principal, id, text string) (Words, error) {
	var l *live
	var err error
	switch p.Kind {
	case identity.Person:
		l, err = g.liveSession(ctx, id)
	case identity.Host:
		l, err = g.sessionOf(ctx, p, id)
	case identity.Hook:
		if id != "" && id != p.ID {
			return Words{}, fault.New(fault.PermissionDenied, "This key is for the words of one other session.").At("session_id")
		}
		l, err = g.liveSession(ctx, p.ID)
	default:
		return Words{}, fault.New(fault.CredentialWrongKind, "Only a host, a person or the prompt hook of a client can add to the person's words.")
	}
	if err != nil {
		return Words{}, err
	}
	w := Words{SessionID: l.current.Load().ID, Confirms: !g.sessions.busy(l)}
	e := audit.Entry{Action: "session.words", Actor: p.String(), Reason: audit.Clip(text)}
	by := p.String()
	if p.Kind == identity.Hook {
		by = "" // noted when it got its key
	}
	sum := sha256.Sum256([]byte(text))
	detail := map[string]any{"confirms": w.Confirms, "sha256": hex.EncodeToString(sum[:])}
	noteScreened(g.screenRequest(l.current.Load().UserRequest+"\n\n"+text, p.String()), &e, detail) // orders may be spread over what is added
	e.Detail, _ = json.Marshal(detail)                                                              // of plain values: can't fail
	_, err = g.change(ctx, w.SessionID, e, func(s session.Session) (session.Session, error) {
		next, err := s.AddWords(by, text)
		if !w.Confirms {
			next = s
		}
		return next, err
	})
	return w, err
}

// HookKey makes a key for the prompt hook of a client that runs in an open session. It adds the person's words to that session, opens no other door, and
// is of no use once the session is closed.
func (g *Gateway) HookKey(ctx context.Context, id, by string) (string, error) {
	l, err := g.liveSession(ctx, id)
	if err != nil {
		return "", err
	}
	s := l.current.Load()
	if s.State != session.Open {
		return "", fault.New(fault.SessionClosed, "Session %s is closed.", s.ID)
	}
	if by != s.OpenedBy { // what the hook will say is said by who lets it
		if _, err := g.change(ctx, s.ID, audit.Entry{Action: "session.hook_key", Actor: by}, func(s session.Session) (session.Session, error) { return s.SpokenFor(by) }); err != nil {
			return "", err
		}
	}
	secret, _, err := g.standing.IssueToken(ctx, identity.Principal{Kind: identity.Hook, ID: s.ID, Agent: s.Agent}, by)
	return secret, err
}

// SessionFor returns the session that the principal speaks for, opening an agent's own at first use.
func (g *Gateway) SessionFor(ctx context.Context, p identity.Principal) (session.Session, error) {
	l, err := g.sessionOf(ctx, p, "")
	if err != nil {
		return session.Session{}, err
	}
	return *l.current.Load(), nil
}

// SessionByID returns a session to a person; who may look is the caller's to check.
func (g *Gateway) SessionByID(ctx context.Context, id string) (session.Session, error) {
	l, err := g.liveSession(ctx, id)
	if err != nil {
		return session.Session{}, err
	}
	return *l.current.Load(), nil
}

// change moves a stored session and keeps memory in step. The entry's session fields are filled in.
func (g *Gateway) change(ctx context.Context, id string, e audit.Entry, move func(session.Session) (session.Session, error)) (session.Session, error) {
	return g.changeEntry(ctx, id, e, func(s session.Session, _ *audit.Entry) (session.Session, error) { return move(s) })
}

// changeEntry is change for a move that also fills in its entry.
func (g *Gateway) changeEntry(ctx context.Context, id string, e audit.Entry, move func(session.Session, *audit.Entry) (session.Session, error)) (session.Session, error) {
	l, err := g.liveSession(ctx, id)
	if err != nil {
		return session.Session{}, err
	}
	s, err := g.store.ChangeSession(ctx, id, func(s session.Session) (session.Session, audit.Entry, error) {
		entry := e
		next, err := move(s, &entry)
		entry.Kind, entry.Decision = audit.Change, "ok"
		entry.Session, entry.Agent, entry.Requester = s.ID, s.Agent, s.Requester
		return next, entry, err
	})
	if err != nil {
		return s, err
	}
	l.see(s)
	g.feed.Publish(changes.Session, s.ID)
	if s.Plan != nil { // decided on, or over with its session
		g.feed.Publish(changes.Plan, s.ID)
	}
	return s, nil
}

// SetPhase is a person's change of phase (PH-5).
func (g *Gateway) SetPhase(ctx context.Context, id string, to session.Phase, by, reason string) (session.Session, error) {
	detail, _ := json.Marshal(map[string]any{"phase": to}) // of a string: can't fail
	return g.change(ctx, id, audit.Entry{Action: "session.phase", Actor: by, Reason: reason, Detail: detail},
		func(s session.Session) (session.Session, error) { return s.SetPhase(to, by) })
}

// Release takes labels off a session: a person's act, with a reason on the record.
func (g *Gateway) Release(ctx context.Context, id string, labels []flow.Label, by, reason string) (session.Session, error) {
	if strings.TrimSpace(reason) == "" {
		return session.Session{}, fault.New(fault.RequestMalformed, "say why the labels are released").At("reason")
	}
	var words []string
	for _, l := range labels {
		words = append(words, string(l))
	}
	l, err := g.liveSession(ctx, id)
	if err != nil {
		return session.Session{}, err
	}
	delivered, found := l.said.forRelease()
	var also []string
	for _, text := range delivered {
		also = append(also, g.hashFound(id, text))
	}
	e := audit.Entry{Action: "session.release", Actor: by, Reason: reason, Labels: words}
	return g.changeEntry(ctx, id, e, func(s session.Session, e *audit.Entry) (session.Session, error) {
		s, _ = s.AddFound(found)
		detail := releasedDetail{Found: session.Found{}, Delivered: also}
		for _, label := range labels {
			if hashes := s.Found[label]; len(hashes) > 0 {
				detail.Found[label] = hashes
			}
		}
		if len(detail.Found)+len(also) > 0 {
			e.Detail, _ = json.Marshal(detail) // of strings: can't fail
		}
		return s.Release(labels, also...)
	})
}

// releasedDetail is what a release names, by keyed hashes: parts of requests to models that brought the labels, and texts that results delivered.
type releasedDetail struct {
	Found     session.Found `json:"found,omitempty"`
	Delivered []string      `json:"delivered,omitempty"`
}

// CloseSession ends a session for good. Its token still tells who asks, so that a late call is told that the session is closed.
func (g *Gateway) CloseSession(ctx context.Context, id, by, reason string) (session.Session, error) {
	s, err := g.change(ctx, id, audit.Entry{Action: "session.close", Actor: by, Reason: reason},
		func(s session.Session) (session.Session, error) { return s.Close(g.now()) })
	if err != nil {
		return s, err
	}
	if !s.Own {
		g.sessions.takeBack(s.Agent, s.ID)
	}
	g.desk.WithdrawSession(context.WithoutCancel(ctx), s.ID)
	if l := g.sessions.forget(s); l != nil { // what still runs would be thrown away when it comes back
		if spent := l.meter.Stop(errClosed); spent > s.Used {
			s.Used = spent
		}
	}
	return s, nil
}

// RemoveFiles removes what a closed session's workspace holds, which nobody can reach any more: on record before it is done.
func (g *Gateway) RemoveFiles(ctx context.Context, id, by string) error {
	s, err := g.store.Session(ctx, id)
	if err != nil {
		return err
	}
	if s.State != session.Closed {
		return fault.New(fault.Conflict, "Session %s is open, and its agent works with its files.", short(id)).Try("Close it first.")
	}
	e := audit.Entry{Kind: audit.Change, Action: "session.remove_files", Agent: s.Agent, Session: s.ID, Requester: s.Requester, Actor: by, Decision: "ok"}
	if err := g.store.Record(ctx, e); err != nil {
		return err
	}
	return g.o.RemoveFiles(id)
}

// WaitingPlans returns open sessions whose plan waits for a person, the newest first and at most limit of them, and how many there are.
func (g *Gateway) WaitingPlans(ctx context.Context, limit int) (newest []session.Session, all int64, err error) {
	return g.store.WaitingPlans(ctx, limit)
}

// DecidePlan is a person's answer to a plan that waits, named by the digest they saw.
func (g *Gateway) DecidePlan(ctx context.Context, id, digest string, approve bool, by, reason string) (session.Session, error) {
	own := false
	if person, ok := strings.CutPrefix(by, "person:"); ok {
		s, err := g.store.Session(ctx, id)
		if err != nil {
			return s, err
		}
		voter, _ := g.settings.Load().Voter(person)
		// Whether they may decide on plans is for the HTTP API and the console to check. Its HIGH and CRITICAL calls are asked about one by one.
		voter.Person, voter.Roles, voter.Others = person, []identity.Role{identity.Approver}, withOperators(voter.Others)
		plan := approval.Approval{Requester: s.Requester, OpenedBy: s.OpenedBy, WordsBy: s.WordsBy, Agent: s.Agent, Risk: "HIGH"}
		own = plan.Own(voter)
		if err := plan.Entitled(voter); err != nil && approve && s.Plan != nil && s.Plan.State == session.PlanPending {
			return s, err
		}
	}
	action := "plan.approve"
	if !approve {
		action = "plan.reject"
	}
	said := map[string]any{"plan_digest": digest}
	if own {
		said["own"] = true // the person asked for the session themselves
	}
	detail, _ := json.Marshal(said) // of a string: can't fail
	return g.change(ctx, id, audit.Entry{Action: action, Actor: by, Reason: reason, Detail: detail},
		func(s session.Session) (session.Session, error) {
			if approve && s.PlanWaits() && g.stoppedSince(&s) {
				return s, fault.New(fault.ApprovalMismatch, "The agent was stopped after it submitted this plan: by the kill switch or by a quarantine.").
					Try("Reject it. The agent can submit a new one once it may call again.")
			}
			return s.DecidePlan(digest, approve, by, reason, own, g.now())
		})
}

// withOperators lets operators count among those who could answer: plans are theirs to decide on.
func withOperators(others func() []approval.Voter) func() []approval.Voter {
	if others == nil {
		return nil
	}
	return func() []approval.Voter {
		all := slices.Clone(others())
		for i, o := range all {
			if slices.Contains(o.Roles, identity.Operator) {
				all[i].Roles = append(slices.Clone(o.Roles), identity.Approver)
			}
		}
		return all
	}
}

// settle writes the outcomes that the session owes. While it owes one it makes no calls (fault.AuditUnavailable).
func (g *Gateway) settle(ctx context.Context, l *live) error {
	l.paying.Lock()
	defer l.paying.Unlock()
	for {
		l.mu.Lock()
		if len(l.owed) == 0 {
			l.mu.Unlock()
			return nil
		}
		o := l.owed[0]
		l.mu.Unlock()
		s, err := g.store.Outcome(ctx, o.entry.Session, o.entry, o.raise, o.used)
		if err != nil {
			return fault.Wrap(err, fault.AuditUnavailable, "The outcome of an earlier call of this session is not written down yet.").
				Try("Wait until the store answers again.")
		}
		l.see(s)
		l.mu.Lock()
		l.owed = l.owed[1:]
		l.mu.Unlock()
	}
}

func (l *live) owe(o owedOutcome) {
	l.mu.Lock()
	l.owed = append(l.owed, o)
	l.mu.Unlock()
}

// owes tells whether an outcome waits to be written.
func (l *live) owes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.owed) > 0
}

// failedCalls are the newest calls that gave their step of the plan back.
func (l *live) failedCalls() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.failed)
}

// payOwed writes owed outcomes behind the caller's back, until the store takes them or the gateway closes.
func (g *Gateway) payOwed(l *live) {
	g.background.Go(func() {
		for {
			err := g.settle(context.Background(), l)
			if err == nil {
				return
			}
			select {
			case <-time.After(250 * time.Millisecond):
			case <-g.background.running.Done():
				g.log.Error("an outcome is not written down; at the next start it is recorded as unknown", "error", err)
				return
			}
		}
	})
}

// short bounds a hostile string for a message.
func short(s string) string { return display.Clip(s, 80) }

// notNil keeps an empty list from being null in JSON.
func notNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
