package mcpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/mcpwire"
	"sallyport.example/internal/web"
)

// listTTL is how long a client may keep a list, in milliseconds: short, since permission can change.
const listTTL = 1000

// handshake is what handlers that the SDK calls need of the HTTP request. The context is the only way through the SDK. In a transport session it
// is the context of the initialize request, to whose credential the session belongs.
type handshake struct {
	principal identity.Principal
	caps      json.RawMessage // capabilities in initialize
}

type handshakeKey struct{}

func withHandshake(r *http.Request, h *handshake) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), handshakeKey{}, h))
}

// sdk holds the SDK's server behind two transports, since the stateful one does not serve 2026-07-28 and the stateless one nothing before it. The
// server has no features of its own; this package serves those that it announces.
type sdk struct {
	info   json.RawMessage // this server's Implementation object
	server *mcp.Server
	legacy http.Handler // revisions up to 2025-11-25
	modern http.Handler // 2026-07-28
}

func (f *Face) newSDK(version string) sdk {
	if version == "" {
		version = "unknown"
	}
	impl := &mcp.Implementation{Name: "sallyport", Title: "Sallyport", Version: version}
	// This is JSON because the Go field for logging is deprecated with 2026-07-28, and older clients still use the feature.
	caps := new(mcp.ServerCapabilities)
	if err := json.Unmarshal([]byte(`{"tools":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},
		"prompts":{"listChanged":true},"completions":{},"logging":{}}`), caps); err != nil {
		panic("mcpapi: the SDK does not take our capabilities: " + err.Error())
	}
	server := mcp.NewServer(impl, &mcp.ServerOptions{
		Capabilities:              caps,
		SupportedProtocolVersions: revisions,
		SubscribeHandler: func(ctx context.Context, req *mcp.SubscribeRequest) error {
			return f.subscription(ctx, call.Subscribe, req.Params.URI, req.Session.ID())
		},
		UnsubscribeHandler: func(ctx context.Context, req *mcp.UnsubscribeRequest) error {
			// A listen stream unsubscribes when its context has ended.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			return f.subscription(ctx, call.Unsubscribe, req.Params.URI, req.Session.ID())
		},
		// Lists and instructions depend on who asks, so no shared cache may keep them.
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) {
			c.TTLMs, c.CacheScope = listTTL, "private"
		},
	})
	server.AddReceivingMiddleware(f.middleware)
	get := func(*http.Request) *mcp.Server { return server }
	return sdk{
		info: mcpwire.AppendJSON(nil, impl), server: server,
		legacy: mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{JSONResponse: true, DisableLocalhostProtection: true}),
		modern: mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
			Stateless: true, JSONResponse: true, DisableLocalhostProtection: true, PropagateRequestCancellation: true,
		}),
	}
}

// middleware is around every method that the SDK serves. It lets only methods of the protocol itself through; other requests of agents never come
// this way. It recovers, since the SDK doesn't, and lets no error out that is not meant for the agent.
func (f *Face) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		if extra := req.GetExtra(); extra != nil && extra.Header != nil {
			ctx = web.WithRequestID(ctx, extra.Header.Get(web.HeaderRequestID))
		}
		defer func() {
			if p := recover(); p != nil {
				f.web.LogPanic(ctx, p)
				res, err = nil, sdkError(internalError(web.RequestID(ctx)))
			}
		}()
		h, _ := ctx.Value(handshakeKey{}).(*handshake)
		if h == nil {
			return nil, sdkError(internalError(web.RequestID(ctx)))
		}
		switch method {
		case "initialize":
			return f.initialize(ctx, h, method, req, next)
		case "server/discover":
			prompt, err := f.g.SystemPrompt(ctx, h.principal)
			if err != nil {
				return nil, f.turnedAway(ctx, h.principal, method, err)
			}
			res, err := next(ctx, method, req)
			if d, ok := res.(*mcp.DiscoverResult); ok && err == nil {
				d.Instructions = prompt
			}
			return res, err
		case string(call.Subscribe), string(call.Unsubscribe), "subscriptions/listen",
			"notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/roots/list_changed":
			return next(ctx, method, req)
		}
		return nil, &jsonrpc.Error{Code: mcpwire.CodeMethodNotFound, Message: "This method is not served."}
	}
}

// turnedAway refuses a method that the SDK serves, on record.
func (f *Face) turnedAway(ctx context.Context, p identity.Principal, method string, err error) error {
	if !errors.Is(err, errClosing) {
		v := fault.RefuseErr("door", fault.ForTheRecord(err))
		v.RequestID = web.RequestID(ctx)
		f.g.Refused(gateway.Attempt{Principal: p, Door: "mcp", What: method}, v)
	}
	return sdkError(f.faultError(ctx, err))
}

// initialize opens a transport session. It adds the connection before the id goes out, so that the client's next request finds it.
func (f *Face) initialize(ctx context.Context, h *handshake, method string, req mcp.Request, next mcp.MethodHandler) (mcp.Result, error) {
	ss, ok := req.GetSession().(*mcp.ServerSession)
	if !ok || ss.ID() == "" {
		return nil, sdkError(internalError(web.RequestID(ctx)))
	}
	if f.known(ss.ID()) {
		return next(ctx, method, req) // a second initialize, which begins nothing: the SDK refuses it
	}
	p, err := f.g.BeginConversation(ctx, h.principal, false)
	if err != nil {
		return nil, f.turnedAway(ctx, h.principal, method, err)
	}
	h.principal = p
	prompt, err := f.g.SystemPrompt(ctx, h.principal)
	if err != nil {
		return nil, f.turnedAway(ctx, h.principal, method, err)
	}
	revision := mcpwire.Revision1125 // as the SDK negotiates
	if params, ok := req.GetParams().(*mcp.InitializeParams); ok && !mcpwire.Modern(params.ProtocolVersion) && slices.Contains(revisions, params.ProtocolVersion) {
		revision = params.ProtocolVersion
	}
	caps := capabilitiesOf(revision, h.caps)
	c := &connection{
		id: ss.ID(), owner: h.principal, ss: ss, revision: revision, caps: caps, asks: askable(caps), last: f.o.Clock(), level: silent,
		running: map[string]context.CancelCauseFunc{}, pending: map[string]chan reply{},
	}
	if err := f.add(c); err != nil {
		return nil, f.turnedAway(ctx, h.principal, method, err)
	}
	res, err := next(ctx, method, req)
	if r, ok := res.(*mcp.InitializeResult); ok && err == nil && r.ProtocolVersion == revision {
		r.Instructions = prompt
		return r, nil
	}
	f.conns.mu.Lock()
	delete(f.conns.byID, c.id)
	f.conns.mu.Unlock()
	return res, err
}

func (f *Face) known(id string) bool {
	f.conns.mu.Lock()
	defer f.conns.mu.Unlock()
	return f.conns.byID[id] != nil
}

// subscription passes a subscription to a resource through the corridor.
func (f *Face) subscription(ctx context.Context, method call.Method, uri, transport string) error {
	h, _ := ctx.Value(handshakeKey{}).(*handshake)
	if h == nil {
		return sdkError(internalError(web.RequestID(ctx)))
	}
	r := gateway.Request{Principal: h.principal, Method: method, Tool: uri, Door: "mcp"}
	// One client must not end another one's subscription: each transport session, or else each credential, has its own.
	if r.Exchange.ClientKey = transport; transport == "" {
		r.Exchange.ClientKey = h.principal.String()
	}
	if _, e := f.outcome(ctx, r, f.g.Call(ctx, r)); e != nil {
		return sdkError(e)
	}
	return nil
}

// sdkError is the error in the form that the SDK passes on unchanged.
func sdkError(e *rpcError) error {
	if e.raw == nil {
		return &jsonrpc.Error{Code: e.code, Message: e.message, Data: e.data}
	}
	var w jsonrpc.Error
	if err := json.Unmarshal(e.raw, &w); err != nil {
		return &jsonrpc.Error{Code: mcpwire.CodeInternal, Message: fault.UpstreamFailed.Sentence()}
	}
	return &w
}

// faultError is a fault as a JSON-RPC error. An internal one shows only the id of the request.
func (f *Face) faultError(ctx context.Context, err error) *rpcError {
	e := fault.Of(err)
	id := web.RequestID(ctx)
	if errors.Is(err, errClosing) {
		e = fault.New(fault.StoreUnavailable, "The gateway is stopping.")
	}
	if e.Cause != nil {
		f.o.Log.Error("request failed", "request_id", id, "error", e)
	}
	if e.Code == fault.Internal {
		return internalError(id)
	}
	data := map[string]any{"code": e.Code, "request_id": id}
	if e.Field != "" {
		data["field"] = e.Field
	}
	return &rpcError{status: http.StatusOK, code: e.Code.RPCCode(), message: e.Public(), data: mcpwire.AppendJSON(nil, data), fault: e.Code}
}

// changed tells clients that lists have changed. The SDK has no call for it, but sends it when a feature is added. The features that are added
// here are never listed and never called: middleware doesn't let those methods through.
func (f *Face) changed() {
	f.annotations.reset()
	defer func() {
		if p := recover(); p != nil {
			f.o.Log.Error("announcing a changed catalogue panicked", "panic", fmt.Sprint(p))
		}
	}()
	f.sdk.server.AddTool(&mcp.Tool{Name: "sallyport", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, errUnserved })
	f.sdk.server.AddPrompt(&mcp.Prompt{Name: "sallyport"},
		func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) { return nil, errUnserved })
	f.sdk.server.AddResource(&mcp.Resource{Name: "sallyport", URI: "sallyport:catalogue"},
		func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return nil, errUnserved
		})
}

var errUnserved = errors.New("not served by the SDK")

// updates holds changed resources whose subscribers have not been notified yet. One goroutine notifies them, so that an upstream that reports changes
// neither waits nor holds up anybody.
type updates struct {
	mu     sync.Mutex // guards uris
	uris   map[string]struct{}
	signal chan struct{}
}

const maxUpdates = 4096

// ResourceUpdated tells the subscribers of the resource that it has changed. It returns at once. If two servers offer one URI, a change of either
// is sent: subscribers only learn that reading again may be worth it.
func (f *Face) ResourceUpdated(_, uri string) {
	f.updates.mu.Lock()
	if len(f.updates.uris) < maxUpdates {
		f.updates.uris[uri] = struct{}{}
	}
	f.updates.mu.Unlock()
	select {
	case f.updates.signal <- struct{}{}:
	default:
	}
}

func (f *Face) sendUpdates() {
	for {
		select {
		case <-f.life.stopping.Done():
			return
		case <-f.updates.signal:
		}
		f.updates.mu.Lock()
		uris := f.updates.uris
		f.updates.uris = map[string]struct{}{}
		f.updates.mu.Unlock()
		for uri := range uris {
			// Nobody could act on its error: a subscriber that is gone isn't notified.
			_ = f.sdk.server.ResourceUpdated(context.Background(), &mcp.ResourceUpdatedNotificationParams{URI: uri})
		}
	}
}
