package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"sallyport.example/internal/daemon"
)

func (c *cli) upstreams() *cobra.Command {
	var config string
	show := func(ctx context.Context, fetch bool, names []string) error {
		cfg, err := daemon.LoadConfig(config)
		if err != nil {
			return unusable(err)
		}
		all, err := daemon.Packages(ctx, cfg, c.data, func(server string) {
			fmt.Fprintf(c.err, "fetching the package of %s; this may take a minute\n", server)
		}, fetch, names...)
		if err != nil {
			return err
		}
		return c.print(all, func(t *table) {
			t.row("SERVER", "PACKAGE", "REQUESTED", "KEPT", "FETCHED", "INTEGRITY")
			for _, p := range all {
				t.row(p.Server, p.Package, p.Requested, p.Version, p.Fetched, p.Integrity)
			}
		})
	}
	list := c.command(about{
		use: "list", short: "List servers that npx would run, and which version of each package is kept",
		long:    "The gateway fetches such a package once, without running its scripts, and starts the server from it from then on.",
		example: "sallyport upstreams list", prints: true,
	}, func(ctx context.Context, _ []string) error { return show(ctx, false, nil) })
	fetch := c.command(about{
		use: "fetch [SERVER…]", short: "Fetch the packages of servers, anew where one is kept",
		long: `Without a name: of all servers that npx would run. No script of a package is run. A running server goes on with the version that it was
started from; the next start takes the new one.`,
		example: "sallyport upstreams fetch files", prints: true, args: cobra.ArbitraryArgs,
	}, func(ctx context.Context, names []string) error { return show(ctx, true, names) })
	for _, cmd := range []*cobra.Command{list, fetch} {
		cmd.Flags().StringVar(&config, "config", "", "the configuration `FILE` (default sallyport.yaml, if it is there)")
	}
	return group("upstreams", "See and fetch the packages of servers", list, fetch)
}
