package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.example/client"
	"sallyport.example/internal/daemon"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/sentence"
	"sallyport.example/internal/standing"
	"sallyport.example/internal/store"
)

func (c *cli) token() *cobra.Command {
	list := printing(c, about{use: "list", short: "List tokens, without their secrets", example: "sallyport token list"},
		func(ctx context.Context, cl *client.Client, _ []string) ([]client.Token, error) {
			return cl.Tokens(ctx)
		},
		func(t *table, all []client.Token) {
			t.row("TOKEN", "KIND", "FOR", "ROLES", "CREATED", "EXPIRES", "REVOKED")
			of := 0
			for _, tok := range all {
				if tok.Kind == "session" || tok.Kind == "hook" { // each piece of work has two, which are no use after it
					of++
					continue
				}
				t.row(tok.TokenID, tok.Kind, tok.ID, tok.Roles, tok.Created, tok.Expires, tok.Revoked)
			}
			if of > 0 {
				t.line("and %s, which end with them (--output json has all)", sentence.Count(of, "token")+" of sessions")
			}
		})
	revoke := c.asPerson(about{use: "revoke TOKEN", short: "End a token at once", long: "TOKEN is the id that sallyport token list shows.", example: "sallyport token revoke tok_01J…", args: cobra.ExactArgs(1)},
		func(ctx context.Context, cl *client.Client, args []string) error {
			if strings.HasPrefix(args[0], "spt_") {
				return usagef("that is a token itself; it is named by its id, which sallyport token list shows")
			}
			return cl.RevokeToken(ctx, args[0])
		})
	link := c.asPerson(about{
		use: "link", short: "Make a link that signs you in to the console, once",
		long: `It signs in the person whose token this command uses, with that token's roles: by default the admin of the data directory, with
SALLYPORT_TOKEN anybody else. Until it is used or expires, it is as secret as the token.`,
		example: "sallyport token link\nSALLYPORT_TOKEN=spt_person_… sallyport token link", prints: true,
	}, func(ctx context.Context, cl *client.Client, _ []string) error {
		l, err := cl.SignInLink(ctx)
		if err != nil {
			return err
		}
		if strings.HasPrefix(l.URL, "/") {
			address, err := c.address(adminSide)
			if err != nil {
				return err
			}
			l.URL = address + l.URL
		}
		if c.output == "table" {
			fmt.Fprintf(c.err, "It opens the console once, until %s:\n", when(l.Expires, reading(c.err)))
		}
		return c.print(l, func(t *table) { t.line("%s", l.URL) })
	})
	return group("token", "Make and revoke credentials", c.tokenCreate(), list, revoke, link)
}

func (c *cli) tokenCreate() *cobra.Command {
	var agent, person, host, expires, config string
	var roles []string
	cmd := c.command(about{
		use: "create", short: "Make a token and print it, this once",
		long: `Standard output is the token alone. While no gateway runs on the data directory, the token is made in it directly, by the rules of the
configuration (--config, else sallyport.yaml if it is there).`,
		example: `sallyport token create --agent research-assistant
sallyport token create --person alice --role approver --role operator --expires 90d
sallyport token create --host ci`,
	}, func(ctx context.Context, _ []string) error {
		want := client.NewToken{Roles: roles}
		for _, of := range []struct {
			kind identity.Kind
			id   string
		}{{identity.Agent, agent}, {identity.Person, person}, {identity.Host, host}} {
			if of.id != "" {
				want.Kind, want.ID = string(of.kind), of.id
			}
		}
		switch {
		case want.ID == "":
			return usagef("say who it is for: the id is empty") // --agent "$AGENT" with nothing in it
		case person != "" && len(roles) == 0:
			return usagef("a person's token needs --role")
		case person == "" && len(roles) > 0:
			return usagef("only a person's token has roles")
		}
		if expires != "" {
			d, err := lifetime(expires)
			if err != nil {
				return err
			}
			want.Expires = time.Now().Add(d).UTC().Truncate(time.Second)
		}
		secret, err := c.issue(ctx, want, config)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(c.out, secret)
		return err
	})
	f := cmd.Flags()
	f.StringVar(&agent, "agent", "", "for a declared agent")
	c.completeFlag(cmd, "agent", "AGENT")
	f.StringVar(&person, "person", "", "for a person, with --role")
	f.StringVar(&host, "host", "", "for a program that opens sessions for agents")
	f.StringSliceVar(&roles, "role", nil, "role of the person: viewer, approver, operator, auditor, admin")
	f.StringVar(&expires, "expires", "", "how long it is good: 90d, 12h (default: until it is revoked)")
	f.StringVar(&config, "config", "", "configuration file, for when no gateway runs")
	cmd.MarkFlagsOneRequired("agent", "person", "host")
	cmd.MarkFlagsMutuallyExclusive("agent", "person", "host")
	var words []string
	for _, r := range identity.Roles {
		words = append(words, string(r))
	}
	must(cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// issue asks the gateway; only if none runs on the data directory it goes to the directory itself.
func (c *cli) issue(ctx context.Context, want client.NewToken, config string) (string, error) {
	cl, err := c.reach(adminSide)
	if err == nil {
		var t *client.CreatedToken
		if t, err = cl.CreateToken(ctx, want); err == nil {
			return t.Secret, nil
		}
	}
	if os.Getenv(envURL) != "" || exitCode(err) != exitUnreachable {
		return "", err
	}
	if !store.HasDatabase(c.data) {
		return "", err // don't make a data directory by mistake
	}
	cfg, err := daemon.LoadConfig(config)
	if err != nil {
		return "", unusable(err)
	}
	return daemon.IssueToken(ctx, cfg, c.data, standing.WantedToken{Kind: want.Kind, ID: want.ID, Roles: want.Roles, Expires: want.Expires})
}

// lifetime reads a duration that may be in days.
func lifetime(s string) (time.Duration, error) {
	const longest = 100 * 365 * 24 * time.Hour
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n int
		if n, err = strconv.Atoi(days); err == nil && n <= 36500 {
			d = time.Duration(n) * 24 * time.Hour
		}
	}
	if err != nil || d <= 0 || d > longest {
		return 0, usagef("--expires is how long the token is good, such as 90d or 12h, not %q", s)
	}
	return d, nil
}
