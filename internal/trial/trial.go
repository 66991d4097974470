// Package trial lets a person try, on the running gateway, that it refuses what it must refuse (sallyport doctor --live). While a trial runs there is a
// server of the gateway's own, `doctor`, whose tools have no effect, and each agent has a trial agent that may use them besides what the agent may.
//
// Promises: a trial opens nothing that its person could not open: a trial agent has the permissions of its agent, and the tools of the trial's server do
// nothing. One trial runs at a time. It ends with its person's word, after its longest time, or with the gateway; then its server is gone, its sessions
// are closed and their files removed, and the switches and quarantines of trial agents are taken back, each on record. What a gateway that was killed has
// left of one is cleaned up at the next start, and is of no use until then. No other agent is touched.
package trial

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/session"
)

// Longest is how long a trial runs where nobody ends it: who began it may be gone.
const Longest = 5 * time.Minute

// Here says what of the gateway a trial needs to know. All of it is the operator's configuration.
type Here struct {
	Mode      string   `json:"mode"`
	Labels    []string `json:"labels"`                  // the confidentiality labels
	Enforced  []string `json:"enforced_labels"`         // those of them that block in this mode
	Databases []string `json:"databases"`               // ids
	Programs  []string `json:"programs"`                // that comm.exec may run
	Domains   []string `json:"allowed_domains"`         // of comm.fetch; none: any public one
	Confirm   string   `json:"confirm,omitempty"`       // how people confirm what they do; "": not at all
	Workspace string   `json:"workspace"`               // the folder that has one for each session
	Agents    []Agent  `json:"agents" maxItems:"10000"` // by id
}

// Agent is an agent with its trial agent.
type Agent struct {
	ID             string `json:"agent_id"`
	Trial          string `json:"trial_id"`
	CallsPerMinute int    `json:"calls_per_minute"` // of one session; 0: no limit
}

// Options are the options of New. Every field is needed.
type Options struct {
	Gateway *gateway.Gateway
	Agents  func() agent.Set
	Here    func() Here
	// Sessions are all open sessions.
	Sessions func(ctx context.Context) ([]session.Session, error)
	Log      *slog.Logger
}

// Trials begins and ends trials. Safe for concurrent use.
type Trials struct {
	o Options

	mu    sync.Mutex  // guards the rest, and is held while a trial begins, changes or ends
	by    string      // whose trial runs; "": none does
	lease *time.Timer // ends it
}

// New returns Trials of which none runs.
func New(o Options) *Trials { return &Trials{o: o} }

// Begin begins a trial and says what there is to try.
func (t *Trials) Begin(ctx context.Context, by string) (Here, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by != "" {
		return Here{}, fault.New(fault.Conflict, "A trial of %s runs.", t.by).Try("Wait until it has ended, at most %s.", Longest)
	}
	if err := t.clean(ctx, by); err != nil { // what a gateway that was killed has left
		return Here{}, err
	}
	if err := t.offer(ctx, false); err != nil {
		return Here{}, err
	}
	t.o.Gateway.Trial(true)
	t.by, t.lease = by, time.AfterFunc(Longest, func() {
		if err := t.End(context.Background(), by); err != nil {
			t.o.Log.Error("a trial did not end whole", "error", err)
		}
	})
	here := t.o.Here()
	here.Agents = nil
	agents := t.o.Agents()
	for _, d := range agents.All() {
		if _, ok := agents.Get(agent.Trial(d.AgentID)); ok {
			here.Agents = append(here.Agents, Agent{d.AgentID, agent.Trial(d.AgentID), t.o.Gateway.CallsPerMinute(d.AgentID)})
		}
	}
	return here, nil
}

// Change gives a tool of the trial's server another definition, as a server behind the gateway could.
func (t *Trials) Change(ctx context.Context, by string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by != by {
		return fault.New(fault.Conflict, "No trial of %s runs.", by)
	}
	return t.offer(ctx, true)
}

// End ends the person's trial. Ending one that has ended is harmless.
func (t *Trials) End(ctx context.Context, by string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == "" || t.by != by {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	t.lease.Stop()
	t.by = ""
	t.o.Gateway.Trial(false)
	return errors.Join(t.o.Gateway.Catalogue().UpdateDefinitions(ctx, agent.TrialServer, nil), t.clean(ctx, by))
}

// Close ends the trial that runs.
func (t *Trials) Close(ctx context.Context) error {
	t.mu.Lock()
	by := t.by
	t.mu.Unlock()
	return t.End(ctx, by)
}

// Clean removes what a trial has left that ended with a gateway that was killed.
func (t *Trials) Clean(ctx context.Context, by string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by != "" {
		return nil
	}
	return t.clean(ctx, by)
}

func (t *Trials) offer(ctx context.Context, changed bool) error {
	all, err := definitions(changed)
	if err != nil {
		return err
	}
	return t.o.Gateway.Catalogue().UpdateDefinitions(ctx, agent.TrialServer, all)
}

// reason stands on record with all that the end of a trial takes back.
const reason = "the end of a trial (sallyport doctor --live)"

// clean closes the sessions of trial agents, removes their files, and takes back what stops trial agents.
func (t *Trials) clean(ctx context.Context, by string) error {
	open, err := t.o.Sessions(ctx)
	problems := []error{err}
	for _, s := range open {
		if !agent.IsTrial(s.Agent) {
			continue
		}
		if _, err := t.o.Gateway.CloseSession(ctx, s.ID, by, reason); err != nil && !fault.Is(err, fault.SessionClosed) {
			problems = append(problems, err)
			continue
		}
		problems = append(problems, t.o.Gateway.RemoveFiles(ctx, s.ID, by))
	}
	standing := t.o.Gateway.Standing()
	for id, sw := range standing.KillStatus().Agents {
		if agent.IsTrial(id) && sw.Active {
			standing.Enable(id, by, reason)
		}
	}
	for id := range standing.Quarantines() {
		if agent.IsTrial(id) {
			problems = append(problems, standing.Restore(ctx, id, reason, by))
		}
	}
	return errors.Join(problems...)
}

// Emits is the label that the data of doctor.secret brings: the first of the configuration, if there is one.
func Emits(labels []flow.Label) []flow.Label { return slices.Clone(labels[:min(1, len(labels))]) }
