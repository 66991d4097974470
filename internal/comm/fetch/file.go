package fetch

import (
	"context"
	"net/http"
	"net/url"
	"path"
	"strings"
	"unicode/utf8"

	"sallyport.example/internal/egress"
	"sallyport.example/internal/fault"
)

// DOCX is the media type of files of a word processor. They are given to people's programs alone.
const DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"

// File is what an address has, whole: the source of a page or text, in UTF-8, or the bytes of a PDF or DOCX.
type File struct {
	URL       string   // the last one, after redirects
	Hops      []string // every URL gone through, in order; the last is URL
	MediaType string
	Bytes     []byte
}

// Name is the last part of the path of the address.
func (f *File) Name() string {
	u, err := url.Parse(f.URL)
	if err != nil {
		return ""
	}
	return path.Base(u.Path)
}

const filesServed = "HTML, plain text, Markdown, CSV, JSON, XML, source, PDF and DOCX are taken."

// File fetches a whole file, by the rules of Fetch, but not from the cache. Anything but a success is an error, and so is a text that its encoding does not fit: nothing of it is replaced.
func (f *Fetcher) File(ctx context.Context, address string) (*File, error) {
	r := Request{URL: address, Format: "raw"}
	if err := f.check(&r); err != nil {
		return nil, err
	}
	resp, err := f.web.Do(ctx, egress.Request{URL: r.URL, Header: http.Header{"Accept": {accepts["raw"] + ", " + DOCX + ";q=0.4"}}})
	if err != nil {
		return nil, err
	}
	if resp.Status != http.StatusOK {
		return nil, fault.New(fault.UpstreamFailed, "The server answers with status %d and no file.", resp.Status).At("url").Try("Look whether the address is right.")
	}
	file := &File{URL: resp.URL, Hops: resp.Hops, MediaType: mediaType(resp.Header.Get("Content-Type")), Bytes: resp.Body}
	sniffed := mediaType(http.DetectContentType(resp.Body))
	if unnamed(file.MediaType) {
		file.MediaType = sniffed
		if sniffed == "application/zip" && strings.EqualFold(path.Ext(file.Name()), ".docx") {
			file.MediaType = DOCX
		}
	}
	switch k := kindOf(file.MediaType); {
	case k == pdf && sniffed != file.MediaType, file.MediaType == DOCX && sniffed != "application/zip":
		return nil, lies(file.MediaType)
	case k == pdf, file.MediaType == DOCX:
		return file, nil
	case k == refused, k == image:
		return nil, fault.New(fault.ResultInvalid, "The content has the type %s, which is not taken.", file.MediaType).At("url").Try(filesServed)
	default:
		text, _, ok := decode(resp.Body, resp.Header.Get("Content-Type"), k)
		if !ok || strings.HasPrefix(text, "%PDF-") || binary(text) {
			return nil, lies(file.MediaType)
		}
		if strings.ContainsRune(text, utf8.RuneError) && !utf8.Valid(resp.Body) {
			return nil, fault.New(fault.ResultInvalid, "The text is not in the encoding that it is said to be in.").At("url").Try("Save it, convert it to UTF-8, and add the file.")
		}
		file.Bytes = []byte(text)
		return file, nil
	}
}
