package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sallyport.example/client"
	"sallyport.example/internal/diff"
	"sallyport.example/internal/display"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/threat"
)

func (c *cli) tools() *cobra.Command {
	list := printing(c, about{use: "list", short: "List every operation that the servers offer", example: "sallyport tools list"},
		func(ctx context.Context, cl *client.Client, _ []string) ([]client.Tool, error) {
			all, err := cl.Tools(ctx)
			slices.SortStableFunc(all, func(a, b client.Tool) int { return cmp.Compare(a.Operation, b.Operation) })
			return all, err
		}, func(t *table, all []client.Tool) {
			t.row("OPERATION", "TOOL", "STANDING", "SENSITIVITY", "EFFECT", "OUTPUT", "DEFINITION", "WAITING DEFINITION")
			for _, tool := range all {
				t.row(tool.Operation, tool.Name, tool.Standing+reasonText(tool.Fault), tool.Sensitivity, tool.Effect, tool.Output, readBy(tool), tool.PendingHash)
			}
		})
	one := printing(c, about{use: "show OPERATION", short: "Show a tool with its definitions and what looks like an order in them", example: "sallyport tools show mail.search_email", args: cobra.ExactArgs(1)},
		func(ctx context.Context, cl *client.Client, args []string) (tool client.Tool, err error) {
			all, err := cl.Tools(ctx)
			if err != nil {
				return tool, err
			}
			i := slices.IndexFunc(all, func(t client.Tool) bool { return t.Operation == args[0] })
			if i < 0 {
				unknown := &found{what: fmt.Sprintf("no server offers %q; sallyport tools list shows what there is", args[0])}
				if near := nearIDs(args[0], idsOf(all, func(t client.Tool) string { return t.Operation })); near != nil {
					return tool, &unknownID{unknown, near}
				}
				return tool, unknown
			}
			return all[i], nil
		}, func(t *table, tool client.Tool) {
			t.field("operation", tool.Operation)
			t.field("tool", tool.Name)
			t.field("standing", tool.Standing+reasonText(tool.Fault))
			t.field("definition", readBy(tool))
			t.line("")
			t.definition(tool)
		})
	return group("tools", "See tools and accept their definitions", list, one, c.acceptTools())
}

// readBy says who accepted the definition of a tool.
func readBy(t client.Tool) string {
	var words []string
	switch {
	case t.Hash == "":
	case t.Unread:
		words = append(words, "accepted by a rule alone")
	default:
		words = append(words, "accepted by "+cmp.Or(identity.Shown(t.AcceptedBy), "the program"))
	}
	switch {
	case t.PendingHash != "" && t.Hash != "":
		words = append(words, "a change waits")
	case t.PendingHash != "":
		words = append(words, "waits for a person")
	}
	if n := len(t.Suspicions); n > 0 {
		words = append(words, fmt.Sprintf("looks like an order or hides something (%d)", n))
	}
	return strings.Join(words, "; ")
}

func (c *cli) acceptTools() *cobra.Command {
	var all, yes bool
	cmd := c.asPerson(about{
		use: "accept {OPERATION HASH | --all [SERVER]}", short: "Accept definitions of tools that you have read",
		long: `A definition is text of its server's, and agents read it: until a person has accepted it, a session that lists it holds untrusted. --all prints every
definition that waits and every one that only a rule accepted, of one server or of all: first those in which something looks like an order to the model
or is hidden, then what changed, then the others. It asks once, and accepts exactly what it printed: a definition that changed meanwhile is not accepted.
HASH names one definition that you looked at: sallyport tools show prints it.`,
		example: "sallyport tools accept --all\nsallyport tools accept --all files\nsallyport tools accept mail.search_email 8f0c…",
		args:    cobra.MaximumNArgs(2), prints: true,
	}, func(ctx context.Context, cl *client.Client, args []string) error {
		switch {
		case all && len(args) < 2:
			return c.acceptAll(ctx, cl, strings.Join(args, ""), yes)
		case all || len(args) != 2:
			return usagef("name an operation and the hash of its definition, or use --all with at most one server")
		}
		tool, err := cl.AcceptTool(ctx, args[0], args[1])
		if err != nil {
			return err
		}
		return c.print(tool, func(t *table) {
			t.field("operation", tool.Operation)
			t.field("standing", tool.Standing)
			t.field("definition", tool.Hash)
		})
	})
	cmd.Flags().BoolVar(&all, "all", false, "print all that no person has accepted, and accept what was printed")
	cmd.Flags().BoolVar(&yes, "yes", false, "with --all: don't ask")
	return cmd
}

// acceptedAtOnce is the number of definitions that the gateway takes in one request.
const acceptedAtOnce = 1000

// acceptAll shows what no person has accepted and, after one yes, accepts it by the hashes that were shown.
func (c *cli) acceptAll(ctx context.Context, cl *client.Client, server string, yes bool) error {
	if c.output != "table" && !yes {
		return usagef("--output %s asks nobody: it needs --yes", c.output)
	}
	tools, err := cl.Tools(ctx)
	if err != nil {
		return err
	}
	if server != "" && !slices.ContainsFunc(tools, func(t client.Tool) bool { return t.Server == server }) {
		return &found{what: fmt.Sprintf("no server %q has offered tools; sallyport status shows the servers", server)}
	}
	tools = slices.DeleteFunc(tools, func(t client.Tool) bool {
		return t.PendingHash == "" && !t.Unread || server != "" && t.Server != server
	})
	slices.SortStableFunc(tools, func(a, b client.Tool) int {
		return cmp.Or(threat.ReadingOrder(len(a.Suspicions), a.PendingHash != "")-threat.ReadingOrder(len(b.Suspicions), b.PendingHash != ""), cmp.Compare(a.Operation, b.Operation))
	})
	if c.output == "table" {
		if len(tools) == 0 {
			return c.print(nil, func(t *table) {
				t.line("Nothing to read: every definition has been accepted by a person, is the one that the catalogue knows, or its server is trusted at first sight.")
			})
		}
		if err := c.showDefinitions(tools); err != nil {
			return err
		}
		if !yes {
			if err := c.confirmed(ctx, fmt.Sprintf("Accept these %d definitions, which agents will read as they are?", len(tools))); err != nil {
				return err
			}
		}
	}
	refused, err := c.accept(ctx, cl, tools)
	if err != nil {
		return err
	}
	if err := c.stillMarked(ctx, cl); err != nil {
		return err
	}
	servers, err := cl.Servers(ctx)
	if err != nil {
		return err
	}
	for _, s := range servers {
		if s.State != "up" && (server == "" || server == s.ID) {
			fmt.Fprintf(c.err, "The server %s is %s, so what it will offer is not among them: run this again when it is up.\n", s.ID, s.State)
		}
	}
	if refused > 0 {
		return &found{what: "not all were accepted: run it again to read what they say now"}
	}
	return nil
}

// showDefinitions prints the definitions, those in which something was found first.
func (c *cli) showDefinitions(tools []client.Tool) error {
	suspect := 0
	err := c.print(nil, func(t *table) {
		for i, tool := range tools {
			if len(tool.Suspicions) > 0 {
				suspect++
			}
			t.line("%d of %d  %s, %s", i+1, len(tools), tool.Operation, readBy(tool))
			t.definition(tool)
			t.line("")
		}
	})
	if suspect > 0 {
		fmt.Fprintf(c.err, "In %d of them, the first above, something looks like an order to the model or is hidden. To leave one out, accept the others one by one.\n", suspect)
	}
	return err
}

// accept accepts the definitions by their hashes, and says how many the gateway refused.
func (c *cli) accept(ctx context.Context, cl *client.Client, tools []client.Tool) (refused int, err error) {
	results := []client.Accepted{}
	for part := range slices.Chunk(tools, acceptedAtOnce) {
		var all []client.Acceptance
		for _, t := range part {
			all = append(all, client.Acceptance{Operation: t.Operation, DefinitionHash: cmp.Or(t.PendingHash, t.Hash)})
		}
		some, err := cl.AcceptTools(ctx, all)
		if err != nil {
			return 0, err
		}
		results = append(results, some...)
	}
	for _, r := range results {
		if r.Problem != "" {
			refused++
		}
	}
	return refused, c.print(results, func(t *table) {
		t.line("%d accepted", len(results)-refused)
		for _, r := range results {
			if r.Problem != "" {
				t.line("%s: %s", r.Operation, r.Problem)
			}
		}
	})
}

// stillMarked says which open sessions hold untrusted because of definitions: they keep what they have read, and a person can release the label.
func (c *cli) stillMarked(ctx context.Context, cl *client.Client) error {
	page, err := cl.Sessions(ctx, client.SessionQuery{State: "open"})
	if err != nil {
		return err
	}
	for _, s := range page.Sessions {
		for _, h := range s.Labels {
			if h.Cause != "" {
				fmt.Fprintf(c.err, "Session %s of %s holds %s because of %s. If that was all it read:\n  sallyport sessions release %s --label %s --reason \"definitions accepted\"\n",
					printable(s.SessionID), printable(s.AgentID), printable(h.Label), printable(h.Cause), printable(s.SessionID), printable(h.Label))
			}
		}
	}
	return nil
}

// definition writes the parts of a tool that a person has to read: the suspicions, then the definition, or its changes. Hostile text in it
// stays within its lines.
func (t *table) definition(tool client.Tool) {
	for _, s := range tool.Suspicions {
		t.line("  ! %s in %s: %s", s.Kind, s.Where, s.Quote)
	}
	switch {
	case tool.PendingHash != "" && tool.Definition != nil:
		mark := map[diff.Kind]string{diff.Both: "    ", diff.Before: "  - ", diff.After: "  + "}
		diff.Lines(definitionLines(tool.Definition), definitionLines(tool.Pending), func(a, b string) bool { return a == b }, func(kind diff.Kind, line string) {
			fmt.Fprintln(t.w, mark[kind]+line)
		})
	case tool.PendingHash != "":
		t.lines(definitionLines(tool.Pending))
	case tool.Definition != nil:
		t.lines(definitionLines(tool.Definition))
	}
	if tool.Hash != "" {
		t.line("  accepted %s", tool.Hash)
	}
	if tool.PendingHash != "" {
		t.line("  waits    %s", tool.PendingHash)
	}
	if tool.LaunchHash != "" && tool.PendingLaunchHash != "" && tool.LaunchHash != tool.PendingLaunchHash {
		t.line("  ! its server is started or reached in another way than when this was accepted: see its command, env and url in sallyport.yaml")
	}
}

func (t *table) lines(all []string) {
	for _, l := range all {
		fmt.Fprintln(t.w, "    "+l)
	}
}

// definitionLines is a definition with one member on each line, each safe for a terminal and whole.
func definitionLines(definition json.RawMessage) []string {
	var b bytes.Buffer
	text := string(definition)
	var v any
	dec := json.NewDecoder(bytes.NewReader(definition))
	dec.UseNumber()
	if dec.Decode(&v) == nil {
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false) // the API escapes markup, and a person looks for it
		enc.SetIndent("", "  ")
		if enc.Encode(v) == nil {
			text = strings.TrimSuffix(b.String(), "\n")
		}
	}
	var all []string
	for line := range strings.SplitSeq(text, "\n") {
		rest := strings.TrimLeft(line, " ")
		all = append(all, line[:len(line)-len(rest)]+display.Terminal(rest, 16*len(rest)+16))
	}
	return all
}
