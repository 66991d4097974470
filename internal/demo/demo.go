// Package demo shows on a terminal what the gateway does: it starts a real one in a temporary directory, with MCP servers of its own
// behind it, and drives it as an agent would, with the official MCP client.
//
// Promises: it needs nothing but this program and contacts nobody outside this machine; it leaves nothing behind; and it succeeds
// only if every step went as it says.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/client"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/daemon"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
)

// Options of Run.
type Options struct {
	Out     io.Writer
	Colours bool
	Keep    bool // leave the gateway running until the context ends
	Wait    bool // somebody looks on: wait for their answer to the request at the end
	Version string
}

const config = `
listen: 127.0.0.1:0
admin_listen: 127.0.0.1:0
upstreams:
  mail: {url: %q}
  docs: {url: %q}
  web:  {url: %q}
  bank: {url: %q}
approvals: {currency: EUR}
operations:
  mail.search_email: {expose_as: search_email, sensitivity: internal_source, effect: read}
  docs.search_docs:  {expose_as: search_docs, sensitivity: internal_source, effect: read}
  web.web_search:    {expose_as: web_search, sensitivity: external, effect: read}
  bank.transfer:     {expose_as: transfer, sensitivity: none, output: trusted, action: transfer_money, args: {payee: destination, amount: amount, subject: content}}
`

// Run shows everything. Its error says which step went otherwise.
func Run(ctx context.Context, o Options) (err error) {
	dir, err := os.MkdirTemp("", "sallyport-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	behind, err := startServers()
	if err != nil {
		return err
	}
	defer behind.close()

	file := filepath.Join(dir, "sallyport.yaml") // a file, since status and the console say whether it was changed
	if err := os.WriteFile(file, fmt.Appendf(nil, config, behind.urls["mail"], behind.urls["docs"], behind.urls["web"], behind.urls["bank"]), 0o600); err != nil {
		return err
	}
	cfg, err := daemon.LoadConfig(file)
	if err != nil {
		return err
	}
	data := filepath.Join(dir, "data")
	d, err := daemon.New(ctx, cfg, daemon.Options{Data: data, Version: o.Version, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(serving) }()
	defer func() { stop(); err = errors.Join(err, <-ended) }()

	s := &show{o: o, data: data, agentURL: d.AgentURL(), adminURL: d.AdminURL(), link: d.SignInLink, paid: behind.paid.Load}
	if err := s.play(ctx); err != nil {
		return fmt.Errorf("step %d did not go as it should: %w", s.step, err)
	}
	if !o.Keep {
		s.say("Everything is gone again. sallyport demo --keep leaves it running, with its console.")
		return nil
	}
	s.say("Still running. In another terminal:")
	s.command("sallyport status --data %s", data)
	s.command("sallyport audit query --data %s", data)
	s.command("sallyport kill --reason \"trying it\" --data %s", data)
	s.say("The console is at %s (its token: %s). Ctrl-C ends it.", s.adminURL, filepath.Join(data, "admin.token"))
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		ended <- nil // for the defer
		return errors.Join(errors.New("the gateway ended by itself"), err)
	}
}

// show is one showing.
type show struct {
	o                  Options
	data               string
	agentURL, adminURL string
	step               int
	link               func() (link string, until time.Time, err error) // into the console
	paid               func() int64                                     // transfers that the bank carried out
}

// scripted is how long what needs nobody may take.
const scripted = time.Minute

func (s *show) play(ctx context.Context) error {
	agent, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer agent.Close()
	within, cancel := context.WithTimeout(ctx, scripted)
	defer cancel()
	if err := s.script(within, agent); err != nil {
		return err
	}
	return s.decide(ctx, agent)
}

// connect introduces everybody.
func (s *show) connect(ctx context.Context) (*mcp.ClientSession, error) {
	s.title("A gateway, four MCP servers behind it, and an agent in front")
	s.say("mail and docs hold internal data, web reaches outside, bank moves money. Agents connect to %s/mcp, people to %s.", s.agentURL, s.adminURL)
	token, err := os.ReadFile(filepath.Join(s.data, "local.token"))
	if err != nil {
		return nil, err
	}
	transport := &mcp.StreamableClientTransport{
		Endpoint:   s.agentURL + "/mcp",
		HTTPClient: &http.Client{Transport: bearer(strings.TrimSpace(string(token)))},
	}
	return mcp.NewClient(&mcp.Implementation{Name: "demo-agent", Version: "1.0.0"}, nil).Connect(ctx, transport, nil)
}

// script shows what needs no person.
func (s *show) script(ctx context.Context, agent *mcp.ClientSession) error {
	for _, scene := range []func(context.Context, *mcp.ClientSession) error{s.tools, s.manifest, s.plan, s.work, s.refused, s.verify} {
		if err := scene(ctx, agent); err != nil {
			return err
		}
	}
	return nil
}

func (s *show) manifest(ctx context.Context, agent *mcp.ClientSession) error {
	s.title("The agent reads its manifest: which tool blocks which")
	var manifest client.Manifest
	if err := ask(ctx, agent, "sallyport_manifest", map[string]any{}, &manifest); err != nil {
		return err
	}
	for _, t := range manifest.Tools {
		s.item("%-14s %s", t.Name, t.Consequence)
	}
	if !slices.ContainsFunc(manifest.Tools, func(t client.ManifestTool) bool {
		return t.Name == "search_email" && slices.Contains(t.Blocks, "web_search")
	}) {
		return errors.New("the manifest does not say that search_email blocks web_search")
	}
	s.look("sallyport manifest --data %s", s.data)
	return nil
}

func (s *show) plan(ctx context.Context, agent *mcp.ClientSession) error {
	s.title("A naive plan: first the mailbox, then the web")
	var naive client.PlanAnswer
	if err := ask(ctx, agent, "sallyport_submit_plan", plan("search_email", "web_search", "search_docs"), &naive); err != nil {
		return err
	}
	s.item("the plan is %s", naive.State)
	for _, v := range naive.Violations {
		s.item("step %d, %s: %s", v.AtStep, v.Tool, v.Reason)
	}
	s.item("a safe order of the same calls: %s", strings.Join(naive.SafeOrdering, ", "))
	if naive.State != "rejected" || len(naive.Violations) == 0 || naive.SafeOrdering == nil {
		return fmt.Errorf("the plan is %s, with the safe order %v", naive.State, naive.SafeOrdering)
	}

	s.title("The same calls in the safe order")
	var good client.PlanAnswer
	if err := ask(ctx, agent, "sallyport_submit_plan", plan(naive.SafeOrdering...), &good); err != nil {
		return err
	}
	s.item("the plan is %s and sealed; the session is in its %s phase", good.State, good.Phase)
	if good.State != "approved" {
		return fmt.Errorf("the plan is %s: %s", good.State, good.Reason)
	}
	return nil
}

func (s *show) work(ctx context.Context, agent *mcp.ClientSession) error {
	s.title("The agent works: the web first, then the mailbox")
	for _, c := range [][2]string{{"web_search", "Initech offers"}, {"search_email", "offer"}} {
		r, err := s.call(ctx, agent, c[0], c[1])
		if err != nil {
			return err
		}
		if r.IsError {
			return fmt.Errorf("%s was refused: %s", c[0], text(r))
		}
		s.item("%s(%q) answered:", c[0], c[1])
		for line := range strings.Lines(text(r)) {
			s.quote(line)
		}
	}
	s.say("What comes from outside is fenced and says where it is from. The mailbox has made the session internal.")
	return nil
}

func (s *show) refused(ctx context.Context, agent *mcp.ClientSession) error {
	s.title("Now the web again, with what it knows: refused")
	r, err := s.call(ctx, agent, "web_search", "Initech offer 48,000 EUR")
	if err != nil {
		return err
	}
	var verdict client.Verdict
	if b, err := json.Marshal(r.Meta["sallyport/verdict"]); err != nil {
		return err
	} else if err := json.Unmarshal(b, &verdict); err != nil {
		return err
	}
	s.item("%s at the %s stage, %s", verdict.Decision, verdict.Stage, verdict.Code)
	s.item("%s", verdict.Reason)
	for _, b := range verdict.Because {
		s.item("because: label %s, brought by %s in %s", b.Label, b.Operation, b.CallID)
	}
	for _, m := range verdict.Remedies {
		s.item("way out (%s): %s", m.Kind, m.Text)
	}
	if !r.IsError || verdict.Code != string(fault.FlowContaminated) {
		return fmt.Errorf("the call was not refused for what the session holds (%s)", verdict.Code)
	}
	return nil
}

// tools waits until the servers behind the gateway have said what they offer.
func (s *show) tools(ctx context.Context, agent *mcp.ClientSession) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	want := []string{"search_docs", "search_email", "transfer", "web_search"}
	for {
		list, err := agent.ListTools(ctx, nil)
		if err != nil {
			return err
		}
		var names []string
		for _, t := range list.Tools {
			names = append(names, t.Name)
		}
		if !slices.ContainsFunc(want, func(name string) bool { return !slices.Contains(names, name) }) {
			s.item("tools that the agent sees: %s", strings.Join(names, ", "))
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the servers' tools did not appear: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// admin is a client of the people's side.
func (s *show) admin() (*client.Client, error) {
	token, err := os.ReadFile(filepath.Join(s.data, "admin.token"))
	if err != nil {
		return nil, err
	}
	return client.New(s.adminURL, strings.TrimSpace(string(token)))
}

func (s *show) verify(ctx context.Context, _ *mcp.ClientSession) error {
	s.title("All of it is on the record, and the record proves itself")
	admin, err := s.admin()
	if err != nil {
		return err
	}
	page, err := admin.Audit(ctx, client.AuditQuery{Action: "call"})
	if err != nil {
		return err
	}
	for _, e := range page.Entries {
		s.item("%3d %-8s %-18s %s %s", e.Index, e.Kind, e.Operation, e.Decision, e.Code)
	}
	export := filepath.Join(filepath.Dir(s.data), "audit.tar")
	if err := save(ctx, admin, export); err != nil {
		return err
	}
	pub, err := os.ReadFile(filepath.Join(s.data, audit.PublicFile))
	if err != nil {
		return err
	}
	log, err := audit.OpenExport(export)
	if err != nil {
		return err
	}
	report, err := audit.Verify(log, strings.TrimSpace(string(pub)))
	if err = errors.Join(err, log.Close()); err != nil {
		return err
	}
	s.item("%d entries checked against the signed checkpoint: %d problems, %d intents without outcome", report.Checked, len(report.Problems), len(report.Unknown))
	if !report.OK || len(report.Unknown) > 0 || report.Checked == 0 {
		return fmt.Errorf("the audit does not verify: %+v", report)
	}
	s.look("sallyport audit verify %s", s.data)
	return nil
}

func save(ctx context.Context, admin *client.Client, path string) error {
	body, err := admin.AuditExport(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, body)
	return errors.Join(err, f.Close())
}

// bearer sends the agent's token with every request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func plan(tools ...string) map[string]any {
	var steps []client.PlanStep
	for _, t := range tools {
		steps = append(steps, client.PlanStep{Tool: t, Justification: "The person asked what to know before the talk with Initech."})
	}
	return map[string]any{"steps": steps}
}

// ask calls one of the gateway's own tools.
func ask(ctx context.Context, agent *mcp.ClientSession, tool string, arguments map[string]any, into any) error {
	r, err := agent.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return err
	}
	if r.IsError {
		return fmt.Errorf("%s: %s", tool, text(r))
	}
	b, err := json.Marshal(r.StructuredContent)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

func (s *show) call(ctx context.Context, agent *mcp.ClientSession, tool, query string) (*mcp.CallToolResult, error) {
	return agent.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"query": query}})
}

func text(r *mcp.CallToolResult) string {
	var all []string
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			all = append(all, t.Text)
		}
	}
	return strings.Join(all, "\n")
}

const (
	bold  = "\x1b[1m"
	dim   = "\x1b[2m"
	plain = "\x1b[0m"
)

func (s *show) paint(colour, words string) string {
	if !s.o.Colours {
		return words
	}
	return colour + words + plain
}

// words formats a sentence; whatever is in it can't move the cursor.
func words(format string, args ...any) string {
	return display.Line(fmt.Sprintf(format, args...), 1000)
}

func (s *show) title(format string, args ...any) {
	s.step++
	fmt.Fprintf(s.o.Out, "\n%s\n", s.paint(bold, fmt.Sprintf("%d. ", s.step)+words(format, args...)))
}

func (s *show) say(format string, args ...any) {
	fmt.Fprintf(s.o.Out, "   %s\n", words(format, args...))
}

func (s *show) item(format string, args ...any) {
	fmt.Fprintf(s.o.Out, "   - %s\n", words(format, args...))
}

func (s *show) quote(line string) {
	fmt.Fprintf(s.o.Out, "       %s\n", s.paint(dim, words("| %s", strings.TrimRight(line, "\n"))))
}

func (s *show) command(format string, args ...any) {
	fmt.Fprintf(s.o.Out, "     %s\n", words(format, args...))
}

// look says where to see the same in a gateway that stays.
func (s *show) look(format string, args ...any) {
	if s.o.Keep {
		s.say("To see it yourself: %s", words(format, args...))
	}
}
