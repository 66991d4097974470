// Package connect carries MCP from a program's standard input and output to a gateway's /mcp, for clients that can only start a
// command. It forwards messages as they are and decides nothing: the token tells who calls, and the gateway judges.
//
// Promises: one message in is one line of at most 4 MiB, strictly parsed; every request is answered exactly once, with the
// gateway's answer or with an error; a message that may have had its effect is never sent again; one line out is one message; the
// token goes only to the address that it was given for, and into no message and no log.
package connect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/mcpwire"
)

const (
	maxLine    = 4 << 20   // as the gateway's own limit of a body
	maxAnswer  = 160 << 20 // an upstream's largest result, with room for its wrapping
	maxRunning = 256       // requests at a time

	shortWait = 30 * time.Second // for requests that the gateway answers at once
	grace     = 3 * time.Second  // for running calls when the input ends
)

// Options say where the gateway is.
type Options struct {
	URL   string       // of the gateway's MCP endpoint: http://127.0.0.1:7575/mcp
	Token string       // of an agent or a session
	Log   *slog.Logger // nil: no log
}

// Run forwards until the input ends (nil), ctx ends, or a side breaks.
func Run(ctx context.Context, in io.Reader, out io.Writer, o Options) error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil // no proxy may see the token
	transport.MaxIdleConnsPerHost = 16
	transport.DisableCompression = true
	defer transport.CloseIdleConnections()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	b := &bridge{
		ctx: ctx, stop: stop, url: o.URL, token: o.Token, log: o.Log, out: out,
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		// If several requests use one id, the gateway refuses them. Here the newest is the one that can be cancelled.
		running: map[string]running{}, headers: map[string][]mcpwire.ParamHeader{},
	}
	return b.run(in)
}

type bridge struct {
	ctx   context.Context
	stop  context.CancelFunc
	url   string
	token string
	log   *slog.Logger
	http  *http.Client

	outMu  sync.Mutex // guards out and outErr
	out    io.Writer
	outErr error

	work sync.WaitGroup // requests, which end by themselves
	tail sync.WaitGroup // streams, which don't

	mu      sync.Mutex // guards what follows
	running map[string]running
	headers map[string][]mcpwire.ParamHeader // by tool, from the gateway's lists

	session session // its own lock
}

type running struct {
	id     json.RawMessage
	cancel context.CancelFunc
}

// run reads messages. Messages whose order matters (initialize, notifications, answers) are sent before the next line is read; requests run
// at the same time.
func (b *bridge) run(in io.Reader) error {
	lines := make(chan line)
	go func() { // ends with the input; nobody can interrupt a read of standard input
		defer close(lines)
		r := mcpwire.NewLines(in, maxLine)
		for {
			data, err := r.Next()
			select {
			case lines <- line{bytes.Clone(data), err}:
			case <-b.ctx.Done():
				return
			}
			if err != nil && !errors.Is(err, mcpwire.ErrTooLarge) {
				return
			}
		}
	}()
	var err error
	for err == nil {
		select {
		case <-b.ctx.Done():
			err = b.ctx.Err()
		case l, ok := <-lines:
			if len(l.data) > 0 {
				b.message(l.data) // a last line needs no end
			}
			switch {
			case !ok, errors.Is(l.err, io.EOF):
				err = io.EOF
			case errors.Is(l.err, mcpwire.ErrTooLarge):
				b.fail(nil, mcpwire.CodeParse, fmt.Sprintf("A message is longer than %d bytes and was not forwarded.", maxLine))
			case l.err != nil:
				err = fmt.Errorf("standard input broke: %w", l.err)
			}
		}
	}
	if errors.Is(err, io.EOF) {
		b.finish()
		err = nil
	}
	left := b.left()
	b.stop()
	b.work.Wait()
	b.tail.Wait()
	b.end(left)
	b.outMu.Lock()
	defer b.outMu.Unlock()
	if b.outErr != nil {
		return fmt.Errorf("standard output broke: %w", b.outErr)
	}
	return err
}

// finish waits a moment for the answers of running requests: the input of a pipe ends before they come.
func (b *bridge) finish() {
	done := make(chan struct{})
	go func() { b.work.Wait(); close(done) }()
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	case <-b.ctx.Done():
	}
}

// left returns the ids of requests that still run.
func (b *bridge) left() (ids []json.RawMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.running {
		ids = append(ids, r.id)
	}
	return ids
}

type line struct {
	data []byte
	err  error
}

// message is one message of the client with its bytes.
type message struct {
	mcpwire.Message
	body    []byte
	version string   // of the protocol, where the message carries one (modern era)
	batch   *answers // to the batch that it came in; nil: it came alone
}

func (m *message) notification() bool { return m.ID == nil && !m.Response() }

// lineLimits bound a message of the client. answerLimits bound an answer, which may be nested as deep as the gateway accepts from a server.
var (
	lineLimits   = call.Limits{Bytes: maxLine, Depth: 64 + 4, Members: 100_000 + 100}
	answerLimits = call.Limits{Bytes: maxAnswer, Depth: 128, Members: 1 << 21}
)

func parse(body []byte) (message, *mcpwire.Error) {
	parsed, e := mcpwire.Parse(body, lineLimits)
	m := message{Message: parsed, body: body}
	if e != nil {
		return m, e
	}
	meta, e := mcpwire.ParseMeta(m.Params)
	m.version = meta.Version
	return m, e
}

func (b *bridge) message(body []byte) {
	if _, version := b.session.now(); version == mcpwire.Revision0326 && mcpwire.IsBatch(body) {
		b.batch(body)
		return
	}
	m, e := parse(body)
	switch {
	case e != nil:
		b.fail(m.ID, e.Code, e.Message)
	case m.Response(), m.notification():
		b.oneWay(m)
	case m.Method == "initialize" && m.version == "":
		b.request(b.ctx, m) // everything after it depends on its answer
	default:
		b.start(m)
	}
}

// start runs a request beside the others.
func (b *bridge) start(m message) {
	ctx, done := b.register(m)
	if ctx == nil {
		return
	}
	group := &b.work
	if m.Method == "subscriptions/listen" {
		group = &b.tail
	}
	group.Go(func() {
		defer done()
		b.request(ctx, m)
	})
}

// register notes a request, so that it can be cancelled until done is called. ctx is nil if there are too many; then it has its answer.
func (b *bridge) register(m message) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancel(b.ctx)
	key := mcpwire.IDKey(m.ID)
	b.mu.Lock()
	crowded := len(b.running) >= maxRunning
	if !crowded {
		b.running[key] = running{m.ID, cancel}
	}
	b.mu.Unlock()
	if crowded {
		cancel()
		b.failed(m, fault.LimitRate.RPCCode(), fmt.Sprintf("More than %d requests are running.", maxRunning))
		return nil, nil
	}
	return ctx, func() {
		cancel()
		b.mu.Lock()
		delete(b.running, key)
		b.mu.Unlock()
	}
}

// oneWay forwards a notification or an answer. No message after it may overtake it.
func (b *bridge) oneWay(m message) {
	if m.Method == "notifications/cancelled" {
		defer b.cancel(m) // after the message to the gateway, so that the end does not look like a lost connection
		if b.session.modern() {
			return // there only closing the connection cancels a request
		}
	}
	ctx, cancel := context.WithTimeout(b.ctx, shortWait)
	defer cancel()
	resp, err := b.post(ctx, m)
	if err == nil {
		defer resp.Body.Close()
		if resp.StatusCode >= 300 {
			err = errors.New(problem(resp))
		}
	}
	if err != nil {
		b.log.Warn("a notification or an answer did not get through", "method", m.Method, "error", err)
		return
	}
	if m.Method == "notifications/initialized" && !b.session.modern() {
		b.listen()
	}
}

func (b *bridge) cancel(m message) {
	id, ok := call.Get(m.Params, "requestId")
	if !ok {
		return
	}
	b.mu.Lock()
	r, ok := b.running[mcpwire.IDKey(id)]
	b.mu.Unlock()
	if ok {
		r.cancel()
	}
}

// request forwards a request and all messages that come back for it.
func (b *bridge) request(ctx context.Context, m message) {
	resp, err := b.post(ctx, m)
	if ctx.Err() != nil {
		if err == nil {
			resp.Body.Close()
		}
		return // cancelled by the client, which expects no answer, or stopping
	}
	if err != nil {
		b.failed(m, fault.UpstreamFailed.RPCCode(), b.explain(err))
		return
	}
	defer resp.Body.Close()
	answered, err := b.answer(m, resp)
	if answered || ctx.Err() != nil {
		return
	}
	why := "The connection to the gateway broke before the answer was there"
	if err != nil {
		why += ": " + err.Error()
	}
	b.failed(m, fault.UpstreamFailed.RPCCode(), why+". Whether the request had its effect is in the audit (sallyport audit query).")
}

func (b *bridge) explain(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return fmt.Sprintf("No gateway answers at %s (%v). Start it with: sallyport serve", b.url, op.Err)
	}
	return err.Error()
}

// write puts one message on a line of its own.
func (b *bridge) write(m mcpwire.Message) error {
	return b.line(append(m.Append(make([]byte, 0, len(m.Params)+len(m.Result)+len(m.Error)+128)), '\n'))
}

func (b *bridge) line(line []byte) error {
	b.outMu.Lock()
	defer b.outMu.Unlock()
	if b.outErr == nil {
		if _, b.outErr = b.out.Write(line); b.outErr != nil {
			b.stop()
		}
	}
	return b.outErr
}

// reply gives the answer to a request, alone or as a part of a batch.
func (b *bridge) reply(m message, answer mcpwire.Message) error {
	if m.batch == nil {
		return b.write(answer)
	}
	m.batch.add(answer)
	return nil
}

// failed answers a request in place of the gateway, and fail a message that may be none.
func (b *bridge) failed(m message, code int64, why string) {
	if err := b.reply(m, mistake(m.ID, code, why)); err != nil {
		b.log.Warn("an error could not be handed over", "error", err)
	}
}

func (b *bridge) fail(id json.RawMessage, code int64, why string) {
	b.failed(message{Message: mcpwire.Message{ID: id}}, code, why)
}

func mistake(id json.RawMessage, code int64, why string) mcpwire.Message {
	e := mcpwire.Error{Code: code, Message: strings.ToValidUTF8(why, "\uFFFD")}
	return mcpwire.Message{ID: id, Error: e.JSON()}
}
