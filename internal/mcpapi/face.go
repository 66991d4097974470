// Package mcpapi is the face for agents: MCP over streamable HTTP at /mcp, for the revisions from 2025-03-26 to 2025-11-25 and the stateless
// 2026-07-28 on one URL. Revision 2024-11-05, which had another transport over HTTP, is served for clients on a pipe, whose bridge speaks it here.
//
// This package's own code serves everything that an agent can ask for (lists, calls, reads, prompts, completions), so that the bytes of a result
// pass through once and unchanged. The MCP SDK serves the rest of the protocol: the handshake, transport sessions, and the streams that carry
// list_changed and resource updates.
//
// Promises: every request carries a bearer credential, and only that tells who calls; a transport session belongs to the credential that opened
// it and means nothing to governance, so a new, dropped or invented session id changes no label; a body is parsed once, strictly, before
// anything uses it; a call reaches an upstream only through Gateway.Call; no answer of an agent's client approves anything; no error text
// reaches the agent that is not meant for it; a panic costs one answer.
package mcpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/catalogue"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/gateway"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/mcpwire"
	"sallyport.example/internal/memory"
	"sallyport.example/internal/session"
	"sallyport.example/internal/web"
)

// Gateway is the corridor as this face uses it. It is safe for concurrent use. Errors are fault errors.
type Gateway interface {
	// Call always returns a verdict, and a result only if the verdict permits.
	Call(ctx context.Context, r gateway.Request) gateway.Answer
	// SessionFor opens an agent's own session at first use.
	SessionFor(ctx context.Context, p identity.Principal) (session.Session, error)
	// BeginConversation begins a conversation, in a fresh session if a person ordered one, and returns the principal for the rest of it. stateless:
	// the request knows no conversation.
	BeginConversation(ctx context.Context, p identity.Principal, stateless bool) (identity.Principal, error)
	// Operations and Offers return what permission and standing let the principal see; Operations are sorted by name. Listing returns the same
	// as Operations, for a list that goes to the agent: before it returns, the session holds the labels that the definitions bring.
	Operations(ctx context.Context, p identity.Principal) []*catalogue.Operation
	Listing(ctx context.Context, p identity.Principal) ([]*catalogue.Operation, error)
	Offers(ctx context.Context, p identity.Principal, kind call.Kind) []catalogue.Offer
	// Gave notes the definitions of tools that a list is about to give.
	Gave(ctx context.Context, p identity.Principal, definitions []json.RawMessage)
	// SystemPrompt is the planning constraint for the principal's session.
	SystemPrompt(ctx context.Context, p identity.Principal) (string, error)
	Manifest(ctx context.Context, p identity.Principal, sessionID string) (any, error)
	Status(ctx context.Context, p identity.Principal, sessionID string) (any, error)
	ValidatePlan(ctx context.Context, p identity.Principal, sessionID string, body json.RawMessage) (any, error)
	SubmitPlan(ctx context.Context, p identity.Principal, sessionID string, body json.RawMessage) (any, error)
	// Declare takes the declaration of one external need. A wrong one is a *declare.Invalid, which is on record.
	Declare(ctx context.Context, p identity.Principal, sessionID string, body json.RawMessage) (any, error)
	// Refused records a request that was refused without a call. It does not wait for the store.
	Refused(a gateway.Attempt, v fault.Verdict)
}

// Options are the options of New. Authenticate, Subscribe and Recommend are needed.
type Options struct {
	// Authenticate returns the principal of a secret for one request. It answers from memory.
	Authenticate func(secret string) (identity.Principal, error)
	// Subscribe calls f after each change of the catalogue until end is called. f does not block.
	Subscribe func(f func()) (end func())

	// Recommend stores an output of the principal's session as a recommendation.
	Recommend func(ctx context.Context, p identity.Principal, sessionID string, output json.RawMessage) (any, error)
	// Recommends is the schema of the outputs with which the principal's agent recommends actions; false: it recommends none, and the tool is not listed.
	// A nil func: no agent does.
	Recommends func(p identity.Principal) (schema json.RawMessage, ok bool)

	Log     *slog.Logger           // nil: no log
	Version string                 // of this program, for clients
	Clock   func() time.Time       // nil: time.Now
	Release func(clientKey string) // called once when the transport session with the Exchange.ClientKey has ended; may be nil

	Memory *memory.Budget // for the requests; nil: there is no bound
	// Hold is how long a call is held while a person decides; 0: never. A call that silence permits is held until then, whatever Hold is.
	Hold time.Duration
	// Console returns the address at which a person answers the approval; "" or a nil func: there is none.
	Console func(approvalID string) string
}

// Face serves MCP. Make it with New and end it with Close.
type Face struct {
	g Gateway
	o Options // with all defaults

	sdk         sdk
	web         web.Face
	seal        *sealer
	conns       connections
	annotations annotations
	updates     updates
	life        lifetime
}

// lifetime ends what a Face has begun.
type lifetime struct {
	stopping   context.Context // done once Drain has begun; for nothing else
	halt       context.CancelFunc
	background sync.WaitGroup
	end        func() // of the subscription to the catalogue
	once       sync.Once
}

// revisions are the ones that this face serves.
var revisions = []string{mcpwire.Revision0728, mcpwire.Revision1125, mcpwire.Revision0618, mcpwire.Revision0326, mcpwire.Revision1105}

// New returns a Face that is ready to serve.
func New(g Gateway, o Options) *Face {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Release == nil {
		o.Release = func(string) {}
	}
	if o.Console == nil {
		o.Console = func(string) string { return "" }
	}
	f := &Face{g: g, o: o}
	f.life.stopping, f.life.halt = context.WithCancel(context.Background())
	f.web = web.Face{Log: f.o.Log, NewID: func() string { return call.NewID("req_", f.o.Clock()) }, Refused: f.refusedBefore, Single: []string{mcpwire.HeaderSession, mcpwire.HeaderVersion, mcpwire.HeaderMethod, mcpwire.HeaderName}}
	f.seal = newSealer(f.o.Clock)
	f.conns.byID = map[string]*connection{}
	f.updates.signal = make(chan struct{}, 1)
	f.updates.uris = map[string]struct{}{}
	f.sdk = f.newSDK(o.Version)
	f.life.end = o.Subscribe(f.changed)
	f.life.background.Go(f.sweepUntilClose)
	f.life.background.Go(f.sendUpdates)
	return f
}

// Drain begins the end: standing streams end now, a transport session ends with the last of its running calls, and no new call is accepted. The
// gateway lets calls go that are held for a person. Draining twice is harmless.
func (f *Face) Drain() {
	f.life.once.Do(func() {
		f.life.end()
		f.life.halt()
		for _, c := range f.conns.close() {
			if c.retire() {
				f.drop(c, errClosing)
			}
		}
	})
}

// Close ends all transport sessions with their running calls, and waits for the goroutines of the Face. Later requests are refused. Closing twice
// is harmless.
func (f *Face) Close() {
	f.Drain()
	for _, c := range f.conns.close() {
		f.drop(c, errClosing)
	}
	f.life.background.Wait()
}

var errClosing = errors.New("the gateway is stopping")

const (
	path         = "/mcp"
	metadataPath = "/.well-known/oauth-protected-resource"
)

// Handler serves /mcp and the RFC 9728 documents for it. It compares the exact path itself, so a mux that matches too much opens nothing.
func (f *Face) Handler() http.Handler {
	return f.web.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case path:
			f.serve(w, r)
		case metadataPath, metadataPath + path:
			f.metadata(w, r)
		default:
			f.web.Refuse(w, r, fault.New(fault.NotFound, ""))
		}
	}))
}

// serve serves one HTTP request to /mcp.
func (f *Face) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost && r.Method != http.MethodGet && r.Method != http.MethodDelete {
		w.Header().Set("Allow", "GET, POST, DELETE")
		f.web.Refuse(w, r, web.WithStatus(http.StatusMethodNotAllowed, fault.New(fault.RequestMalformed, "The method is POST, GET or DELETE.")))
		return
	}
	p, err := f.principal(r)
	if err != nil {
		f.record(r, p, "", err)
		f.unauthorised(w, r, err)
		return
	}
	if len(r.Header.Get(mcpwire.HeaderSession)) > maxID {
		f.record(r, p, "", noConnection)
		f.web.Refuse(w, r, noConnection)
		return
	}
	if r.Method == http.MethodPost {
		f.post(w, r, p)
		return
	}
	if mcpwire.Modern(r.Header.Get(mcpwire.HeaderVersion)) {
		w.Header().Set("Allow", "POST")
		f.web.Refuse(w, r, web.WithStatus(http.StatusMethodNotAllowed, fault.New(fault.RequestMalformed, "Revision 2026-07-28 has POST only.")))
		return
	}
	c, release, e := f.connection(r, p)
	if e != nil {
		f.record(r, p, "", e)
		f.web.Refuse(w, r, e)
		return
	}
	defer release()
	if r.Method == http.MethodDelete {
		f.drop(c, errDeleted)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	f.sdk.legacy.ServeHTTP(w, r)
}

var errDeleted = errors.New("the client ended its session")

// principal returns the principal of the credential, which must be an agent's or a session's.
func (f *Face) principal(r *http.Request) (identity.Principal, error) {
	secret, ok := identity.Bearer(r.Header.Get("Authorization"))
	if !ok {
		return identity.Principal{}, fault.New(fault.CredentialMissing, "A bearer token of an agent or a session is needed.").
			Try("Send Authorization: Bearer TOKEN; sallyport token create --agent ID makes one.")
	}
	p, err := f.o.Authenticate(secret)
	if err != nil {
		return p, err
	}
	if err := web.Claim(r, p.Whose()); err != nil {
		return p, err
	}
	switch p.Kind {
	case identity.Agent, identity.Session:
		return p, nil
	case identity.Hook:
		return p, fault.New(fault.CredentialWrongKind, "This key is for the person's words alone.")
	case identity.Host:
		return p, fault.New(fault.CredentialWrongKind, "This is a host's token, and a host calls no tools itself.").
			Try("Open a session with POST /v1/session and use its session_token here.")
	}
	return p, fault.New(fault.CredentialWrongKind, "This is a person's token, which is for the people's side.").
		Try("Use an agent's token (sallyport token create --agent ID) or a session's.")
}

// record puts on record that an HTTP request was turned away. what is the method that it asked for; "" if it was not read.
func (f *Face) record(r *http.Request, p identity.Principal, what string, err error) {
	v := fault.RefuseErr("door", fault.ForTheRecord(err))
	v.RequestID = web.RequestID(r.Context())
	f.g.Refused(gateway.Attempt{Principal: p, Door: "mcp", What: cmp.Or(what, r.Method+" "+r.URL.Path), Remote: web.Remote(r)}, v)
}

// refusedBefore is told of requests whose credential nobody looked at.
func (f *Face) refusedBefore(r *http.Request, err error) { f.record(r, identity.Principal{}, "", err) }

// unauthorised answers 401 or 403, with the link that RFC 9728 requires. Its address is the one that the client used; nothing else depends on
// the Host header.
func (f *Face) unauthorised(w http.ResponseWriter, r *http.Request, err error) {
	e := fault.Of(err)
	challenge := `Bearer realm="sallyport", resource_metadata="` + origin(r) + metadataPath + path + `"`
	switch e.Code.HTTPStatus() {
	case http.StatusForbidden:
		challenge += `, error="insufficient_scope"`
		w.Header().Set("WWW-Authenticate", challenge)
	case http.StatusUnauthorized:
		if r.Header.Get("Authorization") != "" {
			challenge += `, error="invalid_token"`
		}
		w.Header().Set("WWW-Authenticate", challenge)
	}
	f.web.Refuse(w, r, e)
}

// origin is scheme and host as the client wrote them; localhost if the host has characters that no host has.
func origin(r *http.Request) string {
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	for _, c := range r.Host {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:[]", c) {
			return scheme + "localhost"
		}
	}
	return scheme + r.Host
}

// metadata serves the RFC 9728 document. It names no authorization server, since the operator makes tokens.
func (f *Face) metadata(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		f.web.Refuse(w, r, web.WithStatus(http.StatusMethodNotAllowed, fault.New(fault.RequestMalformed, "The method is GET.")))
		return
	}
	doc := map[string]any{
		"resource":                 origin(r) + path,
		"resource_name":            "Sallyport",
		"bearer_methods_supported": []string{"header"},
	}
	w.Header()["Content-Type"] = jsonType
	_, _ = w.Write(mcpwire.AppendJSON(nil, doc))
}

// accepts tells whether the client accepts both forms of an answer, as the transport requires.
func accepts(r *http.Request) bool {
	plain, events := false, false
	for _, line := range r.Header["Accept"] {
		if line == "application/json, text/event-stream" {
			return true
		}
		for part := range strings.SplitSeq(line, ",") {
			media, _, _ := strings.Cut(part, ";")
			switch strings.ToLower(strings.TrimSpace(media)) {
			case "application/json", "application/*":
				plain = true
			case "text/event-stream", "text/*":
				events = true
			case "*/*":
				return true
			}
		}
	}
	return plain && events
}

// recovered ends an answer whose handler panicked, with a fixed sentence and an id to quote. It is a deferred function.
func (f *Face) recovered(r *http.Request, s *stream) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	f.web.LogPanic(r.Context(), p)
	s.fail(internalError(web.RequestID(r.Context())))
}

func internalError(requestID string) *rpcError {
	return &rpcError{
		status: http.StatusOK, code: mcpwire.CodeInternal,
		message: fault.Internal.Sentence() + " Quote " + requestID + " to whoever runs it.",
		data:    mcpwire.AppendJSON(nil, map[string]any{"code": fault.Internal, "request_id": requestID}),
		fault:   fault.Internal,
	}
}
