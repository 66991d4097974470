package query

import (
	"context"
	"errors"
	"sync"
)

var errPoolClosed = errors.New("the databases are closed")

// pool keeps a few connections to one database. Whoever holds a connection owns it alone.
type pool[C any] struct {
	open  func(context.Context) (C, error)
	close func(C)
	slots chan struct{} // one for each connection in use

	mu   sync.Mutex // guards what follows
	idle []C
	shut bool
}

func newPool[C any](open func(context.Context) (C, error), close func(C)) *pool[C] {
	return &pool[C]{open: open, close: close, slots: make(chan struct{}, connections)}
}

// get returns a connection that was used before, or a new one, and waits for a free place as long as ctx allows. It is given back by put.
func (p *pool[C]) get(ctx context.Context) (c C, used bool, err error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return c, false, expired(ctx)
	}
	if c, used, err = p.take(); !used && err == nil {
		c, err = p.open(ctx)
	}
	if err != nil {
		<-p.slots
	}
	return c, used, err
}

func (p *pool[C]) take() (c C, ok bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shut {
		return c, false, errPoolClosed
	}
	if n := len(p.idle); n > 0 {
		c = p.idle[n-1]
		p.idle = p.idle[:n-1]
		return c, true, nil
	}
	return c, false, nil
}

// put gives a connection back, to be kept if it is as good as new.
func (p *pool[C]) put(c C, good bool) {
	p.mu.Lock()
	if good = good && !p.shut; good {
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !good {
		p.close(c)
	}
	<-p.slots
}

func (p *pool[C]) shutdown() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.shut = nil, true
	p.mu.Unlock()
	for _, c := range idle {
		p.close(c)
	}
}
