package egress

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport.example/internal/fault"
)

// localServer starts a server and returns a client that may reach it, and nothing else.
func localServer(t testing.TB, p Policy, h http.HandlerFunc) (*Client, string) {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	p.Domains = append(p.Domains, srv.Listener.Addr().String())
	p.Protocols = []string{"http"}
	c, err := New(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c, srv.URL
}

func stageOf(err error) string {
	var b *Blocked
	if errors.As(err, &b) {
		return b.Stage
	}
	return ""
}

func TestDo(t *testing.T) {
	c, base := localServer(t, Policy{UserAgent: "Robot/2"}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusTeapot)
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s %s %q", r.Method, r.RequestURI, r.Header["User-Agent"], r.Header["Accept"], r.Header["Cookie"], body)
	})
	for _, r := range []struct {
		Request
		want string
	}{
		{Request{URL: base + "/a?b#c"}, `GET /a?b [Robot/2] [] [] ""`},
		{Request{URL: base, Header: http.Header{"accept": {"text/html"}}}, `GET / [Robot/2] [text/html] [] ""`},
		{Request{URL: base, Method: "HEAD"}, ``},
		{Request{URL: base, Method: "POST", Body: []byte("hi")}, `POST / [Robot/2] [] [] "hi"`},
	} {
		resp, err := c.Do(t.Context(), r.Request)
		if err != nil {
			t.Fatal(err)
		}
		if string(resp.Body) != r.want || resp.Status != http.StatusTeapot || resp.Header.Get("Content-Type") != "text/plain" || !slices.Equal(resp.Hops, []string{resp.URL}) {
			t.Errorf("%+v", resp)
		}
	}
	for _, r := range []Request{
		{URL: base, Method: "PUT"}, {URL: base, Method: "GET\r\nX: y"}, {URL: base, Body: []byte("x")}, {URL: base, Method: "HEAD", Body: []byte("x")},
		{URL: base, Header: http.Header{"authorization": {"x"}}}, {URL: base, Header: http.Header{"Cookie": {"x"}}}, {URL: base, Header: http.Header{"Host": {"x"}}},
		{URL: base, Header: http.Header{"A b": {"x"}}}, {URL: base, Header: http.Header{"Accept": {"x\r\nY: z"}}}, {URL: base, Header: http.Header{"Transfer-Encoding": {"chunked"}}},
	} {
		if _, err := c.Do(t.Context(), r); !fault.Is(err, fault.RequestMalformed) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if _, err := c.Do(t.Context(), Request{URL: "http://127.0.0.1:1/"}); stageOf(err) != "host" {
		t.Error(err)
	}
}

func TestNetworkFailures(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	c, err := New(Policy{Domains: []string{addr}, Protocols: []string{"http", "https"}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do(t.Context(), Request{URL: "http://" + addr}); !fault.Is(err, fault.UpstreamFailed) || stageOf(err) != "dial" {
		t.Error(err)
	}
	c, base := localServer(t, Policy{}, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if _, err := c.Do(t.Context(), Request{URL: base}); !fault.Is(err, fault.UpstreamFailed) || stageOf(err) != "response" {
		t.Error(err)
	}
	c.rules.protocols = []string{"https"} // TLS to who does not speak it
	if _, err := c.Do(t.Context(), Request{URL: strings.Replace(base, "http", "https", 1)}); !fault.Is(err, fault.UpstreamFailed) || !strings.Contains(fault.Of(err).Message, "TLS") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Do(ctx, Request{URL: strings.Replace(base, "http", "https", 1)}); !fault.Is(err, fault.UpstreamFailed) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	addr := srv.Listener.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	c, err := New(Policy{Domains: []string{addr, "localhost:" + port}}, Options{RootCAs: pool})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(t.Context(), Request{URL: "https://" + addr})
	if err != nil || string(resp.Body) != "HTTP/2.0" {
		t.Fatalf("%v, %v", resp, err)
	}
	if _, err := c.Do(t.Context(), Request{URL: "https://localhost:" + port}); !fault.Is(err, fault.UpstreamFailed) || stageOf(err) != "response" || !strings.Contains(fault.Of(err).Message, "certificate") {
		t.Errorf("a certificate for another name: %v", err)
	}
	c, _ = New(Policy{Domains: []string{addr}}, Options{})
	var unverified *tls.CertificateVerificationError
	if _, err := c.Do(t.Context(), Request{URL: "https://" + addr}); !errors.As(err, &unverified) {
		t.Errorf("a certificate of nobody's: %v", err)
	}
}

// "localhost" is loopback without asking anybody.
func TestLocalhost(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Host) }))
	defer srv.Close()
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	w := newWorld(t, http.NotFoundHandler())
	w.answer("localhost", "93.184.215.14")
	c, err := New(Policy{Domains: []string{"localhost:" + port}, Protocols: []string{"http"}}, Options{Resolver: w})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(t.Context(), Request{URL: "http://localhost:" + port})
	if err != nil || string(resp.Body) != "localhost:"+port || len(w.lookups) > 0 {
		t.Errorf("%v, %v, %v", resp, err, w.lookups)
	}
	if _, err := c.Do(t.Context(), Request{URL: "http://127.0.0.1:" + port}); stageOf(err) != "host" {
		t.Error(err)
	}
	c, _ = New(Policy{Domains: []string{"localhost:" + port}, Protocols: []string{"http"}}, Options{Own: []netip.AddrPort{netip.MustParseAddrPort("[::]:" + port)}})
	if _, err := c.Do(t.Context(), Request{URL: "http://localhost:" + port}); stageOf(err) != "dial" {
		t.Errorf("the gateway reached itself: %v", err)
	}
}

func TestRebinding(t *testing.T) {
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/again" {
			w.Header().Set("Location", "/")
			w.WriteHeader(http.StatusFound)
		}
	}))
	script := func(steps string) {
		w.dns["a.rebind.pub"] = nil
		for s := range strings.FieldsSeq(steps) {
			w.dns["a.rebind.pub"] = append(w.dns["a.rebind.pub"], []byte(`["a","`+s+`"]`))
		}
		w.used["a.rebind.pub"], w.lookups, w.dials = 0, nil, nil
	}
	c := w.client(Policy{}, Options{})
	public := netip.MustParseAddrPort("93.184.215.14:443")

	script("93.184.215.14 127.0.0.1")
	if _, err := c.Do(t.Context(), Request{URL: "https://a.rebind.pub/"}); err != nil || len(w.lookups) != 1 || !slices.Equal(w.dials, []netip.AddrPort{public}) {
		t.Errorf("%v, lookups %v, dials %v", err, w.lookups, w.dials)
	}
	if _, err := c.Do(t.Context(), Request{URL: "https://a.rebind.pub/"}); stageOf(err) != "resolve" || len(w.lookups) != 2 || len(w.dials) != 1 {
		t.Errorf("%v, lookups %v, dials %v", err, w.lookups, w.dials)
	}
	script("93.184.215.14 127.0.0.1")
	if _, err := c.Do(t.Context(), Request{URL: "https://a.rebind.pub/again"}); stageOf(err) != "redirect" || len(w.lookups) != 2 || len(w.dials) != 1 {
		t.Errorf("on a redirect: %v, lookups %v, dials %v", err, w.lookups, w.dials)
	}
	w.answer("mapped.pub", "::ffff:93.184.215.14") // as Go's own resolver hands over an A record
	w.dials = nil
	if _, err := c.Do(t.Context(), Request{URL: "https://mapped.pub/"}); err != nil || !slices.Equal(w.dials, []netip.AddrPort{public}) {
		t.Errorf("%v, dials %v", err, w.dials)
	}
	for _, set := range [][]string{{}, {"93.184.215.14", "::ffff:10.0.0.1"}, {"2606:4700:4700::1111%eth0"}, slices.Repeat([]string{"93.184.215.14"}, maxAnswer+1)} {
		w.answer("set.pub", set...)
		w.lookups, w.dials = nil, nil
		code := fault.EgressBlocked
		if len(set) == 0 {
			code = fault.UpstreamFailed
		}
		if _, err := c.Do(t.Context(), Request{URL: "https://set.pub/"}); stageOf(err) != "resolve" || !fault.Is(err, code) || len(w.lookups) != 1 || len(w.dials) != 0 {
			t.Errorf("%v: %v, dials %v", set, err, w.dials)
		}
	}
}

// A listed name may lead to addresses that an entry opens, and to no others.
func TestOpenedAddress(t *testing.T) {
	w := newWorld(t, http.NotFoundHandler())
	c := w.client(Policy{Domains: []string{"wiki.internal", "10.1.0.0/16", "169.0.0.0/8"}}, Options{})
	for addr, stage := range map[string]string{"10.1.2.3": "", "10.2.0.1": "resolve", "127.0.0.1": "resolve", "169.254.169.254": "resolve", "93.184.215.14": ""} {
		w.answer("wiki.internal", addr)
		r, err := c.Do(t.Context(), Request{URL: "https://wiki.internal/"})
		if stageOf(err) != stage || (err == nil) != (stage == "") {
			t.Errorf("%s: %v", addr, err)
		}
		if err == nil && r.Public != (addr == "93.184.215.14") {
			t.Errorf("%s: public %v", addr, r.Public)
		}
	}
}

// The socket's own check stands by itself: whatever the judgement before it let through.
func TestDialJudgesAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	here := netip.MustParseAddrPort(l.Addr().String())
	c, err := New(Policy{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	tgt, b := c.judge("https://any.pub/")
	if b != nil {
		t.Fatal(b)
	}
	if conn, err := c.dial(t.Context(), tgt, []netip.AddrPort{here}); stageOf(err) != "dial" || conn != nil {
		t.Errorf("%v", err)
	}
	c.connect = func(ctx context.Context, d *net.Dialer, to netip.AddrPort) (net.Conn, error) {
		for _, other := range []string{"93.184.215.15:443", "93.184.215.14:80", "[::ffff:93.184.215.14]:443"} {
			if err := d.Control("tcp4", other, nil); stageOf(err) != "dial" {
				t.Errorf("%s was never vetted: %v", other, err)
			}
		}
		return nil, errors.Join(d.Control("tcp4", to.String(), nil), d.Control("udp4", to.String(), nil))
	}
	if _, err := c.dial(t.Context(), tgt, []netip.AddrPort{netip.MustParseAddrPort("93.184.215.14:443")}); stageOf(err) != "dial" {
		t.Error(err)
	}
}

// An address that does not answer is not the end.
func TestNextAddress(t *testing.T) {
	w := newWorld(t, http.NotFoundHandler())
	w.answer("dual.pub", "2606:4700:4700::1111", "93.184.215.14")
	c := w.client(Policy{}, Options{})
	inner := c.connect
	c.connect = func(ctx context.Context, d *net.Dialer, to netip.AddrPort) (net.Conn, error) {
		if to.Addr().Is6() {
			return nil, &net.OpError{Op: "dial", Err: errors.New("no route")}
		}
		return inner(ctx, d, to)
	}
	if _, err := c.Do(t.Context(), Request{URL: "https://dual.pub/"}); err != nil || len(w.lookups) != 1 {
		t.Error(err)
	}
}

func TestRedirects(t *testing.T) {
	type seen struct {
		method, path, body, key, contentType, referer, cookie string
	}
	var requests []seen
	h := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests = append(requests, seen{r.Method, r.Host + r.URL.Path, string(body), r.Header.Get("X-Key"), r.Header.Get("Content-Type"), r.Header.Get("Referer"), r.Header.Get("Cookie")})
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
		var status int
		if n, _ := fmt.Sscanf(r.URL.Path, "/to/%d", &status); n == 1 {
			w.Header()["Location"] = r.URL.Query()["to"]
			w.WriteHeader(status)
			io.WriteString(w, strings.Repeat("not read ", 1000))
			return
		}
		io.WriteString(w, "arrived")
	}
	w := newWorld(t, http.HandlerFunc(h))
	for _, name := range []string{"a.pub", "b.pub"} {
		w.answer(name, "93.184.215.14")
	}
	c := w.client(Policy{}, Options{})
	for _, x := range []struct {
		name, method, path string
		last               seen // nothing: refused
	}{
		{"relative", "GET", "/to/302?to=../x", seen{"GET", "a.pub/x", "", "k", "", "", ""}},
		{"same host", "GET", "/to/301?to=https://a.pub/x", seen{"GET", "a.pub/x", "", "k", "", "", ""}},
		{"as it was written", "GET", "/to/302?to=https://a.pub/y/../x", seen{"GET", "a.pub/y/../x", "", "k", "", "", ""}},
		{"other host", "GET", "/to/302?to=https://b.pub/x", seen{"GET", "b.pub/x", "", "", "", "", ""}},
		{"scheme-relative", "HEAD", "/to/303?to=//b.pub/x", seen{"HEAD", "b.pub/x", "", "", "", "", ""}},
		{"302 of a POST", "POST", "/to/302?to=/x", seen{"GET", "a.pub/x", "", "k", "", "", ""}},
		{"303 of a POST elsewhere", "POST", "/to/303?to=https://b.pub/x", seen{"GET", "b.pub/x", "", "", "", "", ""}},
		{"307 of a POST", "POST", "/to/307?to=/x", seen{"POST", "a.pub/x", "body", "k", "text/x", "", ""}},
		{"308 of a POST elsewhere", "POST", "/to/308?to=https://b.pub/x", seen{}},
		{"308 of a POST to another port", "POST", "/to/308?to=https://a.pub:80/x", seen{}},
		{"downgrade", "GET", "/to/302?to=http://a.pub/x", seen{}},
		{"two Locations", "GET", "/to/302?to=/x&to=/y", seen{}},
		{"no Location", "GET", "/to/302", seen{}},
		{"backslash", "GET", `/to/302?to=%5C%5Cb.pub/x`, seen{}},
		{"leading space", "GET", `/to/302?to=a%20b`, seen{}},
		{"one slash", "GET", `/to/302?to=https:/b.pub/x`, seen{}},
		{"no slash", "GET", `/to/302?to=https:b.pub/x`, seen{}},
		{"private", "GET", `/to/302?to=https://10.0.0.1/`, seen{}},
	} {
		requests, w.dials = nil, nil
		r := Request{Method: x.method, URL: "https://a.pub" + x.path, Header: http.Header{"X-Key": {"k"}}}
		if x.method == "POST" {
			r.Body = []byte("body")
			r.Header.Set("Content-Type", "text/x")
		}
		resp, err := c.Do(t.Context(), r)
		if x.last == (seen{}) {
			if stageOf(err) != "redirect" || !fault.Is(err, fault.EgressBlocked) || len(w.dials) != 1 {
				t.Errorf("%s: %v, dials %v", x.name, err, w.dials)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		if requests[len(requests)-1] != x.last || len(resp.Hops) != 2 || resp.Hops[1] != resp.URL || resp.URL != "https://"+x.last.path {
			t.Errorf("%s: %+v, %v", x.name, requests, resp.Hops)
		}
		if r.Header.Get("X-Key") != "k" {
			t.Errorf("%s: the caller's header was changed", x.name)
		}
	}
}

func TestFiveRedirects(t *testing.T) {
	c, base := localServer(t, Policy{}, func(w http.ResponseWriter, r *http.Request) {
		n := len(r.URL.Path) - 1
		if n > 0 {
			w.Header().Set("Location", r.URL.Path[:n])
			w.WriteHeader(http.StatusFound)
		}
	})
	if resp, err := c.Do(t.Context(), Request{URL: base + "/54321"}); err != nil || len(resp.Hops) != 6 {
		t.Errorf("%v, %v", resp, err)
	}
	if _, err := c.Do(t.Context(), Request{URL: base + "/654321"}); stageOf(err) != "redirect" {
		t.Error(err)
	}
}

func zipped(t testing.TB, level int, f func(io.Writer)) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, level)
	if err != nil {
		t.Fatal(err)
	}
	f(z)
	z.Close()
	return b.Bytes()
}

func TestBodies(t *testing.T) {
	const most = 1 << 20
	text := strings.Repeat("some text, ", 1000)
	gz := zipped(t, 6, func(w io.Writer) { io.WriteString(w, text) })
	var zl, raw bytes.Buffer
	z := zlib.NewWriter(&zl)
	io.WriteString(z, text)
	z.Close()
	f, _ := flate.NewWriter(&raw, 6)
	io.WriteString(f, text)
	f.Close()
	for _, x := range []struct {
		name, encoding string
		body           []byte
		code           fault.Code // "" for text
	}{
		{"plain", "", []byte(text), ""},
		{"identity", "Identity", []byte(text), ""},
		{"gzip", "gzip", gz, ""},
		{"x-gzip", "X-GZip", gz, ""},
		{"deflate", "deflate", zl.Bytes(), ""},
		{"raw deflate", "deflate", raw.Bytes(), fault.ResultInvalid},
		{"the limit", "", bytes.Repeat([]byte("x"), most), ""},
		{"over the limit", "", bytes.Repeat([]byte("x"), most+1), fault.ResultTooLarge},
		{"the limit, zipped", "gzip", zipped(t, 6, func(w io.Writer) { io.WriteString(w, strings.Repeat("x", most)) }), ""},
		{"over the limit, zipped", "gzip", zipped(t, 6, func(w io.Writer) { io.WriteString(w, strings.Repeat("x", most+1)) }), fault.ResultTooLarge},
		{"nested", "gzip, gzip", zipped(t, 6, func(w io.Writer) { w.Write(gz) }), fault.ResultInvalid},
		{"brotli", "br", []byte("x"), fault.ResultInvalid},
		{"no gzip", "gzip", []byte(text), fault.ResultInvalid},
		{"broken gzip", "gzip", append(slices.Clone(gz[:len(gz)-8]), make([]byte, 8)...), fault.ResultInvalid},
		{"half a gzip", "gzip", gz[:len(gz)/2], fault.UpstreamFailed},
		{"garbage behind gzip", "gzip", append(slices.Clone(gz), "garbage, longer than a header"...), fault.ResultInvalid},
	} {
		c, base := localServer(t, Policy{MaxBytes: most}, func(w http.ResponseWriter, r *http.Request) {
			if x.encoding != "" {
				w.Header().Set("Content-Encoding", x.encoding)
			}
			w.Write(x.body)
		})
		resp, err := c.Do(t.Context(), Request{URL: base})
		if x.code != "" {
			if !fault.Is(err, x.code) || stageOf(err) != "response" || resp != nil {
				t.Errorf("%s: %v", x.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		if !strings.HasPrefix(x.name, "the limit") && string(resp.Body) != text || len(resp.Body) > most {
			t.Errorf("%s: %d bytes", x.name, len(resp.Body))
		}
		if x.name != "identity" && resp.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %v", x.name, resp.Header)
		}
	}
	c, base := localServer(t, Policy{}, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Encoding", "gzip") })
	for _, method := range []string{"GET", "HEAD"} {
		if resp, err := c.Do(t.Context(), Request{Method: method, URL: base}); err != nil || len(resp.Body) > 0 {
			t.Errorf("%s of nothing, zipped: %v, %v", method, resp, err)
		}
	}
}

// A bomb costs what the limit allows, also where the limit is far away.
func TestBomb(t *testing.T) {
	bomb := zipped(t, 9, func(w io.Writer) {
		zeros := make([]byte, 1<<20)
		for range 256 {
			w.Write(zeros)
		}
	})
	for _, x := range []struct {
		limit    int64
		encoding string
		body     []byte
	}{{1 << 20, "gzip", bomb}, {1 << 30, "gzip", bomb}, {1 << 20, "", make([]byte, 64<<20)}} {
		c, err := New(Policy{MaxBytes: x.limit}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		raw := &http.Response{StatusCode: 200, Header: http.Header{"Content-Encoding": {x.encoding}}, ContentLength: -1, Body: io.NopCloser(bytes.NewReader(x.body))}
		err = c.readBody(&Response{Header: raw.Header}, raw, "GET")
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; err != errTooLarge || used > 16<<20 {
			t.Errorf("limit %d of %q: %v, %d bytes were allocated", x.limit, x.encoding, err, used)
		}
	}
}

// What a server sends besides the body is bounded, too.
func TestFloods(t *testing.T) {
	for name, x := range map[string]struct {
		head string
		code fault.Code
	}{
		"many headers":     {"HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 100_000), fault.ResultInvalid},
		"long header":      {"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("b", 1<<20), fault.ResultInvalid},
		"long status":      {"HTTP/1.1 200 " + strings.Repeat("b", 1<<20), fault.ResultInvalid},
		"not HTTP":         {"+PONG\r\n\r\n", fault.ResultInvalid},
		"another protocol": {"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", fault.ResultInvalid},
		"declared length":  {"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n", fault.ResultTooLarge},
		"two lengths":      {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", fault.ResultInvalid},
		"cut chunk":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nabc", fault.UpstreamFailed},
		"small chunks":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\na\r\n", 600_000), fault.ResultTooLarge},
		"trailers":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("A: b\r\n", 100_000), fault.ResultInvalid},
	} {
		c, base := localServer(t, Policy{MaxBytes: 1 << 20}, func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			io.WriteString(conn, x.head)
			conn.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, conn) // so that nothing that was sent is lost to a reset
		})
		if _, err := c.Do(t.Context(), Request{URL: base}); !fault.Is(err, x.code) || stageOf(err) != "response" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Everything together has one time limit.
func TestTime(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"no answer": func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"drip": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				io.WriteString(w, ".")
				http.NewResponseController(w).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(time.Millisecond):
				}
			}
		},
		"slow redirects": func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-time.After(80 * time.Millisecond):
			}
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		},
	} {
		c, base := localServer(t, Policy{Timeout: 100 * time.Millisecond}, h)
		start := time.Now()
		resp, err := c.Do(t.Context(), Request{URL: base})
		if !fault.Is(err, fault.TimeExceeded) || resp != nil || stageOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("%s: %v", name, d)
		}
	}
	c, err := New(Policy{Timeout: 50 * time.Millisecond}, Options{Resolver: stuck{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do(t.Context(), Request{URL: "https://a.pub/"}); !fault.Is(err, fault.TimeExceeded) || stageOf(err) != "resolve" {
		t.Error(err)
	}
}

type stuck struct{}

func (stuck) LookupNetIP(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// No connection serves twice, and none stays.
func TestNoConnectionIsKept(t *testing.T) {
	var opened, closed atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }))
	done := make(chan struct{}, 10)
	srv.EnableHTTP2 = true
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			opened.Add(1)
		case http.StateClosed:
			closed.Add(1)
			done <- struct{}{}
		}
	}
	srv.StartTLS()
	defer srv.Close()
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	c, err := New(Policy{Domains: []string{srv.Listener.Addr().String()}}, Options{RootCAs: pool})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := c.Do(t.Context(), Request{URL: srv.URL}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatal("the connection stays open")
		}
	}
	if opened.Load() != 3 || closed.Load() != 3 {
		t.Errorf("%d opened, %d closed", opened.Load(), closed.Load())
	}
}

// A page is as public as the least public server on the way to it.
func TestPublicOnTheWholeWay(t *testing.T) {
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "wiki.internal" {
			http.Redirect(w, r, "https://a.pub/", http.StatusFound)
		}
	}))
	w.answer("wiki.internal", "10.1.2.3")
	w.answer("a.pub", "93.184.215.14")
	c := w.client(Policy{Domains: []string{"wiki.internal", "a.pub", "10.1.0.0/16"}}, Options{})
	for _, host := range []string{"a.pub", "wiki.internal"} {
		r, err := c.Do(t.Context(), Request{URL: "https://" + host + "/"})
		if err != nil || r.URL != "https://a.pub/" || r.Public != (host == "a.pub") {
			t.Errorf("%s: %+v, %v", host, r, err)
		}
	}
}
