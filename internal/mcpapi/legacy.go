package mcpapi

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/mcpwire"
)

const (
	idleTimeout    = 30 * time.Minute
	sweepEvery     = time.Minute
	maxConnections = 64   // transport sessions of one credential
	maxRunning     = 1024 // requests at a time in one transport session
)

// connection is one transport session of a revision up to 2025-11-25. Labels and phase belong to the credential, not to it.
type connection struct {
	id       string
	owner    identity.Principal
	ss       *mcp.ServerSession
	revision string          // that was agreed on
	caps     json.RawMessage // the client's capabilities, as it sent them and as its revision has them
	asks     map[string]bool // server-to-client requests that the client answers

	mu      sync.Mutex // guards what follows
	ended   error      // why it ended, or nil
	retired bool       // it takes no more calls and ends with those that run
	users   int        // requests in progress, the standing GET included
	last    time.Time  // when the last one ended
	level   int        // least log level that the client wants; silent: none
	running map[string]context.CancelCauseFunc
	pending map[string]chan reply
	asked   uint64
}

// reply is a client's answer to a request of the gateway.
type reply struct{ result, err json.RawMessage }

// connections are the open ones by transport session id.
type connections struct {
	mu     sync.Mutex // guards byID and closed; never held while a connection is ended
	byID   map[string]*connection
	closed bool
}

var noConnection = fault.New(fault.NotFound, "There is no such transport session for this credential.").
	Try("Send initialize again, without " + mcpwire.HeaderSession + ".")

// owns tells whether the connection was opened with this very credential.
func (c *connection) owns(p identity.Principal) bool {
	return c.owner.TokenID == p.TokenID && c.owner.Kind == p.Kind && c.owner.ID == p.ID
}

// connection finds the request's transport session and keeps it from timing out until release is called. It does not find one of another
// credential.
func (f *Face) connection(r *http.Request, p identity.Principal) (c *connection, release func(), e *fault.Error) {
	id := r.Header.Get(mcpwire.HeaderSession)
	if id == "" {
		return nil, nil, fault.New(fault.RequestMalformed, "The header %s is missing.", mcpwire.HeaderSession).Try("Send initialize first and use the id of its answer.")
	}
	f.conns.mu.Lock()
	c = f.conns.byID[id]
	f.conns.mu.Unlock()
	if c == nil {
		return nil, nil, noConnection
	}
	if !c.owns(p) { // whose it is, is for the record
		return nil, nil, fault.Wrap(fault.New(fault.PermissionDenied, "The transport session is of %s, and %s used it.", c.owner, p),
			noConnection.Code, "%s", noConnection.Message).Try("%s", noConnection.Remedy)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return nil, nil, noConnection
	}
	c.users++
	return c, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.users--
		c.last = f.o.Clock()
	}, nil
}

// add adds a new connection. A credential that has too many loses the one that has been idle longest; if all are busy, the new one is refused.
func (f *Face) add(c *connection) error {
	f.conns.mu.Lock()
	if f.conns.closed {
		f.conns.mu.Unlock()
		return errClosing
	}
	own, longest := 0, (*connection)(nil)
	var since time.Time
	for _, other := range f.conns.byID {
		if !other.owns(c.owner) {
			continue
		}
		own++
		other.mu.Lock()
		if other.users == 0 && (longest == nil || other.last.Before(since)) {
			longest, since = other, other.last
		}
		other.mu.Unlock()
	}
	if own >= maxConnections && longest == nil {
		f.conns.mu.Unlock()
		return fault.New(fault.LimitQuota, "This credential has %d transport sessions in use.", own).Try("End one with DELETE.")
	}
	f.conns.byID[c.id] = c
	f.conns.mu.Unlock()
	if own >= maxConnections {
		f.drop(longest, errCrowded)
	}
	return nil
}

var (
	errCrowded = errors.New("the credential opened too many transport sessions")
	errIdle    = errors.New("the transport session was idle too long")
)

// drop ends a connection, once. Its calls are cancelled, and its questions get no answer.
func (f *Face) drop(c *connection, why error) {
	f.conns.mu.Lock()
	delete(f.conns.byID, c.id)
	f.conns.mu.Unlock()
	c.mu.Lock()
	if c.ended != nil {
		c.mu.Unlock()
		return
	}
	c.ended = why
	running, pending := c.running, c.pending
	c.running, c.pending = nil, nil
	c.mu.Unlock()
	for _, cancel := range running {
		cancel(why)
	}
	for _, ch := range pending {
		close(ch)
	}
	if err := c.ss.Close(); err != nil {
		f.o.Log.Debug("closing a transport session", "error", err)
	}
	f.o.Release(c.id)
}

// close refuses new connections and returns the open ones.
func (cs *connections) close() []*connection {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closed = true
	return slices.Collect(maps.Values(cs.byID))
}

// sweepUntilClose ends idle connections until Close. The SDK's own timer can't, since it doesn't see the requests that this package serves.
func (f *Face) sweepUntilClose() {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		select {
		case <-f.life.stopping.Done():
			return
		case <-t.C:
			f.sweep(f.o.Clock())
		}
	}
}

func (f *Face) sweep(now time.Time) {
	var idle []*connection
	f.conns.mu.Lock()
	for _, c := range f.conns.byID {
		c.mu.Lock()
		if c.users == 0 && now.Sub(c.last) >= idleTimeout {
			idle = append(idle, c)
		}
		c.mu.Unlock()
	}
	f.conns.mu.Unlock()
	for _, c := range idle {
		f.drop(c, errIdle)
	}
	f.seal.forget(now)
}

// begin registers a request so that notifications/cancelled can find it. An id that is in use would make that ambiguous.
func (c *connection) begin(id json.RawMessage, cancel context.CancelCauseFunc) *rpcError {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := mcpwire.IDKey(id)
	switch _, used := c.running[key]; {
	case c.ended != nil, c.retired:
		return &rpcError{status: http.StatusNotFound, code: mcpwire.CodeInvalidRequest, message: noConnection.Public(), fault: fault.NotFound}
	case used:
		return badRequest(mcpwire.CodeInvalidRequest, "A request with this id is still running.")
	case len(c.running) >= maxRunning:
		return &rpcError{status: http.StatusTooManyRequests, code: fault.LimitRate.RPCCode(), message: "Too many requests are running in this transport session.", fault: fault.LimitRate}
	}
	c.running[key] = cancel
	return nil
}

// finish removes a request. It tells whether the connection is retired and has nothing left to do.
func (c *connection) finish(id json.RawMessage) (over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, mcpwire.IDKey(id))
	return c.retired && len(c.running) == 0
}

// retire makes the connection refuse new calls. It tells whether none runs.
func (c *connection) retire() (over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = true
	return len(c.running) == 0
}

var errCancelled = errors.New("the client cancelled the request")

// cancel ends the named request, if it runs.
func (c *connection) cancel(id json.RawMessage) {
	c.mu.Lock()
	cancel := c.running[mcpwire.IDKey(id)]
	c.mu.Unlock()
	if cancel != nil {
		cancel(errCancelled)
	}
}

// ask sends a request of an upstream to the client, on the stream of the call that it belongs to, and waits for the answer. A client without the
// capability for it isn't asked.
func (c *connection) ask(ctx context.Context, s *stream, method string, params json.RawMessage) (json.RawMessage, error) {
	if !c.asks[method] {
		e := badRequest(mcpwire.CodeMethodNotFound, "The agent's client does not answer "+mcpwire.Clip(method)+".")
		return nil, &call.RPCError{JSON: e.object()}
	}
	if e := askedSince(c.revision, method, params); e != nil {
		return nil, &call.RPCError{JSON: e.object()}
	}
	ch := make(chan reply, 1)
	c.mu.Lock()
	if c.ended != nil {
		c.mu.Unlock()
		return nil, c.ended
	}
	c.asked++
	id := "sallyport-" + strconv.FormatUint(c.asked, 10)
	c.pending[id] = ch
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.pending, id)
	}()
	if err := s.message(method, []byte(strconv.Quote(id)), params); err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case r, ok := <-ch:
		switch {
		case !ok:
			return nil, c.ended
		case r.err != nil:
			return nil, &call.RPCError{JSON: r.err}
		}
		return r.result, nil
	}
}

// deliver passes a client's answer to the call that waits for it. An answer that no call waits for has no effect.
func (c *connection) deliver(m mcpwire.Message) {
	id, ok := call.Text(m.ID)
	if !ok {
		return
	}
	c.mu.Lock()
	ch := c.pending[id]
	delete(c.pending, id)
	c.mu.Unlock()
	if ch != nil {
		ch <- reply{result: m.Result, err: m.Error}
	}
}

// askable returns the requests that a client with these capabilities answers.
func askable(caps json.RawMessage) map[string]bool {
	asks := map[string]bool{}
	for _, k := range [...]struct{ capability, method string }{
		{"elicitation", "elicitation/create"}, {"sampling", "sampling/createMessage"}, {"roots", "roots/list"},
	} {
		if v, ok := call.Get(caps, k.capability); ok && call.IsObject(v) {
			asks[k.method] = true
		}
	}
	return asks
}

// Log levels of MCP (RFC 5424), mildest first.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

const silent = 1 << 10

// level is the rank of a log level as a JSON string; false if it is none.
func level(value json.RawMessage) (int, bool) {
	s, ok := call.Text(value)
	i := slices.Index(levels, s)
	return i, ok && i >= 0
}
