package fetch

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/unicode"

	"sallyport.example/internal/egress"
	"sallyport.example/internal/fault"
)

// web starts servers and a client that may reach them.
func web(t testing.TB, handlers ...http.Handler) (*egress.Client, []*httptest.Server) {
	t.Helper()
	var servers []*httptest.Server
	policy := egress.Policy{}
	roots := x509.NewCertPool()
	for _, h := range handlers {
		s := httptest.NewTLSServer(h)
		t.Cleanup(s.Close)
		servers = append(servers, s)
		policy.Domains = append(policy.Domains, s.Listener.Addr().String())
		roots.AddCert(s.Certificate())
	}
	c, err := egress.New(policy, egress.Options{RootCAs: roots})
	if err != nil {
		t.Fatal(err)
	}
	return c, servers
}

func fetcher(t testing.TB, o Options) *Fetcher {
	t.Helper()
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	f.public = func(*egress.Response) bool { return true }
	return f
}

// clock is a time that tests move.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(1_800_000_000+c.at.Load(), 0) }
func (c *clock) advance(d time.Duration) { c.at.Add(int64(d / time.Second)) }

func encoded(t *testing.T, enc interface{ String(string) (string, error) }, s string) string {
	t.Helper()
	out, err := enc.String(s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const gif = "GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00!\xf9\x04\x00\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"
const png = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01"
const document = "%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj"

func TestContent(t *testing.T) {
	type want struct {
		code    fault.Code
		media   string
		charset string
		text    string
		data    string
	}
	sjis := encoded(t, japanese.ShiftJIS.NewEncoder(), "<meta charset=shift_jis>日本")
	utf16 := encoded(t, unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM).NewEncoder(), "<p>日本")
	cases := []struct {
		name, contentType, body string
		want                    want
	}{
		{"html", "text/html; charset=utf-8", "<p>é", want{"", "text/html", "utf-8", "é", ""}},
		{"latin-1 header", "text/html; charset=iso-8859-1", "<p>\xe9", want{"", "text/html", "windows-1252", "é", ""}},
		{"meta", "text/html", sjis, want{"", "text/html", "shift_jis", "日本", ""}},
		{"header over meta", "text/html; charset=utf-8", "<meta charset=shift_jis>é", want{"", "text/html", "utf-8", "é", ""}},
		{"mark over header", "text/html; charset=shift_jis", "\xef\xbb\xbf<p>é", want{"", "text/html", "utf-8", "é", ""}},
		{"utf-16 mark", "text/html; charset=utf-8", "\xff\xfe" + utf16, want{"", "text/html", "utf-16le", "日本", ""}},
		{"utf-16 header", "text/html; charset=utf-16le", utf16, want{"", "text/html", "utf-16le", "日本", ""}},
		{"no charset, not utf-8", "text/html", "<p>\xe9t\xe9 xxxxxxxxxxxxxxxxxxxx", want{"", "text/html", "windows-1252", "été xxxxxxxxxxxxxxxxxxxx", ""}},
		{"no charset, utf-8 late", "text/html", "<p>" + strings.Repeat("x", 2000) + "é", want{"", "text/html", "utf-8", strings.Repeat("x", 2000) + "é", ""}},
		{"unknown charset", "text/html; charset=klingon", "<p>é", want{"", "text/html", "utf-8", "é", ""}},
		{"broken utf-8", "text/plain; charset=utf-8", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\xe9b", want{"", "text/plain", "utf-8", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\ufffdb", ""}},
		{"xml prolog", "application/xml", "<?xml version='1.0' encoding='ISO-8859-1'?><a>\xe9</a>", want{"", "application/xml", "windows-1252", "<?xml version='1.0' encoding='ISO-8859-1'?><a>é</a>", ""}},
		{"feed", "application/rss+xml", "<rss/>", want{"", "application/rss+xml", "utf-8", "<rss/>", ""}},
		{"json", "application/json", "{\"a\" :1}\n", want{"", "application/json", "utf-8", "{\"a\" :1}\n", ""}},
		{"problem json", "application/problem+json", "{}", want{"", "application/problem+json", "utf-8", "{}", ""}},
		{"markdown", "text/markdown", "# [a](x)", want{"", "text/markdown", "utf-8", "# [a](x)", ""}},
		{"plain text that looks like html", "text/plain", "<p>a", want{"", "text/plain", "utf-8", "<p>a", ""}},
		{"plain text that begins as a bitmap", "text/plain", "BMW and ID3 are names", want{"", "text/plain", "utf-8", "BMW and ID3 are names", ""}},
		{"svg is text", "image/svg+xml", "<svg/>", want{"", "image/svg+xml", "utf-8", "<svg/>", ""}},
		{"no type", "-", "<!doctype html><p>a", want{"", "text/html", "utf-8", "a", ""}},
		{"octets that are text", "application/octet-stream", "a: b\n", want{"", "text/plain", "utf-8", "a: b\n", ""}},
		{"type that can't be read", "text/html;;;;=", "plain", want{"", "text/plain", "utf-8", "plain", ""}},
		{"empty", "text/html", "", want{"", "text/html", "utf-8", "", ""}},
		{"gif", "image/gif", gif, want{"", "image/gif", "", "", gif}},
		{"png as octets", "application/octet-stream", png, want{"", "image/png", "", "", png}},
		{"pdf", "application/pdf", document, want{"", "application/pdf", "", "", document}},

		{"png that is gif", "image/png", gif, want{code: fault.ResultInvalid}},
		{"jpeg that is html", "image/jpeg", "<p>a", want{code: fault.ResultInvalid}},
		{"pdf that is html", "application/pdf", "<p>a", want{code: fault.ResultInvalid}},
		{"empty image", "image/png", "", want{code: fault.ResultInvalid}},
		{"html that is png", "text/html", png, want{code: fault.ResultInvalid}},
		{"html that is pdf", "text/html", document, want{code: fault.ResultInvalid}},
		{"text that is gif", "text/plain; charset=windows-1252", gif, want{code: fault.ResultInvalid}},
		{"json that is noise", "application/json", "{" + strings.Repeat("\x01\x02abc", 300), want{code: fault.ResultInvalid}},
		{"text with a NUL", "text/plain", "a\x00" + strings.Repeat("text ", 100), want{code: fault.ResultInvalid}},
		{"zip", "application/zip", "PK\x03\x04", want{code: fault.ResultInvalid}},
		{"octets", "application/octet-stream", "\x00\x01\x02", want{code: fault.ResultInvalid}},
		{"svg as png", "image/png", "<svg/>", want{code: fault.ResultInvalid}},
		{"other image", "image/bmp", "BM\x00\x00", want{code: fault.ResultInvalid}},
		{"large pdf", "application/pdf", document + strings.Repeat(" ", 100_000), want{code: fault.ResultTooLarge}},
		{"large gif", "image/gif", gif + strings.Repeat(" ", 100_000), want{code: fault.ResultTooLarge}},
	}
	c, servers := web(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		fmt.Sscanf(r.URL.Path, "/%d", &n)
		w.Header()["Content-Type"] = []string{cases[n].contentType}
		if cases[n].contentType == "-" {
			w.Header()["Content-Type"] = nil
		}
		io.WriteString(w, cases[n].body)
	}))
	f := fetcher(t, Options{Web: c, MaxImage: 50_000, MaxPDF: 50_000})
	for i, c := range cases {
		p, err := f.Fetch(context.Background(), Request{URL: fmt.Sprintf("%s/%d", servers[0].URL, i)})
		if c.want.code != "" {
			if !fault.Is(err, c.want.code) {
				t.Errorf("%s: %v, %+v", c.name, err, p)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := (want{"", p.MediaType, p.Charset, p.Text, string(p.Data)}); got != c.want {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
		if !utf8.ValidString(p.Text) || p.Status != 200 || p.FromCache || p.Truncated || p.FetchedAt.IsZero() {
			t.Errorf("%s: %+v", c.name, p)
		}
	}
	if _, err := f.Fetch(context.Background(), Request{URL: servers[0].URL + "/" + fmt.Sprint(slices.IndexFunc(cases, func(c struct {
		name, contentType, body string
		want                    want
	}) bool {
		return c.name == "zip"
	}))}); err == nil || !strings.Contains(fault.Of(err).Public(), "application/zip") || !strings.Contains(fault.Of(err).Public(), "PDF") {
		t.Errorf("the refusal names neither the type nor what is served: %v", err)
	}
}

func TestFormats(t *testing.T) {
	c, servers := web(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<title>T</title><p hidden>h</p><p>a <a href=b>c</a>")
	}))
	f := fetcher(t, Options{Web: c})
	for format, want := range map[string]string{"": "a [c](" + servers[0].URL + "/b)", "markdown": "a [c](" + servers[0].URL + "/b)", "text": "a c", "raw": "<title>T</title><p hidden>h</p><p>a <a href=b>c</a>"} {
		p, err := f.Fetch(context.Background(), Request{URL: servers[0].URL + "/#place", Format: format})
		if err != nil || p.Text != want || format != "raw" && p.Title != "T" {
			t.Errorf("%s: %v, %+v", format, err, p)
		}
	}
	f = fetcher(t, Options{Web: c, MaxText: 1})
	if p, err := f.Fetch(context.Background(), Request{URL: servers[0].URL}); err != nil || p.Text != "a" || !p.Truncated {
		t.Errorf("%v, %+v", err, p)
	}
}

func TestRequestsAreHarmless(t *testing.T) {
	var seen []*http.Request
	var bodies []string
	c, servers := web(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen, bodies = append(seen, r), append(bodies, string(body))
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Content-Type", "text/plain")
		io.WriteString(w, "x")
	}))
	u := servers[0].URL
	closed, open := fetcher(t, Options{Web: c}), fetcher(t, Options{Web: c, Methods: []string{"POST"}})
	post := Request{URL: u, Method: "POST", Body: "{}", ContentType: "application/json"}
	for _, c := range []struct {
		f    *Fetcher
		r    Request
		code fault.Code
	}{
		{closed, Request{URL: u}, ""}, {closed, Request{URL: u, Method: "HEAD"}, ""}, {open, post, ""},
		{closed, post, fault.PermissionDenied}, {closed, Request{URL: u, Method: "get"}, fault.PermissionDenied}, {open, Request{URL: u, Method: "PUT"}, fault.PermissionDenied}, {open, Request{URL: u, Method: "post"}, fault.PermissionDenied},
		{open, Request{URL: u, Body: "x", ContentType: "text/plain"}, fault.RequestMalformed}, {open, Request{URL: u, Method: "POST", Body: "x"}, fault.RequestMalformed},
		{open, Request{URL: u, Method: "POST", Body: "x", ContentType: "a/b\r\nCookie: x"}, fault.RequestMalformed}, {open, Request{URL: u, Method: "POST", Body: strings.Repeat("x", maxBody+1), ContentType: "a/b"}, fault.RequestMalformed},
		{closed, Request{URL: u, Format: "pdf"}, fault.RequestMalformed}, {closed, Request{URL: "https://example.com/"}, fault.EgressBlocked}, {closed, Request{URL: "file:///etc/passwd"}, fault.EgressBlocked}, {closed, Request{}, fault.EgressBlocked},
	} {
		_, err := c.f.Fetch(context.Background(), c.r)
		if c.code == "" && err != nil || c.code != "" && !fault.Is(err, c.code) {
			t.Errorf("%.100v: %v", c.r, err)
		}
		if c.code == fault.RequestMalformed && fault.Of(err).Field == "" {
			t.Errorf("%.100v: %v names no field", c.r, err)
		}
	}
	if len(seen) != 3 || bodies[2] != "{}" {
		t.Fatalf("%d requests, %q", len(seen), bodies)
	}
	for i, r := range seen {
		allowed := []string{"Accept", "Accept-Encoding", "User-Agent", "Connection"}
		if i == 2 {
			allowed = append(allowed, "Content-Type", "Content-Length")
		}
		for name := range r.Header {
			if !slices.Contains(allowed, name) {
				t.Errorf("%s sent: %q", name, r.Header[name])
			}
		}
		if !strings.Contains(r.Header.Get("User-Agent"), "Sallyport") || !strings.HasPrefix(r.Header.Get("Accept"), "text/markdown, text/html") {
			t.Errorf("%q", r.Header)
		}
	}
	for _, m := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get", "WHATEVER"} {
		if !closed.Writes(m) {
			t.Errorf("%s is no write", m)
		}
	}
	if closed.Writes("") || closed.Writes("GET") || closed.Writes("HEAD") {
		t.Error("reading is a write")
	}
	for _, o := range []Options{{}, {Web: c, Methods: []string{"PUT"}}, {Web: c, Methods: []string{"post"}}, {Web: c, MaxText: -1}} {
		if _, err := New(o); !fault.Is(err, fault.ConfigurationInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestFailuresOfTheServer(t *testing.T) {
	c, servers := web(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		switch r.URL.Path {
		case "/404":
			h.Set("Content-Type", "text/html")
			h.Set("Cache-Control", "max-age=60")
			w.WriteHeader(404)
			io.WriteString(w, "<p>No [such] page")
		case "/500":
			h.Set("Content-Type", "application/zip")
			w.WriteHeader(500)
			io.WriteString(w, "PK\x03\x04")
		case "/403":
			h.Set("Content-Type", "image/gif")
			w.WriteHeader(403)
			io.WriteString(w, gif)
		case "/304":
			w.WriteHeader(304)
		case "/short":
			h.Set("Content-Type", "text/html")
			h.Set("Content-Length", "1000")
			io.WriteString(w, "<p>part")
		case "/large":
			h.Set("Content-Type", "text/html")
			w.Write(make([]byte, 6<<20))
		}
	}))
	f := fetcher(t, Options{Web: c, Cache: filepath.Join(t.TempDir(), "c")})
	for path, want := range map[string]struct {
		status int
		text   string
		code   fault.Code
	}{
		"/404": {404, "HTTP 404 Not Found\n\nNo [such] page", ""}, "/500": {500, "HTTP 500 Internal Server Error", ""}, "/403": {403, "HTTP 403 Forbidden", ""},
		"/304": {0, "", fault.ResultInvalid}, "/short": {0, "", fault.UpstreamFailed}, "/large": {0, "", fault.ResultTooLarge},
	} {
		p, err := f.Fetch(context.Background(), Request{URL: servers[0].URL + path})
		if want.code != "" {
			if !fault.Is(err, want.code) || p != nil {
				t.Errorf("%s: %v, %+v", path, err, p)
			}
			continue
		}
		if err != nil || p.Status != want.status || p.Text != want.text || p.Data != nil {
			t.Errorf("%s: %v, %+v", path, err, p)
		}
	}
	if n := files(t, f); len(n) != 0 {
		t.Errorf("kept: %q", n)
	}
}

func files(t *testing.T, f *Fetcher) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(f.cache.root.Name(), "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// site is a server whose answers a test sets, and that counts what it is asked.
type site struct {
	mu      sync.Mutex
	answers map[string]http.Header // by path; Location makes it a redirect
	bodies  map[string]string
	asked   map[string]int
	given   map[string]int // whole answers
}

func (s *site) set(path, body string, header ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answers == nil {
		s.answers, s.bodies, s.asked, s.given = map[string]http.Header{}, map[string]string{}, map[string]int{}, map[string]int{}
	}
	h := http.Header{"Content-Type": {"text/html"}}
	for i := 0; i < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	s.answers[path], s.bodies[path], s.asked[path], s.given[path] = h, body, 0, 0
}

func (s *site) counts(path string) [2]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return [2]int{s.asked[path], s.given[path]}
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[r.URL.Path]++
	for k, v := range s.answers[r.URL.Path] {
		w.Header()[k] = v
	}
	if tag := w.Header().Get("ETag"); w.Header().Get("Location") != "" {
		w.WriteHeader(302)
		return
	} else if since := w.Header().Get("Last-Modified"); tag != "" && r.Header.Get("If-None-Match") == tag || tag == "" && since != "" && r.Header.Get("If-Modified-Since") == since {
		w.WriteHeader(304)
		return
	}
	s.given[r.URL.Path]++
	io.WriteString(w, s.bodies[r.URL.Path])
}

func TestCache(t *testing.T) {
	s := &site{}
	c, servers := web(t, s)
	now := &clock{}
	f := fetcher(t, Options{Web: c, Cache: filepath.Join(t.TempDir(), "c"), Clock: now.now})
	get := func(path string) *Page {
		t.Helper()
		p, err := f.Fetch(context.Background(), Request{URL: servers[0].URL + path})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	const modified = "Wed, 21 Oct 2015 07:28:00 GMT"
	for _, c := range []struct {
		name   string
		header []string
		soon   [2]int // asked and given after a second fetch 10 s later
		later  [2]int // and after a third 100 s later
	}{
		{"tag", []string{"ETag", `"1"`}, [2]int{2, 1}, [2]int{3, 1}},
		{"date", []string{"Last-Modified", modified}, [2]int{2, 1}, [2]int{3, 1}},
		{"age", []string{"Cache-Control", "max-age=60"}, [2]int{1, 1}, [2]int{2, 2}},
		{"age and tag", []string{"Cache-Control", "public, Max-Age=60", "ETag", `"1"`}, [2]int{1, 1}, [2]int{2, 1}},
		{"age of others", []string{"Cache-Control", "max-age=60", "Age", "55"}, [2]int{2, 2}, [2]int{3, 3}},
		{"older than its age", []string{"Cache-Control", "max-age=60", "Age", "70"}, [2]int{2, 2}, [2]int{3, 3}},
		{"shared age", []string{"Cache-Control", "max-age=60, s-maxage=0"}, [2]int{2, 2}, [2]int{3, 3}},
		{"no-cache", []string{"Cache-Control", "max-age=60, no-cache", "ETag", `"1"`}, [2]int{2, 1}, [2]int{3, 1}},
		{"no-store", []string{"Cache-Control", "max-age=60", "Cache-Control", "no-store", "ETag", `"1"`}, [2]int{2, 2}, [2]int{3, 3}},
		{"private", []string{"Cache-Control", `private="x", max-age=60`, "ETag", `"1"`}, [2]int{2, 2}, [2]int{3, 3}},
		{"cookie", []string{"Cache-Control", "max-age=60", "Set-Cookie", "a=b"}, [2]int{2, 2}, [2]int{3, 3}},
		{"vary", []string{"Cache-Control", "max-age=60", "Vary", "Accept, Origin"}, [2]int{2, 2}, [2]int{3, 3}},
		{"vary star", []string{"Cache-Control", "max-age=60", "Vary", "*"}, [2]int{2, 2}, [2]int{3, 3}},
		{"vary known", []string{"Cache-Control", "max-age=60", "Vary", "accept, Accept-Encoding"}, [2]int{1, 1}, [2]int{2, 2}},
		{"nothing", nil, [2]int{2, 2}, [2]int{3, 3}},
		{"bad age", []string{"Cache-Control", "max-age=-1"}, [2]int{2, 2}, [2]int{3, 3}},
		{"twice", []string{"Cache-Control", "max-age=0, max-age=60"}, [2]int{2, 2}, [2]int{3, 3}},
	} {
		path := "/" + strings.ReplaceAll(c.name, " ", "-")
		s.set(path, "<title>T</title><p>"+c.name, c.header...)
		first := get(path)
		now.advance(10 * time.Second)
		second := get(path)
		if got := s.counts(path); got != c.soon || second.FromCache != (got[1] == 1) {
			t.Errorf("%s: soon asked and given %v, want %v, from cache %v", c.name, got, c.soon, second.FromCache)
		}
		now.advance(100 * time.Second)
		third := get(path)
		if got := s.counts(path); got != c.later || third.FromCache != (got[1] == 1) {
			t.Errorf("%s: later asked and given %v, want %v", c.name, got, c.later)
		}
		for _, p := range []*Page{second, third} {
			if p.Text != first.Text || p.Title != "T" || p.URL != first.URL || !slices.Equal(p.Hops, first.Hops) || p.Status != 200 || p.Charset != "utf-8" || p.MediaType != "text/html" {
				t.Errorf("%s: %+v is not %+v", c.name, p, first)
			}
		}
		if c.soon[0] == 2 && c.soon[1] == 1 && !second.FetchedAt.After(first.FetchedAt) {
			t.Errorf("%s: was asked about again, but is from %v", c.name, second.FetchedAt)
		}
	}

	// A changed page is seen, and one that is no longer for all goes.
	s.set("/tag", "<p>new", "ETag", `"2"`)
	if p := get("/tag"); p.Text != "new" || p.FromCache {
		t.Errorf("%+v", p)
	}
	s.set("/tag", "<p>mine", "ETag", `"2"`, "Cache-Control", "no-store")
	before := len(files(t, f))
	if p := get("/tag"); p.Text != "new" || len(files(t, f)) != before-1 {
		t.Errorf("%+v; %d files were %d", p, len(files(t, f)), before)
	}
	// Data comes back as data, and formats do not mix.
	s.set("/gif", gif, "Cache-Control", "max-age=60", "Content-Type", "image/gif")
	s.answers["/gif"]["Content-Type"] = []string{"image/gif"}
	get("/gif")
	if p := get("/gif"); !p.FromCache || string(p.Data) != gif || p.Text != "" {
		t.Errorf("%+v", p)
	}
	s.set("/formats", "<p><i>x</i>", "Cache-Control", "max-age=60")
	for i, format := range []string{"markdown", "text", "markdown", "text"} {
		p, err := f.Fetch(context.Background(), Request{URL: fmt.Sprintf("%s/formats#%d", servers[0].URL, i), Format: format})
		if err != nil || p.FromCache != (i >= 2) || (p.Text == "*x*") != (format == "markdown") {
			t.Errorf("%s: %v, %+v", format, err, p)
		}
	}
	// A clock that went back makes nothing fresh.
	s.set("/back", "x", "Cache-Control", "max-age=60")
	get("/back")
	now.advance(-time.Second)
	if p := get("/back"); p.FromCache {
		t.Errorf("%+v", p)
	}
	info, err := os.Stat(f.cache.root.Name())
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// A page that came over a redirect is only given when each hop may still be gone, and leads to the same place.
func TestCacheAndRedirects(t *testing.T) {
	a, b, other := &site{}, &site{}, &site{}
	c, servers := web(t, a, b, other)
	dir := filepath.Join(t.TempDir(), "c")
	a.set("/", "", "Location", servers[1].URL+"/page", "ETag", "-")
	b.set("/page", "<p>b <a href=x>x</a>", "Cache-Control", "max-age=60", "ETag", `"1"`)
	f := fetcher(t, Options{Web: c, Cache: dir})
	for i := range 2 {
		p, err := f.Fetch(context.Background(), Request{URL: servers[0].URL + "/"})
		if err != nil || p.FromCache != (i == 1) || p.URL != servers[1].URL+"/page" || !slices.Equal(p.Hops, []string{servers[0].URL + "/", p.URL}) || p.Text != "b [x]("+servers[1].URL+"/x)" {
			t.Fatalf("%v, %+v", err, p)
		}
	}
	// The page that was redirected to is not cached under its own address.
	if p, err := f.Fetch(context.Background(), Request{URL: servers[1].URL + "/page"}); err != nil || p.FromCache {
		t.Fatalf("%v, %+v", err, p)
	}

	// A policy without the second server: the fresh page must not come.
	roots := x509.NewCertPool()
	roots.AddCert(servers[0].Certificate())
	narrow, err := egress.New(egress.Policy{Domains: []string{servers[0].Listener.Addr().String()}}, egress.Options{RootCAs: roots})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := fetcher(t, Options{Web: narrow, Cache: dir}).Fetch(context.Background(), Request{URL: servers[0].URL + "/"}); !fault.Is(err, fault.EgressBlocked) {
		t.Fatalf("%v, %+v", err, p)
	}

	// Both places of a redirect on one server use the same tag. Which page is unchanged?
	a.set("/one", "<p>one", "ETag", `"same"`)
	a.set("/two", "<p>two", "ETag", `"same"`)
	for _, to := range []string{"one", "two"} {
		a.set("/r", "", "Location", "/"+to)
		p, err := f.Fetch(context.Background(), Request{URL: servers[0].URL + "/r"})
		if err != nil || p.Text != to || p.FromCache {
			t.Fatalf("%s: %v, %+v", to, err, p)
		}
	}
}

func TestCorruptCacheIsAMiss(t *testing.T) {
	s := &site{}
	c, servers := web(t, s)
	dir := filepath.Join(t.TempDir(), "c")
	s.set("/", "<p>right", "Cache-Control", "max-age=60")
	f := fetcher(t, Options{Web: c, Cache: dir})
	fetch := func() *Page {
		t.Helper()
		p, err := f.Fetch(context.Background(), Request{URL: servers[0].URL + "/"})
		if err != nil || p.Text != "right" {
			t.Fatalf("%v, %+v", err, p)
		}
		return p
	}
	fetch()
	if p := fetch(); !p.FromCache {
		t.Fatal("not cached")
	}
	names := files(t, f)
	if len(names) != 1 || len(filepath.Base(names[0])) != 64 {
		t.Fatalf("%q", names)
	}
	whole, err := os.ReadFile(names[0])
	if err != nil || !strings.HasSuffix(string(whole), "\nright") {
		t.Fatalf("%v, %q", err, whole)
	}
	head, _, _ := strings.Cut(string(whole), "\n")
	bad := map[string]string{"empty": "", "cut": string(whole[:len(whole)-1]), "longer": string(whole) + "x", "other text": head + "\nwrong", "no line": head, "not json": "x\nright", "trailing": head + " {}\nright", "spaces": strings.Replace(head, ":", ": ", 1) + "\nright",
		"unknown member": strings.Replace(head, "{", `{"x":1,`, 1) + "\nright", "double": strings.Replace(head, "{", `{"version":2,`, 1) + "\nright", "case": strings.Replace(head, `"url"`, `"URL"`, 1) + "\nright", "version": strings.Replace(head, `"version":2`, `"version":1`, 1) + "\nright",
		"request": strings.Replace(head, `"request":"https://`, `"request":"https://x.`, 1) + "\nright", "no hops": strings.Replace(head, `"hops":["`+servers[0].URL+`/"]`, `"hops":[]`, 1) + "\nright", "other url": strings.Replace(head, `"url":"https://`, `"url":"https://x.`, 1) + "\nright", "other hops": strings.Replace(head, `"hops":["`, `"hops":["https://x.example`, 1) + "\nright",
		"limit": strings.Replace(head, `"max_text":`, `"max_text":1`, 1) + "\nright", "large": string(whole) + strings.Repeat("x", 8<<20)}
	for name, content := range bad {
		if content == string(whole) {
			t.Fatalf("%s changes nothing", name)
		}
		if err := os.WriteFile(names[0], []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if p := fetch(); p.FromCache {
			t.Errorf("%s: used", name)
		}
		if p := fetch(); !p.FromCache {
			t.Errorf("%s: not mended", name)
		}
	}
	// What is no file is not followed.
	for _, to := range []string{filepath.Join(t.TempDir(), "outside"), filepath.Join(dir, "inside")} {
		if err := os.WriteFile(to, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		os.Remove(names[0])
		target, err := filepath.Rel(dir, to)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, names[0]); err != nil {
			t.Fatal(err)
		}
		if p := fetch(); p.FromCache {
			t.Errorf("a link to %s was followed", to)
		}
		if now, err := os.ReadFile(to); err != nil || string(now) != string(whole) {
			t.Errorf("written through a link: %v", err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Web: c, Cache: dir}); !fault.Is(err, fault.ConfigurationInvalid) {
		t.Errorf("a folder that others read: %v", err)
	}
}

func TestCacheIsBounded(t *testing.T) {
	s := &site{}
	c, servers := web(t, s)
	f := fetcher(t, Options{Web: c, Cache: filepath.Join(t.TempDir(), "c")})
	f.cache.max = 40 << 10
	for i := range 30 {
		path := fmt.Sprintf("/%d", i)
		s.set(path, "x", "Cache-Control", "max-age=60")
		if _, err := f.Fetch(context.Background(), Request{URL: servers[0].URL + path}); err != nil {
			t.Fatal(err)
		}
		if n := len(files(t, f)); n > 10 {
			t.Fatalf("%d files", n)
		}
		then := time.Unix(1_500_000_000+int64(i), 0)
		if err := os.Chtimes(filepath.Join(f.cache.root.Name(), cacheName(servers[0].URL+path, accepts["markdown"])), then, then); err != nil {
			t.Fatalf("the newest went first: %v", err)
		}
	}
}

func TestConcurrentFetchesOfOnePage(t *testing.T) {
	s := &site{}
	c, servers := web(t, s)
	dir := filepath.Join(t.TempDir(), "c")
	s.set("/", "<p>"+strings.Repeat("text ", 10_000), "ETag", `"1"`)
	f := fetcher(t, Options{Web: c, Cache: dir})
	f.cache.max = 100 << 10 // two of the three files fit
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			p, err := f.Fetch(context.Background(), Request{URL: servers[0].URL + "/", Format: []string{"markdown", "text", "raw"}[i%3]})
			if err != nil || strings.Count(p.Text, "text ") < 9_999 {
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	for _, name := range files(t, f) {
		if raw, err := os.ReadFile(name); err != nil || parseRecord(raw) == nil {
			t.Errorf("%s: %v, not whole", name, err)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	r := newRecord("https://a.example/", "a", &Page{URL: "https://a.example/", Hops: []string{"https://a.example/"}, Text: "text"}, http.Header{})
	f.Add([]byte(`{"version":1}` + "\n"))
	f.Add([]byte(fmt.Sprintf(`{"version":2,"request":"x","sha256":"%s"}`+"\ntext", r.SHA256)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if r := parseRecord(raw); r != nil && r.Hops[len(r.Hops)-1] != r.URL {
			t.Fatalf("%q", raw)
		}
	})
}

// What an entry had to open, and what was asked for by an address with more in it than a place, is nobody else's to read.
func TestCacheKeepsNothingPersonal(t *testing.T) {
	s := &site{}
	c, servers := web(t, s)
	f := fetcher(t, Options{Web: c, Cache: filepath.Join(t.TempDir(), "c")})
	inside := fetcher(t, Options{Web: c, Cache: filepath.Join(t.TempDir(), "c")})
	inside.public = func(r *egress.Response) bool { return r.Public }
	kept := func(f *Fetcher) int {
		names, err := filepath.Glob(filepath.Join(f.cache.root.Name(), "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	age := []string{"Cache-Control", "max-age=60", "ETag", `"1"`}
	s.set("/page", "<p>x", age...)
	s.set("/signed", "<p>x", age...)
	s.set("/to", "", "Location", "/signed?signature=abc")
	s.set("/a;session=1", "<p>x", age...)
	for _, path := range []string{"/page?q=salary", "/page?", "/to", "/a;session=1"} {
		for range 2 {
			if p, err := f.Fetch(t.Context(), Request{URL: servers[0].URL + path}); err != nil || p.FromCache || kept(f) != 0 {
				t.Errorf("%s: %v, %d files", path, err, kept(f))
			}
		}
	}
	for range 2 {
		if p, err := inside.Fetch(t.Context(), Request{URL: servers[0].URL + "/page"}); err != nil || p.FromCache || kept(inside) != 0 {
			t.Errorf("%v, %d files", err, kept(inside))
		}
	}
	// What was kept goes when its server is no longer a public one.
	for i, public := range []bool{true, false} {
		f.public = func(*egress.Response) bool { return public }
		s.set("/page", "<p>x", "ETag", `"1"`)
		if _, err := f.Fetch(t.Context(), Request{URL: servers[0].URL + "/page"}); err != nil || kept(f) != 1-i {
			t.Errorf("%v, %d files", err, kept(f))
		}
	}
}
