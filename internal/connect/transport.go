package connect

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"sallyport.example/internal/call"
)

const firstModern = "2026-07-28" // from this revision on there are no transport sessions

const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
)

// session is the transport session of a revision up to 2025-11-25. It can be lost (the gateway restarted, it idled too long); then it is
// opened again with what the client said the first time.
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
	if m.version >= firstModern {
		b.session.mu.Lock()
		b.session.stateless = true
		b.session.mu.Unlock()
		return b.send(ctx, http.MethodPost, m.body, b.modernHeaders(m))
	}
	if m.method == "initialize" {
		resp, err := b.send(ctx, http.MethodPost, m.body, http.Header{})
		if err == nil && resp.StatusCode == http.StatusOK {
			b.session.mu.Lock()
			b.session.id, b.session.version, b.session.hello, b.session.stateless = resp.Header.Get(headerSession), "", m.body, false
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
		h.Set(headerSession, id)
	}
	if version != "" {
		h.Set(headerVersion, version)
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
	id := resp.Header.Get(headerSession)
	ready, err := b.send(ctx, http.MethodPost, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), legacyHeaders(id, version))
	if err != nil {
		return err
	}
	ready.Body.Close()
	s.id = id
	b.log.Info("the gateway had lost the transport session; a new one is open, without the resource subscriptions and the log level of the old one")
	return nil
}

// initialized reads the answer to an initialize that was not the client's own.
func initialized(resp *http.Response) (version string, err error) {
	if resp.StatusCode != http.StatusOK {
		return "", errors.New(problem(resp))
	}
	err = messages(resp, func(msg []byte) error {
		if result, ok := call.Get(msg, "result"); ok {
			version = versionOf(result)
			return io.EOF
		}
		return nil
	})
	if version == "" {
		return "", errors.Join(errors.New("its answer to initialize has no protocolVersion"), err)
	}
	return version, nil
}

func versionOf(result []byte) string {
	v, _ := call.Get(result, "protocolVersion")
	s, _ := text(v)
	return s
}

// send makes one HTTP request. While nothing listens at the address it tries again for a moment, as a gateway that restarts is back
// soon; a request that did get somewhere is never repeated.
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
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json, text/event-stream")
			req.GetBody = nil // net/http repeats a request on its own if it can; whether that is safe is decided here
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

// answer hands over what a response carries, until the answer to the request is among it.
func (b *bridge) answer(m message, resp *http.Response) (answered bool, err error) {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode >= 300 && media != "application/json" {
		b.fail(m.id, rpcCode(resp.StatusCode), problem(resp))
		return true, nil
	}
	key := idKey(m.id)
	err = messages(resp, func(msg []byte) error {
		_, isRequest := call.Get(msg, "method")
		id, _ := call.Get(msg, "id")
		if isRequest {
			return b.write(msg)
		}
		if string(id) != string(m.id) && idKey(id) != key {
			if string(id) != "null" {
				return nil // an answer to something else has no place here
			}
			// The gateway could not tell the id. It is this request's answer all the same: HTTP pairs them.
			if e, ok := call.Get(msg, "error"); ok {
				msg = append(append(append(append([]byte(`{"jsonrpc":"2.0","id":`), m.id...), `,"error":`...), e...), '}')
			}
		}
		if result, ok := call.Get(msg, "result"); ok {
			b.learn(m, result)
		}
		if err := b.write(msg); err != nil {
			return err
		}
		answered = true
		return io.EOF
	})
	return answered, err
}

// learn takes from an answer what later requests need.
func (b *bridge) learn(m message, result []byte) {
	switch {
	case m.method == "initialize" && m.version == "":
		b.session.mu.Lock()
		b.session.version = versionOf(result)
		b.session.mu.Unlock()
	case m.method == "tools/list" && m.version >= firstModern:
		b.learnTools(result)
	}
}

// messages reads the messages of a response body, one JSON value or a stream of events, and calls f with each until it returns an error;
// io.EOF of f's is none. A body that ends by itself is no error either.
func messages(resp *http.Response, f func(msg []byte) error) error {
	each := func(msg []byte) error {
		if !json.Valid(msg) {
			return errors.New("the gateway sent something that is not JSON")
		}
		return f(msg)
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch media {
	case "application/json":
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
		if err != nil {
			return err
		}
		if len(body) > maxAnswer {
			return errTooLarge
		}
		if err := each(body); err != io.EOF {
			return err
		}
		return nil
	case "text/event-stream":
		return readEvents(bufio.NewReaderSize(resp.Body, 32<<10), func(e event) error {
			if len(e.data) == 0 {
				return nil // only there for its id
			}
			return each(e.data)
		})
	}
	return fmt.Errorf("the gateway answered with %.60q: is there something else at this address?", resp.Header.Get("Content-Type"))
}

var errTooLarge = fmt.Errorf("the gateway's message is larger than %d bytes", maxAnswer)

// problem is one sentence about a response that is no message.
func problem(resp *http.Response) string {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // what has come by then is enough for a sentence
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); strings.HasSuffix(media, "json") && json.Valid(body) {
		if v, ok := call.Get(body, "detail"); ok {
			if s, ok := text(v); ok && s != "" {
				return s
			}
		}
		if e, ok := call.Get(body, "error"); ok && e[0] == '{' {
			if v, ok := call.Get(e, "message"); ok {
				if s, ok := text(v); ok && s != "" {
					return s
				}
			}
		}
	}
	return "The gateway answered " + resp.Status + "."
}

func rpcCode(status int) int64 {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge:
		return -32600
	}
	return -32603
}

// modernHeaders are what revision 2026-07-28 wants repeated outside the body: the method, the name, and arguments that the tool's schema
// binds to a header.
func (b *bridge) modernHeaders(m message) http.Header {
	h := http.Header{}
	h.Set(headerVersion, headerValue(m.version))
	h.Set("Mcp-Method", headerValue(m.method))
	var name json.RawMessage
	switch m.method {
	case "tools/call", "prompts/get":
		name, _ = call.Get(m.params, "name")
	case "resources/read":
		name, _ = call.Get(m.params, "uri")
	}
	if s, ok := text(name); ok {
		h.Set("Mcp-Name", headerValue(s))
		if m.method == "tools/call" {
			b.paramHeaders(h, s, m.params)
		}
	}
	return h
}

// headerValue is s as a header can carry it: as it is, or in base64 where it isn't plain printable ASCII.
func headerValue(s string) string {
	plain := s == strings.TrimSpace(s) && !strings.HasPrefix(s, "=?base64?")
	for i := 0; plain && i < len(s); i++ {
		plain = s[i] >= ' ' && s[i] < 0x7f
	}
	if plain {
		return s
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
}

// paramHeader binds one argument of a tool to the header Mcp-Param-<name>.
type paramHeader struct {
	path   []string
	header string
}

const (
	maxTools      = 10_000
	maxParamDepth = 16
)

// learnTools notes which tools bind arguments to headers. A client on a pipe has no headers, so that it is for the bridge to do.
func (b *bridge) learnTools(result []byte) {
	tools, _ := call.Get(result, "tools")
	if !bytes.Contains(tools, []byte("x-mcp-header")) {
		return // nearly always
	}
	var list []json.RawMessage
	if json.Unmarshal(tools, &list) != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range list {
		v, _ := call.Get(t, "name")
		name, ok := text(v)
		schema, has := call.Get(t, "inputSchema")
		if !ok || !has {
			continue
		}
		if found := bindings(schema, nil, nil); len(found) > 0 && (len(b.headers) < maxTools || b.headers[name] != nil) {
			b.headers[name] = found
		} else {
			delete(b.headers, name)
		}
	}
}

func bindings(schema json.RawMessage, path []string, found []paramHeader) []paramHeader {
	if len(schema) == 0 || schema[0] != '{' || len(path) >= maxParamDepth {
		return found
	}
	properties, ok := call.Get(schema, "properties")
	if !ok || properties[0] != '{' {
		return found
	}
	for name, property := range call.Members(properties) {
		if property[0] != '{' {
			continue
		}
		at := append(path[:len(path):len(path)], name)
		v, _ := call.Get(property, "x-mcp-header")
		if header, _ := text(v); token(header) {
			found = append(found, paramHeader{at, "Mcp-Param-" + header})
		}
		found = bindings(property, at, found)
	}
	return found
}

// token tells whether s can be part of a header's name.
func token(s string) bool {
	for _, c := range []byte(s) {
		if !strings.ContainsRune("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", rune(c)) {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

func (b *bridge) paramHeaders(h http.Header, tool string, params json.RawMessage) {
	b.mu.Lock()
	bound := b.headers[tool]
	b.mu.Unlock()
	for _, p := range bound {
		value, ok := call.Get(params, "arguments")
		for _, step := range p.path {
			if !ok || value[0] != '{' {
				ok = false
				break
			}
			value, ok = call.Get(value, step)
		}
		if !ok || string(value) == "null" || value[0] == '{' || value[0] == '[' {
			continue
		}
		if s, isText := text(value); isText {
			h.Set(p.header, headerValue(s))
		} else {
			h.Set(p.header, string(value))
		}
	}
}

// listen keeps the stream open on which the gateway says what belongs to no request (lists that changed, resources that were updated).
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

// stream reads one GET stream to its end; false if there is no use in another.
func (b *bridge) stream(last *string) (more bool, err error) {
	id, version := b.session.now()
	if id == "" {
		return false, nil
	}
	h := legacyHeaders(id, version)
	h.Set("Accept", "text/event-stream")
	if *last != "" {
		h.Set("Last-Event-Id", *last)
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
	return true, readEvents(bufio.NewReader(resp.Body), func(e event) error {
		if e.id != "" {
			*last = e.id
		}
		if len(e.data) == 0 {
			return nil
		}
		return b.write(e.data)
	})
}

// end cancels what is left and closes the transport session. The gateway would notice by itself, later.
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
			b.log.Debug("the gateway could not be told that the client is gone", "error", err)
			return
		}
		resp.Body.Close()
	}
	for _, request := range left {
		tell(http.MethodPost, fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, request))
	}
	tell(http.MethodDelete, nil)
}

type event struct {
	data []byte
	id   string
}

// readEvents reads a text/event-stream by the WHATWG rules: CR, LF and CRLF end a line, one leading byte order mark is dropped, data lines
// are joined by LF, comments and unknown fields are ignored, only events of type message count, and one that the end cuts short is
// discarded. It returns nil at the end of the stream and when f returns io.EOF, else f's error.
func readEvents(r *bufio.Reader, f func(event) error) error {
	if mark, err := r.Peek(3); err == nil && string(mark) == "\xef\xbb\xbf" {
		if _, err := r.Discard(3); err != nil {
			return err
		}
	}
	var (
		data    []byte
		has     bool
		name    string
		lastID  string
		line    []byte
		size    int
		afterCR bool
	)
	for {
		line = line[:0]
		for {
			c, err := r.ReadByte()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if c == '\n' && afterCR {
				afterCR = false
				continue
			}
			afterCR = c == '\r'
			if c == '\n' || c == '\r' {
				break
			}
			if size++; size > maxAnswer {
				return errTooLarge
			}
			line = append(line, c)
		}
		if len(line) == 0 {
			if (has || lastID != "") && (name == "" || name == "message") {
				if err := f(event{data, lastID}); err == io.EOF {
					return nil
				} else if err != nil {
					return err
				}
			}
			data, has, name, size = nil, false, "", 0
			continue
		}
		field, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(field) {
		case "data":
			if has {
				data = append(data, '\n')
			}
			data, has = append(data, value...), true
		case "event":
			name = string(value)
		case "id":
			if len(value) <= 512 && bytes.IndexFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) < 0 {
				lastID = string(value)
			}
		}
	}
}
