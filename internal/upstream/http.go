package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.example/internal/gateway"
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

// newTransport is one server's own: nothing of another's connections, and no proxy that the environment names.
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
		"Content-Type": {"application/json"},
		"Accept":       {"application/json, text/event-stream"},
		"User-Agent":   {"sallyport"},
	}}
	for name, value := range c.s.cfg.Headers {
		w.base[canonicalHeader(name)] = []string{value}
	}
	return w
}

func canonicalHeader(name string) string { return textproto.CanonicalMIMEHeaderKey(name) }

// token tells whether s can be the name of a header (RFC 9110).
func token(s string) bool {
	for i := range len(s) {
		b := s[i]
		if !('a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0) {
			return false
		}
	}
	return s != ""
}

// send makes one HTTP request. Redirects are not followed: the transport is used as it is.
func (w *httpWire) send(ctx context.Context, method string, body []byte, extra func(http.Header)) (*http.Response, error) {
	h := maps.Clone(w.base)
	if v := w.c.version(); v != "" {
		h["Mcp-Protocol-Version"] = []string{v}
	}
	if id := w.session.Load(); id != nil {
		h["Mcp-Session-Id"] = []string{*id}
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

func (w *httpWire) exchange(ctx context.Context, p *pending, out outgoing) ([]byte, error) {
	c, s := w.c, w.c.s
	// Not ctx itself: the answer's stream may be read to its end after the caller has gone on, to keep the connection.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stopCaller := context.AfterFunc(ctx, cancel)
	stopEnd := context.AfterFunc(c.ctx, cancel)
	kept := false
	defer func() {
		stopCaller()
		if !kept {
			stopEnd()
			cancel()
		}
	}()
	// ended explains an error after which the request may have had its effect.
	ended := func(err error, format string, args ...any) error {
		switch {
		case ctx.Err() != nil:
			if !c.modern() && out.method != "initialize" && c.version() != "" {
				c.abandon(p.key)
			}
			return s.gaveUp(ctx)
		case c.ctx.Err() != nil:
			return s.failed(c.cause(), "ended the conversation; whether the call was carried out is unknown")
		case errors.Is(err, errEventTooLarge):
			return s.tooLarge(err)
		case errors.Is(err, errFlood):
			return s.failed(err, "flooded its stream with messages and was cut off")
		}
		return s.failed(err, format, args...)
	}

	resp, err := w.send(inner, http.MethodPost, out.frame, func(h http.Header) {
		if c.modern() {
			h["Mcp-Method"] = []string{out.method}
			if out.name != "" {
				h["Mcp-Name"] = []string{headerValue(out.name)}
			}
			for _, ph := range out.params {
				h["Mcp-Param-"+ph.name] = []string{ph.value}
			}
		}
	})
	if err != nil {
		var dial *dialError
		if errors.As(err, &dial) {
			if ctx.Err() != nil {
				return nil, &gateway.NotDispatched{Err: s.gaveUp(ctx)}
			}
			c.fail(fmt.Errorf("it can't be reached: %w", dial))
			return nil, s.undispatched(dial, "can't be reached")
		}
		return nil, ended(err, "broke off; whether the call was carried out is unknown")
	}
	body := resp.Body
	defer func() {
		if !kept {
			body.Close()
		}
	}()
	media, err := w.judge(resp, p, out.method)
	if err != nil {
		return nil, err
	}
	if media == "application/json" {
		frame, err := readBounded(body, resp.ContentLength, s.maxFrame)
		if err != nil {
			return nil, ended(err, "broke off in the middle of its answer")
		}
		e, ok := open(frame)
		switch {
		case !ok:
			return nil, s.invalidResult(nil, "is no JSON object")
		case string(e.id) != p.key:
			return nil, s.invalidResult(nil, "answers another request")
		case resp.StatusCode != http.StatusOK && (e.err == nil || e.result != nil):
			return nil, s.failed(nil, "answered with HTTP status %d", resp.StatusCode)
		}
		return frame, nil
	}

	// An event stream. What comes before the answer is handled as it comes.
	for resumes := 0; ; {
		reader := readers.Get().(*bufio.Reader)
		reader.Reset(&counted{r: body, n: 4 * int64(s.maxFrame)})
		ev := newEvents(reader, s.maxFrame)
		frame, err := w.answer(ev, p)
		if err == nil {
			kept = c.background(func() { // the end of the stream follows; the connection is good for another call then
				defer stopEnd()
				defer cancel()
				timer := time.AfterFunc(drainTime, cancel)
				defer timer.Stop()
				io.CopyN(io.Discard, body, 64<<10)
				body.Close()
			})
			ev.free()
			reader.Reset(nil)
			readers.Put(reader)
			return frame, nil
		}
		if ev.lastID == "" || c.modern() || resumes >= maxResumes || inner.Err() != nil || errors.Is(err, errEventTooLarge) || errors.Is(err, errFlood) {
			return nil, ended(err, "closed its stream before the answer; whether the call was carried out is unknown")
		}
		// The server may close a stream on purpose and have us fetch the rest later.
		body.Close()
		resumes++
		next, err := w.resume(inner, ev.lastID, ev.retry)
		if err != nil {
			return nil, ended(err, "closed its stream before the answer and did not resume it")
		}
		body = next.Body
	}
}

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }}

// answer reads events until p's answer.
func (w *httpWire) answer(ev *events, p *pending) ([]byte, error) {
	for {
		data, err := ev.next()
		if err != nil {
			return nil, err
		}
		if mine, err := w.c.receive(data, p); mine != nil || err != nil {
			return mine, err
		}
	}
}

// judge decides whether a response can hold an answer, so that no other status or media type gets round the checks: 200 with one of the two media types, or an error status with a JSON-RPC
// error. It also takes up the session that initialize opens.
func (w *httpWire) judge(resp *http.Response, p *pending, method string) (media string, err error) {
	c, s := w.c, w.c.s
	media, _, err = mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		media = ""
	}
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return "", s.invalidResult(nil, "is compressed, which was not asked for")
	}
	switch status := resp.StatusCode; {
	case status == http.StatusNotFound && w.session.Load() != nil:
		c.fail(errSessionGone)
		return "", s.failed(errSessionGone, "ended the session; whether the call was carried out is unknown")
	case status >= 400 && media == "application/json":
		return media, nil // may hold a JSON-RPC error
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return "", s.failed(nil, "refused the credential it is configured with (HTTP status %d)", status)
	case status >= 300 && status < 400:
		return "", s.failed(nil, "answered with a redirect (HTTP status %d), which is not followed", status)
	case status != http.StatusOK:
		return "", s.failed(nil, "answered with HTTP status %d", status)
	case media != "application/json" && media != "text/event-stream":
		return "", s.invalidResult(nil, "has a media type other than application/json and text/event-stream")
	}
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" && method == "initialize" {
		if len(id) > 1024 || !headerSafe([]byte(id)) {
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
	if media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); resp.StatusCode != http.StatusOK || err != nil || media != "text/event-stream" {
		resp.Body.Close()
		return nil, fmt.Errorf("resuming was answered with HTTP status %d", resp.StatusCode)
	}
	return resp, nil
}

func streamHeaders(lastID string) func(http.Header) {
	return func(h http.Header) {
		delete(h, "Content-Type")
		h["Accept"] = []string{"text/event-stream"}
		if lastID != "" {
			h["Last-Event-Id"] = []string{lastID}
		}
	}
}

// scratch holds buffers for reading what has no known length. Large ones are not kept.
var scratch = sync.Pool{New: func() any { b := make([]byte, 0, 8<<10); return &b }}

func keep(b *[]byte) {
	if cap(*b) <= 1<<20 {
		*b = (*b)[:0]
		scratch.Put(b)
	}
}

// readBounded reads a body of at most max bytes into memory of its own. length is what the sender says of it, -1 if nothing.
func readBounded(r io.Reader, length int64, max int) ([]byte, error) {
	if length > int64(max) {
		return nil, errEventTooLarge
	}
	held := scratch.Get().(*[]byte)
	defer keep(held)
	buf := (*held)[:0]
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		*held = buf
		if len(buf) > max {
			return nil, errEventTooLarge
		}
		if err == io.EOF {
			return bytes.Clone(buf), nil
		}
		if err != nil {
			return nil, err
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
	}
}

func (w *httpWire) post(ctx context.Context, frame []byte) error {
	if w.c.modern() {
		return nil // this revision's clients send requests only; closing a stream cancels
	}
	inner, cancel := context.WithTimeout(ctx, notifyTime)
	defer cancel()
	defer context.AfterFunc(w.c.ctx, cancel)()
	resp, err := w.send(inner, http.MethodPost, frame, nil)
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

// standingTime bounds the wait for the standing stream of an owned conversation.
const standingTime = 500 * time.Millisecond

// opened starts the stream on which legacy servers speak first. Modern ones do so on subscriptions/listen. What a server asks while a
// call runs can come on this stream, too, and servers drop what they can't send at once: in an owned conversation it stands first.
func (w *httpWire) opened() {
	c := w.c
	if c.modern() {
		return
	}
	stands := make(chan struct{})
	c.background(func() { w.follow(sync.OnceFunc(func() { close(stands) })) })
	if !c.owned {
		return
	}
	timer := time.NewTimer(standingTime)
	defer timer.Stop()
	select {
	case <-stands:
	case <-timer.C:
	case <-c.ctx.Done():
	}
}

// follow reads the standing stream for as long as the server offers it. It calls answered when the server has, one way or the other.
func (w *httpWire) follow(answered func()) {
	c := w.c
	delay := time.Second
	lastID := ""
	for {
		began := time.Now()
		resp, err := w.send(c.ctx, http.MethodGet, nil, streamHeaders(lastID))
		answered()
		var dial *dialError
		switch {
		case c.ctx.Err() != nil:
			if err == nil {
				resp.Body.Close()
			}
			return
		case errors.As(err, &dial):
			c.fail(fmt.Errorf("it can't be reached: %w", dial))
			return
		case err != nil:
			c.log.Debug("the standing stream broke", "error", plain(err))
		default:
			media, _, merr := mime.ParseMediaType(resp.Header.Get("Content-Type"))
			switch {
			case resp.StatusCode == http.StatusNotFound && w.session.Load() != nil:
				resp.Body.Close()
				c.fail(errSessionGone)
				return
			case resp.StatusCode >= 500:
				resp.Body.Close()
			case resp.StatusCode != http.StatusOK || merr != nil || media != "text/event-stream":
				resp.Body.Close() // not offered
				return
			default:
				ev := newEvents(bufio.NewReaderSize(resp.Body, 4<<10), streamEvent)
				ev.lastID = lastID
				_, err := w.answer(ev, nil)
				resp.Body.Close()
				if errors.Is(err, errEventTooLarge) {
					c.fail(errors.New("it sent an announcement over the limit"))
				}
				if lastID = ev.lastID; ev.retry > 0 {
					delay = min(max(ev.retry, 100*time.Millisecond), c.s.backoffMax)
				}
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
