package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"sallyport.example/client"
)

// asPerson makes a command that speaks to the people's side.
func (c *cli) asPerson(a about, run func(ctx context.Context, cl *client.Client, args []string) error) *cobra.Command {
	return c.command(a, func(ctx context.Context, args []string) error {
		cl, err := c.reach(adminSide)
		if err != nil {
			return err
		}
		return run(ctx, cl, args)
	})
}

func (c *cli) status() *cobra.Command {
	return c.asPerson(about{use: "status", short: "Show how the running gateway is", example: "sallyport status", prints: true},
		func(ctx context.Context, cl *client.Client, _ []string) error {
			address, err := c.address(adminSide)
			if err != nil {
				return err
			}
			s := struct {
				Address    string             `json:"address"`
				Ready      bool               `json:"ready"`
				Problem    string             `json:"problem,omitempty"`
				KillSwitch *client.KillStatus `json:"kill_switch"`
				Servers    []client.Server    `json:"servers"`
				Sessions   []client.Session   `json:"open_sessions"`
			}{Address: address}
			if s.KillSwitch, err = cl.KillStatus(ctx); err != nil {
				return err
			}
			if s.Servers, err = cl.Servers(ctx); err != nil {
				return err
			}
			notReady := cl.Ready(ctx)
			if s.Ready = notReady == nil; !s.Ready {
				s.Problem = notReady.Error()
			}
			page, err := cl.Sessions(ctx, client.SessionQuery{State: "open"})
			var p *client.Problem
			switch {
			case err == nil:
				s.Sessions = page.Sessions
			case s.Ready || !errors.As(err, &p): // else the store is away, which has been said
				return err
			}
			if err := c.print(s, func(t *table) {
				t.field("console", s.Address)
				state := "ready"
				if !s.Ready {
					state = "not ready: " + s.Problem
				}
				t.field("gateway", state)
				t.field("sessions", fmt.Sprintf("%d open", len(s.Sessions)))
				switches(t, s.KillSwitch)
				servers(t, s.Servers)
			}); err != nil {
				return err
			}
			if !s.Ready {
				return &found{said: true}
			}
			return nil
		})
}

func servers(t *table, all []client.Server) {
	if len(all) == 0 {
		t.field("servers", "none")
		return
	}
	t.line("")
	t.row("SERVER", "STATE", "SINCE", "SANDBOX", "TOOLS", "RESTARTS", "LAST ERROR")
	for _, s := range all {
		t.row(s.ID, s.State, s.Since, cmp.Or(s.Sandbox, "-"), fmt.Sprintf("%d of %d usable", s.Usable, s.Tools), s.Restarts, s.LastError)
	}
	for _, s := range all {
		for _, why := range s.Unusable {
			t.line("%s: %s", s.ID, why)
		}
	}
}

func switches(t *table, k *client.KillStatus) {
	state := func(s client.Switch) string {
		if !s.Active {
			return "off"
		}
		text := "ACTIVE since " + show(s.Since) + " by " + s.By
		if s.Reason != "" {
			text += ": " + s.Reason
		}
		if !s.Durable {
			text += " (not yet in the store; it acts all the same)"
		}
		return text
	}
	t.field("kill switch", state(k.Global))
	for _, id := range slices.Sorted(keys(k.Agents)) {
		t.field("  "+id, state(k.Agents[id]))
	}
}

func keys[V any](m map[string]V) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func (c *cli) kill() *cobra.Command {
	var reason string
	cmd := c.asPerson(about{
		use: "kill [AGENT]", short: "Stop an agent, or all of them, at once",
		long: `Calls that run are cancelled and their results discarded; new ones are refused. It acts before it is written down, and survives restarts. Without
AGENT it stops everything.`,
		example: "sallyport kill --reason \"strange mails are going out\"\nsallyport kill research-assistant --reason \"asks for passwords\"",
		args:    cobra.MaximumNArgs(1), prints: true,
	}, func(ctx context.Context, cl *client.Client, args []string) error {
		return c.flip(ctx, cl, args, func(agent string) (*client.KillStatus, error) { return cl.Kill(ctx, agent, reason) })
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	must(cmd.MarkFlagRequired("reason"))
	return cmd
}

func (c *cli) unkill() *cobra.Command {
	var reason string
	cmd := c.asPerson(about{
		use: "unkill [AGENT]", short: "Let an agent, or all of them, go on",
		long:    "Without AGENT it takes the global switch back; agents that were stopped by name stay stopped.",
		example: "sallyport unkill --reason \"false alarm\"\nsallyport unkill research-assistant --reason \"prompt fixed\"",
		args:    cobra.MaximumNArgs(1), prints: true,
	}, func(ctx context.Context, cl *client.Client, args []string) error {
		return c.flip(ctx, cl, args, func(agent string) (*client.KillStatus, error) { return cl.Unkill(ctx, agent, reason) })
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	must(cmd.MarkFlagRequired("reason"))
	return cmd
}

func (c *cli) flip(ctx context.Context, cl *client.Client, args []string, act func(agent string) (*client.KillStatus, error)) error {
	agent := ""
	if len(args) > 0 {
		if agent = args[0]; agent == "" {
			return usagef("the agent's id is empty; leave it out for all agents") // "$AGENT" unset must not mean everything
		}
	}
	k, err := act(agent)
	if err != nil {
		return err
	}
	// It acts already; give the store a moment to have it too, so that what is printed is not alarming for nothing.
	for range 10 {
		sw := k.Global
		if agent != "" {
			sw = k.Agents[agent]
		}
		if sw.Durable {
			break
		}
		select {
		case <-ctx.Done():
			return c.print(k, func(t *table) { switches(t, k) })
		case <-time.After(50 * time.Millisecond):
		}
		now, err := cl.KillStatus(ctx)
		if err != nil {
			break // the switching itself was answered
		}
		k = now
	}
	return c.print(k, func(t *table) { switches(t, k) })
}

func (c *cli) sessions() *cobra.Command {
	var query client.SessionQuery
	list := c.asPerson(about{use: "list", short: "List sessions, newest first", example: "sallyport sessions list --state open", prints: true},
		func(ctx context.Context, cl *client.Client, _ []string) error {
			if query.State != "" && query.State != "open" && query.State != "closed" {
				return usagef("--state is open or closed, not %q", query.State)
			}
			page, err := cl.Sessions(ctx, query)
			if err != nil {
				return err
			}
			return c.print(page, func(t *table) {
				t.row("SESSION", "AGENT", "STATE", "PHASE", "LABELS", "PLAN", "OPENED")
				for _, s := range page.Sessions {
					var words []string
					for _, l := range s.Labels {
						words = append(words, l.Label)
					}
					plan := ""
					if s.Plan != nil {
						plan = s.Plan.State
					}
					t.row(s.SessionID, s.AgentID, s.State, s.Phase, words, plan, s.OpenedAt)
				}
				if page.Next != "" {
					t.line("more: sallyport sessions list --after %s", page.Next)
				}
			})
		})
	list.Flags().StringVar(&query.State, "state", "", "open or closed (default: both)")
	list.Flags().StringVar(&query.After, "after", "", "go on after this session")
	list.Flags().IntVar(&query.Limit, "limit", 0, "most sessions to list")

	show := c.asPerson(about{use: "show SESSION", short: "Show a session with its labels and its plan", example: "sallyport sessions show sess_01J…", args: cobra.ExactArgs(1), prints: true},
		func(ctx context.Context, cl *client.Client, args []string) error {
			s, err := cl.Session(ctx, args[0])
			if err != nil {
				return err
			}
			return c.session(s)
		})

	var open client.OpenSession
	opened := c.asPerson(about{
		use: "open", short: "Open a fresh session for an agent",
		long:    "It prints the session's id and its token, which is shown this once.",
		example: "sallyport sessions open --agent research-assistant --request \"What did Bo write about the offer?\"", prints: true,
	}, func(ctx context.Context, cl *client.Client, _ []string) error {
		s, err := cl.StartSession(ctx, open)
		if err != nil {
			return err
		}
		return c.print(s, func(t *table) {
			t.field("session", s.SessionID)
			t.field("token", s.SessionToken)
			t.field("phase", s.Phase)
		})
	})
	opened.Flags().StringVar(&open.AgentID, "agent", "", "id of the agent")
	opened.Flags().StringVar(&open.UserRequest, "request", "", "what the person asked for, in their words")
	opened.Flags().StringVar(&open.Requester, "requester", "", "who asked for it")
	opened.Flags().StringSliceVar(&open.Labels, "label", nil, "a label that the session starts with")
	must(opened.MarkFlagRequired("agent"))
	must(opened.MarkFlagRequired("request"))

	var phaseReason string
	phase := c.asPerson(about{use: "phase SESSION planning|execution", short: "Move a session to a phase", example: "sallyport sessions phase sess_01J… execution --reason \"read only work\"", args: cobra.ExactArgs(2), prints: true},
		func(ctx context.Context, cl *client.Client, args []string) error {
			return c.acted(cl.SetPhase(ctx, args[0], args[1], phaseReason))
		})
	reasonFlag(phase, &phaseReason)

	var labels []string
	var releaseReason string
	release := c.asPerson(about{use: "release SESSION", short: "Take labels off a session, on the record", example: "sallyport sessions release sess_01J… --label internal --reason \"it only read the canteen menu\"", args: cobra.ExactArgs(1), prints: true},
		func(ctx context.Context, cl *client.Client, args []string) error {
			return c.acted(cl.Release(ctx, args[0], labels, releaseReason))
		})
	release.Flags().StringSliceVar(&labels, "label", nil, "a label to take off")
	must(release.MarkFlagRequired("label"))
	reasonFlag(release, &releaseReason)

	var closeReason string
	closed := c.asPerson(about{use: "close SESSION", short: "End a session for good", example: "sallyport sessions close sess_01J… --reason done", args: cobra.ExactArgs(1), prints: true},
		func(ctx context.Context, cl *client.Client, args []string) error {
			return c.acted(cl.CloseSession(ctx, args[0], closeReason))
		})
	reasonFlag(closed, &closeReason)
	removed := c.asPerson(about{use: "remove-files SESSION", short: "Remove the files of a closed session", long: "What an agent fetched and wrote stays in the data directory when its session ends, until it is removed.",
		example: "sallyport sessions remove-files sess_01J…", args: cobra.ExactArgs(1), prints: true},
		func(ctx context.Context, cl *client.Client, args []string) error {
			return c.acted(cl.RemoveSessionFiles(ctx, args[0]))
		})

	return group("sessions", "See and steer the agents' sessions", list, show, opened, phase,
		c.answerPlan("approve-plan", "Approve the plan that waits in a session", "sallyport sessions approve-plan sess_01J… 8f0c… --reason \"as discussed\"", false,
			func(ctx context.Context, cl *client.Client, id, digest, reason string) (*client.Session, error) {
				return cl.ApprovePlan(ctx, id, digest, reason)
			}),
		c.answerPlan("reject-plan", "Reject the plan that waits in a session", "sallyport sessions reject-plan sess_01J… 8f0c… --reason \"no mails to customers\"", true,
			func(ctx context.Context, cl *client.Client, id, digest, reason string) (*client.Session, error) {
				return cl.RejectPlan(ctx, id, digest, reason)
			}),
		release, closed, removed)
}

func reasonFlag(cmd *cobra.Command, reason *string) {
	cmd.Flags().StringVar(reason, "reason", "", "why, for the record")
	must(cmd.MarkFlagRequired("reason"))
}

// answerPlan needs the digest, so that what is answered is what was looked at. Without it, it shows the plan and how to go on.
func (c *cli) answerPlan(name, short, example string, reasoned bool, act func(ctx context.Context, cl *client.Client, id, digest, reason string) (*client.Session, error)) *cobra.Command {
	var reason string
	cmd := c.asPerson(about{
		use: name + " SESSION [DIGEST]", short: short,
		long:    "DIGEST names the plan that you looked at. Without it the plan is shown, with its digest, and nothing is answered.",
		example: example, args: cobra.RangeArgs(1, 2), prints: true,
	}, func(ctx context.Context, cl *client.Client, args []string) error {
		if len(args) == 2 {
			return c.acted(act(ctx, cl, args[0], args[1], reason))
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
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	if reasoned {
		must(cmd.MarkFlagRequired("reason"))
	}
	return cmd
}

func (c *cli) acted(s *client.Session, err error) error {
	if err != nil {
		return err
	}
	return c.session(s)
}

func (c *cli) session(s *client.Session) error {
	return c.print(s, func(t *table) { t.session(c, s) })
}

// session shows a session with all of its plan and tells whether it could.
func (t *table) session(c *cli, s *client.Session) (whole bool) {
	rows, whole := sessionRows(s, c.columns())
	for _, row := range rows {
		fmt.Fprintln(t.w, row)
	}
	return whole
}

// sessionRows shows a session and everything that its plan is answered by; the digest only together with all of that.
func sessionRows(s *client.Session, width int) (rows []string, whole bool) {
	t := &sheet{width: max(width, leastWidth)}
	t.field("session", s.SessionID)
	t.field("agent", s.AgentID)
	t.field("requester", s.Requester)
	t.field("request", s.UserRequest)
	t.field("state", s.State)
	t.field("phase", s.Phase)
	t.field("labels", show(labels(s.Labels)))
	t.field("opened", show(s.OpenedAt)+" by "+s.OpenedBy)
	t.field("closed", show(s.ClosedAt))
	t.field("waits for people", show(s.PendingApprovals))
	t.field("budget left", fmt.Sprintf("%.1f s", float64(s.BudgetLeftMS)/1000))
	if s.Plan == nil {
		return t.rows, true
	}
	t.field("plan", fmt.Sprintf("%s, %s, %d steps", s.Plan.PlanID, s.Plan.State, len(s.Plan.Steps)))
	if s.Plan.DecidedBy != "" {
		t.field("decided", show(s.Plan.DecidedAt)+" by "+s.Plan.DecidedBy+reasonText(s.Plan.Reason))
	}
	if !t.steps(s.Plan) {
		t.field("", "sallyport sessions show "+s.SessionID+" --output json has all of it, and its digest")
		return t.rows, false
	}
	t.digest(s.Plan.Digest)
	return t.rows, true
}

func reasonText(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func (c *cli) agents() *cobra.Command {
	list := c.asPerson(about{use: "list", short: "List the declared agents", example: "sallyport agents list", prints: true},
		func(ctx context.Context, cl *client.Client, _ []string) error {
			all, err := cl.Agents(ctx)
			if err != nil {
				return err
			}
			return c.print(all, func(t *table) {
				t.row("AGENT", "NAME", "VERSION", "MODE", "STANDING", "KILLED", "PURPOSE")
				for _, a := range all {
					t.row(a.AgentID, a.Name, a.Version, a.Mode, a.Standing, a.Killed, a.Purpose)
				}
			})
		})
	one := c.asPerson(about{use: "show AGENT", short: "Show an agent and its declaration", example: "sallyport agents show research-assistant --output yaml", args: cobra.ExactArgs(1), prints: true},
		func(ctx context.Context, cl *client.Client, args []string) error {
			a, err := cl.Agent(ctx, args[0])
			if err != nil {
				return err
			}
			return c.agent(a)
		})
	act := func(use, short, long, example string, do func(ctx context.Context, cl *client.Client, id, reason string) (*client.Agent, error)) *cobra.Command {
		var reason string
		cmd := c.asPerson(about{use: use, short: short, long: long, example: example, args: cobra.ExactArgs(1), prints: true},
			func(ctx context.Context, cl *client.Client, args []string) error {
				a, err := do(ctx, cl, args[0], reason)
				if err != nil {
					return err
				}
				return c.agent(a)
			})
		reasonFlag(cmd, &reason)
		return cmd
	}
	return group("agents", "See the declared agents, put one aside", list, one,
		act("quarantine AGENT", "Put an agent aside until it is restored", "Its calls are refused; its sessions and what they hold stay. To cancel what runs right now there is sallyport kill.",
			"sallyport agents quarantine research-assistant --reason \"asks for passwords\"",
			func(ctx context.Context, cl *client.Client, id, reason string) (*client.Agent, error) {
				return cl.Quarantine(ctx, id, reason)
			}),
		act("restore AGENT", "End an agent's quarantine", "A kill switch that was pulled stays pulled: sallyport unkill.", "sallyport agents restore research-assistant --reason \"prompt fixed\"",
			func(ctx context.Context, cl *client.Client, id, reason string) (*client.Agent, error) {
				return cl.Restore(ctx, id, reason)
			}))
}

func (c *cli) agent(a *client.Agent) error {
	return c.print(a, func(t *table) {
		t.field("agent", a.AgentID)
		t.field("name", a.Name)
		t.field("version", a.Version)
		t.field("purpose", a.Purpose)
		t.field("mode", a.Mode)
		t.field("starts in", a.StartPhase)
		t.field("sessions", a.Sessions)
		t.field("standing", a.Standing)
		if q := a.Quarantine; q != nil {
			t.field("put aside", show(q.Since)+" by "+q.By+reasonText(q.Reason))
		}
		t.field("killed", a.Killed)
		t.field("digest", a.Digest)
		t.line("the whole declaration: sallyport agents show %s --output yaml", a.AgentID)
	})
}
