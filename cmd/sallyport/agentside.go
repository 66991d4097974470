package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sallyport.example/client"
	"sallyport.example/internal/clients"
	"sallyport.example/internal/connect"
)

func (c *cli) manifest() *cobra.Command {
	var session string
	cmd := c.speaking(agentSide, about{
		use: "manifest", short: "Show what an agent can call, and what calling each tool blocks",
		long: `It speaks as the agent: with SALLYPORT_TOKEN (an agent's or a session's token), else with the token of the agent "local" from the data
directory. Without --session it is the session that the token stands for.`,
		example: "sallyport manifest\nsallyport manifest --session sess_01J… --output json", prints: true,
	}, func(ctx context.Context, cl *client.Client, _ []string) error {
		m, err := cl.Manifest(ctx, session)
		if err != nil {
			return err
		}
		return c.print(m, func(t *table) {
			t.field("session", m.SessionID)
			t.field("phase", phaseWords(m.Phase))
			t.field("labels", labels(m.Labels))
			t.line("")
			if len(m.Tools) == 0 {
				t.line("There are no tools. Either no server is up, or no entry under operations names its tools, or the agent's declaration permits none: sallyport tools list shows which.")
				return
			}
			t.row("TOOL", "OPERATION", "SENSITIVITY", "EFFECT", "BLOCKED NOW", "CONSEQUENCE")
			for _, tool := range m.Tools {
				t.row(tool.Name, tool.Operation, tool.Sensitivity, tool.Effect, tool.BlockedBySession, tool.Consequence)
			}
			if m.OrderingHint != "" {
				t.line("\n%s", m.OrderingHint)
			}
		})
	})
	cmd.Flags().StringVar(&session, "session", client.Own, "id of the session")
	return cmd
}

func labels(held []client.Held) (all []string) {
	for _, h := range held {
		if h.Cause != "" {
			all = append(all, h.Label+" ("+h.Cause+")")
		} else if h.Operation == "" {
			all = append(all, h.Label)
		} else {
			all = append(all, h.Label+" (from "+h.Operation+", "+h.CallID+")")
		}
	}
	return all
}

func (c *cli) plan() *cobra.Command {
	var session string
	validate := c.speaking(agentSide, about{
		use: "validate TOOL…", short: "Tell whether calls would run in this order, and in which they would",
		long: `Nothing is called and nothing changes. Labels that the session has already count. It exits with 1 if the order is not safe. The token is found as
for sallyport manifest.`,
		example: "sallyport plan validate --session sess_01J… search_email web_search", args: cobra.MinimumNArgs(1), prints: true,
	}, func(ctx context.Context, cl *client.Client, args []string) error {
		calls := make([]client.PlannedCall, len(args))
		for i, name := range args {
			calls[i].Tool = name
		}
		r, err := cl.ValidatePlan(ctx, session, calls)
		if err != nil {
			return err
		}
		return c.judged(r, r.Valid, func(t *table) { validated(t, args, r) })
	})
	validate.Flags().StringVar(&session, "session", client.Own, "id of the session")
	return group("plan", "Ask about plans", validate)
}

func validated(t *table, planned []string, r *client.PlanReport) {
	defer func() {
		for _, a := range r.Asks {
			t.line("step %d, %s, %s: %s", a.AtStep, a.Tool, a.Risk, a.Reason)
			switch a.Needed {
			case 0:
				t.line("  it runs unless a person stops it")
			case 1:
				t.line("  a person would be asked")
			default:
				t.line("  %d people would be asked", a.Needed)
			}
		}
	}()
	if r.Valid {
		t.line("safe: %s", strings.Join(planned, ", "))
		return
	}
	for _, v := range r.Violations {
		t.line("step %d, %s: %s", v.AtStep, v.Tool, v.Reason)
		if v.Suggestion != "" {
			t.line("  %s", v.Suggestion)
		}
	}
	switch {
	case r.SafeOrdering != nil:
		t.line("safe order: %s", strings.Join(r.SafeOrdering, ", "))
	case r.Impossible != nil:
		t.line("%s", r.Impossible.Because)
		for _, way := range r.Impossible.Ways {
			t.line("  %s", way)
		}
	}
}

func (c *cli) connect() *cobra.Command {
	return c.command(about{
		inside: true,
		use:    "connect", short: "Be an MCP server on standard input and output that is the running gateway",
		long: `For clients that can only start a command. It forwards to the gateway's /mcp with the token in SALLYPORT_TOKEN, else with the one of the agent
"local" from the data directory. sallyport client config --kind claude-desktop prints how to enter it.`,
		example: "sallyport connect\nSALLYPORT_TOKEN=spt_agent_… sallyport connect --data /var/lib/sallyport",
	}, func(ctx context.Context, _ []string) error {
		address, err := c.address(agentSide)
		if err != nil {
			return err
		}
		token, err := c.credential(agentSide)
		if err != nil {
			return err
		}
		log := slog.New(slog.NewTextHandler(c.err, &slog.HandlerOptions{Level: slog.LevelInfo}))
		err = connect.Run(ctx, c.in, c.out, connect.Options{URL: address + "/mcp", Token: token, Log: log})
		if errors.Is(err, context.Canceled) {
			return nil // stopped by a signal
		}
		return err
	})
}

func (c *cli) client() *cobra.Command {
	var kind, model, background string
	var secret bool
	config := c.command(about{
		inside: true,
		use:    "config", short: "Print what a client needs to use the gateway",
		long: `The snippet goes to standard output, where to put it to standard error. It names the running gateway's address. The token is a reference to the
environment variable SALLYPORT_TOKEN, as far as the client knows such; with --show-token it is the token itself. Where the agent may ask models through
the gateway, the snippets for Claude Code and Codex have the settings for that, too: the running gateway is asked for its models with the agent's token.
The kind sdk is for programs that use the SDKs of Anthropic and OpenAI.`,
		example: "sallyport client config --kind claude-code\nsallyport client config --kind cursor --show-token > ~/.cursor/mcp.json\nsallyport client config --kind codex --model gpt-4o-2024-11-20",
	}, func(_ context.Context, _ []string) error {
		if !slices.Contains(clients.Configured, kind) {
			return usagef("--kind is one of %s, not %q", strings.Join(clients.Configured, ", "), kind)
		}
		s := clients.Setup{Explicit: os.Getenv(envURL) != ""}
		var err error
		if s.Address, err = c.address(agentSide); err != nil {
			return err
		}
		if secret {
			if s.Token, err = c.credential(agentSide); err != nil {
				return err
			}
		}
		var note string
		s.Program, note = clients.Program(os.Executable())
		if s.Data, err = filepath.Abs(c.data); err != nil {
			return err
		}
		if local := filepath.Join(s.Data, agentSide.tokenFile); !s.Explicit {
			if _, err := os.Stat(local); err == nil {
				s.TokenFile = local
			}
		}
		var unknown error // which models there are
		if clients.AsksModels(kind) {
			if s.Models, unknown = c.agentsModels(s.Address); unknown != nil && (kind == clients.SDK || model != "" || background != "") {
				return unknown
			}
		}
		if err := s.Choose(kind, model, background); err != nil {
			return usagef("%v", err)
		}
		snippet, where, err := s.Snippet(kind)
		if err != nil {
			return err
		}
		fmt.Fprint(c.out, snippet)
		fmt.Fprintln(c.err, where)
		if unknown != nil {
			fmt.Fprintf(c.err, "It has no settings of models, because it is not known which the agent may ask: %v\n", unknown)
		}
		if strings.Contains(snippet, strconv.Quote(s.Program)) && note != "" {
			fmt.Fprintln(c.err, note)
		}
		return nil
	})
	config.Flags().StringVar(&kind, "kind", "", "the client: "+strings.Join(clients.Configured, ", "))
	config.Flags().StringVar(&model, "model", "", "the model that the client asks")
	config.Flags().StringVar(&background, "background", "", "the model that Claude Code asks for small things")
	config.Flags().BoolVar(&secret, "show-token", false, "put the token itself in")
	must(config.MarkFlagRequired("kind"))
	must(config.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(clients.Configured, cobra.ShellCompDirectiveNoFileComp)))
	return group("client", "Set clients up", config)
}
