package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.example/client"
	runs "sallyport.example/internal/run"
)

func (c *cli) recommendations() *cobra.Command {
	return group("recommendations", "See and answer what agents recommend", c.listRecommendations(), c.showRecommendation(), c.approveRecommendation(), c.rejectRecommendation(), c.deferRecommendation(), c.batchRecommendations(), c.exportRecommendations())
}

func (c *cli) listRecommendations() *cobra.Command {
	var agent, state string
	cmd := printing(c, about{use: "list", short: "List recommendations, the newest first", example: "sallyport recommendations list --state pending"},
		func(ctx context.Context, cl *client.Client, _ []string) (*client.RecommendationPage, error) {
			if _, err := runs.ParseRecommendationState(state); err != nil {
				return nil, unusable(err)
			}
			return cl.Recommendations(ctx, agent, state, "")
		},
		func(t *table, page *client.RecommendationPage) {
			t.row("RECOMMENDATION", "AGENT", "ACTION", "STATE", "RISK", "FOR", "AT", "WHY")
			for _, r := range page.Recommendations {
				risk := ""
				if r.Call != nil {
					risk = r.Call.Risk
				}
				t.row(r.RecommendationID, r.AgentID, r.Action, recommendationWords(r.State), risk, r.Requester, r.At, r.Why)
			}
			if page.Next != "" {
				t.line("there are older ones: --output json has \"next\"")
			}
		})
	cmd.Flags().StringVar(&agent, "agent", "", "only those of this agent")
	cmd.Flags().StringVar(&state, "state", "", "only those in this state, such as pending or advice")
	return cmd
}

func (c *cli) showRecommendation() *cobra.Command {
	return printing(c, about{use: "show RECOMMENDATION", short: "Show a recommendation with the exact call that it is about", example: "sallyport recommendations show rec_01…", args: cobra.ExactArgs(1)},
		func(ctx context.Context, cl *client.Client, args []string) (*client.Recommendation, error) {
			return cl.Recommendation(ctx, args[0])
		}, (*table).recommendation)
}

func (c *cli) approveRecommendation() *cobra.Command {
	var digest, comment string
	cmd := printing(c, about{
		use: "approve RECOMMENDATION", short: "Say yes to a recommendation", args: cobra.ExactArgs(1),
		long: `The answer is the vote on the call that it recommends, under the digest that show prints. With enough votes it is carried out. Advice that calls nothing is
noted as right.`,
		example: "sallyport recommendations approve rec_01… --digest 5f3c…",
	}, func(ctx context.Context, cl *client.Client, args []string) (*client.Recommendation, error) {
		if digest == "" {
			return nil, usagef("say what you have read: --digest, from sallyport recommendations show %s", args[0])
		}
		return cl.ApproveRecommendation(ctx, args[0], digest, comment)
	}, (*table).recommendation)
	cmd.Flags().StringVar(&digest, "digest", "", "the digest of what you have read")
	cmd.Flags().StringVar(&comment, "comment", "", "goes on the record")
	return cmd
}

func (c *cli) rejectRecommendation() *cobra.Command {
	var reason string
	cmd := printing(c, about{use: "reject RECOMMENDATION", short: "Say no to a recommendation", example: "sallyport recommendations reject rec_01… --reason \"the disk is not full\"", args: cobra.ExactArgs(1)},
		func(ctx context.Context, cl *client.Client, args []string) (*client.Recommendation, error) {
			return cl.RejectRecommendation(ctx, args[0], reason)
		}, (*table).recommendation)
	reasonFlag(cmd, &reason)
	return cmd
}

func (c *cli) deferRecommendation() *cobra.Command {
	var digest string
	var wait time.Duration
	cmd := printing(c, about{use: "defer RECOMMENDATION", short: "Put the answer to a recommendation off; its expiry stays", example: "sallyport recommendations defer rec_01… --digest 5f3c… --for 30m", args: cobra.ExactArgs(1)},
		func(ctx context.Context, cl *client.Client, args []string) (*client.Recommendation, error) {
			if digest == "" {
				return nil, usagef("say what you have read: --digest, from sallyport recommendations show %s", args[0])
			}
			var until time.Time
			if wait > 0 {
				until = time.Now().Add(wait)
			}
			return cl.DeferRecommendation(ctx, args[0], digest, until)
		}, (*table).recommendation)
	cmd.Flags().StringVar(&digest, "digest", "", "the digest of what you have read")
	cmd.Flags().DurationVar(&wait, "for", 0, "how long, such as 30m; without it, until somebody takes it up")
	return cmd
}

// answered is what became of one recommendation of several.
type answered struct {
	RecommendationID string `json:"recommendation_id"`
	State            string `json:"state,omitempty"`
	Problem          string `json:"problem,omitempty"`
}

func (c *cli) batchRecommendations() *cobra.Command {
	var reason string
	cmd := c.asPerson(about{
		use: "batch approve|reject RECOMMENDATION=DIGEST…", short: "Answer several recommendations with one decision", prints: true, args: cobra.MinimumNArgs(2),
		long: `Each is answered by itself, under the digest that show prints; one that can't be answered so keeps no other from being answered. It exits with 1 if one was
not taken.`,
		example: "sallyport recommendations batch approve rec_01…=5f3c… rec_02…=77aa…\nsallyport recommendations batch reject rec_01…=5f3c… rec_02…=77aa… --reason \"the disk is not full\"",
	}, func(ctx context.Context, cl *client.Client, args []string) error {
		decision := args[0]
		switch {
		case decision != "approve" && decision != "reject":
			return usagef("the decision is approve or reject, not %q", decision)
		case decision == "reject" && reason == "":
			return usagef("a rejection needs --reason")
		}
		for _, arg := range args[1:] {
			if _, digest, _ := strings.Cut(arg, "="); digest == "" {
				return usagef("say what you have read: %s=DIGEST, with the digest of sallyport recommendations show %s", arg, arg)
			}
		}
		all, good := []answered{}, true
		for _, arg := range args[1:] {
			id, digest, _ := strings.Cut(arg, "=")
			r, err := cl.Recommendation(ctx, id)
			switch {
			case err != nil:
			case r.Digest != digest:
				err = &found{what: "it has another digest: it is not what you looked at"}
			case decision == "approve":
				r, err = cl.ApproveRecommendation(ctx, id, digest, reason)
			default:
				r, err = cl.RejectRecommendation(ctx, id, reason)
			}
			one := answered{RecommendationID: id}
			if err != nil {
				one.Problem, good = err.Error(), false
			} else {
				one.State = r.State
			}
			all = append(all, one)
		}
		return c.judged(all, good, func(t *table) {
			t.row("RECOMMENDATION", "STATE", "PROBLEM")
			for _, one := range all {
				t.row(one.RecommendationID, recommendationWords(one.State), one.Problem)
			}
		})
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

// exportedLine is a line of an export.
type exportedLine struct {
	client.Recommendation
	Snapshot string `json:"snapshotId"`
}

func (c *cli) exportRecommendations() *cobra.Command {
	return c.asPerson(about{
		use: "export", short: "Print the recommendations that people answered, one JSON object in a line", example: "sallyport recommendations export > validated.jsonl",
		long: `Only what a person has approved or rejected is in it, with who and when: nothing else may be learned from. Each line names the export
(snapshotId). The knowledge store takes the lines in: sallyport knowledge add --source snapshot FILE.`,
	}, func(ctx context.Context, cl *client.Client, _ []string) error {
		for after, export := "", ""; ; {
			page, err := cl.ExportRecommendations(ctx, after, export)
			if err != nil {
				return err
			}
			export = page.Snapshot
			for _, r := range page.Recommendations {
				line, err := json.Marshal(exportedLine{r, export})
				if err != nil {
					return err
				}
				if _, err := fmt.Fprintf(c.out, "%s\n", line); err != nil {
					return err
				}
			}
			if after = page.Next; after == "" {
				return nil
			}
		}
	})
}

func (t *table) recommendation(r *client.Recommendation) {
	t.field("recommendation", r.RecommendationID)
	t.field("agent", r.AgentID)
	t.field("run", r.RunID)
	t.field("for", r.Requester)
	t.field("at", r.At)
	t.field("recommends", r.Action)
	t.field("state", recommendationWords(r.State))
	t.field("why", r.Why)
	if call := r.Call; call != nil {
		t.field("calls", call.Operation)
		t.field("with", call.Arguments)
		for _, name := range slices.Sorted(maps.Keys(call.From)) {
			t.field("  "+name, "from "+call.From[name])
		}
		t.field("risk", call.Risk)
		if call.Needed > 0 {
			t.field("needs", call.Needed)
		}
		t.field("approval", call.ApprovalID)
	}
	t.field("expires", r.ExpiresAt)
	for _, c := range r.Citations {
		t.field("cites", c.Source+" ("+c.Found()+")")
	}
	for _, c := range r.Claims {
		t.field("claims", c.Field+" ("+c.Found()+")")
	}
	t.field("output", r.Output)
	t.field("decided by", r.DecidedBy)
	t.field("digest", r.Digest)
}
