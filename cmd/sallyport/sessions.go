package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.example/client"
	"sallyport.example/internal/identity"
)

func (c *cli) sessions() *cobra.Command {
	return group("sessions", "See and steer the agents' sessions", c.sessionList(),
		c.sessionShow(),
		c.sessionOpen(), c.sessionNext(),
		c.session(about{use: "phase SESSION planning|execution", short: "Move a session to a phase", example: "sallyport sessions phase sess_01J… execution --reason \"read only work\"", args: cobra.ExactArgs(2), reasoned: true},
			func(ctx context.Context, cl *client.Client, args []string, reason string) (*client.Session, error) {
				if args[1] != "planning" && args[1] != "execution" {
					return nil, usagef("the phase is planning or execution, not %q", args[1])
				}
				return cl.SetPhase(ctx, args[0], args[1], reason)
			}),
		c.sessionSay(),
		c.answerPlan((*client.Client).ApprovePlan, "approve-plan", about{short: "Approve the plan that waits in a session", example: "sallyport sessions approve-plan sess_01J… 8f0c… --reason \"as discussed\""}),
		c.answerPlan((*client.Client).RejectPlan, "reject-plan", about{short: "Reject the plan that waits in a session", example: "sallyport sessions reject-plan sess_01J… 8f0c… --reason \"no mails to customers\"", reasoned: true}),
		c.sessionRelease(),
		c.session(about{use: "close SESSION", short: "End a session for good", example: "sallyport sessions close sess_01J… --reason done", reasoned: true},
			func(ctx context.Context, cl *client.Client, args []string, reason string) (*client.Session, error) {
				return cl.CloseSession(ctx, args[0], reason)
			}),
		c.session(about{use: "remove-files SESSION", short: "Remove the files of a closed session", long: "What an agent fetched and wrote stays in the data directory when its session ends, until it is removed.", example: "sallyport sessions remove-files sess_01J…"},
			func(ctx context.Context, cl *client.Client, args []string, _ string) (*client.Session, error) {
				return cl.RemoveSessionFiles(ctx, args[0])
			}))
}

// session makes a command that does something to a session and shows it.
func (c *cli) session(a about, act func(ctx context.Context, cl *client.Client, args []string, reason string) (*client.Session, error)) *cobra.Command {
	var reason string
	if a.args == nil {
		a.args = cobra.ExactArgs(1)
	}
	cmd := printing(c, a, func(ctx context.Context, cl *client.Client, args []string) (*client.Session, error) {
		return act(ctx, cl, args, reason)
	},
		func(t *table, s *client.Session) { t.session(c, s) })
	if a.reasoned {
		reasonFlag(cmd, &reason)
	}
	return cmd
}

func (c *cli) sessionList() *cobra.Command {
	var query client.SessionQuery
	list := printing(c, about{use: "list", short: "List sessions, newest first", example: "sallyport sessions list --state open"},
		func(ctx context.Context, cl *client.Client, _ []string) (*client.SessionPage, error) {
			if query.State != "" && query.State != "open" && query.State != "closed" {
				return nil, usagef("--state is open or closed, not %q", query.State)
			}
			return cl.Sessions(ctx, query)
		}, func(t *table, page *client.SessionPage) {
			t.row("SESSION", "AGENT", "STATE", "PHASE", "LABELS", "PLAN", "BUDGET LEFT", "OPENED")
			for _, s := range page.Sessions {
				var words []string
				for _, l := range s.Labels {
					words = append(words, l.Label)
				}
				plan := ""
				if s.Plan != nil {
					plan = planWords(s.Plan.State)
				}
				t.row(s.SessionID, s.AgentID, s.State, s.Phase, words, plan, budgetLeft(s), s.OpenedAt)
			}
			for _, s := range page.Aside {
				t.row(s.SessionID, s.AgentID, "DAMAGED", "", "", "", "", "")
			}
			for _, s := range page.Aside {
				t.line("%s", s.Problem)
			}
			if page.Next != "" {
				t.line("more: sallyport sessions list --after %s", page.Next)
			}
		})
	list.Flags().StringVar(&query.State, "state", "", "open or closed (default: both)")
	list.Flags().StringVar(&query.After, "after", "", "go on after this session")
	list.Flags().IntVar(&query.Limit, "limit", 0, "most sessions to list")
	return list
}

func (c *cli) sessionOpen() *cobra.Command {
	var open client.OpenSession
	cmd := printing(c, about{
		use: "open", short: "Open a fresh session for an agent",
		long:    "It prints the session's id and its token, which is shown this once.",
		example: "sallyport sessions open --agent research-assistant --request \"What did Bo write about the offer?\"",
	}, func(ctx context.Context, cl *client.Client, _ []string) (*client.OpenedSession, error) {
		return cl.StartSession(ctx, open)
	},
		func(t *table, s *client.OpenedSession) {
			t.field("session", s.SessionID)
			t.field("token", s.SessionToken)
			t.field("phase", phaseWords(s.Phase))
		})
	needed(cmd, &open.AgentID, "agent", "id of the agent")
	c.completeFlag(cmd, "agent", "AGENT")
	needed(cmd, &open.UserRequest, "request", "what the person asked for, in their words")
	cmd.Flags().StringVar(&open.Requester, "requester", "", "who asked for it")
	cmd.Flags().StringSliceVar(&open.Labels, "label", nil, "a label that the session starts with")
	return cmd
}

func (c *cli) sessionNext() *cobra.Command {
	var agent string
	cmd := printing(c, about{
		use: "next --agent ID", short: "Let an agent's next conversation be a fresh session, once",
		long: `For clients that have the agent's own token. When the agent connects the next time, its session is closed, and a fresh one takes its place: without
labels, words, a plan, or used budget. Calls of the old conversation are refused from then on. End that conversation before you give this
command: whichever connects first gets the fresh session. For a program that you start yourself, use sallyport run.`,
		example: "sallyport sessions next --agent dev",
	}, func(ctx context.Context, cl *client.Client, _ []string) (*client.NextSession, error) {
		return cl.OrderNextSession(ctx, agent)
	}, func(t *table, n *client.NextSession) {
		if n.SessionID == "" {
			t.line("%s has no session of its own yet: its first conversation gets a fresh one.", n.AgentID)
			return
		}
		t.line("The next conversation of %s gets a fresh session in place of %s. Start it now: whichever connects first gets it.", n.AgentID, n.SessionID)
	})
	needed(cmd, &agent, "agent", "id of the agent")
	c.completeFlag(cmd, "agent", "AGENT")
	return cmd
}

func (c *cli) sessionSay() *cobra.Command {
	return printing(c, about{
		use: "say SESSION TEXT", short: "Add to what the person asked for in a session", args: cobra.ExactArgs(2),
		long:    "Arguments of calls are traced to these words as to the request that the session was opened with. They count only if no call of the session is open.",
		example: "sallyport sessions say sess_01J… \"Send it to bo@example.com as well.\"",
	}, func(ctx context.Context, cl *client.Client, args []string) (*client.AddedWords, error) {
		return cl.AddWords(ctx, args[0], args[1])
	}, func(t *table, w *client.AddedWords) {
		if w.Confirms {
			t.line("The words are part of the person's request in %s.", w.SessionID)
			return
		}
		t.line("A call of %s is open: the words are on record, and are not part of the request. Say them again when it has ended.", w.SessionID)
	})
}

func (c *cli) sessionRelease() *cobra.Command {
	var labels []string
	cmd := c.session(about{use: "release SESSION", short: "Take labels off a session, on the record", example: "sallyport sessions release sess_01J… --label internal --reason \"it only read the canteen menu\"", reasoned: true},
		func(ctx context.Context, cl *client.Client, args []string, reason string) (*client.Session, error) {
			return cl.Release(ctx, args[0], labels, reason)
		})
	cmd.Flags().StringSliceVar(&labels, "label", nil, "a label to take off")
	must(cmd.MarkFlagRequired("label"))
	return cmd
}

// answerPlan needs the digest, so that the answer is about the plan that the person saw. Without a digest it shows the plan and how to go on.
func (c *cli) answerPlan(act func(cl *client.Client, ctx context.Context, id, digest, reason string) (*client.Session, error), name string, a about) *cobra.Command {
	var reason string
	a.use, a.args, a.prints = name+" SESSION [DIGEST]", cobra.RangeArgs(1, 2), true
	a.long = "DIGEST names the plan that you looked at. Without it the plan is shown, with its digest, and nothing is answered."
	cmd := c.asPerson(a, func(ctx context.Context, cl *client.Client, args []string) error {
		if len(args) == 2 {
			s, err := act(cl, ctx, args[0], args[1], reason)
			if err != nil {
				return err
			}
			return c.print(s, func(t *table) { t.session(c, s) })
		}
		s, err := cl.Session(ctx, args[0])
		if err != nil {
			return err
		}
		if s.Plan == nil || s.Plan.State != "pending" {
			return &found{what: fmt.Sprintf("no plan waits for an answer in session %s", s.SessionID)}
		}
		whole := true
		if err := c.print(s, func(t *table) { whole = t.session(c, s) }); err != nil {
			return err
		}
		if !whole {
			return &found{what: fmt.Sprintf("what is not shown whole is not answered from here: read sallyport sessions show %s --output json, which has the digest", s.SessionID)}
		}
		return usagef("name the plan by its digest: sallyport sessions %s %s %s", name, s.SessionID, s.Plan.Digest)
	})
	if a.reasoned {
		reasonFlag(cmd, &reason)
	} else {
		cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	}
	return cmd
}

// budgetLeft is the time in operations that a session has left, of what it has in all.
func budgetLeft(s client.Session) string {
	left := time.Duration(s.BudgetLeftMS) * time.Millisecond
	if left > time.Minute {
		return length(left.Truncate(time.Second)) + " of " + length(time.Duration(s.BudgetNS))
	}
	return length(left.Round(100*time.Millisecond)) + " of " + length(time.Duration(s.BudgetNS))
}

// length writes a time as people do, without its zeros: 4h, 4h 30m.
func length(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// session shows a session with all of its plan and tells whether it could.
func (t *table) session(c *cli, s *client.Session) (whole bool) {
	rows, whole := sessionRows(s, c.columns(), t.now)
	for _, row := range rows {
		fmt.Fprintln(t.w, row)
	}
	return whole
}

// sessionRows shows a session and everything that its plan is answered by; the digest only together with all of that.
func sessionRows(s *client.Session, width int, now time.Time) (rows []string, whole bool) {
	t := &sheet{width: max(width, leastWidth), now: now}
	t.field("session", s.SessionID)
	t.field("agent", s.AgentID)
	t.field("requester", s.Requester)
	t.field("request", s.UserRequest)
	t.field("state", s.State)
	t.field("phase", phaseWords(s.Phase))
	t.field("labels", show(labels(s.Labels)))
	t.field("opened", t.when(s.OpenedAt)+" by "+identity.Shown(s.OpenedBy))
	if s.Autonomous {
		t.field("works for", "nobody: it is autonomous, opened by the agent alone")
	}
	t.field("closed", t.when(s.ClosedAt))
	t.field("waits for people", show(s.PendingApprovals))
	t.field("budget left", budgetLeft(*s))
	if s.Next != nil {
		t.field("next conversation", "a fresh session, ordered by "+identity.Shown(s.Next.By)+" "+t.when(s.Next.At))
	}
	if s.Plan == nil {
		return t.rows, true
	}
	t.field("plan", fmt.Sprintf("%s, %s, %d steps", s.Plan.PlanID, planWords(s.Plan.State), len(s.Plan.Steps)))
	t.field("why a person is asked", s.Plan.Why)
	if s.Plan.DecidedBy != "" {
		t.field("decided", t.when(s.Plan.DecidedAt)+" by "+s.Plan.DecidedBy+ownMark(s.Plan.Own)+reasonText(s.Plan.Reason))
	}
	if !t.steps(s.Plan) {
		t.field("", "sallyport sessions show "+s.SessionID+" --output json has all of it, and its digest")
		return t.rows, false
	}
	t.digest(s.Plan.Digest)
	return t.rows, true
}
