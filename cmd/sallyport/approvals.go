package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.example/client"
)

var approvalStates = []string{"pending", "approved", "rejected", "deferred", "expired", "spent", "superseded", "all"}

func (c *cli) approvals() *cobra.Command {
	query := client.ApprovalQuery{}
	list := c.asPerson(about{
		use: "list", short: "List what agents ask people for, newest first",
		long:    "Those with the same number under TOGETHER are similar: sallyport approvals batch answers them at once. Plans that wait stand below.",
		example: "sallyport approvals list\nsallyport approvals list --state all --session sess_01J…", prints: true,
	}, func(ctx context.Context, cl *client.Client, _ []string) error {
		q := query
		if !slices.Contains(approvalStates, q.State) {
			return usagef("--state is one of %s, not %q", strings.Join(approvalStates, ", "), q.State)
		}
		if q.State == "all" {
			q.State = ""
		}
		page, err := cl.Approvals(ctx, q)
		if err != nil {
			return err
		}
		var plans []client.Session
		if c.output == "table" && q.State == "pending" && q.Session == "" && q.After == "" {
			if plans, err = waitingPlans(ctx, cl); err != nil { // requests can be answered all the same
				fmt.Fprintf(c.err, "sallyport: whether plans wait is not known: %s\n", printable(err.Error()))
			}
		}
		return c.print(page, func(t *table) {
			together := similar(page.Approvals)
			t.row("APPROVAL", tint("STATE"), tint("RISK"), "OPERATION", "AGENT", "SESSION", "VOTES", "TOGETHER", "EXPIRES", "ARGUMENTS")
			for _, a := range page.Approvals {
				t.row(a.ApprovalID, tintState(a.State), tint(a.Risk), a.Operation, a.AgentID, a.SessionID, votes(&a), together[a.Similar], a.ExpiresAt, briefly(&a))
			}
			for _, a := range page.Approvals {
				if a.Problem != "" {
					t.line("%s: %s", a.ApprovalID, a.Problem)
				}
			}
			if page.Next != "" {
				t.line("more: sallyport approvals list --state %s --after %s", cmp.Or(q.State, "all"), page.Next)
			}
			for _, s := range plans {
				t.line("a plan of %s waits for an operator, steps: %d. sallyport sessions approve-plan %s", s.AgentID, len(s.Plan.Steps), s.SessionID)
			}
		})
	})
	list.Flags().StringVar(&query.State, "state", "pending", strings.Join(approvalStates, ", "))
	list.Flags().StringVar(&query.Session, "session", "", "only of this session")
	list.Flags().StringVar(&query.After, "after", "", "go on after this approval")
	list.Flags().IntVar(&query.Limit, "limit", 0, "most approvals to list")
	must(list.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(approvalStates, cobra.ShellCompDirectiveNoFileComp)))

	one := printing(c, about{use: "show APPROVAL", short: "Show what an agent asks for, with everything that is approved by its digest", example: "sallyport approvals show appr_01J…", args: cobra.ExactArgs(1)},
		func(ctx context.Context, cl *client.Client, args []string) (*client.Approval, error) {
			return cl.Approval(ctx, args[0])
		},
		func(t *table, a *client.Approval) { t.question(c, a) })
	return group("approvals", "Answer what agents ask people for", list, one, c.watch(), c.approve(), c.reject(), c.deferral(), c.modify(), c.batch())
}

// waitingPlans returns the sessions whose plan waits for a person, the newest first.
func waitingPlans(ctx context.Context, cl *client.Client) (waiting []client.Session, err error) {
	q := client.SessionQuery{State: "open", Limit: 500}
	for {
		page, err := cl.Sessions(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, s := range page.Sessions {
			if s.Plan != nil && s.Plan.State == "pending" {
				waiting = append(waiting, s)
			}
		}
		if q.After = page.Next; q.After == "" {
			return waiting, nil
		}
	}
}

// briefly returns the arguments as a list shows them.
func briefly(a *client.Approval) string {
	if a.ArgumentsSize > 0 {
		return fmt.Sprintf("(%d bytes)", a.ArgumentsSize)
	}
	return string(a.Arguments)
}

// similar numbers the keys that several approvals share.
func similar(all []client.Approval) map[string]string {
	count, number := map[string]int{}, map[string]string{}
	for _, a := range all {
		if count[a.Similar]++; count[a.Similar] == 2 && a.Similar != "" {
			number[a.Similar] = fmt.Sprint(len(number) + 1)
		}
	}
	return number
}

// votes says how many of how many people approved.
func votes(a *client.Approval) string {
	yes := 0
	for _, v := range a.Votes {
		if v.Decision == "approve" {
			yes++
		}
	}
	if a.Role != "" {
		return fmt.Sprintf("%d of %d (role %s)", yes, a.Needed, a.Role)
	}
	return fmt.Sprintf("%d of %d", yes, a.Needed)
}

// answered shows the state of an approval after an answer.
func (t *table) answered(a *client.Approval) {
	t.field("approval", a.ApprovalID)
	t.field("operation", a.Operation)
	t.field("state", stateWords(a.State))
	t.field("approved by", votes(a))
	t.field("postponed until", a.DeferredUntil)
	t.field("reason", a.Reason)
	if a.Drill {
		t.field("a drill", drill)
	}
}

// question shows an approval whole and tells whether it could.
func (t *table) question(c *cli, a *client.Approval) (whole bool) {
	rows, whole := question(a, c.columns(), t.now)
	for _, row := range rows {
		fmt.Fprintln(t.w, row)
	}
	return whole
}

// reviewed returns an approval that waits and, if a person reads the output, shows it. If a digest is given, it must be the approval's. An approval
// that is to be approved must be shown whole.
func (c *cli) reviewed(ctx context.Context, cl *client.Client, id, digest string, toApprove bool) (*client.Approval, error) {
	a, err := cl.Approval(ctx, id)
	if err != nil {
		return nil, err
	}
	if c.output == "table" {
		whole := true
		if err := c.print(a, func(t *table) { whole = t.question(c, a); t.line("") }); err != nil {
			return nil, err
		}
		if !whole && toApprove {
			return nil, &found{what: fmt.Sprintf("what is not shown whole can't be approved at a prompt: read sallyport approvals show %s --output json, then approve it with --yes --digest %s", a.ApprovalID, a.Digest)}
		}
	}
	if digest != "" && digest != a.Digest {
		return nil, &found{what: fmt.Sprintf("approval %s has another digest: it is not what you looked at", a.ApprovalID)}
	}
	return a, nil
}

// approving asks for a yes to exactly what was shown.
func approving(a *client.Approval) string {
	return fmt.Sprintf("Approve %s, risk %s, digest %.8s?", a.Operation, a.Risk, a.Digest)
}

// confirmed asks the person at the terminal.
func (c *cli) confirmed(ctx context.Context, ask string) error {
	fmt.Fprintf(c.err, "%s [y/N] ", printable(ask))
	line, err := answer(ctx, bufio.NewReader(io.LimitReader(c.in, 100)))
	if word := strings.ToLower(strings.TrimSpace(line)); word == "y" || word == "yes" {
		return nil
	}
	if err != nil {
		fmt.Fprintln(c.err)
	}
	return &found{what: "not approved: nothing was sent"}
}

// answer reads a line. A signal ends the wait for it.
func answer(ctx context.Context, in *bufio.Reader) (line string, err error) {
	type read struct {
		line string
		err  error
	}
	done := make(chan read, 1)
	go func() { // ends with the program: reading can't be broken off
		line, err := in.ReadString('\n')
		done <- read{line, err}
	}()
	select {
	case r := <-done:
		return r.line, r.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// unasked refuses the command if no person can answer its prompt.
func (c *cli) unasked(yes bool, digests bool) error {
	switch {
	case yes && !digests:
		return usagef("--yes needs the digest of what you looked at: sallyport approvals show tells it")
	case !yes && c.output != "table":
		return usagef("--output %s asks nobody: it needs --yes and the digest of what you looked at", c.output)
	}
	return nil
}

const digestHelp = "digest of what you looked at"

func (c *cli) approve() *cobra.Command {
	var digest, comment string
	var yes bool
	cmd := printing(c, about{
		use: "approve APPROVAL", short: "Say yes to one call",
		long: `It shows what is asked and asks you; your yes is for exactly that, by its digest. Nothing runs by itself: the agent makes its call again, and
it is judged again. Scripts give --yes and --digest.`,
		example: "sallyport approvals approve appr_01J…\nsallyport approvals approve appr_01J… --yes --digest 8f0c…", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, cl *client.Client, args []string) (*client.Approval, error) {
		if err := c.unasked(yes, digest != ""); err != nil {
			return nil, err
		}
		id := args[0]
		if !yes {
			a, err := c.reviewed(ctx, cl, id, digest, true)
			if err == nil {
				err = c.confirmed(ctx, approving(a))
			}
			if err != nil {
				return nil, err
			}
			id, digest = a.ApprovalID, a.Digest
		}
		return cl.Approve(ctx, id, digest, comment)
	}, (*table).answered)
	cmd.Flags().StringVar(&digest, "digest", "", digestHelp)
	cmd.Flags().StringVar(&comment, "comment", "", "a word for the record")
	cmd.Flags().BoolVar(&yes, "yes", false, "ask nobody; needs --digest")
	return cmd
}

func (c *cli) reject() *cobra.Command {
	var reason string
	cmd := c.answering(about{
		use: "reject APPROVAL", short: "Say no to one call; the agent is told why",
		long:    "One no is enough, also after others said yes, up to the moment the call runs.",
		example: "sallyport approvals reject appr_01J… --reason \"not to customers\"",
	}, func(ctx context.Context, cl *client.Client, a *client.Approval) (*client.Approval, error) {
		return cl.Reject(ctx, a.ApprovalID, a.Digest, reason)
	}, (*table).answered)
	reasonFlag(cmd, &reason)
	return cmd
}

func (c *cli) deferral() *cobra.Command {
	var until string
	cmd := c.answering(about{
		use: "defer APPROVAL", short: "Put the answer off",
		long:    "Without --until it waits until somebody takes it up. The deadline stays.",
		example: "sallyport approvals defer appr_01J… --until 10m",
	}, func(ctx context.Context, cl *client.Client, a *client.Approval) (*client.Approval, error) {
		at, err := untilTime(until, time.Now())
		if err != nil {
			return nil, err
		}
		return cl.Defer(ctx, a.ApprovalID, a.Digest, at)
	}, (*table).answered)
	cmd.Flags().StringVar(&until, "until", "", "when to ask again: 10m, 2h, or 2026-11-20T15:00:00Z")
	return cmd
}

// answering makes a command that answers one request, which it shows. With --digest it must be that one.
func (c *cli) answering(a about, answer func(ctx context.Context, cl *client.Client, a *client.Approval) (*client.Approval, error), rows func(t *table, a *client.Approval)) *cobra.Command {
	var digest string
	a.args = cobra.ExactArgs(1)
	cmd := printing(c, a, func(ctx context.Context, cl *client.Client, args []string) (*client.Approval, error) {
		seen, err := c.reviewed(ctx, cl, args[0], digest, false)
		if err != nil {
			return nil, err
		}
		return answer(ctx, cl, seen)
	}, rows)
	cmd.Flags().StringVar(&digest, "digest", "", digestHelp)
	return cmd
}

// untilTime reads a time, or a duration from now. "" is the zero time.
func untilTime(s string, now time.Time) (time.Time, error) {
	return moment("until", s, now.Add)
}

// moment reads a time, or a duration from now on or back. "" is the zero time.
func moment(name, s string, of func(d time.Duration) time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return at, nil
	}
	d, err := time.ParseDuration(s)
	if days, is := strings.CutSuffix(s, "d"); is && err != nil {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d <= 0 {
		return time.Time{}, usagef("%s is a time such as 2026-11-20T15:00:00Z, or how far from now, such as 10m, 2h or 7d, not %q", name, s)
	}
	return of(d), nil
}

func (c *cli) modify() *cobra.Command {
	var arguments, reason string
	cmd := c.answering(about{
		use: "modify APPROVAL", short: "Ask about a call with other arguments",
		long: `The request as it is will not run. Your arguments, all of them, take the place of the agent's under a new digest, and wait for another person's
answer: this approves nothing, and you can't approve what you wrote. The agent is told the reason, and makes the new call or does not. To begin
with what it asks for: sallyport approvals show APPROVAL --output json.`,
		example: `sallyport approvals modify appr_01J… --arguments '{"recipient":"DE02…","amount":900}' --reason "900 was agreed"
sallyport approvals modify appr_01J… --arguments @arguments.json --reason "one page is enough"`,
	}, func(ctx context.Context, cl *client.Client, a *client.Approval) (*client.Approval, error) {
		raw, err := argumentsOf(arguments)
		if err != nil {
			return nil, err
		}
		return cl.Modify(ctx, a.ApprovalID, a.Digest, raw, reason)
	}, func(t *table, next *client.Approval) {
		t.line("it is this now:")
		t.question(c, next)
		t.line("")
		t.line("it waits for somebody else, since nobody approves what they wrote: sallyport approvals approve %s", next.ApprovalID)
	})
	needed(cmd, &arguments, "arguments", "the new arguments: a JSON object, or @FILE with one")
	reasonFlag(cmd, &reason)
	return cmd
}

// maxArguments bounds a file of arguments; the gateway takes no more in a request.
const maxArguments = 4 << 20

// argumentsOf reads a JSON object as it was typed, or from the file behind an @.
func argumentsOf(s string) (json.RawMessage, error) {
	raw := []byte(s)
	if path, is := strings.CutPrefix(s, "@"); is {
		f, err := os.Open(path)
		if err != nil {
			return nil, usagef("arguments: %v", err)
		}
		defer f.Close()
		if raw, err = io.ReadAll(io.LimitReader(f, maxArguments+1)); err != nil {
			return nil, usagef("arguments: %v", err)
		}
		if len(raw) > maxArguments {
			return nil, usagef("arguments: %s has over %d bytes", path, maxArguments)
		}
	}
	raw = bytes.TrimSpace(raw)
	if !json.Valid(raw) || raw[0] != '{' {
		return nil, usagef(`arguments are all of the new ones as a JSON object, such as '{"path":"notes.txt"}', or @FILE with one`)
	}
	return raw, nil
}

func (c *cli) batch() *cobra.Command {
	var reason string
	var yes bool
	decisions := []string{"approve", "reject", "defer"}
	cmd := c.asPerson(about{
		use: "batch approve|reject|defer APPROVAL[=DIGEST]…", short: "Answer similar approvals with one decision",
		long: `Similar are those of one session, operation and destination (TOGETHER in the list). Each is shown and answered under its own digest; if they
are not similar, none is. It exits with 1 if one was not taken. Scripts that approve give --yes and every digest.`,
		example: "sallyport approvals batch approve appr_01J… appr_01K…\nsallyport approvals batch reject appr_01J… appr_01K… --reason \"too many\"", prints: true,
		args: cobra.MinimumNArgs(2),
	}, func(ctx context.Context, cl *client.Client, args []string) error {
		decision := args[0]
		if !slices.Contains(decisions, decision) {
			return usagef("the decision is %s, not %q", strings.Join(decisions, ", "), decision)
		}
		if decision == "reject" && reason == "" {
			return usagef("a rejection needs --reason")
		}
		var refs []client.ApprovalRef
		digests := true
		for _, arg := range args[1:] {
			id, digest, _ := strings.Cut(arg, "=")
			refs = append(refs, client.ApprovalRef{ApprovalID: id, Digest: digest})
			digests = digests && digest != ""
		}
		if err := c.unasked(yes || decision != "approve", digests || !yes); err != nil {
			return err
		}
		if !yes {
			for i, ref := range refs {
				a, err := c.reviewed(ctx, cl, ref.ApprovalID, ref.Digest, decision == "approve")
				if err != nil {
					return err
				}
				refs[i] = client.ApprovalRef{ApprovalID: a.ApprovalID, Digest: a.Digest}
			}
			if decision == "approve" {
				if err := c.confirmed(ctx, fmt.Sprintf("Approve all %d?", len(refs))); err != nil {
					return err
				}
			}
		}
		all, err := cl.RespondTogether(ctx, decision, reason, refs)
		if err != nil {
			return err
		}
		failed := func(b client.Batched) bool { return b.Approval == nil }
		return c.judged(all, !slices.ContainsFunc(all, failed), func(t *table) {
			t.row("APPROVAL", "STATE", "PROBLEM")
			for _, b := range all {
				state := ""
				if b.Approval != nil {
					state = stateWords(b.Approval.State)
				}
				t.row(b.ApprovalID, state, b.Problem)
			}
		})
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record; the agent is told of a no")
	cmd.Flags().BoolVar(&yes, "yes", false, "ask nobody; needs every digest")
	return cmd
}
