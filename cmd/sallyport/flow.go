package main

import (
	"context"

	"github.com/spf13/cobra"
)

// flowCommand is what there is to ask about the flow rules without a running gateway.
func flowCommand(c *cli) *cobra.Command {
	return group("flow", "Ask what the flow rules make of recorded work", c.flowEval())
}

func (c *cli) flowEval() *cobra.Command {
	cmd := c.command(about{
		use: "eval TRACE…", short: "Replay recorded work, and count what would be asked",
		example: `sallyport flow eval --labels labels.json banking.json travel.json`,
		args:    cobra.MinimumNArgs(1), prints: true, local: true,
	}, func(context.Context, []string) error {
		return usagef("flow eval can't replay yet")
	})
	return cmd
}
