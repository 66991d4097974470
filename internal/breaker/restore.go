package breaker

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
)

// The actions of entries about breakers.
const (
	ActionOpen   = "breaker.open"
	ActionClosed = "breaker.closed"
)

// Noted is how an outcome's entry has its result, in its detail under "breaker"; absent where the server that a call went to answered and did not fail.
type Noted struct {
	Server string `json:"server"`
	Result Result `json:"result"`
}

// Restore takes the state from entries of the log, the oldest first: openings and closings as they stand there, and the rows of failures as the
// outcomes make them. It returns the breakers that should be open by then and have no entry of it: the process ended before it was written.
func (b *Breakers) Restore(entries []audit.Entry) []Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Action == ActionOpen || e.Action == ActionClosed:
			b.restoreChange(e)
		case e.Kind == audit.Outcome:
			b.restoreOutcome(e)
		case e.Kind == audit.Change && strings.HasPrefix(e.Action, "run."):
			if failed, ended := RunFailed(strings.TrimPrefix(e.Action, "run."), fault.Code(e.Code)); ended {
				b.countRun(agent.Base(e.Agent), failed)
			}
		}
	}
	var due []Event
	for _, name := range slices.Sorted(maps.Keys(b.byName)) {
		if k := b.byName[name]; !k.open {
			due = append(due, b.openIfDue(k)...)
		}
	}
	return due
}

func (b *Breakers) restoreChange(e *audit.Entry) {
	var v Event
	if json.Unmarshal(e.Detail, &v) != nil || v.Name == "" {
		return
	}
	of, server := parse(v.Name)
	kind := Server
	switch {
	case server == "":
		kind = OfAgent
	case of != "":
		kind = Pair
	}
	k := b.make(kind, of, server)
	if e.Action == ActionClosed {
		k.close()
		return
	}
	wait, err := time.ParseDuration(v.Wait)
	if err != nil || wait <= 0 || wait > maxWait {
		wait = b.rules.Wait
	}
	k.open, k.since, k.retry, k.wait, k.cause, k.trying = true, v.Since, v.RetryAfter, wait, v.Cause, false
	k.endsTooOften = false
	k.opened = slices.DeleteFunc(k.opened, func(at time.Time) bool { return v.Since.Sub(at) > remembered })
	if !v.Again && v.Opened > len(k.opened) { // a test counts for none
		k.opened = append(k.opened, v.Since)
	}
}

// RunFailed tells whether a run with the status, and the code of its verdict, failed by its agent; ended is false for what says nothing of the agent, such
// as a run that was stopped, or that the gateway did not carry through.
func RunFailed(status string, code fault.Code) (failed, ended bool) {
	switch status {
	case "done":
		return false, true
	case "invalid", "timeout":
		return true, true
	case "failed":
		ended = code == fault.UpstreamFailed || code == fault.OutputInvalid
		return ended, ended
	}
	return false, false
}

// restoreOutcome counts what an outcome's entry says.
func (b *Breakers) restoreOutcome(e *audit.Entry) {
	var detail struct {
		Breaker *Noted `json:"breaker"`
	}
	if len(e.Detail) > 0 && json.Unmarshal(e.Detail, &detail) != nil {
		return
	}
	of := agent.Base(e.Agent)
	if n := detail.Breaker; n != nil {
		b.count(of, n.Server, n.Result, e.At, false)
		return
	}
	if e.Decision != "ok" || e.Action != "call" {
		return
	}
	for _, k := range b.byName {
		if serves(k.server, e.Operation) && (k.kind == Server || k.agent == of) {
			k.hard, k.soft, k.own = 0, nil, 0
		}
	}
}

// parse takes a breaker's name apart.
func parse(name string) (of, server string) {
	if of, is := strings.CutPrefix(name, "agent:"); is {
		return of, ""
	}
	for _, prefix := range []string{modelPrefix, judgePrefix} { // of models' ids, which may have an '@'
		if strings.HasPrefix(name, prefix) {
			return "", name
		}
	}
	if of, server, is := strings.Cut(name, "@"); is {
		return of, server
	}
	return "", name
}
