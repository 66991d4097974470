package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"sallyport.example/internal/call"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/mcpwire"
)

const (
	discoverTime  = 10 * time.Second
	listenEnd     = time.Second
	notifyTime    = 5 * time.Second
	maxRPCError   = 64 << 10
	maxAsks       = 16 // requests of a server that run at once, per conversation
	floodRate     = 1000
	floodBurst    = 5000 // messages that answer nothing, per conversation or call; beyond it a server that floods us is cut off
	progressRate  = 50
	progressBurst = 200 // notifications passed on, per call; what is beyond it is dropped
)

var (
	implementation = &mcp.Implementation{Name: "sallyport", Version: "1"}
	clientInfo     = json.RawMessage(mcpwire.AppendJSON(nil, implementation))
	emptyObject    = json.RawMessage(`{}`)
)

// wire carries messages to a server and hands what comes back to conversation.receive.
type wire interface {
	// exchange sends a request and waits for its answer. The pending is registered.
	exchange(ctx context.Context, p *pending, out *outgoing) (mcpwire.Message, error)
	// post sends a notification or an answer, which the server does not answer.
	post(ctx context.Context, m mcpwire.Message) error
	// opened is called once the handshake is done: the server may speak first from now on.
	opened()
	// close stops the server's process or session. The conversation's context is done by then.
	close()
}

// outgoing is a request and which of its arguments HTTP repeats in headers.
type outgoing struct {
	mcpwire.Message
	bound []mcpwire.ParamHeader
}

// pending is a request that waits for its answer.
type pending struct {
	id  json.RawMessage
	key string // mcpwire.IDKey of id
	ctx context.Context
	x   *call.Exchange

	answer chan answer   // has room for one; later ones are dropped
	flood  *rate.Limiter // of messages on the call's own stream that answer nothing; only the stream's reader uses it
	relay  relay
}

type answer struct {
	mcpwire.Message
	err error
}

// settle takes the answer. False means that there was one already.
func (p *pending) settle(a answer) bool {
	select {
	case p.answer <- a:
		return true
	default:
		return false
	}
}

// relay passes notifications on to the caller of a request: in order, at a bounded rate, and without holding up the reader of a pipe, which is
// everybody's. What a slow caller has no time for is dropped.
type relay struct {
	mu      sync.Mutex // guards all below
	closed  bool       // the caller no longer listens
	rate    *rate.Limiter
	waiting chan func()   // nil until there is one
	drained chan struct{} // closed when the goroutine that passes them on has ended
}

// close ends the relay. What came before the answer is passed on before it, but a call that was stopped waits for nobody who does not read.
func (r *relay) close(ctx context.Context) {
	r.mu.Lock()
	r.closed = true
	waiting, drained := r.waiting, r.drained
	r.mu.Unlock()
	if waiting == nil {
		return
	}
	close(waiting)
	select {
	case <-drained:
	case <-ctx.Done():
	}
}

// lifetime ends once, with a cause, and knows the goroutines that belong to it.
type lifetime struct {
	ctx     context.Context // done at the end, with the cause
	cancel  context.CancelCauseFunc
	once    sync.Once
	wg      sync.WaitGroup
	startMu sync.Mutex // guards ended
	ended   bool       // no goroutine is started any more
}

// fail begins the end. The first cause stays.
func (l *lifetime) fail(err error) { l.cancel(err) }

func (l *lifetime) cause() error { return context.Cause(l.ctx) }

// end has stop called once, and waits until it and all goroutines are done.
func (l *lifetime) end(stop func()) {
	l.once.Do(func() {
		l.fail(errClosed)
		stop()
		l.startMu.Lock()
		l.ended = true
		l.startMu.Unlock()
		l.wg.Wait()
	})
}

// background runs f in a goroutine that end waits for. False means that it is too late and f does not run.
func (l *lifetime) background(f func()) bool {
	l.startMu.Lock()
	defer l.startMu.Unlock()
	if l.ended {
		return false
	}
	l.wg.Go(f)
	return true
}

// conversation is one connection to a server that the SDK has negotiated: the one that all callers share, or one client's own.
type conversation struct {
	lifetime
	s    *server
	wire wire
	caps map[string]json.RawMessage // what the client lets the server ask; nil in the shared conversation

	seq    atomic.Uint64
	agreed atomic.Pointer[string] // the revision that the handshake has negotiated so far
	info   *mcp.InitializeResult  // set before anybody else sees the conversation
	flood  *rate.Limiter          // of messages on a shared stream that answer nothing

	mu        sync.Mutex // guards all below
	pending   map[string]*pending
	called    bool                          // an agent's call was sent to it
	endedAmid bool                          // it ended while calls of several agents were under way
	current   *pending                      // of an owned conversation: the call in flight
	asks      map[string]context.CancelFunc // requests of the server's that run, by the keys of their ids
	restart   func()                        // ends the listen stream, which then starts anew
}

// agent is whose call the request is; "": it is the gateway's own.
func (p *pending) agent() string {
	if p.x == nil {
		return ""
	}
	return p.x.Agent
}

// fail begins the end. The first cause stays.
func (c *conversation) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() == nil {
		of := ""
		for _, p := range c.pending {
			if a := p.agent(); a != "" {
				c.endedAmid = c.endedAmid || of != "" && of != a
				of = a
			}
		}
	}
	c.lifetime.fail(err)
}

// endedByCall tells whether an agent's call can have ended the conversation: one was sent, and the cause is not that nobody is at the server's address.
func (c *conversation) endedByCall() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var dial *dialError
	return c.called && !errors.As(c.cause(), &dial)
}

// owned tells whether the conversation is one client's own.
func (c *conversation) owned() bool { return c.caps != nil }

// connect starts a conversation. caps is what the client of an owned conversation lets the server ask.
func (s *server) connect(ctx context.Context, caps map[string]json.RawMessage) (c *conversation, err error) {
	c = &conversation{
		s: s, caps: caps,
		flood: rate.NewLimiter(floodRate, floodBurst), pending: map[string]*pending{}, asks: map[string]context.CancelFunc{},
	}
	c.agree("")
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	patience := 20 * time.Second
	if s.http != nil {
		c.wire = newHTTPWire(c)
	} else {
		patience = time.Minute // package runners other than npx download before they start
		if c.wire, err = startChild(ctx, c); err != nil {
			c.cancel(err)
			return nil, err
		}
	}
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	if err := c.negotiate(ctx); err != nil {
		if c.ctx.Err() != nil {
			err = context.Cause(c.ctx) // a dead process says more than a lost handshake
		}
		c.fail(err)
		c.close()
		return nil, err
	}
	c.wire.opened()
	if c.modern() {
		c.background(c.listen)
	} else if declares(c.info.Capabilities, "logging") {
		// Servers send no log messages before a client sets a level. Each caller chooses what it sees of them.
		if _, err := c.request(ctx, "logging/setLevel", json.RawMessage(`{"level":"info"}`)); err != nil {
			c.s.log.Debug("setting the log level failed", "error", plain(err))
		}
	}
	return c, nil
}

// negotiate runs the SDK's handshake over our wire.
func (c *conversation) negotiate(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the handshake panicked: %s", display.Line(fmt.Sprint(p), 200))
		}
	}()
	client := mcp.NewClient(implementation, &mcp.ClientOptions{
		Capabilities:   capabilities(c.caps),
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
	})
	t := &handshake{c: c, in: make(chan jsonrpc.Message, 4), closed: make(chan struct{})}
	session, err := client.Connect(ctx, t, nil)
	if err != nil {
		return fmt.Errorf("the handshake failed: %w", err)
	}
	// The SDK's session stays open, idle, until the conversation ends.
	c.background(func() {
		<-c.ctx.Done()
		session.Close()
	})
	c.info = session.InitializeResult()
	c.agree(c.info.ProtocolVersion)
	return nil
}

// handshake is the SDK's view of our wire: its own requests and their answers, nothing else.
type handshake struct {
	c      *conversation
	in     chan jsonrpc.Message
	once   sync.Once
	closed chan struct{}
}

func (h *handshake) Connect(context.Context) (mcp.Connection, error) { return h, nil }
func (h *handshake) SessionID() string                               { return "" }

func (h *handshake) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

func (h *handshake) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-h.in:
		return m, nil
	case <-h.c.ctx.Done():
		return nil, io.EOF
	case <-h.closed:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Write sends one message of the SDK's. A request's answer is put into in before Write returns. A failed request is answered with an error
// instead of failing Write, which would end the SDK's connection before it can fall back from server/discover to initialize.
func (h *handshake) Write(ctx context.Context, m jsonrpc.Message) error {
	c := h.c
	req, ok := m.(*jsonrpc.Request)
	if !ok {
		return nil // it is never asked, so it has nothing to answer
	}
	frame, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	out, e := c.s.parse(frame)
	if e != nil {
		return e
	}
	if !req.IsCall() {
		return c.wire.post(ctx, out)
	}
	switch req.Method {
	case "server/discover":
		if meta, e := mcpwire.ParseMeta(out.Params); e == nil && meta.Version != "" {
			c.agree(meta.Version)
		}
		// Servers that know only initialize may ignore this request for good.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, discoverTime)
		defer cancel()
	case "initialize":
		c.agree("")
	}
	answer, err := c.exchange(ctx, nil, &outgoing{Message: out})
	response := &jsonrpc.Response{ID: req.ID, Result: answer.Result}
	if err == nil && answer.Error != nil {
		e := new(jsonrpc.Error)
		err = json.Unmarshal(answer.Error, e)
		response.Error = e
	}
	if err != nil {
		response = &jsonrpc.Response{ID: req.ID, Error: &jsonrpc.Error{Code: mcpwire.CodeInternal, Message: plain(err)}}
	} else if req.Method == "initialize" {
		version, _ := call.Get(answer.Result, "protocolVersion")
		if v, ok := call.Text(version); ok && mcpwire.HeaderSafe(v) {
			c.agree(v)
		}
	}
	select {
	case h.in <- response:
	case <-h.closed:
	case <-c.ctx.Done():
	}
	return nil
}

// agree notes the revision that messages follow from now on.
func (c *conversation) agree(version string) { c.agreed.Store(&version) }
func (c *conversation) version() string      { return *c.agreed.Load() }
func (c *conversation) modern() bool         { return mcpwire.Modern(c.version()) }

// close ends the conversation and waits for everything it started. Twice is harmless; the second waits too.
func (c *conversation) close() { c.end(c.wire.close) }

// newID returns an id that no server has seen in this conversation.
func (c *conversation) newID() json.RawMessage {
	return strconv.AppendQuote(nil, "sp-"+strconv.FormatUint(c.seq.Add(1), 10))
}

// exchange sends a request and waits for its answer.
func (c *conversation) exchange(ctx context.Context, x *call.Exchange, out *outgoing) (mcpwire.Message, error) {
	p := &pending{id: out.ID, key: mcpwire.IDKey(out.ID), ctx: ctx, x: x, answer: make(chan answer, 1)}
	c.mu.Lock()
	if c.ctx.Err() != nil {
		c.mu.Unlock()
		return mcpwire.Message{}, c.unsent("has ended the conversation")
	}
	c.pending[p.key] = p
	c.called = c.called || p.agent() != ""
	if c.owned() && x != nil {
		c.current = p
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.pending, p.key)
		if c.current == p {
			c.current = nil
		}
		c.mu.Unlock()
		p.relay.close(ctx)
	}()
	return c.wire.exchange(ctx, p, out)
}

// request sends a request of the gateway's own, for nobody's call, and returns its checked result.
func (c *conversation) request(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	return c.do(ctx, method, params, &call.Exchange{})
}

// do is the lean path: it builds the request around the bytes of params, sends it, checks the answer and cuts the result out of it.
func (c *conversation) do(ctx context.Context, method string, params json.RawMessage, x *call.Exchange) (json.RawMessage, error) {
	out, err := c.build(c.newID(), method, params, x)
	if err != nil {
		return nil, err
	}
	answer, err := c.exchange(ctx, x, out)
	if err != nil {
		return nil, err
	}
	return c.finish(answer)
}

// build makes a request. It takes from the exchange what this revision has a place for.
func (c *conversation) build(id json.RawMessage, method string, params json.RawMessage, x *call.Exchange) (*outgoing, error) {
	out := &outgoing{Message: mcpwire.Message{ID: id, Method: method, Params: bytes.TrimSpace(params)}}
	if len(out.Params) == 0 {
		out.Params = emptyObject
	}
	lim := c.s.limits()
	lim.Bytes = len(out.Params) // the limit on bytes is for what the server sends
	if !call.IsObject(out.Params) || call.Check(out.Params, lim) != nil {
		return nil, c.s.undispatched(nil, "was not asked: the params are no object")
	}
	for _, member := range [...]string{"_meta", "inputResponses", "requestState"} {
		if _, taken := call.Get(out.Params, member); taken {
			return nil, c.s.undispatched(nil, "was not asked: the params have members that are the gateway's")
		}
	}
	var meta mcpwire.Meta
	if x.Progress != nil {
		meta.ProgressToken = id
	}
	if c.modern() {
		if err := c.addModern(out, &meta, x); err != nil {
			return nil, err
		}
	}
	if raw := meta.JSON(); raw != nil {
		out.Params = call.SetMember(out.Params, "_meta", raw)
	}
	return out, nil
}

// addModern adds what modern revisions have in every request, and the answers of a multi-round-trip request.
func (c *conversation) addModern(out *outgoing, meta *mcpwire.Meta, x *call.Exchange) error {
	name, repeated, ok := mcpwire.Name(out.Method, out.Params)
	if repeated && !ok {
		return c.s.undispatched(nil, "was not asked: the params of %s name nothing", out.Method)
	}
	if out.Method == string(call.CallTool) {
		out.bound = c.s.paramHeaders(name)
	}
	caps := c.s.restrict(x.ClientCapabilities)
	if len(x.InputResponses) > 0 {
		if len(caps) == 0 { // a server that may ask nothing gets no answers
			return c.s.undispatched(nil, "takes no answers: its client_features do not let it ask")
		}
		out.Params = call.SetMember(out.Params, "inputResponses", x.InputResponses)
	}
	if x.RequestState != "" {
		out.Params = call.SetMember(out.Params, "requestState", mcpwire.AppendJSON(nil, x.RequestState))
	}
	meta.Version, meta.ClientInfo, meta.Capabilities = c.version(), clientInfo, narrowed(caps)
	if x.Log != nil {
		meta.LogLevel = json.RawMessage(`"info"`)
	}
	return nil
}

// declares tells whether a server declared the capability of that name in its JSON. The SDK deprecates the fields of features that new revisions
// deprecate, and servers of older revisions have them.
func declares(caps *mcp.ServerCapabilities, name string) bool {
	raw, _ := json.Marshal(caps) // structs of the SDK always marshal; nil has no members
	value, _ := call.Get(raw, name)
	return call.IsObject(value)
}

// limits bound one message of the server's.
func (s *server) limits() call.Limits {
	return call.Limits{Bytes: s.maxFrame, Depth: 100, Members: 1 << 20}
}

func (s *server) parse(frame []byte) (mcpwire.Message, *mcpwire.Error) {
	return mcpwire.Parse(frame, s.limits())
}

// finish checks an answer and returns its result.
func (c *conversation) finish(answer mcpwire.Message) (json.RawMessage, error) {
	switch {
	case answer.Error != nil:
		return nil, c.rpcError(answer.Error)
	case int64(len(answer.Result)) > c.s.o.MaxResult:
		return nil, c.s.tooLarge(nil)
	case !call.IsObject(answer.Result):
		return nil, c.s.invalidResult(nil, "has a result that is no object")
	}
	kind, has := call.Get(answer.Result, "resultType")
	switch string(kind) {
	case `"complete"`:
	case `"input_required"`:
		if !c.modern() {
			return nil, c.s.invalidResult(nil, "asks for input in a way that its revision does not have")
		}
		return c.inputRequired(answer.Result)
	default:
		if has {
			return nil, c.s.invalidResult(nil, "has an unknown resultType") // it could mean anything
		}
	}
	return answer.Result, nil
}

// rpcError is the server's own JSON-RPC error in a form that can be passed on.
func (c *conversation) rpcError(raw []byte) error {
	if len(raw) > maxRPCError {
		return fault.New(fault.ResultTooLarge, "The error that upstream %s answered with is over %d bytes and was discarded.", c.s.cfg.ID, maxRPCError)
	}
	var e struct {
		Code    *int64  `json:"code"`
		Message *string `json:"message"`
	}
	if err := json.Unmarshal(raw, &e); err != nil || e.Code == nil || e.Message == nil {
		return c.s.invalidResult(err, "is an error without code or message")
	}
	return &call.RPCError{JSON: bytes.Clone(raw)}
}

// inputRequired lets a multi-round-trip request pass if it asks for nothing but what the operator lets this server ask for.
func (c *conversation) inputRequired(result []byte) (json.RawMessage, error) {
	requests, ok := call.Get(result, "inputRequests")
	if !ok {
		return result, nil
	}
	changed := requests
	for id, request := range call.Members(requests) {
		raw, _ := call.Get(request, "method")
		method, _ := call.Text(raw)
		feature := featureOf[method]
		if feature == "" || !slices.Contains(c.s.cfg.ClientFeatures, feature) {
			return nil, c.s.invalidResult(nil, "asks the client for something it is not configured to")
		}
		if feature != "sampling" {
			continue
		}
		params, _ := call.Get(request, "params")
		if params = withoutContext(params); params == nil {
			return nil, c.s.invalidResult(nil, "asks the client with params that are no object")
		}
		changed = call.SetMember(changed, id, call.SetMember(request, "params", params))
	}
	return call.SetMember(result, "inputRequests", changed), nil
}

// withoutContext has a sampling include no context of the client's, which belongs to other servers too. It is nil where params are no object.
func withoutContext(params json.RawMessage) json.RawMessage {
	if len(params) == 0 {
		params = emptyObject
	}
	return call.SetMember(params, "includeContext", json.RawMessage(`"none"`))
}

// receive handles one message of the server's. p is the call on whose stream it came, and alone can be answered by it; p is nil on a stream that
// all calls share, where an answer can be anybody's. The frame is the conversation's from now on. An error means that the server floods the stream.
func (c *conversation) receive(frame []byte, p *pending) error {
	m, e := c.s.parse(frame)
	if e != nil {
		id, _ := call.Get(frame, "id") // where the frame is no strict JSON this is a guess, and good enough to fail the call
		if to := c.waiting(id, p); to != nil && to.settle(answer{err: c.s.invalidResult(e, "is no JSON-RPC message")}) {
			return nil
		}
		return c.unsolicited(p, "something that is no JSON-RPC message")
	}
	if m.Response() {
		if to := c.waiting(m.ID, p); to != nil && to.settle(answer{Message: m}) {
			return nil
		}
		return c.unsolicited(p, "an answer to nothing that was asked")
	}
	if err := c.unsolicited(p, ""); err != nil {
		return err
	}
	if m.ID != nil {
		c.ask(m, p)
	} else {
		c.notified(m, p)
	}
	return nil
}

// waiting is the call with that id, which on the stream of a call p can only be p.
func (c *conversation) waiting(id json.RawMessage, p *pending) *pending {
	key := mcpwire.IDKey(id)
	if p == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.pending[key]
	}
	if key == p.key {
		return p
	}
	return nil
}

// callOf is p, or on a stream that has no p the call in flight, which only an owned conversation knows.
func (c *conversation) callOf(p *pending) *pending {
	if p != nil {
		return p
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// unsolicited counts a message that answers nothing. It logs what the message was unless that is "". A server that sends too many is cut off: one
// call's stream, or the conversation where all calls share one.
func (c *conversation) unsolicited(p *pending, what string) error {
	if what != "" {
		c.s.log.Debug("upstream sent " + what)
	}
	limiter := c.flood
	if p != nil {
		if p.flood == nil {
			p.flood = rate.NewLimiter(floodRate, floodBurst)
		}
		limiter = p.flood
	}
	if limiter.Allow() {
		return nil
	}
	if p == nil {
		c.fail(errFlood)
	}
	return errFlood
}

// notified handles a notification. p is the call on whose stream it came, nil on a stream that all share.
func (c *conversation) notified(m mcpwire.Message, p *pending) {
	switch m.Method {
	case "notifications/progress":
		token, _ := call.Get(m.Params, "progressToken")
		if to := c.waiting(token, p); to != nil && to.x != nil {
			c.passOn(to, to.x.Progress, m.Params)
		}
	case "notifications/message":
		// A log message does not say which call it is about, and it may quote data of another session. So on a stream that all share nobody gets it.
		if to := c.callOf(p); to != nil && to.x != nil {
			c.passOn(to, to.x.Log, m.Params)
		}
	case "notifications/tools/list_changed", "notifications/resources/list_changed", "notifications/prompts/list_changed":
		if !c.owned() {
			c.s.relist()
		}
	case "notifications/resources/updated":
		if !c.owned() {
			c.s.resourceUpdated(m.Params)
		}
	case "notifications/cancelled":
		id, _ := call.Get(m.Params, "requestId")
		c.mu.Lock()
		cancel := c.asks[mcpwire.IDKey(id)]
		c.mu.Unlock()
		if cancel != nil {
			cancel()
		}
	}
}

// passOn gives a notification's params to the caller, if it still listens and the server does not overdo it.
func (c *conversation) passOn(p *pending, to func(json.RawMessage), params json.RawMessage) {
	if to == nil || len(params) > maxRPCError {
		return
	}
	r := &p.relay
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	if r.rate == nil {
		r.rate = rate.NewLimiter(progressRate, progressBurst)
	}
	if !r.rate.Allow() {
		return
	}
	if r.waiting == nil {
		waiting, drained := make(chan func(), progressBurst), make(chan struct{})
		if !c.background(func() {
			defer close(drained)
			for pass := range waiting {
				c.s.guard("notification", pass)
			}
		}) {
			return // the conversation is ending
		}
		r.waiting, r.drained = waiting, drained
	}
	own := bytes.Clone(params) // the message around them may be large
	select {
	case r.waiting <- func() { to(own) }:
	default:
	}
}

// ask handles a request of the server's. Where the operator and the client allow it, it goes to the client of the call in flight; all
// others learn that nobody answers here.
func (c *conversation) ask(m mcpwire.Message, p *pending) {
	if c.modern() {
		return // its revision has no such requests, and no answers to them
	}
	if m.Method == "ping" {
		c.reply(m.ID, emptyObject)
		return
	}
	p = c.callOf(p)
	if _, ok := c.caps[featureOf[m.Method]]; !ok || p == nil || p.x == nil || p.x.Ask == nil {
		c.refuse(m.ID, mcpwire.CodeMethodNotFound, "Method not found")
		return
	}
	params := m.Params
	if len(params) == 0 {
		params = emptyObject
	}
	if m.Method == "sampling/createMessage" {
		params = withoutContext(params)
	}
	ctx, cancel := context.WithCancel(p.ctx)
	c.mu.Lock()
	key := mcpwire.IDKey(m.ID)
	crowded := len(c.asks) >= maxAsks || c.asks[key] != nil
	if !crowded {
		c.asks[key] = cancel
	}
	c.mu.Unlock()
	run := func() {
		defer cancel()
		var result json.RawMessage
		err := errors.New("the client could not be asked")
		c.s.guard("Ask", func() { result, err = p.x.Ask(ctx, m.Method, params) })
		c.mu.Lock()
		delete(c.asks, key)
		c.mu.Unlock()
		var rpc *call.RPCError
		switch {
		case errors.As(err, &rpc):
			c.send(mcpwire.Message{ID: m.ID, Error: rpc.JSON})
		case err != nil:
			c.s.log.Debug("the client did not answer", "method", m.Method, "error", plain(err))
			c.refuse(m.ID, mcpwire.CodeInternal, "The client did not answer")
		default:
			c.reply(m.ID, result)
		}
	}
	if crowded || !c.background(run) {
		cancel()
		c.refuse(m.ID, mcpwire.CodeInternal, "Too many requests")
	}
}

// reply answers a request of the server's.
func (c *conversation) reply(id, result json.RawMessage) {
	c.send(mcpwire.Message{ID: id, Result: result})
}

func (c *conversation) refuse(id json.RawMessage, code int64, message string) {
	c.send(mcpwire.Message{ID: id, Error: (&mcpwire.Error{Code: code, Message: message}).JSON()})
}

// abandon tells a legacy server that nobody waits for a request any more.
func (c *conversation) abandon(id json.RawMessage) {
	c.send(mcpwire.Message{Method: "notifications/cancelled", Params: append(append([]byte(`{"requestId":`), id...), `,"reason":"the caller gave up"}`...)})
}

// send posts a message in the background: the stream that it is about must not wait for it.
func (c *conversation) send(m mcpwire.Message) {
	c.background(func() {
		ctx, cancel := context.WithTimeout(c.ctx, notifyTime)
		defer cancel()
		if err := c.wire.post(ctx, m); err != nil {
			c.s.log.Debug("an answer or a notification did not get through", "error", plain(err))
		}
	})
}

// listen keeps a stream open on which modern servers announce changes of their lists and of the resources that are subscribed to right now.
func (c *conversation) listen() {
	delay := time.Second
	for c.ctx.Err() == nil {
		ctx, cancel := context.WithCancel(c.ctx)
		id := c.newID()
		var anew, sent atomic.Bool
		c.mu.Lock()
		c.restart = func() {
			anew.Store(true)
			if c.s.http != nil || !sent.Load() {
				cancel() // closing the stream is the cancellation
				return
			}
			// On a shared pipe a server may let the end of one stream take the next one's announcements with it (the go-sdk does), so
			// it has a moment to confirm the end.
			c.abandon(id)
			time.AfterFunc(listenEnd, cancel)
		}
		c.mu.Unlock()
		wanted := c.announcements()
		if len(wanted) == 0 {
			<-ctx.Done()
			cancel()
			continue
		}
		began := time.Now()
		params, _ := json.Marshal(map[string]any{"notifications": wanted}) // strings and booleans always marshal
		x := &call.Exchange{}
		out, err := c.build(id, "subscriptions/listen", params, x)
		if err == nil {
			sent.Store(true)
			_, err = c.exchange(ctx, x, out)
		}
		cancel()
		if anew.Load() {
			c.s.relist() // what changed between the streams
			continue
		}
		c.s.log.Debug("the stream of announcements ended", "error", plain(err))
		if time.Since(began) > stableAfter {
			delay = time.Second
		}
		if !sleep(c.ctx, c, delay, nil) {
			return
		}
		c.s.relist()
		delay = min(delay*2, c.s.backoffMax)
	}
}

// announcements are what listen asks for.
func (c *conversation) announcements() map[string]any {
	wanted := map[string]any{}
	if caps := c.info.Capabilities; caps != nil {
		if caps.Tools != nil && caps.Tools.ListChanged {
			wanted["toolsListChanged"] = true
		}
		if caps.Prompts != nil && caps.Prompts.ListChanged {
			wanted["promptsListChanged"] = true
		}
		if caps.Resources != nil && caps.Resources.ListChanged {
			wanted["resourcesListChanged"] = true
		}
	}
	if uris := c.s.subscriptions(); len(uris) > 0 {
		wanted["resourceSubscriptions"] = uris
	}
	return wanted
}

// restartListening makes listen take up a change of the subscriptions.
func (c *conversation) restartListening() {
	c.mu.Lock()
	restart := c.restart
	c.restart = nil
	c.mu.Unlock()
	if restart != nil {
		restart()
	}
}
