package egress

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"

	"sallyport.example/internal/display"
)

const (
	proxyDial    = 30 * time.Second
	proxyTunnels = 256
	proxyConns   = 256 // beside these: a server may open any number, and each is a descriptor of the gateway's
)

// Proxy takes programs that confine themselves to it to the hosts that a Client permits, on addresses that it has vetted. A program that honours
// no proxy has to be kept from the network by other means.
type Proxy struct {
	hosts   *Client
	log     *slog.Logger
	http    *http.Server
	forward *httputil.ReverseProxy
	room    chan struct{}

	ctx     context.Context
	cancel  context.CancelFunc
	tunnels sync.WaitGroup
}

// NewProxy serves connections to l until Close.
func NewProxy(hosts *Client, l net.Listener, log *slog.Logger) *Proxy {
	p := &Proxy{hosts: hosts, log: log, room: make(chan struct{}, proxyTunnels)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.forward = &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.Host = r.Out.URL.Host },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return hosts.Tunnel(ctx, "http", addr) }},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			p.refuse(w, r.URL.Host, err)
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	p.http = &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: p.forward.ErrorLog}
	var open atomic.Int64
	p.http.ConnState = func(c net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			if open.Add(1) > proxyConns {
				c.Close()
			}
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		}
	}
	p.tunnels.Go(func() { p.http.Serve(l) })
	return p
}

// Close ends all connections, and waits until nothing of the proxy is left.
func (p *Proxy) Close() {
	p.cancel()
	p.http.Close()
	p.tunnels.Wait()
}

func (p *Proxy) refuse(w http.ResponseWriter, host string, err error) {
	p.log.Warn("a server was kept from a host", "host", display.Line(host, 256), "error", display.Line(err.Error(), 300))
	http.Error(w, "This server may not reach "+display.Line(host, 256)+": an operator can add it to its egress.", http.StatusForbidden)
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		if r.URL.Scheme != "http" || r.URL.Host == "" || r.URL.User != nil {
			http.Error(w, "This is a proxy: it takes CONNECT, and requests with the whole address of an http server.", http.StatusBadRequest)
			return
		}
		http.NewResponseController(w).EnableFullDuplex() // else a fast answer may be cut off (golang/go#40747)
		p.forward.ServeHTTP(w, r)
		return
	}
	select {
	case p.room <- struct{}{}:
		defer func() { <-p.room }()
	default:
		http.Error(w, "Too many connections are open.", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, proxyDial)
	there, err := p.hosts.Tunnel(ctx, "https", r.Host)
	cancel()
	if err != nil {
		p.refuse(w, r.Host, err)
		return
	}
	defer there.Close()
	here, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer here.Close()
	stop := context.AfterFunc(p.ctx, func() { there.Close(); here.Close() })
	defer stop()
	if _, err := io.WriteString(here, "HTTP/1.1 200 Connection Established\r\n\r\n"); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		if n := buffered.Reader.Buffered(); n > 0 {
			if _, err := io.CopyN(there, buffered, int64(n)); err != nil {
				return
			}
		}
		pipe(there, here)
	})
	both.Go(func() { pipe(here, there) })
	both.Wait()
}

// pipe copies to the end, and then closes to for writing.
func pipe(to, from net.Conn) {
	io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
		return
	}
	to.Close()
}
