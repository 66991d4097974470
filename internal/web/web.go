// Package web holds what all HTTP faces of the gateway share: which requests are accepted at all, how a body is read, how long a client may take,
// and the form of a refusal.
//
// Promises: a request is accepted only if it names this listener as its host, is not sent by a page of another origin, and can't be read in two
// ways; this is decided before the credential is looked at. A body is bounded in size and time. Every request has one id, which the answer and
// the log have too. A refusal is problem+json with a code, public words and never a cause. A panic costs one answer. Nothing here decides
// who may do what.
package web

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"runtime/debug"
	"strings"

	"sallyport.example/internal/fault"
)

// Face is one HTTP face: a listener, or a group of routes, with its own handler. Log and NewID are needed.
type Face struct {
	Log   *slog.Logger
	NewID func() string // makes the id of a request
	// ProxyHost is the host that clients of a proxy before this face use, besides the names of this machine; "" for none.
	ProxyHost string
	// Refused is told of a request of another origin's page, or to another host, which is refused before anybody asks for its credential; nil:
	// nobody is told. It must not block.
	Refused func(r *http.Request, err error)
	// Answer writes the refusals of the face in a form of its own; nil: they are problems.
	Answer func(w http.ResponseWriter, r *http.Request, err error)
	// Single are further headers that the face reads. A request that has one of them twice is refused.
	Single []string
}

// commonHeaders go with every answer; a handler may replace them. The values are shared by all answers: they are replaced, never written to.
var commonHeaders = http.Header{
	"X-Content-Type-Options":       {"nosniff"},
	"Cache-Control":                {"no-store"},
	"Referrer-Policy":              {"no-referrer"},
	"Content-Security-Policy":      {"default-src 'none'; frame-ancestors 'none'; base-uri 'none'"},
	"Cross-Origin-Resource-Policy": {"same-origin"},
	"Cross-Origin-Opener-Policy":   {"same-origin"},
}

// HeaderRequestID is the header of an answer that has the id of its request.
const HeaderRequestID = "X-Request-Id"

// Remote is the address that a request came from, without its port: of the last proxy, if there are any.
func Remote(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	return host
}

type requestIDKey struct{}

// WithRequestID gives a context the id of the request that it belongs to.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestID is the id of the request that the context belongs to. It is for the log and for people to quote; nothing is decided on it.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// Handler passes acceptable requests on to next and refuses the others.
func (f *Face) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(plain http.ResponseWriter, r *http.Request) {
		r = r.WithContext(WithRequestID(r.Context(), f.NewID()))
		w := begin(plain, r)
		defer w.end()
		defer busy(r.Context())()
		defer f.recovered(w, r)
		maps.Copy(w.Header(), commonHeaders)
		w.Header().Set(HeaderRequestID, RequestID(r.Context()))
		if len(r.TransferEncoding) > 0 {
			// net/http hides whether there was a Content-Length too. A proxy before us may then see the end of this request elsewhere, so
			// nothing more is read from the connection (RFC 9112 section 6.1).
			w.Header().Set("Connection", "close")
		}
		err := f.check(r)
		if err != nil {
			if f.Refused != nil && Status(err) != http.StatusBadRequest {
				f.Refused(r, err)
			}
			f.Refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// recovered answers for a handler that panicked. If part of the answer has been sent, it must not look like the whole, so the connection is cut.
func (f *Face) recovered(w *writer, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p != http.ErrAbortHandler { // with this a handler asks for the connection to be cut
		f.LogPanic(r.Context(), p)
	}
	if w.begun || p == http.ErrAbortHandler {
		panic(http.ErrAbortHandler)
	}
	f.Refuse(w, r, fault.New(fault.Internal, ""))
}

// LogPanic logs what a handler panicked with, and where. It is called by the deferred function that recovered it.
func (f *Face) LogPanic(ctx context.Context, p any) {
	f.Log.Error("a handler panicked", "request_id", RequestID(ctx), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}

// check refuses requests to another host, those of another origin's page, and those that two readers could read in two ways: an escaped or
// unclean path, a header or a parameter given twice.
func (f *Face) check(r *http.Request) error {
	if !f.hostAllowed(r) {
		return WithStatus(http.StatusMisdirectedRequest, fault.New(fault.RequestMalformed, "This listener does not serve that host.").
			At("Host").Try("Use 127.0.0.1, [::1] or localhost."))
	}
	for _, names := range [][]string{{"Origin", "Sec-Fetch-Site", "Authorization", "Content-Type", "Content-Length", "Cookie"}, f.Single} {
		for _, name := range names {
			if len(r.Header[name]) > 1 {
				return fault.New(fault.RequestMalformed, "The header is there more than once.").At(name)
			}
		}
	}
	if crossOrigin(r) {
		return WithStatus(http.StatusForbidden, fault.New(fault.RequestMalformed, "A request of another origin's page is not accepted.").At("Origin"))
	}
	if p := r.URL.Path; r.URL.RawPath != "" || !strings.HasPrefix(p, "/") || path.Clean(p) != p || strings.ContainsAny(p, "\\\x00") {
		return fault.New(fault.RequestMalformed, "The path must be spelt plainly, without escapes, dots or empty parts.")
	}
	if r.URL.RawQuery == "" {
		return nil
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fault.New(fault.RequestMalformed, "The query after the question mark can't be read.")
	}
	for name, values := range query {
		if len(values) > 1 {
			return fault.New(fault.RequestMalformed, "The parameter is given more than once.").At(fmt.Sprintf("%.40s", name))
		}
	}
	return nil
}

// hostAllowed defends a listener on loopback against DNS rebinding: a browser for which evil.example resolves to 127.0.0.1 still says
// Host: evil.example. X-Forwarded-Host and its like mean nothing here. Where it is not known on which address the request came, nothing
// is allowed.
func (f *Face) hostAllowed(r *http.Request) bool {
	local, known := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return known && (!loopback(local.String()) || loopback(r.Host) || f.ProxyHost != "" && strings.EqualFold(r.Host, f.ProxyHost))
}

// crossOrigin tells whether another origin's page sends the request. A GET without an Origin can be a person who follows a link, and is not
// one of these; a GET that has one is a script's.
func crossOrigin(r *http.Request) bool {
	if r.Header.Get("Origin") != "" {
		scripted := *r
		scripted.Method = http.MethodPost // what is checked lets every GET pass
		r = &scripted
	}
	return http.NewCrossOriginProtection().Check(r) != nil
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
