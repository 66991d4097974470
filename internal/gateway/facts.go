package gateway

import (
	"context"
	"errors"
	"slices"

	"sallyport.example/flow"
	"sallyport.example/guard"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/declare"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/judge"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/models/wire"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/screen"
	"sallyport.example/internal/session"
	"sallyport.example/provenance"
)

// speaker is who calls, and in which session.
type speaker struct {
	set     *settings // those that the call is judged by
	agent   string
	decl    *agent.Declaration
	live    *live
	session *session.Session // the version that is judged
}

// subject is what is called: parsed once, and the same for every judgement.
type subject struct {
	effect  effect.Effect // what the call does
	op      *catalogue.Operation
	partial bool     // a step of a plan, some of whose arguments are not known yet
	args    []byte   // canonical; with what is read or asked for, where that is no tool
	selects []byte   // the part of args that selects what is read, where that is not all of it
	lowered int64    // how many tokens a model's answer may have, where that is fewer than was asked for; 0: as many
	masked  []string // placeholders of secrets in it
	hosted  []string // tools that a model's provider runs for this request
	answers []byte   // canonical answers to a server's questions, which go out beside the arguments
	digest  string
	hides   error  // what is wrong with the characters of the arguments that show nothing
	unseen  int    // how many such characters there are
	writes  bool   // it changes something
	acts    string // why the call counts as one that changes more than its tool is said to; ""

	grounds

	carries  []judge.Carried // delivered content in the arguments
	screened *screen.Found   // what screening found in the arguments
	carried  []flow.Held     // the labels that it has
	// unscreened: screening has not looked at them yet. It does when nothing else has refused the call.
	unscreened bool
	unheard    []wire.Block  // of a request to a model: what the session has not sent to one before
	messages   *screen.Found // what screening found in that
	found      session.Found // the parts among them that brought labels
	said       *screen.Found // the hit in what of that the agent wrote; nil: there is none
}

// grounds are what a call says about why it is needed.
type grounds struct {
	declaration   *declare.Declaration   // the one that the call names
	justification *declare.Justification // in the call
	invalid       []declare.Problem      // what is wrong with that
	undeclared    error                  // what is wrong with how the call is declared
	inPlan        bool                   // the step of a plan that is judged declares the call
	flags         []string               // what is doubtful about the reasons
}

// judgement is what one look at the facts gave.
type judgement struct {
	facts    judge.Facts
	verdict  fault.Verdict
	found    judge.Finding
	firstUse []string // keys of what the agent would use for the first time
}

// understand finds out whether the call changes something. Nothing else decides that, for calls, checks and plans.
func (c *crossing) understand() {
	if op := c.op.At(c.args); op != c.op {
		c.use(effect.Of(op))
	}
	c.unseen, c.hides = c.invisible()
	c.writes, c.acts = c.effect.Writes(c.args)
}

// load gathers the facts that memory knows.
func (c *crossing) load() judge.Facts {
	g, now := c.g, c.g.now()
	c.stops.epoch = g.standing.StopEpoch(c.agent) // before the facts: a stop that comes later is noticed
	tier := c.set.tierOf(c.decl)
	aside, _ := g.standing.Quarantined(c.agent)
	reason, remedy := g.o.Unapproved(c.set.whole(c.decl))
	raised := c.raised()
	s, phase, window := c.session, c.session.PhaseAt(c.stops.epoch, c.set.rules.Observe), c.live.rates.Calls
	if c.r.DryRun { // asking is work too, and takes nothing from the calls
		window = c.live.rates.Checks
	}
	f := judge.Facts{
		Rules: c.set.rules, Time: now,
		Caller: judge.Caller{
			Agent: c.agent, Requester: s.Requester, Door: c.r.Door, Declaration: c.decl, Stopped: c.stops.caught.Load() || g.standing.Killed(c.agent), Quarantined: aside.Since,
			Approved: reason == "", Unapproved: judge.Unapproved{Reason: reason, Remedy: remedy},
			Degraded: g.degraded(c.set, c.decl),
			AskFrom:  tier.AskFrom, Own: c.set.Identities(s.Requester),
		},
		Session: judge.Session{
			Open: s.State == session.Open, Phase: phase, OfRun: s.Run != "", OpenedByRule: s.OpenedByRule(session.Phase(c.decl.StartPhase)), Labels: raised.Labels, Plan: s.Plan, Sealed: c.plan(), OutcomeOwed: c.live.owes(),
			BudgetSpent: s.Budget > 0 && (s.BudgetLeft() == 0 || c.live.meter.Left() <= 0),
			Room:        judge.Room{CallsPerMinute: tier.CallsPerMinute, RequestsPerMinute: tier.CommRequestsPerMinute},
		},
		Operation: g.judged(c.effect, phase),
		Arguments: judge.Arguments{
			Canonical: c.args, Digest: c.digest, Partial: c.partial, Writes: c.writes, Acts: c.acts, Selects: c.selects, Answers: c.answers != nil, Carries: c.carries, Screened: c.screened,
			ReadsNothing: c.effect.Traits().ReadsNothing,
		},
		Declaration: judge.Declared{Problem: c.undeclared, Invalid: c.invalid, Made: c.declaration, Justification: c.justification, InPlan: c.inPlan},
	}
	f.Caller.OverQuota, f.Caller.QuotaUnknown = c.overQuota(now)
	f.Caller.Pace.CallsPerMinute = c.decl.CallsPerMinute()
	if f.Operation.Traced = c.effect.Traits().Traced; c.op.Model != nil {
		f.Operation.Model = c.op.Model.ID
	}
	if !c.aside {
		f.Operation.Breaker = shownBreaker(g.breakers.Look(c.agent, c.server()))
	}
	if c.partial {
		f.Operation.Flow = g.foreseen(c.decl, c.op, nil)
	} else {
		f.Operation.Flow = g.foreseen(c.decl, c.op, c.args)
	}
	if c.writes && f.Operation.Profile.Level == 0 { // a write that nobody gave a level is of the highest, whatever its default says
		p := *f.Operation.Profile
		p.Level, f.Operation.Profile = 2, &p
	}
	if c.moment != judge.PlanStep { // a step is judged by the labels it would meet
		f.Session.Request = c.live.seen.Request(s.UserRequest)
	}
	if len(raised.Labels) > 0 && !raised.Holds(flow.Untrusted) { // otherwise they do not matter
		f.Operation.Choices = c.op.Choices()
	}
	if c.justification != nil {
		f.Declaration.Digest = declare.Digest(c.agent, s.ID, c.op.ID, c.op.Hash, c.args, *c.justification)
	}
	if of := c.stored(); of != nil {
		stored := g.judged(effect.Of(of), phase)
		f.Operation.Stored = &stored
	}
	if !c.partial {
		if f.Arguments.Problem = c.hides; f.Arguments.Problem == nil {
			f.Arguments.Problem = c.effect.Check(c.args)
		}
		if f.Arguments.Problem == nil && c.prepared() { // or shown to a person
			f.Arguments.Problem = c.op.CheckArguments(c.args)
		}
	}
	if !c.taken.call {
		f.Session.Room.CallIn, _ = window.Room(now)
		f.Caller.Pace.CallIn, _ = c.live.pace.Room(f.Caller.Pace.CallsPerMinute, now)
	}
	if f.Operation.Requests && !c.taken.request {
		f.Session.Room.RequestIn, _ = c.live.rates.Requests.Room(now)
	}
	if p := f.Session.Sealed; p != nil && !p.NeedsEvidence(c.op.ID) {
		f.Evidence.Step, f.Evidence.Follows = p.Follow(c.op.ID, f.Operation.Profile, c.args, nil)
	}
	return f
}

// judged is an operation as the stages read it.
func (g *Gateway) judged(e effect.Effect, phase session.Phase) judge.Operation {
	op, traits := e.Operation(), e.Traits()
	return judge.Operation{
		ID: op.ID, Server: op.Server, Name: op.Name, Quarantined: op.Standing == catalogue.Quarantined, ExternalIO: op.Class.ExternalIO,
		Gone:    op.Standing != catalogue.Active && op.Standing != catalogue.Quarantined,
		InPhase: !op.Class.ExternalIO || g.phase.Allowed(op.ID, guard.Phase(phase)), InPlanning: !op.Class.ExternalIO || g.phase.Allowed(op.ID, guard.Planning),
		AskFirst: op.AskFirst, Denied: op.Denied, Acts: op.Acts, Action: op.Class.Action,
		RiskFloor: op.Class.RiskFloor, AdminAnswers: op.Class.AdminAnswers, ScreenNotes: op.Class.ScreenNotes, Unclassified: op.Class.Unclassified, Level: op.Class.Level, Roles: op.Class.Roles, Flow: op.Flow, Profile: op.Profile,
		NeedsReasons: traits.NeedsReasons, Requests: traits.Requests, Places: traits.Places,
	}
}

// judgeAlone judges the call as everything is now, with no person's answer to it, and without the operation that it is judged together with.
func (c *crossing) judgeAlone(ctx context.Context) fault.Verdict {
	f := c.load()
	partial := judge.Memory(c.moment, &f)
	if partial.Found.Counts && !c.takeTurn(&f) {
		partial = judge.Memory(c.moment, &f)
	}
	var first []string
	if !partial.Denied() {
		if c.unscreened {
			c.screened, c.unscreened = c.screenArguments(), false
			f.Arguments.Screened = c.screened
		}
		first = c.loadEvidence(ctx, &f, map[string]bool{})
	}
	v, found := partial.Finish(&f)
	if found.Silence && c.moment == judge.Call && !f.Evidence.StoppedLately { // of nothing else it matters
		f.Evidence.StoppedLately, f.Evidence.Problem = c.g.desk.Objected(ctx, c.agent, c.op.ID)
		v, found = partial.Finish(&f)
	}
	if v.Decision == fault.Ask && !c.prepared() { // a call that runs is the server's to refuse, but no person decides on one that can't run
		if f.Arguments.Problem = c.op.CheckArguments(c.args); f.Arguments.Problem != nil {
			v, found = judge.Judge(c.moment, &f)
		}
	}
	c.judged = judgement{facts: f, verdict: v, found: found, firstUse: first}
	return v
}

// prepared tells whether the call is not to be made now, so that its arguments have been checked against the tool's schema whatever comes of it.
func (c *crossing) prepared() bool { return c.moment != judge.Call && c.moment != judge.Check }

// judgeAnswered judges the same facts again, with a person's answer as one more.
func (c *crossing) judgeAnswered(a *approval.Approval) fault.Verdict {
	c.judged.answer(c.moment, a)
	if c.other != nil && c.judged.verdict.Decision != fault.Deny {
		c.other.judged.answer(c.moment, a)
		c.stricter()
	}
	return c.judged.verdict
}

func (j *judgement) answer(m judge.Moment, a *approval.Approval) {
	j.facts.Answer.Approval = a
	j.verdict, j.found = judge.Judge(m, &j.facts)
}

// takeTurn counts the call, whatever becomes of it. Where another call was faster, it puts that into the facts.
func (c *crossing) takeTurn(f *judge.Facts) bool {
	window := c.live.rates.Calls
	if c.r.DryRun {
		window = c.live.rates.Checks
	}
	if c.taken.call {
		return true
	}
	now := c.g.now()
	wait, ok := window.Take(now)
	if f.Session.Room.CallIn = wait; ok && !c.r.DryRun {
		f.Caller.Pace.CallIn, ok = c.live.pace.Take(f.Caller.Pace.CallsPerMinute, now)
	}
	c.taken.call = ok
	return ok
}

// taken is what a call has taken of its session's limits, and whether its server has listed its tools for it. A call that is judged again takes
// nothing twice.
type taken struct {
	call, request, lists bool
	session              bool // it counts among the calls that run in it
}

// takeRequest counts an external request: now that it is to be made, not each time that it is asked whether it may be.
func (c *crossing) takeRequest() fault.Verdict {
	if !c.effect.Traits().Requests || c.taken.request {
		return fault.Permitted()
	}
	if wait, ok := c.live.rates.Requests.Take(c.g.now()); !ok {
		return judge.TooManyRequests(c.set.tierOf(c.decl).CommRequestsPerMinute, wait)
	}
	c.taken.request = true
	return fault.Permitted()
}

// maxDestinations is how many destinations of one call are looked up and remembered.
const maxDestinations = 32

// loadEvidence adds what the store knows: where the arguments came from, what the call would use that its agent has not used before, and
// whether people have answered similar calls. Only facts that could change the verdict are loaded. known is shared by the steps of a plan. It
// returns the keys of what the agent would use for the first time.
func (c *crossing) loadEvidence(ctx context.Context, f *judge.Facts, known map[string]bool) (first []string) {
	e := &f.Evidence
	e.Loaded, e.StoppedLately = true, c.silenceFull
	c.trace(ctx, f)
	if e.CoveredBy, e.Problem = c.askedOnce(ctx); e.Problem != nil || !c.writes || c.op.Class.Level == ownLevel {
		return nil
	}
	var keys []string
	if c.op.Accepted {
		keys = append(keys, "tool:"+c.op.ID+"\x00"+c.op.Hash)
	}
	for i, d := range policy.Destinations(c.op.Class.Roles, c.args) {
		if i == maxDestinations { // so many at once are new in themselves
			first, e.NewDestination = append(first, "destination:"), true
			break
		}
		keys = append(keys, "destination:"+c.op.ID+"\x00"+d)
	}
	for _, key := range keys {
		used, found := known[key]
		if !found {
			if used, e.Problem = c.g.store.Used(ctx, c.usedKey(key)); e.Problem != nil {
				return nil
			}
			known[key] = used
		}
		if used {
			continue
		}
		first = append(first, key)
		if key[0] == 't' {
			e.NewTool = true
		} else {
			e.NewDestination = true
		}
	}
	return first
}

// ownLevel is the level of writes that only the person sees and can undo: what they use first is invisible to anybody else.
const ownLevel = 1

// usedKey is how the store has what the agent used.
func (c *crossing) usedKey(key string) string {
	return call.HashBytes([]byte(c.agent + "\x00" + key))
}

// usedKeys are those of what the call is the first to use.
func (c *crossing) usedKeys() []string {
	var keys []string
	for _, key := range c.judged.firstUse {
		keys = append(keys, c.usedKey(key))
	}
	return keys
}

// trace finds out where the arguments came from and which step of the sealed plan the call follows (PV-11). What the session has seen is
// read where the answer depends on it.
func (c *crossing) trace(ctx context.Context, f *judge.Facts) {
	if c.moment == judge.PlanStep {
		if p := f.Session.Sealed; p != nil {
			f.Evidence.Step, f.Evidence.Follows = p.Follow(c.op.ID, f.Operation.Profile, c.args, nil)
		}
		return
	}
	e, p := &f.Evidence, f.Session.Sealed
	follows := p != nil && p.NeedsEvidence(c.op.ID)
	ruling, unasked, wanted := judge.Trace(f, nil)
	if wanted || follows {
		e.Untraceable = c.live.seen.Use(ctx, c.g.store, c.session.ID, c.g.profileDigest, func(seen *provenance.Evidence) {
			if wanted {
				ruling, unasked, _ = judge.Trace(f, seen)
			}
			if follows {
				e.Step, e.Follows = p.Follow(c.op.ID, f.Operation.Profile, c.args, seen)
			}
		})
		if e.Untraceable != nil {
			return
		}
	}
	e.Ruling, e.Unasked = ruling, unasked
}

// stored is the operation whose stored results the call reads; nil if it reads none.
func (c *crossing) stored() *catalogue.Operation {
	id := c.effect.Stored(c.args)
	if id == "" || id == knowledge.Search && !c.consults() {
		return nil
	}
	return c.g.catalogue.ByID(id)
}

// consults tells whether the agent reads the knowledge store: its declaration names collections, and permits to search them.
func (c *crossing) consults() bool {
	collections, _ := c.decl.ReadsKnowledge()
	return len(collections) > 0 && c.decl.Permits(knowledge.Search, false)
}

// plan is the session's sealed plan as the flow rules read it; nil if there is none.
func (c *crossing) plan() *provenance.SealedPlan {
	s := c.session.Plan.Sealed()
	if s == nil || c.session.Plan.Observed && !c.set.rules.Observe {
		return nil
	}
	if c.answers != nil { // what goes out beside the arguments is in no plan
		return &provenance.SealedPlan{}
	}
	if c.session.Plan.ByPerson() && c.session.Plan.StopEpoch != c.stops.epoch { // a yes from before the agent was stopped
		return &provenance.SealedPlan{}
	}
	for i, st := range c.session.Plan.Steps { // approved for the tool as it was (docs/design.md, rule 2)
		if st.Operation == c.op.ID && st.Definition != "" && st.Definition != c.op.Hash {
			s.Steps[i].Operation = ""
		}
	}
	if c.moment != judge.PlanStep {
		s.Failed = c.live.failedCalls()
	}
	return s
}

// raised is the session as it will be once the call runs: with the labels of what the arguments carry.
func (c *crossing) raised() session.Session {
	if len(c.carried) == 0 {
		return *c.session
	}
	return c.session.Raise(c.carried...)
}

// brings are the labels of a result, with the mark where nobody asked for what this call reads: a person who said yes to it has.
func (c *crossing) brings(labels []flow.Held) []flow.Held {
	if c.judged.facts.Answer.ByPerson() {
		return labels
	}
	return provenance.Ruling{Unasked: c.judged.facts.Evidence.Unasked}.WithUnasked(labels, c.op.ID, c.id)
}

// step is the step of the sealed plan, however it was approved, that has this very call.
func (c *crossing) step() *session.Step { return c.judged.facts.PlanStep() }

// takes is the step that the call's intent takes; nil if it follows none.
func (c *crossing) takes() *provenance.Done {
	e := &c.judged.facts.Evidence
	if !e.Follows {
		return nil
	}
	s := c.raised()
	d := e.Step.Done(c.id, s.Holds(flow.Untrusted) && !e.Step.FullyConfirmed)
	if d.Repeatable && !c.session.Plan.Sealed().HasRoom(d) { // it takes no room, and there is none to note it in
		return nil
	}
	return &d
}

// maxFailed is how many calls that gave their step back are remembered.
const maxFailed = 500

// gaveBack notes that the call took a step and certainly had no effect: it was never sent, or it only reads and brought nothing. The step may
// be called again. Only this process knows; after a restart the step counts as called.
func (c *crossing) gaveBack(out outcome, err error) {
	var unsent *fault.NotDispatched
	if c.judged.facts.Evidence.Follows && (errors.As(err, &unsent) || out.entry.Decision != "ok" && !c.writes) {
		c.live.mu.Lock()
		defer c.live.mu.Unlock()
		c.live.failed = append(c.live.failed[max(0, len(c.live.failed)-maxFailed+1):], c.id)
	}
}

// holdsNew tells whether one of the labels is new to the session.
func holdsNew(s *session.Session, labels []flow.Held) bool {
	return slices.ContainsFunc(labels, func(h flow.Held) bool { return !s.Holds(h.Label) })
}
