package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/egress"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/mcpwire"
)

const (
	frameSlack  = 64 << 10 // of a message around its result
	stableAfter = 30 * time.Second
	relistGap   = time.Second      // change notifications are heeded at most this often, however many come
	relistAfter = 5 * time.Minute  // a server that announces no changes is asked again all the same: it may have changed its definitions
	relistRetry = 30 * time.Second // after a list that failed
)

// server is one configured server: its supervisor keeps one conversation up that all callers share; clients that a server may ask back
// get conversations of their own.
type server struct {
	cfg      Config
	o        Options
	log      *slog.Logger
	maxFrame int
	http     *http.Transport // nil for stdio

	all    []Config       // of the servers, this one among them
	egress *egress.Client // for the hosts that it may reach; nil where there is no such list
	said   func(string)   // hears what it writes on its standard error, escaped; may be nil

	backoffMin, backoffMax time.Duration

	tried     chan struct{} // closed after the first attempt, listing included
	triedOnce sync.Once
	changed   chan struct{}                                    // the server announced a change of its lists
	headers   atomic.Pointer[map[string][]mcpwire.ParamHeader] // by tool

	closers sync.WaitGroup // goroutines that close conversations and cancel subscriptions

	mu         sync.Mutex // guards all below
	now        Status
	connected  int // conversations that the supervisor had
	shared     *conversation
	stopped    bool
	dedicated  map[string]*dedicated
	subscribed map[string]map[string]struct{} // resource URI -> client keys
}

// dedicated is one client's own conversation. conv is touched only by who holds the turn, or after gone is set.
type dedicated struct {
	turn  chan struct{} // holds one token: calls of one client run one after the other
	conv  *conversation
	idle  *time.Timer
	gone  bool // guarded by server.mu
	inUse int  // guarded by server.mu: calls that hold or wait for the turn
}

func newServer(cfg Config, o Options) *server {
	s := &server{
		cfg: cfg, o: o, log: o.Log.With("upstream", cfg.ID),
		maxFrame:   int(o.MaxResult) + frameSlack,
		backoffMin: 100 * time.Millisecond, backoffMax: 30 * time.Second,
		tried: make(chan struct{}), changed: make(chan struct{}, 1),
		now:        Status{ID: cfg.ID, State: Connecting, Since: time.Now(), Sandbox: cfg.Confine.Sandbox},
		dedicated:  map[string]*dedicated{},
		subscribed: map[string]map[string]struct{}{},
	}
	if cfg.URL != "" {
		s.http = newTransport()
	}
	return s
}

func (s *server) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// to notes a new state; err, if any, is why.
func (s *server) to(state State, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now.State != state {
		s.now.State, s.now.Since = state, time.Now()
	}
	if err != nil {
		s.now.LastError = plain(err)
	}
}

// supervise keeps the shared conversation up until ctx is done.
func (s *server) supervise(ctx context.Context) {
	delay := s.backoffMin
	defer s.firstTry()
	defer s.to(Stopped, nil)
	for ctx.Err() == nil {
		s.to(Connecting, nil)
		c, err := s.connect(ctx, nil)
		if err == nil {
			began := time.Now()
			s.setShared(c)
			s.log.Info("upstream is up", "protocol", c.version())
			s.attend(ctx, c)
			err = c.cause()
			s.setShared(nil)
			if ctx.Err() == nil {
				s.to(Down, err)
				s.log.Warn("upstream went down", "error", plain(err))
			}
			c.close()
			if time.Since(began) >= stableAfter {
				delay = s.backoffMin
			}
		} else if ctx.Err() == nil {
			s.to(Down, err)
			s.log.Warn("upstream can't be reached", "error", plain(err), "again_in", delay)
		}
		s.firstTry()
		// Half of the delay is random, so that servers that fell together don't come back together.
		wait := time.NewTimer(delay/2 + rand.N(delay/2+1))
		select {
		case <-ctx.Done():
		case <-wait.C:
		}
		wait.Stop()
		delay = min(delay*2, s.backoffMax)
	}
	if s.http != nil {
		s.http.CloseIdleConnections()
	}
}

// announce has the lists taken again.
func (s *server) announce() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *server) firstTry() { s.triedOnce.Do(func() { close(s.tried) }) }

func (s *server) setShared(c *conversation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shared = c
	if c == nil {
		return
	}
	s.now.State, s.now.Since, s.now.LastError = Up, time.Now(), ""
	if s.connected++; s.connected > 1 {
		s.now.Restarts++
	}
	s.now.Protocol = display.Line(c.version(), 32)
	s.now.Name, s.now.Version = "", ""
	if info := c.info.ServerInfo; info != nil {
		s.now.Name, s.now.Version = display.Line(info.Name, 128), display.Line(info.Version, 64)
	}
	s.now.Instructions = display.Line(c.info.Instructions, 4096)
}

// attend lists what the server offers, again whenever it announces a change, until the conversation ends.
func (s *server) attend(ctx context.Context, c *conversation) {
	s.resubscribe(c)
	for {
		select { // what was announced before this list is in it
		case <-s.changed:
		default:
		}
		next := relistAfter
		if err := s.refresh(ctx, c); err != nil {
			if c.ctx.Err() != nil || ctx.Err() != nil {
				return
			}
			next = relistRetry
			s.mu.Lock()
			s.now.LastError = plain(err)
			s.mu.Unlock()
			s.log.Warn("upstream's list was not taken", "error", plain(err))
		}
		s.firstTry()
		if !sleep(ctx, c, relistGap, nil) || !sleep(ctx, c, next, s.changed) {
			return
		}
	}
}

// sleep waits for d or wake. False means that the conversation or ctx ended.
func sleep(ctx context.Context, c *conversation, d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-c.ctx.Done():
		return false
	case <-wake:
	case <-t.C:
	}
	return true
}

// guard runs a callback of our user. A panic in it costs that one event, not the gateway.
func (s *server) guard(what string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("panic in a callback", "callback", what, "panic", display.Line(fmt.Sprint(p), 200), "stack", string(debug.Stack()))
		}
	}()
	f()
}

// conversationFor returns the conversation that a call takes, and what to do after it.
func (s *server) conversationFor(ctx context.Context, x *call.Exchange) (*conversation, func(), error) {
	s.mu.Lock()
	if s.shared == nil || s.stopped {
		state, why := s.now.State, s.now.LastError
		s.mu.Unlock()
		// The agent is told the state and nothing more: the last error can hold the server's own words.
		return nil, nil, s.undispatched(fmt.Errorf("%s", why), "is %s", state)
	}
	// Servers of 2026-07-28 ask in their results (MRTR), which needs no conversation of one's own.
	if s.shared.modern() || x.Ask == nil || x.ClientKey == "" {
		c := s.shared
		s.mu.Unlock()
		return c, func() {}, nil
	}
	caps := s.restrict(x.ClientCapabilities)
	if len(caps) == 0 {
		c := s.shared
		s.mu.Unlock()
		return c, func() {}, nil
	}
	d := s.dedicated[x.ClientKey]
	if d == nil {
		if len(s.dedicated) >= maxDedicated { // then it can't ask back, but it is not lost to everybody else
			c := s.shared
			s.mu.Unlock()
			return c, func() {}, nil
		}
		d = &dedicated{turn: make(chan struct{}, 1)}
		d.turn <- struct{}{}
		s.dedicated[x.ClientKey] = d
	}
	d.inUse++
	if d.idle != nil {
		d.idle.Stop()
	}
	s.mu.Unlock()

	release := func(hadTurn bool) {
		if hadTurn {
			d.turn <- struct{}{}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if d.inUse--; d.inUse == 0 && !d.gone {
			key := x.ClientKey
			d.idle = time.AfterFunc(dedicatedIdle, func() { s.drop(key, d) })
		}
	}
	select {
	case <-d.turn:
	case <-ctx.Done():
		release(false)
		return nil, nil, &fault.NotDispatched{Err: s.gaveUp(ctx)}
	}
	c, err := s.own(ctx, d, caps)
	if err != nil {
		release(true)
		return nil, nil, err
	}
	return c, func() { release(true) }, nil
}

// own returns d's conversation, connecting it first where needed. The caller holds d's turn.
func (s *server) own(ctx context.Context, d *dedicated, caps map[string]json.RawMessage) (*conversation, error) {
	if d.conv != nil {
		if d.conv.ctx.Err() == nil {
			return d.conv, nil
		}
		d.conv.close()
	}
	c, err := s.connect(ctx, caps)
	if err != nil {
		if ctx.Err() != nil {
			return nil, &fault.NotDispatched{Err: s.gaveUp(ctx)}
		}
		return nil, s.undispatched(err, "could not be connected to for this client")
	}
	s.mu.Lock()
	gone := d.gone || s.stopped
	if !gone {
		d.conv = c
	}
	s.mu.Unlock()
	if gone {
		c.close()
		return nil, s.undispatched(nil, "was released by this client")
	}
	return c, nil
}

// drop ends one client's conversation after it was idle, unless it is in use again.
func (s *server) drop(key string, d *dedicated) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.inUse == 0 && !d.gone && s.dedicated[key] == d {
		s.end(key, d)
	}
}

// end takes d out and closes its conversation in the background. s.mu is held.
func (s *server) end(key string, d *dedicated) {
	delete(s.dedicated, key)
	d.gone = true
	if d.idle != nil {
		d.idle.Stop()
	}
	if c := d.conv; c != nil {
		s.closers.Go(c.close)
	}
}

func (s *server) release(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	if d := s.dedicated[key]; d != nil {
		s.end(key, d)
	}
	for uri, keys := range s.subscribed {
		if _, ok := keys[key]; !ok {
			continue
		}
		if delete(keys, key); len(keys) > 0 {
			continue
		}
		delete(s.subscribed, uri)
		c := s.shared
		if c == nil {
			continue
		}
		s.closers.Go(func() { // bounded by c's end and a short time
			ctx, cancel := context.WithTimeout(c.ctx, notifyTime)
			defer cancel()
			if c.modern() {
				c.relisten()
			} else if _, err := c.do(ctx, string(call.Unsubscribe), uriParams(uri), &call.Exchange{}); err != nil {
				s.log.Debug("unsubscribing failed", "error", plain(err))
			}
		})
	}
}

// stop ends what the supervisor does not: the clients' conversations.
func (s *server) stop() {
	s.mu.Lock()
	s.stopped = true
	s.now.State = Stopped
	for key, d := range s.dedicated {
		s.end(key, d)
	}
	s.mu.Unlock()
	s.closers.Wait()
	if s.http != nil {
		s.http.CloseIdleConnections()
	}
}

// restrict returns the client's capabilities that the operator lets this server use. Only what the client has declared is there.
func (s *server) restrict(declared json.RawMessage) map[string]json.RawMessage {
	if len(declared) == 0 || len(s.cfg.ClientFeatures) == 0 {
		return nil
	}
	caps := map[string]json.RawMessage{}
	for name, value := range call.Members(declared) {
		if slices.Contains(s.cfg.ClientFeatures, name) && call.IsObject(value) {
			caps[name] = value
		}
	}
	return caps
}

func uriParams(uri string) json.RawMessage {
	raw, _ := json.Marshal(map[string]string{"uri": uri}) // a map of strings always marshals
	return raw
}

var emptyObject = json.RawMessage(`{}`)

// subscription keeps who subscribed to what: servers are told of the first subscriber and the last, not of those between, and are
// told again after a reconnection.
func (s *server) subscription(ctx context.Context, method string, params json.RawMessage, key string) (json.RawMessage, error) {
	var p struct {
		URI string `json:"uri"`
	}
	if err := json.Unmarshal(params, &p); err != nil || p.URI == "" {
		return nil, s.undispatched(err, "needs the uri of a resource")
	}
	s.mu.Lock()
	c := s.shared
	if c == nil || s.stopped {
		state := s.now.State
		s.mu.Unlock()
		return nil, s.undispatched(nil, "is %s", state)
	}
	keys := s.subscribed[p.URI]
	edge := false // the server has to be told
	if method == string(call.Subscribe) {
		if keys == nil {
			if len(s.subscribed) >= maxSubscriptions {
				s.mu.Unlock()
				return nil, s.undispatched(nil, "has %d subscriptions already", maxSubscriptions)
			}
			keys = map[string]struct{}{}
			s.subscribed[p.URI] = keys
		}
		edge = len(keys) == 0
		keys[key] = struct{}{}
	} else if _, ok := keys[key]; ok {
		delete(keys, key)
		if edge = len(keys) == 0; edge {
			delete(s.subscribed, p.URI)
		}
	}
	s.mu.Unlock()
	switch {
	case !edge:
		return emptyObject, nil
	case c.modern():
		c.relisten()
		return emptyObject, nil
	}
	result, err := c.do(ctx, method, uriParams(p.URI), &call.Exchange{})
	if err != nil && method == string(call.Subscribe) {
		s.mu.Lock()
		if keys := s.subscribed[p.URI]; keys != nil {
			if delete(keys, key); len(keys) == 0 {
				delete(s.subscribed, p.URI)
			}
		}
		s.mu.Unlock()
	}
	return result, err
}

func (s *server) subscriptions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	uris := make([]string, 0, len(s.subscribed))
	for uri := range s.subscribed {
		uris = append(uris, uri)
	}
	slices.Sort(uris)
	return uris
}

// resubscribe tells a legacy server of a new conversation what is subscribed to. Modern ones are told by listen.
func (s *server) resubscribe(c *conversation) {
	if c.modern() {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, s.cfg.Timeout)
	defer cancel()
	for _, uri := range s.subscriptions() {
		if _, err := c.do(ctx, string(call.Subscribe), uriParams(uri), &call.Exchange{}); err != nil {
			s.log.Warn("subscribing again failed", "uri", display.Line(uri, 200), "error", plain(err))
		}
	}
}

// resourceUpdated passes on what somebody subscribed to, and nothing else.
func (s *server) resourceUpdated(params []byte) {
	var p struct {
		URI string `json:"uri"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	s.mu.Lock()
	_, ok := s.subscribed[p.URI]
	s.mu.Unlock()
	if ok && s.o.ResourceUpdated != nil {
		s.guard("ResourceUpdated", func() { s.o.ResourceUpdated(s.cfg.ID, p.URI) })
	}
}

// narrowed are the restricted capabilities as servers are told them. What a server could only reach us with later, such as changes of
// roots, or would reveal more context with, is left out.
func narrowed(caps map[string]json.RawMessage) json.RawMessage {
	type none struct{}
	var out struct {
		Elicitation *struct {
			Form *none `json:"form,omitempty"`
			URL  *none `json:"url,omitempty"`
		} `json:"elicitation,omitempty"`
		Sampling *struct {
			Tools *none `json:"tools,omitempty"`
		} `json:"sampling,omitempty"`
		Roots *none `json:"roots,omitempty"`
	}
	for name, into := range map[string]any{"elicitation": &out.Elicitation, "sampling": &out.Sampling, "roots": &out.Roots} {
		if raw, ok := caps[name]; ok {
			_ = json.Unmarshal(raw, into) // what doesn't fit is not declared
		}
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return emptyObject
	}
	return raw
}

// capabilities are the same as the SDK's handshake wants them.
func capabilities(caps map[string]json.RawMessage) *mcp.ClientCapabilities {
	out := &mcp.ClientCapabilities{}
	if json.Unmarshal(narrowed(caps), out) != nil {
		return &mcp.ClientCapabilities{}
	}
	return out
}
