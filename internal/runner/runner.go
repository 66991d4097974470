// Package runner starts runs of agents, carries them through and ends them.
//
// Promises: only a person starts a run, or a host with the authority of one: no credential of an agent does, in whatever part of a request it stands
// (AG-5); the kill switch is asked before any work (AG-4); each run has a session of its own in the requester's name, which is closed before the output is
// looked at; at its limit a run ends, what it had is discarded, and nothing is retried (AG-8); an output that was refused is shown to nobody; a program is
// the one that its approved declaration was loaded with; a start is on record before the agent hears of it, and an end before anybody else does.
package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/changes"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/fingerprint"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/memory"
	"sallyport.example/internal/run"
	"sallyport.example/internal/session"
	"sallyport.example/internal/standing"
)

// Store keeps the runs. Each method is one transaction, which is durable when it returns nil. Errors are fault errors. Safe for concurrent use.
type Store interface {
	// StartRun writes a run that begins, or is skipped, with its entry. If a run has its key already, that one is returned and nothing is written:
	// it is a Conflict if something else was asked for then.
	StartRun(ctx context.Context, r run.Run, e audit.Entry) (is run.Run, isNew bool, err error)
	// ChangeRun reads a run, applies change and writes the result with the entry. change may be called more than once, and its error is returned as it is.
	ChangeRun(ctx context.Context, id string, change func(run.Run) (run.Run, audit.Entry, error)) (run.Run, error)
	// Run returns a run by its id, RunByKey the one that has a key (run.Run.Key), and Runs those that the filter selects, the newest first.
	Run(ctx context.Context, id string) (run.Run, error)
	RunByKey(ctx context.Context, key string) (is run.Run, found bool, err error)
	Runs(ctx context.Context, f run.Filter) ([]run.Run, error)
	// AddRecommendation writes a new recommendation with its entry. ChangeRecommendation, Recommendation and Recommendations are like those of runs.
	AddRecommendation(ctx context.Context, r run.Recommendation, e audit.Entry) error
	ChangeRecommendation(ctx context.Context, id string, change func(run.Recommendation) (run.Recommendation, audit.Entry, error)) (run.Recommendation, error)
	Recommendation(ctx context.Context, id string) (run.Recommendation, error)
	Recommendations(ctx context.Context, f run.RecommendationFilter) ([]run.Recommendation, error)
	// Entries and Payload read the record (package audit).
	Entries(ctx context.Context, f audit.Filter) (page []audit.Entry, next int64, err error)
	Payload(ctx context.Context, key string) ([]byte, error)
}

// Options are the options of New. Every field without a stated default is needed.
type Options struct {
	Gateway   *gateway.Gateway
	Store     Store
	AgentURL  func() string              // the address of the agents' side
	Dir       string                     // the folder for the workspaces of runs of kind command
	Env       func(name string) string   // the gateway's environment, for secrets
	Documents func() Documents           // begins to read what the calls of one session read of the knowledge store; default: nothing
	Confirm   Confirm                    // checks the claims of outputs; nil: none is confirmed
	Hosts     func(host string) []string // the people whose authority a host has
	Alert     func(run.Run)              // tells people of a run whose time was over. It may wait for the store
	Memory    *memory.Budget             // for what models and their tools answer in runs of kind model; nil: there is no bound
	Log       *slog.Logger
	Clock     func() time.Time // default time.Now
}

// Documents are what a call read of the knowledge store, by the detail of its outcome.
type Documents func(ctx context.Context, detail json.RawMessage) ([]run.Document, error)

// Confirm asks the sources of claims about what an agent claims in a session, which by names with who asks, as far as the agent may read them with these labels.
type Confirm func(ctx context.Context, d *agent.Declaration, by audit.Entry, labels []string, claim json.RawMessage) (run.Confirmed, error)

// maxAtOnce bounds the runs that are under way.
const maxAtOnce = 200

// Runner carries runs. Make it with New, end it with Close. Safe for concurrent use.
type Runner struct {
	o     Options
	owned sync.WaitGroup
	ended context.Context // ends with Close
	end   context.CancelFunc

	known *fingerprint.Known // outputs of agents, to be recognised

	settling sync.Mutex // held while what became of a recommendation is looked at, so that each is carried out by one goroutine

	staging sync.Mutex         // guards copies
	copies  map[string]*copies // of programs that runs use, by the digest of their declaration

	mu      sync.Mutex          // guards running and closed
	running map[string]*carried // by run id
	closed  bool
}

// New ends the runs that a process before this one left, and returns a Runner that is ready.
func New(ctx context.Context, o Options) (*Runner, error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Documents == nil {
		o.Documents = func() Documents {
			return func(context.Context, json.RawMessage) ([]run.Document, error) { return nil, nil }
		}
	}
	if o.Dir == "" { // what is in the folder is removed: it must not be just any
		return nil, errors.New("there is no folder for the workspaces of runs")
	}
	dir, err := filepath.Abs(o.Dir) // the data directory may be named from the working directory; the sandbox wants whole paths
	if err != nil {
		return nil, err
	}
	o.Dir = dir
	r := &Runner{o: o, running: map[string]*carried{}, copies: map[string]*copies{}}
	if err := os.RemoveAll(o.Dir); err != nil { // workspaces that a process before this one left
		return nil, fmt.Errorf("removing the workspaces of runs that ended with the process before: %w", err)
	}
	r.ended, r.end = context.WithCancel(context.Background())
	if err := r.endLeft(ctx); err != nil {
		return nil, err
	}
	if err := r.remember(ctx); err != nil {
		return nil, fmt.Errorf("reading what agents said: %w", err)
	}
	r.owned.Go(r.follow)
	return r, nil
}

// Close ends all runs and waits until their ends are on record. Closing twice is harmless.
func (r *Runner) Close() {
	r.mu.Lock()
	r.closed = true
	for _, c := range r.running {
		c.stop(errStopping)
	}
	r.mu.Unlock()
	r.end()
	r.owned.Wait()
}

// endLeft ends the runs that were running when the process before this one ended, and closes their sessions.
func (r *Runner) endLeft(ctx context.Context) error {
	left, err := r.o.Store.Runs(ctx, run.Filter{Running: true, Limit: 1000})
	if err != nil {
		return fmt.Errorf("reading which runs were under way: %w", err)
	}
	for _, l := range left {
		v := fault.Refuse("run", fault.Internal, "The gateway stopped while it ran. What it had was discarded; ask for it again.")
		if l.Session != "" {
			if _, err := r.o.Gateway.CloseSession(ctx, l.Session, byRunner, "the gateway stopped while the run was under way"); err != nil && !fault.Is(err, fault.SessionClosed) && !fault.Is(err, fault.NotFound) {
				return err
			}
		}
		if _, err := r.finish(ctx, l.ID, run.End{Status: run.Failed, Verdict: &v}); err != nil {
			return err
		}
	}
	return nil
}

// endStopped ends a run whose agent is put aside, or whose session somebody closed. It returns when the run has ended.
func (r *Runner) endStopped(c *carried, changed <-chan changes.Change) {
	for {
		var change changes.Change
		select {
		case <-c.done:
			return
		case <-r.ended.Done():
			return
		case change = <-changed:
		}
		if _, aside := r.o.Gateway.Standing().Quarantined(c.decl.AgentID); aside {
			c.stop(errAside)
		}
		id := c.session.Load()
		if id == nil || change.Topic == changes.Agent || change.Topic == changes.Session && change.ID != *id {
			continue
		}
		if s, err := r.o.Gateway.SessionByID(r.ended, *id); err == nil && s.State != session.Open {
			c.stop(errSessionClosed)
		}
	}
}

// byRunner is the actor of what the gateway does for a run by itself.
const byRunner = "gateway:run"

// Start asks for a run.
type Start struct {
	Agent     string
	Input     json.RawMessage
	Requester string // whom a host asks for; "" where a person asks
	Key       string // the idempotency key; "": none
	Own       bool   // a person says that what looks like an agent's output is theirs
}

// agentToken is a credential that an agent, a session or a client's hook holds.
var agentToken = regexp.MustCompile(`spt_(agent|session|hook)_[a-z2-7]{16}`)

// hasToken looks for such a credential in every text of an input as a reader of it sees it, whatever escapes it was sent with.
func hasToken(input json.RawMessage) (found bool) {
	call.Strings(input, func(_, text string) bool {
		found = agentToken.MatchString(text)
		return !found
	})
	return found
}

// Start starts a run, or returns the one that was started with the same key. A run that the kill switch skips is one, too.
func (r *Runner) Start(ctx context.Context, p identity.Principal, s Start) (run.Run, error) {
	requester, err := r.requester(p, s)
	if err != nil {
		return run.Run{}, err
	}
	if err := identity.CheckID(s.Agent); err != nil {
		return run.Run{}, fault.Wrap(err, fault.RequestMalformed, "%v", err).At("agent_id")
	}
	input, err := run.ReadInput(s.Input)
	if err != nil {
		return run.Run{}, err
	}
	if hasToken(input) {
		return run.Run{}, fault.New(fault.PermissionDenied, "The input has an agent's credential in it: a run is asked for by people, and an agent starts none.").At("input")
	}
	if len(s.Key) > maxKey {
		return run.Run{}, fault.New(fault.RequestMalformed, "It has more than %d bytes.", maxKey).At("Idempotency-Key")
	}
	key, request := keyOf(p, s, requester, input)
	epoch := r.o.Gateway.Standing().StopEpoch(s.Agent) // first: a stop that is over again before the run begins is seen by it
	killed := r.o.Gateway.Standing().Killed(s.Agent)
	if key != "" && !killed { // what is skipped does not wait for the store
		// Before all that can change between two tries: who asks again hears of the run that there is.
		if is, known, err := r.o.Store.RunByKey(ctx, key); err != nil || known {
			if err == nil {
				err = is.Again(request)
			}
			return is, err
		}
	}
	d, ok := r.o.Gateway.Agents().Get(s.Agent)
	switch {
	case !ok || agent.IsTrial(s.Agent):
		return run.Run{}, r.o.Gateway.Standing().Declared(s.Agent)
	case d.Run == nil:
		return run.Run{}, fault.New(fault.Conflict, "The declaration of the agent %q says nothing under run, so it has no runs.", s.Agent).Try("Add run to its declaration: kind http with a url, kind command with a command, or kind model with a model.")
	}
	begun := run.New(d, requester, p.String(), input, r.o.Clock())
	begun.Key, begun.Request = key, request
	if killed {
		return r.skip(ctx, begun)
	}
	from, err := r.refuseReturned(input, s.Own && p.Kind == identity.Person)
	if err != nil {
		r.o.Gateway.Refused(gateway.Attempt{Principal: p, Door: "run", People: p.Kind == identity.Person, What: "run " + s.Agent}, fault.RefuseErr("run", err))
		return run.Run{}, err
	}
	if from != "" {
		begun.Returned = []string{from}
	}
	if q, aside := r.o.Gateway.Standing().Quarantined(s.Agent); aside {
		return run.Run{}, fault.New(fault.AgentQuarantined, "The agent %s is quarantined since %s.", s.Agent, q.Since.UTC().Format(time.RFC3339)).Try("An operator can restore it.")
	}
	if err := r.o.Gateway.Approved(d); err != nil {
		return run.Run{}, err
	}
	if err := d.CheckFiles(); err != nil {
		if p.Kind == identity.Person { // those of hosts are on record by themselves
			r.o.Gateway.Refused(gateway.Attempt{Principal: p, Door: "run", People: true, What: "run " + s.Agent}, fault.RefuseErr("standing", err))
		}
		return run.Run{}, err
	}
	if err := r.o.Gateway.BreakerOpen(s.Agent); err != nil {
		return run.Run{}, err
	}
	return r.begin(ctx, p, d, begun, epoch)
}

// keyOf is what a run is found by when its key is sent again, and what was asked for with it; both "" without a key.
func keyOf(p identity.Principal, s Start, requester string, input json.RawMessage) (key, request string) {
	if s.Key == "" {
		return "", ""
	}
	return call.HashBytes([]byte(p.String() + "\x00" + s.Agent + "\x00" + s.Key)), call.HashBytes([]byte(requester + "\x00" + string(input)))
}

// maxKey bounds an idempotency key, in bytes.
const maxKey = 200

// requester is the person whom the run is for.
func (r *Runner) requester(p identity.Principal, s Start) (string, error) {
	switch p.Kind {
	case identity.Person:
		if s.Requester != "" && s.Requester != p.ID {
			return "", fault.New(fault.PermissionDenied, "A person asks for runs in their own name.").At("requester")
		}
		return p.ID, nil
	case identity.Host:
		people := r.o.Hosts(p.ID)
		if len(people) == 0 {
			return "", fault.New(fault.PermissionDenied, "The host %q has no person's authority to start runs.", p.ID).Try("An operator can name the people under hosts in the configuration.")
		}
		for _, person := range people {
			if s.Requester == person {
				return person, nil
			}
		}
		return "", fault.New(fault.PermissionDenied, "The host %q may not start runs for this person.", p.ID).At("requester").Try("Name a person that the configuration lists under hosts.")
	}
	return "", fault.New(fault.CredentialWrongKind, "A run is started by a person, or by a host with a person's authority. An agent starts none, its own or another's.")
}

// skip puts a run on record that the kill switch keeps from beginning. The answer stands whatever the store says: stopping waits for nothing.
func (r *Runner) skip(ctx context.Context, begun run.Run) (run.Run, error) {
	v := fault.Killed(r.o.Clock().UTC())
	skipped, err := begun.Finish(run.End{Status: run.Skipped, Verdict: &v}, r.o.Clock())
	if err != nil {
		return begun, err
	}
	e := entry(skipped, "run.skip")
	e.Kind, e.Decision, e.Stage, e.Code, e.Reason = audit.Decision, string(fault.Deny), v.Stage, string(v.Code), v.Reason
	is, _, err := r.o.Store.StartRun(ctx, skipped, e)
	if fault.Is(err, fault.Conflict) {
		return is, err
	}
	if err != nil {
		r.o.Log.Error("a run that the kill switch skipped is not on record", "run", skipped.ID, "error", err)
		return skipped, nil
	}
	return is, nil
}

// begin writes the run down, opens its session, and carries it in a goroutine of its own. epoch is of the stops that had reached the agent when it was asked for.
func (r *Runner) begin(ctx context.Context, p identity.Principal, d *agent.Declaration, begun run.Run, epoch int64) (run.Run, error) {
	ctx = context.WithoutCancel(ctx) // half of it would leave a run that nobody carries
	c := &carried{r: r, run: begun, decl: d, epoch: epoch, done: make(chan struct{})}
	c.data = d.Run.Kind == agent.RunModel && p.Kind == identity.Host && !onlyWords(begun.Input)
	c.ctx, c.stop = context.WithCancelCause(context.Background())
	if err := r.take(c); err != nil {
		return begun, err
	}
	is, isNew, err := r.o.Store.StartRun(ctx, begun, entry(begun, "run.start"))
	if err != nil || !isNew {
		r.give(c)
		return is, err
	}
	r.o.Gateway.Standing().Enter(d.AgentID, c)
	open := gateway.OpenRequest{Agent: d.AgentID, Requester: begun.Requester, UserRequest: words(p, begun.Input), Run: begun.ID}
	if c.data {
		open.Labels = []string{string(flow.Untrusted)}
	}
	opened, secret, err := r.o.Gateway.OpenSession(ctx, p, open)
	if err == nil {
		c.token = secret
		c.session.Store(&opened.ID)
		c.run, err = r.o.Store.ChangeRun(ctx, begun.ID, func(b run.Run) (run.Run, audit.Entry, error) {
			b.Session = opened.ID
			return b, entry(b, "run.session"), nil
		})
	}
	if err != nil {
		if id := c.session.Load(); id != nil {
			if _, cerr := r.o.Gateway.CloseSession(ctx, *id, byRunner, "the run did not begin"); cerr != nil && !fault.Is(cerr, fault.SessionClosed) {
				err = errors.Join(err, cerr)
			}
		}
		v := fault.RefuseErr("session", err)
		is, ferr := r.finish(ctx, begun.ID, run.End{Status: run.Failed, Verdict: &v})
		r.o.Gateway.Standing().Leave(c)
		r.give(c)
		return is, errors.Join(err, ferr)
	}
	r.o.Gateway.Publish(changes.Run, begun.ID)
	r.owned.Go(c.carry)
	return c.run, nil
}

// onlyWords reports whether an input has nothing but the person's request in it, as a text.
func onlyWords(input json.RawMessage) bool {
	for name, value := range call.Members(input) {
		if _, text := call.Text(value); name != run.UserRequest || !text {
			return false
		}
	}
	return true
}

// words are those of the person in the input, within the bound of a session's request.
func words(p identity.Principal, input json.RawMessage) string {
	said := run.Words(input, p.Kind == identity.Person)
	if len(said) > session.MaxUserRequest {
		return "" // what is cut could say something else
	}
	return said
}

// take notes a run that is under way.
func (r *Runner) take(c *carried) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fault.New(fault.StoreUnavailable, "The gateway is stopping.")
	}
	if len(r.running) >= maxAtOnce {
		return fault.New(fault.LimitRate, "At most %d runs at a time.", maxAtOnce).Try("Try again when one of them has ended.")
	}
	r.running[c.run.ID] = c
	changed, end := r.o.Gateway.Watch(changes.Agent, changes.Session) // while it runs: each call of each agent is such a change
	r.owned.Go(func() {
		defer end()
		r.endStopped(c, changed)
	})
	return nil
}

// give ends what take began.
func (r *Runner) give(c *carried) {
	r.mu.Lock()
	delete(r.running, c.run.ID)
	r.mu.Unlock()
	close(c.done)
}

// under returns a run that is under way; nil if it isn't.
func (r *Runner) under(id string) *carried {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[id]
}

// Run returns a run. It waits for its end for as long as ctx does not end and wait lasts.
func (r *Runner) Run(ctx context.Context, id string, wait time.Duration) (run.Run, error) {
	if c := r.under(id); c != nil && wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-c.done:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return r.o.Store.Run(ctx, id)
}

// Runs returns runs, the newest first.
func (r *Runner) Runs(ctx context.Context, f run.Filter) ([]run.Run, error) {
	return r.o.Store.Runs(ctx, f)
}

// Cancel ends a run. What it had is discarded; calls that happened stay on record.
func (r *Runner) Cancel(ctx context.Context, p identity.Principal, id string) (run.Run, error) {
	c := r.under(id)
	if c == nil {
		is, err := r.o.Store.Run(ctx, id)
		if err == nil {
			err = fault.New(fault.Conflict, "The run %s has ended: %s.", is.ID, is.Status)
		}
		return is, err
	}
	c.stop(cancelled{by: p.String()})
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	return r.o.Store.Run(context.WithoutCancel(ctx), id)
}

// finish ends a run, with its entry.
func (r *Runner) finish(ctx context.Context, id string, end run.End) (run.Run, error) {
	is, err := r.o.Store.ChangeRun(ctx, id, func(b run.Run) (run.Run, audit.Entry, error) {
		next, err := b.Finish(end, r.o.Clock())
		return next, ended(next), err
	})
	if err == nil {
		r.o.Gateway.Publish(changes.Run, id)
		var code fault.Code
		if is.Verdict != nil {
			code = is.Verdict.Code
		}
		r.o.Gateway.RunEnded(ctx, is.Agent, string(is.Status), code)
	}
	return is, err
}

// entry is what the entries of a run say.
func entry(r run.Run, action string) audit.Entry {
	e := audit.Entry{Kind: audit.Change, Action: action, Agent: r.Agent, Session: r.Session, Requester: r.Requester, Actor: r.StartedBy, Decision: "ok"}
	said := map[string]any{"run": r.ID, "kind": r.Kind, "declaration": r.Declaration, "input_sha256": call.HashBytes(r.Input)}
	if len(r.Returned) > 0 {
		said["returned"] = r.Returned
	}
	e.Detail, _ = json.Marshal(said) // of strings: can't fail
	return e
}

// ended is the entry of the end of a run.
func ended(r run.Run) audit.Entry {
	e := entry(r, "run."+string(r.Status))
	e.DurationMS = r.Ended.Sub(r.Started).Milliseconds()
	if r.EndedBy != "" {
		e.Actor = r.EndedBy
	}
	said := map[string]any{"run": r.ID, "status": r.Status, "calls": r.Calls}
	if r.OutputHash != "" {
		said["output_sha256"] = r.OutputHash
	}
	if len(r.Returned) > 0 {
		said["returned"] = r.Returned
	}
	if len(r.Labels) > 0 {
		said["labels"] = r.Labels
	}
	if len(r.Writes) > 0 {
		said["writes"] = r.Writes
	}
	if r.Quality.Given > 0 {
		said["citations"] = r.Quality
	}
	e.Detail, _ = json.Marshal(said) // of plain values: can't fail
	if v := r.Verdict; v != nil {
		e.Decision, e.Stage, e.Code, e.Reason = "error", v.Stage, string(v.Code), audit.Clip(v.Reason)
	}
	return e
}

// What ends a run before its answer.
var (
	errStopping      = errors.New("the gateway is stopping")
	errAside         = errors.New("the agent was quarantined")
	errSessionClosed = errors.New("the run's session was closed")
)

// cancelled is the cause of a run that a person ended.
type cancelled struct{ by string }

func (c cancelled) Error() string { return "cancelled by " + c.by }

var _ standing.Running = (*carried)(nil)
