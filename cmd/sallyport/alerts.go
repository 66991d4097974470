package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.example/client"
	"sallyport.example/internal/sentence"
)

func (c *cli) alerts() *cobra.Command {
	var state string
	list := printing(c, about{
		use: "list", short: "Alerts, the newest first", example: "sallyport alerts list\nsallyport alerts list --state open", args: cobra.NoArgs,
		long: `An alert is raised for more than 5 injection attempts or 10 access violations within an hour, at 80 % of a quota, when a run or a call reaches its time
limit, and when a start finds that the log does not go on from its anchor. What happens later counts towards it until a person resolves it.`,
	}, func(ctx context.Context, cl *client.Client, _ []string) ([]client.Alert, error) {
		return cl.Alerts(ctx, state)
	}, alertTable)
	list.Flags().StringVar(&state, "state", "", "only those that are open, acknowledged or resolved")
	show := printing(c, about{use: "show ALERT", short: "One alert", args: cobra.ExactArgs(1), example: "sallyport alerts show alert_01…"},
		func(ctx context.Context, cl *client.Client, args []string) (*client.Alert, error) {
			return cl.Alert(ctx, args[0])
		}, oneAlert)
	var comment string
	acknowledge := printing(c, about{
		use: "acknowledge ALERT", short: "Say that you look after an alert", args: cobra.ExactArgs(1), example: "sallyport alerts acknowledge alert_01… --comment \"looking at the mails\"",
	}, func(ctx context.Context, cl *client.Client, args []string) (*client.Alert, error) {
		return cl.AcknowledgeAlert(ctx, args[0], comment)
	}, oneAlert)
	acknowledge.Flags().StringVar(&comment, "comment", "", "what you are about to do (goes on the record)")
	var reason string
	resolve := printing(c, about{
		use: "resolve ALERT", short: "Say that an alert is dealt with", args: cobra.ExactArgs(1), example: "sallyport alerts resolve alert_01… --reason \"the sender is blocked\"",
	}, func(ctx context.Context, cl *client.Client, args []string) (*client.Alert, error) {
		return cl.ResolveAlert(ctx, args[0], reason)
	}, oneAlert)
	reasonFlag(resolve, &reason)
	return group("alerts", "See, acknowledge and resolve alerts", list, show, acknowledge, resolve)
}

func alertTable(t *table, all []client.Alert) {
	if len(all) == 0 {
		t.line("No alerts.")
		return
	}
	t.row("ALERT", "SEVERITY", "STATE", "RAISED", "WHAT", "WHO")
	for _, a := range all {
		t.row(a.ID, a.Severity, a.State, a.DetectedAt, a.Title, whoOf(a, 3))
	}
}

// whoOf names who is involved in an alert, at most so many.
func whoOf(a client.Alert, most int) string {
	var all []string
	for i, who := range a.Involved {
		if i == most {
			all = append(all, fmt.Sprintf("%d more", len(a.Involved)-most))
			break
		}
		all = append(all, fmt.Sprintf("%s (%d)", who.Agent, who.Events))
	}
	return strings.Join(all, ", ")
}

func oneAlert(t *table, a *client.Alert) {
	t.line("%s", a.Title)
	t.line("%s", a.Explanation)
	t.row("alert", a.ID)
	t.row("severity", a.Severity)
	t.row("state", a.State)
	t.row("who", whoOf(*a, 50))
	t.row("first event", a.FirstAt)
	t.row("last event", a.LastAt)
	t.row("log entry", fmt.Sprint(a.Entry))
	t.row("raised", a.DetectedAt)
	moment := func(name string, at *time.Time, by, why string) {
		if at == nil {
			return
		}
		t.row(name, *at)
		t.row(name+" by", by)
		if why != "" {
			t.row(name+" with", why)
		}
	}
	moment("acknowledged", a.AcknowledgedAt, a.AcknowledgedBy, a.Comment)
	moment("contained", a.ContainedAt, a.ContainedBy, "")
	moment("resolved", a.ResolvedAt, a.ResolvedBy, a.Reason)
}

func (c *cli) security() *cobra.Command {
	var hours int
	cmd := printing(c, about{
		use: "security", short: "The security figures: detection, violations, approvals, the record, response", example: "sallyport security\nsallyport security --hours 168", args: cobra.NoArgs,
	}, func(ctx context.Context, cl *client.Client, _ []string) (*client.Security, error) {
		return cl.Security(ctx, hours)
	}, func(t *table, s *client.Security) {
		t.row("FIGURE", "VALUE", "GOAL", "RESULT", "COUNTED")
		for _, f := range []struct {
			name, of string
			client.Figure
		}{
			{"injection attempts detected", "attacks by people's verdicts", s.InjectionDetectionRate}, {"access violations", "requests", s.AccessViolationRate}, {"HIGH calls that a person approved", "calls", s.HighApprovalRate},
			{"calls that are in the log", "calls since the start", s.AuditCompleteness}, {"mean time to detect", "incidents", s.MeanTimeToDetect}, {"mean time to respond", "incidents", s.MeanTimeToRespond},
		} {
			result := "not known"
			switch {
			case f.Met == nil:
			case *f.Met:
				result = "met"
			default:
				result = "MISSED"
			}
			counted := fmt.Sprintf("%d of %d %s", f.Count, f.Total, f.of)
			if f.Unit == "seconds" {
				counted = fmt.Sprintf("%d %s", f.Count, f.of)
			}
			t.row(f.name, figureText(f.Value, f.Unit), map[string]string{"at_least": "at least ", "at_most": "at most "}[f.Bound]+figureText(&f.Goal, f.Unit), result, counted)
		}
		t.line("Alerts that nobody has resolved: %d. Incidents that nothing has contained: %d.", s.OpenAlerts, s.UncontainedIncidents)
	})
	cmd.Flags().IntVar(&hours, "hours", 24, "of how many hours, the one under way included (at most 168)")
	return cmd
}

// figureText is a figure's value as people read it.
func figureText(v *float64, unit string) string {
	switch {
	case v == nil:
		return "–"
	case unit == "share":
		return sentence.Percent(*v)
	case *v < 60:
		return fmt.Sprintf("%.0f s", *v)
	}
	return fmt.Sprintf("%.0f min", *v/60)
}
