package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.example/client"
	"sallyport.example/internal/diff"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/sentence"
)

func (c *cli) agents() *cobra.Command {
	list := printing(c, about{use: "list", short: "List the declared agents", example: "sallyport agents list"},
		func(ctx context.Context, cl *client.Client, _ []string) ([]client.Agent, error) {
			return cl.Agents(ctx)
		},
		func(t *table, all []client.Agent) {
			t.row("AGENT", "NAME", "VERSION", "MODE", "STANDING", "KILLED", "PURPOSE")
			for _, a := range all {
				t.row(a.AgentID, a.Name, a.Version, a.Mode, a.Standing, a.Killed, a.Purpose)
			}
		})
	one := printing(c, about{use: "show AGENT", short: "Show an agent and its declaration", example: "sallyport agents show research-assistant --output yaml", args: cobra.ExactArgs(1)},
		func(ctx context.Context, cl *client.Client, args []string) (*shownAgent, error) {
			a, err := cl.Agent(ctx, args[0])
			if err != nil {
				return nil, err
			}
			l, err := cl.Limits(ctx, args[0])
			if err != nil {
				return nil, err
			}
			return &shownAgent{a, l.Quotas, l.Throttles}, nil
		}, func(t *table, a *shownAgent) {
			t.agent(a.Agent)
			t.quotas(a.Quotas, false)
			t.throttles(a.Throttles, false)
		})
	var reason string
	var yes bool
	aside := printing(c, about{
		use: "quarantine AGENT", short: "Put an agent aside until it is restored", args: cobra.ExactArgs(1),
		long: `Its calls are refused; its sessions and what they hold stay. To cancel what runs right now there is sallyport kill. An AGENT that nobody declared
needs --yes.`,
		example: "sallyport agents quarantine research-assistant --reason \"asks for passwords\"",
	}, func(ctx context.Context, cl *client.Client, args []string) (*client.Agent, error) {
		if err := c.declared(ctx, cl, args[0], yes); err != nil {
			return nil, err
		}
		if yes {
			return cl.QuarantineUndeclared(ctx, args[0], reason)
		}
		return cl.Quarantine(ctx, args[0], reason)
	}, (*table).agent)
	reasonFlag(aside, &reason)
	yesFlag(aside, &yes)
	restore := printing(c, about{
		use: "restore AGENT", short: "End an agent's quarantine", long: "A kill switch that is on stays on: sallyport unkill.",
		example: "sallyport agents restore research-assistant --reason \"prompt fixed\"", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, cl *client.Client, args []string) (*client.Agent, error) {
		return cl.Restore(ctx, args[0], reason)
	}, (*table).agent)
	reasonFlag(restore, &reason)
	return group("agents", "See the declared agents, approve their declarations, let one work, put one aside",
		append([]*cobra.Command{list, one, c.agentDiff(), c.approveAgents(), c.agentApprovals(), c.auditAgents(), aside, restore}, c.agentRuns()...)...)
}

// shownAgent is an agent with what it has used of its quotas, and how fast it may call.
type shownAgent struct {
	*client.Agent
	Quotas    []client.Quota    `json:"quotas,omitempty"`
	Throttles []client.Throttle `json:"throttles,omitempty"`
}

// quotas shows what was used of each quota; named says of which agent it is.
func (t *table) quotas(all []client.Quota, named bool) {
	for i, q := range all {
		name := ""
		if i == 0 {
			name = "quotas"
		}
		of := ""
		if named {
			of = q.AgentID + ": "
		}
		text := fmt.Sprintf("%s%g of %g %s an %s (%d %%), free again at %s", of, q.Used, q.Limit, q.Resource, q.Window, q.Percent, t.show(q.Frees))
		if q.Reserved > 0 {
			text += fmt.Sprintf("; %g set aside for what is under way", q.Reserved)
		}
		t.field(name, strings.Replace(text, " an day", " a day", 1))
	}
}

// throttles shows how fast agents may call; named says which agent.
func (t *table) throttles(all []client.Throttle, named bool) {
	for i, th := range all {
		name := ""
		if i == 0 {
			name = "throttle"
		}
		of, next := "", "now"
		if named {
			of = th.AgentID + ": "
		}
		if th.Next != nil {
			next = "at " + t.show(*th.Next)
		}
		t.field(name, fmt.Sprintf("%sat most %s a minute, spread evenly, %d at once; the next may run %s", of, sentence.Count(th.CallsPerMinute, "call"), th.AtOnce, next))
	}
}

func (c *cli) auditAgents() *cobra.Command {
	var all bool
	cmd := c.asPerson(about{
		use: "audit", short: "Answer the deployment checklists from the running gateway", args: cobra.NoArgs, prints: true,
		long: `It answers the 13 boxes of the audit of agents and the 8 of the deployment checklist: yes, no, or that it can't be seen from here, each with the reason and
the way to a yes. It decides the violations that no file shows (A-03, A-05, A-07, A-09). Exit code 1 if a box has a no.`,
		example: "sallyport agents audit\nsallyport agents audit --evidence\nsallyport agents audit --output json",
	}, func(ctx context.Context, cl *client.Client, _ []string) error {
		r, err := cl.Deployment(ctx)
		if err != nil {
			return err
		}
		good := !slices.ContainsFunc(r.Boxes, func(b client.DeploymentBox) bool { return b.Answer == "no" })
		return c.judged(r, good, func(t *table) { t.deployment(r, all) })
	})
	cmd.Flags().BoolVar(&all, "evidence", false, "say what each answer rests on")
	return cmd
}

// answers are the answers to a box for people.
var answers = map[string]string{"yes": "yes", "no": "NO", "unseen": "can't be seen"}

func (t *table) deployment(r *client.Deployment, evidence bool) {
	for _, b := range r.Boxes {
		t.line("%s\t%s\t%s", b.ID, answers[b.Answer], b.Question)
		t.line("\t\t%s", b.Reason)
		if evidence {
			for _, e := range b.Evidence {
				t.line("\t\t- %s", e)
			}
		}
		if b.Answer != "yes" && b.Remedy != "" {
			t.line("\t\t-> %s", b.Remedy)
		}
	}
	t.line("")
	for _, v := range r.Violations {
		found := map[string]string{"yes": "FOUND", "no": "not found", "unseen": "can't be seen"}[v.Found]
		t.line("%s (%s)\t%s\t%s", v.Code, v.Severity, found, v.Title)
	}
}

func (c *cli) agentDiff() *cobra.Command {
	return printing(c, about{
		use: "diff AGENT", short: "Show what is new in an agent's declaration since it was approved", args: cobra.ExactArgs(1),
		long:    "It compares the declaration that is loaded with the one that was approved, field by field. An agent that nobody approved yet shows all its fields.",
		example: "sallyport agents diff research-assistant",
	}, func(ctx context.Context, cl *client.Client, args []string) (*client.AgentDifference, error) {
		return cl.AgentDifference(ctx, args[0])
	}, func(t *table, d *client.AgentDifference) {
		t.difference(d)
		if len(d.Fields) > 0 && d.Blocked == "" {
			t.line("to approve it: sallyport agents approve %s --digest %s", d.AgentID, d.Digest)
		}
	})
}

// difference shows each field that differs.
func (t *table) difference(d *client.AgentDifference) {
	t.field("agent", d.AgentID)
	t.field("digest", d.Digest)
	t.field("approval", d.Approval)
	switch {
	case d.Against == "":
		t.field("approved", "no version before: all of it is new")
	case len(d.Fields) == 0:
		t.field("approved", "as it is")
	default:
		t.field("approved", d.Against)
	}
	for _, f := range d.Fields {
		switch {
		case len(f.Added)+len(f.Removed) > 0:
			t.field(f.Field, listChange(f))
		case f.From == nil:
			t.field(f.Field, "+ "+string(diff.Plain(f.To)))
		case f.To == nil:
			t.field(f.Field, "- "+string(diff.Plain(f.From)))
		default:
			t.field(f.Field, string(diff.Plain(f.From))+" -> "+string(diff.Plain(f.To)))
		}
	}
	for _, b := range d.Breaking {
		t.field("breaks readers", b)
	}
	t.field("can't be approved", d.Blocked)
}

func listChange(f client.ChangedValue) string {
	var words []string
	for _, s := range f.Removed {
		words = append(words, "- "+s)
	}
	for _, s := range f.Added {
		words = append(words, "+ "+s)
	}
	return strings.Join(words, ", ")
}

func (c *cli) approveAgents() *cobra.Command {
	var digest, reason string
	var all bool
	cmd := c.asPerson(about{
		use: "approve {AGENT --digest D | --all --reason TEXT}", short: "Approve declarations of agents that you have read", args: cobra.MaximumNArgs(1), prints: true,
		long: `An agent's calls are refused until a person with the role approver has approved its declaration, and again after each change. The digest names what you
have read: sallyport agents diff AGENT prints it. --all prints what is new in each declaration that waits, and approves exactly that. Some declarations take
two people (declarations.approvers).`,
		example: "sallyport agents approve research-assistant --digest 8f0c…\nsallyport agents approve --all --reason \"new installation\"",
	}, func(ctx context.Context, cl *client.Client, args []string) error {
		switch {
		case all && len(args) == 0 && digest == "":
			if reason == "" {
				return usagef("--all needs --reason: why all of them, for the record")
			}
			return c.approveAll(ctx, cl, reason)
		case all || len(args) != 1:
			return usagef("name an agent and the digest of its declaration, or use --all with --reason")
		case digest == "":
			return usagef("--digest is missing: sallyport agents diff %s shows what is new, and the digest", args[0])
		}
		a, err := cl.ApproveAgent(ctx, args[0], digest, reason)
		if err != nil {
			return err
		}
		return c.print(a, func(t *table) { t.agent(a) })
	})
	f := cmd.Flags()
	f.StringVar(&digest, "digest", "", "digest of the declaration that you have read")
	f.StringVar(&reason, "reason", "", "why, for the record")
	f.BoolVar(&all, "all", false, "print what is new in all declarations that wait, and approve that")
	return cmd
}

// maxApprovals bounds a file with approvals, in bytes.
const maxApprovals = 1 << 20

func (c *cli) agentApprovals() *cobra.Command {
	var life time.Duration
	export := c.asPerson(about{
		use: "export [AGENT…]", short: "Print approvals of declarations, signed for other gateways", args: cobra.ArbitraryArgs, prints: true,
		long: `What it prints is taken over by a gateway whose configuration names this one's key (audit.pub in the data directory) under declarations.trusted, with
sallyport agents approvals import. Without AGENT it has all that people approved as they are loaded.`,
		example: "sallyport agents approvals export > approvals.txt\nsallyport agents approvals export research-assistant --for 24h",
	}, func(ctx context.Context, cl *client.Client, args []string) error {
		b, err := cl.ExportApprovals(ctx, args, life)
		if err != nil {
			return err
		}
		if c.output == "table" { // as import takes it
			_, err = fmt.Fprint(c.out, b.Bundle)
			return err
		}
		return c.print(b, nil)
	})
	export.Flags().DurationVar(&life, "for", 7*24*time.Hour, "how long it can be taken over, at most 2160h")
	take := c.asPerson(about{
		use: "import FILE", short: "Take over approvals that another gateway signed", args: cobra.ExactArgs(1), prints: true,
		long: `FILE is what sallyport agents approvals export wrote; - is standard input. An approval counts only for the declaration that is loaded here, with as many votes as it
takes here, of people who have the role approver here. Exit code 1 if one of them was not taken over.`,
		example: "sallyport agents approvals import approvals.txt",
	}, func(ctx context.Context, cl *client.Client, args []string) error {
		var text []byte
		var err error
		if args[0] == "-" {
			text, err = io.ReadAll(io.LimitReader(c.in, maxApprovals+1))
		} else {
			text, err = readRegular(args[0], maxApprovals)
		}
		if err != nil {
			return err
		}
		in, err := cl.ImportApprovals(ctx, string(text))
		if err != nil {
			return err
		}
		all := !slices.ContainsFunc(in.Agents, func(a client.ImportedApproval) bool { return !a.Imported })
		return c.judged(in, all, func(t *table) {
			t.field("signed by", in.SignedBy)
			t.field("at", in.SignedAt)
			t.row("AGENT", "DIGEST", "IMPORTED", "WHY NOT")
			for _, a := range in.Agents {
				t.row(a.AgentID, a.Digest, a.Imported, a.Why)
			}
		})
	})
	return group("approvals", "Carry approvals of declarations from one gateway to others", export, take)
}

// approveAll shows what waits and approves it by the digests that were shown.
func (c *cli) approveAll(ctx context.Context, cl *client.Client, reason string) error {
	agents, err := cl.Agents(ctx)
	if err != nil {
		return err
	}
	done := []*client.Agent{}
	var refused []string
	for _, a := range agents {
		if a.Approval == nil || a.Approval.State == "approved" {
			continue
		}
		d, err := cl.AgentDifference(ctx, a.AgentID)
		if err != nil {
			return err
		}
		if c.output == "table" {
			if err := c.print(d, func(t *table) { t.difference(d) }); err != nil {
				return err
			}
		}
		now, err := cl.ApproveAgent(ctx, d.AgentID, d.Digest, reason)
		var p *client.Problem
		if errors.As(err, &p) {
			refused = append(refused, d.AgentID)
			fmt.Fprintf(c.err, "sallyport: %s is not approved: %s\n", printable(d.AgentID), printable(err.Error()))
			continue
		}
		if err != nil {
			return err
		}
		done = append(done, now)
	}
	if err := c.print(done, func(t *table) {
		t.row("AGENT", "VERSION", "STANDING", "APPROVAL")
		for _, a := range done {
			t.row(a.AgentID, a.Version, a.Standing, a.Approval.Text)
		}
	}); err != nil {
		return err
	}
	if len(refused) > 0 {
		return &found{what: "not approved: " + strings.Join(refused, ", ")}
	}
	return nil
}

func (t *table) agent(a *client.Agent) {
	t.field("agent", a.AgentID)
	t.field("name", a.Name)
	t.field("version", a.Version)
	t.field("purpose", a.Purpose)
	t.field("mode", a.Mode)
	t.field("starts in", a.StartPhase)
	t.field("sessions", a.Sessions)
	t.field("standing", a.Standing)
	if a.Approval != nil {
		t.field("approval", a.Approval.Text)
	}
	if q := a.Quarantine; q != nil {
		t.field("put aside", t.show(q.Since)+" by "+identity.Shown(q.By)+reasonText(q.Reason))
	}
	if d := a.Degraded; d != nil {
		t.field("degraded", "since "+t.show(d.Since)+": "+d.By+" is aside, since "+d.Why)
	}
	t.field("killed", a.Killed)
	t.field("digest", a.Digest)
	t.line("the whole declaration: sallyport agents show %s --output yaml", a.AgentID)
}
