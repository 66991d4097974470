package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
)

const (
	firstModern   = "2026-07-28" // revisions sort by their names
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

var implementation = &mcp.Implementation{Name: "sallyport", Version: "1"}

// wire carries frames (one JSON-RPC message each) to a server and hands what comes back to conversation.receive.
type wire interface {
	// exchange sends a request and returns the frame that answers it, in memory of the caller's. The pending is registered.
	exchange(ctx context.Context, p *pending, out outgoing) ([]byte, error)
	// post sends a notification or an answer, which the server does not answer.
	post(ctx context.Context, frame []byte) error
	// opened is called once the handshake is done: the server may speak first from now on.
	opened()
	// close stops the server's process or session. The conversation's context is done by then.
	close()
}

// outgoing is a request and what HTTP mirrors of it in headers.
type outgoing struct {
	frame  []byte
	method string
	name   string // Mcp-Name
	params []paramHeaderValue
}

type paramHeaderValue struct{ name, value string }

// pending is a request that waits for its answer.
type pending struct {
	key string // the raw JSON of its id
	ctx context.Context
	x   *call.Exchange

	answer chan answer // has room for one; later ones are dropped

	flood *rate.Limiter // of the call's own stream; its reader's alone

	mu     sync.Mutex    // guards the rest
	over   bool          // the caller no longer listens
	passed *rate.Limiter // what is passed on
	notes  chan func()   // notifications on their way to the caller; nil until there is one
	noted  chan struct{} // closed when the goroutine that passes them on has ended
}

// maxNotes is how many notifications wait for a caller that is slow to take them; more are dropped. The reader of a pipe, which is
// everybody's, never waits for one caller.
const maxNotes = progressBurst

type answer struct {
	frame []byte
	err   error
}

// era is what the handshake settled.
type era struct {
	version string
	modern  bool
}

// conversation is one connection to a server that the SDK has negotiated: the one that all callers share, or one client's own.
type conversation struct {
	s     *server
	log   *slog.Logger
	wire  wire
	caps  map[string]json.RawMessage // what the client lets the server ask; nil in the shared conversation
	owned bool

	ctx    context.Context // done when the conversation has ended, with the cause
	cancel context.CancelCauseFunc
	once   sync.Once // close
	wg     sync.WaitGroup

	seq   atomic.Uint64
	agree atomic.Pointer[era]
	info  *mcp.InitializeResult // set before anybody else sees the conversation

	flood *rate.Limiter

	mu      sync.Mutex // guards all below
	ended   bool       // no goroutine is started any more
	pending map[string]*pending
	current *pending // of an owned conversation: the call in flight
	asks    map[string]context.CancelFunc
	restart func() // ends the listen stream, which then starts anew
}

// connect starts a conversation. caps is what the client of an owned conversation lets the server ask.
func (s *server) connect(ctx context.Context, caps map[string]json.RawMessage) (c *conversation, err error) {
	c = &conversation{
		s: s, log: s.log, caps: caps, owned: caps != nil,
		flood: rate.NewLimiter(floodRate, floodBurst), pending: map[string]*pending{}, asks: map[string]context.CancelFunc{},
	}
	c.agree.Store(&era{})
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
	} else if l := c.info.Capabilities; l != nil && declares(l, "logging") {
		// Servers say nothing before they are told a level. What callers see of it is theirs to choose.
		if _, err := c.request(ctx, "logging/setLevel", json.RawMessage(`{"level":"info"}`)); err != nil {
			c.log.Debug("setting the log level failed", "error", plain(err))
		}
	}
	return c, nil
}

// negotiate runs the SDK's handshake over our wire.
func (c *conversation) negotiate(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the handshake panicked: %s", printable(fmt.Sprint(p), 200))
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
	c.agree.Store(&era{version: c.info.ProtocolVersion, modern: c.info.ProtocolVersion >= firstModern})
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
	if !req.IsCall() {
		return c.wire.post(ctx, frame)
	}
	switch req.Method {
	case "server/discover":
		var p struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		}
		var version string
		if json.Unmarshal(req.Params, &p) == nil && json.Unmarshal(p.Meta[mcp.MetaKeyProtocolVersion], &version) == nil {
			c.agree.Store(&era{version: version, modern: true})
		}
		// Servers that know only initialize may ignore this request for good.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, discoverTime)
		defer cancel()
	case "initialize":
		c.agree.Store(&era{})
	}
	e, _ := open(frame)
	answer, err := c.exchange(ctx, string(e.id), nil, outgoing{frame: frame, method: req.Method})
	var response jsonrpc.Message
	if err == nil {
		if err = c.s.strict(answer); err == nil {
			response, err = jsonrpc.DecodeMessage(answer)
		}
	}
	if err != nil {
		response = &jsonrpc.Response{ID: req.ID, Error: &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: plain(err)}}
	} else if req.Method == "initialize" {
		if e, _ := open(answer); e.result != nil {
			var r struct {
				ProtocolVersion string `json:"protocolVersion"`
			}
			if json.Unmarshal(e.result, &r) == nil && headerSafe([]byte(r.ProtocolVersion)) {
				c.agree.Store(&era{version: r.ProtocolVersion})
			}
		}
	}
	select {
	case h.in <- response:
	case <-h.closed:
	case <-c.ctx.Done():
	}
	return nil
}

func (c *conversation) version() string { return c.agree.Load().version }
func (c *conversation) modern() bool    { return c.agree.Load().modern }
func (c *conversation) cause() error    { return context.Cause(c.ctx) }

// fail ends the conversation: calls in flight fail with the cause.
func (c *conversation) fail(err error) { c.cancel(err) }

// close ends the conversation and waits for everything it started. Twice is harmless; the second waits too.
func (c *conversation) close() {
	c.once.Do(func() {
		c.fail(errClosed)
		c.wire.close()
		c.mu.Lock()
		c.ended = true
		c.mu.Unlock()
		c.wg.Wait()
	})
}

// background runs f in a goroutine that close waits for. False means that the conversation is over and f does not run.
func (c *conversation) background(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.wg.Go(f)
	return true
}

// newID returns the raw JSON of an id that no server has seen in this conversation.
func (c *conversation) newID() string {
	return `"sp-` + strconv.FormatUint(c.seq.Add(1), 10) + `"`
}

// exchange sends a request under the id and waits for the frame that answers it.
func (c *conversation) exchange(ctx context.Context, id string, x *call.Exchange, out outgoing) ([]byte, error) {
	p := &pending{key: id, ctx: ctx, x: x, answer: make(chan answer, 1)}
	c.mu.Lock()
	if c.ctx.Err() != nil {
		c.mu.Unlock()
		return nil, c.s.undispatched(c.cause(), "has ended the conversation")
	}
	c.pending[id] = p
	if c.owned && x != nil {
		c.current = p
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.pending, id)
		if c.current == p {
			c.current = nil
		}
		c.mu.Unlock()
		p.mu.Lock()
		p.over = true
		noted := p.noted
		if p.notes != nil {
			close(p.notes)
		}
		p.mu.Unlock()
		if noted != nil {
			select {
			case <-noted: // what came before the answer is passed on before it
			case <-ctx.Done(): // but a call that was stopped waits for nobody who does not read
			}
		}
	}()
	return c.wire.exchange(ctx, p, out)
}

// request sends a request of the gateway's own and returns its checked result.
func (c *conversation) request(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	return c.do(ctx, method, params, &call.Exchange{})
}

// do is the lean path: build the request around the params' bytes, send it, check the answer, cut the result out of it.
func (c *conversation) do(ctx context.Context, method string, params json.RawMessage, x *call.Exchange) (json.RawMessage, error) {
	id := c.newID()
	out, err := c.build(id, method, params, x)
	if err != nil {
		return nil, err
	}
	frame, err := c.exchange(ctx, id, x, out)
	if err != nil {
		return nil, err
	}
	return c.finish(frame)
}

// build makes the frame of a request. Of the exchange it takes what this revision has a place for.
func (c *conversation) build(id, method string, params json.RawMessage, x *call.Exchange) (outgoing, error) {
	out := outgoing{method: method}
	agreed := c.agree.Load()
	inner := bytes.TrimSpace(params)
	if len(inner) == 0 {
		inner = emptyObject
	}
	var name, arguments []byte
	meta := false
	ok := members(inner, func(key, value []byte) {
		switch string(key) {
		case "name", "uri":
			name = value
		case "arguments":
			arguments = value
		case "_meta", "inputResponses", "requestState":
			meta = true
		}
	})
	if !ok || meta {
		return out, c.s.undispatched(nil, "was not asked: the params are no object, or have members that are the gateway's")
	}
	f := make([]byte, 0, len(inner)+512)
	f = append(f, `{"jsonrpc":"2.0","id":`...)
	f = append(f, id...)
	f = append(f, `,"method":"`...)
	f = append(f, method...)
	f = append(f, `","params":`...)
	f = append(f, inner[:len(inner)-1]...)
	comma := len(bytes.TrimSpace(inner[1:len(inner)-1])) > 0
	member := func(key string) {
		if comma {
			f = append(f, ',')
		}
		comma = true
		f = append(f, '"')
		f = append(f, key...)
		f = append(f, '"', ':')
	}
	if agreed.modern {
		if len(x.InputResponses) > 0 {
			if len(c.s.restrict(x.ClientCapabilities)) == 0 { // what it may not ask, it is not told
				return out, c.s.undispatched(nil, "takes no answers: its client_features do not let it ask")
			}
			member("inputResponses")
			f = append(f, x.InputResponses...)
		}
		if x.RequestState != "" {
			state, err := json.Marshal(x.RequestState)
			if err != nil {
				return out, c.s.undispatched(err, "was not asked: the request state is no text")
			}
			member("requestState")
			f = append(f, state...)
		}
	}
	if agreed.modern || x.Progress != nil {
		member("_meta")
		f = append(f, '{')
		comma = false
		if agreed.modern {
			member(mcp.MetaKeyProtocolVersion)
			f = strconv.AppendQuote(f, agreed.version)
			member(mcp.MetaKeyClientInfo)
			f = append(f, `{"name":"sallyport","version":"1"}`...)
			member(mcp.MetaKeyClientCapabilities)
			f = c.appendCapabilities(f, x)
			if x.Log != nil {
				member(metaLogLevel)
				f = append(f, `"info"`...)
			}
		}
		if x.Progress != nil {
			member("progressToken")
			f = append(f, id...)
		}
		f = append(f, '}')
	}
	out.frame = append(f, '}', '}')
	if agreed.modern && c.s.http != nil {
		switch method {
		case "tools/call", "resources/read", "prompts/get":
			if json.Unmarshal(name, &out.name) != nil {
				return out, c.s.undispatched(nil, "was not asked: the params of %s name nothing", method)
			}
		}
		if method == "tools/call" {
			out.params = c.s.paramHeaders(out.name, arguments)
		}
	}
	return out, nil
}

// appendCapabilities declares what the agent's client can do and the operator lets this server use.
func (c *conversation) appendCapabilities(f []byte, x *call.Exchange) []byte {
	caps := c.s.restrict(x.ClientCapabilities)
	if len(caps) == 0 {
		return append(f, '{', '}')
	}
	return append(f, narrowed(caps)...)
}

// metaLogLevel is the log level that a request of revision 2026-07-28 asks for. The SDK's constant is deprecated with the feature.
const metaLogLevel = "io.modelcontextprotocol/logLevel"

// declares tells whether a server declared a capability. It goes by the wire's name: the SDK's fields for features that new revisions
// deprecate are deprecated too, and servers of older revisions have them.
func declares(caps *mcp.ServerCapabilities, name string) bool {
	raw, err := json.Marshal(caps)
	if err != nil {
		return false
	}
	found := false
	members(raw, func(key, value []byte) { found = found || string(key) == name && len(value) > 0 && value[0] == '{' })
	return found
}

// strict checks a frame as the gateway checks everything it decides on.
func (s *server) strict(frame []byte) error {
	return call.Check(frame, call.Limits{Bytes: s.maxFrame, Depth: 100, Members: 1 << 20})
}

// finish checks an answer strictly and returns its result.
func (c *conversation) finish(frame []byte) (json.RawMessage, error) {
	if err := c.s.strict(frame); err != nil {
		return nil, c.s.invalidResult(err, "is not strict JSON")
	}
	e, _ := open(frame)
	switch {
	case (e.result == nil) == (e.err == nil):
		return nil, c.s.invalidResult(nil, "has not exactly one of result and error")
	case e.err != nil:
		return nil, c.rpcError(e.err)
	case int64(len(e.result)) > c.s.o.MaxResult:
		return nil, c.s.tooLarge(nil)
	}
	var kind []byte
	if !members(e.result, func(key, value []byte) {
		if string(key) == "resultType" {
			kind = value
		}
	}) {
		return nil, c.s.invalidResult(nil, "has a result that is no object")
	}
	switch word(kind) {
	case "complete":
	case "input_required":
		if !c.modern() {
			return nil, c.s.invalidResult(nil, "asks for input in a way that its revision does not have")
		}
		return c.inputRequired(e.result)
	default:
		if kind != nil {
			return nil, c.s.invalidResult(nil, "has an unknown resultType") // it could mean anything
		}
	}
	return e.result[:len(e.result):len(e.result)], nil
}

// rpcError makes the server's own JSON-RPC error passable. The frame it is in has been checked.
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
	return &gateway.RPCError{JSON: bytes.Clone(raw)}
}

// inputRequired lets a multi-round-trip request pass if it asks for nothing but what the operator lets this server ask for. Samplings are
// told to include no context of the client's, which belongs to other servers too.
func (c *conversation) inputRequired(result []byte) (json.RawMessage, error) {
	requests, ok := call.Get(result, "inputRequests")
	if !ok {
		return bytes.Clone(result), nil
	}
	changed := requests
	for id, request := range call.Members(requests) {
		raw, _ := call.Get(request, "method")
		feature := featureOf[word(raw)]
		if feature == "" || !slices.Contains(c.s.cfg.ClientFeatures, feature) {
			return nil, c.s.invalidResult(nil, "asks the client for something it is not configured to")
		}
		if feature != "sampling" {
			continue
		}
		params, ok := call.Get(request, "params")
		if !ok {
			params = emptyObject
		}
		params = call.SetMember(params, "includeContext", json.RawMessage(`"none"`))
		if params == nil {
			return nil, c.s.invalidResult(nil, "asks the client with params that are no object")
		}
		changed = call.SetMember(changed, id, call.SetMember(request, "params", params))
	}
	return call.SetMember(result, "inputRequests", changed), nil
}

// receive handles one frame of the server's and returns the answer in it if it is p's; p is nil where a wire has one stream for all. The
// frame is good until receive returns.
func (c *conversation) receive(frame []byte, p *pending) (mine []byte, err error) {
	e, ok := open(frame)
	switch {
	case !ok:
		return nil, c.stray(p, "what is no JSON-RPC message")
	case e.method == nil && e.id != nil:
		if p != nil {
			if string(e.id) == p.key {
				return frame, nil
			}
			return nil, c.stray(p, "an answer to nothing that was asked")
		}
		c.mu.Lock()
		to := c.pending[string(e.id)]
		c.mu.Unlock()
		if to != nil {
			select {
			case to.answer <- answer{frame: bytes.Clone(frame)}:
				return nil, nil
			default: // answered already
			}
		}
		return nil, c.stray(p, "an answer to nothing that was asked")
	case e.method == nil:
		return nil, c.stray(p, "a message without method and id")
	case e.id != nil:
		if err := c.stray(p, ""); err != nil {
			return nil, err
		}
		c.ask(frame, e, p)
		return nil, nil
	}
	if err := c.stray(p, ""); err != nil {
		return nil, err
	}
	c.notified(frame, e, p)
	return nil, nil
}

// stray counts a message that answers nothing, logging what it was unless that is "". A server that sends too many is cut off: one call's
// stream, or the conversation where all calls share one.
func (c *conversation) stray(p *pending, what string) error {
	if what != "" {
		c.log.Debug("upstream sent " + what)
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

// notified handles a notification. p is the call whose stream it came on, nil if it came on one that all share.
func (c *conversation) notified(frame []byte, e envelope, p *pending) {
	switch word(e.method) {
	case "notifications/progress":
		var token []byte
		members(e.params, func(key, value []byte) {
			if string(key) == "progressToken" {
				token = value
			}
		})
		to := p
		if to == nil {
			c.mu.Lock()
			to = c.pending[string(token)]
			c.mu.Unlock()
		}
		if to != nil && to.x != nil && to.key == string(token) {
			c.passOn(to, to.x.Progress, frame, e.params)
		}
	case "notifications/message":
		// On a stream that all callers share nothing tells whose call a log message is about, and it may quote another session's data.
		to := p
		if to == nil { // only an owned conversation has a current call
			c.mu.Lock()
			to = c.current
			c.mu.Unlock()
		}
		if to != nil && to.x != nil {
			c.passOn(to, to.x.Log, frame, e.params)
		}
	case "notifications/tools/list_changed", "notifications/resources/list_changed", "notifications/prompts/list_changed":
		if !c.owned {
			c.s.announce()
		}
	case "notifications/resources/updated":
		if !c.owned && c.s.strict(frame) == nil {
			c.s.resourceUpdated(e.params)
		}
	case "notifications/cancelled":
		var p struct {
			RequestID json.RawMessage `json:"requestId"`
		}
		if json.Unmarshal(e.params, &p) == nil {
			c.mu.Lock()
			cancel := c.asks[string(p.RequestID)]
			c.mu.Unlock()
			if cancel != nil {
				cancel()
			}
		}
	}
}

// passOn gives a notification's params to the caller, if it still listens and the server does not overdo it.
func (c *conversation) passOn(p *pending, to func(json.RawMessage), frame, params []byte) {
	if to == nil || len(params) > maxRPCError || c.s.strict(frame) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	if p.passed == nil {
		p.passed = rate.NewLimiter(progressRate, progressBurst)
	}
	if !p.passed.Allow() {
		return
	}
	if p.notes == nil {
		notes, noted := make(chan func(), maxNotes), make(chan struct{})
		if !c.background(func() {
			defer close(noted)
			for pass := range notes {
				c.s.guard("notification", pass)
			}
		}) {
			return // the conversation is ending
		}
		p.notes, p.noted = notes, noted
	}
	own := bytes.Clone(params)
	select {
	case p.notes <- func() { to(own) }:
	default:
	}
}

// ask handles a request of the server's. Where the operator and the client allow it, it goes to the client of the call in flight; all
// others learn that nobody answers here.
func (c *conversation) ask(frame []byte, e envelope, p *pending) {
	if c.modern() {
		return // its revision has no such requests, and no answers to them
	}
	id := bytes.Clone(e.id)
	method := word(e.method)
	if c.s.strict(frame) != nil || len(id) > 256 {
		c.log.Debug("upstream sent a request that is not strict JSON")
		return
	}
	if method == "ping" {
		c.reply(id, `"result":{}`)
		return
	}
	if p == nil {
		c.mu.Lock()
		p = c.current
		c.mu.Unlock()
	}
	if _, ok := c.caps[featureOf[method]]; !ok || p == nil || p.x == nil || p.x.Ask == nil {
		c.reply(id, `"error":{"code":-32601,"message":"Method not found"}`)
		return
	}
	params := bytes.Clone(e.params)
	if len(params) == 0 {
		params = emptyObject
	}
	if method == "sampling/createMessage" {
		if params = call.SetMember(params, "includeContext", json.RawMessage(`"none"`)); params == nil {
			c.reply(id, `"error":{"code":-32602,"message":"Invalid params"}`)
			return
		}
	}
	ctx, cancel := context.WithCancel(p.ctx)
	c.mu.Lock()
	crowded := len(c.asks) >= maxAsks || c.asks[string(id)] != nil
	if !crowded {
		c.asks[string(id)] = cancel
	}
	c.mu.Unlock()
	run := func() {
		defer cancel()
		var result json.RawMessage
		err := errors.New("the client could not be asked")
		c.s.guard("Ask", func() { result, err = p.x.Ask(ctx, method, params) })
		c.mu.Lock()
		delete(c.asks, string(id))
		c.mu.Unlock()
		var rpc *gateway.RPCError
		switch {
		case errors.As(err, &rpc):
			c.reply(id, `"error":`+string(rpc.JSON))
		case err != nil:
			c.log.Debug("the client did not answer", "method", method, "error", plain(err))
			c.reply(id, `"error":{"code":-32603,"message":"The client did not answer"}`)
		default:
			c.reply(id, `"result":`+string(result))
		}
	}
	if crowded || !c.background(run) {
		cancel()
		c.reply(id, `"error":{"code":-32603,"message":"Too many requests"}`)
	}
}

// reply answers a request of the server's, in the background: the stream it came on must not wait for it.
func (c *conversation) reply(id []byte, outcome string) {
	frame := []byte(`{"jsonrpc":"2.0","id":` + string(id) + `,` + outcome + `}`)
	c.background(func() {
		ctx, cancel := context.WithTimeout(c.ctx, notifyTime)
		defer cancel()
		if err := c.wire.post(ctx, frame); err != nil {
			c.log.Debug("answering failed", "error", plain(err))
		}
	})
}

// abandon tells a legacy server that nobody waits for a request any more. id is its raw JSON.
func (c *conversation) abandon(id string) {
	frame := []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"the caller gave up"}}`)
	c.background(func() {
		ctx, cancel := context.WithTimeout(c.ctx, notifyTime)
		defer cancel()
		if err := c.wire.post(ctx, frame); err != nil {
			c.log.Debug("cancelling failed", "error", plain(err))
		}
	})
}

// listen keeps the stream open on which modern servers announce changes, with what is subscribed to right now.
func (c *conversation) listen() {
	delay := time.Second
	for c.ctx.Err() == nil {
		ctx, cancel := context.WithCancel(c.ctx)
		id := c.newID()
		var anew atomic.Bool
		c.mu.Lock()
		c.restart = func() {
			anew.Store(true)
			if c.s.http != nil {
				cancel() // closing the stream is the cancellation
				return
			}
			// On a shared pipe a server may let the end of one stream take the next one's announcements with it (the go-sdk does), so
			// it has a moment to confirm the end.
			c.abandon(id)
			time.AfterFunc(listenEnd, cancel)
		}
		c.mu.Unlock()
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
		if len(wanted) == 0 {
			c.mu.Lock()
			c.restart = func() { anew.Store(true); cancel() }
			c.mu.Unlock()
			<-ctx.Done()
			cancel()
			continue
		}
		began := time.Now()
		params, _ := json.Marshal(map[string]any{"notifications": wanted}) // strings and booleans always marshal
		x := &call.Exchange{}
		out, err := c.build(id, "subscriptions/listen", params, x)
		if err == nil {
			_, err = c.exchange(ctx, id, x, out)
		}
		cancel()
		if anew.Load() {
			c.s.announce() // what changed between the streams
			continue
		}
		c.log.Debug("the stream of announcements ended", "error", plain(err))
		if time.Since(began) > stableAfter {
			delay = time.Second
		}
		if !sleep(c.ctx, c, delay, nil) {
			return
		}
		c.s.announce()
		delay = min(delay*2, c.s.backoffMax)
	}
}

// relisten makes listen take up a change of the subscriptions.
func (c *conversation) relisten() {
	c.mu.Lock()
	restart := c.restart
	c.restart = nil
	c.mu.Unlock()
	if restart != nil {
		restart()
	}
}
