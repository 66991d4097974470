package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sallyport.example/internal/display"
	"sallyport.example/internal/store"
	"sallyport.example/lab/suggest"
)

func (c *cli) flowSuggest() *cobra.Command {
	var recorded fromLog
	var cmd *cobra.Command
	cmd = c.command(about{
		use: "suggest [SERVER…]", short: "Propose labels: from recorded work to confirm, or for all that servers offer to paste",
		long: `With --from-log it looks at recorded work: at the tools that agents called and that have no label yet. Tools of one server that would get the same
labels are one question. Each answer says how many questions people would have been asked with it. Answer with a key and Enter. Nothing is written before
you have seen all entries and said yes; then they are added to the configuration, and the rest of the file stays as it is. --yes asks nothing, and takes
only what the catalogue of labels knows, or what worked in sessions that had read nothing private and nothing from strangers. What only a server says of
its tools always needs your answer. --output json prints the list. With mode: observe, agents work for some days without questions, and the record has
what would have been asked.

Without --from-log it prints entries for "operations:" in sallyport.yaml, made of the tools' names, schemas and descriptions as a gateway has accepted them, with
comments that say why. Nothing is applied. What a server says about itself never makes a tool trusted or a read: every tool is a write with untrusted
results until you say otherwise, and an argument without a role has to be confirmed. Above each entry stands what you accept by pasting it.
With --output json or yaml it prints the same as data, which is not for pasting. Both forms read the data directory, whether a gateway runs on it or not;
without --from-log, ` + envURL + ` names a gateway to ask instead.`,
		example: "sallyport flow suggest --from-log\nsallyport flow suggest --from-log --from 1d -o json\nsallyport flow suggest crm mail", args: cobra.ArbitraryArgs, prints: true,
	}, func(ctx context.Context, args []string) error {
		if recorded.wanted {
			return c.suggestFromLog(ctx, &recorded, args)
		}
		for _, flag := range []string{"from", "yes", "config"} {
			if cmd.Flags().Changed(flag) {
				return usagef("--%s belongs to --from-log", flag)
			}
		}
		tools, unread, err := c.offered(ctx)
		if err != nil {
			return err
		}
		if unread > 0 {
			fmt.Fprintf(c.err, "No person has accepted %d of these definitions, so a session that lists them holds untrusted. With the gateway running, read them: sallyport tools accept --all\n", unread)
		}
		known := slices.Sorted(maps.Keys(tools))
		for _, server := range args {
			if tools[server] == nil {
				return usagef("no server %q has offered tools here: %s", server, strings.Join(known, ", "))
			}
		}
		if len(args) == 0 {
			args = known
		}
		if len(args) == 0 {
			return &found{what: "no server has offered tools yet: name some under upstreams in sallyport.yaml and start the gateway once"}
		}
		var all []suggest.Proposal
		for _, server := range slices.Compact(slices.Sorted(slices.Values(args))) {
			for _, t := range tools[server] {
				all = append(all, suggest.For(server, t))
			}
		}
		if c.output != "table" {
			return c.print(all, nil)
		}
		for line := range strings.Lines(suggest.Write(all)) {
			if _, err := io.WriteString(c.out, display.Terminal(strings.TrimSuffix(line, "\n"), maxProposed)+"\n"); err != nil {
				return err
			}
		}
		return nil
	})
	f := cmd.Flags()
	f.BoolVar(&recorded.wanted, "from-log", false, "propose labels from recorded work, to confirm one by one")
	f.StringVar(&recorded.from, "from", "7d", "with --from-log: not older than, a time or how long ago")
	f.BoolVar(&recorded.yes, "yes", false, "with --from-log: ask nothing, and take what the catalogue or clean work supports")
	f.StringVar(&recorded.config, "config", "sallyport.yaml", "with --from-log: the configuration to add to")
	must(cmd.MarkFlagFilename("config", "yaml", "yml"))
	return cmd
}

// maxProposed bounds a line of a proposal. Texts of servers are cut before. A name longer than a configuration allows is refused.
const maxProposed = 4000

// offered holds the tools of each upstream server that were offered to the gateway, accepted or not.
// unread counts the tools that no person has accepted.
func (c *cli) offered(ctx context.Context) (tools map[string][]suggest.Tool, unread int, err error) {
	tools = map[string][]suggest.Tool{}
	add := func(operation string, definition []byte, nobody bool) {
		if server, name, ok := strings.Cut(operation, "."); ok && server != "comm" && server != "knowledge" {
			if nobody {
				unread++
			}
			tools[server] = append(tools[server], suggest.Tool{Name: name, Definition: definition})
		}
	}
	if os.Getenv(envURL) != "" {
		cl, err := c.reach(adminSide)
		if err != nil {
			return nil, 0, err
		}
		all, err := cl.Tools(ctx)
		for _, t := range all {
			if t.Kind == "tool" {
				add(t.Operation, t.Definition, t.Unread || t.PendingHash != "")
			}
		}
		return tools, unread, err
	}
	r, err := store.OpenReadOnly(c.data)
	if err != nil {
		return nil, 0, unusable(err)
	}
	defer r.Close()
	pins, err := r.Pins(ctx)
	for _, p := range pins {
		if p.Definition != nil || p.PendingDef != nil { // otherwise it only says that the server was seen
			add(p.Operation, p.Definition, p.Unread() || p.Pending != "")
		}
	}
	return tools, unread, err
}
