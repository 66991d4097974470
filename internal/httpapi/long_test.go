package httpapi_test

import (
	"encoding/json"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"sallyport.example/client"
	"sallyport.example/internal/identity"
)

// watched notes the newest read deadline of its connections.
type watched struct {
	net.Listener
	mu       sync.Mutex
	deadline time.Time
}

type watchedConn struct {
	net.Conn
	l *watched
}

func (l *watched) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &watchedConn{c, l}, err
}

func (c *watchedConn) SetReadDeadline(t time.Time) error {
	c.l.mu.Lock()
	c.l.deadline = t
	c.l.mu.Unlock()
	return c.Conn.SetReadDeadline(t)
}

// TestLongCalls: a deadline for reading the body must not live on while the call runs: its end would be taken for the client's.
func TestLongCalls(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewUnstartedServer(w.api.Agent())
	l := &watched{Listener: server.Listener}
	server.Listener = l
	server.Start()
	defer server.Close()
	started, release := make(chan struct{}), make(chan struct{})
	w.up.started, w.up.wait["think"] = started, release
	called := make(chan error, 1)
	c := w.client(server, w.token(identity.Agent, "worker"))
	go func() {
		_, err := c.Call(t.Context(), client.Own, "think", json.RawMessage(`{"about":"tea"}`))
		called <- err
	}()
	<-started
	l.mu.Lock()
	if !l.deadline.IsZero() {
		t.Errorf("the connection will be cut in %s", time.Until(l.deadline))
	}
	l.mu.Unlock()
	close(release)
	if err := <-called; err != nil {
		t.Error(err)
	}
}

func BenchmarkCheck(b *testing.B) {
	w := newWorld(b)
	c := w.client(w.agent, w.token(identity.Agent, "worker"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Check(b.Context(), client.Own, "think", json.RawMessage(`{"about":"tea"}`)); err != nil {
			b.Fatal(err)
		}
	}
}
