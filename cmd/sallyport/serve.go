package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"sallyport.example/internal/annotate"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/console"
	"sallyport.example/internal/daemon"
	"sallyport.example/internal/demo"
	"sallyport.example/internal/memory"
	"sallyport.example/lab/lint"
	"sallyport.example/lab/propose"
)

func (c *cli) serve() *cobra.Command {
	var config, level string
	cmd := c.command(about{
		use: "serve", short: "Run the gateway",
		long: `Without --config it takes sallyport.yaml in the working directory if that is there, else built-in defaults. The first start makes the
data directory, the key of the audit log and the first tokens. SIGTERM or Ctrl-C lets running calls finish and stops; a second one
stops at once. SIGHUP reloads the configuration, as sallyport reload does; where the terminal that it runs in is gone, SIGHUP stops it. SIGUSR1 pulls
the kill switch for all agents. The log goes to standard error.`,
		example: `sallyport serve
sallyport serve --config /etc/sallyport/sallyport.yaml --data /var/lib/sallyport --log-level warn`,
	}, func(ctx context.Context, _ []string) error {
		log, err := logger(c.err, level)
		if err != nil {
			return err
		}
		hangups := catchHangups()
		defer hangups.end()
		kills := make(chan os.Signal, 1) // from here on the signal ends the process no more; one that comes during the start is not lost
		signal.Notify(kills, syscall.SIGUSR1)
		defer signal.Stop(kills)
		cfg, err := daemon.LoadConfig(config)
		if err != nil {
			return unusable(err)
		}
		name := config
		if name == "" {
			name = "sallyport.yaml"
		}
		for _, w := range cfg.Warnings(name) {
			log.Warn("configuration", "problem", w.String())
		}
		memory.Tune(cfg.MemoryLimit())
		d, err := daemon.New(ctx, cfg, daemon.Options{Data: c.data, Version: buildVersion(), Log: log,
			Labels: func(config string, record func(ctx context.Context, e audit.Entry) error) console.LabelDesk {
				return propose.NewDesk(config, c.data, record)
			}})
		if err != nil && ctx.Err() != nil {
			return nil // a signal is the ordinary end, also of a start
		}
		if err != nil {
			return unusable(err)
		}
		d.Banner(c.out, terminal(c.out))
		ctx, stop := context.WithCancel(ctx)
		var following sync.WaitGroup
		following.Go(func() { hangups.follow(ctx, stop, d.ReloadBySignal) })
		following.Go(func() { followKills(ctx, kills, d.KillBySignal) })
		defer func() {
			stop()
			following.Wait()
		}()
		return d.Run(ctx)
	})
	cmd.Flags().StringVar(&config, "config", "", "configuration file (default: sallyport.yaml if it is there)")
	cmd.Flags().StringVar(&level, "log-level", "info", "least level that is logged: debug, info, warn, error")
	must(cmd.MarkFlagFilename("config", "yaml", "yml"))
	must(cmd.RegisterFlagCompletionFunc("log-level", cobra.FixedCompletions(levels, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// followKills pulls the kill switch at each signal until ctx ends.
func followKills(ctx context.Context, came <-chan os.Signal, pull func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-came:
			pull()
		}
	}
}

var levels = []string{"debug", "info", "warn", "error"}

// logger writes text for people and JSON for programs.
func logger(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil || !slices.Contains(levels, level) {
		return nil, usagef("--log-level is one of %s, not %q", strings.Join(levels, ", "), level)
	}
	o := &slog.HandlerOptions{Level: l}
	if terminal(w) {
		return slog.New(slog.NewTextHandler(w, o)), nil
	}
	return slog.New(slog.NewJSONHandler(w, o)), nil
}

func (c *cli) demo() *cobra.Command {
	var keep bool
	cmd := c.command(about{
		use: "demo", short: "Show on this terminal what the gateway does, with servers and an agent of its own",
		long: `It starts a gateway in a temporary directory with four small MCP servers (mail, docs: internal; web: external; bank: moves money) and runs
a scripted agent through a plan that is refused, a plan that is approved, calls, and a refusal. It ends with a request that a person has to
answer: in a terminal it waits for yours, in the browser or with sallyport approvals watch. Nothing outside this machine is contacted.`,
		example: "sallyport demo\nsallyport demo --keep", local: true,
	}, func(ctx context.Context, _ []string) error {
		return demo.Run(ctx, demo.Options{Out: c.out, Colours: c.colours(), Keep: keep, Wait: terminal(c.out), Version: buildVersion()})
	})
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the gateway running with its console until Ctrl-C")
	return cmd
}

func (c *cli) lint() *cobra.Command {
	var data, format string
	var sessions int
	cmd := c.command(about{
		inside: true, use: "lint [PATH…]", short: "Check configuration and agent declarations",
		long: `PATH is a configuration file (its name begins with sallyport), a declaration, or a folder of declarations. Without one it checks sallyport.yaml and
what it names. Problems are errors (the file can't be used), P0 (blocking), P1 and P2. Errors and P0 exit with 1. Of the twelve violations A-01 to A-12, one
of P1 does, too, unless the declaration has a plan for it under mitigations that still holds, and one of P2 where --sessions is above the declaration's scale.
With --data the labels of the configuration are compared with what a gateway's data directory knows, whether the gateway runs or not: what the
servers' tools take, and what was called and answered in the newest entries of the audit log.`,
		example: "sallyport lint\nsallyport lint agents/research-assistant.yaml --output json\nsallyport lint --data sallyport-data", args: cobra.ArbitraryArgs, prints: true, local: true,
	}, func(ctx context.Context, args []string) error {
		problems, err := daemon.Lint(ctx, data, lint.Compare, args...)
		if err != nil {
			return unusable(err)
		}
		if problems == nil {
			problems = []daemon.Problem{}
		}
		for i := range problems {
			problems[i] = problems[i].AtScale(sessions)
		}
		blocks := func(p daemon.Problem) bool { return p.Stops }
		if c.output != "table" && format == "" {
			fmt.Fprintln(c.err, annotate.Unseen())
		}
		if format != "" {
			return c.annotated(format, problems, !slices.ContainsFunc(problems, blocks))
		}
		return c.judged(problems, !slices.ContainsFunc(problems, blocks), func(t *table) {
			for _, p := range problems {
				t.line("%s", p.String())
			}
			switch _, err := os.Lstat("sallyport.yaml"); {
			case len(problems) > 0:
			case len(args) == 0 && err != nil:
				t.line("no problems; but there is no sallyport.yaml here, so the built-in defaults were looked at")
			default:
				t.line("no problems")
			}
			t.line("%s", annotate.Unseen())
		})
	})
	cmd.Flags().StringVar(&data, "data", "", "data directory of a gateway to compare labels with")
	cmd.Flags().StringVar(&format, "format", "", "for other programs: sarif (SARIF 2.1.0) or github (annotations of a workflow)")
	cmd.Flags().IntVar(&sessions, "sessions", 0, "sessions a day that the deployment is for: violations of P2 block above a declaration's scale")
	must(cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"sarif", "github"}, cobra.ShellCompDirectiveNoFileComp)))
	must(cmd.MarkFlagDirname("data"))
	return cmd
}

// annotated prints what lint found in the form of another program.
func (c *cli) annotated(format string, problems []daemon.Problem, good bool) error {
	switch format {
	case "sarif":
		log, err := annotate.SARIF(buildVersion(), problems)
		if err != nil {
			return err
		}
		fmt.Fprintln(c.out, string(log))
	case "github":
		fmt.Fprint(c.out, annotate.GitHub(problems))
	default:
		return usagef("--format is sarif or github, not %q", format)
	}
	if !good {
		return &found{printed: true}
	}
	return nil
}
