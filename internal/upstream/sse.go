package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
)

var errEventTooLarge = errors.New("an event is larger than the limit")

// events reads a text/event-stream by the WHATWG rules: CR, LF and CRLF end a line, one leading byte order mark is dropped, data lines are
// joined by LF, comments and unknown fields are ignored, and an event that the end of the stream cuts short is discarded.
type events struct {
	r     *bufio.Reader
	max   int // bytes of one event's lines
	line  []byte
	held  *[]byte // line's home
	begun bool
	cr    bool // the last line ended in CR: an LF right after it belongs to that ending

	lastID string        // what a resumption would name
	retry  time.Duration // what the server asked for, 0 if nothing
}

func newEvents(r *bufio.Reader, max int) *events {
	held := scratch.Get().(*[]byte)
	return &events{r: r, max: max, line: *held, held: held}
}

// free gives the line's buffer back. The events are not read any further.
func (s *events) free() {
	*s.held = s.line
	keep(s.held)
	s.line, s.held = nil, nil
}

// next returns the data of the next message event that carries any. The bytes are the caller's.
func (s *events) next() ([]byte, error) {
	var (
		data    []byte
		hasData bool
		name    string
		size    int
		id      = s.lastID
	)
	for {
		line, err := s.readLine()
		if err != nil {
			return nil, err
		}
		if size += len(line) + 1; size > s.max {
			return nil, errEventTooLarge
		}
		if len(line) == 0 {
			s.lastID = id
			if hasData && (name == "" || name == "message") {
				return data, nil
			}
			data, hasData, name, size = nil, false, "", 0
			continue
		}
		field, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(field) {
		case "data":
			if hasData {
				data = append(data, '\n')
			}
			data = append(data, value...)
			hasData = true
		case "event":
			name = string(value)
		case "id":
			// An id goes into a header of ours when the stream is resumed.
			if len(value) <= 512 && headerSafe(value) {
				id = string(value)
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				s.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// readLine returns the next line without its ending. The bytes are good until the next call.
func (s *events) readLine() ([]byte, error) {
	if !s.begun {
		s.begun = true
		if mark, err := s.r.Peek(3); err == nil && string(mark) == "\xef\xbb\xbf" {
			s.r.Discard(3)
		}
	}
	s.line = s.line[:0]
	for {
		if s.r.Buffered() == 0 {
			if _, err := s.r.Peek(1); err != nil {
				return nil, err // a line without its end is no line
			}
		}
		chunk, _ := s.r.Peek(s.r.Buffered())
		if s.cr {
			s.cr = false
			if chunk[0] == '\n' {
				s.r.Discard(1)
				continue
			}
		}
		end := bytes.IndexByte(chunk, '\n')
		if end < 0 {
			end = bytes.IndexByte(chunk, '\r')
		} else if cr := bytes.IndexByte(chunk[:end], '\r'); cr >= 0 {
			end = cr
		}
		if end < 0 {
			if len(s.line)+len(chunk) > s.max {
				return nil, errEventTooLarge
			}
			s.line = append(s.line, chunk...)
			s.r.Discard(len(chunk))
			continue
		}
		if len(s.line)+end > s.max {
			return nil, errEventTooLarge
		}
		s.line = append(s.line, chunk[:end]...)
		s.cr = chunk[end] == '\r'
		s.r.Discard(end + 1)
		return s.line, nil
	}
}

func headerSafe(value []byte) bool {
	for _, b := range value {
		if b < 0x20 || b > 0x7e {
			return false
		}
	}
	return true
}

// counted reads at most n bytes and then fails, so that no stream can be endless.
type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	if c.n <= 0 {
		return 0, errEventTooLarge
	}
	if int64(len(p)) > c.n {
		p = p[:c.n]
	}
	n, err := c.r.Read(p)
	c.n -= int64(n)
	return n, err
}
