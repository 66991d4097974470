package anchor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/mod/sumdb/note"

	"sallyport.example/internal/audit"
)

// File is an anchor in a file. It should lie on another machine, or where another user alone can replace it. key is the log's public key.
func File(path string, key note.Verifier) *Anchor {
	return &Anchor{place: file(path), key: key, clock: time.Now}
}

type file string

func (p file) String() string { return string(p) }

func (p file) get(context.Context) ([]byte, error) {
	f, err := os.OpenFile(string(p), os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for a writer for ever
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Dir(string(p))); err != nil { // a disk that is not mounted is no anchor that was never made
			return nil, errors.New("its folder is not there")
		}
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil {
		return nil, err
	} else if !st.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	return bounded(f)
}

func (p file) put(_ context.Context, data []byte) error { return audit.ReplaceFile(string(p), data) }

func bounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxMark+1))
	if err == nil && len(data) > maxMark {
		err = fmt.Errorf("it has more than %d bytes", maxMark)
	}
	return data, err
}

// Webhook is an anchor at a web address: GET returns what the last PUT brought, or 404 where there was none. headers are sent with both. key is the
// log's public key.
func Webhook(address string, headers map[string]string, key note.Verifier) (*Anchor, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil, errors.New("not a web address")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // one request in two seconds, and nothing to close
	return &Anchor{place: &webhook{address: u, headers: headers, transport: transport}, key: key, clock: time.Now}, nil
}

type webhook struct {
	address   *url.URL
	headers   map[string]string
	transport http.RoundTripper
}

// String leaves out the path and the query, which may hold a secret.
func (p *webhook) String() string { return p.address.Scheme + "://" + p.address.Host }

func (p *webhook) get(ctx context.Context) ([]byte, error) { return p.do(ctx, http.MethodGet, nil) }

func (p *webhook) put(ctx context.Context, data []byte) error {
	_, err := p.do(ctx, http.MethodPut, data)
	return err
}

func (p *webhook) do(ctx context.Context, method string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.address.String(), bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the request can't be made")
	}
	for name, value := range p.headers {
		req.Header.Set(name, value)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := p.transport.RoundTrip(req) // not http.Client: that follows redirects, and has the address in its errors
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := bounded(resp.Body)
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusNotFound && method == http.MethodGet:
		return nil, fs.ErrNotExist
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return nil, fmt.Errorf("%s was answered with %d %s", method, resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return data, nil
}
