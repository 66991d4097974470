package httpapi_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/console"
	"sallyport.example/internal/httpapi"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/mcpapi"
)

// face is one way in, with a request that it takes.
type face struct {
	name    string
	handler http.Handler
	good    func() *http.Request
	status  int    // of the good request
	media   string // of its body
	pages   bool   // it answers people with pages, once they are signed in
}

const fromLoopback = "127.0.0.1:7575"

// faces are all ways in over HTTP, with one log.
func faces(t *testing.T, log *slog.Logger) []face {
	w := newWorld(t)
	api := httpapi.New(w.g, w.store, httpapi.Options{
		Log: log, Agents: func() agent.Set { return agent.NewSet() }, People: nobody, Public: "https://gate.example", Upstreams: func() []console.ServerStatus { return nil },
	})
	mcp := mcpapi.New(w.g, mcpapi.Options{Log: log, Version: "test", Authenticate: w.g.Standing().Authenticate, Subscribe: w.g.Catalogue().Subscribe})
	t.Cleanup(func() { mcp.Close(); api.Close() })
	request := func(path, body, media string, headers ...string) func() *http.Request {
		return func() *http.Request {
			r := httptest.NewRequest("POST", "http://"+fromLoopback+path, strings.NewReader(body))
			local, err := net.ResolveTCPAddr("tcp", fromLoopback)
			if err != nil {
				t.Fatal(err)
			}
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(local)))
			r.Header.Set("Content-Type", media)
			for i := 0; i < len(headers); i += 2 {
				r.Header.Set(headers[i], headers[i+1])
			}
			return r
		}
	}
	const plain, form = "application/json", "application/x-www-form-urlencoded"
	worker, root := "Bearer "+w.token(identity.Agent, "worker"), w.token(identity.Person, "root", identity.Admin)
	console := face{name: "console", handler: api.Admin(), status: http.StatusSeeOther, media: form, pages: true}
	signIn := httptest.NewRecorder()
	console.handler.ServeHTTP(signIn, request("/login", "token="+root, form)())
	cookie, _, _ := strings.Cut(signIn.Header().Get("Set-Cookie"), ";")
	if signIn.Code != http.StatusSeeOther || cookie == "" {
		t.Fatalf("signing in: %d %s", signIn.Code, signIn.Body)
	}
	console.good = request("/kill", "reason=x", form, "Cookie", cookie)
	return []face{
		{name: "MCP", handler: mcp.Handler(), status: 200, media: plain, good: request("/mcp",
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"think","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
			plain, "Authorization", worker, "Accept", "application/json, text/event-stream",
			"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "think")},
		{name: "agents' side", handler: api.Agent(), status: 200, media: plain,
			good: request("/v1/session/self/check", `{"tool":"think","arguments":{}}`, plain, "Authorization", worker)},
		{name: "people's side", handler: api.Admin(), status: 201, media: plain,
			good: request("/v1/tokens", `{"kind":"host","id":"laptop"}`, plain, "Authorization", "Bearer "+root)},
		console,
	}
}

// badBody fails, or panics where it has no error.
type badBody struct{ err error }

func (b badBody) Read([]byte) (int, error) {
	if b.err == nil {
		panic("tea in the disk of /secret/place")
	}
	return 0, b.err
}

// TestFacesAnswerAlike asks every face the same questions about everything that is decided before anybody asks who calls or what for.
func TestFacesAnswerAlike(t *testing.T) {
	header := func(name string, values ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header[name] = values }
	}
	read := func(origin string) func(*http.Request) {
		return func(r *http.Request) { r.Method, r.Header["Origin"] = http.MethodGet, []string{origin} }
	}
	media := func(after string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Content-Type", r.Header.Get("Content-Type")+after) }
	}
	body := func(in io.Reader, length int64) func(*http.Request) {
		return func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(in), length }
	}
	huge := strings.Repeat(" ", 14<<20)
	large := func(length int) func(*http.Request) {
		return func(r *http.Request) { body(strings.NewReader(huge), int64(length))(r) }
	}
	var log bytes.Buffer
	all := faces(t, slog.New(slog.NewTextHandler(&log, nil)))
	for _, q := range []struct {
		name   string
		change func(*http.Request)
		status int // 0: that of the good request
		field  string
		page   bool // the console says so with a page
	}{
		{"as it should be", func(*http.Request) {}, 0, "", false},
		{"localhost", func(r *http.Request) { r.Host = "localhost:1234" }, 0, "", false},
		{"another host", func(r *http.Request) { r.Host = "evil.example" }, 421, "Host", false},
		{"a host that begins like ours", func(r *http.Request) { r.Host = "127.0.0.1.evil.example:7575" }, 421, "Host", false},
		{"no host", func(r *http.Request) { r.Host = "" }, 421, "Host", false},
		{"no local address", func(r *http.Request) {
			*r = *r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, nil))
		}, 421, "Host", false},
		{"a page of another origin", header("Origin", "https://evil.example"), 403, "Origin", false},
		{"a page of no origin", header("Origin", "null"), 403, "Origin", false},
		{"a page of another site", header("Sec-Fetch-Site", "cross-site"), 403, "Origin", false},
		{"a page of another port", header("Sec-Fetch-Site", "same-site"), 403, "Origin", false},
		{"a read by a page of another origin", read("https://evil.example"), 403, "Origin", false},
		{"a read by a page of no origin", read("null"), 403, "Origin", false},
		{"two origins", header("Origin", "http://"+fromLoopback, "https://evil.example"), 400, "Origin", false},
		{"a page of our own", header("Origin", "http://"+fromLoopback), 0, "", false},
		{"an escaped path", func(r *http.Request) { r.URL.RawPath = strings.Replace(r.URL.Path, "/", "/%2e/", 1) }, 400, "", false},
		{"an unclean path", func(r *http.Request) { r.URL.Path += "/" }, 400, "", false},
		{"two credentials", header("Authorization", "Bearer a", "Bearer b"), 400, "Authorization", false},
		{"two content types", header("Content-Type", "application/json", "application/json"), 400, "Content-Type", false},
		{"a parameter twice", func(r *http.Request) { r.URL.RawQuery = "a=1&a=2" }, 400, "a", false},
		{"a charset", media("; charset=UTF-8"), 0, "", false},
		{"another charset", media("; charset=utf-16"), 415, "Content-Type", true},
		{"another parameter", media("; foo=1"), 415, "Content-Type", true},
		{"a parameter besides the charset", media("; charset=utf-8; foo=1"), 415, "Content-Type", true},
		{"a longer type", media("-patch+json"), 415, "Content-Type", true},
		{"two types in one", media(", text/plain"), 415, "Content-Type", true},
		{"no type", func(r *http.Request) { delete(r.Header, "Content-Type") }, 415, "Content-Type", true},
		{"plain text", header("Content-Type", "text/plain"), 415, "Content-Type", true},
		{"many parts", header("Content-Type", "multipart/form-data; boundary=b"), 415, "Content-Type", true},
		{"compressed", header("Content-Encoding", "gzip"), 415, "Content-Encoding", true},
		{"a large body", large(len(huge)), 413, "", true},
		{"a large body of no stated length", large(-1), 413, "", true},
		{"a body that breaks off", body(badBody{io.ErrUnexpectedEOF}, 100), 400, "", true},
		{"a body that can't be read", body(badBody{errors.New("tea in the disk of /secret/place")}, -1), 400, "", true},
		{"a panic", body(badBody{}, 100), 500, "", false},
	} {
		for _, f := range all {
			log.Reset()
			r, rec := f.good(), httptest.NewRecorder()
			q.change(r)
			f.handler.ServeHTTP(rec, r)
			a := answer{rec.Code, rec.Header(), rec.Body.String()}
			id := a.header.Get("X-Request-Id")
			where := f.name + ", " + q.name
			if want := cmp.Or(q.status, f.status); a.status != want {
				t.Errorf("%s: %d %.200s", where, a.status, a.body)
			}
			for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin"} {
				if a.header.Get(name) != want {
					t.Errorf("%s: %s is %q", where, name, a.header.Get(name))
				}
			}
			if !strings.HasPrefix(id, "req_") || strings.Contains(a.body, "secret") {
				t.Errorf("%s: request %q, %.200s", where, id, a.body)
			}
			if q.status == 413 && !strings.Contains(a.body, " bytes") {
				t.Errorf("%s: it does not say how much is taken: %.200s", where, a.body)
			}
			if q.status == 415 && q.field == "Content-Type" && !strings.Contains(a.body, f.media) {
				t.Errorf("%s: it does not say what is right: %.200s", where, a.body)
			}
			if q.status == 500 && (!strings.Contains(log.String(), "goroutine") || !strings.Contains(log.String(), id) || !strings.Contains(log.String(), "secret")) {
				t.Errorf("%s: the log has %.500s", where, log.String())
			}
			if q.status == 0 || f.pages && q.page {
				continue
			}
			want := "request.malformed"
			if q.status == 500 {
				want = "internal"
			}
			if p := a.problem(t); p.Code != want || p.Field != q.field || p.RequestID != id || !strings.Contains(log.String(), id) {
				t.Errorf("%s: %.300s\nand in the log %.300s", where, a.body, log.String())
			}
		}
	}
}
