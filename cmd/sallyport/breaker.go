package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"sallyport.example/client"
)

func (c *cli) breaker() *cobra.Command {
	list := printing(c, about{
		use: "list", short: "The circuit breakers that are open or count failures", example: "sallyport breaker list",
		long: `A circuit breaker counts failures in a row: of a server, of an agent at a server (AGENT@SERVER), and of an agent (agent:AGENT). At five it opens and
refuses calls; after 30 seconds one call tries, and a success closes it.`, args: cobra.NoArgs,
	}, func(ctx context.Context, cl *client.Client, _ []string) ([]client.Breaker, error) {
		return cl.Breakers(ctx)
	}, breakers)
	var reason string
	reset := printing(c, about{
		use: "reset NAME", short: "Close a circuit breaker, so that calls go through again", args: cobra.ExactArgs(1),
		example: "sallyport breaker reset crm --reason \"the server is mended\"\nsallyport breaker reset agent:research-assistant --reason \"prompt fixed\"",
	}, func(ctx context.Context, cl *client.Client, args []string) ([]client.Breaker, error) {
		return cl.ResetBreaker(ctx, args[0], reason)
	}, breakers)
	reasonFlag(reset, &reason)
	test := printing(c, about{
		use: "test AGENT", short: "Prove that an agent's circuit breaker refuses its calls", args: cobra.ExactArgs(1), example: "sallyport breaker test research-assistant",
		long: `It opens the agent's circuit breaker, has a call of the agent judged, and closes it again, all of it on record. Calls that the agent
makes in that moment are refused. Exits with 1 where the circuit breaker did not refuse.`,
	}, func(ctx context.Context, cl *client.Client, args []string) (*client.BreakerTest, error) {
		out, err := cl.TestBreaker(ctx, args[0])
		if err == nil && !out.Refused {
			err = fmt.Errorf("the circuit breaker of %s was open and refused nothing", args[0])
		}
		return out, err
	}, func(t *table, out *client.BreakerTest) {
		if out.Operation == "" {
			t.line("While the circuit breaker of %s was open, it let nothing through. It is closed again. The agent can call no operation just now, so no call was judged.", out.Agent)
			return
		}
		t.line("While the circuit breaker of %s was open, a call of %s was refused. It is closed again.", out.Agent, out.Operation)
	})
	return group("breaker", "See, reset and test circuit breakers", list, reset, test)
}

func breakers(t *table, all []client.Breaker) {
	if len(all) == 0 {
		t.line("No circuit breaker is open or counts failures.")
		return
	}
	t.row("NAME", "STATE", "FAILURES", "SINCE", "RETRY AFTER", "CAUSE")
	for _, b := range all {
		var since, retry time.Time
		if b.Since != nil {
			since, retry = *b.Since, *b.RetryAfter
		}
		t.row(b.Name, b.State, fmt.Sprint(b.Failures), since, retry, b.Cause)
	}
}
