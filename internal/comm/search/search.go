// Package search answers comm.search: from a web search service that the operator chose, or, without any account, from the texts
// at hand.
//
// Promises: one shape of hits from every provider; never more of them than was asked for, and never longer ones than Hit says; links
// lead to http and https only. A service's answer is bounded and parsed strictly, and redirects are not followed. A key is never
// in an error, nor is a service's URL, which may hold one. Whatever a query holds, it is text to look for, not a language.
package search

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// Config names a search service. The zero Config is the local search.
type Config struct {
	// Provider is "local" (or ""), "searxng", "brave", "tavily" or "opensearch".
	Provider string

	// URL is the address of the service. searxng: the instance, as http://127.0.0.1:8888. brave and tavily: "" is the public service.
	// opensearch: a template with {query}, and {count} if the service knows one, in its query string.
	URL string

	// Key is the account's. brave and tavily need one; opensearch and searxng send it as a bearer token. It goes over https, or
	// http to this machine.
	Key string

	// The places of the fields in an opensearch answer, as names of members joined by dots: Results names the list ("" when the answer is the
	// list), the others into one result. Results, Snippet and Published may be "".
	Results, Title, Link, Snippet, Published string

	// Timeout bounds one search; 0 is 10 s, at most 30 s (EX-6).
	Timeout time.Duration
}

// Hit is one result. Every text is valid UTF-8 on one line.
type Hit struct {
	Title     string `json:"title"`               // at most 300 characters
	URL       string `json:"url"`                 // http or https; of a local file that is no fetched page its path
	Snippet   string `json:"snippet"`             // at most 1000 characters
	Published string `json:"published,omitempty"` // as the service wrote it; at most 64 characters
	Path      string `json:"path,omitempty"`      // of a local hit: where its text is in its file system
	Source    string `json:"source"`              // the provider
}

const (
	maxQuery     = 400 // bytes
	maxCount     = 20
	defaultCount = 10
	maxAnswer    = 2 << 20 // bytes, after decompression
	maxTitle     = 300
	maxSnippet   = 1000
	maxPublished = 64
	maxURL       = 2048 // bytes

	defaultTimeout = 10 * time.Second
	maxTimeout     = 30 * time.Second
)

// Searcher searches. It may be used by many at a time.
type Searcher struct {
	cfg      Config
	provider provider
	client   *http.Client // nil for the local search
}

// provider is one kind of service: how it is asked, and how its checked JSON is read.
type provider struct {
	request func(c Config, query string, count int) (*http.Request, error)
	shape   func(c Config) shape
}

var providers = map[string]provider{
	"searxng":    {searxng, func(Config) shape { return shape{"results", "title", "url", "content", "publishedDate"} }},
	"brave":      {brave, func(Config) shape { return shape{"web.results", "title", "url", "description", "page_age"} }},
	"tavily":     {tavily, func(Config) shape { return shape{"results", "title", "url", "content", "published_date"} }},
	"opensearch": {opensearch, func(c Config) shape { return shape{c.Results, c.Title, c.Link, c.Snippet, c.Published} }},
}

const (
	braveURL  = "https://api.search.brave.com/res/v1/web/search"
	tavilyURL = "https://api.tavily.com/search"
)

// CheckConfig returns the problem of c, as a configuration.invalid that names the field.
func CheckConfig(c Config) error {
	bad := func(field, format string, args ...any) *fault.Error {
		return fault.New(fault.ConfigurationInvalid, format, args...).At(field)
	}
	if c.Timeout < 0 || c.Timeout > maxTimeout {
		return bad("timeout", "must be between 0 and %s", maxTimeout)
	}
	if c.local() {
		if c.URL != "" || c.Key != "" {
			return bad("provider", "the local search takes no url and no key").Try(`Name a provider, or leave them out.`)
		}
	} else if _, ok := providers[c.Provider]; !ok {
		return bad("provider", "is not a known search provider").Try("Use local, searxng, brave, tavily or opensearch.")
	}
	if c.Provider != "opensearch" && c.Results+c.Title+c.Link+c.Snippet+c.Published != "" {
		return bad("results", "names of members are only for the provider opensearch")
	}
	if c.local() {
		return nil
	}
	if c.Key == "" && (c.Provider == "brave" || c.Provider == "tavily") {
		return bad("key", "is missing; %s needs one", c.Provider)
	}
	for i := range len(c.Key) {
		if c.Key[i] <= ' ' || c.Key[i] > '~' {
			return bad("key", "holds a space or a character that is not ASCII")
		}
	}
	if c.URL == "" {
		if c.Provider == "searxng" || c.Provider == "opensearch" {
			return bad("url", "is missing; %s has no public address", c.Provider)
		}
		return nil
	}
	address := c.URL
	if c.Provider == "opensearch" {
		before, query, _ := strings.Cut(address, "?")
		if strings.ContainsAny(before, "{}") || !strings.Contains(query, "{query}") {
			return bad("url", "must have {query} after its question mark, and no placeholder before it").Try("For example https://search.example/api?q={query}&n={count}")
		}
		address = expand(address, "q", 1)
	}
	u, err := url.Parse(address) // the error would show the address, which may hold a key
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.ContainsAny(address, "{}") {
		return bad("url", "is not an http or https address")
	}
	if u.User != nil || u.Fragment != "" {
		return bad("url", "must have no user, password or fragment").Try("Put the account's key in key.")
	}
	if c.Provider != "opensearch" && u.RawQuery != "" {
		return bad("url", "must have no query string")
	}
	if c.Key != "" && u.Scheme == "http" && !loopback(u.Hostname()) {
		return bad("url", "would send the key without encryption").Try("Use https.")
	}
	if c.Provider == "opensearch" && (c.Title == "" || c.Link == "") {
		return bad("title", "opensearch needs to know the members title and link")
	}
	return nil
}

func (c Config) local() bool { return c.Provider == "" || c.Provider == "local" }

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// New returns a Searcher. It asks through client, or, when that is nil, through one of its own that takes no proxy from the
// environment; either way without following redirects or keeping cookies.
func New(c Config, client *http.Client) (*Searcher, error) {
	if err := CheckConfig(c); err != nil {
		return nil, err
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	s := &Searcher{cfg: c}
	if c.local() {
		return s, nil
	}
	s.provider = providers[c.Provider]
	if client == nil {
		client = &http.Client{Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			ForceAttemptHTTP2:      true,
			TLSHandshakeTimeout:    10 * time.Second,
			IdleConnTimeout:        30 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
		}}
	}
	own := *client
	own.Jar = nil
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s.client = &own
	return s, nil
}

// Local tells whether nothing is asked over the network.
func (s *Searcher) Local() bool { return s.cfg.local() }

// Search gives at most count hits, the best first; count 0 is 10, and 20 is the most. Where local is given, or there is no service, it looks
// through local, whose Open must not block on pipes, and asks no service. Errors: request.malformed (query, count), upstream.failed, time.exceeded.
func (s *Searcher) Search(ctx context.Context, query string, count int, local []fs.FS) ([]Hit, error) {
	if err := checkQuery(query); err != nil {
		return nil, err
	}
	if count < 0 || count > maxCount {
		return nil, fault.New(fault.RequestMalformed, "count must be between 1 and %d", maxCount).At("count")
	}
	if count == 0 {
		count = defaultCount
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if s.Local() || local != nil {
		return searchLocal(ctx, query, count, local)
	}
	data, err := s.ask(ctx, query, count)
	if err != nil {
		return nil, err
	}
	hits, err := s.provider.shape(s.cfg).hits(data, count)
	if err != nil {
		return nil, s.failed(err, "gave an answer that is not the JSON it should be.")
	}
	for i := range hits {
		hits[i].Source = s.cfg.Provider
	}
	return hits, nil
}

func checkQuery(query string) error {
	bad := func(format string, args ...any) error {
		return fault.New(fault.RequestMalformed, format, args...).At("query")
	}
	switch {
	case len(query) > maxQuery:
		return bad("the query is over the limit of %d bytes", maxQuery)
	case !utf8.ValidString(query):
		return bad("the query is not UTF-8")
	case strings.ContainsFunc(query, unicode.IsControl):
		return bad("the query holds control characters")
	case strings.TrimSpace(query) == "":
		return bad("the query is empty")
	}
	return nil
}

// failed is an upstream.failed whose sentence begins with the provider.
func (s *Searcher) failed(cause error, format string, args ...any) error {
	return fault.Wrap(cause, fault.UpstreamFailed, "The search service (%s) %s", s.cfg.Provider, fmt.Sprintf(format, args...))
}

// bare keeps the part of an error that is about the connection. The rest quotes the address, which may hold a key, or the answer of the service,
// which may repeat the request.
func bare(err error) error {
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &op):
		return op
	case errors.As(err, &cert):
		return cert
	}
	return errors.New("the answer is not valid HTTP, or ended early")
}

// ask sends the request and gives the answer's bytes, checked to be strict JSON.
func (s *Searcher) ask(ctx context.Context, query string, count int) ([]byte, error) {
	req, err := s.provider.request(s.cfg, query, count)
	if err != nil {
		return nil, s.failed(nil, "can't be asked.")
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "sallyport")
	ended := func(err error, what string) error {
		if cause := ctx.Err(); cause != nil {
			return fault.Wrap(cause, fault.TimeExceeded, "The search service (%s) did not answer in time.", s.cfg.Provider)
		}
		return s.failed(bare(err), "%s", what)
	}
	res, err := s.client.Do(req.WithContext(ctx))
	if err != nil {
		return nil, ended(err, "can't be reached.")
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusOK:
	case res.StatusCode >= 300 && res.StatusCode < 400:
		return nil, s.failed(nil, "answered with a redirect (%d), which is not followed.", res.StatusCode)
	case res.StatusCode == http.StatusTooManyRequests:
		return nil, s.failed(nil, "wants fewer requests (429).")
	case res.StatusCode == http.StatusUnauthorized, res.StatusCode == http.StatusForbidden:
		return nil, s.failed(nil, "refused the gateway's request (%d); its account or its settings are for the operator to check.", res.StatusCode)
	default:
		return nil, s.failed(nil, "answered %d.", res.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return nil, ended(err, "broke off its answer.")
	}
	if len(data) > maxAnswer {
		return nil, s.failed(nil, "answered with more than %d bytes.", maxAnswer)
	}
	if call.Check(data, call.Limits{Bytes: maxAnswer, Depth: 64, Members: 100_000}) != nil { // the error quotes the answer
		return nil, s.failed(nil, "gave an answer that is not the JSON it should be.")
	}
	return data, nil
}
