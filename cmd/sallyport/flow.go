package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.example/internal/daemon"
	detect "sallyport.example/internal/screen"
	"sallyport.example/internal/store"
	"sallyport.example/lab/propose"
	"sallyport.example/lab/replay"
)

// flowCommand holds the commands about the flow rules that need no running gateway.
func flowCommand(c *cli) *cobra.Command {
	return group("flow", "Ask what the flow rules make of recorded work, and have labels proposed", c.flowEval(), c.flowSuggest())
}

func (c *cli) flowEval() *cobra.Command {
	var labels, config, session, from, against string
	var free, screening bool
	var cmd *cobra.Command
	cmd = c.command(about{
		use: "eval [TRACE…]", short: "Replay recorded work, and count what would be asked",
		long: `Judges recorded calls anew, by the rules that the gateway enforces. Nothing is called and nothing is written.

With --labels, each TRACE holds tasks with their calls and results, and attacks: how many tasks pass with no question, how many questions each run
of one brings, and how many attacks would run with nobody asked. With --output json it lists the tasks and attacks behind the figures, and the values that nothing
confirmed.

With --from, the work of that time is taken from the log in the data directory, and judged under two configurations: the one of --against, which is
in force, and the one of --config, which you think of. For each operation it says how many calls would be asked about and refused, and it lists the calls that
would be decided otherwise. Labels, the risk of calls and unlisted operations are judged anew; permissions, limits and Cedar policies are not.

With --session, the calls of a session of the gateway's own are taken from the log in the data directory and judged under the configuration of
now: what was decided then, what the flow rules would say today, and by which evidence. Permissions, limits and risk are not judged anew.`,
		example: `sallyport flow eval --labels labels.json banking.json travel.json
sallyport flow eval --labels labels.json --free-level-1 --output json banking.json
sallyport flow eval --session sess_01 --config changed.yaml
sallyport flow eval --from 7d --config changed.yaml`,
		args: cobra.ArbitraryArgs, prints: true,
	}, func(ctx context.Context, args []string) error {
		given := cmd.Flags().Changed
		switch {
		case from != "" && (len(args) > 0 || labels != "" || session != "" || given("free-level-1") || screening):
			return usagef("--from takes its labels from the configurations: leave out --labels, --session, --free-level-1, --screening and TRACE")
		case from != "":
			return c.flowCompare(ctx, from, against, config)
		case given("against"):
			return usagef("--against is for --from")
		case session != "" && (len(args) > 0 || labels != "" || given("free-level-1") || screening):
			return usagef("--session takes its labels from the configuration: leave out --labels, --free-level-1, --screening and TRACE")
		case session != "":
			return c.flowSession(ctx, config, session)
		case labels == "" || len(args) == 0:
			return usagef("name TRACE files and --labels, or a --session of the gateway's own")
		case given("config") || given("data"):
			return usagef("--config and --data are for --session")
		}
		return c.flowTraces(ctx, labels, free, screening, args)
	})
	f := cmd.Flags()
	f.StringVar(&labels, "labels", "", "file that says what the tools of TRACE are (tool-labels/1)")
	f.BoolVar(&free, "free-level-1", false, "writes that only the person sees and can undo are free, as with flow.free_level_1")
	f.BoolVar(&screening, "screening", false, "screen arguments and results, too, as the gateway does by default")
	f.StringVar(&session, "session", "", "id of a session of the gateway's own")
	f.StringVar(&config, "config", "", "configuration to judge recorded work under (default: sallyport.yaml if it is there)")
	f.StringVar(&from, "from", "", "compare two configurations by the work since then: a time, or how long ago (7d)")
	f.StringVar(&against, "against", "sallyport.yaml", "with --from: the configuration that is in force")
	must(cmd.MarkFlagFilename("against", "yaml", "yml"))
	must(cmd.MarkFlagFilename("labels", "json"))
	must(cmd.MarkFlagFilename("config", "yaml", "yml"))
	return cmd
}

func (c *cli) flowTraces(ctx context.Context, labels string, free, screening bool, traces []string) error {
	b, err := readRegular(labels, replay.MaxBytes)
	if err != nil {
		return unusable(fmt.Errorf("--labels: %w", err))
	}
	rules := replay.Rules{FreeLevel1: free}
	if screening {
		if rules.Screen, err = detect.New(detect.Options{}); err != nil {
			return err
		}
	}
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

// rulesOf reads the rules of a configuration that a flag names.
func rulesOf(flag, name string) (replay.Config, error) {
	cfg, err := daemon.LoadConfig(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s: %w", flag, err)
	}
	if err != nil {
		return replay.Config{}, unusable(err)
	}
	rules, err := propose.Rules(cfg)
	if err != nil {
		return replay.Config{}, unusable(err)
	}
	return rules, nil
}

// shownOtherwise is how many calls a table lists; --output json has more.
const shownOtherwise = 50

func (c *cli) flowCompare(ctx context.Context, from, against, config string) error {
	if config == "" || config == against {
		return usagef("name the changed configuration with --config, and the one that is in force with --against, if it is not sallyport.yaml")
	}
	since, err := moment("--from", from, func(d time.Duration) time.Time { return time.Now().Add(-d) })
	if err != nil {
		return err
	}
	was, err := rulesOf("--against", against)
	if err != nil {
		return err
	}
	now, err := rulesOf("--config", config)
	if err != nil {
		return err
	}
	log, err := store.OpenReadOnly(c.data)
	if err != nil {
		return unusable(err)
	}
	g := c.gauge("sessions judged:")
	found, err := replay.Compare(ctx, log, was, now, since, g.of)
	g.end()
	if err = errors.Join(err, log.Close()); err != nil {
		return err
	}
	return c.print(found, func(t *table) {
		t.row("OPERATION", "CALLS", "ASKED", "WOULD BE ASKED", "REFUSED", "WOULD BE REFUSED", "OTHERWISE")
		for _, o := range found.Totals {
			t.row(o.Operation, o.Was.Calls, o.Was.Questions, o.Now.Questions, o.Was.Refused, o.Now.Refused, o.Changed)
		}
		t.row("all", found.Calls, found.Was.Questions, found.Now.Questions, found.Was.Refused, found.Now.Refused, len(found.Otherwise)+found.More)
		for _, o := range found.Otherwise[:min(len(found.Otherwise), shownOtherwise)] {
			t.line("%s %s of %s: %s, would be %s. %s", o.CallID, o.Operation, o.Agent, string(o.Was), string(o.Now), o.Reason)
		}
		if more := len(found.Otherwise) + found.More - shownOtherwise; more > 0 {
			t.line("%d more calls; --output json lists them", more)
		}
		if found.Skipped > 0 {
			t.line("note: %d calls were not judged: built-in operations, and calls whose arguments were not kept", found.Skipped)
		}
		for _, note := range found.Notes {
			t.line("note: %s", note)
		}
	})
}

func (c *cli) flowSession(ctx context.Context, config, id string) error {
	rules, err := rulesOf("--config", config)
	if err != nil {
		return err
	}
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
