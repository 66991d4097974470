package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.example/client"
	"sallyport.example/internal/anchor"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/store"
)

const (
	defaultEntries = 100
	maxPage        = 1000 // of the server
)

func (c *cli) audit() *cobra.Command {
	return group("audit", "Ask what happened, and prove it", c.auditQuery(), c.auditShow(), c.auditExport(), c.auditVerify(), c.auditAnchor(), c.auditSegments(), c.auditArchive())
}

// auditAsk is what audit query asks for.
type auditAsk struct {
	client.AuditQuery
	from, to, format string
	after, before    int64
	follow           bool
}

func (c *cli) auditQuery() *cobra.Command {
	var q auditAsk
	cmd := c.asPerson(about{
		use: "query [WORDS]", short: "List entries of the audit log, oldest first", args: cobra.MaximumNArgs(1),
		long: `Filters narrow: an entry has to match all of them. A value that no entry can have is refused. --from and --to are times (2026-01-31T08:00:00Z) or how long ago (90m, 24h, 7d).
WORDS finds entries by what stands in their arguments and results, as the log shows them: all words have to be there. A phrase stands in quotation marks, and a word that ends with * is the
beginning of one. --format csv and --format jsonl write all entries that match, for other programs. --follow goes on with new entries until it is stopped.`,
		example: `sallyport audit query --agent research-assistant --from 1h
sallyport audit query '"Anna Meyer"' --from 7d --newest
sallyport audit query --decision deny --output json
sallyport audit query --from 24h --format csv > today.csv
sallyport audit query --severity critical --follow`, prints: true,
	}, func(ctx context.Context, cl *client.Client, args []string) error {
		if len(args) > 0 {
			if q.Text = args[0]; strings.TrimSpace(q.Text) == "" {
				return usagef("name the words to look for")
			}
		}
		if err := q.read(); err != nil {
			return err
		}
		if q.format != "" {
			return c.auditDownload(ctx, cl, q)
		}
		return c.auditEntries(ctx, cl, q)
	})
	f := cmd.Flags()
	f.BoolVar(&q.Newest, "newest", false, "the newest first")
	f.Int64Var(&q.before, "before", -1, "with --newest: only entries before this index")
	f.BoolVar(&q.follow, "follow", false, "go on with new entries until it is stopped")
	f.StringVar(&q.format, "format", "", "write all entries that match as csv or jsonl")
	f.StringVar(&q.Agent, "agent", "", "id of the agent")
	f.StringVar(&q.Session, "session", "", "id of the session")
	f.StringVar(&q.Action, "action", "", "what was done: call, session.open, kill.disable, …")
	f.StringVar(&q.Decision, "decision", "", "permit, ask, deny; of outcomes ok, error, unknown, discarded")
	f.StringVar(&q.Kind, "kind", "", "intent, outcome, decision or change")
	f.StringVar(&q.Operation, "operation", "", "server.tool")
	f.StringVar(&q.CallID, "call", "", "id of the call")
	f.StringVar(&q.ActionType, "action-type", "", "the operation's action in the risk rules: transfer_money, …")
	f.StringVar(&q.Requester, "requester", "", "id of the person for whom the session works")
	f.StringVar(&q.Approver, "approver", "", "id of a person who approved")
	f.StringVar(&q.Risk, "risk", "", "LOW, MEDIUM, HIGH or CRITICAL")
	f.StringVar(&q.Severity, "severity", "", "info, warning or critical")
	f.StringVar(&q.Event, "event", "", "what it means for security: access_violation, credential_refused, configuration_changed, …")
	f.StringVar(&q.Code, "code", "", "code of a refusal: permission.denied, …")
	f.StringVar(&q.from, "from", "", "not older than a time, or than so long ago: 24h, 7d")
	f.StringVar(&q.to, "to", "", "older than a time, or than so long ago")
	f.Int64Var(&q.after, "after", -1, "only entries after this index")
	f.IntVar(&q.Limit, "limit", defaultEntries, "most entries to list")
	return cmd
}

// read reads the times, and refuses what can't be asked together.
func (q *auditAsk) read() (err error) {
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	if q.From, err = moment("--from", q.from, ago); err != nil {
		return err
	}
	if q.To, err = moment("--to", q.to, ago); err != nil {
		return err
	}
	for _, f := range []struct{ name, value string }{{"kind", q.Kind}, {"decision", q.Decision}, {"risk", q.Risk}, {"severity", q.Severity}, {"event", q.Event}, {"code", q.Code}} {
		if known := audit.Values(f.name); f.value != "" && !slices.Contains(known, f.value) {
			return usagef("--%s is one of %s, not %q", f.name, strings.Join(known, ", "), f.value)
		}
	}
	switch {
	case q.Limit < 1:
		return usagef("--limit must be at least 1")
	case q.format != "" && q.format != "csv" && q.format != "jsonl":
		return usagef("--format is csv or jsonl, not %q", q.format)
	case q.format != "" && (q.Newest || q.follow || q.after >= 0):
		return usagef("--format writes all entries that match, the oldest first: leave out --newest, --follow and --after")
	case q.follow && (q.Newest || !q.To.IsZero()):
		return usagef("--follow goes on with new entries: leave out --newest and --to")
	}
	if q.before >= 0 && (!q.Newest || q.after >= 0) {
		return usagef("--before needs --newest, and no --after")
	}
	if q.after >= 0 {
		q.After = &q.after
	}
	if q.before >= 0 {
		q.Before = &q.before
	}
	return nil
}

func (c *cli) auditDownload(ctx context.Context, cl *client.Client, q auditAsk) error {
	body, err := cl.AuditDownload(ctx, q.AuditQuery, q.format)
	if err != nil {
		return err
	}
	_, err = io.Copy(c.out, body)
	if err = errors.Join(err, body.Close()); err != nil {
		return fmt.Errorf("not all entries were written: %w", err)
	}
	return nil
}

// followEvery is how long --follow waits before it asks for new entries.
const followEvery = time.Second

func (c *cli) auditEntries(ctx context.Context, cl *client.Client, q auditAsk) error {
	limit := q.Limit
	for head := true; ; head = false {
		all := client.AuditPage{Entries: []client.Entry{}}
		for { // a page may be short and still have a next one
			q.Limit = min(limit-len(all.Entries), maxPage)
			page, err := cl.Audit(ctx, q.AuditQuery)
			if err != nil {
				return err
			}
			all.Entries = append(all.Entries, page.Entries...)
			if all.Archived == nil {
				all.Archived = page.Archived
			}
			if all.Next = page.Next; q.Newest {
				q.Before = page.Next
			} else {
				q.After = page.Next
			}
			all.Searched = page.Searched
			if page.Next == nil || len(all.Entries) >= limit {
				break
			}
		}
		if head || len(all.Entries) > 0 {
			if err := c.print(all, func(t *table) { auditTable(t, all, q, head) }); err != nil {
				return err
			}
		}
		if !q.follow {
			return nil
		}
		if n := len(all.Entries); n > 0 {
			q.after = all.Entries[n-1].Index
		}
		if q.After = nil; q.after >= 0 {
			q.After = &q.after
		}
		select {
		case <-ctx.Done():
			return nil // it was stopped
		case <-time.After(followEvery):
		}
	}
}

func auditTable(t *table, all client.AuditPage, q auditAsk, head bool) {
	if head {
		t.row("INDEX", "AT", tint("SEVERITY"), "WHAT", "AGENT", "OPERATION", tint("DECISION"), "CODE", "REASON")
	}
	for _, e := range all.Entries {
		t.row(e.Index, e.At, tint(e.Severity), plainly(e), e.Agent, e.Operation, tint(e.Decision), e.Code, e.Reason)
	}
	if all.Archived != nil {
		t.line("entries before %d were archived and not looked at: %s", all.Archived.Before, strings.Join(all.Archived.Files, "; "))
	}
	if s := all.Searched; s != nil && s.To < s.Size && head {
		t.line("the index goes up to entry %d of %d: newer entries can't be found by words yet", s.To, s.Size)
	}
	if all.Next != nil && !q.follow {
		if q.Newest {
			t.line("more: --before %d", *all.Next)
		} else {
			t.line("more: --after %d", *all.Next)
		}
	}
}

// plainly says in words what an entry records.
func plainly(e client.Entry) string {
	return audit.Plain(audit.Entry{Kind: audit.Kind(e.Kind), Action: e.Action, Agent: e.Agent, Decision: e.Decision})
}

func (c *cli) auditShow() *cobra.Command {
	return printing(c, about{use: "show INDEX", short: "Show one entry whole", example: "sallyport audit show 42\nsallyport audit show 42 --output json", args: cobra.ExactArgs(1)},
		func(ctx context.Context, cl *client.Client, args []string) (*client.EntryLeaf, error) {
			index, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || index < 0 {
				return nil, usagef("%q is not the index of an entry", args[0])
			}
			return cl.AuditEntry(ctx, index)
		}, func(t *table, e *client.EntryLeaf) { entry(t, &e.Entry) })
}

func entry(t *table, e *client.Entry) {
	for _, f := range [][2]any{
		{"index", e.Index}, {"at", e.At}, {"severity", e.Severity}, {"what", plainly(*e)}, {"kind", e.Kind}, {"action", e.Action}, {"event", e.Event}, {"agent", e.Agent}, {"session", e.Session},
		{"requester", e.Requester}, {"actor", e.Actor}, {"door", e.Door}, {"from", e.Remote}, {"request", e.RequestID}, {"operation", e.Operation}, {"action type", e.Type},
		{"definition", e.DefHash}, {"call", e.CallID}, {"call digest", e.Digest}, {"decision", e.Decision}, {"stage", e.Stage},
		{"code", e.Code}, {"reason", e.Reason}, {"only observed", e.Shadow}, {"risk", e.Risk}, {"amount", e.Amount}, {"approvers", e.Approvers},
		{"model", e.Model}, {"labels", e.Labels}, {"attribution", e.Attribution}, {"detail", e.Detail},
	} {
		t.field(f[0].(string), f[1])
	}
	for _, p := range []struct {
		name string
		*client.Payload
	}{{"arguments", e.Arguments}, {"result", e.Result}} {
		if p.Payload == nil {
			continue
		}
		t.field(p.name, fmt.Sprintf("%d bytes, sha256 %s", p.Size, p.SHA256))
		t.field("", p.Shown)
		if p.Stored {
			t.field("", "kept apart as payload "+p.Key)
		}
		if p.Redacted {
			t.field("", "secrets are redacted")
		}
	}
	if e.DurationMS > 0 {
		t.field("took", fmt.Sprintf("%d ms", e.DurationMS))
	}
}

func (c *cli) auditExport() *cobra.Command {
	return c.asPerson(about{
		use: "export", short: "Write the whole log to standard output, as a tar archive that proves itself",
		long:    "The archive holds the entries, the tree over them, the signed checkpoint and the payloads. sallyport audit verify checks it anywhere.",
		example: "sallyport audit export > audit.tar && sallyport audit verify audit.tar",
	}, func(ctx context.Context, cl *client.Client, _ []string) error {
		if terminal(c.out) {
			return usagef("a tar archive is nothing for a terminal: sallyport audit export > audit.tar")
		}
		body, err := cl.AuditExport(ctx)
		if err != nil {
			return err
		}
		p := c.gauge("exported")
		_, err = io.Copy(io.MultiWriter(c.out, p), body)
		p.end()
		if err = errors.Join(err, body.Close()); err != nil {
			return fmt.Errorf("the export is not complete, do not use it: %w", err)
		}
		return nil
	})
}

func (c *cli) auditVerify() *cobra.Command {
	var pub string
	var anchors, segments []string
	cmd := c.command(about{
		use: "verify [PATH]", short: "Check an export or a data directory, without any server",
		long: `PATH is an archive of sallyport audit export, the folder it was unpacked to, or a data directory (default: --data). Every hash, the tree, the
signature and the order of the records are computed anew, and so is what they say of approvals, tokens and rows. Of a data directory, every row that
decides is compared with the log. It exits with 1 on any doubt. --pub is the log's public key from a place that you trust (audit.pub);
without it the key in the log is used. --anchor is a checkpoint of this log that was kept elsewhere: it finds a log that was cut or rolled back.
Where segments of the log were archived, --segments names their folder, and they are checked, too. Without it the log is checked from the checkpoint
at their end on.`,
		example: `sallyport audit verify
sallyport audit verify audit.tar --pub /safe/audit.pub --anchor /safe/checkpoint`, args: cobra.MaximumNArgs(1), prints: true,
	}, func(ctx context.Context, args []string) error {
		path := c.data
		if len(args) > 0 {
			path = args[0]
		}
		key := ""
		if pub != "" {
			b, err := readRegular(pub, maxSmall)
			if err != nil {
				return unusable(err)
			}
			if key = strings.TrimSpace(string(b)); key == "" {
				return usagef("%s is empty", pub) // must not fall back to the key in the log
			}
		}
		kept := make([][]byte, len(anchors))
		for i, name := range anchors {
			var err error
			if kept[i], err = readRegular(name, maxSmall); err != nil {
				return unusable(err)
			}
			kept[i] = anchor.Unpack(kept[i])
		}
		src, done, err := openLog(ctx, path, segments)
		if err != nil {
			return err
		}
		p := c.gauge("verifying")
		report, err := audit.VerifyTelling(src, key, p.of, kept...)
		p.end()
		if err = errors.Join(err, done()); err != nil {
			return unusable(err)
		}
		return c.judged(report, report.OK, func(t *table) { verified(t, path, report) })
	})
	cmd.Flags().StringVar(&pub, "pub", "", "file with the public key to trust")
	cmd.Flags().StringSliceVar(&segments, "segments", nil, "folder with archived segments of the log")
	must(cmd.MarkFlagDirname("segments"))
	cmd.Flags().StringSliceVar(&anchors, "anchor", nil, "file with a checkpoint that was kept elsewhere, or an anchor (audit.anchor)")
	return cmd
}

// openLog opens an export or a data directory.
func openLog(ctx context.Context, path string, segments []string) (audit.Source, func() error, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, usagef("%s is not there: name an export or a data directory", path)
	}
	if err != nil {
		return nil, nil, unusable(err)
	}
	if st.IsDir() {
		if store.HasDatabase(path) {
			r, err := store.OpenReadOnly(path, segments...)
			if err != nil {
				return nil, nil, err // a database that can't be read is a doubt
			}
			src, err := r.Source(ctx)
			if err != nil {
				return nil, nil, errors.Join(err, r.Close())
			}
			return src, r.Close, nil
		}
	}
	x, err := audit.OpenExport(path)
	if err != nil {
		return nil, nil, err
	}
	return x, x.Close, nil
}

func verified(t *table, path string, r audit.Report) {
	if r.OK {
		t.line("%s: intact", path)
	} else {
		t.line("%s: CHANGED since it was signed", path)
	}
	t.field("log", r.Origin)
	if r.From > 0 {
		t.field("archived", fmt.Sprintf("%d entries, not checked", r.From))
	}
	t.field("entries", fmt.Sprintf("%d checked, %d covered by the signed checkpoint", r.Checked, r.Size))
	if r.Unsigned > 0 {
		t.field("unsigned", fmt.Sprintf("%d newest entries have no signature over them yet", r.Unsigned))
	}
	t.field("intents without outcome", len(r.Unknown))
	for _, id := range r.Unknown {
		t.line("  unknown what became of %s", id)
	}
	for _, p := range r.Problems {
		if p.Index >= 0 {
			t.line("PROBLEM at entry %d: %s", p.Index, p.What)
		} else {
			t.line("PROBLEM: %s", p.What)
		}
	}
	if r.Omitted > 0 {
		t.line("and %d more problems", r.Omitted)
	}
	for _, n := range r.Notes {
		t.line("note: %s", n)
	}
}
