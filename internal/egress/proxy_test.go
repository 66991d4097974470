package egress

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestProxyReachesListedHosts(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s", r.Host, r.URL.Path, body)
	}))
	defer site.Close()
	secret := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "not listed") }))
	defer secret.Close()
	address := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }
	hosts, err := New(Policy{Domains: []string{address(site)}, Protocols: []string{"http", "https"}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := NewProxy(hosts, l, slog.New(slog.DiscardHandler))
	defer p.Close()
	via := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: l.Addr().String()}), DisableKeepAlives: true}}
	get := func(address string) (int, string) {
		r, err := via.Post(address, "text/plain", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, _ := io.ReadAll(r.Body)
		return r.StatusCode, string(body)
	}
	if status, body := get(site.URL + "/x"); status != http.StatusOK || body != address(site)+" /x body" {
		t.Errorf("%d %s", status, body)
	}
	for _, address := range []string{secret.URL, "http://169.254.169.254/", "http://localhost:" + site.URL[strings.LastIndexByte(site.URL, ':')+1:]} {
		if status, body := get(address); status != http.StatusForbidden || strings.Contains(body, "not listed") {
			t.Errorf("%s: %d %s", address, status, body)
		}
	}
	connect := func(target string) (string, error) {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return "", err
		}
		defer c.Close()
		fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\nGET /tunnel HTTP/1.1\r\nHost: inside\r\nConnection: close\r\n\r\n", target, target)
		r := bufio.NewReader(c)
		first, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
		if err != nil {
			return "", err
		}
		if first.StatusCode != http.StatusOK {
			return first.Status, nil
		}
		second, err := http.ReadResponse(r, nil)
		if err != nil {
			return "", err
		}
		body, err := io.ReadAll(second.Body)
		return string(body), err
	}
	if got, err := connect(address(site)); err != nil || got != "inside /tunnel " {
		t.Errorf("%q, %v", got, err)
	}
	for _, target := range []string{address(secret), "169.254.169.254:80", address(site) + "/path", "x@" + address(site)} {
		if got, err := connect(target); err == nil && !strings.HasPrefix(got, "4") {
			t.Errorf("%s: %q", target, got)
		}
	}
}

// A server can open as many connections as it likes: the gateway holds a bounded number, and goes on when they end.
func TestProxyHoldsABoundedNumberOfConnections(t *testing.T) {
	hosts, err := New(Policy{Domains: []string{"example.com"}, Protocols: []string{"https"}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := NewProxy(hosts, l, slog.New(slog.DiscardHandler))
	defer p.Close()
	answered := func(c net.Conn) bool {
		io.WriteString(c, "CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: x\r\n\r\n")
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		return err == nil && r.StatusCode == http.StatusForbidden
	}
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	var first net.Conn
	for i := range proxyConns { // each is answered, and stays open
		c := dial()
		if i == 0 {
			first = c
		}
		if !answered(c) {
			t.Fatalf("connection %d is not answered", i)
		}
	}
	if answered(dial()) {
		t.Error("one more is answered")
	}
	first.Close()
	for !answered(dial()) { // until the proxy has seen it
		if t.Context().Err() != nil {
			t.Fatal("none is answered any more")
		}
	}
}
