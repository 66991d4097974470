package upstream

import (
	"context"
	"encoding/json"
	"time"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// dedicated is one client's own conversation. conv is touched only by who holds the turn, or after gone is set.
type dedicated struct {
	turn  chan struct{} // holds one token: calls of one client run one after the other
	conv  *conversation
	idle  *time.Timer
	gone  bool // guarded by server.mu
	inUse int  // guarded by server.mu: calls that hold or wait for the turn
}

// conversationFor returns the conversation that a call takes, and what to do after it.
func (s *server) conversationFor(ctx context.Context, x *call.Exchange) (*conversation, func(), error) {
	d, c, err := s.choose(x)
	if err != nil || d == nil {
		return c, func() {}, err
	}
	release := func() { s.finished(x.ClientKey, d) }
	select {
	case <-d.turn:
	case <-ctx.Done():
		release()
		return nil, nil, &fault.NotDispatched{Err: s.gaveUp(ctx)}
	}
	pass := func() {
		d.turn <- struct{}{}
		release()
	}
	if c, err = s.connectedTo(ctx, d, s.restrict(x.ClientCapabilities)); err != nil {
		pass()
		return nil, nil, err
	}
	return c, pass, nil
}

// choose returns the shared conversation, or the client's own, which is in use from now on.
func (s *server) choose(x *call.Exchange) (*dedicated, *conversation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared == nil || s.stopped {
		return nil, nil, s.down()
	}
	// Servers of 2026-07-28 ask in their results (MRTR), which needs no conversation of one's own.
	if s.shared.modern() || x.Ask == nil || x.ClientKey == "" || len(s.restrict(x.ClientCapabilities)) == 0 {
		return nil, s.shared, nil
	}
	d := s.dedicated[x.ClientKey]
	if d == nil {
		if len(s.dedicated) >= maxDedicated { // then it can't ask back, but it is not lost to everybody else
			return nil, s.shared, nil
		}
		d = &dedicated{turn: make(chan struct{}, 1)}
		d.turn <- struct{}{}
		s.dedicated[x.ClientKey] = d
	}
	d.inUse++
	if d.idle != nil {
		d.idle.Stop()
	}
	return d, nil, nil
}

// finished notes the end of one call of a client. Its conversation ends when it has been idle for long.
func (s *server) finished(key string, d *dedicated) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.inUse--; d.inUse == 0 && !d.gone {
		d.idle = time.AfterFunc(dedicatedIdle, func() { s.drop(key, d) })
	}
}

// connectedTo returns d's conversation, connecting it first where needed. The caller holds d's turn.
func (s *server) connectedTo(ctx context.Context, d *dedicated, caps map[string]json.RawMessage) (*conversation, error) {
	if d.conv != nil {
		if d.conv.ctx.Err() == nil {
			return d.conv, nil
		}
		d.conv.close()
	}
	c, err := s.connect(ctx, caps)
	if err != nil {
		if ctx.Err() != nil {
			return nil, &fault.NotDispatched{Err: s.gaveUp(ctx)}
		}
		return nil, &fault.NotDispatched{Err: s.failed(err, "could not be connected to for this client"), Own: true}
	}
	s.mu.Lock()
	gone := d.gone || s.stopped
	if !gone {
		d.conv = c
	}
	s.mu.Unlock()
	if gone {
		c.close()
		return nil, &fault.NotDispatched{Err: s.failed(nil, "was released by this client"), Own: true}
	}
	return c, nil
}

// drop ends one client's conversation after it was idle, unless it is in use again.
func (s *server) drop(key string, d *dedicated) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.inUse == 0 && !d.gone && s.dedicated[key] == d {
		s.end(key, d)
	}
}

// end takes d out and closes its conversation in the background. s.mu is held.
func (s *server) end(key string, d *dedicated) {
	delete(s.dedicated, key)
	d.gone = true
	if d.idle != nil {
		d.idle.Stop()
	}
	if c := d.conv; c != nil {
		s.closers.Go(c.close)
	}
}

// stop ends what the supervisor does not: the clients' conversations.
func (s *server) stop() {
	s.mu.Lock()
	s.stopped = true
	s.now.State = Stopped
	for key, d := range s.dedicated {
		s.end(key, d)
	}
	s.mu.Unlock()
	s.closers.Wait()
	if s.http != nil {
		s.http.CloseIdleConnections()
	}
}
