package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"sallyport.example/client"
	"sallyport.example/internal/display"
	"sallyport.example/internal/sentence"
)

// asPerson makes a command that speaks to the people's side.
func (c *cli) asPerson(a about, run func(ctx context.Context, cl *client.Client, args []string) error) *cobra.Command {
	return c.speaking(adminSide, a, run)
}

// speaking makes a command that speaks to one side of the gateway.
func (c *cli) speaking(to side, a about, run func(ctx context.Context, cl *client.Client, args []string) error) *cobra.Command {
	return c.command(a, func(ctx context.Context, args []string) error {
		cl, err := c.reach(to)
		if err != nil {
			return err
		}
		return run(ctx, cl, args)
	})
}

// printing makes a command that prints what the people's side answers.
func printing[T any](c *cli, a about, ask func(ctx context.Context, cl *client.Client, args []string) (T, error), rows func(t *table, v T)) *cobra.Command {
	a.prints = true
	return c.asPerson(a, func(ctx context.Context, cl *client.Client, args []string) error {
		v, err := ask(ctx, cl, args)
		if err != nil {
			return err
		}
		return c.print(v, func(t *table) { rows(t, v) })
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
				Anchor     *client.Anchor     `json:"anchor"`
				Servers    []client.Server    `json:"servers"`
				Sessions   []client.Session   `json:"open_sessions"`
			}{Address: address}
			if s.KillSwitch, err = cl.KillStatus(ctx); err != nil {
				return err
			}
			if s.Servers, err = cl.Servers(ctx); err != nil {
				return err
			}
			if s.Anchor, err = cl.Anchor(ctx); err != nil {
				return err
			}
			state := "ready"
			if notReady := cl.Ready(ctx); notReady != nil {
				s.Problem = notReady.Error()
				state = "not ready: " + s.Problem
			}
			s.Ready = s.Problem == ""
			page, err := cl.Sessions(ctx, client.SessionQuery{State: "open"})
			var p *client.Problem
			switch {
			case err == nil:
				s.Sessions = page.Sessions
			case s.Ready || !errors.As(err, &p): // else the store is away, which has been printed
				return err
			}
			return c.judged(s, s.Ready, func(t *table) {
				t.field("console", s.Address)
				t.field("gateway", state)
				t.field("sessions", fmt.Sprintf("%d open", len(s.Sessions)))
				t.field("anchor", s.Anchor.Text)
				switches(t, s.KillSwitch)
				servers(t, s.Servers)
			})
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
		text := "ACTIVE since " + show(s.Since) + " by " + s.By + reasonText(s.Reason)
		if !s.Durable {
			text += " (not yet in the store; it acts all the same)"
		}
		return text
	}
	t.field("kill switch", state(k.Global))
	for _, id := range slices.Sorted(maps.Keys(k.Agents)) {
		t.field("  "+id, state(k.Agents[id]))
	}
}

func (c *cli) kill() *cobra.Command {
	return c.switching((*client.Client).Kill, true, about{
		use: "kill [AGENT]", short: "Stop an agent, or all of them, at once",
		long: `Calls that run are cancelled and their results discarded; new ones are refused. It acts before it is written down, and survives restarts. Without
AGENT it stops everything. An AGENT that nobody declared needs --yes.`,
		example: "sallyport kill --reason \"strange mails are going out\"\nsallyport kill research-assistant --reason \"asks for passwords\"",
	})
}

func (c *cli) unkill() *cobra.Command {
	return c.switching((*client.Client).Unkill, false, about{
		use: "unkill [AGENT]", short: "Let an agent, or all of them, go on",
		long:    "Without AGENT it takes the global switch back; agents that were stopped by name stay stopped.",
		example: "sallyport unkill --reason \"false alarm\"\nsallyport unkill research-assistant --reason \"prompt fixed\"",
	})
}

// switching makes a command that changes a kill switch. stops: it stops an agent, which has to be declared.
func (c *cli) switching(act func(cl *client.Client, ctx context.Context, agent, reason string) (*client.KillStatus, error), stops bool, a about) *cobra.Command {
	var reason string
	var yes bool
	a.args = cobra.MaximumNArgs(1)
	cmd := printing(c, a, func(ctx context.Context, cl *client.Client, args []string) (*client.KillStatus, error) {
		agent := ""
		if len(args) > 0 {
			if agent = args[0]; agent == "" {
				return nil, usagef("the agent's id is empty; leave it out for all agents") // "$AGENT" unset must not mean everything
			}
		}
		if agent != "" && stops {
			if err := c.declared(ctx, cl, agent, yes); err != nil {
				return nil, err
			}
		}
		k, err := act(cl, ctx, agent, reason)
		// It acts already; give the store a moment to have it too, so that what is printed is not alarming for nothing.
		for range 10 {
			if err != nil || agent == "" && k.Global.Durable || agent != "" && k.Agents[agent].Durable {
				break
			}
			pause(ctx, 50*time.Millisecond)
			now, failed := cl.KillStatus(ctx)
			if failed != nil {
				break // the switching itself was answered
			}
			k = now
		}
		return k, err
	}, switches)
	reasonFlag(cmd, &reason)
	if stops {
		yesFlag(cmd, &yes)
	}
	return cmd
}

// declared refuses an id that no declared agent has, with those that are near, unless the person said yes to it: the agent that was meant would
// go on. Where the declarations can't be asked for, it says so and lets the command act, since stopping waits for nothing.
func (c *cli) declared(ctx context.Context, cl *client.Client, agent string, yes bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	all, err := cl.Agents(ctx)
	var ids []string
	for _, a := range all {
		ids = append(ids, a.AgentID)
	}
	switch near := sentence.Near(agent, ids); {
	case slices.Contains(ids, agent):
		return nil
	case err != nil:
		fmt.Fprintf(c.err, "sallyport: whether %s is declared can't be told now; it is stopped by that id\n", display.Quote(agent, 80))
		return nil
	case yes:
		fmt.Fprintf(c.err, "sallyport: no agent %s is declared: see sallyport agents list\n", display.Quote(agent, 80))
		return nil
	case near != nil:
		return &found{what: fmt.Sprintf("no agent %s is declared, so nothing was stopped; near it: %s. --yes goes on with this id", display.Quote(agent, 80), sentence.Names(near))}
	}
	return &found{what: fmt.Sprintf("no agent %s is declared, so nothing was stopped: see sallyport agents list. --yes goes on with this id", display.Quote(agent, 80))}
}

func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVar(yes, "yes", false, "go on although no agent of this id is declared")
}

func reasonFlag(cmd *cobra.Command, reason *string) {
	needed(cmd, reason, "reason", "why, for the record")
}

// needed adds a flag that the command can't do without.
func needed(cmd *cobra.Command, value *string, name, usage string) {
	cmd.Flags().StringVar(value, name, "", usage)
	must(cmd.MarkFlagRequired(name))
}

func reasonText(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func (c *cli) agents() *cobra.Command {
	list := printing(c, about{use: "list", short: "List the declared agents", example: "sallyport agents list"},
		func(ctx context.Context, cl *client.Client, _ []string) ([]client.Agent, error) {
			return cl.Agents(ctx)
		},
		func(t *table, all []client.Agent) {
			t.row("AGENT", "NAME", "VERSION", "MODE", "STANDING", "KILLED", "PURPOSE")
			for _, a := range all {
				t.row(a.AgentID, a.Name, a.Version, a.Mode, a.Standing, a.Killed, a.Purpose)
			}
		})
	one := printing(c, about{use: "show AGENT", short: "Show an agent and its declaration", example: "sallyport agents show research-assistant --output yaml", args: cobra.ExactArgs(1)},
		func(ctx context.Context, cl *client.Client, args []string) (*client.Agent, error) {
			return cl.Agent(ctx, args[0])
		}, (*table).agent)
	var reason string
	var yes bool
	aside := printing(c, about{
		use: "quarantine AGENT", short: "Put an agent aside until it is restored", args: cobra.ExactArgs(1),
		long: `Its calls are refused; its sessions and what they hold stay. To cancel what runs right now there is sallyport kill. An AGENT that nobody declared
needs --yes.`,
		example: "sallyport agents quarantine research-assistant --reason \"asks for passwords\"",
	}, func(ctx context.Context, cl *client.Client, args []string) (*client.Agent, error) {
		if err := c.declared(ctx, cl, args[0], yes); err != nil {
			return nil, err
		}
		if yes {
			return cl.QuarantineUndeclared(ctx, args[0], reason)
		}
		return cl.Quarantine(ctx, args[0], reason)
	}, (*table).agent)
	reasonFlag(aside, &reason)
	yesFlag(aside, &yes)
	restore := printing(c, about{
		use: "restore AGENT", short: "End an agent's quarantine", long: "A kill switch that was pulled stays pulled: sallyport unkill.",
		example: "sallyport agents restore research-assistant --reason \"prompt fixed\"", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, cl *client.Client, args []string) (*client.Agent, error) {
		return cl.Restore(ctx, args[0], reason)
	}, (*table).agent)
	reasonFlag(restore, &reason)
	return group("agents", "See the declared agents, put one aside", list, one, aside, restore)
}

func (t *table) agent(a *client.Agent) {
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
}
