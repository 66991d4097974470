package mcpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/mcpwire"
	"sallyport.example/internal/web"
)

// post serves one message from a client.
func (f *Face) post(w http.ResponseWriter, r *http.Request, p identity.Principal) {
	hold, err := f.o.Memory.Take(r.Context(), p.Whose(), web.Announced(r, maxBody))
	defer hold.Release() // when the answer has left
	var body []byte
	if err == nil {
		body, err = web.JSON(w, r, maxBody, false, hold)
	}
	if err == nil && !accepts(r) {
		err = web.WithStatus(http.StatusNotAcceptable, fault.New(fault.RequestMalformed, "Accept must list application/json and text/event-stream.").At("Accept"))
	}
	if err != nil {
		f.record(r, p, "", err)
		f.web.Refuse(w, r, err)
		return
	}
	if mcpwire.IsBatch(body) && f.batch(w, r, p, body, hold) {
		return
	}
	m, e := parse(body)
	if e != nil {
		newStream(w, m.ID).fail(f.recordRefusal(p, "", e))
		return
	}
	if m.Response() {
		f.response(w, r, p, m)
		return
	}
	req, e := parseRequest(m)
	if e != nil {
		newStream(w, m.ID).fail(f.recordRefusal(p, "", e))
		return
	}
	modern := isModern(r.Header, &req)
	req.room = hold
	if m.ID == nil {
		f.notification(w, r, p, &req, modern, body)
		return
	}
	s := newStream(w, m.ID)
	defer f.recovered(r, s)
	if modern {
		f.postModern(w, r, p, &req, s, body)
		return
	}
	f.postLegacy(w, r, p, &req, s, body)
}

// postModern serves a request of revision 2026-07-28: it stands alone, and ends with the HTTP request.
func (f *Face) postModern(w http.ResponseWriter, r *http.Request, p identity.Principal, req *request, s *stream, body []byte) {
	if e := checkModern(r.Header, req); e != nil {
		s.fail(f.recordRefusal(p, "", e))
		return
	}
	if _, err := f.g.BeginConversation(r.Context(), p, true); err != nil { // what the request asks for is refused for the same cause, in its own form
		f.o.Log.Debug("a request began no conversation", "error", err)
	}
	switch req.Method {
	case "server/discover", "subscriptions/listen":
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(f.life.stopping, cancel)()
		f.sdk.modern.ServeHTTP(w, forSDK(r.WithContext(ctx), body, &handshake{principal: p}))
		return
	case string(call.CallTool):
		if e := f.checkParamHeaders(r.Context(), r.Header, p, req); e != nil {
			s.fail(f.recordRefusal(p, req.Method, e))
			return
		}
	}
	f.handle(r.Context(), p, req, s, nil)
}

// postLegacy serves a request of a revision up to 2025-11-25: within a transport session, except for the one that opens it.
func (f *Face) postLegacy(w http.ResponseWriter, r *http.Request, p identity.Principal, req *request, s *stream, body []byte) {
	if v := r.Header.Get(mcpwire.HeaderVersion); v != "" && !slices.Contains(revisions, v) {
		s.fail(f.recordRefusal(p, req.Method, unsupported(v)))
		return
	}
	if req.Method == "initialize" && r.Header.Get(mcpwire.HeaderSession) == "" {
		f.sdk.legacy.ServeHTTP(w, forSDK(r, body, &handshake{principal: p, caps: req.capabilities}))
		return
	}
	c, release, e := f.connection(r, p)
	if e != nil {
		f.record(r, p, req.Method, e)
		s.fail(&rpcError{status: e.Code.HTTPStatus(), code: mcpwire.CodeInvalidRequest, message: e.Public()})
		return
	}
	defer release()
	p.Conversation = c.owner.Conversation
	if f.handleSession(w, r, p, req, s, body, c) {
		return
	}
	ctx, done, turnedAway := f.enter(r, w, c, req.ID)
	if turnedAway != nil {
		s.fail(f.recordRefusal(p, req.Method, turnedAway))
		return
	}
	defer done()
	f.handle(ctx, p, req, s, c)
}

// enter begins a request of the transport session. done ends it, once its answer has been written to w.
func (f *Face) enter(r *http.Request, w http.ResponseWriter, c *connection, id json.RawMessage) (_ context.Context, done func(), _ *rpcError) {
	ctx, cancel := context.WithCancelCause(r.Context())
	if e := c.begin(id, cancel); e != nil {
		cancel(nil)
		return nil, nil, e
	}
	return ctx, func() {
		cancel(nil)
		if c.finish(id) {
			_ = http.NewResponseController(w).Flush() // the answer leaves before the client's standing stream ends; best effort
			f.drop(c, errClosing)
		}
	}, nil
}

// handleSession serves a request that concerns the transport session itself; false if it is another one. What the SDK answers goes to w.
func (f *Face) handleSession(w http.ResponseWriter, r *http.Request, p identity.Principal, req *request, s *stream, body []byte, c *connection) bool {
	switch req.Method {
	case "ping":
		s.result(json.RawMessage("{}"))
	case "logging/setLevel":
		rank, ok := level(req.level)
		if !ok {
			s.fail(f.recordRefusal(p, req.Method, invalidParams("level must be one of "+strings.Join(levels, ", ")+".")))
			return true
		}
		c.mu.Lock()
		c.level = rank
		c.mu.Unlock()
		s.result(json.RawMessage("{}"))
	case "initialize", string(call.Subscribe), string(call.Unsubscribe):
		f.sdk.legacy.ServeHTTP(w, forSDK(r, body, &handshake{principal: p}))
	default:
		return false
	}
	return true
}

// forSDK is the request as the SDK gets it: with the body that was checked, and with its id in a header, since the context of a method of a
// transport session is that of the request that opened it.
func forSDK(r *http.Request, body []byte, h *handshake) *http.Request {
	r = withHandshake(r, h)
	r.Header.Set(web.HeaderRequestID, web.RequestID(r.Context()))
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	return r
}

// notification serves a client's notification. Unknown ones are refused.
func (f *Face) notification(w http.ResponseWriter, r *http.Request, p identity.Principal, req *request, modern bool, body []byte) {
	if !clientNotifications[req.Method] {
		newStream(w, nil).fail(f.recordRefusal(p, req.Method, noNotification(req.Method)))
		return
	}
	if modern { // nothing outlives its HTTP request, so there is nothing to notify about
		w.WriteHeader(http.StatusAccepted)
		return
	}
	c, release, e := f.connection(r, p)
	if e != nil {
		f.record(r, p, req.Method, e)
		f.web.Refuse(w, r, e)
		return
	}
	defer release()
	f.notified(w, r, p, req, body, c)
}

// notified serves a notification within its transport session.
func (f *Face) notified(w http.ResponseWriter, r *http.Request, p identity.Principal, req *request, body []byte, c *connection) {
	switch req.Method {
	case "notifications/cancelled":
		if mcpwire.ValidID(req.requestID) {
			c.cancel(req.requestID)
		}
	case "notifications/initialized":
		f.sdk.legacy.ServeHTTP(w, forSDK(r, body, &handshake{principal: p}))
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

func noNotification(method string) *rpcError {
	return badRequest(mcpwire.CodeMethodNotFound, "There is no notification "+mcpwire.Quote(method)+".")
}

// response serves a client's answer to a request of the gateway.
func (f *Face) response(w http.ResponseWriter, r *http.Request, p identity.Principal, m mcpwire.Message) {
	if mcpwire.Modern(r.Header.Get(mcpwire.HeaderVersion)) {
		newStream(w, nil).fail(badRequest(mcpwire.CodeInvalidRequest, "Revision 2026-07-28 has no requests of the server's to answer."))
		return
	}
	c, release, e := f.connection(r, p)
	if e != nil {
		f.record(r, p, "", e)
		f.web.Refuse(w, r, e)
		return
	}
	defer release()
	c.deliver(m)
	w.WriteHeader(http.StatusAccepted)
}
