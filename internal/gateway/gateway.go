// Package gateway holds the corridor: the one straight function that every operation goes through, by whatever door it came,
// and what the corridor needs to decide: the live sessions. What can be called it looks up in its catalogue, who may call in its standing, and
// people are asked at its desk.
//
// Promises: nothing happens before its intent is durable; no answer leaves before its outcome is durable; a session's labels
// rise before a byte of the result that brings them is released; every error is a deny; a stage can narrow what an earlier one
// left open and never widen it; the kill switch acts from memory and waits for nothing.
package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.example/guard"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/breaker"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/changes"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/display"
	"sallyport.example/internal/effect"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge/ask"
	"sallyport.example/internal/refusals"
	"sallyport.example/internal/standing"
	"sallyport.example/internal/stored"
	"sallyport.example/internal/threat"
	"sallyport.example/internal/turns"
)

// Mode is whether all verdicts hold, or what the stages lift (package judge) is only recorded.
type Mode string

const (
	Enforce Mode = "enforce"
	Observe Mode = "observe"
)

// Limits bounds one session.
type Limits struct {
	CallsPerMinute        int           // calls that may start in any minute; 0: no limit
	CommRequestsPerMinute int           // external requests of built-in operations that may (EX-5); 0: no limit
	Budget                time.Duration // time in operations over the session's life (EX-6)
	ApprovalExpires       time.Duration // how long a declaration, and a question to a person, is good for
	MediumDelay           time.Duration // how long a call of risk MEDIUM waits to be stopped (HI-2)
	AsksPerMinute         int           // questions to people that one agent may raise in any minute, answered or not; 0: no limit
	DrillEvery            int           // one drill for so many questions, on average; 0: none
}

// Options is what a Gateway is built of. Every field without a stated default is needed.
type Options struct {
	Settings
	Store     Store
	Upstreams effect.Upstreams
	Models    effect.Models // default: there are none
	Detector  *threat.Detector
	Issuer    *guard.Issuer
	// MaskKey makes the placeholders of secrets in requests to models.
	MaskKey []byte
	// Servers are the servers of the configuration, each with the hash of how it is started or reached: what one has stored is known by that, too.
	Servers stored.Servers
	// Launch is the hash of how a server is started or reached, by the operator's configuration. Default: nothing is known of any.
	Launch func(server string) string
	// Schema compiles a JSON schema into a check of a result; hostile schemas are refused quickly.
	Schema func(schema json.RawMessage) (func(value []byte) error, error)
	// Environment is which gateway this is: an answer that was given to another one is none to it.
	Environment string
	// Unapproved says why the calls of an agent are refused because of its declaration, and what a person can do; "" where the declaration is approved. It
	// waits for nothing. Default: none is approved but the gateway's own.
	Unapproved func(d *agent.Declaration) (reason, remedy string)
	// History returns the newest entries of the log, the oldest first, for the circuit breakers to take their state from. Default: there are none.
	History func(ctx context.Context) ([]audit.Entry, error)
	// RemoveFiles removes a session's workspace.
	RemoveFiles func(session string) error
	// Commands are the built-in external operations.
	Commands []catalogue.Command
	Clock    Clock // default time.Now
	// SeenMemory is how many bytes the index of what sessions have seen may take in memory, in all. Default: no bound.
	SeenMemory int64
	// Draw draws a number from 0 to n-1, for drills. Default math/rand.
	Draw func(n int) int
	Log  *slog.Logger // default: discard
}

// Gateway is the corridor with its state. Make it with New, end it with Close.
type Gateway struct {
	o     Options
	store corridorStore
	clock recordClock
	log   *slog.Logger

	inForce
	catalogue *catalogue.Catalogue
	standing  *standing.Standing
	desk      *desk.Desk
	stored    *stored.Marks
	written   *stored.Values
	phase     *guard.PhaseGate
	breakers  *breaker.Breakers
	conduct   conduct
	missed    map[string]string // by agent, the one that it depends on and that is aside; of followStops alone

	sessions   liveSessions
	feed       changes.Feed
	refusals   *refusals.Recorder
	observed   observed
	stops      chan struct{} // buffered 1: an agent was stopped, and what waits of it is to be withdrawn
	background background
	closed     atomic.Bool
	acted      atomic.Int64 // calls that were carried out
	ending     atomic.Bool  // no operation starts any more
	heavy      *turns.Turns // for work on long arguments and results
	judging    *ask.Places  // of each agent, for requests to the judge of results
	schemas    schemas
}

// background are writes that must not be lost.
type background struct {
	sync.WaitGroup
	running context.Context // ends with Close
	stop    context.CancelFunc
}

// fill sets the defaults.
func (o *Options) fill() {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Draw == nil {
		o.Draw = rand.IntN
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Launch == nil {
		o.Launch = func(string) string { return "" }
	}
	if o.Unapproved == nil {
		o.Unapproved = func(d *agent.Declaration) (string, string) {
			if d.BuiltIn() {
				return "", ""
			}
			return fault.AgentUnapproved.Sentence(), "Nobody can approve it here."
		}
	}
	if o.History == nil {
		o.History = func(context.Context) ([]audit.Entry, error) { return nil, nil }
	}
	if o.RemoveFiles == nil {
		o.RemoveFiles = func(string) error { return nil } // there are no workspaces
	}
}

// New reads what the store holds (switches, pins, tokens) and returns a Gateway that is ready to judge. It fails rather than
// start with a switch it could not read.
func New(ctx context.Context, o Options) (*Gateway, error) {
	o.fill()
	first, err := newSettings(o.Settings)
	if err != nil {
		return nil, err
	}
	o.Settings = Settings{} // those in force are in Gateway.settings alone
	gate, err := guard.NewPhaseGate()
	if err != nil {
		return nil, err
	}
	latest, err := o.Store.Latest(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading how late it was: %w", err)
	}
	given, err := o.Store.GivenSessions(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading which sessions are open: %w", err)
	}
	o.SeenMemory = cmp.Or(o.SeenMemory, math.MaxInt64)
	g := &Gateway{o: o, store: o.Store, clock: newRecordClock(o.Clock, latest), log: o.Log, phase: gate, missed: map[string]string{}, sessions: newLiveSessions(given), refusals: refusals.New(o.Store, o.Log), stops: make(chan struct{}, 1), heavy: turns.New(runtime.GOMAXPROCS(0) - 1), judging: ask.NewPlaces(judgeAtOnce)}
	g.background.running, g.background.stop = context.WithCancel(context.Background())
	g.settings.Store(first)
	g.desk = desk.New(desk.Options{
		Store: o.Store, Environment: o.Environment, PerMinute: first.Limits.AsksPerMinute,
		Voter:   func(person string) (approval.Voter, bool) { return g.settings.Load().Voter(person) },
		Expires: func() time.Duration { return g.settings.Load().Limits.ApprovalExpires }, DrillEvery: func() int { return g.settings.Load().Limits.DrillEvery }, Draw: o.Draw, Now: g.now, Since: g.clock.since, Log: o.Log, Definition: g.toolDefinition, ActionType: g.actionType,
		StopEpoch: func(agent string) int64 { return g.standing.StopEpoch(agent) }, JudgeChanged: g.judgeChanged, Origins: g.origins, StoppedBy: func(agent string) string { return g.standing.StoppedBy(agent) },
		Changed: func(id string) { g.feed.Publish(changes.Approval, id) },
	})
	g.catalogue, err = catalogue.New(ctx, catalogue.Options{
		Settings: first.catalogue(), Store: o.Store, Launch: o.Launch, Schema: o.Schema, Commands: o.Commands, Now: g.now, Log: o.Log,
		Void: func(ctx context.Context, operation string) { g.desk.WithdrawOperation(ctx, operation, desk.Redefined) }, Changed: func() { g.feed.Publish(changes.Tool, "") },
	})
	if err != nil {
		return nil, err
	}
	g.standing, err = standing.New(ctx, standing.Options{
		Store: o.Store, Agents: g.Agents, Now: g.now, Log: o.Log,
		SwitchChanged: func(agent string) {
			g.feed.Publish(changes.Kill, agent)
			g.voidStopped()
		},
		AgentChanged: func(agent string) {
			g.AgentChanged(agent)
			g.voidStopped()
		},
	})
	if err != nil {
		return nil, err
	}
	if g.stored, err = stored.Open(ctx, o.Store, o.Servers); err != nil {
		return nil, err
	}
	if g.written, err = stored.OpenValues(ctx, o.Store, o.Servers); err != nil {
		return nil, err
	}
	if err := g.restoreBreakers(ctx); err != nil {
		return nil, err
	}
	g.voidStopped() // by a stop that the process before did not live to follow up
	g.background.Go(g.followStops)
	g.background.Go(g.tidy)
	return g, nil
}

// Catalogue is what can be called, with what servers offer and people accept.
func (g *Gateway) Catalogue() *catalogue.Catalogue { return g.catalogue }

// Standing is who may call: the kill switch, the quarantines and the tokens.
func (g *Gateway) Standing() *standing.Standing { return g.standing }

// Desk is where people are asked.
func (g *Gateway) Desk() *desk.Desk { return g.desk }

// Approved is the error of an agent whose declaration no person has approved, as its calls would get it; nil where one has.
func (g *Gateway) Approved(d *agent.Declaration) error {
	if reason, remedy := g.o.Unapproved(d); reason != "" {
		return fault.New(fault.AgentUnapproved, "%s", reason).Try("%s", remedy)
	}
	return nil
}

// AgentChanged has calls that are held judged again, and tells whoever looks at the agent: it was put aside or restored, or its declaration was approved.
func (g *Gateway) AgentChanged(agent string) {
	g.desk.WakeAll()
	g.feed.Publish(changes.Agent, agent)
}

// Stored is which labels the data has that was written to servers.
func (g *Gateway) Stored() *stored.Marks { return g.stored }

// Watch reports changes from now on, of these topics or without any of all, until end is called. A change is reported after it is durable,
// except for the kill switch, which acts from memory. A session changes with each of its calls.
func (g *Gateway) Watch(topics ...string) (stream <-chan changes.Change, end func()) {
	return g.feed.Subscribe(topics...)
}

// Publish reports a change of what is kept beside the corridor, such as a run. It is called after the change is durable.
func (g *Gateway) Publish(topic, id string) { g.feed.Publish(topic, id) }

// maxDescribed bounds what people are shown of a tool's description, in bytes.
const maxDescribed = 500

// toolDefinition is what questions need of a tool's definition as it is now; false for what is no tool.
func (g *Gateway) toolDefinition(operation string) (desk.Definition, bool) {
	op := g.catalogue.ByID(operation)
	if op == nil || op.Kind != call.Tool {
		return desk.Definition{}, false
	}
	d := desk.Definition{Hash: op.Hash, Action: op.Class.Action, Roles: op.Class.Roles}
	var said struct {
		Description string `json:"description"`
	}
	if json.Unmarshal(op.Definition, &said) != nil || strings.TrimSpace(said.Description) == "" {
		return d, true
	}
	d.Says = &desk.Described{Text: display.Line(strings.Join(strings.Fields(said.Description), " "), maxDescribed), By: "server"}
	switch {
	case op.Command != nil:
		d.Says.By = "gateway"
	case op.Class.Description != "":
		d.Says.By = "operator"
	}
	return d, true
}

// Acted is how many calls were carried out since New, whether they succeeded or not. The log must have as many intents (AU-5).
func (g *Gateway) Acted() int64 { return g.acted.Load() }

// actionType is an operation's action in the risk rules; "" if it has none.
func (g *Gateway) actionType(operation string) string {
	if op := g.catalogue.ByID(operation); op != nil {
		return op.Class.Action
	}
	return ""
}

// Close waits for the writes that are on their way, the kill switch's included, until ctx ends. Calls made after it are refused.
// Closing twice is harmless.
func (g *Gateway) Close(ctx context.Context) error {
	if g.closed.Swap(true) {
		return nil
	}
	g.desk.Drain()
	g.background.stop()
	g.background.Go(g.catalogue.Close)
	g.background.Go(g.standing.Close)
	done := make(chan struct{})
	go func() {
		g.background.Wait()
		g.refusals.Close() // last: what ends meanwhile may still write a refusal down
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), errors.New("some audit entries were still waiting for the store"))
	}
}

// EndCalls ends the operations that run, so that their callers get a verdict before the doors close, and lets none start.
func (g *Gateway) EndCalls() {
	g.ending.Store(true)
	for _, l := range g.sessions.all() {
		l.meter.Stop(errStopping)
	}
}

// now is the time on record: that which decisions and entries of one moment share.
func (g *Gateway) now() time.Time { return g.clock.now() }

// recordClock tells the time on record. It is the clock's, but never behind what has passed since the start, nor behind the newest entry on
// record: a clock that is set back, also over a restart, makes nothing live longer.
type recordClock struct {
	read    Clock
	started time.Time // as the clock said it
	since   time.Time // the same, and not before anything that is on record
}

// newRecordClock starts the clock after latest, the time of the newest entry.
func newRecordClock(read Clock, latest time.Time) recordClock {
	c := recordClock{read: read, started: read()}
	if c.since = c.started.Round(0); latest.After(c.since) {
		c.since = latest
	}
	return c
}

func (c *recordClock) now() time.Time {
	now := c.read()
	if steady := c.since.Add(now.Sub(c.started)); steady.After(now.Round(0)) {
		return steady.UTC()
	}
	return now.UTC()
}

// killed is the kill stage: SKIPPED, KILL_SWITCH_ACTIVE, and when.
func (g *Gateway) killed(agent string) fault.Verdict {
	if !g.standing.Killed(agent) {
		return fault.Permitted()
	}
	return fault.Killed(g.now())
}

// killed tells whether the call's agent is switched off, or was at any time since the call came: taking the switch back lets new calls run, and not
// those that it stopped.
func (c *crossing) killed() fault.Verdict {
	if c.stops.caught.Load() {
		return fault.Killed(c.g.now())
	}
	return c.g.killed(c.agent)
}

// Cancel ends the call: the kill switch was pulled, the session was closed, or its budget is used up.
func (c *crossing) Cancel(cause error) {
	if errors.Is(cause, standing.ErrKilled) {
		c.stops.caught.Store(true)
	}
	c.cancel(cause)
}
