package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"sallyport.example/client"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/daemon"
	"sallyport.example/internal/live"
)

// maxTried is the highest limit of calls in a minute that doctor --live tries.
const maxTried = 5000

func (c *cli) doctor() *cobra.Command {
	var config string
	var running bool
	cmd := c.command(about{
		use: "doctor", short: "Look at an installation and say what is missing, or prove what a running gateway refuses",
		long: `Looks at the configuration, the data directory, the programs and servers that the configuration names, the sandbox, the databases, and whether a gateway
answers. For each server that the gateway starts it proves the sandbox: from inside it tries to reach the gateway's keys, files
and processes. Where no gateway runs, it also starts each server in its sandbox, so that you see what would break. It fetches npm
packages and makes servers' folders, as a start would, and changes nothing else. What failed makes it exit with 1, and says what to do.

With --live it tries on the running gateway whether each control refuses what it must refuse here, with a row for each: ok, failed, untried (it could not be
tried, so nothing is proved), or unused (not in use here). It needs a person with the roles operator, approver and auditor, or admin. It uses trial
agents of its own (doctor.AGENT) and closes their sessions at the end. No other agent is stopped, nothing leaves this machine, and all of it is on record
under the names of the trial agents. What failed or could not be tried makes it exit with 1.`,
		example: "sallyport doctor\nsallyport doctor --config sallyport.yaml --output json\nsallyport doctor --live", prints: true,
	}, func(ctx context.Context, _ []string) error {
		if running {
			return c.proveLive(ctx, config)
		}
		checks := daemon.Doctor(ctx, config, c.data, c.progress)
		return c.checked(checks, "failed")
	})
	cmd.Flags().StringVar(&config, "config", "", "the configuration `FILE` (default sallyport.yaml, if it is there)")
	cmd.Flags().BoolVar(&running, "live", false, "prove on the running gateway that each control refuses what it must")
	return cmd
}

// progress tells a person at a terminal what is looked at. Programs read the result alone.
func (c *cli) progress(what string) {
	if terminal(c.err) {
		fmt.Fprintf(c.err, "\r\x1b[K%s", printable(what))
	}
}

// checked prints rows; one in a bad state makes the exit code 1.
func (c *cli) checked(checks []daemon.Check, bad ...string) error {
	c.progress("")
	good := !slices.ContainsFunc(checks, func(check daemon.Check) bool { return slices.Contains(bad, check.State) })
	return c.judged(checks, good, func(t *table) {
		for _, check := range checks {
			t.line("%s\t%s\t%s", check.State, check.Name, check.Detail)
			if check.Remedy != "" && check.State != "ok" {
				t.line("\t\t%s", "→ "+check.Remedy)
			}
		}
	})
}

// proveLive tries the controls of the running gateway.
func (c *cli) proveLive(ctx context.Context, config string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	people, err := c.reach(adminSide)
	if err != nil {
		return err
	}
	token, err := c.credential(adminSide)
	if err != nil {
		return err
	}
	admin, err := c.address(adminSide)
	if err != nil {
		return err
	}
	agents, err := c.agentsAddress()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	rows, err := live.Run(ctx, live.Options{
		People: people, Person: token, Agents: agents, Admin: admin, Command: []string{self, "--data", c.data}, MaxCalls: maxTried,
		Log:      c.provedLog,
		Confined: func(ctx context.Context, canary string) []live.Row { return c.confined(ctx, people, config, canary) },
		Progress: func(row live.Row) { c.progress(row.State + "  " + row.Name) },
	})
	checks := make([]daemon.Check, 0, len(rows))
	for _, row := range rows {
		checks = append(checks, daemon.Check(row))
	}
	if shown := c.checked(checks, live.Failed, live.Untried); err == nil {
		return shown
	}
	return err
}

// provedLog proves the log of the data directory, as audit verify does.
func (c *cli) provedLog(ctx context.Context) (problems []string, size int64, err error) {
	src, done, err := openLog(ctx, c.data, nil)
	if err != nil {
		return nil, 0, err
	}
	report, err := audit.Verify(src, "")
	if err = errors.Join(err, done()); err != nil {
		return nil, 0, err
	}
	for _, p := range report.Problems {
		problems = append(problems, p.What)
	}
	return problems, report.Checked, nil
}

// confined proves the sandboxes of the running gateway's servers, with one canary in the folder of temporary files and one in the person's home.
func (c *cli) confined(ctx context.Context, people *client.Client, config, canary string) []live.Row {
	servers, err := people.Servers(ctx)
	if err != nil {
		return []live.Row{{State: live.Untried, Detail: "the servers could not be listed: " + err.Error()}}
	}
	if len(servers) == 0 {
		return []live.Row{{State: live.Unused, Detail: "not in use here: no server is configured"}}
	}
	running := map[string]string{}
	for _, s := range servers {
		running[s.ID] = s.Sandbox
	}
	canaries := []string{canary}
	if home, err := os.UserHomeDir(); err == nil {
		canaries = append(canaries, filepath.Join(home, filepath.Base(filepath.Dir(canary))))
	}
	for _, path := range canaries {
		if err := os.WriteFile(path, []byte("canary"), 0o600); err != nil {
			return []live.Row{{State: live.Untried, Detail: "no canary could be written: " + err.Error()}}
		}
		defer os.Remove(path)
	}
	var rows []live.Row
	for _, check := range daemon.Confinement(ctx, config, c.data, running, canaries...) {
		rows = append(rows, live.Row(check))
	}
	if rows == nil {
		return []live.Row{{State: live.Unused, Detail: "not in use here: the gateway starts no server"}}
	}
	return rows
}
