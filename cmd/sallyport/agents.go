package main

import (
	"context"

	"github.com/spf13/cobra"

	"sallyport.example/client"
)

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
