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
				Servers    []client.Server    `json:"servers"`
				Sessions   []client.Session   `json:"open_sessions"`
			}{Address: address}
			if s.KillSwitch, err = cl.KillStatus(ctx); err != nil {
				return err
			}
			if s.Servers, err = cl.Servers(ctx); err != nil {
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
	return c.switching((*client.Client).Kill, about{
		use: "kill [AGENT]", short: "Stop an agent, or all of them, at once",
		long: `Calls that run are cancelled and their results discarded; new ones are refused. It acts before it is written down, and survives restarts. Without
AGENT it stops everything.`,
		example: "sallyport kill --reason \"strange mails are going out\"\nsallyport kill research-assistant --reason \"asks for passwords\"",
	})
}

func (c *cli) unkill() *cobra.Command {
	return c.switching((*client.Client).Unkill, about{
		use: "unkill [AGENT]", short: "Let an agent, or all of them, go on",
		long:    "Without AGENT it takes the global switch back; agents that were stopped by name stay stopped.",
		example: "sallyport unkill --reason \"false alarm\"\nsallyport unkill research-assistant --reason \"prompt fixed\"",
	})
}

// switching makes a command that changes a kill switch.
func (c *cli) switching(act func(cl *client.Client, ctx context.Context, agent, reason string) (*client.KillStatus, error), a about) *cobra.Command {
	var reason string
	a.args = cobra.MaximumNArgs(1)
	cmd := printing(c, a, func(ctx context.Context, cl *client.Client, args []string) (*client.KillStatus, error) {
		agent := ""
		if len(args) > 0 {
			if agent = args[0]; agent == "" {
				return nil, usagef("the agent's id is empty; leave it out for all agents") // "$AGENT" unset must not mean everything
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
		if err == nil && agent != "" {
			c.warnUndeclared(ctx, cl, agent)
		}
		return k, err
	}, switches)
	reasonFlag(cmd, &reason)
	return cmd
}

// warnUndeclared warns that nobody declared the agent of a switch: the switch holds, but the agent that was meant may go on.
func (c *cli) warnUndeclared(ctx context.Context, cl *client.Client, agent string) {
	all, err := cl.Agents(ctx)
	if err == nil && !slices.ContainsFunc(all, func(a client.Agent) bool { return a.AgentID == agent }) {
		fmt.Fprintf(c.err, "sallyport: no agent %s is declared: see sallyport agents list\n", display.Quote(agent, 80))
	}
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
	act := func(do func(cl *client.Client, ctx context.Context, id, reason string) (*client.Agent, error), a about) *cobra.Command {
		var reason string
		a.args = cobra.ExactArgs(1)
		cmd := printing(c, a, func(ctx context.Context, cl *client.Client, args []string) (*client.Agent, error) {
			return do(cl, ctx, args[0], reason)
		}, (*table).agent)
		reasonFlag(cmd, &reason)
		return cmd
	}
	return group("agents", "See the declared agents, put one aside", list, one,
		act((*client.Client).Quarantine, about{
			use: "quarantine AGENT", short: "Put an agent aside until it is restored",
			long:    "Its calls are refused; its sessions and what they hold stay. To cancel what runs right now there is sallyport kill.",
			example: "sallyport agents quarantine research-assistant --reason \"asks for passwords\"",
		}),
		act((*client.Client).Restore, about{
			use: "restore AGENT", short: "End an agent's quarantine", long: "A kill switch that was pulled stays pulled: sallyport unkill.",
			example: "sallyport agents restore research-assistant --reason \"prompt fixed\"",
		}))
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
