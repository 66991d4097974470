package fetch

import (
	"bytes"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"

	"sallyport.example/internal/egress"
	"sallyport.example/internal/fault"
)

// kind is the way in which a media type is treated.
type kind int

const (
	refused kind = iota
	htmlText
	xmlText
	otherText
	image
	pdf
)

// Types of application/ that are text, besides those that end in +json, +xml, +yaml or -script.
var textual = set(`application/json application/ld+json application/x-ndjson application/jsonl application/json5 application/javascript
	application/ecmascript application/x-javascript application/typescript application/yaml application/x-yaml application/toml application/sql
	application/graphql application/rtf application/x-sh application/x-httpd-php application/x-www-form-urlencoded application/x-tex
	application/x-latex application/x-subrip application/mbox application/pgp-signature application/pgp-keys message/rfc822`)

func kindOf(mediaType string) kind {
	switch mediaType {
	case "text/html", "application/xhtml+xml":
		return htmlText
	case "application/xml", "text/xml", "image/svg+xml":
		return xmlText
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return image
	case "application/pdf":
		return pdf
	}
	switch {
	case !strings.HasPrefix(mediaType, "image/") && strings.HasSuffix(mediaType, "+xml"):
		return xmlText
	case strings.HasPrefix(mediaType, "text/"), textual[mediaType], strings.HasSuffix(mediaType, "+json"), strings.HasSuffix(mediaType, "+yaml"):
		return otherText
	}
	return refused
}

// elsewhere is the way out if the answer of a server is of no use.
const elsewhere = "Look for the same at another address."

const served = "HTML, plain text, Markdown, JSON, XML, PNG, JPEG, GIF, WebP and PDF are served."

// read makes a page of an answer: its type, and its text or data.
func (f *Fetcher) read(r Request, resp *egress.Response) (*Page, error) {
	p := &Page{MediaType: mediaType(resp.Header.Get("Content-Type"))}
	if r.Method == http.MethodHead {
		return p, f.mark(p, resp.Status, nil)
	}
	return p, f.mark(p, resp.Status, f.fill(p, r.Format, resp))
}

// mark puts a failure's status in front of its page. That its content is not served is then no error: fill has left the text empty.
func (f *Fetcher) mark(p *Page, status int, err error) error {
	if status < 400 {
		return err
	}
	line := strings.TrimSpace(fmt.Sprintf("HTTP %d %s", status, http.StatusText(status)))
	p.Data = nil
	if p.Text != "" {
		line += "\n\n"
	}
	text, cut := truncate(line+p.Text, f.maxText)
	p.Text, p.Truncated = text, p.Truncated || cut
	return nil
}

// mediaType reads a Content-Type; one that can't be read is "".
func mediaType(contentType string) string {
	t, _, err := mime.ParseMediaType(contentType)
	if err != nil || !strings.Contains(t, "/") || len(t) > 100 {
		return ""
	}
	if t == "image/jpg" || t == "image/pjpeg" {
		return "image/jpeg"
	}
	return t
}

// unnamed tells whether a server says by a type that it does not know it.
func unnamed(mediaType string) bool {
	switch mediaType {
	case "", "application/octet-stream", "binary/octet-stream", "application/x-unknown", "unknown/unknown":
		return true
	}
	return false
}

func (f *Fetcher) fill(p *Page, format string, resp *egress.Response) error {
	sniffed := mediaType(http.DetectContentType(resp.Body))
	if unnamed(p.MediaType) {
		p.MediaType = sniffed
	}
	k := kindOf(p.MediaType)
	switch k {
	case refused:
		return fault.New(fault.ResultInvalid, "The content has the type %s, which is not served.", p.MediaType).Try(served)
	case image, pdf:
		limit, what := f.maxImage, "image"
		if k == pdf {
			limit, what = f.maxPDF, "PDF document"
		}
		if sniffed != p.MediaType {
			return lies(p.MediaType)
		}
		if int64(len(resp.Body)) > limit {
			return fault.New(fault.ResultTooLarge, "The %s has %d bytes; the limit is %d.", what, len(resp.Body), limit).Try("Look for a smaller one.")
		}
		p.Data = resp.Body
		return nil
	}
	text, name, ok := decode(resp.Body, resp.Header.Get("Content-Type"), k)
	if !ok || strings.HasPrefix(text, "%PDF-") || binary(text) {
		return lies(p.MediaType)
	}
	p.Charset = name
	if k != htmlText || format == "raw" {
		p.Text, p.Truncated = truncate(text, f.maxText)
		return nil
	}
	from, err := url.Parse(resp.URL)
	if err != nil {
		return fault.Wrap(err, fault.ResultInvalid, "The address of the page is not valid.")
	}
	p.Title, p.Text, p.Truncated = readHTML(text, from, format == "markdown", f.maxText)
	return nil
}

func lies(mediaType string) error {
	return fault.New(fault.ResultInvalid, "The content is not what its type says, %s; it was discarded.", mediaType).Try(elsewhere)
}

var xmlEncoding = regexp.MustCompile(`^<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']`)

// decode makes UTF-8 of a text: by its byte order mark, by its Content-Type, by what it says itself; failing these it is UTF-8, or
// windows-1252 where it can't be.
func decode(body []byte, contentType string, k kind) (text, name string, ok bool) {
	label := ""
	for _, mark := range [][2]string{{"\xef\xbb\xbf", "utf-8"}, {"\xfe\xff", "utf-16be"}, {"\xff\xfe", "utf-16le"}} {
		if rest, ok := bytes.CutPrefix(body, []byte(mark[0])); ok {
			label, body = mark[1], rest
			break
		}
	}
	if label == "" {
		if _, params, err := mime.ParseMediaType(contentType); err == nil {
			if e, _ := charset.Lookup(params["charset"]); e != nil {
				label = params["charset"]
			}
		}
	}
	if m := xmlEncoding.FindSubmatch(body); label == "" && m != nil && k != otherText {
		label = string(m[1])
		if strings.HasPrefix(strings.ToLower(label), "utf-16") {
			label = "utf-8" // or it could not have been read
		}
	}
	if label == "" && k == htmlText {
		_, label, _ = charset.DetermineEncoding(body, "")
		if label == "windows-1252" { // also where the page doesn't say
			label = ""
		}
	}
	e, name := charset.Lookup(label)
	switch {
	case e != nil:
	case utf8.Valid(body):
		name = "utf-8"
	default:
		e, name = charset.Lookup("windows-1252")
	}
	if name == "utf-8" {
		return strings.ToValidUTF8(string(body), "\ufffd"), name, true
	}
	out, err := e.NewDecoder().Bytes(body)
	if err != nil {
		return "", name, false
	}
	return strings.ToValidUTF8(string(out), "\ufffd"), name, true
}

// binary tells whether bytes are no text: they have a NUL near its beginning, or every twentieth character is none of writing.
func binary(s string) bool {
	if strings.IndexByte(s[:min(len(s), 1024)], 0) >= 0 {
		return true
	}
	bad, all := 0, 0
	for _, r := range s {
		all++
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' && r != '\f' && r != 0x1b || r >= 0x7f && r < 0xa0 || r == utf8.RuneError {
			bad++
		}
	}
	return bad*20 > all
}
