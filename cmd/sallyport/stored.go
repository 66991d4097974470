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
		long:    "Sessions that have read the data keep their labels.",
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
		printing(c, about{use: "list", short: "List the labels of what was written to servers", example: "sallyport stored list"},
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
