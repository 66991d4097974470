package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"sallyport.example/internal/daemon"
)

func (c *cli) doctor() *cobra.Command {
	var config string
	cmd := c.command(about{
		use: "doctor", short: "Look at an installation and say what is missing",
		long: `Looks at the configuration, the data directory, the sandbox that comm.exec and the servers need, the databases that the configuration names,
and whether a gateway answers. For each server that the gateway starts it proves the sandbox: from inside it tries to reach the gateway's keys, files
and processes. Where no gateway runs, it also starts each server in its sandbox, so that you see what would break before it does. It fetches npm
packages and makes servers' folders, as a start would, and changes nothing else. What failed makes it exit with 1, and says what to do.`,
		example: "sallyport doctor\nsallyport doctor --config sallyport.yaml --output json", prints: true,
	}, func(ctx context.Context, _ []string) error {
		checks := daemon.Doctor(ctx, config, c.data)
		failed := func(check daemon.Check) bool { return check.State == "failed" }
		return c.judged(checks, !slices.ContainsFunc(checks, failed), func(t *table) {
			for _, check := range checks {
				t.line("%s\t%s\t%s", check.State, check.Name, check.Detail)
				if check.Remedy != "" && check.State != "ok" {
					t.line("\t\t%s", "→ "+check.Remedy)
				}
			}
		})
	})
	cmd.Flags().StringVar(&config, "config", "", "the configuration `FILE` (default sallyport.yaml, if it is there)")
	return cmd
}
