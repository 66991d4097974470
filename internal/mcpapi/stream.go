package mcpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"sallyport.example/internal/mcpwire"
)

// stream is the answer to one POST. It is a plain JSON body unless a message has to be sent before the result; with the first one it becomes an
// event stream. It writes nothing after its end, so that a late notification can't touch a ResponseWriter that is no longer ours.
type stream struct {
	w  http.ResponseWriter
	rc *http.ResponseController
	id json.RawMessage
	of *stream // the answer to the batch that this answer is a part of; nil: it stands alone

	mu      sync.Mutex // guards w and the fields below
	events  bool
	ended   bool
	answers [][][]byte // of a batch, in parts: those that are there, while none has left
}

func newStream(w http.ResponseWriter, id json.RawMessage) *stream {
	return &stream{w: w, rc: http.NewResponseController(w), id: id}
}

var errEnded = errors.New("the answer has been given already")

// message sends a notification or a request before the result, as an event.
func (s *stream) message(method string, id, params json.RawMessage) error {
	m := mcpwire.Message{ID: id, Method: method, Params: params}
	return s.send(m.Append(nil))
}

func (s *stream) send(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errEnded
	}
	if s.of != nil {
		return s.of.send(b)
	}
	if !s.events {
		s.events = true
		h := s.w.Header()
		h["Content-Type"] = []string{"text/event-stream"}
		h["Cache-Control"] = []string{"no-cache, no-transform"}
		h["X-Accel-Buffering"] = []string{"no"}
		s.w.WriteHeader(http.StatusOK)
		for _, answer := range s.answers {
			if err := s.event(answer...); err != nil {
				return err
			}
		}
		s.answers = nil
	}
	return s.event(b)
}

// event writes one event. The caller holds mu.
func (s *stream) event(parts ...[]byte) error {
	if err := mcpwire.WriteEvent(s.w, parts...); err != nil {
		return err
	}
	return s.rc.Flush()
}

// result ends the stream with a result, which may come in parts.
func (s *stream) result(parts ...[]byte) {
	s.end(http.StatusOK, `,"result":`, parts)
}

// fail ends the stream with a JSON-RPC error.
func (s *stream) fail(e *rpcError) {
	s.end(e.status, `,"error":`, [][]byte{e.object()})
}

func (s *stream) end(status int, member string, parts [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	id := s.id
	if id == nil {
		id = json.RawMessage("null")
	}
	head := make([]byte, 0, 512)
	head = append(append(append(head, `{"jsonrpc":"2.0","id":`...), id...), member...)
	length := len(head) + 1
	for i := range parts {
		parts[i] = mcpwire.OneLine(parts[i])
		length += len(parts[i])
	}
	if s.of != nil {
		s.of.answered(slices.Concat([][]byte{head}, parts, [][]byte{{'}'}}))
		return
	}
	if s.events {
		// A client that went away doesn't get its answer; there is nobody to tell.
		_ = s.event(slices.Concat([][]byte{head}, parts, [][]byte{{'}'}})...)
		return
	}
	s.write(status, length, head, parts, '}')
}

// write writes a body: head, parts and a last byte. The caller holds mu.
func (s *stream) write(status, length int, head []byte, parts [][]byte, last byte) {
	h := s.w.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(length)}
	s.w.WriteHeader(status)
	for _, p := range parts {
		if len(p) > 2048 { // small parts are gathered, large ones are written as they are
			_, _ = s.w.Write(head)
			if _, err := s.w.Write(p); err != nil {
				return
			}
			head = head[:0]
			continue
		}
		head = append(head, p...)
	}
	_, _ = s.w.Write(append(head, last))
}

// part returns the stream of one request of a batch.
func (s *stream) part(id json.RawMessage) *stream { return &stream{id: id, of: s} }

// answered takes the answer to one request of a batch.
func (s *stream) answered(answer [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events {
		_ = s.event(answer...) // as in end
		return
	}
	s.answers = append(s.answers, answer)
}

// endBatch ends the answer to a batch: with an array of what was answered, or with 202 if nothing had to be.
func (s *stream) endBatch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	switch {
	case s.events:
	case s.answers == nil:
		s.w.WriteHeader(http.StatusAccepted)
	default:
		var parts [][]byte
		length := len(s.answers) + 1 // the brackets and the commas
		for i, answer := range s.answers {
			if i > 0 {
				parts = append(parts, []byte{','})
			}
			for _, p := range answer {
				parts, length = append(parts, p), length+len(p)
			}
		}
		s.write(http.StatusOK, length, []byte{'['}, parts, ']')
	}
}

var jsonType = []string{"application/json"}
