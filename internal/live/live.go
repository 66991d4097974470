// Package live proves on a running gateway that each control refuses what it must refuse (sallyport doctor --live). It does what an agent, a program or a
// stranger would try, with trial agents (internal/trial), over the gateway's own doors, and looks whether it is refused.
//
// Promises: no probe does harm where its control fails: the tools that are called have no effect, addresses are this process's own, files are canaries in a
// folder of its own, statements match no row. What an agent of the configuration could do is only asked about (check), never called. A control that is
// not in use is never called ok, nor is one that something else refused before it. What was opened is closed at the end, also after an interruption.
package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sallyport.example/client"
)

// States of a row.
const (
	OK      = "ok"
	Failed  = "failed"
	Untried = "untried" // it could not be tried, so nothing is proved
	Unused  = "unused"  // not in use here
)

// Row is the result for one control.
type Row struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

// Options are the options of Run. Every field but Progress is needed.
type Options struct {
	People   *client.Client // as the person who runs it
	Person   string         // the person's token
	Agents   string         // the address of the agents' side
	Admin    string         // the address of the people's side
	Command  []string       // this program, with the flags that name the gateway: people's commands are tried with it
	Log      func(ctx context.Context) (problems []string, size int64, err error)
	Confined func(ctx context.Context, canary string) []Row // how the servers' sandboxes hold
	Progress func(row Row)                                  // is told of each row as soon as it is known; nil: nobody is
	MaxCalls int                                            // a limit of calls a minute that is above this is not tried
}

const (
	reason  = "sallyport doctor --live"
	asked   = "Try what this gateway refuses." // what each session is opened for
	cleanup = 30 * time.Second
)

// prober is one run.
type prober struct {
	o      Options
	here   *client.Trial
	agent  client.TrialAgent
	folder string // of canaries
	rows   []Row
}

// Run tries every control and returns a row for each. The error says that nothing could be tried, or that something was not closed.
func Run(ctx context.Context, o Options) (rows []Row, err error) {
	here, err := o.People.BeginTrial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
		defer cancel()
		if failed := o.People.EndTrial(end); failed != nil {
			err = errors.Join(err, fmt.Errorf("the trial could not be ended now; it ends by itself within five minutes: %w", failed))
		}
	}()
	folder, err := os.MkdirTemp("", "sallyport-doctor-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if folder, err = filepath.EvalSymlinks(folder); err != nil {
		return nil, err
	}
	if len(here.Agents) == 0 {
		return nil, errors.New("no agent is declared whose declaration is approved, so there is nothing to try: sallyport agents list")
	}
	p := &prober{o: o, here: here, agent: here.Agents[0], folder: folder}
	for _, try := range p.tries() {
		if ctx.Err() != nil {
			return p.rows, ctx.Err()
		}
		for _, row := range try.run(ctx) {
			row.Name = strings.TrimSuffix(try.name+" "+row.Name, " ")
			if ctx.Err() != nil {
				return p.rows, ctx.Err()
			}
			p.rows = append(p.rows, row)
			if o.Progress != nil {
				o.Progress(row)
			}
		}
	}
	return p.rows, nil
}

// try is one control. run returns its rows, without the control's name.
type try struct {
	name string
	run  func(ctx context.Context) []Row
}

func (p *prober) tries() []try {
	one := func(name string, run func(ctx context.Context) Row) try {
		return try{name, func(ctx context.Context) []Row { return []Row{run(ctx)} }}
	}
	return []try{
		one("credentials", p.credentials),
		one("other hosts and pages", p.strangers),
		one("strict parse", p.parse),
		one("size", p.size),
		one("permission", p.permission),
		one("phase", p.phase),
		one("declaration", p.declaration),
		one("flow", p.untrusted),
		one("fence", p.fence),
		one("secrets to sinks", p.secrets),
		{"operations of", p.operations},
		one("egress", p.egress),
		one("paths", p.paths),
		one("exec", p.program),
		{"database", p.databases},
		one("budget", p.budget),
		one("rate", p.rate),
		one("approvals", p.ownVote),
		one("kill", p.kill),
		one("quarantine", p.quarantine),
		one("changed definition", p.changed),
		one("people's commands", p.commands),
		one("people's confirmation", p.confirmation),
		one("audit log", p.log),
		one("audit anchor", p.anchor),
		{"server", func(ctx context.Context) []Row { return p.o.Confined(ctx, filepath.Join(p.folder, "canary")) }},
	}
}

// session is one of the trial agent's sessions.
type session struct {
	*client.Client
	id    string
	token string
}

// open opens a session of a trial agent in a phase.
func (p *prober) open(ctx context.Context, agent, phase string, labels ...string) (session, error) {
	s, err := p.o.People.StartSession(ctx, client.OpenSession{AgentID: agent, UserRequest: asked, Labels: labels})
	if err != nil {
		return session{}, err
	}
	if s.Phase != phase {
		if _, err := p.o.People.SetPhase(ctx, s.SessionID, phase, reason); err != nil {
			return session{}, err
		}
	}
	cl, err := client.New(p.o.Agents, s.SessionToken)
	return session{cl, s.SessionID, s.SessionToken}, err
}

// working opens a session of the trial agent in the execution phase.
func (p *prober) working(ctx context.Context, labels ...string) (session, error) {
	return p.open(ctx, p.agent.TrialID, "execution", labels...)
}

// answer says what happened to something that was tried: it was done, or refused with a code.
type answer struct {
	done   bool // it was not refused
	code   string
	stage  string // that asked or refused; "": none did
	reason string
	result json.RawMessage
	asks   string // the id of the question to people; "": nobody is asked
}

func answerTo(a *client.CallAnswer, err error) (answer, error) {
	var problem *client.Problem
	switch {
	case errors.As(err, &problem):
		return answer{code: problem.Code, reason: problem.Error()}, nil
	case err != nil:
		return answer{}, err
	}
	out := answerOf(&a.Verdict)
	if out.result = a.Result; a.Error != nil {
		out.done, out.result = true, a.Error
	}
	return out, nil
}

func answerOf(v *client.Verdict) answer {
	a := answer{done: v.Decision == "permit", code: v.Code, stage: v.Stage, reason: v.Reason}
	if v.ApprovalID != nil {
		a.asks = *v.ApprovalID
	}
	return a
}

// call makes a call in a session.
func (s session) call(ctx context.Context, tool, arguments string) (answer, error) {
	return answerTo(s.Call(ctx, client.Own, tool, json.RawMessage(arguments)))
}

// refused is the row of something that has to be refused with one of the codes. what names it, and begins the sentences of the row.
func refused(what string, a answer, err error, codes ...string) Row {
	switch {
	case err != nil:
		return Row{State: Untried, Detail: what + " could not be tried: " + err.Error()}
	case a.done:
		return Row{State: Failed, Detail: what + " was not refused: it ran", Remedy: "stop the agents with sallyport kill, and report it as a security problem"}
	case slices.Contains(codes, a.code):
		return Row{State: OK, Detail: what + " was refused: " + a.code}
	}
	return Row{State: Untried, Detail: fmt.Sprintf("%s was refused for another reason, so the control itself was not reached: %s: %s", what, a.code, a.reason)}
}

// together is the row of several tries of one control: the first that is not ok, or a row that says ok.
func together(ok string, rows ...Row) Row {
	for _, state := range []string{Failed, Untried} {
		for _, r := range rows {
			if r.State == state {
				return r
			}
		}
	}
	return Row{State: OK, Detail: ok}
}

// refusedBy is refused for a control whose codes other stages use, too: only a refusal of this stage is ok.
func refusedBy(stage, what string, a answer, err error, codes ...string) Row {
	if a.stage != stage && !a.done {
		codes = nil
	}
	return refused(what, a, err, codes...)
}

func untried(err error) Row {
	return Row{State: Untried, Detail: "it could not be tried: " + err.Error()}
}

func unused(format string, args ...any) Row {
	return Row{State: Unused, Detail: "not in use here: " + fmt.Sprintf(format, args...)}
}

// recorded is the row of a control that only records in mode observe; ok is false in other modes.
func (p *prober) recorded() (Row, bool) {
	if p.here.Mode != "observe" {
		return Row{}, false
	}
	return unused("mode observe only records what this control would refuse"), true
}

func quoted(s string) string {
	b, _ := json.Marshal(s) // of a string: can't fail
	return string(b)
}
