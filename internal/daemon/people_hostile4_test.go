package daemon

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.example/internal/approval"
	"sallyport.example/internal/notify"
	"sallyport.example/internal/policy"
)

// An operation's own roles of arguments must not take away its server's without a word: a transfer of any size would be HIGH.
func TestHostile4OwnArgsDoNotDropTheAmount(t *testing.T) {
	c, err := ParseConfig("sallyport.yaml", []byte(`
upstreams: {bank: {url: "http://127.0.0.1:1"}}
operations:
  bank.*: {action: transfer_money, args: {amount: amount}}
  bank.transfer: {args: {recipient: destination}}
`), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	class := c.Classifier(nil)("bank", "transfer")
	rules, err := c.Approvals.rules()
	if err != nil {
		t.Fatal(err)
	}
	rating := rules.Rate(policy.Subject{Action: class.Action, Floor: class.RiskFloor, Roles: class.Roles, Arguments: []byte(`{"amount":1000000,"recipient":"x"}`), Write: true})
	if rating.Risk == policy.Critical {
		return
	}
	for _, w := range c.Warnings("sallyport.yaml") {
		if strings.Contains(w.Field, "bank.transfer") && strings.Contains(w.Problem, "amount") {
			return
		}
	}
	t.Errorf("a million is %s, one person's to approve, and lint says nothing: %+v", rating.Risk, c.Warnings("sallyport.yaml"))
}

type outbox4 struct {
	notify.Store
	mu   sync.Mutex
	said []notify.Notice
}

func (o *outbox4) AddNotices(_ context.Context, n []notify.Notice) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.said = append(o.said, n...)
	return nil
}

// Who put a question off has not approved it.
func TestHostile4AlertNamesOnlyWhoApproved(t *testing.T) {
	ch, err := notify.ParseChannel(notify.Config{Kind: "webhook", URL: "https://hooks.example/x", Secret: "0123456789abcdef0123456789abcdef", On: []notify.Event{"approval", "alert"}})
	if err != nil {
		t.Fatal(err)
	}
	box := &outbox4{}
	n, err := notify.New([]*notify.Channel{ch}, notify.Options{Store: box, Console: "https://sallyport.example", Queue: "/approvals"})
	if err != nil {
		t.Fatal(err)
	}
	tell := &teller{n: n, warn: func(m string, a ...any) { t.Log(m, a) }, approved: map[string][]time.Time{}, counted: map[string]bool{}}
	now := time.Now()
	tell.approval(t.Context(), approval.Approval{
		ID: "appr_x", State: approval.Spent, Risk: "CRITICAL", Operation: "bank.transfer", Agent: "a", SpentBy: "call_x", CreatedAt: now,
		Votes: []approval.Vote{{Person: "carol", Decision: approval.Deferral, At: now}, {Person: "alice", Decision: approval.Approve, At: now}, {Person: "bob", Decision: approval.Approve, At: now}},
	})
	if len(box.said) != 1 {
		t.Fatalf("%d messages", len(box.said))
	}
	if body := string(box.said[0].Body); strings.Contains(body, "carol") {
		t.Errorf("carol put it off, and is said to have approved it: %s", body)
	}
}
