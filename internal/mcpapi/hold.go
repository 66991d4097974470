package mcpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/mcpwire"
)

const (
	// approvalKey names the question in a round of the gateway's own. A server that asks under this name is refused, so that none can pose as
	// the gateway.
	approvalKey = "sallyport/approval"
	// ownRounds bounds the rounds in which the gateway asks a client to wait. The others are left to the server, which may ask back once its
	// call is approved. Clients give up at about maxRounds without showing their agent the last answer.
	ownRounds = maxRounds / 2
	// maxKept bounds the bytes of the server's state and answers in a round of the gateway: the client has to send all of them back.
	maxKept = 1 << 20
	// maxReason bounds the reason in a question to a person, in bytes.
	maxReason = 1000
)

// askToWait makes a round of the gateway's own: the client is asked to tell a person that they have to decide, and to come back. It is nil if the
// verdict is no ask, or if the client can't be asked (again). The client's answer decides how long it waits, never the question itself: that takes
// a person who has signed in to the gateway (HI-4).
func (f *Face) askToWait(r gateway.Request, a gateway.Answer, at rounds, capabilities json.RawMessage) json.RawMessage {
	v, x := a.Verdict, r.Exchange
	switch {
	case v.Decision != fault.Ask, v.ApprovalID == nil, r.Method == call.Complete:
		return nil
	case at.n >= ownRounds, len(x.InputResponses)+len(x.RequestState) > maxKept:
		return nil
	case f.life.stopping.Err() != nil: // nobody could open the state later
		return nil
	}
	id := *v.ApprovalID
	link := f.o.Console(id)
	message := func(where string) string {
		return display.Line(v.Reason, maxReason) + " Nothing has run yet. The question is " + id + ", and who may decide it answers " + where +
			". An answer here does not decide it: accept waits for theirs, decline and cancel stop waiting."
	}
	var params map[string]any
	switch form, url := elicits(capabilities); {
	case url && link != "":
		params = map[string]any{"mode": "url", "url": link, "message": message("at this address")}
	case form:
		where := "in Sallyport's console or with the command: sallyport approvals show " + id
		if link != "" {
			where = "at " + link
		}
		params = map[string]any{"mode": "form", "requestedSchema": json.RawMessage(`{"type":"object","properties":{}}`), "message": message(where)}
	default:
		return nil
	}
	return mcpwire.AppendJSON(nil, map[string]any{
		"resultType":    "input_required",
		"inputRequests": map[string]any{approvalKey: map[string]any{"method": "elicitation/create", "params": params}},
		"requestState": f.seal.seal(state{
			binding: bind(r.Principal.String(), a.Session, r.Method, r.Tool, r.Arguments), Round: at.n + 1,
			Inner: x.RequestState, Approval: id, Answers: x.InputResponses,
		}),
	})
}

// elicits tells which modes of elicitation a client with these capabilities has. A client that names none has forms.
func elicits(capabilities json.RawMessage) (form, url bool) {
	modes, _ := call.Get(capabilities, "elicitation")
	if !call.IsObject(modes) {
		return false, false
	}
	has := func(mode string) bool { v, _ := call.Get(modes, mode); return call.IsObject(v) }
	url = has("url")
	return has("form") || !url, url
}

// separateAnswers separates the answer to the gateway's own question, which is no part of the call, from the answers to the server's. servers is nil
// without any.
func separateAnswers(responses json.RawMessage) (servers, ours json.RawMessage) {
	ours, ok := call.Get(responses, approvalKey)
	if !ok {
		return responses, nil
	}
	for name, value := range call.Members(responses) {
		if name == approvalKey {
			continue
		}
		if servers == nil {
			servers = json.RawMessage{'{'}
		} else {
			servers = append(servers, ',')
		}
		servers = append(append(mcpwire.AppendJSON(servers, name), ':'), value...)
	}
	if servers != nil {
		servers = append(servers, '}')
	}
	return servers, ours
}

// endRounds ends the rounds of a client that doesn't wait. The call is only judged and does not run, even if it has been approved meanwhile: the
// client's person has just seen that it does not.
func (f *Face) endRounds(ctx context.Context, r gateway.Request, at rounds) (json.RawMessage, *rpcError) {
	r.DryRun = true
	a := f.g.Call(ctx, r)
	if a.Verdict.Decision != fault.Permit {
		return refusal(ctx, r, a.Verdict.RequestID, a.Verdict)
	}
	v := fault.Refuse("approve", fault.ApprovalRequired, "It was not run, because the client stopped waiting for the answer. By now it is permitted.",
		fault.Remedy{Kind: "approve", Text: "Make the same call again if it is still wanted: it runs."})
	v.Decision, v.ApprovalID = fault.Ask, &at.approval
	return refusal(ctx, r, a.Verdict.RequestID, v)
}

// waiting is the message about what a held call waits for.
func waiting(w desk.Waiting, now time.Time) string {
	switch {
	case w.SilenceAt.After(now):
		return fmt.Sprintf("Runs at %s UTC unless a person stops it: %s (%s).", w.SilenceAt.UTC().Format(time.TimeOnly), w.ApprovalID, w.Risk)
	case w.Risk == "CRITICAL":
		return fmt.Sprintf("Waiting for two people to decide on %s (%s).", w.ApprovalID, w.Risk)
	}
	return fmt.Sprintf("Waiting for a person to decide on %s (%s).", w.ApprovalID, w.Risk)
}

// progress sends the progress notifications of one request. MCP requires that their numbers rise over the whole request, and they come from two
// senders: the gateway while the call is held, and the server once it runs. If the gateway has sent any, the server's numbers, and its totals,
// are shifted to follow them. Otherwise they pass unchanged.
type progress struct {
	s     *stream
	token json.RawMessage

	mu    sync.Mutex // guards the rest, and keeps the order in which it is sent
	last  float64
	shift float64 // of the server's numbers; 0: the gateway has sent none
}

// held sends that the call waits.
func (p *progress) held(message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := math.Floor(p.last) + 1
	if !(next > p.last) { // the number is so large that there is no next one
		return
	}
	p.last, p.shift = next, next+1
	p.send(mcpwire.AppendJSON(nil, map[string]any{"progress": next, "message": message}))
}

// server passes on a notification of the server.
func (p *progress) server(params json.RawMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := number(params, "progress")
	if p.shift > 0 {
		if n += p.shift; !ok || !(n > p.last) {
			return
		}
		params = call.SetMember(params, "progress", mcpwire.AppendJSON(nil, n))
		if total, ok := number(params, "total"); ok {
			params = call.SetMember(params, "total", mcpwire.AppendJSON(nil, total+p.shift))
		}
	}
	if ok && n > p.last {
		p.last = n
	}
	p.send(params)
}

// send is called with mu held.
func (p *progress) send(params json.RawMessage) {
	if params = call.SetMember(params, "progressToken", p.token); params != nil {
		_ = p.s.message("notifications/progress", nil, params) // a client that went away is noticed by the context
	}
}

// number is a member that is a number, and finite.
func number(object json.RawMessage, name string) (float64, bool) {
	v, _ := call.Get(object, name)
	n, err := strconv.ParseFloat(string(v), 64)
	return n, err == nil
}
