package mcpapi

import (
	"bytes"
	"context"
	"net/http"

	"sallyport.example/internal/identity"
	"sallyport.example/internal/mcpwire"
	"sallyport.example/internal/memory"
	"sallyport.example/internal/web"
)

// A batch (revision 2025-03-26 alone) is read as a whole before anything of it runs. Then its messages are served one after the other, in their order, each as
// if it had come by itself: it finds what those before it changed, counts for every limit, and its credential is looked at again. So a batch runs
// nothing beside itself. It holds the memory that its requests would hold alone: their answers leave together.

// batch serves a batch; false if the client's revision has none.
func (f *Face) batch(w http.ResponseWriter, r *http.Request, p identity.Principal, body []byte, hold *memory.Hold) bool {
	if v := r.Header.Get(mcpwire.HeaderVersion); v != "" && v != mcpwire.Revision0326 {
		return false
	}
	c, release, err := f.connection(r, p)
	if err != nil {
		f.record(r, p, "", err)
		newStream(w, nil).fail(&rpcError{status: err.Code.HTTPStatus(), code: mcpwire.CodeInvalidRequest, message: err.Public()})
		return true
	}
	defer release()
	if c.revision != mcpwire.Revision0326 {
		return false
	}
	requests, e := parseBatch(body, hold)
	if e != nil {
		newStream(w, nil).fail(f.recordRefusal(p, "", e))
		return true
	}
	if e := hold.More((len(requests) - 1) * memory.PerCall / memory.Factor); e != nil { // nothing of it has run
		f.record(r, p, "", e)
		f.web.Refuse(w, r, e)
		return true
	}
	whole := newStream(w, nil)
	turns := make([]turn, len(requests))
	for i := range requests { // all of them before the first one runs, so that the client can cancel each
		t := &turns[i]
		t.req, t.ctx = &requests[i], r.Context()
		if t.req.ID == nil || t.req.Response() {
			continue
		}
		ctx, done, refused := f.enter(r, w, c, t.req.ID)
		if refused != nil {
			t.refused = refused
			continue
		}
		t.ctx = ctx
		defer done() // after the answer
	}
	for i := range turns {
		f.turn(r, &turns[i], whole, c)
	}
	whole.endBatch()
	return true
}

// parseBatch parses a batch. What would be refused of a single message, before it is known whether what it asks for may be done, is refused here.
func parseBatch(body []byte, hold *memory.Hold) ([]request, *rpcError) {
	messages, e := mcpwire.ParseBatch(body, limits)
	if e != nil {
		return nil, badMessage(e)
	}
	requests := make([]request, len(messages))
	for i, m := range messages {
		req, e := parseRequest(m)
		switch {
		case e != nil:
			return nil, e
		case mcpwire.Modern(req.meta.Version):
			return nil, badRequest(mcpwire.CodeInvalidRequest, "A request of revision "+mcpwire.Revision0728+" does not stand in a batch.")
		case m.Response() && m.ID == nil:
			return nil, noResponseID()
		case !m.Response() && m.ID == nil && !clientNotifications[m.Method]:
			return nil, noNotification(m.Method)
		}
		req.room = hold
		requests[i] = req
	}
	return requests, nil
}

// turn is one message of a batch.
type turn struct {
	req     *request
	ctx     context.Context
	refused *rpcError // why the request can't begin, or nil
}

// turn serves one message of a batch.
func (f *Face) turn(r *http.Request, t *turn, whole *stream, c *connection) {
	req := t.req
	p, err := f.principal(r)
	if err == nil && !c.owns(p) {
		err = noConnection
	}
	if err != nil {
		f.record(r, p, req.Method, err)
	} else {
		p.Conversation = c.owner.Conversation
	}
	sdk := &taken{header: http.Header{}}
	body := req.Message.Append(nil)
	if req.ID == nil || req.Response() {
		switch {
		case err != nil:
		case req.Response():
			c.deliver(req.Message)
		default:
			f.notified(sdk, r, p, req, body, c)
		}
		return
	}
	s := whole.part(req.ID)
	defer f.recovered(r, s)
	switch {
	case err != nil:
		s.fail(f.faultError(r.Context(), err))
	case t.refused != nil:
		s.fail(f.recordRefusal(p, req.Method, t.refused))
	case f.life.stopping.Err() != nil:
		s.fail(f.faultError(r.Context(), errClosing))
	case t.ctx.Err() != nil:
		s.fail(badRequest(mcpwire.CodeInvalidRequest, "The request was cancelled before its turn in the batch came."))
	case !f.handleSession(sdk, r, p, req, s, body, c):
		f.handle(t.ctx, p, req, s, c)
	case sdk.status != 0:
		f.pass(r, sdk, s)
	}
}

// taken is what the SDK answers to one message of a batch.
type taken struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (t *taken) Header() http.Header { return t.header }

func (t *taken) WriteHeader(status int) {
	if t.status == 0 {
		t.status = status
	}
}

func (t *taken) Write(b []byte) (int, error) {
	t.WriteHeader(http.StatusOK)
	return t.body.Write(b)
}

// pass passes the SDK's answer on.
func (f *Face) pass(r *http.Request, t *taken, s *stream) {
	switch m, e := mcpwire.Parse(t.body.Bytes(), limits); {
	case e == nil && m.Result != nil:
		s.result(m.Result)
	case e == nil && m.Error != nil:
		s.fail(&rpcError{raw: m.Error})
	default:
		f.o.Log.Error("an answer to a message of a batch is none", "request_id", web.RequestID(r.Context()), "status", t.status)
		s.fail(internalError(web.RequestID(r.Context())))
	}
}
