package connect

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/mcpwire"
)

// session is the transport session of a revision up to 2025-11-25. It can be lost (the gateway restarted, it was idle too long). Then it is
// opened again with the client's first initialize.
type session struct {
	mu        sync.Mutex // guards what follows; held while a new one is opened, so that only one is
	id        string
	version   string
	hello     []byte // the client's initialize
	stateless bool   // the client speaks a revision without sessions
	listens   bool
}

func (s *session) modern() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stateless
}

func (s *session) now() (id, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id, s.version
}

// post sends one message. It opens the session again, once, if the gateway no longer knows it: a message that was refused for that
// reason had no effect.
func (b *bridge) post(ctx context.Context, m message) (*http.Response, error) {
	if mcpwire.Modern(m.version) {
		b.session.mu.Lock()
		b.session.stateless = true
		b.session.mu.Unlock()
		return b.send(ctx, http.MethodPost, m.body, b.modernHeaders(m))
	}
	if m.Method == "initialize" {
		resp, err := b.send(ctx, http.MethodPost, m.body, http.Header{})
		if err == nil && resp.StatusCode == http.StatusOK {
			b.session.mu.Lock()
			b.session.id, b.session.version, b.session.hello, b.session.stateless = resp.Header.Get(mcpwire.HeaderSession), "", m.body, false
			b.session.mu.Unlock()
		}
		return resp, err
	}
	id, version := b.session.now()
	resp, err := b.send(ctx, http.MethodPost, m.body, legacyHeaders(id, version))
	if err != nil || resp.StatusCode != http.StatusNotFound || id == "" {
		return resp, err
	}
	resp.Body.Close()
	if err := b.reopen(ctx, id); err != nil {
		return nil, err
	}
	id, version = b.session.now()
	return b.send(ctx, http.MethodPost, m.body, legacyHeaders(id, version))
}

func legacyHeaders(id, version string) http.Header {
	h := http.Header{}
	if id != "" {
		h.Set(mcpwire.HeaderSession, id)
	}
	if version != "" {
		h.Set(mcpwire.HeaderVersion, version)
	}
	return h
}

// reopen opens a session in place of the lost one, unless that has happened already.
func (b *bridge) reopen(ctx context.Context, lost string) error {
	s := &b.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id != lost {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, shortWait)
	defer cancel()
	resp, err := b.send(ctx, http.MethodPost, s.hello, http.Header{})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	version, err := initialized(resp)
	if err != nil {
		return fmt.Errorf("the gateway lost the transport session and opens no new one: %w", err)
	}
	if version != s.version {
		return fmt.Errorf("the gateway lost the transport session and now speaks revision %.20q instead of %.20q: start the client again", version, s.version)
	}
	id := resp.Header.Get(mcpwire.HeaderSession)
	ready, err := b.send(ctx, http.MethodPost, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), legacyHeaders(id, version))
	if err != nil {
		return err
	}
	ready.Body.Close()
	s.id = id
	b.log.Info("the gateway had lost the transport session; a new one is open, without the resource subscriptions and the log level of the old one")
	return nil
}

// initialized reads the answer to an initialize that the client did not send itself.
func initialized(resp *http.Response) (version string, err error) {
	if resp.StatusCode != http.StatusOK {
		return "", errors.New(problem(resp))
	}
	err = messages(resp, func(m mcpwire.Message) error {
		if m.Result == nil {
			return nil
		}
		version = versionOf(m.Result)
		return io.EOF
	})
	if version == "" {
		return "", errors.Join(errors.New("its answer to initialize has no protocolVersion"), err)
	}
	return version, nil
}

func versionOf(result []byte) string {
	version, _ := call.GetText(result, "protocolVersion")
	return version
}

// send makes one HTTP request. While nothing listens at the address it tries again for a moment, since a gateway that restarts is back soon. A
// request that reached a server is never repeated.
func (b *bridge) send(ctx context.Context, method string, body []byte, h http.Header) (*http.Response, error) {
	for _, wait := range []time.Duration{100 * time.Millisecond, 400 * time.Millisecond, time.Second, 0} {
		var r io.Reader
		if body != nil {
			r = bytes.NewReader(body)
		}
		req, err := http.NewRequestWithContext(ctx, method, b.url, r)
		if err != nil {
			return nil, err
		}
		for name, values := range h {
			req.Header[name] = values
		}
		req.Header.Set("Authorization", "Bearer "+b.token)
		if body != nil {
			req.Header.Set("Content-Type", mcpwire.TypeJSON)
			req.Header.Set("Accept", mcpwire.TypeJSON+", "+mcpwire.TypeEvents)
			req.GetBody = nil // without it net/http does not repeat the request on its own
		}
		resp, err := b.http.Do(req)
		var op *net.OpError
		if err == nil || wait == 0 || !errors.As(err, &op) || op.Op != "dial" {
			return resp, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
	panic("unreachable")
}

// answer forwards the messages of a response up to the answer to the request.
func (b *bridge) answer(m message, resp *http.Response) (answered bool, err error) {
	if resp.StatusCode >= 300 && mcpwire.MediaType(resp.Header) != mcpwire.TypeJSON {
		b.failed(m, rpcCode(resp.StatusCode), problem(resp))
		return true, nil
	}
	key := mcpwire.IDKey(m.ID)
	err = messages(resp, func(got mcpwire.Message) error {
		switch {
		case !got.Response():
			return b.write(got)
		case got.ID != nil && mcpwire.IDKey(got.ID) != key:
			return nil // an answer to another request is dropped
		}
		got.ID = m.ID // even if the gateway could not read the id: HTTP pairs them
		if got.Result != nil {
			b.learn(m, got.Result)
		}
		if err := b.reply(m, got); err != nil {
			return err
		}
		answered = true
		return io.EOF
	})
	return answered, err
}

// learn keeps the parts of an answer that later requests need.
func (b *bridge) learn(m message, result []byte) {
	switch {
	case m.Method == "initialize" && m.version == "":
		b.session.mu.Lock()
		b.session.version = versionOf(result)
		b.session.mu.Unlock()
	case m.Method == "tools/list" && mcpwire.Modern(m.version):
		b.learnTools(result)
	}
}

// messages reads the messages of a response body, one JSON value or a stream of events, and calls f with each until f returns an error. If f
// returns io.EOF, or if the body ends by itself, messages returns nil.
func messages(resp *http.Response, f func(mcpwire.Message) error) error {
	switch mcpwire.MediaType(resp.Header) {
	case mcpwire.TypeJSON:
		body, err := mcpwire.ReadBody(resp.Body, resp.ContentLength, maxAnswer)
		if err == nil {
			err = parsed(body, f)
		}
		return ended(err)
	case mcpwire.TypeEvents:
		events := mcpwire.NewEvents(resp.Body, maxAnswer)
		defer events.Free()
		return follow(events, f)
	}
	return fmt.Errorf("the gateway answered with %.60q: is there something else at this address?", resp.Header.Get("Content-Type"))
}

// follow calls f with the message of each event, until the stream ends or f returns an error.
func follow(events *mcpwire.Events, f func(mcpwire.Message) error) error {
	for {
		data, err := events.Next()
		if err == nil && len(data) > 0 { // an event without data only sets its id
			err = parsed(data, f)
		}
		if err != nil {
			return ended(err)
		}
	}
}

func parsed(data []byte, f func(mcpwire.Message) error) error {
	m, e := mcpwire.Parse(data, answerLimits)
	if e != nil {
		return fmt.Errorf("the gateway sent what is no message: %w", e)
	}
	return f(m)
}

// ended returns nil for io.EOF.
func ended(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// problem is one sentence about a response that is no message.
func problem(resp *http.Response) string {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // a part of the body is enough for a sentence
	if strings.HasSuffix(mcpwire.MediaType(resp.Header), "json") && json.Valid(body) {
		e, _ := call.Get(body, "error")
		detail, _ := call.GetText(body, "detail")
		message, _ := call.GetText(e, "message")
		if s := cmp.Or(detail, message); s != "" {
			return s
		}
	}
	return "The gateway answered " + resp.Status + "."
}

func rpcCode(status int) int64 {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge:
		return mcpwire.CodeInvalidRequest
	}
	return mcpwire.CodeInternal
}

// modernHeaders are the headers of the modern era, which repeat parts of the body. A client on a pipe has none, so the bridge sets them.
func (b *bridge) modernHeaders(m message) http.Header {
	var bound []mcpwire.ParamHeader
	if name, _, _ := mcpwire.Name(m.Method, m.Params); m.Method == string(call.CallTool) {
		b.mu.Lock()
		bound = b.headers[name]
		b.mu.Unlock()
	}
	h := http.Header{}
	mcpwire.SetHeaders(h, &m.Message, m.version, bound)
	return h
}

const maxTools = 10_000

// learnTools notes which tools bind arguments to headers.
func (b *bridge) learnTools(result []byte) {
	tools, _ := call.Get(result, "tools")
	if !bytes.Contains(tools, []byte("x-mcp-header")) {
		return // nearly always
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for t := range call.Elements(tools) {
		name, ok := call.GetText(t, "name")
		if !ok {
			continue
		}
		schema, _ := call.Get(t, "inputSchema")
		bound, err := mcpwire.ParamHeaders(schema)
		if err == nil && len(bound) > 0 && (len(b.headers) < maxTools || b.headers[name] != nil) {
			b.headers[name] = bound
		} else {
			delete(b.headers, name)
		}
	}
}

// listen keeps the stream open on which the gateway sends messages that belong to no request (lists that changed, resources that were updated).
func (b *bridge) listen() {
	b.session.mu.Lock()
	again := b.session.listens
	b.session.listens = true
	b.session.mu.Unlock()
	if again {
		return
	}
	b.tail.Go(func() {
		const longest = 30 * time.Second
		var last string
		for wait := time.Second; b.ctx.Err() == nil; wait = min(2*wait, longest) {
			began := time.Now()
			more, err := b.stream(&last)
			if !more {
				return
			}
			if time.Since(began) > longest {
				wait = time.Second
			}
			b.log.Debug("the gateway's stream ended; it is opened again", "wait", wait, "error", err)
			select {
			case <-b.ctx.Done():
			case <-time.After(wait):
			}
		}
	})
}

// stream reads one GET stream to its end. more is false if another would be useless.
func (b *bridge) stream(last *string) (more bool, err error) {
	id, version := b.session.now()
	if id == "" {
		return false, nil
	}
	h := legacyHeaders(id, version)
	h.Set("Accept", mcpwire.TypeEvents)
	if *last != "" {
		h.Set(mcpwire.HeaderEventID, *last)
	}
	resp, err := b.send(b.ctx, http.MethodGet, nil, h)
	if err != nil {
		return true, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		*last = ""
		return true, b.reopen(b.ctx, id)
	case http.StatusMethodNotAllowed, http.StatusUnauthorized, http.StatusForbidden, http.StatusBadRequest:
		return false, nil
	default:
		return true, errors.New(problem(resp))
	}
	events := mcpwire.NewEvents(resp.Body, maxAnswer)
	defer events.Free()
	events.LastID = *last
	defer func() { *last = events.LastID }()
	return true, follow(events, b.write)
}

// end cancels the requests that are left and closes the transport session. Otherwise the gateway would notice only later.
func (b *bridge) end(left []json.RawMessage) {
	id, version := b.session.now()
	if id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), time.Second)
	defer cancel()
	tell := func(method string, body []byte) {
		resp, err := b.send(ctx, method, body, legacyHeaders(id, version))
		if err != nil {
			b.log.Debug("could not tell the gateway that the client is gone", "error", err)
			return
		}
		resp.Body.Close()
	}
	for _, request := range left {
		m := mcpwire.Message{Method: "notifications/cancelled", Params: fmt.Appendf(nil, `{"requestId":%s}`, request)}
		tell(http.MethodPost, m.Append(nil))
	}
	tell(http.MethodDelete, nil)
}
