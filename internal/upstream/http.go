package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/mcpwire"
)

const (
	streamEvent   = 4 << 20 // bytes of one event on a stream of announcements
	maxResumes    = 5       // of one stream, without any progress
	maxResumption = 10 * time.Second
	drainTime     = time.Second
	deleteTime    = 2 * time.Second
)

var errSessionGone = errors.New("the server ended the session")

// dialError marks a request that found no connection: it certainly never left.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// newTransport makes a transport for one server, which shares no connections with others and uses no proxy that the environment names.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, &dialError{err}
			}
			return conn, nil
		},
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 128,
		// Shorter than what servers commonly keep idle connections for (5 s in Node): a request that meets the server's own close
		// has an unknown outcome.
		IdleConnTimeout:        4 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true,
	}
}

// httpWire is a streamable HTTP endpoint: each request is a POST, answered by a JSON body or an event stream of its own.
type httpWire struct {
	c    *conversation
	url  *url.URL
	base http.Header // of every request; never changed

	session atomic.Pointer[string] // legacy servers' Mcp-Session-Id
}

func newHTTPWire(c *conversation) *httpWire {
	u, _ := url.Parse(c.s.cfg.URL) // New has parsed it
	w := &httpWire{c: c, url: u, base: http.Header{
		"Content-Type": {mcpwire.TypeJSON},
		"Accept":       {mcpwire.TypeJSON + ", " + mcpwire.TypeEvents},
		"User-Agent":   {"sallyport"},
	}}
	for name, value := range c.s.cfg.Headers {
		w.base[http.CanonicalHeaderKey(name)] = []string{value}
	}
	return w
}

// send makes one HTTP request. It follows no redirects: it uses the transport without a client around it.
func (w *httpWire) send(ctx context.Context, method string, body []byte, extra func(http.Header)) (*http.Response, error) {
	h := maps.Clone(w.base)
	if v := w.c.version(); v != "" {
		h[mcpwire.HeaderVersion] = []string{v}
	}
	if id := w.session.Load(); id != nil {
		h[mcpwire.HeaderSession] = []string{*id}
	}
	if extra != nil {
		extra(h)
	}
	req := (&http.Request{Method: method, URL: w.url, Host: w.url.Host, Header: h, ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	if body != nil {
		req.ContentLength = int64(len(body))
		req.Body = io.NopCloser(bytes.NewReader(body))
		// Lets the transport move to another connection when not a byte was written on this one. It never repeats a POST otherwise.
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	return w.c.s.http.RoundTrip(req)
}

func (w *httpWire) exchange(ctx context.Context, p *pending, out *outgoing) (mcpwire.Message, error) {
	x := w.begin(ctx, p, out.Method)
	resp, err := w.send(x.inner, http.MethodPost, out.Append(nil), func(h http.Header) {
		if w.c.modern() {
			mcpwire.SetHeaders(h, &out.Message, w.c.version(), out.bound)
		}
	})
	if err != nil {
		x.end()
		return mcpwire.Message{}, x.unsent(err)
	}
	media, err := w.checkResponse(resp, out.Method)
	resp.Body = p.roomed(resp.Body)
	if err == nil && media == mcpwire.TypeEvents {
		return x.stream(resp.Body)
	}
	defer x.end()
	defer resp.Body.Close()
	if err != nil {
		return mcpwire.Message{}, err
	}
	return x.body(resp)
}

const (
	freeAnswer = 4 << 10 // bytes of an answer that every call has room for
	maxStep    = 1 << 20
)

// roomed asks for room before it reads on, for as much as it has read each time, as buffers grow.
type roomed struct {
	io.ReadCloser
	room       call.Room
	free, step int
}

func (p *pending) roomed(body io.ReadCloser) io.ReadCloser {
	if p.x == nil || p.x.Room == nil {
		return body
	}
	return &roomed{ReadCloser: body, room: p.x.Room, free: freeAnswer, step: freeAnswer}
}

func (r *roomed) Read(p []byte) (int, error) {
	if r.free == 0 {
		if err := r.room.More(r.step); err != nil {
			return 0, err
		}
		r.free, r.step = r.step, min(2*r.step, maxStep)
	}
	n, err := r.ReadCloser.Read(p[:min(len(p), r.free)])
	r.free -= n
	return n, err
}

// httpExchange is one request over HTTP and its answer.
type httpExchange struct {
	w      *httpWire
	p      *pending
	method string
	ctx    context.Context // the caller's
	inner  context.Context // of what is sent. It ends with the caller's, unless it is detached.
	detach func() bool
	end    func() // ends inner
}

func (w *httpWire) begin(ctx context.Context, p *pending, method string) *httpExchange {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	detach, stopEnd := context.AfterFunc(ctx, cancel), context.AfterFunc(w.c.ctx, cancel)
	return &httpExchange{w: w, p: p, method: method, ctx: ctx, inner: inner, detach: detach, end: func() { detach(); stopEnd(); cancel() }}
}

// unsent explains why a request has no response. Where there was no connection, it certainly never left.
func (x *httpExchange) unsent(err error) error {
	s := x.w.c.s
	var dial *dialError
	switch {
	case !errors.As(err, &dial):
		return x.broken(err, "broke off; whether the call was carried out is unknown")
	case x.ctx.Err() != nil:
		return &fault.NotDispatched{Err: s.gaveUp(x.ctx)}
	}
	x.w.unreachable(dial)
	return s.undispatched(dial, "can't be reached")
}

// broken explains an error after which nobody knows whether the request had its effect.
func (x *httpExchange) broken(err error, what string) error {
	c, s := x.w.c, x.w.c.s
	switch {
	case x.ctx.Err() != nil:
		if !c.modern() && x.method != "initialize" && c.version() != "" {
			c.abandon(x.p.id)
		}
		return s.gaveUp(x.ctx)
	case c.ctx.Err() != nil:
		return c.brokenOff()
	case errors.Is(err, mcpwire.ErrTooLarge):
		return s.tooLarge(err)
	case fault.Is(err, fault.LimitRate):
		return s.noRoom(err)
	case errors.Is(err, errFlood):
		return s.failed(err, "flooded its stream with messages and was cut off")
	}
	return s.failed(err, "%s", what)
}

// body reads an answer that is one JSON value.
func (x *httpExchange) body(resp *http.Response) (mcpwire.Message, error) {
	s := x.w.c.s
	frame, err := mcpwire.ReadBody(resp.Body, resp.ContentLength, s.maxFrame)
	if err != nil {
		return mcpwire.Message{}, x.broken(err, "broke off in the middle of its answer")
	}
	m, e := s.parse(frame)
	ours := mcpwire.IDKey(m.ID) == x.p.key
	switch {
	case ours && resp.StatusCode != http.StatusOK && (m.Error == nil || m.Result != nil):
		return m, s.failed(nil, "answered with HTTP status %d", resp.StatusCode)
	case e != nil:
		return m, s.invalidResult(e, "is no JSON-RPC message")
	case !ours || !m.Response():
		return m, s.invalidResult(nil, "answers another request")
	}
	return m, nil
}

// stream reads events until the answer, and handles what comes before it.
func (x *httpExchange) stream(body io.ReadCloser) (mcpwire.Message, error) {
	w, c := x.w, x.w.c
	for resumes := 0; ; resumes++ {
		ev := mcpwire.NewEvents(&counted{r: body, n: 4 * int64(c.s.maxFrame)}, c.s.maxFrame)
		err := w.read(ev, x.p)
		lastID, retry := ev.LastID, ev.Retry
		ev.Free()
		if err == nil {
			x.drain(body)
			a := <-x.p.answer
			return a.Message, a.err
		}
		body.Close()
		why := "closed its stream before the answer; whether the call was carried out is unknown"
		if lastID != "" && !c.modern() && resumes < maxResumes && x.inner.Err() == nil && !errors.Is(err, mcpwire.ErrTooLarge) && !errors.Is(err, errFlood) {
			// The server may close a stream on purpose and have us fetch the rest later.
			var next *http.Response
			if next, err = w.resume(x.inner, lastID, retry); err == nil {
				body = x.p.roomed(next.Body)
				continue
			}
			why = "closed its stream before the answer and did not resume it"
		}
		err = x.broken(err, why)
		x.end()
		return mcpwire.Message{}, err
	}
}

// drain reads the end of a stream in the background, whether or not the caller goes on, so that the connection can serve another call.
func (x *httpExchange) drain(body io.ReadCloser) {
	x.detach()
	ends := func() {
		defer x.end()
		defer body.Close()
		timer := time.AfterFunc(drainTime, x.end)
		defer timer.Stop()
		io.CopyN(io.Discard, body, 64<<10)
	}
	if !x.w.c.background(ends) {
		x.end()
		body.Close()
	}
}

// read reads events until p has its answer; of a stream that is no call's, p is nil, until it ends.
func (w *httpWire) read(ev *mcpwire.Events, p *pending) error {
	for p == nil || len(p.answer) == 0 {
		data, err := ev.Next()
		if err == nil {
			err = w.c.receive(data, p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkResponse decides whether a response can hold an answer: it has status 200 with one of the two media types, or an error status with a
// JSON-RPC error. It also takes up the session that initialize opens.
func (w *httpWire) checkResponse(resp *http.Response, method string) (media string, err error) {
	c, s := w.c, w.c.s
	media = mcpwire.MediaType(resp.Header)
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return "", s.invalidResult(nil, "is compressed, which was not asked for")
	}
	switch status := resp.StatusCode; {
	case status == http.StatusNotFound && w.session.Load() != nil:
		c.fail(errSessionGone)
		return "", s.failed(errSessionGone, "ended the session; whether the call was carried out is unknown")
	case status >= 400 && media == mcpwire.TypeJSON:
		return media, nil // may hold a JSON-RPC error
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return "", s.failed(nil, "refused the credential it is configured with (HTTP status %d)", status)
	case status >= 300 && status < 400:
		return "", s.failed(nil, "answered with a redirect (HTTP status %d), which is not followed", status)
	case status != http.StatusOK:
		return "", s.failed(nil, "answered with HTTP status %d", status)
	case media != mcpwire.TypeJSON && media != mcpwire.TypeEvents:
		return "", s.invalidResult(nil, "has a media type other than application/json and text/event-stream")
	}
	if id := resp.Header.Get(mcpwire.HeaderSession); id != "" && method == "initialize" {
		if len(id) > 1024 || !mcpwire.HeaderSafe(id) {
			return "", s.invalidResult(nil, "has a session id that is no header value")
		}
		w.session.Store(&id)
	}
	return media, nil
}

// resume fetches the rest of a stream.
func (w *httpWire) resume(ctx context.Context, lastID string, wait time.Duration) (*http.Response, error) {
	if wait <= 0 {
		wait = time.Second
	}
	if !sleep(ctx, w.c, min(wait, maxResumption), nil) {
		return nil, ctx.Err()
	}
	resp, err := w.send(ctx, http.MethodGet, nil, streamHeaders(lastID))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || mcpwire.MediaType(resp.Header) != mcpwire.TypeEvents {
		resp.Body.Close()
		return nil, fmt.Errorf("resuming was answered with HTTP status %d", resp.StatusCode)
	}
	return resp, nil
}

func streamHeaders(lastID string) func(http.Header) {
	return func(h http.Header) {
		delete(h, "Content-Type")
		h["Accept"] = []string{mcpwire.TypeEvents}
		if lastID != "" {
			h[mcpwire.HeaderEventID] = []string{lastID}
		}
	}
}

// counted reads at most n bytes and then fails, so that no stream can be endless.
type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	if c.n <= 0 {
		return 0, mcpwire.ErrTooLarge
	}
	if int64(len(p)) > c.n {
		p = p[:c.n]
	}
	n, err := c.r.Read(p)
	c.n -= int64(n)
	return n, err
}

func (w *httpWire) post(ctx context.Context, m mcpwire.Message) error {
	if w.c.modern() {
		return nil // this revision's clients send requests only; closing a stream cancels
	}
	inner, cancel := context.WithTimeout(ctx, notifyTime)
	defer cancel()
	defer context.AfterFunc(w.c.ctx, cancel)()
	resp, err := w.send(inner, http.MethodPost, m.Append(nil), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	io.CopyN(io.Discard, resp.Body, 4<<10)
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("answered with HTTP status %d", resp.StatusCode)
	}
	return nil
}

// standingTime is how long an owned conversation waits for its standing stream.
const standingTime = 500 * time.Millisecond

// opened starts the stream on which legacy servers send messages of their own; modern ones use subscriptions/listen. What a server asks while a
// call runs can come on this stream, too, and servers drop what they can't send at once: so an owned conversation waits for the stream.
func (w *httpWire) opened() {
	c := w.c
	if c.modern() {
		return
	}
	stands := make(chan struct{})
	c.background(func() { w.follow(sync.OnceFunc(func() { close(stands) })) })
	if !c.owned() {
		return
	}
	wait(standingTime, stands, c.ctx.Done())
}

// follow reads the standing stream for as long as the server offers it. It calls answered when the server has, one way or the other.
func (w *httpWire) follow(answered func()) {
	c := w.c
	delay, lastID := time.Second, ""
	for {
		began := time.Now()
		resp, err := w.send(c.ctx, http.MethodGet, nil, streamHeaders(lastID))
		answered()
		var dial *dialError
		switch {
		case errors.As(err, &dial):
			w.unreachable(dial)
			return
		case err != nil:
			c.s.log.Debug("the standing stream broke", "error", plain(err))
		default:
			offered, retry := w.standing(resp, &lastID)
			if resp.Body.Close(); !offered {
				return
			}
			if retry > 0 {
				delay = min(max(retry, 100*time.Millisecond), c.s.backoffMax)
			}
		}
		if time.Since(began) > stableAfter {
			delay = time.Second
		}
		if !sleep(c.ctx, c, delay, nil) {
			return
		}
		delay = min(delay*2, c.s.backoffMax)
	}
}

// standing reads one response with the standing stream to its end. It tells whether to ask for another.
func (w *httpWire) standing(resp *http.Response, lastID *string) (offered bool, retry time.Duration) {
	switch {
	case resp.StatusCode == http.StatusNotFound && w.session.Load() != nil:
		w.c.fail(errSessionGone)
		return false, 0
	case resp.StatusCode >= 500:
		return true, 0
	case resp.StatusCode != http.StatusOK || mcpwire.MediaType(resp.Header) != mcpwire.TypeEvents:
		return false, 0
	}
	ev := mcpwire.NewEvents(resp.Body, streamEvent)
	defer ev.Free()
	ev.LastID = *lastID
	if err := w.read(ev, nil); errors.Is(err, mcpwire.ErrTooLarge) {
		w.c.fail(errors.New("it sent an announcement over the limit"))
	}
	*lastID = ev.LastID
	return true, ev.Retry
}

// unreachable ends the conversation: there is no connection to be had.
func (w *httpWire) unreachable(err *dialError) { w.c.fail(fmt.Errorf("it can't be reached: %w", err)) }

// close tells a legacy server that its session is over.
func (w *httpWire) close() {
	if w.session.Load() == nil || errors.Is(w.c.cause(), errSessionGone) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), deleteTime)
	defer cancel()
	if resp, err := w.send(ctx, http.MethodDelete, nil, nil); err == nil {
		resp.Body.Close()
	}
}
