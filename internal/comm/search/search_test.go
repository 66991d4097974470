package search

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"
	"unicode/utf8"

	"sallyport.example/internal/fault"
)

const key = "tvly-SECRETKEY123"

// config is how each provider is reached at a fake.
func config(provider, at string) Config {
	switch provider {
	case "searxng":
		return Config{Provider: provider, URL: at}
	case "opensearch":
		return Config{Provider: provider, URL: at + "/api?q={query}&n={count}&api_key=" + key, Results: "response.items", Title: "name", Link: "at.href", Snippet: "text"}
	}
	return Config{Provider: provider, URL: at, Key: key}
}

var remote = []string{"searxng", "brave", "tavily", "opensearch"}

// fake answers as the services do, and refuses what they would refuse.
func fake(t *testing.T, provider, query string, count int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		want := func(what, got, want string) {
			if got != want {
				t.Errorf("%s: %s is %q, not %q", provider, what, got, want)
			}
		}
		want("Accept", r.Header.Get("Accept"), "application/json")
		want("User-Agent", r.Header.Get("User-Agent"), "sallyport")
		v := r.URL.Query()
		w.Header().Set("Content-Type", "application/json")
		switch provider {
		case "searxng":
			want("request", r.Method+" "+r.URL.Path, "GET /search")
			want("q", v.Get("q"), query)
			want("format", v.Get("format"), "json")
			io.WriteString(w, `{"query":"q","number_of_results":0,"results":[
				{"url":"https://a.example/1","title":"One","content":"first","publishedDate":"2026-01-31T00:00:00","engine":"duckduckgo","parsed_url":["https","a.example","/1","","",""],"engines":["x"],"positions":[1],"score":1.0,"category":"general"},
				{"url":"https://a.example/2","title":"Two","content":"","publishedDate":null,"engine":"bing"},
				{"url":"https://a.example/3","title":"Three","content":"c"}],"answers":[],"corrections":[],"infoboxes":[],"suggestions":["x"],"unresponsive_engines":[["x","timeout"]]}`)
		case "brave":
			want("method", r.Method, "GET")
			want("q", v.Get("q"), query)
			want("count", v.Get("count"), fmt.Sprint(count))
			want("key", r.Header.Get("X-Subscription-Token"), key)
			want("Authorization", r.Header.Get("Authorization"), "")
			io.WriteString(w, `{"type":"search","query":{"original":"q","more_results_available":true},"mixed":{"type":"mixed","main":[{"type":"web","index":0,"all":false}]},"web":{"type":"search","results":[
				{"title":"One","url":"https://a.example/1","is_source_local":false,"description":"first","page_age":"2026-01-31T00:00:00","profile":{"name":"A"},"language":"en","meta_url":{"scheme":"https"}},
				{"title":"Two","url":"https://a.example/2","description":""},{"title":"Three","url":"https://a.example/3","description":"c"}],"family_friendly":true}}`)
		case "tavily":
			want("method", r.Method, "POST")
			want("key", r.Header.Get("Authorization"), "Bearer "+key)
			want("Content-Type", r.Header.Get("Content-Type"), "application/json")
			var body struct {
				Query      string `json:"query"`
				MaxResults int    `json:"max_results"`
			}
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				t.Error(err)
			}
			want("query", body.Query, query)
			want("max_results", fmt.Sprint(body.MaxResults), fmt.Sprint(count))
			io.WriteString(w, `{"query":"q","follow_up_questions":null,"answer":null,"images":[],"results":[
				{"title":"One","url":"https://a.example/1","content":"first","score":0.99,"raw_content":null,"published_date":"2026-01-31T00:00:00"},
				{"title":"Two","url":"https://a.example/2","content":"","score":0.5},{"title":"Three","url":"https://a.example/3","content":"c","score":0.1}],"response_time":1.67,"request_id":"x"}`)
		case "opensearch":
			want("request", r.Method+" "+r.URL.Path, "GET /api")
			want("q", v.Get("q"), query)
			want("n", v.Get("n"), fmt.Sprint(count))
			io.WriteString(w, `{"response":{"items":[{"name":"One","at":{"href":"https://a.example/1"},"text":"first"},{"name":"Two","at":{"href":"https://a.example/2"}},{"name":"Three","at":{"href":"https://a.example/3"},"text":["c"]}]}}`)
		}
	}
}

func TestProviders(t *testing.T) {
	for _, provider := range remote {
		t.Run(provider, func(t *testing.T) {
			const query = `price of "X" & {count} +1 {query} 50%? #é NEAR/2 ../..`
			srv := httptest.NewServer(fake(t, provider, query, 2))
			defer srv.Close()
			s, err := New(config(provider, srv.URL), nil)
			if err != nil {
				t.Fatal(err)
			}
			if s.Local() {
				t.Error("is local")
			}
			hits, err := s.Search(t.Context(), query, 2, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := []Hit{{Title: "One", URL: "https://a.example/1", Snippet: "first", Published: "2026-01-31T00:00:00", Source: provider}, {Title: "Two", URL: "https://a.example/2", Source: provider}}
			if provider == "opensearch" {
				want[0].Published = ""
			}
			if !reflect.DeepEqual(hits, want) {
				t.Errorf("%+v", hits)
			}
		})
	}
}

// The whole set of ways in which a service can be bad, at every provider: a safe error in bounded time, and no key in it.
func TestHostileServices(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	raw := func(bytes string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			io.WriteString(conn, bytes)
			conn.Close()
		}
	}
	hang := make(chan struct{})
	defer close(hang)
	for name, c := range map[string]struct {
		h    http.HandlerFunc
		code fault.Code
		says string
	}{
		"html":        {answer(200, "<!doctype html><p>"+key), fault.UpstreamFailed, "JSON"},
		"empty":       {answer(200, ""), fault.UpstreamFailed, "JSON"},
		"trailing":    {answer(200, `{"results":[],"web":{"results":[]},"response":{"items":[]}} {}`), fault.UpstreamFailed, "JSON"},
		"twice":       {answer(200, `{"results":[],"results":[]}`), fault.UpstreamFailed, "JSON"},
		"case":        {answer(200, `{"results":[],"Results":[]}`), fault.UpstreamFailed, "JSON"},
		"not UTF-8":   {answer(200, "{\"results\":[\"\xff\"]}"), fault.UpstreamFailed, "JSON"},
		"deep":        {answer(200, strings.Repeat("[", 100)+strings.Repeat("]", 100)), fault.UpstreamFailed, "JSON"},
		"many":        {answer(200, `{"results":[`+strings.Repeat("1,", 200_000)+`1]}`), fault.UpstreamFailed, "JSON"},
		"a list":      {answer(200, `[]`), fault.UpstreamFailed, "JSON"},
		"wrong types": {answer(200, `{"results":{"a":1},"web":{"results":"x"},"response":{"items":7}}`), fault.UpstreamFailed, "JSON"},
		"key quoted":  {answer(200, `{"results":`+key), fault.UpstreamFailed, "JSON"},
		"huge":        {answer(200, `{"results":["`+strings.Repeat("x", maxAnswer)+`"]}`), fault.UpstreamFailed, "more than"},
		"bomb": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			z.Write(bytes.Repeat([]byte(" "), 64<<20))
			z.Close()
		}, fault.UpstreamFailed, "more than"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, fault.UpstreamFailed, "redirect (307)"},
		"401":         {answer(401, key), fault.UpstreamFailed, "401"},
		"403":         {answer(403, ""), fault.UpstreamFailed, "403"},
		"429":         {answer(429, ""), fault.UpstreamFailed, "429"},
		"500":         {answer(500, ""), fault.UpstreamFailed, "500"},
		"204":         {answer(204, ""), fault.UpstreamFailed, "204"},
		"no HTTP":     {raw("X-Subscription-Token: " + key + "\r\n\r\n"), fault.UpstreamFailed, "reached"},
		"gone":        {raw(""), fault.UpstreamFailed, "reached"},
		"broken off":  {raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"), fault.UpstreamFailed, "broke off"},
		"long header": {raw("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n{}"), fault.UpstreamFailed, "reached"},
		"slow":        {func(http.ResponseWriter, *http.Request) { <-hang }, fault.TimeExceeded, "in time"},
		"slow body": {func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "{")
			w.(http.Flusher).Flush()
			<-hang
		}, fault.TimeExceeded, "in time"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewUnstartedServer(c.h)
			srv.Config.ErrorLog = nil
			srv.Start()
			for _, provider := range remote {
				cfg := config(provider, srv.URL)
				if c.code == fault.TimeExceeded {
					cfg.Timeout = 20 * time.Millisecond
				}
				s, err := New(cfg, nil)
				if err != nil {
					t.Fatal(err)
				}
				hits, err := s.Search(t.Context(), "query words", 5, nil)
				if hits != nil || !fault.Is(err, c.code) || !strings.Contains(fault.Of(err).Public(), c.says) {
					t.Fatalf("%s: %v, %v", provider, hits, err)
				}
				if strings.Contains(err.Error(), key) || strings.Contains(err.Error(), "query") || strings.Contains(fault.Of(err).Public(), "127.0.0.1") {
					t.Errorf("%s: says too much: %v", provider, err)
				}
			}
		})
	}
	s, err := New(config("tavily", "http://127.0.0.1:1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Search(t.Context(), "q", 1, nil); !fault.Is(err, fault.UpstreamFailed) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Search(ctx, "q", 1, nil); !fault.Is(err, fault.TimeExceeded) {
		t.Error(err)
	}
}

// A caller's client is used, but neither its jar nor its redirects, and it is not changed.
func TestCallersClient(t *testing.T) {
	used := 0
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		used++
		return &http.Response{StatusCode: 302, Header: http.Header{"Location": {"https://other.example/"}, "Set-Cookie": {"who=gateway"}}, Body: http.NoBody, Request: r}, nil
	})}
	s, err := New(config("brave", "https://brave.example/x"), client)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Search(t.Context(), "q", 1, nil); !fault.Is(err, fault.UpstreamFailed) || used != 1 || client.CheckRedirect != nil {
		t.Errorf("%v, used %d times", err, used)
	}
	if kept := jar.Cookies(&url.URL{Scheme: "https", Host: "brave.example", Path: "/x"}); len(kept) != 0 {
		t.Errorf("kept %v", kept)
	}
}

// endless is an answer without an end.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.read += len(p)
	return len(p), nil
}

func TestAnswerIsBoundedWhileRead(t *testing.T) {
	body := &endless{}
	client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: io.NopCloser(io.LimitReader(body, 64<<20)), Request: r}, nil
	})}
	s, err := New(config("brave", ""), client)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Search(t.Context(), "q", 1, nil); !fault.Is(err, fault.UpstreamFailed) || body.read > 2*maxAnswer {
		t.Errorf("%v after %d bytes", err, body.read)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The environment's proxy must see no query.
func TestNoProxy(t *testing.T) {
	s, err := New(config("searxng", "http://searx.example"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if tr, ok := s.client.Transport.(*http.Transport); !ok || tr.Proxy != nil {
		t.Error("the own client takes a proxy from the environment")
	}
}

func TestHits(t *testing.T) {
	sh := shape{"r", "t", "u", "s", "p"}
	long := strings.Repeat("é ", 5000)
	data, err := json.Marshal(map[string]any{"r": []any{
		map[string]any{"t": "javascript", "u": "javascript:alert(1)"},
		map[string]any{"t": "file", "u": "file:///etc/passwd"},
		map[string]any{"t": "ftp", "u": "ftp://a.example/x"},
		map[string]any{"t": "relative", "u": "/x"},
		map[string]any{"t": "no host", "u": "https:///x"},
		map[string]any{"t": "user", "u": "https://bank.example@evil.example/"},
		map[string]any{"t": "long", "u": "https://a.example/" + strings.Repeat("x", maxURL)},
		map[string]any{"t": "control", "u": "https://a.example/\n"},
		map[string]any{"t": "absent"},
		map[string]any{"t": "typed", "u": 7},
		"string", nil, 7, []any{},
		map[string]any{"t": long, "u": "HTTPS://a.example/\u00e9 x", "s": long, "p": long},
		map[string]any{"t": " A &amp; B\n\x1b[31m\u2028<b>c</b> ", "u": "http://b.example", "s": strings.Repeat("\u00e9", 5000), "p": 1769817600},
		map[string]any{"u": "http://c.example", "t": map[string]any{}},
		map[string]any{"u": "http://d.example"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	hits, err := sh.hits(data, 3)
	if err != nil || len(hits) != 3 {
		t.Fatalf("%+v, %v", hits, err)
	}
	for i, want := range []string{"https://a.example/%C3%A9%20x", "http://b.example", "http://c.example"} {
		if hits[i].URL != want {
			t.Errorf("%q, not %q", hits[i].URL, want)
		}
	}
	if a := hits[0]; utf8.RuneCountInString(a.Title) > maxTitle || utf8.RuneCountInString(a.Title) < maxTitle-1 || utf8.RuneCountInString(a.Snippet) > maxSnippet || utf8.RuneCountInString(a.Published) > maxPublished {
		t.Errorf("%d %d %d", len(a.Title), len(a.Snippet), len(a.Published))
	}
	if a := hits[1]; a.Title != "A & B [31m <b>c</b>" || a.Snippet != strings.Repeat("é", maxSnippet) || a.Published != "1769817600" {
		t.Errorf("%+v", a)
	}
	if hits[2].Title != "http://c.example" {
		t.Errorf("%+v", hits[2])
	}
	// The ways to say that there is nothing, and what is not one of them.
	for _, c := range []struct {
		path, data string
		ok         bool
	}{
		{"r", `{"r":[]}`, true}, {"r", `{"r":null}`, true}, {"r", `{}`, false}, {"web.results", `{"type":"search"}`, true}, {"web.results", `{"web":{}}`, true},
		{"web.results", `{"web":7}`, true}, {"", `[]`, true}, {"", `{}`, false}, {"r", `[]`, false}, {"r", `"r"`, false}, {"r", `null`, false}, {"r", `{"r":{}}`, false},
	} {
		if hits, err := (shape{results: c.path, link: "u"}).hits([]byte(c.data), 5); (err == nil) != c.ok || len(hits) != 0 || c.ok && hits == nil {
			t.Errorf("%+v: %v, %v", c, hits, err)
		}
	}
}

func TestQueryAndCount(t *testing.T) {
	s, err := New(Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"", "  \u3000", strings.Repeat("x", 401), "a\x00b", "a\nb", "\xff", "a\u0085"} {
		if _, err := s.Search(t.Context(), q, 1, nil); !fault.Is(err, fault.RequestMalformed) || fault.Of(err).Field != "query" {
			t.Errorf("%q: %v", q, err)
		}
	}
	for _, n := range []int{-1, 21} {
		if _, err := s.Search(t.Context(), "q", n, nil); !fault.Is(err, fault.RequestMalformed) || fault.Of(err).Field != "count" {
			t.Errorf("%d: %v", n, err)
		}
	}
	if hits, err := s.Search(t.Context(), strings.Repeat("x", 400), 20, nil); err != nil || hits == nil || len(hits) != 0 {
		t.Errorf("%v, %v", hits, err)
	}
}

func TestCheckConfig(t *testing.T) {
	good := Config{Provider: "opensearch", URL: "https://s.example/?q={query}", Title: "t", Link: "l"}
	for _, c := range []Config{
		{}, {Provider: "local"}, {Provider: "searxng", URL: "http://searx:8080/"}, {Provider: "searxng", URL: "http://127.0.0.1:8888/search"},
		{Provider: "brave", Key: "k"}, {Provider: "tavily", Key: "k", URL: "http://[::1]:1/"}, {Provider: "tavily", Key: "k", Timeout: maxTimeout}, good,
	} {
		if err := CheckConfig(c); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	with := func(change func(*Config)) Config { c := good; change(&c); return c }
	for _, c := range []Config{
		{Provider: "google"}, {Provider: "Brave", Key: "k"}, {Provider: "local", URL: "http://x"}, {Key: "k"}, {Timeout: -1}, {Timeout: maxTimeout + 1},
		{Provider: "brave"}, {Provider: "tavily"}, {Provider: "searxng"}, {Provider: "opensearch", Title: "t", Link: "l"}, {Provider: "brave", Key: "a b"}, {Provider: "brave", Key: "a\n"},
		{Provider: "searxng", URL: "searx:8080"}, {Provider: "searxng", URL: "file:///x"}, {Provider: "searxng", URL: "http://u:p@x"}, {Provider: "searxng", URL: "http://x/#f"},
		{Provider: "searxng", URL: "http://x/?a=b"}, {Provider: "searxng", URL: "http://x/%zz" + key}, {Provider: "tavily", Key: "k", URL: "http://tavily.example/"}, {Provider: "brave", Key: "k", Title: "t"},
		with(func(c *Config) { c.URL = "https://s.example/" }), with(func(c *Config) { c.URL = "https://{query}.example/?q={query}" }),
		with(func(c *Config) { c.URL = "https://s.example/{query}" }), with(func(c *Config) { c.URL += "&x={other}" }), with(func(c *Config) { c.Link = "" }), with(func(c *Config) { c.Title = "" }),
	} {
		err := CheckConfig(c)
		if !fault.Is(err, fault.ConfigurationInvalid) || fault.Of(err).Field == "" {
			t.Errorf("%+v: %v", c, err)
		} else if strings.Contains(err.Error(), key) {
			t.Errorf("shows the key: %v", err)
		}
		if _, err := New(c, nil); err == nil {
			t.Errorf("%+v makes a searcher", c)
		}
	}
}

func local(t testing.TB, query string, count int, fsys ...fs.FS) []Hit {
	t.Helper()
	s, err := New(Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	hits, err := s.Search(context.Background(), query, count, fsys)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hits {
		if !utf8.ValidString(h.Title+h.Snippet) || strings.ContainsAny(h.Title+h.Snippet, "\n\x1b") || utf8.RuneCountInString(h.Title) > maxTitle || utf8.RuneCountInString(h.Snippet) > maxSnippet {
			t.Errorf("%q: %+v", query, h)
		}
	}
	return hits
}

func file(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }

func urls(hits []Hit) string {
	var all []string
	for _, h := range hits {
		all = append(all, h.URL)
	}
	return strings.Join(all, " ")
}

func TestLocal(t *testing.T) {
	filler := strings.Repeat("lorem ipsum dolor sit amet ", 200)
	fsys := fstest.MapFS{
		"fetched/prices.md":   file("\n# Price list 2026\n\nThe price of product X is 10 €.\nAll prices without tax."),
		"fetched/long.md":     file(filler + "the \x1b[31m price of " + filler + " product x " + filler),
		"fetched/other.md":    file("Nothing of interest, but product and product again."),
		"notes/中文.txt":        file("产品价格是十元"),
		"notes/caps.txt":      file("ÜBERGRÖSSE und Straße"),
		"product-price-x.csv": file("a;b"),
		"binary.bin":          file("price\x00price"),
		"latin1.txt":          file("price \xe4"),
		"link":                {Data: []byte("fetched/prices.md"), Mode: fs.ModeSymlink | 0o777},
		"pipe":                {Data: []byte("price product x"), Mode: fs.ModeNamedPipe | 0o600},
		"empty.txt":           file(""),
		"huge.txt":            file(strings.Repeat("é", maxDoc/2+5) + " price"),
		"deep/" + strings.Repeat("d/", maxFolders+1) + "f.txt": file("price product x"),
	}
	hits := local(t, "price product x", 0, fsys)
	if urls(hits) != "fetched/prices.md product-price-x.csv fetched/other.md fetched/long.md" {
		t.Errorf("%+v", hits)
	}
	if h := hits[0]; h.Title != "Price list 2026" || !strings.Contains(h.Snippet, "The price of product X is 10 €.") || h.Source != "local" {
		t.Errorf("%+v", h)
	}
	if h := hits[3]; !strings.Contains(h.Snippet, "product x") || !strings.HasPrefix(h.Snippet, "… ") || len(h.Snippet) > 2*around {
		t.Errorf("%+v", h)
	}
	for query, want := range map[string]string{
		"价格": "notes/中文.txt", "übergrösse": "notes/caps.txt", "taxs": "fetched/prices.md", "absent": "", "PRICES tax": "fetched/prices.md product-price-x.csv fetched/long.md",
		"interest": "fetched/other.md", "-- ;": "", "10 €": "fetched/prices.md",
		// What would mean something to a query language is only words.
		`"product" AND NOT interest*`: "fetched/other.md product-price-x.csv fetched/prices.md fetched/long.md", "title:tax OR 1=1": "fetched/prices.md", "NEAR(tax)": "fetched/prices.md", "') DROP TABLE tax --": "fetched/prices.md",
	} {
		if got := urls(local(t, query, 0, fsys)); got != want {
			t.Errorf("%q: %q, not %q", query, got, want)
		}
	}
	more := fstest.MapFS{"knowledge/x.md": file("price product x")}
	if got := urls(local(t, "price product x", 2, fsys, more)); got != "fetched/prices.md knowledge/x.md" {
		t.Errorf("two sources: %q", got)
	}
	if hits := local(t, "price", 5, fsys, brokenFS{}); len(hits) == 0 {
		t.Error("one broken source silences the others")
	}
}

// A page that comm.fetch brought is found by its own title and address, and its head is no text of it; what doesn't have that form, or lies
// elsewhere, is a file like any other.
func TestLocalPages(t *testing.T) {
	const head = "URL: https://shop.example/x?a=1\nStatus: 200\nType: text/html\n\n"
	long := "Title: Widgets\nURL: https://shop.example/" + strings.Repeat("x", maxURL) + "\n\nA widget."
	fsys := fstest.MapFS{
		"fetched/0.md": file("Title: Price list\n" + head + "# Product X\n\nIt costs 49 euros."),
		"fetched/1.md": file(head + "# Gadgets\n\nNone left."),
		"fetched/2.md": file("Title: Widgets\nURL: javascript:alert(1)\nStatus: 200\n\nA widget."),
		"fetched/3.md": file(long),
		"notes.md":     file("Title: Mine\n" + head + "A sprocket."),
	}
	for query, want := range map[string]Hit{
		"costs":        {Title: "Price list", URL: "https://shop.example/x?a=1", Path: "fetched/0.md", Snippet: "# Product X It costs 49 euros."},
		"list":         {Title: "Price list", URL: "https://shop.example/x?a=1", Path: "fetched/0.md", Snippet: "# Product X It costs 49 euros."},
		"gadgets left": {Title: "Gadgets", URL: "https://shop.example/x?a=1", Path: "fetched/1.md", Snippet: "# Gadgets None left."},
		"sprocket":     {Title: "Title: Mine", URL: "notes.md", Path: "notes.md"},
		"alert":        {Title: "Title: Widgets", URL: "fetched/2.md", Path: "fetched/2.md"},
	} {
		hits := local(t, query, 5, fsys)
		if len(hits) != 1 {
			t.Errorf("%q: %+v", query, hits)
			continue
		}
		want.Source = "local"
		if want.Snippet == "" {
			want.Snippet = hits[0].Snippet
		}
		if hits[0] != want {
			t.Errorf("%q: %+v, not %+v", query, hits[0], want)
		}
	}
	if hits := local(t, "status type html", 5, fsys); urls(hits) != "notes.md fetched/2.md" {
		t.Errorf("found by its head: %+v", hits)
	}
	if hits := local(t, "widget", 5, fstest.MapFS{"fetched/3.md": file(long)}); urls(hits) != "fetched/3.md" {
		t.Errorf("%+v", hits)
	}
}

type brokenFS struct{}

func (brokenFS) Open(string) (fs.File, error) { return nil, errors.New("broken") }

// The nearest words make the snippet, not the first.
func TestSnippet(t *testing.T) {
	text := "alpha at the start. " + strings.Repeat("filler ", 300) + "here alpha and beta meet. " + strings.Repeat("filler ", 300)
	if h := local(t, "alpha beta", 1, fstest.MapFS{"a": file(text)}); !strings.Contains(h[0].Snippet, "alpha and beta meet") {
		t.Errorf("%+v", h)
	}
}

func TestLocalBounds(t *testing.T) {
	many := fstest.MapFS{}
	for i := range maxDocs + 10 {
		many[fmt.Sprintf("%06d", i)] = file("word")
	}
	s := &localSearch{terms: map[string]int{"word": 0}, with: make([]int, 1)}
	if err := s.walk(t.Context(), many, ".", 0); err != nil || s.docs > maxDocs || len(s.best(20)) != 20 {
		t.Errorf("%d documents, %v", s.docs, err)
	}
	s = &localSearch{terms: map[string]int{"word": 0}, with: make([]int, 1), read: maxRead + 1}
	if err := s.walk(t.Context(), many, ".", 0); err != nil || s.docs > 0 {
		t.Errorf("%d documents, %v", s.docs, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := searchLocal(ctx, "word", 5, []fs.FS{many}); !fault.Is(err, fault.TimeExceeded) {
		t.Error(err)
	}
}

func FuzzAnswer(f *testing.F) {
	for _, s := range []string{`{"web":{"results":[{"title":"a","url":"https://a.example","description":"b","page_age":1}]}}`, `{"web":{"results":{}}}`, `{"web":null}`, `[]`, `{"web":{"results":[{"url":"http://a@b/"}]}}`, `{"web":{"results":[{"url":"http://a/\u0000"}]}}`} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, data []byte, count int) {
		if count < 1 || count > maxCount || len(data) > 1<<16 {
			return
		}
		client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(bytes.NewReader(data)), Request: r}, nil
		})}
		s, err := New(Config{Provider: "brave", Key: key}, client)
		if err != nil {
			t.Fatal(err)
		}
		hits, err := s.Search(t.Context(), "q", count, nil)
		if err != nil {
			if !fault.Is(err, fault.UpstreamFailed) {
				t.Fatal(err)
			}
			return
		}
		if len(hits) > count {
			t.Fatalf("%d hits for %d", len(hits), count)
		}
		for _, h := range hits {
			if !strings.HasPrefix(h.URL, "http://") && !strings.HasPrefix(h.URL, "https://") || len(h.URL) > maxURL || !utf8.ValidString(h.URL+h.Title+h.Snippet+h.Published) ||
				utf8.RuneCountInString(h.Title) > maxTitle || utf8.RuneCountInString(h.Snippet) > maxSnippet || utf8.RuneCountInString(h.Published) > maxPublished {
				t.Fatalf("%+v", h)
			}
		}
	})
}

// Whatever is looked for, the search ends without error and finds a document that is the query.
func FuzzLocalQuery(f *testing.F) {
	for _, q := range []string{"price", `"unbalanced`, "a AND", "col:*", "NEAR(a b, 5)", "^x", "a -b", "中文", "\u202eabc", "é\u0301", "--", "s", "ss", "İ"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, query string) {
		if checkQuery(query) != nil {
			return
		}
		hits := local(t, query, 3, fstest.MapFS{"a": file(query), "b": file("something else")})
		some := false
		words(query, func(string, int) bool { some = true; return false })
		found := false
		for _, h := range hits {
			found = found || h.URL == "a"
		}
		if found != some {
			t.Fatalf("%q has words: %v; found itself: %v", query, some, found)
		}
	})
}

func BenchmarkLocal1000(b *testing.B) {
	fsys := fstest.MapFS{}
	for i := range 1000 {
		fsys[fmt.Sprintf("fetched/%d.md", i)] = file(fmt.Sprintf("# Page %d\n\n%s number %d\n", i, strings.Repeat("some words of a page about things ", 30), i))
	}
	dir := b.TempDir()
	if err := os.CopyFS(dir, fsys); err != nil {
		b.Fatal(err)
	}
	onDisk := os.DirFS(dir)
	b.ReportAllocs()
	for b.Loop() {
		if hits := local(b, "page number 77", 10, onDisk); len(hits) != 10 || hits[0].URL != "fetched/77.md" {
			b.Fatal(hits)
		}
	}
}
