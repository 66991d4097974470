package httpapi

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
)

const (
	maxBody  = 4 << 20
	bodyTime = 30 * time.Second // to read a body
)

type requestIDKey struct{}

// requestID is for the log and for people to quote; nothing is decided on it.
func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// answerWriter knows whether an answer has begun.
type answerWriter struct {
	http.ResponseWriter
	begun bool
}

func (w *answerWriter) WriteHeader(status int) {
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

// Write gives each megabyte its time: the servers have no bound of their own, since calls take as long as they take, and a client that
// does not read must not hold its answer in memory for ever.
func (w *answerWriter) Write(b []byte) (int, error) {
	w.begun = true
	rc, done := http.NewResponseController(w.ResponseWriter), 0
	for {
		n := min(len(b)-done, 1<<20)
		_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout)) // best effort: test recorders have none
		m, err := w.ResponseWriter.Write(b[done : done+n])
		if done += m; err != nil || done == len(b) {
			return done, err
		}
	}
}

// writeTimeout bounds the writing of up to a megabyte.
const writeTimeout = 30 * time.Second

// Unwrap is for http.ResponseController.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// handler is the transport's part: it decides nothing about who may do what.
func (s *side) handler() http.Handler {
	cross := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(plain http.ResponseWriter, r *http.Request) {
		w := &answerWriter{ResponseWriter: plain}
		defer func() { _ = http.NewResponseController(plain).SetWriteDeadline(time.Time{}) }() // the connection may carry other requests
		id := call.NewID("req_", s.a.clock())
		r = r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id))
		defer func() {
			switch p := recover(); {
			case p == nil:
			case p == http.ErrAbortHandler:
				panic(p)
			default:
				s.a.log.Error("a handler panicked", "request_id", id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				if w.begun {
					panic(http.ErrAbortHandler) // what was sent is not the whole answer, and must not look like it
				}
				s.a.refuse(w, r, fault.New(fault.Internal, ""))
			}
		}()
		h := w.Header()
		h.Set("X-Request-Id", id)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		if len(r.TransferEncoding) > 0 {
			// net/http hides whether there was a Content-Length too; whoever stands before us may see another end of this request,
			// so what follows on the connection is not read: it could be a request that was smuggled in.
			h.Set("Connection", "close")
		}
		if err := s.plainRequest(r); err != nil {
			s.a.refuse(w, r, err)
			return
		}
		if err := cross.Check(r); err != nil {
			s.a.refuse(w, r, withStatus(http.StatusForbidden, fault.New(fault.RequestMalformed, "A request of another origin's page is not accepted.").At("Origin")))
			return
		}
		serve, pattern := s.mux.Handler(r)
		if pattern == "" {
			s.unrouted(w, r, serve)
			return
		}
		s.mux.ServeHTTP(w, r)
	})
}

// unrouted answers what no route takes; the mux knows whether another method would be.
func (s *side) unrouted(w http.ResponseWriter, r *http.Request, mux http.Handler) {
	probe := &headOnly{header: http.Header{}}
	mux.ServeHTTP(probe, r)
	if probe.status == http.StatusMethodNotAllowed {
		allow := probe.header.Get("Allow")
		w.Header().Set("Allow", allow)
		s.a.refuse(w, r, withStatus(http.StatusMethodNotAllowed, fault.New(fault.RequestMalformed, "The method here is %s.", allow)))
		return
	}
	s.a.refuse(w, r, fault.New(fault.NotFound, "There is nothing at this address.").Try("What there is, the people's side says at /openapi.json."))
}

// headOnly takes a status and headers and drops the body.
type headOnly struct {
	header http.Header
	status int
}

func (h *headOnly) Header() http.Header         { return h.header }
func (h *headOnly) WriteHeader(status int)      { h.status = status }
func (h *headOnly) Write(b []byte) (int, error) { return len(b), nil }

// plainRequest refuses requests that two readers could read in two ways: an escaped or unclean path, a header or a parameter
// given twice, a Host that is not this listener.
func (s *side) plainRequest(r *http.Request) error {
	if !s.hostAllowed(r) {
		return withStatus(http.StatusMisdirectedRequest, fault.New(fault.RequestMalformed, "This listener does not serve that host.").
			At("Host").Try("Use 127.0.0.1, [::1] or localhost."))
	}
	if p := r.URL.Path; r.URL.RawPath != "" || !strings.HasPrefix(p, "/") || path.Clean(p) != p || strings.ContainsAny(p, "\\\x00") {
		return fault.New(fault.RequestMalformed, "The path must be spelt plainly, without escapes, dots or empty parts.")
	}
	for _, name := range [...]string{"Authorization", "Content-Type", "Content-Length", "Cookie"} {
		if len(r.Header[name]) > 1 {
			return fault.New(fault.RequestMalformed, "The header is there more than once.").At(name)
		}
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fault.New(fault.RequestMalformed, "The query after the question mark can't be read.")
	}
	for name, values := range q {
		if len(values) > 1 {
			return fault.New(fault.RequestMalformed, "The parameter is given more than once.").At(fmt.Sprintf("%.40s", name))
		}
	}
	return nil
}

// hostAllowed defends a loopback listener against DNS rebinding: a browser that was told that evil.example is 127.0.0.1 still says
// Host: evil.example. X-Forwarded-Host and its like mean nothing here. A proxy before the people's side may say the host of public_url.
func (s *side) hostAllowed(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && (!loopback(local.String()) || loopback(r.Host) || s.people && s.a.publicHost != "" && strings.EqualFold(r.Host, s.a.publicHost))
}

func loopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// admit tells who asks, and refuses who may not. roles are those of which a person needs one; none: any person.
func (s *side) admit(r *http.Request, roles []identity.Role) (identity.Principal, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		if s.people {
			if p, ok := s.a.console.Principal(r); ok {
				return p, hasRole(p, roles)
			}
		}
		return identity.Principal{}, fault.New(fault.CredentialMissing, "A token is needed, as Authorization: Bearer TOKEN.").Try("%s", s.whereTokens())
	}
	secret, ok := identity.Bearer(header)
	if !ok {
		return identity.Principal{}, fault.New(fault.CredentialMissing, "What stands in Authorization is not a token of this gateway.").Try("%s", s.whereTokens())
	}
	p, err := s.a.g.Standing().Authenticate(secret)
	if err != nil {
		return p, err
	}
	if !s.people {
		if p.Kind == identity.Person {
			return p, wrongSide(p, false)
		}
		return p, nil
	}
	if p, err = s.a.person(p, nil); err != nil {
		return p, err
	}
	return p, hasRole(p, roles)
}

func (s *side) whereTokens() string {
	if s.people {
		return "The first start wrote one to admin.token in the data directory; sallyport token create --person makes more."
	}
	return "Make one with: sallyport token create --agent ID"
}

func hasRole(p identity.Principal, roles []identity.Role) error {
	if len(roles) == 0 || slices.ContainsFunc(roles, p.Has) {
		return nil
	}
	var words []string
	for _, r := range roles {
		words = append(words, string(r))
	}
	return fault.New(fault.RoleMissing, "This needs the role %s.", strings.Join(words, " or ")).Try("Ask an admin for a token with it.")
}

// readBody reads a JSON object strictly, of the shape if that is not nil. With optional, no body at all is an empty object.
func readBody(w http.ResponseWriter, r *http.Request, s shape, optional bool) ([]byte, error) {
	deadline := http.NewResponseController(w)
	// A deadline that can't be set (in tests without a connection) leaves the server's own.
	_ = deadline.SetReadDeadline(time.Now().Add(bodyTime))
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	_ = deadline.SetReadDeadline(time.Time{})
	if err != nil {
		if _, tooLarge := err.(*http.MaxBytesError); tooLarge {
			return nil, withStatus(http.StatusRequestEntityTooLarge, fault.New(fault.RequestMalformed, "A body has at most %d bytes.", maxBody))
		}
		return nil, fault.Wrap(err, fault.RequestMalformed, "The body could not be read to its end.")
	}
	if len(b) == 0 && optional {
		return []byte("{}"), nil
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" || params["charset"] != "" && !strings.EqualFold(params["charset"], "utf-8") {
		return nil, withStatus(http.StatusUnsupportedMediaType, fault.New(fault.RequestMalformed, "The body must be application/json.").At("Content-Type"))
	}
	if r.Header.Get("Content-Encoding") != "" {
		return nil, withStatus(http.StatusUnsupportedMediaType, fault.New(fault.RequestMalformed, "The body must not be compressed.").At("Content-Encoding"))
	}
	if err := call.Check(b, call.DefaultLimits()); err != nil {
		return nil, err
	}
	if b = []byte(strings.TrimLeft(string(b), " \t\r\n")); b[0] != '{' {
		return nil, fault.New(fault.RequestMalformed, "The body must be a JSON object.")
	}
	if s != nil {
		if err := s.check("", b); err != nil {
			return nil, err
		}
	}
	return b, nil
}
