package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.example/client"
	"sallyport.example/flow"
	"sallyport.example/internal/approval"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/session"
	"sallyport.example/internal/timeline"
)

// maxQuestions is how many questions of a session are looked up, the newest; a session has no more open.
const maxQuestions = 200

// timelineSteps is how many steps of a session are printed at most, and timelineEntries of how many entries they are made: most calls have two to four.
const (
	timelineSteps   = 500
	timelineEntries = 4 * timelineSteps
)

// step is one thing that happened in a session: a call with everything that is on record about it, or an act.
type step struct {
	At        time.Time `json:"at"`
	What      string    `json:"what"` // the operation, or what was done
	CallID    string    `json:"call_id,omitempty"`
	Approval  string    `json:"approval_id,omitempty"`
	Risk      string    `json:"risk,omitempty"`
	Amount    string    `json:"amount,omitempty"`
	Became    string    `json:"became,omitempty"` // of a call: what happened to it
	Answers   []string  `json:"answers,omitempty"`
	Labels    []string  `json:"labels,omitempty"`   // that it brought
	Released  []string  `json:"released,omitempty"` // labels
	Because   []string  `json:"because,omitempty"`  // which labels stopped it, and what brought them
	By        string    `json:"by,omitempty"`       // of an act
	Code      string    `json:"code,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Arguments string    `json:"arguments,omitempty"` // as the log shows them
	Entries   []int64   `json:"entries"`
}

// timelineOf is a session from the person's request to its effects.
type timelineOf struct {
	SessionID   string `json:"session_id"`
	AgentID     string `json:"agent_id"`
	Requester   string `json:"requester,omitempty"`
	UserRequest string `json:"user_request,omitempty"`
	Steps       []step `json:"steps"`
	Next        *int64 `json:"next"` // where the rest begins: the index to give as --after; null: this is all
}

func (c *cli) sessionShow() *cobra.Command {
	var asTimeline bool
	after := int64(-1)
	cmd := c.asPerson(about{
		use: "show SESSION", short: "Show a session with its labels and its plan", args: cobra.ExactArgs(1), prints: true,
		long: `--timeline shows what happened in it, from the person's request to the effects, from the log: a line for each call, with what became of it and who answered.
That needs the role auditor. Times are of this machine's zone.`,
		example: "sallyport sessions show sess_01J…\nsallyport sessions show sess_01J… --timeline",
	}, func(ctx context.Context, cl *client.Client, args []string) error {
		s, err := cl.Session(ctx, args[0])
		if err != nil {
			return err
		}
		if !asTimeline {
			return c.print(s, func(t *table) { t.session(c, s) })
		}
		all, err := readTimeline(ctx, cl, s, after)
		if err != nil {
			return err
		}
		return c.print(all, all.rows)
	})
	cmd.Flags().BoolVar(&asTimeline, "timeline", false, "what happened in it, step by step")
	cmd.Flags().Int64Var(&after, "after", -1, "with --timeline: go on after this entry")
	return cmd
}

// readTimeline reads the steps of a session after the entry with that index (-1: from the first), as the console shows them.
func readTimeline(ctx context.Context, cl *client.Client, s *client.Session, after int64) (*timelineOf, error) {
	q := client.AuditQuery{Session: s.SessionID, From: s.OpenedAt.Add(-time.Second), Limit: maxPage}
	if after >= 0 {
		q.After = &after
	}
	in := timeline.History{Session: session.Session{ID: s.SessionID, Agent: s.AgentID, Phase: session.Phase(s.Phase)}, Whole: after < 0, Questions: map[string]approval.Approval{}}
	for _, h := range s.Labels {
		in.Session.Labels = append(in.Session.Labels, flow.Held{Label: flow.Label(h.Label), Operation: h.Operation, CallID: h.CallID, Cause: h.Cause})
	}
	asked, err := cl.Approvals(ctx, client.ApprovalQuery{Session: s.SessionID, Limit: maxQuestions})
	if err != nil {
		return nil, err
	}
	for _, a := range asked.Approvals {
		in.Questions[a.ApprovalID] = approval.Approval{State: approval.State(a.State)}
	}
	for !in.Newest && len(in.Entries) < timelineEntries {
		page, err := cl.Audit(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, e := range page.Entries {
			entry, err := entryOf(e)
			if err != nil {
				return nil, err
			}
			in.Entries = append(in.Entries, entry)
		}
		q.After = page.Next
		in.Newest = q.After == nil
	}
	all := stepsOf(s, timeline.Of(in), timelineSteps)
	if all.Next == nil {
		all.Next = q.After
	}
	return all, nil
}

// entryOf is an entry as the gateway has it.
func entryOf(e client.Entry) (entry audit.Entry, err error) {
	b, err := json.Marshal(e)
	if err == nil {
		err = json.Unmarshal(b, &entry)
	}
	return entry, err
}

// stepsOf are the first moments of a timeline, and where the others begin.
func stepsOf(s *client.Session, line timeline.Line, most int) *timelineOf {
	all := &timelineOf{SessionID: s.SessionID, AgentID: s.AgentID, Requester: s.Requester, UserRequest: s.UserRequest, Steps: []step{}}
	for i, m := range line.Moments {
		if i == most {
			before := m.First - 1
			all.Next = &before
			break
		}
		n := step{
			At: m.At, What: m.Title(), CallID: m.CallID, Approval: m.Approval, Risk: m.Risk, Amount: m.Amount, Became: m.Verdict(), Answers: m.Answers, Labels: m.Brings, Released: m.Takes,
			By: m.Who, Code: m.Code, Reason: m.Reason,
		}
		for _, t := range m.Because {
			from := "from before"
			if t.From >= 0 {
				from = fmt.Sprintf("from step %d", t.FromNumber())
			}
			n.Because = append(n.Because, strings.TrimSuffix(fmt.Sprintf("%s %s, %s", t.Label, from, t.Operation), ", "))
		}
		for _, r := range m.Records {
			n.Entries = append(n.Entries, r.Index)
			if r.Arguments != nil && len(r.Arguments.Shown) > 0 {
				n.Arguments = string(r.Arguments.Shown)
			}
		}
		all.Steps = append(all.Steps, n)
	}
	return all
}

// rows prints a timeline, a line for each step and what explains it below.
func (t *timelineOf) rows(out *table) {
	out.field("session", t.SessionID+" of "+t.AgentID)
	out.field("for", t.Requester)
	out.field("request", t.UserRequest)
	out.line("")
	day := ""
	for i, s := range t.Steps {
		at := s.At.Local()
		if d := at.Format("2006-01-02 MST"); d != day {
			day = d
			out.line("%s", day)
		}
		out.line("%s  %s", at.Format("15:04:05"), strings.Join(strings.Fields(strings.Join([]string{fmt.Sprint(i+1, "."), s.What, s.Amount, s.Risk}, " ")), " "))
		by := s.By
		if by != "" {
			by = "by " + identity.Shown(by)
		}
		for _, line := range []string{join(s.Became, strings.Join(s.Answers, ", "), by), s.Reason} {
			if line != "" {
				out.line("          %s", line)
			}
		}
		for _, because := range s.Because {
			out.line("          because of %s", because)
		}
		if len(s.Labels) > 0 {
			out.line("          labels: %s", strings.Join(s.Labels, ", "))
		}
		if len(s.Released) > 0 {
			out.line("          released: %s", strings.Join(s.Released, ", "))
		}
	}
	if t.Next != nil {
		out.line("more: sallyport sessions show %s --timeline --after %d", t.SessionID, *t.Next)
	}
}

// join puts what there is of some words behind each other.
func join(words ...string) string {
	return strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), " · ")
}
