// Package egress reaches the web for the gateway: it judges a URL, resolves its name once, dials only an address of that answer, judges
// every redirect as if it were the first URL, and bounds what comes back.
//
// Promises (EX-4): what is refused at parse, host or policy sends no packet, not even a DNS question. Every address of an answer must be
// permitted, not only the one that is dialled, and there is no second lookup between the judgement and the connection. No connection is
// used for two requests, so none outlives the judgement that opened it. Neither proxies from the environment nor cookies, credentials or a
// Referer are ever sent. An answer that is not whole, valid and within its bounds is an error; no part of it is returned.
package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/http/httpguts"

	"sallyport.example/internal/fault"
)

const (
	defaultTimeout   = 30 * time.Second
	defaultMaxBytes  = 5 << 20
	defaultUserAgent = "Sallyport/1 (robot)"

	maxHops    = 5         // redirects followed
	maxHeaders = 128 << 10 // bytes of all header sections of an answer together, interim ones included
)

// Policy is the operator's word on where the gateway may go.
type Policy struct {
	// Domains is the allow-list; empty, any public address is allowed. An entry is a name ("example.com" is that name only), its
	// subdomains ("*.example.com"), an IP address, or a CIDR prefix; a name or an address may end in ":port". Without a port, 80 and 443 are
	// allowed; of this machine's own loopback address, or "localhost", every port.
	//
	// An entry with an address opens it although it is not public: that is the explicit word for a server of one's own. What serves
	// metadata, and link-local, unspecified and multicast addresses stay closed whatever is listed. "localhost" opens loopback under that
	// name. A listed name must resolve to addresses that are public or opened; a private name ("wiki.internal") must be listed exactly.
	Domains   []string
	Protocols []string      // of "https" and "http"; empty: https only
	Timeout   time.Duration // of one whole Do, redirects and body included; 0: 30 s
	MaxBytes  int64         // of a body after decompression; 0: 5 MiB
	UserAgent string        // an honest robot's name; empty: Sallyport's
}

// Resolver answers which addresses a name has. *net.Resolver is one. Names arrive with their final dot, so that no search domain applies.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Options are what a Client stands on.
type Options struct {
	Resolver Resolver       // nil: the system's
	RootCAs  *x509.CertPool // nil: the system's

	// Own are the gateway's own listeners. They are never dialled, not even where an entry opens their address. The unspecified address
	// stands for every address of this machine, port 0 for every port.
	Own []netip.AddrPort
}

// Client reaches the web under one policy. It may be used concurrently.
type Client struct {
	rules     rules
	timeout   time.Duration
	maxBytes  int64
	userAgent string

	resolver Resolver
	roots    *x509.CertPool
	ownAddrs []netip.AddrPort
	connect  func(context.Context, *net.Dialer, netip.AddrPort) (net.Conn, error) // tests connect public addresses to a local server
}

// New returns a client, or a ConfigurationInvalid with the place of the wrong entry and the way out.
func New(p Policy, o Options) (*Client, error) {
	rules, err := compile(p)
	if err != nil {
		return nil, err
	}
	c := &Client{
		rules: rules, timeout: p.Timeout, maxBytes: p.MaxBytes, userAgent: p.UserAgent,
		resolver: o.Resolver, roots: o.RootCAs, ownAddrs: slices.Clone(o.Own),
		connect: func(ctx context.Context, d *net.Dialer, to netip.AddrPort) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", to.String())
		},
	}
	if c.timeout == 0 {
		c.timeout = defaultTimeout
	}
	if c.maxBytes == 0 {
		c.maxBytes = defaultMaxBytes
	}
	if c.userAgent == "" {
		c.userAgent = defaultUserAgent
	}
	if c.resolver == nil {
		c.resolver = net.DefaultResolver
	}
	return c, nil
}

// Check judges a URL by its text alone: nothing leaves the machine. Do can still refuse a URL that passes, when its name is resolved.
func (c *Client) Check(rawURL string) error {
	_, b := c.judge(rawURL)
	if b != nil {
		return b.fault(fault.EgressBlocked)
	}
	return nil
}

// Request is one question to a server. Method is GET, HEAD or POST (empty: GET); only POST has a body. Header must not hold credentials,
// nor headers of the connection. A redirect to another origin takes along only Accept and Accept-Language.
type Request struct {
	Method string
	URL    string
	Header http.Header
	Body   []byte
}

// Response is a whole answer, of whatever status.
type Response struct {
	URL    string      // where it came from, in canonical form
	Hops   []string    // every URL gone through, in order; the last is URL
	Status int         // of the answer
	Header http.Header // hostile, as the body; without Content-Encoding and Content-Length where the body was decompressed
	Body   []byte      // decompressed
	Public bool        // every server on the way has only addresses of the internet at large: no entry had to open one
}

// Do sends the request and returns the answer. Its errors are *fault.Error; all but RequestMalformed carry a *Blocked, which says at which stage it
// ended. The codes: EgressBlocked where a rule refuses, TimeExceeded, ResultTooLarge, ResultInvalid where the answer breaks its format, and
// UpstreamFailed where the name system, the network, the certificate or the server fails, or the answer ends too early.
func (c *Client) Do(ctx context.Context, r Request) (*Response, error) {
	method, header, err := checkRequest(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()

	t, b := c.judge(r.URL)
	if b != nil {
		return nil, b.fault(fault.EgressBlocked)
	}
	hops, atLarge := []string{t.url.String()}, true
	for {
		resp, err := c.exchange(ctx, t, method, header, r.Body)
		if err != nil {
			if len(hops) > 1 {
				err = redirected(err)
			}
			return nil, err
		}
		atLarge = atLarge && resp.Public
		if !redirects(resp.Status) {
			resp.URL, resp.Hops, resp.Public = hops[len(hops)-1], hops, atLarge
			return resp, nil
		}

		next, b := c.follow(t, resp.Header.Values("Location"))
		if b == nil && len(hops) > maxHops {
			b = &Blocked{Stage: "redirect", Reason: "More than 5 redirects.", remedy: wayAround}
		}
		if b != nil {
			return nil, b.fault(fault.EgressBlocked)
		}
		if resp.Status == http.StatusSeeOther || method == http.MethodPost && resp.Status < http.StatusSeeOther {
			if method != http.MethodHead {
				method = http.MethodGet
			}
			header.Del("Content-Type")
		}
		if next.origin() != t.origin() {
			if method == http.MethodPost {
				b := &Blocked{Stage: "redirect", Reason: "A redirect would take the request's body to another origin."}
				return nil, b.fault(fault.EgressBlocked)
			}
			maps.DeleteFunc(header, func(name string, _ []string) bool { return name != "Accept" && name != "Accept-Language" })
		}
		t, hops = next, append(hops, next.url.String())
	}
}

// redirects tells whether a status is a redirect. 300 offers a choice, which a program can't make; 305 would name a proxy.
func redirects(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// wayAround is the way out if a redirect can't be followed.
const wayAround = "Use the address that they should lead to, if you know it."

// follow judges the destination of a redirect like a new URL.
func (c *Client) follow(from *target, locations []string) (*target, *Blocked) {
	refuse := func(reason string) (*target, *Blocked) {
		return nil, &Blocked{Stage: "redirect", Reason: reason, remedy: wayAround}
	}
	if len(locations) != 1 || locations[0] == "" {
		return refuse("A redirect must name one destination.")
	}
	raw, ok := from.resolveReference(locations[0])
	if !ok {
		return refuse("A redirect leads to something that is not a URL.")
	}
	to, b := c.judge(raw)
	if b != nil {
		return nil, b.redirected()
	}
	if from.url.Scheme == "https" && to.url.Scheme != "https" {
		return refuse("A redirect leads from https to http.")
	}
	return to, nil
}

// notOurs are headers that belong to the connection or to this package, or would carry a credential.
var notOurs = []string{"Accept-Encoding", "Authorization", "Connection", "Content-Length", "Cookie", "Expect", "Host", "Http2-Settings",
	"Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "Referer", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "User-Agent"}

// checkRequest returns the method and a copy of the headers that the caller may set.
func checkRequest(r Request) (method string, header http.Header, err error) {
	malformed := func(format string, args ...any) (string, http.Header, error) {
		return "", nil, fault.New(fault.RequestMalformed, format, args...)
	}
	method = r.Method
	if method == "" {
		method = http.MethodGet
	}
	if method != http.MethodGet && method != http.MethodHead && method != http.MethodPost {
		return malformed("The method of an external request is GET, HEAD or POST.")
	}
	if method != http.MethodPost && len(r.Body) > 0 {
		return malformed("Only POST has a body.")
	}
	header = http.Header{}
	for name, values := range r.Header {
		canonical := http.CanonicalHeaderKey(name)
		if !httpguts.ValidHeaderFieldName(name) || slices.Contains(notOurs, canonical) {
			return malformed("The header %s can't be set on an external request.", quote(name))
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return malformed("The header %s has a value that can't be sent.", quote(name))
			}
			header.Add(canonical, v)
		}
	}
	return method, header, nil
}

// exchange asks one server and reads its answer, unless that is a redirect. Only POST sends the body.
//
// The transport lives for this one request: the dial closure can only reach the addresses that were vetted for it, and nothing of the
// connection can serve another. A shared transport with idle connections would save a handshake where the same server is asked again
// within seconds, and would have to be keyed by what was vetted, and when.
func (c *Client) exchange(ctx context.Context, t *target, method string, header http.Header, body []byte) (*Response, error) {
	addrs, err := c.resolve(ctx, t)
	if err != nil {
		return nil, c.failed(ctx, t, "resolve", nil, err)
	}
	// Whatever the layers above count, no more than this is read: twice the body, for framing and small chunks, and room for a handshake.
	l := &link{}
	l.left.Store(2*c.maxBytes + 1<<20)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	tr := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := c.dial(ctx, t, addrs)
			if err != nil {
				return nil, err
			}
			return &boundConn{Conn: conn, link: l}, nil
		},
		TLSClientConfig:        &tls.Config{RootCAs: c.roots, MinVersion: tls.VersionTLS12},
		Protocols:              &protocols,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxHeaders,
	}

	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
		l.tlsFailed.Store(err != nil)
	}})
	req := (&http.Request{Method: method, URL: t.url, Host: t.url.Host, Header: header.Clone()}).WithContext(ctx)
	req.Header.Set("User-Agent", c.userAgent)
	req.Header.Set("Accept-Encoding", "gzip") // set here, so that readBody decompresses and counts, and not net/http
	if method == http.MethodPost {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	raw, err := tr.RoundTrip(req)
	if err != nil {
		return nil, c.failed(ctx, t, "dial", l, err)
	}
	defer raw.Body.Close()
	resp := &Response{Status: raw.StatusCode, Header: raw.Header, Public: !slices.ContainsFunc(addrs, func(a netip.AddrPort) bool { return !public(a.Addr()) })}
	if redirects(raw.StatusCode) {
		return resp, nil
	}
	if err := c.readBody(resp, raw, method); err != nil {
		return nil, c.failed(ctx, t, "response", l, err)
	}
	return resp, nil
}

// failed turns an error into the one that leaves the package. stage names the last stage that was certainly reached.
func (c *Client) failed(ctx context.Context, t *target, stage string, l *link, err error) error {
	var b *Blocked
	if errors.As(err, &b) {
		return b.fault(fault.EgressBlocked)
	}
	b = &Blocked{Stage: stage, cause: err}
	var op *net.OpError
	dialling := errors.As(err, &op) && op.Op == "dial"
	if b.Stage == "dial" && !dialling {
		b.Stage = "response" // there was a connection
	}
	host := quote(t.host)
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, context.DeadlineExceeded):
		b.Reason = host + " took too long; partial results were discarded."
		return b.fault(fault.TimeExceeded)
	case cause != nil:
		b.Reason = "The request to " + host + " was cancelled."
		return b.fault(fault.UpstreamFailed)
	case errors.Is(err, errTooLarge) || l != nil && l.spent.Load():
		b.Reason, b.remedy = c.tooLarge(host), "Look for something smaller: a part of it, or another form."
		return b.fault(fault.ResultTooLarge)
	case stage == "resolve":
		b.Reason, b.remedy = host+" has no address that could be found out.", "Look whether the name is spelt right, or try again later."
		return b.fault(fault.UpstreamFailed)
	case dialling:
		b.Reason, b.remedy = "No connection to "+host+" could be made.", "Try again later, or another address."
		return b.fault(fault.UpstreamFailed)
	}
	b.remedy = "The same may stand at another address." // not "again": a POST may have had its effect
	var certificate *tls.CertificateVerificationError
	var network net.Error
	switch {
	case errors.As(err, &certificate):
		b.Reason = "The certificate of " + host + " is not valid."
	case l != nil && l.tlsFailed.Load():
		b.Reason = "TLS with " + host + " failed."
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.As(err, &network):
		b.Reason = "The answer of " + host + " was truncated and was discarded."
	default:
		b.Reason = "The answer of " + host + " is not valid and was discarded."
		return b.fault(fault.ResultInvalid)
	}
	return b.fault(fault.UpstreamFailed)
}
