package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/egress"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/mcpwire"
	"sallyport.example/internal/sandbox"
)

// Config is one server, as the operator configured it. Exactly one of Command and URL is set.
type Config struct {
	ID      string            // the operator's name for it: letters, digits, '_' and '-', at most 64
	Command []string          // program (an absolute path, or a name found in PATH) and arguments; never a shell
	Dir     string            // working directory of Command; "" is its folder, or ours where it is not confined
	Env     map[string]string // added to the minimal environment of Command
	URL     string            // streamable HTTP endpoint
	Headers map[string]string // sent with every request to URL; the server's own credential
	Timeout time.Duration     // of a call whose context has no deadline; default 20 s

	// Confine is how Command is confined. It is not for a URL.
	Confine Confinement

	// ClientFeatures are the things that the server may ask of an agent's client: a subset of elicitation, sampling, roots. By default there are
	// none: each lets a server talk to the model or the person.
	ClientFeatures []string
}

// Options hold for all servers.
type Options struct {
	Log       *slog.Logger // default: discard
	MaxResult int64        // bytes of one result; default 16 MiB

	Gateway GatewayPaths
	Own     []netip.AddrPort // the gateway's own listeners, which no server reaches by its list of hosts

	// Definitions receives the whole current list of a server after each connection and each change. It is called by one goroutine
	// per server. A list that broke a bound is not delivered; what was delivered before it stands.
	Definitions func(server string, defs []call.Definition)
	// ResourceUpdated receives notifications/resources/updated for URIs that somebody subscribed to. It must not block for long.
	ResourceUpdated func(server, uri string)
}

// State of a server.
type State string

const (
	Connecting State = "connecting"
	Up         State = "up"
	Down       State = "down" // will be connected to again
	Stopped    State = "stopped"
)

// Status describes one server. What the server says about itself is escaped, and is for people to look at: never for a model, which could take it for
// an instruction.
type Status struct {
	ID           string    `json:"id"`
	State        State     `json:"state"`
	Protocol     string    `json:"protocol,omitempty"` // negotiated revision
	Name         string    `json:"name,omitempty"`
	Version      string    `json:"version,omitempty"`
	Instructions string    `json:"instructions,omitempty"`
	LastError    string    `json:"last_error,omitempty"`
	Restarts     int       `json:"restarts"` // how many connections there were after the first
	Definitions  int       `json:"definitions"`
	Sandbox      Sandbox   `json:"sandbox,omitempty"` // of a server that the gateway starts
	Since        time.Time `json:"since"`             // of the state
}

const (
	defaultTimeout   = 20 * time.Second
	defaultMaxResult = 16 << 20
	startBound       = 10 * time.Second
	maxDedicated     = 64 // conversations of their own, per server
	dedicatedIdle    = 10 * time.Minute
	maxSubscriptions = 1000 // resource URIs, per server
)

// Manager holds the servers. Safe for concurrent use.
type Manager struct {
	servers map[string]*server
	order   []string
	log     *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // supervisors

	mu      sync.Mutex // guards started and closed
	started bool
	closed  bool
}

var (
	idPattern  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	featureOf  = map[string]string{"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
	envPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// New checks the configuration. It starts nothing.
func New(cfgs []Config, o Options) (*Manager, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MaxResult <= 0 {
		o.MaxResult = defaultMaxResult
	}
	m := &Manager{servers: make(map[string]*server, len(cfgs)), log: o.Log}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	for _, cfg := range cfgs {
		if err := check(cfg); err != nil {
			return nil, err
		}
		if m.servers[cfg.ID] != nil {
			return nil, invalid(cfg.ID, "is configured twice")
		}
		if cfg.Timeout == 0 {
			cfg.Timeout = defaultTimeout
		}
		s := newServer(cfg, o)
		s.all = cfgs
		if len(cfg.Confine.Hosts) > 0 {
			var err error
			if s.egress, err = egress.New(egress.Policy{Domains: cfg.Confine.Hosts, Protocols: []string{"https", "http"}}, egress.Options{Own: o.Own}); err != nil {
				return nil, fault.Wrap(err, fault.ConfigurationInvalid, "upstream %s: %s", cfg.ID, fault.Of(err).Message).At("upstreams." + cfg.ID + ".egress")
			}
		}
		m.servers[cfg.ID] = s
		m.order = append(m.order, cfg.ID)
	}
	if err := CheckFolders(cfgs, o.Gateway); err != nil {
		return nil, err
	}
	return m, nil
}

func invalid(id, format string, args ...any) *fault.Error {
	return fault.New(fault.ConfigurationInvalid, "upstream %s %s", display.Line(id, 64), fmt.Sprintf(format, args...)).At("upstreams." + display.Line(id, 64))
}

// check refuses a configuration that would be dangerous or can't work.
func check(cfg Config) error {
	id := cfg.ID
	switch {
	case !idPattern.MatchString(id):
		return invalid(id, "has an id outside [A-Za-z0-9_-]{1,64}")
	case (len(cfg.Command) == 0) == (cfg.URL == ""):
		return invalid(id, "needs either a command or a url")
	case cfg.Timeout < 0:
		return invalid(id, "has a negative timeout")
	}
	for _, f := range cfg.ClientFeatures {
		if !slices.Contains([]string{"elicitation", "sampling", "roots"}, f) {
			return invalid(id, "has the unknown client feature %q; known are elicitation, sampling and roots", f)
		}
	}
	if cfg.URL != "" {
		u, err := url.Parse(cfg.URL)
		switch {
		case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
			return invalid(id, "needs an absolute http or https url")
		case u.User != nil:
			return invalid(id, "has a password in its url; put the credential into headers")
		case u.Fragment != "":
			return invalid(id, "has a fragment in its url")
		case len(cfg.Env) > 0 || cfg.Dir != "":
			return invalid(id, "has a url; env and dir are for commands")
		case cfg.Confine.Sandbox != "" || cfg.Confine.Folder != "" || len(cfg.Confine.Paths)+len(cfg.Confine.Hosts) > 0 || cfg.Confine.Network != "":
			return invalid(id, "has a url; sandbox, folder, paths and egress are for commands")
		}
		return checkHeaders(id, cfg.Headers)
	}
	program := cfg.Command[0]
	switch {
	case program == "":
		return invalid(id, "has an empty command")
	case strings.ContainsRune(program, filepath.Separator) && !filepath.IsAbs(program):
		return invalid(id, "has the relative program path %q; make it absolute, or a name found in PATH", program)
	case len(cfg.Headers) > 0:
		return invalid(id, "has a command; headers are for urls")
	}
	for _, s := range append([]string{cfg.Dir}, cfg.Command...) {
		if strings.ContainsRune(s, 0) {
			return invalid(id, "has a NUL in its command")
		}
	}
	if err := checkConfinement(id, cfg.Confine); err != nil {
		return err
	}
	for name, value := range cfg.Env {
		switch {
		case !envPattern.MatchString(name) || strings.ContainsRune(value, 0):
			return invalid(id, "has the environment variable %q, which can't be set", name)
		case strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_"):
			// They make the loader run other code than the program named, before it has begun.
			return invalid(id, "sets %s; variables of the dynamic loader are refused", name)
		}
	}
	return nil
}

func checkConfinement(id string, c Confinement) error {
	switch {
	case !slices.Contains([]Sandbox{Full, Partial, Unconfined}, c.Sandbox):
		return invalid(id, "has the unknown sandbox %q; known are full, partial and none", c.Sandbox)
	case c.Sandbox == Unconfined && (c.Network != "" || c.Folder != "" || len(c.Paths) > 0):
		return invalid(id, "has no sandbox that would hold its folder, its paths or its egress")
	case c.Sandbox == Full && len(c.Paths) > 0:
		return invalid(id, "has the sandbox full, in which it has its folder alone; paths are for partial")
	case (c.Network == sandbox.ProxyNetwork) != (len(c.Hosts) > 0):
		return invalid(id, "has a list of hosts without the network for it, or the network without a list")
	case c.Sandbox != Unconfined && !filepath.IsAbs(c.Folder):
		return invalid(id, "has no folder")
	}
	for _, p := range c.Paths {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p || p == "/" {
			return invalid(id, "has the path %q; paths are absolute, and never the root", p)
		}
	}
	return nil
}

// reservedHeaders are the gateway's own, or would change how a request is framed, routed or repeated: net/http sends a POST again on its own when it
// carries an idempotency key, and a call is never sent twice.
var reservedHeaders = []string{"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "Idempotency-Key", "X-Idempotency-Key",
	"Keep-Alive", "Last-Event-Id", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func checkHeaders(id string, headers map[string]string) error {
	for name, value := range headers {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !mcpwire.Token(name):
			return invalid(id, "has the header %q, which is no header name", name)
		case slices.Contains(reservedHeaders, canonical) || strings.HasPrefix(canonical, "Mcp-"):
			return invalid(id, "sets the header %s, which is the gateway's", canonical)
		case strings.ContainsAny(value, "\r\n\x00"):
			return invalid(id, "has a line break in the header %s", canonical)
		}
	}
	return nil
}

// Start connects to all servers and returns when each has listed what it offers or has failed its first attempt, when 10 s have passed, or
// when ctx is done. Servers that fail are tried again in the background; that is no error.
func (m *Manager) Start(ctx context.Context) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return errors.New("upstream: started after Close")
	}
	if !m.started {
		m.started = true
		for _, s := range m.servers {
			m.wg.Go(func() { s.supervise(m.ctx) })
		}
	}
	m.mu.Unlock()

	bound := time.NewTimer(startBound)
	defer bound.Stop()
	for _, s := range m.servers {
		select {
		case <-s.tried:
		case <-bound.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Close stops all servers and waits until no goroutine and no child process is left. Twice is harmless.
func (m *Manager) Close() error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	m.wg.Wait()
	var dedicated sync.WaitGroup
	for _, s := range m.servers {
		dedicated.Go(s.stop)
	}
	dedicated.Wait()
	return nil
}

// Status describes all servers, in the order of the configuration.
func (m *Manager) Status() []Status {
	all := make([]Status, 0, len(m.order))
	for _, id := range m.order {
		all = append(all, m.servers[id].status())
	}
	return all
}

// Release ends what a downstream connection holds at the servers: its conversations and its subscriptions.
func (m *Manager) Release(clientKey string) {
	if clientKey == "" {
		return
	}
	for _, s := range m.servers {
		s.release(clientKey)
	}
}

// List implements effect.Upstreams.
func (m *Manager) List(ctx context.Context, id string) error {
	s := m.servers[id]
	if s == nil {
		return &fault.NotDispatched{Err: fault.New(fault.UpstreamFailed, "There is no upstream %q.", display.Line(id, 64))}
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if err := s.awaitStart(ctx); err != nil {
		return err
	}
	return s.listNow(ctx)
}

// Do implements effect.Upstreams.
func (m *Manager) Do(ctx context.Context, id, method string, params json.RawMessage, x *call.Exchange) (json.RawMessage, error) {
	s := m.servers[id]
	if s == nil {
		return nil, &fault.NotDispatched{Err: fault.New(fault.UpstreamFailed, "There is no upstream %q.", display.Line(id, 64))}
	}
	if x == nil {
		x = &call.Exchange{}
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.cfg.Timeout)
		defer cancel()
	}
	if err := s.awaitStart(ctx); err != nil {
		return nil, err
	}
	switch call.Method(method) {
	case call.CallTool, call.ReadResource, call.GetPrompt, call.Complete:
	case call.Subscribe, call.Unsubscribe:
		return s.subscription(ctx, method, params, x)
	default:
		return nil, s.undispatched(nil, "does not take %s", display.Line(method, 64))
	}
	s.inUse()
	c, release, err := s.conversationFor(ctx, x)
	if err != nil {
		return nil, err
	}
	defer release()
	return c.do(ctx, method, params, x)
}
