package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.example/client"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/sentence"
)

// idKinds list the ids that a word in the use line of a command stands for, the likeliest first.
var idKinds = map[string]func(ctx context.Context, cl *client.Client) ([]string, error){
	"AGENT": func(ctx context.Context, cl *client.Client) ([]string, error) {
		all, err := cl.Agents(ctx)
		return idsOf(all, func(a client.Agent) string { return a.AgentID }), err
	},
	"SESSION": func(ctx context.Context, cl *client.Client) ([]string, error) {
		page, err := cl.Sessions(ctx, client.SessionQuery{Limit: 200})
		if err != nil {
			return nil, err
		}
		return idsOf(page.Sessions, func(s client.Session) string { return s.SessionID }), nil
	},
	"APPROVAL": func(ctx context.Context, cl *client.Client) ([]string, error) {
		page, err := cl.Approvals(ctx, client.ApprovalQuery{Limit: 200})
		if err != nil {
			return nil, err
		}
		return idsOf(page.Approvals, func(a client.Approval) string { return a.ApprovalID }), nil
	},
	"TOKEN": func(ctx context.Context, cl *client.Client) ([]string, error) {
		all, err := cl.Tokens(ctx)
		return idsOf(all, func(t client.Token) string { return t.TokenID }), err
	},
	"OPERATION": func(ctx context.Context, cl *client.Client) ([]string, error) {
		all, err := cl.Tools(ctx)
		return idsOf(all, func(t client.Tool) string { return t.Operation }), err
	},
}

// plainID is an id that a shell takes for one word. Names that servers chose may be anything.
var plainID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:-]{0,200}$`)

func idsOf[T any](all []T, id func(T) string) (ids []string) {
	for _, v := range all {
		if s := id(v); plainID.MatchString(s) {
			ids = append(ids, s)
		}
	}
	return ids
}

// idWord is the word for the argument at a place in a command's use line, as AGENT in "show AGENT"; "" if it is none.
func idWord(use string, place int) string {
	fields := strings.Fields(use)[1:]
	if place >= len(fields) {
		return ""
	}
	word := strings.Trim(fields[place], "[]{}…|")
	if idKinds[word] == nil {
		return ""
	}
	return word
}

// completeIDs lets a shell complete the ids that a command takes, from the running gateway, if that answers soon.
func (c *cli) completeIDs(cmd *cobra.Command) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return c.ids(cmd.Context(), idWord(cmd.Use, len(args))), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag lets a shell complete the ids that a flag takes.
func (c *cli) completeFlag(cmd *cobra.Command, flag, word string) {
	must(cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return c.ids(cmd.Context(), word), cobra.ShellCompDirectiveNoFileComp
	}))
}

// ids are those of a kind; none where the gateway does not say.
func (c *cli) ids(ctx context.Context, word string) []string {
	list := idKinds[word]
	if list == nil {
		return nil
	}
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	cl, err := c.reach(adminSide)
	if err != nil {
		return nil
	}
	ids, err := list(ctx, cl)
	if err != nil {
		return nil
	}
	return ids
}

// unknownID is an error about an id that nothing has, with those that may have been meant.
type unknownID struct {
	error
	near []string
}

func (e *unknownID) Unwrap() error { return e.error }

func (e *unknownID) remedy() string { return "Near it: " + strings.Join(e.near, ", ") }

// withNear adds to an error about an unknown id the ids that are near to it.
func (c *cli) withNear(ctx context.Context, use string, args []string, err error) error {
	var p *client.Problem
	if !errors.As(err, &p) || p.Status != http.StatusNotFound {
		return err
	}
	for i, arg := range args {
		if word := idWord(use, i); word != "" {
			if near := nearIDs(arg, c.ids(ctx, word)); near != nil {
				return &unknownID{err, near}
			}
		}
	}
	return err
}

// withAgents adds to the error about an agent that nobody declared those that may have been meant, or else all there are.
func (c *cli) withAgents(ctx context.Context, agent string, err error) error {
	var p *client.Problem
	if !errors.As(err, &p) || p.Code != string(fault.AgentUndeclared) {
		return err
	}
	ids := c.ids(ctx, "AGENT")
	if near := nearIDs(agent, ids); near != nil {
		return &unknownID{fmt.Errorf("no agent %s is declared", display.Quote(agent, 80)), near}
	}
	if len(ids) > 0 {
		return &found{what: fmt.Sprintf("no agent %s is declared; declared: %s", display.Quote(agent, 80), sentence.Names(ids))}
	}
	return err
}

// nearIDs are the ids that were likely meant. Of ids that nobody chose, all of which look alike, only those that go on from what was written, or
// differ from it in two characters at most.
func nearIDs(written string, ids []string) []string {
	if slices.Contains(ids, written) {
		return nil
	}
	near := sentence.Near(written, ids)
	return slices.DeleteFunc(near, func(id string) bool {
		kind, rest, made := strings.Cut(id, "_")
		if !made || len(rest) < 20 || !slices.Contains([]string{"sess", "appr", "tok"}, kind) || strings.HasPrefix(id, written) {
			return false
		}
		differ := max(len(id), len(written)) - min(len(id), len(written))
		for i := range min(len(id), len(written)) {
			if id[i] != written[i] {
				differ++
			}
		}
		return differ > 2
	})
}

// knownCommand refuses a word that is no command, with those that are near to it.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return unknownWord(fmt.Sprintf("unknown command %s for %s", display.Quote(args[0], 80), cmd.CommandPath()), args[0], names(cmd))
}

func unknownWord(problem, word string, words []string) error {
	if near := sentence.Near(word, words); near != nil {
		return fmt.Errorf("%s; near it: %s", problem, strings.Join(near, ", "))
	}
	return errors.New(problem)
}
