package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport/internal/approval"
	"sallyport/internal/fault"
	"sallyport/internal/gateway"
	"sallyport/internal/notify"
	"sallyport/internal/policy"
)

const (
	// tellPage is how many approvals are read at once after a start, or after changes were missed.
	tellPage = 500
	// tellBack is how far back calls of HIGH and CRITICAL are looked for that nobody was told of.
	tellBack = 24 * time.Hour
	// A person who approves more than hastyCount requests within hastySpan is not reading them.
	hastyCount = 20
	hastySpan  = 5 * time.Minute
)

// teller tells people what happens, from changes of the gateway and from what the store holds: a message has one key, so that what was
// told before a restart is not told again, and what was not is told then.
type teller struct {
	g    *gateway.Gateway
	n    *notify.Notifier
	warn func(msg string, args ...any)

	approved map[string][]time.Time // by person: their last approvals; only run has it
	counted  map[string]bool        // votes that are in it, as approval and person
}

// run tells until ctx ends.
func (t *teller) run(ctx context.Context) {
	changes, end := t.g.Watch(gateway.ApprovalChanged, gateway.KillChanged)
	defer end()
	t.everything(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-changes:
			switch c.Topic {
			case gateway.ApprovalChanged:
				a, err := t.g.Question(ctx, c.ID)
				if err != nil {
					if !fault.Is(err, fault.NotFound) {
						t.everything(ctx)
					}
					continue
				}
				t.approval(ctx, a.Approval)
				t.missed(ctx, a)
			case gateway.KillChanged:
				t.kill(ctx)
			case "":
				t.everything(ctx)
			}
		}
	}
}

// everything tells what nobody was told: after a start, and when changes were missed.
func (t *teller) everything(ctx context.Context) {
	t.kill(ctx)
	for _, state := range []approval.State{approval.Pending, approval.Deferred, approval.Spent} {
		after := ""
		for {
			page, err := t.g.Questions(ctx, state, "", after, tellPage)
			if err != nil {
				if ctx.Err() == nil {
					t.warn("what waits could not be read to tell people", "error", err)
				}
				return
			}
			for _, q := range page {
				if state == approval.Spent && time.Since(q.CreatedAt) > tellBack {
					page = nil
					break
				}
				t.approval(ctx, q.Approval)
			}
			if len(page) < tellPage {
				break
			}
			after = page[len(page)-1].ID
		}
	}
}

func (t *teller) approval(ctx context.Context, a approval.Approval) {
	m := notify.Message{Event: notify.Approval, Risk: a.Risk, Link: "/approvals/" + a.ID, At: a.CreatedAt}
	fields := func(pairs ...string) {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i+1] != "" {
				m.Fields = append(m.Fields, notify.Field{Name: pairs[i], Value: pairs[i+1]})
			}
		}
	}
	switch a.State {
	case approval.Pending:
		m.Key = "approval:" + a.ID + ":asked"
		m.Title = a.Risk + ": " + a.Operation + " waits for " + people(a.Needed)
		if !a.SilenceAt.IsZero() {
			m.Title = a.Risk + ": " + a.Operation + " runs at " + a.SilenceAt.Format(time.TimeOnly) + " UTC unless it is stopped"
		}
		if len(a.Reasons) > 0 {
			m.Text = a.Reasons[0].Text
		}
		fields("agent", a.Agent, "for", a.Requester, "amount", a.Amount, "expires", a.ExpiresAt.Format(time.RFC3339))
		t.send(ctx, m)
	case approval.Spent:
		if policy.Risk(a.Risk).Rank() < policy.High.Rank() {
			return
		}
		m.Key, m.Event = "approval:"+a.ID+":spent", notify.Alert
		m.Title = a.Risk + ": " + a.Operation + " was carried out"
		var by []string
		for _, v := range a.Votes {
			by = append(by, v.Person)
		}
		fields("agent", a.Agent, "for", a.Requester, "amount", a.Amount, "approved by", strings.Join(by, ", "), "call", a.SpentBy)
		t.send(ctx, m)
	}
	t.pace(ctx, a)
}

// missed raises an alert about a drill that was approved (appr-053).
func (t *teller) missed(ctx context.Context, q gateway.Question) {
	if !q.Drill || q.State != approval.Approved {
		return
	}
	var by []string
	for _, v := range q.Votes {
		by = append(by, v.Person)
	}
	t.send(ctx, notify.Message{
		Key: "drill:" + q.ID, Event: notify.Alert, Title: "A drill was approved", Link: "/approvals/" + q.ID, At: q.CreatedAt,
		Text:   "Nobody asked for what was approved; nothing ran. Real requests are read no better.",
		Fields: []notify.Field{{Name: "approved by", Value: strings.Join(by, ", ")}},
	})
}

// pace raises an alert about who approves faster than anybody reads (appr-051).
func (t *teller) pace(ctx context.Context, a approval.Approval) {
	for _, v := range a.Votes {
		if v.Decision != approval.Approve || t.counted[a.ID+" "+v.Person] || time.Since(v.At) > hastySpan {
			continue
		}
		if len(t.counted) > 100*hastyCount { // only the last minutes count
			clear(t.counted)
			clear(t.approved)
		}
		t.counted[a.ID+" "+v.Person] = true
		times := slices.DeleteFunc(append(t.approved[v.Person], v.At), func(at time.Time) bool { return v.At.Sub(at) > hastySpan })
		t.approved[v.Person] = times
		if len(times) <= hastyCount {
			continue
		}
		t.warn("a person approves faster than anybody reads", "person", v.Person, "approvals", len(times), "within", hastySpan)
		t.send(ctx, notify.Message{
			Key: fmt.Sprintf("pace:%s:%d", v.Person, v.At.Unix()/int64(hastySpan/time.Second)), Event: notify.Alert,
			Title: v.Person + " approves faster than anybody reads", At: v.At, Link: "/approvals?state=approved",
			Text: fmt.Sprintf("%d requests within %s. Look at what was approved, and at why there are so many.", len(times), hastySpan),
		})
	}
}

func (t *teller) kill(ctx context.Context) {
	s := t.g.KillStatus()
	switches := map[string]gateway.Switch{"": s.Global}
	for agent, sw := range s.Agents {
		switches[agent] = sw
	}
	for agent, sw := range switches {
		if sw.Since.IsZero() {
			continue
		}
		what, done := "All agents were", "stopped"
		if agent != "" {
			what = "The agent " + agent + " was"
		}
		if !sw.Active {
			done = "let work again"
		}
		t.send(ctx, notify.Message{
			Key: fmt.Sprintf("kill:%s:%d", agent, sw.Since.UnixNano()), Event: notify.Alert, Title: what + " " + done, Text: sw.Reason, Risk: "CRITICAL",
			Link: "/agents", At: sw.Since, Fields: []notify.Field{{Name: "by", Value: cmp.Or(sw.By, "nobody")}},
		})
	}
}

func (t *teller) send(ctx context.Context, m notify.Message) {
	if err := t.n.Send(ctx, m); err != nil && ctx.Err() == nil {
		t.warn("people could not be told; it is tried again at the next start", "key", m.Key, "error", err)
	}
}

func people(n int) string {
	if n == 1 {
		return "a person"
	}
	return fmt.Sprintf("%d people", n)
}
