package fetch

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"sallyport.example/internal/fault"
)

const (
	cacheVersion = 2         // of the file's form, and of how text is extracted
	maxCache     = 256 << 20 // bytes of all files
	maxHead      = 64 << 10  // bytes of a file's first line
	maxFresh     = 24 * time.Hour
	tempPrefix   = "new-"
)

// record is one cached page. Its file is a line of JSON, then the text or the data as it is. The file's name is the SHA-256 of method, URL
// and Accept, in hexadecimal.
type record struct {
	Version      int       `json:"version"`
	Request      string    `json:"request"` // URL that was asked for
	Accept       string    `json:"accept"`
	URL          string    `json:"url"`
	Hops         []string  `json:"hops"`
	MediaType    string    `json:"media_type"`
	Charset      string    `json:"charset"`
	Title        string    `json:"title"`
	Truncated    bool      `json:"truncated"`
	IsData       bool      `json:"is_data"`
	MaxText      int       `json:"max_text"` // that it was cut to
	FetchedAt    time.Time `json:"fetched_at"`
	FreshUntil   time.Time `json:"fresh_until"`
	ETag         string    `json:"etag"`
	LastModified string    `json:"last_modified"`
	SHA256       string    `json:"sha256"` // of body
	body         []byte
}

func newRecord(request, accept string, p *Page, h http.Header) *record {
	r := &record{Version: cacheVersion, Request: request, Accept: accept, URL: p.URL, Hops: p.Hops, MediaType: p.MediaType, Charset: p.Charset,
		Title: p.Title, Truncated: p.Truncated, IsData: p.Data != nil, body: []byte(p.Text)}
	if r.IsData {
		r.body = p.Data
	}
	sum := sha256.Sum256(r.body)
	r.SHA256 = hex.EncodeToString(sum[:])
	r.renew(h, p.FetchedAt)
	return r
}

// renew takes over the lifetime of the page that an answer gives.
func (r *record) renew(h http.Header, now time.Time) {
	r.FetchedAt, r.FreshUntil = now, now.Add(freshFor(h))
	if tag := h.Get("ETag"); len(tag) <= 1024 && !strings.ContainsFunc(tag, func(r rune) bool { return r < ' ' || r > '~' }) {
		r.ETag = tag
	}
	if t, err := http.ParseTime(h.Get("Last-Modified")); err == nil {
		r.LastModified = t.UTC().Format(http.TimeFormat)
	}
}

// fresh tells whether the page holds without asking. A clock that went back makes it not.
func (r *record) fresh(now time.Time) bool {
	return !now.Before(r.FetchedAt) && now.Before(r.FreshUntil)
}

// condition asks only for what has changed since r.
func (r *record) condition(h http.Header) {
	if r == nil {
		return
	}
	if r.ETag != "" {
		h.Set("If-None-Match", r.ETag)
	}
	if r.LastModified != "" {
		h.Set("If-Modified-Since", r.LastModified)
	}
}

func (r *record) page() *Page {
	p := &Page{URL: r.URL, Hops: slices.Clone(r.Hops), Status: http.StatusOK, MediaType: r.MediaType, Charset: r.Charset, Title: r.Title,
		Truncated: r.Truncated, FromCache: true, FetchedAt: r.FetchedAt}
	if r.IsData {
		p.Data = r.body
	} else {
		p.Text = string(r.body)
	}
	return p
}

// directives reads Cache-Control; a name that stands twice counts as the first.
func directives(h http.Header) map[string]string {
	d := map[string]string{}
	for part := range strings.SplitSeq(strings.Join(h.Values("Cache-Control"), ","), ",") {
		name, value, _ := strings.Cut(part, "=")
		name = strings.ToLower(strings.TrimSpace(name))
		if _, twice := d[name]; !twice {
			d[name] = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return d
}

// storable tells whether a cache that sessions share may keep an answer: it must not be for one visitor, nor depend on headers that were not sent.
func storable(h http.Header) bool {
	d := directives(h)
	_, noStore := d["no-store"]
	_, private := d["private"]
	if noStore || private || len(h.Values("Set-Cookie")) > 0 {
		return false
	}
	for name := range strings.SplitSeq(strings.Join(h.Values("Vary"), ","), ",") {
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" && name != "accept" && name != "accept-encoding" {
			return false
		}
	}
	return true
}

// freshFor is the time for which an answer may be used without asking again; 0 or less if it gives none, or if it is over.
func freshFor(h http.Header) time.Duration {
	d := directives(h)
	if _, always := d["no-cache"]; always {
		return 0
	}
	age, ok := d["s-maxage"]
	if !ok {
		age = d["max-age"]
	}
	seconds, err := strconv.ParseUint(age, 10, 31)
	if err != nil {
		return 0
	}
	past, err := strconv.ParseUint(h.Get("Age"), 10, 31)
	if h.Get("Age") != "" && err != nil {
		return 0
	}
	return min((time.Duration(seconds)-time.Duration(past))*time.Second, maxFresh)
}

// cache keeps pages in a folder. It may lose pages: a page that can't be written is not kept, and one that can't be read is not there.
type cache struct {
	root    *os.Root
	maxText int
	maxFile int64
	max     int64

	mu    sync.Mutex // guards total, and is held while files are put and evicted
	total int64      // bytes of all files, about
}

func openCache(dir string, maxText int, maxData int64) (*cache, error) {
	wrong := func(err error, why string) (*cache, error) {
		return nil, fault.Wrap(err, fault.ConfigurationInvalid, "The cache folder %s.", why).At("cache").Try("Name a folder that only this user can read and write.")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return wrong(err, "can't be made")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return wrong(err, "can't be opened")
	}
	info, err := root.Stat(".")
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		root.Close()
		return wrong(err, "is open to others")
	}
	c := &cache{root: root, maxText: maxText, maxFile: maxHead + max(int64(maxText), maxData), max: maxCache}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.evict()
	return c, nil
}

func cacheName(request, accept string) string {
	sum := sha256.Sum256([]byte("GET\n" + request + "\n" + accept))
	return hex.EncodeToString(sum[:])
}

// get reads the page that was kept for a request, or nil. A file that is not exactly as put writes it is ignored.
func (c *cache) get(request, accept string) *record {
	name := cacheName(request, accept)
	info, err := c.root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > c.maxFile {
		return nil
	}
	file, err := c.root.Open(name)
	if err != nil {
		return nil
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, c.maxFile+1))
	if err != nil || int64(len(raw)) > c.maxFile {
		return nil
	}
	r := parseRecord(raw)
	if r == nil || r.Request != request || r.Accept != accept || r.MaxText != c.maxText {
		return nil
	}
	return r
}

// Origin returns the URL of a file of the cache, by its name, and when it was fetched; "" if it is no page.
func (f *Fetcher) Origin(name string) (url string, at time.Time) {
	if f.cache == nil {
		return "", at
	}
	info, err := f.cache.root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() {
		return "", at
	}
	file, err := f.cache.root.Open(name)
	if err != nil {
		return "", at
	}
	defer file.Close()
	head, err := bufio.NewReader(io.LimitReader(file, maxHead+1)).ReadBytes('\n')
	r := &record{}
	if err != nil || json.Unmarshal(head, r) != nil || r.Version != cacheVersion {
		return "", at
	}
	return r.URL, r.FetchedAt
}

func parseRecord(raw []byte) *record {
	head, body, ok := bytes.Cut(raw, []byte("\n"))
	if !ok || len(head) > maxHead {
		return nil
	}
	r := &record{}
	if err := json.Unmarshal(head, r); err != nil {
		return nil
	}
	if again, err := json.Marshal(r); err != nil || !bytes.Equal(again, head) { // no other form of it is ours
		return nil
	}
	sum := sha256.Sum256(body)
	if r.Version != cacheVersion || hex.EncodeToString(sum[:]) != r.SHA256 || len(r.Hops) == 0 ||
		r.Hops[len(r.Hops)-1] != r.URL || !r.IsData && !utf8.Valid(body) {
		return nil
	}
	r.body = body
	return r
}

// put keeps a page, if the answer's header h allows that and keeping it is of use; otherwise the page that was kept for the same request is removed.
func (c *cache) put(r *record, h http.Header) {
	name := cacheName(r.Request, r.Accept)
	r.MaxText = c.maxText
	head, err := json.Marshal(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || len(head) > maxHead || !storable(h) || r.ETag == "" && r.LastModified == "" && !r.FreshUntil.After(r.FetchedAt) {
		c.root.Remove(name)
		return
	}
	temp := tempPrefix + rand.Text()
	file := slices.Concat(head, []byte("\n"), r.body)
	if err := c.root.WriteFile(temp, file, 0o600); err != nil || c.root.Rename(temp, name) != nil {
		c.root.Remove(temp)
		return
	}
	if c.total += room(int64(len(file))); c.total > c.max {
		c.evict()
	}
}

func (c *cache) remove(r *record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.root.Remove(cacheName(r.Request, r.Accept))
}

// room is the space of a file on the disk, so that many small ones count.
func room(size int64) int64 { return (size + 4095) &^ 4095 }

// evict removes the oldest files until a tenth of the room is free, and files that were left half written.
func (c *cache) evict() {
	entries, err := fs.ReadDir(c.root.FS(), ".")
	if err != nil {
		return
	}
	var files []fs.FileInfo
	c.total = 0
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil || !info.Mode().IsRegular():
		case strings.HasPrefix(e.Name(), tempPrefix) && time.Since(info.ModTime()) > time.Hour:
			c.root.Remove(e.Name())
		default:
			files = append(files, info)
			c.total += room(info.Size())
		}
	}
	if c.total <= c.max {
		return
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, f := range files {
		if c.total <= c.max-c.max/10 {
			return
		}
		if c.root.Remove(f.Name()) == nil {
			c.total -= room(f.Size())
		}
	}
}
