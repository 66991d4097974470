// Package models holds the models that the operator has configured, and asks their providers.
//
// Promises: a request goes to an address of the configuration and nowhere else: no redirect is followed, and no proxy that the environment names is used. The
// provider's key stands in the header of that request alone: it is in no error, no log and no answer. A model is pinned: its name says which version it is, or
// the operator says so (pinned: true); a name that its provider moves is refused. Answers are bounded in size and time.
package models

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/models/wire"
)

// Model is one model as the operator has configured it.
type Model struct {
	ID        string // as agents and the provider name it
	Provider  wire.Provider
	Base      string // the provider's base address; "": its public one
	Key       string
	AnswersAs []string // names that answers may give the model, besides its id
}

// base is the public address of each provider, in the form that its SDKs take.
var base = map[wire.Provider]string{wire.Anthropic: "https://api.anthropic.com", wire.OpenAI: "https://api.openai.com/v1"}

// CheckBase says what is wrong with a base address.
func CheckBase(address string, hasKey bool) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http":
		return fault.New(fault.ConfigurationInvalid, "It must be an address like https://api.anthropic.com, without a query.")
	case u.Scheme == "http" && hasKey && !loopback(u.Hostname()):
		return fault.New(fault.ConfigurationInvalid, "The key would go over the network unencrypted.").Try("Write https, or leave the key out.")
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Set is the models of the configuration. It can be replaced. Safe for concurrent use.
type Set struct {
	all       atomic.Pointer[map[string]Model]
	transport *http.Transport
}

// New returns a Set of these models.
func New(all []Model) *Set {
	s := &Set{transport: newTransport()}
	s.Replace(all)
	return s
}

// Replace puts other models in place of all. Requests that are under way end as they began.
func (s *Set) Replace(all []Model) {
	byID := make(map[string]Model, len(all))
	for _, m := range all {
		byID[m.ID] = m
	}
	s.all.Store(&byID)
}

// Close closes the connections that nobody uses.
func (s *Set) Close() { s.transport.CloseIdleConnections() }

// unsentError marks a request that found no connection (no address, no TLS): it certainly never left.
type unsentError struct{ err error }

func (e *unsentError) Error() string { return e.err.Error() }
func (e *unsentError) Unwrap() error { return e.err }

func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext:       dialer.DialContext,
		ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: 128, IdleConnTimeout: 60 * time.Second,
		MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
	}
}

// maxAnswer bounds one answer.
const maxAnswer = 8 << 20

// passed are the headers of a provider's answer that SDKs read, each with the form that its value must have.
var passed = map[string]*regexp.Regexp{
	"Request-Id": plainID, "X-Request-Id": plainID, "Retry-After": regexp.MustCompile(`^\d{1,6}$`), "Retry-After-Ms": regexp.MustCompile(`^\d{1,9}$`),
	"X-Should-Retry": regexp.MustCompile(`^(true|false)$`),
}

var plainID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// Ask sends a request and reads its whole answer. Its errors are fault errors; a request that certainly never left is a *fault.NotDispatched. Beside an error
// the response says as much as is known of the answer that was discarded.
func (s *Set) Ask(ctx context.Context, r wire.Request, room call.Room) (wire.Response, error) {
	m, err := s.find(r)
	if err != nil {
		return wire.Response{}, err
	}
	resp, err := s.send(ctx, m, r)
	if err != nil {
		return wire.Response{}, failed(ctx, err)
	}
	defer resp.Body.Close()
	return s.whole(ctx, m, r, resp, room)
}

// whole reads an answer, or an error, that comes whole.
func (s *Set) whole(ctx context.Context, m Model, r wire.Request, resp *http.Response, room call.Room) (wire.Response, error) {
	key := quotes(m.Key)
	out := wire.Response{Status: resp.StatusCode, Headers: plainHeaders(resp.Header, key)}
	body, err := read(resp, room, key)
	if err != nil {
		if ctx.Err() != nil {
			err = failed(ctx, err)
		}
		return out, err
	}
	out.Body = body
	switch {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		// Its words can quote the key, and the agent can do nothing about it.
		return out, fault.New(fault.UpstreamFailed, "The provider refused the gateway's credential, or what it may use (status %d).", resp.StatusCode).
			Try("An operator can check the key of the model, under models in sallyport.yaml.")
	case resp.StatusCode >= 400 && resp.StatusCode <= 599:
		return out, nil
	case resp.StatusCode != http.StatusOK:
		return out, fault.New(fault.UpstreamFailed, "The provider answered with the status %d.", resp.StatusCode)
	}
	return out, wire.CheckAnswer(r.Form, r.Model, m.AnswersAs, body)
}

// Stream sends a request and hands over the events of its answer as they come. An error of the provider's comes whole, as from Ask.
func (s *Set) Stream(ctx context.Context, r wire.Request, room call.Room, each func(e wire.Event) error) (wire.Response, wire.Usage, error) {
	m, err := s.find(r)
	if err != nil {
		return wire.Response{}, wire.Usage{}, err
	}
	resp, err := s.send(ctx, m, r)
	if err != nil {
		return wire.Response{}, wire.Usage{}, failed(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		out, err := s.whole(ctx, m, r, resp, room)
		return out, wire.Usage{}, err
	}
	key := quotes(m.Key)
	out := wire.Response{Status: resp.StatusCode, Headers: plainHeaders(resp.Header, key)}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media != "text/event-stream" {
		return out, wire.Usage{}, fault.New(fault.ResultInvalid, "The provider does not stream its answer; it was discarded.")
	}
	events := wire.NewStream(r, m.AnswersAs, &roomy{resp.Body, room})
	events.Look = key.look
	for {
		e, err := events.Next()
		switch {
		case errors.Is(err, io.EOF):
			return out, events.Usage(), nil
		case err != nil && ctx.Err() != nil:
			return out, events.Usage(), failed(ctx, err)
		case err != nil:
			if f := (*fault.Error)(nil); !errors.As(err, &f) {
				err = fault.Wrap(err, fault.UpstreamFailed, "The connection to the provider broke while its answer came.")
			}
			return out, events.Usage(), err
		}
		if err := key.goesOn(e.Args); err != nil {
			return out, events.Usage(), err
		}
		if err := each(e); err != nil {
			if ctx.Err() != nil {
				err = failed(ctx, err)
			}
			return out, events.Usage(), err
		}
	}
}

// find is the configured model that a request asks.
func (s *Set) find(r wire.Request) (Model, error) {
	m, known := (*s.all.Load())[r.Model]
	if !known || m.Provider != r.Form.Provider() { // it was taken out of the configuration since it was judged
		return m, &fault.NotDispatched{Err: fault.New(fault.ModelUndeclared, "The configuration has no such model any more.")}
	}
	return m, nil
}

// plainHeaders are those of a provider's headers that are handed on.
func plainHeaders(h http.Header, key *quoted) map[string]string {
	all := map[string]string{}
	for name, form := range passed {
		if v := h.Get(name); form.MatchString(v) && !key.in([]byte(v)) {
			all[name] = v
		}
	}
	return all
}

// send sends the very bytes that were judged.
func (s *Set) send(ctx context.Context, m Model, r wire.Request) (*http.Response, error) {
	address := m.Base
	if address == "" {
		address = base[m.Provider]
	}
	u, err := url.Parse(strings.TrimSuffix(address, "/") + r.Form.Path())
	if err != nil {
		return nil, &unsentError{err}
	}
	accept := "application/json"
	if r.Stream {
		accept = "text/event-stream"
	}
	h := http.Header{"Content-Type": {"application/json"}, "Accept": {accept}, "User-Agent": {"sallyport"}}
	switch {
	case m.Provider == wire.Anthropic:
		h["Anthropic-Version"] = []string{r.Version}
		if len(r.Beta) > 0 {
			h["Anthropic-Beta"] = []string{strings.Join(r.Beta, ",")}
		}
		if m.Key != "" {
			h["X-Api-Key"] = []string{m.Key}
		}
	case m.Key != "":
		h["Authorization"] = []string{"Bearer " + m.Key}
	}
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req := (&http.Request{Method: http.MethodPost, URL: u, Host: u.Host, Header: h, ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	req.ContentLength = int64(len(r.Body))
	req.Body = io.NopCloser(bytes.NewReader(r.Body))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(r.Body)), nil }
	resp, err := s.transport.RoundTrip(req) // not http.Client: that follows redirects
	if err != nil && !connected.Load() {
		err = &unsentError{err}
	}
	return resp, err
}

// failed is the error of a request without an answer. It has nothing of the request in it.
func failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return ctx.Err()
	}
	if unsent := (*unsentError)(nil); errors.As(err, &unsent) {
		return &fault.NotDispatched{Err: fault.Wrap(err, fault.UpstreamFailed, "The provider can't be reached.")}
	}
	return fault.Wrap(err, fault.UpstreamFailed, "The connection to the provider broke before its answer had come.")
}

// read reads an answer as strict JSON. The key is looked for before anything can quote the answer.
func read(resp *http.Response, room call.Room, key *quoted) (json.RawMessage, error) {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	b, err := io.ReadAll(io.LimitReader(&roomy{resp.Body, room}, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fault.Wrap(err, fault.UpstreamFailed, "The connection to the provider broke while its answer came.")
	case len(b) > maxAnswer:
		return nil, fault.New(fault.ResultTooLarge, "The provider's answer is over %d bytes; it was discarded.", maxAnswer)
	case resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden && key.in(b): // of those nothing is handed on
		return nil, fault.New(fault.ResultInvalid, "The provider's answer quotes the gateway's credential; it was discarded.")
	case media != "application/json":
		if resp.StatusCode >= 400 { // of a proxy before it, as a page
			return errorOf(resp.StatusCode), nil
		}
		return nil, fault.New(fault.ResultInvalid, "The provider's answer is no JSON; it was discarded.")
	}
	limits := call.DefaultLimits()
	limits.Bytes = maxAnswer
	if err := call.Check(b, limits); err != nil {
		if resp.StatusCode >= 400 {
			return errorOf(resp.StatusCode), nil
		}
		return nil, fault.Wrap(err, fault.ResultInvalid, "The provider's answer is not strict JSON; it was discarded.")
	}
	return b, nil
}

// errorOf stands for an error page whose words don't pass. Both providers' SDKs read it.
func errorOf(status int) json.RawMessage {
	message := fmt.Sprintf("The provider answered with the status %d, and no JSON.", status)
	b, _ := json.Marshal(map[string]any{"type": "error", "error": map[string]any{"type": "api_error", "message": message}}) // of texts: can't fail
	return b
}

// roomy takes memory for what is read.
type roomy struct {
	in   io.Reader
	room call.Room
}

func (r *roomy) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	if n > 0 && r.room != nil {
		if full := r.room.More(n); full != nil {
			return 0, full
		}
	}
	return n, err
}

// aliases are names that their providers document as moving from version to version. No word of an operator pins one.
var aliases = []string{
	"chatgpt-4o", "claude-2", "claude-3-5-haiku", "claude-3-5-sonnet", "claude-3-7-sonnet", "claude-3-haiku", "claude-3-opus", "claude-3-sonnet", "claude-haiku-4-5", "claude-instant-1",
	"claude-opus-4", "claude-opus-4-0", "claude-opus-4-1", "claude-opus-4-5", "claude-sonnet-4", "claude-sonnet-4-0", "claude-sonnet-4-5", "gpt-3.5-turbo", "gpt-4", "gpt-4-turbo",
	"gpt-4.1", "gpt-4.1-mini", "gpt-4.1-nano", "gpt-4o", "gpt-4o-mini", "gpt-5", "gpt-5-mini", "gpt-5-nano", "gpt-5.1", "gpt-5.2", "o1", "o1-mini", "o1-pro", "o3", "o3-mini", "o3-pro", "o4-mini",
	"default", "auto", "haiku", "opus", "sonnet",
}

// Moves tells whether a name is one that its provider points at ever newer versions, whatever the operator says.
func Moves(id string) bool {
	word := strings.ToLower(id)
	if i := strings.LastIndexByte(word, '/'); i >= 0 {
		word = word[i+1:]
	}
	return slices.Contains(aliases, word) || slices.Contains(strings.FieldsFunc(word, func(c rune) bool { return strings.ContainsRune("-_.:@", c) }), "latest")
}
