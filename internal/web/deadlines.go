package web

import (
	"log/slog"
	"net/http"
	"time"
)

const (
	headerTime = 10 * time.Second // for a client to send the headers of a request
	bodyTime   = 30 * time.Second // for it to send the body
	pieceTime  = 5 * time.Second  // for it to send each piece of a body that has several
	writeTime  = 30 * time.Second // for it to take up to a megabyte of the answer
	idleTime   = 2 * time.Minute  // for it to send the next request on a connection
	maxHeader  = 64 << 10
	piece      = 64 << 10 // bytes of a body that are read at a time
)

// NewServer returns a server with the deadlines that a whole server can have. It has none for bodies and answers, since a call takes as
// long as it takes and streams have no end: Handler sets those.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// writer bounds how long a client may take to read its answer, and knows whether the answer has begun. Deadlines are best effort: the recorders
// of tests have none.
type writer struct {
	http.ResponseWriter
	connection *http.ResponseController
	begun      bool
}

// begin sets the deadline for the request's body. It also holds for a body that only the server reads, to get to the next request. begin removes
// the deadline that end has set for the request before this one.
func begin(w http.ResponseWriter, r *http.Request) *writer {
	out := &writer{ResponseWriter: w, connection: http.NewResponseController(w)}
	if r.ContentLength != 0 {
		_ = out.connection.SetReadDeadline(time.Now().Add(bodyTime))
	}
	_ = out.connection.SetWriteDeadline(time.Time{})
	return out
}

// end bounds the time for the last bytes of the answer, which are still in the server's buffer.
func (w *writer) end() { w.bound() }

func (w *writer) bound() { _ = w.connection.SetWriteDeadline(time.Now().Add(writeTime)) }

func (w *writer) WriteHeader(status int) {
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

// Write gives each megabyte its own time, so that a slow connection is not cut.
func (w *writer) Write(b []byte) (int, error) {
	w.begun = true
	done := 0
	for {
		n := min(len(b)-done, 1<<20)
		w.bound()
		m, err := w.ResponseWriter.Write(b[done : done+n])
		if done += m; err != nil || done == len(b) {
			return done, err
		}
	}
}

// FlushError is what http.ResponseController calls to flush.
func (w *writer) FlushError() error {
	w.begun = true
	w.bound()
	return w.connection.Flush()
}

// Unwrap gives http.ResponseController the rest.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
