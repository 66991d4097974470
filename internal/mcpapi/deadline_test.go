package mcpapi

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// timed is a connection's writer that notes whether a write was bounded in time.
type timed struct {
	header    http.Header
	deadline  time.Time
	unbounded int
}

func (w *timed) Header() http.Header { return w.header }

func (w *timed) WriteHeader(int) {}

func (w *timed) Write(b []byte) (int, error) {
	if w.deadline.IsZero() {
		w.unbounded += len(b)
	}
	return len(b), nil
}

func (w *timed) SetWriteDeadline(t time.Time) error { w.deadline = t; return nil }

// A plain answer to a client that does not read is bounded in time like an event: the servers have no WriteTimeout, so otherwise the
// result (up to 16 MiB, times its copies) and its goroutine stay for as long as the client likes.
func TestPlainAnswerIsBoundedInTime(t *testing.T) {
	w := &timed{header: http.Header{}}
	newStream(w, []byte("1")).result([]byte(`"` + strings.Repeat("x", 8<<20) + `"`))
	if w.unbounded > 0 {
		t.Errorf("%d bytes were written without a deadline", w.unbounded)
	}
}
