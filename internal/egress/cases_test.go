package egress

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport.example/internal/fault"
)

type attackCase struct {
	ID, Cat, URL, Expected, Stage, Why, Must string
	DNS, DNS2                                map[string][]json.RawMessage
	Policy                                   struct {
		AllowHosts []string `json:"allow_hosts"`
	}
	Server struct {
		Status   int
		Location *string
	}
	Headers map[string]string
}

// attackCases reads the shared cases, which stand beside the repository; nil where they don't.
func attackCases(t testing.TB) []attackCase {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
	data, err := os.ReadFile(filepath.Join(dir, "..", "shared", "cases", "attacks", "ssrf.json"))
	if err != nil {
		return nil
	}
	var file struct{ Cases []attackCase }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file.Cases
}

// world is a small internet: a scripted resolver, and one server behind every public address. It notes what reaches it.
type world struct {
	t     testing.TB
	dns   map[string][]json.RawMessage // a list of addresses, or a script of lists [verb, value] consumed one lookup at a time
	plain *httptest.Server
	tls   *httptest.Server
	ca    *authority

	mu      sync.Mutex // guards what follows
	lookups []string
	dials   []netip.AddrPort
	names   []string // SNI
	used    map[string]int
}

func newWorld(t testing.TB, h http.Handler) *world {
	w := &world{t: t, dns: map[string][]json.RawMessage{}, ca: newAuthority(t), used: map[string]int{}}
	quiet := log.New(io.Discard, "", 0)
	w.plain = httptest.NewUnstartedServer(h)
	w.plain.Config.ErrorLog = quiet
	w.plain.Start()
	w.tls = httptest.NewUnstartedServer(h)
	w.tls.Config.ErrorLog = quiet
	w.tls.TLS = &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		w.mu.Lock()
		w.names = append(w.names, hello.ServerName)
		w.mu.Unlock()
		return w.ca.leaf(hello.ServerName)
	}}
	literal, err := w.ca.leaf("literal.pub") // for who names an address, and so nothing
	if err != nil {
		t.Fatal(err)
	}
	w.tls.TLS.Certificates = []tls.Certificate{*literal}
	w.tls.StartTLS()
	t.Cleanup(w.plain.Close)
	t.Cleanup(w.tls.Close)
	return w
}

func (w *world) answer(name string, addrs ...string) {
	raw, _ := json.Marshal(addrs)
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		w.t.Fatal(err)
	}
	w.dns[name] = list
}

// client returns a client in this world: public addresses lead to its servers, everything else really.
func (w *world) client(p Policy, o Options) *Client {
	w.t.Helper()
	if p.Protocols == nil {
		p.Protocols = []string{"https", "http"}
	}
	if o.Resolver == nil {
		o.Resolver = w
	}
	o.RootCAs = w.ca.pool
	c, err := New(p, o)
	if err != nil {
		w.t.Fatal(err)
	}
	c.connect = func(ctx context.Context, d *net.Dialer, to netip.AddrPort) (net.Conn, error) {
		network := "tcp4"
		if to.Addr().Is6() {
			network = "tcp6"
		}
		if err := d.Control(network, to.String(), nil); err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: err}
		}
		w.mu.Lock()
		w.dials = append(w.dials, to)
		w.mu.Unlock()
		local := w.plain.Listener.Addr().String()
		if to.Port() == 443 {
			local = w.tls.Listener.Addr().String()
		}
		return (&net.Dialer{Timeout: d.Timeout}).DialContext(ctx, "tcp", local)
	}
	return c
}

func (w *world) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	name, absolute := strings.CutSuffix(host, ".")
	w.mu.Lock()
	w.lookups = append(w.lookups, name)
	n := w.used[name]
	w.used[name]++
	w.mu.Unlock()
	if !absolute || network != "ip" {
		w.t.Errorf("lookup of %q in %q: search domains would apply", host, network)
	}
	script, ok := w.dns[name]
	if !ok {
		return net.DefaultResolver.LookupNetIP(ctx, network, host) // so that a form that only one resolver understands shows
	}
	var step []string
	if len(script) > 0 && json.Unmarshal(script[min(n, len(script)-1)], &step) == nil {
		switch step[0] {
		case "nxdomain", "servfail":
			return nil, &net.DNSError{Err: step[0], Name: name, IsNotFound: step[0] == "nxdomain", IsTemporary: step[0] == "servfail"}
		case "cname":
			if step[1] == "localhost" {
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			}
			return w.LookupNetIP(ctx, network, step[1]+".")
		case "a", "aaaa", "A", "AAAA":
			return []netip.Addr{netip.MustParseAddr(step[1])}, nil
		default:
			w.t.Errorf("the script of %s has %q, which this stub does not know", name, step[0])
			return nil, errors.New("unknown verb")
		}
	}
	var addrs []netip.Addr
	for _, raw := range script {
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			w.t.Errorf("the answer of %s: %v", name, err)
		}
		addrs = append(addrs, netip.MustParseAddr(s))
	}
	return addrs, nil
}

// authority signs for any name.
type authority struct {
	pool *x509.CertPool
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	expired bool // what it signs

	mu    sync.Mutex // guards certs
	certs map[string]*tls.Certificate
}

func newAuthority(t testing.TB) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{pool: x509.NewCertPool(), cert: cert, key: key, certs: map[string]*tls.Certificate{}}
	a.pool.AddCert(cert)
	return a
}

// leaf is a certificate for a name; without one, for the addresses of the cases.
func (a *authority) leaf(name string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.certs[name]; c != nil {
		return c, nil
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name}, IPAddresses: []net.IP{net.ParseIP("8.8.8.8"), net.ParseIP("1.1.1.1"), net.ParseIP("2001:4860:4860::8888")}}
	if a.expired {
		template.NotAfter = time.Now().Add(-time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
	a.certs[name] = c
	return c, nil
}

// raw takes over the connection of an HTTP/1 request.
func raw(t testing.TB, w http.ResponseWriter, f func(*bufio.ReadWriter)) {
	h, ok := w.(http.Hijacker)
	if !ok {
		t.Error("not HTTP/1")
		return
	}
	conn, rw, err := h.Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	f(rw)
	rw.Flush()
}

// scenario plays the response cases, by path.
func scenario(t testing.TB, w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/gzip-bomb":
		w.Header().Set("Content-Encoding", "gzip")
		z, zeros := gzip.NewWriter(w), make([]byte, 1<<20)
		for range 10 << 10 {
			if _, err := z.Write(zeros); err != nil {
				return
			}
		}
		t.Error("the whole bomb was taken")
	case "/endless":
		block := []byte(strings.Repeat("endless ", 4096))
		for n := 0; n < 1<<30; n += len(block) {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
		t.Error("the whole stream was taken")
	case "/1xx-flood":
		raw(t, w, func(rw *bufio.ReadWriter) {
			for range 20_000 {
				if _, err := rw.WriteString("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload; as=style\r\n\r\n"); err != nil {
					return
				}
			}
			rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		})
	case "/chunk-ext":
		raw(t, w, func(rw *bufio.ReadWriter) {
			rw.WriteString("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			ext := strings.Repeat("x", 2000)
			for range 5000 {
				if _, err := rw.WriteString("1;" + ext + "\r\na\r\n"); err != nil {
					return
				}
			}
			rw.WriteString("0\r\n\r\n")
		})
	case "/cl-mismatch":
		raw(t, w, func(rw *bufio.ReadWriter) {
			rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort")
		})
	case "/altsvc":
		w.Header().Set("Alt-Svc", `h2="169.254.169.254:443"; ma=86400`)
		io.WriteString(w, "ok")
	case "/bad-cert", "/proxy-env", "/path-crlf\r\nX-Injected: 1":
		io.WriteString(w, "ok")
	default:
		t.Errorf("there is no scenario for %q", r.URL.Path)
	}
}

const childEnv = "SALLYPORT_EGRESS_CASES"

// The cases run in this binary once per resolver of Go's, with proxies in the environment.
func TestCases(t *testing.T) {
	cases := attackCases(t)
	if cases == nil {
		t.Skip("shared/cases/attacks/ssrf.json is not here")
	}
	if os.Getenv(childEnv) == "" {
		for _, resolver := range []string{"go", "cgo"} {
			t.Run(resolver, func(t *testing.T) {
				self, err := os.Executable()
				if err != nil {
					t.Fatal(err)
				}
				cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestCases$", "-test.v")
				// Our own reading of hosts must hold without the latest that net/url learnt.
				cmd.Env = append(os.Environ(), childEnv+"=1", "GODEBUG=urlstrictcolons=0,netdns="+resolver,
					"HTTP_PROXY=http://127.0.0.1:1", "HTTPS_PROXY=http://127.0.0.1:1", "ALL_PROXY=http://127.0.0.1:1", "NO_PROXY=")
				out, err := cmd.CombinedOutput()
				if passed := strings.Count(string(out), "    --- PASS: TestCases/ssrf-"); err != nil || passed != len(cases) {
					t.Fatalf("%d of %d cases passed, %v\n%s", passed, len(cases), err, out)
				}
			})
		}
		return
	}
	for _, c := range cases {
		t.Run(c.ID, func(t *testing.T) { c.run(t) })
	}
}

func (c attackCase) run(t *testing.T) {
	requests := make(chan *http.Request, 100)
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case requests <- r:
		default:
			t.Error("too many requests")
		}
		for name, value := range c.Headers {
			w.Header().Set(name, value)
		}
		switch {
		case c.Cat == "response":
			scenario(t, w, r)
		case c.Server.Location != nil && strings.HasPrefix(*c.Server.Location, "chain:"):
			n, _ := strconv.Atoi(strings.TrimPrefix(*c.Server.Location, "chain:"))
			hop, _ := strconv.Atoi(r.URL.Query().Get("hop"))
			if hop == n {
				io.WriteString(w, "the end")
				return
			}
			w.Header().Set("Location", "/start?hop="+strconv.Itoa(hop+1))
			w.WriteHeader(c.Server.Status)
		case c.Server.Location != nil:
			w.Header().Set("Location", *c.Server.Location)
			w.WriteHeader(c.Server.Status)
		default:
			io.WriteString(w, "ok")
		}
	}))
	w.ca.expired = strings.HasSuffix(c.URL, "/bad-cert")
	for _, dns := range []map[string][]json.RawMessage{c.DNS, c.DNS2} {
		for name, script := range dns {
			w.dns[name] = script
		}
	}
	client := w.client(Policy{Domains: c.Policy.AllowHosts, Timeout: 20 * time.Second},
		Options{Own: []netip.AddrPort{netip.MustParseAddrPort("203.0.113.77:0")}})

	url := c.URL
	if strings.HasSuffix(url, "/path-crlf") {
		url += "%0d%0aX-Injected:%201"
	}
	checked := client.Check(url)
	resp, err := client.Do(t.Context(), Request{URL: url})
	if c.Expected == "allow" {
		if checked != nil || err != nil {
			t.Fatalf("%s: %v, %v", c.Why, checked, err)
		}
		if resp.Status != max(c.Server.Status, 200) && c.Server.Status != 0 {
			t.Errorf("status %d", resp.Status)
		}
		if len(w.dials) != 1 {
			t.Errorf("dialled %v", w.dials)
		}
		req := <-requests
		host, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(resp.URL, "https://"), "http://"), "/")
		if req.Host != host {
			t.Errorf("Host is %q, URL %q", req.Host, resp.URL)
		}
		for name := range c.DNS {
			if !slices.Equal(w.lookups, []string{name}) || !slices.Equal(w.names, []string{name}) || req.Host != name {
				t.Errorf("lookups %q, SNI %q, Host %q", w.lookups, w.names, req.Host)
			}
		}
		if req.Header.Get("X-Injected") != "" || strings.HasSuffix(c.URL, "path-crlf") && req.RequestURI != "/path-crlf%0d%0aX-Injected:%201" {
			t.Errorf("the server saw %q, %v", req.RequestURI, req.Header)
		}
		return
	}
	if resp != nil || err == nil {
		t.Fatalf("%s: got through: %v", c.Why, resp)
	}
	var b *Blocked
	if !errors.As(err, &b) || b.Stage != c.Stage || !strings.Contains(fault.Of(err).Message, c.Stage) {
		t.Fatalf("%s: want stage %s: %v", c.Why, c.Stage, err)
	}
	if early := slices.Contains([]string{"parse", "host", "policy"}, c.Stage); early != (checked != nil) || early && len(w.lookups) > 0 {
		t.Errorf("Check says %v; lookups %q", checked, w.lookups)
	}
	code := fault.EgressBlocked
	for _, steps := range c.DNS { // an answer that is not there is nobody's refusal, and can be asked for again
		if text := fmt.Sprintf("%s", steps); strings.Contains(text, "nxdomain") || strings.Contains(text, "servfail") {
			code = fault.UpstreamFailed
		}
	}
	if c.Stage != "response" && !fault.Is(err, code) {
		t.Errorf("the code is %s, not %s", fault.Of(err).Code, code)
	}
	for _, to := range w.dials {
		if c.Stage != "redirect" && c.Stage != "response" || to.String() != "93.184.215.14:443" {
			t.Errorf("dialled %v", to)
		}
	}
	want := map[string]fault.Code{"/gzip-bomb": fault.ResultTooLarge, "/endless": fault.ResultTooLarge, "/1xx-flood": fault.ResultInvalid,
		"/chunk-ext": fault.ResultInvalid, "/cl-mismatch": fault.UpstreamFailed, "/bad-cert": fault.UpstreamFailed}
	if code, ok := want[strings.TrimPrefix(c.URL, "https://allowed.pub")]; ok && !fault.Is(err, code) {
		t.Errorf("want %s: %v", code, err)
	}
	if fault.Is(err, fault.ResultTooLarge) && !strings.Contains(err.Error(), fmt.Sprint(defaultMaxBytes)) {
		t.Errorf("does not name the limit: %v", err)
	}
}
