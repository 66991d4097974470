package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.example/client"
)

// timelineSteps is how many steps of a session are printed at most.
const timelineSteps = 500

// step is one thing that happened in a session: a call with everything that is on record about it, or an act.
type step struct {
	At        time.Time `json:"at"`
	What      string    `json:"what"` // the operation, or what was done
	CallID    string    `json:"call_id,omitempty"`
	Risk      string    `json:"risk,omitempty"`
	Amount    string    `json:"amount,omitempty"`
	Became    []string  `json:"became"` // what happened to it, in words, oldest first
	Labels    []string  `json:"labels,omitempty"`
	By        string    `json:"by,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Arguments string    `json:"arguments,omitempty"` // as the log shows them
	Entries   []int64   `json:"entries"`
}

// timeline is a session from the person's request to its effects.
type timeline struct {
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

// readTimeline reads the steps of a session after the entry with that index (-1: from the first).
func readTimeline(ctx context.Context, cl *client.Client, s *client.Session, after int64) (*timeline, error) {
	all := &timeline{SessionID: s.SessionID, AgentID: s.AgentID, Requester: s.Requester, UserRequest: s.UserRequest}
	q := client.AuditQuery{Session: s.SessionID, From: s.OpenedAt.Add(-time.Second), Limit: maxPage}
	if after >= 0 {
		q.After = &after
	}
	at := map[string]int{} // place in Steps, by call and by request
	for {
		page, err := cl.Audit(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, e := range page.Entries {
			if all.take(at, e, timelineSteps); all.Next != nil {
				return all, nil
			}
		}
		if q.After = page.Next; q.After == nil {
			return all, nil
		}
	}
}

// take adds an entry to the step that it belongs to, or as a step of its own while there are less than most.
func (t *timeline) take(at map[string]int, e client.Entry, most int) {
	if i := t.find(at, e); i >= 0 {
		t.Steps[i].add(e)
		return
	}
	if len(t.Steps) == most {
		before := e.Index - 1
		t.Next = &before
		return
	}
	for _, key := range keys(e) {
		at[key] = len(t.Steps)
	}
	n := step{At: e.At, What: e.Operation, CallID: e.CallID}
	if n.What == "" || e.Action != "call" && !strings.HasPrefix(e.Action, "approval.") {
		n.What = strings.TrimSpace(plainly(e) + " " + e.Operation)
	}
	n.add(e)
	t.Steps = append(t.Steps, n)
}

// keys are the names under which entries of one call find each other.
func keys(e client.Entry) (all []string) {
	if e.CallID != "" {
		all = append(all, "call "+e.CallID)
	}
	if id := approvalOf(e); id != "" {
		all = append(all, "approval "+id)
	}
	return all
}

func approvalOf(e client.Entry) string {
	var d struct {
		ID string `json:"approval_id"`
	}
	if json.Unmarshal(e.Detail, &d) != nil {
		return ""
	}
	return d.ID
}

// find returns the place of the step that an entry belongs to, or -1. What is learned of its names is kept.
func (t *timeline) find(at map[string]int, e client.Entry) int {
	for _, key := range keys(e) {
		if i, ok := at[key]; ok {
			for _, other := range keys(e) {
				at[other] = i
			}
			return i
		}
	}
	return -1
}

func (s *step) add(e client.Entry) {
	s.Entries = append(s.Entries, e.Index)
	became := plainly(e)
	if strings.HasPrefix(e.Actor, "person:") && e.Kind != "intent" && e.Kind != "outcome" {
		s.By = e.Actor
		if strings.HasPrefix(e.Action, "approval.") {
			became += " by " + strings.TrimPrefix(e.Actor, "person:")
		}
	}
	if !strings.HasPrefix(s.What, became) {
		s.Became = append(s.Became, became)
	}
	if e.Risk != "" {
		s.Risk = e.Risk
	}
	if e.Amount != "" {
		s.Amount = e.Amount
	}
	if e.Reason != "" && e.Kind == "decision" {
		s.Reason = e.Reason
	}
	if e.Arguments != nil && len(e.Arguments.Shown) > 0 {
		s.Arguments = string(e.Arguments.Shown)
	}
	for _, l := range e.Labels {
		if !slices.Contains(s.Labels, l) {
			s.Labels = append(s.Labels, l)
		}
	}
}

// rows prints a timeline, a line for each step and what explains it below.
func (t *timeline) rows(out *table) {
	out.field("session", t.SessionID+" of "+t.AgentID)
	out.field("for", t.Requester)
	out.field("request", t.UserRequest)
	out.line("")
	day := ""
	for _, s := range t.Steps {
		at := s.At.Local()
		if d := at.Format("2006-01-02 MST"); d != day {
			day = d
			out.line("%s", day)
		}
		out.line("%s  %s", at.Format("15:04:05"), strings.Join(strings.Fields(strings.Join([]string{s.What, s.Amount, s.Risk}, " ")), " "))
		if len(s.Became) > 0 {
			out.line("          %s", strings.Join(s.Became, ", then "))
		}
		if s.Reason != "" {
			out.line("          %s", s.Reason)
		}
		if len(s.Labels) > 0 {
			out.line("          labels: %s", strings.Join(s.Labels, ", "))
		}
	}
	if t.Next != nil {
		out.line("more: sallyport sessions show %s --timeline --after %d", t.SessionID, *t.Next)
	}
}
