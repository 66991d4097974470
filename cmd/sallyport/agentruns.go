package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.example/client"
	runs "sallyport.example/internal/run"
)

// agentRuns are the commands about runs of agents.
func (c *cli) agentRuns() []*cobra.Command {
	return []*cobra.Command{c.startRun(), c.listRuns(), c.showRun(), c.cancelRun()}
}

func (c *cli) startRun() *cobra.Command {
	var input, request, key string
	var noWait, own bool
	cmd := c.asPerson(about{
		use: "run AGENT", short: "Let an agent work once, and print what it answers", args: cobra.ExactArgs(1), prints: true,
		long: `The run is in your name. Its output is checked against the schema of the agent's declaration, and its citations against what it read; what is not valid is
not shown. Exit code 1 if it ended without an output.`,
		example: `sallyport agents run incident-advisor --request "what should we do about INC-7?"
sallyport agents run incident-advisor --input input.json --output json`,
	}, func(ctx context.Context, cl *client.Client, args []string) error {
		body, err := c.runInput(input, request)
		if err != nil {
			return err
		}
		r, err := cl.StartRun(ctx, args[0], client.RunRequest{Input: body, Key: key, Own: own})
		if err != nil {
			return err
		}
		if noWait {
			return c.print(r, func(t *table) { t.run(r) })
		}
		if r, err = c.awaitRun(ctx, cl, r); err != nil {
			return err
		}
		return c.judged(r, r.Status == string(runs.Done), func(t *table) { t.run(r) })
	})
	cmd.Flags().StringVar(&input, "input", "", "the input, a JSON object: a file with it, - for standard input, or the object itself")
	cmd.Flags().StringVar(&request, "request", "", "the request in words: the input is {\"user_request\": TEXT}")
	cmd.Flags().StringVar(&key, "key", "", "idempotency key: with the same key the same request starts one run")
	cmd.Flags().BoolVar(&own, "own", false, "the input is yours, though it is like what an agent said")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "print the run as it begins, and don't wait for its end")
	return cmd
}

// runInput is the input that the flags say: file is a file's name, - or the object itself.
func (c *cli) runInput(file, request string) (json.RawMessage, error) {
	switch {
	case file != "" && request != "":
		return nil, usagef("give --input or --request, not both")
	case request != "":
		return json.Marshal(map[string]string{runs.UserRequest: request})
	case file == "":
		return json.RawMessage("{}"), nil
	}
	in := c.in
	if strings.HasPrefix(file, "{") {
		in = strings.NewReader(file)
	} else if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, unusable(err)
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, runs.MaxInput+1))
	if err != nil {
		return nil, unusable(err)
	}
	if _, err := runs.ReadInput(b); err != nil { // here, so that the message names the file's mistake before anything is sent
		return nil, unusable(err)
	}
	return b, nil
}

// awaitRun waits for the end of a run, and says on standard error that it goes on.
func (c *cli) awaitRun(ctx context.Context, cl *client.Client, r *client.Run) (*client.Run, error) {
	for r.Status == string(runs.Running) {
		left := time.Until(r.Deadline).Round(time.Second)
		fmt.Fprintf(c.err, "sallyport: the run %s is under way, for at most %s (end it: sallyport agents cancel %s)\n", printable(r.RunID), max(left, 0), printable(r.RunID))
		next, err := cl.Run(ctx, r.RunID, 10*time.Second)
		if err != nil {
			if errors.Is(err, context.Canceled) {
				fmt.Fprintf(c.err, "sallyport: the run %s goes on without you\n", printable(r.RunID))
			}
			return nil, err
		}
		r = next
	}
	return r, nil
}

func (c *cli) listRuns() *cobra.Command {
	var agent string
	cmd := printing(c, about{
		use: "runs", short: "List runs, the newest first, and how each agent's went in the last 24 hours", example: "sallyport agents runs --agent incident-advisor",
	}, func(ctx context.Context, cl *client.Client, _ []string) (*client.RunPage, error) {
		return cl.Runs(ctx, agent, "", 0)
	}, func(t *table, page *client.RunPage) {
		t.row("RUN", "AGENT", "STATUS", "FOR", "STARTED", "CITATIONS", "WHY")
		for _, r := range page.Runs {
			cited := ""
			if r.Quality != nil {
				cited = fmt.Sprintf("%d of %d", r.Quality.Verified, r.Quality.Citations)
			}
			why := ""
			if r.Verdict != nil {
				why = r.Verdict.Code
			}
			t.row(r.RunID, r.AgentID, runWords(r.Status), r.Requester, r.Started, cited, why)
		}
		for _, f := range page.Figures {
			t.line("%s in the last 24 hours: %d runs, %d timed out, %d invalid, %d with what an agent said; %d of %d citations verified, %d of %d quotes matched", f.AgentID, f.Runs, f.Timeouts, f.Invalid, f.Returned,
				f.Quality.Verified, f.Quality.Citations, f.Quality.QuotesMatched, f.Quality.Quotes)
		}
		if page.Next != "" {
			t.line("there are older ones: --output json has \"next\"")
		}
	})
	cmd.Flags().StringVar(&agent, "agent", "", "only runs of this agent")
	return cmd
}

func (c *cli) showRun() *cobra.Command {
	return printing(c, about{use: "show-run RUN", short: "Show a run with its output and citations", example: "sallyport agents show-run run_01…", args: cobra.ExactArgs(1)},
		func(ctx context.Context, cl *client.Client, args []string) (*client.Run, error) {
			return cl.Run(ctx, args[0], 0)
		}, (*table).run)
}

func (c *cli) cancelRun() *cobra.Command {
	return printing(c, about{use: "cancel RUN", short: "End a run; what it had is discarded", example: "sallyport agents cancel run_01…", args: cobra.ExactArgs(1)},
		func(ctx context.Context, cl *client.Client, args []string) (*client.Run, error) {
			return cl.CancelRun(ctx, args[0])
		}, (*table).run)
}

func (t *table) run(r *client.Run) {
	t.field("run", r.RunID)
	t.field("agent", r.AgentID)
	t.field("status", runWords(r.Status))
	t.field("for", r.Requester)
	t.field("session", r.SessionID)
	t.field("started", r.Started)
	t.field("ended", r.Ended)
	if r.EndedBy != "" {
		t.field("ended by", r.EndedBy)
	}
	if v := r.Verdict; v != nil {
		t.field("why", v.Code+": "+v.Reason)
		for _, b := range v.Because {
			t.field("where", b.Detail)
		}
		if r.SessionID != "" {
			t.field("look at", "sallyport sessions show "+r.SessionID+" --timeline")
		}
	}
	if len(r.Writes) > 0 {
		t.field("changed", r.Writes)
	}
	for _, c := range r.Citations {
		t.field("cites", c.Source+" ("+c.Found()+")")
	}
	for _, c := range r.Claims {
		t.field("claims", c.Field+" ("+c.Found()+")")
	}
	if r.RecommendationID != "" {
		t.field("recommends", r.RecommendationID)
	}
	if len(r.Returned) > 0 {
		t.field("came back", r.Returned)
	}
	if len(r.Output) > 0 {
		t.field("is", "synthetic: an agent's words")
		t.field("labels", r.Labels)
		t.field("output", r.Output)
	}
}
