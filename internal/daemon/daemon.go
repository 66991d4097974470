// Package daemon builds the gateway of a configuration, runs it and stops it. It alone knows which store, which upstream client
// and which adapters implement the interfaces of the other packages; tests start it exactly as the binary does.
//
// Promises: New either returns a daemon that listens or leaves nothing behind; Run returns when its context ends, after calls in
// flight have had their chance to finish and everything that was answered is durable; Close twice is harmless.
package daemon

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"sallyport.example/guard"
	"sallyport.example/internal/agent"
	"sallyport.example/internal/agent/approved"
	"sallyport.example/internal/anchor"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/comm"
	"sallyport.example/internal/console"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/httpapi"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/knowledge/ask"
	"sallyport.example/internal/knowledge/library"
	"sallyport.example/internal/mcpapi"
	"sallyport.example/internal/memory"
	"sallyport.example/internal/modelapi"
	"sallyport.example/internal/models"
	"sallyport.example/internal/monitor"
	"sallyport.example/internal/notify"
	"sallyport.example/internal/policy"
	"sallyport.example/internal/quota"
	"sallyport.example/internal/run"
	runs "sallyport.example/internal/runner"
	"sallyport.example/internal/schema"
	"sallyport.example/internal/search"
	"sallyport.example/internal/sentence"
	"sallyport.example/internal/statement"
	"sallyport.example/internal/store"
	"sallyport.example/internal/threat"
	"sallyport.example/internal/trial"
	"sallyport.example/internal/upstream"
	"sallyport.example/internal/web"
)

const (
	// drain is the time that calls in flight have to finish once the daemon stops. Then they are cancelled.
	drain = 10 * time.Second
	// lastWords is the time that the verdicts about cancelled calls have to reach their callers.
	lastWords = 3 * time.Second
)

// asksPerMinute bounds the questions that one agent may ask people in any minute: people answer no more.
const asksPerMinute = 300

// Options holds what a daemon needs besides its configuration.
type Options struct {
	Data    string // data directory, created if it is not there
	Version string
	Log     *slog.Logger
	// Labels makes what proposes labels for a configuration file on the console, and puts on record what is taken; nil: nothing does.
	Labels func(config string, record func(ctx context.Context, e audit.Entry) error) console.LabelDesk
	// Process is the process whose children are the gateway's servers and programs, and nobody's hands; 0: this one. A test whose browser is a child of
	// its own says that it is none (-1).
	Process int
}

// Daemon is a running gateway.
type Daemon struct {
	o     Options
	store *store.DB
	gate  *gateway.Gateway
	runs  *runs.Runner
	up    *upstream.Manager
	asks  *models.Set
	trial *trial.Trials
	comm  *comm.Comm
	books *library.Library
	own   *ask.Own // asks models for people and the knowledge store
	face  *mcpapi.Face
	api   *httpapi.API

	requests *memory.Budget // what requests may hold of the process's memory, one for all doors
	approved *approved.Book // which declarations people approved

	adminToken string // of the person admin, where this start made it

	teller   *teller
	index    *search.Index     // of the words in the log; nil: switched off
	counters *monitor.Counters // what happened, by the hour; the teller has them run
	anchored anchoring
	warming  sync.WaitGroup // what is got ready while nobody waits for it

	agents, people door
	killWay

	reloading
	closing closing
}

// closing is the one end, and how it went.
type closing struct {
	sync.Once
	err error
}

// door is one listener with its server.
type door struct {
	ln   net.Listener
	http *http.Server
}

func (d *door) url() string { return "http://" + d.ln.Addr().String() }

// New builds everything, opens both listeners and writes addresses.json and the first tokens. Nothing is served before Run.
func New(ctx context.Context, cfg *Config, o Options) (d *Daemon, err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	d = &Daemon{o: o}
	d.cfg.Store(cfg)
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
			d = nil
		}
	}()
	agents, err := d.declarations()
	if err != nil {
		return d, err
	}
	policies, err := policy.Load(cfg.path(cfg.Policies))
	if err != nil {
		return d, err
	}
	if err := dataDir(o.Data); err != nil {
		return d, err
	}
	// Listen before anything is started: a port in use should cost nothing.
	if d.agents.ln, err = listen("listen", cfg.Listen, o.Data); err != nil {
		return d, err
	}
	if d.people.ln, err = listen("admin_listen", cfg.AdminListen, o.Data); err != nil {
		return d, err
	}
	agentsRoom, peopleRoom := web.Room()
	d.agents.ln, d.people.ln = web.Bound(d.agents.ln, agentsRoom, o.Log), web.Bound(d.people.ln, peopleRoom, o.Log)
	signer, err := audit.LoadOrCreateKey(o.Data)
	if err != nil {
		return d, err
	}
	if d.store, err = store.Open(o.Data, store.Options{Signer: signer, Log: o.Log, Segment: cfg.Audit.perSegment()}); err != nil {
		return d, err
	}
	if err := d.checkAnchor(ctx); err != nil {
		return d, err
	}
	if err := d.buildGateway(ctx, agents, policies); err != nil {
		return d, err
	}
	d.requests = memory.ForLimit(d.config().MemoryLimit())
	if err := d.buildRunner(ctx); err != nil {
		return d, err
	}
	if err := d.firstTokens(ctx, agents); err != nil {
		return d, err
	}
	if err := d.recordStart(ctx, agents, policies); err != nil {
		return d, err
	}
	d.openKillSocket()
	if err := d.buildFaces(); err != nil {
		return d, err
	}
	if err := d.buildTeller(); err != nil {
		return d, err
	}
	if err := d.trial.Clean(ctx, byStart); err != nil {
		d.o.Log.Error("what a trial has left is not cleaned up; it is of no use to anybody", "error", err)
	}
	if len(cfg.Upstreams) > 0 { // it takes up to ten seconds, in which nothing else is said
		o.Log.Info("starting the servers; their packages are fetched where they are not here yet", "servers", len(cfg.Upstreams))
	}
	if err := d.up.Start(ctx); err != nil {
		return d, err
	}
	if cfg.parses() {
		d.warming.Go(statement.Warm)
	}
	return d, d.writeAddresses()
}

// dataDir makes the data directory and refuses one that others could read.
func dataDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("the data directory can't be made: %w (choose another with --data)", err)
	}
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("the data directory can't be read: %w (choose another with --data)", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return fmt.Errorf("others can read the data directory %s, and that can't be changed: %w", dir, err)
		}
	}
	return nil
}

// declarations loads the agents. Without a folder there is one, named local.
func (d *Daemon) declarations() (agent.Set, error) {
	set, problems := d.config().declarations()
	if err := blocking(problems); err != nil {
		return set, err
	}
	for _, p := range problems {
		level := slog.LevelWarn
		if p.Severity == agent.P0 { // it is used all the same: its output is held to the schema, however much that allows
			level = slog.LevelError
		}
		d.o.Log.Log(context.Background(), level, "agent declaration", "problem", p.String())
	}
	return set, nil
}

// blocking is the error of the problems that keep declarations out of use.
func blocking(problems []Problem) error {
	if stop := slices.DeleteFunc(slices.Clone(problems), func(p Problem) bool { return !p.Blocks() }); len(stop) > 0 {
		return &ConfigError{stop}
	}
	return nil
}

// declarations are those of the agents' folder, with what is wrong with them.
func (c *Config) declarations() (agent.Set, []Problem) {
	if c.Agents == "" {
		return agent.NewSet(agent.Local()), nil
	}
	set, problems := agent.Load(c.path(c.Agents), c.pinned()...)
	return set, append(append(problems, c.tierProblems(set)...), c.rootProblems(set)...)
}

// listen opens a listener. An address in use is most often in use by the gateway itself, which was started already, or by that of another project.
func listen(field, addr, data string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		if err := store.InUse(data); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s: %s is in use by another program: stop it, or choose another address in sallyport.yaml (port 0 picks a free one). If it is the gateway of another project, give this one other ports, in the client's file as well", field, addr)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return ln, nil
}

func (d *Daemon) buildGateway(ctx context.Context, agents agent.Set, policies *policy.Set) error {
	cfg := d.config()
	detector, err := threat.New()
	if err != nil {
		return err
	}
	key, err := audit.ReadFile(filepath.Join(d.o.Data, "signing.key"))
	if err != nil {
		return err
	}
	issuer, err := guard.NewIssuer(derived(key, "attribution"))
	if err != nil {
		return err
	}
	servers, paths, err := cfg.servers(d.o.Data)
	if err != nil {
		return err
	}
	for _, id := range cfg.unconfined() {
		d.o.Log.Warn("a server runs without a sandbox: it can read the gateway's keys and tokens, and act as any person", "server", id, "remedy", "remove sandbox: none from its entry")
	}
	if d.comm, err = comm.New(d.commOptions()); err != nil {
		return err
	}
	if d.books, err = d.openLibrary(ctx, detector); err != nil {
		return err
	}
	d.up, err = upstream.New(servers, upstream.Options{
		Log: d.o.Log, Gateway: paths, Own: d.listeners(),
		Definitions: func(server string, defs []call.Definition) {
			if err := d.gate.Catalogue().UpdateDefinitions(context.Background(), server, defs); err != nil {
				d.o.Log.Error("new tool definitions could not be written down; they are not exposed", "server", server, "error", err)
			}
			for _, s := range d.up.Status() {
				if s.ID != server {
					continue
				}
				if err := d.gate.Catalogue().HearWords(context.Background(), server, wordsOf(s)); err != nil {
					d.o.Log.Error("what a server says about itself looks like orders, and this could not be written down", "server", server, "error", err)
				}
			}
			if u := d.gate.Catalogue().Usability()[server]; u.Usable < u.Tools {
				d.o.Log.Warn("not all tools can be used", "server", server, "tools", usability(u))
			}
		},
		ResourceUpdated: func(server, uri string) {
			if d.face != nil {
				d.face.ResourceUpdated(server, uri)
			}
		},
	})
	if err != nil {
		return err
	}
	d.asks = models.New(cfg.providers())
	if err := d.openApprovals(ctx); err != nil {
		return err
	}
	settings, err := cfg.settings(d.commands(), agents, policies)
	if err != nil {
		return err
	}
	d.gate, err = gateway.New(ctx, gateway.Options{
		Settings: settings, Store: d.store, Upstreams: trial.Upstreams{Upstreams: d.up}, Models: d.asks, Detector: detector, Issuer: issuer, MaskKey: derived(key, "masked secrets"),
		Launch: cfg.launchHash, Servers: cfg.launched(), Commands: d.commands(), RemoveFiles: d.comm.RemoveFiles,
		Unapproved:  d.approved.Refusal,
		Environment: hex.EncodeToString(derived(key, "environment")[:8]),
		Schema: func(raw json.RawMessage) (func([]byte) error, error) {
			s, err := schema.Compile(raw)
			if err != nil {
				return nil, err
			}
			return s.Validate, nil
		},
		History:    func(ctx context.Context) ([]audit.Entry, error) { return d.breakerHistory(ctx, agents) },
		SeenMemory: d.config().MemoryLimit() / 4, // requests may hold half of it
		Log:        d.o.Log,
	})
	return err
}

// buildRunner makes what carries runs. It ends those that the process before this one left.
func (d *Daemon) buildRunner(ctx context.Context) (err error) {
	d.runs, err = runs.New(ctx, runs.Options{
		Gateway: d.gate, Store: d.store, AgentURL: d.AgentURL, Dir: filepath.Join(d.o.Data, "runs"), Env: os.Getenv, Hosts: func(host string) []string { return d.config().runsFor(host) },
		Alert: func(r run.Run) { d.teller.timeout(r) }, Memory: d.requests, Log: d.o.Log, Documents: d.passages, Confirm: d.confirm,
	})
	return err
}

func (d *Daemon) buildFaces() error {
	signIn, err := d.oidc()
	if err != nil {
		return err
	}
	d.face = mcpapi.New(d.gate, mcpapi.Options{
		Memory:       d.requests,
		Authenticate: d.gate.Standing().Authenticate, Subscribe: d.gate.Catalogue().Subscribe,
		Log: d.o.Log, Version: d.o.Version, Release: d.up.Release, Hold: time.Duration(d.config().Approvals.Hold),
		Console: func(approval string) string { return d.consoleURL() + "/approvals/" + approval },
		Recommends: func(p identity.Principal) (json.RawMessage, bool) {
			id := p.Agent
			if p.Kind == identity.Agent {
				id = p.ID
			}
			if decl, ok := d.gate.Agents().Get(id); ok && decl.Recommends() {
				return decl.OutputSchema, true
			}
			return nil, false
		},
		Recommend: func(ctx context.Context, p identity.Principal, session string, output json.RawMessage) (any, error) {
			rec, err := d.runs.Submit(ctx, p, session, output)
			return httpapi.Recommended{RecommendationID: rec.ID, State: rec.State, Why: rec.Why}, err
		},
	})
	asks := modelapi.New(d.gate, modelapi.Options{Memory: d.requests, Authenticate: d.gate.Standing().Authenticate, Log: d.o.Log}).Handler()
	if d.trial, err = d.trials(); err != nil {
		return err
	}
	d.counters = monitor.New(d.store, time.Now, d.o.Log)
	d.store.OnEntries(d.counters.Note)
	d.own = d.modelAsker()
	d.books.StartEmbedding()
	found, err := d.openSearch()
	if err != nil {
		return err
	}
	d.api = httpapi.New(d.gate, d.store, httpapi.Options{
		Runs: d.runs, Process: cmp.Or(d.o.Process, os.Getpid()), Confirm: func() bool { return d.config().People.confirms() }, Trials: d.trial, Approved: d.approved, Deployment: d.deployment, Memory: d.requests, Log: d.o.Log, Version: d.o.Version, Agents: d.gate.Agents, People: func() map[string][]identity.Role { return d.config().persons() }, Upstreams: d.servers,
		Source: func(ctx context.Context) (audit.Source, error) { return d.store.Source(ctx) },
		Public: d.consoleURL(), Library: d.books, Collector: d.collector(), AddsTo: func(host string) []string { return d.config().addsTo(host) }, Claims: d.claims(), Labels: d.labelDesk(), OIDC: signIn, Changes: d.changes, Configuration: d.Configuration, Reload: d.Reload, Anchor: func(ctx context.Context) anchor.Status { return d.anchored.watch.Status(ctx) },
		Deliveries: func(ctx context.Context) ([]console.Deliveries, error) { return d.teller.deliveries(ctx) }, Counters: d.counters, Search: found, Metrics: d.metrics(),
	})
	// Paths are compared as they came: a mux would clean and redirect them, and what was judged would not be what is served.
	mcp, api := d.face.Handler(), d.api.Agent()
	agents := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/mcp" || strings.HasPrefix(r.URL.Path, "/.well-known/") {
			mcp.ServeHTTP(w, r)
			return
		}
		if modelapi.Serves(r.URL.Path) {
			asks.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
	d.agents.http, d.people.http = web.NewServer(agents, d.o.Log), web.NewServer(d.api.Admin(), d.o.Log)
	known := func(ctx context.Context, conn net.Conn) context.Context {
		return d.api.ConnContext(web.ConnContext(ctx, conn), conn)
	}
	d.agents.http.ConnContext, d.people.http.ConnContext = known, known
	return nil
}

// consoleURL is the address of the console, without a slash at the end.
func (d *Daemon) consoleURL() string {
	if d.config().Console.PublicURL != "" {
		return strings.TrimSuffix(d.config().Console.PublicURL, "/")
	}
	return d.AdminURL()
}

// oidc returns the sign-in with an identity provider; nil if there is none. A person signs in by an identity that no other person has in the
// configuration.
func (d *Daemon) oidc() (*console.OIDC, error) {
	o := d.config().Console.OIDC
	if o == nil {
		return nil, nil
	}
	return console.NewOIDC(console.OIDCConfig{
		Issuer: o.Issuer, ClientID: o.ClientID, ClientSecret: o.ClientSecret, Scopes: o.Scopes, Redirect: d.consoleURL() + "/login/oidc/callback",
	}, console.OIDCOptions{Clock: time.Now, Log: d.o.Log, Person: func(issuer, subject, email string, verified bool) (string, bool) {
		return d.config().personOf(issuer, subject, email, verified)
	}})
}

// labelDesk is nil where no file was read, to which labels could be added.
func (d *Daemon) labelDesk() console.LabelDesk {
	if d.o.Labels == nil || d.config().file == "" {
		return nil
	}
	return d.o.Labels(d.config().file, func(ctx context.Context, e audit.Entry) error { return d.store.Record(ctx, e) })
}

// personOf finds the one person who has an identity: a verified address, or issuer|subject. An identity of two people is refused.
func (c *Config) personOf(issuer, subject, email string, verified bool) (id string, ok bool) {
	for _, p := range c.People.List {
		if slices.ContainsFunc(p.Identities, func(i string) bool {
			return i == issuer+"|"+subject || verified && email != "" && strings.EqualFold(i, email)
		}) {
			if ok {
				return "", false
			}
			id, ok = p.ID, true
		}
	}
	return id, ok
}

// buildTeller makes the teller. It begins at once with the questions that wait since before a restart.
func (d *Daemon) buildTeller() error {
	var channels []*notify.Channel
	for i, c := range d.config().Notify {
		ch, err := notify.ParseChannel(c)
		if err != nil {
			return fmt.Errorf("notify[%d]: %w", i, err)
		}
		channels = append(channels, ch)
	}
	n, err := notify.New(channels, notify.Options{Store: d.store, Log: d.o.Log, Console: d.consoleURL(), Queue: "/approvals"})
	if err != nil {
		return err
	}
	d.teller = &teller{desk: d.gate.Desk(), gateway: d.gate, switches: d.gate.Standing().KillStatus, n: n, warn: d.o.Log.Warn, approved: map[string][]time.Time{}, counted: map[string]bool{}, changes: d.changes, counters: d.counters, index: d.index,
		trouble: trouble{servers: d.servers, tools: d.gate.Catalogue().Tools, quarantines: d.gate.Standing().Quarantines}, marks: make(chan quota.Mark, 64), alerts: make(chan monitor.Alert, 64)}
	d.counters.OnAlert(func(a monitor.Alert) {
		select {
		case d.teller.alerts <- a:
		default:
			d.o.Log.Warn("people are told of an alert only at the next start, the log has it", "alert", a.ID)
		}
	})
	d.store.OnQuota(func(m quota.Mark) {
		select {
		case d.teller.marks <- m:
		default:
			d.o.Log.Warn("people are told of a quota only at the next start, the log has it", "agent", m.Agent, "quota", m.Text())
		}
	})
	d.teller.start()
	d.keepAnchor(context.Background())
	return nil
}

// wordsOf are what a server says about itself.
func wordsOf(s upstream.Status) catalogue.Words {
	return catalogue.Words{Name: s.Name, Version: s.Version, Instructions: s.Instructions}
}

// servers returns the upstream servers as people see them.
func (d *Daemon) servers() []console.ServerStatus {
	var all []console.ServerStatus
	usable := d.gate.Catalogue().Usability()
	for _, s := range d.up.Status() {
		u := usable[s.ID]
		all = append(all, console.ServerStatus{
			Tools: u.Tools, Usable: u.Usable, Unusable: u.Why, Suspicions: d.gate.Catalogue().SuspicionsIn(s.ID, wordsOf(s)),

			ID: s.ID, State: string(s.State), Protocol: s.Protocol, Name: s.Name, Version: s.Version, Instructions: s.Instructions,
			LastError: s.LastError, Sandbox: string(s.Sandbox), Restarts: s.Restarts, Definitions: s.Definitions, Since: s.Since,
		})
	}
	return all
}

// persons returns the people of the configuration. Without any there is admin, for whom the first start makes a token.
func (c *Config) persons() map[string][]identity.Role {
	people := map[string][]identity.Role{}
	for _, p := range c.People.List {
		for _, r := range p.Roles {
			people[p.ID] = append(people[p.ID], identity.Role(r))
		}
	}
	return people
}

// firstTokens makes the tokens of admin and local, once each. A file that was removed, or a token that was revoked, is not made again.
func (d *Daemon) firstTokens(ctx context.Context, agents agent.Set) error {
	first := map[string]identity.Principal{
		"admin.token": {Kind: identity.Person, ID: "admin", Roles: []identity.Role{identity.Admin}},
	}
	if _, ok := agents.Get("local"); ok {
		first["local.token"] = identity.Principal{Kind: identity.Agent, ID: "local"}
	}
	for name, subject := range first {
		path := filepath.Join(d.o.Data, name)
		if _, err := os.Lstat(path); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if slices.ContainsFunc(d.gate.Standing().ListTokens(), func(t identity.Token) bool { return t.Subject.Kind == subject.Kind && t.Subject.ID == subject.ID }) {
			continue
		}
		secret, _, err := d.gate.Standing().IssueToken(ctx, subject, "gateway:start")
		if err != nil {
			return err
		}
		if err := audit.ReplaceFile(path, []byte(secret+"\n")); err != nil {
			return err
		}
		if subject.Kind == identity.Person {
			d.adminToken = secret
		}
	}
	return nil
}

func (d *Daemon) writeAddresses() error {
	b, err := json.Marshal(map[string]string{"agent": d.AgentURL(), "admin": d.AdminURL()})
	if err != nil {
		return err
	}
	return audit.ReplaceFile(filepath.Join(d.o.Data, "addresses.json"), append(b, '\n'))
}

// AgentURL is the address for agents and hosts.
func (d *Daemon) AgentURL() string { return d.agents.url() }

// AdminURL is the address for people.
func (d *Daemon) AdminURL() string { return d.people.url() }

// Banner says where everything is. To a person at a terminal it shows the token of admin that this start made, this once.
func (d *Daemon) Banner(w io.Writer, terminal bool) {
	servers := "none yet: take those of your client over (sallyport init --from .mcp.json), or write some under upstreams in sallyport.yaml"
	if states := d.up.Status(); len(states) > 0 {
		usable := d.gate.Catalogue().Usability()
		var list []string
		for _, s := range states {
			state := string(s.State)
			if u := usable[s.ID]; u.Usable < u.Tools {
				state += ", " + usability(u)
			}
			list = append(list, fmt.Sprintf("%s (%s)", s.ID, state))
		}
		servers = strings.Join(list, "\n           ")
	}
	admin := filepath.Join(d.o.Data, "admin.token")
	people := "token in " + admin
	if _, err := os.Lstat(admin); err != nil {
		people = "with a token of one's own"
	}
	if terminal && d.adminToken != "" {
		people = "admin's token, shown this once: " + d.adminToken +
			"\n                                    keep it where you keep passwords, and delete " + admin + ": it is not made again"
	}
	fmt.Fprintf(w, `Sallyport %s

  console  %s
  people   %s         %s
  agents   %s/mcp
  servers  %s
%s%s%s%s
Stop with Ctrl-C.
`, d.o.Version, d.consoleLine(terminal), d.AdminURL(), people, d.AgentURL(), servers, d.anchorLine(), d.observing()+d.unapproved()+d.unlisted()+d.unread(), d.unconfinedNote(), d.begin())
}

// begin says how work begins, in another terminal: in a session of its own where agents are declared, else with the token of the agent local; and what a
// client takes.
func (d *Daemon) begin() string {
	path := filepath.Join(d.o.Data, "local.token")
	if _, err := os.Lstat(path); err == nil {
		return "\nThe agent local has its token in " + path + ".\n" + d.clientSnippet()
	}
	ids := "ID"
	if agents, _ := d.config().declarations(); len(agents.All()) > 0 {
		ids = agents.All()[0].AgentID
		if len(agents.All()) > 1 {
			ids += " (or another of " + sentence.Count(len(agents.All()), "agent") + ": sallyport agents list)"
		}
	}
	return "\nBegin a piece of work in another terminal, with your client as the command:\n\n  sallyport run --agent " + ids + " -- claude\n" + d.clientSnippet()
}

// clientSnippet is what an MCP client takes to come here without sallyport run.
func (d *Daemon) clientSnippet() string {
	return fmt.Sprintf(`
A client that speaks MCP over HTTP takes this (sallyport client config prints it for others):

  {"mcpServers": {"sallyport": {"type": "http", "url": "%s/mcp",
    "headers": {"Authorization": "Bearer <the agent's token>"}}}}
`, d.AgentURL())
}

// SignInLink makes a link that signs admin in to the console, once.
func (d *Daemon) SignInLink() (link string, until time.Time, err error) {
	secret, err := audit.ReadFile(filepath.Join(d.o.Data, "admin.token"))
	if err != nil {
		return "", until, err
	}
	return d.api.SignInLink(strings.TrimSpace(string(secret)))
}

// consoleLine names the address of the console. If admin's token is gone, people sign in with their own tokens or an identity provider. Where people
// confirm at terminals what they do, a link is for a terminal alone: whoever reads it anywhere else could act as admin without one.
func (d *Daemon) consoleLine(terminal bool) string {
	if d.config().People.confirms() && !terminal {
		return d.consoleURL() + " (a sign-in link: sallyport token link, in a terminal)"
	}
	link, until, err := d.SignInLink()
	if err != nil {
		d.o.Log.Debug("no sign-in link", "error", err)
		return d.consoleURL() + " (a sign-in link: sallyport token link)"
	}
	return fmt.Sprintf("%s (signs admin in once, until %s; another: sallyport token link)", link, until.Local().Format("15:04"))
}

// usability says how many of a server's tools can be used, and why not the others.
func usability(u catalogue.Usability) string {
	return fmt.Sprintf("%d of %d tools usable: %s", u.Usable, u.Tools, strings.Join(u.Why, "; "))
}

// unread returns lines that name the definitions that no person has accepted.
func (d *Daemon) unread() string {
	waiting, unread := 0, 0
	for _, t := range d.gate.Catalogue().Tools() {
		switch {
		case t.PendingHash != "":
			waiting++
		case t.Unread && t.Standing != catalogue.Gone:
			unread++
		}
	}
	var text string
	if unread > 0 {
		text = fmt.Sprintf("  note     nobody has read %s of tools yet, and a session that lists one counts as having read untrusted content: sallyport tools accept --all\n", sentence.Count(unread, "definition"))
	}
	if waiting > 0 {
		text += fmt.Sprintf("  note     the gateway keeps %s of tools from agents until a person accepts: sallyport tools accept --all\n", sentence.Count(waiting, "definition"))
	}
	return text
}

// observing returns a line that says that the gateway only observes; "" where it enforces.
func (d *Daemon) observing() string {
	if !d.config().observes() {
		return ""
	}
	return "  note     " + gateway.ObservingWords + "\n"
}

// unlisted returns a line with the number of tools that no entry names, which a new operator looks for first; "" if there are none.
func (d *Daemon) unlisted() string {
	n := 0
	for _, t := range d.gate.Catalogue().Tools() {
		if t.Standing == catalogue.Unlisted {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("  note     agents can't call %s, which no entry under operations names: sallyport tools list\n", sentence.Count(n, "tool"))
}

// Run serves until ctx ends, then drains: no new calls, calls in flight get their time, the store is closed last. It ends with an error where the store
// is lost.
func (d *Daemon) Run(ctx context.Context) error {
	failed := make(chan error, 2)
	for _, at := range []*door{&d.agents, &d.people} {
		go func() { failed <- at.http.Serve(at.ln) }()
	}
	var err error
	select {
	case <-ctx.Done():
	case <-d.store.Lost():
		err = fmt.Errorf("the gateway stops: %w", d.store.LostBecause())
	case err = <-failed:
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
	}
	return errors.Join(err, d.Close())
}

// Close stops everything in the order in which work flows.
func (d *Daemon) Close() error {
	d.closing.Do(func() {
		d.endReloads()
		var errs []error
		if d.api != nil {
			d.api.Close() // the first thing that shows is that the gateway is not ready; it ends long waits, too
		}
		if d.gate != nil {
			d.gate.Desk().Drain() // calls that are held for an answer end, and the agents call again later
		}
		if d.runs != nil {
			d.runs.Close() // while the doors that runs come through are open
		}
		if d.face != nil {
			d.face.Drain() // ends standing streams, which would otherwise hold the shutdown; running calls finish
		}
		errs = append(errs, d.shut(&d.agents, drain), d.shut(&d.people, lastWords)) // people see the one that drains to its end
		if d.face != nil {
			d.face.Close()
		}
		for _, ln := range []net.Listener{d.agents.ln, d.people.ln} {
			if ln != nil {
				if err := ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
					errs = append(errs, err)
				}
			}
		}
		if d.trial != nil {
			end, cancel := context.WithTimeout(context.Background(), lastWords)
			defer cancel()
			errs = append(errs, d.trial.Close(end))
		}
		if d.teller != nil {
			d.teller.close()
		}
		if d.index != nil { // the teller filled it
			errs = append(errs, d.index.Close())
		}
		errs = append(errs, d.closeKillSocket())
		d.warming.Wait()
		if d.up != nil {
			errs = append(errs, d.up.Close())
		}
		if d.asks != nil {
			d.asks.Close()
		}
		if d.gate != nil {
			end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			errs = append(errs, d.gate.Close(end))
		}
		if d.comm != nil {
			errs = append(errs, d.comm.Close())
		}
		if d.books != nil {
			errs = append(errs, d.books.Close())
		}
		if d.anchored.keeper != nil {
			d.anchored.keeper.Close()
		}
		if d.store != nil {
			errs = append(errs, d.store.Close())
		}
		d.closing.err = errors.Join(errs...)
	})
	return d.closing.err
}

// shut closes a door: its requests have some time to finish, and those that don't a little more to say that their calls were ended.
func (d *Daemon) shut(at *door, patience time.Duration) error {
	if at.http == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if at.http.Shutdown(ctx) == nil {
		return nil
	}
	d.gate.EndCalls()
	d.o.Log.Warn("some calls did not finish in time and were ended")
	ctx, cancel = context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	if err := at.http.Shutdown(ctx); err != nil {
		d.o.Log.Warn("some callers did not take their answers and were cut off", "error", err)
		return at.http.Close()
	}
	return nil
}

// Recorded holds what a data directory shows about the labels of a configuration.
type Recorded struct {
	Problems    []Problem
	NoArguments map[string]bool   // operations whose schema takes no argument
	Definitions map[string]string // operation -> hash of its definition
}

// Compare compares a configuration with a data directory. File stands in the problems, whose lines are filled in later.
type Compare func(ctx context.Context, c *Config, file, dir string) (Recorded, error)

// Lint checks a configuration file, or a folder or file of declarations. Problems come sorted by file and line. With a data directory,
// configurations are compared with its records.
func Lint(ctx context.Context, data string, compare Compare, paths ...string) ([]Problem, error) {
	if len(paths) == 0 {
		paths = []string{""}
	}
	var all []Problem
	compared := false
	for _, p := range paths {
		if p != "" {
			st, err := os.Stat(p)
			if err != nil {
				return nil, fault.Wrap(err, fault.ConfigurationInvalid, "%s can't be read", p)
			}
			if st.IsDir() || !isConfig(p) {
				all = append(all, lintAgents(p)...)
				continue
			}
		}
		problems, err := lintConfig(ctx, p, data, compare)
		if err != nil {
			return nil, err
		}
		compared = true
		all = append(all, problems...)
	}
	if data != "" && !compared {
		return nil, fault.New(fault.ConfigurationInvalid, "a data directory is compared with a configuration, and none is among the files").Try("name sallyport.yaml, too")
	}
	return all, nil
}

// lintConfig checks a configuration file ("": the one in the working directory), and what it names.
func lintConfig(ctx context.Context, path, data string, compare Compare) ([]Problem, error) {
	cfg, err := LoadConfig(path)
	var invalid *ConfigError
	if errors.As(err, &invalid) {
		return agent.Deployment(agent.Set{}, invalid.Problems, time.Now()), nil
	}
	if err != nil {
		return nil, err
	}
	name := path
	if name == "" {
		name = "sallyport.yaml"
	}
	var seen Recorded
	if data != "" {
		if seen, err = compare(ctx, cfg, name, data); err != nil {
			return nil, err
		}
		cfg.argless = seen.NoArguments // labelProblems goes by it
		for i := range seen.Problems {
			cfg.locate(&seen.Problems[i])
		}
	}
	all := slices.Concat(cfg.problems(name, data), cfg.catalogueNotes(name, seen.Definitions), seen.Problems)
	slices.SortStableFunc(all, func(a, b Problem) int { return a.Line - b.Line })
	set, declared := cfg.declarations()
	all = append(agent.Deployment(agent.Set{}, all, time.Now()), agent.Deployment(set, declared, time.Now())...)
	if cfg.Policies != "" {
		if _, err := policy.Load(cfg.path(cfg.Policies)); err != nil {
			all = append(all, Problem{File: cfg.path(cfg.Policies), Severity: agent.Error, Problem: err.Error(), Stops: true})
		}
	}
	return all, nil
}

// problems are those of a configuration by itself, which could be loaded. data is the data directory; "": not known.
func (c *Config) problems(file, data string) []Problem {
	return slices.Concat(c.Warnings(file), c.folderProblems(file, data), c.packageProblems(file), c.labelProblems(file), c.patternProblems(file, time.Now()))
}

// isConfig tells a configuration from a declaration by its name: declarations may have any other.
func isConfig(path string) bool {
	name := filepath.Base(path)
	return strings.HasPrefix(name, "sallyport") || filepath.Ext(name) == ""
}

func lintAgents(path string) []Problem {
	st, err := os.Stat(path)
	if err != nil {
		return []Problem{{File: path, Severity: agent.Error, Problem: err.Error(), Stops: true}}
	}
	if st.IsDir() {
		set, problems := agent.Load(path)
		return agent.Deployment(set, problems, time.Now())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return []Problem{{File: path, Severity: agent.Error, Problem: err.Error(), Stops: true}}
	}
	d, problems := agent.Parse(path, data)
	return agent.Deployment(agent.NewSet(d), problems, time.Now())
}
