package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.example/client"
	"sallyport.example/internal/console"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/killsocket"
	"sallyport.example/internal/sentence"
)

// asPerson makes a command that speaks to the people's side.
func (c *cli) asPerson(a about, run func(ctx context.Context, cl *client.Client, args []string) error) *cobra.Command {
	return c.speaking(adminSide, a, run)
}

// speaking makes a command that speaks to one side of the gateway.
func (c *cli) speaking(to side, a about, run func(ctx context.Context, cl *client.Client, args []string) error) *cobra.Command {
	a.inside = to == agentSide
	cmd := c.command(a, func(ctx context.Context, args []string) error {
		cl, err := c.reach(to)
		if err != nil {
			return err
		}
		if err = run(ctx, cl, args); err != nil && to == adminSide {
			return c.withNear(ctx, a.use, args, err)
		}
		return err
	})
	if to == adminSide {
		c.completeIDs(cmd)
	}
	return cmd
}

// printing makes a command that prints what the people's side answers.
func printing[T any](c *cli, a about, ask func(ctx context.Context, cl *client.Client, args []string) (T, error), rows func(t *table, v T)) *cobra.Command {
	a.prints = true
	return c.asPerson(a, func(ctx context.Context, cl *client.Client, args []string) error {
		v, err := ask(ctx, cl, args)
		if err != nil {
			return err
		}
		return c.print(v, func(t *table) { rows(t, v) })
	})
}

// state is how a gateway is.
type state struct {
	Address    string             `json:"address"`
	Ready      bool               `json:"ready"`
	Problem    string             `json:"problem,omitempty"`
	KillSwitch *client.KillStatus `json:"kill_switch"`
	Mode       *client.Mode       `json:"mode"`
	Anchor     *client.Anchor     `json:"anchor"`

	Configuration *client.Configuration `json:"configuration"`

	Servers   []client.Server   `json:"servers"`
	Sessions  []client.Session  `json:"open_sessions"`
	Quotas    []client.Quota    `json:"quotas,omitempty"`
	Throttles []client.Throttle `json:"throttles,omitempty"`

	Waiting struct {
		Requests     int      `json:"requests"` // at most 500 are counted
		Plans        int      `json:"plans"`
		Alerts       int      `json:"alerts"`                 // open ones
		Declarations []string `json:"declarations,omitempty"` // agents whose calls are refused before people have approved their declarations
		Definitions  []string `json:"definitions,omitempty"`  // operations that agents don't get before somebody has read what their servers say
	} `json:"waiting"`
	Quarantined []string `json:"quarantined_agents,omitempty"`
	Degraded    []string `json:"degraded_agents,omitempty"` // an agent that they depend on is aside
	Failing     []string `json:"failing_servers,omitempty"`

	Breakers []client.Breaker `json:"open_breakers,omitempty"`
}

// gather asks the gateway. What its store has is left out while that is away, which Problem says.
func (s *state) gather(ctx context.Context, cl *client.Client) (err error) {
	if s.KillSwitch, err = cl.KillStatus(ctx); err != nil {
		return err
	}
	if s.Servers, err = cl.Servers(ctx); err != nil {
		return err
	}
	if s.Anchor, err = cl.Anchor(ctx); err != nil {
		return err
	}
	if s.Configuration, err = cl.Configuration(ctx); err != nil {
		return err
	}
	if s.Mode, err = cl.Mode(ctx); err != nil {
		return err
	}
	for _, server := range s.Servers {
		if server.State != "up" {
			s.Failing = append(s.Failing, server.ID)
		}
	}
	breakers, err := cl.Breakers(ctx)
	if err != nil {
		return err
	}
	alerts, err := cl.Alerts(ctx, "open")
	if err != nil {
		return err
	}
	s.Waiting.Alerts = len(alerts)
	s.Breakers = slices.DeleteFunc(breakers, func(b client.Breaker) bool { return b.State == "closed" })
	if notReady := cl.Ready(ctx); notReady != nil {
		s.Problem = notReady.Error()
	}
	s.Ready = s.Problem == ""
	err = s.fromStore(ctx, cl)
	var p *client.Problem
	if err != nil && !s.Ready && errors.As(err, &p) {
		return nil
	}
	return err
}

func (s *state) fromStore(ctx context.Context, cl *client.Client) error {
	page, err := cl.Sessions(ctx, client.SessionQuery{State: "open"})
	if err != nil {
		return err
	}
	s.Sessions = page.Sessions
	limits, err := cl.Limits(ctx, "")
	if err != nil {
		return err
	}
	s.Quotas, s.Throttles = limits.Quotas, limits.Throttles
	agents, err := cl.Agents(ctx)
	if err != nil {
		return err
	}
	for _, a := range agents {
		if a.Approval != nil && a.Approval.State != "approved" {
			s.Waiting.Declarations = append(s.Waiting.Declarations, a.AgentID)
		}
		if a.Quarantine != nil {
			s.Quarantined = append(s.Quarantined, a.AgentID)
		}
		if a.Degraded != nil {
			s.Degraded = append(s.Degraded, a.AgentID)
		}
	}
	tools, err := cl.Tools(ctx)
	if err != nil {
		return err
	}
	for _, t := range tools {
		if t.PendingHash != "" {
			s.Waiting.Definitions = append(s.Waiting.Definitions, t.Operation)
		}
	}
	slices.Sort(s.Waiting.Definitions)
	requests, err := cl.Approvals(ctx, client.ApprovalQuery{State: "pending", Limit: 500})
	if err != nil {
		return err
	}
	s.Waiting.Requests = len(requests.Approvals)
	plans, err := waitingPlans(ctx, cl)
	s.Waiting.Plans = len(plans)
	return err
}

func (c *cli) status() *cobra.Command {
	return c.asPerson(about{use: "status", short: "Show how the running gateway is, what waits for people and what fails", example: "sallyport status", prints: true},
		func(ctx context.Context, cl *client.Client, _ []string) error {
			address, err := c.address(adminSide)
			if err != nil {
				return err
			}
			s := state{Address: address}
			if err := s.gather(ctx, cl); err != nil {
				return err
			}
			return c.judged(s, s.Ready, s.rows)
		})
}

func (s *state) rows(t *table) {
	t.field("console", s.Address)
	if s.Ready {
		t.field("gateway", "ready")
	} else {
		t.field("gateway", "not ready: "+s.Problem)
	}
	mode := s.Mode.Mode
	if s.Mode.Text != "" {
		mode = fmt.Sprintf("%s (since the start: %s, %s)", s.Mode.Text, sentence.Count(int(s.Mode.Observed.Questions), "question"), sentence.Count(int(s.Mode.Observed.Refusals), "refusal"))
	}
	t.field("mode", mode)
	t.field("sessions", fmt.Sprintf("%d open", len(s.Sessions)))
	s.openSessions(t)
	t.quotas(s.Quotas, true)
	t.throttles(s.Throttles, true)
	if s.Anchor.State != "not configured" { // doctor says so
		t.field("anchor", s.Anchor.Text)
	}
	t.field("configuration", t.sinceLoaded(s.Configuration))
	switches(t, s.KillSwitch)
	var waits []string
	for _, w := range []struct {
		n         int
		what, how string
	}{
		{s.Waiting.Alerts, "alert", "sallyport alerts list"},
		{s.Waiting.Requests, "request", "sallyport approvals list"}, {s.Waiting.Plans, "plan", "sallyport approvals list"},
		{len(s.Waiting.Declarations), "agent's declaration", "sallyport agents approve --all --reason TEXT"},
		{len(s.Waiting.Definitions), "tool definition", "sallyport tools accept --all"},
	} {
		if w.n > 0 {
			waits = append(waits, sentence.Count(w.n, w.what)+" ("+w.how+")")
		}
	}
	t.field("waits", cmp.Or(strings.Join(waits, ", "), "nothing"))
	t.field("quarantined", strings.Join(s.Quarantined, ", "))
	if len(s.Degraded) > 0 {
		t.field("degraded", strings.Join(s.Degraded, ", ")+" (sallyport agents show AGENT says why)")
	}
	for _, b := range s.Breakers {
		t.field("breaker open", b.Name+" since "+t.show(*b.Since)+": "+b.Cause)
	}
	if len(s.Failing) > 0 {
		t.field("fails", strings.Join(s.Failing, ", ")+" (sallyport doctor says what to do)")
	}
	servers(t, s.Servers)
}

// sinceLoaded says since when a configuration is in force, and whether the files agree with it.
func (t *table) sinceLoaded(c *client.Configuration) string {
	text := "loaded " + t.show(c.LoadedAt) + " " + console.HowLoaded(c.LoadedBy)
	switch {
	case c.Unusable:
		return text + "; the files can't be loaded as they are: sallyport lint says why"
	case c.Differs:
		const most = 5
		names := strings.Join(c.Changed[:min(len(c.Changed), most)], ", ")
		if more := len(c.Changed) - most; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		way := "sallyport reload"
		if slices.ContainsFunc(c.Changed, func(field string) bool {
			return strings.HasPrefix(field, "upstreams.") && !strings.Contains(field, ".labels")
		}) {
			way = "a server takes a restart, all else takes sallyport reload"
		}
		return text + "; the files were changed (" + names + "): " + way
	}
	return text
}

func (c *cli) reload() *cobra.Command {
	return c.asPerson(about{
		use: "reload", short: "Put the changed configuration in force without a restart", prints: true, example: "sallyport reload\nsallyport lint && sallyport reload",
		long: `The gateway reads its configuration again, with sallyport.env, the declarations and the policies, checks all of it and puts it in force as a whole, for
calls that begin later. Where anything is wrong, or a change needs a restart (servers, listeners, comm, notify, audit, console, approvals.hold,
limits.network_timeout, limits.file_timeout, limits.memory), nothing changes, and each field is named. It needs the role admin, and is on record with what changed. SIGHUP to sallyport serve does the same. Sessions keep their labels.`,
	}, func(ctx context.Context, cl *client.Client, _ []string) error {
		done, err := cl.Reload(ctx)
		var refused *client.Problem
		if errors.As(err, &refused) && len(refused.Errors) > 1 && c.output != "json" {
			for _, e := range refused.Errors {
				fmt.Fprintln(c.err, display.Terminal(strings.TrimPrefix(e.Field+": "+e.Problem, ": "), 2000))
			}
		}
		if err != nil {
			return err
		}
		return c.print(done, func(t *table) {
			t.field("configuration", t.sinceLoaded(&done.Configuration))
			if len(done.Changes) == 0 {
				t.field("changed", "nothing")
				return
			}
			t.line("")
			t.row("CHANGED", "FROM", "TO")
			for _, f := range done.Changes {
				name := f.Field
				if f.Agent != "" {
					name = "the agent " + f.Agent + ": " + f.Field
				}
				t.row(name, cmp.Or(string(f.From), "-"), cmp.Or(string(f.To), "-"))
			}
		})
	})
}

// maxShownSessions bounds the sessions that status names.
const maxShownSessions = 5

// openSessions shows the newest open sessions, with what they have left, and how people begin another piece of work.
func (s *state) openSessions(t *table) {
	for i, one := range s.Sessions {
		if i == maxShownSessions {
			t.field("", "the others: sallyport sessions list --state open")
			break
		}
		line := one.SessionID + ", budget left: " + budgetLeft(one)
		between := ", holds "
		for _, l := range one.Labels {
			line, between = line+between+l.Label, ", "
		}
		t.field("  "+one.AgentID, line)
		switch {
		case !one.Own || one.State != "open":
		case one.Next != nil:
			t.field("", one.AgentID+": the next conversation gets a fresh session, ordered by "+identity.Shown(one.Next.By))
		case len(one.Labels) > 0 || one.BudgetLeftMS == 0:
			t.field("", "begin another piece of work: sallyport run --agent "+one.AgentID+" -- COMMAND, or sallyport sessions next --agent "+one.AgentID)
		}
	}
}

func servers(t *table, all []client.Server) {
	if len(all) == 0 {
		t.field("servers", "none")
		return
	}
	t.line("")
	t.row("SERVER", tint("STATE"), "SINCE", "SANDBOX", "TOOLS", "RESTARTS", "LAST ERROR")
	for _, s := range all {
		t.row(s.ID, tint(s.State), s.Since, cmp.Or(s.Sandbox, "-"), fmt.Sprintf("%d of %d usable", s.Usable, s.Tools), s.Restarts, s.LastError)
	}
	for _, s := range all {
		for _, why := range s.Unusable {
			t.line("%s: %s", s.ID, why)
		}
		for _, found := range s.Suspicions {
			t.line("%s: what it says about itself looks like an order, or is hidden: %s in %s: %s", s.ID, found.Kind, found.Where, found.Quote)
		}
	}
}

func switches(t *table, k *client.KillStatus) {
	state := func(s client.Switch) string {
		if !s.Active {
			return "running"
		}
		text := "STOPPED since " + t.show(s.Since) + " by " + identity.Shown(s.By) + reasonText(s.Reason)
		if !s.Durable {
			text += " (not yet in the store; it acts all the same)"
		}
		return text
	}
	t.field("all agents", state(k.Global))
	for _, id := range slices.Sorted(maps.Keys(k.Agents)) {
		t.field("  "+id, state(k.Agents[id]))
	}
}

func (c *cli) kill() *cobra.Command {
	return c.switching((*client.Client).Kill, true, about{
		use: "kill [AGENT]", short: "Stop an agent, or all of them, at once",
		long: `Calls that run are cancelled and their results discarded; new ones are refused. It acts before it is written down, and survives restarts. Without
AGENT it stops everything. An AGENT that nobody declared needs --yes. Where the gateway does not answer over HTTP within two seconds or has no room, or there is no token,
kill without AGENT goes through kill.sock in the data directory (--data), which takes no token: who can write there may stop everything.`,
		example: "sallyport kill --reason \"strange mails are going out\"\nsallyport kill research-assistant --reason \"asks for passwords\"",
	})
}

func (c *cli) unkill() *cobra.Command {
	return c.switching((*client.Client).Unkill, false, about{
		use: "unkill [AGENT]", short: "Let an agent, or all of them, go on",
		long:    "Without AGENT it takes the global switch back; agents that were stopped by name stay stopped.",
		example: "sallyport unkill --reason \"false alarm\"\nsallyport unkill research-assistant --reason \"prompt fixed\"",
	})
}

// switchAct changes the switch of an agent, or with "" that of all.
type switchAct func(cl *client.Client, ctx context.Context, agent, reason string) (*client.KillStatus, error)

// switching makes a command that changes a kill switch. stops: it stops an agent, which has to be declared.
func (c *cli) switching(act switchAct, stops bool, a about) *cobra.Command {
	var reason string
	var yes bool
	a.args, a.prints = cobra.MaximumNArgs(1), true
	cmd := c.command(a, func(ctx context.Context, args []string) error {
		agent := ""
		if len(args) > 0 {
			if agent = args[0]; agent == "" {
				return usagef("the agent's id is empty; leave it out for all agents") // "$AGENT" unset must not mean everything
			}
		}
		k, err := c.switchOverHTTP(ctx, agent, reason, act, stops, yes)
		var silent *unheard
		if stops && errors.As(err, &silent) {
			k, err = c.killOverSocket(ctx, agent, reason, silent)
		}
		if err != nil {
			return c.withNear(ctx, a.use, args, err)
		}
		return c.print(k, func(t *table) { switches(t, k) })
	})
	c.completeIDs(cmd)
	reasonFlag(cmd, &reason)
	if stops {
		yesFlag(cmd, &yes)
	}
	return cmd
}

// killWithin is how long kill waits for the gateway's answer over HTTP.
const killWithin = 2 * time.Second

// unheard is why the gateway could not be told over HTTP.
type unheard struct{ error }

func (e *unheard) Unwrap() error { return e.error }

func (c *cli) switchOverHTTP(ctx context.Context, agent, reason string, act switchAct, stops, yes bool) (*client.KillStatus, error) {
	cl, err := c.reach(adminSide)
	if err != nil {
		return nil, &unheard{err}
	}
	bounded := ctx
	if stops {
		if agent != "" {
			if err := c.declared(ctx, cl, agent, yes); err != nil {
				return nil, err
			}
		}
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, killWithin)
		defer cancel()
	}
	k, err := act(cl, bounded, agent, reason)
	var silent *client.Unreachable
	var refused *client.Problem
	switch {
	case stops && errors.As(err, &refused) && (refused.Status >= http.StatusInternalServerError || refused.Code == string(fault.LimitRate)): // it has no room for the request
		return nil, &unheard{err}
	case err != nil && bounded.Err() != nil && ctx.Err() == nil:
		return nil, &unheard{unreachable("the gateway did not answer within %s", killWithin)}
	case errors.As(err, &silent):
		return nil, &unheard{err}
	}
	// It acts already; give the store a moment to have it too, so that what is printed is not alarming for nothing.
	for range 10 {
		if err != nil || agent == "" && k.Global.Durable || agent != "" && k.Agents[agent].Durable {
			break
		}
		pause(ctx, 50*time.Millisecond)
		now, failed := cl.KillStatus(bounded)
		if failed != nil {
			break // the switching itself was answered
		}
		k = now
	}
	return k, err
}

// killOverSocket pulls the switch of all agents through the socket in the data directory. An address in the environment may be that of another gateway
// than the one whose directory this is, and one agent's switch is not to be had that way: nothing else is stopped then.
func (c *cli) killOverSocket(ctx context.Context, agent, reason string, why *unheard) (*client.KillStatus, error) {
	path := filepath.Join(c.data, killsocket.Name)
	switch {
	case agent != "":
		return nil, fmt.Errorf("%w. Only the switch of all agents has another way: sallyport kill --reason TEXT", why.error)
	case os.Getenv(envURL) != "":
		return nil, fmt.Errorf("%w. Where the gateway runs, kill goes through its data directory if %s is not set: env -u %s sallyport kill --data DIR --reason TEXT", why.error, envURL, envURL)
	}
	ctx, cancel := context.WithTimeout(ctx, killWithin)
	defer cancel()
	now, err := killsocket.Pull(ctx, c.data, reason)
	switch {
	case errors.Is(err, killsocket.ErrNoAnswer):
		return nil, unreachable("over HTTP: %v. Through %s: %v. It may be on: look with sallyport status. SIGUSR1 to the gateway's process switches it on, too", why.error, path, err)
	case err != nil:
		return nil, fmt.Errorf("%w (%s is no way either: %v)", why.error, path, err)
	}
	fmt.Fprintf(c.err, "sallyport: the gateway was not told over HTTP (%s); its kill switch was switched on through %s\n", printable(why.Error()), printable(path))
	return &client.KillStatus{
		Global: client.Switch{Active: now.Active, Since: now.Since, By: now.By, Reason: now.Reason, Durable: now.Durable},
		Agents: map[string]client.Switch{}, Epoch: now.Epoch, Replicas: []client.Replica{},
	}, nil
}

// declared refuses an id that no declared agent has, with those that are near, unless the person said yes to it: the agent that was meant would
// go on. Where the declarations can't be asked for, it says so and lets the command act, since stopping waits for nothing.
func (c *cli) declared(ctx context.Context, cl *client.Client, agent string, yes bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	all, err := cl.Agents(ctx)
	var ids []string
	for _, a := range all {
		ids = append(ids, a.AgentID)
	}
	switch near := sentence.Near(agent, ids); {
	case slices.Contains(ids, agent):
		return nil
	case err != nil:
		fmt.Fprintf(c.err, "sallyport: whether %s is declared can't be told now; it is stopped by that id\n", display.Quote(agent, 80))
		return nil
	case yes:
		fmt.Fprintf(c.err, "sallyport: no agent %s is declared: see sallyport agents list\n", display.Quote(agent, 80))
		return nil
	case near != nil:
		return &found{what: fmt.Sprintf("no agent %s is declared, so nothing was stopped; near it: %s. --yes goes on with this id", display.Quote(agent, 80), sentence.Names(near))}
	}
	return &found{what: fmt.Sprintf("no agent %s is declared, so nothing was stopped: see sallyport agents list. --yes goes on with this id", display.Quote(agent, 80))}
}

func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVar(yes, "yes", false, "go on although no agent of this id is declared")
}

func reasonFlag(cmd *cobra.Command, reason *string) {
	needed(cmd, reason, "reason", "why, for the record")
}

// needed adds a flag that the command can't do without.
func needed(cmd *cobra.Command, value *string, name, usage string) {
	cmd.Flags().StringVar(value, name, "", usage)
	must(cmd.MarkFlagRequired(name))
}

func reasonText(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}
