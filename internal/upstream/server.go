package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
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
	startWait   = 5 * time.Second  // that a call waits for a server that starts again
	relistGap   = time.Second      // lists are taken again at most this often, however many changes are announced
	relistUsed  = 30 * time.Second // a call finds lists that are no older, or has them taken again beside it
	relistAfter = 5 * time.Minute  // a server that announces no changes and is not called is asked again all the same
	relistRetry = 30 * time.Second // after a list that failed
)

// settings are set when a server is made, and never changed.
type settings struct {
	cfg      Config
	all      []Config // the configurations of all servers, this one among them
	o        Options
	log      *slog.Logger
	maxFrame int
	http     *http.Transport // nil for stdio
	egress   *egress.Client  // for the hosts that it may reach; nil where there is no such list

	backoffMin, backoffMax time.Duration
}

// server is one configured server: its supervisor keeps one conversation up that all callers share; clients that a server may ask back
// get conversations of their own.
type server struct {
	settings
	stderr  io.Writer     // gets what the server writes on its standard error, escaped; may be nil
	tried   chan struct{} // closed after the first attempt, listing included
	attempt func()        // closes tried
	changed chan struct{} // holds one signal when the lists are to be taken again
	renewal renewal
	headers atomic.Pointer[map[string][]mcpwire.ParamHeader] // by tool
	closers sync.WaitGroup                                   // goroutines that close conversations and cancel subscriptions

	mu         sync.Mutex // guards all below
	now        Status
	connected  int // how many conversations the supervisor has had
	shared     *conversation
	again      chan struct{} // closed when the try to start the server again has ended; nil where it isn't down, or a try failed, or no call can have ended it
	stopped    bool
	dedicated  map[string]*dedicated
	subscribed subscribers
}

// renewal is what calls have to do with the lists.
type renewal struct {
	urgent  chan struct{}  // holds one signal when a call waits for them
	at      atomic.Int64   // when they were last asked for, in nanoseconds since 1970
	waiting []chan<- error // of the calls that wait; guarded by server.mu
}

func newServer(cfg Config, o Options) *server {
	s := &server{
		settings: settings{cfg: cfg, o: o, log: o.Log.With("upstream", cfg.ID), maxFrame: int(o.MaxResult) + frameSlack, backoffMin: 100 * time.Millisecond, backoffMax: 30 * time.Second},
		tried:    make(chan struct{}), changed: make(chan struct{}, 1), renewal: renewal{urgent: make(chan struct{}, 1)},
		now:       Status{ID: cfg.ID, State: Connecting, Since: time.Now(), Sandbox: cfg.Confine.Sandbox},
		dedicated: map[string]*dedicated{}, subscribed: subscribers{},
	}
	s.attempt = sync.OnceFunc(func() { close(s.tried) })
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

// setState notes a new state and, if there is one, the error that led to it.
func (s *server) setState(state State, err error) {
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
	defer s.attempt()
	defer s.startedAgain()
	defer s.setState(Stopped, nil)
	for ctx.Err() == nil {
		s.setState(Connecting, nil)
		c, err := s.connect(ctx, nil)
		if err == nil {
			began := time.Now()
			s.setShared(c)
			s.log.Info("upstream is up", "protocol", c.version())
			s.keepListed(ctx, c)
			err = c.cause()
			s.setShared(nil)
			if ctx.Err() == nil {
				s.setState(Down, err)
				s.log.Warn("upstream went down", "error", plain(err))
			}
			c.close()
			if time.Since(began) >= stableAfter {
				delay = s.backoffMin
			}
		} else if ctx.Err() == nil {
			s.setState(Down, err)
			s.log.Warn("upstream can't be reached", "error", plain(err), "again_in", delay.String())
			s.startedAgain()
		}
		s.attempt()
		// Half of the delay is random, so that servers that fell together don't come back together.
		wait(delay/2+rand.N(delay/2+1), ctx.Done())
		delay = min(delay*2, s.backoffMax)
	}
	if s.http != nil {
		s.http.CloseIdleConnections()
	}
}

// relist has the lists taken again.
func (s *server) relist() { wake(s.changed) }

// wake leaves one signal.
func wake(one chan<- struct{}) {
	select {
	case one <- struct{}{}:
	default:
	}
}

// inUse has the lists taken again where a call finds them old. The call does not wait for it.
func (s *server) inUse() {
	if time.Since(time.Unix(0, s.renewal.at.Load())) >= relistUsed {
		s.relist()
	}
}

// listNow takes the lists again and returns once they are delivered.
func (s *server) listNow(ctx context.Context) error {
	done := make(chan error, 1)
	s.mu.Lock()
	if s.shared == nil || s.stopped {
		defer s.mu.Unlock()
		return s.down()
	}
	s.renewal.waiting = append(s.renewal.waiting, done)
	s.mu.Unlock()
	wake(s.renewal.urgent)
	s.relist()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return s.undispatched(ctx.Err(), "did not list its tools in time")
	}
}

// tellRelisted tells calls what came of the lists that they wait for.
func tellRelisted(waiting []chan<- error, err error) {
	for _, done := range waiting {
		done <- err // has room for the one answer that it gets
	}
}

// awaitStart lets a call wait while a server starts again that a call may have ended, startWait at most. The caller then finds the server up or down.
func (s *server) awaitStart(ctx context.Context) error {
	s.mu.Lock()
	again := s.again
	s.mu.Unlock()
	if again != nil && wait(startWait, again, ctx.Done()) == 1 {
		return &fault.NotDispatched{Err: s.gaveUp(ctx), Starting: true}
	}
	return nil
}

// startedAgain ends the time in which the server starts again after a call.
func (s *server) startedAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tellStarted()
}

// tellStarted is startedAgain while s.mu is held.
func (s *server) tellStarted() {
	if s.again != nil {
		close(s.again)
		s.again = nil
	}
}

func (s *server) setShared(c *conversation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.shared
	s.shared = c
	if c == nil {
		if was.endedByCall() {
			s.again = make(chan struct{})
		}
		tellRelisted(s.renewal.waiting, s.undispatched(nil, "went down while it listed its tools"))
		s.renewal.waiting = nil
		return
	}
	s.tellStarted()
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

// keepListed lists what the server offers, and again whenever it announces a change, until the conversation ends.
func (s *server) keepListed(ctx context.Context, c *conversation) {
	s.resubscribe(c)
	for {
		for _, asked := range []<-chan struct{}{s.changed, s.renewal.urgent} { // this list has all that was announced, and is all that was asked for, before it
			select {
			case <-asked:
			default:
			}
		}
		s.mu.Lock()
		waiting := s.renewal.waiting
		s.renewal.waiting = nil
		s.mu.Unlock()
		s.renewal.at.Store(time.Now().UnixNano())
		next := relistAfter
		err := s.refresh(ctx, c)
		if err != nil {
			tellRelisted(waiting, s.undispatched(err, "did not list its tools"))
		} else {
			tellRelisted(waiting, nil)
		}
		if err != nil {
			if c.ctx.Err() != nil || ctx.Err() != nil {
				return
			}
			next = relistRetry
			s.mu.Lock()
			s.now.LastError = plain(err)
			s.mu.Unlock()
			s.log.Warn("upstream's list was not taken", "error", plain(err))
		}
		s.attempt()
		if !sleep(ctx, c, relistGap, s.renewal.urgent) || !sleep(ctx, c, next, s.changed) {
			return
		}
	}
}

// wait waits for d, or until one of at most three channels is closed or has something. It returns which, and -1 after d.
func wait(d time.Duration, until ...<-chan struct{}) int {
	var of [3]<-chan struct{} // nothing ever comes of those that are nil
	copy(of[:], until)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-of[0]:
		return 0
	case <-of[1]:
		return 1
	case <-of[2]:
		return 2
	case <-t.C:
		return -1
	}
}

// sleep waits for d or wake. False means that the conversation or ctx ended.
func sleep(ctx context.Context, c *conversation, d time.Duration, wake <-chan struct{}) bool {
	return wait(d, wake, ctx.Done(), c.ctx.Done()) <= 0
}

// guard runs a callback of this package's user. A panic in it costs that one event, not the gateway.
func (s *server) guard(what string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("panic in a callback", "callback", what, "panic", display.Line(fmt.Sprint(p), 200), "stack", string(debug.Stack()))
		}
	}()
	f()
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

// narrowed returns the restricted capabilities as servers see them. It leaves out members that a server could use only in messages of its own, such
// as changes of roots, and members that would give it more of the client's context.
func narrowed(caps map[string]json.RawMessage) json.RawMessage {
	out := emptyObject
	for _, c := range [...]struct {
		name    string
		members []string
	}{{"elicitation", []string{"form", "url"}}, {"sampling", []string{"tools"}}, {"roots", nil}} {
		declared, ok := caps[c.name]
		if !ok {
			continue
		}
		shown := emptyObject
		for _, member := range c.members {
			if value, _ := call.Get(declared, member); call.IsObject(value) {
				shown = call.SetMember(shown, member, emptyObject)
			}
		}
		out = call.SetMember(out, c.name, shown)
	}
	return out
}

// capabilities are the narrowed capabilities in the form that the SDK's handshake takes.
func capabilities(caps map[string]json.RawMessage) *mcp.ClientCapabilities {
	out := &mcp.ClientCapabilities{}
	if json.Unmarshal(narrowed(caps), out) != nil {
		return &mcp.ClientCapabilities{}
	}
	return out
}
