// Package fetch implements comm.fetch without the guards: it gets one URL from the web and returns what a reader would see there.
//
// HTML becomes Markdown with its links; Markdown, plain text, JSON and XML stay as they are; PNG, JPEG, GIF, WebP and PDF are given as bytes; other
// types are refused. Text is always valid UTF-8 and never longer than Options.MaxText. Neither cookies nor credentials are sent.
//
// Promises: a declared type is checked against the bytes, and a wrong one is refused. Text that no reader sees is left out of a page's Markdown
// and text: scripts, comments, templates, form fields, elements with hidden, aria-hidden, popover or an inline style that hides them: by display,
// visibility, opacity, a size or scale of nothing, a clip without area, a transparent colour, or a place outside of the page. What a style
// sheet or a script hides is not found, nor text in the colour of its ground or behind something else, masks, blurs, what CSS computes (calc
// with more than a number, var) or animates, or what only several declarations hide together; that remains for the threat stage. Links are absolute and go to
// http, https or mailto. The time that a page takes is linear in its length, however it is nested.
//
// The readable part of a page is the page, but for nav, header, footer and aside outside of main and article, where there are such.
//
// A fresh page may come from the cache, which all sessions share: it holds only answers that a shared cache may keep, from public addresses, by
// URLs without a query, and one is given only after egress has judged each URL on its way again. Everything in a page comes from outside; the corridor fences it.
package fetch

import (
	"context"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/egress"
	"sallyport.example/internal/fault"
)

const (
	defaultMaxText = 1 << 20
	defaultMaxData = 5 << 20
	maxBody        = 1 << 20
)

// Options say how pages are fetched.
type Options struct {
	Web      *egress.Client
	Cache    string           // folder, made with mode 0700; "": nothing is kept
	MaxText  int              // bytes of a page's text; 0: 1 MiB. What is longer is cut
	MaxImage int64            // bytes; 0: 5 MiB. A larger one is refused
	MaxPDF   int64            // the same
	Methods  []string         // besides GET and HEAD; only POST exists. It is a write
	Clock    func() time.Time // nil: time.Now
}

// Fetcher fetches pages. It may be used concurrently.
type Fetcher struct {
	web              *egress.Client
	cache            *cache // or nil
	maxText          int
	maxImage, maxPDF int64
	methods          []string
	now              func() time.Time
	public           func(*egress.Response) bool // tests keep pages of this machine, too
}

// New makes a fetcher and, if there is to be one, opens its cache. The error is ConfigurationInvalid.
func New(o Options) (*Fetcher, error) {
	f := &Fetcher{web: o.Web, maxText: o.MaxText, maxImage: o.MaxImage, maxPDF: o.MaxPDF, methods: o.Methods, now: o.Clock,
		public: func(r *egress.Response) bool { return r.Public }}
	if o.Web == nil {
		return nil, fault.New(fault.ConfigurationInvalid, "comm.fetch has no way to the web.")
	}
	if o.MaxText < 0 || o.MaxImage < 0 || o.MaxPDF < 0 {
		return nil, fault.New(fault.ConfigurationInvalid, "A size limit of comm.fetch is negative.").Try("Leave it out for the default.")
	}
	for _, m := range o.Methods {
		if m != http.MethodPost {
			return nil, fault.New(fault.ConfigurationInvalid, "comm.fetch can't use the method %.20q.", m).At("methods").Try("GET and HEAD are always there; POST can be added.")
		}
	}
	if f.maxText == 0 {
		f.maxText = defaultMaxText
	}
	if f.maxImage == 0 {
		f.maxImage = defaultMaxData
	}
	if f.maxPDF == 0 {
		f.maxPDF = defaultMaxData
	}
	if f.now == nil {
		f.now = time.Now
	}
	if o.Cache != "" {
		c, err := openCache(o.Cache, f.maxText, max(f.maxImage, f.maxPDF))
		if err != nil {
			return nil, err
		}
		f.cache = c
	}
	return f, nil
}

// Close lets the cache's folder go.
func (f *Fetcher) Close() error {
	if f.cache == nil {
		return nil
	}
	return f.cache.root.Close()
}

// Request says what to fetch.
type Request struct {
	URL         string
	Method      string // "" is GET
	Body        string // of a POST
	ContentType string // of Body; needed where there is one
	Format      string // of HTML: "markdown" (or ""), "text" (what is seen, without links), or "raw" (the source, with what it hides)
}

// Page is the answer, of whatever status. Text of a page whose status is 400 or above begins with a line that names it.
type Page struct {
	URL       string   // the last one, after redirects
	Hops      []string // every URL gone through, in order; the last is URL
	Status    int
	MediaType string // as it was treated: "text/html", "image/png"
	Charset   string // of text, as it was read: "utf-8", "windows-1252"
	Title     string // of HTML; one line
	Text      string
	Data      []byte // of an image or PDF, instead of Text
	Truncated bool   // Text was longer, or HTML was more than is read
	FromCache bool
	FetchedAt time.Time // when the server gave it, or last confirmed that it is unchanged
}

// The Accept header of each format. With the URL it is the key of a cached page.
var accepts = map[string]string{
	"markdown": "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, text/plain;q=0.8, application/json;q=0.8, application/xml;q=0.7, image/png;q=0.5, image/jpeg;q=0.5, image/webp;q=0.5, image/gif;q=0.5, application/pdf;q=0.4",
	"text":     "text/plain, text/markdown;q=0.9, text/html;q=0.9, application/xhtml+xml;q=0.9, application/json;q=0.8, application/xml;q=0.7, image/png;q=0.5, image/jpeg;q=0.5, image/webp;q=0.5, image/gif;q=0.5, application/pdf;q=0.4",
	"raw":      "text/html, application/xhtml+xml, application/json, application/xml;q=0.9, text/*;q=0.9, image/png;q=0.5, image/jpeg;q=0.5, image/webp;q=0.5, image/gif;q=0.5, application/pdf;q=0.4",
}

// Writes tells whether a method counts as a write: all but GET (also as "") and HEAD do, known or not.
func (f *Fetcher) Writes(method string) bool {
	return method != "" && method != http.MethodGet && method != http.MethodHead
}

// Fetch fetches one page. Its errors are *fault.Error: RequestMalformed and PermissionDenied for what r asks, those of egress.Client.Do,
// ResultInvalid for a type that is not served or not what it says, and ResultTooLarge for an image or PDF above its bound.
func (f *Fetcher) Fetch(ctx context.Context, r Request) (*Page, error) {
	if err := f.check(&r); err != nil {
		return nil, err
	}
	ask := egress.Request{Method: r.Method, URL: r.URL, Header: http.Header{"Accept": {accepts[r.Format]}}, Body: []byte(r.Body)}
	if r.ContentType != "" {
		ask.Header.Set("Content-Type", r.ContentType)
	}
	cached := f.cache != nil && r.Method == http.MethodGet && !personal(r.URL)
	var old *record
	if cached {
		old = f.cache.get(r.URL, accepts[r.Format])
		if old != nil && slices.ContainsFunc(old.Hops, func(hop string) bool { return f.web.Check(hop) != nil }) {
			old = nil // the policy has changed; egress says what it says now
		}
		if old != nil && old.fresh(f.now()) {
			return old.page(), nil
		}
	}
	old.condition(ask.Header)
	resp, err := f.web.Do(ctx, ask)
	if err == nil && resp.Status == http.StatusNotModified && old != nil && !slices.Equal(resp.Hops, old.Hops) {
		// Another server than the one whose tag was sent says that its page is unchanged: it is not known which page that is.
		old = nil
		ask.Header.Del("If-None-Match")
		ask.Header.Del("If-Modified-Since")
		resp, err = f.web.Do(ctx, ask)
	}
	if err != nil {
		return nil, err
	}
	now := f.now().UTC()
	if resp.Status == http.StatusNotModified {
		if old == nil {
			return nil, fault.New(fault.ResultInvalid, "The server says that the page is unchanged, but it was not asked that.").Try(elsewhere)
		}
		old.renew(resp.Header, now)
		f.keep(old, resp)
		return old.page(), nil
	}
	p, err := f.read(r, resp)
	if err != nil {
		return nil, err
	}
	p.URL, p.Hops, p.Status, p.FetchedAt = resp.URL, resp.Hops, resp.Status, now
	if cached && resp.Status == http.StatusOK {
		f.keep(newRecord(r.URL, accepts[r.Format], p, resp.Header), resp)
	}
	return p, nil
}

// keep puts a page into the cache, which all sessions can read, where it is one for all: from servers of the internet at large, by URLs that
// carry nothing of their caller.
func (f *Fetcher) keep(r *record, resp *egress.Response) {
	if !f.public(resp) || slices.ContainsFunc(resp.Hops, personal) {
		f.cache.remove(r)
		return
	}
	f.cache.put(r, resp.Header)
}

// personal tells whether a URL has a query or parameters in its path, which can hold tokens, names and search terms.
func personal(url string) bool { return strings.ContainsAny(url, "?;") }

func (f *Fetcher) methodsHelp() string {
	if slices.Contains(f.methods, http.MethodPost) {
		return "Use GET, HEAD or POST, in capitals."
	}
	return "Use GET or HEAD, in capitals; an operator can allow POST under comm.methods."
}

// check refuses requests that can't be made, and sets the defaults.
func (f *Fetcher) check(r *Request) error {
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	if r.Format == "" {
		r.Format = "markdown"
	}
	r.URL, _, _ = strings.Cut(r.URL, "#") // a place in the page; a server never sees it
	switch {
	case accepts[r.Format] == "":
		return fault.New(fault.RequestMalformed, "There is no format %.20q.", r.Format).At("format").Try(`Ask for "markdown", "text" or "raw".`)
	case f.Writes(r.Method) && !slices.Contains(f.methods, r.Method):
		return fault.New(fault.PermissionDenied, "The method %.20q is not allowed.", r.Method).At("method").Try("%s", f.methodsHelp())
	case r.Body == "" && r.ContentType == "":
		return nil
	case r.Method != http.MethodPost:
		return fault.New(fault.RequestMalformed, "A %s request has no body.", r.Method).At("body")
	case len(r.Body) > maxBody:
		return fault.New(fault.RequestMalformed, "The body is larger than 1 MiB.").At("body")
	}
	if _, _, err := mime.ParseMediaType(r.ContentType); err != nil {
		return fault.New(fault.RequestMalformed, "The body has no valid media type.").At("content_type").Try(`Write one, as "application/json".`)
	}
	return nil
}
