package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"sallyport.example/internal/daemon"
	"sallyport.example/internal/store"
	"sallyport.example/lab/replay"
)

// flowCommand holds the commands about the flow rules that need no running gateway.
func flowCommand(c *cli) *cobra.Command {
	return group("flow", "Ask what the flow rules make of recorded work, and have labels proposed", c.flowEval(), c.flowSuggest())
}

func (c *cli) flowEval() *cobra.Command {
	var labels, config, session string
	var free bool
	var cmd *cobra.Command
	cmd = c.command(about{
		use: "eval [TRACE…]", short: "Replay recorded work, and count what would be asked",
		long: `Judges recorded calls anew, by the rules that the gateway enforces. Nothing is called and nothing is written.

With --labels, each TRACE holds tasks with their calls and results, and attacks: how many tasks pass with no question, how many questions each run
of one brings, and how many attacks would run with nobody asked. With --output json it lists the tasks and attacks behind the figures, and the values that nothing
confirmed.

With --session, the calls of a session of the gateway's own are taken from the log in the data directory and judged under the configuration of
now: what was decided then, what the flow rules would say today, and by which evidence. Permissions, limits and risk are not judged anew.`,
		example: `sallyport flow eval --labels labels.json banking.json travel.json
sallyport flow eval --labels labels.json --free-level-1 --output json banking.json
sallyport flow eval --session sess_01 --config changed.yaml`,
		args: cobra.ArbitraryArgs, prints: true,
	}, func(ctx context.Context, args []string) error {
		given := cmd.Flags().Changed
		switch {
		case session != "" && (len(args) > 0 || labels != "" || given("free-level-1")):
			return usagef("--session takes its labels from the configuration: leave out --labels, --free-level-1 and TRACE")
		case session != "":
			return c.flowSession(ctx, config, session)
		case labels == "" || len(args) == 0:
			return usagef("name TRACE files and --labels, or a --session of the gateway's own")
		case given("config") || given("data"):
			return usagef("--config and --data are for --session")
		}
		return c.flowTraces(ctx, labels, free, args)
	})
	f := cmd.Flags()
	f.StringVar(&labels, "labels", "", "file that says what the tools of TRACE are (tool-labels/1)")
	f.BoolVar(&free, "free-level-1", false, "writes that only the person sees and can undo are free, as with flow.free_level_1")
	f.StringVar(&session, "session", "", "id of a session of the gateway's own")
	f.StringVar(&config, "config", "", "configuration to judge the session under (default: sallyport.yaml if it is there)")
	must(cmd.MarkFlagFilename("labels", "json"))
	must(cmd.MarkFlagFilename("config", "yaml", "yml"))
	return cmd
}

func (c *cli) flowTraces(ctx context.Context, labels string, free bool, traces []string) error {
	b, err := readRegular(labels, replay.MaxBytes)
	if err != nil {
		return unusable(fmt.Errorf("--labels: %w", err))
	}
	rules := replay.Rules{FreeLevel1: free}
	if rules.Labels, err = replay.ReadLabels(labels, b); err != nil {
		return err
	}
	var recordings []*replay.Recording
	for _, name := range traces {
		if b, err = readRegular(name, replay.MaxBytes); err != nil {
			return unusable(fmt.Errorf("TRACE: %w", err))
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
		t.row("SUITE", "TASKS", "FREE", "QUESTIONS", "A RUN", "BROKEN", "ATTACKS", "UNASKED", "RATE")
		for _, p := range report.Parts {
			figures(t, p.Name, p.Figures)
		}
		figures(t, "all", report.All)
		for _, a := range report.All.Through {
			t.line("unasked: %s in %s of %s", a.InjectionTask, a.UserTask, strings.TrimSpace(a.Suite+" "+a.Pipeline))
		}
	})
}

func (c *cli) flowSession(ctx context.Context, config, id string) error {
	cfg, err := daemon.LoadConfig(config)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("--config: %w", err)
	}
	if err != nil {
		return unusable(err)
	}
	rules := replay.Config{Classify: cfg.Classifier(nil), Labels: cfg.Flow.Labels, FreeLevel1: cfg.Flow.FreeLevel1, Own: cfg.IdentitiesOf}
	log, err := store.OpenReadOnly(c.data)
	if err != nil {
		return unusable(err)
	}
	past, err := replay.Session(ctx, log, rules, id)
	if err = errors.Join(err, log.Close()); err != nil {
		return err
	}
	return c.print(past, func(t *table) {
		t.row("CALL", "OPERATION", "THEN", "FLOW NOW", "CHANGED")
		for _, call := range past.Calls {
			now := "unknown"
			if call.Now != nil {
				if now = string(call.Now.Decision); call.Now.Unlabelled {
					now += ", unlabelled"
				}
			}
			t.row(call.CallID, call.Operation, thenOf(call.Then), now, call.Changed)
		}
		t.line("%d of %d calls would be decided otherwise", past.Changed, len(past.Calls))
		for _, call := range past.Calls {
			if call.Now != nil && call.Now.Reason != "" {
				t.line("%s: %s", call.CallID, call.Now.Reason)
			}
			if call.Note != "" {
				t.line("%s: note: %s", call.CallID, call.Note)
			}
		}
		for _, note := range past.Notes {
			t.line("note: %s", note)
		}
	})
}

func thenOf(t replay.Then) string {
	s := t.Decision
	if t.OnlyLogged {
		s += ", only observed"
	}
	if t.Stage != "" {
		s += " by " + t.Stage
	}
	if len(t.Approvers) > 0 {
		s += ", approved by " + strings.Join(t.Approvers, " and ")
	}
	if t.Outcome != "" && t.Outcome != "ok" {
		s += ", " + t.Outcome
	}
	return s
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
