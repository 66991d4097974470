package daemon

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/console"
	"sallyport.example/internal/desk"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/notify"
	"sallyport.example/internal/standing"
)

const (
	// troubleEvery is how often the teller looks for trouble that no change tells of.
	troubleEvery = 15 * time.Second
	// downFor is how long a server is down before people are told, so that a restart is no alert.
	downFor = time.Minute
	// maxTrouble bounds the messages of one look.
	maxTrouble = 20
)

// trouble is what the teller looks at besides questions; nil functions: nothing is known of it.
type trouble struct {
	servers     func() []console.ServerStatus
	tools       func() []catalogue.Tool
	quarantines func() map[string]standing.Quarantine

	down map[string]string // by server: the key of the message that said so; the teller's goroutine owns it
}

// look sends the messages about what has gone wrong, and about what works again.
func (t *teller) look(ctx context.Context) {
	t.serversDown(ctx)
	t.quarantined(ctx)
	t.changedTools(ctx)
	t.failingChannels(ctx)
}

func (t *teller) serversDown(ctx context.Context) {
	if t.trouble.servers == nil {
		return
	}
	if t.trouble.down == nil {
		t.trouble.down = map[string]string{}
	}
	for _, s := range t.trouble.servers() {
		first := t.trouble.down[s.ID]
		switch {
		case s.State == "up" && first != "":
			t.send(ctx, notify.Message{Key: fmt.Sprintf("server:%s:up:%d", s.ID, s.Since.UnixNano()), Follows: first, Event: notify.Alert, Title: "The server " + s.ID + " is up again", Link: "/", At: s.Since})
			delete(t.trouble.down, s.ID)
		case s.State != "up" && first == "" && t.clock().Sub(s.Since) >= downFor:
			key := fmt.Sprintf("server:%s:down:%d", s.ID, s.Since.UnixNano())
			t.send(ctx, notify.Message{Key: key, Event: notify.Alert, Title: "The server " + s.ID + " is down", Text: s.LastError, Link: "/", At: s.Since,
				Fields: []notify.Field{{Name: "since", Value: s.Since.UTC().Format(time.RFC3339)}, {Name: "tools", Value: fmt.Sprint(s.Tools)}}})
			t.trouble.down[s.ID] = key
		}
	}
}

func (t *teller) quarantined(ctx context.Context) {
	if t.trouble.quarantines == nil {
		return
	}
	for id, q := range t.trouble.quarantines() {
		if agent.IsTrial(id) || t.clock().Sub(q.Since) > tellBack {
			continue
		}
		t.send(ctx, notify.Message{Key: fmt.Sprintf("quarantine:%s:%d", id, q.Since.UnixNano()), Event: notify.Alert, Title: "The agent " + id + " was quarantined", Text: q.Reason,
			Link: "/agents/" + id, At: q.Since, Fields: []notify.Field{{Name: "by", Value: cmp.Or(identity.Shown(q.By), "the gateway")}}})
	}
}

func (t *teller) changedTools(ctx context.Context) {
	if t.trouble.tools == nil {
		return
	}
	told := 0
	for _, tool := range t.trouble.tools() {
		if tool.PendingHash == "" || tool.Hash == "" || tool.Standing == catalogue.Gone { // a new one is no change
			continue
		}
		if told++; told > maxTrouble {
			return
		}
		t.send(ctx, notify.Message{Key: "tool:" + shortKey(tool.Operation) + ":" + tool.PendingHash[:min(16, len(tool.PendingHash))], Event: notify.Alert,
			Title: "The tool " + tool.Operation + " changed", Text: "Its definition is another one than people accepted. It is set aside until an operator accepts it.", Link: "/tools", At: t.clock()})
	}
}

// shortKey bounds the name of an operation in a key.
func shortKey(operation string) string { return operation[:min(120, len(operation))] }

func (t *teller) failingChannels(ctx context.Context) {
	all, err := t.deliveries(ctx)
	if err != nil {
		return // the store tells of itself
	}
	for _, c := range all {
		if c.LastError == "" || !c.LastFailure.After(c.LastSuccess) || t.clock().Sub(c.LastFailure) > tellBack {
			continue
		}
		t.send(ctx, notify.Message{Key: fmt.Sprintf("channel:%s:%s:%d", c.Kind, c.Target, c.LastSuccess.UnixNano()), Event: notify.Alert, Title: "Messages by " + c.Kind + " to " + c.Target + " don’t arrive",
			Text: c.LastError, Link: "/", At: c.LastFailure, Fields: []notify.Field{{Name: "unsent", Value: fmt.Sprint(c.Owed)}}})
	}
}

// ended sends the message that follows the one about a question, once it needs nobody any more. It goes where the first one went.
func (t *teller) ended(ctx context.Context, q desk.Question) {
	a := q.Approval
	if agent.IsTrial(a.Agent) {
		return
	}
	var how string
	switch a.State {
	case approval.Approved, approval.Spent:
		how = answered("Approved", a, approval.Approve)
		if len(a.Approvers()) == 0 {
			how = "Nobody said no, so it runs"
		}
	case approval.Rejected:
		how = answered("Rejected", a, approval.Reject)
	case approval.Expired:
		how = "Nobody answered in time"
	case approval.Superseded:
		how = "Withdrawn"
	default:
		return
	}
	m := notify.Message{Key: "approval:" + a.ID + ":ended", Follows: "approval:" + a.ID + ":asked", Event: notify.Approval, Risk: a.Risk, Link: "/approvals/" + a.ID, At: t.clock(), Labels: confidential(a.Labels)}
	m.Title = how + ": " + cmp.Or(q.Line, a.Operation)
	if a.State == approval.Rejected || a.State == approval.Superseded {
		m.Text = a.Reason
	}
	m.Fields = []notify.Field{{Name: "agent", Value: a.Agent}}
	m.Bare = notify.Bare{Title: how + ": " + a.Agent + " asked for " + a.Operation}
	t.send(ctx, m)
}

// answered says how and by whom a question was answered, and marks who answered their own.
func answered(how string, a approval.Approval, d approval.Decision) string {
	var by []string
	for _, v := range a.Votes {
		if v.Decision == d && v.Own {
			by = append(by, v.Person+" (own request)")
		} else if v.Decision == d {
			by = append(by, v.Person)
		}
	}
	if len(by) == 0 {
		return how
	}
	return how + " by " + strings.Join(by, ", ")
}
