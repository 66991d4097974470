package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"sallyport/internal/replay"
)

// flowCommand is what there is to ask about the flow rules without a running gateway.
func flowCommand(c *cli) *cobra.Command {
	return group("flow", "Ask what the flow rules make of recorded work, and have labels proposed", c.flowEval(), c.flowSuggest())
}

func (c *cli) flowEval() *cobra.Command {
	var labels string
	var free bool
	cmd := c.command(about{
		use: "eval TRACE…", short: "Replay recorded work, and count what would be asked",
		long: `Each TRACE holds recorded calls and results. They are judged anew by the rules that the gateway enforces, under the labels of --labels: how
many tasks pass with no question, how many questions a task brings, and how many attacks would run with nobody asked. Nothing is called.
With --output json it lists the tasks and attacks behind the figures, and what nothing vouched for.`,
		example: `sallyport flow eval --labels labels.json banking.json travel.json
sallyport flow eval --labels labels.json --free-level-1 --output json banking.json`,
		args: cobra.MinimumNArgs(1), prints: true, local: true,
	}, func(ctx context.Context, args []string) error {
		if labels == "" {
			return usagef("--labels is needed: the file that says what the tools are")
		}
		b, err := readTrace(labels)
		if err != nil {
			return unusable(err)
		}
		rules := replay.Rules{FreeLevel1: free}
		if rules.Labels, err = replay.ReadLabels(labels, b); err != nil {
			return err
		}
		var recordings []*replay.Recording
		for _, name := range args {
			if b, err = readTrace(name); err != nil {
				return unusable(err)
			}
			rec, err := replay.Read(name, b)
			if err != nil {
				return err
			}
			recordings = append(recordings, rec)
		}
		report, err := replay.Run(ctx, rules, recordings)
		if err != nil {
			return err
		}
		for _, note := range report.Notes {
			fmt.Fprintf(c.err, "note: %s\n", printable(note))
		}
		return c.print(report, func(t *table) {
			t.row("SUITE", "TASKS", "FREE", "QUESTIONS", "A TASK", "BROKEN", "ATTACKS", "UNASKED", "RATE")
			for _, p := range report.Parts {
				figures(t, p.Name, p.Figures)
			}
			figures(t, "all", report.All)
			for _, a := range report.All.Through {
				t.line("unasked: %s in %s of %s", a.InjectionTask, a.UserTask, strings.TrimSpace(a.Suite+" "+a.Pipeline))
			}
		})
	})
	cmd.Flags().StringVar(&labels, "labels", "", "file that says what the tools are (tool-labels/1)")
	cmd.Flags().BoolVar(&free, "free-level-1", false, "writes that only the person sees and can undo are free, as with flow.free_level_1")
	return cmd
}

func figures(t *table, name string, f replay.Figures) {
	share := func(n, of int) string {
		if of == 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(of))
	}
	mean := "-"
	if f.UserTasks > 0 {
		mean = fmt.Sprintf("%.2f", float64(f.Approvals)/float64(f.UserTasks))
	}
	t.row(name, f.UserTasks, share(f.PassFree, f.UserTasks), f.Approvals, mean, len(f.Broken), f.Cases, f.AutoAttack, share(f.AutoAttack, f.Cases))
}

// readTrace reads a file that may be as long as a trace can be.
func readTrace(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, replay.MaxBytes+1))
	if err == nil && len(b) > replay.MaxBytes {
		err = fmt.Errorf("%s is longer than %d MiB, which is all that is read", path, replay.MaxBytes>>20)
	}
	return b, err
}
