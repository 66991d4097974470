package web

import (
	"container/list"
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"sallyport.example/internal/fault"
)

// Connections bounds the connections of one listener, in all and of each credential, so that who holds many keeps nobody else out. Where there are too many,
// the one that has waited longest without a request gives way: of those whose credential nobody knows yet, else of the credential with the most, if it
// has more than its share. Where none can give way, the new connection is answered with 503 and closed.
type Connections struct {
	net.Listener
	most, each int
	log        *slog.Logger

	mu      sync.Mutex // guards all below, and the fields of connections and holders
	open    int
	holders map[string]*holder // by credential; "": not known yet
	told    time.Time          // when the log was told last that there are too many
}

// holder is a credential with its connections.
type holder struct {
	name string
	open int
	idle list.List // of *accepted: those without a request, the longest waiting first
}

// accepted is one connection.
type accepted struct {
	net.Conn
	of     *Connections
	holder *holder
	at     *list.Element // in holder.idle; nil: a request is being answered
	gone   bool
}

const (
	tellEvery = 10 * time.Second
	// leastEach is how many connections a credential may have where the listener has few.
	leastEach = 12
)

// Bound bounds the connections of a listener.
func Bound(ln net.Listener, most int, log *slog.Logger) *Connections {
	return &Connections{Listener: ln, most: most, each: max(most/4, min(most, leastEach)), log: log, holders: map[string]*holder{}}
}

// tooMany is the whole answer to a connection that is not taken.
const tooMany = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Type: application/problem+json\r\nContent-Length: 161\r\n\r\n" +
	`{"type":"about:blank","title":"Service Unavailable","status":503,"code":"limit.rate","detail":"Too many connections.","remedy":"Close some.","request_id":""}` + "   \n"

// Accept waits for the next connection that is taken.
func (l *Connections) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &accepted{Conn: conn, of: l}
		leaves, taken := l.add(c)
		if leaves != nil {
			_ = leaves.Conn.Close() // its server reads the end, and closes it again
		}
		if taken {
			return c, nil
		}
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // a new connection has room for it
		_, _ = conn.Write([]byte(tooMany))
		_ = conn.Close()
	}
}

// add takes a connection in, where another may have to leave.
func (l *Connections) add(c *accepted) (leaves *accepted, taken bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.most {
		if now := time.Now(); now.Sub(l.told) >= tellEvery {
			l.told = now
			l.log.Warn("a listener has as many connections as it takes", "listener", l.Addr(), "connections", l.open, "credentials", len(l.holders))
		}
		if leaves = l.givesWay(); leaves == nil {
			return nil, false
		}
		leaves.leave()
	}
	l.open++
	c.join("")
	c.rest()
	return leaves, true
}

// givesWay is the connection that is closed for a new one; nil if none may be.
func (l *Connections) givesWay() *accepted {
	if unknown := l.holders[""]; unknown != nil && unknown.idle.Len() > 0 {
		return unknown.idle.Front().Value.(*accepted)
	}
	var most *holder
	for _, h := range l.holders {
		if h.idle.Len() > 0 && (most == nil || h.open > most.open) {
			most = h
		}
	}
	if most == nil || most.open <= l.most/(len(l.holders)+1) { // the new connection's may be one more
		return nil
	}
	return most.idle.Front().Value.(*accepted)
}

// join makes it a connection of the credential.
func (c *accepted) join(name string) {
	h := c.of.holders[name]
	if h == nil {
		h = &holder{name: name}
		c.of.holders[name] = h
	}
	h.open++
	c.holder = h
}

// part ends what join and rest began.
func (c *accepted) part() {
	c.work()
	if c.holder.open--; c.holder.open == 0 {
		delete(c.of.holders, c.holder.name)
	}
}

func (c *accepted) rest() { c.at = c.holder.idle.PushBack(c) }

func (c *accepted) work() {
	if c.at != nil {
		c.holder.idle.Remove(c.at)
		c.at = nil
	}
}

func (c *accepted) leave() {
	if !c.gone {
		c.gone = true
		c.part()
		c.of.open--
	}
}

// Close closes it. Closing twice is harmless.
func (c *accepted) Close() error {
	c.of.mu.Lock()
	c.leave()
	c.of.mu.Unlock()
	return c.Conn.Close()
}

type connectionKey struct{}

// ConnContext lets requests know their connection. It is for the server of the listener.
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := conn.(*accepted); ok {
		return context.WithValue(ctx, connectionKey{}, c)
	}
	return ctx
}

// busy says that the request's connection answers one, until done.
func busy(ctx context.Context) (done func()) {
	c, ok := ctx.Value(connectionKey{}).(*accepted)
	if !ok {
		return func() {}
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if !c.gone {
		c.work()
	}
	return func() {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		if !c.gone && c.at == nil {
			c.rest()
		}
	}
}

// Claim says whose credential a request has. An idle connection of the same credential gives way where it has as many as it may have; where none is idle, the
// request is refused.
func Claim(r *http.Request, credential string) error {
	c, ok := r.Context().Value(connectionKey{}).(*accepted)
	if !ok {
		return nil
	}
	leaves, err := c.claim(credential)
	if leaves != nil {
		_ = leaves.Conn.Close() // as in Accept
	}
	return err
}

func (c *accepted) claim(credential string) (leaves *accepted, err error) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.gone || c.holder.name == credential {
		return nil, nil
	}
	if h := c.of.holders[credential]; h != nil && h.open >= c.of.each {
		if h.idle.Len() == 0 {
			return nil, fault.New(fault.LimitRate, "The credential has %d connections with requests under way, which is as many as it may have.", h.open).
				Try("Wait for answers, and use connections again.")
		}
		leaves = h.idle.Front().Value.(*accepted)
		leaves.leave()
	}
	idle := c.at != nil
	c.part()
	if c.join(credential); idle {
		c.rest()
	}
	return leaves, nil
}

// Room is how many connections the listeners of agents and of people take, so that the rest of the process's descriptors is left to the store, to servers and to
// what the gateway fetches.
func Room() (agents, people int) {
	limit, err := descriptors()
	if err != nil {
		limit = 1024 // what systems have by default
	}
	return room(limit)
}

func room(limit uint64) (agents, people int) {
	const enough = 1 << 20
	n := int(min(limit, enough))
	return min(max(n*3/8, 4), 4096), min(max(n/16, 4), 512)
}
