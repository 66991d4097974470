package egress

import (
	"bufio"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Compressed text rarely comes to a fifth of this ratio; the first MiB is not checked for it.
const (
	maxRatio   = 200
	ratioFloor = 1 << 20
)

var (
	errTooLarge = errors.New("over the limit")
	errEncoding = errors.New("an encoding that was not asked for")
	errUpgrade  = errors.New("it switches to another protocol")
)

func (c *Client) tooLarge(host string) string {
	return fmt.Sprintf("The answer of %s is over %d bytes, or grows out of all proportion when decompressed, and was discarded.", host, c.maxBytes)
}

// readBody reads the whole body into resp, decompressed. Bytes are counted after decompression; a declared length is believed only if it
// is too large.
func (c *Client) readBody(resp *Response, raw *http.Response, method string) error {
	if raw.StatusCode == http.StatusSwitchingProtocols {
		return errUpgrade
	}
	if method == http.MethodHead || raw.StatusCode == http.StatusNoContent || raw.StatusCode == http.StatusNotModified {
		return nil
	}
	if raw.ContentLength > c.maxBytes {
		return errTooLarge
	}
	wire := &counter{r: raw.Body}
	var plain io.Reader = wire
	switch encoding := contentEncoding(raw.Header); encoding {
	case "":
	case "gzip", "x-gzip", "deflate":
		buffered := bufio.NewReader(wire)
		if _, err := buffered.Peek(1); err == io.EOF {
			return nil // compressed nothing
		}
		var err error
		if encoding == "deflate" {
			plain, err = zlib.NewReader(buffered)
		} else {
			plain, err = gzip.NewReader(buffered)
		}
		if err != nil {
			return err
		}
		resp.Header.Del("Content-Encoding")
		resp.Header.Del("Content-Length")
		plain = &proportionate{r: plain, wire: wire}
	default: // among them two encodings, one inside the other
		return errEncoding
	}
	body, err := io.ReadAll(io.LimitReader(plain, c.maxBytes+1))
	if err != nil {
		return err
	}
	if int64(len(body)) > c.maxBytes {
		return errTooLarge
	}
	resp.Body = body
	return nil
}

// contentEncoding returns the encoding of a body, "" if it has none.
func contentEncoding(h http.Header) string {
	encoding := strings.ToLower(strings.TrimSpace(strings.Join(h.Values("Content-Encoding"), ",")))
	if encoding == "identity" {
		return ""
	}
	return encoding
}

// counter counts what has been read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// proportionate ends a decompression that makes far more out of little than text would.
type proportionate struct {
	r    io.Reader
	wire *counter
	n    int64
}

func (p *proportionate) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.n += int64(n)
	if p.n > ratioFloor && p.n/maxRatio > p.wire.n {
		return 0, errTooLarge
	}
	return n, err
}
