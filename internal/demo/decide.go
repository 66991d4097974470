package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/client"
	"sallyport.example/internal/fault"
)

const (
	// patience is how long somebody who looks on may take to answer.
	patience = 10 * time.Minute
	// asking is how often it is looked whether there is an answer.
	asking = 300 * time.Millisecond
)

// payment is what the agent wants, every time the same: an answer is for one call, to the byte.
var payment = map[string]any{"payee": "DE02 1203 0000 0000 2020 51", "amount": 480, "subject": "Invoice 2231, catering"}

// decide shows a call that a person has to answer for, and waits for the answer where somebody looks on.
func (s *show) decide(ctx context.Context, agent *mcp.ClientSession) error {
	s.title("Money moves only if a person says so")
	v, _, err := s.pay(ctx, agent)
	if err != nil {
		return err
	}
	if v.Code != string(fault.ApprovalRequired) || v.ApprovalID == nil {
		return fmt.Errorf("the transfer was not asked about (%s %s)", v.Decision, v.Code)
	}
	admin, err := s.admin()
	if err != nil {
		return err
	}
	a, err := admin.Approval(ctx, *v.ApprovalID)
	if err != nil {
		return err
	}
	s.item("transfer(480 EUR) waits: risk %s, %d of %d answers", a.Risk, len(a.Votes), a.Needed)
	if a.State != "pending" || a.Operation != "bank.transfer" || s.paid() != 0 {
		return fmt.Errorf("the request is %s, and %d transfers were carried out", a.State, s.paid())
	}
	if !s.o.Wait && !s.o.Keep {
		s.say("Nobody answers here, so nothing is paid. Run it in a terminal to answer yourself.")
		return nil
	}
	link, until, err := s.link()
	if err != nil {
		return err
	}
	s.say("It is yours to answer. Open this in a browser (it signs you in once, until %s):", until.Local().Format("15:04"))
	s.command("%s", link)
	s.say("Or in another terminal:")
	s.command("sallyport approvals watch --data %s", s.data)
	if !s.o.Wait {
		return nil
	}
	s.say("The agent comes back with the very same call when there is an answer. Ctrl-C leaves it unanswered.")
	return s.answered(ctx, agent, admin, a.ApprovalID)
}

// answered comes back with the call once it was answered.
func (s *show) answered(ctx context.Context, agent *mcp.ClientSession, admin *client.Client, id string) error {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(asking)
	defer tick.Stop()
	for {
		select {
		case <-within.Done():
		case <-tick.C:
		}
		if ctx.Err() != nil {
			return nil // they have seen enough
		}
		if errors.Is(within.Err(), context.DeadlineExceeded) {
			s.say("Nobody answered, so nothing was paid.")
			return nil
		}
		a, err := admin.Approval(within, id)
		if err != nil && within.Err() == nil {
			return err
		}
		if err != nil || a.State == "pending" || a.State == "deferred" {
			continue
		}
		v, answer, err := s.pay(within, agent)
		switch {
		case err != nil && within.Err() != nil:
			continue
		case err != nil:
			return err
		case v.Code == "" && s.paid() == 1:
			s.say("You approved it, and it was carried out once:")
			s.quote(answer)
			return nil
		case v.Code == string(fault.ApprovalRejected):
			s.say("You rejected it. The agent is told: %s", v.Reason)
			return nil
		case v.Code == string(fault.ApprovalMismatch):
			s.say("You changed it. The agent is told: %s", v.Reason)
			for _, r := range v.Remedies {
				s.item("%s", r.Text)
			}
			return nil
		}
		return fmt.Errorf("the transfer ended as %s %s: %s", v.Decision, v.Code, v.Reason)
	}
}

// pay makes the call. Its verdict has no code if it ran.
func (s *show) pay(ctx context.Context, agent *mcp.ClientSession) (v client.Verdict, answer string, err error) {
	r, err := agent.CallTool(ctx, &mcp.CallToolParams{Name: "transfer", Arguments: payment})
	if err != nil || !r.IsError {
		if err == nil {
			answer = text(r)
		}
		return v, strings.TrimSpace(answer), err
	}
	b, err := json.Marshal(r.Meta["sallyport/verdict"])
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	return v, "", err
}
