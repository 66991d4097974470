package main

import (
	"context"

	"github.com/spf13/cobra"

	"sallyport.example/client"
)

func (c *cli) stored() *cobra.Command {
	var labels []string
	var reason string
	release := printing(c, about{
		use: "release ID", short: "Take labels off stored data, on the record", args: cobra.ExactArgs(1), reasoned: true,
		long: `ID is one of "sallyport stored list". Whoever reads the data then gets no such label from it. Sessions that have read
it keep theirs, and the next write of a session that holds the label brings it back. It takes the role operator.`,
		example: "sallyport stored release mark_0c2f… --label internal --reason \"the note has only public prices\"",
	}, func(ctx context.Context, cl *client.Client, args []string) (*client.StoredLabels, error) {
		return cl.ReleaseStored(ctx, args[0], labels, reason)
	}, func(t *table, s *client.StoredLabels) {
		t.field("id", s.ID)
		t.field("labels left", labelNames(s.Labels))
	})
	reasonFlag(release, &reason)
	release.Flags().StringSliceVar(&labels, "label", nil, "a label to take off")
	must(release.MarkFlagRequired("label"))
	return group("stored", "See and release the labels of what was written to servers",
		printing(c, about{use: "list", short: "List the labels of what was written to servers",
			long: `A session that holds confidentiality labels gives them to what it writes to a server: to single records where the
operation has an id_kind, else to all that the server gives back. Whoever reads it has them, until a person takes them off.
docs/flow.md, "Stored data", has the rules.`,
			example: "sallyport stored list\nsallyport stored list -o json"},
			func(ctx context.Context, cl *client.Client, _ []string) (*client.StoredList, error) {
				return cl.Stored(ctx)
			},
			func(t *table, list *client.StoredList) {
				t.row("ID", "SERVER", "KIND", "RECORD", "LABELS", "WRITTEN BY", "SINCE")
				for _, s := range list.Stored {
					by := ""
					if len(s.Labels) > 0 {
						by = s.Labels[0].Operation + " " + s.Labels[0].CallID
					}
					t.row(s.ID, s.Server, orAll(s.Kind), orAll(s.Record), labelNames(s.Labels), by, s.Since)
				}
			}),
		release)
}

func orAll(name string) string {
	if name == "" {
		return "(all)"
	}
	return name
}

func labelNames(labels []client.Held) []string {
	words := []string{}
	for _, l := range labels {
		words = append(words, l.Label)
	}
	return words
}
