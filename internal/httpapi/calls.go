package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"sallyport.example/flow"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/session"
)

// CallOutcome is the state of a call. The result is there as long as it is kept.
type CallOutcome struct {
	CallID  string          `json:"call_id"`
	State   string          `json:"state" enum:"running,done,unknown,refused"`
	Verdict *fault.Verdict  `json:"verdict,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

const (
	keptCalls = 256
	keptBytes = 8 << 20
)

// calls holds the last answers of calls over HTTP, for clients whose connection broke before the answer came. It keeps the answer as it was
// released, fenced and attributed. The audit log has only the raw one, which no agent may see.
type calls struct {
	mu      sync.Mutex // guards the rest
	byID    map[string]keptCall
	order   []string // oldest first
	size    int
	changed chan struct{} // closed, and replaced, whenever a call ends
}

type keptCall struct {
	session string
	answer  CallAnswer
	brings  []flow.Label
}

func (k keptCall) bytes() int { return len(k.answer.Result) + len(k.answer.Error) }

func newCalls() *calls {
	return &calls{byID: map[string]keptCall{}, changed: make(chan struct{})}
}

// keep keeps a call's answer and wakes those who wait. Of an answer that is too large the result is dropped.
func (c *calls) keep(sessionID string, a CallAnswer, brings []flow.Label) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := keptCall{session: sessionID, answer: a, brings: brings}
	if k.bytes() > keptBytes {
		k.answer.Result, k.answer.Error = nil, nil
	}
	c.byID[a.CallID] = k
	c.order = append(c.order, a.CallID)
	c.size += k.bytes()
	for len(c.order) > keptCalls || c.size > keptBytes {
		c.size -= c.byID[c.order[0]].bytes()
		delete(c.byID, c.order[0])
		c.order = c.order[1:]
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// find looks a call of the session up. changed is closed when the next call ends.
func (c *calls) find(sessionID, id string) (k keptCall, ok bool, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok = c.byID[id]
	if !ok || k.session != sessionID {
		return keptCall{}, false, c.changed
	}
	return k, true, c.changed
}

// outcome returns the state of a call of the session, from memory or else from the log. It waits for the end of a call that runs.
func (a *API) outcome(ctx context.Context, p identity.Principal, sessionID, id string, wait time.Duration) (CallOutcome, error) {
	st, err := answer[gateway.Status](a.g.Status(ctx, p, sessionID))
	if err != nil {
		return CallOutcome{}, err
	}
	kept, ok, changed := a.calls.find(st.ID, id)
	if ok {
		return a.keptOutcome(st, kept.answer, kept.brings), nil
	}
	out, err := a.loggedOutcome(ctx, st, id)
	if err != nil || out.State != "running" || wait == 0 {
		return out, err
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for {
		select {
		case <-changed:
			if kept, ok, changed = a.calls.find(st.ID, id); ok {
				if st, err = answer[gateway.Status](a.g.Status(ctx, p, sessionID)); err != nil {
					return CallOutcome{}, err
				}
				return a.keptOutcome(st, kept.answer, kept.brings), nil
			}
		case <-timeout.C: // calls by another door are not in memory here, so the log is asked
			return a.loggedOutcome(ctx, st, id)
		case <-a.closing:
			return out, nil
		case <-ctx.Done():
			return out, ctx.Err()
		}
	}
}

// keptOutcome is the outcome of a call whose answer is still in memory. The result is in it only if the call itself would get it now: the kill
// switch is not pulled, the session is open, and it still holds the labels that the result brings.
func (a *API) keptOutcome(st gateway.Status, k CallAnswer, brings []flow.Label) CallOutcome {
	out := CallOutcome{CallID: k.CallID, State: "done", Verdict: &k.Verdict}
	if k.Verdict.Decision != fault.Permit && (k.Verdict.Stage != "act" && k.Verdict.Stage != "inspect" && k.Verdict.Stage != "outcome") {
		out.State = "refused"
	}
	kill := a.g.Standing().KillStatus()
	holds := func(l flow.Label) bool {
		return slices.ContainsFunc(st.Labels, func(h flow.Held) bool { return h.Label == l })
	}
	missing := slices.ContainsFunc(brings, func(l flow.Label) bool { return !holds(l) }) // a person released it meanwhile
	if !missing && st.State == session.Open && !kill.Global.Active && !kill.Agents[st.Agent].Active {
		out.Result, out.Error = k.Result, k.Error
	}
	return out
}

// loggedOutcome is the outcome of a call according to the log, without the result.
func (a *API) loggedOutcome(ctx context.Context, st gateway.Status, id string) (CallOutcome, error) {
	const pages = 16 // bounds the search; the entries of a call are near each other
	out := CallOutcome{CallID: id}
	after := int64(0)
	for range pages {
		entries, next, err := a.store.Entries(ctx, audit.Filter{CallID: id, Session: st.ID, Min: after, Limit: 10})
		if err != nil {
			return out, err
		}
		for _, e := range entries {
			switch e.Kind {
			case audit.Intent:
				out.State = "running"
			case audit.Outcome, audit.Decision:
				out.State, out.Verdict = loggedVerdict(e)
			}
		}
		if next < 0 || out.Verdict != nil {
			break
		}
		after = next + 1
	}
	if out.State == "" {
		missing := fault.New(fault.NotFound, "There is no call %.80q in this session.", id).At("call_id")
		if gone := a.store.Archived(audit.Filter{From: st.OpenedAt}); gone != nil { // where they are is for operators
			missing.Message += fmt.Sprintf(" Entries before %d, which may have it, were archived.", gone.Before)
			missing = missing.Try("Ask an operator to look in the archive: sallyport audit segments names it.")
		}
		return out, missing
	}
	return out, nil
}

// loggedVerdict makes a verdict of the entry that ended a call.
func loggedVerdict(e audit.Entry) (state string, v *fault.Verdict) {
	verdict := fault.Permitted()
	switch {
	case e.Kind == audit.Decision:
		state, verdict.Decision = "refused", fault.Decision(e.Decision)
	case e.Decision == "unknown":
		state, verdict.Decision = "unknown", fault.Deny
	case e.Code != "":
		state, verdict.Decision = "done", fault.Deny
	default: // the server answered, with a result or with an error of its own
		state = "done"
	}
	verdict.Stage, verdict.Code, verdict.RequestID = e.Stage, fault.Code(e.Code), e.RequestID
	var detail struct {
		Disclosed *gateway.Disclosed `json:"told"` // set if the entry tells more than the agent may know
	}
	if len(e.Detail) > 0 && (json.Unmarshal(e.Detail, &detail) != nil || detail.Disclosed != nil) {
		if detail.Disclosed == nil {
			detail.Disclosed = &gateway.Disclosed{Code: fault.Internal}
		}
		verdict.Stage, verdict.Code, e.Reason = detail.Disclosed.Stage, detail.Disclosed.Code, detail.Disclosed.Reason
	}
	if verdict.Decision != fault.Permit {
		// The reason in the log is for people. In an outcome it can hold a server's words.
		if verdict.Reason = verdict.Code.Sentence(); e.Kind == audit.Decision {
			verdict.Reason = e.Reason
		}
		verdict.Retriable = state == "refused" && verdict.Code.Retriable()
	}
	if verdict.Code == fault.KillSwitch {
		verdict.Status, verdict.Timestamp, verdict.Reason = "SKIPPED", &e.At, "KILL_SWITCH_ACTIVE"
	}
	return state, &verdict
}
